"""Everything that can be said of a pack without a key: gates, manifest, grammar, counts, routing, hidden things.

    report = validate(load_tree("my-pack"))
    report.ok                 # no finding is an error
    print(report.to_text())   # PASS, FAIL and WARN, as the specification prints them

With `strict`, every warning is an error. Whether a claim is true or a directive wise is not judged.

Source: AMP v0.4, Parts 2, 3, 5, 7 and 9.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from melete.packs.block import AGENTS_REMEDY, AGENTS_RULE, find_agents_fault
from melete.packs.credentials import quote, show_path
from melete.packs.findings import Finding, Severity
from melete.packs.grammar import (
    ORIGINS,
    TYPES,
    find_citations,
    join_reason,
    normalize_lines,
    read_frontmatter,
    walk,
)
from melete.packs.manifest import AGENTS_FILE, MANIFEST, MEMORY, V03, Manifest, check_manifest, is_count, load_manifest
from melete.packs.quick_look import cites_only, locate, look_quickly
from melete.packs.routing import OPERATING_PRINCIPLES, check_routing, parse_routing
from melete.packs.scan import LARGEST, leave_signature_out, scan_content, scan_large, scan_name
from melete.packs.wording import HOW_TO, READS_AS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from typing import Any

    from melete.packs.errors import PackError
    from melete.packs.grammar import Source
    from melete.packs.tree import PackTree


#: The remedy for what makes it pointless to look any further.
_FIRST = "correct this and validate again; nothing after it was looked at"


class Report(NamedTuple):
    """What was found: primitives without and with errors, those that a person should look at, and every finding."""

    findings: tuple[Finding, ...]
    passed: int = 0
    failed: int = 0
    ambiguous: int = 0
    name: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the pack holds: there may be warnings, and no error."""
        return not any(finding.is_error for finding in self.findings)

    def to_text(self) -> str:
        """Return the report as Part 5 prints it, and with every finding its rule, its place and how to clear it."""
        lines = [f"PASS: {self.passed} primitives valid", f"FAIL: {self.failed} primitives failed validation"]
        lines += [_to_line(finding) for finding in self.findings if finding.is_error]
        lines.append(f"WARN: {self.ambiguous} ambiguous units still unresolved — awaiting human review")
        lines += [_to_line(finding) for finding in self.findings if not finding.is_error]
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON: the counts, and the findings in order."""
        return {
            "name": None if self.name is None else show_path(self.name),
            "ok": self.ok,
            "passed": self.passed,
            "failed": self.failed,
            "ambiguous": self.ambiguous,
            "findings": [finding.to_json() for finding in self.findings],
        }


def _to_line(finding: Finding) -> str:
    name = finding.unit if finding.unit and finding.unit.isprintable() else finding.place
    return f"  - {name} — REASON: {finding.message} ({finding.rule}, {finding.place}); {finding.remedy}"


def validate_folder(folder: str | os.PathLike[str], *, strict: bool = False) -> Report:
    """Return the report on a pack in a folder. What makes it no pack at all is a finding too.

    Errors: `InvalidInput` for what is no folder; `MissingFile` for what may not be read.
    """
    from melete.packs.tree import load_tree

    try:
        return validate(load_tree(folder), strict=strict)
    except _refusals() as refusal:
        return Report((_refused(refusal),))


def validate(tree: PackTree, manifest: Manifest | None = None, *, strict: bool = False) -> Report:
    """Return the report on a pack. `manifest` is the pack's own, if it is loaded already.

    A pack whose gates do not open has one finding, the gate. Errors: `PackRefused` and `MissingFile`, when a file
    changes or cannot be read.
    """
    if manifest is None:
        try:
            manifest = load_manifest(tree)
        except _refusals() as refusal:
            return Report((_refused(refusal),))
    return _Validation(tree, manifest, strict=strict).run()


def _refusals() -> type[PackError]:
    # Only when something is refused; the classes take longer to import than a pack to validate.
    from melete.packs.errors import PackError

    return PackError


def _refused(refusal: PackError) -> Finding:
    from melete.packs.errors import GateFailed, PackRefused

    if isinstance(refusal, GateFailed):
        message = str(refusal).rstrip(".")
        return Finding(f"gate-{refusal.gate}", Severity.ERROR, refusal.file, None, message, _FIRST)
    if not isinstance(refusal, PackRefused):
        raise refusal
    file = show_path(refusal.file or ".")
    return Finding(refusal.rule, Severity.ERROR, file, None, refusal.detail, _FIRST)


class _Validation:
    """One pack while it is judged."""

    def __init__(self, tree: PackTree, manifest: Manifest, *, strict: bool) -> None:
        self._tree = tree
        self._manifest = manifest
        self._strict = strict
        self._findings: list[Finding] = []
        self._counts = dict.fromkeys(TYPES, 0)
        self._units = 0
        #: Whether the primitives of every file could be counted.
        self._counted = True

    def run(self) -> Report:
        manifest = self._manifest
        self._findings += check_manifest(manifest, strict_fields=True)
        listed = {MEMORY + name for name in manifest.capability_files}
        if MEMORY + OPERATING_PRINCIPLES not in listed:
            message = f"capability_files does not list {OPERATING_PRINCIPLES}, which every pack has"
            self._tell("operating-principles", MANIFEST, None, message, "add the file to memory/ and to the list")
        for file in self._tree.files:
            self._check_file(file.path, file.size, listed)
        if self._counted:
            self._check_manifest_counts()
        return self._report()

    def _report(self) -> Report:
        findings = self._findings
        if self._strict:
            findings = [finding._replace(severity=Severity.ERROR) for finding in findings]
        failed = {finding.unit for finding in findings if finding.unit and finding.is_error}
        doubtful = {finding.unit for finding in findings if finding.unit} - failed
        passed = self._units - len(failed)
        return Report(tuple(findings), passed, len(failed), len(doubtful), self._manifest.name)

    def _tell(self, rule: str, file: str, line: int | None, message: str, remedy: str, *, warn: bool = False) -> None:
        severity = Severity.WARNING if warn else Severity.ERROR
        self._findings.append(Finding(rule, severity, file, line, message, remedy))

    def _check_file(self, path: str, size: int, listed: set[str]) -> None:
        shown = show_path(path)
        self._findings += scan_name(path)
        needed = path in listed or path == AGENTS_FILE
        if not needed and path != MANIFEST:
            message = "neither agents.md nor one of capability_files"
            self._tell("unlisted-file", shown, None, message, "list it if it is memory, or remove it", warn=True)
        if size > LARGEST:
            self._check_large(path, shown, needed=needed)
            return
        content = self._tree.read_bytes(path, LARGEST)
        if path == MANIFEST:
            content = leave_signature_out(content, self._manifest.signature)
        text, found = scan_content(content, shown)
        if text is None and needed:
            self._counted = False
            found = [finding._replace(severity=Severity.ERROR) for finding in found]
        if text is None or not needed:
            self._findings += found
        elif path == AGENTS_FILE:
            self._findings += found
            if fault := find_agents_fault(content):
                self._tell(AGENTS_RULE, path, fault[0], fault[1], AGENTS_REMEDY)
            present = [file.path.removeprefix(MEMORY) for file in self._tree.files if file.path.startswith(MEMORY)]
            self._findings += check_routing(parse_routing(text), self._manifest.capability_files, present)
        elif self._manifest.primitive_format == V03:
            self._check_cluster_v3(text, shown, found)
        else:
            self._check_cluster(text, shown, found)

    def _check_large(self, path: str, shown: str, *, needed: bool) -> None:
        """Scan a file that is too large to be judged as anything else."""
        is_text, found = scan_large(self._tree, path)
        if needed:
            self._counted = False
            message = f"it has more than {LARGEST >> 20} MiB, and was looked through only for what no file may hold"
            self._tell("too-large", shown, None, message, "make it smaller")
            if not is_text:
                found = [finding._replace(severity=Severity.ERROR) for finding in found]
        self._findings += found

    # Clusters

    def _check_cluster(self, text: str, file: str, found: list[Finding]) -> None:
        text = normalize_lines(text)
        grammar: list[Finding] = []
        frontmatter, start = read_frontmatter(text, file, grammar)
        if not (found or grammar) and self._check_quickly(text, start, file, frontmatter):
            return
        sources: dict[str, Source] = {}
        counts = dict.fromkeys(TYPES, 0)
        last = 0
        line, counted = 1, 0
        for number, tag, content, _, reasons, at in walk(text, start, file, grammar, sources):
            kind = tag.type
            counts[kind] += 1
            doubtful = not READS_AS[kind](content) and kind in HOW_TO
            unknown = _find_unknown(reasons, sources) if sources and "[" in reasons else ""
            if doubtful or unknown:
                line += text.count("\n", counted, at)
                counted = at
                unit = f"{file}#{number}"
                if doubtful:
                    grammar.append(_misworded(file, line, unit, kind))
                if unknown:
                    message = f"the legend of sources does not hold {unknown}"
                    remedy = "add the short code to the legend, or correct it"
                    grammar.append(Finding("citation", Severity.WARNING, file, line, message, remedy, unit))
            last = number
        if found:
            found = _attribute(found, _locate(text, start, file))
        self._finish(file, frontmatter, text[:start], last, counts, [*grammar, *found])

    def _check_quickly(self, text: str, start: int, file: str, frontmatter: dict[str, Any] | None) -> bool:
        """Check a cluster in which nothing breaks the grammar; return False for any other, with nothing done."""
        first = start if text.startswith("[", start) else text.find("\n[", max(start - 1, 0)) + 1
        if first < start:
            return False
        sources: dict[str, Source] = {}
        found: list[Finding] = []
        if first > start:
            for _ in walk(text[:first], start, file, found, sources):
                return False
        look = look_quickly(text, first) if not found and (not sources or cites_only(text, sources)) else None
        if look is None:
            return False
        if look.doubtful:
            line, counted = 1, 0
            kinds = dict(look.doubtful)
            for (number, kind), at in zip(kinds.items(), locate(text, first, kinds), strict=True):
                line += text.count("\n", counted, at)
                counted = at
                found.append(_misworded(file, line, f"{file}#{number}", kind))
        self._finish(file, frontmatter, text[:start], sum(look.counts.values()), look.counts, found)
        return True

    def _check_cluster_v3(self, text: str, file: str, found: list[Finding]) -> None:
        from melete.packs.legacy import parse_cluster_v3

        cluster = parse_cluster_v3(text, file)
        counts = dict.fromkeys(TYPES, 0)
        for unit in cluster.units:
            counts[unit.type] += 1
        last = _number_of(cluster.units[-1].id) if cluster.units else 0
        if found:
            wrong = [(one.line, one.unit) for one in cluster.findings if one.unit and one.line]
            starts = sorted({*wrong, *((unit.line, unit.id) for unit in cluster.units)})
            ends = [line - 1 for line, _ in starts[1:]]
            spans = zip(starts, [*ends, text.count("\n") + 1], strict=False)
            found = _attribute(found, [(line, end, unit) for (line, unit), end in spans])
        self._finish(file, cluster.frontmatter, text, last, counts, [*cluster.findings, *found])

    def _finish(
        self,
        file: str,
        frontmatter: dict[str, Any] | None,
        head: str,
        last: int,
        counts: dict[str, int],
        found: list[Finding],
    ) -> None:
        """Take what one file was found to hold. `last` is the number of its last primitive that is right."""
        wrong = {finding.unit for finding in found if finding.unit and finding.is_error}
        units = max([last, *map(_number_of, wrong)])
        self._units += units
        for kind, count in counts.items():
            self._counts[kind] += count
        readable = not wrong and not any(one.rule in ("frontmatter", "tag-malformed") for one in found)
        self._counted = self._counted and readable
        if not units:
            remedy = "add primitives, or take the file off the list"
            found.append(Finding("no-primitives", Severity.WARNING, file, None, "it holds no primitive", remedy))
        if frontmatter is not None:
            found += self._check_frontmatter(file, frontmatter, head, counts if readable else None)
        elif not any(one.rule == "frontmatter" for one in found):
            message, remedy = "it has no frontmatter", "begin it with ---, `type: cluster` and so on, and ---"
            found.append(Finding("frontmatter", Severity.ERROR, file, 1, message, remedy))
        found.sort(key=lambda finding: finding.line or 0)
        self._findings += found

    def _check_frontmatter(
        self, file: str, frontmatter: dict[str, Any], head: str, counts: Mapping[str, int] | None
    ) -> list[Finding]:
        found: list[Finding] = []

        def tell(member: str, message: str, remedy: str, *, warn: bool = False) -> None:
            severity = Severity.WARNING if warn else Severity.ERROR
            rule = "primitive-counts" if member == "primitive_counts" else f"cluster-{member.replace('_', '-')}"
            found.append(Finding(rule, severity, file, _find_line(head, member), message, remedy))

        if frontmatter.get("type") != "cluster":
            tell("type", f"type is {_show(frontmatter.get('type'))}", "write `type: cluster`")
        applies_to = frontmatter.get("applies_to")
        if not isinstance(applies_to, str) or not applies_to.strip():
            tell("applies_to", f"applies_to is {_show(applies_to)}", "say in one line what tasks the file is for")
        source = frontmatter.get("source")
        if source not in ORIGINS and not (source is None and self._manifest.primitive_format == V03):
            tell("source", f"source is {_show(source)}", f"write one of {', '.join(ORIGINS)}")
        declared = frontmatter.get("primitive_counts")
        if declared is None:
            tell("primitive_counts", "primitive_counts is missing", "count each type of primitive", warn=True)
        elif not isinstance(declared, dict) or not all(map(is_count, declared.values())):
            tell(
                "primitive_counts", "primitive_counts is no list of whole numbers by type", "write `directive: 2`, ..."
            )
        else:
            for name in declared:
                if name not in TYPES:
                    remedy = f"count {', '.join(TYPES)}"
                    tell("primitive_counts", f"primitive_counts counts {quote(name)}, which is no type", remedy)
            for message, remedy in _compare_counts(declared, counts):
                tell("primitive_counts", message, remedy)
        return found

    def _check_manifest_counts(self) -> None:
        raw = self._manifest.raw
        if "primitive_counts" not in raw:
            message, remedy = "primitive_counts is missing", "count each type of primitive in the pack"
            self._tell("primitive-counts", MANIFEST, None, message, remedy, warn=True)
        elif isinstance(raw["primitive_counts"], dict) and self._manifest.primitive_counts == raw["primitive_counts"]:
            line = _find_line(self._manifest.text, '"primitive_counts"')
            for message, remedy in _compare_counts(raw["primitive_counts"], self._counts):
                self._tell("primitive-counts", MANIFEST, line, message, remedy)


def _misworded(file: str, line: int, unit: str, kind: str) -> Finding:
    return Finding("wording", Severity.WARNING, file, line, f"this does not read as a {kind}", HOW_TO[kind], unit)


def _compare_counts(declared: Mapping[str, Any], counts: Mapping[str, int] | None) -> Iterator[tuple[str, str]]:
    for kind, count in (counts or {}).items():
        if declared.get(kind, 0) != count:
            says = f"says {declared[kind]} for {kind}" if kind in declared else f"does not count {kind}"
            yield f"primitive_counts {says}, and {count} are there", f"write {count}"


def _show(value: object) -> str:
    if value is None:
        return "missing"
    return quote(value) or "empty" if isinstance(value, str) else "no text"


def _find_line(text: str, member: str) -> int | None:
    """Return the line of a text that begins with a member's name, or None."""
    match = re.search(rf"^[ \t]*{re.escape(member)}[ \t]*:", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else None


# Where something stands


def _number_of(unit: str) -> int:
    return int(unit.rpartition("#")[2])


def _locate(text: str, start: int, file: str) -> list[tuple[int, int, str]]:
    """Return the first and last line and the id of each primitive, the wrong ones too."""
    spans: list[tuple[int, int]] = []
    for _ in walk(text, start, file, [], {}, spans):
        pass
    located = []
    line, counted = 1, 0
    for number, (begin, end) in enumerate(spans, start=1):
        line += text.count("\n", counted, begin)
        counted = begin
        located.append((line, line + text.count("\n", begin, end), f"{file}#{number}"))
    return located


def _attribute(found: list[Finding], located: list[tuple[int, int, str]]) -> list[Finding]:
    """Return findings with the ids of the primitives that they stand in."""
    starts = [first for first, _, _ in located]
    attributed = []
    for finding in found:
        at = bisect_right(starts, finding.line or 0) - 1
        inside = at >= 0 and located[at][0] <= (finding.line or 0) <= located[at][1]
        attributed.append(finding._replace(unit=located[at][2]) if inside else finding)
    return attributed


# Citations


def _find_unknown(reasons: str, sources: Mapping[str, Source]) -> str:
    """Return the short codes that a reason cites and no legend explains."""
    codes = [citation.code for citation in find_citations(join_reason(reasons))]
    return ", ".join(quote(code) for code in codes if code not in sources)
