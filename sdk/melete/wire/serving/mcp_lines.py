"""The lines that a client of the MCP server sends: those that are messages go on, all others are answered here.

The SDK drops a line that it cannot read, and whoever asked would wait for good. An error is answered under the id that
stands in the line, where one can be read, and under null otherwise (JSON-RPC 2.0, 5.1). What asks for no answer, a
notification or an answer of the client's own, gets none.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)

from melete.primitives import is_utf8

_NO_JSON: Final = "the line is no JSON in UTF-8"
_NO_REQUEST: Final = "the line is no request of JSON-RPC 2.0 with a text or a whole number as id"
_NO_PARAMS: Final = "the params are no object, or hold a text that is no Unicode, such as half of a surrogate pair"


class Source(Protocol):
    """Where lines come from; empty at the end."""

    async def readline(self) -> bytes: ...


def judge(line: bytes) -> str | JSONRPCError | None:
    """Return a line as the text of a message, or how it is answered; None for one that is passed over."""
    try:
        text = line.decode()
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return _answer(line)
    if isinstance(message, JSONRPCNotification) and "id" in json.loads(text):
        return _error(None, INVALID_REQUEST, _NO_REQUEST)
    return text


def _answer(line: bytes) -> JSONRPCError | None:
    """Return what a line is answered that the SDK does not take."""
    if not line.strip():
        return None
    try:
        members: Any = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return _error(None, PARSE_ERROR, _NO_JSON)
    if not isinstance(members, dict):
        return _error(None, INVALID_REQUEST, _NO_REQUEST)
    is_request = members.get("jsonrpc") == "2.0" and isinstance(members.get("method"), str)
    if "id" not in members:
        return None if is_request else _error(None, INVALID_REQUEST, _NO_REQUEST)
    if "method" not in members and ("result" in members or "error" in members):
        return None
    known = members["id"] if _is_id(members["id"]) else None
    if not is_request or known is None:
        return _error(known, INVALID_REQUEST, _NO_REQUEST)
    try:
        line.decode()
    except UnicodeDecodeError:
        return _error(known, PARSE_ERROR, _NO_JSON)
    return _error(known, INVALID_PARAMS, _NO_PARAMS)


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return is_utf8(value)
    return type(value) is int and abs(value) < 2**63


def _error(request: str | int | None, code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=code, message=message))


class Lines:
    """The messages among the lines of a source; `answer` is called for each of the others that is answered."""

    def __init__(self, source: Source, answer: Callable[[JSONRPCError], Awaitable[None]]) -> None:
        self._source, self._answer = source, answer

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await self._source.readline():
            judged = judge(line)
            if isinstance(judged, str):
                yield judged
            elif judged is not None:
                await self._answer(judged)
