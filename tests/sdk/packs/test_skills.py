from __future__ import annotations

import json
import re
import shlex
import stat
from pathlib import Path

import click
import pytest
import yaml

from melete.cli import amp
from melete.cli.packs.group import command as amp_command
from melete.errors import InvalidInput, StoreNotWritten
from melete.packs import folder as folders
from melete.packs.capture.review import Decision
from melete.packs.capture.shapes import Shape
from melete.packs.errors import SkillEdited, TargetRefused
from melete.packs.hosts import Agent, Scope, Target
from melete.packs.skills import SKILLS, State, find_state, install_skill, is_sealed, load_skill, seal, skill_path

PLACES = {
    Agent.CLAUDE_CODE: ".claude/skills",
    Agent.CODEX: ".agents/skills",
    Agent.CURSOR: ".cursor/skills",
    Agent.WINDSURF: ".windsurf/skills",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (tmp_path / "home").mkdir()
    (place / "CLAUDE.md").write_text("# Rules\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return place


def target(root: Path, agent: Agent = Agent.CLAUDE_CODE, scope: Scope = Scope.PROJECT) -> Target:
    return Target(agent, scope, str(root))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = amp.run(["skills", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


# What they say


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_has_the_frontmatter_that_agents_look_for(name: str) -> None:
    skill = load_skill(name)
    _, head, body = skill.text.split("---\n", 2)
    frontmatter = yaml.safe_load(head)
    assert list(frontmatter) == ["name", "description"]
    assert frontmatter == {"name": name, "description": skill.description}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", name)
    assert 40 < len(skill.description) <= 1024
    assert body.startswith("\n# ")
    assert max(map(len, body.split("\n"))) <= 120


def commands_of(text: str) -> list[list[str]]:
    """The commands in the fences of a text."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("name", SKILLS)
def test_every_command_in_a_skill_is_one_that_exists_with_the_options_that_it_has(name: str) -> None:
    found = commands_of(load_skill(name).text)
    assert len(found) > 3
    for program, verb, *words in found:
        assert program == "amp"
        with click.Context(amp_command) as context:
            command = amp_command.get_command(context, verb)
            assert command is not None, verb
            command.make_context(verb, list(words), resilient_parsing=False)


@pytest.mark.parametrize("name", SKILLS)
def test_every_option_that_a_skill_mentions_exists(name: str) -> None:
    verb = name.removeprefix("amp-")
    with click.Context(amp_command) as context:
        command = amp_command.get_command(context, verb)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts} | {"--strict"}
    assert set(re.findall(r"--[a-z][a-z-]+", load_skill(name).text)) <= known


def test_capture_skill_names_all_decisions_and_shapes() -> None:
    text = load_skill("amp-capture").text
    for word in (*Decision, *Shape):
        assert word.value in text


def test_no_skill_reads_or_shows_a_key() -> None:
    for name in SKILLS:
        assert "AMP_PRIVATE_KEY" not in load_skill(name).text
    assert "never the value" in load_skill("amp-capture").text


@pytest.mark.parametrize("name", ["", "amp", "../amp-capture", "amp-capture/", "AMP-CAPTURE"])
def test_there_are_no_other_skills(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_skill(name)
    assert caught.value.field == "skill"


# Installing


@pytest.mark.parametrize("agent", PLACES)
def test_a_skill_goes_where_its_agent_looks(project: Path, agent: Agent) -> None:
    path, before = install_skill("amp-capture", target(project, agent))
    assert (path, before) == (f"{PLACES[agent]}/amp-capture/SKILL.md", State.ABSENT)
    assert (project / path).read_text() == seal(load_skill("amp-capture").text)
    assert find_state("amp-capture", target(project, agent)) is State.CURRENT


def test_a_users_skills_lie_in_the_home(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "install", "--scope", "user", "--agent", "windsurf")[0] == 0
    assert run(capsys, "install", "--agent", "openclaw", "amp-unpack")[0] == 0
    home = tmp_path / "home"
    assert sorted(path.relative_to(home).as_posix() for path in home.rglob("SKILL.md")) == [
        ".codeium/windsurf/skills/amp-capture/SKILL.md",
        ".codeium/windsurf/skills/amp-unpack/SKILL.md",
        ".openclaw/skills/amp-unpack/SKILL.md",
    ]


def test_installing_again_changes_nothing(project: Path) -> None:
    path, _ = install_skill("amp-unpack", target(project))
    before = (project / path).stat()
    assert install_skill("amp-unpack", target(project)) == (path, State.CURRENT)
    assert (project / path).stat().st_ino == before.st_ino


def test_a_skill_of_another_version_is_replaced_and_its_mode_kept(project: Path) -> None:
    path = project / skill_path("amp-unpack", target(project))
    path.parent.mkdir(parents=True)
    path.write_text(seal("---\nname: amp-unpack\n---\nAn older text.\n"))
    path.chmod(0o640)
    assert install_skill("amp-unpack", target(project))[1] is State.OUTDATED
    assert path.read_text() == seal(load_skill("amp-unpack").text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "text",
    [
        "Mine.\n",
        "",
        seal("Ours.\n") + "Mine.\n",
        seal("Ours.\n").replace("Ours", "Mine"),
        load_skill("amp-unpack").text,
        seal("Ours.\n").rstrip("\n"),
    ],
)
def test_a_skill_that_somebody_edited_stays_without_force(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = project / skill_path("amp-unpack", target(project))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(SkillEdited) as caught:
        install_skill("amp-unpack", target(project))
    assert caught.value.file == ".claude/skills/amp-unpack/SKILL.md"
    # With others: none is installed.
    assert run(capsys, "install")[0] == 1
    assert path.read_text() == text
    assert not (project / ".claude/skills/amp-capture").exists()
    assert run(capsys, "install", "--force")[0] == 0
    assert find_state("amp-unpack", target(project)) is State.CURRENT


def test_a_file_that_is_no_text_counts_as_edited(project: Path) -> None:
    path = project / skill_path("amp-unpack", target(project))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe")
    assert find_state("amp-unpack", target(project)) is State.EDITED


@pytest.mark.parametrize("place", [".claude", ".claude/skills", ".claude/skills/amp-unpack"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_link_or_a_file_on_the_way_is_refused(project: Path, tmp_path: Path, place: str, kind: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / place).parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        (project / place).symlink_to(outside)
    else:
        (project / place).write_text("mine")
    with pytest.raises(TargetRefused):
        install_skill("amp-unpack", target(project), force=True)
    assert list(outside.iterdir()) == []


def test_a_link_in_the_place_of_the_file_is_refused(project: Path, tmp_path: Path) -> None:
    path = project / skill_path("amp-unpack", target(project))
    path.parent.mkdir(parents=True)
    (tmp_path / "outside.md").write_text("mine")
    path.symlink_to(tmp_path / "outside.md")
    with pytest.raises(TargetRefused):
        install_skill("amp-unpack", target(project), force=True)
    assert (tmp_path / "outside.md").read_text() == "mine"


def test_a_full_disk_leaves_the_skill_that_is_there(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project / skill_path("amp-unpack", target(project))
    path.parent.mkdir(parents=True)
    path.write_text(seal("Older.\n"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folders, "write_all", fail)
    with pytest.raises(StoreNotWritten):
        install_skill("amp-unpack", target(project))
    assert path.read_text() == seal("Older.\n")
    assert [each.name for each in path.parent.iterdir()] == ["SKILL.md"]


def test_a_seal_holds_for_the_whole_text_and_nothing_after_it() -> None:
    assert is_sealed(seal("a\n"))
    assert is_sealed(seal(seal("a\n")))
    assert not is_sealed(seal("a\n") + "\n")
    assert not is_sealed("a\n")


# The command


def test_list_says_what_the_agent_has(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install_skill("amp-unpack", target(project))
    code, out, _ = run(capsys, "list", "--json")
    listed = json.loads(out)
    assert (code, listed["agent"], listed["scope"]) == (0, "claude-code", "project")
    assert {one["name"]: one["state"] for one in listed["skills"]} == {"amp-capture": "absent", "amp-unpack": "current"}
    assert "amp-unpack  current  .claude/skills/amp-unpack/SKILL.md" in run(capsys, "list")[1]


def test_show_prints_the_text_as_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "amp-capture")
    assert (code, out) == (0, load_skill("amp-capture").text)


def test_install_as_json_says_what_was_done(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [one["done"] for one in json.loads(run(capsys, "install", "--json")[1])["skills"]] == ["installed"] * 2
    assert [one["done"] for one in json.loads(run(capsys, "install", "--json")[1])["skills"]] == ["unchanged"] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["show", "other"],
        ["install", "other"],
        ["install", "--agent", "emacs"],
        ["list", "--scope", "all"],
        ["x"],
    ],
)
def test_wrong_calls_are_usage_errors(project: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert run(capsys, *words)[0] == 2
    assert [path.name for path in project.iterdir()] == ["CLAUDE.md"]
