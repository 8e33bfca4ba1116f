from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import (
    BadBaseVersion,
    BadPreRoot,
    BadRestoredRoot,
    BadRestoresVersion,
    CompletedOutsideScope,
    CompletionNotLater,
    ContractError,
    EndedBeforeStarted,
    EndedInFuture,
    InconsistentOutcome,
    InvalidInput,
    InvalidLayer,
    InvalidLayerMask,
    LayersNotSupported,
    OpsOutsideScope,
    PolicyNotYetEffective,
    PolicySuperseded,
    TriggerNotAllowed,
    UnknownPolicyVersion,
    UnscopedLayerChanged,
)
from melete.meditation.cycle import (
    BITS,
    CycleReport,
    Operation,
    Outcome,
    SubjectState,
    Trigger,
    check_report,
    compute_changed_layers,
    compute_ops_mask,
    derive_outcome,
)
from melete.meditation.layers import Layer, compute_root
from melete.meditation.policy import Policy
from melete.primitives import ZERO_BYTES32, Bytes32

NOW = 10_000
A, B, C, D, X = (Bytes32(bytes([number]) * 32) for number in (0xA, 0xB, 0xC, 0xD, 0xEE))
BEFORE, AFTER = (A, B, C, D), (X, B, C, D)
WIDE = Policy(15, 0, 15)
#: Layers 0, 1 and 3; every trigger but EVENT.
NARROW = Policy(11, 0, 13)
#: At state version 3, under three policies; layers 1 and 2 were completed before.
STATE = SubjectState(
    state_version=3,
    commitments=BEFORE,
    last_completed_at=(0, 5000, 7000, 0),
    policies=((WIDE, 1000), (NARROW, 4000), (WIDE, 8000)),
    roots={1: compute_root(AFTER), 2: compute_root((A, A, A, A)), 3: compute_root(BEFORE)},
)
REPORT = CycleReport(
    base_version=3,
    pre_root=compute_root(BEFORE),
    post_commitments=AFTER,
    layer_mask=0b1001,
    completed_layers=0b1001,
    ops_mask=0xF00F,
    outcome=Outcome.COMPLETED,
    trigger=Trigger.EVENT,
    policy_version=3,
    reported_started_at=8500,
    reported_ended_at=9000,
)


def check(now: int = NOW, state: SubjectState = STATE, **changes: Any) -> int:
    return check_report(state, replace(REPORT, **changes), now)


def refusal(now: int = NOW, **changes: Any) -> tuple[type[ContractError], tuple[Any, ...]]:
    """The error of a report, and its values in order."""
    with pytest.raises(ContractError) as caught:
        check(now, **changes)
    return type(caught.value), tuple(vars(caught.value).values())


def test_report_that_follows_every_rule_tells_which_layers_it_changes() -> None:
    assert check() == 0b0001
    assert check(post_commitments=(X, B, C, X)) == 0b1001
    assert check(post_commitments=BEFORE) == 0


# Scope and outcome


@pytest.mark.parametrize("mask", [0, 16, 0b11001, 128, 255])
def test_scope_names_a_layer_and_none_that_does_not_exist(mask: int) -> None:
    assert refusal(layer_mask=mask) == (InvalidLayerMask, (mask,))


@pytest.mark.parametrize("completed", [0b0010, 0b1011, 0b11001])
def test_completed_layers_lie_within_the_scope(completed: int) -> None:
    assert refusal(completed_layers=completed) == (CompletedOutsideScope, (0b1001, completed))


@pytest.mark.parametrize("ops", [0x0010, 0x0080, 0x0100, 0x0800, 0xFFFF])
def test_operations_lie_within_the_scope(ops: int) -> None:
    assert refusal(ops_mask=ops) == (OpsOutsideScope, (0b1001, ops))


@pytest.mark.parametrize("ops", [0, 0x0001, 0x0008, 0x1000, 0x8000])
def test_operations_on_layers_in_scope_are_free(ops: int) -> None:
    assert check(ops_mask=ops) == 1


SOME, ALL, NONE = 0b0001, 0b1001, 0


