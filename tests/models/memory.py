"""What the specifications say, in plain Python: written from their text, to be held against contracts and package.

Shares no code with either. Words are 32 bytes, addresses 20 bytes, both `bytes`; integers are `int`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from eth_keys import keys
from eth_keys.exceptions import BadSignature
from eth_utils import ValidationError, keccak

ZERO_WORD = bytes(32)
ZERO_ADDRESS = bytes(20)

# Hashes: keccak256 over a type hash and one 32-byte word per member.

MEMORY_SPACE = "MemorySpace(address initialController,bytes32 salt)"
SPACE_REGISTRATION = "SpaceRegistration(bytes32 spaceId,address controller,address authorizer)"
SPACE_AUTHORIZATION = "SpaceAuthorization(bytes32 spaceId,address newController,address newAuthorizer,uint64 nonce)"
EXPERIENCE_DELTA = (
    "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,"
    "bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
)
MEMORY_STATE = "MemoryState(bytes32 prevStateRoot,bytes32 transitionId)"
EIP712_DOMAIN = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"


def word(value: bytes | int) -> bytes:
    """One 32-byte word: integers and addresses stand at its right end."""
    return value.to_bytes(32, "big") if isinstance(value, int) else value.rjust(32, b"\0")


def hash_words(head: str, *values: bytes | int) -> bytes:
    """keccak256 over the hash of `head` and a word per value."""
    return keccak(keccak(text=head) + b"".join(map(word, values)))


@dataclass(frozen=True)
class Delta:
    """An ExperienceDelta, its members in the order of the type."""

    space_id: bytes
    sequence: int
    prev_state_root: bytes
    delta_commitment: bytes
    provenance_commitment: bytes
    profile_id: bytes
    locator_commitment: bytes

    def members(self) -> tuple[bytes | int, ...]:
        return (
            self.space_id,
            self.sequence,
            self.prev_state_root,
            self.delta_commitment,
            self.provenance_commitment,
            self.profile_id,
            self.locator_commitment,
        )


def derive_space_id(initial_controller: bytes, salt: bytes) -> bytes:
    return hash_words(MEMORY_SPACE, initial_controller, salt)


def hash_space_registration(space_id: bytes, controller: bytes, authorizer: bytes) -> bytes:
    return hash_words(SPACE_REGISTRATION, space_id, controller, authorizer)


def hash_space_authorization(space_id: bytes, new_controller: bytes, new_authorizer: bytes, nonce: int) -> bytes:
    return hash_words(SPACE_AUTHORIZATION, space_id, new_controller, new_authorizer, nonce)


def hash_experience_delta(delta: Delta) -> bytes:
    return hash_words(EXPERIENCE_DELTA, *delta.members())


def compute_next_state_root(prev_state_root: bytes, transition_id: bytes) -> bytes:
    return hash_words(MEMORY_STATE, prev_state_root, transition_id)


def compute_domain_separator(chain_id: int, registry: bytes) -> bytes:
    return hash_words(EIP712_DOMAIN, keccak(text="AgentMemoryState"), keccak(text="1"), chain_id, registry)


def compute_signing_digest(domain_separator: bytes, struct_hash: bytes) -> bytes:
    return keccak(b"\x19\x01" + domain_separator + struct_hash)


def compute_delta_commitment(profile_id: bytes, delta_salt: bytes, payload: bytes) -> bytes:
    return hash_words("AgentMemoryState.deltaCommitment.v1", profile_id, delta_salt, keccak(payload))


def compute_provenance_commitment(salt: bytes, provenance: bytes) -> bytes:
    return hash_words("AgentMemoryState.provenanceCommitment.v1", salt, keccak(provenance))


def compute_locator_commitment(salt: bytes, locator: str) -> bytes:
    return hash_words("AgentMemoryState.locatorCommitment.v1", salt, keccak(text=locator))


# Who approves.

MAGIC_WORD = bytes.fromhex("1626ba7e").ljust(32, b"\0")
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

#: How the code of an account answers `isValidSignature(digest, signature)`: what it returns, or None if it fails.
CodeAnswer = Callable[[bytes, bytes], bytes | None]


def recover_leniently(digest: bytes, signature: bytes) -> bytes | None:
    """The address that 65 bytes recover to, as the precompile sees it: high s too, v 27 or 28."""
    if len(signature) != 65 or signature[64] not in (27, 28):
        return None
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if not (0 < r < CURVE_ORDER and 0 < s < CURVE_ORDER):
        return None
    try:
        public_key = keys.Signature(vrs=(signature[64] - 27, r, s)).recover_public_key_from_msg_hash(digest)
    except (BadSignature, ValidationError):
        return None
    return public_key.to_canonical_address()


def recover_canonical(digest: bytes, signature: bytes) -> bytes | None:
    """The same, of canonical signatures alone: s in the lower half of the order."""
    if int.from_bytes(signature[32:64], "big") > CURVE_ORDER // 2:
        return None
    return recover_leniently(digest, signature)


def is_approved(
    account: bytes, digest: bytes, signature: bytes, caller: bytes, code: Mapping[bytes, CodeAnswer]
) -> bool:
    """A direct call with an empty signature; then the code of the account, if any; then its key."""
    if caller == account and signature == b"":
        return True
    if account in code:
        answer = code[account](digest, signature)
        if answer is not None and len(answer) >= 32 and answer[:32] == MAGIC_WORD:
            return True
    return recover_canonical(digest, signature) == account


# What may be asked of a registry, and what it answers.


@dataclass(frozen=True)
class RegisterSpace:
    space_id: bytes
    controller: bytes
    authorizer: bytes
    salt: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class UpdateSpaceAuthorization:
    space_id: bytes
    new_controller: bytes
    new_authorizer: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class CommitTransition:
    delta: Delta
    signature: bytes = b""


Request = RegisterSpace | UpdateSpaceAuthorization | CommitTransition


@dataclass(frozen=True)
class Rejection:
    """A refused call: the error and its arguments."""

    error: str
    arguments: tuple[bytes | int, ...] = ()


@dataclass(frozen=True)
class Event:
    """An event with all its arguments, indexed or not, in the order of its signature."""

    name: str
    arguments: tuple[bytes | int, ...]


@dataclass(frozen=True)
class Accepted:
    """An accepted call: the one event it emits, and the words it returns."""

    event: Event
    returned: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Space:
    """A space, its whole history included."""

    controller: bytes
    authorizer: bytes
    config_nonce: int = 0
    transition_ids: tuple[bytes, ...] = ()
    state_roots: tuple[bytes, ...] = ()

    @property
    def head(self) -> tuple[bytes, bytes, int]:
        """Transition id, state root, sequence."""
        if not self.state_roots:
            return ZERO_WORD, ZERO_WORD, 0
        return self.transition_ids[-1], self.state_roots[-1], len(self.state_roots)

    @property
    def authorization(self) -> tuple[bytes, bytes, int]:
        return self.controller, self.authorizer, self.config_nonce


@dataclass
class MemoryStateModel:
    """One registry of the Agent Memory State, on one chain."""

    chain_id: int
    registry: bytes
    #: What the accounts that have code answer. An account without an entry has none.
    code: dict[bytes, CodeAnswer] = field(default_factory=dict)
    spaces: dict[bytes, Space] = field(default_factory=dict)

    def digest(self, struct_hash: bytes) -> bytes:
        return compute_signing_digest(compute_domain_separator(self.chain_id, self.registry), struct_hash)

    def digest_of(self, request: Request) -> bytes:
        """What has to be signed for a request, in the present state."""
        return self.digest(self._message(request))

    def _message(self, request: Request) -> bytes:
        if isinstance(request, RegisterSpace):
            return hash_space_registration(request.space_id, request.controller, request.authorizer)
        if isinstance(request, UpdateSpaceAuthorization):
            nonce = self.spaces[request.space_id].config_nonce + 1 if request.space_id in self.spaces else 1
            return hash_space_authorization(request.space_id, request.new_controller, request.new_authorizer, nonce)
        return hash_experience_delta(request.delta)

    def apply(self, request: Request, caller: bytes) -> Accepted | Rejection:
        """Judge a call, and let it change the state if it is accepted."""
        if isinstance(request, RegisterSpace):
            return self._register_space(request, caller)
        if isinstance(request, UpdateSpaceAuthorization):
            return self._update_space_authorization(request, caller)
        return self._commit_transition(request, caller)

    def _register_space(self, asked: RegisterSpace, caller: bytes) -> Accepted | Rejection:
        if asked.space_id == ZERO_WORD:
            return Rejection("ZeroSpaceId")
        if ZERO_ADDRESS in (asked.controller, asked.authorizer):
            return Rejection("ZeroAddress")
        expected = derive_space_id(asked.controller, asked.salt)
        if asked.space_id != expected:
            return Rejection("InvalidSpaceId", (expected, asked.space_id))
        if asked.space_id in self.spaces:
            return Rejection("SpaceAlreadyRegistered")
        if not self._approves(asked.controller, asked, caller):
            return Rejection("InvalidAuthorization")
        self.spaces[asked.space_id] = Space(asked.controller, asked.authorizer)
        return Accepted(Event("SpaceRegistered", (asked.space_id, asked.controller, asked.authorizer)))

    def _update_space_authorization(self, asked: UpdateSpaceAuthorization, caller: bytes) -> Accepted | Rejection:
        if ZERO_ADDRESS in (asked.new_controller, asked.new_authorizer):
            return Rejection("ZeroAddress")
        space = self.spaces.get(asked.space_id)
        if space is None:
            return Rejection("UnknownSpace")
        if not self._approves(space.controller, asked, caller):
            return Rejection("InvalidAuthorization")
        nonce = space.config_nonce + 1
        self.spaces[asked.space_id] = replace(
            space, controller=asked.new_controller, authorizer=asked.new_authorizer, config_nonce=nonce
        )
        arguments = (asked.space_id, asked.new_controller, asked.new_authorizer, nonce)
        return Accepted(Event("SpaceAuthorizationUpdated", arguments))

    def _commit_transition(self, asked: CommitTransition, caller: bytes) -> Accepted | Rejection:
        delta = asked.delta
        space = self.spaces.get(delta.space_id)
        if space is None:
            return Rejection("UnknownSpace")
        if delta.delta_commitment == ZERO_WORD:
            return Rejection("ZeroDeltaCommitment")
        if delta.profile_id == ZERO_WORD:
            return Rejection("ZeroProfileId")
        _, state_root, sequence = space.head
        if delta.sequence != sequence + 1:
            return Rejection("BadSequence", (sequence + 1, delta.sequence))
        if delta.prev_state_root != state_root:
            return Rejection("BadPreviousState", (state_root, delta.prev_state_root))
        if not self._approves(space.authorizer, asked, caller):
            return Rejection("InvalidAuthorization")
        transition_id = hash_experience_delta(delta)
        next_state_root = compute_next_state_root(state_root, transition_id)
        self.spaces[delta.space_id] = replace(
            space,
            transition_ids=(*space.transition_ids, transition_id),
            state_roots=(*space.state_roots, next_state_root),
        )
        arguments = (
            delta.space_id,
            transition_id,
            delta.sequence,
            delta.prev_state_root,
            next_state_root,
            delta.delta_commitment,
            delta.provenance_commitment,
            delta.profile_id,
            delta.locator_commitment,
            space.authorizer,
        )
        return Accepted(Event("TransitionCommitted", arguments), (transition_id, next_state_root))

    def _approves(self, account: bytes, request: Request, caller: bytes) -> bool:
        return is_approved(account, self.digest_of(request), request.signature, caller, self.code)

    # Views

    def head(self, space_id: bytes) -> tuple[bytes, bytes, int] | Rejection:
        return self.spaces[space_id].head if space_id in self.spaces else Rejection("UnknownSpace")

    def space_authorization(self, space_id: bytes) -> tuple[bytes, bytes, int] | Rejection:
        return self.spaces[space_id].authorization if space_id in self.spaces else Rejection("UnknownSpace")

    def state_root_at(self, space_id: bytes, sequence: int) -> bytes:
        roots = self.spaces[space_id].state_roots if space_id in self.spaces else ()
        return roots[sequence - 1] if 1 <= sequence <= len(roots) else ZERO_WORD
