"""What `melete cycle` shows and hands out: what is not registered yet, records, disclosures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from melete.cli.cycle_options import cycle_option, find_journals, journal_path
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, subject_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options
from melete.cli.subject_views import clean_text
from melete.cli.times import show_time
from melete.errors import ConfigurationError, InvalidInput
from melete.primitives import Address, parse_sequence

if TYPE_CHECKING:
    from melete.meditation.runner.configuration import CycleConfiguration
    from melete.meditation.runner.journal import JournaledCycle

LEVELS = ("0", "1", "2")


@click.command("show")
@click.argument("number", required=False, metavar="[RECORD]")
@click.option("--subject", help="Whose; the one that cycle.toml names if left out.")
@outbox_option
@witness_options
@subject_options
@cycle_option
@json_option
def show(
    number: str | None, subject: str | None, cycle: Path, outbox: Path, witnesses: WitnessOptions,
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Show the cycle that is not settled yet; or the record with the number RECORD, as it is kept here.

    Nothing is changed. A node is asked only where several registries could be meant.
    """
    if number is not None:
        _show_record(number, subject, cycle, settings, witnesses)
        return
    from melete.meditation.runner.configuration import load_configuration
    from melete.meditation.runner.journal import Journal

    configuration = load_configuration(cycle, with_routines=False)
    path = configuration.journal or _find_journal(configuration, _choose_subject(subject, cycle), settings)
    journal = Journal(path)
    found = journal.read()
    if found is None:
        emit({"stage": "nothing", "journal": str(path), "carried": len(journal.carried)}, as_json=as_json)
        return
    told = cycle_json(found)
    told |= {"journal": str(path), "carried": len(journal.carried), "sent": _find_item_state(found, outbox)}
    if as_json:
        click.echo(json.dumps(told))
        return
    told["startedAt"] = show_time(found.start.started_at)
    told["reason"] = clean_text(told["reason"] or "")
    told["layers"] = [
        f"{one['layer']} {one['routine']}, {one['changes']} changes"
        + (f", {one['perhaps']} that nobody knows of" if one["perhaps"] else "")
        for one in told["layers"]
    ]
    emit(told, as_json=False)


def cycle_json(cycle: JournaledCycle) -> dict[str, Any]:
    """Return what a journal says of a cycle, without what was found."""
    start = cycle.start
    return {
        "stage": cycle.stage.value,
        "subject": str(start.subject),
        "baseVersion": str(start.base_version),
        "policyVersion": start.policy_version,
        "trigger": start.trigger,
        "reason": start.reason or None,
        "startedAt": start.started_at,
        "layers": [
            {
                "layer": layer.value,
                "routine": "completed" if layer in cycle.done else "begun" if layer in cycle.begun else "not begun",
                "changes": len(cycle.findings[layer].changes),
                "perhaps": len(cycle.open_changes[layer]),
            }
            for layer in cycle.scope
        ],
    }


@click.command("export")
@click.argument("address")
@click.option("--record", help="Disclose the record with this number.")
@click.option("--from-version", help="Or the states from this version on, and the records between.")
@click.option("--to-version", help="Up to this version; it belongs to the range. The same one if left out.")
@click.option("--level", type=click.Choice(LEVELS), help="0 commitments, 1 summaries, 2 all; the policy's if left out.")
@click.option("--beyond-policy", is_flag=True, help="Hand out more than the registered policy's level says.")
@click.option("--out", required=True, help="The file to write; it must not exist yet.")
@click.option("--first-block", type=click.IntRange(0), default=0, help="Where the registry's events begin.")
@witness_options
@subject_options
@json_option
def export(
    address: str, record: str | None, from_version: str | None, to_version: str | None, level: str | None,
    beyond_policy: bool, out: str, first_block: int, witnesses: WitnessOptions, settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Write what discloses records of ADDRESS to a file: one record, or the states of a range of versions.

    At level 2 the file shows records, layer documents and salts to whoever reads it. Its owner alone can read it,
    and it is up to you how it travels. `melete verify` judges it.
    """
    from melete.meditation.disclosure import FULL
    from melete.meditation.disclosure_building import build_disclosure, write_disclosure

    if (record is None) == (from_version is None):
        raise click.UsageError("give --record, or --from-version (and --to-version).")
    if from_version is None and to_version is not None:
        raise click.UsageError("--to-version needs --from-version.")
    path = Path(out)
    if path.exists() or path.is_symlink():
        raise click.UsageError("--out names a file that exists; nothing is written over.")
    seq = None if record is None else parse_sequence(record, "--record")
    versions = None
    if from_version is not None:
        first = parse_sequence(from_version, "--from-version")
        versions = (first, first if to_version is None else parse_sequence(to_version, "--to-version"))
    subject = Address(address, "ADDRESS")
    registry = settings.connect_meditation()
    allowed = registry.load_subject(subject).policy.disclosure
    chosen = allowed if level is None else int(level)
    if chosen > allowed and not beyond_policy:
        raise ConfigurationError(
            f"the registered policy's disclosure level is {allowed}, and this is level {chosen}; "
            "add --beyond-policy to hand out more than it says"
        )
    with witnesses.open() as store:
        disclosure = build_disclosure(
            registry, store, subject, level=chosen, record=seq, versions=versions, first_block=first_block
        )
    size = write_disclosure(path, disclosure)
    emit(
        {
            "file": str(path),
            "bytes": str(size),
            "level": chosen,
            "version": str(disclosure.state.version),
            "records": [str(entry.seq) for entry in disclosure.entries],
            "secret": "it shows records, documents and salts; its owner alone can read it"
            if chosen == FULL
            else "nothing",
        },
        as_json=as_json,
    )


def _find_journal(configuration: CycleConfiguration, subject: Address, settings: Settings) -> Path:
    """Return the journal of a subject's own: the only one that could be meant, or that of the registry at the node."""
    found = find_journals(subject, settings.meditation) if settings.rpc_url is None else []
    return found[0] if len(found) == 1 else journal_path(configuration, settings.connect_meditation(), subject)


def _show_record(number: str, subject: str | None, cycle: Path, settings: Settings, witnesses: WitnessOptions) -> None:
    from melete.meditation.kept import Kept, find_records
    from melete.memory.witness_kinds import REPORT

    wanted, seq = _choose_subject(subject, cycle), parse_sequence(number, "RECORD")
    with witnesses.open() as store:
        found = find_records(store, wanted, seq)
        if len(found) > 1:
            record = Kept(store, settings.connect_meditation(), wanted).get(REPORT, seq)
        elif found:
            record = found[0]
        else:
            record = store.get(REPORT.place(wanted, seq))  # and so tells that it is missing, or was erased
    # Escaped where a terminal might take it for more than text.
    click.echo(json.dumps(record, indent=2))


def _choose_subject(subject: str | None, cycle: Path) -> Address:
    from melete.meditation.runner.configuration import load_configuration

    if subject is not None:
        return Address(subject, "--subject")
    found = load_configuration(cycle, with_routines=False).subject
    if found is None:
        raise ConfigurationError("no subject is named; give --subject, or name one in cycle.toml")
    return found


def _find_item_state(cycle: JournaledCycle, outbox: Path) -> str | None:
    from melete.chain.outbox import Outbox

    if cycle.item is None or not outbox.exists():
        return None
    with Outbox(outbox) as opened:
        try:
            return opened.get(cycle.item).state.value
        except InvalidInput:
            return None
