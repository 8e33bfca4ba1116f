"""`melete delta show`: what a delta says, where it was found, and what the witness at hand opens of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.documents import read_document
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.errors import InvalidInput
from melete.memory.delta import ExperienceDelta, compute_next_state_root, compute_transition_id
from melete.primitives import Bytes32, parse_sequence

if TYPE_CHECKING:
    from melete.cli.delta_sources import Found, Wanted
    from melete.memory.witness_store import WitnessStore

_WORD: Final = re.compile(r"0[xX][0-9a-fA-F]{64}", re.ASCII)
UNKNOWN: Final = "unknown"


@click.command("show")
@click.argument("target")
@click.argument("sequence", required=False)
@click.option("--offline", is_flag=True, help="Ask no node, even if one is named.")
@click.option("--from-block", type=click.IntRange(0), help="Where to start, in place of the registry's recorded block.")
@outbox_option
@witness_options
@registry_options
@json_option
def show(
    target: str,
    sequence: str | None,
    offline: bool,
    from_block: int | None,
    outbox: Path,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Show a delta: its members, its transition id, the state root after it, and which commitments open.

    TARGET is a file with the seven members (or -); or a transition id; or a space id, with SEQUENCE after it. The last
    two are looked up in the registry's events if a node is named, then in the outbox, and a space and sequence in the
    witness store, which does not know the root before. Exit code 1 if a witness does not open what was committed.
    """
    from melete.cli.payloads import store_at_hand

    wanted = _parse_target(target, sequence)
    with store_at_hand(witnesses) as store:
        if wanted is None:
            from melete.cli.delta_sources import Found

            found = Found(ExperienceDelta.from_json(read_document(target)), "file", {})
        else:
            found = _find(wanted, outbox, store, settings, from_block, offline=offline)
        opened, holds = _open(store, found.delta)
    emit({**_describe(found), **opened}, as_json=as_json)
    if not holds:
        raise click.exceptions.Exit(1)


def _parse_target(target: str, sequence: str | None) -> Wanted | None:
    from melete.cli.delta_sources import Wanted

    if sequence is not None:
        number = parse_sequence(sequence, "SEQUENCE")
        if number == 0:
            raise InvalidInput("SEQUENCE", sequence, "at least 1, the first transition of a space")
        return Wanted(space_id=Bytes32(target, "SPACE"), sequence=number)
    return Wanted(transition_id=Bytes32(target, "TRANSITION")) if _WORD.fullmatch(target) else None


def _find(
    wanted: Wanted,
    outbox: Path,
    store: WitnessStore | None,
    settings: Settings,
    from_block: int | None,
    *,
    offline: bool,
) -> Found:
    from melete.cli.delta_sources import find_in_outbox, find_in_store, find_on_chain
    from melete.cli.deployed import first_block

    registry = None if offline or settings.rpc_url is None else settings.connect()
    found = None
    if registry is not None:
        found = find_on_chain(registry, wanted, first_block(settings, registry, from_block))
    found = found or find_in_outbox(outbox, wanted, settings, registry)
    if found is None and store is not None:
        found = find_in_store(store, wanted, registry)
    if found is not None:
        return found
    places = [
        *(["the registry's events"] if registry is not None else []),
        "the outbox",
        *(["the witness store"] if store is not None and wanted.space_id is not None else []),
    ]
    rule = f"known to one of those asked: {', '.join(places)}"
    if wanted.transition_id is not None:
        raise InvalidInput("TRANSITION", wanted.transition_id, rule)
    raise InvalidInput("SEQUENCE", wanted.sequence, f"of a transition of the space that is {rule}")


def _describe(found: Found) -> dict[str, Any]:
    members: dict[str, Any] = dict(found.delta.to_json())
    transition_id = compute_transition_id(found.delta)
    next_state_root = compute_next_state_root(found.delta.prev_state_root, transition_id)
    members |= {"transitionId": transition_id, "nextStateRoot": next_state_root, "source": found.source}
    if not found.is_whole:
        members |= dict.fromkeys(("prevStateRoot", "transitionId", "nextStateRoot"), UNKNOWN)
    return {**members, **found.known}


def _open(store: WitnessStore | None, delta: ExperienceDelta) -> tuple[dict[str, Any], bool]:
    """Return what the witness at hand opens, and whether nothing is wrong with it."""
    from melete.cli.payloads import open_delta, profiles
    from melete.errors import UnknownProfile
    from melete.primitives import ZERO_BYTES32

    try:
        name = profiles().find(delta.profile_id).name
    except UnknownProfile:
        name = UNKNOWN
    if store is None:
        return {"profile": name, "witness": "not looked for: no store and key are named"}, True
    opening = open_delta(store, delta)
    committed = {
        "deltaCommitment": delta.delta_commitment,
        "provenanceCommitment": delta.provenance_commitment,
        "locatorCommitment": delta.locator_commitment,
    }
    given: dict[str, Bytes32] = {}
    if opening.witness is not None:
        given = dict(zip(committed, opening.witness.compute_commitments(), strict=True))
    there = {commitment: word for commitment, word in committed.items() if word != ZERO_BYTES32}
    opened = [commitment for commitment, word in there.items() if given.get(commitment) == word]
    closed = [commitment for commitment in there if commitment not in opened]
    answer = f"{opening.answer.value} {opening.closed}".rstrip()
    return {"profile": name, "witness": answer, "opened": opened, "closed": closed}, opening.holds
