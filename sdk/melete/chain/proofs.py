"""Storage proofs (EIP-1186): what a contract stored at one block, checked offline against the block's hash.

    block hash <- header -> state root <- account proof -> storage root <- storage proof -> word

Each arrow is a keccak256, so nothing but the block hash has to be believed. That a slot was never written is proven
as well as that it was: its word is zero. Whatever is not exactly as it must be is `UnusableProof`: a proof answers, or
it says nothing, and never says that something does not hold.

Source: EIP-1186; Yellow Paper, appendices B (RLP), C (hex prefix) and D (trie).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import Json
from melete.chain.rpc import one
from melete.chain.scan.blocks import BlockReference
from melete.errors import CodeMismatch, InvalidInput, MissingExtra, NodeRefused, UnusableProof
from melete.primitives import NOT_SHOWN, ZERO_BYTES32, Address, Bytes32, keccak256, parse_bytes, uint, uint_word

if TYPE_CHECKING:
    from web3 import Web3

#: The members of a header in RLP, in order, and how many bytes each has; None for a number, -1 for any bytes.
#: A block has the first fifteen, and as many of the others as its fork added.
#: Source: Yellow Paper, The Block; EIP-1559, EIP-4895, EIP-4844, EIP-4788, EIP-7685.
HEADER_MEMBERS: Final[dict[str, int | None]] = {
    "parentHash": 32,
    "sha3Uncles": 32,
    "miner": 20,
    "stateRoot": 32,
    "transactionsRoot": 32,
    "receiptsRoot": 32,
    "logsBloom": 256,
    "difficulty": None,
    "number": None,
    "gasLimit": None,
    "gasUsed": None,
    "timestamp": None,
    "extraData": -1,
    "mixHash": 32,
    "nonce": 8,
    "baseFeePerGas": None,
    "withdrawalsRoot": 32,
    "blobGasUsed": None,
    "excessBlobGas": None,
    "parentBeaconBlockRoot": 32,
    "requestsHash": 32,
}
OLDEST_MEMBERS: Final = 15
EMPTY_TRIE_ROOT: Final = keccak256(b"\x80")
EMPTY_CODE_HASH: Final = keccak256(b"")
#: A key of 32 bytes has 64 nibbles, and each node but the last uses up at least one.
MOST_NODES: Final = 65


@dataclass(frozen=True, slots=True)
class SlotProof:
    """A storage slot and the trie nodes on its way, from the storage root down; each is RLP."""

    slot: Bytes32
    nodes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class StorageProof:
    """What is needed to show, from a block's hash alone, what `address` stored at some slots.

    `header` is the block's header in RLP, `account_nodes` the trie nodes from the state root down. Values are not
    part of it: they follow.
    """

    address: Address
    header: bytes
    account_nodes: tuple[bytes, ...]
    slots: tuple[SlotProof, ...]

    @property
    def block_hash(self) -> Bytes32:
        """The hash of the block that the proof is of. Whether the chain has that block, the proof does not say."""
        return keccak256(self.header)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of `schemas/storage-proof.schema.json`."""
        return {
            "address": str(self.address),
            "header": _hex(self.header),
            "accountProof": [_hex(node) for node in self.account_nodes],
            "storageProof": [
                {"slot": str(slot.slot), "proof": [_hex(node) for node in slot.nodes]} for slot in self.slots
            ],
        }

    @classmethod
    def from_json(cls, document: object) -> StorageProof:
        """Return the proof that a JSON object states. Errors: `InvalidInput`, naming the member that is wrong."""
        members = _members(document, "proof", ("address", "header", "accountProof", "storageProof"))
        slots = []
        for index, entry in enumerate(_list(members["storageProof"], "storageProof")):
            slot = _members(entry, f"storageProof[{index}]", ("slot", "proof"))
            slots.append(SlotProof(Bytes32(_text(slot["slot"], "slot"), "slot"), _nodes(slot["proof"], "proof")))
        return cls(
            Address(_text(members["address"], "address"), "address"),
            parse_bytes(_text(members["header"], "header"), "header"),
            _nodes(members["accountProof"], "accountProof"),
            tuple(slots),
        )


