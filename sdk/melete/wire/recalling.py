"""Recalling: the best memories for a query, in one unchanging state of the store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from melete.wire.cells import altered, number_of, read_content, read_int, read_tags
from melete.wire.embedding import verify_dimensions
from melete.wire.engines import Database, Match
from melete.wire.envelope import DEFAULT_TOP_K, Envelope, Hit, MemoryType, Operation, Result
from melete.wire.errors import EnvelopeError
from melete.wire.operations import agent_of
from melete.wire.prepared import Prepared
from melete.wire.search import DEPTH, Scope, fuse_ranks, rank_words, take_best, to_float32
from melete.wire.tables import AnyRow, memories, meta, scopes
from melete.wire.words import SIZE_BITS, tag_term
from melete.wire.writing import Core

_SCOPE: Final = Prepared(
    select(
        scopes.c.id,
        scopes.c.documents,
        scopes.c.words,
        scopes.c.since,
        scopes.c.removals,
        meta.c.number,
        meta.c.hash,
        meta.c.dimensions,
        # Written so that the index of expiring memories gives it at once.
        select(func.min(memories.c.expires_at)).where(memories.c.expires_at.is_not(None)).scalar_subquery(),
    )
    .join(meta, meta.c.id == 1)
    .where(scopes.c.agent == bindparam("agent"), scopes.c.type == bindparam("type"))
)
#: So many more rows than hits are read at once, content included, to put equal scores in order.
_SPARE: Final = 16


def recall(core: Core, envelope: Envelope) -> Result:
    """Return the hits for a query; none for a query without words."""
    query = envelope.query
    assert query is not None  # an envelope to recall has a query
    top_k = DEFAULT_TOP_K if envelope.top_k is None else envelope.top_k
    wanted = core.embed(query) if query else None
    names = {"agent": agent_of(envelope), "type": envelope.memory_type.value}
    with core.reading() as connection:
        row = _SCOPE.run(connection, names).fetchone()
        if row is None:
            return Result(Operation.RECALL, ok=True)
        *numbers, digest, dimensions, earliest = row
        if {*map(type, numbers)} != {int}:
            raise altered(0, "the counts of a scope")
        scope = Scope(*numbers)
        now = core.time_after(connection, scope.head, digest)
        expired_by = now if earliest is not None and read_int(earliest, scope.head) <= now else None
        scores = rank_words(core.database, connection, scope, query, envelope.tags, top_k, expired_by)
        if wanted is not None and core.embedder is not None:
            verify_dimensions(dimensions, core.embedder)
            scores = _fuse(core, connection, scope, envelope.tags, scores, wanted, top_k, expired_by)
        best = _best_rows(core.database, connection, scores, top_k) if scores else []
        hits = [_to_hit(row, envelope.memory_type, scores[row[0]]) for row in best]
    return Result(Operation.RECALL, ok=True, hits=tuple(hits))


def _to_hit(row: AnyRow, memory_type: MemoryType, score: float) -> Hit:
    document, memory_id, content, tags = row
    number = document >> SIZE_BITS
    try:
        return Hit(memory_id, read_content(content, number), memory_type, to_float32(score), read_tags(tags, number))
    except EnvelopeError:  # what no store has written
        raise altered(number) from None


def _best_rows(database: Database, connection: Connection, scores: dict[int, float], count: int) -> list[AnyRow]:
    best = take_best(scores, count)
    if len(best) > count + _SPARE:
        best = {document: best[document] for document in _in_order(database, connection, best)[:count]}
    rows = _with_ids(database.load_documents(connection, "document, id, content, tags", list(best)))
    rows.sort(key=lambda row: (-to_float32(best[row[0]]), row[1]))
    return rows[:count]


def _in_order(database: Database, connection: Connection, scores: dict[int, float]) -> list[int]:
    """Return documents by score, and by id where scores are equal."""
    rows = _with_ids(database.load_documents(connection, "document, id", list(scores)))
    rows.sort(key=lambda row: (-to_float32(scores[row[0]]), row[1]))
    return [row[0] for row in rows]


def _with_ids(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Return rows of documents once each has an id. Errors: `BrokenAudit`."""
    if {type(row[1]) for row in rows} - {str}:
        raise altered(min(number_of(row[0]) for row in rows if type(row[1]) is not str))
    return list(rows)


def _fuse(
    core: Core,
    connection: Connection,
    scope: Scope,
    tags: Sequence[str],
    by_words: dict[int, float],
    wanted: bytes,
    top_k: int,
    now: int | None,
) -> dict[int, float]:
    """Return reciprocal-rank scores of what words and vectors find."""
    depth = max(DEPTH, top_k)
    only: Collection[int] | None = None
    if tags:
        match = Match(tuple(tag_term(scope.id, tag) for tag in tags), scope.documents)
        only = set(core.database.find_documents(connection, [match], now)[0])
    never: Collection[int] = ()
    if now is not None:
        ended = select(memories.c.document).where(memories.c.scope == scope.id, memories.c.expires_at <= now)
        never = set(connection.execute(ended).scalars())
    near = core.vectors.find_nearest(
        connection,
        scope.id,
        scope.removals,
        wanted,
        depth,
        only=only,
        never=never,
        keep=not core.database.is_writing,
    )
    lists = (take_best(by_words, depth), dict(near))
    return fuse_ranks(_in_order(core.database, connection, scores)[:depth] for scores in lists)
