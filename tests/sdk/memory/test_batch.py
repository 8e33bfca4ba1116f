from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, NotIncluded
from melete.memory.batch import (
    Batch,
    BatchTree,
    InclusionProof,
    Operation,
    compute_batch,
    compute_node,
    verify_inclusion,
)
from melete.primitives import Bytes32
from strategies import words

operations = st.lists(st.builds(Operation, st.binary(max_size=40), words.map(Bytes32)), min_size=1, max_size=40)


def split_root(leaves: list[bytes]) -> bytes:
    """The root by the rule of RFC 6962: the left side is the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << (len(leaves) - 1).bit_length() - 1
    return keccak(b"\x01" + split_root(leaves[:left]) + split_root(leaves[left:]))


def leaf_of(operation: Operation) -> bytes:
    return keccak(b"\x00" + operation.salt + keccak(operation.content))


def make_tree(given: list[Operation]) -> BatchTree:
    return BatchTree(operation.compute_leaf() for operation in given)


def number(count: int) -> list[Operation]:
    """Operations that differ."""
    return [Operation(b"%d" % index, Bytes32(keccak(b"salt %d" % index))) for index in range(count)]


def reason(batch: Batch, operation: Operation, proof: InclusionProof) -> str:
    with pytest.raises(NotIncluded) as caught:
        verify_inclusion(batch, operation, proof)
    return caught.value.what


# The root


@given(operations)
def test_root_is_that_of_another_reading_of_the_tree(given: list[Operation]) -> None:
    leaves = [leaf_of(operation) for operation in given]
    expected = Batch(len(given), Bytes32(split_root(leaves)))
    assert make_tree(given).batch == expected
    assert compute_batch(operation.compute_leaf() for operation in given) == expected


def test_batch_of_one_is_its_leaf() -> None:
    (only,) = number(1)
    assert make_tree([only]).batch == Batch(1, only.compute_leaf())
    assert make_tree([only]).prove_inclusion(0) == InclusionProof(0, 1, ())


def test_odd_node_moves_up_unchanged() -> None:
    a, b, c = (operation.compute_leaf() for operation in number(3))
    assert BatchTree([a, b, c]).batch.root == compute_node(compute_node(a, b), c)
    assert BatchTree([a, b, c]).batch.root != BatchTree([a, b, c, c]).batch.root


def test_batch_of_no_operations_is_refused() -> None:
    for make in (BatchTree, compute_batch):
        with pytest.raises(InvalidInput):
            make([])


@given(operations, st.data())
def test_root_changes_with_every_operation_salt_and_order(given: list[Operation], data: st.DataObject) -> None:
    root = make_tree(given).batch
    at = data.draw(st.integers(0, len(given) - 1))
    for changed in (
        replace(given[at], content=given[at].content + b"\x00"),
        replace(given[at], salt=Bytes32(keccak(given[at].salt))),
    ):
        assert make_tree([*given[:at], changed, *given[at + 1 :]]).batch != root
    if given[::-1] != given:
        assert make_tree(given[::-1]).batch != root


# Proofs


@given(operations)
def test_every_operation_is_shown_by_its_proof_and_no_other_is(given: list[Operation]) -> None:
    tree = make_tree(given)
    for index, operation in enumerate(given):
        proof = tree.prove_inclusion(index)
        assert verify_inclusion(tree.batch, operation, proof) == leaf_of(operation)
        assert len(proof.siblings) <= (len(given) - 1).bit_length()
        for other in given:
            if other != operation:
                assert reason(tree.batch, other, proof) == "root"


@given(operations, st.data())
def test_proof_holds_for_one_index_one_count_and_one_path(given: list[Operation], data: st.DataObject) -> None:
    tree = make_tree(given)
    index = data.draw(st.integers(0, len(given) - 1))
    proof, operation = tree.prove_inclusion(index), given[index]
    count = data.draw(st.integers(1, 80).filter(lambda count: count != len(given)))
    assert reason(tree.batch, operation, replace(proof, count=count)) == "count"
    beyond = data.draw(st.integers(len(given), 100))
    assert reason(tree.batch, operation, replace(proof, index=beyond)) == "index"
    for siblings in ((*proof.siblings, tree.batch.root), proof.siblings[:-1]):
        if len(siblings) != len(proof.siblings):
            assert reason(tree.batch, operation, replace(proof, siblings=siblings)) == "siblings"
    for at in range(len(proof.siblings)):
        changed = [*proof.siblings]
        changed[at] = Bytes32(keccak(changed[at]))
        assert reason(tree.batch, operation, replace(proof, siblings=tuple(changed))) == "root"
    if len(given) > 1 and len({item.compute_leaf() for item in given}) == len(given):
        other = data.draw(st.integers(0, len(given) - 1).filter(lambda other: other != index))
        assert reason(tree.batch, operation, replace(proof, index=other)) in ("root", "siblings")


@given(st.integers(2, 40), st.integers(1, 40))
def test_root_under_another_count_opens_nothing_at_the_old_path(count: int, claimed: int) -> None:
    # Whoever may choose the count beside a root that exists still has to find a path of the right shape.
    given = number(count)
    tree = make_tree(given)
    if claimed == count:
        return
    for index in range(min(count, claimed)):
        proof = replace(tree.prove_inclusion(index), count=claimed)
        try:
            verify_inclusion(Batch(claimed, tree.batch.root), given[index], proof)
        except NotIncluded:
            continue
        # The path has the same sides in both trees: the operation is in both, at the same place.
        assert sides(index, count) == sides(index, claimed)


def sides(index: int, count: int) -> list[bool]:
    """On which side the siblings of an index stand, level by level."""
    found = []
    while count > 1:
        if index % 2 or index + 1 < count:
            found.append(index % 2 == 1)
        index, count = index // 2, (count + 1) // 2
    return found


def test_inner_node_does_not_pass_for_an_operation() -> None:
    leaves = [operation.compute_leaf() for operation in number(4)]
    batch = BatchTree(leaves).batch
    # A second preimage of the classic kind: the children of a node, given as content or as salt and content hash.
    left, right = compute_node(leaves[0], leaves[1]), compute_node(leaves[2], leaves[3])
    assert compute_node(left, right) == batch.root
    for content, salt in ((left + right, Bytes32(bytes(32))), (right, left), (leaves[1], leaves[0])):
        for count, siblings in ((1, ()), (2, (right,)), (4, (right, left))):
            proof = InclusionProof(0, count, siblings)
            for claimed in (batch, Batch(count, batch.root)):
                assert reason(claimed, Operation(content, salt), proof)


def test_leaf_shown_as_a_batch_of_one_does_not_pass_for_the_batch() -> None:
    given = number(5)
    batch = make_tree(given).batch
    assert reason(batch, given[0], InclusionProof(0, 1, ())) == "count"
    assert reason(Batch(1, batch.root), given[0], InclusionProof(0, 1, ())) == "root"


@pytest.mark.parametrize("index", [-1, 3, 2**64, True, 1.0, "1", None])
def test_proof_beyond_the_last_operation_is_refused(index: Any) -> None:
    with pytest.raises(InvalidInput):
        make_tree(number(3)).prove_inclusion(index)


@given(operations)
def test_proof_survives_json(given: list[Operation]) -> None:
    proof = make_tree(given).prove_inclusion(len(given) - 1)
    assert InclusionProof.from_json(proof.to_json()) == proof


PROOF = make_tree(number(3)).prove_inclusion(0).to_json()


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {**PROOF, "note": 1},
        {**PROOF, "index": "0"},
        {**PROOF, "index": -1},
        {**PROOF, "index": True},
        {**PROOF, "count": 0},
        {**PROOF, "count": 3.0},
        {**PROOF, "count": 2**53},
        {**PROOF, "siblings": "0x"},
        {**PROOF, "siblings": [1]},
        {**PROOF, "siblings": ["0x1234"]},
        {**PROOF, "siblings": None},
    ],
)
def test_proof_of_another_shape_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        InclusionProof.from_json(document)


# The payload


@given(st.integers(1, 2**53 - 1), words.map(Bytes32))
def test_payload_is_the_canonical_json_of_count_and_root(count: int, root: Bytes32) -> None:
    batch = Batch(count, root)
    assert batch.to_payload() == b'{"count":%d,"root":"0x%s"}' % (count, root.hex().encode())
    assert Batch.from_payload(batch.to_payload()) == batch


ROOT = "0x" + "ab" * 32


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"not json",
        f'{{"count":0,"root":"{ROOT}"}}'.encode(),
        f'{{"count":-1,"root":"{ROOT}"}}'.encode(),
        f'{{"count":"3","root":"{ROOT}"}}'.encode(),
        f'{{"count":true,"root":"{ROOT}"}}'.encode(),
        f'{{"count":3.0,"root":"{ROOT}"}}'.encode(),
        f'{{"count":9007199254740992,"root":"{ROOT}"}}'.encode(),
        f'{{"root":"{ROOT}","count":3}}'.encode(),
        f'{{"count": 3,"root":"{ROOT}"}}'.encode(),
        f'{{"count":3,"root":"{ROOT}"}}\n'.encode(),
        f'{{"count":3,"root":"{ROOT.upper()}"}}'.encode(),
        f'{{"count":3,"root":"{ROOT.replace("ab", "AB")}"}}'.encode(),
        f'{{"count":3,"root":"{ROOT[:-2]}"}}'.encode(),
        f'{{"count":3,"root":"{ROOT}","note":1}}'.encode(),
        f'{{"count":3,"count":3,"root":"{ROOT}"}}'.encode(),
        b'{"count":3,"root":null}',
    ],
)
def test_payload_in_another_spelling_is_refused_and_not_shown(payload: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Batch.from_payload(payload)
    assert caught.value.value is None


# What is hidden


@pytest.mark.parametrize(
    ("content", "salt"),
    [("likes tea", bytes(32)), (None, bytes(32)), (b"likes tea", b"\x5e" * 31), (b"likes tea", "0x" + "5e" * 33)],
)
def test_operation_of_another_shape_is_refused_and_not_shown(content: Any, salt: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Operation(content, salt)
    assert "tea" not in f"{caught.value} {vars(caught.value)}"
    assert "5e5e" not in f"{caught.value} {vars(caught.value)}"


def test_repr_of_an_operation_shows_neither_content_nor_salt() -> None:
    assert repr(Operation(b"likes tea", Bytes32(b"\x5e" * 32))) == "Operation(content=<9 bytes>)"
