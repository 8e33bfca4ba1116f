"""Where packs go: five agents, two scopes, the file of each that its managed blocks stand in.

    target = find_target(agent=None, scope=None)
    target.root, target.host_file("my-pack")        # "/home/me/project", "CLAUDE.md"

A target is a project or the user's home; all its paths are relative to that folder, with slashes. They follow from
agent, scope and slug alone, so that nothing read from a pack or a record ever names a place to write to.

Source: AMP v0.4, Parts 7 and 8; decisions, AMP packs, Install.
"""

# The fast commands do without pathlib.
# ruff: noqa: PTH109, PTH111, PTH112, PTH116, PTH117, PTH118, PTH120

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final, NamedTuple


class Agent(StrEnum):
    """An agent that packs can be installed for."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CURSOR = "cursor"
    WINDSURF = "windsurf"
    OPENCLAW = "openclaw"


class Scope(StrEnum):
    """Whether a pack serves one project or everything that its user does."""

    PROJECT = "project"
    USER = "user"


AGENTS: Final = tuple(agent.value for agent in Agent)
SCOPES: Final = tuple(scope.value for scope in Scope)

PACKS: Final = ".amp"
RECORDS: Final = ".amp/.meta"
#: Where copies go of what a person edited in an installed pack, before it is replaced or removed.
KEPT: Final = ".amp/.kept"
#: Where packs of the earlier format may lie. They are shown, and never written.
LEGACY: Final = ".memorymarket"

_HOST_FILES: Final = {
    (Agent.CLAUDE_CODE, Scope.PROJECT): "CLAUDE.md",
    (Agent.CODEX, Scope.PROJECT): "AGENTS.md",
    (Agent.CURSOR, Scope.PROJECT): ".cursor/rules/amp-{slug}.md",
    (Agent.WINDSURF, Scope.PROJECT): ".windsurfrules",
    (Agent.CLAUDE_CODE, Scope.USER): ".claude/CLAUDE.md",
    (Agent.CODEX, Scope.USER): ".agents.md",
    (Agent.CURSOR, Scope.USER): ".cursor/rules/amp-{slug}.md",
    (Agent.WINDSURF, Scope.USER): ".windsurfrules",
    (Agent.OPENCLAW, Scope.USER): ".openclaw/workspace/AGENTS.md",
}
#: What tells that a project is an agent's, in the order of Part 8.
_DETECTED_BY: Final = (
    (Agent.CLAUDE_CODE, "CLAUDE.md"),
    (Agent.CODEX, "AGENTS.md"),
    (Agent.CURSOR, ".cursor"),
    (Agent.WINDSURF, ".windsurfrules"),
)
_OPENCLAW_HOME: Final = ".openclaw"
_REPOSITORIES: Final = (".git", ".hg", ".svn", "package.json", "pyproject.toml", "Cargo.toml", "go.mod")
#: What makes a folder a project.
PROJECT_MARKERS: Final = (*(name for _, name in _DETECTED_BY), PACKS, LEGACY, *_REPOSITORIES)
#: In a home folder, the others are the user's own settings.
_HOME_MARKERS: Final = ("CLAUDE.md", "AGENTS.md", *_REPOSITORIES)


class Target(NamedTuple):
    """An agent in a project or in a home. Paths are relative to `root`."""

    agent: Agent
    scope: Scope
    root: str

    def host_file(self, slug: str) -> str:
        return host_file(self.agent, self.scope, slug)


def host_file(agent: Agent, scope: Scope, slug: str) -> str:
    """Return the file that the block of a pack stands in, relative to project or home."""
    scope = Scope.USER if agent is Agent.OPENCLAW else scope
    return _HOST_FILES[agent, scope].format(slug=slug)


def host_files(scope: Scope, slug: str) -> dict[Agent, str]:
    """Return the file of every agent that has one in this scope."""
    return {agent: path.format(slug=slug) for (agent, of), path in _HOST_FILES.items() if of is scope}


def pack_folder(slug: str) -> str:
    """Return where the files of a pack are installed, relative to project or home."""
    return f"{PACKS}/{slug}"


def record_file(slug: str) -> str:
    """Return where it is written down what an install did, relative to project or home."""
    return f"{RECORDS}/{slug}.json"


def memory_path(scope: Scope, slug: str) -> str:
    """Return what the block says about where the pack's files are."""
    return f"{'~/' if scope is Scope.USER else ''}{PACKS}/{slug}/memory/"


