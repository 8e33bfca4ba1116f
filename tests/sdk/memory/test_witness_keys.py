from __future__ import annotations

import hashlib
import hmac
import pickle
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import ConfigurationError, InvalidInput, MissingFile, NotAuthentic, WrongKey
from melete.memory.witness_keys import (
    KeyRecord,
    Passphrase,
    ScryptCost,
    Sealer,
    StoreKey,
    create_key_file,
    fresh_salt,
    load_key_file,
    load_key_from_environment,
    load_store_key,
)

from .witness_samples import CHEAP, KEY, OTHER_KEY, PASSPHRASE, mode_of

RAW = b"\x01" * 32
SALT = bytes(range(32))


def unlocks(key: Any, record: KeyRecord) -> bool:
    try:
        Sealer.unlock(key, record, "the store")
    except WrongKey:
        return False
    return True


# Where keys come from


@pytest.mark.parametrize("key", [RAW, RAW.hex(), "0x" + RAW.hex(), RAW.hex().upper()])
def test_key_is_taken_as_bytes_or_hex(key: bytes | str) -> None:
    assert unlocks(StoreKey(key), Sealer.fresh(KEY).record)


@pytest.mark.parametrize("key", [b"", RAW[:31], RAW + b"\x01", "", "01" * 31, "01" * 33, "zz" * 32, 1, None])
def test_key_of_another_length_is_refused_and_not_shown(key: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        StoreKey(key)
    assert caught.value.value is None


@pytest.mark.parametrize("content", [RAW, RAW.hex().encode(), b"0x" + RAW.hex().encode() + b"\r\n"])
def test_key_file_holds_bytes_or_hex(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    assert unlocks(load_key_file(tmp_path / "key"), Sealer.fresh(KEY).record)
    assert unlocks(load_store_key(str(tmp_path / "key")), Sealer.fresh(KEY).record)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777], ids=oct)
def test_key_file_that_others_can_use_is_refused_unread(tmp_path: Path, mode: int) -> None:
    create_key_file(tmp_path / "key")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(InvalidInput, match="chmod 600"):
        load_key_file(tmp_path / "key")


@pytest.mark.parametrize("key", [RAW, RAW.hex(), None, "passphrase"], ids=["bytes", "hex", "none", "text"])
def test_what_is_no_key_is_refused_and_not_shown(key: Any) -> None:
    for use in (lambda: Sealer.fresh(key), lambda: Sealer.unlock(key, Sealer.fresh(KEY).record, "the store")):
        with pytest.raises(InvalidInput, match="a StoreKey or a Passphrase") as caught:
            use()
        assert RAW.hex() not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"secret", RAW[:31], RAW.hex().encode()[:-1], b"\xff" * 64, b"0" * 10**6])
def test_file_that_holds_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(InvalidInput) as caught:
        load_key_file(tmp_path / "key")
    assert "secret" not in str(caught.value)


def test_missing_key_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "key", tmp_path):
        with pytest.raises(MissingFile):
            load_key_file(path)


def test_new_key_file_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    key = create_key_file(tmp_path / "key")
    assert mode_of(tmp_path / "key") == 0o600
    assert unlocks(load_key_file(tmp_path / "key"), Sealer.fresh(key).record)
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(InvalidInput):
        create_key_file(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before
    with pytest.raises(MissingFile):
        create_key_file(tmp_path / "nowhere" / "key")


def test_environment_gives_a_key_or_a_passphrase() -> None:
    assert unlocks(load_key_from_environment({"MELETE_WITNESS_KEY": RAW.hex()}), Sealer.fresh(KEY).record)
    passphrase = load_key_from_environment({"MELETE_WITNESS_PASSPHRASE": "correct horse", "MELETE_WITNESS_KEY": ""})
    assert unlocks(passphrase, Sealer.fresh(PASSPHRASE).record)


@pytest.mark.parametrize("environment", [{}, {"MELETE_WITNESS_KEY": "a", "MELETE_WITNESS_PASSPHRASE": "b"}])
def test_environment_that_gives_neither_or_both_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        load_key_from_environment(environment)


def test_fresh_salts_and_keys_differ() -> None:
    assert len({fresh_salt() for _ in range(100)}) == 100
    assert not unlocks(StoreKey.fresh(), Sealer.fresh(StoreKey.fresh()).record)


# Passphrases


def test_passphrase_is_the_same_however_its_accents_were_typed() -> None:
    record = Sealer.fresh(Passphrase("caf\u00e9", CHEAP)).record
    assert unlocks(Passphrase("cafe\u0301"), record)
    assert not unlocks(Passphrase("cafe"), record)


def test_cost_of_a_passphrase_is_that_of_the_file() -> None:
    record = Sealer.fresh(Passphrase("correct horse", ScryptCost(4, 2, 3))).record
    assert record.cost == ScryptCost(4, 2, 3)
    assert unlocks(Passphrase("correct horse", ScryptCost(2, 1, 1)), record)
    assert not unlocks(Passphrase("correct horse"), KeyRecord(record.salt, record.check, ScryptCost(8, 2, 3)))


@pytest.mark.parametrize("text", ["", "\ud800", None, 5, b"bytes"])
def test_passphrase_that_is_none_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput):
        Passphrase(text)


