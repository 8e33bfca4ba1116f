"""What routines tell, and that a record can always hold it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.meditation.documents import check_document
from melete.meditation.layers import Layer
from melete.meditation.runner import routine as routine_module
from melete.meditation.runner.concluding import build_record, conclude_layer, summarize
from melete.meditation.runner.findings import LONGEST_NAME, LONGEST_TEXT, Findings, make_check
from melete.meditation.runner.obligations import Obligation, find_dropped, obligations_of
from melete.meditation.runner.routine import (
    CheckResult,
    CycleContext,
    Evaluation,
    LayerRoutine,
    LayerWork,
    Operation,
)

from .test_runner_journal import START

anything = st.text(st.characters(exclude_categories=()), max_size=40)
values = st.one_of(anything, st.integers(), st.floats(), st.booleans(), st.none())


def work_at(now: int = 1_800_000_005, layer: Layer = Layer.RUNTIME, **context: Any) -> LayerWork:
    return LayerWork(layer, CycleContext(clock=lambda: now, **context))


def record_of(*works: LayerWork) -> dict[str, Any]:
    concluded = [conclude_layer(work.findings, document=None, registered=None, completed=True) for work in works]
    return build_record(START, concluded, 1_800_000_010)


# Telling


@given(anything, anything, values, anything, st.sampled_from(CheckResult), st.sampled_from(Operation))
def test_whatever_is_told_fits_a_record(name, detail, value, unit, result, operation) -> None:
    work = work_at()
    tell = [
        lambda: work.checked(name, result, detail),
        lambda: work.observed(name, value, unit),
        lambda: work.changed(operation, name, detail),
        lambda: work.rejected(name, detail, name, Evaluation(name, detail, 3)),
        lambda: work.refused(name, detail, detail),
    ]
    for one in tell:
        try:
            one()
        except InvalidInput:
            assert not name or not detail
    check_document(record_of(work))


@pytest.mark.parametrize("value", [2**53, -(2**60), 10**700, float("nan"), float("inf"), "x" * 9000, "\ud800"])
def test_value_that_json_cannot_carry_is_told_as_text(value) -> None:
    work = work_at()
    work.observed("odd", value)
    (observation,) = work.findings.observations
    assert isinstance(observation["value"], str)
    assert len(observation["value"]) <= LONGEST_TEXT
    check_document(record_of(work))


def test_long_text_is_cut_and_marked() -> None:
    work = work_at()
    work.checked("n" * 300, CheckResult.PASSED, "d" * 5000)
    (check,) = work.findings.checks
    assert (len(str(check["name"])), len(str(check["detail"]))) == (LONGEST_NAME, LONGEST_TEXT)
    assert str(check["name"]).endswith("...")
    assert str(check["detail"]).endswith("...")


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), b"bytes"])
def test_value_of_another_type_is_refused(value) -> None:
    with pytest.raises(InvalidInput, match="value"):
        work_at().observed("odd", value)


@pytest.mark.parametrize("name", ["", None, 7])
def test_nameless_findings_are_refused(name) -> None:
    work = work_at()
    for tell in (
        lambda: work.checked(name, CheckResult.PASSED),
        lambda: work.observed(name, 1),
        lambda: work.changed(Operation.CLEAN, name),
        lambda: work.rejected(name, "d", "r"),
        lambda: work.refused(name, "c"),
    ):
        with pytest.raises(InvalidInput):
            tell()


def test_findings_are_bounded_so_that_a_record_holds_them(monkeypatch) -> None:
    monkeypatch.setattr(routine_module, "MOST_ENTRIES", 2)
    work = work_at()
    for _ in range(2):
        work.checked("one", CheckResult.PASSED)
        work.changed(Operation.CLEAN, "one")
    with pytest.raises(InvalidInput, match="at most 2"):
        work.checked("one", CheckResult.PASSED)
    with pytest.raises(InvalidInput, match="at most 2"), work.changing(Operation.CLEAN, "one"):
        raise AssertionError("it was not to be made")


def test_record_holds_no_more_checks_than_it_may(monkeypatch) -> None:
    monkeypatch.setattr("melete.meditation.runner.findings.MOST_IN_RECORD", 3)
    checks = [make_check(f"check {number}", CheckResult.PASSED) for number in range(4)]
    kept = Findings(Layer.RUNTIME, checks).to_entry(completed=True, decision="kept")["checks"]
    assert [check["name"] for check in kept] == ["check 0", "check 1", "checks left out"]
    assert kept[-1]["detail"] == "2 more than a record holds"


def test_observation_carries_the_cycles_time() -> None:
    work = work_at(now=1_800_000_007)
    work.observed("seen", 7.5, "s")
    assert work.findings.observations == [{"name": "seen", "observedAt": 1_800_000_007, "value": 7.5, "unit": "s"}]


def test_change_is_told_once_it_was_made_with_what_came_of_it() -> None:
    work = work_at()
    with work.changing(Operation.CLEAN, "old files") as change:
        assert work.findings.changes == []
        change.detail = "3 of them"
    assert work.findings.changes == [{"operation": "clean", "what": "old files", "detail": "3 of them"}]
    with work.changing(Operation.CLEAN, "nothing") as change:
        change.was_made = False
    with pytest.raises(KeyError), work.changing(Operation.CLEAN, "broken"):
        raise KeyError
    assert len(work.findings.changes) == 1


@pytest.mark.parametrize("cases", [-1, 2**32, True, 1.5])
def test_number_of_cases_that_is_none_is_refused(cases) -> None:
    with pytest.raises(InvalidInput, match="cases"):
        work_at().evaluated(Evaluation("Replay.", "Better.", cases))


def test_candidate_that_drops_an_obligation_is_refused_whatever_its_evaluation() -> None:
    work = work_at(layer=Layer.COGNITION, minimum_cases=1, obligations=(Obligation("a", "Do a."), Obligation("b")))
    document: Any = {"obligations": [{"id": "b", "statement": "Do b."}]}
    assert not work.considered("c", "a change", Evaluation("Replay.", "Better.", 99), document)
    assert [refusal["obligation"] for refusal in work.findings.refusals] == ["a"]
    assert work.findings.candidates[0]["reason"] == "it would drop 1 obligation"
    document["obligations"].append({"id": "a", "statement": "Do a."})
    assert work.considered("c", "a change", Evaluation("Replay.", "Better.", 99), document)


def test_routine_does_nothing_by_default_and_has_to_be_described() -> None:
    routine, work = LayerRoutine(), work_at()
    for step in ("check", "clean", "repair", "update", "iterate"):
        getattr(routine, step)(work)
    assert record_of(work)["layers"][0]["checks"] == []
    with pytest.raises(NotImplementedError):
        routine.describe()


# Obligations


@pytest.mark.parametrize("value", [None, "no-eviction", {}, {"id": ""}, {"id": 7}, {"id": "a", "statement": 7}])
def test_obligation_of_another_shape_is_refused(value) -> None:
    with pytest.raises(InvalidInput, match="obligation"):
        Obligation.from_json(value)


def test_dropped_obligations_are_named_once_in_their_order() -> None:
    known = [Obligation("b"), Obligation("a"), Obligation("b")]
    assert [one.id for one in find_dropped({"obligations": []}, known)] == ["b", "a"]
    assert obligations_of({}) == ()


# Records


def test_summary_names_layers_and_counts() -> None:
    entries: list[Any] = [
        {"layer": 0, "completed": True, "decision": "adopted", "changes": [1, 2], "candidates": [],
         "checks": [{"result": "failed"}, {"result": "passed"}]},
        {"layer": 3, "completed": False, "decision": "failed", "changes": [], "candidates": [1], "checks": [],
         "refusals": [1]},
    ]  # fmt: skip
    assert summarize(entries) == (
        "runtime completed, adopted, 2 changes, 1 failed check; "
        "cognition not completed, failed, 1 candidate, 1 refusal."
    )


def test_record_that_ended_before_it_started_says_that_it_took_no_time() -> None:
    concluded = [conclude_layer(work_at().findings, document=None, registered=None, completed=True)]
    record = build_record(START, concluded, START.started_at - 100)
    assert record["endedAt"] == record["startedAt"]
    check_document(record)
