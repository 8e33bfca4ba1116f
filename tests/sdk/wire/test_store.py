from __future__ import annotations

import os
import stat
import threading
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import ConfigurationError, InvalidInput, MissingFile, StoreUnreadable
from melete.wire.audit import Action
from melete.wire.envelope import MAX_TAGS, MemoryType
from melete.wire.errors import EnvelopeError, MemoryMerged, MemoryTaken, OtherMemoryType, UnknownMemory
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState, WriteRecord
from postgres import Server

from .samples import EPISODIC, SEMANTIC, WORKING, Clock, database_of, fetch, open_store, recalled, remember, tables_of

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def unchanged(store: MemoryStore) -> Iterator[None]:
    """What a test does with the store, once this is asked for, leaves everything as it was."""
    before = tables_of(store)
    yield
    assert tables_of(store) == before


# Remembering


def test_memory_is_kept_as_given(store: MemoryStore, clock: Clock) -> None:
    metadata: dict[str, Any] = {"z": [1, 2.5, None, True], "a": {"é": "🎉"}, "empty": {}}
    memory_id = remember(
        store, "likes tea\r\n  a lot\t", agent_id="ada", tags=["b", "a", "x y"], metadata=metadata, ttl_seconds=60
    )
    kept = store.show(memory_id)
    assert (kept.content, kept.tags, kept.metadata) == ("likes tea\r\n  a lot\t", ("b", "a", "x y"), metadata)
    assert list(kept.metadata or ()) == ["z", "a", "empty"]
    assert (kept.agent_id, kept.memory_type, kept.state) == ("ada", EPISODIC, MemoryState.ACTIVE)
    assert (kept.created_at, kept.expires_at) == (clock.now, clock.now + 60)
    assert uuid.UUID(memory_id).version == 4


def test_memory_is_there_when_the_store_is_opened_again(store_url: str) -> None:
    with open_store(store_url) as store:
        memory_id = remember(store, "likes tea", SEMANTIC)
    with open_store(store_url, create=False) as store:
        assert store.show(memory_id).content == "likes tea"
        assert recalled(store, "tea", SEMANTIC) == ["likes tea"]


PLANES = [
    "".join(chr(point) for point in range(plane << 16, (plane + 1) << 16, 97) if not 0xD800 <= point < 0xE000 and point)
    for plane in range(17)
]


def test_text_of_every_unicode_plane_is_kept_and_found(store: MemoryStore) -> None:
    for plane, text in enumerate(PLANES):
        memory_id = remember(store, f"{text} plane{plane}", tags=[text[:20]], metadata={text[:20]: text})
        kept = store.show(memory_id)
        assert (kept.content, kept.tags, kept.metadata) == (f"{text} plane{plane}", (text[:20],), {text[:20]: text})
        assert recalled(store, f"plane{plane}", tags=[text[:20]]) == [kept.content]
    store.verify_audit()


@pytest.mark.parametrize("content", ["", "lone \ud800 half", "\udfff", "NUL \0 inside"])
def test_content_that_not_every_database_keeps_is_refused_by_name(
    store: MemoryStore, content: str, unchanged: None
) -> None:
    with pytest.raises(EnvelopeError) as caught:
        store.remember(EPISODIC, content)
    assert caught.value.member == "content"
    assert "half" not in str(caught.value)


@pytest.mark.parametrize(
    ("member", "options"),
    [
        ("tags", {"tags": ["a\0b"]}),
        ("tags", {"tags": ["\ud800"]}),
        ("tags", {"tags": [""]}),
        ("tags", {"tags": [str(number) for number in range(MAX_TAGS + 1)]}),
        ("agent_id", {"agent_id": "\udfff"}),
        ("agent_id", {"agent_id": ""}),
        ("metadata", {"metadata": {"a": "\0"}}),
        ("metadata", {"metadata": {"a": float("nan")}}),
        ("metadata", {"metadata": {"a": "x" * 2**16}}),
        ("writer", {"writer": "a\0"}),
        ("writer", {"writer": ""}),
        ("ttl_seconds", {"ttl_seconds": -1}),
        ("ttl_seconds", {"ttl_seconds": 2**64}),
        ("ttl_seconds", {"ttl_seconds": 1.0}),
        ("memory_type", {"memory_type": "emotional"}),
    ],
)
def test_other_members_that_cannot_be_kept_are_refused_by_name(
    store: MemoryStore, member: str, options: dict[str, Any], unchanged: None
) -> None:
    with pytest.raises(EnvelopeError) as caught:
        store.remember(**{"memory_type": EPISODIC, "content": "tea", **options})
    assert caught.value.member == member


