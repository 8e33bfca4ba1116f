"""Maintenance cycles from routines to the chain and back, on a node of their own: also when they are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

import cycle_worker
from cycle_worker import AGENT, STORE_KEY, Sweeper, bring_to_the_registry, opened
from melete import Bytes32
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.outbox import Outbox, State
from melete.chain.transactions import LocalSender
from melete.errors import InvalidInput, StoreBusy, TriggerNotAllowed
from melete.meditation.cycle import CycleReport, Outcome, Trigger
from melete.meditation.documents import derive_policy
from melete.meditation.events import CycleRecorded
from melete.meditation.kept import Kept
from melete.meditation.layers import Layer, to_commitments
from melete.meditation.registry import MeditationRegistry
from melete.meditation.runner.journal import Journal, Stage
from melete.meditation.runner.reports import CycleState
from melete.meditation.runner.runner import MaintenanceRunner
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument
from melete.memory.witness_store import WitnessStore

EXAMPLE = Path(__file__).resolve().parents[2] / "schemas" / "examples" / "timeout-cycle"
POLICY = derive_policy(json.loads((EXAMPLE / "policy.json").read_text("utf-8")))


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def node() -> Iterator[Anvil]:
    with Anvil() as started:
        yield started


@pytest.fixture(scope="module")
def w3(node) -> Web3:
    w3 = connect(node.url)
    w3.provider.make_request("anvil_setBalance", [str(AGENT.address), hex(10**20)])
    return w3


@pytest.fixture(scope="module")
def address(w3) -> Any:
    return MeditationRegistry.deploy(w3, LocalSender(AGENT))[0].address


@pytest.fixture
def fresh_chain(w3, address) -> Iterator[None]:
    """What a test does on the chain is gone after it."""
    before = w3.provider.make_request("evm_snapshot", [])["result"]
    yield
    w3.provider.make_request("evm_revert", [before])


@pytest.fixture
def registry(w3, address, fresh_chain) -> MeditationRegistry:
    return MeditationRegistry(w3, address, sender=LocalSender(AGENT))


@pytest.fixture
def folder(tmp_path, registry) -> Path:
    """The agent's folder: three files of garbage among its configuration, enrolled as it is."""
    return make_agent(tmp_path / "agent", registry)


def make_agent(folder: Path, registry: MeditationRegistry) -> Path:
    files = folder / "files"
    files.mkdir(parents=True)
    for name in ("adapters.toml", "garbage-1", "garbage-2", "garbage-3"):
        (files / name).write_text(name)
    shutil.copy(EXAMPLE / "baseline" / "tasks-roles.json", folder / "tasks.json")
    documents = [Sweeper(files).describe(), *(example(f"baseline/{name}.json") for name in
                 ("memory-skills", "tasks-roles", "cognition"))]  # fmt: skip
    with WitnessStore.create(folder / "witnesses.db", STORE_KEY) as store:
        kept = [LayerDocument(document, Bytes32(bytes([layer + 1]) * 32)) for layer, document in enumerate(documents)]
        for layer in Layer:
            store.put(LAYERS[layer].place(AGENT.address, 1), kept[layer])
    registry.enroll(to_commitments(kind.commit(one) for kind, one in zip(LAYERS, kept, strict=True)), POLICY)
    return folder


@pytest.fixture
def agent(w3, address, folder) -> Iterator[tuple[MaintenanceRunner, Callable[[], Any]]]:
    with opened(w3, address, folder) as (runner, submitter):
        yield runner, submitter.run


def tick(w3: Web3) -> None:
    """A second goes by on the chain."""
    w3.provider.make_request("evm_increaseTime", [1])
    w3.provider.make_request("evm_mine", [])


def recorded(registry: MeditationRegistry) -> list[CycleRecorded]:
    return [event for event in registry.events(AGENT.address, kinds=[CycleRecorded])
            if isinstance(event, CycleRecorded)]  # fmt: skip


def entry_of(record: Any, layer: int) -> Any:
    return next(entry for entry in record["layers"] if entry["layer"] == layer)


def verify_agreement(registry: MeditationRegistry, folder: Path) -> Any:
    """Journal, witness store, outbox and chain tell of one and the same cycle; return its record."""
    (event,) = recorded(registry)
    journal = Journal(folder / "cycle.jsonl")
    assert journal.read() is None
    with Outbox(folder / "outbox.db") as outbox:
        assert [item.state for item in outbox.items()] == [State.DONE]
    loaded = registry.load_subject(AGENT.address)
    with WitnessStore.open(folder / "witnesses.db", STORE_KEY) as store:
        for layer, checkpoint in zip(Layer, loaded.checkpoints, strict=True):
            kept = Kept(store, registry, AGENT.address).get(LAYERS[layer], checkpoint.last_changed_version)
            assert LAYERS[layer].commit(kept) == checkpoint.commitment
        record = Kept(store, registry, AGENT.address).get(REPORT, event.seq)
    assert REPORT.commit(record) == event.report.record_hash
    return record


# The usual day


