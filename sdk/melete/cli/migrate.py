"""`melete space migrate`: a new space that begins with what an older prototype exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from melete.cli.documents import read_file
from melete.cli.keys import signer_options
from melete.cli.output import emit
from melete.cli.sending import DeltaSending
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.primitives import Bytes32

if TYPE_CHECKING:
    from melete.memory.migration import Export, Migration
    from melete.memory.registry import MemoryRegistry
    from melete.signing import LocalSigner


@click.command("migrate")
@click.argument("export")
@click.option("--root", default="/root", show_default=True, help="Where the export states its root: a JSON pointer.")
@click.option("--tool", help="Where it names the tool that wrote it; /tool, if that is text, unless given.")
@click.option("--tool-version", help="Where it states that tool's version; /version, if that is one, unless given.")
@click.option("--salt", help="32 bytes as hex for the new space's id; fresh ones unless given.")
@click.option("--space", help="Go on with this space, which is registered and has no transition yet.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and what the registry would say to it.")
@click.option("--until", type=click.Choice(["queued", "mined", "done"]), default="mined", show_default=True)
@outbox_option
@witness_options
@signer_options
@registry_options
@json_option
def migrate(
    export: str,
    root: str,
    tool: str | None,
    tool_version: str | None,
    salt: str | None,
    space: str | None,
    dry_run: bool,
    until: str,
    outbox: Path,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Register a new space, and commit what binds the file EXPORT (- reads standard input) as its first transition.

    EXPORT is a JSON file of an older prototype, of at most 16 MiB. Bound are its keccak256 and sha256, its length, the
    root that it states, its tool and version if it states them, and this tool's. Nothing else of it is read, and none
    of its ids becomes one here: space and transition ids are new. The key given becomes controller and authorizer.

    Killed after registering, it goes on with --space; killed later, `melete outbox run` does the rest.
    """
    import secrets

    from melete import __version__
    from melete.memory.migration import read_export
    from melete.memory.space import compute_space_id

    if salt is not None and space is not None:
        raise click.UsageError("--salt is for a new space, --space for one that is there; give one of them.")
    read = read_export(read_file(export), root=root, tool=tool, version=tool_version)
    migration = read.migrate("melete", __version__)
    word = None
    if space is None:
        word = Bytes32(secrets.token_bytes(32) if salt is None else salt, "--salt")
        space_id = read.refuse_id(compute_space_id(signer.address, word), "spaceId")
    else:
        space_id = read.refuse_id(Bytes32(space, "--space"), "--space")
    found: dict[str, Any] = {"spaceId": space_id, "controller": signer.address, "salt": word or ""}
    if dry_run:
        emit({**found, **_rehearse(settings, space_id, word, signer), **_payload(migration, as_json)}, as_json=as_json)
        return
    _migrate(read, migration, found, until, outbox, witnesses, signer, payer, settings, as_json)


@click.command("verify-migration")
@click.argument("space")
@click.argument("export")
@click.option("--from-block", type=click.IntRange(0), help="Where to start, in place of the registry's recorded block.")
@witness_options
@registry_options
@json_option
def verify_migration(
    space: str, export: str, from_block: int | None, witnesses: WitnessOptions, settings: Settings, as_json: bool
) -> None:
    """Say whether SPACE began with the very file EXPORT, by its first transition and the witness at hand.

    Exit code 1 for another file, or for a space that began otherwise.
    """
    from melete.cli.delta_sources import Wanted, find_on_chain
    from melete.cli.deployed import first_block
    from melete.errors import InvalidInput, WitnessMismatch
    from melete.memory.migration import MIGRATION_ID, Migration, verify_export
    from melete.memory.witness import verify_witness
    from melete.memory.witness_kinds import DELTA
    from melete.memory.witness_store import WitnessStore

    space_id = Bytes32(space, "SPACE")
    content = read_file(export)
    registry = settings.connect()
    found = find_on_chain(registry, Wanted(space_id=space_id, sequence=1), first_block(settings, registry, from_block))
    if found is None:
        registry.authorization(space_id)
        raise InvalidInput("SPACE", space_id, "a space with a transition, in the blocks that were read")
    with WitnessStore.open(witnesses.path, witnesses.load_key(), read_only=True) as store:
        witness = store.get(DELTA.place(space_id, 1))
    delta = verify_witness(found.delta, witness)
    if delta.profile_id != MIGRATION_ID:
        raise WitnessMismatch("the profile of a migration", delta.profile_id, MIGRATION_ID)
    migration = verify_export(Migration.from_payload(witness.payload), content)
    known = {"spaceId": space_id, **found.known, "verified": True}
    emit({**known, **_payload(migration, as_json)}, as_json=as_json)


