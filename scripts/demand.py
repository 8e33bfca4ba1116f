"""Demand that layers of a subject be completed, or withdraw that, as its controller:

ape run demand SUBJECT --layers runtime,cognition --by +3h
ape run demand SUBJECT --layers runtime,cognition --withdraw
"""

from __future__ import annotations

import click
from scripts._common import ScriptCommand, load_account, telling_errors
from scripts._maintenance import load_subjects

from melete import Address
from melete.cli.layers import NAMES, LayersParameter
from melete.cli.times import TimeParameter, show_time
from melete.meditation.layers import layers_of


@click.command(cls=ScriptCommand)
@click.argument("subject")
@click.option(
    "--layers", type=LayersParameter(), required=True, help=f"{', '.join(NAMES)}, or 0 to 3, joined by commas."
)
@click.option("--by", "due_by", type=TimeParameter(), help="By when: 2026-12-04T17:00, +3h, friday.")
@click.option("--withdraw", is_flag=True, help="Withdraw what was demanded of these layers.")
@click.option("--account", "alias", help="The Ape account of the controller.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@telling_errors
def cli(subject: str, layers: int, due_by: int | None, withdraw: bool, alias: str | None, registry: str | None) -> None:
    """Demand that layers of SUBJECT be completed by a time. A demand asks for maintenance, and performs none."""
    if (due_by is None) != withdraw:
        raise click.UsageError("give --by TIME, or --withdraw.")
    named = Address(subject, "SUBJECT")
    client = load_subjects(registry, load_account(alias))
    names = ", ".join(NAMES[layer] for layer in layers_of(layers))
    if due_by is None:
        event = client.withdraw_demand(named, layers)
        click.echo(f"nothing is demanded of {names} of {named} any more, block {event.reference.block_number}")
        return
    made = client.demand(named, layers, due_by)
    click.echo(f"{names} of {named} demanded by {show_time(made.due_by)}, block {made.reference.block_number}")
    loaded = client.load_subject(named)
    for layer in layers_of(layers):
        found = loaded.statuses.layers[layer]
        click.echo(f"  {NAMES[layer]}: {found.status.name}, deadline {show_time(found.deadline)}")
