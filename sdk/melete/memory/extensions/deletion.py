"""The client of a `DeletionAttestation` contract."""

from __future__ import annotations

from typing import ClassVar, Final

from melete.errors import AlreadyAttested, EmptyEvidenceCommitment, UnknownTransition
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.memory.extensions.events import DeletionAttested
from melete.memory.extensions.record import Record
from melete.primitives import ZERO_BYTES32, Bytes32

FUNCTIONS: Final = {
    "attest": "attest((bytes32,uint64,bytes32,bytes32,bytes32,bytes32,bytes32),bytes32)",
    "evidenceOf": "evidenceOf(bytes32)",
}


class DeletionAttestation(Record):
    """A controller's statements that what a transition was about has been deleted.

    What is attested is what that account says, with a commitment to evidence that it keeps: no proof of a deletion,
    and never that no copy is left.
    """

    contract_name: ClassVar[str] = "DeletionAttestation"
    functions: ClassVar[dict[str, str]] = FUNCTIONS

    def evidence_of(self, transition_id: Bytes32) -> Bytes32:
        """Return the evidence commitment of a transition's attestation; zero when there is none."""
        return self._words("evidenceOf", Bytes32(transition_id, "transitionId"), count=1)[0]

    def check_attest(self, delta: ExperienceDelta, evidence_commitment: Bytes32) -> None:
        """Raise the first error that `attest` would meet, or return; nothing is sent."""
        evidence_commitment = Bytes32(evidence_commitment, "evidenceCommitment")
        transition_id = compute_transition_id(delta)
        state_root = self.registry.state_root_at(delta.space_id, delta.sequence)
        if state_root != compute_next_state_root(delta.prev_state_root, transition_id):
            raise UnknownTransition
        self._require_controller(delta.space_id)
        if self.evidence_of(transition_id) != ZERO_BYTES32:
            raise AlreadyAttested
        if evidence_commitment == ZERO_BYTES32:
            raise EmptyEvidenceCommitment
        self._simulate(self._attest_call(delta, evidence_commitment))

    def attest(self, delta: ExperienceDelta, evidence_commitment: Bytes32) -> DeletionAttested:
        """Attest a deletion for a transition, once and for good, and return the event.

        The sender has to be the space's controller. `evidence_commitment` is salted: the evidence is never sent.
        Errors: those of the contract's `attest`, before anything is sent.
        """
        self.check_attest(delta, evidence_commitment)
        return self._send(self._attest_call(delta, evidence_commitment), DeletionAttested)

    def _known_answers(self) -> dict[str, tuple[bytes, bytes]]:
        return {"evidenceOf": (ZERO_BYTES32, ZERO_BYTES32)}

    def _attest_call(self, delta: ExperienceDelta, evidence_commitment: Bytes32) -> bytes:
        return self._data("attest", delta.words() + Bytes32(evidence_commitment, "evidenceCommitment"))