def test_ten_megabytes_are_kept_and_found_by_their_last_word(store: MemoryStore) -> None:
    content = "".join(f"word{number % 9_973} " for number in range(1_200_000))[: 10 * 2**20] + " zanzibar"
    memory_id = remember(store, content, tags=["long"])
    assert store.show(memory_id).content == content
    for query in ("zanzibar", "word0", "word7777"):
        assert [hit.id for hit in store.recall(EPISODIC, query, tags=["long"]).hits] == [memory_id]
    store.forget(EPISODIC, [memory_id])
    assert recalled(store, "zanzibar") == []


def test_id_that_is_taken_is_refused(store_url: str) -> None:
    with open_store(store_url, new_id=lambda: UNKNOWN) as store:
        remember(store, "first")
        before = tables_of(store)
        with pytest.raises(MemoryTaken):
            store.remember(EPISODIC, "second")
        assert tables_of(store) == before


# Time to live


def test_memory_is_recalled_until_its_time_comes_and_not_in_that_second(store: MemoryStore, clock: Clock) -> None:
    memory_id = remember(store, "likes tea", ttl_seconds=60)
    remember(store, "tea is for ever")
    clock.now += 59
    assert len(recalled(store, "tea")) == store.count() == 2
    clock.now += 1
    assert recalled(store, "tea") == ["tea is for ever"]
    assert (store.count(), store.show(memory_id).state) == (1, MemoryState.EXPIRED)


def test_what_has_expired_comes_back_by_no_operation(store: MemoryStore, clock: Clock) -> None:
    memory_id, other = remember(store, "likes tea", ttl_seconds=1), remember(store, "likes milk")
    clock.now += 1
    for attempt in (
        lambda: store.expire(EPISODIC, [memory_id], ttl_seconds=100),
        lambda: store.merge(EPISODIC, [other, memory_id]),
    ):
        with pytest.raises(UnknownMemory):
            attempt()
    assert recalled(store, "tea") == []
    assert store.forget(EPISODIC, [memory_id]).ids == (memory_id,)


def test_ttl_of_zero_or_beyond_all_time_is_refused(store_url: str) -> None:
    clock = Clock(2**53 - 1)
    with open_store(store_url, clock) as store:
        with pytest.raises(InvalidInput) as caught:
            store.remember(EPISODIC, "tea", ttl_seconds=0)
        assert caught.value.field == "ttl_seconds"
        memory_id = remember(store, "tea", ttl_seconds=2**53 - 1)
        assert store.show(memory_id).expires_at == 2**54 - 2
        store.verify_audit()


@pytest.mark.parametrize("now", [-1, 2**53, 1.5, True, None])
def test_clock_that_gives_no_whole_seconds_is_refused(store_url: str, now: Any) -> None:
    with open_store(store_url, clock=lambda: now) as store, pytest.raises(InvalidInput):  # type: ignore[arg-type]
        store.remember(EPISODIC, "tea")


def test_sweep_erases_what_has_expired_and_nothing_else(store: MemoryStore, clock: Clock) -> None:
    gone = [remember(store, f"tea {number}", agent_id=f"agent {number % 3}", ttl_seconds=10) for number in range(9)]
    kept = [remember(store, "tea for later", ttl_seconds=20), remember(store, "tea for ever")]
    assert store.sweep() == 0
    clock.now += 10
    assert store.sweep() == 9
    for memory_id in gone:
        with pytest.raises(UnknownMemory):
            store.show(memory_id)
    assert [store.show(memory_id).state for memory_id in kept] == [MemoryState.ACTIVE] * 2
    assert store.sweep(clock.now + 10) == 1
    assert store.sweep(clock.now + 10) == 0
    store.verify_audit()


