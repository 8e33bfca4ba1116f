"""Signing a pack, and telling whether a signature holds.

    signed = sign_pack("my-pack", load_private_key("my.key"))
    verdict = verify_pack(load_tree("my-pack"), [load_public_key("my.pub")])
    verdict.answer                                  "held", "broken" or "unknown"

What is signed is the manifest as JSON and the SHA-256 of every other file, in one of two forms:

    text         as the specification writes it: the manifest without `signed` and `signature`, members in their order
    reference    as the reference tool does it: `signed` kept, `signature` left out, members sorted

Neither binds the names of files, so `sign_pack` also writes them into the manifest (`files`, a list of `path` and
`sha256`), and the public key (`public_key`), which the signature then covers. A key that only the pack itself vouches
for shows that nothing changed since, and not who signed: that is "unknown".

Source: AMP v0.4, Part 6.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from melete.packs.json_text import Json, parse, stringify
from melete.packs.keys import PrivateKey, PublicKey
from melete.packs.tree import MANIFEST, PackTree, load_tree, sorting_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.errors import InvalidJson
    from melete.packs.trust import TrustedKey

#: The forms of what is signed, in the order in which they are tried.
FORMS: Final = ("text", "reference")
#: Members that the specification requires, and that packs in the wild lack.
OFTEN_MISSING: Final = ("title", "agents")
_BASE64URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_HEX: Final = frozenset("0123456789abcdef")


class Difference(NamedTuple):
    """How the files differ from those that were signed: `kind` is renamed, added, missing or changed.

    `path` is the name that was signed, or the one that was added; `new_path` what a renamed file is called now.
    """

    kind: str
    path: str
    new_path: str | None = None


class Verdict(NamedTuple):
    """The answer, and what led to it.

    `answer` is held, broken (also for a pack that is not signed), or unknown: intact or not, nobody who is known
    vouches for it. `rule` names the reason for everything but held, `reason` says it, and what to do.
    `form` and `signer` (a key id) are those of the signature that was found good, `signer_name` is the name that its
    key is trusted under. `digest` is the pack's: the SHA-256 of the text form.
    """

    answer: str
    rule: str
    reason: str
    signed: bool
    digest: str
    form: str | None = None
    signer: str | None = None
    signer_name: str | None = None
    differences: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()


class SignedPack(NamedTuple):
    """What `sign_pack` did."""

    form: str
    key_id: str
    signature: str
    digest: str
    files: int
    ignored: tuple[str, ...]


# What is signed


def compute_payload(
    tree: PackTree, manifest: Mapping[str, Json], form: str, hashes: Mapping[str, str] | None = None
) -> bytes:
    """Return the bytes that a signature covers: the manifest's JSON text, and a line for each file's SHA-256.

    `hashes` are those of `hash_files`, where they are known already.
    Errors: `InvalidInput` for another form; `InvalidJson`; those of `PackTree.sha256`.
    """
    if form not in FORMS:
        from melete.errors import InvalidInput

        raise InvalidInput("form", form, "text or reference")
    left_out = ("signed", "signature") if form == "text" else ("signature",)
    covered = {name: value for name, value in manifest.items() if name not in left_out}
    if form == "reference":
        covered["signed"] = True
    lines = [stringify(covered, order=form)]
    lines += (digest.encode() for digest in (hash_files(tree) if hashes is None else hashes).values())
    return b"\n".join(lines)


def compute_digest(tree: PackTree, manifest: Mapping[str, Json]) -> str:
    """Return the digest of a pack in hex: the SHA-256 of its text form, signed or not."""
    return _sha256(compute_payload(tree, manifest, "text"))


#: The name that other parts know it by.
pack_digest = compute_digest


def hash_files(tree: PackTree) -> dict[str, str]:
    """Return the SHA-256 of every file but the manifest, in the order in which they are signed."""
    return {file.path: tree.sha256(file.path) for file in tree.files if file.path != MANIFEST}


def load_manifest_object(tree: PackTree) -> dict[str, Json]:
    """Return the manifest as JavaScript reads it, before anything else is asked of it.

    Errors: `MissingManifest`; `ManifestNotJson` for what is no JSON object, or one that readers take differently.
    """
    return _parse_manifest(_read_manifest(tree))


def _read_manifest(tree: PackTree) -> bytes:
    if MANIFEST not in tree:
        from melete.packs.errors import MissingManifest

        raise MissingManifest
    return tree.read_bytes(MANIFEST)


def _parse_manifest(content: bytes | str) -> dict[str, Json]:
    from melete.errors import InvalidJson

    try:
        manifest = parse(content)
    except InvalidJson as error:
        _refuse_manifest(error)
    if not isinstance(manifest, dict):
        from melete.packs.errors import ManifestNotJson

        raise ManifestNotJson("it is no JSON object")
    return manifest


def _refuse_manifest(error: InvalidJson) -> NoReturn:
    from melete.packs.credentials import quote
    from melete.packs.errors import ManifestNotJson

    raise ManifestNotJson(f"at '{quote(error.pointer)}', {error.rule}" if error.pointer else error.rule) from None


# Signing


def sign_pack(
    folder: str | os.PathLike[str], key: PrivateKey, form: str = "text", ignore: Sequence[str] = ()
) -> SignedPack:
    """Sign a pack: write `files`, `public_key`, `signed` and `signature` into its manifest, and change nothing else.

    The rest of the manifest stays as somebody wrote it, its mode too; it is replaced whole or not at all. `ignore` are
    patterns of `load_tree`, for what must not be shipped with the pack: it is not covered.

    Errors: those of `load_tree`; the gates of `melete.packs.manifest.load_manifest`; `InvalidInput` for another form;
    `StoreNotWritten`.
    """
    from melete.packs.files import not_written, write_file_in
    from melete.packs.json_edit import replace_members
    from melete.packs.manifest import load_manifest

    tree = load_tree(folder, ignore=ignore)
    content = _read_manifest(tree)
    _parse_manifest(content)
    load_manifest(tree)
    hashes = hash_files(tree)
    files: list[Json] = [{"path": path, "sha256": digest} for path, digest in hashes.items()]
    members: dict[str, Json] = {"files": files, "public_key": key.public.pem, "signed": True, "signature": ""}
    text = replace_members(content.decode("utf-8"), members)
    manifest = _parse_manifest(text)
    signature = encode_signature(key.sign(compute_payload(tree, manifest, form, hashes)))
    text = replace_members(text, {"signature": signature})
    if _parse_manifest(text) != {**manifest, "signature": signature}:
        raise AssertionError("the manifest was not edited as meant")
    status = tree.status(MANIFEST)  # and it is still the one that was read
    at = tree.open_folder()
    try:
        with not_written(MANIFEST):
            owner = (status.st_uid, status.st_gid)
            write_file_in(at, MANIFEST, text.encode("utf-8"), status.st_mode & 0o777, owner=owner)
    finally:
        os.close(at)
    digest = _sha256(compute_payload(tree, manifest, "text", hashes))
    return SignedPack(form, key.public.key_id, signature, digest, len(files), tree.ignored)


def encode_signature(signature: bytes) -> str:
    """Return a signature as the manifest carries it: base64url without padding."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(signature).decode().rstrip("=")


