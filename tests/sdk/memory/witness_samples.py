"""Sample records, deltas and stores that the tests of the witness store share."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from melete import GENESIS, Bytes32, ExperienceDelta, Head, Transition, Witness, keccak256
from melete.memory.batch import BatchTree, Operation
from melete.memory.profiles import BATCH, PLAIN
from melete.memory.witness_database import Database
from melete.memory.witness_keys import Passphrase, ScryptCost, StoreKey
from melete.memory.witness_kinds import DELTA, Place
from melete.memory.witness_store import WitnessStore

SPACE, OTHER_SPACE = keccak256(b"space"), keccak256(b"other space")
SUBJECT = bytes(range(20))
KEY, OTHER_KEY = StoreKey(b"\x01" * 32), StoreKey(b"\x02" * 32)
#: Cheap to try, for tests alone.
CHEAP = ScryptCost(n=2, r=1)
PASSPHRASE = Passphrase("correct horse", CHEAP)


def salt(number: int) -> Bytes32:
    return keccak256(b"salt %d" % number)


def make_witness(number: int, payload: bytes | None = None) -> Witness:
    """A witness of its own for each number, every third with provenance and every fifth with a locator."""
    return Witness(
        PLAIN.id,
        b"remembers %d" % number if payload is None else payload,
        salt(number),
        b"told by ada" if number % 3 == 0 else None,
        salt(-number) if number % 3 == 0 else None,
        f"ipfs://memory/{number}" if number % 5 == 0 else None,
        salt(number + 10**6) if number % 5 == 0 else None,
    )


def place(number: int, space: Bytes32 = SPACE) -> Place:
    return DELTA.place(space, number)


def make_deltas(witnesses: Sequence[Witness], space: Bytes32 = SPACE) -> Iterator[ExperienceDelta]:
    """The deltas that witnesses become, one after the other from the start of a space."""
    head = GENESIS
    for witness in witnesses:
        delta = witness.build_delta(space, head)
        transition = Transition.of(delta)
        head = Head(transition.transition_id, transition.next_state_root, delta.sequence)
        yield delta


def make_operations(count: int) -> list[Operation]:
    return [Operation(b"operation %d" % index, salt(index)) for index in range(count)]


def make_batch_witness(operations: Sequence[Operation]) -> Witness:
    tree = BatchTree(operation.compute_leaf() for operation in operations)
    return Witness(BATCH.id, tree.batch.to_payload(), salt(99))


def fill(store: WitnessStore, count: int, space: Bytes32 = SPACE, first: int = 1) -> list[Witness]:
    """Keep witnesses from number `first` on, and return them."""
    witnesses = [make_witness(number) for number in range(first, first + count)]
    with store.transaction():
        for number, witness in enumerate(witnesses, start=first):
            store.put(place(number, space), witness)
    return witnesses


def files_of(path: Path) -> dict[str, bytes]:
    """The bytes of a store's file and of all its companions."""
    return {file.name: file.read_bytes() for file in sorted(path.parent.iterdir()) if file.name.startswith(path.name)}


def bytes_on_disk(path: Path) -> bytes:
    return b"".join(files_of(path).values())


def database_of(store: WitnessStore) -> Database:
    return store._database


def sealed_of(store: WitnessStore, at: Place) -> bytes:
    row = store._row(at)
    assert row is not None
    assert row[1] is not None
    return row[1]


def mode_of(path: Path) -> int:
    return os.stat(path).st_mode & 0o777  # noqa: PTH116


def rewrite(path: Path, statement: str, *values: Any) -> None:
    """Change a closed store behind its back."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA secure_delete = OFF")
    assert db.execute(statement, values).rowcount != 0
    db.close()
