"""An operator's daily jobs as Ape scripts, as a user runs them, against one node that stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from melete import Address, Bytes32, LocalSigner, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.deployments import Deployment, save_deployment
from melete.chain.outbox import Outbox
from melete.chain.transactions import LocalSender
from melete.cli.main import run as run_melete
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.documents import derive_policy
from melete.meditation.events import CycleRecorded
from melete.meditation.kept import Kept
from melete.meditation.layers import to_commitments
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.registry import MeditationRegistry
from melete.meditation.runner.submission import Submission
from melete.memory.witness_keys import load_key_file
from melete.memory.witness_kinds import LAYERS, REPORT
from melete.memory.witness_store import WitnessStore

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
#: What Ape expects of a local chain, and the account that its scripts use there.
APE_LOCAL_CHAIN = 1337
FIRST_TEST_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with Anvil(chain_id=APE_LOCAL_CHAIN) as started:
        yield started.url


@pytest.fixture(scope="module")
def account() -> LocalSigner:
    """The account that the scripts use when they are told no other."""
    return LocalSigner(FIRST_TEST_KEY)


@pytest.fixture(scope="module")
def registry(node, account, workplace) -> MeditationRegistry:
    """The registry that the scripts find recorded."""
    w3 = connect(node)
    deployed, receipt = MeditationRegistry.deploy(w3, LocalSender(account))
    record = Deployment(
        "AgentMeditationRegistry", APE_LOCAL_CHAIN, deployed.address, receipt.block_number, receipt.transaction_hash,
        keccak256(bytes(w3.eth.get_code(str(deployed.address)))), "solc", "",
    )  # fmt: skip
    save_deployment(workplace / "deployments", record)
    return deployed


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A project folder with the scripts alone, and a witness store."""
    folder = tmp_path_factory.mktemp("operator")
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__", "_dev"))
    (folder / "ape-config.yaml").write_text("ethereum:\n  default_network: local\n")
    words = [
        "witness",
        "init",
        "--witnesses",
        str(folder / "witnesses.db"),
        "--new-key-file",
        str(folder / "store.key"),
    ]
    assert run_melete(words) == HOLDS
    return folder


