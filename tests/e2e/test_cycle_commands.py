"""Maintenance from the command line, against a node: run, lose a race, resume, submit by hand, disclose, judge."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from web3 import Web3

from cycle_worker import AGENT
from melete import Address, Bytes32, LocalSigner, MemoryRegistry, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.transactions import LocalSender
from melete.cli.main import run
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.kept import Kept
from melete.meditation.layers import compute_root
from melete.meditation.registry import MeditationRegistry
from melete.memory.witness_keys import load_key_file
from melete.memory.witness_kinds import LAYERS, REPORT
from melete.memory.witness_store import WitnessStore
from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore
from sdk.packs.install_samples import make_pack

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
EXAMPLE = Path(__file__).resolve().parents[2] / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
Command = Callable[..., tuple[int, Any]]


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
def registry(w3) -> MeditationRegistry:
    return MeditationRegistry.deploy(w3, LocalSender(AGENT))[0]


@pytest.fixture(scope="module")
def memory(w3) -> MemoryRegistry:
    return MemoryRegistry.deploy(w3, LocalSender(AGENT))[0]


@pytest.fixture(scope="module")
def space_id(memory) -> Bytes32:
    return memory.register(AGENT.address, keccak256(b"space")).space_id


@pytest.fixture
def fresh_chain(w3, registry, memory, space_id) -> Iterator[None]:
    """What a test does on the chain is gone after it."""
    before = w3.provider.make_request("evm_snapshot", [])["result"]
    yield
    w3.provider.make_request("evm_revert", [before])


@pytest.fixture
def tick(w3) -> Callable[[], None]:
    def advance() -> None:
        w3.provider.make_request("evm_increaseTime", [1])
        w3.provider.make_request("evm_mine", [])

    return advance


@pytest.fixture
def workplace(tmp_path, monkeypatch, node, registry, memory, fresh_chain) -> Path:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MELETE_RPC_URL", node.url)
    monkeypatch.setenv("MELETE_MEDITATION_REGISTRY", str(registry.address))
    monkeypatch.setenv("MELETE_REGISTRY", str(memory.address))
    folder = tmp_path / "agent"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def melete(workplace, capsys) -> Command:
    """Run `melete` with --json; return exit code and what was found."""

    def command(*words: object) -> tuple[int, Any]:
        code = run([*(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out)

    return command


@pytest.fixture
def agent(workplace, melete, node, space_id, monkeypatch) -> Path:
    """An agent's folder, all four layers of it described in cycle.toml, and enrolled."""
    key = workplace / "agent.key"
    key.write_text(str(keccak256(b"an agent that is killed")))
    key.chmod(0o600)
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(workplace / "store.key"))
    assert melete("witness", "init", "--new-key-file", workplace / "store.key")[0] == HOLDS
    shutil.copy(EXAMPLE / "baseline" / "tasks-roles.json", workplace / "tasks.json")
    shutil.copy(EXAMPLE / "baseline" / "cognition.json", workplace / "cognition.json")
    shutil.copy(EXAMPLE / "policy.json", workplace / "policy.json")
    (workplace / "adapters.toml").write_text("retries = 2\n")
    (workplace / "skills" / "plan-berths").mkdir(parents=True)
    (workplace / "skills" / "plan-berths" / "SKILL.md").write_text("Deep berths first.\n")
    (workplace / "skills" / "read-tides.md").write_text("Ask for a day.\n")
    (workplace / ".git").mkdir()
    pack = make_pack(workplace.parent / "pack", "harbor-rules")
    assert melete("pack", "install", "--from-path", pack, "--scope", "project", "--agent", "claude-code")[0] == HOLDS
    with MemoryStore.open(workplace / "memories.db", clock=lambda: 1_000_000) as store:
        store.remember(MemoryType.SEMANTIC, "Deep boats come on Fridays.")
        store.remember(MemoryType.EPISODIC, "The ketch asked twice.", ttl_seconds=60)
    (workplace / "cycle.toml").write_text(CYCLE.format(url=node.url, space=space_id))
    layers = [word for name in NAMES for word in ("--layer", EXAMPLE / "baseline" / f"{name}.json")]
    words = ("--policy", workplace / "policy.json", *layers, "--key-file", "agent.key")
    assert melete("subject", "enroll", *words)[0] == HOLDS
    return workplace


