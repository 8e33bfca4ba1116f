"""The SDK's pure functions of Agent Meditation beside the contract's own answers, over random stories.

A story is a list of calls with times. It is told twice: to the pure functions, which say what each call must answer,
and to the contract, in simulated blocks that leave nothing behind, so that any time from 1 to 2^48-1 is at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from eth_abi.abi import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.reverts import compute_selector, decode_revert
from melete.errors import ContractError
from melete.meditation.cycle import CycleReport, SubjectState, check_report, derive_outcome
from melete.meditation.layers import ALL_LAYERS, Layer, compute_layer_commitment, compute_root, layers_of
from melete.meditation.policy import (
    LATEST_TIME,
    NO_FLOOR,
    Floor,
    Policy,
    Requirements,
    check_floor,
    check_policy,
    join_requirements,
)
from melete.meditation.status import NO_DEMAND, Demand, judge_layer, judge_signal
from melete.primitives import ZERO_BYTES32, Address, Bytes32
from melete.resources import load_artifact
from strategies import words

ARTIFACT = load_artifact("AgentMeditationRegistry")
REGISTRY, SUBJECT, CONTROLLER = (str(Address(bytes([byte]) * 20)) for byte in (0x44, 0x55, 0x66))
ALL_RIGHTS = 7


def type_of(member: dict[str, Any]) -> str:
    kind = member["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(map(type_of, member["components"])) + ")" + kind.removeprefix("tuple")


INPUTS = {e["name"]: [type_of(member) for member in e["inputs"]] for e in ARTIFACT.abi if e["type"] == "function"}
OUTPUTS = {e["name"]: [type_of(member) for member in e["outputs"]] for e in ARTIFACT.abi if e["type"] == "function"}
(CYCLE_RECORDED,) = (e for e in ARTIFACT.abi if e["type"] == "event" and e["name"] == "CycleRecorded")
RECORDED_DATA = [type_of(member) for member in CYCLE_RECORDED["inputs"] if not member["indexed"]]


# A call, and how it is answered


@dataclass(frozen=True)
class Call:
    at: int
    sender: str
    function: str
    arguments: tuple[Any, ...]

    @property
    def data(self) -> str:
        kinds = INPUTS[self.function]
        selector = compute_selector(f"{self.function}({','.join(kinds)})")
        return "0x" + (selector + encode(kinds, self.arguments)).hex()


@dataclass(frozen=True)
class Refused:
    """A call that reverts: the error's class and its values by name."""

    error: str
    values: dict[str, Any]

    @classmethod
    def of(cls, error: ContractError) -> Refused:
        return cls(type(error).__name__, vars(error))


#: What a call answers: an error, or its outputs; for an accepted report also the version and the layers it changed.
Answer = Refused | tuple[Any, ...]


def judge(question: Callable[[], Any]) -> Any:
    """What a pure function says, an error as what the contract would answer."""
    try:
        return question()
    except ContractError as error:
        return Refused.of(error)


class Node:
    def __init__(self, url: str) -> None:
        self.w3 = connect(url)
        self.request("anvil_setCode", [REGISTRY, "0x" + ARTIFACT.deployed_bytecode.hex()])

    def request(self, method: str, parameters: list[Any]) -> Any:
        answer = self.w3.provider.make_request(method, parameters)
        assert "error" not in answer, answer
        return answer["result"]

    def tell(self, calls: list[Call]) -> list[Answer]:
        """Make the calls, each in a simulated block with its time, one after the other; nothing of it stays."""
        blocks = [
            {
                "blockOverrides": {"time": hex(call.at)},
                "calls": [{"from": call.sender, "to": REGISTRY, "data": call.data}],
            }
            for call in calls
        ]
        mined = self.request("eth_simulateV1", [{"blockStateCalls": blocks}, "latest"])
        return [self.read(call, block["calls"][0]) for call, block in zip(calls, mined, strict=True)]

    def read(self, call: Call, result: dict[str, Any]) -> Answer:
        if result["status"] != "0x1":
            return Refused.of(decode_revert(result["returnData"]))
        outputs = decode(OUTPUTS[call.function], bytes.fromhex(result["returnData"][2:]))
        if call.function != "report":
            return outputs
        # CycleRecorded comes first; the others are one for each layer that changed.
        recorded, *changes = result["logs"]
        values = decode(RECORDED_DATA, bytes.fromhex(recorded["data"][2:]))
        new_version, changed_layers = values[1], values[3]
        assert [int(change["topics"][2], 16) for change in changes] == list(layers_of(changed_layers))
        return (*outputs, new_version, changed_layers)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Anvil() as anvil:
        yield Node(anvil.url)


