"""The documents behind the commitments: four layer states, a policy, a cycle record. Read strictly, or refused.

A document is a JSON object that names its own `schema`. What is refused, each with a JSON pointer: what canonical JSON
cannot carry or read back (`melete.canonical`), members and values that the schema does not know, a `layer` that is not
the schema's, and timed observations in a layer document, which describes stable state only.

Source: Agent Meditation, Commitment format and Off-chain documents. The schemas are ours: the text names what a
document should state, and publishes no schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import Json, canonicalize, check_readable, load_json
from melete.errors import InvalidInput, InvalidJson
from melete.meditation.cycle import Trigger
from melete.meditation.layers import SCHEMAS, Layer, mask_of
from melete.meditation.policy import Policy, check_policy
from melete.primitives import Address, keccak256
from melete.resources import load_schema

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

POLICY_SCHEMA: Final = "amm.policy/1"
RECORD_SCHEMA: Final = "amm.cycle-record/1"

#: Each identifier and the file of its JSON Schema.
SCHEMA_FILES: Final = {
    **{identifier: identifier.removesuffix("/1").replace(".", "-") for identifier in SCHEMAS.values()},
    POLICY_SCHEMA: "amm-policy",
    RECORD_SCHEMA: "amm-cycle-record",
}

#: A document has at most this many bytes.
LARGEST_DOCUMENT: Final = 16 * 2**20

#: A document is nested at most so deeply: what reads it back, with more on its stack, still reads it.
DEEPEST_NESTING: Final = 100

#: Names, without case and separators, of members that say what was seen at a time.
OBSERVATION_NAMES: Final = frozenset(
    (
        *("observation", "observations", "observedat", "measuredat", "checkedat", "lastchecked", "lastcheckedat"),
        *("lastseen", "lastseenat", "timestamp", "reachable", "reachability", "balance", "balances", "latency"),
        *("latencyms", "uptime", "resourceusage", "cpuusage", "memoryusage"),
    )
)


def load_document(text: str | bytes, *, expected: str | None = None) -> dict[str, Json]:
    """Return the document in a JSON text, of the `expected` schema if one is given.

    Errors: `InvalidJson` with the pointer to the first fault; `InvalidInput` for more than 16 MiB.
    """
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidInput("document", len(text), f"at most {LARGEST_DOCUMENT} bytes")
    return check_document(load_json(text), expected=expected)


def check_document(value: Json, *, expected: str | None = None) -> dict[str, Json]:
    """Return a value that is a valid document of its schema. Errors: as `load_document`."""
    if not isinstance(value, dict):
        raise InvalidJson("", "a document is a JSON object")
    schema = value.get("schema")
    if not isinstance(schema, str) or schema not in SCHEMA_FILES:
        raise InvalidJson("/schema", f"it must be one of {', '.join(SCHEMA_FILES)}")
    if expected is not None and schema != expected:
        raise InvalidJson("/schema", f"a document of {expected} is wanted here, and this is one of {schema}")
    _require_shallow(value)
    layer = layer_of(schema)
    if layer is not None:
        if type(value.get("layer")) is not int or value["layer"] != int(layer):
            raise InvalidJson("/layer", f"{schema} describes layer {int(layer)}, and no other")
        for pointer in _observations(value, ""):
            raise InvalidJson(
                pointer, "a timed observation is no part of a layer's state; put it into the cycle record"
            )
    canonicalize(value)  # a value that was made, not read, is held to the same rules
    check_readable(value)
    for error in sorted(_validator(schema).iter_errors(value), key=_depth_first):
        raise InvalidJson(_pointer(error), _rule(error))
    for pointer, rule in _MORE_RULES.get(schema, _no_more_rules)(value):
        raise InvalidJson(pointer, rule)
    return value


def _require_shallow(value: Json) -> None:
    """Refuse what is nested too deeply, without going deeper than that."""
    waiting: list[tuple[str, int, Json]] = [("", 1, value)]
    while waiting:
        pointer, depth, one = waiting.pop()
        if not isinstance(one, dict | list):
            continue
        if depth > DEEPEST_NESTING:
            raise InvalidJson(pointer, f"it is nested more than {DEEPEST_NESTING} levels deep; flatten it")
        members = one.items() if isinstance(one, dict) else enumerate(one)
        waiting += [(f"{pointer}/{_escape(str(name))}", depth + 1, member) for name, member in members]


def layer_of(schema: str) -> Layer | None:
    """Return the layer that a schema identifier describes, None for the policy's and the record's."""
    return next((layer for layer, identifier in SCHEMAS.items() if identifier == schema), None)


def derive_policy(document: dict[str, Json], uri: str = "") -> Policy:
    """Return the policy to be registered for a policy document, carrying the document's hash.

    Errors: `InvalidJson` for a document that is none; the registry's for a policy that it would refuse.
    """
    check_document(document, expected=POLICY_SCHEMA)
    given: dict[str, Any] = document
    return check_policy(
        Policy(
            supported_layers=mask_of(given["supportedLayers"]),
            required_layers=mask_of(given["requiredLayers"]),
            allowed_triggers=sum(1 << Trigger[name] for name in given["allowedTriggers"]),
            disclosure=given["disclosure"],
            due_window=given["dueWindow"],
            pulse_interval=given["pulseInterval"],
            max_interval=given["maxInterval"],
            policy_hash=keccak256(canonicalize(document)),
            policy_uri=uri,
        )
    )


# Rules that a JSON Schema cannot say


def _no_more_rules(_: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from ()


def _policy_rules(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    supported = set(document["supportedLayers"])
    for index, layer in enumerate(document["requiredLayers"]):
        if layer not in supported:
            yield f"/requiredLayers/{index}", f"layer {layer} is required, and not among the supported layers"
        if document["maxInterval"][layer] == 0:
            yield f"/maxInterval/{layer}", f"layer {layer} is required, so it needs an interval"
    depends: dict[int, set[int]] = {}
    for index, entry in enumerate(document["dependencies"]):
        if entry["layer"] in depends:
            yield f"/dependencies/{index}/layer", f"layer {entry['layer']} has its dependencies stated before"
        if entry["layer"] not in supported:
            yield f"/dependencies/{index}/layer", f"layer {entry['layer']} is not supported"
        depends[entry["layer"]] = set(entry["dependsOn"])
        for place, other in enumerate(entry["dependsOn"]):
            if other not in supported:
                yield f"/dependencies/{index}/dependsOn/{place}", f"layer {other} is not supported"
    for index, entry in enumerate(document["dependencies"]):
        if entry["layer"] in _reached(depends, entry["layer"]):
            yield f"/dependencies/{index}", f"layer {entry['layer']} depends on itself, by way of the others"


def _memory_rules(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if "head" in document["memory"]:
        yield from _address_rule(document["memory"]["head"]["registry"], "/memory/head/registry")


def _address_rule(address: str, pointer: str) -> Iterator[tuple[str, str]]:
    try:
        Address(address)
    except InvalidInput as error:
        yield pointer, f"it must be {error.rule}"


def _reached(depends: dict[int, set[int]], layer: int) -> set[int]:
    """The layers that one depends on, directly or not."""
    reached: set[int] = set()
    waiting = list(depends.get(layer, ()))
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting.extend(depends.get(one, ()))
    return reached


def _record_rules(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _address_rule(document["subject"], "/subject")
    if document["startedAt"] > document["endedAt"]:
        yield "/endedAt", "the cycle ended before it started"
    before = -1
    for index, entry in enumerate(document["layers"]):
        place = f"/layers/{index}"
        if entry["layer"] <= before:
            yield f"{place}/layer", "the layers stand in ascending order, each once"
        before = entry["layer"]
        for number, observation in enumerate(entry["observations"]):
            if observation["observedAt"] > document["endedAt"]:
                yield f"{place}/observations/{number}/observedAt", "it was observed after the cycle had ended"
        if entry["decision"] == "restored" and "restoresVersion" not in document:
            yield f"{place}/decision", "a restored layer needs the state version in restoresVersion"
        if entry["decision"] == "candidate" and not entry["candidates"]:
            yield f"{place}/candidates", "the decision names a candidate, and none is listed"
    if document["ended"] == "normally" and not any(entry["completed"] for entry in document["layers"]):
        yield "/ended", "no layer was completed, so the cycle was aborted or failed"
    if document["ended"] == "failed" and any(entry["completed"] for entry in document["layers"]):
        yield "/ended", "a cycle that completed a layer did not fail as a whole; it ended normally or was aborted"
    if document["ended"] == "aborted" and all(entry["completed"] for entry in document["layers"]):
        yield "/ended", "every layer was completed, so the cycle was not aborted"


_MORE_RULES: Final = {
    POLICY_SCHEMA: _policy_rules,
    RECORD_SCHEMA: _record_rules,
    SCHEMAS[Layer.MEMORY_SKILLS]: _memory_rules,
}


def _observations(value: Json, pointer: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in value.items():
            place = f"{pointer}/{_escape(name)}"
            if name.replace("-", "").replace("_", "").lower() in OBSERVATION_NAMES:
                yield place
            yield from _observations(member, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _observations(item, f"{pointer}/{index}")


# JSON Schema


@cache
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # For JSON Schema 1.0 is an integer. For a registry's number it is not: what is registered is compared as it is.
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    made: Any = extend
    return made(Draft202012Validator, type_checker=types)(load_schema(SCHEMA_FILES[schema]))


def _depth_first(error: ValidationError) -> tuple[int, list[str]]:
    return -len(error.absolute_path), [str(part) for part in error.absolute_path]


def _pointer(error: ValidationError) -> str:
    place = "".join(f"/{_escape(str(part))}" for part in error.absolute_path)
    if error.validator == "additionalProperties":
        return f"{place}/{_escape(_first_unknown(error))}"
    if error.validator == "required":
        return f"{place}/{_escape(_first_missing(error))}"
    return place


def _rule(error: ValidationError) -> str:
    """The rule that is broken, in words of ours: the library's quote the value, which may be long or private."""
    wanted: Any = error.validator_value
    rules: dict[str, Callable[[], str]] = {
        "additionalProperties": lambda: "the member is not known here; what is your own goes into extensions",
        "required": lambda: "the member is missing",
        "type": lambda: f"it must be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}",
        "const": lambda: f"it must be {wanted}",
        "enum": lambda: f"it must be one of {', '.join(map(str, wanted))}",
        "pattern": lambda: f"it must match {wanted}",
        "minimum": lambda: f"it must be at least {wanted}",
        "maximum": lambda: f"it must be at most {wanted}",
        "minLength": lambda: "it must not be empty",
        "maxLength": lambda: f"it must have at most {wanted} characters",
        "minItems": lambda: f"it must have at least {wanted} items",
        "maxItems": lambda: f"it must have at most {wanted} items",
        "uniqueItems": lambda: "no item may stand twice",
    }
    return rules[str(error.validator)]() if error.validator in rules else f"it breaks the rule {error.validator}"


def _first_unknown(error: ValidationError) -> str:
    instance: Any = error.instance
    schema: Any = error.schema
    return str(next(name for name in instance if name not in schema.get("properties", {})))


def _first_missing(error: ValidationError) -> str:
    instance: Any = error.instance
    wanted: Any = error.validator_value
    return str(next(name for name in wanted if name not in instance))


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
