"""The file of a SQLite memory store: how it is looked at before SQLite may touch it, and how a new one appears.

What is foreign, truncated or newer is told by a look, and stays as it was, to the byte. A new file appears whole or not
at all, for its owner alone (mode 0600; SQLite gives its companions `-wal` and `-shm` the same).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from melete.errors import MissingFile, StoreNotWritten, StoreUnreadable
from melete.sqlite_errors import translate
from melete.wire.migrations import VERSION, find_fault

#: "MLTM": how `file` and we tell such a database from others.
APPLICATION_ID: Final = 0x4D4C544D
#: How often a file is looked at before it is said to be none of ours.
_LOOKS: Final = 3
_SECONDS_BETWEEN_LOOKS: Final = 0.02
#: Kept in memory for each connection, in KiB.
CACHE: Final = 16 * 1024


def create_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a new store that `fill` has filled; where somebody else was quicker, theirs stays.

    Errors: `StoreNotWritten`.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
    draft = Path(name)
    try:
        fill(draft)
        _sync(draft)
        _publish(draft, path)
        _sync(path.parent)
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(name + suffix).unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links: the name is reserved, then replaced
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        draft.replace(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Looking


def check_file(path: Path, busy_seconds: float) -> int:
    """Return the version of the store in a file, without changing a byte of it.

    Errors: `MissingFile`; `StoreUnreadable` for a file that is foreign, truncated or of a newer version.
    """
    for _ in range(_LOOKS - 1):
        with suppress(StoreUnreadable):
            return _look(path, busy_seconds)
        # Perhaps somebody else was just closing it, and folding the log into it.
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return _look(path, busy_seconds)


def _look(path: Path, busy_seconds: float) -> int:
    _check_header(path)
    try:
        with closing(_connect_to_look(path, busy_seconds)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            described = "SELECT name FROM pragma_table_info(?)"
            columns = {table: {name for (name,) in db.execute(described, (table,))} for table in tables}
    except (sqlite3.Error, UnicodeDecodeError) as error:  # in a damaged file the names of tables are any bytes
        raise translate(error, str(path)) from None
    fault = find_fault(version, columns)
    if fault:
        raise StoreUnreadable(str(path), fault)
    return int(version)


def _check_header(path: Path) -> None:
    """Judge a file by its first 100 bytes and its size. Source: SQLite, Database File Format, The Database Header."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnreadable(str(path), "it is no file")
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise MissingFile(str(path), "there is no memory store; remember something first") from None
    except OSError as error:
        raise StoreUnreadable(str(path), error.strerror or "it cannot be read") from None
    if not header:
        raise StoreUnreadable(str(path), "it is empty")
    if header[:16] != b"SQLite format 3\x00"[: len(header)]:
        raise StoreUnreadable(str(path), "it is no SQLite database")
    if len(header) < 100:
        raise StoreUnreadable(str(path), "it is truncated")
    if _uint(header, 68) != APPLICATION_ID:
        raise StoreUnreadable(str(path), "it is a database of another program")
    if _uint(header, 60) > VERSION:
        raise StoreUnreadable(str(path), f"it is of version {_uint(header, 60)}, and this program knows {VERSION}")
    page_size = {1: 65536}.get(int.from_bytes(header[16:18], "big"), int.from_bytes(header[16:18], "big"))
    # While there is a log, the size of the file may lag behind; SQLite sorts that out.
    if not has_companion(path) and status.st_size < _uint(header, 28) * page_size:
        raise StoreUnreadable(str(path), "it is truncated")


def _uint(header: bytes, offset: int) -> int:
    return int.from_bytes(header[offset : offset + 4], "big")


def has_companion(path: Path) -> bool:
    """Return whether a log lies beside a file, so that others have it open, or were killed."""
    return any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal"))


# Connecting


def connect(path: Path, mode: str, busy_seconds: float) -> sqlite3.Connection:
    """Return a connection that begins and ends transactions only when told to."""
    uri = f"{path.absolute().as_uri()}?{mode}"
    db = sqlite3.connect(
        uri, uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    db.execute("PRAGMA trusted_schema = OFF")
    return db


def _connect_to_look(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect for one look. Without a log beside it nobody has the file open, and SQLite shall make no files for it."""
    if os.path.lexists(f"{path}-journal"):  # what another program left half done is undone first
        return connect(path, "mode=rw", busy_seconds)
    return connect(path, "mode=ro" if has_companion(path) else "mode=ro&immutable=1", busy_seconds)


def connect_to_use(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect for everything: every commit is on disk when it returns, and what is deleted is overwritten.

    A file that may not be written is read as it is.
    """
    db = connect(path, "mode=rw", busy_seconds)
    try:
        if not os.access(path, os.W_OK):
            db.close()
            db = connect(path, "mode=ro", busy_seconds)
            try:
                db.execute("PRAGMA user_version").fetchone()
            except sqlite3.OperationalError:  # a folder that may not be written, where SQLite cannot lock
                db.close()
                db = connect(path, "mode=ro&immutable=1", busy_seconds)
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute(f"PRAGMA cache_size = -{CACHE}")
    except BaseException:
        db.close()
        raise
    return db
