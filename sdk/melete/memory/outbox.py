"""Deltas in an outbox: written down with their witness before anything goes out, rebuilt only when asked.

A space is a lane, a sequence number a position, and the state root after a delta the effect by which its landing shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from melete.chain.errors import LaneLost, LaneMoving, LaneStopped, WitnessesLost
from melete.chain.outbox import Item, Outbox, State
from melete.chain.reverts import compute_selector
from melete.chain.rpc import Answer, batch, to_bytes
from melete.chain.rules import Rules, Verdict
from melete.errors import (
    ContractError,
    InvalidAuthorization,
    NoContract,
    PlaceTaken,
    UnknownSpace,
    WitnessErased,
    WitnessMissing,
)
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


#: What stands still until somebody decides about it.
STOPPED: Final = (State.CONFLICT, State.REFUSED)


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
        Errors: those of `tail`; `InvalidAuthorization` for a signer that the registry would refuse; `WitnessesLost`
        where the store keeps witnesses of deltas that the outbox does not know.
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
            try:
                with self.witnesses.transaction():
                    for delta, witness in opened:
                        self.witnesses.put_delta(delta, witness)
            except (PlaceTaken, WitnessErased) as error:
                self.outbox.drop(drafts)
                raise WitnessesLost(space_id, error.number) from None
            self.outbox.record_state(drafts, State.QUEUED)
        return [delta for delta, _ in opened]

    def recover(self) -> None:
        """Finish what a killed `add` began: drafts whose witnesses are kept wait from now on, others are forgotten."""
        with self.outbox.adding():
            drafts = [
                item
                for item in self.outbox.items(State.DRAFT, chain_id=self.registry.chain_id)
                if item.target == self.registry.address
            ]
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

        Errors: `LaneStopped` for a space with deltas in conflict, or refused; `LaneLost` where the chain no longer
        shows what was done.
        """
        for item in self._lane(space_id, *STOPPED):
            reason = "somebody else's change came first: a conflict" if item.state is State.CONFLICT else "refused"
            raise LaneStopped(space_id, item.position, f"{reason}; {item.reason}" if item.reason else reason)
        last = self.outbox.last(self.registry.chain_id, self.registry.address, bytes(space_id))
        if last is None or last.position <= head.sequence:
            return head
        if last.state is State.DONE:
            raise LaneLost(space_id, last.position, head.sequence)
        return Head(compute_transition_id(delta_of(last)), last.effect, last.position)

    def rebuild(self, space_id: Bytes32, authorizer: Signer | None) -> list[ExperienceDelta]:
        """Build anew, on the current head and in their old order, what cannot go on as it is, and sign it.

        That is what is in conflict or was refused, all that waits behind it, and what the witness store keeps behind
        it all and this outbox does not know of. Payloads stay, their place in the history changes; whether that is
        right, only the caller knows.
        Errors: `WitnessMissing` when what opens one of them is not kept; `LaneMoving` while others are on their way;
        `OutboxBusy`; `InvalidAuthorization`.
        """
        space_id = Bytes32(space_id, "spaceId")
        with self.outbox.acting(), self.outbox.adding():
            self.recover()
            stale = self._stale(space_id)
            head = self.registry.head(space_id)
            self._check_authorizer(space_id, authorizer)
            if not stale:
                head = self.tail_after(space_id, head)
            items, deltas, numbers = [], [], {}
            for old in stale:
                entry = self._find(space_id, delta_of(old))
                item, delta, head = self._build(space_id, head, entry.record, authorizer)
                numbers[entry.number] = delta.sequence
                items.append(item)
                deltas.append(delta)
            # What a lost outbox held, or one of another name.
            for number, record in self._kept_after(space_id, max(numbers, default=head.sequence)):
                if record is None:
                    raise WitnessErased(*DELTA.place(space_id, number))
                item, delta, head = self._build(space_id, head, record, authorizer)
                numbers[number] = delta.sequence
                items.append(item)
                deltas.append(delta)
            # The store first: killed in between, the items are as they were, and their witnesses are found again.
            self.witnesses.move(DELTA, space_id, {old: new for old, new in numbers.items() if old != new})
            self.outbox.replace(stale, items)
        return deltas

    def withdraw(self, space_id: Bytes32, *, dry_run: bool = False) -> list[int]:
        """Give up what is in conflict or was refused, all that waits behind it, and what the witness store keeps
        behind it all and this outbox does not know of. Return the positions; with `dry_run`, that alone.

        None of it was ever committed. Its witnesses go from the store, and its places are free.
        Errors: as `rebuild`, but for the authorizer's.
        """
        space_id = Bytes32(space_id, "spaceId")
        with self.outbox.acting(), self.outbox.adding():
            self.recover()
            stale = self._stale(space_id)
            kept = {item.position: self._kept(delta_of(item)) for item in stale}
            end = max(kept) if kept else self.tail_after(space_id, self.registry.head(space_id)).sequence
            alone = [number for number, _ in self._kept_after(space_id, end)]
            if not dry_run:
                numbers = [entry.number for entry in kept.values() if entry is not None]
                self.witnesses.discard(DELTA.place(space_id, number) for number in (*numbers, *alone))
                self.outbox.record_state(stale, State.REPLACED, "withdrawn")
        return [*kept, *alone]

    def _stale(self, space_id: Bytes32) -> list[Item]:
        """Return what stands still in a lane, and what waits behind it."""
        stopped = self._lane(space_id, *STOPPED)
        if not stopped:
            return []
        for item in self._lane(space_id, State.SENT, State.MINED):
            if item.position > stopped[0].position:
                raise LaneMoving(space_id, item.position)
        return self._lane(space_id, *STOPPED, State.QUEUED)

    def _kept_after(self, space_id: Bytes32, sequence: int) -> Iterator[tuple[int, Witness | None]]:
        """Yield what the store keeps behind a sequence without a gap; None for what was erased."""
        while True:
            sequence += 1
            try:
                yield sequence, self.witnesses.get(DELTA.place(space_id, sequence))
            except WitnessErased:
                yield sequence, None
            except WitnessMissing:
                return

    def _check_authorizer(self, space_id: Bytes32, authorizer: Signer | None) -> None:
        """Refuse a signer who is not the space's authorizer, before anything is written down."""
        if authorizer is not None and authorizer.address != self.registry.authorization(space_id).authorizer:
            raise InvalidAuthorization

    def _is_kept(self, delta: ExperienceDelta) -> bool:
        return any(entry.place == DELTA.place(delta.space_id, delta.sequence) for entry in self._entries(delta))

    def _find(self, space_id: Bytes32, delta: ExperienceDelta) -> Entry:
        """Return the entry of a delta's witness, wherever in the space it is kept by now."""
        entry = self._kept(delta)
        if entry is None:
            raise WitnessMissing(*DELTA.place(space_id, delta.sequence))
        return entry

    def _kept(self, delta: ExperienceDelta) -> Entry | None:
        for entry in self._entries(delta):
            if entry.scope == delta.space_id and entry.record is not None:
                return entry
        return None

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


