"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(path: str, content: bytes, mode: int, *, replace: bool = True) -> None:
    """Write a file in a folder that is there; see `write_file_in`. Errors: those, as `StoreNotWritten`."""
    with not_written(path):
        handle = os.open(os.path.dirname(path) or ".", _DIRECTORY)  # noqa: PTH120
        try:
            write_file_in(handle, os.path.basename(path), content, mode, replace=replace)  # noqa: PTH119
        finally:
            os.close(handle)


def write_file_in(
    folder: int, name: str, content: bytes, mode: int, *, replace: bool = True, owner: tuple[int, int] | None = None
) -> None:
    """Write a file into an open folder: a draft beside it, forced to disk, then renamed.

    What stood there is replaced with all its properties (a link is, too, and not what it points to); with
    `replace=False` nothing may stand there. The new file has just `mode`, and `owner` where that may be given.
    Errors: `OSError`, and then nothing changed; `FileExistsError` among them.
    """
    draft = f".amp-{os.urandom(8).hex()}"
    handle = os.open(draft, _DRAFT, 0o600, dir_fd=folder)
    try:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(handle, rest) :]
            if owner is not None:
                with suppress(OSError):
                    os.fchown(handle, *owner)
            os.fchmod(handle, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        if replace:
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            _publish(folder, draft, name)
        os.fsync(folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


def _publish(folder: int, draft: str, name: str) -> None:
    """Give a finished draft its name, unless that is taken."""
    try:
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the name is reserved, then replaced
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder))
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def make_folders(path: str) -> None:
    """Make a folder and those above it that are missing, each for its owner alone. Errors: `StoreNotWritten`."""
    with not_written(path):
        missing = []
        at = os.path.abspath(path)  # noqa: PTH100
        while not os.path.isdir(at):  # noqa: PTH112
            missing.append(at)
            at = os.path.dirname(at)  # noqa: PTH120
        for folder in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)  # noqa: PTH102
                continue
            if not os.path.isdir(folder):  # noqa: PTH112
                raise NotADirectoryError(20, os.strerror(20), folder)


@contextmanager
def not_written(path: str) -> Iterator[None]:
    """Turn what the system says inside into `StoreNotWritten`; that a file exists passes as it is."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        _not_written(path, error)


def _not_written(path: str, error: OSError) -> NoReturn:
    from melete.errors import StoreNotWritten

    raise StoreNotWritten(path, error.strerror or "it cannot be made") from None


@contextmanager
def locked(path: str, busy_seconds: float) -> Iterator[None]:
    """Hold the right to change a file: one process at a time, by a lock beside it that the system gives back.

    Errors: `StoreBusy` after so many seconds; `StoreNotWritten`.
    """
    from fcntl import LOCK_EX, LOCK_NB, flock

    from melete.errors import StoreBusy

    lock = f"{path}.lock"
    with not_written(lock):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + busy_seconds
        while True:
            try:
                flock(handle, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreBusy(path, "another process changes it") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)
