from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from melete.cli.main import run
from melete.packs.keys import generate_key, load_private_key
from melete.packs.signing import sign_pack
from melete.packs.tree import load_tree
from melete.packs.trust import TrustStore
from melete.packs.validation import validate

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
SECRET = "sk-" + "Ab3dEf6hIj9kLm2nOp5qRs8t"
Melete = Callable[..., tuple[int, Any]]
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and home, without settings."""
    for name in list(os.environ):
        if name.startswith(("MELETE_", "AMP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command of `melete memory`; return exit code and both outputs."""

    def command(*words: object) -> tuple[int, str, str]:
        code = run(["memory", *map(str, words)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert SECRET not in captured.out + captured.err
        return code, captured.out, captured.err

    return command


@pytest.fixture
def melete(say: Say) -> Melete:
    """Run a command with --json; return exit code and the one object that it prints."""

    def command(*words: object) -> tuple[int, Any]:
        code, out, _ = say(*words, "--json")
        (line,) = out.splitlines()
        return code, json.loads(line)

    return command


@pytest.fixture
def remembered(melete: Melete) -> Callable[..., str]:
    def remember(content: str, *words: object, kind: str = "semantic") -> str:
        code, found = melete("remember", "--type", kind, *words, content)
        assert code == HOLDS
        return str(found["ids"][0])

    return remember


@pytest.fixture
def key_files(workplace: Path) -> tuple[str, str]:
    return generate_key(workplace / "signer.key")


def sign(folder: str, key_files: tuple[str, str]) -> str:
    return sign_pack(folder, load_private_key(key_files[0])).digest


# Export


def test_memories_are_written_as_a_pack_and_come_back(
    melete: Melete, say: Say, remembered: Callable[..., str], key_files: tuple[str, str]
) -> None:
    claim = remembered("The office is in Oslo.", "--tag", "place")
    directive = remembered("In all copy, never use em dashes.", kind="procedural")
    remembered("It rained.", kind="episodic")
    code, found = melete("export", "--pack", "house-ways", "--out", "out/pack", "--created", "2026-04-21")
    assert code == HOLDS
    assert found["units"] == [
        {"id": directive, "unit": "memory/operating-principles.md#1", "type": "directive"},
        {"id": claim, "unit": "memory/product-context.md#1", "type": "claim"},
    ]
    assert validate(load_tree("out/pack")).ok
    digest = sign("out/pack", key_files)
    code, found = melete("import", "out/pack", "--public-key", key_files[1], "--agent", "other", "--store", "b.db")
    assert code == HOLDS
    assert (found["digest"], found["verified"], len(found["added"]), found["gone"]) == (digest, True, 2, [])
    code, out, _ = say("recall", "--type", "semantic", "--agent", "other", "--store", "b.db", "office")
    assert code == HOLDS
    assert "The office is in Oslo." in out
    assert f"place, pack:house-ways, signer:{found['signer']}" in out
    code, again = melete("import", "out/pack", "--public-key", key_files[1], "--agent", "other", "--store", "b.db")
    assert (code, again["added"], sorted(again["known"])) == (HOLDS, [], sorted(found["added"]))


def test_people_are_told_what_was_written_and_imported(
    say: Say, remembered: Callable[..., str], key_files: tuple[str, str]
) -> None:
    memory_id = remembered("The office is in Oslo.")
    code, out, _ = say("export", "--pack", "house-ways")
    assert code == HOLDS
    assert f"{memory_id}  memory/product-context.md#1  claim" in out
    assert "sign it with amp sign" in out
    digest = sign("house-ways", key_files)
    code, out, err = say("import", "house-ways", "--public-key", key_files[1], "--store", "b.db")
    assert (code, err) == (HOLDS, "")
    assert f"digest {digest}" in out
    assert "added: 1" in out


def test_tags_types_agents_and_ids_choose(melete: Melete, remembered: Callable[..., str]) -> None:
    first = remembered("Tea is green.", "--tag", "a", "--tag", "b")
    second = remembered("In doubt, always ask.", "--tag", "a", kind="procedural")
    third = remembered("Ada is tall.", "--agent", "ada")
    for number, (words, expected) in enumerate(
        [
            (["--tag", "a"], {first, second}),
            (["--tag", "a", "--tag", "b"], {first}),
            (["--type", "procedural"], {second}),
            (["--agent", "ada"], {third}),
            (["--id", second, "--id", first], {first, second}),
        ]
    ):
        code, found = melete("export", "--pack", f"pack-{number}", *words)
        assert code == HOLDS
        assert {unit["id"] for unit in found["units"]} == expected


def test_what_no_pack_may_hold_is_named_and_nothing_written(
    melete: Melete, say: Say, remembered: Callable[..., str], workplace: Path
) -> None:
    good = remembered("Tea is green.")
    secret, broken = remembered(f"The token is {SECRET}"), remembered("one\n}\ntwo")
    code, out, err = say("export", "--pack", "house-ways")
    assert (code, out) == (DOES_NOT_HOLD, "")
    assert secret in err
    assert broken in err
    code, found = melete("export", "--pack", "house-ways")
    assert code == DOES_NOT_HOLD
    assert found["error"]["name"] == "ContentRefused"
    assert [finding["rule"] for finding in found["error"]["findings"]] == ["credential", "not-carried"]
    assert not (workplace / "house-ways").exists()
    code, found = melete("export", "--pack", "house-ways", "--leave-out")
    assert (code, [unit["id"] for unit in found["units"]]) == (HOLDS, [good])
    assert len(found["leftOut"]) == 2
    code, _, err = say("export", "--pack", "house-ways", "--leave-out", "--force")
    assert (code, err.count("left out: ")) == (HOLDS, 2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], USAGE),
        (["--pack", "No Slug"], USAGE),
        (["--pack", "../x"], USAGE),
        (["--pack", "x", "--type", "episodic"], USAGE),
        (["--pack", "x", "--id", "not-an-id"], USAGE),
        (["--pack", "x", "--id", "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10"], DOES_NOT_HOLD),
        (["--pack", "x", "--id", "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10", "--tag", "a"], USAGE),
        (["--pack", "x", "--created", "today"], USAGE),
        (["--pack", "x", "--pack-version", "0"], USAGE),
        (["--pack", "x", "--tag", "nothing"], DOES_NOT_HOLD),
        (["--pack", "x", "--store", "missing.db"], COULD_NOT_TELL),
    ],
)
def test_wrong_exports_end_with_their_exit_code_and_no_folder(
    say: Say, remembered: Callable[..., str], words: list[str], code: int, workplace: Path
) -> None:
    remembered("Tea is green.")
    told = say("export", *words)
    assert told[0] == code
    assert not (workplace / "x").exists()
    assert not (workplace / "missing.db").exists()


