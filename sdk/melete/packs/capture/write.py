"""Make the files of a pack from judged units, and put them where they belong, all or nothing.

    files = build_pack(settings, sources, judged)
    write_pack("my-pack", files)

The same units give the same bytes; the day is an argument. Every pack is v0.4.

Source: AMP v0.4, Parts 2, 3 and 11.
"""

# ruff: noqa: PTH100, PTH103, PTH118

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from melete.errors import InvalidInput, StoreNotWritten, show
from melete.packs.capture.distill import Judged, Outcome, find_secrets, find_unseen
from melete.packs.capture.review import Settings
from melete.packs.capture.routes import (
    CONTENT_STRATEGY,
    COPY_VOICE,
    DEMONSTRATIONS,
    FILES,
    OPERATING_PRINCIPLES,
    OPS_TOOLS,
    PRODUCT_CONTEXT,
)
from melete.packs.capture.sources import Source
from melete.packs.credentials import NOT_SHOWN
from melete.packs.errors import ContentRefused, NothingCaptured, TargetRefused
from melete.packs.folder import Draft, Folder
from melete.packs.grammar import ORIGINS, Cluster, Unit, serialize_cluster
from melete.packs.manifest import LARGEST, parse_slug

AGENTS_FILE: Final = "agents.md"
MANIFEST: Final = "manifest.json"
LONGEST_TITLE: Final = 200
#: What each capability file is for, in a line.
APPLIES_TO: Final = {
    OPERATING_PRINCIPLES: "goals, priorities and operating principles that bear on every task",
    COPY_VOICE: "writing style, voice, wording and looks",
    CONTENT_STRATEGY: "angle, framing, story, channel and launch of content",
    PRODUCT_CONTEXT: "facts about products, their positioning and their users",
    OPS_TOOLS: "tools, credentials by name, automation, mail and deployment",
    DEMONSTRATIONS: "examples that were approved or rejected, to match or to avoid",
}
#: When an agent loads a file that it does not always load.
ROUTES: Final = {
    COPY_VOICE: "Writing or designing anything (copy, posts, scripts, headlines, pages)",
    CONTENT_STRATEGY: "Content strategy (angle, framing, channel, launch)",
    PRODUCT_CONTEXT: "Product facts (positioning, pricing, features)",
    OPS_TOOLS: "Operations or automation (mail, credentials, tools, deploys)",
    DEMONSTRATIONS: "Looking at approved and rejected examples, or matching a tone",
}
_COUNTED: Final = ("directive", "goal", "claim", "demonstration")


def check_settings(settings: Settings) -> None:
    """Refuse what cannot stand in a manifest. Errors: `InvalidInput`, naming the member."""
    from datetime import date

    parse_slug(settings.name)
    title = settings.title
    if not title.strip() or title != " ".join(title.split()) or not title.isprintable() or len(title) > LONGEST_TITLE:
        raise InvalidInput("title", title, f"one line of printable text, of at most {LONGEST_TITLE} characters")
    if find_secrets(title, "") or find_unseen(title, ""):
        raise InvalidInput("title", NOT_SHOWN, "text that holds no credential, and nothing that cannot be seen")
    if settings.source not in ORIGINS:
        raise InvalidInput("source", settings.source, f"one of {', '.join(ORIGINS)}")
    try:
        valid = date.fromisoformat(settings.created).isoformat() == settings.created
    except ValueError:
        valid = False
    if not valid:
        raise InvalidInput("created", settings.created, "a day, as 2026-04-21")


def build_pack(settings: Settings, sources: Sequence[Source], judged: Sequence[Judged]) -> dict[str, bytes]:
    """Return the files of a pack by path. Only units whose outcome is kept are in it.

    `operating-principles.md` is always there, because every pack must have it; the others only if they hold something.
    Errors: `NothingCaptured` for no such unit; `InvalidInput` for one that no line of a pack can carry.
    """
    if not any(one.outcome is Outcome.KEPT for one in judged):
        raise NothingCaptured("no unit of the sources is settled")
    clusters = {name: _build_cluster(name, settings.source, judged) for name in FILES}
    names = [name for name in FILES if name == OPERATING_PRINCIPLES or clusters[name].units]
    files = {f"memory/{name}": serialize_cluster(clusters[name]).encode() for name in names}
    files[AGENTS_FILE] = _build_agents(settings.name, names).encode()
    files[MANIFEST] = _dump_json(_build_manifest(settings, sources, judged, names))
    return dict(sorted(files.items()))


