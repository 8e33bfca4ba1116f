"""Which memories a query means: by their words (BM25), by vectors where there is an embedder, or by both together.

Every filter comes before ranking. Agent and type are part of each term of the index, so rows of others are never met;
tags are terms too; what has expired is left out where there is such a thing; what was forgotten, merged or waits for
approval is in no index.

**Words.** A query finds every memory that holds any of its words. The score is BM25 (k1 = 1.2, b = 0.75; a word that a
memory repeats counts as standing there three times, lengths are those of the size class), with the statistics of the
agent and type alone. What is looked at is bounded, whatever the size of the store:

- of a query, the first 64 different words; of these, the 32 that the fewest memories hold;
- of a word, the newest 500 memories that hold it (or `top_k`, if that is more). A word that more memories hold is
  common: it adds to the score of what rarer words found, of at most 2,000 memories, and not at all if more than a
  quarter of the memories hold it. By itself it finds something only where rarer words found fewer than `top_k`. In
  small scopes, up to 2,000 memories, a word is common from a quarter of them, but from 256 at the least.

**Vectors.** The nearest by cosine. Both lists, of 100 memories or `top_k` if that is more, are fused by reciprocal
rank: the sum of 1 / (60 + rank), ranks from 0.

Scores compare hits of one answer only. Hits are in order of score, and of id where scores are equal (as float32).
"""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from melete.wire.engines import Database, Match
from melete.wire.fusion import RRF_K
from melete.wire.words import SIZE_BITS, compute_class_size, repeated_term, split_words, tag_term, term

MOST_WORDS: Final = 64
MOST_RANKED_WORDS: Final = 32
MOST_PER_WORD: Final = 500
MOST_RAISED: Final = 2_000
#: A word in fewer memories than this is never too common.
LEAST_COMMON: Final = 256
#: A word that more than this share of the memories hold says nothing beside a rarer one.
TOO_COMMON: Final = 0.25
#: How many memories with all tags are counted at most; it only shapes scores.
MOST_COUNTED: Final = 10_000
#: How long the lists are that are fused.
DEPTH: Final = 100

_K1: Final = 1.2
_B: Final = 0.75
#: How often a repeated word is taken to stand in a memory.
_REPEATED: Final = 3.0

Key = TypeVar("Key")


class Scope(NamedTuple):
    """What ranking knows of the memories of one agent and type; `head` is the newest audit number of the store."""

    id: int
    documents: int
    words: int
    since: int
    removals: int
    head: int


class Weighted(NamedTuple):
    """A word, the documents that were looked at for it, and how much it says."""

    word: str
    documents: Sequence[int]
    weight: float
    share: float