def test_cycle_goes_from_its_routines_to_the_chain_and_back(registry, agent, folder):
    runner, submit = agent
    queued = runner.run(Trigger.EVENT, reason="Garbage was seen.")
    assert queued.state is CycleState.QUEUED
    assert runner.resume().state is CycleState.QUEUED
    submit()
    settled = runner.resume()
    assert (settled.state, settled.event.seq, settled.event.new_version) == (CycleState.REGISTERED, 1, 2)
    assert runner.resume().state is CycleState.NOTHING
    record = verify_agreement(registry, folder)
    assert record == settled.record == queued.record
    (event,) = recorded(registry)
    assert event.report == settled.report
    assert (event.report.layer_mask, event.report.completed_layers, event.changed_layers) == (0b0101, 0b0101, 0b0001)
    assert (event.report.outcome, event.report.trigger, event.report.ops_mask) == (Outcome.COMPLETED, Trigger.EVENT, 1)
    assert [entry["decision"] for entry in record["layers"]] == ["adopted", "kept"]
    assert [change["what"] for change in entry_of(record, 0)["changes"]] == [
        f"garbage-{number} was removed" for number in (1, 2, 3)
    ]
    with WitnessStore.open(folder / "witnesses.db", STORE_KEY) as store:
        document = Kept(store, registry, AGENT.address).get(LAYERS[0], 2)
    assert [file["name"] for file in document.document["configuration"]] == ["adapters.toml"]
    assert any(document.salt)


def test_next_cycle_keeps_commitment_and_salt_of_what_did_not_change(w3, registry, agent, folder):
    runner, submit = agent
    for _ in range(2):
        tick(w3)
        runner.run()
        submit()
        assert runner.resume().state is CycleState.REGISTERED
    first, second = recorded(registry)
    assert second.report.post_commitments == first.report.post_commitments
    assert (second.new_version, second.changed_layers, second.report.completed_layers) == (2, 0, 0b0101)
    assert first.report.record_hash != second.report.record_hash


def test_pulse_in_between_gives_the_record_its_own_number(registry, agent, folder):
    runner, submit = agent
    runner.run()
    registry.pulse(AGENT.address)
    submit()
    assert runner.resume().event.seq == 2
    assert entry_of(verify_agreement(registry, folder), 0)["completed"]


def test_another_cycle_does_not_start_before_one_is_settled(w3, registry, agent, folder):
    runner, submit = agent
    runner.run()
    with pytest.raises(InvalidInput, match="settled first") as caught:
        runner.run()
    assert "None" not in str(caught.value)
    submit()
    with pytest.raises(InvalidInput, match="settled first"):
        runner.run()
    runner.resume()
    tick(w3)
    assert runner.run().state is CycleState.QUEUED


def test_two_runners_of_one_subject_do_not_work_at_once(agent):
    runner, _ = agent
    with Journal(runner.journal.path).working(), pytest.raises(StoreBusy, match="another runner"):
        runner.run()


def test_what_is_always_refused_is_refused_before_any_routine_runs(registry, agent, folder):
    runner, _ = agent
    registry.set_policy(AGENT.address, replace(POLICY, allowed_triggers=1 << Trigger.SCHEDULED))
    with pytest.raises(TriggerNotAllowed):
        runner.run(Trigger.EVENT)
    assert (folder / "files" / "garbage-1").exists()
    assert runner.resume().state is CycleState.NOTHING


# Others come first


def race(registry: MeditationRegistry) -> CycleReport:
    """Somebody else's record on the state that the agent's cycle was computed against."""
    loaded = registry.load_subject(AGENT.address)
    now = registry.clock()
    post = (*loaded.commitments[:1], Bytes32(b"\x77" * 32), *loaded.commitments[2:])
    report = CycleReport(
        loaded.head.state_version, loaded.head.root, post, 0b0010, 0b0010, 0, Outcome.COMPLETED, 0,
        loaded.head.policy_version, now, now,
    )  # fmt: skip
    registry.report(AGENT.address, report)
    return report


@pytest.mark.parametrize("when", ["in the outbox", "before it was queued", "after a kill"])
def test_lost_race_is_a_conflict_and_the_next_cycle_starts_from_the_new_state(
    w3, registry, agent, folder, monkeypatch, when
):
    runner, submit = agent
    if when == "in the outbox":
        runner.run()
    else:
        target = (Journal, "finish") if when == "after a kill" else (Journal, "queue")
        with monkeypatch.context() as patched:
            patched.setattr(*target, killed)
            patched.setattr(type(runner.outbox), "add", killed)
            with pytest.raises(Killed):
                runner.run()
    other = race(registry)
    submit()
    lost = runner.resume()
    assert lost.state is CycleState.CONFLICT
    assert [(event.layer, event.version) for event in lost.changed_since] == [(1, 2)]
    assert [event.report for event in recorded(registry)] == [other]
    assert runner.resume().state is CycleState.NOTHING
    tick(w3)
    runner.run()
    submit()
    settled = runner.resume()
    assert (settled.state, settled.report.base_version, settled.event.new_version) == (CycleState.REGISTERED, 2, 3)
    # What the lost cycle did is told by the record that came through.
    changes = entry_of(settled.record, 0)["changes"]
    assert [change["what"] for change in changes] == [f"garbage-{number} was removed" for number in (1, 2, 3)]
    assert all("could not be registered" in change["detail"] for change in changes)
    assert runner.journal.carried == []
    loaded = registry.load_subject(AGENT.address)
    with WitnessStore.open(folder / "witnesses.db", STORE_KEY) as store:
        kept = Kept(store, registry, AGENT.address)
        assert LAYERS[0].commit(kept.get(LAYERS[0], 3)) == loaded.commitments[0]