CYCLE = """
policy = "policy.json"
journal = "cycle.jsonl"

[runtime]
configuration = ["adapters.toml"]
dependencies = ["rfc8785", "click"]
code = [{{name = "melete", distribution = "melete"}}]
adapters = [
    {{name = "node", kind = "chain", interface = "a node of a test chain", probe = "{url}"}},
    {{name = "gone", kind = "api", interface = "nothing", probe = "tcp://127.0.0.1:1", timeout = 1}},
]
authorization = [{{name = "mail-send", scope = "send mail, at most 50 a day", grantedBy = "harbor office"}}]
self-checks = [{{name = "true", command = ["true"]}}]

[memory-skills]
store = "memories.db"
packs = ["project"]
space = "{space}"
skills = [
    {{name = "plan-berths", version = "5", path = "skills/plan-berths"}},
    {{name = "read-tides", version = "2", path = "skills/read-tides.md"}},
]
harness = ["cycle.toml"]

[tasks-roles]
document = "tasks.json"

[cognition]
document = "cognition.json"
candidate = "candidate.json"
"""
SEND = ("--confirmations", "0", "--key-file", "agent.key")


def kept(agent: Path) -> WitnessStore:
    return WitnessStore.open(agent.parent / "data" / "melete" / "witnesses.db", load_key_file(agent / "store.key"))


def kept_of(store: WitnessStore, subject: Address = AGENT.address) -> Kept:
    here = SimpleNamespace(chain_id=31337, address=Address(os.environ["MELETE_MEDITATION_REGISTRY"]))
    return Kept(store, here, subject)


def record_of(agent: Path, seq: str) -> Any:
    with kept(agent) as store:
        return kept_of(store).get(REPORT, int(seq))


def document_of(agent: Path, layer: int, version: int) -> Any:
    with kept(agent) as store:
        return kept_of(store).get(LAYERS[layer], version).document


def entry_of(agent: Path, seq: str, layer: int) -> Any:
    return next(entry for entry in record_of(agent, seq)["layers"] if entry["layer"] == layer)


def checks_of(entry: Any) -> dict[str, str]:
    return {check["name"]: check["result"] for check in entry["checks"]}


# A cycle of real routines


def test_cycle_of_all_four_routines_goes_from_its_file_to_the_chain_and_back(melete, agent, registry, memory, space_id):
    code, found = melete("cycle", "run", "--trigger", "event", "--reason", "A test.", *SEND)
    assert (code, found["state"], found["outcome"], found["seq"]) == (HOLDS, "registered", "COMPLETED", "1")
    assert [layer["decision"] for layer in found["layers"]] == ["adopted", "adopted", "kept", "kept"]
    runtime, memories = entry_of(agent, "1", 0), entry_of(agent, "1", 1)
    seen = {one["name"]: one["value"] for one in runtime["observations"]}
    assert (seen["node: reachable"], seen["gone: reachable"]) == (True, False)
    assert checks_of(runtime)["adapter: gone"] == "failed"
    assert checks_of(runtime)["true"] == "passed"
    assert checks_of(runtime)["configuration as registered"] == "failed"
    assert checks_of(memories)["memory audit"] == "passed"
    assert checks_of(memories)["skill: read-tides"] == "failed"
    assert "pack: harbor-rules" in checks_of(memories)
    assert [change["operation"] for change in memories["changes"]] == ["clean"]
    document = document_of(agent, 1, 2)
    assert document["memory"]["count"] == 1
    assert document["memory"]["head"] == {
        "chainId": "31337", "registry": str(memory.address), "spaceId": str(space_id), "sequence": "0",
        "stateRoot": "0x" + "0" * 64,
    }  # fmt: skip
    assert [pack["name"] for pack in document["packs"]] == ["harbor-rules"]
    assert [skill["name"] for skill in document["skills"]] == ["plan-berths", "read-tides"]
    text = json.dumps([document_of(agent, layer, 2) for layer in (0, 1)]) + json.dumps(record_of(agent, "1"))
    assert str(agent) not in text
    assert "127.0.0.1" not in text
    loaded = registry.load_subject(AGENT.address)
    assert [checkpoint.last_changed_version for checkpoint in loaded.checkpoints] == [2, 2, 1, 1]
    assert melete("subject", "status", AGENT.address)[0] == HOLDS


def test_cycle_that_finds_nothing_new_keeps_every_layer(melete, agent, tick):
    assert melete("cycle", "run", *SEND)[0] == HOLDS
    tick()
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["seq"], found["stateVersion"]) == (HOLDS, "2", "2")
    assert [layer["decision"] for layer in found["layers"]] == ["kept"] * 4
    assert checks_of(entry_of(agent, "2", 0))["dependencies as registered"] == "passed"


