from __future__ import annotations

import functools
import hmac
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account
from eth_keys import keys
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, InvalidSignature, MeleteError
from melete.primitives import Address, Bytes32
from melete.signing import ApeSigner, CallableSigner, LocalSigner, Signer, recover_signer, verify_signature
from strategies import junk_signatures, private_keys, words

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
KEY = bytes.fromhex("5ec2e7" * 10 + "5ec2")
DIGEST = Bytes32(b"\x5a" * 32)
SIGNATURE = bytes(Account.unsafe_sign_hash(DIGEST, KEY).signature)
ADDRESS = Address(Account.from_key(KEY).address)


def number(word: bytes) -> int:
    return int.from_bytes(word, "big")


# Who signs


@given(private_keys, words)
def test_local_key_signs_as_eth_account_signs(key: bytes, digest: bytes) -> None:
    signer = LocalSigner(key)
    assert signer.sign_digest(Bytes32(digest)) == bytes(Account.unsafe_sign_hash(digest, key).signature)
    assert str(signer.address) == Account.from_key(key).address


@given(private_keys, words)
def test_recover_signer_agrees_with_the_public_key(key: bytes, digest: bytes) -> None:
    signature = LocalSigner(key).sign_digest(Bytes32(digest))
    account = Address(keys.PrivateKey(key).public_key.to_canonical_address())
    assert recover_signer(Bytes32(digest), signature) == account
    assert verify_signature(account, Bytes32(digest), signature) == account


@pytest.mark.parametrize(
    "key",
    [KEY, KEY.hex(), "0x" + KEY.hex(), "0x" + KEY.hex().upper(), Account.from_key(KEY)],
    ids=["bytes", "hex", "prefixed_hex", "upper_case_hex", "eth_account"],
)
def test_local_signer_takes_every_form_of_one_key(key: Any) -> None:
    assert LocalSigner(key).address == ADDRESS
    assert LocalSigner(key).sign_digest(DIGEST) == SIGNATURE
    assert LocalSigner(key).account.address == str(ADDRESS)


def test_every_signer_is_one() -> None:
    ape = SimpleNamespace(address=str(ADDRESS))
    for signer in (LocalSigner(KEY), CallableSigner(ADDRESS, lambda _: b""), ApeSigner(ape)):
        assert isinstance(signer, Signer)
        assert signer.address == ADDRESS
    assert not isinstance(object(), Signer)


@pytest.mark.parametrize("digest", [b"", bytes(31), bytes(33), "hello", 5, None])
def test_signers_refuse_a_digest_that_is_not_32_bytes(digest: Any) -> None:
    ape = SimpleNamespace(address=str(ADDRESS), sign_raw_msghash=lambda _: pytest.fail("asked to sign it"))
    for signer in (
        LocalSigner(KEY),
        CallableSigner(ADDRESS, lambda _: pytest.fail("asked to sign it")),
        ApeSigner(ape),
    ):
        with pytest.raises(InvalidInput, match="digest"):
            signer.sign_digest(digest)


def test_callable_signer_gives_what_its_function_gives() -> None:
    asked = []

    def sign(digest: Bytes32) -> bytes:
        asked.append(digest)
        return b"whatever the contract asks for"

    signer = CallableSigner(Address(b"\x11" * 20), sign)
    assert signer.sign_digest(DIGEST) == b"whatever the contract asks for"
    assert asked == [DIGEST]


@pytest.mark.parametrize("answer", [65, True, None, "signature", [1, 2]])
def test_callable_signer_refuses_an_answer_that_is_no_bytes(answer: Any) -> None:
    with pytest.raises(InvalidInput, match="signature"):
        CallableSigner(ADDRESS, lambda _: answer).sign_digest(DIGEST)


def test_ape_signer_asks_the_account_for_the_digest_as_it_is() -> None:
    asked = []

    def sign_raw_msghash(digest: bytes) -> Any:
        asked.append(bytes(digest))
        return SimpleNamespace(encode_rsv=lambda: SIGNATURE)

    signer = ApeSigner(SimpleNamespace(address=str(ADDRESS), sign_raw_msghash=sign_raw_msghash))
    assert recover_signer(DIGEST, signer.sign_digest(DIGEST)) == ADDRESS
    assert asked == [DIGEST]


