"""The frame of the command `melete`: its nouns, its options, and how errors become exit codes.

0 it holds    1 it does not    2 usage    3 could not tell
"""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

import click

from melete import __version__
from melete.cli.standard_output import run_to_the_end
from melete.cli.telling import run_click, tell_error

#: What `melete --help` lists: a noun's module is imported only when the noun is used.
NOUNS = {
    "cycle": ("melete.cli.cycle", "Run maintenance cycles, and register each of them once."),
    "delta": ("melete.cli.delta", "Hash and check a memory change before it is sent."),
    "disclose": ("melete.cli.disclose", "Write what opens a range of transitions to a file for an auditor."),
    "doctor": ("melete.cli.doctor", "Look at node, registry, keys and stores."),
    "history": ("melete.cli.history", "Verify a space's history against its registry."),
    "memory": ("melete.cli.memory", "Remember, recall and forget; approve and audit."),
    "outbox": ("melete.cli.outbox", "Show what waits to be sent, and send it."),
    "pack": ("melete.cli.amp", "Sign, verify, install, capture and unpack packs; the same as the command amp."),
    "registry": ("melete.cli.registry", "Check that a registry is what it should be."),
    "space": ("melete.cli.space", "Register, rotate and look up spaces."),
    "subject": ("melete.cli.subject", "Show and change what is registered about a subject's maintenance."),
    "verify": ("melete.cli.verify", "Judge a document that was disclosed to you."),
    "witness": ("melete.cli.witness", "Keep, move and try what opens commitments."),
}


class Nouns(click.Group):
    """A group whose members are named here and imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return sorted(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in NOUNS:
            return None
        command: click.Command = import_module(NOUNS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, NOUNS[name][1]) for name in self.list_commands(ctx)])


@click.command(
    cls=Nouns,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 it holds, 1 it does not, 2 usage, 3 could not tell.",
)
@click.version_option(__version__, prog_name="melete")
def melete() -> None:
    """Verifiable memory and self-maintenance for AI agents."""


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code."""
    run_to_the_end("melete", run)


def run(words: list[str]) -> int:
    """Run one command and return its exit code. No exception leaves it, but for MELETE_DEBUG=1."""
    try:
        return run_click(melete, words, "melete")
    except Exception as error:  # noqa: BLE001 - the last line before the user
        return tell_error(error, "melete", as_json="--json" in words)


if __name__ == "__main__":
    main()
