"""Asking several stores at the same time, and waiting for none of them without bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Generic, TypeVar

from melete.errors import InvalidInput, MeleteError, StoreBusy, StoreUnreadable
from melete.primitives import is_utf8
from melete.wire.routing.failures import StoreFailure
from melete.wire.routing.lanes import Lane
from melete.wire.store import MemoryStore

T = TypeVar("T")
Opener = Callable[[], MemoryStore]
Call = Callable[[MemoryStore], T]

#: How many recalls one store makes at a time.
READERS: Final = 4
LONGEST_NAME: Final = 64
#: How long closing waits for a store that is at something.
CLOSING_SECONDS: Final = 1.0


@dataclass(slots=True)
class Found(Generic[T]):
    """What came of asking: by store, an answer or a failure. Of those in `late` it is open whether they did it."""

    answers: dict[str, T] = field(default_factory=dict)
    failures: dict[str, StoreFailure] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)

    def fail_late(self, name: str, reason: str) -> None:
        error = StoreBusy(name, reason)
        self.failures[name] = StoreFailure(name, describe(error), error)
        self.late.add(name)

    def add_failures(self, other: Found[S]) -> None:
        """Take over who failed elsewhere."""
        self.failures.update(other.failures)
        self.late |= other.late

    def owing(self, names: Collection[str], *, outlasts: bool) -> Found[T]:
        """Return the same, with the failures of some stores told as owed, by a note that outlasts the router or not."""
        told = {
            name: replace(failure, is_owed=True, outlasts=outlasts) if name in names else failure
            for name, failure in self.failures.items()
        }
        return Found(self.answers, told, self.late)

    def answers_in(self, order: Sequence[str]) -> Iterator[tuple[str, T]]:
        return ((name, self.answers[name]) for name in order if name in self.answers)

    def failures_in(self, order: Sequence[str]) -> tuple[StoreFailure, ...]:
        return tuple(self.failures[name] for name in order if name in self.failures)


S = TypeVar("S")


class Fleet:
    """Stores by name, in order, each with threads of its own: one that writes, some that read."""

    def __init__(self, stores: Mapping[str, MemoryStore | Opener], patience_seconds: float) -> None:
        """Errors: `InvalidInput` for no stores, a name that is none, and for patience that is none."""
        if not stores:
            raise InvalidInput("stores", 0, "one store at least")
        patience: object = patience_seconds
        if isinstance(patience, bool) or not isinstance(patience, int | float) or not 0 < patience <= 3600:
            raise InvalidInput("patience_seconds", patience_seconds, "seconds, more than 0 and at most 3600")
        self._places = {verify_store_name(name): _Place(name, store) for name, store in stores.items()}
        self._patience = patience_seconds

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def ask(self, call: Call[T], *, writes: bool = False) -> Found[T]:
        """Ask all stores the same."""
        return self.ask_each(dict.fromkeys(self._places, call), writes=writes)

    def ask_each(self, calls: Mapping[str, Call[T]], *, writes: bool = False) -> Found[T]:
        """Ask some stores, each what is meant for it. A store that is still at an earlier call fails at once.

        What is no error of ours is a fault of a hook, of an embedder or of this program, and is raised as it is.
        """
        found: Found[T] = Found()
        futures: dict[str, Future[T]] = {}
        for name, call in calls.items():
            lane = self._places[name].lane(writes=writes)
            if lane.is_stuck:
                found.fail_late(name, "it is still at what it was asked before")
            else:
                futures[name] = lane.submit(partial(self._places[name].run, call, writes=writes))
        done, _ = wait(futures.values(), timeout=self._patience)
        faults: list[BaseException] = []
        for name, future in futures.items():
            if future not in done:
                self._places[name].lane(writes=writes).abandon(future)
                found.fail_late(name, f"no answer within {self._patience:g} seconds")
                continue
            error = future.exception()
            if error is None:
                found.answers[name] = future.result()
            elif isinstance(error, MeleteError):
                found.failures[name] = StoreFailure(name, describe(error), error)
            else:
                faults.append(error)
        if faults:
            raise faults[0]
        return found

    def close(self) -> None:
        """End the threads, and close what was opened here, but for a store that is at something for too long."""
        for place in self._places.values():
            place.close()


class _Place:
    """One store, open or to be opened, and the threads that work for it."""

    def __init__(self, name: str, store: MemoryStore | Opener) -> None:
        self._reader, self._writer = Lane(f"{name} reads", READERS), Lane(f"{name} writes")
        self._opener = None if isinstance(store, MemoryStore) else store
        self._store = store if isinstance(store, MemoryStore) else None
        self._lock = threading.Lock()
        self._outages = 0
        self._told = threading.local()

    def lane(self, *, writes: bool) -> Lane:
        return self._writer if writes else self._reader

    def run(self, call: Call[T], *, writes: bool) -> T:
        """Make a call in one of the threads, each of which has a connection of its own.

        After an outage all of these are dead, and are found to be so one at a time: so who has not been told of an
        outage yet tries its connection first, and what only reads is read again.
        """
        store = self._open()
        outages = self._outages
        if getattr(self._told, "outages", 0) != outages:
            _try(store)
            self._told.outages = outages
        try:
            return call(store)
        except StoreUnreadable:
            self._outages += 1
            if writes:
                raise
            return call(store)

    def _open(self) -> MemoryStore:
        with self._lock:
            if self._store is None:
                assert self._opener is not None  # it has one or the other
                self._store = self._opener()
            return self._store

    def close(self) -> None:
        ended = [lane.close(CLOSING_SECONDS) for lane in (self._reader, self._writer)]
        if self._opener is not None and self._store is not None and all(ended):
            self._store.close()
            self._store = None


def _try(store: MemoryStore) -> None:
    """Look whether a store can be reached, over a new connection if the one that there was is lost."""
    try:
        store.audit_head()
    except StoreUnreadable:
        store.audit_head()


def verify_store_name(name: object) -> str:
    """Return a store's name: 1 to 64 printable characters. Errors: `InvalidInput`."""
    rule = f"a name of 1 to {LONGEST_NAME} printable characters"
    if not isinstance(name, str) or not is_utf8(name):
        raise InvalidInput("stores", type(name).__name__, rule)
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInput("stores", name, rule)
    return name


def describe(error: MeleteError) -> str:
    """Return an error's sentence without its final stop, to stand in another one."""
    return str(error).rstrip(".")
