"""What every optional record is not: upgradable, owned, payable, tied to a contract that is no registry, or more than
was decided."""

from __future__ import annotations

import pytest
from eth_utils import keccak, to_canonical_address
from hypothesis import assume, given
from hypothesis import strategies as st

from anvil import Reverted, from_hex
from memory_state import Behaviour, signature_hash
from models.memory import ZERO_ADDRESS, ZERO_WORD, Rejection, word
from space_records import (
    ERRORS,
    EVENTS,
    FUNCTIONS,
    RECORDS,
    code_that_answers,
    deploy_record,
    deployment_rejection,
)

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
    0x43: "NUMBER",
}
FUNCTIONS_OF_PRIVILEGE = (
    "owner()",
    "admin()",
    "transferOwnership(address)",
    "initialize(address)",
    "implementation()",
    "upgradeToAndCall(address,bytes)",
    "setRegistry(address)",
    "pause()",
    "withdraw()",
)
#: The records that prove transitions, and so need more than the standard's interface.
NEED_ROOTS = ("DeletionAttestation", "AuditGrant")


def opcodes(code: bytes) -> set[int]:
    """Every opcode of deployed code, the metadata at its end left away."""
    code = code[: len(code) - 2 - int.from_bytes(code[-2:])]
    found, at = set(), 0
    while at < len(code):
        found.add(code[at])
        at += 1 + (code[at] - 0x5F if 0x60 <= code[at] <= 0x7F else 0)
    return found


def types_of(parameters) -> list[str]:
    return [parameter.canonical_type for parameter in parameters]


@pytest.mark.parametrize("name", RECORDS)
def test_the_abi_has_the_decided_functions_events_and_errors_and_no_others(project, name):
    contract = getattr(project, name).contract_type
    assert {
        function.name: (types_of(function.inputs), types_of(function.outputs), function.stateMutability)
        for function in (*contract.view_methods, *contract.mutable_methods)
    } == FUNCTIONS[name]
    assert {
        event.name: (
            [item.canonical_type for item in event.inputs if item.indexed],
            [item.canonical_type for item in event.inputs if not item.indexed],
        )
        for event in contract.events
    } == EVENTS[name]
    assert {error.name: types_of(error.inputs) for error in contract.errors} == ERRORS[name]
    assert contract.fallback is None
    assert contract.receive is None


def test_the_code_can_call_nothing_but_views_and_cannot_go_away(record, node):
    used = opcodes(node.code(record.address))
    assert {FORBIDDEN_OPCODES[opcode] for opcode in used & set(FORBIDDEN_OPCODES)} == set()
    assert 0xFA in used, "STATICCALL is how the registry is asked"


def test_only_a_grant_reads_the_clock(records, node):
    timestamp = 0x42
    readers = {name for name in RECORDS if timestamp in opcodes(node.code(records[name].address))}
    assert readers == {"AuditGrant"}


@given(called=st.binary(min_size=4, max_size=4), arguments=st.binary(max_size=300))
def test_an_unknown_selector_reverts_without_data(record, node, called, arguments):
    assume(called not in {signature_hash(name, types)[:4] for name, (types, _, _) in FUNCTIONS[record.name].items()})
    answer = node.call(record.address, called + arguments)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


@pytest.mark.parametrize("function", FUNCTIONS_OF_PRIVILEGE)
def test_no_function_of_privilege_answers(record, node, deployer, function):
    sender = to_canonical_address(deployer.address)
    answer = node.call(record.address, keccak(text=function)[:4] + bytes(320), sender=sender)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_the_deployer_has_no_power(records, space, history, deployer):
    sender = to_canonical_address(deployer.address)
    calls = {
        "DeletionAttestation": ("attest", history[0].members(), keccak(text="evidence")),
        "AuditGrant": ("grant", space, sender, 1, 1, keccak(text="root")),
        "SpaceDescriptor": ("publish", space, "urn:a", keccak(text="content")),
    }
    for name, call in calls.items():
        assert records[name].rejection(sender, *call) == Rejection("NotSpaceController")


def valid_calls(space, delta, auditor) -> dict[str, list[tuple]]:
    """Calls that succeed when the controller sends them without ether."""
    return {
        "DeletionAttestation": [
            ("registry",),
            ("attest", delta.members(), keccak(text="evidence")),
            ("evidenceOf", ZERO_WORD),
        ],
        "AuditGrant": [
            ("registry",),
            ("grant", space, auditor.address, 1, 1, keccak(text="root")),
            ("grantOf", ZERO_WORD),
            ("spaceOf", ZERO_WORD),
            ("deriveGrantId", ZERO_WORD, ZERO_ADDRESS, 0, 0),
            ("foldWitnessRoot", ZERO_WORD, ZERO_WORD, ZERO_WORD),
        ],
        "SpaceDescriptor": [
            ("registry",),
            ("publish", space, "urn:a", keccak(text="content")),
            ("descriptorOf", ZERO_WORD),
        ],
    }


