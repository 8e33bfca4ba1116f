"""Characters that show nothing, by which two names could look alike and be told apart. Pure.

Python's `unicodedata` has no such property, so its ranges stand here. Unassigned ones are among them: what is put there
one day will show nothing either.

Source: Unicode 16.0, DerivedCoreProperties.txt, Default_Ignorable_Code_Point.
"""

from __future__ import annotations

import re
from typing import Final

_DEFAULT_IGNORABLE: Final = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors and vowel separator
    (0x200B, 0x200F),  # zero width space, joiners, direction marks
    (0x202A, 0x202E),  # embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical beams, ties, slurs and phrases
    (0xE0000, 0xE0FFF),  # tags, more variation selectors
)
#: Drawn as nothing, though no property says so.
_BLANK: Final = (
    (0x2800, 0x2800),  # Braille pattern without dots
    (0x16FE4, 0x16FE4),  # Khitan small script filler
    (0x1D159, 0x1D159),  # musical null notehead
)
_INVISIBLE: Final = re.compile(
    "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in (*_DEFAULT_IGNORABLE, *_BLANK)) + "]+"
)


def has_invisible(text: str) -> bool:
    """Return whether a text holds a character that shows nothing; spaces do not count."""
    return _INVISIBLE.search(text) is not None


def drop_invisible(text: str) -> str:
    """Return a text without the characters that show nothing; its spaces stay."""
    return _INVISIBLE.sub("", text)
