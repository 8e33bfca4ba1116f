"""The benchmarks. Each compares two things in one run, so that the machine's mood cancels out; none is a test.

Ends with 1 if a goal was missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator

from sha3 import keccak_256

import bench_maintenance
import bench_memory
import bench_outbox
import bench_packs
import bench_recording
import bench_scan
import bench_witness
import gas_meditation
from gas import GOALS, KEPT, STEADY_COMMIT_FLOOR, measure, ratio, render
from melete import GENESIS, ExperienceDelta, Head, Transition, keccak256, verify_history
from melete.memory.delta import (
    EXPERIENCE_DELTA_TYPEHASH,
    MEMORY_STATE_TYPEHASH,
    compute_next_state_root,
    compute_transition_id,
)
from melete.primitives import ZERO_BYTES32

SPACE = keccak256(b"space")
TRANSITIONS = 100_000
ROUNDS = 7
missed: list[str] = []


def main() -> None:
    bench_hashing()
    bench_peak()
    bench_import()
    bench_witness.bench(report)
    bench_scan.bench(report)
    bench_outbox.bench(report)
    bench_packs.bench(report)
    bench_maintenance.bench(report)
    bench_recording.bench(report)
    bench_memory.bench(report, deep="--deep" in sys.argv)
    bench_gas()
    if missed:
        print(f"missed: {', '.join(missed)}")
        sys.exit(1)


def bench_hashing() -> None:
    history = list(make_history(TRANSITIONS))
    words = [
        (
            EXPERIENCE_DELTA_TYPEHASH + item.delta.words(),
            MEMORY_STATE_TYPEHASH + item.delta.prev_state_root + item.transition_id,
        )
        for item in history
    ]

    def bare() -> None:
        for delta, state in words:
            keccak_256(delta).digest()
            keccak_256(state).digest()

    def through_sdk() -> None:
        for item in history:
            compute_next_state_root(item.delta.prev_state_root, compute_transition_id(item.delta))

    report("hash a delta and its next root, to the bare keccaks", compare(through_sdk, bare), 2.0)
    report(
        f"verify {TRANSITIONS:,} transitions, to the bare keccaks",
        compare(lambda: verify_history(SPACE, history), bare),
        2.0,
    )


def bench_peak() -> None:
    """Verifying a history as long as it may be takes no more memory than a short one, beside the input."""
    peaks = []
    for length in (1_000, 20_000):
        tracemalloc.start()
        verify_history(SPACE, make_history(length))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    report("peak memory of verifying 20,000 transitions, to that of 1,000", peaks[1] / peaks[0], 1.5)


def bench_import() -> None:
    def start(statement: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)

    extra = timed(start("import melete")) - timed(start("pass"))
    report("import melete, milliseconds over a bare interpreter", extra * 1000, 30.0)


def bench_gas() -> None:
    gas = measure()
    for operation, used in gas.items():
        report(f"{operation}: {used:,} gas, to the reference registry", ratio(operation, used), GOALS[operation][1])
    steady = gas["steady commit, direct"]
    report(f"steady commit, direct: to its floor of {STEADY_COMMIT_FLOOR:,}", steady / STEADY_COMMIT_FLOOR, 1.05)
    meditation = gas_meditation.measure()
    for operation, (floor, goal) in gas_meditation.GOALS.items():
        used = meditation[operation]
        report(f"{operation}: {used:,} gas, to its floor of {floor:,}", used / floor, goal / floor)
    if KEPT.read_text("utf-8") != render(gas, meditation):
        KEPT.write_text(render(gas, meditation), "utf-8")
        print(f"{KEPT.name} was rewritten: review the difference")


# Measuring


def compare(one: Callable[[], object], other: Callable[[], object]) -> float:
    """Return the median ratio of two things timed in turn."""
    return statistics.median(once(one) / once(other) for _ in range(ROUNDS))


def timed(action: Callable[[], object]) -> float:
    return statistics.median(once(action) for _ in range(ROUNDS))


def once(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def report(what: str, value: float, goal: float) -> None:
    if value > goal:
        missed.append(what)
    print(f"{'holds ' if value <= goal else 'MISSED'}  {value:8.3f}  goal {goal:6.2f}  {what}", flush=True)


def make_history(length: int) -> Iterator[Transition]:
    head, profile = GENESIS, keccak256(b"profile")
    for number in range(1, length + 1):
        commitment = keccak256(b"%d" % number)
        delta = ExperienceDelta(SPACE, number, head.state_root, commitment, ZERO_BYTES32, profile)
        transition = Transition.of(delta)
        yield transition
        head = Head(transition.transition_id, transition.next_state_root, number)


if __name__ == "__main__":
    main()
