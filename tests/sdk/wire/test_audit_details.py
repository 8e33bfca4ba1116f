"""What a forger changes beside the contents: indexes, counts, vectors, names; and cells of another type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from melete.errors import VerificationError
from melete.primitives import ZERO_BYTES32, keccak256
from melete.wire.approval import Queue
from melete.wire.audit import AuditHead
from melete.wire.errors import BrokenAudit
from melete.wire.store import MemoryStore

from .samples import EPISODIC, SEMANTIC, Clock, database_of, fetch, open_store, remember, run


class Embedder:
    dimensions = 2

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]


def broken(store: MemoryStore) -> tuple[int, str]:
    with pytest.raises(BrokenAudit) as caught:
        store.verify_audit()
    return caught.value.number, caught.value.rule


def test_index_with_other_words_or_tags_is_found(store: MemoryStore) -> None:
    remember(store, "likes green tea", tags=["drink"])
    remember(store, "likes milk milk", tags=["drink", "cold"])
    store.verify_audit()
    database = database_of(store)
    with database.reading() as connection:
        (document,) = connection.exec_driver_sql("SELECT max(document) FROM memories").one()
        (terms,) = database.load_terms(connection, [document]).values()
    tags = [term for term in terms[0] if "t" in term[:4]]
    for words in (terms[0][:-1], [*terms[0], "1wcoffee"], []):
        with database.writing() as connection:
            database.remove_terms(connection, [document])
            database.add_terms(connection, document, words, [])
        assert broken(store) == (2, "the text index")
    with database.writing() as connection:
        database.remove_terms(connection, [document])
        database.add_terms(connection, document, terms[0], [])
    store.verify_audit()
    assert tags


@pytest.mark.parametrize(
    ("statement", "number", "rule"),
    [
        ("UPDATE memories SET words = words + 1 WHERE number = 2", 2, "the word count of a memory"),
        ("UPDATE scopes SET documents = documents + 1", 1, "the counts of a scope"),
        ("UPDATE scopes SET words = 0", 1, "the counts of a scope"),
        ("UPDATE scopes SET since = 2", 1, "the counts of a scope"),
        ("UPDATE scopes SET removals = -1", 1, "the counts of a scope"),
        ("INSERT INTO scopes SELECT 9, 'nobody', type, 1, 0, 0, 0 FROM scopes", 1, "the counts of a scope"),
        ("UPDATE meta SET version = 1", 4, "the tables of the store"),
    ],
)
def test_counts_that_were_altered_are_found(store: MemoryStore, statement: str, number: int, rule: str) -> None:
    for content in ("likes tea", "likes milk", "likes nothing"):
        gone = remember(store, content)
    store.forget(EPISODIC, [gone])
    store.verify_audit()
    run(store, statement)
    assert broken(store) == (number, rule)


def test_name_of_who_decided_is_compared_with_the_log(store_url: str) -> None:
    with open_store(store_url, approval=Queue()) as store:
        ids = [remember(store, f"likes tea {number}", SEMANTIC, ttl_seconds=9) for number in range(4)]
        store.approve(ids[0], "eve")
        store.reject(ids[1], "eve")
        store.forget(SEMANTIC, [ids[2]])
        store.sweep(database_now(store) + 10)
        store.verify_audit()
        for number in (1, 2, 3, 4):
            run(store, f"UPDATE pending SET decided_by = decided_by || 'x' WHERE number = {number}")  # noqa: S608
            assert broken(store) == (number, "the decision about a pending write")
            run(store, f"UPDATE pending SET decided_by = rtrim(decided_by, 'x') WHERE number = {number}")  # noqa: S608


def database_now(store: MemoryStore) -> int:
    return store._core.now()


def test_vector_of_a_merged_memory_is_found(store_url: str) -> None:
    with open_store(store_url, embedder=Embedder()) as store:
        ids = [remember(store, "likes tea"), remember(store, "likes milk")]
        store.verify_audit()
        store.merge(EPISODIC, ids)
        store.verify_audit()
        run(
            store,
            "INSERT INTO memory_vectors SELECT scope, (SELECT min(document) FROM memories), vector FROM memory_vectors",
        )
        assert broken(store) == (1, "the vectors of a scope")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET entry = CAST(entry AS BLOB) WHERE number = 2",
        "UPDATE audit SET entry = x'ff00' WHERE number = 2",
        "UPDATE audit SET hash = 'text' WHERE number = 2",
        "UPDATE audit SET hash = 7 WHERE number = 2",
        "UPDATE memories SET content = x'ff00' WHERE number = 2",
        "UPDATE memories SET salt = 'text' WHERE number = 2",
        "UPDATE memories SET metadata = 'no json' WHERE number = 2",
        "UPDATE memories SET metadata = x'00' WHERE number = 2",
        "UPDATE memories SET tags = 'no json' WHERE number = 2",
        "UPDATE memories SET tags = '7' WHERE number = 2",
        "UPDATE memories SET merged_into = 'text' WHERE number = 2",
        "UPDATE memories SET expires_at = 'text' WHERE number = 2",
        "UPDATE memories SET words = 'text' WHERE number = 2",
        "UPDATE memories SET id = x'00' WHERE number = 2",
    ],
)
def test_cells_of_another_type_are_a_broken_audit(tmp_path: Path, statement: str) -> None:
    with open_store(str(tmp_path / "memories.db"), Clock()) as store:
        ids = [remember(store, f"likes tea {number}", metadata={"a": 1}) for number in range(3)]
        run(store, statement)
        assert broken(store)[0] == 2
        if "content" in statement or "metadata" in statement or "tags" in statement:
            with pytest.raises(VerificationError) as caught:
                store.show(ids[1])
            assert isinstance(caught.value, BrokenAudit)
            assert caught.value.number == 2
            if "metadata" not in statement:
                with pytest.raises(BrokenAudit):
                    store.recall(EPISODIC, "tea")


@pytest.mark.parametrize("column", ["tags", "metadata"])
def test_what_show_calls_broken_the_audit_does_too(store: MemoryStore, column: str) -> None:
    memory_id = remember(store, "likes tea")
    run(store, f"UPDATE memories SET {column} = '{'{}' if column == 'tags' else 'null'}'")  # noqa: S608
    with pytest.raises(BrokenAudit):
        store.show(memory_id)
    assert broken(store) == (1, "a memory's row")


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("UPDATE memories SET content = CAST(x'ff41' AS TEXT) WHERE number = 2", "the digest of a memory"),
        ("UPDATE memories SET tags = CAST(x'ff41' AS TEXT) WHERE number = 2", "a memory's row"),
        ("UPDATE memories SET id = CAST(x'ff41' AS TEXT) WHERE number = 2", "a memory's row"),
        ("UPDATE audit SET entry = CAST(x'ff41' AS TEXT) WHERE number = 2", "the hash of the audit row"),
        ("UPDATE memory_text_content SET c0 = CAST(x'ff41' AS TEXT) WHERE id / 64 = 2", "the text index"),
        ("UPDATE pending SET writer = CAST(x'ff41' AS TEXT)", "a pending write"),
        ("UPDATE scopes SET agent = CAST(x'ff41' AS TEXT) WHERE type = 'episodic'", "a memory's row"),
        ("INSERT INTO names VALUES (CAST(x'ff41' AS TEXT), 'ada', 1)", "the name of who decided"),
    ],
)
def test_text_that_is_no_utf8_is_named(tmp_path: Path, statement: str, rule: str) -> None:
    with open_store(str(tmp_path / "memories.db"), Clock(), approval=Queue()) as store:
        number = {"UPDATE pending": 3, "UPDATE scopes": 1, "INSERT INTO": 3}.get(" ".join(statement.split()[:2]), 2)
        for content in ("likes milk", "likes tea"):
            memory_id = remember(store, content)
        store.remember(SEMANTIC, "waits")
        run(store, statement)
        assert broken(store) == (number, rule)
        if "content =" in statement:
            assert store.forget(EPISODIC, [memory_id]).ok  # other operations go on as they did
            store.verify_audit()


@pytest.mark.parametrize(
    "into", ["document", "64 * 3", "12345", "-1", "9223372036854775807", "(SELECT max(document) + 1 FROM memories)"]
)
def test_merge_that_leads_nowhere_or_in_a_circle_is_a_broken_audit(store: MemoryStore, into: str) -> None:
    ids = [remember(store, f"likes tea {number}") for number in range(3)]
    (merged,) = store.merge(EPISODIC, ids[:2]).ids
    run(store, f"UPDATE memories SET merged_into = {into} WHERE number = 2")  # noqa: S608
    assert broken(store) == (2, "the merge of a memory")
    for attempt in (
        lambda: store.merge(EPISODIC, [ids[1], ids[2]]),
        lambda: store.expire(EPISODIC, [ids[1]]),
        lambda: store.forget(EPISODIC, [ids[1]]),
    ):
        with pytest.raises(BrokenAudit) as caught:
            attempt()
        assert caught.value.rule == "the merge of a memory"
    assert store.show(merged).id == merged


def test_circle_of_merges_ends(store: MemoryStore) -> None:
    ids = [remember(store, f"likes tea {number}") for number in range(2)]
    store.merge(EPISODIC, ids)
    (first, last) = fetch(store, "SELECT min(document), max(document) FROM memories")[0]
    run(store, f"UPDATE memories SET merged_into = {first} WHERE document = {last}")  # noqa: S608
    for memory_id in ids:
        with pytest.raises(BrokenAudit):
            store.forget(EPISODIC, [memory_id])


def test_head_before_the_first_row_is_the_empty_one_alone(store: MemoryStore) -> None:
    remember(store, "likes tea")
    store.verify_audit(AuditHead(0, ZERO_BYTES32))
    for number, digest in ((0, keccak256(b"")), (-1, ZERO_BYTES32)):
        with pytest.raises(BrokenAudit) as caught:
            store.verify_audit(AuditHead(number, digest))
        assert caught.value.rule == "the head that was recorded elsewhere"


@pytest.mark.parametrize("index", ["memories_by_id", "memories_expiring", "pending_by_id", "recorded_by_id"])
def test_index_that_was_dropped_is_found(store: MemoryStore, index: str) -> None:
    remember(store, "likes tea")
    store.verify_audit()
    run(store, f"DROP INDEX {index}")
    with pytest.raises(BrokenAudit) as caught:
        store.verify_audit()
    assert caught.value.rule == "the tables of the store"
    assert index in str(caught.value)


def test_vector_of_another_length_is_found_and_not_compared(store_url: str) -> None:
    with open_store(store_url, embedder=Embedder()) as store:
        for content in ("likes tea", "likes milk"):
            remember(store, content)
        short = "x'00000000'" if database_of(store).engine.dialect.name == "sqlite" else "'\\x00000000'::bytea"
        run(store, f"UPDATE memory_vectors SET vector = {short} WHERE document / 64 = 2")  # noqa: S608
        assert broken(store) == (2, "the vectors of a scope")
        with pytest.raises(BrokenAudit):
            store.recall(EPISODIC, "tea")
