"""Cells that hold what no store has written: each is named, by every operation that meets it, and none is believed."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from melete.errors import StoreUnreadable, VerificationError
from melete.sqlite_errors import NEVER_WRITTEN
from melete.wire import cells, search
from melete.wire.approval import CallableApproval, Decision
from melete.wire.envelope import MemoryType
from melete.wire.errors import BrokenAudit
from melete.wire.listing import list_ids
from melete.wire.store import MemoryStore
from melete.wire.values import WriteRecord

from .samples import EPISODIC, SEMANTIC, Clock, open_store, remember, run

# Readers


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (cells.read_int, [0, -1, 2**63 - 1], [None, "7", 7.0, True, b"7"]),
        (cells.read_int_or_none, [0, None], ["7", 7.5, b""]),
        (cells.read_text, ["", "tea"], [None, 7, b"tea"]),
        (cells.read_text_or_none, ["", None], [7, b"tea"]),
        (cells.read_id, ["0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"], [None, 7, "", "tea", b"tea"]),
        (cells.read_bytes32, [bytes(32)], [None, 32, 2**63 - 1, "x" * 32, bytes(31), bytes(33)]),
        (cells.read_address, [bytes(20)], [None, 20, "x" * 20, bytes(32)]),
        (cells.read_tags, ["[]", '["a"]'], [None, "", "{}", "null", "[1]", "7", b"[]", "[" * 5000]),
        (cells.read_metadata, ["{}", '{"a":1}', None], ["", "[]", "null", "7", b"{}", 7]),
        (cells.read_sources, ['[["a",1]]', "[]"], [None, "{}", "[[1,2]]", '[["a"]]', '[["a","b"]]', '["ab"]']),
    ],
)
def test_reader_gives_what_a_store_writes_and_nothing_else(
    read: Callable[[object, int], object], good: list[object], bad: list[object]
) -> None:
    for value in good:
        read(value, 7)
    for value in bad:
        with pytest.raises(BrokenAudit) as caught:
            read(value, 7)
        assert caught.value.number == 7


def test_numbers_and_choices_are_bounded() -> None:
    assert cells.read_number(2**53 - 1, 1, cells.ROW) == 2**53 - 1
    assert cells.read_choice(MemoryType, "semantic", 1) is SEMANTIC
    assert cells.read_one_of({"a"}, "a", 1) == "a"
    for attempt in (
        lambda: cells.read_number(2**53, 1, cells.ROW),
        lambda: cells.read_number(-1, 1, cells.ROW),
        lambda: cells.read_choice(MemoryType, "zz", 1),
        lambda: cells.read_choice(MemoryType, b"semantic", 1),
        lambda: cells.read_one_of({"a"}, "b", 1),
        lambda: cells.read_one_of({"a"}, ["a"], 1),
    ):
        with pytest.raises(BrokenAudit):
            attempt()


# Operations


class Sometimes:
    """Queues what says so, and approves the rest."""

    name = "hook"

    def decide(self, diff: Any) -> Decision:
        return Decision.PENDING if "wait" in diff.after else Decision.APPROVED


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, str]]:
    """The bytes of a store with something of everything, and the ids in it."""
    path = tmp_path_factory.mktemp("kept") / "memories.db"
    with open_store(str(path), Clock(), approval=Sometimes()) as store:
        ids = {
            "plain": remember(store, "likes tea", SEMANTIC, tags=["t"], metadata={"a": 1}),
            "brief": remember(store, "likes milk", SEMANTIC, ttl_seconds=1_000),
            "other": remember(store, "likes tea too", EPISODIC),
        }
        sources = [remember(store, content, SEMANTIC) for content in ("one", "two")]
        ids["source"], (ids["merged"],) = sources[0], store.merge(SEMANTIC, sources).ids
        (ids["waiting"],) = store.remember(SEMANTIC, "wait for tea", tags=["t"], ttl_seconds=1_000).ids
        (decided,) = store.remember(SEMANTIC, "wait for milk").ids
        store.approve(decided, "zoe")
        last = remember(store, "wait no more", EPISODIC)
        (ids["merge"],) = store.merge(SEMANTIC, [ids["plain"], decided]).ids
        assert last
        store.verify_audit()
    return path.read_bytes(), ids


WRONG = [
    "7",
    "1.5",
    "'text'",
    "x'ff00'",
    "NULL",
    "9223372036854775807",
    "3000000000",
    "CAST(x'ff' AS TEXT)",
    "'[[1,2]]'",
]
CELLS = [
    ("meta", "number hash dimensions version unscrubbed"),
    ("scopes", "agent type since documents words removals"),
    ("memories", "id scope number audited created_at expires_at merged_into words salt tags metadata content"),
    ("audit", "number entry hash"),
    (
        "pending",
        "number id operation scope writer created_at expires_at sources salt tags metadata content decision decided"
        " decided_by",
    ),
    ("names", "folded name since"),
]


def operations(ids: dict[str, str]) -> dict[str, Callable[[MemoryStore], object]]:
    found: dict[str, Callable[[MemoryStore], object]] = {
        "verify": lambda store: store.verify_audit(),
        "recall": lambda store: store.recall(SEMANTIC, "likes tea"),
        "recall by tag": lambda store: store.recall(SEMANTIC, "likes tea", tags=["t"]),
        "count": lambda store: store.count(),
        "names": lambda store: store.names(),
        "head": lambda store: store.audit_head(),
        "pending": lambda store: store.pending(),
        "list": lambda store: list_ids(store, "default", [SEMANTIC, EPISODIC], 100),
        "remember": lambda store: store.remember(SEMANTIC, "likes coffee"),
        "queue": lambda store: store.remember(SEMANTIC, "wait for coffee"),
        "register": lambda store: store.register_name("Zoe"),
        "merge": lambda store: store.merge(SEMANTIC, [ids["plain"], ids["brief"]]),
        "sweep": lambda store: store.sweep(2**40),
    }
    for name, memory_id in ids.items():
        kind = EPISODIC if name == "other" else SEMANTIC
        found[f"show {name}"] = lambda store, each=memory_id: store.show(each)
        found[f"expire {name}"] = lambda store, each=memory_id, of=kind: store.expire(of, [each], ttl_seconds=7)
        found[f"forget {name}"] = lambda store, each=memory_id, of=kind: store.forget(of, [each])
    for name in ("waiting", "merge", "plain"):
        found[f"approve {name}"] = lambda store, each=ids[name]: store.approve(each, "zoe")
        found[f"reject {name}"] = lambda store, each=ids[name]: store.reject(each, "zoe")
    return found


class Undo(Exception):
    """Takes back what an operation did."""


@pytest.mark.parametrize(("table", "column"), [(table, one) for table, names in CELLS for one in names.split()])
def test_cell_of_another_type_is_an_error_of_ours(
    tmp_path: Path, kept: tuple[bytes, dict[str, str]], table: str, column: str
) -> None:
    contents, ids = kept
    path = tmp_path / "memories.db"
    path.write_bytes(contents)
    todo = operations(ids)
    with closing(sqlite3.connect(path)) as db:
        rows = [row for (row,) in db.execute(f"SELECT rowid FROM {table}")]  # noqa: S608
    for row in {rows[0], rows[-1]} if table != "audit" else rows[-1:]:
        for wrong in WRONG:
            path.write_bytes(contents)
            with closing(sqlite3.connect(path)) as db:
                try:
                    with db:
                        changed = db.execute(
                            f"UPDATE {table} SET {column} = {wrong} WHERE rowid = {row} AND {column} IS NOT {wrong}"  # noqa: S608
                        )
                except sqlite3.IntegrityError:
                    continue
                if not changed.rowcount:
                    continue
            _try_all(path, todo, f"{table}.{column} = {wrong} in {row}", is_told=(table, column) not in UNTOLD)


#: A number of removals is as good as another; what is noted as unscrubbed is scrubbed when the store is opened; of what
#: length vectors are, where there are none, and since when a name is kept, is nobody's concern.
UNTOLD = {("scopes", "removals"), ("meta", "unscrubbed"), ("meta", "dimensions"), ("names", "since")}


def _try_all(path: Path, todo: dict[str, Callable[[MemoryStore], object]], what: str, *, is_told: bool) -> None:
    try:
        opened = open_store(str(path), Clock(), approval=Sometimes(), scrub_at_once=False)
    except StoreUnreadable:
        return
    with opened as store:
        for name, operation in todo.items():
            error = _try(store, operation)
            assert isinstance(error, Undo | VerificationError | StoreUnreadable), f"{what}: {name}: {error!r}"
            assert error.__cause__ is None, f"{what}: {name}: {error.__cause__!r}"
            if name == "verify" and is_told:
                assert isinstance(error, BrokenAudit), f"{what}: {error!r}"


def _try(store: MemoryStore, operation: Callable[[MemoryStore], object]) -> Exception:
    """Do something and take it back; return what came of it."""
    try:
        with store.transaction():
            operation(store)
            raise Undo  # noqa: TRY301 - so that the next operation finds the same
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error


# The net under the readers


def test_what_no_reader_foresaw_is_an_unreadable_store_with_its_cause(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory_id = remember(store, "likes tea")
    for kind in (TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError):

        def fail(*_: object, kind: type[Exception] = kind) -> list[str]:
            raise kind

        monkeypatch.setattr(search, "split_words", fail)
        monkeypatch.setattr("melete.wire.operations.with_merged", fail)
        for attempt in (lambda: store.recall(EPISODIC, "tea"), lambda: store.forget(EPISODIC, [memory_id])):
            with pytest.raises(StoreUnreadable) as caught:
                attempt()
            assert (caught.value.reason, type(caught.value.__cause__)) == (NEVER_WRITTEN, kind)


def test_errors_of_hooks_observers_and_embedders_are_not_laid_at_the_rows_door(store_url: str) -> None:
    def fail(*_: object) -> Any:
        raise TypeError

    class Embedder:
        dimensions = 2
        embed = staticmethod(fail)

    def observe(record: WriteRecord, connection: object) -> None:
        raise ValueError(record)

    for options, kind in (
        ({"approval": CallableApproval(fail)}, TypeError),
        ({"embedder": Embedder()}, TypeError),
        ({"on_write": observe}, ValueError),
    ):
        with open_store(store_url, **options) as store, pytest.raises(kind) as caught:
            store.remember(SEMANTIC, "likes tea")
        assert type(caught.value) is kind


def test_salt_that_is_a_number_takes_no_memory(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "memories.db")) as store:
        remember(store, "likes tea")
        run(store, "UPDATE memories SET salt = 3000000000")
        tracemalloc.start()
        try:
            with pytest.raises(BrokenAudit):
                store.verify_audit()
            assert tracemalloc.get_traced_memory()[1] < 2**24
        finally:
            tracemalloc.stop()
