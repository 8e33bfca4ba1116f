"""A memory store over HTTP: one envelope in, one result out, for those who hold a token.

    GET  /.well-known/amp-schema.json      the schema of an envelope; for everybody
    POST /v1/memory                        an envelope; role reader to recall, writer for the rest
    GET  /v1/pending                       what waits for approval, of one agent; role approver
    POST /v1/pending/{id}/approve          let it in; role approver, and another name than the writer's
    POST /v1/pending/{id}/reject           refuse it, and erase it; the same
    GET  /healthz                          204 if the store can be read, without a word

A token is bound to a name, to agents and to roles; what it writes and decides is on record under its name. An error is
`{"error": {"name", "message", "member"?}}`. The log holds what was called, its status and the token's id, and nothing
that a client sent. No header lets pages of other origins in.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Final, TypeVar

from melete.canonical import Json
from melete.errors import InvalidInput, MeleteError, MissingExtra
from melete.primitives import NOT_SHOWN
from melete.wire.envelope import Envelope, Operation, Result, verify_memory_id
from melete.wire.errors import EnvelopeError, NotPending, UnknownMember, UnknownMemory
from melete.wire.schema import load_envelope_schema
from melete.wire.serving.errors import (
    AnswerTooLarge,
    BodyTooLarge,
    BodyTooSlow,
    NotAllowed,
    NotAuthenticated,
    NotJsonBody,
    RequestRefused,
    ServerBusy,
    ServerFault,
    TwoLengths,
    UnknownAddress,
    WrongMethod,
    compute_status,
    describe_error,
)
from melete.wire.serving.tokens import Role, Token, TokenFile
from melete.wire.store import MemoryStore

try:
    import anyio
    from anyio import to_thread
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError:
    raise MissingExtra("http", "serving memory over HTTP") from None

Answer = TypeVar("Answer")

log: Final = logging.getLogger("melete.serving")

#: What `GET /v1/pending` returns at once.
DEFAULT_PENDING: Final = 20
MAX_PENDING: Final = 100
#: Lists, objects and commas in a body. Metadata of 64 KiB and all ids and tags that there may be have fewer.
MAX_PARTS: Final = 100_000
#: A string, also one that does not end: so every byte is looked at once.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
#: Where the log's values travel with a request.
_NOTES: Final = "melete.serving"
#: An answer goes out in such parts, the next one when the one before has gone.
_PART_BYTES: Final = 128 * 2**10
_CHALLENGE: Final = 'Bearer realm="melete"'
_PRIVATE: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes, in bytes, seconds and numbers. Sizes are of bodies as they come, and of answers as they go.

    All bodies under way take `held_bytes` at most, and so do all long answers; `requests` is how many whole ones may be
    under way, and `workers` how many of them use the store at a time. The last three are kept by
    `melete.wire.serving.listening`: how long a client may take for the head of a request and to read an answer, and
    how many connections there may be.
    """

    body_bytes: int = 32 * 2**20
    held_bytes: int = 256 * 2**20
    answer_bytes: int = 64 * 2**20
    body_seconds: float = 60.0
    requests: int = 64
    workers: int = 8
    head_seconds: float = 10.0
    write_seconds: float = 60.0
    connections: int = 256

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise InvalidInput(name, value, "more than 0")


