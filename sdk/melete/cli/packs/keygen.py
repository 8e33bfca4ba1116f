"""`amp keygen`: make a key pair that signs packs."""

from __future__ import annotations

from melete.cli.packs.arguments import AS_JSON, CommandLine, Flag, Option, emit


def run(out: str | None, force: bool, as_json: bool) -> int:
    """Make the pair, and say where it is."""
    from melete.packs.keys import generate_key, load_public_key

    private_path, public_path = generate_key(out, force)
    found = {"private": private_path, "public": public_path, "keyId": load_public_key(public_path).key_id}
    emit(found, as_json=as_json)
    return 0


command = CommandLine(
    run,
    help="Make an Ed25519 key pair: a private key for its owner alone (mode 0600), a public one beside it.",
    options=(
        Option("--out", "FILE", "The private key's file; the public one's ends in .pub. [~/.amp/keys/signing.key]"),
        Flag("--force", "force", "Write over a pair that is there. The old key cannot sign any more."),
        AS_JSON,
    ),
)
