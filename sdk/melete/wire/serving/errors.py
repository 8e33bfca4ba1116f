"""What can go wrong between a client and a server of ours, and what a client is told about any error.

InputError
└── RequestRefused          a request that breaks a rule of the server, or of HTTP       400
    ├── UnknownAddress      nothing is at this address                                  404
    ├── WrongMethod         something is, but not for this method                       405
    ├── BodyTooLarge        a body over the limit                                       413
    ├── NotJsonBody         a body that does not say that it is JSON, or is packed      415
    ├── TwoLengths          a body whose length is said in two ways                     400
    └── AnswerTooLarge      an answer over the limit: less can be asked for             400

VerificationError
├── NotAuthenticated        no token, or none that is known                             401
└── NotAllowed              what a token is not for                                     403
    ├── OtherAgent          another agent's memory
    └── MissingRole         something that needs another role

CouldNotTell
├── BodyTooSlow             a body that did not come in time                            408
├── ServerBusy              as many requests as the server takes are under way          503
└── ServerFault             a fault of the server's own                                 500
"""

from __future__ import annotations

from typing import Final

from melete.errors import CouldNotTell, InputError, InvalidInput, MeleteError, VerificationError
from melete.wire.errors import EnvelopeError, MemoryRefused, NotPending, OwnDecision, UnknownMemory

# Requests


class RequestRefused(InputError):
    """A request breaks a rule of the server, or of HTTP/1.1."""

    sentence = "this is no request that the server understands."


class UnknownAddress(RequestRefused):
    sentence = "there is nothing at this address; envelopes go to /v1/memory."


class WrongMethod(RequestRefused):
    sentence = "this address does not know this method; the header Allow names those that it knows."


class BodyTooLarge(RequestRefused):
    limit: int
    sentence = "the body may take {limit} bytes; send less at once."


class NotJsonBody(RequestRefused):
    sentence = "the body must be JSON as it is: say Content-Type: application/json, once, and no Content-Encoding."


class TwoLengths(RequestRefused):
    """Whoever stands between could take another part of it for the body (RFC 9112, section 6.3)."""

    sentence = "how long the body is must be said once: by Content-Length, or by Transfer-Encoding."


class AnswerTooLarge(RequestRefused):
    limit: int
    sentence = "the answer would take more than {limit} bytes; ask for less at once, with a smaller top_k or limit."


# Tokens


class NotAuthenticated(VerificationError):
    """`reason` says what is wrong with the header, and never shows it."""

    reason: str
    sentence = "the request is not authenticated ({reason:plain}); send Authorization: Bearer and a token."


class NotAllowed(VerificationError):
    """A token is not for what was asked."""


class OtherAgent(NotAllowed):
    agent: str
    sentence = "this token is not for agent {agent}; use one that is."


class MissingRole(NotAllowed):
    role: str
    sentence = "this needs the role {role:plain}, which was not given here; use a token or a server that has it."


# The server


class BodyTooSlow(CouldNotTell):
    seconds: float
    sentence = "the body did not come whole within {seconds} seconds; nothing was done, so send it again."


class ServerBusy(CouldNotTell):
    sentence = "the server has as much to do as it takes; nothing was done, so try again in a moment."


class ServerFault(CouldNotTell):
    sentence = "a fault in the server itself; who runs it finds its kind in the log."


# What a client is told

_STATUS: Final[dict[type[MeleteError], int]] = {
    UnknownAddress: 404,
    WrongMethod: 405,
    BodyTooLarge: 413,
    NotJsonBody: 415,
    NotAuthenticated: 401,
    NotAllowed: 403,
    BodyTooSlow: 408,
    ServerFault: 500,
    UnknownMemory: 404,
    NotPending: 404,
    OwnDecision: 403,
    MemoryRefused: 409,
    InputError: 400,
    CouldNotTell: 503,
}
#: Errors whose messages hold what the client sent or may know. Others may name files and hosts.
_TOLD: Final = (InputError, MemoryRefused, NotAuthenticated, NotAllowed, BodyTooSlow, ServerBusy, ServerFault)
_NOT_TOLD: Final = "the server cannot do this now; who runs it finds the reason in the log."


def compute_status(error: MeleteError) -> int:
    """Return the HTTP status for an error: the one of its class, or of the nearest class above it; else 500."""
    return next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)


def describe_error(error: MeleteError) -> dict[str, str]:
    """Return what a client is told: `name` of the class, `message`, and `member` where one is at fault."""
    is_told = isinstance(error, _TOLD)
    told = {"name": type(error).__name__, "message": str(error) if is_told else _NOT_TOLD}
    if isinstance(error, EnvelopeError):
        told["member"] = str(error.member)
    elif isinstance(error, InvalidInput):
        told["member"] = error.field
    return told
