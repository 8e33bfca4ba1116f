from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from melete.errors import BrokenHistory, InvalidInput
from melete.memory.history import Transition
from melete.memory.witness_kinds import DELTA, OPERATION
from melete.wire.approval import Queue
from melete.wire.audit import Action
from melete.wire.recording.batches import open_delta
from melete.wire.recording.errors import BrokenRecording, NotOpened, RecordedElsewhere
from melete.wire.recording.rebuild import ERASED, EXPIRED, FORGOTTEN, UNOPENED, Rebuilt, rebuild
from melete.wire.recording.recorder import Flushed
from melete.wire.store import MemoryStore
from melete.wire.values import MemoryState

from .recording_samples import (
    SPACE,
    Desk,
    never_waiting_for_the_disk,  # noqa: F401 - used by every test
    open_desk,
)
from .samples import EPISODIC, PROCEDURAL, SEMANTIC, fetch, open_store, recalled, remember, run, tables_of

#: All that a rebuilt store has in common with the one that it comes from, whatever the database.
COLUMNS = {
    "memories": "document, id, scope, number, audited, created_at, expires_at, merged_into, words, salt, tags,"
    " metadata, content",
    "audit": "number, entry, hash",
    "pending": "number, id, operation, scope, writer, created_at, expires_at, sources, salt, tags, metadata, content,"
    " decision, decided, decided_by",
    "scopes": "id, agent, type, since, documents, words",
    "names": "folded, name, since",
    "recordings": "first, last, chain, registry, space, root, commitment",
    "recorded": "number, id, place, ended",
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


@pytest.fixture
def new(tmp_path: Path, desk: Desk) -> Iterator[MemoryStore]:
    """An empty store."""
    with open_store(str(tmp_path / "new.db"), desk.clock) as store:
        yield store


def rebuilt(desk: Desk, store: MemoryStore, at: int | None = None) -> Rebuilt:
    found = rebuild(store, desk.witnesses, desk.registry.domain, SPACE, desk.registry.history, at=at)
    store.verify_audit(found.head)
    return found


def rows_of(store: MemoryStore) -> dict[str, list[Any]]:
    return {name: sorted(fetch(store, f"SELECT {columns} FROM {name}"), key=repr) for name, columns in COLUMNS.items()}  # noqa: S608


def work(store: MemoryStore) -> None:
    """A bit of everything."""
    tea = remember(store, "likes tea é 🎉", tags=["b", "a"], metadata={"z": 2.5, "a": [1, None]}, agent_id="ada")
    remember(store, "walks home", PROCEDURAL, ttl_seconds=1_000)
    first, second = (remember(store, f"drinks {number}", SEMANTIC, tags=[f"t{number}"]) for number in range(2))
    store.merge(SEMANTIC, [first, second], tags=["both"], metadata={"merged": True})
    store.expire(EPISODIC, [tea], agent_id="ada", ttl_seconds=500)
    gone = remember(store, "forget me")
    store.forget(EPISODIC, [gone])


# The rows of the original


@pytest.mark.parametrize("target", ["sqlite", "same"])
def test_rebuilt_store_has_the_rows_of_the_original(
    tmp_path: Path, store_url: str, target: str, request: pytest.FixtureRequest
) -> None:
    with open_desk(tmp_path, store_url) as desk:
        work(desk.store)
        desk.record()
        url = str(tmp_path / "new.db")
        if target == "same" and store_url.startswith("postgresql"):
            url = f"{store_url}_new"
        with open_store(url, desk.clock) as new:
            found = rebuilt(desk, new)
            assert rows_of(new) == rows_of(desk.store)
            assert found.head == desk.store.audit_head() == new.audit_head()
            assert (found.sequence, found.batches, found.memories) == (2, 2, 3)
            assert (found.forgotten, found.unopened, found.unread, found.waiting) == ((), (), (), ())
            assert found.is_whole


def test_rebuilt_store_recalls_what_the_original_does(desk: Desk, new: MemoryStore) -> None:
    work(desk.store)
    desk.record()
    rebuilt(desk, new)
    for query, kind, options in (
        ("tea", EPISODIC, {"agent_id": "ada", "tags": ["a"]}),
        ("drinks", SEMANTIC, {}),
        ("home", PROCEDURAL, {}),
        ("forget", EPISODIC, {}),
    ):
        assert recalled(new, query, kind, **options) == recalled(desk.store, query, kind, **options)
    assert recalled(new, "drinks", SEMANTIC) == ["drinks 0\ndrinks 1"]


def test_text_index_and_all_tables_are_the_originals(desk: Desk, new: MemoryStore) -> None:
    for number in range(5):
        remember(desk.store, f"tea {number}", tags=["x"])
    desk.record()
    rebuilt(desk, new)
    assert tables_of(new) == tables_of(desk.store)


def test_rebuilt_store_goes_on_being_recorded_where_the_original_was(desk: Desk, new: MemoryStore) -> None:
    work(desk.store)
    desk.record()
    rebuilt(desk, new)
    desk.store = new
    assert desk.recorder.flush() == Flushed()
    remember(new, "goes on")
    desk.record()
    assert len(desk.registry.history) == 3
    with open_store(str(desk.folder / "third.db"), desk.clock) as third:
        rebuilt(desk, third)
        assert rows_of(third) == rows_of(new)


@pytest.mark.parametrize("at", range(4))
def test_store_is_rebuilt_as_it_was_at_a_sequence(desk: Desk, new: MemoryStore, at: int) -> None:
    states = [rows_of(desk.store)]
    for number in range(3):
        remember(desk.store, f"tea {number}")
        desk.record()
        states.append(rows_of(desk.store))
    found = rebuilt(desk, new, at)
    assert rows_of(new) == states[at]
    assert (found.sequence, found.space.sequence, found.batches) == (at, 3, at)


@pytest.mark.parametrize("at", [-1, 2, True, "1"])
def test_sequence_that_is_none_of_the_space_is_refused(desk: Desk, new: MemoryStore, at: Any) -> None:
    remember(desk.store, "tea")
    desk.record()
    with pytest.raises(InvalidInput) as caught:
        rebuilt(desk, new, at)
    assert caught.value.field == "at"


def test_embedder_makes_vectors_anew(desk: Desk, tmp_path: Path) -> None:
    class Lengths:
        dimensions = 2

        def embed(self, texts: Sequence[str]) -> list[list[float]]:
            return [[float(len(text)), 1.0] for text in texts]

    remember(desk.store, "tea")
    desk.record()
    with open_store(str(tmp_path / "new.db"), desk.clock, embedder=Lengths()) as new:
        rebuilt(desk, new)
        assert len(fetch(new, "SELECT * FROM memory_vectors")) == 1


# What was forgotten since


def test_what_was_forgotten_since_is_named_and_does_not_come_back(desk: Desk, new: MemoryStore) -> None:
    kept, gone, ended = (remember(desk.store, f"tea {name}") for name in ("kept", "gone", "ended"))
    desk.record()
    recorded = desk.store.audit_head()
    desk.store.forget(EPISODIC, [gone])
    desk.store.expire(EPISODIC, [ended])
    desk.store.sweep()
    desk.record()
    found = rebuilt(desk, new, at=1)
    assert {one.id: one.why for one in found.forgotten} == {gone: FORGOTTEN, ended: EXPIRED}
    assert found.head == recorded
    assert recalled(new, "tea") == ["tea kept"]
    assert new.audit_head().number == recorded.number + 1
    assert new.show(kept).state is MemoryState.ACTIVE


def test_what_was_forgotten_does_not_come_back_from_witnesses_of_before(desk: Desk, new: MemoryStore) -> None:
    """Somebody put a backup of the witness store back, in which nothing was erased."""
    gone = remember(desk.store, "likes coffee")
    remember(desk.store, "likes tea")
    desk.record()
    desk.witnesses.backup(desk.folder / "witnesses backup.db")
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    from melete.memory.witness_store import WitnessStore

    from .recording_samples import KEY

    with WitnessStore.open(desk.folder / "witnesses backup.db", KEY) as older:
        for entry in desk.witnesses.iterate():
            if entry.record is not None:
                older.put(entry.place, entry.record)
        desk.witnesses = older
        found = rebuilt(desk, new, at=1)
        assert [one.id for one in found.forgotten] == [gone]
        assert recalled(new, "coffee") == []
        with open_store(str(desk.folder / "third.db"), desk.clock) as third:
            assert rebuilt(desk, third).forgotten == ()
            assert recalled(third, "coffee") == []
            third.close()
            assert b"coffee" not in (desk.folder / "third.db").read_bytes()


def test_what_was_forgotten_and_not_recorded_yet_is_named_as_erased(desk: Desk, new: MemoryStore) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    desk.recorder.erase_forgotten()
    found = rebuilt(desk, new)
    assert {one.id: one.why for one in found.forgotten} == {gone: ERASED}
    assert found.is_whole


def test_merged_memory_that_was_forgotten_since_takes_its_sources_along(desk: Desk, new: MemoryStore) -> None:
    ids = [remember(desk.store, f"coffee {number}") for number in range(2)]
    desk.record()
    (merged,) = desk.store.merge(EPISODIC, ids).ids
    desk.record()
    desk.store.forget(EPISODIC, [merged])
    desk.record()
    found = rebuilt(desk, new, at=2)
    assert {one.id for one in found.forgotten} == {merged, *ids}
    assert fetch(new, "SELECT id FROM memories") == []


def test_sources_of_a_merge_that_was_forgotten_are_named_even_if_they_open(desk: Desk, new: MemoryStore) -> None:
    """The merged memory's witness was erased, by hand; those of its sources are there."""
    ids = [remember(desk.store, f"coffee {number}") for number in range(2)]
    (merged,) = desk.store.merge(EPISODIC, ids).ids
    other = remember(desk.store, "tea")
    desk.record()
    erase_content(desk, 3)
    found = rebuilt(desk, new)
    assert {one.id: one.why for one in found.forgotten} == {merged: ERASED, ids[0]: ERASED, ids[1]: ERASED}
    assert fetch(new, "SELECT id FROM memories") == [(other,)]


def test_store_rebuilt_at_an_earlier_sequence_is_not_recorded_after_the_later_ones(
    desk: Desk, new: MemoryStore
) -> None:
    for number in range(2):
        remember(desk.store, f"tea {number}")
        desk.record()
    rebuilt(desk, new, at=1)
    remember(new, "another history")
    desk.store = new
    with pytest.raises(RecordedElsewhere):
        desk.recorder.flush()


# Approval


def test_decided_writes_come_back_as_they_were_decided(tmp_path: Path) -> None:
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=Queue()) as desk:
        approved, rejected, forgotten, swept = (
            remember(desk.store, f"tea {number}", SEMANTIC, writer="ada", ttl_seconds=ttl)
            for number, ttl in enumerate((None, None, None, 10))
        )
        desk.store.approve(approved, " Eve ")
        desk.store.reject(rejected, "eve")
        desk.store.forget(SEMANTIC, [forgotten])
        desk.clock.now += 10
        desk.store.sweep()
        merge_of = [approved, remember(desk.store, "milk", SEMANTIC, writer="ada")]
        desk.store.approve(merge_of[1], "bob")
        (merged,) = desk.store.merge(SEMANTIC, merge_of, writer="ada").ids
        desk.store.approve(merged, "eve")
        desk.record()
        with open_store(str(tmp_path / "new.db"), desk.clock) as new:
            found = rebuilt(desk, new)
            assert rows_of(new) == rows_of(desk.store)
            assert found.waiting == ()
            assert swept not in {row[0] for row in fetch(new, "SELECT id FROM memories")}


