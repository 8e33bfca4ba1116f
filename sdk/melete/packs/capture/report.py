"""What capture did, for a person and for a machine.

Source: AMP v0.4, Part 5 (validation report).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from melete.packs.capture.distill import Judged, Outcome
from melete.packs.capture.review import shown_text
from melete.packs.capture.routes import FILES
from melete.packs.capture.sources import LeftOut, Source
from melete.packs.capture.uncut import Uncut
from melete.packs.credentials import quote

#: Lines of one kind that a person is shown; the rest is counted.
MOST_SHOWN: Final = 50


def compute_report(
    name: str,
    sources: Sequence[Source],
    judged: Sequence[Judged],
    left_out: Sequence[LeftOut],
    uncut: Sequence[Uncut] = (),
) -> dict[str, Any]:
    """Return everything about a capture as JSON, without the words of rejected units."""
    outcomes = Counter(one.outcome for one in judged)
    kept = [one for one in judged if one.outcome is Outcome.KEPT]
    return {
        "name": name,
        "passed": outcomes[Outcome.KEPT],
        "failed": outcomes[Outcome.REJECTED],
        "ambiguous": outcomes[Outcome.AMBIGUOUS],
        "dropped": {
            "actionLog": outcomes[Outcome.ACTION_LOG],
            "duplicate": outcomes[Outcome.DUPLICATE],
            "byReview": outcomes[Outcome.DROPPED],
        },
        "files": {file: count for file in FILES if (count := sum(one.proposal.file == file for one in kept))},
        "sources": [{"path": one.path, "shape": one.shape.value, "reason": one.shape_reason} for one in sources],
        "leftOut": [one._asdict() for one in left_out],
        "uncut": [one._asdict() for one in uncut],
        "units": [
            {
                "id": one.id,
                "source": one.unit.source,
                "line": one.unit.line,
                "outcome": one.outcome.value,
                "reason": one.reason,
                "type": one.proposal.type,
                "facets": dict(one.proposal.facets),
                "file": one.proposal.file,
                "findings": [finding.to_json() for finding in one.findings],
            }
            for one in judged
        ],
    }


def to_lines(report: dict[str, Any], judged: Sequence[Judged]) -> list[str]:
    """Return the report as lines: counts in the format's own form, then what needs a person."""
    lines = [f"PASS: {report['passed']} primitives valid", f"FAIL: {report['failed']} primitives failed validation"]
    for one in judged:
        if one.outcome is Outcome.REJECTED:
            lines.append(f"  - {one.id} — REASON: {quote(one.place, 200)}: {one.reason}")
    lines.append(f"WARN: {report['ambiguous']} ambiguous units still unresolved — awaiting human review")
    asked = [one for one in judged if one.outcome is Outcome.AMBIGUOUS]
    for one in asked[:MOST_SHOWN]:
        lines.append(f"  - {one.id} {quote(one.place, 200)}: {one.reason}")
        lines.append(f"      {quote(' '.join(shown_text(one).split()), 100)}")
    if len(asked) > MOST_SHOWN:
        lines.append(f"  ... and {len(asked) - MOST_SHOWN} more")
    dropped = report["dropped"]
    lines.append(
        f"dropped: {dropped['actionLog']} action-log, {dropped['duplicate']} duplicate, {dropped['byReview']} by review"
    )
    for file, count in report["files"].items():
        lines.append(f"  {count:4} in memory/{file}")
    left = report["leftOut"]
    if left:
        lines.append(f"left out: {len(left)} files")
        lines += [f"  - {quote(one['path'], 200)}: {one['reason']}" for one in left[:MOST_SHOWN]]
        if len(left) > MOST_SHOWN:
            lines.append(f"  ... and {len(left) - MOST_SHOWN} more")
    uncut = report["uncut"]
    if uncut:
        lines.append(f"not cut into units: {sum(one['lines'] for one in uncut)} lines")
        lines += [f"  - {quote(one['path'], 200)} line{_span(one['first'], one['last'])}" for one in uncut[:MOST_SHOWN]]
        if len(uncut) > MOST_SHOWN:
            lines.append(f"  ... and {len(uncut) - MOST_SHOWN} more places")
    return lines


def _span(first: int, last: int) -> str:
    return f" {first}" if first == last else f"s {first}-{last}"
