"""What the logs of a range must be, by what they say themselves; and their form for decoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from melete.errors import InputError, UnusableLogs
from melete.primitives import Address, Bytes32

Event = TypeVar("Event")
Result = TypeVar("Result")
#: A log as JSON-RPC writes it, all members as text.
RawLog: TypeAlias = Mapping[str, Any]
#: Takes a log with the members that web3 gives it (bytes and ints), returns its event, or None if it has none.
Decoder: TypeAlias = Callable[[Mapping[str, Any]], Event | None]
#: What `eth_getLogs` filters by: at each place a topic, several of which one must match, or None for any.
Topics: TypeAlias = Sequence[Bytes32 | Sequence[Bytes32] | None]
#: The same as lower-case hex.
TopicTexts: TypeAlias = Sequence[frozenset[str] | None]


class _Moved(Exception):
    """The chain, or the node behind the address, changed while a page was read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def topic_texts(topics: Topics) -> list[frozenset[str] | None]:
    """Return topics as a log states them."""
    return [None if place is None else _texts(place) for place in topics]


def _texts(place: Bytes32 | Sequence[Bytes32]) -> frozenset[str]:
    topics = [place] if isinstance(place, bytes | str) else place
    return frozenset(str(Bytes32(topic, "topic")) for topic in topics)


def check_logs(
    logs: Sequence[dict[str, Any]], asked: Address, topics: TopicTexts, first: int, last: int
) -> dict[int, str]:
    """Return the hash that the logs name for each of their blocks, after everything that they say themselves.

    Errors: `UnusableLogs` for a log of another contract, topic or block, one out of order or ill-formed; `_Moved` for
    what a re-organization may have done.
    """
    address = "0x" + asked.hex()
    wanted = [(place, allowed) for place, allowed in enumerate(topics) if allowed is not None]
    claimed: dict[int, str] = {}
    previous_block, previous_index = first, -1
    try:
        for log in logs:
            if log["address"] != address and log["address"].lower() != address:
                raise UnusableLogs(f"one is of {log['address']}, asked was for {asked}")
            number, index, block_hash = (
                int(log["blockNumber"], 16),
                int(log["logIndex"], 16),
                log["blockHash"].lower(),
            )
            if not first <= number <= last:
                raise UnusableLogs(f"one is of block {number}, asked was for {first} to {last}")
            if number < previous_block or (number == previous_block and index <= previous_index):
                raise UnusableLogs(f"log {index} of block {number} is out of order, or there twice")
            stated = log["topics"]
            for place, allowed in wanted:
                if len(stated) <= place or stated[place].lower() not in allowed:
                    raise UnusableLogs(f"log {index} of block {number} has other topics than asked for")
            if log.get("removed"):
                raise _Moved(f"log {index} of block {number} is marked as removed")
            if claimed.setdefault(number, block_hash) != block_hash:
                raise _Moved(f"block {number} has two hashes")
            previous_block, previous_index = number, index
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnusableLogs("one is ill-formed") from error
    return claimed


def decode_log(decode: Callable[[Mapping[str, Any]], Result], log: RawLog) -> Result:
    """Return what a decoder gives for a log. Errors: `UnusableLogs` when it refuses."""
    try:
        return decode(as_web3(log))
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise UnusableLogs(f"one of block {_stated(log)} does not decode: {error}") from error


def _stated(log: RawLog) -> str:
    try:
        return str(int(log["blockNumber"], 16))
    except (KeyError, TypeError, ValueError):
        return "no number"


def as_web3(log: RawLog) -> dict[str, Any]:
    """Return a log with bytes and ints for hex text, as web3's formatters would."""
    from_hex = bytes.fromhex
    return {
        "address": log["address"],
        "topics": [from_hex(topic[2:]) for topic in log["topics"]],
        "data": from_hex(log["data"][2:]),
        "blockNumber": int(log["blockNumber"], 16),
        "blockHash": from_hex(log["blockHash"][2:]),
        "transactionHash": from_hex(log["transactionHash"][2:]),
        "logIndex": int(log["logIndex"], 16),
    }
