"""One list of hits from several: by reciprocal rank, or by the best score. Pure.

    fuse([hits_here, hits_there], top_k=5)                      # the sum of 1 / (60 + rank), ranks from 0
    fuse([hits_here, hits_there], top_k=5, method=Fusion.MAX)   # scores as they are, of each memory the best

One hit per memory: of what stands in a list twice, the first place counts. Hits are in order of score, highest first,
and of id where scores are equal; so the answer is the same whichever list came first. Scores by rank are rounded to
float32, as the wire carries them: what is equal there is equal here.

Source: decisions, memorywire, Fan-out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeVar

from melete.errors import InvalidInput
from melete.wire.envelope import MAX_TOP_K, Hit

RRF_K: Final = 60

Key = TypeVar("Key")


class Fusion(StrEnum):
    """How lists become one."""

    RRF = "rrf"
    MAX = "max"


def parse_fusion(value: str) -> Fusion:
    """Return the method that a text names. Errors: `InvalidInput`."""
    for method in Fusion:
        if method == value:
            return method
    raise InvalidInput("fusion", value, f"one of {', '.join(Fusion)}")


def compute_rank_scores(lists: Iterable[Sequence[Key]]) -> dict[Key, float]:
    """Return the reciprocal-rank score of everything in some lists, each of them best first.

    The sum is exact before it is rounded, so that it does not depend on the order of the lists.
    """
    parts: dict[Key, list[float]] = {}
    for ranked in lists:
        for rank, key in enumerate(dict.fromkeys(ranked)):
            parts.setdefault(key, []).append(1 / (RRF_K + rank))
    return {key: _to_float32(math.fsum(some)) for key, some in parts.items()}


def fuse(lists: Sequence[Sequence[Hit]], top_k: int, method: Fusion = Fusion.RRF) -> tuple[Hit, ...]:
    """Return the best hits of some lists, each of them best first.

    Content, type and tags are those of the first list that holds the memory: give the list first that counts most.
    Errors: `InvalidInput` for a `top_k` that is not from 1 to 1000.
    """
    if type(top_k) is not int or not 1 <= top_k <= MAX_TOP_K:
        raise InvalidInput("top_k", top_k, f"an integer from 1 to {MAX_TOP_K}")
    shown: dict[str, Hit] = {}
    best: dict[str, float] = {}
    for hits in lists:
        for hit in {each.id: each for each in reversed(hits)}.values():  # of an id that stands twice, the first
            shown.setdefault(hit.id, hit)
            best[hit.id] = max(best.get(hit.id, -math.inf), hit.score)
    scores = best if method is Fusion.MAX else compute_rank_scores([hit.id for hit in hits] for hits in lists)
    order = sorted(scores, key=lambda memory_id: (-scores[memory_id], memory_id))[:top_k]
    return tuple(replace(shown[memory_id], score=scores[memory_id]) for memory_id in order)


def _to_float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)
