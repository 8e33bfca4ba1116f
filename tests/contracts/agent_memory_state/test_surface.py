"""What the registry is not: upgradable, owned, payable, or more than was decided."""

from __future__ import annotations

import ape
import pytest
from eth_utils import keccak, to_canonical_address
from hypothesis import assume, given
from hypothesis import strategies as st

from anvil import Reverted, from_hex
from memory_state import ERRORS, EVENTS, FUNCTIONS, NORMATIVE_FUNCTIONS, encode_call, selector
from models.memory import ZERO_WORD, CommitTransition, Delta

#: The root of an account that stores nothing.
EMPTY_ROOT = from_hex("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421")

FORBIDDEN_OPCODES = {
    0xF0: "CREATE",
    0xF1: "CALL",
    0xF2: "CALLCODE",
    0xF4: "DELEGATECALL",
    0xF5: "CREATE2",
    0xFF: "SELFDESTRUCT",
    0x32: "ORIGIN",
    0x42: "TIMESTAMP",
    0x43: "NUMBER",
}

WELL_KNOWN_SLOTS = {
    "EIP-1967 implementation": int.from_bytes(keccak(text="eip1967.proxy.implementation")) - 1,
    "EIP-1967 beacon": int.from_bytes(keccak(text="eip1967.proxy.beacon")) - 1,
    "EIP-1967 admin": int.from_bytes(keccak(text="eip1967.proxy.admin")) - 1,
    "EIP-1822 logic": int.from_bytes(keccak(text="PROXIABLE")),
    "first slot": 0,
    "second slot": 1,
    "third slot": 2,
}

FUNCTIONS_OF_PRIVILEGE = (
    "owner()",
    "admin()",
    "pendingOwner()",
    "transferOwnership(address)",
    "renounceOwnership()",
    "acceptOwnership()",
    "initialize()",
    "initialize(address)",
    "implementation()",
    "proxiableUUID()",
    "upgradeTo(address)",
    "upgradeToAndCall(address,bytes)",
    "changeAdmin(address)",
    "pause()",
    "unpause()",
    "grantRole(bytes32,address)",
    "setHead(bytes32,bytes32,bytes32,uint64)",
    "withdraw()",
)


def instructions(code: bytes) -> list[tuple[int, bytes]]:
    """Opcode and immediate of every instruction, the metadata at the end left away."""
    code = code[: len(code) - 2 - int.from_bytes(code[-2:])]
    found, at = [], 0
    while at < len(code):
        size = code[at] - 0x5F if 0x60 <= code[at] <= 0x7F else 0
        found.append((code[at], code[at + 1 : at + 1 + size]))
        at += 1 + size
    return found


def types_of(parameters) -> list[str]:
    return [parameter.canonical_type for parameter in parameters]


def test_the_abi_has_the_decided_functions_and_no_others(project):
    contract = project.AgentMemoryStateRegistry.contract_type
    found = {
        function.name: (
            types_of(function.inputs),
            types_of(function.outputs),
            function.stateMutability,
        )
        for function in (*contract.view_methods, *contract.mutable_methods)
    }
    assert found == FUNCTIONS
    assert contract.fallback is None
    assert contract.receive is None


def test_the_abi_has_the_decided_events_and_no_others(project):
    """EIP-5267's event is the one more: it belongs to that interface, and nothing here emits it."""
    contract = project.AgentMemoryStateRegistry.contract_type
    found = {
        event.name: (
            [item.canonical_type for item in event.inputs if item.indexed],
            [item.canonical_type for item in event.inputs if not item.indexed],
        )
        for event in contract.events
    }
    assert found.pop("EIP712DomainChanged") == ([], [])
    assert found == EVENTS
    for event in contract.events:
        indexed = [item.indexed for item in event.inputs]
        assert indexed == sorted(indexed, reverse=True), event.name


