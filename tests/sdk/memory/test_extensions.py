"""The pure half of the optional records: ids, roots, URIs, and events from logs."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

import melete
from melete.errors import (
    EmptyRange,
    EmptyUri,
    InvalidInput,
    InvalidJson,
    InvalidUriCharacter,
    UriTooLong,
    ZeroFromSequence,
)
from melete.memory.events import LogReference
from melete.memory.extensions.descriptor import MAX_URI_BYTES, check_uri
from melete.memory.extensions.events import (
    TOPICS,
    AuditAcknowledged,
    AuditGranted,
    AuditRevoked,
    DeletionAttested,
    DescriptorCleared,
    DescriptorPublished,
    decode_record_event,
    read_uri,
)
from melete.memory.extensions.grants import (
    AUDIT_WITNESS_TYPE,
    AUDIT_WITNESS_TYPEHASH,
    WitnessEntry,
    check_range,
    compute_grant_id,
    compute_next_witness_root,
    compute_witness_hash,
    fold_witness_root,
)
from melete.primitives import UINT64_MAX, Address, Bytes32
from strategies import addresses, uint64s, words

SPACE, AUDITOR, GRANT, ROOT = Bytes32(b"\xa1" * 32), Address(b"\x11" * 20), Bytes32(b"\xa2" * 32), Bytes32(b"\xa3" * 32)


def entry(sequence: int) -> WitnessEntry:
    return WitnessEntry(sequence, Bytes32(keccak(text=f"t{sequence}")), Bytes32(keccak(text=f"w{sequence}")))


def entries(first: int, last: int) -> list[WitnessEntry]:
    return [entry(sequence) for sequence in range(first, last + 1)]


# Grant ids


@given(words, addresses, uint64s, uint64s)
def test_grant_id_is_the_hash_of_four_words(space_id: bytes, auditor: bytes, first: int, last: int) -> None:
    packed = encode(["bytes32", "address", "uint64", "uint64"], [space_id, auditor, first, last])
    assert compute_grant_id(Bytes32(space_id), Address(auditor), first, last) == keccak(packed)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("spaceId", (b"\x01" * 31, AUDITOR, 1, 2)),
        ("auditor", (SPACE, "0x11", 1, 2)),
        ("fromSequence", (SPACE, AUDITOR, -1, 2)),
        ("fromSequence", (SPACE, AUDITOR, True, 2)),
        ("toSequence", (SPACE, AUDITOR, 1, 2**64)),
        ("toSequence", (SPACE, AUDITOR, 1, 2.0)),
    ],
)
def test_grant_id_names_the_value_that_it_refuses(field: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        compute_grant_id(*arguments)
    assert caught.value.field == field


# Ranges


@pytest.mark.parametrize("ends", [(1, 1), (1, UINT64_MAX), (UINT64_MAX, UINT64_MAX), (7, 9)])
def test_range_of_transitions_passes(ends: tuple[int, int]) -> None:
    check_range(*ends)


@given(uint64s)
def test_range_never_starts_at_zero(last: int) -> None:
    with pytest.raises(ZeroFromSequence):
        check_range(0, last)


@given(uint64s.filter(bool), uint64s)
def test_range_is_empty_exactly_if_it_ends_before_it_starts(first: int, last: int) -> None:
    if last >= first:
        check_range(first, last)
        return
    with pytest.raises(EmptyRange) as caught:
        check_range(first, last)
    assert vars(caught.value) == {"from_sequence": first, "to_sequence": last}


# Witness hashes


def test_witness_hash_is_that_of_the_canonical_bytes_however_it_is_written() -> None:
    canonical = '{"deltaSalt":"0x01","payload":"naïve"}'
    for text in (canonical, '{ "payload": "na\\u00efve", "deltaSalt": "0x01" }'):
        assert compute_witness_hash(json.loads(text)) == keccak(canonical.encode())


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "{}", [], [{}], b"{}"])
def test_witness_that_is_no_object_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        compute_witness_hash(value)
    assert caught.value.field == "witness"
    assert "not shown" in str(caught.value)


@pytest.mark.parametrize("value", [2**53, float("nan"), "\ud800"])
def test_witness_without_a_canonical_form_is_refused_at_its_place(value: Any) -> None:
    with pytest.raises(InvalidJson) as caught:
        compute_witness_hash({"payload": [value]})
    assert caught.value.pointer == "/payload/0"


# Roots


@given(words, words, words)
def test_next_witness_root_is_the_hash_of_type_and_three_words(root: bytes, transition: bytes, witness: bytes) -> None:
    assert keccak(text=AUDIT_WITNESS_TYPE) == AUDIT_WITNESS_TYPEHASH
    packed = encode(["bytes32"] * 4, [AUDIT_WITNESS_TYPEHASH, root, transition, witness])
    assert compute_next_witness_root(Bytes32(root), Bytes32(transition), Bytes32(witness)) == keccak(packed)


@given(st.integers(1, 2**64 - 21), st.integers(0, 20))
def test_fold_starts_from_zero_and_takes_every_entry_in_turn(first: int, more: int) -> None:
    root = Bytes32(bytes(32))
    for one in entries(first, first + more):
        root = compute_next_witness_root(root, one.transition_id, one.witness_hash)
    assert fold_witness_root(iter(entries(first, first + more)), first, first + more) == root


@given(st.permutations(range(5)))
def test_fold_accepts_no_order_but_the_ascending_one(order: list[int]) -> None:
    given_entries = [entries(1, 5)[place] for place in order]
    if order == [0, 1, 2, 3, 4]:
        fold_witness_root(given_entries, 1, 5)
        return
    due = next(place for place, number in enumerate(order) if place != number) + 1
    with pytest.raises(InvalidInput, match=f"must be {due}, the next one") as caught:
        fold_witness_root(given_entries, 1, 5)
    assert (caught.value.field, caught.value.value) == ("sequence", order[due - 1] + 1)


@given(st.sets(st.integers(1, 6), max_size=5))
def test_fold_accepts_no_part_of_a_range(kept: set[int]) -> None:
    with pytest.raises(InvalidInput):
        fold_witness_root([entry(sequence) for sequence in sorted(kept)], 1, 6)


def test_fold_of_a_cut_range_names_what_is_missing() -> None:
    with pytest.raises(InvalidInput, match="sequence 4 is next") as caught:
        fold_witness_root(entries(2, 3), 2, 9)
    assert (caught.value.field, caught.value.value) == ("entries", 2)


def test_fold_ends_where_the_range_ends() -> None:
    with pytest.raises(InvalidInput, match="none after 3"):
        fold_witness_root(entries(1, 4), 1, 3)


def test_fold_reads_one_entry_beyond_the_range_at_most() -> None:
    """A hostile list may have no end."""
    endless = (entry(sequence) for sequence in itertools.count(1))
    with pytest.raises(InvalidInput):
        fold_witness_root(endless, 1, 2)
    assert next(endless).sequence == 4


def test_fold_of_an_impossibly_large_range_takes_no_time_and_no_memory() -> None:
    with pytest.raises(InvalidInput, match="sequence 3 is next"):
        fold_witness_root(entries(1, 2), 1, UINT64_MAX)


@pytest.mark.parametrize(("ends", "error"), [((0, 1), ZeroFromSequence), ((2, 1), EmptyRange)])
def test_fold_refuses_what_is_no_range_before_it_reads(ends: tuple[int, int], error: type[Exception]) -> None:
    def unread() -> Iterator[WitnessEntry]:
        pytest.fail("an entry was read")
        yield entry(1)

    with pytest.raises(error):
        fold_witness_root(unread(), *ends)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("member", ["transition_id", "witness_hash"])
def test_fold_of_one_other_word_is_another_root(place: int, member: str) -> None:
    whole = entries(1, 4)
    words_of = {"transition_id": whole[place].transition_id, "witness_hash": whole[place].witness_hash}
    changed = [*whole]
    changed[place] = WitnessEntry(place + 1, **{**words_of, member: Bytes32(b"\x07" * 32)})
    assert fold_witness_root(changed, 1, 4) != fold_witness_root(whole, 1, 4)


def test_entry_is_frozen_and_checks_its_values() -> None:
    with pytest.raises(FrozenInstanceError):
        entry(1).sequence = 2  # type: ignore[misc]
    for arguments in [(-1, ROOT, ROOT), (2**64, ROOT, ROOT), (1, b"", ROOT), (1, ROOT, "0x")]:
        with pytest.raises(InvalidInput):
            WitnessEntry(*arguments)  # type: ignore[arg-type]


# URIs

PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@given(st.text(PRINTABLE, min_size=1, max_size=100))
def test_uri_of_printable_ascii_passes(uri: str) -> None:
    assert check_uri(uri) == uri.encode("ascii")


def test_uri_is_refused_by_the_contracts_own_errors_in_its_order() -> None:
    with pytest.raises(EmptyUri):
        check_uri("")
    assert len(check_uri("a" * MAX_URI_BYTES)) == MAX_URI_BYTES
    with pytest.raises(UriTooLong) as too_long:
        check_uri(" " * (MAX_URI_BYTES + 1))
    assert vars(too_long.value) == {"maximum": 2048, "received": 2049}


@pytest.mark.parametrize("text", [" ", "\n", "\x00", "\x1b[0m", "\x7f", "é", "\u202e", "😀"])
def test_uri_names_its_first_byte_that_is_refused(text: str) -> None:
    with pytest.raises(InvalidUriCharacter) as caught:
        check_uri(f"urn:{text}")
    assert vars(caught.value) == {"index": 4, "received": text.encode()[0]}


@pytest.mark.parametrize("value", [None, 1, b"urn:a", ["urn:a"], "urn:\ud800"])
def test_uri_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        check_uri(value)


# Events

CONTROLLER = Address(b"\x22" * 20)
REFERENCE = LogReference(7, Bytes32(b"\x01" * 32), Bytes32(b"\x02" * 32), 3)
EVENTS: dict[str, tuple[list[Any], list[Any], Callable[..., Any]]] = {
    "DeletionAttested(bytes32,bytes32,bytes32,address)": (
        [SPACE, GRANT, ROOT],
        [CONTROLLER],
        lambda reference: DeletionAttested(SPACE, GRANT, ROOT, CONTROLLER, reference),
    ),
    "AuditGranted(bytes32,address,bytes32,uint64,uint64,bytes32)": (
        [SPACE, AUDITOR, GRANT],
        [1, UINT64_MAX, ROOT],
        lambda reference: AuditGranted(SPACE, AUDITOR, GRANT, 1, UINT64_MAX, ROOT, reference),
    ),
    "AuditAcknowledged(bytes32,address,bytes32)": (
        [SPACE, AUDITOR, GRANT],
        [],
        lambda reference: AuditAcknowledged(SPACE, AUDITOR, GRANT, reference),
    ),
    "AuditRevoked(bytes32,address,bytes32)": (
        [SPACE, AUDITOR, GRANT],
        [],
        lambda reference: AuditRevoked(SPACE, AUDITOR, GRANT, reference),
    ),
    "DescriptorPublished(bytes32,bytes32,address,string)": (
        [SPACE, ROOT, CONTROLLER],
        ["urn:a"],
        lambda reference: DescriptorPublished(SPACE, ROOT, CONTROLLER, "urn:a", reference),
    ),
    "DescriptorCleared(bytes32,address)": (
        [SPACE, CONTROLLER],
        [],
        lambda reference: DescriptorCleared(SPACE, CONTROLLER, reference),
    ),
}


def log_of(signature: str) -> dict[str, Any]:
    indexed, unindexed, _ = EVENTS[signature]
    types = signature.partition("(")[2][:-1].split(",")
    return {
        "topics": [keccak(text=signature), *(bytes(value).rjust(32, b"\0") for value in indexed)],
        "data": encode(types[len(indexed) :], unindexed),
        "blockNumber": REFERENCE.block_number,
        "blockHash": bytes(REFERENCE.block_hash),
        "transactionHash": bytes(REFERENCE.transaction_hash),
        "logIndex": REFERENCE.log_index,
    }


def test_topics_are_those_of_the_shipped_abis() -> None:
    folder = Path(melete.__file__).parent / "chain" / "abi"
    found = {}
    for name in ("AuditGrant", "DeletionAttestation", "SpaceDescriptor"):
        for item in json.loads((folder / f"{name}.json").read_text("utf-8"))["abi"]:
            if item["type"] == "event":
                types = ",".join(argument["type"] for argument in item["inputs"])
                indexed = sum(argument["indexed"] for argument in item["inputs"])
                found[keccak(text=f"{item['name']}({types})")] = (indexed, len(item["inputs"]) - indexed)
    assert found == TOPICS


@pytest.mark.parametrize("signature", EVENTS)
def test_event_is_decoded_with_every_value(signature: str) -> None:
    assert decode_record_event(log_of(signature)) == EVENTS[signature][2](REFERENCE)


def test_other_contracts_events_are_none_of_ours() -> None:
    assert decode_record_event({"topics": [], "data": b""}) is None
    assert decode_record_event({"topics": [keccak(text="Transfer()")], "data": b"\x01"}) is None


@pytest.mark.parametrize("signature", EVENTS)
def test_event_with_a_topic_missing_or_too_many_is_refused(signature: str) -> None:
    log = log_of(signature)
    for topics in (log["topics"][:-1], log["topics"][:1], [*log["topics"], bytes(32)]):
        with pytest.raises(InvalidInput):
            decode_record_event({**log, "topics": topics})


@pytest.mark.parametrize("signature", EVENTS)
def test_event_with_data_cut_or_added_to_is_refused(signature: str) -> None:
    log = log_of(signature)
    for data in (log["data"][:-1], log["data"] + b"\0", log["data"] + bytes(32)):
        if data != log["data"]:
            with pytest.raises(InvalidInput):
                decode_record_event({**log, "data": data})


@pytest.mark.parametrize(
    ("signature", "place"),
    [
        ("DeletionAttested(bytes32,bytes32,bytes32,address)", None),
        ("AuditGranted(bytes32,address,bytes32,uint64,uint64,bytes32)", 2),
        ("AuditGranted(bytes32,address,bytes32,uint64,uint64,bytes32)", None),
        ("AuditAcknowledged(bytes32,address,bytes32)", 2),
        ("AuditRevoked(bytes32,address,bytes32)", 2),
        ("DescriptorPublished(bytes32,bytes32,address,string)", 3),
        ("DescriptorCleared(bytes32,address)", 2),
    ],
)
def test_event_with_dirty_bits_above_a_value_is_refused(signature: str, place: int | None) -> None:
    log = log_of(signature)
    if place is None:
        log["data"] = b"\x01" + log["data"][1:]
    else:
        log["topics"][place] = b"\x01" + log["topics"][place][1:]
    with pytest.raises(InvalidInput):
        decode_record_event(log)


def test_uri_is_read_wherever_its_head_says() -> None:
    for uri in ("", "a", "a" * 31, "a" * 32, "a" * 33, PRINTABLE * 21):
        assert read_uri(encode(["string"], [uri]), 0, 1) == uri
        assert read_uri(encode(["string", "bytes32"], [uri, ROOT]), 0, 2) == uri


@given(st.binary(max_size=200))
def test_data_that_is_no_uri_is_refused_and_nothing_else(data: bytes) -> None:
    try:
        uri = read_uri(data, 0, 1)
    except InvalidInput:
        return
    assert encode(["string"], [uri]) == data


@pytest.mark.parametrize("length", [0, 5, 2**63, 2**256 - 1])
@pytest.mark.parametrize("offset", [0, 1, 31, 33, 64, 2**255])
def test_uri_with_a_head_that_points_elsewhere_is_refused(offset: int, length: int) -> None:
    data = offset.to_bytes(32, "big") + length.to_bytes(32, "big") + b"urn:a".ljust(32, b"\0")
    with pytest.raises(InvalidInput):
        read_uri(data, 0, 1)


@pytest.mark.parametrize("text", [b"urn:\x1b", b"urn: ", b"\xff\xfe", b"urn:\0"])
def test_uri_of_bytes_that_no_descriptor_holds_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_uri(encode(["bytes"], [text]), 0, 1)


# What it may import


@pytest.mark.parametrize("module", ["grants", "events"])
def test_the_pure_modules_import_nothing_that_touches_a_chain(module: str) -> None:
    tree = ast.parse((Path(melete.__file__).parent / "memory" / "extensions" / f"{module}.py").read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {name for name in imported if name and name.startswith("melete.")}
    assert own <= {"melete.canonical", "melete.errors", "melete.primitives", "melete.memory.events"}