def _build_cluster(name: str, origin: str, judged: Iterable[Judged]) -> Cluster:
    path = f"memory/{name}"
    kept = [one for one in judged if one.outcome is Outcome.KEPT and one.proposal.file == name]
    units = tuple(_build_unit(f"{path}#{number}", one) for number, one in enumerate(kept, 1))
    frontmatter: dict[str, Any] = {"type": "cluster", "applies_to": APPLIES_TO[name], "source": origin}
    subtypes = sorted({one.proposal.subtype for one in kept if one.proposal.subtype})
    if subtypes:
        frontmatter["subtype"] = subtypes[0]
    frontmatter["primitive_counts"] = {kind: sum(unit.type == kind for unit in units) for kind in _COUNTED}
    return Cluster(path, frontmatter, {}, units)


def _build_unit(number: str, one: Judged) -> Unit:
    proposal = one.proposal
    content = proposal.content if proposal.body is None else proposal.body
    return Unit(number, proposal.type or "", proposal.facets, content, body=proposal.body, reason=proposal.reason)


def _build_agents(name: str, names: Sequence[str]) -> str:
    lines = [f"# AMP Routing — {name}", "", "## Always load"]
    lines.append(f"- {OPERATING_PRINCIPLES} — {APPLIES_TO[OPERATING_PRINCIPLES]}")
    rows = [f"| {ROUTES[each]} | {each} |" for each in names if each in ROUTES]
    if rows:
        lines += ["", "## Route by task type", "", "| If the task involves... | Load |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _build_manifest(
    settings: Settings, sources: Sequence[Source], judged: Sequence[Judged], names: Sequence[str]
) -> dict[str, Any]:
    kept = [one.proposal.type for one in judged if one.outcome is Outcome.KEPT]
    return {
        "name": settings.name,
        "title": settings.title,
        "version": {"number": settings.version},
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "created": settings.created,
        "sources": [source.path for source in sources],
        "agents_file": AGENTS_FILE,
        "agents": ["claude-code"],
        "capability_files": list(names),
        "primitive_counts": {
            **{kind: kept.count(kind) for kind in ("goal", "claim", "directive", "demonstration")},
            "dropped_action_log": sum(one.outcome is Outcome.ACTION_LOG for one in judged),
            "dropped_duplicate": sum(one.outcome is Outcome.DUPLICATE for one in judged),
        },
        "signed": False,
        "signature": "",
    }


def _dump_json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode()


# Where it goes


def write_pack(out: str, files: Mapping[str, bytes], *, force: bool = False) -> None:
    """Write a pack to a new folder: beside its place first, checked there as `validate` checks it, then renamed.

    With `force` it may take the place of an earlier pack, if that holds nothing but what capture writes.
    Errors: `InvalidInput` for a folder that is there already; `StoreNotWritten`, `PackError`, and nothing changed.
    """
    path = os.path.abspath(out)
    parent, name = os.path.split(path)
    if not name:
        raise InvalidInput("--out", out, "the name of a folder")
    try:
        os.makedirs(parent, exist_ok=True)
        folder = Folder(parent)
    except OSError as error:
        raise StoreNotWritten(path, error.strerror or "its folder cannot be made") from None
    token = os.urandom(4).hex()
    new, old = f".{name}.amp-{token}.new", f".{name}.amp-{token}.old"
    moved = False
    try:
        _recover(folder, name)
        there = _check_place(folder, name, out, files.get(MANIFEST, b""), force=force)
        _draft(folder, new, files)
        _check(os.path.join(parent, new))
        if there:
            folder.rename(name, old)
            moved = True
        folder.rename(new, name)
        folder.flush("")
        moved = False
        with suppress(OSError):  # the new pack is in its place, whatever becomes of the former
            folder.remove(old)
    except OSError as error:
        raise StoreNotWritten(path, error.strerror or "the disk refused it") from None
    finally:
        with suppress(OSError, TargetRefused):
            folder.remove(new)
        if moved:
            _put_back(folder, old, name)
        folder.close()


