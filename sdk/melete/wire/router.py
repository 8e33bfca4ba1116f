"""Several stores as one: a memory has one id over all of them, and what is recalled is fused.

    places = {"here": "memories.db", "office": "postgresql://..."}      # create=True the first time
    with Router.open(places, debts="memories.owed") as router:
        found = router.remember(MemoryType.SEMANTIC, "prefers green tea")     # the same id in both stores
        router.recall(MemoryType.SEMANTIC, "which tea?").hits                 # one hit, though both have it
        found.failures                                                        # the stores that did not do it, and why
        router.retry()                                                        # do what is owed to them

A store that is down, slow or refuses does not keep the others from answering: each has threads of its own, and is
waited for at most `patience_seconds`. What failed is told by store, in `failures` and in `detail`. It is an error only
if no store did what was asked, or if nothing anywhere is as the request says (an unknown id, another agent's, another
type): then nothing was changed.

**What is owed.** `forget`, `expire` and `merge` reach every copy: what a store could not do is noted (see
`melete.wire.routing.debts`), and `retry` does it. Until then what was forgotten, has ended or was merged is not
recalled from that store either. A `remember` that a store missed is noted, too; the copy is made from a store that has
it, or not at all if it was forgotten since. A copy has its own audit entry and time of creation; content, tags,
metadata and end are the same. What a store's hook refuses is told, and not owed.

A router is not used inside a transaction of one of its stores, which its own threads would wait for.

**Recall.** Each store is asked for four times `top_k`, and 20 at the least; then see `melete.wire.fusion`. The content
shown is that of the first store, in the order in which they were given, that found the memory.

Source: decisions, memorywire, Fan-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from melete.canonical import Json
from melete.errors import CouldNotTell, InputError, MeleteError
from melete.wire.envelope import (
    DEFAULT_AGENT,
    DEFAULT_TOP_K,
    MAX_TOP_K,
    Envelope,
    MemoryType,
    Operation,
    Result,
    verify_agent_id,
    verify_memory_id,
)
from melete.wire.errors import MemoryMerged, UnknownId, UnknownMemory
from melete.wire.fusion import Fusion, fuse, parse_fusion
from melete.wire.operations import compute_deadline
from melete.wire.routing.copies import (
    Copy,
    expire_present,
    find_copies,
    forget_present,
    show,
    verify_copy,
    view,
    write_copies,
)
from melete.wire.routing.debts import Debt, Debts, Order
from melete.wire.routing.errors import NoStoreAnswered
from melete.wire.routing.failures import StoreFailure
from melete.wire.routing.fleet import Fleet, Found, Opener, describe
from melete.wire.routing.settling import Settler, load_missing
from melete.wire.store import MemoryStore, fresh_id, system_clock
from melete.wire.values import Memory, MemoryState

#: How long a store is waited for.
PATIENCE_SECONDS: Final = 10.0
#: Of a store, at least so many hits are fused, and so many times `top_k`.
LEAST_DEPTH: Final = 20
DEPTH_FACTOR: Final = 4
#: What a forget makes pointless.
_SUPERSEDED: Final = (Operation.REMEMBER, Operation.EXPIRE, Operation.MERGE)


@dataclass(frozen=True, slots=True)
class RoutedResult(Result):
    """A result of several stores: `answered` did what was asked, in their order; `failures` are the others.

    The JSON form is that of any result; who failed is told there in `detail`.
    """

    answered: tuple[str, ...] = ()
    failures: tuple[StoreFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class Retried:
    """What `retry` did: debts that are settled, those that stay, and the stores that failed again."""

    settled: tuple[Debt, ...]
    owed: tuple[Debt, ...]
    failures: tuple[StoreFailure, ...]


class Router:
    """Stores that act as one, by name. The order of the names is the order in which stores count."""

    def __init__(
        self,
        stores: Mapping[str, MemoryStore | Opener],
        *,
        debts: str | Path | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        fusion: Fusion = Fusion.RRF,
        clock: Callable[[], int] = system_clock,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        """Take open stores, or functions that open one: these are called when a store is needed, and again if it fails.

        `debts` is the file that notes what is owed; without one, that is forgotten with the router, and every failure
        that is owed says so. A store's name stands in there, so it must stay the same. Stores that were open before
        are not closed by `close`.
        Errors: `InvalidInput`; `StoreUnreadable` and the like for the file of debts.
        """
        self._fusion = parse_fusion(fusion)
        self._fleet = Fleet(stores, patience_seconds)
        self._debts = Debts(None if debts is None else Path(debts))
        self._settler = Settler(self._fleet, self._debts, clock)
        self._clock, self._new_id = clock, new_id

    @classmethod
    def open(
        cls,
        stores: Mapping[str, str | Path],
        *,
        create: bool = False,
        debts: str | Path | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        fusion: Fusion = Fusion.RRF,
        clock: Callable[[], int] = system_clock,
        new_id: Callable[[], str] = fresh_id,
        **options: Any,
    ) -> Router:
        """Name stores by path or URL; each is opened when it is needed, with the options of `MemoryStore.open`.

        A store that is missing has failed, and is owed what the others did: an empty one in its place would take a
        forget for done that a store which comes back has not heard of. `create` makes the stores that there are not
        yet, here and now: one that cannot be made now has failed until it is there. Errors: as `Router`.
        """
        openers: dict[str, MemoryStore | Opener] = {
            name: partial(MemoryStore.open, place, create=False, clock=clock, **options)
            for name, place in stores.items()
        }
        router = cls(openers, debts=debts, patience_seconds=patience_seconds, fusion=fusion, clock=clock, new_id=new_id)
        for place in stores.values() if create else ():
            with suppress(MeleteError):
                MemoryStore.open(place, clock=clock, **options).close()
        return router

    def close(self) -> None:
        """End the threads, and close the stores that were opened here, unless one is at something for too long."""
        self._fleet.close()
        self._debts.close()

    def __enter__(self) -> Router:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Router({', '.join(map(ascii, self.names))})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stores, in order."""
        return self._fleet.names

    # The five operations

    def execute(self, envelope: Envelope, writer: str | None = None) -> RoutedResult:
        """Do what an envelope asks, in every store.

        Errors: those of `MemoryStore.execute` where all stores say the same, or nothing was changed anywhere;
        `NoStoreAnswered` when every store failed otherwise.
        """
        if writer is not None:
            verify_agent_id(writer, "writer")
        if envelope.op is Operation.REMEMBER:
            return self._remember(envelope, writer)
        if envelope.op is Operation.RECALL:
            return self._recall(envelope, self._fusion)
        if envelope.op is Operation.FORGET:
            return self._forget(envelope)
        if envelope.op is Operation.MERGE:
            return self._merge(envelope, writer)
        return self._expire(envelope)

    def remember(
        self,
        memory_type: MemoryType,
        content: str,
        *,
        agent_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: dict[str, Json] | None = None,
        ttl_seconds: int | None = None,
        writer: str | None = None,
    ) -> RoutedResult:
        """Write one memory, under one id in every store. Errors: see `execute`."""
        envelope = Envelope(
            Operation.REMEMBER,
            memory_type,
            agent_id=agent_id,
            content=content,
            tags=tuple(tags),
            ttl_seconds=ttl_seconds,
            metadata=metadata,
        )
        return self.execute(envelope, writer)

    def recall(
        self,
        memory_type: MemoryType,
        query: str,
        *,
        agent_id: str | None = None,
        top_k: int | None = None,
        tags: Sequence[str] = (),
        fusion: Fusion | None = None,
    ) -> RoutedResult:
        """Return the best memories over all stores, each once. Errors: see `execute`; `InvalidInput` for `fusion`."""
        envelope = Envelope(
            Operation.RECALL, memory_type, agent_id=agent_id, query=query, top_k=top_k, tags=tuple(tags)
        )
        return self._recall(envelope, self._fusion if fusion is None else parse_fusion(fusion))

    def forget(
        self, memory_type: MemoryType, memory_ids: Sequence[str], *, agent_id: str | None = None
    ) -> RoutedResult:
        """Erase memories from every store that has them. Errors: see `execute`."""
        return self._forget(Envelope(Operation.FORGET, memory_type, agent_id=agent_id, memory_ids=tuple(memory_ids)))

    def merge(
        self,
        memory_type: MemoryType,
        memory_ids: Sequence[str],
        *,
        agent_id: str | None = None,
        tags: Sequence[str] = (),
        metadata: dict[str, Json] | None = None,
        ttl_seconds: int | None = None,
        writer: str | None = None,
    ) -> RoutedResult:
        """Write one memory of several, under one id in every store; sources that a store lacks are copied there first.

        Errors: see `execute`.
        """
        envelope = Envelope(
            Operation.MERGE,
            memory_type,
            agent_id=agent_id,
            memory_ids=tuple(memory_ids),
            tags=tuple(tags),
            ttl_seconds=ttl_seconds,
            metadata=metadata,
        )
        return self.execute(envelope, writer)

    def expire(
        self,
        memory_type: MemoryType,
        memory_ids: Sequence[str],
        *,
        agent_id: str | None = None,
        ttl_seconds: int | None = None,
    ) -> RoutedResult:
        """Let memories end in every store that has them. Errors: see `execute`."""
        envelope = Envelope(
            Operation.EXPIRE, memory_type, agent_id=agent_id, memory_ids=tuple(memory_ids), ttl_seconds=ttl_seconds
        )
        return self._expire(envelope)

    # Approval, looking

    def approve(self, memory_id: str, by: str) -> RoutedResult:
        """Carry out a write that waits in several stores. A store that fails can be asked again, for itself or here.

        Errors: those of `MemoryStore.approve` where every store says so; `NoStoreAnswered`.
        """
        verify_memory_id(memory_id)
        return self._combine(self._fleet.ask(lambda store: store.approve(memory_id, by), writes=True))

    def reject(self, memory_id: str, by: str) -> RoutedResult:
        """Refuse a write that waits in several stores, and erase its content. Errors: as `approve`."""
        verify_memory_id(memory_id)
        return self._combine(self._fleet.ask(lambda store: store.reject(memory_id, by), writes=True))

    def show(self, memory_id: str) -> Memory:
        """Return one memory from the first store that has it, whatever its state.

        Errors: `UnknownMemory` if no store has it; `NoStoreAnswered` if those that answered have not.
        """
        verify_memory_id(memory_id)
        shown = self._fleet.ask(partial(show, memory_id))
        hidden = {(debt.store, each) for debt in self._debts.load() if _is_gone(debt) for each in debt.memory_ids}
        for name, memory in shown.answers_in(self.names):
            if memory is not None and (name, memory_id) not in hidden:
                return memory
        if shown.failures:
            raise NoStoreAnswered(shown.failures_in(self.names))
        raise UnknownId(memory_id, "any")

    # What is owed

    def owed(self) -> tuple[Debt, ...]:
        """Return what stores have not done yet, oldest first. Errors: `StoreUnreadable`, `StoreBusy`."""
        return self._debts.load()

    def retry(self) -> Retried:
        """Do what is owed, oldest first; a store that cannot be reached is left alone until the next time.

        Also what was begun by a router that was killed: a forget or an expiry is done everywhere, a merge if any store
        did it. Debts to stores that this router does not have stay. Errors: as `owed`.
        """
        return self._settle_in_order(self._debts.load())

    def _settle_in_order(self, debts: Sequence[Debt]) -> Retried:
        """Settle debts in order: nothing about a memory before what came earlier is done."""
        settled: list[Debt] = []
        failures: list[StoreFailure] = []
        out_of_reach: set[str] = set()
        blocked: set[tuple[str, str]] = set()
        for debt in debts:
            about = {(debt.store, memory_id) for memory_id in _ids_of(debt)}
            if debt.store not in self.names or debt.store in out_of_reach or about & blocked:
                continue
            error = self._settler.settle(debt)
            if error is None:
                self._debts.conclude(settled=[debt.number])
                settled.append(debt)
                continue
            blocked |= about
            failures.append(
                StoreFailure(debt.store, describe(error), error, is_owed=True, outlasts=self._debts.outlasts)
            )
            if isinstance(error, CouldNotTell):
                out_of_reach.add(debt.store)
        return Retried(tuple(settled), self._debts.load(), tuple(failures))

    def _catch_up(self, ids: Sequence[str]) -> Found[dict[str, Copy]]:
        """Settle what is owed about some memories, and return the stores that cannot take anything new about them.

        Stores that do the same things in the same order end up the same.
        """
        about, debts = set(ids), self._debts.load()
        while more := {each for debt in debts if not about.isdisjoint(_ids_of(debt)) for each in _ids_of(debt)} - about:
            about |= more
        retried = self._settle_in_order([debt for debt in debts if not about.isdisjoint(_ids_of(debt))])
        found: Found[dict[str, Copy]] = Found()
        for failure in retried.failures:
            reason = f"something earlier is owed about it ({failure.reason})"
            found.failures.setdefault(failure.store, StoreFailure(failure.store, reason, failure.error))
        return found

    # Remember

    def _remember(self, envelope: Envelope, writer: str | None) -> RoutedResult:
        memory_id = self._new_id()
        agent_id, kind, now = _agent_of(envelope), envelope.memory_type, self._clock()
        taken_back = Order(Operation.FORGET, agent_id, kind, (memory_id,), now)
        found: Found[Result] | None = None
        try:
            found = self._fleet.ask(
                lambda store: view(store, memory_id=memory_id).execute(envelope, writer), writes=True
            )
        finally:
            if found is None:  # a hook failed in one store; what others wrote has an id that nobody is told
                self._debts.note(taken_back, self.names, intended=False)
        if any(result.ok for result in found.answers.values()):
            missed = _find_owing(found)
            order = Order(Operation.REMEMBER, agent_id, kind, (memory_id,), now, writer=writer)
            self._debts.note(order, missed, intended=False)
            return self._combine(found.owing(missed, outlasts=self._debts.outlasts))
        # Who is late may still write it.
        self._debts.note(taken_back, sorted(found.late), intended=False)
        return self._combine(found)

    # Recall

    def _recall(self, envelope: Envelope, fusion: Fusion) -> RoutedResult:
        top_k = DEFAULT_TOP_K if envelope.top_k is None else envelope.top_k
        depth = top_k if len(self.names) == 1 else max(top_k * DEPTH_FACTOR, LEAST_DEPTH)
        hidden = self._find_hidden(_agent_of(envelope), envelope.memory_type)

        def recall(depth: int, store: MemoryStore) -> Result:
            return store.recall(
                envelope.memory_type,
                envelope.query or "",
                agent_id=envelope.agent_id,
                top_k=min(depth, MAX_TOP_K),
                tags=envelope.tags,
            )

        found = self._fleet.ask_each({name: partial(recall, depth + len(hidden.get(name, ()))) for name in self.names})
        combined = self._combine(found)
        lists = [
            [hit for hit in result.hits if hit.id not in hidden.get(name, ())]
            for name, result in found.answers_in(self.names)
        ]
        return RoutedResult(
            Operation.RECALL,
            ok=True,
            hits=fuse(lists, top_k, fusion),
            detail=combined.detail,
            answered=combined.answered,
            failures=combined.failures,
        )

    def _find_hidden(self, agent_id: str, memory_type: MemoryType) -> dict[str, set[str]]:
        """Return, by store, the ids that it should not have any more, or not as they are."""
        hidden: dict[str, set[str]] = {}
        now = self._clock()
        for debt in self._debts.load():
            if (debt.agent_id, debt.memory_type) == (agent_id, memory_type):
                has_ended = debt.operation is Operation.EXPIRE and (debt.expires_at or 0) <= now
                if has_ended or _is_gone(debt) or (debt.operation is Operation.MERGE and not debt.is_intended):
                    hidden.setdefault(debt.store, set()).update(debt.memory_ids)
        return hidden

    # Forget

    def _forget(self, envelope: Envelope) -> RoutedResult:
        agent_id, kind, ids = _agent_of(envelope), envelope.memory_type, envelope.memory_ids
        looked = self._look(ids)
        self._require(looked, ids, agent_id, kind, also=ids)
        ids = self._with_owed_sources(ids)
        numbers = self._debts.note(
            Order(Operation.FORGET, agent_id, kind, ids, self._clock()), self.names, intended=True
        )
        first = min(numbers.values())
        self._debts.release(ids, _SUPERSEDED, first)
        failed: Found[Result] = Found()
        failed.add_failures(looked)
        wanted, gone, details = list(ids), dict[str, None](), dict[str, str]()
        while True:
            # Until nobody has any of them: one may have been taken up in another, or was just copied from elsewhere.
            names = [name for name in self.names if name not in failed.failures]
            forget = partial(forget_present, agent_id, kind, tuple(wanted))
            asked = self._fleet.ask_each(dict.fromkeys(names, forget), writes=True)
            failed.add_failures(asked)
            for name, result in asked.answers.items():
                gone.update(dict.fromkeys(result.ids))
                details[name] = details.get(name, "") or result.detail
            more = [memory_id for memory_id in gone if memory_id not in wanted]
            if more:
                wanted += more
                self._debts.widen(list(numbers.values()), wanted)
                self._debts.release(more, _SUPERSEDED, first)
            if not any(result.ids for result in asked.answers.values()):
                break
        answered = [name for name in self.names if name not in failed.failures]
        self._debts.conclude(
            settled=[numbers[name] for name in answered], owed=[numbers[name] for name in failed.failures]
        )
        done = tuple(memory_id for memory_id in wanted if memory_id in gone)
        for name in answered:
            detail = details[name] or ("" if done else "no store that answered has it any more")
            failed.answers[name] = Result(
                Operation.FORGET, ok=bool(done) or not failed.failures, ids=done, detail=detail
            )
        return self._combine(failed.owing(failed.failures, outlasts=self._debts.outlasts))

    # Expire

    def _expire(self, envelope: Envelope) -> RoutedResult:
        agent_id, kind, ids = _agent_of(envelope), envelope.memory_type, envelope.memory_ids
        ttl, now = envelope.ttl_seconds or 0, self._clock()
        expires_at = compute_deadline(now, ttl)
        looked = self._look(ids, behind=self._catch_up(ids))
        self._require(looked, ids, agent_id, kind, active=True)
        order = Order(Operation.EXPIRE, agent_id, kind, ids, now, expires_at=expires_at)
        numbers = self._debts.note(order, self.names, intended=True)
        self._debts.release(ids, (Operation.EXPIRE,), min(numbers.values()))
        expire = partial(expire_present, agent_id, kind, ids, ttl)
        asked = self._fleet.ask_each(dict.fromkeys(looked.answers, expire), writes=True)
        asked.add_failures(looked)
        self._debts.conclude(
            settled=[numbers[name] for name in asked.answers], owed=[numbers[name] for name in asked.failures]
        )
        done = {memory_id for ended in asked.answers.values() for memory_id in ended}
        kept = tuple(memory_id for memory_id in ids if memory_id in done)
        results = {name: Result(Operation.EXPIRE, ok=bool(kept), ids=kept) for name in asked.answers}
        return self._combine(
            Found(results, asked.failures, asked.late).owing(asked.failures, outlasts=self._debts.outlasts)
        )

    # Merge

    def _merge(self, envelope: Envelope, writer: str | None) -> RoutedResult:
        agent_id, kind, ids = _agent_of(envelope), envelope.memory_type, envelope.memory_ids
        looked = self._look(ids, behind=self._catch_up(ids))
        self._require(looked, ids, agent_id, kind, active=True)
        sources = load_missing(self._fleet, looked, ids, self.names)
        into = self._new_id()
        order = Order(Operation.MERGE, agent_id, kind, ids, self._clock(), into=into, writer=writer)
        numbers = self._debts.note(order, self.names, intended=True)

        def merge(store: MemoryStore) -> Result:
            target = view(store, memory_id=into)
            if not sources:
                return target.execute(envelope, writer)
            with store.transaction():
                write_copies(sources, None, store)
                return target.execute(envelope, writer)

        found = self._fleet.ask_each(dict.fromkeys(looked.answers, merge), writes=True)
        found.add_failures(looked)
        if any(result.ok for result in found.answers.values()):
            missed = _find_owing(found)
            settled = [numbers[name] for name in self.names if name not in missed]
            # What waits for approval may be rejected yet: until then it is only intended.
            waits = any(result.approved is False for result in found.answers.values())
            self._debts.conclude(settled=settled, owed=[] if waits else [numbers[name] for name in missed])
            return self._combine(found.owing(missed, outlasts=self._debts.outlasts))
        if not found.late - looked.late:
            self._debts.conclude(settled=list(numbers.values()))
        # Otherwise a store may still do it: what was intended stays noted, and `retry` finds out.
        return self._combine(found)

    # Looking before anything is done

    def _look(self, ids: Sequence[str], behind: Found[dict[str, Copy]] | None = None) -> Found[dict[str, Copy]]:
        """Return what stores know of some memories; those that are behind count as failed."""
        names = [name for name in self.names if behind is None or name not in behind.failures]
        looked = self._fleet.ask_each(dict.fromkeys(names, lambda store: find_copies(store, ids)))
        if behind is not None:
            looked.add_failures(behind)
        return looked

    def _with_owed_sources(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Return ids, and those of memories that stores still have to merge into them."""
        wanted = dict.fromkeys(ids)
        debts = [debt for debt in self._debts.load() if debt.into is not None]
        while more := [each for debt in debts if debt.into in wanted for each in debt.memory_ids if each not in wanted]:
            wanted.update(dict.fromkeys(more))
        return tuple(wanted)

    def _require(
        self,
        looked: Found[dict[str, Copy]],
        ids: Sequence[str],
        agent_id: str,
        memory_type: MemoryType,
        *,
        also: Sequence[str] = (),
        active: bool = False,
    ) -> None:
        """Raise what a store would raise for the first id that is not as it should be, wherever that is known.

        An id that no store knows passes, if it need not be active, while something is owed about it, or a store cannot
        be asked. Errors: `UnknownMemory`, `OtherMemoryType`, `MemoryMerged`; `NoStoreAnswered`.
        """
        failures = looked.failures_in(self.names)
        if not looked.answers:
            raise NoStoreAnswered(failures)
        own = [debt for debt in self._debts.load() if (debt.agent_id, debt.memory_type) == (agent_id, memory_type)]
        owed = {memory_id for debt in own for memory_id in _ids_of(debt)}
        merges = {each: debt.into for debt in own if debt.into and not debt.is_intended for each in debt.memory_ids}
        for memory_id in ids:
            copies = [known[memory_id] for _, known in looked.answers_in(self.names) if memory_id in known]
            for copy in copies:
                verify_copy(copy, memory_id, agent_id, memory_type, also)
            if merges.get(memory_id, memory_id) not in (memory_id, *also):
                raise MemoryMerged(memory_id, merges[memory_id])
            if any(copy.state is MemoryState.ACTIVE for copy in copies) or (copies and not active):
                continue
            if active and failures and not copies:
                raise NoStoreAnswered(failures)
            if active or not (failures or memory_id in owed):
                raise UnknownMemory(memory_id, agent_id)

    # One answer

    def _combine(self, found: Found[Result]) -> RoutedResult:
        """Return one result for all. Errors: what a store refuses where none does it, or `NoStoreAnswered`."""
        results = list(found.answers_in(self.names))
        failures = list(found.failures_in(self.names))
        if not results:
            _raise_refusal(failures)
            raise NoStoreAnswered(tuple(failures))
        done = [(name, result) for name, result in results if result.ok]
        if done:
            failures += [StoreFailure(name, result.detail or "refused") for name, result in results if not result.ok]
            failures.sort(key=lambda failure: self.names.index(failure.store))
        told = done or results
        approvals = [result.approved for _, result in told if result.approved is not None]
        return RoutedResult(
            told[0][1].op,
            ok=bool(done),
            ids=told[0][1].ids,
            approved=all(approvals) if approvals else None,
            detail="; ".join([*_tell(told), *(failure.text for failure in failures)]),
            answered=tuple(name for name, _ in told),
            failures=tuple(failures),
        )


def _agent_of(envelope: Envelope) -> str:
    return DEFAULT_AGENT if envelope.agent_id is None else envelope.agent_id


def _ids_of(debt: Debt) -> tuple[str, ...]:
    return debt.memory_ids if debt.into is None else (*debt.memory_ids, debt.into)


def _is_gone(debt: Debt) -> bool:
    return debt.operation is Operation.FORGET


def _find_owing(found: Found[Result]) -> list[str]:
    """Return the stores that failed, but for those that can never do it: the request itself is wrong for them."""
    return [name for name, failure in found.failures.items() if not isinstance(failure.error, InputError)]


def _raise_refusal(failures: Sequence[StoreFailure]) -> None:
    """Raise what a store refused, rather than that another one could not be asked; wrong requests before all else."""
    refusals = [each.error for each in failures if each.error is not None and not isinstance(each.error, CouldNotTell)]
    for error in sorted(refusals, key=lambda error: not isinstance(error, InputError)):
        raise error


def _tell(results: Sequence[tuple[str, Result]]) -> Iterator[str]:
    """Yield what stores have to say; once, where all say the same."""
    details = {result.detail for _, result in results}
    if len(details) == 1:
        yield from filter(None, details)
        return
    yield from (f"{name}: {result.detail}" for name, result in results if result.detail)
