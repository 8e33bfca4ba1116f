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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from melete.chain.connection import check_chain
from melete.chain.nonces import count_pending, read_send_answer, turn_of
from melete.chain.outbox import Item, Outbox, Place, State
from melete.chain.rpc import Answer, batch, one, to_int
from melete.chain.rules import Rules, RulesByFunction, Verdict
from melete.chain.scan.blocks import BlockReference
from melete.chain.transactions import TransactionSigner
from melete.errors import ContractError, InvalidInput, NodeRefused
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
BATCH: Final = 100
WINDOW: Final = 1_000
#: A transaction that is not in a block after so many seconds is sent again with higher fees.
PATIENCE_SECONDS: Final = 90.0
#: While the node's last block is the same, nothing is asked of it about what is on its way; but for this long at most,
#: because several nodes may answer at one address.
LOOK_AGAIN_SECONDS: Final = 10.0
#: How long nonces may be missing before ours before ours are given up: another program may be about to use them.
GAP_SECONDS: Final = 10.0
#: How often in a row a contract has to refuse an item, by a state that seems right, until that is believed.
REFUSALS: Final = 3
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
class Submitter:
    """Sends the items of an outbox that belong to one chain, from one account.

    `confirmations` is a number of blocks, or a tag such as "finalized" for what the chain itself calls final. Of
    several lanes in one outbox, `only` names those to act on (contract and lane); None means all. `poll_seconds` is
    how long to wait between two looks at the chain, `patience_seconds` how long a transaction may take into a block
    before it is sent again. Errors: `InvalidInput` for settings that are none.
    """

    w3: Web3
    outbox: Outbox
    signer: TransactionSigner
    rules: Rules
    confirmations: int | str = CONFIRMATIONS
    poll_seconds: float = 0.25
    patience_seconds: float = PATIENCE_SECONDS
    only: Collection[Place] | None = None
    _gas: dict[Place, int] = field(default_factory=dict)
    _sent_at: dict[int, float] = field(default_factory=dict)
    #: Lanes whose next item is refused for now, and why.
    _held: dict[Place, ContractError] = field(default_factory=dict)
    #: The node's last block when all that is on its way was looked at last, and when that was.
    _seen: Bytes32 | None = None
    _looked_at: float = 0.0
    #: The lowest nonce of what is on its way, and since when the node waits for a lower one.
    _lowest: int | None = None
    _gap_since: float | None = None

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

        May be killed and called again at any point. Errors: `OutboxBusy` while another process acts on the outbox;
        the node's, with everything written down so that a later run goes on; a `ContractError` that may pass (a
        permission that is missing, a sender who is another), once there is nothing else to do: its item waits.
        """
        if until not in (State.MINED, State.DONE):
            raise InvalidInput("until", until, "State.MINED or State.DONE")
        until = State(until)
        chain_id = check_chain(self.w3, None)
        # Whatever an earlier run ended with, all of it is looked at first.
        self._seen, self._gap_since = None, None
        self._held.clear()
        with self.outbox.acting():
            while True:
                settled = self._settle(chain_id)
                sent = self._send(chain_id)
                now = self._progress(chain_id)
                if progress is not None:
                    progress(now)
                waiting = now.sent + (now.mined if until is State.DONE else 0)
                if not waiting and not sent and not settled:
                    break
                if not sent and not settled:
                    time.sleep(self.poll_seconds)
        for error in self._held.values():
            raise error
        return now

    # Settling: what became of what was sent

    def _settle(self, chain_id: int) -> bool:
        """Write down what the chain shows of the items on their way, and of those that were done; True if anything
        changed.

        A question for each of them is asked only when the chain has grown, and only for what can be in a block by now.
        """
        count = self._count(chain_id)
        if not count[State.SENT] and not count[State.MINED] and not count[State.DONE]:
            return False
        end = self._chain_end()
        now = time.monotonic()
        if end.block.hash == self._seen and now - self._looked_at < LOOK_AGAIN_SECONDS:
            return self._wait(chain_id, end)
        changed = self._take_back_lost(chain_id, end)
        sent = self._mine(State.SENT, chain_id)
        mined = self._mine(State.MINED, chain_id)
        self._sent_at = {item.id: self._sent_at[item.id] for item in sent if item.id in self._sent_at}
        # Without a receipt, a transaction whose nonce was used before this question is dead.
        due = [item for item in sent if not self._may_wait(item, end)]
        waiting = [item for item in sent if self._may_wait(item, end)]
        receipts = batch(self.w3, [("eth_getTransactionReceipt", [str(item.transaction_hash)]) for item in due])
        self._record_receipts(
            [(item, answer.result) for item, answer in zip(due, receipts, strict=True) if answer.result]
        )  # fmt: skip
        self._judge_again([item for item, answer in zip(due, receipts, strict=True) if not answer.result])
        self._lowest = min((item.nonce or 0 for item in waiting), default=None)
        self._hurry(waiting)
        changed |= self._give_up_behind_gap(waiting, end)
        changed |= bool(mined) and self._confirm(chain_id, mined, end)
        if not due and not changed:
            self._seen, self._looked_at = end.block.hash, now
        return bool(due) or changed

    def _wait(self, chain_id: int, end: _ChainEnd) -> bool:
        """The chain is as it was: look after what waits for too long."""
        now = time.monotonic()
        has_gap = self._lowest is not None and self._lowest > end.pending
        if not has_gap:
            self._gap_since = None
        if has_gap or any(now - sent_at > self.patience_seconds for sent_at in self._sent_at.values()):
            waiting = [item for item in self._mine(State.SENT, chain_id) if self._may_wait(item, end)]
            self._hurry(waiting)
            return self._give_up_behind_gap(waiting, end)
        return False

    def _may_wait(self, item: Item, end: _ChainEnd) -> bool:
        """Whether a transaction may still get into a block: it is this account's, and its nonce is not used."""
        return item.sender == self.signer.address and item.raw is not None and (item.nonce or 0) >= end.used

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

    def _record_receipts(self, seen: Sequence[tuple[Item, dict[str, Any]]]) -> None:
        worked = [
            (item, to_int(receipt["blockNumber"]), Bytes32(receipt["blockHash"]))
            for item, receipt in seen
            if to_int(receipt["status"]) == 1
        ]
        self.outbox.record_mined(worked)
        # A transaction that reverted did nothing; perhaps because a twin of it had landed.
        self._judge_again([item for item, receipt in seen if to_int(receipt["status"]) != 1])

    def _hurry(self, waiting: Sequence[Item]) -> None:
        """Send transactions again that wait for a block too long."""
        now = time.monotonic()
        slow = [item for item in waiting if now - self._sent_at.get(item.id, NEVER) > self.patience_seconds]
        known = [item for item in slow if item.id in self._sent_at]
        if known:
            self._broadcast(self._sign(known, [item.nonce or 0 for item in known], self._fees(raised=True)))
        # What an earlier run sent: the node may have forgotten it, and says so by taking it again.
        self._broadcast([item for item in slow if item.id not in self._sent_at])

    def _give_up_behind_gap(self, waiting: Sequence[Item], end: _ChainEnd) -> bool:
        """Judge anew what can never get into a block, because no transaction has the nonces before its own."""
        if not waiting or min(item.nonce or 0 for item in waiting) <= end.pending:
            self._gap_since = None
            return False
        now = time.monotonic()
        if self._gap_since is None:
            self._gap_since = now
        if now - self._gap_since < min(GAP_SECONDS, self.patience_seconds):
            return False
        self._gap_since = None
        self._judge_again(waiting)
        return True

    def _confirm(self, chain_id: int, mined: Sequence[Item], end: _ChainEnd) -> bool:
        """Move items deep enough to done, and those of orphaned blocks back."""
        final = self._final_block(end.block)
        newest_done = self.outbox.done_blocks(chain_id, only=self.only, limit=1)
        numbers = {item.block_number or 0 for item in mined} | {block.number for block in newest_done}
        canonical = self._load_hashes(sorted(numbers))
        if any(canonical[block.number] != block.hash for block in newest_done):
            return True  # the chain went back just now: look at everything again first
        orphaned = [item for item in mined if canonical[item.block_number or 0] != item.block_hash]
        lost = {item.id for item in orphaned}
        done = [item for item in mined if item.id not in lost and (item.block_number or 0) <= final]
        self.outbox.record_state(done, State.DONE)
        self._take_back(orphaned, end)
        return bool(done or orphaned)

    def _take_back_lost(self, chain_id: int, end: _ChainEnd) -> bool:
        """Take back what was done in blocks that the chain gave up. Whether the newest is the chain's tells of all
        before it; if it is not, they are looked at from there down."""
        lost: list[BlockReference] = []
        below, most = None, 1
        while blocks := self.outbox.done_blocks(chain_id, below=below, only=self.only, limit=most):
            canonical = self._load_hashes([block.number for block in blocks])
            gone = [block for block in blocks if canonical[block.number] != block.hash]
            lost += gone
            if len(gone) < len(blocks):
                break
            below, most = blocks[-1].number, BATCH
        items = self.outbox.in_blocks(chain_id, lost, self.only)
        self._take_back(items, end)
        return bool(items)

    def _take_back(self, items: Sequence[Item], end: _ChainEnd) -> None:
        """See to items whose block is gone: their transactions go out again where they can, the others are judged."""
        again = [item for item in items if self._may_wait(item, end)]
        if again:
            self.outbox.record_state(again, State.SENT)
            self._broadcast(again)
        self._judge_again([item for item in items if not self._may_wait(item, end)])

    def _load_hashes(self, numbers: Sequence[int]) -> dict[int, Bytes32 | None]:
        blocks = batch(self.w3, [("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        for block in blocks:
            if block.error is not None:
                raise block.error
        return {
            number: Bytes32(block.result["hash"]) if block.result else None
            for number, block in zip(numbers, blocks, strict=True)
        }

    def _final_block(self, latest: BlockReference) -> int:
        """Return the highest block that counts as beyond a re-organization; -1 while there is none."""
        if isinstance(self.confirmations, str):
            block = one(self.w3, "eth_getBlockByNumber", [self.confirmations, False])
            return to_int(block["number"]) if block else -1
        return latest.number - self.confirmations

    def _judge_again(self, items: Sequence[Item]) -> None:
        """Decide by the registry's state about items whose transaction came to nothing."""
        if not items:
            return
        self._seen = None  # what is found here is looked at again, whether the chain grows or not
        block = one(self.w3, "eth_getBlockByNumber", ["latest", False])
        verdicts = self.rules.judge(self.w3, items)
        landed = [item for item, verdict in zip(items, verdicts, strict=True) if verdict is Verdict.LANDED]
        self.outbox.record_mined((item, to_int(block["number"]), Bytes32(block["hash"])) for item in landed)
        self._queue_or_stop(
            [(item, verdict) for item, verdict in zip(items, verdicts, strict=True) if verdict is not Verdict.LANDED]
        )

    def _queue_or_stop(self, judged: Sequence[tuple[Item, Verdict]]) -> None:
        for verdict, state in ((Verdict.CONFLICT, State.CONFLICT), (Verdict.REFUSED, State.REFUSED)):
            stopped = [item for item, found in judged if found is verdict]
            self.outbox.record_state(stopped, state, verdict.value)
        self.outbox.record_state(
            [item for item, found in judged if found in (Verdict.DUE, Verdict.WAITS)], State.QUEUED
        )

    # Sending

    def _send(self, chain_id: int) -> bool:
        """Sign and send what is queued and may go; True if anything went, or was found to be unable to."""
        room = WINDOW - self._count(chain_id)[State.SENT]
        queued = self._mine(State.QUEUED, chain_id, room) if room > 0 else []
        queued = [item for item in queued if item.place not in self._held]
        if not queued:
            return False
        ready, changed = self._ready(chain_id, queued)
        if ready:
            with turn_of(chain_id, self.signer.address):
                self._send_in_batches(chain_id, ready)
        return changed or bool(ready)

    def _send_in_batches(self, chain_id: int, ready: Sequence[Item]) -> None:
        """Sign a batch while the node is busy with the one before; each is on disk before it goes out."""
        fees, nonces = self._fees(), self._next_nonces(chain_id)
        ahead: tuple[list[Item], Future[list[Answer]]] | None = None
        with ThreadPoolExecutor(1, "broadcast") as courier:
            for start in range(0, len(ready), BATCH):
                part = ready[start : start + BATCH]
                signed = self._sign(part, list(itertools.islice(nonces, len(part))), fees)
                if ahead is not None and not self._take_answers(ahead[0], ahead[1].result()):
                    nonces = self._next_nonces(chain_id)
                ahead = signed, courier.submit(self._hand_over, signed)
            if ahead is not None:
                self._take_answers(ahead[0], ahead[1].result())

    def _ready(self, chain_id: int, queued: Sequence[Item]) -> tuple[list[Item], bool]:
        """Return the items that may be sent now, in order; a lane's first that is not on its way is judged."""
        moving = self.outbox.places(State.SENT, chain_id)
        first = {item.place: item for item in reversed(queued)}
        heads = [item for place, item in first.items() if place not in moving]
        verdicts = dict(
            zip([item.id for item in heads], self.rules.judge(self.w3, heads) if heads else [], strict=True)
        )
        stopped: set[Place] = set()
        ready, changed = [], False
        landed = []
        for item in queued:
            verdict = verdicts.get(item.id, Verdict.DUE)
            if item.place in stopped:
                continue
            if verdict is Verdict.LANDED:
                landed.append(item)
                stopped.add(item.place)  # the next one of the lane is judged in the next round
            elif verdict in (Verdict.CONFLICT, Verdict.REFUSED):
                self._queue_or_stop([(other, verdict) for other in queued if other.place == item.place])
                stopped.add(item.place)
                changed = True
            elif verdict is Verdict.WAITS:
                stopped.add(item.place)
            else:
                ready.append(item)
        if landed:
            self._judge_again(landed)
            changed = True
        able, again = self._estimate(ready, moving)
        return able, changed or again

    def _estimate(self, ready: Sequence[Item], moving: Collection[Place]) -> tuple[list[Item], bool]:
        """Learn how much gas each lane needs from its first item; return the items of lanes that may go, and whether
        others are to be looked at again.

        One answer of one node is no proof: it may be a block behind. So a refusal has to come again and again, while
        the registry's state says that the item is due.
        """
        unknown = {item.place: item for item in reversed(ready) if item.place not in self._gas}
        # What comes after transactions that are not in a block yet cannot be tried before they are.
        able = [item for item in ready if item.place in self._gas or item.place not in moving]
        trying = [item for place, item in unknown.items() if place not in moving]
        stopped = set(unknown) & set(moving)
        errors: dict[int, ContractError] = {}
        again = False
        for attempt in range(REFUSALS):
            errors = self._try(trying)
            trying = [item for item in trying if item.id in errors]
            if not trying:
                break
            if attempt < REFUSALS - 1:
                time.sleep(self.poll_seconds)
                verdicts = self.rules.judge(self.w3, trying)
                moved = {item.id for item, found in zip(trying, verdicts, strict=True) if found is not Verdict.DUE}
                stopped |= {item.place for item in trying if item.id in moved}
                trying = [item for item in trying if item.id not in moved]
                again |= bool(moved)
        for item in trying:
            error = errors[item.id]
            stopped.add(item.place)
            if self.rules.may_pass(item, error):
                self._held[item.place] = error
            else:
                self.outbox.record_state([item], State.REFUSED, str(error))
                again = True
        return [item for item in able if item.place not in stopped], again

    def _try(self, items: Sequence[Item]) -> dict[int, ContractError]:
        """Note the gas that items need, and return the errors of those that the contract refuses."""
        errors = {}
        calls = [("eth_estimateGas", [_call(item, self.signer.address)]) for item in items]
        for item, answer in zip(items, batch(self.w3, calls), strict=True):
            if answer.error is None:
                # A space's first change costs more than the later ones; a wallet may take a little more another time.
                self._gas[item.place] = to_int(answer.result) * 5 // 4 + 20_000
            elif isinstance(answer.error, ContractError):
                errors[item.id] = answer.error
            else:
                raise answer.error
        return errors

    def _sign(self, items: Sequence[Item], nonces: Sequence[int], fees: Mapping[str, int]) -> list[Item]:
        """Return the items with their signed transactions, written down: whatever happens next, the hash is known."""
        sender, targets = self.signer.address, {item.target: str(item.target) for item in items}
        signed = []
        for item, nonce in zip(items, nonces, strict=True):
            gas = self._gas.get(item.place, 500_000)
            known = {"to": targets[item.target], "data": "0x" + item.data.hex(), "chainId": item.chain_id}
            raw, transaction_hash = self.signer.sign({**known, **fees, "gas": gas, "nonce": nonce})
            sent = replace(item, state=State.SENT, sender=sender, nonce=nonce, raw=raw)
            signed.append(replace(sent, transaction_hash=transaction_hash, block_number=None, block_hash=None))
        self.outbox.record_sent(signed)
        return signed

    def _broadcast(self, items: Sequence[Item]) -> None:
        if items:
            self._take_answers(items, self._hand_over(items))

    def _hand_over(self, items: Sequence[Item]) -> list[Answer]:
        """Hand raw transactions to the node, and return what it says. Touches nothing else: it runs in a thread."""
        return batch(self.w3, [("eth_sendRawTransaction", ["0x" + (item.raw or b"").hex()]) for item in items])

    def _take_answers(self, items: Sequence[Item], answers: Sequence[Answer]) -> bool:
        """Act on what the node said of transactions; False if some nonces turned out to be another's.

        It is no proof of anything, so only plain refusals count.
        """
        now = time.monotonic()
        taken, refused = [], []
        for item, answer in zip(items, answers, strict=True):
            self._sent_at[item.id] = now
            meaning = read_send_answer(answer)
            if meaning == "taken":
                taken.append(item)
            elif meaning == "refused":
                refused.append((item, answer))
        # Another transaction has the nonce. Should it be a twin of ours, the registry's state will show.
        self._judge_again(taken)
        if refused:
            self.outbox.record_state([item for item, _ in refused], State.QUEUED)
            error = refused[0][1].error
            raise error if error is not None else NodeRefused("eth_sendRawTransaction", "no reason given")
        return not taken

    def _next_nonces(self, chain_id: int) -> Iterator[int]:
        """Yield the account's free nonces: from the node's count on, without those of what is on its way."""
        ours = self.outbox.nonces(chain_id, self.signer.address, self.only)
        pending = count_pending(self.w3, self.signer.address)
        return (nonce for nonce in itertools.count(pending) if nonce not in ours)

    def _fees(self, *, raised: bool = False) -> dict[str, int]:
        """Return the members of a transaction that say what it pays: room for two doublings of the base fee."""
        block, suggested = batch(
            self.w3, [("eth_getBlockByNumber", ["latest", False]), ("eth_maxPriorityFeePerGas", [])]
        )  # fmt: skip
        base, tip = to_int((block.result or {}).get("baseFeePerGas", "0x0")), to_int(suggested.result or "0x0")
        if raised:
            base, tip = base * 3 // 2 + 1, tip * 3 // 2 + 1
        return {"maxFeePerGas": 2 * base + tip, "maxPriorityFeePerGas": tip, "type": 2, "value": 0}

    # Reading the outbox

    def _mine(self, state: State, chain_id: int, limit: int = -1) -> list[Item]:
        return self.outbox.items(state, chain_id=chain_id, only=self.only, limit=limit)

    def _count(self, chain_id: int) -> dict[State, int]:
        return self.outbox.count(chain_id=chain_id, only=self.only)

    def _progress(self, chain_id: int) -> Progress:
        counts = self._count(chain_id)
        stopped = counts[State.CONFLICT] + counts[State.REFUSED]
        return Progress(counts[State.QUEUED], counts[State.SENT], counts[State.MINED], counts[State.DONE], stopped)


def _call(item: Item, sender: object) -> dict[str, str]:
    return {"from": str(sender), "to": str(item.target), "data": "0x" + item.data.hex()}
