"""Running the routines of a cycle's layers, and concluding what becomes of each: with the journal at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final, TypeVar

from melete.canonical import Json, canonicalize, load_json
from melete.errors import MeleteError
from melete.meditation.documents import check_document
from melete.meditation.kept import Kept
from melete.meditation.layers import SCHEMAS, Layer
from melete.meditation.registry import Subject
from melete.meditation.runner.concluding import Concluded, conclude_layer
from melete.meditation.runner.findings import CheckResult, Findings, make_check
from melete.meditation.runner.journal import Journal, JournaledCycle
from melete.meditation.runner.obligations import Obligation, obligations_of
from melete.meditation.runner.routine import STEPS, CycleContext, LayerRoutine, LayerWork
from melete.meditation.status import MaintenanceStatus
from melete.memory.witness_kinds import LAYERS, LayerDocument

T = TypeVar("T")

_NOT_ENDED: Final = "the layer's routine had not come to its end when the cycle was cut off"


class LayersRun:
    """The layers of one cycle, against the registered state that was loaded for it."""

    def __init__(
        self,
        journal: Journal,
        cycle: JournaledCycle,
        loaded: Subject,
        kept: Kept,
        routines: Mapping[Layer, LayerRoutine],
        *,
        policy: Mapping[str, Any] | None,
        known_obligations: Sequence[Obligation],
    ) -> None:
        self._journal, self._cycle, self._loaded, self._routines = journal, cycle, loaded, routines
        self._policy: Mapping[str, Any] = policy or {}
        self._known_obligations = known_obligations
        self._registered = load_registered(kept, loaded)

    def run(self, clock: Callable[[], int]) -> list[Concluded]:
        """Run the routines of the layers in scope, each after those that it depends on.

        A layer is skipped if one that it depends on was not completed in this cycle, or is not fresh where the cycle
        does not have it in scope.
        """
        documents: dict[int, dict[str, Json]] = {
            layer: deepcopy(kept.document) for layer, kept in self._registered.items()
        }
        context = self._context(documents, clock)
        depends = self._dependencies()
        concluded: list[Concluded] = []
        completed: set[Layer] = set()
        for layer in order_layers(self._cycle.scope, depends):
            unmet = [other for other in sorted(depends.get(layer, ())) if not self._is_met(other, completed)]
            document: dict[str, Json] | None = None
            failure = reason = None
            if unmet:
                named = ", ".join(str(other.value) for other in unmet)
                reason = f"it depends on layer {named}, which this cycle did not complete, and which is not fresh"
                self._found(layer, "dependencies", CheckResult.SKIPPED, reason, clock())
            else:
                document, failure = self._run_layer(layer, context)
            if document is not None and failure is None:
                completed.add(layer)
            found = self._conclude(layer, document, completed=layer in completed, failure=failure, reason=reason)
            concluded.append(found)
            if found.document is not None:
                documents[layer] = found.document
        return concluded

    def conclude_cut_off(self) -> list[Concluded]:
        """Describe the layers in scope as they are now, after a kill; nothing that is told now counts as later."""
        concluded = []
        for layer in self._cycle.scope:
            routine, document, at = self._routines.get(layer), None, self._cycle.last_at
            if routine is None:
                told = "the layer has no routine any more, so its document stays as it is registered"
                self._found(layer, "routine: describe", CheckResult.COULD_NOT_TELL, told, at)
            else:
                document, _ = self._attempt(layer, "describe", partial(describe, routine), at)
            done = layer in self._cycle.done and document is not None
            concluded.append(self._conclude(layer, document, completed=done, failure=None if done else _NOT_ENDED))
        return concluded

    # Private

    def _run_layer(self, layer: Layer, context: CycleContext) -> tuple[dict[str, Json] | None, str | None]:
        """Run a layer's routine; return its document, and why it failed if it did."""
        clock, routine = context.clock, self._routines[layer]
        self._journal.begin_layer(layer, clock())
        if layer not in self._registered:
            told = "the document behind the registered commitment is not kept here, so nothing was compared with it"
            self._found(layer, "registered document", CheckResult.COULD_NOT_TELL, told, clock())
        recorder = _JournalRecorder(self._journal, layer, clock)
        work = LayerWork(layer, context, recorder, self._cycle.findings[layer])
        failure = None
        for step in STEPS:
            _, failure = self._attempt(layer, step, partial(getattr(routine, step), work), clock())
            if failure is not None:
                break
        document, fault = self._attempt(layer, "describe", partial(describe, routine), clock())
        if failure is None and fault is None:
            self._journal.complete_layer(layer, clock())
        return document, failure or fault

    def _conclude(
        self,
        layer: Layer,
        document: dict[str, Json] | None,
        *,
        completed: bool,
        failure: str | None,
        reason: str | None = None,
    ) -> Concluded:
        kept, found = self._registered.get(layer), self._cycle.findings[layer]
        earlier = [
            {name: value for name, value in change.items() if name != "layer"}
            for change in self._journal.carried
            if change["layer"] == layer.value
        ]
        told = Findings(
            layer, found.checks, found.observations, [*earlier, *found.changes], found.candidates, found.refusals,
            found.evaluation,
        )  # fmt: skip
        return conclude_layer(
            told,
            document=document,
            registered=None if kept is None else kept.document,
            completed=completed,
            failure=failure,
            reason=reason,
            open_changes=self._cycle.open_changes[layer].values(),
            obligations=self._known_obligations,
        )

    def _is_met(self, layer: Layer, completed: set[Layer]) -> bool:
        if layer in self._cycle.scope:
            return layer in completed
        return self._loaded.statuses.layers[layer].status is MaintenanceStatus.FRESH

    def _context(self, documents: dict[int, dict[str, Json]], clock: Callable[[], int]) -> CycleContext:
        obligations = [*self._known_obligations, *obligations_of(documents.get(Layer.COGNITION, {}))]
        return CycleContext(
            clock=clock,
            documents=documents,
            minimum_cases=self._policy.get("evaluation", {}).get("minimumCases", 0),
            obligations=tuple(dict.fromkeys(obligations)),
            policy_hash=self._loaded.policy.policy_hash,
            policy_version=self._loaded.head.policy_version,
        )

    def _dependencies(self) -> dict[Layer, set[Layer]]:
        return {
            Layer(entry["layer"]): {Layer(other) for other in entry["dependsOn"]}
            for entry in self._policy.get("dependencies", [])
        }

    def _found(self, layer: Layer, name: str, result: CheckResult, detail: str, at: int) -> None:
        self._journal.found(layer, "checks", make_check(name, result, detail), at)

    def _attempt(self, layer: Layer, step: str, do: Callable[[], T], at: int) -> tuple[T | None, str | None]:
        """Do a step of a routine: return what it gives, or why it failed, which is told as a failed check."""
        try:
            return do(), None
        except Exception as error:  # noqa: BLE001 - a routine is anybody's code, and must not take the cycle with it
            fault = tell_error(error)
            self._found(layer, f"routine: {step}", CheckResult.FAILED, fault, at)
            return None, f"{step}: {fault}"


