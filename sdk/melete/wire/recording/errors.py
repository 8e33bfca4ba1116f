"""What can go wrong with memory on record, under the families of `melete.errors` and `melete.wire.errors`.

VerificationError
├── BrokenRecording      what a batch says contradicts itself, or what was recorded before it
├── RecordedElsewhere    a space records other writes than the store at hand
├── RecordingStopped     a batch that the registry will not take as it is
├── UnsafeBackup         a backup that is no known state of its space
└── MemoryRefused
    └── NotForgotten     a memory that is still there

CouldNotTell
├── NotOpened            a batch that the witnesses at hand do not open
├── NotAtHand            a witness store without the batches of the memory store
└── NotOnRecord          not recorded, or not in the registry, so far
"""

from __future__ import annotations

from melete.errors import CouldNotTell, VerificationError
from melete.wire.errors import MemoryRefused


class BrokenRecording(VerificationError):
    """What was recorded at `sequence` breaks `rule`; neither value is ever content or a secret."""

    sequence: int
    rule: str
    expected: object
    received: object
    sentence = (
        "what was recorded at sequence {sequence} does not hold: {rule:plain} should be {expected} and is {received}; "
        "take the witnesses from a backup, or ask whoever recorded it."
    )


class RecordedElsewhere(VerificationError):
    """The space holds a batch that the store at hand did not write, or no longer knows."""

    sequence: int
    number: int
    reason: str
    sentence = (
        "sequence {sequence} of the space records audit rows up to number {number}, and {reason:plain}; "
        "rebuild a store from the space, or record this one in a space of its own."
    )


class RecordingStopped(VerificationError):
    """A batch waits at `sequence` that the registry refuses."""

    sequence: int
    reason: str
    sentence = (
        "the batch at sequence {sequence} was refused ({reason}), and nothing is recorded after it; "
        "see to the cause, then retry it with the key of the space's authorizer."
    )


class UnsafeBackup(VerificationError):
    """A backup was not restored: `verdict` says which state it is."""

    path: str
    verdict: str
    sentence = (
        "{path} was not restored: {verdict:plain}; rebuild the store from the space, or force it if you know better."
    )


class NotForgotten(MemoryRefused):
    """The memory is kept, so nobody can attest that it was deleted."""

    sentence = "memory {id} was not forgotten; forget it first."


class NotOpened(CouldNotTell):
    """The witnesses at hand do not open what the transition `sequence` of the space committed to."""

    sequence: int
    reason: str
    sentence = "sequence {sequence} of the space cannot be opened ({reason:plain}); import its witnesses from a backup."


class NotAtHand(CouldNotTell):
    """The memory store was recorded by the delta with `commitment`, which the witness store at hand does not open."""

    commitment: bytes
    reason: str
    sentence = (
        "the memory store was recorded by the delta commitment {commitment}, and {reason:plain} in the witness store "
        "at hand; name the one that it was recorded with, or import a backup of it."
    )


class NotOnRecord(CouldNotTell):
    """What is asked about is not on record yet."""

    what: str
    sentence = "{what:plain}; record what waits, and send it, first."
