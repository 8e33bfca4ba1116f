"""A subject's maintenance over a stretch of time, as facts that can be drawn: replayed from its events.

Every moment is judged as the registry judged it then: by what was registered up to and with that second, under the
policy and the floor in force. A completion counts from the second in which it was recorded, and from there on by the
time that it reports. After the last block, spans say what holds if nothing else is registered.

Source: Agent Meditation, Status derivation and Events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Final, TypeVar

from melete.errors import InvalidInput
from melete.meditation.cycle import CycleReport
from melete.meditation.events import (
    CycleRecorded,
    Demanded,
    DemandWithdrawn,
    Enrolled,
    FloorUpdated,
    MeditationEvent,
    PolicyUpdated,
    Pulsed,
)
from melete.meditation.layers import Layer, layers_of
from melete.meditation.policy import LATEST_TIME, NO_FLOOR, Floor, Policy, Requirements, join_requirements
from melete.meditation.status import (
    NO_DEMAND,
    Demand,
    LayerStatus,
    MaintenanceStatus,
    Signal,
    SignalStatus,
    judge_layer,
    judge_signal,
)
from melete.primitives import Address

#: The events that a timeline follows from; others change nothing in it.
KINDS: Final[tuple[type[MeditationEvent], ...]] = (
    Enrolled, PolicyUpdated, FloorUpdated, Demanded, DemandWithdrawn, CycleRecorded, Pulsed,
)  # fmt: skip

#: A window that nobody chose reaches this many seconds ahead at least to show the next deadline.
SHORTEST_OUTLOOK: Final = 86400


class Cause(StrEnum):
    """What moved a deadline."""

    ENROLLED = "enrolled"
    COMPLETED = "completed"
    POLICY = "policy"
    FLOOR = "floor"
    DEMANDED = "demanded"
    WITHDRAWN = "withdrawn"


class Ending(StrEnum):
    """How a demand ended."""

    MET = "met"
    WITHDRAWN = "withdrawn"
    REPLACED = "replaced"


class SignKind(StrEnum):
    """What a sign of activity was."""

    ENROLLMENT = "enrollment"
    CYCLE = "cycle"
    PULSE = "pulse"


@dataclass(frozen=True, slots=True)
class Dated:
    """An event, and the time of its block in seconds."""

    at: int
    event: MeditationEvent


@dataclass(frozen=True, slots=True)
class StatusSpan:
    """From `start` on and before `end`, a layer had this status, judged against this deadline (0 for none)."""

    start: int
    end: int
    status: MaintenanceStatus
    deadline: int
    never_completed: bool


@dataclass(frozen=True, slots=True)
class DeadlineSpan:
    """From `start` on and before `end`, this deadline was in force; `causes` moved it there."""

    start: int
    end: int
    deadline: int
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What one cycle did in one layer of its scope: whether it completed it, and whether the commitment changed."""

    seq: int
    reported_started_at: int
    reported_ended_at: int
    recorded_at: int
    policy_version: int
    completed: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class DemandSpan:
    """A demand on one layer. `ending` is None, and `ended_at` 0, while it is outstanding; `seq` is the record that met
    it, else 0."""

    demanded_at: int
    due_by: int
    ending: Ending | None = None
    ended_at: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class LayerLane:
    """One layer over the window; `now` is its status at the last block."""

    layer: Layer
    spans: tuple[StatusSpan, ...]
    deadlines: tuple[DeadlineSpan, ...]
    work: tuple[Work, ...]
    demands: tuple[DemandSpan, ...]
    now: LayerStatus


@dataclass(frozen=True, slots=True)
class SignalSpan:
    """From `start` on and before `end`, the signal had this status, counted from this last one."""

    start: int
    end: int
    status: SignalStatus
    last_signal_at: int


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign of activity; `seq` is the number of its record, 0 for the enrollment."""

    at: int
    kind: SignKind
    seq: int


@dataclass(frozen=True, slots=True)
class SignalLane:
    """The signal over the window; `now` is its status at the last block."""

    spans: tuple[SignalSpan, ...]
    signs: tuple[Sign, ...]
    now: Signal

    @property
    def silences(self) -> tuple[SignalSpan, ...]:
        """The spans in which no signal came in time."""
        return tuple(span for span in self.spans if span.status is SignalStatus.SILENT)


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    version: int
    effective_from: int
    policy: Policy


@dataclass(frozen=True, slots=True)
class FloorVersion:
    version: int
    effective_from: int
    floor: Floor


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything about one subject from `start` on and before `end`. Spans tile the window without a gap.

    `now` is the time of the last block that was read; what lies after it holds if nothing else is registered.
    Versions are all of the history's, those from before the window too.
    """

    subject: Address
    start: int
    end: int
    now: int
    enrolled_at: int
    layers: tuple[LayerLane, LayerLane, LayerLane, LayerLane]
    signal: SignalLane
    policies: tuple[PolicyVersion, ...]
    floors: tuple[FloorVersion, ...]


