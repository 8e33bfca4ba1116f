"""Installing a pack: its files into `.amp/<slug>/`, a managed block into the agent's own file, all or nothing.

    target = find_target(Agent.CLAUDE_CODE, Scope.PROJECT)
    done = install("my-pack", target, public_keys=[load_public_key("signer.pub")])
    done.changes.added, done.warnings

Before anything is written, the pack passes the five gates, its signature is checked, and all its text is read for
credentials, hidden text and amp markers. (The specification's own tool does not read content; this one does. It does
not see instructions that are harmless each and harmful together.) What was read is what is installed: a file that
changes in between is refused.

Installing again replaces: files that went away go, the block stays in its place, or moves with the agent. What a
person edited in the meantime, in the pack's files or in its block, is kept below `.amp/.kept/`, and said.

Source: AMP v0.4, Part 7; decisions, AMP packs, Install.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from melete.packs.block import LOCAL, compute_body, find_block, is_unterminated, put_block
from melete.packs.errors import ContentRefused, PackInsideTarget, SignatureRefused, TargetRefused
from melete.packs.folder import LARGEST_HOST, READ_AT_ONCE, Draft, Folder, reading
from melete.packs.hosts import (
    PACKS,
    RECORDS,
    Target,
    host_files,
    is_reserved,
    is_within,
    memory_path,
    pack_folder,
    record_file,
)
from melete.packs.inspection import Record, compare_files, hash_folder, load_record, load_records
from melete.packs.journal import Swap, parents_of
from melete.packs.staging import WAIT_SECONDS, OnStep, Staging, is_cut_off, make_token
from melete.packs.uninstall import Edits, refuse_stranger, take_block_out, take_blocks_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.findings import Finding
    from melete.packs.keys import PublicKey
    from melete.packs.manifest import Manifest
    from melete.packs.signing import Verdict
    from melete.packs.tree import PackTree
    from melete.packs.trust import TrustedKey


class CheckedPack(NamedTuple):
    """A pack that may be installed, as it was when it was checked."""

    tree: PackTree
    manifest: Manifest
    #: The SHA-256 of every file, the manifest too.
    hashes: Mapping[str, str]
    verdict: Verdict
    #: What stands between the markers of its block.
    body: bytes
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]

    @property
    def version(self) -> str | None:
        return None if self.manifest.version is None else str(self.manifest.version)

    @property
    def signature(self) -> str:
        """held, unknown or unsigned."""
        return self.verdict.answer if self.verdict.signed else "unsigned"


class Changes(NamedTuple):
    """How an install differs from the one before. `before` is that one's version; files are paths in the pack."""

    before: str | None
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    #: Edited since the install before, and kept.
    kept: tuple[str, ...]
    #: Who signed before and who does now, if that is not the same.
    signer_change: str
    #: The file that the block is taken out of, when the agent is another one.
    moved_from: str | None


class Installation(NamedTuple):
    """What an install did, or would do. `changes` is None for the first one."""

    target: Target
    pack: CheckedPack
    host_file: str
    changes: Changes | None
    kept_in: str | None
    warnings: tuple[str, ...]
    dry_run: bool

    @property
    def slug(self) -> str:
        return self.pack.manifest.name


def install(
    source: str | os.PathLike[str],
    target: Target,
    *,
    public_keys: Sequence[PublicKey] = (),
    trusted: Iterable[TrustedKey] = (),
    require_signature: bool = False,
    strict: bool = False,
    dry_run: bool = False,
    wait_seconds: float = WAIT_SECONDS,
    on_step: OnStep | None = None,
) -> Installation:
    """Install the pack in a folder. `on_step` is called with the name of each step that changes something.

    A signature that fails is refused; none, or one by a key that is not known, is a warning, and refused with
    `require_signature`. With `strict`, so is everything that the scan warns of. With `dry_run` nothing is touched.

    Errors: those of `check_pack`; `TargetRefused`, `BlockDamaged`; `StoreBusy`, `StoreNotWritten`, `MissingFile`; then
    everything is as it was. `ChangeUnfinished` when it is not, yet.
    """
    _check_apart(os.fspath(source), target)
    pack = check_pack(
        source, target, public_keys=public_keys, trusted=trusted, require_signature=require_signature, strict=strict
    )
    token = make_token()
    if dry_run:
        with reading(target.root):
            folder = Folder(target.root)
            try:
                notes = ["another change goes on there, or was cut off; it comes first"] if is_cut_off(folder) else []
                return _Plan(folder, target, pack, token, made_packs=False).to_installation(dry_run=True, notes=notes)
            finally:
                folder.close()
    with Staging(target.root, target.scope, wait_seconds=wait_seconds, on_step=on_step) as staging:
        with reading(target.root):
            plan = _Plan(staging.folder, target, pack, token, made_packs=staging.made_packs_folder)
        staging.change("install", plan.slug, plan.swaps, token=token, emptied=plan.emptied)
        return plan.to_installation(notes=staging.recovered)