def test_tampered_audit_log_and_skill_are_found_and_told(melete, agent, tick):
    melete("cycle", "run", *SEND)
    tick()
    (agent / "skills" / "plan-berths" / "SKILL.md").write_text("Shallow berths first.\n")
    (agent / "skills" / "read-tides.md").unlink()
    with MemoryStore.open(agent / "memories.db") as store, store._core.database.writing() as connection:
        connection.exec_driver_sql("UPDATE memories SET content = 'Deep boats come on Mondays.'")
    code, found = melete("cycle", "run", "--layers", "1", *SEND)
    # To find a fault is to complete a check.
    assert (code, found["outcome"], found["layers"][0]["failedChecks"]) == (HOLDS, "COMPLETED", 3)
    checks = checks_of(entry_of(agent, "2", 1))
    assert [checks[name] for name in ("memory audit", "skill: plan-berths", "skill: read-tides")] == ["failed"] * 3
    assert [skill["name"] for skill in document_of(agent, 1, 3)["skills"]] == ["plan-berths"]


def test_layer_whose_dependency_is_neither_completed_nor_fresh_is_skipped(melete, agent, w3):
    w3.provider.make_request("evm_increaseTime", [2 * 86400])  # layer 0 is overdue after a day
    w3.provider.make_request("evm_mine", [])
    code, found = melete("cycle", "run", "--layers", "1,2,3", *SEND)
    assert (code, found["outcome"]) == (DOES_NOT_HOLD, "PARTIAL")
    assert [layer["completed"] for layer in found["layers"]] == [False, False, True]
    assert checks_of(entry_of(agent, "1", 1)) == {"dependencies": "skipped"}
    assert melete("subject", "status", AGENT.address)[0] == DOES_NOT_HOLD


def test_failed_routine_is_registered_as_what_happened(melete, agent, registry):
    (agent / "tasks.json").write_text('{"schema": "amm.layer.tasks-roles/1", "layer": 2, "mood": "good"}')
    before = registry.load_subject(AGENT.address)
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["outcome"], found["state"]) == (DOES_NOT_HOLD, "PARTIAL", "registered")
    assert [layer["decision"] for layer in found["layers"]] == ["adopted", "adopted", "failed", "kept"]
    checks = entry_of(agent, "1", 2)["checks"]
    assert {check["name"] for check in checks} == {"routine: check", "routine: describe"}
    assert all("InvalidJson: JSON at '/mood'" in check["detail"] for check in checks)
    after = registry.load_subject(AGENT.address)
    assert after.commitments[2] == before.commitments[2]
    assert [checkpoint.last_completed_at > 0 for checkpoint in after.checkpoints] == [True, True, False, True]


# The cognition layer


def test_change_that_drops_an_obligation_is_refused_and_the_refusal_recorded(melete, agent, registry):
    (agent / "obligations.json").write_text('[{"id": "no-night-mail", "statement": "No mail at night."}]')
    (agent / "cycle.toml").write_text('obligations = "obligations.json"\n' + (agent / "cycle.toml").read_text())
    before = registry.load_subject(AGENT.address)
    document = {**example("baseline/cognition.json"), "obligations": []}
    (agent / "cognition.json").write_text(json.dumps(document))
    code, found = melete("cycle", "run", "--layers", "3", *SEND)
    assert (code, found["layers"][0]["decision"], found["layers"][0]["refusals"]) == (HOLDS, "candidate", 2)
    entry = entry_of(agent, "1", 3)
    assert [refusal["obligation"] for refusal in entry["refusals"]] == ["no-eviction", "no-night-mail"]
    assert checks_of(entry)["obligations-kept"] == "failed"
    assert entry["completed"]
    assert registry.load_subject(AGENT.address).commitments == before.commitments


@pytest.mark.parametrize(("cases", "decision"), [(12, "candidate"), (24, "adopted")])
def test_candidate_is_adopted_only_if_it_was_evaluated_on_enough_cases(melete, agent, cases, decision):
    document = example("baseline/cognition.json")
    document["strategies"].append({"id": "ask-tides-first", "statement": "Ask for the tides first."})
    candidate = {
        "id": "ask-tides-first", "description": "Ask before berths are compared.", "document": document,
        "evaluation": {"method": "Replay of past cases.", "cases": cases, "result": "Better in most."},
    }  # fmt: skip
    (agent / "candidate.json").write_text(json.dumps(candidate))
    code, found = melete("cycle", "run", "--layers", "3", *SEND)
    assert (code, found["layers"][0]["decision"]) == (HOLDS, decision)
    entry = entry_of(agent, "1", 3)
    assert (entry["evaluation"]["cases"], entry["evaluation"]["required"]) == (cases, 20)
    assert json.loads((agent / "cognition.json").read_text())["strategies"] == (
        document["strategies"] if decision == "adopted" else document["strategies"][:1]
    )
    if decision == "candidate":
        assert entry["candidates"][0]["reason"] == "the policy wants at least 20 cases, and its evaluation covers 12"
    else:
        assert entry["changes"][0]["operation"] == "iterate"


# Others come first, and crashes


