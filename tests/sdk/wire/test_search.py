from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import ConfigurationError
from melete.wire import search
from melete.wire.envelope import MemoryType, Result
from melete.wire.errors import NotFloats
from melete.wire.search import fuse_ranks, take_best, to_float32
from melete.wire.store import MemoryStore
from melete.wire.words import split_words
from postgres import Server

from .samples import EPISODIC, SEMANTIC, WORKING, Clock, fetch, open_store, recalled, remember

# What a person types

QUERIES = [
    "multi-agent",
    "don't",
    "@nasa",
    "a OR",
    "OR",
    "AND NOT",
    '"',
    '""',
    "'",
    "*",
    "tea*",
    "NEAR(tea, 5)",
    "terms : tea",
    "{terms} : tea",
    "^tea",
    "tea -milk",
    "(tea",
    "tea)",
    "tea & !milk | <-> \\",
    "'tea':*A",
    "%s ? :x $1",
    "🎉",
    "",
    " ",
    "!?…—«»",
    "tea\0milk",
    "tea\n\tmilk",
    "\u202etea",
    "x" * 100_000,
    "tea " * 10_000,
    " ".join(f"w{number}" for number in range(5_000)),
]


@pytest.mark.parametrize("query", QUERIES, ids=ascii)
def test_whatever_a_person_types_is_a_query(sqlite_path: Path, query: str) -> None:
    with open_store(str(sqlite_path)) as store:
        memory_id = remember(store, query.replace("\0", " ") or " ")
        hits = store.recall(EPISODIC, query).hits
        assert [hit.id for hit in hits] == ([memory_id] if split_words(query) else [])


def test_whatever_a_person_types_is_a_query_on_a_server_too(postgres: Server) -> None:
    with open_store(postgres.new_store()) as store:
        for number, query in enumerate(QUERIES):
            content = query.replace("\0", " ") or " "
            memory_id = remember(store, content, agent_id=f"agent {number}")
            hits = store.recall(EPISODIC, query, agent_id=f"agent {number}").hits
            assert [hit.id for hit in hits] == ([memory_id] if split_words(query) else []), ascii(query[:40])


def test_names_with_apostrophes_and_marks_are_found(store: MemoryStore) -> None:
    remember(store, "Renée O'Brien's café serves naïve art")
    for query in ("renee", "RENÉE", "Obrien o'brien", "cafe's", "naive", "art?", "What does O\u2019Brien serve?"):
        assert recalled(store, query), query


# Filters come before ranking


def test_hundreds_of_others_that_match_better_displace_nothing(store: MemoryStore, clock: Clock) -> None:
    mine = remember(store, "one memory of mine about tea and much else besides", tags=["keep"])
    with store.transaction():
        gone = [remember(store, "tea tea tea") for _ in range(300)]
        for number in range(300):
            remember(store, "tea tea tea", agent_id=f"other {number % 3}")
            remember(store, "tea tea tea", SEMANTIC)
            remember(store, "tea tea tea", tags=["keep ", "Keep", "kee"])
            remember(store, "tea tea tea", tags=["keep"], ttl_seconds=5)
        merged = [remember(store, "tea tea tea", tags=["keep"]) for _ in range(4)]
        store.forget(EPISODIC, gone)
    (last,) = store.merge(EPISODIC, merged).ids
    store.forget(EPISODIC, [last])
    clock.now += 5
    assert [hit.id for hit in store.recall(EPISODIC, "tea", tags=["keep"], top_k=1000).hits] == [mine]
    assert recalled(store, "tea", tags=["keep", "other"]) == []
    assert len(recalled(store, "tea", top_k=1000)) == 301


def test_queued_writes_are_in_no_index(store_url: str) -> None:
    from melete.wire.approval import Queue

    with open_store(store_url, approval=Queue()) as store:
        for _ in range(3):
            store.remember(SEMANTIC, "tea")
        assert recalled(store, "tea", SEMANTIC) == []
        assert fetch(store, "SELECT count(*) FROM memory_text") == [(0,)]


