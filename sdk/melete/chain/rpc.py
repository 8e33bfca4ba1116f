"""Raw JSON-RPC: several requests in one go, each with its own answer or error.

web3 formats every answer and raises on the first error; a pipeline wants neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from melete.chain.connection import error_of_response, node_errors
from melete.errors import MeleteError, NodeRefused

if TYPE_CHECKING:
    from web3 import Web3


@dataclass(frozen=True, slots=True)
class Answer:
    """A result as the node gave it, or the error of ours that its error stands for."""

    result: Any
    error: MeleteError | None = None
    message: str = ""


def batch(w3: Web3, requests: Sequence[tuple[str, list[Any]]]) -> list[Answer]:
    """Return an answer for each request, in order. Over HTTP they travel as one.

    Errors: `NodeUnreachable`; `NodeRefused` when the node refuses the batch as a whole.
    """
    if not requests:
        return []
    if len(requests) == 1 or not hasattr(w3.provider, "make_batch_request"):
        return [_answer(method, _request(w3, method, parameters)) for method, parameters in requests]
    with node_errors(w3, requests[0][0]):
        responses: Any = w3.provider.make_batch_request(list(requests))
    if not isinstance(responses, list) or len(responses) != len(requests):
        raise NodeRefused(f"a batch of {len(requests)} requests", str(responses)[:200])
    return [_answer(method, response) for (method, _), response in zip(requests, responses, strict=True)]


def one(w3: Web3, method: str, parameters: list[Any]) -> Any:
    """Return the result of one request. Errors: as its answer's."""
    answer = _answer(method, _request(w3, method, parameters))
    if answer.error is not None:
        raise answer.error
    return answer.result


def to_int(quantity: Any) -> int:
    """Return the number that a JSON-RPC quantity states."""
    return quantity if isinstance(quantity, int) else int(str(quantity), 16)


def to_bytes(data: Any) -> bytes:
    """Return the bytes that JSON-RPC data states."""
    return bytes.fromhex(str(data)[2:])


def _request(w3: Web3, method: str, parameters: list[Any]) -> Any:
    with node_errors(w3, method):
        return w3.provider.make_request(method, parameters)  # type: ignore[arg-type]


def _answer(method: str, response: Any) -> Answer:
    if isinstance(response, dict) and not response.get("error"):
        return Answer(response.get("result"))
    error = error_of_response(method, response)
    details = response.get("error") if isinstance(response, dict) else response
    return Answer(None, error, str(details.get("message", details)) if isinstance(details, dict) else str(details))
