"""The worked example of the specification, at its own timestamps, with its own figures."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import pytest

from meditation_chain import Contract
from meditation_examples import Agent
from models.meditation import LAYERS, NOBODY, CycleReport, Event, Policy, keccak256


def word(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


#: By layer: schema hash, then content hash, salt and commitment before and after the cycle.
SCHEMA_HASHES = [
    word("0x6a00023d50bfe315bf6650953a4bb81910aef335c63ee465d2f52937b860790b"),
    word("0x2862ecb7722af301f96bf7b7127d96568563c9c6cd281308f315e97b433d2055"),
    word("0x739b5fc9aa474200ce364ed1db095acd99a4407eb27e258f294f3e65ffff40ad"),
    word("0x086a5b8a0101b4013c63de2d7392ddb4ae22c61e33afd0eaef58387952c1f468"),
]
SCHEMAS = [
    "amm.layer.runtime/1",
    "amm.layer.memory-skills/1",
    "amm.layer.tasks-roles/1",
    "amm.layer.cognition/1",
]
NO_SALT = bytes(32)
COGNITION_CONTENT = word("0xc6e5d3da30fc9d27be29773df620dbed9a359d6bba795d93bafcdb5963e9ede8")
COGNITION_SALT = word("0x4d7a0c3f6b9e2d5a8c1f4b7e0a3d6c9f2b5e8a1d4c7f0b3e6a9d2c5f8b1e4a7d")
COGNITION = word("0xbe9a1abba6f84ec051c3eb91bb19e2d3504d773da883b94aece5ee9e37c79e8e")
BEFORE = [
    (
        word("0xa25eae406d69cd3802dbb588487f486e5b5e006b7ef521303ea24406979a4731"),
        NO_SALT,
        word("0x053bdcecda479dd30b5bfd7a02661df67b79e978fea6888245df8aa167d6d282"),
    ),
    (
        word("0xf3640f14c472bf43b5e89ea5a0a7d1e3681f47c81a7cf1a0d3f41cc685ed1701"),
        word("0x9b1e4c7a2d5f8b0c3e6a9d1f4b7e0a3c6f9b2e5d8a1c4f7b0e3a6d9c2f5b8e1a"),
        word("0x3a8a0162793df87f7094634e37d9e5d3d8470bd43cc7fee5669f609d922ee9c3"),
    ),
    (
        word("0x1cefdfbcd841dc162bea189aa25d1e3e2a031d5805901a407db4003706cafdd5"),
        NO_SALT,
        word("0x3d3356ae1bc86136718f1ecd7f42d8a0570db2d21116c886cab291a789010585"),
    ),
    (COGNITION_CONTENT, COGNITION_SALT, COGNITION),
]
AFTER = [
    (
        word("0xacd47bc6d2511898088ea3f2b561707ff0f23f434385f4fee7fd53991e50b881"),
        NO_SALT,
        word("0xb5a33b6d3732e664a08a19ed068432a6ab1085bf7013b3ffce1ff88ec7dd8519"),
    ),
    (
        word("0x205d5acb2bec31ae30aeaad85e5761ff592b1d50011138dc0d5cd2f38fcfb607"),
        word("0xc3f6a9d2e5b8c1f4a7d0e3b6c9f2a5d8e1b4c7f0a3d6e9b2c5f8a1d4e7b0c3f6"),
        word("0xd24fedfca7a64b7596414751a6d4a1ed7a89bf906bce4b453453a7b086d26641"),
    ),
    (
        word("0x8c008b3acd189eea792a1c56b70020fef36a2ed9bb75cfa07944bfdeac6115cd"),
        NO_SALT,
        word("0x8f03de4a144d8d453c84d2d4546fb0f01af23bd6f7ba31d18dac0c6dd1a942f0"),
    ),
    (COGNITION_CONTENT, COGNITION_SALT, COGNITION),
]
PRE_COMMITMENTS = tuple(commitment for _, _, commitment in BEFORE)
POST_COMMITMENTS = tuple(commitment for _, _, commitment in AFTER)
PRE_ROOT = word("0x090e63d66e6cdb08331fece350bd0320551287d53d6644d5af158b04d94d149f")
POST_ROOT = word("0x9918ebff7f3bc97ca08580033da3aa99b27871d8d57b2b8c9845221fa3dec3de")

POLICY = Policy(
    policy_hash=word("0x5dfdd440a0eced1f62839fa0281f21cadacfa0f527642ea586b5f5c1ce5e41d9"),
    supported_layers=0x0F,
    required_layers=0x0F,
    allowed_triggers=0x0F,
    disclosure=1,
    due_window=3600,
    pulse_interval=21600,
    max_interval=(86400, 604800, 2592000, 7776000),
)
STARTED_AT, ENDED_AT, NEXT_PLANNED_AT = 1762653600, 1762654500, 1762740000
ENROLLED_AT, RECORDED_AT = STARTED_AT - 3600, ENDED_AT + 12
REPORT = CycleReport(
    base_version=1,
    pre_root=PRE_ROOT,
    post_commitments=POST_COMMITMENTS,
    layer_mask=0x0F,
    completed_layers=0x0F,
    ops_mask=0x0456,
    outcome=0,
    trigger=1,
    policy_version=1,
    reported_started_at=STARTED_AT,
    reported_ended_at=ENDED_AT,
    next_planned_at=NEXT_PLANNED_AT,
    restores_version=0,
    record_hash=word("0xdcbc7047b5bf0d600b98d7829fc37757bdac9406ec992128cc90e910e9645088"),
)


@pytest.fixture
def example(registry: Contract, subject: str) -> Agent:
    """The example's subject, enrolled an hour before its cycle starts."""
    registry.clock.start_at(ENROLLED_AT - 60)
    registry.clock.wait_until(ENROLLED_AT)
    registry.send("enroll", PRE_COMMITMENTS, POLICY, NOBODY, 0, sender=subject)
    return Agent(registry, subject)


