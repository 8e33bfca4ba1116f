"""`melete disclose`: write what opens a range of a space's transitions to a file for an auditor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, witness_options
from melete.primitives import Address, Bytes32, parse_sequence

if TYPE_CHECKING:
    from melete.memory.disclosure import AuditBundle
    from melete.memory.registry import MemoryRegistry


@click.command()
@click.argument("space")
@click.option("--from", "first", required=True, help="The first transition of the range, by its sequence.")
@click.option("--to", "last", required=True, help="The last one; it belongs to the range.")
@click.option("--auditor", required=True, help="The account that it is disclosed to.")
@click.option("--out", required=True, help="The file to write; it must not exist yet.")
@click.option("--contract", help="The AuditGrant contract that holds the grant.")
@click.option("--register", is_flag=True, help="Register the grant there first, by a key, unless it is there already.")
@click.option("--proof/--no-proof", default=True, help="Put storage proofs into the bundle, for judging it offline.")
@click.option("--block", type=click.Choice(["latest", "safe", "finalized"]), default="latest", show_default=True)
@click.option("--from-block", type=click.IntRange(0), default=0, show_default=True, help="The registry's first block.")
@click.option("--key-file", help="With --register: a file of mode 0600 that holds the controller's key as hex.")
@click.option("--keystore", help="With --register: the controller's encrypted keystore file.")
@witness_options
@registry_options
@json_option
def command(
    space: str,
    first: str,
    last: str,
    auditor: str,
    out: str,
    contract: str | None,
    register: bool,
    proof: bool,
    block: str,
    from_block: int,
    key_file: str | None,
    keystore: str | None,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Write an audit bundle of SPACE: exactly the transitions from --from to --to, with what opens them.

    The file shows payloads and salts of the whole range to whoever reads it: it has mode 0600, and it is up to you how
    it reaches the auditor. A grant, once registered, is public but for what it opens; it can be revoked, and never
    changed. `melete verify` judges the file. With --block the proofs are of that block.
    """
    from melete.memory.bundle_anchoring import load_anchoring, with_anchoring
    from melete.memory.bundle_building import build_audit_bundle, bundle_file

    if register and contract is None:
        raise click.UsageError("--register needs --contract: the AuditGrant contract that will hold the grant.")
    space_id, account = Bytes32(space, "SPACE"), Address(auditor, "--auditor")
    stated = None if contract is None else Address(contract, "--contract")
    ends = parse_sequence(first, "--from"), parse_sequence(last, "--to")
    path = Path(out)
    if path.exists() or path.is_symlink():
        raise click.UsageError("--out names a file that exists; nothing is written over.")
    registry = settings.connect()
    with witnesses.open() as store:
        bundle = build_audit_bundle(registry, store, space_id, account, *ends, contract=stated, from_block=from_block)
    with bundle_file(path) as write:
        size = write(bundle)  # a grant is for good: first it is known that there is a file to go with it
        if stated is not None and not _is_granted(registry, bundle, stated, register=register):
            if proof and block != "latest":
                raise click.UsageError(
                    f"a grant that is registered now is not in the {block} block; leave --block away."
                )
            if proof:  # and that the node gives proofs
                load_anchoring(registry.w3, replace(bundle, grant=replace(bundle.grant, contract=None)), block)
            _register_grant(registry, bundle, stated, key_file, keystore)
        if proof:
            bundle = with_anchoring(bundle, load_anchoring(registry.w3, bundle, block))
            size = write(bundle)
    emit(
        {
            "file": str(path),
            "bytes": str(size),
            "transitions": str(len(bundle.entries)),
            "grantId": bundle.grant.grant_id,
            "witnessSetRoot": bundle.grant.witness_set_root,
            "contract": stated or "",
            "proof": proof,
            "secret": "it shows payloads and salts; it has mode 0600, and is for the auditor alone",
        },
        as_json=as_json,
    )


def _is_granted(registry: MemoryRegistry, bundle: AuditBundle, contract: Address, *, register: bool) -> bool:
    """Return whether the grant stands. Errors: `ConfigurationError` where it does not and shall not be registered."""
    from melete.errors import ConfigurationError, UnknownGrant
    from melete.memory.bundle_building import verify_granted
    from melete.memory.extensions.audit import AuditGrant

    try:
        verify_granted(AuditGrant(registry, contract), bundle)
    except UnknownGrant:
        if not register:
            raise ConfigurationError(
                f"{contract} holds no grant {bundle.grant.grant_id}; add --register, or leave --contract away"
            ) from None
        return False
    return True


def _register_grant(
    registry: MemoryRegistry, bundle: AuditBundle, contract: Address, key_file: str | None, keystore: str | None
) -> None:
    from melete.chain.transactions import LocalSender
    from melete.cli.keys import load_signer
    from melete.memory.bundle_building import grant_bundle
    from melete.memory.extensions.audit import AuditGrant

    grant_bundle(AuditGrant(registry, contract, sender=LocalSender(load_signer(key_file, keystore))), bundle)
