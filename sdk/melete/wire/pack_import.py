"""The units of a pack as memories, each with where it came from.

    imported = import_pack(store, "house-ways", public_keys=[load_public_key("ada.pub")])
    imported.added      # ids of new memories
    imported.gone       # memories of units that this version no longer holds; they stay until they are forgotten

A claim becomes a semantic memory, everything else a procedural one, unless the manifest's `memories` says otherwise
for a demonstration (see `melete.wire.packing`). Metadata and tags say where it came from (`melete.wire.provenance`):
what a pack says of that itself is not believed.

**Who signed it.** A pack that nobody who is known signed is refused, unless told; then its memories are marked as
unverified. One whose signature is broken, or by a key that was revoked, is refused in any case. What is imported is
what was verified, to the byte. Refused as well are credentials, an installer's markers, text that cannot be seen
(unless told) and whatever breaks the grammar: all of the pack, and nothing is written.

**Once and again.** A second import adds nothing. A new version adds the units that are new, and names the memories of
earlier ones that it does not hold any more; a unit that changed is a new one. A memory that was imported unverified is
replaced once the same unit comes from a pack that is verified, and never the other way round. All of it is one
transaction; a hook that has to approve is asked inside of it, unit by unit. An expiry that the pack names is kept, and
what has ended is not imported.

Source: AMP v0.4, Parts 3, 6, 7 and 9.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select

from melete.packs.credentials import find_credentials, show_path
from melete.packs.errors import ContentRefused, PackRefused, SignatureRefused
from melete.packs.findings import Finding, Severity
from melete.packs.grammar import Cluster, Unit, parse_cluster
from melete.packs.hidden import HIDDEN_RULE, find_hidden_characters
from melete.packs.keys import PublicKey
from melete.packs.legacy import parse_cluster_v3
from melete.packs.manifest import MEMORY, V03, Manifest, load_manifest
from melete.packs.scan import scan_content
from melete.packs.signing import Verdict, compute_payload, verify_pack
from melete.packs.tree import MANIFEST, PackTree, load_tree
from melete.packs.trust import TrustedKey
from melete.wire.envelope import (
    DEFAULT_AGENT,
    MAX_TAGS,
    Envelope,
    MemoryType,
    Operation,
    is_valid_memory_id,
    verify_agent_id,
    verify_tags,
)
from melete.wire.errors import EnvelopeError
from melete.wire.provenance import (
    MEMBER,
    Provenance,
    all_facets,
    drop_reserved_tags,
    find_cited,
    is_reserved_tag,
    read_provenance,
)
from melete.wire.store import MemoryStore
from melete.wire.tables import AnyRow, memories, pending, scopes
from melete.wire.values import MemoryState

_TYPES: Final = {"claim": MemoryType.SEMANTIC}
_PACKED: Final = (MemoryType.SEMANTIC, MemoryType.PROCEDURAL)
#: Times in a manifest: seconds since 1970 that every JSON reader keeps.
_LATEST: Final = 2**53 - 1
_MOST_WARNINGS: Final = 100


class Gone(NamedTuple):
    """A memory of an earlier version whose unit is no longer in the pack; `unit` is what it was called then."""

    id: str
    unit: str
    signer: str | None


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import. All ids are of memories.

    `waiting` are in the queue for approval; `replaced` were unverified before, and have a new id; `known` were there
    already. `rejected`, `ended` and `repeated` are units, which a hook rejected, whose time is over, and that stand in
    the pack twice. `gone` are memories that stay, though the pack no longer holds them.
    """

    name: str
    version: str | None
    digest: str
    signer: str | None
    signer_name: str | None
    added: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    gone: tuple[Gone, ...] = ()
    warnings: tuple[str, ...] = ()


