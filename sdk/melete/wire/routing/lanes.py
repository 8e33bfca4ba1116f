"""Threads that work for one store, so that a store that hangs holds up nobody else.

    lane = Lane("backup")
    future = lane.submit(lambda: store.recall(...))
    done, late = wait([future], timeout=10)
    lane.abandon(future)                # nobody waits for it any more

Calls of a lane of one thread happen in their order: what is asked after a call that hangs happens after it, or never.
The threads end with the program, whatever they are at; what they had not committed did not happen.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Lane:
    """A queue of calls, and the threads that make them, which start when they are needed."""

    def __init__(self, name: str, width: int = 1) -> None:
        self._name: Final = name
        self._width: Final = width
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._abandoned: set[Future[Any]] = set()

    @property
    def is_stuck(self) -> bool:
        """Whether every thread is still at a call that nobody waits for any more."""
        with self._lock:
            return self._process == os.getpid() and len(self._abandoned) >= self._width

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call made by the next thread that is free, and return what becomes of it."""
        future: Future[T] = Future()
        with self._lock:
            if self._process != os.getpid():  # threads do not survive a fork
                self._reset()
            self._calls.put((future, call))
            if len(self._threads) < self._width:
                thread = threading.Thread(target=_work, args=(self._calls,), name=f"melete {self._name}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Wait for a call no longer: it does not happen if it has not begun."""
        if future.cancel():
            return
        with self._lock:
            self._abandoned.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._abandoned.discard(future)

    def close(self, seconds: float) -> bool:
        """Let the threads end, and return whether they did so in time."""
        with self._lock:
            threads = self._threads if self._process == os.getpid() else []
            for _ in threads:
                self._calls.put(None)
        for thread in threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in threads)


def _work(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (next_call := calls.get()) is not None:
        future, call = next_call
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again where somebody waits for the call
            future.set_exception(error)
        # What came of it belongs to whoever waits, and is not kept here until the next call comes.
        del next_call, future, call
