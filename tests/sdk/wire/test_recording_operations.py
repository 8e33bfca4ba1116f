from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.canonical import canonicalize, load_json
from melete.errors import InvalidInput
from melete.primitives import ZERO_BYTES32, Bytes32, keccak256
from melete.wire.audit import EMPTY, Action, AuditHead, Entry, compute_digest
from melete.wire.errors import BrokenAudit
from melete.wire.recording.operations import (
    BatchHead,
    Content,
    Write,
    build_operations,
    entry_to_operation,
    operation_to_entry,
)

IDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(40)]
SALT = keccak256(b"salt")

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
contents = st.builds(
    Content,
    st.integers(1, 2**53 - 1),
    st.sampled_from(IDS),
    texts,
    st.lists(texts, max_size=3).map(tuple),
    st.none() | st.dictionaries(texts, st.integers() | texts, max_size=3).map(json.dumps),
    st.binary(min_size=32, max_size=32).map(Bytes32),
)


def make_content(number: int, text: str = "likes tea", **members: Any) -> Content:
    return replace(Content(number, IDS[number], text, ("drinks",), '{"z":1,"a":2.5}', SALT), **members)


def digest_of(content: Content) -> Bytes32:
    metadata = None if content.metadata is None else json.loads(content.metadata)
    return compute_digest(content.salt, content.content, content.tags, metadata)


def make_writes(actions: list[Action], before: AuditHead = EMPTY) -> list[Write]:
    """Audit rows that follow one by one; those that write a memory come with its content."""
    writes, at = [], before
    for action in actions:
        number = at.number + 1
        content = make_content(number) if action in (Action.REMEMBER, Action.MERGE, Action.APPROVE) else None
        digest = None if content is None else digest_of(content)
        entry = Entry(number, at.hash, 1_800_000_000, action, "ada", "semantic", (IDS[number],), digest=digest)
        data = entry.to_bytes()
        writes.append(Write(data, keccak256(data), content))
        at = AuditHead(number, keccak256(data))
    return writes


MIXED = [Action.REMEMBER, Action.EXPIRE, Action.MERGE, Action.FORGET, Action.APPROVE, Action.PROPOSE]


# Contents


@given(contents)
def test_content_is_canonical_json_and_comes_back(content: Content) -> None:
    data = content.to_bytes()
    assert canonicalize(load_json(data)) == data
    assert Content.from_bytes(data) == content


def test_content_shows_nothing_of_itself() -> None:
    assert "tea" not in repr(make_content(1))
    assert str(SALT)[2:] not in repr(make_content(1))


GOOD = make_content(1).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"likes tea",
        GOOD + b" ",
        GOOD.replace(b'"number":1', b'"number": 1'),
        GOOD.replace(b'"number":1', b'"number":1.5'),
        GOOD.replace(b'"number":1', b'"number":"1"'),
        GOOD.replace(b'"tags":["drinks"]', b'"tags":"drinks"'),
        GOOD.replace(b'"tags":["drinks"]', b'"tags":[1]'),
        GOOD.replace(b'"tags":["drinks"]', b'"tags":["drinks"],"x":1'),
        GOOD.replace(b"melete.memory-content/1", b"melete.memory-content/2"),
        GOOD.replace(str(SALT).encode(), b"0x00"),
        BatchHead(1, 1, ZERO_BYTES32, SALT).to_bytes(),
    ],
)
def test_content_in_any_other_form_is_refused_and_not_shown(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Content.from_bytes(data)
    assert caught.value.field == "operation"
    assert "tea" not in str(caught.value)


def test_metadata_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidInput):
        make_content(1, metadata="{").compute_digest()


# Audit rows


@pytest.mark.parametrize("write", make_writes(MIXED), ids=lambda write: write.entry.action.value)
def test_audit_row_is_recorded_verbatim(write: Write) -> None:
    operation = entry_to_operation(write.data, write.hash)
    assert canonicalize(load_json(operation)) == operation
    assert operation_to_entry(operation) == (write.data, write.hash)
    assert keccak256(write.data) == write.hash


ROW = entry_to_operation(make_writes(MIXED)[0].data, make_writes(MIXED)[0].hash)


