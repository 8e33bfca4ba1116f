"""One recorder at a time for each memory store, by a lock that the system takes back from a process that dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from melete.errors import ConfigurationError, StoreBusy, StoreNotWritten
from melete.wire.engines import Database
from melete.wire.prepared import driver_connection
from melete.wire.sqlite_engine import SqliteDatabase

_REASON: Final = "another process records it"
#: "MLTR": with the number of the schema, what recorders of a store on a server lock there.
_KEY: Final = 0x4D4C5452


@contextmanager
def recording_alone(database: Database) -> Iterator[None]:
    """Hold the right to record a store, outside of its transactions.

    Errors: `StoreBusy` while another one holds it; `ConfigurationError` inside a transaction, of which nobody knows yet
    whether it will happen; `StoreNotWritten`.
    """
    if database.is_writing:
        raise ConfigurationError("a store is recorded outside of a transaction; end that one first")
    with database.writing():  # says so inside a snapshot
        pass
    if isinstance(database, SqliteDatabase):
        with _file_lock(Path(f"{database.path}.recording"), database.label):
            yield
        return
    with _server_lock(database):
        yield


@contextmanager
def _file_lock(path: Path, label: str) -> Iterator[None]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreNotWritten(label, f"the lock beside it cannot be made ({error.strerror})") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreBusy(label, _REASON) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _server_lock(database: Database) -> Iterator[None]:
    """Lock on a connection of its own: the lock goes with it, whatever becomes of this process."""
    import psycopg

    try:
        connection = database.engine.connect()
    except DBAPIError as error:
        raise database.translate(error.orig) from None
    try:
        try:
            driver: psycopg.Connection[Any] = driver_connection(connection)
            row = driver.execute("SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))", (_KEY,)).fetchone()
        except psycopg.Error as error:
            raise database.translate(error) from None
        if row != (True,):
            raise StoreBusy(database.label, _REASON)
        yield
    finally:
        with suppress(SQLAlchemyError):
            connection.close()
