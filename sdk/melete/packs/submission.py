"""What a registry asks of a pack before it takes it, as one call with one answer.

    submission = check_submission("my-pack", [load_public_key("creator.pub")])
    submission.answer            # "accepted", "refused" or "unknown"
    submission.to_json()         # every check with its answer and its findings

The checks are asked in order, and all of them, as far as there is something to ask: files, gates 1 to 5, the name,
gate 6, the signature against a key that the registry knows, what a scan of every file finds, and whether the content
holds. Nothing that the pack says about itself is believed: not its scan, not its public key. A file that a scan cannot
look through, because it is no text, leaves the scan unknown.

Source: AMP v0.4, Parts 7 (gate 6), 9 and 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from melete.errors import MeleteError, MissingFile
from melete.packs.credentials import quote, show_path
from melete.packs.errors import GateFailed, NotSigned, PackRefused
from melete.packs.findings import Finding, Severity

if TYPE_CHECKING:
    import os

    from melete.packs.keys import PublicKey
    from melete.packs.manifest import Manifest
    from melete.packs.signing import Verdict
    from melete.packs.tree import PackTree
    from melete.packs.trust import TrustedKey

ACCEPTED, REFUSED, UNKNOWN = "accepted", "refused", "unknown"
PASSED, FAILED, NOT_ASKED = "passed", "failed", "not asked"
#: The checks, in the order in which they are asked.
CHECKS: Final = ("files", "gates", "name", "signed", "signature", "scan", "content")
#: What a scan finds; all other findings are about content.
_SCANNED: Final = frozenset({"credential", "hidden-text", "amp-marker", "not-text"})
#: What a scan could not look through: nobody knows what is in there.
_UNSCANNED: Final = frozenset({"not-text"})


class Check(NamedTuple):
    """One question: its name, one of `CHECKS`; passed, failed, unknown or not asked; and what was found."""

    name: str
    answer: str
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "answer": self.answer,
            "findings": [finding.to_json() for finding in self.findings],
        }


class Submission(NamedTuple):
    """The verdict: `accepted` if every check passed, `refused` if one failed, otherwise `unknown`.

    `name`, `version`, `digest` and `signer` (a key id) are None as far as they could not be told.
    """

    answer: str
    checks: tuple[Check, ...]
    name: str | None = None
    version: str | None = None
    digest: str | None = None
    signer: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for check in self.checks for finding in check.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for machines."""
        return {
            "answer": self.answer,
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "signer": self.signer,
            "checks": [check.to_json() for check in self.checks],
        }


def check_submission(
    folder: str | os.PathLike[str],
    public_keys: Sequence[PublicKey],
    *,
    trusted: Iterable[TrustedKey] = (),
    name: str | None = None,
    strict: bool = False,
) -> Submission:
    """Return a registry's verdict on a pack.

    `public_keys` are those that its creator registered; `trusted` are keys that the registry keeps by name, of which
    a revoked one never verifies. `name` is the name that the creator submits it under, if that must be the pack's.
    With `strict`, a warning of signature, scan or content refuses too.

    Errors: `InvalidInput` for what is no folder, `MissingFile` for what may not be read: nothing was learned then.
    """
    asking = _Asking(strict=strict)
    tree = asking.ask_files(folder)
    manifest = asking.ask_gates(tree) if tree is not None else None
    if tree is not None and manifest is not None:
        asking.ask_name(manifest, name)
        asking.ask_signed(manifest)
        asking.ask_signature(tree, manifest, public_keys, trusted)
        asking.ask_content(tree, manifest)
    return asking.answer(manifest)


