"""Storage proofs of a real node: what both registries answer, from a block's hash alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from eth_abi import decode, encode
from eth_abi.grammar import parse
from hypothesis import given
from hypothesis import strategies as st
from web3 import Web3

from melete import Address, Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import call, connect
from melete.chain.logs import load_block
from melete.chain.proofs import StorageProof, load_header, load_storage_proof, verify_storage_proof
from melete.chain.transactions import LocalSender, transact
from melete.errors import CodeMismatch, UnusableProof
from melete.meditation.layers import compute_root
from melete.meditation.proofs import (
    NOT_ENROLLED,
    load_subject_proof,
    verify_checkpoint_of,
    verify_head_of,
    verify_root_at,
)
from melete.meditation.status import LayerCheckpoint
from melete.memory.proofs import (
    compute_space_slot,
    load_space_proof,
    verify_authorization,
    verify_head,
    verify_space_state,
    verify_state_root_at,
)
from melete.memory.space import GENESIS
from melete.primitives import ZERO_BYTES32
from melete.resources import load_artifact

KEYS = [LocalSigner(keccak256(b"proofs %d" % number)) for number in range(4)]
CONTROLLER, AUTHORIZER, RELAYER, OPERATOR = KEYS
NOWHERE = keccak256(b"a space that nobody registered")


@pytest.fixture(scope="module")
def w3() -> Iterator[Web3]:
    with Anvil() as node:
        w3 = connect(node.url)
        for key in KEYS:
            w3.provider.make_request("anvil_setBalance", [str(key.address), hex(10**21)])  # type: ignore[arg-type]
        yield w3


def deploy(w3: Web3, contract: str) -> Address:
    code = load_artifact(contract).bytecode
    address = transact(w3, LocalSender(RELAYER), w3.eth.chain_id, None, code).contract_address
    assert address is not None
    return address


@pytest.fixture(scope="module")
def registry(w3: Web3) -> MemoryRegistry:
    return MemoryRegistry(w3, deploy(w3, "AgentMemoryStateRegistry"), sender=LocalSender(RELAYER))


@pytest.fixture(scope="module")
def code_hash(w3: Web3, registry: MemoryRegistry) -> Bytes32:
    return keccak256(bytes(w3.eth.get_code(str(registry.address))))  # type: ignore[arg-type]


def commit(registry: MemoryRegistry, space_id: Bytes32, payload: bytes) -> None:
    delta = Witness(compute_profile_id("test/1"), payload, keccak256(payload)).build_delta(
        space_id, registry.head(space_id)
    )
    registry.commit(delta, authorizer=AUTHORIZER)


@pytest.fixture(scope="module")
def space_id(registry: MemoryRegistry) -> Bytes32:
    """A space with three transitions and two updates, beside others."""
    for number in range(8):
        registry.register(AUTHORIZER.address, keccak256(b"other %d" % number), controller=CONTROLLER)
    space_id = registry.register(AUTHORIZER.address, keccak256(b"salt"), controller=CONTROLLER).space_id
    for number in range(3):
        commit(registry, space_id, b"%d" % number)
    for _ in range(2):
        registry.rotate(space_id, CONTROLLER.address, AUTHORIZER.address, controller=CONTROLLER)
    return space_id


# The memory registry


def test_head_authorization_and_roots_are_proven_from_a_block_hash(w3, registry, space_id, code_hash) -> None:
    block = load_block(w3, "latest")
    proof = load_space_proof(w3, registry.address, space_id, block, sequences=(0, 1, 2, 3, 4, 2**64 - 1))
    proof = StorageProof.from_json(json.loads(json.dumps(proof.to_json())))
    w3.provider.make_request("evm_mine", [])

    of = (proof, registry.address, space_id)
    assert verify_head(*of, block.hash, code_hash) == registry.head(space_id)
    assert verify_authorization(*of, block.hash, code_hash) == registry.authorization(space_id)
    assert verify_space_state(*of, block.hash, code_hash) == registry.load_state(space_id)
    for sequence in (0, 1, 2, 3, 4, 2**64 - 1):
        root = verify_state_root_at(*of, sequence, block.hash, code_hash)
        assert root == registry.state_root_at(space_id, sequence)
    assert verify_state_root_at(*of, 4, block.hash) == ZERO_BYTES32


def test_a_space_that_nobody_registered_is_proven_to_be_unknown(w3, registry, space_id) -> None:
    block = load_block(w3, "latest")
    proof = load_space_proof(w3, registry.address, NOWHERE, block, sequences=(1,))
    of = (proof, registry.address, NOWHERE)
    assert verify_head(*of, block.hash) is None
    assert verify_authorization(*of, block.hash) is None
    assert verify_state_root_at(*of, 1, block.hash) == ZERO_BYTES32


def test_a_space_without_transitions_is_proven_to_have_none(w3, registry) -> None:
    space_id = registry.register(AUTHORIZER.address, keccak256(b"empty"), controller=CONTROLLER).space_id
    block = load_block(w3, "latest")
    proof = load_space_proof(w3, registry.address, space_id, block)
    assert verify_head(proof, registry.address, space_id, block.hash) == GENESIS


def test_each_block_proves_its_own_head(w3, registry) -> None:
    space_id = registry.register(AUTHORIZER.address, keccak256(b"growing"), controller=CONTROLLER).space_id
    proofs = []
    for number in range(3):
        block = load_block(w3, "latest")
        proofs.append((block, load_space_proof(w3, registry.address, space_id, block)))
        commit(registry, space_id, b"%d" % number)
    for number, (block, proof) in enumerate(proofs):
        head = verify_head(proof, registry.address, space_id, block.hash)
        assert head is not None
        assert head.sequence == number
        for other, _ in proofs:
            if other != block:
                with pytest.raises(UnusableProof, match="of block"):
                    verify_head(proof, registry.address, space_id, other.hash)


def test_proof_of_another_space_account_or_code_is_refused(w3, registry, space_id) -> None:
    block = load_block(w3, "latest")
    proof = load_space_proof(w3, registry.address, space_id, block)
    other = deploy(w3, "AgentMemoryStateRegistry")
    with pytest.raises(UnusableProof, match="not of slot"):
        verify_head(proof, registry.address, NOWHERE, block.hash)
    with pytest.raises(UnusableProof, match="of account"):
        verify_head(proof, other, space_id, block.hash)
    with pytest.raises(UnusableProof, match="account proof"):
        verify_head(replace(proof, address=other), other, space_id, block.hash)
    with pytest.raises(CodeMismatch):
        verify_head(proof, registry.address, space_id, block.hash, keccak256(b"other code"))


def test_an_account_without_code_proves_nothing_of_a_space(w3, space_id) -> None:
    block = load_block(w3, "latest")
    for account in (RELAYER.address, Address(b"\x99" * 20)):
        proof = load_storage_proof(w3, account, [compute_space_slot(space_id)], block)
        assert verify_storage_proof(proof, account, block.hash).word(compute_space_slot(space_id)) == ZERO_BYTES32
        with pytest.raises(UnusableProof, match="no contract"):
            verify_head(proof, account, space_id, block.hash)


@pytest.fixture(scope="module")
def proof(w3, registry, space_id) -> StorageProof:
    return load_space_proof(w3, registry.address, space_id, load_block(w3, "latest"), sequences=(1, 9))


def with_byte(proof: StorageProof, place: int, bits: int) -> StorageProof:
    """Change one byte of all that the proof consists of: header, account nodes, slots' nodes, in that order."""
    document: Any = proof.to_json()
    texts: list[tuple[Any, Any]] = [(document, "header")]
    texts += [(document["accountProof"], index) for index in range(len(proof.account_nodes))]
    for number, slot in enumerate(proof.slots):
        texts += [(document["storageProof"][number]["proof"], index) for index in range(len(slot.nodes))]
    for holder, key in texts:
        raw = bytearray.fromhex(holder[key][2:])
        if place < len(raw):
            raw[place] ^= bits
            holder[key] = "0x" + raw.hex()
            return StorageProof.from_json(document)
        place -= len(raw)
    return with_byte(proof, 0, bits)


