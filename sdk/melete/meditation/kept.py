"""What a witness store keeps for a subject: its layer documents by state version, its cycle records by number.

Both count on one chain, from one registry; so the places are of that chain and registry. What was kept before places
were is still found, by what it opens. A version or record that the chain does not have (it went back, or began anew)
leaves its place to the one that it has, and stays in the store, found by what it opens, should it come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from melete.errors import InvalidInput, StoreUnreadable, WitnessErased, WitnessMissing
from melete.memory.witness_kinds import LAYERS, REPORT, Entry, Kind, Place, subject_scope
from melete.memory.witness_store import Row, WitnessStore
from melete.primitives import Address, Bytes32

#: Numbers from here on are nobody's: what left its place stands there.
SET_ASIDE: Final = 2**63


class OnChain(Protocol):
    """A registry client, as far as places go."""

    chain_id: int
    address: Address


class Kept:
    """What is kept for one subject of one registry."""

    def __init__(self, store: WitnessStore, registry: OnChain, subject: Address) -> None:
        self.store, self.subject = store, subject
        self._scope = subject_scope(registry.chain_id, registry.address, subject)
        self._scopes = (self._scope, bytes(subject))

    def place(self, kind: Kind[Any], number: int) -> Place:
        """Return where a state version's document, or a record, is put."""
        return kind.place(self._scope, number)

    def is_own(self, place: Place) -> bool:
        """Return whether a place is of this registry, and not one that was written before places were."""
        return place.scope == self._scope

    def put(self, kind: Kind[Any], number: int, record: Any) -> None:
        """Keep a record. Errors: those of `WitnessStore.put`."""
        self.store.put(self.place(kind, number), record)

    def get(self, kind: Kind[Any], number: int) -> Any:
        """Return what is kept under a number. Errors: as `open`."""
        for scope in self._scopes:
            try:
                return self._read(kind.place(scope, number))
            except WitnessMissing:
                continue
        raise WitnessMissing(kind.name, self.subject, number)

    def find(self, kind: Kind[Any], commitment: Bytes32) -> list[Entry]:
        """Return the entries of a kind that open a commitment, wherever they stand. Errors: `StoreUnreadable`."""
        try:
            found = self.store.find(commitment)
        except InvalidInput:
            # The store does not say which it was.
            found = [self._entry(row) for row in self._rows(kind) if row.commitment == commitment]
        return [entry for entry in found if entry.kind == kind.name and entry.scope in self._scopes]

    def open(self, kind: Kind[Any], commitment: Bytes32, number: int) -> Any:
        """Return the record that opens a commitment; `number` is the one that it should have, for the error.

        Errors: `WitnessMissing`, `WitnessErased`; `StoreUnreadable` for one that this version does not read.
        """
        found = self.find(kind, commitment)
        for entry in found:
            if entry.record is not None:
                return entry.record
        raise (WitnessErased if found else WitnessMissing)(kind.name, self.subject, number)

    def find_place(self, kind: Kind[Any], number: int, commitment: Bytes32) -> Place | None:
        """Return the place under a number if what stands there opens a commitment."""
        return next((entry.place for entry in self.find(kind, commitment) if entry.number == number), None)

    def renumber(self, kind: Kind[Any], old: int, new: int) -> None:
        """Give a record another number. Errors: those of `WitnessStore.move`."""
        self.store.move(kind, self._scope, {old: new})

    def versions(self, kind: Kind[Any]) -> list[int]:
        """Return the state versions that a layer's documents are kept for, ascending."""
        return sorted({row.place.number for row in self._rows(kind) if not row.erased and row.place.number < SET_ASIDE})

    def set_aside(self, state_version: int, record_count: int) -> None:
        """Free the places behind a state version and a record number, which the chain does not have.

        What stands there moves out of the way; a note that something was erased there goes.
        """
        with self.store.transaction():
            kinds: tuple[Kind[Any], ...] = (*LAYERS, REPORT)
            for kind in kinds:
                last = record_count if kind is REPORT else state_version
                rows = list(self.store.list_rows(kind, self._scope))
                free = max([SET_ASIDE - 1, *(row.place.number for row in rows)]) + 1
                behind = [row for row in rows if last < row.place.number < SET_ASIDE]
                moving = [row.place.number for row in behind if not row.erased]
                self.store.discard(row.place for row in behind if row.erased)
                self.store.move(kind, self._scope, {number: free + step for step, number in enumerate(moving)})

    def _rows(self, kind: Kind[Any]) -> Iterator[Row]:
        for scope in self._scopes:
            yield from self.store.list_rows(kind, scope)

    def _entry(self, row: Row) -> Entry:
        return Entry(*row.place, row.commitment, None if row.erased else self._read(row.place))

    def _read(self, place: Place) -> Any:
        return read_record(self.store, place)


def read_record(store: WitnessStore, place: Place) -> Any:
    """Return the record of a place.

    Errors: as `WitnessStore.get`; `StoreUnreadable` for a record that this version does not read, naming its place.
    """
    try:
        return store.get(place)
    except InvalidInput:
        reason = f"its {place.kind} {place.number} of 0x{place.scope.hex()} is no record that this version reads"
        raise StoreUnreadable(str(store.path), reason) from None


def find_records(store: WitnessStore, subject: Address, number: int) -> list[dict[str, Any]]:
    """Return the cycle records of a subject with a number, of whatever registry, as far as they are kept.

    Errors: those of `read_record`, where nothing is found and one that cannot be read could be it.
    """
    found: list[dict[str, Any]] = []
    unread: StoreUnreadable | None = None
    for row in store.list_rows(REPORT):
        if row.place.number != number or row.erased:
            continue
        try:
            record = read_record(store, row.place)
        except StoreUnreadable as error:
            unread = error
            continue
        if row.place.scope == bytes(subject) or str(record.get("subject")).lower() == str(subject).lower():
            found.append(record)
    if unread is not None and not found:
        raise unread
    return found
