"""What a transaction pays: with room for what comes, and more than before when it is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from melete.chain.rpc import batch, to_int

if TYPE_CHECKING:
    from web3 import Web3


class Fees(NamedTuple):
    """EIP-1559 fees for each unit of gas, in wei: at most, and to the block's author."""

    most: int
    tip: int

    @property
    def members(self) -> dict[str, int]:
        """The members of a transaction that say what it pays."""
        return {"maxFeePerGas": self.most, "maxPriorityFeePerGas": self.tip, "type": 2, "value": 0}

    def over(self, others: list[Fees]) -> Fees:
        """Return at least an eighth more than each of some others: less, and nodes do not let them be replaced."""
        most, tip = self
        for other in others:
            most, tip = max(most, other.most * 9 // 8 + 1), max(tip, other.tip * 9 // 8 + 1)
        return Fees(most, tip)


def load_fees(w3: Web3) -> Fees:
    """Return fees with room for two doublings of the base fee. Errors: the node's."""
    block, suggested = batch(w3, [("eth_getBlockByNumber", ["latest", False]), ("eth_maxPriorityFeePerGas", [])])
    if block.error is not None:
        raise block.error
    # A node that suggests nothing takes transactions without a tip.
    base, tip = to_int((block.result or {}).get("baseFeePerGas", "0x0")), to_int(suggested.result or "0x0")
    return Fees(2 * base + tip, tip)
