"""Audit bundles against a real node: made from registry and store, judged by proofs and by asking, with faults."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

from melete import Address, Bytes32, LocalSigner, MemoryRegistry, Witness, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.logs import load_block
from melete.chain.transactions import LocalSender
from melete.cli.main import run
from melete.errors import (
    BrokenBundle,
    EmptyRange,
    GrantAlreadyRevoked,
    NoContract,
    NodeRefused,
    NotAuthentic,
    NotSpaceController,
    RangeBeyondHead,
    UnknownGrant,
    UnknownSpace,
    UnusableLogs,
    UnusableProof,
    WitnessErased,
    WitnessMissing,
    WitnessRootMismatch,
    WrongChain,
    ZeroAuditor,
    ZeroFromSequence,
)
from melete.memory.bundle_anchoring import (
    Anchoring,
    compute_grant_slot,
    load_anchoring,
    load_block_by_hash,
    verify_authorizers,
    verify_grant_by_node,
    verify_grant_by_proof,
    verify_roots_by_node,
    verify_roots_by_proof,
    with_anchoring,
)
from melete.memory.bundle_building import build_audit_bundle, grant_bundle, verify_granted, write_bundle
from melete.memory.disclosure import AuditBundle, verify_disclosure
from melete.memory.extensions.audit import AuditGrant
from melete.memory.profiles import PLAIN
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32

HELD, BROKEN, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
KEYS = [LocalSigner(keccak256(b"bundle %d" % number)) for number in range(5)]
CONTROLLER, FIRST_AUTHORIZER, SECOND_AUTHORIZER, AUDITOR, OUTSIDER = KEYS
COUNT = 6
OFFLINE = ["json", "schema", "grant_id", "range", "transitions", "witnesses", "witness_set_root"]


@dataclass
class Place:
    """A chain with a registry, a record over it, a space with a rotation in its middle, and what opens it."""

    w3: Web3
    url: str
    registry: MemoryRegistry
    grants: AuditGrant
    space_id: Bytes32
    store: WitnessStore
    key_file: Path

    def build(self, first: int, last: int, **options: Any) -> AuditBundle:
        options = {"contract": self.grants.address, **options}
        return build_audit_bundle(self.registry, self.store, self.space_id, AUDITOR.address, first, last, **options)

    def rpc(self, method: str, *parameters: Any) -> Any:
        answer = self.w3.provider.make_request(method, list(parameters))  # type: ignore[arg-type]
        assert "error" not in answer, answer
        return answer["result"]


def witness_of(number: int, name: str = "tea") -> Witness:
    text = f"{name} {number}".encode()
    has_more = number % 2 == 0
    return Witness(
        PLAIN.id,
        text,
        keccak256(text),
        b"told by ada" if has_more else None,
        keccak256(text + b"p") if has_more else None,
        f"ipfs://{name}/{number}" if has_more else None,
        keccak256(text + b"l") if has_more else None,
    )


def fund(w3: Web3) -> None:
    for key in KEYS:
        w3.provider.make_request("anvil_setBalance", [str(key.address), hex(10**21)])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("bundles")
    key_file = folder / "store-key"
    key_file.write_text((b"\x01" * 32).hex())
    key_file.chmod(0o600)
    with Anvil() as node:
        w3 = connect(node.url)
        fund(w3)
        registry, _ = MemoryRegistry.deploy(w3, LocalSender(CONTROLLER))
        grants, _ = AuditGrant.deploy(registry, LocalSender(CONTROLLER))
        with WitnessStore.create(folder / "witnesses.db", StoreKey(b"\x01" * 32)) as store:
            space_id = registry.register(FIRST_AUTHORIZER.address, keccak256(b"tea"), controller=CONTROLLER).space_id
            for number in range(1, COUNT + 1):
                authorizer = FIRST_AUTHORIZER if number <= 3 else SECOND_AUTHORIZER
                if number == 4:
                    registry.rotate(space_id, CONTROLLER.address, SECOND_AUTHORIZER.address, controller=CONTROLLER)
                witness = witness_of(number)
                delta = witness.build_delta(space_id, registry.head(space_id))
                store.put_delta(delta, witness)
                registry.commit(delta, authorizer=authorizer)
            yield Place(w3, node.url, registry, grants, space_id, store, key_file)


@pytest.fixture(autouse=True)
def rolled_back(place: Place) -> Iterator[None]:
    """Every test leaves the chain as it found it."""
    snapshot = place.rpc("evm_snapshot")
    yield
    place.rpc("evm_revert", snapshot)


@pytest.fixture
def bundle(place: Place) -> AuditBundle:
    """Transitions 2 to 5, granted, with proofs."""
    made = place.build(2, 5)
    grant_bundle(place.grants, made)
    return with_anchoring(made, load_anchoring(place.w3, made))


@pytest.fixture
def verify(tmp_path, capsys, monkeypatch, place) -> Callable[..., tuple[int, dict[str, Any]]]:
    for name in [name for name in os.environ if name.startswith("MELETE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def judge(bundle: AuditBundle, *words: object) -> tuple[int, dict[str, Any]]:
        Path("bundle.json").write_text(json.dumps(bundle.to_json()), "utf-8")
        code = run(["verify", "bundle.json", "--json", *map(str, words)])
        captured = capsys.readouterr()
        assert captured.err == ""
        return code, json.loads(captured.out)

    return judge


def online(place: Place) -> tuple[str, str]:
    return "--rpc-url", place.url


def rule_of(question: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(BrokenBundle) as caught:
        question(*arguments)
    return caught.value.rule


# From grant to judgement


@pytest.mark.parametrize("ends", [(1, 1), (1, COUNT), (2, 5), (COUNT, COUNT)])
def test_any_range_is_made_granted_proven_and_held(place, verify, ends) -> None:
    made = place.build(*ends)
    grant_bundle(place.grants, made)
    made = with_anchoring(made, load_anchoring(place.w3, made))
    block_hash = Anchoring.from_json(made.anchoring).block_hash
    code, found = verify(made, "--offline", "--block-hash", block_hash)
    assert (code, found["held"]) == (HELD, [*OFFLINE, "state_root", "grant", "proofs"])
    code, found = verify(made, *online(place), "--from-block", 0)
    everything = [*OFFLINE, "proofs", "state_root", "authorizers", "block_of_proofs", "grant"]
    assert (code, found["held"], found["notJudged"]) == (HELD, everything, [])
    assert found["blockHash"] == str(load_block(place.w3, "latest").hash)
    code, found = verify(made, "--offline")
    assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])


def test_a_bundle_holds_the_transitions_and_witnesses_of_its_range_and_no_others(place, bundle) -> None:
    assert [entry.transition.delta.sequence for entry in bundle.entries] == [2, 3, 4, 5]
    assert [entry.witness for entry in bundle.entries] == [witness_of(number) for number in (2, 3, 4, 5)]
    authorizers = [FIRST_AUTHORIZER.address] * 2 + [SECOND_AUTHORIZER.address] * 2
    assert [entry.transition.authorizer for entry in bundle.entries] == authorizers
    assert bundle.start_state_root == place.registry.state_root_at(place.space_id, 1)
    text = json.dumps(bundle.to_json())
    for number in (1, 6):
        assert witness_of(number).delta_salt.hex() not in text


def test_the_auditor_acknowledges_the_root_that_the_bundle_folds_to(place, bundle, verify) -> None:
    as_auditor = AuditGrant(place.registry, place.grants.address, sender=LocalSender(AUDITOR))
    as_auditor.acknowledge(place.space_id, bundle.grant.grant_id, bundle.grant.witness_set_root)
    code, found = verify(bundle, *online(place))
    assert (code, found["acknowledgedAt"]) == (
        HELD,
        str(place.grants.grant_of(bundle.grant.grant_id).acknowledged_at),
    )
    assert found["acknowledgedAt"] != "0"


def test_a_bundle_outlives_what_is_committed_after_it(place, bundle, verify) -> None:
    witness = witness_of(COUNT + 1)
    delta = witness.build_delta(place.space_id, place.registry.head(place.space_id))
    place.registry.commit(delta, authorizer=SECOND_AUTHORIZER)
    assert verify(bundle, *online(place))[0] == HELD
    end = verify_disclosure(bundle)
    anchoring = load_anchoring(place.w3, bundle)
    assert verify_roots_by_proof(bundle, end, anchoring, anchoring.block_hash).is_ours


def test_a_bundle_without_a_grant_contract_leaves_the_grant_unjudged(place, verify) -> None:
    made = place.build(2, 3, contract=None)
    code, found = verify(made, *online(place))
    assert (code, found["notJudged"]) == (HELD, ["grant", "authorizers"])
    code, found = verify(made, *online(place), "--contract", place.grants.address)
    assert (code, found["rule"]) == (BROKEN, "grant_unknown")
    grant_bundle(place.grants, made)
    assert verify(made, *online(place), "--contract", place.grants.address)[0] == HELD


# Grants


def test_a_grant_that_was_never_made_is_broken_by_proof_and_by_node(place, verify) -> None:
    made = place.build(2, 5)
    code, found = verify(made, *online(place))
    assert (code, found["rule"], found["member"]) == (BROKEN, "grant_unknown", "/grant/grantId")
    assert found["held"] == [*OFFLINE, "state_root"]
    assert rule_of(load_anchoring, place.w3, made) == "grant_unknown"


def test_a_revoked_grant_is_broken_from_its_block_on(place, bundle, verify) -> None:
    before = load_block(place.w3, "latest")
    place.grants.revoke(place.space_id, bundle.grant.grant_id)
    code, found = verify(bundle, *online(place))
    assert (code, found["rule"], found["expected"]) == (BROKEN, "grant_revoked", "a grant in force")
    assert str(place.grants.grant_of(bundle.grant.grant_id).revoked_at) in found["received"]
    assert "state_root" in found["held"]
    assert verify(bundle, *online(place), "--block-hash", before.hash)[0] == HELD
    assert rule_of(load_anchoring, place.w3, bundle) == "grant_revoked"
    assert "grant" not in verify(bundle, "--offline")[1]["held"]


def test_a_grant_over_another_registry_is_broken_by_proof_and_by_node(place, bundle, verify) -> None:
    other, _ = MemoryRegistry.deploy(place.w3, LocalSender(CONTROLLER))
    elsewhere, _ = AuditGrant.deploy(other, LocalSender(CONTROLLER))
    moved = replace(bundle, grant=replace(bundle.grant, contract=elsewhere.address), anchoring=None)
    code, found = verify(moved, *online(place))
    assert (code, found["rule"], found["member"]) == (BROKEN, "grant_registry", "/grant/contract")
    assert (found["expected"], found["received"]) == (str(place.registry.address), str(other.address))
    assert rule_of(load_anchoring, place.w3, moved) == "grant_registry"


@pytest.mark.parametrize(
    ("member", "bits", "rule"),
    [
        (0, 1, "grant_space"),
        (1, 1, "grant_witness_set_root"),
        (2, 1, "grant_auditor"),
        (3, 1, "grant_range"),
        (3, 1 << 64, "grant_range"),
        (2, 1 << 208, "grant_revoked"),
    ],
)
def test_a_grant_of_other_terms_is_broken_by_proof_and_by_node(place, bundle, member, bits, rule) -> None:
    """No call leads there, so the contract's storage is changed."""
    slot = hex(compute_grant_slot(bundle.grant.grant_id, member))
    word = int(place.rpc("eth_getStorageAt", str(place.grants.address), slot, "latest"), 16) ^ bits
    place.rpc("anvil_setStorageAt", str(place.grants.address), slot, "0x" + word.to_bytes(32, "big").hex())
    place.rpc("evm_mine")
    block = load_block(place.w3, "latest")
    assert rule_of(verify_grant_by_node, bundle, place.w3, block) == rule
    assert rule_of(load_anchoring, place.w3, bundle) == rule


