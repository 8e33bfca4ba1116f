"""JSON text against Node itself: the same bytes, or refused with a place and a reason."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
import subprocess
from typing import Any

import pytest

from melete.errors import InvalidInput, InvalidJson
from melete.packs.json_text import DEEPEST, number_text, parse, stringify

#: Reads texts in base64, a line each; answers what JSON.stringify makes of them in either order, or `!`.
NODE = """
const sorted = (value) => Array.isArray(value) ? value.map(sorted)
  : value === null || typeof value !== 'object' ? value
  : Object.fromEntries(Object.keys(value)
      .sort((a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0)).map((name) => [name, sorted(value[name])]));
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').slice(0, -1);
process.stdout.write(lines.map((line) => {
  try {
    const value = JSON.parse(Buffer.from(line, 'base64').toString('utf8'));
    return [value, sorted(value)].map((one) => Buffer.from(JSON.stringify(one)).toString('base64')).join(' ');
  } catch { return '!'; }
}).join('\\n'));
"""


def ask_node(texts: list[bytes]) -> list[tuple[bytes, bytes] | None]:
    """What Node makes of each text, in both orders; None for what it does not take for JSON."""
    lines = "".join(base64.b64encode(text).decode() + "\n" for text in texts)
    done = subprocess.run(["node", "-e", NODE], input=lines, capture_output=True, text=True, check=True)
    answers: list[tuple[bytes, bytes] | None] = []
    for line in done.stdout.split("\n"):
        first, _, second = line.partition(" ")
        answers.append(None if line == "!" else (base64.b64decode(first), base64.b64decode(second)))
    assert len(answers) == len(texts)
    return answers


def ask_us(text: bytes) -> tuple[bytes, bytes] | InvalidJson:
    try:
        value = parse(text)
        return stringify(value), stringify(value, order="reference")
    except InvalidJson as refusal:
        return refusal


# Texts

LISTS = r"""
    0 -0 -0.0 1.0 1E2 1e21 1e20 1e5 1e+05 123456789012345678901234567890e-9 5e-7 0.000001 1e-7 1e-6 -1.25e-9 0.1 2.5
    9007199254740991 9007199254740992 9007199254740994 18446744073709551616 100000000000000000000 123456789.125
    1000000000000000000000 99999999999999990000 1e-400 4.9e-324 1.7976931348623157e308 1.5e300 0.30000000000000004
    |
    9007199254740993 -9007199254740993 123456789012345678901 1E400 -1e400 01 +1 1. .5 NaN Infinity - 1e 0x1 1_000
    |
    0 1 2 10 01 -1 1.5 4294967294 4294967295 4294967296 9007199254740991 99999999999
    a b aa title files constructor toString length __proto prototype " \ / ~
