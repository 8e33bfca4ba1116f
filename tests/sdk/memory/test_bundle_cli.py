"""`melete verify` and `melete disclose` without a node, and the file that a bundle is written to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from melete import Address
from melete.cli import verify as verify_module
from melete.cli.main import run
from melete.errors import InvalidInput, StoreNotWritten
from melete.memory import bundle_building
from melete.memory.bundle_building import write_bundle
from melete.memory.disclosure import AuditBundle

from .test_disclosure import GRANTED, PART, VECTORS, WHOLE, make_bundle, with_value
from .witness_samples import OTHER_SPACE, mode_of

HELD, BROKEN, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
BLOCK_HASH = VECTORS["granted"]["anchoring"]["blockHash"]
OFFLINE = ["json", "schema", "grant_id", "range", "transitions", "witnesses", "witness_set_root"]
#: Nothing listens there.
NO_NODE = "http://127.0.0.1:1"

Melete = Callable[..., tuple[int, str, str]]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("MELETE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def melete(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Melete:
    """Run a command in this process: exit code, standard output, standard error."""

    def command(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return command


@pytest.fixture
def verify(workplace: Path, melete: Melete) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Judge a bundle, a document or a text: exit code and verdict."""

    def judge(bundle: AuditBundle | str | bytes | dict[str, Any], *words: object) -> tuple[int, dict[str, Any]]:
        if isinstance(bundle, AuditBundle):
            bundle = bundle.to_json()
        text = json.dumps(bundle) if isinstance(bundle, dict) else bundle
        Path("bundle").write_bytes(text.encode() if isinstance(text, str) else text)
        code, out, err = melete("verify", "bundle", "--json", *words)
        assert (err, out.count("\n")) == ("", 1)
        return code, json.loads(out)

    return judge


# The three answers


def test_what_only_a_chain_can_say_is_left_open_and_what_held_is_listed(verify) -> None:
    code, found = verify(PART)
    assert (code, found["answer"], found["kind"]) == (COULD_NOT_TELL, "could not tell", "melete.audit-bundle/1")
    assert found["held"] == OFFLINE
    assert found["notJudged"] == ["authorizers"]
    (sentence,) = found["couldNotTell"]
    assert "--rpc-url" in sentence
    assert found["rule"] is found["member"] is found["entry"] is None
    assert (found["fromSequence"], found["toSequence"]) == ("3", "5")
    assert found["stateRoot"] == str(PART.entries[-1].transition.next_state_root)


def test_proofs_hold_for_a_block_that_the_reader_knows(verify) -> None:
    """The vectors' contracts are named, for their code is that of the day when they were made."""
    grant, registry = GRANTED.grant.contract, GRANTED.reference.registry
    code, found = verify(GRANTED, "--block-hash", BLOCK_HASH, "--registry", registry, "--contract", grant)
    assert (code, found["answer"]) == (HELD, "held")
    assert found["held"] == [*OFFLINE, "state_root", "grant", "proofs"]
    assert (found["couldNotTell"], found["blockHash"]) == ([], BLOCK_HASH)


@pytest.mark.parametrize("offline", [True, False])
def test_chain_id_is_not_judged_by_a_block_hash_alone(verify, offline) -> None:
    known = ("--block-hash", BLOCK_HASH, "--registry", GRANTED.reference.registry, *(("--offline",) if offline else ()))
    assert "chain_id" in verify(GRANTED, *known)[1]["notJudged"]
    chain_id = GRANTED.reference.chain_id
    assert "chain_id" not in verify(GRANTED, *known, "--chain-id", chain_id)[1]["notJudged"]
    code, found = verify(GRANTED, *known, "--chain-id", chain_id + 1)
    assert (code, found["rule"], found["member"]) == (BROKEN, "chain_id", "/reference/chainId")


def test_the_block_hash_in_the_bundle_is_its_own_word(verify) -> None:
    code, found = verify(GRANTED)
    assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])
    assert found["blockHash"] == BLOCK_HASH
    assert "--block-hash" in found["couldNotTell"][0]


