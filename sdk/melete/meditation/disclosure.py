"""A maintenance disclosure: what a subject hands out of its cycles, and the judgement of it without a chain.

    reference   which subject, in which registry, on which chain
    level       0 commitments only, 1 the record's summary beside them, 2 record, layer documents and salts
    state       the state before the first entry: version, commitments, root, and at level 2 documents that open them
    entries     of every record in the range, ascending: what the registry's event says, and what the level adds

Everything here follows from the document alone: that every record links to the state before it, that a disclosed record
is the one whose hash was registered and leads to the very report, and that documents with their salts open the
commitments. That a registry holds these records, only a chain can say. Nothing binds a summary that comes without its
record: it is the subject's word. JSON Schema: `maintenance-disclosure`; stricter than it, addresses carry a right
checksum or none.

Source: Agent Meditation, Off-chain documents and Commitment format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from melete.canonical import Json, compute_content_hash
from melete.errors import BrokenBundle, InvalidInput, InvalidJson
from melete.meditation.cycle import BITS, CycleReport, compute_changed_layers
from melete.meditation.layers import ALL_LAYERS, Commitments, commit_to_document, compute_root, layers_of
from melete.meditation.policy import MAX_DISCLOSURE, TIME_BITS
from melete.meditation.records import derive_report
from melete.memory.disclosure import read_address, read_list, read_members, read_word
from melete.primitives import ZERO_BYTES32, Address, Bytes32, parse_sequence

T = TypeVar("T")

KIND: Final = "melete.maintenance-disclosure/1"
COMMITMENTS, SUMMARY, FULL = 0, 1, MAX_DISCLOSURE

#: What a disclosure can break without a chain, in the order of the checks; those from `seq` on for each entry in turn.
RULES: Final = (
    "state_root",
    "document_level",
    "document_layer",
    "document_commitment",
    "seq",
    "base_version",
    "pre_root",
    "unscoped_layer",
    "changed_layers",
    "new_version",
    "summary_level",
    "record_level",
    "record_hash",
    "record",
    "report",
    "summary",
)

_MEMBERS: Final = ("kind", "level", "reference", "state", "entries")
_REFERENCE: Final = ("chainId", "registry", "subject")
_STATE: Final = ("version", "commitments", "root", "documents")
_DOCUMENT: Final = ("layer", "document", "salt")
_EVENT: Final = ("seq", "newVersion", "changedLayers", "recordedAt", "submitter", "report")
_ENTRY: Final = (*_EVENT, "summary", "record", "documents")
#: The members of a report by the contract's names.
REPORT_MEMBERS: Final = {
    re.sub(r"_([a-z])", lambda found: found[1].upper(), name).replace("recordUri", "recordURI"): name
    for name in (one.name for one in fields(CycleReport))
}
#: Numbers that are text in JSON, for they may have 64 bits.
_WIDE: Final = ("baseVersion", "restoresVersion")


@dataclass(frozen=True, slots=True)
class Reference:
    """A subject, with the chain and the registry that it is registered in."""

    chain_id: int
    registry: Address
    subject: Address


@dataclass(frozen=True, slots=True)
class DisclosedDocument:
    """A layer's state document, with the salt of its commitment."""

    layer: int
    document: dict[str, Json] = field(repr=False)
    salt: Bytes32 = field(repr=False)


