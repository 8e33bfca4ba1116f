"""The journal of a subject's cycle: the marker of what was done here and is not registered yet.

    carried?  started  (layer-begun  (found | changing | changed)*  layer-done?)*  finished  queued

One file, one JSON object a line, for its owner alone: it holds documents and the record until they are registered.
A line that was torn by a crash is the last one, and counts as never written. What a kill must not lose (a start, a
change, a layer's completion, the finished record) is on disk when it was written; other findings survive a kill of the
process, but perhaps not a loss of power. Clearing replaces the file as a whole. One process at a time works on it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from melete.canonical import Json, canonicalize, load_canonical
from melete.errors import InvalidInput, InvalidJson, StoreBusy, StoreNotWritten, StoreUnreadable, UnsafeFile
from melete.meditation.layers import Layer, layers_of
from melete.meditation.runner.findings import Findings, to_value
from melete.primitives import Address, Bytes32, parse_sequence

FORMAT: Final = "melete.cycle-journal/1"
#: A larger journal is none of ours: each finding is bounded, and so is their number.
LARGEST_JOURNAL: Final = 512 * 2**20
#: So many changes of cycles that were never registered are carried on to the next record.
MOST_CARRIED: Final = 1_000


class Stage(StrEnum):
    """How far a cycle has come."""

    #: Its routines run, or ran until the process was killed.
    STARTED = "started"
    #: Its record is written, and not known to wait in the outbox.
    FINISHED = "finished"
    #: Its report waits in the outbox, or was sent from there.
    QUEUED = "queued"


@dataclass(frozen=True, slots=True)
class Start:
    """What a cycle was started with: the registered state it is computed against, and why it runs."""

    chain_id: int
    registry: Address
    subject: Address
    base_version: int
    pre_root: Bytes32
    record_count: int
    policy_version: int
    trigger: str
    reason: str
    summary: str
    next_planned_at: int
    record_uri: str
    started_at: int
    scope: int
    #: A random word in the record: it tells cycles apart, and hides a record that could be guessed behind its hash.
    cycle_id: Bytes32

    def to_json(self) -> dict[str, Json]:
        """Return the members of the entry; wide numbers are text."""
        wide = ("chain_id", "base_version", "record_count")
        values = {name: getattr(self, name) for name in type(self).__dataclass_fields__}
        return {
            name: str(value) if isinstance(value, bytes) or name in wide else value for name, value in values.items()
        }

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> Start:
        """Return what `to_json` wrote. Errors: `TypeError`, `KeyError`, `InvalidInput` for anything else."""
        values = {name: members[name] for name in cls.__dataclass_fields__}
        for name in ("base_version", "record_count"):
            values[name] = parse_sequence(values[name])
        for name in ("chain_id", "policy_version", "next_planned_at", "started_at", "scope"):
            values[name] = int(values[name])
        for name in ("registry", "subject"):
            values[name] = Address(values[name])
        for name in ("pre_root", "cycle_id"):
            values[name] = Bytes32(values[name])
        return cls(**values)


@dataclass(slots=True)
class JournaledCycle:
    """A cycle as its journal tells it."""

    start: Start
    findings: dict[Layer, Findings] = field(default_factory=dict)
    #: Changes that were begun, and are not known to have been made.
    open_changes: dict[Layer, dict[int, dict[str, Json]]] = field(default_factory=dict)
    begun: set[Layer] = field(default_factory=set)
    done: set[Layer] = field(default_factory=set)
    #: The time of the last entry that was written while the routines ran.
    last_at: int = 0
    record: dict[str, Json] | None = None
    #: The new documents of the layers that changed.
    documents: dict[Layer, dict[str, Json]] = field(default_factory=dict)
    item: int | None = None

    @property
    def stage(self) -> Stage:
        if self.item is not None:
            return Stage.QUEUED
        return Stage.STARTED if self.record is None else Stage.FINISHED

    @property
    def scope(self) -> tuple[Layer, ...]:
        """The layers in scope, ascending."""
        return tuple(layers_of(self.start.scope))


class Journal:
    """The journal in one file. Use it within `working`; `read` alone looks without holding anybody up."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.cycle: JournaledCycle | None = None
        #: Changes of cycles that could not be registered: what happened, and no record tells yet.
        self.carried: list[dict[str, Json]] = []
        self._handle: int | None = None
        self._size = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the journal, and read it; given back by the system when the process dies.

        Errors: `StoreBusy` while another process works on it; those of `read`; `StoreNotWritten`.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreNotWritten(f"{self.path}.lock", error.strerror or "it cannot be made") from None
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreBusy(str(self.path), "another runner works for this subject") from None
            self.read()
            yield
        finally:
            self._close()
            os.close(lock)

    def read(self) -> JournaledCycle | None:
        """Read the file, and return its cycle, or None.

        Errors: `StoreUnreadable` for what is none of ours; `UnsafeFile` for a file that others can read.
        """
        self.cycle, self.carried, self._size = None, [], 0
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnreadable(str(self.path), error.strerror or "it cannot be opened") from None
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_JOURNAL:
            os.close(handle)
            raise StoreUnreadable(str(self.path), "it is no journal")
        with os.fdopen(handle, "rb") as file:
            if status.st_mode & 0o077:
                raise UnsafeFile(str(self.path), f"{stat.S_IMODE(status.st_mode):o}")
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # torn, so never written
                self._apply(line, number)
                self._size += len(line)
        return self.cycle

    # Writing

    def start(self, start: Start) -> JournaledCycle:
        """Write that a cycle starts, on disk when this returns."""
        self._write("started", start.to_json(), at=start.started_at)
        assert self.cycle is not None
        return self.cycle

    def begin_layer(self, layer: Layer, at: int) -> None:
        """Write that a layer's routine starts."""
        self._write("layer-begun", {"layer": layer.value}, at=at, on_disk=False)

    def found(self, layer: Layer, member: str, value: dict[str, Json], at: int) -> None:
        """Write a finding."""
        self._write("found", {"layer": layer.value, "member": member, "value": value}, at=at, on_disk=False)

    def begin_change(self, layer: Layer, value: dict[str, Json], at: int) -> int:
        """Write that a change is about to be made, on disk when this returns; return its number."""
        number = self._size
        self._write("changing", {"layer": layer.value, "number": number, "value": value}, at=at)
        return number

    def end_change(self, layer: Layer, number: int | None, value: dict[str, Json] | None, at: int) -> None:
        """Write that a change was made, or came to nothing (None), on disk when this returns."""
        self._write("changed", {"layer": layer.value, "number": number, "value": value}, at=at)

    def complete_layer(self, layer: Layer, at: int) -> None:
        """Write that a layer's routine came to its end, on disk when this returns."""
        self._write("layer-done", {"layer": layer.value}, at=at)

    def finish(self, record: dict[str, Json], documents: dict[Layer, dict[str, Json]]) -> None:
        """Write the record and the documents of the layers that changed, on disk when this returns."""
        named: dict[str, Json] = {str(layer.value): document for layer, document in documents.items()}
        self._write("finished", {"record": record, "documents": named})

    def queue(self, item: int) -> None:
        """Write that the report waits in the outbox, on disk when this returns."""
        self._write("queued", {"item": item})

    def clear(self, carried: list[dict[str, Json]] | None = None) -> None:
        """Forget the cycle: it is registered, or never will be. `carried` are the changes that no record tells yet."""
        kept = (carried or [])[-MOST_CARRIED:]
        self._close()
        self._replace(_to_line("carried", {"changes": list(kept)}) if kept else b"")
        self.read()

    # Private

    def _write(self, entry: str, members: dict[str, Json], *, at: int | None = None, on_disk: bool = True) -> None:
        members = members if at is None else {**members, "at": at}
        line = _to_line(entry, members)
        try:
            if self._handle is None:
                self._open()
            assert self._handle is not None
            view = memoryview(line)
            while view:
                view = view[os.write(self._handle, view) :]
            if on_disk:
                os.fsync(self._handle)
        except OSError as error:
            if self._handle is not None:
                with suppress(OSError):
                    os.ftruncate(self._handle, self._size)
            raise StoreNotWritten(str(self.path), error.strerror or "the disk refused it") from None
        self._size += len(line)
        self._take(entry, {"format": FORMAT, **members})

    def _open(self) -> None:
        """Open the file for adding to it, after cutting off what was torn."""
        is_new = not self.path.exists()
        self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._handle, self._size)
        if is_new:
            _sync_folder(self.path.parent)

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _replace(self, content: bytes) -> None:
        draft = ""
        try:
            handle, draft = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(self.path)
            draft = ""
            _sync_folder(self.path.parent)
        except OSError as error:
            raise StoreNotWritten(str(self.path), error.strerror or "the disk refused it") from None
        finally:
            if draft:
                Path(draft).unlink(missing_ok=True)

    def _apply(self, line: bytes, number: int) -> None:
        """Take up one line."""
        try:
            members: Any = load_canonical(line)
            self._take(members.pop("entry"), members)
        except (InvalidJson, InvalidInput, AttributeError, KeyError, TypeError, ValueError):
            raise StoreUnreadable(str(self.path), f"line {number} is none that was written here") from None

    def _take(self, entry: str, members: dict[str, Any]) -> None:
        if entry == "carried":
            self.carried = [dict(change) for change in members["changes"]]
            return
        if entry == "started":
            if members["format"] != FORMAT or self.cycle is not None:
                raise ValueError(entry)
            self.cycle = JournaledCycle(Start.from_json(members))
            self.cycle.last_at = self.cycle.start.started_at
            self.cycle.findings = {layer: Findings(layer) for layer in self.cycle.scope}
            self.cycle.open_changes = {layer: {} for layer in self.cycle.scope}
            return
        cycle = self.cycle
        if cycle is None:
            raise ValueError(entry)
        if entry == "finished":
            cycle.record = dict(members["record"])
            cycle.documents = {Layer(int(layer)): dict(found) for layer, found in members["documents"].items()}
        elif entry == "queued":
            cycle.item = int(members["item"])
        else:
            cycle.last_at = max(cycle.last_at, int(members["at"]))
            self._take_of_layer(cycle, entry, Layer(members["layer"]), members)

    def _take_of_layer(self, cycle: JournaledCycle, entry: str, layer: Layer, members: dict[str, Any]) -> None:
        if entry == "layer-begun":
            cycle.begun.add(layer)
        elif entry == "layer-done":
            cycle.done.add(layer)
        elif entry == "found":
            found = dict(members["value"])
            if members["member"] == "observations":
                # As it was written before numbers that cannot be read back became text.
                found["value"] = to_value(found["value"])
            cycle.findings[layer].add(members["member"], found)
        elif entry == "changing":
            cycle.open_changes[layer][int(members["number"])] = dict(members["value"])
        elif entry == "changed":
            cycle.open_changes[layer].pop(members["number"], None)
            if members["value"] is not None:
                cycle.findings[layer].add("changes", dict(members["value"]))
        else:
            raise ValueError(entry)


def _to_line(entry: str, members: dict[str, Json]) -> bytes:
    named: dict[str, Json] = {"entry": entry, **({"format": FORMAT} if entry == "started" else {}), **members}
    return canonicalize(named) + b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
