"""Is something there at an address? One try, within a time, told as seen at that time.

A probe says that something answers, not that it is well. What an address holds besides host and port (user, path,
query) may be secret, and is in no answer.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from melete.errors import ConfigurationError

TIMEOUT_SECONDS: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_ANSWER: Final = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What a try came to: whether it was answered, after how many seconds, and how, in a few words."""

    reachable: bool
    seconds: float
    how: str


def check_address(address: str) -> SplitResult:
    """Return an address that can be tried: `tcp://host:port`, `http://...` or `https://...`.

    Errors: `ConfigurationError`, without showing the address.
    """
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme, 0)  # raises for a number that is no port
        usable = parts.scheme in ("tcp", *_PORTS) and bool(parts.hostname) and port > 0
        usable = usable and address.isprintable() and " " not in address
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError("a probe must be tcp://host:port, http://... or https://... (it is not shown here)")
    return parts


def probe(address: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Answer:
    """Try an address once: for tcp whether it accepts a connection, else whether it answers HEAD, whatever it answers.

    The name is looked up by the system, in its own time. Errors: `ConfigurationError` for another kind of address.
    """
    parts = check_address(address)
    started = time.monotonic()
    try:
        how = _try(parts, started + timeout_seconds)
        reachable = True
    except TimeoutError:
        how, reachable = f"no answer within {timeout_seconds:g} s", False
    except (OSError, UnicodeError) as error:
        how, reachable = _reason(error), False
    return Answer(reachable, round(time.monotonic() - started, 3), how)


def _try(parts: SplitResult, deadline: float) -> str:
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    with socket.create_connection((host, port), timeout=_left(deadline)) as connection:
        if parts.scheme == "tcp":
            return "it accepts connections"
        if parts.scheme == "http":
            return _ask(connection, parts, deadline)
        connection.settimeout(_left(deadline))
        with ssl.create_default_context().wrap_socket(connection, server_hostname=host) as secured:
            return _ask(secured, parts, deadline)


def _ask(connection: socket.socket, parts: SplitResult, deadline: float) -> str:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    request = f"HEAD {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    connection.settimeout(_left(deadline))
    connection.sendall(request.encode("ascii"))
    answer = b""
    while b"\n" not in answer and len(answer) < _LONGEST_ANSWER:
        connection.settimeout(_left(deadline))
        part = connection.recv(_LONGEST_ANSWER)
        if not part:
            break
        answer += part
    words = answer.split(b"\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ConnectionError(None, "what answers there is no web server")
    return f"HTTP status {words[1][:3].decode()}"


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "its certificate or its TLS is refused"
    if isinstance(error, socket.gaierror):
        return "its name is unknown"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
