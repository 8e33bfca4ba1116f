"""The package against the vectors of the Agent Memory State registry."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from melete.canonical import canonicalize_json, load_json
from melete.chain.reverts import compute_selector, decode_revert
from melete.errors import (
    BrokenHistory,
    ContractError,
    EmptyRange,
    InvalidInput,
    InvalidSignature,
    MeleteError,
    NotIncluded,
    ZeroFromSequence,
)
from melete.memory import commitment, delta, space
from melete.memory.batch import Batch, InclusionProof, Operation, compute_batch, verify_inclusion
from melete.memory.commitment import (
    compute_delta_commitment,
    compute_locator_commitment,
    compute_provenance_commitment,
)
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.memory.extensions import grants
from melete.memory.extensions.grants import (
    WitnessEntry,
    compute_grant_id,
    compute_next_witness_root,
    compute_witness_hash,
    fold_witness_root,
)
from melete.memory.history import Transition, verify_history
from melete.memory.space import (
    GENESIS,
    Head,
    SpaceAuthorization,
    SpaceState,
    check_commit,
    check_registration,
    check_update,
    compute_authorization_hash,
    compute_registration_hash,
    compute_space_id,
)
from melete.memory.witness import Witness, verify_witness
from melete.primitives import Address, Bytes32, keccak256, parse_bytes, parse_sequence
from melete.resources import load_schema
from melete.signing import LocalSigner, recover_signer, verify_signature
from melete.typed_data import EIP712_DOMAIN_TYPE, EIP712_DOMAIN_TYPEHASH, Domain

from .loading import ROOT, Json, find_domain, load_cases, load_file, read_content

SET = "agent-memory-state"
CASES = load_cases(SET)


# Hashes


def build_domain(document: Json) -> Domain:
    return Domain(
        document["name"], document["version"], int(document["chainId"]), Address(document["verifyingContract"])
    )


def check_text(file: str, case: Json) -> None:
    ours = {
        "experience_delta": (delta.EXPERIENCE_DELTA_TYPE, delta.EXPERIENCE_DELTA_TYPEHASH),
        "memory_state": (delta.MEMORY_STATE_TYPE, delta.MEMORY_STATE_TYPEHASH),
        "memory_space": (space.MEMORY_SPACE_TYPE, space.MEMORY_SPACE_TYPEHASH),
        "space_registration": (space.SPACE_REGISTRATION_TYPE, space.SPACE_REGISTRATION_TYPEHASH),
        "space_authorization": (space.SPACE_AUTHORIZATION_TYPE, space.SPACE_AUTHORIZATION_TYPEHASH),
        "eip712_domain": (EIP712_DOMAIN_TYPE, EIP712_DOMAIN_TYPEHASH),
        "delta_commitment_tag": (case["text"], commitment.DELTA_COMMITMENT_TAG),
        "provenance_commitment_tag": (case["text"], commitment.PROVENANCE_COMMITMENT_TAG),
        "locator_commitment_tag": (case["text"], commitment.LOCATOR_COMMITMENT_TAG),
    }
    assert ours[case["name"]] == (case["text"], Bytes32(case["keccak256"]))


def check_domain(file: str, case: Json) -> None:
    assert str(build_domain(case["domain"]).separator) == case["domainSeparator"]


def check_space_id(file: str, case: Json) -> None:
    assert str(compute_space_id(Address(case["initialController"]), Bytes32(case["salt"]))) == case["spaceId"]


def check_approval(file: str, case: Json) -> None:
    struct_hash = hash_message(case["kind"], case["message"])
    assert str(struct_hash) == case["structHash"]
    assert str(build_domain(find_domain(file, case)).digest(struct_hash)) == case["signingDigest"]
    assert case["signingDigest"] not in case.get("mistakes", {}).values()


def hash_message(kind: str, message: Json) -> Bytes32:
    if kind == "registration":
        return compute_registration_hash(
            Bytes32(message["spaceId"]), Address(message["controller"]), Address(message["authorizer"])
        )
    return compute_authorization_hash(
        Bytes32(message["spaceId"]),
        Address(message["newController"]),
        Address(message["newAuthorizer"]),
        parse_sequence(message["nonce"]),
    )


def check_commitment(file: str, case: Json) -> None:
    salt, content = Bytes32(case["salt"]), read_content(case["content"])
    computed = {
        "delta_commitment": lambda: compute_delta_commitment(Bytes32(case["profileId"]), salt, content),
        "provenance_commitment": lambda: compute_provenance_commitment(salt, content),
        "locator_commitment": lambda: compute_locator_commitment(salt, content.decode("utf-8")),
    }[case["kind"]]()
    assert str(computed) == case["commitment"]


def check_transition(file: str, case: Json) -> None:
    stated = ExperienceDelta.from_json(case["delta"])
    transition_id = compute_transition_id(stated)
    assert stated.to_json() == case["delta"]
    assert str(transition_id) == case["transitionId"]
    assert str(compute_next_state_root(stated.prev_state_root, transition_id)) == case["nextStateRoot"]
    assert str(build_domain(find_domain(file, case)).digest(transition_id)) == case["signingDigest"]
    assert case["transitionId"] not in case.get("mistakes", {}).values()


# Histories


def read_transition(case: Json) -> Transition:
    return Transition(
        ExperienceDelta.from_json(case["delta"]),
        Bytes32(case["transitionId"]),
        Bytes32(case["nextStateRoot"]),
        Address(case["authorizer"]),
    )


def check_witness(file: str, case: Json) -> None:
    check_transition(file, case)
    opened, stated = case["witness"], ExperienceDelta.from_json(case["delta"])
    witness = Witness(
        stated.profile_id,
        read_content(opened["delta"]["content"]),
        Bytes32(opened["delta"]["salt"]),
        read_content(opened["provenance"]["content"]) if opened["provenance"] else None,
        Bytes32(opened["provenance"]["salt"]) if opened["provenance"] else None,
        read_content(opened["locator"]["content"]).decode("utf-8") if opened["locator"] else None,
        Bytes32(opened["locator"]["salt"]) if opened["locator"] else None,
    )
    assert verify_witness(stated, witness) == stated

    before = load_file(file)["cases"][: stated.sequence - 1]
    head = verify_history(stated.space_id, map(read_transition, before))
    assert witness.build_delta(stated.space_id, head) == stated
    after = verify_history(stated.space_id, [read_transition(case)], head)
    assert after == Head(Bytes32(case["transitionId"]), Bytes32(case["nextStateRoot"]), stated.sequence)


def apply_edit(transitions: list[Json], edit: Json) -> None:
    at = int(edit["at"]) - 1
    if edit["edit"] == "drop":
        del transitions[at]
    elif edit["edit"] == "repeat":
        transitions.insert(at, deepcopy(transitions[at]))
    elif edit["edit"] == "swap":
        other = int(edit["with"]) - 1
        transitions[at], transitions[other] = transitions[other], transitions[at]
    elif edit["edit"] == "set":
        holder = transitions[at]["delta"] if edit["member"] in transitions[at]["delta"] else transitions[at]
        assert edit["member"] in holder
        holder[edit["member"]] = edit["value"]
    else:
        pytest.fail(f"unknown edit {edit['edit']}")


def check_edited_history(file: str, case: Json) -> None:
    document = load_file(file)
    transitions = deepcopy(load_file(f"{SET}/{document['history']}")["cases"])
    for edit in case["edits"]:
        apply_edit(transitions, edit)
    claims, space_id = [read_transition(transition) for transition in transitions], Bytes32(document["spaceId"])
    if case["kind"] == "linked_history":
        assert verify_history(space_id, claims).sequence == len(claims)
        return
    with pytest.raises(BrokenHistory) as caught:
        verify_history(space_id, claims)
    stated = case["firstBroken"]
    assert (str(caught.value.sequence), caught.value.rule) == (stated["dueSequence"], stated["rule"])
    assert str(claims[caught.value.sequence - 1].delta.sequence) == stated["claimedSequence"]


# Sequences and signatures


def check_sequence(file: str, case: Json) -> None:
    value = json.loads(case["jsonText"])
    if case["kind"] == "accepted":
        assert parse_sequence(value) == int(case["sequence"])
    else:
        with pytest.raises(InvalidInput):
            parse_sequence(value)


def read_key(file: str, name: str) -> LocalSigner:
    key = load_file(file)["keys"][name]
    signer = LocalSigner(key["privateKey"])
    assert signer.address == Address(key["address"])
    return signer


def check_ecdsa(file: str, case: Json) -> None:
    digest, signature, account = Bytes32(case["digest"]), parse_bytes(case["signature"]), Address(case["signer"])
    expected = case["expected"]
    if "signedBy" in case:
        assert read_key(file, case["signedBy"]).sign_digest(digest) == signature
    if "refused" not in expected:
        assert verify_signature(account, digest, signature) == account
        return
    with pytest.raises(InvalidSignature, match=REASONS[expected["refused"]]):
        verify_signature(account, digest, signature)
    if "address" in expected:
        assert recover_signer(digest, signature) == Address(expected["address"])
    else:
        with pytest.raises(InvalidSignature):
            recover_signer(digest, signature)


#: The words by which the package names each reason of the vectors.
REASONS = {
    "length": "bytes; a key's signature has exactly 65",
    "v": "v is",
    "high_s": "upper half|not below the curve's order",
    "r_or_s": "zero or not below",
    "no_point": "no point of the curve",
    "other_signer": "not by",
}


# Calls


class Registry:
    """A registry in memory, whose every verdict is the package's."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.spaces: dict[Bytes32, SpaceState] = {}

    def call(self, name: str, given: Json, authorization: Json) -> SpaceState:
        """Judge a call; return the space that it leaves behind, or raise the registry's error."""
        calls = {
            "registerSpace": self._register,
            "updateSpaceAuthorization": self._update,
            "commitTransition": self._commit,
        }
        space_id = Bytes32(given["spaceId"])
        after = calls[name](space_id, given, authorization)
        self.spaces[space_id] = after
        return after

    def _register(self, space_id: Bytes32, given: Json, authorization: Json) -> SpaceState:
        controller, authorizer = Address(given["controller"]), Address(given["authorizer"])
        approved = self._approves(controller, hash_message("registration", given), authorization)
        registered = space_id in self.spaces
        check_registration(
            space_id, controller, authorizer, Bytes32(given["salt"]), registered=registered, approved=approved
        )
        return SpaceState(SpaceAuthorization(controller, authorizer))

    def _update(self, space_id: Bytes32, given: Json, authorization: Json) -> SpaceState:
        state = self.spaces.get(space_id)
        nonce = state.authorization.config_nonce + 1 if state else 1
        struct_hash = hash_message("rotation", {**given, "nonce": str(nonce)})
        approved = state is not None and self._approves(state.authorization.controller, struct_hash, authorization)
        new_controller, new_authorizer = Address(given["newController"]), Address(given["newAuthorizer"])
        check_update(state, new_controller, new_authorizer, approved=approved)
        assert state is not None
        return replace(state, authorization=SpaceAuthorization(new_controller, new_authorizer, nonce))

    def _commit(self, space_id: Bytes32, given: Json, authorization: Json) -> SpaceState:
        state, stated = self.spaces.get(space_id), ExperienceDelta.from_json(given)
        transition = Transition.of(stated)
        approved = state is not None and self._approves(
            state.authorization.authorizer, transition.transition_id, authorization
        )
        check_commit(state, stated, approved=approved)
        assert state is not None
        return replace(state, head=verify_history(space_id, [transition], state.head))

    def _approves(self, account: Address, struct_hash: Bytes32, authorization: Json) -> bool:
        signature = parse_bytes(authorization["signature"])
        if not signature and Address(authorization["sender"]) == account:
            return True
        try:
            verify_signature(account, self.domain.digest(struct_hash), signature)
        except InvalidSignature:
            return False
        return True


