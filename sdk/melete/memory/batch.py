"""Many operations as one payload: a count and a root, from which each operation can be shown alone.

    leaf = keccak256(0x00 || salt || keccak256(operation))        a fresh 32-byte salt for each operation
    node = keccak256(0x01 || left || right)                       an odd node moves up unchanged
    payload = canonical JSON of {"count": <number>, "root": <0x hex>}

Leaves and nodes differ in their first byte and their length, so neither passes for the other. The root alone does not
say how many leaves it has: the count is committed beside it, and decides how many siblings a proof has and on which
side each of them stands. What is not shown stays hidden by its salt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from melete.canonical import LARGEST_INTEGER, Json, canonicalize, load_json
from melete.errors import InvalidInput, InvalidJson, NotIncluded
from melete.primitives import Bytes32, keccak256, secret_bytes32

LEAF_PREFIX: Final = b"\x00"
NODE_PREFIX: Final = b"\x01"
_PAYLOAD_RULE: Final = "a batch payload: the canonical JSON of a count from 1 to 2^53 - 1 and a root (it is not shown)"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a batch, as bytes, with its salt: what opens a leaf.

    Errors: `InvalidInput` for content that is not bytes and a salt that is not 32 bytes; neither is shown.
    """

    content: bytes
    salt: Bytes32

    def __post_init__(self) -> None:
        if not isinstance(self.content, bytes | bytearray | memoryview):
            raise InvalidInput("operation", None, "bytes; encode text first, for example as UTF-8 (it is not shown)")
        object.__setattr__(self, "content", bytes(self.content))
        object.__setattr__(self, "salt", secret_bytes32(self.salt, "salt"))

    def __repr__(self) -> str:
        return f"Operation(content=<{len(self.content)} bytes>)"

    def compute_leaf(self) -> Bytes32:
        """Return keccak256(0x00 || salt || keccak256(content))."""
        return keccak256(LEAF_PREFIX + self.salt + keccak256(self.content))


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch payload says: how many operations there are, and the root over their leaves.

    Errors: `InvalidInput` for a count that is not from 1 to 2^53 - 1, or a root that is no word.
    """

    count: int
    root: Bytes32

    def __post_init__(self) -> None:
        _number(self.count, "count", 1)
        object.__setattr__(self, "root", Bytes32(self.root, "root"))

    def to_payload(self) -> bytes:
        """Return the bytes that a delta commits to."""
        return canonicalize(self.to_json())

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members: the count as a number, the root as 0x hex."""
        return {"count": self.count, "root": str(self.root)}

    @classmethod
    def from_payload(cls, payload: bytes) -> Batch:
        """Return the batch that payload bytes state. One batch has one payload: other spellings are refused.

        Errors: `InvalidInput`, which does not show the payload.
        """
        try:
            document = load_json(payload)
            if isinstance(document, dict) and set(document) == {"count", "root"}:
                batch = cls(document["count"], document["root"])  # type: ignore[arg-type]  # it judges its members
                if batch.to_payload() == payload:
                    return batch
        except (InvalidJson, InvalidInput):
            pass
        raise InvalidInput("payload", None, _PAYLOAD_RULE)


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """Where an operation stands in its batch, from 0, and the nodes beside its path, from the leaf to the root.

    Errors: `InvalidInput` for numbers that are none and siblings that are no words. Whether it proves anything,
    `verify_inclusion` says.
    """

    index: int
    count: int
    siblings: tuple[Bytes32, ...]

    def __post_init__(self) -> None:
        _number(self.index, "index", 0)
        _number(self.count, "count", 1)
        siblings = tuple(Bytes32(node, f"siblings[{place}]") for place, node in enumerate(self.siblings))
        object.__setattr__(self, "siblings", siblings)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members: two numbers, and a list of 0x hex."""
        return {"index": self.index, "count": self.count, "siblings": [str(node) for node in self.siblings]}

    @classmethod
    def from_json(cls, document: object) -> InclusionProof:
        """Return the proof that a JSON object states: exactly its three members. Errors: `InvalidInput`."""
        if not isinstance(document, Mapping) or set(document) != {"index", "count", "siblings"}:
            raise InvalidInput("proof", document, "a JSON object with the members index, count and siblings")
        siblings = document["siblings"]
        if not isinstance(siblings, list) or not all(isinstance(node, str) for node in siblings):
            raise InvalidInput("siblings", siblings, "a list of words, each 0x and 64 hex digits")
        return cls(document["index"], document["count"], tuple(siblings))


def compute_node(left: Bytes32, right: Bytes32) -> Bytes32:
    """Return the node over two others: keccak256(0x01 || left || right)."""
    return keccak256(NODE_PREFIX + left + right)


def compute_batch(leaves: Iterable[Bytes32]) -> Batch:
    """Return the batch of leaves, in order, in memory that grows with the tree's height only.

    Errors: `InvalidInput` for no leaves at all.
    """
    # The roots of the whole subtrees so far, the widest first, each with its height.
    peaks: list[tuple[int, Bytes32]] = []
    count = 0
    for count, leaf in enumerate(leaves, start=1):  # noqa: B007  # the last one is the batch's
        height, node = 0, Bytes32(leaf, "leaf")
        while peaks and peaks[-1][0] == height:
            height, node = height + 1, compute_node(peaks.pop()[1], node)
        peaks.append((height, node))
    if not peaks:
        raise InvalidInput("operations", None, "at least one; a batch of none commits to nothing")
    # An odd node moves up until it meets the next peak.
    root = peaks.pop()[1]
    while peaks:
        root = compute_node(peaks.pop()[1], root)
    return Batch(count, root)


class BatchTree:
    """All nodes of a batch, for proofs; two words of memory for each operation."""

    def __init__(self, leaves: Iterable[Bytes32]) -> None:
        """Take the leaves in order. Errors: `InvalidInput` for none."""
        self._levels = [[Bytes32(leaf, "leaf") for leaf in leaves]]
        if not self._levels[0]:
            raise InvalidInput("operations", None, "at least one; a batch of none commits to nothing")
        while len(self._levels[-1]) > 1:
            self._levels.append(_parents(self._levels[-1]))

    @property
    def batch(self) -> Batch:
        """What the payload says of it."""
        return Batch(len(self._levels[0]), self._levels[-1][0])

    def prove_inclusion(self, index: int) -> InclusionProof:
        """Return the proof of the operation at `index`, from 0. Errors: `InvalidInput` beyond the last."""
        count = len(self._levels[0])
        if type(index) is not int or not 0 <= index < count:
            raise InvalidInput("index", index, f"an integer from 0 to {count - 1}, for a batch of {count}")
        path = zip(self._levels, _path(index, count), strict=False)  # the last level is the root, beside which is none
        siblings = [level[place] for level, (place, _) in path if place is not None]
        return InclusionProof(index, count, tuple(siblings))


def verify_inclusion(batch: Batch, operation: Operation, proof: InclusionProof) -> Bytes32:
    """Return the operation's leaf if the proof leads from it to the batch's root, at the batch's count.

    `batch` is the decoded payload of a delta whose commitment was opened; the proof's own count must be the same.
    Errors: `NotIncluded`, naming what differs: count, index, siblings (their number) or root.
    """
    if proof.count != batch.count:
        raise NotIncluded("count", batch.count, proof.count)
    if proof.index >= batch.count:
        raise NotIncluded("index", f"below {batch.count}", proof.index)
    sides = [is_left for place, is_left in _path(proof.index, batch.count) if place is not None]
    if len(proof.siblings) != len(sides):
        raise NotIncluded("siblings", len(sides), len(proof.siblings))
    node = leaf = operation.compute_leaf()
    for sibling, is_left in zip(proof.siblings, sides, strict=True):
        node = compute_node(sibling, node) if is_left else compute_node(node, sibling)
    if node != batch.root:
        raise NotIncluded("root", batch.root, node)
    return leaf


def _path(index: int, count: int) -> Iterator[tuple[int | None, bool]]:
    """Yield where the sibling stands at each level below the root (None for an odd node), and whether to the left."""
    while count > 1:
        beside = index ^ 1
        yield (beside if beside < count else None), beside < index
        index, count = index // 2, (count + 1) // 2


def _parents(level: Sequence[Bytes32]) -> list[Bytes32]:
    paired = [compute_node(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return paired + list(level[len(paired) * 2 :])


def _number(value: int, field: str, least: int) -> None:
    if type(value) is not int or not least <= value <= LARGEST_INTEGER:
        raise InvalidInput(field, value, f"an integer from {least} to 2^53 - 1")
