"""The four layers of a subject's state, their commitments, and the root over them.

Source: Agent Meditation, Layers and Commitment format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, TypeAlias

from melete.canonical import Json, compute_content_hash
from melete.errors import InvalidInput, InvalidLayer
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256, uint_word

TAG_LAYER_COMMITMENT: Final = keccak256(b"AgentMeditationMechanism/LayerCommitment/v1")
TAG_STATE_ROOT: Final = keccak256(b"AgentMeditationMechanism/StateRoot/v1")

#: One word for each layer, in order.
Commitments: TypeAlias = tuple[Bytes32, Bytes32, Bytes32, Bytes32]


class Layer(IntEnum):
    """A part of a subject's state. In a mask of layers its bit is `1 << layer`."""

    RUNTIME = 0
    MEMORY_SKILLS = 1
    TASKS_ROLES = 2
    COGNITION = 3


ALL_LAYERS: Final = 0x0F

#: The identifier of the document that describes each layer.
SCHEMAS: Final = {
    Layer.RUNTIME: "amm.layer.runtime/1",
    Layer.MEMORY_SKILLS: "amm.layer.memory-skills/1",
    Layer.TASKS_ROLES: "amm.layer.tasks-roles/1",
    Layer.COGNITION: "amm.layer.cognition/1",
}


def to_layer(layer: int) -> Layer:
    """Return a layer by its index. Errors: `InvalidLayer` for anything but 0 to 3."""
    if type(layer) is not Layer and (type(layer) is not int or not 0 <= layer <= 3):
        raise InvalidLayer(layer)
    return Layer(layer)


def layers_of(mask: int) -> Iterator[Layer]:
    """Yield the layers whose bit is set in a mask, in ascending order."""
    return (layer for layer in Layer if mask >> layer & 1)


def mask_of(layers: Iterable[int]) -> int:
    """Return the mask of layers. Errors: `InvalidLayer`."""
    mask = 0
    for layer in layers:
        mask |= 1 << to_layer(layer)
    return mask


def compute_schema_hash(schema: str) -> Bytes32:
    """Return the keccak256 of a schema identifier in UTF-8."""
    return keccak256(schema.encode())


def compute_layer_commitment(layer: int, schema_hash: Bytes32, content_hash: Bytes32, salt: Bytes32) -> Bytes32:
    """Return the commitment to a layer's state document.

    keccak256 over five words: tag, layer, schema hash, content hash, salt. A zero salt hides nothing that can be
    guessed.
    Errors: `InvalidLayer`.
    """
    return keccak256(
        TAG_LAYER_COMMITMENT
        + uint_word(to_layer(layer))
        + Bytes32(schema_hash, "schemaHash")
        + Bytes32(content_hash, "contentHash")
        + Bytes32(salt, "salt")
    )


def commit_to_document(document: dict[str, Json], salt: Bytes32 = ZERO_BYTES32) -> Bytes32:
    """Return the commitment to a layer state document, which names its own `schema` and `layer`.

    Errors: `InvalidInput` when the two are missing or not each other's; `InvalidJson`.
    """
    layer, schema = document.get("layer"), document.get("schema")
    if type(layer) is not int or layer not in tuple(Layer):
        raise InvalidInput("layer", layer, "an integer from 0 to 3")
    if schema != SCHEMAS[Layer(layer)]:
        raise InvalidInput("schema", schema, f"{SCHEMAS[Layer(layer)]}, which is layer {layer}'s")
    return compute_layer_commitment(layer, compute_schema_hash(str(schema)), compute_content_hash(document), salt)


def compute_root(commitments: Iterable[Bytes32]) -> Bytes32:
    """Return the state root over the commitments of the four layers, in order.

    keccak256 over five words: tag and the four commitments. Errors: `InvalidInput` for another number of them.
    """
    words = to_commitments(commitments)
    return keccak256(TAG_STATE_ROOT + b"".join(words))


def to_commitments(commitments: Iterable[Bytes32]) -> Commitments:
    """Return four words as commitments. Errors: `InvalidInput`."""
    words = tuple(Bytes32(word, f"commitments[{index}]") for index, word in enumerate(commitments))
    if len(words) != 4:
        raise InvalidInput("commitments", None, f"four words, one for each layer (these are {len(words)})")
    return words[0], words[1], words[2], words[3]
