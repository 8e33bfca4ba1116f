"""`melete subject timeline`: a subject's maintenance as a picture, or as facts for machines."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.layers import NAMES
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, subject_options
from melete.cli.subject_views import NOT_MEANT, layers_json, signal_json
from melete.cli.times import TimeParameter, show_time
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from melete.meditation.events import FloorUpdated, MeditationEvent
    from melete.meditation.policy import Floor
    from melete.meditation.registry import MeditationRegistry, Subject
    from melete.meditation.timeline import Dated, Timeline

KINDS_OF_PICTURES: Final = ("svg", "png")
#: So many blocks are asked for in one request.
BLOCKS_AT_ONCE: Final = 200


@click.command("timeline")
@click.argument("address")
@click.option("--out", help="The picture to write: a file that ends in .svg or .png; written over.")
@click.option("--from", "start", type=TimeParameter(), help="From when; a little before the enrollment unless given.")
@click.option("--to", "end", type=TimeParameter(), help="Until when; a little beyond now unless given.")
@click.option(
    "--from-block", type=click.IntRange(0), default=0, help="Where to look for events; at the latest where it enrolled."
)
@subject_options
@json_option
def timeline(
    address: str, out: str | None, start: int | None, end: int | None, from_block: int, settings: Settings,
    as_json: bool,
) -> None:  # fmt: skip
    """Draw ADDRESS's maintenance: statuses, completions, deadlines, demands, versions, signals and silences.

    Each moment is judged as it was then. What follows the last block holds if nothing else is registered. With --json
    the facts are printed, and --out may be left out.
    """
    if out is None and not as_json:
        raise click.UsageError("name the picture with --out FILE.svg or FILE.png, or ask for facts with --json.")
    kind = None if out is None else check_picture(out)
    subject = Address(address, "ADDRESS")
    registry = settings.connect_meditation()
    loaded, made = load_timeline(registry, subject, from_block, start, end)
    facts = {"chainId": registry.chain_id, "registry": str(registry.address), "block": loaded.block_number}
    if out is not None and kind is not None:
        from melete.cli.timeline_picture import Captions, draw

        where = f"registry {registry.address} on chain {registry.chain_id}, up to block {loaded.block_number}"
        captions = Captions(
            f"Registered maintenance of {subject}", f"{where}, {show_time(made.now)}", NOT_MEANT
        )  # fmt: skip
        write_picture(Path(out), draw(made, captions, kind))
    if as_json:
        click.echo(json.dumps({**facts, **timeline_json(made), "out": out}))
    else:
        window = {"from": show_time(made.start), "to": show_time(made.end)}
        emit({"subject": subject, **facts, **window, "picture": out}, as_json=False)


def load_timeline(
    registry: MeditationRegistry,
    subject: Address,
    from_block: int = 0,
    start: int | None = None,
    end: int | None = None,
) -> tuple[Subject, Timeline]:
    """Return what a registry says of a subject now, and the timeline that its events tell up to that block.

    Errors: those of `compute_timeline`; `UnusableLogs` for events from which other statuses follow than the registry
    gives; the node's.
    """
    from melete.errors import UnusableLogs
    from melete.meditation.timeline import compute_timeline

    loaded = registry.load_subject(subject)
    events = load_events(registry, subject, from_block, loaded.block_number)
    made = compute_timeline(
        subject,
        events,
        policies=[policy for policy, _ in registry.policies(subject, loaded.block_number)],
        floors=load_floors(registry, subject, (dated.event for dated in events), loaded),
        now=loaded.clock,
        start=start,
        end=end,
    )
    told = (tuple(lane.now for lane in made.layers), made.signal.now)
    if told != (loaded.statuses.layers, loaded.statuses.signal):
        raise UnusableLogs(f"other statuses follow from them than the registry gives at block {loaded.block_number}")
    return loaded, made


def load_events(registry: MeditationRegistry, subject: Address, first_block: int, last_block: int) -> list[Dated]:
    """Return the events of a subject that a timeline follows from, each with the time of its block."""
    from melete.chain.logs import Scanner
    from melete.meditation.events import TOPICS, decode_event
    from melete.meditation.timeline import KINDS, Dated, find_time

    scanner: Scanner[MeditationEvent] = Scanner(
        registry.w3,
        registry.address,
        decode_event,
        start_block=min(first_block, last_block),
        until=last_block,
        topics=[[TOPICS[kind] for kind in KINDS], Bytes32(subject.word)],
    )
    events = list(scanner.events())
    untimed = {event.reference.block_number for event in events if find_time(event) is None}
    times = load_block_times(registry, sorted(untimed))
    return [
        Dated(times[event.reference.block_number] if stated is None else stated, event)
        for event, stated in ((event, find_time(event)) for event in events)
    ]


def load_block_times(registry: MeditationRegistry, numbers: Sequence[int]) -> dict[int, int]:
    """Return the times of blocks, by number. Errors: the node's."""
    from melete.chain.rpc import batch, to_int
    from melete.errors import NodeRefused

    times: dict[int, int] = {}
    for first in range(0, len(numbers), BLOCKS_AT_ONCE):
        some = numbers[first : first + BLOCKS_AT_ONCE]
        answers = batch(registry.w3, [("eth_getBlockByNumber", [hex(number), False]) for number in some])
        for number, answer in zip(some, answers, strict=True):
            if answer.error is not None:
                raise answer.error
            if not isinstance(answer.result, dict) or "timestamp" not in answer.result:
                raise NodeRefused("eth_getBlockByNumber", f"it has no block {number}")
            times[number] = to_int(answer.result["timestamp"])
    return times


