"""The package against the vectors of the Agent Meditation Mechanism."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from eth_abi.abi import encode

from melete.canonical import canonicalize_json, compute_content_hash, load_json
from melete.chain.reverts import compute_selector, decode_revert
from melete.errors import ContractError, InvalidLayer
from melete.meditation import layers
from melete.meditation.cycle import CycleReport, Outcome, SubjectState, check_report
from melete.meditation.layers import (
    SCHEMAS,
    Layer,
    commit_to_document,
    compute_layer_commitment,
    compute_root,
    compute_schema_hash,
    layers_of,
)
from melete.meditation.policy import (
    NO_FLOOR,
    Floor,
    Policy,
    Requirements,
    check_floor,
    check_policy,
    join_requirements,
)
from melete.meditation.status import NO_DEMAND, Demand, judge_layer, judge_signal
from melete.primitives import ZERO_BYTES32, Address, Bytes32, keccak256, parse_bytes
from melete.resources import load_artifact

from .loading import ROOT, Json, load_cases, load_file

SET = "meditation"
CASES = load_cases(SET)
ABI = load_artifact("AgentMeditationRegistry").abi
#: What the registry answers for other standards' sake: ERC-165 and ERC-6372.
OTHER_STANDARDS = {"supportsInterface(bytes4)", "clock()", "CLOCK_MODE()"}


def signature_of(entry: Json) -> str:
    return f"{entry['name']}({','.join(type_of(member) for member in entry['inputs'])})"


def type_of(member: Json) -> str:
    kind: str = member["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(type_of(inner) for inner in member["components"]) + ")" + kind.removeprefix("tuple")


def signatures(kind: str) -> set[str]:
    return {signature_of(entry) for entry in ABI if entry["type"] == kind}


# Hashes and the interface


def check_domain_tag(file: str, case: Json) -> None:
    assert str(keccak256(case["text"].encode())) == case["keccak256"]
    assert str(getattr(layers, f"TAG_{case['name'].upper()}")) == case["keccak256"]


def check_schema_identifier(file: str, case: Json) -> None:
    layer = Layer[case["name"].upper()]
    assert str(layer.value) == case["layer"]
    assert SCHEMAS[layer] == case["text"]
    assert str(compute_schema_hash(case["text"])) == case["keccak256"]


def check_canonical_json(file: str, case: Json) -> None:
    assert canonicalize_json(case["jsonText"]) == parse_bytes(case["canonical"])
    assert str(compute_content_hash(load_json(case["jsonText"]))) == case["keccak256"]


def commit(case: Json) -> Bytes32:
    words = [Bytes32(case[name]) for name in ("schemaHash", "contentHash", "salt")]
    return compute_layer_commitment(int(case["layer"]), *words)


def check_layer_commitment(file: str, case: Json) -> None:
    assert str(commit(case)) == case["commitment"]
    assert case["commitment"] not in case.get("mistakes", {}).values()


def check_layer_document(file: str, case: Json) -> None:
    document = load_json(case["jsonText"])
    assert isinstance(document, dict)
    assert str(compute_content_hash(document)) == case["contentHash"]
    assert str(compute_schema_hash(str(document["schema"]))) == case["schemaHash"]
    assert str(commit_to_document(document, Bytes32(case["salt"]))) == case["commitment"]


def check_refused_layer(file: str, case: Json) -> None:
    with pytest.raises(InvalidLayer) as caught:
        commit(case)
    check_error(caught.value, case["error"])


def check_state_root(file: str, case: Json) -> None:
    assert str(compute_root(map(Bytes32, case["commitments"]))) == case["root"]
    assert case["root"] not in case.get("mistakes", {}).values()


def check_function(file: str, case: Json) -> None:
    assert case["signature"] in signatures("function")
    assert compute_selector(case["signature"]) == parse_bytes(case["selector"])


def check_event(file: str, case: Json) -> None:
    assert case["signature"] in signatures("event")
    assert str(keccak256(case["signature"].encode())) == case["topic"]


def check_interface_id(file: str, case: Json) -> None:
    total = 0
    for signature in signatures("function") - OTHER_STANDARDS:
        assert signature.partition("(")[0] in case["functions"]
        total ^= int.from_bytes(compute_selector(signature), "big")
    assert total.to_bytes(4, "big") == parse_bytes(case["interfaceId"])


def check_error(error: ContractError, stated: Json) -> None:
    for either in (error, decode_revert(stated["revertData"])):
        assert type(either).__name__ == stated["name"]
        assert either.signature == stated["signature"]
        assert [str(value) for value in vars(either).values()] == list(stated["arguments"].values())
    assert compute_selector(error.signature) == parse_bytes(stated["selector"])


# Policies


def read_policy(given: Json) -> Policy:
    return Policy(
        supported_layers=int(given["supportedLayers"]),
        required_layers=int(given["requiredLayers"]),
        allowed_triggers=int(given["allowedTriggers"]),
        disclosure=int(given["disclosure"]),
        due_window=int(given["dueWindow"]),
        pulse_interval=int(given["pulseInterval"]),
        max_interval=read_intervals(given),
        policy_hash=Bytes32(given["policyHash"]),
        policy_uri=given["policyURI"],
    )


def read_floor(given: Json) -> Floor:
    return Floor(int(given["requiredLayers"]), int(given["pulseInterval"]), read_intervals(given))


def read_intervals(given: Json) -> Any:
    return tuple(int(interval) for interval in given["maxInterval"])


def edit(structure: Json, edits: list[Json]) -> Json:
    """Return a structure of the worked example after the edits of a case."""
    edited = deepcopy(structure)
    for change in edits:
        if "layer" in change:
            edited[change["member"]][int(change["layer"])] = change["value"]
        else:
            assert change["member"] in edited
            edited[change["member"]] = change["value"]
    return edited


def edited_policy(case: Json) -> Policy:
    return read_policy(edit(load_file(f"{SET}/worked_example.json")["policy"], case["edits"]))


def check_valid_policy(file: str, case: Json) -> None:
    policy = edited_policy(case)
    assert check_policy(policy) is policy


def check_invalid_policy(file: str, case: Json) -> None:
    with pytest.raises(ContractError) as caught:
        check_policy(edited_policy(case))
    check_error(caught.value, case["error"])


def check_valid_floor(file: str, case: Json) -> None:
    floor = read_floor(case["floor"])
    assert check_floor(floor) is floor


def check_invalid_floor(file: str, case: Json) -> None:
    with pytest.raises(ContractError) as caught:
        check_floor(read_floor(case["floor"]))
    check_error(caught.value, case["error"])


def check_requirements(file: str, case: Json) -> None:
    stated = case["requirements"]
    assert join_requirements(check_policy(edited_policy(case)), check_floor(read_floor(case["floor"]))) == Requirements(
        supported_layers=int(stated["supportedLayers"]),
        required_layers=int(stated["requiredLayers"]),
        due_window=int(stated["dueWindow"]),
        pulse_interval=int(stated["pulseInterval"]),
        max_interval=read_intervals(stated),
    )


# Reports


def read_report(given: Json) -> CycleReport:
    return CycleReport(
        base_version=int(given["baseVersion"]),
        pre_root=Bytes32(given["preRoot"]),
        post_commitments=read_commitments(given["postCommitments"]),
        layer_mask=int(given["layerMask"]),
        completed_layers=int(given["completedLayers"]),
        ops_mask=int(given["opsMask"]),
        outcome=int(given["outcome"]),
        trigger=int(given["trigger"]),
        policy_version=int(given["policyVersion"]),
        reported_started_at=int(given["reportedStartedAt"]),
        reported_ended_at=int(given["reportedEndedAt"]),
        next_planned_at=int(given["nextPlannedAt"]),
        restores_version=int(given["restoresVersion"]),
        record_hash=Bytes32(given["recordHash"]),
        record_uri=given["recordURI"],
    )


def read_commitments(given: list[str]) -> layers.Commitments:
    a, b, c, d = map(Bytes32, given)
    return a, b, c, d


class Subject:
    """A subject in memory: every verdict is the package's, only the consequences are written down here."""

    def __init__(self, enrolled_at: int, baseline: layers.Commitments, policy: Policy) -> None:
        self.enrolled_at = self.last_signal_at = enrolled_at
        self.floor, self.records = NO_FLOOR, 0
        self.demands = [NO_DEMAND] * 4
        policies = ((check_policy(policy), enrolled_at),)
        self.state = SubjectState(1, baseline, (0, 0, 0, 0), policies, {1: compute_root(baseline)})
        self.last_changed_version, self.completed_under_policy = [1] * 4, [0] * 4

    def set_policy(self, policy: Policy, at: int) -> None:
        self.state = replace(self.state, policies=(*self.state.policies, (check_policy(policy), at)))

    def report(self, report: CycleReport, at: int) -> int:
        """Register a report; return the layers that changed, or raise the registry's error."""
        state = self.state
        changed = check_report(state, report, at)
        if changed:
            version = state.state_version + 1
            roots = {**state.roots, version: compute_root(report.post_commitments)}
            state = replace(state, state_version=version, commitments=report.post_commitments, roots=roots)
        completed = list(state.last_completed_at)
        for layer in layers_of(changed):
            self.last_changed_version[layer] = state.state_version
        for layer in layers_of(report.completed_layers):
            completed[layer] = report.reported_ended_at
            self.completed_under_policy[layer] = report.policy_version
            if self.demands[layer].demanded_at <= report.reported_ended_at:
                self.demands[layer] = NO_DEMAND
        a, b, c, d = completed
        self.state = replace(state, last_completed_at=(a, b, c, d))
        self.pulse(at)
        return changed

    def pulse(self, at: int) -> None:
        self.records, self.last_signal_at = self.records + 1, at

    @property
    def requirements(self) -> Requirements:
        return join_requirements(self.state.policies[-1][0], self.floor)