def test_no_function_takes_ether(record, space, history, controller, auditor, node):
    for call in valid_calls(space, history[0], auditor)[record.name]:
        data = record.encode_call(*call)
        assert isinstance(node.call(record.address, data, sender=controller.address), bytes), call
        answer = node.call(record.address, data, sender=controller.address, value=1)
        assert isinstance(answer, Reverted), call
        assert answer.data == b""


def test_plain_ether_is_refused(record, node, outsider):
    assert not node.send(record.address, b"", sender=outsider.address, value=1).succeeded


def test_deployment_writes_no_storage_and_use_changes_no_code(records, space, history, controller, auditor, node):
    codes = {name: node.code(records[name].address) for name in RECORDS}
    for name in RECORDS:
        assert node.storage_root(records[name].address) == EMPTY_ROOT
        write = valid_calls(space, history[0], auditor)[name][1]
        records[name].must_perform(controller.address, *write)
        assert node.storage_root(records[name].address) != EMPTY_ROOT
        assert node.code(records[name].address) == codes[name] != b""


# Which registry


def test_registry_is_the_one_given_to_the_constructor(record, registry):
    assert record.answer("registry") == registry.address


def test_a_descriptor_stands_over_any_registry_of_the_standard(
    node, deployer, project, registries, controller, authorizer, relayer
):
    other = registries["NormativeMemoryRegistry"]
    request = other.registration(controller, authorizer.address, keccak(text="space"))
    other.must_perform(request, relayer.address)
    record = deploy_record(node, deployer, project, "SpaceDescriptor", other.address)
    record.must_perform(controller.address, "publish", request.space_id, "urn:a", keccak(text="content"))
    rejection = record.rejection(controller.address, "publish", keccak(text="nowhere"), "urn:a", ZERO_WORD)
    assert rejection == Rejection("UnknownSpace")


@pytest.mark.parametrize("name", NEED_ROOTS)
def test_a_record_that_proves_transitions_is_refused_over_a_registry_without_roots(node, project, registries, name):
    other = registries["NormativeMemoryRegistry"].address
    assert deployment_rejection(node, project, name, other) == Rejection("InvalidRegistry", (other,))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_deployed_over_the_registry(node, project, registry, name):
    assert deployment_rejection(node, project, name, registry.address) is None


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_refused_over_what_is_no_registry(node, project, outsider, wallets, records, name):
    addresses = [
        ZERO_ADDRESS,
        outsider.address,
        keccak(text="nobody")[12:],
        # Precompiled contracts: one answers a word to anything, one what it was asked.
        bytes(19) + b"\x02",
        bytes(19) + b"\x04",
        wallets[Behaviour.SAYS_YES].address,
        wallets[Behaviour.RETURNS_MEGABYTE_OF_YES].address,
        records["AuditGrant"].address,
    ]
    for address in addresses:
        assert deployment_rejection(node, project, name, address) == Rejection("InvalidRegistry", (address,))


KNOWN = keccak(keccak(text="MemorySpace(address initialController,bytes32 salt)") + word(1) + ZERO_WORD)


@pytest.mark.parametrize(
    "answers",
    [
        {"deriveSpaceId": b""},
        {"deriveSpaceId": KNOWN[:31]},
        {"deriveSpaceId": KNOWN + ZERO_WORD},
        {"deriveSpaceId": ZERO_WORD},
        {"deriveSpaceId": KNOWN[:31] + bytes([KNOWN[31] ^ 1])},
    ],
    ids=["nothing", "31_bytes", "64_bytes", "zero", "a_bit_flipped"],
)
@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_refused_over_a_registry_that_derives_other_ids(node, project, name, answers):
    liar = keccak(text="liar")[12:]
    node.set_code(liar, code_that_answers(answers | {"stateRootAt": ZERO_WORD}))
    assert deployment_rejection(node, project, name, liar) == Rejection("InvalidRegistry", (liar,))


@pytest.mark.parametrize("root", [b"", bytes(31), bytes(64), KNOWN], ids=["nothing", "31_bytes", "64_bytes", "a_root"])
@pytest.mark.parametrize("name", NEED_ROOTS)
def test_a_record_is_refused_over_a_registry_with_roots_of_nothing(node, project, name, root):
    liar = keccak(text="liar")[12:]
    node.set_code(liar, code_that_answers({"deriveSpaceId": KNOWN, "stateRootAt": root}))
    assert deployment_rejection(node, project, name, liar) == Rejection("InvalidRegistry", (liar,))


def test_the_registry_that_a_test_makes_up_passes_where_it_should(node, project):
    """Else the refusals above would prove nothing."""
    liar = keccak(text="liar")[12:]
    node.set_code(liar, code_that_answers({"deriveSpaceId": KNOWN, "stateRootAt": ZERO_WORD}))
    assert [deployment_rejection(node, project, name, liar) for name in RECORDS] == [None] * 3