def reach(file: str, name: str) -> Registry:
    """Return a registry in a named state, after every call that leads to it was accepted."""
    document = load_file(file)
    state = document["states"][name]
    registry = reach(file, state["after"]) if "after" in state else Registry(build_domain(document["domain"]))
    for call in state["calls"]:
        registry.call(call["call"], call["input"], call["authorization"])
    return registry


def check_rejection(file: str, case: Json) -> None:
    registry, stated = reach(file, case["state"]), case["error"]
    with pytest.raises(ContractError) as caught:
        registry.call(case["call"], case["input"], case["authorization"])

    decoded = decode_revert(stated["revertData"])
    for error in (caught.value, decoded):
        assert type(error).__name__ == stated["name"]
        assert error.signature == stated["signature"]
        assert {name: str(value) for name, value in vars(error).items()} == stated["arguments"]
    assert compute_selector(decoded.signature) == parse_bytes(stated["selector"])


def check_acceptance(file: str, case: Json) -> None:
    after = reach(file, case["state"]).call(case["call"], case["input"], case["authorization"])
    stated = case["after"]
    assert after == SpaceState(
        SpaceAuthorization(
            Address(stated["controller"]), Address(stated["authorizer"]), parse_sequence(stated["configNonce"])
        ),
        Head(Bytes32(stated["transitionId"]), Bytes32(stated["stateRoot"]), parse_sequence(stated["sequence"])),
    )


