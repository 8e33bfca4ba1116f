"""The tables of a memory store come into being in numbered steps, each in one transaction.

A step is written once and never changed: stores in the world have run it. What `tables` says is what all steps give
together. A newer or foreign database is told by its version and its tables, before anything is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from sqlalchemy import Connection

from melete.wire.tables import metadata

#: The words that differ between the engines in the steps below.
_SQLITE: Final = {"KEY": "INTEGER PRIMARY KEY", "BYTES": "BLOB"}
_POSTGRESQL: Final = {"KEY": "BIGINT PRIMARY KEY", "BYTES": "BYTEA"}

_FIRST_TABLES: Final = (
    "CREATE TABLE meta (id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL,"
    " number BIGINT NOT NULL, hash {BYTES} NOT NULL, dimensions INTEGER, unscrubbed INTEGER NOT NULL)",
    "CREATE TABLE scopes (id {KEY}, agent TEXT NOT NULL, type TEXT NOT NULL, since BIGINT NOT NULL,"
    " documents BIGINT NOT NULL, words BIGINT NOT NULL, removals BIGINT NOT NULL)",
    "CREATE UNIQUE INDEX scopes_by_name ON scopes (agent, type)",
    "CREATE TABLE memories (document {KEY}, id TEXT NOT NULL, scope BIGINT NOT NULL REFERENCES scopes (id),"
    " number BIGINT NOT NULL, audited BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT,"
    " merged_into BIGINT, words BIGINT NOT NULL, salt {BYTES} NOT NULL, tags TEXT NOT NULL, metadata TEXT,"
    " content TEXT NOT NULL)",
    "CREATE UNIQUE INDEX memories_by_id ON memories (id)",
    "CREATE INDEX memories_expiring ON memories (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX memories_merged ON memories (merged_into) WHERE merged_into IS NOT NULL",
    "CREATE TABLE memory_vectors (scope BIGINT NOT NULL, document BIGINT NOT NULL REFERENCES memories (document),"
    " vector {BYTES} NOT NULL, PRIMARY KEY (scope, document))",
    "CREATE TABLE audit (number {KEY}, entry TEXT NOT NULL, hash {BYTES} NOT NULL)",
    "CREATE TABLE pending (number {KEY}, id TEXT NOT NULL, operation TEXT NOT NULL,"
    " scope BIGINT NOT NULL REFERENCES scopes (id), writer TEXT NOT NULL, created_at BIGINT NOT NULL,"
    " expires_at BIGINT, sources TEXT, salt {BYTES}, tags TEXT, metadata TEXT, content TEXT, decision TEXT,"
    " decided BIGINT, decided_by TEXT)",
    "CREATE UNIQUE INDEX pending_by_id ON pending (id)",
    "CREATE INDEX pending_waiting ON pending (number) WHERE decision IS NULL",
    "CREATE TABLE names (folded TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, since BIGINT NOT NULL)",
)
#: Every term is one token whatever it holds, because it holds no ASCII but letters and digits. Which documents hold a
#: term is all that ranking asks, so neither places nor lengths are kept; few segments make looking up quick.
_FIRST_TEXT_SQLITE: Final = (
    "CREATE VIRTUAL TABLE memory_text USING fts5(terms, tokenize = 'ascii', detail = 'none', columnsize = 0)",
    "INSERT INTO memory_text (memory_text, rank) VALUES ('automerge', 2)",
)
#: A text vector ends at a megabyte, so a long memory has several parts.
_FIRST_TEXT_POSTGRESQL: Final = (
    "CREATE TABLE memory_text (document BIGINT NOT NULL REFERENCES memories (document), part INTEGER NOT NULL,"
    " terms TSVECTOR NOT NULL, PRIMARY KEY (document, part))",
    "CREATE INDEX memory_text_terms ON memory_text USING gin (terms)",
)


def _first(connection: Connection) -> None:
    sqlite = connection.dialect.name == "sqlite"
    words = _SQLITE if sqlite else _POSTGRESQL
    for statement in _FIRST_TABLES:
        connection.exec_driver_sql(statement.format(**words))
    for statement in _FIRST_TEXT_SQLITE if sqlite else _FIRST_TEXT_POSTGRESQL:
        connection.exec_driver_sql(statement)
    empty = "x''" if sqlite else "''"
    connection.exec_driver_sql(
        f"INSERT INTO meta (id, version, number, hash, dimensions, unscrubbed) VALUES (1, 0, 0, {empty}, NULL, 0)"  # noqa: S608
    )


_SECOND_TABLES: Final = (
    "CREATE TABLE recordings (first {KEY}, last BIGINT NOT NULL, chain TEXT NOT NULL, registry {BYTES} NOT NULL,"
    " space {BYTES} NOT NULL, root {BYTES} NOT NULL, commitment {BYTES} NOT NULL)",
    "CREATE TABLE recorded (number {KEY}, id TEXT NOT NULL, place BIGINT, ended BIGINT)",
    "CREATE UNIQUE INDEX recorded_by_id ON recorded (id)",
)


def _second(connection: Connection) -> None:
    """Room for what was put on record."""
    words = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRESQL
    for statement in _SECOND_TABLES:
        connection.exec_driver_sql(statement.format(**words))


#: Step n makes version n + 1 of version n.
STEPS: Final[tuple[Callable[[Connection], None], ...]] = (_first, _second)
VERSION: Final = len(STEPS)
#: The version that brought a table, where that is not the first. No step so far has changed one.
_SINCE: Final = {"recordings": 2, "recorded": 2}


def run_step(connection: Connection, version: int) -> int:
    """Run the step after `version`, inside a transaction that the caller commits; return the version that it makes."""
    STEPS[version](connection)
    connection.exec_driver_sql(f"UPDATE meta SET version = {version + 1}")  # noqa: S608
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {version + 1}")
    return version + 1


def find_fault(version: int, columns: dict[str, set[str]]) -> str:
    """Return why tables with columns, as found in a database that says it has a version, are none of ours; or ""."""
    if version > VERSION:
        return f"it is of version {version}, and this program knows {VERSION}"
    if version < 1:
        return "it is a database of another program"
    for table in metadata.tables.values():
        is_due = _SINCE.get(table.name, 1) <= version
        if is_due and columns.get(table.name) != {column.name for column in table.columns}:
            return "its tables are not those of a memory store"
    if "memory_text" not in columns:
        return "its tables are not those of a memory store"
    return ""


def find_missing_index(indexes: Collection[str], version: int = VERSION) -> str:
    """Return the first index that tables of a version have, and that is not among some; or ""."""
    for table in metadata.tables.values():
        if _SINCE.get(table.name, 1) <= version:
            for name in sorted(str(index.name) for index in table.indexes):
                if name not in indexes:
                    return name
    return ""
