"""`melete memory export` and `import`: memories as a pack, and a pack's units as memories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from melete.cli.memory_store import StoreOptions, store_options
from melete.cli.memory_text import clean, tell
from melete.cli.memory_witnesses import erase_witnesses
from melete.cli.stores import WitnessOptions, witness_options

if TYPE_CHECKING:
    from melete.packs.errors import ContentRefused
    from melete.wire.packing import Exported, Imported


@click.command("export")
@click.option("--pack", "name", required=True, metavar="NAME", help="The pack's name: small letters, digits, hyphens.")
@click.option("--out", metavar="DIR", help="The folder to write; by default, the pack's name.")
@click.option("--title", help="The pack's title; by default, its name in words.")
@click.option(
    "--type",
    "memory_types",
    type=click.Choice(["semantic", "procedural"]),
    multiple=True,
    help="Memories of this type; both if omitted.",
)
@click.option("--agent", "agent_id", metavar="ID", help="Whose memories; the agent 'default' if omitted.")
@click.option("--tag", "tags", multiple=True, metavar="T", help="Memories with this tag, and all others given.")
@click.option("--id", "memory_ids", multiple=True, metavar="ID", help="This memory; may be given several times.")
@click.option("--created", metavar="YYYY-MM-DD", help="The day in the manifest; by default, today.")
@click.option("--pack-version", "version", type=click.IntRange(1, 10**8), default=1, show_default=True)
@click.option("--leave-out", is_flag=True, help="Leave out what no pack may hold, instead of writing none.")
@click.option("--force", is_flag=True, help="Replace a pack that was written here before.")
@store_options
def export_command(
    name: str,
    out: str | None,
    memory_types: tuple[str, ...],
    tags: tuple[str, ...],
    memory_ids: tuple[str, ...],
    created: str | None,
    where: StoreOptions,
    as_json: bool,
    **options: Any,
) -> None:
    """Write memories to a folder as a pack: semantic ones as claims, procedural ones as directives.

    What has several lines becomes a demonstration. Nothing is written that looks like a credential or cannot be seen;
    exit code 1 names what was refused. The pack is not signed: amp sign does that.
    """
    from datetime import date

    from melete.packs.errors import ContentRefused
    from melete.wire.envelope import MemoryType
    from melete.wire.packing import PACKED, export_pack

    if memory_ids and (tags or memory_types):
        raise click.UsageError("--id names memories, so it goes without --tag and --type.")
    with where.open() as store:
        try:
            exported = export_pack(
                store,
                name,
                out or name,
                created=created or date.today().isoformat(),
                memory_types=tuple(map(MemoryType, memory_types)) or PACKED,
                tags=tags,
                memory_ids=memory_ids,
                **options,
            )
        except ContentRefused as error:
            _tell_refused(error, as_json=as_json)
            raise click.exceptions.Exit(1) from None
    if as_json:
        _print_json(_exported_json(exported))
        return
    for memory_id, unit, kind in exported.units:
        tell(f"{memory_id}  {unit}  {kind}")
    for finding in exported.left_out:
        tell(f"left out: {finding.place}: {finding.message} ({finding.rule})", err=True)
    tell(f"pack {exported.name} written to {clean(exported.folder)}; sign it with amp sign")


@click.command("import")
@click.argument("folder", metavar="PACK")
@click.option(
    "--public-key",
    "public_keys",
    metavar="FILE",
    multiple=True,
    help="A key that may have signed it, as a file or PEM text; AMP_PUBLIC_KEY wins over it, and without any, the keys "
    "of amp trust count.",
)
@click.option("--agent", "agent_id", metavar="ID", help="Whose memories they become; the agent 'default' if omitted.")
@click.option("--as", "writer", metavar="NAME", help="Who imports, if not the agent; who writes does not approve.")
@click.option("--allow-unverified", is_flag=True, help="Take a pack that nobody known signed; it is marked so.")
@click.option("--allow-hidden", is_flag=True, help="Take text that cannot be seen whole, with a warning.")
@store_options
@witness_options
def import_command(
    folder: str,
    public_keys: tuple[str, ...],
    writer: str | None,
    where: StoreOptions,
    witnesses: WitnessOptions,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the units of the verified pack in the folder PACK as memories that say where they came from.

    A second import adds nothing; a new version adds what is new, and names what it no longer holds. Each hit of a
    recall shows the tags pack:NAME and signer:KEY.
    """
    from melete.cli.packs.install import choose_keys
    from melete.packs.errors import ContentRefused
    from melete.wire.packing import read_pack

    keys, trusted, told = choose_keys(public_keys)
    try:
        read = read_pack(folder, public_keys=keys, trusted=trusted, **options)
    except ContentRefused as error:
        _tell_refused(error, as_json=as_json)
        raise click.exceptions.Exit(1) from None
    with where.open(create=True) as store:
        imported = read.write(store, writer)
        said = erase_witnesses(store, witnesses) if imported.replaced else ""
    warnings = [*told, *imported.warnings, *([said] if said else [])]
    if as_json:
        _print_json(_imported_json(imported, warnings))
    else:
        _tell_imported(imported)
        for warning in warnings:
            tell(f"melete: warning: {clean(warning, 400)}", err=True)
    if imported.rejected:
        raise click.exceptions.Exit(1)


