"""The three commitments that a delta carries instead of content.

    keccak256(tag || [profile id] || salt || keccak256(content))

A salt is 32 secret bytes, fresh for each commitment. Content that can be guessed is hidden by its salt alone: a
published salt protects nothing.

Source: ERC-8350, Privacy commitments.
"""

from __future__ import annotations

from typing import Final

from melete.errors import InvalidInput
from melete.primitives import Bytes32, keccak256

DELTA_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.deltaCommitment.v1")
PROVENANCE_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.provenanceCommitment.v1")
LOCATOR_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.locatorCommitment.v1")


def compute_profile_id(name: str) -> Bytes32:
    """Return the id of a profile: the keccak256 of its name in UTF-8."""
    return keccak256(_utf8(name, "profile name"))


def compute_delta_commitment(profile_id: Bytes32, delta_salt: Bytes32, payload: bytes) -> Bytes32:
    """Return the commitment to a payload under a profile."""
    return keccak256(
        DELTA_COMMITMENT_TAG
        + Bytes32(profile_id, "profileId")
        + Bytes32(delta_salt, "deltaSalt")
        + keccak256(_bytes(payload, "payload"))
    )


def compute_provenance_commitment(provenance_salt: Bytes32, provenance: bytes) -> Bytes32:
    """Return the commitment to where a change came from."""
    return keccak256(
        PROVENANCE_COMMITMENT_TAG
        + Bytes32(provenance_salt, "provenanceSalt")
        + keccak256(_bytes(provenance, "provenance"))
    )


def compute_locator_commitment(locator_salt: Bytes32, locator: str) -> Bytes32:
    """Return the commitment to where a payload is kept: a URI, hashed as UTF-8."""
    return keccak256(
        LOCATOR_COMMITMENT_TAG + Bytes32(locator_salt, "locatorSalt") + keccak256(_utf8(locator, "locator"))
    )


def _bytes(value: bytes, field: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(field, value, "bytes; encode text first, for example as UTF-8")
    return bytes(value)


def _utf8(value: str, field: str) -> bytes:
    try:
        return value.encode("utf-8")
    except (AttributeError, UnicodeEncodeError):
        raise InvalidInput(field, value, "text that UTF-8 can carry") from None