def test_another_block_than_the_readers_is_named(verify) -> None:
    code, found = verify(GRANTED, "--block-hash", "0x" + "ab" * 32)
    assert (code, found["rule"], found["member"]) == (COULD_NOT_TELL, "block", "/anchoring/blockHash")
    assert (found["expected"], found["received"]) == ("0x" + "ab" * 32, BLOCK_HASH)


def test_contracts_of_other_code_count_only_if_the_reader_names_them(verify, monkeypatch) -> None:
    monkeypatch.setattr("melete.memory.bundle_anchoring._is_ours", lambda *_: False)
    known = ("--block-hash", BLOCK_HASH)
    registry = ("--registry", GRANTED.reference.registry)
    contract = ("--contract", GRANTED.grant.contract)
    code, found = verify(GRANTED, *known)
    assert (code, len(found["couldNotTell"])) == (COULD_NOT_TELL, 2)
    assert {"state_root", "grant"}.isdisjoint(found["held"])
    code, found = verify(GRANTED, *known, *registry)
    assert (code, "state_root" in found["held"]) == (COULD_NOT_TELL, True)
    assert "--contract" in found["couldNotTell"][0]
    assert verify(GRANTED, *known, *registry, *contract)[0] == HELD


def test_a_grant_that_is_named_and_not_proven_is_left_open(verify) -> None:
    known = ("--block-hash", BLOCK_HASH, "--registry", GRANTED.reference.registry)
    document = with_value(VECTORS["granted"], "/anchoring/grant", None)
    code, found = verify(document, *known)
    assert (code, found["held"][-2:]) == (COULD_NOT_TELL, ["state_root", "proofs"])
    nameless = with_value(document, "/grant/contract", None)
    code, found = verify(nameless, *known)
    assert (code, found["notJudged"]) == (HELD, ["grant", "authorizers", "chain_id"])
    code, found = verify(nameless, *known, "--contract", GRANTED.grant.contract)
    assert code == COULD_NOT_TELL
    assert "grant" in found["couldNotTell"][0]


def test_what_is_broken_ends_it_and_is_named(verify) -> None:
    entries = [*PART.entries]
    entries[1] = replace(entries[1], witness=entries[2].witness)
    code, found = verify(replace(PART, entries=tuple(entries)))
    assert (code, found["answer"]) == (BROKEN, "broken")
    assert (found["entry"], found["member"], found["rule"]) == ("4", "/entries/1/witness", "delta_commitment")
    assert found["expected"] == str(entries[1].transition.delta.delta_commitment)
    assert found["held"] == ["json", "schema"]


def test_a_person_reads_the_same_as_a_machine(verify, melete) -> None:
    verify(replace(WHOLE, start_state_root=OTHER_SPACE))
    code, out, err = melete("verify", "bundle")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (code, err) == (BROKEN, "")
    assert (lines["answer"], lines["rule"], lines["member"]) == ("broken", "start_state_root", "/startStateRoot")
    assert lines["received"] == str(OTHER_SPACE)
    assert "entry" not in lines


# What the reader expects


@pytest.mark.parametrize(
    ("words", "rule", "expected"),
    [
        (("--chain-id", 5), "chain_id", "5"),
        (("--registry", "0x" + "44" * 20), "registry", "0x" + "44" * 20),
    ],
)
def test_a_bundle_about_something_else_than_expected_is_broken(verify, words, rule, expected) -> None:
    code, found = verify(PART, *words)
    assert (code, found["rule"], found["expected"].lower()) == (BROKEN, rule, expected)
    assert found["member"].startswith("/reference/")


