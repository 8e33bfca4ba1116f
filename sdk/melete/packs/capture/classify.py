"""What a unit is, by its own words: type, facets, content and reason, each with why; or a question for a person.

A unit is settled only if the sentence that leads it has exactly one reading, and that reading fits its place. There is
no model here and nothing is rewritten: a sentence that fits no pattern of the format goes to a person, with a draft.

Source: AMP v0.4, Parts 3, 5 and 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from melete.packs.capture.outline import bold_lead, label_of
from melete.packs.capture.units import Candidate, SourceUnit

GOAL: Final = "goal"
CLAIM: Final = "claim"
DIRECTIVE: Final = "directive"
DEMONSTRATION: Final = "demonstration"
TYPES: Final = (GOAL, CLAIM, DIRECTIVE, DEMONSTRATION)
#: What a draft leaves for a person to fill in; a unit that still holds it is never written.
PLACEHOLDER: Final = "[context]"
#: A longer lead is its first sentence, and the rest its reason; a unit with a longer reason is more than one memory.
LONGEST_LEAD: Final = 400
LONGEST_REASON: Final = 3000


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a unit would be in a pack. `question` is None if that is settled, or else what a person must decide."""

    type: str | None
    content: str
    facets: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    reason: str | None = None
    file: str | None = None
    subtype: str | None = None
    why: tuple[str, ...] = ()
    question: str | None = None

    @property
    def words(self) -> str:
        """All words of the unit, as routes and duplicates see them."""
        return "\n".join(part for part in (self.content, self.body, self.reason) if part)


def classify(unit: SourceUnit, description: str = "") -> Proposal:
    """Return what a unit is, without its file.

    `description` is the line of a file's frontmatter that says what the file is about: where a whole file is one
    unit and holds no sentence of its own, it leads.
    """
    if unit.candidate is Candidate.DEMONSTRATION:
        return _demonstration(unit)
    lead, reason = split_unit(unit, description)
    kind, why, question = _decide(unit.candidate, unit.reason, readings_of(lead))
    proposal = Proposal(kind, lead, reason=reason or None, why=why, question=question)
    if question is not None:
        kind = kind or _first_type(unit.candidate)
        proposal = replace(proposal, type=kind, content=draft(kind, lead) if kind else lead)
    if reason and len(reason) > LONGEST_REASON:
        question = question or "it is longer than one memory; split it, or shorten it"
    facets, reasons = find_facets(kind, proposal.words, unit) if kind else ({}, ())
    return replace(proposal, facets=facets, why=(*why, *reasons), question=question)


# The sentence patterns


_GOAL: Final = re.compile(r"\bthe goal is to\b|\boptimi[sz]e\b|\bdefault\b", re.ASCII | re.IGNORECASE)
_PLAIN_GOAL: Final = re.compile(r"(?:.*\bthe goal is to\b|optimi[sz]e\b|default\b)", re.ASCII | re.IGNORECASE)
_DIRECTIVE: Final = re.compile(r"(?:In|When)\s.*\b(?:always|never|prefer)\b", re.ASCII | re.IGNORECASE)
_CLAIM: Final = re.compile(r"(?P<subject>\S.*?)\s(?:is|has)\s+\S", re.ASCII | re.IGNORECASE)
#: First words that are no subject, or one that only its neighbours explain.
_NO_SUBJECT_WORDS: Final = (
    "about after also although always and as avoid because before but by can could do does don't either for from he "
    "her here his how however i if in is it its just let's may maybe me might must never nor not now of on only or "
    "please she should since so sometimes that their then there these they this those though to under unless until "
    "us we what when where whether which while who whose why will with without would yet you your"
)
_NO_SUBJECT: Final = frozenset(_NO_SUBJECT_WORDS.split())


