"""What the witness at hand opens of a delta, and its content for people and for machines: decoded, escaped, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from melete.cli.stores import WitnessOptions
    from melete.memory.delta import ExperienceDelta
    from melete.memory.profiles import ProfileRegistry
    from melete.memory.witness import Witness
    from melete.memory.witness_store import WitnessStore
    from melete.primitives import Bytes32

#: A longer payload is not printed, not even for machines.
MOST_BYTES: Final = 64 * 2**10
UNKNOWN: Final = "unknown profile"


class Answer(StrEnum):
    """How the commitments of a delta fared."""

    OPENED = "opened"
    MISSING = "missing"
    ERASED = "erased"
    DOES_NOT_OPEN = "does not open"
    DOES_NOT_DECRYPT = "does not decrypt"


@dataclass(frozen=True, slots=True)
class Opening:
    """What a store holds for a delta; `closed` names the first commitment that a witness does not open."""

    answer: Answer
    witness: Witness | None = None
    closed: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong: a witness that is not there, or no more, is nothing wrong."""
        return self.answer in (Answer.OPENED, Answer.MISSING, Answer.ERASED)


@contextmanager
def store_at_hand(witnesses: WitnessOptions) -> Iterator[WitnessStore | None]:
    """Open the store for reading if there is one and a key is named for it; None without any of both.

    Errors: `MissingFile` for a store that is not there although its key is named; those of `WitnessStore.open`.
    """
    from melete.errors import ConfigurationError
    from melete.memory.witness_store import WitnessStore

    try:
        key = witnesses.load_key()
    except ConfigurationError:
        if names_a_key():
            raise
        yield None
        return
    with WitnessStore.open(witnesses.path, key, read_only=True) as store:
        yield store


@contextmanager
def nothing_at_hand() -> Iterator[None]:
    """Open no store."""
    yield None


def names_a_key() -> bool:
    """Return whether the environment names a key, or two."""
    import os

    from melete.memory.witness_keys import KEY_VARIABLE, PASSPHRASE_VARIABLE

    return bool(os.environ.get(KEY_VARIABLE) or os.environ.get(PASSPHRASE_VARIABLE))


def open_delta(store: WitnessStore, delta: ExperienceDelta) -> Opening:
    """Return what a store holds for a delta: at its own place, or wherever else its commitment is kept.

    Errors: those that concern the store as a whole, such as `WrongKey`.
    """
    from melete.errors import InvalidInput, NotAuthentic, WitnessErased, WitnessMismatch, WitnessMissing
    from melete.memory.witness import verify_witness
    from melete.memory.witness_kinds import DELTA

    found = Opening(Answer.MISSING)
    try:
        witness = store.get(DELTA.place(delta.space_id, delta.sequence))
        verify_witness(delta, witness)
        return Opening(Answer.OPENED, witness)
    except WitnessMissing:
        pass
    except WitnessErased:
        found = Opening(Answer.ERASED)
    except NotAuthentic:
        return Opening(Answer.DOES_NOT_DECRYPT)
    except WitnessMismatch as error:
        found = Opening(Answer.DOES_NOT_OPEN, witness, error.commitment)
    except InvalidInput:  # authentic bytes that are no record
        return Opening(Answer.DOES_NOT_OPEN, None, "deltaCommitment")
    # Rebuilt on another head, or kept for another space with the same content: it opens all the same.
    for entry in store.find(delta.delta_commitment):
        if entry.kind == DELTA.name and entry.record is not None:
            try:
                verify_witness(delta, entry.record)
            except WitnessMismatch:
                continue
            return Opening(Answer.OPENED, entry.record)
    return found


def profiles() -> ProfileRegistry:
    """Return the profiles that the command line decodes."""
    from melete.memory.migration import load_migration_profile
    from melete.memory.profiles import ProfileRegistry

    return ProfileRegistry([load_migration_profile()])


def describe_payload(known: ProfileRegistry, profile_id: Bytes32, payload: bytes) -> dict[str, Any]:
    """Return members that show a payload: its profile by name, its value as JSON, or why there is none.

    `text` stands beside hex where the bytes are UTF-8. Nothing longer than 64 KiB is shown.
    """
    from melete.errors import MeleteError, UnknownProfile
    from melete.memory.profiles import PLAIN

    found: dict[str, Any] = {"payloadBytes": len(payload)}
    if len(payload) > MOST_BYTES:
        return {**found, "notShown": f"it is longer than {MOST_BYTES} bytes"}
    try:
        profile = known.find(profile_id)
        found["profile"] = profile.name
        found["payload"] = profile.to_json(profile.decode(payload))
        is_plain = profile is PLAIN
    except UnknownProfile:
        found["payload"], is_plain = "0x" + payload.hex(), True
    except MeleteError as error:
        return {**found, "notShown": str(error)}
    if is_plain:
        with suppress(UnicodeDecodeError):
            found["text"] = payload.decode()
    return found


def shown_payload(described: dict[str, Any]) -> str:
    """Return one short printable line of what `describe_payload` found."""
    from melete.canonical import canonicalize
    from melete.errors import show
    from melete.memory.migration import MIGRATION_NAME, Migration
    from melete.memory.profiles import PLAIN_NAME

    name = described.get("profile", UNKNOWN)
    if "notShown" in described:
        return f"{name}: {described['notShown']}"
    if name == MIGRATION_NAME:
        return f"{name} {Migration.from_json(described['payload']).describe()}"
    text = described.get("text")
    if text is None:
        value = described["payload"]
        text = value if name in (PLAIN_NAME, UNKNOWN) else canonicalize(value).decode()
    return f"{name} {show(text)}"
