"""`amp sign`: sign a pack."""

from __future__ import annotations

import os

from melete.cli.packs.arguments import AS_JSON, CommandLine, Option, emit, visible, warn


def run(pack: str, key: str | None, payload: str, ignore: tuple[str, ...], as_json: bool) -> int:
    """Sign the pack, and say with what."""
    from melete.packs.keys import choose_private_key, default_key_path, find_unsafe_mode
    from melete.packs.signing import sign_pack

    chosen = choose_private_key(key)
    signed = sign_pack(pack, chosen, payload, ignore)
    warnings = [
        f"{visible(path)} is not covered; a copy of the pack that holds it does not verify" for path in signed.ignored
    ]
    if not os.environ.get("AMP_PRIVATE_KEY"):
        path = key or default_key_path()
        mode = find_unsafe_mode(path)
        if mode:
            warnings.append(f"{visible(path)} has mode {mode}, so others can read the key; run: chmod 600")
    elif key is not None:
        warnings.append("AMP_PRIVATE_KEY is set and wins over --key")
    found = {
        "pack": pack,
        "keyId": signed.key_id,
        "form": signed.form,
        "files": signed.files,
        "digest": signed.digest,
        "signature": signed.signature,
    }
    emit({**found, "warnings": warnings} if as_json else found, as_json=as_json)
    warn(() if as_json else warnings)
    return 0


command = CommandLine(
    run,
    help="Sign PACK: write the files' hashes, the public key and the signature into its manifest.",
    arguments=("pack",),
    options=(
        Option("--key", "FILE", "The private key's file; AMP_PRIVATE_KEY wins over it. [~/.amp/keys/signing.key]"),
        Option(
            "--payload",
            "FORM",
            "What is signed: the specification's text, or what the reference tool signs.",
            choices=("text", "reference"),
            default="text",
        ),
        Option(
            "--ignore", "PATTERN", "Leave out what must not be shipped, such as .DS_Store. Repeatable.", repeated=True
        ),
        AS_JSON,
    ),
)
