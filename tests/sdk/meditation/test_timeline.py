"""A timeline against the rules and the model, at every moment of random stories; and told by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.meditation import events as happened
from melete.meditation.layers import Layer
from melete.meditation.policy import join_requirements
from melete.meditation.status import Demand, MaintenanceStatus, SignalStatus, judge_layer, judge_signal
from melete.meditation.timeline import (
    Cause,
    Dated,
    Ending,
    SignKind,
    Timeline,
    choose_window,
    compute_timeline,
    find_time,
)
from melete.primitives import Address
from models import meditation as model

from .timeline_stories import CONTROLLER, DAY, HOUR, POLICY, REFERENCE, START, SUBJECT, Story, to_floor, to_policy

# Random stories

MASKS = st.integers(0, 15)
INTERVALS = st.tuples(*[st.integers(1, 40)] * 4)
POLICIES = st.builds(
    lambda supported, required, window, pulse, intervals: {
        "supported_layers": supported or 1, "required_layers": required & (supported or 1), "due_window": window,
        "pulse_interval": pulse, "max_interval": intervals,
    },
    MASKS, MASKS, st.integers(0, 15), st.integers(0, 12), INTERVALS,
)  # fmt: skip
FLOORS = st.builds(model.Floor, MASKS, st.integers(0, 12), INTERVALS)
STEPS = st.one_of(
    st.tuples(st.just("set_policy"), POLICIES),
    st.tuples(st.just("set_floor"), FLOORS),
    st.tuples(st.just("demand"), MASKS, st.integers(1, 30)),
    st.tuples(st.just("withdraw"), MASKS),
    st.tuples(st.just("pulse")),
    st.tuples(st.just("cycle"), MASKS, MASKS, st.integers(0, 10), st.sets(st.integers(0, 3))),
)
STORIES = st.tuples(POLICIES, st.lists(st.tuples(st.integers(0, 25), STEPS), max_size=12), st.integers(0, 60))


@dataclass(frozen=True)
class Seen:
    """What model and rules said at a moment."""

    at: int
    layers: list[tuple[int, int, bool]]
    signal: tuple[int, int]


def look(story: Story) -> Seen:
    """Judge by the package's rules and by the model, which must agree, at the story's time."""
    subject = story.subject
    requirements = join_requirements(to_policy(subject.policies[-1][0]), to_floor(subject.floor))
    layers = []
    for layer in Layer:
        found = judge_layer(
            layer, requirements, enrolled_at=subject.enrolled_at,
            last_completed_at=subject.checkpoints[layer].last_completed_at,
            demand=Demand(*(subject.demands[layer] or (0, 0))), now=story.now,
        )  # fmt: skip
        layers.append((found.status, found.deadline, found.never_completed))
        assert layers[-1] == story.registry.layer_status(SUBJECT, layer)
    signal = judge_signal(requirements, last_signal_at=subject.last_signal_at, now=story.now)
    assert (signal.status, signal.last_signal_at, signal.silent_since) == story.registry.signal_status(SUBJECT)
    return Seen(story.now, layers, (signal.status, signal.last_signal_at))


def act(story: Story, step: tuple[Any, ...]) -> None:
    """Take a step, unless the registry refuses it."""
    name, *values = step
    try:
        if name == "set_policy":
            story.set_policy(**values[0])
        elif name == "cycle":
            mask, completed, age, changed = values
            age = min(age, story.now - story.subject.enrolled_at)
            story.cycle(mask, completed & mask, age=age, changed=tuple(layer for layer in changed if mask >> layer & 1))
        else:
            getattr(story, name)(*values)
    except model.Rejected:
        pass


def play(told: Any) -> tuple[Story, list[Seen]]:
    """Play a story, looking at each second before something happens in it and at each second after."""
    policy, steps, rest = told
    story = Story(replace(POLICY, **policy))
    seen: list[Seen] = []
    for wait, step in steps:
        for _ in range(wait):
            seen.append(look(story))
            story.wait(1)
        act(story, step)
    for _ in range(rest):
        seen.append(look(story))
        story.wait(1)
    return story, [*seen, look(story)]


@given(STORIES)
def test_every_second_of_a_story_has_the_status_that_the_registry_gave(told):
    story, seen = play(told)
    timeline = story.timeline(START, story.now + 1)
    for moment in seen:
        for layer, judged in zip(timeline.layers, moment.layers, strict=True):
            (span,) = [span for span in layer.spans if span.start <= moment.at < span.end]
            assert (span.status, span.deadline, span.never_completed) == judged
            in_force = [span.deadline for span in layer.deadlines if span.start <= moment.at < span.end]
            assert in_force == ([judged[1]] if judged[1] else [])
        (signal,) = [span for span in timeline.signal.spans if span.start <= moment.at < span.end]
        assert (signal.status, signal.last_signal_at) == moment.signal
    assert [(lane.now.status, lane.now.deadline, lane.now.never_completed) for lane in timeline.layers] == seen[
        -1
    ].layers
    assert (timeline.signal.now.status, timeline.signal.now.last_signal_at) == seen[-1].signal


@given(STORIES, st.integers(0, 90))
def test_what_comes_after_the_last_block_is_what_holds_if_nothing_else_is_registered(told, ahead):
    story, _ = play(told)
    timeline = story.timeline(START, story.now + ahead + 1)
    story.wait(ahead)
    later = look(story)
    assert [(lane.spans[-1].status, lane.spans[-1].deadline) for lane in timeline.layers] == [
        judged[:2] for judged in later.layers
    ]
    assert timeline.signal.spans[-1].status == later.signal[0]


@given(STORIES, st.integers(-20, 100), st.integers(1, 100))
def test_spans_tile_any_window_and_say_what_the_whole_story_says(told, offset, length):
    story, _ = play(told)
    start, end = START + offset, START + offset + length
    part, whole = story.timeline(start, end), story.timeline(START - 20, story.now + 200)
    lanes = [*zip(part.layers, whole.layers, strict=True), (part.signal, whole.signal)]
    for lane, wide in lanes:
        assert (lane.spans[0].start, lane.spans[-1].end) == (start, end)
        assert all(one.end == other.start for one, other in pairwise(lane.spans))
        assert all(
            replace(one, start=0, end=0) != replace(other, start=0, end=0) for one, other in pairwise(lane.spans)
        )
        for span in lane.spans:
            (holder,) = [one for one in wide.spans if one.start <= span.start and span.end <= one.end]
            assert holder.status == span.status
    assert all(span.start < span.end for lane in part.layers for span in (*lane.spans, *lane.deadlines))


@given(STORIES)
def test_pulses_move_nothing_but_the_signal(told):
    story, _ = play(told)
    with_pulses = story.timeline(START, story.now + 1)
    story.events = [dated for dated in story.events if not isinstance(dated.event, happened.Pulsed)]
    without = story.timeline(START, story.now + 1)
    assert with_pulses.layers == without.layers
    assert (with_pulses.policies, with_pulses.floors) == (without.policies, without.floors)


@given(STORIES)
def test_every_demand_and_every_record_of_a_story_is_told_once(told):
    story, _ = play(told)
    timeline = story.timeline(START, story.now + 1)
    for layer in Layer:
        made = [
            (dated.at, dated.event.due_by)
            for dated in story.events
            if isinstance(dated.event, happened.Demanded) and dated.event.layer_mask >> layer & 1
        ]
        demands = timeline.layers[layer].demands
        assert [(demand.demanded_at, demand.due_by) for demand in demands] == made
        assert [demand.ending for demand in demands if demand.ending is None] == [None] * (
            story.subject.demands[layer] is not None
        )
        reports = [
            dated.event
            for dated in story.events
            if isinstance(dated.event, happened.CycleRecorded) and dated.event.report.layer_mask >> layer & 1
        ]
        assert [(work.seq, work.completed) for work in timeline.layers[layer].work] == [
            (event.seq, bool(event.report.completed_layers >> layer & 1)) for event in reports
        ]
    records = [sign.seq for sign in timeline.signal.signs if sign.kind is not SignKind.ENROLLMENT]
    assert records == list(range(1, story.subject.record_count + 1))


# Told by hand


def statuses(timeline: Timeline, layer: int = 0) -> list[tuple[str, int]]:
    """The statuses of a layer, and how long each lasted."""
    return [(span.status.name, span.end - span.start) for span in timeline.layers[layer].spans]


def test_layer_that_nobody_looks_after_is_fresh_then_due_then_overdue():
    timeline = Story().timeline(START, START + 2 * DAY)
    assert statuses(timeline) == [("FRESH", DAY - HOUR), ("DUE", HOUR), ("OVERDUE", DAY)]


def test_deadline_itself_is_overdue_and_the_second_before_is_due():
    timeline = Story().wait(DAY).timeline(START, START + DAY + 1)
    assert timeline.layers[0].spans[-1].start == START + DAY
    assert timeline.layers[0].now.status is MaintenanceStatus.OVERDUE


def test_time_before_the_enrollment_is_not_enrolled():
    timeline = Story().timeline(START - 10, START + 10)
    assert statuses(timeline) == [("NOT_ENROLLED", 10), ("FRESH", 10)]
    assert [span.status.name for span in timeline.signal.spans] == ["NOT_ENROLLED", "PRESENT"]


def test_late_submission_counts_from_its_record_on_by_the_time_that_it_reports():
    timeline = Story().wait(26 * HOUR).cycle(1, age=20 * HOUR).timeline(START, START + 31 * HOUR)
    assert statuses(timeline) == [
        ("FRESH", DAY - HOUR), ("DUE", HOUR), ("OVERDUE", 2 * HOUR),
        ("FRESH", 3 * HOUR), ("DUE", HOUR), ("OVERDUE", HOUR),
    ]  # fmt: skip
    (work,) = timeline.layers[0].work
    assert (work.reported_ended_at, work.recorded_at) == (START + 6 * HOUR, START + 26 * HOUR)


def test_partial_cycle_moves_the_deadlines_of_what_it_completed_alone():
    timeline = Story().wait(HOUR).cycle(15, 3, changed=(2,)).timeline(START, START + 2 * HOUR)
    assert [len(lane.deadlines) for lane in timeline.layers] == [2, 2, 1, 1]
    assert timeline.layers[0].deadlines[1].causes == (Cause.COMPLETED,)
    assert [(lane.work[0].completed, lane.work[0].changed) for lane in timeline.layers] == [
        (True, False), (True, False), (False, True), (False, False),
    ]  # fmt: skip


def test_policy_moves_a_deadline_from_the_same_anchor():
    story = Story().wait(HOUR).set_policy(max_interval=(2 * DAY, 7 * DAY, 30 * DAY, 90 * DAY))
    first, second = story.timeline(START, START + DAY).layers[0].deadlines
    assert (first.deadline, first.causes) == (START + DAY, (Cause.ENROLLED,))
    assert (second.start, second.deadline, second.causes) == (START + HOUR, START + 2 * DAY, (Cause.POLICY,))
    assert len(story.timeline(START, START + DAY).layers[1].deadlines) == 1


def test_floor_tightens_and_policies_keep_their_versions():
    story = Story().wait(HOUR).set_floor(model.Floor(1, 0, (2 * HOUR, 0, 0, 0))).wait(5).set_policy(due_window=0)
    timeline = story.timeline(START, START + DAY)
    assert timeline.layers[0].deadlines[1].causes == (Cause.FLOOR,)
    assert timeline.layers[0].deadlines[1].deadline == START + 2 * HOUR
    assert [(kept.version, kept.effective_from) for kept in timeline.policies] == [(1, START), (2, START + HOUR + 5)]
    assert [(kept.version, kept.effective_from) for kept in timeline.floors] == [(1, START + HOUR)]


def test_layer_that_is_required_no_more_has_no_deadline():
    story = Story().wait(HOUR).set_policy(required_layers=14)
    lane = story.timeline(START, START + DAY).layers[0]
    assert [span.status.name for span in lane.spans] == ["FRESH", "UNSCHEDULED"]
    assert [(span.start, span.end) for span in lane.deadlines] == [(START, START + HOUR)]


def test_demand_is_met_withdrawn_replaced_or_outstanding():
    story = Story().wait(10).demand(15, HOUR).wait(10).withdraw(2).demand(4, 2 * HOUR).wait(10).cycle(9)
    demands = [lane.demands for lane in story.timeline().layers]
    first = [(made[0].ending, made[0].ended_at - START, made[0].seq) for made in demands]
    assert first == [(Ending.MET, 30, 1), (Ending.WITHDRAWN, 20, 0), (Ending.REPLACED, 20, 0), (Ending.MET, 30, 1)]
    assert [demand.ending for demand in demands[2]] == [Ending.REPLACED, None]
    causes = [[span.causes for span in lane.deadlines] for lane in story.timeline().layers]
    assert causes[0] == [(Cause.ENROLLED,), (Cause.DEMANDED,), (Cause.COMPLETED,)]
    assert causes[1] == [(Cause.ENROLLED,), (Cause.DEMANDED,), (Cause.WITHDRAWN,)]


def test_completion_from_before_a_demand_does_not_meet_it():
    story = Story().wait(HOUR).demand(1, HOUR).wait(60).cycle(1, age=120)
    lane = story.timeline().layers[0]
    assert [demand.ending for demand in lane.demands] == [None]
    assert lane.now.deadline == START + 2 * HOUR


def test_in_one_second_a_completion_meets_the_demand_before_it_and_not_the_one_after_it():
    before = Story().wait(HOUR).demand(1, HOUR).cycle(1).timeline().layers[0]
    after = Story().wait(HOUR).cycle(1).demand(1, HOUR).timeline().layers[0]
    assert [demand.ending for demand in (*before.demands, *after.demands)] == [Ending.MET, None]
    assert (before.now.deadline, after.now.deadline) == (START + HOUR + DAY, START + 2 * HOUR)
    assert [span.causes for span in before.deadlines] == [(Cause.ENROLLED,), (Cause.DEMANDED, Cause.COMPLETED)]


def test_deadline_that_comes_back_after_a_while_without_one_is_told_twice():
    story = Story().wait(60).set_policy(required_layers=14).wait(60).set_policy()
    lane = story.timeline(START, START + HOUR).layers[0]
    assert [(span.start - START, span.end - START, span.deadline - START) for span in lane.deadlines] == [
        (0, 60, DAY), (120, HOUR, DAY),
    ]  # fmt: skip


def test_window_that_ends_where_a_status_turns_shows_nothing_of_the_next():
    story = Story().wait(DAY + 1).cycle(1)
    assert statuses(story.timeline(START, START + DAY)) == [("FRESH", DAY - HOUR), ("DUE", HOUR)]
    assert statuses(story.timeline(START + DAY, START + DAY + 1)) == [("OVERDUE", 1)]


def test_silent_and_fresh_then_present_and_overdue_are_both_told():
    story = Story().wait(10 * HOUR).pulse().wait(20 * HOUR).pulse()
    timeline = story.timeline(START, story.now + 1)
    signal = [(span.status.name, span.start - START) for span in timeline.signal.spans]
    assert signal == [
        ("PRESENT", 0), ("SILENT", 6 * HOUR + 1), ("PRESENT", 10 * HOUR), ("SILENT", 16 * HOUR + 1),
        ("PRESENT", 30 * HOUR),
    ]  # fmt: skip
    assert len(timeline.signal.silences) == 2
    assert timeline.layers[0].now.status is MaintenanceStatus.OVERDUE
    assert timeline.signal.now.status is SignalStatus.PRESENT


def test_events_of_one_second_count_together():
    story = Story().set_policy(max_interval=(2 * DAY,) * 4).set_policy(max_interval=(3 * DAY,) * 4)
    lane = story.timeline(START, START + 10).layers[0]
    assert [(span.deadline, span.causes) for span in lane.deadlines] == [
        (START + 3 * DAY, (Cause.ENROLLED, Cause.POLICY))
    ]


def test_latest_time_is_never_passed():
    story = Story(replace(POLICY, max_interval=(model.LATEST_TIME,) * 4, pulse_interval=model.LATEST_TIME))
    timeline = story.timeline(START, model.LATEST_TIME)
    assert statuses(timeline) == [
        ("FRESH", model.LATEST_TIME - HOUR - START), ("DUE", HOUR)
    ]  # fmt: skip
    assert [span.status.name for span in timeline.signal.spans] == ["PRESENT"]


# Windows and wrong input


@pytest.mark.parametrize(
    ("enrolled_at", "now", "deadlines", "ahead"),
    [
        (START, START, [START + HOUR], HOUR + HOUR // 20),
        (START, START, [START + 90 * DAY], 60),
        (START, START + 60 * DAY, [START], 10 * DAY),
        (START, START + 60 * DAY, [START + 61 * DAY], 10 * DAY),
        (START, START + 60 * DAY, [START + 90 * DAY], 30 * DAY + 90 * DAY // 20),
        (START, START + 60 * DAY, [0, 0, 0, 0], 10 * DAY),
        (0, model.LATEST_TIME - 1, [], 1),
    ],
)
def test_window_shows_the_history_and_the_next_deadline_if_it_is_near(enrolled_at, now, deadlines, ahead):
    start, end = choose_window(enrolled_at, now, deadlines)
    assert end == now + ahead
    assert start == max(enrolled_at - (end - enrolled_at) // 20, 0)


@pytest.mark.parametrize(("start", "end"), [(START, START), (START + 1, START), (-1, START), (START, 2**48)])
def test_window_that_is_none_is_refused(start, end):
    with pytest.raises(InvalidInput, match="window"):
        Story().timeline(start, end)


def broken(change: str) -> dict[str, Any]:
    story = Story().wait(5).set_floor(model.Floor()).wait(5).set_policy()
    policies = [to_policy(policy) for policy, _ in story.subject.policies]
    given: dict[str, Any] = {"events": story.events, "policies": policies, "floors": story.floors, "now": story.now}
    changes: dict[str, dict[str, Any]] = {
        "no events": {"events": []},
        "no enrollment": {"events": story.events[1:]},
        "out of order": {"events": [*story.events, replace(story.events[-1], at=START)]},
        "after now": {"now": story.now - 1},
        "another subject": {"events": [Dated(START, replace(story.events[0].event, subject=Address(CONTROLLER)))]},
        "policy not given": {"policies": policies[:1]},
        "floor not given": {"floors": {}},
    }
    return given | changes[change]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("no events", "events"),
        ("no enrollment", "events"),
        ("out of order", "events"),
        ("after now", "events"),
        ("another subject", "events"),
        ("policy not given", "policies"),
        ("floor not given", "floors"),
    ],
)
def test_events_that_tell_no_history_are_refused(change, field):
    with pytest.raises(InvalidInput) as refused:
        compute_timeline(Address(SUBJECT), **broken(change))
    assert refused.value.field == field


def test_events_that_change_nothing_are_passed_over():
    story = Story()
    whole = story.timeline()
    other = Address(CONTROLLER)
    story.events.append(Dated(START, happened.OperatorSet(Address(SUBJECT), other, 1, other, REFERENCE)))
    assert story.timeline() == whole


def test_time_of_an_event_is_found_where_it_states_one():
    story = Story().set_floor(model.Floor()).demand(1, 5).withdraw(1).pulse().wait(1).cycle(1)
    found = [(type(dated.event).__name__, find_time(dated.event)) for dated in story.events]
    assert found == [
        ("Enrolled", START), ("PolicyUpdated", START), ("FloorUpdated", START), ("Demanded", None),
        ("DemandWithdrawn", None), ("Pulsed", START), ("CycleRecorded", START + 1),
    ]  # fmt: skip
