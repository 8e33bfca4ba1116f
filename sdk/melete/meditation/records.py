"""From the record of a cycle to the report that is registered: nothing in it is typed by hand.

Source: Agent Meditation, Cycle records and Off-chain documents.
"""

from __future__ import annotations

from typing import Any, Final

from melete.canonical import Json, compute_content_hash
from melete.errors import InvalidJson
from melete.meditation.cycle import (
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
from melete.meditation.documents import RECORD_SCHEMA, check_document
from melete.meditation.layers import Commitments, mask_of
from melete.primitives import Bytes32, parse_sequence

#: What a decision says about the layer's commitment: it changes, it stays, or (after a failure) either.
CHANGES: Final = {"adopted": True, "restored": True, "kept": False, "candidate": False, "failed": None}


def derive_report(
    record: dict[str, Json], before: Commitments, after: Commitments, *, record_uri: str = ""
) -> CycleReport:
    """Return the report of a cycle record, given the commitments before and after the cycle.

    Scope, completions, operations, outcome and trigger follow from the record, as does its hash.
    Errors: `InvalidJson` for a record that is none, or whose decisions contradict the commitments.
    """
    check_document(record, expected=RECORD_SCHEMA)
    given: dict[str, Any] = record
    layers = given["layers"]
    scope = mask_of(entry["layer"] for entry in layers)
    completed = mask_of(entry["layer"] for entry in layers if entry["completed"])
    _check_decisions(layers, compute_changed_layers(before, after))
    return CycleReport(
        base_version=parse_sequence(given["baseVersion"], "baseVersion"),
        pre_root=Bytes32(given["preRoot"], "preRoot"),
        post_commitments=after,
        layer_mask=scope,
        completed_layers=completed,
        ops_mask=compute_ops_mask(
            {
                entry["layer"]: [Operation[change["operation"].upper()] for change in entry["changes"]]
                for entry in layers
            }
        ),
        outcome=_outcome(given["ended"], scope, completed),
        trigger=Trigger[given["trigger"]],
        policy_version=given["policyVersion"],
        reported_started_at=given["startedAt"],
        reported_ended_at=given["endedAt"],
        next_planned_at=given.get("nextPlannedAt", 0),
        restores_version=parse_sequence(given.get("restoresVersion", "0"), "restoresVersion"),
        record_hash=compute_content_hash(record),
        record_uri=record_uri,
    )


def prepare_report(
    record: dict[str, Json], state: SubjectState, after: Commitments, now: int, *, record_uri: str = ""
) -> CycleReport:
    """Return the report of a record, judged by the registry's rules, in its order and with its errors.

    Errors: as `derive_report` and `check_report`.
    """
    report = derive_report(record, state.commitments, after, record_uri=record_uri)
    check_report(state, report, now)
    return report


def _outcome(ended: str, scope: int, completed: int) -> Outcome:
    if ended == "aborted":
        return Outcome.ABORTED
    return derive_outcome(scope, completed, failed=ended == "failed")


def _check_decisions(layers: list[dict[str, Any]], changed: int) -> None:
    for index, entry in enumerate(layers):
        changes, expected = bool(changed >> entry["layer"] & 1), CHANGES[entry["decision"]]
        if expected is not None and changes is not expected:
            what = "changes" if changes else "stays as it was"
            raise InvalidJson(
                f"/layers/{index}/decision",
                f"the decision is {entry['decision']}, and the commitment of layer {entry['layer']} {what}",
            )
