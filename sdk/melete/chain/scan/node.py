"""Asking a node for logs and block hashes: what its refusals mean, and asking ahead."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from melete.chain.connection import ask, describe_error
from melete.chain.scan.batches import Batches
from melete.chain.scan.blocks import hash_of
from melete.chain.scan.stride import Stride
from melete.errors import NodeRefused

if TYPE_CHECKING:
    from web3 import Web3

#: How often a page is read again when the chain moves under it, or a single block is refused.
ATTEMPTS: Final = 4
HEADERS_AT_ONCE: Final = 100

#: Words by which providers say that they want a pause, not a smaller range.
_PAUSE_WORDS: Final = ("too many requests", "rate limit", "rate-limit", "rate exceeded", "per second", "throttl")
#: HTTP answers that no smaller range will change: no access, no such place.
_FINAL_STATUS: Final = frozenset({401, 402, 403, 404, 405, 407})


class _Refused(Exception):
    """The node did not give the logs of a range, perhaps because it is too wide, or wants a pause first."""

    def __init__(self, reason: str, pause: bool) -> None:
        super().__init__(reason)
        self.reason, self.pause = reason, pause


class LogNode:
    """Asks for logs and block hashes, without the formatting that costs more than the request."""

    def __init__(self, w3: Web3, sleep: Callable[[float], None]) -> None:
        self._w3, self._sleep = w3, sleep
        self._provider: Any = w3.provider
        if hasattr(self._provider, "exception_retry_configuration"):
            # web3 would repeat a refused request five times before it tells.
            self._provider = copy.copy(self._provider)
            self._provider.exception_retry_configuration = None
        self._batches = Batches(w3)
        self._in_a_row = 0

    def pause(self, attempt: int) -> None:
        self._sleep(0.25 * 2**attempt)

    def load_logs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        """Return logs as the node wrote them, or raise `_Refused`. Errors: `NodeUnreachable` when nothing is there."""
        try:
            logs = _result("eth_getLogs", ask(self._w3, "eth_getLogs", lambda: self._request_logs(query)))
        except NodeRefused as error:
            raise _Refused(error.reason, _wants_a_pause(error.reason)) from error
        if not isinstance(logs, list):
            raise _Refused("the answer is no list of logs", pause=False)
        self._in_a_row = 0
        return logs

    def _request_logs(self, query: dict[str, Any]) -> Any:
        from requests import RequestException

        try:
            return self._provider.make_request("eth_getLogs", [query])
        except (RequestException, OSError, ValueError) as error:
            refused = _refusal_of(error)
            if refused is None:
                raise
            raise refused from None

    def overcome(self, refused: _Refused, stride: Stride, asked: int) -> None:
        """Wait, or ask for less next time, or give up with the refusal's own error."""
        self._in_a_row += 1
        if refused.pause and self._in_a_row <= ATTEMPTS:
            self.pause(self._in_a_row)
        elif asked > 1:
            self._in_a_row = 0
            stride.refuse(asked)
        elif self._in_a_row < ATTEMPTS:
            self.pause(self._in_a_row)
        else:
            raise NodeRefused("eth_getLogs", refused.reason) from None

    def load_hashes(self, numbers: Sequence[int]) -> dict[int, str | None]:
        """Return the hashes of blocks by their numbers, as lower-case hex; None for what the node does not have."""
        hashes: dict[int, str | None] = {}
        for start in range(0, len(numbers), HEADERS_AT_ONCE):
            some = numbers[start : start + HEADERS_AT_ONCE]
            blocks = self._batches.results([("eth_getBlockByNumber", [hex(number), False]) for number in some])
            hashes.update(zip(some, map(hash_of, some, blocks), strict=True))
        return hashes


class Coming:
    """Logs that are asked for in a thread of their own. What goes wrong there is raised to whoever waits for them."""

    def __init__(self, node: LogNode, blocks: tuple[int, int], query: dict[str, Any]) -> None:
        self.blocks = blocks
        self._node, self._query = node, query
        self._logs: list[dict[str, Any]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._load, daemon=True)
        self._thread.start()

    def wait(self) -> list[dict[str, Any]]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._logs

    def _load(self) -> None:
        try:
            self._logs = self._node.load_logs(self._query)
        except BaseException as error:  # noqa: BLE001  # raised again by `wait`
            self._error = error


def _result(method: str, answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        raise NodeRefused(method, "the answer is no JSON-RPC response")
    error = answer.get("error")
    if error:
        raise NodeRefused(method, describe_error(error))
    if "result" not in answer:
        raise NodeRefused(method, "the answer holds no result")
    return answer["result"]


def _refusal_of(error: Exception) -> _Refused | None:
    """Return the refusal that a failed request may be; None when the failure has nothing to do with its size."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code
        if status in _FINAL_STATUS:
            return None
        text = f"HTTP {status} {error.response.text[:200]}".strip()
        return _Refused(text, status == 429 or _wants_a_pause(text))
    if isinstance(error, requests.Timeout | TimeoutError) and not isinstance(error, requests.ConnectTimeout):
        return _Refused("it did not answer in time", pause=False)
    # Cut off in the middle of an answer, or an answer that is no JSON: gateways do that to long ones.
    is_cut = isinstance(error, requests.exceptions.ChunkedEncodingError | ConnectionResetError | ValueError)
    is_dropped = isinstance(error, requests.ConnectionError) and any(
        words in str(error) for words in ("aborted", "reset", "without response", "prematurely")
    )
    return _Refused("it broke off its answer", pause=False) if is_cut or is_dropped else None


def _wants_a_pause(text: str) -> bool:
    return any(words in text.lower() for words in _PAUSE_WORDS)
