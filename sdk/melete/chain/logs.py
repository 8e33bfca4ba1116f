"""A contract's events, all of them and in order, read from a node in ranges of blocks.

A scanner starts at the block of deployment, asks for as many blocks as the provider gives, keeps the hashes of blocks
that it has read, and goes back when the chain does. Every page says which blocks it speaks of, so that whoever keeps
what was read can follow: forget what came after `page.after`, then take `page.events`. A page that is read again after
a crash changes nothing.

A log counts only if its block is the chain's. That a provider left out a log, logs alone cannot show: compare what
follows from them with the contract's own state at `page.through` (`melete.memory.proofs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from melete.canonical import Json
from melete.chain.connection import check_chain
from melete.chain.scan.blocks import REMEMBERED_BLOCKS, BlockReference, load_block, thin_out
from melete.chain.scan.form import Decoder, RawLog, Topics, _Moved, check_logs, decode_log, topic_texts
from melete.chain.scan.node import ATTEMPTS, Coming, LogNode, _Refused
from melete.chain.scan.state import STATE_FORMAT, Keeper, ScanState, StateFile
from melete.chain.scan.stride import FIRST_BLOCKS, MOST_BLOCKS, PAGE_LOGS, Stride
from melete.chain.scan.transactions import SentTransaction, load_transaction
from melete.errors import ChainReorganized, InvalidInput, NodeRefused, UnusableLogs
from melete.primitives import ZERO_BYTES32, Address, Bytes32, uint

if TYPE_CHECKING:
    from web3 import Web3

__all__ = [
    "FIRST_BLOCKS",
    "MOST_BLOCKS",
    "PAGE_LOGS",
    "REMEMBERED_BLOCKS",
    "STATE_FORMAT",
    "BlockReference",
    "Decoder",
    "Page",
    "RawLog",
    "Scanner",
    "SentTransaction",
    "Topics",
    "load_block",
    "load_transaction",
]

Event = TypeVar("Event")

#: Where a scan can end, besides at a block's number.
ENDS: Final = ("latest", "safe", "finalized")


@dataclass(frozen=True, slots=True)
class Page(Generic[Event]):
    """The events of the blocks after number `after`, up to and with block `through`; whatever was told of them before
    no longer holds."""

    after: int
    through: BlockReference
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class _RawPage:
    """A page of checked logs, not decoded yet, and its last blocks whose hashes were compared with the chain's."""

    after: int
    through: BlockReference
    logs: Sequence[RawLog]
    compared: list[BlockReference]


