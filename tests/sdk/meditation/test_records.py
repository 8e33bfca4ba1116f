from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from melete.canonical import compute_content_hash
from melete.errors import BadBaseVersion, BadRestoredRoot, InvalidJson, TriggerNotAllowed, UnscopedLayerChanged
from melete.meditation.cycle import CycleReport, Outcome, SubjectState, Trigger
from melete.meditation.documents import derive_policy
from melete.meditation.layers import Commitments, commit_to_document, compute_root, to_commitments
from melete.meditation.records import derive_report, prepare_report
from melete.primitives import Bytes32

EXAMPLE = Path(__file__).resolve().parents[3] / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
RECORD = json.loads((EXAMPLE / "cycle-record.json").read_text("utf-8"))
SALTS = json.loads((EXAMPLE / "salts.json").read_text("utf-8"))
POLICY = derive_policy(json.loads((EXAMPLE / "policy.json").read_text("utf-8")))


def commitments(side: str) -> Commitments:
    documents = (json.loads((EXAMPLE / side / f"{name}.json").read_text("utf-8")) for name in NAMES)
    return to_commitments(
        commit_to_document(document, Bytes32(salt)) for document, salt in zip(documents, SALTS[side], strict=True)
    )


BEFORE, AFTER = commitments("baseline"), commitments("post")
STATE = SubjectState(1, BEFORE, (0, 0, 0, 0), ((POLICY, RECORD["startedAt"] - 10),), {1: compute_root(BEFORE)})
NOW = RECORD["endedAt"] + 60


def changed(**members: Any) -> Any:
    return {**deepcopy(RECORD), **members}


def with_layer(index: int, **members: Any) -> Any:
    record = deepcopy(RECORD)
    record["layers"][index] |= members
    return record


def test_report_of_the_example_is_that_of_the_text() -> None:
    report = prepare_report(RECORD, STATE, AFTER, NOW, record_uri="ipfs://record")
    assert report == CycleReport(
        base_version=1,
        pre_root=compute_root(BEFORE),
        post_commitments=AFTER,
        layer_mask=0x0F,
        completed_layers=0x0F,
        ops_mask=0x0456,
        outcome=Outcome.COMPLETED,
        trigger=Trigger.EVENT,
        policy_version=1,
        reported_started_at=RECORD["startedAt"],
        reported_ended_at=RECORD["endedAt"],
        next_planned_at=RECORD["nextPlannedAt"],
        record_hash=compute_content_hash(RECORD),
        record_uri="ipfs://record",
    )


def test_hash_of_the_report_follows_every_word_of_the_record() -> None:
    other = derive_report(changed(summary="Something else."), BEFORE, AFTER)
    assert other.record_hash != derive_report(RECORD, BEFORE, AFTER).record_hash


def test_partial_cycle_is_derived_from_the_layers_that_were_completed() -> None:
    report = derive_report(with_layer(2, completed=False), BEFORE, AFTER)
    assert (report.outcome, report.layer_mask, report.completed_layers) == (Outcome.PARTIAL, 0b1111, 0b1011)


@pytest.mark.parametrize(
    ("ended", "completed", "outcome"),
    [
        ("normally", [True, True, True, True], Outcome.COMPLETED),
        ("normally", [True, False, False, False], Outcome.PARTIAL),
        ("aborted", [True, False, False, False], Outcome.ABORTED),
        ("aborted", [False, False, False, False], Outcome.ABORTED),
        ("failed", [False, False, False, False], Outcome.FAILED),
    ],
)
def test_outcome_follows_from_how_the_cycle_ended(ended: str, completed: list[bool], outcome: Outcome) -> None:
    record = changed(ended=ended)
    for entry, done in zip(record["layers"], completed, strict=True):
        entry["completed"] = done
    assert derive_report(record, BEFORE, AFTER).outcome is outcome


def test_scope_is_the_layers_that_the_record_lists() -> None:
    record = changed(layers=RECORD["layers"][:2])
    report = derive_report(record, BEFORE, (*AFTER[:2], *BEFORE[2:]))
    assert (report.layer_mask, report.completed_layers, report.ops_mask) == (0b0011, 0b0011, 0x0056)


def test_decision_that_the_commitments_contradict_is_refused() -> None:
    with pytest.raises(InvalidJson, match="adopted, and the commitment of layer 0 stays") as caught:
        derive_report(RECORD, BEFORE, (BEFORE[0], *AFTER[1:]))
    assert caught.value.pointer == "/layers/0/decision"
    with pytest.raises(InvalidJson, match="candidate, and the commitment of layer 3 changes") as caught:
        derive_report(RECORD, BEFORE, (*AFTER[:3], AFTER[0]))
    assert caught.value.pointer == "/layers/3/decision"


def test_failed_layer_may_have_changed_or_not() -> None:
    record = with_layer(0, decision="failed", completed=False)
    assert derive_report(record, BEFORE, AFTER).completed_layers == 0b1110
    assert derive_report(record, BEFORE, (BEFORE[0], *AFTER[1:])).completed_layers == 0b1110


# Judged before it is sent


def test_report_on_an_outdated_state_is_refused_by_the_registrys_own_name() -> None:
    with pytest.raises(BadBaseVersion) as caught:
        prepare_report(changed(baseVersion="2"), STATE, AFTER, NOW)
    assert (caught.value.expected, caught.value.received) == (1, 2)


def test_layer_outside_the_record_that_changed_is_refused() -> None:
    with pytest.raises(UnscopedLayerChanged):
        prepare_report(changed(layers=RECORD["layers"][:2]), STATE, AFTER, NOW)


def test_trigger_that_the_policy_does_not_allow_is_refused() -> None:
    policy = derive_policy(
        {**json.loads((EXAMPLE / "policy.json").read_text("utf-8")), "allowedTriggers": ["SCHEDULED"]}
    )
    state = SubjectState(1, BEFORE, (0, 0, 0, 0), ((policy, RECORD["startedAt"] - 10),), {1: compute_root(BEFORE)})
    with pytest.raises(TriggerNotAllowed):
        prepare_report(RECORD, state, AFTER, NOW)


def test_rollback_names_the_version_it_restores_and_has_to_be_its_state() -> None:
    state = SubjectState(
        2, AFTER, (0, 0, 0, 0), STATE.policies, {1: compute_root(BEFORE), 2: compute_root(AFTER)}
    )  # fmt: skip
    record = changed(baseVersion="2", preRoot=str(compute_root(AFTER)), restoresVersion="1")
    for entry in record["layers"]:
        entry |= {"decision": "restored", "candidates": []} if entry["layer"] < 3 else {"decision": "kept"}
    assert prepare_report(record, state, BEFORE, NOW).restores_version == 1
    with pytest.raises(BadRestoredRoot):
        prepare_report(record, state, (BEFORE[1], BEFORE[0], BEFORE[2], BEFORE[3]), NOW)
