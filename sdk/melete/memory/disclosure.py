"""An audit bundle: what discloses a granted range of a space's transitions, and the judgement of it without a chain.

    reference       which space, in which registry, on which chain
    grant           to whom, from which sequence to which, under which root of witnesses
    startStateRoot  the state root before the range; zero before the first transition
    entries         of every transition of the range, in order: delta, id, next state root, authorizer, witness, and
                    the root that the witnesses fold to up to there
    anchoring       storage proofs for `melete.memory.bundle_anchoring`, or null

Everything here follows from the document alone: that it is about one unbroken run of transitions, that it is the
granted range and nothing else, that every witness opens what its transition commits to, and that the witnesses fold to
the granted root. That a registry holds these transitions, only a chain can say; who the authorizers were, only its
events. JSON Schema: `audit-bundle`; stricter than it, addresses carry a right checksum or none.

A witness is hashed as its RFC 8785 bytes, so it has one spelling: all seven members, null for what is absent, hex in
lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from melete.canonical import Json
from melete.errors import BrokenBundle, BrokenHistory, InvalidInput, InvalidJson, WitnessMismatch
from melete.memory.delta import MEMBERS, ExperienceDelta
from melete.memory.extensions.grants import compute_grant_id, compute_next_witness_root, compute_witness_hash
from melete.memory.history import Transition, verify_history
from melete.memory.space import Head
from melete.memory.witness import Witness, verify_witness
from melete.primitives import ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, is_utf8, parse_sequence

KIND: Final = "melete.audit-bundle/1"
#: A larger file is neither written nor read: some 40,000 transitions with small payloads, or one of almost 32 MiB.
LARGEST_BUNDLE: Final = 64 * 2**20

#: What a bundle can break without a chain, in the order of the checks; those from `space_id` on for each entry in turn.
RULES: Final = (
    "range",
    "auditor",
    "grant_id",
    "start_state_root",
    "range_exceeded",
    "space_id",
    "zero_delta_commitment",
    "zero_profile_id",
    "sequence_skipped",
    "sequence_repeated",
    "prev_state_root",
    "transition_id",
    "next_state_root",
    "authorizer",
    "profile_id",
    "delta_commitment",
    "provenance_commitment",
    "locator_commitment",
    "witness_root",
    "range_incomplete",
    "witness_set_root",
)

_MEMBERS: Final = ("kind", "reference", "grant", "startStateRoot", "entries", "anchoring")
_REFERENCE: Final = ("chainId", "registry", "spaceId")
_GRANT: Final = ("grantId", "auditor", "fromSequence", "toSequence", "witnessSetRoot", "contract")
_ENTRY: Final = ("delta", "transitionId", "nextStateRoot", "authorizer", "witness", "witnessRoot")
_WITNESS: Final = ("profileId", "payload", "deltaSalt", "provenance", "provenanceSalt", "locator", "locatorSalt")

#: Where in an entry the fault lies when a rule is broken; what is not listed is the witness as a whole.
_PLACES: Final = {
    "space_id": "delta/spaceId",
    "zero_delta_commitment": "delta/deltaCommitment",
    "zero_profile_id": "delta/profileId",
    "sequence_skipped": "delta/sequence",
    "sequence_repeated": "delta/sequence",
    "prev_state_root": "delta/prevStateRoot",
    "transition_id": "transitionId",
    "next_state_root": "nextStateRoot",
    "authorizer": "authorizer",
    "profile_id": "witness/profileId",
    "witness_root": "witnessRoot",
}
_WITNESS_RULES: Final = {
    "profileId": "profile_id",
    "deltaCommitment": "delta_commitment",
    "provenanceCommitment": "provenance_commitment",
    "locatorCommitment": "locator_commitment",
}


# The bundle


@dataclass(frozen=True, slots=True)
class Reference:
    """A space, with the chain and the registry that its id does not name."""

    chain_id: int
    registry: Address
    space_id: Bytes32


@dataclass(frozen=True, slots=True)
class DisclosedGrant:
    """What was granted, by the bundle's own words. `contract` is the AuditGrant contract that holds it, if one does."""

    grant_id: Bytes32
    auditor: Address
    from_sequence: int
    to_sequence: int
    witness_set_root: Bytes32
    contract: Address | None = None


