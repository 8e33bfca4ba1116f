"""Exports: a store's entries as JSON lines, in plain text or encrypted, and back.

    {"format": "melete.witness-export/1", "key": null}                                       the header
    {"kind": ..., "scope": ..., "number": ..., "commitment": ..., "record": {...} or null}   an entry; null: erased
    {"digest": ..., "entries": ...}                                                          the trailer

An encrypted export says in its header what recognizes its key, and its entries have `sealed` instead of `record`. The
digest covers all lines before the trailer, line ends included: SHA-256, or HMAC-SHA256 under the key. So an export that
was cut, or from which a line was taken, is refused. JSON Schema: `witness-export`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from melete.canonical import Json, canonicalize, load_json
from melete.errors import InvalidInput, InvalidJson, MissingFile, StoreUnreadable, WitnessErased
from melete.files import open_to_read, to_path
from melete.memory.witness_file import new_file
from melete.memory.witness_keys import Key, KeyRecord, ScryptCost, Sealer
from melete.memory.witness_kinds import Entry, Kind, Place, find_kind
from melete.memory.witness_store import WitnessStore
from melete.primitives import NOT_SHOWN, Bytes32, parse_bytes, parse_sequence

FORMAT: Final = "melete.witness-export/1"
#: A longer line is neither written nor read.
LARGEST_LINE: Final = 2**28


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: entries added, those that were there, and those that stay erased here."""

    added: int = 0
    present: int = 0
    erased: int = 0


def export_plain(store: WitnessStore, path: Path | str) -> int:
    """Write every entry, readable by anyone, to a new file of mode 0600; return how many.

    Errors: `InvalidInput` for a file that exists; `StoreNotWritten`; `NotAuthentic` for an entry that does not open.
    """
    return _export(store, path, None)


def export_encrypted(store: WitnessStore, path: Path | str, key: Key) -> int:
    """Write every entry, under a key of the export's own, to a new file of mode 0600; return how many.

    Kinds, places and commitments stay readable. Errors: as `export_plain`.
    """
    return _export(store, path, Sealer.fresh(key))


def import_witnesses(store: WitnessStore, path: Path | str, key: Key | None = None) -> Imported:
    """Take over the entries of an export, all or none; `key` is that of an encrypted one.

    Every record must open the commitment of its entry. What was erased here stays erased; what was erased there is
    noted where nothing is kept here. Errors: `MissingFile`; `StoreUnreadable` for what is no whole export; `WrongKey`;
    `PlaceTaken` where another record is kept; `InvalidInput`, naming the line; `StoreNotWritten`.
    """
    path, counts = to_path(path, "file"), {"added": 0, "present": 0, "erased": 0}
    try:
        with open_to_read(path) as file, store.transaction():
            for line, place, commitment, record in _Reader(path, file, key):
                counts[_take(store, line, place, commitment, record)] += 1
    except OSError as error:
        raise MissingFile(str(path), f"the export cannot be read ({error.strerror})") from None
    return Imported(**counts)


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def _start_digest(sealer: Sealer | None) -> _Digest:
    return hmac.new(sealer.mac_key, digestmod="sha256") if sealer else hashlib.sha256()


# Writing


def _export(store: WitnessStore, path: Path | str, sealer: Sealer | None) -> int:
    path = to_path(path, "file")
    digest, count = _start_digest(sealer), 0
    with new_file(path) as draft, draft.open("wb") as file, store.snapshot():

        def write(document: dict[str, Json]) -> None:
            line = canonicalize(document) + b"\n"
            if len(line) > LARGEST_LINE:
                rule = f"smaller to be exported: its line has {len(line)} bytes, at most {LARGEST_LINE}; use a backup"
                raise InvalidInput("witness", f"{document['kind']} {document['number']}", rule)
            digest.update(line)
            file.write(line)

        write({"format": FORMAT, "key": _key_to_json(sealer.record) if sealer else None})
        for count, entry in enumerate(store.iterate(), start=1):  # noqa: B007  # the last one is the number of entries
            write(_entry_to_json(entry, sealer))
        write({"entries": str(count), "digest": "0x" + digest.hexdigest()})
    return count


def _entry_to_json(entry: Entry, sealer: Sealer | None) -> dict[str, Json]:
    kind = find_kind(entry.kind)
    document: dict[str, Json] = {
        "kind": entry.kind,
        "scope": "0x" + entry.scope.hex(),
        "number": str(entry.number),
        "commitment": str(entry.commitment),
    }
    if sealer is None:
        return {**document, "record": None if entry.record is None else kind.to_json(entry.record)}
    if entry.record is None:
        return {**document, "sealed": None}
    number = entry.number.to_bytes(8, "big")
    sealed = sealer.seal(entry.kind, entry.scope, number, entry.commitment, kind.to_bytes(entry.record))
    return {**document, "sealed": "0x" + sealed.hex()}


