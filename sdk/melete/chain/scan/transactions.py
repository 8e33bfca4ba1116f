"""The transactions that events stand in: who called whom, with what calldata."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from melete.chain.rpc import one
from melete.chain.scan.batches import Batches
from melete.errors import NodeRefused
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from web3 import Web3

METHOD: Final = "eth_getTransactionByHash"
TRANSACTIONS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class SentTransaction:
    """Who called whom with what. `to` is None for a deployment. The node's word: the hash is not computed again."""

    sender: Address
    to: Address | None
    data: bytes


def load_transaction(w3: Web3, transaction_hash: Bytes32) -> SentTransaction:
    """Return a transaction by its hash. Errors: `NodeRefused` when the node does not have it."""
    found = _read(one(w3, METHOD, [str(transaction_hash)]))
    if found is None:
        raise NodeRefused(METHOD, f"it has no transaction {transaction_hash}")
    return found


class Transactions:
    """Transactions by hash, many at a time; nothing of them is kept."""

    def __init__(self, w3: Web3) -> None:
        self._w3 = w3
        self._batches = Batches(w3)

    def load(self, hashes: Iterable[Bytes32]) -> dict[Bytes32, SentTransaction | None]:
        """Return each transaction once; None for one that the node does not have any more, or gives ill-formed.

        Errors: `NodeUnreachable`.
        """
        wanted = list(dict.fromkeys(hashes))
        found: dict[Bytes32, SentTransaction | None] = {}
        for start in range(0, len(wanted), TRANSACTIONS_AT_ONCE):
            some = wanted[start : start + TRANSACTIONS_AT_ONCE]
            try:
                results = self._batches.results([(METHOD, [str(transaction_hash)]) for transaction_hash in some])
                found.update(zip(some, map(_read, results), strict=True))
            except NodeRefused:
                found.update((transaction_hash, self._load_one(transaction_hash)) for transaction_hash in some)
        return found

    def _load_one(self, transaction_hash: Bytes32) -> SentTransaction | None:
        try:
            return _read(one(self._w3, METHOD, [str(transaction_hash)]))
        except NodeRefused:
            return None


def _read(found: Any) -> SentTransaction | None:
    try:
        to = None if found["to"] is None else Address(found["to"])
        return SentTransaction(Address(found["from"]), to, bytes.fromhex(found["input"].removeprefix("0x")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
