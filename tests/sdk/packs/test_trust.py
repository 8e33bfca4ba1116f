from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from melete.errors import InvalidInput, StoreBusy, StoreNotWritten, StoreUnreadable
from melete.packs.keys import PrivateKey, PublicKey
from melete.packs.trust import TrustedKey, TrustStore, check_time, default_store_path


def make_key(number: int) -> PublicKey:
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)).public


ALICE, ALICE_2, BOB = make_key(1), make_key(2), make_key(3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / ".amp" / "trusted.json"


@pytest.fixture
def store(path: Path) -> TrustStore:
    return TrustStore(path)


def states(store: TrustStore) -> list[tuple[str, str, str]]:
    return [(one.name, one.key.key_id, one.state) for one in store.load()]


def refused_field(action: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        action()
    assert str(caught.value).isprintable()
    return caught.value.field


# Adding, replacing, revoking


def test_store_that_is_not_there_is_empty_and_stays_away(store: TrustStore, path: Path) -> None:
    assert store.load() == store.keys_for_verification() == ()
    assert not path.parent.exists()


def test_added_key_is_found_by_name_and_by_id(store: TrustStore, path: Path) -> None:
    added = store.add("alice", ALICE, "2026-07-01")
    store.add("bob", BOB)
    assert added == TrustedKey("alice", ALICE, "active", "2026-07-01")
    assert TrustStore(path).load()[0] == added
    assert store.find("alice") == store.find(ALICE.key_id) == (added,)
    assert refused_field(lambda: store.find("carol")) == "name"


def test_file_is_its_owners_alone(store: TrustStore, path: Path) -> None:
    before = os.umask(0)
    try:
        store.add("alice", ALICE)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    store.add("bob", BOB)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_name_has_one_first_key_and_a_key_one_name(store: TrustStore) -> None:
    store.add("alice", ALICE)
    assert refused_field(lambda: store.add("alice", BOB)) == "name"
    assert refused_field(lambda: store.add("bob", ALICE)) == "key"
    assert states(store) == [("alice", ALICE.key_id, "active")]


def test_rotated_name_has_its_new_key_and_keeps_the_old_one_as_rotated(store: TrustStore) -> None:
    store.add("alice", ALICE)
    store.add("bob", BOB)
    store.rotate("alice", ALICE_2, "2026-07-02T12:00:00Z")
    assert states(store) == [
        ("alice", ALICE.key_id, "rotated"),
        ("bob", BOB.key_id, "active"),
        ("alice", ALICE_2.key_id, "active"),
    ]
    assert {one.since for one in store.find("alice")} == {"2026-07-02T12:00:00Z"}


@pytest.mark.parametrize("key", [ALICE, ALICE_2, BOB])
def test_key_that_was_ever_known_is_no_new_key(store: TrustStore, key: PublicKey) -> None:
    store.add("alice", ALICE)
    store.rotate("alice", ALICE_2)
    store.add("bob", BOB)
    store.revoke("bob")
    before = store.load()
    assert refused_field(lambda: store.rotate("alice", key)) == "key"
    assert refused_field(lambda: store.add("carol", key)) == "key"
    assert store.load() == before


def test_only_a_name_that_is_there_is_rotated(store: TrustStore) -> None:
    assert refused_field(lambda: store.rotate("alice", ALICE)) == "name"
    assert store.load() == ()


def test_revoking_a_name_revokes_all_its_keys(store: TrustStore) -> None:
    store.add("alice", ALICE)
    store.rotate("alice", ALICE_2)
    store.add("bob", BOB)
    revoked = store.revoke("alice", "2026-07-03")
    assert [(one.state, one.since) for one in revoked] == [("revoked", "2026-07-03")] * 2
    assert states(store)[1:] == [("alice", ALICE_2.key_id, "revoked"), ("bob", BOB.key_id, "active")]


def test_revoking_a_key_id_revokes_that_key_alone(store: TrustStore) -> None:
    store.add("alice", ALICE)
    store.rotate("alice", ALICE_2)
    store.revoke(ALICE.key_id)
    assert states(store) == [("alice", ALICE.key_id, "revoked"), ("alice", ALICE_2.key_id, "active")]


def test_revoked_key_keeps_its_time_and_never_comes_back(store: TrustStore) -> None:
    store.add("alice", ALICE)
    store.revoke("alice", "2026-07-01")
    assert store.revoke("alice", "2027-01-01")[0].since == "2026-07-01"
    store.rotate("alice", ALICE_2)
    assert [state for _, _, state in states(store)] == ["revoked", "active"]


@pytest.mark.parametrize("name", ["carol", "", "0123456789abcdef", "../alice"])
def test_only_what_is_there_is_revoked(store: TrustStore, name: str) -> None:
    store.add("alice", ALICE)
    assert refused_field(lambda: store.revoke(name)) == "name"
    assert states(store) == [("alice", ALICE.key_id, "active")]


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a\n", "\u00e9", ".a", "-a", "a" * 65, "0123456789abcdef", "a\x1b[2J", "al\u0456ce", "/a"]
)
def test_name_that_could_be_taken_for_something_else_is_refused(store: TrustStore, name: str) -> None:
    assert refused_field(lambda: store.add(name, ALICE)) == "name"
    assert refused_field(lambda: store.rotate(name, ALICE)) == "name"


@pytest.mark.parametrize("name", ["a", "alice@example.org", "@creator/slug", "A.B-c_d", "a" * 64])
def test_name_of_a_person_or_a_creator_passes(store: TrustStore, name: str) -> None:
    assert store.add(name, ALICE).name == name


@pytest.mark.parametrize(
    "when", ["", "today", "2026-7-1", "2026-02-30", "2026-07-01T25:00:00Z", "2026-07-01 12:00", "\u0662026-07-01"]
)
def test_time_that_is_none_is_refused(store: TrustStore, when: str) -> None:
    store.add("alice", ALICE)
    assert refused_field(lambda: store.revoke("alice", when)) == "time"
    assert states(store) == [("alice", ALICE.key_id, "active")]


def test_time_is_now_unless_given(store: TrustStore) -> None:
    since = store.add("alice", ALICE).since
    assert check_time(since) == since
    assert since.endswith("Z")


# The file


def write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())


def entry(**members: Any) -> dict[str, Any]:
    own = {"name": "alice", "keyId": ALICE.key_id, "publicKey": ALICE.pem, "state": "active", "since": "2026-07-01"}
    return {**own, **members}


def without(member: str) -> dict[str, Any]:
    return {name: value for name, value in entry().items() if name != member}


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"not json",
        b"\xff",
        [],
        None,
        {},
        {"keys": []},
        {"version": 2, "keys": []},
        {"version": True, "keys": []},
        {"version": 1, "keys": {}},
        {"version": 1, "keys": [], "more": 1},
        {"version": 1, "keys": [1]},
        {"version": 1, "keys": [{}]},
        *({"version": 1, "keys": [without(member)]} for member in entry()),
        {"version": 1, "keys": [entry(more="x")]},
        {"version": 1, "keys": [entry(name=1)]},
        {"version": 1, "keys": [entry(name="a b")]},
        {"version": 1, "keys": [entry(keyId="0" * 16)]},
        {"version": 1, "keys": [entry(keyId=BOB.key_id)]},
        {"version": 1, "keys": [entry(publicKey="none")]},
        {"version": 1, "keys": [entry(state="Revoked")]},
        {"version": 1, "keys": [entry(since="some day")]},
        {"version": 1, "keys": [entry(), entry(name="bob")]},
        {"version": 1, "keys": [entry(), entry(keyId=BOB.key_id, publicKey=BOB.pem)]},
        b'{"version":1,"keys":[],"keys":[]}',
    ],
)
def test_file_of_another_shape_is_not_believed_and_not_written_over(
    store: TrustStore, path: Path, document: Any
) -> None:
    write(path, document)
    before = path.read_bytes()
    for action in (store.load, lambda: store.add("carol", make_key(9)), lambda: store.revoke("alice")):
        with pytest.raises(StoreUnreadable) as caught:
            action()
        assert str(caught.value).isprintable()
    assert path.read_bytes() == before


