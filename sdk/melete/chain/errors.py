"""What can keep an outbox from going on."""

from __future__ import annotations

from melete.errors import CouldNotTell, VerificationError


class LaneStopped(VerificationError):
    """Something of a space or subject can never be registered as it is, and what comes after it waits."""

    space: bytes
    position: int
    reason: str
    sentence = (
        "in the outbox, {space} stands still at {position} ({reason}); `melete outbox rebuild` signs it anew on the "
        "current head, `melete outbox withdraw` gives it up."
    )


class LaneLost(CouldNotTell):
    """What was done is no longer on the chain, or the node is behind."""

    space: bytes
    position: int
    head: int
    sentence = (
        "the outbox holds {space} as done up to {position}, and the node's head is at {head}: the chain was "
        "reorganized, or the node is behind or serves another one; `melete outbox run` sends again what is missing."
    )


class NodeBehind(CouldNotTell):
    """What was done stands in a block that the node does not have."""

    latest: int
    done: int
    sentence = (
        "the node is at block {latest}, and the outbox holds what was done in block {done}: it is behind, or serves a "
        "chain that began anew; wait for it, or give another --rpc-url, or another --outbox for a new chain."
    )


class LaneMoving(CouldNotTell):
    """Transactions of a space are on their way."""

    space: bytes
    position: int
    sentence = "{position} of {space} is on its way to a block; `melete outbox run` waits for it, then ask again."


class WitnessesLost(VerificationError):
    """The store keeps witnesses of deltas that the outbox does not know of."""

    space: bytes
    position: int
    sentence = (
        "the witness store keeps a change for position {position} of {space} that this outbox does not know of (was it "
        "another file?); `melete outbox rebuild` queues it again, `melete outbox withdraw` gives it up."
    )
