"""Everything that can go wrong with a memory store and what is asked of it, as one tree under `melete.errors`.

InputError
└── EnvelopeError           an envelope or a result breaks a rule
    ├── MissingMember       a member that the operation cannot do without
    ├── UnknownMember       a member that nobody knows
    └── UnsupportedVersion  another version of the protocol

VerificationError
├── MemoryRefused           what is asked about a memory does not hold, and nothing was changed
│   ├── UnknownMemory       no such memory of this agent, or no longer
│   │   └── UnknownId       no such memory of anybody
│   ├── OtherMemoryType     a memory of another type
│   ├── MemoryMerged        a memory that another one has taken up
│   ├── MemoryTaken         a new memory under an id that there is
│   ├── NotPending          nothing waits for a decision under this id
│   ├── AlreadyDecided      it was decided before, once and for all
│   ├── OwnDecision         the writer may not decide
│   └── SourceChanged       what was to be merged is no longer as it was
└── BrokenAudit             the audit log or what it records was altered

CouldNotTell
└── NotFloats               an embedder gave no vectors that can be kept
"""

from __future__ import annotations

from melete.errors import CouldNotTell, InputError, VerificationError

# Envelopes and results


class EnvelopeError(InputError):
    """`member` of an envelope, a result or a hit holds `value`, which breaks `rule`.

    `value` is bounded, and "not shown" where it may be what somebody remembers.
    """

    member: str
    value: object
    rule: str
    sentence = "{member} is refused with {value}: {rule:plain}."


class MissingMember(EnvelopeError):
    """`member` is missing, null or empty."""

    sentence = "{member} is missing: {rule:plain}."


class UnknownMember(EnvelopeError):
    """`member` is none of the members that there are."""

    sentence = "{member} is unknown: {rule:plain}."


class UnsupportedVersion(EnvelopeError):
    """The envelope is of another version of the protocol."""


# Memories


class MemoryRefused(VerificationError):
    """What is asked about a memory does not hold. Nothing was changed, of this memory or of those beside it."""

    id: str


class UnknownMemory(MemoryRefused):
    """The store holds no memory `id` of this agent: it never was, is another agent's, was forgotten or has expired."""

    agent: str
    sentence = (
        "no memory {id} of agent {agent} is kept: it is another agent's, has expired, was forgotten, or never was; "
        "nothing was changed."
    )


class UnknownId(UnknownMemory):
    """The store holds no memory `id` of any agent: it never was, was forgotten or has expired."""

    sentence = "no memory {id} is kept: it has expired, was forgotten, or never was."


class OtherMemoryType(MemoryRefused):
    """The memory is of another type than the one that was asked for."""

    expected: str
    received: str
    sentence = "memory {id} is {received:plain}, not {expected:plain}; name its own type; nothing was changed."


class MemoryMerged(MemoryRefused):
    """The memory was merged into `merged_into`, which holds its content now."""

    merged_into: str
    sentence = "memory {id} was merged into {merged_into}, which holds its content; name that one; nothing was changed."


class MemoryTaken(MemoryRefused):
    """A memory with this id is kept already."""

    sentence = "a memory {id} is kept already; give the new one an id of its own."


class NotPending(MemoryRefused):
    """No write under this id waits for a decision, or ever did."""

    sentence = "nothing waits for approval under {id}; look at what is pending."


class AlreadyDecided(MemoryRefused):
    """The write was decided before: `decision` is approved, rejected, forgotten or expired."""

    decision: str
    by: str
    sentence = "{id} was {decision:plain} before, by {by}; a write is decided once."


class OwnDecision(MemoryRefused):
    """Who wrote something does not decide about it."""

    by: str
    sentence = "{by} wrote {id}, so somebody else has to decide about it."


class SourceChanged(MemoryRefused):
    """A memory that was to be merged is no longer what it was when the merge was proposed."""

    source: str
    reason: str
    sentence = "{source} {reason:plain} since the merge {id} was proposed; reject it, and propose another."


# Audit


class BrokenAudit(VerificationError):
    """The first place where the audit log, or a row that it records, is not as it was written.

    `number` is the audit row's; `rule` one of `melete.wire.audit.RULES`.
    """

    number: int
    rule: str
    expected: object
    received: object
    sentence = (
        "the audit is broken at number {number}: {rule:plain} should be {expected} and is {received}; "
        "compare with a backup, or with what was recorded elsewhere, before the store is used again."
    )


# Embedders


class NotFloats(CouldNotTell):
    """An embedder answered with something else than one row of finite numbers for each text."""

    reason: str
    sentence = "the embedder gave no vectors that can be kept ({reason:plain}); nothing was written."