def test_file_that_is_too_long_is_not_read(store: TrustStore, path: Path) -> None:
    write(path, b'{"version":1,"keys":[]}' + b" " * (4 * 1024 * 1024))
    with pytest.raises(StoreUnreadable, match="too long"):
        store.load()


def test_file_of_the_right_shape_is_read(store: TrustStore, path: Path) -> None:
    write(
        path, {"version": 1, "keys": [entry(), entry(name="bob", keyId=BOB.key_id, publicKey=BOB.pem, state="revoked")]}
    )
    assert states(store) == [("alice", ALICE.key_id, "active"), ("bob", BOB.key_id, "revoked")]


@pytest.mark.parametrize("mode", [0o660, 0o602, 0o666])
def test_file_that_others_may_write_is_not_believed(store: TrustStore, path: Path, mode: int) -> None:
    store.add("alice", ALICE)
    path.chmod(mode)
    with pytest.raises(StoreUnreadable, match=f"{mode:04o}"):
        store.load()


def test_folder_in_the_place_of_the_file_is_told(store: TrustStore, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreUnreadable):
        store.load()


def test_file_that_cannot_be_written_stays_as_it_was(
    store: TrustStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("alice", ALICE)
    before = path.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreNotWritten):
        store.add("bob", BOB)
    assert path.read_bytes() == before
    assert sorted(one.name for one in path.parent.iterdir()) == ["trusted.json", "trusted.json.lock"]


def test_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreNotWritten):
        TrustStore(tmp_path / "file" / "trusted.json").add("alice", ALICE)


def test_default_place_is_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TrustStore().path == default_store_path() == str(tmp_path / ".amp" / "trusted.json")


# Others at the same time


def test_change_waits_for_another_process_and_gives_up(store: TrustStore, path: Path) -> None:
    store.add("alice", ALICE)
    with Path(f"{path}.lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy):
            TrustStore(path, busy_seconds=0.05).add("bob", BOB)
        assert len(store.load()) == 1  # reading never waits
    store.add("bob", BOB)


def add_some(path: str, first: int) -> None:
    for number in range(first, first + 10):
        TrustStore(path, busy_seconds=30).add(f"signer-{number}", make_key(number))


def test_processes_that_add_at_the_same_time_lose_nothing(store: TrustStore, path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_some, args=(str(path), first)) for first in (10, 20, 30, 40)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert sorted(one.name for one in store.load()) == [f"signer-{number}" for number in range(10, 50)]
