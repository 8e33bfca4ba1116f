"""Sending what an outbox holds: in batches, resumably, and exactly once.

Accepted by the node is not mined, and mined is not done; even what was done is looked at again, for a re-organization
may be deeper than anybody expected. Every answer may be lost, every transaction may vanish or be replaced, the process
may die between any two lines; so nothing here relies on an answer. What counts is what the chain shows: a receipt in a
block that is still canonical, or the item's effect in the registry's state. A registry takes each position once, so
sending again can never do a thing twice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from melete.chain.connection import check_chain
from melete.chain.errors import NodeBehind
from melete.chain.fees import Fees, load_fees
from melete.chain.nonces import Meaning, count_pending, read_send_answer, turn_of
from melete.chain.outbox import Item, Outbox, Place, State
from melete.chain.rpc import Answer, batch, one, to_int
from melete.chain.rules import Judged, Rules, RulesByFunction, Verdict
from melete.chain.scan.blocks import BlockReference
from melete.chain.transactions import TransactionSigner
from melete.errors import ContractError, InvalidInput, MeleteError, NodeRefused
from melete.primitives import Bytes32, uint

if TYPE_CHECKING:
    from web3 import Web3

__all__ = [
    "BATCH",
    "CONFIRMATIONS",
    "PATIENCE_SECONDS",
    "WINDOW",
    "Progress",
    "Rules",
    "RulesByFunction",
    "Submitter",
    "Verdict",
]

#: How many blocks on top of an item's own make it done, unless told otherwise.
CONFIRMATIONS: Final = 12
#: How many items are signed and sent in one request, and how many may be on their way at a time.
BATCH: Final = 200
WINDOW: Final = 1_000
#: A transaction that is not in a block after so many seconds is sent again with higher fees.
PATIENCE_SECONDS: Final = 90.0
#: While the node's last block is the same, nothing is asked of it about what is on its way; but for this long at most,
#: because several nodes may answer at one address.
LOOK_AGAIN_SECONDS: Final = 10.0
#: Looks that would find little are this far apart.
COALESCE_SECONDS: Final = 0.05
#: How long nonces may be missing before ours before ours are given up: another program may be about to use them.
GAP_SECONDS: Final = 10.0
#: How often in a row a contract has to refuse an item, by a state that seems right, until that is believed; how often
#: its transactions may revert; how often its nonce may turn out to be another's.
REFUSALS: Final = 3
REVERTS: Final = 3
TAKEN: Final = 5
NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come with the items that it is about; handed to the caller after every step."""

    queued: int
    sent: int
    mined: int
    done: int
    stopped: int


@dataclass(frozen=True, slots=True)
class _ChainEnd:
    """The node's last block, and how many nonces of the account are used up to it, and with what waits for a block."""

    block: BlockReference
    used: int
    pending: int


@dataclass
class _Memory:
    """What one run learns, and the next forgets."""

    #: Lanes that cannot go on in this run, and why.
    held: dict[Place, MeleteError] = field(default_factory=dict)
    #: Lanes that wait for others, and the block whose state said so.
    waits: dict[Place, Bytes32] = field(default_factory=dict)
    #: When each item was sent last, and what it paid.
    sent_at: dict[int, float] = field(default_factory=dict)
    paid: dict[int, Fees] = field(default_factory=dict)
    #: How often an item's transaction reverted, and how often its nonce was another's.
    reverts: dict[int, int] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    #: The lowest nonce that may be free, if that is more than the node counts.
    least: int = 0
    #: The node's last block when all that is on its way was looked at last, and when that was.
    seen: Bytes32 | None = None
    looked_at: float = 0.0
    #: How many nonces were used then, and up to which there are transactions.
    used: int = 0
    highest: int = 0
    #: The lowest nonce of what is on its way, and since when the node waits for a lower one.
    lowest: int | None = None
    gap_since: float | None = None
    #: Since when the node's last block comes before one that something was done in.
    behind_since: float | None = None
    #: Since when something is in a block that the node does not have.
    above_since: float | None = None
    #: Whether what stands still was judged anew.
    revived: bool = False
    #: Whether something is to be tried again that was not sent.
    again: bool = False


