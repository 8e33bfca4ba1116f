"""The command `amp`, and what it says about keys and signatures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli import amp as frame
from melete.cli import main as melete_frame
from melete.cli.packs import keygen, sign, verify
from melete.cli.packs.arguments import CommandLine, Flag, tell, visible, warn
from melete.packs.findings import Finding, Severity
from melete.packs.keys import load_public_key

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
Amp = Callable[..., tuple[int, str, str]]

MANIFEST = {
    "name": "notes",
    "title": "Notes",
    "version": {"number": 1},
    "layout": "semantic-cluster",
    "primitive_format": "inline-tag-v0.4",
    "agents_file": "agents.md",
    "agents": ["claude-code"],
    "capability_files": ["operating-principles.md"],
    "signed": False,
    "signature": "",
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pack and an empty home, and no keys in the environment."""
    for name in ("AMP_PRIVATE_KEY", "AMP_PUBLIC_KEY", "MELETE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "pack" / "memory").mkdir(parents=True)
    (tmp_path / "pack" / "manifest.json").write_text(json.dumps(MANIFEST, indent=2))
    (tmp_path / "pack" / "agents.md").write_text("# Routes\n\n## Always load\n- operating-principles.md\n")
    (tmp_path / "pack" / "memory" / "operating-principles.md").write_text("[goal] Optimize for answers.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def amp(workplace: Path, capsys: pytest.CaptureFixture[str]) -> Amp:
    """Run the command in this process: exit code, standard output, standard error."""

    def command(*words: object) -> tuple[int, str, str]:
        code = frame.run([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def signed(amp: Amp) -> Amp:
    amp("keygen", "--out", "my.key")
    assert amp("sign", "pack", "--key", "my.key")[0] == HOLDS
    return amp


# The frame


def test_help_lists_every_command(amp: Amp) -> None:
    for words in (["--help"], ["-h"], []):
        code, out, _ = amp(*words)
        assert code == HOLDS
        listed = out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed if line[2] != " "] == list(frame.COMMANDS)
    assert "3 could not tell" in out


def test_help_of_a_command_names_every_option(amp: Amp) -> None:
    for name, options in (
        ("keygen", ["--out", "--force", "--json"]),
        ("sign", ["--key", "--payload", "--ignore", "--json", "text|reference"]),
        ("verify", ["--public-key", "--ignore", "--json"]),
        ("trust", ["add", "list", "rotate", "revoke"]),
    ):
        for flag in ("--help", "-h"):
            code, out, _ = amp(name, flag)
            assert code == HOLDS
            assert all(option in out for option in options), name


def test_version_is_that_of_the_package(amp: Amp) -> None:
    assert amp("--version")[:2] == (HOLDS, "amp, version 0.1.0\n")


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["--bogus"],
        ["verify"],
        ["verify", "pack", "more"],
        ["verify", "pack", "--scoep"],
        ["verify", "pack", "--scoep", "x"],
        ["verify", "pack", "--public-key"],
        ["verify", "pack", "--public-keys", "x"],
        ["verify", "pack", "--public", "x"],
        ["verify", "pack", "--json=yes"],
        ["verify", "pack", "-j"],
        ["verify", "-", "--x"],
        ["sign"],
        ["sign", "pack", "--key"],
        ["sign", "pack", "--payload"],
        ["sign", "pack", "--payload", "both"],
        ["sign", "pack", "--payload", "TEXT"],
        ["keygen", "my.key"],
        ["keygen", "--force=no"],
        ["trust", "bogus"],
        ["trust", "add", "alice"],
        ["trust", "revoke"],
        ["trust", "list", "alice"],
    ],
)
def test_wrong_words_are_usage_errors_and_nothing_happens(workplace: Path, amp: Amp, words: list[str]) -> None:
    before = sorted(path.read_bytes() for path in workplace.rglob("*") if path.is_file())
    code, out, err = amp(*words)
    assert (code, out) == (USAGE, "")
    assert "Error: " in err
    assert sorted(path.read_bytes() for path in workplace.rglob("*") if path.is_file()) == before
    code, out, err = amp(*words, "--json")
    assert code == USAGE
    assert set(json.loads(out)["error"]) == {"name", "message"}
    assert err == ""


def test_errors_are_one_line_or_one_json_object(amp: Amp) -> None:
    code, out, err = amp("verify", "nowhere")
    assert (code, out) == (USAGE, "")
    assert err == "amp: pack: 'nowhere' is refused; it must be a folder that holds a pack.\n"
    code, out, err = amp("verify", "nowhere", "--json")
    assert (code, err) == (USAGE, "")
    error = json.loads(out)["error"]
    assert (error["name"], error["field"], error["value"]) == ("InvalidInput", "pack", "nowhere")


def test_fault_in_a_command_is_one_line_unless_asked_for(
    workplace: Path, amp: Amp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> int:
        raise RuntimeError("secret")

    monkeypatch.setattr(verify.command, "run", fail)
    code, out, err = amp("verify", "pack")
    assert (code, out, err.count("\n")) == (COULD_NOT_TELL, "", 1)
    assert "RuntimeError" in err
    assert "secret" not in err
    monkeypatch.setenv("MELETE_DEBUG", "1")
    with pytest.raises(RuntimeError):
        amp("verify", "pack")


def test_interrupt_ends_quietly(amp: Amp, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify.command, "run", interrupt)
    assert amp("verify", "pack") == (130, "", "")


def test_melete_pack_is_the_same_command(signed: Amp, capsys: pytest.CaptureFixture[str]) -> None:
    _, ours, _ = signed("verify", "pack", "--json")
    assert melete_frame.run(["pack", "verify", "pack", "--json"]) == COULD_NOT_TELL
    assert capsys.readouterr().out == ours
    assert melete_frame.run(["pack", "verify", "pack", "--public-key", "my.pub"]) == HOLDS
    assert melete_frame.run(["pack", "verify", "pack", "--bogus"]) == USAGE
    assert melete_frame.run(["pack", "verify", "nowhere"]) == USAGE
    assert "melete: pack: 'nowhere'" in capsys.readouterr().err
    assert melete_frame.run(["pack", "--help"]) == HOLDS
    assert "uninstall" in capsys.readouterr().out


# Two readings of one command line

COMMANDS: list[CommandLine] = [keygen.command, sign.command, verify.command]
WORDS = [
    "pack",
    "other",
    "",
    "-",
    "--",
    "-h",
    "--json",
    "--force",
    "--out",
    "--key",
    "--payload",
    "--public-key",
    "--ignore",
]
words = st.sampled_from(
    [*WORDS, "text", "reference", "--out=x", "--payload=text", "--payload=", "--ignore=-x", "--json=1", "--bogus"]
)


@given(st.sampled_from(COMMANDS), st.lists(words, max_size=6))
def test_plain_call_means_what_click_reads(command: CommandLine, given_words: list[str]) -> None:
    values = command.parse_plain(given_words)
    if values is not None:
        assert command.to_click().make_context("amp", list(given_words)).params == values


@pytest.mark.parametrize(
    "given_words",
    [
        ["pack"],
        ["pack", "--json"],
        ["--json", "pack"],
        ["--public-key", "a", "pack", "--public-key=b", "--ignore", "x"],
        ["pack", "--public-key", "-----BEGIN PUBLIC KEY-----\\nx"],
    ],
)
def test_everyday_calls_are_plain(given_words: list[str]) -> None:
    values = verify.command.parse_plain(given_words)
    assert values is not None
    assert verify.command.to_click().make_context("amp", list(given_words)).params == values


def test_every_option_has_help_and_a_name_of_its_own() -> None:
    for command in COMMANDS:
        assert all(option.help.endswith((".", "]")) for option in command.options)
        assert len({option.name for option in command.options}) == len(command.options)
        assert Flag("--json", "as_json", "Print one JSON object.") in command.options
        assert isinstance(command.to_click(), click.Command)


# What a command loads


def loaded(workplace: Path, *given_words: str) -> set[str]:
    script = (
        "import sys\nfrom melete.cli.amp import run\n"
        f"run({list(given_words)!r})\nprint('modules', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=workplace)
    return set(done.stderr.rpartition("modules ")[2].split())


def test_plain_commands_load_neither_click_nor_a_chain(signed: Amp, workplace: Path) -> None:
    heavy = {"click", "web3", "ape", "eth_account", "eth_abi", "sqlalchemy", "rich", "jsonschema", "yaml", "requests"}
    for given_words in (["verify", "pack", "--public-key", "my.pub"], ["sign", "pack", "--key", "my.key"]):
        modules = loaded(workplace, *given_words)
        assert heavy.isdisjoint(modules)
        assert {"inspect", "dataclasses", "pathlib", "melete.primitives"}.isdisjoint(modules)
    assert (heavy - {"click"}).isdisjoint(loaded(workplace, "--help"))


def test_reader_that_goes_away_leaves_no_trace(signed: Amp, workplace: Path) -> None:
    program = str(Path(sys.executable).with_name("amp"))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for given_words in (["verify", "pack", "--public-key", "my.pub"], ["--help"]):
            done = subprocess.run([program, *given_words], stdout=writing, stderr=subprocess.PIPE, check=False)
            assert done.stderr == b""
            assert done.returncode == HOLDS
    finally:
        os.close(writing)


def test_what_a_terminal_cannot_show_ends_no_command(signed: Amp, workplace: Path) -> None:
    (workplace / "pack" / "caf\u00e9.md").touch()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("amp")), "verify", "pack"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == DOES_NOT_HOLD
    assert b"added    caf\\xe9.md" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("memory/a b.md", "memory/a b.md"),
        ("caf\u00e9", "caf\u00e9"),
        ("a\nb", "'a\\nb'"),
        ("\x1b[2J", "'\\x1b[2J'"),
        ("a\u202eb", "'a\\u202eb'"),
        (" a", "' a'"),
        ("x" * 500, "'" + "x" * 400 + "'..."),
    ],
)
def test_text_from_outside_is_one_printable_line(text: str, shown: str) -> None:
    assert visible(text) == shown


