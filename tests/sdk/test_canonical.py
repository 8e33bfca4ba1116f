from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.canonical import (
    canonicalize,
    canonicalize_json,
    check_readable,
    compute_content_hash,
    load_canonical,
    load_json,
)
from melete.errors import InvalidJson

from .strategies import json_values, texts

# What is written


@pytest.mark.parametrize(
    ("text", "canonical", "content_hash"),
    [
        (
            '{"b":1,"a":[true,null,"x"],"c":{"z":1.5,"y":"é"}}',
            '{"a":[true,null,"x"],"b":1,"c":{"y":"é","z":1.5}}',
            "0xa5bf818c53f5a4b41e090fb63de6621bd9efe8da3a89e87bc41e7fcd004f9031",
        ),
        (
            '{"€":1,"A":2,"a":3,"":4}',
            '{"":4,"A":2,"a":3,"€":1}',
            "0x22816a6b64184a15ee2d60a54c0f519ec38dbf7310593294a545467c66c5ea77",
        ),
        (
            r'{"n":1e21,"m":0.000001,"k":-0,"s":"line\nbreak\ttab\"quote\\"}',
            r'{"k":0,"m":0.000001,"n":1e+21,"s":"line\nbreak\ttab\"quote\\"}',
            "0x8953829f4ccb00b31d6f6ea5b40793765a654514a2049b6e1fb99ab38be2f069",
        ),
    ],
    ids=["members_sorted_at_every_depth", "empty_member_name", "numbers_and_escapes"],
)
def test_canonical_form_is_the_published_one(text: str, canonical: str, content_hash: str) -> None:
    assert canonicalize_json(text) == canonicalize_json(text.encode()) == canonical.encode()
    assert str(compute_content_hash(load_json(text))) == content_hash


def test_members_sort_by_utf_16_code_unit_so_an_emoji_stands_before_u_fb33() -> None:
    assert canonicalize({"\ufb33": 2, "\U0001f600": 1}) == '{"\U0001f600":1,"\ufb33":2}'.encode()


def test_two_spellings_of_one_glyph_stay_two_members() -> None:
    assert canonicalize({"\u00e9": 1, "e\u0301": 2}) == '{"e\u0301":2,"\u00e9":1}'.encode()


def test_only_what_must_be_escaped_is_escaped() -> None:
    assert canonicalize("\x00\x1f\x7f\u2028/é") == '"\\u0000\\u001f\x7f\u2028/é"'.encode()


@pytest.mark.parametrize("number", [2**53 - 1, -(2**53) + 1, 0])
def test_integers_up_to_the_last_safe_one_are_kept(number: int) -> None:
    assert canonicalize_json(str(number)) == canonicalize(number) == str(number).encode()


@given(json_values)
def test_content_hash_is_the_keccak_of_the_canonical_bytes(value: Any) -> None:
    assert compute_content_hash(value) == keccak(canonicalize(value))


@given(json_values)
def test_canonical_bytes_of_a_value_do_not_depend_on_how_its_text_is_written(value: Any) -> None:
    canonical = canonicalize(value)
    for text in (json.dumps(value), json.dumps(value, indent=3, ensure_ascii=False)):
        assert canonicalize_json(text) == canonical


NODE = shutil.which("node")
CANONICAL_IN_JAVASCRIPT = """
const write = (value) =>
    Array.isArray(value) ? '[' + value.map(write).join(',') + ']'
    : value !== null && typeof value === 'object'
        ? '{' + Object.keys(value).sort().map((name) => JSON.stringify(name) + ':' + write(value[name])).join(',') + '}'
        : JSON.stringify(value);
require('readline').createInterface({ input: process.stdin })
    .on('line', (line) => process.stdout.write(write(JSON.parse(line)) + '\\n'));
"""


@pytest.fixture(scope="module")
def javascript() -> Iterator[Callable[[str], str]]:
    """Sort by code unit and stringify, in the language that RFC 8785 borrows both from."""
    assert NODE is not None
    command = [NODE, "-e", CANONICAL_IN_JAVASCRIPT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as node:
        assert node.stdin is not None
        assert node.stdout is not None
        stdin, stdout = node.stdin, node.stdout

        def answer(text: str) -> str:
            stdin.write(text + "\n")
            stdin.flush()
            return stdout.readline().removesuffix("\n")

        yield answer
        stdin.close()


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
@given(st.lists(json_values, max_size=8))
def test_canonical_bytes_are_those_of_javascript(javascript: Callable[[str], str], value: Any) -> None:
    assert canonicalize(value).decode() == javascript(json.dumps(value))


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=10, max_size=30))
def test_numbers_are_written_as_javascript_writes_them(javascript: Callable[[str], str], value: list[float]) -> None:
    assert canonicalize(value).decode() == javascript(json.dumps(value))


