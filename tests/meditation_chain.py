"""A deployed contract as the tests drive it: a function by its ABI name, a caller, a second.

Calls and transactions go to the node directly: a refused transaction through Ape costs forty times as much.
Everything is decoded from the ABI alone: values, events and errors, structs within events included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, is_dataclass
from typing import Any

from eth_abi.abi import decode, encode

from models.meditation import Event, keccak256

Request = Callable[[str, Any], dict[str, Any]]


class Reverted(Exception):
    """The contract refused: `name` and `arguments` of its error; no name if it is none of the ABI."""

    def __init__(self, name: str, arguments: tuple[Any, ...], data: bytes) -> None:
        super().__init__(name, arguments, data.hex())
        self.name = name
        self.arguments = arguments
        self.data = data


class Clock:
    """The time of the node, which the tests set: blocks are mined and views are read at `now`."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.now = int(request("eth_getBlockByNumber", ["latest", False])["result"]["timestamp"], 16)

    def start_at(self, time: int) -> None:
        """Move to any time, the past included."""
        _result(self._request("evm_setTime", [time]))
        _result(self._request("evm_mine", []))
        self.now = time

    def wait(self, seconds: int) -> int:
        self.now += seconds
        return self.now

    def wait_until(self, time: int) -> int:
        assert time >= self.now, "time does not run backwards"
        self.now = time
        return self.now


class Contract:
    def __init__(self, request: Request, clock: Clock, address: str, abi: Sequence[dict[str, Any]]) -> None:
        self._request = request
        self.clock = clock
        self.address = address.lower()
        self.functions = {entry["name"]: entry for entry in abi if entry["type"] == "function"}
        self.events = {topic_of(entry): entry for entry in abi if entry["type"] == "event"}
        self.errors = {selector_of(entry): entry for entry in abi if entry["type"] == "error"}

    def encode(self, function: str, *arguments: Any) -> str:
        entry = self.functions[function]
        plain = [astuple(value) if is_dataclass(value) else value for value in arguments]  # type: ignore[arg-type]
        return "0x" + (selector_of(entry) + encode(types_of(entry["inputs"]), plain)).hex()

    def decode(self, function: str, data: bytes) -> Any:
        values = decode(types_of(self.functions[function]["outputs"]), data)
        return values[0] if len(values) == 1 else tuple(values)

    def request_for(self, function: str, *arguments: Any, sender: str | None = None) -> tuple[str, list[Any]]:
        """The JSON-RPC request of a call at the clock's time."""
        transaction = {"to": self.address, "data": self.encode(function, *arguments), "gas": hex(20_000_000)}
        if sender is not None:
            transaction["from"] = sender
        return "eth_call", [transaction, "latest", {}, {"time": hex(self.clock.now)}]

    def call(self, function: str, *arguments: Any, sender: str | None = None) -> Any:
        """What the function answers, without a transaction. Raises `Reverted`."""
        answer = self._request(*self.request_for(function, *arguments, sender=sender))
        return self.decode(function, self._returned(answer))

    def refusal(self, function: str, *arguments: Any, sender: str) -> tuple[Any, ...]:
        """The error with which a call is refused, as a tuple of its name and its values."""
        try:
            self.call(function, *arguments, sender=sender)
        except Reverted as refused:
            return (refused.name, *refused.arguments)
        raise AssertionError(f"{function} was accepted")

    def send(self, function: str, *arguments: Any, sender: str) -> list[Event]:
        """The events of an accepted transaction, mined at the clock's time. Raises `Reverted`."""
        return [self.read_event(log) for log in self.transact(function, *arguments, sender=sender)["logs"]]

    def transact(self, function: str, *arguments: Any, sender: str) -> dict[str, Any]:
        """The receipt of an accepted transaction, mined at the clock's time. Raises `Reverted`."""
        data = self.encode(function, *arguments)
        transaction = {"from": sender, "to": self.address, "data": data, "gas": hex(20_000_000)}
        receipt = _mine(self._request, transaction, self.clock.now)
        if receipt["status"] != "0x1":
            self.call(function, *arguments, sender=sender)
            raise AssertionError(f"{function} failed as a transaction and succeeded as a call")
        return receipt

    def read_event(self, log: dict[str, Any]) -> Event:
        topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
        entry = self.events[topics[0]]
        indexed = [field for field in entry["inputs"] if field["indexed"]]
        plain = [field for field in entry["inputs"] if not field["indexed"]]
        values = {}
        for member, topic in zip(indexed, topics[1:], strict=True):
            values[member["name"]] = decode([type_of(member)], topic)[0]
        body = decode(types_of(plain), bytes.fromhex(log["data"][2:]))
        for member, value in zip(plain, body, strict=True):
            values[member["name"]] = value
        return entry["name"], {member["name"]: values[member["name"]] for member in entry["inputs"]}

    def _returned(self, answer: dict[str, Any]) -> bytes:
        if "error" not in answer:
            return bytes.fromhex(answer["result"][2:])
        data = bytes.fromhex(str(answer["error"].get("data", "0x"))[2:])
        entry = self.errors.get(data[:4])
        if entry is None:
            raise Reverted("", (), data)
        raise Reverted(entry["name"], decode(types_of(entry["inputs"]), data[4:]), data)


def type_of(member: dict[str, Any]) -> str:
    """The canonical type of an ABI member: a struct is the tuple of its members' types."""
    kind: str = member["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(types_of(member["components"])) + ")" + kind.removeprefix("tuple")


def types_of(members: Sequence[dict[str, Any]]) -> list[str]:
    return [type_of(member) for member in members]


def signature_of(entry: dict[str, Any]) -> str:
    return f"{entry['name']}({','.join(types_of(entry['inputs']))})"


def topic_of(entry: dict[str, Any]) -> bytes:
    return keccak256(signature_of(entry).encode())


def selector_of(entry: dict[str, Any]) -> bytes:
    return topic_of(entry)[:4]


def _result(answer: dict[str, Any]) -> Any:
    assert "error" not in answer, answer["error"]
    return answer["result"]


def deploy(request: Request, bytecode: str, sender: str, time: int) -> str:
    """The address of a contract that `sender` deploys at `time`, without constructor arguments."""
    transaction = {"from": sender, "data": bytecode, "gas": hex(20_000_000)}
    address: str = _mine(request, transaction, time)["contractAddress"]
    return address


def _mine(request: Request, transaction: dict[str, Any], time: int) -> dict[str, Any]:
    """The receipt of a transaction in a block of its own, mined explicitly.

    Left to itself, Anvil now and then loses what is sent right after a rollback.
    """
    _result(request("evm_setAutomine", [False]))
    try:
        sent = _result(request("eth_sendTransaction", [transaction]))
        _result(request("evm_setNextBlockTimestamp", [time]))
        _result(request("evm_mine", []))
    finally:
        _result(request("evm_setAutomine", [True]))
    receipt: dict[str, Any] = _result(request("eth_getTransactionReceipt", [sent]))
    return receipt
