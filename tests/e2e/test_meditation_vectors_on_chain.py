"""The vectors of the Agent Meditation Mechanism, run by the contract itself at the times that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import decode, encode
from web3 import Web3

from melete import keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.resources import load_artifact

FOLDER = Path(__file__).resolve().parents[2] / "test-vectors" / "meditation"
ARTIFACT = load_artifact("AgentMeditationRegistry")
FUNCTIONS = {entry["name"]: entry for entry in ARTIFACT.abi if entry["type"] == "function"}
EVENTS = {entry["name"]: entry for entry in ARTIFACT.abi if entry["type"] == "event"}
NOBODY, NO_WORD = "0x" + "00" * 20, "0x" + "00" * 32
ALL_RIGHTS = "7"
#: How the contract numbers what the vectors name.
LAYER_STATUSES = ["NOT_ENROLLED", "UNSUPPORTED", "UNSCHEDULED", "FRESH", "DUE", "OVERDUE"]
SIGNAL_STATUSES = ["NOT_ENROLLED", "NOT_TRACKED", "PRESENT", "SILENT"]


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def cases(name: str, *kinds: str) -> list[Any]:
    found = [case for case in load(name)["cases"] if case["kind"] in kinds]
    assert found, f"{name} holds no case of {kinds}"
    return [pytest.param(case, id=case["name"]) for case in found]


EXAMPLE, REPORTS, STATUSES = load("worked_example"), load("refused_reports"), load("statuses")
SUBJECT, CONTROLLER = STATUSES["subject"], STATUSES["controller"]
ENROLLED_AT = int(EXAMPLE["enrolledAt"])


# From the vectors' JSON to the contract's words and back


def type_of(member: dict[str, Any]) -> str:
    kind = member["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(map(type_of, member["components"])) + ")" + kind.removeprefix("tuple")


def to_abi(member: dict[str, Any], value: Any) -> Any:
    kind = member["type"]
    if kind == "tuple":
        return [to_abi(part, value[part["name"]]) for part in member["components"]]
    if kind.endswith("[4]"):
        return [to_abi({"type": kind[:-3]}, item) for item in value]
    if kind.startswith("uint"):
        return int(value)
    return bytes.fromhex(value[2:]) if kind.startswith("bytes") else value


def to_json(member: dict[str, Any], value: Any) -> Any:
    kind = member["type"]
    if kind == "tuple":
        return {part["name"]: to_json(part, item) for part, item in zip(member["components"], value, strict=True)}
    if kind.endswith("[4]"):
        return [to_json({"type": kind[:-3]}, item) for item in value]
    if kind.startswith("uint"):
        return str(value)
    return "0x" + value.hex() if kind == "bytes32" else value


def encode_call(name: str, *values: Any) -> str:
    inputs = FUNCTIONS[name]["inputs"]
    types = [type_of(member) for member in inputs]
    arguments = [to_abi(member, value) for member, value in zip(inputs, values, strict=True)]
    return "0x" + (keccak256(f"{name}({','.join(types)})".encode())[:4] + encode(types, arguments)).hex()


class Chain:
    """The registry on a node of its own, whose every block has the time that a test gives it."""

    def __init__(self, w3: Web3) -> None:
        self.w3, self.address = w3, ""

    def rpc(self, method: str, *parameters: Any) -> Any:
        answer = self.w3.provider.make_request(method, list(parameters))
        assert "error" not in answer, answer
        return answer["result"]

    def mine(self, transaction: dict[str, Any], at: int) -> Any:
        sent = self.rpc("eth_sendTransaction", {**transaction, "gas": hex(10_000_000)})
        self.rpc("evm_mine", {"timestamp": at})
        receipt = self.rpc("eth_getTransactionReceipt", sent)
        assert receipt["status"] == "0x1"
        return receipt

    def send(self, at: int, sender: str, name: str, *values: Any) -> Any:
        """Make a call that has to succeed, in a block with this time; return the logs."""
        data = encode_call(name, *values)
        return self.mine({"from": sender, "to": self.address, "data": data}, at)["logs"]

    def answer(self, at: int, sender: str, name: str, *values: Any) -> dict[str, Any]:
        """What the node says to a call in a block with this time."""
        request = {"from": sender, "to": self.address, "data": encode_call(name, *values)}
        return self.w3.provider.make_request("eth_call", [request, "latest", {}, {"time": hex(at)}])

    def ask(self, at: int, name: str, *values: Any, sender: str = SUBJECT) -> Any:
        """What a function answers, in the vectors' JSON."""
        answer = self.answer(at, sender, name, *values)
        assert "error" not in answer, answer
        outputs = FUNCTIONS[name]["outputs"]
        words = decode([type_of(member) for member in outputs], bytes.fromhex(answer["result"][2:]))
        found = [to_json(member, word) for member, word in zip(outputs, words, strict=True)]
        return found[0] if len(found) == 1 else found

    def refusal(self, at: int, sender: str, name: str, *values: Any) -> str:
        """The revert data with which a call is refused."""
        answer = self.answer(at, sender, name, *values)
        assert "error" in answer, f"{name} was accepted"
        return answer["error"]["data"]


