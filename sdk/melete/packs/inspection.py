"""What is installed, and whether it is still what an install put there.

    place = locate("my-pack")
    found = inspect(place, "my-pack", public_keys=[load_public_key("signer.pub")])
    found.answer                                    "intact", "broken" or "unknown"

An install writes down what it did: `.amp/.meta/<slug>.json`, a `Record`. Whoever can change an installed pack can
change that too, so that it shows accidents; against anybody's intent only a signature helps, checked with a key from
elsewhere. A record is read as a stranger's text: no path in it is ever used.

Source: AMP v0.4, Part 8; decisions, AMP packs, Install.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from melete.errors import InvalidInput, MeleteError, MissingFile
from melete.packs.errors import BlockDamaged, NotInstalled, TargetRefused
from melete.packs.folder import LARGEST_HOST, Folder, reading
from melete.packs.hosts import (
    LEGACY,
    PACKS,
    RECORDS,
    Agent,
    Scope,
    find_home,
    find_project,
    host_file,
    is_reserved,
    load_project,
    pack_folder,
    record_file,
)
from melete.packs.journal import managed_folders
from melete.packs.manifest import LARGEST, MANIFEST, is_slug, parse_slug
from melete.packs.staging import Staging, is_cut_off

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.findings import Finding
    from melete.packs.keys import PublicKey
    from melete.packs.signing import Verdict
    from melete.packs.trust import TrustedKey

RECORD_FORMAT: Final = "amp-install/1"
#: The longest paths of the most files that a pack may have fit in.
LARGEST_RECORD: Final = 1 << 28
#: An installed folder with more than that holds something else than a pack.
MOST_FILES: Final = 200_000
_HEX: Final = frozenset("0123456789abcdef")


class Record(NamedTuple):
    """What an install did, as it wrote it down."""

    slug: str
    creator: str
    title: str | None
    version: str | None
    #: The SHA-256 of the text form of what a signature covers.
    digest: str
    agent: Agent
    scope: Scope
    #: UTC, as RFC 3339 writes it.
    installed_at: str
    #: held, unknown or unsigned; by which key, known under which name.
    signature: str
    key_id: str | None
    signer: str | None
    #: The SHA-256 of what stands between the markers, and of every file of the pack.
    block_sha256: str
    files: Mapping[str, str]
    #: What an uninstall has to know of the host file: it was made; its last line had no end, or had none before the
    #: block of an earlier pack was put there.
    host_made: bool
    unterminated: bool
    inherited_unterminated: bool
    #: Folders that an install made, to go when they are empty.
    folders: tuple[str, ...]

    @property
    def host_file(self) -> str:
        return host_file(self.agent, self.scope, self.slug)

    def has_block(self, body: bytes) -> bool:
        """Return whether this is what the install put between the markers."""
        from hashlib import sha256

        return sha256(body).hexdigest() == self.block_sha256

    def to_bytes(self) -> bytes:
        import json

        document = {
            "format": RECORD_FORMAT,
            "name": self.slug,
            "creator": self.creator,
            "title": self.title,
            "version": self.version,
            "digest": self.digest,
            "agent": self.agent.value,
            "scope": self.scope.value,
            "hostFile": self.host_file,
            "installedAt": self.installed_at,
            "signature": {"state": self.signature, "keyId": self.key_id, "signer": self.signer},
            "blockSha256": self.block_sha256,
            "host": {
                "made": self.host_made,
                "unterminated": self.unterminated,
                "inheritedUnterminated": self.inherited_unterminated,
            },
            "folders": list(self.folders),
            "files": [{"path": path, "sha256": digest} for path, digest in self.files.items()],
        }
        return json.dumps(document, indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes, scope: Scope, slug: str) -> Record:
        """Read a record of a pack in a scope. Errors: `ValueError` for anything that `to_bytes` would not write."""
        import json

        try:
            document = json.loads(content)
            if document["format"] != RECORD_FORMAT:
                raise ValueError("it was not written by this program, or by a newer one")
            if document["name"] != slug or document["scope"] != scope.value:
                raise ValueError("it is about another pack or scope")
            signature, host = document["signature"], document["host"]
            agent, folders = Agent(document["agent"]), managed_folders(scope, slug)
            if agent is Agent.OPENCLAW and scope is not Scope.USER:
                raise ValueError("it names an agent that has no projects")
            return cls(
                slug,
                _text(document["creator"]),
                _text_or_none(document["title"]),
                _text_or_none(document["version"]),
                _digest(document["digest"]),
                agent,
                scope,
                _text(document["installedAt"]),
                _text(signature["state"]),
                _text_or_none(signature["keyId"]),
                _text_or_none(signature["signer"]),
                _digest(document["blockSha256"]),
                {_text(file["path"]): _digest(file["sha256"]) for file in document["files"]},
                host["made"] is True,
                host["unterminated"] is True,
                host["inheritedUnterminated"] is True,
                tuple(path for path in document["folders"] if path in folders),
            )
        except (KeyError, TypeError, RecursionError):
            raise ValueError("it is damaged") from None


class Place(NamedTuple):
    """A project, or the user's home."""

    root: str
    scope: Scope


