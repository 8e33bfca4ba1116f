"""A program that works with a memory store and puts it on record until enough is written: made to be killed.

Told a number, it kills itself at that step: a step is a statement to a database, or a request to the node.
"""

from __future__ import annotations

import sys
from pathlib import Path

from outbox_worker import ANVIL_KEY, die_at_step

from melete import Bytes32, LocalSigner, MemoryRegistry, keccak256
from melete.chain.connection import connect
from melete.chain.outbox import Outbox
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore
from melete.wire.envelope import MemoryType
from melete.wire.recording.recorder import Recorder
from melete.wire.store import MemoryStore

KIND = MemoryType.EPISODIC


def main(url: str, address: str, space: str, folder: str, count: str, last_step: str = "") -> None:
    if last_step:
        die_at_step(int(last_step))
    registry = MemoryRegistry(connect(url), address)
    place = Path(folder)
    with (
        MemoryStore.open(place / "memories.db") as store,
        Outbox(place / "outbox.db") as outbox,
        WitnessStore.open(place / "witnesses.db", StoreKey(keccak256(b"a key for tests"))) as witnesses,
    ):
        author, payer = LocalSigner(keccak256(b"author")), LocalSender(LocalSigner(ANVIL_KEY))
        recorder = Recorder(store, outbox, registry, witnesses, Bytes32(space), author, most=4)
        submitter = Submitter(registry.w3, outbox, payer, MemoryRules(), confirmations=0, poll_seconds=0.01,
                              patience_seconds=0.5)  # fmt: skip
        while (have := store.audit_head().number) < int(count):
            work(store, have)
            if have % 3 == 2:
                recorder.flush()
            if have % 8 == 7:
                submitter.run()
        recorder.flush()
        submitter.run()


def work(store: MemoryStore, number: int) -> None:
    """Write one audit row, what kind of one depends on how many there are."""
    found = store.recall(KIND, "word", top_k=50).hits
    ids = sorted((hit.id for hit in found), key=lambda memory_id: store.show(memory_id).number)
    if number % 7 == 5 and ids:
        store.forget(KIND, ids[:1])
    elif number % 11 == 8 and len(ids) > 1:
        store.merge(KIND, ids[-2:])
    elif number % 13 == 9 and ids:
        store.expire(KIND, ids[-1:], ttl_seconds=10**6)
    else:
        store.remember(KIND, f"word number{number}", tags=["x"], metadata={"n": number})


if __name__ == "__main__":
    main(*sys.argv[1:])
