"""Meaning beside words: an embedder that is plugged in, its vectors beside the rows, and how near they are to a query.

    class Words:
        dimensions = 384
        def embed(self, texts): return model.encode(texts)      # a row of floats for each text

    MemoryStore.open(path, embedder=Words())

Vectors are kept as unit vectors of float32 and compared one by one by cosine, within one agent and type, after every
other filter: exact, and linear in their number. What was read stays in memory, so that the next query reads what is new
only. numpy is used where it is installed, and not needed.
"""

from __future__ import annotations

import math
import sys
import threading
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Final, Protocol

from sqlalchemy import Connection, bindparam, select

from melete.errors import ConfigurationError
from melete.wire.errors import BrokenAudit, NotFloats
from melete.wire.tables import memory_vectors
from melete.wire.words import SIZE_BITS

#: Vectors of a scope are kept in memory up to so many bytes; beyond, they are read anew for every query.
LARGEST_KEPT: Final = 256 * 2**20
_ROWS_AT_A_TIME: Final = 4096


class Embedder(Protocol):
    """Gives texts a place in space. The same text must have the same place every time."""

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a row of finite numbers for each text."""


def embed(embedder: Embedder, texts: Sequence[str]) -> list[bytes | None]:
    """Return the unit vector of each text, as it is kept; None for a text whose vector is zero: it is near to nothing.

    Errors: `NotFloats`, and whatever the embedder raises.
    """
    rows = list(embedder.embed(texts))
    if len(rows) != len(texts):
        raise NotFloats(f"{len(rows)} rows for {len(texts)} texts")
    return [_to_unit(row, embedder.dimensions) for row in rows]


def _to_unit(row: Sequence[float], dimensions: int) -> bytes | None:
    try:
        values = array("d", row)
    except (TypeError, OverflowError):
        raise NotFloats("a row is no sequence of numbers") from None
    if len(values) != dimensions:
        raise NotFloats(f"a row has {len(values)} numbers instead of {dimensions}")
    if not all(map(math.isfinite, values)):
        raise NotFloats("a number is infinite or none")
    length = math.hypot(*values)
    if length == 0:
        return None
    if math.isinf(length):
        raise NotFloats("the numbers are too large")
    unit = array("f", [value / length for value in values])
    if sys.byteorder == "big":
        unit.byteswap()
    return unit.tobytes()


def verify_dimensions(kept: int | None, embedder: Embedder) -> None:
    """Return if vectors of this embedder can stand beside those that are kept. Errors: `ConfigurationError`."""
    if kept is not None and kept != embedder.dimensions:
        raise ConfigurationError(
            f"the store keeps vectors of {kept} numbers, and the embedder gives {embedder.dimensions}; "
            "use the embedder that the store was written with"
        )


@dataclass(slots=True)
class _Kept:
    """What was read of one scope."""

    removals: int
    documents: array[int] = field(default_factory=lambda: array("q"))
    vectors: bytearray = field(default_factory=bytearray)


class Vectors:
    """The vectors of a store, as far as they were read. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._lock = threading.Lock()

    def find_nearest(
        self,
        connection: Connection,
        scope: int,
        removals: int,
        query: bytes,
        depth: int,
        *,
        only: Collection[int] | None,
        never: Collection[int],
        keep: bool,
    ) -> list[tuple[int, float]]:
        """Return the documents of a scope whose vectors are nearest, with the cosine, which is above 0; best first.

        All that are as near as the last of `depth` are returned too, but at most four times `depth`, oldest first.
        `only` and `never` restrict what counts; `removals` is the scope's count of what was taken away, and `keep`
        false inside a transaction that may still be undone.
        """
        with self._lock:
            found: list[tuple[int, float]] = []
            for documents, vectors in self._portions(connection, scope, removals, keep=keep):
                if len(vectors) != len(documents) * len(query):
                    self._kept.pop(scope, None)
                    raise BrokenAudit(documents[0] >> SIZE_BITS, "the vectors of a scope", "all as long", "others")
                found += _compare(documents, vectors, query, depth, only, never)
        found.sort(key=lambda pair: (-pair[1], pair[0]))
        if len(found) > depth:
            last = found[depth - 1][1]
            found = [pair for pair in found[: depth * 4] if pair[1] >= last]
        return found

    def _portions(
        self, connection: Connection, scope: int, removals: int, *, keep: bool
    ) -> Iterator[tuple[array[int], bytearray]]:
        kept = self._kept.get(scope)
        if kept is None or kept.removals != removals or not keep:
            kept = _Kept(removals)
        after = kept.documents[-1] if kept.documents else -1
        fits = True
        for documents, vectors in _read(connection, scope, after):
            if fits and len(kept.vectors) + len(vectors) > LARGEST_KEPT:
                fits = False
                yield kept.documents, kept.vectors
            if fits:
                kept.documents.extend(documents)
                kept.vectors += vectors
            else:
                yield documents, vectors
        if fits:
            if keep:
                self._kept[scope] = kept
            yield kept.documents, kept.vectors
        else:
            self._kept.pop(scope, None)


