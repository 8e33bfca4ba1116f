"""A registry in memory with one subject, judged by the same rules: for what needs no chain."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from melete.errors import ContractError, NotEnrolled
from melete.meditation.cycle import CycleReport, SubjectState, check_report
from melete.meditation.documents import derive_policy
from melete.meditation.layers import Commitments, Layer, compute_root
from melete.meditation.policy import NO_FLOOR, Policy, join_requirements
from melete.meditation.registry import Head, MeditationRegistry, Statuses, Subject
from melete.meditation.status import LayerCheckpoint, LayerStatus, MaintenanceStatus, Signal, SignalStatus
from melete.memory.witness_kinds import LAYERS, LayerDocument
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_ADDRESS, Address, Bytes32

EXAMPLE = Path(__file__).resolve().parents[3] / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
ADDRESS = Address(b"\x11" * 20)
SUBJECT = Address("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


POLICY_DOCUMENT = example("policy.json")
POLICY = derive_policy(POLICY_DOCUMENT)
BASELINE = [LayerDocument(example(f"baseline/{name}.json"), Bytes32(bytes([7]) * 32)) for name in NAMES]


@dataclass
class FakeRegistry:
    """What a `MeditationRegistry` answers about `SUBJECT`, as far as a runner asks before anything is sent."""

    commitments: Commitments
    policy: Policy = POLICY
    now: int = 1_800_000_000
    state_version: int = 1
    record_count: int = 0
    last_completed_at: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    stale: set[int] = field(default_factory=set)
    chain_id: int = 31337
    address: Address = ADDRESS
    sender: Any = None
    checked: list[CycleReport] = field(default_factory=list)
    #: What the contract says of every report, if it refuses them.
    refuses: ContractError | None = None

    def clock(self) -> int:
        self.now += 1
        return self.now

    def head(self, subject: Address, **_: Any) -> Head:
        if subject != SUBJECT:
            raise NotEnrolled(subject)
        root = compute_root(self.commitments)
        return Head(True, ZERO_ADDRESS, 0, 1, 0, self.state_version, self.record_count, root, 1, 1, 0)

    def load_state(self, subject: Address, **_: Any) -> SubjectState:
        assert subject == SUBJECT
        a, b, c, d = self.last_completed_at
        roots = {self.state_version: compute_root(self.commitments)}
        return SubjectState(self.state_version, self.commitments, (a, b, c, d), [(self.policy, 1)], roots)

    def load_subject(self, subject: Address, **_: Any) -> Subject:
        head = self.head(subject)
        statuses = [
            LayerStatus(MaintenanceStatus.OVERDUE if layer in self.stale else MaintenanceStatus.FRESH)
            for layer in Layer
        ]
        checkpoints = [
            LayerCheckpoint(word, completed)
            for word, completed in zip(self.commitments, self.last_completed_at, strict=True)
        ]
        given: Any = (statuses, checkpoints)
        return Subject(
            subject, head, tuple(given[1]), self.policy, NO_FLOOR, (), join_requirements(self.policy),  # type: ignore[arg-type]
            Statuses(subject, tuple(given[0]), Signal(SignalStatus.PRESENT)), 1, self.now,
        )  # fmt: skip

    def check(self, subject: Address, report: CycleReport) -> int:
        self.checked.append(report)
        changed = check_report(self.load_state(subject), report, self.now + 1)
        if self.refuses is not None:
            raise self.refuses
        return changed

    def report_call(self, subject: Address, report: CycleReport) -> bytes:
        return MeditationRegistry.report_call(self, subject, report)  # type: ignore[arg-type]

    def changes_since(self, *_: Any) -> list[Any]:
        return []

    def somebody_else_reports(self, layer: int = 1) -> None:
        """Another record came first, and changed a layer."""
        words = list(self.commitments)
        words[layer] = Bytes32(bytes([self.state_version]) * 32)
        self.commitments = (words[0], words[1], words[2], words[3])
        self.state_version += 1


def enrolled(store: WitnessStore) -> FakeRegistry:
    """A registry in which the example's subject is enrolled, its baseline kept in a store."""
    for layer, document in zip(Layer, BASELINE, strict=True):
        store.put(LAYERS[layer].place(SUBJECT, 1), document)
    words = [kind.commit(document) for kind, document in zip(LAYERS, BASELINE, strict=True)]
    return FakeRegistry((words[0], words[1], words[2], words[3]))
