"""Layer 1: the memory store by its audit head, packs and skills by digest, and the registered head of the memory.

What is due in the store is expired; an install of a pack that was cut off is made good. The document names what an
auditor can compare: the audit head with the store, the memory head with its registry, a digest with the pack.

Source: decisions, One system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import Json
from melete.errors import InvalidInput, MeleteError, VerificationError
from melete.meditation.cycle import Operation
from melete.meditation.layers import SCHEMAS, Layer
from melete.meditation.runner.files import NamedPath, hash_path, is_there
from melete.meditation.runner.routine import CheckResult, LayerRoutine, LayerWork
from melete.primitives import Address, Bytes32, parse_sequence

if TYPE_CHECKING:
    from melete.memory.registry import MemoryRegistry
    from melete.packs.inspection import Inspection, Place
    from melete.wire.audit import AuditHead
    from melete.wire.store import MemoryStore

#: The document's extension that holds the number of the audit row whose hash is the memory's digest.
AUDIT_NUMBER: Final = "melete/audit-number"
ORGANIZATION: Final = "One memorywire store: episodic, semantic, procedural and working memories, with an audit log."


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: its files, and the version that somebody states."""

    name: str
    version: str
    files: NamedPath


class MemoryRoutine(LayerRoutine):
    """Keeps memory, packs and skills.

    `store` is a memory store by path or URL, or `files` a file or folder that memory is kept in: one of the two.
    `packs` are the places where packs are installed; `harness` the configuration that manages it all. `head` gives
    the registered head of the memory, where it has one.
    """

    layer = Layer.MEMORY_SKILLS

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        files: NamedPath | None = None,
        organization: str | None = None,
        packs: Sequence[Place] = (),
        skills: Sequence[Skill] = (),
        harness: Sequence[NamedPath] = (),
        head: Callable[[], dict[str, Json]] | None = None,
    ) -> None:
        """Errors: `InvalidInput` for neither store nor files, and for both."""
        if (store is None) == (files is None):
            received = "neither" if store is None else "both"
            raise InvalidInput("memory", received, "a store, or the files that memory is kept in: one of the two")
        self._store, self._files = store, files
        self._organization = organization or (ORGANIZATION if store is not None else "Files of the agent's own.")
        self._packs, self._skills, self._harness, self._head = packs, skills, harness, head

    def check(self, work: LayerWork) -> None:
        """Verify the audit log, every pack and every skill."""
        if self._store is not None:
            with self._opened() as store:
                self._check_audit(work, store)
        for place in self._packs:
            self._check_packs(work, place)
        registered: Any = work.registered or {}
        self._check_gone(work, "pack", registered.get("packs"), self._pack_names)
        self._check_gone(work, "skill", registered.get("skills"), lambda: {one.name for one in self._skills})
        for kind, before, paths in (
            ("skill", registered.get("skills"), [one.files for one in self._skills]),
            ("harness", registered.get("harness"), list(self._harness)),
        ):
            self._check_files(work, kind, before, paths)

    def clean(self, work: LayerWork) -> None:
        """Expire what is due in the store."""
        if self._store is None:
            return
        with (
            self._opened() as store,
            work.changing(Operation.CLEAN, "memories past their time were removed") as change,
        ):
            count = store.sweep()
            change.was_made, change.detail = count > 0, f"{count} of them"
        work.observed("memories past their time", count)

    def repair(self, work: LayerWork) -> None:
        """Make good installs of packs that were cut off."""
        from melete.packs.inspection import is_unfinished, make_good

        for place in self._packs:
            if is_unfinished(place):
                with work.changing(Operation.REPAIR, "an install of a pack that was cut off is made good") as change:
                    change.detail = "; ".join(make_good(place)) or None
                self._check_packs(work, place)

    def describe(self) -> dict[str, Json]:
        """Return the document of memory and skills. A skill or harness file that is gone is left out."""
        memory: dict[str, Json] = {"organization": self._organization}
        extensions: dict[str, Json] = {}
        if self._files is not None:
            memory["digest"] = hash_path(self._files)
        else:
            with self._opened() as store, store.snapshot():
                audit = store.audit_head()
                memory |= {"digest": f"keccak256:{audit.hash.hex()}", "count": store.count()}
                extensions[AUDIT_NUMBER] = str(audit.number)
        if self._head is not None:
            memory["head"] = self._head()
        document: dict[str, Json] = {
            "schema": SCHEMAS[Layer.MEMORY_SKILLS],
            "layer": 1,
            "memory": memory,
            "skills": [
                {"name": one.name, "version": one.version, "digest": hash_path(one.files), "state": "current"}
                for one in self._skills
                if is_there(one.files)
            ],
            "packs": [pack for place in self._packs for pack in describe_packs(place)],
            "harness": [{"name": one.name, "digest": hash_path(one)} for one in self._harness if is_there(one)],
        }
        return {**document, "extensions": extensions} if extensions else document

    # Private

    @contextmanager
    def _opened(self) -> Iterator[MemoryStore]:
        from melete.wire.store import MemoryStore

        assert self._store is not None  # asked for by whoever knows
        with MemoryStore.open(self._store, create=False) as store:
            yield store

    def _check_audit(self, work: LayerWork, store: MemoryStore) -> None:
        recorded = _registered_audit(work.registered)
        try:
            found = store.verify_audit(recorded)
        except VerificationError as error:
            work.checked("memory audit", CheckResult.FAILED, str(error))
            return
        told = f"{found.number} entries"
        if recorded is not None:
            told += f", which go on from the registered {recorded.number}"
        work.checked("memory audit", CheckResult.PASSED, told)

    def _check_packs(self, work: LayerWork, place: Place) -> None:
        from melete.packs.inspection import is_unfinished

        if is_unfinished(place):
            work.checked(f"packs of the {place.scope.value}", CheckResult.FAILED, "an install or uninstall was cut off")
            return
        answers = {
            "intact": CheckResult.PASSED,
            "broken": CheckResult.FAILED,
            "unknown": CheckResult.COULD_NOT_TELL,
        }
        for found in inspect_packs(place):
            detail = "; ".join(found.problems) or found.signature_fault or None
            work.checked(f"pack: {found.installed.slug}", answers[found.answer], detail)

    def _pack_names(self) -> set[str]:
        from melete.packs.inspection import list_installed

        return {one.slug for place in self._packs for one in list_installed(place)}

    def _check_gone(self, work: LayerWork, kind: str, registered: Any, names: Callable[[], set[str]]) -> None:
        """Tell of what the registered document names and nobody looks after any more."""
        if not registered:
            return
        for name in sorted({entry["name"] for entry in registered} - names()):
            work.checked(f"{kind}: {name}", CheckResult.FAILED, f"{name} is gone")

    def _check_files(self, work: LayerWork, kind: str, registered: Any, paths: Sequence[NamedPath]) -> None:
        before = {entry["name"]: entry["digest"] for entry in registered or ()}
        for named in paths:
            result, told = CheckResult.PASSED, "as registered"
            if not is_there(named):
                result, told = CheckResult.FAILED, "it is not there"
            elif named.name not in before:
                told = "it was not registered before"
            elif hash_path(named) != before[named.name]:
                result, told = CheckResult.FAILED, "its content is not what is registered"
            work.checked(f"{kind}: {named.name}", result, told)