def enroll_example() -> Subject:
    example = load_file(f"{SET}/worked_example.json")
    return Subject(int(example["enrolledAt"]), read_commitments(example["baseline"]), read_policy(example["policy"]))


def example_report() -> Json:
    report: Json = load_file(f"{SET}/worked_example.json")["cases"][0]["report"]
    return report


def record_example() -> tuple[Subject, int]:
    subject = enroll_example()
    recorded_at = int(load_file(f"{SET}/worked_example.json")["recordedAt"])
    return subject, subject.report(read_report(example_report()), recorded_at)


def check_cycle(file: str, case: Json) -> None:
    subject, changed = record_example()
    effects = case["effects"]
    assert str(changed) == effects["changedLayers"]
    assert str(subject.state.state_version) == effects["stateVersion"]
    assert [str(root) for root in subject.state.roots.values()] == effects["roots"]
    assert effects["checkpoints"] == [
        {
            "commitment": str(subject.state.commitments[layer]),
            "lastCompletedAt": str(subject.state.last_completed_at[layer]),
            "completedUnderPolicy": str(subject.completed_under_policy[layer]),
            "lastChangedVersion": str(subject.last_changed_version[layer]),
        }
        for layer in Layer
    ]


def to_abi(kind: str, value: Any) -> Any:
    """Return a value of the vectors as eth_abi takes it."""
    if isinstance(value, list):
        return [to_abi(kind.removesuffix("[4]"), item) for item in value]
    if kind.startswith("uint"):
        return int(value)
    return {"bytes32": parse_bytes, "address": lambda account: str(Address(account)), "string": str}[kind](value)


