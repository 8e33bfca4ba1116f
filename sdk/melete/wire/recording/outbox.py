"""Batches on their way to the registry: a delta with its operations, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from melete.chain.outbox import Item, State
from melete.chain.reverts import compute_selector
from melete.chain.rpc import Answer, batch, to_bytes
from melete.errors import InvalidAuthorization, NodeRefused, UnknownSpace
from melete.memory.batch import Batch, Operation, compute_batch
from melete.memory.delta import ExperienceDelta
from melete.memory.outbox import MemoryOutbox, delta_of
from melete.memory.profiles import BATCH
from melete.memory.registry import FUNCTIONS
from melete.memory.space import Head
from melete.memory.witness import Witness
from melete.memory.witness_kinds import OPERATION, Place
from melete.primitives import Bytes32
from melete.signing import Signer


class BatchOutbox(MemoryOutbox):
    """A memory outbox that takes batches of operations."""

    def add_batch(
        self, space_id: Bytes32, head: Head, operations: Sequence[Operation], salt: Bytes32, authorizer: Signer | None
    ) -> tuple[Batch, ExperienceDelta, Head]:
        """Write a batch down under a fresh salt, with all that opens it; return it, its delta and the head after it.

        `head` is the tail of the space, and whether the authorizer is the space's was checked. The witnesses of the
        batch are kept in one transaction, before the delta can go out: killed anywhere in between, `recover` decides.
        """
        leaves = [operation.compute_leaf() for operation in operations]
        found = compute_batch(leaves)
        witness = Witness(BATCH.id, found.to_payload(), salt)
        item, delta, after = self._build(space_id, head, witness, authorizer)
        with self.outbox.adding():
            (draft,) = self.outbox.add([item], State.DRAFT)
            with self.witnesses.transaction():
                self.witnesses.put_delta(delta, witness)
                # What `put_batch` does at twice the cost: a root of fresh salts has no operations yet.
                for index, (leaf, operation) in enumerate(zip(leaves, operations, strict=True)):
                    self.witnesses._insert(
                        Place(OPERATION.name, found.root, index), leaf, OPERATION.to_bytes(operation)
                    )
            self.outbox.record_state([draft], State.QUEUED)
        return found, delta, after

    def queue_again(self, space_id: Bytes32, head: Head, witness: Witness, authorizer: Signer | None) -> Head:
        """Write a delta down whose witness is kept at its place already, and return the head after it."""
        item, _, after = self._build(space_id, head, witness, authorizer)
        self.outbox.add([item])
        return after

    def load_head(self, space_id: Bytes32, authorizer: Signer | None) -> Head:
        """Return a space's head, once the authorizer is the space's, or nobody; the node is asked once for both.

        Errors: `InvalidAuthorization`, `UnknownSpace`; the node's.
        """
        calls = [
            ("eth_call", [{"to": str(self.registry.address), "data": "0x" + (selector + space_id).hex()}, "latest"])
            for selector in (compute_selector(FUNCTIONS[view]) for view in ("head", "spaceAuthorization"))
        ]
        head, authorization = (read_words(answer, 3) for answer in batch(self.registry.w3, calls))
        if not any(authorization[1]):  # a registry that answers zeros instead of reverting
            raise UnknownSpace
        if authorizer is not None and authorization[1] != authorizer.address.word:
            raise InvalidAuthorization
        return Head(head[0], head[1], int.from_bytes(head[2], "big"))

    def refused(self, space_id: Bytes32) -> list[Item]:
        """Return the space's items that the registry refused."""
        return [
            item
            for item in self.outbox.items(State.REFUSED)
            if (item.chain_id, item.target, item.lane)
            == (self.registry.chain_id, self.registry.address, bytes(space_id))
        ]

    def retry(self, space_id: Bytes32, authorizer: Signer | None) -> list[ExperienceDelta]:
        """Build what was refused or is in conflict anew on the current head, in its old order. Errors: those of
        `rebuild`."""
        return self.rebuild(space_id, authorizer)

    def is_in_space(self, space_id: Bytes32, sequence: int, witness: Witness, lane: dict[int, Item]) -> bool:
        """Return whether a witness is that of the delta at a sequence: of the one that waits, or that was committed."""
        item = lane.get(sequence)
        commitments = witness.compute_commitments()
        if item is not None:
            delta = delta_of(item)
            found = (delta.delta_commitment, delta.provenance_commitment, delta.locator_commitment)
            return found == commitments
        return self.is_committed(space_id, sequence, witness)

    def lane(self, space_id: Bytes32) -> dict[int, Item]:
        """Return the space's items by sequence."""
        return {item.position: item for item in self._lane(space_id)}


def read_words(answer: Answer, count: int) -> list[Bytes32]:
    """Return the words that a call answered. Errors: the answer's own; `NodeRefused` for anything but so many words."""
    if answer.error is not None:
        raise answer.error
    try:
        data = to_bytes(answer.result)
        if len(data) == 32 * count:
            return [Bytes32(data[start : start + 32]) for start in range(0, len(data), 32)]
    except ValueError:
        pass
    raise NodeRefused("eth_call", f"what it answers is not {count} words")
