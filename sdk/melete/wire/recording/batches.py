"""Recorded batches as the witnesses at hand open them: what a delta committed to, operation by operation, verified.

Nothing here is taken on the store's word: the witness must open the delta, the leaves that are kept must give the root
that its payload names, and every operation must be its leaf's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from melete.errors import InvalidInput, NotAuthentic, WitnessErased, WitnessMismatch, WitnessMissing
from melete.memory.batch import Batch, BatchTree, InclusionProof, Operation, compute_batch
from melete.memory.delta import ExperienceDelta
from melete.memory.profiles import BATCH
from melete.memory.witness import Witness, verify_witness
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32
from melete.wire.audit import AuditHead, Entry, follow
from melete.wire.errors import BrokenAudit
from melete.wire.recording.errors import BrokenRecording, NotAtHand, NotOpened
from melete.wire.recording.operations import BatchHead, Content, operation_to_entry, verify_content

#: Why something stays closed, in the words of `NotOpened`.
MISSING: Final = "its witness is missing"
ERASED: Final = "its witness was erased"
ALTERED: Final = "its witness does not decrypt"
CLOSED: Final = "its witness does not open what was committed"


@dataclass(frozen=True, slots=True)
class OpenedBatch:
    """A batch that records audit rows: its place in the space, its head, and the leaves of all its operations."""

    sequence: int
    batch: Batch
    head: BatchHead
    commitment: Bytes32
    leaves: tuple[Bytes32, ...] = field(repr=False)

    def prove_inclusion(self, index: int) -> InclusionProof:
        """Return the proof that an operation stands in the batch."""
        return BatchTree(self.leaves).prove_inclusion(index)


def find_witness(witnesses: WitnessStore, delta: ExperienceDelta) -> Witness:
    """Return what opens a delta: kept at its place, or where it was before its delta was rebuilt.

    Errors: `NotOpened`.
    """
    reason = MISSING
    try:
        witness: Witness = witnesses.get(DELTA.place(delta.space_id, delta.sequence))
        verify_witness(delta, witness)
    except WitnessMissing:
        pass
    except WitnessErased:
        reason = ERASED
    except NotAuthentic:
        reason = ALTERED
    except (WitnessMismatch, InvalidInput):
        reason = CLOSED
    else:
        return witness
    try:
        entries = witnesses.find(delta.delta_commitment)
    except NotAuthentic:
        raise NotOpened(delta.sequence, ALTERED) from None
    for entry in entries:
        if entry.kind == DELTA.name and entry.record is not None:
            try:
                verify_witness(delta, entry.record)
            except WitnessMismatch:
                continue
            found: Witness = entry.record
            return found
    raise NotOpened(delta.sequence, reason)


def find_recorded(witnesses: WitnessStore, space_id: Bytes32, commitment: Bytes32) -> tuple[int, Witness | None]:
    """Return the sequence of the delta with a commitment, wherever it was rebuilt to, and its witness.

    The witness is None where it was erased. Errors: `NotAtHand`.
    """
    try:
        for entry in witnesses.find(commitment):
            if entry.kind == DELTA.name and entry.scope == space_id:
                return entry.number, entry.record
    except NotAuthentic:
        raise NotAtHand(commitment, ALTERED) from None
    raise NotAtHand(commitment, MISSING)


def open_delta(witnesses: WitnessStore, delta: ExperienceDelta) -> OpenedBatch | None:
    """Return the batch that a delta records; None for a delta about something else.

    Errors: `NotOpened` where that cannot be told; `BrokenRecording`.
    """
    if delta.profile_id != BATCH.id:
        return None
    return open_batch(witnesses, find_witness(witnesses, delta), delta.sequence)


def open_batch(witnesses: WitnessStore, witness: Witness, sequence: int) -> OpenedBatch | None:
    """Return the batch that a witness opens; None if it records no audit rows. Errors: as `open_delta`."""
    if witness.profile_id != BATCH.id:
        return None
    try:
        batch = Batch.from_payload(witness.payload)
    except InvalidInput:  # a payload under the batch's profile that is none
        return None
    leaves = tuple(row.commitment for row in witnesses.list_rows(OPERATION, batch.root))
    if len(leaves) != batch.count:
        raise NotOpened(sequence, f"of its {batch.count} operations {len(leaves)} are kept")
    if compute_batch(leaves) != batch:
        raise NotOpened(sequence, "the leaves that are kept are not those of its root")
    operation = load_operation(witnesses, batch.root, 0, leaves, sequence)
    try:
        head = BatchHead.from_bytes(operation.content)
    except InvalidInput:
        return None
    if head.count != batch.count:
        raise BrokenRecording(sequence, "the number of operations", head.count, batch.count)
    return OpenedBatch(sequence, batch, head, witness.compute_commitments()[0], leaves)


def load_operation(
    witnesses: WitnessStore, root: Bytes32, index: int, leaves: Sequence[Bytes32], sequence: int
) -> Operation:
    """Return an operation of a batch, once it is its leaf's. Errors: `NotOpened`."""
    try:
        operation: Operation = witnesses.get(OPERATION.place(root, index))
    except WitnessMissing:
        raise NotOpened(sequence, f"operation {index}: {MISSING}") from None
    except WitnessErased:
        raise NotOpened(sequence, f"operation {index}: {ERASED}") from None
    except NotAuthentic:
        raise NotOpened(sequence, f"operation {index}: {ALTERED}") from None
    if operation.compute_leaf() != leaves[index]:
        raise NotOpened(sequence, f"operation {index}: {CLOSED}")
    return operation


