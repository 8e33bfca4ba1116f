"""A contract's events, all of them and in order, read from a node in ranges of blocks.

A scanner starts at the block of deployment, asks for as many blocks as the provider gives, keeps the hashes of blocks
that it has read, and goes back when the chain does. Every page says which blocks it speaks of, so that whoever keeps
what was read can follow: forget what came after `page.after`, then take `page.events`. A page that is read again after
a crash changes nothing.

A log counts only if its block is the chain's. That a provider left out a log, logs alone cannot show: compare what
follows from them with the contract's own state at `page.through` (`melete.memory.proofs`).
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from melete.canonical import load_json
from melete.chain.connection import ask, check_chain
from melete.chain.deployments import write_atomically
from melete.chain.rpc import batch, one
from melete.errors import (
    ChainReorganized,
    ConfigurationError,
    InputError,
    MissingFile,
    NodeRefused,
    NodeUnreachable,
    UnusableLogs,
)
from melete.primitives import ZERO_BYTES32, Address, Bytes32, uint

if TYPE_CHECKING:
    from web3 import Web3

Event = TypeVar("Event")
#: Takes a log with the members that web3 gives it (bytes and ints), returns its event, or None if it has none.
Decoder: TypeAlias = Callable[[Mapping[str, Any]], Event | None]
#: What `eth_getLogs` filters by: at each place a topic, several of which one must match, or None for any.
Topics: TypeAlias = Sequence[Bytes32 | Sequence[Bytes32] | None]

#: How many blocks the first request asks for: few enough for any provider, and soon doubled.
FIRST_BLOCKS: Final = 100
MOST_BLOCKS: Final = 10_000_000
#: A page is made smaller when it holds more logs: what is held in memory at once.
PAGE_LOGS: Final = 2_000
#: After so many pages that went well, a range that was refused once is tried again.
FORGET_REFUSAL_AFTER: Final = 64
#: How often a page is read again when the chain moves under it, or a single block is refused.
ATTEMPTS: Final = 4
#: How many of the last blocks are all remembered by hash; of older ones, ever fewer the older they are.
REMEMBERED_BLOCKS: Final = 64
HEADERS_AT_ONCE: Final = 100
STATE_FORMAT: Final = "melete/scan/1"

#: Words by which providers say that they want a pause, not a smaller range.
_PAUSE_WORDS: Final = ("too many requests", "rate limit", "rate-limit", "rate exceeded", "per second", "throttl")
#: HTTP answers that no smaller range will change: no access, no such place.
_FINAL_STATUS: Final = frozenset({401, 402, 403, 404, 405, 407})


@dataclass(frozen=True, slots=True)
class BlockReference:
    """A block, by number and hash."""

    number: int
    hash: Bytes32


@dataclass(frozen=True, slots=True)
class Page(Generic[Event]):
    """The events of the blocks after number `after`, up to and with block `through`; whatever was told of them before
    no longer holds."""

    after: int
    through: BlockReference
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class _RawPage:
    """A page before its logs are decoded, and the last blocks of it whose hashes were compared with the chain's."""

    after: int
    through: BlockReference
    logs: list[dict[str, Any]]
    compared: list[BlockReference]


@dataclass(frozen=True, slots=True)
class SentTransaction:
    """Who called whom with what. `to` is None for a deployment. The node's word: the hash is not computed again."""

    sender: Address
    to: Address | None
    data: bytes


def load_block(w3: Web3, block: str | int) -> BlockReference:
    """Return a block's number and hash, by number or tag. Errors: `NodeRefused` when the node does not have it."""
    found = one(w3, "eth_getBlockByNumber", [block if isinstance(block, str) else hex(block), False])
    if found is None:
        raise NodeRefused("eth_getBlockByNumber", f"it has no block {block}")
    try:
        return BlockReference(int(found["number"], 16), Bytes32(found["hash"], "hash"))
    except (KeyError, TypeError, ValueError) as error:
        raise NodeRefused("eth_getBlockByNumber", f"block {block} has no number and hash") from error