@pytest.fixture(scope="module")
def node() -> Iterator[Chain]:
    # Blocks come when a test mines them. Time runs forward only, and the example lies in the past of most machines.
    options = ("--no-mining", "--auto-impersonate", "--timestamp", str(ENROLLED_AT - 1000))
    with Anvil(options=options) as anvil:
        chain = Chain(connect(anvil.url))
        for account in (SUBJECT, CONTROLLER):
            chain.rpc("anvil_setBalance", account, hex(10**22))
        creation = {"from": CONTROLLER, "data": "0x" + ARTIFACT.bytecode.hex()}
        chain.address = chain.mine(creation, ENROLLED_AT - 500)["contractAddress"]
        yield chain


@pytest.fixture
def chain(node) -> Iterator[Chain]:
    """The registry with nothing in it, and rolled back to that afterwards."""
    snapshot = node.rpc("evm_snapshot")
    yield node
    assert node.rpc("evm_revert", snapshot)


# Hashes and the interface


@pytest.mark.parametrize("case", cases("commitments", "layer_commitment"))
def test_the_contract_computes_every_layer_commitment_of_the_vectors(node, case):
    words = [case[name] for name in ("layer", "schemaHash", "contentHash", "salt")]
    assert node.ask(ENROLLED_AT, "computeLayerCommitment", *words) == case["commitment"]


@pytest.mark.parametrize("case", cases("commitments", "layer_document"))
def test_the_contract_commits_to_every_document_of_the_vectors(node, case):
    words = [str(json.loads(case["jsonText"])["layer"]), case["schemaHash"], case["contentHash"], case["salt"]]
    assert node.ask(ENROLLED_AT, "computeLayerCommitment", *words) == case["commitment"]


@pytest.mark.parametrize("case", cases("commitments", "refused_layer"))
def test_the_contract_commits_to_no_layer_that_the_vectors_refuse(node, case):
    words = [case[name] for name in ("layer", "schemaHash", "contentHash", "salt")]
    refused = node.refusal(ENROLLED_AT, SUBJECT, "computeLayerCommitment", *words)
    assert refused == case["error"]["revertData"]


@pytest.mark.parametrize("case", cases("roots", "state_root"))
def test_the_contract_computes_every_root_of_the_vectors(node, case):
    assert node.ask(ENROLLED_AT, "computeRoot", case["commitments"]) == case["root"]


@pytest.mark.parametrize("case", cases("interface", "interface_id"))
def test_the_contract_supports_the_interface_of_the_vectors(node, case):
    def supports(interface_id: str) -> bool:
        return node.ask(ENROLLED_AT, "supportsInterface", interface_id)

    assert supports(case["interfaceId"])
    assert not supports("0x9c81b551")


# The worked example


def enroll_example(chain: Chain) -> Any:
    return chain.send(ENROLLED_AT, SUBJECT, "enroll", EXAMPLE["baseline"], EXAMPLE["policy"], NOBODY, "0")


def example_report() -> dict[str, Any]:
    return EXAMPLE["cases"][0]["report"]


@pytest.mark.parametrize("case", cases("worked_example", "logs"))
def test_the_contract_emits_every_log_of_the_worked_example(chain, case):
    logs = enroll_example(chain)
    if case["transaction"] == "report":
        logs = chain.send(int(EXAMPLE["recordedAt"]), SUBJECT, "report", SUBJECT, example_report())
    emitted = [(log["topics"], log["data"]) for log in logs]
    assert emitted == [(log["topics"], log["data"]) for log in case["logs"]]