@dataclass
class Submitter:
    """Sends the items of an outbox that belong to one chain, from one account.

    `confirmations` is a number of blocks, "safe" or "finalized" for what the chain itself calls so. Of several lanes in
    one outbox, `only` names those to send (contract and lane); None means all. `poll_seconds` is how long to wait
    between two looks at the chain, `patience_seconds` how long a transaction may take into a block before it is sent
    again. Errors: `InvalidInput` for settings that are none.
    """

    w3: Web3
    outbox: Outbox
    signer: TransactionSigner
    rules: Rules
    confirmations: int | str = CONFIRMATIONS
    poll_seconds: float = 0.25
    patience_seconds: float = PATIENCE_SECONDS
    only: Collection[Place] | None = None
    #: The gas that calls of a lane need, by their length.
    _gas: dict[tuple[Place, int], int] = field(default_factory=dict)
    _now: _Memory = field(default_factory=_Memory)

    def __post_init__(self) -> None:
        if isinstance(self.confirmations, str):
            if self.confirmations not in ("safe", "finalized"):
                raise InvalidInput("confirmations", self.confirmations, 'a number of blocks, "safe" or "finalized"')
        else:
            uint(self.confirmations, 64, "confirmations")
        for name in ("poll_seconds", "patience_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
                raise InvalidInput(name, value, "a number of seconds, not below 0")

    def run(self, *, until: State = State.DONE, progress: Callable[[Progress], None] | None = None) -> Progress:
        """Act until every item is done (or mined, if asked) or cannot be sent, and return the counts.

        What stands still is judged anew first. May be killed and called again at any point. Errors: `OutboxBusy` while
        another process acts on the outbox; the node's, with everything written down so that a later run goes on; and
        what keeps a lane from going on that may pass (a permission that is missing, a sender who is another, a contract
        that is not there), once there is nothing else to do: its items wait.
        """
        if until not in (State.MINED, State.DONE):
            raise InvalidInput("until", until, "State.MINED or State.DONE")
        until = State(until)
        chain_id = check_chain(self.w3, None)
        self._now = _Memory()
        with self.outbox.acting():
            while True:
                self._now.again = False
                end = self._chain_end()
                if self._is_behind(chain_id, end):
                    time.sleep(self.poll_seconds)
                    continue
                settled = self._settle(chain_id, end)
                sent = self._send(chain_id, end)
                now = self._progress(chain_id)
                if progress is not None:
                    progress(now)
                if not (sent or settled or self._now.again or self._waits_for_blocks(chain_id, now, until)):
                    break
                if not sent and not settled:
                    time.sleep(self.poll_seconds)
        for error in self._now.held.values():
            raise error
        return now

    def _waits_for_blocks(self, chain_id: int, now: Progress, until: State) -> bool:
        if self._now.above_since is not None:
            return True
        states = (State.SENT, State.MINED) if until is State.DONE else (State.SENT,)
        if not self._now.held:
            return bool(now.sent or (now.mined and until is State.DONE))
        return any(self.outbox.places(state, chain_id, self.only) - self._now.held.keys() for state in states)

    def _chain_end(self) -> _ChainEnd:
        account = str(self.signer.address)
        block, used, pending = batch(
            self.w3,
            [
                ("eth_getBlockByNumber", ["latest", False]),
                ("eth_getTransactionCount", [account, "latest"]),
                ("eth_getTransactionCount", [account, "pending"]),
            ],
        )
        for answer in (block, used, pending):
            if answer.error is not None:
                raise answer.error
        reference = BlockReference(to_int(block.result["number"]), Bytes32(block.result["hash"]))
        return _ChainEnd(reference, to_int(used.result), to_int(pending.result))

    def _is_behind(self, chain_id: int, end: _ChainEnd) -> bool:
        """Whether the node's last block comes before one that something was done in. Errors: `NodeBehind`, after a
        while."""
        memory, newest = self._now, self.outbox.done_blocks(chain_id, limit=1)
        if not newest or newest[0].number <= end.block.number:
            memory.behind_since = None
            return False
        now = time.monotonic()
        if memory.behind_since is None:
            memory.behind_since = now
        if now - memory.behind_since >= min(GAP_SECONDS, self.patience_seconds):
            raise NodeBehind(end.block.number, newest[0].number)
        return True

    # Settling: what became of what was sent

    def _settle(self, chain_id: int, end: _ChainEnd) -> bool:
        """Write down what the chain shows of the items on their way, and of those that were done; True if anything
        changed.

        A question for each of them is asked only when the chain has grown, and only for what can be in a block by now.
        Other lanes than `only` names are seen to as far as they concern this account, or blocks that are gone.
        """
        memory, now = self._now, time.monotonic()
        if end.block.hash == memory.seen and now - memory.looked_at < LOOK_AGAIN_SECONDS:
            return self._look_after(chain_id, end)
        some = memory.used + BATCH <= end.used or end.used > memory.highest
        if memory.revived and not some and now - memory.looked_at < COALESCE_SECONDS:
            return False  # on a fast chain, many blocks are looked at together
        is_first = not memory.revived
        changed = self._take_back_lost(chain_id, end)
        if changed or is_first:
            memory.revived = True
            changed |= self._revive(chain_id, end)
        # Without a receipt, a transaction whose nonce was used before this question is dead.
        due = [item for item in self.outbox.due(chain_id, self.signer.address, end.used) if self._concerns(item)]
        mined = [item for item in self.outbox.items(State.MINED, chain_id=chain_id) if self._concerns(item)]
        receipts = batch(self.w3, [("eth_getTransactionReceipt", [str(item.transaction_hash)]) for item in due])
        seen = [(item, answer.result) for item, answer in zip(due, receipts, strict=True) if answer.result]
        reverted = self._record_receipts(seen)
        for answer in receipts:
            if answer.error is not None:  # no answer is not the answer that there is no receipt
                raise answer.error
        dead = [item for item, answer in zip(due, receipts, strict=True) if not answer.result]
        for item in due:
            memory.sent_at.pop(item.id, None)
        if reverted or dead:
            # By a block that is no older than the nonces and receipts that were asked for.
            self._judge_again([*reverted, *dead], self._chain_end())
        nonces = self.outbox.waiting_nonces(chain_id, self.signer.address, end.used)
        memory.lowest, memory.highest = nonces or (None, 0)
        memory.used, memory.looked_at = end.used, now
        changed |= self._look_after(chain_id, end, at_once=is_first)
        changed |= bool(mined) and self._confirm(chain_id, mined, end)
        if not due and not changed and memory.above_since is None:
            memory.seen = end.block.hash
        return any(item.place not in memory.held for item in due) or changed

    def _look_after(self, chain_id: int, end: _ChainEnd, *, at_once: bool = False) -> bool:
        """Look after what waits for a block too long; True if anything was given up."""
        memory, now = self._now, time.monotonic()
        has_gap = memory.lowest is not None and memory.lowest > end.pending
        if not has_gap:
            memory.gap_since = None
        is_slow = any(now - sent_at > self.patience_seconds for sent_at in memory.sent_at.values())
        if not (has_gap or is_slow or (at_once and memory.lowest is not None)):
            return False
        waiting = self.outbox.waiting(chain_id, self.signer.address, end.used)
        self._hurry(waiting, end)
        return self._give_up_behind_gap(waiting, end)

    def _concerns(self, item: Item) -> bool:
        """Whether an item is this run's to see to: of its lanes, or of its account."""
        return self.only is None or item.place in self.only or item.sender == self.signer.address

    def _may_wait(self, item: Item, end: _ChainEnd) -> bool:
        """Whether a transaction may still get into a block: it is this account's, and its nonce is not used."""
        return item.sender == self.signer.address and item.raw is not None and (item.nonce or 0) >= end.used

    def _record_receipts(self, seen: Sequence[tuple[Item, dict[str, Any]]]) -> list[Item]:
        """Write down what is in a block, and return the items whose transactions reverted there."""
        worked = [
            (item, to_int(receipt["blockNumber"]), Bytes32(receipt["blockHash"]))
            for item, receipt in seen
            if to_int(receipt["status"]) == 1
        ]
        self.outbox.record_mined(worked)
        # A transaction that reverted did nothing; perhaps because a twin of it had landed, or for want of gas.
        reverted = [item for item, receipt in seen if to_int(receipt["status"]) != 1]
        for item in reverted:
            self._gas.pop(_gas_key(item), None)
            self._now.reverts[item.id] = self._now.reverts.get(item.id, 0) + 1
        return reverted

    def _hurry(self, waiting: Sequence[Item], end: _ChainEnd) -> None:
        """Send transactions again that wait for a block too long."""
        memory, now = self._now, time.monotonic()
        slow = [item for item in waiting if now - memory.sent_at.get(item.id, NEVER) > self.patience_seconds]
        known = [item for item in slow if item.id in memory.sent_at]
        if known:
            paid = [memory.paid[item.id] for item in known if item.id in memory.paid]
            fees = load_fees(self.w3).over(paid)
            self._broadcast(self._sign(known, [item.nonce or 0 for item in known], fees), end)
        # What an earlier run sent: the node may have forgotten it, and says so by taking it again.
        self._broadcast([item for item in slow if item.id not in memory.sent_at], end)

    def _give_up_behind_gap(self, waiting: Sequence[Item], end: _ChainEnd) -> bool:
        """Judge anew what can never get into a block, because no transaction has the nonces before its own."""
        memory = self._now
        if not waiting or min(item.nonce or 0 for item in waiting) <= end.pending:
            memory.gap_since = None
            return False
        now = time.monotonic()
        if memory.gap_since is None:
            memory.gap_since = now
        if now - memory.gap_since < min(GAP_SECONDS, self.patience_seconds):
            return False
        memory.gap_since, memory.least = None, 0
        self._judge_again(waiting, end)
        return True

    def _confirm(self, chain_id: int, mined: Sequence[Item], end: _ChainEnd) -> bool:
        """Move items deep enough to done, and those of orphaned blocks back."""
        mined = self._without_those_above(mined, end)
        if not mined:
            return False
        final = self._final_block(end.block)
        newest_done = self.outbox.done_blocks(chain_id, limit=1)
        numbers = {item.block_number or 0 for item in mined} | {block.number for block in newest_done}
        canonical = self._load_hashes(sorted(numbers))
        if any(canonical[block.number] != block.hash for block in newest_done):
            return True  # the chain went back just now: look at everything again first
        orphaned = [item for item in mined if canonical[item.block_number or 0] != item.block_hash]
        lost = {item.id for item in orphaned}
        done = [item for item in mined if item.id not in lost and (item.block_number or 0) <= final]
        self.outbox.record_state(done, State.DONE)
        self._take_back(orphaned, end)
        return bool(done) or any(item.place not in self._now.held for item in orphaned)

    def _without_those_above(self, mined: Sequence[Item], end: _ChainEnd) -> Sequence[Item]:
        """Leave out what is in blocks that the node does not have, for a while: it may be behind another one."""
        memory, now = self._now, time.monotonic()
        above = {item.id for item in mined if (item.block_number or 0) > end.block.number}
        if all(item.place in memory.held for item in mined if item.id in above):
            memory.above_since = None
            return mined
        if memory.above_since is None:
            memory.above_since = now
        is_early = now - memory.above_since < min(GAP_SECONDS, self.patience_seconds)
        return [item for item in mined if item.id not in above] if is_early else mined

    def _take_back_lost(self, chain_id: int, end: _ChainEnd) -> bool:
        """Take back what was done in blocks that the chain gave up. Whether the newest is the chain's tells of all
        before it; if it is not, they are looked at from there down."""
        lost: list[BlockReference] = []
        below, most = None, 1
        while blocks := self.outbox.done_blocks(chain_id, below=below, limit=most):
            canonical = self._load_hashes(sorted({block.number for block in blocks}))
            gone = [block for block in blocks if canonical[block.number] != block.hash]
            lost += gone
            if len(gone) < len(blocks):
                break
            below, most = min(block.number for block in blocks), BATCH
        items = self.outbox.in_blocks(chain_id, lost)
        self.outbox.record_state(items, State.MINED)  # whatever becomes of them, they are not done
        self._take_back(items, end)
        return any(item.place not in self._now.held for item in items)

    def _take_back(self, items: Sequence[Item], end: _ChainEnd) -> None:
        """See to items whose block is gone: their transactions go out again where they can, the others are judged."""
        again = sorted((item for item in items if self._may_wait(item, end)), key=lambda item: item.nonce or 0)
        if again:
            self.outbox.record_state(again, State.SENT)
            self._broadcast(again, end)
        self._judge_again([item for item in items if not self._may_wait(item, end)], end)

    def _revive(self, chain_id: int, end: _ChainEnd) -> bool:
        """Judge anew what stands still: a re-organization, or time, may have changed what it was told."""
        stopped = self._mine(State.CONFLICT, chain_id) + self._mine(State.REFUSED, chain_id)
        # A position that was taken by another item meanwhile is not asked for twice; nor one that was refused twice.
        taken = {(item.place, item.position) for item in self._standing_beside(stopped)}
        first = {(item.place, item.position): item for item in reversed(stopped)}
        stopped = [item for place, item in first.items() if place not in taken]
        judged = self._judge(stopped, end)
        if not stopped or not self._is_still_there(end):
            return False
        for item, verdict in zip(stopped, judged, strict=True):
            if verdict is Verdict.LANDED:
                self.outbox.record_mined([(item, end.block.number, end.block.hash)])
            elif verdict in (Verdict.DUE, Verdict.WAITS):
                self.outbox.record_state([item], State.QUEUED)
            elif verdict is Verdict.CONFLICT and item.state is State.REFUSED:
                self.outbox.record_state([item], State.CONFLICT, verdict.value)
        return any(verdict is Verdict.LANDED for verdict in judged)

    def _standing_beside(self, stopped: Sequence[Item]) -> list[Item]:
        found = []
        for chain_id, place in {(item.chain_id, item.place) for item in stopped if item.state is State.REFUSED}:
            found += [item for item in self.outbox.lane(chain_id, *place) if item.state is not State.REFUSED]
        refused = {item.id for item in stopped}
        return [item for item in found if item.id not in refused]

    def _load_hashes(self, numbers: Sequence[int]) -> dict[int, Bytes32 | None]:
        blocks = batch(self.w3, [("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        for block in blocks:
            if block.error is not None:
                raise block.error
        return {
            number: Bytes32(block.result["hash"]) if block.result else None
            for number, block in zip(numbers, blocks, strict=True)
        }

    def _is_still_there(self, end: _ChainEnd) -> bool:
        return self._load_hashes([end.block.number])[end.block.number] == end.block.hash

    def _final_block(self, latest: BlockReference) -> int:
        """Return the highest block that counts as beyond a re-organization; -1 while there is none."""
        if isinstance(self.confirmations, str):
            block = one(self.w3, "eth_getBlockByNumber", [self.confirmations, False])
            return to_int(block["number"]) if block else -1
        return latest.number - self.confirmations

    # Judging, by the registries' state in one block

    def _judge(self, items: Sequence[Item], end: _ChainEnd) -> list[Verdict | None]:
        """Return what the registries' state in a block says of items; None for what could not be told, whose lane is
        held."""
        if not items:
            return []
        judged: list[Judged] = list(self.rules.judge(self.w3, items, end.block.number))
        for _ in range(REFUSALS - 1):
            # One of several nodes may not have the block yet.
            unclear = [place for place, found in enumerate(judged) if isinstance(found, NodeRefused)]
            if not unclear:
                break
            time.sleep(self.poll_seconds)
            again = self.rules.judge(self.w3, [items[place] for place in unclear], end.block.number)
            for place, found in zip(unclear, again, strict=True):
                judged[place] = found
        verdicts: list[Verdict | None] = []
        for item, found in zip(items, judged, strict=True):
            if isinstance(found, Verdict):
                verdicts.append(found)
            else:
                self._now.held.setdefault(item.place, found)
                verdicts.append(None)
        return verdicts

    def _judge_again(self, items: Sequence[Item], end: _ChainEnd) -> None:
        """Decide by the registry's state about items whose transaction came to nothing."""
        if not items:
            return
        self._now.seen = None  # what is found here is looked at again, whether the chain grows or not
        verdicts = self._judge(items, end)
        if not self._is_still_there(end):
            return
        judged = list(zip(items, verdicts, strict=True))
        landed = [item for item, verdict in judged if verdict is Verdict.LANDED]
        self.outbox.record_mined((item, end.block.number, end.block.hash) for item in landed)
        tired = [item for item, verdict in judged if verdict is Verdict.DUE and self._reverts_always(item)]
        self.outbox.record_state(tired, State.REFUSED, f"its transaction reverted {REVERTS} times, in a block")
        self._queue_or_stop([(item, verdict) for item, verdict in judged if item not in tired])

    def _reverts_always(self, item: Item) -> bool:
        return self._now.reverts.get(item.id, 0) >= REVERTS

    def _queue_or_stop(self, judged: Sequence[tuple[Item, Verdict | None]]) -> None:
        for verdict, state in ((Verdict.CONFLICT, State.CONFLICT), (Verdict.REFUSED, State.REFUSED)):
            stopped = [item for item, found in judged if found is verdict]
            self.outbox.record_state(stopped, state, verdict.value)
        queued = [item for item, found in judged if found in (Verdict.DUE, Verdict.WAITS)]
        self.outbox.record_state(queued, State.QUEUED)

    # Sending

    def _send(self, chain_id: int, end: _ChainEnd) -> bool:
        """Sign and send what is queued and may go; True if anything went, or was found to be unable to."""
        memory = self._now
        on_the_way = self.outbox.count(chain_id=chain_id)[State.SENT]
        room = WINDOW - on_the_way
        if on_the_way and room < BATCH:
            return False
        lanes = [
            place
            for place in self.outbox.queued_places(chain_id, self.only)
            if place not in memory.held and memory.waits.get(place) != end.block.hash
        ][:room]
        if not lanes:
            return False
        moving = self.outbox.places(State.SENT, chain_id)
        ready, changed = self._ready(chain_id, lanes, moving, room, end)
        accepted = 0
        if ready:
            with turn_of(chain_id, self.signer.address):
                accepted = self._send_in_batches(chain_id, ready, end)
            memory.again |= accepted < len(ready)
        return changed or accepted > 0

    def _send_in_batches(self, chain_id: int, ready: Sequence[Item], end: _ChainEnd) -> int:
        """Sign a batch while the node is busy with the one before; each is on disk before it goes out. Return how many
        the node took."""
        fees, nonces, accepted = load_fees(self.w3), self._next_nonces(chain_id), 0
        ahead: tuple[list[Item], Future[list[Answer]]] | None = None
        with ThreadPoolExecutor(1, "broadcast") as courier:
            for part in _in_batches(ready):
                signed = self._sign(part, list(itertools.islice(nonces, len(part))), fees)
                if ahead is not None:
                    taken = self._take_answers(ahead[0], ahead[1].result(), end)
                    accepted += taken
                    if taken < len(ahead[0]):
                        nonces = self._next_nonces(chain_id)
                ahead = signed, courier.submit(self._hand_over, signed)
            if ahead is not None:
                accepted += self._take_answers(ahead[0], ahead[1].result(), end)
        return accepted

    def _ready(
        self, chain_id: int, lanes: Sequence[Place], moving: Collection[Place], room: int, end: _ChainEnd
    ) -> tuple[list[Item], bool]:
        """Return the items that may be sent now, in order; a lane's first that is not on its way is judged."""
        memory = self._now
        heads = {place: self.outbox.queue_of(chain_id, place, 1)[0] for place in lanes if place not in moving}
        verdicts = dict(zip(heads, self._judge(list(heads.values()), end), strict=True))
        landed, going, changed = [], [], False
        for place in lanes:
            verdict = verdicts.get(place, Verdict.DUE)
            if verdict is Verdict.LANDED:
                landed.append(heads[place])  # the next one of the lane is judged in the next round
            elif verdict in (Verdict.CONFLICT, Verdict.REFUSED):
                lane = self.outbox.queue_of(chain_id, place)
                self.outbox.record_state(lane, State(verdict.name.lower()), verdict.value)
                changed = True
            elif verdict is Verdict.WAITS:
                memory.waits[place] = end.block.hash
            elif verdict is Verdict.DUE:
                going.append(place)
        if landed:
            self._judge_again(landed, end)
            changed = True
        queues: dict[Place, list[Item]] = {}
        for place in going:
            if room <= 0:
                break
            queues[place] = self.outbox.queue_of(chain_id, place, room)
            room -= len(queues[place])
        changed |= self._learn_gas([queue[0] for place, queue in queues.items() if place not in moving])
        ready: list[Item] = []
        for place, queue in queues.items():
            if place not in memory.held:
                # What needs another amount of gas is tried when it is its turn, on the state that it builds on.
                ready += itertools.takewhile(lambda item: _gas_key(item) in self._gas, queue)
        return sorted(ready, key=lambda item: item.id), changed

    def _learn_gas(self, firsts: Sequence[Item]) -> bool:
        """Learn how much gas the first items of lanes need; True if one was stopped because the contract refuses it.

        One answer of one node is no proof: it may be a block behind. So a refusal has to come again and again, while
        the registry's state says that the item is due.
        """
        trying = [item for item in firsts if _gas_key(item) not in self._gas]
        errors: dict[int, ContractError] = {}
        for attempt in range(REFUSALS):
            errors = self._try(trying)
            trying = [item for item in trying if item.id in errors]
            if not trying:
                return False
            if attempt < REFUSALS - 1:
                time.sleep(self.poll_seconds)
                verdicts = self._judge(trying, self._chain_end())
                self._now.again |= any(verdict is not Verdict.DUE for verdict in verdicts if verdict is not None)
                trying = [item for item, found in zip(trying, verdicts, strict=True) if found is Verdict.DUE]
        refused = False
        for item in trying:
            if self.rules.may_pass(item, errors[item.id]):
                self._now.held[item.place] = errors[item.id]
            else:
                self.outbox.record_state([item], State.REFUSED, str(errors[item.id]))
                refused = True
        return refused

    def _try(self, items: Sequence[Item]) -> dict[int, ContractError]:
        """Note the gas that items need, and return the errors of those that the contract refuses."""
        errors = {}
        # On the latest block's state: by itself, a node may take what waits for a block for done already.
        calls = [("eth_estimateGas", [_call(item, self.signer.address), "latest"]) for item in items]
        for item, answer in zip(items, batch(self.w3, calls), strict=True):
            if answer.error is None:
                # A space's first change costs more than the later ones; a wallet may take a little more another time.
                self._gas[_gas_key(item)] = to_int(answer.result) * 5 // 4 + 20_000
            elif isinstance(answer.error, ContractError):
                errors[item.id] = answer.error
            else:
                raise answer.error
        return errors

    def _sign(self, items: Sequence[Item], nonces: Sequence[int], fees: Fees) -> list[Item]:
        """Return the items with their signed transactions, written down: whatever happens next, the hash is known."""
        sender, targets = self.signer.address, {item.target: str(item.target) for item in items}
        members = fees.members
        signed = []
        for item, nonce in zip(items, nonces, strict=True):
            gas = self._gas.get(_gas_key(item), 500_000)
            known = {"to": targets[item.target], "data": "0x" + item.data.hex(), "chainId": item.chain_id}
            raw, transaction_hash = self.signer.sign({**known, **members, "gas": gas, "nonce": nonce})
            signed.append(item.as_sent(sender, nonce, raw, transaction_hash))
            self._now.paid[item.id] = fees
        self.outbox.record_sent(signed)
        return signed

    def _broadcast(self, items: Sequence[Item], end: _ChainEnd) -> None:
        if items:
            self._take_answers(items, self._hand_over(items), end)

    def _hand_over(self, items: Sequence[Item]) -> list[Answer]:
        """Hand raw transactions to the node, and return what it says. Touches nothing else: it runs in a thread."""
        return batch(self.w3, [("eth_sendRawTransaction", ["0x" + (item.raw or b"").hex()]) for item in items])

    def _take_answers(
        self, items: Sequence[Item], answers: Sequence[Answer], end: _ChainEnd, *, paid_more: bool = False
    ) -> int:
        """Act on what the node said of transactions; return how many it took.

        It is no proof of anything: what was not plainly refused may be on its way, and stays so until the chain shows.
        """
        memory, now = self._now, time.monotonic()
        by: dict[Meaning, list[tuple[Item, Answer]]] = {meaning: [] for meaning in Meaning}
        for item, answer in zip(items, answers, strict=True):
            memory.sent_at[item.id] = now
            by[read_send_answer(answer)].append((item, answer))
        accepted = len(by[Meaning.OK])
        failed = [answer for _, answer in (*by[Meaning.REFUSED], *by[Meaning.UNCLEAR])]
        cheap = by[Meaning.CHEAP]
        if cheap and not paid_more:
            # Fees rose since it was signed; under the same nonce, or it would be sent twice.
            again = [item for item, _ in cheap]
            fees = load_fees(self.w3).over([memory.paid[item.id] for item in again if item.id in memory.paid])
            signed = self._sign(again, [item.nonce or 0 for item in again], fees)
            accepted += self._take_answers(signed, self._hand_over(signed), end, paid_more=True)
            cheap = []
        self._take_other_nonces([item for item, _ in by[Meaning.TAKEN]], by[Meaning.TAKEN], end)
        refused = [*by[Meaning.REFUSED], *cheap]
        self.outbox.record_state([item for item, _ in refused], State.QUEUED)
        failed += [answer for _, answer in cheap]
        if failed:
            raise failed[0].error or NodeRefused("eth_sendRawTransaction", "no reason given")
        return accepted

    def _take_other_nonces(self, taken: Sequence[Item], answers: Sequence[tuple[Item, Answer]], end: _ChainEnd) -> None:
        """Another transaction has the nonce. Should it be a twin of ours, the registry's state will show."""
        memory = self._now
        for item, answer in answers:
            memory.least = max(memory.least, (item.nonce or 0) + 1)
            memory.taken[item.id] = memory.taken.get(item.id, 0) + 1
            if memory.taken[item.id] > TAKEN:
                self._judge_again(taken, end)
                raise answer.error or NodeRefused("eth_sendRawTransaction", answer.message)
        self._judge_again(taken, end)
        memory.again |= bool(taken)

    def _next_nonces(self, chain_id: int) -> Iterator[int]:
        """Yield the account's free nonces: from the node's count on, without those of what is on its way."""
        ours = self.outbox.nonces(chain_id, self.signer.address)
        first = max(self._now.least, count_pending(self.w3, self.signer.address))
        return (nonce for nonce in itertools.count(first) if nonce not in ours)

    # Reading the outbox

    def _mine(self, state: State, chain_id: int) -> list[Item]:
        return self.outbox.items(state, chain_id=chain_id, only=self.only)

    def _progress(self, chain_id: int) -> Progress:
        counts = self.outbox.count(chain_id=chain_id, only=self.only)
        stopped = counts[State.CONFLICT] + counts[State.REFUSED]
        return Progress(counts[State.QUEUED], counts[State.SENT], counts[State.MINED], counts[State.DONE], stopped)


def _call(item: Item, sender: object) -> dict[str, str]:
    return {"from": str(sender), "to": str(item.target), "data": "0x" + item.data.hex()}


def _in_batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield items in batches: small ones first, so that the node has something to do soon."""
    start, size = 0, max(1, BATCH // 4)
    while start < len(items):
        yield items[start : start + size]
        start, size = start + size, min(BATCH, size * 2)


def _gas_key(item: Item) -> tuple[Place, int]:
    return item.place, len(item.data)
