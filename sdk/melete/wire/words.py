"""The words of a text, as the search index holds them and as a query asks for them. Pure.

    split_words("Don't ask multi-agent Zoë!")   # ["don", "t", "ask", "multi", "agent", "zoe"]

A word is a run of letters, digits and the marks on them, of any script, compared without regard to case, compatibility
forms (full width, ligatures) and accents; where a script puts no spaces between words, every character is a word, and
so is every symbol (emoji). All else separates. Whatever a person types gives words or none: nothing is syntax.

The index holds terms: a word, a mark that a word stands there more than once, or a tag, each behind the number of its
scope (one agent and one type of memory). So a query meets the rows of its own scope alone, whatever others wrote.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from melete.primitives import keccak256

#: Of a longer word (a key, a blob) the first characters count.
LONGEST_WORD: Final = 64

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+", re.ASCII)
#: What the separators of ASCII leave of a text.
_CHUNK: Final = re.compile(r"[^\x00-\x2f\x3a-\x60\x7b-\x7f\s]+")
#: Thai, Lao, Tibetan, Myanmar, Khmer; kana; Han: scripts that put no spaces between words.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
#: The accents of Latin, Greek and Cyrillic letters once they stand apart.
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
_SYMBOLS: Final = frozenset({"So", "Sc", "Sm", "Co"})


def split_words(text: str) -> list[str]:
    """Return the words of a text, in order, folded. Lone surrogates and NUL separate, as punctuation does."""
    if text.isascii():
        return [word[:LONGEST_WORD] for word in _ASCII_WORD.findall(text.lower())]
    words: list[str] = []
    for chunk in _CHUNK.findall(_fold(text)):
        if chunk.isascii():
            words.append(chunk[:LONGEST_WORD])
        else:
            words.extend(_split_chunk(chunk) if len(chunk) <= LONGEST_WORD else _split_chunk.__wrapped__(chunk))
    return words


def _fold(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart)).casefold()


@lru_cache(maxsize=4096)
def _split_chunk(chunk: str) -> tuple[str, ...]:
    if chunk.isalnum() and not _UNSPACED.search(chunk):
        return (chunk[:LONGEST_WORD],)
    words: list[str] = []
    word = ""
    for character in chunk:
        category = unicodedata.category(character)
        if category[0] in "LN" and not _UNSPACED.match(character):
            word += character
        elif category[0] == "M":
            # A mark belongs to the letter before it; on a symbol or alone it only says how that is drawn.
            word += character if word else ""
        else:
            if word:
                words.append(word[:LONGEST_WORD])
            word = ""
            if category[0] in "LN" or category in _SYMBOLS:
                words.append(character)
    if word:
        words.append(word[:LONGEST_WORD])
    return tuple(words)


# Terms


def term(scope: int, word: str) -> str:
    """Return the term for a word that stands in a text."""
    return f"{scope}w{word}"


def repeated_term(scope: int, word: str) -> str:
    """Return the term for a word that stands in a text more than once."""
    return f"{scope}r{word}"


def tag_term(scope: int, tag: str) -> str:
    """Return the term for a tag: compared exactly, whatever it holds."""
    return f"{scope}t{keccak256(tag.encode()).hex()[:40]}"


def compute_terms(scope: int, words: Iterable[str]) -> list[str]:
    """Return the terms of a text: its different words, and those that it repeats."""
    counts = Counter(words)
    terms = [f"{scope}w{word}" for word in counts]
    terms += [f"{scope}r{word}" for word, count in counts.items() if count > 1]
    return terms


# Size classes

#: How many bits of a document number say how long the document is.
SIZE_BITS: Final = 6


def compute_size_class(words: int) -> int:
    """Return the class, 0 to 63, of a text with a number of words: a quarter of an octave each, from 1 to 2^16."""
    quarters = max(words, 1) * 4
    octave = quarters.bit_length() - 3
    return min(octave * 4 + (quarters >> octave) - 4, (1 << SIZE_BITS) - 1)


def compute_class_size(size_class: int) -> float:
    """Return how many words a text of a size class is taken to have: the least that falls in the class."""
    return float((4 + size_class % 4) << size_class // 4) / 4
