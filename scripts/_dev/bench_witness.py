"""The witness store's benchmark: opening witnesses, to the bare cipher over the same rows, in one run.

`bench(report)` is called by `bench.py`. Bare is AES-256-GCM alone: ciphertexts, nonces and associated data lie ready in
memory. Opening is everything from the file on: SQLite, the cipher, and a `Witness` for each row.
Times are of the processor, so that what else runs on the machine does not count.
"""

from __future__ import annotations

import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from melete import Witness, keccak256
from melete.memory.profiles import PLAIN
from melete.memory.witness_keys import StoreKey, associate, fresh_salt
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore

Report = Callable[[str, float, float], None]
SPACE = keccak256(b"space")
WITNESSES = 10_000
#: Bytes of payload. The cipher takes a microsecond or less below 4 KiB, about what one row of SQLite costs in Python.
SIZES = (1024, 16 * 1024)
ROUNDS = 7


def bench(report: Report) -> None:
    """Report how opening compares: to the cipher alone, and to the cipher and SQLite together."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, make_store(Path(folder), size) as store:
            bare, read, opened, peak = measure(store)
        what = f"open {WITNESSES:,} witnesses of {size // 1024} KiB"
        if size == SIZES[-1]:
            report(f"{what}, to the bare cipher", opened / bare, 3.0)
            report(f"{what}: peak memory, in their size on disk", peak / (WITNESSES * size), 0.05)
        report(f"{what}, to the bare cipher and SQLite", opened / (bare + read), 3.0)


def make_store(folder: Path, size: int) -> WitnessStore:
    store = WitnessStore.create(folder / "witnesses.db", StoreKey.fresh())
    with store.transaction():
        for number in range(1, WITNESSES + 1):
            store.put(DELTA.place(SPACE, number), Witness(PLAIN.id, os.urandom(size), fresh_salt()))
    return store


def measure(store: WitnessStore) -> tuple[float, float, float, int]:
    """Return seconds of the cipher, of SQLite and of the store, each the best of rounds in turn, and peak memory."""
    database = store._database
    query = "SELECT number, commitment, sealed FROM witnesses ORDER BY kind, scope, number"
    prefix, decrypt = associate(DELTA.name, SPACE), database.sealer._cipher.decrypt

    def bare() -> float:
        # Some rows at a time: 10,000 large ones in memory would be measured with the memory's own delays.
        spent, rows = 0.0, database.db.execute(query)
        while some := rows.fetchmany(500):
            ready = [(sealed[:12], sealed[12:], prefix + number + word) for number, word, sealed in some]
            start = time.thread_time()
            for nonce, ciphertext, associated in ready:
                decrypt(nonce, ciphertext, associated)
            spent += time.thread_time() - start
        return spent

    def read() -> float:
        start = time.thread_time()
        for _ in database.db.execute(query):
            pass
        return time.thread_time() - start

    def opened() -> float:
        start = time.thread_time()
        for entry in store.iterate(DELTA, SPACE):
            entry.record  # noqa: B018  # the witness, whole
        return time.thread_time() - start

    rounds = [(bare(), read(), opened()) for _ in range(ROUNDS)]
    tracemalloc.start()
    opened()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    cipher, sqlite, whole = (min(column) for column in zip(*rounds, strict=True))
    return cipher, sqlite, whole, peak
