from __future__ import annotations

import os
import re
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Inspector, inspect

from melete.errors import ConfigurationError, CouldNotTell, MissingExtra, StoreUnreadable
from melete.wire import migrations, postgres_engine, sqlite_engine, sqlite_file
from melete.wire.store import MemoryStore
from melete.wire.tables import metadata
from postgres import Server

from .samples import database_of, fetch, open_store, recalled, remember

#: The version that this program does not know yet.
NEXT = migrations.VERSION + 1


def contents(folder: Path) -> dict[str, bytes]:
    """The names and bytes of all files of a folder."""
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()}


# The steps


def test_steps_make_the_tables_that_the_program_knows(store: MemoryStore) -> None:
    with database_of(store).reading() as connection:
        found: Inspector = inspect(connection)
        for table in metadata.sorted_tables:
            columns = {column["name"]: column for column in found.get_columns(table.name)}
            assert list(columns) == [column.name for column in table.columns]
            for column in table.columns:
                if not column.primary_key:
                    assert columns[column.name]["nullable"] == column.nullable, f"{table.name}.{column.name}"
            assert found.get_pk_constraint(table.name)["constrained_columns"] == [c.name for c in table.primary_key]
            indexes = {
                index["name"]: (index["column_names"], bool(index["unique"])) for index in found.get_indexes(table.name)
            }
            assert indexes == {
                str(index.name): ([column.name for column in index.columns], bool(index.unique))
                for index in table.indexes
            }
    assert fetch(store, "SELECT version, number FROM meta") == [(migrations.VERSION, 0)]


def test_index_that_is_missing_is_named() -> None:
    indexes = {str(index.name) for table in metadata.sorted_tables for index in table.indexes}
    assert migrations.find_missing_index(indexes | {"another"}) == ""
    assert migrations.find_missing_index(indexes - {"recorded_by_id"}, 1) == ""  # it came with the second version
    for name in indexes:
        assert migrations.find_missing_index(indexes - {name}) == name


def test_new_file_says_what_it_is(sqlite_path: Path) -> None:
    open_store(str(sqlite_path)).close()
    header = sqlite_path.read_bytes()[:100]
    assert header[68:72] == b"MLTM"
    assert struct.unpack(">I", header[60:64]) == (migrations.VERSION,)
    assert [path.name for path in sqlite_path.parent.iterdir()] == ["memories.db"]


def add_column(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE names ADD COLUMN later TEXT")


def fail_halfway(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE names ADD COLUMN later TEXT")
    connection.exec_driver_sql("INSERT INTO names VALUES ('ada', 'Ada', 1, NULL)")
    connection.exec_driver_sql("SELECT nothing FROM nowhere")


@pytest.fixture
def next_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Connection], None]], None]:
    """Make a program of the next version, whose last step is given."""

    def install(step: Callable[[Connection], None]) -> None:
        monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, step))
        for module in (migrations, postgres_engine, sqlite_engine, sqlite_file):
            monkeypatch.setattr(module, "VERSION", NEXT)
        for module in (sqlite_file, postgres_engine):
            monkeypatch.setattr(module, "find_fault", lambda *_: "")  # `tables` does not know the column

    return install


def test_older_store_is_brought_up_with_all_it_holds(store_url: str, next_step: Any) -> None:
    with open_store(store_url) as store:
        memory_id = remember(store, "likes tea")
    next_step(add_column)
    for _ in range(2):
        with open_store(store_url) as store:
            assert fetch(store, "SELECT version FROM meta") == [(NEXT,)]
            assert fetch(store, "SELECT later FROM names") == []
            assert store.show(memory_id).content == "likes tea"
            store.verify_audit()


def test_step_that_fails_leaves_the_store_at_the_version_it_had(store_url: str, next_step: Any) -> None:
    with open_store(store_url) as store:
        remember(store, "likes tea")
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr(migrations, "STEPS", (*migrations.STEPS, fail_halfway))
        for module in (migrations, postgres_engine, sqlite_engine, sqlite_file):
            newer.setattr(module, "VERSION", NEXT)
        with pytest.raises(StoreUnreadable):
            open_store(store_url)
    with open_store(store_url) as store:
        assert fetch(store, "SELECT version FROM meta") == [(NEXT - 1,)]
        assert fetch(store, "SELECT * FROM names") == []
        assert recalled(store, "tea") == ["likes tea"]


def test_many_that_open_a_new_store_at_once_make_one(store_url: str) -> None:
    failures: list[BaseException] = []
    gate = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            gate.wait()
            with open_store(store_url) as store:
                remember(store, f"tea {number}")
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with open_store(store_url) as store:
        assert store.count() == 4
        store.verify_audit()


# Files that are none of ours


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE memories (id TEXT)")


