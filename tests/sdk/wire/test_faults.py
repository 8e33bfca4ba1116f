"""What can happen to a store: many writers, death at any point, no room, no permission, a lost server."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from melete.errors import CouldNotTell, MeleteError, StoreBusy, StoreNotWritten, StoreUnreadable
from melete.wire import sqlite_file
from melete.wire.approval import Queue
from melete.wire.envelope import MemoryType
from melete.wire.prepared import driver_connection
from melete.wire.store import MemoryStore
from postgres import Server

from .samples import EPISODIC, SEMANTIC, Clock, database_of, fetch, open_store, recalled, remember, run, tables_of

FORK = multiprocessing.get_context("fork")
PROFILE = os.environ.get("MELETE_HYPOTHESIS_PROFILE", "quick")
#: At how many points each work is killed.
POINTS = {"ci": 16, "deep": 120}.get(PROFILE, 6)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those of pytest."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def in_child(work: Callable[[], object]) -> None:
    """Do something in a process of its own, and fail if it fails."""
    child = FORK.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0


# Many writers


def test_four_processes_lose_nothing_and_break_no_chain(store_url: str) -> None:
    def write(number: int) -> None:
        with open_store(store_url) as store:
            for index in range(500):
                remember(store, f"word{index} of writer{number}", agent_id=f"agent {index % 3}")

    open_store(store_url).close()
    children = [FORK.Process(target=write, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    with open_store(store_url) as store:
        assert store.count() == 2_000
        assert store.verify_audit().number == 2_000
        for number in range(4):
            hits = [recalled(store, f"writer{number}", agent_id=f"agent {agent}", top_k=1000) for agent in range(3)]
            assert sum(map(len, hits)) == 500
            assert {content for found in hits for content in found} == {
                f"word{i} of writer{number}" for i in range(500)
            }


def test_processes_that_write_forget_and_recall_at_once_agree_in_the_end(store_url: str) -> None:
    def work(number: int) -> None:
        with open_store(store_url, approval=Queue()) as store:
            for index in range(12):
                ids = [remember(store, f"tea {number} {index}") for _ in range(3)]
                store.merge(EPISODIC, ids[:2])
                store.forget(EPISODIC, ids[2:])
                assert recalled(store, f"tea {number}")
                (waiting,) = store.remember(SEMANTIC, "tea").ids
                store.approve(waiting, f"approver {number}")

    open_store(store_url).close()
    children = [FORK.Process(target=work, args=(number,)) for number in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 3
    with open_store(store_url) as store:
        assert store.count() == 3 * 12 * 2
        store.verify_audit()


def test_processes_that_open_and_close_at_once_are_not_in_each_others_way(store_url: str) -> None:
    def work(number: int) -> None:
        for index in range(10):
            with open_store(store_url) as store:
                remember(store, f"tea {number} {index}")

    children = [FORK.Process(target=work, args=(number,)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    with open_store(store_url) as store:
        assert store.count() == 40
        store.verify_audit()


def test_store_that_was_open_before_a_fork_works_in_both_processes(store_url: str) -> None:
    with open_store(store_url) as store:
        remember(store, "tea before")

        def work() -> None:
            for number in range(5):
                remember(store, f"tea child {number}")
            assert "tea before" in recalled(store, "before")
            store.close()

        child = FORK.Process(target=work)
        child.start()
        for number in range(5):
            remember(store, f"tea parent {number}")
        child.join()
        assert child.exitcode == 0
        assert store.count() == 11
        store.verify_audit()


# Death


def die_at(point: int) -> Callable[..., int]:
    """Something that ends its process, by signal 9, when it is called for the nth time."""
    left = [point]

    def count(*_: Any) -> int:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    return count


def count_progress(url: str, counter: Callable[..., int]) -> None:
    """Have a counter called at every step of every store of this process.

    On SQLite these are the steps of its own machine, inside VACUUM too; on a server, the statements.
    """
    if url.startswith("postgresql"):
        event.listen(Engine, "before_cursor_execute", counter)
        return
    connect = sqlite_file.connect_to_use

    def connect_and_count(*arguments: Any) -> Any:
        db = connect(*arguments)
        db.set_progress_handler(counter, 40)
        return db

    sqlite_file.connect_to_use = connect_and_count  # type: ignore[assignment]


Work = Callable[[str], Iterator[Any]]


def run_and_kill(work: Work, url: str, point: int) -> list[Any]:
    """Do some work in a process that is killed after so many steps; return what it said was done."""
    receiver, sender = FORK.Pipe(duplex=False)

    def report(sender: Connection) -> None:
        count_progress(url, die_at(point))
        for done in work(url):
            sender.send(done)

    child = FORK.Process(target=report, args=(sender,))
    child.start()
    sender.close()
    reports = []
    with suppress(EOFError):
        while True:
            reports.append(receiver.recv())
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return reports


def count_steps(work: Work, url: str) -> int:
    """How many steps some work takes undisturbed."""
    receiver, sender = FORK.Pipe(duplex=False)

    def report() -> None:
        steps = [0]

        def count(*_: Any) -> int:
            steps[0] += 1
            return 0

        count_progress(url, count)
        for _ in work(url):
            pass
        sender.send(steps[0])

    in_child(report)
    total: int = receiver.recv()
    return total


def remember_one_by_one(url: str) -> Iterator[str]:
    with open_store(url) as store:
        for number in range(12):
            yield remember(store, f"tea {number}", tags=["x"])


def do_everything(url: str) -> Iterator[str]:
    clock = Clock()
    with open_store(url, clock, approval=Queue()) as store:
        ids = [remember(store, f"secret{number} tea", ttl_seconds=5 if number > 3 else None) for number in range(6)]
        yield "remembered"
        (merged,) = store.merge(EPISODIC, ids[:2]).ids
        store.expire(EPISODIC, ids[2:3], ttl_seconds=2)
        yield "merged"
        (waiting,) = store.remember(SEMANTIC, "secret queue").ids
        store.approve(waiting, "ada")
        yield "approved"
        store.forget(EPISODIC, [merged, ids[3]])
        yield "forgotten"
        clock.now += 5
        store.sweep()
        yield "swept"


works = pytest.mark.parametrize("work", [remember_one_by_one, do_everything])


@works
def test_killed_at_any_point_audit_and_rows_agree_and_nothing_that_was_said_is_lost(
    store_url: str, work: Work, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_server = store_url.startswith("postgresql")

    def new_url(name: str) -> str:
        return request.getfixturevalue("postgres").new_store() if is_server else str(tmp_path / name)

    total = count_steps(work, new_url("rehearsal.db"))
    assert total > POINTS
    for point in range(1, total, max(total // POINTS, 1)):
        url = new_url(f"killed{point}.db")
        open_store(url).close()
        reports = run_and_kill(work, url, point)
        with open_store(url, Clock(1_800_000_005), create=False) as store:
            store.verify_audit()
            contents = " ".join(str(row) for row in fetch(store, "SELECT content FROM memories"))
            if work is remember_one_by_one:
                kept = [memory_id for (memory_id,) in fetch(store, "SELECT id FROM memories ORDER BY document")]
                assert kept[: len(reports)] == reports
                assert len(kept) <= len(reports) + 1
                assert len(recalled(store, "tea", top_k=100)) == len(kept)
            elif "forgotten" in reports:
                assert not any(f"secret{number} " in contents for number in (0, 1, 3))
            remember(store, "life goes on")
            store.verify_audit()
        if not is_server and "swept" in reports:
            kept_bytes = b"".join(path.read_bytes() for path in tmp_path.glob(f"killed{point}.db*"))
            assert not any(b"secret%d " % number in kept_bytes for number in range(6))


def test_killed_before_the_file_is_scrubbed_the_next_one_does_it(sqlite_path: Path) -> None:
    def work() -> None:
        with open_store(str(sqlite_path)) as store:
            ids = [remember(store, f"marker{number:02} tells it" * 20) for number in range(20)]
            database_of(store).scrub = die_at(1)  # type: ignore[method-assign, assignment]
            store.forget(EPISODIC, ids[::2])

    child = FORK.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    with open_store(str(sqlite_path)) as store:
        assert store.count() == 10
        found = b"".join(path.read_bytes() for path in sqlite_path.parent.iterdir())
        assert b"marker01" in found
        assert b"marker02" not in found


# No room


def attempts(store: MemoryStore, ids: list[str], waiting: str) -> list[Callable[[], object]]:
    """All ways to write."""
    return [
        lambda: store.remember(EPISODIC, "coffee " * 20_000),
        lambda: store.remember(SEMANTIC, "coffee " * 20_000),
        lambda: store.merge(EPISODIC, ids),
        lambda: store.approve(waiting, "ada"),
    ]


def filled(url: str) -> tuple[list[str], str]:
    with open_store(url, approval=Queue()) as store:
        ids = [remember(store, f"tea {number} " + "filler " * 20_000) for number in range(2)]
        (waiting,) = store.remember(SEMANTIC, "filler " * 60_000).ids
        return ids, waiting


def test_full_disk_leaves_the_store_as_it_was(store_url: str) -> None:
    ids, waiting = filled(store_url)
    with open_store(store_url, approval=Queue()) as store:
        if store_url.startswith("sqlite"):
            database = database_of(store)
            with database.reading() as connection:
                db = driver_connection(connection)
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            limit = f"PRAGMA max_page_count = {pages + 2}"
            db.execute(limit)
        else:
            run(store, FULL_DISK)
            run(store, "CREATE TRIGGER full_disk AFTER INSERT ON audit EXECUTE FUNCTION full_disk()")
        before = tables_of(store)
        for attempt in attempts(store, ids, waiting):
            with pytest.raises(StoreNotWritten):
                attempt()
            assert tables_of(store) == before
        assert recalled(store, "tea", top_k=1)
        store.verify_audit()
        if store_url.startswith("sqlite"):
            db.execute("PRAGMA max_page_count = 1000000")
        else:
            run(store, "DROP TRIGGER full_disk ON audit")
        store.approve(waiting, "ada")
        store.verify_audit()


FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file, while "%%" was written', 'secret' USING ERRCODE = '53100'; END $$
"""