def readings_of(sentence: str) -> frozenset[str]:
    """Return the types whose sentence pattern a sentence has, of goal, claim and directive."""
    found = set()
    if _DIRECTIVE.match(sentence):
        found.add(DIRECTIVE)
    if _GOAL.search(sentence):
        found.add(GOAL)
    claim = _CLAIM.match(sentence)
    if claim and claim["subject"].split()[0].strip("\"'“”‘’*_,").lower() not in _NO_SUBJECT:  # noqa: RUF001
        found.add(CLAIM)
    if GOAL in found and CLAIM in found:
        # "The default port is 8080" asserts; "The goal is to be early" does not.
        found.discard(CLAIM if _PLAIN_GOAL.match(sentence) else GOAL)
    return frozenset(found)


def is_of_type(kind: str, sentence: str) -> bool:
    """True if a sentence has the form of a type, whatever else it may be read as."""
    patterns = {DIRECTIVE: _DIRECTIVE.match, GOAL: _GOAL.search, CLAIM: _CLAIM.match}
    return kind not in patterns or patterns[kind](sentence) is not None


_ALLOWED: Final = {
    Candidate.GOAL: (GOAL, DIRECTIVE),
    Candidate.CLAIM: (CLAIM, DIRECTIVE),
    Candidate.DIRECTIVE: (DIRECTIVE,),
    Candidate.GOAL_OR_DIRECTIVE: (GOAL, DIRECTIVE),
    Candidate.CLAIM_OR_GOAL: (CLAIM, GOAL),
}


def _decide(
    candidate: Candidate, place: str, readings: frozenset[str]
) -> tuple[str | None, tuple[str, ...], str | None]:
    """Return type, why, and the question that stays open."""
    only = next(iter(readings)) if len(readings) == 1 else None
    read = " and as a ".join(sorted(readings))
    why = (f"its place: {place}", *((f"its words: they read as a {read}",) if read else ()))
    if candidate not in _ALLOWED:
        return only, why, f"{place}: is it a memory, and of which type?"
    if len(readings) > 1:
        return None, why, f"it reads as a {read}: choose one, or split it"
    if only in _ALLOWED[candidate]:
        return only, why, None
    expected = " or ".join(_ALLOWED[candidate] if candidate is not Candidate.CLAIM else (CLAIM,))
    if only is not None:
        return None, why, f"its place suggests a {candidate}, and it reads as a {only}"
    return None, why, f"its first sentence has not the form of a {expected}"


def _first_type(candidate: Candidate) -> str | None:
    return _ALLOWED[candidate][0] if candidate in (Candidate.GOAL, Candidate.CLAIM, Candidate.DIRECTIVE) else None


# Content and reason


_SENTENCE_END: Final = re.compile(r"[.!?][\"”’')*_]*\s+(?=[\"“‘'(*`\[]*[A-Z0-9])", re.ASCII)  # noqa: RUF001
_ABBREVIATION: Final = re.compile(r"\b(?:e\.g|i\.e|vs|cf|approx|dr|mr|mrs|ms|st)\.$", re.ASCII | re.IGNORECASE)
_WIKI_LINK: Final = re.compile(r"!?\[\[([^\[\]|\n]+)(?:\|([^\[\]\n]+))?\]\]", re.ASCII)
_MARK: Final = re.compile(
    r"(?:\*\*)?(?:decided|decision|locked|corrected|correction)(?:\*\*)?[ ]*:(?:\*\*)?[ ]*", re.ASCII | re.IGNORECASE
)


