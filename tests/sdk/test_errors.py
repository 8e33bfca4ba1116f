from __future__ import annotations

import inspect
import json
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_utils import keccak, to_checksum_address
from hypothesis import given
from hypothesis import strategies as st

import melete
from melete import errors
from melete.chain.reverts import error_classes
from melete.errors import (
    ConfigurationError,
    ContractError,
    CouldNotTell,
    InvalidInput,
    MeleteError,
    NodeRefused,
    RevertReason,
    VerificationError,
    show,
)
from melete.primitives import Address, Bytes32

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, MeleteError)]
#: Classes to catch, never raised themselves.
FAMILIES = [cls for cls in CLASSES if any(cls in other.__bases__ for other in CLASSES) and not cls.sentence]
RAISED = [cls for cls in CLASSES if cls not in FAMILIES]

VALUES: dict[str, Any] = {
    "int": 7,
    "float": 1.5,
    "bytes": Bytes32(b"\xab" * 32),
    "str": "words",
    "object": Address(b"\xcd" * 20),
}


def fields_of(cls: type[MeleteError]) -> dict[str, Any]:
    return cls.members


def build(cls: type[MeleteError], **given: Any) -> MeleteError:
    values = {name: VALUES[kind] for name, kind in fields_of(cls).items()}
    return cls(**{**values, **given})


# The tree


def drawn() -> Iterator[tuple[str, str]]:
    """Each class that the docstring draws, with the family that it hangs from; `A ... B` stands for all between."""
    tree = (errors.__doc__ or "").split("\n\n")[1]
    in_source = [cls.__name__ for cls in CLASSES]
    families = {0: "MeleteError"}
    for line in tree.splitlines():
        branch = re.match(r"^ {4}((?:[│ ] {3})*)[├└]── (\S.*?)(?:  .*)?$", line)
        if branch is None:
            continue
        depth = len(branch[1]) // 4 + 1
        for part in branch[2].split(", "):
            first, _, last = part.partition(" ... ")
            families[depth] = first
            between = in_source[in_source.index(first) : in_source.index(last or first) + 1]
            yield from ((name, families[depth - 1]) for name in between)


def test_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    actual = {(cls.__name__, base.__name__) for cls in CLASSES for base in cls.__bases__ if base in CLASSES}
    assert set(drawn()) == actual


def test_families_of_the_three_answers_share_no_class() -> None:
    answers = [errors.InputError, ConfigurationError, VerificationError, CouldNotTell]
    for cls in RAISED:
        assert sum(issubclass(cls, answer) for answer in answers) == 1


def test_every_error_of_the_package_is_in_the_tree() -> None:
    for path in Path(melete.__file__).parent.rglob("*.py"):
        if path.name != "errors.py":
            assert not re.search(
                r"^class [A-Z]\w*\(.*(Error|Exception)\b.*\):", path.read_text("utf-8"), re.MULTILINE
            ), path


# Sentences


@pytest.mark.parametrize("cls", RAISED)
def test_every_error_says_one_sentence_with_its_values_in_it(cls: type[MeleteError]) -> None:
    error = build(cls)
    message = str(error)
    assert message.endswith(".")
    assert message.isprintable()
    assert "{" not in message
    shown = {name for _, name, _, _ in string.Formatter().parse(cls.sentence) if name}
    assert shown <= set(fields_of(cls))
    for name in shown:
        value = getattr(error, name)
        forms = [str(value), show(value)]
        assert any(form in message for form in forms), f"{name} does not stand in: {message}"


@pytest.mark.parametrize("cls", RAISED)
def test_values_of_an_error_are_its_attributes(cls: type[MeleteError]) -> None:
    assert vars(build(cls)) == {name: VALUES[kind] for name, kind in fields_of(cls).items()}


@pytest.mark.parametrize("cls", RAISED)
def test_every_error_survives_a_pickle(cls: type[MeleteError]) -> None:
    error = build(cls)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is cls
    assert vars(again) == vars(error)
    assert str(again) == str(error)


@pytest.mark.parametrize("cls", [cls for cls in RAISED if issubclass(cls, errors.InputError)])
def test_errors_of_input_are_value_errors_too(cls: type[MeleteError]) -> None:
    assert issubclass(cls, ValueError)


# What comes from outside

HOSTILE = [
    "\x1b[2J\x1b[31mall is well\x1b[0m",
    "\x00\x07\x08\r\nanother line",
    "\u202egnp.exe",
    "\u2066\u200b\ufeff",
    "\x9b31m",
    "\ud800",
    "A" * 10**6,
    "\U0001f600" * 10**6,
    b"\xff" * 10**6,
    10**5000,
    ["x"] * 10**6,
    {"\x1b": "\x1b"},
]