def test_settings_of_the_place_name_a_node_and_never_what_a_bundle_is_about(verify, workplace, monkeypatch) -> None:
    monkeypatch.setenv("MELETE_REGISTRY", "0x" + "44" * 20)
    monkeypatch.setenv("MELETE_CHAIN_ID", "5")
    assert verify(PART)[1]["held"] == OFFLINE
    Path("melete.toml").write_text(f'[node]\nrpc-url = "{NO_NODE}"\n[registry]\nmemory = "0x{"44" * 20}"\n')
    code, found = verify(PART)
    assert (code, found["held"]) == (COULD_NOT_TELL, OFFLINE)
    assert "no node answers" in found["couldNotTell"][0]
    assert "no proof" in verify(PART, "--offline")[1]["couldNotTell"][0]


@pytest.mark.parametrize("words", [("--rpc-url", NO_NODE), ("--rpc-url", NO_NODE, "--block-hash", BLOCK_HASH)])
def test_a_node_that_does_not_answer_leaves_open_what_it_was_asked(verify, words) -> None:
    code, found = verify(GRANTED, *words)
    assert (code, found["held"]) == (COULD_NOT_TELL, [*OFFLINE, "proofs"])
    assert "no node answers" in found["couldNotTell"][0]


@pytest.mark.parametrize(
    "words",
    [
        ("--block-hash", "0x12"),
        ("--block-hash", "latest"),
        ("--registry", "0x12"),
        ("--contract", "me"),
        ("--chain-id", "-1"),
        ("--chain-id", "x"),
        ("--from-block", "-1"),
        ("--offline", "--from-block", "1"),
        ("--block", "pending"),
        ("--config", "nowhere.toml"),
    ],
)
def test_a_slip_on_the_command_line_is_usage(melete, workplace, words) -> None:
    Path("bundle").write_text(json.dumps(PART.to_json()))
    code, out, err = melete("verify", "bundle", *words)
    assert (code, out) == (USAGE, "")
    assert err


WITHOUT_EXTRAS = """
import sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"web3", "rlp", "trie", "ape", "requests"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Wall())
from melete.cli.main import main
main()
"""


@pytest.mark.parametrize("name", ["whole_history", "granted"])
def test_a_bundle_is_judged_without_what_talks_to_chains(workplace, name) -> None:
    Path("bundle").write_text(json.dumps(VECTORS[name]))
    words = ("verify", "bundle", "--json", "--block-hash", BLOCK_HASH)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_EXTRAS, *words], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert (done.returncode, found["held"], done.stderr) == (COULD_NOT_TELL, OFFLINE, "")
    assert ("melete[chain]" in found["couldNotTell"][0]) == (name == "granted")


# Files


def test_standard_input_is_read_for_a_dash(melete, monkeypatch) -> None:
    text = json.dumps(PART.to_json()).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    code, out, _ = melete("verify", "-", "--json")
    assert (code, json.loads(out)["held"]) == (COULD_NOT_TELL, OFFLINE)


@pytest.mark.parametrize("path", ["nowhere", ".", "a/b"])
def test_a_file_that_cannot_be_read_is_named(melete, workplace, path) -> None:
    code, out, err = melete("verify", path)
    assert (code, out) == (COULD_NOT_TELL, "")
    assert path in err


def test_a_file_of_a_gigabyte_is_not_read(melete, workplace) -> None:
    with Path("bundle").open("wb") as file:
        file.truncate(10**9)
    code, out, _ = melete("verify", "bundle", "--json")
    found = json.loads(out)
    assert (code, found["answer"], found["rule"], found["held"]) == (COULD_NOT_TELL, "could not tell", "size", [])
    assert found["expected"] == "at most 67108864 bytes"


@pytest.mark.parametrize("piece", ["0,", "[", "{", '{"a":'])
def test_a_small_file_that_would_need_a_lot_of_memory_is_not_read(verify, piece) -> None:
    code, found = verify(piece * (2**21 + 1))
    assert (code, found["rule"], found["expected"]) == (COULD_NOT_TELL, "size", "at most 2097152 members")


@pytest.mark.parametrize("piece", ["[", '{"a":'])
def test_a_document_that_is_nested_too_deeply_is_broken(verify, piece) -> None:
    code, found = verify(piece * 100_000)
    assert (code, found["rule"]) == (BROKEN, "json")
    assert (found["expected"], "nested" in found["received"]) == ("one JSON document", True)


