from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from melete.canonical import canonicalize
from melete.errors import InputError, InvalidInput, InvalidJson, UnknownProfile, WitnessMismatch
from melete.memory.delta import ExperienceDelta, compute_transition_id
from melete.memory.migration import (
    LONGEST_POINTER,
    LONGEST_ROOT,
    MIGRATION_ID,
    MIGRATION_NAME,
    Migration,
    build_migration_witness,
    load_migration_profile,
    read_export,
    verify_export,
)
from melete.memory.profiles import BUILT_IN, ProfileRegistry
from melete.memory.space import GENESIS
from melete.memory.witness import verify_witness
from melete.primitives import Bytes32, keccak256
from melete.resources import load_schema

OLD_ID = Bytes32(b"\x5a" * 32)
EXPORT = {"tool": "proto", "version": "0.3.1", "root": "b64:AAECAw==", "spaceId": str(OLD_ID), "entries": [1, None]}
SALT = keccak256(b"salt")
VALIDATOR = Draft202012Validator(load_schema("space-migration"))


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def migrate(document: Any = EXPORT, **places: Any) -> Migration:
    return read_export(as_bytes(document), **places).migrate("melete", "0.1.0")


def refused(content: bytes, **places: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read_export(content, **places)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600
    return caught.value


# What is bound


def test_an_export_is_bound_by_its_bytes_and_by_what_it_states() -> None:
    content = json.dumps(EXPORT, indent=2).encode()
    export = read_export(content)
    assert export.migrate("melete", "0.1.0") == Migration(
        len(content),
        keccak256(content),
        Bytes32(hashlib.sha256(content).digest()),
        "b64:AAECAw==",
        "/root",
        "proto",
        "0.3.1",
        "melete",
        "0.1.0",
    )


def test_the_payload_is_the_canonical_json_of_the_schema() -> None:
    migration = migrate()
    VALIDATOR.validate(migration.to_json())
    assert migration.to_payload() == canonicalize(migration.to_json())
    assert Migration.from_payload(migration.to_payload()) == migration


def test_white_space_alone_makes_another_export() -> None:
    assert read_export(as_bytes(EXPORT)).keccak256 != read_export(as_bytes(EXPORT) + b"\n").keccak256


def test_other_members_change_nothing_but_the_digests() -> None:
    one, other = migrate(), migrate({**EXPORT, "entries": ["other"]})
    assert one != other
    digests = {"export_bytes": 1, "export_keccak256": SALT, "export_sha256": SALT}
    assert replace(one, **digests) == replace(other, **digests)


def test_a_migration_becomes_the_first_delta_of_any_space_and_its_witness_opens_it() -> None:
    witness = build_migration_witness(migrate(), SALT)
    delta = witness.build_delta(keccak256(b"space"), GENESIS)
    assert (delta.sequence, delta.profile_id) == (1, MIGRATION_ID)
    assert verify_witness(delta, witness) == delta
    assert Migration.from_payload(witness.payload) == migrate()


def test_the_export_that_was_bound_verifies_and_no_other_does() -> None:
    content = as_bytes(EXPORT)
    migration = migrate()
    assert verify_export(migration, content) == migration
    for wrong in (content + b" ", content[:-1], content.replace(b"proto", b"prota"), b""):
        with pytest.raises(WitnessMismatch, match="keccak256"):
            verify_export(migration, wrong)
    for name, member in (("sha256", "export_sha256"), ("length", "export_bytes")):
        value = 7 if member == "export_bytes" else SALT
        with pytest.raises(WitnessMismatch, match=name):
            verify_export(replace(migration, **{member: value}), content)


# The profile


def test_the_profile_encodes_decodes_and_has_the_schema() -> None:
    profile = ProfileRegistry([load_migration_profile()]).find(MIGRATION_ID)
    assert (profile.name, profile.schema) == (MIGRATION_NAME, load_schema("space-migration"))
    migration = migrate()
    assert profile.decode(profile.encode(migration)) == migration
    Draft202012Validator(profile.schema).validate(profile.to_json(migration))


def test_the_profile_is_not_taken_for_one_of_the_built_in_ones() -> None:
    assert MIGRATION_ID not in {profile.id for profile in BUILT_IN}
    with pytest.raises(UnknownProfile):
        ProfileRegistry().find(MIGRATION_ID)


@pytest.mark.parametrize("value", [None, b"", "text", {"export": {}}])
def test_only_a_migration_is_encoded(value: Any) -> None:
    with pytest.raises(InvalidInput):
        load_migration_profile().encode(value)


def changed(*path: str, to: Any = None) -> dict[str, Any]:
    document: Any = migrate().to_json()
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return document  # type: ignore[no-any-return]


WRONG_PAYLOADS: dict[str, Any] = {
    "member_missing": changed("export", "root"),
    "member_added": changed("export", "spaceId", to=str(OLD_ID)),
    "no_migrator": changed("migrator"),
    "migrator_is_text": changed("migrator", to="melete"),
    "migrator_without_version": changed("migrator", "version"),
    "migrator_empty": changed("migrator", "tool", to=""),
    "bytes_as_text": changed("export", "bytes", to="12"),
    "bytes_negative": changed("export", "bytes", to=-1),
    "bytes_zero": changed("export", "bytes", to=0),
    "bytes_true": changed("export", "bytes", to=True),
    "digest_short": changed("export", "sha256", to="0x12"),
    "digest_without_prefix": changed("export", "keccak256", to="12" * 32),
    "digest_in_capitals": changed("export", "keccak256", to="0x" + "AB" * 32),
    "digest_is_a_number": changed("export", "keccak256", to=12),
    "root_is_a_number": changed("export", "root", to=7),
    "root_empty": changed("export", "root", to=""),
    "root_too_long": changed("export", "root", to="x" * (LONGEST_ROOT + 1)),
    "root_with_control_characters": changed("export", "root", to="\x1b[2J"),
    "root_with_a_line_end": changed("export", "root", to="root\n"),
    "pointer_without_slash": changed("export", "rootPointer", to="root"),
    "pointer_ill_escaped": changed("export", "rootPointer", to="/~2"),
    "pointer_too_long": changed("export", "rootPointer", to="/" + "x" * LONGEST_POINTER),
    "tool_empty": changed("export", "tool", to=""),
    "tool_is_a_list": changed("export", "tool", to=["proto"]),
    "a_list": [],
    "text": "text",
}


@pytest.mark.parametrize("name", WRONG_PAYLOADS)
def test_another_payload_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Migration.from_payload(canonicalize(WRONG_PAYLOADS[name]))
    assert caught.value.value is None
    assert not VALIDATOR.is_valid(WRONG_PAYLOADS[name])


@pytest.mark.parametrize("change", [lambda text: b" " + text, lambda text: text + b"\n", lambda text: text[:-1]])
def test_another_spelling_of_a_payload_is_refused(change: Any) -> None:
    with pytest.raises(InvalidInput):
        Migration.from_payload(change(migrate().to_payload()))


# What is read of an export


@pytest.mark.parametrize(
    ("document", "pointer", "root"),
    [
        ({"state": {"root": "r"}}, "/state/root", "r"),
        ({"log": [{"root": "first"}, {"root": "second"}]}, "/log/1/root", "second"),
        ({"": {"": "empty names"}}, "//", "empty names"),
        ({"a/b": {"m~n": "escaped"}}, "/a~1b/m~0n", "escaped"),
        ({"~1": "not a slash"}, "/~01", "not a slash"),
        ({"0": "a name, not an index"}, "/0", "a name, not an index"),
        ("a text alone", "", "a text alone"),
    ],
)
def test_the_root_is_read_where_a_pointer_says(document: Any, pointer: str, root: str) -> None:
    assert read_export(as_bytes(document), root=pointer).root == root


@pytest.mark.parametrize(
    ("document", "stated"),
    [
        ({"root": "r"}, (None, None)),
        ({"root": "r", "tool": "t", "version": 3}, ("t", "3")),
        ({"root": "r", "version": 1.50}, (None, "1.5")),
        ({"root": "r", "tool": {"name": "t"}, "version": ["1"]}, (None, None)),
        ({"root": "r", "tool": None, "version": None}, (None, None)),
        ({"root": "r", "tool": "\x1b", "version": "v" * 129}, (None, None)),
        ({"root": "r", "tool": "", "version": "ok"}, (None, "ok")),
    ],
)
def test_tool_and_version_are_taken_where_they_are_stated_as_such(document: Any, stated: Any) -> None:
    export = read_export(as_bytes(document))
    assert (export.tool, export.tool_version) == stated


def test_tool_and_version_are_read_from_other_places_too() -> None:
    document = {"root": "r", "meta": {"by": "t", "numbers": [1, 2.5e300]}}
    export = read_export(as_bytes(document), tool="/meta/by", version="/meta/numbers/1")
    assert (export.tool, export.tool_version) == ("t", "2.5e+300")


def test_what_no_strict_reader_takes_is_no_reason_to_refuse_an_export() -> None:
    content = b'\xef\xbb\xbf{"at": 1e999, "id": 123456789012345678901, "x": NaN, "x": 1, "y": "\\ud800", "root": "r"}'
    export = read_export(content)
    assert (export.root, export.keccak256) == ("r", keccak256(content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"root": "\xff"}', "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"root":' * 100_000, "nested too deeply"),
        (b"{}", "nothing there"),
        (b"[]", "nothing there"),
        (b"7", "nothing there"),
        (b'"root"', "nothing there"),
        (b'{"Root": "r"}', "nothing there"),
        (b'{"root": null}', "printable ASCII"),
        (b'{"root": 7}', "printable ASCII"),
        (b'{"root": true}', "printable ASCII"),
        (b'{"root": {"hash": "r"}}', "printable ASCII"),
        (b'{"root": ""}', "printable ASCII"),
        (b'{"root": "a\\u001b[2Jb"}', "printable ASCII"),
        (b'{"root": "a\\nb"}', "printable ASCII"),
        (b'{"root": "\\u202e"}', "printable ASCII"),
        (b'{"root": "' + b"x" * 257 + b'"}', "printable ASCII"),
        (b'{"root": "r", "root": "r"}', "stands twice"),
        (b'{"root": "r", "ro\\u006ft": "s"}', "stands twice"),
    ],
    ids=range(22),
)
def test_an_export_without_one_plain_root_is_refused(content: bytes, words: str) -> None:
    error = refused(content)
    assert isinstance(error, InvalidJson)
    assert words in error.rule


