"""Memory on record: what recording costs beside remembering, rebuilding beside writing, and what a proof asks for.

All of it on disk, with a node: remembering waits for the disk at every write, as it always does; recording takes what
was written in batches of a hundred, signs, keeps the witnesses and fills the outbox. Sending is the outbox's own work
(`bench_outbox`).

    python scripts/_dev/bench_recording.py [--deep]     # rebuild a hundred thousand memories, which takes minutes
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_memory import make_text
from melete import Bytes32, LocalSigner, MemoryRegistry, Transition, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore
from melete.wire.envelope import MemoryType
from melete.wire.recording.evidence import Standing, prove
from melete.wire.recording.rebuild import rebuild
from melete.wire.recording.recorder import BATCH_ROWS, Recorder
from melete.wire.store import MemoryStore

ROUNDS, PROOFS, REBUILT, DEEP_REBUILT = 12, 20, 4_000, 100_000
KIND = MemoryType.EPISODIC

Report = Callable[[str, float, float], None]


def bench(report: Report, *, deep: bool = False) -> None:
    """Report shares and ratios: recording, proving and rebuilding."""
    with Anvil() as node, tempfile.TemporaryDirectory() as folder, open_desk(node.url, Path(folder)) as desk:
        recorded = bench_recording(report, desk)
        few = bench_proving(desk)
        more = DEEP_REBUILT if deep else REBUILT
        desk.load(more - recorded)
        many = bench_proving(desk)
        report(f"prove one of {more:,} memories, to one of {recorded:,}", many.seconds / few.seconds, 2.0)
        report("statements that a proof takes, however many there are", many.statements / few.statements, 1.1)
        report("requests that a proof makes", float(many.requests), 1.0)
        bench_rebuilding(report, desk, more)


@dataclass
class Desk:
    """A store on record, and everything around it."""

    folder: Path
    registry: MemoryRegistry
    space: Bytes32
    store: MemoryStore
    witnesses: WitnessStore
    recorder: Recorder
    submitter: Submitter
    texts: random.Random

    def remember(self, count: int) -> float:
        """Return the seconds that writing some memories takes, each on disk before the next."""
        texts = [make_text(self.texts) for _ in range(count)]
        began = time.perf_counter()
        for text in texts:
            self.store.remember(KIND, text, agent_id="agent", tags=("bench",))
        return time.perf_counter() - began

    def flush(self) -> float:
        """Return the seconds that recording what waits takes."""
        began = time.perf_counter()
        self.recorder.flush()
        return time.perf_counter() - began

    def load(self, count: int) -> None:
        """Write many memories, record and send them."""
        with self.store.transaction():
            for _ in range(count):
                self.store.remember(KIND, make_text(self.texts), agent_id="agent", tags=("bench",))
        self.recorder.flush()
        self.submitter.run(until=State.MINED)


def bench_recording(report: Report, desk: Desk) -> int:
    """Report which share of the throughput of `remember` recording takes; return how many memories there are then."""
    remembering, recording = [], []
    for _ in range(ROUNDS):
        remembering.append(desk.remember(BATCH_ROWS))
        recording.append(desk.flush())
    desk.submitter.run(until=State.MINED)
    written, recorded = statistics.median(remembering), statistics.median(recording)
    each = f"{recorded / BATCH_ROWS * 1e6:.0f} us beside {written / BATCH_ROWS * 1e6:.0f} us"
    report(
        f"record in batches of {BATCH_ROWS}, of remembering's throughput ({each})",
        recorded / (written + recorded),
        0.25,
    )
    return ROUNDS * BATCH_ROWS


@dataclass
class Proof:
    seconds: float
    statements: int
    requests: int


def bench_proving(desk: Desk) -> Proof:
    """Prove memories here and there, and return what one took: seconds, statements and requests."""
    with desk.store._core.database.reading() as connection:
        ids = list(connection.exec_driver_sql("SELECT id FROM memories ORDER BY document").scalars())
        store_db: Any = connection.connection.driver_connection
    witness_db = desk.witnesses._database.db
    seconds, counted = [], Counted(desk.registry.w3.provider)
    for memory_id in ids[:: max(1, len(ids) // PROOFS)][:PROOFS]:
        counted.requests = counted.statements = 0
        for db in (store_db, witness_db):
            db.set_trace_callback(counted.count_statement)
        began = time.perf_counter()
        with counted:
            evidence = prove(desk.store, desk.witnesses, memory_id, desk.registry)
        seconds.append(time.perf_counter() - began)
        for db in (store_db, witness_db):
            db.set_trace_callback(None)
        assert evidence.standing is Standing.COMMITTED
    return Proof(statistics.median(seconds), counted.statements, counted.requests)


class Counted:
    """Counts what goes to a node and to databases."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self.requests = self.statements = 0

    def count_statement(self, _: str) -> None:
        self.statements += 1

    def __enter__(self) -> Counted:
        self._kept = self._provider.make_request, self._provider.make_batch_request
        for name, ask in zip(("make_request", "make_batch_request"), self._kept, strict=True):
            setattr(self._provider, name, self._count(ask))
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.make_request, self._provider.make_batch_request = self._kept

    def _count(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any) -> Any:
            self.requests += 1
            return ask(*words)

        return counted