@pytest.mark.parametrize(
    ("outcome", "fitting"),
    [
        (Outcome.COMPLETED, {ALL}),
        (Outcome.PARTIAL, {SOME}),
        (Outcome.ABORTED, {SOME, NONE}),
        (Outcome.FAILED, {NONE}),
        (4, set()),
        (255, set()),
    ],
)
def test_outcome_agrees_with_what_was_completed(outcome: int, fitting: set[int]) -> None:
    for completed in (ALL, SOME, NONE):
        if completed in fitting:
            assert check(outcome=outcome, completed_layers=completed) == 1
        else:
            expected = (InconsistentOutcome, (outcome, 0b1001, completed))
            assert refusal(outcome=outcome, completed_layers=completed) == expected


# The governing policy


@pytest.mark.parametrize("version", [0, 4, 2**32 - 1])
def test_policy_version_exists(version: int) -> None:
    assert refusal(policy_version=version) == (UnknownPolicyVersion, (3, version))


def test_policy_governs_from_its_first_second_to_the_last_before_the_next() -> None:
    cited = {"policy_version": 1, "reported_ended_at": 9000}
    assert refusal(**cited, reported_started_at=999) == (PolicyNotYetEffective, (1000, 999))
    assert check(**cited, reported_started_at=1000) == 1
    assert check(**cited, reported_started_at=3999) == 1
    assert refusal(**cited, reported_started_at=4000) == (PolicySuperseded, (4000, 4000))


def test_last_policy_governs_without_end() -> None:
    assert refusal(reported_started_at=7999) == (PolicyNotYetEffective, (8000, 7999))
    assert check(reported_started_at=9000) == 1


def test_policy_replaced_within_its_second_never_governs() -> None:
    state = replace(STATE, policies=((WIDE, 1000), (WIDE, 4000), (WIDE, 4000)))
    for started, error in ((3999, PolicyNotYetEffective), (4000, PolicySuperseded)):
        with pytest.raises(error):
            check(state=state, policy_version=2, reported_started_at=started)
    assert check(state=state, policy_version=3, reported_started_at=4000) == 1


def test_governing_policy_supports_the_scope_and_allows_the_trigger() -> None:
    cited = {"policy_version": 2, "reported_started_at": 5000}
    wide: dict[str, Any] = {"layer_mask": 0b1101, "completed_layers": 0b1101}
    assert refusal(**cited, **wide, trigger=0) == (LayersNotSupported, (0b1011, 0b1101))
    assert refusal(**cited) == (TriggerNotAllowed, (0b1101, 1))
    assert check(**cited, trigger=Trigger.COMMANDED) == 1


@pytest.mark.parametrize("trigger", [4, 7, 8, 255])
def test_trigger_that_does_not_exist_is_allowed_by_nobody(trigger: int) -> None:
    assert refusal(trigger=trigger) == (TriggerNotAllowed, (15, trigger))


# Linkage, and the layers out of scope


@pytest.mark.parametrize("version", [0, 2, 4, 2**64 - 1])
def test_report_starts_from_the_current_version(version: int) -> None:
    assert refusal(base_version=version) == (BadBaseVersion, (3, version))


def test_report_starts_from_the_current_root() -> None:
    assert refusal(pre_root=ZERO_BYTES32) == (BadPreRoot, (compute_root(BEFORE), ZERO_BYTES32))


def test_layer_out_of_scope_keeps_its_commitment_and_the_lowest_that_does_not_is_named() -> None:
    assert refusal(post_commitments=(X, B, X, D)) == (UnscopedLayerChanged, (2, C, X))
    assert refusal(post_commitments=(X, X, X, X)) == (UnscopedLayerChanged, (1, B, X))


def test_layer_in_scope_changes_although_it_was_not_completed() -> None:
    assert check(completed_layers=0, outcome=Outcome.FAILED) == 1


# Times


def test_cycle_ends_no_earlier_than_it_starts() -> None:
    assert refusal(reported_started_at=9001) == (EndedBeforeStarted, (9001, 9000))
    assert check(reported_started_at=9000) == 1


