"""Attesting a deletion: the space's controller states on chain that what was forgotten has been deleted.

What is attested is the transition that records the forgetting: there is exactly one for each memory, while the one that
recorded the memory holds others that are still there. The evidence names every memory that this transition ended, where
its content had been recorded, and that the witness of that is erased. It is never sent; a commitment to it is. The
witness store keeps it as an operation, at place 0 of the transition's id.
"""

from __future__ import annotations

import secrets
from typing import Final

from melete.canonical import Json, canonicalize
from melete.errors import WitnessMissing
from melete.memory.batch import Operation
from melete.memory.extensions.deletion import DeletionAttestation
from melete.memory.extensions.events import DeletionAttested
from melete.memory.witness_kinds import OPERATION
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_BYTES32, Bytes32
from melete.wire.recording.anchoring import Anchor
from melete.wire.recording.batches import OpenedBatch, is_erased, iterate_entries, open_batch
from melete.wire.recording.errors import NotForgotten, NotOnRecord
from melete.wire.recording.evidence import Evidence, Standing, find_delta, prove
from melete.wire.recording.journal import Recording, core_of, find_recording, load_recorded
from melete.wire.recording.operations import ENDING
from melete.wire.store import MemoryStore

EVIDENCE_FORMAT: Final = "melete.deletion-evidence/1"
STATEMENT: Final = (
    "the rows of these memories and the witnesses of their contents are erased; of copies nothing is known"
)


def attest(
    store: MemoryStore,
    witnesses: WitnessStore,
    contract: DeletionAttestation,
    memory_id: str,
    first_block: int = 0,
) -> DeletionAttested:
    """Attest that a memory, and all that was forgotten along with it, is deleted; return the event.

    The contract's sender has to be the space's controller. Killed before the end, ask again: the evidence stays the
    same. Errors: `NotForgotten`; `NotOnRecord` while the forgetting is not committed, or its witnesses are not erased;
    `AlreadyAttested`, `NotSpaceController`; those of `prove`, and of `DeletionAttestation.attest`.
    """
    evidence = prove(store, witnesses, memory_id, contract.registry, first_block)
    anchor = require_deleted(evidence)
    operation = keep_evidence(store, witnesses, evidence, anchor)
    return contract.attest(anchor.delta, operation.compute_leaf())


def require_deleted(evidence: Evidence) -> Anchor:
    """Return the transition that records a forgetting. Errors: `NotForgotten`, `NotOnRecord`."""
    if not evidence.is_forgotten:
        raise NotForgotten(evidence.id)
    ended = evidence.ended
    if ended is None:
        raise NotOnRecord(f"memory {evidence.id} was forgotten, but that is not on record yet")
    if ended.standing is not Standing.COMMITTED or ended.anchor is None:
        raise NotOnRecord(f"that memory {evidence.id} was forgotten is not in the registry yet")
    return ended.anchor


def keep_evidence(store: MemoryStore, witnesses: WitnessStore, evidence: Evidence, anchor: Anchor) -> Operation:
    """Return the evidence for a transition's deletions, with its salt, kept among the witnesses from now on.

    Errors: `NotOnRecord` where the witness of a content that it names is not erased.
    """
    place = OPERATION.place(anchor.transition_id, 0)
    try:
        kept: Operation = witnesses.get(place)
    except WitnessMissing:
        document = describe_deletions(store, witnesses, evidence, anchor)
        kept = Operation(canonicalize(document), Bytes32(secrets.token_bytes(32)))
        witnesses.put(place, kept)
    return kept


def describe_deletions(
    store: MemoryStore, witnesses: WitnessStore, evidence: Evidence, anchor: Anchor
) -> dict[str, Json]:
    """Return the evidence document for all deletions that a transition records."""
    recording = evidence.space
    assert recording is not None  # a transition was recorded
    ended = {}
    with core_of(store).database.reading() as connection:
        batch = find_recording(connection, evidence.ended.entry.number) if evidence.ended is not None else None
        assert batch is not None  # or there was no transition
        sequence, witness = find_delta(witnesses, batch)
        opened = open_batch(witnesses, witness, sequence)
        assert opened is not None  # `prove` opened it
        for entry, _, _ in iterate_entries(witnesses, opened):
            if entry.action in ENDING:
                ended.update(dict.fromkeys(entry.memories, entry))
        places: dict[str, tuple[int, Recording | None]] = {
            memory.id: (memory.number, find_recording(connection, memory.number))
            for memory in load_recorded(connection, list(ended))
        }
    described: list[Json] = []
    opened_batches: dict[Bytes32, tuple[int, OpenedBatch | None]] = {}
    for memory_id, entry in ended.items():
        members: dict[str, Json] = {
            "id": memory_id,
            "action": entry.action.value,
            "number": entry.number,
            "at": entry.at,
        }
        number, made_in = places.get(memory_id, (0, None))
        if made_in is not None:
            if made_in.commitment not in opened_batches:
                place, opener = find_delta(witnesses, made_in)
                opened_batches[made_in.commitment] = (place, open_batch(witnesses, opener, place))
            place, made = opened_batches[made_in.commitment]
            index = None if made is None else made.head.content_index(number)
            if made is not None and index is not None:
                if not is_erased(witnesses, made.batch.root, index):
                    raise NotOnRecord(f"the witness of memory {memory_id} is not erased yet")
                members["recorded"] = {
                    "sequence": str(place),
                    "root": str(made.batch.root),
                    "index": index,
                    "leaf": str(made.leaves[index]),
                }
        described.append(members)
    return {
        "format": EVIDENCE_FORMAT,
        "chainId": recording.chain_id,
        "registry": str(recording.registry),
        "spaceId": str(recording.space_id),
        "sequence": str(anchor.delta.sequence),
        "transitionId": str(anchor.transition_id),
        "memories": described,
        "statement": STATEMENT,
    }


def find_attestation(contract: DeletionAttestation, evidence: Evidence) -> Bytes32 | None:
    """Return the evidence commitment that is attested for a memory's deletion; None where there is none so far."""
    if evidence.ended is None or evidence.ended.anchor is None:
        return None
    found = contract.evidence_of(evidence.ended.anchor.transition_id)
    return None if found == ZERO_BYTES32 else found
