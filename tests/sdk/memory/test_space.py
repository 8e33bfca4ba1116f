from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import (
    BadPreviousState,
    BadSequence,
    ContractError,
    InvalidAuthorization,
    InvalidInput,
    InvalidSpaceId,
    SpaceAlreadyRegistered,
    UnknownSpace,
    ZeroAddress,
    ZeroDeltaCommitment,
    ZeroProfileId,
    ZeroSpaceId,
)
from melete.memory.delta import ExperienceDelta
from melete.memory.space import (
    GENESIS,
    Head,
    SpaceAuthorization,
    SpaceState,
    check_commit,
    check_registration,
    check_update,
    compute_authorization_hash,
    compute_registration_hash,
    compute_space_id,
)
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32
from models.memory import (
    Accepted,
    CommitTransition,
    MemoryStateModel,
    RegisterSpace,
    Rejection,
    Request,
    UpdateSpaceAuthorization,
    derive_space_id,
    hash_space_authorization,
    hash_space_registration,
)
from strategies import addresses, delta_contents, nonzero_addresses, uint64s, words

from ..strategies import as_model

WORD = Bytes32(b"\x11" * 32)
CONTROLLER, AUTHORIZER = Address(b"\x22" * 20), Address(b"\x33" * 20)
SALT = Bytes32(b"\xdd" * 32)
SPACE_ID = compute_space_id(CONTROLLER, SALT)

# Hashes


@given(nonzero_addresses, words)
def test_space_id_is_the_struct_hash_of_the_standard(controller: bytes, salt: bytes) -> None:
    assert compute_space_id(Address(controller), Bytes32(salt)) == derive_space_id(controller, salt)


def test_the_zero_address_derives_no_space() -> None:
    with pytest.raises(ZeroAddress):
        compute_space_id(ZERO_ADDRESS, SALT)


@given(words, addresses, addresses)
def test_registration_hash_is_the_struct_hash_of_the_standard(
    space_id: bytes, controller: bytes, authorizer: bytes
) -> None:
    computed = compute_registration_hash(Bytes32(space_id), Address(controller), Address(authorizer))
    assert computed == hash_space_registration(space_id, controller, authorizer)


@given(words, addresses, addresses, uint64s)
def test_authorization_hash_is_the_struct_hash_of_the_standard(
    space_id: bytes, controller: bytes, authorizer: bytes, nonce: int
) -> None:
    computed = compute_authorization_hash(Bytes32(space_id), Address(controller), Address(authorizer), nonce)
    assert computed == hash_space_authorization(space_id, controller, authorizer, nonce)


@pytest.mark.parametrize("nonce", [-1, 2**64, "1", 1.0, True, None])
def test_authorization_hash_refuses_a_nonce_that_is_no_uint64(nonce: Any) -> None:
    with pytest.raises(InvalidInput, match="nonce"):
        compute_authorization_hash(WORD, CONTROLLER, AUTHORIZER, nonce)


@pytest.mark.parametrize("bad", [b"", bytes(31), "0x", "hello", 5, None, "0xAb" + "ab" * 19])
def test_messages_refuse_values_of_another_shape_and_name_them_as_the_standard_does(bad: Any) -> None:
    refusals = {
        "spaceId": [
            lambda: compute_registration_hash(bad, CONTROLLER, AUTHORIZER),
            lambda: compute_authorization_hash(bad, CONTROLLER, AUTHORIZER, 1),
        ],
        "controller": [lambda: compute_registration_hash(WORD, bad, AUTHORIZER)],
        "authorizer": [lambda: compute_registration_hash(WORD, CONTROLLER, bad)],
        "newController": [lambda: compute_authorization_hash(WORD, bad, AUTHORIZER, 1)],
        "newAuthorizer": [lambda: compute_authorization_hash(WORD, CONTROLLER, bad, 1)],
        "initialController": [lambda: compute_space_id(bad, SALT)],
        "salt": [lambda: compute_space_id(CONTROLLER, bad)],
    }
    for field, actions in refusals.items():
        for action in actions:
            with pytest.raises(InvalidInput) as caught:
                action()
            assert caught.value.field == field


# Rules, against the model of the specification


def judge(action: Any) -> Rejection | None:
    """What a check says, in the words of the model."""
    try:
        action()
    except ContractError as error:
        return Rejection(type(error).__name__, tuple(vars(error).values()))
    return None


def model_of(state: SpaceState | None, space_id: bytes) -> MemoryStateModel:
    """A model whose one space stands at the given state; its history before the head is of no account."""
    from models.memory import Space

    model = MemoryStateModel(1, b"\x44" * 20)
    if state is not None:
        authorization, head = state.authorization, state.head
        model.spaces[space_id] = Space(
            bytes(authorization.controller),
            bytes(authorization.authorizer),
            authorization.config_nonce,
            (bytes(head.transition_id),) * head.sequence,
            (bytes(head.state_root),) * head.sequence,
        )
    return model


def says(model: MemoryStateModel, request: Request, caller: bytes) -> Rejection | None:
    answer = model.apply(request, caller)
    return None if isinstance(answer, Accepted) else answer


