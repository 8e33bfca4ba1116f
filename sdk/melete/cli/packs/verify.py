"""`amp verify`: check a pack's signature."""

from __future__ import annotations

import os
from typing import Any

from melete.cli.packs.arguments import AS_JSON, CommandLine, Option, emit, visible, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.signing import Verdict
    from melete.packs.trust import TrustedKey

EXIT_CODES = {"held": 0, "broken": 1, "unknown": 3}


def run(pack: str, public_key: tuple[str, ...], ignore: tuple[str, ...], as_json: bool) -> int:
    """Check the pack, and say what was found."""
    from melete.packs.keys import choose_public_keys
    from melete.packs.scan import find_hidden_in
    from melete.packs.signing import verify_pack
    from melete.packs.tree import load_tree

    keys = choose_public_keys(public_key)
    tree = load_tree(pack, ignore=ignore)
    verdict = verify_pack(tree, keys, trusted=load_trusted())
    # A signature says nothing of what a person would see: that is said beside the answer, and does not change it.
    hidden = tuple(f"{one.place}: {one.message}; {one.remedy}" for one in find_hidden_in(tree))
    verdict = verdict._replace(warnings=(*verdict.warnings, *hidden))
    if public_key and os.environ.get("AMP_PUBLIC_KEY"):
        verdict = verdict._replace(warnings=("AMP_PUBLIC_KEY is set and wins over --public-key", *verdict.warnings))
    emit(to_json(verdict) if as_json else to_lines(verdict), as_json=as_json)
    warn(() if as_json else verdict.warnings)
    return EXIT_CODES[verdict.answer]


def load_trusted() -> tuple[TrustedKey, ...]:
    """Return the keys that are trusted by name, without importing the store where there is none."""
    path = os.path.join(os.path.expanduser("~"), ".amp", "trusted.json")  # noqa: PTH111, PTH118
    if not os.path.lexists(path):
        return ()
    from melete.packs.trust import TrustStore

    return TrustStore(path).keys_for_verification()


def to_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for machines."""
    from melete.packs.credentials import show_path

    return {
        "answer": verdict.answer,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "signed": verdict.signed,
        "form": verdict.form,
        "signer": verdict.signer,
        "signerName": verdict.signer_name,
        "digest": verdict.digest,
        "differences": [
            {
                "kind": one.kind,
                "path": show_path(one.path),
                **({"newPath": show_path(one.new_path)} if one.new_path else {}),
            }
            for one in verdict.differences
        ],
        "warnings": list(verdict.warnings),
    }


def to_lines(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for people."""
    from melete.packs.credentials import show_path

    signer = verdict.signer and f"{verdict.signer}{f' ({verdict.signer_name})' if verdict.signer_name else ''}"
    lines: dict[str, Any] = {
        "answer": verdict.answer,
        "reason": f"{verdict.reason} (rule {verdict.rule})" if verdict.reason else "",
        "signer": signer,
        "form": verdict.form,
        "digest": verdict.digest,
    }
    for kind in ("renamed", "added", "missing", "changed"):
        lines[kind] = [
            visible(show_path(one.path)) + (f" -> {visible(show_path(one.new_path))}" if one.new_path else "")
            for one in verdict.differences
            if one.kind == kind
        ]
    return lines


command = CommandLine(
    run,
    help="Check the signature of PACK in both forms: held (exit code 0), broken or not signed (1), or unknown (3) when "
    "no key that is known here vouches for it.",
    arguments=("pack",),
    options=(
        Option(
            "--public-key",
            "FILE",
            "A key that may have signed, as a file or PEM text; AMP_PUBLIC_KEY wins over it, and without any, the keys "
            "of amp trust count. Repeatable.",
            repeated=True,
        ),
        Option(
            "--ignore", "PATTERN", "Do as if such files were not there, such as .DS_Store. Repeatable.", repeated=True
        ),
        AS_JSON,
    ),
)
