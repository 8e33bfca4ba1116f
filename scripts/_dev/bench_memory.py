"""Remembering and recalling, to the `memorywire` package's SQLite store with an embedder that costs nothing.

Each side runs in a process of its own and is asked in turn, so that the machine's mood cancels out; both keep one file
in the same folder, in WAL mode, and wait for the disk at every commit. Theirs needs an SQLite that loads extensions,
which many Pythons lack: its process takes `pysqlite3` for `sqlite3`. Ours recalls by text alone, as it does by default.

    python scripts/_dev/bench_memory.py [--deep]     # also a million rows, which takes some minutes
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

REMEMBERED, ROUNDS, QUERIES = 50, 8, 25
SIZES: Final = (1_000, 10_000)
DEEP_SIZE: Final = 1_000_000
TOP_K: Final = 5
AGENT: Final = "agent"
DURABILITY: Final = ("journal_mode", "synchronous")
#: Words that texts are made of; some stand in every other text, most in few.
VOCABULARY: Final = [f"{start}{middle}{end}" for start in ("ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "ze")
                     for middle in ("ban", "dor", "fel", "gim", "hul", "jat", "kes", "lim", "mor", "nur", "pax", "rin",
                                    "sol", "tam", "ver", "wex", "yor", "zil", "bre", "cla")
                     for end in ("", "a", "e", "i", "o", "u", "en", "is", "or", "um")]  # fmt: skip
_WEIGHTS: Final = list(accumulate(1 / rank for rank in range(1, len(VOCABULARY) + 1)))

Report = Callable[[str, float, float], None]


def make_text(source: random.Random) -> str:
    return " ".join(source.choices(VOCABULARY, cum_weights=_WEIGHTS, k=14))


def make_query(source: random.Random) -> str:
    """Two words, neither among the commonest."""
    return " ".join(source.choices(VOCABULARY[50:], k=2))


def rare_word(number: int) -> str:
    """A word that one text alone holds."""
    return f"xylograph{number}"


def bench(report: Report, *, deep: bool = False) -> None:
    """Report what remembering and recalling cost, to theirs; with `deep`, what a million rows cost to ten thousand.

    The goals are for text alone, as it comes; with the same vectors on both sides the store must not be slower.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as sides:
        ours, vectors, theirs = (sides.enter_context(start(which, folder)) for which in SIDES)
        durability = {side.ask("durability") for side in (ours, vectors, theirs)}
        assert durability == {"wal, synchronous 2"}, durability
        rows = 0
        for size in SIZES:
            for side in (ours, vectors, theirs):
                side.ask("load", rows, size)
            rows = size
            what = f"recall {TOP_K} from {size:,} memories"
            compare(report, what, 0.25, ours, theirs, "recall", QUERIES)
            compare(report, f"{what}, vectors as well", 1.0, vectors, theirs, "recall", QUERIES)
        compare(report, "remember, on disk", 0.5, ours, theirs, "remember", REMEMBERED)
        compare(report, "remember, on disk, vectors as well", 1.0, vectors, theirs, "remember", REMEMBERED)
        if deep:
            before = statistics.median(ours.ask("rare", QUERIES))
            ours.ask("load", rows, DEEP_SIZE)
            after = statistics.median(ours.ask("rare", QUERIES))
            report(f"recall one rare word from {DEEP_SIZE:,} memories, to {rows:,}", after / before, 4.0)
            common = statistics.median(ours.ask("common", QUERIES))
            report(f"recall the commonest words from {DEEP_SIZE:,} memories, in seconds", common, 1.0)


def compare(report: Report, name: str, goal: float, one: Side, other: Side, what: str, count: int) -> None:
    """Report the median of one side's seconds to the median of the other's, asked in turn."""
    kept: dict[Side, list[float]] = {one: [], other: []}
    for turn in range(ROUNDS):
        for side, seconds in kept.items():
            seconds += side.ask(what, count, turn)
    ours, theirs = (statistics.median(seconds) for seconds in kept.values())
    report(f"{name} ({ours * 1e3:.2f} ms), to memorywire's", ours / theirs, goal)


# The processes


