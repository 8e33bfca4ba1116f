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
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from melete.errors import MeleteError, StoreBusy, StoreNotWritten
from melete.packs.errors import ChangeUnfinished, TargetRefused
from melete.packs.folder import Draft, Folder, write_all
from melete.packs.hosts import PACKS, Scope
from melete.packs.journal import Journal, Step, Swap, parents_of

#: Called with the name of each step before it is taken.
OnStep = Callable[[str], object]

LOCK: Final = ".amp/.lock"
STAGING, SWAPPING, DONE = (f".amp/.journal-{phase}" for phase in ("staging", "swapping", "done"))
_JOURNAL_DRAFT: Final = ".amp/.journal-draft"
#: How long to wait for another process.
WAIT_SECONDS: Final = 10.0
#: The lock holds it while `.amp` was made by whoever holds, or held, it.
_MADE: Final = b"made\n"


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
        #: `.amp` goes when it is empty: it was made here, or by an install that is being undone, or was found empty.
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
        steps = tuple(Step(one.path, one.before is not None, one.has_new, _digest_of(one), token) for one in swaps)
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

    def _stage(self, swap: Swap, step: Step) -> None:
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

    def _swap(self, swap: Swap, step: Step) -> None:
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

    def _undo_swap(self, step: Step) -> None:
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

    def _is_ours(self, step: Step) -> bool:
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
                    # One that was killed right after it made `.amp`, or before it removed it, left it empty.
                    made = made or [name for name, _ in self.folder.list_names(PACKS)] == [LOCK.rpartition("/")[2]]
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


def is_cut_off(folder: Folder) -> bool:
    """Return whether a change below a root is going on, or was cut off."""
    return any(folder.status(phase) is not None for phase in (STAGING, SWAPPING, DONE, LOCK))


def make_token() -> str:
    """Return what tells the drafts of one change from anybody's files."""
    return os.urandom(4).hex()


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


def _reason(failure: OSError | MeleteError) -> str:
    return failure.strerror or "it cannot be written" if isinstance(failure, OSError) else str(failure).rstrip(".")


def _not_written(root: str, error: OSError) -> StoreNotWritten:
    return StoreNotWritten(root, error.strerror or "it cannot be written")
