from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.canonical import canonicalize, compute_content_hash, load_json
from melete.errors import InvalidInput, InvalidJson
from melete.meditation.documents import (
    DEEPEST_NESTING,
    LARGEST_DOCUMENT,
    OBSERVATION_NAMES,
    SCHEMA_FILES,
    check_document,
    derive_policy,
    load_document,
)
from melete.meditation.layers import SCHEMAS, Layer
from melete.meditation.policy import Policy
from melete.resources import load_schema

from ..strategies import json_values

EXAMPLE = Path(__file__).resolve().parents[3] / "schemas" / "examples" / "timeout-cycle"
DOCUMENTS = sorted(path for path in EXAMPLE.rglob("*.json") if path.name != "salts.json")


def example(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


RUNTIME, MEMORY, TASKS, COGNITION = (
    example(f"post/{name}.json") for name in ("runtime", "memory-skills", "tasks-roles", "cognition")
)
POLICY, RECORD = example("policy.json"), example("cycle-record.json")


def edited(document: Any, pointer: str, value: Any) -> Any:
    """A copy with another value at a pointer; `...` takes the member away."""
    changed = deepcopy(document)
    *way, last = pointer.split("/")[1:]
    place = changed
    for part in way:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if value is ...:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return changed


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(EXAMPLE)))
def test_every_document_of_the_example_is_valid(path: Path) -> None:
    document = load_document(path.read_bytes())
    assert document == json.loads(path.read_text("utf-8"))


def test_every_kind_of_document_has_an_example() -> None:
    assert {example(str(path.relative_to(EXAMPLE)))["schema"] for path in DOCUMENTS} == set(SCHEMA_FILES)


@pytest.mark.parametrize("identifier", SCHEMA_FILES)
def test_every_schema_is_one_and_knows_its_identifier(identifier: str) -> None:
    from jsonschema import Draft202012Validator

    schema = load_schema(SCHEMA_FILES[identifier])
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": identifier}
    assert schema["additionalProperties"] is False


