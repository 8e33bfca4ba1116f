"""`melete subject`: what is registered about a subject's maintenance, and changing it."""

from __future__ import annotations

from importlib import import_module

import click

#: The verbs, and where they are: a module is imported when one of its verbs is used.
_VIEWS, _ACTS = "melete.cli.subject_views", "melete.cli.subject_acts"
VERBS = {
    "status": (_VIEWS, "How timely is the registered maintenance, and the signal apart?"),
    "show": (_VIEWS, "Show all that is registered about a subject."),
    "events": (_VIEWS, "List a subject's events."),
    "forecast": (_VIEWS, "What would be overdue then, under this policy or floor?"),
    "timeline": ("melete.cli.subject_timeline", "Draw completions, deadlines, demands, policies and silences."),
    "enroll": (_ACTS, "Enroll the key given as a subject."),
    "policy": (_ACTS, "Append a policy version."),
    "floor": (_ACTS, "Set the floor, as controller."),
    "controller": (_ACTS, "Appoint, hand on, shrink or give up the controller's position."),
    "operator": (_ACTS, "Give an operator permissions, or take them away."),
    "demand": (_ACTS, "Demand that layers be completed by a time, as controller."),
    "withdraw": (_ACTS, "Withdraw demands, as controller."),
    "pulse": (_ACTS, "Give a sign of activity; it moves no deadline."),
}


class Verbs(click.Group):
    """A group whose members are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        found: click.Command = getattr(import_module(VERBS[cmd_name][0]), cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name][1]) for name in self.list_commands(ctx)])


@click.command(cls=Verbs)
def command() -> None:
    """Show and change what is registered about a subject's own maintenance.

    A status tells how timely registered, self-reported records are: not health, not the live state.
    """