# Batches


def content_of(case: Json) -> bytes:
    return case["utf8"].encode() if "utf8" in case else bytes.fromhex(case["hex"][2:])


def operation_of(stated: Json) -> Operation:
    return Operation(content_of(stated["content"]), Bytes32(stated["salt"]))


def check_batch(file: str, case: Json) -> None:
    operations = [operation_of(stated) for stated in case["operations"]]
    assert [str(operation.compute_leaf()) for operation in operations] == case["leaves"]
    batch = compute_batch(operation.compute_leaf() for operation in operations)
    assert (str(batch.count), str(batch.root)) == (case["count"], case["root"])
    assert batch.to_payload() == content_of(case["payload"])


def check_inclusion(file: str, case: Json) -> None:
    batch = Batch(int(case["batch"]["count"]), Bytes32(case["batch"]["root"]))
    operation, stated = operation_of(case["operation"]), case["proof"]
    siblings = tuple(Bytes32(sibling) for sibling in stated["siblings"])
    proof = InclusionProof(int(stated["index"]), int(stated["count"]), siblings)
    if case["kind"] == "inclusion":
        assert str(verify_inclusion(batch, operation, proof)) == case["leaf"]
    else:
        with pytest.raises(NotIncluded) as refused:
            verify_inclusion(batch, operation, proof)
        assert case["refused"] in str(vars(refused.value))


