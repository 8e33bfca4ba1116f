"""Changing several files and folders of a project at once, or none of them.

    with Staging(root, Scope.PROJECT) as staging:        # the lock; what was cut off before is made good first
        staging.change("install", "my-pack", [Swap(...), Swap(...)])

Everything new is written beside its place first, then renamed into it, then what it replaces is removed. A journal says
how far that came, by its name:

    .amp/.journal-staging   drafts may exist; nothing else changed          undone: drafts are removed
    .amp/.journal-swapping  some places may hold the new, some the old      undone: the old is renamed back
    .amp/.journal-done      every place holds the new                       completed: the old is removed

Whoever is next, whether the process failed, was killed or lost power, undoes or completes it. A file that somebody
edited since then is left to them, with its former self beside it. Places are opened part by part below the root, and
no link is followed; a journal can name only what an install for its slug may touch.

Source: decisions, AMP packs, Install.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

from melete.errors import MeleteError, MissingFile, StoreBusy, StoreNotWritten
from melete.packs.block import find_text_fault
from melete.packs.errors import ChangeUnfinished, TargetRefused
from melete.packs.hosts import KEPT, PACKS, RECORDS, Scope, host_files, pack_folder, record_file
from melete.packs.manifest import is_slug

Found = TypeVar("Found")
#: Called with the name of each step before it is taken.
OnStep = Callable[[str], object]

LOCK: Final = ".amp/.lock"
STAGING, SWAPPING, DONE = (f".amp/.journal-{phase}" for phase in ("staging", "swapping", "done"))
_JOURNAL_DRAFT: Final = ".amp/.journal-draft"
_JOURNAL_FORMAT: Final = "amp-journal/1"
#: How long to wait for another process.
WAIT_SECONDS: Final = 10.0
#: An agent reads its own file whole into each conversation; a longer one is something else.
LARGEST_HOST: Final = 16 * 1024 * 1024
#: Files of a folder that are flushed to the disk one by one; more are flushed all at once.
FLUSHED_SINGLY: Final = 1000
#: The lock holds it while `.amp` was made by whoever holds, or held, it.
_MADE: Final = b"made\n"
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


class Swap(NamedTuple):
    """One place, and what it shall hold: `content` for a file, a folder that `fill` writes, or nothing."""

    path: str
    #: What was there when the change was planned; None for nothing.
    before: os.stat_result | None
    content: bytes | None = None
    fill: Callable[[Draft], None] | None = None

    @property
    def has_new(self) -> bool:
        return self.content is not None or self.fill is not None


class _Step(NamedTuple):
    """What the journal keeps of a swap."""

    path: str
    #: Something was there before, and something shall be there afterwards.
    had: bool
    has_new: bool
    #: The SHA-256 of a new file; None for a folder.
    sha256: str | None
    token: str

    @property
    def new(self) -> str:
        return self._beside("new")

    @property
    def old(self) -> str:
        return self._beside("old")

    def _beside(self, word: str) -> str:
        folder, slash, name = self.path.rpartition("/")
        return f"{folder}{slash}.{name}.amp-{self.token}.{word}"


class Journal(NamedTuple):
    """What a change is about to do."""

    operation: str
    slug: str
    token: str
    steps: tuple[_Step, ...]
    #: Folders that the change makes, outermost first, and folders that it removes if they are empty, innermost first.
    made: tuple[str, ...]
    emptied: tuple[str, ...]

    def to_bytes(self) -> bytes:
        swaps = [{"path": one.path, "had": one.had, "new": one.has_new, "sha256": one.sha256} for one in self.steps]
        head = {"format": _JOURNAL_FORMAT, "operation": self.operation, "slug": self.slug, "token": self.token}
        return json.dumps({**head, "swaps": swaps, "made": self.made, "emptied": self.emptied}).encode()

    @classmethod
    def from_bytes(cls, content: bytes, scope: Scope) -> Journal:
        """Read a journal. Errors: `ValueError` for one that names what no install for its slug may touch."""
        document = json.loads(content)
        if document["format"] != _JOURNAL_FORMAT:
            raise ValueError("it is of another version")
        slug, token = document["slug"], document["token"]
        if not is_slug(slug) or len(token) != 8 or token.strip("0123456789abcdef"):
            raise ValueError("it was never written by this program")
        places, folders = managed_places(scope, slug, token), managed_folders(scope, slug)
        steps = tuple(
            _Step(_one_of(swap["path"], places), bool(swap["had"]), bool(swap["new"]), swap["sha256"], token)
            for swap in document["swaps"]
        )
        made = tuple(_one_of(path, folders) for path in document["made"])
        emptied = tuple(_one_of(path, folders) for path in document["emptied"])
        return cls(str(document["operation"]), slug, token, steps, made, emptied)


def managed_places(scope: Scope, slug: str, token: str) -> set[str]:
    """Return every path that a change for a pack may swap."""
    kept = f"{KEPT}/{slug}-{token}"
    return {pack_folder(slug), record_file(slug), kept, *host_files(scope, slug).values()}


def managed_folders(scope: Scope, slug: str) -> set[str]:
    """Return every folder that a change for a pack may make, or remove when it is empty."""
    folders = {PACKS, RECORDS, KEPT}
    for path in host_files(scope, slug).values():
        folders.update(parents_of(path))
    return folders


def parents_of(path: str) -> list[str]:
    """Return the folders that a path lies in, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