def test_all_tags_must_match(store: MemoryStore) -> None:
    remember(store, "tea one", tags=["a", "b"])
    remember(store, "tea two", tags=["b", "c"])
    assert sorted(recalled(store, "tea", tags=["b"])) == ["tea one", "tea two"]
    assert recalled(store, "tea", tags=["b", "a"]) == ["tea one"]
    assert recalled(store, "tea", tags=["a", "c"]) == []
    assert recalled(store, "a") == recalled(store, "b", tags=["b"]) == []
    many = [f"tag {number}" for number in range(64)]
    remember(store, "tea three", tags=many)
    assert recalled(store, "tea", tags=many) == ["tea three"]


# Ranking


def bm25(contents: Sequence[str], query: str) -> list[float]:
    """The scores of plain BM25 with k1 = 1.2 and b = 0.75, exactly."""
    texts = [split_words(content) for content in contents]
    average = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        counts, score = Counter(text), 0.0
        for word in dict.fromkeys(split_words(query)):
            holding = sum(word in other for other in texts)
            weight = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            score += weight * counts[word] * 2.2 / (counts[word] + 1.2 * (0.25 + 0.75 * len(text) / average))
        scores.append(score)
    return scores


WORDS = [f"{letter}{number}" for letter in "abcd" for number in range(10)]