def split_unit(unit: SourceUnit, description: str = "") -> tuple[str, str]:
    """Return what leads a unit, on one line, and the rest of it, as its reason. No word is lost, and none is added."""
    lines = unlink(unit.text).split("\n")
    why, apply, other = _split_labels(lines)
    if apply:
        lead, rest = _lead(apply)
        return lead, join_lines(other, why, rest)
    if not any(line.strip() for line in other):
        return plain(description), join_lines(why)
    lead, rest = _lead(other)
    return lead, join_lines(rest, why)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a line of text."""
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        if not _ABBREVIATION.search(text[start : end.start() + 1]):
            found.append(text[start : end.end()].strip())
            start = end.end()
    return [*found, text[start:].strip()] if text[start:].strip() else found


def plain(text: str) -> str:
    """Return text on one line, without bold marks, and with the words of wiki links in their place."""
    return " ".join(unlink(text).replace("**", "").split())


def unlink(text: str) -> str:
    """Put the words of wiki links in their place: the pages that they name do not travel with a pack."""
    return _WIKI_LINK.sub(lambda link: (link[2] or link[1]).strip(), text)


def join_lines(*parts: Sequence[str]) -> str:
    """Join groups of lines to one text, with at most one blank line in a row and none at the ends."""
    kept: list[str] = []
    for line in (line.rstrip() for part in parts for line in part):
        if line or (kept and kept[-1]):
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return "\n".join(kept)


def _split_labels(lines: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Sort lines into those under `Why:`, those under `How to apply:`, and the others; a blank line ends a label."""
    groups: dict[str, list[str]] = {"why": [], "apply": [], "": []}
    at = ""
    for line in lines:
        found = label_of(line)
        if found:
            at = found[0]
            groups[at].append(found[1])
            continue
        if not line.strip() and groups[at] and any(groups[at]):
            groups[at].append(line)
            at = ""
            continue
        groups[at].append(line)
    return groups["why"], groups["apply"], groups[""]


