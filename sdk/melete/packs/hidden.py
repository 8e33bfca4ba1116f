"""Text that a person does not see and a model reads, and text that passes for an installer's own markers.

Hidden are tag characters, zero-width characters, bidirectional controls, soft hyphens, variation selectors that change
nothing, fillers, control characters, and line ends that only some readers take for such. A joiner inside an emoji is
part of the emoji. What a hidden character means in its language is not judged: a finding asks a person to look.

Source: AMP v0.4, Part 7 (managed block).
"""

from __future__ import annotations

from melete.packs.findings import Finding, Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

HIDDEN_RULE: Final = "hidden-text"
HIDDEN_REMEDY: Final = "remove what cannot be seen, and read the line again"
MARKER_RULE: Final = "amp-marker"
MARKER_REMEDY: Final = "remove the marker: only an installer writes one, around what it wrote itself"
#: A finding names at most this many different code points.
MOST_NAMED: Final = 8

#: First and last code point of each kind.
_KINDS: Final = {
    "tag character": ((0xE0000, 0xE007F),),
    "zero-width character": ((0x034F,), (0x180B, 0x180F), (0x200B, 0x200D), (0x2060, 0x2064), (0xFEFF,)),
    "bidirectional control": ((0x061C,), (0x200E, 0x200F), (0x202A, 0x202E), (0x2066, 0x206F)),
    "soft hyphen": ((0x00AD,),),
    "variation selector": ((0xFE00, 0xFE0D), (0xE0100, 0xE01EF)),
    "filler": ((0x115F, 0x1160), (0x3164,), (0xFFA0,), (0xFFF9, 0xFFFB)),
    "line end that not every reader sees": ((0x0B, 0x0D), (0x85,), (0x2028, 0x2029)),
    "control character": ((0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x9F)),
}
#: UTF-8 without these bytes is what nobody types, and little enough to be looked at one by one.
PLAIN: Final = bytes(range(0x20, 0x7F)) + b"\t\n"
_JOINER: Final = "\u200d"


def find_hidden_text(text: str, file: str) -> list[Finding]:
    """Return a warning for each line of a text and each kind of hidden character in it, naming code points.

    A carriage return before a line feed belongs to the line end; one alone hides what stands before it on a terminal.
    """
    hidden = find_hidden_characters(text)
    if not hidden:
        return []
    return list(_find_by_line(text.replace("\r\n", "\n"), file, hidden))


def find_hidden_characters(text: str) -> dict[str, str]:
    """Return the hidden characters of a text, each with its kind; none for nearly every text, and quickly."""
    rest = text.encode("utf-8", "surrogatepass").translate(None, PLAIN)
    if not rest:
        return {}
    hidden = {}
    for character in sorted(set(rest.decode("utf-8", "surrogatepass"))):
        if character == "\r" and text.count("\r") == text.count("\r\n"):
            continue
        kind = _find_kind(ord(character))
        if kind:
            hidden[character] = kind
    return hidden


def remove_hidden(text: str) -> str:
    """Return a text as a person sees it: without its hidden characters. Lines stay where they are."""
    text = text.replace("\r\n", "\n")
    return text.translate(dict.fromkeys(map(ord, find_hidden_characters(text))))


def find_markers(text: str, file: str) -> list[Finding]:
    """Return an error for each line of a text that holds the beginning or end marker of a managed block.

    Whoever removes a block later would take such a line for its own. Case and spaces do not count.
    """
    if "<" not in text or "<!--" not in text:  # the first is found much faster
        return []
    import re

    found: list[Finding] = []
    line, counted = 1, 0
    for match in re.finditer(r"<!--\s{0,64}amp\s{0,8}:\s{0,8}(begin|end)", text, re.ASCII | re.IGNORECASE):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        message = f"this passes for an amp:{match[1].lower()} marker of an installer"
        if not found or found[-1].line != line:
            found.append(Finding(MARKER_RULE, Severity.ERROR, file, line, message, MARKER_REMEDY))
    return found


def _find_kind(point: int) -> str:
    for kind, ranges in _KINDS.items():
        for first, *last in ranges:
            if first <= point <= (last[0] if last else first):
                return kind
    return ""


def _find_by_line(text: str, file: str, hidden: dict[str, str]) -> Iterator[Finding]:
    import re

    lines: dict[tuple[int, str], list[str]] = {}
    line, counted = 1, 0
    for match in re.finditer(f"[{re.escape(''.join(hidden))}]", text):
        if match[0] == _JOINER and _joins_emoji(text, match.start()):
            continue
        line += text.count("\n", counted, match.start())
        counted = match.start()
        lines.setdefault((line, hidden[match[0]]), []).append(match[0])
    for (line, kind), characters in lines.items():
        different = [f"U+{ord(character):04X}" for character in dict.fromkeys(characters)]
        named = ", ".join(different[:MOST_NAMED]) + ", ..." * (len(different) > MOST_NAMED)
        count = f"{len(characters)} times a {kind}" if len(characters) > 1 else f"a {kind}"
        message = f"{count} that cannot be seen: {named}"
        yield Finding(HIDDEN_RULE, Severity.WARNING, file, line, message, HIDDEN_REMEDY)


def _joins_emoji(text: str, at: int) -> bool:
    """Return whether a zero-width joiner stands between two pictures."""
    from unicodedata import category

    before = text[max(0, at - 3) : at].rstrip("\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
    after = text[at + 1 : at + 2]
    return bool(before and after) and category(before[-1]) == "So" and category(after) == "So"
