"""Storage proofs against tries that another library builds: what they prove, and all that proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import rlp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from trie import HexaryTrie

from melete import resources
from melete.chain.logs import BlockReference
from melete.chain.proofs import (
    EMPTY_CODE_HASH,
    EMPTY_TRIE_ROOT,
    HEADER_MEMBERS,
    ProvenStorage,
    SlotProof,
    StorageProof,
    compute_mapping_slot,
    decode_header,
    encode_header,
    load_storage_proof,
    verify_contract_storage,
    verify_storage_proof,
)
from melete.errors import CodeMismatch, InvalidInput, MeleteError, MissingExtra, NodeRefused, UnusableProof
from melete.meditation import proofs as meditation_proofs
from melete.memory import proofs as memory_proofs
from melete.memory.proofs import verify_anchor, verify_authorization, verify_head, verify_state_root_at
from melete.memory.space import GENESIS, Head, SpaceAuthorization, SpaceState
from melete.primitives import ZERO_BYTES32, Address, Bytes32, keccak256, uint_word
from melete.resources import load_schema

ACCOUNT, STRANGER = Address(b"\x44" * 20), Address(b"\x55" * 20)
CODE_HASH = keccak256(b"code")
NUMBERS = [name for name, length in HEADER_MEMBERS.items() if length is None]

# A chain of one block


def quantity(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def make_header(state_root: bytes, members: int = 21, number: int = 7) -> bytes:
    values: list[bytes] = []
    for name, length in list(HEADER_MEMBERS.items())[:members]:
        value = keccak256(name.encode())[: min(length or 3, 32)] if length != -1 else b"extra"
        values.append(bytes(value).ljust(length or 0, b"\x07"))
    values[3], values[8] = state_root, quantity(number)
    return bytes(rlp.encode(values))


def nodes_on_the_way(trie: HexaryTrie, key: bytes) -> tuple[bytes, ...]:
    return tuple(rlp.encode(node) for node in trie.get_proof(key) if node != b"")


class State:
    """Accounts and what they store, as the tries of one block."""

    def __init__(self, accounts: dict[Address, dict[int, int]], code_hash: bytes = CODE_HASH) -> None:
        self.trie, self.storages = HexaryTrie({}), {}
        for address, storage in accounts.items():
            tree = HexaryTrie({})
            for slot, value in storage.items():
                if value:
                    tree[keccak256(uint_word(slot))] = rlp.encode(quantity(value))
            self.storages[address] = tree
            self.trie[keccak256(address)] = rlp.encode([quantity(1), quantity(0), tree.root_hash, code_hash])
        self.header = make_header(self.trie.root_hash)
        self.block_hash = keccak256(self.header)

    def prove(self, address: Address, *slots: int) -> StorageProof:
        tree = self.storages.get(address, HexaryTrie({}))
        proofs = tuple(
            SlotProof(Bytes32(uint_word(slot)), nodes_on_the_way(tree, keccak256(uint_word(slot)))) for slot in slots
        )
        return StorageProof(address, self.header, nodes_on_the_way(self.trie, keccak256(address)), proofs)


def a_state(accounts: int = 40, slots: int = 60) -> State:
    """Enough of both that nodes branch twice."""
    others = {Address(keccak256(b"%d" % number)[:20]): {number: number} for number in range(1, accounts)}
    return State({ACCOUNT: {slot: 2 ** (slot * 4) + slot for slot in range(1, slots + 1)}, **others})


def why_not(proof: StorageProof, block_hash: Bytes32, address: Address = ACCOUNT) -> UnusableProof:
    with pytest.raises(UnusableProof) as caught:
        verify_storage_proof(proof, address, block_hash)
    return caught.value


STATE = a_state()
PROOF = STATE.prove(ACCOUNT, 1, 2, 60, 99)

# What is proven


def test_words_follow_from_the_block_hash_alone() -> None:
    proven = verify_storage_proof(PROOF, ACCOUNT, STATE.block_hash)
    assert [int.from_bytes(proven.word(slot), "big") for slot in (1, 2, 60, 99)] == [17, 258, 2**240 + 60, 0]
    assert proven.code_hash == CODE_HASH
    assert proven.header.block == BlockReference(7, STATE.block_hash)
    assert PROOF.block_hash == STATE.block_hash
    assert len(PROOF.slots[0].nodes) > 1
    assert len(PROOF.account_nodes) > 1


@given(
    st.dictionaries(st.integers(0, 40), st.integers(0, 2**256 - 1), max_size=20),
    st.lists(st.integers(0, 60), max_size=6, unique=True),
    st.integers(0, 12),
)
def test_any_storage_is_proven_as_it_is(storage: dict[int, int], slots: list[int], others: int) -> None:
    accounts = {Address(keccak256(b"other %d" % number)[:20]): {} for number in range(others)}
    state = State({ACCOUNT: storage, **accounts})
    proven = verify_storage_proof(state.prove(ACCOUNT, *slots), ACCOUNT, state.block_hash)
    assert proven.words == {Bytes32(uint_word(slot)): Bytes32(uint_word(storage.get(slot, 0))) for slot in slots}


def test_absence_of_a_slot_is_an_answer() -> None:
    for slots in (1, 2, 60):
        state = a_state(slots=slots)
        absent = range(100, 140)
        proven = verify_storage_proof(state.prove(ACCOUNT, *absent), ACCOUNT, state.block_hash)
        assert set(proven.words.values()) == {ZERO_BYTES32}


def test_absence_of_all_storage_is_an_answer() -> None:
    state = State({ACCOUNT: {}, STRANGER: {}})
    for nodes in ((), (b"\x80",)):
        slot = SlotProof(ZERO_BYTES32, nodes)
        proof = replace(state.prove(ACCOUNT), slots=(slot,))
        assert verify_storage_proof(proof, ACCOUNT, state.block_hash).word(0) == ZERO_BYTES32


def test_absence_of_the_account_is_an_answer() -> None:
    proven = verify_storage_proof(STATE.prove(STRANGER, 1, 2), STRANGER, STATE.block_hash)
    assert proven.code_hash is None
    assert set(proven.words.values()) == {ZERO_BYTES32}


@given(st.integers(15, 30))
def test_headers_of_every_fork_are_read(members: int) -> None:
    header = rlp.decode(make_header(STATE.trie.root_hash, min(members, 21)))
    header += [b"member of a later fork"] * max(0, members - 21)
    encoded = rlp.encode(header)
    read = decode_header(encoded, keccak256(encoded))
    assert (read.state_root, read.block.number) == (STATE.trie.root_hash, 7)
    assert read.parent_hash == keccak256(b"parentHash")
    assert read.timestamp == int.from_bytes(keccak256(b"timestamp")[:3], "big")


# What proves nothing


@pytest.mark.parametrize("address", [STRANGER, Address(b"\x44" * 19 + b"\x45")])
def test_proof_of_another_account_is_refused(address: Address) -> None:
    assert "of account" in str(why_not(PROOF, STATE.block_hash, address))
    why_not(replace(STATE.prove(address, 1), address=ACCOUNT), STATE.block_hash)


def test_proof_of_another_block_is_refused() -> None:
    other = State({ACCOUNT: {1: 5}})
    assert "of block" in str(why_not(PROOF, other.block_hash))
    assert "parent names" in str(why_not(replace(PROOF, header=other.header), other.block_hash))


def test_proof_of_another_slot_is_refused() -> None:
    one, two = STATE.prove(ACCOUNT, 1), STATE.prove(ACCOUNT, 2)
    swapped = replace(one, slots=(replace(two.slots[0], slot=one.slots[0].slot),))
    why_not(swapped, STATE.block_hash)
    proven = verify_storage_proof(one, ACCOUNT, STATE.block_hash)
    with pytest.raises(UnusableProof, match="not of slot"):
        proven.word(2)


def test_a_slot_of_another_account_is_refused() -> None:
    other = State({ACCOUNT: {1: 17}, STRANGER: {1: 18, 2: 19}})
    stolen = replace(other.prove(ACCOUNT, 1), slots=other.prove(STRANGER, 1).slots)
    why_not(stolen, other.block_hash)


def test_a_slot_that_is_there_twice_is_refused() -> None:
    slots = STATE.prove(ACCOUNT, 1).slots
    assert "twice" in str(why_not(replace(PROOF, slots=slots + slots), STATE.block_hash))


def all_nodes(proof: StorageProof) -> list[tuple[int, int]]:
    """Where each node stands: -1 for the account's, else the slot's, and its depth."""
    ways = [(-1, proof.account_nodes), *((number, slot.nodes) for number, slot in enumerate(proof.slots))]
    return [(way, depth) for way, nodes in ways for depth in range(len(nodes))]


def with_nodes(proof: StorageProof, way: int, change: Callable[[list[bytes]], list[bytes]]) -> StorageProof:
    if way < 0:
        return replace(proof, account_nodes=tuple(change(list(proof.account_nodes))))
    slots = list(proof.slots)
    slots[way] = replace(slots[way], nodes=tuple(change(list(slots[way].nodes))))
    return replace(proof, slots=tuple(slots))


def replaced(nodes: list[bytes], depth: int, node: bytes) -> list[bytes]:
    return [*nodes[:depth], node, *nodes[depth + 1 :]]


@given(st.sampled_from(all_nodes(PROOF)), st.integers(0, 2**16), st.integers(1, 255))
@settings(max_examples=200)
def test_any_byte_of_any_node_changed_is_refused(place: tuple[int, int], at: int, bits: int) -> None:
    way, depth = place

    def flip(nodes: list[bytes]) -> list[bytes]:
        node, position = nodes[depth], at % len(nodes[depth])
        return replaced(nodes, depth, node[:position] + bytes([node[position] ^ bits]) + node[position + 1 :])

    why_not(with_nodes(PROOF, way, flip), STATE.block_hash)


@given(st.integers(0, len(STATE.header) - 1), st.integers(1, 255))
def test_any_byte_of_the_header_changed_is_refused(at: int, bits: int) -> None:
    header = STATE.header
    flipped = header[:at] + bytes([header[at] ^ bits]) + header[at + 1 :]
    assert "of block" in str(why_not(replace(PROOF, header=flipped), STATE.block_hash))


@pytest.mark.parametrize("place", all_nodes(PROOF))
def test_nodes_missing_doubled_swapped_and_left_over_are_refused(place: tuple[int, int]) -> None:
    way, depth = place
    changes: list[Callable[[list[bytes]], list[bytes]]] = [
        lambda nodes: nodes[:depth] + nodes[depth + 1 :],
        lambda nodes: [*nodes[: depth + 1], *nodes[depth:]],
        lambda nodes: [*nodes[:depth], *nodes[depth + 1 :], nodes[depth]],
        lambda nodes: [*nodes, b"\x80"],
        lambda nodes: [*nodes, nodes[0]],
        lambda nodes: nodes[:depth],
        lambda nodes: replaced(nodes, depth, nodes[depth] + b"\0"),
        lambda nodes: replaced(nodes, depth, b""),
    ]
    for change in changes:
        altered = with_nodes(PROOF, way, change)
        if altered != PROOF:
            why_not(altered, STATE.block_hash)


def test_no_nodes_at_all_prove_nothing_of_a_trie_that_holds_something() -> None:
    for way in (-1, 0, 3):
        assert "ends before" in str(why_not(with_nodes(PROOF, way, lambda _: []), STATE.block_hash))
        why_not(with_nodes(PROOF, way, lambda _: [b"\x80"]), STATE.block_hash)


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_in_place_of_nodes_are_refused(nodes: list[bytes]) -> None:
    why_not(with_nodes(PROOF, 0, lambda _: nodes), STATE.block_hash)
    why_not(with_nodes(PROOF, -1, lambda _: nodes), STATE.block_hash)


# Roots that no chain would have: even then, nothing but an answer or "could not tell"


def rooted(node: bytes) -> tuple[StorageProof, Bytes32]:
    """A proof whose state root is the hash of any bytes."""
    header = make_header(keccak256(node))
    return StorageProof(ACCOUNT, header, (node,), ()), keccak256(header)


def leaf(key: bytes, value: bytes, flag: bytes = b"\x20") -> bytes:
    return bytes(rlp.encode([flag + key, value]))


def account_of(*members: bytes) -> bytes:
    return leaf(keccak256(ACCOUNT), rlp.encode(list(members)))


GOOD_ACCOUNT = (b"\x01", b"", bytes(EMPTY_TRIE_ROOT), bytes(CODE_HASH))

ODD_ROOTS: dict[str, bytes] = {
    "no_rlp": b"\xf8",
    "empty": b"",
    "trailing_bytes": account_of(*GOOD_ACCOUNT) + b"\0",
    "long_form_of_a_short_list": b"\xf8\x02\x20\x20",
    "single_byte_in_long_form": b"\xc3\x81\x20\x20",
    "text": rlp.encode(b"a node"),
    "empty_list": rlp.encode([]),
    "three_items": rlp.encode([b"\x20", b"", b""]),
    "sixteen_items": rlp.encode([b""] * 16),
    "nested_deeply": rlp.encode(b"") and b"\xc1" * 50 + b"\xc0",
    "path_without_a_flag": rlp.encode([b"", b"value"]),
    "path_that_is_a_list": rlp.encode([[b"\x20"], b"value"]),
    "account_that_is_text": leaf(keccak256(ACCOUNT), b"account"),
    "account_of_three": account_of(*GOOD_ACCOUNT[:3]),
    "account_of_five": account_of(*GOOD_ACCOUNT, b""),
    "account_with_a_list": leaf(keccak256(ACCOUNT), rlp.encode([b"\x01", b"", [b"root"], bytes(CODE_HASH)])),
    "nonce_with_leading_zero": account_of(b"\0\x01", *GOOD_ACCOUNT[1:]),
    "balance_with_leading_zero": account_of(b"\x01", b"\0", *GOOD_ACCOUNT[2:]),
    "short_root": account_of(b"\x01", b"", bytes(31), bytes(CODE_HASH)),
    "short_code_hash": account_of(b"\x01", b"", bytes(EMPTY_TRIE_ROOT), bytes(31)),
    "long_form_inside": leaf(keccak256(ACCOUNT), rlp.encode(list(GOOD_ACCOUNT)) + b"\0"),
}


@pytest.mark.parametrize("name", ODD_ROOTS)
def test_what_no_chain_would_write_is_refused_even_under_a_root_of_its_own(name: str) -> None:
    why_not(*rooted(ODD_ROOTS[name]))


def test_the_same_account_written_rightly_is_read() -> None:
    proof, block_hash = rooted(account_of(*GOOD_ACCOUNT))
    assert verify_storage_proof(proof, ACCOUNT, block_hash).code_hash == CODE_HASH


@pytest.mark.parametrize("word", [b"", b"\0", b"\0\x01", bytes(32), b"\x01" * 33])
def test_a_word_that_no_chain_would_store_is_refused(word: bytes) -> None:
    node = leaf(keccak256(ZERO_BYTES32), rlp.encode(word))
    proof, block_hash = rooted(account_of(b"\x01", b"", bytes(keccak256(node)), bytes(CODE_HASH)))
    why_not(replace(proof, slots=(SlotProof(ZERO_BYTES32, (node,)),)), block_hash)


@example([b"\x00", b"\xc1"])
@example([b"\x00", b"\xb8"])
@example([b"\x00", b"\x82"])
@given(st.recursive(st.binary(max_size=34), lambda inner: st.lists(inner, max_size=18), max_leaves=25))
def test_any_item_as_root_is_an_answer_or_refused(item: Any) -> None:
    proof, block_hash = rooted(rlp.encode(item))
    with suppress(UnusableProof):
        assert isinstance(verify_storage_proof(proof, ACCOUNT, block_hash), ProvenStorage)


@example(b"\xb8")
@example(b"\xf8")
@given(st.binary(max_size=60))
def test_any_bytes_as_header_are_refused(header: bytes) -> None:
    with pytest.raises(UnusableProof):
        decode_header(header, keccak256(header))


@pytest.mark.parametrize("at", range(21))
def test_a_header_with_an_ill_formed_member_is_refused(at: int) -> None:
    items = rlp.decode(STATE.header)
    name, length = list(HEADER_MEMBERS.items())[at]
    odd: list[Any] = [[b"list"]]
    odd += [b"\0\x01"] if length is None else [b"x" * (length + 1), b""] if length > 0 else []
    for value in odd:
        header = rlp.encode([*items[:at], value, *items[at + 1 :]])
        with pytest.raises(UnusableProof, match=name):
            decode_header(header, keccak256(header))


# A contract


def test_an_account_without_code_answers_for_no_contract() -> None:
    state = State({ACCOUNT: {1: 1}}, EMPTY_CODE_HASH)
    for address in (ACCOUNT, STRANGER):
        with pytest.raises(UnusableProof, match="no contract"):
            verify_contract_storage(state.prove(address, 1), address, state.block_hash)


def test_another_contract_than_expected_is_told_apart() -> None:
    proven = verify_contract_storage(PROOF, ACCOUNT, STATE.block_hash, CODE_HASH)
    assert proven == verify_contract_storage(PROOF, ACCOUNT, STATE.block_hash)
    with pytest.raises(CodeMismatch) as caught:
        verify_contract_storage(PROOF, ACCOUNT, STATE.block_hash, keccak256(b"other code"))
    assert caught.value.received == CODE_HASH


def test_without_the_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "rlp", None)
    with pytest.raises(MissingExtra, match="chain"):
        verify_storage_proof(PROOF, ACCOUNT, STATE.block_hash)


# JSON

SCHEMA = Draft202012Validator(load_schema("storage-proof"))


@pytest.mark.parametrize("proof", [PROOF, STATE.prove(STRANGER), State({ACCOUNT: {}}).prove(ACCOUNT, 1)])
def test_json_carries_a_proof_whole(proof: StorageProof) -> None:
    document = json.loads(json.dumps(proof.to_json()))
    SCHEMA.validate(document)
    assert StorageProof.from_json(document) == proof


def without(member: str) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {name: value for name, value in document.items() if name != member}


def set_to(member: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {**document, member: value}


WRONG_JSON: dict[str, Callable[[dict[str, Any]], Any]] = {
    **{f"without_{name}": without(name) for name in ("address", "header", "accountProof", "storageProof")},
    "unknown_member": set_to("value", "0x00"),
    "list": lambda document: [document],
    "text": lambda _: "proof",
    "null": lambda _: None,
    "short_address": set_to("address", "0x44"),
    "address_is_a_number": set_to("address", 7),
    "header_is_a_list": set_to("header", []),
    "odd_hex": set_to("header", "0x123"),
    "no_prefix": set_to("header", "1234"),
    "nodes_are_text": set_to("accountProof", "0x80"),
    "node_is_null": set_to("accountProof", [None]),
    "too_many_nodes": set_to("accountProof", ["0x80"] * 66),
    "slots_are_an_object": set_to("storageProof", {}),
    "slot_is_text": set_to("storageProof", ["0x80"]),
    "slot_without_proof": set_to("storageProof", [{"slot": "0x" + "00" * 32}]),
    "short_slot": set_to("storageProof", [{"slot": "0x01", "proof": []}]),
    "slot_with_value": set_to("storageProof", [{"slot": "0x" + "00" * 32, "proof": [], "value": "0x1"}]),
}


@pytest.mark.parametrize("name", WRONG_JSON)
def test_json_of_another_shape_is_refused_by_schema_and_reader(name: str) -> None:
    document = WRONG_JSON[name](PROOF.to_json())
    assert not SCHEMA.is_valid(document)
    with pytest.raises(InvalidInput):
        StorageProof.from_json(document)


# Fetching


class Node:
    """Answers with the state of one block, changed as a test wants it."""

    endpoint_uri = "http://node.test"

    def __init__(self, state: State) -> None:
        self.state = state
        items = rlp.decode(state.header)
        self.block: dict[str, Any] | None = {
            name: hex(int.from_bytes(item, "big")) if length is None else "0x" + item.hex()
            for (name, length), item in zip(HEADER_MEMBERS.items(), items, strict=True)
        } | {"hash": str(state.block_hash)}
        self.change: Callable[[dict[str, Any]], Any] = lambda answer: answer
        self.asked: list[Any] = []

    def make_request(self, method: str, parameters: list[Any]) -> Any:
        self.asked.append((method, parameters))
        if method != "eth_getProof":
            return {"result": self.block}
        address, keys, _ = parameters
        proof = self.state.prove(Address(address), *(int(key, 16) for key in keys))
        words = verify_storage_proof(proof, Address(address), self.state.block_hash).words
        entries = [
            {"key": str(slot.slot), "value": hex(int.from_bytes(words[slot.slot], "big")),
             "proof": ["0x" + node.hex() for node in slot.nodes]}
            for slot in proof.slots
        ]  # fmt: skip
        return {"result": self.change(
            {"accountProof": ["0x" + node.hex() for node in proof.account_nodes], "storageProof": entries}
        )}  # fmt: skip


def load(node: Node, *slots: int, block: Any = "latest") -> StorageProof:
    return load_storage_proof(SimpleNamespace(provider=node), ACCOUNT, slots, block)  # type: ignore[arg-type]


def test_proof_is_loaded_of_one_block_and_its_own_header() -> None:
    node = Node(STATE)
    assert load(node, 1, 2, 60, 99) == PROOF
    assert [parameters[-1] for _, parameters in node.asked] == [False, "0x7"]
    assert load(node, 1, 2, 60, 99, block=BlockReference(7, STATE.block_hash)) == PROOF
    assert node.asked[2] == ("eth_getBlockByHash", [str(STATE.block_hash), False])


def test_slots_asked_for_twice_are_proven_once() -> None:
    assert load(Node(STATE), 1, 1, 2) == STATE.prove(ACCOUNT, 1, 2)


def test_keys_come_back_in_any_form_and_order() -> None:
    node = Node(STATE)
    node.change = lambda answer: {
        **answer,
        "storageProof": [{**entry, "key": hex(int(entry["key"], 16))} for entry in answer["storageProof"][::-1]],
    }
    assert load(node, 1, 2, 60, 99) == PROOF


NODE_LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another_value": lambda answer: {**answer, "storageProof": [{**answer["storageProof"][0], "value": "0x12"}]},
    "another_key": lambda answer: {**answer, "storageProof": [{**answer["storageProof"][0], "key": "0x2"}]},
    "no_slots": lambda answer: {**answer, "storageProof": []},
    "no_nodes": lambda answer: {**answer, "accountProof": []},
    "no_account": lambda answer: {"storageProof": answer["storageProof"]},
    "node_is_a_number": lambda answer: {**answer, "accountProof": [7]},
    "text": lambda _: "proof",
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("lie", NODE_LIES)
def test_a_node_that_proves_something_else_is_refused(lie: str) -> None:
    node = Node(STATE)
    node.change = NODE_LIES[lie]
    with pytest.raises(UnusableProof):
        load(node, 1)


@pytest.mark.parametrize("member", [*NUMBERS, "parentHash", "stateRoot", "logsBloom", "extraData", "requestsHash"])
def test_a_header_that_does_not_hash_to_its_hash_is_refused(member: str) -> None:
    node = Node(STATE)
    assert node.block is not None
    node.block[member] = "0x01" if member in NUMBERS else node.block[member][:-1] + "f"
    with pytest.raises(UnusableProof):
        load(node, 1)


@pytest.mark.parametrize("member", [*list(HEADER_MEMBERS)[:15], "hash"])
def test_a_header_without_a_member_that_every_fork_has_is_refused(member: str) -> None:
    node = Node(STATE)
    assert node.block is not None
    del node.block[member]
    with pytest.raises(UnusableProof):
        load(node, 1)


def test_the_block_that_was_asked_for_is_the_one_that_is_proven() -> None:
    with pytest.raises(UnusableProof, match="not number 8"):
        load(Node(STATE), 1, block=BlockReference(8, STATE.block_hash))
    with pytest.raises(UnusableProof, match="of block"):
        load(Node(STATE), 1, block=BlockReference(7, keccak256(b"another block")))


def test_a_block_that_the_node_does_not_have_is_refused() -> None:
    node = Node(STATE)
    node.block = None
    with pytest.raises(NodeRefused):
        load(node, 1)


def test_headers_of_older_forks_are_built_from_what_they_have() -> None:
    for members in (15, 16, 17, 20, 21):
        header = make_header(STATE.trie.root_hash, members)
        block = {
            name: hex(int.from_bytes(item, "big")) if length is None else "0x" + item.hex()
            for (name, length), item in zip(HEADER_MEMBERS.items(), rlp.decode(header), strict=False)
        }
        assert encode_header(block) == header
        assert encode_header({**block, "totalDifficulty": "0x1", "requestsHash": block.get("requestsHash")}) == header


# Layouts, held to the compiler's


def layout_of(contract: str) -> dict[str, Any]:
    folder = resources.files("melete") / "chain" / "abi"
    document: dict[str, Any] = json.loads((folder / f"{contract}.json").read_text("utf-8"))["storageLayout"]
    return document


def members_of(layout: dict[str, Any], struct: str) -> dict[str, tuple[int, int, str]]:
    """Slot, offset in bytes, and the label of the type of each member of a struct."""
    found = layout["types"][f"t_struct({struct})_storage"]["members"]
    return {
        member["label"]: (int(member["slot"]), member["offset"], layout["types"][member["type"]]["label"])
        for member in found
    }


def test_memory_slots_are_those_that_the_compiler_states() -> None:
    layout = layout_of("AgentMemoryStateRegistry")
    variables = {entry["label"]: (int(entry["slot"]), layout["types"][entry["type"]]["key"])
                 for entry in layout["storage"] if entry["label"] == "_spaces"}  # fmt: skip
    assert variables == {"_spaces": (memory_proofs.SPACES_SLOT, "t_bytes32")}
    assert members_of(layout, "Space") == {
        "tip": (memory_proofs.TIP, 0, "uint256"),
        "controller": (memory_proofs.CONTROL, 0, "address"),
        "configNonce": (memory_proofs.CONTROL, 20, "uint64"),
        "transitionId": (memory_proofs.TRANSITION_ID, 0, "bytes32"),
        "stateRoots": (memory_proofs.STATE_ROOTS, 0, "mapping(uint256 => bytes32)"),
    }


def test_meditation_slots_are_those_that_the_compiler_states() -> None:
    layout = layout_of("AgentMeditationRegistry")
    (variable,) = layout["storage"]
    assert (variable["label"], int(variable["slot"])) == ("_subjects", meditation_proofs.SUBJECTS_SLOT)
    assert layout["types"][variable["type"]]["key"] == "t_address"
    members = members_of(layout, "Subject")
    assert {name: (slot, offset) for name, (slot, offset, _) in members.items()} == {
        "head": (meditation_proofs.HEAD, 0),
        "control": (meditation_proofs.CONTROL, 0),
        "floor": (meditation_proofs.FLOOR, 0),
        "changes": (meditation_proofs.CHANGES, 0),
        "pairs": (meditation_proofs.PAIRS, 0),
        "layers": (meditation_proofs.LAYERS, 0),
        "roots": (meditation_proofs.ROOTS, 0),
        "policies": (meditation_proofs.POLICIES, 0),
        "operators": (14, 0),
    }
    assert members["roots"][2] == "mapping(uint256 => bytes32)"
    assert members["policies"][2].startswith("mapping(uint256 => ")
    assert members_of(layout, "LayerPair")["completions"][0] == 0
    assert layout["types"]["t_struct(LayerPair)_storage"]["numberOfBytes"] == "64"
    assert members_of(layout, "Layer")["commitment"] == (0, 0, "bytes32")
    assert members_of(layout, "PolicyRecord")["word"][0] == 0


def test_mapping_slot_is_that_of_the_language() -> None:
    """keccak256(abi.encode(1, 0)): the slot of `mapping(uint256 => ...)` at 0 for key 1, as Solidity tools print it."""
    expected = 0xADA5013122D395BA3C54772283FB069B10426056EF8CA54750CB9BB552A59E7D
    assert compute_mapping_slot(uint_word(1), 0) == expected


# What the memory registry's words mean

SPACE, ROOT, TRANSITION = keccak256(b"space"), keccak256(b"root"), keccak256(b"transition")
CONTROLLER, AUTHORIZER = Address(b"\x11" * 20), Address(b"\x22" * 20)


def space_storage(sequence: int = 3, nonce: int = 2) -> dict[int, int]:
    slots = [memory_proofs.compute_space_slot(SPACE, member) for member in range(3)]
    words = {
        slots[0]: int.from_bytes(AUTHORIZER, "big") | sequence << 160,
        slots[1]: int.from_bytes(CONTROLLER, "big") | nonce << 160,
        slots[2]: int.from_bytes(TRANSITION, "big") if sequence else 0,
    }
    if sequence:
        words[memory_proofs.compute_state_root_slot(SPACE, sequence)] = int.from_bytes(ROOT, "big")
    return words


def proven_space(storage: dict[int, int], *sequences: int) -> tuple[StorageProof, Bytes32]:
    """A proof of the space's own slots and of its roots at sequences."""
    state = State({ACCOUNT: storage, STRANGER: {}})
    slots = [memory_proofs.compute_space_slot(SPACE, member) for member in range(3)]
    slots += [memory_proofs.compute_state_root_slot(SPACE, number) for number in sequences]
    return state.prove(ACCOUNT, *slots), state.block_hash


