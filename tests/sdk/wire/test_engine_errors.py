"""How a database that cannot be used is told: as what it is, by the name that was given, with what helps."""

from __future__ import annotations

import random
import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

from melete.errors import (
    ConfigurationError,
    CouldNotTell,
    InvalidInput,
    MeleteError,
    StoreBusy,
    StoreNotWritten,
    StoreUnreadable,
)
from melete.wire import sqlite_engine, sqlite_file
from melete.wire.envelope import Operation
from melete.wire.postgres_engine import PostgresDatabase, ServerUnusable
from melete.wire.recording.preflight import copy_store
from melete.wire.routing.debts import Debts, Order
from melete.wire.store import MemoryStore
from postgres import Server

from .samples import EPISODIC, database_of, open_store, recalled, remember, run

# Files


def damage(path: Path, seed: int, count: int) -> bytes:
    """A file's bytes with some of them changed, none in the header that is looked at first."""
    dice, data = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(count):
        data[dice.randrange(100, min(len(data), 16_384))] = dice.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("seed", range(60))
def test_damaged_file_is_told_while_it_is_opened_copied_or_used(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "memories.db"
    with open_store(str(path)) as store:
        ids = [remember(store, f"tea {number}", tags=["a"]) for number in range(3)]
    path.write_bytes(damage(path, seed, 20))
    copy = tmp_path / "copy.db"
    copy.touch()
    for ask in (lambda: copy_store(path, copy), lambda: use(path, ids)):
        try:
            ask()
        except MeleteError as error:
            assert ".new" not in str(error)  # noqa: PT017


def use(path: Path, ids: list[str]) -> None:
    with open_store(str(path)) as store:
        for ask in (lambda: recalled(store, "tea"), lambda: remember(store, "x"), lambda: store.forget(EPISODIC, ids)):
            try:
                ask()
            except MeleteError:
                continue


@pytest.mark.parametrize("seed", range(40))
def test_damaged_file_of_debts_is_told(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "owed"
    debts = Debts(path)
    for number in range(5):
        debts.note(Order(Operation.FORGET, "ada", EPISODIC, (f"id {number}",), 1), ["here"], intended=False)
    path.write_bytes(damage(path, seed, 20))
    try:
        Debts(path).load()
    except MeleteError as error:
        assert isinstance(error, CouldNotTell)  # noqa: PT017


def test_names_of_tables_that_are_no_text_are_told(sqlite_path: Path) -> None:
    """One byte in the schema of a file is enough."""
    open_store(str(sqlite_path)).close()
    data = sqlite_path.read_bytes()
    at = data.index(b"tablescopesscopes") + len("table")
    sqlite_path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(StoreUnreadable):
        open_store(str(sqlite_path))


def test_table_of_any_name_is_only_looked_at(sqlite_path: Path) -> None:
    open_store(str(sqlite_path)).close()
    with sqlite3.connect(sqlite_path) as db:
        db.execute("""CREATE TABLE "a"");DROP TABLE meta;--" (x)""")
    with open_store(str(sqlite_path)) as store:
        remember(store, "tea")


def test_new_store_that_cannot_be_written_is_told_by_the_name_that_was_given(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite_file.connect

    def full(path: Path, *rest: object) -> sqlite3.Connection:
        db = connect(path, *rest)  # type: ignore[arg-type]
        db.execute("PRAGMA max_page_count = 5")
        return db

    monkeypatch.setattr(sqlite_engine.sqlite_file, "connect", full)
    with pytest.raises(StoreNotWritten) as caught:
        open_store(str(sqlite_path))
    assert caught.value.path == str(sqlite_path)
    assert list(sqlite_path.parent.iterdir()) == []


def test_store_without_its_one_row_is_told_as_that(store: MemoryStore) -> None:
    run(store, "DELETE FROM meta")
    for ask in (lambda: remember(store, "tea"), store.audit_head):
        with pytest.raises(StoreUnreadable, match="never written"):
            ask()
    with pytest.raises(MeleteError) as caught:
        store.verify_audit()
    assert "lost" not in str(caught.value)


def test_file_without_its_one_row_is_not_opened(sqlite_path: Path) -> None:
    with open_store(str(sqlite_path)) as store:
        run(store, "DELETE FROM meta")
    with pytest.raises(StoreUnreadable, match="never written"):
        open_store(str(sqlite_path))


# Servers


@pytest.mark.parametrize("wrong", ["password", "no password", "user", "database"])
def test_server_that_refuses_us_is_told_with_what_to_check(postgres: Server, wrong: str) -> None:
    url = {
        "password": postgres.url("postgres", password="wrong"),
        "no password": postgres.url("postgres").replace(f":{postgres.password}@", "@"),
        "user": postgres.url("postgres").replace("//melete:", "//nobody:"),
        "database": postgres.url("nowhere"),
    }[wrong]
    with pytest.raises(ServerUnusable) as caught:
        open_store(url)
    told = str(caught.value)
    assert "refused to let us in" in told
    assert "check user, password and database name" in told
    assert "another file" not in told


@pytest.mark.parametrize("place", ["127.0.0.1:1", "nowhere.invalid"])
def test_server_that_does_not_answer_is_told_as_that(place: str) -> None:
    with pytest.raises(ServerUnusable) as caught:
        open_store(f"postgresql://ada@{place}/x")
    assert "no server answers" in str(caught.value)
    assert "see to the server" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "error", "told"),
    [
        ("failed: SCHWERWIEGEND:  Passwort-Authentifizierung fehlgeschlagen", ServerUnusable, "refused to let us in"),
        ("failed: FATAL:  sorry, too many clients already", StoreBusy, "no connections just now"),
        ("failed: FATAL:  the database system is starting up", StoreBusy, "no connections just now"),
        ("failed: Connection refused\n\tIs the server running?", ServerUnusable, "no server answers"),
    ],
)
def test_words_of_a_server_are_told_by_their_form(
    postgres: Server, said: str, error: type[MeleteError], told: str
) -> None:
    with open_store(postgres.new_store()) as store:
        found = database_of(store).translate(psycopg.OperationalError(f"connection failed: {said}"))
    assert type(found) is error
    assert told in str(found)


def test_server_that_is_gone_is_told_without_files(postgres: Server) -> None:
    with open_store(postgres.new_store()) as store:
        (pid,) = database_of(store)._session().connection.exec_driver_sql("SELECT pg_backend_pid()").one()
        with postgres.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(ServerUnusable) as caught:
            store.audit_head()
        assert "see to the server" in str(caught.value)
    with pytest.raises(ServerUnusable, match=r"it was closed.*open it again"):
        store.audit_head()


@pytest.mark.parametrize("port", ["0", "65536", "99999", "123456789"])
@pytest.mark.parametrize("form", ["postgresql://ada@127.0.0.1:{}/x", "postgresql://ada@127.0.0.1/x?port={}"])
def test_port_that_is_none_is_refused(form: str, port: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store(form.format(port))
    assert caught.value.field == "port"


def test_value_of_an_option_that_is_none_is_told_as_that(postgres: Server) -> None:
    with pytest.raises(ConfigurationError, match="option"):
        open_store(f"{postgres.url('postgres')}?sslmode=secret")


def test_labels_hold_no_secret(postgres: Server) -> None:
    url = postgres.new_store()
    with open_store(url) as store:
        assert postgres.password not in store.label
        assert isinstance(database_of(store), PostgresDatabase)
        assert re.fullmatch(r"postgresql://127\.0\.0\.1:\d+/postgres\?schema=store_\d+", store.label)