def test_contracts_that_only_look_like_ours_count_if_the_reader_names_them(place, bundle, verify) -> None:
    """The same behaviour under other code: a byte after the end, which never runs."""
    words = {"--registry": place.registry.address, "--contract": place.grants.address}
    for address in words.values():
        code = place.rpc("eth_getCode", str(address), "latest")
        place.rpc("anvil_setCode", str(address), code + "00")
    place.rpc("evm_mine")
    again = with_anchoring(bundle, load_anchoring(place.w3, bundle))
    block_hash = Anchoring.from_json(again.anchoring).block_hash
    for how in (online(place), ("--offline", "--block-hash", block_hash)):
        code, found = verify(again, *how)
        assert (code, len(found["couldNotTell"])) == (COULD_NOT_TELL, 2)
        assert {"state_root", "grant"}.isdisjoint(found["held"])
        code, found = verify(again, *how, *(word for pair in words.items() for word in pair))
        assert (code, found["couldNotTell"]) == (HELD, [])


@pytest.mark.parametrize("address", [Address(b"\x99" * 20), "registry"])
def test_what_is_no_audit_grant_is_left_open(place, bundle, verify, address) -> None:
    if address == "registry":
        address = place.registry.address
    moved = replace(bundle, grant=replace(bundle.grant, contract=address), anchoring=None)
    code, found = verify(moved, *online(place))
    assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "state_root"])
    assert str(address) in found["couldNotTell"][0]


