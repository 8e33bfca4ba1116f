"""A witness: what opens a delta's commitments. It stays private; whoever holds it can show that a delta is its own."""

from __future__ import annotations

from dataclasses import dataclass

from melete.errors import InvalidInput, WitnessMismatch
from melete.memory.commitment import (
    compute_delta_commitment,
    compute_locator_commitment,
    compute_provenance_commitment,
    secret_content,
    secret_text,
)
from melete.memory.delta import ExperienceDelta
from melete.memory.space import Head
from melete.primitives import NOT_SHOWN, ZERO_BYTES32, Bytes32, secret_bytes32


@dataclass(frozen=True, slots=True)
class Witness:
    """Payload and profile with their salt; provenance and locator, each with its own, or none of both.

    Errors: `InvalidInput` for salts that are not 32 bytes, for content without a salt or a salt without content, and
    for content of another type; none shows what it refuses.
    """

    profile_id: Bytes32
    payload: bytes
    delta_salt: Bytes32
    provenance: bytes | None = None
    provenance_salt: Bytes32 | None = None
    locator: str | None = None
    locator_salt: Bytes32 | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "profile_id", Bytes32(self.profile_id, "profileId"))
        object.__setattr__(self, "payload", secret_content(self.payload, "payload"))
        object.__setattr__(self, "delta_salt", secret_bytes32(self.delta_salt, "deltaSalt"))
        for content, salt in (("provenance", "provenance_salt"), ("locator", "locator_salt")):
            if (getattr(self, content) is None) != (getattr(self, salt) is None):
                raise InvalidInput(salt, NOT_SHOWN, f"given exactly when {content} is given")
            if getattr(self, salt) is not None:
                object.__setattr__(self, salt, secret_bytes32(getattr(self, salt), salt))
        if self.provenance is not None:
            object.__setattr__(self, "provenance", secret_content(self.provenance, "provenance"))
        if self.locator is not None:
            secret_text(self.locator, "locator")

    def __repr__(self) -> str:
        # Content and salts stay out of logs and tracebacks.
        return f"Witness(profile_id={self.profile_id!r}, payload=<{len(self.payload)} bytes>)"

    def compute_commitments(self) -> tuple[Bytes32, Bytes32, Bytes32]:
        """Return delta, provenance and locator commitment; absent ones are zero words."""
        provenance = locator = ZERO_BYTES32
        if self.provenance is not None and self.provenance_salt is not None:
            provenance = compute_provenance_commitment(self.provenance_salt, self.provenance)
        if self.locator is not None and self.locator_salt is not None:
            locator = compute_locator_commitment(self.locator_salt, self.locator)
        return compute_delta_commitment(self.profile_id, self.delta_salt, self.payload), provenance, locator

    def build_delta(self, space_id: Bytes32, head: Head) -> ExperienceDelta:
        """Return the delta that commits to this witness, next after `head`. Errors: `InvalidInput`."""
        if not isinstance(head, Head):
            raise InvalidInput("head", head, "a Head, such as GENESIS or what `MemoryRegistry.head` returns")
        delta_commitment, provenance_commitment, locator_commitment = self.compute_commitments()
        return ExperienceDelta(
            space_id=space_id,
            sequence=head.sequence + 1,
            prev_state_root=head.state_root,
            delta_commitment=delta_commitment,
            provenance_commitment=provenance_commitment,
            profile_id=self.profile_id,
            locator_commitment=locator_commitment,
        )


def verify_witness(delta: ExperienceDelta, witness: Witness) -> ExperienceDelta:
    """Return the delta if the witness opens all its commitments and names its profile.

    Errors: `WitnessMismatch`, naming the first commitment that stays closed; `InvalidInput` for other types.
    """
    if not isinstance(delta, ExperienceDelta):
        raise InvalidInput("delta", NOT_SHOWN, f"an ExperienceDelta, not {type(delta).__name__}")
    if not isinstance(witness, Witness):
        raise InvalidInput("witness", NOT_SHOWN, f"a Witness, not {type(witness).__name__}")
    if witness.profile_id != delta.profile_id:
        raise WitnessMismatch("profileId", delta.profile_id, witness.profile_id)
    names = ("deltaCommitment", "provenanceCommitment", "locatorCommitment")
    committed = (delta.delta_commitment, delta.provenance_commitment, delta.locator_commitment)
    for name, expected, received in zip(names, committed, witness.compute_commitments(), strict=True):
        if expected != received:
            raise WitnessMismatch(name, expected, received)
    return delta
