"""Doing what is owed to a store, from what the other stores have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from melete.errors import MeleteError, StoreBusy
from melete.wire.envelope import Operation
from melete.wire.errors import MemoryTaken, UnknownMemory
from melete.wire.routing.copies import Copy, expire_present, find_copies, forget_present, show, view, write_copies
from melete.wire.routing.debts import Debt, Debts, Order
from melete.wire.routing.fleet import Call, Fleet, Found
from melete.wire.store import MemoryStore
from melete.wire.values import Memory, MemoryState


class Settler:
    """Settles debts, one at a time."""

    def __init__(self, fleet: Fleet, debts: Debts, clock: Callable[[], int]) -> None:
        self._fleet, self._debts, self._clock = fleet, debts, clock

    def settle(self, debt: Debt) -> MeleteError | None:
        """Do what a debt says, and return why it could not be done; None when it is done, or has become pointless."""
        if debt.operation is Operation.FORGET:
            return self._at(debt, partial(forget_present, debt.agent_id, debt.memory_type, debt.memory_ids))
        if debt.operation is Operation.EXPIRE:
            ttl = max(0, (debt.expires_at or 0) - self._clock())
            return self._at(debt, partial(expire_present, debt.agent_id, debt.memory_type, debt.memory_ids, ttl))
        written = debt.into or debt.memory_ids[0]
        shown = self._fleet.ask(partial(show, written))
        if debt.store in shown.failures:
            return _error_of(shown, debt.store)
        if shown.answers[debt.store] is not None:
            return None  # it has it by now
        having = next((memory for _, memory in shown.answers_in(self._fleet.names) if memory is not None), None)
        if having is None and shown.failures:
            return next(_error_of(shown, name) for name in shown.failures)  # who cannot be asked may still have it
        if debt.operation is Operation.MERGE:
            error = self._settle_merge(debt, having)
        else:
            error = None if having is None else self._at(debt, partial(write_copies, [having], debt.writer))
        return error if error is not None or having is None else self._take_back(debt, written)

    def _settle_merge(self, debt: Debt, result: Memory | None) -> MeleteError | None:
        if result is None and debt.is_intended:
            return None  # it never happened
        if result is None or result.state is MemoryState.EXPIRED:
            # Elsewhere the sources went with it.
            return self._at(debt, partial(expire_present, debt.agent_id, debt.memory_type, debt.memory_ids, 0))
        looked = self._fleet.ask(partial(_find_copies, debt.memory_ids))
        if debt.store in looked.failures:
            return _error_of(looked, debt.store)
        sources = load_missing(self._fleet, looked, debt.memory_ids, [debt.store])
        return self._at(debt, partial(self._merge, debt, result, sources))

    def _merge(self, debt: Debt, result: Memory, sources: Sequence[Memory], store: MemoryStore) -> None:
        ttl = None if result.expires_at is None else max(1, result.expires_at - self._clock())
        try:
            with store.transaction():
                write_copies(sources, None, store)
                view(store, memory_id=result.id).merge(
                    debt.memory_type,
                    debt.memory_ids,
                    agent_id=debt.agent_id,
                    tags=result.tags,
                    metadata=result.metadata,
                    ttl_seconds=ttl,
                    writer=debt.writer,
                )
        except UnknownMemory:
            # A source has ended since, and what took it up was given more time.
            write_copies([result], debt.writer, store)
            expire_present(debt.agent_id, debt.memory_type, debt.memory_ids, 0, store)

    def _at(self, debt: Debt, call: Call[object]) -> MeleteError | None:
        asked = self._fleet.ask_each({debt.store: call}, writes=True)
        if debt.store not in asked.failures or isinstance(asked.failures[debt.store].error, MemoryTaken):
            return None
        return _error_of(asked, debt.store)

    def _take_back(self, debt: Debt, memory_id: str) -> MeleteError | None:
        """Undo a copy of what was forgotten everywhere else while it was made."""
        others = [name for name in self._fleet.names if name != debt.store]
        shown = self._fleet.ask_each(dict.fromkeys(others, partial(show, memory_id)))
        if shown.failures or any(memory is not None for memory in shown.answers.values()):
            return None
        order = Order(Operation.FORGET, debt.agent_id, debt.memory_type, (memory_id, *debt.memory_ids), self._clock())
        number = self._debts.note(order, [debt.store], intended=False)[debt.store]
        error = self._at(debt, partial(forget_present, debt.agent_id, debt.memory_type, order.memory_ids))
        if error is None:
            self._debts.conclude(settled=[number])
        return None


def load_missing(
    fleet: Fleet, looked: Found[dict[str, Copy]], memory_ids: Sequence[str], names: Sequence[str]
) -> list[Memory]:
    """Return those of some memories that some stores lack, whole, from the first store that has each of them."""
    lacking = [known for name, known in looked.answers_in(fleet.names) if name in names]
    memories: list[Memory] = []
    for memory_id in memory_ids:
        if all(memory_id in known for known in lacking):
            continue
        for name, known in looked.answers_in(fleet.names):
            if memory_id in known and known[memory_id].state is not MemoryState.PENDING:
                shown = fleet.ask_each({name: partial(show, memory_id)})
                memories += [memory for memory in shown.answers.values() if memory is not None]
                break
    return memories


def _find_copies(memory_ids: Sequence[str], store: MemoryStore) -> dict[str, Copy]:
    return find_copies(store, memory_ids)


def _error_of(found: Found[object] | Found[Memory | None] | Found[dict[str, Copy]], name: str) -> MeleteError:
    return found.failures[name].error or StoreBusy(name, "it did not say why")