def import_pack(
    store: MemoryStore,
    folder: str | os.PathLike[str],
    *,
    public_keys: Sequence[PublicKey] = (),
    trusted: Iterable[TrustedKey] = (),
    agent_id: str | None = None,
    writer: str | None = None,
    allow_unverified: bool = False,
    allow_hidden: bool = False,
) -> Imported:
    """Write the units of a pack as memories of an agent: what `read_pack` gives, at once.

    Errors: those of `read_pack` and `ReadPack.write`.
    """
    read = read_pack(
        folder,
        public_keys=public_keys,
        trusted=trusted,
        agent_id=agent_id,
        allow_unverified=allow_unverified,
        allow_hidden=allow_hidden,
    )
    return read.write(store, writer)


def read_pack(
    folder: str | os.PathLike[str],
    *,
    public_keys: Sequence[PublicKey] = (),
    trusted: Iterable[TrustedKey] = (),
    agent_id: str | None = None,
    allow_unverified: bool = False,
    allow_hidden: bool = False,
) -> ReadPack:
    """Return what the units of a pack become, once everything about it was judged.

    `public_keys` are the keys that may have signed it; without any, those `trusted` by name may.
    Errors: `SignatureRefused`; `ContentRefused`, with every finding; `PackRefused`, the gates of `load_manifest`,
    `MissingFile` and `InvalidInput` for a folder that is no pack; `EnvelopeError` for an agent.
    """
    agent = DEFAULT_AGENT if agent_id is None else verify_agent_id(agent_id)
    known_keys = tuple(trusted)
    tree = load_tree(folder)
    verdict = verify_pack(tree, public_keys, trusted=known_keys)
    _require_signature(verdict, allow_unverified=allow_unverified)
    pack = _Pack(tree, load_manifest(tree), verdict)
    return ReadPack(pack, tuple(pack.read(agent, allow_hidden=allow_hidden)), agent, known_keys)


@dataclass(frozen=True, slots=True, repr=False)
class ReadPack:
    """A pack that was read and judged, and is still to be written."""

    _pack: _Pack
    _drafts: tuple[_Draft, ...]
    agent_id: str
    _trusted: tuple[TrustedKey, ...]

    def __repr__(self) -> str:
        return f"ReadPack({self._pack.manifest.name!a}, {len(self._drafts)} units)"

    def write(self, store: MemoryStore, writer: str | None = None) -> Imported:
        """Write what is new, all of it or nothing. `writer` is who imports, if not the agent itself.

        Errors: those of `MemoryStore.remember`.
        """
        if writer is not None:
            verify_agent_id(writer, "writer")
        return _write(store, self._pack, self._drafts, self.agent_id, writer, self._trusted)


def _require_signature(verdict: Verdict, *, allow_unverified: bool) -> None:
    if verdict.answer == "held":
        return
    # Nobody vouches for it, but nobody who does is contradicted.
    is_open = verdict.answer == "unknown" or not verdict.signed
    if is_open and allow_unverified:
        return
    told = f"{verdict.reason}, or import it with --allow-unverified" if is_open else verdict.reason
    raise SignatureRefused(told)


# Reading


@dataclass(frozen=True, slots=True)
class _Draft:
    """A memory that a unit becomes."""

    unit: Unit
    memory_type: MemoryType
    tags: tuple[str, ...]
    provenance: Provenance
    expires_at: int | None

    @property
    def metadata(self) -> dict[str, Any]:
        return {MEMBER: self.provenance.to_json()}

    @property
    def key(self) -> _Key:
        return _key(self.memory_type.value, self.unit.content, self.provenance)


_Key = tuple[object, ...]


def _key(memory_type: str, content: str, provenance: Provenance) -> _Key:
    """Return what tells units apart: not their place, number or pack."""
    facets = all_facets(provenance.type, provenance.facets)
    return memory_type, provenance.type, facets, content, provenance.reason, provenance.illustrates


class _Entry(NamedTuple):
    """What the manifest's `memories` says of a unit."""

    memory_type: MemoryType
    tags: tuple[str, ...]
    id: str
    created_at: int
    expires_at: int | None


