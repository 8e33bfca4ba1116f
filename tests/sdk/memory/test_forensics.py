from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from eth_abi import encode
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import BrokenHistory, InvalidInput
from melete.memory.delta import ExperienceDelta, compute_transition_id
from melete.memory.events import (
    LogReference,
    MemoryEvent,
    SpaceAuthorizationUpdated,
    SpaceRegistered,
    TransitionCommitted,
)
from melete.memory.forensics import (
    AUTHORIZATION_RULES,
    COULD_NOT_TELL,
    Approval,
    ApprovedBy,
    Step,
    follow_space,
    identify_approval,
    space_state_from_json,
    space_state_to_json,
    verify_registry_history,
    verify_space_history,
)
from melete.memory.history import RULES, Transition
from melete.memory.registry import FUNCTIONS
from melete.memory.space import (
    GENESIS,
    Head,
    SpaceAuthorization,
    SpaceState,
    compute_authorization_hash,
    compute_registration_hash,
    compute_space_id,
    memory_state_domain,
)
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, keccak256
from melete.signing import CURVE_ORDER, LocalSigner

WORD, OTHER = Bytes32(b"\x11" * 32), Bytes32(b"\x22" * 32)
ACCOUNTS = [Address(bytes([number]) * 20) for number in range(1, 7)]
REGISTRY = Address(b"\x44" * 20)
DOMAIN = memory_state_domain(31337, REGISTRY)

# A registry that keeps its own books, and writes events as it goes


class Registry:
    def __init__(self) -> None:
        self.events: list[MemoryEvent] = []
        self.states: dict[Bytes32, SpaceState] = {}

    def _reference(self) -> LogReference:
        place = len(self.events)
        return LogReference(place // 3, keccak256(b"block %d" % (place // 3)), keccak256(b"%d" % place), place % 3)

    def register(self, space_id: Bytes32, controller: Address, authorizer: Address) -> None:
        self.states[space_id] = SpaceState(SpaceAuthorization(controller, authorizer))
        self.events.append(SpaceRegistered(space_id, controller, authorizer, self._reference()))

    def rotate(self, space_id: Bytes32, controller: Address, authorizer: Address) -> None:
        state = self.states[space_id]
        nonce = state.authorization.config_nonce + 1
        self.states[space_id] = replace(state, authorization=SpaceAuthorization(controller, authorizer, nonce))
        self.events.append(SpaceAuthorizationUpdated(space_id, controller, authorizer, nonce, self._reference()))

    def commit(self, space_id: Bytes32) -> None:
        state = self.states[space_id]
        head = state.head
        delta = ExperienceDelta(space_id, head.sequence + 1, head.state_root, WORD, profile_id=WORD)
        claim = Transition.of(delta, state.authorization.authorizer)
        self.states[space_id] = replace(state, head=Head(claim.transition_id, claim.next_state_root, delta.sequence))
        self.events.append(
            TransitionCommitted(delta, claim.transition_id, claim.next_state_root, claim.authorizer, self._reference())
        )


accounts = st.sampled_from(ACCOUNTS)
acts = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "rotate"]), st.integers(0, 2), accounts, accounts), max_size=14
)


@st.composite
def registries(draw: Any, min_size: int = 0) -> Registry:
    """Up to three spaces, whose commits and rotations are mixed."""
    registry, spaces = Registry(), [keccak256(b"%d" % number) for number in range(3)]
    for act, number, controller, authorizer in draw(acts.filter(lambda found: len(found) >= min_size)):
        if spaces[number] not in registry.states:
            registry.register(spaces[number], controller, authorizer)
        if act == "rotate":
            registry.rotate(spaces[number], controller, authorizer)
        else:
            registry.commit(spaces[number])
    return registry


def of_space(events: list[MemoryEvent], space_id: Bytes32) -> list[MemoryEvent]:
    return [event for event in events if space_of(event) == space_id]


def space_of(event: MemoryEvent) -> Bytes32:
    return event.delta.space_id if isinstance(event, TransitionCommitted) else event.space_id


def a_life() -> list[MemoryEvent]:
    """Registered, committed twice, rotated, committed, rotated, committed."""
    registry = Registry()
    registry.register(WORD, ACCOUNTS[0], ACCOUNTS[1])
    for authorizer in (None, None, ACCOUNTS[2], None, ACCOUNTS[3], None):
        if authorizer is None:
            registry.commit(WORD)
        else:
            registry.rotate(WORD, ACCOUNTS[0], authorizer)
    return registry.events


# What holds


