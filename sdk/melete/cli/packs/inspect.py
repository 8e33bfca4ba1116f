"""`amp inspect`: look at an installed pack, every file of it."""

from __future__ import annotations

from typing import Any

from melete.cli.packs.arguments import AS_JSON, CommandLine, Option, emit, visible, warn
from melete.packs.hosts import SCOPES, Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.inspection import Inspection

EXIT_CODES = {"intact": 0, "broken": 1, "unknown": 3}


def run(slug: str, scope: str | None, public_key: tuple[str, ...], as_json: bool) -> int:
    """Inspect the pack, and say what was found."""
    from melete.cli.packs.install import choose_keys
    from melete.packs.inspection import inspect, locate, parse_name

    _, name = parse_name(slug)
    place = locate(name, None if scope is None else Scope(scope))
    keys, trusted, warnings = choose_keys(public_key)
    found = inspect(place, name, public_keys=keys, trusted=trusted)
    warnings += found.warnings
    emit(to_json(found, warnings) if as_json else to_lines(found), as_json=as_json)
    if not as_json:
        warn((*warnings, *(str(finding) for finding in found.findings if not finding.is_error)))
    return EXIT_CODES[found.answer]


def to_json(found: Inspection, warnings: list[str]) -> dict[str, Any]:
    """Return what was found, for machines."""
    record, verdict = found.installed.record, found.verdict
    return {
        "answer": found.answer,
        "name": found.installed.slug,
        "title": found.title,
        "version": found.version,
        "creator": None if record is None else record.creator,
        "installedAt": None if record is None else record.installed_at,
        "agent": None if record is None else record.agent.value,
        "scope": found.installed.place.scope.value,
        "root": found.installed.place.root,
        "packFolder": found.installed.folder,
        "hostFile": found.host_file,
        "block": found.block,
        "files": None if record is None else len(record.files),
        "differences": [{"kind": one.kind, "path": one.path} for one in found.differences],
        "signatureAtInstall": None
        if record is None
        else {"state": record.signature, "keyId": record.key_id, "signer": record.signer},
        "signature": None
        if verdict is None
        else {
            "state": verdict.answer if verdict.signed else "unsigned",
            "keyId": verdict.signer,
            "signer": verdict.signer_name,
            "reason": verdict.reason,
        },
        "digestAtInstall": None if record is None else record.digest,
        "digest": None if verdict is None else verdict.digest,
        "problems": found.problems,
        "warnings": warnings,
        "findings": [finding.to_json() for finding in found.findings],
    }


def to_lines(found: Inspection) -> dict[str, Any]:
    """Return what was found, for people."""
    record, verdict, place = found.installed.record, found.verdict, found.installed.place
    lines: dict[str, Any] = {
        "answer": found.answer,
        "pack": f"{found.installed.slug}{f' {visible(found.version)}' if found.version else ''}",
        "title": found.title and visible(found.title),
        "pack files": f"{place.root}/{found.installed.folder}",
        "host file": found.host_file and f"{place.root}/{found.host_file}",
        "block": found.block,
    }
    if record is not None:
        lines["installed"] = f"{visible(record.installed_at)}, for {record.agent.value}, {record.scope.value} scope"
        lines["signature then"] = _name_signature(record.signature, record.key_id, record.signer)
    if verdict is not None:
        state = verdict.answer if verdict.signed else "unsigned"
        lines["signature now"] = _name_signature(state, verdict.signer, verdict.signer_name)
        lines["digest"] = verdict.digest
        if verdict.answer != "held":
            lines["reason"] = verdict.reason
    lines["signature fault"] = found.signature_fault
    lines["differs"] = [f"{one.kind}: {visible(one.path)}" for one in found.differences]
    lines["problem"] = found.problems
    return lines


def _name_signature(state: str, key_id: str | None, signer: str | None) -> str:
    by = f" by key {visible(key_id)}" if key_id else ""
    return f"{visible(state)}{by}{f' of {visible(signer)}' if signer else ''}"


command = CommandLine(
    run,
    help="Compare every file of the installed pack SLUG with what was installed, and its signature with a key: as "
    "installed (exit code 0), changed or missing (1), or nothing to compare with (3).",
    arguments=("slug",),
    options=(
        Option("--scope", "SCOPE", "Where it is installed; looked for if not given.", choices=SCOPES),
        Option(
            "--public-key",
            "FILE",
            "A key that may have signed, as a file or PEM text; AMP_PUBLIC_KEY wins over it, and without any, the keys "
            "of amp trust count. Repeatable.",
            repeated=True,
        ),
        AS_JSON,
    ),
)