def test_the_limits_leave_room_for_ten_thousand_transitions() -> None:
    per_entry = len(json.dumps(WHOLE.to_json())) / len(WHOLE.entries)
    assert per_entry * 10_000 * 4 < verify_module.LARGEST_BUNDLE
    assert json.dumps(WHOLE.to_json()).count(",") / len(WHOLE.entries) * 50_000 < verify_module.MOST_MEMBERS


@pytest.mark.parametrize("cut", [1, 10, 100, 1_000])
def test_a_truncated_file_is_broken_as_json(verify, cut) -> None:
    code, found = verify(json.dumps(PART.to_json())[:-cut])
    assert (code, found["rule"], found["member"], found["entry"]) == (BROKEN, "json", "", None)
    assert "line 1" in found["received"]


@pytest.mark.parametrize("text", ["", " ", "\x00", "nonsense", "'{}'", b"\xff\xfe{}", b"\xef\xbb\xbf{}", "{}{}"])
def test_what_is_no_json_is_broken(verify, text) -> None:
    code, found = verify(text)
    assert (code, found["rule"], found["held"]) == (BROKEN, "json", [])


@pytest.mark.parametrize(
    ("old", "new", "member"),
    [
        ('"toSequence": "5"', '"toSequence": "6", "toSequence": "5"', "/grant/toSequence"),
        ('"toSequence": "5"', '"toSequence": NaN', "/grant/toSequence"),
        ('"toSequence": "5"', '"toSequence": 1E400', "/grant/toSequence"),
        ('"toSequence": "5"', '"toSequence": 9007199254740993', "/grant/toSequence"),
        ('"locator": "ipfs', '"locator": "\\udead', "/entries/2/witness/locator"),
        ('"anchoring"', '"anch\\ud800oring"', "/anch\\ud800oring"),
    ],
)
def test_json_that_readers_disagree_about_is_broken_where_it_stands(verify, old, new, member) -> None:
    text = json.dumps(PART.to_json())
    assert old in text
    code, found = verify(text.replace(old, new))
    assert (code, found["rule"], found["member"]) == (BROKEN, "json", member)


def test_the_entry_of_a_fault_in_its_form_is_named_by_its_sequence(verify) -> None:
    code, found = verify(with_value(PART.to_json(), "/entries/1/witness/deltaSalt", "0x"))
    assert (code, found["rule"], found["entry"]) == (BROKEN, "schema", "4")
    code, found = verify(with_value(found, "/entry", 1))
    assert (code, found["rule"], found["entry"]) == (BROKEN, "schema", None)


@pytest.mark.parametrize(
    "kind", ["melete.audit-bundle/2", "melete.report/1", "\x1b[2J" * 50, "é" * 100_000], ids=range(4)
)
def test_a_kind_that_is_unknown_here_is_left_open_and_shown_safely(verify, melete, kind) -> None:
    code, found = verify({"kind": kind})
    assert (code, found["rule"], found["member"]) == (COULD_NOT_TELL, "kind", "/kind")
    out = melete("verify", "bundle")[1]
    assert all(line.isprintable() for line in out.splitlines())
    assert len(out) < 2_000


@pytest.mark.parametrize("document", [{}, {"kind": None}, {"kind": 1}, {"kind": ["melete.audit-bundle/1"]}])
def test_a_document_without_a_kind_is_broken(verify, document) -> None:
    code, found = verify(document)
    assert (code, found["rule"], found["member"]) == (BROKEN, "schema", "/kind")


def test_names_in_a_hostile_file_are_shown_safely(melete, workplace) -> None:
    Path("bundle").write_text('{"kind": "melete.audit-bundle/1", "\\u001b[2J": 1, "\\u001b[2J": 2}')
    code, out, err = melete("verify", "bundle")
    assert (code, err) == (BROKEN, "")
    assert all(line.isprintable() for line in out.splitlines())