def test_file_that_may_not_grow_leaves_the_store_as_it_was(sqlite_path: Path) -> None:
    ids, waiting = filled(str(sqlite_path))

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open_store(str(sqlite_path), approval=Queue()) as store:
            before = tables_of(store)
            largest = max(path.stat().st_size for path in sqlite_path.parent.iterdir() if "-wal" in path.name)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 2**16, resource.RLIM_INFINITY))
            for attempt in attempts(store, ids, waiting):
                with pytest.raises(StoreNotWritten):
                    attempt()
                assert tables_of(store) == before
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            store.approve(waiting, "ada")
            store.verify_audit()

    in_child(work)


def test_new_store_without_room_leaves_no_file(sqlite_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, resource.RLIM_INFINITY))
        with pytest.raises(StoreNotWritten):
            open_store(str(sqlite_path))

    in_child(work)
    assert list(sqlite_path.parent.iterdir()) == []


def test_file_that_cannot_be_rewritten_is_scrubbed_later(sqlite_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open_store(str(sqlite_path)) as store:
            ids = [remember(store, f"marker{number} " + "filler " * 5_000) for number in range(40)]
            with database_of(store).reading() as connection:
                driver_connection(connection).execute("PRAGMA wal_autocheckpoint = 0")
            largest = max(path.stat().st_size for path in sqlite_path.parent.iterdir())
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 2**19, resource.RLIM_INFINITY))
            result = store.forget(EPISODIC, ids[:1])
            assert result.ok
            assert "old bytes" in result.detail
            store.verify_audit()
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert store.scrub()
            assert b"marker0 " not in b"".join(path.read_bytes() for path in sqlite_path.parent.iterdir())

    in_child(work)