def test_write_that_waits_is_named_and_given_up(tmp_path: Path) -> None:
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=Queue()) as desk:
        waiting = remember(desk.store, "secret", SEMANTIC, writer="ada")
        remember(desk.store, "tea")
        desk.record()
        with open_store(str(tmp_path / "new.db"), desk.clock) as new:
            found = rebuilt(desk, new)
            assert found.waiting == (waiting,)
            assert found.is_whole
            assert fetch(new, "SELECT decision, content FROM pending") == [("forgotten", None)]
            assert new.pending() == ()


# What cannot be opened


def place_of(desk: Desk, number: int) -> Any:
    """The place of the operation that records what an audit row of the first batch wrote."""
    opened = open_delta(desk.witnesses, desk.registry.history[0].delta)
    assert opened is not None
    index = opened.head.content_index(number)
    assert index is not None
    return OPERATION.place(opened.batch.root, index)


def erase_content(desk: Desk, number: int) -> None:
    desk.witnesses.erase(place_of(desk, number))


def alter(desk: Desk, place: Any) -> None:
    """Change a byte of a sealed row, behind the store's back."""
    database = desk.witnesses._database
    (row,) = database.fetch("SELECT sealed FROM witnesses WHERE kind = ? AND scope = ? AND number = ?",
                            (place.kind, place.scope, place.number.to_bytes(8, "big")))  # fmt: skip
    sealed = row[0][:-1] + bytes([row[0][-1] ^ 1])
    database.run("UPDATE witnesses SET sealed = ? WHERE kind = ? AND scope = ? AND number = ?",
                 (sealed, place.kind, place.scope, place.number.to_bytes(8, "big")))  # fmt: skip