def check_payload(file: str, case: Json) -> None:
    if case["kind"] == "payload":
        batch = Batch.from_payload(content_of(case["payload"]))
        assert (str(batch.count), str(batch.root)) == (case["count"], case["root"])
    else:
        with pytest.raises(MeleteError):
            Batch.from_payload(content_of(case["payload"]))


# Audit grants


def check_audit_type(file: str, case: Json) -> None:
    assert (grants.AUDIT_WITNESS_TYPE, str(grants.AUDIT_WITNESS_TYPEHASH)) == (case["text"], case["keccak256"])


def check_grant_id(file: str, case: Json) -> None:
    ends = parse_sequence(case["fromSequence"]), parse_sequence(case["toSequence"])
    assert str(compute_grant_id(Bytes32(case["spaceId"]), Address(case["auditor"]), *ends)) == case["grantId"]
    assert case["grantId"] not in case["mistakes"].values()


def check_witness_hash(file: str, case: Json) -> None:
    assert canonicalize_json(case["jsonText"]) == case["canonical"].encode("utf-8")
    assert str(compute_witness_hash(load_json(case["jsonText"]))) == case["witnessHash"]
    assert case["witnessHash"] not in case["mistakes"].values()


def check_refused_witness(file: str, case: Json) -> None:
    with pytest.raises(InvalidInput, match="a JSON object"):
        compute_witness_hash(load_json(case["jsonText"]))


def fold(case: Json) -> Bytes32:
    entries = (
        WitnessEntry(parse_sequence(entry["sequence"]), Bytes32(entry["transitionId"]), Bytes32(entry["witnessHash"]))
        for entry in case["entries"]
    )
    return fold_witness_root(entries, parse_sequence(case["fromSequence"]), parse_sequence(case["toSequence"]))


