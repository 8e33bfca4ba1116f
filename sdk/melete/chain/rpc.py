"""Raw JSON-RPC: several requests in one go, each with its own answer or error.

web3 formats every answer and raises on the first error; a pipeline wants neither.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from melete.chain.connection import error_of_response, node_errors
from melete.errors import MeleteError

if TYPE_CHECKING:
    from web3 import Web3


#: How many requests travel together, until a provider refuses so many: some stop at 100, and get so many from then on.
MOST_AT_ONCE: Final = 200
#: HTTP answers that have nothing to do with a batch's size: no access, no such place, too often.
_FINAL_STATUS: Final = frozenset({401, 402, 403, 404, 405, 407, 429})
#: For how long a provider that refused so many is not asked for more, in seconds.
LIMIT_SECONDS: Final = 600.0
#: How many each provider took, where it is fewer, and since when that is known.
_limits: WeakKeyDictionary[Any, tuple[int, float]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Answer:
    """A result as the node gave it, or the error of ours that its error stands for."""

    result: Any
    error: MeleteError | None = None
    message: str = ""


def batch(w3: Web3, requests: Sequence[tuple[str, list[Any]]]) -> list[Answer]:
    """Return an answer for each request, in order. Over HTTP they travel together, at most `MOST_AT_ONCE` at a time.

    A provider that refuses so many gets fewer, at last one by one; for a while then it is not asked for more.
    Errors: `NodeUnreachable`; `NodeRefused` when the node refuses a single request as none.
    """
    answers: list[Answer] = []
    most, is_its_limit = _most_at_once(w3.provider), False
    while len(answers) < len(requests):
        part = requests[len(answers) : len(answers) + most]
        together = _together(w3, part) if len(part) > 1 else [_alone(w3, *part[0])]
        if isinstance(together, list):
            answers += together
            continue
        most, is_its_limit = len(part) // 2, together is _Refusal.SIZE
    if is_its_limit:
        _limits[w3.provider] = most, time.monotonic()
    return answers


class _Refusal(Enum):
    """Why a batch was not taken as it is."""

    SIZE = "the provider says so"
    TROUBLE = "something failed behind it, as may happen once"


def _together(w3: Web3, part: Sequence[tuple[str, list[Any]]]) -> list[Answer] | _Refusal:
    """Return the answers to a batch, or why the provider does not take it."""
    import requests

    with node_errors(w3, part[0][0]):
        try:
            responses: Any = w3.provider.make_batch_request(list(part))  # type: ignore[attr-defined]
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code in _FINAL_STATUS:
                raise
            return _Refusal.TROUBLE if error.response.status_code >= 500 else _Refusal.SIZE
        except (KeyError, TypeError, NotImplementedError):  # answers without ids, or a provider that has no batches
            return _Refusal.SIZE
    if not isinstance(responses, list) or len(responses) != len(part):
        return _Refusal.SIZE
    return [_answer(method, response) for (method, _), response in zip(part, responses, strict=True)]


def _most_at_once(provider: Any) -> int:
    if not hasattr(provider, "make_batch_request"):
        return 1
    most, since = _limits.get(provider, (MOST_AT_ONCE, 0.0))
    return max(1, most) if time.monotonic() - since < LIMIT_SECONDS else MOST_AT_ONCE


def one(w3: Web3, method: str, parameters: list[Any]) -> Any:
    """Return the result of one request. Errors: as its answer's."""
    answer = _alone(w3, method, parameters)
    if answer.error is not None:
        raise answer.error
    return answer.result


def to_int(quantity: Any) -> int:
    """Return the number that a JSON-RPC quantity states."""
    return quantity if isinstance(quantity, int) else int(str(quantity), 16)


def to_bytes(data: Any) -> bytes:
    """Return the bytes that JSON-RPC data states."""
    return bytes.fromhex(str(data)[2:])


def _alone(w3: Web3, method: str, parameters: list[Any]) -> Answer:
    with node_errors(w3, method):
        response = w3.provider.make_request(method, parameters)  # type: ignore[arg-type]
    return _answer(method, response)


def _answer(method: str, response: Any) -> Answer:
    if isinstance(response, dict) and not response.get("error"):
        return Answer(response.get("result"))
    error = error_of_response(method, response)
    details = response.get("error") if isinstance(response, dict) else response
    return Answer(None, error, str(details.get("message", details)) if isinstance(details, dict) else str(details))
