from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import (
    ContractError,
    InvalidDisclosure,
    InvalidInput,
    InvalidLayerMask,
    InvalidTriggers,
    MissingInterval,
    RequiredNotSupported,
)
from melete.meditation.policy import (
    NO_FLOOR,
    Floor,
    Policy,
    Requirements,
    check_floor,
    check_policy,
    join_requirements,
)
from melete.primitives import ZERO_BYTES32, Bytes32

LATEST = 2**48 - 1
POLICY = Policy(
    supported_layers=15,
    required_layers=5,
    allowed_triggers=15,
    disclosure=1,
    due_window=60,
    pulse_interval=300,
    max_interval=(1000, 0, 2000, 0),
)
FLOOR = Floor(required_layers=9, pulse_interval=200, max_interval=(1500, 0, 0, 500))


def refusal(policy: Policy | Floor) -> tuple[type[ContractError], dict[str, Any]]:
    """The error of a policy or a floor, and its values."""
    with pytest.raises(ContractError) as caught:
        check_policy(policy) if isinstance(policy, Policy) else check_floor(policy)
    return type(caught.value), vars(caught.value)


# Policies


@pytest.mark.parametrize("supported", [1, 8, 15])
def test_policy_may_support_any_layers_that_exist(supported: int) -> None:
    policy = replace(POLICY, supported_layers=supported, required_layers=0)
    assert check_policy(policy) is policy


@pytest.mark.parametrize("supported", [0, 16, 31, 255])
def test_policy_must_support_a_layer_and_none_that_does_not_exist(supported: int) -> None:
    policy = replace(POLICY, supported_layers=supported, required_layers=0)
    assert refusal(policy) == (InvalidLayerMask, {"layer_mask": supported})


@pytest.mark.parametrize(("supported", "required"), [(14, 1), (15, 16), (1, 3), (7, 8)])
def test_policy_must_not_require_what_it_does_not_support(supported: int, required: int) -> None:
    policy = replace(POLICY, supported_layers=supported, required_layers=required)
    assert refusal(policy) == (
        RequiredNotSupported,
        {"supported_layers": supported, "required_layers": required},
    )


@pytest.mark.parametrize("triggers", [0, 16, 31, 128])
def test_policy_must_allow_a_trigger_and_none_that_does_not_exist(triggers: int) -> None:
    assert refusal(replace(POLICY, allowed_triggers=triggers)) == (InvalidTriggers, {"allowed_triggers": triggers})


@pytest.mark.parametrize("triggers", [1, 8, 15])
def test_policy_may_allow_any_triggers_that_exist(triggers: int) -> None:
    policy = replace(POLICY, allowed_triggers=triggers)
    assert check_policy(policy) is policy


def test_disclosure_ends_at_level_two() -> None:
    assert check_policy(replace(POLICY, disclosure=2)).disclosure == 2
    assert refusal(replace(POLICY, disclosure=3)) == (InvalidDisclosure, {"maximum": 2, "received": 3})


@pytest.mark.parametrize(
    ("intervals", "lowest"), [((0, 1, 1, 1), 0), ((1, 1, 0, 1), 2), ((0, 0, 0, 0), 0), ((1, 0, 0, 0), 2)]
)
def test_policy_must_give_every_required_layer_an_interval(intervals: Any, lowest: int) -> None:
    assert refusal(replace(POLICY, max_interval=intervals)) == (MissingInterval, {"layer": lowest})


def test_policy_may_leave_layers_that_it_does_not_require_without_an_interval() -> None:
    policy = replace(POLICY, required_layers=8, max_interval=(0, 0, 0, 1))
    assert check_policy(policy) is policy


def test_policy_is_refused_for_its_first_fault_and_passes_without_any() -> None:
    wrong = {"allowed_triggers": 16, "disclosure": 3, "max_interval": (0, 0, 0, 0)}
    assert refusal(replace(POLICY, **wrong, supported_layers=0))[0] is InvalidLayerMask
    assert refusal(replace(POLICY, **wrong, supported_layers=3))[0] is RequiredNotSupported
    assert refusal(replace(POLICY, **wrong))[0] is InvalidTriggers
    del wrong["allowed_triggers"]
    assert refusal(replace(POLICY, **wrong))[0] is InvalidDisclosure
    del wrong["disclosure"]
    assert refusal(replace(POLICY, **wrong))[0] is MissingInterval
    assert check_policy(POLICY) is POLICY