@pytest.mark.parametrize("p", [0, -1, 17])
def test_passes_that_take_too_long_are_refused(p: int) -> None:
    with pytest.raises(InvalidInput):
        ScryptCost(2, 8, p)


@pytest.mark.parametrize(
    "cost", [(0, 8, 1), (1, 8, 1), (3, 8, 1), (2**24, 8, 1), (2**40, 1, 1), (2, 0, 1), (2.0, 8, 1), (True, 8, 1)]
)
def test_cost_that_scrypt_or_the_machine_cannot_pay_is_refused(cost: Any) -> None:
    with pytest.raises(InvalidInput):
        ScryptCost(*cost)


def test_cost_unless_set_takes_128_megabytes() -> None:
    cost = Passphrase("correct horse").cost
    assert 128 * cost.n * cost.r == 2**27


# Rows


def test_sealed_row_is_what_the_description_says_by_other_code() -> None:
    for key, master in ((KEY, RAW), (PASSPHRASE, hashlib.scrypt(b"correct horse", salt=SALT, n=2, r=1, p=1, dklen=32))):
        sealer = Sealer(key, SALT, None if key is KEY else CHEAP)
        sealed = sealer.seal("delta", b"S" * 32, bytes(7) + b"\x05", b"C" * 32, b"record")
        row_key = hmac.new(master, b"melete.witness-store/1\x00row\x00" + SALT, "sha256").digest()
        data = b"melete.witness-store/1\x00" + bytes([5, 32]) + b"delta" + b"S" * 32 + bytes(7) + b"\x05" + b"C" * 32
        assert AESGCM(row_key).decrypt(sealed[:12], sealed[12:], data) == b"record"
        check = hmac.new(master, b"melete.witness-store/1\x00check\x00" + SALT, "sha256").digest()
        assert sealer.record.check == check


def test_same_record_is_sealed_otherwise_each_time() -> None:
    sealer = Sealer.fresh(KEY)
    row = ("delta", bytes(32), bytes(8), bytes(32), b"record")
    assert len({sealer.seal(*row)[:12] for _ in range(50)}) == 50


PLACES = st.tuples(
    st.sampled_from(["delta", "operation", "d", "delta2"]),
    st.binary(max_size=34),
    st.binary(min_size=8, max_size=8),
    st.binary(min_size=32, max_size=32),
)


@given(PLACES, PLACES, st.binary(max_size=40))
def test_row_opens_at_its_own_place_only(at: Any, other: Any, record: bytes) -> None:
    sealer = Sealer.fresh(KEY)
    sealed = sealer.seal(*at, record)
    assert sealer.open(*at, sealed) == record
    if at != other:
        with pytest.raises(NotAuthentic):
            sealer.open(*other, sealed)
    with pytest.raises(NotAuthentic):
        Sealer.fresh(KEY).open(*at, sealed)


@given(st.data())
def test_no_bit_of_a_sealed_row_can_change(data: st.DataObject) -> None:
    sealer = Sealer(KEY, SALT, None)
    at = ("delta", bytes(32), bytes(8), bytes(32))
    sealed = bytearray(sealer.seal(*at, b"record"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(NotAuthentic):
        sealer.open(*at, bytes(sealed))
    with pytest.raises(NotAuthentic):
        sealer.open(*at, bytes(sealed[: data.draw(st.integers(0, len(sealed) - 1))]))


@pytest.mark.parametrize(("right", "wrong"), [(KEY, OTHER_KEY), (KEY, PASSPHRASE), (PASSPHRASE, KEY)])
def test_wrong_key_is_told_from_the_right_one_before_any_row_is_opened(right: Any, wrong: Any) -> None:
    record = Sealer.fresh(right).record
    assert unlocks(right, record)
    assert not unlocks(wrong, record)


def test_keys_stay_out_of_reprs() -> None:
    for key in (KEY, PASSPHRASE, Sealer.fresh(KEY)):
        shown = f"{key!r} {key}"
        assert RAW.hex() not in shown
        assert str(RAW) not in shown
        assert "horse" not in shown


@pytest.mark.parametrize("key", [KEY, PASSPHRASE])
def test_keys_are_not_pickled_by_accident(key: Any) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(key)
