"""`melete history`, `melete delta show` and `melete space migrate`, as a person runs them, on a node of their own."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from web3 import Web3

from melete import Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.deployments import Deployment, save_deployment
from melete.chain.transactions import LocalSender, transact
from melete.cli.main import run
from melete.memory.migration import MIGRATION_ID, Migration, verify_export
from melete.memory.profiles import JSON, PLAIN
from melete.memory.witness_keys import create_key_file
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.resources import load_artifact, load_schema

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
KEYS = [LocalSigner(keccak256(b"history %d" % number)) for number in range(5)]
CONTROLLER, AUTHORIZER, SUCCESSOR, RELAYER, OUTSIDER = KEYS
RICH = 10**21


class Place:
    """A node, a registry with its deployment record, a folder with a witness store, and the command line."""

    def __init__(self, w3: Web3, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.w3, self.url, self.folder, self._capsys = w3, url, folder, capsys
        for key in KEYS:
            self.rpc("anvil_setBalance", str(key.address), hex(RICH))
        self.rpc("anvil_mine", hex(5))
        artifact = load_artifact("AgentMemoryStateRegistry")
        receipt = transact(w3, LocalSender(RELAYER), w3.eth.chain_id, None, artifact.bytecode)
        assert receipt.contract_address is not None
        self.address, self.start_block = receipt.contract_address, receipt.block_number
        self.registry = MemoryRegistry(w3, self.address, sender=LocalSender(RELAYER))
        self.store_key = folder / "store-key"
        self.store_path = folder / "witnesses.db"
        self.key = create_key_file(self.store_key)
        WitnessStore.create(self.store_path, self.key).close()

    def record_deployment(self) -> None:
        code_hash = keccak256(bytes(self.w3.eth.get_code(str(self.address))))  # type: ignore[arg-type]
        save_deployment(
            self.folder / "deployments",
            Deployment(
                "AgentMemoryStateRegistry",
                self.w3.eth.chain_id,
                self.address,
                self.start_block,
                Bytes32(b"\x01" * 32),
                code_hash,
                "solc",
            ),
        )

    def rpc(self, method: str, *parameters: Any) -> Any:
        answer: Any = self.w3.provider.make_request(method, list(parameters))  # type: ignore[arg-type]
        assert "error" not in answer, answer
        return answer["result"]

    def register(self, name: bytes = b"space") -> Bytes32:
        return self.registry.register(AUTHORIZER.address, keccak256(name), controller=CONTROLLER).space_id

    def commit(
        self, space_id: Bytes32, payload: bytes, profile: Bytes32 = PLAIN.id, *, keep: bool = True, **options: Any
    ) -> Witness:
        signer = options.pop("signer", AUTHORIZER)
        witness = Witness(profile, payload, keccak256(payload + b" salt"), **options)
        delta = witness.build_delta(space_id, self.registry.head(space_id))
        if keep:
            with WitnessStore.open(self.store_path, self.key) as store:
                store.put_delta(delta, witness)
        self.registry.commit(delta, authorizer=signer)
        return witness

    def melete(self, *words: object) -> tuple[int, list[dict[str, Any]], str]:
        """Run a command with --json: exit code, the objects printed, standard error."""
        code = run([*(str(word) for word in words), "--json", "--rpc-url", self.url, "--registry", str(self.address)])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    def say(self, *words: object) -> tuple[int, list[str], str]:
        """Run a command for people: exit code, the lines printed, standard error."""
        code = run([*(str(word) for word in words), "--rpc-url", self.url, "--registry", str(self.address)])
        captured = self._capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    def with_store(self, *words: object) -> list[object]:
        return [*words, "--witnesses", self.store_path, "--witness-key-file", self.store_key]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    with Anvil() as node:
        yield Place(connect(node.url), node.url, tmp_path, capsys)


# What a history tells


def test_each_event_is_a_line_with_who_signed_it_and_what_its_witness_opens(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"green tea")
    place.commit(space_id, b'{"op":"add"}', JSON.id)
    place.commit(space_id, b"nobody kept this", keep=False)
    place.registry.rotate(space_id, CONTROLLER.address, SUCCESSOR.address, controller=CONTROLLER)
    place.commit(space_id, b"\xff\x00\x1b[31m", compute_profile_id("mine/1"), signer=SUCCESSOR)
    code, lines, _ = place.melete(*place.with_store("history", space_id))
    assert code == HOLDS
    *events, verdict = lines
    assert [event["event"] for event in events] == ["registered", *["committed"] * 3, "updated", "committed"]
    assert [event.get("witness") for event in events] == [None, "opened", "opened", "missing", None, "opened"]
    assert {event["approved"] for event in events} == {"its key signed"}
    signers = [CONTROLLER, AUTHORIZER, AUTHORIZER, AUTHORIZER, CONTROLLER, SUCCESSOR]
    assert [event["approvedBy"] for event in events] == [str(signer.address) for signer in signers]
    assert (events[1]["payload"], events[1]["text"]) == ("0x" + b"green tea".hex(), "green tea")
    assert (events[2]["profile"], events[2]["payload"]) == ("melete.json/1", {"op": "add"})
    assert events[5]["payload"] == "0xff001b5b33316d"
    assert "profile" not in events[5]
    assert (verdict["transitions"], verdict["updates"], verdict["read"]) == ("4", "1", 6)
    assert (verdict["opened"], verdict["missing"], verdict["notOpened"]) == (3, 1, 0)
    assert (verdict["anchoredBy"], verdict["verified"]) == ("storage proof", True)
    assert verdict["blockHash"] == Web3.to_hex(place.w3.eth.get_block(verdict["block"])["hash"])


def test_the_lines_for_people_are_one_for_each_event_printable_and_bounded(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"tea\nand \x1b[2J more" + b"x" * 5000)
    code, lines, _ = place.say(*place.with_store("history", space_id))
    assert code == HOLDS
    assert "registered" in lines[0]
    assert "#1" in lines[1]
    assert "tea\\nand \\x1b[2J more" in lines[1]
    assert all(line.isprintable() and len(line) < 400 for line in lines[:2])
    assert any(line.split() == ["verified", "True"] for line in lines)


def test_an_erased_witness_is_told_as_erased_and_is_no_fault(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"to be forgotten")
    with WitnessStore.open(place.store_path, place.key) as store:
        store.erase(DELTA.place(space_id, 1))
    code, lines, _ = place.melete(*place.with_store("history", space_id))
    assert (code, lines[1]["witness"], lines[-1]["erased"]) == (HOLDS, "erased", 1)
    assert "payload" not in lines[1]


def test_a_witness_of_something_else_does_not_open_and_ends_in_one(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"committed", keep=False)
    with WitnessStore.open(place.store_path, place.key) as store:
        store.put(DELTA.place(space_id, 1), Witness(PLAIN.id, b"another", keccak256(b"x")))
    code, lines, _ = place.melete(*place.with_store("history", space_id))
    assert (code, lines[1]["witness"], lines[1]["closed"]) == (DOES_NOT_HOLD, "does not open", "deltaCommitment")
    assert (lines[-1]["verified"], lines[-1]["notOpened"]) == (True, 1)
    assert "another" not in json.dumps(lines)


def test_the_wrong_key_for_the_store_could_not_tell_and_says_so(place: Place) -> None:
    space_id = place.register()
    wrong = place.folder / "wrong-key"
    create_key_file(wrong)
    words = ("history", space_id, "--witnesses", place.store_path, "--witness-key-file", wrong)
    code, lines, _ = place.melete(*words)
    assert (code, lines[-1]["error"]["name"]) == (COULD_NOT_TELL, "WrongKey")


def test_a_direct_call_is_told_apart_from_a_signature_and_from_what_nobody_can_tell(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"signed")
    place.registry.sender = LocalSender(AUTHORIZER)
    place.commit(space_id, b"called", signer=None)
    code, lines, _ = place.melete("history", space_id)
    assert code == HOLDS
    assert [line["approved"] for line in lines[:3]] == ["its key signed", "its key signed", "it called directly"]
    assert "opened" not in lines[-1], "no store is at hand"


def test_a_summary_is_the_verdict_alone(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"tea")
    code, lines, _ = place.melete(*place.with_store("history", space_id, "--summary"))
    assert (code, len(lines), lines[0]["transitions"]) == (HOLDS, 1, "1")


# Where reading starts


def test_reading_starts_at_the_recorded_block_of_deployment(place: Place) -> None:
    space_id = place.register()
    assert place.melete("history", space_id)[1][-1]["after"] == -1
    place.record_deployment()
    assert place.melete("history", space_id)[1][-1]["after"] == place.start_block - 1
    assert place.melete("history", space_id, "--from-block", 2)[1][-1]["after"] == 1


def test_a_record_of_another_address_is_not_this_registrys(place: Place) -> None:
    place.record_deployment()
    path = place.folder / "deployments" / f"{place.w3.eth.chain_id}.json"
    record = json.loads(path.read_text())
    record["contracts"]["AgentMemoryStateRegistry"].update(address="0x" + "11" * 20, block=10**9)
    path.write_text(json.dumps(record))
    assert place.melete("history", place.register())[1][-1]["after"] == -1


def test_a_start_after_the_registration_or_beyond_the_chain_is_a_slip_of_the_user(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"tea")
    last = place.w3.eth.block_number
    for start in (last, last + 1):
        code, lines, _ = place.melete("history", space_id, "--from-block", start)
        assert (code, lines[-1]["error"]["field"]) == (USAGE, "--from-block")


def test_an_unknown_space_is_named_as_such(place: Place) -> None:
    code, lines, _ = place.melete("history", "0x" + "ab" * 32)
    assert (code, lines[-1]["error"]["name"]) == (DOES_NOT_HOLD, "UnknownSpace")


# Going on


def test_a_resumed_run_tells_only_what_is_new_and_knows_the_whole(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"one")
    file = place.folder / "state.json"
    assert len(place.melete("history", space_id, "--resume", file)[1]) == 3
    place.commit(space_id, b"two")
    place.registry.rotate(space_id, CONTROLLER.address, SUCCESSOR.address, controller=CONTROLLER)
    code, lines, _ = place.melete("history", space_id, "--resume", file)
    assert code == HOLDS
    assert [line.get("sequence") for line in lines[:-1]] == ["2", None]
    assert (lines[-1]["read"], lines[-1]["transitions"], lines[-1]["updates"]) == (2, "2", "1")
    assert place.melete("history", space_id, "--resume", file)[1][-1]["read"] == 0


def test_a_reorganization_between_two_runs_is_told_and_rolled_back(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"stays")
    file = place.folder / "state.json"
    place.commit(space_id, b"goes")
    kept = place.w3.eth.block_number - 1
    assert place.melete("history", space_id, "--resume", file)[1][-1]["transitions"] == "2"
    place.rpc("anvil_reorg", 1, [])
    place.rpc("evm_mine")
    place.commit(space_id, b"comes instead", keep=False)
    code, lines, _ = place.melete("history", space_id, "--resume", file)
    assert code == HOLDS
    assert lines[0] == {"event": "reorganized", "after": kept}
    assert [line.get("sequence") for line in lines[1:-1]] == ["2"]
    assert lines[-1]["transitions"] == "2"
    assert lines[-1]["stateRoot"] == str(place.registry.head(space_id).state_root)


def test_summaries_and_whole_runs_go_on_with_one_file(place: Place) -> None:
    space_id = place.register()
    file = place.folder / "state.json"
    place.commit(space_id, b"stays")
    assert place.melete("history", space_id, "--resume", file, "--summary")[1][-1]["read"] == 2
    place.commit(space_id, b"also stays")
    assert len(place.melete("history", space_id, "--resume", file)[1]) == 2
    place.commit(space_id, b"goes")
    assert place.melete("history", space_id, "--resume", file, "--summary")[1][-1]["transitions"] == "3"
    place.rpc("anvil_reorg", 1, [])
    place.rpc("evm_mine")
    for more in (("--summary",), ()):
        code, lines, _ = place.melete("history", space_id, "--resume", file, *more)
        assert (code, lines[-1]["transitions"]) == (HOLDS, "2")
        assert lines[-1]["stateRoot"] == str(place.registry.head(space_id).state_root)


def test_a_block_replaced_before_the_anchor_is_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    space_id = place.register()
    place.commit(space_id, b"stays")
    place.commit(space_id, b"goes")
    from melete.cli import history_reader

    verify, tries = history_reader.verify_anchor_at, []

    def replaced_first(*given: Any) -> Any:
        tries.append(given)
        if len(tries) == 1:
            place.rpc("anvil_reorg", 1, [])
            place.rpc("evm_mine")
        return verify(*given)

    monkeypatch.setattr(history_reader, "verify_anchor_at", replaced_first)
    code, lines, _ = place.melete("history", space_id)
    assert (code, len(tries)) == (HOLDS, 2)
    assert "reorganized" in [line.get("event") for line in lines]
    assert lines[-1]["transitions"] == "1"


def test_the_file_of_another_space_is_refused_and_stays(place: Place) -> None:
    one, other = place.register(b"one"), place.register(b"other")
    file = place.folder / "state.json"
    place.melete("history", one, "--resume", file)
    before = file.read_bytes()
    code, lines, _ = place.melete("history", other, "--resume", file)
    assert (code, lines[-1]["error"]["name"]) == (COULD_NOT_TELL, "StoreUnreadable")
    assert str(file) in lines[-1]["error"]["message"]
    assert file.read_bytes() == before


def test_a_file_that_cannot_be_written_could_not_tell(place: Place) -> None:
    space_id = place.register()
    (place.folder / "plain").write_text("")
    code, lines, _ = place.melete("history", space_id, "--resume", place.folder / "plain" / "state.json")
    assert (code, lines[-1]["error"]["name"]) == (COULD_NOT_TELL, "StoreNotWritten")


# What does not hold, and what cannot be told


def leave_out_last(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from melete.chain.scan.node import LogNode

    load = LogNode.load_logs
    monkeypatch.setattr(LogNode, "load_logs", lambda self, query: load(self, query)[:-1])


def test_an_event_that_the_node_leaves_out_at_the_end_shows_in_the_anchor(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    space_id = place.register()
    place.commit(space_id, b"tea")
    leave_out_last(place, monkeypatch)
    for more in ((), ("--summary",)):
        code, lines, _ = place.melete("history", space_id, "--from-block", place.start_block, *more)
        assert (code, lines[-1]["error"]["rule"]) == (DOES_NOT_HOLD, "head")


def test_the_events_before_a_broken_one_are_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from melete.chain.scan.node import LogNode

    space_id = place.register()
    for payload in (b"one", b"two", b"three"):
        place.commit(space_id, payload)
    load = LogNode.load_logs

    def forged(node: LogNode, query: Any) -> Any:
        """The second transition's delta commitment is another one."""
        found = load(node, query)
        for log in found:
            if len(log["data"]) == 2 + 7 * 64 and int(log["topics"][3], 16) == 2:
                log["data"] = log["data"][: 2 + 128] + "00" * 31 + "01" + log["data"][2 + 192 :]
        return found

    monkeypatch.setattr(LogNode, "load_logs", forged)
    code, lines, _ = place.melete("history", space_id)
    assert code == DOES_NOT_HOLD
    assert [line.get("sequence") for line in lines[:-1]] == [None, "1"]
    assert (lines[-1]["error"]["rule"], lines[-1]["error"]["sequence"]) == ("transition_id", 2)
    code, (verdict,), _ = place.melete("history", space_id, "--summary")
    assert (code, verdict) == (DOES_NOT_HOLD, lines[-1])


