"""Maintenance disclosures without a chain: their form, what they can break, and what `melete verify` says of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from melete.canonical import load_json
from melete.cli.main import run
from melete.cli.verify import JUDGES
from melete.errors import BrokenBundle, InvalidInput, InvalidJson
from melete.meditation import disclosure_building
from melete.meditation.cycle import CycleReport
from melete.meditation.disclosure import (
    KIND,
    RULES,
    DisclosedCycle,
    DisclosedDocument,
    DisclosedState,
    MaintenanceDisclosure,
    Reference,
    find_undisclosed,
    verify_maintenance,
)
from melete.meditation.disclosure_building import write_disclosure
from melete.meditation.layers import Commitments, commit_to_document, compute_root, to_commitments
from melete.meditation.records import derive_report
from melete.primitives import Address, Bytes32
from melete.resources import load_schema

from .registry_fake import NAMES, SUBJECT, example

HELD, BROKEN, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
RECORD, SALTS = example("cycle-record.json"), example("salts.json")
REGISTRY = Address(b"\x11" * 20)


def documents(side: str) -> list[DisclosedDocument]:
    return [
        DisclosedDocument(layer, example(f"{side}/{name}.json"), Bytes32(salt))
        for layer, (name, salt) in enumerate(zip(NAMES, SALTS[side], strict=True))
    ]


def commitments(side: str) -> Commitments:
    return to_commitments(commit_to_document(one.document, one.salt) for one in documents(side))


BEFORE, AFTER = commitments("baseline"), commitments("post")
REPORT = derive_report(RECORD, BEFORE, AFTER, record_uri="ipfs://record")


def idle(seq: int) -> DisclosedCycle:
    """A record on the state after the example's, which changes nothing and has no document."""
    ended = RECORD["endedAt"] + seq
    report = CycleReport(2, compute_root(AFTER), AFTER, 1, 1, 0, 0, 0, 1, ended, ended)
    return DisclosedCycle(seq, 2, 0, ended + 1, SUBJECT, report)


def disclosure(level: int = 2) -> MaintenanceDisclosure:
    """The example's cycle and an idle one, as they are disclosed at a level."""
    first = DisclosedCycle(
        3, 2, 0b0111, RECORD["endedAt"] + 5, SUBJECT, REPORT,
        RECORD["summary"] if level else None, RECORD if level == 2 else None,
        tuple(documents("post")[:3]) if level == 2 else (),
    )  # fmt: skip
    state = DisclosedState(1, BEFORE, compute_root(BEFORE), tuple(documents("baseline")) if level == 2 else ())
    return MaintenanceDisclosure(Reference(31337, REGISTRY, SUBJECT), level, state, (first, idle(7)))


def place(document: Any, pointer: str) -> tuple[Any, Any]:
    """The container that a pointer leads into, and the last part."""
    *parts, last = pointer.strip("/").split("/")
    for part in parts:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document, int(last) if isinstance(document, list) else last


def changed(pointer: str, value: Any, level: int = 2) -> Any:
    document = deepcopy(disclosure(level).to_json())
    at, last = place(document, pointer)
    at[last] = value
    return document


# Form


@pytest.mark.parametrize("level", [0, 1, 2])
def test_disclosure_survives_json_and_fits_its_schema(level: int) -> None:
    made = disclosure(level)
    document = load_json(json.dumps(made.to_json()))
    assert MaintenanceDisclosure.from_json(document) == made
    Draft202012Validator(load_schema("maintenance-disclosure")).validate(document)


def test_repr_shows_no_documents_and_no_salts() -> None:
    text = repr(disclosure())
    assert "berth" not in text
    assert SALTS["post"][1][2:] not in text