def test_content_that_cannot_be_opened_is_named(desk: Desk, new: MemoryStore) -> None:
    tea, coffee = remember(desk.store, "likes tea"), remember(desk.store, "likes coffee")
    desk.record()
    alter(desk, place_of(desk, 2))
    found = rebuilt(desk, new)
    assert [(one.id, one.why) for one in found.unopened] == [(coffee, UNOPENED)]
    assert found.forgotten == ()
    assert not found.is_whole
    assert fetch(new, "SELECT id FROM memories") == [(tea,)]


def assert_empty(store: MemoryStore) -> None:
    assert store.audit_head().number == 0
    assert not any(rows_of(store).values())


@pytest.mark.parametrize("harm", ["delta missing", "delta erased", "delta altered", "row missing", "row altered"])
def test_batch_that_cannot_be_opened_makes_no_store(desk: Desk, new: MemoryStore, harm: str) -> None:
    for number in range(2):
        remember(desk.store, f"tea {number}")
        desk.record()
    opened = open_delta(desk.witnesses, desk.registry.history[1].delta)
    assert opened is not None
    delta, row = DELTA.place(SPACE, 2), OPERATION.place(opened.batch.root, 1)
    {
        "delta missing": lambda: desk.witnesses.discard([delta]),
        "delta erased": lambda: desk.witnesses.erase(delta),
        "delta altered": lambda: alter(desk, delta),
        "row missing": lambda: desk.witnesses.discard([row]),
        "row altered": lambda: alter(desk, row),
    }[harm]()
    with pytest.raises(NotOpened) as caught:
        rebuilt(desk, new)
    assert caught.value.sequence == 2
    assert_empty(new)
    assert rebuilt(desk, new, at=1).unread == (2,)


