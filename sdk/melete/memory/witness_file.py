"""The file of a witness store: its tables, how it is looked at before SQLite may touch it, how a new one appears.

What is foreign, truncated or newer is told by a look, and stays as it was, to the byte. A new file appears whole or not
at all, for its owner alone (mode 0600; SQLite gives its companions `-wal` and `-shm` the same).
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from melete.errors import InvalidInput, MissingFile, StoreNotWritten, StoreUnreadable
from melete.memory.witness_keys import KeyRecord, ScryptCost
from melete.sqlite_errors import translate

#: "MLTW": how `file` and we tell such a database from others.
APPLICATION_ID: Final = 0x4D4C5457
VERSION = 1
#: From each version to the next; run in one transaction when an older file is opened for writing.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}
#: A number is 8 bytes, big-endian, because SQLite's integers end at 2^63 - 1. `sealed` is null once erased.
SCHEMA: Final = (
    "CREATE TABLE store (id INTEGER PRIMARY KEY CHECK (id = 1), salt BLOB NOT NULL, key_check BLOB NOT NULL,"
    " scrypt_n INTEGER, scrypt_r INTEGER, scrypt_p INTEGER, unscrubbed INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE witnesses (kind TEXT NOT NULL, scope BLOB NOT NULL,"
    " number BLOB NOT NULL CHECK (length(number) = 8), commitment BLOB NOT NULL CHECK (length(commitment) = 32),"
    " sealed BLOB, PRIMARY KEY (kind, scope, number))",
    "CREATE INDEX witnesses_by_commitment ON witnesses (commitment)",
)
#: Most witnesses fit one page; this is what makes reading them fast.
PAGE_SIZE: Final = 16384
#: So many bytes of the file are read in place instead of copied, which makes reading large witnesses twice as fast.
MAPPED: Final = 2**28


def create(path: Path, record: KeyRecord) -> None:
    """Make an empty store. Errors: `InvalidInput` for a file that exists; `StoreNotWritten`."""
    try:
        with new_file(path) as draft, closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute("BEGIN")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            for statement in SCHEMA:
                db.execute(statement)
            db.execute("INSERT INTO store (id, salt, key_check) VALUES (1, x'', x'')")
            write_key_record(db, record)
            db.execute("COMMIT")
            # From the start, so that opening never changes it: half of that could not be looked at.
            db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.Error as error:
        raise translate(error, str(path)) from None


def write_key_record(db: sqlite3.Connection, record: KeyRecord) -> None:
    """Write what recognizes the key, inside a transaction."""
    cost = record.cost
    values = (record.salt, record.check, *((cost.n, cost.r, cost.p) if cost else (None, None, None)))
    db.execute("UPDATE store SET salt = ?, key_check = ?, scrypt_n = ?, scrypt_r = ?, scrypt_p = ?", values)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a draft beside `path`, mode 0600, which becomes `path` when all went well, and is removed when not.

    Errors: `InvalidInput` for a file that exists by then; `StoreNotWritten`.
    """
    if os.path.lexists(path):
        raise _exists(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
    draft = Path(name)
    try:
        yield draft
        _sync(draft)
        _publish(draft, path)
        _sync(path.parent)
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(name + suffix).unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    """Give a finished file its name, unless the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without links: the name is reserved, then replaced
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise _exists(path) from None
        draft.replace(path)


def _exists(path: Path) -> InvalidInput:
    return InvalidInput("file", str(path), "one that does not exist yet; nothing is written over")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Looking


def check_header(path: Path) -> None:
    """Judge a file by its first 100 bytes and its size, without SQLite.

    Errors: `MissingFile`; `StoreUnreadable`. Source: SQLite, Database File Format, The Database Header.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnreadable(str(path), "it is no file")
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise MissingFile(str(path), "there is no witness store; create one, or restore a backup") from None
    except OSError as error:
        raise StoreUnreadable(str(path), error.strerror or "it cannot be read") from None
    if header[:16] != b"SQLite format 3\x00"[: len(header)] or not header:
        raise StoreUnreadable(str(path), "it is no SQLite database" if header else "it is empty")
    if len(header) < 100:
        raise StoreUnreadable(str(path), "it is truncated")
    if _uint(header, 68) != APPLICATION_ID:
        raise StoreUnreadable(str(path), "it is a database of another program")
    if _uint(header, 60) > VERSION:
        raise StoreUnreadable(str(path), f"it is of version {_uint(header, 60)}, and this program knows {VERSION}")
    page_size = {1: 65536}.get(int.from_bytes(header[16:18], "big"), int.from_bytes(header[16:18], "big"))
    # While there is a log, the size of the file may lag behind; SQLite sorts that out.
    if not _has_companion(path) and status.st_size < _uint(header, 28) * page_size:
        raise StoreUnreadable(str(path), "it is truncated")


def connect_to_look(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect for one look. Without a log beside it nobody has the file open, and SQLite shall make no files for it."""
    if os.path.lexists(f"{path}-journal"):  # what another program left half done is undone first
        return connect(path, "mode=rw", busy_seconds)
    return connect(path, "mode=ro" if _has_companion(path) else "mode=ro&immutable=1", busy_seconds)


def connect(path: Path, mode: str, busy_seconds: float) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    db = sqlite3.connect(uri, uri=True, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute(f"PRAGMA mmap_size = {MAPPED}")
    return db


def _has_companion(path: Path) -> bool:
    return any(os.path.lexists(f"{path}{suffix}") for suffix in ("-wal", "-journal"))


def read_key_record(db: sqlite3.Connection, path: Path) -> KeyRecord:
    """Return what recognizes the key, once the tables are found to be ours. Errors: `StoreUnreadable`."""
    version = version_of(db)
    if version > VERSION:
        raise StoreUnreadable(str(path), f"it is of version {version}, and this program knows {VERSION}")
    tables = [row[0] for row in db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")]
    if version == VERSION and sorted(tables) != sorted(SCHEMA):
        raise StoreUnreadable(str(path), "its tables are not those of a witness store")
    row = db.execute("SELECT salt, key_check, scrypt_n, scrypt_r, scrypt_p FROM store").fetchone()
    try:
        salt, check, *cost = row
        return KeyRecord(bytes(salt), bytes(check), None if cost == [None] * 3 else ScryptCost(*cost))
    except (TypeError, InvalidInput):
        raise StoreUnreadable(str(path), "what recognizes its key is damaged") from None


def version_of(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _uint(header: bytes, offset: int) -> int:
    return int.from_bytes(header[offset : offset + 4], "big")
