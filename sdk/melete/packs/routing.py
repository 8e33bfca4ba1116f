"""The routing table of a pack: which capability file an agent reads always, and which for which task.

    routing = parse_routing(text)        # of agents.md
    routing.always[0].file               # "operating-principles.md"
    routing.routes[0].task               # "Writing anything (copy, posts)"

Pure. A file is named as in the table, without `memory/` before it.

Source: AMP v0.4, Part 2 (agents.md).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from melete.packs.credentials import quote
from melete.packs.findings import Finding, Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Final

AGENTS_FILE: Final = "agents.md"
OPERATING_PRINCIPLES: Final = "operating-principles.md"
#: What a section is called, in small letters.
_SECTIONS: Final = (("always load", "always"), ("route by task", "routes"))


class Entry(NamedTuple):
    """One file, and what leads to it: a task, or for files that are always read, their description."""

    task: str
    file: str
    line: int


class Routing(NamedTuple):
    """A routing table. `empty_rows` are the lines of rows that name no file."""

    always: tuple[Entry, ...]
    routes: tuple[Entry, ...]
    empty_rows: tuple[int, ...] = ()


def parse_routing(text: str) -> Routing:
    """Return the table that agents.md holds. Whatever else it holds is passed over."""
    found: dict[str, list[Entry]] = {"always": [], "routes": []}
    empty: list[int] = []
    section = ""
    lines = text.replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if stripped.startswith("#"):
            heading = stripped.lstrip("#").strip().lower()
            section = next((section for name, section in _SECTIONS if heading.startswith(name)), "")
        elif section == "always" and stripped[:2] in ("- ", "* ", "+ "):
            files = _find_files(stripped)
            description = re.split(r"\s(?:—|\u2013|--?)\s|:\s", stripped[2:], maxsplit=1)[1:]
            found[section] += (Entry(description[0].strip() if description else "", file, number) for file in files)
            empty += [] if files else [number]
        elif section == "routes" and stripped.startswith("|"):
            cells = _split_row(stripped)
            if _is_rule(cells) or (number < len(lines) and _is_rule(_split_row(lines[number].strip()))):
                continue
            files = _find_files(cells[-1]) if len(cells) > 1 else []
            found[section] += (Entry(cells[0], file, number) for file in files)
            empty += [] if files else [number]
    return Routing(tuple(found["always"]), tuple(found["routes"]), tuple(empty))


def _find_files(text: str) -> list[str]:
    """Return the files that a cell or an item names, each once."""
    names = re.findall(r"[^\s`|\[\]()<>,;\"'*]{1,200}\.md(?![\w-])", text)
    return list(dict.fromkeys(name.removeprefix("./").removeprefix("memory/") for name in names))


def _split_row(row: str) -> list[str]:
    """Return the cells of a table's row; a bar after a backslash is text."""
    if not row.startswith("|"):
        return []
    cells = re.split(r"(?<!\\)\|", row[1:].rstrip().removesuffix("|"))
    return [cell.replace("\\|", "|").strip() for cell in cells]


def _is_rule(cells: list[str]) -> bool:
    """Return whether a row is the line below a table's head."""
    return bool(cells) and all(re.fullmatch(r":?-+:?", cell) for cell in cells)


def check_routing(routing: Routing, capability_files: Collection[str], present: Collection[str]) -> list[Finding]:
    """Return where a routing table and a pack's files differ.

    `capability_files` are those of the manifest, `present` the names of all that lie in `memory/`.
    """
    return list(_find_faults(routing, capability_files, set(present)))


def _find_faults(routing: Routing, capability_files: Collection[str], present: set[str]) -> Iterator[Finding]:
    def finding(rule: str, line: int | None, message: str, remedy: str, *, warn: bool = True) -> Finding:
        return Finding(rule, Severity.WARNING if warn else Severity.ERROR, AGENTS_FILE, line, message, remedy)

    entries = (*routing.always, *routing.routes)
    if not entries and capability_files:
        remedy = "write `## Always load` with a list, and `## Route by task type` with a table"
        yield finding("routing-empty", None, "it routes to no file", remedy)
        return
    for entry in entries:
        if entry.file not in present:
            message = f"it routes to {quote(entry.file)}, which memory/ does not hold"
            yield finding("routing-missing-file", entry.line, message, "add the file, or remove the row", warn=False)
    for line in routing.empty_rows:
        yield finding("routing-row", line, "a row that names no file", "name a file of memory/, as in copy-voice.md")
    routed = {entry.file for entry in entries}
    for name in capability_files:
        if name not in routed:
            message = f"no row leads to {quote(name)}, so that no agent reads it"
            yield finding("routing-unrouted", None, message, "add a row for it")
    always = {entry.file for entry in routing.always}
    if OPERATING_PRINCIPLES in routed - always:
        message = f"{OPERATING_PRINCIPLES} does not stand under Always load"
        yield finding("routing-always", None, message, "list it there")