def bench_rebuilding(report: Report, desk: Desk, count: int) -> None:
    """Report what rebuilding costs, to writing as it is done every day, and to writing it all in one transaction."""
    history = [event.transition for event in desk.registry.transitions(desk.space)]
    rebuilding = rebuild_once(desk, history, count) / count
    each = statistics.median(desk.remember(BATCH_ROWS) for _ in range(5)) / BATCH_ROWS
    with MemoryStore.open(desk.folder / "together.db") as store:
        texts = [make_text(desk.texts) for _ in range(REBUILT)]
        began = time.perf_counter()
        with store.transaction():
            for text in texts:
                store.remember(KIND, text, agent_id="agent", tags=("bench",))
        together = (time.perf_counter() - began) / REBUILT
    what = f"rebuild {count:,} memories ({rebuilding * 1e6:.0f} us each), to writing them"
    report(f"{what} ({each * 1e6:.0f} us)", rebuilding / each, 2.0)
    report(f"{what} in one transaction ({together * 1e6:.0f} us)", rebuilding / together, 2.0)


def rebuild_once(desk: Desk, history: list[Transition], count: int) -> float:
    with MemoryStore.open(desk.folder / "rebuilt.db") as new:
        began = time.perf_counter()
        found = rebuild(new, desk.witnesses, desk.registry.domain, desk.space, history)
        seconds = time.perf_counter() - began
    assert found.is_whole
    assert found.memories == count
    return seconds


@contextmanager
def open_desk(url: str, folder: Path) -> Iterator[Desk]:
    w3 = connect(url)
    payer, author = LocalSigner(keccak256(b"payer")), LocalSigner(keccak256(b"author"))
    w3.provider.make_request("anvil_setBalance", [str(payer.address), hex(10**21)])  # type: ignore[arg-type]
    registry, _ = MemoryRegistry.deploy(w3, LocalSender(payer))
    space = registry.register(author.address, keccak256(b"salt")).space_id
    with (
        MemoryStore.open(folder / "memories.db") as store,
        Outbox(folder / "outbox.db") as outbox,
        WitnessStore.create(folder / "witnesses.db", StoreKey(keccak256(b"key"))) as witnesses,
    ):
        recorder = Recorder(store, outbox, registry, witnesses, space, author)
        submitter = Submitter(w3, outbox, LocalSender(payer), MemoryRules(), confirmations=0, poll_seconds=0.005)
        yield Desk(folder, registry, space, store, witnesses, recorder, submitter, random.Random(7))


if __name__ == "__main__":
    from bench import report as print_report

    bench(print_report, deep="--deep" in sys.argv)
