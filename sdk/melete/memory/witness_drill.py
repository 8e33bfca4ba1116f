"""The restore drill: does the store open every commitment of a space, and if not, which ones does it not open?

A store that was never drilled is a hope. The deltas come from a verified history; nothing is kept of them, so a
history of any length takes constant memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from melete.errors import InvalidInput, NotAuthentic, WitnessErased, WitnessMismatch, WitnessMissing
from melete.memory.batch import Batch, compute_batch
from melete.memory.delta import ExperienceDelta
from melete.memory.profiles import BATCH
from melete.memory.witness import verify_witness
from melete.memory.witness_kinds import DELTA, OPERATION, Place
from melete.memory.witness_store import WitnessStore


class Answer(StrEnum):
    """How a commitment fared."""

    OPENED = "opened"
    MISSING = "missing"
    ERASED = "erased"
    DOES_NOT_DECRYPT = "does not decrypt"
    DOES_NOT_OPEN = "does not open"


class Finding(NamedTuple):
    """What the drill found at one place; `commitment` names the one that stays closed, where it is one of several."""

    place: Place
    answer: Answer
    commitment: str = ""


def drill(store: WitnessStore, deltas: Iterable[ExperienceDelta]) -> Iterator[Finding]:
    """Yield a finding for each delta, in order; after that of a batch, one for each of its operations.

    An operation opens when the leaves kept of its batch, those of erased operations included, give the batch's root.
    Errors: `InvalidInput` for what is no delta; those that concern the store as a whole, such as `WrongKey` when its
    key was changed meanwhile.
    """
    for delta in deltas:
        if not isinstance(delta, ExperienceDelta):
            raise InvalidInput("deltas", delta, "ExperienceDelta values")
        finding, witness = _look(store, DELTA.place(delta.space_id, delta.sequence))
        if witness is not None:
            try:
                verify_witness(delta, witness)
            except WitnessMismatch as error:
                finding = Finding(finding.place, Answer.DOES_NOT_OPEN, error.commitment)
        yield finding
        if finding.answer is Answer.OPENED and delta.profile_id == BATCH.id:
            yield from _drill_batch(store, witness.payload)


def _drill_batch(store: WitnessStore, payload: bytes) -> Iterator[Finding]:
    try:
        batch = Batch.from_payload(payload)
    except InvalidInput:  # a payload under the batch's profile that is none has no operations
        return
    try:
        whole = compute_batch(row.commitment for row in store.list_rows(OPERATION, batch.root)) == batch
    except InvalidInput:  # no leaf at all
        whole = False
    for index in range(batch.count):
        finding, _ = _look(store, OPERATION.place(batch.root, index))
        if finding.answer is Answer.OPENED and not whole:
            finding = Finding(finding.place, Answer.DOES_NOT_OPEN, "root")
        yield finding


def _look(store: WitnessStore, place: Place) -> tuple[Finding, Any]:
    """Return what is found at a place, and the record where there is one."""
    try:
        return Finding(place, Answer.OPENED), store.get(place)
    except WitnessMissing:
        return Finding(place, Answer.MISSING), None
    except WitnessErased:
        return Finding(place, Answer.ERASED), None
    except NotAuthentic:
        return Finding(place, Answer.DOES_NOT_DECRYPT), None
    except InvalidInput:  # authentic bytes that are no record
        return Finding(place, Answer.DOES_NOT_OPEN), None
