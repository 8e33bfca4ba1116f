"""What `melete cycle` does: run, submit, resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.cycle_options import Sending, cycle_option, journal_path, sending_options, tell
from melete.cli.keys import signer_options
from melete.cli.layers import LayersParameter, load_file
from melete.cli.settings import Settings, json_option, subject_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.cli.times import TimeParameter
from melete.primitives import Address

if TYPE_CHECKING:
    from melete.meditation.outbox import MeditationOutbox
    from melete.meditation.runner.runner import MaintenanceRunner
    from melete.signing import LocalSigner

TRIGGERS: Final = ("scheduled", "event", "commanded", "self")


@contextmanager
def open_waiting(
    settings: Settings, outbox: Path, witnesses: WitnessOptions, signer: LocalSigner
) -> Iterator[MeditationOutbox]:
    """Open the outbox and the witness store, for reports to the registry that the key's account sends."""
    from melete.chain.outbox import Outbox
    from melete.chain.transactions import LocalSender
    from melete.meditation.outbox import MeditationOutbox

    registry = settings.connect_meditation()
    registry.sender = LocalSender(signer)
    with Outbox(outbox) as opened, witnesses.open() as store:
        yield MeditationOutbox(opened, registry, store)


def make_runner(waiting: MeditationOutbox, settings: Settings, cycle: Path, signer: LocalSigner) -> MaintenanceRunner:
    """Return the runner that a cycle's file describes."""
    from melete.meditation.runner.configuration import load_configuration
    from melete.meditation.runner.runner import MaintenanceRunner

    found = load_configuration(cycle, settings.connect)
    subject = found.subject or signer.address
    return MaintenanceRunner(
        waiting,
        subject,
        found.routines,
        journal_path(found, waiting.registry, subject),
        policy=found.policy,
        known_obligations=found.obligations,
        first_block=found.first_block,
    )


@click.command("run")
@click.option("--trigger", type=click.Choice(TRIGGERS), default="scheduled", show_default=True, help="Why it runs.")
@click.option("--reason", default="", help="What started it, in words; they go into the record.")
@click.option(
    "--layers", type=LayersParameter(), help="The layers in scope; all that cycle.toml describes if left out."
)
@click.option("--summary", default="", help="What may be handed out at disclosure level 1, instead of counts.")
@click.option(
    "--next", "next_planned_at", type=TimeParameter(), default=0, help="When the next one is planned; a hint."
)
@click.option("--record-uri", default="", help="Where the record can be had; public.")
@sending_options
@outbox_option
@witness_options
@signer_options
@subject_options
@cycle_option
@json_option
def run(
    trigger: str, reason: str, layers: int | None, summary: str, next_planned_at: int, record_uri: str,
    sending: Sending, cycle: Path, outbox: Path, witnesses: WitnessOptions, signer: LocalSigner,
    payer: LocalSigner, settings: Settings, as_json: bool,  # noqa: ARG001 - who reports, sends
) -> None:  # fmt: skip
    """Run a maintenance cycle, and register it from the account of the key given: the subject, or an operator.

    Exit code 1 if a layer was not completed, or if the report lost a race or was refused. An earlier cycle has to be
    settled first, by `melete cycle resume`.
    """
    from melete.meditation.cycle import Trigger

    with open_waiting(settings, outbox, witnesses, signer) as waiting:
        runner = make_runner(waiting, settings, cycle, signer)
        result = runner.run(
            Trigger[trigger.upper()],
            reason=reason,
            scope=layers,
            summary=summary,
            next_planned_at=next_planned_at,
            record_uri=record_uri,
        )
        if result.state == "queued":
            sending.send(waiting, runner.subject, signer, quiet=as_json)
            result = runner.resume()
    tell(result, as_json=as_json)


@click.command("resume")
@click.option("--give-up", is_flag=True, help="Forget a cycle that can never be registered; the next record tells it.")
@sending_options
@outbox_option
@witness_options
@signer_options
@subject_options
@cycle_option
@json_option
def resume(
    give_up: bool, sending: Sending, cycle: Path, outbox: Path, witnesses: WitnessOptions, signer: LocalSigner,
    payer: LocalSigner, settings: Settings, as_json: bool,  # noqa: ARG001 - who reports, sends
) -> None:  # fmt: skip
    """Go on with a cycle that was cut off, or settle the one whose report waits.

    After a crash, the layers are described as they are now, and what is known to have happened is registered. A report
    that lost a race is taken back: run another cycle then, on the state as it is.
    """
    with open_waiting(settings, outbox, witnesses, signer) as waiting:
        runner = make_runner(waiting, settings, cycle, signer)
        result = runner.give_up() if give_up else runner.resume()
        if result.state == "queued":
            sending.send(waiting, runner.subject, signer, quiet=as_json)
            settled = runner.resume()
            # What was put there by hand is no cycle of the journal's.
            result = settled if settled.state != "nothing" else runner.settle_report(result)
    tell(result, as_json=as_json)


@click.command("submit")
@click.argument("record", type=click.Path(dir_okay=False))
@click.option(
    "--post",
    "files",
    type=click.Path(dir_okay=False),
    multiple=True,
    help="The document of a layer as it is after the cycle; give one for each layer that changes.",
)
@click.option("--record-uri", default="", help="Where the record can be had; public.")
@click.option("--public-salt", is_flag=True, help="Commit with zero salts: whoever guesses a document can tell.")
@click.option("--first-block", type=click.IntRange(0), default=0, help="Where the registry's events begin.")
@sending_options
@outbox_option
@witness_options
@signer_options
@subject_options
@json_option
def submit(
    record: str, files: tuple[str, ...], record_uri: str, public_salt: bool, first_block: int, sending: Sending,
    outbox: Path, witnesses: WitnessOptions, signer: LocalSigner,
    payer: LocalSigner, settings: Settings, as_json: bool,  # noqa: ARG001 - who reports, sends
) -> None:  # fmt: skip
    """Register the cycle record in RECORD, with the layer documents that it leads to.

    The report is derived from the record, never typed. A record that restores a state version takes documents and
    salts of that version from the witness store. Submitted again, a record is not registered twice.
    """
    from melete.meditation.documents import RECORD_SCHEMA
    from melete.meditation.runner.submission import Submission

    document: dict[str, Any] = load_file(record, RECORD_SCHEMA)
    posts = [load_file(file) for file in files]
    with open_waiting(settings, outbox, witnesses, signer) as waiting:
        submission = Submission(waiting, Address(document["subject"], "subject"), first_block)
        result = submission.add(document, posts, record_uri=record_uri, public_salt=public_salt)
        if result.state == "queued":
            sending.send(waiting, submission.subject, signer, quiet=as_json)
            result = submission.settle(document)
    tell(result, as_json=as_json)
