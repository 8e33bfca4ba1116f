"""`amp submit-check`: check a pack as a registry does on submission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from melete.cli.packs.arguments import AS_JSON, CommandLine, Flag, Option, emit, visible

if TYPE_CHECKING:
    from melete.packs.submission import Submission

EXIT_CODES = {"accepted": 0, "refused": 1, "unknown": 3}


def run(pack: str, public_key: tuple[str, ...], name: str | None, strict: bool, as_json: bool) -> int:
    """Check the pack, and say what a registry would."""
    from melete.cli.packs.verify import load_trusted
    from melete.packs.keys import choose_public_keys
    from melete.packs.manifest import parse_slug
    from melete.packs.submission import check_submission

    submitted = None if name is None else parse_slug(name)
    submission = check_submission(
        pack, choose_public_keys(public_key), trusted=load_trusted(), name=submitted, strict=strict
    )
    emit(submission.to_json() if as_json else _to_lines(submission), as_json=as_json)
    return EXIT_CODES[submission.answer]


def _to_lines(submission: Submission) -> dict[str, Any]:
    lines: dict[str, Any] = {
        "answer": submission.answer,
        "name": submission.name,
        "digest": submission.digest,
        "signer": submission.signer,
    }
    for check in submission.checks:
        lines[f"check {check.name}"] = [check.answer, *(visible(str(finding)) for finding in check.findings)]
    return lines


command = CommandLine(
    run,
    help="Check PACK as a registry does before it takes it: files, gates, name, signature against a known key, a scan, "
    "and the content. Accepted (exit code 0), refused (1), or unknown (3) when no key is known that may have signed.",
    arguments=("pack",),
    options=(
        Option(
            "--public-key",
            "FILE",
            "A key that the creator registered, as a file or PEM text; AMP_PUBLIC_KEY wins over it, and without any, "
            "the keys of amp trust count. Repeatable.",
            repeated=True,
        ),
        Option("--name", "NAME", "The name that it is submitted under."),
        Flag("--strict", "strict", "Refuse for a warning, too."),
        AS_JSON,
    ),
)