class Side:
    """A store in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, *arguments: int) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, *arguments]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"the process ended when it was asked to {what}"
        return json.loads(answer)


@contextmanager
def start(which: str, folder: str) -> Iterator[Side]:
    command = [sys.executable, __file__, which, folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Side(process)
        finally:
            process.terminate()


class Vectors:
    """An embedder that costs nothing: it looks vectors up."""

    dimensions = 384

    def __init__(self) -> None:
        source = random.Random(7)
        self._rows = [[source.uniform(-1, 1) for _ in range(self.dimensions)] for _ in range(256)]

    def __call__(self, text: str) -> list[float]:
        return self._rows[hash(text) % 256]

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self(text) for text in texts]


class Ours:
    """Our store, as anyone opens it."""

    def __init__(self, path: Path, embedder: Vectors | None = None) -> None:
        from melete.wire.envelope import MemoryType
        from melete.wire.store import MemoryStore

        self.kind = MemoryType.EPISODIC
        self.store = MemoryStore.open(path, embedder=embedder)

    def durability(self) -> str:
        with self.store._core.database.reading() as connection:
            values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in DURABILITY]
        return ", synchronous ".join(map(str, values))

    def load(self, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), 1_000):
            with self.store.transaction():
                for _ in self.remember(texts[start : start + 1_000]):
                    pass

    def remember(self, texts: Iterable[str]) -> Iterator[float]:
        for text in texts:
            began = time.perf_counter()
            self.store.remember(self.kind, text, agent_id=AGENT)
            yield time.perf_counter() - began

    def recall(self, queries: Iterable[str]) -> Iterator[float]:
        for query in queries:
            began = time.perf_counter()
            self.store.recall(self.kind, query, agent_id=AGENT, top_k=TOP_K)
            yield time.perf_counter() - began


class Theirs:
    """The package's SQLite store, through its public interface."""

    def __init__(self, path: Path, embedder: Vectors) -> None:
        import asyncio

        import pysqlite3
        import pysqlite3.dbapi2

        sys.modules["sqlite3"], sys.modules["sqlite3.dbapi2"] = pysqlite3, pysqlite3.dbapi2
        from memorywire import models
        from memorywire.store.sqlite_vec import SqliteVecStore

        self.models, self.kind = models, models.MemoryType.EPISODIC
        self.run = asyncio.Runner().run
        self.store = SqliteVecStore(path, embedder=embedder)

    def durability(self) -> str:
        values = (self.store._conn.execute(f"PRAGMA {name}").fetchone()[0] for name in DURABILITY)
        return ", synchronous ".join(map(str, values))

    def load(self, texts: Iterable[str]) -> None:
        # It has no transaction over several writes; for what is not measured, it need not wait for the disk.
        self.store._conn.execute("PRAGMA synchronous = OFF")
        self.remember(texts)
        self.store._conn.execute("PRAGMA synchronous = FULL")

    def remember(self, texts: Iterable[str]) -> list[float]:
        make = self.models.RememberRequest
        return self._time(self.store.remember, [make(agent_id=AGENT, type=self.kind, content=text) for text in texts])

    def recall(self, queries: Iterable[str]) -> list[float]:
        make = self.models.RecallRequest
        return self._time(
            self.store.recall, [make(agent_id=AGENT, query=query, k=TOP_K, types=[self.kind]) for query in queries]
        )

    def _time(self, action: Callable[[Any], Any], requests: Iterable[Any]) -> list[float]:
        async def all_of_them() -> list[float]:
            seconds = []
            for request in requests:
                began = time.perf_counter()
                await action(request)
                seconds.append(time.perf_counter() - began)
            return seconds

        return self.run(all_of_them())


SIDES: Final[dict[str, Callable[[Path], Ours | Theirs]]] = {
    "ours": Ours,
    "vectors": lambda path: Ours(path, Vectors()),
    "theirs": lambda path: Theirs(path, Vectors()),
}


def serve(side: Ours | Theirs) -> None:
    """Answer what the benchmark asks, a line of JSON each: usually the seconds that each of many calls took."""
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(answer(side, what, arguments)), flush=True)


def answer(side: Ours | Theirs, what: str, arguments: Sequence[int]) -> Any:
    if what == "durability":
        return side.durability()
    if what == "load":
        return side.load([*map(make_row, range(*arguments))])
    count, *seed = arguments
    source = random.Random(*seed)
    if what == "remember":
        return list(side.remember([make_text(source) for _ in range(count)]))
    query = {"rare": rare_word(5), "common": " ".join(VOCABULARY[:3])}.get(what)
    return list(side.recall([query or make_query(source) for _ in range(count)]))


def make_row(number: int) -> str:
    text = make_text(random.Random(number))
    return f"{text} {rare_word(number)}" if number % 10 == 5 else text


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(SIDES[sys.argv[1]](Path(sys.argv[2]) / f"{sys.argv[1]}.db"))
    else:
        import bench as frame

        bench(frame.report, deep="--deep" in sys.argv)
        sys.exit(bool(frame.missed))
