"""What the tests of serving share: people with tokens, questions, and answers whose form is checked on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx
from starlette.testclient import TestClient

from melete.wire.envelope import Result
from melete.wire.serving.tokens import Role, TokenFile

NOBODY = "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"
SECRET = "the password is swordfish"
READER, WRITER, APPROVER = Role
JSON = {"content-type": "application/json"}


class Holder(NamedTuple):
    """Who holds a token, and its secret."""

    id: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


class People(NamedTuple):
    """Two agents: `helper` has a user, a reader, a clerk who only writes and an approver; `scribe` two."""

    file: TokenFile
    ada: Holder
    bob: Holder
    reader: Holder
    clerk: Holder
    rita: Holder
    rob: Holder
    both: Holder


def make_people(folder: Path) -> People:
    """Make a file of tokens in a folder."""
    file = TokenFile(folder / "tokens.json")

    def hold(name: str, agents: str, *roles: Role) -> Holder:
        token, secret = file.add(name, agents.split(), roles)
        return Holder(token.id, secret)

    return People(
        file,
        ada=hold("ada", "helper", READER, WRITER, APPROVER),
        bob=hold("bob", "scribe", READER, WRITER),
        reader=hold("reader", "helper", READER),
        clerk=hold("clerk", "helper", WRITER),
        rita=hold("rita", "helper", APPROVER),
        rob=hold("rob", "scribe", APPROVER),
        both=hold("both", "helper scribe", READER, WRITER, APPROVER),
    )


def ask(client: TestClient | httpx.Client, holder: Holder, op: str, **members: Any) -> httpx.Response:
    envelope = {"op": op, "memory_type": "episodic", **members}
    return client.post("/v1/memory", json=envelope, headers=holder.headers)


def result_of(response: httpx.Response) -> Result:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    return Result.from_json(response.content)


def error_of(response: httpx.Response, status: int) -> dict[str, str]:
    """What an error tells; its form is checked on the way."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert document.keys() == {"error"}
    error = cast("dict[str, str]", document["error"])
    assert {"name", "message"} <= error.keys() <= {"name", "message", "member"}
    assert error["message"].endswith(".")
    assert error["message"].isprintable()
    for word in ("Traceback", "sqlite", SECRET, ".db", "tokens.json", "mlt_"):
        assert word not in response.text
    return error


def propose(client: TestClient | httpx.Client, holder: Holder, content: str, **members: Any) -> str:
    result = result_of(ask(client, holder, "remember", memory_type="semantic", content=content, **members))
    assert (result.ok, result.approved, result.detail) == (True, False, "pending approval")
    return result.ids[0]


def decide(client: TestClient | httpx.Client, holder: Holder, memory_id: str, how: str) -> httpx.Response:
    return client.post(f"/v1/pending/{memory_id}/{how}", headers=holder.headers)


class StoreThat:
    """A stand-in for a store, of which everything does the same."""

    def __init__(self, act: Callable[..., Any]) -> None:
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return self._act
