"""From source files to judged units: the whole way of capture but for reading and writing.

    sources -> units -> credential scan -> narration dropped -> duplicates dropped -> classified -> routed

Every unit ends in one outcome with its reason. Nothing here knows a clock, a model or a file system: the same sources
give the same units.

Source: AMP v0.4, Parts 4, 9, 10 and 12.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

from melete.packs.capture.classify import DIRECTIVE, PLACEHOLDER, Proposal, classify, plain
from melete.packs.capture.duplicates import content_words, find_duplicate
from melete.packs.capture.routes import find_route
from melete.packs.capture.shapes import Shape
from melete.packs.capture.sources import Source
from melete.packs.capture.units import Candidate, SourceUnit, extract_units
from melete.packs.credentials import find_credentials
from melete.packs.findings import Finding
from melete.packs.hidden import find_hidden_text, find_markers, remove_hidden


class Outcome(StrEnum):
    """What becomes of a unit."""

    KEPT = "kept"
    #: A person must decide.
    AMBIGUOUS = "ambiguous"
    ACTION_LOG = "dropped: action-log"
    DUPLICATE = "dropped: duplicate"
    #: It looks like it holds a credential; its text is shown nowhere.
    REJECTED = "rejected"
    #: A person decided so.
    DROPPED = "dropped: by review"


@dataclass(frozen=True, slots=True)
class Judged:
    """A unit and what becomes of it. `findings` are errors for a rejected unit."""

    id: str
    unit: SourceUnit
    outcome: Outcome
    reason: str
    proposal: Proposal
    findings: tuple[Finding, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.unit.source} line {self.unit.line}"


#: Parts of a unit, in the words of its findings.
_SPACES: Final = re.compile(r"\s+", re.ASCII)
_DESCRIPTION: Final = re.compile(r"^description:[ ]*(.+?)[ ]*$", re.ASCII | re.MULTILINE)


def distill(sources: Sequence[Source], author: str | None = None) -> tuple[Judged, ...]:
    """Return all units of the sources, judged, in the order of the sources and their lines."""
    feedback = {source.path: _feedback_words(source) for source in sources if source.shape is Shape.FEEDBACK}
    judged: list[Judged] = []
    seen: dict[tuple[str | None, str], str] = {}
    for source in sources:
        description = describe(source)
        for unit in extract_units(source.path, source.outline, source.shape, author):
            one = judge(unit, description, feedback)
            if one.outcome is Outcome.KEPT:
                key = (one.proposal.type, _SPACES.sub(" ", f"{one.proposal.content}\n{one.proposal.body}").casefold())
                if key in seen:
                    one = replace(one, outcome=Outcome.DUPLICATE, reason=f"it says the same as {seen[key]}")
                seen.setdefault(key, one.place)
            judged.append(one)
    return tuple(judged)


def judge(unit: SourceUnit, description: str, feedback: Mapping[str, frozenset[str]]) -> Judged:
    """Return what becomes of one unit."""
    number = compute_id(unit)
    narration = unit.candidate is Candidate.ACTION_LOG
    findings = find_secrets(unit.text, unit.source, unit.line)
    if findings:
        if narration:
            return Judged(number, unit, Outcome.ACTION_LOG, unit.reason, Proposal(None, ""), findings)
        reason = "; ".join(dict.fromkeys(finding.message for finding in findings))
        return Judged(number, unit, Outcome.REJECTED, reason, Proposal(None, ""), findings)
    hidden = find_unseen(unit.text, unit.source, unit.line)
    if hidden:
        unit = replace(unit, text=remove_hidden(unit.text))
    if narration:
        return Judged(number, unit, Outcome.ACTION_LOG, unit.reason, Proposal(None, plain(unit.text)))
    proposal = classify(unit, plain(description))
    if unit.shape is Shape.LOG and _may_be_directive(unit, proposal):
        canonical = find_duplicate(unit.text, feedback)
        if canonical is not None:
            return Judged(number, unit, Outcome.DUPLICATE, f"its words stand in {canonical}", proposal)
    proposal = routed(proposal, unit)
    findings = find_secrets(proposal.words, unit.source, unit.line)
    if findings:  # what bold marks took apart is whole again
        return Judged(number, unit, Outcome.REJECTED, findings[0].message, Proposal(None, ""), findings)
    if hidden:
        proposal = replace(proposal, question="; ".join(dict.fromkeys(finding.message for finding in hidden)))
    if proposal.question is not None:
        return Judged(number, unit, Outcome.AMBIGUOUS, proposal.question, proposal)
    return Judged(number, unit, Outcome.KEPT, "; ".join(proposal.why), proposal)


def routed(proposal: Proposal, unit: SourceUnit) -> Proposal:
    """Return a proposal with its file, or with the question which one it is."""
    if proposal.type is None:
        return proposal
    route = find_route(proposal.type, proposal.words, principle=is_principle(unit))
    question = proposal.question
    if route.file is None and question is None:
        question = f"{route.reason}: which file is it for?"
    why = (*proposal.why, f"{route.file}: {route.reason}") if route.file else proposal.why
    return replace(proposal, file=route.file, subtype=route.subtype, why=why, question=question)


def is_principle(unit: SourceUnit) -> bool:
    """True for a unit from where operating principles and priorities are kept."""
    return unit.shape in (Shape.PHILOSOPHY, Shape.PRIORITIES)


def compute_id(unit: SourceUnit) -> str:
    """Return the id of a unit: it stays the same while its source, line and text do."""
    text = f"{unit.source}\0{unit.line}\0{unit.candidate}\0{unit.text}"
    return f"u{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def find_secrets(text: str, file: str, line: int = 1) -> tuple[Finding, ...]:
    """Return what looks like a credential in a text, also when hidden characters take it apart."""
    found = [*find_credentials(text, file, line)]
    shown = remove_hidden(text)
    if not found and shown != text:
        found.extend(find_credentials(shown, file, line))
    return tuple(found)


def find_unseen(text: str, file: str, line: int = 1) -> tuple[Finding, ...]:
    """Return what cannot be seen in a text, and what passes for an installer's marker."""
    found = (*find_hidden_text(text, file), *find_markers(text, file))
    return tuple(finding._replace(line=(finding.line or 1) + line - 1) for finding in found)


def has_placeholder(proposal: Proposal) -> bool:
    """True while a draft still waits for the words of a person."""
    return PLACEHOLDER in proposal.content


def describe(source: Source) -> str:
    """Return what the frontmatter of a source says that the file is about, or nothing."""
    found = _DESCRIPTION.search(source.outline.frontmatter or "")
    return found[1].strip("\"'") if found else ""


def _feedback_words(source: Source) -> frozenset[str]:
    return content_words("\n".join([source.outline.frontmatter or "", *(line.text for line in source.outline.lines)]))


def _may_be_directive(unit: SourceUnit, proposal: Proposal) -> bool:
    return proposal.type == DIRECTIVE or unit.candidate in (Candidate.DIRECTIVE, Candidate.GOAL_OR_DIRECTIVE)
