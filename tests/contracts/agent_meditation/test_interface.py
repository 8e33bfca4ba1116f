"""What the registry is from outside: its functions, events and errors, and the standards that it declares."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from meditation_chain import Contract, signature_of, type_of
from models.meditation import keccak256

POLICY = "(bytes32,string,uint8,uint8,uint8,uint8,uint48,uint48,uint48[4])"
FLOOR = "(uint8,uint48,uint48[4])"
CYCLE = "(uint64,bytes32,bytes32[4],uint8,uint8,uint16,uint8,uint8,uint32,uint48,uint48,uint48,uint64,bytes32,string)"

FUNCTIONS = {
    f"enroll(bytes32[4],{POLICY},address,uint8)",
    "setOperator(address,uint8)",
    "revokeOperator(address,address)",
    "setController(address,address,uint8)",
    f"setPolicy(address,{POLICY})",
    f"setFloor(address,{FLOOR})",
    "demand(address,uint8,uint48)",
    "withdrawDemand(address,uint8)",
    f"report(address,{CYCLE})",
    "pulse(address,uint48)",
    "headOf(address)",
    "checkpointOf(address,uint8)",
    "rootAt(address,uint64)",
    "policyOf(address,uint32)",
    "policyEffectiveFrom(address,uint32)",
    "floorOf(address)",
    "demandOf(address,uint8)",
    "operatorPermissions(address,address)",
    "requirementsOf(address)",
    "layerStatus(address,uint8)",
    "signalStatus(address)",
    "computeRoot(bytes32[4])",
    "computeLayerCommitment(uint8,bytes32,bytes32,bytes32)",
}
WRITES = {"enroll", "setOperator", "revokeOperator", "setController", "setPolicy", "setFloor", "demand"}
WRITES |= {"withdrawDemand", "report", "pulse"}
PURE = {"computeRoot", "computeLayerCommitment", "supportsInterface", "CLOCK_MODE"}

#: Every event, `*` before what is indexed.
EVENTS = {
    "Enrolled(*address,*address,uint8,bytes32,uint48)",
    "ControllerChanged(*address,*address,*address,uint8)",
    "OperatorSet(*address,*address,uint8,*address)",
    "PolicyUpdated(*address,*uint32,bytes32,uint48,address)",
    "FloorUpdated(*address,*uint32,uint48,address)",
    "Demanded(*address,uint8,uint48,address)",
    "DemandWithdrawn(*address,uint8,address)",
    f"CycleRecorded(*address,*uint64,uint64,uint64,{CYCLE},uint8,uint48,address)",
    "LayerCommitmentChanged(*address,*uint8,*uint64,bytes32,bytes32)",
    "Pulsed(*address,*uint64,uint48,uint48,address)",
}

ERRORS = {
    "NotEnrolled(address)",
    "AlreadyEnrolled(address)",
    "NotSubject(address,address)",
    "NotController(address,address)",
    "MissingRight(uint8,uint8)",
    "MissingPermission(uint8,uint8)",
    "ControllerCannotSubmit(address)",
    "InvalidRights(uint8,uint8)",
    "ControllerIsSubject(address)",
    "RightsWithoutController(uint8)",
    "InvalidOperator(address)",
    "InvalidPermissions(uint8,uint8)",
    "InvalidLayer(uint8)",
    "InvalidLayerMask(uint8)",
    "RequiredNotSupported(uint8,uint8)",
    "InvalidTriggers(uint8)",
    "InvalidDisclosure(uint8,uint8)",
    "MissingInterval(uint8)",
    "DueByNotInFuture(uint48,uint48)",
    "CompletedOutsideScope(uint8,uint8)",
    "OpsOutsideScope(uint8,uint16)",
    "InconsistentOutcome(uint8,uint8,uint8)",
    "UnknownPolicyVersion(uint32,uint32)",
    "PolicyNotYetEffective(uint48,uint48)",
    "PolicySuperseded(uint48,uint48)",
    "LayersNotSupported(uint8,uint8)",
    "TriggerNotAllowed(uint8,uint8)",
    "BadBaseVersion(uint64,uint64)",
    "BadPreRoot(bytes32,bytes32)",
    "UnscopedLayerChanged(uint8,bytes32,bytes32)",
    "EndedBeforeStarted(uint48,uint48)",
    "EndedInFuture(uint48,uint48)",
    "CompletionNotLater(uint8,uint48,uint48)",
    "BadRestoresVersion(uint64,uint64)",
    "BadRestoredRoot(bytes32,bytes32)",
}


def interface_id(signatures: set[str]) -> bytes:
    """ERC-165: the exclusive-or of the selectors."""
    selectors = [int.from_bytes(keccak256(signature.encode())[:4], "big") for signature in signatures]
    return reduce(int.__xor__, selectors).to_bytes(4, "big")


@pytest.fixture(scope="session")
def abi(deployed_registry: Any) -> list[dict[str, Any]]:
    return [entry.model_dump() for entry in deployed_registry.contract_type.abi]


@pytest.fixture(scope="session")
def instructions(deployed_registry: Any) -> list[int]:
    """The opcodes of the runtime, without what they push and without the metadata at its end."""
    code = bytes(deployed_registry.provider.get_code(deployed_registry.address))
    code = code[: -2 - int.from_bytes(code[-2:], "big")]
    opcodes, at = [], 0
    while at < len(code):
        opcodes.append(code[at])
        at += 1 + max(0, code[at] - 0x5F if code[at] <= 0x7F else 0)
    return opcodes


def test_interface_id_is_the_xor_of_the_23_selectors(registry: Contract) -> None:
    assert len(FUNCTIONS) == 23
    assert interface_id(FUNCTIONS) == bytes.fromhex("9c81b550")
    assert registry.call("supportsInterface", bytes.fromhex("9c81b550")) is True


@pytest.mark.parametrize(
    ("signatures", "known_id"),
    [({"supportsInterface(bytes4)"}, "01ffc9a7"), ({"clock()", "CLOCK_MODE()"}, "da287a1d")],
    ids=["ERC-165", "ERC-6372"],
)
def test_standards_it_builds_on_are_declared(registry: Contract, signatures: set[str], known_id: str) -> None:
    assert interface_id(signatures).hex() == known_id
    assert registry.call("supportsInterface", bytes.fromhex(known_id)) is True


@pytest.mark.parametrize("unknown_id", ["ffffffff", "00000000", "9c81b551", "80ac58cd"])
def test_no_other_interface_is_declared(registry: Contract, unknown_id: str) -> None:
    assert registry.call("supportsInterface", bytes.fromhex(unknown_id)) is False


def test_clock_is_the_time_of_the_block(registry: Contract) -> None:
    assert registry.call("CLOCK_MODE") == "mode=timestamp"
    assert registry.call("clock") == registry.clock.now
    registry.clock.wait(1)
    assert registry.call("clock") == registry.clock.now


def test_functions_are_those_of_the_standards_and_no_others(abi: list[dict[str, Any]]) -> None:
    functions = {signature_of(entry) for entry in abi if entry["type"] == "function"}
    assert functions == FUNCTIONS | {"supportsInterface(bytes4)", "clock()", "CLOCK_MODE()"}


def test_only_the_ten_writes_can_change_anything_and_none_takes_ether(abi: list[dict[str, Any]]) -> None:
    for entry in abi:
        if entry["type"] == "function":
            reads = "pure" if entry["name"] in PURE else "view"
            expected = "nonpayable" if entry["name"] in WRITES else reads
            assert entry["stateMutability"] == expected, entry["name"]
    assert not [entry for entry in abi if entry["type"] in ("fallback", "receive")]


def test_events_are_those_of_the_standard(abi: list[dict[str, Any]]) -> None:
    def with_indexed(entry: dict[str, Any]) -> str:
        marked = [("*" if member["indexed"] else "") + type_of(member) for member in entry["inputs"]]
        return f"{entry['name']}({','.join(marked)})"

    assert {with_indexed(entry) for entry in abi if entry["type"] == "event"} == EVENTS


def test_errors_are_one_per_rule(abi: list[dict[str, Any]]) -> None:
    assert {signature_of(entry) for entry in abi if entry["type"] == "error"} == ERRORS


def test_registry_has_no_upgrade_path(instructions: list[int]) -> None:
    callcode, delegatecall, call, create, create2, selfdestruct = 0xF2, 0xF4, 0xF1, 0xF0, 0xF5, 0xFF
    assert not {callcode, delegatecall, call, create, create2, selfdestruct} & set(instructions)


def test_registry_fits_into_a_contract(deployed_registry: Any) -> None:
    assert len(deployed_registry.provider.get_code(deployed_registry.address)) <= 24_576
