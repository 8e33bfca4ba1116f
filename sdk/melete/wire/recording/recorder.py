"""The recorder: takes what a memory store has written since, and puts it on record in a space, batch by batch.

    recorder = Recorder(store, outbox, registry, witnesses, space_id, authorizer)
    recorder.flush()            # all that waits, in batches; the outbox sends them
    recorder.flush_if_due(60)   # or when it fills a batch, or has waited long enough

What waits is what the store's audit log holds behind the newest batch: nothing else has to be kept, whoever wrote.
Killed between any two lines, a recorder goes on where the one before it was: a batch that the outbox and the witness
store hold already is taken over, and nothing is recorded twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from melete.chain.errors import LaneLost
from melete.chain.outbox import Outbox
from melete.errors import CouldNotTell, InvalidInput, NotAuthentic, WitnessErased, WitnessMissing
from melete.memory.batch import Operation
from melete.memory.outbox import delta_of
from melete.memory.profiles import BATCH
from melete.memory.space import Head
from melete.memory.witness import Witness
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32, trusted_bytes32
from melete.wire.audit import AuditHead, Entry
from melete.wire.errors import BrokenAudit
from melete.wire.recording.batches import ALTERED, CLOSED, MISSING, OpenedBatch, find_recorded, open_batch
from melete.wire.recording.errors import NotOpened, RecordedElsewhere, RecordingStopped
from melete.wire.recording.forgetting import Erased, erase_ended, erase_since
from melete.wire.recording.journal import (
    Recording,
    add_recording,
    core_of,
    load_audit_head,
    load_entries,
    load_newest,
    load_standing,
    load_waiting,
)
from melete.wire.recording.lock import recording_alone
from melete.wire.recording.operations import BatchHead, Write, build_operations
from melete.wire.recording.outbox import BatchOutbox

if TYPE_CHECKING:
    from melete.memory.registry import MemoryRegistry
    from melete.signing import Signer
    from melete.wire.store import MemoryStore

#: Audit rows in a batch, unless told otherwise, and at most: showing one reads all leaves of its batch.
BATCH_ROWS: Final = 100
MOST_ROWS: Final = 1_000
#: A node that was asked for the space's head is not asked again for so long. Whatever happens meanwhile shows when the
#: batch is sent, as what happens after it was asked does anyway: the registry takes no delta on another head.
ASKED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Flushed:
    """What came of a flush: the batches and their audit rows, those of them that an earlier run had begun, and contents
    whose witnesses were erased. `is_scrubbed` is false while bytes of these may still be in the witness store's file.
    """

    batches: int = 0
    rows: int = 0
    taken_over: int = 0
    erased: int = 0
    is_scrubbed: bool = True


class Recorder:
    """Records one memory store in one space. Made and used in one thread; the store may be in use by any."""

    def __init__(
        self,
        store: MemoryStore,
        outbox: Outbox,
        registry: MemoryRegistry,
        witnesses: WitnessStore,
        space_id: Bytes32,
        authorizer: Signer | None,
        *,
        most: int = BATCH_ROWS,
        pass_unopened: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`authorizer` signs the deltas; without one, the account that sends must be it. `most` rows are in a batch.

        Where the space has gone on, and no witness at hand opens what came, that may be the record of a later state of
        this very store, so nothing is recorded after it; `pass_unopened` says that it is somebody else's.
        Errors: `InvalidInput` for a number that is not from 1 to 1000, and for a store recorded in another space.
        """
        if type(most) is not int or not 1 <= most <= MOST_ROWS:
            raise InvalidInput("batch", most, f"a number of audit rows from 1 to {MOST_ROWS}")
        self.store, self.registry, self.witnesses = store, registry, witnesses
        self.space_id = Bytes32(space_id, "spaceId")
        self.outbox = BatchOutbox(outbox, registry, witnesses)
        self._authorizer, self._most, self._pass_unopened = authorizer, most, pass_unopened
        self._clock = clock
        self._database = core_of(store).database
        #: Up to which audit row what was forgotten is known to be erased.
        self._erased_through = 0
        self._waiting_since: float | None = None
        #: When the node was asked for the space's head, and what it gave.
        self._asked: tuple[float, Head] | None = None
        with self._database.reading() as connection:
            self._check_space(load_newest(connection))

    # What waits

    def count_waiting(self) -> int:
        """Return how many audit rows are not recorded."""
        with self._database.reading() as connection:
            newest, head = load_standing(connection)
        return head.number - (0 if newest is None else newest.last)

    def flush_if_due(self, seconds: float) -> Flushed | None:
        """Record what waits if it fills a batch, or was first seen so many seconds ago; what was forgotten at once.

        Call it every now and then. Errors: as `flush`.
        """
        waiting, now = self.count_waiting(), self._clock()
        if not waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if waiting >= self._most or (self._waiting_since is not None and now - self._waiting_since >= seconds):
            flushed = self.flush()
            self._waiting_since = None
            return flushed
        erased = self.erase_forgotten() if waiting else Erased()
        return Flushed(erased=erased.witnesses, is_scrubbed=erased.is_scrubbed) if erased.witnesses else None

    # Recording

    def flush(self) -> Flushed:
        """Record all that waits, and return what that came to. The outbox holds it then; nothing is sent here.

        Errors: `StoreBusy` while another recorder is at work; `RecordedElsewhere` for a space that holds other writes;
        `RecordingStopped` for a batch that the registry refused; `InvalidInput` for a conflict in the space (rebuild
        first); `NotOpened`, `NotAtHand` where the witnesses at hand do not tell what the space records;
        `InvalidAuthorization`; `BrokenAudit` for a store that was altered; the node's and the stores'.
        """
        try:
            with recording_alone(self._database):
                return self._flush()
        except BaseException:
            self._asked = None
            raise

    def _flush(self) -> Flushed:
        erased = self._erase_forgotten()
        tail, taken_over = self._resume()
        if taken_over:
            # What they hold may have been forgotten since, before the store knew of their witnesses.
            self._erased_through = 0
            erased = erased.and_then(self._erase_forgotten())
        batches = rows = 0
        while True:
            before, writes, has_more = self._load_next()
            if writes:
                tail, more = self._record(before, writes, tail)
                batches, rows, erased = batches + 1, rows + len(writes), erased.and_then(more)
            if not has_more:
                return Flushed(batches, rows, taken_over, *erased)

    def retry(self) -> int:
        """Put batches that were refused, or are in conflict, on the current head, signed anew; return how many.

        Errors: `InvalidAuthorization`; those of `MemoryOutbox.rebuild`.
        """
        self._asked = None
        with recording_alone(self._database):
            return len(self.outbox.retry(self.space_id, self._authorizer))

    def erase_forgotten(self) -> Erased:
        """Erase the witnesses of what was forgotten or swept; see `forgetting.erase_forgotten`."""
        with recording_alone(self._database):
            return self._erase_forgotten()

    def _erase_forgotten(self) -> Erased:
        erased, through = erase_since(self._database, self.witnesses, self._erased_through)
        self._erased_through = max(self._erased_through, through)
        return erased

    def _load_next(self) -> tuple[AuditHead, list[Write], bool]:
        """Return the audit rows of the next batch, the head before them, and whether there are more behind them."""
        with self._database.reading() as connection:
            newest = load_newest(connection)
            number = 0 if newest is None else newest.last
            before = load_audit_head(connection, number)
            if before is None:
                raise BrokenAudit(number, "the audit row's number", number, "missing")
            return before, *load_waiting(connection, before, self._most)

    def _record(self, before: AuditHead, writes: list[Write], tail: Head) -> tuple[Head, Erased]:
        """Record a batch on a tail; return the tail then, and what was erased with it."""
        head, contents = build_operations(before, writes)
        salts = _fresh_words(len(contents) + 1)
        operations = [Operation(content, salt) for content, salt in zip(contents, salts, strict=False)]
        batch, delta, after = self.outbox.add_batch(self.space_id, tail, operations, salts[-1], self._authorizer)
        return after, self._finish(batch.root, delta.delta_commitment, head, [write.entry for write in writes])

    def _finish(self, root: Bytes32, commitment: Bytes32, head: BatchHead, entries: list[Entry]) -> Erased:
        """Erase what a batch tells to be forgotten, then note that it is recorded."""
        erased = erase_ended(self._database, self.witnesses, entries, head.first - 1)
        recording = Recording(
            head.first, head.last, self.registry.chain_id, self.registry.address, self.space_id, root, commitment
        )
        with self._database.writing() as connection:
            add_recording(connection, recording, head, entries)
        self._erased_through = max(self._erased_through, head.last)
        return erased

    # Going on where another run was

    def _check_space(self, newest: Recording | None) -> None:
        if newest is not None and newest.space_id != self.space_id:
            rule = f"{newest.space_id}, in which the store is recorded; a store has one space"
            raise InvalidInput("space", self.space_id, rule)
        place = (self.registry.chain_id, self.registry.address)
        if newest is not None and (newest.chain_id, newest.registry) != place:
            rule = f"registry {newest.registry} of chain {newest.chain_id}, where the store is recorded"
            raise InvalidInput("registry", self.registry.address, rule)

    def _resume(self) -> tuple[Head, int]:
        """Return the tail of the space, and how many rows of batches there were taken over from a run that ended early.

        The space's deltas are looked at from its tail down to the newest batch that the store knows.
        Errors: `RecordedElsewhere`, `RecordingStopped`; `NotOpened`; `NotAtHand` if the store is on record, and the
        witness store does not know of it; those of `BatchOutbox.load_head` and `tail_after`.
        """
        self.outbox.recover()
        with self._database.reading() as connection:
            newest = load_newest(connection)
        self._check_space(newest)
        for item in self.outbox.refused(self.space_id):
            if delta_of(item).profile_id == BATCH.id:
                raise RecordingStopped(item.position, item.reason or "")
        tail = self._queue_again(self._load_tail())
        known = 0 if newest is None else find_recorded(self.witnesses, self.space_id, newest.commitment)[0]
        unknown = list(self._batches_between(known, tail.sequence))
        return tail, sum(self._take_over(opened) for opened in reversed(unknown))

    def _load_tail(self) -> Head:
        """Return the head that the space will have when everything that waits for it has landed."""
        try:
            return self.outbox.tail_after(self.space_id, self._load_head())
        except LaneLost:
            # Perhaps it landed after the node was asked: only a fresh answer says that it is gone.
            self._asked = None
            return self.outbox.tail_after(self.space_id, self._load_head())

    def _load_head(self) -> Head:
        """Return the space's head as the node gave it last, or gives it now."""
        now = self._clock()
        if self._asked is None or now - self._asked[0] >= ASKED_SECONDS:
            self._asked = now, self.outbox.load_head(self.space_id, self._authorizer)
        return self._asked[1]

    def _queue_again(self, tail: Head) -> Head:
        """Put batches into the outbox whose witnesses are kept behind its tail: it lost them. Return the tail then.

        That is safe also where one of them was committed meanwhile, since a registry takes a position once.
        """
        while True:
            witness = self._witness_at(tail.sequence + 1)
            opened = None if witness is None else open_batch(self.witnesses, witness, tail.sequence + 1)
            if opened is None or witness is None:
                return tail
            with self._database.reading() as connection:
                is_ours = load_audit_head(connection, opened.head.last) == opened.head.after
            if not is_ours:
                return tail
            tail = self.outbox.queue_again(self.space_id, tail, witness, self._authorizer)

    def _batches_between(self, known: int, last: int) -> Iterator[OpenedBatch]:
        """Yield the batches of the space from one sequence down to another, which is not looked at."""
        lane = self.outbox.lane(self.space_id) if last > known else {}
        for sequence in range(last, known, -1):
            witness = self._witness_at(sequence)
            is_its = witness is not None and self.outbox.is_in_space(self.space_id, sequence, witness, lane)
            if witness is None or not is_its:
                if not self._pass_unopened:
                    raise NotOpened(sequence, MISSING if witness is None else CLOSED)
                continue
            opened = open_batch(self.witnesses, witness, sequence)
            if opened is not None:
                yield opened

    def _witness_at(self, sequence: int) -> Witness | None:
        try:
            witness: Witness = self.witnesses.get(DELTA.place(self.space_id, sequence))
        except (WitnessMissing, WitnessErased):
            return None
        except NotAuthentic:
            raise NotOpened(sequence, ALTERED) from None
        return witness

    def _take_over(self, opened: OpenedBatch) -> int:
        """Note that a batch is recorded, if it is of this store and comes next; return how many rows it has."""
        head = opened.head
        with self._database.reading() as connection:
            newest = load_newest(connection)
            due = load_audit_head(connection, 0 if newest is None else newest.last)
            own = load_audit_head(connection, head.last)
            if own is None:
                raise RecordedElsewhere(
                    opened.sequence, head.last, "this store ends before it, as an earlier state does"
                )
            if own != head.after:
                raise RecordedElsewhere(opened.sequence, head.last, "this store holds other rows there")
            if head.before != due:
                raise RecordedElsewhere(opened.sequence, head.last, "what came before it is not at hand")
            entries = load_entries(connection, head.first, head.last)
        self._finish(opened.batch.root, opened.commitment, head, entries)
        return head.rows


def keep_recording(
    recorder: Recorder,
    seconds: float,
    should_stop: Callable[[float], bool],
    tell: Callable[[Flushed], None],
    tell_failure: Callable[[CouldNotTell], None],
) -> None:
    """Record whatever fills a batch, or has waited for some seconds, until told to stop; then what is left.

    `should_stop` waits for as long as it is told, at most, and says whether to stop. What could not be told (a node
    that is gone) is tried again. Errors: all others of `Recorder.flush`.
    """
    pause = min(max(seconds / 4, 0.01), 1.0)
    while not should_stop(pause):
        try:
            flushed = recorder.flush_if_due(seconds)
        except CouldNotTell as error:
            tell_failure(error)
        else:
            if flushed is not None:
                tell(flushed)
    tell(recorder.flush())


def _fresh_words(count: int) -> list[Bytes32]:
    drawn = secrets.token_bytes(32 * count)
    return [trusted_bytes32(drawn[start : start + 32]) for start in range(0, len(drawn), 32)]
