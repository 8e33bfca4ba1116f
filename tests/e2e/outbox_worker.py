"""A program that adds deltas to an outbox until there are enough, and submits them: made to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

from melete import Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.connection import connect
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryOutbox, MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore

ANVIL_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"


def main(url: str, address: str, space: str, path: str, store: str, count: str) -> None:
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
