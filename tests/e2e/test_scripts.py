"""The Ape scripts, as a user runs them, against one node that stays."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from melete import GENESIS, Address, Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.deployments import load_deployment, verify_deployment

ROOT = Path(__file__).resolve().parents[2]
#: What Ape expects of a local chain.
APE_LOCAL_CHAIN = 1337


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with Anvil(chain_id=APE_LOCAL_CHAIN) as started:
        yield started.url


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what Ape needs of the project, so that records of the test's own are written."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in (
        "contracts",
        "scripts",
        "schemas",
    ):  # copied: Ape puts files of its own beside sources that it reaches by a link
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".cache"))
    for name in ("ape-config.yaml", "package-lock.json"):
        shutil.copy(ROOT / name, folder)
    for name in ("node_modules", ".cache"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def ape(node, checkout):
    def run(*words: str, network: str | None = None) -> subprocess.CompletedProcess[str]:
        command = ["ape", "run", *words, "--network", network or f"ethereum:local:{node}"]
        return subprocess.run(
            command,
            cwd=checkout,
            capture_output=True,
            text=True,
            env={**os.environ, "MELETE_DEPLOYMENTS": str(checkout / "deployments")},
        )

    return run


@pytest.fixture(scope="module")
def deployed(ape, checkout) -> Path:
    done = ape("deploy")
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout / "deployments" / f"{APE_LOCAL_CHAIN}.json"


@pytest.fixture(scope="module")
def space(ape, deployed) -> Bytes32:
    done = ape("register_space")
    assert done.returncode == 0, done.stdout + done.stderr
    return Bytes32(re.search(r"space (0x[0-9a-f]{64})", done.stdout)[1])


def delta_file(folder: Path, space: Bytes32, **changes: object) -> str:
    delta = Witness(compute_profile_id("test/1"), b"payload", keccak256(b"salt")).build_delta(space, GENESIS)
    path = folder / "delta.json"
    path.write_text(json.dumps({**delta.to_json(), **changes}))
    return str(path)


def test_deploy_records_what_stands_where_and_from_what(deployed, node):
    record = load_deployment(deployed, "AgentMemoryStateRegistry")
    w3 = connect(node)
    assert record.chain_id == APE_LOCAL_CHAIN
    assert verify_deployment(w3, record) == record.code_hash
    receipt = w3.eth.get_transaction_receipt(str(record.transaction))
    assert (Address(receipt["contractAddress"]), receipt["blockNumber"]) == (record.address, record.block)
    assert record.compiler.startswith("solc 0.8.37")
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?|", record.commit)


def test_deploy_deploys_and_records_both_registries(deployed, node):
    record = load_deployment(deployed, "AgentMeditationRegistry")
    assert verify_deployment(connect(node), record) == record.code_hash


def test_commit_delta_commits_a_file_once_and_names_the_moved_head_after(ape, space, tmp_path):
    path = delta_file(tmp_path, space)
    first, second = ape("commit_delta", path), ape("commit_delta", path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "sequence 1" in first.stdout
    assert second.returncode == 1
    assert "sequence 2 is next, not 1" in second.stderr


def test_commit_delta_refuses_a_file_that_the_schema_refuses(ape, space, tmp_path):
    done = ape("commit_delta", delta_file(tmp_path, space, sequence="01"))
    assert done.returncode == 2
    assert "sequence: '01'" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_commit_delta_relays_a_signature(ape, node, deployed, tmp_path):
    signer = LocalSigner("0x" + "17" * 32)
    w3 = connect(node)
    registry = MemoryRegistry(w3, load_deployment(deployed, "AgentMemoryStateRegistry").address)
    done = ape("register_space", "--authorizer", str(signer.address))
    space = Bytes32(re.search(r"space (0x[0-9a-f]{64})", done.stdout)[1])
    delta = Witness(compute_profile_id("test/1"), b"payload", keccak256(b"salt")).build_delta(space, GENESIS)
    from melete import compute_transition_id

    signature = signer.sign_digest(registry.domain.digest(compute_transition_id(delta)))
    done = ape("commit_delta", delta_file(tmp_path, space), "--signature", "0x" + signature.hex())
    assert done.returncode == 0, done.stdout + done.stderr
    assert registry.head(space).sequence == 1


def test_deploy_asks_for_a_yes_on_a_chain_that_is_neither_local_nor_a_testnet(ape):
    with Anvil(chain_id=1) as mainnet:
        done = ape("deploy", network=f"ethereum:mainnet:{mainnet.url}")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert "neither local nor a known testnet" in done.stderr


@pytest.fixture(scope="module")
def shown(ape) -> list[str]:
    """What the demo says, line by line."""
    done = ape("demo", network="ethereum:local:foundry")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_demo_ends_with_zero_and_shows_every_word_of_the_pipeline(shown):
    words = ["operation", "commitment", "delta", "signature", "registry", "event", "history", "forgery"]
    assert set(words) <= set(shown)
    assert "Everything held." in shown


def test_the_demo_puts_memories_on_record_forgets_one_and_rebuilds_the_store(shown):
    act = [line.strip() for line in shown[shown.index("memories") : shown.index("layers")]]
    words = ["memories", "record", "forgetting", "rebuilding", "forgery"]
    assert [act.index(word) for word in words] == sorted(act.index(word) for word in words)
    for line in (
        "one of them is proven, from its row to the state root",
        "its content is gone from the store and from the witnesses",
        "the transition that recorded it stands",
        "3 memories come back from 2 transitions and their witnesses",
        "the rebuilt store's log ends where the first one's does",
    ):
        assert line in act


def test_the_demo_tells_the_example_of_a_maintenance_cycle(shown):
    act = [line.strip() for line in shown[shown.index("layers") :]]
    words = ["layers", "registry", "enrollment", "status", "pulse", "event", "cycle", "checkpoints", "forgery"]
    assert [act.index(word) for word in words] == sorted(act.index(word) for word in words)
    for line in (
        "a pulse ends the silence",
        "and moves no deadline",
        "operations 0x0456, derived from the record",
        "candidate ask-tides-first: 12 of 20 cases, not adopted",
        "cognition: completed under policy 1, changed in version 1",
        "somebody else's report is refused: MissingPermission",
        "a change of cognition by a cycle over the others is refused: UnscopedLayerChanged",
        "the statuses are what they were",
    ):
        assert line in act
    assert [line.split(",")[0] for line in act if line.startswith("runtime: ") and "deadline" in line] == [
        "runtime: FRESH",
        "runtime: DUE",
        "runtime: FRESH",
    ]


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ("demo.verify_witness = lambda delta, witness: delta", "a forgery must raise WitnessMismatch"),
        ("act.MeditationRegistry.pulse = lambda *_: None", "a pulse ends the silence"),
        ("memories.MemoryStore.verify_audit = lambda *_: None", "a forgery must raise BrokenAudit"),
    ],
)
def test_the_demo_ends_with_one_when_something_does_not_hold(checkout, change, claim):
    """A check that lets everything pass must not pass unseen."""
    program = (
        "import sys, ape\n"
        "import melete.memory.history as history\n"
        "from click.testing import CliRunner\n"
        "import scripts.demo as demo\n"
        "import scripts._demo_maintenance as act\n"
        "import scripts._demo_memories as memories\n"
        f"{change}\n"
        "result = CliRunner().invoke(demo.cli, ['--network', 'ethereum:local:foundry'])\n"
        "print(result.output)\n"
        "sys.exit(result.exit_code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"did not hold: {claim}" in done.stdout
