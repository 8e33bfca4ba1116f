"""Files that are none: nothing hangs, nothing fills the memory, and what the shell hands over is still read."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from melete import errors, signing
from melete.chain.scan.state import StateFile
from melete.cli import verify
from melete.errors import InvalidInput, MissingFile, StoreUnreadable
from melete.files import open_to_read, read_file, to_path
from melete.memory import witness_export
from melete.memory.witness_export import import_witnesses
from melete.memory.witness_keys import StoreKey, load_store_key
from melete.memory.witness_store import WitnessStore

KEY = "0x" + "11" * 32


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe", 0o600)
    return folder / "pipe"


def endless(_: Path) -> Path:
    return Path("/dev/zero")


def folder(path: Path) -> Path:
    return path


def listening(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path / "socket"))
    return path / "socket"


def missing(path: Path) -> Path:
    return path / "nothing"


NO_FILES = [pipe, endless, folder, listening]


@pytest.mark.parametrize("make", [*NO_FILES, missing])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    with pytest.raises(OSError):  # noqa: PT011  # which one, the system says
        open_to_read(make(tmp_path))


def test_a_file_is_read_as_far_as_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_file(tmp_path / "file", 100) == b"x" * 100
    assert len(read_file(str(tmp_path / "file"), 10)) == 11
    assert read_file(os.devnull, 10) == b""


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_a_pipe_that_the_shell_handed_over_is_waited_for(name: str) -> None:
    script = f"from melete.files import read_file; print(read_file({name!r}, 100))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        late = threading.Timer(0.3, lambda: (running.stdin.write("late"), running.stdin.close()))  # type: ignore[union-attr]
        late.start()
        assert running.stdout is not None
        assert running.stdout.read() == "b'late'\n"
        late.join()


# Everything that reads a file somebody named


def import_into_a_store(path: Path) -> Any:
    with WitnessStore.create(Path.cwd() / "store.db", StoreKey(KEY)) as store:
        return import_witnesses(store, path)


READERS = {
    "key_file": signing.load_key_file,
    "keystore": lambda path: signing.load_keystore(path, "password"),
    "store_key": load_store_key,
    "export": import_into_a_store,
    "scan_state": lambda path: StateFile(path).load(),
    "disclosed": lambda path: verify._read(str(path)),
}


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_no_reader_hangs_on_what_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[Path], Any], make: Callable[[Path], Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = make(tmp_path)
    with pytest.raises(MissingFile) as caught:
        reader(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["key_file", "keystore", "store_key", "scan_state"])
def test_a_file_that_is_too_large_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**36)  # without a byte on the disk
    path.chmod(0o600)
    with pytest.raises((InvalidInput, StoreUnreadable), match="large"):
        READERS[name](path)


def test_an_export_with_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(witness_export, "LARGEST_LINE", 1000)
    with (tmp_path / "export").open("wb") as file:
        file.truncate(2**36)
    with pytest.raises(StoreUnreadable, match="1000 bytes"):
        import_into_a_store(tmp_path / "export")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o644], ids=oct)
def test_a_signing_key_that_others_can_use_is_refused_unread(tmp_path: Path, mode: int) -> None:
    (tmp_path / "key").write_text("no key at all")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(InvalidInput, match="chmod 600"):
        signing.load_key_file(tmp_path / "key")


def test_paths_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    assert signing.load_key_file(str(tmp_path / "key")).address == signing.LocalSigner(KEY).address
    key = load_store_key(str(tmp_path / "key"))
    WitnessStore.create(str(tmp_path / "store"), key).close()
    with WitnessStore.open(str(tmp_path / "store"), key) as store:
        store.backup(str(tmp_path / "backup"))
    assert (tmp_path / "backup").is_file()


@pytest.mark.parametrize("path", [None, 7, b"key", "a\0b", ["key"]], ids=repr)
def test_what_names_no_file_is_refused_by_name(path: Any) -> None:
    readers = [signing.load_key_file, READERS["keystore"], load_store_key, StateFile, lambda given: to_path(given, "x")]
    for reader in [*readers, lambda given: WitnessStore.open(given, StoreKey(KEY))]:
        with pytest.raises(InvalidInput, match="pathlib"):
            reader(path)


# Placeholders


@pytest.mark.parametrize("value", errors.PLACEHOLDERS)
def test_a_placeholder_does_not_read_as_the_value(value: str) -> None:
    assert str(InvalidInput("payload", value, "bytes")) == "payload is refused (it is not shown); it must be bytes."


def test_a_value_that_is_none_is_told_from_one_that_is_not_shown() -> None:
    assert str(InvalidInput("key", None, "bytes")) == "key: None is refused; it must be bytes."
    assert (
        str(InvalidInput("key", None, "bytes (it is not shown)"))
        == "key is refused; it must be bytes (it is not shown)."
    )
    with pytest.raises(InvalidInput, match=r"^key is refused; .*not shown"):
        StoreKey("short")
    with pytest.raises(InvalidInput, match=r"^private key is refused; .*not shown"):
        signing.LocalSigner("short")