# Forgetting


def test_forgotten_memory_is_in_no_table(store: MemoryStore) -> None:
    memory_id = remember(store, "secretword likes tea", tags=["secrettag"], metadata={"secretname": "secretvalue"})
    kept = remember(store, "likes tea")
    assert store.forget(EPISODIC, [memory_id]).ids == (memory_id,)
    assert recalled(store, "secretword tea") == ["likes tea"]
    everything = repr({name: rows for name, rows in tables_of(store).items() if name != "audit"})
    assert "secret" not in everything
    assert memory_id not in everything
    assert kept in everything
    assert "secret" not in repr(fetch(store, "SELECT entry FROM audit"))


def test_salt_of_what_was_forgotten_is_gone_so_its_digest_tells_nothing(store_url: str) -> None:
    salts = [bytes([number]) * 32 for number in range(1, 4)]
    drawn = iter(salts)
    with open_store(store_url, new_salt=lambda: next(drawn)) as store:
        first, second = remember(store, "likes tea"), remember(store, "likes milk")
        assert [bytes(salt) for (salt,) in fetch(store, "SELECT salt FROM memories ORDER BY document")] == salts[:2]
        store.forget(EPISODIC, [first])
        assert [bytes(salt) for (salt,) in fetch(store, "SELECT salt FROM memories")] == salts[1:2]
        assert store.show(second).content == "likes milk"


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_forgotten_bytes_leave_the_file_and_its_log(sqlite_path: Path) -> None:
    with open_store(str(sqlite_path)) as store:
        ids = [
            remember(
                store, f"marker{number:03} tells it" * 20, tags=[f"tag{number:03}"], metadata={"m": f"meta{number:03}"}
            )
            for number in range(120)
        ]
        # Rows move between pages when those beside them go; copies of them must go too.
        store.forget(EPISODIC, ids[1::2])
        store.forget(EPISODIC, ids[:60:2])
        found = bytes_on_disk(sqlite_path)
        for number in range(120):
            gone = number % 2 == 1 or number < 60
            for marker in (f"marker{number:03}", f"tag{number:03}", f"meta{number:03}"):
                assert (marker.encode() in found) is not gone, marker
    assert b"marker001" not in bytes_on_disk(sqlite_path)


def test_scrubbing_can_wait_until_it_is_asked_for(sqlite_path: Path) -> None:
    with open_store(str(sqlite_path), scrub_at_once=False) as store:
        ids = [remember(store, f"marker{number:03} tells it" * 20) for number in range(40)]
        store.forget(EPISODIC, ids[::2])
        assert b"marker002" in bytes_on_disk(sqlite_path)
        assert recalled(store, "marker002") == []
        assert store.scrub()
        assert b"marker002" not in bytes_on_disk(sqlite_path)
        store.forget(EPISODIC, ids[1::2])
    with open_store(str(sqlite_path)):  # a note in the file says that something is left to do
        assert b"marker003" not in bytes_on_disk(sqlite_path)