# Import


def write_pack(folder: Path, body: str = "[claim] The tea is green.\n") -> Path:
    (folder / "memory").mkdir(parents=True)
    head = "---\ntype: cluster\napplies_to: all\nsource: self\n---\n\n"
    (folder / "memory" / "operating-principles.md").write_text(head + body)
    (folder / "agents.md").write_text("# Routing\n\n## Always load\n- operating-principles.md: all\n")
    manifest = {
        "name": "small-pack",
        "title": "Small",
        "version": "1\x1b[2J",
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "agents_file": "agents.md",
        "agents": ["claude-code"],
        "capability_files": ["operating-principles.md"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_an_unverified_pack_is_refused_unless_told(melete: Melete, say: Say, workplace: Path) -> None:
    folder = write_pack(workplace / "pack")
    code, out, err = say("import", folder)
    assert (code, out) == (DOES_NOT_HOLD, "")
    assert "--allow-unverified" in err
    assert not (workplace / "data").exists()
    code, out, _ = say("import", folder, "--allow-unverified")
    assert code == HOLDS
    assert "nobody known (unverified)" in out
    assert "\x1b" not in out
    code, found = melete("recall", "--type", "semantic", "tea")
    assert found["hits"][0]["tags"] == ["pack:small-pack", "signer:unverified"]


def test_keys_that_are_trusted_by_name_count(melete: Melete, workplace: Path, key_files: tuple[str, str]) -> None:
    folder = write_pack(workplace / "pack")
    sign(str(folder), key_files)
    assert melete("import", folder)[0] == DOES_NOT_HOLD
    TrustStore().add("ada", load_private_key(key_files[0]).public)
    code, found = melete("import", folder)
    assert (code, found["signerName"], found["verified"]) == (HOLDS, "ada", True)
    TrustStore().revoke("ada")
    assert melete("import", folder, "--allow-unverified")[0] == DOES_NOT_HOLD


def test_an_upgrade_names_what_went_away(melete: Melete, say: Say, workplace: Path, key_files: tuple[str, str]) -> None:
    for name, body in (("one", "[claim] The tea is green.\n"), ("two", "[claim] The cup is red.\n")):
        sign(str(write_pack(workplace / name, body)), key_files)
    code, first = melete("import", "one", "--public-key", key_files[1])
    code, out, _ = say("import", "two", "--public-key", key_files[1])
    assert code == HOLDS
    assert f"no longer in the pack: {first['added'][0]}" in out


def test_hidden_text_is_refused_unless_told(say: Say, workplace: Path) -> None:
    folder = write_pack(workplace / "pack", "[claim] The tea\u200b is green.\n\n[claim] The cup\u200b is red.\n")
    code, _, err = say("import", folder, "--allow-unverified")
    assert (code, err.count("U+200B")) == (DOES_NOT_HOLD, 2)
    code, _, err = say("import", folder, "--allow-unverified", "--allow-hidden")
    assert (code, err.count("warning")) == (HOLDS, 2)


def test_imports_wait_where_approval_is_by_queue(melete: Melete, workplace: Path) -> None:
    folder = write_pack(workplace / "pack")
    words = ("import", folder, "--allow-unverified", "--approval", "queue", "--as", "ada")
    code, found = melete(*words)
    assert (code, len(found["waiting"]), found["added"]) == (HOLDS, 1, [])
    assert melete("pending")[1]["pending"][0]["writer"] == "ada"
    assert melete(*words)[1]["known"] == found["waiting"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], USAGE),
        (["nowhere"], USAGE),
        (["."], DOES_NOT_HOLD),
        (["pack", "--public-key", "nowhere.pub"], COULD_NOT_TELL),
        (["pack", "--agent", ""], USAGE),
        (["pack", "--scope", "x"], USAGE),
    ],
)
def test_wrong_imports_end_with_their_exit_code(say: Say, workplace: Path, words: list[str], code: int) -> None:
    write_pack(workplace / "pack")
    assert say("import", *words)[0] == code


def test_a_private_key_is_not_taken_for_a_public_one(say: Say, workplace: Path, key_files: tuple[str, str]) -> None:
    write_pack(workplace / "pack")
    code, _, err = say("import", "pack", "--public-key", key_files[0])
    assert code == USAGE
    assert "PRIVATE" in err


def test_help_loads_nothing_heavy(say: Say) -> None:
    for word in ("export", "import"):
        code, out, _ = say(word, "--help")
        assert code == HOLDS
        assert "--json" in out
    script = "import sys, melete.cli.memory_packs; print({'sqlalchemy', 'cryptography', 'yaml'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "set()"