@given(registries())
def test_registry_history_leads_to_the_state_of_every_space(registry: Registry) -> None:
    assert verify_registry_history(iter(registry.events)) == registry.states


@given(registries())
def test_space_history_leads_to_the_state_of_the_space(registry: Registry) -> None:
    for space_id, state in registry.states.items():
        assert verify_space_history(space_id, iter(of_space(registry.events, space_id))) == state


@given(registries(min_size=1), st.data())
def test_space_history_verifies_in_two_parts_from_any_state_in_the_middle(
    registry: Registry, data: st.DataObject
) -> None:
    space_id = data.draw(st.sampled_from(sorted(registry.states)))
    events = of_space(registry.events, space_id)
    cut = data.draw(st.integers(1, len(events)))
    middle = verify_space_history(space_id, events[:cut])
    assert verify_space_history(space_id, events[cut:], middle) == registry.states[space_id]


@given(registries(min_size=1))
def test_every_event_comes_with_the_authorization_it_needed(registry: Registry) -> None:
    for space_id, state in registry.states.items():
        steps = list(follow_space(space_id, of_space(registry.events, space_id)))
        assert [step.event for step in steps] == of_space(registry.events, space_id)
        assert steps[-1].state == state
        assert steps[0].in_force == steps[0].state.authorization
        for before, step in pairwise(steps):
            assert step.in_force == before.state.authorization
            if isinstance(step.event, TransitionCommitted):
                assert step.in_force.authorizer == step.event.authorizer


def test_no_events_lead_back_to_the_start() -> None:
    start = SpaceState(SpaceAuthorization(ACCOUNTS[0], ACCOUNTS[1], 3), Head(WORD, OTHER, 9))
    assert verify_space_history(WORD, [], start) == start
    assert verify_registry_history([]) == {}


# What does not


def broken(events: list[MemoryEvent], start: SpaceState | None = None) -> BrokenHistory:
    """The error that a space's events end in, the same for all three ways to read them."""
    errors = []
    for read in (
        lambda: verify_space_history(WORD, events, start),
        lambda: list(follow_space(WORD, events, start)),
    ):
        with pytest.raises(BrokenHistory) as caught:
            read()
        errors.append(caught.value)
    assert vars(errors[0]) == vars(errors[1])
    return errors[0]


@given(st.integers(0, 3), st.sampled_from(ACCOUNTS), st.data())
def test_any_other_authorizer_than_the_one_in_force_is_caught_where_it_stands(
    number: int, account: Address, data: st.DataObject
) -> None:
    events = a_life()
    at = [place for place, event in enumerate(events) if isinstance(event, TransitionCommitted)][number]
    event = events[at]
    assert isinstance(event, TransitionCommitted)
    if account == event.authorizer:
        return
    error = broken([*events[:at], replace(event, authorizer=account), *events[at + 1 :]])
    assert (error.sequence, error.rule) == (number + 1, "authorizer")
    assert (error.expected, error.received) == (event.authorizer, account)


@pytest.mark.parametrize("at", [3, 5])
def test_a_rotation_left_out_shows_in_the_next_transition(at: int) -> None:
    events = a_life()
    assert isinstance(events[at], SpaceAuthorizationUpdated)
    error = broken(events[:at] + events[at + 1 :])
    assert error.rule == "authorizer"


@pytest.mark.parametrize(("nonce", "rule"), [(0, "repeated"), (1, "repeated"), (3, "skipped"), (2**64 - 1, "skipped")])
def test_rotation_nonces_have_no_gaps(nonce: int, rule: str) -> None:
    events = a_life()
    second = events[5]
    assert isinstance(second, SpaceAuthorizationUpdated)
    error = broken([*events[:5], replace(second, config_nonce=nonce), *events[6:]])
    assert (error.sequence, error.rule) == (4, f"config_nonce_{rule}")
    assert (error.expected, error.received) == (2, nonce)


def test_two_rotations_swapped_are_caught_by_their_nonces() -> None:
    registry = Registry()
    registry.register(WORD, ACCOUNTS[0], ACCOUNTS[1])
    registry.rotate(WORD, ACCOUNTS[0], ACCOUNTS[2])
    registry.rotate(WORD, ACCOUNTS[0], ACCOUNTS[3])
    first, one, two = registry.events
    assert isinstance(one, SpaceAuthorizationUpdated)
    assert isinstance(two, SpaceAuthorizationUpdated)
    swapped: list[MemoryEvent] = [
        first, replace(two, reference=one.reference), replace(one, reference=two.reference),
    ]  # fmt: skip
    assert broken(swapped).rule == "config_nonce_skipped"


