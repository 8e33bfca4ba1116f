"""What can be wrong with a pack, as one branch of the tree of `melete.errors`.

    VerificationError
    └── PackError               a pack, or what was installed from one, breaks a rule
        ├── PackRefused         a rule, the file that breaks it, and how
        │   └── AgentsRefused   an agents.md that is no UTF-8 text
        ├── BadFrontmatter      YAML at the top of a file that cannot be read
        ├── ContentRefused, SignatureRefused        not installed, for what it holds or who signed it
        ├── BlockDamaged, TargetRefused, PackInsideTarget   not installed, for what is there already
        ├── NotInstalled        nothing to inspect or to remove
        ├── NothingCaptured, ReviewOutdated         not captured, for what the sources hold now
        ├── WikiRefused, MarkersDamaged, SkillEdited    not written, for what is there already
        └── GateFailed          one of the six gates of an installer; each message starts with the gate's own text
            ├── MissingManifest         1
            ├── ManifestNotJson         2
            ├── WrongLayout             3
            ├── MissingAgentsFile       4
            ├── MissingCapabilityFile   5
            └── NotSigned               6, asked only by a registry
    InputError
    ├── NotInProject            no project to install into
    ├── InvalidReview, ReviewProblems           a review that capture does not take back
    ├── KeyRefused              a text that is not the one Ed25519 key it should be
    └── PrivateKeyExposed       a private key where a public one belongs
    CouldNotTell
    └── ChangeUnfinished        an install that was cut off, and not made good yet

Names of files, and whatever else stands in a pack, come from a stranger: messages show them escaped and bounded.
"""

from __future__ import annotations

from typing import Any, ClassVar

from melete.errors import LONGEST_SHOWN, CouldNotTell, InputError, VerificationError, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.findings import Finding


class _Bare:
    """A value inside a sentence: `{name}` shows it safely, `{name:bare}` without quotes, `{name:plain}` as it is."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        if spec == "plain":
            return str(self.value)
        if spec == "bare" and isinstance(self.value, str):
            return ascii(self.value[:LONGEST_SHOWN])[1:-1] + "..." * (len(self.value) > LONGEST_SHOWN)
        return show(self.value)


def _masked(path: str) -> str:
    """Return a path in a pack as a message may name it."""
    from melete.packs.credentials import show_path

    return show_path(path)


class PackError(VerificationError):
    """A pack, or what was installed from one, breaks a rule."""

    def __str__(self) -> str:
        return self.sentence.format(**{name: _Bare(value) for name, value in vars(self).items()})

    def to_json(self) -> dict[str, Any]:
        """Return the values for machines: rule, file, line and remedy as far as there are any, and the class's own."""
        return dict(vars(self))


class PackRefused(PackError):
    """`file` breaks the rule named `rule`; `detail` says how, and what to do: text of ours, without a final stop.

    `file` is a path in the pack, or "" for the pack as a whole.
    """

    rule: str
    file: str
    detail: str

    def __str__(self) -> str:
        place = f"{show(_masked(self.file))}: " if self.file else ""
        return f"pack refused: {place}{self.detail} (rule {self.rule})."

    def to_json(self) -> dict[str, Any]:
        remedy = self.detail.partition("; ")[2] or None
        return {"line": None, "remedy": remedy, **vars(self), "file": _masked(self.file)}


class AgentsRefused(PackRefused):
    """An agents.md that would spoil the file that it is put into. `detail` and `remedy` are text of ours."""

    line: int
    remedy: str

    def __str__(self) -> str:
        return f"pack refused: {show(self.file)} line {self.line}: {self.detail} (rule {self.rule}); {self.remedy}."

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "remedy": self.remedy}


class BadFrontmatter(PackError):
    """The frontmatter of `file` cannot be read. `reason` is text of ours, with what to do."""

    file: str
    line: int
    reason: str
    sentence = "{file} line {line}: the frontmatter cannot be read: {reason:plain}."


# The gates of Part 7


class GateFailed(PackError):
    """One of the gates that every installer asks, in order. `gate` is its number in Part 7."""

    gate: ClassVar[int] = 0
    #: The file that the gate is about.
    file: ClassVar[str] = "manifest.json"

    @property
    def rule(self) -> str:
        return f"gate-{self.gate}"

    def to_json(self) -> dict[str, Any]:
        remedy = "open this gate: nothing after it was looked at"
        return {"rule": self.rule, "file": self.file, "line": None, "remedy": remedy, **vars(self)}


class MissingManifest(GateFailed):
    """Gate 1."""

    gate = 1
    sentence = "Missing manifest.json: without one at its top, a folder is no pack; give the pack's own folder."


class ManifestNotJson(GateFailed):
    """Gate 2. `reason` is text of ours: why it is none."""

    reason: str
    gate = 2
    sentence = "manifest.json is not valid JSON: {reason:plain}."


class WrongLayout(GateFailed):
    """Gate 3. `layout` is what the manifest says, as text; "undefined" if it says nothing."""

    layout: str
    gate = 3
    sentence = "Pack layout is '{layout:bare}', expected 'semantic-cluster'; no other layout can be read."


class MissingAgentsFile(GateFailed):
    """Gate 4. `reason` is text of ours: that there is no such file, or that the manifest does not name it."""

    reason: str
    gate = 4
    file = "agents.md"
    sentence = "Missing agents.md: {reason:plain}."


class MissingCapabilityFile(GateFailed):
    """Gate 5. `name` is what `capability_files` lists, as text; `reason` is text of ours."""

    name: str
    reason: str
    gate = 5
    sentence = "Missing capability file: memory/{name:bare}: {reason:plain}."