def test_cycle_ends_no_later_than_now() -> None:
    assert refusal(now=8999) == (EndedInFuture, (8999, 9000))
    assert check(now=9000) == 1


def test_completion_ends_later_than_the_layers_last_one() -> None:
    scope = {"layer_mask": 0b0110, "completed_layers": 0b0110, "ops_mask": 0, "post_commitments": BEFORE}
    cited = {"policy_version": 1, "reported_started_at": 2000}
    assert refusal(**scope, **cited, reported_ended_at=5000) == (CompletionNotLater, (1, 5000, 5000))
    assert refusal(**scope, **cited, reported_ended_at=7000) == (CompletionNotLater, (2, 7000, 7000))
    assert check(**scope, **cited, reported_ended_at=7001) == 0


def test_layers_that_were_not_completed_may_have_been_completed_later() -> None:
    scope = {"layer_mask": 15, "completed_layers": 0b0001, "outcome": Outcome.PARTIAL}
    assert check(**scope, policy_version=1, reported_started_at=2000, reported_ended_at=2000) == 1


# Restores


@pytest.mark.parametrize("version", [3, 4, 2**64 - 1])
def test_only_a_version_before_the_current_one_is_restored(version: int) -> None:
    assert refusal(restores_version=version) == (BadRestoresVersion, (3, version))


def test_restored_version_has_the_root_of_the_commitments() -> None:
    assert check(restores_version=1) == 1
    assert refusal(restores_version=2) == (BadRestoredRoot, (STATE.roots[2], compute_root(AFTER)))


def test_restoring_an_equal_earlier_version_changes_nothing() -> None:
    state = replace(STATE, roots={**STATE.roots, 1: STATE.root})
    assert check(state=state, restores_version=1, post_commitments=BEFORE) == 0


# The order


def test_report_is_refused_for_its_first_fault_and_passes_without_any() -> None:
    mended: list[tuple[dict[str, Any], type[ContractError]]] = [
        ({}, InvalidLayerMask),
        ({"layer_mask": 0b1101}, CompletedOutsideScope),
        ({"completed_layers": 0b0101}, OpsOutsideScope),
        ({"ops_mask": 0}, InconsistentOutcome),
        ({"outcome": Outcome.PARTIAL}, UnknownPolicyVersion),
        ({"policy_version": 2}, PolicyNotYetEffective),
        ({"reported_started_at": 9500}, PolicySuperseded),
        ({"reported_started_at": 7999}, LayersNotSupported),
        ({"policy_version": 1}, PolicySuperseded),
        ({"reported_started_at": 3999}, TriggerNotAllowed),
        ({"trigger": 0}, BadBaseVersion),
        ({"base_version": 3}, BadPreRoot),
        ({"pre_root": STATE.root}, UnscopedLayerChanged),
        ({"post_commitments": AFTER, "reported_ended_at": 3998}, EndedBeforeStarted),
        ({"reported_ended_at": NOW + 1}, EndedInFuture),
        ({"reported_ended_at": 7000}, CompletionNotLater),
        ({"reported_ended_at": 7001}, BadRestoresVersion),
        ({"restores_version": 2}, BadRestoredRoot),
    ]
    changes: dict[str, Any] = {
        "layer_mask": 16,
        "completed_layers": 0b0010,
        "ops_mask": 0x0010,
        "outcome": 9,
        "policy_version": 9,
        "reported_started_at": 0,
        "reported_ended_at": NOW + 1,
        "trigger": 9,
        "base_version": 9,
        "pre_root": X,
        "post_commitments": (X, X, C, D),
        "restores_version": 9,
    }
    for mend, error in mended:
        changes |= mend
        assert refusal(**changes)[0] is error
    assert check(**{**changes, "restores_version": 1}) == 1


# What the contract's types hold


@pytest.mark.parametrize(("name", "bits"), BITS.items())
def test_report_holds_the_largest_number_of_every_member_and_no_larger(name: str, bits: int) -> None:
    assert getattr(replace(REPORT, **{name: 2**bits - 1}), name) == 2**bits - 1
    for bad in (2**bits, -1, True, 1.0, "1", None):
        with pytest.raises(InvalidInput) as caught:
            replace(REPORT, **{name: bad})
        assert caught.value.field == name