# State roots


def forge(bundle: AuditBundle, place: Place) -> AuditBundle:
    """A history that starts where the range starts and fits together, and that no registry holds."""
    from melete import Head, Transition
    from melete.memory.disclosure import DisclosedTransition, fold_witness

    head, root, entries = Head(ZERO_BYTES32, bundle.start_state_root, 1), ZERO_BYTES32, []
    for number in range(2, 6):
        witness = witness_of(number, "forged")
        transition = Transition.of(witness.build_delta(place.space_id, head), FIRST_AUTHORIZER.address)
        head = Head(transition.transition_id, transition.next_state_root, number)
        root = fold_witness(root, transition.transition_id, witness)
        entries.append(DisclosedTransition(transition, witness, root))
    return replace(bundle, entries=tuple(entries), grant=replace(bundle.grant, witness_set_root=root))


def test_a_forged_history_is_told_from_the_registrys(place, bundle, verify) -> None:
    forged = forge(bundle, place)
    assert verify(forged, "--offline")[1]["rule"] == "state_root"
    code, found = verify(replace(forged, anchoring=None), *online(place))
    assert (code, found["entry"], found["rule"]) == (BROKEN, "5", "state_root")
    assert found["expected"] == str(place.registry.state_root_at(place.space_id, 5))
    assert found["held"] == OFFLINE