@given(place=st.integers(0, 6_000), bits=st.integers(1, 255))
def test_any_byte_changed_anywhere_in_a_proof_is_refused(proof, registry, space_id, place: int, bits: int) -> None:
    block_hash = proof.block_hash
    altered = with_byte(proof, place, bits)
    with pytest.raises(UnusableProof):
        verify_storage_proof(altered, registry.address, block_hash)


def test_every_single_node_byte_changed_is_refused(proof, registry) -> None:
    """All of them, once: a sample of bits, every byte of the nodes of the first slot."""
    block_hash = proof.block_hash
    first = replace(proof, slots=proof.slots[:1])
    total = len(proof.header) + sum(map(len, first.account_nodes)) + sum(map(len, first.slots[0].nodes))
    for place in range(total):
        with pytest.raises(UnusableProof):
            verify_storage_proof(with_byte(first, place, 1 << place % 8), registry.address, block_hash)


def test_headers_of_the_nodes_blocks_hash_to_their_hashes(w3) -> None:
    for number in range(0, load_block(w3, "latest").number, 5):
        block = load_block(w3, number)
        block_hash, header = load_header(w3, block)
        assert block_hash == block.hash == keccak256(header)


@pytest.mark.parametrize("hardfork", ["berlin", "london", "paris", "shanghai", "cancun", "prague"])
def test_blocks_of_every_fork_prove_what_they_hold(hardfork: str) -> None:
    with Anvil(hardfork=hardfork) as node:
        w3 = connect(node.url)
        account = Address(b"\x77" * 20)
        w3.provider.make_request("anvil_setCode", [str(account), "0x00"])  # type: ignore[arg-type]
        word = "0x" + (5).to_bytes(32, "big").hex()
        w3.provider.make_request("anvil_setStorageAt", [str(account), "0x" + "00" * 32, word])  # type: ignore[arg-type]
        w3.provider.make_request("evm_mine", [])  # type: ignore[arg-type]
        block = load_block(w3, "latest")
        proof = load_storage_proof(w3, account, [0, 1], block)
        proven = verify_storage_proof(proof, account, block.hash)
        assert [int.from_bytes(proven.word(slot), "big") for slot in (0, 1)] == [5, 0]


