"""Where a memory came from, if it came from a pack: in its metadata in full, in its tags for whoever recalls it. Pure.

    metadata["pack"]    name, version, digest, signer (a key id, or null) and unit of the pack; type, facets, reason and
                        so on of the unit, so that it can go back into a pack as it was
    pack:<name>         a tag, to recall what came from a pack, or to see it in a hit
    signer:<key id>     a tag; signer:unverified where nobody who is known vouches for the pack

Tags that begin so are made here alone: a pack that brings some of its own does not get them in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from melete.canonical import Json
from melete.errors import InvalidInput
from melete.packs.grammar import FACETS, ORIGINS, Cluster, Source, Unit
from melete.packs.manifest import is_slug
from melete.wire.envelope import is_valid_memory_id

MEMBER: Final = "pack"
PACK_TAG: Final = "pack:"
SIGNER_TAG: Final = "signer:"
UNVERIFIED: Final = "unverified"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_UNIT: Final = re.compile(r"memory/[^\x00/]+#[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Provenance:
    """A pack and a unit in it. `signer` is None where the pack's signature was not verified.

    `braces` tells that a demonstration's text stood in braces; `origin` is what the unit's file says of its source:
    self, imported or inferred. `sources` are those that the reason cites. `exported` is the id and the time of creation
    of the memory that the unit was made of, as the pack says.
    """

    name: str
    version: str | None
    digest: str
    signer: str | None
    unit: str
    type: str
    facets: Mapping[str, str]
    braces: bool = False
    reason: str | None = None
    illustrates: str | None = None
    sources: Mapping[str, Source] | None = None
    origin: str | None = None
    exported: tuple[str, int] | None = None

    @property
    def tags(self) -> tuple[str, str]:
        """The tags that say so."""
        return f"{PACK_TAG}{self.name}", f"{SIGNER_TAG}{self.signer or UNVERIFIED}"

    @property
    def file(self) -> str:
        """The unit's file, without `memory/`."""
        return self.unit.rpartition("#")[0].removeprefix("memory/")

    def to_json(self) -> dict[str, Json]:
        """Return the value of the metadata's member `pack`; what there is nothing to say of is left out."""
        members: dict[str, Json] = {
            "name": self.name,
            "version": self.version,
            "digest": self.digest,
            "signer": self.signer,
            "verified": self.signer is not None,
            "unit": self.unit,
            "type": self.type,
            "facets": dict(self.facets),
        }
        optional: dict[str, Json] = {
            "braces": True if self.braces else None,
            "reason": self.reason,
            "illustrates": self.illustrates,
            "origin": self.origin,
        }
        members.update({name: value for name, value in optional.items() if value is not None})
        if self.sources:
            members["sources"] = {
                code: {"title": source.title, **({"url": source.url} if source.url is not None else {})}
                for code, source in self.sources.items()
            }
        if self.exported is not None:
            members["memory"] = {"id": self.exported[0], "created_at": self.exported[1]}
        return members


def read_provenance(metadata: Mapping[str, Any] | None) -> Provenance | None:
    """Return what metadata says of a pack; None if that is nothing, or not as `to_json` says it."""
    members = None if metadata is None else metadata.get(MEMBER)
    if not isinstance(members, dict):
        return None
    try:
        return _read(members)
    except (KeyError, TypeError, ValueError):  # the family of errors of input is one of these
        return None


def _read(members: dict[str, Any]) -> Provenance:
    texts = {name: members.get(name) for name in ("version", "reason", "illustrates", "origin")}
    if not all(value is None or isinstance(value, str) for value in texts.values()):
        raise TypeError
    name, digest, signer, unit = (members[each] for each in ("name", "digest", "signer", "unit"))
    kind, facets, braces = members["type"], members["facets"], members.get("braces", False)
    if not is_slug(name) or not _DIGEST.fullmatch(digest) or not _UNIT.fullmatch(unit):
        raise ValueError
    if signer is not None and not _KEY_ID.fullmatch(signer):
        raise ValueError
    if kind not in FACETS or not isinstance(facets, dict) or type(braces) is not bool:
        raise ValueError
    if texts["origin"] is not None and texts["origin"] not in ORIGINS:
        raise ValueError
    exported = None
    if "memory" in members:
        exported = members["memory"]["id"], members["memory"]["created_at"]
        if not is_valid_memory_id(exported[0]) or type(exported[1]) is not int:
            raise ValueError
    sources: dict[str, Source] = {}
    legend = members.get("sources", {})
    if not isinstance(legend, dict):
        raise TypeError
    for code, each in legend.items():
        if not isinstance(each, dict):
            raise TypeError
        sources[code] = Source(each["title"], each.get("url"))
    found = Provenance(
        name=name,
        version=texts["version"],
        digest=digest,
        signer=signer,
        unit=unit,
        type=kind,
        facets=facets,
        braces=braces,
        reason=texts["reason"],
        illustrates=texts["illustrates"],
        sources=sources or None,
        origin=texts["origin"],
        exported=exported,
    )
    # The grammar judges the rest: whether facets stand in their order, and what a reason and a legend may hold.
    Unit(unit, kind, facets, "text", illustrates=found.illustrates, reason=found.reason)
    Cluster(found.file, None, sources)
    return found


def is_reserved_tag(tag: str) -> bool:
    """Return whether only this module may make a tag, however it is written."""
    return tag.strip().casefold().startswith((PACK_TAG, SIGNER_TAG))


def drop_reserved_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags without those that would say where a memory came from."""
    return tuple(tag for tag in tags if not is_reserved_tag(tag))


def all_facets(kind: str, facets: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the facets of a unit with what holds where nothing is written."""
    defaults = {facet.name: facet.default for facet in FACETS[kind] if facet.default is not None}
    return tuple(sorted({**defaults, **facets}.items()))


def find_cited(unit: Unit, legend: Mapping[str, Source]) -> dict[str, Source]:
    """Return the sources that a unit's reason cites, by their codes in a legend."""
    return {citation.code: legend[citation.code] for citation in unit.citations if citation.code in legend}


def merge_legends(legends: Sequence[Mapping[str, Source]]) -> dict[str, Source]:
    """Return one legend. Errors: `InvalidInput` for a code that stands for two sources."""
    merged: dict[str, Source] = {}
    for legend in legends:
        for code, source in legend.items():
            if merged.setdefault(code, source) != source:
                raise InvalidInput("sources", code, "a short code that stands for one source in its file")
    return merged