# Writing


def test_a_bundle_is_written_whole_and_for_its_owner_alone(verify, workplace) -> None:
    path = workplace / "new" / "bundle.json"
    before = os.umask(0)
    try:
        size = write_bundle(path, PART)
    finally:
        os.umask(before)
    assert (mode_of(path), path.stat().st_size) == (0o600, size)
    assert [file.name for file in path.parent.iterdir()] == ["bundle.json"]
    assert AuditBundle.from_json(json.loads(path.read_text("utf-8"))) == PART
    assert verify(path.read_bytes())[1]["held"] == OFFLINE


def test_nothing_is_written_over(workplace) -> None:
    target = workplace / "kept"
    target.write_text("kept")
    (workplace / "link").symlink_to(target)
    (workplace / "dangling").symlink_to(workplace / "nowhere")
    for name in ("kept", "link", "dangling"):
        with pytest.raises(InvalidInput, match="does not exist yet"):
            write_bundle(workplace / name, PART)
    assert target.read_text() == "kept"
    assert not (workplace / "nowhere").exists()
    assert sorted(file.name for file in workplace.iterdir()) == ["dangling", "kept", "link"]


def test_a_bundle_that_nobody_would_read_is_not_written(workplace, monkeypatch) -> None:
    size = write_bundle(workplace / "fits", PART)
    monkeypatch.setattr(bundle_building, "LARGEST_BUNDLE", size)
    assert write_bundle(workplace / "fits as well", PART) == size
    monkeypatch.setattr(bundle_building, "LARGEST_BUNDLE", size - 1)
    with pytest.raises(InvalidInput, match="in parts"):
        write_bundle(workplace / "too large", PART)
    assert not (workplace / "too large").exists()


def test_a_disk_that_is_full_leaves_nothing_behind(workplace, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreNotWritten, match="No space left"):
        write_bundle(workplace / "bundle", PART)
    assert list(workplace.iterdir()) == []


def test_text_of_a_bundle_keeps_what_is_not_ascii(workplace) -> None:
    bundle = AuditBundle.from_json(VECTORS["granted"])
    write_bundle(workplace / "bundle", bundle)
    assert "naïve" in (workplace / "bundle").read_text("utf-8")


# Disclosing, before anything is asked of a node

AUDITOR = Address(b"\x11" * 20)
WORDS = ("disclose", OTHER_SPACE, "--from", "1", "--to", "2", "--auditor", AUDITOR, "--out", "out.json")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("disclose", OTHER_SPACE), "--from"),
        (WORDS[:-2], "--out"),
        ((*WORDS, "--register"), "--contract"),
        ((*WORDS, "--contract", "0x12"), "--contract"),
        (("disclose", "0x12", *WORDS[2:]), "SPACE"),
        ((*WORDS, "--from", "01"), "--from"),
        ((*WORDS, "--to", "-1"), "--to"),
        ((*WORDS, "--auditor", "somebody"), "--auditor"),
        ((*WORDS, "--out", "."), "nothing is written over"),
        (WORDS, "--rpc-url"),
    ],
)
def test_a_slip_in_disclosing_is_usage_and_writes_nothing(melete, workplace, words, hint) -> None:
    code, out, err = melete(*words)
    assert (code, out) == (USAGE, "")
    assert hint in err
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize("noun", ["verify", "disclose"])
def test_help_says_what_is_secret_and_what_the_answers_are(melete, noun) -> None:
    code, out, _ = melete(noun, "--help")
    assert code == HELD
    assert ("0600" in out) == (noun == "disclose")
    assert ("could not tell" in " ".join(out.split())) == (noun == "verify")


def test_a_long_range_is_judged(verify) -> None:
    """Not timed; what is not linear would show as a test that does not end."""
    bundle = make_bundle(1, 2_000)
    code, found = verify(bundle)
    assert (code, found["held"]) == (COULD_NOT_TELL, OFFLINE)