def create_app(
    store: MemoryStore,
    tokens: TokenFile,
    limits: Limits | None = None,
    *,
    on_forgotten: Callable[[], str] | None = None,
) -> Starlette:
    """Return the application. The store stays open, and is closed by who opened it.

    `on_forgotten` is called after each forget, in its thread, and returns what the result says about it beside.

    Errors: `MissingFile` when the package was installed without its schemas.
    """
    served = _Served(store, tokens, limits or Limits(), on_forgotten)
    routes = [
        Route("/.well-known/amp-schema.json", served.get_schema, methods=["GET"]),
        Route("/v1/memory", served.post_memory, methods=["POST"]),
        Route("/v1/pending", served.get_pending, methods=["GET"]),
        Route("/v1/pending/{id}/approve", served.post_approve, methods=["POST"]),
        Route("/v1/pending/{id}/reject", served.post_reject, methods=["POST"]),
        Route("/healthz", served.get_health, methods=["GET"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(_Outermost)],
        exception_handlers={MeleteError: _answer_error, HTTPException: _answer_error},
    )
    app.router.redirect_slashes = False
    return app


class _Served:
    """A store, and what its addresses do."""

    def __init__(
        self, store: MemoryStore, tokens: TokenFile, limits: Limits, on_forgotten: Callable[[], str] | None
    ) -> None:
        self._store, self._tokens, self._limits, self._on_forgotten = store, tokens, limits, on_forgotten
        self._schema = json.dumps(load_envelope_schema(), indent=2).encode()
        self._etag = f'"{sha256(self._schema).hexdigest()[:32]}"'
        self._requests = self._held_bodies = self._held_answers = 0
        self._workers: anyio.CapacityLimiter | None = None
        self._prober: anyio.CapacityLimiter | None = None

    # For everybody

    async def get_schema(self, request: Request) -> Response:
        headers = {"etag": self._etag, "cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self._etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self._schema, media_type="application/schema+json", headers=headers)

    async def get_health(self, request: Request) -> Response:  # noqa: ARG002 - the signature is Starlette's
        # A worker of its own: who asks this has no token, and takes nothing from those who have.
        self._prober = self._prober or anyio.CapacityLimiter(1)
        await to_thread.run_sync(self._store.audit_head, limiter=self._prober)
        return Response(status_code=204, headers=_PRIVATE)

    # For who holds a token

    async def post_memory(self, request: Request) -> Response:
        token = self._authenticate(request)
        _require_json(request)
        async with self._body(request) as body:
            answer, was_read = await self._work(partial(self._execute, token, body))
        return self._as_held(answer) if was_read else _as_json(answer)

    async def get_pending(self, request: Request) -> Response:
        token = self._authenticate(request)
        token.require_role(Role.APPROVER)
        given = _parameters(request, ("agent_id", "after", "limit"))
        agent = token.choose_agent(given.get("agent_id"))
        after = _whole_number(given.get("after", "0"), "after", 0, 2**53 - 1)
        limit = _whole_number(given.get("limit", str(DEFAULT_PENDING)), "limit", 1, MAX_PENDING)
        return self._as_held(await self._work(partial(self._list_pending, agent, after, limit)))

    async def post_approve(self, request: Request) -> Response:
        return await self._post_decision(request, self._store.approve)

    async def post_reject(self, request: Request) -> Response:
        return await self._post_decision(request, self._store.reject)

    async def _post_decision(self, request: Request, decide: Callable[[str, str], Result]) -> Response:
        token = self._authenticate(request)
        token.require_role(Role.APPROVER)
        _parameters(request, ())
        memory_id = verify_memory_id(request.path_params["id"], "id")
        return _as_json(await self._work(partial(self._decide, token, memory_id, decide)))

    # What workers do

    def _execute(self, token: Token, body: bytearray) -> tuple[bytes, bool]:
        """Return an answer, and whether nothing was changed for it."""
        _require_few_parts(body)
        envelope = Envelope.from_json(body)
        reads = envelope.op is Operation.RECALL
        token.require_role(Role.READER if reads else Role.WRITER)
        agent = token.choose_agent(envelope.agent_id)
        if envelope.agent_id is None:
            envelope = replace(envelope, agent_id=agent)
        result = self._store.execute(envelope, token.name)
        if self._on_forgotten is not None and envelope.op is Operation.FORGET:
            result = result.add_detail(self._on_forgotten())
        if sum(len(hit.content) for hit in result.hits) > self._limits.answer_bytes:
            raise AnswerTooLarge(self._limits.answer_bytes)
        answer = _dump(result.to_json())
        return (self._bounded(answer) if reads else answer), reads

    def _list_pending(self, agent: str, after: int, limit: int) -> bytes:
        writes = self._store.pending(agent_id=agent, after=after, limit=limit)
        if sum(len(write.content or "") + sum(map(len, write.before)) for write in writes) > self._limits.answer_bytes:
            raise AnswerTooLarge(self._limits.answer_bytes)
        return self._bounded(_dump({"pending": [write.to_json() for write in writes]}))

    def _decide(self, token: Token, memory_id: str, decide: Callable[[str, str], Result]) -> bytes:
        try:
            agent = self._store.show(memory_id).agent_id
        except UnknownMemory:
            raise NotPending(memory_id) from None
        if agent not in token.agents:
            # Not even that there is something.
            raise NotPending(memory_id)
        return _dump(decide(memory_id, token.name).to_json())

    def _bounded(self, answer: bytes) -> bytes:
        if len(answer) > self._limits.answer_bytes:
            raise AnswerTooLarge(self._limits.answer_bytes)
        return answer

    # Who, and how much at once

    def _authenticate(self, request: Request) -> Token:
        """Return the token of a request, by what the file of tokens says now."""
        given = request.headers.getlist("authorization")
        if not given:
            raise NotAuthenticated("there is no header Authorization")
        scheme, _, secret = given[0].partition(" ")
        if len(given) > 1 or scheme.lower() != "bearer":
            raise NotAuthenticated("the header Authorization is not one bearer token")
        token = self._tokens.find(secret.strip(" "))
        if token is None:
            raise NotAuthenticated("the token is unknown or was revoked")
        request.scope[_NOTES]["token"] = token.id
        return token

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytearray]:
        """Give the whole body, counted while it comes. What a client says about its length is believed only if bad."""
        body, most = bytearray(), self._limits.body_bytes
        said = request.headers.get("content-length", "")
        if said.isascii() and said.isdigit() and (len(said) > 15 or int(said) > most):
            raise BodyTooLarge(most)
        held = 0
        try:
            try:
                with anyio.fail_after(self._limits.body_seconds):
                    async for chunk in request.stream():
                        if len(body) + len(chunk) > most:
                            raise BodyTooLarge(most)
                        if self._held_bodies + len(chunk) > self._limits.held_bytes:
                            raise ServerBusy
                        self._held_bodies += len(chunk)
                        held += len(chunk)
                        body += chunk
            except TimeoutError:
                raise BodyTooSlow(self._limits.body_seconds) from None
            yield body
        finally:
            self._held_bodies -= held

    def _as_held(self, text: bytes) -> Response:
        """Return an answer for which nothing was changed; a long one counts until it is sent. Errors: `ServerBusy`."""
        if len(text) <= _PART_BYTES:
            return _as_json(text)
        if self._held_answers + len(text) > self._limits.held_bytes:
            raise ServerBusy
        self._held_answers += len(text)
        return _HeldAnswer(self, text)

    def let_go(self, count: int) -> None:
        """Count an answer out."""
        self._held_answers -= count

    async def _work(self, function: Callable[[], Answer]) -> Answer:
        """Let a worker do something. It ends what it began, whatever becomes of the client. Errors: `ServerBusy`."""
        if self._requests >= self._limits.requests:
            raise ServerBusy
        self._requests += 1
        try:
            self._workers = self._workers or anyio.CapacityLimiter(self._limits.workers)
            return await to_thread.run_sync(function, limiter=self._workers)
        finally:
            self._requests -= 1


class _HeldAnswer(Response):
    """A long answer, counted until it is sent, or the client gone."""

    def __init__(self, served: _Served, text: bytes) -> None:
        super().__init__(text, headers=_PRIVATE, media_type="application/json")
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._served.let_go(len(self.body))


# Requests


def _require_json(request: Request) -> None:
    """Return if a body is said to be JSON by the only such header, and not packed. Errors: `NotJsonBody`."""
    kinds = [given.partition(";")[0].strip().lower() for given in request.headers.getlist("content-type")]
    packed = [given.strip().lower() for given in request.headers.getlist("content-encoding")]
    if kinds != ["application/json"] or packed not in ([], ["identity"]):
        raise NotJsonBody


def _has_two_lengths(request: Request) -> bool:
    said = [name for name in ("content-length", "transfer-encoding") for _ in request.headers.getlist(name)]
    return len(said) > 1


def _require_few_parts(body: bytearray) -> None:
    """Return if a body is not made of more values than any envelope: each takes much more memory than it has bytes.

    What stands in strings does not count. Errors: `EnvelopeError`.
    """
    if _count_parts(body) > MAX_PARTS and _count_parts(_STRING.sub(b"", body)) > MAX_PARTS:
        raise EnvelopeError("envelope", NOT_SHOWN, f"it may have {MAX_PARTS} parts")


def _count_parts(text: bytes | bytearray) -> int:
    return sum(text.count(mark) for mark in b"[{,")


def _parameters(request: Request, known: tuple[str, ...]) -> Mapping[str, str]:
    """Return the parameters of a query. Errors: `UnknownMember`; `InvalidInput` for one given twice."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise UnknownMember(name[:121], None, f"the parameters are {', '.join(known) or 'none'}")
        if name in given:
            raise InvalidInput(name, None, "given once")
        given[name] = value
    return given


def _whole_number(text: str, name: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 16 or not least <= int(text) <= most:
        raise InvalidInput(name, text[:121], f"a whole number from {least} to {most}")
    return int(text)


# Answers


def _dump(members: dict[str, Json]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _as_json(text: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text, status, {**_PRIVATE, **(headers or {})}, media_type="application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    """Return an error as a client is told it. A body that was not read is let run dry, until its time is over."""
    headers = {}
    if isinstance(error, HTTPException):
        headers.update({name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"})
        error = _KNOWN_STATUS.get(error.status_code, RequestRefused)()
    assert isinstance(error, MeleteError)
    told, status = describe_error(error), compute_status(error)
    if isinstance(error, NotAuthenticated):
        # Who sends no token is not told that it was wrong (RFC 6750, section 3.1).
        known = request.headers.getlist("authorization")
        headers["www-authenticate"] = f'{_CHALLENGE}, error="invalid_token"' if known else _CHALLENGE
    elif isinstance(error, NotAllowed):
        headers["www-authenticate"] = f'{_CHALLENGE}, error="insufficient_scope"'
    elif status == 503:
        headers["retry-after"] = "1"
    if isinstance(error, BodyTooSlow | TwoLengths) or "expect" in request.headers:
        headers["connection"] = "close"
    if told["message"] != str(error):
        log.error("%s: %s", told["name"], error)
    _note(request.scope, told["name"])
    return _as_json(json.dumps({"error": told}).encode(), status, headers)


_KNOWN_STATUS: Final[dict[int, type[MeleteError]]] = {404: UnknownAddress, 405: WrongMethod}


def _note(scope: Scope, error: str) -> None:
    scope[_NOTES]["error"] = error


def _split(message: Message) -> Iterator[Message]:
    """Yield the parts of a message that has a long body."""
    body = message.get("body", b"")
    last = max(0, len(body) - 1) // _PART_BYTES * _PART_BYTES
    for start in range(0, last, _PART_BYTES):
        yield {**message, "body": body[start : start + _PART_BYTES], "more_body": True}
    yield {**message, "body": body[last:]} if last else message


class _Outermost:
    """The last line before a client: no fault of ours reaches it as a trace, and every request stands in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        notes = scope[_NOTES] = {"token": "-", "error": ""}
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            for part in _split(message):
                await send(part)

        try:
            if _has_two_lengths(request := Request(scope, receive)):
                answer = await _answer_error(request, TwoLengths())
                await answer(scope, receive, send_on)
            else:
                await self._app(scope, receive, send_on)
        except ClientDisconnect:
            notes["error"] = "the client went away"
        except Exception as error:  # noqa: BLE001 - the last line before a client
            # Its words may hold what was asked or remembered.
            log.critical("a fault in the server itself: %s", type(error).__name__)
            if not status:
                answer = await _answer_error(Request(scope, receive), ServerFault())
                await answer(scope, receive, send_on)
        # Nothing that a client chose: the name of our function, not the address.
        called: Callable[..., Awaitable[Response]] | None = scope.get("endpoint")
        name = getattr(called, "__name__", "-")
        log.info(
            "%s %s token %s%s", name, status or "-", notes["token"], f" {notes['error']}" if notes["error"] else ""
        )