def test_forgetting_while_others_read_says_that_bytes_are_left(sqlite_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("melete.wire.sqlite_engine._SCRUB_PATIENCE", 10)
    with open_store(str(sqlite_path)) as store, open_store(str(sqlite_path)) as other:
        memory_id = remember(store, "marker likes tea")
        with other.snapshot():
            assert recalled(other, "tea") == ["marker likes tea"]
            result = store.forget(EPISODIC, [memory_id])
            assert (result.ok, result.ids) == (True, (memory_id,))
            assert "old bytes" in result.detail
            assert recalled(other, "tea") == ["marker likes tea"]
        assert recalled(other, "tea") == []
        assert store.scrub()
        assert b"marker" not in bytes_on_disk(sqlite_path)


@pytest.mark.parametrize("operation", ["forget", "expire", "merge"])
def test_one_id_that_does_not_fit_refuses_the_whole(
    store: MemoryStore, operation: str, request: pytest.FixtureRequest
) -> None:
    mine = [remember(store, f"tea {number}", SEMANTIC) for number in range(3)]
    others = remember(store, "tea", SEMANTIC, agent_id="other")
    episodic = remember(store, "tea", EPISODIC)
    request.getfixturevalue("unchanged")
    act = getattr(store, operation)
    for bad, error in ((UNKNOWN, UnknownMemory), (others, UnknownMemory), (episodic, OtherMemoryType)):
        for ids in ([*mine, bad], [bad, *mine], [mine[0], bad, mine[1]]):
            with pytest.raises(error) as caught:
                act(SEMANTIC, ids)
            assert caught.value.id == bad
    with pytest.raises(EnvelopeError):
        act(SEMANTIC, [])
    with pytest.raises(EnvelopeError):
        act(SEMANTIC, [*mine, mine[0].upper()])


def test_error_about_another_agents_memory_does_not_tell_that_it_exists(store: MemoryStore) -> None:
    others = remember(store, "tea", agent_id="other")
    messages = []
    for memory_id in (others, UNKNOWN):
        with pytest.raises(UnknownMemory) as caught:
            store.forget(EPISODIC, [memory_id])
        messages.append(str(caught.value).replace(memory_id, "ID"))
    assert messages[0] == messages[1]


def test_ids_given_twice_count_once(store: MemoryStore) -> None:
    first, second = remember(store, "tea"), remember(store, "milk")
    assert store.expire(EPISODIC, [first, second, first], ttl_seconds=9).ids == (first, second)
    assert store.forget(EPISODIC, [second, first, second]).ids == (second, first)


# Merging


def test_merge_joins_in_the_order_given_and_unites_tags(store: MemoryStore) -> None:
    ids = [remember(store, f"{word}\n", tags=tags) for word, tags in (("a", ["x", "y"]), ("b", ["y", "z"]), ("c", []))]
    (merged,) = store.merge(EPISODIC, [ids[2], ids[0], ids[1]], tags=["more", "x"], metadata={"k": 1}).ids
    kept = store.show(merged)
    assert (kept.content, kept.tags, kept.metadata) == ("c\n\na\n\nb\n", ("x", "y", "z", "more"), {"k": 1})
    assert recalled(store, "a b c", top_k=10) == [kept.content]
    for memory_id in ids:
        source = store.show(memory_id)
        assert (source.state, source.merged_into) == (MemoryState.MERGED, merged)
    assert store.count() == 1


def test_merge_of_wide_characters_around_any_cut_works(store: MemoryStore) -> None:
    ids = [remember(store, "a" * length + "é𝔘🎉" * 30) for length in (77, 78, 79, 80)]
    (merged,) = store.merge(EPISODIC, ids).ids
    assert store.show(merged).content.count("\n") == 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_merge_of_one_memory_with_itself_is_refused(store: MemoryStore, count: int) -> None:
    memory_id = remember(store, "tea")
    before = tables_of(store)
    with pytest.raises(EnvelopeError) as caught:
        store.merge(EPISODIC, [memory_id] * count)
    assert caught.value.member == "memory_ids"
    assert tables_of(store) == before


def test_merged_memory_is_no_longer_used_alone(store: MemoryStore) -> None:
    first, second, third = (remember(store, f"tea {number}") for number in range(3))
    (merged,) = store.merge(EPISODIC, [first, second]).ids
    (final,) = store.merge(EPISODIC, [merged, third]).ids
    for attempt in (
        lambda: store.merge(EPISODIC, [first, final]),
        lambda: store.expire(EPISODIC, [first]),
        lambda: store.forget(EPISODIC, [first]),
        lambda: store.forget(EPISODIC, [second, merged]),
    ):
        with pytest.raises(MemoryMerged) as caught:
            attempt()
        assert caught.value.merged_into == final
    assert recalled(store, "tea") == ["tea 0\ntea 1\ntea 2"]


def test_forgetting_a_merged_memory_takes_its_sources_with_it(store: MemoryStore) -> None:
    first, second, third = (remember(store, f"secret {number}") for number in range(3))
    (merged,) = store.merge(EPISODIC, [first, second]).ids
    (final,) = store.merge(EPISODIC, [merged, third]).ids
    gone = store.forget(EPISODIC, [final]).ids
    assert gone[0] == final
    assert set(gone) == {first, second, third, merged, final}
    assert "secret" not in repr(tables_of(store))
    store.verify_audit()


def test_merged_memory_ends_with_the_first_of_its_sources(store: MemoryStore, clock: Clock) -> None:
    def merged(*sources: int | None, ttl_seconds: int | None = None) -> int | None:
        ids = [remember(store, "tea", ttl_seconds=ttl) for ttl in sources]
        end = store.show(store.merge(EPISODIC, ids, ttl_seconds=ttl_seconds).ids[0]).expires_at
        return None if end is None else end - clock.now

    assert merged(None, None) is None
    assert merged(None, 50, 40) == 40
    assert merged(None, 50, ttl_seconds=10) == 10
    assert merged(None, 50, ttl_seconds=60) == 50
    assert merged(None, None, ttl_seconds=60) == 60


def test_merge_that_would_be_too_large_is_refused_by_name(store: MemoryStore) -> None:
    tagged = [remember(store, "tea", tags=[f"{memory} {tag}" for tag in range(40)]) for memory in range(2)]
    large = [remember(store, "x" * (8 * 2**20)) for _ in range(2)]
    before = tables_of(store)
    for ids, member in ((tagged, "tags"), (large, "content")):
        with pytest.raises(EnvelopeError) as caught:
            store.merge(EPISODIC, ids)
        assert caught.value.member == member
    assert tables_of(store) == before


# Counting, and several writes at once


def test_count_tells_agents_and_types_apart(store: MemoryStore) -> None:
    for agent in ("a", "a", "b"):
        for kind in (EPISODIC, WORKING):
            remember(store, "tea", kind, agent_id=agent)
    assert store.count() == 6
    assert store.count(agent_id="a") == 4
    assert store.count(memory_type=WORKING) == 3
    assert store.count(agent_id="b", memory_type=WORKING) == 1
    assert store.count(agent_id="c") == 0


def test_transaction_is_kept_whole_or_not_at_all(store: MemoryStore) -> None:
    with store.transaction():
        for number in range(5):
            remember(store, f"tea {number}")
        assert store.count() == 5
    before = tables_of(store)
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
        remember(store, "coffee")
        store.forget(EPISODIC, [remember(store, "milk")])
        assert recalled(store, "coffee") == ["coffee"]
        raise ZeroDivisionError
    assert tables_of(store) == before
    store.verify_audit()


def test_operation_that_fails_inside_a_transaction_leaves_the_others(store: MemoryStore) -> None:
    with store.transaction():
        first = remember(store, "tea")
        with pytest.raises(UnknownMemory):
            store.forget(EPISODIC, [first, UNKNOWN])
        remember(store, "milk")
    assert sorted(recalled(store, "tea milk")) == ["milk", "tea"]
    store.verify_audit()


def test_snapshot_reads_one_state_and_writes_nothing(store_url: str) -> None:
    with open_store(store_url) as store, open_store(store_url) as other:
        remember(store, "tea one")
        with store.snapshot():
            assert store.count() == 1
            remember(other, "tea two")
            assert store.count() == len(recalled(store, "tea")) == 1
            with pytest.raises(ConfigurationError):
                store.remember(EPISODIC, "tea three")
        assert store.count() == 2


def test_threads_share_a_store(store: MemoryStore) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(8):
                remember(store, f"tea turn{index}", agent_id=f"agent {number}")
                assert recalled(store, f"turn{index}", agent_id=f"agent {number}") == [f"tea turn{index}"]
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert store.count() == 32
    store.verify_audit()


# Observers


def test_observer_is_told_of_every_write_in_its_transaction(store_url: str, clock: Clock) -> None:
    records: list[WriteRecord] = []

    def observe(record: WriteRecord, connection: Any) -> None:
        (number,) = connection.exec_driver_sql("SELECT max(number) FROM audit").one()
        assert number == record.entry.number
        records.append(record)

    with open_store(store_url, clock, on_write=observe) as store:
        first, second = remember(store, "tea", tags=["x"], ttl_seconds=5), remember(store, "milk")
        (merged,) = store.merge(EPISODIC, [first, second]).ids
        store.expire(EPISODIC, [merged], ttl_seconds=3)
        third = remember(store, "juice")
        store.forget(EPISODIC, [third])
        clock.now += 3
        store.sweep()
        store.recall(EPISODIC, "tea")
    told = [(record.entry.action, record.entry.memories) for record in records]
    assert told[:6] == [
        (Action.REMEMBER, (first,)),
        (Action.REMEMBER, (second,)),
        (Action.MERGE, (merged,)),
        (Action.EXPIRE, (merged,)),
        (Action.REMEMBER, (third,)),
        (Action.FORGET, (third,)),
    ]
    assert told[6][0] is Action.SWEEP
    assert set(told[6][1]) == set(records[6].erased) == {merged, first, second}
    assert records[0].written is not None
    assert (records[0].written.content, records[0].written.tags) == ("tea", ("x",))
    assert records[2].entry.sources == (first, second)
    assert records[5].erased == (third,)
    for before, after in pairwise(records):
        assert after.entry.previous == before.hash
    assert "tea" not in repr(records)


def test_write_that_an_observer_refuses_did_not_happen(store_url: str) -> None:
    class Refused(Exception):
        pass

    def observe(record: WriteRecord, connection: Any) -> None:
        if record.written is not None and "coffee" in record.written.content:
            raise Refused

    with open_store(store_url, on_write=observe) as store:
        remember(store, "tea")
        before = tables_of(store)
        with pytest.raises(Refused):
            store.remember(EPISODIC, "coffee")
        assert tables_of(store) == before


def test_same_clock_ids_and_salts_make_the_same_rows(sqlite_path: Path, postgres: Server) -> None:
    def fill(url: str) -> tuple[object, object]:
        numbers = iter(range(1, 100))
        with open_store(
            url,
            new_id=lambda: str(uuid.UUID(int=next(numbers))),
            new_salt=lambda: next(numbers).to_bytes(32, "big"),
        ) as store:
            ids = [remember(store, f"tea {number}", SEMANTIC, tags=["x"]) for number in range(5)]
            store.merge(SEMANTIC, ids[:2])
            store.forget(SEMANTIC, ids[2:3])
            store.expire(SEMANTIC, ids[3:4], ttl_seconds=5)
            rows = fetch(store, "SELECT id, number, audited, expires_at, merged_into, content FROM memories ORDER BY 1")
            return rows, store.audit_head()

    assert fill(str(sqlite_path)) == fill(postgres.new_store())


# Opening


def test_new_file_is_for_its_owner_alone(sqlite_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_store(str(sqlite_path)) as store:
            remember(store, "tea")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sqlite_path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"memories.db": 0o600, "memories.db-wal": 0o600, "memories.db-shm": 0o600}


@pytest.mark.parametrize("name", ["a b.db", "100%25.db", "what?.db", "#1.db", "\u00e9\U0001f389.db", "no-suffix"])
def test_path_is_taken_as_it_is(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(name) as store:
        remember(store, "tea")
        monkeypatch.chdir("/")
        thread = threading.Thread(target=lambda: remember(store, "tea of another thread"))
        thread.start()
        thread.join()
        assert store.count() == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_store_that_may_not_be_made_is_missing(store_url: str, sqlite_path: Path) -> None:
    with pytest.raises(MissingFile):
        open_store(store_url, create=False)
    assert list(sqlite_path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["", "mysql://u:secretpw@h/d", "sqlite://", "sqlite:///", ":memory:", "sqlite:///:memory:", "sqlite:///a.db?mode=ro",
     "a\0b", "postgresql://u:secretpw@h:port/d", "postgresql://u:secretpw@h/d?schema=A;B", "sqlite://secretpw@h/a"],
)  # fmt: skip
def test_url_of_nothing_that_keeps_a_store_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        MemoryStore.open(url)
    assert "secretpw" not in f"{caught.value} {vars(caught.value)}"


def test_closed_store_answers_nothing(store_url: str) -> None:
    store = open_store(store_url)
    store.close()
    for attempt in (lambda: store.count(), lambda: store.remember(EPISODIC, "tea"), lambda: store.scrub()):
        with pytest.raises(StoreUnreadable):
            attempt()
    store.close()


def test_repr_and_label_show_no_password(postgres: Server) -> None:
    with postgres.new_database() as name, open_store(f"{postgres.url(name)}?schema=fleet_1") as store:
        shown = repr(store)
        assert shown == f"MemoryStore('postgresql://127.0.0.1:{postgres.port}/{name}?schema=fleet_1')"
        remember(store, "tea")
    assert postgres.password not in shown


def test_schemas_of_one_database_are_stores_of_their_own(postgres: Server) -> None:
    with postgres.new_database() as name:
        url = postgres.url(name)
        with open_store(f"{url}?schema=one") as one, open_store(f"{url}?schema=two") as two:
            remember(one, "tea")
            assert (recalled(one, "tea"), recalled(two, "tea")) == (["tea"], [])


# A model beside the store

contents = st.text("abc ", min_size=1, max_size=6).filter(str.strip)
operations = st.lists(
    st.tuples(
        st.sampled_from(["remember", "forget", "merge", "expire", "sweep", "wait"]),
        contents,
        st.lists(st.integers(0, 30), min_size=2, max_size=3, unique=True),
        st.sampled_from([None, 0, 5]),
    ),
    max_size=14,
)


@given(operations)
def test_store_holds_what_a_dictionary_would(
    tmp_path_factory: Any, todo: list[tuple[str, str, list[int], Any]]
) -> None:
    clock, alive = Clock(), dict[str, tuple[str, int | None]]()
    with open_store(str(tmp_path_factory.mktemp("model") / "m.db"), clock, scrub_at_once=False) as store:
        for what, content, places, ttl in todo:
            ids = list(dict.fromkeys([*alive][place % len(alive)] for place in places)) if alive else []
            if what == "remember":
                end = clock.now + ttl if ttl else None
                alive[remember(store, content, ttl_seconds=ttl or None)] = (content, end)
            elif what == "wait":
                clock.now += 3
                alive = {key: value for key, value in alive.items() if value[1] is None or value[1] > clock.now}
            elif what == "sweep":
                store.sweep()
            elif what == "expire" and ids:
                store.expire(EPISODIC, ids, ttl_seconds=ttl)
                alive.update({key: (alive[key][0], clock.now + ttl) for key in ids} if ttl else {})
                alive = {key: value for key, value in alive.items() if ttl or key not in ids}
            elif what == "forget" and ids:
                store.forget(EPISODIC, ids)
                alive = {key: value for key, value in alive.items() if key not in ids}
            elif what == "merge" and len(ids) > 1:
                ends = [alive[key][1] for key in ids if alive[key][1] is not None]
                joined = "\n".join(alive[key][0] for key in ids)
                alive = {key: value for key, value in alive.items() if key not in ids}
                alive[store.merge(EPISODIC, ids).ids[0]] = (joined, min(ends, default=None))  # type: ignore[type-var]
        assert store.count() == len(alive)
        for key, (content, end) in alive.items():
            assert (store.show(key).content, store.show(key).expires_at) == (content, end)
        hits = {hit.id for hit in store.recall(EPISODIC, "a b c aa ab", top_k=1000).hits}
        words = {"a", "b", "c", "aa", "ab"}
        assert hits == {key for key, (content, _) in alive.items() if words & set(content.split())}
        store.verify_audit()
        assert database_of(store).label.endswith("m.db")


def test_types_are_given_by_name_too(store: MemoryStore) -> None:
    memory_id = remember(store, "tea", "semantic")  # type: ignore[arg-type]
    assert store.show(memory_id).memory_type is MemoryType.SEMANTIC
    assert store.count(memory_type="semantic") == 1  # type: ignore[arg-type]