def fields_shown(cls: type[MeleteError], plainly: bool) -> list[str]:
    parts = string.Formatter().parse(cls.sentence)
    return [name for _, name, spec, _ in parts if name and (spec == "plain") == plainly]


@pytest.mark.parametrize("cls", RAISED)
def test_hostile_values_never_reach_the_message_raw(cls: type[MeleteError]) -> None:
    for name in fields_shown(cls, plainly=False):
        for value in HOSTILE:
            message = str(build(cls, **{name: value}))
            assert message.isascii()
            assert message.isprintable()
            assert len(message) < 600


#: Fields that print as they are: names and sentences of the package's own, addresses, and URLs made safe before.
PLAIN = {
    ("InvalidInput", "field"),
    ("InvalidInput", "rule"),
    ("InvalidJson", "rule"),
    ("InvalidSignature", "reason"),
    ("ConfigurationError", "reason"),
    ("BrokenBundle", "rule"),
    ("BrokenHistory", "rule"),
    ("WitnessMismatch", "commitment"),
    ("CrossCheckFailed", "view"),
    ("CodeMismatch", "address"),
    ("NodeUnreachable", "url"),
    ("NodeUnreachable", "reason"),
    ("NodeRefused", "request"),
    ("NoContract", "address"),
    ("NotARegistry", "address"),
    ("NotARegistry", "view"),
    ("MissingExtra", "extra"),
    ("MissingExtra", "need"),
    ("MissingFile", "reason"),
}


@pytest.mark.parametrize("cls", RAISED)
def test_no_further_field_prints_as_it_is(cls: type[MeleteError]) -> None:
    assert {(cls.__name__, name) for name in fields_shown(cls, plainly=True)} <= PLAIN
    assert not (issubclass(cls, ContractError) and fields_shown(cls, plainly=True))


@given(st.text() | st.binary() | st.integers() | st.floats() | st.lists(st.integers()) | st.none() | st.booleans())
def test_any_value_is_shown_in_one_short_printable_line(value: Any) -> None:
    for error in (InvalidInput("field", value, "right"), NodeRefused("eth_call", value), RevertReason(value)):
        message = str(error)
        assert message.isascii()
        assert message.isprintable()
        assert len(message) < 300


@pytest.mark.parametrize("value", ["{field}", "{0}", "{value.__class__}", "%s", "{"])
def test_braces_in_a_value_are_only_text(value: str) -> None:
    assert value in str(InvalidInput("field", value, "right"))


def test_short_values_are_shown_whole() -> None:
    assert show(Bytes32(b"\xab" * 32)) == "0x" + "ab" * 32
    assert show(b"\xcd" * 20) == "0x" + "cd" * 20
    assert show(Address(b"\xcd" * 20)) == to_checksum_address(b"\xcd" * 20)
    assert show("tea") == "'tea'"
    assert [show(value) for value in (7, -1, 2**256 - 1, 1.5, True, None)] == [
        "7", "-1", str(2**256 - 1), "1.5", "True", "None"
    ]  # fmt: skip


# The errors of the contracts

#: Solidity errors whose name belongs to something else on this side.
RENAMED = {"InvalidSignature": "SignatureError", "InvalidSignatureS": "SignatureErrorS"}
ABI_FOLDER = Path(inspect.getfile(melete)).parent / "chain" / "abi"
ABI_ERRORS = [
    pytest.param(entry, id=f"{path.stem}-{entry['name']}")
    for path in sorted(ABI_FOLDER.glob("*.json"))
    for entry in json.loads(path.read_text("utf-8"))["abi"]
    if entry["type"] == "error"
]


def in_snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def test_there_are_abis_to_walk() -> None:
    assert len(ABI_ERRORS) >= 10


@pytest.mark.parametrize("entry", ABI_ERRORS)
def test_every_abi_error_has_its_class_with_the_same_arguments(entry: dict[str, Any]) -> None:
    cls = getattr(errors, RENAMED.get(entry["name"], entry["name"]))
    assert issubclass(cls, ContractError)
    assert cls.signature == f"{entry['name']}({','.join(argument['type'] for argument in entry['inputs'])})"
    assert list(fields_of(cls)) == [in_snake_case(argument["name"]) for argument in entry["inputs"]]
    assert error_classes()[keccak(text=cls.signature)[:4]] is cls


def test_every_error_of_the_standard_has_its_class() -> None:
    named = [
        "ZeroSpaceId", "ZeroAddress", "InvalidSpaceId", "SpaceAlreadyRegistered", "InvalidAuthorization",
        "UnknownSpace", "ZeroDeltaCommitment", "ZeroProfileId", "BadSequence", "BadPreviousState",
    ]  # fmt: skip
    for name in named:
        assert issubclass(getattr(errors, name), ContractError)
