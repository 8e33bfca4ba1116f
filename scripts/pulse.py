"""Give a sign of a subject's activity; fit for cron: ape run pulse SUBJECT [--next TIME].

One line on standard output when it was given, one on standard error when it was not, and an exit code that tells why:
1 the registry refuses it, 2 usage, 3 could not tell. A line for cron, every five hours:

    0 */5 * * *  cd /srv/agent && ape run pulse 0x... --account agent --network ethereum:sepolia:node >> pulse.log 2>&1

The account's passphrase comes from APE_ACCOUNTS_<ALIAS>_PASSPHRASE; the account then signs without asking.
"""

from __future__ import annotations

import click
from scripts._common import ScriptCommand, load_account, telling_errors
from scripts._maintenance import load_subjects

from melete import Address
from melete.cli.times import TimeParameter, show_time


@click.command(cls=ScriptCommand)
@click.argument("subject")
@click.option("--next", "next_planned_at", type=TimeParameter(), default=0, help="When the next cycle is planned.")
@click.option("--account", "alias", help="The Ape account that sends: the subject, or an operator that may.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@telling_errors
def cli(subject: str, next_planned_at: int, alias: str | None, registry: str | None) -> None:
    """Give a sign of SUBJECT's activity. It refreshes no layer and moves no deadline."""
    named = Address(subject, "SUBJECT")
    event = load_subjects(registry, load_account(alias)).pulse(named, next_planned_at)
    block = event.reference.block_number
    click.echo(f"{show_time(event.recorded_at)}: record {event.seq} of {named} is a pulse, block {block}")
