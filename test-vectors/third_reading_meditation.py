"""The reading of the Agent Meditation Mechanism that belongs to third_reading.py, which runs it.

Canonical JSON (RFC 8785), the two hashes, ABI words, a model of the registry and the judging of statuses are written
here from the text and shared with nobody. The names and arguments of errors, and that the first broken rule of the
text's list is the one answered, are this project's; its README says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from third_reading import (
    ZERO_ADDRESS,
    ZERO_WORD,
    Files,
    Members,
    VectorSet,
    Wrong,
    is_integer,
    keccak256,
    same,
    states,
    to_hex,
    unhex,
    word,
)

# --- Canonical JSON ---------------------------------------------------------------------------------------------------

SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def canonical(value: Any) -> str:
    """Return the one text of a JSON value, all numbers of which were read as doubles."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return canonical_number(value)
    if isinstance(value, str):
        escaped = (SHORT_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value)
        return '"' + "".join(escaped) + '"'
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    by_code_units = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in by_code_units) + "}"


def canonical_number(value: float) -> str:
    """Write a double as ECMAScript does; Python gives the same shortest digits in another notation."""
    if value == 0:
        return "0"
    sign, digits, exponent = re.fullmatch(r"(-?)([0-9.]+)(?:e([+-][0-9]+))?", repr(value)).groups()  # type: ignore[union-attr]
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
    return f"{sign}{mantissa}e{point - 1:+d}"


def read_json(text: str) -> Any:
    return json.loads(text, parse_int=float)


# --- Hashes -----------------------------------------------------------------------------------------------------------

TAGS = {
    "layer_commitment": "AgentMeditationMechanism/LayerCommitment/v1",
    "state_root": "AgentMeditationMechanism/StateRoot/v1",
}
SCHEMAS = {
    "runtime": "amm.layer.runtime/1",
    "memory_skills": "amm.layer.memory-skills/1",
    "tasks_roles": "amm.layer.tasks-roles/1",
    "cognition": "amm.layer.cognition/1",
}


def hash_text(text: str) -> str:
    return to_hex(keccak256(text.encode()))


def hash_words(*words: str) -> str:
    return to_hex(keccak256(b"".join(unhex(one, 32) for one in words)))


def layer_commitment(layer: int, schema_hash: str, content_hash: str, salt: str) -> str:
    tag = hash_text(TAGS["layer_commitment"])
    return hash_words(tag, to_hex(layer.to_bytes(32, "big")), schema_hash, content_hash, salt)


def state_root(commitments: list[str]) -> str:
    same("number of commitments", len(commitments), 4)
    return hash_words(hash_text(TAGS["state_root"]), *commitments)


# --- The interface ----------------------------------------------------------------------------------------------------

