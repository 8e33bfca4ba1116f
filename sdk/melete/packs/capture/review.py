"""The review: a file in which a person decides what becomes of each unit, and which capture takes back.

    text = dump_review(review, "yaml")
    judged = apply_review(load_review(text, "review.yaml"), review.judged, review.sources)

Every unit stands there with its source, its words, what capture makes of them, and a decision:

    keep         as type, facets, file, content, body and reason say; all of them may be edited
    reclassify   the same, with another type; facets and file that were not edited follow the type
    split        as its `parts`, a list of two or more entries with type, content and so on
    drop         nothing of it
    undecided    nothing of it yet; the next review shows it again

Nothing is taken from a review of other sources, or of sources that changed.

Source: AMP v0.4, Parts 3 and 10; decisions, AMP packs, Capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, NoReturn

from melete.packs.capture.classify import (
    CLAIM,
    DEMONSTRATION,
    GOAL,
    PLACEHOLDER,
    TYPES,
    Proposal,
    find_facets,
    is_of_type,
)
from melete.packs.capture.distill import Judged, Outcome, find_secrets, find_unseen, is_principle
from melete.packs.capture.routes import FILES, VISUAL_BRAND, find_route
from melete.packs.capture.sources import Source
from melete.packs.errors import InvalidReview, ReviewOutdated, ReviewProblems
from melete.packs.grammar import FACETS as GRAMMAR
from melete.packs.hidden import remove_hidden

FORMAT: Final = "amp-review/1"
LARGEST_REVIEW: Final = 32 * 1024 * 1024
DEEPEST: Final = 8

#: The facets of each type in order, and their values.
FACETS: Final = {kind: {facet.name: facet.values for facet in facets} for kind, facets in GRAMMAR.items()}


class Decision(StrEnum):
    """What a person decides about a unit."""

    KEEP = "keep"
    DROP = "drop"
    RECLASSIFY = "reclassify"
    SPLIT = "split"
    UNDECIDED = "undecided"


class Settings(NamedTuple):
    """What a pack is called and made with, as far as it is not in the units."""

    name: str
    title: str
    source: str
    author: str | None
    created: str
    version: int


class Value(NamedTuple):
    """A value of a review, and its line, if the text has lines: text, None, a list, or members by name."""

    value: Any
    line: int | None


_HEADER: Final = """\
# Decide what becomes of each unit, then take this file back with --apply.
#
#   decision: keep         write it as type, facets, file, content, body and reason say below; edit them as you like
#   decision: reclassify   the same, under another type: change `type`, and the rest that does not fit it
#   decision: split        write the entries under `parts` instead, each with its own type, content, file, reason:
#                              parts:
#                              - {type: goal, content: "Optimize reach over polish."}
#                              - {type: directive, content: "In all copy, never use em dashes."}
#   decision: drop         leave it out
#   decision: undecided    leave it out for now
#
# `file` is one of operating-principles.md, copy-voice.md, content-strategy.md, product-context.md, ops-tools.md,
# demonstrations.md; nothing there means: the one that the words point to.
# A goal says "the goal is to", "optimize" or "default"; a claim says that something "is" or "has" something; a
# directive starts with "In" or "When" and says "always", "never" or "prefer". `text` is the source's own words and
# stays as it is, and so do `format`, `sources`, ids and lines.
"""


def dump_review(
    settings: Settings,
    sources: Sequence[Source],
    judged: Sequence[Judged],
    kind: str = "yaml",
    earlier: Value | None = None,
) -> str:
    """Return a review as a person edits it, `yaml` or `json`. Rejected units stand in it without their words.

    What a person wrote in an earlier review goes with every unit of the same source and the same words.
    """
    decided = _read_decisions(earlier) if earlier else {}
    document = {
        "format": FORMAT,
        "pack": dict(settings._asdict()),
        "sources": [{"path": one.path, "shape": one.shape.value, "sha256": one.sha256} for one in sources],
        "units": [
            {**_entry(one), **decided.get((one.unit.source, shown_text(one)), {})}
            for one in judged
            if one.outcome is not Outcome.REJECTED
        ],
        "rejected": [
            {"id": one.id, "source": one.unit.source, "line": one.unit.line, "why": one.reason}
            for one in judged
            if one.outcome is Outcome.REJECTED
        ],
    }
    if kind == "json":
        import json

        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return _HEADER + _dump_yaml(document)


def load_review(text: str, file: str) -> Value:
    """Read a review, YAML or JSON. Errors: `InvalidReview`, naming the line."""
    if len(text) > LARGEST_REVIEW:
        raise InvalidReview(file, None, "", f"it has more than {LARGEST_REVIEW} characters")
    if text.lstrip().startswith("{"):
        from melete.errors import InvalidJson
        from melete.packs.json_text import parse

        try:
            document = Value(parse(text), None)
        except InvalidJson as error:
            raise InvalidReview(file, None, "", error.rule) from None
    else:
        document = _load_yaml(text, file)
    members = _members(document, file, "")
    if _text(members, "format", file, "") != FORMAT:
        raise InvalidReview(file, document.line, "", f"it is no review of this version (format: {FORMAT})")
    return document


def read_settings(document: Value, file: str) -> Settings:
    """Return what a review says about the pack. Errors: `InvalidReview`."""
    pack = _members(_members(document, file, "").get("pack", Value(None, document.line)), file, "pack")
    number = _text(pack, "version", file, "pack")
    if not (number.isascii() and number.isdecimal() and 0 < len(number) < 10 and int(number)):
        raise InvalidReview(file, pack["version"].line, "pack", "version must be a number from 1")
    author = _text(pack, "author", file, "pack", empty=True) or None
    name, title, source, created = (_text(pack, each, file, "pack") for each in ("name", "title", "source", "created"))
    return Settings(name, title, source, author, created, int(number))


def read_shapes(document: Value, file: str) -> dict[str, str]:
    """Return the shape of each source of a review, by path. Errors: `InvalidReview`."""
    return {path: shape for path, shape, _ in _read_sources(document, file)}


def apply_review(document: Value, judged: Sequence[Judged], sources: Sequence[Source], file: str) -> tuple[Judged, ...]:
    """Return the units as a person decided.

    Errors: `ReviewOutdated` when the sources are others, or changed; `InvalidReview` for what cannot be done, with all
    problems at once.
    """
    _check_sources(document, sources, file)
    entries: dict[str, Value] = {}
    listed = _items(_members(document, file, "").get("units", Value(None, document.line)), file, "units")
    for item in listed:
        number = _text(_members(item, file, "units"), "id", file, "units")
        if number in entries:
            raise InvalidReview(file, item.line, number, "it stands twice; keep one")
        entries[number] = item
    expected = {one.id for one in judged if one.outcome is not Outcome.REJECTED}
    for number, item in entries.items():
        if number not in expected:
            raise InvalidReview(file, item.line, number, "no unit of the sources has this id")
    done: list[Judged] = []
    problems: list[InvalidReview] = []
    for one in judged:
        if one.outcome is Outcome.REJECTED:
            done.append(one)
        elif one.id not in entries:
            problems.append(InvalidReview(file, None, one.id, f"it is missing ({one.place}); put it back, to drop it"))
        else:
            try:
                done.extend(_decide(one, entries[one.id], file))
            except InvalidReview as problem:
                problems.append(problem)
    if problems:
        raise problems[0] if len(problems) == 1 else ReviewProblems(tuple(problems))
    return tuple(done)


# What a review says about a unit


def initial_decision(one: Judged) -> Decision:
    """Return the decision that capture would take by itself."""
    if one.outcome is Outcome.KEPT:
        return Decision.KEEP
    return Decision.UNDECIDED if one.outcome is Outcome.AMBIGUOUS else Decision.DROP


def _entry(one: Judged) -> dict[str, Any]:
    proposal = one.proposal
    entry: dict[str, Any] = {
        "id": one.id,
        "source": one.unit.source,
        "line": one.unit.line,
        "text": shown_text(one),
        "why": one.reason if one.outcome is not Outcome.ACTION_LOG else f"action-log: {one.reason}",
        "decision": initial_decision(one).value,
        "type": proposal.type,
        "facets": dict(proposal.facets),
        "file": proposal.file,
        "content": proposal.content,
    }
    if proposal.body is not None:
        entry["body"] = proposal.body
    entry["reason"] = proposal.reason
    return entry


def _read_decisions(document: Value) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what a person may have edited in a review, by source and words."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for item in _plain(document).get("units") or []:
        if isinstance(item, dict) and isinstance(item.get("source"), str) and isinstance(item.get("text"), str):
            edited = {name: item[name] for name in ("decision", *_PART, "parts") if name in item}
            found[item["source"], item["text"]] = edited
    return found


def _plain(value: Any) -> Any:
    value = value.value if isinstance(value, Value) else value
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def shown_text(one: Judged) -> str:
    """Return a unit's own words as a person may see them: without secrets, and without what cannot be seen."""
    return "[not shown: it looks like it holds a credential]" if one.findings else remove_hidden(one.unit.text)


