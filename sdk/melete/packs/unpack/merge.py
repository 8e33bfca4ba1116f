"""The text that a pack leaves in a wiki: sections of pages, whole new pages, a line of the index, a line of the log.

    <!-- amp-unpack:begin my-pack sha256:... -->
    ## From my-pack (creator: local, installed: 2026-04-21)
    ...
    <!-- amp-unpack:end my-pack -->

Pure: text in, text out. A section is what stands between its two marker lines; the first of them holds the digest of
the rest, so that a section that somebody edited is known as such, and left to them. Nothing outside is ever changed,
but the frontmatter of a page that was made here and still reads as it was made.

Source: AMP v0.4, Part 12; decisions, AMP packs, Unpack.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from melete.packs.errors import MarkersDamaged
from melete.packs.grammar import Source, Unit, find_citations

#: A page's name without its suffix, and with it a link to it.
STEM: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?", re.ASCII)
INDEX_HEADING: Final = "## Installed packs"
LONGEST_DESCRIPTION: Final = 200
UNKNOWN: Final = "unknown"

_MARKER: Final = re.compile(
    r"<!-- amp-unpack:(begin|end) ([a-z0-9][a-z0-9-]{0,63})(?: sha256:([0-9a-f]{64}))? -->", re.ASCII
)
_ANY_MARKER: Final = "<!-- amp-unpack:"
_HEADING: Final = re.compile(r"## From ([a-z0-9-]+) \(creator: ([A-Za-z0-9._-]+), installed: ([a-z0-9-]+)\)", re.ASCII)
_CREATOR: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DAY: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T.*)?", re.ASCII)
_GROUPS: Final = {"directive": "Directives", "goal": "Goals", "claim": "Claims", "demonstration": "Demonstrations"}
_LINK: Final = re.compile(r"!?\[\[([^\[\]\n]*)\]\]", re.ASCII)
#: So often is looked for code in a text that changes; then nothing counts as code.
_MOST_ROUNDS: Final = 4
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])", re.ASCII)


class Origin(NamedTuple):
    """Where a section comes from: pack, creator, day of installing; all of them plain."""

    slug: str
    creator: str
    installed: str

    @classmethod
    def of(cls, slug: str, creator: str | None, installed: str | None) -> Origin:
        """Return an origin whose parts cannot break a line of Markdown or YAML: others are `unknown`."""
        day = _DAY.fullmatch(installed or "")
        plain = creator if creator and _CREATOR.fullmatch(creator) else UNKNOWN
        return cls(slug, plain, day[1] if day else UNKNOWN)

    @property
    def heading(self) -> str:
        return f"## From {self.slug} (creator: {self.creator}, installed: {self.installed})"

    @property
    def source(self) -> str:
        return f"amp-pack: {self.slug} (creator: {self.creator}, installed: {self.installed})"


class Section(NamedTuple):
    """A section of ours in a page: from `start` to `end`, markers included; `edited` if it is not as it was written."""

    slug: str
    body: str
    digest: str
    start: int
    end: int

    @property
    def edited(self) -> bool:
        return compute_digest(self.body) != self.digest

    @property
    def origin(self) -> Origin:
        found = _HEADING.match(self.body)
        return Origin(*found.groups()) if found else Origin(self.slug, UNKNOWN, UNKNOWN)


class Merged(NamedTuple):
    """A page after merging, and what was done: created, merged, replaced, unchanged, or kept (a person edited it)."""

    text: str
    done: str


# Sections


def compute_digest(body: str) -> str:
    """Return the digest of what stands between two markers, whatever line ends its page has."""
    return sha256(body.replace("\r\n", "\n").encode("utf-8", "surrogatepass")).hexdigest()


def find_sections(text: str) -> list[Section]:
    """Return our sections of a page, in order. Errors: `MarkersDamaged`."""
    found: list[Section] = []
    opened: tuple[str, str, int, int] | None = None
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        after = len(text) if end < 0 else end + 1
        line = text[at : len(text) if end < 0 else end].removesuffix("\r")
        if line.startswith(_ANY_MARKER):
            marker = _MARKER.fullmatch(line)
            number = text.count("\n", 0, at) + 1
            if marker is None or (marker[1] == "begin") != (marker[3] is not None):
                raise MarkersDamaged(f"its line {number} is a marker that was changed")
            if marker[1] == "begin":
                if opened is not None:
                    raise MarkersDamaged(f"its line {number} begins a section inside another one")
                opened = (marker[2], marker[3], at, after)
            else:
                if opened is None or opened[0] != marker[2]:
                    raise MarkersDamaged(f"its line {number} ends a section that does not begin")
                body = text[opened[3] : at].replace("\r\n", "\n")
                found.append(Section(opened[0], body, opened[1], opened[2], after))
                opened = None
        at = after
    if opened is not None:
        raise MarkersDamaged(f"its section from {opened[0]} does not end")
    if len({section.slug for section in found}) < len(found):
        raise MarkersDamaged("a pack has two sections in it")
    return found


def frame(slug: str, body: str) -> str:
    """Return a section with its markers."""
    return f"<!-- amp-unpack:begin {slug} sha256:{compute_digest(body)} -->\n{body}<!-- amp-unpack:end {slug} -->\n"


def merge_page(text: str, slug: str, body: str) -> Merged:
    """Put a section into a page, or its new form in the place of the old one. Errors: `MarkersDamaged`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    present = next((section for section in find_sections(text) if section.slug == slug), None)
    section = frame(slug, body).replace("\n", newline)
    if present is None:
        return Merged(text + _gap(text, newline) + section, "merged")
    if present.body == body and not present.edited:
        return Merged(text, "unchanged")
    if present.edited:
        same = present.digest == compute_digest(body)
        return Merged(text, "unchanged" if same else "kept")
    if not text[: present.end].endswith("\n"):
        section = section.removesuffix(newline)
    return Merged(text[: present.start] + section + text[present.end :], "replaced")