class MemoryRules(Rules):
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

    def may_pass(self, item: Item, error: ContractError) -> bool:
        """A delta without a signature is approved by whoever sends it: another account may."""
        return isinstance(error, InvalidAuthorization) and not signature_of(item)

    def _judge(self, w3: Web3, item: Item, head_answer: Answer, root_answer: Answer) -> Verdict:
        if isinstance(head_answer.error, UnknownSpace):
            return Verdict.REFUSED
        if head_answer.error is not None:
            raise head_answer.error
        words = to_bytes(head_answer.result)
        if len(words) != 96:
            raise NoContract(item.target, item.chain_id)
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


def signature_of(item: Item) -> bytes:
    """Return the approval that an item's calldata carries; empty for one that its sender gives by sending."""
    start = 4 + 8 * 32  # after the selector, the delta's seven words and the offset
    length = int.from_bytes(item.data[start : start + 32], "big")
    return item.data[start + 32 : start + 32 + length]


def _head_call(item: Item) -> tuple[str, list[object]]:
    return _view_call(item, "head", item.lane)


def _root_call(item: Item) -> tuple[str, list[object]]:
    return _view_call(item, "stateRootAt", item.lane + uint_word(item.position))


def _view_call(item: Item, view: str, arguments: bytes) -> tuple[str, list[object]]:
    data = compute_selector(FUNCTIONS[view]) + arguments
    return "eth_call", [{"to": str(item.target), "data": "0x" + data.hex()}, "latest"]