def check_witness_root(file: str, case: Json) -> None:
    root = Bytes32(bytes(32))
    for entry, stated in zip(case["entries"], case["roots"], strict=True):
        root = compute_next_witness_root(root, Bytes32(entry["transitionId"]), Bytes32(entry["witnessHash"]))
        assert str(root) == stated
    assert str(fold(case)) == case["witnessSetRoot"] == case["roots"][-1]
    assert case["witnessSetRoot"] not in case["mistakes"].values()


#: The words by which the package refuses each list that is no range.
FOLD_RULES: dict[str, tuple[type[MeleteError], str]] = {
    "from_zero": (ZeroFromSequence, "starts at 0"),
    "empty_range": (EmptyRange, "is empty"),
    "not_next": (InvalidInput, "must be {due}, the next one"),
    "beyond_range": (InvalidInput, "must be none after {end}"),
    "incomplete": (InvalidInput, "sequence {due} is next"),
}


def check_refused_fold(file: str, case: Json) -> None:
    error, words = FOLD_RULES[case["refused"]["rule"]]
    with pytest.raises(error, match=words.format(due=case["refused"].get("dueSequence"), end=case["toSequence"])):
        fold(case)


CHECKS: dict[str, dict[str, Callable[[str, Json], None]]] = {
    "types": {"type_string": check_text, "commitment_tag": check_text},
    "domains": {"domain": check_domain},
    "spaces": {"space_id": check_space_id, "registration": check_approval, "rotation": check_approval},
    "commitments": {
        "delta_commitment": check_commitment,
        "provenance_commitment": check_commitment,
        "locator_commitment": check_commitment,
    },
    "transitions": {"transition": check_transition},
    "history": {"transition_with_witness": check_witness},
    "broken_histories": {"broken_history": check_edited_history, "linked_history": check_edited_history},
    "sequences": {"accepted": check_sequence, "refused": check_sequence},
    "signatures": {"ecdsa": check_ecdsa},
    "batches": {
        "batch": check_batch,
        "inclusion": check_inclusion,
        "refused_inclusion": check_inclusion,
        "payload": check_payload,
        "refused_payload": check_payload,
    },
    "rejections": {"rejection": check_rejection, "acceptance": check_acceptance},
    "audit_grants": {
        "type_string": check_audit_type,
        "grant_id": check_grant_id,
        "witness_hash": check_witness_hash,
        "refused_witness": check_refused_witness,
        "witness_root": check_witness_root,
        "refused_fold": check_refused_fold,
    },
}


@pytest.mark.parametrize(("file", "case"), CASES)
def test_package_agrees_with_the_vector(file: str, case: Json) -> None:
    checks = CHECKS[Path(file).stem]
    assert case["kind"] in checks, "a kind of case that nothing here knows"
    checks[case["kind"]](file, case)


def test_every_file_is_known_and_holds_as_many_cases_as_it_says() -> None:
    files = {path.stem: load_file(f"{SET}/{path.name}") for path in (ROOT / SET).iterdir()}
    assert set(files) == set(CHECKS)
    assert {name: str(len(document["cases"])) for name, document in files.items()} == {
        name: document["caseCount"] for name, document in files.items()
    }


