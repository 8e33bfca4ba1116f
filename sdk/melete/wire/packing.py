"""Memories as a pack, and a pack's units as memories.

    exported = export_pack(store, "house-ways", "out/house-ways", created="2026-04-21")
    imported = import_pack(store, "out/house-ways", public_keys=[load_public_key("ada.pub")])

**Out.** A semantic memory becomes a claim, a procedural one a directive; others are not for packs. A unit is one line:
what has several, or begins with a space, becomes a positive demonstration, its text in braces. What came from a pack
goes back as what it was there. Refused by name is what no unit carries: text with a line that is just `}`, with
carriage returns, or with nothing but spaces; and whatever looks like a live credential, cannot be seen, or passes for
an installer's marker, in the text, a tag or a reason. The pack is not signed; `amp sign` does that.

**In.** See `melete.wire.pack_import`.

What survives the journey from memory to pack to memory:

    member        in the pack                               after the import
    content       the unit's text                           the same, to the character
    memory_type   `memories` in the manifest                the same
    tags          `memories` in the manifest                the same in their order, then pack:<name> and
                                                            signer:<key id>; tags of an earlier pack do not survive
    id            `memories` in the manifest                a new one; the old one is metadata.pack.memory.id
    created_at    `memories` in the manifest                the time of the import; the old one is
                                                            metadata.pack.memory.created_at
    expires_at    `memories` in the manifest                the same; what has ended by then is not imported
    metadata      nothing but what an earlier pack said     the new pack's provenance
                  of type, facets, reason and sources
    agent_id      nothing                                   that of the importer

and from unit to memory to unit: type, facets, text, braces, reason, `illustrates`, file and cited sources survive; the
unit's number, the pack's digest and its signer are those of the new pack.

A manifest that lists `memories` is otherwise like any other; readers that do not know the member pass it over.

Source: decisions, AMP packs and memorywire; AMP v0.4, Parts 2, 3 and 9.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from melete.errors import InvalidInput
from melete.packs.capture.review import Settings
from melete.packs.capture.routes import DEMONSTRATIONS, FILES, OPERATING_PRINCIPLES, PRODUCT_CONTEXT
from melete.packs.capture.write import APPLIES_TO, ROUTES, check_settings, write_pack
from melete.packs.errors import ContentRefused, NothingCaptured
from melete.packs.findings import Finding, Severity
from melete.packs.grammar import TYPES, Cluster, Source, Unit, parse_cluster, serialize_cluster
from melete.packs.hidden import HIDDEN_RULE
from melete.packs.scan import scan_content
from melete.wire.envelope import DEFAULT_AGENT, MemoryType, verify_agent_id, verify_memory_id, verify_tags
from melete.wire.errors import MemoryMerged, OtherMemoryType, UnknownMemory
from melete.wire.listing import list_ids
from melete.wire.pack_import import Imported as Imported
from melete.wire.pack_import import ReadPack as ReadPack
from melete.wire.pack_import import import_pack as import_pack
from melete.wire.pack_import import read_pack as read_pack
from melete.wire.provenance import Provenance, drop_reserved_tags, merge_legends, read_provenance
from melete.wire.store import MemoryStore
from melete.wire.values import Memory, MemoryState

#: What goes into a pack.
PACKED: Final = (MemoryType.SEMANTIC, MemoryType.PROCEDURAL)
#: Memories of one pack.
MOST_MEMORIES: Final = 20_000
_FILE_OF: Final = {
    "goal": OPERATING_PRINCIPLES,
    "directive": OPERATING_PRINCIPLES,
    "claim": PRODUCT_CONTEXT,
    "demonstration": DEMONSTRATIONS,
}
_COUNTED: Final = ("directive", "goal", "claim", "demonstration")
NOT_CARRIED: Final = "not-carried"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the pack's name and folder, the unit and the type of each memory, and what was left out."""

    name: str
    folder: str
    units: tuple[tuple[str, str, str], ...]
    left_out: tuple[Finding, ...]


