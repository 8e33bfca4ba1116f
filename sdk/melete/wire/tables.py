"""The tables of a memory store, as SQLAlchemy Core knows them; `migrations` makes them, and a test compares the two.

The text index, `memory_text`, is the engines' own: an FTS5 table on SQLite, a `tsvector` with a GIN index on
PostgreSQL. On both a row of it is found by the document number of its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

#: A row of whatever was asked for; SQLAlchemy's own types for them differ from version to version.
AnyRow: TypeAlias = Any

metadata: Final = MetaData()


class _Bytes(LargeBinary):
    """Bytes. What a file holds in their place, which no store has written, is handed on and fails where it is read."""

    cache_ok = True

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any] | None:  # noqa: ARG002
        return lambda value: bytes(value) if isinstance(value, memoryview | bytearray) else value


#: 64 bits; a column that numbers rows is SQLite's own row number.
_Number = BigInteger().with_variant(Integer(), "sqlite")

#: One row: the version of the schema, the head of the audit chain, the length of embedded vectors (null before the
#: first), and whether erased bytes may still be in the file.
meta = Table(
    "meta",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", _Bytes, nullable=False),
    Column("dimensions", Integer),
    Column("unscrubbed", Integer, nullable=False),
)

#: An agent and a type, and what ranking has to know of their memories: since when, how many, of how many words; and a
#: count of what was taken away, by which others see that what they keep in memory is old.
scopes = Table(
    "scopes",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=False),
    Column("agent", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("documents", BigInteger, nullable=False),
    Column("words", BigInteger, nullable=False),
    Column("removals", BigInteger, nullable=False),
    Index("scopes_by_name", "agent", "type", unique=True),
)

#: What is remembered. `document` is the number of the audit row that made it, times 64, plus its size class; `audited`
#: the last audit row about it. What was merged names the document that took it up, and is recalled no more.
memories = Table(
    "memories",
    metadata,
    Column("document", _Number, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("scope", BigInteger, ForeignKey("scopes.id"), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("audited", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("merged_into", BigInteger),
    Column("words", BigInteger, nullable=False),
    Column("salt", _Bytes, nullable=False),
    Column("tags", Text, nullable=False),
    Column("metadata", Text),
    Column("content", Text, nullable=False),
    Index("memories_by_id", "id", unique=True),
)
_not_null = memories.c.expires_at.is_not(None)
Index("memories_expiring", memories.c.expires_at, sqlite_where=_not_null, postgresql_where=_not_null)
_not_null = memories.c.merged_into.is_not(None)
Index("memories_merged", memories.c.merged_into, sqlite_where=_not_null, postgresql_where=_not_null)

#: Float32 values, little-endian, in the order of their scope's documents.
memory_vectors = Table(
    "memory_vectors",
    metadata,
    Column("scope", BigInteger, primary_key=True, autoincrement=False),
    Column("document", BigInteger, ForeignKey("memories.document"), primary_key=True, autoincrement=False),
    Column("vector", _Bytes, nullable=False),
)

#: The chain: a row's entry is canonical JSON, its hash the keccak256 of it. Rows are only ever added.
audit = Table(
    "audit",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("entry", Text, nullable=False),
    Column("hash", _Bytes, nullable=False),
)

#: Writes that wait for approval, by the audit row that proposed them. Once decided, what they held is null.
pending = Table(
    "pending",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("scope", BigInteger, ForeignKey("scopes.id"), nullable=False),
    Column("writer", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("sources", Text),
    Column("salt", _Bytes),
    Column("tags", Text),
    Column("metadata", Text),
    Column("content", Text),
    Column("decision", Text),
    Column("decided", BigInteger),
    Column("decided_by", Text),
    Index("pending_by_id", "id", unique=True),
)
_undecided = pending.c.decision.is_(None)
Index("pending_waiting", pending.c.number, sqlite_where=_undecided, postgresql_where=_undecided)

#: Who decided about writes: as first written, found by the folded form that tells names apart.
names = Table(
    "names",
    metadata,
    Column("folded", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
)

#: What was put on record: each row a batch of audit rows, from `first` to `last`, with the space that it went to, the
#: root of its operations, and the commitment of the delta that carries it (`melete.wire.recording`).
recordings = Table(
    "recordings",
    metadata,
    Column("first", _Number, primary_key=True, autoincrement=False),
    Column("last", BigInteger, nullable=False),
    Column("chain", Text, nullable=False),
    Column("registry", _Bytes, nullable=False),
    Column("space", _Bytes, nullable=False),
    Column("root", _Bytes, nullable=False),
    Column("commitment", _Bytes, nullable=False),
)

#: The memories on record, by the audit row that made them: the place of the content in its batch, until it is erased
#: there too, and the audit row that ended the memory.
recorded = Table(
    "recorded",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("place", BigInteger),
    Column("ended", BigInteger),
    Index("recorded_by_id", "id", unique=True),
)
