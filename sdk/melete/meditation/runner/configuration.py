"""What a subject's cycles consist of, as one TOML file, `cycle.toml`. Paths are relative to its folder.

    subject = "0x..."                    # whose cycles these are; the key's account if left out
    policy = "policy.json"               # the registered policy's document: dependencies, fewest cases
    obligations = "obligations.json"     # obligations taken on elsewhere: a list of {"id", "statement", "to"}
    journal = "cycle.jsonl"              # what is not registered yet; in the data folder if left out
    first-block = 1234                   # where the registry's events begin

    [runtime]                            # a table for each layer that is maintained
    configuration = ["adapters.toml"]    # files, by digest; or {name = "...", path = "..."}
    dependencies = ["mcp", "anyio"]      # the distributions that count; all if left out
    authorization = [{name = "mail", scope = "send 50 a day", grantedBy = "office"}]
    code = [{name = "clerk", distribution = "harbor-clerk"}, {name = "rules", version = "4", path = "rules"}]
    adapters = [{name = "tides", kind = "api", interface = "tide tables", probe = "https://...", timeout = 5}]
    self-checks = [{name = "dry-run", version = "1", command = ["clerk", "check"], timeout = 60}]

    [memory-skills]
    store = "memories.db"                # a memory store: a path or URL; store-from names an environment variable
    files = "memory"                     # or, instead of it, files of your own
    packs = ["project", "user"]          # where packs are installed: in this folder, in the home
    space = "0x..."                      # the memory space whose registered head is named
    skills = [{name = "read-tides", version = "3", path = "skills/read-tides"}]
    harness = ["skills.toml"]

    [tasks-roles]
    document = "tasks.json"

    [cognition]
    document = "cognition.json"
    candidate = "candidate.json"         # a change to decide about, if there is one

A table with `plugin = "name"` is handed to the plug-in of that name, with all else that it holds.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import Json, load_json
from melete.errors import ConfigurationError, InvalidInput
from melete.meditation.documents import POLICY_SCHEMA
from melete.meditation.layers import Layer
from melete.meditation.runner.files import NamedPath, read_bytes, read_document
from melete.meditation.runner.obligations import Obligation
from melete.meditation.runner.plugins import load_plugin
from melete.meditation.runner.routine import LayerRoutine
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from melete.memory.registry import MemoryRegistry
    from melete.packs.inspection import Place

FILE_NAME: Final = "cycle.toml"
LARGEST_FILE: Final = 2**20
TABLES: Final = {
    "runtime": Layer.RUNTIME,
    "memory-skills": Layer.MEMORY_SKILLS,
    "tasks-roles": Layer.TASKS_ROLES,
    "cognition": Layer.COGNITION,
}
ADAPTER_KINDS: Final = ("api", "tool-protocol", "model", "storage", "chain", "other")


@dataclass(frozen=True, slots=True)
class CycleConfiguration:
    """What `cycle.toml` says, read and checked."""

    folder: Path
    subject: Address | None
    policy: dict[str, Json] | None
    obligations: tuple[Obligation, ...]
    journal: Path | None
    first_block: int
    routines: tuple[LayerRoutine, ...]


def load_configuration(
    path: Path, connect_memory: Callable[[], MemoryRegistry] | None = None, *, with_routines: bool = True
) -> CycleConfiguration:
    """Return what a configuration file says. `connect_memory` gives the registry that a memory space is on.

    Without routines, the tables of the layers are not looked into.

    Errors: `ConfigurationError` for a file that is none, a member that is missing, unknown or of another type, and for
    a plug-in that cannot be used; `MissingFile` and those of `load_document` for the documents that it names.
    """
    folder = path.resolve().parent
    table = Table(load_toml(path), "", path.name, folder)
    policy, obligations = table.path("policy"), table.path("obligations")
    subject, journal = table.text("subject"), table.path("journal", is_recorded=False)
    found = CycleConfiguration(
        folder,
        None if subject is None else Address(subject, "subject"),
        None if policy is None else read_document(policy, POLICY_SCHEMA),
        () if obligations is None else load_obligations(obligations),
        None if journal is None else journal.path,
        table.number("first-block", 0),
        tuple(
            _routine(layer, given, connect_memory)
            for name, layer in TABLES.items()
            if (given := table.table(name)) is not None and with_routines
        ),
    )
    table.finish()
    return found


def load_toml(path: Path) -> dict[str, Any]:
    """Return the document in a TOML file. Errors: `ConfigurationError`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigurationError(f"{path} has more than {LARGEST_FILE} bytes; it is no configuration of ours")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from None