# A story


def policy_words(policy: Policy) -> tuple[Any, ...]:
    return (
        policy.policy_hash,
        policy.policy_uri,
        policy.supported_layers,
        policy.required_layers,
        policy.allowed_triggers,
        policy.disclosure,
        policy.due_window,
        policy.pulse_interval,
        policy.max_interval,
    )


def floor_words(floor: Floor) -> tuple[Any, ...]:
    return (floor.required_layers, floor.pulse_interval, floor.max_interval)


def requirement_words(joined: Requirements) -> tuple[Any, ...]:
    return (
        joined.supported_layers,
        joined.required_layers,
        joined.due_window,
        joined.pulse_interval,
        joined.max_interval,
    )


def report_words(report: CycleReport) -> tuple[Any, ...]:
    return (
        report.base_version,
        report.pre_root,
        report.post_commitments,
        report.layer_mask,
        report.completed_layers,
        report.ops_mask,
        report.outcome,
        report.trigger,
        report.policy_version,
        report.reported_started_at,
        report.reported_ended_at,
        report.next_planned_at,
        report.restores_version,
        report.record_hash,
        report.record_uri,
    )


class Story:
    """The calls so far, what the pure functions say to each, and where the subject stands."""

    def __init__(self, at: int, policy: Policy, baseline: tuple[Bytes32, ...] = (ZERO_BYTES32,) * 4) -> None:
        self.calls: list[Call] = []
        self.expected: list[Answer] = []
        self.now = self.enrolled_at = self.last_signal_at = at
        self.floor, self.records, self.demands = NO_FLOOR, 0, [NO_DEMAND] * 4
        a, b, c, d = baseline
        root = compute_root(baseline)
        self.state = SubjectState(1, (a, b, c, d), (0, 0, 0, 0), ((check_policy(policy), at),), {1: root})
        self.versions = [self.state.commitments]
        self._add(SUBJECT, "enroll", baseline, policy_words(policy), CONTROLLER, ALL_RIGHTS, answer=())

    def _add(self, sender: str, function: str, *arguments: Any, answer: Answer) -> None:
        self.calls.append(Call(self.now, sender, function, arguments))
        self.expected.append(answer)

    def wait_until(self, at: int) -> None:
        assert self.now <= at <= LATEST_TIME
        self.now = at

    @property
    def requirements(self) -> Requirements:
        return join_requirements(self.state.policies[-1][0], self.floor)

    def set_policy(self, policy: Policy) -> None:
        answer = judge(lambda: check_policy(policy))
        if not isinstance(answer, Refused):
            self.state = replace(self.state, policies=(*self.state.policies, (policy, self.now)))
            answer = ()
        self._add(SUBJECT, "setPolicy", SUBJECT, policy_words(policy), answer=answer)

    def set_floor(self, floor: Floor) -> None:
        answer = judge(lambda: check_floor(floor))
        if not isinstance(answer, Refused):
            self.floor, answer = floor, ()
        self._add(CONTROLLER, "setFloor", SUBJECT, floor_words(floor), answer=answer)

    def demand(self, mask: int, due_by: int) -> None:
        for layer in layers_of(mask):
            self.demands[layer] = Demand(self.now, due_by)
        self._add(CONTROLLER, "demand", SUBJECT, mask, due_by, answer=())

    def withdraw_demand(self, mask: int) -> None:
        for layer in layers_of(mask):
            self.demands[layer] = NO_DEMAND
        self._add(CONTROLLER, "withdrawDemand", SUBJECT, mask, answer=())

    def pulse(self) -> None:
        self._signal()
        self._add(SUBJECT, "pulse", SUBJECT, 0, answer=(self.records,))

    def _signal(self) -> None:
        self.records, self.last_signal_at = self.records + 1, self.now

    def report(self, report: CycleReport) -> None:
        answer = judge(lambda: check_report(self.state, report, self.now))
        if not isinstance(answer, Refused):
            self._record(report, answer)
            answer = (self.records, self.state.state_version, answer)
        self._add(SUBJECT, "report", SUBJECT, report_words(report), answer=answer)

    def _record(self, report: CycleReport, changed: int) -> None:
        state = self.state
        if changed:
            version = state.state_version + 1
            roots = {**state.roots, version: compute_root(report.post_commitments)}
            state = replace(state, state_version=version, commitments=report.post_commitments, roots=roots)
            self.versions.append(state.commitments)
        completed = list(state.last_completed_at)
        for layer in layers_of(report.completed_layers):
            completed[layer] = report.reported_ended_at
            if self.demands[layer].demanded_at <= report.reported_ended_at:
                self.demands[layer] = NO_DEMAND
        a, b, c, d = completed
        self.state = replace(state, last_completed_at=(a, b, c, d))
        self._signal()

    def ask_requirements(self) -> None:
        self._add(SUBJECT, "requirementsOf", SUBJECT, answer=(requirement_words(self.requirements),))

    def ask_root(self) -> None:
        self._add(SUBJECT, "rootAt", SUBJECT, self.state.state_version, answer=(bytes(self.state.root),))

    def ask_statuses(self) -> None:
        for layer in Layer:
            judged = judge_layer(
                layer,
                self.requirements,
                enrolled_at=self.enrolled_at,
                last_completed_at=self.state.last_completed_at[layer],
                demand=self.demands[layer],
                now=self.now,
            )
            answer = (judged.status, judged.deadline, judged.never_completed)
            self._add(SUBJECT, "layerStatus", SUBJECT, layer.value, answer=answer)
        signal = judge_signal(self.requirements, last_signal_at=self.last_signal_at, now=self.now)
        answer = (signal.status, signal.last_signal_at, signal.silent_since)
        self._add(SUBJECT, "signalStatus", SUBJECT, answer=answer)

    def times_of_interest(self) -> list[int]:
        """The seconds from now on beside which some status changes."""
        window, found = self.requirements.due_window, [self.now, LATEST_TIME]
        for layer in Layer:
            anchor = self.state.last_completed_at[layer] or self.enrolled_at
            ends = [anchor + self.requirements.max_interval[layer], self.demands[layer].due_by]
            found += [end - before for end in ends for before in (0, window)]
        found.append(self.last_signal_at + self.requirements.pulse_interval)
        beside = {time + step for time in found for step in (-1, 0, 1)}
        return sorted(time for time in beside if self.now <= time <= LATEST_TIME)

    def check(self, node: Node) -> None:
        for call, expected, answer in zip(self.calls, self.expected, node.tell(self.calls), strict=True):
            assert answer == expected, f"{call.function} at {call.at}"


