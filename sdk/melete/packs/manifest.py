"""A pack's manifest: the five gates that every reader asks, then its members as plain values.

    manifest = load_manifest(tree)                 # raises the first gate that does not open
    manifest.capability_files                      # ("operating-principles.md", ...)
    check_manifest(manifest, strict_fields=True)   # everything else that is wrong with it

Whatever JSON it is, what comes out is a manifest or an error of ours. A member of the wrong type reads as absent, and
is a finding.

Source: AMP v0.4, Parts 2, 7 and 11.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, NoReturn

    from melete.packs.findings import Finding
    from melete.packs.tree import PackTree

MANIFEST: Final = "manifest.json"
AGENTS_FILE: Final = "agents.md"
MEMORY: Final = "memory/"
LAYOUT: Final = "semantic-cluster"
V03: Final = "yaml-frontmatter-v0.3"
V04: Final = "inline-tag-v0.4"
#: What `primitive_format` may say. A manifest that says nothing is one of v0.3.
PRIMITIVE_FORMATS: Final = (V03, V04)
#: What a pack may be called, matched whole and in ASCII.
SLUG: Final = r"^[a-z0-9][a-z0-9-]{0,63}$"
SLUG_RULE: Final = "1 to 64 of a-z, 0-9 and -, beginning with a letter or digit"
#: Bytes of a manifest that are read.
LARGEST: Final = 16 * 1024 * 1024

_FIRST: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LATER: Final = _FIRST | {"-"}
_BASE64URL: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_HEX: Final = frozenset("0123456789abcdef")
_UNDEFINED: Final = object()


class ListedFile(NamedTuple):
    """A file that the manifest lists, with the SHA-256 of what it holds, in hex."""

    path: str
    sha256: str


class Manifest(NamedTuple):
    """What a manifest says. `raw` is all of it, as JavaScript reads it; `text` as it is written.

    `version` is the string or the number; `files` and `public_key` are what signing adds. `title`, `version`, `files`
    and `public_key` are None, and `agents` and `primitive_counts` empty, where they are absent or of the wrong type.
    """

    raw: dict[str, Any]
    name: str
    title: str | None
    version: str | int | float | None
    layout: str
    primitive_format: str
    capability_files: tuple[str, ...]
    agents_file: str
    agents: tuple[str, ...]
    signed: bool
    signature: str
    primitive_counts: dict[str, int]
    files: tuple[ListedFile, ...] | None
    public_key: str | None
    text: str = ""


def is_slug(text: object) -> bool:
    """Return whether a pack may be called so."""
    return isinstance(text, str) and 0 < len(text) <= 64 and text[0] in _FIRST and _LATER.issuperset(text)


def parse_slug(text: str, field: str = "name") -> str:
    """Return the name of a pack as it is. Errors: `InvalidInput` for what could not be one: nothing else is a name."""
    if not is_slug(text):
        from melete.errors import InvalidInput

        raise InvalidInput(field, text, SLUG_RULE)
    return text


# Reading


def load_manifest(tree: PackTree) -> Manifest:
    """Return a pack's manifest, once all five gates are open.

    Errors, in this order: `MissingManifest`, `ManifestNotJson`, `WrongLayout`, `MissingAgentsFile`,
    `MissingCapabilityFile`; then `PackRefused` for a name that is none, or a primitive format that nobody knows.
    """
    if MANIFEST not in tree:
        from melete.packs.errors import MissingManifest

        raise MissingManifest
    content = tree.read_bytes(MANIFEST, LARGEST)
    return read_manifest(_parse(content), content.decode("utf-8"), lambda path: path in tree)


def read_manifest(raw: dict[str, Any], text: str, holds: Callable[[str], bool]) -> Manifest:
    """Return the manifest that a JSON object is; `holds` knows the files of its pack. Errors: as `load_manifest`."""
    if raw.get("layout") != LAYOUT:
        from melete.packs.errors import WrongLayout

        raise WrongLayout(_show(raw.get("layout", _UNDEFINED)))
    _ask_agents_file(raw, holds)
    _ask_capability_files(raw, holds)
    if not is_slug(raw.get("name")):
        _refuse("manifest-name", raw.get("name", _UNDEFINED), f"name must be {SLUG_RULE}, and is")
    form = raw.get("primitive_format", V03)
    if form not in PRIMITIVE_FORMATS:
        _refuse("primitive-format", form, f"primitive_format must be {V04} or {V03}, and is")
    title, counts, key = raw.get("title"), raw.get("primitive_counts"), raw.get("public_key")
    return Manifest(
        raw=raw,
        name=raw["name"],
        title=title if is_text(title) else None,
        version=_read_version(raw.get("version")),
        layout=LAYOUT,
        primitive_format=form,
        capability_files=tuple(raw["capability_files"]),
        agents_file=AGENTS_FILE,
        agents=tuple(raw["agents"]) if _is_texts(raw.get("agents")) else (),
        signed=raw.get("signed") is True,
        signature=raw["signature"] if isinstance(raw.get("signature"), str) else "",
        primitive_counts=dict(counts) if isinstance(counts, dict) and _is_counts(counts) else {},
        files=_read_files(raw.get("files")),
        public_key=key if _is_public_key(key) else None,
        text=text,
    )


def _parse(content: bytes) -> dict[str, Any]:
    from melete.packs.json_text import parse

    try:
        raw = parse(content)
    except ValueError as error:  # the family of errors of input; the class itself takes long to import
        from melete.errors import InvalidJson
        from melete.packs.credentials import quote

        if not isinstance(error, InvalidJson):
            raise
        _refuse_json(f"at {quote(error.pointer)}, {error.rule}" if error.pointer else error.rule)
    if not isinstance(raw, dict):
        _refuse_json("it must be an object, { ... }")
    return raw


def _refuse_json(reason: str) -> NoReturn:
    from melete.packs.errors import ManifestNotJson

    raise ManifestNotJson(reason) from None


def _refuse(rule: str, value: object, detail: str) -> NoReturn:
    from melete.packs.credentials import quote
    from melete.packs.errors import PackRefused

    raise PackRefused(rule, MANIFEST, f"{detail} '{quote(_show(value))}'")


def _ask_agents_file(raw: dict[str, Any], holds: Callable[[str], bool]) -> None:
    if not holds(AGENTS_FILE):
        reason = "a pack tells in it which file an agent reads for which task; add it"
    elif raw.get("agents_file") != AGENTS_FILE:
        value = _show(raw.get("agents_file", _UNDEFINED))
        reason = f'the manifest must name it, "agents_file": "agents.md", and says {value[:40]!a}'
    else:
        return
    from melete.packs.errors import MissingAgentsFile

    raise MissingAgentsFile(reason)


def _ask_capability_files(raw: dict[str, Any], holds: Callable[[str], bool]) -> None:
    names = raw.get("capability_files", _UNDEFINED)
    if not isinstance(names, list):
        _refuse_capability(names, "capability_files must be a list of file names")
    for name in names:
        if not is_file_name(name):
            _refuse_capability(name, "capability_files must be names of files in memory/, without a folder")
        if not holds(MEMORY + name):
            _refuse_capability(
                name, "the manifest lists it and the pack does not hold it; add it or take it off the list"
            )


def _refuse_capability(name: object, reason: str) -> NoReturn:
    from melete.packs.errors import MissingCapabilityFile

    raise MissingCapabilityFile(_show(name), reason)


def _show(value: object) -> str:
    """Return a JSON value as a message may name it."""
    if isinstance(value, str):
        if len(value) < 20:
            return value
        from melete.packs.credentials import NOT_SHOWN, find_credentials

        return NOT_SHOWN if find_credentials(value, "") else value
    if value is _UNDEFINED:
        return "undefined"
    if isinstance(value, list | dict):
        return "[...]" if isinstance(value, list) else "{...}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


# What a member may be


def is_text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def is_file_name(value: object) -> bool:
    """Return whether a value names a file without naming a folder."""
    return isinstance(value, str) and value not in ("", ".", "..") and not any(one in value for one in "/\\\x00")


def is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _is_counts(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_count, value.values()))


def _is_public_key(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.startswith("-----BEGIN PUBLIC KEY-----")
        and value.rstrip("\r\n").endswith("-----END PUBLIC KEY-----")
    )


def _read_version(value: object) -> str | int | float | None:
    if isinstance(value, dict):
        value = value.get("number")
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return value if isinstance(value, str) and is_text(value) else None


def _read_files(value: object) -> tuple[ListedFile, ...] | None:
    if not isinstance(value, list):
        return None
    files = []
    for entry in value:
        path, digest = (entry.get("path"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if not isinstance(path, str) or not path or not isinstance(digest, str):
            return None
        if len(digest) != 64 or not _HEX.issuperset(digest):
            return None
        files.append(ListedFile(path, digest))
    return tuple(files)


# Everything else


def check_manifest(manifest: Manifest, *, strict_fields: bool) -> list[Finding]:
    """Return what is wrong with a manifest whose gates are open.

    A missing `title` or `agents` is an error with `strict_fields`, as for `validate`, and else a warning; in a pack of
    v0.3, which has neither, it is nothing.
    """
    from melete.packs.findings import Finding, Severity

    def is_lenient(rule: str) -> bool:
        return rule in ("manifest-title", "manifest-agents") and not strict_fields

    return [
        Finding(
            rule,
            Severity.WARNING if is_lenient(rule) else Severity.ERROR,
            MANIFEST,
            _find_line(manifest.text, member),
            message,
            remedy,
        )
        for rule, member, message, remedy in _find_faults(manifest)
    ]


def explain_nothing_read(manifest: Manifest) -> str:
    """Return what to say of a pack from which no primitive can be read in the format that its manifest says."""
    if "primitive_format" in manifest.raw:
        why = f"no primitive was found that is written as {manifest.primitive_format} writes them"
    else:
        why = "its manifest says no primitive_format, so it was read as v0.3, and no primitive was found"
    return f"{why}; have its author correct primitive_format ({V04} or {V03}) or the files, and install it again"


def _find_faults(manifest: Manifest) -> Iterator[tuple[str, str, str, str]]:
    raw = manifest.raw
    needed = manifest.primitive_format != V03
    if manifest.title is None and (needed or "title" in raw):
        yield "manifest-title", "title", _say("title", raw), "give the pack a title, as text"
    if not manifest.agents and (needed or "agents" in raw):
        yield "manifest-agents", "agents", _say("agents", raw), 'list the agents it is for, as in ["claude-code"]'
    if manifest.version is None and "version" in raw:
        yield "manifest-version", "version", _say("version", raw), 'write {"number": 1} or a text'
    if len(set(manifest.capability_files)) < len(manifest.capability_files):
        yield "manifest-capability-files", "capability_files", "a capability file is listed twice", "list it once"
    if "created" in raw and not is_text(raw["created"]):
        yield "manifest-created", "created", _say("created", raw), 'write a date, as in "2026-01-31"'
    if "sources" in raw and not _is_texts(raw["sources"]):
        yield "manifest-sources", "sources", _say("sources", raw), "list names of files, as text"
    if "primitive_counts" in raw and not _is_counts(raw["primitive_counts"]):
        yield (
            "manifest-counts",
            "primitive_counts",
            _say("primitive_counts", raw),
            "count each type with a whole number",
        )
    yield from _find_signing_faults(manifest)


def _find_signing_faults(manifest: Manifest) -> Iterator[tuple[str, str, str, str]]:
    raw = manifest.raw
    if not isinstance(raw.get("signed", False), bool):
        yield "manifest-signed", "signed", "signed is not the JSON value true or false", "sign the pack with `amp sign`"
    signature = raw.get("signature", "")
    if manifest.signed or signature != "":
        remedy = "sign the pack with `amp sign`"
        if not isinstance(signature, str) or len(signature) != 86 or not _BASE64URL.issuperset(signature):
            message = "the signature is malformed: it must be 86 characters, base64url without padding"
            yield "manifest-signature", "signature", message, remedy
        elif not manifest.signed:
            yield "manifest-signature", "signature", "there is a signature, and signed is not true", remedy
    if "files" in raw and (manifest.files is None or len({file.path for file in manifest.files}) < len(manifest.files)):
        yield "manifest-files", "files", "files is no list of path and sha256, each path once", "sign the pack again"
    if "public_key" in raw and manifest.public_key is None:
        yield "manifest-public-key", "public_key", "public_key is no public key in PEM form", "sign the pack again"


def _say(member: str, raw: dict[str, Any]) -> str:
    return f"{member} is not what it must be" if member in raw else f"{member} is missing"


def _find_line(text: str, member: str) -> int | None:
    """Return the line that a member of the manifest stands in, or None where it does not stand."""
    import re

    match = re.search(rf'(?<!\\)"{member}"\s*:', text)
    return text.count("\n", 0, match.start()) + 1 if match else None
