from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.wire.words import (
    LONGEST_WORD,
    SIZE_BITS,
    compute_class_size,
    compute_size_class,
    compute_terms,
    repeated_term,
    split_words,
    tag_term,
    term,
)

#: Any text that Python can hold, lone surrogates and NUL included.
anything = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prefers green tea", ["prefers", "green", "tea"]),
        ("multi-agent don't @nasa a OR", ["multi", "agent", "don", "t", "nasa", "a", "or"]),
        ("Zoë CAFÉ ﬁne \uff26\uff35\uff2c\uff2c", ["zoe", "cafe", "fine", "full"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("Ёлка и йод", ["елка", "и", "иод"]),
        ("猫が好き", ["猫", "が", "好", "き"]),
        ("가나 다라", ["가나", "다라"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ship it 🎉🎉 ❤️", ["ship", "it", "🎉", "🎉", "❤"]),
        ("\U0001d518\U0001d52b\U0001d526", ["uni"]),
        ("v1.5 foo_bar", ["v1", "5", "foo", "bar"]),
        ("“quoted”, really…", ["quoted", "really"]),
        ("", []),
        ("\0 \" * ' ( ) -- \u3000 …", []),
        ("\ud800lone\udfffwords", ["lone", "words"]),
    ],
)
def test_words_are_folded_and_everything_else_separates(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(anything)
def test_any_text_gives_words_without_anything_that_an_index_could_read_otherwise(text: str) -> None:
    for word in split_words(text):
        assert 1 <= len(word) <= LONGEST_WORD
        assert all(character.isalnum() or not character.isascii() for character in word)
        assert not any(character.isspace() for character in word)
        word.encode()


@given(anything, anything)
def test_words_of_a_text_do_not_depend_on_what_stands_beside_it(one: str, other: str) -> None:
    assert split_words(f"{one} \n {other}") == split_words(one) + split_words(other)


@given(st.text(max_size=40))
def test_words_do_not_depend_on_case(text: str) -> None:
    assert split_words(text.casefold()) == split_words(text)


def test_long_word_counts_by_its_beginning() -> None:
    for letter in ("x", "é", "ш"):
        (word,) = split_words(letter * 1000)
        assert len(word) == LONGEST_WORD


def test_terms_of_a_scope_are_no_terms_of_another() -> None:
    words = split_words("tea and tea for 2")
    terms = [*compute_terms(1, words), tag_term(1, "tea")]
    assert terms == ["1wtea", "1wand", "1wfor", "1w2", "1rtea", tag_term(1, "tea")]
    for scope in (11, 2):
        others = {term(scope, "tea"), repeated_term(scope, "tea"), tag_term(scope, "tea"), term(scope, "1wtea")}
        assert not others & set(terms)


@given(anything.filter(lambda text: text.isprintable()), anything.filter(lambda text: text.isprintable()))
def test_tags_are_told_apart_to_the_character(one: str, other: str) -> None:
    assert (tag_term(1, one) == tag_term(1, other)) == (one == other)
    assert tag_term(1, one).isascii()
    assert tag_term(1, one).isalnum()


@given(st.integers(0, 10**7))
def test_size_class_is_within_a_quarter_of_an_octave(words: int) -> None:
    size_class = compute_size_class(words)
    assert 0 <= size_class < 1 << SIZE_BITS
    assert size_class <= compute_size_class(words + 1)
    if 1 <= words < 2**16:
        assert compute_class_size(size_class) <= words < 1.25 * compute_class_size(size_class) + 1
