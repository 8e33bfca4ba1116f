"""What `melete subject` shows: status, all that is registered, events, forecasts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.layers import NAMES, load_file, parse_floor
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, subject_options
from melete.cli.subject_events import event_json
from melete.cli.times import SpanParameter, TimeParameter, show_distance, show_time
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from melete.meditation.events import MeditationEvent
    from melete.meditation.registry import Subject
    from melete.meditation.status import LayerStatus, Signal

NOT_MEANT: Final = (
    "A status tells how timely registered, self-reported maintenance is: not whether it was done well, not health, "
    "and not the live state."
)


@click.command("status")
@click.argument("address")
@subject_options
@json_option
def status(address: str, settings: Settings, as_json: bool) -> None:
    """Print how timely ADDRESS's registered maintenance is, layer by layer. Exit code 1 if a layer is overdue."""
    from melete.meditation.status import MaintenanceStatus

    subject = settings.connect_meditation().load_subject(Address(address, "ADDRESS"))
    layers = subject.statuses.layers
    if as_json:
        click.echo(json.dumps(status_json(subject)))
    else:
        print_status(subject)
    if any(layer.status is MaintenanceStatus.OVERDUE for layer in layers):
        raise click.exceptions.Exit(1)


@click.command("show")
@click.argument("address")
@subject_options
@json_option
def show(address: str, settings: Settings, as_json: bool) -> None:
    """Print all that is registered about ADDRESS."""
    registry = settings.connect_meditation()
    subject = registry.load_subject(Address(address, "ADDRESS"))
    head, requirements = subject.head, subject.requirements
    found: dict[str, Any] = {
        "chainId": registry.chain_id, "registry": registry.address, "subject": subject.address,
        "block": subject.block_number, "stateVersion": str(head.state_version), "root": head.root,
        "records": str(head.record_count), "enrolledAt": head.enrolled_at,
        "controller": head.controller, "controllerRights": head.controller_rights,
        "policyVersion": head.policy_version, "policyHash": subject.policy.policy_hash,
        "policyURI": subject.policy.policy_uri, "disclosure": subject.policy.disclosure,
        "floorVersion": head.floor_version, "supportedLayers": requirements.supported_layers,
        "requiredLayers": requirements.required_layers, "maxInterval": list(requirements.max_interval),
        "dueWindow": requirements.due_window, "pulseInterval": requirements.pulse_interval,
        "lastSignalAt": head.last_signal_at, "nextPlannedAt": head.next_planned_at,
        **{f"commitment {name}": word for name, word in zip(NAMES, subject.commitments, strict=True)},
    }  # fmt: skip
    if as_json:
        found |= status_json(subject)
    else:
        found["policyURI"] = clean_text(str(found["policyURI"]))
    emit(found, as_json=as_json)


@click.command("events")
@click.argument("address")
@click.option(
    "--from-block", type=click.IntRange(0), default=0, help="Where to start; the block of deployment is best."
)
@subject_options
@json_option
def events(address: str, from_block: int, settings: Settings, as_json: bool) -> None:
    """List ADDRESS's events in order, each on a line; with --json, an object on a line."""
    from melete.chain.logs import Scanner
    from melete.meditation.events import decode_event

    registry = settings.connect_meditation()
    subject = Address(address, "ADDRESS")
    topics = [None, Bytes32(subject.word)]
    scanner: Scanner[MeditationEvent] = Scanner(
        registry.w3, registry.address, decode_event, start_block=from_block, topics=topics
    )
    for event in scanner.events():
        told = event_json(event)
        if as_json:
            click.echo(json.dumps(told))
        else:
            kind, block = told.pop("event"), told.pop("block")
            shown = ", ".join(f"{name} {clean_text(_plain_text(value))}" for name, value in told.items())
            click.echo(f"block {block}: {kind}, {shown}")