class Installed(NamedTuple):
    """A pack that is there, with its record; or without one, and `fault` says why."""

    slug: str
    place: Place
    record: Record | None
    fault: str = ""
    #: Where its files are, relative to the place; a pack of the earlier format may lie elsewhere.
    folder: str = ""
    has_files: bool = True

    @property
    def is_legacy(self) -> bool:
        return self.folder.startswith(LEGACY)


# Finding


def parse_name(text: str) -> tuple[str | None, str]:
    """Return creator and slug of `slug` or `@creator/slug`. Errors: `InvalidInput` for anything else."""
    if not text.startswith("@"):
        return None, parse_slug(text)
    creator, _, slug = text[1:].partition("/")
    if not creator.isascii() or not is_slug(creator.lower()) or not is_slug(slug):
        raise InvalidInput("name", text, "a pack's name, or @creator/name")
    return creator, slug


def locate(
    slug: str, scope: Scope | None = None, *, any_agent: bool = True, folder: str | None = None, home: str | None = None
) -> Place:
    """Return where a pack is installed: in the project, unless told otherwise, or else in the home.

    A scope that is given is taken as given, but that a pack for OpenClaw is always in the home. Without one, and with
    `any_agent` false, only such packs are looked for there. Errors: `NotInProject`; `NotInstalled`.
    """
    user = Place(find_home() if home is None else os.path.realpath(home), Scope.USER)
    if scope is Scope.USER:
        return user
    project = find_project(folder, user.root)
    if project is not None and find_installed(Place(project, Scope.PROJECT), slug) is not None:
        return Place(project, Scope.PROJECT)
    if project is not None and is_unfinished(Place(project, Scope.PROJECT)):
        return Place(project, Scope.PROJECT)  # to be made good first; then it may be that nothing is there
    at_home = find_installed(user, slug)
    if at_home is not None:
        for_openclaw = at_home.record is not None and at_home.record.agent is Agent.OPENCLAW
        if for_openclaw or (scope is None and any_agent):
            return user
    if project is None and at_home is None:
        project = load_project(folder, user.root)
    hint = "; it is installed for the user: give --scope user" if at_home is not None else ""
    raise NotInstalled(slug, project or "a project", hint)


def find_installed(place: Place, slug: str) -> Installed | None:
    """Return what is known of a pack in a place; None if nothing of it is there.

    Without a record only a folder that holds the manifest of a pack of this name counts as one. Errors:
    `TargetRefused` for a link where a folder should be.
    """
    with reading(place.root), _opened(place) as folder:
        return None if folder is None else _find_in(folder, place, slug)


def list_installed(place: Place) -> list[Installed]:
    """Return every pack in a place, by name. Errors: as `find_installed`."""
    with reading(place.root), _opened(place) as folder:
        if folder is None:
            return []
        names = {name for name, is_folder in folder.list_names(PACKS) if is_folder}
        names |= {name.removesuffix(".json") for name, _ in folder.list_names(RECORDS) if name.endswith(".json")}
        with suppress(TargetRefused):  # whatever else is called so is no business of ours
            names |= {name for name, is_folder in folder.list_names(LEGACY) if is_folder}
        found = (_find_in(folder, place, name) for name in sorted(names) if is_slug(name))
        return [one for one in found if one is not None]


def load_records(folder: Folder, scope: Scope) -> dict[str, Record]:
    """Return the records that can be read, by slug."""
    records = {}
    for name, _ in folder.list_names(RECORDS):
        slug = name.removesuffix(".json")
        if name.endswith(".json") and is_slug(slug):
            record = load_record(folder, scope, slug)
            if isinstance(record, Record):
                records[slug] = record
    return records


