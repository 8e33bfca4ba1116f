"""Primitives as lines of text: `[directive must, org] In all copy, never use em dashes.` and back.

    cluster = parse_cluster(text, "memory/copy-voice.md")
    cluster.units[0].facets         # {"force": "must", "scope": "org"}
    cluster.findings                # what breaks the grammar, each with its line
    serialize_cluster(cluster)      # text that parses to the same cluster

Pure: no files, no clock. Lines end at a line feed, and a carriage return before it belongs to the line end; letters,
digits and spaces are those of ASCII. A primitive with an error is not among the units: its finding carries its id.

Source: AMP v0.4, Parts 2, 3 and 5.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from melete.packs.credentials import quote
from melete.packs.findings import Finding, Severity
from melete.packs.frontmatter import dump_frontmatter, load_frontmatter, split_frontmatter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final, NoReturn

    from melete.packs.errors import BadFrontmatter

    #: A primitive as it is read: its number, its tag, its text, its brace body, its reason lines, its place.
    Block = tuple[int, "Tag", str, str | None, str, int]


class Facet(NamedTuple):
    """One position in a tag: what it is called, what may stand there, and what holds where nothing does."""

    name: str
    values: tuple[str, ...]
    default: str | None


_STABILITY: Final = Facet("stability", ("permanent", "seasonal", "tactical"), "permanent")
#: The four types of primitives, and their facets by position.
FACETS: Final[dict[str, tuple[Facet, ...]]] = {
    "goal": (
        Facet("force", ("must", "should", "may"), "should"),
        Facet("scope", ("org", "project", "user"), "project"),
        _STABILITY,
    ),
    "claim": (Facet("stability", ("permanent", "tactical"), "permanent"),),
    "directive": (
        Facet("force", ("must", "should", "may"), "should"),
        Facet("scope", ("session", "project", "user", "org"), "project"),
        _STABILITY,
    ),
    "demonstration": (Facet("valence", ("positive", "negative", "mixed"), None),),
}
TYPES: Final = tuple(FACETS)
#: What a tag may say for a type.
ALIASES: Final = {"demo": "demonstration"}
#: Where a cluster's primitives may come from.
ORIGINS: Final = ("self", "imported", "inferred")

_SPACE: Final = " \t\r\f\v"


class Source(NamedTuple):
    """An entry of a cluster's legend: what a short code stands for."""

    title: str
    url: str | None = None


class Citation(NamedTuple):
    """A reason line that cites a source by its short code; `verbatim` if the primitive uses the source's own words."""

    code: str
    verbatim: bool


class _UnitMembers(NamedTuple):
    id: str
    type: str
    facets: dict[str, str]
    illustrates: str | None
    content: str
    body: str | None
    reason: str | None
    source: str | None
    line: int
    facet_text: str