"""
EXACT, INEXACT, NAMES = (part.split() for part in LISTS.split("|"))
INEXACT.append("\u0661")
NAMES += ["", " ", "\u2028", "\x00", "\x7f", "\u00e9", "e\u0301", "\u00df", "\u0661", "\U0001f600", "\ufb33"]
STRINGS = ["", "a", "\u2028\u2029", "\x00\x1f\x7f\x80", '"\\/\b\f\n\r\t', "\U0001f600", "\ud800", "\udc00\ud83d"]
SPACES = ["", " ", "\n", "\r\n", "\t", "  "]


def draw_text(rng: random.Random, depth: int = 0) -> str:
    """A JSON text as somebody might write it, now and then a wrong one."""
    space = rng.choice(SPACES)
    choice = rng.random()
    if choice < 0.45 and depth < 4:
        names = rng.sample(NAMES, rng.randint(0, 7))
        if rng.random() < 0.01 and names:
            names.append(rng.choice([names[0], "__proto__"]))
        members = (f"{space}{draw_string(rng, name)}{space}:{draw_text(rng, depth + 1)}" for name in names)
        return f"{space}{{{','.join(members)}{space}}}{space}"
    if choice < 0.6 and depth < 4:
        return f"{space}[{','.join(draw_text(rng, depth + 1) for _ in range(rng.randint(0, 4)))}{space}]"
    if choice < 0.75:
        return space + (rng.choice(EXACT if rng.random() < 0.98 else INEXACT))
    if choice < 0.95:
        return draw_string(rng, rng.choice(STRINGS) + rng.choice(NAMES)) + space
    return rng.choice(
        ["true", "false", "null", "[]", "{}"] * 30 + ["True", "undefined", "'a'", "[,]", "[1,]", '"\t"', "\u00a01"]
    )


def draw_string(rng: random.Random, text: str) -> str:
    """A JSON string of a text, escaped where it has to be or where somebody felt like it."""
    escaped = json.dumps(text) if rng.random() < 0.3 else json.dumps(text, ensure_ascii=False)
    try:
        escaped.encode()
    except UnicodeEncodeError:
        escaped = json.dumps(text)
    return escaped


def draw_manifest(rng: random.Random) -> str:
    """A manifest with members of every kind between its own."""
    own = [
        ("name", '"pack"'), ("version", '{"number": 1.0}'), ("layout", '"semantic-cluster"'), ("signed", "true"),
        ("capability_files", '["a.md", "b.md"]'), ("primitive_counts", '{"goal": 0, "claim": 1e2}'),
        ("signature", '"x"'), ("public_key", '"k"'),
    ]  # fmt: skip
    extra = [(name, draw_text(rng, 2)) for name in rng.sample(NAMES, 3)]
    members = own + extra
    rng.shuffle(members)
    return "{" + ",\n ".join(f"{json.dumps(name)}: {value}" for name, value in members) + "}"


def test_signed_bytes_are_those_of_node_or_refused_over_fuzzed_manifests() -> None:
    rng = random.Random(20)
    texts = [draw(rng).encode() for draw in (draw_text, draw_manifest) for _ in range(3000)]
    same = refused = 0
    for text, theirs in zip(texts, ask_node(texts), strict=True):
        ours = ask_us(text)
        if isinstance(ours, InvalidJson):
            refused += 1
            # What Node reads and we do not is refused for one of these reasons only.
            assert theirs is None or any(
                reason in ours.rule for reason in ("stands twice", "__proto__", "JavaScript", "use a string")
            ), (text, ours)
        else:
            same += 1
            assert ours == theirs, text
    assert same > 3500
    assert refused > 100


def test_what_node_refuses_is_refused() -> None:
    texts = [
        *(b"", b"{", b"[1,]", b"{'a':1}", b'{"a":1,}', b"\xef\xbb\xbf{}", b"01", b"1.", b".5", b"+1", b"NaN", b"[,"),
        *(b"-Infinity", b'"\t"', b'"\\x41"', b'"\\u12g4"', b"\xc2\xa0{}", b"\x0b1", b"nul", b"[1] 2", b'"a'),
        *(b"// c\n1", b'{"a"}'),
        *('"\u0661"x'.encode(), "\u0661".encode(), "[1\u2028]".encode(), b'{1:2}', b"\x00", b"tru\xc3\xa9"),
    ]  # fmt: skip
    for text, theirs in zip(texts, ask_node(texts), strict=True):
        assert theirs is None, text
        assert isinstance(ask_us(text), InvalidJson), text


def test_number_text_is_that_of_node() -> None:
    rng = random.Random(21)
    numbers = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(3000)]
    numbers += [rng.randint(1, 10**17) * 10.0 ** rng.randint(-30, 20) for _ in range(3000)]
    numbers = [number for number in numbers if math.isfinite(number)]
    for number, theirs in zip(numbers, ask_node([repr(number).encode() for number in numbers]), strict=True):
        assert theirs is not None
        assert number_text(number).encode() == theirs[0]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"),
        (5e-7, "5e-7"),
        (0.000001, "0.000001"),
        (1.5e-9, "1.5e-9"),
        (-2.5, "-2.5"),
        (5e-324, "5e-324"),
        (2**53, "9007199254740992"),
        (10**21, "1e+21"),
        (2**70, "1.1805916207174113e+21"),
    ],
)
def test_number_text_is_that_of_ecmascript(number: float, text: str) -> None:
    assert number_text(number) == text


# What is read


def test_integers_come_as_int_however_they_are_written() -> None:
    values = parse("[1, 1.0, 1e2, -0, -0.0, 9007199254740992, 1e300, 0.5]")
    assert values == [1, 1, 100, 0, 0, 2**53, 1e300, 0.5]
    assert isinstance(values, list)
    assert [type(value) for value in values] == [int, int, int, int, int, int, float, float]


def test_members_that_are_array_indexes_come_first() -> None:
    text = '{"b":1,"10":2,"2":3,"01":4,"4294967295":5,"4294967294":6,"":7}'
    assert stringify(parse(text)) == b'{"2":3,"10":2,"4294967294":6,"b":1,"01":4,"4294967295":5,"":7}'


def test_reference_order_is_length_and_then_code_units_at_every_depth() -> None:
    value = parse('{"name":1,"zz":{"b":1,"a":2},"\U0001f600":3,"\ufb33\ufb33":4,"é":5,"9":6,"10":7}')
    assert stringify(value, order="reference").decode() == (
        '{"9":6,"10":7,"é":5,"zz":{"a":2,"b":1},"\U0001f600":3,"\ufb33\ufb33":4,"name":1}'
    )


def test_lone_surrogates_are_written_as_escapes_and_line_separators_as_they_are() -> None:
    value = parse(r'["\ud800", "\ud83d\ude00", "\udc00x", "\u2028"]')
    assert stringify(value) == '["\\ud800","\U0001f600","\\udc00x","\u2028"]'.encode()
    assert stringify("\ud83d" + "\ude00") == '"\U0001f600"'.encode()


@pytest.mark.parametrize(
    ("text", "pointer", "reason"),
    [
        ('{"a":1,"a":1}', "/a", "stands twice"),
        ('{"x":[{"a":1,"b":2,"a":3}]}', "/x/0/a", "stands twice"),
        ('{"a":1,"\\u0061":2}', "/a", "stands twice"),
        ('{"a":{"__proto__":{}}}', "/a/__proto__", "JavaScript"),
        ('{"~/":{"x":1,"x":2}}', "/~0~1/x", "stands twice"),
        ("[9007199254740993]", "/0", "9007199254740992 to JavaScript"),
        ('{"n":-9007199254740993}', "/n", "use a string"),
        ("[1,1E400]", "/1", "writes null"),
        ("[1,-1e400]", "/1", "writes null"),
        ("[" + "9" * 10_000 + "]", "/0", "beyond double precision"),
        ("[NaN]", "/0", "not JSON"),
        ('{"a":Infinity}', "/a", "not JSON"),
        ("\ufeff{}", "", "byte order mark"),
        ("{,}", "", "line 1, column 2"),
        ('{"a":1,"a":2', "", "not JSON"),
    ],
)
def test_parse_names_the_place_and_the_reason(text: str, pointer: str, reason: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse(text)
    assert caught.value.pointer == pointer
    assert reason in caught.value.rule
    assert str(caught.value).isprintable()


def test_parse_names_the_byte_that_is_not_utf8() -> None:
    with pytest.raises(InvalidJson, match=r"not UTF-8 \(byte 3\)"):
        parse(b'["a\xff"]')


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_is_bounded_alike_when_read_and_when_written(brackets: str) -> None:
    def nest(levels: int) -> str:
        opening = "[" if brackets == "[]" else '{"a":'
        return opening * (levels - 1) + brackets + brackets[1] * (levels - 1)

    deepest = parse(nest(DEEPEST))
    assert stringify(deepest).decode() == nest(DEEPEST)
    for levels in (DEEPEST + 1, 5000, 200_000):
        with pytest.raises(InvalidJson, match="nested"):
            parse(nest(levels))
    with pytest.raises(InvalidJson, match="nested"):
        stringify([deepest])


def test_width_is_no_depth() -> None:
    text = json.dumps([[]] * 500 + [{"a": []}] * 500).replace(" ", "")
    assert stringify(parse(text)).decode() == text


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (math.nan, ""),
        ([math.inf], "/0"),
        ({"a": -math.inf}, "/a"),
        ([2**53 + 1], "/0"),
        ([10**400], "/0"),
        ({"a": {"b": b"x"}}, "/a/b"),
        ([(1, 2)], "/0"),
        ({"a": {1: 2}}, "/a"),
        (object(), ""),
    ],
)
def test_stringify_refuses_what_javascript_would_write_otherwise(value: Any, pointer: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        stringify(value)
    assert caught.value.pointer == pointer


def test_stringify_knows_two_orders() -> None:
    with pytest.raises(InvalidInput) as caught:
        stringify({}, order="sorted")
    assert caught.value.field == "order"
