"""Killed anywhere, a store holds what it said it holds: processes are ended by signal 9 at random moments."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import pytest

from melete.errors import MissingFile, WrongKey
from melete.memory.witness_keys import Key
from melete.memory.witness_store import WitnessStore

from .witness_samples import KEY, OTHER_KEY, bytes_on_disk, fill, make_witness, place, sealed_of

#: Does something to the store at a path, and yields whenever something is done for good.
Work: TypeAlias = Callable[[Path], Iterator[int]]
FORK = multiprocessing.get_context("fork")
POINTS = {"ci": 25, "deep": 150}.get(os.environ.get("MELETE_HYPOTHESIS_PROFILE", ""), 10)
points = pytest.mark.parametrize("point", range(POINTS))
ROWS = 120
#: How long each work takes undisturbed, in seconds; measured once, only to spread the moments over it.
durations: dict[Work, float] = {}


def start(work: Work, path: Path) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Start work in a process of its own; return when it is about to begin."""
    receiver, sender = FORK.Pipe(duplex=False)

    def report() -> None:
        sender.send(0)
        for done in work(path):
            sender.send(done)

    child = FORK.Process(target=report)
    child.start()
    sender.close()
    receiver.recv()
    return child, receiver


def run_and_kill(work: Work, path: Path, make: Callable[[Path], object], point: int) -> list[int]:
    """Make a store, kill the work on it somewhere between its start and a little after its end; return its reports."""
    if work not in durations:
        make(path.parent / "rehearsal.db")
        child, _ = start(work, path.parent / "rehearsal.db")
        before = time.perf_counter()
        child.join()
        durations[work] = time.perf_counter() - before
        assert child.exitcode == 0
    make(path)
    child, receiver = start(work, path)
    time.sleep(random.Random(point).random() * durations[work] * 1.1)
    child.kill()
    child.join()
    reports = []
    with suppress(EOFError):
        while True:
            reports.append(receiver.recv())
    return reports


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "witnesses.db"


def make_empty(path: Path) -> None:
    WitnessStore.create(path, KEY).close()


def make_full(path: Path) -> None:
    with WitnessStore.create(path, KEY) as store:
        fill(store, ROWS)


def holds_everything(path: Path, key: Key) -> bool:
    with WitnessStore.open(path, key) as store:
        return [entry.record for entry in store.iterate()] == [make_witness(number) for number in range(1, ROWS + 1)]


def put_one_by_one(path: Path) -> Iterator[int]:
    with WitnessStore.open(path, KEY) as store:
        for number in range(1, 31):
            store.put(place(number), make_witness(number))
            yield number


@points
def test_killed_while_putting_what_was_said_to_be_kept_is_kept(path: Path, point: int) -> None:
    reports = run_and_kill(put_one_by_one, path, make_empty, point)
    with WitnessStore.open(path, KEY) as store:
        kept = [(entry.number, entry.record) for entry in store.iterate()]
        assert kept == [(number, make_witness(number)) for number in range(1, len(kept) + 1)]
        assert len(reports) <= len(kept) <= len(reports) + 1
        fill(store, 3, first=len(kept) + 1)


def put_at_once(path: Path) -> Iterator[int]:
    with WitnessStore.open(path, KEY) as store:
        fill(store, ROWS)
        yield ROWS


@points
def test_killed_inside_a_transaction_all_of_it_is_kept_or_nothing(path: Path, point: int) -> None:
    reports = run_and_kill(put_at_once, path, make_empty, point)
    with WitnessStore.open(path, KEY) as store:
        count = len(list(store.iterate()))
    assert count == ROWS or (count, reports) == (0, [])


def change_key(path: Path) -> Iterator[int]:
    with WitnessStore.open(path, KEY) as store:
        store.change_key(OTHER_KEY)
        yield 1


@points
def test_killed_while_its_key_is_changed_the_store_has_the_old_key_or_the_new_one(path: Path, point: int) -> None:
    reports = run_and_kill(change_key, path, make_full, point)
    try:
        assert holds_everything(path, OTHER_KEY)
    except WrongKey:
        assert reports == []
        assert holds_everything(path, KEY)
        for _ in change_key(path):
            pass
        assert holds_everything(path, OTHER_KEY)


def erase_some(path: Path) -> Iterator[int]:
    with WitnessStore.open(path, KEY) as store:
        for number in (5, 50, 100):
            store.erase(place(number))
            yield number


@points
def test_killed_while_erasing_nothing_else_is_lost_and_opening_ends_what_was_begun(path: Path, point: int) -> None:
    ciphertexts = {}

    def make(path: Path) -> None:
        make_full(path)
        with WitnessStore.open(path, KEY) as store:
            ciphertexts.update({number: sealed_of(store, place(number)) for number in (5, 50, 100)})

    reports = run_and_kill(erase_some, path, make, point)
    with WitnessStore.open(path, KEY) as store:
        erased = [entry.number for entry in store.iterate() if entry.record is None]
        assert set(reports) <= set(erased) <= {5, 50, 100}
        assert all(
            entry.record == make_witness(entry.number) for entry in store.iterate() if entry.number not in erased
        )
        assert not any(ciphertexts[number] in bytes_on_disk(path) for number in erased)


def back_up(path: Path) -> Iterator[int]:
    with WitnessStore.open(path, KEY) as store:
        for number in range(5):
            store.backup(path.with_suffix(f".{number}.backup"))
            yield number


@points
def test_killed_while_backing_up_a_backup_is_whole_or_not_there(path: Path, point: int) -> None:
    reports = run_and_kill(back_up, path, make_full, point)
    assert holds_everything(path, KEY)
    found = []
    for number in range(5):
        with suppress(MissingFile):
            assert holds_everything(path.with_suffix(f".{number}.backup"), KEY)
            found.append(number)
    assert found == list(range(len(found)))
    assert len(reports) <= len(found) <= len(reports) + 1


def create(path: Path) -> Iterator[int]:
    WitnessStore.create(path, KEY).close()
    yield 1


@points
def test_killed_while_being_made_a_store_is_whole_or_not_there(path: Path, point: int) -> None:
    reports = run_and_kill(create, path, lambda _: None, point)
    try:
        WitnessStore.open(path, KEY).close()
    except MissingFile:
        assert reports == []
        make_empty(path)


def test_the_moments_of_each_work_are_many() -> None:
    assert POINTS >= 10
    assert len({random.Random(point).random() for point in range(POINTS)}) == POINTS
