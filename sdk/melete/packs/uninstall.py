"""Taking an installed pack away: its block out of the agent's own file, its files, its record, all or nothing.

    done = uninstall(locate("my-pack"), "my-pack")

Right after an install, everything is as it was before, to the byte: a file that the install made is gone, folders too
if nothing else is in them. Text that was written around the block since then stays. What was edited in the block or
in the pack's files is kept below `.amp/.kept/`, and said. Nothing outside the project or home is touched, and in it
only what follows from the pack's name.

Source: AMP v0.4, Part 7; decisions, AMP packs, Install.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from melete.packs.block import LOCAL, Block, compute_body, find_block, is_blank, remove_block
from melete.packs.errors import NotInstalled, PackRefused, TargetRefused
from melete.packs.folder import LARGEST_HOST, Draft, Folder, reading
from melete.packs.hosts import KEPT, Scope, host_files, memory_path, pack_folder, record_file
from melete.packs.inspection import (
    Installed,
    Place,
    Record,
    compare_files,
    find_installed,
    hash_folder,
    is_unfinished,
    load_records,
)
from melete.packs.journal import Swap
from melete.packs.manifest import parse_slug
from melete.packs.staging import WAIT_SECONDS, OnStep, Staging, make_token


class Removal(NamedTuple):
    """What an uninstall did."""

    slug: str
    place: Place
    creator: str | None
    version: str | None
    #: The files that a block was taken out of, or that were removed with it.
    host_files: tuple[str, ...]
    files: int
    #: Edited since the install, and kept in `kept_in`.
    kept: tuple[str, ...]
    kept_in: str | None
    warnings: tuple[str, ...]


def uninstall(place: Place, slug: str, *, wait_seconds: float = WAIT_SECONDS, on_step: OnStep | None = None) -> Removal:
    """Remove a pack. `on_step` is called with the name of each step that changes something.

    Errors: `InvalidInput` for what is no name; `NotInstalled`; `BlockDamaged` and `TargetRefused` for a host file that
    cannot be put right; `StoreBusy`, `StoreNotWritten`, `MissingFile`; then everything is as it was.
    `ChangeUnfinished` when it is not, yet.
    """
    parse_slug(slug)
    if not is_unfinished(place):
        _find(place, slug, [])  # what is not there is said before anything is made
    token = make_token()
    with Staging(place.root, place.scope, wait_seconds=wait_seconds, on_step=on_step) as staging:
        installed = _find(place, slug, staging.recovered)
        with reading(place.root):
            plan = _Plan(staging.folder, installed, token)
        staging.change("uninstall", slug, plan.swaps, token=token, emptied=plan.emptied)
        return plan.to_removal(staging.recovered)


def _find(place: Place, slug: str, recovered: Iterable[str]) -> Installed:
    installed = find_installed(place, slug)
    if installed is None:
        raise NotInstalled(slug, place.root, "".join(f"; {note}" for note in recovered))
    if installed.is_legacy:
        hint = f"; the one in {installed.folder} was installed by another program, which can remove it"
        raise NotInstalled(slug, place.root, hint)
    return installed


class Edits:
    """What a person edited in an installed pack: copied to a folder of its own, before it is replaced or removed."""

    def __init__(self, folder: Folder, slug: str, token: str) -> None:
        self.path = f"{KEPT}/{slug}-{token}"
        self.files: list[str] = []
        self.warnings: list[str] = []
        self._folder = folder
        self._slug = slug
        self._copies: dict[str, Callable[[], Iterable[bytes]]] = {}

    def __bool__(self) -> bool:
        return bool(self._copies)

    def note_block(self, host: str, body: bytes, record: Record) -> None:
        """Keep what stood in a block, if that is not what was put there."""
        if not record.has_block(body):
            self._copies[f"block-of-{host.rpartition('/')[2].lstrip('.')}"] = lambda: [body]
            self.warnings.append(f"the block in {host} was edited since it was installed; it is kept in {self.path}")

    def note_unrecorded(self, host: str, body: bytes) -> None:
        """Keep what stood in a block of which nobody knows what was put there, unless it follows from the pack."""
        agents = self._folder.read(f"{pack_folder(self._slug)}/agents.md", LARGEST_HOST)
        if agents is not None:
            with suppress(PackRefused):
                if body in [compute_body(agents, memory_path(scope, self._slug)) for scope in Scope]:
                    return
        self._copies[f"block-of-{host.replace('/', '-').lstrip('.')}"] = lambda: [body]
        self.warnings.append(f"what the block in {host} held at first is not known; {self.path} keeps a copy of it")

    def note_files(self, found: Mapping[str, str], record: Record, wanted: Mapping[str, str]) -> None:
        """Keep the files that are not as they were installed, nor as they shall become."""
        for one in compare_files(record.files, found):
            digest = found.get(one.path)
            if digest and digest != wanted.get(one.path):
                self.files.append(one.path)
                source = f"{pack_folder(self._slug)}/{one.path}"
                self._copies[f"files/{one.path}"] = lambda source=source: self._folder.read_parts(source)  # type: ignore[misc]
        if self.files:
            count = f"{len(self.files)} installed file{'s' if len(self.files) > 1 else ''}"
            self.warnings.append(f"{count} had been edited or added since the install, and {self.path} keeps a copy")

    def to_swaps(self) -> list[Swap]:
        return [Swap(self.path, None, fill=self._fill)] if self else []

    def _fill(self, draft: Draft) -> None:
        for path, read in self._copies.items():
            draft.write(path, read())


def refuse_stranger(block: Block, path: str, record: Record | None, *, known: bool) -> None:
    """Refuse a block that no install of ours put there. `known` is whether there was one that left no whole record.

    Errors: `TargetRefused`.
    """
    if block.creator != (LOCAL if record is None else record.creator):
        reason = "it holds a block of this name by another creator, whose installer can remove it"
    elif record is None and not known:
        reason = "it holds a block of this name that no install wrote down; take it out by hand"
    else:
        return
    raise TargetRefused(path, reason)


def take_block_out(
    folder: Folder, path: str, slug: str, record: Record | None, others: Mapping[str, Record]
) -> tuple[Swap, bytes] | None:
    """Return the swap that takes a pack's block out of a file, and what stood in it; None for no block.

    A file that an install made goes when nothing is left of it. `others` are the records of the packs that stay.
    Errors: `BlockDamaged`; `TargetRefused`.
    """
    found = folder.read_host(path)
    if found is None:
        return None
    content, status = found
    block = find_block(content, slug, path)
    if block is None:
        return None
    refuse_stranger(block, path, record, known=record is None)
    left = remove_block(
        content,
        slug,
        unterminated=record is not None and record.unterminated,
        inherited=record is not None and record.inherited_unterminated,
        others=[other for other, its in others.items() if its.host_file == path],
        file=path,
    )
    gone = record is not None and record.host_made and is_blank(left)
    return Swap(path, status, content=None if gone else left), block.body


def take_blocks_out(
    folder: Folder, paths: Iterable[str], slug: str, others: Mapping[str, Record], warnings: list[str], edits: Edits
) -> list[Swap]:
    """Return the swaps for a pack of which nobody wrote down what it was installed for.

    A file that cannot be looked into gives a warning, and so does a block of another creator. What is taken out is
    kept. Errors: `BlockDamaged`.
    """
    swaps = []
    for path in paths:
        try:
            taken = take_block_out(folder, path, slug, None, others)
        except TargetRefused as error:
            warnings.append(f"{path} was left as it is: {error.reason}")
            continue
        if taken is not None:
            swaps.append(taken[0])
            edits.note_unrecorded(path, taken[1])
    return swaps


class _Plan:
    """What an uninstall will change. Nothing is written here."""

    def __init__(self, folder: Folder, installed: Installed, token: str) -> None:
        self._folder = folder
        self._installed = installed
        self._slug, self._place = installed.slug, installed.place
        self._edits = Edits(folder, self._slug, token)
        self._warnings: list[str] = []
        self._files = 0
        hosts = self._plan_hosts()
        self._host_files = tuple(swap.path for swap in hosts)
        rest = [*self._plan_tree(), *self._plan_record()]
        self.swaps = [*self._edits.to_swaps(), *hosts, *rest]
        self.emptied = () if installed.record is None else installed.record.folders

    def to_removal(self, recovered: Iterable[str]) -> Removal:
        record = self._installed.record
        return Removal(
            slug=self._slug,
            place=self._place,
            creator=None if record is None else record.creator,
            version=None if record is None else record.version,
            host_files=self._host_files,
            files=self._files,
            kept=tuple(self._edits.files),
            kept_in=self._edits.path if self._edits else None,
            warnings=(*recovered, *self._warnings, *self._edits.warnings),
        )

    def _plan_hosts(self) -> list[Swap]:
        record, scope = self._installed.record, self._place.scope
        others = load_records(self._folder, scope)
        others.pop(self._slug, None)
        if record is None:
            self._warnings.append(f"{self._installed.fault}; every agent's file was looked into")
            paths = host_files(scope, self._slug).values()
            return take_blocks_out(self._folder, paths, self._slug, others, self._warnings, self._edits)
        taken = take_block_out(self._folder, record.host_file, self._slug, record, others)
        if taken is None:
            self._warnings.append(f"{record.host_file} held no block of the pack any more")
            return []
        swap, body = taken
        self._edits.note_block(record.host_file, body, record)
        return [swap]

    def _plan_tree(self) -> list[Swap]:
        path = pack_folder(self._slug)
        status = self._folder.status(path)
        if status is None:
            self._warnings.append(f"{path} was missing already")
            return []
        if not stat.S_ISDIR(status.st_mode):
            raise TargetRefused(path, "it is a link or no folder; remove it first")
        found = hash_folder(self._folder, path)
        self._files = len(found)
        if self._installed.record is not None:
            self._edits.note_files(found, self._installed.record, {})
        return [Swap(path, status)]

    def _plan_record(self) -> list[Swap]:
        path = record_file(self._slug)
        status = self._folder.status(path)
        return [] if status is None else [Swap(path, status)]