@dataclass(frozen=True, slots=True)
class DisclosedTransition:
    """A transition with what opens it, and the root of all witnesses of the range up to this one."""

    transition: Transition
    witness: Witness
    witness_root: Bytes32


@dataclass(frozen=True, slots=True)
class AuditBundle:
    """A bundle whose members have their types. Whether it holds, `verify_disclosure` says.

    It holds payloads and salts: whoever has it can read them.
    """

    reference: Reference
    grant: DisclosedGrant
    start_state_root: Bytes32
    entries: tuple[DisclosedTransition, ...]
    #: As JSON; `melete.memory.bundle_anchoring` reads it.
    anchoring: dict[str, Json] | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `schemas/audit-bundle.schema.json`."""
        reference, grant = self.reference, self.grant
        return {
            "kind": KIND,
            "reference": {
                "chainId": str(reference.chain_id),
                "registry": str(reference.registry),
                "spaceId": str(reference.space_id),
            },
            "grant": {
                "grantId": str(grant.grant_id),
                "auditor": str(grant.auditor),
                "fromSequence": str(grant.from_sequence),
                "toSequence": str(grant.to_sequence),
                "witnessSetRoot": str(grant.witness_set_root),
                "contract": None if grant.contract is None else str(grant.contract),
            },
            "startStateRoot": str(self.start_state_root),
            "entries": [_entry_to_json(entry) for entry in self.entries],
            "anchoring": self.anchoring,
        }

    @classmethod
    def from_json(cls, document: Json) -> AuditBundle:
        """Return the bundle that a JSON object states: all members of the schema and no others.

        Read the text with `melete.canonical.load_json`, which refuses what JSON readers disagree about. Errors:
        `InvalidJson`, pointing at the first member that is missing, unknown or ill-formed; nothing secret is shown.
        """
        kind, reference, grant, start, entries, anchoring = read_members(document, "", _MEMBERS)
        if kind != KIND:
            raise InvalidJson("/kind", f"it must be {KIND}")
        if anchoring is not None and not isinstance(anchoring, dict):
            raise InvalidJson("/anchoring", "it must be an object, or null")
        return cls(
            _read_reference(reference),
            _read_grant(grant),
            read_word(start, "/startStateRoot"),
            tuple(
                _read_entry(entry, f"/entries/{index}") for index, entry in enumerate(read_list(entries, "/entries"))
            ),
            anchoring,
        )


def write_witness(witness: Witness) -> dict[str, Json]:
    """Return the JSON object by which a witness is disclosed, and whose RFC 8785 bytes are hashed."""
    return {
        "profileId": str(witness.profile_id),
        "payload": "0x" + witness.payload.hex(),
        "deltaSalt": str(witness.delta_salt),
        "provenance": None if witness.provenance is None else "0x" + witness.provenance.hex(),
        "provenanceSalt": None if witness.provenance_salt is None else str(witness.provenance_salt),
        "locator": witness.locator,
        "locatorSalt": None if witness.locator_salt is None else str(witness.locator_salt),
    }


def fold_witness(prev_root: Bytes32, transition_id: Bytes32, witness: Witness) -> Bytes32:
    """Return the root of the witnesses that follows `prev_root`; the first of a range follows 32 zero bytes."""
    return compute_next_witness_root(prev_root, transition_id, compute_witness_hash(write_witness(witness)))


# Judging


def verify_disclosure(bundle: AuditBundle) -> Head:
    """Return the head at the end of the range, if everything holds that the bundle alone can show.

    Entries are taken in turn, and the first fault ends it: the time grows with the bundle, not with the range that it
    claims. Errors: `BrokenBundle` with one of `RULES`.
    """
    grant, space_id = bundle.grant, bundle.reference.space_id
    _verify_grant(grant, space_id)
    before = grant.from_sequence - 1
    if (bundle.start_state_root == ZERO_BYTES32) != (before == 0):
        due: object = ZERO_BYTES32 if before == 0 else f"the state root after transition {before}, which is never zero"
        raise BrokenBundle(None, "/startStateRoot", "start_state_root", due, bundle.start_state_root)

    head, root = Head(ZERO_BYTES32, bundle.start_state_root, before), ZERO_BYTES32
    for index, entry in enumerate(bundle.entries):
        if head.sequence == grant.to_sequence:
            received = entry.transition.delta.sequence
            last = f"none after {grant.to_sequence}"
            raise BrokenBundle(head.sequence + 1, f"/entries/{index}", "range_exceeded", last, received)
        head, root = _verify_entry(space_id, head, root, entry, index)
    if head.sequence != grant.to_sequence:
        last = f"entries up to {grant.to_sequence}"
        raise BrokenBundle(head.sequence + 1, "/entries", "range_incomplete", last, f"none after {head.sequence}")
    if root != grant.witness_set_root:
        raise BrokenBundle(None, "/grant/witnessSetRoot", "witness_set_root", root, grant.witness_set_root)
    return head


def _verify_grant(grant: DisclosedGrant, space_id: Bytes32) -> None:
    if grant.from_sequence == 0:
        raise BrokenBundle(None, "/grant/fromSequence", "range", "1 or more", 0)
    if grant.to_sequence < grant.from_sequence:
        raise BrokenBundle(None, "/grant/toSequence", "range", f"{grant.from_sequence} or more", grant.to_sequence)
    if grant.auditor == ZERO_ADDRESS:
        raise BrokenBundle(None, "/grant/auditor", "auditor", "an account", grant.auditor)
    grant_id = compute_grant_id(space_id, grant.auditor, grant.from_sequence, grant.to_sequence)
    if grant_id != grant.grant_id:
        raise BrokenBundle(None, "/grant/grantId", "grant_id", grant_id, grant.grant_id)


def _verify_entry(
    space_id: Bytes32, head: Head, root: Bytes32, entry: DisclosedTransition, index: int
) -> tuple[Head, Bytes32]:
    """Return the head and the root of the witnesses that follow from one entry."""
    due, transition = head.sequence + 1, entry.transition

    def broken(rule: str, expected: object, received: object) -> BrokenBundle:
        return BrokenBundle(due, f"/entries/{index}/{_PLACES.get(rule, 'witness')}", rule, expected, received)

    try:
        head = verify_history(space_id, (transition,), head)
        verify_witness(transition.delta, entry.witness)
    except BrokenHistory as error:
        raise broken(error.rule, error.expected, error.received) from None
    except WitnessMismatch as error:
        raise broken(_WITNESS_RULES[error.commitment], error.expected, error.received) from None
    if transition.authorizer == ZERO_ADDRESS:
        raise broken("authorizer", "an account", transition.authorizer)
    root = fold_witness(root, head.transition_id, entry.witness)
    if root != entry.witness_root:
        raise broken("witness_root", root, entry.witness_root)
    return head, root


# Reading. Errors hold a pointer and a rule, and never the value: it may be a payload or a salt.

_WORD = re.compile(r"0x[0-9a-f]{64}")
_BYTES = re.compile(r"0x(?:[0-9a-f]{2})*")
_CHAIN_ID = re.compile(r"[1-9][0-9]{0,77}")


def read_members(value: Json, pointer: str, names: tuple[str, ...]) -> list[Json]:
    """Return the members of an object, in the order of `names`, if it has exactly these. Errors: `InvalidJson`."""
    if not isinstance(value, dict):
        raise InvalidJson(pointer, f"it must be an object with the members {', '.join(names)}")
    for name in value:
        if name not in names:
            raise InvalidJson(pointer, f"it has a member that is unknown; it may have {', '.join(names)}")
    for name in names:
        if name not in value:
            raise InvalidJson(f"{pointer}/{name}", "the member is missing")
    return [value[name] for name in names]


def read_list(value: Json, pointer: str) -> list[Json]:
    """Return an array. Errors: `InvalidJson`."""
    if not isinstance(value, list):
        raise InvalidJson(pointer, "it must be an array")
    return value


def read_word(value: Json, pointer: str) -> Bytes32:
    """Return a 32-byte word. Errors: `InvalidJson`."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidJson(pointer, "it must be 0x and 64 hex digits in lower case")
    return Bytes32(bytes.fromhex(value[2:]))