def load_record(folder: Folder, scope: Scope, slug: str) -> Record | str | None:
    """Return the record of a pack; None if there is none; what is wrong with it, as text of ours, if it is no use."""
    try:
        content = folder.read(record_file(slug), LARGEST_RECORD)
        return None if content is None else Record.from_bytes(content, scope, slug)
    except TargetRefused as error:
        return error.reason
    except UnicodeDecodeError:
        return "it is no text"
    except ValueError as error:
        from json import JSONDecodeError

        return "it is no JSON" if isinstance(error, JSONDecodeError) else str(error)


def is_unfinished(place: Place) -> bool:
    """Return whether an install or uninstall goes on in a place, or was cut off. Errors: `TargetRefused`."""
    with reading(place.root), _opened(place) as folder:
        return folder is not None and is_cut_off(folder)


def make_good(place: Place) -> list[str]:
    """Undo or complete what was cut off in a place, and say so; nothing is touched where nothing was.

    Errors: those of `melete.packs.staging.Staging`.
    """
    if not is_unfinished(place):
        return []
    with Staging(place.root, place.scope) as staging:
        return staging.recovered


def hash_folder(folder: Folder, path: str) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by path; empty text for what is neither file nor folder.

    Errors: `FileNotFoundError`; `TargetRefused` for a link in its place; `OSError`.
    """
    found: dict[str, str] = {}
    handle = folder.open_folder(path)
    try:
        _hash_below(handle, "", found)
    finally:
        os.close(handle)
    return found


# Inspecting


class Difference(NamedTuple):
    """How an installed file differs from what was installed: added, changed, missing or not a file."""

    kind: str
    path: str


class Inspection(NamedTuple):
    """What was found. `block` is: as installed, edited, missing, damaged, or not recorded."""

    installed: Installed
    title: str | None
    version: str | None
    host_file: str | None
    block: str
    differences: tuple[Difference, ...]
    #: The signature as it is now; None with `signature_fault` when it cannot be checked.
    verdict: Verdict | None
    signature_fault: str
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def answer(self) -> str:
        """intact: as it was installed; broken; or unknown, when there is nothing to compare with."""
        if self.problems:
            return "broken"
        if self.installed.record is None and (self.verdict is None or self.verdict.answer != "held"):
            return "unknown"
        return "intact"


def inspect(
    place: Place,
    slug: str,
    *,
    public_keys: Sequence[PublicKey] | None = None,
    trusted: Iterable[TrustedKey] = (),
) -> Inspection:
    """Look at every file of an installed pack, at its block, and at its signature.

    Errors: `NotInstalled`; `ChangeUnfinished` and the like for an install that was cut off and cannot be made good.
    """
    warnings = make_good(place)
    installed = find_installed(place, slug)
    if installed is None:
        raise NotInstalled(slug, place.root, "")
    with reading(place.root), _opened(place) as folder:
        if folder is None:
            raise NotInstalled(slug, place.root, "")
        differences, problems = _compare(folder, installed)
        host, block = _look_at_block(folder, installed)
    if installed.fault:
        warnings.append(f"files cannot be compared with what was installed: {installed.fault}")
    if block in ("edited", "missing", "damaged"):
        problems.append(f"the block in {host} is {block}")
    title, version = (None, None) if installed.record is None else (installed.record.title, installed.record.version)
    verdict: Verdict | None = None
    fault = ""
    findings: tuple[Finding, ...] = ()
    if installed.has_files:
        try:
            title, version, verdict, findings = _look_into(place, installed, public_keys, trusted)
        except MissingFile as error:
            fault = str(error).rstrip(".")
        except MeleteError as error:
            fault = str(error).rstrip(".")
            problems.append(fault)
    if verdict is not None:
        warnings += verdict.warnings if verdict.signed else ()
        if verdict.answer == "broken" and (verdict.signed or public_keys or _was_signed(installed)):
            problems.append(f"signature: {verdict.reason}")
    problems += (str(finding) for finding in findings if finding.is_error)
    return Inspection(
        installed,
        title,
        version,
        host,
        block,
        differences,
        verdict,
        fault,
        findings,
        tuple(problems),
        tuple(warnings),
    )


def _compare(folder: Folder, installed: Installed) -> tuple[tuple[Difference, ...], list[str]]:
    if not installed.has_files:
        return (), [f"the pack's folder {installed.folder} is missing; install it again, or uninstall it"]
    if installed.record is None:
        return (), []
    try:
        found = hash_folder(folder, installed.folder)
    except (OSError, TargetRefused) as error:
        reason = error.reason if isinstance(error, TargetRefused) else error.strerror
        return (), [f"{installed.folder} cannot be read: {reason}"]
    differences = compare_files(installed.record.files, found)
    count = len(differences)
    return differences, [
        f"{count} file{'s differ' if count > 1 else ' differs'} from what was installed"
    ] if count else []


def compare_files(recorded: Mapping[str, str], found: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return how what is found differs from what was recorded, by path."""
    differences = []
    for path in sorted({*recorded, *found}):
        if found.get(path) == "":
            differences.append(Difference("not a file", path))
        elif path not in found:
            differences.append(Difference("missing", path))
        elif path not in recorded:
            differences.append(Difference("added", path))
        elif found[path] != recorded[path]:
            differences.append(Difference("changed", path))
    return tuple(differences)


