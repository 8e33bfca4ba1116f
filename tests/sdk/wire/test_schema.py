from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from melete.wire.envelope import Envelope, Result
from melete.wire.errors import EnvelopeError
from melete.wire.schema import load_envelope_schema, load_result_schema

from .test_envelope import EACH, EXPIRE, HIT, ID, MEMBERS, MERGE, RECALL, REMEMBER, RESULT, envelopes, loose, results


def needs(op: str, member: str) -> dict[str, Any]:
    return {"if": {"properties": {"op": {"const": op}}}, "then": {"required": [member]}}


#: The document of the specification, but for its `$id`.
SPECIFIED: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "AMP memory envelope",
    "description": "AMP / memorywire request envelope: 5 operations over 4 memory types.",
    "type": "object",
    "required": ["op", "memory_type"],
    "additionalProperties": False,
    "properties": {
        "amp_version": {"type": "string", "default": "amp/1"},
        "op": {"type": "string", "enum": ["remember", "recall", "forget", "merge", "expire"]},
        "memory_type": {"type": "string", "enum": ["episodic", "semantic", "procedural", "working"]},
        "agent_id": {"type": ["string", "null"]},
        "content": {"type": ["string", "null"]},
        "query": {"type": ["string", "null"]},
        "memory_ids": {"type": "array", "items": {"type": "string", "format": "uuid"}},
        "top_k": {"type": ["integer", "null"], "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ttl_seconds": {"type": ["integer", "null"], "minimum": 0},
        "metadata": {"type": ["object", "null"]},
    },
    "allOf": [
        needs("remember", "content"),
        needs("recall", "query"),
        needs("forget", "memory_ids"),
        needs("merge", "memory_ids"),
        needs("expire", "memory_ids"),
    ],
}

ENVELOPES = Draft202012Validator(load_envelope_schema(), format_checker=FormatChecker())
RESULTS = Draft202012Validator(load_result_schema(), format_checker=FormatChecker())


@pytest.mark.parametrize("member", SPECIFIED)
def test_schema_has_the_members_of_the_specification(member: str) -> None:
    assert load_envelope_schema()[member] == SPECIFIED[member]


@pytest.mark.parametrize("member", SPECIFIED["properties"])
def test_schema_has_the_properties_of_the_specification(member: str) -> None:
    assert load_envelope_schema()["properties"][member] == SPECIFIED["properties"][member]


def test_schema_has_nothing_else_but_an_id_of_its_own() -> None:
    assert set(load_envelope_schema()) == {*SPECIFIED, "$id"}
    assert load_envelope_schema()["$id"] == "urn:melete:schema:memory-envelope:1"
    assert list(load_envelope_schema()["properties"]) == MEMBERS


def test_schemas_are_schemas() -> None:
    for schema in (load_envelope_schema(), load_result_schema()):
        Draft202012Validator.check_schema(schema)


def test_changing_what_was_loaded_changes_no_schema() -> None:
    load_envelope_schema()["properties"].clear()
    load_result_schema()["$defs"].clear()
    assert list(load_envelope_schema()["properties"]) == MEMBERS
    assert load_result_schema()["$defs"]


@given(envelopes())
def test_every_envelope_is_valid_by_the_schema(envelope: Any) -> None:
    ENVELOPES.validate(envelope.to_json())


@given(results)
def test_every_result_is_valid_by_its_schema(result: Any) -> None:
    RESULTS.validate(result.to_json())


@given(st.sampled_from(EACH), st.dictionaries(st.sampled_from([*MEMBERS, "x"]), loose, min_size=1, max_size=3))
def test_what_the_schema_refuses_is_no_envelope(document: dict[str, Any], changes: dict[str, Any]) -> None:
    changed = {**document, **changes}
    if not ENVELOPES.is_valid(changed):
        with pytest.raises(EnvelopeError):
            Envelope.from_json(changed)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"op": "remember"},
        {**REMEMBER, "op": "dream"},
        {**REMEMBER, "memory_type": "emotional"},
        {**REMEMBER, "note": 1},
        {**REMEMBER, "amp_version": 1},
        {**REMEMBER, "tags": [1]},
        {**REMEMBER, "metadata": []},
        {"op": "remember", "memory_type": "working"},
        {"op": "recall", "memory_type": "working"},
        {"op": "merge", "memory_type": "working"},
        {**RECALL, "top_k": 0},
        {**RECALL, "top_k": 1.5},
        {**EXPIRE, "ttl_seconds": -1},
        {**EXPIRE, "memory_ids": ["x"]},
        {**EXPIRE, "memory_ids": None},
    ],
    ids=json.dumps,
)
def test_schema_and_envelope_refuse_the_same_faults(document: dict[str, Any]) -> None:
    assert not ENVELOPES.is_valid(document)
    with pytest.raises(EnvelopeError):
        Envelope.from_json(document)


@pytest.mark.parametrize(
    "document",
    [
        {**REMEMBER, "content": None},
        {**REMEMBER, "content": ""},
        {**REMEMBER, "amp_version": "amp/9"},
        {**EXPIRE, "memory_ids": []},
        {**EXPIRE, "memory_ids": [ID.upper()]},
        {**MERGE, "memory_ids": [ID]},
        {**MERGE, "memory_ids": [ID, ID]},
        {**RECALL, "top_k": 5.0},
        {**RECALL, "top_k": 1e30},
        {**EXPIRE, "ttl_seconds": 2**64},
        {**REMEMBER, "agent_id": ""},
        {**REMEMBER, "content": "a\0"},
    ],
    ids=json.dumps,
)
def test_envelope_refuses_what_the_schema_cannot_see(document: dict[str, Any]) -> None:
    assert ENVELOPES.is_valid(document)
    with pytest.raises(EnvelopeError):
        Envelope.from_json(document)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"op": "recall"},
        {**RESULT, "op": "dream"},
        {**RESULT, "ok": "yes"},
        {**RESULT, "ids": [ID.upper()]},
        {**RESULT, "ids": [ID + "\n"]},
        {**RESULT, "hits": [{**HIT, "note": 1}]},
        {**RESULT, "hits": [{**HIT, "score": "1"}]},
        {**RESULT, "hits": [{"id": ID}]},
        {**RESULT, "approved": 1},
        {**RESULT, "detail": None},
        {**RESULT, "note": 1},
    ],
    ids=json.dumps,
)
def test_result_schema_refuses_what_is_no_result(document: dict[str, Any]) -> None:
    assert not RESULTS.is_valid(document)
    with pytest.raises(EnvelopeError):
        Result.from_json(document)
