"""How many blocks to ask for at a time."""

from __future__ import annotations

from typing import Final

#: How many blocks the first request asks for: few enough for any provider, and soon doubled.
FIRST_BLOCKS: Final = 100
MOST_BLOCKS: Final = 10_000_000
#: A page is made smaller when it holds more logs: what is held in memory at once.
PAGE_LOGS: Final = 2_000
#: After so many pages that went well, a range that was refused once is tried again.
FORGET_REFUSAL_AFTER: Final = 64


class Stride:
    """How many blocks to ask for: half after a refusal, and back up to just below it; more while nothing is refused."""

    def __init__(self, blocks: int = FIRST_BLOCKS) -> None:
        self.blocks = max(1, min(blocks, MOST_BLOCKS))
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