_SELECT: Final = (
    select(memory_vectors.c.document, memory_vectors.c.vector)
    .where(memory_vectors.c.scope == bindparam("scope"), memory_vectors.c.document > bindparam("after"))
    .order_by(memory_vectors.c.document)
    .limit(_ROWS_AT_A_TIME)
)


def _read(connection: Connection, scope: int, after: int) -> Iterator[tuple[array[int], bytearray]]:
    while True:
        rows = connection.execute(_SELECT, {"scope": scope, "after": after}).all()
        if rows:
            yield array("q", [row[0] for row in rows]), bytearray().join([row[1] for row in rows])
            after = rows[-1][0]
        if len(rows) < _ROWS_AT_A_TIME:
            return


def _compare(
    documents: array[int],
    vectors: bytearray,
    query: bytes,
    depth: int,
    only: Collection[int] | None,
    never: Collection[int],
) -> list[tuple[int, float]]:
    """Return the `depth` nearest of some vectors, and all that are as near as the last of them; in no order."""
    if not documents:
        return []
    try:
        import numpy as np
    except ImportError:
        return _compare_plainly(documents, vectors, query, depth, only, never)
    numbers = np.frombuffer(documents, dtype=np.int64)
    matrix = np.frombuffer(vectors, dtype="<f4").reshape(len(numbers), -1)
    similarities = matrix @ np.frombuffer(query, dtype="<f4")
    counts = similarities > 0
    if only is not None:
        counts &= np.isin(numbers, list(only))
    if never:
        counts &= ~np.isin(numbers, list(never))
    numbers, similarities = numbers[counts], similarities[counts]
    if len(numbers) > depth:
        best = similarities >= np.partition(similarities, len(numbers) - depth)[len(numbers) - depth]
        numbers, similarities = numbers[best], similarities[best]
    return list(zip(numbers.tolist(), similarities.tolist(), strict=True))


def _compare_plainly(
    documents: array[int],
    vectors: bytearray,
    query: bytes,
    depth: int,
    only: Collection[int] | None,
    never: Collection[int],
) -> list[tuple[int, float]]:
    wanted, width = _floats(query), len(query)
    found = []
    for index, document in enumerate(documents):
        if document in never or (only is not None and document not in only):
            continue
        similarity = sum(map(mul, wanted, _floats(vectors[index * width : (index + 1) * width])))
        if similarity > 0:
            found.append((document, similarity))
    if len(found) > depth:
        least = sorted((similarity for _, similarity in found), reverse=True)[depth - 1]
        found = [pair for pair in found if pair[1] >= least]
    return found


def _floats(data: bytes | bytearray) -> array[float]:
    values = array("f", bytes(data))
    if sys.byteorder == "big":
        values.byteswap()
    return values