WORD, OTHER = "0x" + "11" * 32, "0x" + "22" * 32


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/kind", "melete.maintenance-disclosure/2"),
        ("/level", 3),
        ("/level", True),
        ("/level", "2"),
        ("/mood", 1),
        ("/reference/chainId", "0"),
        ("/reference/chainId", 31337),
        ("/reference/chainId", "\u0661"),
        ("/reference/registry", "0x11"),
        ("/reference/subject", None),
        ("/reference/mood", 1),
        ("/state/version", 1),
        ("/state/version", "01"),
        ("/state/version", str(2**64)),
        ("/state/commitments", [WORD] * 3),
        ("/state/commitments", "four"),
        ("/state/commitments/0", WORD.upper()),
        ("/state/root", "0x"),
        ("/state/documents", {}),
        ("/state/documents/0/layer", 4),
        ("/state/documents/0/document", []),
        ("/state/documents/0/salt", None),
        ("/entries", {}),
        ("/entries/0", []),
        ("/entries/0/seq", 3),
        ("/entries/0/newVersion", "-1"),
        ("/entries/0/changedLayers", 16),
        ("/entries/0/recordedAt", 2**48),
        ("/entries/0/recordedAt", 1.5),
        ("/entries/0/submitter", "me"),
        ("/entries/0/summary", 7),
        ("/entries/0/record", "text"),
        ("/entries/0/report", None),
        ("/entries/0/report/mood", 1),
        ("/entries/0/report/baseVersion", 1),
        ("/entries/0/report/layerMask", 256),
        ("/entries/0/report/opsMask", -1),
        ("/entries/0/report/recordHash", None),
        ("/entries/0/report/recordURI", None),
    ],
)
def test_ill_formed_member_is_refused_by_reader_and_schema_alike(pointer: str, value: Any) -> None:
    document = changed(pointer, value)
    with pytest.raises(InvalidJson) as caught:
        MaintenanceDisclosure.from_json(document)
    assert pointer.startswith(caught.value.pointer)
    # The schema bounds numbers of 64 bits by their digits only.
    assert value == str(2**64) or not Draft202012Validator(load_schema("maintenance-disclosure")).is_valid(document)


@pytest.mark.parametrize("name", ["kind", "level", "reference", "state", "entries"])
def test_missing_member_is_refused(name: str) -> None:
    document = disclosure().to_json()
    del document[name]
    with pytest.raises(InvalidJson) as caught:
        MaintenanceDisclosure.from_json(document)
    assert caught.value.pointer == f"/{name}"


# Judging


@pytest.mark.parametrize("level", [0, 1, 2])
def test_disclosure_that_holds_leads_to_the_state_at_its_end(level: int) -> None:
    end = verify_maintenance(disclosure(level))
    assert (end.version, end.commitments, end.root) == (2, AFTER, compute_root(AFTER))


def test_documents_may_be_left_out_and_are_counted() -> None:
    made = disclosure()
    assert find_undisclosed(made) == 0
    fewer = replace(made, entries=(replace(made.entries[0], documents=made.entries[0].documents[1:]), made.entries[1]))
    verify_maintenance(fewer)
    assert find_undisclosed(fewer) == 1


def test_state_alone_is_a_disclosure_too() -> None:
    alone = replace(disclosure(), entries=())
    assert verify_maintenance(alone).root == compute_root(BEFORE)


CONTRADICTING = deepcopy(RECORD)
CONTRADICTING["summary"] = "Everything was fine."

