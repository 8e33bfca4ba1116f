"""`amp validate`: check everything inside a pack against the specification."""

from __future__ import annotations

import sys

from melete.cli.packs.arguments import AS_JSON, CommandLine, Flag


def run(pack: str, strict: bool, as_json: bool) -> int:
    """Print the report on PACK; 0 if no finding is an error, 1 if one is."""
    from melete.packs.validation import validate_folder

    report = validate_folder(pack, strict=strict)
    if as_json:
        import json

        text = json.dumps(report.to_json()) + "\n"
    else:
        text = report.to_text()
        encoding = sys.stdout.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(text)
    return 0 if report.ok else 1


command = CommandLine(
    run,
    help="Check everything inside PACK against the specification: gates, manifest, grammar, counts, routing, "
    "credentials and hidden text. Exit code 1 if anything is an error.",
    arguments=("pack",),
    options=(Flag("--strict", "strict", "Take every warning for an error."), AS_JSON),
)