def test_ape_account_that_declines_is_an_error_that_names_it() -> None:
    account = SimpleNamespace(address=str(ADDRESS), sign_raw_msghash=lambda _: None)
    with pytest.raises(InvalidSignature, match=str(ADDRESS)):
        ApeSigner(account).sign_digest(DIGEST)


# What stays secret


def shown_by(value: object) -> str:
    return "\n".join([repr(value), str(value), f"{value}", ascii(value)]).lower()


def test_no_signer_shows_its_key() -> None:
    ape = SimpleNamespace(address=str(ADDRESS), private_key=KEY.hex())
    sign = functools.partial(hmac.digest, KEY.hex().encode(), digest="sha256")
    for signer in (LocalSigner(KEY), CallableSigner(ADDRESS, sign), ApeSigner(ape)):
        assert "5ec2e7" not in shown_by(signer)
        assert str(ADDRESS).lower() in shown_by(signer)


@pytest.mark.parametrize(
    "key",
    [KEY[:-1], KEY + b"\x5e", KEY.hex()[:-1], KEY.hex() + "5", "0x" + KEY.hex()[:-2], KEY.hex() + "\n", " " + KEY.hex(),
     "0X" + KEY.hex(), KEY.hex()[:-1] + "g", "5ec2e7 horse battery staple", bytearray(KEY), [KEY], KEY.hex().encode(),
     number(KEY), (ORDER + number(KEY[:15])).to_bytes(32, "big"), "0x" + ORDER.to_bytes(32, "big").hex(),
     bytes(32), "0x" + "00" * 32, "", b"", None],
    ids=lambda key: type(key).__name__,
)  # fmt: skip
def test_malformed_key_is_refused_and_never_shown(key: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        LocalSigner(key)
    shown = shown_by(caught.value)
    assert "not shown" in shown
    assert caught.value.value is None
    assert caught.value.__context__ is None
    assert "5ec2e7" not in shown


def test_traceback_of_a_malformed_key_does_not_hold_it() -> None:
    script = "import sys\nfrom melete import LocalSigner\nLocalSigner(sys.stdin.read())"
    done = subprocess.run(
        [sys.executable, "-c", script], input=KEY.hex()[:-1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "InvalidInput" in done.stderr
    assert "5ec2e7" not in done.stdout + done.stderr


# What is a signature


def test_recover_signer_refuses_every_v_but_27_and_28() -> None:
    for v in {*range(256)} - {27, 28}:
        with pytest.raises(InvalidSignature, match=f"v is {v};"):
            recover_signer(DIGEST, SIGNATURE[:64] + bytes([v]))


def test_recover_signer_with_the_other_v_gives_another_account() -> None:
    assert recover_signer(DIGEST, SIGNATURE[:64] + bytes([55 - SIGNATURE[64]])) != ADDRESS


@given(private_keys, words)
def test_recover_signer_refuses_the_high_s_twin_of_a_signature(key: bytes, digest: bytes) -> None:
    signature = LocalSigner(key).sign_digest(Bytes32(digest))
    twin = signature[:32] + (ORDER - number(signature[32:64])).to_bytes(32, "big") + bytes([55 - signature[64]])
    assert Account._recover_hash(digest, signature=twin) == Account.from_key(key).address
    with pytest.raises(InvalidSignature, match="upper half"):
        recover_signer(Bytes32(digest), twin)


def test_recover_signer_refuses_exactly_the_upper_half_of_s() -> None:
    r = SIGNATURE[:32]
    highest_low = r + (ORDER // 2).to_bytes(32, "big") + b"\x1b"
    assert str(recover_signer(DIGEST, highest_low)) == Account._recover_hash(DIGEST, signature=highest_low)
    with pytest.raises(InvalidSignature, match="upper half"):
        recover_signer(DIGEST, r + (ORDER // 2 + 1).to_bytes(32, "big") + b"\x1b")


@pytest.mark.parametrize("bad", [0, ORDER, ORDER + 1, 2**256 - 1])
@pytest.mark.parametrize("place", ["r", "s"])
def test_recover_signer_refuses_r_and_s_outside_the_order(place: str, bad: int) -> None:
    word = bad.to_bytes(32, "big")
    signature = word + SIGNATURE[32:] if place == "r" else SIGNATURE[:32] + word + SIGNATURE[64:]
    with pytest.raises(InvalidSignature, match="zero or not below"):
        recover_signer(DIGEST, signature)


def test_recover_signer_refuses_an_r_that_is_no_point() -> None:
    with pytest.raises(InvalidSignature, match="no point"):
        recover_signer(DIGEST, (5).to_bytes(32, "big") + SIGNATURE[32:])


def test_recover_signer_refuses_the_compact_form() -> None:
    y_parity = SIGNATURE[64] - 27
    compact = SIGNATURE[:32] + bytes([SIGNATURE[32] | y_parity << 7]) + SIGNATURE[33:64]
    with pytest.raises(InvalidSignature, match="64 bytes"):
        recover_signer(DIGEST, compact)


@pytest.mark.parametrize("length", [0, 1, 32, 64, 66, 96, 130])
def test_recover_signer_refuses_every_length_but_65(length: int) -> None:
    with pytest.raises(InvalidSignature, match=f"it has {length} bytes"):
        recover_signer(DIGEST, (SIGNATURE * 2)[:length])


@pytest.mark.parametrize("signature", ["a" * 65, "", None, 65, [0] * 65, SIGNATURE.hex()])
def test_recover_signer_refuses_a_signature_that_is_no_bytes(signature: Any) -> None:
    with pytest.raises(InvalidInput, match="signature"):
        recover_signer(DIGEST, signature)


@given(junk_signatures | st.binary(min_size=65, max_size=65), words)
def test_junk_recovers_what_eth_account_recovers_or_is_refused(signature: bytes, digest: bytes) -> None:
    try:
        account = recover_signer(Bytes32(digest), signature)
    except InvalidSignature:
        return
    assert str(account) == Account._recover_hash(digest, signature=signature)


@given(st.integers(0, 64), st.integers(0, 7))
def test_flipping_any_bit_of_a_signature_takes_its_approval_away(at: int, bit: int) -> None:
    flipped = bytearray(SIGNATURE)
    flipped[at] ^= 1 << bit
    with pytest.raises(InvalidSignature):
        verify_signature(ADDRESS, DIGEST, bytes(flipped))


@given(st.integers(0, 31), st.integers(0, 7))
def test_flipping_any_bit_of_a_digest_takes_its_approval_away(at: int, bit: int) -> None:
    flipped = bytearray(DIGEST)
    flipped[at] ^= 1 << bit
    with pytest.raises(InvalidSignature):
        verify_signature(ADDRESS, Bytes32(flipped), SIGNATURE)


def test_verify_signature_names_both_accounts_when_another_signed() -> None:
    other = Address(b"\x11" * 20)
    with pytest.raises(InvalidSignature) as caught:
        verify_signature(other, DIGEST, SIGNATURE)
    assert str(other) in str(caught.value)
    assert str(ADDRESS) in str(caught.value)


def test_verify_signature_takes_the_account_as_text_and_refuses_a_wrong_checksum() -> None:
    assert verify_signature(str(ADDRESS), DIGEST, SIGNATURE) == ADDRESS  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="checksum"):
        verify_signature(str(ADDRESS).swapcase().replace("0X", "0x"), DIGEST, SIGNATURE)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [recover_signer, functools.partial(verify_signature, ADDRESS)])
def test_a_digest_of_another_length_is_refused_before_anything_is_recovered(action: Callable[..., object]) -> None:
    with pytest.raises(MeleteError, match="digest"):
        action(b"\x00" * 31, SIGNATURE)