def test_transitions_that_are_not_there_yet_are_told(place, bundle, verify) -> None:
    from melete import Head, Transition
    from melete.memory.disclosure import DisclosedTransition, fold_witness
    from melete.memory.extensions.grants import compute_grant_id

    made, last = place.build(COUNT, COUNT, contract=None), COUNT + 1
    end = verify_disclosure(made)
    witness = witness_of(last)
    transition = Transition.of(witness.build_delta(place.space_id, end), SECOND_AUTHORIZER.address)
    root = fold_witness(made.grant.witness_set_root, transition.transition_id, witness)
    grant_id = compute_grant_id(place.space_id, AUDITOR.address, COUNT, last)
    ahead = replace(
        made,
        grant=replace(made.grant, grant_id=grant_id, to_sequence=last, witness_set_root=root),
        entries=(*made.entries, DisclosedTransition(transition, witness, root)),
    )
    assert verify_disclosure(ahead) == Head(transition.transition_id, transition.next_state_root, last)
    code, found = verify(ahead, *online(place))
    assert (code, found["rule"]) == (BROKEN, "state_root")
    assert "no such transition" in found["expected"]
    assert rule_of(load_anchoring, place.w3, ahead) == "state_root"


def test_a_wrong_chain_leaves_it_open_and_is_named(place, bundle, verify) -> None:
    with Anvil(chain_id=4242) as other:
        code, found = verify(bundle, "--rpc-url", other.url)
        assert (code, found["rule"], found["member"]) == (COULD_NOT_TELL, "node_chain_id", "/reference/chainId")
        assert (found["expected"], found["received"]) == ("31337", "4242")
        with pytest.raises(WrongChain):
            verify_roots_by_node(bundle, verify_disclosure(bundle), connect(other.url))


def test_a_node_of_another_chain_under_the_same_id_has_no_such_registry(place, bundle, verify) -> None:
    with Anvil() as other:
        code, found = verify(bundle, "--rpc-url", other.url)
        assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])
        assert "no code" in found["couldNotTell"][0]
        with pytest.raises(NoContract):
            verify_roots_by_node(bundle, verify_disclosure(bundle), connect(other.url))
        code, found = verify(
            bundle, "--rpc-url", other.url, "--block-hash", Anchoring.from_json(bundle.anchoring).block_hash
        )
        assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])