@pytest.mark.parametrize("at", range(1, 7))
def test_history_without_its_registration_is_caught_at_once(at: int) -> None:
    error = broken(a_life()[at:])
    assert (error.sequence, error.rule) == (1, "space_unregistered")


def test_a_space_that_has_no_events_is_not_registered() -> None:
    with pytest.raises(BrokenHistory) as caught:
        verify_space_history(WORD, [])
    assert caught.value.rule == "space_unregistered"


@pytest.mark.parametrize("at", range(1, 8))
def test_a_second_registration_is_caught_where_it_stands(at: int) -> None:
    events = a_life()
    again = replace(events[0], reference=replace(events[0].reference, block_number=at, log_index=99))
    events = [*events[:at], again]
    for place, event in enumerate(events):
        events[place] = replace(event, reference=replace(event.reference, block_number=place))
    assert broken(events).rule == "space_registered_again"


@pytest.mark.parametrize("name", ["controller", "authorizer"])
@pytest.mark.parametrize("at", [0, 3])
def test_zero_accounts_are_never_authorized(name: str, at: int) -> None:
    events = a_life()
    events[at] = replace(events[at], **{name: ZERO_ADDRESS})  # type: ignore[arg-type]
    assert broken(events).rule == "zero_authorization"


@pytest.mark.parametrize("at", range(7))
def test_events_of_another_space_are_caught_where_they_stand(at: int) -> None:
    events = a_life()
    event = events[at]
    if isinstance(event, TransitionCommitted):
        events[at] = replace(event, delta=replace(event.delta, space_id=OTHER))
    else:
        events[at] = replace(event, space_id=OTHER)
    error = broken(events)
    assert (error.rule, error.expected, error.received) == ("space_id", WORD, OTHER)


@given(st.integers(1, 6), st.integers(0, 2))
def test_events_out_of_the_chains_order_are_caught(at: int, back: int) -> None:
    events = a_life()
    before = events[at - 1].reference
    place = replace(before, block_number=before.block_number - min(back, before.block_number))
    events[at] = replace(events[at], reference=place)
    assert broken(events).rule == "event_order"


def test_transitions_keep_the_rules_of_their_own_history() -> None:
    events = a_life()
    for at, event in enumerate(events):
        if not isinstance(event, TransitionCommitted):
            continue
        for name, value, rule in (
            ("transition_id", OTHER, "transition_id"),
            ("next_state_root", OTHER, "next_state_root"),
        ):
            error = broken([*events[:at], replace(event, **{name: value})])
            assert (error.sequence, error.rule) == (event.delta.sequence, rule)
        delta = replace(event.delta, delta_commitment=ZERO_BYTES32)
        error = broken([*events[:at], replace(event, delta=delta)])
        assert error.rule == "zero_delta_commitment"


def test_of_two_broken_rules_the_one_of_the_chain_comes_first() -> None:
    events = a_life()
    event = events[1]
    assert isinstance(event, TransitionCommitted)
    events[1] = replace(event, transition_id=OTHER, authorizer=ACCOUNTS[5])
    assert broken(events).rule == "transition_id"


@given(registries(min_size=2), st.data())
def test_registry_history_names_what_breaks_in_one_of_its_spaces(registry: Registry, data: st.DataObject) -> None:
    places = [place for place, event in enumerate(registry.events) if isinstance(event, TransitionCommitted)]
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    event = registry.events[at]
    assert isinstance(event, TransitionCommitted)
    events = [*registry.events[:at], replace(event, authorizer=REGISTRY), *registry.events[at + 1 :]]
    with pytest.raises(BrokenHistory) as caught:
        verify_registry_history(events)
    assert (caught.value.sequence, caught.value.rule) == (event.delta.sequence, "authorizer")


def test_rules_of_the_two_histories_have_no_name_in_common() -> None:
    assert set(RULES).isdisjoint(AUTHORIZATION_RULES)


# Cost


def endless() -> Iterator[MemoryEvent]:
    yield SpaceRegistered(WORD, ACCOUNTS[0], ACCOUNTS[1], LogReference(0, WORD, WORD, 0))
    head = GENESIS
    while True:
        delta = ExperienceDelta(WORD, head.sequence + 1, head.state_root, WORD, profile_id=WORD)
        claim = Transition.of(delta)
        head = Head(claim.transition_id, claim.next_state_root, delta.sequence)
        reference = LogReference(delta.sequence, WORD, WORD, 0)
        yield TransitionCommitted(delta, claim.transition_id, claim.next_state_root, ACCOUNTS[1], reference)


