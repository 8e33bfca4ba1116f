"""Sockets and deadlines under the application: uvicorn, with clients that dawdle or lie let go.

A connection that brings no whole head of a request in time is closed, whether it is new or was used before. One that
does not read its answer in time is cut off, with what is left of the answer. So whoever is slow holds a connection for
a bounded time, and never a worker.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import signal
import socket
import ssl
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from melete.errors import ConfigurationError, MissingExtra, MissingFile, UnsafeFile, show
from melete.wire.serving.errors import RequestRefused, ServerBusy, describe_error
from melete.wire.serving.http import Limits

try:
    import h11
    import uvicorn
    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
except ImportError:
    raise MissingExtra("http", "serving memory over HTTP") from None

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8350
#: How long the server waits, once it is told to end, for what is under way.
_ENDING_SECONDS: Final = 10
#: Closing does not wait, and what was not sent is dropped.
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_INVALID: Final = json.dumps({"error": describe_error(RequestRefused())}).encode()
_BUSY: Final = json.dumps({"error": describe_error(ServerBusy())}).encode()
_BUSY_ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_BUSY), _BUSY)
)


class TlsFiles(NamedTuple):
    """A certificate with its chain, and its key, as PEM files."""

    certificate: Path
    key: Path


def verify_tls_files(files: TlsFiles) -> TlsFiles:
    """Return the files, once they are a certificate and its key.

    Errors: `MissingFile`; `UnsafeFile` for a key that others can read; `ConfigurationError` for what TLS refuses.
    """
    for path in files:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise MissingFile(str(path), error.strerror or "it cannot be read") from None
        if path == files.key and stat.S_ISREG(mode) and mode & 0o077:
            raise UnsafeFile(str(path), f"{mode & 0o777:04o}")
    try:
        # An encrypted key would be asked for at a terminal that a server does not have.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError):
        reason = f"{show(str(files.certificate))} and {show(str(files.key))} are no certificate and its unencrypted key"
        raise ConfigurationError(reason) from None
    return files


def open_socket(host: str, port: int, *, is_private: bool) -> socket.socket:
    """Return a socket that listens at a host's address. Unless `is_private`, only this machine may reach it.

    `is_private` says that nobody can read along, or that this was accepted. Errors: `ConfigurationError`.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigurationError(f"{show(host)} is no address of this machine; give another --host") from None
    if not is_private and not all(_is_loopback(str(address[4][0])) for address in found):
        raise ConfigurationError(
            f"{show(host)} can be reached from elsewhere, where tokens and memories could be read on their way; "
            "give --tls-cert and --tls-key, or --yes-plain-http behind a proxy that has them"
        )
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        reason = f"port {port} of {show(host)} cannot be used ({error.strerror}); give another --host or --port"
        raise ConfigurationError(reason) from None
    return listening


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def describe_socket(listening: socket.socket, tls: TlsFiles | None) -> str:
    """Return the URL at which a socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(app: ASGIApp, limits: Limits, tls: TlsFiles | None = None) -> uvicorn.Server:
    """Return a server for an application; its `run(sockets=[...])` serves until `should_exit` is set."""
    protocol = type("Protocol", (PatientProtocol,), {"limits": limits})
    files: dict[str, Any] = {} if tls is None else {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        # Addresses may hold what a client sent; the application keeps its own log.
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_ENDING_SECONDS,
        **files,
    )
    return uvicorn.Server(config)


def serve(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve at a socket until the process is told to end (SIGINT, SIGTERM), and finish what is under way."""
    # When it has ended, uvicorn raises the signal once more for whoever was there before it: that is nobody here.
    before = {number: signal.signal(number, _let_pass) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _let_pass(*_: object) -> None:
    """Do nothing."""


class PatientProtocol(H11Protocol):
    """One connection, with a time for every head and every answer."""

    limits: ClassVar[Limits] = Limits()
    _head_due: asyncio.TimerHandle | None = None
    #: Since the client first fell behind with an answer, and whose that was.
    _read_due: asyncio.TimerHandle | None = None
    _read_cycle: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        # Writing counts as paused as soon as bytes have to wait, until none does.
        transport.set_write_buffer_limits(high=1)
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_BUSY_ANSWER)
            transport.close()
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._end_read()
        super().connection_lost(exc)

    # Heads

    def _watch_head(self) -> None:
        """Start or stop the time for a head, by whether a request is under way."""
        if not self._is_idle:
            self._end_head()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(self.limits.head_seconds, self._give_up)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        self._head_due = None
        if self._is_idle:
            self.transport.abort()

    def _end_head(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the signature is uvicorn's
        if self.cycle is not None:
            # What it still has to say would be no answer to this.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [("content-type", "application/json"), ("connection", "close")]
            headers.append(("content-length", str(len(_INVALID))))
            events = (h11.Response(status_code=400, headers=headers), h11.Data(data=_INVALID), h11.EndOfMessage())
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # Answers

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_due is None:
            self._read_cycle = self.cycle
            self._read_due = self.loop.call_later(self.limits.write_seconds, self._cut_off)

    def resume_writing(self) -> None:
        # A long answer comes in parts, and its time goes on from one to the next.
        if self._read_cycle is None or self._read_cycle.response_complete:
            self._end_read()
        super().resume_writing()

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:
            self._end_read()
        super().on_response_complete()

    def _cut_off(self) -> None:
        self._read_due = None
        with suppress(OSError):
            # Otherwise the kernel would go on holding and offering what it was given already.
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _end_read(self) -> None:
        if self._read_due is not None:
            self._read_due.cancel()
            self._read_due = None
