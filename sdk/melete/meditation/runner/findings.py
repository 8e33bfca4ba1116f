"""What a cycle found out about one layer, in the members of the record. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from melete.canonical import LARGEST_INTEGER, Json, is_readable_number
from melete.errors import InvalidInput
from melete.meditation.cycle import Operation
from melete.meditation.layers import Layer

#: What the schema allows for each list of findings; what a routine may add to it, for the runner adds some of its own.
MOST_IN_RECORD: Final = 10_000
MOST_ENTRIES: Final = 9_000
LONGEST_NAME: Final = 256
LONGEST_TEXT: Final = 4096
#: The members of a layer's entry that are lists of findings.
LISTS: Final = ("checks", "observations", "changes", "candidates", "refusals")


class CheckResult(StrEnum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    COULD_NOT_TELL = "could-not-tell"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How a change was evaluated, and what came out; `cases` is how many it covered, `required` how many it had to."""

    method: str
    result: str
    cases: int | None = None
    required: int | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the member of the record. Errors: `InvalidInput` for a number of cases that is none."""
        found: dict[str, Json] = {"method": to_text(self.method, LONGEST_TEXT, "method")}
        for name, number in (("cases", self.cases), ("required", self.required)):
            if number is not None:
                if type(number) is not int or not 0 <= number < 2**32:
                    raise InvalidInput(name, number, "an integer from 0 to 2^32 - 1")
                found[name] = number
        return {**found, "result": to_text(self.result, LONGEST_TEXT, "result")}


@dataclass(slots=True)
class Findings:
    """What was found out so far; every list holds the objects of the record's member of that name."""

    layer: Layer
    checks: list[dict[str, Json]] = field(default_factory=list)
    observations: list[dict[str, Json]] = field(default_factory=list)
    changes: list[dict[str, Json]] = field(default_factory=list)
    candidates: list[dict[str, Json]] = field(default_factory=list)
    refusals: list[dict[str, Json]] = field(default_factory=list)
    evaluation: dict[str, Json] | None = None

    def add(self, member: str, value: dict[str, Json]) -> None:
        """Add a finding to one of `LISTS`, or set the evaluation."""
        if member == "evaluation":
            self.evaluation = value
        else:
            self.list_of(member).append(value)

    def list_of(self, member: str) -> list[dict[str, Json]]:
        """Return one of the lists. Errors: `InvalidInput` for another name."""
        if member not in LISTS:
            raise InvalidInput("member", member, f"one of {', '.join(LISTS)}")
        found: list[dict[str, Json]] = getattr(self, member)
        return found

    def to_entry(self, *, completed: bool, decision: str, reason: str | None = None) -> dict[str, Json]:
        """Return the layer's entry in the record. What was done stands in it, even if the document stays as it was."""
        checks = self.checks
        if len(checks) > MOST_IN_RECORD:
            told = f"{len(checks) - MOST_IN_RECORD + 1} more than a record holds"
            checks = [*checks[: MOST_IN_RECORD - 1], make_check("checks left out", CheckResult.SKIPPED, told)]
        entry: dict[str, Json] = {
            "layer": self.layer.value,
            "completed": completed,
            "checks": list(checks),
            "observations": list(self.observations),
            "changes": list(self.changes),
            "candidates": list(self.candidates),
            "decision": decision,
        }
        if self.evaluation is not None:
            entry["evaluation"] = self.evaluation
        if self.refusals:
            entry["refusals"] = list(self.refusals)
        if reason:
            entry["reason"] = to_text(reason, LONGEST_TEXT, "reason")
        return entry


def make_check(name: str, result: CheckResult, detail: str | None = None) -> dict[str, Json]:
    """Return a check as the record states it."""
    found: dict[str, Json] = {
        "name": to_text(name, LONGEST_NAME, "name"),
        "result": CheckResult(result).value,
    }
    return _with_text(found, "detail", detail)


def make_observation(name: str, observed_at: int, value: Any, unit: str | None = None) -> dict[str, Json]:
    """Return an observation as the record states it; a number that JSON cannot carry, or give back, becomes text."""
    found: dict[str, Json] = {
        "name": to_text(name, LONGEST_NAME, "name"),
        "observedAt": observed_at,
        "value": to_value(value),
    }
    return _with_text(found, "unit", unit, LONGEST_NAME)


def to_value(value: Any) -> Json:
    """Return an observed value as a record can carry it. Errors: `InvalidInput` for what is none."""
    if type(value) is int and abs(value) > LARGEST_INTEGER:
        return str(value) if value.bit_length() < 2048 else "a larger number than is written down"
    if isinstance(value, float) and not (math.isfinite(value) and is_readable_number(value)):
        return str(value)
    if isinstance(value, str):
        return cut_text(value, LONGEST_TEXT)
    if not isinstance(value, int | float | bool) and value is not None:
        raise InvalidInput("value", value, "text, a number, true, false or nothing")
    return value


def make_change(operation: Operation, what: str, detail: str | None = None) -> dict[str, Json]:
    """Return a change as the record states it."""
    found: dict[str, Json] = {
        "operation": Operation(operation).name.lower(),
        "what": to_text(what, LONGEST_TEXT, "what"),
    }
    return _with_text(found, "detail", detail)


def make_candidate(
    candidate_id: str, description: str, reason: str, evaluation: Evaluation | None = None
) -> dict[str, Json]:
    """Return a candidate that was not adopted, as the record states it."""
    found: dict[str, Json] = {
        "id": to_text(candidate_id, LONGEST_NAME, "id"),
        "description": to_text(description, LONGEST_TEXT, "description"),
        "reason": to_text(reason, LONGEST_TEXT, "reason"),
    }
    return found if evaluation is None else {**found, "evaluation": evaluation.to_json()}


def make_refusal(obligation: str, change: str, reason: str | None = None) -> dict[str, Json]:
    """Return a refusal as the record states it."""
    found: dict[str, Json] = {
        "obligation": to_text(obligation, LONGEST_NAME, "obligation"),
        "change": to_text(change, LONGEST_TEXT, "change"),
    }
    return _with_text(found, "reason", reason)


def to_text(value: object, limit: int, field_name: str) -> str:
    """Return text of 1 to `limit` characters that JSON can carry; longer text is cut. Errors: `InvalidInput`."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(field_name, value, "text that is not empty")
    return cut_text(value, limit)


def cut_text(text: str, limit: int) -> str:
    """Return text that JSON can carry, of at most `limit` characters, with a mark where it was cut."""
    text = text[: limit + 1].encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _with_text(found: dict[str, Json], name: str, text: str | None, limit: int = LONGEST_TEXT) -> dict[str, Json]:
    return {**found, name: to_text(text, limit, name)} if text else found