# What stories are made of

durations = st.sampled_from([1, 2, 3, 60, 2**32 - 1, 2**32, LATEST_TIME - 1, LATEST_TIME]) | st.integers(1, LATEST_TIME)
maybe_durations = st.just(0) | durations
uint8s = st.sampled_from([0, 1, 2, 3, 8, 15, 16, 31, 128, 255]) | st.integers(0, 255)
masks = st.integers(1, ALL_LAYERS)
#: Seconds between two calls: none often, and leaps to the end of time.
pauses = st.just(0) | st.integers(1, 100) | st.integers(1, LATEST_TIME)
starts = st.sampled_from([1, 2, 1000, 2**32, LATEST_TIME - 3000, LATEST_TIME]) | st.integers(1, LATEST_TIME)
four = lambda values: st.tuples(values, values, values, values)  # noqa: E731

any_floors = st.builds(
    Floor,
    required_layers=st.integers(0, ALL_LAYERS) | uint8s,
    pulse_interval=maybe_durations,
    max_interval=four(maybe_durations),
)


@st.composite
def policies(draw: Callable[..., Any]) -> Policy:
    """A valid policy."""
    supported = draw(masks)
    required = draw(st.integers(0, ALL_LAYERS)) & supported
    intervals = draw(four(maybe_durations))
    a, b, c, d = (interval or required >> layer & 1 for layer, interval in enumerate(intervals))
    return Policy(
        supported_layers=supported,
        required_layers=required,
        allowed_triggers=draw(masks),
        disclosure=draw(st.integers(0, 2)),
        due_window=draw(maybe_durations),
        pulse_interval=draw(maybe_durations),
        max_interval=(a, b, c, d),
        policy_hash=Bytes32(draw(words)),
        policy_uri=draw(st.sampled_from(["", "ipfs://x", "é" * 40])),
    )