def _put_back(folder: Folder, old: str, name: str) -> None:
    try:
        folder.rename(old, name)
    except OSError as error:
        raise StoreNotWritten(name, f"{error.strerror}; what it held is in {old}") from None


def _recover(folder: Folder, name: str) -> None:
    """Put back a pack that was moved aside for its successor by a run that was killed just then."""
    if folder.status(name) is not None:
        return
    handle = folder.open_folder(".")
    try:
        with os.scandir(handle) as entries:
            aside = sorted(each.name for each in entries if each.name.startswith(f".{name}.amp-"))
    finally:
        os.close(handle)
    olds = [each for each in aside if each.endswith(".old")]
    if olds:
        folder.rename(olds[0], name)


def _draft(folder: Folder, name: str, files: Mapping[str, bytes]) -> None:
    folder.make_folder(name)
    handle = folder.open_folder(name)
    try:
        draft = Draft(handle)
        for path, content in files.items():
            draft.write(path, [content])
        draft.flush()
    finally:
        os.close(handle)


def _check(folder: str) -> None:
    """Refuse to publish what `validate` would not pass."""
    from melete.packs.tree import load_tree
    from melete.packs.validation import validate

    report = validate(load_tree(folder))
    errors = tuple(finding for finding in report.findings if finding.is_error)
    if errors:
        raise ContentRefused(errors)


def _check_place(folder: Folder, name: str, out: str, manifest: bytes, *, force: bool) -> bool:
    """Return whether a pack is there that may be replaced."""
    status = folder.status(name)
    if status is None:
        return False
    if not force:
        raise InvalidInput("--out", out, "a folder that is not there yet; choose another one, or give --force")
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInput("--out", out, "a folder; a link or a file is there, move it away")
    known = {MANIFEST, AGENTS_FILE, *(f"memory/{each}" for each in FILES)}
    for path in _list(folder, name):
        if path not in known:
            raise InvalidInput("--out", out, f"a folder that capture wrote; it holds {show(path)}, move that away")
    if fault := _find_foreign(folder, name, manifest):
        raise InvalidInput("--out", out, f"a folder that capture wrote; {fault}: move it away, or choose another one")
    return True


def _find_foreign(folder: Folder, name: str, manifest: bytes) -> str:
    """Return what shows that a folder is no earlier pack of capture's for the same name; empty for nothing."""
    if not _list(folder, name):
        return ""
    content = folder.read(f"{name}/{MANIFEST}", LARGEST)
    if content is None:
        return "this one has no manifest"
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return "its manifest cannot be read"
    made = json.loads(manifest)
    if not isinstance(found, dict) or found.get("name") != made["name"]:
        return "this one is a pack of another name"
    if found.get("signed") is not False or found.get("signature") != "":
        return "this one is signed"
    if found.keys() != made.keys():
        return "its manifest is not as capture writes it"
    return ""


def _list(folder: Folder, name: str) -> list[str]:
    """Return what a folder holds, two levels deep; a deeper folder comes with a slash at its end."""
    found = []
    for prefix in ("", "memory/"):
        handle = folder.open_folder(f"{name}/{prefix}".rstrip("/")) if not prefix or "memory/" in found else None
        if handle is None:
            continue
        try:
            with os.scandir(handle) as entries:
                found += [f"{prefix}{entry.name}{'/' * entry.is_dir(follow_symlinks=False)}" for entry in entries]
        finally:
            os.close(handle)
    return sorted(path for path in found if path != "memory/")