@dataclass(frozen=True, slots=True)
class Header:
    """What a block's header says, of what is of use here. `timestamp` is in seconds."""

    block: BlockReference
    parent_hash: Bytes32
    state_root: Bytes32
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProvenStorage:
    """What is proven of an account at a block. `code_hash` is None, and every word zero, where there was no account."""

    address: Address
    header: Header
    code_hash: Bytes32 | None
    words: Mapping[Bytes32, Bytes32]

    def word(self, slot: int) -> Bytes32:
        """Return the word at a slot. Errors: `UnusableProof` when the proof is not of this slot."""
        key = Bytes32(uint_word(slot % 2**256))
        if key not in self.words:
            raise UnusableProof(f"it is not of slot {key}, which the answer needs")
        return self.words[key]


def compute_mapping_slot(key: bytes, slot: int) -> int:
    """Return where a mapping at `slot` keeps the value of a key, which is one 32-byte word.

    Source: Solidity, Layout of State Variables in Storage.
    """
    return int.from_bytes(keccak256(Bytes32(key, "key") + uint_word(slot)), "big")


# Checking, offline


def verify_storage_proof(proof: StorageProof, address: Address, block_hash: Bytes32) -> ProvenStorage:
    """Return what a proof proves of an account at the block with a hash. Nothing is asked of a node.

    Errors: `UnusableProof` when it is a proof of another account or block, when a node is missing, left over, altered
    or not the one that its parent names, or when anything is encoded otherwise than the chain does; `MissingExtra`.
    """
    if proof.address != address:
        raise UnusableProof(f"it is of account {proof.address}, not of {address}")
    header = decode_header(proof.header, block_hash)
    account = _walk(header.state_root, keccak256(address), proof.account_nodes, "account")
    code_hash, storage_root = None, EMPTY_TRIE_ROOT
    if account is not None:
        code_hash, storage_root = _read_account(account)
    words: dict[Bytes32, Bytes32] = {}
    for slot in proof.slots:
        if slot.slot in words:
            raise UnusableProof(f"slot {slot.slot} is there twice")
        value = _walk(storage_root, keccak256(slot.slot), slot.nodes, f"slot {slot.slot}")
        words[slot.slot] = ZERO_BYTES32 if value is None else _read_word(value)
    return ProvenStorage(address, header, code_hash, words)


def verify_contract_storage(
    proof: StorageProof, contract: Address, block_hash: Bytes32, code_hash: Bytes32 | None = None
) -> ProvenStorage:
    """Return what a proof proves of a contract, which runs the code with `code_hash` if one is given.

    Errors: `UnusableProof`, also when the account had no code; `CodeMismatch`; `MissingExtra`.
    """
    proven = verify_storage_proof(proof, contract, block_hash)
    if proven.code_hash in (None, EMPTY_CODE_HASH):
        raise UnusableProof(f"there was no contract at {contract} in block {block_hash}")
    if code_hash is not None and proven.code_hash != code_hash:
        raise CodeMismatch(contract, code_hash, proven.code_hash)
    return proven


def decode_header(header: bytes, block_hash: Bytes32) -> Header:
    """Return what a header in RLP says. Members that a later fork appends are hashed, and not read.

    Errors: `UnusableProof` when it is not the header of the block with that hash, or is no header.
    """
    found = keccak256(header)
    if found != block_hash:
        raise UnusableProof(f"it is of block {found}, not of {block_hash}")
    items = _decode(header, "header")
    if not isinstance(items, list) or len(items) < OLDEST_MEMBERS:
        raise UnusableProof("the header is no list of a header's members")
    members: dict[str, bytes] = {}
    for (name, length), item in zip(HEADER_MEMBERS.items(), items, strict=False):
        if (
            not isinstance(item, bytes)
            or (length is None and item[:1] == b"\0")
            or (length or -1) not in (-1, len(item))
        ):
            raise UnusableProof(f"the header's {name} is ill-formed")
        members[name] = item
    return Header(
        BlockReference(int.from_bytes(members["number"], "big"), found),
        Bytes32(members["parentHash"]),
        Bytes32(members["stateRoot"]),
        int.from_bytes(members["timestamp"], "big"),
    )


