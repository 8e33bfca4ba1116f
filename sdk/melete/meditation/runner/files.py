"""Files that routines read and write: named for the record, hashed, never by way of a link."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from melete.canonical import Json
from melete.errors import MissingFile, StoreNotWritten
from melete.meditation.documents import LARGEST_DOCUMENT, load_document

_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A file or folder, and the name by which records, documents and errors call it: none says where it lies."""

    name: str
    path: Path


def hash_path(named: NamedPath) -> str:
    """Return the digest of a file, or of all files in a folder, as documents state it: `sha256:` and hex.

    That of a folder is taken over a line for each file, its SHA-256, two spaces and its path, in the order of the
    paths: what `sha256sum` prints. Errors: `MissingFile` for what is not there, not readable, a link or no file;
    `PackRefused` for a folder with links or with names that are not the same everywhere.
    """
    if named.path.is_dir() and not named.path.is_symlink():
        from melete.packs.tree import load_tree

        tree = load_tree(named.path)
        lines = "".join(f"{tree.sha256(file.path)}  {file.path}\n" for file in tree.files)
        return f"sha256:{sha256(lines.encode()).hexdigest()}"
    digest = sha256()
    handle = _open(named)
    try:
        while part := os.read(handle, 1 << 18):
            digest.update(part)
    finally:
        os.close(handle)
    return f"sha256:{digest.hexdigest()}"


def read_document(named: NamedPath, expected: str) -> dict[str, Json]:
    """Return the document of a schema in a file. Errors: `MissingFile`; those of `load_document`."""
    return load_document(read_bytes(named), expected=expected)


def read_bytes(named: NamedPath) -> bytes:
    """Return what a file holds, or as much of it as shows that it is too large. Errors: as `hash_path`."""
    handle = _open(named)
    with os.fdopen(handle, "rb") as file:
        return file.read(LARGEST_DOCUMENT + 1)


def is_there(named: NamedPath) -> bool:
    """Return whether there is anything at a path."""
    return os.path.lexists(named.path)


def write_atomically(named: NamedPath, content: bytes) -> None:
    """Put content into a file that may exist, whole or not at all, with the mode that it had (0600 for a new one).

    Errors: `StoreNotWritten`.
    """
    draft = ""
    try:
        handle, draft = tempfile.mkstemp(prefix=f".{named.path.name}.", dir=named.path.parent)
        with os.fdopen(handle, "wb") as file:
            if named.path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(named.path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(named.path)
        draft = ""
        folder = os.open(named.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreNotWritten(named.name, error.strerror or "the disk refused it") from None
    finally:
        if draft:
            Path(draft).unlink(missing_ok=True)


def _open(named: NamedPath) -> int:
    try:
        handle = os.open(named.path, _FILE)
    except OSError as error:
        reason = "it is a link" if named.path.is_symlink() else error.strerror or "it cannot be read"
        raise MissingFile(named.name, reason) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise MissingFile(named.name, "it is no file")
    return handle
