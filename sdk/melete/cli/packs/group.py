"""The commands of `amp` as a group of click: for help, for usage errors, and as `melete pack`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from melete import __version__
from melete.cli.amp import COMMANDS
from melete.cli.packs.arguments import CommandLine


class Commands(click.Group):
    """A group whose members are named in a table and imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command | CommandLine = import_module(COMMANDS[cmd_name][0]).command
        return command.to_click() if isinstance(command, CommandLine) else command

    def make_context(self, *given: Any, **named: Any) -> click.Context:
        with _hiding_keys():
            return super().make_context(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with _hiding_keys():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@contextmanager
def _hiding_keys() -> Iterator[None]:
    """Keep click from printing a key that stands where a word of the command belongs."""
    try:
        yield
    except click.UsageError as error:
        if "-----BEGIN" not in error.message:
            raise
        rule = "A key is no word of a command; give its file, or set AMP_PRIVATE_KEY or AMP_PUBLIC_KEY."
        raise click.UsageError(rule, error.ctx) from None


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 it holds, 1 it does not, 2 usage, 3 could not tell.",
)
@click.version_option(__version__, prog_name="amp")
def command() -> None:
    """Sign, verify, install, capture and unpack packs of agent memory."""