def test_the_abi_has_the_decided_errors_and_no_others(project):
    """Two more come from the constructor's short strings, and cannot be raised after it."""
    contract = project.AgentMemoryStateRegistry.contract_type
    found = {error.name: types_of(error.inputs) for error in contract.errors}
    assert found.pop("InvalidShortString") == []
    assert found.pop("StringTooLong") == ["string"]
    assert found == ERRORS


def test_the_plain_registry_has_the_standard_interface_and_nothing_beside_it(project):
    contract = project.NormativeMemoryRegistry.contract_type
    methods = {function.name for function in (*contract.view_methods, *contract.mutable_methods)}
    assert methods == set(NORMATIVE_FUNCTIONS)
    assert {event.name for event in contract.events} == set(EVENTS)
    assert {error.name for error in contract.errors} == set(ERRORS)


def test_the_code_pushes_no_selector_beyond_the_decided_ones(memory_registry, node):
    """Read from the deployed code, so that nothing hides from the ABI."""
    pushed = {argument for opcode, argument in instructions(node.code(memory_registry.address)) if opcode == 0x63}
    selectors = {selector(name) for name in FUNCTIONS}
    errors = {keccak(text=f"{name}({','.join(types)})")[:4] for name, types in ERRORS.items()}
    magic, panic = from_hex("0x1626ba7e"), keccak(text="Panic(uint256)")[:4]
    known = selectors | errors | {magic, panic, keccak(text="InvalidShortString()")[:4], b"\xff" * 4}
    assert selectors <= pushed
    shifted = {int.from_bytes(value) for value in known}
    unknown = {value.hex() for value in pushed - known if not is_shifted(int.from_bytes(value), shifted)}
    assert unknown == set()


def is_shifted(value: int, known: set[int]) -> bool:
    """The optimizer drops trailing zero bits of a left-aligned selector and shifts further."""
    return any(
        candidate >> shift == value for candidate in known for shift in range(1, 8) if not candidate & (1 << shift) - 1
    )


def test_the_code_can_call_nothing_but_views_and_cannot_go_away(memory_registry, node):
    opcodes = {opcode for opcode, _ in instructions(node.code(memory_registry.address))}
    assert {FORBIDDEN_OPCODES[opcode] for opcode in opcodes & set(FORBIDDEN_OPCODES)} == set()
    assert 0xFA in opcodes, "STATICCALL is how wallets are asked"


@given(called=st.binary(min_size=4, max_size=4), arguments=st.binary(max_size=300))
def test_an_unknown_selector_reverts_without_data(memory_registry, node, called, arguments):
    assume(called not in {selector(name) for name in FUNCTIONS})
    answer = node.call(memory_registry.address, called + arguments)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_ape_reads_events_and_errors_by_name(project, deployer, accounts):
    """The ABI as its users see it, without the encoding and decoding of these tests."""
    registry = deployer.deploy(project.AgentMemoryStateRegistry)
    controller, authorizer = accounts[0], accounts[1]
    space_id = registry.deriveSpaceId(controller, ZERO_WORD)
    receipt = registry.registerSpace(space_id, controller, authorizer, ZERO_WORD, b"", sender=controller)
    assert receipt.events == [registry.SpaceRegistered(space_id, controller.address, authorizer.address)]
    delta = (space_id, 2, ZERO_WORD, keccak(b"delta"), ZERO_WORD, keccak(b"profile"), ZERO_WORD)
    with ape.reverts(registry.BadSequence, expected=1, received=2):
        registry.commitTransition(delta, b"", sender=authorizer)
    delta = (space_id, 1, *delta[2:])
    receipt = registry.commitTransition(delta, b"", sender=authorizer)
    (event,) = receipt.events
    assert event.event_name == "TransitionCommitted"
    head = registry.head(space_id)
    assert (event.transitionId, event.nextStateRoot, event.sequence) == tuple(head)
    assert head.sequence == 1


@pytest.mark.parametrize("function", FUNCTIONS_OF_PRIVILEGE)
def test_no_function_of_privilege_answers(memory_registry, node, deployer, function):
    sender = to_canonical_address(deployer.address)
    answer = node.call(memory_registry.address, keccak(text=function)[:4] + bytes(320), sender=sender)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