class Unit(_UnitMembers):
    """One primitive.

    `id` is `<file>#<n>`; `facets` are those that are written, in order; `content` is the whole text, and `body` the
    same text if it stands in braces; `reason` holds a line for each `>` line. `source` is where a primitive of v0.3
    comes from; in v0.4 its cluster says so. `line` and `facet_text` tell where and how it was written: two units that
    differ in nothing else are equal.

    Errors: `InvalidInput` for what no line of a pack can carry, naming the member.
    """

    __slots__ = ()

    def __new__(
        cls,
        id: str,
        type: str,
        facets: Mapping[str, str],
        content: str,
        *,
        illustrates: str | None = None,
        body: str | None = None,
        reason: str | None = None,
        source: str | None = None,
        line: int = 0,
        facet_text: str = "",
    ) -> Unit:
        members = (id, type, dict(facets), illustrates, content, body, reason, source, line, facet_text)
        unit: Unit = tuple.__new__(cls, members)
        _check_unit(unit)
        return unit

    @property
    def all_facets(self) -> dict[str, str]:
        """The facets with what holds where nothing is written."""
        known = {facet.name: facet.default for facet in FACETS[self.type] if facet.default is not None}
        return {**known, **self.facets}

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The reason lines that cite a source: `[code]` or `[code — verbatim]`, and nothing else in the line."""
        return find_citations(self.reason) if self.reason and "[" in self.reason else ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unit) and self[:8] == other[:8]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.id, self.type, self.content, self.reason))


class _ClusterMembers(NamedTuple):
    file: str
    frontmatter: dict[str, Any] | None
    sources: dict[str, Source]
    units: tuple[Unit, ...]
    findings: tuple[Finding, ...]


class Cluster(_ClusterMembers):
    """A capability file: what it says of itself, its legend of sources, its primitives, and what breaks the grammar.

    Errors: `InvalidInput` for units that are not numbered `<file>#1` and so on, and for sources that no line carries.
    """

    __slots__ = ()

    def __new__(
        cls,
        file: str,
        frontmatter: Mapping[str, Any] | None = None,
        sources: Mapping[str, Source] | None = None,
        units: tuple[Unit, ...] = (),
        findings: tuple[Finding, ...] = (),
    ) -> Cluster:
        plain = None if frontmatter is None else dict(frontmatter)
        cluster: Cluster = tuple.__new__(cls, (file, plain, dict(sources or {}), tuple(units), tuple(findings)))
        _check_cluster(cluster)
        return cluster

    @property
    def has_errors(self) -> bool:
        return any(finding.is_error for finding in self.findings)


# Reading


def parse_cluster(text: str, file: str) -> Cluster:
    """Return what a capability file holds. Nothing that a file holds makes this fail: faults come as findings.

    Text between primitives is a warning and is not kept. `file` is the file's path in its pack, and begins the ids.
    """
    findings: list[Finding] = []
    text = normalize_lines(text)
    frontmatter, start = read_frontmatter(text, file, findings)
    sources: dict[str, Source] = {}
    units = []
    line, counted = 1, 0
    for number, tag, content, body, reasons, at in walk(text, start, file, findings, sources):
        line += text.count("\n", counted, at)
        counted = at
        reason = join_reason(reasons) if reasons else None
        units.append(
            tuple.__new__(
                Unit,
                (
                    f"{file}#{number}",
                    tag.type,
                    tag.facets.copy(),
                    tag.illustrates,
                    content if body is None else body,
                    body,
                    reason,
                    None,
                    line,
                    tag.facet_text,
                ),
            )
        )
    return make_cluster(file, frontmatter, sources, units, findings)


def make_cluster(
    file: str,
    frontmatter: dict[str, Any] | None,
    sources: dict[str, Source],
    units: list[Unit],
    findings: list[Finding],
) -> Cluster:
    """Return what was read, without the units that a finding is about: numbers may be missing, lines may be many."""
    if findings:
        findings.sort(key=lambda finding: finding.line or 0)
        wrong = {finding.unit for finding in findings if finding.is_error}
        units = [unit for unit in units if unit.id not in wrong]
    return tuple.__new__(Cluster, (file, frontmatter, sources, tuple(units), tuple(findings)))


def normalize_lines(text: str) -> str:
    """Return a text whose lines end at a line feed alone, as they are counted and compared here.

    So does the last one, whether or not a line feed follows: a carriage return there is no text.
    """
    if "\r" not in text:
        return text
    text = text.replace("\r\n", "\n")
    return re.sub(r"(?<!\r)\r++(?=\n|\Z)", "", text) if "\r" in text else text


def read_frontmatter(text: str, file: str, findings: list[Finding]) -> tuple[dict[str, Any] | None, int]:
    """Return the frontmatter of a text, and the index where the rest begins; faults go to `findings`."""
    split = split_frontmatter(text)
    if not split.closed:
        message = "the frontmatter does not end"
        findings.append(_error("frontmatter", file, 1, message, "write a line --- after its last member"))
    if split.yaml is None:
        return None, split.rest
    try:
        return load_frontmatter(split.yaml, file, split.first_line), split.rest
    except _bad_frontmatter() as fault:
        remedy = "write members as in `type: cluster`"
        findings.append(
            _error("frontmatter", file, fault.line, f"the frontmatter cannot be read: {fault.reason}", remedy)
        )
        return None, split.rest


def _bad_frontmatter() -> type[BadFrontmatter]:
    # Only when it is bad: the classes take long to import.
    from melete.packs.errors import BadFrontmatter

    return BadFrontmatter


def walk(
    text: str,
    start: int,
    file: str,
    findings: list[Finding],
    sources: dict[str, Source],
    spans: list[tuple[int, int]] | None = None,
) -> Iterator[Block]:
    """Yield each primitive that follows the grammar, from an index where a line begins; the rest goes to `findings`.

    Lines of `text` end at a line feed alone. The legend of sources goes to `sources`, where each primitive begins and
    ends to `spans`: the wrong ones too, in the order of their numbers.
    """
    walker = _Walker(text, start, file, findings, sources)
    tags: dict[str, Tag] = {}
    number = 0
    for match in _blocks().finditer(text, start):
        demo, body, inside, content, reasons, other = match.groups()
        if other is not None:
            walker.take_other(other, match.start(), number)
            continue
        if match.start() < walker.skip_to:
            continue
        number += 1
        if spans is not None:
            spans.append(match.span())
        if demo is not None:
            inside, content, body = demo, "", body[:-1]
        tag = tags.get(inside)
        if tag is None:
            tag = tags[inside] = read_tag(inside)
        if tag.fault is None and content.strip() and (content[0] != "{" or tag.type != "demonstration"):
            walker.before = "block"
            yield number, tag, content, None, reasons, match.start()
        elif walker.take_block(number, tag, content, body, match):
            yield number, tag, content, body, reasons, match.start()
        if walker.ended:
            return


@cache
def _blocks() -> re.Pattern[str]:
    """Return what matches a line at a time, or a whole primitive.

    Groups: the tag and the body of a demonstration in braces, or the tag and the content of any other primitive; the
    reason lines; any other line. A primitive's first line is `^\\[(\\w+)([^\\]]*?)\\]\\s*(.*)$`.
    """
    space = r"[^\S\n]"
    tag = r"[^\]\n]*+"
    braced = rf"\[(demo(?:nstration)?(?!\w){tag})\]{space}*+\{{\n((?:(?!\}}$).*+\n)*+)\}}$"
    plain = rf"\[(\w{tag})\]{space}*+(.*+)"
    return re.compile(rf"(?:{braced}|{plain})((?:\n{space}{{2}}>.*+)*+)|(.++)", re.ASCII | re.MULTILINE)


class Tag(NamedTuple):
    """What stands in the brackets: `fault` is the rule, the message and the remedy, or None."""

    type: str
    facets: dict[str, str]
    illustrates: str | None
    facet_text: str
    fault: tuple[str, str, str] | None


def read_tag(inside: str) -> Tag:
    """Return what stands between the brackets of a primitive's first line."""
    end = len(inside)
    for index, character in enumerate(inside):
        if not (character.isascii() and (character.isalnum() or character == "_")):
            end = index
            break
    name, facet_text = inside[:end], inside[end:]
    kind = ALIASES.get(name, name)
    if kind not in FACETS:
        return Tag("", {}, None, facet_text, _unknown_type(inside))
    facets: dict[str, str] = {}
    given = [part.strip(_SPACE) for part in facet_text.split(",")] if facet_text.strip(_SPACE) else []
    illustrates = None
    expected = FACETS[kind]
    if kind == "demonstration" and len(given) == len(expected) + 1:
        label, colon, value = given[-1].partition(":")
        if label == "illustrates" and colon and value.strip(_SPACE):
            illustrates = value.strip(_SPACE)
            given.pop()
    for position, value in enumerate(given, start=1):
        facet = expected[position - 1] if position <= len(expected) else None
        if facet is None or value not in facet.values:
            return Tag(kind, {}, None, facet_text, _misplaced(kind, facet, position, value))
        facets[facet.name] = value
    if len(given) < len(expected) and expected[len(given)].default is None:
        facet = expected[len(given)]
        return Tag(kind, {}, None, facet_text, _misplaced(kind, facet, len(given) + 1, ""))
    return Tag(kind, facets, illustrates, facet_text, None)


