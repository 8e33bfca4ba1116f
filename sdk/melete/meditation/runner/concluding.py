"""What becomes of a layer, and of a cycle as a whole: decisions, and the record that states them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from melete.canonical import Json, canonicalize
from melete.meditation.documents import RECORD_SCHEMA
from melete.meditation.layers import Layer
from melete.meditation.runner.findings import (
    LONGEST_TEXT,
    CheckResult,
    Findings,
    cut_text,
    make_candidate,
    make_check,
    make_refusal,
)
from melete.meditation.runner.journal import Start
from melete.meditation.runner.obligations import Obligation, find_dropped, obligations_of

#: The record's member, among its extensions, that tells cycles apart.
CYCLE_ID: Final = "melete/cycle"
_NAMES: Final = ("runtime", "memory and skills", "tasks and roles", "cognition")


@dataclass(frozen=True, slots=True)
class Concluded:
    """A layer's entry in the record, and its new document if it changes."""

    layer: Layer
    entry: dict[str, Json]
    document: dict[str, Json] | None


def conclude_layer(
    findings: Findings,
    *,
    document: dict[str, Json] | None,
    registered: dict[str, Json] | None,
    completed: bool,
    failure: str | None = None,
    reason: str | None = None,
    open_changes: Iterable[dict[str, Json]] = (),
    obligations: Sequence[Obligation] = (),
) -> Concluded:
    """Return what becomes of a layer.

    `document` is what the routine says of it now, None to leave it as it is registered; `registered` what was
    committed to, None where that is not known here, and then the layer is committed anew. `failure` says why a layer
    that was not completed failed, `reason` whatever else is to be said. A cognition document that drops an obligation
    of the registered one, or one of `obligations`, is refused: the registered one stays, and the record says so.
    """
    findings = Findings(
        findings.layer,
        [*findings.checks, *map(_as_open_check, open_changes)],
        list(findings.observations),
        list(findings.changes),
        list(findings.candidates),
        list(findings.refusals),
        findings.evaluation,
    )
    changes = document is not None and (registered is None or canonicalize(document) != canonicalize(registered))
    if document is not None and findings.layer is Layer.COGNITION:
        known = dict.fromkeys([*obligations_of(registered or {}), *obligations])
        dropped = find_dropped(document, known)
        _tell_obligations(findings, len(known), dropped)
        if dropped and changes:
            _refuse(findings, dropped)
            changes = False
    if failure is not None:
        decision = "failed"
    elif changes:
        decision = "adopted"
    else:
        decision = "candidate" if findings.candidates else "kept"
    entry = findings.to_entry(completed=completed, decision=decision, reason=failure or reason)
    return Concluded(findings.layer, entry, document if changes else None)


def build_record(start: Start, layers: Sequence[Concluded], ended_at: int, *, cut_off: bool = False) -> dict[str, Json]:
    """Return the record of a cycle. `cut_off` is for one whose process was killed."""
    entries = [concluded.entry for concluded in sorted(layers, key=lambda one: one.layer)]
    completed = [entry for entry in entries if entry["completed"]]
    if len(completed) == len(entries) or (completed and not cut_off):
        ended = "normally"
    elif not cut_off and any(entry["decision"] == "failed" for entry in entries):
        ended = "failed"
    else:
        ended = "aborted"
    record: dict[str, Json] = {
        "schema": RECORD_SCHEMA,
        "subject": str(start.subject),
        "baseVersion": str(start.base_version),
        "preRoot": str(start.pre_root),
        "policyVersion": start.policy_version,
        "trigger": start.trigger,
        "startedAt": start.started_at,
        "endedAt": max(ended_at, start.started_at),
        "ended": ended,
        "summary": cut_text(start.summary or summarize(entries), LONGEST_TEXT),
        "layers": list(entries),
        "extensions": {CYCLE_ID: str(start.cycle_id)},
    }
    if start.reason:
        record["reason"] = cut_text(start.reason, LONGEST_TEXT)
    if start.next_planned_at:
        record["nextPlannedAt"] = start.next_planned_at
    return record


def summarize(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a summary that counts and shows nothing of what was found: it may be handed out where records are not."""
    parts = []
    for entry in entries:
        told = f"{_NAMES[entry['layer']]} {'completed' if entry['completed'] else 'not completed'}, {entry['decision']}"
        counts = [
            _count(len(entry["changes"]), "change"),
            _count(sum(check["result"] == "failed" for check in entry["checks"]), "failed check"),
            _count(len(entry["candidates"]), "candidate"),
            _count(len(entry.get("refusals", [])), "refusal"),
        ]
        parts.append(f"{told}{''.join(f', {count}' for count in counts if count)}")
    return f"{'; '.join(parts)}."


def ended_at(findings: Iterable[Findings], last_at: int) -> int:
    """Return when a cycle ended: not before anything that was observed in it."""
    times: list[Any] = [one["observedAt"] for found in findings for one in found.observations]
    return int(max([last_at, *times]))


def carry_on(findings: Iterable[Findings], started_at: int) -> list[dict[str, Json]]:
    """Return the changes of a cycle that is not going to be registered, for the next record to tell."""
    told = f"made by a cycle that started at {started_at} and could not be registered"
    return [
        {
            **change,
            "layer": found.layer.value,
            "detail": cut_text(f"{told}: {change['detail']}" if "detail" in change else told, LONGEST_TEXT),
        }
        for found in findings
        for change in found.changes
    ]


def _tell_obligations(findings: Findings, known: int, dropped: Sequence[Obligation]) -> None:
    if dropped:
        told = f"of {known} that are known, it lacks, or words otherwise: {', '.join(one.id for one in dropped)}"
        findings.checks.append(make_check("obligations-kept", CheckResult.FAILED, told))
    elif known:
        findings.checks.append(make_check("obligations-kept", CheckResult.PASSED, f"{known} of {known}"))


def _refuse(findings: Findings, dropped: Sequence[Obligation]) -> None:
    change = "the cognition layer as it stands here"
    for obligation in dropped:
        reason = "it lacks the obligation, or words it otherwise; the registered document stays"
        findings.refusals.append(make_refusal(obligation.id, change, reason))
    count = len(dropped)
    reason = f"it would drop {count} obligation{'s' * (count > 1)}"
    findings.candidates.append(make_candidate("cognition-as-it-stands", change, reason))


def _as_open_check(change: dict[str, Json]) -> dict[str, Json]:
    detail = f"{change['operation']}: {change['what']}; it was begun, and nobody knows whether it was made"
    return make_check("change cut off", CheckResult.COULD_NOT_TELL, detail)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number > 1)}" if number else ""