@pytest.fixture
def reported(example: Agent) -> list[Event]:
    """The events of the example's cycle."""
    example.clock.wait_until(RECORDED_AT)
    return example.registry.send("report", example.address, REPORT, sender=example.address)


@pytest.mark.parametrize("layer", LAYERS)
def test_schema_hash_is_that_of_the_schema_identifier(registry: Contract, layer: int) -> None:
    assert keccak256(SCHEMAS[layer].encode()) == SCHEMA_HASHES[layer]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("documents", [BEFORE, AFTER], ids=["before", "after"])
def test_layer_commitment_equals_the_table(
    registry: Contract, documents: list[tuple[bytes, bytes, bytes]], layer: int
) -> None:
    content_hash, salt, commitment = documents[layer]
    computed = registry.call("computeLayerCommitment", layer, SCHEMA_HASHES[layer], content_hash, salt)
    assert computed == commitment


def test_roots_equal_the_table(registry: Contract) -> None:
    assert registry.call("computeRoot", PRE_COMMITMENTS) == PRE_ROOT
    assert registry.call("computeRoot", POST_COMMITMENTS) == POST_ROOT


def test_enrollment_registers_the_pre_state(example: Agent) -> None:
    head = example.head()
    assert (head["stateVersion"], head["root"], head["enrolledAt"]) == (1, PRE_ROOT, ENROLLED_AT)
    assert example.commitments() == PRE_COMMITMENTS
    assert example.registry.call("policyOf", example.address, 1) == astuple(POLICY)


def test_state_version_becomes_two_with_the_post_root(example: Agent, reported: list[Event]) -> None:
    head = example.head()
    assert (head["stateVersion"], head["root"]) == (2, POST_ROOT)
    assert example.root_at(1) == PRE_ROOT
    assert example.root_at(2) == POST_ROOT


def test_every_layer_is_completed_when_the_cycle_ended(example: Agent, reported: list[Event]) -> None:
    for layer in LAYERS:
        checkpoint = example.checkpoint(layer)
        assert checkpoint["lastCompletedAt"] == ENDED_AT
        assert checkpoint["lastCompletedRecordedAt"] == RECORDED_AT
        assert checkpoint["completedUnderPolicy"] == 1


def test_only_cognition_keeps_its_version(example: Agent, reported: list[Event]) -> None:
    assert [example.checkpoint(layer)["lastChangedVersion"] for layer in LAYERS] == [2, 2, 2, 1]
    assert example.commitments() == POST_COMMITMENTS


def test_record_counts_as_a_signal_with_its_plan(example: Agent, reported: list[Event]) -> None:
    head = example.head()
    assert (head["recordCount"], head["lastSignalAt"], head["nextPlannedAt"]) == (
        1,
        RECORDED_AT,
        NEXT_PLANNED_AT,
    )


def test_deadlines_follow_the_end_of_the_cycle(example: Agent, reported: list[Event]) -> None:
    assert example.deadlines() == [ENDED_AT + interval for interval in POLICY.max_interval]


def test_events_tell_the_whole_cycle(example: Agent, reported: list[Event]) -> None:
    def changed(layer: int) -> dict[str, Any]:
        return {
            "subject": example.address,
            "layer": layer,
            "version": 2,
            "previousCommitment": PRE_COMMITMENTS[layer],
            "newCommitment": POST_COMMITMENTS[layer],
        }

    recorded = {
        "subject": example.address,
        "seq": 1,
        "baseVersion": 1,
        "newVersion": 2,
        "report": astuple(REPORT),
        "changedLayers": 0x07,
        "recordedAt": RECORDED_AT,
        "submitter": example.address,
    }
    assert reported == [
        ("CycleRecorded", recorded),
        ("LayerCommitmentChanged", changed(0)),
        ("LayerCommitmentChanged", changed(1)),
        ("LayerCommitmentChanged", changed(2)),
    ]


def test_example_cannot_be_reported_twice(example: Agent, reported: list[Event]) -> None:
    refusal = example.registry.refusal("report", example.address, REPORT, sender=example.address)
    assert refusal == ("BadBaseVersion", 2, 1)
    again = replace(REPORT, base_version=2, pre_root=POST_ROOT)
    refusal = example.registry.refusal("report", example.address, again, sender=example.address)
    assert refusal == ("CompletionNotLater", 0, ENDED_AT, ENDED_AT)
