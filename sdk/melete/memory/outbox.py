"""Deltas in an outbox: written down with their witness before anything goes out, rebuilt only when asked.

A space is a lane, a sequence number a position, and the state root after a delta the effect by which its landing shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from melete.chain.outbox import Item, Outbox, State
from melete.chain.reverts import compute_selector
from melete.chain.rpc import Answer, batch, to_bytes
from melete.chain.submitter import Verdict
from melete.errors import InvalidAuthorization, InvalidInput, UnknownSpace, WitnessMissing
from melete.memory.delta import ExperienceDelta, compute_transition_id
from melete.memory.events import TRANSITION_COMMITTED
from melete.memory.history import Transition
from melete.memory.registry import FUNCTIONS, MemoryRegistry
from melete.memory.space import Head
from melete.memory.witness import Witness
from melete.memory.witness_kinds import DELTA, Entry
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256, uint_word
from melete.signing import LocalSigner, Signer

if TYPE_CHECKING:
    from web3 import Web3


class MemoryOutbox:
    """Deltas of one registry, waiting in an outbox; what opens them is kept in a witness store."""

    def __init__(self, outbox: Outbox, registry: MemoryRegistry, witnesses: WitnessStore) -> None:
        self.outbox = outbox
        self.registry = registry
        self.witnesses = witnesses

    def add(self, space_id: Bytes32, witnesses: Iterable[Witness], authorizer: Signer | None) -> list[ExperienceDelta]:
        """Build a delta for each witness on what is already waiting, sign them, and write all of it down.

        Without an authorizer the account that sends has to be it. Returns the deltas, in order, once they and their
        witnesses are on disk. Killed before that, all of them wait, or none is known (`recover` decides).
        Errors: `UnknownSpace`; `InvalidAuthorization` for a signer that the registry would refuse; `InvalidInput`
        while the lane holds a conflict.
        """
        space_id = Bytes32(space_id, "spaceId")
        with self.outbox.adding():
            self.recover()
            head = self.tail(space_id)
            self._check_authorizer(space_id, authorizer)
            items, opened = [], []
            for witness in witnesses:
                item, delta, head = self._build(space_id, head, witness, authorizer)
                items.append(item)
                opened.append((delta, witness))
            drafts = self.outbox.add(items, State.DRAFT)
            with self.witnesses.transaction():
                for delta, witness in opened:
                    self.witnesses.put_delta(delta, witness)
            self.outbox.record_state(drafts, State.QUEUED)
        return [delta for delta, _ in opened]

    def recover(self) -> None:
        """Finish what a killed `add` began: drafts whose witnesses are kept wait from now on, others are forgotten."""
        with self.outbox.adding():
            drafts = [item for item in self.outbox.items(State.DRAFT) if item.target == self.registry.address]
            kept = [item for item in drafts if self._is_kept(delta_of(item))]
            self.outbox.record_state(kept, State.QUEUED)
            self.outbox.drop(item for item in drafts if item not in kept)

    def tail(self, space_id: Bytes32) -> Head:
        """Return the head that a space will have when everything that waits for it has landed.

        Errors: as `tail_after`; `UnknownSpace`.
        """
        return self.tail_after(space_id, self.registry.head(space_id))

    def tail_after(self, space_id: Bytes32, head: Head) -> Head:
        """Return the head that a space will have when everything that waits for it has landed on this one.

        Errors: `InvalidInput` for a space with conflicts.
        """
        if self._lane(space_id, State.CONFLICT):
            raise InvalidInput("space", space_id, "free of conflicts: rebuild what waits first")
        last = self.outbox.last(self.registry.chain_id, self.registry.address, bytes(space_id))
        if last is not None and last.position > head.sequence:
            return Head(compute_transition_id(delta_of(last)), last.effect, last.position)
        return head

    def rebuild(self, space_id: Bytes32, authorizer: Signer | None) -> list[ExperienceDelta]:
        """Build conflicting deltas anew on the current head, from their witnesses, in their old order.

        Their payloads stay, their place in the history changes; whether that is right, only the caller knows.
        Errors: `WitnessMissing` when what opens one of them is not kept.
        """
        space_id = Bytes32(space_id, "spaceId")
        stale = self._lane(space_id, State.CONFLICT)
        head = self.registry.head(space_id)
        self._check_authorizer(space_id, authorizer)
        items, deltas, numbers = [], [], {}
        for old in stale:
            entry = self._find(space_id, delta_of(old))
            item, delta, head = self._build(space_id, head, entry.record, authorizer)
            numbers[entry.number] = delta.sequence
            items.append(item)
            deltas.append(delta)
        # The store first: killed in between, the items are still in conflict, and their witnesses are found again.
        self.witnesses.move(DELTA, space_id, {old: new for old, new in numbers.items() if old != new})
        self.outbox.replace(stale, items)
        return deltas

    def _check_authorizer(self, space_id: Bytes32, authorizer: Signer | None) -> None:
        """Refuse a signer who is not the space's authorizer, before anything is written down."""
        if authorizer is not None and authorizer.address != self.registry.authorization(space_id).authorizer:
            raise InvalidAuthorization

    def _is_kept(self, delta: ExperienceDelta) -> bool:
        return any(entry.place == DELTA.place(delta.space_id, delta.sequence) for entry in self._entries(delta))

    def _find(self, space_id: Bytes32, delta: ExperienceDelta) -> Entry:
        """Return the entry of a delta's witness, wherever in the space it is kept by now."""
        for entry in self._entries(delta):
            if entry.scope == space_id and entry.record is not None:
                return entry
        raise WitnessMissing(*DELTA.place(space_id, delta.sequence))

    def _entries(self, delta: ExperienceDelta) -> list[Entry]:
        return [entry for entry in self.witnesses.find(delta.delta_commitment) if entry.kind == DELTA.name]

    def _lane(self, space_id: Bytes32, *states: State) -> list[Item]:
        return self.outbox.lane(self.registry.chain_id, self.registry.address, bytes(space_id), *states)

    def _build(
        self, space_id: Bytes32, head: Head, witness: Witness, authorizer: Signer | None
    ) -> tuple[Item, ExperienceDelta, Head]:
        delta = witness.build_delta(space_id, head)
        transition = Transition.of(delta)
        digest = self.registry.domain.digest(transition.transition_id)
        signature = b""
        if authorizer is not None:
            signature = authorizer.sign_digest(digest)
            # A key of ours is known to sign rightly; what anything else gives is judged as the registry would.
            trusted = isinstance(authorizer, LocalSigner)
            if not trusted and not self.registry.is_approved(authorizer.address, digest, signature):
                raise InvalidAuthorization
        item = Item(
            chain_id=self.registry.chain_id,
            target=self.registry.address,
            lane=bytes(space_id),
            position=delta.sequence,
            effect=transition.next_state_root,
            data=self.registry.commit_call(delta, signature),
        )
        return item, delta, Head(transition.transition_id, transition.next_state_root, delta.sequence)