DEFECTS: list[tuple[str, Any, str, str | None]] = [
    # pointer, value, rule, and where the fault is told if not there
    ("/state/root", OTHER, "state_root", None),
    ("/state/commitments/2", OTHER, "state_root", "/state/root"),
    ("/state/documents/1/layer", 0, "document_layer", None),
    ("/state/documents/0/salt", OTHER, "document_commitment", "/state/documents/0"),
    ("/state/documents/0/document/code/0/version", "9", "document_commitment", "/state/documents/0"),
    ("/state/documents/0/document/layer", 1, "document_commitment", "/state/documents/0"),
    ("/state/documents/0/document/schema", "x", "document_commitment", "/state/documents/0"),
    ("/entries/1/seq", "3", "seq", None),
    ("/entries/0/seq", "0", "seq", None),
    ("/entries/0/report/baseVersion", "2", "base_version", None),
    ("/entries/1/report/baseVersion", "1", "base_version", None),
    ("/entries/0/report/preRoot", OTHER, "pre_root", None),
    ("/entries/0/report/layerMask", 0b1110, "unscoped_layer", "/entries/0/report/postCommitments/0"),
    ("/entries/1/report/postCommitments/3", OTHER, "unscoped_layer", None),
    ("/entries/0/changedLayers", 0b1111, "changed_layers", None),
    ("/entries/0/newVersion", "3", "new_version", None),
    ("/entries/1/newVersion", "3", "new_version", None),
    ("/entries/0/record", None, "record_level", None),
    ("/entries/0/record/summary", "Nothing happened.", "record_hash", "/entries/0/record"),
    ("/entries/0/report/recordHash", OTHER, "record_hash", "/entries/0/record"),
    ("/entries/1/report/recordHash", OTHER, "record_level", "/entries/1/record"),
    ("/entries/0/report/completedLayers", 0b0111, "report", None),
    ("/entries/0/report/opsMask", 0, "report", None),
    ("/entries/0/report/outcome", 1, "report", None),
    ("/entries/0/report/trigger", 0, "report", None),
    ("/entries/0/report/policyVersion", 2, "report", None),
    ("/entries/0/report/reportedStartedAt", 1, "report", None),
    ("/entries/0/report/reportedEndedAt", 1, "report", None),
    ("/entries/0/report/nextPlannedAt", 1, "report", None),
    ("/entries/0/report/restoresVersion", "1", "report", None),
    ("/entries/0/summary", "Another summary.", "summary", None),
    ("/entries/0/documents/1/salt", OTHER, "document_commitment", "/entries/0/documents/1"),
    ("/entries/0/documents/1/layer", 3, "document_layer", None),
]


@pytest.mark.parametrize(("pointer", "value", "rule", "member"), DEFECTS)
def test_first_fault_is_named_with_its_rule_and_place(pointer: str, value: Any, rule: str, member: str | None) -> None:
    with pytest.raises(BrokenBundle) as caught:
        verify_maintenance(MaintenanceDisclosure.from_json(changed(pointer, value)))
    error = caught.value
    assert (error.rule, error.member) == (rule, member or pointer)
    assert error.rule in RULES
    index = pointer.split("/")[2] if pointer.startswith("/entries") else ""
    expected = {"": None, "0": 3, "1": 7}[index]
    assert error.entry == (int(value) if rule == "seq" else expected)


@pytest.mark.parametrize(
    ("level", "pointer", "value", "rule"),
    [
        (0, "/entries/0/summary", "text", "summary_level"),
        (0, "/entries/0/record", RECORD, "record_level"),
        (1, "/entries/0/record", RECORD, "record_level"),
        (0, "/state/documents", disclosure().to_json()["state"]["documents"], "document_level"),  # type: ignore[index,call-overload]
        (1, "/entries/0/documents", disclosure().to_json()["entries"][0]["documents"], "document_level"),  # type: ignore[index,call-overload]
    ],
)
def test_level_that_hands_out_more_than_it_says_is_broken(level: int, pointer: str, value: Any, rule: str) -> None:
    with pytest.raises(BrokenBundle) as caught:
        verify_maintenance(MaintenanceDisclosure.from_json(changed(pointer, value, level)))
    assert caught.value.rule == rule
    assert "berth" not in str(caught.value)


def test_record_that_is_none_of_the_schema_is_broken_with_the_place() -> None:
    record = {**RECORD, "mood": "good"}
    made = disclosure()
    from melete.canonical import compute_content_hash

    report = replace(REPORT, record_hash=compute_content_hash(record))
    entry = replace(made.entries[0], record=record, report=report)
    with pytest.raises(BrokenBundle) as caught:
        verify_maintenance(replace(made, entries=(entry,)))
    assert (caught.value.rule, caught.value.member) == ("record", "/entries/0/record/mood")


# Writing


