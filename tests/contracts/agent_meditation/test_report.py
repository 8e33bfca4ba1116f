"""report: one cycle, checked in the order of the text, then registered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from web3 import Web3

from meditation_chain import type_of
from meditation_examples import ALL, ALL_PERMISSIONS, BASELINE, DAY, HOUR, Agent, a_commitment
from models.meditation import (
    ABORTED,
    COMPLETED,
    FAILED,
    LAYERS,
    PARTIAL,
    PERM_POLICY,
    PERM_PULSE,
    PERM_REPORT,
    CycleReport,
    compute_root,
    keccak256,
)

UNKNOWN_ROOT = a_commitment("a root that never was")
EVERY_PAIR_OF_MASKS = [(scope, completed) for scope in range(16) for completed in range(16)]


# What is registered


def test_report_registers_what_changed_and_what_was_completed(agent: Agent) -> None:
    now = agent.clock.now
    post = agent.changed(0, 2)
    agent.report(
        post_commitments=post,
        completed_layers=0b0110,
        outcome=PARTIAL,
        reported_started_at=now - 20,
        reported_ended_at=now - 10,
        next_planned_at=now + DAY,
    )
    assert (
        agent.head()
        | {
            "stateVersion": 2,
            "root": compute_root(post),
            "recordCount": 1,
            "lastSignalAt": now,
            "nextPlannedAt": now + DAY,
        }
        == agent.head()
    )
    expected = [(post[0], 0, 0, 0, 2), (post[1], now - 10, now, 1, 1), (post[2], now - 10, now, 1, 2)]
    assert [agent.registry.call("checkpointOf", agent.address, layer) for layer in LAYERS] == [
        *expected,
        (post[3], 0, 0, 0, 1),
    ]


@pytest.mark.parametrize("changed", range(16))
def test_every_set_of_layers_can_change(agent: Agent, changed: int) -> None:
    layers = [layer for layer in LAYERS if changed >> layer & 1]
    before, post = agent.commitments(), agent.changed(*layers)
    events = agent.report(post_commitments=post)
    version = 2 if changed else 1
    recorded = events[0][1]
    assert (recorded["changedLayers"], recorded["baseVersion"], recorded["newVersion"]) == (
        changed,
        1,
        version,
    )
    assert events[1:] == [
        (
            "LayerCommitmentChanged",
            {
                "subject": agent.address,
                "layer": layer,
                "version": version,
                "previousCommitment": before[layer],
                "newCommitment": post[layer],
            },
        )
        for layer in layers
    ]
    assert agent.commitments() == post
    assert [agent.checkpoint(layer)["lastChangedVersion"] for layer in LAYERS] == [
        2 if layer in layers else 1 for layer in LAYERS
    ]
    assert (agent.root_at(1), agent.root_at(2)) == (
        compute_root(before),
        compute_root(post) if changed else bytes(32),
    )


@pytest.mark.parametrize("completed", range(1, 16))
def test_every_set_of_layers_can_be_completed(agent: Agent, completed: int) -> None:
    now = agent.clock.now
    agent.report(layer_mask=completed)
    for layer in LAYERS:
        expected = (now, now, 1) if completed >> layer & 1 else (0, 0, 0)
        assert agent.registry.call("checkpointOf", agent.address, layer)[1:4] == expected


@pytest.mark.parametrize("second", range(1, 16))
def test_completing_some_layers_leaves_the_others_as_they_were(agent: Agent, second: int) -> None:
    first_at = agent.clock.now
    agent.report()
    agent.set_policy()
    second_at = agent.clock.wait(HOUR)
    agent.report(layer_mask=second)
    for layer in LAYERS:
        expected = (second_at, second_at, 2) if second >> layer & 1 else (first_at, first_at, 1)
        assert agent.registry.call("checkpointOf", agent.address, layer)[1:4] == expected


def test_cycle_that_changes_nothing_advances_no_version(agent: Agent) -> None:
    agent.report()
    assert (agent.head()["stateVersion"], agent.head()["recordCount"]) == (1, 1)
    assert agent.root_at(2) == bytes(32)


def test_failed_cycle_may_still_change_what_it_had_in_scope(agent: Agent) -> None:
    post = agent.changed(1)
    agent.report(layer_mask=0b0010, completed_layers=0, outcome=FAILED, post_commitments=post)
    checkpoint = agent.checkpoint(1)
    assert (checkpoint["commitment"], checkpoint["lastCompletedAt"]) == (post[1], 0)
    assert agent.head()["stateVersion"] == 2


def test_record_without_completions_may_be_registered_twice(agent: Agent) -> None:
    cycle = agent.cycle(completed_layers=0, outcome=FAILED)
    for sequence in (1, 2):
        events = agent.registry.send("report", agent.address, cycle, sender=agent.address)
        assert events[0][1]["seq"] == sequence


def test_report_returns_the_count_that_it_makes(agent: Agent) -> None:
    assert agent.registry.call("report", agent.address, agent.cycle(), sender=agent.address) == 1
    agent.pulse()
    assert agent.registry.call("report", agent.address, agent.cycle(), sender=agent.address) == 2


def test_layer_may_be_committed_to_nothing(agent: Agent) -> None:
    zeros = (bytes(32),) * 4
    events = agent.report(post_commitments=zeros, record_hash=bytes(32))
    assert events[0][1]["changedLayers"] == 0b1111
    assert agent.commitments() == zeros
    assert agent.head()["root"] == compute_root(zeros)
    agent.clock.wait(1)
    back = agent.report(post_commitments=BASELINE, restores_version=1)
    assert back[0][1]["newVersion"] == 3


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 4096, 9001])
def test_report_keeps_a_locator_of_any_length_in_its_event(agent: Agent, length: int) -> None:
    uri = ("ipfs://" + "é" * length)[:length]
    event = agent.report(record_uri=uri, record_hash=a_commitment("record"))[0][1]
    assert event["report"][13:] == (a_commitment("record"), uri)


def test_every_trigger_that_the_policy_allows_is_accepted(agent: Agent) -> None:
    for trigger in range(4):
        agent.clock.wait(1)
        assert agent.report(trigger=trigger)[0][1]["report"][7] == trigger


def test_versions_and_roots_grow_with_every_change(agent: Agent) -> None:
    roots = [agent.root_at(1)]
    for layer in (0, 1, 0, 3):
        agent.change(layer)
        roots.append(compute_root(agent.commitments()))
    assert [agent.root_at(version) for version in range(1, 6)] == roots
    assert [agent.checkpoint(layer)["lastChangedVersion"] for layer in LAYERS] == [4, 3, 1, 5]


# Who may call


@pytest.mark.parametrize("permissions", range(8))
def test_report_is_open_to_operators_for_reports(agent: Agent, operator: str, permissions: int) -> None:
    agent.grant(operator, permissions)
    if permissions & PERM_REPORT:
        event = agent.report(by=operator)[0][1]
        assert (event["subject"], event["submitter"]) == (agent.address, operator)
    else:
        assert agent.report_refusal(by=operator) == ("MissingPermission", PERM_REPORT, permissions)


@pytest.mark.parametrize("permissions", [0, PERM_PULSE | PERM_POLICY, ALL_PERMISSIONS])
def test_report_refuses_the_controller_whatever_it_was_granted(
    controlled: Agent, controller: str, permissions: int
) -> None:
    controlled.grant(controller, permissions)
    assert controlled.report_refusal(by=controller) == ("ControllerCannotSubmit", controller)


def test_report_refuses_an_operator_from_the_moment_it_becomes_controller(agent: Agent, operator: str) -> None:
    agent.grant(operator, PERM_REPORT)
    agent.report(by=operator)
    agent.registry.send("setController", agent.address, operator, 0, sender=agent.address)
    agent.clock.wait(1)
    assert agent.report_refusal(by=operator) == ("ControllerCannotSubmit", operator)


def test_operator_of_one_subject_reports_for_no_other(agent: Agent, stranger: Agent, operator: str) -> None:
    stranger.enroll().grant(operator, PERM_REPORT)
    assert agent.report_refusal(by=operator) == ("MissingPermission", PERM_REPORT, 0)


def test_report_refuses_an_unknown_subject(agent: Agent, stranger: Agent) -> None:
    refusal = agent.registry.refusal("report", stranger.address, agent.cycle(), sender=stranger.address)
    assert refusal == ("NotEnrolled", stranger.address)


# Scope and outcome


def by_the_rules(scope: int, completed: int, outcome: int) -> str | None:
    """The error that a scope, what was completed of it and an outcome deserve; None if they agree."""
    if scope == 0:
        return "InvalidLayerMask"
    if completed & ~scope:
        return "CompletedOutsideScope"
    everything, something = completed == scope, completed != 0
    agrees = {
        COMPLETED: everything,
        PARTIAL: something and not everything,
        ABORTED: not everything,
        FAILED: not something,
    }
    return None if agrees[outcome] else "InconsistentOutcome"


@pytest.mark.parametrize("outcome", [COMPLETED, PARTIAL, ABORTED, FAILED])
def test_every_scope_completion_and_outcome_is_judged_by_the_rules(agent: Agent, outcome: int) -> None:
    cycle = agent.cycle(outcome=outcome)
    judged = {"accepted": 0, "refused": 0}
    for scope, completed in EVERY_PAIR_OF_MASKS:
        report = replace(cycle, layer_mask=scope, completed_layers=completed)
        expected = by_the_rules(scope, completed, outcome)
        if expected is None:
            assert agent.registry.call("report", agent.address, report, sender=agent.address) == 1
            judged["accepted"] += 1
        else:
            refusal = agent.registry.refusal("report", agent.address, report, sender=agent.address)
            assert refusal[0] == expected, (scope, completed, outcome)
            judged["refused"] += 1
    # Of the 80 pairs with a scope and nothing completed outside it, 15 complete all of it and 15 none.
    assert judged["accepted"] == {COMPLETED: 15, PARTIAL: 50, ABORTED: 65, FAILED: 15}[outcome]


@pytest.mark.parametrize("mask", [0, 0x10, 0x1F, 0x80, 0xFF])
def test_report_refuses_a_scope_without_layers_or_beyond_them(agent: Agent, mask: int) -> None:
    assert agent.report_refusal(layer_mask=mask, completed_layers=0) == ("InvalidLayerMask", mask)


@pytest.mark.parametrize(("scope", "completed"), [(0b0001, 0b0010), (0b0111, 0b1111), (0b1111, 0x1F), (1, 0x80)])
def test_report_refuses_completions_out_of_scope(agent: Agent, scope: int, completed: int) -> None:
    refusal = agent.report_refusal(layer_mask=scope, completed_layers=completed)
    assert refusal == ("CompletedOutsideScope", scope, completed)


@pytest.mark.parametrize("scope", range(1, 16))
def test_report_judges_every_single_operation_by_the_scope(agent: Agent, scope: int) -> None:
    for bit in range(16):
        cycle = agent.cycle(layer_mask=scope, ops_mask=1 << bit)
        if scope >> (bit // 4) & 1:
            assert agent.registry.call("report", agent.address, cycle, sender=agent.address) == 1
        else:
            refusal = agent.registry.refusal("report", agent.address, cycle, sender=agent.address)
            assert refusal == ("OpsOutsideScope", scope, 1 << bit)


def test_all_operations_of_the_scope_may_be_done_at_once(agent: Agent) -> None:
    for scope in range(1, 16):
        ops = sum(0x0F << 4 * layer for layer in LAYERS if scope >> layer & 1)
        cycle = agent.cycle(layer_mask=scope, ops_mask=ops)
        assert agent.registry.call("report", agent.address, cycle, sender=agent.address) == 1


@pytest.mark.parametrize("outcome", [4, 5, 255])
def test_report_refuses_an_outcome_that_does_not_exist(agent: Agent, outcome: int) -> None:
    for completed in (0, 0b0001, ALL):
        refusal = agent.report_refusal(completed_layers=completed, outcome=outcome)
        assert refusal == ("InconsistentOutcome", outcome, ALL, completed)


# The governing policy


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_report_refuses_a_policy_version_that_does_not_exist(agent: Agent, version: int) -> None:
    assert agent.report_refusal(policy_version=version) == ("UnknownPolicyVersion", 1, version)


def test_layers_in_scope_have_to_be_supported_by_the_governing_policy(agent: Agent) -> None:
    agent.set_policy(supported_layers=0b0101, required_layers=0)
    agent.clock.wait(1)
    assert agent.report_refusal() == ("LayersNotSupported", 0b0101, ALL)
    assert agent.report_refusal(layer_mask=0b0010) == ("LayersNotSupported", 0b0101, 0b0010)
    agent.report(layer_mask=0b0101)


@pytest.mark.parametrize("allowed", range(1, 16))
def test_trigger_has_to_be_allowed_by_the_governing_policy(agent: Agent, allowed: int) -> None:
    agent.set_policy(allowed_triggers=allowed)
    for trigger in range(4):
        cycle = agent.cycle(trigger=trigger)
        if allowed >> trigger & 1:
            assert agent.registry.call("report", agent.address, cycle, sender=agent.address) == 1
        else:
            refusal = agent.registry.refusal("report", agent.address, cycle, sender=agent.address)
            assert refusal == ("TriggerNotAllowed", allowed, trigger)


@pytest.mark.parametrize("trigger", [4, 8, 255])
def test_report_refuses_a_trigger_that_does_not_exist(agent: Agent, trigger: int) -> None:
    assert agent.report_refusal(trigger=trigger) == ("TriggerNotAllowed", ALL, trigger)


def test_cycle_is_judged_by_the_policy_of_its_start_not_by_the_current_one(agent: Agent) -> None:
    started_at = agent.clock.now
    agent.clock.wait(60)
    agent.set_policy(supported_layers=0b0001, required_layers=0b0001, allowed_triggers=0b1000)
    agent.clock.wait(60)
    agent.report(policy_version=1, trigger=0, reported_started_at=started_at)
    assert agent.checkpoint(3)["completedUnderPolicy"] == 1


# Linkage and scope of change


@pytest.mark.parametrize("base_version", [0, 2, 2**64 - 1])
def test_report_refuses_another_base_version(agent: Agent, base_version: int) -> None:
    assert agent.report_refusal(base_version=base_version) == ("BadBaseVersion", 1, base_version)


@pytest.mark.parametrize("pre_root", [bytes(32), UNKNOWN_ROOT])
def test_report_refuses_another_root(agent: Agent, pre_root: bytes) -> None:
    assert agent.report_refusal(pre_root=pre_root) == ("BadPreRoot", compute_root(BASELINE), pre_root)


@pytest.mark.parametrize("scope", range(1, 15))
def test_report_refuses_a_change_out_of_scope_and_names_the_lowest_layer(agent: Agent, scope: int) -> None:
    outside = [layer for layer in LAYERS if not scope >> layer & 1]
    post = agent.changed(*LAYERS)
    refusal = agent.report_refusal(layer_mask=scope, post_commitments=post)
    assert refusal == ("UnscopedLayerChanged", outside[0], BASELINE[outside[0]], post[outside[0]])
    post = agent.changed(outside[-1])
    refusal = agent.report_refusal(layer_mask=scope, post_commitments=post)
    assert refusal == ("UnscopedLayerChanged", outside[-1], BASELINE[outside[-1]], post[outside[-1]])


def test_swapped_commitments_are_a_change(agent: Agent) -> None:
    swapped = (BASELINE[1], BASELINE[0], BASELINE[2], BASELINE[3])
    assert agent.report(post_commitments=swapped)[0][1]["changedLayers"] == 0b0011


# Restore


def test_restore_of_an_earlier_version_is_a_new_version(agent: Agent) -> None:
    agent.change(0)
    agent.change(1, 2)
    events = agent.report(post_commitments=BASELINE, restores_version=1)
    assert (events[0][1]["newVersion"], events[0][1]["changedLayers"]) == (4, 0b0111)
    assert agent.root_at(4) == agent.root_at(1)
    assert agent.root_at(3) != agent.root_at(1)


@pytest.mark.parametrize("version", [2, 3, 2**64 - 1])
def test_report_refuses_to_restore_the_current_version_or_a_later_one(agent: Agent, version: int) -> None:
    agent.change(0)
    refusal = agent.report_refusal(restores_version=version)
    assert refusal == ("BadRestoresVersion", 2, version)


def test_report_refuses_a_restore_with_other_commitments(agent: Agent) -> None:
    agent.change(0)
    agent.change(1)
    refusal = agent.report_refusal(restores_version=1)
    assert refusal == ("BadRestoredRoot", agent.root_at(1), agent.root_at(3))


def test_restore_that_changes_nothing_is_accepted(agent: Agent) -> None:
    agent.change(0)
    agent.report(post_commitments=BASELINE, restores_version=1)
    agent.clock.wait(1)
    events = agent.report(restores_version=1)
    assert (events[0][1]["newVersion"], events[0][1]["changedLayers"]) == (3, 0)


# The order of the rules


def test_report_refuses_for_the_first_reason_in_the_order_of_the_text(
    controlled: Agent, controller: str, outsider: str
) -> None:
    """A cycle against every rule, repaired one rule at a time: each repair shows the next rule's error."""
    agent = controlled
    agent.report(layer_mask=0b0001)
    completed_at = agent.clock.now
    agent.change(0)
    second = agent.clock.wait(HOUR)
    agent.set_policy(supported_layers=0b0111, required_layers=0, allowed_triggers=0b0010)
    third = agent.clock.wait(HOUR)
    agent.set_policy(supported_layers=0b0111, required_layers=0, allowed_triggers=0b0010)
    now = agent.clock.wait(HOUR)
    caller = controller
    cycle = CycleReport(
        base_version=9,
        pre_root=UNKNOWN_ROOT,
        post_commitments=agent.changed(0, 1),
        layer_mask=0,
        completed_layers=0b10000,
        ops_mask=0xF000,
        outcome=9,
        trigger=9,
        policy_version=9,
        reported_started_at=second - 1,
        reported_ended_at=second - 2,
        restores_version=9,
    )
    repairs: list[tuple[str, dict[str, Any] | str]] = [
        ("ControllerCannotSubmit", outsider),
        ("MissingPermission", agent.address),
        ("InvalidLayerMask", {"layer_mask": 0b1001, "ops_mask": 0x0F00}),
        ("CompletedOutsideScope", {"completed_layers": 0b0001}),
        ("OpsOutsideScope", {"ops_mask": 0}),
        ("InconsistentOutcome", {"outcome": PARTIAL}),
        ("UnknownPolicyVersion", {"policy_version": 2}),
        ("PolicyNotYetEffective", {"reported_started_at": third}),
        ("PolicySuperseded", {"policy_version": 3, "reported_started_at": now + 2}),
        ("LayersNotSupported", {"layer_mask": 0b0001, "outcome": COMPLETED}),
        ("TriggerNotAllowed", {"trigger": 1}),
        ("BadBaseVersion", {"base_version": 2}),
        ("BadPreRoot", {"pre_root": agent.root_at(2)}),
        ("UnscopedLayerChanged", {"post_commitments": agent.changed(0)}),
        ("EndedBeforeStarted", {"reported_ended_at": now + 3}),
        ("EndedInFuture", {"policy_version": 1, "trigger": 0, "reported_started_at": completed_at}),
        ("EndedInFuture", {"reported_ended_at": completed_at}),
        ("CompletionNotLater", {"reported_ended_at": completed_at + 1}),
        ("BadRestoresVersion", {"restores_version": 1}),
        ("BadRestoredRoot", {"post_commitments": BASELINE}),
    ]
    for error, repair in repairs:
        assert agent.registry.refusal("report", agent.address, cycle, sender=caller)[0] == error
        if isinstance(repair, str):
            caller = repair
        else:
            cycle = replace(cycle, **repair)
    assert agent.registry.send("report", agent.address, cycle, sender=caller)[0][1]["newVersion"] == 3


