"""Primitives as packs of v0.3 hold them: each with a YAML frontmatter of its own. They are read, never written.

    ---
    type: cluster
    ---

    ---
    type: directive
    force: must
    ---

    In all copy, never use em dashes.

    **Why:** Org-wide ban.

    ---

    ---
    type: claim
    ---

    Arkzero is a company of one.

Pure, as `melete.packs.grammar` is, and to the same `Cluster`; a primitive's `content` may have many lines here, and
its `source` is its own.

Source: AMP v0.4, Part 11; the form of v0.3 as packs in the wild have it.
"""

from __future__ import annotations

from typing import Any

from melete.packs.credentials import quote
from melete.packs.findings import Finding, Severity
from melete.packs.frontmatter import load_frontmatter
from melete.packs.grammar import (
    ALIASES,
    FACETS,
    ORIGINS,
    TYPES,
    Cluster,
    Unit,
    make_cluster,
    normalize_lines,
    read_frontmatter,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

_FENCE: Final = "---"
_SPACE: Final = " \t\r\f\v"
_WHY: Final = "**Why:**"
_FACET_NAMES: Final = ("force", "scope", "stability", "valence")


def parse_cluster_v3(text: str, file: str) -> Cluster:
    """Return what a capability file of v0.3 holds. Nothing that it holds makes this fail: faults come as findings."""
    findings: list[Finding] = []
    text = normalize_lines(text)
    frontmatter, start = read_frontmatter(text, file, findings)
    if frontmatter is not None and frontmatter.get("type") in (*TYPES, *ALIASES):
        # No cluster says anything of itself here: this is the first primitive's own.
        frontmatter, start = None, 0
    lines = text.split("\n")
    units = []
    found = _split(lines, text.count("\n", 0, start), file, findings)
    for number, (at, yaml, body) in enumerate(found, start=1):
        unit = _read_unit(f"{file}#{number}", file, at + 1, yaml, body, findings)
        if unit is not None:
            units.append(unit)
    return make_cluster(file, frontmatter, {}, units, findings)


def _split(lines: list[str], at: int, file: str, findings: list[Finding]) -> Iterator[tuple[int, str, list[str]]]:
    """Yield each primitive: the index of the line that opens it, its YAML, the lines of its body."""
    told = False
    while at < len(lines):
        if not _is_fence(lines[at]):
            if lines[at].strip(_SPACE) and not told:
                told = True
                message = "text that belongs to no primitive, and is not read"
                remedy = "put it below a primitive's frontmatter, or remove it"
                findings.append(Finding("stray-text", Severity.WARNING, file, at + 1, message, remedy))
            at += 1
            continue
        told = False
        following = _skip_blank(lines, at + 1)
        if following == len(lines):
            return
        if _is_fence(lines[following]):
            # A line between two primitives; the next one's own comes after it.
            at = following
            if following + 1 == len(lines):
                return
        closed = next((index for index in range(at + 1, len(lines)) if _is_fence(lines[index])), None)
        if closed is None:
            message, remedy = "the frontmatter does not end", "write a line --- after its last member"
            findings.append(Finding("frontmatter", Severity.ERROR, file, at + 1, message, remedy))
            return
        end = next((index for index in range(closed + 1, len(lines)) if _ends_body(lines, index)), len(lines))
        yield at, "".join(f"{line}\n" for line in lines[at + 1 : closed]), lines[closed + 1 : end]
        at = end


def _is_fence(line: str) -> bool:
    return line.startswith(_FENCE) and line.rstrip(_SPACE) == _FENCE


def _skip_blank(lines: list[str], at: int) -> int:
    while at < len(lines) and not lines[at].strip(_SPACE):
        at += 1
    return at


def _ends_body(lines: list[str], at: int) -> bool:
    """Return whether a line ends a primitive: it is --- and no rule inside the text."""
    if not _is_fence(lines[at]):
        return False
    following = _skip_blank(lines, at + 1)
    return following == len(lines) or _is_fence(lines[following]) or lines[at + 1].startswith("type:")


def _read_unit(id: str, file: str, line: int, yaml: str, body: list[str], findings: list[Finding]) -> Unit | None:
    from melete.packs.errors import BadFrontmatter

    def tell(rule: str, message: str, remedy: str, at: int = line) -> None:
        findings.append(Finding(rule, Severity.ERROR, file, at, message, remedy, id))

    try:
        members = load_frontmatter(yaml, file, line + 1)
    except BadFrontmatter as fault:
        tell("frontmatter", f"the frontmatter cannot be read: {fault.reason}", "correct its YAML", fault.line)
        return None
    given = members.get("type")
    kind = ALIASES.get(given, given) if isinstance(given, str) else None
    if kind not in FACETS:
        tell("unknown-type", f"unknown type {_show(given)}", f"write type: and one of {', '.join(TYPES)}")
        return None
    faults = list(_find_faults(kind, members))
    for message, remedy in faults:
        tell("facet-value", message, remedy)
    content, reason = _read_body(body)
    if not content.strip():
        tell("content-missing", f"the {kind} holds no text", "write its text below its frontmatter")
    elif not faults:
        facets = {name: members[name] for name in _FACET_NAMES if name in members}
        illustrates = _read_illustrates(members.get("illustrates"))
        unit: Unit = tuple.__new__(
            Unit,
            (id, kind, facets, illustrates or None, content, None, reason, members.get("source"), line, ""),
        )
        return unit
    return None


def _find_faults(kind: str, members: dict[str, Any]) -> Iterator[tuple[str, str]]:
    expected = {facet.name: facet for facet in FACETS[kind]}
    for name in _FACET_NAMES:
        facet = expected.get(name)
        if facet is None:
            if name in members:
                yield f"a {kind} has no {name}", "remove it"
        elif name not in members:
            if facet.default is None:
                yield f"the {kind} has no {name}", f"write {name}: and one of {', '.join(facet.values)}"
        elif members[name] not in facet.values:
            yield f"{name} is {_show(members[name])}", f"write one of {', '.join(facet.values)}"
    origins = ORIGINS[:2] if kind == "demonstration" else ORIGINS
    if "source" in members and members["source"] not in origins:
        yield f"source is {_show(members['source'])}", f"write one of {', '.join(origins)}"
    if _read_illustrates(members.get("illustrates")) is None:
        yield "illustrates is no list of ids", "write illustrates: [id]"


def _read_illustrates(value: Any) -> str | None:
    """Return the ids in one text, "" where there are none, and None for what is no list of text."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    return ", ".join(ids) if all(isinstance(id, str) for id in ids) else None


def _read_body(body: list[str]) -> tuple[str, str | None]:
    """Return a body without its reasons, and the reasons: the paragraphs that begin with **Why:**."""
    kept: list[str] = []
    reasons: list[str] = []
    inside = False
    for index, line in enumerate(body):
        if not line.strip(_SPACE):
            inside = False
        elif line.startswith(_WHY) and (index == 0 or not body[index - 1].strip(_SPACE)):
            inside = True
            line = line.removeprefix(_WHY)
        if inside:
            reasons.append(line.strip(_SPACE))
        else:
            kept.append(line)
    while kept and not kept[-1].strip(_SPACE):
        kept.pop()
    return "\n".join(kept[_skip_blank(kept, 0) :]), "\n".join(reasons) if reasons else None


def _show(value: object) -> str:
    if value is None:
        return "missing"
    return quote(value) if isinstance(value, str) else f"no text but a value of type {type(value).__name__}"
