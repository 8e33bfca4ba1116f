"""`melete history`: verify a space's history against its registry."""

from __future__ import annotations

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.primitives import Bytes32


@click.command()
@click.argument("space")
@click.option("--from-block", type=click.IntRange(0), default=0, show_default=True, help="The registry's first block.")
@click.option("--until", type=click.Choice(["latest", "safe", "finalized"]), default="latest", show_default=True)
@registry_options
@json_option
def command(space: str, from_block: int, until: str, settings: Settings, as_json: bool) -> None:
    """Read all events of SPACE, verify that each follows from the one before, and that they end at its head.

    Sequence, roots, ids, and that every transition names the authorizer in force at its point. Ranges are split by
    what the provider allows. Exit code 1 names the first event that does not follow.
    """
    from melete.chain.logs import Scanner, load_block
    from melete.errors import BrokenHistory
    from melete.memory.events import TOPICS, MemoryEvent
    from melete.memory.forensics import decode_quickly, verify_space_history

    space_id = Bytes32(space, "SPACE")
    registry = settings.connect()
    block = load_block(registry.w3, until)
    stated = registry.load_state(space_id, block.number)
    scanner: Scanner[MemoryEvent] = Scanner(
        registry.w3,
        registry.address,
        decode_quickly,
        start_block=from_block,
        until=block.number,
        topics=(tuple(TOPICS), space_id),
    )
    verified = verify_space_history(space_id, scanner.events())
    if verified != stated:
        raise BrokenHistory(verified.head.sequence + 1, "head", stated.head.state_root, verified.head.state_root)
    emit(
        {
            "chainId": registry.chain_id,
            "registry": registry.address,
            "spaceId": space_id,
            "block": block.number,
            "blockHash": block.hash,
            "transitions": str(verified.head.sequence),
            "updates": str(verified.authorization.config_nonce),
            "stateRoot": verified.head.state_root,
            "verified": True,
        },
        as_json=as_json,
    )