def check_logs(file: str, case: Json) -> None:
    events = {entry["name"]: entry for entry in ABI if entry["type"] == "event"}
    for log in case["logs"]:
        event, arguments = events[log["event"]], dict(log["arguments"])
        topics, types, values = [str(keccak256(signature_of(event).encode()))], [], []
        for member in event["inputs"]:
            if member["type"] == "tuple":
                assert arguments[member["name"]] == load_file(file)["cases"][0]["name"]
                value: Any = [to_abi(part["type"], example_report()[part["name"]]) for part in member["components"]]
            else:
                value = to_abi(member["type"], arguments[member["name"]])
            if member["indexed"]:
                topics.append("0x" + encode([member["type"]], [value]).hex())
            else:
                types.append(type_of(member))
                values.append(value)
        assert log["topics"] == topics
        assert log["data"] == "0x" + encode(types, values).hex()


def check_head(file: str, case: Json) -> None:
    subject, _ = record_example()
    head = case["head"]
    assert head["root"] == str(subject.state.root)
    assert head["stateVersion"] == str(subject.state.state_version)
    assert head["policyVersion"] == str(len(subject.state.policies))
    assert head["recordCount"] == str(subject.records)
    assert (head["enrolledAt"], head["lastSignalAt"]) == (str(subject.enrolled_at), str(subject.last_signal_at))


