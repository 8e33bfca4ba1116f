"""`melete delta commit` and `melete outbox` when something goes wrong: nobody is left to guess what is on its way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import requests
from web3 import HTTPProvider

from melete.chain.outbox import Outbox
from melete.cli import sending
from melete.cli.main import run

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3


class Desk:
    """A space on the node, keys, a witness store, and the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], keys: list[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.keys = [self.write(f"key{number}", key) for number, key in enumerate(keys)]
        self.outbox = folder / "outbox.db"
        assert self.melete("witness", "init", "--new-key-file", folder / "store-key")[0] == HOLDS
        self.space = self.melete("space", "register", "--key-file", self.keys[0])[1]["spaceId"]

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)
        return path

    def melete(self, *words: object) -> tuple[int, dict[str, Any]]:
        """Run a command with --json: exit code, what was found, and what was said beside it."""
        code = run([*(str(word) for word in words), "--json"])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        lines = captured.out.splitlines()
        return code, {**(json.loads(lines[-1]) if lines else {}), "said": captured.err}

    def commit(self, text: str, *words: object, key: int = 0) -> tuple[int, dict[str, Any]]:
        path = self.write("payload", text)
        return self.melete(
            *("delta", "commit", self.space, path, "--key-file", self.keys[key], "--outbox", self.outbox, *words)
        )

    def run(self, *words: object, key: int = 0) -> tuple[int, dict[str, Any]]:
        return self.melete("outbox", "run", "--key-file", self.keys[key], "--outbox", self.outbox, *words)

    def rotate(self, address: str) -> None:
        code, _ = self.melete(
            *("space", "rotate", self.space, "--authorizer", address, "--key-file", self.keys[0], "--yes")
        )
        assert code == HOLDS

    @property
    def sequence(self) -> str:
        return self.melete("space", "show", self.space)[1]["sequence"]


@pytest.fixture
def desk(tmp_path, monkeypatch, capsys, w3, our_address, accounts) -> Desk:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("MELETE_RPC_URL", w3.provider.endpoint_uri)
    monkeypatch.setenv("MELETE_REGISTRY", str(our_address))
    monkeypatch.setenv("MELETE_WITNESS_KEY_FILE", str(tmp_path / "store-key"))
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys, [accounts[5].private_key, accounts[6].private_key])


def test_what_was_refused_ends_with_one_and_says_why_and_is_rebuilt_by_the_new_authorizer(desk, accounts):
    for number in range(3):
        assert desk.commit(f"memory {number}", "--until", "queued")[0] == HOLDS
    desk.rotate(accounts[6].address)
    code, found = desk.run("--until", "mined")
    assert (code, found["stopped"], found["queued"]) == (DOES_NOT_HOLD, "1", "2")
    code, found = desk.commit("one more", key=1)
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "LaneStopped")
    assert "outbox rebuild" in found["error"]["message"]
    code, found = desk.melete("outbox", "rebuild", desk.space, "--key-file", desk.keys[1], "--outbox", desk.outbox)
    assert (code, found["rebuilt"]) == (HOLDS, ["1", "2", "3"])
    assert desk.run("--until", "mined", key=1)[0] == HOLDS
    assert desk.sequence == "3"


def test_a_commit_that_is_refused_ends_with_one_and_says_why(desk, monkeypatch):
    honest = HTTPProvider.make_request

    def refuse(provider, method, parameters):
        if method == "eth_estimateGas":
            return {"jsonrpc": "2.0", "id": 1, "error": {"code": 3, "message": "execution reverted", "data": "0x"}}
        return honest(provider, method, parameters)

    monkeypatch.setattr(HTTPProvider, "make_request", refuse)
    code, found = desk.commit("memory")
    assert (code, found["sequence"], found["state"]) == (DOES_NOT_HOLD, "1", "refused")
    assert "without saying why" in found["reason"]


def test_a_commit_without_an_answer_says_that_it_is_queued_and_is_not_to_be_asked_again(desk, monkeypatch):
    def lose(*_: Any) -> Any:
        raise requests.ConnectionError("the answer was lost")

    honest = requests.Session.send

    def send(session, prepared, **options):
        body = prepared.body or b""
        return lose() if b"eth_sendRawTransaction" in body else honest(session, prepared, **options)

    with monkeypatch.context() as patch:
        patch.setattr(requests.Session, "send", send)
        code, found = desk.commit("memory")
    assert (code, found["sequence"], found["state"]) == (COULD_NOT_TELL, "1", "sent")
    assert "do not ask for it again" in found["said"]
    assert desk.run("--until", "mined")[0] == HOLDS
    assert desk.sequence == "1"


def test_a_commit_beside_another_process_waits_for_it_and_is_told_apart(desk, monkeypatch):
    monkeypatch.setattr(sending, "BUSY_SECONDS", 0.5)
    with Outbox(desk.outbox) as another, another.acting():
        code, found = desk.commit("memory")
    assert (code, found["state"]) == (COULD_NOT_TELL, "queued")
    assert "another process" in found["said"]
    assert desk.run("--until", "mined")[0] == HOLDS


def test_withdrawing_shows_first_what_would_go(desk, accounts):
    for number in range(2):
        desk.commit(f"memory {number}", "--until", "queued")
    desk.rotate(accounts[6].address)
    assert desk.run("--until", "mined")[0] == DOES_NOT_HOLD
    words = ("outbox", "withdraw", desk.space, "--outbox", desk.outbox)
    code, found = desk.melete(*words)
    assert (code, found["wouldWithdraw"]) == (HOLDS, ["1", "2"])
    code, found = desk.melete(*words, "--yes")
    assert (code, found["withdrawn"]) == (HOLDS, ["1", "2"])
    code, found = desk.commit("another", key=1)
    assert (code, found["sequence"], found["state"]) == (HOLDS, "1", "mined")


def test_a_registry_that_is_not_there_is_no_usage_error(desk):
    assert desk.commit("memory", "--until", "queued")[0] == HOLDS
    with Outbox(desk.outbox) as outbox:
        (item,) = outbox.items()
        outbox._db.execute("UPDATE item SET target = ? WHERE id = ?", (b"\x99" * 20, item.id))
    code, found = desk.run()
    assert (code, found["error"]["name"]) == (COULD_NOT_TELL, "NoContract")
