"""The worked example of schemas/examples against its figures, read by outside libraries alone, and by the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rfc8785
from eth_abi.abi import encode
from eth_utils import keccak

from melete.meditation.cycle import compute_changed_layers
from melete.meditation.layers import commit_to_document, compute_root, to_commitments
from melete.meditation.records import derive_report
from melete.primitives import Bytes32

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "schemas" / "examples" / "timeout-cycle"
FIGURES = json.loads((ROOT / "test-vectors" / "maintenance-documents" / "timeout-cycle.json").read_text("utf-8"))
LAYER_TAG = keccak(b"AgentMeditationMechanism/LayerCommitment/v1")
ROOT_TAG = keccak(b"AgentMeditationMechanism/StateRoot/v1")


def read(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


def to_bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def test_every_document_hashes_and_commits_as_stated() -> None:
    for stated in FIGURES["documents"]:
        document = read(stated["path"])
        content = keccak(rfc8785.dumps(document))
        words = [LAYER_TAG, document["layer"], keccak(text=document["schema"]), content, to_bytes(stated["salt"])]
        commitment = keccak(encode(["bytes32", "uint8", "bytes32", "bytes32", "bytes32"], words))
        assert (stated["contentHash"], stated["commitment"]) == ("0x" + content.hex(), "0x" + commitment.hex())
        assert str(commit_to_document(document, Bytes32(stated["salt"]))) == stated["commitment"]


def test_salts_and_layers_stand_in_order() -> None:
    salts = read("salts.json")
    assert [stated["salt"] for stated in FIGURES["documents"]] == [*salts["baseline"], *salts["post"]]
    assert [read(stated["path"])["layer"] for stated in FIGURES["documents"]] == [0, 1, 2, 3] * 2


def test_roots_and_hashes_of_policy_and_record_are_as_stated() -> None:
    words = [to_bytes(stated["commitment"]) for stated in FIGURES["documents"]]
    kinds = ["bytes32"] * 5
    assert FIGURES["preRoot"] == "0x" + keccak(encode(kinds, [ROOT_TAG, *words[:4]])).hex()
    assert FIGURES["postRoot"] == "0x" + keccak(encode(kinds, [ROOT_TAG, *words[4:]])).hex()
    assert FIGURES["policyHash"] == "0x" + keccak(rfc8785.dumps(read("policy.json"))).hex()
    assert FIGURES["recordHash"] == "0x" + keccak(rfc8785.dumps(read("cycle-record.json"))).hex()


def test_report_of_the_record_is_as_stated() -> None:
    before, after = (
        to_commitments(Bytes32(stated["commitment"]) for stated in FIGURES["documents"][start : start + 4])
        for start in (0, 4)
    )
    report = derive_report(read("cycle-record.json"), before, after)
    stated = FIGURES["report"]
    assert [str(report.base_version), report.layer_mask, report.completed_layers, report.ops_mask] == [
        stated[name] for name in ("baseVersion", "layerMask", "completedLayers", "opsMask")
    ]
    assert [report.outcome, report.trigger, report.policy_version, str(report.restores_version)] == [
        stated[name] for name in ("outcome", "trigger", "policyVersion", "restoresVersion")
    ]
    assert [report.reported_started_at, report.reported_ended_at, report.next_planned_at] == [
        stated[name] for name in ("reportedStartedAt", "reportedEndedAt", "nextPlannedAt")
    ]
    assert (str(report.record_hash), str(report.pre_root)) == (FIGURES["recordHash"], FIGURES["preRoot"])
    assert compute_changed_layers(before, after) == FIGURES["expected"]["changedLayers"]
    assert str(compute_root(after)) == FIGURES["postRoot"]