def rank_words(
    database: Database,
    connection: Connection,
    scope: Scope,
    query: str,
    tags: Sequence[str],
    top_k: int,
    now: int | None,
) -> dict[int, float]:
    """Return the scores of the documents that a query's words find; bounded as the module says.

    `now` is given when memories have expired by then.
    """
    words = list(dict.fromkeys(split_words(query)))[:MOST_WORDS]
    if not words or not scope.documents:
        return {}
    filters = tuple(tag_term(scope.id, tag) for tag in tags)
    total = scope.documents
    if filters:
        total = database.count_documents(connection, Match(filters, MOST_COUNTED))
    most = max(MOST_PER_WORD, top_k)
    limit = min(most, max(total // 4, LEAST_COMMON, top_k))
    return _Ranking(database, connection, scope, filters, total, limit, now).rank(words, top_k)


class _Ranking:
    """One query's way through the text index."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        scope: Scope,
        filters: tuple[str, ...],
        total: int,
        limit: int,
        now: int | None,
    ) -> None:
        self._database, self._connection, self._now = database, connection, now
        self._scope, self._filters, self._total, self._limit = scope, filters, max(total, 1), limit

    def rank(self, words: Sequence[str], top_k: int) -> dict[int, float]:
        terms = [(term(self._scope.id, word),) for word in words]
        terms += [(repeated_term(self._scope.id, word),) for word in words]
        looked_up = self._find(terms, self._limit + 1)
        found, repeated = looked_up[: len(words)], dict(zip(words, looked_up[len(words) :], strict=True))
        held = sorted(
            (self._weigh(word, documents) for word, documents in zip(words, found, strict=True) if documents),
            key=lambda weighted: (-weighted.weight, weighted.word),
        )[:MOST_RANKED_WORDS]
        rare = [weighted for weighted in held if len(weighted.documents) <= self._limit]
        common = [weighted for weighted in held if len(weighted.documents) > self._limit]
        sums = _add_up(rare)
        if common:
            self._add_common(sums, rare, common, top_k)
        more = _add_up(weighted._replace(documents=repeated[weighted.word]) for weighted in rare)
        return self._score(sums, more)

    def _add_common(self, sums: dict[int, float], rare: list[Weighted], common: list[Weighted], top_k: int) -> None:
        """Raise what rarer words found by the common ones it holds too; let these find what is missing."""
        finders = rare or common[:1]
        others = common if rare else common[1:]
        if rare:
            others = [weighted for weighted in others if weighted.share <= TOO_COMMON]
        else:
            sums.update(_add_up(finders))
        anchors = tuple(term(self._scope.id, weighted.word) for weighted in finders)
        raised = self._find([(term(self._scope.id, weighted.word),) for weighted in others], MOST_RAISED, anchors)
        for weighted, documents in zip(others, raised, strict=True):
            for document in documents:
                if document in sums:
                    sums[document] += weighted.weight
        if len(sums) < top_k:
            extra = _add_up(common if rare else common[1:])
            for document, value in extra.items():
                sums.setdefault(document, value)

    def _find(
        self, wanted: Sequence[tuple[str, ...]], limit: int, any_of: tuple[str, ...] = ()
    ) -> Sequence[Sequence[int]]:
        if not wanted:
            return []
        matches = [Match(terms + self._filters, limit, any_of) for terms in wanted]
        return self._database.find_documents(self._connection, matches, self._now)

    def _weigh(self, word: str, documents: Sequence[int]) -> Weighted:
        count = float(len(documents))
        if count > self._limit:
            # From how far back the newest reach, it follows how many there are in all, if they are spread evenly.
            span = max(self._scope.head - (min(documents) >> SIZE_BITS) + 1, 1)
            age = self._scope.head - self._scope.since + 1
            count = max(count, min(self._total, count * age / span))
        total = max(self._total, count)
        weight = math.log(1 + (total - count + 0.5) / (count + 0.5))
        return Weighted(word, documents, weight, count / total)

    def _score(self, sums: Mapping[int, float], repeated: Mapping[int, float]) -> dict[int, float]:
        average = max(self._scope.words / self._scope.documents, 1.0)
        once: dict[int, float] = {}
        scores = {}
        mask = (1 << SIZE_BITS) - 1
        for document, value in sums.items():
            size = document & mask
            factor = once.get(size)
            if factor is None:
                factor = once[size] = _saturate(1.0, compute_class_size(size) / average)
            scores[document] = value * factor
        for document, value in repeated.items():
            if document in scores:
                length = compute_class_size(document & mask) / average
                scores[document] += value * (_saturate(_REPEATED, length) - _saturate(1.0, length))
        return scores


def _saturate(times: float, length: float) -> float:
    """Return how much a word counts that stands so many times in a text of a length, relative to the average."""
    return times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length))


def _add_up(words: Iterable[Weighted]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for weighted in words:
        weight = weighted.weight
        if not sums:
            sums = dict.fromkeys(weighted.documents, weight)
            continue
        get = sums.get
        for document in weighted.documents:
            sums[document] = get(document, 0.0) + weight
    return sums


# Order


def take_best(scores: Mapping[int, float], count: int) -> dict[int, float]:
    """Return the best of scores above 0, and all that may be equal to the last of them as float32."""
    if len(scores) <= count:
        return dict(scores)
    least = heapq.nlargest(count, scores.values())[-1] * (1 - 2**-22)
    return {key: score for key, score in scores.items() if score >= least}


def to_float32(value: float) -> float:
    """Return the float32 nearest to a number, as the wire carries scores."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def fuse_ranks(lists: Iterable[Sequence[Key]]) -> dict[Key, float]:
    """Return the reciprocal-rank score of everything in some lists, each best first.

    The sum of 1 / (60 + rank), ranks from 0; of what stands in a list twice, the first place counts.
    """
    scores: dict[Key, float] = {}
    for ranked in lists:
        for rank, key in enumerate(dict.fromkeys(ranked)):
            scores[key] = scores.get(key, 0.0) + 1 / (RRF_K + rank)
    return scores