def test_a_node_without_storage_proofs_is_asked_by_the_hash_of_the_block(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from melete.chain import proofs
    from melete.errors import NodeRefused

    def refuse(*_: Any) -> Any:
        raise NodeRefused("eth_getProof", "no such method")

    space_id = place.register()
    place.commit(space_id, b"tea")
    monkeypatch.setattr(proofs, "one", refuse)
    code, lines, _ = place.melete("history", space_id)
    assert (code, lines[-1]["anchoredBy"]) == (HOLDS, "answer at the block's hash")
    leave_out_last(place, monkeypatch)
    code, lines, _ = place.melete("history", space_id)
    assert (code, lines[-1]["error"]["rule"]) == (DOES_NOT_HOLD, "head")


def test_no_node_is_could_not_tell(place: Place) -> None:
    space_id = place.register()
    place.url = "http://127.0.0.1:1"
    assert place.melete("history", space_id)[0] == COULD_NOT_TELL


# A delta


def test_a_delta_is_shown_from_the_chain_by_its_place_and_by_its_id(place: Place) -> None:
    space_id = place.register()
    options: dict[str, Any] = {"locator": "file:1", "locator_salt": keccak256(b"l")}
    witness = place.commit(space_id, b"tea", **options)
    head = place.registry.head(space_id)
    code, (found,), _ = place.melete(*place.with_store("delta", "show", space_id, "1"))
    assert code == HOLDS
    assert (found["source"], found["transitionId"], found["nextStateRoot"]) == (
        "chain", str(head.transition_id), str(head.state_root)
    )  # fmt: skip
    assert found["deltaCommitment"] == str(witness.compute_commitments()[0])
    assert (found["opened"], found["closed"]) == (["deltaCommitment", "locatorCommitment"], [])
    assert place.melete(*place.with_store("delta", "show", head.transition_id))[1] == [found]


def test_a_delta_that_waits_is_shown_from_the_outbox(place: Place) -> None:
    key = write_key(place.folder / "key", AUTHORIZER)
    space_id = place.register()
    (place.folder / "payload").write_text("waits")
    commit = ("delta", "commit", space_id, "payload", "--key-file", key, "--until", "queued")
    queued = place.melete(*place.with_store(*commit))[1][0]
    for words in ((space_id, "1"), (queued["transitionId"],)):
        code, (found,), _ = place.melete(*place.with_store("delta", "show", *words))
        assert (code, found["source"], found["state"]) == (HOLDS, "outbox", "queued")
        assert found["transitionId"] == queued["transitionId"]
        assert found["opened"] == ["deltaCommitment"]
        assert place.melete(*place.with_store("delta", "show", *words, "--offline"))[1] == [found]


def test_of_a_witness_alone_as_much_is_shown_as_it_says(place: Place) -> None:
    space_id = place.register()
    place.commit(space_id, b"one", keep=False)
    with WitnessStore.open(place.store_path, place.key) as store:
        store.put(DELTA.place(space_id, 2), Witness(PLAIN.id, b"two", keccak256(b"two")))
    words = place.with_store("delta", "show", space_id, "2")
    offline = place.melete(*words, "--offline")[1][0]
    assert (offline["source"], offline["prevStateRoot"], offline["transitionId"]) == (
        "witness store", "unknown", "unknown"
    )  # fmt: skip
    online = place.melete(*words)[1][0]
    assert online["prevStateRoot"] == str(place.registry.head(space_id).state_root)
    assert online["transitionId"] != "unknown"


@pytest.mark.parametrize("words", [("0x" + "ab" * 32,), ("0x" + "ab" * 32, "1")])
def test_a_delta_that_nobody_knows_is_refused_with_where_was_looked(place: Place, words: tuple[str, ...]) -> None:
    code, lines, _ = place.melete("delta", "show", *words)
    assert code == USAGE
    assert "the registry's events, the outbox" in lines[0]["error"]["message"]


# Migration

EXPORT = {
    "tool": "proto-memory",
    "version": 3,
    "root": "sha256:9f86d081884c7d659a2feaa0c55ad015",
    "spaceId": "0x" + "5a" * 32,
    "entries": [{"id": "5B" * 32, "text": "private \x1b[2J text"}],
}


def write_key(path: Path, signer: LocalSigner) -> Path:
    path.write_text(signer.account.key.to_0x_hex())
    path.chmod(0o600)
    return path


@pytest.fixture
def export(place: Place) -> Path:
    path = place.folder / "export.json"
    path.write_text(json.dumps(EXPORT, indent=3))
    return path


@pytest.fixture
def key_file(place: Place) -> Path:
    return write_key(place.folder / "key", OUTSIDER)


def test_an_export_becomes_the_first_transition_of_a_new_space(place: Place, export: Path, key_file: Path) -> None:
    words = place.with_store("space", "migrate", export, "--key-file", key_file)
    code, (found,), _ = place.melete(*words)
    assert (code, found["sequence"], found["state"]) == (HOLDS, "1", "mined")
    Draft202012Validator(load_schema("space-migration")).validate(found["payload"])
    content = export.read_bytes()
    assert found["payload"]["export"] == {
        "bytes": len(content),
        "keccak256": str(keccak256(content)),
        "sha256": "0x" + hashlib.sha256(content).hexdigest(),
        "root": EXPORT["root"],
        "rootPointer": "/root",
        "tool": "proto-memory",
        "toolVersion": "3",
    }
    state = place.registry.load_state(Bytes32(found["spaceId"]))
    assert (state.authorization.controller, state.authorization.authorizer) == (OUTSIDER.address,) * 2
    assert str(state.head.transition_id) == found["transitionId"]
    code, lines, _ = place.melete(*place.with_store("history", found["spaceId"]))
    assert (code, lines[1]["witness"], lines[1]["profile"]) == (HOLDS, "opened", "melete.space-migration/1")
    assert (lines[1]["profileId"], lines[1]["payload"]) == (str(MIGRATION_ID), found["payload"])
    assert verify_export(Migration.from_json(lines[1]["payload"]), content)
    told = place.say(*place.with_store("history", found["spaceId"]))[1][1]
    assert EXPORT["root"] in told
    assert "private" not in told
    assert told.isprintable()


def test_the_export_that_was_bound_verifies_and_another_file_does_not(
    place: Place, export: Path, key_file: Path
) -> None:
    space_id = place.melete(*place.with_store("space", "migrate", export, "--key-file", key_file))[1][0]["spaceId"]
    words = place.with_store("space", "verify-migration", space_id)
    code, (found,), _ = place.melete(*words, export)
    assert (code, found["verified"], found["payload"]["export"]["root"]) == (HOLDS, True, EXPORT["root"])
    (place.folder / "other.json").write_bytes(export.read_bytes() + b"\n")
    code, lines, _ = place.melete(*words, place.folder / "other.json")
    assert (code, lines[0]["error"]["commitment"]) == (DOES_NOT_HOLD, "the export's keccak256")
    with WitnessStore.open(place.store_path, place.key) as store:
        store.erase(DELTA.place(Bytes32(space_id), 1))
    assert place.melete(*words, export)[1][0]["error"]["name"] == "WitnessErased"


def test_a_space_that_began_otherwise_is_no_migration(place: Place, export: Path) -> None:
    space_id = place.register()
    words = place.with_store("space", "verify-migration", space_id, export)
    assert place.melete(*words)[1][0]["error"]["field"] == "SPACE"
    place.commit(space_id, b"tea")
    code, lines, _ = place.melete(*words)
    assert (code, lines[0]["error"]["commitment"]) == (DOES_NOT_HOLD, "the profile of a migration")
    unknown = place.with_store("space", "verify-migration", EXPORT["spaceId"], export)
    assert place.melete(*unknown)[1][0]["error"]["name"] == "UnknownSpace"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(place: Place, export: Path, key_file: Path) -> None:
    words = place.with_store("space", "migrate", export, "--key-file", key_file, "--dry-run")
    block = place.w3.eth.block_number
    code, (found,), _ = place.melete(*words)
    assert (code, found["dryRun"], len(found["steps"])) == (HOLDS, True, 2)
    assert found["registry"].endswith("would take it")
    assert place.w3.eth.block_number == block
    assert not (place.folder / "data").exists()
    with WitnessStore.open(place.store_path, place.key) as store:
        assert list(store.list_rows()) == []
    salt = found["salt"]
    assert place.melete(*words[:-4], "--salt", salt, *words[-4:])[1][0]["spaceId"] == found["spaceId"]
    place.registry.register(OUTSIDER.address, Bytes32(salt), controller=OUTSIDER)
    code, lines, _ = place.melete(*words, "--salt", salt)
    assert (code, lines[0]["error"]["name"]) == (DOES_NOT_HOLD, "SpaceAlreadyRegistered")


def test_a_killed_migration_goes_on_with_its_space_and_is_committed_once(
    place: Place, export: Path, key_file: Path
) -> None:
    space_id = place.registry.register(OUTSIDER.address, keccak256(b"killed"), controller=OUTSIDER).space_id
    words = place.with_store("space", "migrate", export, "--key-file", key_file, "--space", space_id)
    assert place.melete(*words, "--dry-run")[0] == HOLDS
    assert place.melete(*words, "--until", "queued")[1][0]["state"] == "queued"
    code, lines, _ = place.melete(*words)
    assert (code, "waits for it" in lines[-1]["error"]["message"]) == (USAGE, True)
    assert place.melete("outbox", "run", "--key-file", key_file, "--until", "mined")[0] == HOLDS
    for more in ((), ("--dry-run",)):
        code, lines, _ = place.melete(*words, *more)
        assert (code, lines[-1]["error"]["name"]) == (USAGE, "InvalidInput")
    assert place.registry.head(space_id).sequence == 1


def test_somebody_elses_space_is_refused_before_anything_is_kept(place: Place, export: Path, key_file: Path) -> None:
    space_id = place.register()
    words = place.with_store("space", "migrate", export, "--key-file", key_file, "--space", space_id)
    for more in (("--dry-run",), ()):
        code, lines, _ = place.melete(*words, *more)
        assert (code, lines[-1]["error"]["name"]) == (DOES_NOT_HOLD, "InvalidAuthorization")
    with WitnessStore.open(place.store_path, place.key) as store:
        assert list(store.list_rows()) == []


def test_a_store_that_does_not_open_leaves_no_space_behind(place: Place, export: Path, key_file: Path) -> None:
    block = place.w3.eth.block_number
    code, _, _ = place.melete("space", "migrate", export, "--key-file", key_file, "--witnesses", place.store_path)
    assert code == USAGE
    assert place.w3.eth.block_number == block


def test_an_old_id_is_no_transition_and_no_space_here(place: Place, export: Path, key_file: Path) -> None:
    code, lines, _ = place.melete(
        *place.with_store("space", "migrate", export, "--key-file", key_file, "--space", EXPORT["spaceId"])
    )
    assert (code, lines[0]["error"]["field"]) == (USAGE, "--space")
    assert "/spaceId" in lines[0]["error"]["message"]
    code, lines, _ = place.melete("history", EXPORT["spaceId"])
    assert (code, lines[-1]["error"]["name"]) == (DOES_NOT_HOLD, "UnknownSpace")
    code, lines, _ = place.melete("delta", "show", EXPORT["spaceId"])
    assert (code, lines[-1]["error"]["field"]) == (USAGE, "TRANSITION")
