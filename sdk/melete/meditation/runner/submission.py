"""A cycle record that somebody made, brought to the registry with the layer documents that it leads to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from melete.canonical import Json, canonicalize
from melete.errors import InvalidInput, WitnessMissing
from melete.meditation.cycle import SubjectState
from melete.meditation.documents import RECORD_SCHEMA, check_document, layer_of
from melete.meditation.layers import Layer, compute_root, to_commitments
from melete.meditation.outbox import MeditationOutbox
from melete.meditation.records import derive_report
from melete.meditation.runner.registering import CycleResult
from melete.meditation.runner.reports import CycleState, Reports, Settled
from melete.memory.witness_kinds import LAYERS, REPORT, LayerDocument
from melete.primitives import ZERO_BYTES32, Address, Bytes32, parse_sequence


class Submission:
    """Puts records of a subject into the outbox, each once."""

    def __init__(
        self,
        outbox: MeditationOutbox,
        subject: Address,
        first_block: int = 0,
        *,
        new_salt: Callable[[], bytes] = lambda: secrets.token_bytes(32),
    ) -> None:
        self.outbox, self.subject, self.registry = outbox, Address(subject, "subject"), outbox.registry
        self._reports, self._new_salt = Reports(outbox, self.subject, first_block), new_salt
        self._kept = outbox.kept(self.subject)

    def add(
        self,
        record: dict[str, Json],
        posts: Sequence[dict[str, Json]],
        *,
        record_uri: str = "",
        public_salt: bool = False,
    ) -> CycleResult:
        """Put the report of a record into the outbox, unless it is there, or registered already.

        `posts` are the documents of layers as they are after the cycle; a layer without one stays as it is. A document
        that is registered already keeps its salt. Of a record that restores a version, all comes from the witness
        store. A record made on an earlier state is a conflict, put nowhere, and the result tells what changed since.
        Errors: those of `derive_report`, `report` and `MeditationOutbox.add`; `InvalidInput` for two documents
        of a layer; `WitnessMissing` for what was kept of a version that is to be restored.
        """
        check_document(record, expected=RECORD_SCHEMA)
        self.outbox.recover()
        known = self.settle(record)
        if known.state not in (CycleState.NOTHING, CycleState.REFUSED):
            return known
        restores = parse_sequence(record.get("restoresVersion", "0"), "restoresVersion")
        state = self.registry.load_state(self.subject, restores_version=restores)
        base = parse_sequence(record["baseVersion"], "baseVersion")
        if base < state.state_version:
            reason = f"the record is made on state version {base}, and the current one is {state.state_version}"
            changed = self._reports.changes_since(base)
            return CycleResult(CycleState.CONFLICT, record, reason=reason, changed_since=changed)
        documents = self._documents(state, posts, public_salt=public_salt)
        if restores:
            documents |= self._load_version(state, restores, [layer for layer in Layer if layer not in documents])
        after = to_commitments(
            LAYERS[layer].commit(documents[layer]) if layer in documents else state.commitments[layer]
            for layer in Layer
        )
        report = derive_report(record, state.commitments, after, record_uri=record_uri)
        return CycleResult(CycleState.QUEUED, record, report, self.outbox.add(self.subject, report, record, documents))

    def settle(self, record: dict[str, Json]) -> CycleResult:
        """Say what became of a record: NOTHING for one that was never put into the outbox. Errors: the node's.

        Events are looked through only where the witness store keeps the record: then it was sent from here.
        """
        record_hash = REPORT.commit(record)
        item = self._reports.find_item(record_hash)
        if item is not None:
            return self._result(record, self._reports.settle(item))
        event = self._reports.find_event(record_hash, 0) if self._kept.find(REPORT, record_hash) else None
        if event is not None:
            return CycleResult(CycleState.REGISTERED, record, event.report, event=event)
        return CycleResult(CycleState.NOTHING)

    # Private

    def _result(self, record: dict[str, Json], found: Settled) -> CycleResult:
        is_conflict = found.state is CycleState.CONFLICT
        changed = self._reports.changes_since(found.report.base_version) if is_conflict else ()
        return CycleResult(
            found.state, record, found.report, found.item, found.event, found.reason, changed_since=changed
        )

    def _documents(
        self, state: SubjectState, posts: Sequence[dict[str, Json]], *, public_salt: bool
    ) -> dict[int, LayerDocument]:
        found: dict[int, LayerDocument] = {}
        for document in posts:
            layer = layer_of(str(document.get("schema")))
            if layer is None or layer in found:
                received = document.get("schema") if layer is None else layer.value
                raise InvalidInput("post", received, "one state document for a layer")
            found[layer] = LayerDocument(document, ZERO_BYTES32 if public_salt else Bytes32(self._new_salt()))
            for entry in self._kept.find(LAYERS[layer], state.commitments[layer]):
                if entry.record is not None and canonicalize(entry.record.document) == canonicalize(document):
                    found[layer] = entry.record
        return found

    def _load_version(self, state: SubjectState, version: int, layers: Sequence[Layer]) -> dict[int, LayerDocument]:
        """Return what is kept of layers at a state version: their latest documents up to it."""
        found: dict[int, LayerDocument] = {}
        for layer in layers:
            kind = LAYERS[layer]
            numbers = [number for number in self._kept.versions(kind) if number <= version]
            if not numbers:
                raise WitnessMissing(kind.name, self.subject, version)
            found[layer] = self._kept.get(kind, max(numbers))
        root = compute_root(LAYERS[layer].commit(found[layer]) for layer in Layer) if len(found) == len(Layer) else None
        if root is not None and root != state.roots.get(version):
            raise WitnessMissing(LAYERS[0].name, self.subject, version)
        return found
