"""Raw JSON-RPC: several requests in one go, each with its own answer or error.

web3 formats every answer and raises on the first error; a pipeline wants neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from melete.chain.connection import error_of_response, node_errors
from melete.errors import MeleteError

if TYPE_CHECKING:
    from web3 import Web3


#: How many requests travel together: what most providers take.
MOST_AT_ONCE: Final = 100
#: HTTP answers that have nothing to do with a batch's size: no access, no such place, too often.
_FINAL_STATUS: Final = frozenset({401, 402, 403, 404, 405, 407, 429})
#: How many each provider took at last, where it is fewer.
_sizes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Answer:
    """A result as the node gave it, or the error of ours that its error stands for."""

    result: Any
    error: MeleteError | None = None
    message: str = ""


def batch(w3: Web3, requests: Sequence[tuple[str, list[Any]]]) -> list[Answer]:
    """Return an answer for each request, in order. Over HTTP they travel together, at most `MOST_AT_ONCE` at a time.

    A provider that refuses so many gets fewer, at last one by one, and no more from then on.
    Errors: `NodeUnreachable`; `NodeRefused` when the node refuses a single request as none.
    """
    answers: list[Answer] = []
    while len(answers) < len(requests):
        most = _most_at_once(w3.provider)
        part = requests[len(answers) : len(answers) + most]
        together = _together(w3, part) if len(part) > 1 else [_alone(w3, *part[0])]
        if together is None:
            _sizes[w3.provider] = len(part) // 2
        else:
            answers += together
    return answers


def _together(w3: Web3, part: Sequence[tuple[str, list[Any]]]) -> list[Answer] | None:
    """Return the answers to a batch, or None if the provider does not take it as it is."""
    import requests

    with node_errors(w3, part[0][0]):
        try:
            responses: Any = w3.provider.make_batch_request(list(part))  # type: ignore[attr-defined]
        except requests.HTTPError as error:
            if error.response is None or error.response.status_code in _FINAL_STATUS:
                raise
            return None
        except (KeyError, TypeError, NotImplementedError):  # answers without ids, or a provider that has no batches
            return None
    if not isinstance(responses, list) or len(responses) != len(part):
        return None
    return [_answer(method, response) for (method, _), response in zip(part, responses, strict=True)]


def _most_at_once(provider: Any) -> int:
    return max(1, _sizes.get(provider, MOST_AT_ONCE)) if hasattr(provider, "make_batch_request") else 1


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
