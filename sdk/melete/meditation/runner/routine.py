"""What a layer's routine is, and the `LayerWork` by which it tells what it does while it does it.

    class Thermostat(LayerRoutine):
        layer = Layer.RUNTIME

        def check(self, work):
            work.checked("answers", CheckResult.PASSED if ask() else CheckResult.FAILED)

        def repair(self, work):
            with work.changing(Operation.REPAIR, "the thermostat was set again"):
                set_again()

        def describe(self):
            return {"schema": "amm.layer.runtime/1", "layer": 0, ...}

What is told is written to the cycle's journal at once. A change inside `changing` is written down before and after it:
if the process is killed in between, or the change raises, the record says that nobody knows whether it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from melete.canonical import Json
from melete.errors import InvalidInput
from melete.meditation.cycle import Operation
from melete.meditation.layers import Layer
from melete.meditation.runner.findings import (
    MOST_ENTRIES,
    CheckResult,
    Evaluation,
    Findings,
    make_candidate,
    make_change,
    make_check,
    make_observation,
    make_refusal,
)
from melete.meditation.runner.obligations import Obligation, find_dropped
from melete.primitives import ZERO_BYTES32, Bytes32

#: The steps of a routine, in the order in which they run.
STEPS: Final = ("check", "clean", "repair", "update", "iterate")


class Recorder(Protocol):
    """Where the findings about a layer go as they are made."""

    def found(self, member: str, value: dict[str, Json]) -> None:
        """Keep a finding."""

    def begin_change(self, value: dict[str, Json]) -> int:
        """Keep a change that is about to be made, on disk when this returns, and return its number."""

    def end_change(self, number: int | None, value: dict[str, Json] | None) -> None:
        """Keep a change that was made, on disk when this returns; None for one that was begun and came to nothing.

        `number` is that of its begin, if it had one.
        """


@dataclass(frozen=True, slots=True)
class CycleContext:
    """What a routine may know of its cycle.

    `documents` are the layers' documents: those registered, as far as they are kept here, and those that this cycle
    described already. `obligations` are those that no change of layer 3 may drop.
    """

    clock: Callable[[], int] = lambda: 0
    documents: Mapping[int, dict[str, Json]] = field(default_factory=dict)
    minimum_cases: int = 0
    obligations: tuple[Obligation, ...] = ()
    policy_hash: Bytes32 = ZERO_BYTES32
    policy_version: int = 0


class LayerRoutine:
    """The upkeep of one layer: the steps of `STEPS` in order, each of which may do nothing, and `describe`.

    A step that raises ends the routine: the layer is not completed, and what `describe` says is registered all the
    same. What a step raises is told in the record by its class, and by its sentence if it is an error of this package:
    put nothing secret into one.
    """

    layer: Layer

    def check(self, work: LayerWork) -> None:
        """Look, and tell what was found. To find a fault is to complete a check."""

    def clean(self, work: LayerWork) -> None:
        """Take away what is no longer needed."""

    def repair(self, work: LayerWork) -> None:
        """Make good what is broken."""

    def update(self, work: LayerWork) -> None:
        """Bring up to date what is outdated."""

    def iterate(self, work: LayerWork) -> None:
        """Consider changes to how things are done; adopt what was evaluated, tell what was not adopted."""

    def describe(self) -> dict[str, Json]:
        """Return the layer's state document as things stand now. It is called without a step before it, too."""
        raise NotImplementedError