def test_report_that_will_never_be_taken_is_given_up_and_its_changes_are_told_later(w3, registry, agent):
    runner, submit = agent
    runner.run(scope=1)
    now = registry.clock()
    loaded = registry.load_subject(AGENT.address)
    # Another completion of the same layer, later than ours, that changes no state.
    registry.report(
        AGENT.address,
        CycleReport(1, loaded.head.root, loaded.commitments, 1, 1, 0, Outcome.COMPLETED, 0, 1, now, now),
    )
    submit()
    refused = runner.resume()
    assert refused.state is CycleState.REFUSED
    assert "is not later" in refused.reason
    tick(w3)
    assert runner.run(scope=0b0101).state is CycleState.QUEUED
    submit()
    assert len(entry_of(runner.resume().record, 0)["changes"]) == 3


# Kill it anywhere


class Killed(BaseException):
    """What no routine's errors are mistaken for."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def test_cycle_that_was_cut_off_registers_what_really_happened(registry, agent, folder, monkeypatch):
    runner, submit = agent
    unlink = Path.unlink

    def die_at_the_second(path: Path, **options: Any) -> None:
        unlink(path, **options)
        if path.name == "garbage-2":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", die_at_the_second)
        with pytest.raises(Killed):
            runner.run()
    assert Journal(folder / "cycle.jsonl").read().stage is Stage.STARTED
    resumed = runner.resume()
    assert (resumed.state, resumed.was_cut_off) == (CycleState.QUEUED, True)
    submit()
    runner.resume()
    record = verify_agreement(registry, folder)
    runtime = entry_of(record, 0)
    assert (record["ended"], runtime["completed"], runtime["decision"]) == ("aborted", False, "failed")
    assert [change["what"] for change in runtime["changes"]] == ["garbage-1 was removed"]
    assert [check["detail"] for check in runtime["checks"] if check["result"] == "could-not-tell"] == [
        "clean: garbage-2 was removed; it was begun, and nobody knows whether it was made"
    ]
    assert [one["name"] for one in runtime["observations"]] == ["files"]
    (event,) = recorded(registry)
    assert (event.report.outcome, event.report.completed_layers, event.changed_layers) == (Outcome.ABORTED, 0, 1)


#: How many steps a whole cycle has at least, from the first to the last that is written down.
STEPS = 150


@pytest.fixture
def worker(node, address) -> Iterator[Callable[..., int]]:
    """A program that does the agent's cycle in a folder, and is killed at a step if one is given."""
    command = [sys.executable, cycle_worker.__file__, node.url, str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def work(folder: Path, *step: int) -> int:
            print(folder, *step, file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield work
        process.stdin.close()


def test_a_cycle_killed_at_any_step_is_registered_once_and_tells_what_happened(w3, registry, folder, worker, tmp_path):
    stride = 1 if os.environ.get("MELETE_HYPOTHESIS_PROFILE") == "deep" else 13
    before = w3.provider.make_request("evm_snapshot", [])["result"]
    step, ended = 1, None
    while ended != 0:
        attempt = tmp_path / f"attempt-{step}"
        shutil.copytree(folder, attempt)
        ended = worker(attempt, step)
        assert ended in (0, -signal.SIGKILL), step
        assert worker(attempt) == 0, step
        record = verify_agreement(registry, attempt)
        verify_told(record, attempt, step)
        w3.provider.make_request("evm_revert", [before])
        before = w3.provider.make_request("evm_snapshot", [])["result"]
        step += stride
    assert step > STEPS


def verify_told(record: Any, folder: Path, step: int) -> None:
    """What the record says was removed is gone, what is gone it tells, at least as something that nobody knows."""
    gone = {f"garbage-{number}" for number in (1, 2, 3)} - {path.name for path in (folder / "files").iterdir()}
    runtime = entry_of(record, 0)
    told = {change["what"].split()[0] for change in runtime["changes"]}
    unknown = {check["detail"].split()[1] for check in runtime["checks"] if check["result"] == "could-not-tell"}
    assert told <= gone <= told | unknown, step
    assert record["ended"] == ("normally" if runtime["completed"] and entry_of(record, 2)["completed"] else "aborted")
    assert runtime["completed"] is False or gone == told, step


def test_worker_without_a_kill_does_its_cycle(w3, registry, address, folder):
    bring_to_the_registry(w3, address, folder)
    assert verify_agreement(registry, folder)["ended"] == "normally"
