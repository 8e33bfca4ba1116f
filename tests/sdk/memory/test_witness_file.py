from __future__ import annotations

import multiprocessing
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import (
    CouldNotTell,
    InvalidInput,
    MeleteError,
    MissingFile,
    NotAuthentic,
    NotScrubbed,
    StoreNotWritten,
    StoreUnreadable,
)
from melete.memory import witness_file
from melete.memory.witness_store import WitnessStore

from .witness_samples import (
    KEY,
    OTHER_KEY,
    OTHER_SPACE,
    files_of,
    fill,
    make_witness,
    mode_of,
    place,
    rewrite,
    sealed_of,
)

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "witnesses.db"


@pytest.fixture
def store(path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(path, KEY) as store:
        yield store


# Files


def test_file_and_its_companions_are_their_owners_alone(path: Path, store: WitnessStore, tmp_path: Path) -> None:
    fill(store, 3)
    store.backup(tmp_path / "backup.db")
    assert {file.name for file in tmp_path.iterdir()} == {
        "witnesses.db", "witnesses.db-wal", "witnesses.db-shm", "backup.db",
    }  # fmt: skip
    assert {mode_of(file) for file in tmp_path.iterdir()} == {0o600}


def test_nothing_is_written_over(path: Path, store: WitnessStore, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    for taken in (path, tmp_path / "notes.txt"):
        with pytest.raises(InvalidInput):
            WitnessStore.create(taken, KEY)
        with pytest.raises(InvalidInput):
            store.backup(taken)
    assert (tmp_path / "notes.txt").read_text("utf-8") == "mine"


def test_missing_store_is_not_made_by_opening(path: Path) -> None:
    with pytest.raises(MissingFile):
        WitnessStore.open(path, KEY)
    assert not path.exists()


def make_truncated(path: Path, length: Callable[[int], int]) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 200)
    content = path.read_bytes()
    path.write_bytes(content[: length(len(content))])


def make_foreign(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in (*statements, "CREATE TABLE diary (day TEXT)"):
        db.execute(statement)
    db.commit()
    db.close()


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"S"),
    "text": lambda path: path.write_bytes(b"dear diary\n" * 500),
    "header only": lambda path: make_truncated(path, lambda _: 100),
    "half a header": lambda path: make_truncated(path, lambda _: 50),
    "one page": lambda path: make_truncated(path, lambda _: 16384),
    "half": lambda path: make_truncated(path, lambda length: length // 2),
    "all but a byte": lambda path: make_truncated(path, lambda length: length - 1),
    "foreign": make_foreign,
    "foreign with our mark": lambda path: make_foreign(
        path, f"PRAGMA application_id = {0x4D4C5457}", "PRAGMA user_version = 1"
    ),
    "foreign in WAL mode": lambda path: make_foreign(path, "PRAGMA journal_mode = WAL"),
    "newer": lambda path: make_changed(path, "PRAGMA user_version = 2"),
    "further table": lambda path: make_changed(path, "CREATE TABLE diary (day TEXT)"),
    "trigger": lambda path: make_changed(
        path, "CREATE TRIGGER spy AFTER INSERT ON witnesses BEGIN DELETE FROM witnesses; END"
    ),
    "no key": lambda path: make_changed(path, "DELETE FROM store"),
    "null key": lambda path: make_changed(path, "UPDATE store SET scrypt_n = 1, scrypt_r = 1, scrypt_p = 1"),
    "greedy passphrase": lambda path: make_changed(
        path, "UPDATE store SET scrypt_n = 1099511627776, scrypt_r = 8, scrypt_p = 1"
    ),
    "a folder": lambda path: path.mkdir(),
}  # fmt: skip


def make_changed(path: Path, statement: str) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 1)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(statement)
    db.close()


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_file_that_is_no_store_is_named_and_not_touched(path: Path, make: Callable[[Path], object]) -> None:
    make(path)
    before = {} if path.is_dir() else files_of(path)
    for read_only in (False, True):
        with pytest.raises(StoreUnreadable) as caught:
            WitnessStore.open(path, KEY, read_only=read_only)
        assert isinstance(caught.value, CouldNotTell)
        assert path.name in str(caught.value)
    assert path.is_dir() or files_of(path) == before


