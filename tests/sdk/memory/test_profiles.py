from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from melete.canonical import canonicalize, load_json
from melete.errors import CouldNotTell, InvalidInput, InvalidJson, MeleteError, NotAuthentic, UnknownProfile, WrongKey
from melete.memory.batch import Batch
from melete.memory.profiles import (
    BATCH,
    BUILT_IN,
    ENCRYPTED,
    JSON,
    PLAIN,
    Algorithm,
    Profile,
    ProfileRegistry,
    seal,
)
from melete.primitives import NOT_SHOWN, Bytes32
from strategies import words

from ..strategies import json_values

KEY, OTHER_KEY, NONCE = b"\x01" * 32, b"\x02" * 32, b"\x03" * 12
algorithms = st.sampled_from(Algorithm)


def is_readable(payload: bytes) -> bool:
    """Floats from 2^53 on are written like integers, which are read up to 2^53 - 1 only."""
    try:
        load_json(payload)
    except InvalidJson:
        return False
    return True


keys = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=12, max_size=12)
values = {
    PLAIN: st.binary(max_size=60),
    JSON: json_values.filter(lambda value: is_readable(canonicalize(value))),
    ENCRYPTED: st.builds(seal, st.binary(max_size=60), keys, nonces, algorithms),
    BATCH: st.builds(Batch, st.integers(1, 2**53 - 1), words.map(Bytes32)),
}

# All profiles


@pytest.mark.parametrize("profile", BUILT_IN, ids=lambda profile: profile.name)
@given(data=st.data())
def test_every_value_comes_back_and_is_valid_by_the_schema(profile: Profile, data: st.DataObject) -> None:
    value = data.draw(values[profile])
    payload = profile.encode(value)
    assert type(payload) is bytes
    assert profile.decode(payload) == value
    assert profile.encode(profile.decode(payload)) == payload
    Draft202012Validator(profile.schema).validate(profile.to_json(value))


@pytest.mark.parametrize("profile", BUILT_IN, ids=lambda profile: profile.name)
@given(payload=st.binary(max_size=120))
def test_payload_is_read_as_its_own_value_only_or_refused(profile: Profile, payload: bytes) -> None:
    try:
        value = profile.decode(payload)
    except InvalidInput as error:
        assert error.value in (None, NOT_SHOWN) or isinstance(error.value, int)  # noqa: PT017  # at most the algorithm's number
        return
    assert profile.encode(value) == payload


@pytest.mark.parametrize("profile", BUILT_IN, ids=lambda profile: profile.name)
def test_schema_of_every_profile_is_one(profile: Profile) -> None:
    Draft202012Validator.check_schema(profile.schema)
    if profile is not JSON:
        assert not Draft202012Validator(profile.schema).is_valid({"anything": "else"})


@pytest.mark.parametrize("profile", [PLAIN, ENCRYPTED, BATCH], ids=lambda profile: profile.name)
@pytest.mark.parametrize("value", ["likes tea", None, 5, ["likes tea"], object()])
def test_value_of_another_type_is_refused_and_not_shown(profile: Profile, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        profile.encode(value)
    assert caught.value.value in (None, NOT_SHOWN)


# The registry


def test_id_of_a_profile_is_the_keccak_of_its_name() -> None:
    names = ["melete.plain/1", "melete.json/1", "melete.encrypted/1", "melete.batch/1"]
    assert [profile.name for profile in ProfileRegistry()] == names
    assert [profile.id for profile in BUILT_IN] == [keccak(text=name) for name in names]


def test_unknown_profile_is_named_and_leaves_the_question_open() -> None:
    unknown = Bytes32(keccak(text="notes/1"))
    with pytest.raises(UnknownProfile) as caught:
        ProfileRegistry().decode(unknown, b"payload")
    assert isinstance(caught.value, CouldNotTell)
    assert str(unknown) in str(caught.value)


def test_registered_profile_is_used_where_it_was_registered_and_nowhere_else() -> None:
    text = Profile("notes/1", str.encode, bytes.decode, {"type": "string"})
    registry = ProfileRegistry([text])
    assert registry.find(text.id) is text
    assert registry.decode(text.id, b"tea") == "tea"
    assert registry.register(text) is text
    with pytest.raises(UnknownProfile):
        ProfileRegistry().find(text.id)


@pytest.mark.parametrize("name", ["melete.plain/1", "notes/1"])
def test_name_that_is_taken_is_refused(name: str) -> None:
    registry = ProfileRegistry([Profile("notes/1", str.encode, bytes.decode, {})])
    with pytest.raises(InvalidInput, match="name"):
        registry.register(Profile(name, str.encode, bytes.decode, {}))
    assert registry.find(PLAIN.id) is PLAIN


# JSON


@pytest.mark.parametrize(
    "payload", [b'{"b":1,"a":2}', b"1.0", b" 1", b"1\n", b'"\\u0041"', b"[1,]", b"", b"\xff", b"NaN", b"-0"]
)
def test_json_that_is_not_canonical_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidInput):
        JSON.decode(payload)