@pytest.mark.parametrize(
    "operation",
    [
        b"",
        b"{}",
        ROW[:-1],
        ROW + b" ",
        b" " + ROW,
        ROW.replace(b"melete.memory-operation/1", b"melete.memory-operation/2"),
        ROW[:-4] + b"zz" + ROW[-2:],
        ROW[:-4].replace(b'"hash":"0x', b'"hash":"0X') + ROW[-4:],
        GOOD,
    ],
)
def test_operation_that_is_no_audit_row_is_refused(operation: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        operation_to_entry(operation)
    assert caught.value.field == "operation"


# Batches


def test_batch_holds_its_head_then_all_rows_then_their_contents() -> None:
    before = AuditHead(3, keccak256(b"before"))
    writes = make_writes(MIXED, before)
    head, operations = build_operations(before, writes)
    assert (head.first, head.last, head.previous, head.hash) == (4, 9, before.hash, writes[-1].hash)
    assert head.contents == (4, 6, 8)
    assert head.count == len(operations) == 1 + 6 + 3
    assert BatchHead.from_bytes(operations[0]) == head
    assert [operation_to_entry(operations[head.entry_index(number)])[0] for number in range(4, 10)] == [
        write.data for write in writes
    ]
    for write in writes:
        place = head.content_index(write.entry.number)
        assert (place is None) == (write.content is None)
        if place is not None:
            assert Content.from_bytes(operations[place]) == write.content
    assert (head.before, head.after) == (before, AuditHead(9, writes[-1].hash))


def test_content_that_is_gone_leaves_its_row_in_the_batch() -> None:
    first, *others = make_writes([Action.REMEMBER, Action.REMEMBER])
    head, operations = build_operations(EMPTY, [replace(first, content=None), *others])
    assert (head.contents, head.count, len(operations)) == ((2,), 4, 4)
    assert head.content_index(1) is None


def test_rows_hold_no_content() -> None:
    head, operations = build_operations(EMPTY, make_writes(MIXED))
    for operation in operations[: 1 + head.rows]:
        assert b"tea" not in operation
        assert str(SALT).encode() not in operation


def test_number_of_another_batch_has_no_place() -> None:
    head, _ = build_operations(EMPTY, make_writes(MIXED))
    for number in (0, 7, -1):
        with pytest.raises(InvalidInput):
            head.entry_index(number)
        assert head.content_index(number) is None


HEAD = BatchHead(4, 9, keccak256(b"before"), keccak256(b"after"), (4, 6, 8)).to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"\n",
        HEAD.replace(b'"first":4', b'"first":0'),
        HEAD.replace(b'"first":4', b'"first":10'),
        HEAD.replace(b'"first":4', b'"first":true'),
        HEAD.replace(b'"first":4', b'"first":"4"'),
        HEAD.replace(b"[4,6,8]", b"[6,4,8]"),
        HEAD.replace(b"[4,6,8]", b"[4,4,8]"),
        HEAD.replace(b"[4,6,8]", b"[4,6,10]"),
        HEAD.replace(b"[4,6,8]", b"[4,6,null]"),
        HEAD.replace(b"[4,6,8]", b"4"),
        HEAD.replace(b'"last":9', b'"last":9007199254740993'),
        HEAD.replace(str(keccak256(b"after")).encode(), b"0x"),
        b"{}",
        b"[]",
        ROW,
    ],
)
def test_head_in_any_other_form_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        BatchHead.from_bytes(data)
    assert caught.value.field == "operation"


def rewritten(write: Write, **members: Any) -> Write:
    """The same row with another entry, which agrees with itself."""
    data = replace(write.entry, **members).to_bytes()
    return Write(data, keccak256(data), write.content)


def other_number(write: Write) -> Write:
    return rewritten(write, number=write.entry.number + 1)


def other_previous(write: Write) -> Write:
    return rewritten(write, previous=keccak256(b"other"))


def other_digest(write: Write) -> Write:
    return rewritten(write, digest=keccak256(b"other"))


def other_hash(write: Write) -> Write:
    return replace(write, hash=keccak256(b"other"))


def other_content(write: Write) -> Write:
    return replace(write, content=make_content(write.entry.number, "likes coffee"))


def content_of_another_row(write: Write) -> Write:
    return replace(write, content=make_content(write.entry.number + 1))


def other_salt(write: Write) -> Write:
    return replace(write, content=make_content(write.entry.number, salt=keccak256(b"other")))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "forge",
    [other_number, other_previous, other_digest, other_hash, other_content, content_of_another_row, other_salt],
)
def test_rows_that_do_not_hold_together_are_not_recorded(forge: Callable[[Write], Write], place: int) -> None:
    writes = make_writes([Action.REMEMBER, Action.MERGE])
    writes[place] = forge(writes[place])
    with pytest.raises(BrokenAudit):
        build_operations(EMPTY, writes)


@pytest.mark.parametrize("data", [b"", b"{}", b"likes tea"])
def test_row_that_is_no_entry_is_refused_and_not_shown(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Write(data, keccak256(data))
    assert "tea" not in str(caught.value)


def test_content_beside_a_row_that_wrote_none_is_refused() -> None:
    (write,) = make_writes([Action.FORGET])
    with pytest.raises(BrokenAudit):
        build_operations(EMPTY, [replace(write, content=make_content(1))])


def test_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput):
        build_operations(EMPTY, [])
