"""What follows from a contract's events, kept for every block that their scan remembers.

    fold = Fold(None, step_to_json, step_from_json, file=path)
    for page in Scanner(..., keeper=fold).pages():
        state = fold.back_to(page.after)             # what held there; what came later is forgotten
        for event in page.events:
            state = follow(state, event)
            fold.record(event.reference.block_number, state)

So a re-organization costs no second reading of what came before it, in this process or in the next: a file holds the
scan's state and these ones together, written whole or not at all. It is not a secret, and not a proof either: whoever
can write it decides where reading begins. Compare the end with the contract's own state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from melete.canonical import Json
from melete.chain.scan.state import ScanState, read_state, write_state
from melete.errors import InputError, StoreUnreadable
from melete.primitives import uint

State = TypeVar("State")

FOLD_FORMAT: Final = "melete/fold/1"


class Fold(Generic[State]):
    """States by block: the keeper of a scan (`melete.chain.scan.state.Keeper`) that keeps what follows as well.

    `start` is what holds before the first event. `to_json` and `from_json` write and read any other state; what
    `from_json` refuses, it refuses with an `InputError`. `kind` says what the states are, so that no file of another
    kind is taken for one. Memory grows with the events of a page, and else by the logarithm of the scan's length.
    Errors of the constructor: `MissingFile`; `StoreUnreadable` for a file of something else, or one that is not whole.
    """

    def __init__(
        self,
        start: State,
        to_json: Callable[[State], Json],
        from_json: Callable[[Json], State],
        *,
        kind: str = "",
        file: Path | None = None,
    ) -> None:
        self._start = start
        self._to_json, self._from_json = to_json, from_json
        self._kind, self._file = kind, file
        #: From each of these blocks on, up to the next of them, a state holds; ascending.
        self._numbers: list[int] = []
        self._states: list[State] = []
        self._scan = self._read()

    def at(self, block_number: int) -> State:
        """Return what holds after a block, as far as that was recorded."""
        end = bisect_right(self._numbers, block_number)
        return self._states[end - 1] if end else self._start

    def back_to(self, block_number: int) -> State:
        """Forget what was recorded of later blocks, and return what holds after this one."""
        end = bisect_right(self._numbers, block_number)
        del self._numbers[end:], self._states[end:]
        return self.at(block_number)

    def record(self, block_number: int, state: State) -> None:
        """Note what holds after an event of a block; blocks come in order, and one may come again."""
        if self._numbers and self._numbers[-1] == block_number:
            self._states[-1] = state
        else:
            self._numbers.append(block_number)
            self._states.append(state)

    # The scan's keeper

    @property
    def name(self) -> str:
        """What errors call it."""
        return str(self._file)

    def load(self) -> Json:
        """Return the scan's own part of the file, or None without one."""
        return self._scan

    def save(self, state: ScanState) -> None:
        """Keep the states at the blocks that the scan remembers, and write the file. Errors: `StoreNotWritten`."""
        numbers: list[int] = []
        states: list[State] = []
        last = -1
        for block in state.blocks:
            place = bisect_right(self._numbers, block.number) - 1
            if place > last:
                numbers.append(block.number)
                states.append(self._states[place])
                last = place
        self._numbers, self._states = numbers, states
        if self._file is not None:
            written: list[Json] = [[number, self._to_json(held)] for number, held in zip(numbers, states, strict=True)]
            scan = state.to_json()
            write_state(self._file, {"format": FOLD_FORMAT, "kind": self._kind, "scan": scan, "states": written})

    def _read(self) -> Json:
        document = None if self._file is None else read_state(self._file)
        if document is None:
            return None
        if document.get("format") != FOLD_FORMAT or document.get("kind") != self._kind:
            raise StoreUnreadable(self.name, "it keeps something else than this")
        entries: Any = document.get("states")
        if not isinstance(entries, list) or document.get("scan") is None:
            raise StoreUnreadable(self.name, "it is not whole")
        try:
            for entry in entries:
                number, held = entry
                self.record(uint(number, 64, "block"), self._from_json(held))
        except (InputError, TypeError, ValueError) as error:
            raise StoreUnreadable(self.name, "it holds a state that is none") from error
        if self._numbers != sorted(set(self._numbers)):
            raise StoreUnreadable(self.name, "it holds states out of order")
        return document["scan"]