def compute_timeline(
    subject: Address,
    events: Iterable[Dated],
    *,
    policies: Sequence[Policy],
    floors: Mapping[int, Floor],
    now: int,
    start: int | None = None,
    end: int | None = None,
) -> Timeline:
    """Return a subject's timeline from `start` on and before `end`; unless given, what `choose_window` chooses.

    `events` are those of `KINDS` in the order of the chain, from the enrollment to the block whose time is `now`
    (others are passed over). They do not carry what a policy or a floor says: `policies` are all versions, the first
    first, and `floors` every version that the events name.
    Errors: `InvalidInput` for events out of order, of another subject, without the enrollment, or of a version that
    is not given; for an empty window.
    """
    told = _in_order(Address(subject, "subject"), events, now)
    replay = _Replay(policies, floors)
    for at, moment in groupby(told, key=lambda dated: dated.at):
        replay.take(at, [dated.event for dated in moment])
    layers = tuple(replay.judge(layer, now) for layer in Layer)
    chosen = choose_window(replay.enrolled_at, now, [layer.deadline for layer in layers])
    first, last = chosen[0] if start is None else start, chosen[1] if end is None else end
    if not 0 <= first < last <= LATEST_TIME:
        raise InvalidInput("window", f"{first} to {last}", "a start, and a later end, in seconds")
    replay.pass_time(last)
    runtime, memory, tasks, cognition = (replay.lane(layer, first, last, now) for layer in Layer)
    return Timeline(
        Address(subject),
        first,
        last,
        now,
        replay.enrolled_at,
        (runtime, memory, tasks, cognition),
        replay.signal_lane(first, last, now),
        tuple(version for version in replay.policy_versions if version.effective_from <= last),
        tuple(version for version in replay.floor_versions if version.effective_from <= last),
    )


