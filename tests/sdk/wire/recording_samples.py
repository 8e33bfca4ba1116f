"""What the tests of memory on record share: a registry in this process, and everything that a recorder needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from melete import Address, Bytes32, ExperienceDelta, Head, LocalSigner, MemoryRegistry, Transition, keccak256
from melete.chain.outbox import Outbox, State
from melete.chain.reverts import compute_selector
from melete.memory.delta import compute_next_state_root, compute_transition_id
from melete.memory.outbox import delta_of
from melete.memory.registry import FUNCTIONS
from melete.memory.space import GENESIS, SpaceAuthorization, memory_state_domain
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_BYTES32
from melete.wire.recording.preflight import copy_store
from melete.wire.recording.recorder import Recorder
from melete.wire.store import MemoryStore

from .samples import Clock, open_store

AUTHOR = LocalSigner(keccak256(b"author"))
SPACE = keccak256(b"space")
KEY = StoreKey(keccak256(b"a key for tests"))


class Node:
    """Stands where web3's connection stands: answers the views of the registry, and counts what it is asked."""

    def __init__(self, registry: LocalRegistry) -> None:
        self.provider, self._registry = self, registry
        self.requests = 0
        self.endpoint_uri = "http://127.0.0.1:1"
        self.is_gone = False

    def make_request(self, method: str, parameters: list[Any]) -> dict[str, Any]:
        self.requests += 1
        return self._answer(method, parameters)

    def make_batch_request(self, requests: Sequence[tuple[str, list[Any]]]) -> list[dict[str, Any]]:
        self.requests += 1
        return [self._answer(method, parameters) for method, parameters in requests]

    def _answer(self, method: str, parameters: list[Any]) -> dict[str, Any]:
        if self.is_gone:
            raise ConnectionError("refused")
        if method == "eth_getLogs":
            return {"error": {"code": -32005, "message": "the range is too wide"}}
        if method == "eth_getBlockByNumber":
            number = len(self._registry.history)
            return {"result": {"number": hex(number), "hash": str(keccak256(b"block %d" % number))}}
        assert method == "eth_call"
        data = bytes.fromhex(parameters[0]["data"][2:])
        head = self._registry.head()
        if data[:4] == compute_selector(FUNCTIONS["head"]):
            answer = head.transition_id + head.state_root + head.sequence.to_bytes(32, "big")
        elif data[:4] == compute_selector(FUNCTIONS["spaceAuthorization"]):
            known = self._registry.authorization()
            answer = known.controller.word + known.authorizer.word + bytes(32)
        else:
            assert data[:4] == compute_selector(FUNCTIONS["stateRootAt"])
            answer = self._registry.state_root_at(Bytes32(data[4:36]), int.from_bytes(data[36:68], "big"))
        return {"result": "0x" + answer.hex()}


class LocalRegistry(MemoryRegistry):
    """A registry that is a list of transitions: what the recorder asks of one, without a node."""

    def __init__(self) -> None:
        self.address = Address(b"\x44" * 20)
        self.chain_id = 31337
        self.domain = memory_state_domain(self.chain_id, self.address)
        self.node = Node(self)
        self.w3 = self.node  # type: ignore[assignment]
        self.history: list[Transition] = []
        self.authorizer = AUTHOR.address

    def head(self, *_: Any) -> Head:
        if not self.history:
            return GENESIS
        last = self.history[-1]
        return Head(last.transition_id, last.next_state_root, last.delta.sequence)

    def state_root_at(self, _: Bytes32, sequence: int, *__: Any) -> Bytes32:
        if not 1 <= sequence <= len(self.history):
            return ZERO_BYTES32
        return self.history[sequence - 1].next_state_root

    def authorization(self, *_: Any) -> SpaceAuthorization:
        return SpaceAuthorization(self.authorizer, self.authorizer)

    def take(self, delta: ExperienceDelta) -> None:
        """Append a delta, as `commitTransition` does."""
        head = self.head()
        assert (delta.sequence, delta.prev_state_root) == (head.sequence + 1, head.state_root)
        transition_id = compute_transition_id(delta)
        root = compute_next_state_root(delta.prev_state_root, transition_id)
        self.history.append(Transition(delta, transition_id, root, self.authorizer))


@dataclass
class Desk:
    """A store that is on record, and everything around it."""

    folder: Path
    clock: Clock
    registry: LocalRegistry
    store: MemoryStore
    outbox: Outbox
    witnesses: WitnessStore
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def recorder(self) -> Recorder:
        """A recorder that knows nothing yet, as after a crash."""
        return Recorder(
            self.store, self.outbox, self.registry, self.witnesses, SPACE, AUTHOR, **{"most": 4, **self.options}
        )

    def copy(self, name: str) -> Path:
        """The store's file as it is now, under another name."""
        path = self.folder / name
        path.touch(0o600)
        copy_store(Path(self.store.label), path)
        return path

    def submit(self) -> None:
        """Let the registry take what waits."""
        for item in self.outbox.items(State.QUEUED):
            self.registry.take(delta_of(item))
            self.outbox.record_state([item], State.DONE)

    def record(self) -> None:
        """Record all that waits, and let the registry take it."""
        self.recorder.flush()
        self.submit()


class Hasty(sqlite3.Connection):
    """A connection that does not wait for the disk: nothing here is about losing power."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous = FULL", "synchronous = OFF"), *values)


@pytest.fixture(autouse=True)
def never_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *words, **options: connect(*words, factory=Hasty, **options))


@contextmanager
def open_desk(folder: Path, url: str, **options: Any) -> Iterator[Desk]:
    clock = Clock()
    WitnessStore.create(folder / "witnesses.db", KEY).close()
    with (
        open_store(url, clock, **options) as store,
        Outbox(folder / "outbox.db") as outbox,
        WitnessStore.open(folder / "witnesses.db", KEY, busy_seconds=0.1) as witnesses,
    ):
        yield Desk(folder, clock, LocalRegistry(), store, outbox, witnesses)
