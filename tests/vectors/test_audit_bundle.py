"""The command against the vectors of audit bundles, and the bundles against hashes by other libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from jsonschema import Draft202012Validator

from melete.canonical import load_json
from melete.cli.main import run
from melete.memory.disclosure import AuditBundle
from melete.resources import load_schema

from .loading import Json, load_cases, load_file

SET = "audit-bundle"
BUNDLES: dict[str, Json] = {case["name"]: case["bundle"] for case in load_file(f"{SET}/bundles.json")["cases"]}
VERDICTS = load_file(f"{SET}/verdicts.json")["cases"]
EXIT_CODES = {"held": 0, "broken": 1, "could_not_tell": 3}
SCHEMA = Draft202012Validator(load_schema("audit-bundle"))


# What a case is about


def follow(document: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        document = document[int(token) if isinstance(document, list) else token]
    return document


def apply_edit(document: Json, edit: Json) -> None:
    parent, _, last = edit["at"].rpartition("/")
    holder = follow(document, parent)
    place: Any = int(last) if isinstance(holder, list) else last
    value = follow(BUNDLES[edit["from"]["bundle"]], edit["from"]["at"]) if "from" in edit else edit.get("value")
    if edit["edit"] == "set":
        holder[place] = deepcopy(value)
    elif edit["edit"] == "drop":
        del holder[place]
    elif edit["edit"] == "insert":
        holder.insert(place, deepcopy(value))
    elif edit["edit"] == "swap":
        other, _, other_last = edit["with"].rpartition("/")
        beside = follow(document, other)
        other_place: Any = int(other_last) if isinstance(beside, list) else other_last
        holder[place], beside[other_place] = beside[other_place], holder[place]
    else:
        pytest.fail(f"unknown edit {edit['edit']}")


def build(case: Json) -> Json:
    document = deepcopy(BUNDLES[case["bundle"]])
    for edit in case["edits"]:
        apply_edit(document, edit)
    return document


def text_of(case: Json) -> str:
    text: str = case["jsonText"] if "jsonText" in case else json.dumps(build(case))
    return text


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str, Json], tuple[int, Json]]:
    """Judge a text without a node: exit code, and what was printed."""

    def judge(text: str, given: Json) -> tuple[int, Json]:
        path = tmp_path / "bundle.json"
        path.write_text(text, "utf-8")
        names = {
            "blockHash": "--block-hash",
            "chainId": "--chain-id",
            "registry": "--registry",
            "contract": "--contract",
        }
        options = [word for name, value in given.items() for word in (names[name], value)]
        code = run(["verify", str(path), "--offline", "--json", *options])
        found: Json = json.loads(capsys.readouterr().out)
        return code, found

    return judge


# Verdicts


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in VERDICTS])
def test_the_command_answers_as_the_vector_says(case: Json, verify: Callable[[str, Json], tuple[int, Json]]) -> None:
    code, found = verify(text_of(case), case["given"])
    assert (found["answer"].replace(" ", "_"), code) == (case["answer"], EXIT_CODES[case["answer"]])
    assert (found["rule"], found["member"], found["entry"]) == (
        case.get("rule"),
        case.get("member"),
        case.get("entry"),
    )
    for figure in ("expected", "received"):
        if figure in case:
            assert str(found[figure]).lower() == case[figure]


def test_every_answer_and_every_rule_has_a_vector() -> None:
    from melete.memory.bundle_anchoring import ANCHORING_RULES
    from melete.memory.disclosure import RULES

    covered = {case.get("rule") for case in VERDICTS}
    # These need a node, another code or another contract: tests/e2e/test_audit_bundle.py.
    with_a_chain = {"grant_registry", "grant_space", "grant_auditor", "grant_range"}
    assert {*RULES, *ANCHORING_RULES, "json", "schema", "kind", "block"} - covered == with_a_chain
    assert {case["answer"] for case in VERDICTS} == set(EXIT_CODES)


def test_no_answer_shows_what_is_secret(verify: Callable[[str, Json], tuple[int, Json]]) -> None:
    secrets = [
        value
        for bundle in BUNDLES.values()
        for entry in bundle["entries"]
        for name, value in entry["witness"].items()
        if name != "profileId" and value is not None and len(value) > 12
    ]
    assert len(secrets) > 40
    for case in VERDICTS:
        shown = json.dumps(verify(text_of(case), case["given"])[1])
        assert not [secret for secret in secrets if secret in shown], case["name"]


# The schema


@pytest.mark.parametrize("name", BUNDLES)
def test_bundles_keep_the_schema_and_come_back_as_they_were(name: str) -> None:
    SCHEMA.validate(BUNDLES[name])
    written = AuditBundle.from_json(BUNDLES[name]).to_json()
    assert lower(written) == lower(BUNDLES[name])


def lower(value: Any) -> Any:
    """A document with its addresses in one case."""
    if isinstance(value, dict):
        return {name: lower(member) for name, member in value.items()}
    if isinstance(value, list):
        return [lower(item) for item in value]
    return value.lower() if isinstance(value, str) and re.fullmatch("0x[0-9a-fA-F]{40}", value) else value


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in VERDICTS if "bundle" in case])
def test_schema_and_package_refuse_the_same_documents(case: Json) -> None:
    stricter = {"address_with_a_wrong_checksum"}
    refused = case.get("rule") in ("schema", "kind")
    assert SCHEMA.is_valid(build(case)) == (not refused or case["name"] in stricter)


# The bundles, by other libraries


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


WORD = "bytes32"
DELTA = [WORD, "uint64", *[WORD] * 5]
DELTA_TYPE = (
    "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,"
    "bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
)
STATE_TYPE = "MemoryState(bytes32 prevStateRoot,bytes32 transitionId)"
WITNESS_TYPE = "AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)"


def hash_words(*words: bytes) -> bytes:
    return keccak(encode([WORD] * len(words), words))


def commit(name: str, salt: str | None, content: bytes | None, *before: bytes) -> bytes:
    if salt is None or content is None:
        return bytes(32)
    return hash_words(keccak(text=f"AgentMemoryState.{name}.v1"), *before, unhex(salt), keccak(content))


@pytest.mark.parametrize("name", [name for name in BUNDLES if name != "granted_another_root"])
def test_figures_of_a_bundle_are_those_of_other_libraries(name: str) -> None:
    bundle = BUNDLES[name]
    grant, space_id = bundle["grant"], unhex(bundle["reference"]["spaceId"])
    ends = int(grant["fromSequence"]), int(grant["toSequence"])
    packed = encode([WORD, "address", "uint64", "uint64"], [space_id, grant["auditor"], *ends])
    assert keccak(packed) == unhex(grant["grantId"])
    state_root, witness_root = unhex(bundle["startStateRoot"]), bytes(32)
    for sequence, entry in enumerate(bundle["entries"], start=ends[0]):
        delta, witness = entry["delta"], entry["witness"]
        words = [int(value) if member == "sequence" else unhex(value) for member, value in delta.items()]
        assert words[:3] == [space_id, sequence, state_root]
        assert list(delta)[:3] == ["spaceId", "sequence", "prevStateRoot"]
        transition_id = keccak(keccak(text=DELTA_TYPE) + encode(DELTA, words))
        state_root = hash_words(keccak(text=STATE_TYPE), state_root, transition_id)
        assert (unhex(entry["transitionId"]), unhex(entry["nextStateRoot"])) == (transition_id, state_root)
        provenance = None if witness["provenance"] is None else unhex(witness["provenance"])
        locator = None if witness["locator"] is None else witness["locator"].encode()
        opened = commit("deltaCommitment", witness["deltaSalt"], unhex(witness["payload"]), unhex(witness["profileId"]))
        assert opened == unhex(delta["deltaCommitment"])
        assert commit("provenanceCommitment", witness["provenanceSalt"], provenance) == words[4]
        assert commit("locatorCommitment", witness["locatorSalt"], locator) == words[6]
        # All names are ASCII and all values text or null, so this is the RFC 8785 form.
        canonical = json.dumps(witness, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        witness_root = hash_words(keccak(text=WITNESS_TYPE), witness_root, transition_id, keccak(canonical))
        assert unhex(entry["witnessRoot"]) == witness_root
    assert sequence == ends[1]
    assert unhex(grant["witnessSetRoot"]) == witness_root


def test_files_say_how_many_cases_they_hold_and_name_each_once() -> None:
    assert len(load_cases(SET)) == len(BUNDLES) + len(VERDICTS)
    for name in ("bundles.json", "verdicts.json"):
        document = load_file(f"{SET}/{name}")
        names = [case["name"] for case in document["cases"]]
        assert document["caseCount"] == str(len(names)) == str(len(set(names)))
        assert all(case["origin"] == "ours" for case in document["cases"])


def test_files_are_json_that_every_reader_takes() -> None:
    for name in ("bundles.json", "verdicts.json"):
        assert load_json((Path(__file__).parents[2] / "test-vectors" / SET / name).read_bytes())