def _migrate(
    export: Export,
    migration: Migration,
    found: dict[str, Any],
    until: str,
    outbox: Path,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    from melete.chain.outbox import Outbox
    from melete.chain.transactions import LocalSender
    from melete.memory.delta import compute_next_state_root, compute_transition_id
    from melete.memory.migration import add_migration, build_migration_witness
    from melete.memory.outbox import MemoryOutbox
    from melete.memory.space import GENESIS
    from melete.memory.witness_keys import fresh_salt

    registry = settings.connect()
    registry.sender = LocalSender(payer)
    space_id, salt = found["spaceId"], found["salt"]
    # Both stores are opened before anything is sent: a key that is missing leaves no space behind.
    with Outbox(outbox) as opened, witnesses.open() as store:
        if salt:
            click.echo(f"registering space {space_id}; should this be killed, go on with --space", err=True)
            registry.register(signer.address, salt, controller=signer)
        witness = build_migration_witness(migration, fresh_salt())
        export.refuse_id(compute_transition_id(witness.build_delta(space_id, GENESIS)), "transitionId")
        delta = add_migration(MemoryOutbox(opened, registry, store), space_id, witness, signer)
        sending = DeltaSending(opened, registry, delta, until)
        sending.send(payer, quiet=as_json)
        transition_id = compute_transition_id(delta)
        result = {
            **found,
            "sequence": str(delta.sequence),
            "transitionId": transition_id,
            "stateRoot": compute_next_state_root(delta.prev_state_root, transition_id),
            **sending.found(),
        }
        emit({**result, **_payload(migration, as_json)}, as_json=as_json)
        sending.end()


def _rehearse(settings: Settings, space_id: Bytes32, salt: Bytes32 | None, signer: LocalSigner) -> dict[str, Any]:
    """Return what the registry would say, and change nothing. Without a node, say that it was not asked."""
    from melete.memory.migration import MIGRATION_ID, MIGRATION_NAME

    steps = [f"register {space_id}"] if salt is not None else []
    steps.append(f"commit its transition 1, under profile {MIGRATION_NAME}")
    found: dict[str, Any] = {"dryRun": True, "steps": steps, "profileId": MIGRATION_ID}
    if settings.rpc_url is None:
        return {**found, "registry": "not asked: no node is named"}
    registry = settings.connect()
    _check(registry, space_id, salt, signer)
    return {**found, "registry": f"{registry.address} on chain {registry.chain_id} would take it"}


def _check(registry: MemoryRegistry, space_id: Bytes32, salt: Bytes32 | None, signer: LocalSigner) -> None:
    """Raise the first error that the real run would meet."""
    from melete.chain.transactions import NodeSender
    from melete.errors import InvalidAuthorization, InvalidInput
    from melete.memory.space import compute_registration_hash

    registry.sender = NodeSender(signer.address)
    if salt is not None:
        struct_hash = compute_registration_hash(space_id, signer.address, signer.address)
        signature = signer.sign_digest(registry.domain.digest(struct_hash))
        registry.check_register(space_id, signer.address, signer.address, salt, signature)
        return
    state = registry.load_state(space_id)
    if state.head.sequence != 0:
        raise InvalidInput("--space", space_id, "a space without any transition")
    if state.authorization.authorizer != signer.address:
        raise InvalidAuthorization


def _payload(migration: Migration, as_json: bool) -> dict[str, Any]:
    return {"payload": migration.to_json() if as_json else migration.describe()}
