"""The demo's act about maintenance: the example of schemas/examples/timeout-cycle, told on a chain.

    layer documents -> commitments -> cycle report -> registry -> checkpoints -> status

A clerk of a harbor enrolls. A day later the server that it asks for tides answers too late; it repairs what it can, and
does not adopt what it could not evaluate. Then two reports are forged, and refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scripts._common import ROOT
from scripts._telling import catch, hold, tell, word

from melete import Address, Bytes32, LocalSigner, keccak256
from melete.chain.transactions import LocalSender
from melete.cli.layers import NAMES
from melete.cli.subject_views import NOT_MEANT
from melete.cli.times import show_distance
from melete.errors import MissingPermission, UnscopedLayerChanged
from melete.meditation.cycle import CycleReport, Operation, Outcome
from melete.meditation.documents import derive_policy, load_document
from melete.meditation.layers import Commitments, Layer, commit_to_document, layers_of, to_commitments
from melete.meditation.records import derive_report
from melete.meditation.registry import MeditationRegistry, Subject

EXAMPLE = ROOT / "schemas" / "examples" / "timeout-cycle"
HOUR, MINUTE = 3600, 60


def show_maintenance(w3: Any, keys: Sequence[LocalSigner]) -> None:
    """Enroll a subject, let a day pass, register the cycle that an event started, and refuse two forgeries."""
    clerk, payer, outsider = keys[1], keys[2], keys[3]
    word("layers")
    before, after = commit("baseline"), commit("post")
    word("registry")
    registry, receipt = MeditationRegistry.deploy(w3, LocalSender(payer))
    tell(f"stands at {registry.address}, deployed for {receipt.gas_used:,} gas, and computes the same hashes")

    word("enrollment")
    clerks = MeditationRegistry(w3, registry.address, sender=LocalSender(clerk))
    event = clerks.enroll(before, derive_policy(load("policy.json")))
    tell(f"{event.subject}, state version 1, root {event.root}")
    show_status(clerks.load_subject(clerk.address))

    pass_time(w3, 23 * HOUR + 30 * MINUTE)
    word("silence")
    tell("23 hours and a half go by without a word")
    late = clerks.load_subject(clerk.address)
    show_status(late)
    word("pulse")
    clerks.pulse(clerk.address)
    heard = clerks.load_subject(clerk.address)
    names = [subject.statuses.signal.status.name for subject in (late, heard)]
    hold("a pulse ends the silence", names == ["SILENT", "PRESENT"])
    hold("and moves no deadline", late.statuses.layers == heard.statuses.layers)

    word("event")
    pass_time(w3, 15 * MINUTE)
    record = record_now(registry, clerk.address)
    tell(record["reason"])
    word("cycle")
    report = derive_report(record, before, after)
    hold("the record names the root that is registered", report.pre_root == heard.head.root)
    show_report(record, report)
    recorded = clerks.report(clerk.address, report)
    tell(f"record {recorded.seq} is registered as {Outcome(report.outcome).name}, state version {recorded.new_version}")

    word("checkpoints")
    done = clerks.load_subject(clerk.address)
    for name, kept in zip(NAMES, done.checkpoints, strict=True):
        policy, version = kept.completed_under_policy, kept.last_changed_version
        tell(f"{name}: completed under policy {policy}, changed in version {version}")
    changed = [kept.last_changed_version for kept in done.checkpoints]
    hold("cognition is completed and unchanged: two facts", changed == [2, 2, 2, 1])
    show_status(done)

    word("forgery")
    by_outsider = MeditationRegistry(w3, registry.address, sender=LocalSender(outsider))
    refuse_forgeries(clerks, by_outsider, done)
    hold("the statuses are what they were", clerks.load_subject(clerk.address).checkpoints == done.checkpoints)
    tell(NOT_MEANT)


def refuse_forgeries(clerks: MeditationRegistry, by_outsider: MeditationRegistry, subject: Subject) -> None:
    """Try what must not work: a report by somebody else, a change out of scope, a document that was changed."""
    honest = CycleReport(
        subject.head.state_version, subject.head.root, subject.commitments, 0b0111, 0, 0, Outcome.FAILED, 0,
        subject.head.policy_version, subject.clock, subject.clock,
    )  # fmt: skip
    caught = catch(MissingPermission, lambda: by_outsider.report(subject.address, honest))
    hold("somebody else's report is refused: MissingPermission", caught.held == 0)
    slipped = replace(honest, post_commitments=(*subject.commitments[:3], keccak256(b"no obligations any more")))
    caught = catch(UnscopedLayerChanged, lambda: clerks.report(subject.address, slipped))
    hold("a change of cognition by a cycle over the others is refused: UnscopedLayerChanged", caught.layer == 3)
    document, salt = load("post/runtime.json"), Bytes32(salts("post")[0])
    document["dependencies"][0]["version"] = "1.9.0"
    opened = commit_to_document(document, salt) == subject.commitments[Layer.RUNTIME]
    hold("a document in which one version was changed does not open its commitment", not opened)


# The example


def load(name: str) -> dict[str, Any]:
    return load_document((EXAMPLE / name).read_bytes())


def salts(side: str) -> list[str]:
    found: list[str] = json.loads((EXAMPLE / "salts.json").read_text("utf-8"))[side]
    return found


def commit(side: str) -> Commitments:
    """Return the commitments to the four documents of one side, and tell those of the first."""
    words = to_commitments(
        commit_to_document(load(f"{side}/{name}.json"), Bytes32(salt))
        for name, salt in zip(NAMES, salts(side), strict=True)
    )
    if side == "baseline":
        for name, commitment in zip(NAMES, words, strict=True):
            tell(f"{name}: {commitment} (the document stays here)")
    return words


def record_now(registry: MeditationRegistry, subject: Address) -> dict[str, Any]:
    """Return the example's record with its times moved, so that the cycle ended just now."""
    record = load("cycle-record.json")
    later = registry.clock() - record["endedAt"]
    for member in ("startedAt", "endedAt", "nextPlannedAt"):
        record[member] += later
    for entry in record["layers"]:
        for observation in entry["observations"]:
            observation["observedAt"] += later
    return {**record, "subject": str(subject)}


# Telling


def show_report(record: dict[str, Any], report: CycleReport) -> None:
    """Tell what follows from a record: operations by layer, and what was not adopted."""
    for layer in layers_of(report.layer_mask):
        done = [operation.name.lower() for operation in Operation if report.ops_mask >> 4 * layer + operation & 1]
        tell(f"{NAMES[layer]}: {', '.join(done) or 'nothing'}")
    hold(f"operations {report.ops_mask:#06x}, derived from the record", report.ops_mask == 0x0456)
    (candidate,) = record["layers"][Layer.COGNITION]["candidates"]
    evaluation = candidate["evaluation"]
    tell(f"candidate {candidate['id']}: {evaluation['cases']} of {evaluation['required']} cases, not adopted")


def show_status(subject: Subject) -> None:
    """Tell how timely the registered maintenance is, layer by layer, and the signal apart."""
    word("status")
    for name, found in zip(NAMES, subject.statuses.layers, strict=True):
        never = ", never completed" if found.never_completed else ""
        tell(f"{name}: {found.status.name}, deadline {show_distance(found.deadline - subject.clock)}{never}")
    tell(f"signal: {subject.statuses.signal.status.name}")


def pass_time(w3: Any, seconds: int) -> None:
    """Let the local chain's clock run ahead."""
    w3.provider.make_request("evm_increaseTime", [seconds])
    w3.provider.make_request("evm_mine", [])