# keygen


def test_keygen_says_where_the_keys_are(amp: Amp, workplace: Path) -> None:
    code, out, err = amp("keygen", "--json")
    assert (code, err) == (HOLDS, "")
    found = json.loads(out)
    assert found["private"] == str(workplace / "home" / ".amp" / "keys" / "signing.key")
    assert found["keyId"] == load_public_key(found["public"]).key_id
    assert Path(found["private"]).stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in out


def test_keygen_writes_over_nothing_unless_forced(amp: Amp) -> None:
    assert amp("keygen", "--out", "mykey")[0] == HOLDS
    before = Path("mykey").read_text(), Path("mykey.pub").read_text()
    assert before[0] != before[1]
    code, out, err = amp("keygen", "--out", "mykey")
    assert (code, out) == (USAGE, "")
    assert "--force" in err
    assert (Path("mykey").read_text(), Path("mykey.pub").read_text()) == before
    Path("mykey").chmod(0o644)
    assert amp("keygen", "--out", "mykey", "--force")[0] == HOLDS
    assert Path("mykey").stat().st_mode & 0o777 == 0o600
    assert Path("mykey").read_text() != before[0]


# sign


def test_sign_uses_the_default_key_and_says_what_it_signed(amp: Amp) -> None:
    code, out, err = amp("sign", "pack")
    assert (code, out) == (COULD_NOT_TELL, "")
    assert "run amp keygen" in err
    amp("keygen")
    code, out, err = amp("sign", "pack", "--json")
    assert (code, err) == (HOLDS, "")
    found = json.loads(out)
    assert (found["form"], found["files"], found["warnings"]) == ("text", 2, [])
    assert json.loads(Path("pack/manifest.json").read_text())["signature"] == found["signature"]