def export_pack(
    store: MemoryStore,
    name: str,
    out: str | os.PathLike[str],
    *,
    created: str,
    title: str | None = None,
    version: int = 1,
    agent_id: str | None = None,
    memory_types: Sequence[MemoryType] = PACKED,
    tags: Sequence[str] = (),
    memory_ids: Sequence[str] = (),
    leave_out: bool = False,
    force: bool = False,
) -> Exported:
    """Write memories of an agent to a new folder, as a pack that validates, or nothing.

    Chosen are the memories with these ids, or else those that can be recalled, of these types, with all of these tags.
    `created` is a day, as 2026-04-21. With `leave_out`, what no pack may hold is left out and named in the result.
    With `force` the folder may hold an earlier pack that was written here, or by capture.
    Errors: `ContentRefused`, naming every memory that no pack may hold; `NothingCaptured` if nothing is left;
    `UnknownMemory`, `OtherMemoryType`, `MemoryMerged` for ids; `InvalidInput`, `EnvelopeError` for settings;
    `StoreNotWritten`.
    """
    settings = Settings(name, title or _name_in_words(name), "self", None, created, version)
    check_settings(settings)
    if type(version) is not int or not 1 <= version <= 10**8:
        raise InvalidInput("version", version, "an integer from 1 to 10^8")
    agent = DEFAULT_AGENT if agent_id is None else verify_agent_id(agent_id)
    chosen = list(choose_memories(store, agent, memory_types, verify_tags(tuple(tags)), memory_ids))
    packed, refused = [], []
    for memory in chosen:
        found = pack_memory(memory)
        if isinstance(found, Packed):
            packed.append(found)
        else:
            refused += found
    if refused and not leave_out:
        raise ContentRefused(tuple(refused))
    if not packed:
        reason = "every memory chosen was left out" if refused else f"agent {agent!a} has no memory of what was chosen"
        raise NothingCaptured(reason)
    files, units = build_files(settings, packed)
    write_pack(os.fspath(out), files, force=force)
    return Exported(name, os.fspath(out), units, tuple(refused))


def _name_in_words(name: str) -> str:
    return " ".join(word.capitalize() for word in str(name).split("-") if word)


# Choosing


def choose_memories(
    store: MemoryStore,
    agent_id: str,
    memory_types: Sequence[MemoryType],
    tags: Sequence[str],
    memory_ids: Sequence[str],
) -> Iterator[Memory]:
    """Yield memories in the order in which they were made, or in that of the ids, from one state of the store.

    Errors: `InvalidInput` for a type that no pack holds; `UnknownMemory`, `OtherMemoryType`, `MemoryMerged`.
    """
    for kind in memory_types:
        if kind not in PACKED:
            raise InvalidInput("memory_types", str(kind), "semantic or procedural; a pack holds no others")
    with store.snapshot():
        ids = [verify_memory_id(each) for each in dict.fromkeys(memory_ids)]
        found = ids or list_ids(store, agent_id, memory_types, MOST_MEMORIES + 1)
        if len(found) > MOST_MEMORIES:
            raise InvalidInput("memories", len(found), f"at most {MOST_MEMORIES} for one pack; choose by tags or ids")
        for memory_id in found:
            memory = store.show(memory_id)
            if ids:
                _require(memory, agent_id, memory_types)
            if set(tags) <= set(memory.tags):
                yield memory


def _require(memory: Memory, agent_id: str, memory_types: Sequence[MemoryType]) -> None:
    if memory.merged_into is not None and memory.agent_id == agent_id:
        raise MemoryMerged(memory.id, memory.merged_into)
    if memory.agent_id != agent_id or memory.state is not MemoryState.ACTIVE:
        raise UnknownMemory(memory.id, agent_id)
    if memory.memory_type not in memory_types:
        raise OtherMemoryType(memory.id, " or ".join(memory_types), memory.memory_type.value)


# One memory as one unit


@dataclass(frozen=True, slots=True)
class Packed:
    """A memory, and the unit that it becomes; its number is given when its file is known whole."""

    memory: Memory
    unit: Unit
    file: str
    legend: Mapping[str, Source]
    origin: str


def pack_memory(memory: Memory) -> Packed | list[Finding]:
    """Return what a memory becomes in a pack, or why no pack may hold it. Nothing that it says is shown. Pure."""
    place = f"memory {memory.id}"
    earlier = read_provenance(memory.metadata)
    texts = [memory.content, *memory.tags]
    if earlier is not None:
        texts += [earlier.reason or "", earlier.illustrates or ""]
        for code, source in (earlier.sources or {}).items():
            texts += [code, source.title, source.url or ""]
    found = [finding for text in texts for finding in scan_content(text.encode(), place)[1]]
    if found:
        unseen = "no pack is made with text that nobody sees"
        return [
            finding._replace(severity=Severity.ERROR, remedy=unseen if finding.rule == HIDDEN_RULE else finding.remedy)
            for finding in found
        ]
    unit = _make_unit(memory, earlier)
    if isinstance(unit, str):
        remedy = "remember it in other words, or leave it out"
        return [
            Finding(NOT_CARRIED, Severity.ERROR, place, None, f"no unit of a pack carries its text: {unit}", remedy)
        ]
    file = _FILE_OF[unit.type]
    if earlier is not None and earlier.file in FILES and earlier.type == unit.type:
        file = earlier.file
    legend = {} if earlier is None else earlier.sources or {}
    return Packed(memory, unit, file, legend, "self" if earlier is None else "imported")


