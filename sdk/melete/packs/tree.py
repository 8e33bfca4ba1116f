"""The files of a pack: listed once, then read without ever leaving the folder.

    tree = load_tree("my-pack")
    for file in tree.files:
        print(file.path, file.size, tree.sha256(file.path))

Anything that is not a plain file or folder is refused, and so is every name that some file system, or some reader of
packs, would take for another one. What is read has to be the file that was listed: each part of its path is opened
below the one before, no link is followed, and a file that was exchanged or changed since then is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple, NoReturn

#: Bounds of a pack. What lies beyond them is refused before it is read.
MOST_ENTRIES: Final = 100_000
DEEPEST: Final = 32
LONGEST_PATH: Final = 1024
LONGEST_NAME: Final = 255
#: Bytes that `read_bytes` takes into memory unless told otherwise; `sha256` streams files of any size.
LARGEST_READ: Final = 16 * 1024 * 1024
MANIFEST: Final = "manifest.json"

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Without waiting: what was a file when it was listed may be a pipe by now.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Names that Windows gives to devices, whatever follows after a dot.
_DEVICES: Final = {
    *("CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"),
    *(f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789\u00b9\u00b2\u00b3"),
}
#: General categories of characters that cannot be seen: controls, formats, halves of pairs, line and paragraph ends.
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}


class PackFile(NamedTuple):
    """One file: its path as signed (relative, with slashes), its bytes, its permission bits."""

    path: str
    size: int
    mode: int


class _Seen(NamedTuple):
    """What tells that a file is the one that was listed, unchanged."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Seen:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class PackTree:
    """Every file of a pack, sorted by the UTF-16 code units of its path. Made by `load_tree`."""

    __slots__ = ("_folder", "_seen", "files", "ignored", "root")

    def __init__(
        self,
        root: str,
        folder: tuple[int, int],
        found: Iterable[tuple[PackFile, _Seen]],
        ignored: Iterable[str],
    ) -> None:
        listed = sorted(found, key=lambda one: sorting_key(one[0].path))
        self.root: Final = root
        self.files: Final[tuple[PackFile, ...]] = tuple(file for file, _ in listed)
        #: What an ignore pattern left out; a folder ends in a slash.
        self.ignored: Final[tuple[str, ...]] = tuple(sorted(ignored, key=sorting_key))
        self._folder: Final = folder
        self._seen: Final = {file.path: seen for file, seen in listed}

    def __contains__(self, path: object) -> bool:
        return path in self._seen

    def __repr__(self) -> str:
        return f"PackTree({self.root!r}, {len(self.files)} files)"

    def open(self, path: str) -> BinaryIO:
        """Open a file of the pack for reading; close it, or use it in a `with`.

        Errors: `MissingFile` for a path that was not listed, or that may not be read; `PackRefused` when the file
        there is no longer the one that was listed.
        """
        return os.fdopen(self._open(path), "rb")

    def read_bytes(self, path: str, limit: int = LARGEST_READ) -> bytes:
        """Return what a file holds. Errors: as `open`; `PackRefused` for more than `limit` bytes."""
        seen = self._find(path)
        if seen.size > limit:
            _refuse("too-large", path, f"it has {seen.size} bytes, and at most {limit} are read; make it smaller")
        handle = self._open(path)
        try:
            parts = []
            while part := os.read(handle, seen.size + 1):
                parts.append(part)
            content = b"".join(parts)
            self._check(path, os.fstat(handle), len(content))
        finally:
            os.close(handle)
        return content

    def read_text(self, path: str, limit: int = LARGEST_READ) -> str:
        """Return the text of a file. Line ends stay as they are.

        Errors: as `read_bytes`; `PackRefused` for what is not UTF-8, and for a byte order mark at the start.
        """
        content = self.read_bytes(path, limit)
        if content.startswith(b"\xef\xbb\xbf"):
            _refuse("byte-order-mark", path, "it starts with a byte order mark, which readers take for text; remove it")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse("not-utf8", path, f"its byte {error.start} is not UTF-8; save it as UTF-8")

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file in hex, reading it piece by piece. Errors: as `open`."""
        from hashlib import sha256

        digest = sha256()
        for piece in self.read_pieces(path, 1 << 18):
            digest.update(piece)
        return digest.hexdigest()

    def read_pieces(self, path: str, most: int) -> Iterator[bytes]:
        """Yield what a file holds, at most so many bytes at a time.

        Errors: as `open`; `PackRefused` at its end, when what was read is not what was listed.
        """
        handle = self._open(path)
        try:
            length, size = 0, self._seen[path].size
            while piece := os.read(handle, min(size + 1, most)):
                length += len(piece)
                yield piece
            self._check(path, os.fstat(handle), length)
        finally:
            os.close(handle)

    def status(self, path: str) -> os.stat_result:
        """Return what the file system says of a file now. Errors: as `open`."""
        handle = self._open(path)
        try:
            return os.fstat(handle)
        finally:
            os.close(handle)

    def open_folder(self) -> int:
        """Open the pack's folder itself, and return its descriptor. Errors: `PackRefused` when it was exchanged."""
        try:
            handle = os.open(self.root, _DIRECTORY)
        except OSError as error:
            _cannot_read(self.root, error)
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) != self._folder:
            os.close(handle)
            _changed(".")
        return handle

    def _find(self, path: str) -> _Seen:
        seen = self._seen.get(path)
        if seen is None:
            from melete.errors import MissingFile

            raise MissingFile(path, "the pack holds no such file")
        return seen

    def _open(self, path: str) -> int:
        """Open a file below the pack's folder, one part of its path after the other."""
        self._find(path)
        at = self.open_folder()
        try:
            *folders, name = path.split("/")
            for folder in folders:
                below = os.open(folder, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            handle = os.open(name, _FILE, dir_fd=at)
        except OSError as error:
            if isinstance(error, PermissionError):
                _cannot_read(path, error)
            _changed(path)
        finally:
            os.close(at)
        try:
            self._check(path, os.fstat(handle))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _check(self, path: str, status: os.stat_result, length: int | None = None) -> None:
        seen = self._seen[path]
        if not stat.S_ISREG(status.st_mode) or _Seen.of(status) != seen or length not in (None, seen.size):
            _changed(path)


def load_tree(folder: str | os.PathLike[str], *, ignore: Sequence[str] = ()) -> PackTree:
    """List the files of a pack.

    `ignore` are patterns of what to leave out, unseen: one without a slash (`.DS_Store`, `*~`) is compared with every
    name, one with a slash with the whole path; `*` does not cross a slash. A folder left out takes along what it holds.

    Errors: `InvalidInput` for what is no folder, and for a pattern that leaves out the manifest; `MissingFile` for
    what may not be read; `PackRefused`, naming the file: a link, a device, a pipe or a socket; a name that breaks
    `find_name_fault`; two names that differ by case or by Unicode composition only; more than 100,000 entries, more
    than 32 levels, a path of more than 1024 bytes.
    """
    given = os.fspath(folder)
    root = os.path.abspath(given)  # noqa: PTH100 - the fast commands do without pathlib
    ignores = _compile(ignore)
    try:
        # The empty path is no name for the folder that one happens to stand in.
        handle = os.open(root if given else "", _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        from melete.errors import InvalidInput

        raise InvalidInput("pack", given, "a folder that holds a pack") from None
    except OSError as error:
        _cannot_read(root, error)
    listing = _Listing(ignores)
    try:
        status = os.fstat(handle)
        listing.read(handle, "", 1)
    finally:
        os.close(handle)
    return PackTree(root, (status.st_dev, status.st_ino), listing.found, listing.ignored)


def sorting_key(path: str) -> bytes:
    """Return what paths and names sort by: UTF-16 code units, as JavaScript compares text."""
    return path.encode("utf-16-be", "surrogatepass")


def find_name_fault(name: str) -> tuple[str, str] | None:
    """Return the rule that one part of a path breaks, and why; None for a name that is the same everywhere.

    Refused are names that are not UTF-8, that hold a slash, a backslash or what cannot be seen, that Windows
    reserves or shortens, and `__proto__`, which JavaScript tools lose.
    """
    if name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        # What nearly every name is made of; only what Windows and JavaScript make of it is left to be looked at.
        return _find_reserved(name)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "name-not-utf8", "its name is not UTF-8; rename it"
    if "\\" in name or "/" in name:
        return "name-separator", "its name holds a backslash or a slash, which separates folders; rename it"
    from unicodedata import category

    for character in name:
        if category(character) in _UNSEEN:
            return "name-unseen", f"its name holds U+{ord(character):04X}, which cannot be seen; rename it"
    for character in '<>:"|?*':
        if character in name:
            return "name-windows", f"its name holds {character}, which Windows does not allow; rename it"
    return _find_reserved(name)


def _find_reserved(name: str) -> tuple[str, str] | None:
    if name.endswith((".", " ")) or not name:
        return "name-windows", "its name ends in a dot or a space, which Windows drops; rename it"
    if name.partition(".")[0].rstrip(" ").upper() in _DEVICES:
        return "name-windows", "its name is that of a device on Windows; rename it"
    if name == "__proto__":
        return "name-javascript", "tools written in JavaScript do not see a file of that name; rename it"
    if len(name.encode("utf-8")) > LONGEST_NAME:
        return "name-too-long", f"its name has more than {LONGEST_NAME} bytes; shorten it"
    return None


def fold_name(name: str) -> str:
    """Return the same text for all names that some file system takes for one: case and composition do not count."""
    if name.isascii():
        return name.lower()
    from unicodedata import normalize

    return normalize("NFD", normalize("NFD", name).casefold())


class _Listing:
    """What was found so far."""

    def __init__(self, ignores: _Ignores | None) -> None:
        self.found: list[tuple[PackFile, _Seen]] = []
        self.ignored: list[str] = []
        self._ignores = ignores
        self._entries = 0

    def read(self, handle: int, prefix: str, depth: int) -> None:
        """List an open folder and those below it; each is opened from the one above it."""
        folders: list[str] = []
        folded: dict[str, str] = {}
        for entry in self._entries_of(handle, prefix):
            name, path = entry.name, prefix + entry.name
            self._check_name(name, path, folded)
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                _changed(path)
            if stat.S_ISREG(status.st_mode):
                file = PackFile(path, status.st_size, stat.S_IMODE(status.st_mode) & 0o777)
                self.found.append((file, _Seen.of(status)))
            elif stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif stat.S_ISLNK(status.st_mode):
                _refuse("symlink", path, "it is a link, and nothing outside a pack is read; put the file in its place")
            else:
                _refuse("not-a-file", path, "it is a device, a pipe or a socket; remove it")
        for name in folders:
            path = prefix + name
            if depth >= DEEPEST:
                _refuse("too-deep", path, f"it lies more than {DEEPEST} folders deep; flatten the pack")
            try:
                below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            except PermissionError as error:
                _cannot_read(path, error)
            except OSError:
                _changed(path)
            try:
                self.read(below, path + "/", depth + 1)
            finally:
                os.close(below)

    def _entries_of(self, handle: int, prefix: str) -> Iterator[os.DirEntry[str]]:
        with os.scandir(handle) as entries:
            for entry in entries:
                if self._ignores is not None and self._ignores.match(prefix + entry.name):
                    folder = entry.is_dir(follow_symlinks=False)
                    self.ignored.append(f"{prefix}{entry.name}{'/' if folder else ''}")
                    continue
                self._entries += 1
                if self._entries > MOST_ENTRIES:
                    _refuse("too-many-files", prefix or ".", f"a pack has at most {MOST_ENTRIES} files; split it")
                yield entry

    def _check_name(self, name: str, path: str, folded: dict[str, str]) -> None:
        fault = find_name_fault(name)
        if fault is not None:
            rule, detail = fault
            _refuse(rule, path, detail)
        if len(path.encode("utf-8")) > LONGEST_PATH:
            _refuse("path-too-long", path, f"its path has more than {LONGEST_PATH} bytes; shorten it")
        other = folded.setdefault(fold_name(name), name)
        if other != name:
            from melete.packs.credentials import show_path

            first, second = map(show_path, sorted((other, name), key=sorting_key))
            _refuse(
                "name-collision",
                path,
                f"{first!a} and {second!a} are one name where case or composition do not count; rename one",
            )


class _Ignores:
    """Patterns of what is left out."""

    def __init__(self, patterns: Sequence[str]) -> None:
        import re
        from fnmatch import translate

        self._names = [re.compile(translate(one)) for one in patterns if "/" not in one]
        self._paths = [[re.compile(translate(part)) for part in one.split("/")] for one in patterns if "/" in one]

    def match(self, path: str) -> bool:
        parts = path.split("/")
        return any(one.match(parts[-1]) for one in self._names) or any(
            len(one) == len(parts) and all(part.match(text) for part, text in zip(one, parts, strict=True))
            for one in self._paths
        )


def _compile(patterns: Sequence[str]) -> _Ignores | None:
    if not patterns:
        return None
    from melete.errors import InvalidInput

    trimmed = [pattern.removeprefix("./").rstrip("/") for pattern in patterns]
    if not all(trimmed):
        raise InvalidInput("ignore", "", "a pattern such as .DS_Store or drafts/*.tmp")
    ignores = _Ignores(trimmed)
    if ignores.match(MANIFEST):
        raise InvalidInput("ignore", list(patterns), "patterns that leave the manifest in")
    return ignores


def _refuse(rule: str, file: str, detail: str) -> NoReturn:
    # Here and not above: a pack that is refused may take longer than one that is not.
    from melete.packs.errors import PackRefused

    raise PackRefused(rule, file, detail) from None


def _changed(path: str) -> NoReturn:
    _refuse("changed-while-read", path, "it changed while the pack was read; try again when nobody writes to it")


def _cannot_read(path: str, error: OSError) -> NoReturn:
    from melete.errors import MissingFile
    from melete.packs.credentials import show_path

    raise MissingFile(show_path(path), f"it cannot be read ({error.strerror})") from None
