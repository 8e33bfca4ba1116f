"""A small agent with a maintenance cycle, and a program that runs it: made to be killed.

    python cycle_worker.py URL REGISTRY        then on standard input, a line each: FOLDER [STEP]

For each line a child of its own brings the folder's cycle to the registry, and kills itself at that step: a step is a
line of the journal, a statement to a database, a request to the node, or a file that the cycle's routine removes. The
answer is how the child ended.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from web3 import Web3

from melete import Address, LocalSigner, keccak256
from melete.canonical import Json
from melete.chain.connection import connect
from melete.chain.outbox import Outbox
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.meditation.cycle import Operation, Trigger
from melete.meditation.layers import Layer
from melete.meditation.outbox import MeditationOutbox, MeditationRules
from melete.meditation.registry import MeditationRegistry
from melete.meditation.runner.files import NamedPath, hash_path
from melete.meditation.runner.files_layer import TasksRoutine
from melete.meditation.runner.journal import Journal
from melete.meditation.runner.reports import CycleState
from melete.meditation.runner.routine import CheckResult, LayerRoutine, LayerWork
from melete.meditation.runner.runner import MaintenanceRunner
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore

STORE_KEY = StoreKey(keccak256(b"a key for tests"))
AGENT = LocalSigner(keccak256(b"an agent that is killed"))


class Sweeper(LayerRoutine):
    """A runtime whose configuration is a folder, from which it removes what is called garbage."""

    layer = Layer.RUNTIME

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir())

    def check(self, work: LayerWork) -> None:
        work.checked("files", CheckResult.PASSED, f"{len(self.files())} of them")
        work.observed("files", len(self.files()))

    def clean(self, work: LayerWork) -> None:
        for path in self.files():
            if path.name.startswith("garbage"):
                with work.changing(Operation.CLEAN, f"{path.name} was removed"):
                    path.unlink()

    def describe(self) -> dict[str, Json]:
        found: list[Json] = [
            {"name": path.name, "digest": hash_path(NamedPath(path.name, path))} for path in self.files()
        ]
        return {
            "schema": "amm.layer.runtime/1", "layer": 0, "code": [], "configuration": found, "dependencies": [],
            "adapters": [], "authorization": [], "selfChecks": [],
        }  # fmt: skip


def routines(folder: Path) -> list[LayerRoutine]:
    return [Sweeper(folder / "files"), TasksRoutine(NamedPath("tasks.json", folder / "tasks.json"))]


@contextmanager
def opened(w3: Web3, address: str | Address, folder: Path) -> Iterator[tuple[MaintenanceRunner, Submitter]]:
    """The agent's runner, and what sends its outbox."""
    sender = LocalSender(AGENT)
    registry = MeditationRegistry(w3, address, sender=sender)
    with Outbox(folder / "outbox.db") as outbox, WitnessStore.open(folder / "witnesses.db", STORE_KEY) as store:
        waiting = MeditationOutbox(outbox, registry, store)
        submitter = Submitter(w3, outbox, sender, MeditationRules(), confirmations=0, poll_seconds=0.01)
        yield MaintenanceRunner(waiting, AGENT.address, routines(folder), folder / "cycle.jsonl"), submitter


def bring_to_the_registry(w3: Web3, address: str | Address, folder: Path) -> None:
    """Settle what is unfinished, or run the one cycle; return when it is registered and the journal is clear."""
    with opened(w3, address, folder) as (runner, submitter):
        if runner.resume().state is CycleState.NOTHING and runner.registry.head(AGENT.address).record_count == 0:
            runner.run(Trigger.EVENT, reason="Garbage was seen.")
        submitter.run()
        assert runner.resume().state in (CycleState.NOTHING, CycleState.REGISTERED)


# To be killed


def die_at_step(last: int) -> None:
    """Let everything that leaves a trace count, and let the process be gone at the last one."""
    taken = 0

    def step(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if taken >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    connect_database, send, write, unlink = sqlite3.connect, requests.Session.send, Journal._write, Path.unlink

    def counted_connect(*args: Any, **options: Any) -> sqlite3.Connection:
        database = connect_database(*args, **options)
        database.set_trace_callback(step)
        return database

    def counted(function: Any) -> Any:
        def before_and_after(*args: Any, **options: Any) -> Any:
            step()
            answer = function(*args, **options)
            step()  # done, and nobody to hear it
            return answer

        return before_and_after

    sqlite3.connect = counted_connect  # type: ignore[assignment]
    requests.Session.send = counted(send)  # type: ignore[method-assign]
    Journal._write = counted(write)  # type: ignore[method-assign]
    Path.unlink = counted(unlink)  # type: ignore[method-assign]


def main(url: str, address: str) -> None:
    for line in sys.stdin:
        folder, *step = line.split()
        child = os.fork()
        if child == 0:
            if step:
                die_at_step(int(step[0]))
            code = 1
            try:
                bring_to_the_registry(connect(url), address, Path(folder))
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
