"""Enroll an Ape account as a subject: ape run enroll_subject --policy FILE --layer FILE (four times)."""

from __future__ import annotations

from typing import Any

import click
from scripts._common import ScriptCommand, load_account, telling_errors
from scripts._maintenance import load_subjects

from melete import Address
from melete.cli.layers import NAMES, load_file
from melete.cli.stores import WitnessOptions, witness_options
from melete.cli.subject_acts import RIGHTS, mask_of_names
from melete.errors import InvalidInput
from melete.meditation.documents import POLICY_SCHEMA, derive_policy
from melete.meditation.enrolling import enroll


@click.command(cls=ScriptCommand)
@click.option("--policy", "policy_file", required=True, help="The policy document.")
@click.option("--policy-uri", default="", help="Where the policy document can be had; public.")
@click.option("--layer", "files", multiple=True, required=True, help="A layer state document; give four.")
@click.option("--controller", help="Who may set the floor, demand and revoke operators.")
@click.option("--rights", help="Its rights, joined by commas: floor, demand, revoke-operators.")
@click.option("--public-salt", is_flag=True, help="Commit with zero salts: whoever guesses a document can tell.")
@click.option("--account", "alias", help="The Ape account that becomes the subject.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@witness_options
@telling_errors
def cli(
    policy_file: str, policy_uri: str, files: tuple[str, ...], controller: str | None, rights: str | None,
    public_salt: bool, alias: str | None, registry: str | None, witnesses: WitnessOptions,
) -> None:  # fmt: skip
    """Enroll the account as a subject, with a policy document and the state documents of its four layers.

    What the registry would refuse is refused first. Then documents and salts go into the witness store, before anything
    is sent; run again after a crash, the salts of the same documents are taken from there.
    """
    if (controller is None) != (rights is None):
        raise click.UsageError("--controller and --rights go together.")
    policy = derive_policy(load_file(policy_file, POLICY_SCHEMA), policy_uri)
    documents = [load_file(file) for file in files]
    if sorted(str(document.get("layer")) for document in documents) != ["0", "1", "2", "3"]:
        raise InvalidInput("--layer", len(files), "four state documents, one for each layer")
    named = None if controller is None else Address(controller, "--controller")
    mask = mask_of_names(rights, RIGHTS, "--rights")
    client = load_subjects(registry, load_account(alias))
    by_layer: dict[Any, Any] = {document["layer"]: document for document in documents}
    with witnesses.open() as store:
        event = enroll(client, store, by_layer, policy, named, mask, public_salt=public_salt)
    baseline = client.load_subject(event.subject).commitments
    click.echo(f"{event.subject} is enrolled: state version 1, root {event.root}, block {event.reference.block_number}")
    for name, commitment in zip(NAMES, baseline, strict=True):
        click.echo(f"  {name}: {commitment}")
