"""The Agent Memory State as tests call it: accounts that approve, and a registry that is asked in requests.

The ABI stands here once more, by hand, so that a change of the contracts' own does not pass unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from eth_abi import decode, encode
from eth_account import Account as EthAccount
from eth_utils import keccak, to_canonical_address

from anvil import BLOCK_GAS, Log, Node, NodeError, Receipt, Reverted
from models.memory import (
    CURVE_ORDER,
    MAGIC_WORD,
    Accepted,
    CommitTransition,
    Delta,
    Event,
    MemoryStateModel,
    RegisterSpace,
    Rejection,
    Request,
    UpdateSpaceAuthorization,
    compute_domain_separator,
    compute_signing_digest,
    derive_space_id,
    hash_experience_delta,
    hash_space_authorization,
    hash_space_registration,
    recover_leniently,
)

# The ABI.

DELTA_TYPE = "(bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32)"

#: The standard's functions: parameter types, return types, whether they leave the state alone.
NORMATIVE_FUNCTIONS: dict[str, tuple[list[str], list[str], str]] = {
    "deriveSpaceId": (["address", "bytes32"], ["bytes32"], "pure"),
    "registerSpace": (["bytes32", "address", "address", "bytes32", "bytes"], [], "nonpayable"),
    "updateSpaceAuthorization": (["bytes32", "address", "address", "bytes"], [], "nonpayable"),
    "commitTransition": ([DELTA_TYPE, "bytes"], ["bytes32", "bytes32"], "nonpayable"),
    "head": (["bytes32"], ["bytes32", "bytes32", "uint64"], "view"),
    "spaceAuthorization": (["bytes32"], ["address", "address", "uint64"], "view"),
}

#: The views that our registry has beside them.
FURTHER_FUNCTIONS: dict[str, tuple[list[str], list[str], str]] = {
    "stateRootAt": (["bytes32", "uint64"], ["bytes32"], "view"),
    "hashExperienceDelta": ([DELTA_TYPE], ["bytes32"], "pure"),
    "computeNextStateRoot": (["bytes32", "bytes32"], ["bytes32"], "pure"),
    "hashSpaceRegistration": (["bytes32", "address", "address"], ["bytes32"], "pure"),
    "hashSpaceAuthorization": (["bytes32", "address", "address", "uint64"], ["bytes32"], "pure"),
    "domainSeparator": ([], ["bytes32"], "view"),
    "signingDigest": (["bytes32"], ["bytes32"], "view"),
    "eip712Domain": (
        [],
        ["bytes1", "string", "string", "uint256", "address", "bytes32", "uint256[]"],
        "view",
    ),
}
FUNCTIONS = NORMATIVE_FUNCTIONS | FURTHER_FUNCTIONS

#: Events: the types of the arguments that are indexed, then of those that are not.
EVENTS: dict[str, tuple[list[str], list[str]]] = {
    "SpaceRegistered": (["bytes32", "address", "address"], []),
    "SpaceAuthorizationUpdated": (["bytes32", "address", "address"], ["uint64"]),
    "TransitionCommitted": (["bytes32", "bytes32", "uint64"], ["bytes32"] * 6 + ["address"]),
}

ERRORS: dict[str, list[str]] = {
    "ZeroSpaceId": [],
    "ZeroAddress": [],
    "InvalidSpaceId": ["bytes32", "bytes32"],
    "SpaceAlreadyRegistered": [],
    "UnknownSpace": [],
    "ZeroDeltaCommitment": [],
    "ZeroProfileId": [],
    "BadSequence": ["uint64", "uint64"],
    "BadPreviousState": ["bytes32", "bytes32"],
    "InvalidAuthorization": [],
}


def signature_hash(name: str, types: Sequence[str]) -> bytes:
    return keccak(text=f"{name}({','.join(types)})")


def selector(name: str) -> bytes:
    return signature_hash(name, FUNCTIONS[name][0])[:4]


EVENT_OF_TOPIC = {signature_hash(name, indexed + plain): name for name, (indexed, plain) in EVENTS.items()}
ERROR_OF_SELECTOR = {signature_hash(name, types)[:4]: name for name, types in ERRORS.items()}


def plain(value: Any) -> Any:
    """Addresses as bytes, whatever the decoder makes of them."""
    return to_canonical_address(value) if isinstance(value, str) and value.startswith("0x") else value


def decode_words(types: Sequence[str], data: bytes) -> tuple[bytes | int, ...]:
    """Static values that fill `data` exactly."""
    assert len(data) == 32 * len(types), f"{len(data)} bytes cannot be {types}"
    return tuple(plain(value) for value in decode(types, data))


def decode_event(log: Log) -> Event:
    name = EVENT_OF_TOPIC[log.topics[0]]
    indexed, unindexed = EVENTS[name]
    arguments = decode_words(indexed, b"".join(log.topics[1:])) + decode_words(unindexed, log.data)
    return Event(name, arguments)


def decode_rejection(failure: Reverted) -> Rejection:
    """The error in revert data; what is none of ours keeps its bytes and the node's words."""
    name = ERROR_OF_SELECTOR.get(failure.data[:4])
    if name is None:
        return Rejection(f"0x{failure.data.hex()} ({failure.message})")
    return Rejection(name, decode_words(ERRORS[name], failure.data[4:]))


