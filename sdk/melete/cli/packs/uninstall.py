"""`amp uninstall`: take an installed pack away."""

from __future__ import annotations

from melete.cli.packs.arguments import AS_JSON, CommandLine, Option, emit, visible, warn
from melete.packs.hosts import SCOPES, Scope, pack_folder


def run(slug: str, scope: str | None, as_json: bool) -> int:
    """Remove the pack, and say what went."""
    from melete.packs.inspection import locate, parse_name
    from melete.packs.uninstall import uninstall

    creator, name = parse_name(slug)
    place = locate(name, None if scope is None else Scope(scope), any_agent=False)
    done = uninstall(place, name)
    warnings = list(done.warnings)
    if creator is not None and done.creator is not None and creator != done.creator:
        warnings.append(f"it was installed as @{visible(done.creator)}/{name}")
    if as_json:
        found = {
            "name": done.slug,
            "version": done.version,
            "scope": place.scope.value,
            "root": place.root,
            "hostFiles": done.host_files,
            "packFolder": pack_folder(name),
            "files": done.files,
            "kept": done.kept,
            "keptIn": done.kept_in,
            "warnings": warnings,
        }
        emit(found, as_json=True)
        return 0
    version = f" {visible(done.version)}" if done.version else ""
    lines = {
        "uninstalled": f"{done.slug}{version}, {place.scope.value} scope",
        "host file": [f"{place.root}/{path}" for path in done.host_files],
        "pack files": f"{place.root}/{pack_folder(name)} ({done.files})",
        "kept": [f"{done.kept_in}/files/{visible(path)}" for path in done.kept],
    }
    emit(lines, as_json=False)
    warn(warnings)
    return 0


command = CommandLine(
    run,
    help="Remove the pack SLUG (or @creator/SLUG): its block, its files, its record. The agent's file becomes what it "
    "would be without; what was edited in the pack is kept below .amp/.kept/.",
    arguments=("slug",),
    options=(
        Option("--scope", "SCOPE", "Where it is installed; the project if not given.", choices=SCOPES),
        AS_JSON,
    ),
)