@dataclass(slots=True)
class _Pack:
    """A pack whose signature was judged, while it is read."""

    tree: PackTree
    manifest: Manifest
    verdict: Verdict
    warnings: list[str] = field(default_factory=list)

    @property
    def signer(self) -> str | None:
        return self.verdict.signer if self.verdict.answer == "held" else None

    @property
    def version(self) -> str | None:
        return None if self.manifest.version is None else str(self.manifest.version)

    def read(self, agent_id: str, *, allow_hidden: bool) -> Iterator[_Draft]:
        """Yield what the units become. Errors: `ContentRefused`, `PackRefused`; nothing is yielded then."""
        self.warnings += self.verdict.warnings if self.verdict.signed else ()
        contents = self._load()
        findings: list[Finding] = []
        clusters: list[Cluster] = []
        for path, content in contents.items():
            text, found = scan_content(content, show_path(path))
            findings += found
            if text is None:
                findings[-1:] = [found[0]._replace(severity=Severity.ERROR)]
                continue
            parse = parse_cluster_v3 if self.manifest.primitive_format == V03 else parse_cluster
            cluster = parse(text, path)
            clusters.append(cluster)
            findings += cluster.findings
        entries, told = self._read_entries({unit.id: unit for cluster in clusters for unit in cluster.units})
        findings += told
        drafts = [draft for cluster in clusters for draft in self._draft(cluster, entries)]
        findings += (fault for draft in drafts for fault in _find_faults(draft, agent_id))
        refused = tuple(each for each in findings if each.is_error or (each.rule == HIDDEN_RULE and not allow_hidden))
        if refused:
            raise ContentRefused(refused)
        self.warnings += (f"{each.place}: {each.message} ({each.rule}); {each.remedy}" for each in findings)
        yield from drafts

    def _load(self) -> dict[str, bytes]:
        """Return the capability files, once everything read is what the signature was judged by."""
        listed = dict.fromkeys(MEMORY + name for name in self.manifest.capability_files)
        contents = {path: self.tree.read_bytes(path) for path in listed}
        hashes = {
            file.path: sha256(contents[file.path]).hexdigest() if file.path in contents else self.tree.sha256(file.path)
            for file in self.tree.files
            if file.path != MANIFEST
        }
        payload = compute_payload(self.tree, self.manifest.raw, "text", hashes)
        if sha256(payload).hexdigest() != self.verdict.digest:
            raise PackRefused("changed", "", "it was changed while it was read; look at it, and import it again")
        return contents

    def _draft(self, cluster: Cluster, entries: Mapping[str, _Entry]) -> Iterator[_Draft]:
        origin = None if cluster.frontmatter is None else cluster.frontmatter.get("source")
        for unit in cluster.units:
            entry = entries.get(unit.id)
            kind = _TYPES.get(unit.type, MemoryType.PROCEDURAL) if entry is None else entry.memory_type
            provenance = Provenance(
                name=self.manifest.name,
                version=self.version,
                digest=self.verdict.digest,
                signer=self.signer,
                unit=unit.id,
                type=unit.type,
                facets=unit.facets,
                braces=unit.body is not None,
                reason=unit.reason,
                illustrates=unit.illustrates,
                sources=find_cited(unit, cluster.sources) or None,
                origin=unit.source or (origin if isinstance(origin, str) else None),
                exported=None if entry is None else (entry.id, entry.created_at),
            )
            own = () if entry is None else entry.tags[: MAX_TAGS - len(provenance.tags)]
            tags = tuple(dict.fromkeys([*own, *provenance.tags]))
            yield _Draft(unit, kind, tags, provenance, None if entry is None else entry.expires_at)

    def _read_entries(self, units: Mapping[str, Unit]) -> tuple[dict[str, _Entry], list[Finding]]:
        """Return what the manifest says of the memories that units were made of; all of it is hostile."""
        listed = self.manifest.raw.get("memories")
        if listed is None:
            return {}, []
        entries: dict[str, _Entry] = {}
        findings: list[Finding] = []
        remedy = "export the pack again"
        for value in listed if isinstance(listed, list) else [None]:
            members: dict[str, Any] = value if isinstance(value, dict) else {}
            unit = members.get("unit", "")
            entry = _read_entry(members, units[unit]) if isinstance(unit, str) and unit in units else None
            if entry is None or unit in entries:
                message = "memories holds what export does not write, and was not used"
                return {}, [Finding("memories", Severity.WARNING, MANIFEST, None, message, remedy)]
            for tag in entry.tags:
                findings += _scan_tag(tag, unit)
            if any(map(is_reserved_tag, entry.tags)):
                message = "a tag that would say where the memory came from was not used"
                findings.append(Finding("memories", Severity.WARNING, MANIFEST, None, message, remedy, unit))
                entry = entry._replace(tags=drop_reserved_tags(entry.tags))
            entries[unit] = entry
        return entries, findings


