"""A space: its id, the two messages that its controller signs, and the rules of the registry as pure functions.

Each `check_*` raises the first error that the registry would, in its order, from what is known of its state. What a
contract wallet answers is not known here: `approved` carries the caller's knowledge of it.

Source: ERC-8350, Space lifecycle and Authorization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from melete.errors import (
    BadPreviousState,
    BadSequence,
    InvalidAuthorization,
    InvalidSpaceId,
    SpaceAlreadyRegistered,
    UnknownSpace,
    ZeroAddress,
    ZeroDeltaCommitment,
    ZeroProfileId,
    ZeroSpaceId,
)
from melete.memory.delta import ExperienceDelta
from melete.primitives import (
    ZERO_ADDRESS,
    ZERO_BYTES32,
    Address,
    Bytes32,
    keccak256,
    uint64,
    uint_word,
)
from melete.typed_data import Domain

MEMORY_SPACE_TYPE: Final = "MemorySpace(address initialController,bytes32 salt)"
SPACE_REGISTRATION_TYPE: Final = "SpaceRegistration(bytes32 spaceId,address controller,address authorizer)"
SPACE_AUTHORIZATION_TYPE: Final = (
    "SpaceAuthorization(bytes32 spaceId,address newController,address newAuthorizer,uint64 nonce)"
)
MEMORY_SPACE_TYPEHASH: Final = keccak256(MEMORY_SPACE_TYPE.encode())
SPACE_REGISTRATION_TYPEHASH: Final = keccak256(SPACE_REGISTRATION_TYPE.encode())
SPACE_AUTHORIZATION_TYPEHASH: Final = keccak256(SPACE_AUTHORIZATION_TYPE.encode())


@dataclass(frozen=True, slots=True)
class Head:
    """The last transition of a space; all zero before the first."""

    transition_id: Bytes32 = ZERO_BYTES32
    state_root: Bytes32 = ZERO_BYTES32
    sequence: int = 0


GENESIS: Final = Head()


@dataclass(frozen=True, slots=True)
class SpaceAuthorization:
    """Who may act for a space; `config_nonce` counts the updates, and the next one signs the number after it."""

    controller: Address
    authorizer: Address
    config_nonce: int = 0


@dataclass(frozen=True, slots=True)
class SpaceState:
    """All that a registry knows of one space."""

    authorization: SpaceAuthorization
    head: Head = GENESIS


def memory_state_domain(chain_id: int, registry: Address) -> Domain:
    """Return the EIP-712 domain of an Agent Memory State registry."""
    return Domain("AgentMemoryState", "1", chain_id, registry)


def compute_space_id(initial_controller: Address, salt: Bytes32) -> Bytes32:
    """Return the id of the space that a controller can register with a salt.

    Errors: `ZeroAddress` for the zero address, which controls nothing.
    """
    controller = Address(initial_controller, "initialController")
    if controller == ZERO_ADDRESS:
        raise ZeroAddress
    return keccak256(MEMORY_SPACE_TYPEHASH + controller.word + Bytes32(salt, "salt"))


def compute_registration_hash(space_id: Bytes32, controller: Address, authorizer: Address) -> Bytes32:
    """Return the struct hash that a controller signs to register a space."""
    return keccak256(
        SPACE_REGISTRATION_TYPEHASH
        + Bytes32(space_id, "spaceId")
        + Address(controller, "controller").word
        + Address(authorizer, "authorizer").word
    )


def compute_authorization_hash(
    space_id: Bytes32, new_controller: Address, new_authorizer: Address, nonce: int
) -> Bytes32:
    """Return the struct hash that a controller signs to update a space's authorization.

    `nonce` is a uint64: the space's config nonce plus one, so 1 for the first update.
    """
    return keccak256(
        SPACE_AUTHORIZATION_TYPEHASH
        + Bytes32(space_id, "spaceId")
        + Address(new_controller, "newController").word
        + Address(new_authorizer, "newAuthorizer").word
        + uint_word(uint64(nonce, "nonce"))
    )


def check_registration(
    space_id: Bytes32,
    controller: Address,
    authorizer: Address,
    salt: Bytes32,
    *,
    registered: bool,
    approved: bool,
) -> None:
    """Raise the first error of `registerSpace`, or return."""
    if space_id == ZERO_BYTES32:
        raise ZeroSpaceId
    if ZERO_ADDRESS in (controller, authorizer):
        raise ZeroAddress
    derived = compute_space_id(controller, salt)
    if space_id != derived:
        raise InvalidSpaceId(derived, space_id)
    if registered:
        raise SpaceAlreadyRegistered
    if not approved:
        raise InvalidAuthorization


def check_update(state: SpaceState | None, new_controller: Address, new_authorizer: Address, *, approved: bool) -> None:
    """Raise the first error of `updateSpaceAuthorization`, or return. `state` is None for an unknown space."""
    if ZERO_ADDRESS in (new_controller, new_authorizer):
        raise ZeroAddress
    if state is None:
        raise UnknownSpace
    if not approved:
        raise InvalidAuthorization


def check_commit(state: SpaceState | None, delta: ExperienceDelta, *, approved: bool) -> None:
    """Raise the first error of `commitTransition`, or return. `state` is None for an unknown space."""
    if state is None:
        raise UnknownSpace
    if delta.delta_commitment == ZERO_BYTES32:
        raise ZeroDeltaCommitment
    if delta.profile_id == ZERO_BYTES32:
        raise ZeroProfileId
    if delta.sequence != state.head.sequence + 1:
        raise BadSequence(state.head.sequence + 1, delta.sequence)
    if delta.prev_state_root != state.head.state_root:
        raise BadPreviousState(state.head.state_root, delta.prev_state_root)
    if not approved:
        raise InvalidAuthorization
