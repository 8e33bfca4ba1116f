"""What is looked for in every file of a pack: credentials, text that cannot be seen, an installer's markers.

Each file is judged by itself, a large one piece by piece (`melete.packs.scan_pieces`): instructions that are split over
several files are not recognized, nor are those that stand there plainly.

Source: AMP v0.4, Part 9.
"""

from __future__ import annotations

from melete.packs.credentials import IN_RUNS, REMEDY, RULE, RUN_LENGTH, find_credentials, show_path
from melete.packs.findings import Finding, Severity
from melete.packs.hidden import PLAIN, find_hidden_text, find_markers, remove_hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from melete.packs.manifest import Manifest
    from melete.packs.tree import PackTree

MANIFEST: Final = "manifest.json"
#: Bytes of a file that is read at once; a larger one is scanned in pieces.
LARGEST: Final = 16 * 1024 * 1024

#: Characters of 64 bytes in base64url without padding.
SIGNATURE_LENGTH: Final = 86

#: One pass tells whether a closer look is needed: what credentials are made of, what is plain, and everything else.
_CLASSES: Final = bytes(97 if byte in IN_RUNS else 32 if byte in PLAIN else 255 for byte in range(256))
_RUN: Final = b"a" * RUN_LENGTH
_NOT_PLAIN: Final = b"\xff"


def scan_tree(tree: PackTree, manifest: Manifest | None = None) -> list[Finding]:
    """Return what a pack's files hold that they should not, file by file.

    Credentials and markers are errors, hidden text and files that could not be read as text are warnings. `manifest`
    is the pack's own, if it is known already: its signature is random text, and not looked at.

    Errors: those of `PackTree.read_bytes`.
    """
    found: list[Finding] = []
    for file in tree.files:
        path = show_path(file.path)
        found += scan_name(file.path)
        if file.size > LARGEST:
            found += scan_large(tree, file.path)[1]
            continue
        content = tree.read_bytes(file.path, LARGEST)
        if manifest is not None and file.path == MANIFEST:
            content = leave_signature_out(content, manifest.signature)
        found += scan_content(content, path)[1]
    return found


def leave_signature_out(content: bytes, signature: str) -> bytes:
    """Return the manifest's text with an empty `signature`, if that is a well-formed one; else as it is.

    Only the member itself is left out: what stands elsewhere is looked at, even if it is the same text.
    """
    if len(signature) != SIGNATURE_LENGTH or not set(signature.encode("ascii", "replace")).issubset(IN_RUNS):
        return content
    from melete.packs.json_edit import replace_members

    return replace_members(content.decode("utf-8"), {"signature": ""}).encode("utf-8")


def find_hidden_in(tree: PackTree) -> list[Finding]:
    """Return a warning for each line of a pack's text files that holds what cannot be seen. Errors: as `scan_tree`."""
    found: list[Finding] = []
    for file in tree.files:
        if file.size > LARGEST:
            from melete.packs.scan_pieces import find_hidden_in_pieces

            found += find_hidden_in_pieces(tree, file.path, show_path(file.path))
            continue
        content = tree.read_bytes(file.path, LARGEST)
        if content.translate(None, PLAIN):
            found += find_hidden_text(content.decode("utf-8", "replace"), show_path(file.path))
    return found


def scan_name(path: str) -> list[Finding]:
    """Return what the name of a file looks like, without the name."""
    shown = show_path(path)
    if shown == path:
        return []
    return [Finding(RULE, Severity.ERROR, shown, None, "the name of a file looks like a live credential", REMEDY)]


def scan_content(content: bytes, path: str) -> tuple[str | None, list[Finding]]:
    """Return the text of a file, None if it is no UTF-8, and what it holds that it should not."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        from melete.packs.scan_pieces import not_text

        found = [not_text(path, error.start)]
        # UTF-16 puts a NUL beside each plain letter.
        return None, found + find_credentials(content.translate(None, b"\x00").decode("latin-1"), path)
    classes = content.translate(_CLASSES)
    found = find_credentials(text, path) if _RUN in classes else []
    found += find_markers(text, path)
    if _NOT_PLAIN in classes and (hidden := find_hidden_text(text, path)):
        # What stands there once nothing is between its letters any more.
        seen = remove_hidden(text)
        known = {(finding.rule, finding.line) for finding in found}
        found += (
            finding
            for finding in (*find_credentials(seen, path), *find_markers(seen, path))
            if (finding.rule, finding.line) not in known
        )
        found += hidden
    if len(found) > 1:
        found.sort(key=lambda finding: finding.line or 0)
    return text, found


def scan_large(tree: PackTree, path: str) -> tuple[bool, list[Finding]]:
    """Return whether a file of any size is text, and what it holds that it should not. Errors: as `scan_tree`."""
    from melete.packs.scan_pieces import scan_pieces

    return scan_pieces(tree, path, show_path(path))
