"""Deltas in an outbox: written down with their witness before anything goes out, rebuilt only when asked.

A space is a lane, a sequence number a position, and the state root after a delta the effect by which its landing shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from melete.chain.errors import LaneLost, LaneMoving, LaneStopped, WitnessesLost
from melete.chain.outbox import Item, Outbox, State
from melete.chain.reverts import compute_selector
from melete.chain.rpc import Answer, batch, to_bytes
from melete.chain.rules import Judged, Rules, Verdict
from melete.chain.scan.blocks import BlockReference, load_block
from melete.errors import (
    BadPreviousState,
    BadSequence,
    ContractError,
    InvalidAuthorization,
    MeleteError,
    NoContract,
    NodeRefused,
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
#: Witnesses from this number on are nobody's: what was given up stands there.
SET_ASIDE: Final = 2**63
#: How far before the head a witness is looked for whose place somebody else took.
MOST_LOOKED_AT: Final = 1_000


class LeftOver(NamedTuple):
    """What cannot go on as it is: items, and the numbers of witnesses; and the head that it would come after."""

    tail: Head
    stale: list[Item]
    numbers: set[int]


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

        That is what is in conflict or was refused, all that waits behind it, and what the witness store keeps and
        neither this outbox nor the chain knows of. What the chain shows to be committed is left alone, whatever the
        outbox holds it for. Payloads stay, their place in the history changes; whether that is right, only the caller
        knows.
        Errors: `WitnessMissing`, `WitnessErased` when what opens one of them is not kept; `LaneMoving` while others are
        on their way, `LaneLost` while what was done is gone; `OutboxBusy`; `InvalidAuthorization`; the node's.
        """
        space_id = Bytes32(space_id, "spaceId")
        with self.outbox.acting(), self.outbox.adding():
            self.recover()
            self._check_authorizer(space_id, authorizer)
            left = self._left_over(space_id)
            head, items, deltas, numbers = left.tail, [], [], {}
            for number in sorted(left.numbers):
                item, delta, head = self._build(
                    space_id, head, self.witnesses.get(DELTA.place(space_id, number)), authorizer
                )
                items.append(item)
                deltas.append(delta)
                numbers[number] = delta.sequence
            # The store first: killed in between, the items are as they were, and their witnesses are found again.
            self.witnesses.move(DELTA, space_id, {old: new for old, new in numbers.items() if old != new})
            self.outbox.replace(left.stale, items)
        return deltas

    def withdraw(self, space_id: Bytes32, *, dry_run: bool = False) -> list[int]:
        """Give up what `rebuild` would build anew. Return its positions; with `dry_run`, that alone.

        None of it is committed, as the chain stands. Its places are free then; its witnesses stay in the store, out of
        the way, and are found by what they open: the chain may go back to where it was. Errors: as `rebuild`, but for
        the authorizer's.
        """
        space_id = Bytes32(space_id, "spaceId")
        with self.outbox.acting(), self.outbox.adding():
            self.recover()
            left = self._left_over(space_id, also_erased=True)
            positions = sorted({*(item.position for item in left.stale), *left.numbers})
            if not dry_run:
                self._set_aside(space_id, left.numbers)
                self.outbox.record_state(left.stale, State.REPLACED, "withdrawn")
        return positions

    def _left_over(self, space_id: Bytes32, *, also_erased: bool = False) -> LeftOver:
        """Find what cannot go on as it is, by the chain, the outbox and the witness store together."""
        block = load_block(self.registry.w3, "latest")
        head = self.registry.head(space_id, block.number)
        stale = self._judge_stale(self._stale(space_id), block)
        standing = self._lane(space_id)
        for item in standing:
            if item.state is State.SENT or (item.state is State.MINED and item.position > head.sequence):
                raise LaneMoving(space_id, item.position)
            if item.state is State.DONE and item.position > head.sequence:
                raise LaneLost(space_id, item.position, head.sequence)
        waiting = [item for item in standing if item.state is State.QUEUED and not stale]
        tail = head
        if waiting:
            delta = delta_of(waiting[-1])
            tail = Head(compute_transition_id(delta), waiting[-1].effect, waiting[-1].position)
        numbers = {entry.number for entry in (self._find_own(space_id, item, head, block) for item in stale) if entry}
        known = numbers | {item.position for item in waiting}
        numbers |= self._lost(space_id, head, known, block, also_erased=also_erased)
        return LeftOver(tail, stale, numbers)

    def _judge_stale(self, stale: Sequence[Item], block: BlockReference) -> list[Item]:
        """Return those that the chain still does not know; note what landed, and what can simply wait again."""
        verdicts = MemoryRules().judge(self.registry.w3, stale, block.number) if stale else []
        for verdict in verdicts:
            if not isinstance(verdict, Verdict):
                raise verdict
        left = []
        for item, verdict in zip(stale, verdicts, strict=True):
            if verdict is Verdict.LANDED:
                self.outbox.record_mined([(item, block.number, block.hash)])
            else:
                left.append((item, verdict))
        if left and left[0][1] is Verdict.DUE and all(item.state is not State.REFUSED for item, _ in left):
            self.outbox.record_state([item for item, _ in left], State.QUEUED)
            return []
        return [item for item, _ in left]

    def _stale(self, space_id: Bytes32) -> list[Item]:
        """Return what stands still in a lane, and what waits behind it."""
        stopped = self._lane(space_id, *STOPPED)
        return self._lane(space_id, *STOPPED, State.QUEUED) if stopped else []

    def _find_own(self, space_id: Bytes32, item: Item, head: Head, block: BlockReference) -> Entry | None:
        """Return the entry of a stale item's witness: at its own place, or where a rebuild that was killed put it.

        None where another outbox got the very same change committed: then nothing is left to do for this one.
        """
        delta = delta_of(item)
        found = [entry for entry in self._entries(delta) if entry.scope == space_id]
        for entry in sorted(found, key=lambda entry: entry.number != item.position):
            if entry.number < SET_ASIDE and entry.record is not None and not self._is_at(space_id, entry, head, block):
                return entry
        if any(entry.record is not None and entry.number < SET_ASIDE for entry in found):
            return None
        raise (WitnessErased if found else WitnessMissing)(*DELTA.place(space_id, item.position))

    def _lost(
        self, space_id: Bytes32, head: Head, known: set[int], block: BlockReference, *, also_erased: bool
    ) -> set[int]:
        """Return the numbers of witnesses that belong to no committed delta, and to none that the outbox knows.

        Behind the head all are, up to the first gap. Before it, those whose place somebody else's delta took: looked
        for from the head down, to the first that is committed.
        """
        lost: set[int] = set()
        for number in itertools.count(head.sequence + 1):
            if number in known:
                continue
            entry = self._entry_at(space_id, number)
            if entry is None:
                break
            if entry.record is not None or also_erased:
                lost.add(number)
            else:
                raise WitnessErased(*entry.place)
        for number in range(head.sequence, max(0, head.sequence - MOST_LOOKED_AT), -1):
            entry = None if number in known else self._entry_at(space_id, number)
            if entry is None or entry.record is None:
                continue
            if self._is_at(space_id, entry, head, block):
                break
            lost.add(number)
        return lost

    def _is_at(self, space_id: Bytes32, entry: Entry, head: Head, block: BlockReference) -> bool:
        """Return whether the delta that was committed at an entry's number, in a block's state, is the entry's."""
        number = entry.number
        return number <= head.sequence and self.is_committed(space_id, number, entry.record, block.number)

    def is_committed(
        self, space_id: Bytes32, sequence: int, witness: Witness, block: int | Literal["latest"] = "latest"
    ) -> bool:
        """Return whether the delta that the registry took at a sequence is the one that a witness opens."""
        try:
            before = self.registry.state_root_at(space_id, sequence - 1, block) if sequence > 1 else ZERO_BYTES32
            after = self.registry.state_root_at(space_id, sequence, block)
        except ContractError:  # a registry without our views
            events = (event for event in self.registry.transitions(space_id) if event.delta.sequence == sequence)
            return any(event.delta.delta_commitment == witness.compute_commitments()[0] for event in events)
        delta = witness.build_delta(space_id, Head(ZERO_BYTES32, before, sequence - 1))
        return Transition.of(delta).next_state_root == after

    def _entry_at(self, space_id: Bytes32, number: int) -> Entry | None:
        place = DELTA.place(space_id, number)
        try:
            record: Witness | None = self.witnesses.get(place)
        except WitnessMissing:
            return None
        except WitnessErased:
            record = None
        return Entry(*place, ZERO_BYTES32 if record is None else DELTA.commit(record), record)

    def _set_aside(self, space_id: Bytes32, numbers: Collection[int]) -> None:
        """Free the places of witnesses. A note that one was erased goes."""
        with self.witnesses.transaction():
            rows = list(self.witnesses.list_rows(DELTA, space_id))
            free = max([SET_ASIDE - 1, *(row.place.number for row in rows)]) + 1
            erased = [row.place for row in rows if row.place.number in numbers and row.erased]
            self.witnesses.discard(erased)
            moving = sorted(set(numbers) - {place.number for place in erased})
            self.witnesses.move(DELTA, space_id, {number: free + step for step, number in enumerate(moving)})

    def _check_authorizer(self, space_id: Bytes32, authorizer: Signer | None) -> None:
        """Refuse a signer who is not the space's authorizer, before anything is written down."""
        if authorizer is not None and authorizer.address != self.registry.authorization(space_id).authorizer:
            raise InvalidAuthorization

    def _is_kept(self, delta: ExperienceDelta) -> bool:
        return any(entry.place == DELTA.place(delta.space_id, delta.sequence) for entry in self._entries(delta))

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

    def judge(self, w3: Web3, items: Sequence[Item], block: int) -> list[Judged]:
        """Return what the registry says of each item, from two calls each, of one block."""
        calls = [request for item in items for request in (_head_call(item, block), _root_call(item, block))]
        answers = batch(w3, calls)
        pairs = zip(items, answers[::2], answers[1::2], strict=True)
        return [self._judge(w3, item, head, root, block) for item, head, root in pairs]

    def may_pass(self, item: Item, error: ContractError) -> bool:
        """A delta without a signature is approved by whoever sends it: another account may. And what is told of the
        state, the state itself has to show."""
        if isinstance(error, InvalidAuthorization):
            return not signature_of(item)
        return isinstance(error, BadSequence | BadPreviousState | UnknownSpace)

    def _judge(self, w3: Web3, item: Item, head_answer: Answer, root_answer: Answer, block: int) -> Judged:
        if isinstance(head_answer.error, UnknownSpace):
            return Verdict.WAITS  # a node may be behind, and a registration may come again
        if head_answer.error is not None:
            return head_answer.error
        words = to_bytes(head_answer.result)
        if len(words) != 96:
            return NoContract(item.target, item.chain_id)
        state_root, sequence = Bytes32(words[32:64]), int.from_bytes(words[64:96], "big")
        if sequence >= item.position:
            try:
                root = self._root_at(w3, item, root_answer, state_root, sequence, block)
            except MeleteError as error:
                return error
            return Verdict.LANDED if root == item.effect else Verdict.CONFLICT
        if sequence < item.position - 1:
            return Verdict.WAITS
        return Verdict.DUE if delta_of(item).prev_state_root == state_root else Verdict.CONFLICT

    def _root_at(self, w3: Web3, item: Item, answer: Answer, state_root: Bytes32, sequence: int, block: int) -> Bytes32:
        """Return the root after an item's position, from the view, the head, or the event."""
        if sequence == item.position:
            return state_root
        if answer.error is None and len(to_bytes(answer.result)) == 32:
            root = Bytes32(answer.result)
            if root == ZERO_BYTES32:
                raise NodeRefused("eth_call", "head and stateRootAt are not of one state; another node may do better")
            return root
        transition_id = compute_transition_id(delta_of(item))
        topics = [str(keccak256(TRANSITION_COMMITTED.encode())), "0x" + item.lane.hex(), str(transition_id)]
        query = {
            "address": str(item.target), "fromBlock": hex(self._first_block), "toBlock": hex(block), "topics": topics,
        }  # fmt: skip
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


def _head_call(item: Item, block: int) -> tuple[str, list[object]]:
    return _view_call(item, "head", item.lane, block)


def _root_call(item: Item, block: int) -> tuple[str, list[object]]:
    return _view_call(item, "stateRootAt", item.lane + uint_word(item.position), block)


def _view_call(item: Item, view: str, arguments: bytes, block: int) -> tuple[str, list[object]]:
    data = compute_selector(FUNCTIONS[view]) + arguments
    return "eth_call", [{"to": str(item.target), "data": "0x" + data.hex()}, hex(block)]
