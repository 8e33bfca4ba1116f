"""A wiki on disk: which state it is in, what its pages hold, and how changes get there.

    with open_wiki("knowledge-base/wiki") as wiki:
        wiki.state, wiki.stems, wiki.read("pages/copy-voice.md")
        wiki.write("pages/copy-voice.md", before, after)

Every file is replaced whole or not at all, and only if it still holds what was read. No link is followed, and nothing
is written outside the wiki but the folder that it lies in, and `SCHEMA.md` there when that folder is new.

Source: AMP v0.4, Part 12; decisions, AMP packs, Unpack.
"""

# ruff: noqa: PTH100, PTH112, PTH114, PTH118

from __future__ import annotations

import fcntl
import os
import re
import stat
from enum import StrEnum
from types import TracebackType
from typing import Final

from melete.errors import InvalidInput, StoreBusy, StoreNotWritten
from melete.packs.errors import TargetRefused, WikiRefused
from melete.packs.folder import Folder
from melete.packs.hosts import LEGACY, PACKS

DEFAULT: Final = "knowledge-base/wiki"
INDEX: Final = "index.md"
LOG: Final = "log.md"
PAGES: Final = "pages"
SCHEMA: Final = "SCHEMA.md"
LARGEST_PAGE: Final = 8 * 1024 * 1024
MOST_PAGES: Final = 100_000

_DRAFT: Final = re.compile(r"\.[0-9a-f]{12}\.amp-draft", re.ASCII)


class State(StrEnum):
    """A: a wiki; B: the folder for it, and no wiki or half of one; C: nothing."""

    A = "A"
    B = "B"
    C = "C"