def encode_call(name: str, *arguments: Any) -> bytes:
    return selector(name) + encode(FUNCTIONS[name][0], arguments)


def encode_request(request: Request) -> bytes:
    if isinstance(request, RegisterSpace):
        return encode_call(
            "registerSpace",
            request.space_id,
            request.controller,
            request.authorizer,
            request.salt,
            request.signature,
        )
    if isinstance(request, UpdateSpaceAuthorization):
        return encode_call(
            "updateSpaceAuthorization",
            request.space_id,
            request.new_controller,
            request.new_authorizer,
            request.signature,
        )
    return encode_call("commitTransition", request.delta.members(), request.signature)


# Who approves.


@dataclass(frozen=True)
class Actor:
    """An account with a key, whatever code it delegates to."""

    address: bytes
    key: bytes

    @classmethod
    def from_key(cls, key: bytes) -> Actor:
        return cls(to_canonical_address(EthAccount.from_key(key).address), key)

    @classmethod
    def from_seed(cls, seed: str) -> Actor:
        return cls.from_key(keccak(text=seed))

    def sign(self, digest: bytes) -> bytes:
        return bytes(EthAccount.unsafe_sign_hash(digest, self.key).signature)


class Behaviour(IntEnum):
    """How a wallet answers: the enumeration of `ConfigurableWallet.sol`, in its order."""

    OWNER_SIGNED = 0
    SELF_SIGNED = 1
    HASH_APPROVED = 2
    AS_TOLD = 3
    SAYS_YES = 4
    SAYS_NO = 5
    REVERTS_WITH_NOTHING = 6
    REVERTS_WITH_REASON = 7
    REVERTS_WITH_MAGIC = 8
    REVERTS_WITH_MEGABYTE = 9
    LOOPS_FOREVER = 10
    HITS_INVALID_OPCODE = 11
    RETURNS_NOTHING = 12
    RETURNS_31_BYTES = 13
    RETURNS_64_BYTES = 14
    RETURNS_DIRTY_WORD = 15
    RETURNS_RIGHT_ALIGNED = 16
    RETURNS_TRUE = 17
    RETURNS_MEGABYTE_OF_YES = 18
    RETURNS_MEGABYTE_OF_NO = 19
    WRITES_FIRST = 20
    REENTERS_AND_INSISTS = 21
    REENTERS_AND_APPROVES = 22
    READS_AND_COMPARES = 23


#: These say yes to every digest and every signature.
ALWAYS_YES = frozenset(
    {
        Behaviour.SAYS_YES,
        Behaviour.RETURNS_64_BYTES,
        Behaviour.RETURNS_MEGABYTE_OF_YES,
        Behaviour.REENTERS_AND_APPROVES,
    }
)
#: These say yes to some: it depends on the signature, or on what they were told.
SOMETIMES_YES = frozenset({Behaviour.OWNER_SIGNED, Behaviour.SELF_SIGNED, Behaviour.HASH_APPROVED, Behaviour.AS_TOLD})
#: These never say yes, though some come close.
NEVER_YES = frozenset(Behaviour) - ALWAYS_YES - SOMETIMES_YES
#: These leave their caller no more than 1/64 of its gas.
BURNS_GAS = frozenset({Behaviour.LOOPS_FOREVER, Behaviour.HITS_INVALID_OPCODE})


@dataclass(frozen=True)
class Wallet:
    """A deployed `ConfigurableWallet`: an account itself, and code that other accounts may delegate to."""

    address: bytes
    behaviour: Behaviour
    owner: Actor


def encode_tell(yes: bool) -> bytes:
    return keccak(text="tell(bool)")[:4] + encode(["bool"], [yes])


def encode_approve(digest: bytes) -> bytes:
    return keccak(text="approve(bytes32)")[:4] + digest


def encode_execute(target: bytes, data: bytes) -> bytes:
    return keccak(text="execute(address,bytes)")[:4] + encode(["address", "bytes"], [target, data])