@pytest.mark.parametrize("size", range(4))
def test_calldata_without_a_whole_selector_reverts(memory_registry, node, size):
    answer = node.call(memory_registry.address, selector("domainSeparator")[:size])
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def valid_calls(registry, space: bytes, controller) -> dict[str, bytes]:
    """A call of every function that succeeds when the controller sends it without ether."""
    registration = registry.registration(controller, controller.address, keccak(text="payable"))
    delta = registry.next_delta(space)
    return {
        "deriveSpaceId": encode_call("deriveSpaceId", controller.address, ZERO_WORD),
        "registerSpace": encode_call(
            "registerSpace",
            registration.space_id,
            registration.controller,
            registration.authorizer,
            registration.salt,
            b"",
        ),
        "updateSpaceAuthorization": encode_call(
            "updateSpaceAuthorization", space, controller.address, controller.address, b""
        ),
        "commitTransition": encode_call(
            "commitTransition", delta.members(), registry.signed(delta, controller).signature
        ),
        "head": encode_call("head", space),
        "spaceAuthorization": encode_call("spaceAuthorization", space),
        "stateRootAt": encode_call("stateRootAt", space, 1),
        "hashExperienceDelta": encode_call("hashExperienceDelta", delta.members()),
        "computeNextStateRoot": encode_call("computeNextStateRoot", ZERO_WORD, ZERO_WORD),
        "hashSpaceRegistration": encode_call("hashSpaceRegistration", ZERO_WORD, bytes(20), bytes(20)),
        "hashSpaceAuthorization": encode_call("hashSpaceAuthorization", ZERO_WORD, bytes(20), bytes(20), 1),
        "domainSeparator": encode_call("domainSeparator"),
        "signingDigest": encode_call("signingDigest", ZERO_WORD),
        "eip712Domain": encode_call("eip712Domain"),
    }


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_takes_ether(memory_registry, node, controller, relayer, function):
    registration = memory_registry.registration(controller, controller.address, keccak(text="space"))
    memory_registry.must_perform(registration, relayer.address)
    data = valid_calls(memory_registry, registration.space_id, controller)[function]
    assert isinstance(node.call(memory_registry.address, data, sender=controller.address), bytes)
    answer = node.call(memory_registry.address, data, sender=controller.address, value=1)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_plain_ether_is_refused(memory_registry, node, outsider):
    assert not node.send(memory_registry.address, b"", sender=outsider.address, value=1).succeeded


def test_deployment_writes_no_storage(memory_registry, node):
    """No owner, no initializer, no flag: an empty registry is empty."""
    assert node.storage_root(memory_registry.address) == EMPTY_ROOT


@pytest.mark.parametrize("slot", WELL_KNOWN_SLOTS)
def test_the_well_known_slots_stay_empty_in_use(memory_registry, memory_space, authorizer, relayer, node, slot):
    memory_registry.commit_next(memory_space, authorizer, relayer.address)
    assert node.storage_root(memory_registry.address) != EMPTY_ROOT
    assert node.storage(memory_registry.address, WELL_KNOWN_SLOTS[slot]) == ZERO_WORD


def test_use_does_not_change_the_code(memory_registry, controller, authorizer, relayer, node):
    before = node.code(memory_registry.address)
    registration = memory_registry.registration(controller, authorizer.address, ZERO_WORD)
    memory_registry.must_perform(registration, relayer.address)
    memory_registry.commit_next(registration.space_id, authorizer, relayer.address)
    assert node.code(memory_registry.address) == before != b""


def test_the_deployer_has_no_power(memory_registry, memory_space, deployer):
    sender = to_canonical_address(deployer.address)
    delta = Delta(memory_space, 1, ZERO_WORD, *[keccak(b"x")] * 4)
    rejection = memory_registry.rejection(CommitTransition(delta), sender)
    assert rejection is not None
    assert rejection.error == "InvalidAuthorization"