def _decide(one: Judged, item: Value, file: str) -> Iterator[Judged]:
    entry = _members(item, file, one.id)

    def refuse(reason: str, line: int | None = item.line) -> NoReturn:
        raise InvalidReview(file, line, one.id, reason)

    _check_names(entry, {*_MEMBERS, *_PART}, file, one.id)
    word = _text(entry, "decision", file, one.id)
    if word not in tuple(Decision):
        refuse(f"decision must be one of {', '.join(Decision)}", entry["decision"].line)
    decision = Decision(word)
    text = entry.get("text")
    if text is not None and text.value != shown_text(one):
        refuse("`text` is the source's own words; put it back, and edit `content`", text.line)
    if "parts" in entry and decision is not Decision.SPLIT:
        refuse("it has parts; its decision must be split", entry["parts"].line)
    if decision is Decision.DROP:
        dropped = one.outcome in (Outcome.ACTION_LOG, Outcome.DUPLICATE)
        yield one if dropped else replace(one, outcome=Outcome.DROPPED, reason="a person decided so")
    elif decision is Decision.UNDECIDED:
        yield replace(one, outcome=Outcome.AMBIGUOUS)
    elif one.findings:
        refuse("it looks like it holds a credential; remove that from the source first")
    elif decision is Decision.SPLIT:
        parts = _items(entry.get("parts", Value(None, item.line)), file, one.id)
        if len(parts) < 2:
            refuse("a split needs two parts or more under `parts`")
        for number, part in enumerate(parts, 1):
            members = _members(part, file, one.id)
            _check_names(members, set(_PART), file, one.id)
            yield _settle(replace(one, id=f"{one.id}.{number}", proposal=Proposal(None, "")), members, part, file)
    else:
        if decision is Decision.RECLASSIFY and _text(entry, "type", file, one.id, empty=True) == one.proposal.type:
            refuse("to reclassify it, give it another type", entry["type"].line)
        yield _settle(one, entry, item, file)