def _unknown_type(inside: str) -> tuple[str, str, str]:
    # Up to where a person would see the word end, whatever alphabet its letters are from.
    name = re.split(r"[\s,]", inside, maxsplit=1)[0]
    return (
        "unknown-type",
        f"unknown type {quote(name, 40)}",
        f"a line that begins with [ opens a primitive of type {', '.join(TYPES)} or demo; put anything else inside one",
    )


def _misplaced(kind: str, facet: Facet | None, position: int, value: str) -> tuple[str, str, str]:
    order = ", ".join(one.name for one in FACETS[kind])
    if kind == "demonstration":
        order += ", illustrates: <id>"
    remedy = f"write the facets of a {kind} in this order, leaving out only from the right: {order}"
    if facet is not None:
        remedy += f"; {facet.name} is one of {', '.join(facet.values)}"
    name = (
        facet.name if facet is not None else "illustrates" if (kind, position) == ("demonstration", 2) else "no facet"
    )
    return (
        "facet-position",
        f"expected {name} at position {position} for {kind}, got {quote(value) or 'nothing'}",
        remedy,
    )


class _Walker:
    """Keeps what the lines before mean for the next, and tells what breaks the grammar."""

    def __init__(self, text: str, start: int, file: str, findings: list[Finding], sources: dict[str, Source]) -> None:
        self._text = text
        self._start = start
        self._file = file
        self._findings = findings
        self._sources = sources
        self._legend_seen = False
        self._last_code = ""
        self._line, self._counted = 1, 0
        #: Whether another body in braces may end further on.
        self._closes = True
        #: What a line without a blank line before it follows: "", "block", "text", "silent" (told already), "legend".
        self.before = ""
        #: What is before this index was judged already.
        self.skip_to = 0
        #: Nothing after this can be judged.
        self.ended = False

    def tell(self, at: int, rule: str, message: str, remedy: str, unit: int = 0, *, warn: bool = False) -> None:
        self._line += self._text.count("\n", self._counted, at)
        self._counted = at
        severity = Severity.WARNING if warn else Severity.ERROR
        name = f"{self._file}#{unit}" if unit else None
        self._findings.append(Finding(rule, severity, self._file, self._line, message, remedy, name))

    def take_block(self, number: int, tag: Tag, content: str, body: str | None, match: re.Match[str]) -> bool:
        """Judge a primitive that is not plainly right; return whether it is right."""
        self.before = "block"
        at = match.start()
        if body is None and content == "{" and tag.type in ("demonstration", ""):
            # Nothing inside braces is a primitive: not where they do not end, nor where the type is unknown.
            if not tag.type:
                self._skip_body(match.end())
            else:
                self.ended = True
                remedy = "write a line that is exactly } after the body"
                self.tell(at, "brace-unterminated", "the brace that opens here is never closed", remedy, number)
                return False
        if tag.fault is not None:
            if not tag.type:
                self.before = "silent"
            self.tell(at, *tag.fault, number)
            return False
        if body is None and content.rstrip(_SPACE) == "{":
            remedy = "end the line right after {, or write the text in the same line"
            self.tell(at, "brace-open", "a brace body opens only with { at the very end of the line", remedy, number)
            return False
        if not (content if body is None else body).strip():
            self.tell(at, "content-missing", f"the {tag.type} holds no text", "write its text after the ]", number)
            return False
        return True

    def _skip_body(self, at: int) -> None:
        """Pass over a body in braces, if it ends anywhere."""
        if self._closes:
            close = self._text.find("\n}\n", at)
            self._closes = close >= 0
            self.skip_to = close + 2 if self._closes else 0

    def take_other(self, other: str, at: int, number: int) -> None:
        """Judge a line that begins no primitive and belongs to none."""
        if at < self.skip_to:
            return
        if not other.strip(_SPACE):
            self.before = ""
            return
        if at == self._start or self._text.startswith("\n\n", at - 2):
            self.before = ""
        bare = other.lstrip(_SPACE)
        if self.before == "legend" and other[0] in " \t":
            self._take_source(other, at)
        elif self.before == "silent":
            return
        elif self.before == "block":
            self._take_continuation(bare, at, number)
        elif bare[0] == "[":
            self._take_broken_tag(other, at)
        elif self.before == "" and other.rstrip(_SPACE) == "sources:" and not number and not self._legend_seen:
            self.before = "legend"
            self._legend_seen = True
        elif self.before == "" and _is_reason(other):
            self.before = "silent"
            message = "a reason that follows no primitive"
            self.tell(at, "orphan-reason", message, "put it right below its primitive, without a blank line")
        elif self.before != "text":
            self.before = "text"
            message = "text that belongs to no primitive, and is not read"
            self.tell(at, "stray-text", message, "make it a primitive or a reason, or remove it", warn=True)

    def _take_continuation(self, bare: str, at: int, number: int) -> None:
        self.before = "silent"
        if bare[0] == ">":
            message, remedy = "a reason line that is not read", "begin it with two spaces, > and a space"
        elif bare[0] == "}":
            message, remedy = (
                "a closing brace without an opening one",
                "remove it, or open the body with { at a line's end",
            )
        else:
            message = "a line that is part of no primitive, right below one"
            remedy = "write a primitive in one line, its reason below as `  > text`, and blank lines between"
        self.tell(at, "continuation", message, remedy, number)

    def _take_broken_tag(self, other: str, at: int) -> None:
        self.before = "silent"
        remedy = "begin a line with [type facets] and its text, or do not begin it with ["
        place = "a primitive begins in the first column" if other[0] != "[" else "this opens no primitive"
        self.tell(at, "tag-malformed", f"{place}: {quote(other, 40)}", remedy)

    def _take_source(self, other: str, at: int) -> None:
        bare = other.strip(_SPACE)
        remedy = "write `  <short code>: <title>`, and below it, if you like, `    <url>`"
        deep = len(other) - len(other.lstrip(_SPACE)) > 2 or other.startswith("\t\t")
        if deep:
            source = self._sources.get(self._last_code)
            if source is None or source.url is not None or re.search(r"\s", bare):
                self.tell(at, "legend", "a line of the sources legend that is no address of the source above", remedy)
                return
            self._sources[self._last_code] = Source(source.title, bare)
            return
        match = re.match(r"(\S.*?):\s+(.+)", bare, re.ASCII)
        if match is None:
            self.tell(at, "legend", "a line of the sources legend without a short code and a title", remedy)
        elif match[1] in self._sources:
            self.tell(at, "legend", f"the short code {quote(match[1])} stands twice", "keep one of the two")
        else:
            self._last_code = match[1]
            self._sources[match[1]] = Source(match[2])