def load_transaction(w3: Web3, transaction_hash: Bytes32) -> SentTransaction:
    """Return a transaction by its hash. Errors: `NodeRefused` when the node does not have it."""
    found = one(w3, "eth_getTransactionByHash", [str(transaction_hash)])
    try:
        to = None if found["to"] is None else Address(found["to"])
        return SentTransaction(Address(found["from"]), to, bytes.fromhex(found["input"].removeprefix("0x")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeRefused("eth_getTransactionByHash", f"it has no transaction {transaction_hash}") from error


class Scanner(Generic[Event]):
    """Reads one contract's events from `start_block` on.

    `until` is where a scan ends: `latest`, `safe`, `finalized` or a block number, less `confirmations`. With a
    `state_file` it goes on where it was, in this process or the next. The hash that a log names is compared with the
    chain's for every block that is not final yet by the node's own word, and with `compare_final` for all: a request
    more for each block that holds events.
    Errors of the constructor: `ConfigurationError` for the state of another scan, `InvalidJson` and `InvalidInput`
    for a state file that is none; `NodeUnreachable`, `NodeRefused`.
    """

    def __init__(
        self,
        w3: Web3,
        address: Address | str,
        decode: Decoder[Event],
        *,
        start_block: int = 0,
        until: str | int = "latest",
        confirmations: int = 0,
        topics: Topics = (),
        state_file: Path | None = None,
        compare_final: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._w3 = w3
        self._address = Address(address, "address")
        self._decode = decode
        self._until, self._confirmations = until, uint(confirmations, 64, "confirmations")
        self._start_block = uint(start_block, 64, "start_block")
        self._topics = [_topic_texts(place) for place in topics]
        self._state_file = state_file
        self._compare_final = compare_final
        self._node = _Node(w3, sleep)
        self._stride = _Stride()
        self._chain_id = check_chain(w3, None)
        self._kept = self._load_state() or [self._origin()]
        #: Up to which block pages were given out; unknown at first, when a process before this one may have done it.
        self._told: int | None = None
        self._final = -1
        #: The hash of the next page's last block, if it is known already.
        self._ahead: dict[int, str | None] = {}
        #: The next page's logs, if they are asked for already.
        self._coming: _Coming | None = None

    @property
    def position(self) -> BlockReference:
        """The last block that was read; the one before the start, at the start (number -1 if that is block 0)."""
        return self._kept[-1]

    def events(self) -> Iterator[Event]:
        """Yield the events from the position to the end, in order, decoded one by one.

        Errors: `ChainReorganized` when the chain went back behind what was read before, `UnusableLogs`, `NodeRefused`,
        `NodeUnreachable`.
        """
        known = self.position.number
        for page in self._pages():
            if page.after < known:
                raise ChainReorganized(page.after)
            yield from self._decoded(page.logs)
            known = page.through.number

    def pages(self) -> Iterator[Page[Event]]:
        """Yield what is new, page by page. The state file follows when the next page is asked for.

        The first call gives at least one page, be it empty: what came after it was never read, or no longer holds.
        Errors: `UnusableLogs` when the logs are not the chain's; `NodeRefused`, `NodeUnreachable`.
        """
        for page in self._pages():
            yield Page(page.after, page.through, tuple(self._decoded(page.logs)))

    # One page

    def _pages(self) -> Iterator[_RawPage]:
        self._go_back()
        target = self._target()
        moves = 0
        while (position := self.position).number < target:
            try:
                page = self._read(position, min(position.number + self._stride.blocks, target), target)
            except _Refused:
                continue  # the stride is shorter now, or there was a pause
            except _Moved as moved:
                moves += 1
                if moves == ATTEMPTS:
                    raise UnusableLogs(moved.reason) from None
                self._node.pause(moves)
                self._go_back()
                target = self._target()
                continue
            moves = 0
            self._told = page.through.number
            yield page
            self._kept = _thin_out([*self._kept, *page.compared])
            self._save()
        if self._told is None or self.position.number < self._told:
            self._told = self.position.number
            yield _RawPage(self.position.number, self.position, [], [])
            self._save()

    def _read(self, position: BlockReference, last: int, target: int) -> _RawPage:
        """Return the page after a position. The hash of its end is the same before and after its logs were read."""
        first = position.number + 1
        end = self._ahead.pop(last, None) or self._node.load_hashes([last])[last]
        self._ahead.clear()
        if end is None:
            raise _Moved(f"the node no longer has block {last}")
        coming, self._coming = self._coming, None
        try:
            if coming is not None and coming.blocks == (first, last):
                logs = coming.wait()
            else:
                logs = self._node.load_logs(self._filter(first, last))
        except _Refused as refused:
            self._node.overcome(refused, self._stride, last - first + 1)
            raise
        self._stride.accept(last - first + 1, len(logs))
        claimed = self._check(logs, first, last)
        following = min(last + self._stride.blocks, target)  # asked for along with the others
        known = self._load_known(claimed, position, last, following)
        if position.number >= 0 and known[position.number] != str(position.hash):
            raise _Moved(f"block {position.number} was replaced")
        if known[last] != end:
            raise _Moved(f"block {last} was replaced")
        for number, block_hash in claimed.items():
            if known.get(number, block_hash) != block_hash:
                raise _Moved(f"a log names {block_hash} as block {number}, which is {known[number]}")
        self._ahead[following] = known[following]
        if last < following:
            # While the caller is busy with this page, the node looks for the next.
            self._coming = _Coming(self._node, (last + 1, following), self._filter(last + 1, following))
        claimed[last] = end
        recent = [number for number in claimed if number in known][-REMEMBERED_BLOCKS:]
        compared = [BlockReference(number, Bytes32(claimed[number])) for number in recent]
        return _RawPage(position.number, compared[-1], logs, compared)

    def _check(self, logs: list[dict[str, Any]], first: int, last: int) -> dict[int, str]:
        """Return the hash that the logs name for each of their blocks, after everything that they say themselves."""
        address = "0x" + self._address.hex()
        wanted = [(place, topics) for place, topics in enumerate(self._topics) if topics is not None]
        claimed: dict[int, str] = {}
        previous_block, previous_index = first, -1
        try:
            for log in logs:
                if log["address"] != address and log["address"].lower() != address:
                    raise UnusableLogs(f"one is of {log['address']}, asked was for {self._address}")
                number, index, block_hash = (
                    int(log["blockNumber"], 16),
                    int(log["logIndex"], 16),
                    log["blockHash"].lower(),
                )
                if not first <= number <= last:
                    raise UnusableLogs(f"one is of block {number}, asked was for {first} to {last}")
                if number < previous_block or (number == previous_block and index <= previous_index):
                    raise UnusableLogs(f"log {index} of block {number} is out of order, or there twice")
                topics = log["topics"]
                for place, allowed in wanted:
                    if len(topics) <= place or topics[place].lower() not in allowed:
                        raise UnusableLogs(f"log {index} of block {number} has other topics than asked for")
                if log.get("removed"):
                    raise _Moved(f"log {index} of block {number} is marked as removed")
                if claimed.setdefault(number, block_hash) != block_hash:
                    raise _Moved(f"block {number} has two hashes")
                previous_block, previous_index = number, index
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnusableLogs("one is ill-formed") from error
        return claimed

    def _load_known(self, claimed: Mapping[int, str], position: BlockReference, *others: int) -> dict[int, str | None]:
        """Return the chain's hashes of the blocks with logs, of the one before the page, and of others."""
        wanted = {*others, *(number for number in claimed if number > self._final)}
        if position.number >= 0:
            wanted.add(position.number)
        return self._node.load_hashes(sorted(wanted))

    def _decoded(self, logs: list[dict[str, Any]]) -> Iterator[Event]:
        decode = self._decode
        for log in logs:
            try:
                event = decode(_as_web3(log))
            except (InputError, KeyError, TypeError, ValueError) as error:
                raise UnusableLogs(f"one of block {int(log['blockNumber'], 16)} does not decode: {error}") from error
            if event is not None:
                yield event

    def _filter(self, first: int, last: int) -> dict[str, Any]:
        query: dict[str, Any] = {"address": str(self._address), "fromBlock": hex(first), "toBlock": hex(last)}
        if self._topics:
            query["topics"] = [None if place is None else sorted(place) for place in self._topics]
        return query

    def _target(self) -> int:
        """Return the number of the last block to read."""
        if not self._compare_final:
            try:
                self._final = load_block(self._w3, "finalized").number
            except NodeRefused:
                self._final = -1  # a chain without finality, or a node that cannot tell
        return load_block(self._w3, self._until).number - self._confirmations

    # The blocks read

    def _origin(self) -> BlockReference:
        before = self._start_block - 1
        if before < 0:
            return BlockReference(before, ZERO_BYTES32)
        block_hash = self._node.load_hashes([before])[before]
        # Before there is a chain to start on, any block will do: it is replaced when there is one.
        return BlockReference(before, ZERO_BYTES32 if block_hash is None else Bytes32(block_hash))

    def _go_back(self) -> None:
        """Forget the blocks that are no longer the chain's."""
        last = self.position
        if last.number < 0 or self._node.load_hashes([last.number])[last.number] == str(last.hash):
            return  # and with it all that came before
        known = self._node.load_hashes([block.number for block in self._kept if block.number >= 0])
        while self._kept and self._kept[-1].number >= 0 and known[self._kept[-1].number] != str(self._kept[-1].hash):
            self._kept.pop()
        if not self._kept:
            self._kept.append(self._origin())

    # The state file

    def _scan(self) -> dict[str, Any]:
        """What makes this scan another than others."""
        topics = [None if place is None else sorted(place) for place in self._topics]
        return {
            "format": STATE_FORMAT,
            "chainId": self._chain_id,
            "address": str(self._address),
            "startBlock": self._start_block,
            "topics": topics,
        }

    def _save(self) -> None:
        if self._state_file is not None:
            blocks = [[block.number, str(block.hash)] for block in self._kept]
            state = {**self._scan(), "pageBlocks": self._stride.blocks, "blocks": blocks}
            write_atomically(self._state_file, json.dumps(state) + "\n")

    def _load_state(self) -> list[BlockReference] | None:
        path = self._state_file
        if path is None or not path.exists():
            return None
        try:
            text = path.read_bytes()
        except OSError as error:
            raise MissingFile(str(path), f"the scan's state cannot be read ({error.strerror})") from None
        state = load_json(text)
        for member, value in self._scan().items():
            if not isinstance(state, dict) or state.get(member) != value:
                raise ConfigurationError(f"{path} is not the state of this scan: {member} differs; give another file")
        assert isinstance(state, dict)
        blocks = state.get("blocks")
        if not isinstance(blocks, list) or not blocks or not all(isinstance(b, list) and len(b) == 2 for b in blocks):
            raise ConfigurationError(f"{path} holds no blocks; remove it to read from the start")
        kept = [BlockReference(_block_number(block[0]), Bytes32(block[1], "hash")) for block in blocks]  # type: ignore[index, arg-type]
        numbers = [block.number for block in kept]
        if numbers != sorted(set(numbers)) or numbers[0] != self._start_block - 1:
            raise ConfigurationError(f"{path} holds blocks out of order; remove it to read from the start")
        self._stride = _Stride(max(1, min(uint(state.get("pageBlocks"), 64, "pageBlocks"), MOST_BLOCKS)))  # type: ignore[arg-type]
        return kept


def _thin_out(blocks: Sequence[BlockReference]) -> list[BlockReference]:
    """Return the first block, the last ones, and between them some eight for each doubling of the distance."""
    newest = blocks[-1].number
    kept: list[BlockReference] = []
    last_step, last_share = 0, 0
    for block in blocks:
        distance = newest - block.number
        step = 1 if distance < REMEMBERED_BLOCKS else 1 << (distance // 8).bit_length() - 1
        share = block.number // step
        if (step, share) != (last_step, last_share):
            kept.append(block)
        last_step, last_share = step, share
    return kept


class _Stride:
    """How many blocks to ask for: half after a refusal, and back up to just below it; more while nothing is refused."""

    def __init__(self, blocks: int = FIRST_BLOCKS) -> None:
        self.blocks = blocks
        self._refused: int | None = None
        self._went_well = 0

    def refuse(self, asked: int) -> None:
        self._refused = asked
        self.blocks = max(1, asked // 2)
        self._went_well = 0

    def accept(self, asked: int, logs: int) -> None:
        fit = MOST_BLOCKS if logs == 0 else max(1, asked * PAGE_LOGS // logs)
        if asked < self.blocks:  # the last page of a scan is shorter, and says nothing about longer ones
            self.blocks = min(self.blocks, fit)
            return
        self._went_well += 1
        if self._went_well >= FORGET_REFUSAL_AFTER:
            self._refused, self._went_well = None, 0
        grown = asked * 2
        if self._refused is not None:
            # Closer to what was refused, until the step is not worth another refusal.
            middle = (asked + self._refused) // 2
            grown = middle if middle - asked > asked // 16 else asked
        self.blocks = max(1, min(grown, fit, MOST_BLOCKS))


class _Moved(Exception):
    """The chain, or the node behind the address, changed while a page was read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Refused(Exception):
    """The node did not give the logs of a range, perhaps because it is too wide, or wants a pause first."""

    def __init__(self, reason: str, pause: bool) -> None:
        super().__init__(reason)
        self.reason, self.pause = reason, pause


class _Coming:
    """Logs that are asked for in a thread of their own. What goes wrong there is raised to whoever waits for them."""

    def __init__(self, node: _Node, blocks: tuple[int, int], query: dict[str, Any]) -> None:
        self.blocks = blocks
        self._node, self._query = node, query
        self._logs: list[dict[str, Any]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> list[dict[str, Any]]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._logs

    def _load(self) -> None:
        try:
            self._logs = self._node.load_logs(self._query)
        except BaseException as error:  # noqa: BLE001  # raised again by `wait`
            self._error = error


class _Node:
    """Asks for logs and block hashes, without the formatting that costs more than the request."""

    def __init__(self, w3: Web3, sleep: Callable[[float], None]) -> None:
        self._w3, self._sleep = w3, sleep
        self._provider: Any = w3.provider
        if hasattr(self._provider, "exception_retry_configuration"):
            # web3 would repeat a refused request five times before it tells.
            self._provider = copy.copy(self._provider)
            self._provider.exception_retry_configuration = None
        self._batches = True
        self._in_a_row = 0

    def pause(self, attempt: int) -> None:
        self._sleep(0.25 * 2**attempt)

    def load_logs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """Return logs as the node wrote them, or raise `_Refused`. Errors: `NodeUnreachable` when nothing is there."""
        try:
            logs = _result("eth_getLogs", ask(self._w3, "eth_getLogs", lambda: self._request_logs(query)))
        except NodeRefused as error:
            raise _Refused(error.reason, _wants_a_pause(error.reason)) from error
        if not isinstance(logs, list):
            raise _Refused("the answer is no list of logs", pause=False)
        self._in_a_row = 0
        return logs

    def _request_logs(self, query: dict[str, Any]) -> Any:
        from requests import RequestException

        try:
            return self._provider.make_request("eth_getLogs", [query])
        except (RequestException, OSError, ValueError) as error:
            refused = _refusal_of(error)
            if refused is None:
                raise
            raise refused from None

    def overcome(self, refused: _Refused, stride: _Stride, asked: int) -> None:
        """Wait, or ask for less next time, or give up with the refusal's own error."""
        self._in_a_row += 1
        if refused.pause and self._in_a_row <= ATTEMPTS:
            self.pause(self._in_a_row)
        elif asked > 1:
            self._in_a_row = 0
            stride.refuse(asked)
        elif self._in_a_row < ATTEMPTS:
            self.pause(self._in_a_row)
        else:
            raise NodeRefused("eth_getLogs", refused.reason) from None

    def load_hashes(self, numbers: Sequence[int]) -> dict[int, str | None]:
        """Return the hashes of blocks by their numbers, as lower-case hex; None for what the node does not have."""
        hashes: dict[int, str | None] = {}
        for start in range(0, len(numbers), HEADERS_AT_ONCE):
            some = numbers[start : start + HEADERS_AT_ONCE]
            hashes.update(zip(some, map(_hash_of, some, self._load_blocks(some)), strict=True))
        return hashes

    def _load_blocks(self, numbers: Sequence[int]) -> list[Any]:
        asked: list[tuple[str, list[Any]]] = [("eth_getBlockByNumber", [hex(number), False]) for number in numbers]
        if self._batches and len(asked) > 1:
            try:
                answers = batch(self._w3, asked)
                if not any(answer.error for answer in answers):
                    return [answer.result for answer in answers]
            except (NodeRefused, NodeUnreachable, NotImplementedError):
                pass
            self._batches = False  # the provider takes none, or not so many
        return [one(self._w3, method, parameters) for method, parameters in asked]


def _result(method: str, answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        raise NodeRefused(method, "the answer is no JSON-RPC response")
    error = answer.get("error")
    if error:
        message = error.get("message", error) if isinstance(error, Mapping) else error
        raise NodeRefused(method, str(message))
    if "result" not in answer:
        raise NodeRefused(method, "the answer holds no result")
    return answer["result"]


def _refusal_of(error: Exception) -> _Refused | None:
    """Return the refusal that a failed request may be; None when the failure has nothing to do with its size."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        if status in _FINAL_STATUS:
            return None
        text = f"HTTP {status} {error.response.text[:200]}".strip()
        return _Refused(text, status == 429 or _wants_a_pause(text))
    if isinstance(error, requests.Timeout | TimeoutError) and not isinstance(error, requests.ConnectTimeout):
        return _Refused("it did not answer in time", pause=False)
    # Cut off in the middle of an answer, or an answer that is no JSON: gateways do that to long ones.
    is_cut = isinstance(error, requests.exceptions.ChunkedEncodingError | ConnectionResetError | ValueError)
    is_dropped = isinstance(error, requests.ConnectionError) and any(
        words in str(error) for words in ("aborted", "reset", "without response", "prematurely")
    )
    return _Refused("it broke off its answer", pause=False) if is_cut or is_dropped else None


def _wants_a_pause(text: str) -> bool:
    return any(words in text.lower() for words in _PAUSE_WORDS)


def _hash_of(number: int, block: Any) -> str | None:
    """Return the hash of a block as lower-case hex; it is compared as text."""
    if block is None:
        return None
    try:
        block_hash: str = block["hash"].lower()
        if int(block["number"], 16) == number and len(block_hash) == 66:
            return block_hash
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise NodeRefused("eth_getBlockByNumber", f"what it gives as block {number} is none")


def _topic_texts(place: Bytes32 | Sequence[Bytes32] | None) -> frozenset[str] | None:
    if place is None:
        return None
    topics = [place] if isinstance(place, bytes | str) else place
    return frozenset(str(Bytes32(topic, "topic")) for topic in topics)


def _as_web3(log: Mapping[str, Any]) -> dict[str, Any]:
    """Return a log with bytes and ints for hex text, as web3's formatters would."""
    from_hex = bytes.fromhex
    return {
        "address": log["address"],
        "topics": [from_hex(topic[2:]) for topic in log["topics"]],
        "data": from_hex(log["data"][2:]),
        "blockNumber": int(log["blockNumber"], 16),
        "blockHash": from_hex(log["blockHash"][2:]),
        "transactionHash": from_hex(log["transactionHash"][2:]),
        "logIndex": int(log["logIndex"], 16),
    }


def _block_number(value: Any) -> int:
    return -1 if value == -1 and type(value) is int else uint(value, 64, "blocks")
