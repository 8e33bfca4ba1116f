"""Who may ask a server for what: tokens with a name, agents and roles, in one file that holds no token.

    tokens = TokenFile(path)
    token, secret = tokens.add("ada", ["helper"], [Role.READER, Role.WRITER])    # the secret is shown once
    tokens.find(secret).name                                                     # "ada"
    tokens.revoke(token.id)

A secret is 32 random bytes, so the file keeps its SHA-256 and nobody can guess back from it. The file is JSON, mode
0600, replaced whole or not at all; processes that change it wait for one another, and a server that runs sees a change
with the next request.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, NoReturn

from melete.canonical import load_json
from melete.errors import InvalidInput, InvalidJson, StoreUnreadable, UnsafeFile
from melete.wire.approval import is_same_name, verify_name
from melete.wire.envelope import verify_agent_id
from melete.wire.errors import MissingMember
from melete.wire.serving.errors import MissingRole, OtherAgent

VERSION: Final = 1
#: What every token begins with, so that people and scanners know one when they see it.
PREFIX: Final = "mlt_"
MAX_AGENTS: Final = 64
#: Seconds to wait for another process.
BUSY_SECONDS: Final = 5.0
#: A file longer than that is none of ours.
LONGEST_FILE: Final = 4 * 2**20
_SECRET: Final = re.compile(r"mlt_[A-Za-z0-9_-]{43}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{12}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MEMBERS: Final = {"digest", "name", "agents", "roles", "created_at"}


class Role(StrEnum):
    """What a token is for. None includes another: who writes cannot read unless both were given."""

    #: Recalls.
    READER = "reader"
    #: Remembers, merges, forgets and expires.
    WRITER = "writer"
    #: Sees what waits for approval, and decides about what others wrote.
    APPROVER = "approver"


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """One token, without its secret. `name` is who writes or decides with it; `created_at` seconds since 1970."""

    digest: bytes
    name: str
    agents: tuple[str, ...]
    roles: frozenset[Role]
    created_at: int

    @property
    def id(self) -> str:
        """What people call it: the first 12 digits of its digest."""
        return self.digest.hex()[:12]

    def __repr__(self) -> str:
        return f"Token({self.id}, {self.name!a})"

    def require_role(self, role: Role) -> None:
        """Return if the token has a role. Errors: `MissingRole`."""
        if role not in self.roles:
            raise MissingRole(role.value)

    def choose_agent(self, agent_id: str | None) -> str:
        """Return the agent that is meant: the one that is named, or the only one there is.

        Errors: `OtherAgent` for an agent of others; `MissingMember` if none is named and there are several.
        """
        if agent_id is None:
            if len(self.agents) != 1:
                raise MissingMember("agent_id", None, "this token is for several agents, so say which is meant")
            return self.agents[0]
        if agent_id not in self.agents:
            raise OtherAgent(agent_id)
        return agent_id


class TokenFile:
    """The tokens in one file. What is not there yet holds none."""

    def __init__(self, path: str | Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path: Final = os.fspath(path)
        self._busy_seconds = busy_seconds
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def __repr__(self) -> str:
        return f"TokenFile({self.path!r})"

    def load(self) -> tuple[Token, ...]:
        """Return every token, in the order in which they were added.

        Errors: `UnsafeFile` if others can read or write it; `StoreUnreadable` for a file that is none of ours.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._unreadable(error.strerror or "it cannot be read")
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                self._unreadable("it is no file")
            if found.st_uid not in (os.geteuid(), 0):
                self._unreadable("it belongs to somebody else")
            if found.st_mode & 0o077:
                raise UnsafeFile(self.path, f"{found.st_mode & 0o777:04o}")
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = file.read(LONGEST_FILE + 1)
        except OSError as error:
            self._unreadable(error.strerror or "it cannot be read")
        finally:
            os.close(handle)
        return self._parse(content)

    def find(self, secret: str) -> Token | None:
        """Return the token whose secret this is, if there is one now. It takes as long whichever it is.

        The file is read again when it changed. Errors: as `load`, and then nobody is let in.
        """
        mark = self._mark()
        if mark is None or mark != self._seen:
            # Marked before it is read: what changes meanwhile is read again.
            self._tokens, self._seen = self.load(), mark
        if not _SECRET.fullmatch(secret):
            return None
        digest, found = compute_digest(secret), None
        for token in self._tokens:
            if compare_digest(token.digest, digest):
                found = token
        return found

    def add(
        self,
        name: str,
        agents: Sequence[str],
        roles: Sequence[Role | str],
        *,
        new_secret: Callable[[], str] | None = None,
        now: int | None = None,
    ) -> tuple[Token, str]:
        """Make a token, keep it, and return it with its secret, which is kept nowhere.

        Errors: `InvalidInput` for a name, an agent or a role, and for one who could only approve what is its own;
        `EnvelopeError` for an agent's id; `StoreBusy`, `StoreUnreadable`, `StoreNotWritten`, `UnsafeFile`.
        """
        known_name, known_agents, known_roles = _check(name, agents, roles)
        secret = (new_secret or fresh_secret)()
        created = int(time.time()) if now is None else now
        token = Token(compute_digest(secret), known_name, known_agents, known_roles, created)
        with self._changing() as tokens:
            if any(other.id == token.id for other in tokens):
                raise InvalidInput("token", token.id, "one that is not kept already; make another")
            tokens.append(token)
        return token, secret

    def revoke(self, name_or_id: str) -> tuple[Token, ...]:
        """Take out the token of an id, or all of a name, and return them. They are of no use from then on.

        Errors: `InvalidInput` when there is none; `StoreBusy`, `StoreUnreadable`, `StoreNotWritten`, `UnsafeFile`.
        """
        with self._changing() as tokens:
            chosen = [token for token in tokens if token.id == name_or_id or is_same_name(token.name, name_or_id)]
            if not chosen:
                raise InvalidInput("token", name_or_id, "the name or the id of a token; see melete memory token list")
            tokens[:] = [token for token in tokens if token not in chosen]
        return tuple(chosen)

    # The file

    def _mark(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path, follow_symlinks=False)  # noqa: PTH116
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """Give the tokens to be changed, and write them when all went well, while others wait."""
        from melete.packs.files import locked, make_folders, write_file

        make_folders(os.path.dirname(self.path) or ".")  # noqa: PTH120
        with locked(self.path, self._busy_seconds):
            tokens = list(self.load())
            yield tokens
            text = json.dumps({"version": VERSION, "tokens": [_to_json(token) for token in tokens]}, indent=2) + "\n"
            if len(text) > LONGEST_FILE:
                raise InvalidInput("token", len(tokens), f"one of so few that the file takes {LONGEST_FILE} bytes")
            write_file(self.path, text.encode(), 0o600)

    def _parse(self, content: bytes) -> tuple[Token, ...]:
        if len(content) > LONGEST_FILE:
            self._unreadable("it is too long")
        try:
            document = load_json(content)
        except InvalidJson:
            self._unreadable("it is no list of tokens")
        if not isinstance(document, dict) or document.keys() != {"version", "tokens"}:
            self._unreadable("it is no list of tokens")
        version, entries = document["version"], document["tokens"]
        if type(version) is not int or version != VERSION:
            self._unreadable(f"it is of another version than {VERSION}")
        if not isinstance(entries, list):
            self._unreadable("it is no list of tokens")
        tokens = tuple(self._parse_token(number, entry) for number, entry in enumerate(entries, 1))
        if len({token.digest for token in tokens}) != len(tokens):
            self._unreadable("it holds one token twice")
        return tokens

    def _parse_token(self, number: int, entry: Any) -> Token:
        if not isinstance(entry, dict) or entry.keys() != _MEMBERS:
            self._unreadable(f"its token number {number} does not have just the members {', '.join(sorted(_MEMBERS))}")
        digest, created = entry["digest"], entry["created_at"]
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(created) is not int:
            self._unreadable(f"its token number {number} has no right digest or time")
        try:
            name, agents, roles = _check(entry["name"], entry["agents"], entry["roles"])
        except ValueError:  # the family of errors of input
            self._unreadable(f"its token number {number} has no right name, agents or roles")
        return Token(bytes.fromhex(digest), name, agents, roles, created)

    def _unreadable(self, reason: str) -> NoReturn:
        raise StoreUnreadable(self.path, reason) from None


