"""`melete outbox`: what waits to be sent, and sending it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from melete.cli.keys import signer_options
from melete.cli.output import emit
from melete.cli.sending import SendingProgress, rules
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.errors import MissingFile
from melete.primitives import Bytes32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from melete.chain.outbox import Item
    from melete.signing import LocalSigner


@click.group()
def command() -> None:
    """Show what waits to be sent, and send it. Everything may be killed at any point, and run again."""


@command.command("show")
@outbox_option
@json_option
def show(outbox: Path, as_json: bool) -> None:
    """Count the items by state, say which chains wait for some, and name those that cannot be sent."""
    from melete.chain.outbox import OPEN, Outbox, State

    require_outbox(outbox)
    with Outbox(outbox) as opened:
        counts = {state.value: str(count) for state, count in opened.count().items()}
        stopped = [
            f"chain {item.chain_id}, 0x{item.lane.hex()} {item.position}: {item.state}, {item.reason}"
            for item in opened.items(State.CONFLICT, State.REFUSED)
        ]
        waiting = count_by_chain(opened.items(*OPEN))
    emit({**counts, "waiting": waiting, "stopped": stopped}, as_json=as_json)


@command.command("run")
@click.option("--confirmations", type=click.IntRange(0), help="Blocks on top until an item is done; 12 unless given.")
@click.option("--finalized", is_flag=True, help="Until the chain itself calls the block final, instead.")
@click.option("--until", type=click.Choice(["mined", "done"]), default="done", show_default=True)
@outbox_option
@signer_options
@registry_options
@json_option
def run(
    confirmations: int | None,
    finalized: bool,
    until: str,
    outbox: Path,
    signer: LocalSigner,  # noqa: ARG001 - all is signed already; only the payer's key is used
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Send what waits, from the key given, until all of it is done or cannot be sent (exit code 1).

    Exit code 3 if something is left waiting: behind others of its lane, or for another chain than the node's while
    nothing waited for this one.
    """
    from melete.chain.connection import check_chain
    from melete.chain.outbox import OPEN, Outbox, State
    from melete.chain.submitter import CONFIRMATIONS, Submitter
    from melete.chain.transactions import LocalSender

    if finalized and confirmations is not None:
        raise click.UsageError("--finalized and --confirmations contradict each other; give one of them.")
    depth: int | str = "finalized" if finalized else CONFIRMATIONS if confirmations is None else confirmations
    require_outbox(outbox)
    w3 = settings.connect_node()
    chain_id = check_chain(w3, None)
    wanted = OPEN if until == State.DONE else (State.QUEUED, State.SENT)
    with Outbox(outbox) as opened:
        was_idle = all(item.chain_id != chain_id for item in opened.items(*OPEN))
        submitter = Submitter(w3, opened, LocalSender(payer), rules(), confirmations=depth)
        progress = SendingProgress(quiet=as_json)
        try:
            found = submitter.run(until=State(until), progress=progress.tell)
        finally:
            progress.clear()
        left = opened.items(*wanted)
    counts = {name: str(getattr(found, name)) for name in found.__slots__}
    emit({"chainId": str(chain_id), **counts, "waiting": count_by_chain(left)}, as_json=as_json)
    if found.stopped:
        raise click.exceptions.Exit(1)
    # What waits for another chain is no fault of a run that had something to do on its own.
    if any(was_idle or item.chain_id == chain_id for item in left):
        raise click.exceptions.Exit(3)


@command.command("rebuild")
@click.argument("space")
@outbox_option
@witness_options
@signer_options
@registry_options
@json_option
def rebuild(
    space: str,
    outbox: Path,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Build anew on the current head of SPACE what stands still, signed by the key given. Nothing is sent.

    That is what is in conflict or was refused, what waits behind it, and what the witness store keeps behind it all and
    this outbox does not know of. Whether the payloads still belong there, only you know; `withdraw` gives them up.
    """
    from melete.chain.outbox import Outbox
    from melete.memory.outbox import MemoryOutbox

    space_id = Bytes32(space, "SPACE")
    require_outbox(outbox)
    with Outbox(outbox) as opened, witnesses.open() as store:
        deltas = MemoryOutbox(opened, settings.connect(), store).rebuild(space_id, signer)
    emit({"rebuilt": [str(delta.sequence) for delta in deltas], "payer": payer.address}, as_json=as_json)


@command.command("withdraw")
@click.argument("space")
@click.option("--yes", is_flag=True, help="Really do it. Without it, only what would go is shown.")
@outbox_option
@witness_options
@registry_options
@json_option
def withdraw(space: str, yes: bool, outbox: Path, witnesses: WitnessOptions, settings: Settings, as_json: bool) -> None:
    """Give up what stands still in SPACE, and what waits behind it: none of it was ever committed.

    What is in conflict or was refused, and what the witness store alone knows of. The witnesses stay in the store, out
    of the way.
    """
    from melete.chain.outbox import Outbox
    from melete.memory.outbox import MemoryOutbox

    space_id = Bytes32(space, "SPACE")
    require_outbox(outbox)
    with Outbox(outbox) as opened, witnesses.open() as store:
        positions = MemoryOutbox(opened, settings.connect(), store).withdraw(space_id, dry_run=not yes)
    emit({"withdrawn" if yes else "wouldWithdraw": [str(position) for position in positions]}, as_json=as_json)


def require_outbox(path: Path) -> None:
    """Refuse a name that leads nowhere: a new outbox would hold nothing, and say so. Errors: `MissingFile`."""
    if not path.exists():
        raise MissingFile(str(path), "there is no outbox; name one by --outbox (an empty file begins a new one)")


def count_by_chain(items: Iterable[Item]) -> list[str]:
    """Return how many items there are for each chain, a line each."""
    from collections import Counter

    counted = Counter(item.chain_id for item in items)
    return [f"{count} for chain {chain_id}" for chain_id, count in sorted(counted.items())]
