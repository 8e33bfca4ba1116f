"""Stories about a subject, told on the model of the registry, and the timelines that follow from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from melete.meditation import events as happened
from melete.meditation.cycle import CycleReport
from melete.meditation.policy import Floor, Policy
from melete.meditation.timeline import Dated, Timeline, compute_timeline
from melete.memory.events import LogReference
from melete.primitives import ZERO_BYTES32, Address, Bytes32
from models import meditation as model

SUBJECT, CONTROLLER = "0x" + "11" * 20, "0x" + "22" * 20
HOUR, DAY, START = 3600, 86400, 1_800_000_000
REFERENCE = LogReference(1, ZERO_BYTES32, ZERO_BYTES32, 0)
BASELINE = tuple(bytes([number]) * 32 for number in range(1, 5))
POLICY = model.Policy(
    supported_layers=15, required_layers=15, allowed_triggers=15, due_window=HOUR, pulse_interval=6 * HOUR,
    max_interval=(DAY, 7 * DAY, 30 * DAY, 90 * DAY),
)  # fmt: skip


def to_policy(policy: model.Policy) -> Policy:
    return Policy(
        policy.supported_layers, policy.required_layers, policy.allowed_triggers, policy.disclosure,
        policy.due_window, policy.pulse_interval, policy.max_interval, Bytes32(policy.policy_hash), policy.policy_uri,
    )  # fmt: skip


def to_floor(floor: model.Floor) -> Floor:
    return Floor(floor.required_layers, floor.pulse_interval, floor.max_interval)


def to_event(told: model.Event) -> happened.MeditationEvent:
    """The model's event as the package's."""
    name, values = told

    def plain(member: str, value: Any) -> Any:
        if member == "report":
            members = list(value)
            members[1], members[13] = Bytes32(members[1]), Bytes32(members[13])
            return CycleReport(*members)
        if isinstance(value, str) and value.startswith("0x"):
            return Address(value)
        return Bytes32(value) if isinstance(value, bytes) else value

    return getattr(happened, name)(*(plain(member, value) for member, value in values.items()), REFERENCE)


class Story:
    """A subject's life on the model of the registry, which keeps what was told of it."""

    def __init__(self, policy: model.Policy = POLICY, at: int = START) -> None:
        self.registry = model.MeditationModel()
        self.registry.now = at
        self.events: list[Dated] = []
        self.floors: dict[int, Floor] = {}
        self._tell(self.registry.enroll(SUBJECT, BASELINE, policy, CONTROLLER, 7))

    @property
    def subject(self) -> model.Subject:
        return self.registry.subjects[SUBJECT]

    @property
    def now(self) -> int:
        return self.registry.now

    def _tell(self, told: list[model.Event]) -> None:
        self.events += [Dated(self.now, to_event(event)) for event in told]

    def wait(self, seconds: int) -> Story:
        self.registry.now += seconds
        return self

    def set_policy(self, **changes: Any) -> Story:
        self._tell(self.registry.set_policy(SUBJECT, SUBJECT, replace(POLICY, **changes)))
        return self

    def set_floor(self, floor: model.Floor) -> Story:
        self._tell(self.registry.set_floor(CONTROLLER, SUBJECT, floor))
        self.floors[self.subject.floor_version] = to_floor(floor)
        return self

    def demand(self, mask: int, within: int) -> Story:
        self._tell(self.registry.demand(CONTROLLER, SUBJECT, mask, self.now + within))
        return self

    def withdraw(self, mask: int) -> Story:
        self._tell(self.registry.withdraw_demand(CONTROLLER, SUBJECT, mask))
        return self

    def pulse(self) -> Story:
        self._tell(self.registry.pulse(SUBJECT, SUBJECT, 0))
        return self

    def cycle(
        self, mask: int = 15, completed: int | None = None, *, age: int = 0, changed: tuple[int, ...] = ()
    ) -> Story:
        done = mask if completed is None else completed
        subject, ended = self.subject, self.now - age
        version = max(number for number, (_, since) in enumerate(subject.policies, 1) if since <= ended)
        outcome = model.COMPLETED if done == mask else model.PARTIAL if done else model.ABORTED
        after = [
            (subject.state_version + 10).to_bytes(32, "big") if layer in changed else commitment
            for layer, commitment in enumerate(subject.commitments)
        ]
        report = model.CycleReport(
            subject.state_version, subject.roots[-1], tuple(after), mask, done, 0, outcome, 0, version, ended, ended
        )  # fmt: skip
        self._tell(self.registry.report(SUBJECT, SUBJECT, report))
        return self

    def timeline(self, start: int | None = None, end: int | None = None) -> Timeline:
        return compute_timeline(
            Address(SUBJECT),
            self.events,
            policies=[to_policy(policy) for policy, _ in self.subject.policies],
            floors=self.floors,
            now=self.now,
            start=start,
            end=end,
        )