@dataclass(frozen=True, slots=True)
class DisclosedState:
    """A registered state, and documents that open some of its commitments."""

    version: int
    commitments: Commitments
    root: Bytes32
    documents: tuple[DisclosedDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class DisclosedCycle:
    """A registered record as the registry's event tells it, and what is disclosed of it."""

    seq: int
    new_version: int
    changed_layers: int
    recorded_at: int
    submitter: Address
    report: CycleReport
    summary: str | None = None
    record: dict[str, Json] | None = field(default=None, repr=False)
    #: Documents of layers that the cycle changed, as they are after it.
    documents: tuple[DisclosedDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class MaintenanceDisclosure:
    """A disclosure whose members have their types. Whether it holds, `verify_maintenance` says.

    At level 2 it holds documents and salts: whoever has it can read them.
    """

    reference: Reference
    level: int
    state: DisclosedState
    entries: tuple[DisclosedCycle, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `schemas/maintenance-disclosure.schema.json`."""
        reference, state = self.reference, self.state
        return {
            "kind": KIND,
            "level": self.level,
            "reference": {
                "chainId": str(reference.chain_id),
                "registry": str(reference.registry),
                "subject": str(reference.subject),
            },
            "state": {
                "version": str(state.version),
                "commitments": [str(word) for word in state.commitments],
                "root": str(state.root),
                "documents": [_document_to_json(one) for one in state.documents],
            },
            "entries": [_entry_to_json(one) for one in self.entries],
        }

    @classmethod
    def from_json(cls, document: Json) -> MaintenanceDisclosure:
        """Return the disclosure that a JSON object states: all members of the schema and no others.

        Read the text with `melete.canonical.load_json`. Errors: `InvalidJson`, pointing at the first member that is
        missing, unknown or ill-formed; nothing secret is shown.
        """
        kind, level, reference, state, entries = read_members(document, "", _MEMBERS)
        if kind != KIND:
            raise InvalidJson("/kind", f"it must be {KIND}")
        if type(level) is not int or not 0 <= level <= MAX_DISCLOSURE:
            raise InvalidJson("/level", f"it must be an integer from 0 to {MAX_DISCLOSURE}")
        chain_id, registry, subject = read_members(reference, "/reference", _REFERENCE)
        return cls(
            Reference(
                _read_chain_id(chain_id),
                read_address(registry, "/reference/registry"),
                read_address(subject, "/reference/subject"),
            ),
            level,
            _read_state(state),
            tuple(
                _read_entry(entry, f"/entries/{index}") for index, entry in enumerate(read_list(entries, "/entries"))
            ),
        )


# Judging


def verify_maintenance(disclosure: MaintenanceDisclosure) -> DisclosedState:
    """Return the state at the end of the range, if everything holds that the disclosure alone can show.

    Errors: `BrokenBundle` with one of `RULES`, at the first fault; its `entry` is the record's number.
    """
    state, level = disclosure.state, disclosure.level
    root = compute_root(state.commitments)
    if root != state.root:
        raise BrokenBundle(None, "/state/root", "state_root", root, state.root)
    _verify_documents(state.documents, state.commitments, ALL_LAYERS, level, None, "/state/documents")
    seq = 0
    for index, entry in enumerate(disclosure.entries):
        if entry.seq <= seq:
            raise BrokenBundle(entry.seq, f"/entries/{index}/seq", "seq", f"{seq + 1} or more", entry.seq)
        seq = entry.seq
        state = _verify_entry(state, entry, level, f"/entries/{index}")
    return DisclosedState(state.version, state.commitments, state.root)


def find_undisclosed(disclosure: MaintenanceDisclosure) -> int:
    """Return how many changed layers a full disclosure gives no document for."""
    return sum(
        1
        for entry in disclosure.entries
        for layer in layers_of(entry.changed_layers)
        if all(one.layer != layer for one in entry.documents)
    )


def _verify_entry(state: DisclosedState, entry: DisclosedCycle, level: int, pointer: str) -> DisclosedState:
    """Return the state after an entry."""
    report = entry.report

    def require(member: str, rule: str, expected: object, received: object) -> None:
        if expected != received:
            raise BrokenBundle(entry.seq, f"{pointer}/{member}", rule, expected, received)

    require("report/baseVersion", "base_version", state.version, report.base_version)
    require("report/preRoot", "pre_root", state.root, report.pre_root)
    changed = compute_changed_layers(state.commitments, report.post_commitments)
    for layer in layers_of(changed & ~report.layer_mask):
        place = f"report/postCommitments/{layer.value}"
        require(place, "unscoped_layer", state.commitments[layer], report.post_commitments[layer])
    require("changedLayers", "changed_layers", changed, entry.changed_layers)
    require("newVersion", "new_version", state.version + bool(changed), entry.new_version)
    _verify_level(entry, level, require)
    if entry.record is not None:
        _verify_record(state, entry, pointer, require)
    _verify_documents(entry.documents, report.post_commitments, changed, level, entry.seq, f"{pointer}/documents")
    root = compute_root(report.post_commitments)
    return DisclosedState(entry.new_version, report.post_commitments, root)


def _verify_level(entry: DisclosedCycle, level: int, require: Callable[[str, str, object, object], None]) -> None:
    if level < SUMMARY:
        require("summary", "summary_level", None, entry.summary if entry.summary is None else "a summary")
    if level < FULL:
        require("record", "record_level", None, entry.record if entry.record is None else "a record")
    elif entry.report.record_hash != ZERO_BYTES32 and entry.record is None:
        require("record", "record_level", "the record whose hash is registered", None)


def _verify_record(
    state: DisclosedState, entry: DisclosedCycle, pointer: str, require: Callable[[str, str, object, object], None]
) -> None:
    report, record = entry.report, entry.record
    assert record is not None  # as the caller saw
    require("record", "record_hash", report.record_hash, compute_content_hash(record))
    try:
        derived = derive_report(record, state.commitments, report.post_commitments, record_uri=report.record_uri)
    except InvalidJson as error:
        place = f"{pointer}/record{error.pointer}"
        raise BrokenBundle(entry.seq, place, "record", error.rule, "something else") from None
    except InvalidInput as error:
        raise BrokenBundle(entry.seq, f"{pointer}/record", "record", error.rule, "something else") from None
    for member, name in REPORT_MEMBERS.items():
        require(f"report/{member}", "report", getattr(derived, name), getattr(report, name))
    if entry.summary is not None:
        same = entry.summary == record["summary"]
        require("summary", "summary", "the summary in the record", "the summary in the record" if same else "another")


def _verify_documents(
    documents: tuple[DisclosedDocument, ...],
    commitments: Commitments,
    allowed: int,
    level: int,
    seq: int | None,
    pointer: str,
) -> None:
    seen = 0
    for index, one in enumerate(documents):
        place = f"{pointer}/{index}"
        if level < FULL:
            raise BrokenBundle(seq, place, "document_level", f"no document below level {FULL}", f"level {level}")
        if not allowed >> one.layer & 1 or seen >> one.layer & 1:
            raise BrokenBundle(seq, f"{place}/layer", "document_layer", "a layer that changed, once", one.layer)
        seen |= 1 << one.layer
        try:
            computed: object = commit_to_document(one.document, one.salt) if _names(one) else "another layer's"
        except InvalidInput:
            computed = "no state document of a layer"
        if computed != commitments[one.layer]:
            raise BrokenBundle(seq, place, "document_commitment", commitments[one.layer], computed)


def _names(one: DisclosedDocument) -> bool:
    return type(one.document.get("layer")) is int and one.document["layer"] == one.layer


# Reading. Errors hold a pointer and a rule, and never the value: it may be a document or a salt.

_CHAIN_ID = re.compile(r"[1-9][0-9]{0,77}", re.ASCII)


def _read_chain_id(value: Json) -> int:
    if not isinstance(value, str) or not _CHAIN_ID.fullmatch(value) or int(value) >= 2**256:
        raise InvalidJson("/reference/chainId", 'it must be a string of decimal digits from "1" to 2^256 - 1')
    return int(value)


def _read_state(value: Json) -> DisclosedState:
    version, commitments, root, documents = read_members(value, "/state", _STATE)
    return DisclosedState(
        _read_wide(version, "/state/version"),
        _read_commitments(commitments, "/state/commitments"),
        read_word(root, "/state/root"),
        _read_documents(documents, "/state/documents"),
    )


def _read_entry(value: Json, pointer: str) -> DisclosedCycle:
    seq, new_version, changed, recorded_at, submitter, report, summary, record, documents = read_members(
        value, pointer, _ENTRY
    )
    if summary is not None and not isinstance(summary, str):
        raise InvalidJson(f"{pointer}/summary", "it must be text, or null")
    if record is not None and not isinstance(record, dict):
        raise InvalidJson(f"{pointer}/record", "it must be an object, or null")
    return DisclosedCycle(
        _read_wide(seq, f"{pointer}/seq"),
        _read_wide(new_version, f"{pointer}/newVersion"),
        _read_number(changed, 4, f"{pointer}/changedLayers"),
        _read_number(recorded_at, TIME_BITS, f"{pointer}/recordedAt"),
        read_address(submitter, f"{pointer}/submitter"),
        _read_report(report, f"{pointer}/report"),
        summary,
        record,
        _read_documents(documents, f"{pointer}/documents"),
    )


def _read_report(value: Json, pointer: str) -> CycleReport:
    members = read_members(value, pointer, tuple(REPORT_MEMBERS))
    read: dict[str, Any] = {}
    for (member, name), given in zip(REPORT_MEMBERS.items(), members, strict=True):
        place = f"{pointer}/{member}"
        if member in _WIDE:
            read[name] = _read_wide(given, place)
        elif name in BITS:
            read[name] = _read_number(given, BITS[name], place)
        elif name == "post_commitments":
            read[name] = _read_commitments(given, place)
        elif name == "record_uri":
            if not isinstance(given, str):
                raise InvalidJson(place, "it must be text")
            read[name] = given
        else:
            read[name] = read_word(given, place)
    return CycleReport(**read)


def _read_documents(value: Json, pointer: str) -> tuple[DisclosedDocument, ...]:
    found = []
    for index, entry in enumerate(read_list(value, pointer)):
        place = f"{pointer}/{index}"
        layer, document, salt = read_members(entry, place, _DOCUMENT)
        if not isinstance(document, dict):
            raise InvalidJson(f"{place}/document", "it must be an object")
        number = _read_number(layer, 2, f"{place}/layer")
        found.append(DisclosedDocument(number, document, read_word(salt, f"{place}/salt")))
    return tuple(found)


def _read_commitments(value: Json, pointer: str) -> Commitments:
    words = [read_word(word, f"{pointer}/{index}") for index, word in enumerate(read_list(value, pointer))]
    if len(words) != 4:
        raise InvalidJson(pointer, "it must be four words, one for each layer")
    return words[0], words[1], words[2], words[3]


def _read_wide(value: Json, pointer: str) -> int:
    try:
        return parse_sequence(value)
    except InvalidInput as error:
        raise InvalidJson(pointer, f"it must be {error.rule}") from None


def _read_number(value: Json, bits: int, pointer: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise InvalidJson(pointer, f"it must be an integer from 0 to 2^{bits} - 1")
    return value


# Writing


def _entry_to_json(entry: DisclosedCycle) -> dict[str, Json]:
    return {
        "seq": str(entry.seq),
        "newVersion": str(entry.new_version),
        "changedLayers": entry.changed_layers,
        "recordedAt": entry.recorded_at,
        "submitter": str(entry.submitter),
        "report": {
            member: _member_to_json(member, getattr(entry.report, name)) for member, name in REPORT_MEMBERS.items()
        },
        "summary": entry.summary,
        "record": entry.record,
        "documents": [_document_to_json(one) for one in entry.documents],
    }


def _member_to_json(member: str, value: Any) -> Json:
    if isinstance(value, tuple):
        return [str(word) for word in value]
    if isinstance(value, bytes) or member in _WIDE:
        return str(value)
    return value if isinstance(value, str) else int(value)


def _document_to_json(one: DisclosedDocument) -> dict[str, Json]:
    return {"layer": one.layer, "document": one.document, "salt": str(one.salt)}