def peak_memory(length: int) -> int:
    tracemalloc.start()
    try:
        state = verify_space_history(WORD, (event for event, _ in zip(endless(), range(length), strict=False)))
        assert state.head.sequence == length - 1
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_history_ten_times_as_long_takes_no_more_memory() -> None:
    peak_memory(10)
    assert peak_memory(3_000) < peak_memory(300) + 50_000


# Who approved


KEYS = [LocalSigner(keccak256(b"key %d" % number)) for number in range(3)]
CONTROLLER, AUTHORIZER, RELAYER = KEYS
SALT = keccak256(b"salt")
SPACE = compute_space_id(CONTROLLER.address, SALT)
IN_FORCE = SpaceAuthorization(CONTROLLER.address, AUTHORIZER.address, 4)
REFERENCE = LogReference(1, WORD, WORD, 0)


def call(name: str, *values: Any) -> bytes:
    signature = FUNCTIONS[name]
    types = {
        "commitTransition": ["(bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32)", "bytes"],
        "updateSpaceAuthorization": ["bytes32", "address", "address", "bytes"],
        "registerSpace": ["bytes32", "address", "address", "bytes32", "bytes"],
    }[name]
    return keccak256(signature.encode())[:4] + encode(types, values)


def case_of(name: str) -> tuple[Step, Any, Bytes32, LocalSigner]:
    """A step, how to build its calldata around a signature, what is signed, and who has to."""
    state = SpaceState(IN_FORCE)
    if name == "commitTransition":
        delta = ExperienceDelta(SPACE, 1, ZERO_BYTES32, WORD, profile_id=OTHER)
        claim = Transition.of(delta, AUTHORIZER.address)
        event: MemoryEvent = TransitionCommitted(
            delta, claim.transition_id, claim.next_state_root, AUTHORIZER.address, REFERENCE
        )
        members = (SPACE, 1, ZERO_BYTES32, WORD, ZERO_BYTES32, OTHER, ZERO_BYTES32)
        return Step(event, IN_FORCE, state), lambda s: call(name, members, s), compute_transition_id(delta), AUTHORIZER
    accounts = [str(ACCOUNTS[0]).lower(), str(ACCOUNTS[1]).lower()]
    if name == "updateSpaceAuthorization":
        event = SpaceAuthorizationUpdated(SPACE, ACCOUNTS[0], ACCOUNTS[1], 5, REFERENCE)
        struct_hash = compute_authorization_hash(SPACE, ACCOUNTS[0], ACCOUNTS[1], 5)
        return Step(event, IN_FORCE, state), lambda s: call(name, SPACE, *accounts, s), struct_hash, CONTROLLER
    event = SpaceRegistered(SPACE, CONTROLLER.address, ACCOUNTS[1], REFERENCE)
    struct_hash = compute_registration_hash(SPACE, CONTROLLER.address, ACCOUNTS[1])
    in_force = SpaceAuthorization(CONTROLLER.address, ACCOUNTS[1])
    arguments = (SPACE, str(CONTROLLER.address), accounts[1], SALT)
    return Step(event, in_force, state), lambda s: call(name, *arguments, s), struct_hash, CONTROLLER


WRITES = ["registerSpace", "updateSpaceAuthorization", "commitTransition"]


@pytest.mark.parametrize("name", WRITES)
def test_a_signature_in_the_calldata_tells_whose_key_approved(name: str) -> None:
    step, build, struct_hash, signer = case_of(name)
    data = build(signer.sign_digest(DOMAIN.digest(struct_hash)))
    expected = Approval(ApprovedBy.KEY, signer.address)
    assert identify_approval(step, DOMAIN, RELAYER.address, REGISTRY, data) == expected
    assert identify_approval(step, DOMAIN, signer.address, REGISTRY, data) == expected


@pytest.mark.parametrize("name", WRITES)
def test_an_empty_signature_tells_of_a_direct_call_by_the_account_itself(name: str) -> None:
    step, build, _, signer = case_of(name)
    assert identify_approval(step, DOMAIN, signer.address, REGISTRY, build(b"")) == Approval(
        ApprovedBy.DIRECT_CALL, signer.address
    )
    assert identify_approval(step, DOMAIN, RELAYER.address, REGISTRY, build(b"")) == COULD_NOT_TELL


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("to", [None, ACCOUNTS[0]])
def test_who_called_through_another_contract_cannot_be_told(name: str, to: Address | None) -> None:
    step, build, struct_hash, signer = case_of(name)
    data = build(signer.sign_digest(DOMAIN.digest(struct_hash)))
    assert identify_approval(step, DOMAIN, signer.address, to, data) == COULD_NOT_TELL
    assert identify_approval(step, DOMAIN, signer.address, to, build(b"")) == COULD_NOT_TELL