@pytest.fixture(scope="module")
def ape(node, workplace, registry) -> Callable[..., Done]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MELETE_")}
    environment = {
        **plain,
        "MELETE_DEPLOYMENTS": str(workplace / "deployments"),
        "MELETE_WITNESSES": str(workplace / "witnesses.db"),
        "MELETE_WITNESS_KEY_FILE": str(workplace / "store.key"),
        "MELETE_OUTBOX": str(workplace / "outbox.db"),
    }

    def run(*words: object, network: str = f"ethereum:local:{node}", **more: str) -> Done:
        command = ["ape", "run", *(str(word) for word in words), "--network", network]
        done = subprocess.run(
            command, cwd=workplace, capture_output=True, text=True, env=environment | more, stdin=subprocess.DEVNULL
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def subject(ape, account) -> Address:
    """The scripts' own account, enrolled by the script."""
    layers = [word for name in NAMES for word in ("--layer", EXAMPLE / "baseline" / f"{name}.json")]
    done = ape("enroll_subject", "--policy", EXAMPLE / "policy.json", *layers)
    assert done.returncode == HOLDS, done.stdout + done.stderr
    assert f"{account.address} is enrolled: state version 1" in done.stdout
    return account.address


@pytest.fixture(scope="module")
def ward(registry, account) -> Address:
    """Another subject, whose controller is the scripts' account."""
    signer = LocalSigner(keccak256(b"ward"))
    registry.w3.provider.make_request("anvil_setBalance", [str(signer.address), hex(10**20)])
    own = MeditationRegistry(registry.w3, registry.address, sender=LocalSender(signer))
    policy = derive_policy(json.loads((EXAMPLE / "policy.json").read_text()))
    own.enroll(to_commitments([keccak256(b"layer")] * 4), policy, account.address, 3)
    return signer.address


def cycle_record(registry: MeditationRegistry, subject: Address, folder: Path, **changes: Any) -> Path:
    """The example's record, of a cycle that ran just now, in a file."""
    now, head = registry.clock(), registry.head(subject)
    record = {
        **json.loads((EXAMPLE / "cycle-record.json").read_text()), "subject": str(subject), "startedAt": now,
        "endedAt": now, "nextPlannedAt": now + 60, "baseVersion": str(head.state_version), "preRoot": str(head.root),
        **changes,
    }  # fmt: skip
    for entry in record["layers"]:
        for observation in entry["observations"]:
            observation["observedAt"] = now
    path = folder / "record.json"
    path.write_text(json.dumps(record))
    return path


def pass_second(registry: MeditationRegistry) -> None:
    """Let the chain's time go on, so that what comes is later than what was."""
    registry.w3.provider.make_request("evm_increaseTime", [1])
    registry.w3.provider.make_request("evm_mine", [])


def posts() -> list[object]:
    return [word for name in NAMES[:3] for word in ("--post", EXAMPLE / "post" / f"{name}.json")]


def test_enrolled_documents_and_fresh_salts_are_kept(subject, registry, workplace):
    with WitnessStore.open(workplace / "witnesses.db", load_key_file(workplace / "store.key")) as store:
        kept = [Kept(store, registry, subject).get(kind, 1) for kind in LAYERS]
        words = [kind.commit(document) for kind, document in zip(LAYERS, kept, strict=True)]
    assert list(registry.load_subject(subject).commitments) == words
    assert len({document.salt for document in kept}) == 4


def test_enrolling_twice_and_with_three_layers_is_refused(ape, subject):
    layers = [word for name in NAMES for word in ("--layer", EXAMPLE / "baseline" / f"{name}.json")]
    again = ape("enroll_subject", "--policy", EXAMPLE / "policy.json", *layers)
    assert (again.returncode, "enrolled already" in again.stderr) == (DOES_NOT_HOLD, True)
    few = ape("enroll_subject", "--policy", EXAMPLE / "policy.json", *layers[:6])
    assert (few.returncode, "four state documents" in few.stderr) == (USAGE, True)


def test_pulse_prints_one_line_and_moves_no_deadline(ape, subject, registry):
    before = registry.load_subject(subject)
    done = ape("pulse", subject, "--next", "+1d")
    after = registry.load_subject(subject)
    assert (done.returncode, done.stderr) == (HOLDS, "")
    assert len(done.stdout.splitlines()) == 1
    assert f"record {after.head.record_count} of {subject} is a pulse" in done.stdout
    assert after.head.record_count == before.head.record_count + 1
    assert [status.deadline for status in after.statuses.layers] == [
        status.deadline for status in before.statuses.layers
    ]
    assert after.head.next_planned_at > after.clock


def test_pulse_that_is_not_given_says_why_in_one_line_and_by_its_exit_code(ape, subject, ward):
    refused = ape("pulse", ward)
    assert (refused.returncode, refused.stdout) == (DOES_NOT_HOLD, "")
    assert refused.stderr.startswith("melete: ")
    assert len(refused.stderr.splitlines()) == 1
    wrong = ape("pulse", "0x12")
    assert (wrong.returncode, wrong.stdout) == (USAGE, "")
    alone = ape("pulse", subject, network="ethereum:local:http://127.0.0.1:1/secret-key")
    assert (alone.returncode, alone.stdout) == (COULD_NOT_TELL, "")
    assert len(alone.stderr.splitlines()) == 1
    assert "secret" not in alone.stderr


def test_floor_is_tried_and_then_set(ape, ward, registry):
    pass_second(registry)
    words = ("set_floor", ward, "--require", "runtime=12h", "--require", "cognition=1s", "--pulse", "1h")
    tried = ape(*words, "--try")
    assert tried.returncode == HOLDS, tried.stderr
    assert "nothing is sent" in tried.stdout
    assert "cognition: OVERDUE, at least every 1 s" in tried.stdout
    assert registry.head(ward).floor_version == 0
    done = ape(*words)
    assert done.returncode == HOLDS, done.stderr
    assert f"floor 1 of {ward} is in force" in done.stdout
    loaded = registry.load_subject(ward)
    assert (loaded.floor.required_layers, loaded.floor.pulse_interval) == (0b1001, 3600)
    assert loaded.requirements.max_interval == (43200, 604800, 2592000, 1)


def test_floor_by_somebody_else_is_refused(ape, subject):
    done = ape("set_floor", subject, "--require", "runtime=1d")
    assert (done.returncode, done.stdout) == (DOES_NOT_HOLD, "")
    assert ape("set_floor", subject, "--require", "mood=1d").returncode == USAGE


def test_demand_is_made_and_withdrawn(ape, ward, registry):
    made = ape("demand", ward, "--layers", "memory-skills,2", "--by", "+50m")
    assert made.returncode == HOLDS, made.stderr
    assert "memory-skills: DUE" in made.stdout
    assert [bool(demand.due_by) for demand in registry.load_subject(ward).demands] == [False, True, True, False]
    withdrawn = ape("demand", ward, "--layers", "1,2", "--withdraw")
    assert withdrawn.returncode == HOLDS, withdrawn.stderr
    assert not any(demand.due_by for demand in registry.load_subject(ward).demands)
    for words in ((), ("--by", "+1h", "--withdraw")):
        assert ape("demand", ward, "--layers", "1", *words).returncode == USAGE


def test_report_is_registered_once_from_its_record_and_its_documents_are_kept(ape, subject, registry, workplace):
    record = cycle_record(registry, subject, workplace)
    seq = registry.head(subject).record_count + 1
    first, second = ape("submit_report", record, *posts()), ape("submit_report", record, *posts())
    for done in (first, second):
        assert done.returncode == HOLDS, done.stdout + done.stderr
        assert f"record {seq} of {subject} is registered as COMPLETED, state version 2" in done.stdout
        assert "changed: runtime, memory-skills, tasks-roles" in done.stdout
    (event,) = registry.events(subject, kinds=[CycleRecorded])
    assert (event.report.ops_mask, event.report.completed_layers, event.report.trigger) == (0x0456, 15, 1)
    with WitnessStore.open(workplace / "witnesses.db", load_key_file(workplace / "store.key")) as store:
        kept = Kept(store, registry, subject)
        assert kept.get(REPORT, seq) == json.loads(record.read_text())
        assert [kept.get(LAYERS[layer], 2).document for layer in range(3)] == [
            json.loads((EXAMPLE / "post" / f"{name}.json").read_text()) for name in NAMES[:3]
        ]


def test_report_that_waits_from_a_killed_run_is_sent_by_the_next(ape, subject, registry, workplace):
    pass_second(registry)
    looked = {
        "layer": 0, "completed": True, "checks": [{"name": "imports", "result": "passed"}], "observations": [],
        "changes": [], "candidates": [], "decision": "kept",
    }  # fmt: skip
    record = cycle_record(registry, subject, workplace, layers=[looked], trigger="SCHEDULED")
    key = load_key_file(workplace / "store.key")
    with Outbox(workplace / "outbox.db") as outbox, WitnessStore.open(workplace / "witnesses.db", key) as store:
        submission = Submission(MeditationOutbox(outbox, registry, store), subject)
        assert submission.add(json.loads(record.read_text()), []).state == "queued"
    seq = registry.head(subject).record_count + 1
    done = ape("submit_report", record)
    assert done.returncode == HOLDS, done.stderr
    assert f"record {seq} of {subject} is registered as COMPLETED" in done.stdout
    assert "changed: nothing" in done.stdout
    assert registry.head(subject).record_count == seq


def test_report_on_an_outdated_state_says_what_changed_since_and_registers_nothing(
    ape, subject, registry, workplace, account
):
    record = cycle_record(registry, subject, workplace)
    state = registry.load_state(subject)
    now = registry.clock()
    other = CycleReport(
        state.state_version, state.root, (*state.commitments[:3], keccak256(b"another mind")), 8, 8, 0,
        Outcome.COMPLETED, 0, 1, now, now,
    )  # fmt: skip
    pass_second(registry)
    now = registry.clock()
    registry.report(subject, replace(other, reported_started_at=now, reported_ended_at=now))
    seq = registry.head(subject).record_count
    done = ape("submit_report", record, *posts())
    assert done.returncode == DOES_NOT_HOLD, done.stdout
    assert f"since then cognition changed, in state version {state.state_version + 1}" in done.stderr
    assert registry.head(subject).record_count == seq


def test_report_that_is_none_is_refused_with_its_pointer(ape, subject, registry, workplace):
    done = ape("submit_report", cycle_record(registry, subject, workplace, ended="well"))
    assert (done.returncode, "/ended" in done.stderr) == (USAGE, True)
    assert ape("submit_report", workplace / "nothing.json").returncode == COULD_NOT_TELL


def test_registry_that_nobody_recorded_has_to_be_named(ape, subject, registry, workplace):
    kept = workplace / "deployments"
    kept.rename(workplace / "elsewhere")
    try:
        done = ape("pulse", subject)
        assert (done.returncode, "--registry" in done.stderr) == (USAGE, True)
        assert ape("pulse", subject, "--registry", registry.address).returncode == HOLDS
    finally:
        (workplace / "elsewhere").rename(kept)
    assert ape("pulse", subject, "--registry", Address(Bytes32(bytes(32))[12:])).returncode == COULD_NOT_TELL


# Whose account, and which chain


@pytest.fixture(scope="module")
def keyfile(registry, tmp_path_factory) -> tuple[Address, Path]:
    """A subject whose key Ape keeps under a passphrase, and Ape's folder."""
    key = keccak256(b"a subject in a keyfile")
    signer, folder = LocalSigner(key), tmp_path_factory.mktemp("ape")
    registry.w3.provider.make_request("anvil_setBalance", [str(signer.address), hex(10**20)])
    own = MeditationRegistry(registry.w3, registry.address, sender=LocalSender(signer))
    policy = derive_policy(json.loads((EXAMPLE / "policy.json").read_text()))
    own.enroll(to_commitments([keccak256(b"layer")] * 4), policy)
    (folder / "accounts").mkdir()
    (folder / "accounts" / "night-clerk.json").write_text(json.dumps(Account.encrypt(bytes(key), "open sesame")))
    return signer.address, folder


@pytest.mark.parametrize("name", ["APE_ACCOUNTS_night-clerk_PASSPHRASE", "APE_ACCOUNTS_NIGHT_CLERK_PASSPHRASE"])
def test_account_in_a_keyfile_signs_where_nobody_can_be_asked(ape, keyfile, name):
    subject, folder = keyfile
    done = ape("pulse", subject, "--account", "night-clerk", APE_DATA_FOLDER=str(folder), **{name: "open sesame"})
    assert done.returncode == HOLDS, done.stdout + done.stderr
    assert "is a pulse" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("passphrase", ["", "open barley"])
def test_account_in_a_keyfile_that_cannot_sign_is_told(ape, keyfile, passphrase):
    subject, folder = keyfile
    words = {"APE_DATA_FOLDER": str(folder), "APE_ACCOUNTS_NIGHT_CLERK_PASSPHRASE": passphrase}
    done = ape("pulse", subject, "--account", "night-clerk", **words)
    assert done.returncode == COULD_NOT_TELL
    assert done.stderr.splitlines()[-1].startswith("melete: Ape ")


def test_node_of_another_local_chain_is_told_with_what_to_start(ape):
    with Anvil() as plain:
        done = ape("pulse", "0x" + "11" * 20, network=f"ethereum:local:{plain.url}")
        assert done.returncode == COULD_NOT_TELL
        assert "anvil --chain-id 1337" in done.stderr
        assert "--rpc-url" not in done.stderr
        done = ape("deploy", network=f"ethereum:local:{plain.url}")
        assert done.returncode == COULD_NOT_TELL
        assert "anvil --chain-id 1337" in done.stderr