def _error(rule: str, file: str, line: int, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.ERROR, file, line, message, remedy)


def _is_reason(line: str) -> bool:
    return line[2:3] == ">" and not line[:2].strip(_SPACE)


def join_reason(reasons: str) -> str:
    """Return the reason that lines as `\\n  > text` hold: what follows each > and one space, a line each."""
    lines = reasons[1:].split("\n")
    return "\n".join(line[4:] if line[3:4] in _SPACES else line[3:] for line in lines)


_SPACES: Final = frozenset(_SPACE)


def find_citations(reason: str) -> tuple[Citation, ...]:
    """Return the citations among the lines of a reason."""
    found = (re.fullmatch(r"\[([^\[\]]+?)( — verbatim)?\]\s*", line, re.ASCII) for line in reason.split("\n"))
    return tuple(Citation(match[1], match[2] is not None) for match in found if match)


# Writing


def serialize_cluster(cluster: Cluster) -> str:
    """Return the text of a capability file, that parses to the same cluster.

    Errors: `InvalidInput` for a cluster with errors, and for what no text carries, naming the member.
    """
    if cluster.has_errors:
        _refuse("cluster", cluster.file, "one without errors; correct its file first")
    _check_cluster(cluster)
    parts = []
    if cluster.frontmatter is not None:
        parts.append(f"---\n{dump_frontmatter(cluster.frontmatter)}---\n")
    if cluster.sources:
        parts.append("sources:\n" + "".join(_write_source(code, source) for code, source in cluster.sources.items()))
    parts += [_write_unit(unit) for unit in cluster.units]
    return "\n".join(parts)