@dataclass
class Conduct:
    """A model of the wallet's code in one account: the wallet's own, or that of an account which delegates to it."""

    behaviour: Behaviour
    owner: bytes
    account: bytes
    told: bool = False
    approved: frozenset[bytes] = frozenset()

    def says_yes(self, digest: bytes, signature: bytes) -> bool:
        if self.behaviour is Behaviour.OWNER_SIGNED:
            return recover_leniently(digest, signature) == self.owner
        if self.behaviour is Behaviour.SELF_SIGNED:
            return recover_leniently(digest, signature) == self.account
        if self.behaviour is Behaviour.HASH_APPROVED:
            return signature == b"" and digest in self.approved
        if self.behaviour is Behaviour.AS_TOLD:
            return self.told
        return self.behaviour in ALWAYS_YES

    def __call__(self, digest: bytes, signature: bytes) -> bytes | None:
        if self.says_yes(digest, signature):
            return MAGIC_WORD
        return bytes.fromhex("ffffffff").ljust(32, b"\0")


def flip_s(signature: bytes) -> bytes:
    """The other signature of the same key over the same digest: n - s, and the other v."""
    s = CURVE_ORDER - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


def compact(signature: bytes) -> bytes:
    """The 64 bytes of ERC-2098: the parity of v in the highest bit of s."""
    parity = signature[64] - 27
    return signature[:32] + bytes([signature[32] | parity << 7]) + signature[33:64]


def with_v(signature: bytes, v: int) -> bytes:
    return signature[:64] + bytes([v])


def malformed_signatures(signature: bytes) -> dict[str, bytes]:
    """What one valid signature becomes when it is written in a way that the registry has to refuse."""
    r, s, v = signature[:32], signature[32:64], signature[64]
    return {
        "high_s": flip_s(signature),
        "high_s_with_the_same_v": with_v(flip_s(signature), v),
        "other_parity": with_v(signature, 55 - v),
        "v_0_or_1": with_v(signature, v - 27),
        "v_29": with_v(signature, 29),
        "v_31_or_32": with_v(signature, v + 4),
        "v_255": with_v(signature, 255),
        "compact_of_erc_2098": compact(signature),
        "64_bytes": signature[:64],
        "66_bytes": signature + b"\0",
        "66_bytes_with_one_before": b"\0" + signature,
        "twice_over": signature * 2,
        "padded_to_96_bytes": signature.ljust(96, b"\0"),
        "zeros": bytes(65),
        "zeros_with_v_27": with_v(bytes(65), 27),
        "r_zero": bytes(32) + s + bytes([v]),
        "s_zero": r + bytes(32) + bytes([v]),
        "s_of_the_order": r + CURVE_ORDER.to_bytes(32, "big") + bytes([v]),
        "r_of_the_order": CURVE_ORDER.to_bytes(32, "big") + s + bytes([v]),
        "all_ones": b"\xff" * 65,
        "vrs_instead_of_rsv": bytes([v]) + r + s,
        "one_byte": b"\x01",
        "one_zero_byte": b"\0",
        "empty": b"",
    }


# A registry.