def decode_signature(text: object) -> bytes | None:
    """Return the 64 bytes of a signature, or None for anything that is not just their base64url without padding."""
    if not isinstance(text, str) or len(text) != 86 or not _BASE64URL.issuperset(text):
        return None
    from base64 import urlsafe_b64decode

    signature = urlsafe_b64decode(text + "==")
    # The last character has bits to spare: only one of its spellings is the one that is written.
    return signature if encode_signature(signature) == text else None


# Verifying


def verify_pack(
    tree: PackTree, public_keys: Sequence[PublicKey] | None = None, *, trusted: Iterable[TrustedKey] = ()
) -> Verdict:
    """Return whether a pack's signature holds, in either form.

    `public_keys` are the keys that may have signed it; without any, those `trusted` by name may (see
    `melete.packs.trust`). A key that is revoked there never verifies, given or not. A key that was rotated out does,
    with a warning: a signature carries no time, so nobody can tell whether it was made before.

    Errors: `MissingManifest`, `ManifestNotJson`; those of `PackTree.sha256`. Everything else is an answer.
    """
    given = tuple(public_keys or ())
    manifest = load_manifest_object(tree)
    hashes = hash_files(tree)
    text_form = compute_payload(tree, manifest, "text", hashes)
    case = _Case(manifest, hashes, _sha256(text_form), tuple(trusted))
    if manifest.get("signed") is not True:
        said = "the pack is not signed" if manifest.get("signed", False) is False else "`signed` is not the value true"
        return case.answer("broken", "unsigned", f"{said}; ask its author for a signed one", signed=False)
    signature = decode_signature(manifest.get("signature"))
    if signature is None:
        reason = "the signature is malformed: 64 bytes in base64url without padding are 86 characters; sign it again"
        return case.answer("broken", "signature-malformed", reason)
    signer = _find_signer(
        case.list_candidates(given),
        signature,
        lambda form: text_form if form == "text" else compute_payload(tree, manifest, form, hashes),
    )
    return case.judge(signer, given)


