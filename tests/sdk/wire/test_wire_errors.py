from __future__ import annotations

import pickle
import re

import pytest

from melete.errors import LONGEST_SHOWN, ConfigurationError, CouldNotTell, InputError, MeleteError, VerificationError
from melete.wire import errors

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__module__ == errors.__name__]
VALUES = {"int": 7, "str": "tea", "object": None}


def build(cls: type[MeleteError], text: str = "tea") -> MeleteError:
    return cls(**{name: text if kind == "str" else VALUES[kind] for name, kind in cls.members.items()})


def test_tree_in_the_docstring_names_every_class_once() -> None:
    drawn = re.findall(r"^[│ ]*[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(cls.__name__ for cls in CLASSES)


@pytest.mark.parametrize("cls", CLASSES)
def test_class_belongs_to_one_family(cls: type[MeleteError]) -> None:
    families = (InputError, ConfigurationError, VerificationError, CouldNotTell)
    assert sum(issubclass(cls, family) for family in families) == 1


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls.sentence])
def test_message_is_one_printable_sentence_whatever_the_values_hold(cls: type[MeleteError]) -> None:
    assert str(build(cls)).endswith(".")
    plain = set(re.findall(r"{(\w+):plain}", cls.sentence))
    hostile = {
        name: "tea" if name in plain else "\x1b[31m\u202e\n" + "x" * 1000 if kind == "str" else VALUES[kind]
        for name, kind in cls.members.items()
    }
    message = str(cls(**hostile))
    assert message.isprintable()
    assert len(message) < 300 + len(hostile) * (LONGEST_SHOWN + 10)


@pytest.mark.parametrize("cls", CLASSES)
def test_error_survives_a_trip_between_processes(cls: type[MeleteError]) -> None:
    error = build(cls)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), vars(again), str(again)) == (cls, vars(error), str(error))
