"""Reading files that somebody named: none hangs, none fills the memory, and a device or a folder is no file."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
#: What the caller's shell handed over, as `/dev/stdin` or `<(command)`: what comes through it is waited for.
_HANDED_OVER: Final = re.compile(r"/dev/stdin|(?:/dev|/proc/self|/proc/[0-9]+)/fd/[0-9]+")


def open_to_read(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file, or a pipe or terminal that the shell handed over.

    Any other pipe, device or socket is refused, before anything is read or waited for. Errors: `OSError`.
    """
    name = os.fspath(path)
    handle = os.open(name, _READ)
    try:
        _require_file(handle, name)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Return what is in a file; of more than `most` bytes, as much as shows that. Errors: as `open_to_read`."""
    with open_to_read(path) as file:
        return file.read(most + 1)


def is_owners_alone(file: BinaryIO) -> bool:
    """Return whether nobody but its owner can read or change an open file."""
    return not os.fstat(file.fileno()).st_mode & 0o077


def to_path(path: str | os.PathLike[str], field: str) -> Path:
    """Return a path. Errors: `InvalidInput` for what names no file, naming `field`."""
    from melete.errors import InvalidInput

    if isinstance(path, str | Path) and "\0" not in str(path):
        return Path(path)
    raise InvalidInput(field, path, "a path, as text or `pathlib.Path`")


def _require_file(handle: int, name: str) -> None:
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind) or name == os.devnull:
        return
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not _HANDED_OVER.fullmatch(name) or not (stat.S_ISFIFO(kind) or os.isatty(handle)):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket, and no file", name)
    os.set_blocking(handle, True)