# No permission


def become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_read_only_file_can_be_read_and_not_written(folder: Path, folder_mode: int) -> None:
    path = folder / "memories.db"
    with open_store(str(path)) as store:
        memory_id = remember(store, "likes tea")
    path.chmod(0o444)
    folder.chmod(folder_mode)
    before = path.read_bytes()

    def work() -> None:
        become_nobody()
        with open_store(str(path)) as store:
            assert recalled(store, "tea") == ["likes tea"]
            assert store.show(memory_id).content == "likes tea"
            store.verify_audit()
            for attempt in (
                lambda: store.remember(EPISODIC, "coffee"),
                lambda: store.forget(EPISODIC, [memory_id]),
                lambda: store.register_name("ada"),
                store.sweep,
            ):
                with pytest.raises(StoreNotWritten):
                    attempt()
            assert not store.scrub()

    in_child(work)
    folder.chmod(0o755)
    assert path.read_bytes() == before


def test_folder_that_may_not_be_written_gets_no_store(folder: Path) -> None:
    folder.chmod(0o555)

    def work() -> None:
        become_nobody()
        with pytest.raises(StoreNotWritten):
            open_store(str(folder / "memories.db"))
        with pytest.raises(StoreNotWritten):
            open_store(str(folder / "below" / "memories.db"))

    in_child(work)
    assert list(folder.iterdir()) == []