class Staging:
    """The right to change what is installed below a root: at most one process has it. Use it in a `with`."""

    def __init__(
        self,
        root: str,
        scope: Scope,
        *,
        wait_seconds: float = WAIT_SECONDS,
        on_step: OnStep | None = None,
    ) -> None:
        try:
            self.folder: Final = Folder(root)
        except OSError as error:
            raise _not_written(root, error) from None
        self.scope: Final = scope
        #: What was found cut off and made good, for people; empty for nothing.
        self.recovered: list[str] = []
        self._on_step = on_step
        self._lock = -1
        #: `.amp` goes when it is empty: it was made here, or by an install that is being undone.
        self._made = False
        try:
            self._acquire(wait_seconds)
            self._recover()
        except OSError as error:
            self.close()
            raise _not_written(root, error) from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the right back, and leave nothing behind that is not needed."""
        if self._lock >= 0:
            with suppress(OSError, TargetRefused):  # a lock that stays is used by the next one
                self.folder.remove_file(LOCK)
                # Read when the name is gone: until then, others may leave their mark.
                if self._made or os.pread(self._lock, len(_MADE), 0) == _MADE:
                    self._remove_packs_folder()
            os.close(self._lock)
            self._lock = -1
        self.folder.close()

    @property
    def made_packs_folder(self) -> bool:
        """Whether `.amp` was not there before this change, or one that was cut off."""
        return self._made

    def change(
        self, operation: str, slug: str, swaps: Sequence[Swap], *, token: str, emptied: Iterable[str] = ()
    ) -> None:
        """Do all swaps, in order, or none. `emptied` are folders to remove afterwards if they are empty.

        Errors: `StoreNotWritten` (a full or read-only disk, no access), `TargetRefused` (somebody changed a file
        since it was read), and everything is as it was; `ChangeUnfinished` where that could not be reached.
        """
        steps = tuple(_Step(one.path, one.before is not None, one.has_new, _digest_of(one), token) for one in swaps)
        needed = [parent for one in swaps if one.has_new for parent in parents_of(one.path)]
        made = [path for path in dict.fromkeys(needed) if path != PACKS and self.folder.status(path) is None]
        inside = sorted(set(emptied), key=lambda path: -path.count("/"))
        journal = Journal(operation, slug, token, steps, tuple(made), tuple(inside))
        try:
            self._write_journal(journal)
            for path in made:
                self._step(f"make {path}")
                self.folder.make_folder(path)
            for swap, step in zip(swaps, steps, strict=True):
                self._stage(swap, step)
            self._move_on(STAGING, SWAPPING)
            for swap, step in zip(swaps, steps, strict=True):
                self._swap(swap, step)
            for path in dict.fromkeys(step.path.rpartition("/")[0] for step in steps):
                self.folder.flush(path)
            self._step(f"rename {SWAPPING}")
            self.folder.rename(SWAPPING, DONE.rpartition("/")[2])
        except BaseException as error:
            self._undo_now(journal, error)
            if isinstance(error, OSError):
                raise _not_written(self.folder.root, error) from None
            raise
        self._complete_now(journal)

    # Going forward

    def _step(self, name: str) -> None:
        if self._on_step is not None:
            self._on_step(name)

    def _write_journal(self, journal: Journal) -> None:
        self._step("write the journal")
        self.folder.remove(_JOURNAL_DRAFT)
        self.folder.write_new(_JOURNAL_DRAFT, journal.to_bytes())
        self._move_on(_JOURNAL_DRAFT, STAGING)

    def _move_on(self, phase: str, following: str) -> None:
        self._step(f"rename {phase}")
        self.folder.rename(phase, following.rpartition("/")[2])
        self.folder.flush(PACKS)

    def _stage(self, swap: Swap, step: _Step) -> None:
        if swap.content is not None:
            self._step(f"draft {swap.path}")
            self.folder.write_new(step.new, swap.content, swap.before, swap.path)
        elif swap.fill is not None:
            self._step(f"draft {swap.path}")
            self.folder.make_folder(step.new)
            handle = self.folder.open_folder(step.new)
            try:
                self._step(f"fill {swap.path}")
                draft = Draft(handle)
                swap.fill(draft)
                draft.flush()
            finally:
                os.close(handle)

    def _swap(self, swap: Swap, step: _Step) -> None:
        folder = self.folder
        if _identity(folder.status(swap.path)) != _identity(swap.before):
            raise TargetRefused(swap.path, "it was changed by somebody else meanwhile; try again")
        if swap.before is not None:
            self._step(f"set aside {swap.path}")
            name = step.old.rpartition("/")[2]
            # A second name, where there can be one: the file is never missing.
            if not (swap.content is not None and self._link(swap.path, name)):
                folder.rename(swap.path, name)
            if _identity(folder.status(step.old)) != _identity(swap.before):
                raise TargetRefused(swap.path, "it was changed by somebody else meanwhile; try again")
        if swap.has_new:
            self._step(f"put {swap.path}")
            folder.rename(step.new, swap.path.rpartition("/")[2])

    def _link(self, path: str, name: str) -> bool:
        try:
            self.folder.at(
                path, lambda at, old: os.link(old, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            )
        except (OSError, NotImplementedError):
            return False
        return True

    # Going back, and completing

    def _undo_now(self, journal: Journal, error: BaseException) -> None:
        try:
            # Interrupted between the last rename and here, it is done.
            act = self._undo if self.folder.status(DONE) is None else self._complete
            act(journal)
        except (OSError, TargetRefused) as failure:
            raise ChangeUnfinished(self.folder.root, _reason(failure)) from error

    def _complete_now(self, journal: Journal) -> None:
        try:
            self._complete(journal)
        except (OSError, TargetRefused) as failure:
            reason = f"it is done, but what it replaced is still there: {_reason(failure)}"
            raise ChangeUnfinished(self.folder.root, reason) from None

    def _undo(self, journal: Journal) -> None:
        """Bring everything back. Whatever is done already is not done again."""
        folder = self.folder
        if folder.status(SWAPPING) is not None:
            for step in reversed(journal.steps):
                self._undo_swap(step)
        for step in journal.steps:
            self._step(f"discard {step.new}")
            with suppress(TargetRefused):  # no draft was ever written where a link stands on the way
                folder.remove(step.new)
        for path in reversed(journal.made):
            self._step(f"unmake {path}")
            folder.remove_empty(path)
        for phase in (_JOURNAL_DRAFT, STAGING, SWAPPING):
            self._step(f"end {phase}")
            folder.remove(phase)

    def _undo_swap(self, step: _Step) -> None:
        folder = self.folder
        old, now = folder.status(step.old), folder.status(step.path)
        name = step.path.rpartition("/")[2]
        self._step(f"bring back {step.path}")
        if old is not None and now is None:
            folder.rename(step.old, name)
        elif old is not None and now is not None:
            if os.path.samestat(old, now):
                folder.remove_file(step.old)  # one file with two names
            elif stat.S_ISDIR(old.st_mode):
                folder.remove(step.path)
                self._step(f"put back {step.path}")
                folder.rename(step.old, name)
            elif self._is_ours(step):
                folder.rename(step.old, name)
            else:
                self._note(f"{step.path} was edited since then and stays; what it held before is in {step.old}")
        elif not step.had and step.has_new and now is not None and folder.status(step.new) is None:
            if step.sha256 is None or self._is_ours(step):
                folder.remove(step.path)
            else:
                self._note(f"{step.path} was edited since then and stays")

    def _is_ours(self, step: _Step) -> bool:
        try:
            content = self.folder.read(step.path, 1 << 30)
        except TargetRefused:
            return False
        return content is not None and _sha256(content) == step.sha256

    def _complete(self, journal: Journal) -> None:
        """Remove what was replaced."""
        self.folder.flush(PACKS)
        for step in journal.steps:
            self._step(f"discard {step.old}")
            self.folder.remove(step.old)
        for path in journal.emptied:
            if path == PACKS:
                self._made = True  # when the lock is out of it
            else:
                self._step(f"empty {path}")
                self.folder.remove_empty(path)
        self._step("end")
        self.folder.remove(DONE)

    def _recover(self) -> None:
        for phase, act, word in (
            (DONE, self._complete, "completed"),
            (SWAPPING, self._undo, "undone"),
            (STAGING, self._undo, "undone"),
        ):
            content = self.folder.read(phase, 1 << 20)
            if content is None:
                continue
            try:
                journal = Journal.from_bytes(content, self.scope)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                reason = f"{phase} cannot be read; look at it and remove it"
                raise ChangeUnfinished(self.folder.root, reason) from None
            try:
                act(journal)
            except (OSError, TargetRefused) as failure:
                raise ChangeUnfinished(self.folder.root, _reason(failure)) from None
            self._note(f"an {journal.operation} of {journal.slug} was cut off, and is {word} now")
        self.folder.remove(_JOURNAL_DRAFT)

    def _note(self, text: str) -> None:
        self.recovered.append(text)

    # The lock

    def _remove_packs_folder(self) -> None:
        """Remove `.amp` if it is empty; if another process took its next lock meanwhile, let that one do it."""
        while not self.folder.remove_empty(PACKS):
            try:
                handle = self.folder.at(
                    LOCK,
                    lambda at, name: os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at),
                )
            except FileNotFoundError:
                if self.folder.remove_empty(PACKS) or self.folder.status(LOCK) is None:
                    return  # gone, or there is more in it than a lock
                continue
            try:
                os.pwrite(handle, _MADE, 0)
                at_path = self.folder.status(LOCK)
                if at_path is not None and os.path.samestat(at_path, os.fstat(handle)):
                    return  # whoever holds it reads the mark after it has removed the name
            finally:
                os.close(handle)

    def _acquire(self, wait_seconds: float) -> None:
        until = time.monotonic() + wait_seconds
        made = False
        while True:
            try:
                self.folder.make_folder(PACKS)
                made = True
            except FileExistsError:
                pass
            try:
                handle = self.folder.at(
                    LOCK,
                    lambda at, name: os.open(
                        name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=at
                    ),
                )
            except FileNotFoundError:
                continue  # another process was done, and took `.amp` with it
            except OSError as error:
                if made:
                    self.folder.remove_empty(PACKS)
                if error.errno in (errno.ELOOP, errno.EISDIR):
                    raise TargetRefused(LOCK, "it is no file of ours; remove it") from None
                raise
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise TargetRefused(LOCK, "it is no file of ours; remove it")
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                at_path = self.folder.status(LOCK)
                if at_path is not None and os.path.samestat(at_path, os.fstat(handle)):
                    self._lock, handle = handle, -1
                    self._made = made or os.pread(self._lock, len(_MADE), 0) == _MADE
                    if made:
                        write_all(self._lock, _MADE)
                    return
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreBusy(f"{self.folder.root}/{PACKS}", "another install or uninstall runs there") from None
                time.sleep(0.02)
            finally:
                if handle >= 0:
                    os.close(handle)


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Turn what the system says while something below a root is read into `MissingFile`."""
    try:
        yield
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else ""
        reason = f"{name!a} cannot be read" if name and name != root else "it cannot be read"
        raise MissingFile(root, f"{reason} ({error.strerror})") from None


def is_cut_off(folder: Folder) -> bool:
    """Return whether a change below a root is going on, or was cut off."""
    return any(folder.status(phase) is not None for phase in (STAGING, SWAPPING, DONE, LOCK))


def make_token() -> str:
    """Return what tells the drafts of one change from anybody's files."""
    return os.urandom(4).hex()


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


def _identity(status: os.stat_result | None) -> tuple[int, ...] | None:
    if status is None:
        return None
    size, changed = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode), size, changed


def _digest_of(swap: Swap) -> str | None:
    return None if swap.content is None else _sha256(swap.content)


def _sha256(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()


def _why_no_folder(at: int, name: str) -> str:
    try:
        linked = stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        linked = False
    return "it is a link; put the folder itself in its place" if linked else "it is no folder; move it away"


def _one_of(path: Any, allowed: set[str]) -> str:
    if path not in allowed:
        raise ValueError("it names what is no business of an install")
    return str(path)


def _reason(failure: OSError | MeleteError) -> str:
    return failure.strerror or "it cannot be written" if isinstance(failure, OSError) else str(failure).rstrip(".")


def _not_written(root: str, error: OSError) -> StoreNotWritten:
    return StoreNotWritten(root, error.strerror or "it cannot be written")
