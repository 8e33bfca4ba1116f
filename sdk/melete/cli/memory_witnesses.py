"""What the commands that forget do about the witnesses of a store on record: erase them, or say that they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from melete.cli.stores import WitnessOptions
    from melete.memory.witness_keys import Key
    from melete.wire.store import MemoryStore

#: What a result says when nobody named the key of the witness store.
KEPT: Final = (
    "witnesses of what was forgotten may be kept until the next melete memory record; "
    "name the witness store's key to erase them at once"
)
#: What it says when the witness store could not be written.
NOT_ERASED: Final = "witnesses of what was forgotten could not be erased, and are kept until melete memory record"
NOT_SCRUBBED: Final = "the witnesses were erased, but old bytes may still be in their file, because others read it"


def erase_witnesses(store: MemoryStore, witnesses: WitnessOptions) -> str:
    """Erase the witnesses of what a store on record has forgotten; return what is to be said about that, or nothing.

    Errors: those of the witness store and of its key; what was forgotten is forgotten all the same.
    """
    return _erase(store, witnesses, _load_named_key(witnesses)) if _is_on_record(store) else ""


def make_eraser(store: MemoryStore, witnesses: WitnessOptions) -> Callable[[], str]:
    """Return what a server calls after each forget: as `erase_witnesses`, but what fails is said, and logged by name.

    Errors: those of the key, now.
    """
    import logging

    from melete.errors import MeleteError

    key = _load_named_key(witnesses)

    def erase() -> str:
        try:
            return _erase(store, witnesses, key) if _is_on_record(store) else ""
        except MeleteError as error:
            logging.getLogger("melete.serving").warning("witnesses were not erased: %s", type(error).__name__)
            return NOT_ERASED

    return erase


def _is_on_record(store: MemoryStore) -> bool:
    from melete.wire.recording.journal import core_of, is_on_record

    with core_of(store).database.reading() as connection:
        return is_on_record(connection)


def _load_named_key(witnesses: WitnessOptions) -> Key | None:
    from melete.cli.payloads import names_a_key
    from melete.errors import ConfigurationError

    try:
        return witnesses.load_key()
    except ConfigurationError:
        if names_a_key():
            raise
        return None


def _erase(store: MemoryStore, witnesses: WitnessOptions, key: Key | None) -> str:
    if key is None:
        return KEPT
    from melete.memory.witness_store import WitnessStore
    from melete.wire.recording.forgetting import erase_forgotten

    with WitnessStore.open(witnesses.path, key) as kept:
        return "" if erase_forgotten(store, kept).is_scrubbed else NOT_SCRUBBED