@given(st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_head_and_authorization_are_read_from_their_words(sequence: int, nonce: int) -> None:
    proof, block_hash = proven_space(space_storage(sequence, nonce), sequence)
    assert verify_head(proof, ACCOUNT, SPACE, block_hash) == Head(TRANSITION, ROOT, sequence)
    assert verify_authorization(proof, ACCOUNT, SPACE, block_hash, CODE_HASH) == SpaceAuthorization(
        CONTROLLER, AUTHORIZER, nonce
    )
    assert verify_state_root_at(proof, ACCOUNT, SPACE, sequence, block_hash) == ROOT


def test_a_space_without_transitions_has_the_first_head() -> None:
    proof, block_hash = proven_space(space_storage(0, 0))
    assert verify_head(proof, ACCOUNT, SPACE, block_hash) == GENESIS


def test_a_space_that_was_not_registered_is_none() -> None:
    proof, block_hash = proven_space({7: 7}, 1)
    assert verify_head(proof, ACCOUNT, SPACE, block_hash) is None
    assert verify_authorization(proof, ACCOUNT, SPACE, block_hash) is None
    assert verify_state_root_at(proof, ACCOUNT, SPACE, 1, block_hash) == ZERO_BYTES32


@pytest.mark.parametrize("member", [memory_proofs.TIP, memory_proofs.CONTROL])
@pytest.mark.parametrize("bit", [224, 255])
def test_words_with_bits_that_the_registry_never_sets_are_refused(member: int, bit: int) -> None:
    storage = space_storage()
    storage[memory_proofs.compute_space_slot(SPACE, member)] |= 1 << bit
    proof, block_hash = proven_space(storage, 3)
    with pytest.raises(UnusableProof, match="none of this registry"):
        verify_authorization(proof, ACCOUNT, SPACE, block_hash)


def test_a_space_without_an_authorizer_is_refused() -> None:
    storage = space_storage()
    storage[memory_proofs.compute_space_slot(SPACE)] = 3 << 160
    proof, block_hash = proven_space(storage, 3)
    with pytest.raises(UnusableProof, match="authorizer"):
        verify_head(proof, ACCOUNT, SPACE, block_hash)


def test_a_transition_without_a_sequence_is_refused() -> None:
    storage = space_storage(0)
    storage[memory_proofs.compute_space_slot(SPACE, memory_proofs.TRANSITION_ID)] = 5
    proof, block_hash = proven_space(storage)
    with pytest.raises(UnusableProof, match="sequence"):
        verify_head(proof, ACCOUNT, SPACE, block_hash)


@pytest.mark.parametrize("sequence", [2, 4])
def test_a_proof_without_the_root_that_the_head_needs_is_refused(sequence: int) -> None:
    proof, block_hash = proven_space(space_storage(3), sequence)
    with pytest.raises(UnusableProof, match="not of slot"):
        verify_head(proof, ACCOUNT, SPACE, block_hash)
    with pytest.raises(UnusableProof, match="not of slot"):
        verify_state_root_at(proof, ACCOUNT, SPACE, 3, block_hash)


def test_a_space_of_other_code_is_told_apart() -> None:
    proof, block_hash = proven_space(space_storage(), 3)
    with pytest.raises(CodeMismatch):
        verify_head(proof, ACCOUNT, SPACE, block_hash, keccak256(b"other code"))


# A history anchored in a block

KNOWN = SpaceState(SpaceAuthorization(CONTROLLER, AUTHORIZER, 2), Head(TRANSITION, ROOT, 3))


def broken_rule(state: SpaceState | None, storage: dict[int, int]) -> str:
    proof, block_hash = proven_space(storage, 3)
    with pytest.raises(MeleteError) as caught:
        verify_anchor(state, proof, ACCOUNT, SPACE, block_hash)
    return str(getattr(caught.value, "rule", caught.value))


def test_a_history_that_leads_to_the_proven_state_is_anchored() -> None:
    proof, block_hash = proven_space(space_storage(), 3)
    assert verify_anchor(KNOWN, proof, ACCOUNT, SPACE, block_hash, CODE_HASH) == KNOWN
    proof, block_hash = proven_space({7: 7})
    assert verify_anchor(None, proof, ACCOUNT, SPACE, block_hash) is None


def test_a_history_that_leads_elsewhere_is_broken_by_name() -> None:
    shorter = replace(KNOWN, head=Head(TRANSITION, ROOT, 2))
    rotated = replace(KNOWN, authorization=replace(KNOWN.authorization, config_nonce=1))
    assert broken_rule(shorter, space_storage()) == "head"
    assert broken_rule(rotated, space_storage()) == "authorization"
    assert broken_rule(None, space_storage()) == "space_unregistered"
    assert broken_rule(KNOWN, {7: 7}) == "space_unregistered"


# What the meditation registry's words mean

SUBJECT = Address(b"\x66" * 20)


def subject_storage(fields: dict[str, int]) -> dict[int, int]:
    slot = meditation_proofs.compute_subject_slot
    head = (
        fields["policy_version"] | fields["state_version"] << 32 | fields["record_count"] << 96
        | fields["last_signal_at"] << 160 | fields["next_planned_at"] << 208
    )  # fmt: skip
    control = int.from_bytes(CONTROLLER, "big") | fields["controller_rights"] << 160 | fields["floor_version"] << 168
    return {
        slot(SUBJECT): head,
        slot(SUBJECT, 1): control,
        slot(SUBJECT, 3): 7 << 64 | 9 << 192,
        slot(SUBJECT, 4): 11 | 12 << 48 | 13 << 96 | (21 | 22 << 48 | 23 << 96) << 128,
        slot(SUBJECT, 6): (41 | 42 << 48 | 43 << 96) << 128,
        **{slot(SUBJECT, 8 + layer): layer + 100 for layer in range(4)},
        meditation_proofs.compute_root_slot(SUBJECT, fields["state_version"]): int.from_bytes(ROOT, "big"),
        meditation_proofs.compute_policy_slot(SUBJECT, 1): 0xFFFF | fields["enrolled_at"] << 16 | 0xFFFF << 64,
    }


def proven_subject(storage: dict[int, int], state_version: int) -> tuple[StorageProof, Bytes32]:
    state = State({ACCOUNT: storage, STRANGER: {}})
    slots = [meditation_proofs.compute_subject_slot(SUBJECT, member) for member in (0, 1, 3, 4, 6, 8, 9, 10, 11)]
    slots += [meditation_proofs.compute_root_slot(SUBJECT, state_version)]
    slots += [meditation_proofs.compute_policy_slot(SUBJECT, 1)]
    return state.prove(ACCOUNT, *slots), state.block_hash


WIDTHS = {
    "policy_version": 32, "state_version": 64, "record_count": 64, "last_signal_at": 48, "next_planned_at": 48,
    "controller_rights": 3, "floor_version": 32, "enrolled_at": 48,
}  # fmt: skip


@given(st.fixed_dictionaries({name: st.integers(1, 2**bits - 1) for name, bits in WIDTHS.items()}))
def test_head_of_a_subject_is_read_from_its_words(fields: dict[str, int]) -> None:
    proof, block_hash = proven_subject(subject_storage(fields), fields["state_version"])
    head = meditation_proofs.verify_head_of(proof, ACCOUNT, SUBJECT, block_hash, CODE_HASH)
    assert (head.enrolled, head.controller, head.root) == (True, CONTROLLER, ROOT)
    assert {name: getattr(head, name) for name in WIDTHS} == fields
    root = meditation_proofs.verify_root_at(proof, ACCOUNT, SUBJECT, fields["state_version"], block_hash)
    assert root == ROOT


def test_checkpoints_are_read_from_their_halves() -> None:
    proof, block_hash = proven_subject(subject_storage(dict.fromkeys(WIDTHS, 1)), 1)
    for layer, (times, changed) in enumerate([((11, 12, 13), 1), ((21, 22, 23), 7), ((0, 0, 0), 1), ((41, 42, 43), 9)]):
        checkpoint = meditation_proofs.verify_checkpoint_of(proof, ACCOUNT, SUBJECT, layer, block_hash)
        completed = (
            checkpoint.last_completed_at, checkpoint.last_completed_recorded_at, checkpoint.completed_under_policy,
        )  # fmt: skip
        assert (completed, checkpoint.last_changed_version) == (times, changed)
        assert int.from_bytes(checkpoint.commitment, "big") == layer + 100


def test_a_subject_that_is_not_enrolled_is_all_zero() -> None:
    proof, block_hash = proven_subject({7: 7}, 0)
    head = meditation_proofs.verify_head_of(proof, ACCOUNT, SUBJECT, block_hash)
    assert head == meditation_proofs.NOT_ENROLLED
    checkpoint = meditation_proofs.verify_checkpoint_of(proof, ACCOUNT, SUBJECT, 2, block_hash)
    assert checkpoint.last_changed_version == 0
    assert meditation_proofs.verify_root_at(proof, ACCOUNT, SUBJECT, 0, block_hash) == ZERO_BYTES32


@pytest.mark.parametrize(("member", "value"), [(0, 5), (1, 1 << 200)])
def test_words_of_no_subject_are_refused(member: int, value: int) -> None:
    storage = subject_storage(dict.fromkeys(WIDTHS, 1))
    storage[meditation_proofs.compute_subject_slot(SUBJECT, member)] = value
    proof, block_hash = proven_subject(storage, 1)
    with pytest.raises(UnusableProof, match="none of this registry"):
        meditation_proofs.verify_head_of(proof, ACCOUNT, SUBJECT, block_hash)
