from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.credentials import NOT_SHOWN, RULE, find_credentials, hide_secrets, quote, without_secrets
from melete.packs.findings import Severity

LIVE = [
    "sk-abcdefghijklmnopqrstuvwx",
    "sk-proj-abcDEF123_456-789xyzABCDEF",
    "sk-ant-api03-abcDEF123456789xyzABCDEF",
    "re_AbCdEfGhIjKlMnOpQrSt",
    "phc_AbCdEfGhIjKlMnOpQrSt",
    "AKIAIOSFODNN7EXAMPLE",
    "sk_live_abcdefghijklmnopqrstuvwx",
    "sk_test_abcdefghijklmnopqrstuvwx",
    "rk_live_***abcdefghijklmnopqrstuvwx",
    "_sk-abcdefghijklmnopqrstuvwx_",
    "__sk-abcdefghijklmnopqrstuvwx__",
    "sk-***abcdefghijklmnopqrstuvwxyz",
    "sk-proj-[REDACTED]abcdefghijklmnopqrstuvwxyz",
    "re_***AbCdEfGhIjKlMnOpQrSt",
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAA\n-----END PRIVATE KEY-----",
]
ASSIGNED = [
    "key = abcdefghij0123456789",
    "token = abcdefghij0123456789",
    "API_KEY=abcdefghij0123456789",
    "key = [REDACTED]abcdefghij0123456789",
    "key = ***abcdefghij0123456789",
    "key = '***abcdefghij0123456789'",
    "accessToken: str = 'abcdefghij0123456789'",
    'apikey="abcdefghij0123456789"',
    "`token` = `ghp_abcdefghij0123456789`",
    "KEY2 =\n  abcdefghij0123456789",
    "token == abcdefghij0123456789",
    "password = 'abcdefghij0123456789abcdefghij01'",
    "token: abcdefghijklmnopqrstuvwxyz123",
    "key: abcdefghij0123456789",
    '"api_key" : "abcdefghijklmnopqrstuvwx12"',
    "accessToken: 'abcdefghij0123456789'",
    r"\"token\": \"abcdefghij0123456789\"",
    f"private_key: 0x{hashlib.sha256(b'').hexdigest()}",
    "API-KEY:abcdefghij0123456789",
    "- token: ***abcdefghij0123456789",
    f"key = {hashlib.sha256(b'').hexdigest()}",
]
HARMLESS = [
    "task-abcdefghijklmnopqrstuvwx",
    "pre_processingpipelinestagefinal",
    "they are_responsibleforeverythinghere",
    "disk-abcdefghijklmnopqrstuvwx",
    "XAKIAIOSFODNN7EXAMPLE",
    "sk-short, re_short, phc_short, AKIA",
    "sk-***, re_***, [REDACTED]",
    "key = ***, see the-password-manager-entry",
    "sk-***see-the-password-manager-entry",
    "risk_sk-abcdefghijklmnopqrstuvwx",
    "api_key = [REDACTED]",
    "token = ***",
    "key = sk-***",
    "set OPENAI_API_KEY in .env",
    "key = OPENAI_API_KEY_OF_THE_PROJECT",
    "the token = the thing that one shows",
    "monkey = abcdefghij0123456789",
    "key: the quick brown fox jumps over the lazy dog",
    "key: thequickbrownfoxjumpsoverthelazydog",
    "the key: see-the-password-manager-entry-2",
    "token: 01234567890123456789",
    "monkey: abcdefghij0123456789",
    "keyboard: abcdefghij0123456789",
    "tokens: abcdefghij0123456789",
    "token:\n  abcdefghij0123456789",
    "token: [REDACTED]",
    "token: ***",
    "public_key: MCowBQYDK2VwAyEA0123456789abcdef",
    '"publicKey": "MCowBQYDK2VwAyEA0123456789abcdef"',
    '"public_key": "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEAabcdefgh0123456789"',
    f"sha256_of_key: {hashlib.sha256(b'').hexdigest()}",
    f"key_hash: {hashlib.sha256(b'').hexdigest()}",
    "Public key: MCowBQYDK2VwAyEA0123456789abcdef",
    "token: 0x6B175474E89094C44Da98b954EedeAC495271d0F",
    "token: https://example.org/abcdefghij0123456789",
    "task_live_abcdefghijklmnopqrstuvwx",
    "sk_live_***",
    "password = 'abcdefghij0123456789'",
    f"sha256 = '{hashlib.sha256(b'').hexdigest()}'",
    f'digest = "{hashlib.sha256(b"").hexdigest()}"',
    f"content_hash='0x{hashlib.sha256(b'').hexdigest()}'",
    f"key_hash = '{hashlib.sha256(b'').hexdigest()}'",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAAAAAAAAAAAAAAAA\n-----END PUBLIC KEY-----",
    "a file begins with -----BEGIN PRIVATE KEY----- if it is one",
    "| --------------------- | --------------------- |",
]


