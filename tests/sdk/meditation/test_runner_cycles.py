"""Cycles up to the outbox, against a registry in memory; what needs a chain is in tests/e2e/test_runner.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from melete.chain.outbox import Item, Outbox, State
from melete.errors import (
    CompletionNotLater,
    ControllerCannotSubmit,
    EmptyRevert,
    EndedInFuture,
    InvalidInput,
    InvalidLayerMask,
    LayersNotSupported,
    MissingPermission,
    NodeUnreachable,
)
from melete.meditation.cycle import Operation, Outcome, Trigger
from melete.meditation.documents import check_document
from melete.meditation.layers import Layer
from melete.meditation.outbox import MeditationOutbox, MeditationRules
from melete.meditation.registry import decode_report_call
from melete.meditation.runner.clock import RegistryClock
from melete.meditation.runner.concluding import CYCLE_ID
from melete.meditation.runner.obligations import Obligation
from melete.meditation.runner.registering import CycleResult
from melete.meditation.runner.reports import CycleState
from melete.meditation.runner.routine import CheckResult, Evaluation, LayerRoutine, LayerWork
from melete.meditation.runner.runner import MaintenanceRunner
from melete.meditation.runner.running import order_layers
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address, Bytes32, keccak256

from .registry_fake import BASELINE, POLICY_DOCUMENT, SUBJECT, FakeRegistry, enrolled, example


class Routine(LayerRoutine):
    """A routine of any layer that keeps what is registered, but for what a test says."""

    def __init__(self, layer: Layer, **steps: Callable[[LayerWork], None]) -> None:
        self.layer = layer
        self.document: Any = deepcopy(BASELINE[layer].document)
        self.described = 0
        self.steps = steps

    def _do(self, step: str, work: LayerWork) -> None:
        if step in self.steps:
            self.steps[step](work)

    def check(self, work: LayerWork) -> None:
        self._do("check", work)

    def clean(self, work: LayerWork) -> None:
        self._do("clean", work)

    def repair(self, work: LayerWork) -> None:
        self._do("repair", work)

    def update(self, work: LayerWork) -> None:
        self._do("update", work)

    def iterate(self, work: LayerWork) -> None:
        self._do("iterate", work)

    def describe(self) -> Any:
        self.described += 1
        if isinstance(self.document, Exception):
            raise self.document
        return self.document


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[MeditationOutbox]:
    key = StoreKey(keccak256(b"a key for tests"))
    with Outbox(tmp_path / "outbox.db") as outbox, WitnessStore.create(tmp_path / "store.db", key) as store:
        yield MeditationOutbox(outbox, enrolled(store), store)  # type: ignore[arg-type]


@pytest.fixture
def registry(waiting: MeditationOutbox) -> FakeRegistry:
    found: Any = waiting.registry
    return found


@pytest.fixture
def runner_of(waiting: MeditationOutbox, tmp_path: Path) -> Callable[..., MaintenanceRunner]:
    def make(*routines: LayerRoutine, **options: Any) -> MaintenanceRunner:
        given = {"policy": POLICY_DOCUMENT, "clock": waiting.registry.clock, **options}
        return MaintenanceRunner(waiting, SUBJECT, routines, tmp_path / "cycle.jsonl", **given)

    return make


def all_four(**steps: Callable[[LayerWork], None]) -> list[Routine]:
    return [Routine(layer, **steps) for layer in Layer]


def change_of(document: Any) -> None:
    """Let a runtime document differ from the registered one."""
    document["interpreter"]["version"] = "3.12.1"


def entry_of(record: Any, layer: int) -> Any:
    return next(entry for entry in record["layers"] if entry["layer"] == layer)


# What is registered of a cycle


def test_cycle_without_anything_new_keeps_every_commitment(runner_of, registry) -> None:
    found = runner_of(*all_four()).run(Trigger.COMMANDED, reason="A test.", next_planned_at=7)
    assert found.state is CycleState.QUEUED
    assert found.report.post_commitments == registry.commitments
    assert (found.report.outcome, found.report.completed_layers, found.report.ops_mask) == (Outcome.COMPLETED, 15, 0)
    record = found.record
    assert check_document(record) is record
    assert (record["trigger"], record["reason"], record["nextPlannedAt"]) == ("COMMANDED", "A test.", 7)
    assert [entry["decision"] for entry in record["layers"]] == ["kept"] * 4
    assert record["startedAt"] < record["endedAt"]


def test_steps_run_in_order_and_then_the_layer_is_described(runner_of) -> None:
    seen: list[str] = []
    steps = {
        name: (lambda _, name=name: seen.append(name)) for name in ("iterate", "update", "repair", "clean", "check")
    }
    routine = Routine(Layer.RUNTIME, **steps)
    runner_of(routine).run()
    assert seen == ["check", "clean", "repair", "update", "iterate"]
    assert routine.described == 1


def test_changed_document_gets_a_fresh_salt_and_others_keep_theirs(runner_of, registry, waiting) -> None:
    routines = all_four()
    change_of(routines[0].document)
    before = registry.commitments
    found = runner_of(*routines).run()
    after = found.report.post_commitments
    assert (after[0] != before[0], after[1:]) == (True, before[1:])
    kept = waiting.kept(SUBJECT).get(LAYERS[0], 2)
    assert kept.document == routines[0].document
    assert kept.salt not in (BASELINE[0].salt, bytes(32))
    assert waiting.kept(SUBJECT).get(REPORT, 1) == found.record


def test_each_record_holds_a_word_of_its_own(runner_of, registry) -> None:
    """So that cycles are told apart, and what a record says cannot be found by guessing it."""
    words = set()
    for _ in range(2):
        runner = runner_of(*all_four())
        words.add(runner.run().record["extensions"][CYCLE_ID])
        runner.outbox.outbox.record_state(runner.outbox.outbox.items(), State.REFUSED, "for the test")
        registry.refuses = EmptyRevert()
        runner.resume()
        registry.refuses = None
    assert len(words) == 2
    assert all(len(Bytes32(word)) == 32 for word in words)


def test_operation_that_leaves_the_document_as_it_was_is_registered_as_one(runner_of) -> None:
    routine = Routine(Layer.RUNTIME, repair=lambda work: work.changed(Operation.REPAIR, "a restart", "of the mail"))
    result = runner_of(routine).run()
    entry = entry_of(result.record, 0)
    assert entry["decision"] == "kept"
    assert entry["changes"] == [{"operation": "repair", "what": "a restart", "detail": "of the mail"}]
    assert result.report.ops_mask == 1 << Operation.REPAIR


def test_summary_counts_and_tells_nothing_of_what_was_found(runner_of) -> None:
    def check(work: LayerWork) -> None:
        work.checked("a secret name", CheckResult.FAILED, "a secret detail")

    record = runner_of(Routine(Layer.RUNTIME, check=check)).run().record
    assert record["summary"] == "runtime completed, kept, 1 failed check."


def test_summary_may_be_given(runner_of) -> None:
    assert runner_of(Routine(Layer.RUNTIME)).run(summary="All is well.").record["summary"] == "All is well."


# Routines that fail


def raising(error: BaseException) -> Callable[[LayerWork], None]:
    def step(_: LayerWork) -> None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidInput("mood", "bad", "good"), "InvalidInput: mood: 'bad' is refused; it must be good."),
        (ValueError("password hunter2"), "ValueError"),
        (OSError(13, "Permission denied", "/home/somebody/secret"), "PermissionError: Permission denied"),
        (RecursionError("deep"), "RecursionError"),
    ],
)
def test_routine_that_raises_is_a_failed_layer_told_without_secrets(runner_of, registry, error, told) -> None:
    routines = [Routine(Layer.RUNTIME, clean=raising(error)), Routine(Layer.TASKS_ROLES)]
    change_of(routines[0].document)
    found = runner_of(*routines).run()
    entry = entry_of(found.record, 0)
    assert (entry["completed"], entry["decision"], entry["reason"]) == (False, "failed", f"clean: {told}")
    assert entry["checks"] == [{"name": "routine: clean", "result": "failed", "detail": told}]
    assert "hunter2" not in json.dumps(found.record)
    assert "somebody" not in json.dumps(found.record)
    # What it is now is registered all the same.
    assert found.report.post_commitments[0] != registry.commitments[0]
    assert (found.report.outcome, found.report.completed_layers) == (Outcome.PARTIAL, 0b0100)


@pytest.mark.parametrize(
    "document", [RuntimeError("no"), {"schema": "amm.layer.runtime/1"}, {"mood": 1}, "text", BASELINE[1].document]
)
def test_layer_that_cannot_be_described_keeps_its_registered_document(runner_of, registry, document) -> None:
    routine = Routine(Layer.RUNTIME)
    routine.document = document
    found = runner_of(routine).run()
    entry = entry_of(found.record, 0)
    assert (entry["completed"], entry["decision"]) == (False, "failed")
    assert [check["name"] for check in entry["checks"]] == ["routine: describe"]
    assert found.report.post_commitments == registry.commitments
    assert (found.record["ended"], found.report.outcome) == ("failed", Outcome.FAILED)


def test_interrupt_is_no_failure_of_a_routine_and_leaves_the_cycle_to_be_resumed(runner_of, registry) -> None:
    routine = Routine(Layer.RUNTIME, clean=raising(KeyboardInterrupt()))
    change_of(routine.document)
    runner = runner_of(routine)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    found = runner_of(routine).resume()
    assert (found.state, found.was_cut_off, found.record["ended"]) == (CycleState.QUEUED, True, "aborted")
    assert (found.report.outcome, found.report.completed_layers) == (Outcome.ABORTED, 0)
    assert found.report.post_commitments[0] != registry.commitments[0]


# Cut off


def test_completion_time_of_a_cycle_that_was_cut_off_is_that_of_its_last_sign(runner_of, registry) -> None:
    """Resuming days later does not make the maintenance look fresh."""
    routines = [Routine(Layer.RUNTIME), Routine(Layer.TASKS_ROLES, check=raising(KeyboardInterrupt()))]
    with pytest.raises(KeyboardInterrupt):
        runner_of(*routines).run()
    ended = registry.now
    registry.now += 5 * 86400
    found = runner_of(*routines).resume()
    assert found.record["endedAt"] <= ended + 1
    assert [entry["completed"] for entry in found.record["layers"]] == [True, False]
    assert (found.record["ended"], found.report.completed_layers) == ("aborted", 0b0001)


def test_layer_whose_routine_is_gone_by_now_keeps_its_registered_document(runner_of, registry) -> None:
    routine = Routine(Layer.RUNTIME, check=raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        runner_of(routine).run()
    ended = registry.now
    registry.now += 86400
    found = runner_of(Routine(Layer.COGNITION)).resume()
    assert found.record["endedAt"] <= ended
    entry = entry_of(found.record, 0)
    assert (entry["decision"], entry["checks"][-1]["result"]) == ("failed", "could-not-tell")
    assert found.report.post_commitments == registry.commitments


def test_cycle_whose_routines_had_all_ended_is_registered_as_completed(runner_of, monkeypatch) -> None:
    runner = runner_of(*all_four())
    with monkeypatch.context() as patched:
        patched.setattr(type(runner.journal), "finish", lambda *_: raising(KeyboardInterrupt())(None))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            runner.run()
    found = runner_of(*all_four()).resume()
    assert (found.record["ended"], found.report.outcome) == ("normally", Outcome.COMPLETED)


def test_refusal_that_may_pass_is_retried_with_the_same_base_version(runner_of, registry, monkeypatch) -> None:
    runner = runner_of(*all_four())
    with monkeypatch.context() as patched:
        for error in (MissingPermission(SUBJECT, SUBJECT), EndedInFuture(1, 2), NodeUnreachable("x", "gone")):
            patched.setattr(MeditationOutbox, "add", lambda *_, error=error: raising(error)(None))  # type: ignore[arg-type]
            if runner.journal.path.exists():
                with pytest.raises(type(error)):
                    runner.resume()
            else:
                with pytest.raises(type(error)):
                    runner.run()
    found = runner.resume()
    assert (found.state, found.report.base_version) == (CycleState.QUEUED, 1)
    assert len(runner.outbox.outbox.items()) == 1


def test_cycle_that_can_never_be_registered_is_given_up_and_its_changes_are_told_later(runner_of, monkeypatch) -> None:
    runner = runner_of(Routine(Layer.RUNTIME, clean=lambda work: work.changed(Operation.CLEAN, "old files")))
    change_of(runner.routines[Layer.RUNTIME].document)
    with monkeypatch.context() as patched:
        patched.setattr(MeditationOutbox, "add", lambda *_: raising(MissingPermission(SUBJECT, SUBJECT))(None))  # type: ignore[arg-type]
        with pytest.raises(MissingPermission):
            runner.run()
    given_up = runner.give_up()
    assert (given_up.state, given_up.reason) == (CycleState.REFUSED, "it was given up")
    assert runner.give_up().state is CycleState.NOTHING
    runner.routines[Layer.RUNTIME].steps = {}
    assert [change["what"] for change in entry_of(runner.run().record, 0)["changes"]] == ["old files"]


def test_report_that_is_on_its_way_is_not_given_up(runner_of, monkeypatch) -> None:
    runner = runner_of(Routine(Layer.RUNTIME))
    with monkeypatch.context() as patched:
        patched.setattr(type(runner.journal), "queue", lambda *_: raising(KeyboardInterrupt())(None))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            runner.run()
    runner.outbox.outbox.record_state(runner.outbox.outbox.items(), State.SENT)
    for _ in range(2):
        assert runner.give_up().state is CycleState.QUEUED
    assert [item.state for item in runner.outbox.outbox.items()] == [State.SENT]


def test_report_that_was_not_sent_can_be_given_up_and_its_changes_are_told_later(runner_of, waiting) -> None:
    routine = Routine(Layer.RUNTIME, clean=lambda work: work.changed(Operation.CLEAN, "old files were removed"))
    runner = runner_of(routine)
    assert runner.run().state is CycleState.QUEUED
    given_up = runner.give_up()
    assert (given_up.state, given_up.reason) == (CycleState.REFUSED, "it was given up")
    assert waiting.waiting(SUBJECT) == []
    routine.steps = {}
    (told,) = entry_of(runner.run().record, 0)["changes"]
    assert "could not be registered" in told["detail"]


# Refusals that may pass


@pytest.mark.parametrize("refusal", [MissingPermission(1, 0), ControllerCannotSubmit(SUBJECT), EndedInFuture(1, 2)])
def test_report_refused_for_what_may_pass_waits_again_with_all_that_opens_it(
    runner_of, registry, waiting, refusal
) -> None:
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    runner = runner_of(routine)
    found = runner.run()
    waiting.outbox.record_state(waiting.outbox.items(), State.REFUSED, str(refusal))  # as it was done before
    registry.refuses = refusal
    for _ in range(2):
        again = runner.resume()
        assert (again.state, again.report, again.item.state) == (CycleState.QUEUED, found.report, State.QUEUED)
    kept = waiting.kept(SUBJECT)
    assert kept.get(REPORT, 1) == found.record
    assert kept.get(LAYERS[0], 2).document == routine.document


def test_refused_report_whose_record_is_gone_stays_refused(runner_of, registry, waiting) -> None:
    runner = runner_of(Routine(Layer.RUNTIME))
    runner.run()
    waiting.outbox.record_state(waiting.outbox.items(), State.REFUSED, "as it was done before")
    waiting.witnesses.discard([waiting.kept(SUBJECT).place(REPORT, 1)])
    registry.refuses = MissingPermission(1, 0)
    assert runner.resume().state is CycleState.REFUSED


def test_only_sender_and_clock_may_pass() -> None:
    rules, item = MeditationRules(), Item(1, Address(b"\x11" * 20), b"", 1, Bytes32(bytes(32)), b"")
    assert rules.may_pass(item, MissingPermission(1, 0))
    assert not rules.may_pass(item, CompletionNotLater(0, 1, 1))


# A chain that does not have what was done on it


def done(waiting: MeditationOutbox, registry: FakeRegistry, found: CycleResult) -> None:
    """A report is registered, as far as outbox and registry know."""
    waiting.outbox.record_state([found.item], State.DONE)
    if found.report.post_commitments != registry.commitments:
        registry.state_version += 1
    registry.commitments, registry.record_count = found.report.post_commitments, registry.record_count + 1
    Path(waiting.outbox.path.with_name("cycle.jsonl")).unlink()


def test_chain_that_began_anew_takes_the_places_and_what_was_kept_is_still_found(runner_of, registry, waiting) -> None:
    before = registry.commitments
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    lost = runner_of(routine).run()
    done(waiting, registry, lost)
    registry.commitments, registry.state_version, registry.record_count = (before[0], *before[2:], before[1]), 1, 0
    found = runner_of(routine).run()
    assert (found.state, found.report.base_version, found.item.position) == (CycleState.QUEUED, 1, 1)
    kept = waiting.kept(SUBJECT)
    assert kept.get(REPORT, 1) == found.record
    assert kept.open(REPORT, lost.report.record_hash, 1) == lost.record
    assert kept.open(LAYERS[0], lost.report.post_commitments[0], 2).document == routine.document
    assert waiting.outbox.get(lost.item.id).state is State.REPLACED


def test_erased_document_of_a_version_that_the_chain_does_not_have_does_not_stop_a_cycle(runner_of, waiting) -> None:
    kept = waiting.kept(SUBJECT)
    kept.put(LAYERS[0], 2, BASELINE[0])
    waiting.witnesses.erase(kept.place(LAYERS[0], 2))
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    assert runner_of(routine).run().state is CycleState.QUEUED
    assert kept.get(LAYERS[0], 2).document == routine.document


def test_reports_of_a_chain_that_went_back_wait_again_in_their_order(runner_of, registry, waiting) -> None:
    before = registry.commitments
    routine = Routine(Layer.RUNTIME)
    results = []
    for version in ("3.12.1", "3.12.2"):
        routine.document["interpreter"]["version"] = version
        results.append(runner_of(routine).run())
        done(waiting, registry, results[-1])
    registry.commitments, registry.state_version, registry.record_count = before, 1, 0
    with pytest.raises(InvalidInput, match="resume it"):
        runner_of(*all_four(check=never)).run()
    assert [item.id for item in waiting.outbox.items(State.QUEUED)] == [found.item.id for found in results]
    assert runner_of(routine).resume().state is CycleState.QUEUED


def test_two_registries_share_a_store(runner_of, registry, waiting) -> None:
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    first = runner_of(routine).run()
    for changed in ({"address": Address(b"\x22" * 20)}, {"chain_id": 1}):
        other = MeditationOutbox(waiting.outbox, replace(registry, **changed), waiting.witnesses)  # type: ignore[arg-type]
        journal = waiting.outbox.path.with_name(f"{other.registry.chain_id}-{other.registry.address}.jsonl")
        found = MaintenanceRunner(other, SUBJECT, [routine], journal, clock=other.registry.clock).run()
        assert found.state is CycleState.QUEUED
        assert other.kept(SUBJECT).get(REPORT, 1) == found.record
    assert waiting.kept(SUBJECT).get(REPORT, 1) == first.record


def test_draft_of_the_same_address_on_another_chain_is_left_to_it(runner_of, registry, waiting) -> None:
    found = runner_of(Routine(Layer.RUNTIME)).run()
    waiting.outbox.record_state([found.item], State.DRAFT)
    MeditationOutbox(waiting.outbox, replace(registry, chain_id=1), waiting.witnesses).recover()  # type: ignore[arg-type]
    assert waiting.outbox.get(found.item.id).state is State.DRAFT
    waiting.recover()
    assert waiting.outbox.get(found.item.id).state is State.QUEUED


# Numbers that cannot be read back


@pytest.mark.parametrize("number", [1e16, -(2.0**53), 999999999999999900000.0])
def test_observed_number_that_could_not_be_read_back_is_text_in_the_record(runner_of, waiting, number) -> None:
    runner = runner_of(Routine(Layer.RUNTIME, check=lambda work: work.observed("bytes free", number)))
    found = runner.run()
    (observation,) = entry_of(found.record, 0)["observations"]
    assert observation["value"] == str(number)
    assert runner.resume().state is CycleState.QUEUED
    assert waiting.kept(SUBJECT).get(REPORT, 1) == found.record


def test_document_with_a_number_that_could_not_be_read_back_fails_its_layer_alone(runner_of) -> None:
    routine = Routine(Layer.RUNTIME)
    routine.document["extensions"] = {"clerk/disk": {"free": 1e16}}
    found = runner_of(routine, Routine(Layer.COGNITION)).run()
    assert [entry["decision"] for entry in found.record["layers"]] == ["failed", "kept"]
    assert "/extensions/clerk~1disk/free" in entry_of(found.record, 0)["reason"]


def test_journal_written_before_such_numbers_became_text_is_read_and_gone_on_with(runner_of) -> None:
    def look(work: LayerWork) -> None:
        work.observed("bytes free", 12345)
        raise KeyboardInterrupt

    runner = runner_of(Routine(Layer.RUNTIME, check=look))
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    text = runner.journal.path.read_text("utf-8")
    runner.journal.path.write_text(text.replace('"value":12345', '"value":10000000000000000'), "utf-8")
    found = runner.resume()
    assert found.state is CycleState.QUEUED
    assert entry_of(found.record, 0)["observations"][0]["value"] == "1e+16"


# Before anything runs


def never(_: LayerWork) -> None:
    raise AssertionError("no routine was to run")


def test_what_the_rules_refuse_anyway_is_refused_before_any_routine_runs(runner_of, registry) -> None:
    runner = runner_of(*all_four(check=never))
    registry.last_completed_at[2] = registry.now + 100
    with pytest.raises(CompletionNotLater):
        runner.run()
    registry.last_completed_at[2] = 0
    registry.policy = type(registry.policy)(0b0111, 0, 15, policy_hash=registry.policy.policy_hash)
    with pytest.raises(LayersNotSupported):
        runner.run(scope=0b1000)
    assert not runner.journal.path.exists()


def test_scope_is_what_has_a_routine_and_is_supported(runner_of, registry) -> None:
    registry.policy = type(registry.policy)(0b0111, 0, 15, policy_hash=registry.policy.policy_hash)
    assert runner_of(*all_four()).run().report.layer_mask == 0b0111


@pytest.mark.parametrize(
    "given", [{"next_planned_at": 2**48}, {"next_planned_at": -1}, {"record_uri": "\ud800"}, {"record_uri": 7}]
)
def test_what_a_report_cannot_hold_is_refused_before_any_routine_runs(runner_of, given) -> None:
    runner = runner_of(Routine(Layer.RUNTIME, check=never))
    with pytest.raises(InvalidInput):
        runner.run(**given)
    assert not runner.journal.path.exists()


def test_odd_words_of_a_reason_are_escaped_and_cut(runner_of) -> None:
    record = runner_of(Routine(Layer.RUNTIME)).run(reason="\udc80" + "x" * 5000).record
    assert record["reason"].startswith("\\udc80x")
    assert len(record["reason"]) == 4096


def test_routine_that_changes_what_it_was_shown_changes_nothing_else(runner_of, registry) -> None:
    def meddle(work: LayerWork) -> None:
        work.registered.clear()  # type: ignore[union-attr]
        work.context.documents[Layer.COGNITION].clear()

    found = runner_of(*all_four(check=meddle)[:2], *all_four()[2:]).run()
    assert found.report.post_commitments == registry.commitments


@pytest.mark.parametrize(("scope", "error"), [(0, InvalidInput), (0b0010, InvalidInput), (0b10000, InvalidLayerMask)])
def test_scope_without_a_routine_is_refused(runner_of, scope, error) -> None:
    with pytest.raises(error):
        runner_of(Routine(Layer.RUNTIME, check=never)).run(scope=scope)


def test_policy_document_of_another_policy_is_refused(runner_of) -> None:
    other = {**POLICY_DOCUMENT, "title": "Another"}
    with pytest.raises(InvalidInput, match="policy version 1"):
        runner_of(Routine(Layer.RUNTIME, check=never), policy=other).run()


def test_two_routines_of_one_layer_are_refused(runner_of) -> None:
    with pytest.raises(InvalidInput, match="one routine"):
        runner_of(Routine(Layer.RUNTIME), Routine(Layer.RUNTIME))


def test_journal_of_another_subject_is_refused(runner_of, registry) -> None:
    runner_of(Routine(Layer.RUNTIME)).run()
    registry.chain_id = 1
    with pytest.raises(InvalidInput, match="journal"):
        runner_of(Routine(Layer.RUNTIME)).resume()


# Dependencies


def test_layers_run_after_those_that_they_depend_on() -> None:
    layers = list(Layer)
    assert order_layers(layers, {}) == layers
    depends = {Layer.RUNTIME: {Layer.COGNITION}, Layer.COGNITION: {Layer.MEMORY_SKILLS}}
    assert order_layers(layers, depends) == [1, 2, 3, 0]
    assert order_layers([Layer.RUNTIME], depends) == [0]


def test_layer_is_skipped_when_what_it_depends_on_failed_in_this_cycle(runner_of, registry) -> None:
    routines = all_four()
    routines[0].steps = {"check": raising(ValueError())}
    routines[1].steps = routines[2].steps = {"check": never}
    found = runner_of(*routines).run()
    assert [entry["completed"] for entry in found.record["layers"]] == [False, False, False, True]
    assert [entry["decision"] for entry in found.record["layers"]] == ["failed", "kept", "kept", "kept"]
    assert entry_of(found.record, 1)["checks"][0]["result"] == "skipped"
    assert (routines[1].described, found.report.completed_layers) == (0, 0b1000)


@pytest.mark.parametrize(("stale", "completed"), [(set(), 0b0010), ({0}, 0)])
def test_dependency_out_of_scope_has_to_be_fresh(runner_of, registry, stale, completed) -> None:
    registry.stale = stale
    found = runner_of(*all_four()).run(scope=0b0010)
    assert found.report.completed_layers == completed
    assert found.record["ended"] == ("normally" if completed else "aborted")


def test_without_a_policy_document_there_are_no_dependencies(runner_of, registry) -> None:
    registry.stale = {0}
    assert runner_of(*all_four(), policy=None).run(scope=0b0010).report.completed_layers == 0b0010


def test_later_layers_know_what_earlier_ones_became(runner_of) -> None:
    seen = {}

    def look(work: LayerWork) -> None:
        seen[work.layer] = work.context.documents[Layer.RUNTIME]["interpreter"]["version"]  # type: ignore[index,call-overload]

    routines = all_four(check=look)
    routines[0].document["interpreter"]["version"] = "3.12.1"
    runner_of(*routines).run()
    assert seen == {0: "3.11.7", 1: "3.12.1", 2: "3.12.1", 3: "3.12.1"}


# What is kept, and what is not


def test_registered_document_that_is_not_kept_is_told_and_committed_anew(runner_of, registry, waiting) -> None:
    waiting.witnesses.discard([LAYERS[0].place(SUBJECT, 1)])
    seen: list[Any] = []
    found = runner_of(Routine(Layer.RUNTIME, check=lambda work: seen.append(work.registered))).run()
    entry = entry_of(found.record, 0)
    assert seen == [None]
    assert entry["checks"][0] == {
        "name": "registered document", "result": "could-not-tell",
        "detail": "the document behind the registered commitment is not kept here, so nothing was compared with it",
    }  # fmt: skip
    assert (entry["decision"], found.report.post_commitments[0] != registry.commitments[0]) == ("adopted", True)
    assert waiting.kept(SUBJECT).get(LAYERS[0], 2).document == BASELINE[0].document


def test_erased_document_counts_as_not_kept(runner_of, waiting) -> None:
    waiting.witnesses.erase(LAYERS[0].place(SUBJECT, 1))
    entry = entry_of(runner_of(Routine(Layer.RUNTIME)).run().record, 0)
    assert entry["checks"][0]["result"] == "could-not-tell"


def test_document_of_another_subject_is_not_taken_for_ours(runner_of, registry, waiting) -> None:
    other = LayerDocument(example("post/runtime.json"), Bytes32(b"\x09" * 32))
    waiting.witnesses.put(LAYERS[0].place(b"\x55" * 20, 1), other)
    registry.commitments = (LAYERS[0].commit(other), *registry.commitments[1:])
    entry = entry_of(runner_of(Routine(Layer.RUNTIME)).run().record, 0)
    assert entry["checks"][0]["result"] == "could-not-tell"


# Lost races


def test_changes_of_a_lost_cycle_wait_until_a_cycle_has_their_layer_in_scope(runner_of, registry) -> None:
    change = Routine(Layer.RUNTIME, clean=lambda work: work.changed(Operation.CLEAN, "old files were removed"))
    change_of(change.document)
    runner = runner_of(change, Routine(Layer.COGNITION))
    runner.run(scope=1)
    registry.somebody_else_reports()
    runner.outbox.outbox.record_state(runner.outbox.outbox.items(), State.CONFLICT, "somebody else's change")
    lost = runner.resume()
    assert (lost.state, lost.reason) == (CycleState.CONFLICT, "somebody else's change")
    change.steps = {}
    first = runner.run(scope=0b1000)
    assert entry_of(first.record, 3)["changes"] == []
    runner.outbox.outbox.record_state(runner.outbox.outbox.items(State.QUEUED), State.REFUSED, "for the test")
    registry.refuses = EmptyRevert()
    assert runner.resume().state is CycleState.REFUSED
    registry.refuses = None
    second = runner.run(scope=1)
    (told,) = entry_of(second.record, 0)["changes"]
    assert (told["operation"], told["what"]) == ("clean", "old files were removed")
    assert "could not be registered" in told["detail"]


def test_refused_report_leaves_its_places_in_the_store_free(runner_of, registry, waiting) -> None:
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    runner = runner_of(routine)
    for _ in range(2):
        assert runner.run().state is CycleState.QUEUED
        waiting.outbox.record_state(waiting.outbox.items(State.QUEUED), State.REFUSED, "by the contract")
        registry.refuses = EmptyRevert()
        refused = runner.resume()
        assert (refused.state, refused.reason) == (CycleState.REFUSED, "by the contract")
        registry.refuses = None
    assert runner.run().state is CycleState.QUEUED


def test_report_put_into_the_outbox_by_hand_is_settled_before_a_cycle_runs(runner_of, registry, waiting) -> None:
    found = runner_of(Routine(Layer.RUNTIME)).run()
    runner = MaintenanceRunner(
        waiting, SUBJECT, [Routine(Layer.RUNTIME)], waiting.outbox.path.with_name("other.jsonl"), clock=registry.clock
    )
    with pytest.raises(InvalidInput, match="waits in the outbox"):
        runner.run()
    assert runner.resume().report == found.report
    registry.somebody_else_reports()
    waiting.outbox.record_state(waiting.outbox.items(), State.CONFLICT, "lost")
    assert runner.resume().state is CycleState.CONFLICT
    assert runner.run().state is CycleState.QUEUED


def test_outbox_that_is_another_file_by_now_gets_the_same_record_again(runner_of, registry, waiting, tmp_path) -> None:
    routine = Routine(Layer.RUNTIME)
    change_of(routine.document)
    record = runner_of(routine).run().record
    kept = waiting.kept(SUBJECT)
    waiting.witnesses.discard([kept.place(LAYERS[0], 2), kept.place(REPORT, 1)])  # lost with it
    with Outbox(tmp_path / "fresh.db") as outbox:
        other = MeditationOutbox(outbox, waiting.registry, waiting.witnesses)
        runner = MaintenanceRunner(other, SUBJECT, [routine], tmp_path / "cycle.jsonl", clock=registry.clock)
        found = runner.resume()
        assert (found.state, found.record) == (CycleState.QUEUED, record)
        (item,) = outbox.items()
        assert decode_report_call(item.data)[1].record_hash == REPORT.commit(record)


# The cognition layer


def cognition(**changes: Any) -> Routine:
    routine = Routine(Layer.COGNITION)
    routine.document |= changes
    return routine


OWED = BASELINE[3].document["obligations"][0]  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    "obligations",
    [
        [],
        [{**OWED, "statement": "Move a boat only without telling its holder."}],
        [{**OWED, "id": "no-evictions"}],
        [{**OWED, "to": "nobody"}],
        [{key: value for key, value in OWED.items() if key != "to"}],
    ],
)
def test_cognition_that_drops_or_rewords_an_obligation_is_refused(runner_of, registry, obligations) -> None:
    found = runner_of(cognition(obligations=obligations)).run()
    entry = entry_of(found.record, 3)
    assert found.report.post_commitments == registry.commitments
    assert (entry["decision"], entry["completed"]) == ("candidate", True)
    assert [refusal["obligation"] for refusal in entry["refusals"]] == [OWED["id"]]
    assert entry["candidates"][0]["reason"] == "it would drop 1 obligation"


def test_obligation_may_be_added_or_sourced_better(runner_of, registry) -> None:
    more = [{**OWED, "source": "elsewhere"}, {"id": "be-brief", "statement": "Be brief."}]
    found = runner_of(cognition(obligations=more)).run()
    assert entry_of(found.record, 3)["decision"] == "adopted"
    assert found.report.post_commitments[3] != registry.commitments[3]


def test_obligation_taken_on_elsewhere_counts_even_if_no_document_names_it(runner_of, registry) -> None:
    known = [Obligation("charter"), Obligation(OWED["id"])]
    found = runner_of(cognition(assumptions=[]), known_obligations=known).run()
    entry = entry_of(found.record, 3)
    assert [refusal["obligation"] for refusal in entry["refusals"]] == ["charter"]
    assert found.report.post_commitments == registry.commitments


def test_obligation_that_the_registered_document_lacks_is_told_where_nothing_changes(runner_of) -> None:
    entry = entry_of(runner_of(cognition(), known_obligations=[Obligation("charter")]).run().record, 3)
    assert (entry["decision"], entry["checks"][0]["name"], entry["checks"][0]["result"]) == (
        "kept", "obligations-kept", "failed",
    )  # fmt: skip


def test_cognition_refused_after_a_cut_off_cycle_too(runner_of, registry) -> None:
    routine = cognition(obligations=[])
    routine.steps = {"check": raising(KeyboardInterrupt())}
    with pytest.raises(KeyboardInterrupt):
        runner_of(routine).run()
    found = runner_of(routine).resume()
    assert found.report.post_commitments == registry.commitments
    assert entry_of(found.record, 3)["refusals"]


@pytest.mark.parametrize(("cases", "may"), [(None, False), (0, False), (19, False), (20, True), (21, True)])
def test_candidate_is_adopted_only_with_as_many_cases_as_the_policy_wants(runner_of, cases, may) -> None:
    asked: list[bool] = []

    def iterate(work: LayerWork) -> None:
        evaluation = None if cases is None else Evaluation("Replay.", "Better.", cases)
        asked.append(work.considered("c", "a change", evaluation))

    entry = entry_of(runner_of(Routine(Layer.RUNTIME, iterate=iterate)).run().record, 0)
    assert asked == [may]
    assert len(entry["candidates"]) == (not may)
    assert entry["decision"] == ("kept" if may else "candidate")
    if cases is not None:
        assert entry["evaluation"] == {"method": "Replay.", "cases": cases, "required": 20, "result": "Better."}


# The clock


def test_clock_is_the_registrys_asked_now_and_then_and_never_runs_back() -> None:
    answers = iter([10, 12, 11, NodeUnreachable("x", "gone"), 20])
    local = [0.0]

    class Clock:
        def clock(self) -> int:
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    clock = RegistryClock(Clock(), 5.0, lambda: local[0])
    assert (clock(), clock()) == (10, 10)
    local[0] = 5.0
    assert clock() == 12
    local[0] = 10.0
    assert clock() == 12
    local[0] = 15.0
    assert clock() == 12  # the node is gone: what it said last stands
    assert clock.ask() == 20


def test_clock_that_was_never_answered_is_no_clock() -> None:
    class Gone:
        def clock(self) -> int:
            raise NodeUnreachable("x", "gone")

    with pytest.raises(NodeUnreachable):
        RegistryClock(Gone())()
