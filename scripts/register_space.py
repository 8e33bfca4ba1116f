"""Register a space for an Ape account: ape run register_space --authorizer ADDRESS [--salt HEX]."""

from __future__ import annotations

import secrets

import click
from scripts._common import ScriptCommand, load_account, load_registry, telling_errors

from melete import Address, Bytes32


@click.command(cls=ScriptCommand)
@click.option("--account", "alias", help="The Ape account that pays and becomes the controller.")
@click.option("--authorizer", help="Who approves transitions; the controller itself unless given.")
@click.option("--salt", help="32 bytes as hex; fresh ones unless given.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@telling_errors
def cli(alias: str | None, authorizer: str | None, salt: str | None, registry: str | None) -> None:
    """Register a space whose controller is the account."""
    account = load_account(alias)
    approver = Address(authorizer or str(account.address), "--authorizer")
    word = Bytes32(secrets.token_bytes(32) if salt is None else salt, "--salt")
    event = load_registry(registry, account).register(approver, word)
    click.echo(f"space {event.space_id}: controller {event.controller}, authorizer {event.authorizer}, salt {word}")