_MEMBERS: Final = ("id", "source", "line", "text", "why", "decision", "parts")
_PART: Final = ("type", "facets", "file", "content", "body", "reason")


def _settle(one: Judged, entry: dict[str, Value], item: Value, file: str) -> Judged:
    """Return a unit as an entry says, if that can stand in a pack."""

    def refuse(reason: str, member: str = "") -> NoReturn:
        raise InvalidReview(file, entry[member].line if member in entry else item.line, one.id, reason)

    kind = _text(entry, "type", file, one.id, empty=True)
    kind = DEMONSTRATION if kind == "demo" else kind
    if kind not in TYPES:
        refuse(f"type must be one of {', '.join(TYPES)}", "type")
    content, body, reason = (
        _text(entry, name, file, one.id, empty=True).strip("\n") for name in ("content", "body", "reason")
    )
    content = content.strip() if kind == DEMONSTRATION else " ".join(content.split())
    if kind == DEMONSTRATION and ("\n" in content or content == "{") and not body:
        content, body = "", content
    if kind != DEMONSTRATION and body:
        refuse("only a demonstration has a body", "body")
    if body and content:
        refuse("a demonstration has content or a body, not both", "body")
    if any(line == "}" for line in body.split("\n")):
        refuse("a line of its body is just `}`, which would end it; indent that line", "body")
    if not content and not body:
        refuse("it needs content", "content")
    if PLACEHOLDER in content:
        refuse(f"put words in the place of {PLACEHOLDER}", "content")
    if not is_of_type(kind, content):
        refuse(_PATTERNS[kind], "content")
    words = "\n".join(part for part in (content, body, reason) if part)
    if find_secrets(words, file):
        refuse("it looks like it holds a credential; remove that")
    if find_unseen(words, file):
        refuse("it holds characters that cannot be seen, or a marker of an installer; remove them")
    proposal = replace(
        one.proposal, type=kind, content=content, body=body or None, reason=reason.rstrip() or None, question=None
    )
    facets, subtype, target = _facets_of(one, kind, entry, words, file), *_file_of(one, proposal, entry, file)
    why = "a person decided so" if proposal != one.proposal or one.outcome is not Outcome.KEPT else one.reason
    settled = replace(proposal, facets=facets, file=target, subtype=subtype)
    return replace(one, outcome=Outcome.KEPT, reason=why, proposal=settled)