def say_missing(member: str) -> str:
    """Return the warning about one of `OFTEN_MISSING`."""
    return f"the manifest has no `{member}`, which the specification requires"


class _Case:
    """What is known of a pack while it is judged."""

    def __init__(
        self,
        manifest: Mapping[str, Json],
        hashes: Mapping[str, str],
        digest: str,
        trusted: tuple[TrustedKey, ...],
    ) -> None:
        self.digest = digest
        self.trusted = trusted
        self.warnings = [say_missing(name) for name in OFTEN_MISSING if name not in manifest]
        self.embedded = self._find_embedded(manifest)
        listed = read_listed_files(manifest)
        self.unreadable_list = "files" in manifest and listed is None
        self.differences = () if listed is None else compare_files(listed, hashes)
        if "files" not in manifest:
            self.warnings.append(
                "the manifest lists no `files`, so a renamed file is not noticed, nor which one changed"
            )

    def _find_embedded(self, manifest: Mapping[str, Json]) -> PublicKey | None:
        text = manifest.get("public_key")
        if not isinstance(text, str):
            if "public_key" in manifest:
                self.warnings.append("the manifest's `public_key` is not a key; it was not used")
            return None
        from melete.packs.keys import parse_public_key

        try:
            return parse_public_key(text, "public_key")
        except ValueError as error:  # the family of errors of input
            self.warnings.append(f"in the manifest, {str(error).rstrip('.')}")
            return None

    def answer(self, answer: str, rule: str, reason: str, **found: Any) -> Verdict:
        given: dict[str, Any] = {"signed": True, **found}
        return Verdict(
            answer,
            rule,
            reason,
            digest=self.digest,
            differences=self.differences,
            warnings=tuple(self.warnings),
            **given,
        )

    def list_candidates(self, given: tuple[PublicKey, ...]) -> tuple[PublicKey, ...]:
        """Return the keys to try: those given or trusted, and the pack's own; that one first if it is among them."""
        candidates = given or tuple(one.key for one in self.trusted)
        if self.embedded is None:
            return candidates
        return (self.embedded, *candidates) if self.embedded in candidates else (*candidates, self.embedded)

    def judge(self, found: tuple[str, PublicKey] | None, given: tuple[PublicKey, ...]) -> Verdict:
        """Return the verdict on a signature that is well-formed, and found to be by a key, in a form, or by none."""
        if found is None:
            return self._judge_bad(given)
        form, key = found
        facts = {"form": form, "signer": key.key_id}
        known = [one for one in self.trusted if one.key == key]
        for one in known:
            facts["signer_name"] = one.name
            if one.state == "revoked":
                reason = f"it is signed with {key.key_id}, a key of {one.name} that is revoked since {one.since}"
                return self.answer("broken", "key-revoked", f"{reason}; ask for a pack signed with a new key", **facts)
        if self.unreadable_list:
            reason = "the manifest's `files` is not a list of `path` and `sha256`, each path once; ask its author"
            return self.answer("broken", "files-malformed", reason, **facts)
        if self.differences:
            reason = "the signature holds, and the files are not those that the signed manifest lists; ask its author"
            return self.answer("broken", "files-differ", reason, **facts)
        if key not in given and (given or not known):
            return self._judge_stranger(given, facts)
        for one in known:
            if one.state == "rotated":
                self.warnings.append(
                    f"{one.name} replaced this key at {one.since}; a signature carries no time, "
                    "so whether it was made before cannot be told"
                )
        if self.embedded not in (None, key):
            self.warnings.append("the manifest's `public_key` is another key than the one that signed")
        return self.answer("held", "", "", **facts)

    def _judge_stranger(self, given: tuple[PublicKey, ...], facts: Mapping[str, str]) -> Verdict:
        if given:
            reason = (
                f"it is signed with {facts['signer']}, which is none of the keys given; check who should have signed"
            )
            return self.answer("broken", "other-signer", reason, **facts)
        reason = (
            "consistent, signer unknown: only the pack itself vouches for its key; "
            "get the signer's public key elsewhere, and give it by --public-key or amp trust add"
        )
        return self.answer("unknown", "signer-unknown", reason, **facts)

    def _judge_bad(self, given: tuple[PublicKey, ...]) -> Verdict:
        if self.differences:
            reason = "the signature does not hold, and files differ from those that the manifest lists; get it anew"
            return self.answer("broken", "files-differ", reason)
        if not given and self.embedded is None:
            reason = "no key that is known here made the signature, or the pack changed since; give --public-key"
            return self.answer("unknown", "no-key", reason)
        reason = (
            "the signature does not hold: the pack changed since it was signed, or another key signed it; get it anew"
        )
        return self.answer("broken", "signature-invalid", reason)