class Wiki:
    """A wiki, locked while it is open. Made by `open_wiki`; paths are relative to the wiki's own folder."""

    def __init__(self, folder: Folder, base: str, name: str, state: State, lock: int) -> None:
        #: The folder that the knowledge base lies in, or the knowledge base itself; see `open_wiki`.
        self._folder = folder
        self._base = base
        self._name = name
        self._lock = lock
        self.state: Final = state

    def __enter__(self) -> Wiki:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._folder.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def root(self) -> str:
        """The wiki's folder, for people."""
        return os.path.join(self._folder.root, self._path(""))

    def list_pages(self) -> list[str]:
        """Return the names of the pages without their suffix, sorted. Errors: `WikiRefused`."""
        try:
            names = self._folder.list_names(self._path(PAGES))
        except TargetRefused as error:
            raise WikiRefused(error.file, error.reason) from None
        if len(names) > MOST_PAGES:
            raise WikiRefused(self._path(PAGES), f"it holds more than {MOST_PAGES} pages")
        return [name.removesuffix(".md") for name, folder in names if not folder and name.endswith(".md")]

    def read(self, path: str) -> str | None:
        """Return what a file holds, None if it is not there. Errors: `WikiRefused` for what is no text file."""
        content = self._read(path)
        if content is None:
            return None
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise WikiRefused(self._path(path), f"its byte {error.start} is not UTF-8; save it as UTF-8") from None

    def write(self, path: str, before: str | None, after: str) -> None:
        """Replace a file, or make it, in one step; its mode and owner stay.

        Errors: `WikiRefused` when it no longer holds `before`; `StoreNotWritten`.
        """
        place = self._path(path)
        draft = f"{place.rpartition('/')[0]}/.{os.urandom(6).hex()}.amp-draft".lstrip("/")
        try:
            self._make_folders(place)
            status = self._folder.status(place)
            try:
                self._folder.write_new(draft, after.encode("utf-8"), status, place)
                self._check_unchanged(path, before)
                self._folder.rename(draft, place.rpartition("/")[2])
            except BaseException:
                self._folder.remove(draft)
                raise
            self._folder.flush(place.rpartition("/")[0])
        except TargetRefused as error:
            raise WikiRefused(error.file, error.reason) from None
        except OSError as error:
            raise StoreNotWritten(place, error.strerror or "the disk refused it") from None

    def remove_drafts(self) -> None:
        """Remove what a run that was killed left behind: the wiki is locked, so that nobody is writing it."""
        for folder in (".", self._path(""), self._path(PAGES)):
            for name, _ in self._folder.list_names(folder):
                if _DRAFT.fullmatch(name):
                    self._folder.remove(f"{folder}/{name}")

    def make_knowledge_base(self, schema: str) -> None:
        """Make the folder that the wiki lies in, with its schema already in it. Errors: `StoreNotWritten`."""
        draft = f".{os.urandom(6).hex()}.amp-draft"
        try:
            try:
                self._folder.make_folder(draft)
                self._folder.write_new(f"{draft}/{SCHEMA}", schema.encode("utf-8"))
                self._folder.flush(draft)
                self._folder.rename(draft, self._base)
            except BaseException:
                self._folder.remove(draft)
                raise
            self._folder.flush("")
        except OSError as error:
            raise StoreNotWritten(self._base, error.strerror or "the disk refused it") from None

    def make_pages_folder(self) -> None:
        """Make the folder of the pages, and those above it. Errors: `StoreNotWritten`, `WikiRefused`."""
        try:
            self._make_folders(self._path(f"{PAGES}/page"))
        except TargetRefused as error:
            raise WikiRefused(error.file, error.reason) from None
        except OSError as error:
            raise StoreNotWritten(self._path(PAGES), error.strerror or "the disk refused it") from None

    def path(self, name: str) -> str:
        """Return a path of the wiki as a plan shows it: from the folder that the knowledge base lies in."""
        return self._path(name)

    def _path(self, path: str) -> str:
        if path == f"../{SCHEMA}":
            return "/".join(part for part in (self._base, SCHEMA) if part)
        return "/".join(part for part in (self._base, self._name, path) if part)

    def _read(self, path: str) -> bytes | None:
        try:
            return self._folder.read(self._path(path), LARGEST_PAGE)
        except TargetRefused as error:
            raise WikiRefused(error.file, error.reason) from None
        except NotADirectoryError:
            raise WikiRefused(self._path(path), "something that is no folder is in the way; move it away") from None
        except OSError as error:
            raise WikiRefused(self._path(path), f"it cannot be read ({error.strerror})") from None

    def _check_unchanged(self, path: str, before: str | None) -> None:
        if self._read(path) != (None if before is None else before.encode("utf-8")):
            raise WikiRefused(self._path(path), "it changed just now; run the command again")

    def _make_folders(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            at = "/".join(parts[:depth])
            status = self._folder.status(at)
            if status is None:
                try:
                    self._folder.make_folder(at)
                except FileExistsError:
                    continue
            elif not stat.S_ISDIR(status.st_mode):
                raise TargetRefused(at, "it is a link or no folder; put the folder itself in its place")


def open_wiki(path: str | None = None, project: str = ".") -> Wiki:
    """Open the wiki in a folder, by default `knowledge-base/wiki` in a project, and lock it. Nothing is made yet.

    The folder that the wiki lies in is its knowledge base. Where `path` names it, that may be reached by links; the
    default may not, and neither may anything in the wiki.

    Errors: `InvalidInput` for a path without a folder above it; `WikiRefused` for a link; `StoreBusy`.
    """
    given = os.path.join(project, DEFAULT) if path is None else path
    if not given.strip() or "\0" in given:
        raise InvalidInput("--wiki", given, "a folder")
    full = os.path.abspath(given)
    for managed in (PACKS, LEGACY):
        if managed in f"{full}/{os.path.realpath(full)}".lower().split("/"):
            raise InvalidInput("--wiki", given, f"a folder outside of {managed}, which holds what is installed")
    above, name = os.path.split(full)
    top, base = os.path.split(above)
    if not name or not base:
        raise InvalidInput("--wiki", given, "a folder inside a folder of its own, such as knowledge-base/wiki")
    if path is not None and os.path.isdir(above):
        root, base = os.path.realpath(above), ""
    elif os.path.islink(above):
        raise WikiRefused(base, "it is a link; name what it leads to with --wiki")
    elif not os.path.isdir(top):
        raise InvalidInput("--wiki", given, "a folder whose parent's parent exists")
    else:
        root = top
    try:
        folder = Folder(root)
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WikiRefused(root, f"it cannot be opened ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        folder.close()
        raise StoreBusy(full, "another process unpacks into it") from None
    wiki = Wiki(folder, base, name, State.A, lock)
    try:
        return Wiki(folder, base, name, _find_state(wiki, folder, base), lock)
    except BaseException:
        wiki.close()
        raise


def _find_state(wiki: Wiki, folder: Folder, base: str) -> State:
    for path in (base, wiki.path(""), wiki.path(PAGES)):
        status = folder.status(path) if path else None
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise WikiRefused(path, "it is a link or no folder; put the folder itself in its place")
    if base and folder.status(base) is None:
        return State.C
    index = folder.status(wiki.path(INDEX))
    if index is not None and not stat.S_ISREG(index.st_mode):
        raise WikiRefused(wiki.path(INDEX), "it is a link or no file; put the file itself in its place")
    return State.A if index is not None and folder.status(wiki.path(PAGES)) is not None else State.B