def _walk(root: Bytes32, key: bytes, nodes: Sequence[bytes], what: str) -> bytes | None:
    """Return the value that a trie keeps for a key of 32 bytes, or None if the nodes show that it keeps none.

    The library walks; it is given one node after the other, each only if its parent names it. A node of fewer than 32
    bytes lies within its parent.
    """
    from trie import HexaryTrie
    from trie.exceptions import (
        InvalidNibbles,
        InvalidNode,
        MissingTrieNode,
        ValidationError,
    )

    rlp = _load_rlp()
    # What lies within its parent is decoded by the library, which passes on what its own libraries raise.
    odd = (InvalidNibbles, InvalidNode, MissingTrieNode, ValidationError, rlp.exceptions.RLPException, RecursionError)
    if root == EMPTY_TRIE_ROOT and tuple(nodes) in ((), (b"\x80",)):
        return None
    given = _Nodes(nodes, what)
    try:
        value = bytes(HexaryTrie(given, root).get(key))
    except (*odd, LookupError, TypeError, ValueError) as error:
        raise UnusableProof(f"the {what} proof holds what is no trie node") from error
    if given.used != len(nodes):
        raise UnusableProof(f"the {what} proof has nodes left over")
    return value or None


class _Nodes:
    """The nodes of a proof as the database of a trie that reads each of them once, in order."""

    def __init__(self, nodes: Sequence[bytes], what: str) -> None:
        self._nodes, self._what = nodes, what
        self.used = 0

    def __getitem__(self, name: bytes) -> bytes:
        depth, what = self.used, self._what
        if depth == len(self._nodes):
            raise UnusableProof(f"the {what} proof ends before its answer")
        node = self._nodes[depth]
        if keccak256(node) != name:
            raise UnusableProof(f"node {depth} of the {what} proof is not the one that its parent names")
        _decode(node, f"node {depth} of the {what} proof")
        self.used += 1
        return node


def _read_account(value: bytes) -> tuple[Bytes32, Bytes32]:
    """Return code hash and storage root of an account: nonce, balance, storage root, code hash."""
    items = _decode(value, "account")
    if not isinstance(items, list) or len(items) != 4 or not all(isinstance(item, bytes) for item in items):
        raise UnusableProof("the account is no list of four members")
    nonce, balance, storage_root, code_hash = items
    if nonce[:1] == b"\0" or balance[:1] == b"\0" or len(storage_root) != 32 or len(code_hash) != 32:
        raise UnusableProof("the account is ill-formed")
    return Bytes32(code_hash), Bytes32(storage_root)


def _read_word(value: bytes) -> Bytes32:
    """Return a stored word: its bytes without leading zeros, in RLP. A zero is not stored."""
    word = _decode(value, "storage word")
    if not isinstance(word, bytes) or not 0 < len(word) <= 32 or word[0] == 0:
        raise UnusableProof("a storage word is ill-formed")
    return Bytes32(word.rjust(32, b"\0"))


def _decode(data: bytes, what: str) -> Any:
    """Return the item that RLP encodes; another encoding of the same item, or bytes after it, are refused."""
    rlp = _load_rlp()
    try:
        item = rlp.decode(data, strict=True)
        is_canonical = rlp.encode(item) == data
    except (rlp.exceptions.RLPException, IndexError, RecursionError) as error:
        raise UnusableProof(f"the {what} is no RLP") from error
    if not is_canonical:
        raise UnusableProof(f"the {what} is RLP in another form than the chain's")
    return item


def _load_rlp() -> Any:
    try:
        import rlp
        import trie  # noqa: F401  # needed as well; better told here than half-way
    except ImportError:
        raise MissingExtra("chain", "checking a storage proof") from None
    return rlp


# Fetching