@pytest.mark.parametrize("case", cases("worked_example", "cycle"))
def test_the_contract_shows_every_effect_of_the_worked_example(chain, case):
    enroll_example(chain)
    now = int(EXAMPLE["recordedAt"])
    recorded = chain.send(now, SUBJECT, "report", SUBJECT, case["report"])[0]
    effects = case["effects"]
    assert changed_layers(recorded) == effects["changedLayers"]
    assert chain.ask(now, "headOf", SUBJECT)["stateVersion"] == effects["stateVersion"]
    versions = range(len(effects["roots"]) + 2)
    roots = [chain.ask(now, "rootAt", SUBJECT, str(version)) for version in versions]
    assert roots == [NO_WORD, *effects["roots"], NO_WORD]
    for layer, stated in enumerate(effects["checkpoints"]):
        found = chain.ask(now, "checkpointOf", SUBJECT, str(layer))
        assert found.pop("lastCompletedRecordedAt") == EXAMPLE["recordedAt"]
        assert found == stated
    assert chain.ask(now, "policyOf", SUBJECT, "1") == EXAMPLE["policy"]


@pytest.mark.parametrize("case", cases("worked_example", "head"))
def test_the_contract_shows_the_head_after_the_worked_example(chain, case):
    enroll_example(chain)
    chain.send(int(EXAMPLE["recordedAt"]), SUBJECT, "report", SUBJECT, example_report())
    assert chain.ask(int(EXAMPLE["recordedAt"]), "headOf", SUBJECT) == case["head"]


def changed_layers(recorded: Any) -> str:
    """What CycleRecorded says of the layers that changed."""
    plain = [member for member in EVENTS["CycleRecorded"]["inputs"] if not member["indexed"]]
    values = decode([type_of(member) for member in plain], bytes.fromhex(recorded["data"][2:]))
    return str(values[[member["name"] for member in plain].index("changedLayers")])


# Policies and floors


def edit(structure: dict[str, Any], edits: list[dict[str, str]]) -> dict[str, Any]:
    edited = json.loads(json.dumps(structure))
    for change in edits:
        assert change["member"] in edited
        if "layer" in change:
            edited[change["member"]][int(change["layer"])] = change["value"]
        else:
            edited[change["member"]] = change["value"]
    return edited


def enroll_with(chain: Chain, policy: dict[str, Any], at: int = ENROLLED_AT) -> None:
    chain.send(at, SUBJECT, "enroll", [NO_WORD] * 4, policy, CONTROLLER, ALL_RIGHTS)


@pytest.mark.parametrize("case", cases("policies", "invalid_policy"))
def test_the_contract_refuses_every_invalid_policy_of_the_vectors(chain, case):
    policy = edit(EXAMPLE["policy"], case["edits"])
    refused = chain.refusal(ENROLLED_AT, SUBJECT, "enroll", [NO_WORD] * 4, policy, NOBODY, "0")
    assert refused == case["error"]["revertData"]
    enroll_example(chain)
    assert chain.refusal(ENROLLED_AT, SUBJECT, "setPolicy", SUBJECT, policy) == case["error"]["revertData"]


@pytest.mark.parametrize("case", cases("policies", "valid_policy"))
def test_the_contract_keeps_every_valid_policy_of_the_vectors_as_it_is(chain, case):
    policy = edit(EXAMPLE["policy"], case["edits"])
    enroll_with(chain, policy)
    chain.send(ENROLLED_AT, SUBJECT, "setPolicy", SUBJECT, policy)
    for version in ("1", "2"):
        assert chain.ask(ENROLLED_AT, "policyOf", SUBJECT, version) == policy


@pytest.mark.parametrize("case", cases("policies", "invalid_floor"))
def test_the_contract_refuses_every_invalid_floor_of_the_vectors(chain, case):
    enroll_with(chain, EXAMPLE["policy"])
    refused = chain.refusal(ENROLLED_AT, CONTROLLER, "setFloor", SUBJECT, case["floor"])
    assert refused == case["error"]["revertData"]


@pytest.mark.parametrize("case", cases("policies", "valid_floor"))
def test_the_contract_keeps_every_valid_floor_of_the_vectors_as_it_is(chain, case):
    enroll_with(chain, EXAMPLE["policy"])
    chain.send(ENROLLED_AT, CONTROLLER, "setFloor", SUBJECT, case["floor"])
    assert chain.ask(ENROLLED_AT, "floorOf", SUBJECT) == case["floor"]


@pytest.mark.parametrize("case", cases("policies", "requirements"))
def test_the_contract_joins_policy_and_floor_as_the_vectors_do(chain, case):
    enroll_with(chain, edit(EXAMPLE["policy"], case["edits"]))
    chain.send(ENROLLED_AT, CONTROLLER, "setFloor", SUBJECT, case["floor"])
    assert chain.ask(ENROLLED_AT, "requirementsOf", SUBJECT) == case["requirements"]