def is_reserved(scope: Scope, slug: str) -> bool:
    """Return whether the folder of this name is not a pack's: the user's signing keys lie in `~/.amp/keys`."""
    return scope is Scope.USER and slug == "keys"


def find_home() -> str:
    """Return the user's home folder. Errors: `ConfigurationError` for none."""
    home = os.path.expanduser("~")
    # An empty HOME would be read as the root of all.
    if os.environ.get("HOME") == "" or not os.path.isabs(home) or not os.path.isdir(home):
        from melete.errors import ConfigurationError

        raise ConfigurationError("there is no home folder; set HOME to one that exists")
    return os.path.realpath(home)


def find_project(folder: str | None = None, home: str | None = None) -> str | None:
    """Return the nearest folder, from `folder` (where the process runs) upwards, that is a project; None for none.

    A home folder is one only for who stands in it, and only by files that no agent keeps there for the whole user.
    """
    try:
        at = os.path.realpath(os.getcwd() if folder is None else folder)
    except FileNotFoundError:  # it was removed under our feet
        return None
    home = find_home() if home is None else os.path.realpath(home)
    if at == home:
        return at if _holds(at, _HOME_MARKERS) else None
    while at != home:
        if _holds(at, PROJECT_MARKERS):
            return at
        at, below = os.path.dirname(at), at
        if at == below:
            break
    return None


def load_project(folder: str | None = None, home: str | None = None) -> str:
    """Return the project that `folder` stands in. Errors: `NotInProject`."""
    project = find_project(folder, home)
    if project is None:
        from melete.packs.errors import NotInProject

        raise NotInProject(folder or _find_here(), f"{', '.join(PROJECT_MARKERS[:-1])} or {PROJECT_MARKERS[-1]}")
    return project


def _find_here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "."


def detect_agent(project: str | None, home: str) -> Agent:
    """Return the agent that a project is set up for, else OpenClaw if it lives in the home, else Claude Code."""
    for agent, marker in _DETECTED_BY:
        if project is not None and os.path.lexists(os.path.join(project, marker)):
            return agent
    return Agent.OPENCLAW if os.path.isdir(os.path.join(home, _OPENCLAW_HOME)) else Agent.CLAUDE_CODE


def find_target(
    agent: Agent | None = None, scope: Scope | None = None, *, folder: str | None = None, home: str | None = None
) -> Target:
    """Return where an install goes: for the agent named, or detected; into the project, unless told otherwise.

    OpenClaw keeps one workspace in the home folder, so that it is always user scope. Errors: `NotInProject`;
    `ConfigurationError` without a home folder.
    """
    home = find_home() if home is None else os.path.realpath(home)
    project = find_project(folder, home)
    agent = detect_agent(project, home) if agent is None else agent
    if scope is Scope.USER or agent is Agent.OPENCLAW:
        return Target(agent, Scope.USER, home)
    return Target(agent, Scope.PROJECT, load_project(folder, home) if project is None else project)


def is_within(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it, or would if it were made, whatever names lead there.

    Nothing lies in a folder that does not exist.
    """
    try:
        of = os.stat(folder)
        at = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    while True:
        try:
            if os.path.samestat(os.stat(at), of):
                return True
        except OSError:
            pass  # not there yet
        at, below = os.path.dirname(at), at
        if at == below:
            return False


def _holds(folder: str, markers: tuple[str, ...]) -> bool:
    return any(os.path.lexists(os.path.join(folder, marker)) for marker in markers)
