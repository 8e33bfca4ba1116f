"""The client of an `AuditGrant` contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from melete.errors import (
    CrossCheckFailed,
    GrantAlreadyAcknowledged,
    GrantAlreadyExists,
    GrantAlreadyRevoked,
    GrantOfAnotherSpace,
    NotARecord,
    NotAuditor,
    RangeBeyondHead,
    UnknownGrant,
    WitnessRootMismatch,
    ZeroAuditor,
    ZeroWitnessSetRoot,
)
from melete.memory.extensions.events import AuditAcknowledged, AuditGranted, AuditRevoked
from melete.memory.extensions.grants import check_range, compute_grant_id, compute_next_witness_root
from melete.memory.extensions.record import Record
from melete.primitives import UINT64_MAX, ZERO_ADDRESS, ZERO_BYTES32, Address, Bytes32, uint64, uint_word

FUNCTIONS: Final = {
    "grant": "grant(bytes32,address,uint64,uint64,bytes32)",
    "acknowledge": "acknowledge(bytes32,bytes32,bytes32)",
    "revoke": "revoke(bytes32,bytes32)",
    "grantOf": "grantOf(bytes32)",
    "spaceOf": "spaceOf(bytes32)",
    "deriveGrantId": "deriveGrantId(bytes32,address,uint64,uint64)",
    "foldWitnessRoot": "foldWitnessRoot(bytes32,bytes32,bytes32)",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """All that the contract knows of a grant. Times are Unix seconds; 0 is never."""

    space_id: Bytes32
    witness_set_root: Bytes32
    auditor: Address
    acknowledged_at: int
    revoked_at: int
    from_sequence: int
    to_sequence: int
    granted_at: int


class AuditGrant(Record):
    """What controllers disclosed to auditors, each as one root over a range of transitions.

    An acknowledgement says that the auditor's account named the granted root, which is public: not that it was handed
    a witness, or read one.
    """

    contract_name: ClassVar[str] = "AuditGrant"
    functions: ClassVar[dict[str, str]] = FUNCTIONS

    # Reading

    def grant_of(self, grant_id: Bytes32) -> Grant:
        """Return a grant. Errors: `UnknownGrant`."""
        grant_id = Bytes32(grant_id, "grantId")
        space_id, root, auditor, *numbers = self._words("grantOf", grant_id, count=8)
        sizes = (48, 48, 64, 64, 48)
        values = [int.from_bytes(word, "big") for word in numbers]
        if any(auditor[:12]) or any(value >> size for value, size in zip(values, sizes, strict=True)):
            raise NotARecord(self.address, "grantOf", b"".join((auditor, *numbers)))
        if not any(auditor):
            raise UnknownGrant(grant_id)
        return Grant(space_id, root, Address(auditor[12:]), *values)

    def space_of(self, grant_id: Bytes32) -> Bytes32:
        """Return the space that a grant is about. Errors: `UnknownGrant`."""
        grant_id = Bytes32(grant_id, "grantId")
        (space_id,) = self._words("spaceOf", grant_id, count=1)
        if space_id == ZERO_BYTES32:
            raise UnknownGrant(grant_id)
        return space_id

    # Checking before sending

    def check_grant(
        self, space_id: Bytes32, auditor: Address, from_sequence: int, to_sequence: int, witness_set_root: Bytes32
    ) -> None:
        """Raise the first error that `grant` would meet, or return; nothing is sent."""
        space_id, auditor = Bytes32(space_id, "spaceId"), Address(auditor, "auditor")
        uint64(from_sequence, "fromSequence")
        uint64(to_sequence, "toSequence")
        witness_set_root = Bytes32(witness_set_root, "witnessSetRoot")
        self._require_controller(space_id)
        if auditor == ZERO_ADDRESS:
            raise ZeroAuditor
        check_range(from_sequence, to_sequence)
        head_sequence = self.registry.head(space_id).sequence
        if to_sequence > head_sequence:
            raise RangeBeyondHead(head_sequence, to_sequence)
        if witness_set_root == ZERO_BYTES32:
            raise ZeroWitnessSetRoot
        grant_id = compute_grant_id(space_id, auditor, from_sequence, to_sequence)
        if self._load_known(grant_id) is not None:
            raise GrantAlreadyExists(grant_id)
        self._simulate(self._grant_call(space_id, auditor, from_sequence, to_sequence, witness_set_root))

    def check_acknowledge(self, space_id: Bytes32, grant_id: Bytes32, computed_root: Bytes32) -> None:
        """Raise the first error that `acknowledge` would meet, or return; nothing is sent."""
        space_id, grant_id = Bytes32(space_id, "spaceId"), Bytes32(grant_id, "grantId")
        computed_root = Bytes32(computed_root, "computedRoot")
        grant = self._load_grant(space_id, grant_id)
        if grant.auditor != self._sender.address:
            raise NotAuditor(grant.auditor, self._sender.address)
        if grant.revoked_at:
            raise GrantAlreadyRevoked(grant_id)
        if grant.acknowledged_at:
            raise GrantAlreadyAcknowledged(grant_id)
        if computed_root != grant.witness_set_root:
            raise WitnessRootMismatch(grant.witness_set_root, computed_root)
        self._simulate(self._acknowledge_call(space_id, grant_id, computed_root))

    def check_revoke(self, space_id: Bytes32, grant_id: Bytes32) -> None:
        """Raise the first error that `revoke` would meet, or return; nothing is sent."""
        space_id, grant_id = Bytes32(space_id, "spaceId"), Bytes32(grant_id, "grantId")
        grant = self._load_grant(space_id, grant_id)
        self._require_controller(space_id)
        if grant.revoked_at:
            raise GrantAlreadyRevoked(grant_id)
        self._simulate(self._data("revoke", space_id + grant_id))

    # Sending

    def grant(
        self, space_id: Bytes32, auditor: Address, from_sequence: int, to_sequence: int, witness_set_root: Bytes32
    ) -> AuditGranted:
        """Grant an auditor a range, both ends included, and return the event.

        The sender has to be the space's controller. The root is `fold_witness_root` of the range; it can never be
        replaced, not even after a revocation. Errors: those of the contract's `grant`, before anything is sent.
        """
        arguments = space_id, auditor, from_sequence, to_sequence, witness_set_root
        self.check_grant(*arguments)
        event = self._send(self._grant_call(*arguments), AuditGranted)
        grant_id = compute_grant_id(space_id, auditor, from_sequence, to_sequence)
        if event.grant_id != grant_id:
            raise CrossCheckFailed("grant", grant_id, event.grant_id)
        return event

    def acknowledge(self, space_id: Bytes32, grant_id: Bytes32, computed_root: Bytes32) -> AuditAcknowledged:
        """Record that the sender, who has to be the auditor, computed the granted root, and return the event.

        Errors: those of the contract's `acknowledge`, before anything is sent.
        """
        self.check_acknowledge(space_id, grant_id, computed_root)
        return self._send(self._acknowledge_call(space_id, grant_id, computed_root), AuditAcknowledged)

    def revoke(self, space_id: Bytes32, grant_id: Bytes32) -> AuditRevoked:
        """Revoke a grant for good, and return the event. The sender has to be the space's controller.

        Errors: those of the contract's `revoke`, before anything is sent.
        """
        self.check_revoke(space_id, grant_id)
        return self._send(self._data("revoke", Bytes32(space_id) + Bytes32(grant_id)), AuditRevoked)

    # Private

    def _known_answers(self) -> dict[str, tuple[bytes, bytes]]:
        space_id, second, third = (Bytes32(bytes([number]) * 32) for number in (0xA1, 0xA2, 0xA3))
        auditor = Address(b"\x11" * 20)
        derivation = space_id + auditor.word + uint_word(1) + uint_word(UINT64_MAX)
        return {
            "deriveGrantId": (derivation, compute_grant_id(space_id, auditor, 1, UINT64_MAX)),
            "foldWitnessRoot": (space_id + second + third, compute_next_witness_root(space_id, second, third)),
        }

    def _load_known(self, grant_id: Bytes32) -> Grant | None:
        try:
            return self.grant_of(grant_id)
        except UnknownGrant:
            return None

    def _load_grant(self, space_id: Bytes32, grant_id: Bytes32) -> Grant:
        grant = self.grant_of(grant_id)
        if grant.space_id != space_id:
            raise GrantOfAnotherSpace(grant.space_id, space_id)
        return grant

    def _grant_call(
        self, space_id: Bytes32, auditor: Address, from_sequence: int, to_sequence: int, witness_set_root: Bytes32
    ) -> bytes:
        ends = uint_word(from_sequence) + uint_word(to_sequence)
        words = Bytes32(space_id) + Address(auditor).word + ends + Bytes32(witness_set_root)
        return self._data("grant", words)

    def _acknowledge_call(self, space_id: Bytes32, grant_id: Bytes32, computed_root: Bytes32) -> bytes:
        return self._data("acknowledge", Bytes32(space_id) + Bytes32(grant_id) + Bytes32(computed_root))