# Reports


def reach(chain: Chain, name: str) -> None:
    """Bring the registry to a named state."""
    state = REPORTS["states"][name]
    if "after" in state:
        reach(chain, state["after"])
    for step in state["steps"]:
        given, at = step["input"], int(step["at"])
        if step["call"] == "enroll":
            chain.send(at, SUBJECT, "enroll", given["baseline"], given["policy"], NOBODY, "0")
        else:
            chain.send(at, SUBJECT, step["call"], SUBJECT, given)


@pytest.mark.parametrize("case", cases("refused_reports", "rejection"))
def test_the_contract_refuses_every_report_of_the_vectors_with_its_very_words(chain, case):
    reach(chain, case["state"])
    report = edit(example_report(), case["edits"])
    assert chain.refusal(int(case["at"]), SUBJECT, "report", SUBJECT, report) == case["error"]["revertData"]


@pytest.mark.parametrize("case", cases("refused_reports", "acceptance"))
def test_the_contract_accepts_every_report_that_the_vectors_accept(chain, case):
    reach(chain, case["state"])
    report, at, after = edit(example_report(), case["edits"]), int(case["at"]), case["after"]
    assert chain.ask(at, "report", SUBJECT, report) == after["seq"]
    recorded = chain.send(at, SUBJECT, "report", SUBJECT, report)[0]
    assert changed_layers(recorded) == after["changedLayers"]
    head = chain.ask(at, "headOf", SUBJECT)
    assert (head["recordCount"], head["stateVersion"], head["root"]) == (
        after["seq"],
        after["newVersion"],
        after["root"],
    )


# Statuses


def play(chain: Chain, name: str) -> None:
    """Take every step of a timeline."""
    policies, floors = STATUSES["policies"], STATUSES["floors"]
    for step in STATUSES["timelines"][name]["steps"]:
        at, kind = int(step["at"]), step["step"]
        if kind == "enroll":
            enroll_with(chain, policies[step["policy"]], at)
        elif kind == "set_policy":
            chain.send(at, SUBJECT, "setPolicy", SUBJECT, policies[step["policy"]])
        elif kind == "set_floor":
            chain.send(at, CONTROLLER, "setFloor", SUBJECT, floors[step["floor"]])
        elif kind == "demand":
            chain.send(at, CONTROLLER, "demand", SUBJECT, step["layerMask"], step["dueBy"])
        elif kind == "withdraw_demand":
            chain.send(at, CONTROLLER, "withdrawDemand", SUBJECT, step["layerMask"])
        elif kind == "pulse":
            chain.send(at, SUBJECT, "pulse", SUBJECT, "0")
        else:
            assert kind == "report"
            chain.send(at, SUBJECT, "report", SUBJECT, short_report(chain, step))


def short_report(chain: Chain, step: dict[str, str]) -> dict[str, Any]:
    head = chain.ask(int(step["at"]), "headOf", SUBJECT)
    return {
        "baseVersion": head["stateVersion"],
        "preRoot": head["root"],
        "postCommitments": [NO_WORD] * 4,
        "layerMask": step["layerMask"],
        "completedLayers": step["completedLayers"],
        "opsMask": "0",
        "outcome": step["outcome"],
        "trigger": "0",
        "policyVersion": step["policyVersion"],
        "reportedStartedAt": step["reportedEndedAt"],
        "reportedEndedAt": step["reportedEndedAt"],
        "nextPlannedAt": "0",
        "restoresVersion": "0",
        "recordHash": NO_WORD,
        "recordURI": "",
    }


@pytest.mark.parametrize("case", cases("statuses", "layer_status"))
def test_the_contract_judges_every_layer_as_the_vectors_do(chain, case):
    play(chain, case["timeline"])
    status, deadline, never_completed = chain.ask(int(case["at"]), "layerStatus", SUBJECT, case["layer"])
    found = {"status": LAYER_STATUSES[int(status)], "deadline": deadline, "neverCompleted": never_completed}
    assert found == case["expected"]


@pytest.mark.parametrize("case", cases("statuses", "signal_status"))
def test_the_contract_judges_every_signal_as_the_vectors_do(chain, case):
    play(chain, case["timeline"])
    status, last_signal_at, silent_since = chain.ask(int(case["at"]), "signalStatus", SUBJECT)
    found = {"status": SIGNAL_STATUSES[int(status)], "lastSignalAt": last_signal_at, "silentSince": silent_since}
    assert found == case["expected"]
