"""The scan of a file that is too large to be read at once: the same things are looked for, piece by piece.

Every piece is looked at together with the end of the one before it, so that nothing is overlooked where a file was cut.
Of what a file holds again and again, the first places are told, and the others counted.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter

from melete.packs.credentials import find_credentials
from melete.packs.findings import Finding, Severity
from melete.packs.hidden import find_hidden_text, find_markers, remove_hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Final

    from melete.packs.tree import PackTree

#: Bytes of a piece.
PIECE: Final = 1 << 20
#: Characters that are looked at again with the next piece. All that is looked for is shorter than half of it.
OVERLAP: Final = 1 << 14
#: Findings of one rule that are told one by one.
MOST_TOLD: Final = 100


def scan_pieces(tree: PackTree, path: str, shown: str) -> tuple[bool, list[Finding]]:
    """Return whether a file is text, and what it holds that it should not; `shown` is its name in findings.

    What is no text is looked through for credentials only, and named, as `melete.packs.scan.scan_content` does it.
    Errors: those of `PackTree.read_pieces`.
    """
    try:
        return True, _bounded(_scan_text(tree, path, shown))
    except _NotText as fault:
        return False, _bounded([not_text(shown, fault.byte), *_scan_bytes(tree, path, shown)])


def find_hidden_in_pieces(tree: PackTree, path: str, shown: str) -> list[Finding]:
    """Return a warning for each line of a text file that holds what cannot be seen; nothing for what is no text."""
    try:
        return _bounded(finding for found, _ in _find_hidden(tree, path, shown) for finding in found)
    except _NotText:
        return []


def not_text(shown: str, byte: int) -> Finding:
    """Return the finding for a file that is no text, as its byte of that number shows."""
    message = f"no UTF-8 text (byte {byte}), so that only credentials were looked for"
    return Finding("not-text", Severity.WARNING, shown, None, message, "save it as UTF-8, or remove it")


class _NotText(Exception):
    """`byte` is the number of the first byte that is part of no text."""

    def __init__(self, byte: int) -> None:
        self.byte = byte


class _Window:
    """A text that is given piece by piece, and searched with the end of what came before."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._kept = ""
        self._line = 1
        self._told: set[Finding] = set()

    def search(self, piece: str) -> list[Finding]:
        """Return the credentials and markers that come to an end in this piece, or begin in it."""
        text = self._kept + piece
        # A token may go on from what was cut off: what begins in the first half is for context.
        begin = OVERLAP // 2 if len(self._kept) == OVERLAP else 0
        found = find_credentials(text, self._shown, self._line, begin)
        found += (one._replace(line=self._line + (one.line or 1) - 1) for one in find_markers(text, self._shown))
        new = [one for one in found if one not in self._told]
        self._told = set(found)
        self._line += text.count("\n", 0, max(0, len(text) - OVERLAP))
        self._kept = text[-OVERLAP:]
        return new


def _scan_text(tree: PackTree, path: str, shown: str) -> Iterator[Finding]:
    raw, seen = _Window(shown), _Window(shown)
    for hidden, piece in _find_hidden(tree, path, shown):
        found = raw.search(piece)
        yield from found
        # The text once nothing is between its letters any more: line by line the same, so told once.
        yield from (one for one in seen.search(remove_hidden(piece)) if one not in found)
        yield from hidden


def _find_hidden(tree: PackTree, path: str, shown: str) -> Iterator[tuple[list[Finding], str]]:
    """Yield the text of a file in pieces, with what each of them hides."""
    line, told = 1, 0
    for piece in _read_text(tree, path):
        found = find_hidden_text(piece, shown) if told <= MOST_TOLD else []
        told += len(found)
        yield [one._replace(line=line + (one.line or 1) - 1) for one in found], piece
        line += piece.count("\n")


def _read_text(tree: PackTree, path: str) -> Iterator[str]:
    """Yield the text of a file, cut where a line or a word ends if there is such a place. Errors: `_NotText`."""
    decoder = getincrementaldecoder("utf-8")()
    held, at = "", 0
    for content in tree.read_pieces(path, PIECE):
        begun = at - len(decoder.getstate()[0])
        try:
            text = decoder.decode(content)
        except UnicodeDecodeError as error:
            raise _NotText(begun + error.start) from None
        if (zero := content.find(0)) >= 0:  # no text of that size holds one
            raise _NotText(at + zero)
        at += len(content)
        text = held + text
        cut = text.rfind("\n") + 1 or text.rfind(" ") + 1 or len(text) - text.endswith("\r")
        held = text[cut:]
        yield text[:cut]
    try:
        yield held + decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise _NotText(at - len(decoder.getstate()[0])) from None


def _scan_bytes(tree: PackTree, path: str, shown: str) -> Iterator[Finding]:
    window = _Window(shown)
    for content in tree.read_pieces(path, PIECE):
        found = window.search(content.translate(None, b"\x00").decode("latin-1"))
        yield from (one for one in found if one.rule == "credential")


def _bounded(findings: Iterable[Finding]) -> list[Finding]:
    """Return the first findings of each rule, and one that counts the others."""
    told: list[Finding] = []
    more: dict[str, Finding] = {}
    counts = Counter[str]()
    for one in findings:
        counts[one.rule] += 1
        if counts[one.rule] <= MOST_TOLD:
            told.append(one)
        else:
            more.setdefault(one.rule, one)
    for rule, first in more.items():
        message = f"and so in {counts[rule] - MOST_TOLD} or more other places, from line {first.line} on"
        told.append(first._replace(line=None, message=message))
    return told
