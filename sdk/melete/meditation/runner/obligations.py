"""What an agent has bound itself to, and whether a change of its cognition layer would drop any of it. Pure.

Obligations that were taken on elsewhere are not visible to the registry; whoever runs the maintenance knows some.

Source: Agent Meditation, Security Considerations, Self-modification of the cognition layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from melete.canonical import Json
from melete.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Obligation:
    """What is owed, and to whom; where `statement` or `to` is None, only the id has to be there."""

    id: str
    statement: str | None = None
    to: str | None = None

    @classmethod
    def from_json(cls, value: Any) -> Obligation:
        """Return what an object with the members id, statement and to states. Errors: `InvalidInput`."""
        if not isinstance(value, Mapping) or not isinstance(value.get("id"), str) or not value["id"]:
            raise InvalidInput("obligation", value, "an object with an id")
        for name in ("statement", "to"):
            if not isinstance(value.get(name, ""), str):
                raise InvalidInput(f"obligation.{name}", value[name], "text")
        return cls(value["id"], value.get("statement"), value.get("to"))

    def is_kept_in(self, found: Mapping[str, Obligation]) -> bool:
        """Return whether obligations by id hold this one, saying the same to the same."""
        other = found.get(self.id)
        return (
            other is not None and self.statement in (None, other.statement) and (self.to is None or self.to == other.to)
        )


def obligations_of(document: Mapping[str, Json]) -> tuple[Obligation, ...]:
    """Return the obligations that a cognition document states."""
    listed = document.get("obligations", [])
    return tuple(Obligation.from_json(entry) for entry in listed) if isinstance(listed, list) else ()


def find_dropped(document: Mapping[str, Json], known: Iterable[Obligation]) -> tuple[Obligation, ...]:
    """Return the known obligations that a cognition document lacks, or words otherwise, each once."""
    stated = {obligation.id: obligation for obligation in obligations_of(document)}
    return tuple(dict.fromkeys(one for one in known if not one.is_kept_in(stated)))