def test_history_that_does_not_follow_is_refused(desk: Desk, new: MemoryStore) -> None:
    for number in range(3):
        remember(desk.store, f"tea {number}")
        desk.record()
    del desk.registry.history[1]
    with pytest.raises(BrokenHistory):
        rebuilt(desk, new)
    assert_empty(new)


def test_history_without_its_first_batch_is_refused(desk: Desk, new: MemoryStore) -> None:
    """Two stores were recorded in one space, by somebody who went round the recorder."""
    remember(desk.store, "tea")
    desk.record()
    first = desk.registry.history
    remember(desk.store, "coffee")
    desk.record()
    witness = desk.witnesses.get(DELTA.place(SPACE, 2))
    desk.witnesses.discard([DELTA.place(SPACE, 1), DELTA.place(SPACE, 2)])
    alone = Transition.of(witness.build_delta(SPACE, type(desk.registry.head())()))
    desk.witnesses.put_delta(alone.delta, witness)
    desk.registry.history = [alone]
    with pytest.raises(BrokenRecording) as caught:
        rebuilt(desk, new)
    assert caught.value.sequence == 1
    assert_empty(new)
    assert len(first) == 2


def test_store_that_is_not_empty_is_left_as_it_was(desk: Desk, new: MemoryStore) -> None:
    remember(desk.store, "tea")
    desk.record()
    remember(new, "mine")
    before = tables_of(new)
    with pytest.raises(InvalidInput) as caught:
        rebuilt(desk, new)
    assert caught.value.field == "store"
    assert tables_of(new) == before