def objects_of(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for member in schema.values():
            yield from objects_of(member)
    elif isinstance(schema, list):
        for item in schema:
            yield from objects_of(item)


@pytest.mark.parametrize("identifier", SCHEMA_FILES)
def test_only_extensions_may_hold_what_the_schema_does_not_know(identifier: str) -> None:
    for found in objects_of(load_schema(SCHEMA_FILES[identifier])):
        assert found.get("additionalProperties") is False or "propertyNames" in found


NEAR_MISSES: list[tuple[Any, str, Any, str]] = [
    # document, where it is changed, to what, where the fault is reported
    (RUNTIME, "/layer", 1, "/layer"),
    (RUNTIME, "/layer", True, "/layer"),
    (RUNTIME, "/layer", ..., "/layer"),
    (RUNTIME, "/schema", "amm.layer.runtime/2", "/schema"),
    (RUNTIME, "/schema", "amm.layer.cognition/1", "/layer"),
    (RUNTIME, "/schema", ..., "/schema"),
    (RUNTIME, "/code", ..., "/code"),
    (RUNTIME, "/code/0/name", "", "/code/0/name"),
    (RUNTIME, "/code/0/name", ..., "/code/0/name"),
    (RUNTIME, "/configuration/0/digest", "sha256:abc", "/configuration/0/digest"),
    (RUNTIME, "/configuration/0/digest", "sha256:" + "A" * 64, "/configuration/0/digest"),
    (RUNTIME, "/configuration/0/digest", "sha256:" + "a" * 64 + "\n", "/configuration/0/digest"),
    (RUNTIME, "/adapters/0/kind", "magic", "/adapters/0/kind"),
    (RUNTIME, "/adapters/0/reachable", True, "/adapters/0/reachable"),
    (RUNTIME, "/adapters/0/last_checked_at", 1, "/adapters/0/last_checked_at"),
    (RUNTIME, "/observations", [], "/observations"),
    (RUNTIME, "/mood", "good", "/mood"),
    (RUNTIME, "/extensions", {"mood": 1}, "/extensions"),
    (RUNTIME, "/extensions", {"example.org/a": {"observedAt": 5}}, "/extensions/example.org~1a/observedAt"),
    (MEMORY, "/memory/head/sequence", 42, "/memory/head/sequence"),
    (MEMORY, "/memory/head/sequence", "042", "/memory/head/sequence"),
    (MEMORY, "/memory/head/sequence", str(2**64), "/memory/head/sequence"),
    (MEMORY, "/memory/head/stateRoot", "0x12", "/memory/head/stateRoot"),
    (MEMORY, "/memory/head/chainId", ..., "/memory/head/chainId"),
    (MEMORY, "/memory/count", -1, "/memory/count"),
    (MEMORY, "/skills/0/digest", ..., "/skills/0/digest"),
    (MEMORY, "/packs/0/name", 7, "/packs/0/name"),
    (TASKS, "/tasks/0/state", "done", "/tasks/0/state"),
    (TASKS, "/tasks/0/skills/0/version", ..., "/tasks/0/skills/0/version"),
    (TASKS, "/plans/midTerm", ..., "/plans/midTerm"),
    (TASKS, "/services", {}, "/services"),
    (COGNITION, "/assumptions/0/status", "true", "/assumptions/0/status"),
    (COGNITION, "/obligations", ..., "/obligations"),
    (COGNITION, "/policy/policyHash", "0x", "/policy/policyHash"),
    (COGNITION, "/policy/version", 0, "/policy/version"),
    (POLICY, "/supportedLayers", [], "/supportedLayers"),
    (POLICY, "/supportedLayers", [0, 0], "/supportedLayers"),
    (POLICY, "/supportedLayers", [0, 1, 2], "/requiredLayers/3"),
    (POLICY, "/supportedLayers/3", 4, "/supportedLayers/3"),
    (POLICY, "/maxInterval/2", 0, "/maxInterval/2"),
    (POLICY, "/maxInterval/2", 2**48, "/maxInterval/2"),
    (POLICY, "/maxInterval/2", 1.5, "/maxInterval/2"),
    (POLICY, "/maxInterval", [1, 2, 3], "/maxInterval"),
    (POLICY, "/allowedTriggers", ["NOW"], "/allowedTriggers/0"),
    (POLICY, "/disclosure", 3, "/disclosure"),
    (POLICY, "/dependencies/0/dependsOn/0", 1, "/dependencies/0"),
    (POLICY, "/dependencies/0/dependsOn/0", 2, "/dependencies/0"),
    (POLICY, "/dependencies/1/layer", 1, "/dependencies/1/layer"),
    (RECORD, "/baseVersion", 1, "/baseVersion"),
    (RECORD, "/subject", "0x12", "/subject"),
    (RECORD, "/trigger", "event", "/trigger"),
    (RECORD, "/outcome", 0, "/outcome"),
    (RECORD, "/layerMask", 15, "/layerMask"),
    (RECORD, "/summary", ..., "/summary"),
    (RECORD, "/layers", [], "/layers"),
    (RECORD, "/layers/1/layer", 0, "/layers/1/layer"),
    (RECORD, "/layers/0/checks/0/result", "ok", "/layers/0/checks/0/result"),
    (RECORD, "/layers/0/changes/0/operation", "delete", "/layers/0/changes/0/operation"),
    (RECORD, "/layers/0/decision", "maybe", "/layers/0/decision"),
    (RECORD, "/layers/0/decision", "restored", "/layers/0/decision"),
    (RECORD, "/layers/3/candidates", [], "/layers/3/candidates"),
    (RECORD, "/layers/0/observations/0/observedAt", RECORD["endedAt"] + 1, "/layers/0/observations/0/observedAt"),
    (RECORD, "/layers/0/observations/0/value", [], "/layers/0/observations/0/value"),
    (RECORD, "/startedAt", RECORD["endedAt"] + 1, "/endedAt"),
    (RECORD, "/ended", "failed", "/ended"),
    (RECORD, "/ended", "aborted", "/ended"),
]


@pytest.mark.parametrize(("document", "pointer", "value", "fault"), NEAR_MISSES)
def test_near_miss_is_refused_at_its_place(document: Any, pointer: str, value: Any, fault: str) -> None:
    check_document(document)
    with pytest.raises(InvalidJson) as caught:
        check_document(edited(document, pointer, value))
    assert caught.value.pointer == fault


def test_cycle_that_completed_nothing_did_not_end_normally() -> None:
    record = deepcopy(RECORD)
    for entry in record["layers"]:
        entry["completed"] = False
    with pytest.raises(InvalidJson, match="aborted or failed") as caught:
        check_document(record)
    assert caught.value.pointer == "/ended"


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('{"schema": "amm.policy/1", "schema": "amm.policy/1"}', "/schema"),
        ('{"schema": "amm.policy/1", "dueWindow": NaN}', "/dueWindow"),
        ('{"schema": "amm.policy/1", "dueWindow": Infinity}', "/dueWindow"),
        ('{"schema": "amm.policy/1", "dueWindow": 1E400}', "/dueWindow"),
        ('{"schema": "amm.policy/1", "dueWindow": 9007199254740993}', "/dueWindow"),
        ('{"schema": "amm.policy/1", "title": "\\ud800"}', "/title"),
        ('{"schema": "amm.policy/1", "\\udc00": 1}', "/\udc00"),
        ("[]", ""),
        ("", ""),
        ("null", ""),
        pytest.param("[" * 100_000, "", id="nested_too_deeply"),
    ],
)
def test_what_canonical_json_cannot_carry_is_refused_at_its_place(text: str, pointer: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        load_document(text)
    assert caught.value.pointer == pointer


def test_document_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(InvalidInput, match="16777216 bytes"):
        load_document(b" " * (LARGEST_DOCUMENT + 1))


def test_document_of_another_schema_than_expected_is_refused() -> None:
    assert check_document(POLICY, expected="amm.policy/1") == POLICY
    with pytest.raises(InvalidJson, match=r"amm\.layer\.runtime/1 is wanted") as caught:
        check_document(POLICY, expected=SCHEMAS[Layer.RUNTIME])
    assert caught.value.pointer == "/schema"


@pytest.mark.parametrize("name", sorted(OBSERVATION_NAMES))
def test_timed_observation_is_refused_in_a_layer_document_and_welcome_elsewhere(name: str) -> None:
    with pytest.raises(InvalidJson, match="cycle record"):
        check_document(edited(COGNITION, "/extensions", {"example.org/x": [{name: 1}]}))
    assert check_document(edited(RECORD, "/extensions", {"example.org/x": [{name: 1}]}))


def test_refusal_never_quotes_the_value() -> None:
    with pytest.raises(InvalidJson) as caught:
        check_document(edited(RUNTIME, "/authorization/0/scope", ["a secret scope"]))
    assert "secret" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([RUNTIME, MEMORY, TASKS, COGNITION, POLICY, RECORD]),
    st.data(),
)
def test_anything_in_a_members_place_is_taken_or_refused_with_a_pointer(value: Any, document: Any, data: Any) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    pointer = fault_of({**document, name: value})
    assert pointer is None or pointer[:1] in ("", "/")