def fresh_secret() -> str:
    """Return a new token, of 32 bytes from the operating system."""
    from base64 import urlsafe_b64encode

    return PREFIX + urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")


def compute_digest(secret: str) -> bytes:
    """Return what is kept of a token: SHA-256 of its text."""
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check(name: object, agents: object, roles: object) -> tuple[str, tuple[str, ...], frozenset[Role]]:
    known_name = verify_name(name)
    if _ID.fullmatch(known_name):
        raise InvalidInput("name", known_name, "a name that does not look like the id of a token")
    if not isinstance(agents, list | tuple) or not 1 <= len(agents) <= MAX_AGENTS:
        raise InvalidInput("agents", None, f"a list of 1 to {MAX_AGENTS} agents")
    known_agents = tuple(dict.fromkeys(verify_agent_id(agent, "agents") for agent in agents))
    if not isinstance(roles, list | tuple | frozenset) or not roles:
        raise InvalidInput("roles", None, f"a list of one role or more: {', '.join(Role)}")
    for role in roles:
        if role not in list(Role):
            shown = role if isinstance(role, str) else type(role).__name__
            raise InvalidInput("roles", shown, f"of {', '.join(Role)}")
    known_roles = frozenset(Role(role) for role in roles)
    own = next((agent for agent in known_agents if is_same_name(known_name, agent)), None)
    if Role.APPROVER in known_roles and own is not None:
        raise InvalidInput("name", known_name, "another name than the agent's: nobody approves what is their own")
    return known_name, known_agents, known_roles


def _to_json(token: Token) -> dict[str, Any]:
    return {
        "digest": token.digest.hex(),
        "name": token.name,
        "agents": list(token.agents),
        "roles": sorted(token.roles),
        "created_at": token.created_at,
    }
