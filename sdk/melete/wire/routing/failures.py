"""Where one store of several did not do what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from melete.errors import MeleteError

_IN_MEMORY: Final = "owed, and noted in memory only: retry before the router is closed, or name a file of debts"


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """One store that did not do it. `error` is why; None if it answered, and refused: `reason` says it then.

    `is_owed` tells that it is noted, and done by `Router.retry` once the store does answer. A note that does not
    outlast the router is forgotten with it: what was forgotten elsewhere is then recalled from this store again.
    """

    store: str
    reason: str
    error: MeleteError | None = None
    is_owed: bool = False
    outlasts: bool = True

    @property
    def text(self) -> str:
        """Store and reason in a line; nothing that is remembered stands in it."""
        owed = ""
        if self.is_owed:
            owed = " (owed; retry does it later)" if self.outlasts else f" ({_IN_MEMORY})"
        return f"{self.store}: {self.reason}{owed}"