def _write_source(code: str, source: Source) -> str:
    return f"  {code}: {source.title}\n" + (f"    {source.url}\n" if source.url is not None else "")


def _write_unit(unit: Unit) -> str:
    facets = [*unit.facets.values()]
    if unit.illustrates is not None:
        facets.append(f"illustrates: {unit.illustrates}")
    name = next((alias for alias, kind in ALIASES.items() if kind == unit.type), unit.type)
    tag = f"[{name} {', '.join(facets)}]" if facets else f"[{name}]"
    text = unit.content if unit.body is None else f"{{\n{unit.body}\n}}"
    reason = (
        "" if unit.reason is None else "".join(f"  > {line}\n" if line else "  >\n" for line in unit.reason.split("\n"))
    )
    return f"{tag} {text}\n{reason}"


# What a text can carry


def _refuse(field: str, value: object, rule: str) -> NoReturn:
    from melete.errors import InvalidInput
    from melete.packs.credentials import NOT_SHOWN, find_credentials

    secret = isinstance(value, str) and find_credentials(value, "")
    raise InvalidInput(field, NOT_SHOWN if secret else value, rule)


def _check_text(field: str, value: object, *, lines: bool = False) -> str:
    """Return a text that survives being written as lines."""
    if not isinstance(value, str):
        _refuse(field, value, "text")
    if not lines and "\n" in value:
        _refuse(field, value, "text of one line")
    if "\r\n" in value or value.endswith("\r"):
        _refuse(field, value, "text without carriage returns at the ends of its lines")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        _refuse(field, value, "text that UTF-8 can carry")
    return value


