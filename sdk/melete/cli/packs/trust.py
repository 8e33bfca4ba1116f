"""`amp trust`: keep the public keys of signers by name."""

from __future__ import annotations

import click

from melete.cli.packs.arguments import emit
from melete.packs.keys import load_public_key
from melete.packs.trust import TrustedKey, TrustStore

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_since = click.option("--since", metavar="TIME", help="A date or a UTC time such as 2026-07-01T12:00:00Z. [now]")


@click.group()
def command() -> None:
    """Keep the public keys of signers by name, in ~/.amp/trusted.json; amp verify and amp install believe them."""


@command.command("add")
@click.argument("name")
@click.argument("public_key")
@_json
def add(name: str, public_key: str, as_json: bool) -> None:
    """Trust the key in the file PUBLIC_KEY, under a new NAME."""
    emit(_to_json(TrustStore().add(name, load_public_key(public_key))), as_json=as_json)


@command.command("list")
@_json
def list_keys(as_json: bool) -> None:
    """List every key: active, replaced and revoked ones."""
    keys = TrustStore().load()
    if as_json:
        emit({"keys": [_to_json(one) for one in keys]}, as_json=True)
        return
    for one in keys:
        click.echo(f"{one.key.key_id}  {one.state:7}  since {one.since:20}  {one.name}")


@command.command("rotate")
@click.argument("name")
@click.argument("public_key")
@_since
@_json
def rotate(name: str, public_key: str, since: str | None, as_json: bool) -> None:
    """Give NAME the key in the file PUBLIC_KEY.

    The old one still verifies, with a warning; revoke it if somebody else may have it.
    """
    emit(_to_json(TrustStore().rotate(name, load_public_key(public_key), since)), as_json=as_json)


@command.command("revoke")
@click.argument("name_or_key_id")
@_since
@_json
def revoke(name_or_key_id: str, since: str | None, as_json: bool) -> None:
    """Never believe a key again, whatever it signed: every key of a name, or the one of a key id."""
    keys = TrustStore().revoke(name_or_key_id, since)
    if as_json:
        emit({"keys": [_to_json(one) for one in keys]}, as_json=True)
        return
    for one in keys:
        click.echo(f"{one.key.key_id}  {one.state}  since {one.since}  {one.name}")


def _to_json(one: TrustedKey) -> dict[str, str]:
    return {"name": one.name, "keyId": one.key.key_id, "state": one.state, "since": one.since}