class _Asking:
    """The checks so far."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._checks: dict[str, Check] = {}
        self._digest: str | None = None
        self._signer: str | None = None

    def ask_files(self, folder: str | os.PathLike[str]) -> PackTree | None:
        from melete.packs.tree import load_tree

        try:
            tree = load_tree(folder)
        except PackRefused as refusal:
            self._tell(
                "files", [_finding(refusal.rule, show_path(refusal.file or "."), refusal.detail, "clear this first")]
            )
            return None
        self._tell("files", [])
        return tree

    def ask_gates(self, tree: PackTree) -> Manifest | None:
        from melete.packs.manifest import load_manifest

        try:
            manifest = load_manifest(tree)
        except GateFailed as gate:
            self._tell("gates", [_finding(f"gate-{gate.gate}", gate.file, str(gate).rstrip("."), "open this gate")])
            return None
        except PackRefused as refusal:
            check = "name" if refusal.rule == "manifest-name" else "gates"
            if check == "name":
                self._tell("gates", [])
            self._tell(check, [_finding(refusal.rule, refusal.file or ".", refusal.detail, "correct the manifest")])
            return None
        self._tell("gates", [])
        return manifest

    def ask_name(self, manifest: Manifest, name: str | None) -> None:
        found = []
        if name is not None and manifest.name != name:
            message = f"the pack is called '{quote(manifest.name)}', and is submitted as '{quote(name)}'"
            found.append(_finding("name", "manifest.json", message, "submit it under its own name, or rename the pack"))
        self._tell("name", found)

    def ask_signed(self, manifest: Manifest) -> None:
        found = []
        if not manifest.signed:
            message, _, remedy = str(NotSigned()).rstrip(".").partition(": ")
            found.append(_finding("gate-6", "manifest.json", message, remedy))
        self._tell("signed", found)

    def ask_signature(
        self,
        tree: PackTree,
        manifest: Manifest,
        public_keys: Sequence[PublicKey],
        trusted: Iterable[TrustedKey],
    ) -> None:
        from melete.packs.signing import verify_pack

        try:
            verdict = verify_pack(tree, public_keys, trusted=trusted)
        except MissingFile:
            raise
        except MeleteError as error:
            self._tell("signature", [_finding("signature", "manifest.json", str(error).rstrip("."), "sign it again")])
            return
        self._digest = verdict.digest
        if not manifest.signed:
            return
        warnings = self._warn(verdict)
        if verdict.answer == "held":
            self._signer = verdict.signer
            self._tell("signature", warnings)
            return
        remedy = "sign the pack as it is now, with a key that is registered"
        found = [_finding(verdict.rule, "manifest.json", verdict.reason, remedy)]
        found += [
            _finding("signed-files", show_path(one.path), f"it is {one.kind} since it was signed", "sign it again")
            for one in verdict.differences
        ]
        answer = FAILED if verdict.answer == "broken" else UNKNOWN
        self._checks["signature"] = Check("signature", answer, (*found, *warnings))

    def _warn(self, verdict: Verdict) -> list[Finding]:
        """Return what a verdict warns of, such as a key that was replaced; a missing member is a matter of content."""
        from melete.packs.signing import OFTEN_MISSING, say_missing

        severity = Severity.ERROR if self._strict else Severity.WARNING
        remedy = "look whether this can be right, or have the pack signed again with the key that is used now"
        told = [warning for warning in verdict.warnings if warning not in map(say_missing, OFTEN_MISSING)]
        return [Finding("signature-warning", severity, "manifest.json", None, one, remedy) for one in told]

    def ask_content(self, tree: PackTree, manifest: Manifest) -> None:
        from melete.packs.validation import validate

        try:
            findings = validate(tree, manifest, strict=self._strict).findings
        except PackRefused as refusal:  # a file changed in the meantime, and was not looked at
            found = _finding(refusal.rule, show_path(refusal.file or "."), refusal.detail, "check the pack again")
            self._checks["scan"] = Check("scan", UNKNOWN, (found,))
            return
        self._tell("scan", [finding for finding in findings if finding.rule in _SCANNED], unsure=_UNSCANNED)
        self._tell("content", [finding for finding in findings if finding.rule not in _SCANNED])

    def answer(self, manifest: Manifest | None) -> Submission:
        checks = tuple(self._checks.get(name, Check(name, NOT_ASKED)) for name in CHECKS)
        answers = {check.answer for check in checks}
        answer = REFUSED if FAILED in answers else ACCEPTED if answers == {PASSED} else UNKNOWN
        version = None if manifest is None or manifest.version is None else show_path(str(manifest.version))
        name = quote(manifest.name) if manifest else None
        return Submission(answer, checks, name, version, self._digest, self._signer)

    def _tell(self, name: str, findings: list[Finding], unsure: frozenset[str] = frozenset()) -> None:
        """Take an answer: failed for an error; else unknown for a finding of the rules that are `unsure`, or passed."""
        failed = any(finding.is_error for finding in findings)
        unknown = any(finding.rule in unsure for finding in findings)
        self._checks[name] = Check(name, FAILED if failed else UNKNOWN if unknown else PASSED, tuple(findings))


def _finding(rule: str, file: str, message: str, remedy: str) -> Finding:
    return Finding(rule, Severity.ERROR, file, None, message, remedy)
