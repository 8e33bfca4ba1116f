"""Set a subject's floor as its controller: ape run set_floor SUBJECT --require runtime=1d [--pulse 6h]."""

from __future__ import annotations

import click
from scripts._common import ScriptCommand, load_account, telling_errors
from scripts._maintenance import load_subjects

from melete import Address
from melete.cli.layers import NAMES, parse_floor
from melete.cli.times import SpanParameter
from melete.meditation.forecast import forecast
from melete.meditation.status import MaintenanceStatus


@click.command(cls=ScriptCommand)
@click.argument("subject")
@click.option(
    "--require", multiple=True, metavar="LAYER=SPAN", help="A required layer and its longest interval: runtime=1d."
)
@click.option("--pulse", type=SpanParameter(), default=0, help="The longest time between signals; 0 for none.")
@click.option("--try", "dry", is_flag=True, help="Only say what it would mean now; nothing is sent.")
@click.option("--account", "alias", help="The Ape account of the controller.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@telling_errors
def cli(subject: str, require: tuple[str, ...], pulse: int, dry: bool, alias: str | None, registry: str | None) -> None:
    """Replace SUBJECT's floor: its policy cannot relax what the floor requires.

    Without --require and --pulse nothing is required by the floor any more.
    """
    named, floor = Address(subject, "SUBJECT"), parse_floor(require, pulse)
    client = load_subjects(registry, None if dry else load_account(alias))
    if not dry:
        event = client.set_floor(named, floor)
        click.echo(f"floor {event.version} of {named} is in force, block {event.reference.block_number}")
    loaded = client.load_subject(named)
    if dry:
        click.echo(f"nothing is sent; under this floor {named} would be:")
    found = forecast(loaded.anchors, loaded.clock, loaded.policy, floor)
    for name, layer, interval in zip(NAMES, found.layers, found.requirements.max_interval, strict=True):
        wanted = f", at least every {interval} s" if interval else ""
        click.echo(f"  {name}: {MaintenanceStatus(layer.status).name}{wanted}")