# What is read back

wide_floats = st.integers(2**53, 10**21 - 1).map(float).filter(lambda number: number < 1e21)


@given(st.recursive(json_values | wide_floats | wide_floats.map(lambda number: -number), st.lists, max_leaves=6))
def test_what_is_kept_is_read_as_the_value_with_the_same_canonical_bytes(value: Any) -> None:
    kept = canonicalize(value)
    assert canonicalize(load_canonical(kept)) == kept


@given(json_values | wide_floats.map(lambda number: [{"a/b": -number}]))
def test_readable_is_exactly_what_is_read_back(value: Any) -> None:
    """Where there are several faults, the first is told, and members stand in another order once they are canonical."""
    found = place_of_fault(lambda: check_readable(value))
    read_back = place_of_fault(lambda: load_json(canonicalize(value)))
    assert (found is None) == (read_back is None)


@given(wide_floats)
def test_what_is_not_read_back_is_told_at_its_place(number: float) -> None:
    value = {"fine": 1, "not": [0, {"a/b": -number}]}
    found = place_of_fault(lambda: check_readable(value))
    assert found == place_of_fault(lambda: load_json(canonicalize(value))) == "/not/1/a~1b"


def place_of_fault(action: Callable[[], object]) -> str | None:
    try:
        action()
    except InvalidJson as error:
        return error.pointer
    return None


@pytest.mark.parametrize("digits", ["9007199254740993", "10000000000000001", "-" + "9" * 21, "9" * 30])
def test_integer_that_no_float_is_written_as_was_not_written_here(digits: str) -> None:
    assert fault(lambda: load_canonical(f'{{"a":{digits}}}'.encode())).pointer == "/a"


# What is refused


def fault(action: Callable[[], object]) -> InvalidJson:
    with pytest.raises(InvalidJson) as caught:
        action()
    return caught.value


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1E400", "-1E400", "9" * 400 + ".0", "9007199254740992",
               "-9007199254740992", "9" * 20, "9" * 21, "-" + "9" * 5000],
    ids=lambda number: number[:24],
)  # fmt: skip
@pytest.mark.parametrize(("wrap", "pointer"), [("{}", ""), ('[0,{{"a":{}}}]', "/1/a"), ('{{"":[{}]}}', "//0")])
def test_load_json_refuses_a_number_that_readers_differ_on(number: str, wrap: str, pointer: str) -> None:
    assert fault(lambda: load_json(wrap.format(number))).pointer == pointer


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('{"a":1,"a":1}', "/a"),
        ('{"a":1,"b":2,"\\u0061":3}', "/a"),
        ('{"":1,"":2}', "/"),
        ('[{},{"a":{"b":[{"c":1,"c":2}]}}]', "/1/a/b/0/c"),
        ('{"a/b~c":{"~":1,"~":2}}', "/a~1b~0c/~0"),
        ('{"~1":[{"/":1,"/":2}]}', "/~01/0/~1"),
        ('{"__proto__":1,"__proto__":2}', "/__proto__"),
    ],
)
def test_load_json_refuses_a_duplicate_member_and_points_at_it(text: str, pointer: str) -> None:
    error = fault(lambda: load_json(text))
    assert error.pointer == pointer
    assert "twice" in error.rule


@pytest.mark.parametrize("surrogates", ["\\ud800", "\\udfff", "\\ude00\\ud83d", "a\\ud83d", "\\ud83dx\\ude00"])
def test_load_json_refuses_lone_and_reversed_surrogates(surrogates: str) -> None:
    assert fault(lambda: load_json(f'["{surrogates}"]')).pointer == "/0"
    assert fault(lambda: load_json(f'{{"a":{{"{surrogates}":1}}}}')).pointer.startswith("/a/")


def test_load_json_reads_a_surrogate_pair_as_its_character() -> None:
    assert load_json('{"\\ud83d\\ude00":"\\ud83d\\ude00"}') == {"\U0001f600": "\U0001f600"}


