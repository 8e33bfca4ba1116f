"""Read the files that a pack is made from: text, of bounded size, and never through a link.

A file that was named and cannot be read is refused; one that was only met in a folder is listed with the reason.
"""

# Folders are read by descriptor, so that a link put in their place is not followed.
# ruff: noqa: PTH100, PTH117, PTH118, PTH119, PTH206

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from melete.errors import InvalidInput, show
from melete.packs.capture.outline import Outline, read_outline
from melete.packs.capture.shapes import Detected, Shape, detect_shape

LARGEST_SOURCE: Final = 4 * 1024 * 1024
MOST_SOURCES: Final = 10_000
DEEPEST: Final = 32
SUFFIXES: Final = (".md", ".markdown", ".txt")

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Without waiting, should a pipe stand there.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LeftOut(NamedTuple):
    """A file or folder that was met and not read, or read and not used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """A file: the name that it goes by in a pack, its text, its SHA-256, and its shape."""

    path: str
    outline: Outline
    sha256: str
    shape: Shape
    shape_reason: str


class Sources(NamedTuple):
    """What was read, in order, and what was left out."""

    used: tuple[Source, ...]
    left_out: tuple[LeftOut, ...]


class _Read(NamedTuple):
    path: str
    location: str
    content: bytes


def load_sources(
    arguments: Sequence[str], shapes: Mapping[str, Shape] | None = None, *, recorded: Mapping[str, Shape] | None = None
) -> Sources:
    """Read files and folders, in the order given; a folder in the order of its names, whole.

    `shapes` names the shape of files by path, as a person would type it; `recorded` those of an earlier run, by their
    names in the pack, where they may be missing. Names in the pack are paths as given, if they
    lead down from where the process runs, or else start at the folder named, so that no pack tells where its author
    keeps things. Hidden folders, and folders that are AMP packs, are left out.

    Errors: `InvalidInput` for an argument that is neither file nor folder, that is a link, too large, no UTF-8 or
    binary; for two files of one name; for a shape of a file that is none of the sources.
    """
    reader = _Reader()
    for argument in arguments:
        reader.read(argument)
    chosen = dict(shapes or {})
    used: list[Source] = []
    left_out = list(reader.left_out)
    for path, location, content in reader.found:
        key = next((key for key in chosen if key == path or os.path.abspath(key) == location), None)
        shape = chosen.pop(key) if key is not None else (recorded or {}).get(path)
        text, fault = _decode(content)
        if fault and location in reader.named:
            raise _refusal(path, fault)
        outline = read_outline(text)
        detected = Detected(shape, "it was said so") if shape else detect_shape(location.replace(os.sep, "/"), outline)
        if fault or detected is None:
            left_out.append(LeftOut(path, fault or "it has no known shape"))
        else:
            used.append(Source(path, outline, sha256(content).hexdigest(), *detected))
    if chosen:
        raise InvalidInput("--shape", next(iter(chosen)), "of a file that is one of the sources, and that can be read")
    return Sources(tuple(used), tuple(sorted(left_out)))


def _decode(content: bytes) -> tuple[str, str]:
    """Return the text of a file, and what is wrong with it."""
    if b"\0" in content:
        return "", "it is binary"
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        return "", f"its byte {error.start} is not UTF-8"


def _refusal(path: str, fault: str) -> InvalidInput:
    return InvalidInput("source", path, f"a text file or a folder that can be read; {fault}")


class _Reader:
    def __init__(self) -> None:
        self.found: list[_Read] = []
        self.left_out: list[LeftOut] = []
        #: Where the files are that were named by themselves.
        self.named: set[str] = set()
        self._seen: set[tuple[int, int]] = set()
        self._paths: dict[str, str] = {}

    def read(self, argument: str) -> None:
        if not argument or "\0" in argument:
            raise InvalidInput("source", argument, "a file or a folder")
        given = argument.rstrip("/") or "/"
        location = os.path.abspath(given)
        try:
            status = os.lstat(given)
            if stat.S_ISLNK(status.st_mode):
                raise _refusal(argument, "it is a link; give what it leads to")
            if stat.S_ISDIR(status.st_mode):
                handle = os.open(given, _FOLDER)
                try:
                    self._read_folder(handle, _name_of(given), location, 1)
                finally:
                    os.close(handle)
                return
            fault = self._read_file(given, None, _name_of(given), location)
        except OSError as error:
            raise _refusal(argument, str(error.strerror).lower()) from None
        if fault:
            raise _refusal(argument, fault)
        self.named.add(location)

    def _read_folder(self, handle: int, prefix: str, location: str, depth: int) -> None:
        with os.scandir(handle) as entries:
            listed = sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries)
        names = {name for name, _, _ in listed}
        if depth > 1 and {"manifest.json", "agents.md", "memory"} <= names:
            self.left_out.append(LeftOut(prefix + "/", "it is an AMP pack"))
            return
        for name, folder, link in listed:
            path = f"{prefix}/{name}" if prefix else name
            at = os.path.join(location, name)
            if link:
                self.left_out.append(LeftOut(path, "it is a link"))
            elif folder:
                self._enter(handle, name, path, at, depth)
            elif not name.lower().endswith(SUFFIXES) or name.startswith("."):
                self.left_out.append(LeftOut(path, f"its name does not end in {', '.join(SUFFIXES)}"))
            else:
                fault = self._read_file(name, handle, path, at)
                if fault:
                    self.left_out.append(LeftOut(path, fault))

    def _enter(self, handle: int, name: str, path: str, location: str, depth: int) -> None:
        if name.startswith("."):
            self.left_out.append(LeftOut(path + "/", "it is a hidden folder"))
            return
        if depth >= DEEPEST:
            self.left_out.append(LeftOut(path + "/", f"it lies more than {DEEPEST} folders deep"))
            return
        try:
            below = os.open(name, _FOLDER, dir_fd=handle)
        except OSError as error:
            self.left_out.append(LeftOut(path + "/", f"it cannot be opened ({error.strerror})"))
            return
        try:
            self._read_folder(below, path, location, depth + 1)
        finally:
            os.close(below)

    def _read_file(self, name: str, folder: int | None, path: str, location: str) -> str:
        """Read a file, unless it was read before, and return what is wrong with it."""
        try:
            handle = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            return "it is a link" if error.errno == errno.ELOOP else f"it cannot be opened ({error.strerror})"
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return "it is a device, a pipe or a socket"
            if status.st_size > LARGEST_SOURCE:
                return f"it has more than {LARGEST_SOURCE} bytes"
            if (status.st_dev, status.st_ino) in self._seen:
                return ""
            if not _is_printable(path):
                return "its name is not printable UTF-8"
            content = b""
            while part := os.read(handle, LARGEST_SOURCE + 1 - len(content)):
                content += part
        finally:
            os.close(handle)
        if len(content) > LARGEST_SOURCE:
            return f"it has more than {LARGEST_SOURCE} bytes"
        self._seen.add((status.st_dev, status.st_ino))
        if path in self._paths:
            both = (
                f"{show(self._paths[path])} and {show(location)} would both be called so; give a folder that holds both"
            )
            raise InvalidInput("source", path, f"the name of one file: {both}")
        self._paths[path] = location
        if len(self.found) >= MOST_SOURCES:
            raise InvalidInput("source", path, f"one of at most {MOST_SOURCES} files")
        self.found.append(_Read(path, location, content))
        return ""


def _name_of(given: str) -> str:
    """Return how a pack calls an argument: without anything above where the process runs."""
    plain = os.path.normpath(given)
    parts = plain.split(os.sep)
    if os.path.isabs(plain) or ".." in parts:
        parts = [os.path.basename(os.path.abspath(given))]
    if plain == ".":
        parts = []
    return "/".join(parts)


def _is_printable(path: str) -> bool:
    return path.isprintable() and not any("\ud800" <= character <= "\udfff" for character in path)
