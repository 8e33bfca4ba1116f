"""Blocks by number and hash: the ones that a scan speaks of, and the few of them that it remembers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from melete.chain.rpc import one
from melete.errors import InvalidInput, NodeRefused
from melete.primitives import Bytes32, uint

if TYPE_CHECKING:
    from web3 import Web3

#: How many of the last blocks are all remembered by hash; of older ones, ever fewer the older they are.
REMEMBERED_BLOCKS: Final = 64
#: What a node calls blocks by, besides their numbers.
BLOCK_NAMES: Final = ("latest", "safe", "finalized", "earliest", "pending")


@dataclass(frozen=True, slots=True)
class BlockReference:
    """A block, by number and hash."""

    number: int
    hash: Bytes32

    @property
    def parameter(self) -> dict[str, str | bool]:
        """How a call names this very block, or none if the chain has another one there by now. Source: EIP-1898."""
        return {"blockHash": str(self.hash), "requireCanonical": True}


def block_parameter(block: str | int | BlockReference, field: str = "block") -> Any:
    """Return how a request names a block. Errors: `InvalidInput` for a text or number that names none."""
    if isinstance(block, BlockReference):
        return block.parameter
    if block in BLOCK_NAMES:
        return block
    if type(block) is int:
        return hex(uint(block, 64, field))
    raise InvalidInput(field, block, f"a block's number, or one of {', '.join(BLOCK_NAMES)}")


def load_block(w3: Web3, block: str | int) -> BlockReference:
    """Return a block's number and hash, by number or tag.

    Errors: `InvalidInput` for what names no block; `NodeRefused` when the node does not have it.
    """
    found = one(w3, "eth_getBlockByNumber", [block_parameter(block), False])
    if found is None:
        raise NodeRefused("eth_getBlockByNumber", f"it has no block {block}")
    try:
        return BlockReference(int(found["number"], 16), Bytes32(found["hash"], "hash"))
    except (KeyError, TypeError, ValueError) as error:
        raise NodeRefused("eth_getBlockByNumber", f"block {block} has no number and hash") from error


def thin_out(blocks: Sequence[BlockReference]) -> list[BlockReference]:
    """Return the first block, the last ones, and between them some eight for each doubling of the distance."""
    newest = blocks[-1].number
    kept: list[BlockReference] = []
    last_step, last_share = 0, 0
    for block in blocks:
        distance = newest - block.number
        step = 1 if distance < REMEMBERED_BLOCKS else 1 << (distance // 8).bit_length() - 1
        share = block.number // step
        if (step, share) != (last_step, last_share):
            kept.append(block)
        last_step, last_share = step, share
    return kept


def hash_of(number: int, block: Any) -> str | None:
    """Return the hash of a block as a node gives it, as lower-case hex, None for no block; it is compared as text."""
    if block is None:
        return None
    try:
        block_hash: str = block["hash"].lower()
        if int(block["number"], 16) == number and len(block_hash) == 66:
            return block_hash
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise NodeRefused("eth_getBlockByNumber", f"what it gives as block {number} is none")