def members_of(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from members_of(inner)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_members_are_named_in_camel_case_and_names_in_snake_case(name: str) -> None:
    document = load_file(f"{SET}/{name}.json")
    # Names that serve as members: those of mistakes, keys and states.
    names = {
        name for member, value in members_of(document) if member in ("mistakes", "keys", "states") for name in value
    } | {case["name"] for case in document["cases"]}
    for member, _ in members_of(document):
        assert member in names or re.fullmatch("[a-z0-9]+([A-Z][a-z0-9]*)*", member)
    assert all(re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", name) for name in names)


def test_every_delta_is_a_document_of_the_schema() -> None:
    schema = Draft202012Validator(load_schema("experience-delta"))
    members = [pair for name in CHECKS for pair in members_of(load_file(f"{SET}/{name}.json"))]
    deltas = [
        value
        for member, value in members
        if member in ("delta", "input") and isinstance(value, dict) and "deltaCommitment" in value
    ]
    assert len(deltas) > 15
    for document in deltas:
        schema.validate(document)


def signed_cases() -> list[Any]:
    return [param for param in CASES if "signed" in param.values[1].get("authorization", {})]


@pytest.mark.parametrize(("file", "case"), signed_cases())
def test_signature_of_a_call_is_what_its_key_gives_for_the_message_named(file: str, case: Json) -> None:
    signed = case["authorization"]["signed"]
    message = signed["message"]
    # What is signed may be typed wrongly on purpose, so it is hashed by its own type string here.
    kinds = [member.split(" ") for member in signed["type"].partition("(")[2][:-1].split(",")]
    words = [
        int(message[name]).to_bytes(32, "big")
        if kind.startswith("uint")
        else parse_bytes(message[name]).rjust(32, b"\0")
        for kind, name in kinds
    ]
    struct_hash = keccak256(keccak256(signed["type"].encode()) + b"".join(words))
    domain = build_domain(signed.get("domain") or load_file(file)["domain"])
    signature = read_key(file, signed["by"]).sign_digest(domain.digest(struct_hash))
    sent = parse_bytes(case["authorization"]["signature"])
    if "altered" in signed:
        assert sent != signature
        assert sent[:32] == signature[:32]
    else:
        assert sent == signature


# The reading that shares nothing with the package


def read_again(*arguments: str) -> subprocess.CompletedProcess[str]:
    # -I keeps every path of this project out; -S the installed packages, and the package itself with them.
    command = [sys.executable, "-I", "-S", str(ROOT / "third_reading.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_third_reading_cannot_see_the_package_and_confirms_every_case() -> None:
    probe = subprocess.run([sys.executable, "-I", "-S", "-c", "import melete"], capture_output=True, check=False)
    assert probe.returncode == 1

    done = read_again()
    assert (done.returncode, done.stderr) == (0, "")
    *files, closing = done.stdout.splitlines()
    for name in CHECKS:
        assert f"{SET}/{name}.json: {len(load_file(f'{SET}/{name}.json')['cases'])} passed, 0 failed" in files
    passed = sum(int(re.fullmatch(r".*: (\d+) passed, 0 failed", line)[1]) for line in files)  # type: ignore[index]
    assert closing == f"{passed} passed, 0 failed"


def flip_last_digit(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def flip(*path: str | int) -> Callable[[Json], None]:
    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = flip_last_digit(document[path[-1]])

    return edit


def drop_a_case(document: Json) -> None:
    del document["cases"][0]


def add_an_unknown_member(document: Json) -> None:
    document["cases"][0]["note"] = "nothing checks this"


def rename_a_member(document: Json) -> None:
    case = document["cases"][0]
    case["delta"]["space_id"] = case["delta"].pop("spaceId")


def claim_an_unknown_kind(document: Json) -> None:
    document["cases"][0]["kind"] = "hearsay"


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("transitions.json", rename_a_member),
        ("history.json", flip("cases", 4, "witness", "delta", "salt")),
        ("broken_histories.json", flip("cases", 2, "firstBroken", "claimedSequence")),
        ("sequences.json", claim_an_unknown_kind),
        ("signatures.json", flip("cases", 0, "signature")),
        ("rejections.json", flip("cases", 0, "error", "revertData")),
        ("rejections.json", add_an_unknown_member),
        ("domains.json", drop_a_case),
        ("audit_grants.json", flip("cases", 1, "grantId")),
        ("audit_grants.json", flip("cases", -4, "refused", "dueSequence")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__qualname__.partition(".")[0],
)
def test_third_reading_refuses_a_set_with_one_thing_changed(
    tmp_path: Path, file: str, edit: Callable[[Json], None]
) -> None:
    folder = tmp_path / "vectors"
    copytree(ROOT / SET, folder / SET)
    target = folder / SET / file
    document = json.loads(target.read_text("utf-8"))
    edit(document)
    target.write_text(json.dumps(document), "utf-8")

    done = read_again(str(folder))
    assert done.returncode == 1
    assert f"{SET}/{file}: {len(load_file(f'{SET}/{file}')['cases'])} passed, 0 failed" not in done.stdout
    assert not done.stdout.splitlines()[-1].endswith(" 0 failed")


def test_genesis_is_where_every_history_of_the_vectors_starts() -> None:
    first = ExperienceDelta.from_json(load_file(f"{SET}/history.json")["cases"][0]["delta"])
    assert (first.prev_state_root, first.sequence) == (GENESIS.state_root, GENESIS.sequence + 1)
