"""The demo's act about memories: an agent remembers, and all of it goes on record.

    write -> audit row -> batch -> delta -> registry -> evidence -> rebuilt store

Four memories are kept in a store, recorded in one transition, and one of them is proven down to the state root. It is
forgotten: its content is gone, its transition stands, and the deletion is attested. Then an empty store is rebuilt from
the chain and the witnesses, and a store that somebody changed by hand is found out.
"""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from scripts._telling import catch, hold, tell, word

from melete import Bytes32, LocalSigner, MemoryRegistry
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.extensions.deletion import DeletionAttestation
from melete.memory.outbox import MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore
from melete.wire.envelope import MemoryType
from melete.wire.errors import BrokenAudit
from melete.wire.recording.attesting import attest
from melete.wire.recording.evidence import Evidence, Standing, prove
from melete.wire.recording.rebuild import rebuild
from melete.wire.recording.recorder import Recorder
from melete.wire.store import MemoryStore

MEMORIES = (
    (MemoryType.SEMANTIC, "The harbor's deepest berth is number 7.", ("berths",)),
    (MemoryType.SEMANTIC, "Holder 17 sails a ketch that draws two meters.", ("berths", "holders")),
    (MemoryType.EPISODIC, "Holder 17 called and asked for a quiet place.", ("holders",)),
    (MemoryType.PROCEDURAL, "When a boat draws over two meters, prefer a deep berth over a near one.", ("berths",)),
)


def show_memories(w3: Any, keys: Sequence[LocalSigner]) -> None:
    """Remember, record, prove, forget, attest and rebuild."""
    controller, authorizer, relayer, _ = keys
    registry, _ = MemoryRegistry.deploy(w3, LocalSender(relayer))
    space = registry.register(authorizer.address, Bytes32(secrets.token_bytes(32)), controller=controller).space_id
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as (store, outbox, witnesses):
        word("memories")
        ids = [store.remember(kind, text, agent_id="clerk", tags=tags).ids[0] for kind, text, tags in MEMORIES]
        hits = store.recall(MemoryType.SEMANTIC, "which berth is deep?", agent_id="clerk").hits
        tell(f"{len(ids)} are kept; asked for a deep berth, the store says: {hits[0].content}")

        word("record")
        recorder = Recorder(store, outbox, registry, witnesses, space, authorizer)
        submitter = Submitter(w3, outbox, LocalSender(relayer), MemoryRules(), confirmations=0, poll_seconds=0.01)
        record(recorder, submitter)
        head = registry.head(space)
        tell(f"sequence {head.sequence}, state root {head.state_root}: {len(ids)} writes in one transition")
        evidence = prove(store, witnesses, ids[2], registry)
        show_evidence(evidence)

        word("forgetting")
        store.forget(MemoryType.EPISODIC, [ids[2]], agent_id="clerk")
        record(recorder, submitter)
        forgotten = prove(store, witnesses, ids[2], registry)
        hold("its content is gone from the store and from the witnesses", forgotten.is_forgotten)
        hold("the transition that recorded it stands", forgotten.made.standing is Standing.COMMITTED)
        contract, _ = DeletionAttestation.deploy(registry, LocalSender(controller))
        event = attest(store, witnesses, contract, ids[2])
        tell(f"attested by the controller, with evidence {event.evidence_commitment}")

        word("rebuilding")
        transitions = [committed.transition for committed in registry.transitions(space)]
        with MemoryStore.open(Path(folder) / "rebuilt.db") as copy:
            rebuilt = rebuild(copy, witnesses, registry.domain, space, transitions)
            tell(f"{rebuilt.memories} memories come back from {len(transitions)} transitions and their witnesses")
            hold("the rebuilt store's log ends where the first one's does", copy.audit_head() == store.audit_head())
            hold("and it recalls the same", hits == copy.recall(MemoryType.SEMANTIC, "which berth is deep?",
                                                                agent_id="clerk").hits)  # fmt: skip
    word("forgery")
    with tempfile.TemporaryDirectory() as folder:
        show_forgery(Path(folder))


def record(recorder: Recorder, submitter: Submitter) -> None:
    """Put on record what waits, and see it into a block."""
    recorder.flush()
    submitter.run(until=State.MINED)


def show_evidence(evidence: Evidence) -> None:
    """Tell how one memory leads to the state root."""
    made = evidence.made
    hold("one of them is proven, from its row to the state root", made.standing is Standing.COMMITTED)
    if made.included is not None and made.anchor is not None:
        tell(f"audit row {made.entry.number}, operation {made.included.proof.index} of {made.included.proof.count}")
        tell(f"transition {made.anchor.transition_id}")


def show_forgery(folder: Path) -> None:
    """Change a memory by hand, and be found out."""
    path = folder / "memories.db"
    with MemoryStore.open(path) as store:
        store.remember(MemoryType.SEMANTIC, "Berth 7 is two meters deep.")
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE memories SET content = 'Berth 7 is nine meters deep.'")
    database.close()
    with MemoryStore.open(path) as store:
        error = catch(BrokenAudit, store.verify_audit)
    tell(f"a memory that was changed in the file is found: {error}")


@contextmanager
def opened(folder: Path) -> Iterator[tuple[MemoryStore, Outbox, WitnessStore]]:
    """A memory store, an outbox and a witness store in a folder of their own."""
    key = StoreKey(Bytes32(secrets.token_bytes(32)))
    with ExitStack() as stack:
        store = stack.enter_context(MemoryStore.open(folder / "memories.db"))
        outbox = stack.enter_context(Outbox(folder / "outbox.db"))
        yield store, outbox, stack.enter_context(WitnessStore.create(folder / "witnesses.db", key))