def _lead(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the principle in bold, or the first paragraph, or its first sentence; and all that follows."""
    start = next((index for index, line in enumerate(lines) if line.strip()), len(lines))
    if start == len(lines):
        return "", []
    first, after = lines[start], list(lines[start + 1 :])
    bold = bold_lead(first)
    if bold is not None:
        rest = first.lstrip().partition(bold)[2].lstrip("*_").lstrip(" \t:—–-")  # noqa: RUF001
        lead, follows = _mark_off(plain(bold)), [rest, *after] if rest else after
        sentence = _first_sentence(follows)
        if readings_of(lead) or not sentence or not readings_of(sentence):
            return lead, follows
        # The bold words name the principle, and the sentence after them states it.
        stated, remains = _lead(follows)
        return stated, [lead, *remains]
    end = next((index for index, line in enumerate(after) if _ends_paragraph(line)), len(after))
    whole = _mark_off(plain(" ".join([_without_marker(first), *after[:end]])))
    if len(whole) <= LONGEST_LEAD:
        return whole, after[end:]
    sentence, *others = split_sentences(whole)
    return sentence, [" ".join(others), *after[end:]]


def _first_sentence(lines: Sequence[str]) -> str:
    text = next((line for line in lines if line.strip()), "")
    return next(iter(split_sentences(plain(text))), "")


def _ends_paragraph(line: str) -> bool:
    return (
        not line.strip()
        or re.match(r"\s*(?:[-*+]\s|[0-9]{1,3}[.)]\s|#{1,6}\s|>|```|~~~|\|)", line, re.ASCII) is not None
    )


def _without_marker(line: str) -> str:
    return re.sub(r"^\s*(?:[-*+]|[0-9]{1,3}[.)]|#{1,6}|>)\s+", "", line, count=1, flags=re.ASCII)


def _mark_off(text: str) -> str:
    return _MARK.sub("", text, count=1) if _MARK.match(text) else text


# Demonstrations


def _demonstration(unit: SourceUnit) -> Proposal:
    lines = unit.text.split("\n")
    at = next((index for index, line in enumerate(lines) if index and label_of(line)), len(lines))
    artifact = join_lines([line.rstrip() for line in lines[:at]])
    reason = join_lines([(label_of(line) or ("", line))[1] for line in lines[at:]])
    why = (f"its place: {unit.reason}",)
    facets = {"valence": unit.valence or "positive"}
    question = None if artifact else "it holds no artifact"
    if "\n" not in artifact and artifact.strip() != "{":
        return Proposal(DEMONSTRATION, artifact.strip(), facets, None, reason or None, why=why, question=question)
    if any(line == "}" for line in artifact.split("\n")):
        # At the margin it would end the body.
        artifact = "\n".join(f"  {line}" if line else "" for line in artifact.split("\n"))
    return Proposal(DEMONSTRATION, "", facets, artifact, reason or None, why=why, question=question)


# Facets


_MUST: Final = re.compile(r"\b(?:must|never|always|banned|required|mandatory)\b", re.ASCII | re.IGNORECASE)
#: The month is spelled `May`, or followed by a number.
_MAY: Final = re.compile(
    r"\b(?:(?:may|MAY)(?!\s+\d)|May(?=\s+(?:also|be|contain|have|include|not|only|use)\b)|(?i:optional(?:ly)?))\b",
    re.ASCII,
)
_ORG: Final = re.compile(
    r"\b(?:(?:org|organi[sz]ation|company|team)-wide|across the (?:company|organi[sz]ation|team))\b",
    re.ASCII | re.IGNORECASE,
)
_SESSION: Final = re.compile(r"\b(?:this|the current) session\b", re.ASCII | re.IGNORECASE)
_TACTICAL: Final = re.compile(
    r"\b(?:today|this week|this sprint|for now|temporar(?:y|ily)|until further notice)\b", re.ASCII | re.IGNORECASE
)
_SEASONAL: Final = re.compile(
    r"\b(?:this (?:month|quarter|season|year)"
    r"|(?:until|by) (?:the )?(?:end of |q[1-4]\b|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    re.ASCII | re.IGNORECASE,
)
_PASSING: Final = ("an active priority", "an open bet", "something not to work on")


def find_facets(kind: str, words: str, unit: SourceUnit) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the facets of a type in order, and why those that are not the defaults of Part 3 are set."""
    if kind == DEMONSTRATION:
        return {"valence": unit.valence or "positive"}, ()
    why: list[str] = []

    def choose(default: str, *choices: tuple[str, re.Pattern[str]]) -> str:
        for value, pattern in choices:
            found = pattern.search(words)
            if found:
                why.append(f"{value}: it says {found[0].lower()!r}")
                return value
        return default

    if kind == CLAIM:
        return {"stability": choose("permanent", ("tactical", _TACTICAL), ("tactical", _SEASONAL))}, tuple(why)
    facets = {"force": choose("should", ("must", _MUST), ("may", _MAY))}
    session = (("session", _SESSION),) if kind == DIRECTIVE else ()
    facets["scope"] = choose("project", ("org", _ORG), *session)
    facets["stability"] = choose("permanent", ("tactical", _TACTICAL), ("seasonal", _SEASONAL))
    if facets["stability"] == "permanent" and unit.reason in _PASSING:
        facets["stability"] = "seasonal"
        why.append(f"seasonal: it is {unit.reason}")
    return facets, tuple(why)


# Drafts for a person


_BAN: Final = re.compile(r"(?:never|don['’]t|do not|avoid|stop|no)\s+", re.ASCII | re.IGNORECASE)  # noqa: RUF001
_DUTY: Final = re.compile(r"always\s+", re.ASCII | re.IGNORECASE)


def draft(kind: str, sentence: str) -> str:
    """Return a sentence in the form of its type, with a place for what only a person knows; or as it is."""
    if not sentence or kind in readings_of(sentence):
        return sentence
    if kind == GOAL:
        return f"In {PLACEHOLDER}, the goal is to {_lower(sentence)}"
    if kind == DIRECTIVE:
        ban, duty = _BAN.match(sentence), _DUTY.match(sentence)
        if ban:
            return f"In {PLACEHOLDER}, never {_lower(sentence[ban.end() :])}"
        return f"In {PLACEHOLDER}, always {_lower(sentence[duty.end() if duty else 0 :])}"
    return sentence


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
