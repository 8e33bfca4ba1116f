"""What the meditation tests start from: an ordinary policy, commitments, and a subject that keeps cycles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meditation_chain import Contract
from models.meditation import (
    ABORTED,
    COMPLETED,
    LAYERS,
    NOBODY,
    CycleReport,
    Event,
    Floor,
    Policy,
    keccak256,
)

HOUR, DAY = 3600, 86400
ALL = 0x0F
ALL_RIGHTS = ALL_PERMISSIONS = 0b111


def a_commitment(text: str) -> bytes:
    return keccak256(text.encode())


BASELINE = (
    a_commitment("runtime 1"),
    a_commitment("memory and skills 1"),
    a_commitment("tasks and roles 1"),
    a_commitment("cognition 1"),
)

POLICY = Policy(
    policy_hash=a_commitment("policy 1"),
    supported_layers=ALL,
    required_layers=ALL,
    allowed_triggers=ALL,
    disclosure=1,
    due_window=HOUR,
    pulse_interval=6 * HOUR,
    max_interval=(DAY, 7 * DAY, 30 * DAY, 90 * DAY),
)

#: What makes the policy invalid, and the error that it deserves.
POLICY_DEFECTS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"supported_layers": 0, "required_layers": 0}, ("InvalidLayerMask", 0)),
    ({"supported_layers": 0x10, "required_layers": 0}, ("InvalidLayerMask", 0x10)),
    ({"supported_layers": 0b0111}, ("RequiredNotSupported", 0b0111, 0b1111)),
    ({"required_layers": 0x1F}, ("RequiredNotSupported", 0b1111, 0x1F)),
    ({"allowed_triggers": 0}, ("InvalidTriggers", 0)),
    ({"allowed_triggers": 0x10}, ("InvalidTriggers", 0x10)),
    ({"disclosure": 3}, ("InvalidDisclosure", 2, 3)),
    ({"max_interval": (0, 1, 1, 1)}, ("MissingInterval", 0)),
    ({"max_interval": (1, 1, 0, 0)}, ("MissingInterval", 2)),
    ({"max_interval": (1, 1, 1, 0)}, ("MissingInterval", 3)),
]

FLOOR = Floor(required_layers=0b0011, pulse_interval=2 * HOUR, max_interval=(12 * HOUR, DAY, 0, 0))


class Agent:
    """A subject on a registry: what it does defaults to something ordinary and valid at the clock's time."""

    def __init__(self, registry: Contract, address: str) -> None:
        self.registry = registry
        self.clock = registry.clock
        self.address = address

    def enroll(self, policy: Policy = POLICY, controller: str = NOBODY, rights: int = 0) -> Agent:
        self.registry.send("enroll", BASELINE, policy, controller, rights, sender=self.address)
        return self

    def cycle(self, **changes: Any) -> CycleReport:
        """A cycle over all layers that begins and ends now and changes nothing of what is registered."""
        head = self.head()
        cycle = CycleReport(
            base_version=head["stateVersion"],
            pre_root=head["root"],
            post_commitments=self.commitments(),
            layer_mask=ALL,
            completed_layers=changes.get("layer_mask", ALL),
            ops_mask=0,
            outcome=COMPLETED,
            trigger=0,
            policy_version=head["policyVersion"],
            reported_started_at=changes.get("reported_ended_at", self.clock.now),
            reported_ended_at=self.clock.now,
        )
        return replace(cycle, **changes)

    def report(self, *, by: str | None = None, **changes: Any) -> list[Event]:
        return self.registry.send("report", self.address, self.cycle(**changes), sender=by or self.address)

    def report_refusal(self, *, by: str | None = None, **changes: Any) -> tuple[Any, ...]:
        return self.registry.refusal("report", self.address, self.cycle(**changes), sender=by or self.address)

    def change(self, *layers: int) -> list[Event]:
        """Report a cycle, completing nothing, that gives these layers new commitments."""
        return self.report(post_commitments=self.changed(*layers), completed_layers=0, outcome=ABORTED, layer_mask=ALL)

    def changed(self, *layers: int) -> tuple[bytes, ...]:
        """The current commitments, with those of these layers replaced."""
        current = self.commitments()
        return tuple(keccak256(current[layer]) if layer in layers else current[layer] for layer in LAYERS)

    def pulse(self, *, by: str | None = None, next_planned_at: int = 0) -> list[Event]:
        return self.registry.send("pulse", self.address, next_planned_at, sender=by or self.address)

    def set_policy(self, **changes: Any) -> list[Event]:
        return self.registry.send("setPolicy", self.address, replace(POLICY, **changes), sender=self.address)

    def grant(self, operator: str, permissions: int) -> list[Event]:
        return self.registry.send("setOperator", operator, permissions, sender=self.address)

    def head(self) -> dict[str, Any]:
        return self._named("headOf", self.registry.call("headOf", self.address))

    def checkpoint(self, layer: int) -> dict[str, Any]:
        return self._named("checkpointOf", self.registry.call("checkpointOf", self.address, layer))

    def requirements(self) -> dict[str, Any]:
        return self._named("requirementsOf", self.registry.call("requirementsOf", self.address))

    def commitments(self) -> tuple[bytes, ...]:
        return tuple(self.checkpoint(layer)["commitment"] for layer in LAYERS)

    def demand(self, layer: int) -> tuple[int, int]:
        demanded: tuple[int, int] = self.registry.call("demandOf", self.address, layer)
        return demanded

    def status(self, layer: int) -> int:
        status: int = self.registry.call("layerStatus", self.address, layer)[0]
        return status

    def deadline(self, layer: int) -> int:
        deadline: int = self.registry.call("layerStatus", self.address, layer)[1]
        return deadline

    def deadlines(self) -> list[int]:
        return [self.deadline(layer) for layer in LAYERS]

    def signal(self) -> tuple[int, int, int]:
        signal: tuple[int, int, int] = self.registry.call("signalStatus", self.address)
        return signal

    def root_at(self, version: int) -> bytes:
        root: bytes = self.registry.call("rootAt", self.address, version)
        return root

    def everything(self) -> dict[str, Any]:
        """Every view about this subject that no time changes."""
        head = self.head()
        return {
            "head": head,
            "checkpoints": [self.checkpoint(layer) for layer in LAYERS],
            "roots": [self.root_at(version) for version in range(1, head["stateVersion"] + 1)],
            "policies": [
                self.registry.call("policyOf", self.address, version) for version in range(1, head["policyVersion"] + 1)
            ],
            "floor": self.registry.call("floorOf", self.address),
            "demands": [self.demand(layer) for layer in LAYERS],
        }

    def _named(self, function: str, values: tuple[Any, ...]) -> dict[str, Any]:
        members = self.registry.functions[function]["outputs"][0]["components"]
        return {member["name"]: value for member, value in zip(members, values, strict=True)}
