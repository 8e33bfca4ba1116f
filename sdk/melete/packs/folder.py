"""A folder that is held open: what lies below it is read and changed without ever following a link.

    folder = Folder("my-project")
    folder.read("CLAUDE.md", 1024)
    folder.write_new(".draft", b"...")

Each part of a path is opened from the one before it, so that nothing outside can be put in its place meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from melete.errors import MissingFile
from melete.packs.block import find_text_fault
from melete.packs.errors import TargetRefused

Found = TypeVar("Found")

#: An agent reads its own file whole into each conversation; a longer one is something else.
LARGEST_HOST: Final = 16 * 1024 * 1024
#: Files of a folder that are flushed to the disk one by one; more are flushed all at once.
FLUSHED_SINGLY: Final = 1000
READ_AT_ONCE: Final = 1 << 18

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """A folder, held open. Paths below it are opened part by part, and what is a link on the way is refused."""

    def __init__(self, root: str) -> None:
        self.root: Final = root
        self._handle = os.open(root, _FOLDER & ~os.O_NOFOLLOW)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def at(self, path: str, act: Callable[[int, str], Found]) -> Found:
        """Do something with the folder that a path lies in, as a descriptor, and the path's last name.

        Errors: `TargetRefused` for a link, or anything else that is no folder, on the way; `OSError`.
        """
        *folders, name = path.split("/")
        handle = os.dup(self._handle)
        try:
            for depth, part in enumerate(folders, 1):
                try:
                    below = os.open(part, _FOLDER, dir_fd=handle)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise TargetRefused("/".join(folders[:depth]), _why_no_folder(handle, part)) from None
                    raise
                os.close(handle)
                handle = below
            return act(handle, name)
        finally:
            os.close(handle)

    def status(self, path: str) -> os.stat_result | None:
        """Return what a path is, itself if it is a link; None if it is not there."""
        try:
            return self.at(path, lambda at, name: os.stat(name, dir_fd=at, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def open_file(self, path: str) -> int:
        return self.at(path, lambda at, name: os.open(name, _FILE, dir_fd=at))

    def open_folder(self, path: str) -> int:
        return self.at(path, lambda at, name: os.open(name, _FOLDER, dir_fd=at))

    def read(self, path: str, limit: int) -> bytes | None:
        """Return what a plain file holds; None if it is not there. Errors: `TargetRefused` for anything else."""
        found = self.read_with_status(path, limit)
        return None if found is None else found[0]

    def read_with_status(self, path: str, limit: int) -> tuple[bytes, os.stat_result] | None:
        """Return what a plain file holds, and what the file is. Errors: as `read`."""
        try:
            handle = self.open_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise TargetRefused(path, "it is a link; put the file itself in its place") from None
            raise
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise TargetRefused(path, "it is no plain file; move it away")
            if status.st_size > limit:
                raise TargetRefused(path, f"it has {status.st_size} bytes, and at most {limit} are read; shorten it")
            return read_all(handle), status
        finally:
            os.close(handle)

    def read_parts(self, path: str) -> Iterator[bytes]:
        """Yield what a file holds, piece by piece."""
        handle = self.open_file(path)
        try:
            while part := os.read(handle, READ_AT_ONCE):
                yield part
        finally:
            os.close(handle)

    def read_host(self, path: str) -> tuple[bytes, os.stat_result] | None:
        """Return what an agent's own file holds, and what it is; None if it is not there.

        Errors: `TargetRefused` for what could not be written back as it is: a link, a file with a second name, one
        without permission to write, one whose text is not ASCII with more (UTF-16, say).
        """
        found = self.read_with_status(path, LARGEST_HOST)
        if found is None:
            return None
        content, status = found
        if status.st_nlink > 1:
            raise TargetRefused(
                path, "it has a second name (a hard link), which would keep the old text; copy it first"
            )
        may_write = self.at(path, lambda at, name: os.access(name, os.W_OK, dir_fd=at))
        if not may_write or not status.st_mode & 0o222:  # root may write anything, and is told what the owner meant
            raise TargetRefused(path, "it is read-only; make it writable first")
        if find_text_fault(content) is not None:
            raise TargetRefused(path, "it is not UTF-8 text; save it as UTF-8")
        return content, status

    def list_names(self, path: str) -> list[tuple[str, bool]]:
        """Return the names in a folder, sorted, and whether each is a folder; none if it is not there."""
        try:
            handle = self.open_folder(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise TargetRefused(path, "it is a link or no folder; put the folder itself in its place") from None
            raise
        try:
            with os.scandir(handle) as entries:
                return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        finally:
            os.close(handle)

    def write_new(self, path: str, content: bytes, like: os.stat_result | None = None, source: str = "") -> None:
        """Write a file that does not exist, and flush it, with the mode and owner of another one."""
        handle = self.at(path, lambda at, name: os.open(name, _NEW_FILE, 0o666, dir_fd=at))
        try:
            if like is not None:
                _keep_owner(handle, like, source)
                original = self.open_file(source)
                try:
                    _copy_attributes(original, handle)
                finally:
                    os.close(original)
                os.fchmod(handle, stat.S_IMODE(like.st_mode))
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)

    def make_folder(self, path: str) -> None:
        self.at(path, lambda at, name: os.mkdir(name, dir_fd=at))

    def rename(self, path: str, name: str) -> None:
        """Give a path another name in its folder."""
        self.at(path, lambda at, old: os.rename(old, name, src_dir_fd=at, dst_dir_fd=at))

    def remove_file(self, path: str) -> None:
        self.at(path, lambda at, name: os.unlink(name, dir_fd=at))

    def remove(self, path: str) -> None:
        """Remove what is at a path, if anything is: a folder with all it holds, no link followed."""
        try:
            self.at(path, _remove)
        except FileNotFoundError:
            return

    def remove_empty(self, path: str) -> bool:
        """Remove a folder if it is empty; return whether it is gone."""
        try:
            self.at(path, lambda at, name: os.rmdir(name, dir_fd=at))
        except FileNotFoundError:
            return True
        except (OSError, TargetRefused):
            return False
        return True

    def flush(self, path: str) -> None:
        """Flush what a folder lists to the disk. The empty path is the root."""
        handle = self.open_folder(path) if path else os.dup(self._handle)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Draft:
    """A new folder while it is written."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._folders: set[str] = set()
        self._written: int = 0

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        """Write a file, making the folders that it lies in. Its mode is that of any new file: never executable."""
        handle = os.dup(self._handle)
        try:
            *folders, name = path.split("/")
            for depth, folder in enumerate(folders, 1):
                prefix = "/".join(folders[:depth])
                if prefix not in self._folders:
                    os.mkdir(folder, dir_fd=handle)
                    self._folders.add(prefix)
                below = os.open(folder, _FOLDER, dir_fd=handle)
                os.close(handle)
                handle = below
            file = os.open(name, _NEW_FILE, 0o666, dir_fd=handle)
            try:
                for part in parts:
                    write_all(file, part)
                self._written += 1
                if self._written <= FLUSHED_SINGLY:
                    os.fsync(file)
            finally:
                os.close(file)
        finally:
            os.close(handle)

    def flush(self) -> None:
        if self._written > FLUSHED_SINGLY:
            os.sync()
        else:
            os.fsync(self._handle)


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Turn what the system says while something below a root is read into `MissingFile`."""
    try:
        yield
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else ""
        reason = f"{name!a} cannot be read" if name and name != root else "it cannot be read"
        raise MissingFile(root, f"{reason} ({error.strerror})") from None


def read_all(handle: int) -> bytes:
    parts = []
    while part := os.read(handle, READ_AT_ONCE):
        parts.append(part)
    return b"".join(parts)


def write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _remove(at: int, name: str) -> None:
    """Remove a file, a link, or a folder with all it holds."""
    try:
        handle = os.open(name, _FOLDER, dir_fd=at)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        os.unlink(name, dir_fd=at)
        return
    try:
        with os.scandir(handle) as entries:
            names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for below, is_folder in names:
            if is_folder:
                _remove(handle, below)
            else:
                os.unlink(below, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=at)


def _keep_owner(handle: int, like: os.stat_result, path: str) -> None:
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) == (like.st_uid, like.st_gid):
        return
    try:
        os.fchown(handle, like.st_uid, like.st_gid)
    except PermissionError:
        raise TargetRefused(path, "it belongs to somebody else, and would become yours; ask its owner") from None


def _copy_attributes(original: int, handle: int) -> None:
    """Copy access lists and other extended attributes, where there are any and the file system takes them."""
    if not hasattr(os, "listxattr"):
        return
    try:
        for name in os.listxattr(original):
            os.setxattr(handle, name, os.getxattr(original, name))
    except OSError:
        return


def _why_no_folder(at: int, name: str) -> str:
    try:
        linked = stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        linked = False
    return "it is a link; put the folder itself in its place" if linked else "it is no folder; move it away"