@st.composite
def spoiled_policies(draw: Callable[..., Any]) -> Policy:
    """A policy with one to three members that are often, but not always, wrong."""
    choices = {
        "supported_layers": uint8s,
        "required_layers": uint8s,
        "allowed_triggers": uint8s,
        "disclosure": st.integers(0, 4) | uint8s,
        "max_interval": four(maybe_durations),
    }
    names = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=3, unique=True))
    return replace(draw(policies()), **{name: draw(choices[name]) for name in names})


@st.composite
def floors(draw: Callable[..., Any]) -> Floor:
    """A valid floor."""
    required, intervals = draw(st.integers(0, ALL_LAYERS)), draw(four(maybe_durations))
    a, b, c, d = (interval or required >> layer & 1 for layer, interval in enumerate(intervals))
    return Floor(required, draw(maybe_durations), (a, b, c, d))


COMMITMENTS = [ZERO_BYTES32, *(Bytes32(bytes([byte]) * 32) for byte in (1, 2))]
DATA = st.data()


def plausible_report(story: Story, draw: Callable[..., Any], restores: int = 0) -> CycleReport:
    """A report that the registry often takes: under the last policy, on the current state."""
    state = story.state
    policy, since = state.policies[-1]
    mask = draw(masks)
    if draw(st.integers(0, 4)):
        mask = mask & policy.supported_layers or policy.supported_layers
    completed = draw(st.integers(0, ALL_LAYERS)) & mask
    before = [ended for ended in state.last_completed_at if ended >= since]
    ended = draw(st.sampled_from([story.now, since, *before]) | st.integers(since, story.now))
    wanted = story.versions[restores - 1] if restores else draw(four(st.sampled_from(COMMITMENTS)))
    a, b, c, d = (wanted[layer] if mask >> layer & 1 else state.commitments[layer] for layer in Layer)
    return CycleReport(
        base_version=state.state_version,
        pre_root=state.root,
        post_commitments=(a, b, c, d),
        layer_mask=mask,
        completed_layers=completed,
        ops_mask=0,
        outcome=derive_outcome(mask, completed, failed=draw(st.booleans())).value,
        trigger=(policy.allowed_triggers & -policy.allowed_triggers).bit_length() - 1,
        policy_version=len(state.policies),
        reported_started_at=draw(st.sampled_from([since, ended])),
        reported_ended_at=ended,
        next_planned_at=draw(maybe_durations),
        restores_version=restores,
        record_hash=Bytes32(draw(words)),
        record_uri=draw(st.sampled_from(["", "ipfs://x"])),
    )


def spoil(story: Story, report: CycleReport, draw: Callable[..., Any]) -> CycleReport:
    """Change one to four members of a report to what is often, but not always, wrong."""
    state = story.state
    known = [0, story.now, story.enrolled_at, LATEST_TIME, *state.last_completed_at]
    known += [since for _, since in state.policies]
    times = st.sampled_from(sorted({t + step for t in known for step in (-1, 0, 1) if 0 <= t + step <= LATEST_TIME}))
    version = state.state_version
    versions = st.sampled_from([0, 1, max(version - 1, 0), version, version + 1, 2**64 - 1])
    roots = [ZERO_BYTES32, *state.roots.values()]
    choices: dict[str, st.SearchStrategy[Any]] = {
        "base_version": versions,
        "pre_root": st.sampled_from(roots),
        "post_commitments": four(st.sampled_from(COMMITMENTS)),
        "layer_mask": uint8s,
        "completed_layers": uint8s,
        "ops_mask": st.integers(0, 15).map(lambda bit: 1 << bit) | st.integers(0, 2**16 - 1),
        "outcome": st.integers(0, 4) | uint8s,
        "trigger": st.integers(0, 4) | uint8s,
        "policy_version": st.integers(0, len(state.policies) + 1) | st.just(2**32 - 1),
        "reported_started_at": times,
        "reported_ended_at": times | st.just(min(story.now + 1, LATEST_TIME)),
        "restores_version": versions,
    }
    names = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=4, unique=True))
    return replace(report, **{name: draw(choices[name]) for name in names})


def wait(story: Story, draw: Callable[..., Any]) -> None:
    story.wait_until(min(story.now + draw(pauses), LATEST_TIME))


# Hashes


