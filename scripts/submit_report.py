"""Register a maintenance cycle from its record document: ape run submit_report RECORD [--post FILE...]."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
from ape import networks
from scripts._common import ScriptCommand, is_local, load_account, telling_errors
from scripts._maintenance import load_subjects

from melete import Address
from melete.chain.outbox import Outbox, State
from melete.chain.submitter import CONFIRMATIONS, Submitter
from melete.chain.transactions import ApeSender
from melete.cli.layers import NAMES, load_file
from melete.cli.sending import rules
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.errors import BadBaseVersion
from melete.meditation.cycle import Outcome
from melete.meditation.documents import RECORD_SCHEMA
from melete.meditation.events import LayerCommitmentChanged
from melete.meditation.layers import layers_of
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.registry import MeditationRegistry
from melete.meditation.runner.registering import CycleResult
from melete.meditation.runner.submission import Submission
from melete.primitives import parse_sequence


@click.command(cls=ScriptCommand)
@click.argument("record")
@click.option(
    "--post", "files", multiple=True, help="The document of a layer after the cycle; one for each that changed."
)
@click.option("--record-uri", default="", help="Where the record can be had; public.")
@click.option("--public-salt", is_flag=True, help="Commit with zero salts: whoever guesses a document can tell.")
@click.option("--until", type=click.Choice(["mined", "done"]), default="done", show_default=True)
@click.option("--confirmations", type=click.IntRange(0), help="Blocks until it is done; 12, or 0 on a local chain.")
@click.option("--from-block", type=click.IntRange(0), default=0, help="Where the registry's events begin.")
@click.option("--account", "alias", help="The Ape account that sends: the subject, or an operator that may.")
@click.option("--registry", help="The registry's address; the recorded one unless given.")
@outbox_option
@witness_options
@telling_errors
def cli(
    record: str, files: tuple[str, ...], record_uri: str, public_salt: bool, until: str, confirmations: int | None,
    from_block: int, alias: str | None, registry: str | None, outbox: Any, witnesses: WitnessOptions,
) -> None:  # fmt: skip
    """Register the cycle in RECORD (amm.cycle-record/1): what is reported follows from it, and is never typed by hand.

    Record, documents and salts are kept, and the report waits in the outbox, before anything is sent: killed at any
    point and run again, the cycle is registered once. Exit code 1 if the registry refuses it, or if another record came
    first; then nothing of it is registered, and what changed since is told.
    """
    document: Any = load_file(record, RECORD_SCHEMA)
    posts = [load_file(file) for file in files]
    subject = Address(document["subject"], "subject")
    account = load_account(alias)
    client = load_subjects(registry, account)
    with Outbox(outbox) as opened, witnesses.open() as store:
        submission = Submission(MeditationOutbox(opened, client, store), subject, from_block)
        if submission.settle(document).state == "nothing":
            check_base(client, subject, parse_sequence(document["baseVersion"], "baseVersion"), from_block)
        result = submission.add(document, posts, record_uri=record_uri, public_salt=public_salt)
        if result.state == "queued":
            depth = (0 if is_local() else CONFIRMATIONS) if confirmations is None else confirmations
            lane = frozenset({(client.address, bytes(subject))})
            Submitter(networks.provider.web3, opened, ApeSender(account), rules(), confirmations=depth, only=lane).run(
                until=State(until)
            )
            result = submission.settle(document)
    tell(result)


def check_base(client: MeditationRegistry, subject: Address, base_version: int, from_block: int) -> None:
    """Tell what changed after the state that a new record was computed against. Errors: `BadBaseVersion`."""
    current = client.head(subject).state_version
    if base_version != current:
        tell_changes(client.changes_since(subject, base_version, from_block))
        raise BadBaseVersion(current, base_version)


def tell(result: CycleResult) -> None:
    """Say what became of the record, and end with exit code 1 if it will not be registered."""
    if result.state == "queued" and result.item is not None:
        click.echo(f"on its way: {result.item.state}, transaction {result.item.transaction_hash}; run this again")
        return
    if result.event is None or result.report is None:
        tell_changes(result.changed_since)
        click.echo(f"not registered: {result.state} {result.reason or ''}".rstrip(), err=True)
        sys.exit(1)
    event, report = result.event, result.report
    click.echo(
        f"record {event.seq} of {event.subject} is registered as {Outcome(report.outcome).name}, "
        f"state version {event.new_version}, block {event.reference.block_number}"
    )
    for words, mask in (("completed", report.completed_layers), ("changed", event.changed_layers)):
        click.echo(f"  {words}: {', '.join(NAMES[layer] for layer in layers_of(mask)) or 'nothing'}")


def tell_changes(changes: Iterable[LayerCommitmentChanged]) -> None:
    """Say what others registered after the state that a record was computed against."""
    for change in changes:
        click.echo(f"since then {NAMES[change.layer]} changed, in state version {change.version}", err=True)
