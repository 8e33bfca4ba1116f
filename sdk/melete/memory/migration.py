"""From an older prototype's memory to a space: a new one, whose first payload binds what the prototype exported.

    export file -> its digests, and its root as it states it -> first payload of a new space

The records of a prototype are not those of ERC-8350. None of its ids is taken over: a space id follows from controller
and salt, a transition id from its delta. What is bound is the export's bytes, so that whoever holds the file can show
that this memory continues that one; what the file says of itself stays a claim of its own.

An export is any JSON file. It is read as hostile: its length is limited by whoever reads it, and but for the members
that are named nothing in it is judged, not even whether other readers would agree on it.

Source: ERC-8350, Migration.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from melete.canonical import LARGEST_INTEGER, Json, canonicalize, load_json
from melete.errors import InvalidInput, InvalidJson, WitnessMismatch, show
from melete.memory.commitment import compute_profile_id
from melete.primitives import Bytes32, keccak256

if TYPE_CHECKING:
    from melete.memory.delta import ExperienceDelta
    from melete.memory.outbox import MemoryOutbox
    from melete.memory.profiles import Profile
    from melete.memory.witness import Witness
    from melete.signing import Signer

MIGRATION_NAME: Final = "melete.space-migration/1"
MIGRATION_ID: Final = compute_profile_id(MIGRATION_NAME)
#: Where an export's members stand unless another place is named.
ROOT_POINTER: Final = "/root"
TOOL_POINTER: Final = "/tool"
VERSION_POINTER: Final = "/version"
#: How long what an export states may be, in characters.
LONGEST_ROOT: Final = 256
LONGEST_NAME: Final = 128
LONGEST_POINTER: Final = 256

_ROOT = re.compile(rf"[ -~]{{1,{LONGEST_ROOT}}}", re.ASCII)
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_PAYLOAD_RULE: Final = f"a payload of {MIGRATION_NAME}: the canonical JSON of schemas/space-migration.schema.json"


#: The way to a value in a document: names and indices, the last one first; None at the top.
_Path: TypeAlias = "tuple[_Path, str | int] | None"


# What is bound


@dataclass(frozen=True, slots=True)
class Migration:
    """What the first payload of a migrated space says. `tool` and `tool_version` are None where no export states them.

    Errors: `InvalidInput`, naming the member as the JSON does.
    """

    export_bytes: int
    export_keccak256: Bytes32
    export_sha256: Bytes32
    root: str
    root_pointer: str
    tool: str | None
    tool_version: str | None
    migrator: str
    migrator_version: str

    def __post_init__(self) -> None:
        if type(self.export_bytes) is not int or not 0 < self.export_bytes <= LARGEST_INTEGER:
            raise InvalidInput("bytes", self.export_bytes, "an integer from 1 to 2^53 - 1")
        object.__setattr__(self, "export_keccak256", Bytes32(self.export_keccak256, "keccak256"))
        object.__setattr__(self, "export_sha256", Bytes32(self.export_sha256, "sha256"))
        if not isinstance(self.root, str) or not _ROOT.fullmatch(self.root):
            raise InvalidInput("root", self.root, f"1 to {LONGEST_ROOT} printable ASCII characters")
        _check_pointer(self.root_pointer, "rootPointer")
        for name, value in (("tool", self.tool), ("toolVersion", self.tool_version)):
            if value is not None:
                _check_name(value, name)
        _check_name(self.migrator, "migrator tool")
        _check_name(self.migrator_version, "migrator version")

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `schemas/space-migration.schema.json`."""
        return {
            "export": {
                "bytes": self.export_bytes,
                "keccak256": str(self.export_keccak256),
                "sha256": str(self.export_sha256),
                "root": self.root,
                "rootPointer": self.root_pointer,
                "tool": self.tool,
                "toolVersion": self.tool_version,
            },
            "migrator": {"tool": self.migrator, "version": self.migrator_version},
        }

    @classmethod
    def from_json(cls, document: object) -> Migration:
        """Return the migration that a JSON object states: exactly its members. Errors: `InvalidInput`."""
        export, migrator = _members(document, "migration", ("export", "migrator"))
        names = ("bytes", "keccak256", "sha256", "root", "rootPointer", "tool", "toolVersion")
        length, keccak, sha, *stated = _members(export, "export", names)
        for name, value in (("keccak256", keccak), ("sha256", sha)):
            if not isinstance(value, str):
                raise InvalidInput(name, value, "a JSON string")
        return cls(length, keccak, sha, *stated, *_members(migrator, "migrator", ("tool", "version")))

    def to_payload(self) -> bytes:
        """Return the bytes that the delta commits to."""
        return canonicalize(self.to_json())

    @classmethod
    def from_payload(cls, payload: bytes) -> Migration:
        """Return the migration that payload bytes state. One migration has one payload: other spellings are refused.

        Errors: `InvalidInput`, which does not show the payload.
        """
        try:
            migration = cls.from_json(load_json(payload))
            if migration.to_payload() == payload:
                return migration
        except (InvalidJson, InvalidInput):
            pass
        raise InvalidInput("payload", None, f"{_PAYLOAD_RULE} (it is not shown)")

    def describe(self) -> str:
        """Return one printable line that says what is bound."""
        tool = "" if self.tool is None else f", exported by {show(self.tool)}"
        version = "" if self.tool_version is None else f", version {show(self.tool_version)}"
        by = f"{show(self.migrator)}, version {show(self.migrator_version)}"
        return (
            f"root {show(self.root)} of an export of {self.export_bytes} bytes, keccak256 {self.export_keccak256}, "
            f"sha256 {self.export_sha256}{tool}{version}, migrated by {by}"
        )


