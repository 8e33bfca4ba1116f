"""Whether a registry holds what a maintenance disclosure tells: by a node's word, at one block.

The roots are the registry's own state, the records its events. A disclosure names every record between its first and
its last, so one that was left out shows. The address is the disclosure's own word, and anyone can deploy a contract
that answers what they like: so the code is looked at.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from melete.chain.connection import call, check_chain, require_code
from melete.chain.logs import BlockReference, Scanner
from melete.errors import BrokenBundle, ContractError, NotARegistry, UnusableLogs
from melete.meditation.disclosure import REPORT_MEMBERS, DisclosedCycle, MaintenanceDisclosure
from melete.meditation.events import TOPICS, CycleRecorded, MeditationEvent, decode_event
from melete.meditation.layers import compute_root
from melete.meditation.registry import decode_answer, encode_call, to_head
from melete.primitives import Bytes32, uint_word
from melete.resources import load_artifact

if TYPE_CHECKING:
    from web3 import Web3

REGISTRY_CONTRACT: Final = "AgentMeditationRegistry"
#: A provider bounds the alternatives for one topic.
MOST_ALTERNATIVES: Final = 100
#: What a disclosure can break against a registry, beside `melete.meditation.disclosure.RULES`.
ANCHORING_RULES: Final = ("enrolled", "record_count", "root_at", "event", "left_out")


def verify_by_node(disclosure: MaintenanceDisclosure, w3: Web3, block: BlockReference, from_block: int = 0) -> bool:
    """Return whether the registry runs this package's code, once it holds at a block all that a disclosure tells.

    `from_block` is at or before the block of the first record. Call `verify_maintenance` first. Errors: `BrokenBundle`
    with one of `ANCHORING_RULES`; `UnusableLogs` when an event that should be there is not among the logs;
    `WrongChain`, `NoContract`, `NotARegistry`, `NodeRefused`, `NodeUnreachable`.
    """
    check_chain(w3, disclosure.reference.chain_id)
    code = require_code(w3, disclosure.reference.registry)
    _verify_roots(disclosure, w3, block)
    _verify_events(disclosure, w3, block, from_block)
    artifact = load_artifact(REGISTRY_CONTRACT)
    return artifact.compute_template_hash(code) == artifact.template_hash


def _verify_roots(disclosure: MaintenanceDisclosure, w3: Web3, block: BlockReference) -> None:
    subject = disclosure.reference.subject
    head = to_head(_view(disclosure, w3, block, "headOf", subject))
    if not head.enrolled:
        raise BrokenBundle(None, "/reference/subject", "enrolled", "a subject that is enrolled", subject)
    claimed: list[tuple[str, int | None, int, Bytes32]] = []
    claimed.append(("/state/root", None, disclosure.state.version, disclosure.state.root))
    for index, entry in enumerate(disclosure.entries):
        if entry.seq > head.record_count:
            expected = f"at most {head.record_count}, the number of the subject's records"
            raise BrokenBundle(entry.seq, f"/entries/{index}/seq", "record_count", expected, entry.seq)
        claimed.append((f"/entries/{index}/report/postCommitments", entry.seq, entry.new_version, _root_after(entry)))
    for pointer, seq, version, root in claimed:
        found = Bytes32(_view(disclosure, w3, block, "rootAt", subject, version)[0])
        if found != root:
            raise BrokenBundle(seq, pointer, "root_at", found, root)


def _verify_events(disclosure: MaintenanceDisclosure, w3: Web3, block: BlockReference, from_block: int) -> None:
    if not disclosure.entries:
        return
    remaining = {entry.seq: (index, entry) for index, entry in enumerate(disclosure.entries)}
    first, last = min(remaining), max(remaining)
    topics: list[Bytes32 | list[Bytes32] | None] = [
        TOPICS[CycleRecorded],
        Bytes32(disclosure.reference.subject.word),
    ]
    if last - first < MOST_ALTERNATIVES:
        topics.append([Bytes32(uint_word(number)) for number in range(first, last + 1)])
    scanner: Scanner[MeditationEvent] = Scanner(
        w3,
        disclosure.reference.registry,
        decode_event,
        start_block=from_block,
        until=block.number,
        topics=topics,
    )
    for event in scanner.events():
        if not isinstance(event, CycleRecorded) or not first <= event.seq <= last:
            continue
        if event.seq not in remaining:
            raise BrokenBundle(event.seq, "/entries", "left_out", "an entry for each record of the range", "none")
        index, entry = remaining.pop(event.seq)
        _compare(event, entry, f"/entries/{index}")
    if remaining:
        raise UnusableLogs(f"there is no event of record {min(remaining)} from block {from_block} on")


def _compare(event: CycleRecorded, entry: DisclosedCycle, pointer: str) -> None:
    """Hold an entry against the registry's event, member by member."""
    told = [("newVersion", event.new_version, entry.new_version),
            ("changedLayers", event.changed_layers, entry.changed_layers),
            ("recordedAt", event.recorded_at, entry.recorded_at),
            ("submitter", event.submitter, entry.submitter)]  # fmt: skip
    names = {name: member for member, name in REPORT_MEMBERS.items()}
    for one in fields(event.report):
        expected, received = getattr(event.report, one.name), getattr(entry.report, one.name)
        if one.name == "post_commitments":
            told += [
                (f"report/postCommitments/{layer}", a, b)
                for layer, (a, b) in enumerate(zip(expected, received, strict=True))
            ]
        else:
            told.append((f"report/{names[one.name]}", expected, received))
    for member, expected, received in told:
        if expected != received:
            raise BrokenBundle(entry.seq, f"{pointer}/{member}", "event", expected, received)


def _root_after(entry: DisclosedCycle) -> Bytes32:
    return compute_root(entry.report.post_commitments)


def _view(
    disclosure: MaintenanceDisclosure, w3: Web3, block: BlockReference, view: str, *arguments: object
) -> tuple[Any, ...]:
    registry = disclosure.reference.registry
    at = {"blockHash": str(block.hash), "requireCanonical": True}
    try:
        answer = call(w3, registry, encode_call(view, *arguments), block=at)
    except ContractError as error:
        raise NotARegistry(registry, view, str(error)) from error
    return decode_answer(registry, view, answer)
