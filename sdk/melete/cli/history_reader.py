"""Reading a space's history page by page: verified, rolled back with the chain, and anchored where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from melete.chain.logs import BlockReference, Scanner, load_block
from melete.chain.scan.fold import Fold
from melete.errors import BrokenHistory, ChainReorganized, CouldNotTell, InvalidInput, NodeRefused, UnknownSpace
from melete.memory.events import TOPICS, MemoryEvent
from melete.memory.forensics import (
    Step,
    follow_space,
    space_state_from_json,
    space_state_to_json,
)
from melete.memory.proofs import AnchoredBy, verify_anchor_at
from melete.memory.raw_history import decode_quickly, verify_space_logs
from melete.memory.space import SpaceState
from melete.primitives import Bytes32

if TYPE_CHECKING:
    from melete.memory.registry import MemoryRegistry

#: How often reading goes on when the last block was replaced before the history could be anchored in it.
ATTEMPTS: Final = 4


class Teller(Protocol):
    """Is told of what is read, as it holds."""

    def take_back(self, block_number: int) -> None:
        """What was told of the blocks after this one does not hold any more."""

    def prepare(self, events: Sequence[MemoryEvent]) -> None:
        """These events come next, unless one of them does not follow."""

    def tell(self, step: Step) -> Iterable[str]:
        """An event held. Returns the counts of the tally that it adds one to, if any."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known after an event, and what this run counted up to it; both go back with the chain."""

    state: SpaceState | None = None
    events: int = 0
    opened: int = 0
    missing: int = 0
    erased: int = 0
    wrong: int = 0


class HistoryReader:
    """Reads one space's events, from a block or from where a file's run ended.

    `last_block` is the one that reading ends at, or a later one by then.
    """

    def __init__(
        self, registry: MemoryRegistry, space_id: Bytes32, start_block: int, until: str, file: Path | None
    ) -> None:
        """Errors: `InvalidInput` for a start beyond the chain; those of `Scanner` and `Fold`."""
        self._registry, self._space_id = registry, space_id
        self.last_block = load_block(registry.w3, until).number
        if start_block > self.last_block:
            raise InvalidInput("--from-block", start_block, f"at most {self.last_block}, the last block to read")
        self._fold: Fold[Tally] = Fold(
            Tally(),
            lambda tally: space_state_to_json(tally.state),
            lambda document: Tally(space_state_from_json(document)),
            kind="history",
            file=file,
        )
        self._scanner: Scanner[MemoryEvent] = Scanner(
            registry.w3,
            registry.address,
            decode_quickly,
            start_block=start_block,
            until=until,
            topics=(tuple(TOPICS), space_id),
            keeper=self._fold,
        )
        self._told_through = self._scanner.position.number
        #: What follows from everything that was read.
        self.tally = self._fold.at(self._told_through)

    @property
    def position(self) -> BlockReference:
        """The last block that was read."""
        return self._scanner.position

    def read(self, teller: Teller | None = None) -> Iterator[int]:
        """Read on to the end, and yield the last block of each page. Errors: `BrokenHistory`; those of `Scanner`."""
        if teller is None:
            return self._verify()
        return self._verify_and_tell(teller)

    def _verify(self) -> Iterator[int]:
        """Follow at the pace of `verify_space_logs`, to the end of each page."""
        for page in self._scanner.log_pages():
            self.tally = self._fold.back_to(page.after)
            if page.events:
                state = verify_space_logs(self._space_id, page.events, self.tally.state)
                self.tally = replace(self.tally, state=state, events=self.tally.events + len(page.events))
                self._fold.record(page.through.number, self.tally)
            self._told_through = page.through.number
            yield page.through.number

    def _verify_and_tell(self, teller: Teller) -> Iterator[int]:
        for page in self._scanner.pages():
            if page.after < self._told_through:
                teller.take_back(page.after)
            self._told_through = page.through.number
            self.tally = self._fold.back_to(page.after)
            teller.prepare(page.events)
            for step in follow_space(self._space_id, page.events, self.tally.state):
                tally = self.tally
                counts = {name: getattr(tally, name) + more for name, more in Counter(teller.tell(step)).items()}
                self.tally = replace(tally, state=step.state, events=tally.events + 1, **counts)
                self._fold.record(step.event.reference.block_number, self.tally)
            yield page.through.number

    def read_to_anchor(self, teller: Teller | None, tell_block: Callable[[int], None]) -> AnchoredBy:
        """Read to the end, as often as the last block is replaced meanwhile, and return how that was anchored.

        `tell_block` is given the last block of each page. Errors: those of `read` and `anchor`; `ChainReorganized`
        when the chain does not stand still.
        """
        for _ in range(ATTEMPTS):
            for number in self.read(teller):
                tell_block(number)
            anchored_by = self.anchor()
            if anchored_by is not None:
                return anchored_by
        raise ChainReorganized(self.position.number)

    def anchor(self) -> AnchoredBy | None:
        """Compare what was read with the registry's own state at that very block, and return by what means.

        None when the block is no longer the chain's: read on, and ask again. Errors: `BrokenHistory`; `UnknownSpace`
        for a space that neither the events nor the registry know; those of `verify_anchor_at`.
        """
        block = self.position
        try:
            anchored_by = verify_anchor_at(self._registry, self._space_id, self.tally.state, block)
        except CouldNotTell:
            if self._is_there(block):
                raise
            return None
        if self.tally.state is None:
            raise UnknownSpace
        return anchored_by

    def _is_there(self, block: BlockReference) -> bool:
        try:
            return load_block(self._registry.w3, block.number) == block
        except NodeRefused:
            return False


def late_start(error: BrokenHistory, from_block: int | None) -> BrokenHistory | InvalidInput:
    """Return what a history without its registration means: for a start that somebody chose, that it is too late."""
    if from_block and error.rule == "space_unregistered":
        rule = "at or before the block of the space's registration, which was not read"
        return InvalidInput("--from-block", from_block, rule)
    return error