def test_numbers_of_a_report_are_as_wide_as_the_standard_says() -> None:
    assert BITS == {
        "base_version": 64,
        "layer_mask": 8,
        "completed_layers": 8,
        "ops_mask": 16,
        "outcome": 8,
        "trigger": 8,
        "policy_version": 32,
        "reported_started_at": 48,
        "reported_ended_at": 48,
        "next_planned_at": 48,
        "restores_version": 64,
    }


@pytest.mark.parametrize(
    ("name", "bad", "field"),
    [
        ("pre_root", bytes(31), "preRoot"),
        ("record_hash", "0x11", "recordHash"),
        ("record_uri", b"ipfs://x", "recordURI"),
        ("post_commitments", (A, B, C), "commitments"),
        ("post_commitments", (A, B, C, bytes(33)), "commitments[3]"),
    ],
)
def test_report_refuses_words_and_texts_of_another_shape(name: str, bad: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace(REPORT, **{name: bad})
    assert caught.value.field == field


def test_report_says_nothing_of_what_is_left_out() -> None:
    assert (REPORT.next_planned_at, REPORT.restores_version) == (0, 0)
    assert (REPORT.record_hash, REPORT.record_uri) == (ZERO_BYTES32, "")


# What a runner derives


def test_operations_of_the_worked_example_make_its_mask() -> None:
    done = {
        Layer.RUNTIME: [Operation.REPAIR, Operation.UPDATE],
        Layer.MEMORY_SKILLS: [Operation.CLEAN, Operation.UPDATE],
        Layer.TASKS_ROLES: [Operation.UPDATE],
        Layer.COGNITION: [],
    }
    assert compute_ops_mask(done) == 0x0456
    assert compute_ops_mask({int(layer): [int(one) for one in ones] for layer, ones in done.items()}) == 0x0456


def test_every_operation_has_a_bit_of_its_own() -> None:
    bits = [compute_ops_mask({layer: [operation]}) for layer in Layer for operation in Operation]
    assert bits == [2**position for position in range(16)]
    assert compute_ops_mask({}) == 0


@pytest.mark.parametrize("operation", [-1, 4, True, 1.0, "1", None, Trigger.EVENT])
def test_what_is_no_operation_is_refused(operation: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        compute_ops_mask({0: [operation]})
    assert caught.value.field == "operation"


@pytest.mark.parametrize("layer", [-1, 4, True])
def test_operations_on_what_is_no_layer_are_refused(layer: Any) -> None:
    with pytest.raises(InvalidLayer):
        compute_ops_mask({layer: [0]})


@given(st.integers(0, 15))
def test_changed_layers_are_those_whose_commitments_differ(mask: int) -> None:
    a, b, c, d = (X if mask >> layer & 1 else BEFORE[layer] for layer in range(4))
    assert compute_changed_layers(BEFORE, (a, b, c, d)) == mask
    assert compute_changed_layers((a, b, c, d), BEFORE) == mask


@given(st.integers(1, 15), st.integers(0, 15), st.booleans())
def test_derived_outcome_never_contradicts_what_was_completed(mask: int, completed: int, failed: bool) -> None:
    completed &= mask
    outcome = derive_outcome(mask, completed, failed=failed)
    scope = {"layer_mask": mask, "completed_layers": completed, "ops_mask": 0, "post_commitments": BEFORE}
    assert check(**scope, outcome=outcome) == 0


def test_outcome_is_failed_only_when_nothing_was_completed_and_the_cycle_says_so() -> None:
    assert derive_outcome(0b0110, 0b0110, failed=True) is Outcome.COMPLETED
    assert derive_outcome(0b0110, 0b0100, failed=True) is Outcome.PARTIAL
    assert derive_outcome(0b0110, 0, failed=True) is Outcome.FAILED
    assert derive_outcome(0b0110, 0) is Outcome.ABORTED


def test_root_of_a_state_is_that_of_its_commitments() -> None:
    assert STATE.root == compute_root([A, B, C, D])