def _gap(text: str, newline: str) -> str:
    """Return what makes one blank line between a text and what is put at its end."""
    if not text or text.endswith(("\n\n", "\n\r\n")):
        return ""
    return newline if text.endswith("\n") else newline * 2


# Pages


def title_of(stem: str) -> str:
    """Return the title of a page by its name."""
    words = " ".join(stem.replace("_", "-").replace(".", "-").split("-")).strip()
    return words[:1].upper() + words[1:]


def create_page(stem: str, origin: Origin, body: str, today: str) -> str:
    """Return a new page with one section."""
    return f"{render_frontmatter(stem, [origin], today)}\n# {title_of(stem)}\n\n{frame(origin.slug, body)}"


def render_frontmatter(stem: str, origins: Iterable[Origin], today: str) -> str:
    """Return the frontmatter of a page that was made here. Nothing in it needs more than quotation marks."""
    sources = "".join(f'  - "{origin.source}"\n' for origin in origins)
    return f'---\ntitle: "{title_of(stem)}"\ntags: [amp-pack, "{stem}"]\nsources:\n{sources}updated: {today}\n---\n'


def is_ours(text: str, stem: str) -> bool:
    """True if a page was made here, and its frontmatter is still what it was."""
    return _own_frontmatter(text, stem, [section.origin for section in find_sections(text)]) is not None


def update_frontmatter(before: str, after: str, stem: str, today: str) -> str:
    """Return a page with sources and day brought up to date, if its frontmatter is ours, and nobody edited it."""
    origins = [section.origin for section in find_sections(before)]
    old = _own_frontmatter(before, stem, origins)
    if old is None or before == after:
        return after
    newline = "\r\n" if "\r\n" in before else "\n"
    new = render_frontmatter(stem, [section.origin for section in find_sections(after)], today)
    return new.replace("\n", newline) + after[len(old) :]


def _own_frontmatter(text: str, stem: str, origins: Sequence[Origin]) -> str | None:
    """Return the frontmatter of a page, if it is what is written for these origins on some day."""
    before, after = render_frontmatter(stem, origins, "\0").split("\0")
    day = "2000-01-01"
    plain = text.replace("\r\n", "\n")
    there = plain[len(before) : len(before) + len(day)]
    if not plain.startswith(before) or not _DAY.fullmatch(there) or not plain.startswith(after, len(before) + len(day)):
        return None
    end = 0
    for _ in range(before.count("\n") + after.count("\n")):
        end = text.index("\n", end) + 1
    return text[:end]


# What a section says