def make_texts(count: int, seed: int) -> list[str]:
    """Texts of 4 to 6 different words, lengths that are size classes of their own, so that scores can be compared."""
    source = random.Random(seed)
    return [" ".join(source.sample(WORDS, source.randint(4, 6))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_bm25_and_the_same_on_both_databases(
    sqlite_path: Path, postgres: Server, seed: int
) -> None:
    texts = make_texts(60, seed)
    answers: list[list[tuple[str, float]]] = []
    for url in (str(sqlite_path), postgres.new_store()):
        with open_store(url) as store, store.transaction():
            for text in texts:
                remember(store, text, agent_id="a")
                remember(store, f"a0 {text}", agent_id="b")
            query = " ".join(random.Random(seed).sample(WORDS, 4))
            hits = store.recall(EPISODIC, query, agent_id="a", top_k=1000).hits
            answers.append(sorted((hit.content, hit.score) for hit in hits))
    expected = sorted(
        (text, pytest.approx(score, rel=1e-6)) for text, score in zip(texts, bm25(texts, query), strict=True) if score
    )
    assert answers[0] == expected
    assert answers[1] == answers[0]


def test_word_that_stands_several_times_counts_more(store: MemoryStore) -> None:
    remember(store, "tea with milk and sugar")
    remember(store, "tea with tea and sugar")
    assert recalled(store, "tea") == ["tea with tea and sugar", "tea with milk and sugar"]


def test_short_text_counts_more_than_a_long_one(store: MemoryStore) -> None:
    remember(store, "tea " + "and other things " * 10)
    remember(store, "tea and toast")
    assert recalled(store, "tea")[0] == "tea and toast"


def test_hits_are_in_order_of_score_and_then_of_id(store: MemoryStore) -> None:
    for _ in range(40):
        remember(store, "tea")
    better = remember(store, "tea tea")
    for top_k in (1, 5, 39, 41, 1000):
        hits = store.recall(EPISODIC, "tea", top_k=top_k).hits
        everything = store.recall(EPISODIC, "tea", top_k=1000).hits
        assert hits == everything[:top_k]
        assert hits[0].id == better
        assert [hit.id for hit in hits[1:]] == sorted(hit.id for hit in hits[1:])
        assert all(hit.score == to_float32(hit.score) for hit in hits)


def test_answer_is_the_same_after_opening_again_and_after_scrubbing(store_url: str) -> None:
    def ask(store: MemoryStore) -> list[Result]:
        return [store.recall(EPISODIC, query, top_k=7) for query in ("a1 b2 c3", "a1", "d4 d5 d6 d7")]

    with open_store(store_url) as store:
        for text in make_texts(80, 5):
            remember(store, text)
        before = ask(store)
        assert before == ask(store)
        store.scrub()
        assert ask(store) == before
    with open_store(store_url) as store:
        assert ask(store) == before


def test_others_writes_change_no_score_of_mine(store: MemoryStore) -> None:
    for text in make_texts(30, 1):
        remember(store, text)
    before = store.recall(EPISODIC, "a1 b1")
    for text in make_texts(60, 2):
        remember(store, text, agent_id="other")
        remember(store, text, WORKING)
    assert store.recall(EPISODIC, "a1 b1") == before


# Caps


@pytest.fixture
def small_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_PER_WORD", 20)
    monkeypatch.setattr(search, "LEAST_COMMON", 10)
    monkeypatch.setattr(search, "MOST_RAISED", 40)


def test_rare_word_finds_an_old_memory_among_many_common_ones(store: MemoryStore, small_caps: None) -> None:
    with store.transaction():
        oldest = remember(store, "the zanzibar trip")
        for number in range(150):
            remember(store, f"the trip number {number}")
    for query in ("zanzibar", "the zanzibar", "the trip zanzibar"):
        hits = store.recall(EPISODIC, query, top_k=3).hits
        assert hits[0].id == oldest
    # What rarer words do not fill, common words do.
    assert len(store.recall(EPISODIC, "the zanzibar", top_k=3).hits) == 3


def test_common_words_alone_find_top_k_and_prefer_who_has_all(store: MemoryStore, small_caps: None) -> None:
    with store.transaction():
        for number in range(150):
            remember(store, f"the {'trip' if number % 2 else 'stay'} {number} {'sun' if number % 3 else 'rain'}")
    for top_k in (5, 60, 150, 1000):
        assert len(store.recall(EPISODIC, "the", top_k=top_k).hits) == min(top_k, 150)
    for hit in store.recall(EPISODIC, "the trip sun", top_k=5).hits:
        assert {"trip", "sun"} < set(hit.content.split())


def test_common_word_decides_between_memories_that_a_rare_one_finds(store: MemoryStore, small_caps: None) -> None:
    with store.transaction():
        for number in range(120):
            remember(store, f"green filler{number}" if number % 5 == 0 else f"other filler{number}")
        remember(store, "zanzibar black tea")
        remember(store, "zanzibar green tea")
        for number in range(60):
            remember(store, f"unrelated{number}")
    assert recalled(store, "green zanzibar", top_k=2) == ["zanzibar green tea", "zanzibar black tea"]


def test_no_list_that_is_looked_at_is_longer_than_documented(
    store: MemoryStore, small_caps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.transaction():
        for number in range(150):
            remember(store, f"the very common words here {number}")
    limits: list[int] = []
    found = type(store._core.database).find_documents

    def watch(database: Any, connection: Any, matches: Any, now: Any) -> list[list[int]]:
        answer = found(database, connection, matches, now)
        limits.extend(match.limit for match in matches)
        assert all(len(documents) <= match.limit for documents, match in zip(answer, matches, strict=True))
        return answer

    monkeypatch.setattr(type(store._core.database), "find_documents", watch)
    for query in ("the very common words here", "the 7", " ".join(map(str, range(100)))):
        store.recall(EPISODIC, query)
    assert max(limits) <= 40
    assert len(limits) <= 3 * (2 * search.MOST_WORDS + search.MOST_RANKED_WORDS)


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), st.integers(1, 30))
def test_every_hit_holds_a_word_and_none_that_does_is_missing(
    tmp_path_factory: Any, words: list[str], top_k: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "shared-search.db"
    with open_store(str(path)) as store:
        if store.count() == 0:
            with store.transaction():
                for text in make_texts(60, 9):
                    remember(store, text)
        hits = recalled(store, " ".join(words), top_k=top_k)
        holding = [text for text in make_texts(60, 9) if set(words) & set(text.split())]
        assert all(set(words) & set(text.split()) for text in hits)
        assert len(hits) == min(top_k, len(holding))


# Vectors


class Meanings:
    """Texts about hot drinks point one way, texts about weather another."""

    dimensions = 3

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.texts += len(texts)
        return [
            [
                sum(word in text for word in words) + 0.0
                for words in (("tea", "coffee", "brew"), ("rain", "sun"), ("x",))
            ]
            for text in texts
        ]


def test_embedder_finds_what_words_do_not(store_url: str) -> None:
    with open_store(store_url, embedder=Meanings()) as store:
        remember(store, "black coffee")
        remember(store, "sun on Sunday")
        assert recalled(store, "brew") == ["black coffee"]
        assert recalled(store, "nothing") == []
    with open_store(store_url) as store:
        assert recalled(store, "brew") == []
        assert recalled(store, "coffee") == ["black coffee"]


def test_words_and_vectors_are_fused_by_reciprocal_rank(store_url: str) -> None:
    with open_store(store_url, embedder=Meanings()) as store:
        both, near = remember(store, "tea today"), remember(store, "coffee tomorrow")
        hits = {hit.id: hit.score for hit in store.recall(EPISODIC, "tea").hits}
        ranks = sorted([both, near])
        assert hits == {
            both: to_float32(1 / 60 + 1 / (60 + ranks.index(both))),
            near: to_float32(1 / (60 + ranks.index(near))),
        }


@pytest.mark.parametrize("numpy", [True, False])
def test_vectors_obey_every_filter(store_url: str, clock: Clock, numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    with open_store(store_url, clock, embedder=Meanings()) as store:
        remember(store, "tea mine", tags=["keep"])
        remember(store, "tea untagged")
        remember(store, "tea brief", tags=["keep"], ttl_seconds=5)
        remember(store, "tea of another", agent_id="other", tags=["keep"])
        remember(store, "tea of another type", WORKING, tags=["keep"])
        merged = [remember(store, "coffee", tags=["keep"]), remember(store, "tea tea", tags=["keep"])]
        assert len(recalled(store, "brew", tags=["keep"], top_k=10)) == 4
        (last,) = store.merge(EPISODIC, merged).ids
        assert "coffee\ntea tea" in recalled(store, "brew", tags=["keep"])
        store.forget(EPISODIC, [last])
        clock.now += 5
        assert recalled(store, "brew", tags=["keep"]) == ["tea mine"]
        assert sorted(recalled(store, "brew")) == ["tea mine", "tea untagged"]
        with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
            remember(store, "tea undone")
            assert "tea undone" in recalled(store, "brew")
            raise ZeroDivisionError
        remember(store, "rain")
        assert sorted(recalled(store, "brew")) == ["tea mine", "tea untagged"]
        assert fetch(store, "SELECT count(*) FROM memory_vectors") == [(5 + 1,)]


def test_other_processes_writes_reach_vectors_that_were_read_before(store_url: str) -> None:
    with open_store(store_url, embedder=Meanings()) as store, open_store(store_url, embedder=Meanings()) as other:
        first = remember(store, "tea one")
        assert recalled(other, "brew") == ["tea one"]
        remember(store, "tea two")
        assert sorted(recalled(other, "brew")) == ["tea one", "tea two"]
        store.forget(EPISODIC, [first])
        assert recalled(other, "brew") == ["tea two"]


@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("numpy", [True, False])
def test_nearest_are_found_whether_vectors_are_kept_in_memory_or_not(
    sqlite_path: Path, kept: int, numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setattr("melete.wire.embedding.LARGEST_KEPT", kept)
    monkeypatch.setattr("melete.wire.embedding._ROWS_AT_A_TIME", 7)
    source = random.Random(3)
    vectors = {f"text{number}": [source.uniform(-1, 1) for _ in range(5)] for number in range(40)}
    vectors["query"] = [source.uniform(-1, 1) for _ in range(5)]

    class Known:
        dimensions = 5

        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return [vectors[text] for text in texts]

    with open_store(str(sqlite_path), embedder=Known()) as store, store.transaction():
        for name in vectors.keys() - {"query"}:
            remember(store, name)
    with open_store(str(sqlite_path), embedder=Known()) as store:
        expected = sorted(
            (name for name in vectors if name != "query" and cosine(vectors[name], vectors["query"]) > 0),
            key=lambda name: -cosine(vectors[name], vectors["query"]),
        )
        for top_k in (1, 4, 100):
            assert recalled(store, "query", top_k=top_k) == expected[:top_k]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def test_equal_vectors_are_in_order_of_id(store_url: str) -> None:
    with open_store(store_url, embedder=Meanings()) as store:
        for number in range(30):
            remember(store, f"tea {number}")
        hits = store.recall(EPISODIC, "brew", top_k=7).hits
        assert [hit.id for hit in hits] == sorted(id for (id,) in fetch(store, "SELECT id FROM memories"))[:7]


def test_embedder_of_other_dimensions_is_refused(store_url: str) -> None:
    class Wider(Meanings):
        dimensions = 4

        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return [[1.0] * 4 for _ in texts]

    with open_store(store_url, embedder=Meanings()) as store:
        remember(store, "tea")
    with open_store(store_url, embedder=Wider()) as store:
        for attempt in (lambda: store.remember(EPISODIC, "tea"), lambda: store.recall(EPISODIC, "tea")):
            with pytest.raises(ConfigurationError):
                attempt()
        assert store.count() == 1


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [[1.0]],
        [[1.0] * 4],
        [[1.0] * 3] * 2,
        [["a", "b", "c"]],
        [None],
        [[math.nan, 0, 0]],
        [[math.inf, 0, 0]],
        [[1.7e308] * 3],
    ],
)
def test_answers_of_an_embedder_that_are_no_vectors_write_nothing(sqlite_path: Path, rows: Any) -> None:
    class Broken(Meanings):
        def embed(self, texts: Sequence[str]) -> Any:  # noqa: ARG002
            return rows

    with open_store(str(sqlite_path), embedder=Broken()) as store:
        with pytest.raises(NotFloats):
            store.remember(EPISODIC, "tea")
        assert store.count() == 0


def test_arrays_of_numpy_are_rows_too(sqlite_path: Path) -> None:
    import numpy as np

    class Arrays(Meanings):
        def embed(self, texts: Sequence[str]) -> Any:
            return np.array(super().embed(texts), dtype=np.float32)

    with open_store(str(sqlite_path), embedder=Arrays()) as store:
        remember(store, "tea")
        assert recalled(store, "brew") == ["tea"]


def test_queued_write_is_embedded_when_it_is_approved(store_url: str) -> None:
    from melete.wire.approval import Queue

    meanings = Meanings()
    with open_store(store_url, embedder=meanings, approval=Queue()) as store:
        (memory_id,) = store.remember(SEMANTIC, "tea").ids
        assert meanings.texts == 0
        store.approve(memory_id, "ada")
        assert recalled(store, "brew", SEMANTIC) == ["tea"]


# Lists


def test_reciprocal_rank_starts_at_zero_and_counts_a_first_place_only() -> None:
    assert fuse_ranks([["a", "b", "a"], ["b"]]) == {"a": 1 / 60, "b": 1 / 61 + 1 / 60}
    assert fuse_ranks([[], []]) == {}


@given(st.dictionaries(st.integers(), st.floats(0.01, 10)), st.integers(1, 10))
def test_best_are_kept_with_all_that_equal_the_last(scores: dict[int, float], count: int) -> None:
    best = take_best(scores, count)
    ordered = sorted((to_float32(score) for score in scores.values()), reverse=True)
    least = ordered[min(count, len(ordered)) - 1] if ordered else 0
    assert {key for key, score in scores.items() if to_float32(score) >= least} <= best.keys()
    assert all(score >= least * (1 - 1e-6) for score in best.values())


def test_types_are_searched_one_at_a_time(store: MemoryStore) -> None:
    for kind in MemoryType:
        remember(store, f"tea {kind.value}", kind)
    for kind in MemoryType:
        assert recalled(store, "tea", kind) == [f"tea {kind.value}"]
