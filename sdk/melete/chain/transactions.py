"""Who sends a transaction, and what came of it.

A sender is anything with an `address` and a `send` that hands a filled transaction to the node. Nonces: `nonces`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from melete.chain.connection import ask, call
from melete.chain.nonces import send_next
from melete.errors import ConfigurationError, EmptyRevert, InvalidSignature, NotMined
from melete.primitives import Address, Bytes32, keccak256
from melete.signing import LocalSigner

if TYPE_CHECKING:
    from web3 import Web3

Event = TypeVar("Event")

#: The first byte of an EIP-1559 transaction.
DYNAMIC_FEE_TYPE = b"\x02"
#: What the prefix of a list is counted from in RLP.
_LIST = 0xC0
#: Transactions go to few addresses, and a checksum costs more than all else of a small one.
_parse_address = lru_cache(maxsize=256)(Address)
#: How long a transaction may take into a block before its sender is told, in seconds.
RECEIPT_SECONDS = 180


class Sender(Protocol):
    """Pays for transactions and sends them."""

    @property
    def address(self) -> Address:
        """The account that the transactions come from."""

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        """Hand a transaction (`to`, `data`, `gas`, `chainId`) to the node, and return its hash."""


class TransactionSigner(Protocol):
    """A sender that can sign a transaction and keep it, so that it can be sent again as it is."""

    @property
    def address(self) -> Address:
        """The account that the transactions come from."""

    def sign(self, transaction: dict[str, Any]) -> tuple[bytes, Bytes32]:
        """Return the raw signed transaction and its hash. All members are filled, nonce and fees included."""


class LocalSender:
    """Signs transactions with a key in this process."""

    def __init__(self, signer: LocalSigner) -> None:
        self._signer = signer

    @property
    def address(self) -> Address:
        return self._signer.address

    def sign(self, transaction: dict[str, Any]) -> tuple[bytes, Bytes32]:
        """Return the raw EIP-1559 transaction and its hash. Members: as `sign_dynamic_fee_transaction`."""
        raw = sign_dynamic_fee_transaction(transaction, self._signer)
        return raw, keccak256(raw)

    def sign_any(self, transaction: dict[str, Any]) -> bytes:
        """Return the raw signed form of a transaction of any type, by `eth_account`."""
        return bytes(self._signer.account.sign_transaction(transaction).raw_transaction)

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        """Sign with the key's next nonce and the fees of the moment, and send. Errors: as `send_next`."""
        return _send_signed(self, w3, transaction)


@dataclass(frozen=True)
class NodeSender:
    """An account that the node holds the key of, as development nodes do."""

    address: Address

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        """Have the node sign and send it, with a nonce and fees that the node chooses."""
        return bytes(w3.eth.send_transaction({**transaction, "from": str(self.address)}))  # type: ignore[typeddict-item]


class ApeSender:
    """An account of Ape, on the network that Ape is connected to."""

    def __init__(self, account: Any) -> None:
        self._account = account

    @property
    def address(self) -> Address:
        return Address(str(self._account.address))

    def sign(self, transaction: dict[str, Any]) -> tuple[bytes, Bytes32]:
        """Return the raw EIP-1559 transaction and its hash. Errors: `InvalidSignature` if Ape's account declines."""
        ecosystem = self._account.provider.network.ecosystem
        prepared = ecosystem.create_transaction(
            receiver=transaction.get("to"),
            data=bytes.fromhex(transaction["data"][2:]),
            gas_limit=transaction["gas"],
            nonce=transaction["nonce"],
            chain_id=transaction["chainId"],
            max_fee=transaction["maxFeePerGas"],
            max_priority_fee=transaction["maxPriorityFeePerGas"],
            sender=str(self.address),
        )
        signed = self._account.sign_transaction(prepared)
        if signed is None:
            raise InvalidSignature(f"the Ape account {self.address} declined to sign")
        raw = bytes(signed.serialize_transaction())
        return raw, keccak256(raw)

    def send(self, w3: Web3, transaction: dict[str, Any]) -> bytes:
        """Sign with the key's next nonce and the fees of the moment, and send. Errors: as `send_next`."""
        return _send_signed(self, w3, transaction)


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


def require_sender(sender: Sender | None, client: str) -> Sender:
    """Return the sender. Errors: `ConfigurationError` without one; `client` says whose it would be."""
    if sender is None:
        raise ConfigurationError(f"sending needs an account that pays; give the {client} a sender")
    return sender


def simulate(w3: Web3, sender: Sender, to: Address, data: bytes, block: str = "latest") -> None:
    """Raise what a call of `to` by the sender would meet now, or return; nothing is sent.

    What depends on the clock is asked of the "pending" block: the time of the latest one is past already.
    """
    call(w3, to, data, sender.address, block=block)


def transact_for_event(
    w3: Web3,
    sender: Sender,
    chain_id: int,
    to: Address,
    data: bytes,
    decode: Callable[[Mapping[str, Any]], object],
    kind: type[Event],
) -> Event | None:
    """Send a transaction, and return the first event of a kind that `to` left in it; None if it left none.

    `decode` takes a log and returns its event, or None. Errors: as `transact`, and the decoder's.
    """
    for log in transact(w3, sender, chain_id, to, data).logs:
        if Address(str(log["address"])) == to:
            event = decode(log)
            if isinstance(event, kind):
                return event
    return None


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


def sign_dynamic_fee_transaction(transaction: dict[str, Any], signer: LocalSigner) -> bytes:
    """Return a raw EIP-1559 transaction, signed: what `eth_account` gives for it, ten times as fast.

    Members: chainId, nonce, maxPriorityFeePerGas, maxFeePerGas, gas, value, data (hex), and `to` unless it deploys.
    """
    from rlp.codec import encode_raw, length_prefix

    numbers = ("chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas")
    target = bytes(_parse_address(transaction["to"])) if transaction.get("to") else b""
    members = [
        *(_big_endian(transaction[name]) for name in numbers),
        target,
        _big_endian(transaction.get("value", 0)),
        bytes.fromhex(transaction["data"][2:]),
        [],
    ]
    # Each member is encoded once, for the hash that is signed and for what is sent.
    encoded = b"".join(encode_raw(member) for member in members)
    signature = signer.sign_digest(keccak256(DYNAMIC_FEE_TYPE + length_prefix(len(encoded), _LIST) + encoded))
    r, s, parity = signature[:32].lstrip(b"\0"), signature[32:64].lstrip(b"\0"), signature[64] - 27
    encoded += b"".join(encode_raw(member) for member in (_big_endian(parity), r, s))
    return DYNAMIC_FEE_TYPE + bytes(length_prefix(len(encoded), _LIST)) + encoded


def _send_signed(signer: TransactionSigner, w3: Web3, transaction: dict[str, Any]) -> bytes:
    filled = fill_fees(w3, transaction)
    return bytes(
        send_next(w3, transaction["chainId"], signer.address, lambda nonce: signer.sign({**filled, "nonce": nonce}))
    )


def _big_endian(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