@given(st.integers(0, 10**6), st.integers(1, 255), st.integers(1, 64))
def test_damage_anywhere_gives_an_error_of_ours_or_the_right_records(
    tmp_path_factory: pytest.TempPathFactory, at: int, change: int, length: int
) -> None:
    path = tmp_path_factory.mktemp("damage") / "witnesses.db"
    with WitnessStore.create(path, KEY) as store:
        right = {place(number): witness for number, witness in enumerate(fill(store, 30), start=1)}
    content = bytearray(path.read_bytes())
    for offset in range(at % len(content), min(at % len(content) + length, len(content))):
        content[offset] ^= change
    path.write_bytes(content)
    try:
        with WitnessStore.open(path, KEY) as store:
            for entry in store.iterate():
                assert entry.record is None or right[entry.place] == entry.record
    except MeleteError:
        pass


def test_older_version_is_migrated_in_one_transaction_when_opened_for_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
    monkeypatch.setattr(witness_file, "VERSION", 3)
    monkeypatch.setattr(witness_file, "SCHEMA", (*witness_file.SCHEMA, "CREATE TABLE b (x)", "CREATE TABLE c (x)"))
    fails = {1: lambda db: db.execute("CREATE TABLE b (x)"), 2: lambda db: db.execute("NONSENSE")}
    monkeypatch.setattr(witness_file, "MIGRATIONS", fails)
    with pytest.raises(StoreUnreadable):
        WitnessStore.open(path, KEY)
    monkeypatch.setattr(witness_file, "MIGRATIONS", {**fails, 2: lambda db: db.execute("CREATE TABLE c (x)")})
    for _ in range(2):
        with WitnessStore.open(path, KEY) as store:
            assert len(list(store.iterate())) == 3


def test_rows_that_changed_places_do_not_decrypt(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
        first, second = sealed_of(store, place(1)), sealed_of(store, place(2))
    for number, sealed in ((1, second), (2, first)):
        rewrite(path, "UPDATE witnesses SET sealed = ? WHERE number = ?", sealed, number.to_bytes(8, "big"))
    with WitnessStore.open(path, KEY) as store:
        for number in (1, 2):
            with pytest.raises(NotAuthentic, match=f"delta {number} of"):
                store.get(place(number))
        assert store.get(place(3)) == make_witness(3)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE witnesses SET number = x'0000000000000009'",
        "UPDATE witnesses SET scope = zeroblob(32)",
        "UPDATE witnesses SET kind = 'operation'",
        "UPDATE witnesses SET commitment = zeroblob(32)",
        "UPDATE witnesses SET sealed = zeroblob(5)",
        "UPDATE witnesses SET sealed = x''",
        "UPDATE witnesses SET sealed = CAST(sealed || x'00' AS BLOB)",
        "UPDATE witnesses SET sealed = 'text'",
        "UPDATE witnesses SET sealed = 7",
    ],
)
def test_row_whose_readable_part_or_ciphertext_was_changed_does_not_decrypt(path: Path, change: str) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 1)
    rewrite(path, change)
    with WitnessStore.open(path, KEY) as store, pytest.raises(NotAuthentic):
        list(store.iterate())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE witnesses SET kind = 'rumour'",
        "UPDATE witnesses SET sealed = NULL, commitment = printf('%032d', 1)",
        "UPDATE witnesses SET sealed = NULL, number = '00000001'",
        "UPDATE witnesses SET sealed = CAST(x'ff' AS TEXT)",
    ],
)
def test_row_that_was_never_written_here_is_said_to_be_beyond_this_program(path: Path, change: str) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 1)
    rewrite(path, change)
    with WitnessStore.open(path, KEY) as store, pytest.raises(StoreUnreadable, match="program"):
        list(store.iterate())


# Reading only, no room


