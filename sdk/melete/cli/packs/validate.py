"""`amp validate`: check everything inside a pack against the specification."""

from __future__ import annotations

import sys

from melete.cli.packs.arguments import AS_JSON, CommandLine, Flag, emit


def run(pack: str, strict: bool, as_json: bool) -> int:
    """Print the report on PACK; 0 if no finding is an error, 1 if one is."""
    from melete.packs.validation import validate_folder

    report = validate_folder(pack, strict=strict)
    if as_json:
        emit(report.to_json(), as_json=True)
    else:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(report.to_text().encode(encoding, "backslashreplace").decode(encoding))
    return 0 if report.ok else 1


command = CommandLine(
    run,
    help="Check everything inside PACK against the specification: gates, manifest, grammar, counts, routing, "
    "credentials and hidden text. Exit code 1 if anything is an error.",
    arguments=("pack",),
    options=(Flag("--strict", "strict", "Take every warning for an error."), AS_JSON),
)