def load_floors(
    registry: MeditationRegistry, subject: Address, events: Iterable[MeditationEvent], loaded: Subject
) -> dict[int, Floor]:
    """Return every floor version that events name. Storage keeps the last one only; the others are read from the calls
    that set them, or, where a contract made the call, from the state of that block, which an archive node has.

    Of two floors that contracts set in one block, both are read as the last: the other was in force for no second.
    Errors: the node's, where neither is to be had.
    """
    from melete.meditation.events import FloorUpdated

    updates = {event.version: event for event in events if isinstance(event, FloorUpdated)}
    return {
        version: loaded.floor if version == loaded.head.floor_version else load_floor(registry, subject, update)
        for version, update in updates.items()
    }


def load_floor(registry: MeditationRegistry, subject: Address, update: FloorUpdated) -> Floor:
    """Return the floor that an event tells of. Errors: as `load_floors`."""
    from melete.chain.connection import call
    from melete.chain.logs import load_transaction
    from melete.meditation.policy import Floor
    from melete.meditation.registry import decode_answer, encode_call

    sent = load_transaction(registry.w3, update.reference.transaction_hash)
    if sent.to == registry.address:
        found = decode_floor_call(subject, sent.data)
        if found is not None:
            return found
    block = update.reference.block_number
    answer = call(registry.w3, registry.address, encode_call("floorOf", subject), block=block)
    return Floor(*decode_answer(registry.address, "floorOf", answer))


def decode_floor_call(subject: Address, data: bytes) -> Floor | None:
    """Return the floor in a call of `setFloor` for a subject; None for any other call."""
    from eth_abi.abi import decode
    from eth_abi.exceptions import DecodingError

    from melete.chain.reverts import compute_selector
    from melete.meditation.policy import Floor
    from melete.meditation.registry import FLOOR_TYPE, FUNCTIONS

    if data[:4] != compute_selector(f"setFloor({FUNCTIONS['setFloor'][0]})"):
        return None
    try:
        named, words = decode(["address", FLOOR_TYPE], data[4:])
    except (DecodingError, OverflowError):
        return None
    return Floor(*words) if Address(named) == subject else None


# Pictures


def check_picture(out: str) -> str:
    """Return the kind of picture that a file name asks for, before anything is read.

    Errors: `InvalidInput` for another kind, or for what is no ordinary file; `MissingExtra`.
    """
    from melete.errors import InvalidInput, MissingExtra

    path = Path(out)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS_OF_PICTURES:
        raise InvalidInput("--out", out, "a file that ends in .svg or .png")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InvalidInput("--out", out, "an ordinary file, or none yet")
    if not path.parent.is_dir():
        raise InvalidInput("--out", out, "a file in a folder that exists")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtra("plot", "drawing a timeline") from None
    return kind


def write_picture(path: Path, picture: bytes) -> None:
    """Write a file beside its place and rename it there, so that nobody sees half of it. Errors: `StoreNotWritten`."""
    from melete.errors import StoreNotWritten

    draft: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        draft = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(picture)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "it cannot be made") from None
    finally:
        if draft is not None:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


# For machines


def timeline_json(made: Timeline) -> dict[str, Any]:
    """Return a timeline as JSON. Times are seconds; numbers that are 64 bits wide are strings."""
    lanes = layers_json(tuple(lane.now for lane in made.layers))
    for entry, lane in zip(lanes, made.layers, strict=True):
        entry["spans"] = [
            {"from": span.start, "to": span.end, "status": span.status.name, "deadline": span.deadline}
            for span in lane.spans
        ]
        entry["deadlines"] = [
            {"from": span.start, "to": span.end, "deadline": span.deadline, "causes": list(span.causes)}
            for span in lane.deadlines
        ]
        entry["cycles"] = [
            {
                "record": str(work.seq),
                "startedAt": work.reported_started_at,
                "endedAt": work.reported_ended_at,
                "recordedAt": work.recorded_at,
                "policyVersion": work.policy_version,
                "completed": work.completed,
                "changed": work.changed,
            }
            for work in lane.work
        ]
        entry["demands"] = [
            {
                "demandedAt": demand.demanded_at,
                "dueBy": demand.due_by,
                "ending": demand.ending,
                "endedAt": demand.ended_at,
                "record": str(demand.seq),
            }
            for demand in lane.demands
        ]
    signal = {
        **signal_json(made.signal.now),
        "spans": [{"from": span.start, "to": span.end, "status": span.status.name} for span in made.signal.spans],
        "signs": [{"at": sign.at, "kind": sign.kind, "record": str(sign.seq)} for sign in made.signal.signs],
    }
    policies = [
        {
            "version": kept.version,
            "effectiveFrom": kept.effective_from,
            "policyHash": str(kept.policy.policy_hash),
            "policyURI": kept.policy.policy_uri,
            "requiredLayers": _names(kept.policy.required_layers),
            "maxInterval": list(kept.policy.max_interval),
            "dueWindow": kept.policy.due_window,
            "pulseInterval": kept.policy.pulse_interval,
        }
        for kept in made.policies
    ]
    floors = [
        {
            "version": kept.version,
            "effectiveFrom": kept.effective_from,
            "requiredLayers": _names(kept.floor.required_layers),
            "maxInterval": list(kept.floor.max_interval),
            "pulseInterval": kept.floor.pulse_interval,
        }
        for kept in made.floors
    ]
    return {
        "subject": str(made.subject), "from": made.start, "to": made.end, "clock": made.now,
        "enrolledAt": made.enrolled_at, "layers": lanes, "signal": signal, "policies": policies, "floors": floors,
        "notMeant": NOT_MEANT,
    }  # fmt: skip


def _names(mask: int) -> list[str]:
    return [name for layer, name in enumerate(NAMES) if mask >> layer & 1]
