"""The chain of evidence for one memory: from its row to the state root of its space, or to its having been forgotten.

    row -> digest -> audit row -> operation -> batch -> delta -> transition -> state root

Each arrow is checked here; none is taken on a store's word. That costs the rows of one batch (of two for a memory that
was forgotten) and one request to a node. A forgotten memory's content cannot be opened any more, by anyone; that it was
remembered and that it was forgotten stay as provable as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Connection, select

from melete.canonical import Json
from melete.errors import InvalidInput
from melete.memory.batch import Batch, InclusionProof, verify_inclusion
from melete.memory.witness import Witness
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32, keccak256
from melete.wire.audit import Action, Entry
from melete.wire.envelope import verify_memory_id
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import (
    ERASED,
    OpenedBatch,
    find_recorded,
    is_erased,
    load_content,
    load_entry,
    load_operation,
    open_batch,
)
from melete.wire.recording.errors import BrokenRecording, NotOnRecord, NotOpened
from melete.wire.recording.journal import (
    Recorded,
    Recording,
    core_of,
    find_recording,
    load_audit_row,
    load_endings,
    load_entries,
    load_newest,
    load_recorded,
    make_content,
)
from melete.wire.recording.operations import ENDING, WRITING, BatchHead, Content
from melete.wire.store import MemoryStore
from melete.wire.tables import memories, scopes

if TYPE_CHECKING:
    from melete.memory.registry import MemoryRegistry
    from melete.memory.space import Head
    from melete.wire.recording.anchoring import Anchor

#: What becomes of a memory that no row holds any more.
FORGOTTEN: Final = "forgotten"


class Standing(StrEnum):
    """How far an audit row has come."""

    #: No batch has it yet.
    WAITS = "waits to be recorded"
    #: A batch has it, and the registry's head does not reach that yet.
    QUEUED = "recorded, and not in the registry yet"
    #: A batch has it; whether the registry does, nobody was asked.
    RECORDED = "recorded"
    #: The registry's state root follows from it.
    COMMITTED = "committed"


class Kept(StrEnum):
    """What is left of a memory's content among the witnesses."""

    OPENED = "opened"
    ERASED = "erased"
    #: It was gone before its audit row was recorded.
    NEVER = "never recorded"
    WAITS = "waits to be recorded"


@dataclass(frozen=True, slots=True)
class Included:
    """An operation's place in its batch, with the proof that it stands there."""

    leaf: Bytes32
    proof: InclusionProof

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members."""
        return {"leaf": str(self.leaf), **self.proof.to_json()}


@dataclass(frozen=True, slots=True)
class Link:
    """An audit row, and how it leads to a state root, as far as it does."""

    entry: Entry
    hash: Bytes32
    standing: Standing
    sequence: int | None = None
    batch: Batch | None = None
    head: BatchHead | None = None
    included: Included | None = None
    anchor: Anchor | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members; nothing in them is content or a secret."""
        entry = self.entry
        members: dict[str, Json] = {
            "number": entry.number,
            "hash": str(self.hash),
            "at": entry.at,
            "action": entry.action.value,
            "agent": entry.agent,
            "type": entry.type,
            "standing": self.standing.value,
        }
        if self.batch is not None and self.included is not None:
            members["sequence"] = str(self.sequence)
            members["root"] = str(self.batch.root)
            members["operation"] = self.included.to_json()
        if self.anchor is not None:
            members["delta"] = dict(self.anchor.delta.to_json())
            members["transitionId"] = str(self.anchor.transition_id)
            members["stateRoot"] = str(self.anchor.state_root)
            reference = self.anchor.reference
            if reference is not None:
                members["block"] = reference.block_number
                members["blockHash"] = str(reference.block_hash)
                members["transaction"] = str(reference.transaction_hash)
        return members


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one memory: its state, the row that made it, what is left of it, the row that ended it.

    `space` is None while nothing of the store was recorded; `registry_head` is the space's head when it was asked for.
    """

    id: str
    state: str
    made: Link
    kept: Kept
    content: Included | None = None
    ended: Link | None = None
    space: Recording | None = None
    registry_head: Head | None = None

    @property
    def is_forgotten(self) -> bool:
        return self.state == FORGOTTEN

    @property
    def standing(self) -> Standing:
        """How far the last row about the memory that matters has come: the one that ended it, or made it."""
        if self.is_forgotten:
            return Standing.WAITS if self.ended is None else self.ended.standing
        return self.made.standing

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members; nothing in them is content or a secret."""
        members: dict[str, Json] = {"id": self.id, "state": self.state, "standing": self.standing.value}
        if self.space is not None:
            members["chainId"] = self.space.chain_id
            members["registry"] = str(self.space.registry)
            members["spaceId"] = str(self.space.space_id)
        members["made"] = self.made.to_json()
        members["content"] = self.kept.value
        if self.content is not None:
            members["contentOperation"] = self.content.to_json()
        if self.ended is not None:
            members["ended"] = self.ended.to_json()
        if self.registry_head is not None:
            members["headSequence"] = str(self.registry_head.sequence)
            members["headStateRoot"] = str(self.registry_head.state_root)
        return members