@cache
def load_migration_profile() -> Profile:
    """Return the profile of such payloads, for a `ProfileRegistry`. Errors: `MissingFile` without the schemas."""
    from melete.memory.profiles import Profile
    from melete.resources import load_schema

    return Profile(
        MIGRATION_NAME, _encode, Migration.from_payload, load_schema("space-migration"), lambda value: value.to_json()
    )


def _encode(value: Any) -> bytes:
    if not isinstance(value, Migration):
        raise InvalidInput("value", None, "of type Migration")
    return value.to_payload()


# The export


@dataclass(frozen=True, slots=True)
class Export:
    """An older prototype's export: its digests, and the members of it that were named.

    Made by `read_export`. The rest of the file is kept for one question alone: whether an id stands in it.
    """

    length: int
    keccak256: Bytes32
    sha256: Bytes32
    root: str
    root_pointer: str
    tool: str | None
    tool_version: str | None
    _document: Any = field(repr=False)

    def migrate(self, migrator: str, version: str) -> Migration:
        """Return what a new space's first payload binds of this export, by the tool that makes it."""
        return Migration(
            self.length,
            self.keccak256,
            self.sha256,
            self.root,
            self.root_pointer,
            self.tool,
            self.tool_version,
            migrator,
            version,
        )

    def find(self, word: Bytes32) -> str | None:
        """Return the JSON pointer of the first text or member name that spells a word in hex, or None."""
        digits = word.hex()
        for text, path in _texts(self._document):
            if len(text) <= 66 and text.lower().removeprefix("0x") == digits:
                return _pointer_of(path)
        return None

    def refuse_id(self, value: Bytes32, name: str) -> Bytes32:
        """Return a word that is to be an id of ERC-8350, `name`, unless it stands in the export.

        Errors: `InvalidInput` for one that does: an older prototype's id is never one here.
        """
        pointer = self.find(value)
        if pointer is None:
            return value
        place = show(pointer)
        raise InvalidInput(name, value, f"an id of ERC-8350; this one was copied from the export, where it is {place}")


def read_export(
    content: bytes, *, root: str = ROOT_POINTER, tool: str | None = None, version: str | None = None
) -> Export:
    """Return what an export's bytes state at three places (JSON pointers, RFC 6901).

    The root is printable ASCII text, of at most 256 characters. Tool and version are text, or numbers taken as they are
    written; where no place is named, /tool and /version are looked at, and what is no such text there is not stated.

    Errors: `InvalidJson` for what is no JSON in UTF-8 (a byte order mark is passed over), and for a place where
    nothing stands, or another kind of value, or on whose way a member stands twice; `InvalidInput` for a place that is
    no JSON pointer.
    """
    for pointer, name in ((root, "root"), (tool, "tool"), (version, "version")):
        if pointer is not None:
            _check_pointer(pointer, name)
    document = _read_loosely(content)
    stated = _resolve(document, root)
    if not isinstance(stated, str) or isinstance(stated, _Token) or not _ROOT.fullmatch(stated):
        raise InvalidJson(
            root, f"the export's root must be 1 to {LONGEST_ROOT} printable ASCII characters; name its place"
        )
    return Export(
        length=len(content),
        keccak256=keccak256(content),
        sha256=Bytes32(hashlib.sha256(content).digest()),
        root=stated,
        root_pointer=root,
        tool=_stated_name(document, tool, TOOL_POINTER),
        tool_version=_stated_name(document, version, VERSION_POINTER),
        _document=document,
    )


def verify_export(migration: Migration, content: bytes) -> Migration:
    """Return the migration if it binds this very file, else raise `WitnessMismatch`, naming the digest that differs."""
    for name, bound, found in (
        ("the export's keccak256", migration.export_keccak256, keccak256(content)),
        ("the export's sha256", migration.export_sha256, Bytes32(hashlib.sha256(content).digest())),
        ("the export's length", migration.export_bytes, len(content)),
    ):
        if bound != found:
            raise WitnessMismatch(name, bound, found)
    return migration


