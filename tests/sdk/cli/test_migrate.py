"""`melete space migrate` where no node is named: what would be done, and what is refused before any node is asked."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from melete.cli.documents import LARGEST_DOCUMENT
from melete.cli.main import run
from melete.memory.migration import MIGRATION_ID
from melete.memory.space import compute_space_id
from melete.primitives import Bytes32, keccak256
from melete.signing import LocalSigner

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
SIGNER = LocalSigner("0x" + "17" * 32)
SALT = keccak256(b"salt")
SPACE_ID = compute_space_id(SIGNER.address, SALT)


class Desk:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.key = folder / "key"
        self.key.write_text("17" * 32)
        self.key.chmod(0o600)

    def migrate(self, content: bytes | object, *words: object) -> tuple[int, dict[str, Any]]:
        path = self.folder / "export.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        code, out = self.say("space", "migrate", path, "--key-file", self.key, "--json", *words)
        return code, json.loads(out)

    def say(self, *words: object) -> tuple[int, str]:
        code = run([str(word) for word in words])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "17" * 32 not in captured.out + captured.err
        return code, captured.out


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)


def test_a_dry_run_needs_no_node_and_says_so(desk: Desk) -> None:
    content = b'{"root": "r", "version": 2}'
    code, found = desk.migrate(content, "--dry-run", "--salt", SALT)
    assert code == HOLDS
    assert (found["spaceId"], found["salt"]) == (str(SPACE_ID), str(SALT))
    assert (found["controller"], found["profileId"]) == (str(SIGNER.address), str(MIGRATION_ID))
    assert found["payload"]["export"]["sha256"] == "0x" + hashlib.sha256(content).hexdigest()
    assert found["registry"] == "not asked: no node is named"
    assert not (desk.folder / "data").exists()


def test_without_a_salt_each_run_has_a_fresh_one(desk: Desk) -> None:
    salts = {desk.migrate({"root": "r"}, "--dry-run")[1]["salt"] for _ in range(2)}
    assert len(salts) == 2


def test_a_dry_run_for_people_prints_what_is_bound_on_printable_lines(desk: Desk) -> None:
    (desk.folder / "export.json").write_text('{"root": "the old root", "tool": "caf\\u00e9"}')
    code, out = desk.say("space", "migrate", "export.json", "--key-file", desk.key, "--dry-run")
    assert code == HOLDS
    assert "the old root" in out
    assert all(line.isprintable() and line.isascii() for line in out.splitlines())


def test_standard_input_is_read_for_a_dash(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b'{"root": "r"}')

    monkeypatch.setattr("sys.stdin", Input())
    code, out = desk.say("space", "migrate", "-", "--key-file", desk.key, "--dry-run", "--json")
    assert (code, json.loads(out)["payload"]["export"]["bytes"]) == (HOLDS, 13)


def test_other_places_are_named_by_options(desk: Desk) -> None:
    export = {"state": {"hash": "r"}, "by": ["t", 7]}
    words = ("--dry-run", "--root", "/state/hash", "--tool", "/by/0", "--tool-version", "/by/1")
    bound = desk.migrate(export, *words)[1]["payload"]["export"]
    assert (bound["root"], bound["rootPointer"], bound["tool"], bound["toolVersion"]) == ("r", "/state/hash", "t", "7")


@pytest.mark.parametrize(
    ("content", "words", "name"),
    [
        (b"", (), "InvalidJson"),
        (b"no json", (), "InvalidJson"),
        (b"{}", (), "InvalidJson"),
        (b"[" * 10_000, (), "InvalidJson"),
        (b'{"root": 7}', (), "InvalidJson"),
        (b'{"root": "\\u001b[2J"}', (), "InvalidJson"),
        (b'{"root": "r"}', ("--root", "root"), "InvalidInput"),
        (b'{"root": "r"}', ("--root", "/other"), "InvalidJson"),
        (b'{"root": "r"}', ("--tool", "/other"), "InvalidJson"),
        (b'{"root": "r"}', ("--salt", "0x12"), "InvalidInput"),
        (b'{"root": "r"}', ("--space", "space:alice"), "InvalidInput"),
        (b'{"root": "r"}', ("--salt", SALT, "--space", SALT), "UsageError"),
    ],
    ids=range(12),
)
def test_what_is_refused_is_refused_before_a_node_is_asked(
    desk: Desk, content: bytes, words: tuple[object, ...], name: str
) -> None:
    for more in ((), ("--dry-run",)):
        code, found = desk.migrate(content, *words, *more)
        assert (code, found["error"]["name"]) == (USAGE, name)
        assert len(found["error"]["message"]) < 500
    assert not (desk.folder / "data").exists()


def test_a_file_beyond_the_limit_is_refused_unread(desk: Desk) -> None:
    code, found = desk.migrate(b" " * (LARGEST_DOCUMENT + 1), "--dry-run")
    assert (code, found["error"]["name"]) == (USAGE, "InvalidInput")
    assert str(LARGEST_DOCUMENT) in found["error"]["message"]


@pytest.mark.parametrize("spelled", [str(SPACE_ID), SPACE_ID.hex(), "0X" + SPACE_ID.hex().upper()])
def test_no_id_that_stands_in_the_export_becomes_the_new_spaces(desk: Desk, spelled: str) -> None:
    export = {"root": "r", "spaces": [{"id": spelled}]}
    for words, field in ((("--salt", SALT), "spaceId"), (("--space", SPACE_ID), "--space")):
        code, found = desk.migrate(export, "--dry-run", *words)
        assert (code, found["error"]["field"]) == (USAGE, field)
        assert "'/spaces/0/id'" in found["error"]["message"]
    assert desk.migrate(export, "--dry-run", "--space", Bytes32(b"\x01" * 32))[0] == HOLDS


def test_without_a_key_nothing_is_made(desk: Desk) -> None:
    (desk.folder / "export.json").write_text('{"root": "r"}')
    code, out = desk.say("space", "migrate", "export.json", "--json")
    assert (code, json.loads(out)["error"]["name"]) == (USAGE, "UsageError")


def test_without_a_node_the_run_itself_says_what_is_missing(desk: Desk) -> None:
    code, found = desk.migrate({"root": "r"})
    assert (code, found["error"]["name"]) == (USAGE, "ConfigurationError")