STRUCTS = {
    "Policy": "bytes32 policyHash,string policyURI,uint8 supportedLayers,uint8 requiredLayers,uint8 allowedTriggers,"
    "uint8 disclosure,uint48 dueWindow,uint48 pulseInterval,uint48[4] maxInterval",
    "Floor": "uint8 requiredLayers,uint48 pulseInterval,uint48[4] maxInterval",
    "CycleReport": "uint64 baseVersion,bytes32 preRoot,bytes32[4] postCommitments,uint8 layerMask,"
    "uint8 completedLayers,uint16 opsMask,uint8 outcome,uint8 trigger,uint32 policyVersion,uint48 reportedStartedAt,"
    "uint48 reportedEndedAt,uint48 nextPlannedAt,uint64 restoresVersion,bytes32 recordHash,string recordURI",
}
FUNCTIONS = [
    "enroll(bytes32[4],Policy,address,uint8)",
    "setOperator(address,uint8)",
    "revokeOperator(address,address)",
    "setController(address,address,uint8)",
    "setPolicy(address,Policy)",
    "setFloor(address,Floor)",
    "demand(address,uint8,uint48)",
    "withdrawDemand(address,uint8)",
    "report(address,CycleReport)",
    "pulse(address,uint48)",
    "headOf(address)",
    "checkpointOf(address,uint8)",
    "rootAt(address,uint64)",
    "policyOf(address,uint32)",
    "policyEffectiveFrom(address,uint32)",
    "floorOf(address)",
    "demandOf(address,uint8)",
    "operatorPermissions(address,address)",
    "requirementsOf(address)",
    "layerStatus(address,uint8)",
    "signalStatus(address)",
    "computeRoot(bytes32[4])",
    "computeLayerCommitment(uint8,bytes32,bytes32,bytes32)",
]
INTERFACE_ID = "0x9c81b550"
#: A star marks what is indexed.
EVENTS = {
    "Enrolled": "address* subject,address* controller,uint8 controllerRights,bytes32 root,uint48 enrolledAt",
    "ControllerChanged": "address* subject,address* previousController,address* newController,uint8 rights",
    "OperatorSet": "address* subject,address* operator,uint8 permissions,address* by",
    "PolicyUpdated": "address* subject,uint32* version,bytes32 policyHash,uint48 effectiveFrom,address by",
    "FloorUpdated": "address* subject,uint32* version,uint48 effectiveFrom,address by",
    "Demanded": "address* subject,uint8 layerMask,uint48 dueBy,address by",
    "DemandWithdrawn": "address* subject,uint8 layerMask,address by",
    "CycleRecorded": "address* subject,uint64* seq,uint64 baseVersion,uint64 newVersion,CycleReport report,"
    "uint8 changedLayers,uint48 recordedAt,address submitter",
    "LayerCommitmentChanged": "address* subject,uint8* layer,uint64* version,bytes32 previousCommitment,"
    "bytes32 newCommitment",
    "Pulsed": "address* subject,uint64* seq,uint48 recordedAt,uint48 nextPlannedAt,address submitter",
}
ERRORS = {
    "InvalidLayer": "uint8 layer",
    "InvalidLayerMask": "uint8 layerMask",
    "RequiredNotSupported": "uint8 supportedLayers,uint8 requiredLayers",
    "InvalidTriggers": "uint8 allowedTriggers",
    "InvalidDisclosure": "uint8 maximum,uint8 received",
    "MissingInterval": "uint8 layer",
    "CompletedOutsideScope": "uint8 layerMask,uint8 completedLayers",
    "OpsOutsideScope": "uint8 layerMask,uint16 opsMask",
    "InconsistentOutcome": "uint8 outcome,uint8 layerMask,uint8 completedLayers",
    "UnknownPolicyVersion": "uint32 current,uint32 received",
    "PolicyNotYetEffective": "uint48 effectiveFrom,uint48 reportedStartedAt",
    "PolicySuperseded": "uint48 supersededAt,uint48 reportedStartedAt",
    "LayersNotSupported": "uint8 supportedLayers,uint8 layerMask",
    "TriggerNotAllowed": "uint8 allowedTriggers,uint8 trigger",
    "BadBaseVersion": "uint64 expected,uint64 received",
    "BadPreRoot": "bytes32 expected,bytes32 received",
    "UnscopedLayerChanged": "uint8 layer,bytes32 expected,bytes32 received",
    "EndedBeforeStarted": "uint48 reportedStartedAt,uint48 reportedEndedAt",
    "EndedInFuture": "uint48 current,uint48 reportedEndedAt",
    "CompletionNotLater": "uint8 layer,uint48 lastCompletedAt,uint48 reportedEndedAt",
    "BadRestoresVersion": "uint64 current,uint64 received",
    "BadRestoredRoot": "bytes32 expected,bytes32 received",
}
POLICY_ERRORS = ("InvalidLayerMask", "RequiredNotSupported", "InvalidTriggers", "InvalidDisclosure", "MissingInterval")
FLOOR_ERRORS = ("InvalidLayerMask", "MissingInterval")
REPORT_ERRORS = ("InvalidLayerMask", *list(ERRORS)[6:])


def declared(text: str) -> list[tuple[str, str]]:
    """Split a list of members into pairs of type and name."""
    return [(kind, name) for kind, name in (member.split(" ") for member in text.split(","))]


def spelled(kinds: str) -> str:
    """Write a list of types with every structure as the tuple of its members' types."""
    for name, text in STRUCTS.items():
        kinds = re.sub(rf"\b{name}\b", "(" + ",".join(kind for kind, _ in declared(text)) + ")", kinds)
    return kinds


def signature_of(name: str, text: str) -> str:
    return f"{name}({spelled(','.join(kind.rstrip('*') for kind, _ in declared(text)))})"


def is_dynamic(kind: str) -> bool:
    return kind == "string" or kind in STRUCTS and any(is_dynamic(inner) for inner, _ in declared(STRUCTS[kind]))


def encode(kind: str, value: Any) -> bytes:
    """Encode one value by the contract ABI, without the offset that leads to it."""
    if kind in STRUCTS:
        members = declared(STRUCTS[kind])
        same("members of " + kind, list(value), [name for _, name in members])
        return encode_all([(inner, value[name]) for inner, name in members])
    if kind.endswith("[4]"):
        same("number of items", len(value), 4)
        return b"".join(word(kind[:-3], item) for item in value)
    if kind == "string":
        raw: bytes = value.encode()
        return len(raw).to_bytes(32, "big") + raw + bytes(-len(raw) % 32)
    return word(kind, value)


def encode_all(values: list[tuple[str, Any]]) -> bytes:
    encoded = [(is_dynamic(kind), encode(kind, value)) for kind, value in values]
    offset = sum(32 if dynamic else len(data) for dynamic, data in encoded)
    head, tail = b"", b""
    for dynamic, data in encoded:
        head += (offset + len(tail)).to_bytes(32, "big") if dynamic else data
        tail += data if dynamic else b""
    return head + tail


