"""The three commitments that a delta carries instead of content.

    keccak256(tag || [profile id] || salt || keccak256(content))

A salt is 32 secret bytes, fresh for each commitment. Content that can be guessed is hidden by its salt alone: a
published salt protects nothing.

Source: ERC-8350, Privacy commitments.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from melete.errors import InvalidInput
from melete.primitives import NOT_SHOWN, Bytes32, keccak256, secret_bytes32

DELTA_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.deltaCommitment.v1")
PROVENANCE_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.provenanceCommitment.v1")
LOCATOR_COMMITMENT_TAG: Final = keccak256(b"AgentMemoryState.locatorCommitment.v1")


def compute_profile_id(name: str) -> Bytes32:
    """Return the id of a profile: the keccak256 of its name in UTF-8."""
    return keccak256(secret_text(name, "profile name"))


def compute_delta_commitment(profile_id: Bytes32, delta_salt: Bytes32, payload: bytes) -> Bytes32:
    """Return the commitment to a payload under a profile."""
    return keccak256(
        DELTA_COMMITMENT_TAG
        + Bytes32(profile_id, "profileId")
        + secret_bytes32(delta_salt, "deltaSalt")
        + keccak256(secret_content(payload, "payload"))
    )


def compute_provenance_commitment(provenance_salt: Bytes32, provenance: bytes) -> Bytes32:
    """Return the commitment to where a change came from."""
    return keccak256(
        PROVENANCE_COMMITMENT_TAG
        + secret_bytes32(provenance_salt, "provenanceSalt")
        + keccak256(secret_content(provenance, "provenance"))
    )


def compute_locator_commitment(locator_salt: Bytes32, locator: str) -> Bytes32:
    """Return the commitment to where a payload is kept: a URI, hashed as UTF-8."""
    salt = secret_bytes32(locator_salt, "locatorSalt")
    return keccak256(LOCATOR_COMMITMENT_TAG + salt + keccak256(secret_text(locator, "locator")))


def secret_content(value: bytes, field: str) -> bytes:
    """Return content as bytes; an error does not show it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidInput(field, NOT_SHOWN, f"bytes, not {type(value).__name__}; encode text first, for example as UTF-8")


def secret_text(value: str, field: str) -> bytes:
    """Return text as UTF-8; an error does not show it."""
    with suppress(AttributeError, UnicodeEncodeError):
        return value.encode("utf-8")
    raise InvalidInput(field, NOT_SHOWN, "text that UTF-8 can carry")
