"""Layers 2 and 3: the documents that an agent keeps of its tasks and of its cognition, as JSON files.

The agent writes the files; a cycle reads, checks and registers them. A change of cognition may also come as a
candidate: a file with the whole new document and how it was evaluated. It is adopted, by being put into the document's
place, if its evaluation covers as many cases as the policy wants and no known obligation is dropped.

    {"id": "ask-first", "description": "Ask before comparing.", "document": {...},
     "evaluation": {"method": "Replay of past cases.", "cases": 24, "result": "Better in 17, worse in 2."}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from melete.canonical import Json, canonicalize, load_json
from melete.errors import InvalidJson
from melete.meditation.cycle import Operation
from melete.meditation.documents import LARGEST_DOCUMENT, check_document
from melete.meditation.layers import SCHEMAS, Layer
from melete.meditation.runner.files import NamedPath, is_there, read_bytes, read_document, write_atomically
from melete.meditation.runner.routine import CheckResult, Evaluation, LayerRoutine, LayerWork

_CANDIDATE: Final = {"id": str, "description": str, "document": dict, "evaluation": dict}
_EVALUATION: Final = {"method": str, "result": str, "cases": int}


class TasksRoutine(LayerRoutine):
    """Registers the tasks document, and checks the skills that its tasks are bound to against layer 1's."""

    layer = Layer.TASKS_ROLES

    def __init__(self, document: NamedPath) -> None:
        self._document = document

    def check(self, work: LayerWork) -> None:
        """Check that the document is one, and that every skill that a task is bound to is held in that version."""
        document: Any = self.describe()
        work.checked("document", CheckResult.PASSED)
        memory: Any = work.context.documents.get(Layer.MEMORY_SKILLS)
        bound = [(task["id"], skill) for task in document["tasks"] for skill in task["skills"]]
        if memory is None:
            if bound:
                work.checked("bound versions", CheckResult.COULD_NOT_TELL, "the document of layer 1 is not known here")
            return
        held = {(skill["name"], skill["version"]) for skill in memory["skills"]}
        loose = [
            f"{task} is bound to {skill['name']} {skill['version']}, which is not held"
            for task, skill in bound
            if (skill["name"], skill["version"]) not in held
        ]
        result = CheckResult.FAILED if loose else CheckResult.PASSED
        work.checked("bound versions", result, "; ".join(loose) or f"{len(bound)} of {len(bound)} are held")

    def describe(self) -> dict[str, Json]:
        """Return what the file holds. Errors: `MissingFile`; those of `load_document`."""
        return read_document(self._document, SCHEMAS[Layer.TASKS_ROLES])


class CognitionRoutine(LayerRoutine):
    """Registers the cognition document, and decides about a candidate if there is one."""

    layer = Layer.COGNITION

    def __init__(self, document: NamedPath, candidate: NamedPath | None = None) -> None:
        self._document, self._candidate = document, candidate

    def check(self, work: LayerWork) -> None:
        """Check that the document is one, and that it names the policy that is in force."""
        document: Any = self.describe()
        work.checked("document", CheckResult.PASSED)
        named, policy_hash = document["policy"]["policyHash"], str(work.context.policy_hash)
        told = f"policy version {work.context.policy_version} is in force"
        result = CheckResult.PASSED if named == policy_hash else CheckResult.FAILED
        work.checked("names the policy in force", result, told)

    def iterate(self, work: LayerWork) -> None:
        """Adopt the candidate, or tell why not; one that is in force already is not told again."""
        if self._candidate is None or not is_there(self._candidate):
            return
        candidate = load_candidate(self._candidate)
        document: Any = candidate["document"]
        if canonicalize(document) == canonicalize(self.describe()):
            return
        stated: Any = candidate["evaluation"]
        evaluation = Evaluation(stated["method"], stated["result"], stated["cases"])
        name, description = str(candidate["id"]), str(candidate["description"])
        if work.considered(name, description, evaluation, document):
            with work.changing(Operation.ITERATE, f"{name}: {description}"):
                text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
                write_atomically(self._document, text.encode())

    def describe(self) -> dict[str, Json]:
        """Return what the file holds. Errors: as `TasksRoutine.describe`."""
        return read_document(self._document, SCHEMAS[Layer.COGNITION])


def load_candidate(named: NamedPath) -> dict[str, Json]:
    """Return the candidate in a file: all members above and no others.

    Errors: `MissingFile`; `InvalidJson` with the pointer to the first fault.
    """
    content = read_bytes(named)
    if len(content) > LARGEST_DOCUMENT:
        raise InvalidJson("", f"a candidate has at most {LARGEST_DOCUMENT} bytes")
    candidate = load_json(content)
    _require(candidate, "", _CANDIDATE)
    assert isinstance(candidate, dict)  # as was just required
    _require(candidate["evaluation"], "/evaluation", _EVALUATION)
    try:
        check_document(candidate["document"], expected=SCHEMAS[Layer.COGNITION])
    except InvalidJson as error:
        raise InvalidJson(f"/document{error.pointer}", error.rule) from None
    return candidate


def _require(value: Json, pointer: str, members: Mapping[str, type]) -> None:
    if not isinstance(value, dict) or set(value) != set(members):
        raise InvalidJson(pointer, f"it must be an object with the members {', '.join(members)}")
    for name, kind in members.items():
        member = value[name]
        if (
            type(member) is not kind
            or (kind is str and not member)
            or (kind is int and not 0 <= int(str(member)) < 2**32)
        ):
            raise InvalidJson(f"{pointer}/{name}", f"it must be {_KINDS[kind]}")


_KINDS: Final = {str: "text that is not empty", dict: "an object", int: "an integer from 0 to 2^32 - 1"}