# --- A model of the registry ------------------------------------------------------------------------------------------

LAYERS = range(4)
LATEST = 2**48 - 1
#: A broken rule: the error's name and its arguments.
Broken = tuple[str, dict[str, str]]


def number(value: Any, bits: int = 48) -> int:
    if not is_integer(value, bits):
        raise Wrong(f"{value!r} is no decimal string of {bits} bits")
    return int(value)


def holds(mask: int, bit: int) -> bool:
    return mask >> bit & 1 == 1


def broken(error: str, *values: int | str) -> Broken:
    names = [name for _, name in declared(ERRORS[error])]
    return error, dict(zip(names, map(str, values), strict=True))


def is_within(mask: int, other: int) -> bool:
    return mask | other == other


class Policy:
    """A policy, as numbers."""

    def __init__(self, stated: Any) -> None:
        encode("Policy", stated)
        self.hash: str = stated["policyHash"]
        self.supported, self.required = number(stated["supportedLayers"], 8), number(stated["requiredLayers"], 8)
        self.triggers, self.disclosure = number(stated["allowedTriggers"], 8), number(stated["disclosure"], 8)
        self.window, self.pulse = number(stated["dueWindow"]), number(stated["pulseInterval"])
        self.intervals = [number(item) for item in stated["maxInterval"]]

    def faults(self) -> list[Broken]:
        found = []
        if not 0 < self.supported < 16:
            found.append(broken("InvalidLayerMask", self.supported))
        if not is_within(self.required, self.supported):
            found.append(broken("RequiredNotSupported", self.supported, self.required))
        if not 0 < self.triggers < 16:
            found.append(broken("InvalidTriggers", self.triggers))
        if self.disclosure > 2:
            found.append(broken("InvalidDisclosure", 2, self.disclosure))
        return found + missing_interval(self.required, self.intervals)


class Floor:
    """A floor, as numbers."""

    def __init__(self, stated: Any) -> None:
        encode("Floor", stated)
        self.required, self.pulse = number(stated["requiredLayers"], 8), number(stated["pulseInterval"])
        self.intervals = [number(item) for item in stated["maxInterval"]]

    def faults(self) -> list[Broken]:
        beyond = [broken("InvalidLayerMask", self.required)] if self.required > 15 else []
        return beyond + missing_interval(self.required, self.intervals)


def missing_interval(required: int, intervals: list[int]) -> list[Broken]:
    return [broken("MissingInterval", layer) for layer in LAYERS if holds(required, layer) and not intervals[layer]][:1]


def shortest(*durations: int) -> int:
    """Return the shortest duration, 0 being none."""
    return min([duration for duration in durations if duration], default=0)


def joined(policy: Policy, floor: Floor) -> dict[str, Any]:
    """Return what policy and floor require together."""
    intervals = [
        shortest(*(one.intervals[layer] for one in (policy, floor) if holds(one.required, layer))) for layer in LAYERS
    ]
    return {
        "supportedLayers": str(policy.supported),
        "requiredLayers": str(policy.required | floor.required),
        "dueWindow": str(policy.window),
        "pulseInterval": str(shortest(policy.pulse, floor.pulse)),
        "maxInterval": [str(interval) for interval in intervals],
    }


class Completion(NamedTuple):
    ended: int = 0
    recorded: int = 0
    policy_version: int = 0


class Demand(NamedTuple):
    made: int
    due: int


class Accepted(NamedTuple):
    """What a record brought about."""

    changed: list[int]
    before: list[str]


NO_FLOOR = {"requiredLayers": "0", "pulseInterval": "0", "maxInterval": ["0"] * 4}