def _read_entry(value: Mapping[str, Any], unit: Unit) -> _Entry | None:
    try:
        kind = MemoryType(value["memory_type"])
        tags = verify_tags(value["tags"])
        memory_id, created_at, expires_at = value["id"], value["created_at"], value.get("expires_at")
    except (KeyError, ValueError):  # the family of errors of input is one of these
        return None
    fits = kind in _PACKED and (unit.type == "demonstration" or kind is _TYPES.get(unit.type, MemoryType.PROCEDURAL))
    if not fits or not is_valid_memory_id(memory_id) or not _is_time(created_at):
        return None
    if expires_at is not None and not _is_time(expires_at):
        return None
    return _Entry(kind, tags, memory_id, created_at, expires_at)


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LATEST


def _scan_tag(tag: str, unit: str) -> list[Finding]:
    found = [each._replace(line=None, unit=unit) for each in find_credentials(tag, MANIFEST)]
    if find_hidden_characters(tag):
        message, remedy = "a tag that cannot be seen whole", "remove what cannot be seen"
        found.append(Finding(HIDDEN_RULE, Severity.WARNING, MANIFEST, None, message, remedy, unit))
    return found


def _find_faults(draft: _Draft, agent_id: str) -> Iterator[Finding]:
    """Yield why a store would not take a memory, as a finding about its unit."""
    unit = draft.unit
    try:
        Envelope(
            Operation.REMEMBER,
            draft.memory_type,
            agent_id=agent_id,
            content=unit.content,
            tags=draft.tags,
            metadata=draft.metadata,
        )
    except EnvelopeError as error:
        file, line = unit.id.partition("#")[0], unit.line or None
        message = f"no memory can hold it: {error.member}: {error.rule}"
        yield Finding("not-carried", Severity.ERROR, file, line, message, "shorten it, or remove it", unit.id)


# Writing


class _Kept(NamedTuple):
    """A memory that came from a pack of this name before."""

    id: str
    memory_type: MemoryType
    provenance: Provenance
    state: MemoryState