@pytest.mark.parametrize(
    "pointer", ["/log/-", "/log/01", "/log/2", "/log/-1", "/log/+0", "/log/\u0660", "/log/0/x", "/log/99999999999"]
)
def test_a_place_that_no_array_has_is_refused(pointer: str) -> None:
    assert isinstance(refused(as_bytes({"log": ["a", "b"]}), root=pointer), InvalidJson)


@pytest.mark.parametrize("pointer", ["root", "#/root", "/~", "/~2", "/a\nb", "/" * 300, "/\u202e", None])
@pytest.mark.parametrize("place", ["root", "tool", "version"])
def test_what_is_no_pointer_is_refused_by_name(pointer: Any, place: str) -> None:
    if pointer is None:
        pointer = 7
    error = refused(as_bytes(EXPORT), **{place: pointer})
    assert isinstance(error, InvalidInput)
    assert error.field == place


@pytest.mark.parametrize("place", ["tool", "version"])
@pytest.mark.parametrize("pointer", ["/nothing", "/entries", "/entries/1", "/long"])
def test_a_named_place_without_a_name_is_refused(place: str, pointer: str) -> None:
    document = {**EXPORT, "long": "x" * 129, "entries": [1, {}]}
    assert isinstance(refused(as_bytes(document), **{place: pointer}), InvalidJson)


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\ro/t\u202e\x00 0e', max_size=30).map(str.encode))
def test_any_bytes_are_read_or_refused_with_an_error_of_ours(content: bytes) -> None:
    try:
        read_export(content)
    except InputError as error:
        assert str(error).isprintable()  # noqa: PT017


