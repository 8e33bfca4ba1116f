"""The `memorywire` package's models, to our memories and back; and a store of ours behind its protocol.

    from melete.wire.adapters.memorywire import MemorywireStore

    theirs = MemorywireStore(store)                          # isinstance(theirs, memorywire.store.MemoryStore)
    await theirs.remember(RememberRequest(agent_id="a", type="semantic", content="..."))
    memorywire.Memory("a", [theirs])                         # also beside the package's own stores

The package is imported when it is needed, and never by importing this module.

**Types.** Theirs are semantic, episodic, procedural and emotional. An emotional memory is refused, unless
`emotional=MemoryType...` says what it is to be here; then it is told apart by a tag, and comes back as emotional. Our
working memories have no counterpart there.

**Members that we do not have** (user, confidence, source, and their metadata) are kept in the metadata's member
`memorywire`; the user is also a tag, so that it scopes a recall before anything is ranked. Times are milliseconds
there and seconds here: an expiry is rounded up.

**What differs, on purpose.** Forgetting always erases: `hard_delete` is answered true whatever was asked. Ids are
UUIDs with hyphens; others are nobody's. `merge` with merge_content gives a new memory with a new id, which the answer
names, of contents joined by newlines, and needs one type. `expire` only forgets: there is no archive, no demotion, and
no record of recalls, so `no_recall_in_days` is refused. `approval_required` puts a write into the queue, and is refused
for types that need no approval. A recall filters by metadata, source, confidence and freshness among the best 1000 of
each type. `hops` counts for nothing, and the weighted fusion of one store is that of the best score.

Errors are ours; those of wrong requests are `ValueError`s, as the package's protocol wants them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from melete.canonical import Json
from melete.errors import ConfigurationError, InvalidInput, MeleteError
from melete.primitives import NOT_SHOWN, keccak256
from melete.wire.envelope import DEFAULT_TOP_K, MAX_TAG_LENGTH, MAX_TOP_K, MemoryType, is_valid_memory_id
from melete.wire.fusion import Fusion, fuse
from melete.wire.values import Memory, MemoryState

if TYPE_CHECKING:
    from memorywire import models

    from melete.wire.store import MemoryStore

T = TypeVar("T")

BACKEND_NAME: Final = "melete"
#: The member of our metadata that holds what we have no member for.
MEMBER: Final = "memorywire"
EMOTIONAL: Final = "emotional"
#: The tag of an emotional memory, and how a user's tag begins.
EMOTIONAL_TAG: Final = "memorywire:emotional"
USER_TAG: Final = "user:"
#: What a confidence that nobody gave is taken for.
FULL_CONFIDENCE: Final = 1.0
#: Memories that a filter or a policy looks through.
MOST_LISTED: Final = 1_000_000
_DAY: Final = 86_400
_TYPES: Final = (MemoryType.SEMANTIC, MemoryType.EPISODIC, MemoryType.PROCEDURAL)


def load_models() -> Any:
    """Return the package's models. Errors: `ConfigurationError` where the package is not installed."""
    try:
        from memorywire import models
    except ImportError:
        raise ConfigurationError("the adapter needs the package memorywire; run: pip install memorywire") from None
    return models


# Types