def _tell_imported(imported: Imported) -> None:
    version = f" {clean(imported.version)}" if imported.version else ""
    signer = imported.signer or "nobody known (unverified)"
    name = f" ({clean(imported.signer_name)})" if imported.signer_name else ""
    tell(f"pack {imported.name}{version}, digest {imported.digest}")
    tell(f"signed by {signer}{name}")
    for what in ("added", "replaced", "waiting", "known"):
        ids: tuple[str, ...] = getattr(imported, what)
        tell(f"{what}: {len(ids)}")
        if what != "known":
            for memory_id in ids:
                tell(f"  {memory_id}")
    for what in ("ended", "repeated", "rejected"):
        for unit in getattr(imported, what):
            tell(f"not imported, {what}: {clean(unit)}")
    for gone in imported.gone:
        tell(f"no longer in the pack: {gone.id}  ({clean(gone.unit)}, signed by {gone.signer or 'nobody known'})")


def _exported_json(exported: Exported) -> dict[str, Any]:
    return {
        "name": exported.name,
        "folder": exported.folder,
        "units": [{"id": memory_id, "unit": unit, "type": kind} for memory_id, unit, kind in exported.units],
        "leftOut": [finding.to_json() for finding in exported.left_out],
    }


def _imported_json(imported: Imported, warnings: list[str]) -> dict[str, Any]:
    return {
        "name": imported.name,
        "version": imported.version,
        "digest": imported.digest,
        "signer": imported.signer,
        "signerName": imported.signer_name,
        "verified": imported.signer is not None,
        **{
            each: list(getattr(imported, each))
            for each in ("added", "waiting", "replaced", "known", "rejected", "ended", "repeated")
        },
        "gone": [{"id": each.id, "unit": each.unit, "signer": each.signer} for each in imported.gone],
        "warnings": warnings,
    }


def _tell_refused(error: ContentRefused, *, as_json: bool) -> None:
    """Print every finding that something was refused for."""
    if as_json:
        findings = [finding.to_json() for finding in error.findings]
        _print_json({"error": {"name": type(error).__name__, "message": str(error), "findings": findings}})
        return
    tell(f"melete: {error}", err=True)
    for finding in error.findings[1:]:
        tell(f"melete: {finding.place}: {finding.message} ({finding.rule})", err=True)


def _print_json(members: dict[str, Any]) -> None:
    click.echo(json.dumps(members))


def add_to(group: click.Group) -> None:
    """Give `melete memory` the commands of this module."""
    for command in (export_command, import_command):
        group.add_command(command)
