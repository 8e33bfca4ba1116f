"""The client of an Agent Memory State registry, over a plain `web3.Web3`.

It works with any ERC-8350 registry: what ours answers beyond the standard is used only where it answers. Before
anything is sent, `check_*` says what would go wrong, by the rules here and by asking the node, without spending gas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from melete.chain.connection import ask, call, check_chain, require_code
from melete.chain.logs import Scanner, Topics
from melete.chain.reverts import compute_selector
from melete.chain.rpc import one, to_int
from melete.chain.scan.blocks import BlockReference, block_parameter
from melete.chain.transactions import Receipt, Sender, require_sender, simulate, transact, transact_for_event
from melete.errors import (
    ContractError,
    CrossCheckFailed,
    InvalidAuthorization,
    InvalidInput,
    InvalidSignature,
    NodeRefused,
    NotARegistry,
    UnknownSpace,
    show,
)
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.memory.events import (
    MemoryEvent,
    SpaceAuthorizationUpdated,
    SpaceRegistered,
    TransitionCommitted,
    decode_event,
)
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
    memory_state_domain,
)
from melete.primitives import (
    Address,
    Bytes32,
    keccak256,
    uint64,
    uint_word,
)
from melete.resources import load_artifact
from melete.signatures import recover_signer
from melete.signing import Signer
from melete.typed_data import Domain

if TYPE_CHECKING:
    from web3 import Web3

_DELTA = "(bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32)"
#: Every function that the client calls, by name.
FUNCTIONS: Final = {
    "registerSpace": "registerSpace(bytes32,address,address,bytes32,bytes)",
    "updateSpaceAuthorization": "updateSpaceAuthorization(bytes32,address,address,bytes)",
    "commitTransition": f"commitTransition({_DELTA},bytes)",
    "head": "head(bytes32)",
    "spaceAuthorization": "spaceAuthorization(bytes32)",
    "deriveSpaceId": "deriveSpaceId(address,bytes32)",
    "stateRootAt": "stateRootAt(bytes32,uint64)",
    "hashExperienceDelta": f"hashExperienceDelta({_DELTA})",
    "computeNextStateRoot": "computeNextStateRoot(bytes32,bytes32)",
    "hashSpaceRegistration": "hashSpaceRegistration(bytes32,address,address)",
    "hashSpaceAuthorization": "hashSpaceAuthorization(bytes32,address,address,uint64)",
    "domainSeparator": "domainSeparator()",
    "signingDigest": "signingDigest(bytes32)",
    "eip712Domain": "eip712Domain()",
    "isValidSignature": "isValidSignature(bytes32,bytes)",
}
_ERC1271_MAGIC: Final = Bytes32(bytes.fromhex("1626ba7e") + bytes(28))

Block: TypeAlias = int | str | BlockReference
Event = TypeVar("Event", SpaceRegistered, SpaceAuthorizationUpdated, TransitionCommitted)


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Which views of a registry agree with the SDK, and which it does not have."""

    agreed: tuple[str, ...]
    unanswered: tuple[str, ...]


