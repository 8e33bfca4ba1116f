"""What can go wrong with several stores at once.

CouldNotTell
└── NoStoreAnswered         every store failed
"""

from __future__ import annotations

from melete.errors import CouldNotTell
from melete.wire.routing.failures import StoreFailure

#: A message tells of at most so many stores.
_MOST_TOLD = 8


class NoStoreAnswered(CouldNotTell):
    """No store did what was asked; `failures` says why, store by store."""

    failures: tuple[StoreFailure, ...]

    def __str__(self) -> str:
        told = "; ".join(failure.text for failure in self.failures[:_MOST_TOLD])
        more = "; ..." if len(self.failures) > _MOST_TOLD else ""
        return f"none of {len(self.failures)} stores did what was asked: {told}{more}."
