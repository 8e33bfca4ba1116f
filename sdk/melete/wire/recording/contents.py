"""Where the witnesses of contents are: told by the batches themselves, whatever the store says.

Whoever can write to a store's database can change what it says of its batches. A batch's own head is encrypted under
the batch's root, and cannot be moved: it says which audit rows the batch records, and so where their contents stand. A
content says of which memory it is.
"""

from __future__ import annotations

from typing import NamedTuple

from melete.errors import InvalidInput, NotAuthentic, WitnessErased, WitnessMissing
from melete.memory.batch import Batch
from melete.memory.witness_kinds import OPERATION
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import ALTERED, ERASED, MISSING, find_recorded
from melete.wire.recording.errors import NotAtHand
from melete.wire.recording.journal import BATCH_ROW, MEMORY_ROW, Recording
from melete.wire.recording.operations import BatchHead, Content


class Found(NamedTuple):
    """A batch as its head tells it. `fault` says how the store's row about it differs, where it does."""

    root: Bytes32
    head: BatchHead
    fault: BrokenAudit | None = None


class Placed(NamedTuple):
    """Where a batch has what an audit row wrote, if it has it, and whether that is still to be erased."""

    root: Bytes32
    at: int | None
    is_kept: bool
    fault: BrokenAudit | None


class Contents:
    """The contents of batches; each batch's head is looked up once."""

    def __init__(self, witnesses: WitnessStore) -> None:
        self._witnesses = witnesses
        self._known: dict[Recording, Found | NotAtHand | BrokenAudit] = {}

    def place(self, recording: Recording | None, number: int, memory_id: str) -> Placed:
        """Return where the batch that records an audit row has the memory that this row wrote.

        Errors: `NotAtHand` where a witness is missing; `BrokenAudit` for no such batch, or another's content.
        """
        if recording is None:
            raise BrokenAudit(number, BATCH_ROW, "a batch", "missing")
        root, head, fault = self.find(recording)
        if not head.first <= number <= head.last:
            raise fault or BrokenAudit(number, BATCH_ROW, "its batch", "another")
        index = head.content_index(number)
        is_kept = index is not None and self._is_kept(recording, root, index, number, memory_id)
        return Placed(root, index, is_kept, fault)

    def find(self, recording: Recording) -> Found:
        """Return the batch that a row of the store means. Errors: `NotAtHand`, `BrokenAudit`."""
        found = self._known.get(recording)
        if found is None:
            try:
                found = self._find(recording)
            except (NotAtHand, BrokenAudit) as error:
                found = error
            self._known[recording] = found
        if not isinstance(found, Found):
            raise found
        return found

    def _find(self, recording: Recording) -> Found:
        head = self._head_at(recording.root, recording)
        if head is not None and (head.first, head.last) == (recording.first, recording.last):
            return Found(recording.root, head)
        # The row is not as it was written. What it says of the delta may still lead there.
        _, witness = find_recorded(self._witnesses, recording.space_id, recording.commitment)
        if witness is None:
            raise NotAtHand(recording.commitment, ERASED)
        try:
            root = Batch.from_payload(witness.payload).root
        except InvalidInput:
            raise BrokenAudit(recording.first, BATCH_ROW, "a delta of a batch", "another") from None
        head = self._head_at(root, recording)
        if head is None:
            raise NotAtHand(recording.commitment, f"the head of its batch: {MISSING}")
        expected = f"audit rows {head.first} to {head.last} under the root {root}"
        received = f"audit rows {recording.first} to {recording.last} under {recording.root}"
        return Found(root, head, BrokenAudit(recording.first, BATCH_ROW, expected, received))

    def _head_at(self, root: Bytes32, recording: Recording) -> BatchHead | None:
        try:
            return BatchHead.from_bytes(self._witnesses.get(OPERATION.place(root, 0)).content)
        except (WitnessMissing, WitnessErased, InvalidInput):
            return None
        except NotAuthentic:
            raise NotAtHand(recording.commitment, f"the head of its batch: {ALTERED}") from None

    def _is_kept(self, recording: Recording, root: Bytes32, index: int, number: int, memory_id: str) -> bool:
        try:
            operation = self._witnesses.get(OPERATION.place(root, index))
        except WitnessErased:
            return False
        except WitnessMissing:
            raise NotAtHand(recording.commitment, f"the content of audit row {number}: {MISSING}") from None
        except NotAuthentic:
            return True  # of whatever memory it is, nobody can open it
        try:
            content = Content.from_bytes(operation.content)
            is_its = (content.number, content.id) == (number, memory_id)
        except InvalidInput:
            is_its = False
        if not is_its:
            raise BrokenAudit(number, MEMORY_ROW, f"the witness of {memory_id}", "another's")
        return True
