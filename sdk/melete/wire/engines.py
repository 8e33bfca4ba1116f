"""A database that keeps a memory store: connections, transactions and errors, the same for every engine.

What differs between SQLite and PostgreSQL is in `sqlite_engine` and `postgres_engine`, and nowhere else: how a store is
opened, how a transaction begins, the text index, what an error means, and what has to be done so that erased bytes go.

Each thread has a connection of its own, kept; each process makes its own, also after a fork.
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, NoResultFound, SQLAlchemyError

from melete.errors import ConfigurationError, InvalidInput, MeleteError, StoreUnreadable
from melete.primitives import NOT_SHOWN
from melete.sqlite_errors import NEVER_WRITTEN
from melete.wire.prepared import driver_connection
from melete.wire.tables import AnyRow

#: How long to wait for others that write.
BUSY_SECONDS: Final = 30.0
#: Why a store cannot be used; the last where no store has left its rows like that.
CLOSED: Final = "it was closed"
LOST: Final = "the connection was lost"
_SERVERS: Final = ("postgresql", "postgres", "postgresql+psycopg")
#: What a mistyped URL or the driver's own kind of address looks like: a scheme (a drive of Windows has one letter), a
#: user with a password, or settings by name. What begins with one / or with ./ is meant as a path.
_ADDRESS: Final = re.compile(
    r"(?!\.{0,2}/(?!/))(?:[a-z][a-z0-9+.-]+:|.*:[^/]*@|.*\b(?:host|dbname|password)\s*=)", re.IGNORECASE | re.DOTALL
)
#: Connections that belong to the process that this one was forked from; they must be neither used nor closed.
_inherited: Final[list[object]] = []


class Match(NamedTuple):
    """What to look up in the text index: the newest documents, at most `limit`, with all of some terms.

    And with at least one of `any_of`, where that is not empty.
    """

    all_of: tuple[str, ...]
    limit: int
    any_of: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class _Session:
    """One thread's connection."""

    connection: Connection
    thread: threading.Thread
    process: int
    depth: int = 0
    writes: bool = False
    scrub_due: bool = False
    is_scrubbed: bool = True


