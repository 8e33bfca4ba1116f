"""The command `melete`, as a person or a script runs it, against a node and without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from melete import GENESIS, MemoryRegistry, Witness, compute_profile_id, compute_transition_id
from melete.chain.scan.node import LogNode
from melete.cli.main import run

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    """An empty folder without settings in the environment."""
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def melete(workplace, capsys):
    """Run the command in this process: exit code, standard output, standard error."""

    def command(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def node(w3) -> list[str]:
    return ["--rpc-url", w3.provider.endpoint_uri]


@pytest.fixture
def delta(our_registry, controller, authorizer, salt):
    space_id = our_registry.register(authorizer.address, salt, controller=controller).space_id
    return Witness(compute_profile_id("test/1"), b"payload", salt).build_delta(space_id, GENESIS)


def write(folder: Path, document: object) -> str:
    path = folder / "delta.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


# Spaces


def test_space_id_prints_the_derived_id(melete):
    arguments = ("--controller", "0x" + "22" * 20, "--salt", "0x" + "dd" * 32)
    code, out, _ = melete("space", "id", *arguments, "--json")
    published = "0xef5037465ae0323637cb58434eb554ae4a1fe1131bcc10888900f2d4cbe349d8"
    assert (code, json.loads(out)) == (HOLDS, {"spaceId": published})


def test_space_show_states_head_and_authorization(melete, our_registry, node, delta, authorizer):
    our_registry.commit(delta, authorizer=authorizer)
    code, out, _ = melete("space", "show", delta.space_id, *node, "--registry", our_registry.address, "--json")
    found = json.loads(out)
    assert code == HOLDS
    assert found["sequence"] == "1"
    assert found["authorizer"] == str(authorizer.address)
    assert found["transitionId"] == str(compute_transition_id(delta))


def test_space_show_of_an_unknown_space_does_not_hold(melete, our_address, node):
    code, out, err = melete("space", "show", "0x" + "ab" * 32, *node, "--registry", our_address)
    assert (code, out) == (DOES_NOT_HOLD, "")
    assert "no such space" in err


def test_settings_come_from_the_file_when_no_flag_names_them(melete, workplace, our_address, node, delta, w3):
    settings = f'[node]\nrpc-url = "{w3.provider.endpoint_uri}"\n[registry]\nmemory = "{our_address}"\n'
    (workplace / "melete.toml").write_text(settings)
    assert melete("space", "show", delta.space_id)[0] == HOLDS


def test_the_environment_wins_over_the_file_and_a_flag_over_both(
    melete, workplace, our_address, delta, monkeypatch, w3
):
    (workplace / "melete.toml").write_text(
        f'[node]\nrpc-url = "http://127.0.0.1:1"\n[registry]\nmemory = "{our_address}"'
    )
    assert melete("space", "show", delta.space_id)[0] == COULD_NOT_TELL
    monkeypatch.setenv("MELETE_RPC_URL", w3.provider.endpoint_uri)
    assert melete("space", "show", delta.space_id)[0] == HOLDS
    assert melete("space", "show", delta.space_id, "--rpc-url", "http://127.0.0.1:1")[0] == COULD_NOT_TELL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[node]\nrpc_url = 'x'", "rpc_url"),
        ("[nodes]\n", "nodes"),
        ("[node]\nchain-id = '1'", "chain-id"),
        ("not toml", "no TOML"),
    ],
)
def test_a_slip_in_the_settings_file_is_named(melete, workplace, text, words):
    (workplace / "melete.toml").write_text(text)
    code, _, err = melete("space", "show", "0x" + "ab" * 32)
    assert code == USAGE
    assert words in err


def test_the_registry_is_found_in_the_deployment_records(melete, workplace, our_address, node, delta, w3):
    record = {"address": str(our_address), "block": 1, "transaction": "0x" + "00" * 32, "codeHash": "0x" + "00" * 32,
              "compiler": "solc", "commit": ""}  # fmt: skip
    (workplace / "deployments").mkdir()
    path = workplace / "deployments" / f"{w3.eth.chain_id}.json"
    path.write_text(json.dumps({"chainId": w3.eth.chain_id, "contracts": {"AgentMemoryStateRegistry": record}}))
    assert melete("space", "show", delta.space_id, *node)[0] == HOLDS
    path.write_text(json.dumps({"chainId": w3.eth.chain_id, "contracts": {}}))
    code, _, err = melete("space", "show", delta.space_id, *node)
    assert code == USAGE
    assert "AgentMemoryStateRegistry" in err


# Deltas


def test_delta_hash_prints_what_the_registry_would_compute(melete, workplace, delta, our_registry):
    path = write(workplace, delta.to_json())
    target = ("--chain-id", our_registry.chain_id, "--registry", our_registry.address)
    code, out, _ = melete("delta", "hash", path, *target, "--json")
    found = json.loads(out)
    assert code == HOLDS
    assert found["transitionId"] == str(compute_transition_id(delta))
    assert found["signingDigest"] == str(our_registry.domain.digest(compute_transition_id(delta)))


def test_delta_hash_reads_standard_input(workplace, delta):
    done = subprocess.run(
        [sys.executable, "-m", "melete.cli.main", "delta", "hash", "-", "--json"],
        input=json.dumps(delta.to_json()), capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["transitionId"] == str(compute_transition_id(delta))


def test_delta_check_says_that_the_registry_would_take_it(melete, workplace, delta, our_registry, authorizer, node):
    signature = authorizer.sign_digest(our_registry.domain.digest(compute_transition_id(delta)))
    path = write(workplace, delta.to_json())
    at = (*node, "--registry", our_registry.address, "--from", "0x" + "55" * 20)
    assert melete("delta", "check", path, *at, "--signature", "0x" + signature.hex())[0] == HOLDS
    code, _, err = melete("delta", "check", path, *at)
    assert code == DOES_NOT_HOLD
    assert "approval" in err


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("sequence", "01", "sequence: '01'"),
        ("sequence", 1, "sequence: 1"),
        ("sequence", "\u0661", "sequence: '\\u0661'"),
        ("spaceId", "0x12", "spaceId: '0x12'"),
        ("profileId", None, "profileId: None"),
    ],
)
def test_a_wrong_member_is_named_with_its_value(melete, workplace, delta, member, value, words):
    code, _, err = melete("delta", "hash", write(workplace, {**delta.to_json(), member: value}))
    assert code == USAGE
    assert words in err


def test_a_duplicate_member_is_pointed_at(melete, workplace, delta):
    text = json.dumps(delta.to_json())[:-1] + ', "sequence": "2"}'
    code, _, err = melete("delta", "hash", write(workplace, text))
    assert code == USAGE
    assert "'/sequence'" in err


# History and registry


def test_history_verifies_what_the_registry_states(melete, our_registry, authorizer, delta, node):
    our_registry.commit(delta, authorizer=authorizer)
    code, out, _ = melete("history", delta.space_id, *node, "--registry", our_registry.address, "--json")
    *events, found = [json.loads(line) for line in out.splitlines()]
    assert (code, found["transitions"], found["verified"]) == (HOLDS, "1", True)
    assert (found["anchoredBy"], [event["event"] for event in events]) == ("storage proof", ["registered", "committed"])


def test_history_of_another_registry_is_anchored_by_what_it_answers(
    melete, w3, deploy, relayer, controller, authorizer, node, salt
):
    registry = MemoryRegistry(w3, deploy("NormativeMemoryRegistry"), sender=relayer)
    space_id = registry.register(authorizer.address, salt, controller=controller).space_id
    delta = Witness(compute_profile_id("test/1"), b"payload", salt).build_delta(space_id, GENESIS)
    registry.commit(delta, authorizer=authorizer)
    code, out, _ = melete("history", space_id, *node, "--registry", registry.address, "--json")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["transitions"], found["anchoredBy"]) == (HOLDS, "1", "answer at the block's hash")
    code, _, err = melete("history", "0x" + "ab" * 32, *node, "--registry", registry.address)
    assert code == DOES_NOT_HOLD
    assert "no such space" in err


def test_history_that_leaves_out_the_last_event_does_not_hold(
    melete, our_registry, authorizer, delta, node, monkeypatch
):
    our_registry.commit(delta, authorizer=authorizer)
    load = LogNode.load_logs
    monkeypatch.setattr(LogNode, "load_logs", lambda asked, query: load(asked, query)[:-1])
    code, _, err = melete("history", delta.space_id, *node, "--registry", our_registry.address)
    assert code == DOES_NOT_HOLD
    assert "head" in err


def test_registry_check_knows_our_code_and_names_others(melete, our_address, deploy, node):
    code, out, _ = melete("registry", "check", *node, "--registry", our_address, "--json")
    assert (code, json.loads(out)["code"]) == (HOLDS, "equal to the artifact")
    normative = deploy("NormativeMemoryRegistry")
    code, out, _ = melete("registry", "check", *node, "--registry", normative, "--json")
    assert (code, json.loads(out)["code"]) == (HOLDS, "other")


# Errors


def test_no_node_is_could_not_tell_in_words_and_in_json(melete):
    at = ("--rpc-url", "http://user:secret@127.0.0.1:1/key", "--registry", "0x" + "11" * 20)
    code, out, err = melete("space", "show", "0x" + "ab" * 32, *at)
    assert (code, out) == (COULD_NOT_TELL, "")
    assert "127.0.0.1:1" in err
    assert "secret" not in err
    assert "key" not in err.replace("--rpc-url", "")
    code, out, _ = melete("space", "show", "0x" + "ab" * 32, *at, "--json")
    assert (code, json.loads(out)["error"]["name"]) == (COULD_NOT_TELL, "NodeUnreachable")


def test_a_node_of_another_chain_is_could_not_tell(melete, our_address, node):
    at = (*node, "--registry", our_address, "--chain-id", "1")
    assert melete("space", "show", "0x" + "ab" * 32, *at)[0] == COULD_NOT_TELL


def test_unknown_words_are_usage(melete):
    for words in (["spice"], ["space", "shew"], ["space", "id", "--salz", "x"], ["space", "id"]):
        assert melete(*words)[0] == USAGE


def test_a_fault_of_ours_is_one_line_and_no_traceback(melete, monkeypatch):
    def fail(*_: object) -> None:
        raise RuntimeError("a secret value")

    monkeypatch.setattr("melete.memory.space.compute_space_id", fail)
    code, _, err = melete("space", "id", "--controller", "0x" + "22" * 20, "--salt", "0x" + "dd" * 32)
    assert code == COULD_NOT_TELL
    assert "Traceback" not in err
    assert "a secret value" not in err


def test_help_of_every_noun_imports_no_node_library(workplace):
    program = "import sys; from melete.cli.main import run; run(sys.argv[1:]); assert 'web3' not in sys.modules"
    for words in (["--help"], ["space", "--help"], ["delta", "--help"], ["history", "--help"], ["registry", "--help"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_early_hears_no_complaint_and_changes_no_answer(workplace):
    command = f"{sys.executable} -m melete.cli.main --help | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (HOLDS, "")
