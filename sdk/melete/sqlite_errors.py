"""What SQLite's errors mean to whoever uses one of our files."""

from __future__ import annotations

import sqlite3
from typing import Final

from melete.errors import MeleteError, StoreBusy, StoreNotWritten, StoreUnreadable

NEVER_WRITTEN: Final = "it holds what was never written by this program"

_READING: Final = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
_NO_ROOM: Final = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM),
)


def translate(error: BaseException | None, label: str) -> MeleteError:
    """Return our error for one of SQLite's, whose texts name tables and files, never values.

    `label` is what the user calls the file. Python's own errors while reading (text that is no UTF-8) are told too.
    """
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:  # one of Python's own, whose texts may hold values
        closed = isinstance(error, sqlite3.ProgrammingError)
        return StoreUnreadable(label, "it was closed" if closed else NEVER_WRITTEN)
    primary, text = code & 0xFF, str(error)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(label, text)
    if primary in _NO_ROOM and code not in _READING:
        return StoreNotWritten(label, text)
    return StoreUnreadable(label, text)