def _find_signer(
    keys: Iterable[PublicKey], signature: bytes, payload_of: Callable[[str], bytes]
) -> tuple[str, PublicKey] | None:
    for form in FORMS:
        payload = payload_of(form)
        for key in dict.fromkeys(keys):
            if key.is_valid_signature(payload, signature):
                return form, key
    return None


def read_listed_files(manifest: Mapping[str, Json]) -> dict[str, str] | None:
    """Return the paths and SHA-256 that a manifest lists; None if it lists none, or not as `sign_pack` writes them."""
    files = manifest.get("files")
    if not isinstance(files, list):
        return None
    listed: dict[str, str] = {}
    for entry in files:
        if not isinstance(entry, dict):
            return None
        path, digest = entry.get("path"), entry.get("sha256")
        if not isinstance(path, str) or not isinstance(digest, str) or path in listed:
            return None
        if len(digest) != 64 or not _HEX.issuperset(digest):
            return None
        listed[path] = digest
    return listed


def compare_files(listed: Mapping[str, str], found: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return how the files that are found differ from those that are listed, sorted by path.

    A file that is missing, with one added that holds the same, was renamed.
    """
    added: dict[str, list[str]] = {}
    for path in sorted((path for path in found if path not in listed), key=sorting_key, reverse=True):
        added.setdefault(found[path], []).append(path)
    differences = [Difference("changed", path) for path in listed if path in found and listed[path] != found[path]]
    for path in sorted((path for path in listed if path not in found), key=sorting_key):
        same = added.get(listed[path])
        differences.append(Difference("renamed", path, same.pop()) if same else Difference("missing", path))
    differences += (Difference("added", path) for paths in added.values() for path in paths)
    return tuple(sorted(differences, key=lambda one: sorting_key(one.path)))


def _sha256(payload: bytes) -> str:
    from hashlib import sha256

    return sha256(payload).hexdigest()