@given(uint8s, words, words, words)
def test_layer_commitments_are_the_contracts(node, layer, schema_hash, content_hash, salt):
    given_words = [Bytes32(word) for word in (schema_hash, content_hash, salt)]
    computed = judge(lambda: (bytes(compute_layer_commitment(layer, *given_words)),))
    assert node.tell([Call(1, SUBJECT, "computeLayerCommitment", (layer, *given_words))]) == [computed]


@given(st.lists(words, min_size=4, max_size=4))
def test_roots_are_the_contracts(node, commitments):
    computed = bytes(compute_root(map(Bytes32, commitments)))
    assert node.tell([Call(1, SUBJECT, "computeRoot", (commitments,))]) == [(computed,)]


# Policies and floors


@given(st.lists(spoiled_policies() | policies(), min_size=8, max_size=8))
def test_policies_meet_the_contracts_first_error(node, tried):
    story = Story(1000, Policy(15, 0, 15))
    for policy in tried:
        story.set_policy(policy)
    story.check(node)
    for policy in tried:
        verdict = judge(lambda policy=policy: check_policy(policy))
        enrolling = Call(1000, SUBJECT, "enroll", ([ZERO_BYTES32] * 4, policy_words(policy), CONTROLLER, 0))
        assert node.tell([enrolling]) == [verdict if isinstance(verdict, Refused) else ()]


@given(st.lists(any_floors | floors(), min_size=8, max_size=8))
def test_floors_meet_the_contracts_first_error(node, tried):
    story = Story(1000, Policy(15, 0, 15))
    for floor in tried:
        story.set_floor(floor)
        story.ask_requirements()
    story.check(node)


@given(policies(), st.lists(policies() | floors(), min_size=4, max_size=8))
def test_policy_and_floor_join_as_in_the_contract(node, first, following):
    story = Story(1000, first)
    story.ask_requirements()
    for structure in following:
        story.set_floor(structure) if isinstance(structure, Floor) else story.set_policy(structure)
        story.ask_requirements()
    story.check(node)


# Reports


@given(DATA, starts, policies())
def test_reports_meet_the_contracts_first_error(node, data, start, policy):
    story = Story(start, policy)
    for _ in range(12):
        wait(story, data.draw)
        if data.draw(st.integers(0, 4)) == 0:
            story.set_policy(data.draw(policies()))
            continue
        kind = data.draw(st.sampled_from(["plausible", "restoring", "spoiled", "spoiled"]))
        version = data.draw(st.integers(1, len(story.versions))) if kind == "restoring" else 0
        report = plausible_report(story, data.draw, version)
        story.report(spoil(story, report, data.draw) if kind == "spoiled" else report)
        story.ask_root()
    story.check(node)


# Statuses


def happen(story: Story, draw: Callable[..., Any]) -> None:
    """One accepted call that may move a status."""
    kind = draw(st.sampled_from(["report", "report", "demand", "demand", "withdraw", "pulse", "policy", "floor"]))
    if kind == "report":
        story.report(plausible_report(story, draw))
    elif kind == "demand" and story.now < LATEST_TIME:
        beyond = draw(st.sampled_from([1, 2, 60]) | st.integers(1, LATEST_TIME))
        story.demand(draw(masks), min(story.now + beyond, LATEST_TIME))
    elif kind == "withdraw":
        story.withdraw_demand(draw(masks))
    elif kind == "policy":
        story.set_policy(draw(policies()))
    elif kind == "floor":
        story.set_floor(draw(floors()))
    else:
        story.pulse()


@given(DATA, starts, policies())
def test_statuses_are_the_contracts_after_any_story(node, data, start, policy):
    story = Story(start, policy)
    for _ in range(data.draw(st.integers(0, 6))):
        wait(story, data.draw)
        happen(story, data.draw)
    for now in story.times_of_interest():
        story.wait_until(now)
        story.ask_statuses()
    story.check(node)


@given(st.integers(0, 255), starts)
def test_nobodys_statuses_are_the_contracts(node, layer, now):
    judged = judge(lambda: judge_layer(layer, None, enrolled_at=0, last_completed_at=0, now=now))
    expected = judged if isinstance(judged, Refused) else (judged.status, judged.deadline, judged.never_completed)
    signal = judge_signal(None, last_signal_at=0, now=now)
    answers = node.tell(
        [Call(now, SUBJECT, "layerStatus", (SUBJECT, layer)), Call(now, SUBJECT, "signalStatus", (SUBJECT,))]
    )
    assert answers == [expected, (signal.status, signal.last_signal_at, signal.silent_since)]
