from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from melete.cli.memory import command
from melete.cli.memory_record import Sending
from melete.cli.memory_store import StoreOptions
from melete.cli.memory_witnesses import KEPT, NOT_ERASED, make_eraser
from melete.cli.stores import WitnessOptions
from melete.errors import InputError, StoreBusy
from melete.wire.envelope import Envelope, Operation
from melete.wire.recording.evidence import Kept, prove
from melete.wire.serving.mcp_server import _Tools
from melete.wire.serving.tokens import Role
from melete.wire.store import MemoryStore

from .recording_samples import Desk, open_desk
from .samples import EPISODIC, SEMANTIC, remember

KEY_VARIABLES = ("MELETE_WITNESS_KEY", "MELETE_WITNESS_PASSPHRASE", "MELETE_WITNESS_KEY_FILE")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with open_desk(tmp_path, str(tmp_path / "memories.db")) as desk:
        yield desk


@pytest.fixture
def key(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from melete import keccak256

    monkeypatch.setenv("MELETE_WITNESS_KEY", "0x" + keccak256(b"a key for tests").hex())


def kept(desk: Desk, memory_id: str) -> Kept:
    return prove(desk.store, desk.witnesses, memory_id).kept


def recorded(desk: Desk) -> str:
    memory_id = remember(desk.store, "likes coffee")
    desk.record()
    assert kept(desk, memory_id) is Kept.OPENED
    return memory_id


def say(desk: Desk, *words: str, given: str = "") -> Any:
    places = ("--store", str(desk.folder / "memories.db"), "--witnesses", str(desk.folder / "witnesses.db"))
    done = CliRunner().invoke(command, [words[0], *places, *words[1:]], input=given)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def envelope(memory_id: str) -> str:
    return json.dumps(Envelope(Operation.FORGET, EPISODIC, memory_ids=(memory_id,)).to_json())


@pytest.mark.usefixtures("key")
def test_execute_erases_the_witnesses_of_what_it_forgets(desk: Desk) -> None:
    memory_id = recorded(desk)
    assert "detail" not in say(desk, "execute", given=envelope(memory_id))
    assert kept(desk, memory_id) is Kept.ERASED


def test_without_a_key_the_result_says_that_witnesses_are_kept(desk: Desk) -> None:
    one, other, third = recorded(desk), recorded(desk), remember(desk.store, "tea", ttl_seconds=1)
    assert say(desk, "execute", given=envelope(one))["detail"] == KEPT
    assert say(desk, "forget", "--type", "episodic", other, "--json")["detail"] == KEPT
    assert kept(desk, one) is kept(desk, other) is Kept.OPENED
    desk.clock.now += 5
    assert say(desk, "sweep", "--json")["detail"] == KEPT
    assert third


def test_nothing_is_said_of_a_store_that_is_not_on_record(desk: Desk) -> None:
    memory_id = remember(desk.store, "likes coffee")
    assert "detail" not in say(desk, "execute", given=envelope(memory_id))


@pytest.mark.usefixtures("key")
def test_server_erases_the_witnesses_of_what_it_forgets(desk: Desk) -> None:
    erase = make_eraser(desk.store, WitnessOptions(desk.folder / "witnesses.db", None))
    tools = _Tools(desk.store, "default", [Role.WRITER], None, erase)
    memory_id = recorded(desk)
    arguments = {"memory_type": "episodic", "memory_ids": [memory_id]}
    assert "detail" not in tools._execute(Operation.FORGET, arguments)
    assert kept(desk, memory_id) is Kept.ERASED


def test_server_without_a_key_says_that_witnesses_are_kept(desk: Desk) -> None:
    erase = make_eraser(desk.store, WitnessOptions(desk.folder / "witnesses.db", None))
    tools = _Tools(desk.store, "default", [Role.WRITER], None, erase)
    memory_id = recorded(desk)
    arguments = {"memory_type": "episodic", "memory_ids": [memory_id]}
    assert tools._execute(Operation.FORGET, arguments)["detail"] == KEPT
    assert kept(desk, memory_id) is Kept.OPENED


@pytest.mark.usefixtures("key")
def test_server_that_cannot_erase_says_so_and_the_memory_is_forgotten_all_the_same(desk: Desk) -> None:
    erase = make_eraser(desk.store, WitnessOptions(desk.folder / "nowhere.db", None))
    tools = _Tools(desk.store, "default", [Role.WRITER], None, erase)
    memory_id = recorded(desk)
    answer = tools._execute(Operation.FORGET, {"memory_type": "episodic", "memory_ids": [memory_id]})
    assert (answer["ok"], answer["detail"]) == (True, NOT_ERASED)
    assert desk.store.count() == 0


def test_server_over_http_says_what_became_of_the_witnesses(desk: Desk, tmp_path: Path) -> None:
    from melete.wire.serving.http import Limits, _Served
    from melete.wire.serving.tokens import TokenFile

    file = TokenFile(tmp_path / "tokens.json")
    token, _ = file.add("ada", ["default"], ["writer"])
    asked: list[str] = []
    served = _Served(desk.store, file, Limits(), lambda: asked.append("") or "as told")  # type: ignore[func-returns-value]
    memory_id = remember(desk.store, "likes coffee")
    answer, _ = served._execute(token, bytearray(envelope(memory_id).encode()))
    assert json.loads(answer)["detail"] == "as told"
    assert len(asked) == 1


def test_key_that_is_none_ends_a_server_before_it_starts(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MELETE_WITNESS_KEY", "0x12")
    with pytest.raises(InputError):
        make_eraser(desk.store, WitnessOptions(desk.folder / "witnesses.db", None))


# Following, and what a rebuild leaves


def test_sending_waits_longer_after_each_failure_and_tells_a_reason_once() -> None:
    now, sent, told = [0.0], [], []
    reasons = ["gone", "gone", "busy", "gone", *["gone"] * 6]

    def send() -> None:
        sent.append(now[0])
        if reasons:
            raise StoreBusy("node", reasons.pop(0))

    sending = Sending(send, told.append, lambda: now[0])
    while sending.is_due:
        sending.run()
        now[0] += 1
    pauses = [later - earlier for earlier, later in pairwise(sent)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert len(told) == 2
    sending.run()
    assert len(sent) == 11


@pytest.mark.parametrize("is_there", [False, True])
def test_rebuild_that_fails_leaves_no_empty_store(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "new.db"
    if is_there:
        MemoryStore.open(path).close()
    with pytest.raises(StoreBusy), StoreOptions(str(path), "auto").open_new():
        raise StoreBusy("node", "gone")
    assert sorted(item.name for item in tmp_path.iterdir()) == (["new.db"] if is_there else [])


def test_rebuild_that_fails_late_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with suppress(StoreBusy), StoreOptions(str(path), "auto").open_new() as store:
        remember(store, "likes tea")
        raise StoreBusy("node", "gone")
    assert path.exists()


# What an approver sees


def test_who_decides_sees_the_metadata_escaped_and_bounded(tmp_path: Path) -> None:
    from melete.cli.memory_review import describe
    from melete.wire.approval import Queue

    with MemoryStore.open(tmp_path / "memories.db", approval=Queue()) as store:
        remember(store, "tea", SEMANTIC, metadata={"from": "\x1b[2Jdeep", "long": "x" * 9_000})
        (write,) = store.pending()
    assert write.diff.metadata == write.metadata == write.to_json()["metadata"]
    assert say_pending(tmp_path)["pending"][0]["metadata"] == write.metadata
    text = "\n".join(describe(write))
    assert "metadata" in text
    assert "deep" in text
    assert "\x1b" not in text


def say_pending(folder: Path) -> Any:
    done = CliRunner().invoke(command, ["pending", "--store", str(folder / "memories.db"), "--json"])
    return json.loads(done.stdout)
