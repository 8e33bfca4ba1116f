"""The node as tests speak to it: raw JSON-RPC, bytes in and bytes out.

An `eth_call` costs a fraction of a reverting transaction through Ape, and the revert data arrive untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: The gas of a block, and of every transaction that does not say otherwise: unused gas costs nothing here.
BLOCK_GAS = 30_000_000

#: Asks the node a method with parameters; the whole JSON-RPC answer comes back.
Ask = Callable[[str, list[Any]], Mapping[str, Any]]


class NodeError(Exception):
    """The node did not do what a test needs it to do."""


@dataclass(frozen=True)
class Reverted:
    """A call that failed. Without revert data only the node's own words tell why."""

    data: bytes
    message: str


@dataclass(frozen=True)
class Log:
    address: bytes
    topics: tuple[bytes, ...]
    data: bytes


@dataclass(frozen=True)
class Receipt:
    succeeded: bool
    gas_used: int
    logs: tuple[Log, ...]


def to_hex(data: bytes) -> str:
    return "0x" + data.hex()


def from_hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _log(entry: Mapping[str, Any]) -> Log:
    topics = tuple(from_hex(topic) for topic in entry["topics"])
    return Log(from_hex(entry["address"]), topics, from_hex(entry["data"]))


class Node:
    """An Anvil, which knows the keys of its senders or impersonates them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def rpc(self, method: str, *params: Any) -> Any:
        answer = self._ask(method, list(params))
        if "error" in answer:
            raise NodeError(f"{method}: {answer['error']}")
        return answer["result"]

    def call(
        self, to: bytes, data: bytes, *, sender: bytes = bytes(20), gas: int = BLOCK_GAS, value: int = 0
    ) -> bytes | Reverted:
        """What a transaction would return. It changes nothing."""
        answer = self._ask("eth_call", [self._transaction(to, data, sender, gas, value), "latest"])
        if "error" in answer:
            revert_data = answer["error"].get("data") or "0x"
            return Reverted(from_hex(revert_data), answer["error"]["message"])
        return from_hex(answer["result"])

    def send(self, to: bytes, data: bytes, *, sender: bytes, gas: int = BLOCK_GAS, value: int = 0) -> Receipt:
        return self._mined("eth_sendTransaction", self._transaction(to, data, sender, gas, value))

    def send_raw(self, signed_transaction: bytes) -> Receipt:
        return self._mined("eth_sendRawTransaction", to_hex(signed_transaction))

    def _mined(self, method: str, transaction: Any) -> Receipt:
        """Mine explicitly: left to itself, Anvil now and then loses what is sent right after a rollback."""
        self.rpc("evm_setAutomine", False)
        try:
            transaction_hash = self.rpc(method, transaction)
            self.rpc("evm_mine")
        finally:
            self.rpc("evm_setAutomine", True)
        found = self.rpc("eth_getTransactionReceipt", transaction_hash)
        if found is None:
            raise NodeError(f"transaction {transaction_hash} was accepted and never mined")
        logs = tuple(_log(entry) for entry in found["logs"])
        return Receipt(found["status"] == "0x1", int(found["gasUsed"], 16), logs)

    @staticmethod
    def _transaction(to: bytes, data: bytes, sender: bytes, gas: int, value: int) -> dict[str, str]:
        return {
            "from": to_hex(sender),
            "to": to_hex(to),
            "data": to_hex(data),
            "gas": hex(gas),
            "value": hex(value),
        }

    def logs(self, address: bytes, from_block: int) -> tuple[Log, ...]:
        """All logs of a contract, in order."""
        wanted = {"address": to_hex(address), "fromBlock": hex(from_block), "toBlock": "latest"}
        return tuple(_log(entry) for entry in self.rpc("eth_getLogs", wanted))

    def block_number(self) -> int:
        return int(self.rpc("eth_blockNumber"), 16)

    def code(self, account: bytes) -> bytes:
        return from_hex(self.rpc("eth_getCode", to_hex(account), "latest"))

    def set_code(self, account: bytes, code: bytes) -> None:
        self.rpc("anvil_setCode", to_hex(account), to_hex(code))

    def delegate(self, account: bytes, delegate: bytes | None) -> None:
        """Give a key account the code of EIP-7702, or take it away."""
        self.set_code(account, b"" if delegate is None else b"\xef\x01\x00" + delegate)

    def fund(self, account: bytes) -> None:
        self.rpc("anvil_setBalance", to_hex(account), hex(10**24))

    def impersonate_all(self) -> None:
        """From now on any account may send, its key known or not."""
        self.rpc("anvil_autoImpersonateAccount", True)

    def storage(self, account: bytes, slot: int) -> bytes:
        return from_hex(self.rpc("eth_getStorageAt", to_hex(account), hex(slot), "latest")).rjust(32, b"\0")

    def set_storage(self, account: bytes, slot: int, value: bytes) -> None:
        self.rpc("anvil_setStorageAt", to_hex(account), to_hex(slot.to_bytes(32, "big")), to_hex(value))

    def storage_root(self, account: bytes) -> bytes:
        """The root of all an account stores: the same root, the same storage."""
        return from_hex(self.rpc("eth_getProof", to_hex(account), [], "latest")["storageHash"])

    @contextmanager
    def on_chain(self, chain_id: int) -> Iterator[None]:
        """As if the chain had split off under another id."""
        before = int(self.rpc("eth_chainId"), 16)
        self.rpc("anvil_setChainId", chain_id)
        try:
            yield
        finally:
            self.rpc("anvil_setChainId", before)