def to_memory_type(kind: str, emotional: MemoryType | None = None) -> MemoryType:
    """Return our type for one of theirs. Errors: `InvalidInput` for emotional, unless it is said what that is here."""
    name = getattr(kind, "value", kind)
    if name == EMOTIONAL:
        if emotional is None:
            rule = "semantic, episodic or procedural, unless the adapter is told what an emotional memory is to be here"
            raise InvalidInput("type", EMOTIONAL, rule)
        if emotional not in _TYPES:
            raise InvalidInput("emotional", str(emotional), "semantic, episodic or procedural")
        return MemoryType(emotional)
    if name not in tuple(_TYPES):
        raise InvalidInput("type", name if isinstance(name, str) else type(name).__name__, "a type of the package's")
    return MemoryType(name)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the package knows of a memory and we have no member for."""

    kind: str
    user_id: str | None
    metadata: dict[str, Json] | None
    confidence: float | None
    source: str | None

    @classmethod
    def of(cls, memory: Memory) -> Kept:
        """Return what a memory says; one that did not come from the package has its own metadata.

        Errors: `InvalidInput` for a working memory.
        """
        if memory.memory_type not in _TYPES:
            raise InvalidInput("memory_type", memory.memory_type.value, "a type that the package knows")
        kept = None if memory.metadata is None else memory.metadata.get(MEMBER)
        if not isinstance(kept, dict):
            return cls(memory.memory_type.value, None, memory.metadata, None, None)
        user_id, source, confidence, metadata = (
            kept.get(name) for name in ("user_id", "source", "confidence", "metadata")
        )
        return cls(
            EMOTIONAL if kept.get("type") == EMOTIONAL else memory.memory_type.value,
            user_id if isinstance(user_id, str) else None,
            metadata if isinstance(metadata, dict) else None,
            float(confidence) if isinstance(confidence, int | float) and not isinstance(confidence, bool) else None,
            source if isinstance(source, str) else None,
        )

    def to_metadata(self) -> dict[str, Json] | None:
        """Return our metadata, None for nothing to say."""
        members: dict[str, Json] = {
            "type": self.kind if self.kind == EMOTIONAL else None,
            "user_id": self.user_id,
            "confidence": self.confidence,
            "source": self.source,
            "metadata": self.metadata,
        }
        said: Json = {name: value for name, value in members.items() if value is not None}
        return {MEMBER: said} if said else None

    @property
    def tags(self) -> tuple[str, ...]:
        """Our tags: what a recall is scoped by."""
        user = () if self.user_id is None else (user_tag(self.user_id),)
        return (*user, EMOTIONAL_TAG) if self.kind == EMOTIONAL else user


def user_tag(user_id: str) -> str:
    """Return the tag of a user: the id itself, or a hash of one that is too long for a tag."""
    tag = USER_TAG + user_id
    return tag if len(tag) <= MAX_TAG_LENGTH else f"{USER_TAG}{keccak256(user_id.encode())}"


# Models


def to_remember(request: models.RememberRequest, now: int, emotional: MemoryType | None = None) -> dict[str, Any]:
    """Return the arguments of `MemoryStore.remember` for a request; `now` is the time in seconds since 1970.

    Errors: `InvalidInput` for a type that is none here, and for an expiry that is over.
    """
    kind = to_memory_type(request.type, emotional)
    ttl = None
    if request.expires_at is not None:
        ttl = -(-request.expires_at // 1000) - now
        if ttl <= 0:
            raise InvalidInput("expires_at", request.expires_at, "a time to come, in milliseconds since 1970")
    kept = Kept(_name_of(request.type), request.user_id, request.metadata, request.confidence, request.source)
    return {
        "memory_type": kind,
        "content": request.content,
        "agent_id": request.agent_id,
        "tags": kept.tags,
        "metadata": kept.to_metadata(),
        "ttl_seconds": ttl,
    }


def to_record(memory: Memory) -> models.Memory:
    """Return a memory as one of the package's records. Errors: `InvalidInput` for a working memory."""
    kept = Kept.of(memory)
    models = load_models()
    records = {
        "semantic": models.SemanticMemory,
        "episodic": models.EpisodicMemory,
        "procedural": models.ProceduralMemory,
        EMOTIONAL: models.EmotionalMemory,
    }
    return records[kept.kind](
        id=memory.id,
        agent_id=memory.agent_id,
        user_id=kept.user_id,
        content=memory.content,
        metadata=kept.metadata,
        confidence=kept.confidence,
        source=kept.source,
        created_at=memory.created_at * 1000,
        expires_at=None if memory.expires_at is None else memory.expires_at * 1000,
    )


def to_hit(memory: Memory, score: float) -> models.RecallHit:
    """Return a memory as one of the package's hits. Errors: as `to_record`."""
    kept = Kept.of(memory)
    models = load_models()
    return models.RecallHit(
        id=memory.id,
        type=models.MemoryType(kept.kind),
        content=memory.content,
        score=score,
        metadata=kept.metadata,
        created_at=memory.created_at * 1000,
        supporting=[],
        source_store=BACKEND_NAME,
    )


def _name_of(kind: str) -> str:
    return str(getattr(kind, "value", kind))


# The store