def reach(file: str, name: str) -> Subject:
    """Return the subject in a named state, after every call that leads there was accepted."""
    state = load_file(file)["states"][name]
    subject = reach(file, state["after"]) if "after" in state else None
    for step in state["steps"]:
        at, given = int(step["at"]), step["input"]
        if step["call"] == "enroll":
            subject = Subject(at, read_commitments(given["baseline"]), read_policy(given["policy"]))
            continue
        assert subject is not None
        if step["call"] == "setPolicy":
            subject.set_policy(read_policy(given), at)
        else:
            assert step["call"] == "report"
            subject.report(read_report(given), at)
    assert subject is not None
    return subject


def check_rejection(file: str, case: Json) -> None:
    subject = reach(file, case["state"])
    report = read_report(edit(example_report(), case["edits"]))
    with pytest.raises(ContractError) as caught:
        subject.report(report, int(case["at"]))
    check_error(caught.value, case["error"])


def check_acceptance(file: str, case: Json) -> None:
    subject, after = reach(file, case["state"]), case["after"]
    changed = subject.report(read_report(edit(example_report(), case["edits"])), int(case["at"]))
    assert str(changed) == after["changedLayers"]
    assert str(subject.state.root) == after["root"]
    assert (str(subject.state.state_version), str(subject.records)) == (after["newVersion"], after["seq"])


# Statuses


def play(file: str, name: str) -> Subject | None:
    """Return the subject after the steps of a timeline; None if it never enrolled."""
    document = load_file(file)
    subject: Subject | None = None
    for step in document["timelines"][name]["steps"]:
        kind, at = step["step"], int(step["at"])
        if kind == "enroll":
            subject = Subject(at, (ZERO_BYTES32,) * 4, read_policy(document["policies"][step["policy"]]))
            continue
        assert subject is not None
        if kind == "set_policy":
            subject.set_policy(read_policy(document["policies"][step["policy"]]), at)
        elif kind == "set_floor":
            subject.floor = check_floor(read_floor(document["floors"][step["floor"]]))
        elif kind == "demand":
            for layer in layers_of(int(step["layerMask"])):
                subject.demands[layer] = Demand(at, int(step["dueBy"]))
        elif kind == "withdraw_demand":
            for layer in layers_of(int(step["layerMask"])):
                subject.demands[layer] = NO_DEMAND
        elif kind == "report":
            subject.report(short_report(subject.state, step), at)
        else:
            assert kind == "pulse"
            subject.pulse(at)
    return subject


def short_report(state: SubjectState, step: Json) -> CycleReport:
    ended_at = int(step["reportedEndedAt"])
    return CycleReport(
        base_version=state.state_version,
        pre_root=state.root,
        post_commitments=state.commitments,
        layer_mask=int(step["layerMask"]),
        completed_layers=int(step["completedLayers"]),
        ops_mask=0,
        outcome=Outcome(int(step["outcome"])),
        trigger=0,
        policy_version=int(step["policyVersion"]),
        reported_started_at=ended_at,
        reported_ended_at=ended_at,
    )


def check_layer_status(file: str, case: Json) -> None:
    subject, layer, now = play(file, case["timeline"]), int(case["layer"]), int(case["at"])
    answer = judge_layer(
        layer,
        subject.requirements if subject else None,
        enrolled_at=subject.enrolled_at if subject else 0,
        last_completed_at=subject.state.last_completed_at[layer] if subject else 0,
        demand=subject.demands[layer] if subject else NO_DEMAND,
        now=now,
    )
    stated = case["expected"]
    assert answer.status.name == stated["status"]
    assert str(answer.deadline) == stated["deadline"]
    assert answer.never_completed is stated["neverCompleted"]