def test_rebuilding_that_is_killed_leaves_an_empty_store(
    desk: Desk, new: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        remember(desk.store, f"tea {number}")
        desk.record()
    calls = iter(range(2))

    def killed(*arguments: Any) -> Any:
        if next(calls, None) == 1:
            raise KeyboardInterrupt
        return open_delta(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("melete.wire.recording.rebuild.open_delta", killed)
        with pytest.raises(KeyboardInterrupt):
            rebuilt(desk, new)
    assert_empty(new)
    rebuilt(desk, new)
    assert rows_of(new) == rows_of(desk.store)


# Anything, in any order


@pytest.mark.parametrize("seed", range(4))
def test_random_work_is_rebuilt_row_by_row_at_every_sequence(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with open_desk(tmp_path, str(tmp_path / "memories.db"), approval=Queue()) as desk:
        states = [rows_of(desk.store)]
        for number in range(50):
            act(desk, dice, number)
            if dice.random() < 0.15:
                desk.options["most"] = 1_000
                before = len(desk.registry.history)
                desk.record()
                if len(desk.registry.history) > before:
                    states.append(rows_of(desk.store))
        desk.record()
        last = len(desk.registry.history)
        with open_store(str(tmp_path / "new.db"), desk.clock) as new:
            found = rebuilt(desk, new)
            expected = rows_of(desk.store)
            if not found.waiting:
                assert rows_of(new) == expected
            else:
                assert rows_of(new)["memories"] == expected["memories"]
        for at in {dice.randrange(last) for _ in range(3)}:
            with open_store(str(tmp_path / f"at {at}.db"), desk.clock) as earlier:
                found = rebuilt(desk, earlier, at)
                assert found.is_whole
                gone = {one.id for one in found.forgotten}
                assert rows_of(earlier)["memories"] == [row for row in states[at]["memories"] if row[1] not in gone]
                still = {row[1] for row in rows_of(desk.store)["memories"]}
                assert gone == {row[1] for row in states[at]["memories"]} - still


def act(desk: Desk, dice: random.Random, number: int) -> None:
    """Do something or other with the store."""
    store = desk.store
    kind, agent = dice.choice([EPISODIC, SEMANTIC]), dice.choice(["ada", "bob"])
    query = "SELECT m.id FROM memories m JOIN scopes s ON s.id = m.scope WHERE m.merged_into IS NULL"
    query += (
        f" AND s.type = '{kind}' AND s.agent = '{agent}' AND (m.expires_at IS NULL OR m.expires_at > {desk.clock.now})"
    )
    ids = [row[0] for row in fetch(store, query)]
    waiting = store.pending()
    choice = dice.random()
    if choice < 0.45 or not ids:
        ttl = dice.choice([None, None, 5])
        remember(store, f"word{number}", kind, agent_id=agent, ttl_seconds=ttl, tags=[f"t{number % 3}"], writer="carl")
    elif choice < 0.55:
        store.forget(kind, [dice.choice(ids)], agent_id=agent)
    elif choice < 0.65 and len(ids) > 1:
        store.merge(kind, dice.sample(ids, 2), agent_id=agent, writer="carl")
    elif choice < 0.75:
        store.expire(kind, [dice.choice(ids)], agent_id=agent, ttl_seconds=dice.choice([None, 3]))
    elif choice < 0.80:
        desk.clock.now += 2
        store.sweep()
    elif waiting:
        write = dice.choice(waiting)
        if dice.random() < 0.7 and write.content is not None:
            store.approve(write.id, "eve")
        else:
            store.reject(write.id, "dan")


def test_log_of_a_rebuilt_store_says_what_could_not_be_brought_back(desk: Desk, new: MemoryStore) -> None:
    gone = remember(desk.store, "likes coffee")
    desk.record()
    erase_content(desk, 1)
    rebuilt(desk, new)
    (text,) = fetch(new, "SELECT entry FROM audit ORDER BY number DESC LIMIT 1")[0]
    assert f'"action":"{Action.FORGET.value}"' in text
    assert '"by":"rebuild"' in text
    assert gone in text


def test_store_that_is_behind_its_record_cannot_be_forged_into_it(desk: Desk, new: MemoryStore) -> None:
    """A rebuilt store whose row was altered afterwards is told by its own audit."""
    remember(desk.store, "likes tea")
    desk.record()
    found = rebuilt(desk, new)
    run(new, "UPDATE memories SET content = 'likes coffee'")
    from melete.wire.errors import BrokenAudit

    with pytest.raises(BrokenAudit):
        new.verify_audit(found.head)
