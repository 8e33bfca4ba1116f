"""`melete delta`: commit a memory change, show one, or hash and check one that was made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from melete.cli.delta_show import show
from melete.cli.documents import read_document, read_file
from melete.cli.keys import signer_options
from melete.cli.output import emit
from melete.cli.sending import DeltaSending
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.primitives import Address, Bytes32, parse_bytes, uint

if TYPE_CHECKING:
    from melete.signing import LocalSigner


@click.group()
def command() -> None:
    """Commit a memory change, show one, or hash and check one that was made elsewhere.

    FILE is a JSON object with the seven members of an ExperienceDelta (schemas/experience-delta.schema.json), or -.
    """


command.add_command(show)


@command.command("hash")
@click.argument("file")
@click.option("--chain-id", type=int, help="With --registry: print the digest to sign, too.")
@click.option("--registry", help="The registry that the delta is for.")
@json_option
def hash_delta(file: str, chain_id: int | None, registry: str | None, as_json: bool) -> None:
    """Print the transition id and the next state root of the delta in FILE."""
    if (chain_id is None) != (registry is None):
        raise click.UsageError("--chain-id and --registry go together: a digest is for one registry on one chain.")
    delta = ExperienceDelta.from_json(read_document(file))
    transition_id = compute_transition_id(delta)
    found: dict[str, Any] = {
        "transitionId": transition_id,
        "nextStateRoot": compute_next_state_root(delta.prev_state_root, transition_id),
    }
    if chain_id is not None and registry is not None:
        from melete.memory.space import memory_state_domain

        domain = memory_state_domain(uint(chain_id, 256, "--chain-id"), Address(registry, "--registry"))
        found["signingDigest"] = domain.digest(transition_id)
    emit(found, as_json=as_json)


@command.command("check")
@click.argument("file")
@click.option("--signature", default="0x", show_default=True, help="The authorizer's approval; 0x for a direct call.")
@click.option("--from", "sender", required=True, help="The account that would send it.")
@registry_options
@json_option
def check_delta(file: str, signature: str, sender: str, settings: Settings, as_json: bool) -> None:
    """Say whether the registry would take the delta in FILE now, and if not, its first error. Nothing is sent."""
    from melete.chain.transactions import NodeSender

    delta = ExperienceDelta.from_json(read_document(file))
    approval = parse_bytes(signature, "--signature")
    account = Address(sender, "--from")
    registry = settings.connect()
    registry.sender = NodeSender(account)
    gas = registry.check_commit(delta, approval)
    emit({"accepted": True, "transitionId": compute_transition_id(delta), "gas": str(gas)}, as_json=as_json)


@command.command("commit")
@click.argument("space")
@click.argument("payload")
@click.option("--profile", default="melete.plain/1", show_default=True, help="The name of the payload's profile.")
@click.option("--provenance", help="A file that says where the change came from.")
@click.option("--locator", help="Where the payload is kept: a URI.")
@click.option("--until", type=click.Choice(["queued", "mined", "done"]), default="mined", show_default=True)
@outbox_option
@witness_options
@signer_options
@registry_options
@json_option
def commit(
    space: str,
    payload: str,
    profile: str,
    provenance: str | None,
    locator: str | None,
    until: str,
    outbox: Path,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Commit the bytes of the file PAYLOAD (- reads standard input) to SPACE, under fresh salts.

    The witness is on disk before anything goes out. Killed at any point, or without an answer of the node, `melete
    outbox run` goes on: asking again here would commit the same payload a second time. Exit code 1 if the registry
    does not take it, 3 if it is not as far yet as asked for.
    """
    from melete.chain.outbox import Outbox
    from melete.memory.commitment import compute_profile_id
    from melete.memory.outbox import MemoryOutbox
    from melete.memory.witness import Witness
    from melete.memory.witness_keys import fresh_salt

    space_id = Bytes32(space, "SPACE")
    content = read_file(payload)
    check_payload(profile, content)
    reason = None if provenance is None else read_file(provenance)
    witness = Witness(
        compute_profile_id(profile),
        content,
        fresh_salt(),
        reason,
        None if reason is None else fresh_salt(),
        locator,
        None if locator is None else fresh_salt(),
    )
    registry = settings.connect()
    with Outbox(outbox) as opened, witnesses.open() as store:
        (delta,) = MemoryOutbox(opened, registry, store).add(space_id, [witness], signer)
        sending = DeltaSending(opened, registry, delta, until)
        sending.send(payer, quiet=as_json)
        transition_id = compute_transition_id(delta)
        found = {
            "sequence": str(delta.sequence),
            "transitionId": transition_id,
            "stateRoot": compute_next_state_root(delta.prev_state_root, transition_id),
        }
        emit({**found, **sending.found()}, as_json=as_json)
        sending.end()


def check_payload(profile: str, content: bytes) -> None:
    """Refuse a payload that its profile could never be read by; of a profile unknown here, any bytes are taken.

    Errors: `click.UsageError` for a profile without a name, `ConfigurationError` for what a known one does not decode.
    """
    from melete.cli.payloads import profiles
    from melete.errors import ConfigurationError, InvalidInput, InvalidJson, MeleteError, UnknownProfile
    from melete.memory.commitment import compute_profile_id
    from melete.memory.profiles import PLAIN_NAME

    if not profile.strip():
        raise click.UsageError(f"--profile is the name of a profile, such as {PLAIN_NAME}; it cannot be empty.")
    try:
        profiles().decode(compute_profile_id(profile), content)
    except UnknownProfile:
        return
    except MeleteError as error:
        # The rule alone: what a payload holds is not shown.
        rule = error.rule if isinstance(error, InvalidInput | InvalidJson) else str(error).rstrip(".")
        raise ConfigurationError(
            f"PAYLOAD is no payload of the profile {profile} ({rule}); give one that is, or leave --profile away to "
            "commit the bytes as they are"
        ) from None