class MemoryRegistry:
    """One registry on one chain.

    `sender` pays for what is sent; reading needs none. Errors of the constructor: `NodeUnreachable`, `WrongChain`,
    `NoContract`, `NotARegistry`.
    """

    def __init__(
        self,
        w3: Web3,
        address: Address | str,
        *,
        sender: Sender | None = None,
        expected_chain_id: int | None = None,
    ) -> None:
        self.w3 = w3
        self.address = Address(address, "registry")
        self.sender = sender
        self.chain_id = check_chain(w3, expected_chain_id)
        self.domain = memory_state_domain(self.chain_id, self.address)
        self._identify()

    @classmethod
    def deploy(cls, w3: Web3, sender: Sender) -> tuple[MemoryRegistry, Receipt]:
        """Deploy our registry from the artifact in the package, check every hash, and return its client."""
        chain_id = check_chain(w3, None)
        receipt = transact(w3, sender, chain_id, None, load_artifact("AgentMemoryStateRegistry").bytecode)
        if receipt.contract_address is None:
            raise NotARegistry(sender.address, "deployment", None)
        registry = cls(w3, receipt.contract_address, sender=sender)
        registry.cross_check()
        return registry, receipt

    # Reading

    # `block` is a number, a name such as "latest" or "finalized", or a block by its hash: that very block, or
    # `NodeRefused` once the chain has another one in its place.

    def head(self, space_id: Bytes32, block: Block = "latest") -> Head:
        """Return the last transition of a space. Errors: `UnknownSpace`."""
        head = self._stated_head(space_id, block)
        if head == GENESIS:
            self.authorization(space_id, block)  # refuses a space that is not empty but unknown
        return head

    def authorization(self, space_id: Bytes32, block: Block = "latest") -> SpaceAuthorization:
        """Return who may act for a space. Errors: `UnknownSpace`."""
        arguments = Bytes32(space_id, "spaceId")
        controller, authorizer, nonce = self._words("spaceAuthorization", arguments, count=3, block=block)
        if not any(authorizer):  # a registry that answers zeros instead of reverting
            raise UnknownSpace
        return SpaceAuthorization(Address(controller[12:]), Address(authorizer[12:]), int.from_bytes(nonce, "big"))

    def load_state(self, space_id: Bytes32, block: Block = "latest") -> SpaceState:
        """Return all that the registry knows of a space. Errors: `UnknownSpace`."""
        return SpaceState(self.authorization(space_id, block), self._stated_head(space_id, block))

    def state_root_at(self, space_id: Bytes32, sequence: int, block: Block = "latest") -> Bytes32:
        """Return the state root after transition `sequence`; zero for an unknown space or number.

        Only registries with our views answer; of others, this raises `ContractError`.
        """
        arguments = Bytes32(space_id, "spaceId") + uint_word(uint64(sequence, "sequence"))
        return self._words("stateRootAt", arguments, count=1, block=block)[0]

    def events(
        self, space_id: Bytes32 | None = None, from_block: int = 0, to_block: int | str = "latest"
    ) -> Iterator[MemoryEvent]:
        """Yield the registry's events in order, of one space or of all, decoded, as a `Scanner` reads them.

        `to_block` is a number or latest, safe or finalized. That none was left out, events alone do not show: see
        `melete.memory.forensics` and `melete.memory.proofs`. Errors: those of `Scanner` and of its `events`.
        """
        topics: Topics = () if space_id is None else (None, Bytes32(space_id, "spaceId"))
        scanner: Scanner[MemoryEvent] = Scanner(
            self.w3, self.address, decode_event, start_block=from_block, until=to_block, topics=topics
        )
        return scanner.events()

    def transitions(
        self, space_id: Bytes32, from_block: int = 0, to_block: int | str = "latest"
    ) -> Iterator[TransitionCommitted]:
        """Yield the transitions of a space in order; errors as `events`."""
        for event in self.events(Bytes32(space_id, "spaceId"), from_block, to_block):
            if isinstance(event, TransitionCommitted):
                yield event

    def is_approved(self, account: Address, digest: Bytes32, signature: bytes, caller: Address | None = None) -> bool:
        """Return whether an account approves a digest, by the registry's own rule and order.

        A direct call by `caller`, then what the account's code answers to the registry, then its key.
        """
        if not signature and caller == account:
            return True
        code = ask(self.w3, "eth_getCode", lambda: self.w3.eth.get_code(str(account)))  # type: ignore[arg-type]
        if code and self._approved_by_code(account, digest, signature):
            return True
        try:
            return recover_signer(digest, signature) == account
        except InvalidSignature:
            return False

    # Checking before sending

    def check_register(
        self,
        space_id: Bytes32,
        controller: Address,
        authorizer: Address,
        salt: Bytes32,
        signature: bytes = b"",
    ) -> int:
        """Raise the first error that `register` would meet, or return the gas that it would take; nothing is sent."""
        return self._estimate(self._prepare_register(space_id, controller, authorizer, salt, signature))

    def _prepare_register(
        self, space_id: Bytes32, controller: Address, authorizer: Address, salt: Bytes32, signature: bytes
    ) -> bytes:
        """Return the calldata, once it is known that the registry takes it."""
        space_id, salt = Bytes32(space_id, "spaceId"), Bytes32(salt, "salt")
        controller, authorizer = Address(controller, "controller"), Address(authorizer, "authorizer")
        check_registration(
            space_id,
            controller,
            authorizer,
            salt,
            registered=self._load_known(space_id) is not None,
            approved=True,
        )
        digest = self.domain.digest(compute_registration_hash(space_id, controller, authorizer))
        self._require_approval(controller, digest, signature)
        return self._simulate(self._register_call(space_id, controller, authorizer, salt, signature))

    def check_rotate(
        self, space_id: Bytes32, new_controller: Address, new_authorizer: Address, signature: bytes = b""
    ) -> int:
        """Raise the first error that `rotate` would meet, or return the gas that it would take; nothing is sent."""
        return self._estimate(self._prepare_rotate(space_id, new_controller, new_authorizer, signature))

    def _prepare_rotate(
        self, space_id: Bytes32, new_controller: Address, new_authorizer: Address, signature: bytes
    ) -> bytes:
        space_id = Bytes32(space_id, "spaceId")
        new_controller = Address(new_controller, "newController")
        new_authorizer = Address(new_authorizer, "newAuthorizer")
        state = self._load_known(space_id)
        check_update(state, new_controller, new_authorizer, approved=True)
        assert state is not None
        digest = self._rotation_digest(space_id, new_controller, new_authorizer, state.authorization)
        self._require_approval(state.authorization.controller, digest, signature)
        return self._simulate(self._rotate_call(space_id, new_controller, new_authorizer, signature))

    def check_commit(self, delta: ExperienceDelta, signature: bytes = b"") -> int:
        """Raise the first error that `commit` would meet, or return the gas that it would take; nothing is sent.

        An account whose code approves may take what gas it likes, and whoever sends pays: look before you relay.
        """
        return self._estimate(self._prepare_commit(delta, signature))

    def _prepare_commit(self, delta: ExperienceDelta, signature: bytes) -> bytes:
        transition_id = compute_transition_id(delta)
        state = self._load_known(delta.space_id)
        check_commit(state, delta, approved=True)
        assert state is not None
        digest = self.domain.digest(transition_id)
        self._require_approval(state.authorization.authorizer, digest, signature)
        return self._simulate(self.commit_call(delta, signature))

    # Sending

    def register(self, authorizer: Address, salt: Bytes32, *, controller: Signer | None = None) -> SpaceRegistered:
        """Register a space, and return the event.

        `controller` signs, and the sender relays; without one, the sender itself becomes the controller.
        Errors: those of `registerSpace`, before anything is sent.
        """
        account = self._sender.address if controller is None else controller.address
        authorizer, salt = Address(authorizer, "authorizer"), Bytes32(salt, "salt")
        space_id = compute_space_id(account, salt)
        struct_hash = compute_registration_hash(space_id, account, authorizer)
        signature = self._sign(controller, struct_hash)
        return self._send(self._prepare_register(space_id, account, authorizer, salt, signature), SpaceRegistered)

    def rotate(
        self,
        space_id: Bytes32,
        new_controller: Address,
        new_authorizer: Address,
        *,
        controller: Signer | None = None,
    ) -> SpaceAuthorizationUpdated:
        """Replace controller and authorizer of a space, at once in force, and return the event.

        `controller` is the current one, and signs; without it, the sender itself must be the controller. There is
        no way back from a wrong address. Errors: those of `updateSpaceAuthorization`, before anything is sent.
        """
        signature = self.sign_rotation(space_id, new_controller, new_authorizer, controller)
        return self._send(
            self._prepare_rotate(space_id, new_controller, new_authorizer, signature), SpaceAuthorizationUpdated
        )

    def sign_rotation(
        self, space_id: Bytes32, new_controller: Address, new_authorizer: Address, controller: Signer | None
    ) -> bytes:
        """Return the current controller's signature for the next rotation, for `check_rotate`; empty without a signer.

        Errors: `UnknownSpace`; the signer's.
        """
        if controller is None:
            return b""
        space_id, current = Bytes32(space_id, "spaceId"), self.authorization(space_id)
        new_controller = Address(new_controller, "newController")
        new_authorizer = Address(new_authorizer, "newAuthorizer")
        return controller.sign_digest(self._rotation_digest(space_id, new_controller, new_authorizer, current))

    def commit(self, delta: ExperienceDelta, *, authorizer: Signer | None = None) -> TransitionCommitted:
        """Append a delta to its space, and return the event.

        `authorizer` signs, and the sender relays; without one, the sender itself must be the authorizer.
        Errors: those of `commitTransition`, before anything is sent.
        """
        signature = self._sign(authorizer, compute_transition_id(delta))
        return self._send(self._prepare_commit(delta, signature), TransitionCommitted)

    # Checking the registry

    def cross_check(self) -> CrossCheck:
        """Compare every hash that the SDK computes with the registry's views.

        Views that the registry does not have are listed, not judged. Errors: `CrossCheckFailed` for the first that
        answers otherwise.
        """
        one, two = Address(b"\x11" * 20), Address(b"\x22" * 20)
        words = [Bytes32(bytes([number]) * 32) for number in range(0xA1, 0xA7)]
        largest = 2**64 - 1
        delta = ExperienceDelta(words[0], largest, *words[1:])
        struct_hash = compute_transition_id(delta)
        expected: dict[str, tuple[bytes, bytes]] = {
            "deriveSpaceId": (one.word + words[0], compute_space_id(one, words[0])),
            "hashExperienceDelta": (delta.words(), struct_hash),
            "computeNextStateRoot": (words[0] + words[1], compute_next_state_root(words[0], words[1])),
            "hashSpaceRegistration": (
                words[0] + one.word + two.word,
                compute_registration_hash(words[0], one, two),
            ),
            "hashSpaceAuthorization": (
                words[0] + one.word + two.word + uint_word(largest),
                compute_authorization_hash(words[0], one, two, largest),
            ),
            "domainSeparator": (b"", self.domain.separator),
            "signingDigest": (struct_hash, self.domain.digest(struct_hash)),
            "eip712Domain": (b"", _encode_domain(self.domain)),
        }
        agreed, unanswered = [], []
        for view, (arguments, computed) in expected.items():
            try:
                answer = call(self.w3, self.address, compute_selector(FUNCTIONS[view]) + arguments)
            except ContractError:
                unanswered.append(view)
                continue
            if answer != computed:
                raise CrossCheckFailed(view, computed, answer)
            agreed.append(view)
        return CrossCheck(tuple(agreed), tuple(unanswered))

    # Private

    @property
    def _sender(self) -> Sender:
        return require_sender(self.sender, "registry client")

    def _identify(self) -> None:
        """Ask the one pure function that every ERC-8350 registry has, with a known answer."""
        probe, salt = Address(b"\x01" * 20), keccak256(b"melete")
        try:
            answer = call(self.w3, self.address, compute_selector(FUNCTIONS["deriveSpaceId"]) + probe.word + salt)
        except ContractError as error:
            raise NotARegistry(self.address, "deriveSpaceId", str(error)) from error
        if answer != compute_space_id(probe, salt):
            require_code(self.w3, self.address)
            raise NotARegistry(self.address, "deriveSpaceId", answer)

    def _load_known(self, space_id: Bytes32) -> SpaceState | None:
        try:
            return self.load_state(space_id)
        except UnknownSpace:
            return None

    def _require_approval(self, account: Address, digest: Bytes32, signature: bytes) -> None:
        if not self.is_approved(account, digest, signature, self._sender.address):
            raise InvalidAuthorization

    def _approved_by_code(self, account: Address, digest: Bytes32, signature: bytes) -> bool:
        data = compute_selector(FUNCTIONS["isValidSignature"]) + digest + _bytes_argument(2, signature)
        try:
            answer = call(self.w3, account, data, self.address)
        except ContractError:  # it reverts, or burns what gas it is given
            return False
        return answer[:32] == _ERC1271_MAGIC

    def _sign(self, signer: Signer | None, struct_hash: Bytes32) -> bytes:
        return b"" if signer is None else signer.sign_digest(self.domain.digest(struct_hash))

    def _rotation_digest(
        self, space_id: Bytes32, new_controller: Address, new_authorizer: Address, current: SpaceAuthorization
    ) -> Bytes32:
        struct_hash = compute_authorization_hash(space_id, new_controller, new_authorizer, current.config_nonce + 1)
        return self.domain.digest(struct_hash)

    def _register_call(
        self, space_id: Bytes32, controller: Address, authorizer: Address, salt: Bytes32, signature: bytes
    ) -> bytes:
        words = space_id + controller.word + authorizer.word + salt
        return compute_selector(FUNCTIONS["registerSpace"]) + words + _bytes_argument(5, signature)

    def _rotate_call(
        self, space_id: Bytes32, new_controller: Address, new_authorizer: Address, signature: bytes
    ) -> bytes:
        words = space_id + new_controller.word + new_authorizer.word
        return compute_selector(FUNCTIONS["updateSpaceAuthorization"]) + words + _bytes_argument(4, signature)

    def commit_call(self, delta: ExperienceDelta, signature: bytes) -> bytes:
        """Return the calldata of `commitTransition`."""
        return compute_selector(FUNCTIONS["commitTransition"]) + delta.words() + _bytes_argument(8, signature)

    def _simulate(self, data: bytes) -> bytes:
        """Return calldata that the registry takes from the sender now. Errors: what it meets."""
        simulate(self.w3, self._sender, self.address, data)
        return data

    def _estimate(self, data: bytes) -> int:
        request = {"from": str(self._sender.address), "to": str(self.address), "data": "0x" + data.hex()}
        estimated = one(self.w3, "eth_estimateGas", [request])
        try:
            return to_int(estimated)
        except ValueError:
            raise NodeRefused("eth_estimateGas", f"the answer is no number: {show(estimated)}") from None

    def _send(self, data: bytes, kind: type[Event]) -> Event:
        event = transact_for_event(self.w3, self._sender, self.chain_id, self.address, data, decode_event, kind)
        if event is None:
            raise NotARegistry(self.address, kind.__name__, None)
        return event

    def _stated_head(self, space_id: Bytes32, block: Block) -> Head:
        arguments = Bytes32(space_id, "spaceId")
        transition_id, state_root, sequence = self._words("head", arguments, count=3, block=block)
        return Head(transition_id, state_root, int.from_bytes(sequence, "big"))

    def _words(self, view: str, arguments: bytes, *, count: int, block: Block = "latest") -> list[Bytes32]:
        data = compute_selector(FUNCTIONS[view]) + arguments
        answer = call(self.w3, self.address, data, block=block_parameter(block))
        if len(answer) != 32 * count:
            raise NotARegistry(self.address, view, answer)
        return [Bytes32(answer[start : start + 32]) for start in range(0, len(answer), 32)]


def _encode_domain(domain: Domain) -> bytes:
    """Return what `eip712Domain()` answers for a domain without salt. Source: EIP-5267."""
    from eth_abi.abi import encode

    types = ["bytes1", "string", "string", "uint256", "address", "bytes32", "uint256[]"]
    contract = bytes(domain.verifying_contract)
    return encode(types, [b"\x0f", domain.name, domain.version, domain.chain_id, contract, bytes(32), []])


def _bytes_argument(words_before: int, value: bytes) -> bytes:
    """Return the ABI words of one `bytes` argument that follows all others, and is the last."""
    if not isinstance(value, bytes | bytearray):
        raise InvalidInput("signature", value, "bytes")
    padding = bytes(-len(value) % 32)
    return uint_word(32 * words_before) + uint_word(len(value)) + bytes(value) + padding