@pytest.mark.parametrize("name", WRITES)
def test_a_signature_of_another_key_or_for_another_registry_tells_nothing(name: str) -> None:
    """A contract wallet may have taken it for an approval; which key that was, is the wallet's business."""
    step, build, struct_hash, signer = case_of(name)
    elsewhere = memory_state_domain(1, REGISTRY)
    for signature in (
        RELAYER.sign_digest(DOMAIN.digest(struct_hash)),
        signer.sign_digest(elsewhere.digest(struct_hash)),
        b"\x01",
        b"\xff" * 65,
        b"\x11" * 130,
    ):
        assert identify_approval(step, DOMAIN, signer.address, REGISTRY, build(signature)) == COULD_NOT_TELL


@pytest.mark.parametrize("name", WRITES)
def test_a_signature_with_high_s_tells_nothing(name: str) -> None:
    step, build, struct_hash, signer = case_of(name)
    signature = signer.sign_digest(DOMAIN.digest(struct_hash))
    high = CURVE_ORDER - int.from_bytes(signature[32:64], "big")
    twin = signature[:32] + high.to_bytes(32, "big") + bytes([55 - signature[64]])
    assert identify_approval(step, DOMAIN, RELAYER.address, REGISTRY, build(twin)) == COULD_NOT_TELL


@pytest.mark.parametrize("name", WRITES)
def test_any_other_calldata_than_the_events_tells_nothing(name: str) -> None:
    """One bit in any byte of selector, words, offset or length; the signature's own bytes change the signer."""
    step, build, struct_hash, signer = case_of(name)
    data = build(signer.sign_digest(DOMAIN.digest(struct_hash)))
    padding = -65 % 32
    for at in range(len(data) - padding):
        altered = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert identify_approval(step, DOMAIN, RELAYER.address, REGISTRY, altered) == COULD_NOT_TELL, at


@given(st.sampled_from(WRITES), st.integers(0, 400))
def test_truncated_calldata_tell_nothing(name: str, length: int) -> None:
    step, build, struct_hash, signer = case_of(name)
    data = build(signer.sign_digest(DOMAIN.digest(struct_hash)))
    cut = data[: min(length, len(data) - 32)]
    assert identify_approval(step, DOMAIN, signer.address, REGISTRY, cut) == COULD_NOT_TELL


@given(st.binary(max_size=500), st.sampled_from(WRITES))
def test_any_bytes_at_all_are_an_answer(data: bytes, name: str) -> None:
    step, *_ = case_of(name)
    assert identify_approval(step, DOMAIN, RELAYER.address, REGISTRY, data) == COULD_NOT_TELL


# What a reader goes on from

STATES = st.builds(
    SpaceState,
    st.builds(SpaceAuthorization, accounts, accounts, st.integers(0, 2**64 - 1)),
    st.builds(Head, st.just(WORD), st.just(OTHER), st.integers(0, 2**64 - 1)),
)


@given(st.none() | STATES)
def test_what_is_known_of_a_space_is_written_and_read_again(state: SpaceState | None) -> None:
    assert space_state_from_json(json.loads(json.dumps(space_state_to_json(state)))) == state


def a_state() -> dict[str, Any]:
    document = space_state_to_json(SpaceState(SpaceAuthorization(ACCOUNTS[0], ACCOUNTS[1], 3), Head(WORD, OTHER, 9)))
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("controller", "0x12"),
        ("controller", None),
        ("authorizer", 7),
        ("configNonce", 3),
        ("configNonce", "03"),
        ("sequence", "-1"),
        ("sequence", str(2**64)),
        ("stateRoot", "0x"),
        ("transitionId", WORD.hex()),
        ("more", "members"),
    ],
)
def test_another_document_is_no_state_of_a_space(member: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        space_state_from_json({**a_state(), member: value})


@pytest.mark.parametrize("member", sorted(a_state()))
def test_a_state_of_a_space_has_all_its_members(member: str) -> None:
    with pytest.raises(InvalidInput):
        space_state_from_json({name: value for name, value in a_state().items() if name != member})


@pytest.mark.parametrize("document", [[], "", 0, True, {}])
def test_another_json_value_is_no_state_of_a_space(document: Any) -> None:
    with pytest.raises(InvalidInput):
        space_state_from_json(document)