@pytest.mark.parametrize("form", ["text", "reference"])
def test_sign_takes_either_form(amp: Amp, form: str) -> None:
    amp("keygen")
    assert amp("sign", "pack", "--payload", form)[0] == HOLDS
    _, out, _ = amp("verify", "pack", "--json")
    assert json.loads(out)["form"] == form


def test_sign_warns_of_a_key_that_others_can_read(amp: Amp) -> None:
    amp("keygen", "--out", "my.key")
    Path("my.key").chmod(0o644)
    code, out, err = amp("sign", "pack", "--key", "my.key")
    assert code == HOLDS
    assert err == "amp: warning: my.key has mode 0644, so others can read the key; run: chmod 600\n"
    assert "chmod 600" not in out
    assert "chmod 600" in json.loads(amp("sign", "pack", "--key", "my.key", "--json")[1])["warnings"][0]


def test_key_of_the_environment_wins_and_says_so(amp: Amp, monkeypatch: pytest.MonkeyPatch) -> None:
    amp("keygen", "--out", "flag.key")
    amp("keygen", "--out", "environment.key")
    monkeypatch.setenv("AMP_PRIVATE_KEY", Path("environment.key").read_text().replace("\n", "\\n"))
    code, out, err = amp("sign", "pack", "--key", "flag.key")
    assert code == HOLDS
    assert load_public_key("environment.pub").key_id in out
    assert "AMP_PRIVATE_KEY is set and wins over --key" in err
    monkeypatch.setenv("AMP_PUBLIC_KEY", Path("environment.pub").read_text())
    code, _, err = amp("verify", "pack", "--public-key", "flag.pub")
    assert code == HOLDS
    assert "AMP_PUBLIC_KEY is set and wins over --public-key" in err
    monkeypatch.setenv("AMP_PUBLIC_KEY", Path("flag.pub").read_text())
    assert amp("verify", "pack", "--public-key", "environment.pub")[0] == DOES_NOT_HOLD