class NotSigned(GateFailed):
    """Gate 6, for registries. Only the JSON value true counts as signed."""

    gate = 6
    sentence = "Pack is not signed: sign it with `amp sign` before it is submitted."


# Installing


class BlockDamaged(PackError):
    """A host file holds markers of `slug` that are not one ordered pair. `reason` is text of ours."""

    file: str
    line: int
    slug: str
    reason: str
    sentence = (
        "{file:bare} line {line}: the amp markers of {slug:bare} do not frame one block ({reason:plain}); "
        "nothing was changed: put these lines right by hand, or take them all out."
    )


class TargetRefused(PackError):
    """A file or folder that would have to be written cannot be, safely. `reason` is text of ours, with what to do."""

    file: str
    reason: str
    sentence = "{file}: {reason:plain}; nothing was changed."


class PackInsideTarget(PackError):
    """A pack that would be copied into itself, or over itself."""

    source: str
    target: str
    sentence = "the pack {source} and {target}, where it would go, lie one in the other; move the pack elsewhere first."


class ContentRefused(PackError):
    """What the pack holds is refused. `findings` are all reasons, in order."""

    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        first, *others = self.findings
        more = f", and {len(others)} more finding{'s' * (len(others) > 1)}" if others else ""
        return f"pack refused: {first.place}: {first.message} (rule {first.rule}); {first.remedy}{more}."

    def to_json(self) -> dict[str, Any]:
        findings = [finding.to_json() for finding in self.findings]
        first = {name: findings[0][name] for name in ("rule", "file", "line", "remedy")}
        return {**first, "findings": findings}


class SignatureRefused(PackError):
    """The signature does not hold, or one was required. `reason` is text of ours, with what to do."""

    reason: str
    sentence = "pack refused: {reason:plain} (rule signature)."

    def to_json(self) -> dict[str, Any]:
        remedy = self.reason.partition("; ")[2] or None
        return {"rule": "signature", "file": "manifest.json", "line": None, "remedy": remedy, **vars(self)}


class NotInstalled(PackError):
    """`hint` is text of ours."""

    slug: str
    place: str
    hint: str
    sentence = "{slug:bare} is not installed in {place}{hint:plain}."


class NotInProject(InputError):
    """Neither `folder` nor any above it is a project."""

    folder: str
    markers: str
    sentence = (
        "Not inside a project: neither {folder} nor a folder above it holds {markers:plain}; "
        "go to your project, or give --scope user."
    )


class ChangeUnfinished(CouldNotTell):
    """An install or uninstall was cut off, and cannot be undone or completed yet. `reason` is text of ours."""

    folder: str
    reason: str
    sentence = (
        "a change in {folder} was cut off and is not made good yet ({reason:plain}); "
        "the next `amp install` or `amp uninstall` there tries again."
    )


# Keys and signatures


class KeyRefused(InputError):
    """What should be a key cannot be used. `reason` is text of ours; what the text held is not shown."""

    source: str
    reason: str
    sentence = "{source}: the key is refused: {reason:plain}."


class PrivateKeyExposed(InputError):
    """A private key was given where a public one belongs."""

    source: str
    sentence = (
        "{source}: this is a PRIVATE key where a public one belongs, and it was not used; whoever hands it around "
        "gives away the right to sign: treat it as exposed, make a new one with amp keygen, and revoke this one."
    )


# Capture, unpack and skills


class InvalidReview(InputError):
    """A review that capture does not take back: where, and why. `reason` is text of ours, without a final stop."""

    file: str
    line: int | None
    unit: str
    reason: str

    @property
    def place(self) -> str:
        """Line and unit, as far as they are known."""
        parts = [f"line {self.line}" if self.line else "", show(self.unit)[1:-1] if self.unit else ""]
        return ", ".join(part for part in parts if part)

    def __str__(self) -> str:
        return f"{show(self.file)}{' ' * bool(self.place)}{self.place}: {self.reason}."


class ReviewProblems(InputError):
    """More than one thing that keeps a review from being taken back."""

    problems: tuple[InvalidReview, ...]

    def __str__(self) -> str:
        told = "; ".join(f"{problem.place}: {problem.reason}" for problem in self.problems[:20])
        more = "; ..." if len(self.problems) > 20 else ""
        return f"{show(self.problems[0].file)} has {len(self.problems)} problems: {told}{more}."


class ReviewOutdated(PackError):
    """A review of other sources than those given. `change` is text of ours: what differs when it was written."""

    file: str
    source: str
    change: str
    sentence = (
        "{file} is outdated: {source} {change:plain} when it was written; make a new one with --review, "
        "and --apply {file:bare} beside it to carry over what was decided."
    )


class NothingCaptured(PackError):
    """No unit of the sources may go into a pack. `reason` is text of ours."""

    reason: str
    sentence = "no pack was written: {reason:plain}."


class WikiRefused(PackError):
    """Something in or around a wiki cannot be read or written safely. `reason` is text of ours, with what to do."""

    file: str
    reason: str
    sentence = "{file}: {reason:plain}."


class MarkersDamaged(PackError):
    """The two comments that frame a pack's section of a page are not as they were written. `reason` is text of ours."""

    reason: str
    sentence = "the page is left as it is: {reason:plain}; put the amp-unpack comments right, or take them all out."


class SkillEdited(PackError):
    """A skill file that somebody edited since it was installed, or that was never ours."""

    file: str
    sentence = "{file} is not as it was installed, and stays; move it away, or give --force to lose what it holds."
