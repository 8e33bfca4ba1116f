"""`melete history`: verify a space's history against its registry."""

from __future__ import annotations

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.primitives import Bytes32


@click.command()
@click.argument("space")
@click.option("--from-block", type=click.IntRange(0), default=0, show_default=True, help="The registry's first block.")
@registry_options
@json_option
def command(space: str, from_block: int, settings: Settings, as_json: bool) -> None:
    """Read all transitions of SPACE, verify that each follows from the one before, and that they end at its head.

    Exit code 1 names the first transition that does not follow.
    """
    from melete.errors import BrokenHistory
    from melete.memory.history import verify_history

    space_id = Bytes32(space, "SPACE")
    registry = settings.connect()
    block = registry.w3.eth.block_number
    stated = registry.load_state(space_id, block).head
    events = registry.transitions(space_id, from_block, block)
    verified = verify_history(space_id, (event.transition for event in events))
    if verified != stated:
        raise BrokenHistory(verified.sequence + 1, "head", stated.state_root, verified.state_root)
    emit(
        {
            "chainId": registry.chain_id,
            "registry": registry.address,
            "spaceId": space_id,
            "block": block,
            "transitions": str(verified.sequence),
            "stateRoot": verified.state_root,
            "verified": True,
        },
        as_json=as_json,
    )