class _Unrecorded:
    """Keeps findings in memory alone, for whoever tries a routine by itself."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def found(self, member: str, value: dict[str, Json]) -> None:
        self._findings.add(member, value)

    def begin_change(self, value: dict[str, Json]) -> int:  # noqa: ARG002 - nothing is written down
        return 0

    def end_change(self, number: int | None, value: dict[str, Json] | None) -> None:  # noqa: ARG002
        if value is not None:
            self._findings.add("changes", value)


@dataclass(slots=True)
class Change:
    """A change that is being made: what is told of it may be set while it is made, and it may come to nothing."""

    what: str
    detail: str | None = None
    #: Whether there was anything to do.
    was_made: bool = True


class LayerWork:
    """What a routine tells. Without a recorder it is kept in `findings` alone.

    Text that is too long is cut, and what UTF-8 cannot carry is escaped. Errors: `InvalidInput` for empty text, a
    value that is none, or more than 9,000 findings of one kind; `StoreNotWritten` when the journal cannot be written.
    """

    def __init__(
        self,
        layer: Layer,
        context: CycleContext | None = None,
        recorder: Recorder | None = None,
        findings: Findings | None = None,
    ) -> None:
        self.layer = layer
        self.context = context or CycleContext()
        self.findings = findings or Findings(layer)
        self._recorder = recorder or _Unrecorded(self.findings)

    @property
    def registered(self) -> dict[str, Json] | None:
        """The layer's registered document, where it is known."""
        return self.context.documents.get(self.layer)

    def checked(self, name: str, result: CheckResult, detail: str | None = None) -> None:
        """Tell what was checked, and what came of it."""
        self._add("checks", make_check(name, result, detail))

    def observed(self, name: str, value: str | float | bool | None, unit: str | None = None) -> None:
        """Tell what was seen now. What is seen at a time belongs here and into no document."""
        self._add("observations", make_observation(name, self.context.clock(), value, unit))

    def changed(self, operation: Operation, what: str, detail: str | None = None) -> None:
        """Tell a change that was just made."""
        self._make_room("changes")
        self._recorder.end_change(None, make_change(operation, what, detail))

    @contextmanager
    def changing(self, operation: Operation, what: str, detail: str | None = None) -> Iterator[Change]:
        """Make a change inside. It is told once it was made; after a kill, or where it raises, as perhaps made."""
        self._make_room("changes")
        change = Change(what, detail)
        number = self._recorder.begin_change(make_change(operation, what, detail))
        yield change
        made = make_change(operation, change.what, change.detail) if change.was_made else None
        self._recorder.end_change(number, made)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Tell how the layer's changes were evaluated; the last one told counts."""
        self._recorder.found("evaluation", evaluation.to_json())

    def considered(
        self,
        candidate_id: str,
        description: str,
        evaluation: Evaluation | None,
        document: dict[str, Json] | None = None,
    ) -> bool:
        """Return whether a candidate may be adopted; if not, it is told as one that was not adopted.

        It may not if its evaluation covers fewer cases than the policy wants, or if `document`, the cognition layer
        as it would be, drops an obligation.
        """
        required, cases = self.context.minimum_cases, (evaluation.cases or 0) if evaluation else 0
        if evaluation is not None:
            evaluation = Evaluation(evaluation.method, evaluation.result, evaluation.cases, required or None)
            self.evaluated(evaluation)
        dropped = find_dropped(document, self.context.obligations) if document is not None else ()
        for obligation in dropped:
            self.refused(obligation.id, description, "the candidate lacks it, or words it otherwise")
        reason = ""
        if dropped:
            reason = f"it would drop {len(dropped)} obligation{'s' * (len(dropped) > 1)}"
        elif cases < required:
            reason = f"the policy wants at least {required} cases, and its evaluation covers {cases}"
        if reason:
            self.rejected(candidate_id, description, reason, evaluation)
        return not reason

    def rejected(self, candidate_id: str, description: str, reason: str, evaluation: Evaluation | None = None) -> None:
        """Tell a change that was considered and not adopted."""
        self._add("candidates", make_candidate(candidate_id, description, reason, evaluation))

    def refused(self, obligation: str, change: str, reason: str | None = None) -> None:
        """Tell a change that was refused because it would have dropped an obligation."""
        self._add("refusals", make_refusal(obligation, change, reason))

    def _add(self, member: str, value: dict[str, Json]) -> None:
        self._make_room(member)
        self._recorder.found(member, value)

    def _make_room(self, member: str) -> None:
        if len(self.findings.list_of(member)) >= MOST_ENTRIES:
            raise InvalidInput(member, MOST_ENTRIES, f"at most {MOST_ENTRIES} for one layer; tell them together")


__all__ = [
    "STEPS",
    "Change",
    "CheckResult",
    "CycleContext",
    "Evaluation",
    "LayerRoutine",
    "LayerWork",
    "Operation",
    "Recorder",
]
