"""`melete delta`: hash and check a memory change before it is sent."""

from __future__ import annotations

from typing import Any

import click

from melete.cli.documents import read_document
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.primitives import Address, parse_bytes, uint


@click.group()
def command() -> None:
    """Hash and check a memory change before it is sent.

    FILE is a JSON object with the seven members of an ExperienceDelta (schemas/experience-delta.schema.json), or -.
    """


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
    registry.check_commit(delta, approval)
    emit({"accepted": True, "transitionId": compute_transition_id(delta)}, as_json=as_json)