# The meditation registry


def signature_of(name: str) -> str:
    """A function's signature, by the ABI."""

    def expand(argument: dict[str, Any]) -> str:
        kind: str = argument["type"]
        return kind.replace("tuple", f"({','.join(map(expand, argument['components']))})") if "tuple" in kind else kind

    entry = next(e for e in load_artifact("AgentMeditationRegistry").abi if e.get("name") == name)
    return f"{name}({','.join(map(expand, entry['inputs']))})"


def calldata(name: str, *values: Any) -> bytes:
    signature = signature_of(name)
    types = [part.to_type_str() for part in parse(signature[len(name) :]).components]
    return keccak256(signature.encode())[:4] + encode(types, values)


@pytest.fixture(scope="module")
def meditation(w3: Web3) -> Address:
    return deploy(w3, "AgentMeditationRegistry")


@pytest.fixture(scope="module")
def send(w3: Web3, meditation: Address) -> Callable[..., None]:
    def run(key: LocalSigner, name: str, *values: Any) -> None:
        transact(w3, LocalSender(key), w3.eth.chain_id, meditation, calldata(name, *values))

    return run


BASELINE = [keccak256(b"layer %d" % number) for number in range(4)]


@pytest.fixture(scope="module")
def subject(w3: Web3, meditation: Address, send: Callable[..., None]) -> Address:
    """Enrolled with a controller, reported on twice, pulsed once."""
    subject = AUTHORIZER.address
    policy = {
        "supportedLayers": 15, "requiredLayers": 3, "allowedTriggers": 15, "disclosure": 1, "dueWindow": 60,
        "pulseInterval": 2**40, "maxInterval": [86400, 3600, 0, 0], "policyHash": keccak256(b"policy"), "policyURI": "",
    }  # fmt: skip
    enrolled = tuple(policy[name] for name in struct_members("enroll", "policy"))
    send(AUTHORIZER, "enroll", BASELINE, enrolled, str(CONTROLLER.address), 7)
    now = w3.eth.get_block("latest")["timestamp"]
    roots = compute_root(BASELINE)
    commitments = list(BASELINE)
    for version, (layer, mask) in enumerate(((1, 2), (2, 4)), start=1):
        commitments[layer] = keccak256(b"changed %d" % layer)
        report = {
            "baseVersion": version, "preRoot": roots, "postCommitments": list(commitments), "layerMask": mask | 1,
            "completedLayers": mask | 1, "opsMask": 0, "outcome": 0, "trigger": 0, "policyVersion": 1,
            "reportedStartedAt": now + version, "reportedEndedAt": now + version, "nextPlannedAt": now + 999,
            "restoresVersion": 0, "recordHash": keccak256(b"record"), "recordURI": "",
        }  # fmt: skip
        w3.provider.make_request("evm_setNextBlockTimestamp", [now + 10 * version])
        w3.provider.make_request("evm_mine", [])
        send(AUTHORIZER, "report", str(subject), tuple(report[name] for name in struct_members("report", "r")))
        roots = compute_root(commitments)
    send(AUTHORIZER, "pulse", str(subject), now + 5000)
    return subject


