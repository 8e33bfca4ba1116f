"""Commit a delta from a JSON file: ape run commit_delta FILE [--signature HEX]."""

from __future__ import annotations

import click
from scripts._common import ScriptCommand, load_account, load_registry, telling_errors

from melete import CallableSigner, ExperienceDelta
from melete.cli.documents import read_document
from melete.primitives import parse_bytes


@click.command(cls=ScriptCommand)
@click.argument("file")
@click.option("--signature", help="The authorizer's approval as hex; without it the account must be the authorizer.")
@click.option("--account", "alias", help="The Ape account that pays; on a local chain the first test account.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@telling_errors
def cli(file: str, signature: str | None, alias: str | None, registry: str | None) -> None:
    """Commit the delta in FILE (schemas/experience-delta.schema.json), or on standard input for -.

    What the registry would refuse is refused here, by the same error, and nothing is sent.
    """
    delta = ExperienceDelta.from_json(read_document(file))
    client = load_registry(registry, load_account(alias))
    authorizer = None
    if signature is not None:
        approval = parse_bytes(signature, "--signature")
        authorizer = CallableSigner(client.authorization(delta.space_id).authorizer, lambda _: approval)
    event = client.commit(delta, authorizer=authorizer)
    click.echo(f"transition {event.transition_id}, sequence {event.delta.sequence}, state root {event.next_state_root}")