_PATTERNS: Final = {
    GOAL: 'a goal says "the goal is to", "optimize" or "default"',
    CLAIM: 'a claim says that something "is" or "has" something',
    "directive": 'a directive starts with "In" or "When", and says "always", "never" or "prefer"',
}


def _facets_of(one: Judged, kind: str, entry: dict[str, Value], words: str, file: str) -> dict[str, str]:
    """Return the facets that an entry gives, completed; those that nobody touched follow a new type."""
    found = find_facets(kind, words, one.unit)[0]
    given = entry.get("facets", Value(None, None))
    if given.value is None:
        return found
    members = _members(given, file, one.id)
    values = {name: _text(members, name, file, one.id) for name in members}
    if kind != one.proposal.type and values == one.proposal.facets:
        return {
            name: values[name] if values.get(name) in allowed else found[name] for name, allowed in FACETS[kind].items()
        }
    for name, value in values.items():
        if name not in FACETS[kind]:
            raise InvalidReview(file, members[name].line, one.id, f"a {kind} has the facets {', '.join(FACETS[kind])}")
        if value not in FACETS[kind][name]:
            allowed = ", ".join(FACETS[kind][name])
            raise InvalidReview(file, members[name].line, one.id, f"{name} of a {kind} must be one of {allowed}")
    return {name: values.get(name, found[name]) for name in FACETS[kind]}


def _file_of(one: Judged, proposal: Proposal, entry: dict[str, Value], file: str) -> tuple[str | None, str]:
    """Return subtype and file; a file that nobody named, or that was proposed for another type, follows the list."""
    given = _text(entry, "file", file, one.id, empty=True)
    route = find_route(proposal.type or "", proposal.words, principle=is_principle(one.unit))
    if not given or (given == one.proposal.file and proposal.type != one.proposal.type):
        if route.file is None:
            line = entry["file"].line if "file" in entry else None
            raise InvalidReview(file, line, one.id, f"file must be one of {', '.join(FILES)}: {route.reason}")
        return route.subtype, route.file
    if given not in FILES:
        raise InvalidReview(file, entry["file"].line, one.id, f"file must be one of {', '.join(FILES)}")
    visual = route.subtype == VISUAL_BRAND and given == route.file
    return (VISUAL_BRAND if visual else None), given


