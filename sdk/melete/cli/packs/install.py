"""`amp install`: put a pack where a coding agent reads it."""

from __future__ import annotations

import os
from typing import Any

from melete.cli.packs.arguments import AS_JSON, CommandLine, Flag, Option, emit, tell, visible, warn
from melete.packs.hosts import AGENTS, SCOPES, Agent, Scope, find_target, pack_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.install import Changes, Installation
    from melete.packs.keys import PublicKey
    from melete.packs.trust import TrustedKey


def run(
    from_path: str | None,
    scope: str | None,
    agent: str | None,
    public_key: tuple[str, ...],
    require_signature: bool,
    strict: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Install the pack, and say what changed."""
    from melete.packs.errors import ContentRefused
    from melete.packs.install import install

    if from_path is None:
        from melete.errors import ConfigurationError

        raise ConfigurationError(
            "no pack is named; give its folder by --from-path (registries have clients of their own)"
        )
    target = find_target(None if agent is None else Agent(agent), None if scope is None else Scope(scope))
    keys, trusted, warnings = choose_keys(public_key)
    if target.agent is Agent.OPENCLAW and scope == Scope.PROJECT.value:
        warnings.append("OpenClaw has one workspace for the user, so the pack goes there")
    try:
        done = install(
            from_path,
            target,
            public_keys=keys,
            trusted=trusted,
            require_signature=require_signature,
            strict=strict,
            dry_run=dry_run,
        )
    except ContentRefused as error:
        if not as_json:
            tell(error.findings[1:])  # the error says the first one
            raise
        emit({"error": {"name": "ContentRefused", "message": str(error), **error.to_json()}}, as_json=True)
        return 1
    warnings += done.warnings
    emit(to_json(done, warnings) if as_json else to_lines(done), as_json=as_json)
    if not as_json:
        warn(warnings)
        tell(done.pack.findings)
    return 0


def choose_keys(flags: tuple[str, ...]) -> tuple[tuple[PublicKey, ...], tuple[TrustedKey, ...], list[str]]:
    """Return the keys to check with, those that are trusted by name, and what there is to say about them."""
    from melete.cli.packs.verify import load_trusted

    given = os.environ.get("AMP_PUBLIC_KEY")
    if not given and not flags:
        return (), load_trusted(), []
    from melete.packs.keys import choose_public_keys

    warnings = ["AMP_PUBLIC_KEY is set and wins over --public-key"] if given and flags else []
    return choose_public_keys(flags), load_trusted(), warnings


def to_json(done: Installation, warnings: list[str]) -> dict[str, Any]:
    """Return what was done, for machines."""
    changes = done.changes
    return {
        "name": done.slug,
        "title": done.pack.manifest.title,
        "version": done.pack.version,
        "digest": done.pack.verdict.digest,
        "agent": done.target.agent.value,
        "scope": done.target.scope.value,
        "root": done.target.root,
        "hostFile": done.host_file,
        "packFolder": pack_folder(done.slug),
        "files": len(done.pack.hashes),
        "signature": {
            "state": done.pack.signature,
            "keyId": done.pack.verdict.signer,
            "signer": done.pack.verdict.signer_name,
        },
        "changes": None if changes is None else changes_to_json(changes),
        "keptIn": done.kept_in,
        "dryRun": done.dry_run,
        "warnings": warnings,
        "findings": [finding.to_json() for finding in done.pack.findings],
    }


def changes_to_json(changes: Changes) -> dict[str, Any]:
    return {
        "versionBefore": changes.before,
        "added": changes.added,
        "removed": changes.removed,
        "changed": changes.changed,
        "kept": changes.kept,
        "signerChange": changes.signer_change or None,
        "movedFrom": changes.moved_from,
    }


def to_lines(done: Installation) -> dict[str, Any]:
    """Return what was done, for people."""
    verdict = done.pack.verdict
    signer = f" by key {verdict.signer}" if verdict.signer else ""
    signer += f" of {verdict.signer_name}" if verdict.signer_name else ""
    version = done.pack.version and f" {visible(done.pack.version)}"
    lines: dict[str, Any] = {
        "would install" if done.dry_run else "installed": f"{done.slug}{version or ''}",
        "agent": f"{done.target.agent.value}, {done.target.scope.value} scope",
        "host file": f"{done.target.root}/{done.host_file}",
        "pack files": f"{done.target.root}/{pack_folder(done.slug)} ({len(done.pack.hashes)})",
        "digest": done.pack.verdict.digest,
        "signature": f"{done.pack.signature}{signer}",
    }
    changes = done.changes
    if changes is not None:
        lines["replaces"] = f"version {changes.before}" if changes.before else "an install before"
        lines["added"] = [visible(path) for path in changes.added]
        lines["removed"] = [visible(path) for path in changes.removed]
        lines["changed"] = [visible(path) for path in changes.changed]
        lines["moved from"] = changes.moved_from
        lines["kept"] = [f"{done.kept_in}/files/{visible(path)}" for path in changes.kept]
    return lines


command = CommandLine(
    run,
    help="Check the pack in a folder, copy it to .amp/, and add its block to the agent's file; or change nothing. "
    "Content is read for credentials and hidden text. Installing again replaces what is there.",
    options=(
        Option("--from-path", "PACK", "The pack's folder."),
        Option("--scope", "SCOPE", "For this project (the default), or for the user everywhere.", choices=SCOPES),
        Option("--agent", "AGENT", "The agent; found by the files of the project if not given.", choices=AGENTS),
        Option(
            "--public-key",
            "FILE",
            "A key that may have signed, as a file or PEM text; AMP_PUBLIC_KEY wins over it, and without any, the keys "
            "of amp trust count. Repeatable.",
            repeated=True,
        ),
        Flag("--require-signature", "require_signature", "Refuse a pack that no known key signed."),
        Flag("--strict", "strict", "Refuse what is a warning otherwise, such as hidden text."),
        Flag("--dry-run", "dry_run", "Say what would change, and change nothing."),
        AS_JSON,
    ),
)