def database_that_claims_to_be_ours(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {migrations.VERSION}")
        db.execute("CREATE TABLE memories (id TEXT)")


def database_without_a_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
        db.execute("CREATE TABLE memories (id TEXT)")


def newer_store(path: Path) -> None:
    open_store(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute(f"PRAGMA user_version = {NEXT}")


def store_without_a_table(path: Path) -> None:
    open_store(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("DROP TABLE names")


def store_with_another_column(path: Path) -> None:
    open_store(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("ALTER TABLE names ADD COLUMN more TEXT")


def truncated(keep: float | int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with open_store(str(path)) as store:
            remember(store, "tea " * 5_000)
        size = path.stat().st_size
        os.truncate(path, keep if isinstance(keep, int) else int(size * keep))

    return make


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"SQLite"), "it is truncated"),
        (lambda path: path.write_bytes(b"notes about tea " * 100), "no SQLite database"),
        (lambda path: path.mkdir(), "it is no file"),
        (lambda path: os.mkfifo(path), "it is no file"),
        (foreign_database, "another program"),
        (database_that_claims_to_be_ours, "tables are not those"),
        (database_without_a_version, "another program"),
        (newer_store, f"version {NEXT}"),
        (store_without_a_table, "tables are not those"),
        (store_with_another_column, "tables are not those"),
        (truncated(99), "truncated"),
        (truncated(0.5), "truncated"),
        (truncated(0.99), "truncated"),
    ],
)
def test_file_that_is_no_store_of_ours_is_refused_and_not_touched(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "memories.db"
    make(path)
    before = contents(tmp_path)
    for create in (True, False):
        with pytest.raises(StoreUnreadable) as caught:
            open_store(str(path), create=create)
        assert reason in caught.value.reason
        assert contents(tmp_path) == before


def test_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "memories.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(CouldNotTell):
        open_store(str(tmp_path / "memories.db"))
    assert not (tmp_path / "elsewhere.db").exists()


def test_opening_and_reading_change_no_byte(sqlite_path: Path) -> None:
    with open_store(str(sqlite_path)) as store:
        memory_id = remember(store, "tea")
    before = contents(sqlite_path.parent)
    with open_store(str(sqlite_path)) as store:
        recalled(store, "tea")
        store.show(memory_id)
        store.verify_audit()
    assert contents(sqlite_path.parent) == before


def test_python_without_fts5_is_told_what_it_lacks(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_FIRST_TEXT_SQLITE", ("CREATE VIRTUAL TABLE memory_text USING fts5lacking(a)",))
    with pytest.raises(ConfigurationError) as caught:
        open_store(str(sqlite_path))
    assert "FTS5" in str(caught.value)
    assert list(sqlite_path.parent.iterdir()) == []


# Servers that cannot be used


def test_schema_of_another_program_is_refused_and_not_touched(postgres: Server) -> None:
    with postgres.new_database() as name, postgres.connect(name) as connection:
        connection.execute("CREATE SCHEMA melete")
        connection.execute("CREATE TABLE melete.memories (id text)")
        with pytest.raises(StoreUnreadable) as caught:
            open_store(postgres.url(name))
        assert "another program" in caught.value.reason
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'melete'")
        assert tables.fetchall() == [("memories",)]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE melete.meta SET version = version + 1", f"version {NEXT}"),
        ("UPDATE melete.meta SET version = 0", "another program"),
        ("DROP TABLE melete.names", "tables are not those"),
        ("ALTER TABLE melete.names ADD COLUMN more text", "tables are not those"),
        ("DROP TABLE melete.memory_text", "tables are not those"),
    ],
)
def test_schema_that_is_newer_or_was_changed_is_refused(postgres: Server, statement: str, reason: str) -> None:
    with postgres.new_database() as name:
        open_store(postgres.url(name)).close()
        with postgres.connect(name) as connection:
            connection.execute(statement)  # type: ignore[arg-type]
        with pytest.raises(StoreUnreadable) as caught:
            open_store(postgres.url(name))
        assert reason in caught.value.reason


def test_database_that_cannot_keep_every_text_is_refused(postgres: Server) -> None:
    with postgres.new_database("TEMPLATE template0 ENCODING 'LATIN1'") as name:
        with pytest.raises(ConfigurationError) as caught:
            open_store(postgres.url(name))
        assert "UTF8" in str(caught.value)


@pytest.mark.parametrize("wrong", ["password", "database", "port", "host"])
def test_server_that_does_not_let_us_in_is_told_without_the_password(postgres: Server, wrong: str) -> None:
    url, password = postgres.url("postgres"), postgres.password
    if wrong == "password":
        password = "a-secret-that-is-wrong"
        url = postgres.url("postgres", password=password)
    elif wrong == "database":
        url = postgres.url("nowhere")
    elif wrong == "port":
        url = re.sub(r":\d+/", ":1/", url)
    else:
        url = url.replace("127.0.0.1", "host.invalid")
    with pytest.raises(StoreUnreadable) as caught:
        open_store(url)
    shown = f"{caught.value} {vars(caught.value)} {caught.value.__cause__}"
    assert password not in shown
    assert caught.value.__suppress_context__


def test_password_given_as_an_option_is_not_shown_either(postgres: Server) -> None:
    url = f"postgresql://melete@127.0.0.1:{postgres.port}/postgres?password=a-secret-that-is-wrong&sslkey=secret.key"
    with pytest.raises(StoreUnreadable) as caught:
        open_store(url)
    assert "secret" not in f"{caught.value} {vars(caught.value)}"


def test_option_that_the_driver_does_not_know_is_told(postgres: Server) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(f"{postgres.url('postgres')}?bogus=secret")
    assert "secret" not in str(caught.value)
    assert postgres.password not in str(caught.value)


@pytest.mark.parametrize("schema", ["user", "select", "_", "s" * 63])
def test_schema_of_any_plain_name_keeps_a_store(postgres: Server, schema: str) -> None:
    with postgres.new_database() as name, open_store(f"{postgres.url(name)}?schema={schema}") as store:
        remember(store, "tea")
        assert recalled(store, "tea") == ["tea"]


def test_missing_driver_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra) as caught:
        open_store("postgresql://melete:secret@127.0.0.1:1/d")
    assert "melete[postgres]" in str(caught.value)
    assert "secret" not in str(caught.value)