def _check_sources(document: Value, sources: Sequence[Source], file: str) -> None:
    listed = {path: (shape, digest) for path, shape, digest in _read_sources(document, file)}
    for source in sources:
        if source.path not in listed:
            raise ReviewOutdated(file, source.path, "was not there")
        if listed[source.path] != (source.shape.value, source.sha256):
            raise ReviewOutdated(file, source.path, "was another")
    for path in listed.keys() - {source.path for source in sources}:
        raise ReviewOutdated(file, path, "was there, and is not given now,")


def _read_sources(document: Value, file: str) -> list[tuple[str, str, str]]:
    found = []
    for item in _items(_members(document, file, "").get("sources", Value(None, document.line)), file, "sources"):
        members = _members(item, file, "sources")
        path, shape, digest = (_text(members, name, file, "sources") for name in ("path", "shape", "sha256"))
        found.append((path, shape, digest))
    return found


# Reading values


def _members(value: Value, file: str, unit: str) -> dict[str, Value]:
    if not isinstance(value.value, dict):
        raise InvalidReview(file, value.line, unit, "members by name are expected here")
    return {name: _wrap(item) for name, item in value.value.items()}


def _items(value: Value, file: str, unit: str) -> list[Value]:
    if not isinstance(value.value, list):
        raise InvalidReview(file, value.line, unit, "a list is expected here")
    return [_wrap(item) for item in value.value]


def _wrap(value: Any) -> Value:
    return value if isinstance(value, Value) else Value(value, None)


def _check_names(entry: dict[str, Value], known: set[str], file: str, unit: str) -> None:
    for name, value in entry.items():
        if name not in known:
            raise InvalidReview(
                file, value.line, unit, f"it has a member of an unknown name; known are {', '.join(sorted(known))}"
            )


def _text(members: dict[str, Value], name: str, file: str, unit: str, *, empty: bool = False) -> str:
    found = members.get(name, Value(None, None))
    value = found.value
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None and empty:
        return ""
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InvalidReview(file, found.line, unit, f"`{name}` must be text")
    return value


# YAML


def _dump_yaml(document: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is YAML's
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
            super().increase_indent(flow, False)

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, represent)
    text: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
    # A blank line before each unit: the eye finds them.
    return text.replace("\n  - id: ", "\n\n  - id: ")


def _load_yaml(text: str, file: str) -> Value:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        event: Any
        for event in yaml.parse(text, Loader=loader):
            if getattr(event, "anchor", None) or getattr(event, "tag", None) not in (None, "!"):
                line = event.start_mark.line + 1
                raise InvalidReview(file, line, "", "anchors, aliases and tags are not read; write the value itself")
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InvalidReview(
            file, mark.line + 1 if mark else None, "", "it is not YAML; look for missing quotes"
        ) from None
    except (yaml.YAMLError, RecursionError):
        raise InvalidReview(file, None, "", "it is not YAML that can be read") from None
    if node is None:
        raise InvalidReview(file, None, "", "it is empty")
    return _value_of(node, file, 0)


def _value_of(node: Any, file: str, depth: int) -> Value:
    """Return a node's value: every scalar as the text that stands there, and nothing (or `null`) as None."""
    import yaml

    line = node.start_mark.line + 1
    if depth > DEEPEST:
        raise InvalidReview(file, line, "", "it is nested too deeply")
    if isinstance(node, yaml.ScalarNode):
        return Value(None if node.tag == "tag:yaml.org,2002:null" else node.value, line)
    if isinstance(node, yaml.SequenceNode):
        return Value([_value_of(item, file, depth + 1) for item in node.value], line)
    members: dict[str, Value] = {}
    for key, item in node.value:
        name = _value_of(key, file, depth + 1).value
        if not isinstance(name, str):
            raise InvalidReview(file, key.start_mark.line + 1, "", "a member's name must be text")
        if name in members:
            raise InvalidReview(file, key.start_mark.line + 1, "", "a member stands twice; keep one")
        members[name] = _value_of(item, file, depth + 1)
    return Value(members, line)