def race(registry: MeditationRegistry) -> None:
    """Somebody else's record on the same state."""
    loaded, now = registry.load_subject(AGENT.address), registry.clock()
    post = (loaded.commitments[0], Bytes32(b"\x77" * 32), *loaded.commitments[2:])
    head = loaded.head
    registry.report(
        AGENT.address,
        CycleReport(head.state_version, head.root, post, 2, 2, 0, Outcome.COMPLETED, 0, head.policy_version, now, now),
    )


def test_lost_race_is_told_and_the_next_cycle_starts_from_the_new_state(melete, agent, registry, tick):
    code, found = melete("cycle", "run", "--until", "queued", "--key-file", "agent.key")
    assert (code, found["state"], found["sent"]) == (HOLDS, "queued", "queued")
    code, found = melete("cycle", "show")
    assert (code, found["stage"], found["sent"]) == (HOLDS, "queued", "queued")
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidInput")
    assert "resume it" in found["error"]["message"]
    race(registry)
    code, found = melete("cycle", "resume", *SEND)
    assert (code, found["state"]) == (DOES_NOT_HOLD, "conflict")
    assert [(one["layer"], one["version"]) for one in found["changedSince"]] == [(1, "2")]
    assert melete("cycle", "show")[1]["stage"] == "nothing"
    tick()
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["seq"], found["stateVersion"]) == (HOLDS, "2", "3")
    entry = entry_of(agent, "2", 1)
    assert checks_of(entry)["registered document"] == "could-not-tell"
    (change,) = entry["changes"]
    assert change["operation"] == "clean"
    assert change["detail"].endswith("could not be registered: 1 of them")


def test_pipe_that_nobody_writes_to_is_no_record(melete, agent):
    os.mkfifo(agent / "pipe")
    assert melete("cycle", "submit", agent / "pipe", *SEND)[1]["error"]["name"] == "MissingFile"


def test_resume_without_anything_to_settle_says_so(melete, agent):
    code, found = melete("cycle", "resume", *SEND)
    assert (code, found["state"]) == (HOLDS, "nothing")


def test_operator_needs_its_permission_before_any_routine_runs(melete, agent, w3, monkeypatch):
    key = keccak256(b"an operator")
    (agent / "operator.key").write_text(str(key))
    (agent / "operator.key").chmod(0o600)
    w3.provider.make_request("anvil_setBalance", [str(LocalSigner(key).address), hex(10**20)])
    (agent / "cycle.toml").write_text(f'subject = "{AGENT.address}"\n' + (agent / "cycle.toml").read_text())
    words = ("--confirmations", "0", "--key-file", "operator.key")
    code, found = melete("cycle", "run", *words)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "MissingPermission")
    assert melete("cycle", "show")[1]["stage"] == "nothing"
    allow = ("subject", "operator", AGENT.address, LocalSigner(key).address, "--allow", "report")
    assert melete(*allow, "--key-file", "agent.key")[0] == HOLDS
    assert melete("cycle", "run", *words)[1]["state"] == "registered"


# Several who act, one outbox


@pytest.fixture
def somebody(agent, melete, w3) -> Callable[[str], tuple[str, Address]]:
    """The key file and the account of somebody in a role."""

    def make(role: str) -> tuple[str, Address]:
        key = keccak256(role.encode())
        (agent / f"{role}.key").write_text(str(key))
        (agent / f"{role}.key").chmod(0o600)
        address = LocalSigner(key).address
        w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
        return f"{role}.key", address

    return make


def test_cycle_of_one_agent_leaves_the_report_of_another_to_it(melete, agent, registry, somebody):
    key, other = somebody("another agent")
    layers = [word for name in NAMES for word in ("--layer", EXAMPLE / "baseline" / f"{name}.json")]
    assert melete("subject", "enroll", "--policy", agent / "policy.json", *layers, "--key-file", key)[0] == HOLDS
    record = by_hand(agent, registry, other)
    assert melete("cycle", "submit", record, *POSTS, "--until", "queued", "--key-file", key)[1]["sent"] == "queued"
    assert melete("cycle", "run", *SEND)[1]["state"] == "registered"
    with kept(agent) as store:
        assert kept_of(store, other).get(REPORT, 1) == json.loads(record.read_text())
    code, found = melete("cycle", "submit", record, *POSTS, "--key-file", key)
    assert (code, found["state"], found["seq"]) == (HOLDS, "registered", "1")


