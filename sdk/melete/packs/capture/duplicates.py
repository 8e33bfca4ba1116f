"""Directives that a log suggests and that stand in a feedback file already: that file is their source.

Source: AMP v0.4, Part 10. Its "key nouns and verbs" are read as content words: all words but those of grammar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: A candidate is a duplicate when more than this share of its content words stands in one file, in percent.
MOST_SHARED: Final = 80

_WORD: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001
_GRAMMAR_WORDS: Final = (
    "a about above after again against all also always am an and any are as at be because been before being below "
    "between both but by can cannot can't could did didn't do does doesn't doing don't down during each either else "
    "ever every few for from further had has hasn't have haven't having he her here hers him his how i if in instead "
    "into is isn't it it's its itself just let's may me might more most must my never no nor not now of off often on "
    "once only or other our ours out over own per please rather same shall she should shouldn't so some such than that "
    "that's the their theirs them then there these they this those through to too under until up upon us very was "
    "wasn't we we're were what when where whether which while who whom whose why will with within without won't would "
    "yet you your yours corrected correction decided decision locked"
)
_GRAMMAR: Final = frozenset(_GRAMMAR_WORDS.split())


def content_words(text: str) -> frozenset[str]:
    """Return the content words of a text: folded, in the singular, without the words of grammar."""
    folded = (word.replace("’", "'") for word in _WORD.findall(text.casefold()))  # noqa: RUF001
    return frozenset(_singular(word) for word in folded if word not in _GRAMMAR)


def find_duplicate(text: str, feedback: Mapping[str, frozenset[str]]) -> str | None:
    """Return the first feedback file that holds over 80% of a text's content words, or None.

    `feedback` maps each file to its content words. A text of grammar alone is no duplicate.
    """
    words = content_words(text)
    for name, known in feedback.items():
        if len(words & known) * 100 > len(words) * MOST_SHARED:
            return name
    return None


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith(("shes", "ches", "xes", "sses", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
