"""`melete history`: verify a space's history against its registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, registry_options
from melete.cli.stores import WitnessOptions, witness_options
from melete.primitives import Bytes32

if TYPE_CHECKING:
    from melete.chain.scan.transactions import SentTransaction
    from melete.memory.events import MemoryEvent
    from melete.memory.forensics import Approval, Step
    from melete.memory.registry import MemoryRegistry
    from melete.memory.witness_store import WitnessStore


@click.command()
@click.argument("space")
@click.option("--from-block", type=click.IntRange(0), help="Where to start, in place of the registry's recorded block.")
@click.option("--until", type=click.Choice(["latest", "safe", "finalized"]), default="latest", show_default=True)
@click.option("--resume", help="Go on where the run with this file ended, and write down in it how far this one comes.")
@click.option("--summary", is_flag=True, help="Print the verdict alone: no events, no signers, no payloads.")
@witness_options
@registry_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: an object for each event, then the verdict.")
def command(
    space: str,
    from_block: int | None,
    until: str,
    resume: str | None,
    summary: bool,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Read all events of SPACE, verify that each follows from the one before, and that they end at its head.

    Sequence, roots, ids, and that every transition names the authorizer in force at its point. Who signed is told from
    calldata where the registry was called directly. Where a store and its key are named, the payloads that it opens
    are shown. The end is compared with the registry's own state at that very block, by a storage proof if the node
    gives one. Reading starts at the block of the registry's deployment record, else at the chain's first.

    With --json each line is an object: the events, then the verdict or an error. "reorganized" takes back what was told
    of the blocks after the one that it names. Exit code 1 names the first event that does not follow, or tells that a
    witness does not open what was committed.
    """
    from melete.cli.deployed import first_block
    from melete.cli.history_reader import HistoryReader, late_start
    from melete.cli.payloads import nothing_at_hand, store_at_hand
    from melete.cli.progress import Progress
    from melete.errors import BrokenHistory, StoreNotWritten

    space_id = Bytes32(space, "SPACE")
    if resume is not None and not Path(resume).parent.is_dir():
        raise StoreNotWritten(resume, "there is no such folder")
    registry = settings.connect()
    start_block = first_block(settings, registry, from_block)
    reader = HistoryReader(registry, space_id, start_block, until, None if resume is None else Path(resume))
    started_after = reader.position.number
    progress = Progress()
    with nothing_at_hand() if summary else store_at_hand(witnesses) as store:
        teller = None if summary else Printer(registry, store, progress, as_json=as_json)
        try:
            anchored_by = reader.read_to_anchor(
                teller,
                lambda number: progress.tell(f"block {number} of {reader.last_block}, {reader.tally.events} events"),
            )
        except BrokenHistory as error:
            raise late_start(error, from_block) from None
        finally:
            progress.clear()
    tally, block = reader.tally, reader.position
    assert tally.state is not None
    found: dict[str, Any] = {
        "chainId": registry.chain_id,
        "registry": registry.address,
        "spaceId": space_id,
        "block": block.number,
        "blockHash": block.hash,
        "transitions": str(tally.state.head.sequence),
        "updates": str(tally.state.authorization.config_nonce),
        "stateRoot": tally.state.head.state_root,
        "controller": tally.state.authorization.controller,
        "authorizer": tally.state.authorization.authorizer,
        "after": started_after,
        "read": tally.events,
        "anchoredBy": anchored_by.value,
        "verified": True,
    }
    if store is not None:
        counts = {"opened": tally.opened, "missing": tally.missing, "erased": tally.erased, "notOpened": tally.wrong}
        found.update(counts)
    emit(found, as_json=as_json)
    if tally.wrong:
        raise click.exceptions.Exit(1)


class Printer:
    """Prints what a reader reads, with who signed it and what the witness at hand opens."""

    def __init__(self, registry: MemoryRegistry, store: WitnessStore | None, progress: Any, *, as_json: bool) -> None:
        from melete.chain.scan.transactions import Transactions
        from melete.cli.payloads import profiles

        self._domain = registry.domain
        self._store, self._profiles = store, profiles()
        self._progress, self._as_json = progress, as_json
        self._transactions = Transactions(registry.w3)
        self._sent: dict[Bytes32, SentTransaction | None] = {}

    def take_back(self, block_number: int) -> None:
        """Say that later blocks were replaced."""
        if self._as_json:
            self._print(json.dumps({"event": "reorganized", "after": block_number}))
        else:
            self._print(f"the chain was reorganized: forget what is told of blocks after {block_number}")

    def prepare(self, events: Sequence[MemoryEvent]) -> None:
        """Fetch the transactions of a page."""
        self._sent = self._transactions.load(event.reference.transaction_hash for event in events)

    def tell(self, step: Step) -> Iterable[str]:
        """Print an event, and return what it counts as."""
        from melete.cli.history_lines import event_to_json, event_to_text
        from melete.cli.payloads import Answer, open_delta
        from melete.memory.events import TransitionCommitted

        opening = None
        if self._store is not None and isinstance(step.event, TransitionCommitted):
            opening = open_delta(self._store, step.event.delta)
        approval = self._approval(step)
        if self._as_json:
            self._print(json.dumps(event_to_json(step, approval, opening, self._profiles)))
        else:
            self._print(event_to_text(step, approval, opening, self._profiles))
        if opening is None:
            return ()
        counts = {Answer.OPENED: "opened", Answer.MISSING: "missing", Answer.ERASED: "erased"}
        return (counts.get(opening.answer, "wrong"),)

    def _approval(self, step: Step) -> Approval:
        from melete.memory.forensics import COULD_NOT_TELL, identify_approval

        sent = self._sent.get(step.event.reference.transaction_hash)
        if sent is None:
            return COULD_NOT_TELL
        return identify_approval(step, self._domain, sent.sender, sent.to, sent.data)

    def _print(self, line: str) -> None:
        self._progress.clear()
        click.echo(line)