def test_report_whose_permission_was_taken_away_waits_until_it_is_back(melete, agent, registry, somebody):
    key, operator = somebody("operator")
    (agent / "cycle.toml").write_text(f'subject = "{AGENT.address}"\n' + (agent / "cycle.toml").read_text())
    allow = ("subject", "operator", AGENT.address, operator, "--allow", "report", "--key-file", "agent.key")
    take = ("subject", "operator", AGENT.address, operator, "--revoke", "--key-file", "agent.key")
    assert melete(*allow)[0] == HOLDS
    assert melete("cycle", "run", "--until", "queued", "--key-file", key)[1]["sent"] == "queued"
    assert melete(*take)[0] == HOLDS
    for _ in range(2):
        code, found = melete("cycle", "resume", "--key-file", key)
        assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "MissingPermission")
    assert melete(*allow)[0] == HOLDS
    code, found = melete("cycle", "resume", "--key-file", key)
    assert (code, found["state"], found["seq"]) == (HOLDS, "registered", "1")
    assert record_of(agent, "1")["layers"]


def test_report_that_will_never_be_permitted_can_be_given_up(melete, agent, somebody):
    key, operator = somebody("operator")
    (agent / "cycle.toml").write_text(f'subject = "{AGENT.address}"\n' + (agent / "cycle.toml").read_text())
    melete("subject", "operator", AGENT.address, operator, "--allow", "report", "--key-file", "agent.key")
    melete("cycle", "run", "--until", "queued", "--key-file", key)
    melete("subject", "operator", AGENT.address, operator, "--revoke", "--key-file", "agent.key")
    assert melete("cycle", "resume", "--key-file", key)[0] == DOES_NOT_HOLD
    code, found = melete("cycle", "resume", "--give-up", "--key-file", key)
    assert (code, found["state"], found["reason"]) == (DOES_NOT_HOLD, "refused", "it was given up")
    assert melete("cycle", "run", *SEND)[1]["state"] == "registered"


# Chains and registries that come and go


def test_second_registry_is_served_by_the_same_store_and_outbox(melete, agent, w3, monkeypatch):
    assert melete("cycle", "run", *SEND)[1]["stateVersion"] == "2"
    second = MeditationRegistry.deploy(w3, LocalSender(AGENT))[0]
    monkeypatch.setenv("MELETE_MEDITATION_REGISTRY", str(second.address))
    (agent / "cycle.toml").write_text((agent / "cycle.toml").read_text().replace("cycle.jsonl", "second.jsonl"))
    layers = [word for name in NAMES for word in ("--layer", EXAMPLE / "baseline" / f"{name}.json")]
    words = ("--policy", agent / "policy.json", *layers, "--key-file", "agent.key")
    assert melete("subject", "enroll", *words)[0] == HOLDS
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["state"], found["stateVersion"]) == (HOLDS, "registered", "2")
    # Both have a record 1 of the same subject: only the registry tells them apart.
    assert melete("cycle", "show", "1", "--subject", AGENT.address)[1] == record_of(agent, "1")


def test_chain_that_went_back_takes_the_report_again(melete, agent, w3, registry):
    before = w3.provider.make_request("evm_snapshot", [])["result"]
    code, first = melete("cycle", "run", *SEND)
    assert (code, first["state"]) == (HOLDS, "registered")
    w3.provider.make_request("evm_revert", [before])
    assert registry.head(AGENT.address).record_count == 0
    w3.provider.make_request("evm_increaseTime", [10])
    code, found = melete("cycle", "resume", *SEND)
    assert (code, found["state"], found["seq"]) == (HOLDS, "registered", "1")
    assert registry.head(AGENT.address).record_count == 1
    assert record_of(agent, "1")["extensions"]


def test_chain_that_began_anew_does_not_stop_a_subject(melete, agent, w3, registry):
    before = w3.provider.make_request("evm_snapshot", [])["result"]
    assert melete("cycle", "run", *SEND)[1]["stateVersion"] == "2"
    w3.provider.make_request("evm_revert", [before])
    w3.provider.make_request("evm_increaseTime", [10])
    race(registry)
    w3.provider.make_request("evm_increaseTime", [10])
    w3.provider.make_request("evm_mine", [])
    (agent / "adapters.toml").write_text("retries = 9\n")
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["state"], found["stateVersion"]) == (HOLDS, "registered", "3")


# How long it takes


def test_local_chain_needs_no_further_block(melete, agent):
    code, found = melete("cycle", "run", "--key-file", "agent.key")
    assert (code, found["state"]) == (HOLDS, "registered")


def test_what_is_waited_for_is_said_once(agent, w3, capsys, monkeypatch):
    monkeypatch.setattr("melete.chain.submitter.time.sleep", lambda _: w3.provider.make_request("evm_mine", []))
    assert run(["cycle", "run", "--confirmations", "2", "--key-file", "agent.key"]) == HOLDS
    err = capsys.readouterr().err
    assert err.count("waiting for 2 more") == 1
    assert "in block" in err
    assert "melete cycle resume" in err