def read_bytes(value: Json, pointer: str) -> bytes:
    """Return bytes of any length. Errors: `InvalidJson`."""
    if not isinstance(value, str) or not _BYTES.fullmatch(value):
        raise InvalidJson(pointer, "it must be 0x and the hex digits of whole bytes in lower case")
    return bytes.fromhex(value[2:])


def read_address(value: Json, pointer: str) -> Address:
    """Return an address with a right checksum, or without any. Errors: `InvalidJson`."""
    try:
        if isinstance(value, str):
            return Address(value)
    except InvalidInput:
        pass
    raise InvalidJson(pointer, "it must be an address: 0x and 40 hex digits, with a right checksum or in one case")


def _read_sequence(value: Json, pointer: str) -> int:
    try:
        return parse_sequence(value)
    except InvalidInput as error:
        raise InvalidJson(pointer, f"it must be {error.rule}") from None


def _read_reference(value: Json) -> Reference:
    chain_id, registry, space_id = read_members(value, "/reference", _REFERENCE)
    if not isinstance(chain_id, str) or not _CHAIN_ID.fullmatch(chain_id) or int(chain_id) >= 2**256:
        raise InvalidJson("/reference/chainId", 'it must be a string of decimal digits from "1" to 2^256 - 1')
    return Reference(
        int(chain_id), read_address(registry, "/reference/registry"), read_word(space_id, "/reference/spaceId")
    )