def choose_window(enrolled_at: int, now: int, deadlines: Iterable[int]) -> tuple[int, int]:
    """Return a window that shows the whole history and what comes next.

    It reaches beyond `now` by a sixth of the history; further, to the next deadline, unless that is further away than
    the history is long (or a day). It begins a little before the enrollment: what happened in its first seconds stands
    clear of the edge.
    """
    history = now - enrolled_at
    outlook = max(history // 6, 60)
    coming = [deadline - now for deadline in deadlines if deadline > now]
    if coming and min(coming) <= max(history, SHORTEST_OUTLOOK):
        outlook = max(outlook, min(coming) + (history + min(coming)) // 20)
    end = min(now + outlook, LATEST_TIME)
    return max(enrolled_at - (end - enrolled_at) // 20, 0), end


def find_time(event: MeditationEvent) -> int | None:
    """Return the time that an event states itself; None where only its block tells."""
    if isinstance(event, Enrolled):
        return event.enrolled_at
    if isinstance(event, PolicyUpdated | FloorUpdated):
        return event.effective_from
    if isinstance(event, CycleRecorded | Pulsed):
        return event.recorded_at
    return None


def _in_order(subject: Address, events: Iterable[Dated], now: int) -> list[Dated]:
    told = [dated for dated in events if isinstance(dated.event, KINDS)]
    if not told or not isinstance(told[0].event, Enrolled):
        raise InvalidInput("events", len(told), "a subject's events from its enrollment on; start at an earlier block")
    before = 0
    for dated in told:
        if dated.event.subject != subject:
            raise InvalidInput("events", dated.event.subject, f"events of {subject}")
        if not before <= dated.at <= now:
            raise InvalidInput("events", dated.at, "events in the order of their times, none after now")
        before = dated.at
    return told


@dataclass
class _Track:
    """What is known of one layer so far."""

    last_completed_at: int = 0
    demand: Demand = NO_DEMAND
    spans: list[StatusSpan] = field(default_factory=list)
    deadlines: list[DeadlineSpan] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    demands: list[DemandSpan] = field(default_factory=list)
    causes: tuple[Cause, ...] = ()

    def end_demand(self, ending: Ending, at: int, seq: int = 0) -> None:
        if self.demand.demanded_at:
            self.demands[-1] = replace(self.demands[-1], ending=ending, ended_at=at, seq=seq)
            self.demand = NO_DEMAND


class _Replay:
    """A registry's state for one subject, event by event, and what it meant for the time between them."""

    def __init__(self, policies: Sequence[Policy], floors: Mapping[int, Floor]) -> None:
        self._known_policies, self._known_floors = policies, floors
        self._requirements: Requirements | None = None
        self._policy: Policy | None = None
        self._floor = NO_FLOOR
        self._last_signal_at = 0
        self._time = self._signal_time = 0  # up to where spans are written
        self._tracks = tuple(_Track() for _ in Layer)
        self._signals: list[SignalSpan] = []
        self._signs: list[Sign] = []
        self.enrolled_at = 0
        self.policy_versions: list[PolicyVersion] = []
        self.floor_versions: list[FloorVersion] = []

    # What happened

    def take(self, at: int, events: Sequence[MeditationEvent]) -> None:
        """Take all that happened in one second."""
        self._pass_signal(at)
        if all(isinstance(event, Pulsed) for event in events):
            for event in events:
                self._take(at, event)
            return  # signs are many, and move no deadline
        self._pass_layers(at)
        causes: list[list[Cause]] = [[] for _ in Layer]
        for event in events:
            cause, mask = self._take(at, event)
            for layer in layers_of(mask):
                if cause is not None and cause not in causes[layer]:
                    causes[layer].append(cause)
        if self._policy is not None:
            self._requirements = join_requirements(self._policy, self._floor)
        for track, found in zip(self._tracks, causes, strict=True):
            track.causes = tuple(found)

    def _take(self, at: int, event: MeditationEvent) -> tuple[Cause | None, int]:
        """Take one event; return what it may have moved deadlines by, and of which layers."""
        if isinstance(event, Enrolled):
            self.enrolled_at = event.enrolled_at
            self._give_sign(Sign(at, SignKind.ENROLLMENT, 0))
            return Cause.ENROLLED, 0x0F
        if isinstance(event, PolicyUpdated):
            if not 1 <= event.version <= len(self._known_policies):
                raise InvalidInput("policies", event.version, "a version whose policy is given")
            self._policy = self._known_policies[event.version - 1]
            self.policy_versions.append(PolicyVersion(event.version, at, self._policy))
            return (Cause.POLICY if event.version > 1 else None), 0x0F
        if isinstance(event, FloorUpdated):
            if event.version not in self._known_floors:
                raise InvalidInput("floors", event.version, "a version whose floor is given")
            self._floor = self._known_floors[event.version]
            self.floor_versions.append(FloorVersion(event.version, at, self._floor))
            return Cause.FLOOR, 0x0F
        if isinstance(event, Demanded):
            for layer in layers_of(event.layer_mask):
                track = self._tracks[layer]
                track.end_demand(Ending.REPLACED, at)
                track.demand = Demand(at, event.due_by)
                track.demands.append(DemandSpan(at, event.due_by))
            return Cause.DEMANDED, event.layer_mask
        if isinstance(event, DemandWithdrawn):
            for layer in layers_of(event.layer_mask):
                self._tracks[layer].end_demand(Ending.WITHDRAWN, at)
            return Cause.WITHDRAWN, event.layer_mask
        if isinstance(event, CycleRecorded):
            self._take_cycle(at, event.seq, event.report, event.changed_layers)
            return Cause.COMPLETED, event.report.completed_layers
        if isinstance(event, Pulsed):
            self._give_sign(Sign(at, SignKind.PULSE, event.seq))
        return None, 0

    def _take_cycle(self, at: int, seq: int, report: CycleReport, changed_layers: int) -> None:
        ended_at = report.reported_ended_at
        for layer in layers_of(report.layer_mask):
            track = self._tracks[layer]
            completed = bool(report.completed_layers >> layer & 1)
            track.work.append(
                Work(
                    seq, report.reported_started_at, ended_at, at, report.policy_version,
                    completed, bool(changed_layers >> layer & 1),
                )
            )  # fmt: skip
            if completed:
                track.last_completed_at = ended_at
                if track.demand.demanded_at <= ended_at:
                    track.end_demand(Ending.MET, at, seq)
        self._give_sign(Sign(at, SignKind.CYCLE, seq))

    def _give_sign(self, sign: Sign) -> None:
        self._signs.append(sign)
        self._last_signal_at = sign.at

    # What it meant

    def judge(self, layer: Layer, at: int) -> LayerStatus:
        """The status of a layer by what is registered now, at a time."""
        track = self._tracks[layer]
        return judge_layer(
            layer,
            self._requirements,
            enrolled_at=self.enrolled_at,
            last_completed_at=track.last_completed_at,
            demand=track.demand,
            now=at,
        )

    def pass_time(self, until: int) -> None:
        """Write down how everything stands from where the last call ended until before a time."""
        self._pass_layers(until)
        self._pass_signal(until)

    def _pass_layers(self, until: int) -> None:
        if until > self._time:
            for layer in Layer:
                self._pass_layer(layer, until)
            self._time = until

    def _pass_layer(self, layer: Layer, until: int) -> None:
        track = self._tracks[layer]
        deadline = self.judge(layer, self._time).deadline
        due_from = deadline - (self._requirements.due_window if self._requirements else 0)
        turns = _between(self._time, until, (due_from, deadline))
        for start, end in pairwise(turns):
            found = self.judge(layer, start)
            span = StatusSpan(start, end, found.status, found.deadline, found.never_completed)
            last = track.spans[-1] if track.spans else None
            if last is not None and replace(last, end=end) == replace(span, start=last.start):
                track.spans[-1] = replace(last, end=end)
            else:
                track.spans.append(span)
        if not deadline:
            return
        before = track.deadlines[-1] if track.deadlines else None
        if before is not None and (before.end, before.deadline) == (self._time, deadline):
            track.deadlines[-1] = replace(before, end=until)
        else:
            track.deadlines.append(DeadlineSpan(self._time, until, deadline, track.causes))

    def _pass_signal(self, until: int) -> None:
        if until <= self._signal_time:
            return
        signal = judge_signal(self._requirements, last_signal_at=self._last_signal_at, now=LATEST_TIME)
        turns = _between(self._signal_time, until, (signal.silent_since + 1,) if signal.silent_since else ())
        for start, end in pairwise(turns):
            found = judge_signal(self._requirements, last_signal_at=self._last_signal_at, now=start)
            span = SignalSpan(start, end, found.status, found.last_signal_at)
            last = self._signals[-1] if self._signals else None
            if last is not None and (last.status, last.last_signal_at) == (span.status, span.last_signal_at):
                self._signals[-1] = replace(last, end=end)
            else:
                self._signals.append(span)
        self._signal_time = until

    # What is drawn of it

    def lane(self, layer: Layer, start: int, end: int, now: int) -> LayerLane:
        """What a window shows of a layer."""
        track = self._tracks[layer]
        return LayerLane(
            layer,
            tuple(_clip(track.spans, start, end)),
            tuple(_clip(track.deadlines, start, end)),
            tuple(work for work in track.work if work.reported_ended_at <= end and work.recorded_at >= start),
            tuple(made for made in track.demands if made.demanded_at <= end and (made.ended_at or end) >= start),
            self.judge(layer, now),
        )

    def signal_lane(self, start: int, end: int, now: int) -> SignalLane:
        """What a window shows of the signal."""
        return SignalLane(
            tuple(_clip(self._signals, start, end)),
            tuple(sign for sign in self._signs if start <= sign.at <= end),
            judge_signal(self._requirements, last_signal_at=self._last_signal_at, now=now),
        )


def _between(start: int, end: int, turns: Iterable[int]) -> list[int]:
    """Start and end, and between them the turns that lie between, ascending."""
    return sorted({start, end, *(turn for turn in turns if start < turn < end)})


_Span = TypeVar("_Span", StatusSpan, DeadlineSpan, SignalSpan)


def _clip(spans: Iterable[_Span], start: int, end: int) -> Iterable[_Span]:
    """What of spans lies in a window."""
    return (
        replace(span, start=max(span.start, start), end=min(span.end, end))
        for span in spans
        if span.start < end and span.end > start
    )