def test_kept_record_and_own_journal_are_shown_without_a_node(melete, agent, monkeypatch):
    melete("cycle", "run", *SEND)
    monkeypatch.setenv("MELETE_RPC_URL", "http://127.0.0.1:1")
    assert melete("cycle", "show", "1", "--subject", AGENT.address) == (HOLDS, record_of(agent, "1"))
    (agent / "cycle.toml").write_text((agent / "cycle.toml").read_text().replace('journal = "cycle.jsonl"\n', ""))
    monkeypatch.delenv("MELETE_RPC_URL")
    own = agent.parent / "data" / "melete" / "cycles"
    own.mkdir()
    here = f"31337-{os.environ['MELETE_MEDITATION_REGISTRY']}-{AGENT.address}.jsonl".lower()
    (agent / "cycle.jsonl").rename(own / here)
    code, found = melete("cycle", "show", "--subject", AGENT.address)
    assert (code, found["stage"], found["journal"]) == (HOLDS, "nothing", str(own / here))


def test_reason_reaches_a_terminal_as_text_alone(melete, agent, capsys):
    words = ("cycle", "run", "--until", "queued", "--reason", "a \x1b[2J b", "--key-file", "agent.key")
    assert melete(*words)[0] == HOLDS
    assert run(["cycle", "show"]) == HOLDS
    assert "\x1b[2J" not in capsys.readouterr().out
    assert melete("cycle", "show")[1]["reason"] == "a \x1b[2J b"


# By hand


def by_hand(agent: Path, registry: MeditationRegistry, subject: Address = AGENT.address, **changes: Any) -> Path:
    """The example's record, as of now."""
    head, now = registry.head(subject), registry.clock()
    record = {
        **example("cycle-record.json"), "subject": str(subject), "preRoot": str(head.root),
        "baseVersion": str(head.state_version), "startedAt": now, "endedAt": now, "nextPlannedAt": now, **changes,
    }  # fmt: skip
    for entry in record["layers"]:
        for observation in entry["observations"]:
            observation["observedAt"] = now
    path = agent / "record.json"
    path.write_text(json.dumps(record))
    return path


POSTS = [word for name in NAMES for word in ("--post", EXAMPLE / "post" / f"{name}.json")]


def test_record_made_by_hand_is_registered_once_however_often_it_is_submitted(melete, agent, registry):
    record = by_hand(agent, registry)
    for _ in range(2):
        code, found = melete("cycle", "submit", record, *POSTS, *SEND)
        assert (code, found["state"], found["seq"], found["stateVersion"]) == (HOLDS, "registered", "1", "2")
    assert registry.head(AGENT.address).record_count == 1
    loaded = registry.load_subject(AGENT.address)
    assert [checkpoint.last_changed_version for checkpoint in loaded.checkpoints] == [2, 2, 2, 1]
    code, found = melete("cycle", "show", "1", "--subject", AGENT.address)
    assert (code, found) == (HOLDS, json.loads(record.read_text()))


def test_record_that_restores_a_version_takes_documents_and_salts_from_the_store(melete, agent, registry, tick):
    baseline = registry.head(AGENT.address).root
    melete("cycle", "submit", by_hand(agent, registry), *POSTS, *SEND)
    tick()
    layers = [
        {
            "layer": layer, "completed": True, "checks": [], "observations": [], "candidates": [], "changes": [],
            "decision": "restored",
        }
        for layer in (0, 1, 2)
    ]  # fmt: skip
    record = by_hand(agent, registry, layers=layers, restoresVersion="1", summary="Back to what worked.")
    code, found = melete("cycle", "submit", record, *SEND)
    assert (code, found["state"], found["stateVersion"]) == (HOLDS, "registered", "3")
    assert registry.head(AGENT.address).root == baseline
    assert document_of(agent, 0, 3) == example("baseline/runtime.json")


def test_record_made_by_hand_on_a_state_that_is_gone_is_a_conflict(melete, agent, registry):
    record = by_hand(agent, registry)
    assert melete("cycle", "submit", record, *POSTS, "--until", "queued", "--key-file", "agent.key")[0] == HOLDS
    race(registry)
    for _ in range(2):
        code, found = melete("cycle", "submit", record, *POSTS, *SEND)
        assert (code, found["state"]) == (DOES_NOT_HOLD, "conflict")
    assert melete("cycle", "resume", *SEND)[1]["state"] == "nothing"


def test_outdated_record_is_told_what_changed_since_layer_by_layer(melete, agent, registry, capsys):
    record = by_hand(agent, registry)
    race(registry)
    code, found = melete("cycle", "submit", record, *POSTS, *SEND)
    assert (code, found["state"]) == (DOES_NOT_HOLD, "conflict")
    assert "state version 1" in found["reason"]
    (changed,) = found["changedSince"]
    assert (changed["layer"], changed["version"]) == (1, "2")
    assert changed["commitment"] == "0x" + "77" * 32
    assert run(["cycle", "submit", str(record), *map(str, POSTS), *map(str, SEND)]) == DOES_NOT_HOLD
    assert "layer 1 in version 2" in capsys.readouterr().out
    assert registry.head(AGENT.address).record_count == 1