def fault_of(document: Any) -> str | None:
    try:
        check_document(document)
    except InvalidJson as error:
        return error.pointer
    return None


# What is taken can be read back


@pytest.mark.parametrize("number", ["1e16", "-9007199254740992.0", "999999999999999900000.0", "123456789e12"])
@pytest.mark.parametrize("document", [RUNTIME, MEMORY, TASKS, COGNITION, POLICY, RECORD], ids=lambda one: one["schema"])
def test_number_that_could_not_be_read_back_is_refused_with_its_place(document: Any, number: str) -> None:
    text = json.dumps({**document, "extensions": {"a/b": ["here"]}}).replace('"here"', number)
    with pytest.raises(InvalidJson) as caught:
        load_document(text)
    assert caught.value.pointer == "/extensions/a~1b/0"


def test_observed_number_that_could_not_be_read_back_is_refused_with_its_place() -> None:
    text = json.dumps(RECORD).replace('"value": 7.5', '"value": 1e16')
    with pytest.raises(InvalidJson) as caught:
        load_document(text)
    assert caught.value.pointer.endswith("/value")


@pytest.mark.parametrize("number", ["9007199254740991", "1e21", "-1e300", "0.1", "5e-324"])
def test_other_numbers_are_taken(number: str) -> None:
    text = json.dumps({**RUNTIME, "extensions": {"a/b": "here"}}).replace('"here"', number)
    assert load_json(canonicalize(load_document(text))) == load_document(text)