class _JournalRecorder:
    """Writes what a layer's routine tells to the journal, with the time."""

    def __init__(self, journal: Journal, layer: Layer, clock: Callable[[], int]) -> None:
        self._journal, self._layer, self._clock = journal, layer, clock

    def found(self, member: str, value: dict[str, Json]) -> None:
        self._journal.found(self._layer, member, value, self._clock())

    def begin_change(self, value: dict[str, Json]) -> int:
        return self._journal.begin_change(self._layer, value, self._clock())

    def end_change(self, number: int | None, value: dict[str, Json] | None) -> None:
        self._journal.end_change(self._layer, number, value, self._clock())


def load_registered(kept: Kept, loaded: Subject) -> dict[Layer, LayerDocument]:
    """Return the documents behind a subject's registered commitments, as far as they are kept."""
    found: dict[Layer, LayerDocument] = {}
    for layer, commitment in zip(Layer, loaded.commitments, strict=True):
        for entry in kept.find(LAYERS[layer], commitment):
            if entry.record is not None:
                found[layer] = entry.record
    return found


def describe(routine: LayerRoutine) -> dict[str, Json]:
    """Return the document of a routine's layer, a copy of its own, once it is a valid one.

    Errors: as `check_document`.
    """
    document: Any = load_json(canonicalize(routine.describe()))
    return check_document(document, expected=SCHEMAS[routine.layer])


def order_layers(scope: Sequence[Layer], depends: Mapping[Layer, set[Layer]]) -> list[Layer]:
    """Return the layers of a scope, each after those of the scope that it depends on, and else ascending."""
    ordered: list[Layer] = []
    waiting = sorted(scope)
    while waiting:
        free = [layer for layer in waiting if not depends.get(layer, set()) & set(waiting) - {layer}]
        layer = (free or waiting)[0]
        ordered.append(layer)
        waiting.remove(layer)
    return ordered


def tell_error(error: Exception) -> str:
    """Return what a record says of an error: its class, and its sentence where that is known to hold no secret."""
    if isinstance(error, MeleteError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return type(error).__name__
