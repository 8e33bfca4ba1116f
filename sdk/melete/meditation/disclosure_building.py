"""Making a maintenance disclosure: records from a registry, documents from a witness store, and a file.

    disclosure = build_disclosure(registry, store, subject, level=2, record=3)
    write_disclosure(path, disclosure)

The registered policy's disclosure level says what a subject hands out; going beyond it is the caller's decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from melete.canonical import Json
from melete.chain.logs import Scanner, load_block
from melete.errors import InvalidInput, UnusableLogs
from melete.meditation.disclosure import (
    COMMITMENTS,
    FULL,
    DisclosedCycle,
    DisclosedDocument,
    DisclosedState,
    MaintenanceDisclosure,
    Reference,
    verify_maintenance,
)
from melete.meditation.events import TOPICS, CycleRecorded, LayerCommitmentChanged, MeditationEvent, decode_event
from melete.meditation.kept import Kept
from melete.meditation.layers import Commitments, Layer, compute_root, layers_of, to_commitments
from melete.meditation.policy import MAX_DISCLOSURE
from melete.meditation.registry import MeditationRegistry
from melete.memory.disclosure import LARGEST_BUNDLE
from melete.memory.witness_file import new_file
from melete.memory.witness_kinds import LAYERS, REPORT
from melete.memory.witness_store import WitnessStore
from melete.primitives import ZERO_BYTES32, Address, Bytes32

LARGEST_DISCLOSURE: Final = LARGEST_BUNDLE


class _Cycle(NamedTuple):
    """A record as its events tell it, with the commitments before it."""

    event: CycleRecorded
    before: Commitments


def build_disclosure(
    registry: MeditationRegistry,
    store: WitnessStore,
    subject: Address,
    *,
    level: int,
    record: int | None = None,
    versions: tuple[int, int] | None = None,
    first_block: int = 0,
) -> MaintenanceDisclosure:
    """Return what discloses one record by its number, or the states of a range of versions and the records between.

    Of one record, the documents that it changed are disclosed; of a range, those of its first state too. Both ends of
    a range belong to it, and one version is a range. `first_block` is the registry's: its events are read from there.
    Errors: `NotEnrolled`; `InvalidInput` for a level, record or version that there is not; `WitnessMissing`,
    `WitnessErased` for what was committed to and is not kept; `StoreUnreadable`; `UnusableLogs` and the scanner's own.
    """
    if type(level) is not int or not 0 <= level <= MAX_DISCLOSURE:
        raise InvalidInput("level", level, f"an integer from 0 to {MAX_DISCLOSURE}")
    if (record is None) == (versions is None):
        raise InvalidInput("record", record, "given, or a range of versions: one of the two")
    subject = Address(subject, "subject")
    block = load_block(registry.w3, "latest")
    loaded = registry.load_subject(subject, block.number)
    cycles = _read_cycles(registry, subject, first_block, block.number)
    if versions is None:
        chosen = [cycle for cycle in cycles if cycle.event.seq == record]
        if not chosen:
            raise InvalidInput("record", record, "the number of a cycle record of the subject (a pulse is none)")
        version, commitments, shown = chosen[0].event.base_version, chosen[0].before, 0
    else:
        first, last = versions
        current = loaded.head.state_version
        if not 1 <= first <= last <= current:
            raise InvalidInput("versions", f"{first} to {last}", f"a range within 1 to {current}")
        chosen = [cycle for cycle in cycles if cycle.event.base_version >= first and cycle.event.base_version < last]
        version, shown = first, len(Layer)
        commitments = _commitments_at(cycles, first, loaded.commitments)
    root = registry.root_at(subject, version, block.number)
    if compute_root(commitments) != root:
        raise UnusableLogs(f"the events do not lead to the registry's own root of version {version}")
    kept = Kept(store, registry, subject)
    documents: tuple[DisclosedDocument, ...] = ()
    if level >= FULL:
        documents = _open_documents(kept, commitments, list(Layer)[:shown], version)
    disclosure = MaintenanceDisclosure(
        Reference(registry.chain_id, registry.address, subject),
        level,
        DisclosedState(version, commitments, root, documents),
        tuple(_disclose(kept, cycle.event, level) for cycle in chosen),
    )
    end = verify_maintenance(disclosure)
    if end.root != registry.root_at(subject, end.version, block.number):
        raise UnusableLogs("the records of the range do not end at the registry's own root")
    return disclosure


def write_disclosure(path: Path, disclosure: MaintenanceDisclosure) -> int:
    """Write a disclosure to a new file of mode 0600, whole or not at all; return its size in bytes.

    Errors: `InvalidInput` for a file that exists, and for more than `LARGEST_DISCLOSURE`; `StoreNotWritten`.
    """
    text = json.dumps(disclosure.to_json(), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    if len(text) > LARGEST_DISCLOSURE:
        rule = f"smaller: its disclosure has {len(text)} bytes, and at most {LARGEST_DISCLOSURE} are read"
        raise InvalidInput("versions", None, rule)
    with new_file(path) as draft:
        draft.write_bytes(text)
    return len(text)


def _disclose(kept: Kept, event: CycleRecorded, level: int) -> DisclosedCycle:
    report = event.report
    has_record = report.record_hash != ZERO_BYTES32
    record: dict[str, Json] | None = None
    if level > COMMITMENTS and has_record:
        record = kept.open(REPORT, report.record_hash, event.seq)
    documents: tuple[DisclosedDocument, ...] = ()
    if level >= FULL:
        changed = layers_of(event.changed_layers)
        documents = _open_documents(kept, report.post_commitments, changed, event.new_version)
    summary = None if record is None else record.get("summary")
    return DisclosedCycle(
        event.seq,
        event.new_version,
        event.changed_layers,
        event.recorded_at,
        event.submitter,
        report,
        summary if isinstance(summary, str) else None,
        record if level >= FULL else None,
        documents,
    )


def _open_documents(
    kept: Kept, commitments: Commitments, layers: Iterable[Layer], version: int
) -> tuple[DisclosedDocument, ...]:
    found = []
    for layer in layers:
        opened = kept.open(LAYERS[layer], commitments[layer], version)
        found.append(DisclosedDocument(layer.value, opened.document, opened.salt))
    return tuple(found)


# Events


def _read_cycles(registry: MeditationRegistry, subject: Address, first_block: int, last_block: int) -> list[_Cycle]:
    """Return the records of a subject, in order, each with the commitments before it."""
    scanner: Scanner[MeditationEvent] = Scanner(
        registry.w3,
        registry.address,
        decode_event,
        start_block=first_block,
        until=last_block,
        topics=([TOPICS[CycleRecorded], TOPICS[LayerCommitmentChanged]], Bytes32(subject.word)),
    )
    records: list[CycleRecorded] = []
    previous: dict[tuple[int, int], Bytes32] = {}
    for event in scanner.events():
        if isinstance(event, CycleRecorded):
            records.append(event)
        elif isinstance(event, LayerCommitmentChanged):
            previous[event.version, event.layer] = event.previous_commitment
    return [_Cycle(event, _before(event, previous)) for event in records]


def _before(event: CycleRecorded, previous: dict[tuple[int, int], Bytes32]) -> Commitments:
    """Return the commitments before a record: those after it, but for the layers that it changed."""
    found = list(event.report.post_commitments)
    for layer in layers_of(event.changed_layers):
        if (event.new_version, layer) not in previous:
            raise UnusableLogs(f"there is no event of the change of layer {layer.value} to version {event.new_version}")
        found[layer] = previous[event.new_version, layer]
    return to_commitments(found)


def _commitments_at(cycles: list[_Cycle], version: int, current: Commitments) -> Commitments:
    """Return the commitments of a state version: those before the first record on it, or the current ones."""
    return next((cycle.before for cycle in cycles if cycle.event.base_version >= version), current)