@pytest.mark.parametrize(
    "value", [{"tea": float("nan")}, {"tea": {1, 2}}, {1: "tea"}, "tea\ud800", [2**60], [2.0**53], {"tea": b"x"}]
)
def test_value_that_json_cannot_carry_is_refused_and_its_members_are_not_shown(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        JSON.encode(value)
    assert "tea" not in f"{caught.value} {vars(caught.value)}"


# Encrypted payloads


@given(st.binary(max_size=200), keys, nonces, algorithms)
def test_envelope_opens_with_its_key(content: bytes, key: bytes, nonce: bytes, algorithm: Algorithm) -> None:
    payload = ENCRYPTED.encode(seal(content, key, nonce, algorithm))
    envelope = ENCRYPTED.decode(payload)
    assert (envelope.algorithm, envelope.nonce) == (algorithm, nonce)
    assert envelope.open(key) == content
    assert len(payload) == 1 + 12 + 32 + len(content) + 16


@pytest.mark.parametrize(("algorithm", "cipher"), [(1, AESGCM), (2, ChaCha20Poly1305)])
def test_envelope_is_what_its_description_says_by_other_code(algorithm: int, cipher: Any) -> None:
    payload = seal(b"likes tea", KEY, NONCE, Algorithm(algorithm)).to_payload()
    label, suffix = b"melete.encrypted/1\x00", bytes([algorithm]) + NONCE
    check = hmac.new(KEY, label + b"check!" + suffix, "sha256").digest()
    cipher_key = hmac.new(KEY, label + b"cipher" + suffix, "sha256").digest()
    header = suffix + check
    assert payload == header + cipher(cipher_key).encrypt(NONCE, b"likes tea", label + header)


@given(algorithms, st.data())
def test_no_bit_of_an_envelope_can_change(algorithm: Algorithm, data: st.DataObject) -> None:
    payload = bytearray(seal(b"likes tea", KEY, NONCE, algorithm).to_payload())
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((InvalidInput, WrongKey, NotAuthentic)):
        ENCRYPTED.decode(bytes(payload)).open(KEY)


@given(algorithms, st.integers(0, 69))
def test_envelope_that_was_cut_does_not_open(algorithm: Algorithm, length: int) -> None:
    payload = seal(b"likes tea", KEY, NONCE, algorithm).to_payload()
    with pytest.raises((InvalidInput, NotAuthentic)):
        ENCRYPTED.decode(payload[:length]).open(KEY)


def test_wrong_key_is_told_from_changed_bytes() -> None:
    envelope = seal(b"likes tea", KEY, NONCE)
    with pytest.raises(WrongKey):
        envelope.open(OTHER_KEY)
    with pytest.raises(NotAuthentic):
        replace(envelope, ciphertext=bytes(len(envelope.ciphertext))).open(KEY)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_ciphertext_under_a_second_key_does_not_pass_for_the_envelope(algorithm: Algorithm) -> None:
    # Both ciphers let one ciphertext open under two keys; the key check in front commits to one of them.
    one, other = (seal(b"likes tea", key, NONCE, algorithm) for key in (KEY, OTHER_KEY))
    assert one.key_check != other.key_check
    for mixed in (replace(one, key_check=other.key_check), replace(other, key_check=one.key_check)):
        for key in (KEY, OTHER_KEY):
            with pytest.raises((WrongKey, NotAuthentic)):
                mixed.open(key)


@pytest.mark.parametrize(
    ("content", "key", "nonce", "algorithm"),
    [
        ("likes tea", KEY, NONCE, 1),
        (b"likes tea", b"\x5e" * 31, NONCE, 1),
        (b"likes tea", "5e" * 32, NONCE, 1),
        (b"likes tea", KEY, b"\x5e" * 11, 1),
        (b"likes tea", KEY, NONCE, 0),
        (b"likes tea", KEY, NONCE, 3),
    ],
)
def test_sealing_refuses_what_does_not_fit_and_shows_none_of_it(
    content: Any, key: Any, nonce: Any, algorithm: Any
) -> None:
    with pytest.raises(InvalidInput) as caught:
        seal(content, key, nonce, algorithm)
    shown = f"{caught.value} {vars(caught.value)}"
    assert "tea" not in shown
    assert "5e5e" not in shown


@pytest.mark.parametrize("key", [b"", b"\x5e" * 31, "5e" * 32, None])
def test_opening_refuses_what_is_no_key(key: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        seal(b"likes tea", KEY, NONCE).open(key)
    assert caught.value.value is None


@pytest.mark.parametrize("member", ["algorithm", "nonce", "key_check", "ciphertext"])
def test_envelope_of_another_shape_is_refused(member: str) -> None:
    for value in (None, b"", 7, "0x"):
        with pytest.raises(InvalidInput):
            replace(seal(b"likes tea", KEY, NONCE), **{member: value})


def test_envelope_inside_another_profile_is_only_bytes() -> None:
    inner = JSON.encode({"likes": "tea"})
    payload = ENCRYPTED.encode(seal(inner, KEY, NONCE))
    assert b"tea" not in payload
    assert load_json(ENCRYPTED.decode(payload).open(KEY)) == {"likes": "tea"}


def test_reprs_show_no_ciphertext_and_no_functions() -> None:
    envelope = seal(b"likes tea", KEY, NONCE)
    assert repr(envelope.ciphertext) not in repr(envelope)
    assert repr(PLAIN) == f"Profile(name='melete.plain/1', id={PLAIN.id!r})"


def test_errors_of_profiles_are_all_of_ours() -> None:
    for profile in BUILT_IN:
        for value in (object(), {"a": {1}}, float("inf")):
            with pytest.raises(MeleteError):
                profile.encode(value)