class MemorywireStore:
    """One of our stores, as the package's protocol has them. It does not close what it was given."""

    BACKEND_NAME: Final = BACKEND_NAME

    def __init__(self, store: MemoryStore, *, emotional: MemoryType | None = None) -> None:
        """Errors: `ConfigurationError` without the package; `InvalidInput` for an `emotional` that is no type."""
        self._models = load_models()
        if emotional is not None:
            to_memory_type(EMOTIONAL, emotional)
        self._store, self._emotional = store, emotional

    @property
    def capabilities(self) -> set[str]:
        """What this store can do, in the package's words."""
        found = {*(kind.value for kind in _TYPES), "fts", "governance"}
        if self._emotional is not None:
            found.add(EMOTIONAL)
        if self._store._core.embedder is not None:
            found.add("vector")
        return found

    async def health(self) -> dict[str, Any]:
        """Return how the store is; what keeps it from answering is told, and not raised."""
        return await asyncio.to_thread(self._health)

    async def remember(self, request: models.RememberRequest) -> models.RememberResponse:
        """Write a memory. Errors: as `to_remember`, and those of `MemoryStore.remember`."""
        return await asyncio.to_thread(self._remember, request)

    async def recall(self, request: models.RecallRequest) -> models.RecallResponse:
        """Return the best memories of some types, all by default. Errors: `InvalidInput`; those of the store."""
        return await asyncio.to_thread(self._recall, request)

    async def forget(self, request: models.ForgetRequest) -> models.ForgetResponse:
        """Erase memories by ids, by a filter, or both. Errors: `InvalidInput` for neither; those of the store."""
        return await asyncio.to_thread(self._forget, request)

    async def merge(self, request: models.MergeRequest) -> models.MergeResponse:
        """Make one memory of several, by ids or by `entity_name` in their metadata.

        Errors: `InvalidInput` for a canonical memory that is not there; those of the store.
        """
        return await asyncio.to_thread(self._merge, request)

    async def expire(self, request: models.ExpireRequest) -> models.ExpireResponse:
        """Erase what a policy matches. Errors: `InvalidInput` for a policy or an action that this store has not."""
        return await asyncio.to_thread(self._expire, request)

    def _health(self) -> dict[str, Any]:
        told: dict[str, Any] = {"backend": BACKEND_NAME, "store": self._store.label}
        try:
            count, head = self._store.count(), self._store.audit_head()
        except MeleteError as error:
            return {"status": "error", **told, "error": str(error)}
        return {"status": "ok", **told, "memory_count": count, "audit_number": head.number}

    # Remember

    def _remember(self, request: models.RememberRequest) -> models.RememberResponse:
        from melete.wire.approval import Queue
        from melete.wire.routing.copies import view

        now = self._store._core.now()
        arguments = to_remember(request, now, self._emotional)
        store = self._store
        if request.approval_required:
            if not arguments["memory_type"].is_long_term:
                rule = "left out: only semantic and procedural memories wait for approval"
                raise InvalidInput("approval_required", True, rule)
            store = view(store, approval=Queue())
        result = store.remember(**arguments)
        if not result.ok:
            raise InvalidInput("content", NOT_SHOWN, f"approved; it was {result.detail}")
        waits = result.approved is False
        return self._models.RememberResponse(
            id=result.ids[0],
            stored_at=now * 1000,
            stores=[] if waits else [BACKEND_NAME],
            pending_approval=waits,
            approval_url=None,
        )

    # Recall

    def _recall(self, request: models.RecallRequest) -> models.RecallResponse:
        started = time.monotonic()
        wanted = [_name_of(kind) for kind in request.types or ()] or [kind.value for kind in _TYPES]
        if not request.types and self._emotional is not None:
            wanted.append(EMOTIONAL)
        count = DEFAULT_TOP_K if request.k is None else request.k
        fusion = self._models.FusionAlgorithm.RRF if request.fusion is None else request.fusion
        method = Fusion.RRF if _name_of(fusion) == Fusion.RRF else Fusion.MAX
        shown: dict[str, Memory] = {}
        with self._store.snapshot():
            lists = [self._recall_type(request, kind, count, shown) for kind in dict.fromkeys(wanted)]
        return self._models.RecallResponse(
            results=[to_hit(shown[hit.id], hit.score) for hit in fuse(lists, count, method)],
            fusion_used=fusion,
            stores_queried=[BACKEND_NAME],
            latency_ms=int((time.monotonic() - started) * 1000),
        )

    def _recall_type(self, request: models.RecallRequest, kind: str, count: int, shown: dict[str, Memory]) -> list[Any]:
        """Return the hits of one of their types that pass the filters, and note their memories in `shown`."""
        tags = () if request.user_id is None else (user_tag(request.user_id),)
        if kind == EMOTIONAL:
            tags = (*tags, EMOTIONAL_TAG)
        since = None
        if request.fresher_than_days is not None:
            since = self._store._core.now() - request.fresher_than_days * _DAY
        depth = count
        while True:
            hits = self._store.recall(
                to_memory_type(kind, self._emotional), request.query, agent_id=request.agent_id, top_k=depth, tags=tags
            ).hits
            found = []
            for hit in hits:
                memory = shown.get(hit.id) or self._store.show(hit.id)
                kept = Kept.of(memory)
                is_fresh = since is None or memory.created_at >= since
                is_own = request.user_id is None or kept.user_id == request.user_id
                if kept.kind == kind and is_fresh and is_own and _matches(memory, kept, request.filter or {}):
                    shown[hit.id] = memory
                    found.append(hit)
            if len(found) >= count or len(hits) < depth or depth == MAX_TOP_K:
                return found[:count]
            depth = min(depth * 4, MAX_TOP_K)

    # Forget

    def _forget(self, request: models.ForgetRequest) -> models.ForgetResponse:
        if not request.ids and not request.filter:
            raise InvalidInput("ids", None, "ids or a filter; without either, everything would be forgotten")
        with self._store.transaction():
            chosen = {memory.id: memory for memory in self._find(request.agent_id, request.ids or ())}
            if request.filter:
                for memory in self._list(request.agent_id):
                    if _matches(memory, Kept.of(memory), request.filter):
                        chosen[memory.id] = memory
            if request.user_id is not None:
                chosen = {key: each for key, each in chosen.items() if Kept.of(each).user_id == request.user_id}
            self._erase(chosen.values())
        return self._models.ForgetResponse(
            forgotten_ids=list(chosen),
            hard_delete=True,
            stores=[self._models.ForgetStoreResult(store=BACKEND_NAME, count=len(chosen))],
            pending_approval=False,
            approval_url=None,
        )

    # Merge

    def _merge(self, request: models.MergeRequest) -> models.MergeResponse:
        strategies = self._models.MergeStrategy
        strategy = strategies.KEEP_CANONICAL if request.strategy is None else request.strategy
        survivor, merged, waits = request.canonical, 0, False
        with self._store.transaction():
            canonical = self._resolve(request.agent_id, request.canonical)
            ids = {memory.id for memory in canonical}
            named = [each for key in request.duplicates for each in self._resolve(request.agent_id, key)]
            others = {each.id: each for each in named if each.id not in ids}
            if others and not canonical:
                raise InvalidInput("canonical", request.canonical, "a memory of this agent, by id or by entity name")
            both = [*canonical, *others.values()]
            if strategy is strategies.KEEP_HIGHEST_CONFIDENCE and both:
                best = max(both, key=lambda memory: (_confidence_of(memory), -memory.number))
                lost = [memory for memory in both if memory is not best]
                survivor, merged = best.id, len(lost)
                self._erase(lost)
            elif strategy is strategies.MERGE_CONTENT and len(both) > 1:
                survivor, merged, waits = self._merge_contents(both)
            elif strategy is strategies.KEEP_CANONICAL:
                merged = len(others)
                self._erase(others.values())
        pending = {"pending_approval": True} if waits else {}
        return self._models.MergeResponse(
            canonical=survivor, merged_count=merged, strategy_used=strategy, stores=[BACKEND_NAME], **pending
        )

    def _merge_contents(self, memories: Sequence[Memory]) -> tuple[str, int, bool]:
        first = Kept.of(memories[0])
        metadata: dict[str, Json] = {}
        for memory in memories:
            metadata.update(Kept.of(memory).metadata or {})
        best = max(_confidence_of(memory) for memory in memories)
        kept = Kept(first.kind, first.user_id, metadata or None, best, first.source)
        result = self._store.merge(
            memories[0].memory_type,
            [memory.id for memory in memories],
            agent_id=memories[0].agent_id,
            metadata=kept.to_metadata(),
        )
        if not result.ok:
            raise InvalidInput("duplicates", NOT_SHOWN, f"approved; the merge was {result.detail}")
        waits = result.approved is False
        return result.ids[0], 0 if waits else len(memories) - 1, waits

    # Expire

    def _expire(self, request: models.ExpireRequest) -> models.ExpireResponse:
        policy, forget = request.policy, self._models.ExpireAction.FORGET
        named = (None,) if policy is None else (policy.older_than_days, policy.type, policy.confidence_below)
        if policy is not None and policy.no_recall_in_days is not None:
            raise InvalidInput("no_recall_in_days", policy.no_recall_in_days, "left out: recalls are not recorded")
        if policy is None or all(value is None for value in named):
            raise InvalidInput("policy", None, "an age, a type or a confidence; without any, everything would go")
        if request.action not in (None, forget):
            raise InvalidInput("action", _name_of(request.action), "forget: nothing is archived or demoted here")
        with self._store.transaction():
            before = None
            if policy.older_than_days is not None:
                before = self._store._core.now() - policy.older_than_days * _DAY
            matched = [
                memory
                for memory in self._list(request.agent_id)
                if (before is None or memory.created_at <= before)
                and (policy.type is None or Kept.of(memory).kind == _name_of(policy.type))
                and (policy.confidence_below is None or _confidence_of(memory) < policy.confidence_below)
            ]
            self._erase(matched)
        return self._models.ExpireResponse(matched_count=len(matched), action_taken=forget, stores=[BACKEND_NAME])

    # What all of them need

    def _list(self, agent_id: str) -> Iterator[Memory]:
        """Yield all of an agent's memories that can be recalled, oldest first."""
        from melete.wire.listing import list_ids

        for memory_id in list_ids(self._store, agent_id, _TYPES, MOST_LISTED):
            yield self._store.show(memory_id)

    def _resolve(self, agent_id: str, key: str) -> list[Memory]:
        """Return the memory with an id, or else those whose metadata gives them that name."""
        by_id = [memory for memory in self._find(agent_id, [key]) if memory.state is MemoryState.ACTIVE]
        if by_id:
            return by_id
        return [each for each in self._list(agent_id) if (Kept.of(each).metadata or {}).get("entity_name") == key]

    def _find(self, agent_id: str, ids: Iterable[str]) -> list[Memory]:
        """Return those of some memories that are an agent's, and were not merged; waiting ones too."""
        from melete.wire.routing.copies import show

        found = [show(memory_id, self._store) for memory_id in dict.fromkeys(ids) if is_valid_memory_id(memory_id)]
        return [
            memory
            for memory in found
            if memory is not None
            and memory.agent_id == agent_id
            and memory.state is not MemoryState.MERGED
            and memory.memory_type in _TYPES
        ]

    def _erase(self, memories: Iterable[Memory]) -> None:
        from melete.wire.routing.copies import forget_present

        by_scope: dict[tuple[str, MemoryType], list[str]] = {}
        for memory in memories:
            by_scope.setdefault((memory.agent_id, memory.memory_type), []).append(memory.id)
        for (agent_id, kind), ids in by_scope.items():
            forget_present(agent_id, kind, ids, self._store)


def _confidence_of(memory: Memory) -> float:
    confidence = Kept.of(memory).confidence
    return FULL_CONFIDENCE if confidence is None else confidence


def _matches(memory: Memory, kept: Kept, wanted: Mapping[str, Any]) -> bool:
    """Return whether a memory has all of some values: members of its own, or of its metadata, by dotted paths."""
    own: dict[str, Callable[[], object]] = {
        "agent_id": lambda: memory.agent_id,
        "user_id": lambda: kept.user_id,
        "type": lambda: kept.kind,
        "source": lambda: kept.source,
        "confidence": lambda: _confidence_of(memory),
    }
    for path, value in wanted.items():
        found: object = own[path]() if path in own else kept.metadata
        if path not in own:
            for name in path.split("."):
                found = found.get(name) if isinstance(found, dict) else None
        if found is None or found != getattr(value, "value", value):
            return False
    return True