def test_file_is_for_its_owner_alone_and_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "disclosure.json"
    size = write_disclosure(path, disclosure())
    assert (path.stat().st_size, path.stat().st_mode & 0o077) == (size, 0)
    assert MaintenanceDisclosure.from_json(load_json(path.read_bytes())) == disclosure()
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="does not exist yet"):
        write_disclosure(path, disclosure(0))
    assert path.read_bytes() == before


def test_disclosure_that_nobody_would_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disclosure_building, "LARGEST_DISCLOSURE", 100)
    with pytest.raises(InvalidInput, match="smaller"):
        write_disclosure(tmp_path / "disclosure.json", disclosure())
    assert list(tmp_path.iterdir()) == []


# From the command line


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., tuple[int, Any]]:
    for name in [name for name in os.environ if name.startswith("MELETE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def judge(document: Any, *words: object) -> tuple[int, Any]:
        Path("disclosure").write_text(json.dumps(document))
        code = run(["verify", "disclosure", *(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert captured.err == ""
        return code, json.loads(captured.out)

    return judge


def test_kind_is_judged_by_melete_verify() -> None:
    assert KIND in JUDGES


def test_what_only_a_chain_can_say_is_left_open(verify) -> None:
    code, found = verify(disclosure().to_json())
    assert (code, found["answer"], found["kind"]) == (COULD_NOT_TELL, "could not tell", KIND)
    assert found["held"] == ["json", "schema", "links", "records", "documents"]
    assert found["notJudged"] == []
    assert "--rpc-url" in found["couldNotTell"][0]
    assert (found["fromVersion"], found["toVersion"], found["records"]) == ("1", "2", ["3", "7"])


def test_documents_are_held_only_where_there_are_some(verify) -> None:
    made = disclosure()
    assert "documents" in verify(made.to_json())[1]["held"]
    (first, *others) = made.entries
    bare = replace(made, state=replace(made.state, documents=()), entries=(replace(first, documents=()), *others))
    _, found = verify(bare.to_json())
    assert "records" in found["held"]
    assert "documents" not in found["held"]
    assert found["notJudged"] == ["documents_left_out", "state_documents_left_out"]


def test_documents_of_the_first_state_that_were_left_out_are_not_judged(verify) -> None:
    made = disclosure()
    _, found = verify(replace(made, state=replace(made.state, documents=made.state.documents[1:])).to_json())
    assert "documents" in found["held"]
    assert found["notJudged"] == ["state_documents_left_out"]


@pytest.mark.parametrize(
    ("level", "not_judged"), [(0, ["records", "documents"]), (1, ["summaries", "records", "documents"])]
)
def test_what_a_level_leaves_to_trust_is_said(verify, level, not_judged) -> None:
    code, found = verify(disclosure(level).to_json())
    assert (code, found["held"], found["notJudged"]) == (COULD_NOT_TELL, ["json", "schema", "links"], not_judged)


def test_broken_disclosure_is_exit_code_1_with_rule_and_entry(verify) -> None:
    code, found = verify(changed("/entries/0/report/opsMask", 0))
    assert (code, found["answer"], found["rule"], found["entry"], found["member"]) == (
        BROKEN, "broken", "report", "3", "/entries/0/report/opsMask",
    )  # fmt: skip
    assert (found["expected"], found["received"]) == ("1110", "0")
    code, found = verify(changed("/state/version", 1))
    assert (code, found["rule"], found["member"]) == (BROKEN, "schema", "/state/version")


def test_reader_may_say_which_chain_and_registry_it_has_to_be_about(verify) -> None:
    document = disclosure(0).to_json()
    assert verify(document, "--chain-id", 31337, "--registry", REGISTRY)[0] == COULD_NOT_TELL
    assert verify(document, "--chain-id", 1)[1]["rule"] == "chain_id"
    assert verify(document, "--registry", SUBJECT)[1]["rule"] == "registry"


def test_node_that_is_gone_leaves_it_open(verify) -> None:
    code, found = verify(disclosure(0).to_json(), "--rpc-url", "http://127.0.0.1:1")
    assert (code, found["answer"]) == (COULD_NOT_TELL, "could not tell")
    assert "127.0.0.1:1" in found["couldNotTell"][0]