def test_a_registry_of_the_standard_alone_cannot_tell(place, bundle, verify) -> None:
    """It answers everything but `stateRootAt`: here, a registry whose selector of it is another."""
    code = bytes.fromhex(place.rpc("eth_getCode", str(place.registry.address), "latest")[2:])
    selector = keccak256(b"stateRootAt(bytes32,uint64)")[:4]
    assert selector in code
    other = code.replace(selector, b"\xff\xff\xff\xff")
    place.rpc("anvil_setCode", str(place.registry.address), "0x" + other.hex())
    code_, found = verify(replace(bundle, anchoring=None), *online(place))
    assert (code_, found["held"]) == (COULD_NOT_TELL, OFFLINE)
    assert "stateRootAt" in found["couldNotTell"][0]


# Blocks


def test_proofs_of_an_orphaned_block_are_told_and_the_node_is_believed(place, verify) -> None:
    made = place.build(2, 5)
    grant_bundle(place.grants, made)
    snapshot = place.rpc("evm_snapshot")
    place.rpc("evm_mine")
    orphaned = with_anchoring(made, load_anchoring(place.w3, made))
    block_hash = Anchoring.from_json(orphaned.anchoring).block_hash
    place.rpc("evm_revert", snapshot)
    place.rpc("evm_increaseTime", 1000)
    place.rpc("evm_mine")
    code, found = verify(orphaned, *online(place))
    assert (code, found["notJudged"]) == (HELD, ["block_of_proofs", "authorizers"])
    with pytest.raises(NodeRefused):
        load_block_by_hash(place.w3, block_hash)
    code, found = verify(orphaned, *online(place), "--block-hash", block_hash)
    assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])
    # Without a node, the reader's word stands for the chain.
    assert verify(orphaned, "--offline", "--block-hash", block_hash)[0] == HELD


def test_a_block_that_the_node_has_by_hash_and_not_by_number_is_refused(place, monkeypatch) -> None:
    block = load_block(place.w3, "latest")
    assert load_block_by_hash(place.w3, block.hash) == block
    other = replace(block, hash=keccak256(b"another"))
    monkeypatch.setattr("melete.memory.bundle_anchoring.load_block", lambda *_: other)
    with pytest.raises(NodeRefused, match="not on its chain"):
        load_block_by_hash(place.w3, block.hash)


def test_proofs_of_a_block_before_the_range_show_that_it_was_not_there(place, bundle) -> None:
    end = verify_disclosure(bundle)
    early = load_block(place.w3, place.w3.eth.block_number - 4)
    assert place.registry.head(place.space_id, early.number).sequence < 5
    assert rule_of(load_anchoring, place.w3, bundle, early) == "state_root"
    assert rule_of(verify_roots_by_node, bundle, end, place.w3, early) == "state_root"


def test_proofs_of_one_bundle_do_not_serve_another(place, bundle) -> None:
    other = place.build(3, 4)
    grant_bundle(place.grants, other)
    anchoring = load_anchoring(place.w3, other)
    end = verify_disclosure(bundle)
    assert rule_of(verify_roots_by_proof, bundle, end, anchoring) == "proof_slot"
    assert rule_of(verify_grant_by_proof, bundle, anchoring) == "proof_slot"
    own = Anchoring.from_json(bundle.anchoring)
    assert own.grant is not None
    assert rule_of(verify_grant_by_proof, bundle, replace(own, grant=own.registry)) == "proof_account"
    with pytest.raises(UnusableProof):
        verify_roots_by_proof(bundle, end, own, anchoring.block_hash)


# Authorizers


def test_a_wrong_authorizer_is_found_in_the_events(place, bundle, verify) -> None:
    entries = [*bundle.entries]
    entries[1] = replace(entries[1], transition=replace(entries[1].transition, authorizer=OUTSIDER.address))
    changed = replace(bundle, entries=tuple(entries))
    code, found = verify(changed, *online(place))
    assert (code, found["notJudged"]) == (HELD, ["authorizers"])
    code, found = verify(changed, *online(place), "--from-block", 0)
    assert (code, found["entry"], found["member"], found["rule"]) == (
        BROKEN,
        "3",
        "/entries/1/authorizer",
        "authorizer",
    )
    assert (found["expected"], found["received"]) == (str(FIRST_AUTHORIZER.address), str(OUTSIDER.address))