def struct_members(function: str, argument: str) -> list[str]:
    entry = next(e for e in load_artifact("AgentMeditationRegistry").abi if e.get("name") == function)
    found = next(a for a in entry["inputs"] if a["name"] == argument)
    return [component["name"] for component in found["components"]]


def view(w3: Web3, registry: Address, name: str, *values: Any) -> dict[str, Any]:
    """What a view answers, by the names of the members."""
    entry = next(e for e in load_artifact("AgentMeditationRegistry").abi if e.get("name") == name)
    components = entry["outputs"][0].get("components")
    answer = call(w3, registry, calldata(name, *values))
    if components is None:
        return {"": decode([entry["outputs"][0]["type"]], answer)[0]}
    kinds = [component["type"] for component in components]
    return dict(zip((component["name"] for component in components), decode(kinds, answer), strict=True))


def snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def as_view(answer: dict[str, Any]) -> dict[str, Any]:
    return {snake(name): Address(value) if snake(name) == "controller" else value for name, value in answer.items()}


def test_head_of_a_subject_is_proven_as_the_registry_answers_it(w3, meditation, subject) -> None:
    block = load_block(w3, "latest")
    proof = load_subject_proof(w3, meditation, subject, block)
    head = verify_head_of(proof, meditation, subject, block.hash)
    stated = as_view(view(w3, meditation, "headOf", str(subject)))
    assert {name: getattr(head, name) for name in stated} == stated
    assert (head.enrolled, head.state_version, head.record_count) == (True, 3, 3)


@pytest.mark.parametrize("layer", range(4))
def test_checkpoints_are_proven_as_the_registry_answers_them(w3, meditation, subject, layer: int) -> None:
    block = load_block(w3, "latest")
    proof = load_subject_proof(w3, meditation, subject, block)
    checkpoint = verify_checkpoint_of(proof, meditation, subject, layer, block.hash)
    stated = as_view(view(w3, meditation, "checkpointOf", str(subject), layer))
    assert {name: getattr(checkpoint, name) for name in stated} == stated
    assert (checkpoint.last_completed_at > 0) == (layer < 3)


def test_roots_of_every_version_are_proven_as_the_registry_answers_them(w3, meditation, subject) -> None:
    block, versions = load_block(w3, "latest"), (0, 1, 2, 3, 4, 2**64 - 1)
    proof = load_subject_proof(w3, meditation, subject, block, versions)
    for version in versions:
        root = verify_root_at(proof, meditation, subject, version, block.hash)
        assert root == view(w3, meditation, "rootAt", str(subject), version)[""]
    assert verify_root_at(proof, meditation, subject, 1, block.hash) == compute_root(BASELINE)


def test_an_address_that_is_not_enrolled_is_proven_to_be_none(w3, meditation, subject) -> None:
    block, stranger = load_block(w3, "latest"), OPERATOR.address
    proof = load_subject_proof(w3, meditation, stranger, block)
    assert verify_head_of(proof, meditation, stranger, block.hash) == NOT_ENROLLED
    assert verify_checkpoint_of(proof, meditation, stranger, 1, block.hash) == LayerCheckpoint()
    with pytest.raises(UnusableProof, match="not of slot"):
        verify_head_of(proof, meditation, subject, block.hash)


def test_proof_of_one_registry_says_nothing_of_the_other(w3, meditation, subject, registry, space_id) -> None:
    block = load_block(w3, "latest")
    proof = load_subject_proof(w3, meditation, subject, block)
    with pytest.raises(UnusableProof):
        verify_head(proof, meditation, space_id, block.hash)
    with pytest.raises(UnusableProof):
        verify_head(proof, registry.address, space_id, block.hash)