def _check_stripped(field: str, value: object, forbidden: str = "") -> str:
    text = _check_text(field, value)
    if not text or text.strip(_SPACE) != text or any(character in text for character in forbidden):
        also = f", and none of {' '.join(forbidden)}" if forbidden else ""
        _refuse(field, text, f"text, no space at its ends{also}")
    return text


def _check_unit(unit: Unit) -> None:
    _check_text("id", unit.id)
    if unit.type not in FACETS:
        _refuse("type", unit.type, f"one of {', '.join(TYPES)}")
    for facet, (name, value) in zip(FACETS[unit.type], unit.facets.items(), strict=False):
        if facet.name != name or value not in facet.values:
            _refuse("facets", f"{name}: {value}", f"{facet.name} in this place, one of {', '.join(facet.values)}")
    if len(unit.facets) > len(FACETS[unit.type]):
        _refuse("facets", len(unit.facets), f"at most {len(FACETS[unit.type])} for a {unit.type}")
    if unit.type == "demonstration" and not unit.facets:
        _refuse("facets", "", "a valence, for a demonstration")
    if unit.illustrates is not None:
        if unit.type != "demonstration":
            _refuse("illustrates", unit.illustrates, f"nothing, for a {unit.type}")
        _check_stripped("illustrates", unit.illustrates, ",]")
    if unit.body is None:
        content = _check_text("content", unit.content)
        if content.lstrip(_SPACE) != content or not content.strip():
            _refuse("content", content, "text, no space before it")
        if unit.type == "demonstration" and content.rstrip(_SPACE) == "{":
            _refuse("content", content, "more than an opening brace, for a demonstration")
    else:
        if unit.type != "demonstration":
            _refuse("body", unit.body, f"nothing, for a {unit.type}; only a demonstration has a brace body")
        body = _check_text("body", unit.body, lines=True)
        if not body.strip():
            _refuse("body", body, "text")
        if "}" in body.split("\n"):
            _refuse("body", body, "text without a line that is exactly }, which would end it")
        if unit.content != body:
            _refuse("content", unit.content, "the same text as the brace body")
    if unit.reason is not None:
        _check_text("reason", unit.reason, lines=True)
    if unit.source is not None:
        _refuse("source", unit.source, "nothing: a primitive of v0.4 has the source of its cluster")


def _check_cluster(cluster: Cluster) -> None:
    for code, source in cluster.sources.items():
        if re.search(r":\s", _check_stripped("sources", code), re.ASCII):
            _refuse("sources", code, "a short code without a colon and a space")
        _check_stripped("sources", source.title)
        if source.url is not None and re.search(r"\s", _check_stripped("sources", source.url)):
            _refuse("sources", source.url, "an address without spaces")
    for number, unit in enumerate(cluster.units, start=1):
        _check_unit(unit)
        if unit.id != f"{cluster.file}#{number}":
            _refuse("id", unit.id, f"{quote(cluster.file)}#{number}, the file and the number of the unit in it")