def _make_unit(memory: Memory, earlier: Provenance | None) -> Unit | str:
    """Return the unit of a memory, or the rule that its text breaks."""
    kind = "claim" if memory.memory_type is MemoryType.SEMANTIC else "directive"
    facets: Mapping[str, str] = {}
    reason = illustrates = None
    if earlier is not None:
        kind, facets, reason, illustrates = earlier.type, earlier.facets, earlier.reason, earlier.illustrates

    def make(kind: str, facets: Mapping[str, str], body: str | None) -> Unit:
        return Unit(_ANY, kind, facets, memory.content, body=body, reason=reason, illustrates=illustrates)

    if earlier is None or not earlier.braces:
        try:
            return make(kind, facets, None)
        except InvalidInput:
            pass  # no line carries it; perhaps a body does
    try:
        return make("demonstration", facets if kind == "demonstration" else {"valence": "positive"}, memory.content)
    except InvalidInput as error:
        return error.rule


#: The id of a unit whose place is not known yet.
_ANY: Final = "memory/unit.md#1"


# The files


def build_files(
    settings: Settings, packed: Sequence[Packed]
) -> tuple[dict[str, bytes], tuple[tuple[str, str, str], ...]]:
    """Return the files of a pack by path, and of each memory its id, its unit's id and type. Pure.

    Errors: `ContentRefused` for memories of one file that cite different sources by one code.
    """
    clusters: dict[str, Cluster] = {}
    units: list[tuple[str, str, str]] = []
    entries: list[dict[str, Any]] = []
    for name in FILES:
        own = [each for each in packed if each.file == name]
        if not own and name != OPERATING_PRINCIPLES:
            continue
        clusters[name] = cluster = _build_cluster(f"memory/{name}", own)
        for each, unit in zip(own, cluster.units, strict=True):
            units.append((each.memory.id, unit.id, unit.type))
            entries.append(_describe(each.memory, unit.id))
    files = {cluster.file: _serialize(cluster).encode() for cluster in clusters.values()}
    files["agents.md"] = _build_agents(settings.name, list(clusters)).encode()
    manifest = _build_manifest(settings, clusters, entries)
    files["manifest.json"] = (json.dumps(manifest, ensure_ascii=False, indent=2) + "\n").encode()
    return dict(sorted(files.items())), tuple(units)


def _build_cluster(path: str, packed: Sequence[Packed]) -> Cluster:
    try:
        legend = merge_legends([each.legend for each in packed])
    except InvalidInput as error:
        message = f"memories cite different sources by the short code {ascii(error.value)[:40]}"
        finding = Finding("citation", Severity.ERROR, path, None, message, "export them as packs of their own")
        raise ContentRefused((finding,)) from None
    units = tuple(
        Unit(
            f"{path}#{number}",
            each.unit.type,
            each.unit.facets,
            each.unit.content,
            body=each.unit.body,
            reason=each.unit.reason,
            illustrates=each.unit.illustrates,
        )
        for number, each in enumerate(packed, start=1)
    )
    frontmatter: dict[str, Any] = {
        "type": "cluster",
        "applies_to": APPLIES_TO[Path(path).name],
        "source": "imported" if any(each.origin == "imported" for each in packed) else "self",
        "primitive_counts": {kind: sum(unit.type == kind for unit in units) for kind in _COUNTED},
    }
    return Cluster(path, frontmatter, legend, units)


def _serialize(cluster: Cluster) -> str:
    """Return the text of a file, once it reads as what was meant: no text has left its unit."""
    text = serialize_cluster(cluster)
    read = parse_cluster(text, cluster.file)
    if read.units != cluster.units or read.findings:
        message, remedy = "it does not read as what was meant", "report this, and leave out what was remembered last"
        raise ContentRefused((Finding(NOT_CARRIED, Severity.ERROR, cluster.file, None, message, remedy),))
    return text


def _describe(memory: Memory, unit: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "unit": unit,
        "id": memory.id,
        "memory_type": memory.memory_type.value,
        "tags": list(drop_reserved_tags(memory.tags)),
        "created_at": memory.created_at,
    }
    if memory.expires_at is not None:
        entry["expires_at"] = memory.expires_at
    return entry


def _build_agents(name: str, files: Sequence[str]) -> str:
    lines = [f"# AMP Routing — {name}", "", "## Always load"]
    lines.append(f"- {OPERATING_PRINCIPLES} — {APPLIES_TO[OPERATING_PRINCIPLES]}")
    rows = [f"| {ROUTES[each]} | {each} |" for each in files if each in ROUTES]
    if rows:
        lines += ["", "## Route by task type", "", "| If the task involves... | Load |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _build_manifest(
    settings: Settings, clusters: Mapping[str, Cluster], entries: list[dict[str, Any]]
) -> dict[str, Any]:
    types = [unit.type for cluster in clusters.values() for unit in cluster.units]
    return {
        "name": settings.name,
        "title": settings.title,
        "version": {"number": settings.version},
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "created": settings.created,
        "agents_file": "agents.md",
        "agents": ["claude-code"],
        "capability_files": list(clusters),
        "primitive_counts": {
            **{kind: types.count(kind) for kind in TYPES},
            "dropped_action_log": 0,
            "dropped_duplicate": 0,
        },
        "memories": entries,
        "signed": False,
        "signature": "",
    }
