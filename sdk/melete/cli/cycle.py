"""`melete cycle`: run maintenance, see it registered once, and hand out what it committed to."""

from __future__ import annotations

from importlib import import_module

import click

#: The verbs, and where they are: a module is imported when one of its verbs is used.
_ACTS, _VIEWS = "melete.cli.cycle_acts", "melete.cli.cycle_views"
VERBS = {
    "run": (_ACTS, "Run a maintenance cycle, and register it."),
    "show": (_VIEWS, "Show what is not registered yet, or a record that is."),
    "submit": (_ACTS, "Register a cycle record made by hand, with its layer documents."),
    "resume": (_ACTS, "Go on after a crash, or settle what waits."),
    "export": (_VIEWS, "Write what discloses records and layer documents to a file."),
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
    """Run maintenance cycles as `cycle.toml` says, and register each of them once.

    A record is the subject's own word for what it did: attributable and ordered in time, and no proof that it was done
    well. Everything may be killed at any point, and gone on with by `resume`.
    """