NOBODY = b"\x99" * 20
few_addresses = st.sampled_from([ZERO_ADDRESS, CONTROLLER, AUTHORIZER])
heads = st.just(GENESIS) | st.builds(
    Head, transition_id=words.map(Bytes32), state_root=st.just(WORD), sequence=st.integers(1, 5)
)
states = st.none() | st.builds(
    SpaceState, st.builds(SpaceAuthorization, st.just(CONTROLLER), st.just(AUTHORIZER), st.integers(0, 3)), heads
)


@given(
    st.sampled_from([ZERO_BYTES32, SPACE_ID, compute_space_id(AUTHORIZER, SALT), WORD]),
    few_addresses,
    few_addresses,
    st.booleans(),
    st.booleans(),
)
def test_check_registration_raises_the_first_error_that_the_model_meets(
    space_id: Bytes32, controller: Address, authorizer: Address, registered: bool, approved: bool
) -> None:
    model = model_of(SpaceState(SpaceAuthorization(CONTROLLER, AUTHORIZER)) if registered else None, space_id)
    request = RegisterSpace(space_id, controller, authorizer, SALT)
    verdict = judge(
        lambda: check_registration(space_id, controller, authorizer, SALT, registered=registered, approved=approved)
    )
    assert verdict == says(model, request, controller if approved else NOBODY)


@given(states, few_addresses, few_addresses, st.booleans())
def test_check_update_raises_the_first_error_that_the_model_meets(
    state: SpaceState | None, new_controller: Address, new_authorizer: Address, approved: bool
) -> None:
    request = UpdateSpaceAuthorization(SPACE_ID, new_controller, new_authorizer)
    verdict = judge(lambda: check_update(state, new_controller, new_authorizer, approved=approved))
    assert verdict == says(model_of(state, SPACE_ID), request, CONTROLLER if approved else NOBODY)


@given(
    states,
    st.integers(0, 7),
    st.sampled_from([ZERO_BYTES32, WORD, SALT]),
    delta_contents,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_check_commit_raises_the_first_error_that_the_model_meets(
    state: SpaceState | None,
    sequence: int,
    prev_state_root: Bytes32,
    content: dict[str, bytes],
    without_commitment: bool,
    without_profile: bool,
    approved: bool,
) -> None:
    words_of = {name: Bytes32(word) for name, word in content.items()}
    words_of |= {"delta_commitment": ZERO_BYTES32} if without_commitment else {}
    words_of |= {"profile_id": ZERO_BYTES32} if without_profile else {}
    delta = ExperienceDelta(space_id=SPACE_ID, sequence=sequence, prev_state_root=prev_state_root, **words_of)
    verdict = judge(lambda: check_commit(state, delta, approved=approved))
    request = CommitTransition(as_model(delta))
    assert verdict == says(model_of(state, SPACE_ID), request, AUTHORIZER if approved else NOBODY)


# The order, spelled out


def test_registration_is_refused_for_its_first_fault_and_passes_without_any() -> None:
    def check(space_id: Bytes32 = SPACE_ID, controller: Address = CONTROLLER, **known: bool) -> None:
        known = {"registered": False, "approved": True, **known}
        check_registration(space_id, controller, AUTHORIZER, SALT, **known)

    with pytest.raises(ZeroSpaceId):
        check(ZERO_BYTES32, ZERO_ADDRESS, registered=True, approved=False)
    with pytest.raises(ZeroAddress):
        check(WORD, ZERO_ADDRESS, registered=True, approved=False)
    with pytest.raises(InvalidSpaceId) as caught:
        check(WORD, registered=True, approved=False)
    assert (caught.value.expected, caught.value.received) == (SPACE_ID, WORD)
    with pytest.raises(SpaceAlreadyRegistered):
        check(registered=True, approved=False)
    with pytest.raises(InvalidAuthorization):
        check(approved=False)
    check()


def test_commit_is_refused_for_its_first_fault_and_passes_without_any() -> None:
    state = SpaceState(SpaceAuthorization(CONTROLLER, AUTHORIZER), Head(WORD, SALT, 4))

    def check(state: SpaceState | None = state, approved: bool = False, **members: Any) -> None:
        members = {"sequence": 5, "prev_state_root": SALT, "delta_commitment": WORD, "profile_id": WORD, **members}
        check_commit(state, ExperienceDelta(space_id=SPACE_ID, **members), approved=approved)

    zero: dict[str, Any] = {"delta_commitment": ZERO_BYTES32, "profile_id": ZERO_BYTES32}
    with pytest.raises(UnknownSpace):
        check(None, **zero, sequence=9, prev_state_root=WORD)
    with pytest.raises(ZeroDeltaCommitment):
        check(**zero, sequence=9, prev_state_root=WORD)
    with pytest.raises(ZeroProfileId):
        check(profile_id=ZERO_BYTES32, sequence=9, prev_state_root=WORD)
    with pytest.raises(BadSequence) as sequence:
        check(sequence=9, prev_state_root=WORD)
    assert (sequence.value.expected, sequence.value.received) == (5, 9)
    with pytest.raises(BadPreviousState) as root:
        check(prev_state_root=WORD)
    assert (root.value.expected, root.value.received) == (SALT, WORD)
    with pytest.raises(InvalidAuthorization):
        check()
    check(approved=True)