def _write(
    store: MemoryStore,
    pack: _Pack,
    drafts: Sequence[_Draft],
    agent_id: str,
    writer: str | None,
    trusted: Sequence[TrustedKey],
) -> Imported:
    database = store._core.database
    found: dict[str, list[str]] = {
        name: [] for name in ("added", "waiting", "replaced", "known", "rejected", "ended", "repeated")
    }
    with database.writing() as connection:
        # Whoever imports at the same time waits here, and then finds what this import wrote.
        database.lock_head(connection)
        now = store._core.time(connection)
        kept = _list_kept(connection, pack.manifest.name, agent_id, now)
        seen: set[_Key] = set()
        for draft in drafts:
            if draft.key in seen:
                found["repeated"].append(draft.unit.id)
                continue
            seen.add(draft.key)
            before = kept.get(draft.key)
            if draft.expires_at is not None and draft.expires_at <= now:
                found["ended"].append(draft.unit.id)
                continue
            outcome = "added"
            if before is not None:
                if pack.signer is None or before.provenance.signer is not None or before.state is not _ACTIVE:
                    found["known"].append(before.id)
                    continue
                store.forget(before.memory_type, [before.id], agent_id=agent_id)
                outcome = "replaced"
            result = store.remember(
                draft.memory_type,
                draft.unit.content,
                agent_id=agent_id,
                tags=draft.tags,
                metadata=draft.metadata,
                ttl_seconds=None if draft.expires_at is None else draft.expires_at - now,
                writer=writer,
            )
            if not result.ok:
                found["rejected"].append(draft.unit.id)
            else:
                found["waiting" if result.approved is False else outcome] += result.ids
    left = [each for key, each in kept.items() if key not in seen and each.state is not MemoryState.MERGED]
    return Imported(
        pack.manifest.name,
        pack.version,
        pack.verdict.digest,
        pack.signer,
        pack.verdict.signer_name if pack.signer else None,
        gone=tuple(Gone(each.id, each.provenance.unit, each.provenance.signer) for each in left),
        warnings=tuple([*_find_strangers(kept.values(), pack, trusted), *pack.warnings][:_MOST_WARNINGS]),
        **{name: tuple(ids) for name, ids in found.items()},
    )


_ACTIVE: Final = MemoryState.ACTIVE


def _list_kept(connection: Connection, name: str, agent_id: str, now: int) -> dict[_Key, _Kept]:
    """Return the memories and waiting writes that came from packs of a name; of equal ones, one that is verified."""
    kept: dict[_Key, _Kept] = {}
    tag = f'"pack:{name}"'
    columns = (memories.c.id, memories.c.content, memories.c.metadata, memories.c.merged_into, scopes.c.type)
    query = (
        select(*columns)
        .join(scopes, scopes.c.id == memories.c.scope)
        .where(scopes.c.agent == agent_id, memories.c.tags.contains(tag, autoescape=True))
        .where(memories.c.expires_at.is_(None) | (memories.c.expires_at > now))
        .order_by(memories.c.number)
    )
    waiting = (
        select(pending.c.id, pending.c.content, pending.c.metadata, scopes.c.type)
        .join(scopes, scopes.c.id == pending.c.scope)
        .where(scopes.c.agent == agent_id, pending.c.tags.contains(tag, autoescape=True))
        .where(pending.c.decision.is_(None), pending.c.content.is_not(None))
        .where(pending.c.expires_at.is_(None) | (pending.c.expires_at > now))
        .order_by(pending.c.number)
    )
    rows: list[tuple[AnyRow, MemoryState]] = [
        (row, MemoryState.ACTIVE if row.merged_into is None else MemoryState.MERGED)
        for row in connection.execute(query)
    ]
    rows += [(row, MemoryState.PENDING) for row in connection.execute(waiting)]
    for row, state in rows:
        provenance = None if row.metadata is None else read_provenance(json.loads(row.metadata))
        if provenance is not None and provenance.name == name:
            key = _key(row.type, row.content, provenance)
            before = kept.get(key)
            if before is None or (before.provenance.signer is None and provenance.signer is not None):
                kept[key] = _Kept(row.id, MemoryType(row.type), provenance, state)
    return kept


def _find_strangers(kept: Iterable[_Kept], pack: _Pack, trusted: Sequence[TrustedKey]) -> Iterator[str]:
    """Yield what there is to say of memories that came under this name from somebody else."""
    names = {one.key.key_id: one.name for one in trusted}
    here = pack.signer
    others: dict[str | None, int] = {}
    for each in kept:
        there = each.provenance.signer
        if there != here and (there is None or here is None or names.get(there, there) != names.get(here, here)):
            others[there] = others.get(there, 0) + 1
    for signer, count in others.items():
        what = f"{count} memor{'ies' if count > 1 else 'y'} of a pack of this name"
        whose = f"signed with {signer}" if signer else "that nobody vouched for"
        yield f"the store also holds {what} {whose}, which this one does not come from; look whether they should stay"
