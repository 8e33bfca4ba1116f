"""Audit bundles: what is judged of them without a chain, and the proofs within them."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import melete
from melete import Address, Bytes32, Head, Transition, keccak256
from melete.canonical import compute_content_hash
from melete.errors import BrokenBundle, InvalidJson, UnusableProof, VerificationError
from melete.memory import bundle_anchoring as anchoring_module
from melete.memory.bundle_anchoring import (
    ANCHORING_RULES,
    Anchoring,
    compute_grant_slot,
    verify_grant_by_proof,
    verify_roots_by_proof,
    with_anchoring,
)
from melete.memory.disclosure import (
    KIND,
    RULES,
    AuditBundle,
    DisclosedGrant,
    DisclosedTransition,
    Reference,
    fold_witness,
    verify_disclosure,
    write_witness,
)
from melete.memory.extensions.grants import WitnessEntry, compute_grant_id, fold_witness_root
from melete.memory.history import RULES as HISTORY_RULES
from melete.memory.proofs import compute_state_root_slot
from melete.memory.witness_kinds import DELTA
from melete.primitives import UINT64_MAX, ZERO_ADDRESS, ZERO_BYTES32, uint_word
from melete.resources import load_schema

from .witness_samples import OTHER_SPACE, SPACE, make_deltas, make_witness

AUDITOR, AUTHORIZER, REGISTRY = (Address(bytes([number]) * 20) for number in (0x11, 0x22, 0x33))
SCHEMA = Draft202012Validator(load_schema("audit-bundle"))


def make_bundle(first: int = 1, last: int = 6, space: Bytes32 = SPACE) -> AuditBundle:
    """The bundle of a range of a space that remembers a witness of its own at each number."""
    witnesses = [make_witness(number) for number in range(1, last + 1)]
    entries, root = [], ZERO_BYTES32
    for delta, witness in zip(make_deltas(witnesses, space), witnesses, strict=True):
        if delta.sequence >= first:
            transition = Transition.of(delta, AUTHORIZER)
            root = fold_witness(root, transition.transition_id, witness)
            entries.append(DisclosedTransition(transition, witness, root))
    grant = DisclosedGrant(compute_grant_id(space, AUDITOR, first, last), AUDITOR, first, last, root)
    start = entries[0].transition.delta.prev_state_root
    return AuditBundle(Reference(1, REGISTRY, space), grant, start, tuple(entries))


WHOLE, PART = make_bundle(), make_bundle(3, 5)


def fault_of(question: Callable[..., object], *arguments: object) -> BrokenBundle:
    with pytest.raises(BrokenBundle) as caught:
        question(*arguments)
    return caught.value


def with_entries(bundle: AuditBundle, entries: list[DisclosedTransition]) -> AuditBundle:
    return replace(bundle, entries=tuple(entries))


# What holds


@given(st.integers(1, 6), st.integers(0, 5))
def test_any_range_holds_and_ends_at_its_head(first: int, more: int) -> None:
    bundle = make_bundle(first, first + more)
    last = bundle.entries[-1].transition
    assert verify_disclosure(bundle) == Head(last.transition_id, last.next_state_root, first + more)


@pytest.mark.parametrize("bundle", [WHOLE, PART])
def test_root_is_the_one_that_a_grant_of_the_range_commits_to(bundle: AuditBundle) -> None:
    ends = bundle.grant.from_sequence, bundle.grant.to_sequence
    entries = [
        WitnessEntry(
            entry.transition.delta.sequence,
            entry.transition.transition_id,
            compute_content_hash(write_witness(entry.witness)),
        )
        for entry in bundle.entries
    ]
    assert fold_witness_root(entries, *ends) == bundle.grant.witness_set_root


@pytest.mark.parametrize("number", range(1, 16))
def test_a_witness_is_written_as_in_an_export(number: int) -> None:
    assert write_witness(make_witness(number)) == DELTA.to_json(make_witness(number))


@pytest.mark.parametrize("bundle", [WHOLE, PART, replace(PART, grant=replace(PART.grant, contract=REGISTRY))])
def test_a_bundle_comes_back_from_its_json(bundle: AuditBundle) -> None:
    document = json.loads(json.dumps(bundle.to_json()))
    assert document["kind"] == KIND
    assert AuditBundle.from_json(document) == bundle
    SCHEMA.validate(document)


def test_the_last_range_that_there_can_be_holds() -> None:
    witness, head = make_witness(1), Head(keccak256(b"t"), keccak256(b"root"), UINT64_MAX - 1)
    transition = Transition.of(witness.build_delta(SPACE, head), AUTHORIZER)
    root = fold_witness(ZERO_BYTES32, transition.transition_id, witness)
    grant_id = compute_grant_id(SPACE, AUDITOR, UINT64_MAX, UINT64_MAX)
    bundle = AuditBundle(
        Reference(2**256 - 1, REGISTRY, SPACE),
        DisclosedGrant(grant_id, AUDITOR, UINT64_MAX, UINT64_MAX, root),
        head.state_root,
        (DisclosedTransition(transition, witness, root),),
    )
    assert verify_disclosure(AuditBundle.from_json(bundle.to_json())).sequence == UINT64_MAX  # type: ignore[arg-type]


# What does not


@given(st.permutations(range(6)))
def test_entries_hold_in_no_order_but_the_ascending_one(order: list[int]) -> None:
    bundle = with_entries(WHOLE, [WHOLE.entries[place] for place in order])
    if order == sorted(order):
        verify_disclosure(bundle)
        return
    fault = fault_of(verify_disclosure, bundle)
    place = next(place for place, number in enumerate(order) if place != number)
    assert (fault.entry, fault.member) == (place + 1, f"/entries/{place}/delta/sequence")
    assert (fault.rule, fault.expected, fault.received) == ("sequence_skipped", place + 1, order[place] + 1)


@given(st.sets(st.integers(0, 5), max_size=5))
def test_no_part_of_a_range_passes_for_the_range(kept: set[int]) -> None:
    fault = fault_of(verify_disclosure, with_entries(WHOLE, [WHOLE.entries[place] for place in sorted(kept)]))
    due = next(place for place in range(6) if place not in kept) + 1
    whole_so_far = kept == set(range(len(kept)))
    assert (fault.entry, fault.rule) == (due, "range_incomplete" if whole_so_far else "sequence_skipped")


@given(st.permutations(range(6)))
def test_witnesses_open_in_no_order_but_their_own(order: list[int]) -> None:
    entries = [
        replace(entry, witness=WHOLE.entries[place].witness)
        for entry, place in zip(WHOLE.entries, order, strict=True)
    ]  # fmt: skip
    if order == sorted(order):
        return
    fault = fault_of(verify_disclosure, with_entries(WHOLE, entries))
    place = next(place for place, number in enumerate(order) if place != number)
    assert (fault.entry, fault.member, fault.rule) == (place + 1, f"/entries/{place}/witness", "delta_commitment")
    assert fault.expected == WHOLE.entries[place].transition.delta.delta_commitment
    assert fault.received == WHOLE.entries[order[place]].transition.delta.delta_commitment


def leaves(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    """Every value in a document that is neither an object nor an array, by its pointer."""
    if isinstance(value, dict):
        return [leaf for name, member in value.items() for leaf in leaves(member, f"{pointer}/{name}")]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, f"{pointer}/{index}")]
    return [(pointer, value)]


def with_value(document: Any, pointer: str, value: Any) -> Any:
    changed = deepcopy(document)
    *parents, last = pointer.split("/")[1:]
    holder = changed
    for token in parents:
        holder = holder[int(token) if isinstance(holder, list) else token]
    holder[int(last) if isinstance(holder, list) else last] = value
    return changed


LEAVES = leaves(PART.to_json())
#: What no hash binds: only a chain can say that it is right.
UNBOUND = ("/reference/chainId", "/reference/registry", "/grant/contract")


@given(st.sampled_from(LEAVES), st.data())
def test_one_character_changed_anywhere_is_found(leaf: tuple[str, Any], data: st.DataObject) -> None:
    pointer, text = leaf
    if text is None or pointer in UNBOUND or pointer.endswith("/authorizer"):
        return
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.sampled_from("0123456789abcdef").filter(lambda other: other != text[place].lower()))
    document = with_value(PART.to_json(), pointer, text[:place] + character + text[place + 1 :])
    with pytest.raises((BrokenBundle, InvalidJson)):
        verify_disclosure(AuditBundle.from_json(document))


@pytest.mark.parametrize("pointer", UNBOUND)
def test_what_no_hash_binds_is_left_to_a_chain(pointer: str) -> None:
    value = "2" if pointer.endswith("chainId") else str(AUDITOR)
    verify_disclosure(AuditBundle.from_json(with_value(PART.to_json(), pointer, value)))


GRANT = PART.grant


@pytest.mark.parametrize(
    ("rule", "member", "changed"),
    [
        ("range", "/grant/fromSequence", replace(PART, grant=replace(GRANT, from_sequence=0))),
        ("range", "/grant/toSequence", replace(PART, grant=replace(GRANT, to_sequence=2))),
        ("auditor", "/grant/auditor", replace(PART, grant=replace(GRANT, auditor=ZERO_ADDRESS))),
        ("grant_id", "/grant/grantId", replace(PART, grant=replace(GRANT, auditor=REGISTRY))),
        ("grant_id", "/grant/grantId", replace(PART, grant=replace(GRANT, from_sequence=2))),
        ("grant_id", "/grant/grantId", replace(PART, grant=replace(GRANT, to_sequence=6))),
        ("grant_id", "/grant/grantId", replace(PART, reference=Reference(1, REGISTRY, OTHER_SPACE))),
        ("start_state_root", "/startStateRoot", replace(PART, start_state_root=ZERO_BYTES32)),
        ("start_state_root", "/startStateRoot", replace(WHOLE, start_state_root=keccak256(b"root"))),
        ("witness_set_root", "/grant/witnessSetRoot", replace(PART, grant=replace(GRANT, witness_set_root=SPACE))),
    ],
)
def test_faults_of_the_whole_are_named(rule: str, member: str, changed: AuditBundle) -> None:
    fault = fault_of(verify_disclosure, changed)
    assert (fault.entry, fault.member, fault.rule) == (None, member, rule)


def test_what_is_first_in_the_order_of_the_rules_is_named_first() -> None:
    """Every fault at once; then each is mended in turn."""
    entry = PART.entries[0]
    delta = entry.transition.delta
    faulty = replace(
        PART,
        reference=replace(PART.reference, space_id=OTHER_SPACE),
        grant=replace(GRANT, from_sequence=0, auditor=ZERO_ADDRESS, witness_set_root=SPACE),
        start_state_root=ZERO_BYTES32,
        entries=(
            DisclosedTransition(
                Transition(
                    replace(
                        delta,
                        sequence=9,
                        prev_state_root=SPACE,
                        delta_commitment=ZERO_BYTES32,
                        profile_id=ZERO_BYTES32,
                    ),
                    SPACE,
                    SPACE,
                    ZERO_ADDRESS,
                ),
                replace(make_witness(1), profile_id=SPACE),
                SPACE,
            ),
        ),
    )
    mended: list[tuple[str, Callable[[AuditBundle], AuditBundle]]] = [
        ("range", lambda b: replace(b, grant=replace(b.grant, from_sequence=3))),
        ("auditor", lambda b: replace(b, grant=replace(b.grant, auditor=AUDITOR))),
        ("grant_id", lambda b: replace(b, reference=PART.reference)),
        ("start_state_root", lambda b: replace(b, start_state_root=PART.start_state_root)),
        ("zero_delta_commitment", lambda b: with_delta(b, delta_commitment=delta.delta_commitment)),
        ("zero_profile_id", lambda b: with_delta(b, profile_id=delta.profile_id)),
        ("sequence_skipped", lambda b: with_delta(b, sequence=3)),
        ("prev_state_root", lambda b: with_delta(b, prev_state_root=delta.prev_state_root)),
        ("transition_id", lambda b: with_transition(b, transition_id=entry.transition.transition_id)),
        ("next_state_root", lambda b: with_transition(b, next_state_root=entry.transition.next_state_root)),
        ("profile_id", lambda b: with_entry(b, witness=make_witness(1))),
        ("delta_commitment", lambda b: with_entry(b, witness=replace(entry.witness, provenance=b""))),
        ("provenance_commitment", lambda b: with_entry(b, witness=entry.witness)),
        ("authorizer", lambda b: with_transition(b, authorizer=AUTHORIZER)),
        ("witness_root", lambda b: with_entry(b, witness_root=entry.witness_root)),
        ("range_incomplete", lambda b: with_entries(b, list(PART.entries))),
        ("witness_set_root", lambda b: replace(b, grant=GRANT)),
    ]
    for rule, mend in mended:
        assert fault_of(verify_disclosure, faulty).rule == rule
        faulty = mend(faulty)
    assert verify_disclosure(faulty) == verify_disclosure(PART)


def with_entry(bundle: AuditBundle, **changes: Any) -> AuditBundle:
    return with_entries(bundle, [replace(bundle.entries[0], **changes), *bundle.entries[1:]])


def with_transition(bundle: AuditBundle, **changes: Any) -> AuditBundle:
    return with_entry(bundle, transition=replace(bundle.entries[0].transition, **changes))


def with_delta(bundle: AuditBundle, **changes: Any) -> AuditBundle:
    return with_transition(bundle, delta=replace(bundle.entries[0].transition.delta, **changes))


def test_a_range_that_is_claimed_to_be_enormous_costs_nothing() -> None:
    grant = replace(GRANT, to_sequence=UINT64_MAX, grant_id=compute_grant_id(SPACE, AUDITOR, 3, UINT64_MAX))
    fault = fault_of(verify_disclosure, replace(PART, grant=grant))
    assert (fault.entry, fault.rule) == (6, "range_incomplete")


def test_entries_beyond_the_range_are_not_read() -> None:
    entries = [*PART.entries, *PART.entries]
    fault = fault_of(verify_disclosure, with_entries(PART, entries))
    assert (fault.entry, fault.member, fault.rule) == (6, "/entries/3", "range_exceeded")


def test_every_rule_of_a_history_is_a_rule_here() -> None:
    assert set(HISTORY_RULES) <= set(RULES)
    # The same name for the same thing, whether the bundle or the chain contradicts it.
    assert set(RULES) & set(ANCHORING_RULES) == {"start_state_root", "authorizer"}


def test_a_fault_is_one_printable_sentence_and_shows_no_secret() -> None:
    witness = replace(make_witness(5), payload=b"\x1b[2J secret", delta_salt=keccak256(b"other salt"))
    fault = fault_of(
        verify_disclosure, with_entries(PART, [*PART.entries[:2], replace(PART.entries[2], witness=witness)])
    )
    assert isinstance(fault, VerificationError)
    message = str(fault)
    assert message.isprintable()
    assert message.endswith(".")
    assert "/entries/2/witness" in message
    for secret in (witness.delta_salt, witness.payload, make_witness(5).delta_salt):
        assert secret.hex() not in message


def test_a_bundle_does_not_show_its_secrets_when_it_is_printed() -> None:
    shown = repr(with_anchoring(PART, ANCHORED)) + str(PART)
    for entry in PART.entries:
        assert entry.witness.payload.hex() not in shown
        assert repr(entry.witness.payload)[2:-1] not in shown
        assert entry.witness.delta_salt.hex() not in shown


# Members and types


OTHER_FORMS = [True, 1, 1.5, [], {}, "", "0x", "0xg0", "0X" + "11" * 32, "0x" + "AB" * 32, " 1", "\ud800", "\u0663"]
#: Of these, what is right after all.
RIGHT_AS_WELL = {
    "payload": ["0x"],
    "provenance": ["0x"],
    "locator": ["", "0x", "0xg0", "0X" + "11" * 32, "0x" + "AB" * 32, " 1", "\u0663"],
    "anchoring": [{}],  # refused where it is read
}


@pytest.mark.parametrize("pointer", [pointer for pointer, _ in LEAVES])
def test_a_member_of_another_type_or_form_is_refused_where_it_stands(pointer: str) -> None:
    for value in OTHER_FORMS:
        if value in RIGHT_AS_WELL.get(pointer.rpartition("/")[2], []):
            continue
        document = with_value(PART.to_json(), pointer, value)
        with pytest.raises(InvalidJson) as caught:
            AuditBundle.from_json(document)
        assert caught.value.pointer.startswith((pointer, f"{pointer}Salt"))
        assert "g0" not in str(caught.value)
        assert value == "\ud800" or not SCHEMA.is_valid(document)


@pytest.mark.parametrize(
    "pointer", ["", "/reference", "/grant", "/entries/1", "/entries/1/delta", "/entries/1/witness"]
)
def test_an_object_has_its_members_and_no_others(pointer: str) -> None:
    document: Any = PART.to_json()
    holder = document
    for token in pointer.split("/")[1:]:
        holder = holder[int(token) if isinstance(holder, list) else token]
    for name in list(holder):
        kept = holder.pop(name)
        with pytest.raises(InvalidJson) as caught:
            AuditBundle.from_json(document)
        assert caught.value.pointer == f"{pointer}/{name}"
        assert not SCHEMA.is_valid(document)
        holder[name] = kept
    holder["\x1b[2J"] = 1
    with pytest.raises(InvalidJson) as caught:
        AuditBundle.from_json(document)
    assert caught.value.pointer == pointer
    assert str(caught.value).isprintable()
    assert not SCHEMA.is_valid(document)


@pytest.mark.parametrize("document", [None, True, 1, "{}", [], {}, [{}]])
def test_what_is_no_object_with_members_is_no_bundle(document: Any) -> None:
    with pytest.raises(InvalidJson):
        AuditBundle.from_json(document)


@pytest.mark.parametrize("kind", ["", "melete.audit-bundle", "melete.audit-bundle/2", KIND + "\n", KIND.upper()])
def test_another_kind_is_none_of_ours(kind: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        AuditBundle.from_json({**PART.to_json(), "kind": kind})
    assert caught.value.pointer == "/kind"


@pytest.mark.parametrize("chain_id", ["0", "-1", "01", "1.0", "0x1", str(2**256), "9" * 78, "9" * 10_000, "\u0661"])
def test_a_chain_id_is_a_decimal_of_256_bits(chain_id: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        AuditBundle.from_json(with_value(PART.to_json(), "/reference/chainId", chain_id))
    assert caught.value.pointer == "/reference/chainId"


def test_addresses_may_be_written_in_one_case_or_with_their_checksum() -> None:
    address = Address("0x5FbDB2315678afecb367f032d93F642f64180aa3")
    for text in (str(address), str(address).lower(), "0x" + address.hex().upper()):
        document = with_value(PART.to_json(), "/reference/registry", text)
        assert AuditBundle.from_json(document).reference.registry == address
    with pytest.raises(InvalidJson, match="checksum"):
        AuditBundle.from_json(
            with_value(PART.to_json(), "/reference/registry", str(address).swapcase().replace("0X", "0x"))
        )


# Proofs within a bundle, as a node gave them: test-vectors/audit-bundle

VECTORS = {
    case["name"]: case["bundle"]
    for case in json.loads(
        (Path(__file__).parents[3] / "test-vectors" / "audit-bundle" / "bundles.json").read_text("utf-8")
    )["cases"]
}
GRANTED = AuditBundle.from_json(VECTORS["granted"])
END = verify_disclosure(GRANTED)
ANCHORED = Anchoring.from_json(VECTORS["granted"]["anchoring"])


def test_proofs_come_back_from_their_json() -> None:
    document = json.loads(json.dumps(ANCHORED.to_json()))
    assert Anchoring.from_json(document) == ANCHORED
    SCHEMA.validate(with_anchoring(GRANTED, ANCHORED).to_json())
    assert Anchoring.from_json({**document, "grant": None}).grant is None


def test_roots_and_grant_are_proven_at_the_block_of_the_proofs() -> None:
    anchored = verify_roots_by_proof(GRANTED, END, ANCHORED, ANCHORED.block_hash)
    assert anchored.block.hash == ANCHORED.block_hash == ANCHORED.registry.proof.block_hash
    granted = verify_grant_by_proof(GRANTED, ANCHORED)
    assert granted is not None
    stated = GRANTED.grant
    assert (granted.grant.space_id, granted.grant.auditor) == (GRANTED.reference.space_id, stated.auditor)
    assert (granted.grant.from_sequence, granted.grant.to_sequence) == (stated.from_sequence, stated.to_sequence)
    assert granted.grant.witness_set_root == stated.witness_set_root
    assert granted.grant.granted_at > 0
    assert granted.grant.acknowledged_at == granted.grant.revoked_at == 0


def test_proofs_of_another_block_than_the_readers_say_nothing() -> None:
    with pytest.raises(UnusableProof, match="of block"):
        verify_roots_by_proof(GRANTED, END, ANCHORED, keccak256(b"another block"))


def test_a_proof_need_not_have_the_root_before_the_range() -> None:
    proof = ANCHORED.registry.proof
    last = replace(proof, slots=(proof.slots[-1],))
    verify_roots_by_proof(GRANTED, END, replace(ANCHORED, registry=replace(ANCHORED.registry, proof=last)))
    none = replace(proof, slots=())
    fault = fault_of(
        verify_roots_by_proof, GRANTED, END, replace(ANCHORED, registry=replace(ANCHORED.registry, proof=none))
    )
    assert (fault.rule, fault.received) == ("proof_slot", "none")


def test_roots_of_another_history_are_not_the_registrys() -> None:
    forged = AuditBundle.from_json(VECTORS["forged"])
    end = verify_disclosure(forged)
    fault = fault_of(verify_roots_by_proof, forged, end, ANCHORED)
    assert (fault.rule, fault.expected, fault.received) == ("state_root", END.state_root, end.state_root)


def test_a_grant_that_nobody_names_is_not_looked_for_and_one_without_a_name_is_refused() -> None:
    without = replace(ANCHORED, grant=None)
    assert verify_grant_by_proof(GRANTED, without) is None
    nameless = replace(GRANTED, grant=replace(GRANTED.grant, contract=None))
    assert verify_grant_by_proof(nameless, without) is None
    assert fault_of(verify_grant_by_proof, nameless, ANCHORED).rule == "contract"
    assert verify_grant_by_proof(nameless, ANCHORED, GRANTED.grant.contract) is not None
    assert fault_of(verify_grant_by_proof, GRANTED, without, REGISTRY).rule == "contract"


@given(st.data())
def test_one_byte_changed_anywhere_in_the_proofs_is_found(data: st.DataObject) -> None:
    document: Any = ANCHORED.to_json()
    # Of the registry's slots only the last root is asked for; another slot in place of the others may hold as well.
    asked = uint_word(compute_state_root_slot(GRANTED.reference.space_id, GRANTED.grant.to_sequence))
    slots = enumerate(ANCHORED.registry.proof.slots)
    free = {f"/registry/proof/storageProof/{number}/slot" for number, proof in slots if proof.slot != asked}
    places = [
        (pointer, text)
        for pointer, text in leaves(document)
        if pointer.rpartition("/")[2] != "address" and pointer not in free
    ]
    pointer, text = data.draw(st.sampled_from(places))
    place = data.draw(st.integers(2, len(text) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef").filter(lambda other: other != text[place].lower()))
    changed = Anchoring.from_json(with_value(document, pointer, text[:place] + digit + text[place + 1 :]))

    def judge() -> None:
        verify_roots_by_proof(GRANTED, END, changed)
        verify_grant_by_proof(GRANTED, changed)

    fault = fault_of(judge)
    assert fault.rule in {"block_hash", "proof", "proof_slot", "code"}
    assert fault.member.startswith("/anchoring/")


@pytest.mark.parametrize("value", [None, 1, "0x", [], {}, {"proof": None, "code": "0x"}, {"proof": {}, "code": "0x"}])
@pytest.mark.parametrize("name", ["registry", "grant", "blockHash"])
def test_proofs_of_another_form_are_refused_where_they_stand(name: str, value: Any) -> None:
    if (name, value) == ("grant", None):
        return
    with pytest.raises(InvalidJson) as caught:
        Anchoring.from_json({**ANCHORED.to_json(), name: value})
    assert caught.value.pointer.startswith(f"/anchoring/{name}")


def test_a_proof_of_too_many_nodes_is_refused_before_it_is_read() -> None:
    document = with_value(ANCHORED.to_json(), "/registry/proof/accountProof", ["0x80"] * 66)
    with pytest.raises(InvalidJson, match="at most 65"):
        Anchoring.from_json(document)
    assert not SCHEMA.is_valid(with_value(VECTORS["granted"], "/anchoring", document))


def test_code_is_ours_only_if_it_is_ours_but_for_its_immutables() -> None:
    from melete.resources import load_artifact

    code = bytearray(load_artifact("AuditGrant").deployed_bytecode)
    (start, _), *_ = load_artifact("AuditGrant").immutables
    assert anchoring_module._is_ours("AuditGrant", bytes(code))
    code[start + 31] ^= 1
    assert anchoring_module._is_ours("AuditGrant", bytes(code))
    code[start - 1] ^= 1
    assert not anchoring_module._is_ours("AuditGrant", bytes(code))
    assert not anchoring_module._is_ours("AuditGrant", b"")
    assert not anchoring_module._is_ours("AgentMemoryStateRegistry", bytes(code))


def test_grant_slots_are_those_that_the_compiler_states() -> None:
    text = (resources.files("melete") / "chain" / "abi" / "AuditGrant.json").read_text("utf-8")
    layout = json.loads(text)["storageLayout"]
    (variable,) = layout["storage"]
    assert (variable["label"], int(variable["slot"])) == ("_grants", anchoring_module.GRANTS_SLOT)
    assert layout["types"][variable["type"]]["key"] == "t_bytes32"
    members = {
        member["label"]: (int(member["slot"]), member["offset"], layout["types"][member["type"]]["label"])
        for member in layout["types"]["t_struct(Grant)_storage"]["members"]
    }
    assert members == {
        "spaceId": (anchoring_module.GRANT_SPACE, 0, "bytes32"),
        "witnessSetRoot": (anchoring_module.GRANT_ROOT, 0, "bytes32"),
        "auditor": (anchoring_module.GRANT_AUDITOR, 0, "address"),
        "acknowledgedAt": (anchoring_module.GRANT_AUDITOR, 20, "uint48"),
        "revokedAt": (anchoring_module.GRANT_AUDITOR, 26, "uint48"),
        "fromSequence": (anchoring_module.GRANT_RANGE, 0, "uint64"),
        "toSequence": (anchoring_module.GRANT_RANGE, 8, "uint64"),
        "grantedAt": (anchoring_module.GRANT_RANGE, 16, "uint48"),
    }


def test_every_immutable_of_an_audit_grant_is_its_registry() -> None:
    """Otherwise the registry that a grant stands over could not be read from its code."""
    code, registry = bytes(ANCHORED.grant.code), GRANTED.reference.registry  # type: ignore[union-attr]
    from melete.resources import load_artifact

    places = load_artifact("AuditGrant").immutables
    assert places
    if anchoring_module._is_ours("AuditGrant", code):
        assert {code[start : start + length] for start, length in places} == {registry.word}


def test_a_grants_words_are_read_as_the_contract_packs_them() -> None:
    auditor = (7 << 208 | 5 << 160 | int.from_bytes(AUDITOR, "big")).to_bytes(32, "big")
    ends = (9 << 128 | 4 << 64 | 2).to_bytes(32, "big")
    grant = anchoring_module._read_grant(SPACE, OTHER_SPACE, Bytes32(auditor), Bytes32(ends))
    assert grant == anchoring_module.Grant(SPACE, OTHER_SPACE, AUDITOR, 5, 7, 2, 4, 9)
    assert anchoring_module._read_grant(*[ZERO_BYTES32] * 4) is None
    assert compute_grant_slot(SPACE, 3) == compute_grant_slot(SPACE) + 3


# What it may import


def test_the_judgement_touches_no_chain_no_files_and_no_clock() -> None:
    tree = ast.parse((Path(melete.__file__).parent / "memory" / "disclosure.py").read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {
        *("__future__", "dataclasses", "re", "typing"),
        *("melete.canonical", "melete.errors", "melete.primitives"),
        *(f"melete.memory.{name}" for name in ("delta", "extensions.grants", "history", "space", "witness")),
    }
