"""Enrolling a subject with four layer documents, which are kept with their salts before anything is sent."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from melete.canonical import Json, canonicalize
from melete.chain.transactions import require_sender
from melete.errors import InvalidInput, WitnessErased, WitnessMissing
from melete.meditation.kept import Kept
from melete.meditation.layers import Layer, to_commitments
from melete.memory.witness_kinds import LAYERS, LayerDocument
from melete.primitives import ZERO_BYTES32, Address, Bytes32

if TYPE_CHECKING:
    from melete.meditation.events import Enrolled
    from melete.meditation.policy import Policy
    from melete.meditation.registry import MeditationRegistry
    from melete.memory.witness_store import WitnessStore

#: The state version that a subject has once it is enrolled.
BASELINE: Final = 1


def enroll(
    registry: MeditationRegistry,
    store: WitnessStore,
    documents: Mapping[int, dict[str, Json]],
    policy: Policy,
    controller: Address | None = None,
    rights: int = 0,
    *,
    public_salt: bool = False,
    new_salt: Callable[[], bytes] = lambda: secrets.token_bytes(32),
) -> Enrolled:
    """Enroll the registry's sender, and return the event.

    What the registry would refuse is refused before anything is kept. Called again after a crash, the salts of the same
    documents are taken from the store; other documents, and salts of the other kind, leave their places.
    Errors: `InvalidInput` unless there is one document for each layer; those of `MeditationRegistry.enroll`; the
    store's.
    """
    if sorted(documents) != list(Layer):
        raise InvalidInput("documents", len(documents), "four state documents, one for each layer")
    subject = require_sender(registry.sender, "registry client").address
    kept = Kept(store, registry, subject)
    chosen = {
        layer: _find(kept, layer, documents[layer], public_salt)
        or LayerDocument(documents[layer], ZERO_BYTES32 if public_salt else Bytes32(new_salt()))
        for layer in Layer
    }
    baseline = to_commitments(LAYERS[layer].commit(chosen[layer]) for layer in Layer)
    registry.check_enroll(baseline, policy, controller, rights)
    with store.transaction():
        kept.set_aside(0, 0)
        for layer, document in chosen.items():
            kept.put(LAYERS[layer], BASELINE, document)
    return registry.enroll(baseline, policy, controller, rights)


def _find(kept: Kept, layer: Layer, document: dict[str, Json], public_salt: bool) -> LayerDocument | None:
    """Return what an earlier call kept of the same document, with a salt of the kind that is wanted."""
    try:
        found: LayerDocument = kept.store.get(kept.place(LAYERS[layer], BASELINE))
    except (WitnessMissing, WitnessErased, InvalidInput):
        return None
    is_public = found.salt == ZERO_BYTES32
    return found if is_public is public_salt and canonicalize(found.document) == canonicalize(document) else None