def load_obligations(named: NamedPath) -> tuple[Obligation, ...]:
    """Return the obligations in a file: a list of objects. Errors: `MissingFile`, `InvalidJson`, `InvalidInput`."""
    listed = load_json(read_bytes(named))
    if not isinstance(listed, list):
        raise InvalidInput("obligations", named.name, "a list of objects with id, statement and to")
    return tuple(Obligation.from_json(entry) for entry in listed)


class Table:
    """A table of the configuration. What is not asked for by the end is unknown."""

    def __init__(self, members: dict[str, Any], place: str, file: str, folder: Path) -> None:
        self._members, self._place, self._file, self.folder = dict(members), place, file, folder

    def finish(self) -> None:
        """Refuse what is left. Errors: `ConfigurationError`."""
        for name in self._members:
            raise self._error(f"{name!a} is unknown")

    def rest(self) -> dict[str, Any]:
        """Return, and take, all that is left."""
        left, self._members = self._members, {}
        return left

    def text(self, name: str) -> str | None:
        """Return a member that is text, or None."""
        value = self._members.pop(name, None)
        if value is not None and (not isinstance(value, str) or not value):
            raise self._error(f"{name} must be text that is not empty")
        return value

    def required(self, name: str) -> str:
        """Return a member that is text and must be there."""
        value = self.text(name)
        if value is None:
            raise self._error(f"{name} is missing")
        return value

    def number(self, name: str, default: int) -> int:
        """Return a member that is a whole number of at least 0."""
        value = self._members.pop(name, default)
        if type(value) is not int or not 0 <= value < 2**63:
            raise self._error(f"{name} must be a whole number")
        return value

    def seconds(self, name: str, default: float) -> float:
        """Return a member that is a time in seconds, of at most an hour."""
        value = self._members.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
            raise self._error(f"{name} must be a number of seconds, at most 3600")
        return float(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Return a member that is a list of texts, or None."""
        value = self._members.pop(name, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self._error(f"{name} must be a list of texts")
        return tuple(value)

    def path(self, name: str, *, is_recorded: bool = True) -> NamedPath | None:
        """Return a member that is a path, or None. One that no record and no document names may lead anywhere."""
        if name not in self._members:
            return None
        return self._to_path(name, self._members.pop(name), is_recorded=is_recorded)

    def paths(self, name: str) -> tuple[NamedPath, ...]:
        """Return a member that is a list of paths."""
        value = self._members.pop(name, [])
        if not isinstance(value, list):
            raise self._error(f"{name} must be a list of paths")
        return tuple(self._to_path(name, one) for one in value)

    def table(self, name: str) -> Table | None:
        """Return a member that is a table, or None."""
        value = self._members.pop(name, None)
        if value is not None and not isinstance(value, dict):
            raise self._error(f"{name} must be a table")
        return None if value is None else Table(value, self._join(name), self._file, self.folder)

    def tables(self, name: str) -> list[Table]:
        """Return a member that is a list of tables."""
        value = self._members.pop(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._error(f"{name} must be a list of tables")
        return [Table(one, self._join(f"{name}[{index}]"), self._file, self.folder) for index, one in enumerate(value)]

    def refuse(self, reason: str) -> ConfigurationError:
        """Return the error for something in this table that is refused."""
        return self._error(reason)

    def _to_path(self, name: str, value: Any, *, is_recorded: bool = True) -> NamedPath:
        named: dict[str, Any] = value if isinstance(value, dict) else {"path": value}
        if not set(named) <= {"name", "path"} or not all(isinstance(one, str) and one for one in named.values()):
            raise self._error(f"{name} must be a path, or a name and a path")
        if "path" not in named or "\0" in named["path"]:
            raise self._error(f"{name} must be a path, or a name and a path")
        shown: str = named.get("name", named["path"])
        if is_recorded and "name" not in named and (Path(shown).is_absolute() or ".." in Path(shown).parts):
            raise self._error(f"{name}: {shown!a} leads out of the folder, so it needs a name to be recorded under")
        return NamedPath(shown, self.folder / named["path"])

    def _join(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def _error(self, reason: str) -> ConfigurationError:
        where = f"{self._file}, [{self._place}]" if self._place else self._file
        return ConfigurationError(f"{where}: {reason}")


# Routines


def _routine(layer: Layer, table: Table, connect_memory: Callable[[], MemoryRegistry] | None) -> LayerRoutine:
    plugin = table.text("plugin")
    if plugin is not None:
        return load_plugin(plugin, layer, table.rest(), table.folder)
    if layer is Layer.RUNTIME:
        routine = _runtime(table)
    elif layer is Layer.MEMORY_SKILLS:
        routine = _memory(table, connect_memory)
    else:
        routine = _files(layer, table)
    table.finish()
    return routine


def _runtime(table: Table) -> LayerRoutine:
    from melete.meditation.runner.probes import TIMEOUT_SECONDS
    from melete.meditation.runner.runtime_layer import (
        SELF_CHECK_SECONDS,
        Adapter,
        Program,
        RuntimeRoutine,
        SelfCheck,
    )

    code, adapters, checks, grants = [], [], [], []
    for one in table.tables("code"):
        code.append(
            Program(
                one.required("name"),
                one.text("version"),
                one.text("source"),
                one.path("path"),
                one.text("distribution"),
            )
        )
        if code[-1].version is None and code[-1].distribution is None:
            raise one.refuse("a program needs a version, or the distribution that it is")
        one.finish()
    for one in table.tables("adapters"):
        adapters.append(
            Adapter(
                one.required("name"),
                one.required("kind"),
                one.required("interface"),
                one.text("version"),
                one.text("probe"),
                one.seconds("timeout", TIMEOUT_SECONDS),
            )
        )
        if adapters[-1].kind not in ADAPTER_KINDS:
            raise one.refuse(f"kind must be one of {', '.join(ADAPTER_KINDS)}")
        one.finish()
    for one in table.tables("self-checks"):
        checks.append(
            SelfCheck(
                one.required("name"),
                one.text("version"),
                one.text("description"),
                one.texts("command") or (),
                one.seconds("timeout", SELF_CHECK_SECONDS),
            )
        )
        one.finish()
    for one in table.tables("authorization"):
        stated = {name: one.text(name) for name in ("grantedBy", "digest")}
        required: dict[str, Json] = {"name": one.required("name"), "scope": one.required("scope")}
        grants.append({**required, **{name: value for name, value in stated.items() if value is not None}})
        one.finish()
    return RuntimeRoutine(
        code=code,
        configuration=table.paths("configuration"),
        dependencies=table.texts("dependencies"),
        adapters=adapters,
        authorization=grants,
        self_checks=checks,
        folder=table.folder,
    )


def _memory(table: Table, connect_memory: Callable[[], MemoryRegistry] | None) -> LayerRoutine:
    from melete.meditation.runner.memory_layer import MemoryRoutine, Skill

    skills = []
    for one in table.tables("skills"):
        name, version, files = one.required("name"), one.required("version"), one.path("path")
        if files is None:
            raise one.refuse("path is missing")
        skills.append(Skill(name, version, NamedPath(name, files.path)))
        one.finish()
    store, files = _store(table), table.path("files")
    if (store is None) == (files is None):
        raise table.refuse("give store (or store-from), or files: one of them is what memory is kept in")
    return MemoryRoutine(
        store=store,
        files=files,
        organization=table.text("organization"),
        packs=_packs(table),
        skills=skills,
        harness=table.paths("harness"),
        head=_head(table, connect_memory),
    )


def _store(table: Table) -> str | Path | None:
    store, variable = table.text("store"), table.text("store-from")
    if store is not None and variable is not None:
        raise table.refuse("store and store-from name two stores; give one")
    if variable is not None:
        store = os.environ.get(variable)
        if not store:
            raise table.refuse(f"store-from: the environment holds no {variable!a}")
    if store is None or "://" in store:
        return store
    return table.folder / store


def _packs(table: Table) -> tuple[Place, ...]:
    from melete.packs.hosts import Scope, find_home
    from melete.packs.inspection import Place

    scopes = table.texts("packs") or ()
    roots = {"project": lambda: str(table.folder), "user": find_home}
    for scope in scopes:
        if scope not in roots:
            raise table.refuse(f"packs: {scope!a} is no place; there are project and user")
    return tuple(Place(roots[scope](), Scope(scope)) for scope in dict.fromkeys(scopes))


def _head(table: Table, connect_memory: Callable[[], MemoryRegistry] | None) -> Callable[[], dict[str, Json]] | None:
    from melete.meditation.runner.memory_layer import load_memory_head

    space = table.text("space")
    if space is None:
        return None
    space_id = Bytes32(space, "space")
    if connect_memory is None:
        raise table.refuse("space: there is no memory registry here to ask")
    connect = connect_memory
    return lambda: load_memory_head(connect(), space_id)


def _files(layer: Layer, table: Table) -> LayerRoutine:
    from melete.meditation.runner.files_layer import CognitionRoutine, TasksRoutine

    document = table.path("document")
    if document is None:
        raise table.refuse("document is missing")
    if layer is Layer.TASKS_ROLES:
        return TasksRoutine(document)
    return CognitionRoutine(document, table.path("candidate"))