def prove(
    store: MemoryStore,
    witnesses: WitnessStore,
    memory_id: str,
    registry: MemoryRegistry | None = None,
    first_block: int = 0,
) -> Evidence:
    """Return the evidence for one memory, or for its having been forgotten, once all of it holds.

    Without a registry nobody is asked whether the deltas were committed. Errors: `UnknownMemory` for an id that the
    store never kept; `NotOnRecord` for a write that waits for approval, and for what was forgotten before its record;
    `BrokenAudit`, `BrokenRecording`, `BrokenHistory` for the first thing that does not hold; `NotOpened`, `NotAtHand`
    where a witness is missing; `InvalidInput` for another registry than that of the record; the node's and the stores'.
    """
    verify_memory_id(memory_id)
    known = _look_up(store, memory_id)
    made = _trace(witnesses, known.made, known.made_in)
    ended = None if known.ended is None else _trace(witnesses, known.ended, known.ended_in)
    kept, content = _find_content(witnesses, known, made)
    links = [made] if ended is None else [made, ended]
    traced = {link.opened.sequence: link.witness for link in links if link.opened is not None and link.witness}
    recording = known.made_in or known.ended_in
    anchored = None
    if registry is not None and recording is not None:
        _check_registry(registry, recording)
        from melete.wire.recording.anchoring import load_anchors

        anchored = load_anchors(registry, recording.space_id, traced, first_block)
    anchors = None if anchored is None else dict(anchored.anchors)
    return Evidence(
        memory_id,
        known.state,
        _link(made, anchors),
        kept,
        content,
        None if ended is None else _link(ended, anchors),
        recording,
        None if anchored is None else anchored.head,
    )


class _Row(NamedTuple):
    """An audit row as the store keeps it."""

    entry: Entry
    data: bytes
    hash: Bytes32


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store itself knows."""

    state: str
    recorded: Recorded | None
    content: Content | None
    made: _Row
    made_in: Recording | None
    ended: _Row | None
    ended_in: Recording | None


@dataclass(frozen=True, slots=True)
class _Traced:
    row: _Row
    opened: OpenedBatch | None = None
    witness: Witness | None = None
    included: Included | None = None


# The store


def _look_up(store: MemoryStore, memory_id: str) -> _Known:
    core = core_of(store)
    with core.database.reading() as connection:
        recorded = next(iter(load_recorded(connection, [memory_id])), None)
        query = select(*memories.columns, scopes.c.agent, scopes.c.type).join(scopes, scopes.c.id == memories.c.scope)
        row = connection.execute(query.where(memories.c.id == memory_id)).one_or_none()
        if row is None and recorded is None:
            newest = load_newest(connection)
            for entry in load_endings(connection, 0 if newest is None else newest.last):
                if memory_id in entry.memories:
                    raise NotOnRecord(f"memory {memory_id} was forgotten, and is on record neither before nor as that")
            store.show(memory_id)  # raises, unless it waits
            raise NotOnRecord(f"the write {memory_id} waits for approval, and is recorded once it has that")
        state, content = FORGOTTEN, None
        if row is not None:
            state = store.show(memory_id).state.value
            content = make_content(row.number, row.id, row.content, row.tags, row.metadata, row.salt)
        if row is None and recorded is not None and recorded.ended is None:
            _require_ending(connection, memory_id, recorded.number)
        number = row.number if row is not None else recorded.number if recorded is not None else 0
        made = _load_row(connection, number)
        _check_row(made, memory_id, row, content)
        if row is not None:
            _check_expiry(connection, row, made)
        ended = None
        if recorded is not None and recorded.ended is not None:
            ended = _load_row(connection, recorded.ended)
            if ended.entry.action not in ENDING or memory_id not in ended.entry.memories:
                raise BrokenAudit(recorded.ended, "the entry of the audit row", f"the end of {memory_id}", "another")
        return _Known(
            state,
            recorded,
            content,
            made,
            find_recording(connection, number),
            ended,
            None if ended is None else find_recording(connection, ended.entry.number),
        )


def _load_row(connection: Connection, number: int) -> _Row:
    found = load_audit_row(connection, number)
    if found is None:
        raise BrokenAudit(number, "the audit row's number", number, "missing")
    data, stored = found
    digest = keccak256(data)
    if digest != stored:
        raise BrokenAudit(number, "the hash of the audit row", stored, digest)
    try:
        return _Row(Entry.from_bytes(data), data, digest)
    except InvalidInput:
        raise BrokenAudit(number, "the entry of the audit row", "as it was written", "of another form") from None


def _require_ending(connection: Connection, memory_id: str, number: int) -> None:
    """Return if the log says that a memory was ended which no row holds any more."""
    if not any(memory_id in entry.memories for entry in load_endings(connection, number)):
        raise BrokenAudit(number, "a memory's row", memory_id, "missing")


def _check_expiry(connection: Connection, row: Any, made: _Row) -> None:
    """Return if a memory ends when the last entry about it that says so has it end."""
    expires = made.entry.expires
    if row.audited != made.entry.number:
        if load_audit_row(connection, row.audited) is None:
            raise BrokenAudit(made.entry.number, "the last audit row of a memory", f"about {row.id}", "missing")
        last = _load_row(connection, row.audited).entry
        if row.id not in (*last.memories, *last.sources):
            raise BrokenAudit(made.entry.number, "the last audit row of a memory", f"about {row.id}", row.audited)
        # Where a merge came last, what was set before it stands in an entry between the two.
        entries = [last] if last.action is Action.EXPIRE else load_entries(connection, made.entry.number, last.number)
        for entry in entries:
            if entry.action is Action.EXPIRE and row.id in entry.memories:
                expires = entry.expires
    if row.expires_at != expires:
        raise BrokenAudit(made.entry.number, "the expiry of a memory", expires, row.expires_at)


def _check_row(made: _Row, memory_id: str, row: Any, content: Content | None) -> None:
    """Return if an audit row made a memory, and the memory's row, where there is one, is what it says."""
    entry = made.entry
    if entry.action not in WRITING or entry.memories != (memory_id,):
        raise BrokenAudit(entry.number, "the entry of the audit row", f"the making of {memory_id}", "another")
    if row is None or content is None:
        return
    if (row.agent, row.type, row.created_at) != (entry.agent, entry.type, entry.at):
        raise BrokenAudit(entry.number, "a memory's row", f"{entry.agent}, {entry.type}", f"{row.agent}, {row.type}")
    digest = content.compute_digest()
    if digest != entry.digest:
        raise BrokenAudit(entry.number, "the digest of a memory", entry.digest, digest)