# Rows and contents


def load_entry(witnesses: WitnessStore, opened: OpenedBatch, number: int) -> tuple[Entry, bytes, Bytes32, int]:
    """Return the entry of an audit row that a batch records, its bytes, its hash, and the index of its operation.

    Errors: `NotOpened`; `BrokenRecording` for what is no entry of this number.
    """
    index = opened.head.entry_index(number)
    operation = load_operation(witnesses, opened.batch.root, index, opened.leaves, opened.sequence)
    try:
        data, digest = operation_to_entry(operation.content)
        entry = Entry.from_bytes(data)
    except ValueError:
        raise BrokenRecording(opened.sequence, "an operation", "an audit row", "of another form") from None
    if entry.number != number:
        raise BrokenRecording(opened.sequence, "an operation's audit row", number, entry.number)
    return entry, data, digest, index


def iterate_entries(witnesses: WitnessStore, opened: OpenedBatch) -> Iterator[tuple[Entry, bytes, Bytes32]]:
    """Yield all audit rows of a batch, each once it follows from the one before, up to the hash that the head names.

    Errors: `NotOpened`; `BrokenRecording`.
    """
    at = opened.head.before
    for number in range(opened.head.first, opened.head.last + 1):
        index = opened.head.entry_index(number)
        operation = load_operation(witnesses, opened.batch.root, index, opened.leaves, opened.sequence)
        try:
            data, digest = operation_to_entry(operation.content)
            entry = follow(at, number, data, digest)
        except InvalidInput:
            raise BrokenRecording(opened.sequence, "an operation", "an audit row", "of another form") from None
        except BrokenAudit as error:
            raise BrokenRecording(opened.sequence, error.rule, error.expected, error.received) from None
        at = AuditHead(number, digest)
        yield entry, data, digest
    if at != opened.head.after:
        raise BrokenRecording(opened.sequence, "the hash after the batch", opened.head.hash, at.hash)


def load_content(witnesses: WitnessStore, opened: OpenedBatch, entry: Entry) -> Content | None:
    """Return what an entry wrote; None where it was not there to be recorded.

    Errors: `NotOpened`, also for one that was erased (`is_erased` tells); `BrokenRecording`.
    """
    index = opened.head.content_index(entry.number)
    if index is None:
        return None
    operation = load_operation(witnesses, opened.batch.root, index, opened.leaves, opened.sequence)
    try:
        content = Content.from_bytes(operation.content)
        verify_content(entry, content)
    except InvalidInput:
        raise BrokenRecording(opened.sequence, "an operation", "a content", "of another form") from None
    except BrokenAudit as error:
        raise BrokenRecording(opened.sequence, error.rule, error.expected, error.received) from None
    return content


def is_erased(witnesses: WitnessStore, root: Bytes32, index: int) -> bool:
    """Return whether the witness of an operation was there once, and was erased."""
    try:
        witnesses.get(OPERATION.place(root, index))
    except WitnessErased:
        return True
    except (WitnessMissing, NotAuthentic):
        pass
    return False


def erase_operations(witnesses: WitnessStore, places: Iterable[tuple[Bytes32, int]]) -> int:
    """Erase the witnesses of operations, by root and index, and return how many there were; missing ones are none.

    Errors: `NotScrubbed` when all are erased, and their bytes could not leave the file yet.
    """
    erased = 0
    with witnesses.transaction():
        for root, index in places:
            try:
                erased += witnesses.erase(OPERATION.place(root, index))
            except WitnessMissing:
                continue
    return erased