def test_events_from_too_late_a_block_leave_the_authorizers_open(place, bundle, verify) -> None:
    late = place.w3.eth.block_number
    code, found = verify(bundle, *online(place), "--from-block", late)
    assert code == COULD_NOT_TELL
    assert "transition 2" in found["couldNotTell"][0]
    with pytest.raises(UnusableLogs):
        verify_authorizers(bundle, place.w3, late, load_block(place.w3, "latest"))
    verify_authorizers(bundle, place.w3, 0, load_block(place.w3, "latest"))


# Making one


def test_a_bundle_is_made_from_any_block_at_or_before_its_first_transition(place) -> None:
    first = next(
        event.reference.block_number
        for event in place.registry.transitions(place.space_id)
        if event.delta.sequence == 3
    )
    made = place.build(3, 5)
    assert place.build(3, 5, from_block=first) == made
    with pytest.raises(UnusableLogs, match="transition 3"):
        place.build(3, 5, from_block=first + 1)


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ((0, 2), ZeroFromSequence),
        ((3, 2), EmptyRange),
        ((1, COUNT + 1), RangeBeyondHead),
        ((COUNT + 1, COUNT + 1), RangeBeyondHead),
    ],
)
def test_what_is_no_range_of_the_space_is_refused(place, ends, error) -> None:
    with pytest.raises(error):
        place.build(*ends)


def test_an_unknown_space_and_an_auditor_of_zeros_are_refused(place) -> None:
    with pytest.raises(UnknownSpace):
        build_audit_bundle(place.registry, place.store, keccak256(b"nowhere"), AUDITOR.address, 1, 2)
    with pytest.raises(ZeroAuditor):
        build_audit_bundle(place.registry, place.store, place.space_id, ZERO_ADDRESS, 1, 2)


def test_a_witness_that_is_missing_erased_altered_or_anothers_is_named(place, tmp_path) -> None:
    key = StoreKey(b"\x02" * 32)
    with WitnessStore.create(tmp_path / "other.db", key) as store:
        changed = replace(place, store=store)
        for number in (2, 3, 5):
            store.put(DELTA.place(place.space_id, number), witness_of(number))
        with pytest.raises(WitnessMissing) as missing:
            changed.build(2, 5)
        assert missing.value.number == 4
        store.put(DELTA.place(place.space_id, 4), witness_of(5))
        with pytest.raises(BrokenBundle) as foreign:
            changed.build(2, 5)
        assert (foreign.value.entry, foreign.value.rule) == (4, "delta_commitment")
        store.erase(DELTA.place(place.space_id, 4))
        with pytest.raises(WitnessErased):
            changed.build(2, 5)
        store._database.run("UPDATE witnesses SET sealed = zeroblob(64) WHERE number = ?", ((3).to_bytes(8, "big"),))
        with pytest.raises(NotAuthentic):
            changed.build(2, 5)


def test_a_grant_is_registered_once_and_never_replaced(place) -> None:
    made = place.build(2, 4)
    with pytest.raises(UnknownGrant):
        verify_granted(place.grants, made)
    granted = grant_bundle(place.grants, made)
    sent = place.w3.eth.get_transaction_count(str(CONTROLLER.address))
    assert grant_bundle(place.grants, made) == granted == verify_granted(place.grants, made)
    assert place.w3.eth.get_transaction_count(str(CONTROLLER.address)) == sent
    other = replace(made, grant=replace(made.grant, witness_set_root=keccak256(b"other")))
    with pytest.raises(WitnessRootMismatch):
        grant_bundle(place.grants, other)
    place.grants.revoke(place.space_id, made.grant.grant_id)
    with pytest.raises(GrantAlreadyRevoked):
        grant_bundle(place.grants, made)


def test_nobody_but_the_controller_grants(place) -> None:
    outsider = AuditGrant(place.registry, place.grants.address, sender=LocalSender(OUTSIDER))
    with pytest.raises(NotSpaceController):
        grant_bundle(outsider, place.build(2, 4))


# The command