def load_storage_proof(
    w3: Web3, address: Address, slots: Iterable[int], block: BlockReference | str | int = "latest"
) -> StorageProof:
    """Return a proof of an account's slots at a block, checked.

    A block given by number and hash (a page's `through`) is that block or none. Errors: `UnusableProof` when what the
    node gives does not prove its own block, or claims other values than it proves; `NodeRefused`, `NodeUnreachable`.
    """
    block_hash, header = load_header(w3, block)
    number = decode_header(header, block_hash).block.number
    keys = [Bytes32(uint_word(slot % 2**256)) for slot in dict.fromkeys(slots)]
    method = "eth_getProof"
    answer = one(w3, method, [str(address), [str(key) for key in keys], hex(number)])
    try:
        found = {_word(entry["key"]): entry for entry in answer["storageProof"]}
        proof = StorageProof(
            address,
            header,
            _raw_nodes(answer["accountProof"]),
            tuple(SlotProof(key, _raw_nodes(found[key]["proof"])) for key in keys),
        )
        claims = {key: _word(found[key]["value"]) for key in keys}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnusableProof("the node's answer to eth_getProof is ill-formed, or of other slots") from error
    proven = verify_storage_proof(proof, address, block_hash)
    if proven.words != claims:
        raise UnusableProof("the node claims other values than it proves")
    return proof


def load_dependent_proof(
    w3: Web3,
    address: Address,
    slot: int,
    others: Callable[[ProvenStorage], Iterable[int]],
    block: BlockReference | str | int = "latest",
) -> StorageProof:
    """Return one proof of all slots that `others` names, which may depend on the word at `slot`; all of one block.

    A name such as "latest" is one block for both. Errors: as `load_storage_proof`.
    """
    first = load_storage_proof(w3, address, [slot], block)
    proven = verify_storage_proof(first, address, first.block_hash)
    return load_storage_proof(w3, address, others(proven), proven.header.block)


def load_header(w3: Web3, block: BlockReference | str | int) -> tuple[Bytes32, bytes]:
    """Return the hash of a block and its header in RLP, which hashes to it.

    Errors: `UnusableProof` when it does not (a header with members that are not known here), or is of another block;
    `NodeRefused` when the node does not have the block.
    """
    if isinstance(block, BlockReference):
        method, name = "eth_getBlockByHash", str(block.hash)
    else:
        method, name = "eth_getBlockByNumber", block if isinstance(block, str) else hex(block)
    found = one(w3, method, [name, False])
    if found is None:
        raise NodeRefused(method, f"it has no block {name}")
    try:
        block_hash, header = Bytes32(found["hash"], "hash"), encode_header(found)
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableProof("the node's block has no header that could be hashed") from error
    if keccak256(header) != block_hash:
        raise UnusableProof(f"the header of block {name} does not hash to {block_hash}; its fork may be a newer one")
    if isinstance(block, BlockReference) and decode_header(header, block.hash).block != block:
        raise UnusableProof(f"block {block.hash} is not number {block.number}")
    return block_hash, header


def encode_header(block: Mapping[str, Any]) -> bytes:
    """Return the RLP of a block's header from the members that JSON-RPC gives it, as many as its fork has.

    Errors: `KeyError`, `TypeError`, `ValueError` for members missing or ill-formed; a wrong value shows in the hash.
    """
    items = []
    for position, (member, length) in enumerate(HEADER_MEMBERS.items()):
        if position >= OLDEST_MEMBERS and block.get(member) is None:
            break
        text = block[member]
        items.append(_quantity(text) if length is None else bytes.fromhex(text[2:]))
    return bytes(_load_rlp().encode(items))


def _quantity(text: str) -> bytes:
    """Return a number as RLP has it: without leading zeros, none at all for zero."""
    number = int(text, 16)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _word(text: str) -> Bytes32:
    """Return a word that a node writes as a quantity or as data, with or without its leading zeros."""
    return Bytes32(uint_word(uint(int(text, 16), 256)))


def _raw_nodes(nodes: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(node[2:]) for node in nodes)


# JSON


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _members(value: object, field: str, names: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise InvalidInput(field, NOT_SHOWN, f"a JSON object with exactly the members {', '.join(names)}")
    return value


def _list(value: object, field: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidInput(field, value, "a JSON array")
    return value


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, value, "a JSON string")
    return value


def _nodes(value: object, field: str) -> tuple[bytes, ...]:
    nodes = _list(value, field)
    if len(nodes) > MOST_NODES:
        raise InvalidInput(field, NOT_SHOWN, f"at most {MOST_NODES} nodes")
    return tuple(parse_bytes(_text(node, field), field) for node in nodes)
