"""What a subject promises (policy), what a controller requires (floor), and what holds of both together.

Intervals and windows are seconds, at most 2^48 - 1.

Source: Agent Meditation, Policy and floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from melete.errors import (
    InvalidDisclosure,
    InvalidInput,
    InvalidLayerMask,
    InvalidTriggers,
    MissingInterval,
    RequiredNotSupported,
)
from melete.meditation.layers import ALL_LAYERS, Layer, layers_of
from melete.primitives import ZERO_BYTES32, Bytes32, uint

ALL_TRIGGERS: Final = 0x0F
MAX_DISCLOSURE: Final = 2
TIME_BITS: Final = 48
LATEST_TIME: Final = 2**TIME_BITS - 1

#: One interval for each layer, in order.
Intervals: TypeAlias = tuple[int, int, int, int]
NO_INTERVALS: Final[Intervals] = (0, 0, 0, 0)


def to_intervals(values: object) -> Intervals:
    """Return four intervals. Errors: `InvalidInput`."""
    if not isinstance(values, tuple | list) or len(values) != 4:
        raise InvalidInput("max_interval", None, "four intervals in seconds, one for each layer")
    a, b, c, d = (uint(value, TIME_BITS, f"max_interval[{layer}]") for layer, value in enumerate(values))
    return a, b, c, d


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy version, with the contract's members.

    Errors: `InvalidInput` for values that the contract's types cannot hold; `check_policy` judges the rest.
    """

    supported_layers: int
    required_layers: int
    allowed_triggers: int
    disclosure: int = 0
    due_window: int = 0
    pulse_interval: int = 0
    max_interval: Intervals = NO_INTERVALS
    policy_hash: Bytes32 = ZERO_BYTES32
    policy_uri: str = ""

    def __post_init__(self) -> None:
        for name in ("supported_layers", "required_layers", "allowed_triggers", "disclosure"):
            uint(getattr(self, name), 8, name)
        uint(self.due_window, TIME_BITS, "due_window")
        uint(self.pulse_interval, TIME_BITS, "pulse_interval")
        object.__setattr__(self, "max_interval", to_intervals(self.max_interval))
        object.__setattr__(self, "policy_hash", Bytes32(self.policy_hash, "policyHash"))
        if not isinstance(self.policy_uri, str):
            raise InvalidInput("policyURI", self.policy_uri, "text")


@dataclass(frozen=True, slots=True)
class Floor:
    """A controller's minimum, with the contract's members; the one of all zeros requires nothing."""

    required_layers: int = 0
    pulse_interval: int = 0
    max_interval: Intervals = NO_INTERVALS

    def __post_init__(self) -> None:
        uint(self.required_layers, 8, "required_layers")
        uint(self.pulse_interval, TIME_BITS, "pulse_interval")
        object.__setattr__(self, "max_interval", to_intervals(self.max_interval))


NO_FLOOR: Final = Floor()


@dataclass(frozen=True, slots=True)
class Requirements:
    """What holds for a subject: its policy joined with the floor. The interval of a layer that nobody requires is 0."""

    supported_layers: int
    required_layers: int
    due_window: int
    pulse_interval: int
    max_interval: Intervals


def check_policy(policy: Policy) -> Policy:
    """Return a valid policy, else raise the first error of the registry."""
    if policy.supported_layers == 0 or policy.supported_layers > ALL_LAYERS:
        raise InvalidLayerMask(policy.supported_layers)
    if policy.required_layers & ~policy.supported_layers:
        raise RequiredNotSupported(policy.supported_layers, policy.required_layers)
    if policy.allowed_triggers == 0 or policy.allowed_triggers > ALL_TRIGGERS:
        raise InvalidTriggers(policy.allowed_triggers)
    if policy.disclosure > MAX_DISCLOSURE:
        raise InvalidDisclosure(MAX_DISCLOSURE, policy.disclosure)
    _check_intervals(policy.required_layers, policy.max_interval)
    return policy


def check_floor(floor: Floor) -> Floor:
    """Return a valid floor, else raise the first error of the registry."""
    if floor.required_layers > ALL_LAYERS:
        raise InvalidLayerMask(floor.required_layers)
    _check_intervals(floor.required_layers, floor.max_interval)
    return floor


def join_requirements(policy: Policy, floor: Floor = NO_FLOOR) -> Requirements:
    """Return the effective requirements: a policy can tighten and add, never relax what the floor requires."""

    def interval(layer: Layer) -> int:
        by_policy = policy.max_interval[layer] if policy.required_layers >> layer & 1 else 0
        by_floor = floor.max_interval[layer] if floor.required_layers >> layer & 1 else 0
        return _shorter(by_policy, by_floor)

    return Requirements(
        supported_layers=policy.supported_layers,
        required_layers=policy.required_layers | floor.required_layers,
        due_window=policy.due_window,
        pulse_interval=_shorter(policy.pulse_interval, floor.pulse_interval),
        max_interval=(
            interval(Layer.RUNTIME),
            interval(Layer.MEMORY_SKILLS),
            interval(Layer.TASKS_ROLES),
            interval(Layer.COGNITION),
        ),
    )


def _check_intervals(required_layers: int, max_interval: Intervals) -> None:
    for layer in layers_of(required_layers):
        if max_interval[layer] == 0:
            raise MissingInterval(layer.value)


def _shorter(one: int, other: int) -> int:
    """The shorter of two intervals, of which 0 is none."""
    return min(one, other) if one and other else one or other