@pytest.fixture
def melete(tmp_path, capsys, monkeypatch, place) -> Callable[..., tuple[int, dict[str, Any]]]:
    for name in [name for name in os.environ if name.startswith("MELETE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MELETE_RPC_URL", place.url)
    monkeypatch.setenv("MELETE_REGISTRY", str(place.registry.address))
    monkeypatch.setenv("MELETE_WITNESSES", str(place.store.path))
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(place.key_file))
    key = tmp_path / "key"
    key.write_text("0x" + keccak256(b"bundle 0").hex())
    key.chmod(0o600)

    def command(*words: object) -> tuple[int, dict[str, Any]]:
        code = run([*map(str, words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out.splitlines()[-1])

    return command


def words_for(place: Place, out: str, *more: object) -> tuple[object, ...]:
    ends = ("--from", 2, "--to", 5)
    return ("disclose", place.space_id, *ends, "--auditor", AUDITOR.address, "--out", out, *more)


def test_disclosing_registers_the_grant_and_writes_a_file_that_holds(place, melete, tmp_path) -> None:
    granted = ("--contract", place.grants.address, "--register", "--key-file", "key")
    code, found = melete(*words_for(place, "out.json", *granted))
    assert (code, found["transitions"], found["proof"]) == (HELD, "4", True)
    assert "0600" in found["secret"]
    path = tmp_path / "out.json"
    assert (path.stat().st_mode & 0o777, str(path.stat().st_size)) == (0o600, found["bytes"])
    assert melete("verify", "out.json", "--from-block", 0)[0] == HELD
    # Once registered, no key is needed; and nothing is written over.
    assert melete(*words_for(place, "again.json", "--contract", place.grants.address))[0] == HELD
    before = path.read_bytes()
    assert melete(*words_for(place, "out.json"))[0] == USAGE
    assert path.read_bytes() == before


def test_disclosing_without_the_grant_says_what_to_do_and_writes_nothing(place, melete, tmp_path) -> None:
    code, found = melete(*words_for(place, "out.json", "--contract", place.grants.address))
    assert (code, "--register" in found["error"]["message"]) == (USAGE, True)
    code, found = melete(*words_for(place, "out.json", "--contract", place.grants.address, "--register"))
    assert (code, "--key-file" in found["error"]["message"]) == (USAGE, True)
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("out", ["/proc/none/out.json", "key/out.json"])
def test_a_grant_is_not_registered_for_a_file_that_cannot_be_written(place, melete, out) -> None:
    granted = ("--contract", place.grants.address, "--register", "--key-file", "key")
    code, found = melete(*words_for(place, out, *granted))
    assert (code, found["error"]["name"]) == (COULD_NOT_TELL, "StoreNotWritten")
    assert list(place.grants.events(place.space_id)) == []


def test_a_grant_is_not_registered_where_the_node_gives_no_proofs(place, melete, tmp_path, monkeypatch) -> None:
    from web3 import HTTPProvider

    honest = HTTPProvider.make_request

    def make_request(self, method, params):
        if method == "eth_getProof":
            return {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no such method"}}
        return honest(self, method, params)

    monkeypatch.setattr(HTTPProvider, "make_request", make_request)
    granted = ("--contract", place.grants.address, "--register", "--key-file", "key")
    assert melete(*words_for(place, "out.json", *granted))[0] == COULD_NOT_TELL
    assert list(place.grants.events(place.space_id)) == []
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_grant_that_is_registered_now_is_proven_by_the_latest_block(place, melete, tmp_path) -> None:
    granted = ("--contract", place.grants.address, "--register", "--key-file", "key", "--block", "finalized")
    code, found = melete(*words_for(place, "out.json", *granted))
    assert (code, "--block" in found["error"]["message"]) == (USAGE, True)
    assert list(place.grants.events(place.space_id)) == []


def test_disclosing_without_a_contract_and_without_proofs_is_held_by_a_node(place, melete) -> None:
    code, found = melete(*words_for(place, "out.json", "--no-proof"))
    assert (code, found["contract"], found["proof"]) == (HELD, "", False)
    code, found = melete("verify", "out.json")
    assert (code, found["held"]) == (HELD, [*OFFLINE, "state_root"])
    assert melete("verify", "out.json", "--offline")[0] == COULD_NOT_TELL


@pytest.mark.parametrize(("more", "name"), [(("--from", 7, "--to", 7), "RangeBeyondHead"), (("--to", 1), "EmptyRange")])
def test_disclosing_what_is_not_there_writes_nothing(place, melete, tmp_path, more, name) -> None:
    code, found = melete(*words_for(place, "out.json", *more))
    assert (code, found["error"]["name"]) == (BROKEN, name)
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_a_written_bundle_reads_as_it_was_made(bundle, tmp_path) -> None:
    write_bundle(tmp_path / "bundle.json", bundle)
    assert AuditBundle.from_json(json.loads((tmp_path / "bundle.json").read_text("utf-8"))) == bundle