class Database(ABC):
    """A database with the tables of a memory store. Threads may share it."""

    #: How a transaction begins that writes, and one that reads a single state.
    BEGIN_WRITING: str
    BEGIN_READING: str
    #: What the driver raises for a row that cannot stand beside another one.
    conflict_error: type[Exception]
    #: Whether erased bytes stay in a file of ours until `scrub`.
    scrubs: bool

    def __init__(self, engine: Engine, label: str) -> None:
        self.engine, self.label = engine, label
        self._local = threading.local()
        self._sessions: list[_Session] = []
        self._lock = threading.Lock()
        self._closed = False
        event.listen(engine, "begin", _begin)

    def close(self) -> None:
        """Close every thread's connection; what is asked afterwards is `StoreUnreadable`."""
        with self._lock:
            self._closed = True
            for session in self._sessions:
                self._drop(session)
            self._sessions.clear()
        self.engine.dispose()

    # Transactions

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection in a transaction that is committed whole or not at all, one writer at a time.

        Inside another one it is a part of that: it happens whole or not at all, and for good when the outer one does.
        Errors: `StoreBusy`, `StoreNotWritten`, `StoreUnreadable`.
        """
        session = self._session()
        if session.depth:
            if not session.writes:
                raise ConfigurationError("a store is written outside of the block that reads it; end that one first")
            session.depth += 1
            try:
                with self._errors(session), session.connection.begin_nested():
                    yield session.connection
            finally:
                session.depth -= 1
            return
        with self._transaction(session, self.BEGIN_WRITING) as connection:
            session.writes = True
            yield connection
        if session.scrub_due:
            session.scrub_due = False
            session.is_scrubbed = self.scrub()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one unchanging state, whatever others write. Errors: as `writing`."""
        session = self._session()
        if session.depth:
            with self._errors(session):
                yield session.connection
            return
        with self._transaction(session, self.BEGIN_READING) as connection:
            session.writes = False
            yield connection

    @contextmanager
    def _transaction(self, session: _Session, statement: str) -> Iterator[Connection]:
        connection = session.connection
        with self._errors(session):
            connection.info["begin"] = statement
            transaction = connection.begin()
            session.depth = 1
            try:
                yield connection
                transaction.commit()
            except BaseException:
                if connection.get_transaction() is transaction:  # also after a commit that failed
                    with suppress(SQLAlchemyError):
                        transaction.rollback()
                session.scrub_due = False
                raise
            finally:
                session.depth = 0
                self._end(connection)

    def scrub_after_commit(self) -> None:
        """Ask, inside `writing`, that `scrub` runs once everything is committed."""
        self._session().scrub_due = True

    @property
    def is_scrubbed(self) -> bool:
        """Whether the scrubbing that this thread asked for last was done."""
        return self._session().is_scrubbed

    @property
    def is_nested(self) -> bool:
        """Whether this thread is inside a `writing` that is inside another one."""
        return self._session().depth > 1

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside `writing`."""
        session = self._session()
        return session.depth > 0 and session.writes

    def _session(self) -> _Session:
        if self._closed:
            raise self.unreadable(CLOSED)
        session: _Session | None = getattr(self._local, "session", None)
        if session is not None and session.process == os.getpid():
            return session
        with self._lock:
            kept = []
            for other in self._sessions:
                if other.process != os.getpid():
                    _inherited.append(other)
                elif other.thread.is_alive():
                    kept.append(other)
                else:
                    self._drop(other)
            with self._errors():
                session = _Session(self.engine.connect(), threading.current_thread(), os.getpid())
            self._sessions = [*kept, session]
        self._local.session = session
        return session

    def _drop(self, session: _Session) -> None:
        if session.process != os.getpid():
            _inherited.append(session)
            return
        with suppress(SQLAlchemyError, *self._driver_errors()):
            session.connection.close()

    @contextmanager
    def _errors(self, session: _Session | None = None) -> Iterator[None]:
        """Turn the errors of SQLAlchemy and of the driver into ours, which never hold what was written."""
        try:
            yield
        except DBAPIError as error:
            if error.connection_invalidated:
                self._forget_session(session)
            raise self.translate(error.orig) from None
        except NoResultFound:  # the one row of `meta` is gone, or another that every store has
            raise self.unreadable(NEVER_WRITTEN) from None
        except SQLAlchemyError:
            self._forget_session(session)
            raise self.unreadable(LOST) from None
        except self._driver_errors() as error:
            if session is not None and self._is_lost(session.connection):
                self._forget_session(session)
            raise self.translate(error) from None

    def _forget_session(self, session: _Session | None) -> None:
        if session is not None:
            with self._lock:
                self._sessions = [other for other in self._sessions if other is not session]
            with suppress(SQLAlchemyError, *self._driver_errors()):
                session.connection.invalidate()  # so that nothing is asked of it any more
            self._drop(session)
            self._local.session = None

    # What the engines differ in

    def unreadable(self, reason: str) -> StoreUnreadable:
        """Return the error for a store that cannot be used."""
        return StoreUnreadable(self.label, reason)

    @abstractmethod
    def translate(self, error: BaseException | None) -> MeleteError:
        """Return our error for one of the driver's."""

    @abstractmethod
    def _driver_errors(self) -> tuple[type[Exception], ...]:
        """Return the classes that the driver itself raises."""

    def _is_lost(self, connection: Connection) -> bool:  # noqa: ARG002 - a file is never lost
        """Return whether nothing can be asked any more by a connection."""
        return False

    @abstractmethod
    def _end(self, connection: Connection) -> None:
        """Make sure that no transaction is left open on a connection, whatever went wrong."""

    @abstractmethod
    def scrub(self) -> bool:
        """Make what was erased leave the files, as far as this program can; return whether that is done.

        Errors: `ConfigurationError` inside a transaction.
        """

    @abstractmethod
    def lock_head(self, connection: Connection) -> tuple[int, bytes]:
        """Return number and hash of the newest audit row; until the transaction ends, nobody else adds one."""

    @abstractmethod
    def add_terms(self, connection: Connection, document: int, words: Sequence[str], tags: Sequence[str]) -> None:
        """Put a document into the text index, with the terms of its words and of its tags."""

    @abstractmethod
    def remove_terms(self, connection: Connection, documents: Sequence[int]) -> None:
        """Take documents out of the text index."""

    @abstractmethod
    def find_documents(self, connection: Connection, matches: Sequence[Match], now: int | None) -> list[list[int]]:
        """Return, for each match, the documents that it finds, newest first.

        `now` is given when there are memories that have expired by then: those do not count.
        """

    @abstractmethod
    def count_documents(self, connection: Connection, match: Match) -> int:
        """Return how many documents a match finds, counted up to its limit."""

    @abstractmethod
    def load_documents(self, connection: Connection, columns: str, documents: Sequence[int]) -> Sequence[AnyRow]:
        """Return columns of the rows of some memories as tuples; in no order, without those that are not there."""

    @abstractmethod
    def arrange_terms(self, words: Sequence[str], tags: Sequence[str]) -> list[list[str]]:
        """Return the rows of the text index, each in order, that `add_terms` makes of terms."""

    @abstractmethod
    def load_terms(self, connection: Connection, documents: Sequence[int]) -> dict[int, list[list[str]]]:
        """Return the rows of the text index that some documents have, as `arrange_terms` does."""

    @abstractmethod
    def compare_index(self, connection: Connection) -> tuple[int | None, int | None]:
        """Return the first document that the text index lacks, and the first that it should not have."""