@given(
    st.recursive(
        json_values | st.floats(allow_nan=False, allow_infinity=False) | st.integers(52, 72).map(lambda n: 2.0**n),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=6,
    )
)
def test_whatever_is_taken_can_be_read_back(value: Any) -> None:
    text = json.dumps({**RECORD, "extensions": {"clerk/any": value}})
    try:
        document = load_document(text)
    except InvalidJson:
        return
    assert canonicalize(load_json(canonicalize(document))) == canonicalize(document)


@pytest.mark.parametrize("open_close", [("[", "]"), ('{"a":', "}")])
def test_document_is_refused_where_it_is_nested_too_deeply_to_be_read_back_anywhere(open_close: Any) -> None:
    before, after = open_close
    for depth in (DEEPEST_NESTING - 2, DEEPEST_NESTING - 1, 300):
        deep = before * depth + "0" + after * depth
        text = json.dumps({**RUNTIME, "extensions": {"a/b": "here"}}).replace('"here"', deep)
        pointer = fault_of(json.loads(text))
        assert (pointer is None) == (depth < DEEPEST_NESTING - 1)
        assert pointer is None or pointer.startswith("/extensions/a~1b/")


@pytest.mark.parametrize(("document", "pointer"), [(RECORD, "/subject"), (MEMORY, "/memory/head/registry")])
def test_address_with_a_wrong_checksum_is_refused(document: Any, pointer: str) -> None:
    right = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
    assert fault_of(edited(document, pointer, right)) is None
    assert fault_of(edited(document, pointer, right.lower())) is None
    assert fault_of(edited(document, pointer, right.replace("dC", "DC").replace("C8", "c8"))) == pointer


# An integer is written as one


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (POLICY, "/dueWindow"), (POLICY, "/pulseInterval"), (POLICY, "/maxInterval/0"), (POLICY, "/disclosure"),
        (POLICY, "/supportedLayers/0"), (POLICY, "/requiredLayers/0"), (POLICY, "/dependencies/0/layer"),
        (POLICY, "/dependencies/0/dependsOn/0"), (POLICY, "/evaluation/minimumCases"),
        (RECORD, "/policyVersion"), (RECORD, "/startedAt"), (RECORD, "/endedAt"), (RECORD, "/nextPlannedAt"),
        (RECORD, "/layers/0/layer"), (RECORD, "/layers/0/observations/0/observedAt"),
    ],
)  # fmt: skip
def test_float_in_an_integers_place_is_refused_with_a_pointer(document: Any, pointer: str) -> None:
    value: Any = document
    for part in pointer[1:].split("/"):
        value = value[int(part) if isinstance(value, list) else part]
    assert fault_of(edited(document, pointer, float(value))) == pointer


def test_dependencies_of_a_layer_that_is_not_supported_are_refused() -> None:
    document = {**POLICY, "supportedLayers": [2], "requiredLayers": []}
    document["dependencies"] = [{"layer": 0, "dependsOn": [2], "reason": "none"}]
    assert fault_of(document) == "/dependencies/0/layer"


# The registered policy


def test_policy_follows_from_its_document() -> None:
    assert derive_policy(POLICY, "ipfs://somewhere") == Policy(
        supported_layers=0x0F,
        required_layers=0x0F,
        allowed_triggers=0x0F,
        disclosure=1,
        due_window=3600,
        pulse_interval=21600,
        max_interval=(86400, 604800, 2592000, 7776000),
        policy_hash=compute_content_hash(POLICY),
        policy_uri="ipfs://somewhere",
    )


@pytest.mark.parametrize(
    ("pointer", "value", "member", "derived"),
    [
        ("/requiredLayers", [1, 3], "required_layers", 0b1010),
        ("/allowedTriggers", ["SELF"], "allowed_triggers", 0b1000),
        ("/allowedTriggers", ["EVENT", "SCHEDULED"], "allowed_triggers", 0b0011),
        ("/disclosure", 0, "disclosure", 0),
        ("/dueWindow", 0, "due_window", 0),
    ],
)
def test_each_member_of_the_policy_follows_from_its_own(pointer: str, value: Any, member: str, derived: Any) -> None:
    assert getattr(derive_policy(edited(POLICY, pointer, value)), member) == derived


def test_policy_is_derived_from_no_other_document() -> None:
    with pytest.raises(InvalidJson):
        derive_policy(RECORD)
