"""Sending what an outbox holds: in batches, resumably, and exactly once.

Accepted by the node is not mined, and mined is not done. Every answer may be lost, every transaction may vanish or be
replaced, the process may die between any two lines; so nothing here relies on an answer. What counts is what the chain
shows: a receipt in a block that is still canonical, or the item's effect in the registry's state. A registry takes each
position once, so sending again can never do a thing twice.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from melete.chain.connection import check_chain
from melete.chain.outbox import Item, Outbox, State
from melete.chain.rpc import Answer, batch, one, to_int
from melete.chain.scan.blocks import BlockReference
from melete.chain.transactions import TransactionSigner
from melete.errors import ContractError, InvalidInput, NodeRefused
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from web3 import Web3

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
NEVER: Final = float("-inf")


class Verdict(Enum):
    """What the registry's state says of an item."""

    LANDED = "its effect is there"
    DUE = "it can be sent now"
    WAITS = "others of its lane come first"
    CONFLICT = "somebody else's change has its position, or the state that it builds on is gone"
    REFUSED = "the contract refuses it"


class Rules(Protocol):
    """What a registry's items mean, for the submitter."""

    def judge(self, w3: Web3, items: Sequence[Item]) -> list[Verdict]:
        """Return what the registry's state says of each item now, in as few requests as possible."""