# Its event


def test_cycle_recorded_is_decoded_from_the_abi_alone(agent: Agent, deployed_registry: Any) -> None:
    """The event holds a struct: its topic is that of the expanded tuple, not of the word tuple."""
    cycle = agent.cycle(post_commitments=agent.changed(3), record_uri="ipfs://record", ops_mask=0x9000)
    log = agent.registry.transact("report", agent.address, cycle, sender=agent.address)["logs"][0]

    expanded = (
        "CycleRecorded(address,uint64,uint64,uint64,(uint64,bytes32,bytes32[4],uint8,uint8,uint16,uint8,uint8,"
        "uint32,uint48,uint48,uint48,uint64,bytes32,string),uint8,uint48,address)"
    )
    naive = "CycleRecorded(address,uint64,uint64,uint64,tuple,uint8,uint48,address)"
    topic = bytes.fromhex(log["topics"][0][2:])
    assert topic == keccak256(expanded.encode())
    assert topic != keccak256(naive.encode())

    entry = agent.registry.events[topic]
    assert [member["type"] for member in entry["inputs"]].count("tuple") == 1
    assert (
        type_of(entry["inputs"][4]) == expanded[expanded.index("(uint64,bytes32") : expanded.rindex(",uint8,uint48,")]
    )

    _, values = agent.registry.read_event(log)
    by_name = dict(zip([m["name"] for m in entry["inputs"][4]["components"]], values["report"], strict=True))
    assert (by_name["baseVersion"], by_name["opsMask"], by_name["recordURI"]) == (1, 0x9000, "ipfs://record")
    assert by_name["postCommitments"] == cycle.post_commitments


def test_cycle_recorded_is_decoded_alike_by_another_library(agent: Agent, deployed_registry: Any) -> None:
    web3: Web3 = deployed_registry.provider.web3
    abi = [entry.model_dump() for entry in deployed_registry.contract_type.abi]
    cycle = agent.cycle(post_commitments=agent.changed(0), record_uri="ipfs://record")
    receipt = agent.registry.transact("report", agent.address, cycle, sender=agent.address)
    contract = web3.eth.contract(address=deployed_registry.address, abi=abi)
    log = web3.eth.get_transaction_receipt(receipt["transactionHash"])["logs"][0]
    theirs = contract.events.CycleRecorded().process_log(log)["args"]
    _, ours = agent.registry.read_event(receipt["logs"][0])
    assert theirs["subject"].lower() == ours["subject"]
    assert tuple(theirs["report"]["postCommitments"]) == ours["report"][2]
    assert theirs["report"]["recordURI"] == "ipfs://record"
    assert (theirs["seq"], theirs["newVersion"], theirs["changedLayers"]) == (1, 2, 1)
