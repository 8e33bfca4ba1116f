"""Who sends a transaction, and what came of it.

A sender is anything with an `address` and a `send` that hands a filled transaction to the node. Nonces come from the
node's own count of pending transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from melete.chain.connection import ask, call
from melete.errors import EmptyRevert, NotMined
from melete.primitives import Address, Bytes32
from melete.signing import LocalSigner

if TYPE_CHECKING:
    from web3 import Web3

#: How long a transaction may take into a block before its sender is told, in seconds.
RECEIPT_SECONDS = 180


class Sender(Protocol):
    """Pays for transactions and sends them."""

    @property
    def address(self) -> Address:
        """The account that the transactions come from."""

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        """Hand a transaction (`to`, `data`, `gas`, `chainId`) to the node, and return its hash."""


class LocalSender:
    """Signs transactions with a key in this process."""

    def __init__(self, signer: LocalSigner) -> None:
        self._signer = signer

    @property
    def address(self) -> Address:
        return self._signer.address

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        filled = fill_fees(w3, {**transaction, "nonce": _next_nonce(w3, self.address)})
        signed = self._signer.account.sign_transaction(filled)
        return bytes(w3.eth.send_raw_transaction(signed.raw_transaction))


@dataclass(frozen=True)
class NodeSender:
    """An account that the node holds the key of, as development nodes do."""

    address: Address

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        return bytes(w3.eth.send_transaction({**transaction, "from": str(self.address)}))  # type: ignore[typeddict-item]


class ApeSender:
    """An account of Ape, on the network that Ape is connected to."""

    def __init__(self, account: Any) -> None:
        self._account = account

    @property
    def address(self) -> Address:
        return Address(str(self._account.address))

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        ecosystem = self._account.provider.network.ecosystem
        filled = fill_fees(w3, {**transaction, "nonce": _next_nonce(w3, self.address)})
        prepared = ecosystem.create_transaction(
            receiver=filled["to"] if filled.get("to") else None,
            data=bytes.fromhex(filled["data"][2:]),
            gas_limit=filled["gas"],
            nonce=filled["nonce"],
            chain_id=filled["chainId"],
            max_fee=filled["maxFeePerGas"],
            max_priority_fee=filled["maxPriorityFeePerGas"],
            sender=str(self.address),
        )
        signed = self._account.sign_transaction(prepared)
        return bytes(w3.eth.send_raw_transaction(signed.serialize_transaction()))


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a transaction was mined, and the logs that it left (as web3 gives them)."""

    transaction_hash: Bytes32
    block_number: int
    block_hash: Bytes32
    gas_used: int
    contract_address: Address | None
    logs: tuple[Any, ...]


def transact(w3: Web3, sender: Sender, chain_id: int, to: Address | None, data: bytes) -> Receipt:
    """Send a transaction and return its receipt once it is in a block.

    The gas is what the node estimates and a quarter more. Errors: the contract's own error, decoded, when the
    estimate or the mined transaction reverts; `NotMined`; `NodeRefused`, `NodeUnreachable`.
    """
    request: dict[str, Any] = {"data": "0x" + data.hex(), "chainId": chain_id, "value": 0}
    if to is not None:
        request["to"] = str(to)
    estimated = ask(w3, "eth_estimateGas", lambda: w3.eth.estimate_gas({**request, "from": str(sender.address)}))  # type: ignore[typeddict-item]
    request["gas"] = estimated + estimated // 4
    transaction_hash = ask(w3, "eth_sendRawTransaction", lambda: sender.send(w3, request))
    return wait_for_receipt(w3, Bytes32(transaction_hash), sender, to, data)


def wait_for_receipt(w3: Web3, transaction_hash: Bytes32, sender: Sender, to: Address | None, data: bytes) -> Receipt:
    """Return the receipt of a transaction that was sent. Errors: as `transact`."""
    from hexbytes import HexBytes
    from web3.exceptions import TimeExhausted

    try:
        receipt = ask(
            w3,
            "eth_getTransactionReceipt",
            lambda: w3.eth.wait_for_transaction_receipt(
                HexBytes(transaction_hash), timeout=RECEIPT_SECONDS, poll_latency=0.05
            ),
        )
    except TimeExhausted:
        raise NotMined(transaction_hash, RECEIPT_SECONDS) from None
    if receipt["status"] != 1:
        # The state changed between estimate and block: ask the block before it what went wrong.
        if to is not None:
            call(w3, to, data, sender.address, receipt["blockNumber"])
        raise EmptyRevert
    address = receipt["contractAddress"]
    return Receipt(
        transaction_hash=transaction_hash,
        block_number=int(receipt["blockNumber"]),
        block_hash=Bytes32(bytes(receipt["blockHash"])),
        gas_used=int(receipt["gasUsed"]),
        contract_address=Address(str(address)) if address else None,
        logs=tuple(receipt["logs"]),
    )


def fill_fees(w3: Web3, transaction: dict[str, Any]) -> dict[str, Any]:
    """Return the transaction with EIP-1559 fees: twice the base fee, and the tip that the node suggests."""
    base = w3.eth.get_block("latest").get("baseFeePerGas", 0)
    tip = w3.eth.max_priority_fee
    return {**transaction, "maxFeePerGas": 2 * base + tip, "maxPriorityFeePerGas": tip, "type": 2}


def _next_nonce(w3: Web3, account: Address) -> int:
    return w3.eth.get_transaction_count(str(account), "pending")  # type: ignore[arg-type]