def _read_grant(value: Json) -> DisclosedGrant:
    grant_id, auditor, first, last, root, contract = read_members(value, "/grant", _GRANT)
    return DisclosedGrant(
        read_word(grant_id, "/grant/grantId"),
        read_address(auditor, "/grant/auditor"),
        _read_sequence(first, "/grant/fromSequence"),
        _read_sequence(last, "/grant/toSequence"),
        read_word(root, "/grant/witnessSetRoot"),
        None if contract is None else read_address(contract, "/grant/contract"),
    )


def _read_entry(value: Json, pointer: str) -> DisclosedTransition:
    delta, transition_id, next_state_root, authorizer, witness, root = read_members(value, pointer, _ENTRY)
    transition = Transition(
        _read_delta(delta, f"{pointer}/delta"),
        read_word(transition_id, f"{pointer}/transitionId"),
        read_word(next_state_root, f"{pointer}/nextStateRoot"),
        read_address(authorizer, f"{pointer}/authorizer"),
    )
    opened = _read_witness(witness, f"{pointer}/witness")
    return DisclosedTransition(transition, opened, read_word(root, f"{pointer}/witnessRoot"))


def _read_delta(value: Json, pointer: str) -> ExperienceDelta:
    space_id, sequence, *words = read_members(value, pointer, tuple(MEMBERS))
    names = tuple(MEMBERS)[2:]
    return ExperienceDelta(
        read_word(space_id, f"{pointer}/spaceId"),
        _read_sequence(sequence, f"{pointer}/sequence"),
        *(read_word(word, f"{pointer}/{name}") for name, word in zip(names, words, strict=True)),
    )


def _read_witness(value: Json, pointer: str) -> Witness:
    profile_id, payload, delta_salt, provenance, provenance_salt, locator, locator_salt = read_members(
        value, pointer, _WITNESS
    )
    if locator is not None and not (isinstance(locator, str) and is_utf8(locator)):
        raise InvalidJson(f"{pointer}/locator", "it must be text, or null")
    for name, content, salt in (("provenance", provenance, provenance_salt), ("locator", locator, locator_salt)):
        if (content is None) != (salt is None):
            raise InvalidJson(f"{pointer}/{name}Salt", f"it must be given exactly when {name} is given")
    return Witness(
        read_word(profile_id, f"{pointer}/profileId"),
        read_bytes(payload, f"{pointer}/payload"),
        read_word(delta_salt, f"{pointer}/deltaSalt"),
        None if provenance is None else read_bytes(provenance, f"{pointer}/provenance"),
        None if provenance_salt is None else read_word(provenance_salt, f"{pointer}/provenanceSalt"),
        locator,
        None if locator_salt is None else read_word(locator_salt, f"{pointer}/locatorSalt"),
    )


# Writing


def _entry_to_json(entry: DisclosedTransition) -> dict[str, Json]:
    transition = entry.transition
    return {
        "delta": dict(transition.delta.to_json()),
        "transitionId": str(transition.transition_id),
        "nextStateRoot": str(transition.next_state_root),
        "authorizer": str(transition.authorizer),
        "witness": write_witness(entry.witness),
        "witnessRoot": str(entry.witness_root),
    }
