"""Views: what is registered comes back as it was set, and what does not exist is zero."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meditation_chain import Contract
from meditation_examples import ALL_RIGHTS, DAY, FLOOR, POLICY, Agent
from models.meditation import (
    LATEST_TIME,
    LAYERS,
    NOBODY,
    OVERDUE,
    Floor,
    Policy,
    compute_layer_commitment,
    compute_root,
    keccak256,
)

words = st.binary(min_size=32, max_size=32)
durations = st.one_of(
    st.integers(0, LATEST_TIME), st.sampled_from([0, 1, 2**32 - 1, 2**32, LATEST_TIME - 1, LATEST_TIME])
)
sound_durations = durations.filter(bool)

NO_HEAD = (False, NOBODY, 0, 0, 0, 0, 0, bytes(32), 0, 0, 0)
NO_POLICY = (bytes(32), "", 0, 0, 0, 0, 0, 0, (0, 0, 0, 0))


# What does not exist


@pytest.mark.parametrize(
    ("function", "arguments", "nothing"),
    [
        ("headOf", (), NO_HEAD),
        ("checkpointOf", (0,), (bytes(32), 0, 0, 0, 0)),
        ("checkpointOf", (3,), (bytes(32), 0, 0, 0, 0)),
        ("rootAt", (1,), bytes(32)),
        ("policyOf", (1,), NO_POLICY),
        ("policyEffectiveFrom", (1,), 0),
        ("floorOf", (), (0, 0, (0, 0, 0, 0))),
        ("demandOf", (0,), (0, 0)),
        ("operatorPermissions", (NOBODY,), 0),
        ("requirementsOf", (), (0, 0, 0, 0, (0, 0, 0, 0))),
        ("layerStatus", (0,), (0, 0, False)),
        ("layerStatus", (3,), (0, 0, False)),
        ("signalStatus", (), (0, 0, 0)),
    ],
)
def test_unknown_subject_is_answered_with_zeros(
    stranger: Agent, function: str, arguments: tuple[Any, ...], nothing: Any
) -> None:
    assert stranger.registry.call(function, stranger.address, *arguments) == nothing
    assert stranger.registry.call(function, NOBODY, *arguments) == nothing


@pytest.mark.parametrize("version", [0, 3, 2**64 - 1])
def test_root_of_a_version_that_does_not_exist_is_zero(agent: Agent, version: int) -> None:
    agent.change(0)
    assert agent.root_at(version) == bytes(32)


@pytest.mark.parametrize("version", [0, 3, 2**32 - 1])
def test_policy_of_a_version_that_does_not_exist_is_zero(agent: Agent, version: int) -> None:
    agent.set_policy(policy_uri="ipfs://policy")
    assert agent.registry.call("policyOf", agent.address, version) == NO_POLICY
    assert agent.registry.call("policyEffectiveFrom", agent.address, version) == 0


@pytest.mark.parametrize("layer", [4, 5, 255])
@pytest.mark.parametrize("function", ["checkpointOf", "demandOf", "layerStatus"])
def test_layer_that_does_not_exist_is_an_error_even_for_nobody(
    agent: Agent, stranger: Agent, function: str, layer: int
) -> None:
    for of in (agent.address, stranger.address):
        assert agent.registry.refusal(function, of, layer, sender=agent.address) == ("InvalidLayer", layer)


@pytest.mark.parametrize("layer", [4, 5, 255])
def test_layer_that_does_not_exist_has_no_commitment(registry: Contract, outsider: str, layer: int) -> None:
    words = (bytes(32),) * 3
    assert registry.refusal("computeLayerCommitment", layer, *words, sender=outsider) == (
        "InvalidLayer",
        layer,
    )


# What was set comes back


@pytest.mark.parametrize("value", [0, 1, 2**32 - 1, 2**32, 2**47, LATEST_TIME])
@pytest.mark.parametrize("member", ["due_window", "pulse_interval", 0, 1, 2, 3])
def test_policy_keeps_short_and_long_durations_apart(agent: Agent, member: str | int, value: int) -> None:
    policy = replace(POLICY, required_layers=0, policy_uri="ipfs://" + "long" * 20)
    if isinstance(member, str):
        policy = replace(policy, **{member: value})
    else:
        intervals = list(POLICY.max_interval)
        intervals[member] = value
        policy = replace(policy, max_interval=tuple(intervals))
    agent.registry.send("setPolicy", agent.address, policy, sender=agent.address)
    assert agent.registry.call("policyOf", agent.address, 2) == astuple(policy)
    assert agent.registry.call("policyOf", agent.address, 1) == astuple(POLICY)
    assert agent.requirements()["dueWindow"] == policy.due_window
    assert agent.requirements()["pulseInterval"] == policy.pulse_interval


@given(
    policy=st.builds(
        Policy,
        policy_hash=words,
        policy_uri=st.text(max_size=100),
        supported_layers=st.just(15),
        required_layers=st.integers(0, 15),
        allowed_triggers=st.integers(1, 15),
        disclosure=st.integers(0, 2),
        due_window=durations,
        pulse_interval=durations,
        max_interval=st.tuples(*[sound_durations] * 4),
    )
)
def test_policy_comes_back_as_it_was_set(agent: Agent, policy: Policy) -> None:
    agent.registry.send("setPolicy", agent.address, policy, sender=agent.address)
    version = agent.head()["policyVersion"]
    assert agent.registry.call("policyOf", agent.address, version) == astuple(policy)
    assert agent.requirements() == {
        "supportedLayers": 15,
        "requiredLayers": policy.required_layers,
        "dueWindow": policy.due_window,
        "pulseInterval": policy.pulse_interval,
        "maxInterval": tuple(
            policy.max_interval[layer] if policy.required_layers >> layer & 1 else 0 for layer in LAYERS
        ),
    }


@given(
    floor=st.builds(
        Floor,
        required_layers=st.integers(0, 15),
        pulse_interval=durations,
        max_interval=st.tuples(*[sound_durations] * 4),
    )
)
def test_floor_comes_back_as_it_was_set(controlled: Agent, controller: str, floor: Floor) -> None:
    controlled.registry.send("setFloor", controlled.address, floor, sender=controller)
    assert controlled.registry.call("floorOf", controlled.address) == astuple(floor)


def test_head_keeps_every_counter_apart(controlled: Agent, controller: str, outsider: str) -> None:
    """Each counter gets a value of its own, so that none can be mistaken for another."""
    enrolled_at = controlled.head()["enrolledAt"]
    for _ in range(2):
        controlled.set_policy()
    for _ in range(4):
        controlled.change(0)
    for _ in range(3):
        controlled.pulse()
    for _ in range(6):
        controlled.registry.send("setFloor", controlled.address, FLOOR, sender=controller)
    controlled.registry.send("setController", controlled.address, outsider, 6, sender=controller)
    now = controlled.clock.wait(100)
    controlled.pulse(next_planned_at=LATEST_TIME)
    assert controlled.head() == {
        "enrolled": True,
        "controller": outsider,
        "controllerRights": 6,
        "policyVersion": 3,
        "floorVersion": 6,
        "stateVersion": 5,
        "recordCount": 8,
        "root": controlled.root_at(5),
        "enrolledAt": enrolled_at,
        "lastSignalAt": now,
        "nextPlannedAt": LATEST_TIME,
    }


# Status


def test_never_completed_is_answered_whether_the_layer_is_required_or_not(agent: Agent) -> None:
    agent.set_policy(supported_layers=0b0111, required_layers=0b0001)
    agent.report(layer_mask=0b0010)
    answers = [agent.registry.call("layerStatus", agent.address, layer) for layer in LAYERS]
    unsupported, unscheduled, fresh = 1, 2, 3
    assert answers == [
        (fresh, agent.head()["enrolledAt"] + DAY, True),
        (unscheduled, 0, False),
        (unscheduled, 0, True),
        (unsupported, 0, True),
    ]


def test_signal_that_is_not_tracked_is_still_told(agent: Agent) -> None:
    agent.set_policy(pulse_interval=0)
    agent.clock.wait(100 * DAY)
    agent.pulse()
    last = agent.clock.now
    agent.clock.wait(100 * DAY)
    not_tracked = 1
    assert agent.signal() == (not_tracked, last, 0)


@given(
    interval=sound_durations,
    floor_interval=durations,
    due_window=durations,
    pulse_interval=durations,
    due_by=st.integers(2**40, LATEST_TIME),
    now=st.integers(2**41, LATEST_TIME),
)
def test_no_stored_duration_and_no_time_makes_a_status_revert(
    controlled: Agent,
    controller: str,
    interval: int,
    floor_interval: int,
    due_window: int,
    pulse_interval: int,
    due_by: int,
    now: int,
) -> None:
    registry, clock, begun = controlled.registry, controlled.clock, controlled.clock.now
    controlled.set_policy(max_interval=(interval,) * 4, due_window=due_window, pulse_interval=pulse_interval)
    floor = Floor(0b0011 if floor_interval else 0, floor_interval, (floor_interval,) * 4)
    registry.send("setFloor", controlled.address, floor, sender=controller)
    registry.send("demand", controlled.address, 0b0101, due_by, sender=controller)
    clock.now = now
    try:
        for layer in LAYERS:
            status, deadline, _ = registry.call("layerStatus", controlled.address, layer)
            assert (status == OVERDUE) == (now >= deadline)
        registry.call("signalStatus", controlled.address)
        registry.call("requirementsOf", controlled.address)
    finally:
        clock.now = begun


# Hashes


@given(commitments=st.tuples(words, words, words, words))
def test_root_is_the_tagged_hash_of_four_words(registry: Contract, commitments: tuple[bytes, ...]) -> None:
    assert registry.call("computeRoot", commitments) == compute_root(commitments)


@given(layer=st.integers(0, 3), schema_hash=words, content_hash=words, salt=words)
def test_layer_commitment_is_the_tagged_hash_of_its_parts(
    registry: Contract, layer: int, schema_hash: bytes, content_hash: bytes, salt: bytes
) -> None:
    computed = registry.call("computeLayerCommitment", layer, schema_hash, content_hash, salt)
    assert computed == compute_layer_commitment(layer, schema_hash, content_hash, salt)


# Storage, as a proof of it would be read


def test_storage_is_laid_out_as_documented(
    controlled: Agent, controller: str, outsider: str, deployed_registry: Any
) -> None:
    """headOf, checkpointOf and rootAt can be proven from these slots by whoever trusts a state root."""
    web3 = deployed_registry.provider.web3

    def slot_of(key: int, base: int) -> int:
        return int.from_bytes(keccak256(key.to_bytes(32, "big") + base.to_bytes(32, "big")), "big")

    def read(slot: int) -> int:
        return int.from_bytes(web3.eth.get_storage_at(deployed_registry.address, slot), "big")

    def field(word: int, offset: int, bits: int) -> int:
        return word >> offset & ((1 << bits) - 1)

    controlled.registry.send("setFloor", controlled.address, FLOOR, sender=controller)
    controlled.set_policy()
    controlled.report(post_commitments=controlled.changed(1, 2), layer_mask=0b1110, next_planned_at=77)
    head, base = controlled.head(), slot_of(int(controlled.address, 16), 0)
    counters, control = read(base), read(base + 1)
    assert head == {
        "enrolled": counters != 0,
        "controller": f"0x{field(control, 0, 160):040x}",
        "controllerRights": field(control, 160, 8),
        "policyVersion": field(counters, 0, 32),
        "floorVersion": field(control, 168, 32),
        "stateVersion": field(counters, 32, 64),
        "recordCount": field(counters, 96, 64),
        "root": read(slot_of(field(counters, 32, 64), base + 12)).to_bytes(32, "big"),
        "enrolledAt": field(read(slot_of(1, base + 13)), 16, 48),
        "lastSignalAt": field(counters, 160, 48),
        "nextPlannedAt": field(counters, 208, 48),
    }
    for layer in LAYERS:
        completion = field(read(base + 4 + layer // 2 * 2), layer % 2 * 128, 128)
        assert controlled.checkpoint(layer) == {
            "commitment": read(base + 8 + layer).to_bytes(32, "big"),
            "lastCompletedAt": field(completion, 0, 48),
            "lastCompletedRecordedAt": field(completion, 48, 48),
            "completedUnderPolicy": field(completion, 96, 32),
            "lastChangedVersion": field(read(base + 3), layer * 64, 64) or 1,
        }
    assert read(slot_of(1, base + 12)).to_bytes(32, "big") == controlled.root_at(1)
    assert head["controllerRights"] == ALL_RIGHTS