@dataclass(frozen=True, slots=True)
class RulesByFunction:
    """The rules of several registries in one outbox, chosen by the selector of the function that an item calls."""

    rules: Mapping[bytes, Rules]

    def judge(self, w3: Web3, items: Sequence[Item]) -> list[Verdict]:
        """Return what each item's own registry says. Errors: `InvalidInput` for a call of neither."""
        verdicts: dict[int, Verdict] = {}
        for selector in dict.fromkeys(item.data[:4] for item in items):
            if selector not in self.rules:
                raise InvalidInput("outbox", selector, "the selector of a call that these rules know")
            some = [(place, item) for place, item in enumerate(items) if item.data[:4] == selector]
            found = self.rules[selector].judge(w3, [item for _, item in some])
            verdicts |= {place: verdict for (place, _), verdict in zip(some, found, strict=True)}
        return [verdicts[place] for place in range(len(items))]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come; handed to the caller after every step."""

    queued: int
    sent: int
    mined: int
    done: int
    stopped: int


@dataclass
class Submitter:
    """Sends the items of an outbox that belong to one chain, from one account.

    `confirmations` is a number of blocks, or "finalized" for what the chain itself calls final.
    """

    w3: Web3
    outbox: Outbox
    signer: TransactionSigner
    rules: Rules
    confirmations: int | str = CONFIRMATIONS
    poll_seconds: float = 0.25
    patience_seconds: float = PATIENCE_SECONDS
    _gas: dict[tuple[Address, bytes], int] = field(default_factory=dict)
    _sent_at: dict[int, float] = field(default_factory=dict)
    _nonces: Iterator[int] | None = None
    #: The node's last block when all that is on its way was looked at last, and when that was.
    _seen: Bytes32 | None = None
    _looked_at: float = 0.0

    def run(self, *, until: State = State.DONE, progress: Callable[[Progress], None] | None = None) -> Progress:
        """Act until every item is done (or mined, if asked) or cannot be sent, and return the counts.

        May be killed and called again at any point. Errors: `OutboxBusy` while another process acts on the outbox;
        the node's, with everything written down so that a later run goes on.
        """
        chain_id = check_chain(self.w3, None)
        self._seen = None  # whatever an earlier run ended with, all of it is looked at first
        with self.outbox.acting():
            while True:
                settled = self._settle(chain_id)
                sent = self._send(chain_id)
                now = self._progress()
                if progress is not None:
                    progress(now)
                waiting = now.sent + (now.mined if until is State.DONE else 0)
                if not waiting and not sent and not settled:
                    return now
                if not sent and not settled:
                    time.sleep(self.poll_seconds)

    # Settling: what became of what was sent

    def _settle(self, chain_id: int) -> bool:
        """Write down what the chain shows of the items on their way; True if anything changed.

        A question for each of them is asked only when the chain has grown, and only for what can be in a block by now.
        """
        count = self.outbox.count()
        if not count[State.SENT] and not count[State.MINED]:
            return False
        latest, used = self._chain_end()
        now = time.monotonic()
        if latest.hash == self._seen and now - self._looked_at < LOOK_AGAIN_SECONDS:
            if any(now - sent_at > self.patience_seconds for sent_at in self._sent_at.values()):
                self._hurry(self._mine(State.SENT, chain_id))
            return False
        sent = self._mine(State.SENT, chain_id)
        mined = self._mine(State.MINED, chain_id)
        self._sent_at = {item.id: self._sent_at[item.id] for item in sent if item.id in self._sent_at}
        # Without a receipt, a transaction whose nonce was used before this question is dead.
        due = [item for item in sent if item.sender != self.signer.address or (item.nonce or 0) < used]
        receipts = batch(self.w3, [("eth_getTransactionReceipt", [str(item.transaction_hash)]) for item in due])
        seen = [(item, receipt.result) for item, receipt in zip(due, receipts, strict=True) if receipt.result]
        dead = [item for item, receipt in zip(due, receipts, strict=True) if not receipt.result]
        self._record_receipts(seen)
        self._judge_again(dead)
        gone = {item.id for item in due}
        self._hurry([item for item in sent if item.id not in gone])
        changed = bool(mined) and self._confirm(mined, latest)
        if not due and not changed:
            self._seen, self._looked_at = latest.hash, now
        return bool(due) or changed

    def _chain_end(self) -> tuple[BlockReference, int]:
        """Return the node's last block, and how many nonces of the account were used up to it or later."""
        block, used = batch(
            self.w3,
            [
                ("eth_getBlockByNumber", ["latest", False]),
                ("eth_getTransactionCount", [str(self.signer.address), "latest"]),
            ],
        )
        for answer in (block, used):
            if answer.error is not None:
                raise answer.error
        return BlockReference(to_int(block.result["number"]), Bytes32(block.result["hash"])), to_int(used.result)

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

    def _confirm(self, mined: Sequence[Item], latest: BlockReference) -> bool:
        """Move items deep enough to done, and those of orphaned blocks back."""
        final = self._final_block(latest)
        numbers = sorted({item.block_number or 0 for item in mined})
        blocks = batch(self.w3, [("eth_getBlockByNumber", [hex(number), False]) for number in numbers])
        canonical = {
            number: Bytes32(block.result["hash"]) for number, block in zip(numbers, blocks, strict=True) if block.result
        }
        orphaned = [item for item in mined if canonical.get(item.block_number or 0) != item.block_hash]
        lost = {item.id for item in orphaned}
        done = [item for item in mined if item.id not in lost and (item.block_number or 0) <= final]
        self.outbox.record_state(done, State.DONE)
        if orphaned:
            self.outbox.record_state(orphaned, State.SENT)
            self._broadcast(orphaned)
        return bool(done or orphaned)

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
        room = WINDOW - self.outbox.count()[State.SENT]
        queued = self._mine(State.QUEUED, chain_id, room) if room > 0 else []
        if not queued:
            return False
        ready, changed = self._ready(queued)
        try:
            self._send_in_batches(ready)
        except BaseException:
            self._nonces = None
            raise
        return changed or bool(ready)

    def _send_in_batches(self, ready: Sequence[Item]) -> None:
        """Sign a batch while the node is busy with the one before; each is on disk before it goes out."""
        if not ready:
            return
        fees = self._fees()
        with ThreadPoolExecutor(1, "broadcast") as courier:
            ahead: tuple[list[Item], Future[list[Answer]]] | None = None
            for start in range(0, len(ready), BATCH):
                part = ready[start : start + BATCH]
                signed = self._sign(part, self._take_nonces(len(part)), fees)
                if ahead is not None:
                    self._take_answers(ahead[0], ahead[1].result())
                ahead = signed, courier.submit(self._hand_over, signed)
            if ahead is not None:
                self._take_answers(ahead[0], ahead[1].result())

    def _ready(self, queued: Sequence[Item]) -> tuple[list[Item], bool]:
        """Return the items that may be sent now, in order; a lane's first that is not on its way is judged."""
        moving = self.outbox.lanes(State.SENT)
        first = {(item.target, item.lane): item for item in reversed(queued)}
        heads = [item for place, item in first.items() if place not in moving]
        verdicts = dict(
            zip([item.id for item in heads], self.rules.judge(self.w3, heads) if heads else [], strict=True)
        )
        stopped: set[tuple[Address, bytes]] = set()
        ready, changed = [], False
        landed = []
        for item in queued:
            place = (item.target, item.lane)
            verdict = verdicts.get(item.id, Verdict.DUE)
            if place in stopped:
                continue
            if verdict is Verdict.LANDED:
                landed.append(item)
                stopped.add(place)  # the next one of the lane is judged in the next round
            elif verdict in (Verdict.CONFLICT, Verdict.REFUSED):
                lane = [other for other in queued if (other.target, other.lane) == place]
                self._queue_or_stop([(other, verdict) for other in lane])
                stopped.add(place)
                changed = True
            elif verdict is Verdict.WAITS:
                stopped.add(place)
            else:
                ready.append(item)
        if landed:
            self._judge_again(landed)
            changed = True
        refused = self._estimate(ready)
        if refused:
            lanes = {(item.target, item.lane) for item in refused}
            ready = [item for item in ready if (item.target, item.lane) not in lanes]
            changed = True
        return ready, changed

    def _estimate(self, ready: Sequence[Item]) -> list[Item]:
        """Learn how much gas each lane needs from its first item, and stop those that the contract refuses."""
        unknown: dict[tuple[Address, bytes], Item] = {}
        for item in ready:
            if (item.target, item.lane) not in self._gas:
                unknown.setdefault((item.target, item.lane), item)
        calls = [("eth_estimateGas", [_call(item, self.signer.address)]) for item in unknown.values()]
        refused = []
        for (place, item), answer in zip(unknown.items(), batch(self.w3, calls) if calls else [], strict=True):
            error = answer.error
            if error is None:
                # A space's first change costs more than the later ones; a wallet may take a little more another time.
                self._gas[place] = to_int(answer.result) * 5 // 4 + 20_000
            elif isinstance(error, ContractError):
                self.outbox.record_state([item], State.REFUSED, str(error))
                refused.append(item)
            else:
                raise error
        return refused

    def _sign(self, items: Sequence[Item], nonces: Sequence[int], fees: Mapping[str, int]) -> list[Item]:
        """Return the items with their signed transactions, written down: whatever happens next, the hash is known."""
        sender, targets = self.signer.address, {item.target: str(item.target) for item in items}
        signed = []
        for item, nonce in zip(items, nonces, strict=True):
            gas = self._gas.get((item.target, item.lane), 500_000)
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

    def _take_answers(self, items: Sequence[Item], answers: Sequence[Answer]) -> None:
        """Act on what the node said of transactions. It is no proof of anything, so only plain refusals count."""
        now = time.monotonic()
        again, refused = [], []
        for item, answer in zip(items, answers, strict=True):
            self._sent_at[item.id] = now
            kind = _refusal(answer)
            if kind == "taken":
                again.append(item)
            elif kind == "refused":
                refused.append((item, answer))
        if again:
            # Another transaction has the nonce. Should it be a twin of ours, the registry's state will show.
            self._nonces = None
            self._judge_again(again)
        if refused:
            self.outbox.record_state([item for item, _ in refused], State.QUEUED)
            self._nonces = None
            error = refused[0][1].error
            raise error if error is not None else NodeRefused("eth_sendRawTransaction", "no reason given")

    def _take_nonces(self, count: int) -> list[int]:
        """Return the next free nonces of the account: from the node's count on, without those on their way.

        One counter, forgotten (`_nonces = None`) whenever something went otherwise than planned, so that a nonce that
        was taken and not used is given out again and no gap holds up what comes after it.
        """
        if self._nonces is None:
            pending = to_int(one(self.w3, "eth_getTransactionCount", [str(self.signer.address), "pending"]))
            ours = {item.nonce for item in self.outbox.items(State.SENT) if item.sender == self.signer.address}
            self._nonces = (nonce for nonce in itertools.count(pending) if nonce not in ours)
        return list(itertools.islice(self._nonces, count))

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
        return self.outbox.items(state, chain_id=chain_id, limit=limit)

    def _progress(self) -> Progress:
        counts = self.outbox.count()
        stopped = counts[State.CONFLICT] + counts[State.REFUSED]
        return Progress(counts[State.QUEUED], counts[State.SENT], counts[State.MINED], counts[State.DONE], stopped)


def _call(item: Item, sender: Address) -> dict[str, str]:
    return {"from": str(sender), "to": str(item.target), "data": "0x" + item.data.hex()}


def _refusal(answer: Answer) -> str:
    """Return what a node means by its answer to a raw transaction: `ok`, `taken` (the nonce) or `refused`."""
    if answer.error is None:
        return "ok"
    words = answer.message.lower()
    if "already known" in words or "known transaction" in words or "already imported" in words:
        return "ok"
    if "nonce too low" in words or "nonce is too low" in words or "underpriced" in words:
        return "taken"
    return "refused"