# Old ids


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"spaceId": str(OLD_ID)}, "/spaceId"),
        ({"spaceId": OLD_ID.hex().upper()}, "/spaceId"),
        ({"spaceId": "0X" + OLD_ID.hex()}, "/spaceId"),
        ({"a": [{"b/c": [0, str(OLD_ID)]}]}, "/a/0/b~1c/1"),
        ({"spaces": {OLD_ID.hex(): 1}}, f"/spaces/{OLD_ID.hex()}"),
    ],
)
def test_an_id_that_stands_in_the_export_is_found_and_refused_by_name(document: Any, pointer: str) -> None:
    export = read_export(as_bytes({**document, "root": "r"}))
    assert export.find(OLD_ID) == pointer
    for name in ("spaceId", "transitionId"):
        with pytest.raises(InvalidInput, match="copied from the export") as caught:
            export.refuse_id(OLD_ID, name)
        assert caught.value.field == name


def test_an_id_that_does_not_stand_in_the_export_passes() -> None:
    export = read_export(as_bytes({**EXPORT, "near": str(OLD_ID) + "0", "cut": str(OLD_ID)[:-1]}))
    new = compute_transition_id(ExperienceDelta(keccak256(b"space"), 1, Bytes32(bytes(32)), SALT, profile_id=SALT))
    assert export.refuse_id(new, "transitionId") == new


@pytest.mark.parametrize(
    "old", ["space:alice", OLD_ID.hex(), str(OLD_ID)[:-2], "7", "550e8400-e29b-41d4-a716-446655440000"]
)
def test_an_old_id_of_another_form_is_no_word_here(old: str) -> None:
    document = ExperienceDelta(SALT, 1, SALT, SALT, profile_id=SALT).to_json()
    with pytest.raises(InvalidInput) as caught:
        ExperienceDelta.from_json({**document, "spaceId": old})
    assert caught.value.field == "spaceId"


def test_a_search_costs_no_more_than_the_document_however_it_is_built() -> None:
    """Long names over many values, and a document as deep as it can be read."""
    wide = as_bytes({"root": "r", "x" * 100_000: list(range(50_000))})
    assert read_export(wide).find(OLD_ID) is None
    deep = b'{"root":"r","a":' + b"[" * 900 + f'"{OLD_ID}"'.encode() + b"]" * 900 + b"}"
    assert read_export(deep).find(OLD_ID) == "/a" + "/0" * 900


def test_what_is_bound_is_told_in_one_printable_line() -> None:
    line = migrate({**EXPORT, "tool": "t" * 128, "version": "\u00e9"}).describe()
    assert line.isprintable()
    assert line.isascii()
    assert "b64:AAECAw==" in line
    assert str(migrate({**EXPORT, "tool": "t" * 128, "version": "\u00e9"}).export_sha256) in line
