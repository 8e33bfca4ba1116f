"""A program that adds deltas to an outbox until there are enough, and submits them: made to be killed.

Told a number, it kills itself at that step: a step is a statement to a database, or a request to the node.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import requests

from melete import Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.connection import connect
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryOutbox, MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore

ANVIL_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"


def die_at_step(last: int) -> None:
    """Let every statement and every request count, and let the process be gone at the last one."""
    taken = 0

    def step(*_: Any) -> None:
        nonlocal taken
        taken += 1
        if taken >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    connect_database, send = sqlite3.connect, requests.Session.send

    def counted_connect(*args: Any, **options: Any) -> sqlite3.Connection:
        database = connect_database(*args, **options)
        database.set_trace_callback(step)
        return database

    def counted_send(*args: Any, **options: Any) -> Any:
        step()
        answer = send(*args, **options)
        step()  # sent and answered, and nobody to hear it
        return answer

    sqlite3.connect = counted_connect  # type: ignore[assignment]
    requests.Session.send = counted_send  # type: ignore[method-assign]


def main(url: str, address: str, space: str, path: str, store: str, count: str, last_step: str = "") -> None:
    if last_step:
        die_at_step(int(last_step))
    registry = MemoryRegistry(connect(url), address)
    author, space_id = LocalSigner(keccak256(b"author")), Bytes32(space)
    key = StoreKey(keccak256(b"a key for tests"))
    with Outbox(path) as outbox, WitnessStore.open(Path(store), key) as witnesses:
        memory = MemoryOutbox(outbox, registry, witnesses)
        payer = LocalSender(LocalSigner(ANVIL_KEY))
        submitter = Submitter(registry.w3, outbox, payer, MemoryRules(), confirmations=0, poll_seconds=0.01,
                              patience_seconds=0.5)  # fmt: skip
        memory.recover()
        while (have := sum(outbox.count().values())) < int(count):
            witness = Witness(compute_profile_id("test/1"), b"payload %d" % have, keccak256(b"salt"))
            memory.add(space_id, [witness], author)
            if have % 4 == 3:
                submitter.run()
        submitter.run()
        assert outbox.count()[State.DONE] == int(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