def test_sign_names_what_it_left_out(amp: Amp) -> None:
    amp("keygen")
    Path("pack/.DS_Store").touch()
    code, _, err = amp("sign", "pack", "--ignore", ".DS_Store")
    assert code == HOLDS
    assert ".DS_Store is not covered" in err
    code, out, _ = amp("verify", "pack")
    assert code == DOES_NOT_HOLD
    assert "added    .DS_Store" in out
    assert amp("verify", "pack", "--ignore", ".DS_Store")[0] == COULD_NOT_TELL


def test_sign_refuses_a_pack_and_says_which_file(amp: Amp) -> None:
    amp("keygen")
    before = Path("pack/manifest.json").read_bytes()
    Path("pack/memory/link.md").symlink_to("/etc/passwd")
    code, out, err = amp("sign", "pack")
    assert (code, out) == (DOES_NOT_HOLD, "")
    assert "memory/link.md" in err
    assert "rule symlink" in err
    assert Path("pack/manifest.json").read_bytes() == before
    Path("pack/memory/link.md").unlink()
    Path("pack/agents.md").unlink()
    code, _, err = amp("sign", "pack")
    assert code == DOES_NOT_HOLD
    assert err.startswith("amp: Missing agents.md")


def test_private_key_never_shows(amp: Amp, monkeypatch: pytest.MonkeyPatch) -> None:
    amp("keygen", "--out", "my.key")
    text = Path("my.key").read_text()
    secret = text.splitlines()[1]
    monkeypatch.setenv("AMP_PRIVATE_KEY", text[:-40])
    for given_words in (["sign", "pack"], ["sign", "pack", "--json"], ["sign", "pack", "--key", "my.key"]):
        code, out, err = amp(*given_words)
        assert code == USAGE
        assert secret[:20] not in out + err
    monkeypatch.delenv("AMP_PRIVATE_KEY")
    for given_words in (
        ["sign", "pack", f"--key={text}"],
        ["sign", "pack", "--key", text],
        ["sign", "pack", "--key", secret, "--json"],
        ["verify", "pack", "--public-key", text],
        ["verify", "pack", "--public-key", secret, "--json"],
        ["trust", "add", "alice", text],
        ["trust", "add", "alice", "--", text],
        ["verify", text],
        ["verify", "pack", text],
        [text],
    ):
        code, out, err = amp(*given_words)
        assert code == USAGE, given_words
        assert secret[:20] not in out + err
        assert secret[-20:] not in out + err