@dataclass(frozen=True)
class Registry:
    """A deployed registry. `asks` are eth_calls and change nothing, `performs` are transactions."""

    node: Node
    address: bytes
    name: str
    chain_id: int

    @property
    def has_further_views(self) -> bool:
        return self.name == "AgentMemoryStateRegistry"

    def model(self) -> MemoryStateModel:
        """The model of this registry while it is empty."""
        return MemoryStateModel(self.chain_id, self.address)

    # Calls

    def view(self, function: str, *arguments: Any) -> Any:
        """What a view returns: a value, a tuple of several, or a rejection."""
        answer = self.node.call(self.address, encode_call(function, *arguments))
        if isinstance(answer, Reverted):
            return decode_rejection(answer)
        values = tuple(plain(value) for value in decode(FUNCTIONS[function][1], answer))
        return values[0] if len(values) == 1 else values

    def head(self, space_id: bytes) -> Any:
        return self.view("head", space_id)

    def space_authorization(self, space_id: bytes) -> Any:
        return self.view("spaceAuthorization", space_id)

    def state_root_at(self, space_id: bytes, sequence: int) -> Any:
        return self.view("stateRootAt", space_id, sequence)

    def ask(self, request: Request, caller: bytes, gas: int = BLOCK_GAS) -> tuple[bytes, ...] | Rejection:
        """What a request would return, or how it would be rejected."""
        answer = self.node.call(self.address, encode_request(request), sender=caller, gas=gas)
        if isinstance(answer, Reverted):
            return decode_rejection(answer)
        assert len(answer) % 32 == 0
        return tuple(answer[at : at + 32] for at in range(0, len(answer), 32))

    def rejection(self, request: Request, caller: bytes, gas: int = BLOCK_GAS) -> Rejection | None:
        """How a request would be rejected; None if it would not."""
        answer = self.ask(request, caller, gas)
        return answer if isinstance(answer, Rejection) else None

    def perform(self, request: Request, caller: bytes) -> Accepted | Rejection:
        """Send a request for good. The transaction has to end as the call before it foretold."""
        answer = self.ask(request, caller)
        receipt = self.node.send(self.address, encode_request(request), sender=caller)
        if isinstance(answer, Rejection):
            assert not receipt.succeeded
            assert receipt.logs == ()
            return answer
        return Accepted(self.only_event(receipt), answer)

    def perform_through(self, wallet: bytes, request: Request, caller: bytes) -> Accepted:
        """Let a contract wallet call the registry itself; it has to succeed."""
        data = encode_execute(self.address, encode_request(request))
        answer = self.node.call(wallet, data, sender=caller)
        assert isinstance(answer, bytes), answer
        (inner,) = decode(["bytes"], answer)
        returned = tuple(inner[at : at + 32] for at in range(0, len(inner), 32))
        return Accepted(self.only_event(self.node.send(wallet, data, sender=caller)), returned)

    def only_event(self, receipt: Receipt) -> Event:
        """The one event of a transaction that succeeded."""
        assert receipt.succeeded
        assert len(receipt.logs) == 1
        assert receipt.logs[0].address == self.address
        return decode_event(receipt.logs[0])

    def must_perform(self, request: Request, caller: bytes) -> Accepted:
        """Set-up: whatever a test is about, this has to work first."""
        outcome = self.perform(request, caller)
        if not isinstance(outcome, Accepted):
            raise NodeError(f"set-up was refused: {outcome}")
        return outcome

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What happens inside leaves the storage of the registry as it was."""
        before = self.node.storage_root(self.address)
        yield
        assert self.node.storage_root(self.address) == before

    # Digests, by the model

    def digest(self, struct_hash: bytes) -> bytes:
        return compute_signing_digest(compute_domain_separator(self.chain_id, self.address), struct_hash)

    # Requests that are right in every way but one's own

    def registration(self, controller: Actor, authorizer: bytes, salt: bytes, *, signed: bool = True) -> RegisterSpace:
        space_id = derive_space_id(controller.address, salt)
        digest = self.digest(hash_space_registration(space_id, controller.address, authorizer))
        signature = controller.sign(digest) if signed else b""
        return RegisterSpace(space_id, controller.address, authorizer, salt, signature)

    def update(
        self,
        space_id: bytes,
        new_controller: bytes,
        new_authorizer: bytes,
        signer: Actor,
        *,
        nonce: int | None = None,
    ) -> UpdateSpaceAuthorization:
        """Signed for the next nonce, unless told otherwise."""
        if nonce is None:
            nonce = self.space_authorization(space_id)[2] + 1
        digest = self.digest(hash_space_authorization(space_id, new_controller, new_authorizer, nonce))
        return UpdateSpaceAuthorization(space_id, new_controller, new_authorizer, signer.sign(digest))

    def next_delta(self, space_id: bytes, **members: Any) -> Delta:
        """A delta that follows the head, with content of no importance; named members are as given."""
        _, state_root, sequence = self.head(space_id)
        content = {
            "sequence": sequence + 1,
            "prev_state_root": state_root,
            "delta_commitment": keccak(text=f"delta {sequence + 1}"),
            "provenance_commitment": keccak(text=f"provenance {sequence + 1}"),
            "profile_id": keccak(text="profile"),
            "locator_commitment": keccak(text=f"locator {sequence + 1}"),
        }
        return Delta(space_id=space_id, **(content | members))

    def signed(self, delta: Delta, signer: Actor) -> CommitTransition:
        return CommitTransition(delta, signer.sign(self.digest(hash_experience_delta(delta))))

    def commit_next(self, space_id: bytes, signer: Actor, caller: bytes, **members: Any) -> Accepted:
        """Set-up: append one transition."""
        return self.must_perform(self.signed(self.next_delta(space_id, **members), signer), caller)


# Deployment, by Ape


def deploy_registries(node: Node, deployer: Any, project: Any) -> dict[str, Registry]:
    """The project's registry and the plain one that shares no code with it, by name."""
    chain_id = int(node.rpc("eth_chainId"), 16)
    deployed = {}
    for name in ("AgentMemoryStateRegistry", "NormativeMemoryRegistry"):
        instance = deployer.deploy(getattr(project, name))
        deployed[name] = Registry(node, to_canonical_address(instance.address), name, chain_id)
    return deployed


def deploy_wallets(deployer: Any, project: Any, owner: Actor) -> dict[Behaviour, Wallet]:
    """A wallet of every behaviour, all of one owner."""
    deployed = {}
    for behaviour in Behaviour:
        instance = deployer.deploy(project.ConfigurableWallet, int(behaviour), owner.address)
        deployed[behaviour] = Wallet(to_canonical_address(instance.address), behaviour, owner)
    return deployed
