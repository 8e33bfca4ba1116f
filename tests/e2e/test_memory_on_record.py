"""Memory on record, on a real chain: recorded, proven, forgotten, attested, rebuilt and restored, and with faults."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

from melete import Address, Bytes32, LocalSigner, MemoryRegistry, Transition, keccak256, verify_history
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender, transact
from melete.cli.main import run
from melete.errors import AlreadyAttested, NotSpaceController
from melete.memory.batch import Operation
from melete.memory.extensions.deletion import DeletionAttestation
from melete.memory.outbox import MemoryRules, delta_of
from melete.memory.witness_drill import Answer, drill
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_kinds import OPERATION
from melete.memory.witness_store import WitnessStore
from melete.wire.envelope import MemoryType
from melete.wire.recording.attesting import attest, find_attestation
from melete.wire.recording.batches import open_delta
from melete.wire.recording.evidence import Kept, Standing, prove
from melete.wire.recording.operations import Content
from melete.wire.recording.rebuild import rebuild
from melete.wire.recording.recorder import Recorder
from melete.wire.store import MemoryStore

ANVIL_KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
TEST_KEY = StoreKey(keccak256(b"a key for tests"))
HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
EPISODIC = MemoryType.EPISODIC
#: The tables of a store whose rows a rebuilt one has, too.
TABLES = ("memories", "audit", "pending", "names", "recordings", "recorded")


@pytest.fixture(scope="module")
def node() -> Iterator[Anvil]:
    with Anvil() as started:
        yield started


@pytest.fixture
def chain(node) -> Web3:
    return connect(node.url)


@pytest.fixture(scope="module")
def payer() -> LocalSender:
    return LocalSender(LocalSigner(ANVIL_KEY))


@pytest.fixture(scope="module")
def author() -> LocalSigner:
    return LocalSigner(keccak256(b"author"))


@pytest.fixture(scope="module")
def registry_address(node, payer) -> Address:
    registry, _ = MemoryRegistry.deploy(connect(node.url), payer)
    return registry.address


@pytest.fixture
def local_registry(chain, registry_address, payer) -> MemoryRegistry:
    return MemoryRegistry(chain, registry_address, sender=payer)


@dataclass
class Desk:
    """A store on record in a space of the chain, and everything around it."""

    folder: Path
    registry: MemoryRegistry
    space: Bytes32
    store: MemoryStore
    outbox: Outbox
    witnesses: WitnessStore
    recorder: Recorder
    submitter: Submitter

    def record(self) -> None:
        self.recorder.flush()
        self.submitter.run(until=State.MINED)

    def remember(self, *texts: str) -> list[str]:
        return [self.store.remember(EPISODIC, text, tags=["x"]).ids[0] for text in texts]

    def history(self) -> list[Transition]:
        """The space's transitions, as one verified history that ends at the registry's head."""
        found = [event.transition for event in self.registry.transitions(self.space)]
        assert verify_history(self.space, found) == self.registry.head(self.space)
        return found

    def prove(self, memory_id: str) -> Any:
        return prove(self.store, self.witnesses, memory_id, self.registry)


@pytest.fixture
def make_desk(tmp_path, author, payer, request) -> Iterator[Callable[..., Desk]]:
    opened: list[Any] = []

    def make(registry: MemoryRegistry, confirmations: int = 0) -> Desk:
        WitnessStore.create(tmp_path / "witnesses.db", TEST_KEY).close()
        store = MemoryStore.open(tmp_path / "memories.db")
        outbox = Outbox(tmp_path / "outbox.db")
        witnesses = WitnessStore.open(tmp_path / "witnesses.db", TEST_KEY)
        opened.extend([store, outbox, witnesses])
        space = registry.register(author.address, keccak256(request.node.nodeid.encode())).space_id
        recorder = Recorder(store, outbox, registry, witnesses, space, author, most=3)
        submitter = Submitter(registry.w3, outbox, payer, MemoryRules(), confirmations=confirmations,
                              poll_seconds=0.01, patience_seconds=0.3)  # fmt: skip
        return Desk(tmp_path, registry, space, store, outbox, witnesses, recorder, submitter)

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def desk(make_desk, local_registry) -> Desk:
    return make_desk(local_registry)


def rows_of(store: MemoryStore) -> dict[str, list[Any]]:
    found = {}
    with store._core.database.reading() as connection:
        for table in TABLES:
            rows = connection.exec_driver_sql(f"SELECT * FROM {table}")  # noqa: S608
            found[table] = sorted((tuple(row) for row in rows), key=repr)
    return found


def recorded_rows(desk: Desk, history: list[Transition]) -> list[int]:
    """The audit rows that the transitions of a space record, in order."""
    numbers = []
    for transition in history:
        opened = open_delta(desk.witnesses, transition.delta)
        assert opened is not None
        numbers += range(opened.head.first, opened.head.last + 1)
    return numbers


# The usual day


def test_writes_are_recorded_in_batches_and_each_is_proven_to_the_state_root(desk):
    ids = desk.remember(*(f"tea {number}" for number in range(7)))
    desk.record()
    history = desk.history()
    assert recorded_rows(desk, history) == list(range(1, 8))
    for number, memory_id in enumerate(ids):
        evidence = desk.prove(memory_id)
        assert (evidence.standing, evidence.kept) == (Standing.COMMITTED, Kept.OPENED)
        transition = history[number // 3]
        assert evidence.made.anchor.delta == transition.delta
        assert evidence.made.anchor.state_root == transition.next_state_root
        assert evidence.made.anchor.reference.block_number > 0
        assert evidence.registry_head == desk.registry.head(desk.space)


def test_registry_with_the_normative_interface_alone_is_recorded_in_too(make_desk, chain, payer, project):
    project.load_contracts()
    code = bytes(project.get_contract("NormativeMemoryRegistry").constructor.serialize_transaction().data)
    address = transact(chain, payer, chain.eth.chain_id, None, code).contract_address
    desk = make_desk(MemoryRegistry(chain, address, sender=payer))
    first, *_ = desk.remember("tea", "coffee", "milk", "water")
    desk.record()
    assert desk.prove(first).standing is Standing.COMMITTED
    with MemoryStore.open(desk.folder / "new.db") as new:
        rebuild(new, desk.witnesses, desk.registry.domain, desk.space, desk.history())
        assert rows_of(new) == rows_of(desk.store)


def test_forgotten_memory_loses_its_witness_while_its_transition_stands(desk):
    gone, kept = desk.remember("likes coffee", "likes tea")
    desk.record()
    before = desk.history()
    desk.store.forget(EPISODIC, [gone])
    desk.record()
    history = desk.history()
    assert history[: len(before)] == before
    evidence = desk.prove(gone)
    assert (evidence.state, evidence.kept, evidence.standing) == ("forgotten", Kept.ERASED, Standing.COMMITTED)
    assert evidence.made.anchor.delta == before[0].delta
    assert desk.prove(kept).kept is Kept.OPENED
    findings = list(drill(desk.witnesses, (transition.delta for transition in history)))
    assert Counter(finding.answer for finding in findings)[Answer.ERASED] == 1
    opened = [entry.record.content for entry in desk.witnesses.iterate(OPERATION) if entry.record]
    assert not any(b"coffee" in content for content in opened)


def test_store_is_rebuilt_from_the_chain_and_the_witnesses_row_by_row(desk):
    first, second, third = desk.remember("tea one", "tea two", "coffee")
    desk.store.merge(EPISODIC, [first, second])
    desk.store.expire(EPISODIC, [third], ttl_seconds=10**6)
    desk.record()
    earlier = rows_of(desk.store)
    sequence = desk.registry.head(desk.space).sequence
    desk.remember("milk")
    desk.store.forget(EPISODIC, [third])
    desk.record()
    with MemoryStore.open(desk.folder / "new.db") as new:
        found = rebuild(new, desk.witnesses, desk.registry.domain, desk.space, desk.history())
        assert rows_of(new) == rows_of(desk.store)
        assert (found.forgotten, found.is_whole) == ((), True)
        assert [hit.content for hit in new.recall(EPISODIC, "tea").hits] == ["tea one\ntea two"]
    with MemoryStore.open(desk.folder / "earlier.db") as new:
        found = rebuild(new, desk.witnesses, desk.registry.domain, desk.space, desk.history(), at=sequence)
        assert [one.id for one in found.forgotten] == [third]
        assert rows_of(new)["memories"] == [row for row in earlier["memories"] if third not in row]


def test_deletion_is_attested_by_the_controller_once(desk, chain, payer, author):
    gone, also = desk.remember("likes coffee", "likes milk")
    desk.record()
    desk.store.forget(EPISODIC, [gone])
    desk.store.forget(EPISODIC, [also])
    desk.record()
    contract, _ = DeletionAttestation.deploy(desk.registry, payer)
    event = attest(desk.store, desk.witnesses, contract, gone)
    evidence = desk.prove(gone)
    assert event.transition_id == evidence.ended.anchor.transition_id
    kept: Operation = desk.witnesses.get(OPERATION.place(event.transition_id, 0))
    assert event.evidence_commitment == kept.compute_leaf() == find_attestation(contract, evidence)
    assert {memory["id"] for memory in json.loads(kept.content)["memories"]} == {gone, also}
    with pytest.raises(AlreadyAttested):
        attest(desk.store, desk.witnesses, contract, also)
    outsider = DeletionAttestation(desk.registry, contract.address, sender=LocalSender(author))
    with pytest.raises(NotSpaceController):
        attest(desk.store, desk.witnesses, outsider, gone)


# Faults of the chain


@pytest.mark.parametrize("depth", [1, 2])
def test_recorded_write_that_a_reorganization_takes_back_is_recorded_again(make_desk, local_registry, chain, depth):
    desk = make_desk(local_registry, confirmations=4)
    chain.provider.make_request("anvil_mine", [hex(depth + 1)])
    first, *_ = desk.remember("tea", "coffee", "milk")
    desk.record()
    assert desk.prove(first).standing is Standing.COMMITTED
    before = desk.history()
    chain.provider.make_request("anvil_reorg", [depth, []])
    assert desk.prove(first).standing is Standing.QUEUED
    chain.provider.make_request("anvil_mine", [hex(1)])
    desk.remember("water")
    desk.recorder.flush()
    desk.submitter.run(until=State.MINED)
    chain.provider.make_request("anvil_mine", [hex(6)])
    desk.submitter.run()
    history = desk.history()
    assert history[: len(before)] == before
    assert recorded_rows(desk, history) == [1, 2, 3, 4]
    assert desk.prove(first).standing is Standing.COMMITTED


def test_transition_of_somebody_else_is_gone_around_when_it_is_retried(desk, author):
    from melete import Witness
    from melete.memory.profiles import PLAIN

    ids = desk.remember("tea", "coffee", "milk", "water")
    desk.recorder.flush()
    foreign = Witness(PLAIN.id, b"theirs", keccak256(b"salt")).build_delta(desk.space, desk.registry.head(desk.space))
    desk.registry.commit(foreign, authorizer=author)
    assert desk.submitter.run().stopped == 2
    assert desk.recorder.retry() == 2
    assert desk.submitter.run().stopped == 0
    history = desk.history()
    assert history[0].delta == foreign
    assert recorded_rows(desk, history[1:]) == [1, 2, 3, 4]
    assert all(desk.prove(memory_id).standing is Standing.COMMITTED for memory_id in ids)


# Kill it anywhere


#: About so many statements and requests it takes to write, record and send a few rows.
STEPS_OF_A_FEW_ROWS = 400


def test_process_killed_at_random_points_leaves_everything_in_agreement(
    node, local_registry, author, request, tmp_path
):
    """Each round starts the same program on the same files, and kills it at another step of its work."""
    kills, rows = (100, 150) if os.environ.get("MELETE_HYPOTHESIS_PROFILE") == "deep" else (12, 40)
    space = local_registry.register(author.address, keccak256(request.node.nodeid.encode())).space_id
    WitnessStore.create(tmp_path / "witnesses.db", TEST_KEY).close()
    command = [sys.executable, str(Path(__file__).with_name("recording_worker.py")), node.url,
               str(local_registry.address), str(space), str(tmp_path), str(rows)]  # fmt: skip
    dice = random.Random(11)
    for _ in range(kills):
        killed = subprocess.run([*command, str(dice.randint(1, STEPS_OF_A_FEW_ROWS))], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (
        MemoryStore.open(tmp_path / "memories.db") as store,
        Outbox(tmp_path / "outbox.db") as outbox,
        WitnessStore.open(tmp_path / "witnesses.db", TEST_KEY) as witnesses,
        MemoryStore.open(tmp_path / "rebuilt.db") as rebuilt,
    ):
        recorder = Recorder(store, outbox, local_registry, witnesses, space, author)
        desk = Desk(tmp_path, local_registry, space, store, outbox, witnesses, recorder, None)
        history = desk.history()
        head = store.verify_audit()
        assert recorder.count_waiting() == 0
        assert recorded_rows(desk, history) == list(range(1, head.number + 1))
        items = outbox.items()
        assert Counter(item.state for item in items) == {State.DONE: len(history)}
        assert [delta_of(item) for item in items] == [transition.delta for transition in history]
        assert {finding.answer for finding in drill(witnesses, (each.delta for each in history))} <= {
            Answer.OPENED,
            Answer.ERASED,
        }
        opened = [entry.record.content for entry in witnesses.iterate(OPERATION) if entry.record]
        contents = {Content.from_bytes(each).content for each in opened if b"memory-content" in each}
        assert contents == {row[12] for row in rows_of(store)["memories"]}
        assert len({row.place.scope for row in witnesses.list_rows(OPERATION)}) == len(history)
        rebuild(rebuilt, witnesses, local_registry.domain, space, history)
        assert rows_of(rebuilt) == rows_of(store)


# The same from a shell


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def melete(workplace, capsys, monkeypatch, node, registry_address) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Run a command against the node, with --json; return exit code and what was found. Nothing secret is printed."""
    monkeypatch.setenv("MELETE_RPC_URL", node.url)
    monkeypatch.setenv("MELETE_REGISTRY", str(registry_address))

    def command(*words: object) -> tuple[int, dict[str, Any]]:
        code = run([*(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "zanzibar" not in captured.out + captured.err
        lines = captured.out.splitlines()
        return code, json.loads(lines[-1]) if lines else {"stderr": captured.err}

    return command


@pytest.fixture
def key_file(workplace) -> Path:
    path = workplace / "key"
    path.write_text(ANVIL_KEY + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def space(melete, workplace, key_file, monkeypatch) -> str:
    """A space, and a witness store, made as the user does it."""
    assert melete("witness", "init", "--new-key-file", workplace / "store-key")[0] == HOLDS
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(workplace / "store-key"))
    code, found = melete("space", "register", "--key-file", key_file)
    assert code == HOLDS
    return found["spaceId"]


def remember(melete, text: str) -> str:
    code, found = melete("memory", "remember", "--type", "episodic", text)
    assert code == HOLDS
    return found["ids"][0]


def record(melete, key_file, *words: object) -> dict[str, Any]:
    code, found = melete("memory", "record", "--key-file", key_file, *words)
    assert code == HOLDS, found
    return found


def test_a_day_with_the_commands(melete, workplace, key_file, space, local_registry, payer):
    gone, kept = remember(melete, "zanzibar"), remember(melete, "likes zanzibar too")
    assert melete("memory", "prove", gone)[1]["standing"] == "waits to be recorded"
    found = record(melete, key_file, "--space", space)
    assert (found["batches"], found["recorded"], found["stopped"]) == (1, 2, 0)
    code, found = melete("memory", "prove", gone)
    assert (code, found["standing"], found["content"]) == (HOLDS, "committed", "opened")
    assert melete("memory", "forget", "--type", "episodic", gone)[0] == HOLDS
    code, found = melete("memory", "prove", gone)
    assert (code, found["content"]) == (COULD_NOT_TELL, "erased")  # at once; that it is forgotten waits to be recorded
    found = record(melete, key_file)  # the store knows its space by now
    assert (found["spaceId"], found["erased"], found["scrubbed"]) == (space, 0, True)
    code, found = melete("memory", "prove", gone)
    assert (code, found["state"], found["content"]) == (HOLDS, "forgotten", "erased")
    contract, _ = DeletionAttestation.deploy(local_registry, payer)
    words = ("memory", "attest", gone, "--contract", contract.address, "--key-file", key_file)
    code, found = melete(*words)
    assert code == HOLDS
    assert contract.evidence_of(Bytes32(found["transitionId"])) == Bytes32(found["evidenceCommitment"])
    assert melete(*words)[1]["error"]["name"] == "AlreadyAttested"
    assert melete("memory", "attest", kept, *words[3:])[1]["error"]["name"] == "NotForgotten"
    code, found = melete("memory", "rebuild", "--space", space, "--store", workplace / "new.db")
    assert (code, found["memories"], found["forgottenSince"]) == (HOLDS, 1, [])
    code, found = melete("memory", "rebuild", "--space", space, "--at", "1", "--store", workplace / "earlier.db")
    assert (code, found["forgottenSince"]) == (HOLDS, [f"{gone} (forgotten)"])
    assert melete("witness", "drill", space)[1]["closed"][0].endswith("erased")
    assert melete("history", space)[0] == HOLDS


def test_forgetting_without_the_witness_stores_key_says_what_is_still_kept(
    melete, key_file, space, capsys, monkeypatch
):
    memory_id = remember(melete, "zanzibar")
    record(melete, key_file, "--space", space)
    with monkeypatch.context() as without:
        for name in ("MELETE_WITNESS_KEY", "MELETE_WITNESS_KEY_FILE", "MELETE_WITNESS_PASSPHRASE"):
            without.delenv(name, raising=False)
        assert run(["memory", "forget", "--type", "episodic", memory_id]) == HOLDS
        told = capsys.readouterr()
        assert "melete memory record" in told.out + told.err
    assert record(melete, key_file)["erased"] == 1


def test_proof_reads_well_for_people_and_needs_no_node_offline(melete, key_file, space, capsys):
    memory_id = remember(melete, "likes zanzibar")
    record(melete, key_file, "--space", space)
    assert run(["memory", "prove", memory_id]) == HOLDS
    shown = capsys.readouterr().out
    assert "state root" in shown
    assert "zanzibar" not in shown
    code, found = melete("memory", "prove", memory_id, "--offline", "--rpc-url", "http://127.0.0.1:1")
    assert (code, found["standing"]) == (HOLDS, "recorded")
    assert melete("memory", "prove", memory_id, "--rpc-url", "http://127.0.0.1:1")[0] == COULD_NOT_TELL


def test_what_is_only_queued_is_sent_by_another_run(melete, key_file, space):
    memory_id = remember(melete, "tea")
    record(melete, key_file, "--space", space, "--until", "queued")
    code, found = melete("memory", "prove", memory_id)
    assert (code, found["standing"]) == (COULD_NOT_TELL, "recorded, and not in the registry yet")
    assert record(melete, key_file)["recorded"] == 0
    assert melete("memory", "prove", memory_id)[0] == HOLDS


def test_recording_goes_on_until_it_is_interrupted(melete, key_file, space):
    """What is written meanwhile, by another process, is on record soon after."""
    command = [sys.executable, "-m", "melete.cli.main", "memory", "record", "--space", space, "--key-file",
               str(key_file), "--follow", "0.1", "--json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for text in ("zanzibar", "tea"):
                memory_id = remember(melete, text)
                until = time.monotonic() + 30
                while melete("memory", "prove", memory_id)[0] != HOLDS:
                    assert process.poll() is None, process.stderr.read()
                    assert time.monotonic() < until
                    time.sleep(0.1)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        told = [json.loads(line) for line in process.stdout]
    assert sum(each["recorded"] for each in told) == 2


def backup(workplace: Path, name: str) -> Path:
    """The store's file as it is now."""
    from melete.wire.recording.preflight import copy_store

    path = workplace / name
    path.touch(0o600)
    copy_store(workplace / "data" / "melete" / "memories.db", path)
    return path


def test_backups_are_told_apart_and_only_known_states_are_restored(melete, workplace, key_file, space):
    gone = remember(melete, "zanzibar")
    record(melete, key_file, "--space", space)
    earlier = backup(workplace, "earlier.db")
    remember(melete, "milk")
    melete("memory", "forget", "--type", "episodic", gone)
    record(melete, key_file)
    head = backup(workplace, "head.db")
    remember(melete, "water")
    ahead = backup(workplace, "ahead.db")
    apart = workplace / "apart.db"
    assert melete("memory", "remember", "--type", "episodic", "other", "--store", apart)[0] == HOLDS
    for path, code, verdict in (
        (head, HOLDS, "the canonical head"),
        (earlier, HOLDS, "a known earlier state"),
        (ahead, DOES_NOT_HOLD, "a state that is recorded nowhere"),
        (apart, DOES_NOT_HOLD, "another history than the recorded one"),
    ):
        found = melete("memory", "check", path, "--space", space)
        assert (found[0], found[1]["verdict"]) == (code, verdict)
        target = workplace / f"restored {path.name}"
        code, found = melete("memory", "restore", path, "--space", space, "--store", target)
        if verdict in ("the canonical head", "a known earlier state"):
            assert code == HOLDS
            receipt = json.loads(Path(found["receipt"]).read_text())
            assert (receipt["verdict"], receipt["forced"]) == (verdict, False)
            assert receipt["forgottenSince"] == ([gone] if path is earlier else [])
            assert b"zanzibar" not in target.read_bytes()
        else:
            assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "UnsafeBackup")
            assert not target.exists()
    assert found["error"]["path"] == str(apart)
    code, found = melete("memory", "check", head, "--space", space, "--rpc-url", "http://127.0.0.1:1")
    assert code == COULD_NOT_TELL


def test_backup_cannot_be_told_without_the_witnesses(melete, workplace, key_file, space):
    remember(melete, "tea")
    record(melete, key_file, "--space", space)
    path = backup(workplace, "head.db")
    assert melete("witness", "erase", space, "1", "--yes")[0] == HOLDS
    code, found = melete("memory", "check", path, "--space", space)
    assert (code, found["verdict"], found["unread"]) == (COULD_NOT_TELL, "could not be told", ["1"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("record",), USAGE),
        (("record", "--space", "0x00"), USAGE),
        (("record", "--space", "0x" + "11" * 32), DOES_NOT_HOLD),
        (("rebuild", "--space", "0x" + "11" * 32), DOES_NOT_HOLD),
        (("rebuild",), USAGE),
        (("check", "nowhere.db", "--space", "0x" + "11" * 32), DOES_NOT_HOLD),
        (("check", "mysql://ada:zanzibar@host/db", "--space", "0x" + "11" * 32), USAGE),
        (("restore", "postgresql://ada:zanzibar@host/db", "--space", "0x" + "11" * 32), USAGE),
        (("restore", "x.db", "--store", "postgresql://ada:zanzibar@host/db", "--space", "0x" + "11" * 32), USAGE),
        (("prove", "no id"), USAGE),
    ],
)
def test_what_is_missing_or_unknown_is_named(melete, key_file, space, words, code):
    remember(melete, "tea")
    keys = ("--key-file", key_file) if words[0] == "record" else ()
    found = melete("memory", *words, *keys)
    assert found[0] == code, found
    assert "error" in found[1]


def test_sequence_beyond_the_last_is_named(melete, workplace, key_file, space):
    remember(melete, "tea")
    record(melete, key_file, "--space", space)
    code, found = melete("memory", "rebuild", "--space", space, "--at", "2", "--store", workplace / "new.db")
    assert (code, found["error"]["field"]) == (USAGE, "at")