# verify


def test_verify_has_three_answers(signed: Amp) -> None:
    code, out, _ = signed("verify", "pack")
    assert code == COULD_NOT_TELL
    assert out.startswith("answer   unknown\nreason   consistent, signer unknown")
    code, out, _ = signed("verify", "pack", "--public-key", "my.pub")
    assert code == HOLDS
    assert out.startswith("answer  held\n") or out.startswith("answer   held\n")
    assert signed("verify", "pack", "--public-key", Path("my.pub").read_text())[0] == HOLDS
    assert signed("verify", "pack", "--public-key", Path("my.pub").read_text().replace("\n", "\\n"))[0] == HOLDS
    Path("pack/agents.md").write_text("changed")
    Path("pack/memory/operating-principles.md").rename("pack/memory/renamed.md")
    Path("pack/x\u00e9.md").write_text("added")
    code, out, _ = signed("verify", "pack", "--public-key", "my.pub")
    assert code == DOES_NOT_HOLD
    assert "(rule files-differ)" in out
    assert "changed  agents.md\n" in out
    assert "renamed  memory/operating-principles.md -> memory/renamed.md\n" in out
    assert "added    x\u00e9.md\n" in out


def test_verify_speaks_json(signed: Amp) -> None:
    Path("pack/agents.md").write_text("changed")
    code, out, err = signed("verify", "pack", "--public-key", "my.pub", "--json")
    assert (code, err) == (DOES_NOT_HOLD, "")
    found = json.loads(out)
    assert set(found) == {
        *("answer", "rule", "reason", "signed", "form", "signer", "signerName", "digest", "differences", "warnings"),
    }
    assert (found["answer"], found["rule"], found["signed"]) == ("broken", "files-differ", True)
    assert found["differences"] == [{"kind": "changed", "path": "agents.md"}]


def test_pack_that_is_not_signed_does_not_hold(amp: Amp) -> None:
    code, out, _ = amp("verify", "pack")
    assert code == DOES_NOT_HOLD
    assert "the pack is not signed" in out
    assert json.loads(amp("verify", "pack", "--json")[1])["signed"] is False


def test_file_names_from_a_manifest_are_shown_safely(signed: Amp) -> None:
    manifest = json.loads(Path("pack/manifest.json").read_text())
    manifest["files"].append({"path": "\x1b[2J\nanswer   held", "sha256": "0" * 64})
    Path("pack/manifest.json").write_text(json.dumps(manifest))
    code, out, _ = signed("verify", "pack", "--public-key", "my.pub")
    assert code == DOES_NOT_HOLD
    assert "missing  '\\x1b[2J\\nanswer   held'\n" in out
    assert "\x1b" not in out