def _key_to_json(record: KeyRecord) -> Json:
    cost = record.cost
    return {
        "salt": "0x" + record.salt.hex(),
        "check": "0x" + record.check.hex(),
        "scrypt": {"n": cost.n, "r": cost.r, "p": cost.p} if cost else None,
    }


# Reading


class _Reader:
    """Yields line number, place, commitment and record of each entry, and judges the whole when it comes to the end."""

    def __init__(self, path: Path, file: BinaryIO, key: Key | None) -> None:
        self.path, self.file, self.key = path, file, key

    def __iter__(self) -> Iterator[tuple[int, Place, Bytes32, Any]]:
        header_line = self._next_line()
        sealer = self._unlock(self._parse(1, header_line))
        digest = _start_digest(sealer)
        digest.update(header_line)
        for number, line in enumerate(iter(self._next_line, b""), start=2):
            document = self._parse(number, line)
            if "entries" in document:
                self._finish(document, number - 2, digest.hexdigest())
                return
            digest.update(line)
            yield number, *self._read_entry(number, document, sealer)
        raise StoreUnreadable(str(self.path), "the export is cut off: its last line is missing")

    def _unlock(self, header: dict[str, Any]) -> Sealer | None:
        if header.get("format") != FORMAT or set(header) != {"format", "key"}:
            raise StoreUnreadable(str(self.path), f"it is no export of the format {FORMAT}")
        if header["key"] is None:
            return None
        if self.key is None:
            raise InvalidInput("key", None, "given: the export is encrypted")
        try:
            recorded, cost = header["key"], header["key"]["scrypt"]
            salt, check = (bytes(Bytes32(recorded[name], name)) for name in ("salt", "check"))
            record = KeyRecord(salt, check, None if cost is None else ScryptCost(**cost))
        except (LookupError, TypeError, InvalidInput):
            raise StoreUnreadable(str(self.path), "what recognizes its key is damaged") from None
        return Sealer.unlock(self.key, record, str(self.path))

    def _read_entry(self, line: int, document: dict[str, Any], sealer: Sealer | None) -> tuple[Place, Bytes32, Any]:
        last = "sealed" if sealer else "record"
        if set(document) != {"kind", "scope", "number", "commitment", last}:
            raise _in_line(line, f"an entry with the members kind, scope, number, commitment and {last}")
        try:
            kind = find_kind(document["kind"])
            place = kind.place(parse_bytes(document["scope"], "scope"), parse_sequence(document["number"], "number"))
            commitment = Bytes32(document["commitment"], "commitment")
            return place, commitment, _read_record(kind, place, commitment, document[last], sealer)
        except InvalidInput as error:
            raise _in_line(line, f"an entry whose {error.field} is {error.rule}") from None

    def _finish(self, trailer: dict[str, Any], count: int, digest: str) -> None:
        right = trailer == {"entries": str(count), "digest": "0x" + digest}
        if not right or self._next_line():
            raise StoreUnreadable(str(self.path), "the export is not as it was written: lines were changed or lost")

    def _next_line(self) -> bytes:
        """Return the next line, empty at the end."""
        line = self.file.readline(LARGEST_LINE + 1)
        if len(line) > LARGEST_LINE:
            raise StoreUnreadable(str(self.path), f"it has a line of more than {LARGEST_LINE} bytes")
        return line

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            document = load_json(line)
        except InvalidJson:
            document = None
        if not isinstance(document, dict):
            whole = number == 1 or line.endswith(b"\n")
            raise StoreUnreadable(str(self.path), f"line {number} is no JSON object" if whole else "it is cut off")
        return document


def _read_record(kind: Kind[Any], place: Place, commitment: Bytes32, value: Any, sealer: Sealer | None) -> Any:
    if value is None:
        return None
    if sealer is None:
        return kind.from_json(value)
    number = place.number.to_bytes(8, "big")
    try:
        sealed = parse_bytes(value, "sealed")
    except InvalidInput:
        raise InvalidInput("sealed", NOT_SHOWN, "0x and the hex digits of whole bytes") from None
    return kind.from_bytes(sealer.open(place.kind, place.scope, number, commitment, sealed))


def _take(store: WitnessStore, line: int, place: Place, commitment: Bytes32, record: Any) -> str:
    """Keep one entry, and return how it counts."""
    if record is None:
        return "added" if store.put_erased(place, commitment) else "erased"
    kind = find_kind(place.kind)
    try:
        if kind.commit(record) != commitment:
            raise _in_line(line, "an entry whose record opens its commitment")
        return "added" if store.put(place, record) else "present"
    except WitnessErased:
        return "erased"


def _in_line(line: int, rule: str) -> InvalidInput:
    return InvalidInput(f"line {line}", NOT_SHOWN, rule)