# The witnesses


def _trace(witnesses: WitnessStore, row: _Row, recording: Recording | None) -> _Traced:
    """Follow an audit row to the batch that records it."""
    if recording is None:
        return _Traced(row)
    sequence, witness = find_delta(witnesses, recording)
    opened = open_batch(witnesses, witness, sequence)
    if opened is None or (opened.batch.root, opened.head.first, opened.head.last) != (
        recording.root,
        recording.first,
        recording.last,
    ):
        found = "no batch of audit rows" if opened is None else f"{opened.head.first} to {opened.head.last}"
        raise BrokenRecording(sequence, "the audit rows", f"{recording.first} to {recording.last}", found)
    _, _, digest, index = load_entry(witnesses, opened, row.entry.number)
    if digest != row.hash:
        raise BrokenRecording(sequence, "the hash of the audit row", digest, row.hash)
    return _Traced(row, opened, witness, _include(witnesses, opened, index))


def find_delta(witnesses: WitnessStore, recording: Recording) -> tuple[int, Witness]:
    """Return the sequence of the delta that carries a batch, and its witness. Errors: `NotOpened`, `NotAtHand`."""
    sequence, witness = find_recorded(witnesses, recording.space_id, recording.commitment)
    if witness is None:
        raise NotOpened(sequence, ERASED)
    return sequence, witness


def _include(witnesses: WitnessStore, opened: OpenedBatch, index: int) -> Included:
    """Return an operation's leaf and proof, once it opens the leaf and the proof leads to the root."""
    operation = load_operation(witnesses, opened.batch.root, index, opened.leaves, opened.sequence)
    proof = opened.prove_inclusion(index)
    return Included(verify_inclusion(opened.batch, operation, proof), proof)


def _find_content(witnesses: WitnessStore, known: _Known, made: _Traced) -> tuple[Kept, Included | None]:
    if made.opened is None:
        return Kept.WAITS, None
    index = made.opened.head.content_index(known.made.entry.number)
    if index is None:
        return Kept.NEVER, None
    leaf, proof = made.opened.leaves[index], made.opened.prove_inclusion(index)
    if is_erased(witnesses, made.opened.batch.root, index):
        return Kept.ERASED, Included(leaf, proof)
    load_content(witnesses, made.opened, known.made.entry)
    return Kept.OPENED, _include(witnesses, made.opened, index)


# The registry


def _check_registry(registry: MemoryRegistry, recording: Recording) -> None:
    if (registry.chain_id, registry.address) != (recording.chain_id, recording.registry):
        rule = f"{recording.registry} of chain {recording.chain_id}, where the store is recorded"
        raise InvalidInput("registry", registry.address, rule)


def _link(traced: _Traced, anchors: dict[int, Anchor] | None) -> Link:
    if traced.opened is None:
        return Link(traced.row.entry, traced.row.hash, Standing.WAITS)
    sequence = traced.opened.sequence
    anchor = None if anchors is None else anchors.get(sequence)
    standing = Standing.RECORDED if anchors is None else Standing.QUEUED if anchor is None else Standing.COMMITTED
    return Link(
        traced.row.entry,
        traced.row.hash,
        standing,
        sequence,
        traced.opened.batch,
        traced.opened.head,
        traced.included,
        anchor,
    )