def test_record_of_a_version_still_to_come_is_refused(melete, agent, registry):
    code, found = melete("cycle", "submit", by_hand(agent, registry, baseVersion="7"), *POSTS, *SEND)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "BadBaseVersion")


def test_depth_is_named_once(melete, agent):
    code, found = melete("cycle", "run", "--finalized", "--confirmations", "1", "--key-file", "agent.key")
    assert (code, found["error"]["name"]) == (USAGE, "UsageError")


def test_record_that_contradicts_its_documents_is_refused(melete, agent, registry):
    code, found = melete("cycle", "submit", by_hand(agent, registry), *POSTS[:2], *SEND)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidJson")
    assert "/layers/1/decision" in found["error"]["message"]
    code, found = melete("cycle", "submit", by_hand(agent, registry), *POSTS, *POSTS[:2], *SEND)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidInput")


# Handing out, and judging what was handed out


@pytest.fixture
def disclosed(melete, agent, registry) -> Callable[..., Path]:
    """Export something after a cycle, and return the file."""
    assert melete("cycle", "run", *SEND)[0] == HOLDS
    numbers = iter(range(100))

    def export(*words: object) -> Path:
        path = agent / f"disclosure-{next(numbers)}.json"
        code, found = melete("cycle", "export", AGENT.address, *words, "--out", path)
        assert (code, found.get("error")) == (HOLDS, None)
        assert path.stat().st_mode & 0o077 == 0
        return path

    return export


@pytest.mark.parametrize(
    ("level", "held", "not_judged"),
    [
        ("0", ["json", "schema", "links", "roots", "events"], ["records", "documents"]),
        ("1", ["json", "schema", "links", "roots", "events"], ["summaries", "records", "documents"]),
        ("2", ["json", "schema", "links", "records", "documents", "roots", "events"], ["state_documents_left_out"]),
    ],
)
def test_what_a_level_hands_out_holds_against_the_chain(melete, disclosed, level, held, not_judged):
    path = disclosed("--record", "1", "--level", level, "--beyond-policy")
    code, found = melete("verify", path)
    assert (code, found["answer"], found["held"], found["notJudged"]) == (HOLDS, "held", held, not_judged)
    assert (found["fromVersion"], found["toVersion"], found["records"]) == ("1", "2", ["1"])
    code, found = melete("verify", path, "--offline")
    assert (code, found["answer"]) == (COULD_NOT_TELL, "could not tell")
    text = path.read_text()
    assert ("completed" in json.dumps(json.loads(text)["entries"][0]["summary"])) == (level != "0")
    assert ("harbor-rules" in text) == (level == "2")


def test_policy_says_what_is_handed_out_unless_somebody_decides_otherwise(melete, agent, disclosed):
    assert json.loads(disclosed("--record", "1").read_text())["level"] == 1
    words = ("cycle", "export", AGENT.address, "--record", "1", "--level", "2", "--out", agent / "never.json")
    code, found = melete(*words)
    assert (code, found["error"]["name"]) == (USAGE, "ConfigurationError")
    assert not (agent / "never.json").exists()


def test_states_of_a_range_are_disclosed_with_all_documents_of_the_first(melete, agent, disclosed, tick):
    tick()
    melete("cycle", "run", *SEND)  # changes nothing
    tick()
    (agent / "adapters.toml").write_text("retries = 3\n")
    melete("cycle", "run", "--layers", "0", *SEND)
    full = ("--level", "2", "--beyond-policy")
    path = disclosed("--from-version", "1", "--to-version", "3", *full)
    code, found = melete("verify", path)
    assert (code, found["answer"], found["records"], found["toVersion"]) == (HOLDS, "held", ["1", "2", "3"], "3")
    assert [one["layer"] for one in json.loads(path.read_text())["state"]["documents"]] == [0, 1, 2, 3]
    code, found = melete("verify", disclosed("--from-version", "2", *full))
    assert (code, found["fromVersion"], found["toVersion"], found["records"]) == (HOLDS, "2", "2", [])


def test_record_that_was_left_out_of_a_range_is_found_by_the_chain(melete, agent, disclosed, tick):
    tick()
    melete("cycle", "run", *SEND)  # changes nothing, so the links hold without it
    tick()
    (agent / "adapters.toml").write_text("retries = 3\n")
    melete("cycle", "run", "--layers", "0", *SEND)
    path = disclosed("--from-version", "1", "--to-version", "3")
    document = json.loads(path.read_text())
    del document["entries"][1]
    path.write_text(json.dumps(document))
    code, found = melete("verify", path)
    assert (code, found["rule"], found["entry"], found["member"]) == (DOES_NOT_HOLD, "left_out", "2", "/entries")