# Floors


@pytest.mark.parametrize("required", [16, 31, 255])
def test_floor_must_not_require_layers_that_do_not_exist(required: int) -> None:
    assert refusal(Floor(required, max_interval=(0, 0, 0, 0))) == (InvalidLayerMask, {"layer_mask": required})


@pytest.mark.parametrize(("required", "lowest"), [(1, 0), (12, 2), (15, 0), (8, 3)])
def test_floor_must_give_every_required_layer_an_interval(required: int, lowest: int) -> None:
    assert refusal(Floor(required, max_interval=(0, 5, 0, 0))) == (MissingInterval, {"layer": lowest})


@pytest.mark.parametrize("floor", [NO_FLOOR, FLOOR, Floor(15, 0, (1, 1, 1, LATEST)), Floor(0, 7, (1, 2, 3, 4))])
def test_floor_may_require_nothing_or_any_layers_that_exist(floor: Floor) -> None:
    assert check_floor(floor) is floor


# What the contract's types hold

NO_UINT8: list[Any] = [-1, 256, True, 1.0, "1", None]
NO_UINT48: list[Any] = [-1, 2**48, True, 1.5, "1", None]


@pytest.mark.parametrize("bad", NO_UINT8)
@pytest.mark.parametrize("name", ["supported_layers", "required_layers", "allowed_triggers", "disclosure"])
def test_policy_refuses_masks_that_are_no_uint8(name: str, bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(POLICY, **{name: bad})
    assert caught.value.field == name


@pytest.mark.parametrize("bad", NO_UINT48)
@pytest.mark.parametrize("name", ["due_window", "pulse_interval"])
def test_policy_refuses_durations_that_are_no_uint48(name: str, bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(POLICY, **{name: bad})
    assert caught.value.field == name


@pytest.mark.parametrize("bad", NO_UINT48)
@pytest.mark.parametrize("structure", [POLICY, FLOOR])
def test_intervals_that_are_no_uint48_are_refused_by_their_layer(structure: Any, bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(structure, max_interval=(1, 1, 1, bad))
    assert caught.value.field == "max_interval[3]"


@pytest.mark.parametrize("bad", [(), (1, 2, 3), (1, 2, 3, 4, 5), 7, None, "1234", {0: 1, 1: 1, 2: 1, 3: 1}])
@pytest.mark.parametrize("structure", [POLICY, FLOOR])
def test_intervals_are_four(structure: Any, bad: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(structure, max_interval=bad)
    assert caught.value.field == "max_interval"


@pytest.mark.parametrize("name", ["required_layers", "pulse_interval"])
def test_floor_refuses_numbers_of_another_type(name: str) -> None:
    for bad in (-1, 2**48, True, "1"):
        with pytest.raises(InvalidInput) as caught:
            replace(FLOOR, **{name: bad})
        assert caught.value.field == name


def test_policy_refuses_a_hash_that_is_no_word_and_a_locator_that_is_no_text() -> None:
    bad: Any
    for bad in (bytes(31), "0x11", None):
        with pytest.raises(InvalidInput, match="policyHash"):
            replace(POLICY, policy_hash=bad)
    for bad in (b"ipfs://x", None, 5):
        with pytest.raises(InvalidInput, match="policyURI"):
            replace(POLICY, policy_uri=bad)


def test_policy_reads_hashes_in_hex_and_intervals_in_a_list() -> None:
    text: Any = "0x" + "11" * 32
    listed: Any = [1000, 0, 2000, 0]
    policy = replace(POLICY, policy_hash=text, max_interval=listed)
    assert policy.policy_hash == Bytes32(b"\x11" * 32)
    assert policy == replace(POLICY, policy_hash=Bytes32(b"\x11" * 32))
    assert hash(policy) == hash(replace(POLICY, policy_hash=Bytes32(b"\x11" * 32)))


def test_policy_says_nothing_of_what_is_left_out() -> None:
    policy = Policy(1, 0, 1)
    assert (policy.policy_hash, policy.policy_uri, policy.disclosure) == (ZERO_BYTES32, "", 0)
    assert (policy.due_window, policy.pulse_interval, policy.max_interval) == (0, 0, (0, 0, 0, 0))


# What holds of both

durations = st.sampled_from([0, 1, 2, 300, LATEST - 1, LATEST]) | st.integers(0, LATEST)
intervals = st.tuples(durations, durations, durations, durations)
masks = st.integers(0, 15)
policies = st.builds(
    Policy,
    supported_layers=masks,
    required_layers=masks,
    allowed_triggers=masks,
    due_window=durations,
    pulse_interval=durations,
    max_interval=intervals,
)
floors = st.builds(Floor, required_layers=masks, pulse_interval=durations, max_interval=intervals)


def required_by(structure: Policy | Floor, layer: int) -> list[int]:
    """What a policy or a floor asks of a layer: no number, or one that is not zero."""
    asks = structure.required_layers & (1, 2, 4, 8)[layer] and structure.max_interval[layer]
    return [structure.max_interval[layer]] if asks else []


@given(policies, floors)
def test_interval_is_the_shortest_that_somebody_requires(policy: Policy, floor: Floor) -> None:
    joined = join_requirements(policy, floor)
    for layer in range(4):
        asked = sorted(required_by(policy, layer) + required_by(floor, layer))
        assert joined.max_interval[layer] == (asked[0] if asked else 0)


@given(policies, floors)
def test_layers_are_required_by_either_and_supported_by_the_policy(policy: Policy, floor: Floor) -> None:
    joined = join_requirements(policy, floor)
    for bit in (1, 2, 4, 8):
        either = policy.required_layers & bit or floor.required_layers & bit
        assert joined.required_layers & bit == either
    assert joined.required_layers <= 15
    assert joined.supported_layers == policy.supported_layers
    assert joined.due_window == policy.due_window


@given(policies, floors)
def test_pulse_interval_is_the_shortest_that_is_not_zero(policy: Policy, floor: Floor) -> None:
    asked = sorted({policy.pulse_interval, floor.pulse_interval} - {0})
    assert join_requirements(policy, floor).pulse_interval == (asked[0] if asked else 0)


@given(policies, policies, floors)
def test_no_policy_relaxes_what_the_floor_requires(before: Policy, after: Policy, floor: Floor) -> None:
    bound = join_requirements(replace(before, required_layers=0, pulse_interval=0), floor)
    joined = join_requirements(after, floor)
    assert joined.required_layers & bound.required_layers == bound.required_layers
    assert not bound.pulse_interval or 0 < joined.pulse_interval <= bound.pulse_interval
    for layer in range(4):
        assert not bound.max_interval[layer] or 0 < joined.max_interval[layer] <= bound.max_interval[layer]


def test_without_a_floor_the_policy_is_all_that_holds() -> None:
    assert (
        join_requirements(POLICY)
        == join_requirements(POLICY, NO_FLOOR)
        == Requirements(15, 5, 60, 300, (1000, 0, 2000, 0))
    )


def test_policy_and_floor_join_as_written_out_here() -> None:
    assert join_requirements(POLICY, FLOOR) == Requirements(
        supported_layers=15, required_layers=13, due_window=60, pulse_interval=200, max_interval=(1000, 0, 2000, 500)
    )


def test_interval_of_a_layer_that_its_giver_does_not_require_counts_for_nothing() -> None:
    policy, floor = replace(POLICY, max_interval=(1000, 1, 2000, 1)), replace(FLOOR, max_interval=(1500, 1, 1, 500))
    assert join_requirements(policy, floor).max_interval == (1000, 0, 2000, 500)


def test_floor_requires_a_layer_although_the_policy_does_not_support_it() -> None:
    joined = join_requirements(replace(POLICY, supported_layers=5), FLOOR)
    assert (joined.supported_layers, joined.required_layers, joined.max_interval[3]) == (5, 13, 500)