class MemoryRules:
    """What the state of an Agent Memory State registry says of deltas; also of one without our views."""

    def __init__(self, first_block: int = 0) -> None:
        """`first_block` is the registry's, for registries that can only be asked for events."""
        self._first_block = first_block

    def judge(self, w3: Web3, items: Sequence[Item]) -> list[Verdict]:
        """Return what the registry says of each item, from two calls each, sent as one request."""
        calls = [request for item in items for request in (_head_call(item), _root_call(item))]
        answers = batch(w3, calls)
        pairs = zip(items, answers[::2], answers[1::2], strict=True)
        return [self._judge(w3, item, head, root) for item, head, root in pairs]

    def _judge(self, w3: Web3, item: Item, head_answer: Answer, root_answer: Answer) -> Verdict:
        if isinstance(head_answer.error, UnknownSpace):
            return Verdict.REFUSED
        if head_answer.error is not None:
            raise head_answer.error
        words = to_bytes(head_answer.result)
        state_root, sequence = Bytes32(words[32:64]), int.from_bytes(words[64:96], "big")
        if sequence >= item.position:
            landed = self._root_at(w3, item, root_answer, state_root, sequence) == item.effect
            return Verdict.LANDED if landed else Verdict.CONFLICT
        if sequence < item.position - 1:
            return Verdict.WAITS
        return Verdict.DUE if delta_of(item).prev_state_root == state_root else Verdict.CONFLICT

    def _root_at(self, w3: Web3, item: Item, answer: Answer, state_root: Bytes32, sequence: int) -> Bytes32:
        """Return the root after an item's position, from the view, the head, or the event."""
        if answer.error is None and len(to_bytes(answer.result)) == 32:
            return Bytes32(answer.result)
        if sequence == item.position:
            return state_root
        transition_id = compute_transition_id(delta_of(item))
        topics = [str(keccak256(TRANSITION_COMMITTED.encode())), "0x" + item.lane.hex(), str(transition_id)]
        query = {"address": str(item.target), "fromBlock": hex(self._first_block), "topics": topics}
        (found,) = batch(w3, [("eth_getLogs", [query])])
        if found.error is not None:
            raise found.error
        return item.effect if found.result else ZERO_BYTES32


def delta_of(item: Item) -> ExperienceDelta:
    """Return the delta that an item's calldata carries."""
    words = [item.data[4 + start : 36 + start] for start in range(0, 224, 32)]
    space_id, sequence, *others = words
    return ExperienceDelta(Bytes32(space_id), int.from_bytes(sequence, "big"), *(Bytes32(word) for word in others))


def _head_call(item: Item) -> tuple[str, list[object]]:
    return _view_call(item, "head", item.lane)


def _root_call(item: Item) -> tuple[str, list[object]]:
    return _view_call(item, "stateRootAt", item.lane + uint_word(item.position))


def _view_call(item: Item, view: str, arguments: bytes) -> tuple[str, list[object]]:
    data = compute_selector(FUNCTIONS[view]) + arguments
    return "eth_call", [{"to": str(item.target), "data": "0x" + data.hex()}, "latest"]