# The new space


def build_migration_witness(migration: Migration, salt: Bytes32) -> Witness:
    """Return what opens the first delta of a migrated space, under a fresh salt."""
    from melete.memory.witness import Witness

    return Witness(MIGRATION_ID, migration.to_payload(), salt)


def add_migration(
    outbox: MemoryOutbox, space_id: Bytes32, witness: Witness, authorizer: Signer | None
) -> ExperienceDelta:
    """Write the first delta of a registered space down, with its witness, and return it; the outbox sends it.

    Errors: `InvalidInput` for a space that has a transition already, or for which one waits; those of
    `MemoryOutbox.add`.
    """
    outbox.recover()
    tail = outbox.tail(space_id)
    if tail.sequence != 0:
        held = "waits for" if outbox.registry.head(space_id).sequence == 0 else "is part of"
        raise InvalidInput("space", space_id, f"without any transition; number {tail.sequence} {held} it already")
    (delta,) = outbox.add(space_id, [witness], authorizer)
    return delta


# Reading an export


class _Members(list[tuple[str, Any]]):
    """The members of one object as read, those that stand twice included."""


class _Token(str):
    """A number, true, false or NaN as it is written."""


def _read_loosely(content: bytes) -> Any:
    """Return a JSON value whose numbers are texts, so that none is too large or too precise."""
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=_Members, parse_int=_Token, parse_float=_Token, parse_constant=_Token)
    except UnicodeDecodeError as error:
        raise InvalidJson("", f"the export is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidJson("", f"the export is not JSON: {error.msg} in {place}") from None
    except RecursionError:
        raise InvalidJson("", "the export is nested too deeply to be read") from None


def _resolve(document: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer. Errors: `InvalidJson`."""
    value = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, _Members):
            found = [member for known, member in value if known == name]
            if len(found) > 1:
                raise InvalidJson(
                    pointer, "a member on the way stands twice in its object, so which one is meant is open"
                )
        elif isinstance(value, list) and _INDEX.fullmatch(name):
            found = value[int(name) : int(name) + 1]
        else:
            found = []
        if not found:
            raise InvalidJson(pointer, "the export has nothing there; name the place where it has")
        value = found[0]
    return value


def _stated_name(document: Any, pointer: str | None, usual: str) -> str | None:
    try:
        value = _resolve(document, usual if pointer is None else pointer)
        if isinstance(value, str):
            _check_name(value, "name")
            return str(value)
        rule = "it must be text or a number"
    except InvalidJson as error:
        rule = error.rule
    except InvalidInput as error:
        rule = f"it must be {error.rule}"
    if pointer is None:
        return None
    raise InvalidJson(pointer, rule)


def _texts(document: Any) -> Iterator[tuple[str, _Path]]:
    """Yield every text and member name with the way to it.

    In memory that grows with the depth only, and without recursion, for the document is hostile.
    """
    if isinstance(document, str):
        yield document, None
    waiting = [(_children(document), None)] if isinstance(document, list) else []
    while waiting:
        children, path = waiting[-1]
        child = next(children, None)
        if child is None:
            waiting.pop()
            continue
        name, value = child
        here = (path, name)
        if isinstance(name, str):
            yield name, here
        if isinstance(value, str):
            yield value, here
        elif isinstance(value, list):
            waiting.append((_children(value), here))  # type: ignore[arg-type]  # of this kind, all of them


def _children(value: list[Any]) -> Iterator[tuple[str | int, Any]]:
    return iter(value) if isinstance(value, _Members) else iter(enumerate(value))


def _pointer_of(path: _Path) -> str:
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(str(name).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{name}" for name in reversed(names))


def _check_pointer(pointer: str, name: str) -> None:
    well_formed = isinstance(pointer, str) and len(pointer) <= LONGEST_POINTER and pointer.isprintable()
    if not well_formed or not _POINTER.fullmatch(pointer):
        rule = f"a JSON pointer (RFC 6901) of at most {LONGEST_POINTER} printable characters, such as {ROOT_POINTER}"
        raise InvalidInput(name, pointer, rule)


def _check_name(value: str, name: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME or not value.isprintable():
        raise InvalidInput(name, value, f"1 to {LONGEST_NAME} printable characters")


def _members(document: object, name: str, members: tuple[str, ...]) -> list[Any]:
    if not isinstance(document, dict) or set(document) != set(members):
        raise InvalidInput(name, None, f"a JSON object with exactly the members {', '.join(members)}")
    return [document[member] for member in members]
