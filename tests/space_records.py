"""The optional records as tests call them, and registries that answer whatever a test wants.

The ABI stands here once more, by hand, so that a change of the contracts' own does not pass unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eth_abi import decode, encode
from eth_utils import keccak, to_canonical_address

from anvil import Log, Node, NodeError, Receipt, Reverted
from memory_state import DELTA_TYPE, encode_execute, plain, signature_hash
from memory_state import FUNCTIONS as REGISTRY_FUNCTIONS
from models.memory import Event, Rejection, word

# The ABI.

GRANT_TYPE = "(bytes32,bytes32,address,uint48,uint48,uint64,uint64,uint48)"

#: Of each record its functions: parameter types, return types, whether they leave the state alone.
FUNCTIONS: dict[str, dict[str, tuple[list[str], list[str], str]]] = {
    "DeletionAttestation": {
        "registry": ([], ["address"], "view"),
        "attest": ([DELTA_TYPE, "bytes32"], [], "nonpayable"),
        "evidenceOf": (["bytes32"], ["bytes32"], "view"),
    },
    "AuditGrant": {
        "registry": ([], ["address"], "view"),
        "grant": (["bytes32", "address", "uint64", "uint64", "bytes32"], ["bytes32"], "nonpayable"),
        "acknowledge": (["bytes32", "bytes32", "bytes32"], [], "nonpayable"),
        "revoke": (["bytes32", "bytes32"], [], "nonpayable"),
        "grantOf": (["bytes32"], [GRANT_TYPE], "view"),
        "spaceOf": (["bytes32"], ["bytes32"], "view"),
        "deriveGrantId": (["bytes32", "address", "uint64", "uint64"], ["bytes32"], "pure"),
        "foldWitnessRoot": (["bytes32", "bytes32", "bytes32"], ["bytes32"], "pure"),
    },
    "SpaceDescriptor": {
        "registry": ([], ["address"], "view"),
        "publish": (["bytes32", "string", "bytes32"], [], "nonpayable"),
        "clear": (["bytes32"], [], "nonpayable"),
        "descriptorOf": (["bytes32"], ["string", "bytes32"], "view"),
    },
}

#: Events: the types of the arguments that are indexed, then of those that are not.
EVENTS: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "DeletionAttestation": {"DeletionAttested": (["bytes32", "bytes32", "bytes32"], ["address"])},
    "AuditGrant": {
        "AuditGranted": (["bytes32", "address", "bytes32"], ["uint64", "uint64", "bytes32"]),
        "AuditAcknowledged": (["bytes32", "address", "bytes32"], []),
        "AuditRevoked": (["bytes32", "address", "bytes32"], []),
    },
    "SpaceDescriptor": {
        "DescriptorPublished": (["bytes32", "bytes32", "address"], ["string"]),
        "DescriptorCleared": (["bytes32", "address"], []),
    },
}

_SHARED: dict[str, list[str]] = {"InvalidRegistry": ["address"], "UnknownSpace": [], "NotSpaceController": []}
ERRORS: dict[str, dict[str, list[str]]] = {
    "DeletionAttestation": {
        **_SHARED,
        "UnknownTransition": [],
        "AlreadyAttested": [],
        "EmptyEvidenceCommitment": [],
    },
    "AuditGrant": {
        **_SHARED,
        "ZeroAuditor": [],
        "ZeroFromSequence": [],
        "EmptyRange": ["uint64", "uint64"],
        "RangeBeyondHead": ["uint64", "uint64"],
        "ZeroWitnessSetRoot": [],
        "GrantAlreadyExists": ["bytes32"],
        "UnknownGrant": ["bytes32"],
        "GrantOfAnotherSpace": ["bytes32", "bytes32"],
        "NotAuditor": ["address", "address"],
        "GrantAlreadyRevoked": ["bytes32"],
        "GrantAlreadyAcknowledged": ["bytes32"],
        "WitnessRootMismatch": ["bytes32", "bytes32"],
    },
    "SpaceDescriptor": {
        **_SHARED,
        "EmptyUri": [],
        "UriTooLong": ["uint256", "uint256"],
        "InvalidUriCharacter": ["uint256", "uint8"],
        "ZeroContentHash": [],
        "NoDescriptor": ["bytes32"],
    },
}
RECORDS = tuple(FUNCTIONS)


def decode_values(types: Sequence[str], data: bytes) -> tuple[Any, ...]:
    """Values that fill `data` exactly, as Solidity writes them."""
    values = decode(types, data)
    assert encode(types, values) == data, f"{data.hex()} is not how Solidity writes {types}"
    return tuple(map(as_bytes, values))


def as_bytes(value: Any) -> Any:
    """Addresses as bytes, also those inside a structure."""
    return tuple(map(as_bytes, value)) if isinstance(value, tuple) else plain(value)


# A record.


@dataclass(frozen=True)
class Record:
    """A deployed optional record. `rejection` and `answer` change nothing, `perform` sends a transaction."""

    node: Node
    address: bytes
    name: str

    def encode_call(self, function: str, *arguments: Any) -> bytes:
        types, _, _ = FUNCTIONS[self.name][function]
        return signature_hash(function, types)[:4] + encode(types, arguments)

    def answer(self, function: str, *arguments: Any, caller: bytes = bytes(20)) -> Any:
        """What a call returns: nothing, a value, a tuple of several, or a rejection."""
        answer = self.node.call(self.address, self.encode_call(function, *arguments), sender=caller)
        if isinstance(answer, Reverted):
            return self.decode_rejection(answer)
        values = decode_values(FUNCTIONS[self.name][function][1], answer)
        return values[0] if len(values) == 1 else values or None

    def rejection(self, caller: bytes, function: str, *arguments: Any) -> Rejection | None:
        """How a call would be rejected; None if it would not."""
        answer = self.answer(function, *arguments, caller=caller)
        return answer if isinstance(answer, Rejection) else None

    def perform(self, caller: bytes, function: str, *arguments: Any) -> Event | Rejection:
        """Send a call for good: its one event, or how it was rejected, as the call before it foretold."""
        return self.send(caller, self.address, self.encode_call(function, *arguments))

    def perform_through(self, wallet: bytes, caller: bytes, function: str, *arguments: Any) -> Event | Rejection:
        """Let a contract wallet make the call."""
        return self.send(caller, wallet, encode_execute(self.address, self.encode_call(function, *arguments)))

    def send(self, caller: bytes, target: bytes, data: bytes) -> Event | Rejection:
        foretold = self.node.call(target, data, sender=caller)
        receipt = self.node.send(target, data, sender=caller)
        if isinstance(foretold, Reverted):
            assert not receipt.succeeded
            assert receipt.logs == ()
            return self.decode_rejection(foretold)
        return self.only_event(receipt)

    def only_event(self, receipt: Receipt) -> Event:
        """The one event of a transaction that succeeded."""
        assert receipt.succeeded
        assert len(receipt.logs) == 1
        assert receipt.logs[0].address == self.address
        return self.decode_event(receipt.logs[0])

    def must_perform(self, caller: bytes, function: str, *arguments: Any) -> Event:
        """Set-up: whatever a test is about, this has to work first."""
        outcome = self.perform(caller, function, *arguments)
        if not isinstance(outcome, Event):
            raise NodeError(f"set-up was refused: {outcome}")
        return outcome

    def decode_event(self, log: Log) -> Event:
        for name, (indexed, unindexed) in EVENTS[self.name].items():
            if log.topics[0] == signature_hash(name, indexed + unindexed):
                topics = decode_values(indexed, b"".join(log.topics[1:]))
                return Event(name, topics + decode_values(unindexed, log.data))
        raise NodeError(f"no event of {self.name}: {log}")

    def decode_rejection(self, failure: Reverted) -> Rejection:
        """The error in revert data; what is none of ours keeps its bytes."""
        for name, types in ERRORS[self.name].items():
            if failure.data[:4] == signature_hash(name, types)[:4]:
                return Rejection(name, decode_values(types, failure.data[4:]))
        return Rejection(f"0x{failure.data.hex()}")


#: How a call ends that reverts without a word.
SILENT = Rejection("0x")


def deploy_record(node: Node, deployer: Any, project: Any, name: str, registry: bytes) -> Record:
    instance = deployer.deploy(getattr(project, name), registry)
    return Record(node, to_canonical_address(instance.address), name)


def deployment_rejection(node: Node, project: Any, name: str, registry: bytes) -> Rejection | None:
    """How the deployment of a record over `registry` would be rejected; None if it would not.

    What deploys a contract is code as well: it is put somewhere and called, and returns the code to be deployed.
    """
    scratch = keccak(text="scratch")[12:]
    node.set_code(scratch, bytes(getattr(project, name).constructor.serialize_transaction(registry).data))
    answer = node.call(scratch, b"")
    return Record(node, scratch, name).decode_rejection(answer) if isinstance(answer, Reverted) else None


# Registries that lie: code that answers each function with the same data, whatever the arguments.


def registry_selector(function: str) -> bytes:
    return signature_hash(function, REGISTRY_FUNCTIONS[function][0])[:4]


def code_that_answers(answers: Mapping[str, bytes], refusal: bytes = b"") -> bytes:
    """Code that answers some functions of a registry, and reverts with `refusal` for all others."""
    blobs = [refusal, *answers.values()]
    # PUSH0 CALLDATALOAD PUSH1 224 SHR; per function DUP1 PUSH4 selector EQ PUSH2 place JUMPI.
    start, step, ending = 5, 11, 12
    first = start + step * len(answers)
    offsets, at = [], first + ending * len(blobs)
    for blob in blobs:
        offsets.append(at)
        at += len(blob)

    def end(index: int, opcode: int) -> bytes:
        """JUMPDEST PUSH2 length DUP1 PUSH2 offset PUSH0 CODECOPY PUSH0 and the opcode that ends the call."""
        length, offset = len(blobs[index]).to_bytes(2), offsets[index].to_bytes(2)
        return b"\x5b\x61" + length + b"\x80\x61" + offset + b"\x5f\x39\x5f" + bytes([opcode])

    code = b"\x5f\x35\x60\xe0\x1c"
    for index, function in enumerate(answers, start=1):
        place = (first + ending * index).to_bytes(2)
        code += b"\x80\x63" + registry_selector(function) + b"\x14\x61" + place + b"\x57"
    code += end(0, 0xFD)
    for index in range(1, len(blobs)):
        code += end(index, 0xF3)
    return code + b"".join(blobs)


# Hashes, by the text of the decisions.

AUDIT_WITNESS = "AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)"


def derive_grant_id(space_id: bytes, auditor: bytes, from_sequence: int, to_sequence: int) -> bytes:
    return keccak(b"".join(map(word, (space_id, auditor, from_sequence, to_sequence))))


def fold_witness_root(prev_root: bytes, transition_id: bytes, witness_hash: bytes) -> bytes:
    return keccak(keccak(text=AUDIT_WITNESS) + prev_root + transition_id + witness_hash)