def _begin(connection: Connection) -> None:
    driver_connection(connection).execute(connection.info.get("begin", "BEGIN"))


def parse_path(path: str | Path, field: str) -> Path:
    """Return the path of a file, unless it was meant as the address of a server: that may hold a password.

    Errors: `InvalidInput`, which does not show it.
    """
    if _ADDRESS.match(str(path)):
        rule = (
            "the path of a file, sqlite:///PATH or postgresql://USER@HOST/DATABASE; "
            "a file with such a name is given with ./ before it"
        )
        raise InvalidInput(field, NOT_SHOWN, rule)
    found = Path(path)
    if not found.name or "\0" in str(found):
        raise InvalidInput(field, str(path), "the path of a file; a store is kept in one")
    return found


def is_on_server(store: str | Path) -> bool:
    """Return whether a URL names a store on a PostgreSQL server."""
    return isinstance(store, str) and store.partition("://")[0] in _SERVERS and "://" in store


def open_database(store: str | Path, *, create: bool = True, busy_seconds: float = BUSY_SECONDS) -> Database:
    """Open the database that a path or a URL names, after making it if there is none (unless `create` is false).

    A path, or `sqlite:///PATH`, is one SQLite file; `postgresql://USER:PASSWORD@HOST:PORT/DATABASE` a PostgreSQL
    server, where `?schema=NAME` chooses another schema than `melete`. A database that is foreign, damaged or newer is
    left as it is, to the byte. No password stands in any error.
    Errors: `InvalidInput` for another URL; `MissingExtra` without the driver; `MissingFile` for no store where none
    may be made; `StoreUnreadable`, `StoreNotWritten`, `StoreBusy`.
    """
    if isinstance(store, str) and is_on_server(store):
        from melete.wire.postgres_engine import PostgresDatabase

        return PostgresDatabase.open(store, create=create, busy_seconds=busy_seconds)
    if isinstance(store, Path) or "://" not in store:
        path = parse_path(store, "store")
    else:
        scheme, _, rest = store.partition("://")
        if scheme != "sqlite" or not rest.startswith("/") or "?" in rest:
            # What is not a scheme alone may hold a password.
            shown = scheme if scheme.isalpha() and scheme.isascii() else NOT_SHOWN
            raise InvalidInput("store", shown, "a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE")
        path = parse_path(rest[1:], "store")
    if ":memory:" in path.name:
        raise InvalidInput("store", str(path), "the path of a file; a store is kept in one")
    from melete.wire.sqlite_engine import SqliteDatabase

    return SqliteDatabase.open(path, create=create, busy_seconds=busy_seconds)