def test_store_opened_for_reading_reads_and_refuses_to_write(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
    before = path.read_bytes()
    with WitnessStore.open(path, KEY, read_only=True) as store:
        assert len(list(store.iterate())) == 3
        for use in (lambda: store.put(place(4), make_witness(4)), lambda: store.erase(place(1))):
            with pytest.raises(StoreNotWritten):
                use()
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_file_that_may_not_be_written_is_read_and_says_so_when_written(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 3)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with WitnessStore.open(path, KEY, read_only=True) as store:
            assert len(list(store.iterate())) == 3
        with pytest.raises(StoreNotWritten), WitnessStore.open(path, KEY) as store:
            store.put(place(4), make_witness(4))
    finally:
        path.parent.chmod(0o700)


def in_child(work: Callable[[], None]) -> None:
    """Run something in a process of its own, which must end well."""
    child = FORK.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0


def test_full_disk_refuses_what_does_not_fit_and_keeps_what_was_there(path: Path, tmp_path: Path) -> None:
    WitnessStore.create(path, KEY).close()

    def fill_the_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        with WitnessStore.open(path, KEY) as store:
            kept = 0
            with suppress(StoreNotWritten):
                while store.put(place(kept + 1), make_witness(kept + 1, bytes(5_000))):
                    kept += 1
            assert 3 < kept < 100
            with pytest.raises(StoreNotWritten):
                fill(store, 5_000, OTHER_SPACE)
            with pytest.raises(NotScrubbed):  # the rows fit into the log, the rewritten file does not
                store.change_key(OTHER_KEY)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
            with pytest.raises(StoreNotWritten):
                store.backup(tmp_path / "backup.db")
            assert [entry.number for entry in store.iterate()] == list(range(1, kept + 1))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert store.put(place(kept + 1), make_witness(kept + 1))

    in_child(fill_the_disk)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with WitnessStore.open(path, OTHER_KEY) as store:
        numbers = [entry.number for entry in store.iterate()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_transaction_that_met_a_full_disk_keeps_nothing_even_if_the_error_was_caught(path: Path) -> None:
    WitnessStore.create(path, KEY).close()

    def put_and_go_on(store: WitnessStore) -> None:
        with store.transaction():
            with suppress(StoreNotWritten):
                fill_with(store, 20, bytes(500_000))  # more than SQLite keeps in memory
            fill(store, 1, OTHER_SPACE)

    def fill_the_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        with WitnessStore.open(path, KEY) as store:
            with pytest.raises(StoreNotWritten):
                put_and_go_on(store)
            assert list(store.iterate()) == []
            assert fill(store, 1)

    in_child(fill_the_disk)


def fill_with(store: WitnessStore, count: int, payload: bytes) -> None:
    for number in range(1, count + 1):
        store.put(place(number), make_witness(number, payload))


def test_full_disk_makes_no_store_at_all(path: Path, tmp_path: Path) -> None:
    def create() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        with pytest.raises(StoreNotWritten):
            WitnessStore.create(path, KEY)

    in_child(create)
    assert list(tmp_path.iterdir()) == []


# Backups


def test_backup_holds_one_moment_while_others_write_and_is_a_store(path: Path, store: WitnessStore) -> None:
    witnesses = fill(store, 50)
    store.erase(place(9))
    target = path.parent / "kept" / "backup.db"
    store.backup(target)
    fill(store, 50, first=51)
    with WitnessStore.open(target, KEY, read_only=True) as backup:
        assert [entry.record for entry in backup.iterate()] == [
            None if number == 9 else witness for number, witness in enumerate(witnesses, start=1)
        ]
    with WitnessStore.open(target, KEY) as backup:
        assert backup.put(place(51), make_witness(52))


def test_backup_of_a_store_opened_for_reading_is_the_same(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 5)
    with WitnessStore.open(path, KEY, read_only=True) as store:
        store.backup(path.parent / "backup.db")
    with WitnessStore.open(path.parent / "backup.db", KEY) as backup:
        assert len(list(backup.iterate())) == 5


def test_damaged_store_gives_no_backup(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, 300)
        content = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(3 * 16384)
        file.write(b"\xff" * 16384)
    assert path.stat().st_size >= content
    with WitnessStore.open(path, KEY) as store, pytest.raises(StoreUnreadable):
        store.backup(path.parent / "backup.db")
    assert not (path.parent / "backup.db").exists()
