"""Awareness-style cards as witnesses, and back. Pure.

    card = Card("d1", CardKind.DECISION, "no PII off-device")
    witness = build_witness(card, observed_at=100, delta_salt=salt, locator_salt=other_salt)
    delta = witness.build_delta(space_id, head)
    read_witness(witness) == ObservedCard(card, 100)

Each kind of card has a profile, whose name is a URI and whose id is the keccak256 of it:

    decision                       POLICY     https://awareness.market/profiles/memory/policy/v1
    insight, solution, workflow    TEXT       https://awareness.market/profiles/memory/text/v1
    memory, task                   EPISODIC   https://awareness.market/profiles/memory/episodic/v1

The payload is canonical JSON of `op` (upsert), `resourceId`, `observedAt` (seconds since 1970) and `content`, which is

    POLICY      {"rule": text, "scope": "agent", "cardKind": kind}
    TEXT        {"text": text, "title"?, "cardKind": kind, "tags"?}
    EPISODIC    {"event": text, "occurredAt": seconds, "cardKind": kind, "subject"?}

and the locator is `awareness://card/<id>`. A profile has no place for some members of a card: title, tags or subject
make it refuse the card, unless they may be lost; times are not kept but for `occurredAt`, the first there is of when
the card was created, updated and observed. What is read has to be just that, byte for byte.

Source: the public reference adapter for Awareness cards, by its formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from melete.canonical import Json, canonicalize, load_json
from melete.errors import InvalidInput, InvalidJson
from melete.memory.profiles import Profile
from melete.memory.witness import Witness
from melete.primitives import NOT_SHOWN, Bytes32, is_utf8

PROFILE_BASE: Final = "https://awareness.market/profiles/memory"
LOCATOR_BASE: Final = "awareness://card/"
UPSERT: Final = "upsert"
SCOPE: Final = "agent"
LONGEST_ID: Final = 1024
LATEST: Final = 2**53 - 1


class CardKind(StrEnum):
    """What kind of card it is."""

    DECISION = "decision"
    INSIGHT = "insight"
    SOLUTION = "solution"
    WORKFLOW = "workflow"
    MEMORY = "memory"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class Card:
    """A card. Times are seconds since 1970.

    `id` is text without spaces, which ends its locator; `tags` is None for none said, which is not the same as none.
    Errors: `InvalidInput`, naming the member; content is not shown.
    """

    id: str
    kind: CardKind
    content: str = field(repr=False)
    title: str | None = field(default=None, repr=False)
    tags: tuple[str, ...] | None = field(default=None, repr=False)
    created_at: int | None = None
    updated_at: int | None = None
    subject: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not 1 <= len(self.id) <= LONGEST_ID or not _is_plain(self.id):
            shown = self.id if isinstance(self.id, str) else type(self.id).__name__
            raise InvalidInput("id", shown, f"1 to {LONGEST_ID} printable characters without spaces")
        if self.kind not in tuple(CardKind):
            raise InvalidInput("kind", self.kind, f"one of {', '.join(CardKind)}")
        object.__setattr__(self, "kind", CardKind(self.kind))
        _private_text(self.content, "content", "text; write structured content as JSON text")
        for name in ("title", "subject"):
            if getattr(self, name) is not None:
                _private_text(getattr(self, name), name, "text, or left out")
        if self.tags is not None:
            if not isinstance(self.tags, list | tuple):
                raise InvalidInput("tags", type(self.tags).__name__, "a list of texts, or left out")
            for tag in self.tags:
                _private_text(tag, "tags", "a list of texts, or left out")
            object.__setattr__(self, "tags", tuple(self.tags))
        for name in ("created_at", "updated_at"):
            if getattr(self, name) is not None:
                _time(getattr(self, name), name)

    @property
    def locator(self) -> str:
        """Where the card is found."""
        return LOCATOR_BASE + self.id


@dataclass(frozen=True, slots=True)
class ObservedCard:
    """A card, and when it was observed: what one payload states. Errors: `InvalidInput`."""

    card: Card
    observed_at: int

    def __post_init__(self) -> None:
        _time(self.observed_at, "observed_at")


# Witnesses


def build_witness(
    card: Card,
    observed_at: int,
    *,
    delta_salt: Bytes32,
    locator_salt: Bytes32,
    provenance: bytes | None = None,
    provenance_salt: Bytes32 | None = None,
    allow_loss: bool = False,
) -> Witness:
    """Return what opens the commitments of a delta that records a card.

    Errors: `InvalidInput` for salts and times that are none, and for members that the card's profile has no place
    for, unless `allow_loss`.
    """
    profile = PROFILE_OF[card.kind]
    if not allow_loss:
        for name in ("title", "tags", "subject"):
            if getattr(card, name) is not None and name not in _CARRIED[profile.name]:
                rule = f"left out: the profile of a {card.kind} has no place for it, and it would be lost"
                raise InvalidInput(name, NOT_SHOWN, rule)
    payload = profile.encode(ObservedCard(card, observed_at))
    return Witness(profile.id, payload, delta_salt, provenance, provenance_salt, card.locator, locator_salt)


def read_witness(witness: Witness) -> ObservedCard:
    """Return the card that a witness holds: as its payload states it, so without what was lost.

    Errors: `InvalidInput` for another profile, a payload that no card has, or the locator of something else.
    """
    for profile in CARD_PROFILES:
        if profile.id == witness.profile_id:
            observed: ObservedCard = profile.decode(witness.payload)
            break
    else:
        raise InvalidInput("profileId", witness.profile_id, "the profile of a card: POLICY, TEXT or EPISODIC")
    if witness.locator is not None and witness.locator != observed.card.locator:
        raise InvalidInput("locator", NOT_SHOWN, f"{LOCATOR_BASE} and the id of the card in the payload")
    return observed


# Profiles


def _build_payload(observed: ObservedCard) -> dict[str, Json]:
    card = observed.card
    return {
        "op": UPSERT,
        "resourceId": card.id,
        "observedAt": observed.observed_at,
        "content": _CONTENT_OF[PROFILE_OF[card.kind].name](card, observed.observed_at),
    }


def _build_policy(card: Card, observed_at: int) -> dict[str, Json]:  # noqa: ARG001 - one form for all
    return {"rule": card.content, "scope": SCOPE, "cardKind": card.kind.value}


def _build_text(card: Card, observed_at: int) -> dict[str, Json]:  # noqa: ARG001 - one form for all
    content: dict[str, Json] = {"text": card.content, "cardKind": card.kind.value}
    if card.title is not None:
        content["title"] = card.title
    if card.tags is not None:
        content["tags"] = list(card.tags)
    return content


def _build_episode(card: Card, observed_at: int) -> dict[str, Json]:
    occurred_at = next(time for time in (card.created_at, card.updated_at, observed_at) if time is not None)
    content: dict[str, Json] = {"event": card.content, "occurredAt": occurred_at, "cardKind": card.kind.value}
    if card.subject is not None:
        content["subject"] = card.subject
    return content


def _encode(value: Any) -> bytes:
    if not isinstance(value, ObservedCard):
        raise InvalidInput("value", None, "an ObservedCard")
    return canonicalize(_build_payload(value))


def _make_profile(name: str, text: str, **optional: dict[str, Json]) -> Profile:
    """Return the profile of a name, whose content has its text in the member `text`, and what is optional."""
    uri = f"{PROFILE_BASE}/{name}/v1"
    kinds = [kind for kind, profile in _NAME_OF.items() if profile == name]
    required: dict[str, Json] = {text: {"type": "string"}, "cardKind": {"enum": [kind.value for kind in kinds]}}
    if name == "policy":
        required["scope"] = {"const": SCOPE}
    if name == "episodic":
        required["occurredAt"] = {"type": "integer", "minimum": 0, "maximum": LATEST}

    def encode(value: Any) -> bytes:
        if isinstance(value, ObservedCard) and value.card.kind not in kinds:
            raise InvalidInput("kind", value.card.kind.value, f"one of {', '.join(kinds)}, for this profile")
        return _encode(value)

    def decode(payload: bytes) -> ObservedCard:
        try:
            found = _read(load_json(payload), text)
            if found.card.kind in kinds and encode(found) == payload:
                return found
        except (InvalidJson, InvalidInput, KeyError, TypeError):
            pass
        raise InvalidInput("payload", None, f"a card's, as canonical JSON, for {uri} (it is not shown)")

    content = {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {
            "op": {"const": UPSERT},
            "resourceId": {"type": "string", "minLength": 1, "maxLength": LONGEST_ID},
            "observedAt": {"type": "integer", "minimum": 0, "maximum": LATEST},
            "content": content,
        },
        "required": ["op", "resourceId", "observedAt", "content"],
        "additionalProperties": False,
    }
    return Profile(uri, encode, decode, schema, _build_payload)


def _read(document: Any, text: str) -> ObservedCard:
    content: Mapping[str, Any] = document["content"]
    if not isinstance(content, dict):
        raise TypeError
    tags = content.get("tags")
    card = Card(
        document["resourceId"],
        content["cardKind"],
        content[text],
        title=content.get("title"),
        tags=None if tags is None else tuple(tags),
        created_at=content.get("occurredAt"),
        subject=content.get("subject"),
    )
    return ObservedCard(card, document["observedAt"])


_NAME_OF: Final = {
    CardKind.DECISION: "policy",
    CardKind.INSIGHT: "text",
    CardKind.SOLUTION: "text",
    CardKind.WORKFLOW: "text",
    CardKind.MEMORY: "episodic",
    CardKind.TASK: "episodic",
}
_STRING: Final[dict[str, Json]] = {"type": "string"}
POLICY: Final = _make_profile("policy", "rule")
TEXT: Final = _make_profile("text", "text", title=_STRING, tags={"type": "array", "items": _STRING})
EPISODIC: Final = _make_profile("episodic", "event", subject=_STRING)
#: To be registered where payloads are read: `ProfileRegistry(CARD_PROFILES)`.
CARD_PROFILES: Final = (POLICY, TEXT, EPISODIC)
PROFILE_OF: Final = {
    kind: {"policy": POLICY, "text": TEXT, "episodic": EPISODIC}[name] for kind, name in _NAME_OF.items()
}
_CONTENT_OF: Final = {POLICY.name: _build_policy, TEXT.name: _build_text, EPISODIC.name: _build_episode}
_CARRIED: Final = {POLICY.name: (), TEXT.name: ("title", "tags"), EPISODIC.name: ("subject",)}


# What a member may be


def _is_plain(text: str) -> bool:
    return text.isprintable() and not any(character.isspace() for character in text)


def _private_text(value: object, name: str, rule: str) -> None:
    if not isinstance(value, str) or not is_utf8(value) or (name == "content" and not value):
        raise InvalidInput(name, NOT_SHOWN if isinstance(value, str) else type(value).__name__, rule)


def _time(value: object, name: str) -> None:
    if type(value) is not int or not 0 <= value <= LATEST:
        raise InvalidInput(name, value, "whole seconds since 1970, from 0 to 2^53 - 1")
