"""What a bullet of a log is: narration of an action, the author's words, a decision, a correction, or none of these.

Source: AMP v0.4, Part 4; word lists are ours, in English.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Quote(NamedTuple):
    """Words of the author, and where in the bullet they stand, with the name."""

    text: str
    start: int
    end: int


class Hint(NamedTuple):
    """A word that suggests a kind, and whether it is that of a correction (otherwise of a decision)."""

    word: str
    correction: bool


#: Whose words are kept when no name is given.
USUAL_AUTHORS: Final = ("author", "owner", "user")

#: Verbs whose past tense is also an order (set, cut, read, split) are left out: what is unclear goes to a person.
_ACTIONS: Final = (
    "added analysed analyzed applied archived asked backfilled benchmarked built bumped called cancelled canceled "
    "changed checked cleaned closed committed completed configured connected copied created debugged deleted "
    "deployed designed documented downloaded drafted edited enabled disabled emailed exported filed finished fixed "
    "fetched generated implemented imported improved ingested installed integrated investigated launched linked "
    "logged made merged met migrated moved opened ordered paid patched posted prepared prototyped published pulled "
    "pushed ran re-ran rebased rebuilt received recorded redeployed refactored refreshed registered released "
    "removed renamed renewed replaced replied researched resolved restarted restored reverted reviewed rewrote "
    "rotated scheduled scraped sent shipped signed started stopped submitted switched synced tagged tested "
    "told tried triggered triaged tuned turned tweaked upgraded updated uploaded used validated verified wired worked "
    "wrote"
)
#: What may stand before the verb: a mark, a time, a label in bold, a person.
_OPENING: Final = (
    r"[^\w\"'*`/(\[\n]*"
    r"(?:\[?[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[ ]?[ap]m)?\]?[^\w\"'*`/(\[\n]*)?"
    r"(?:\*\*[^*\n]{1,40}\*\*[^\w\"'*`/(\[\n]*)?"
    r"(?:(?:then|also|finally|today|yesterday|just|successfully|manually)[ ,]+)*"
    r"(?:(?:i|we)(?:'ve|[ ]have)?[ ]+)?"
    r"(?:(?:then|also|finally|just|successfully|manually)[ ]+)*"
)
_NARRATION: Final = re.compile(rf"{_OPENING}({'|'.join(_ACTIONS.split())})\b(?!-[a-z])", re.ASCII | re.IGNORECASE)
#: "Tested copy beats guesses": there the verb belongs to a noun, and the bullet asserts something.
_OF_A_NOUN: Final = re.compile(
    r"(?:[ ]+(?!(?:the|an?|our|my|it|to|and|where|that|which|so|because|when|while|for|in|on)\b)[\w'-]+){1,3}?"
    r"[ ]+(?:is|are|has|have|beats?|should|must|always|never)\b",
    re.ASCII | re.IGNORECASE,
)
_COMMAND: Final = re.compile(r"(?<![A-Za-z])(ran|re-ran|executed|triggered)[ ]+`?/[a-z]", re.ASCII | re.IGNORECASE)

_CORRECTIONS: Final = ("corrected", "never use", "stop doing", "don't", "don’t")  # noqa: RUF001
_DECISIONS: Final = ("decided", "locked", "going with", "domain is")
#: A narration that only says "don't" somewhere is no correction: users who don't see a button, for example.
_WEAK: Final = frozenset({"don't", "don’t"})  # noqa: RUF001

_SAID: Final = r"(?:said|says|wrote|writes|told us|added|noted|asked|insisted|corrected|feedback|quote)"
_QUOTED: Final = r"\"([^\"\n]{2,})\"|“([^”\n]{2,})”|«([^»\n]{2,})»"
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)", re.ASCII)


def narrates(text: str) -> str | None:
    """Return the word by which a bullet narrates an action, or None."""
    found = _NARRATION.match(text)
    if found is None or _OF_A_NOUN.match(text, found.end()):
        found = _COMMAND.search(text)
    return found[1].lower() if found else None


def suggest(text: str, *, strong: bool = False) -> Hint | None:
    """Return the first word that suggests a correction, or else a decision; only plain ones if `strong`."""
    lowered = text.lower()
    for words, correction in ((_CORRECTIONS, True), (_DECISIONS, False)):
        for word in words:
            if strong and word in _WEAK:
                continue
            if re.search(rf"(?<![a-z0-9-]){re.escape(word)}(?![a-z0-9])", lowered, re.ASCII):
                return Hint(word, correction)
    return None


def find_quotes(text: str, author: str | None) -> list[Quote]:
    """Return the author's words in a bullet, in order.

    Known by `NAME: words`, `NAME said "words"` and `"words" - NAME`. Without quotation marks, a bullet that starts with
    the name is the author's to its end; in mid-text, a name that was given speaks to the end of the sentence.
    """
    given = author.strip() if author else ""
    name = "|".join(re.escape(each) for each in ([given] if given else USUAL_AUTHORS))
    who = rf"(?<![\w@])(?:the[ ]+)?(?:\*\*)?(?:{name})(?!\w)(?:\*\*)?"
    said = rf"(?:[ ]+{_SAID})"
    marked = re.compile(
        rf"{who}{said}?[ ]*[:,]?(?:\*\*)?[ ]*(?:that[ ]+)?(?:{_QUOTED})"
        rf"|(?:{_QUOTED})[ ]*[-–—(,][ ]*{who}",  # noqa: RUF001
        re.IGNORECASE,
    )
    found = [
        Quote(next(group for group in match.groups() if group is not None), match.start(), match.end())
        for match in marked.finditer(text)
    ]
    at_start = re.compile(
        rf"[*_ ]*{who}(?:{said}?[ ]*[:](?:\*\*)?|{said}[ ]*,?)[ ]*(?:that[ ]+)?(?=\S)", re.IGNORECASE
    ).match(text)
    if at_start and not any(quote.start < at_start.end() for quote in found):
        end = min((quote.start for quote in found), default=len(text))
        found.append(Quote(text[at_start.end() : end], at_start.start(), end))
    elif given:
        for match in re.finditer(rf"{who}{said}?[ ]*:(?:\*\*)?[ ]*(?=[^\s\"“«])", text, re.IGNORECASE):
            if not any(quote.start <= match.start() < quote.end for quote in found):
                stop = _SENTENCE_END.search(text, match.end())
                end = stop.end() if stop else len(text)
                found.append(Quote(text[match.end() : end], match.start(), end))
    quotes = sorted(found, key=lambda quote: quote.start)
    return [quote._replace(text=quote.text.strip()) for quote in quotes if quote.text.strip(" *_\n\t")]