def test_private_key_as_public_one_is_refused_with_a_warning(signed: Amp, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = signed("verify", "pack", "--public-key", "my.key")
    assert (code, out) == (USAGE, "")
    assert "treat it as exposed" in err
    monkeypatch.setenv("AMP_PUBLIC_KEY", Path("my.key").read_text())
    code, _, err = signed("verify", "pack")
    assert code == USAGE
    assert "AMP_PUBLIC_KEY" in err


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", '{"a":1,"a":2}', '{"__proto__":1}', "1E400", '"\\ud800"', "[" * 10_000]
)
def test_manifest_that_is_none_does_not_hold_and_is_told(amp: Amp, manifest: str) -> None:
    Path("pack/manifest.json").write_text(manifest)
    code, out, err = amp("verify", "pack")
    assert (code, out) == (DOES_NOT_HOLD, "")
    assert err.startswith("amp: manifest.json is not valid JSON")
    assert err.count("\n") == 1


# trust


def test_trusted_signer_is_held_by_name_until_revoked(signed: Amp) -> None:
    code, out, _ = signed("trust", "add", "alice", "my.pub", "--json")
    assert code == HOLDS
    added = json.loads(out)
    assert (added["name"], added["state"], added["keyId"]) == ("alice", "active", load_public_key("my.pub").key_id)
    code, out, _ = signed("verify", "pack")
    assert code == HOLDS
    assert "(alice)" in out
    signed("keygen", "--out", "next.key")
    assert signed("trust", "rotate", "alice", "next.pub", "--since", "2026-07-01")[0] == HOLDS
    code, _, err = signed("verify", "pack")
    assert code == HOLDS
    assert "alice replaced this key at 2026-07-01" in err
    signed("sign", "pack", "--key", "next.key")
    assert signed("verify", "pack")[::2] == (HOLDS, "")
    code, out, _ = signed("trust", "revoke", "alice", "--since", "2026-08-01")
    assert code == HOLDS
    assert out.count("revoked") == 2
    for given_words in (["verify", "pack"], ["verify", "pack", "--public-key", "next.pub"]):
        code, out, _ = signed(*given_words)
        assert code == DOES_NOT_HOLD
        assert "revoked since 2026-08-01" in out
    code, out, _ = signed("trust", "list")
    assert [line.split()[1] for line in out.splitlines()] == ["revoked", "revoked"]
    assert len(json.loads(signed("trust", "list", "--json")[1])["keys"]) == 2


def test_trust_refuses_what_it_cannot_keep(signed: Amp) -> None:
    assert signed("trust", "add", "a b", "my.pub")[0] == USAGE
    assert signed("trust", "add", "alice", "my.key")[0] == USAGE
    assert signed("trust", "add", "alice", "nowhere.pub")[0] == COULD_NOT_TELL
    assert signed("trust", "rotate", "alice", "my.pub")[0] == USAGE
    assert signed("trust", "revoke", "alice")[0] == USAGE
    assert signed("trust", "revoke", "alice", "--since", "soon")[0] == USAGE
    assert signed("trust", "list") == (HOLDS, "", "")


def test_damaged_store_is_no_answer(signed: Amp, workplace: Path) -> None:
    signed("trust", "add", "alice", "my.pub")
    (workplace / "home" / ".amp" / "trusted.json").write_text("{}")
    for given_words in (["verify", "pack"], ["verify", "pack", "--public-key", "my.pub"], ["trust", "list"]):
        code, out, err = signed(*given_words)
        assert (code, out) == (COULD_NOT_TELL, "")
        assert "trusted.json" in err


# Output that goes nowhere


def run_amp(workplace: Path, words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("amp")
    return subprocess.run(
        ["sh", "-c", f"{program} {words}"], capture_output=True, text=True, check=False, cwd=workplace
    )


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
@pytest.mark.parametrize("words", ["verify pack --json", "verify pack", "--help"])
def test_output_that_cannot_be_written_is_one_line_and_no_answer(
    signed: Amp, workplace: Path, words: str, where: str
) -> None:
    done = run_amp(workplace, f"{words} {where}")
    assert done.returncode == 3
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert len(lines) == 1
    assert "standard output" in lines[0]


def test_empty_result_needs_somewhere_to_go_too(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(workplace))
    (workplace / ".git").mkdir()
    assert run_amp(workplace, "list").stdout == ""
    assert run_amp(workplace, "list >&-").returncode == 3


def test_errors_that_cannot_be_written_change_no_answer(signed: Amp, workplace: Path) -> None:
    for where in ("2>&-", "2>/dev/full"):
        assert run_amp(workplace, f"verify nowhere {where}").returncode == 2


def test_reader_that_goes_away_does_not_change_the_answer(signed: Amp, workplace: Path) -> None:
    for number in range(400):
        (workplace / f"pack/{'long-name-' * 12}{number}.md").write_text("x")
    program = str(Path(sys.executable).with_name("amp"))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for words in (["verify", "pack", "--public-key", "my.pub"], ["validate", "nowhere"]):
            done = subprocess.run([program, *words], stdout=writing, stderr=subprocess.PIPE, check=False, cwd=workplace)
            assert b"Traceback" not in done.stderr
            assert done.returncode == (1 if words[0] == "verify" else 2)
    finally:
        os.close(writing)


# What is not shown, and what is


SECRET = "sk-" + "a1" * 12


def test_secrets_in_names_are_not_shown(signed: Amp, workplace: Path) -> None:
    (workplace / f"pack/{SECRET}.md").write_text("x")
    for words in ("verify pack --public-key my.pub", "verify pack --public-key my.pub --json"):
        done = run_amp(workplace, words)
        assert done.returncode == 1
        assert SECRET not in done.stdout + done.stderr
    assert SECRET not in run_amp(workplace, "submit-check pack --public-key my.pub --json").stdout
    (workplace / "pack/manifest.json").write_text(f'{{"{SECRET}": {{"a": 1, "a": 2}}}}')
    for words in ("verify pack", "sign pack --key my.key", "verify pack --json", "submit-check pack"):
        done = run_amp(workplace, words)
        assert done.returncode == 1
        assert SECRET not in done.stdout + done.stderr


def test_secrets_in_a_manifest_and_in_names_are_not_shown_by_any_command(signed: Amp, workplace: Path) -> None:
    manifest = json.loads((workplace / "pack/manifest.json").read_text())
    changes: list[dict[str, object]] = [
        {"version": SECRET},
        {"name": SECRET},
        {"title": SECRET},
        {"layout": SECRET},
        {"primitive_format": SECRET},
        {"agents_file": SECRET},
        {"capability_files": [f"{SECRET}.md"]},
    ]
    for change in changes:
        (workplace / "pack/manifest.json").write_text(json.dumps({**manifest, **change}))
        check_that_no_command_shows(SECRET, workplace)
    (workplace / "pack/manifest.json").write_text(json.dumps(manifest))
    for name in (f"{SECRET}.md", f"{SECRET.upper().replace('SK-', 'sk-')}.md"):
        (workplace / f"pack/{name}").write_text("x")
    check_that_no_command_shows(SECRET[5:], workplace)
    check_that_no_command_shows(SECRET[5:].upper(), workplace)


def check_that_no_command_shows(secret: str, workplace: Path) -> None:
    for words in (
        "verify pack",
        "validate pack",
        "submit-check pack",
        "sign pack --key my.key",
        "install --from-path pack",
    ):
        for flags in ("", " --json"):
            done = run_amp(workplace, words + flags)
            assert secret not in done.stdout + done.stderr, words
            assert done.returncode != 0 or words.startswith(("sign", "verify"))


def test_verify_tells_of_hidden_text_and_answers_the_same(signed: Amp, workplace: Path) -> None:
    path = workplace / "pack/agents.md"
    path.write_text(path.read_text() + "\na\u200bb\n")
    line = path.read_text().count("\n")
    assert run_amp(workplace, "sign pack --key my.key").returncode == 0
    done = run_amp(workplace, "verify pack --public-key my.pub")
    assert done.returncode == 0
    assert f"amp: warning: agents.md line {line}: " in done.stderr
    assert "U+200B" in done.stderr
    assert "warning: warning" not in done.stderr


def test_warning_says_once_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    warn(["warning: a: b", "c"])
    assert capsys.readouterr().err == "amp: warning: a: b\namp: warning: c\n"
    tell([Finding("rule", severity, "agents.md", 13, "x", "y") for severity in Severity])
    assert capsys.readouterr().err == (
        "amp: error: agents.md line 13: x (rule); y\namp: warning: agents.md line 13: x (rule); y\n"
    )
