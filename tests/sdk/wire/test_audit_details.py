"""What a forger changes beside the contents: indexes, counts, vectors, names; and cells of another type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from melete.errors import VerificationError
from melete.wire.approval import Queue
from melete.wire.errors import BrokenAudit
from melete.wire.store import MemoryStore

from .samples import EPISODIC, SEMANTIC, Clock, database_of, open_store, remember, run


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