def inspect_packs(place: Place) -> list[Inspection]:
    """Return what is found of every installed pack in a place, with the keys that the user trusts."""
    from melete.packs.inspection import inspect, list_installed
    from melete.packs.trust import TrustStore

    trusted = TrustStore().keys_for_verification()
    return [inspect(place, one.slug, trusted=trusted) for one in list_installed(place)]


def describe_packs(place: Place) -> list[Json]:
    """Return the packs in a place as the document names them; of one without files there is no digest to name."""
    found: list[Json] = []
    for one in inspect_packs(place):
        if one.verdict is None:
            continue
        pack: dict[str, Json] = {"name": one.installed.slug, "digest": f"sha256:{one.verdict.digest}"}
        if one.version:
            pack["version"] = one.version
        if one.verdict.answer == "held" and one.verdict.signer:
            pack["signer"] = one.verdict.signer
        found.append(pack)
    return found


def load_memory_head(registry: MemoryRegistry, space_id: Bytes32) -> dict[str, Json]:
    """Return the registered head of a memory space as the document names it. Errors: `UnknownSpace`; the node's."""
    head = registry.head(space_id)
    return {
        "chainId": str(registry.chain_id),
        "registry": str(Address(registry.address)),
        "spaceId": str(space_id),
        "sequence": str(head.sequence),
        "stateRoot": str(head.state_root),
    }


def _registered_audit(document: Any) -> AuditHead | None:
    """Return the audit head that a registered document names, if it names one."""
    from melete.wire.audit import AuditHead

    try:
        number = parse_sequence(document["extensions"][AUDIT_NUMBER])
        name, _, digest = document["memory"]["digest"].partition(":")
        return AuditHead(number, Bytes32(f"0x{digest}")) if name == "keccak256" and number else None
    except (KeyError, TypeError, MeleteError):
        return None