def check_signal_status(file: str, case: Json) -> None:
    subject, stated = play(file, case["timeline"]), case["expected"]
    last_signal_at = subject.last_signal_at if subject else 0
    requirements = subject.requirements if subject else None
    answer = judge_signal(requirements, last_signal_at=last_signal_at, now=int(case["at"]))
    assert answer.status.name == stated["status"]
    assert (str(answer.last_signal_at), str(answer.silent_since)) == (stated["lastSignalAt"], stated["silentSince"])


CHECKS: dict[str, dict[str, Callable[[str, Json], None]]] = {
    "tags": {"domain_tag": check_domain_tag, "schema_identifier": check_schema_identifier},
    "canonicalization": {"canonical_json": check_canonical_json},
    "commitments": {
        "layer_commitment": check_layer_commitment,
        "layer_document": check_layer_document,
        "refused_layer": check_refused_layer,
    },
    "roots": {"state_root": check_state_root},
    "interface": {"function": check_function, "event": check_event, "interface_id": check_interface_id},
    "worked_example": {"cycle": check_cycle, "logs": check_logs, "head": check_head},
    "policies": {
        "valid_policy": check_valid_policy,
        "invalid_policy": check_invalid_policy,
        "valid_floor": check_valid_floor,
        "invalid_floor": check_invalid_floor,
        "requirements": check_requirements,
    },
    "refused_reports": {"rejection": check_rejection, "acceptance": check_acceptance},
    "statuses": {"layer_status": check_layer_status, "signal_status": check_signal_status},
}


@pytest.mark.parametrize(("file", "case"), CASES)
def test_package_agrees_with_the_vector(file: str, case: Json) -> None:
    checks = CHECKS[Path(file).stem]
    assert case["kind"] in checks, "a kind of case that nothing here knows"
    checks[case["kind"]](file, case)


def test_every_file_is_known_and_holds_as_many_cases_as_it_says() -> None:
    files = {path.stem: load_file(f"{SET}/{path.name}") for path in (ROOT / SET).iterdir()}
    assert set(files) == set(CHECKS)
    assert {name: str(len(document["cases"])) for name, document in files.items()} == {
        name: document["caseCount"] for name, document in files.items()
    }


def test_the_vectors_name_every_function_and_every_event_of_the_contract() -> None:
    cases = load_file(f"{SET}/interface.json")["cases"]
    named = {kind: {case["signature"] for case in cases if case["kind"] == kind} for kind in ("function", "event")}
    assert named == {"function": signatures("function") - OTHER_STANDARDS, "event": signatures("event")}


# The reading that shares nothing with the package


