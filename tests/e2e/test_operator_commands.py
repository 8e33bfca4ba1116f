"""A day with the command line: register, commit, verify, drill, erase, rotate; and the same with faults."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from melete import LocalSigner, Witness, compute_profile_id, keccak256
from melete.cli.main import run
from melete.errors import CouldNotTell

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL, INTERRUPTED = 0, 1, 2, 3, 130


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def melete(workplace, capsys, w3, our_address):
    """Run a command against the node, with --json; return exit code and what was found."""

    def command(*words: object) -> tuple[int, dict]:
        code = run([*(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        lines = captured.out.splitlines()
        return code, json.loads(lines[-1]) if lines else {"stderr": captured.err}

    os.environ["MELETE_RPC_URL"] = w3.provider.endpoint_uri
    os.environ["MELETE_REGISTRY"] = str(our_address)
    yield command
    del os.environ["MELETE_RPC_URL"], os.environ["MELETE_REGISTRY"]


@pytest.fixture
def key_file(workplace, accounts) -> Path:
    return write_key(workplace / "key", accounts[5].private_key)


@pytest.fixture
def node_says(monkeypatch):
    """Let the node answer for logs what a function of the query gives, unless that is None."""
    from web3 import HTTPProvider

    honest = HTTPProvider.make_request

    def answer_by(answer) -> None:
        def make_request(self, method, params):
            given = answer(params[0]) if method == "eth_getLogs" else None
            return honest(self, method, params) if given is None else {"jsonrpc": "2.0", "id": 1, **given}

        monkeypatch.setattr(HTTPProvider, "make_request", make_request)
        monkeypatch.setattr("melete.chain.scan.node.LogNode.pause", lambda *_: None)

    return answer_by


def write_key(path: Path, key: str) -> Path:
    path.write_text(key + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def store_key(melete, workplace, monkeypatch) -> Path:
    """A witness store, made as the user does it."""
    path = workplace / "store-key"
    assert melete("witness", "init", "--new-key-file", path)[0] == HOLDS
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(path))
    return path


@pytest.fixture
def space(melete, key_file) -> str:
    code, found = melete("space", "register", "--key-file", key_file)
    assert code == HOLDS
    return found["spaceId"]


def commit(melete, workplace, key_file, space, text: str, *words: object) -> tuple[int, dict]:
    path = workplace / "payload"
    path.write_text(text)
    return melete("delta", "commit", space, path, "--key-file", key_file, *words)


def test_a_payload_is_committed_verified_and_opened_again(melete, workplace, key_file, store_key, space):
    for number in range(3):
        code, found = commit(melete, workplace, key_file, space, f"memory {number}", "--locator", f"file:{number}")
        assert (code, found["sequence"], found["state"]) == (HOLDS, str(number + 1), "mined")
    code, found = melete("history", space)
    assert (code, found["transitions"]) == (HOLDS, "3")
    code, found = melete("witness", "drill", space)
    assert (code, found["opened"], found["closed"]) == (HOLDS, "3", [])


def test_what_waits_is_sent_by_another_run(melete, workplace, key_file, store_key, space):
    for number in range(2):
        code, found = commit(melete, workplace, key_file, space, f"memory {number}", "--until", "queued")
        assert (code, found["state"]) == (HOLDS, "queued")
    assert melete("outbox", "show")[1]["queued"] == "2"
    code, found = melete("outbox", "run", "--key-file", key_file, "--confirmations", "0")
    assert (code, found["done"], found["stopped"]) == (HOLDS, "2", "0")


def test_what_waits_for_another_chain_is_named_and_is_no_success(melete, workplace, key_file, store_key, space, w3):
    from melete.chain.outbox import Item, Outbox
    from melete.primitives import Address, Bytes32

    here = w3.eth.chain_id
    path = workplace / "elsewhere.db"
    words = ("outbox", "run", "--outbox", path, "--key-file", key_file, "--confirmations", "0")
    with Outbox(path) as opened:
        opened.add([Item(here + 1, Address("0x" + "11" * 20), b"lane", 1, Bytes32("0x" + "22" * 32), b"data")])
    code, found = melete(*words)
    assert (code, found["chainId"], found["waiting"]) == (COULD_NOT_TELL, str(here), [f"1 for chain {here + 1}"])
    assert melete("outbox", "show", "--outbox", path)[1]["waiting"] == [f"1 for chain {here + 1}"]
    # A run that has something to do on its own chain, and does it, succeeds.
    commit(melete, workplace, key_file, space, "here", "--until", "queued", "--outbox", path)
    code, found = melete(*words)
    assert (code, found["done"], found["waiting"]) == (HOLDS, "1", [f"1 for chain {here + 1}"])


def test_looking_at_an_outbox_makes_none(melete):
    code, found = melete("outbox", "show", "--outbox", "nope.db")
    assert (code, found["error"]["name"], Path("nope.db").exists()) == (COULD_NOT_TELL, "MissingFile", False)


def test_depth_of_a_run_is_named_once(melete, key_file):
    code, found = melete("outbox", "run", "--finalized", "--confirmations", "3", "--key-file", key_file)
    assert (code, found["error"]["name"]) == (USAGE, "UsageError")


def test_a_conflict_ends_with_one_and_is_rebuilt_when_asked(
    melete, workplace, key_file, store_key, space, our_registry, accounts
):
    commit(melete, workplace, key_file, space, "ours", "--until", "queued")
    signer = LocalSigner(accounts[5].private_key)
    theirs = Witness(compute_profile_id("x"), b"theirs", keccak256(b"salt"))
    our_registry.commit(theirs.build_delta(bytes.fromhex(space[2:]), our_registry.head(space)), authorizer=signer)
    code, found = melete("outbox", "run", "--key-file", key_file, "--confirmations", "0")
    assert (code, found["stopped"]) == (DOES_NOT_HOLD, "1")
    stopped = melete("outbox", "show")[1]["stopped"][0]
    assert "conflict" in stopped
    assert stopped.startswith(f"chain {our_registry.chain_id}, ")
    assert melete("outbox", "rebuild", space, "--key-file", key_file)[1]["rebuilt"] == ["2"]
    code, found = melete("outbox", "run", "--key-file", key_file, "--confirmations", "0")
    assert (code, found["done"]) == (HOLDS, "1")


def test_an_erased_witness_is_named_by_the_drill(melete, workplace, key_file, store_key, space):
    commit(melete, workplace, key_file, space, "to be forgotten")
    assert melete("witness", "erase", space, "1")[0] == USAGE
    assert melete("witness", "erase", space, "1", "--yes") == (HOLDS, {"erased": "1"})
    code, found = melete("witness", "drill", space)
    assert code == DOES_NOT_HOLD
    assert "erased" in found["closed"][0]


def test_the_drill_tells_how_far_it_is(melete, workplace, key_file, store_key, space, monkeypatch):
    told = []
    monkeypatch.setattr("melete.cli.progress.Progress.tell", lambda _, text: told.append(text))
    commit(melete, workplace, key_file, space, "kept")
    assert melete("witness", "drill", space)[0] == HOLDS
    assert told[-1].endswith("1 opened, 0 closed")


def test_the_drill_of_a_space_that_nobody_registered_holds_on_nothing(melete, store_key):
    code, found = melete("witness", "drill", "0x" + "22" * 32)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "UnknownSpace")


def test_the_drill_believes_no_node_that_keeps_events_back(melete, workplace, key_file, store_key, space, node_says):
    commit(melete, workplace, key_file, space, "kept")
    node_says(lambda _: {"result": []})
    code, found = melete("witness", "drill", space)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "BrokenHistory")


def test_the_drill_splits_what_the_provider_refuses(melete, workplace, key_file, store_key, space, node_says, w3):
    commit(melete, workplace, key_file, space, "kept")
    w3.provider.make_request("anvil_mine", [hex(120)])

    def refuse(query):
        if int(query["toBlock"], 16) - int(query["fromBlock"], 16) > 50:
            return {"error": {"code": -32005, "message": "query returned more than 10000 results"}}
        return None

    node_says(refuse)
    code, found = melete("witness", "drill", space)
    assert (code, found["tried"], found["closed"], found["anchoredBy"]) == (HOLDS, "1", [], "storage proof")


@pytest.mark.parametrize("logs", [[{"a": 1}], ["log"], [None], "hi", {"a": 1}, None], ids=str)
def test_logs_that_are_none_could_not_tell(melete, store_key, space, node_says, our_registry, logs):
    node_says(lambda _: {"result": logs})
    code, found = melete("witness", "drill", space)
    assert (code, found["error"]["name"]) in {(COULD_NOT_TELL, "UnusableLogs"), (COULD_NOT_TELL, "NodeRefused")}
    with pytest.raises(CouldNotTell):
        list(our_registry.events(space))
    with pytest.raises(CouldNotTell):
        list(our_registry.transitions(space))


def test_a_backup_an_export_and_a_new_key_all_open_what_was_kept(
    melete, workplace, key_file, store_key, space, monkeypatch
):
    commit(melete, workplace, key_file, space, "kept")
    assert melete("witness", "backup", workplace / "backup.db")[0] == HOLDS
    assert melete("witness", "export", workplace / "export.jsonl")[1]["witnesses"] == "1"
    assert b"kept" not in (workplace / "export.jsonl").read_bytes()
    assert melete("witness", "rekey", workplace / "new-key")[0] == HOLDS
    assert melete("witness", "drill", space)[0] == COULD_NOT_TELL  # the old key
    assert melete("witness", "drill", space, "--witnesses", workplace / "backup.db")[0] == HOLDS
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(workplace / "new-key"))
    assert melete("witness", "drill", space)[0] == HOLDS


def test_rotation_says_what_would_change_and_waits_for_a_yes(melete, key_file, space, outsider):
    code, found = melete("space", "rotate", space, "--key-file", key_file, "--yes")
    assert (code, found["error"]["name"]) == (USAGE, "UsageError")
    words = ("space", "rotate", space, "--authorizer", outsider.address, "--key-file", key_file)
    code, found = melete(*words)
    assert (code, found["rotated"], found["newAuthorizer"]) == (HOLDS, False, str(outsider.address))
    assert melete("space", "show", space)[1]["configNonce"] == "0"
    assert melete(*words, "--yes")[1]["rotated"] is True
    assert melete("space", "show", space)[1]["authorizer"] == str(outsider.address)


def test_rotation_that_the_registry_would_refuse_is_refused_without_a_yes(
    melete, workplace, key_file, accounts, space, outsider
):
    words = ("space", "rotate", space, "--key-file", key_file)
    assert int(melete(*words, "--authorizer", outsider.address)[1]["gas"]) > 21_000
    assert melete(*words)[0] == USAGE
    other = write_key(workplace / "other", accounts[6].private_key)
    refused = (
        ((*words, "--authorizer", "0x" + "00" * 20), "ZeroAddress"),
        ((*words[:3], "--key-file", other, "--authorizer", outsider.address), "InvalidAuthorization"),
        (("space", "rotate", "0x" + "22" * 32, *words[3:], "--authorizer", outsider.address), "UnknownSpace"),
    )
    for given, name in refused:
        for more in ((), ("--yes",)):
            code, found = melete(*given, *more)
            assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, name)
    assert melete("space", "show", space)[1]["configNonce"] == "0"


def test_a_key_for_a_store_that_does_not_take_it_is_not_left_behind(melete, workplace, key_file, store_key, space):
    commit(melete, workplace, key_file, space, "kept")
    commit(melete, workplace, key_file, space, "spoiled")
    path = workplace / "data" / "melete" / "witnesses.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE witnesses SET sealed = zeroblob(64) WHERE number = x'0000000000000002'")
    code, found = melete("witness", "rekey", workplace / "new-key")
    assert (code, found["error"]["name"], (workplace / "new-key").exists()) == (DOES_NOT_HOLD, "NotAuthentic", False)
    code, found = melete("witness", "drill", space)  # by the old key, which is still the store's
    assert (code, found["opened"], found["closed"]) == (DOES_NOT_HOLD, "1", ["delta 2: does not decrypt"])


def test_a_key_that_a_store_has_taken_stays_whatever_comes_then(
    melete, workplace, key_file, store_key, space, monkeypatch
):
    from melete.memory.witness_store import WitnessStore

    commit(melete, workplace, key_file, space, "kept")
    change_key = WitnessStore.change_key

    def interrupted(self, key):
        change_key(self, key)
        raise KeyboardInterrupt

    monkeypatch.setattr(WitnessStore, "change_key", interrupted)
    assert melete("witness", "rekey", workplace / "new-key")[0] == INTERRUPTED
    monkeypatch.setattr(WitnessStore, "change_key", change_key)
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(workplace / "new-key"))
    assert melete("witness", "drill", space)[0] == HOLDS


def test_a_store_key_that_others_can_read_opens_nothing_and_is_told_by_the_doctor(melete, store_key, space):
    store_key.chmod(0o644)
    code, found = melete("witness", "drill", space)
    assert (code, "chmod 600" in found["error"]["message"]) == (USAGE, True)
    code, found = melete("doctor")
    assert (code, found["witness key file"]["answer"]) == (DOES_NOT_HOLD, "does not hold")
    assert "0644" in found["witness key file"]["detail"]


def test_a_relayer_pays_for_what_another_key_approves(melete, workplace, key_file, accounts, w3):
    poor = write_key(workplace / "poor", keccak256(b"a key without ether").hex())
    code, found = melete("space", "register", "--key-file", poor, "--payer-key-file", key_file)
    assert (code, found["controller"]) == (HOLDS, str(LocalSigner(keccak256(b"a key without ether")).address))


def test_a_keystore_opens_with_its_password_alone(melete, workplace, accounts, monkeypatch):
    from eth_account import Account

    path = workplace / "keystore.json"
    path.write_text(json.dumps(Account.encrypt(accounts[5].private_key, "right", iterations=2)))
    monkeypatch.setenv("MELETE_PASSWORD", "wrong")
    code, found = melete("space", "register", "--keystore", path)
    assert code == USAGE
    assert "wrong" not in json.dumps(found)
    monkeypatch.setenv("MELETE_PASSWORD", "right")
    assert melete("space", "register", "--keystore", path)[0] == HOLDS


def test_a_key_file_that_others_can_read_is_refused(melete, key_file):
    key_file.chmod(0o644)
    code, found = melete("space", "register", "--key-file", key_file)
    assert code == USAGE
    assert "chmod 600" in found["error"]["message"]


def test_a_missing_key_says_how_to_give_one(melete, workplace):
    code, found = melete("space", "register")
    assert code == USAGE
    assert "--key-file" in found["error"]["message"]


def test_committing_without_a_store_says_what_is_missing(melete, workplace, key_file, space):
    code, found = commit(melete, workplace, key_file, space, "text")
    assert code in (USAGE, COULD_NOT_TELL)
    assert found["error"]["message"]


def test_doctor_finds_everything_as_it_should_be(melete, workplace, key_file, store_key, space):
    commit(melete, workplace, key_file, space, "memory")
    code, found = melete("doctor", "--key-file", key_file)
    assert code == HOLDS, found
    assert {
        *("node", "hashes", "code", "proxy", "key file", "outbox", "witness key file", "witnesses"),
    } == set(found)
    assert {one["answer"] for one in found.values()} == {"holds"}
    assert found["key file"]["detail"] == "its owner's alone"


def test_doctor_looks_at_the_registry_of_subjects_where_one_is_named(melete, w3, deploy):
    from melete.cli.doctor import PROXY_SLOTS

    address = deploy("AgentMeditationRegistry")
    code, found = melete("doctor", "--meditation-registry", address)
    names = ("meditation", "meditation code", "meditation proxy")
    assert (code, [found[name]["answer"] for name in names]) == (HOLDS, ["holds"] * 3)
    w3.provider.make_request("anvil_setStorageAt", [str(address), PROXY_SLOTS["beacon"], "0x" + "11" * 32])
    code, found = melete("doctor", "--meditation-registry", address)
    assert (code, found["meditation proxy"]["answer"]) == (DOES_NOT_HOLD, "does not hold")
    code, found = melete("doctor", "--meditation-registry", deploy("AgentMemoryStateRegistry"))
    assert (code, found["meditation"]["answer"]) == (COULD_NOT_TELL, "could not tell")


@pytest.mark.parametrize("store", ["outbox", "witnesses"])
def test_doctor_tells_of_a_store_that_is_named_and_missing(melete, store):
    assert store not in melete("doctor")[1]
    code, found = melete("doctor", f"--{store}", "nope.db")
    assert (code, found[store]["answer"]) == (COULD_NOT_TELL, "could not tell")
    assert not Path("nope.db").exists()


def test_doctor_names_other_code_and_a_key_that_others_can_read(melete, workplace, key_file, deploy):
    key_file.chmod(0o640)
    code, found = melete("doctor", "--key-file", key_file, "--registry", deploy("NormativeMemoryRegistry"))
    assert code == DOES_NOT_HOLD
    assert found["code"]["answer"] == "does not hold"
    assert "0640" in found["key file"]["detail"]


def test_doctor_names_a_filled_proxy_slot(melete, w3, deploy, our_registry):
    from melete.cli.doctor import PROXY_SLOTS

    address = deploy("AgentMemoryStateRegistry")
    w3.provider.make_request("anvil_setStorageAt", [str(address), PROXY_SLOTS["admin"], "0x" + "11" * 32])
    code, found = melete("doctor", "--registry", address)
    assert code == DOES_NOT_HOLD
    assert "admin" in found["proxy"]["detail"]


def test_the_proxy_slots_are_those_of_the_standard():
    from melete.cli.doctor import PROXY_SLOTS

    for name, slot in PROXY_SLOTS.items():
        assert int(slot, 16) == int.from_bytes(keccak256(f"eip1967.proxy.{name}".encode()), "big") - 1


def test_doctor_could_not_tell_without_a_node(melete):
    code, found = melete("doctor", "--rpc-url", "http://127.0.0.1:1")
    assert code == COULD_NOT_TELL
    assert found["node"]["answer"] == "could not tell"


def test_history_counts_rotations_and_names_the_block_it_speaks_of(melete, workplace, key_file, store_key, space, w3):
    commit(melete, workplace, key_file, space, "memory")
    controller = melete("space", "show", space)[1]["controller"]
    melete("space", "rotate", space, "--key-file", key_file, "--controller", controller, "--yes")
    code, found = melete("history", space)
    assert (code, found["transitions"], found["updates"]) == (HOLDS, "1", "1")
    assert found["blockHash"] == w3.eth.get_block(found["block"])["hash"].to_0x_hex()