class Scanner(Generic[Event]):
    """Reads one contract's events from `start_block` on.

    `until` is where a scan ends: `latest`, `safe`, `finalized` or a block number, less `confirmations`. With a
    `state_file` it goes on where it was, in this process or the next; a `keeper` in its place keeps the state itself,
    with what follows from the events perhaps (`melete.chain.scan.fold`). The hash that a log names is compared with the
    chain's for every block that is not final yet by the node's own word, and with `compare_final` for all: a request
    more for each block that holds events.
    Errors of the constructor: `InvalidInput`; `MissingFile`, `StoreUnreadable` for the state of another scan, or a
    state file that is none; `NodeUnreachable`, `NodeRefused`.
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
        state_file: Path | str | None = None,
        keeper: Keeper | None = None,
        compare_final: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._chain_id = check_chain(w3, None)
        self._w3 = w3
        self._address = Address(address, "address")
        self._decode = decode
        if until not in ENDS and type(until) is not int:
            raise InvalidInput("until", until, f"a block's number, or one of {', '.join(ENDS)}")
        self._until = until if isinstance(until, str) else uint(until, 64, "until")
        self._confirmations = uint(confirmations, 64, "confirmations")
        self._start_block = uint(start_block, 64, "start_block")
        self._topics = topic_texts(topics)
        self._keeper = StateFile(state_file) if state_file is not None else keeper
        self._compare_final = compare_final
        self._node = LogNode(w3, sleep)
        self._stride = Stride()
        self._kept = self._load_state() or [self._origin()]
        #: Up to which block pages were given out; unknown at first, when a process before this one may have done it.
        self._told: int | None = None
        self._final = -1
        #: The hash of the next page's last block, if it is known already.
        self._ahead: dict[int, str | None] = {}
        #: The next page's logs, if they are asked for already.
        self._coming: Coming | None = None

    @property
    def position(self) -> BlockReference:
        """The last block that was read; the one before the start, at the start (number -1 if that is block 0)."""
        return self._kept[-1]

    def events(self) -> Iterator[Event]:
        """Yield the events from the position to the end, in order, decoded one by one.

        Errors: `ChainReorganized` when the chain went back behind what was read before, `UnusableLogs`, `NodeRefused`,
        `NodeUnreachable`.
        """
        return self._decoded(self.logs())

    def logs(self) -> Iterator[RawLog]:
        """Yield the logs that `events` would decode, as the node wrote them; their contract, topics, blocks and order
        are checked. Errors: as `events`."""
        known = self.position.number
        for page in self._pages():
            if page.after < known:
                raise ChainReorganized(page.after)
            yield from page.logs
            known = page.through.number

    def pages(self) -> Iterator[Page[Event]]:
        """Yield what is new, page by page. The state file follows when the next page is asked for.

        The first call gives at least one page, be it empty: what came after it was never read, or no longer holds.
        Errors: `UnusableLogs` when the logs are not the chain's; `NodeRefused`, `NodeUnreachable`.
        """
        for page in self._pages():
            yield Page(page.after, page.through, tuple(self._decoded(page.logs)))

    def log_pages(self) -> Iterator[Page[RawLog]]:
        """Yield what is new as `pages` does, in place of events the logs as `logs` gives them.

        Of a page's blocks only the last is remembered, so that a re-organization leads back to the end of a page.
        Errors: as `pages`, but for what decoding would find.
        """
        for page in self._pages(remember_ends_only=True):
            yield Page(page.after, page.through, tuple(page.logs))

    # One page

    def _pages(self, *, remember_ends_only: bool = False) -> Iterator[_RawPage]:
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
            self._kept = thin_out([*self._kept, *page.compared[-1 if remember_ends_only else 0 :]])
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
        claimed = check_logs(logs, self._address, self._topics, first, last)
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
            self._coming = Coming(self._node, (last + 1, following), self._filter(last + 1, following))
        claimed[last] = end
        recent = [number for number in claimed if number in known][-REMEMBERED_BLOCKS:]
        compared = [BlockReference(number, Bytes32(claimed[number])) for number in recent]
        return _RawPage(position.number, compared[-1], logs, compared)

    def _load_known(self, claimed: Mapping[int, str], position: BlockReference, *others: int) -> dict[int, str | None]:
        """Return the chain's hashes of the blocks with logs, of the one before the page, and of others."""
        wanted = {*others, *(number for number in claimed if number > self._final)}
        if position.number >= 0:
            wanted.add(position.number)
        return self._node.load_hashes(sorted(wanted))

    def _decoded(self, logs: Iterable[RawLog]) -> Iterator[Event]:
        for log in logs:
            event = decode_log(self._decode, log)
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

    # What is kept

    def _scan(self) -> dict[str, Json]:
        """What makes this scan another than others."""
        topics: list[Json] = [None if place is None else [*sorted(place)] for place in self._topics]
        return {
            "chainId": self._chain_id,
            "address": str(self._address),
            "startBlock": self._start_block,
            "topics": topics,
        }

    def _save(self) -> None:
        if self._keeper is not None:
            self._keeper.save(ScanState(self._scan(), self._stride.blocks, self._kept))

    def _load_state(self) -> list[BlockReference] | None:
        document = None if self._keeper is None else self._keeper.load()
        if self._keeper is None or document is None:
            return None
        state = ScanState.from_json(document, self._scan(), self._start_block, self._keeper.name)
        self._stride = Stride(state.page_blocks)
        return list(state.blocks)
