"""A subject's life from the command line, against a node: enroll, look, demand, forecast, hand on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from web3 import Web3

from melete import Address, LocalSigner, keccak256
from melete.cli.main import run
from melete.meditation.kept import Kept
from melete.meditation.layers import Layer
from melete.memory.witness_keys import load_key_file
from melete.memory.witness_kinds import LAYERS
from melete.memory.witness_store import WitnessStore

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
EXAMPLE = Path(__file__).resolve().parents[2] / "schemas" / "examples" / "timeout-cycle"
DOCUMENTS = [EXAMPLE / "baseline" / f"{name}.json" for name in ("runtime", "memory-skills", "tasks-roles", "cognition")]
Command = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def meditation_address(deploy) -> Address:
    return deploy("AgentMeditationRegistry")


@pytest.fixture
def workplace(tmp_path, monkeypatch, w3, meditation_address) -> Path:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("MELETE_RPC_URL", w3.provider.endpoint_uri)
    monkeypatch.setenv("MELETE_MEDITATION_REGISTRY", str(meditation_address))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def melete(workplace, capsys) -> Command:
    """Run `melete subject` with --json; return exit code and what was found."""

    def command(*words: object) -> tuple[int, Any]:
        code = run(["subject", *(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        lines = [json.loads(line) for line in captured.out.splitlines()]
        return code, lines[0] if len(lines) == 1 else lines

    return command


@pytest.fixture
def key_of(workplace, w3, request) -> Callable[[str], tuple[Path, Address]]:
    """A key file and account for somebody in a role."""

    def make(role: str) -> tuple[Path, Address]:
        key = keccak256(f"{request.node.nodeid} {role}".encode())
        path = workplace / f"{role}.key"
        path.write_text(str(key))
        path.chmod(0o600)
        address = LocalSigner(key).address
        w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
        return path, address

    return make


@pytest.fixture
def store_key(workplace, monkeypatch, capsys) -> Iterator[Path]:
    path = workplace / "store-key"
    assert run(["witness", "init", "--new-key-file", str(path)]) == HOLDS
    capsys.readouterr()
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(path))
    return path


def enroll_words(key: Path, *more: object) -> list[object]:
    layers = [word for file in DOCUMENTS for word in ("--layer", file)]
    return ["enroll", "--policy", EXAMPLE / "policy.json", *layers, "--key-file", key, *more]


def kept_of(store: WitnessStore, subject: Address, w3: Web3) -> Kept:
    here = SimpleNamespace(chain_id=w3.eth.chain_id, address=Address(os.environ["MELETE_MEDITATION_REGISTRY"]))
    return Kept(store, here, subject)


@pytest.fixture
def subject(melete, key_of, store_key) -> tuple[Path, Address]:
    key, address = key_of("subject")
    code, found = melete(*enroll_words(key))
    assert (code, found["event"], found["subject"]) == (HOLDS, "Enrolled", str(address))
    return key, address


def test_enrollment_keeps_documents_and_fresh_salts(subject, store_key, workplace, w3):
    with WitnessStore.open(workplace / "data" / "melete" / "witnesses.db", load_key_file(store_key)) as store:
        kept = [kept_of(store, subject[1], w3).get(LAYERS[layer], 1) for layer in Layer]
    assert [document.document for document in kept] == [json.loads(file.read_text()) for file in DOCUMENTS]
    assert len({document.salt for document in kept}) == 4
    assert all(any(document.salt) for document in kept)


def test_enrollment_that_failed_takes_its_salts_from_the_store_the_next_time(melete, key_of, store_key, w3):
    key, address = key_of("poor")
    w3.provider.make_request("anvil_setBalance", [str(address), "0x0"])
    assert melete(*enroll_words(key))[0] != HOLDS
    w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
    assert melete(*enroll_words(key))[0] == HOLDS


def salts_of(workplace: Path, store_key: Path, subject: Address, w3: Web3) -> set[bytes]:
    with WitnessStore.open(workplace / "data" / "melete" / "witnesses.db", load_key_file(store_key)) as store:
        return {kept_of(store, subject, w3).get(LAYERS[layer], 1).salt for layer in Layer}


def test_enrollment_that_failed_does_not_stop_one_with_other_documents(melete, key_of, store_key, w3, workplace):
    key, address = key_of("poor")
    w3.provider.make_request("anvil_setBalance", [str(address), "0x0"])
    assert melete(*enroll_words(key))[0] != HOLDS
    w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
    other = workplace / "other.json"
    other.write_text(json.dumps({**json.loads(DOCUMENTS[0].read_text()), "extensions": {"a/b": "another"}}))
    words = ["--layer", other, *[word for file in DOCUMENTS[1:] for word in ("--layer", file)]]
    code, found = melete("enroll", "--policy", EXAMPLE / "policy.json", *words, "--key-file", key)
    assert (code, found.get("error")) == (HOLDS, None)
    with WitnessStore.open(workplace / "data" / "melete" / "witnesses.db", load_key_file(store_key)) as store:
        assert kept_of(store, address, w3).get(LAYERS[0], 1).document == json.loads(other.read_text())


def test_refused_enrollment_with_public_salts_fixes_no_salt(melete, key_of, store_key, w3, workplace):
    key, address = key_of("subject")
    words = enroll_words(key, "--public-salt")
    code, found = melete(*words, "--controller", address, "--rights", "floor")
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "ControllerIsSubject")
    w3.provider.make_request("anvil_setBalance", [str(address), "0x0"])
    assert melete(*words)[0] != HOLDS  # kept, and never registered
    w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
    assert melete(*enroll_words(key))[0] == HOLDS
    salts = salts_of(workplace, store_key, address, w3)
    assert len(salts) == 4
    assert bytes(32) not in salts


def test_public_salts_are_zero_where_they_are_asked_for(melete, key_of, store_key, w3, workplace):
    key, address = key_of("subject")
    w3.provider.make_request("anvil_setBalance", [str(address), "0x0"])
    assert melete(*enroll_words(key))[0] != HOLDS
    w3.provider.make_request("anvil_setBalance", [str(address), hex(10**20)])
    assert melete(*enroll_words(key, "--public-salt"))[0] == HOLDS
    assert salts_of(workplace, store_key, address, w3) == {bytes(32)}


def test_status_is_told_layer_by_layer_and_the_signal_apart(melete, subject, capsys):
    code, found = melete("status", subject[1])
    assert code == HOLDS
    assert [layer["status"] for layer in found["layers"]] == ["FRESH"] * 4
    assert [layer["neverCompleted"] for layer in found["layers"]] == [True] * 4
    assert found["signal"]["status"] == "PRESENT"
    assert run(["subject", "status", str(subject[1])]) == HOLDS
    text = capsys.readouterr().out
    assert "0 runtime" in text
    assert "in 1 d" in text or "in 23 h" in text
    assert "not health" in text
    assert "signal: PRESENT" in text


def test_overdue_layer_is_exit_code_1(melete, subject, key_of):
    controller_key, controller = key_of("controller")
    words = ("controller", subject[1], controller, "--rights", "floor,demand", "--key-file", subject[0])
    assert melete(*words) == (HOLDS, {
        "changed": False, "controller": "0x" + "0" * 40, "rights": 0, "newController": str(controller), "newRights": 3,
    })  # fmt: skip
    assert melete(*words, "--yes")[1]["event"] == "ControllerChanged"
    code, found = melete("floor", subject[1], "--require", "runtime=1s", "--key-file", controller_key)
    assert (code, found["version"]) == (HOLDS, 1)
    code, found = melete("forecast", subject[1], "--at", "+1m")
    assert (code, found["layers"][0]["status"]) == (DOES_NOT_HOLD, "OVERDUE")
    assert melete("forecast", subject[1], "--at", "+1m", "--no-floor")[0] == HOLDS
    code, found = melete("forecast", subject[1], "--at", "2020-01-01")
    assert (code, found["error"]["name"]) == (USAGE, "UsageError")
    for text in ("", " "):
        words = ("operator", subject[1], controller, "--allow", text, "--key-file", subject[0])
        assert melete(*words)[1]["error"]["name"] == "UsageError"


def test_demand_is_made_shown_and_withdrawn(melete, subject, key_of):
    controller_key, controller = key_of("controller")
    melete("controller", subject[1], controller, "--rights", "demand", "--key-file", subject[0], "--yes")
    code, found = melete("demand", subject[1], "--layers", "1,cognition", "--by", "+50m", "--key-file", controller_key)
    assert (code, found["layerMask"]) == (HOLDS, 0b1010)
    layers = melete("status", subject[1])[1]["layers"]
    assert [bool(layer["dueBy"]) for layer in layers] == [False, True, False, True]
    assert [layer["status"] for layer in layers] == ["FRESH", "DUE", "FRESH", "DUE"]
    assert melete("withdraw", subject[1], "--layers", "1,3", "--key-file", controller_key)[0] == HOLDS
    assert not any(layer["dueBy"] for layer in melete("status", subject[1])[1]["layers"])


def test_policy_can_be_tried_before_it_is_set(melete, subject, workplace):
    document = json.loads((EXAMPLE / "policy.json").read_text())
    document["maxInterval"][0] = 3600
    path = workplace / "strict.json"
    path.write_text(json.dumps(document))
    assert melete("forecast", subject[1], "--at", "+2h")[0] == HOLDS
    code, found = melete("forecast", subject[1], "--at", "+2h", "--policy", path)
    assert (code, [layer["status"] for layer in found["layers"]]) == (DOES_NOT_HOLD, ["OVERDUE", *["FRESH"] * 3])
    assert melete("policy", subject[1], path, "--key-file", subject[0])[1]["version"] == 2


def test_operator_is_allowed_pulses_and_is_stopped(melete, subject, key_of):
    operator_key, operator = key_of("operator")
    code, found = melete("pulse", subject[1], "--key-file", operator_key)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "MissingPermission")
    assert melete("operator", subject[1], operator, "--allow", "pulse", "--key-file", subject[0])[0] == HOLDS
    code, found = melete("pulse", subject[1], "--next", "+1d", "--key-file", operator_key)
    assert (found["submitter"], found["seq"], found["nextPlannedAt"] > found["recordedAt"]) == (
        str(operator),
        "1",
        True,
    )
    assert melete("operator", subject[1], operator, "--revoke", "--key-file", subject[0])[1]["permissions"] == 0


def test_events_are_listed_in_order(melete, subject):
    melete("pulse", subject[1], "--key-file", subject[0])
    code, found = melete("events", subject[1])
    assert (code, [event["event"] for event in found]) == (HOLDS, ["Enrolled", "PolicyUpdated", "Pulsed"])


def test_everything_registered_is_shown(melete, subject):
    code, found = melete("show", subject[1])
    assert (code, found["stateVersion"], found["policyVersion"], found["requiredLayers"]) == (HOLDS, "1", 1, 15)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("status", "0x12"), USAGE, "InvalidInput"),
        (("status", "0x" + "99" * 20), DOES_NOT_HOLD, "NotEnrolled"),
        (("forecast", "0x" + "99" * 20, "--at", "someday"), USAGE, "BadParameter"),
        (("demand", "0x" + "99" * 20, "--layers", "4", "--by", "+1h"), USAGE, "BadParameter"),
        (("pulse", "0x" + "99" * 20), USAGE, "UsageError"),
        (("enroll",), USAGE, "MissingParameter"),
    ],
)
def test_wrong_words_are_told_by_name(melete, words, code, error):
    found = melete(*words)
    assert (found[0], found[1]["error"]["name"]) == (code, error)


def test_document_that_is_none_is_refused_with_its_pointer(melete, key_of, store_key, workplace):
    bad = workplace / "bad.json"
    bad.write_text('{"schema": "amm.policy/1", "mood": 1}')
    key, _ = key_of("subject")
    layers = [word for file in DOCUMENTS for word in ("--layer", file)]
    code, found = melete("enroll", "--policy", bad, *layers, "--key-file", key)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidJson")
    code, found = melete("enroll", "--policy", EXAMPLE / "policy.json", "--layer", DOCUMENTS[0], "--key-file", key)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidInput")


def test_no_registry_named_says_how_to_name_one(melete, subject, monkeypatch):
    monkeypatch.delenv("MELETE_MEDITATION_REGISTRY")
    code, found = melete("status", subject[1])
    assert (code, found["error"]["name"]) == (USAGE, "ConfigurationError")
    assert "MELETE_MEDITATION_REGISTRY" in found["error"]["message"]