def changed(document: Any, pointer: str, value: Any) -> Any:
    *parts, last = pointer.strip("/").split("/")
    at = document
    for part in parts:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = value
    return document


@pytest.mark.parametrize(
    ("pointer", "value", "rule"),
    [
        ("/entries/0/recordedAt", 1, "event"),
        ("/entries/0/submitter", "0x" + "22" * 20, "event"),
        ("/entries/0/report/recordHash", "0x" + "22" * 32, "event"),
        ("/entries/0/report/reportedEndedAt", 1, "event"),
        ("/entries/0/report/opsMask", 0, "event"),
        ("/entries/0/seq", "2", "record_count"),
        ("/reference/subject", "0x" + "22" * 20, "enrolled"),
    ],
)
def test_what_the_chain_knows_better_is_named(melete, agent, disclosed, pointer, value, rule):
    path = disclosed("--record", "1", "--level", "0")
    path.write_text(json.dumps(changed(json.loads(path.read_text()), pointer, value)))
    code, found = melete("verify", path)
    assert (code, found["answer"], found["rule"]) == (DOES_NOT_HOLD, "broken", rule)
    assert found["member"] == pointer


def test_history_of_another_state_is_not_the_chains(melete, agent, disclosed):
    path = disclosed("--record", "1", "--level", "0")
    document = json.loads(path.read_text())
    words = [f"0x{number:064x}" for number in range(4)]
    root = str(compute_root(Bytes32(word) for word in words))
    document["state"] |= {"commitments": words, "root": root}
    document["entries"][0]["report"]["preRoot"] = root
    document["entries"][0] |= {"changedLayers": 15}
    path.write_text(json.dumps(document))
    code, found = melete("verify", path)
    assert (code, found["rule"], found["member"]) == (DOES_NOT_HOLD, "root_at", "/state/root")


def test_node_of_another_chain_or_registry_leaves_it_open(melete, agent, disclosed, memory):
    path = disclosed("--record", "1", "--level", "0")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(changed(document, "/reference/chainId", "1")))
    code, found = melete("verify", path)
    assert (code, found["answer"]) == (COULD_NOT_TELL, "could not tell")
    document = changed(changed(document, "/reference/chainId", "31337"), "/reference/registry", str(memory.address))
    path.write_text(json.dumps(document))
    code, found = melete("verify", path)
    assert (code, found["answer"]) == (COULD_NOT_TELL, "could not tell")
    assert melete("verify", path, "--registry", "0x" + "33" * 20)[1]["rule"] == "registry"


# Wrong words


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("run", "--trigger", "boredom", *SEND), USAGE, "BadParameter"),
        (("run", "--cycle", "nowhere.toml", *SEND), USAGE, "ConfigurationError"),
        (("run", "--layers", "4", *SEND), USAGE, "BadParameter"),
        (("run",), USAGE, "UsageError"),
        (("submit", "nowhere.json", *SEND), COULD_NOT_TELL, "MissingFile"),
        (("submit", "policy.json", *SEND), USAGE, "InvalidJson"),
        (("show", "1"), USAGE, "ConfigurationError"),
        (("show", "1", "--subject", AGENT.address), COULD_NOT_TELL, "WitnessMissing"),
        (("export", AGENT.address, "--out", "x"), USAGE, "UsageError"),
        (("export", AGENT.address, "--record", "1", "--out", "x"), USAGE, "InvalidInput"),
        (("export", AGENT.address, "--record", "one", "--out", "x"), USAGE, "InvalidInput"),
        (("export", AGENT.address, "--from-version", "2", "--out", "x"), USAGE, "InvalidInput"),
        (("export", AGENT.address, "--record", "1", "--out", "policy.json"), USAGE, "UsageError"),
        (("export", "0x" + "99" * 20, "--record", "1", "--out", "x"), DOES_NOT_HOLD, "NotEnrolled"),
    ],
)
def test_wrong_words_are_told_by_name(melete, agent, words, code, error):
    found = melete("cycle", *words)
    assert (found[0], found[1]["error"]["name"]) == (code, error)


def test_policy_document_that_is_not_the_registered_one_is_refused(melete, agent):
    document = {**example("policy.json"), "title": "Another"}
    (agent / "policy.json").write_text(json.dumps(document))
    code, found = melete("cycle", "run", *SEND)
    assert (code, found["error"]["name"], found["error"]["field"]) == (USAGE, "InvalidInput", "policy")


def test_what_became_of_a_cycle_is_told_to_people_too(agent, capsys):
    assert run(["cycle", "run", *SEND]) == HOLDS
    text = capsys.readouterr().out
    assert "registered" in text
    assert "1 completed, adopted, 1 changes" in text