def render_body(
    origin: Origin,
    units: Sequence[Unit],
    links: Iterable[str],
    stems: Collection[str],
    sources: Mapping[str, Source] | None = None,
) -> str:
    """Return the section of a capability: its primitives by type, each in a list of its own.

    `stems` are the pages that exist; a link to any other loses its brackets. `links` go to the end. `sources` are the
    capability's legend: a reason that cites one by its short code names it, because the legend stays behind.
    """
    units = [unit._replace(reason=_resolve(unit.reason, sources)) if sources else unit for unit in units]
    lines = [origin.heading, ""]
    for kind, title in _GROUPS.items():
        group = [unit for unit in units if unit.type == kind]
        if group:
            lines += [f"### {title}", ""]
            for unit in group:
                item = _demonstration(unit, stems) if kind == "demonstration" else _primitive(unit, stems)
                # An item of several lines stands apart.
                lines += ["", *item, ""] if len(item) > 1 and lines[-1] else [*item, *([""] if len(item) > 1 else [])]
            lines += [""] if lines[-1] else []
    also = [f"[[{stem}]]" for stem in links]
    if also:
        lines += [f"See also: {', '.join(also)}", ""]
    return "\n".join([*lines, ""])


def _resolve(reason: str | None, sources: Mapping[str, Source]) -> str | None:
    if reason is None:
        return None
    lines = []
    for line in reason.split("\n"):
        citation = next(iter(find_citations(line)), None)
        source = sources.get(citation.code) if citation else None
        if citation and source:
            url = f", {source.url}" if source.url else ""
            line = f"Source: {source.title}{url}{' (verbatim)' if citation.verbatim else ''}"
        lines.append(line)
    return "\n".join(lines)


def find_links(units: Iterable[Unit], own: str, stems: Iterable[str]) -> list[str]:
    """Return the pages that the words of a capability name: by the page's name, or the same words with spaces.

    A name of one word is no mention: it is a word like any other.
    """
    words = "\n".join(text for unit in units for text in (unit.content, unit.reason or "")).lower()
    found = []
    for stem in sorted(set(stems) - {own}):
        parts = re.split(r"[-_.]+", stem.lower())
        if len(parts) < 2:
            continue
        phrase = r"[-_ .]".join(map(re.escape, parts))
        if re.search(rf"(?<![a-z0-9-]){phrase}(?![a-z0-9-])", words, re.ASCII):
            found.append(stem)
    return found


def _primitive(unit: Unit, stems: Collection[str]) -> list[str]:
    text = _not_a_block(escape(unit.content, stems))
    if text.startswith("\\`"):  # what was code is none after the backslash
        text = escape(text, stems)
    first, *rest = text.split("\n")
    facets = f" ({', '.join(unit.all_facets.values())})" if unit.all_facets else ""
    return [f"- {first}{facets}", *(f"  {line}".rstrip() for line in rest), *_reason(unit, stems)]


def _demonstration(unit: Unit, stems: Collection[str]) -> list[str]:
    about = ", ".join([*unit.all_facets.values(), *([f"illustrates {unit.illustrates}"] if unit.illustrates else [])])
    body = unit.content if unit.body is None else unit.body
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = [f"  {line}".rstrip() for line in body.split("\n")]
    return [f"- {escape(about, stems)}", "", f"  {fence}text", *lines, f"  {fence}", *_reason(unit, stems)]


def _reason(unit: Unit, stems: Collection[str]) -> list[str]:
    if unit.reason is None:
        return []
    return ["", *(f"  > {line}".rstrip() for line in escape(unit.reason, stems).split("\n"))]


def _not_a_block(text: str) -> str:
    """Keep the first words of an item from being a heading, a quotation, a fence, a table or another list."""
    number = re.match(r"[0-9]{1,9}(?=[.)](?:\s|$))", text, re.ASCII)
    if number:
        return f"{number[0]}\\{text[number.end() :]}"
    begins = r"(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|[>|]|`{3}|~{3}|[-*_=]+(?:\n|$))"
    return f"\\{text}" if re.match(begins, text, re.ASCII) else text


def escape(text: str, stems: Collection[str]) -> str:
    """Return text of a pack as a page may hold it: tags and comments are words, links lead to pages that exist.

    What every reader of Markdown takes for code stays as it is.
    """
    # A link that loses its brackets may leave a backtick beside others: what is code then is looked up again.
    for _ in range(_MOST_ROUNDS):
        shown = _escape_once(text, stems)
        if shown == text:
            return text
        text = shown
    return _escape_words(text, stems)


def _escape_once(text: str, stems: Collection[str]) -> str:
    parts, at = [], 0
    for start, end in _find_code(text):
        parts += [_escape_words(text[at:start], stems), text[start:end]]
        at = end
    return "".join([*parts, _escape_words(text[at:], stems)])