def test_file_that_may_not_be_read_is_told(folder: Path) -> None:
    path = folder / "memories.db"
    open_store(str(path)).close()

    def work() -> None:
        become_nobody()
        with pytest.raises(StoreUnreadable):
            open_store(str(path))

    if os.geteuid() != 0:
        path.chmod(0)
    in_child(work)


def test_read_only_database_can_be_read_and_not_written(postgres: Server) -> None:
    url = postgres.new_store()
    with open_store(url) as store:
        memory_id = remember(store, "likes tea")
        before = tables_of(store)
    with open_store(f"{url}&options=-c%20default_transaction_read_only%3Don") as store:
        assert recalled(store, "tea") == ["likes tea"]
        for attempt in (
            lambda: store.remember(EPISODIC, "coffee"),
            lambda: store.forget(EPISODIC, [memory_id]),
            lambda: store.register_name("ada"),
        ):
            with pytest.raises(StoreNotWritten):
                attempt()
        assert tables_of(store) == before


# Others in the way


def test_store_that_somebody_else_writes_for_too_long_is_busy(store_url: str) -> None:
    with open_store(store_url) as other, open_store(store_url, busy_seconds=0.1) as store:
        remember(store, "tea")
        with other.transaction():
            remember(other, "coffee")
            with pytest.raises(StoreBusy):
                store.remember(EPISODIC, "milk")
            assert recalled(store, "tea coffee milk") == ["tea"]
        remember(store, "milk")
        assert store.count() == 3
        store.verify_audit()


def test_lost_server_is_told_and_the_next_question_connects_anew(postgres: Server) -> None:
    with open_store(postgres.new_store()) as store:
        remember(store, "tea")
        (pid,) = fetch(store, "SELECT pg_backend_pid()")[0]
        with postgres.connect() as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(CouldNotTell) as caught:
            store.remember(EPISODIC, "coffee")
        assert "lost" in str(caught.value) or "says" in str(caught.value)
        remember(store, "milk")
        assert sorted(recalled(store, "tea coffee milk")) == ["milk", "tea"]
        store.verify_audit()


def test_server_lost_inside_a_transaction_undoes_it(postgres: Server) -> None:
    with open_store(postgres.new_store()) as store:
        remember(store, "tea")
        with pytest.raises(CouldNotTell), store.transaction():  # noqa: PT012
            remember(store, "coffee")
            (pid,) = fetch(store, "SELECT pg_backend_pid()")[0]
            with postgres.connect() as connection:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            remember(store, "milk")
        assert recalled(store, "tea coffee milk") == ["tea"]
        store.verify_audit()


def test_damaged_file_is_told_and_nothing_else_is_raised(sqlite_path: Path) -> None:
    with open_store(str(sqlite_path)) as store:
        ids = [remember(store, f"tea {number} " + "filler " * 300) for number in range(60)]
    data = bytearray(sqlite_path.read_bytes())
    for start in range(4096 * 3, len(data), 4096 * 2):
        data[start : start + 512] = os.urandom(512)
    sqlite_path.write_bytes(data)
    asked = 0
    try:
        with open_store(str(sqlite_path)) as store:
            for attempt in (
                lambda: recalled(store, "tea"),
                lambda: [store.show(memory_id) for memory_id in ids],
                lambda: store.remember(EPISODIC, "coffee"),
                lambda: store.forget(EPISODIC, ids),
                store.verify_audit,
            ):
                try:
                    attempt()
                except MeleteError:
                    asked += 1
    except StoreUnreadable:
        asked += 1
    assert asked


def test_error_of_a_server_never_shows_what_was_written(postgres: Server) -> None:
    with open_store(postgres.new_store()) as store:
        run(store, "ALTER TABLE memories ADD CONSTRAINT short CHECK (length(content) < 20)")
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
            store.remember(MemoryType.WORKING, "a secret that is too long for this table")
        shown = f"{caught.value} {caught.value.__cause__} {vars(caught.value)}"
        assert "secret" not in shown
