from __future__ import annotations

import os
from pathlib import Path

import pytest

from melete.errors import ConfigurationError
from melete.packs.errors import NotInProject
from melete.packs.hosts import (
    PROJECT_MARKERS,
    Agent,
    Scope,
    Target,
    detect_agent,
    find_home,
    find_project,
    find_target,
    host_file,
    is_reserved,
    is_within,
    memory_path,
    pack_folder,
    record_file,
)

from .install_samples import make_project


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_project(tmp_path / "home", ())


def find(project: Path, home: Path, agent: Agent | None = None, scope: Scope | None = None) -> Target:
    return find_target(agent, scope, folder=str(project), home=str(home))


# Places


@pytest.mark.parametrize(
    ("agent", "scope", "path"),
    [
        (Agent.CLAUDE_CODE, Scope.PROJECT, "CLAUDE.md"),
        (Agent.CODEX, Scope.PROJECT, "AGENTS.md"),
        (Agent.CURSOR, Scope.PROJECT, ".cursor/rules/amp-notes.md"),
        (Agent.WINDSURF, Scope.PROJECT, ".windsurfrules"),
        (Agent.OPENCLAW, Scope.PROJECT, ".openclaw/workspace/AGENTS.md"),
        (Agent.CLAUDE_CODE, Scope.USER, ".claude/CLAUDE.md"),
        (Agent.CODEX, Scope.USER, ".agents.md"),
        (Agent.CURSOR, Scope.USER, ".cursor/rules/amp-notes.md"),
        (Agent.WINDSURF, Scope.USER, ".windsurfrules"),
        (Agent.OPENCLAW, Scope.USER, ".openclaw/workspace/AGENTS.md"),
    ],
)
def test_every_agent_has_its_file_in_each_scope(agent: Agent, scope: Scope, path: str) -> None:
    assert host_file(agent, scope, "notes") == path


def test_packs_and_records_lie_where_the_specification_puts_them() -> None:
    assert pack_folder("notes") == ".amp/notes"
    assert record_file("notes") == ".amp/.meta/notes.json"
    assert memory_path(Scope.PROJECT, "notes") == ".amp/notes/memory/"
    assert memory_path(Scope.USER, "notes") == "~/.amp/notes/memory/"


def test_folder_of_the_signing_keys_is_no_packs() -> None:
    assert is_reserved(Scope.USER, "keys")
    assert not is_reserved(Scope.PROJECT, "keys")
    assert not is_reserved(Scope.USER, "notes")


# Detection


@pytest.mark.parametrize(
    ("files", "agent"),
    [
        (["CLAUDE.md", "AGENTS.md", ".cursor/", ".windsurfrules"], Agent.CLAUDE_CODE),
        (["AGENTS.md", ".cursor/", ".windsurfrules"], Agent.CODEX),
        ([".cursor/", ".windsurfrules"], Agent.CURSOR),
        ([".windsurfrules"], Agent.WINDSURF),
        ([".git/"], Agent.CLAUDE_CODE),
        (["package.json"], Agent.CLAUDE_CODE),
    ],
)
def test_agent_is_detected_in_the_order_of_the_specification(
    tmp_path: Path, home: Path, files: list[str], agent: Agent
) -> None:
    project = make_project(tmp_path / "project", files)
    assert find(project, home) == Target(agent, Scope.PROJECT, str(project))


def test_openclaw_is_found_in_the_home_after_the_projects_own_files(tmp_path: Path, home: Path) -> None:
    (home / ".openclaw").mkdir()
    assert find(make_project(tmp_path / "bare"), home) == Target(Agent.OPENCLAW, Scope.USER, str(home))
    assert find(make_project(tmp_path / "codex", ["AGENTS.md"]), home).agent is Agent.CODEX
    assert find(make_project(tmp_path / "nothing", ()), home).agent is Agent.OPENCLAW
    assert detect_agent(None, str(home)) is Agent.OPENCLAW


@pytest.mark.parametrize("marker", PROJECT_MARKERS)
def test_every_marker_makes_a_project_from_within(tmp_path: Path, home: Path, marker: str) -> None:
    project = make_project(tmp_path / "project", [marker])
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    assert find_project(str(below), str(home)) == str(project)


def test_nearest_project_is_taken(tmp_path: Path, home: Path) -> None:
    inner = make_project(make_project(tmp_path / "outer") / "inner", ["AGENTS.md"])
    assert find_project(str(inner), str(home)) == str(inner)


def test_dangling_marker_is_a_marker(tmp_path: Path, home: Path) -> None:
    project = make_project(tmp_path / "project", ())
    (project / "CLAUDE.md").symlink_to("nowhere")
    assert find(project, home).agent is Agent.CLAUDE_CODE


def test_no_project_is_an_error_that_says_what_to_do(tmp_path: Path, home: Path) -> None:
    for agent in (None, Agent.CODEX):
        with pytest.raises(NotInProject) as caught:
            find(make_project(tmp_path / "nothing", ()), home, agent)
        assert str(caught.value).startswith("Not inside a project")
    assert find(tmp_path, home, None, Scope.USER) == Target(Agent.CLAUDE_CODE, Scope.USER, str(home))


def test_home_is_a_project_only_for_who_stands_in_it_and_not_by_the_users_settings(home: Path) -> None:
    below = make_project(home / "below", ())
    make_project(home, [".git/", ".cursor/", "CLAUDE.md"])
    assert find_project(str(below), str(home)) is None
    assert find_project(str(home), str(home)) == str(home)
    for name in (".git", "CLAUDE.md"):
        path = home / name
        path.rmdir() if path.is_dir() else path.unlink()
    assert find_project(str(home), str(home)) is None


def test_scope_is_as_given_but_for_openclaw(tmp_path: Path, home: Path) -> None:
    project = make_project(tmp_path / "project", ["AGENTS.md"])
    assert find(project, home, None, Scope.USER) == Target(Agent.CODEX, Scope.USER, str(home))
    assert find(project, home, Agent.CURSOR, Scope.PROJECT) == Target(Agent.CURSOR, Scope.PROJECT, str(project))
    for scope in (None, *Scope):
        assert find(project, home, Agent.OPENCLAW, scope) == Target(Agent.OPENCLAW, Scope.USER, str(home))


def test_working_folder_that_is_gone_is_no_project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_project(home=str(home)) is None
    os.chdir(tmp_path)


@pytest.mark.parametrize("value", ["", "relative", "/does/not/exist"])
def test_home_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", value)
    with pytest.raises(ConfigurationError):
        find_home()


# Inside


def test_within_is_told_by_what_things_are_and_not_by_names(tmp_path: Path) -> None:
    outer = make_project(tmp_path / "outer", ["inner/deep/"])
    (tmp_path / "link").symlink_to(outer / "inner")
    assert is_within(str(outer), str(outer))
    assert is_within(str(outer / "inner/deep"), str(outer))
    assert is_within(str(tmp_path / "link/deep"), str(outer))
    assert is_within(str(outer / "inner/deep"), str(tmp_path / "link"))
    assert is_within(str(outer / "not/there/yet"), str(outer))
    assert is_within(f"{outer}/inner/../inner", str(outer / "inner"))
    assert not is_within(str(outer), str(outer / "inner"))
    assert not is_within(str(tmp_path / "outer-2"), str(outer))
    assert not is_within(str(outer), str(outer / "not"))
    assert not is_within("\0", str(outer))
