"""What commands refuse before they sign, connect or write anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from melete.cli.delta import check_payload
from melete.cli.layers import parse_floor
from melete.cli.main import run
from melete.errors import ConfigurationError
from melete.memory.profiles import BUILT_IN

HOLDS, USAGE, COULD_NOT_TELL = 0, 2, 3
SPACE = "0x" + "11" * 32
Melete = Callable[..., tuple[int, str]]


@pytest.fixture
def melete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Melete:
    """Run a command in an empty folder: exit code, and what it says on either stream."""
    for name in [name for name in os.environ if name.startswith("MELETE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def command(*words: object) -> tuple[int, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out + captured.err

    return command


# Payloads


@pytest.mark.parametrize(
    ("profile", "content"),
    [
        ("melete.json/1", b"not json"),
        ("melete.json/1", b'{"b": 1, "a": 2}'),
        ("melete.json/1", b""),
        ("melete.encrypted/1", b"short"),
        ("melete.batch/1", b"no batch"),
        ("melete.space-migration/1", b"{}"),
    ],
)
def test_payload_that_its_profile_does_not_decode_is_refused_with_what_to_do(profile: str, content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="leave --profile away") as caught:
        check_payload(profile, content)
    assert profile in str(caught.value)


@pytest.mark.parametrize(
    ("profile", "content"),
    [("melete.json/1", b'{"a":2}'), ("melete.plain/1", b"\xff"), ("somebody.else/7", b"not json")],
)
def test_payload_that_its_profile_decodes_or_that_nobody_here_knows_is_taken(profile: str, content: bytes) -> None:
    check_payload(profile, content)


@pytest.mark.parametrize("profile", ["", " "])
def test_profile_without_a_name_is_refused(profile: str) -> None:
    with pytest.raises(click.UsageError, match="--profile"):
        check_payload(profile, b"")


def test_refused_payload_is_refused_before_a_node_is_asked(melete: Melete) -> None:
    Path("payload").write_text("not json")
    Path("key").write_text("11" * 32 + "\n")
    Path("key").chmod(0o600)
    words = ("delta", "commit", SPACE, "payload", "--key-file", "key", "--rpc-url", "http://127.0.0.1:1")
    code, told = melete(*words, "--profile", "melete.json/1")
    assert (code, "melete.json/1" in told) == (USAGE, True)
    assert melete(*words)[0] == COULD_NOT_TELL


def test_built_in_profiles_are_all_tried() -> None:
    assert {profile.name for profile in BUILT_IN} >= {"melete.json/1", "melete.encrypted/1", "melete.batch/1"}


# Floors


@pytest.mark.parametrize("second", ["runtime=2d", "0=1d", "runtime=1d"])
def test_layer_is_required_once(second: str) -> None:
    with pytest.raises(click.UsageError, match="runtime twice"):
        parse_floor(("runtime=1d", second), 0)
    assert parse_floor(("runtime=1d", "cognition=2d"), 0).required_layers == 0b1001


# Stores and files


def test_store_that_exists_is_no_reason_to_leave_a_key_behind(melete: Melete) -> None:
    words = ("witness", "init", "--witnesses", "store.db", "--new-key-file")
    assert melete(*words, "first.key")[0] == HOLDS
    code, told = melete(*words, "second.key")
    assert (code, "store.db" in told, Path("second.key").exists()) == (USAGE, True, False)


@pytest.mark.parametrize("store", ["plain/store.db", "/proc/none/store.db", "/dev/null/store.db"])
def test_store_that_cannot_be_made_leaves_no_key_behind(melete: Melete, store: str) -> None:
    Path("plain").write_text("")
    code, told = melete("witness", "init", "--witnesses", store, "--new-key-file", "new.key")
    assert (code, store in told, Path("new.key").exists()) == (COULD_NOT_TELL, True, False)


@pytest.mark.parametrize("key", ["/dev/zero", "pipe"])
def test_key_file_that_is_no_file_is_refused_at_once(melete: Melete, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    os.mkfifo("pipe", 0o600)
    monkeypatch.setenv("MELETE_PASSWORD", "password")
    code, told = melete("space", "show", SPACE, "--config", key)
    assert (code, key in told) == (USAGE, True)
    register = ("space", "register", "--rpc-url", "http://127.0.0.1:1")
    for words in (
        (*register, "--key-file", key),
        (*register, "--keystore", key),
        ("witness", "init", "--witnesses", "store.db", "--witness-key-file", key),
        ("verify", key),
    ):
        code, told = melete(*words)
        assert (code, key in told) == (COULD_NOT_TELL, True)


def test_standard_input_that_is_closed_is_told(melete: Melete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    code, told = melete("verify", "-")
    assert (code, "standard input" in told) == (COULD_NOT_TELL, True)


def test_list_of_a_store_is_json_lines(melete: Melete) -> None:
    assert "an object for each row" in melete("witness", "list", "--help")[1]


@pytest.fixture
def exported(melete: Melete) -> Path:
    """An export of a store under another key than that of `here.db`."""
    for name in ("there", "here"):
        assert melete("witness", "init", "--witnesses", f"{name}.db", "--new-key-file", f"{name}.key")[0] == HOLDS
    words = ("witness", "export", "export", "--witnesses", "there.db", "--witness-key-file", "there.key")
    assert melete(*words)[0] == HOLDS
    return Path("export")


IMPORT = ("witness", "import", "export", "--witnesses", "here.db", "--witness-key-file", "here.key")


def test_export_under_another_key_is_imported_with_that_one(melete: Melete, exported: Path) -> None:
    code, told = melete(*IMPORT)
    assert (code, "--export-key-file" in told) == (USAGE, True)
    assert melete(*IMPORT, "--export-key-file", "there.key")[0] == HOLDS
    assert melete(*IMPORT, "--export-key-file", "here.key")[0] == COULD_NOT_TELL


def test_key_of_the_export_may_come_from_the_environment(melete: Melete, exported: Path, monkeypatch) -> None:
    monkeypatch.setenv("MELETE_EXPORT_KEY_FILE", "there.key")
    assert melete(*IMPORT)[0] == HOLDS
    monkeypatch.setenv("MELETE_EXPORT_PASSPHRASE", "another")
    assert melete(*IMPORT)[0] == USAGE


def test_passphrase_of_the_export_is_tried(melete: Melete, exported: Path, monkeypatch) -> None:
    monkeypatch.setenv("MELETE_WITNESS_PASSPHRASE", "of the other store")
    assert melete("witness", "init", "--witnesses", "third.db")[0] == HOLDS
    assert melete("witness", "export", "third", "--witnesses", "third.db")[0] == HOLDS
    monkeypatch.delenv("MELETE_WITNESS_PASSPHRASE")
    monkeypatch.setenv("MELETE_EXPORT_PASSPHRASE", "of the other store")
    assert melete(*IMPORT[:2], "third", *IMPORT[3:])[0] == HOLDS


def test_looking_at_an_outbox_makes_none(melete: Melete) -> None:
    code, told = melete("outbox", "show", "--outbox", "folder/nope.db")
    assert (code, "nope.db" in told, Path("folder").exists()) == (COULD_NOT_TELL, True, False)


def test_history_makes_no_folder_for_its_file(melete: Melete) -> None:
    code, told = melete("history", SPACE, "--resume", "folder/state", "--rpc-url", "http://127.0.0.1:1")
    assert (code, "folder/state" in told, Path("folder").exists()) == (COULD_NOT_TELL, True, False)


def test_subject_has_to_be_named_in_words_that_help(melete: Melete) -> None:
    Path("cycle.toml").write_text("")
    code, told = melete("cycle", "show", "1")
    assert (code, "None" in told) == (USAGE, False)