def check_pack(
    source: str | os.PathLike[str],
    target: Target,
    *,
    public_keys: Sequence[PublicKey] = (),
    trusted: Iterable[TrustedKey] = (),
    require_signature: bool = False,
    strict: bool = False,
) -> CheckedPack:
    """Return a pack that may be installed for a target.

    Errors: those of `load_tree` and `load_manifest`; `SignatureRefused`; `ContentRefused` with every finding;
    `PackRefused` for a name that is reserved, or an agents.md with a marker; `MissingFile`.
    """
    from melete.packs.manifest import AGENTS_FILE, MANIFEST, check_manifest, explain_nothing_read, load_manifest
    from melete.packs.scan import scan_tree
    from melete.packs.signing import verify_pack
    from melete.packs.tree import load_tree

    tree = load_tree(source)
    manifest = load_manifest(tree)
    if is_reserved(target.scope, manifest.name):
        from melete.packs.errors import PackRefused

        detail = f"the folder {PACKS}/{manifest.name} of a home is not a pack's; install it in a project, or rename it"
        raise PackRefused("reserved-name", MANIFEST, detail)
    hashes = {file.path: tree.sha256(file.path) for file in tree.files}
    verdict = verify_pack(tree, public_keys, trusted=trusted)
    warnings = list(_judge_signature(verdict, required=require_signature))
    findings = tuple(scan_tree(tree, manifest))
    refused = tuple(finding for finding in findings if strict or finding.is_error)
    if refused:
        raise ContentRefused(refused)
    body = compute_body(tree.read_bytes(AGENTS_FILE), memory_path(target.scope, manifest.name))
    faults = check_manifest(manifest, strict_fields=False)
    if verdict.signed:  # else there is nothing that it could warn of
        warnings += verdict.warnings
        faults = [one for one in faults if one.rule not in ("manifest-title", "manifest-agents")]  # said by it
    warnings += (f"{one.place}: {one.message}; {one.remedy}" for one in faults)
    if not _may_hold_primitives(tree, manifest):
        warnings.append(explain_nothing_read(manifest))
    return CheckedPack(tree, manifest, hashes, verdict, body, findings, tuple(warnings))


def _judge_signature(verdict: Verdict, *, required: bool) -> Iterator[str]:
    if verdict.signed and verdict.answer == "broken":
        raise SignatureRefused(verdict.reason)
    if verdict.answer == "held":
        return
    if required:
        raise SignatureRefused(f"a signature by a known key is required, and {verdict.reason}")
    yield f"not verified: {verdict.reason}"


def _may_hold_primitives(tree: PackTree, manifest: Manifest) -> bool:
    """Return whether any capability file has a line that begins a primitive in the format that the manifest says."""
    from melete.packs.manifest import LARGEST, MEMORY, V03

    is_old = manifest.primitive_format == V03
    for name in manifest.capability_files:
        with tree.open(MEMORY + name) as file:
            text = b"\n" + file.read(LARGEST)
        if b"\n[" in text if not is_old else _has_old_head(text):
            return True
    return not manifest.capability_files


def _has_old_head(text: bytes) -> bool:
    import re

    return re.search(rb"\n[ \t]*[\"']?type[\"']?[ \t]*:(?![ \t]*[\"']?cluster)", text) is not None