def _look_at_block(folder: Folder, installed: Installed) -> tuple[str | None, str]:
    record = installed.record
    if record is None:
        return None, "not recorded"
    from melete.packs.block import find_block

    host = record.host_file
    try:
        content = folder.read(host, LARGEST_HOST)
        block = None if content is None else find_block(content, record.slug, host)
    except (BlockDamaged, TargetRefused, OSError):
        return host, "damaged"
    if block is None:
        return host, "missing"
    return host, "as installed" if record.has_block(block.body) else "edited"


def _look_into(
    place: Place,
    installed: Installed,
    public_keys: Sequence[PublicKey] | None,
    trusted: Iterable[TrustedKey],
) -> tuple[str | None, str | None, Verdict, tuple[Finding, ...]]:
    """Return title, version, the signature's state, and what a scan finds, of the files as they are now."""
    from melete.packs.manifest import load_manifest
    from melete.packs.scan import scan_tree
    from melete.packs.signing import verify_pack
    from melete.packs.tree import load_tree

    tree = load_tree(f"{place.root}/{installed.folder}")
    manifest = load_manifest(tree)
    verdict = verify_pack(tree, public_keys, trusted=trusted)
    findings = tuple(scan_tree(tree, manifest))
    return manifest.title, None if manifest.version is None else str(manifest.version), verdict, findings


def _was_signed(installed: Installed) -> bool:
    return installed.record is not None and installed.record.signature != "unsigned"


def _find_in(folder: Folder, place: Place, slug: str) -> Installed | None:
    if is_reserved(place.scope, slug):
        return None
    path = pack_folder(slug)
    status = folder.status(path)
    has_files = status is not None and stat.S_ISDIR(status.st_mode)
    record = load_record(folder, place.scope, slug)
    if isinstance(record, Record):
        return Installed(slug, place, record, "", path, has_files)
    if record is not None:
        return Installed(slug, place, None, f"{record_file(slug)}: {record}", path, has_files)
    if has_files and _names_itself(folder, path, slug):
        return Installed(slug, place, None, f"there is no {record_file(slug)}", path)
    path = f"{LEGACY}/{slug}"
    try:
        if _names_itself(folder, path, slug):
            return Installed(slug, place, None, "it was not installed by this program", path)
    except TargetRefused:
        return None
    return None


def _names_itself(folder: Folder, path: str, slug: str) -> bool:
    """Return whether a folder holds the manifest of a pack of this name."""
    import json

    try:
        content = folder.read(f"{path}/{MANIFEST}", LARGEST)
        manifest = None if content is None else json.loads(content)
    except (ValueError, RecursionError, TargetRefused):
        return False
    return isinstance(manifest, dict) and manifest.get("name") == slug


@contextmanager
def _opened(place: Place) -> Iterator[Folder | None]:
    try:
        folder = Folder(place.root)
    except FileNotFoundError:
        yield None
        return
    try:
        yield folder
    finally:
        folder.close()


def _hash_below(handle: int, prefix: str, found: dict[str, str]) -> None:
    from hashlib import sha256

    with os.scandir(handle) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        path = prefix + name
        if len(found) >= MOST_FILES:
            raise TargetRefused(path, f"an installed pack has at most {MOST_FILES} files; look what lies there")
        if is_folder:
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            try:
                _hash_below(below, path + "/", found)
            finally:
                os.close(below)
            continue
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
        except OSError:
            found[path] = ""
            continue
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                found[path] = ""
                continue
            digest = sha256()
            while part := os.read(file, 1 << 18):
                digest.update(part)
            found[path] = digest.hexdigest()
        finally:
            os.close(file)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _digest(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 64 or not _HEX.issuperset(value):
        raise TypeError
    return value