def read_again(folder: Path) -> subprocess.CompletedProcess[str]:
    # -I keeps every path of this project out; -S the installed packages, and the package itself with them.
    command = [sys.executable, "-I", "-S", str(ROOT / "third_reading.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def count(file: str) -> int:
    return len(load_file(f"{SET}/{file}")["cases"])


def test_third_reading_confirms_every_case_and_counts_both_sets_in_one_line() -> None:
    done = read_again(ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, closing = done.stdout.splitlines()
    assert {line for line in lines if line.startswith(SET)} == {
        f"{SET}/{path.name}: {count(path.name)} passed, 0 failed" for path in (ROOT / SET).iterdir()
    }
    assert closing == f"{len(CASES) + len(load_cases('agent-memory-state'))} passed, 0 failed"


def test_third_reading_reads_a_set_on_its_own_and_says_when_there_is_none(tmp_path: Path) -> None:
    nothing = read_again(tmp_path)
    assert (nothing.returncode, nothing.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed")
    copytree(ROOT / SET, tmp_path / SET)
    alone = read_again(tmp_path)
    assert (alone.returncode, alone.stdout.splitlines()[-1]) == (0, f"{len(CASES)} passed, 0 failed")


def flip(*path: str | int) -> Callable[[Json], None]:
    """Change the last digit of the text at a place."""

    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        text = document[path[-1]]
        document[path[-1]] = text[:-1] + ("0" if text[-1] != "0" else "1")

    return change


def in_case(name: str, *path: str | int) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        flip(*path)(next(case for case in document["cases"] if case["name"] == name))

    return change


def drop_cases(kind: str, member: str, value: str) -> Callable[[Json], None]:
    """Leave out every case of a kind that speaks of something, and count again."""

    def change(document: Json) -> None:
        spoken = {"error": lambda case: case["error"]["name"], "expected": lambda case: case["expected"]["status"]}
        kept = [case for case in document["cases"] if case["kind"] != kind or spoken[member](case) != value]
        assert len(kept) < len(document["cases"])
        document["cases"], document["caseCount"] = kept, str(len(kept))

    return change


def name_a_later_error_twice(document: Json) -> None:
    document["cases"][-1]["alsoWrong"].append("BadRestoredRoot")


def claim_another_status(document: Json) -> None:
    document["cases"][0]["expected"]["status"] = "FRESH"


def add_an_unknown_member(document: Json) -> None:
    document["cases"][0]["note"] = "nothing checks this"


def add_an_unused_state(document: Json) -> None:
    document["states"]["unused"] = {"about": "No case needs it.", "after": "enrolled", "steps": []}


def call_a_refusal_accepted(document: Json) -> None:
    refused = next(case for case in document["cases"] if case["kind"] == "rejection")
    refused["kind"] = "acceptance"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tags.json", flip("cases", 1, "keccak256")),
        ("tags.json", flip("caseCount")),
        ("canonicalization.json", flip("cases", 3, "canonical")),
        ("canonicalization.json", flip("cases", 6, "keccak256")),
        ("commitments.json", in_case("post_memory_skills", "salt")),
        ("commitments.json", in_case("baseline_memory_skills", "mistakes", "layer_left_out")),
        ("commitments.json", in_case("document_of_runtime", "contentHash")),
        ("commitments.json", in_case("layer_255", "error", "revertData")),
        ("roots.json", in_case("post", "root")),
        ("interface.json", in_case("report", "selector")),
        ("interface.json", in_case("pulsed", "topic")),
        ("worked_example.json", flip("cases", 0, "effects", "changedLayers")),
        ("worked_example.json", flip("cases", 0, "effects", "checkpoints", 3, "lastChangedVersion")),
        ("worked_example.json", flip("cases", 0, "report", "recordHash")),
        ("worked_example.json", flip("cases", 2, "logs", 3, "data")),
        ("worked_example.json", flip("cases", 3, "head", "lastSignalAt")),
        ("policies.json", in_case("floor_a_second_longer", "requirements", "pulseInterval")),
        ("policies.json", drop_cases("invalid_floor", "error", "MissingInterval")),
        ("refused_reports.json", in_case("trigger_255", "error", "arguments", "allowedTriggers")),
        ("refused_reports.json", in_case("restores_version_1", "after", "seq")),
        ("refused_reports.json", drop_cases("rejection", "error", "OpsOutsideScope")),
        ("refused_reports.json", name_a_later_error_twice),
        ("refused_reports.json", add_an_unused_state),
        ("refused_reports.json", call_a_refusal_accepted),
        ("statuses.json", in_case("sum_one_below", "expected", "deadline")),
        ("statuses.json", drop_cases("signal_status", "expected", "SILENT")),
        ("statuses.json", claim_another_status),
        ("statuses.json", add_an_unknown_member),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__qualname__.partition(".")[0],
)
def test_third_reading_refuses_a_set_with_one_thing_changed(
    tmp_path: Path, file: str, change: Callable[[Json], None]
) -> None:
    copytree(ROOT / SET, tmp_path / SET)
    target = tmp_path / SET / file
    document = json.loads(target.read_text("utf-8"))
    change(document)
    target.write_text(json.dumps(document), "utf-8")

    done = read_again(tmp_path)
    assert done.returncode == 1
    said = next(line for line in done.stdout.splitlines() if line.startswith(f"{SET}/{file}:"))
    assert not said.endswith(" 0 failed")
    assert not done.stdout.splitlines()[-1].endswith(" 0 failed")