@pytest.mark.parametrize("text", LIVE + ASSIGNED)
def test_live_credential_is_found_once_wherever_it_stands(text: str) -> None:
    for before, after in (
        ("", ""),
        ("Use ", " here."),
        ("(", ")"),
        ("url?x=1&", "&y=2"),
        ('"', '"'),
        ("\u00e9\n", "\n"),
    ):
        found = find_credentials(before + text + after, "memory/a.md")
        assert [(finding.rule, finding.severity) for finding in found] == [(RULE, Severity.ERROR)], before


@pytest.mark.parametrize("text", HARMLESS)
def test_words_names_redacted_values_and_digests_pass(text: str) -> None:
    for before, after in (("", ""), ("Use ", " here."), ("\n", "\n")):
        assert find_credentials(before + text + after, "memory/a.md") == []


@pytest.mark.parametrize("live", LIVE + ASSIGNED)
@pytest.mark.parametrize("redacted", ["sk-***", "[REDACTED]"])
def test_redacted_value_does_not_excuse_a_live_one_beside_it(live: str, redacted: str) -> None:
    assert len(find_credentials(f"{redacted} {live}", "a")) == 1
    assert len(find_credentials(f"{live} {redacted}", "a")) == 1


def test_digest_named_as_one_does_not_excuse_a_key() -> None:
    digest = hashlib.sha256(b"").hexdigest()
    found = find_credentials(f"sha256 = '{digest}'\nkey = '{digest}'\nhash = '{digest[:-1]}z'", "a")
    assert [finding.line for finding in found] == [2, 3]


def test_word_does_not_hide_a_key_that_begins_inside_of_it() -> None:
    assert len(find_credentials("task-proj-aaaaaaaaaaaaaaaa-sk-abcdefghijklmnopqrstuvwx", "a")) == 1


def test_each_line_is_told_from_the_first_line_that_is_given() -> None:
    text = f"x\n{LIVE[0]}\n\nkey = {'a' * 20} and {LIVE[3]}\n"
    assert [finding.line for finding in find_credentials(text, "a")] == [2, 4, 4]
    assert [finding.line for finding in find_credentials(text, "a", 11)] == [12, 14, 14]


@pytest.mark.parametrize("text", LIVE + ASSIGNED)
def test_no_finding_holds_the_secret(text: str) -> None:
    secret = text.split()[-1].strip("\"'`") if "PRIVATE" not in text else "MC4CAQAwBQYDK2Vw"
    for finding in find_credentials(text, "a"):
        for shown in (str(finding), repr(finding), repr(finding.to_json())):
            assert secret not in shown
            assert secret[-12:] not in shown


@given(st.text(max_size=60) | st.text("sk-re_phcAKI=keyton'\"\n a1*", max_size=80))
def test_any_text_is_judged(text: str) -> None:
    found = find_credentials(text, "a")
    lines = [finding.line for finding in found]
    assert lines == sorted(line for line in lines if line is not None)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines if line is not None)


@pytest.mark.parametrize("piece", ["sk-ant-", "sk-", "= ", "=", "key=", "-----BEGIN PRIVATE KEY-----", "re_phc_", "a"])
def test_long_text_of_beginnings_takes_no_more_than_its_length(piece: str) -> None:
    # A search that starts over at each of them would take minutes.
    find_credentials(piece * (200_000 // len(piece)), "a")


# What a message may quote


@pytest.mark.parametrize("text", LIVE + ASSIGNED)
def test_quote_leaves_out_what_looks_like_a_secret(text: str) -> None:
    assert quote(text) == NOT_SHOWN
    assert quote(f"prefix {text}") == NOT_SHOWN


@given(st.text())
def test_quote_is_printable_ascii_of_bounded_length(text: str) -> None:
    shown = quote(text, 10)
    assert shown.isascii()
    assert shown.isprintable()
    assert len(shown) <= 10 * len(r"\U0010ffff") + 3


@pytest.mark.parametrize("text", LIVE + ASSIGNED)
def test_a_text_without_its_secrets_keeps_everything_else(text: str) -> None:
    secret = "MC4CAQ" if "PRIVATE" in text else text.rstrip("'\"`")[-12:]
    shown = hide_secrets(f"before ({text}) after")
    assert shown.startswith("before (")
    assert shown.endswith(") after")
    assert find_credentials(shown, "") == []
    assert secret not in shown


def test_a_secret_is_left_out_to_its_end() -> None:
    assert hide_secrets(f"{LIVE[0]}{'x' * 300}.") == "***."
    assert hide_secrets(f"key={'a1' * 900}.") == "key=***."
    key = "-----BEGIN PRIVATE KEY-----\n" + "A" * 30 + "+/bc\nAb/c"
    assert hide_secrets(f"x {key}\n-----END PRIVATE KEY-----") == "x ***-----END PRIVATE KEY-----"
    assert hide_secrets(f"x {key}") == "x ***"


@pytest.mark.parametrize("text", HARMLESS)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert hide_secrets(text) == text


def test_json_is_without_secrets_wherever_they_stand() -> None:
    found = {"a": [f"x {LIVE[0]}", {"b": (LIVE[0], 1, None)}], "signature": LIVE[0]}
    assert without_secrets(found) == {"a": ["x ***", {"b": ["***", 1, None]}], "signature": LIVE[0]}
