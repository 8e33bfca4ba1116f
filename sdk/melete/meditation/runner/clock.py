"""The time of a cycle: the registry's own clock, which is that of its latest block.

Reported times are timepoints of the registry. A local clock may run ahead of it, and a report that ended later than
the latest block is refused; so a cycle says what the registry's clock said when it was last asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from melete.errors import CouldNotTell

#: The registry is asked again after so many seconds.
ASK_AGAIN_SECONDS: Final = 5.0


class HasClock(Protocol):
    """A registry client, as far as the time goes."""

    def clock(self) -> int:
        """Return the registry's time."""


class RegistryClock:
    """Gives the registry's time, asked for at most every few seconds, and never less than before.

    When the node does not answer, the last answer stands; the first question has to be answered.
    """

    def __init__(
        self,
        registry: HasClock,
        ask_again_seconds: float = ASK_AGAIN_SECONDS,
        local: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._ask_again_seconds, self._local = registry, ask_again_seconds, local
        self._last, self._asked_at = 0, 0.0

    def __call__(self) -> int:
        """Return the time. Errors: the node's, if it never answered."""
        now = self._local()
        if self._last and now - self._asked_at < self._ask_again_seconds:
            return self._last
        try:
            self._last = max(self._last, self._registry.clock())
        except CouldNotTell:
            if not self._last:
                raise
        self._asked_at = now
        return self._last

    def ask(self) -> int:
        """Return the time as it is now, without waiting until it is due. Errors: as calling it."""
        self._asked_at = self._local() - self._ask_again_seconds
        return self()
