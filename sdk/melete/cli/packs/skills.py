"""`amp skills`: put the skills that drive capture and unpack where an agent finds them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from melete.packs.hosts import AGENTS, SCOPES

if TYPE_CHECKING:
    from melete.packs.hosts import Target


def _for_agent(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the agent and the scope that it is for, as `target`."""

    @click.option("--agent", type=click.Choice(AGENTS), help="The agent; by default, the one found here.")
    @click.option("--scope", type=click.Choice(SCOPES), help="This project, or everything of this user.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @functools.wraps(command)
    def run(*arguments: Any, agent: str | None, scope: str | None, **options: Any) -> Any:
        return command(*arguments, target=_find_target(agent, scope), **options)

    return run


def _find_target(agent: str | None, scope: str | None) -> Target:
    from melete.packs.hosts import Agent, Scope, find_target

    return find_target(Agent(agent) if agent else None, Scope(scope) if scope else None)


@click.group()
def command() -> None:
    """Put the skills that drive capture and unpack where an agent finds them."""


@command.command("list")
@_for_agent
def list_skills(target: Target, as_json: bool) -> None:
    """List the skills, and which of them the agent has."""
    from melete.packs.skills import SKILLS, find_state, load_skill, skill_path

    rows = [
        {
            "name": name,
            "state": find_state(name, target).value,
            "path": skill_path(name, target),
            "description": load_skill(name).description,
        }
        for name in SKILLS
    ]
    if as_json:
        import json

        click.echo(json.dumps({"agent": target.agent.value, "scope": target.scope.value, "skills": rows}))
        return
    click.echo(f"{target.agent.value}, {target.scope.value} scope")
    for row in rows:
        click.echo(f"  {row['name']}  {row['state']}  {row['path']}")
        click.echo(f"    {row['description']}")


@command.command("show")
@click.argument("name")
def show_skill(name: str) -> None:
    """Print the skill NAME."""
    from melete.packs.skills import load_skill

    click.echo(load_skill(name).text, nl=False)


@command.command("install")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--force", is_flag=True, help="Replace a skill that was edited.")
@_for_agent
def install(names: tuple[str, ...], force: bool, target: Target, as_json: bool) -> None:
    """Install the skills NAME, or all of them, for an agent. One that somebody edited stays, without --force."""
    from melete.packs.errors import SkillEdited
    from melete.packs.skills import SKILLS, State, find_state, install_skill, load_skill, skill_path

    chosen = tuple(dict.fromkeys(names)) or SKILLS
    for name in chosen:  # all are looked at before one is written
        load_skill(name)
        if find_state(name, target) is State.EDITED and not force:
            raise SkillEdited(skill_path(name, target))
    done = [(name, *install_skill(name, target, force=force)) for name in chosen]
    words = {State.ABSENT: "installed", State.CURRENT: "unchanged", State.OUTDATED: "updated", State.EDITED: "replaced"}
    rows = [{"name": name, "path": path, "done": words[before]} for name, path, before in done]
    if as_json:
        import json

        click.echo(json.dumps({"agent": target.agent.value, "scope": target.scope.value, "skills": rows}))
        return
    for row in rows:
        click.echo(f"{row['done']}  {row['path']}")
