"""`amp list`: what is installed."""

from __future__ import annotations

import sys
from typing import Any

from melete.cli.packs.arguments import AS_JSON, CommandLine, Option, emit, visible, warn
from melete.packs.credentials import hide_secrets
from melete.packs.hosts import SCOPES, Scope, find_home, find_project, load_project

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.inspection import Installed, Place


def run(scope: str | None, as_json: bool) -> int:
    """List the packs of a scope, or of both."""
    from melete.packs.inspection import is_unfinished, list_installed

    found: list[Installed] = []
    warnings = []
    for place in _find_places(scope):
        found += list_installed(place)
        if is_unfinished(place):
            warnings.append(f"a change in {place.root} goes on, or was cut off: amp inspect makes it good")
    if as_json:
        emit({"packs": [to_json(one) for one in found], "warnings": warnings}, as_json=True)
        return 0
    sys.stdout.writelines(f"{hide_secrets(to_line(one))}\n" for one in found)
    warn(warnings)
    return 0


def _find_places(scope: str | None) -> list[Place]:
    from melete.packs.inspection import Place

    places = []
    project = find_project() if scope is None else None
    if scope == Scope.PROJECT.value:
        project = load_project()
    if project is not None:
        places.append(Place(project, Scope.PROJECT))
    if scope != Scope.PROJECT.value:
        places.append(Place(find_home(), Scope.USER))
    return places


def to_json(one: Installed) -> dict[str, Any]:
    record = one.record
    return {
        "name": one.slug,
        "title": None if record is None else record.title,
        "version": None if record is None else record.version,
        "digest": None if record is None else record.digest,
        "agent": None if record is None else record.agent.value,
        "scope": one.place.scope.value,
        "root": one.place.root,
        "packFolder": one.folder,
        "hostFile": None if record is None else record.host_file,
        "installedAt": None if record is None else record.installed_at,
        "signature": None if record is None else record.signature,
        "filesPresent": one.has_files,
        "fault": one.fault or None,
    }


def to_line(one: Installed) -> str:
    record = one.record
    if record is None:
        return f"{one.slug}  {one.place.scope.value}  {one.folder}  ({one.fault})"
    state = "" if one.has_files else "  (its files are missing)"
    version = visible(record.version or "-")
    signature = visible(record.signature)
    return f"{one.slug}  {version}  {record.agent.value}, {one.place.scope.value}  {signature}{state}"


command = CommandLine(
    run,
    help="List the packs that are installed in this project and for the user.",
    options=(Option("--scope", "SCOPE", "Only these.", choices=SCOPES), AS_JSON),
)