def _find_code(text: str) -> Iterator[tuple[int, int]]:
    """Yield where code between backticks begins and ends, as far as that is certain.

    A backtick after a backslash opens nothing, and a run of them is closed only by one of the same length. One that is
    not closed in its line may be closed in another, if that is of the same paragraph, and code with a stroke in it is
    none in a table: nothing after these is certain.
    """
    at = 0
    for line in text.split("\n"):
        runs = [(found.start(), found.end()) for found in re.finditer("`+", line)]
        last = {end - start: index for index, (start, end) in enumerate(runs)}
        closed, index, done = True, 0, 0
        while index < len(runs):
            start, end = runs[index]
            before = line[done:start]
            start += (len(before) - len(before.rstrip("\\"))) % 2
            done, index = end, index + 1
            if start == end:
                continue
            if last.get(end - start, -1) < index:
                closed = False
                continue
            while runs[index][1] - runs[index][0] != end - start:
                index += 1
            done, index = runs[index][1], index + 1
            if "|" in line[start:done]:
                return
            yield at + start, at + done
        if not closed:
            return
        at += len(line) + 1


def _escape_words(text: str, stems: Collection[str]) -> str:
    def link(found: re.Match[str]) -> str:
        target, _, label = found[1].partition("|")
        page = target.partition("#")[0].strip()
        return found[0].removeprefix("!") if page in stems else (label or target).strip()

    def brackets(found: re.Match[str]) -> str:
        whole = _LINK.match(found.string, found.start())
        page = whole[1].partition("|")[0].partition("#")[0].strip() if whole else ""
        return "[[" if page in stems else "[\\["

    text = _LINK.sub(link, _TAG.sub("&lt;", text))
    # What has brackets after that is no link that was let through, and shall not become one with its neighbours.
    return re.sub(r"\[(?=\[)\[?", brackets, text)


# Index and log


def describe(text: str) -> str:
    """Return a description from a pack as one bounded line without links."""
    plain = " ".join(_LINK.sub(lambda found: found[1].rpartition("|")[2], text).split())
    return escape(plain[:LONGEST_DESCRIPTION], ())


def add_to_index(text: str, entries: Mapping[str, str]) -> str:
    """Return an index with a line for each page that it does not link to yet, under a heading of their own."""
    missing = [stem for stem in entries if not re.search(rf"\[\[{re.escape(stem)}(?:[|#][^\[\]\n]*)?\]\]", text)]
    if not missing:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"- [[{stem}]] — {entries[stem]}" if entries[stem] else f"- [[{stem}]]" for stem in missing]
    whole = text.split("\n")
    bare = [line.rstrip() for line in whole]
    if INDEX_HEADING not in bare:
        return text + _gap(text, newline) + newline.join([INDEX_HEADING, "", *lines, ""])
    start = bare.index(INDEX_HEADING)
    end = next((at for at in range(start + 1, len(bare)) if re.match(r"#{1,2}\s", bare[at])), len(bare))
    while end > start + 1 and not bare[end - 1]:
        end -= 1
    added = [line + newline.removesuffix("\n") for line in lines]
    if end == start + 1:
        added.insert(0, newline.removesuffix("\n"))
    if end == len(whole):  # the last line has no end
        whole[-1] += newline.removesuffix("\n")
        added[-1] = lines[-1]
    return "\n".join([*whole[:end], *added, *whole[end:]])


def log_line(today: str, origin: Origin, version: str | None, digest: str, stems: Sequence[str]) -> str:
    """Return what the log says about a pack that was unpacked."""
    number = version if version and re.fullmatch(r"[A-Za-z0-9._+-]{1,40}", version, re.ASCII) else UNKNOWN
    pages = ", ".join(f"[[{stem}]]" for stem in stems)
    about = f"creator: {origin.creator}, version: {number}, digest: {digest[:16]}"
    return f"- {today} — unpacked {origin.slug} ({about}) into {pages}"


def add_to_log(text: str, line: str, slug: str, digest: str) -> str:
    """Return a log with a line at its end, unless the last one about this pack says the same digest."""
    known = re.findall(
        rf"^- [0-9-]{{10}} — unpacked {re.escape(slug)} \(.*?digest: ([0-9a-f]{{1,16}})\)",
        text,
        re.ASCII | re.MULTILINE,
    )
    if known and known[-1] == digest[:16]:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    return text + (newline if text and not text.endswith("\n") else "") + line + newline
