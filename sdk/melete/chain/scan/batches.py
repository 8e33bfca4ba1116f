"""Many requests at a time, also to a provider that takes no batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from melete.chain.rpc import batch, one
from melete.errors import NodeRefused, NodeUnreachable

if TYPE_CHECKING:
    from web3 import Web3


class Batches:
    """Asks a node in batches; after one that was refused, request by request for good."""

    def __init__(self, w3: Web3) -> None:
        self._w3 = w3
        self._taken = True

    def results(self, asked: Sequence[tuple[str, list[Any]]]) -> list[Any]:
        """Return a result for each request, in order. Errors: `NodeRefused`, `NodeUnreachable`."""
        if self._taken and len(asked) > 1:
            try:
                answers = batch(self._w3, asked)
                if not any(answer.error for answer in answers):
                    return [answer.result for answer in answers]
            except (NodeRefused, NodeUnreachable, NotImplementedError):
                pass
            self._taken = False  # the provider takes none, or not so many
        return [one(self._w3, method, parameters) for method, parameters in asked]
