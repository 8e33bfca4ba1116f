"""How well text search answers on a labelled corpus of ours, to plain BM25 on the same texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from rank_bm25 import BM25Okapi

from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore

from .recall_corpus import MEMORIES, QUESTIONS

KIND, TOP_K = MemoryType.SEMANTIC, 5
KEYS = list(MEMORIES)
KEY_OF = {text: key for key, text in MEMORIES.items()}


def recall_at_5(find: Callable[[str], Sequence[str]]) -> float:
    """The share of right answers among the first five, averaged over the questions."""
    shares = []
    for question in QUESTIONS:
        found = find(question.query)
        assert len(found) <= TOP_K
        shares.append(len(set(found) & set(question.answers)) / len(question.answers))
    return sum(shares) / len(shares)


def split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def plain_bm25() -> Callable[[str], Sequence[str]]:
    index = BM25Okapi([split(text) for text in MEMORIES.values()])

    def find(query: str) -> list[str]:
        scores = index.get_scores(split(query))
        best = sorted(range(len(KEYS)), key=lambda place: (-scores[place], place))[:TOP_K]
        return [KEYS[place] for place in best if scores[place] > 0]

    return find


def keys_found(store: MemoryStore, query: str) -> list[str]:
    return [KEY_OF[hit.content] for hit in store.recall(KIND, query, top_k=TOP_K).hits]


@pytest.fixture
def filled(store: MemoryStore) -> MemoryStore:
    with store.transaction():
        for text in MEMORIES.values():
            store.remember(KIND, text)
    return store


def test_corpus_is_large_enough_and_labelled_rightly() -> None:
    assert len(MEMORIES) >= 60
    assert len(QUESTIONS) >= 30
    assert len(KEY_OF) == len(MEMORIES)
    assert len({question.query for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert question.answers
        assert set(question.answers) <= set(MEMORIES)


def test_corpus_is_neither_trivial_nor_hopeless_for_plain_bm25() -> None:
    assert 0.8 < recall_at_5(plain_bm25()) < 0.97


def test_first_five_are_no_worse_than_those_of_plain_bm25(filled: MemoryStore) -> None:
    ours = recall_at_5(lambda query: keys_found(filled, query))
    assert ours >= recall_at_5(plain_bm25())


def test_what_others_remember_and_what_is_gone_changes_no_answer(filled: MemoryStore) -> None:
    before = [keys_found(filled, question.query) for question in QUESTIONS]
    with filled.transaction():
        for question in QUESTIONS:
            # They match better than anything else.
            filled.remember(KIND, question.query, agent_id="somebody else")
            filled.remember(MemoryType.EPISODIC, question.query)
        gone = [filled.remember(KIND, question.query).ids[0] for question in QUESTIONS]
        filled.expire(KIND, gone[::2])
        filled.forget(KIND, gone[1::2])
    filled.sweep()
    assert [keys_found(filled, question.query) for question in QUESTIONS] == before


def test_the_same_question_has_the_same_answer_every_time(filled: MemoryStore) -> None:
    for question in QUESTIONS[:10]:
        hits = filled.recall(KIND, question.query, top_k=20).hits
        assert hits == filled.recall(KIND, question.query, top_k=20).hits
        assert [(-hit.score, hit.id) for hit in hits] == sorted((-hit.score, hit.id) for hit in hits)