@pytest.mark.parametrize(
    "text",
    ["", " ", "nul", "{", "[1,]", '{"a":1,}', "{'a':1}", "1 2", "01", "+1", ".5", "1.", "0x1", '"\t"', '"\\x"',
     "\ufeff{}", "\x00", "\u0661", b"\xff", b"\xed\xa0\x80", "{}".encode("utf-16")],
    ids=ascii,
)  # fmt: skip
def test_load_json_refuses_what_is_not_json(text: str | bytes) -> None:
    assert fault(lambda: load_json(text)).pointer == ""


@given(st.text('{}[]",:\\u0d8eE.-+1 atrufalsn\ud83d', max_size=20) | st.text(max_size=20) | st.binary(max_size=20))
def test_load_json_reads_or_refuses_any_input(text: str | bytes) -> None:
    try:
        value = load_json(text)
    except InvalidJson:
        return
    assert json.loads(canonicalize(value)) == value


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("leaf", ["1", "NaN", '"\\ud800"', '{"a":1,"a":2}'])
@pytest.mark.parametrize("depth", [*range(940, 1000, 7), 2_000, 200_000])
def test_nesting_near_and_beyond_the_limit_is_read_or_refused(depth: int, leaf: str, opened: str, closed: str) -> None:
    text = opened * depth + leaf + closed * depth
    try:
        canonical = canonicalize_json(text)
    except InvalidJson:
        return
    assert (leaf, canonical) == ("1", text.encode())


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_read_a_hundred_deep_and_refused_in_our_words_a_hundred_thousand_deep(
    opened: str, closed: str
) -> None:
    shallow = opened * 100 + "1" + closed * 100
    assert canonicalize_json(shallow) == shallow.encode()
    assert "nested too deeply" in fault(lambda: load_json(opened * 100_000 + "1" + closed * 100_000)).rule


def nest(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("leaf", ["\ud800", float("nan"), 2**53, b"", {1: 2}], ids=ascii)
@pytest.mark.parametrize("depth", [*range(900, 1000, 3), 20_000])
def test_canonicalize_refuses_a_fault_near_the_limit_of_depth_by_the_same_error(depth: int, leaf: object) -> None:
    value = nest(leaf, depth)
    fault(lambda: canonicalize(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (b"bytes", ""),
        ({"a": b"x"}, "/a"),
        ({"a": [1, {2}]}, "/a/1"),
        ([Decimal(1)], "/0"),
        ({"a": object()}, "/a"),
        ([1j], "/0"),
        ({"a": {1: 2}}, "/a"),
        ({None: 1}, ""),
        ({b"a": 1}, ""),
        ({"~": {"/": float("inf")}}, "/~0/~1"),
        ([float("nan")], "/0"),
        ([[2**53]], "/0/0"),
        ({"a": -(2**53)}, "/a"),
        ({"a": ("x", "\udc00\ud800")}, "/a/1"),
    ],
    ids=ascii,
)
def test_canonicalize_refuses_what_is_not_json_and_points_at_it(value: Any, pointer: str) -> None:
    assert fault(lambda: canonicalize(value)).pointer == pointer


def test_canonicalize_points_at_a_member_whose_name_is_a_lone_surrogate() -> None:
    error = fault(lambda: canonicalize({"a": {"\ud800": 1}}))
    assert error.pointer == "/a/\ud800"
    assert str(error).isprintable()


def resolve(document: Any, pointer: str) -> Any:
    """What a JSON pointer points at. Source: RFC 6901."""
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document


@given(json_values, st.lists(texts | st.sampled_from(["~", "/", "~1", "~0"]), max_size=4), st.data())
def test_pointer_leads_to_the_fault_through_any_names(value: Any, path: list[str], data: st.DataObject) -> None:
    fault_value = data.draw(st.sampled_from([float("nan"), float("-inf"), 2**53, "\udfff"]))
    document: Any = fault_value
    for name in reversed(path):
        document = data.draw(st.sampled_from([{name: document}, [value, document]]))
    pointer = fault(lambda: canonicalize(document)).pointer
    assert resolve(document, pointer) is fault_value
    if fault_value != "\udfff":
        assert fault(lambda: load_json(json.dumps(document))).pointer == pointer