def _check_apart(source: str, target: Target) -> None:
    """Refuse a pack that holds the place where it would go, or lies in it."""
    host_folder = os.path.dirname(f"{target.root}/{target.host_file('x')}")  # noqa: PTH120 - no pathlib here
    packs = f"{target.root}/{PACKS}"
    if is_within(target.root, source) or is_within(host_folder, source) or is_within(source, packs):
        raise PackInsideTarget(source, packs)


# The plan


class _Plan:
    """What an install will change, and what there is to say about it. Nothing is written here."""

    def __init__(self, folder: Folder, target: Target, pack: CheckedPack, token: str, *, made_packs: bool) -> None:
        self.slug = pack.manifest.name
        #: Folders that were made for another agent's file.
        self.emptied: tuple[str, ...] = ()
        self._folder, self._target, self._pack = folder, target, pack
        self._host = target.host_file(self.slug)
        self._edits = Edits(folder, self.slug, token)
        self._warnings: list[str] = []
        found = load_record(folder, target.scope, self.slug)
        self._before = found if isinstance(found, Record) else None
        #: Something is written down about an install before.
        self._known = found is not None
        if isinstance(found, str):
            self._warnings.append(f"{record_file(self.slug)} is replaced: {found}")
        self._others = load_records(folder, target.scope)
        self._others.pop(self.slug, None)
        self._installed: dict[str, str] = {}
        tree = self._plan_tree()
        host, facts = self._plan_host()
        moved = self._plan_other_hosts()
        self._moved_from = moved[0].path if moved else None
        record = self._make_record(facts, self._list_made(made_packs))
        status = folder.status(record_file(self.slug))
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise TargetRefused(record_file(self.slug), "it is a link or no file; remove it")
        record_swap = Swap(record_file(self.slug), status, content=record.to_bytes())
        # The host file last: it never points to what is not there.
        self.swaps = [*self._edits.to_swaps(), tree, record_swap, *host, *moved]
        self._changes = self._find_changes()
        if self._changes is not None and self._changes.signer_change:
            self._warnings.insert(0, f"THE SIGNER CHANGED: {self._changes.signer_change}")

    def to_installation(self, *, dry_run: bool = False, notes: Iterable[str] = ()) -> Installation:
        return Installation(
            target=self._target,
            pack=self._pack,
            host_file=self._host,
            changes=self._changes,
            kept_in=self._edits.path if self._edits else None,
            warnings=(*notes, *self._warnings, *self._pack.warnings, *self._edits.warnings),
            dry_run=dry_run,
        )

    # The files

    def _plan_tree(self) -> Swap:
        path = pack_folder(self.slug)
        status = self._folder.status(path)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise TargetRefused(path, "it is a link or no folder; remove it")
        if status is not None and not self._known:
            raise TargetRefused(path, "no install that was written down put it there; uninstall it, or move it away")
        if status is not None:
            self._installed = hash_folder(self._folder, path)
        if self._before is not None:
            self._edits.note_files(self._installed, self._before, self._pack.hashes)
        return Swap(path, status, fill=self._fill)

    def _fill(self, draft: Draft) -> None:
        for file in self._pack.tree.files:
            draft.write(file.path, self._read_checked(file.path))

    def _read_checked(self, path: str) -> Iterator[bytes]:
        """Yield what a file of the pack holds, and refuse it at its end if that is not what was checked."""
        from hashlib import sha256

        digest = sha256()
        with self._pack.tree.open(path) as file:
            while part := file.read(READ_AT_ONCE):
                digest.update(part)
                yield part
        if digest.hexdigest() != self._pack.hashes[path]:
            from melete.packs.errors import PackRefused

            raise PackRefused("changed-while-read", path, "it changed while the pack was installed; try again")

    # The host file

    def _plan_host(self) -> tuple[list[Swap], _HostFacts]:
        """Return the swap of the agent's own file, if it changes, and what the record has to know of it."""
        found = self._folder.read_host(self._host)
        content, status = (b"", None) if found is None else found
        block = find_block(content, self.slug, self._host)
        before = self._before if self._before is not None and self._before.host_file == self._host else None
        if block is not None:
            refuse_stranger(block, self._host, before, known=self._known and self._before is None)
            if before is None:
                self._edits.note_unrecorded(self._host, block.body)
        if block is not None and before is not None:
            facts = _HostFacts(before.host_made, before.unterminated, before.inherited_unterminated)
            self._edits.note_block(self._host, block.body, before)
        else:
            here = [other for other in self._others.values() if other.host_file == self._host]
            made_before = any(other.host_made for other in here) or (before is not None and before.host_made)
            facts = _HostFacts(
                made=status is None or made_before,
                unterminated=block is None and is_unterminated(content),
                inherited=any(other.unterminated or other.inherited_unterminated for other in here),
            )
        new = put_block(content, self.slug, self._pack.body, file=self._host)
        if len(new) > LARGEST_HOST:
            reason = f"with the block it would have more than {LARGEST_HOST} bytes; shorten it, or the pack's agents.md"
            raise TargetRefused(self._host, reason)
        return [] if new == content else [Swap(self._host, status, content=new)], facts

    def _plan_other_hosts(self) -> list[Swap]:
        """Return the swaps that take the block out of the file of another agent."""
        if self._before is None:
            if not self._known:
                return []
            # Something was installed, and nobody knows for which agent.
            paths = [path for path in host_files(self._target.scope, self.slug).values() if path != self._host]
            return take_blocks_out(self._folder, paths, self.slug, self._others, self._warnings, self._edits)
        old = self._before.host_file
        if old == self._host:
            return []
        kept = (PACKS, RECORDS, *parents_of(self._host))
        self.emptied = tuple(path for path in self._before.folders if path not in kept)
        taken = take_block_out(self._folder, old, self.slug, self._before, self._others)
        if taken is None:
            return []
        swap, body = taken
        self._edits.note_block(old, body, self._before)
        return [swap]

    # The record

    def _list_made(self, made_packs: bool) -> tuple[str, ...]:
        """Return the folders that go with the last pack in them: made now, or by an install before."""
        needed = dict.fromkeys([*parents_of(record_file(self.slug)), *parents_of(self._host)])
        made = {path for path in needed if path != PACKS and self._folder.status(path) is None}
        if made_packs:
            made.add(PACKS)
        for record in (*self._others.values(), *([] if self._before is None else [self._before])):
            made.update(record.folders)
        return tuple(path for path in needed if path in made)

    def _make_record(self, facts: _HostFacts, made: tuple[str, ...]) -> Record:
        pack, verdict = self._pack, self._pack.verdict
        return Record(
            slug=self.slug,
            creator=LOCAL,
            title=pack.manifest.title,
            version=pack.version,
            digest=verdict.digest,
            agent=self._target.agent,
            scope=self._target.scope,
            installed_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            signature=pack.signature,
            key_id=verdict.signer,
            signer=verdict.signer_name,
            block_sha256=_sha256(pack.body),
            files=pack.hashes,
            host_made=facts.made,
            unterminated=facts.unterminated,
            inherited_unterminated=facts.inherited,
            folders=made,
        )

    # What changed

    def _find_changes(self) -> Changes | None:
        if not self._known:
            return None
        before = self._installed if self._before is None else self._before.files
        differences = compare_files(before, self._pack.hashes)

        def paths(kind: str) -> tuple[str, ...]:
            return tuple(one.path for one in differences if one.kind == kind)

        return Changes(
            before=None if self._before is None else self._before.version,
            added=paths("added"),
            removed=paths("missing"),
            changed=paths("changed"),
            kept=tuple(self._edits.files),
            signer_change=self._find_signer_change(),
            moved_from=self._moved_from,
        )

    def _find_signer_change(self) -> str:
        if self._before is None or self._before.signature == "unsigned":
            return ""
        then = _name_signer(self._before.key_id, self._before.signer)
        if self._pack.signature == "unsigned":
            return f"it was signed by {then} before, and is not signed now"
        now = self._pack.verdict.signer
        if self._before.key_id == now:
            return ""
        return f"it was signed by {then} before, and by {_name_signer(now, self._pack.verdict.signer_name)} now"


class _HostFacts(NamedTuple):
    """What an uninstall has to know of the host file; see `Record`."""

    made: bool
    unterminated: bool
    inherited: bool


def _name_signer(key_id: str | None, name: str | None) -> str:
    key = "a key that is not known" if key_id is None else f"key {key_id}"
    return f"{key} of {name}" if name else key


def _sha256(content: bytes) -> str:
    from hashlib import sha256

    return sha256(content).hexdigest()
