"""Uninstalling: nothing but the pack goes, and nothing of it stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from melete.cli.amp import run
from melete.errors import InvalidInput
from melete.packs.errors import BlockDamaged, NotInstalled, TargetRefused
from melete.packs.hosts import Agent, Scope
from melete.packs.inspection import parse_name
from melete.packs.staging import Staging

from .install_samples import look, make_pack, make_project, names, put, take
from .test_install import act_at

#: What a shell, a file system or a reader could take for another place than a pack's folder.
NO_NAMES = [
    "",
    ".",
    "..",
    "../../victim",
    "../x",
    "/",
    "/etc",
    "a/b",
    "notes/..",
    ".meta",
    ".kept",
    "~",
    "Notes",
    "no tes",
    "-notes",
    "notes\n",
    "notes\0",
    "n\u00f6tes",
    "\u0661",
    "n" * 65,
    "@",
    "@/notes",
    "@ada",
    "@ada/",
    "@ada/..",
    "@../notes",
    "@x/../../x",
    "@ada/notes/more",
    "@@ada/notes",
    "@\u212ain/notes",
    "@-ada/notes",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", rules=b"# Rules\n")


@pytest.fixture
def installed(tmp_path: Path, project: Path) -> Path:
    put(make_pack(tmp_path / "pack"), project)
    return project


@pytest.fixture
def in_project(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(make_project(tmp_path / "home", ())))
    monkeypatch.chdir(installed)
    return installed


# Names


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_touches_nothing(name: str, tmp_path: Path, in_project: Path) -> None:
    make_project(tmp_path / "victim", ["precious.md"])
    before = look(tmp_path)
    with pytest.raises(InvalidInput):
        parse_name(name)
    with pytest.raises(InvalidInput):
        take(in_project, name)
    for command in ("uninstall", "inspect"):
        for scope in ([], ["--scope", "user"], ["--scope", "project"]):
            assert run([command, *scope, "--", name]) == 2
    assert look(tmp_path) == before


def test_creator_may_stand_before_the_name(
    tmp_path: Path, in_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse_name("@Ada-1/notes") == ("Ada-1", "notes")
    assert run(["uninstall", "@local/notes"]) == 0
    assert names(in_project) == ["CLAUDE.md"]
    assert capsys.readouterr().err == ""
    put(make_pack(tmp_path / "pack"), in_project)
    assert run(["uninstall", "@Ada-1/notes"]) == 0
    assert "@local/notes" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--scoep", "user"], ["--scope", "bogus"], ["--scope"], ["more"], ["--force"]])
def test_wrong_flag_is_usage_and_touches_nothing(in_project: Path, words: list[str]) -> None:
    before = look(in_project)
    assert run(["uninstall", "notes", *words]) == 2
    assert look(in_project) == before


# What goes


def test_uninstall_restores_what_was_there(tmp_path: Path, project: Path) -> None:
    before = look(project)
    put(make_pack(tmp_path / "pack"), project)
    done = take(project)
    assert look(project) == before
    assert (done.host_files, done.files, done.kept, done.warnings) == (("CLAUDE.md",), 3, (), ())


def test_later_text_around_the_block_stays(installed: Path) -> None:
    host = installed / "CLAUDE.md"
    host.write_bytes(b"first\n" + host.read_bytes() + b"\nlast")
    take(installed)
    assert host.read_bytes() == b"first\n# Rules\n\nlast"


def test_file_that_install_made_stays_when_somebody_wrote_into_it(tmp_path: Path, project: Path) -> None:
    put(make_pack(tmp_path / "pack"), project, Agent.CURSOR)
    host = project / ".cursor/rules/amp-notes.md"
    host.write_bytes(host.read_bytes() + b"\nmine\n")
    take(project)
    assert host.read_bytes() == b"\nmine\n"


def test_folder_that_install_made_stays_when_something_else_is_in_it(tmp_path: Path, project: Path) -> None:
    put(make_pack(tmp_path / "pack"), project, Agent.CURSOR)
    (project / ".cursor/rules/own.md").write_bytes(b"mine\n")
    take(project)
    assert names(project) == [".cursor/rules/own.md", "CLAUDE.md"]


def test_empty_folders_that_were_there_stay(tmp_path: Path, project: Path) -> None:
    make_project(project, [".amp/mine/", ".cursor/rules/"])
    before = look(project)
    put(make_pack(tmp_path / "pack"), project, Agent.CURSOR)
    take(project)
    assert look(project) == before


def test_other_packs_stay(tmp_path: Path, project: Path) -> None:
    put(make_pack(tmp_path / "voice", "voice"), project)
    before = look(project)
    put(make_pack(tmp_path / "pack"), project)
    take(project)
    assert look(project) == before


def test_links_inside_the_installed_folder_are_not_followed(tmp_path: Path, installed: Path) -> None:
    victim = make_project(tmp_path / "victim", ["precious.md"])
    (installed / ".amp/notes/link").symlink_to(victim)
    (installed / ".amp/notes/memory/link.md").symlink_to(victim / "precious.md")
    take(installed)
    assert names(victim) == ["precious.md"]
    assert names(installed) == ["CLAUDE.md"]


def test_edits_of_files_and_block_are_kept_and_said(installed: Path) -> None:
    (installed / ".amp/notes/agents.md").write_bytes(b"my own\n")
    host = installed / "CLAUDE.md"
    host.write_bytes(host.read_bytes().replace(b"how we work", b"how I work"))
    done = take(installed)
    assert host.read_bytes() == b"# Rules\n"
    assert done.kept == ("agents.md",)
    assert done.kept_in is not None
    assert (installed / done.kept_in / "files/agents.md").read_bytes() == b"my own\n"
    assert b"how I work" in (installed / done.kept_in / "block-of-CLAUDE.md").read_bytes()
    assert len(done.warnings) == 2
    assert not (installed / ".amp/notes").exists()


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda project: (project / "CLAUDE.md").unlink(), "held no block"),
        (lambda project: (project / "CLAUDE.md").write_bytes(b"# Rules\n"), "held no block"),
        (lambda project: shutil.rmtree(project / ".amp/notes"), "missing already"),
    ],
)
def test_what_is_gone_already_is_said(installed: Path, spoil: Callable[[Path], object], word: str) -> None:
    spoil(installed)
    done = take(installed)
    assert any(word in warning for warning in done.warnings)
    assert [name for name in names(installed) if name != "CLAUDE.md"] == []


# What is refused


def damage(project: Path) -> None:
    host = project / "CLAUDE.md"
    host.write_bytes(host.read_bytes().replace(b"<!-- amp:end", b"<!-- AMP-end"))


def make_read_only(project: Path) -> None:
    (project / "CLAUDE.md").chmod(0o444)


def make_linked(project: Path) -> None:
    (project / "CLAUDE.md").rename(project / "RULES.md")
    (project / "CLAUDE.md").symlink_to("RULES.md")


def make_folder_link(project: Path) -> None:
    (project / ".amp/notes").rename(project / "elsewhere")
    (project / ".amp/notes").symlink_to(project / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (damage, BlockDamaged),
        (make_read_only, TargetRefused),
        (make_linked, TargetRefused),
        (make_folder_link, TargetRefused),
    ],
)
def test_what_cannot_be_put_right_is_refused_and_everything_stays(
    installed: Path, spoil: Callable[[Path], object], error: type[Exception]
) -> None:
    spoil(installed)
    before = look(installed)
    with pytest.raises(error):
        take(installed)
    assert look(installed) == before


def test_what_is_not_installed_is_said_and_makes_nothing(project: Path) -> None:
    before = look(project)
    with pytest.raises(NotInstalled):
        take(project)
    assert look(project) == before


def test_folder_that_is_no_pack_is_never_removed(tmp_path: Path, project: Path) -> None:
    home = make_project(tmp_path / "home", [".amp/keys/signing.key", ".amp/notes/mine.md"])
    make_pack(home / ".amp/keys", "keys")
    make_pack(home / ".amp/other", "another")
    before = look(home)
    for slug in ("keys", "notes", "other"):
        with pytest.raises(NotInstalled):
            take(home, slug, Scope.USER)
    assert look(home) == before


def test_pack_of_another_program_in_its_own_folder_is_not_touched(project: Path) -> None:
    make_pack(project / ".memorymarket/notes")
    before = look(project)
    with pytest.raises(NotInstalled) as caught:
        take(project)
    assert ".memorymarket/notes" in str(caught.value)
    assert look(project) == before


# Without a record of ours


@pytest.mark.parametrize("record", [None, b"{}", b"", b'{"format": "amp-install/9"}', b"[" * 9999])
def test_pack_without_a_record_is_removed_from_every_agents_file(installed: Path, record: bytes | None) -> None:
    path = installed / ".amp/.meta/notes.json"
    if record is None:
        path.unlink()
    else:
        path.write_bytes(record)
    shutil.copy(installed / "CLAUDE.md", installed / "AGENTS.md")
    (installed / ".windsurfrules").symlink_to("CLAUDE.md")
    done = take(installed)
    assert (installed / "CLAUDE.md").read_bytes() == b"# Rules\n"
    assert (installed / "AGENTS.md").read_bytes() == b"# Rules\n"
    assert done.host_files == ("CLAUDE.md", "AGENTS.md")
    assert any(".windsurfrules was left as it is" in warning for warning in done.warnings)
    assert names(installed) == [".windsurfrules", "AGENTS.md", "CLAUDE.md"]


def test_record_decides_which_file_is_touched(installed: Path) -> None:
    shutil.copy(installed / "CLAUDE.md", installed / "AGENTS.md")
    copied = (installed / "AGENTS.md").read_bytes()
    take(installed)
    assert (installed / "AGENTS.md").read_bytes() == copied


# Half an uninstall


def prepare(tmp_path: Path, name: str) -> Path:
    project = make_project(tmp_path / name / "project", rules=b"# Rules")
    put(make_pack(tmp_path / name / "pack"), project, Agent.CLAUDE_CODE)
    (project / ".amp/notes/edited.md").write_bytes(b"mine")
    (project / ".amp/.meta/notes.json").write_bytes(
        (project / ".amp/.meta/notes.json").read_bytes().replace(b"2026", b"2000")
    )
    return project


def without_tokens(project: Path) -> dict[str, object]:
    found = {}
    for name, (content, mode) in look(project).items():
        kept = ".kept/notes-" in name
        plain = name[: name.index("notes-")] + "notes" + name[name.index("notes-") + 14 :] if kept else name
        found[plain] = (b"" if name.endswith(".json") else content, mode)
    return found


def test_failure_or_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    project = prepare(tmp_path, "expected")
    before = without_tokens(project)
    steps: list[str] = []
    take(project, on_step=steps.append)
    after = without_tokens(project)
    assert before != after
    for number in range(len(steps)):
        for kind in ("full", "killed"):
            project = prepare(tmp_path, f"{number}-{kind}")
            act_at(kind, number, lambda on_step, project=project: take(project, on_step=on_step))
            assert (project / "CLAUDE.md").read_bytes().startswith(b"# Rules")
            Staging(str(project), Scope.PROJECT).close()
            found = without_tokens(project)
            assert found in (before, after), (steps[number], kind)
            if found == before:
                take(project)
            assert without_tokens(project) == after


# The command


def test_command_says_what_went(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", "notes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["version"], found["scope"]) == ("notes", "1", "project")
    assert found["hostFiles"] == ["CLAUDE.md"]
    assert run(["uninstall", "notes"]) == 1
    assert "not installed" in capsys.readouterr().err


def test_pack_of_the_user_is_not_removed_without_saying_so(
    tmp_path: Path, in_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert run(["install", "--from-path", str(make_pack(tmp_path / "voice", "voice")), "--scope", "user"]) == 0
    before = look(home)
    capsys.readouterr()
    assert run(["uninstall", "voice"]) == 1
    assert "--scope user" in capsys.readouterr().err
    assert run(["uninstall", "voice", "--scope", "project"]) == 1
    assert look(home) == before
    assert run(["uninstall", "voice", "--scope", "user"]) == 0
    assert names(home) == []


def test_outside_a_project_nothing_is_removed(
    tmp_path: Path, in_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_project(tmp_path / "nowhere", ()))
    assert run(["uninstall", "notes"]) == 2
    assert run(["uninstall", "notes", "--scope", "user"]) == 1
    assert names(tmp_path / "nowhere") == []
    assert (in_project / ".amp/notes").exists()


@pytest.mark.parametrize("at", ["write the journal", "draft .amp/notes", "put .amp/notes", "put CLAUDE.md"])
def test_uninstall_cleans_up_after_a_first_install_that_was_killed(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pack, project = make_pack(tmp_path / "pack"), make_project(tmp_path / "project", rules=b"# Rules\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(project)
    before = look(project)

    def kill(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            put(pack, project, on_step=kill)
        finally:
            os._exit(7)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert look(project) != before
    assert run(["uninstall", "notes"]) == 1
    assert "is not installed" in capsys.readouterr().err
    assert look(project) == before
