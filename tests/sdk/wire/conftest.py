"""Stores for the tests of the memory store: every test that takes `store_url` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from melete.wire.store import MemoryStore
from postgres import Server, running_server

from .samples import Clock, open_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "memories.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet, each test's own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'memories.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_store()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(store_url: str, clock: Clock) -> Iterator[MemoryStore]:
    with open_store(store_url, clock) as store:
        yield store