class Subject:
    """A subject, with its whole history."""

    def __init__(self, enrolled: int, baseline: list[str], policy: Policy) -> None:
        same("faults of the first policy", policy.faults(), [])
        self.now = self.enrolled = self.last_signal = enrolled
        self.commitments = [to_hex(unhex(one, 32)) for one in baseline]
        self.roots = [state_root(self.commitments)]
        self.policies = [(policy, enrolled)]
        self.floor = Floor(NO_FLOOR)
        self.completions = [Completion()] * 4
        self.demands: list[Demand | None] = [None] * 4
        self.changed_in = [1] * 4
        self.records = self.planned = 0

    def wait_until(self, time: int) -> None:
        same("time runs forward", time >= self.now, True)
        self.now = time

    def set_policy(self, policy: Policy) -> None:
        same("faults of the policy", policy.faults(), [])
        self.policies.append((policy, self.now))

    def set_floor(self, floor: Floor) -> None:
        same("faults of the floor", floor.faults(), [])
        self.floor = floor

    def demand(self, mask: int, due: int) -> None:
        same("demand names layers", 0 < mask < 16, True)
        same("demand lies in the future", due > self.now, True)
        for layer in LAYERS:
            if holds(mask, layer):
                self.demands[layer] = Demand(self.now, due)

    def withdraw_demand(self, mask: int) -> None:
        same("withdrawal names layers", 0 < mask < 16, True)
        for layer in LAYERS:
            if holds(mask, layer):
                self.demands[layer] = None

    def pulse(self, planned: int = 0) -> None:
        self.records, self.last_signal, self.planned = self.records + 1, self.now, planned

    def report(self, stated: Any) -> Accepted:
        same("faults of the report", self.faults(stated), [])
        before, after = self.commitments, list(stated["postCommitments"])
        changed = [layer for layer in LAYERS if before[layer] != after[layer]]
        if changed:
            self.commitments = after
            self.roots.append(state_root(after))
        for layer in changed:
            self.changed_in[layer] = len(self.roots)
        ended = number(stated["reportedEndedAt"])
        for layer in LAYERS:
            if holds(number(stated["completedLayers"], 8), layer):
                self.completions[layer] = Completion(ended, self.now, number(stated["policyVersion"], 32))
                demanded = self.demands[layer]
                if demanded and demanded.made <= ended:
                    self.demands[layer] = None
        self.pulse(number(stated["nextPlannedAt"]))
        return Accepted(changed, before)

    def faults(self, stated: Any) -> list[Broken]:
        """Return every rule that a report breaks, in the order of the text's list; of a rule on layers, the lowest."""
        encode("CycleReport", stated)
        mask, done, ops = (number(stated[name], 16) for name in ("layerMask", "completedLayers", "opsMask"))
        outcome = number(stated["outcome"], 8)
        found = []
        if not 0 < mask < 16:
            found.append(broken("InvalidLayerMask", mask))
        if not is_within(done, mask):
            found.append(broken("CompletedOutsideScope", mask, done))
        if any(ops // 16**layer % 16 for layer in LAYERS if not holds(mask, layer)):
            found.append(broken("OpsOutsideScope", mask, ops))
        fits = [done == mask, done not in (0, mask), done != mask, done == 0]
        if outcome > 3 or not fits[outcome]:
            found.append(broken("InconsistentOutcome", outcome, mask, done))
        found += self._policy_faults(stated, mask) + self._linkage_faults(stated, mask)
        return found + self._time_faults(stated, done) + self._restore_faults(stated)

    def _policy_faults(self, stated: Any, mask: int) -> list[Broken]:
        version, started = number(stated["policyVersion"], 32), number(stated["reportedStartedAt"])
        trigger = number(stated["trigger"], 8)
        if not 0 < version <= len(self.policies):
            return [broken("UnknownPolicyVersion", len(self.policies), version)]  # it says nothing that could be broken
        policy, since = self.policies[version - 1]
        found = []
        if started < since:
            found.append(broken("PolicyNotYetEffective", since, started))
        if version < len(self.policies) and started >= self.policies[version][1]:
            found.append(broken("PolicySuperseded", self.policies[version][1], started))
        if not is_within(mask, policy.supported):
            found.append(broken("LayersNotSupported", policy.supported, mask))
        if not holds(policy.triggers, trigger):
            found.append(broken("TriggerNotAllowed", policy.triggers, trigger))
        return found

    def _linkage_faults(self, stated: Any, mask: int) -> list[Broken]:
        base, root, after = number(stated["baseVersion"], 64), stated["preRoot"], stated["postCommitments"]
        found = []
        if base != len(self.roots):
            found.append(broken("BadBaseVersion", len(self.roots), base))
        if root != self.roots[-1]:
            found.append(broken("BadPreRoot", self.roots[-1], root))
        moved = [
            broken("UnscopedLayerChanged", layer, self.commitments[layer], after[layer])
            for layer in LAYERS
            if not holds(mask, layer) and self.commitments[layer] != after[layer]
        ]
        return found + moved[:1]

    def _time_faults(self, stated: Any, done: int) -> list[Broken]:
        started, ended = number(stated["reportedStartedAt"]), number(stated["reportedEndedAt"])
        found = []
        if started > ended:
            found.append(broken("EndedBeforeStarted", started, ended))
        if ended > self.now:
            found.append(broken("EndedInFuture", self.now, ended))
        late = [
            broken("CompletionNotLater", layer, self.completions[layer].ended, ended)
            for layer in LAYERS
            if holds(done, layer) and ended <= self.completions[layer].ended
        ]
        return found + late[:1]

    def _restore_faults(self, stated: Any) -> list[Broken]:
        version, current = number(stated["restoresVersion"], 64), len(self.roots)
        if version == 0:
            return []
        root, found = state_root(stated["postCommitments"]), []
        if version >= current:
            found.append(broken("BadRestoresVersion", current, version))
        past = self.roots[version - 1] if version <= current else ZERO_WORD
        if root != past:
            found.append(broken("BadRestoredRoot", past, root))
        return found


def layer_status(subject: Subject | None, layer: int) -> dict[str, Any]:
    if subject is None:
        return {"status": "NOT_ENROLLED", "deadline": "0", "neverCompleted": False}
    policy, rules, ended = subject.policies[-1][0], requirements_of(subject), subject.completions[layer].ended
    if not holds(int(rules["requiredLayers"]), layer):
        status = "UNSCHEDULED" if holds(policy.supported, layer) else "UNSUPPORTED"
        return {"status": status, "deadline": "0", "neverCompleted": ended == 0}
    ends = [LATEST, (ended or subject.enrolled) + int(rules["maxInterval"][layer])]
    demanded = subject.demands[layer]
    deadline = min([*ends, demanded.due] if demanded else ends)
    due, overdue = subject.now >= deadline - policy.window, subject.now >= deadline
    status = "OVERDUE" if overdue else "DUE" if due else "FRESH"
    return {"status": status, "deadline": str(deadline), "neverCompleted": ended == 0}


def signal_status(subject: Subject | None) -> dict[str, Any]:
    if subject is None:
        return {"status": "NOT_ENROLLED", "lastSignalAt": "0", "silentSince": "0"}
    pulse, last = int(requirements_of(subject)["pulseInterval"]), subject.last_signal
    silent_since = min(last + pulse, LATEST)
    silent = pulse != 0 and subject.now > silent_since
    status = "SILENT" if silent else "PRESENT" if pulse else "NOT_TRACKED"
    return {"status": status, "lastSignalAt": str(last), "silentSince": str(silent_since if silent else 0)}


def requirements_of(subject: Subject) -> dict[str, Any]:
    return joined(subject.policies[-1][0], subject.floor)


# --- One check for each kind of case ----------------------------------------------------------------------------------


def edited(example: Members, edits: list[Members]) -> dict[str, Any]:
    """Return a copy of a structure of the worked example after edits."""
    changed = example.plain()
    for edit in edits:
        member, value = edit["member"], edit["value"]
        same(f"there is a member {member}", member in changed, True)
        if isinstance(changed[member], list):
            layer = number(edit["layer"], 2)
            value = [*changed[member][:layer], value, *changed[member][layer + 1 :]]
        same("the edit changes something", value != changed[member], True)
        changed[member] = value
    return changed


def check_error(error: Members, found: Broken) -> None:
    name, arguments = found
    signature, values = signature_of(name, ERRORS[name]), error["arguments"].plain()
    selector = keccak256(signature.encode())[:4]
    same("error", error["name"], name)
    same("arguments", list(values.items()), list(arguments.items()))
    states(error, "signature", signature)
    states(error, "selector", to_hex(selector))
    data = b"".join(word(kind, arguments[member]) for kind, member in declared(ERRORS[name]))
    states(error, "revertData", to_hex(selector + data))


def check_verdict(case: Members, faults: list[Broken], refused: str) -> None:
    """A refused case states the first fault whole and the others by name; any other must have none."""
    same("kind is that of a refusal", case["kind"] == refused, bool(faults))
    if faults:
        check_error(case["error"], faults[0])
        states(case, "alsoWrong", [name for name, _ in faults[1:]])


class Reader:
    """The checks, one for each kind of case, over one file; each raises when a case does not hold."""

    def __init__(self, name: str, files: Files) -> None:
        self.doc, self.files = files[name], files

    def check_text(self, case: Members) -> None:
        texts = TAGS if case["kind"] == "domain_tag" else SCHEMAS
        states(case, "text", texts[case["name"]])
        states(case, "keccak256", hash_text(case["text"]))
        if texts is SCHEMAS:
            states(case, "layer", str(list(SCHEMAS).index(case["name"])))

    def check_canonical_json(self, case: Members) -> None:
        raw = canonical(read_json(case["jsonText"])).encode()
        states(case, "canonical", to_hex(raw))
        states(case, "keccak256", to_hex(keccak256(raw)))

    def check_layer_commitment(self, case: Members) -> None:
        layer = number(case["layer"], 2)
        schema, content, salt = case["schemaHash"], case["contentHash"], case["salt"]
        found = layer_commitment(layer, schema, content, salt)
        states(case, "commitment", found)
        tag, wide = hash_text(TAGS["layer_commitment"]), to_hex(layer.to_bytes(32, "big"))
        packed = unhex(tag) + bytes([layer]) + unhex(schema) + unhex(content) + unhex(salt)
        mistakes = {
            "layer_packed_into_one_byte": to_hex(keccak256(packed)),
            "layer_left_out": hash_words(tag, schema, content, salt),
            "tag_left_out": hash_words(wide, schema, content, salt),
            "salt_before_content": hash_words(tag, wide, schema, salt, content),
        }
        self.check_mistakes(case, mistakes, found)

    def check_mistakes(self, case: Members, known: dict[str, str], right: str) -> None:
        for mistake in case.get("mistakes", {}):
            states(case["mistakes"], mistake, known[mistake])
            same(f"{mistake} gives the right figure", known[mistake] == right, False)

    def check_layer_document(self, case: Members) -> None:
        document = read_json(case["jsonText"])
        layer = int(document["layer"])
        same("schema", document["schema"], list(SCHEMAS.values())[layer])
        states(case, "schemaHash", hash_text(document["schema"]))
        states(case, "contentHash", hash_text(canonical(document)))
        states(case, "commitment", layer_commitment(layer, case["schemaHash"], case["contentHash"], case["salt"]))

    def check_refused_layer(self, case: Members) -> None:
        layer = number(case["layer"], 8)
        same("layer exists", layer in LAYERS, False)
        for name in ("schemaHash", "contentHash", "salt"):
            unhex(case[name], 32)
        check_error(case["error"], broken("InvalidLayer", layer))

    def check_state_root(self, case: Members) -> None:
        commitments, found = case["commitments"], state_root(case["commitments"])
        states(case, "root", found)
        mistakes = {
            "tag_left_out": hash_words(*commitments),
            "layers_reversed": state_root(commitments[::-1]),
            "layers_sorted": state_root(sorted(commitments)),
        }
        self.check_mistakes(case, mistakes, found)

    def check_function(self, case: Members) -> None:
        signature = next(f for f in FUNCTIONS if snake(f.partition("(")[0]) == case["name"])
        states(case, "signature", spelled(signature))
        states(case, "selector", to_hex(keccak256(case["signature"].encode())[:4]))

    def check_event(self, case: Members) -> None:
        event = next(event for event in EVENTS if snake(event) == case["name"])
        states(case, "signature", signature_of(event, EVENTS[event]))
        states(case, "topic", hash_text(case["signature"]))

    def check_interface_id(self, case: Members) -> None:
        states(case, "functions", [function.partition("(")[0] for function in FUNCTIONS])
        total = 0
        for function in FUNCTIONS:
            total ^= int.from_bytes(keccak256(spelled(function).encode())[:4], "big")
        states(case, "interfaceId", to_hex(total.to_bytes(4, "big")))
        same("interface id of the text", INTERFACE_ID, case["interfaceId"])

    # The worked example

    def enroll(self) -> Subject:
        example = self.files["worked_example.json"]
        return Subject(number(example["enrolledAt"]), example["baseline"], Policy(example["policy"]))

    def example_report(self) -> Members:
        (cycle,) = (case for case in self.files["worked_example.json"]["cases"] if case["kind"] == "cycle")
        report: Members = cycle["report"]
        return report

    def after_the_cycle(self) -> tuple[Subject, Accepted]:
        subject = self.enroll()
        subject.wait_until(number(self.doc["recordedAt"]))
        return subject, subject.report(self.example_report())

    def check_cycle(self, case: Members) -> None:
        subject, accepted = self.after_the_cycle()
        for prefix, commitments in (("baseline", self.doc["baseline"]), ("post", case["report"]["postCommitments"])):
            listed = {other["name"]: other["commitment"] for other in self.files["commitments.json"]["cases"][:8]}
            same(f"commitments of {prefix}", commitments, [listed[f"{prefix}_{layer}"] for layer in SCHEMAS])
        effects = case["effects"]
        states(effects, "stateVersion", str(len(subject.roots)))
        states(effects, "roots", subject.roots)
        states(effects, "changedLayers", mask_of(accepted.changed))
        for layer, stated in enumerate(effects["checkpoints"]):
            completion = subject.completions[layer]
            found = {
                "commitment": subject.commitments[layer],
                "lastCompletedAt": str(completion.ended),
                "completedUnderPolicy": str(completion.policy_version),
                "lastChangedVersion": str(subject.changed_in[layer]),
            }
            same(f"checkpoint of layer {layer}", stated.plain(), found)
        same("number of checkpoints", len(effects["checkpoints"]), 4)

    def check_logs(self, case: Members) -> None:
        account = self.doc["subject"]
        same("subject", to_hex(unhex(account, 20)), account)
        if case["transaction"] == "enrollment":
            subject = self.enroll()
            policy, since = subject.policies[0]
            expected: list[tuple[str, tuple[Any, ...]]] = [
                ("Enrolled", (account, ZERO_ADDRESS, "0", subject.roots[0], str(subject.enrolled))),
                ("PolicyUpdated", (account, "1", policy.hash, str(since), account)),
            ]
        else:
            same("transaction", case["transaction"], "report")
            subject, accepted = self.after_the_cycle()
            report, version, mask = self.example_report(), str(len(subject.roots)), mask_of(accepted.changed)
            seq, now = str(subject.records), str(subject.now)
            expected = [("CycleRecorded", (account, seq, report["baseVersion"], version, report, mask, now, account))]
            expected += [
                (
                    "LayerCommitmentChanged",
                    (account, str(layer), version, accepted.before[layer], subject.commitments[layer]),
                )
                for layer in accepted.changed
            ]
        same("events", [log["event"] for log in case["logs"]], [event for event, _ in expected])
        for log, (event, values) in zip(case["logs"], expected, strict=True):
            members = declared(EVENTS[event])
            shown = ["mcp_timeout_cycle" if isinstance(value, Members) else value for value in values]
            same(
                f"arguments of {event}",
                log["arguments"].plain(),
                dict(zip([n for _, n in members], shown, strict=True)),
            )
            placed = [(kind, value) for (kind, _), value in zip(members, values, strict=True)]
            topics = [to_hex(word(kind[:-1], value)) for kind, value in placed if kind.endswith("*")]
            states(log, "topics", [hash_text(signature_of(event, EVENTS[event])), *topics])
            states(log, "data", to_hex(encode_all([(kind, value) for kind, value in placed if not kind.endswith("*")])))

    def check_head(self, case: Members) -> None:
        subject, _ = self.after_the_cycle()
        found = {
            "enrolled": True,
            "controller": ZERO_ADDRESS,
            "controllerRights": "0",
            "policyVersion": str(len(subject.policies)),
            "floorVersion": "0",
            "stateVersion": str(len(subject.roots)),
            "recordCount": str(subject.records),
            "root": subject.roots[-1],
            "enrolledAt": str(subject.enrolled),
            "lastSignalAt": str(subject.last_signal),
            "nextPlannedAt": str(subject.planned),
        }
        same("head", list(case["head"].plain().items()), list(found.items()))

    # Reports

    def reach(self, name: str) -> Subject:
        """Return the subject in a named state, after every call that leads there was accepted."""
        state = self.doc["states"][name]
        subject = self.reach(state["after"]) if "after" in state else None
        same(f"the state {name} is explained", isinstance(state["about"], str), True)
        for step in state["steps"]:
            at, call, given = number(step["at"]), step["call"], step["input"]
            if subject is None:
                same("first call", call, "enroll")
                subject = Subject(at, given["baseline"], Policy(given["policy"]))
                continue
            subject.wait_until(at)
            {"setPolicy": lambda s, g: s.set_policy(Policy(g)), "report": Subject.report}[call](subject, given)
        if subject is None:
            raise Wrong(f"nobody is enrolled in the state {name}")
        return subject

    def check_report(self, case: Members) -> None:
        unhex(self.doc["subject"], 20)
        subject = self.reach(case["state"])
        subject.wait_until(number(case["at"]))
        report = edited(self.example_report(), case["edits"])
        faults = subject.faults(report)
        check_verdict(case, faults, "rejection")
        if faults:
            return
        accepted = subject.report(report)
        found = {
            "seq": str(subject.records),
            "newVersion": str(len(subject.roots)),
            "root": subject.roots[-1],
            "changedLayers": mask_of(accepted.changed),
        }
        same("after", case["after"].plain(), found)

    # Policies and statuses

    def edited_policy(self, case: Members) -> Policy:
        return Policy(edited(self.files["worked_example.json"]["policy"], case["edits"]))

    def check_policy(self, case: Members) -> None:
        check_verdict(case, self.edited_policy(case).faults(), "invalid_policy")

    def check_floor(self, case: Members) -> None:
        check_verdict(case, Floor(case["floor"]).faults(), "invalid_floor")

    def check_requirements(self, case: Members) -> None:
        policy, floor = self.edited_policy(case), Floor(case["floor"])
        same("faults", policy.faults() + floor.faults(), [])
        same("requirements", case["requirements"].plain(), joined(policy, floor))

    def play(self, name: str) -> Subject | None:
        """Return the subject after every step of a timeline was accepted."""
        timeline = self.doc["timelines"][name]
        same(f"the timeline {name} is explained", isinstance(timeline["about"], str), True)
        subject: Subject | None = None
        for step in timeline["steps"]:
            kind, at = step["step"], number(step["at"])
            if subject is None:
                same("first step", kind, "enroll")
                subject = Subject(at, [ZERO_WORD] * 4, Policy(self.doc["policies"][step["policy"]]))
                continue
            subject.wait_until(at)
            if kind == "set_policy":
                subject.set_policy(Policy(self.doc["policies"][step["policy"]]))
            elif kind == "set_floor":
                subject.set_floor(Floor(self.doc["floors"][step["floor"]]))
            elif kind == "demand":
                subject.demand(number(step["layerMask"], 8), number(step["dueBy"]))
            elif kind == "withdraw_demand":
                subject.withdraw_demand(number(step["layerMask"], 8))
            elif kind == "report":
                subject.report(self.short_report(subject, step))
            else:
                same("step", kind, "pulse")
                subject.pulse()
        return subject

    def short_report(self, subject: Subject, step: Members) -> dict[str, Any]:
        """Return the report of a timeline: one that starts as it ends, changes nothing and names no operation."""
        named = ("layerMask", "completedLayers", "outcome", "policyVersion", "reportedEndedAt")
        zeros = {name: "0" for _, name in declared(STRUCTS["CycleReport"])}
        here = {
            "baseVersion": str(len(subject.roots)),
            "preRoot": subject.roots[-1],
            "postCommitments": subject.commitments,
            "reportedStartedAt": step["reportedEndedAt"],
            "recordHash": ZERO_WORD,
            "recordURI": "",
        }
        return {**zeros, **here, **{name: step[name] for name in named}}

    def check_status(self, case: Members) -> None:
        for account in ("subject", "controller"):
            unhex(self.doc[account], 20)
        subject = self.play(case["timeline"])
        at = number(case["at"])
        if subject is not None:
            subject.wait_until(at)
        signal = case["kind"] == "signal_status"
        found = signal_status(subject) if signal else layer_status(subject, number(case["layer"], 2))
        same("expected", case["expected"].plain(), found)


def mask_of(layers: Iterable[int]) -> str:
    return str(sum(2**layer for layer in layers))


def snake(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()


Check = Callable[[Reader, Members], None]
CHECKS: dict[str, dict[str, Check]] = {
    "tags.json": {"domain_tag": Reader.check_text, "schema_identifier": Reader.check_text},
    "canonicalization.json": {"canonical_json": Reader.check_canonical_json},
    "commitments.json": {
        "layer_commitment": Reader.check_layer_commitment,
        "layer_document": Reader.check_layer_document,
        "refused_layer": Reader.check_refused_layer,
    },
    "roots.json": {"state_root": Reader.check_state_root},
    "interface.json": {
        "function": Reader.check_function,
        "event": Reader.check_event,
        "interface_id": Reader.check_interface_id,
    },
    "worked_example.json": {
        "cycle": Reader.check_cycle,
        "logs": Reader.check_logs,
        "head": Reader.check_head,
    },
    "refused_reports.json": {"rejection": Reader.check_report, "acceptance": Reader.check_report},
    "policies.json": {
        "valid_policy": Reader.check_policy,
        "invalid_policy": Reader.check_policy,
        "valid_floor": Reader.check_floor,
        "invalid_floor": Reader.check_floor,
        "requirements": Reader.check_requirements,
    },
    "statuses.json": {"layer_status": Reader.check_status, "signal_status": Reader.check_status},
}
STATUSES = {
    "layer_status": ("NOT_ENROLLED", "UNSUPPORTED", "UNSCHEDULED", "FRESH", "DUE", "OVERDUE"),
    "signal_status": ("NOT_ENROLLED", "NOT_TRACKED", "PRESENT", "SILENT"),
}


def gaps(name: str, doc: Members) -> list[str]:
    """Return what a file must speak of and does not: texts, members of the interface, errors, statuses."""
    cases = doc["cases"]
    seen = {(case["kind"], case["name"]) for case in cases}
    wanted: set[tuple[str, str]] = set()
    if name == "tags.json":
        wanted = {("domain_tag", tag) for tag in TAGS} | {("schema_identifier", layer) for layer in SCHEMAS}
    elif name == "interface.json":
        wanted = {("function", snake(function.partition("(")[0])) for function in FUNCTIONS}
        wanted |= {("event", snake(event)) for event in EVENTS}
    elif name == "refused_reports.json":
        seen = {("rejection", case["error"]["name"]) for case in cases if "error" in case}
        wanted = {("rejection", error) for error in REPORT_ERRORS}
    elif name == "policies.json":
        seen = {(case["kind"], case["error"]["name"]) for case in cases if "error" in case}
        wanted = {("invalid_policy", error) for error in POLICY_ERRORS}
        wanted |= {("invalid_floor", error) for error in FLOOR_ERRORS}
    elif name == "statuses.json":
        seen = {(case["kind"], case["expected"]["status"]) for case in cases}
        wanted = {(kind, status) for kind, statuses in STATUSES.items() for status in statuses}
    return [f"no case of kind {kind} about {what}" for kind, what in sorted(wanted - seen)]


MEDITATION = VectorSet("meditation", Reader, CHECKS, gaps)
