"""Where one store of several did not do what was asked."""

from __future__ import annotations

from dataclasses import dataclass

from melete.errors import MeleteError


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """One store that did not do it. `error` is why; None if it answered, and refused: `reason` says it then.

    `is_owed` tells that it is noted, and done by `Router.retry` once the store does answer.
    """

    store: str
    reason: str
    error: MeleteError | None = None
    is_owed: bool = False

    @property
    def text(self) -> str:
        """Store and reason in a line; nothing that is remembered stands in it."""
        owed = " (owed; retry does it later)" if self.is_owed else ""
        return f"{self.store}: {self.reason}{owed}"
