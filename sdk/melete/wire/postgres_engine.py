"""A memory store on a PostgreSQL server, for many processes on many machines.

The tables are in a schema of their own. Whoever writes locks the one row of `meta` first, so the audit chain has one
order. Forgetting deletes rows and index entries in its transaction; that the bytes also leave the server's files is the
work of VACUUM, and what its log, replicas and backups keep is out of this program's reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from melete.errors import (
    ConfigurationError,
    InvalidInput,
    MeleteError,
    MissingExtra,
    MissingFile,
    StoreBusy,
    StoreNotWritten,
    StoreUnreadable,
)
from melete.primitives import NOT_SHOWN
from melete.sqlite_errors import NEVER_WRITTEN
from melete.wire.engines import CLOSED, LOST, Database, Match
from melete.wire.migrations import VERSION, find_fault, run_step
from melete.wire.prepared import driver_connection
from melete.wire.tables import AnyRow

if TYPE_CHECKING:
    import psycopg

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_DEFAULT_SCHEMA: Final = "melete"
#: How long to wait for a server, in seconds.
_CONNECT_SECONDS: Final = 10
#: So many bytes of terms go into one text vector; PostgreSQL's own limit is 2^20 with what stands around them.
_PART_BYTES: Final = 2**18
#: A number of our own, by which processes that open a new store at the same time wait for each other.
_OPENING: Final = 0x4D4C544D

# What a server says before it lets anybody in has no code, and may be in any language: its words stand after a severity
# and two spaces. What follows is told apart further only where it is English.
_ANSWERED: Final = re.compile(r"\S:  \S|no password supplied")
_NOT_NOW: Final = re.compile(r"too many|connection slots|starting up|shutting down|in recovery")
_OPTION: Final = re.compile(r"connection is bad: (?:invalid|definition of service)")

_REFUSED: Final = "the server refused to let us in"
_CHECK_NAMES: Final = "check user, password and database name"
_CHECK_SERVER: Final = "see to the server and to what lies between, then try again"
_CHECK_DATABASE: Final = "name another database or schema, or restore a backup of this one"
_ADVICE: Final = {CLOSED: "open it again", LOST: _CHECK_SERVER}


class ServerUnusable(StoreUnreadable):
    """A store on a server that cannot be used; `advice` says what to look at."""

    advice: str
    sentence = "{path} cannot be used ({reason:plain}), and nothing in it was changed; {advice:plain}."


class PostgresDatabase(Database):
    """A schema of a database on a server."""

    BEGIN_WRITING = "BEGIN"
    BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    scrubs = False

    def __init__(self, url: URL, schema: str, busy_seconds: float) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("postgres", "a store on a PostgreSQL server") from None
        self._psycopg = psycopg
        self.conflict_error = psycopg.errors.UniqueViolation
        engine = create_engine(
            url,
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={"connect_timeout": _CONNECT_SECONDS, "application_name": "melete"},
        )
        super().__init__(engine, _label(url, schema))

        @event.listens_for(engine, "connect")
        def prepare(connection: psycopg.Connection[Any], _: object) -> None:
            connection.autocommit = True  # transactions begin when `engines` says so
            connection.execute(f'SET search_path TO "{schema}"')
            connection.execute(f"SET lock_timeout = {round(busy_seconds * 1000)}")

    @classmethod
    def open(cls, store: str, *, create: bool, busy_seconds: float) -> PostgresDatabase:
        """Open a store on a server, or make one. Errors: see `engines.open_database`."""
        try:
            url = make_url(store)
        except (ArgumentError, ValueError):
            raise InvalidInput("store", "postgresql", "postgresql://USER@HOST:PORT/DATABASE") from None
        schema = url.query.get("schema", _DEFAULT_SCHEMA)
        # What is refused here may be part of a password.
        if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
            raise InvalidInput("schema", NOT_SHOWN, "a name of lower-case ASCII letters, digits and underscores")
        if not all(map(_is_port, _ports(url))):
            raise InvalidInput("port", NOT_SHOWN, "a number from 1 to 65535")
        if url.database is not None and re.search("[:@=]", url.database):
            raise InvalidInput(
                "database", NOT_SHOWN, "a name without : @ and =, in postgresql://USER@HOST:PORT/DATABASE"
            )
        url = url.difference_update_query(["schema"]).set(drivername="postgresql+psycopg")
        database = cls(url, schema, busy_seconds)
        try:
            database._prepare(schema, create=create)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, schema: str, *, create: bool) -> None:
        """Make the tables where there are none, and run the steps that are missing."""
        with self.reading() as connection:
            version = self._version(connection, schema)
        if version == VERSION:
            return
        if version is None and not create:
            raise MissingFile(self.label, "there is no memory store; remember something first")
        while version != VERSION:
            with self.writing() as connection:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_OPENING})")
                version = self._version(connection, schema)
                if version is None:
                    connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
                if version != VERSION:
                    version = run_step(connection, version or 0)

    def _version(self, connection: Connection, schema: str) -> int | None:
        """Return the version of the tables in the schema; None where there are none.

        Errors: `StoreUnreadable` for tables that are not ours, or newer ones; `ConfigurationError` for a database
        that cannot keep every text.
        """
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            raise ConfigurationError(f"{self.label} is encoded as {encoding}; make a database with encoding UTF8")
        columns: dict[str, set[str]] = {}
        for table, column in connection.exec_driver_sql(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", (schema,)
        ):
            columns.setdefault(table, set()).add(column)
        if not columns:
            return None
        version = 0
        if {"id", "version", "number", "hash"} <= columns.get("meta", set()):
            version = connection.exec_driver_sql("SELECT max(version) FROM meta WHERE id = 1").scalar_one() or 0
        fault = find_fault(version, columns)
        if fault:
            raise self.unreadable(fault)
        return version

    # Transactions

    def unreadable(self, reason: str, advice: str | None = None) -> ServerUnusable:
        return ServerUnusable(self.label, reason, advice or _ADVICE.get(reason, _CHECK_DATABASE))

    def translate(self, error: BaseException | None) -> MeleteError:
        """Return our error for one of psycopg's; the server's own words may hold what was written, so ours stand here.

        Source: PostgreSQL, Appendix A, Error Codes.
        """
        code = getattr(error, "sqlstate", None) or ""
        if code in ("55P03", "40001", "40P01", "57014") or code.startswith("53300"):
            return StoreBusy(self.label, f"the server says {code}")
        if code in ("25006", "42501", "53000", "53100", "53200", "54000", "58030") or code.startswith("54"):
            reasons = {"25006": "it is read-only", "42501": "permission denied", "53100": "the server's disk is full"}
            return StoreNotWritten(self.label, reasons.get(code, f"the server says {code}"))
        if code.startswith("28"):
            return self.unreadable(_REFUSED, _CHECK_NAMES)
        if code == "3D000":
            return self.unreadable(_REFUSED, _CHECK_NAMES)
        if code[:2] in ("08", "57"):
            return self.unreadable(LOST)
        if code:
            return self.unreadable(f"the server says {code}")
        text = str(error)
        if isinstance(error, self._psycopg.ProgrammingError) or _OPTION.match(text):
            return ConfigurationError(f"the URL of {self.label} holds an option that the driver does not know")
        if _ANSWERED.search(text):
            if _NOT_NOW.search(text):
                return StoreBusy(self.label, "the server takes no connections just now")
            return self.unreadable(_REFUSED, _CHECK_NAMES)
        return self.unreadable("no server answers, or the connection was lost", _CHECK_SERVER)

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        return (self._psycopg.Error, UnicodeError)

    def _is_lost(self, connection: Connection) -> bool:
        return connection.closed or connection.invalidated or bool(driver_connection(connection).closed)

    def _end(self, connection: Connection) -> None:
        if self._is_lost(connection):
            return
        db = driver_connection(connection)
        if db.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            db.rollback()

    def lock_head(self, connection: Connection) -> tuple[int, bytes]:
        row = driver_connection(connection).execute("SELECT number, hash FROM meta FOR UPDATE").fetchone()
        if row is None:
            raise self.unreadable(NEVER_WRITTEN)
        number, digest = row
        return number, digest

    def scrub(self) -> bool:
        self._session()  # a store that was closed has nothing to say
        return True

    # The text index

    def add_terms(self, connection: Connection, document: int, words: Sequence[str], tags: Sequence[str]) -> None:
        for part, some in enumerate(_parts(words)):
            connection.exec_driver_sql(
                "INSERT INTO memory_text (document, part, terms) VALUES (%s, %s, array_to_tsvector(%s::text[]))",
                (document, part, [*some, *tags]),
            )

    def remove_terms(self, connection: Connection, documents: Sequence[int]) -> None:
        connection.exec_driver_sql("DELETE FROM memory_text WHERE document = ANY(%s::bigint[])", (list(documents),))

    def find_documents(self, connection: Connection, matches: Sequence[Match], now: int | None) -> list[list[int]]:
        alive = ""
        if now is not None:
            alive = " AND NOT EXISTS (SELECT 1 FROM memories m WHERE m.document = t.document AND m.expires_at <= %s)"
        found = (
            f"SELECT DISTINCT document FROM memory_text t WHERE terms @@ %s::tsquery{alive} ORDER BY 1 DESC LIMIT %s"  # noqa: S608
        )
        query = "SELECT " + ", ".join([f"ARRAY({found})"] * len(matches))
        values: list[object] = []
        for match in matches:
            values += [_expression(match), *([] if now is None else [now]), match.limit]
        return list(driver_connection(connection).execute(query, values).fetchone())

    def count_documents(self, connection: Connection, match: Match) -> int:
        query = (
            "SELECT count(*) FROM (SELECT DISTINCT document FROM memory_text WHERE terms @@ %s::tsquery LIMIT %s) AS f"
        )
        count: int = connection.exec_driver_sql(query, (_expression(match), match.limit)).scalar_one()
        return count

    def load_documents(self, connection: Connection, columns: str, documents: Sequence[int]) -> Sequence[AnyRow]:
        query = f"SELECT {columns} FROM memories WHERE document = ANY(%s::bigint[])"  # noqa: S608
        rows: Sequence[AnyRow] = driver_connection(connection).execute(query, (list(documents),)).fetchall()
        return rows

    def arrange_terms(self, words: Sequence[str], tags: Sequence[str]) -> list[list[str]]:
        return [sorted({*some, *tags}) for some in _parts(words)]

    def load_terms(self, connection: Connection, documents: Sequence[int]) -> dict[int, list[list[str]]]:
        query = (
            "SELECT document, tsvector_to_array(terms) FROM memory_text WHERE document = ANY(%s::bigint[])"
            " ORDER BY document, part"
        )
        found: dict[int, list[list[str]]] = {}
        for document, terms in driver_connection(connection).execute(query, (list(documents),)).fetchall():
            found.setdefault(document, []).append(sorted(terms))
        return found

    def compare_index(self, connection: Connection) -> tuple[int | None, int | None]:
        lacking = connection.exec_driver_sql(
            "SELECT min(document) FROM memories m WHERE merged_into IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM memory_text t WHERE t.document = m.document)"
        ).scalar_one()
        foreign = connection.exec_driver_sql(
            "SELECT min(document) FROM memory_text t WHERE NOT EXISTS"
            " (SELECT 1 FROM memories m WHERE m.document = t.document AND m.merged_into IS NULL)"
        ).scalar_one()
        return lacking, foreign


def _expression(match: Match) -> str:
    """Return what `tsquery` reads: every term quoted. A term holds no quotes and no backslashes."""
    parts = [f"'{term}'" for term in match.all_of]
    if match.any_of:
        parts.append("(" + " | ".join(f"'{term}'" for term in match.any_of) + ")")
    return " & ".join(parts)


def _parts(terms: Sequence[str]) -> Iterator[list[str]]:
    """Yield terms in portions that fit a text vector, with room for tags; one portion at least."""
    part: list[str] = []
    size = 0
    for term in terms:
        length = len(term.encode())
        if size + length > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(term)
        size += length
    yield part


def _ports(url: URL) -> Iterator[str]:
    """Yield the ports that a URL names, of which an option may hold several."""
    if url.port is not None:
        yield str(url.port)
    given = url.query.get("port", ())
    for some in (given,) if isinstance(given, str) else given:
        yield from some.split(",")


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65_535)


def _label(url: URL, schema: str) -> str:
    """Return how messages name a store: without user, password and options."""
    port = "" if url.port is None else f":{url.port}"
    place = f"postgresql://{url.host or ''}{port}/{url.database or ''}"
    return place if schema == _DEFAULT_SCHEMA else f"{place}?schema={schema}"
