from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.packs import frontmatter
from melete.packs.errors import BadFrontmatter
from melete.packs.frontmatter import dump_frontmatter, load_frontmatter, split_frontmatter

# Where it stands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\na: 1\n---\nrest", ("a: 1\n", "rest")),
        ("---\n---\nrest", ("", "rest")),
        ("--- \na: 1\n---\t\nrest", ("a: 1\n", "rest")),
        ("---\r\na: 1\r\n---\r\nrest", ("a: 1\r\n", "rest")),
        ("\ufeff---\na: 1\n---\nrest", ("a: 1\n", "rest")),
        ("---\na: 1\n---", ("a: 1\n", "")),
        ("---\na: |\n  x\n  ---\n---\nrest", ("a: |\n  x\n  ---\n", "rest")),
        ("rest\n---\na: 1\n---\n", (None, "rest\n---\na: 1\n---\n")),
        (" ---\na: 1\n---\n", (None, " ---\na: 1\n---\n")),
        ("----\na: 1\n---\n", (None, "----\na: 1\n---\n")),
        ("", (None, "")),
    ],
)
def test_frontmatter_stands_between_two_fences_at_the_top(text: str, expected: tuple[str | None, str]) -> None:
    split = split_frontmatter(text)
    assert (split.yaml, text[split.rest :]) == expected
    assert split.closed


@pytest.mark.parametrize("text", ["---\n", "---", "---\na: 1\n", "---\na: 1\n --- \n", "---\na: 1\n----\n"])
def test_frontmatter_without_an_end_is_told(text: str) -> None:
    split = split_frontmatter(text)
    assert not split.closed
    assert split.yaml is None


# What it holds


def test_values_are_plain_and_a_date_stays_text() -> None:
    text = "t: words, and more\nn: 7\nf: 1.5\nb: true\nz: null\nd: 2026-01-31\nl: [1, x]\nm:\n  k: v\n"
    assert load_frontmatter(text, "a") == {
        "t": "words, and more",
        **{"n": 7, "f": 1.5, "b": True, "z": None, "d": "2026-01-31", "l": [1, "x"], "m": {"k": "v"}},
    }


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n"])
def test_no_members_are_no_fault(text: str) -> None:
    assert load_frontmatter(text, "a") == {}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: &x [1]\nc: *x\n", 2, "anchors"),
        ("a: *x\n", 1, "anchors"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tags"),
        ("a: 1\nb: !!int x\n", 2, "tags"),
        ("a: !!bool maybe\n", 1, "tags"),
        ("a: !!timestamp never\n", 1, "tags"),
        ("a: ! x\n", 1, "tags"),
        ("a: 1\na: 2\n", 2, "twice"),
        ("m:\n  a: 1\n  a: 2\n", 3, "twice"),
        ("a: 1\n2: x\n", 2, "name must be text"),
        ("yes: x\n", 1, "name must be text"),
        ("? [a]\n: x\n", 1, "name must be text"),
        ("<<: {a: 1}\n", 1, "name must be text"),
        ("- a\n", 1, "members"),
        ("words\n", 1, "members"),
        ("a: [\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("\ta: 1\n", 1, "not YAML"),
        ("a: 1\n--- \nb: 2\n", 2, "more than one document"),
        ("a: \x00\n", 1, "characters"),
        ("a: \ud800\n", 1, "characters"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(BadFrontmatter, match=reason) as caught:
        load_frontmatter(text, "memory/a.md", 2)
    assert caught.value.file == "memory/a.md"
    assert caught.value.line == line + 1
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: "a: " + "9" * 5000 + "\n", "number"),
        (lambda: "a: " + "[" * 20 + "]" * 20 + "\n", "nested"),
        (lambda: "[" * 60_000, "not YAML|nested"),
        (lambda: "a: [" + "x, " * 5000 + "]\n", "more than 4096 values"),
        (lambda: "a: " + "x" * 70_000 + " \u00e9\n", "characters; shorten"),
    ],
)
def test_large_numbers_depths_and_texts_are_refused(make: Callable[[], str], reason: str) -> None:
    with pytest.raises(BadFrontmatter, match=reason):
        load_frontmatter(make(), "a")


def test_message_does_not_hold_a_secret_that_yaml_quotes() -> None:
    with pytest.raises(BadFrontmatter) as caught:
        load_frontmatter('a: "\\sk-abcdefghijklmnopqrstuvwx"\nb: *sk-abcdefghijklmnopqrstuvwx\n', "a")
    assert "abcdefghijkl" not in str(caught.value)


pieces = st.sampled_from(
    [
        *(
            "a",
            "type",
            "yes",
            "no",
            "on",
            "null",
            "y",
            "n",
            "0",
            "7",
            "010",
            "1_0",
            "1e3",
            "true",
            "True",
            "x.y",
            "(x)",
        ),
        *("a-b", "-", " - ", ":", ": ", "  ", "\n", "\n  ", "'", "#", " #", ",", ", ", "/", "...", "\r", "\t", "?"),
    ]
)
lines = st.lists(
    st.tuples(
        st.sampled_from(["", "  ", " "]),
        st.sampled_from(["a", "bb", "c_d", "on", "null"]),
        st.lists(pieces, max_size=4),
    ),
    max_size=5,
).map(lambda rows: "".join(f"{indent}{name}: {''.join(value)}\n" for indent, name, value in rows))


@given(lines | st.lists(pieces, max_size=12).map("".join))
@example("a:\n  b: 1\n")
@example("a:\n")
@example("a:\nb: 1\n")
@example("a: 1\n  b: 2\n")
def test_quick_reading_gives_what_yaml_gives(text: str) -> None:
    quick = frontmatter._load_simple(text)
    if quick is not None:
        expected = yaml.load(text, Loader=yaml.SafeLoader)
        assert quick == expected
        assert repr(quick) == repr(expected)


def test_plain_frontmatter_is_read_quickly() -> None:
    text = (
        "type: cluster\napplies_to: writing (all), voice\nsource: self\nprimitive_counts:\n  directive: 2\n  goal: 0\n"
    )
    assert frontmatter._load_simple(text) == yaml.safe_load(text)


# Writing


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), plain_values, max_size=4))
def test_what_is_written_reads_the_same(values: dict[str, Any]) -> None:
    try:
        text = dump_frontmatter(values)
    except InvalidInput:
        return
    assert load_frontmatter(text, "a") == values
    assert split_frontmatter(f"---\n{text}---\n").yaml == text


@pytest.mark.parametrize(
    "values",
    [
        {"type": "cluster", "applies_to": "a: b # c", "source": "self", "primitive_counts": {"goal": 1}},
        {"a": "yes", "b": "2026-01-31", "c": "---", "d": "a\n---\nb", "e": " x ", "f": "007", "g": ["", "~"]},
        {"a": "\u00e9\u2028\U0001f600", "b": "x" * 500 + " " + "y" * 500},
        {},
    ],
)
def test_usual_values_can_be_written(values: dict[str, Any]) -> None:
    assert load_frontmatter(dump_frontmatter(values), "a") == values


@pytest.mark.parametrize(
    "values", [{"a": float("nan")}, {1: "a"}, {"a": object()}, {"a": (1,)}, {"a": "\ud800"}, {"a": {"b": b"x"}}]
)
def test_values_that_yaml_does_not_give_back_are_refused(values: dict[Any, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        dump_frontmatter(values)
    assert caught.value.field == "frontmatter"
