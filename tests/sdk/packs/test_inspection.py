"""Inspecting: every file counts, and what cannot be told is not called intact."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli.amp import run
from melete.packs.errors import NotInstalled, TargetRefused
from melete.packs.hosts import Agent, Scope
from melete.packs.inspection import (
    Inspection,
    Place,
    Record,
    compare_files,
    find_installed,
    inspect,
    list_installed,
    locate,
)
from melete.packs.signing import sign_pack

from .install_samples import look, make_key, make_pack, make_project, put, sign
from .test_install import HIDDEN


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", rules=b"# Rules\n")


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Path:
    put(make_pack(tmp_path / "pack"), project)
    return project


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = make_project(tmp_path / "home", ())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("AMP_PUBLIC_KEY", raising=False)
    return home


def see(project: Path, slug: str = "notes", **options: Any) -> Inspection:
    return inspect(Place(str(project), Scope.PROJECT), slug, **options)


# Files


def test_what_is_as_installed_is_intact_and_nothing_is_touched(installed: Path) -> None:
    before = look(installed)
    found = see(installed)
    assert (found.answer, found.block, found.differences, found.problems) == ("intact", "as installed", (), ())
    assert (found.title, found.version, found.host_file) == ("Notes", "1", "CLAUDE.md")
    assert look(installed) == before


@pytest.mark.parametrize(
    ("spoil", "difference"),
    [
        (lambda pack: (pack / "manifest.json").write_bytes(b"{}"), ("changed", "manifest.json")),
        (lambda pack: (pack / "agents.md").write_bytes(b"# Other\n"), ("changed", "agents.md")),
        (
            lambda pack: (pack / "memory/operating-principles.md").write_bytes(b""),
            ("changed", "memory/operating-principles.md"),
        ),
        (
            lambda pack: (pack / "memory/operating-principles.md").unlink(),
            ("missing", "memory/operating-principles.md"),
        ),
        (lambda pack: (pack / "memory/.hidden").write_bytes(b""), ("added", "memory/.hidden")),
        (lambda pack: (pack / "link").symlink_to("agents.md"), ("not a file", "link")),
        (lambda pack: os.mkfifo(pack / "pipe"), ("not a file", "pipe")),
    ],
)
def test_every_file_is_covered(installed: Path, spoil: Callable[[Path], object], difference: tuple[str, str]) -> None:
    spoil(installed / ".amp/notes")
    found = see(installed)
    assert found.answer == "broken"
    assert found.differences == (difference,)


def test_missing_folder_is_not_intact(installed: Path) -> None:
    shutil.rmtree(installed / ".amp/notes")
    found = see(installed)
    assert found.answer == "broken"
    assert ".amp/notes is missing" in found.problems[0]


@pytest.mark.parametrize(
    ("spoil", "block"),
    [
        (lambda host: host.unlink(), "missing"),
        (lambda host: host.write_bytes(b"# Rules\n"), "missing"),
        (lambda host: host.write_bytes(host.read_bytes().replace(b"how we work", b"how I work")), "edited"),
        (lambda host: host.write_bytes(host.read_bytes().replace(b"amp:end", b"amp:bend")), "damaged"),
        (lambda host: (host.rename(host.parent / "R.md"), host.symlink_to("R.md")), "damaged"),
    ],
)
def test_block_is_covered(installed: Path, spoil: Callable[[Path], object], block: str) -> None:
    spoil(installed / "CLAUDE.md")
    found = see(installed)
    assert (found.answer, found.block) == ("broken", block)


def test_block_with_other_line_ends_is_as_installed(installed: Path) -> None:
    host = installed / "CLAUDE.md"
    host.write_bytes(host.read_bytes().replace(b"\n", b"\r\n"))
    assert see(installed).block == "as installed"


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y", ""])),
)
def test_comparison_is_empty_just_for_equals(recorded: dict[str, str], found: dict[str, str]) -> None:
    differences = compare_files(recorded, found)
    assert (not differences) == (recorded == found)
    assert [one.path for one in differences] == sorted(
        path for path in {*recorded, *found} if recorded.get(path) != found.get(path)
    )


# Signatures


def test_signature_is_shown_as_it_was_and_as_it_is(tmp_path: Path, project: Path) -> None:
    key = make_key(tmp_path)
    put(sign(make_pack(tmp_path / "pack"), key), project, public_keys=[key.public])
    found = see(project, public_keys=[key.public])
    assert found.answer == "intact"
    assert found.installed.record is not None
    assert (found.installed.record.signature, found.installed.record.key_id) == ("held", key.public.key_id)
    assert found.verdict is not None
    assert (found.verdict.answer, found.verdict.signer) == ("held", key.public.key_id)
    assert see(project).verdict.answer == "unknown"
    assert see(project).answer == "intact"


def test_forged_record_does_not_help_against_a_key(tmp_path: Path, project: Path) -> None:
    key, other = make_key(tmp_path), make_key(make_project(tmp_path / "other", ()))
    put(sign(make_pack(tmp_path / "pack"), key), project, public_keys=[key.public])
    changed = project / ".amp/notes"
    (changed / "memory/operating-principles.md").write_bytes(b"forged\n")
    sign_pack(changed, other)
    record = json.loads((project / ".amp/.meta/notes.json").read_bytes())
    from hashlib import sha256

    record["files"] = [
        {"path": file["path"], "sha256": sha256((changed / file["path"]).read_bytes()).hexdigest()}
        for file in record["files"]
    ]
    (project / ".amp/.meta/notes.json").write_text(json.dumps(record))
    assert see(project).differences == ()
    assert see(project, public_keys=[key.public]).answer == "broken"


def test_unsigned_pack_does_not_pass_for_a_key(tmp_path: Path, installed: Path) -> None:
    assert see(installed, public_keys=[make_key(tmp_path).public]).answer == "broken"


def test_hidden_text_is_shown(tmp_path: Path, project: Path) -> None:
    put(make_pack(tmp_path / "pack", files={"memory/extra.md": f"never{HIDDEN}\n"}), project)
    found = see(project)
    assert found.answer == "intact"
    assert [(one.rule, one.file, one.line) for one in found.findings] == [("hidden-text", "memory/extra.md", 1)]


# Records


def test_record_reads_as_it_was_written(installed: Path) -> None:
    content = (installed / ".amp/.meta/notes.json").read_bytes()
    record = Record.from_bytes(content, Scope.PROJECT, "notes")
    assert record.to_bytes() == content
    assert (record.agent, record.host_file, record.host_made) == (Agent.CLAUDE_CODE, "CLAUDE.md", False)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"name": "voice"},
        {"scope": "user"},
        {"agent": "emacs"},
        {"agent": "openclaw"},
        {"agent": ["codex"]},
        {"digest": "ab"},
        {"blockSha256": None},
        {"files": {}},
        {"files": [1]},
        {"files": [{"path": 1, "sha256": "0" * 64}]},
        {"signature": "held"},
        {"host": None},
        {"folders": 7},
        {"version": 1},
    ],
)
def test_record_that_no_install_wrote_is_no_record(installed: Path, change: dict[str, Any]) -> None:
    path = installed / ".amp/.meta/notes.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    if change == {"files": {}}:
        assert see(installed).answer == "broken"
        return
    found = find_installed(Place(str(installed), Scope.PROJECT), "notes")
    assert found is not None
    assert found.record is None
    assert "notes.json" in found.fault
    assert see(installed).answer == "unknown"  # there is nothing to compare with


def test_pack_without_record_is_intact_by_its_signature_only(tmp_path: Path, project: Path) -> None:
    key = make_key(tmp_path)
    put(sign(make_pack(tmp_path / "pack"), key), project, public_keys=[key.public])
    (project / ".amp/.meta/notes.json").unlink()
    assert see(project).answer == "unknown"
    assert see(project, public_keys=[key.public]).answer == "intact"


def test_what_is_not_there_is_not_installed(project: Path) -> None:
    before = look(project)
    with pytest.raises(NotInstalled):
        see(project)
    assert look(project) == before


def test_links_are_refused(tmp_path: Path, installed: Path) -> None:
    (installed / ".amp").rename(tmp_path / "elsewhere")
    (installed / ".amp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TargetRefused) as caught:
        see(installed)
    assert caught.value.file == ".amp"


# Listing and finding


def test_list_shows_what_is_there_and_nothing_else(tmp_path: Path, installed: Path) -> None:
    put(make_pack(tmp_path / "voice", "voice"), installed, Agent.CODEX)
    shutil.rmtree(installed / ".amp/voice")
    make_pack(installed / ".memorymarket/old", "old")
    make_pack(installed / ".memorymarket/renamed", "another")
    make_pack(installed / ".amp/bare", "bare")
    make_project(installed, [".amp/mine/", ".amp/.meta/x.txt", ".amp/.meta/Not-A-Slug.json"])
    found = list_installed(Place(str(installed), Scope.PROJECT))
    assert [(one.slug, one.folder, one.record is not None, one.has_files) for one in found] == [
        ("bare", ".amp/bare", False, True),
        ("notes", ".amp/notes", True, True),
        ("old", ".memorymarket/old", False, True),
        ("voice", ".amp/voice", True, False),
    ]


def test_keys_of_the_user_are_no_pack(home: Path) -> None:
    make_pack(home / ".amp/keys", "keys")
    assert list_installed(Place(str(home), Scope.USER)) == []


def test_pack_is_found_in_the_project_before_the_home(tmp_path: Path, installed: Path, home: Path) -> None:
    def found(scope: Scope | None = None) -> Place:
        return locate("notes", scope, folder=str(installed), home=str(home))

    assert found() == (str(installed), Scope.PROJECT)
    assert found(Scope.USER) == (str(home), Scope.USER)
    shutil.rmtree(installed / ".amp")
    with pytest.raises(NotInstalled):
        found()
    put(make_pack(tmp_path / "again"), home, Agent.OPENCLAW)
    assert found() == (str(home), Scope.USER)
    assert found(Scope.PROJECT) == (str(home), Scope.USER)


# Cut off


def test_install_that_was_cut_off_is_made_good_first(tmp_path: Path, installed: Path) -> None:
    before = look(installed)
    pack = make_pack(tmp_path / "pack", version="2")

    def kill(step: str) -> None:
        if step == "put CLAUDE.md":
            os.kill(os.getpid(), signal.SIGKILL)

    make_pack(pack, files={"agents.md": "# Other\n"})
    child = os.fork()
    if not child:
        try:
            put(pack, installed, on_step=kill)
        finally:
            os._exit(7)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert look(installed) != before
    found = see(installed)
    assert (found.answer, found.version) == ("intact", "1")
    assert "cut off" in found.warnings[0]
    assert look(installed) == before


# The commands


@pytest.fixture
def in_project(installed: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(installed)
    return installed


def test_inspect_ends_with_what_it_found(tmp_path: Path, in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "notes"]) == 0
    assert "as installed" in capsys.readouterr().out
    (in_project / ".amp/notes/agents.md").write_bytes(b"changed\n")
    assert run(["inspect", "@local/notes", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["answer"] == "broken"
    assert found["differences"] == [{"kind": "changed", "path": "agents.md"}]
    assert found["signatureAtInstall"]["state"] == found["signature"]["state"] == "unsigned"
    shutil.rmtree(in_project / ".amp/notes")
    assert run(["inspect", "notes"]) == 1
    assert run(["inspect", "nothing"]) == 1
    assert run(["inspect", "--scope", "user"]) == 2
    assert run(["inspect", "notes", "--scope", "elsewhere"]) == 2


def test_inspect_and_list_see_packs_of_the_earlier_format(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_pack(in_project / ".memorymarket/old", "old", primitive_format="yaml-frontmatter-v0.3")
    assert run(["inspect", "old"]) == 3
    assert ".memorymarket/old" in capsys.readouterr().out
    assert run(["list"]) == 0
    assert "old" in capsys.readouterr().out


def test_list_shows_both_scopes_or_one(
    tmp_path: Path, in_project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install", "--from-path", str(make_pack(tmp_path / "voice", "voice")), "--scope", "user"]) == 0
    capsys.readouterr()

    def listed(*words: str) -> list[tuple[str, str]]:
        assert run(["list", "--json", *words]) == 0
        return [(one["name"], one["scope"]) for one in json.loads(capsys.readouterr().out)["packs"]]

    assert listed() == [("notes", "project"), ("voice", "user")]
    assert listed("--scope", "project") == [("notes", "project")]
    assert listed("--scope", "user") == [("voice", "user")]
    monkeypatch.chdir(make_project(tmp_path / "nowhere", ()))
    assert listed() == [("voice", "user")]
    assert run(["list", "--scope", "project"]) == 2
    assert run(["list", "--scoep", "user"]) == 2


def test_what_stands_in_files_is_printed_escaped(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = in_project / ".amp/.meta/notes.json"
    record.write_text(record.read_text().replace('"version": "1"', '"version": "\\u001b[31m\\n2"'))
    (in_project / ".amp/notes/\x1b[2Jx").write_bytes(b"")
    for words in (["list"], ["inspect", "notes"]):
        run(words)
        output = capsys.readouterr()
        assert "\x1b" not in output.out + output.err
