"""The test vectors, run by the contract itself: on a chain with id 1, at the address that the vectors name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_abi import encode
from web3 import Web3

from melete import Address, ExperienceDelta, LocalSigner, MemoryRegistry, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import call, connect
from melete.chain.reverts import compute_selector
from melete.chain.transactions import LocalSender
from melete.errors import ContractError
from melete.memory.registry import FUNCTIONS
from melete.primitives import uint_word

FOLDER = Path(__file__).resolve().parents[2] / "test-vectors" / "agent-memory-state"
ANVIL_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def cases(name: str, *kinds: str) -> list[Any]:
    found = [case for case in load(name)["cases"] if not kinds or case["kind"] in kinds]
    assert found, f"{name} holds no case of {kinds}"
    return [pytest.param(case, id=case["name"]) for case in found]


REJECTIONS = load("rejections")


@pytest.fixture(scope="module")
def w3() -> Iterator[Web3]:
    with Anvil(chain_id=1, options=("--auto-impersonate",)) as node:
        yield connect(node.url, 1)


@pytest.fixture(scope="module")
def registry(w3) -> MemoryRegistry:
    """Our registry, moved to the address of the vectors; its domain follows."""
    deployed, _ = MemoryRegistry.deploy(w3, LocalSender(LocalSigner(ANVIL_KEY)))
    target = Address(REJECTIONS["domain"]["verifyingContract"])
    code = w3.eth.get_code(str(deployed.address))
    w3.provider.make_request("anvil_setCode", [str(target), code.to_0x_hex()])
    return MemoryRegistry(w3, target)


def view(registry: MemoryRegistry, name: str, arguments: bytes) -> str:
    return "0x" + call(registry.w3, registry.address, compute_selector(FUNCTIONS[name]) + arguments).hex()


@pytest.mark.parametrize("case", cases("transitions", "transition") + cases("history", "transition_with_witness"))
def test_the_contract_computes_every_transition_of_the_vectors(registry, case):
    delta = ExperienceDelta.from_json(case["delta"])
    assert view(registry, "hashExperienceDelta", delta.words()) == case["transitionId"]
    claimed = bytes.fromhex(case["transitionId"][2:])
    assert view(registry, "computeNextStateRoot", delta.prev_state_root + claimed) == case["nextStateRoot"]
    if "domain" not in case:  # one of its own is another registry's
        assert view(registry, "signingDigest", claimed) == case["signingDigest"]


@pytest.mark.parametrize("case", cases("spaces", "space_id"))
def test_the_contract_derives_every_space_id_of_the_vectors(registry, case):
    arguments = Address(case["initialController"]).word + bytes.fromhex(case["salt"][2:])
    assert view(registry, "deriveSpaceId", arguments) == case["spaceId"]


@pytest.mark.parametrize("case", cases("spaces", "registration", "rotation"))
def test_the_contract_hashes_every_controllers_message_of_the_vectors(registry, case):
    message = case["message"]
    rotation = case["kind"] == "rotation"
    names = ("newController", "newAuthorizer") if rotation else ("controller", "authorizer")
    words = bytes.fromhex(message["spaceId"][2:]) + b"".join(Address(message[name]).word for name in names)
    nonce = uint_word(int(message["nonce"])) if rotation else b""
    function = "hashSpaceAuthorization" if rotation else "hashSpaceRegistration"
    assert view(registry, function, words + nonce) == case["structHash"]


@pytest.mark.parametrize(
    "case", cases("commitments", "delta_commitment", "provenance_commitment", "locator_commitment")
)
def test_the_machine_computes_every_commitment_of_the_vectors(w3, harness, case):
    content = case["content"]
    raw = content["utf8"].encode() if "utf8" in content else bytes.fromhex(content["hex"][2:])
    salt = bytes.fromhex(case["salt"][2:])
    if case["kind"] == "delta_commitment":
        signature, values = "computeDeltaCommitment(bytes32,bytes32,bytes)", [bytes.fromhex(case["profileId"][2:])]
    elif case["kind"] == "provenance_commitment":
        signature, values = "computeProvenanceCommitment(bytes32,bytes)", []
    else:
        signature, values = "computeLocatorCommitment(bytes32,string)", []
        raw = raw.decode()
    types = signature[signature.index("(") + 1 : -1].split(",")
    data = compute_selector(signature) + encode(types, [*values, salt, raw])
    assert "0x" + call(w3, harness, data).hex() == case["commitment"]


@pytest.fixture(scope="module")
def harness(w3, project) -> Address:
    from melete.chain.transactions import transact

    project.load_contracts()
    code = bytes(project.get_contract("CommitmentHarness").constructor.serialize_transaction().data)
    address = transact(w3, LocalSender(LocalSigner(ANVIL_KEY)), 1, None, code).contract_address
    assert address is not None
    return address


# Calls


def encode_call(name: str, given: dict[str, str], signature: bytes) -> bytes:
    word = lambda member: bytes.fromhex(given[member][2:])  # noqa: E731
    account = lambda member: Address(given[member]).word  # noqa: E731
    if name == "commitTransition":
        words = ExperienceDelta.from_json(given).words()
    elif name == "registerSpace":
        words = word("spaceId") + account("controller") + account("authorizer") + word("salt")
    else:
        words = word("spaceId") + account("newController") + account("newAuthorizer")
    padded = signature + bytes(-len(signature) % 32)
    tail = uint_word(len(words) + 32) + uint_word(len(signature)) + padded
    return compute_selector(FUNCTIONS[name]) + words + tail


def perform(registry: MemoryRegistry, step: dict[str, Any]) -> None:
    """Send a call that has to succeed, from the account that the vectors name."""
    w3, sender = registry.w3, step["authorization"]["sender"]
    w3.provider.make_request("anvil_setBalance", [sender, hex(10**20)])
    data = encode_call(step["call"], step["input"], bytes.fromhex(step["authorization"]["signature"][2:]))
    sent = w3.eth.send_transaction(
        {"from": str(Address(sender)), "to": str(registry.address), "data": "0x" + data.hex(), "gas": 1_000_000}
    )
    assert w3.eth.wait_for_transaction_receipt(sent)["status"] == 1


def reach(registry: MemoryRegistry, name: str) -> None:
    state = REJECTIONS["states"][name]
    if "after" in state:
        reach(registry, state["after"])
    for step in state["calls"]:
        perform(registry, step)


@pytest.fixture
def in_state(registry, request) -> Iterator[MemoryRegistry]:
    """The registry in the state of the case, rolled back afterwards."""
    snapshot = registry.w3.provider.make_request("evm_snapshot", [])["result"]
    reach(registry, request.getfixturevalue("case")["state"])
    yield registry
    registry.w3.provider.make_request("evm_revert", [snapshot])


@pytest.mark.parametrize("case", cases("rejections", "rejection"))
def test_the_contract_refuses_every_call_of_the_vectors_with_its_very_words(in_state, case):
    approval = case["authorization"]
    data = encode_call(case["call"], case["input"], bytes.fromhex(approval["signature"][2:]))
    with pytest.raises(ContractError) as refused:
        call(in_state.w3, in_state.address, data, Address(approval["sender"]))
    name, signature = type(refused.value).__name__, case["error"]["signature"]
    values = [value for value in vars(refused.value).values() if not isinstance(value, str)]
    types = [kind for kind in signature[signature.index("(") + 1 : -1].split(",") if kind]
    assert name == case["error"]["name"]
    assert "0x" + (keccak256(signature.encode())[:4] + encode(types, values)).hex() == case["error"]["revertData"]


@pytest.mark.parametrize("case", cases("rejections", "acceptance"))
def test_the_contract_accepts_every_call_that_the_vectors_accept(in_state, case):
    perform(in_state, case)
    state = in_state.load_state(case["input"]["spaceId"])
    after = case["after"]
    assert state.authorization.controller == Address(after["controller"])
    assert state.authorization.authorizer == Address(after["authorizer"])
    assert str(state.authorization.config_nonce) == after["configNonce"]
    assert str(state.head.transition_id) == after["transitionId"]
    assert str(state.head.state_root) == after["stateRoot"]
    assert str(state.head.sequence) == after["sequence"]