@click.command("forecast")
@click.argument("address")
@click.option("--at", type=TimeParameter(), required=True, help="When: 2026-12-04, 2026-12-04T17:00, +3d, friday.")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(dir_okay=False),
    help="A policy document, instead of the policy in force.",
)
@click.option(
    "--require", multiple=True, metavar="LAYER=SPAN", help="A floor, instead of the one in force: runtime=1d."
)
@click.option("--pulse", type=SpanParameter(), default=0, help="The floor's signal interval.")
@click.option("--no-floor", is_flag=True, help="As if there were no floor.")
@subject_options
@json_option
def forecast(
    address: str, at: int, policy_file: str | None, require: tuple[str, ...], pulse: int, no_floor: bool,
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Print what ADDRESS's statuses are at a time if nothing else is registered until then, under a policy and a
    floor to be tried. Exit code 1 if a layer would be overdue."""
    from melete.meditation.documents import derive_policy
    from melete.meditation.forecast import forecast as compute
    from melete.meditation.policy import NO_FLOOR
    from melete.meditation.status import MaintenanceStatus

    if no_floor and (require or pulse):
        raise click.UsageError("--no-floor and a floor contradict each other.")
    subject = settings.connect_meditation().load_subject(Address(address, "ADDRESS"))
    if at < subject.clock:
        raise click.UsageError(
            f"--at {show_time(at)} is before the block that this is read at, {show_time(subject.clock)}; "
            "a forecast is of a time to come."
        )
    policy = subject.policy if policy_file is None else derive_policy(load_file(policy_file))
    floor = NO_FLOOR if no_floor else parse_floor(require, pulse) if require or pulse else subject.floor
    found = compute(subject.anchors, at, policy, floor)
    if as_json:
        click.echo(json.dumps({"at": at, "layers": layers_json(found.layers), "signal": signal_json(found.signal)}))
    else:
        click.echo(f"at {show_time(at)}, if nothing else is registered until then")
        rows = [_forecast_row(layer, at) for layer in enumerate(found.layers)]
        _print_table(("layer", "status", "deadline", ""), rows)
        click.echo(f"signal: {_signal_text(found.signal, at)}")
    if any(layer.status is MaintenanceStatus.OVERDUE for layer in found.layers):
        raise click.exceptions.Exit(1)


# For people


def print_status(subject: Subject) -> None:
    """Print the table of a subject's statuses, its signal, and what a status is not."""
    now = subject.clock
    click.echo(f"{subject.address} at block {subject.block_number}, {show_time(now)}")
    rows = []
    for layer, (found, kept) in enumerate(zip(subject.statuses.layers, subject.checkpoints, strict=True)):
        demand = subject.demands[layer]
        deadline = show_time(found.deadline)
        if demand.demanded_at and demand.due_by == found.deadline:
            deadline += " (demanded)"
        rows.append(
            (
                f"{layer} {NAMES[layer]}",
                found.status.name,
                deadline,
                show_distance(found.deadline - now) if found.deadline else "",
                "never" if found.never_completed else show_time(kept.last_completed_at),
                "" if found.never_completed else show_time(kept.last_completed_recorded_at),
                str(kept.last_changed_version),
                str(kept.completed_under_policy or "-"),
            )
        )
    heads = ("layer", "status", "deadline", "", "completed (reported)", "recorded", "changed at", "policy")
    _print_table(heads, rows)
    click.echo(f"signal: {_signal_text(subject.statuses.signal, now)}")
    click.echo(NOT_MEANT)


def _forecast_row(layer: tuple[int, LayerStatus], at: int) -> tuple[str, ...]:
    index, found = layer
    distance = show_distance(found.deadline - at) if found.deadline else ""
    return f"{index} {NAMES[index]}", found.status.name, show_time(found.deadline), distance


def _signal_text(signal: Signal, now: int) -> str:
    text = f"{signal.status.name}, the last one {show_time(signal.last_signal_at)}"
    if signal.last_signal_at:
        text += f" ({show_distance(signal.last_signal_at - now)})"
    return text + (f", silent since {show_time(signal.silent_since)}" if signal.silent_since else "")


def _print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    for number, row in enumerate((heads, *rows)):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(click.style(line, dim=True) if number == 0 else line)


def clean_text(text: str) -> str:
    """Return text that others chose as a terminal may print it, bounded."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:300])
    return shown if len(text) <= 300 else f"{shown}..."


# For machines


def status_json(subject: Subject) -> dict[str, Any]:
    """Return a subject's statuses as JSON. Times are seconds; versions that are 64 bits wide are strings."""
    layers = layers_json(subject.statuses.layers)
    for entry, kept, demand in zip(layers, subject.checkpoints, subject.demands, strict=True):
        entry |= {
            "lastCompletedAt": kept.last_completed_at,
            "lastCompletedRecordedAt": kept.last_completed_recorded_at,
            "completedUnderPolicy": kept.completed_under_policy,
            "lastChangedVersion": str(kept.last_changed_version),
            "demandedAt": demand.demanded_at,
            "dueBy": demand.due_by,
        }
    return {
        "subject": str(subject.address),
        "block": subject.block_number,
        "clock": subject.clock,
        "layers": layers,
        "signal": signal_json(subject.statuses.signal),
    }


def layers_json(layers: tuple[LayerStatus, ...]) -> list[dict[str, Any]]:
    """Return the statuses of layers as JSON."""
    return [
        {
            "layer": index,
            "name": NAMES[index],
            "status": found.status.name,
            "deadline": found.deadline,
            "neverCompleted": found.never_completed,
        }
        for index, found in enumerate(layers)
    ]


def signal_json(signal: Signal) -> dict[str, Any]:
    """Return a signal as JSON."""
    return {"status": signal.status.name, "lastSignalAt": signal.last_signal_at, "silentSince": signal.silent_since}


def _plain_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
