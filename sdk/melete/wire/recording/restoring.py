"""Restoring a backup: judged first, stripped of what was forgotten since, whole or not at all, and with a receipt."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from melete.canonical import Json
from melete.errors import MissingFile, StoreNotWritten
from melete.memory.history import Transition
from melete.memory.witness_file import new_file
from melete.memory.witness_store import WitnessStore
from melete.primitives import Bytes32
from melete.typed_data import Domain
from melete.wire.audit import Action
from melete.wire.lookup import load_rows, with_merged
from melete.wire.recording.errors import UnsafeBackup
from melete.wire.recording.journal import core_of
from melete.wire.recording.preflight import Preflight, Verdict, check, open_copy
from melete.wire.recording.rebuild import find_endings
from melete.wire.store import MemoryStore

RECEIPT_FORMAT: Final = "melete.restore-receipt/1"
#: Who the restored store's log names for what it had to forget.
BY: Final = "restore"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: the verdict on the backup, the ids that were forgotten since, and where the receipt is."""

    preflight: Preflight
    forgotten: tuple[str, ...]
    receipt: Path


def restore(
    backup: Path,
    target: Path,
    witnesses: WitnessStore,
    domain: Domain,
    space_id: Bytes32,
    transitions: Sequence[Transition],
    *,
    force: bool = False,
) -> Restored:
    """Make a new store of a backup that is the space's head or a known earlier state; with `force`, of any other.

    What the space records as forgotten or expired since, the new store forgets before anybody can see it. The receipt
    is on disk before the store is: a JSON file beside it. Errors: `UnsafeBackup`, and nothing is written;
    `InvalidInput` where the target exists; those of `check`; `MissingFile`, `StoreNotWritten`, `StoreUnreadable`.
    """
    digest = _sha256(backup)
    with new_file(target) as draft:
        with open_copy(backup, draft) as store:
            preflight = check(store, witnesses, space_id, transitions)
            if not preflight.verdict.is_safe and not force:
                raise UnsafeBackup(str(backup), describe(preflight))
            # What is recorded up to a known state is part of it; the batch that it lies in may go on.
            start = max(preflight.sequence - 1, 0) if preflight.verdict.is_safe else 0
            forgotten = _forget_since(store, witnesses, transitions[start:])
            if forgotten and not store.scrub():
                raise StoreNotWritten(str(target), "there is no room to take out what was forgotten")
        receipt = target.with_name(f"{target.name}.restored-{digest[:12]}.json")
        document: dict[str, Json] = {
            "format": RECEIPT_FORMAT,
            "at": core_of(store).now(),
            "backup": str(backup),
            "backupSha256": "0x" + digest,
            "store": str(target),
            "chainId": domain.chain_id,
            "registry": str(domain.verifying_contract),
            "spaceId": str(space_id),
            **preflight.to_json(),
            "forced": not preflight.verdict.is_safe,
            "forgottenSince": list(forgotten),
            **preflight.to_note(),
        }
        _write_receipt(receipt, document)
    return Restored(preflight, forgotten, receipt)


def describe(preflight: Preflight) -> str:
    """Return a verdict as a phrase that says which state, or from where."""
    verdict = preflight.verdict
    if verdict is Verdict.DIVERGED:
        broken = "" if preflight.broken is None else f" ({preflight.broken} was altered there)"
        return f"it is {verdict.value}, from audit row {preflight.diverged_at} on{broken}"
    if verdict is Verdict.UNKNOWN:
        return f"it is {verdict.value}: {preflight.unrecorded} audit rows are behind what the space records"
    if verdict is Verdict.UNTOLD:
        return f"which state it is {verdict.value}: {len(preflight.unread)} transitions of the space cannot be opened"
    return f"it is {verdict.value}, of sequence {preflight.sequence}"


def _forget_since(store: MemoryStore, witnesses: WitnessStore, transitions: Iterable[Transition]) -> tuple[str, ...]:
    """Erase what the space records as ended and the store still holds, and say so in its log; return the ids."""
    ended, _ = find_endings(witnesses, [transition.delta for transition in transitions])
    core = core_of(store)
    gone: list[str] = []
    with core.change() as change:
        rows = with_merged(change.connection, list(load_rows(change.connection, list(ended)).values()))
        for agent, kind in dict.fromkeys((row.agent, row.type) for row in rows):
            own = [row for row in rows if (row.agent, row.type) == (agent, kind)]
            ids = [row.id for row in own]
            change.record(Action.FORGET, agent, kind, ids, by=BY)
            change.erase(own)
            gone += ids
    return tuple(gone)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise MissingFile(str(path), f"the backup cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def _write_receipt(path: Path, document: dict[str, Json]) -> None:
    """Put a receipt in place, whole, mode 0600."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise StoreNotWritten(str(path), error.strerror or "the receipt cannot be written") from None
