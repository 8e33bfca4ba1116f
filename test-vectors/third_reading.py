#!/usr/bin/env python3
"""Check every test vector with nothing but the Python standard library.

This is a reading of its own of the texts that the vectors belong to. Here stand what all sets share (keccak-256 among
it) and the Agent Memory State registry (ERC-8350): EIP-712, ECDSA over secp256k1, the rules of a history and a model
of the registry, written from the text and shared with nobody. `third_reading_meditation.py` beside it reads the Agent
Meditation Mechanism.

    python3 test-vectors/third_reading.py [FOLDER]

FOLDER holds sets, and those that it holds are read (default: where this file lies, and all sets have to be there).
Every member of every file has to be read by some check, so a figure that nothing vouches for counts as a failure.
Exit code 0: all hold; 1: something fails.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Wrong(ValueError):
    """A figure or a verdict in a file differs from this reading."""


class Members(dict[str, Any]):
    """A JSON object that remembers which of its members were read."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.unread = set(self)
        if len(self) != len(pairs):
            raise Wrong("an object has a member twice")

    def __getitem__(self, name: str) -> Any:
        self.unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return super().get(name, default)

    def plain(self) -> dict[str, Any]:
        """Read every member."""
        return {name: self[name] for name in self}


def same(what: str, stated: Any, found: Any) -> None:
    """Raise unless the file states what was found."""
    if type(stated) is not type(found) or stated != found:
        raise Wrong(f"{what}: the file says {stated!r}, this reading {found!r}")


def states(members: Members, name: str, found: Any) -> None:
    """Raise unless the member states what was found."""
    same(name, members[name], found)


def unread(value: Any, path: str = "") -> list[str]:
    """Return the paths of the members that no check has read."""
    if isinstance(value, list):
        return [p for i, item in enumerate(value) for p in unread(item, f"{path}/{i}")]
    if not isinstance(value, Members):
        return []
    here = [f"{path}/{name}" for name in value if name in value.unread and name != "about"]
    return here + [p for name in value for p in unread(dict.__getitem__(value, name), f"{path}/{name}")]


# --- Keccak-256 (the original padding, not SHA-3's) -------------------------------------------------------------------

LANE = 2**64 - 1


def rotate(lane: int, by: int) -> int:
    by %= 64
    return (lane << by | lane >> (64 - by)) & LANE


def permute(a: list[int]) -> list[int]:
    """Apply the 24 rounds of Keccak-f[1600] to 25 lanes; lane (x, y) lies at x + 5y."""
    register = 1
    for _ in range(24):
        column = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        a = [a[i] ^ column[(i + 4) % 5] ^ rotate(column[(i + 1) % 5], 1) for i in range(25)]
        x, y, carried = 1, 0, a[1]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            a[x + 5 * y], carried = rotate(carried, (step + 1) * (step + 2) // 2), a[x + 5 * y]
        rows = [a[row : row + 5] for row in range(0, 25, 5)]
        a = [row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5]) for row in rows for x in range(5)]
        for bit in range(7):
            register = (register << 1 ^ (register >> 7) * 0x71) & 0xFF
            if register & 2:
                a[0] ^= 1 << (2**bit - 1)
    return a


@cache
def keccak256(data: bytes) -> bytes:
    padded = bytearray(data + bytes(136 - len(data) % 136))
    padded[len(data)] |= 0x01
    padded[-1] |= 0x80
    state = [0] * 25
    for start in range(0, len(padded), 136):
        for i in range(17):
            state[i] ^= int.from_bytes(padded[start + 8 * i : start + 8 * i + 8], "little")
        state = permute(state)
    return b"".join(lane.to_bytes(8, "little") for lane in state[:4])


# --- ECDSA over secp256k1 ---------------------------------------------------------------------------------------------

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
Point = tuple[int, int] | None
G: Point = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)


def add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    slope = 3 * a[0] ** 2 * pow(2 * a[1], -1, P) if a == b else (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope**2 - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def multiply(point: Point, by: int) -> Point:
    total: Point = None
    while by:
        total = add(total, point) if by & 1 else total
        point, by = add(point, point), by >> 1
    return total


def address_of(point: Point) -> str:
    assert point is not None
    return "0x" + keccak256(b"".join(c.to_bytes(32, "big") for c in point))[12:].hex()


@cache
def recover(digest: bytes, signature: bytes) -> tuple[str | None, str | None]:
    """Return the signing address and None, or None and why the signature is refused."""
    if len(signature) != 65:
        return None, "length"
    r, s, v = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big"), signature[64]
    if v not in (27, 28):
        return None, "v"
    if s > N // 2:
        return None, "high_s"
    if not (0 < r < N and s > 0):
        return None, "r_or_s"
    y = pow(r**3 + 7, (P + 1) // 4, P)
    if (y * y - r**3 - 7) % P:
        return None, "no_point"
    y = y if y % 2 == v - 27 else P - y
    inverse = pow(r, -1, N)
    point = add(multiply((r, y), s * inverse % N), multiply(G, -int.from_bytes(digest, "big") * inverse % N))
    return (address_of(point), None) if point else (None, "no_point")


@cache
def sign(digest: bytes, private_key: bytes) -> bytes:
    """Return the canonical signature with the nonce of RFC 6979 (HMAC-SHA-256)."""
    z, d = int.from_bytes(digest, "big") % N, int.from_bytes(private_key, "big")
    k, v, tail = bytes(32), b"\x01" * 32, private_key + z.to_bytes(32, "big")
    for separator in (b"\x00", b"\x01"):
        k = hmac.new(k, v + separator + tail, hashlib.sha256).digest()
        v = hmac.new(k, v, hashlib.sha256).digest()
    nonce = int.from_bytes(hmac.new(k, v, hashlib.sha256).digest(), "big")  # out of range: once in 2**127
    point = multiply(G, nonce)
    assert point is not None
    r, odd = point[0] % N, point[1] % 2
    s = pow(nonce, -1, N) * (z + r * d) % N
    s, odd = (N - s, 1 - odd) if s > N // 2 else (s, odd)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([27 + odd])


def with_high_s(signature: bytes) -> bytes:
    s = N - int.from_bytes(signature[32:64], "big")
    return signature[:32] + s.to_bytes(32, "big") + bytes([55 - signature[64]])


ALTERATIONS: dict[str | None, Callable[[bytes], bytes]] = {
    None: lambda s: s,
    "high_s": with_high_s,
    "v_minus_27": lambda s: s[:64] + bytes([s[64] - 27]),
    "compact": lambda s: s[:32] + bytes([s[32] | (s[64] - 27) << 7]) + s[33:64],  # ERC-2098
    "zero_byte_appended": lambda s: s + b"\x00",
    "last_byte_cut": lambda s: s[:-1],
}

# --- The words of the standard ----------------------------------------------------------------------------------------

TEXTS = {
    "experience_delta": "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,"
    "bytes32 deltaCommitment,bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)",
    "memory_state": "MemoryState(bytes32 prevStateRoot,bytes32 transitionId)",
    "memory_space": "MemorySpace(address initialController,bytes32 salt)",
    "space_registration": "SpaceRegistration(bytes32 spaceId,address controller,address authorizer)",
    "space_authorization": "SpaceAuthorization(bytes32 spaceId,address newController,"
    "address newAuthorizer,uint64 nonce)",
    "eip712_domain": "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)",
    "delta_commitment_tag": "AgentMemoryState.deltaCommitment.v1",
    "provenance_commitment_tag": "AgentMemoryState.provenanceCommitment.v1",
    "locator_commitment_tag": "AgentMemoryState.locatorCommitment.v1",
}
ZERO_WORD, ZERO_ADDRESS = "0x" + "00" * 32, "0x" + "00" * 20


def to_hex(data: bytes) -> str:
    return "0x" + data.hex()


def unhex(text: Any, size: int | None = None) -> bytes:
    if not isinstance(text, str) or not re.fullmatch("0x([0-9a-f]{2})*", text):
        raise Wrong(f"{text!r} is not lower-case hex")
    data = bytes.fromhex(text[2:])
    if size is not None and len(data) != size:
        raise Wrong(f"{text} has {len(data)} bytes instead of {size}")
    return data


def is_integer(value: Any, bits: int) -> bool:
    """Tell whether the value is a JSON string that writes an unsigned integer in its one decimal form."""
    written = isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,77}", value) is not None
    return written and int(value) < 2**bits


def word(kind: str, value: Any) -> bytes:
    """Encode one member of a struct as 32 bytes."""
    if kind == "string":
        return keccak256(value.encode())
    if kind in ("bytes32", "address"):
        return unhex(value, 32 if kind == "bytes32" else 20).rjust(32, b"\x00")
    if not re.fullmatch("uint[1-9][0-9]*", kind) or not is_integer(value, int(kind[4:])):
        raise Wrong(f"{value!r} is not a decimal string of type {kind}")
    return int(value).to_bytes(32, "big")


def struct_hash(text: str, values: dict[str, Any]) -> str:
    """Return the EIP-712 hash of a struct."""
    members = [member.split(" ") for member in text[text.index("(") + 1 : -1].split(",")]
    same("members of " + text, sorted(values), sorted(name for _, name in members))
    return to_hex(keccak256(keccak256(text.encode()) + b"".join(word(kind, values[name]) for kind, name in members)))


def signing_digest(domain: dict[str, Any], struct: str) -> bytes:
    return keccak256(b"\x19\x01" + unhex(struct_hash(TEXTS["eip712_domain"], domain)) + unhex(struct))


def transition_id(delta: dict[str, Any]) -> str:
    return struct_hash(TEXTS["experience_delta"], delta)


def next_root(previous: str, transition: str) -> str:
    return struct_hash(TEXTS["memory_state"], {"prevStateRoot": previous, "transitionId": transition})


def content_of(members: Members) -> bytes:
    """Return the bytes that a content stands for."""
    (form,) = members
    if form not in ("utf8", "hex"):
        raise Wrong(f"unknown form of content {form}")
    return str(members[form]).encode() if form == "utf8" else unhex(members[form])


def commitment(kind: str, opening: Members, profile: str) -> str:
    """Commit to a content under a salt; only a delta commitment names the profile."""
    content = content_of(opening["content"])
    words = [keccak256(TEXTS[kind + "_commitment_tag"].encode()), unhex(opening["salt"], 32), keccak256(content)]
    if kind == "delta":
        words.insert(1, unhex(profile, 32))
    return to_hex(keccak256(b"".join(words)))


RULES = ("space_id", "zero_delta_commitment", "zero_profile_id", "sequence_skipped", "sequence_repeated",
         "prev_state_root", "transition_id", "next_state_root")  # fmt: skip


def first_broken(space_id: str, transitions: list[Members]) -> dict[str, str] | None:
    """Walk a history from its start and return the first link that does not hold."""
    root = ZERO_WORD
    for due, claim in enumerate(transitions, start=1):
        delta = claim["delta"]
        claimed = int(delta["sequence"])
        found = transition_id(delta)
        broken = (
            delta["spaceId"] != space_id,
            delta["deltaCommitment"] == ZERO_WORD,
            delta["profileId"] == ZERO_WORD,
            claimed > due,
            claimed < due,
            delta["prevStateRoot"] != root,
            claim["transitionId"] != found,
            claim["nextStateRoot"] != next_root(delta["prevStateRoot"], found),
        )
        if any(broken):
            rule = RULES[broken.index(True)]
            return {"dueSequence": str(due), "claimedSequence": str(claimed), "rule": rule}
        root = claim["nextStateRoot"]
    return None


# --- Batches: many operations as one payload; a profile of this project, not of the standard --------------------------


def leaf_of(operation: Members, prefix: bytes = b"\x00", hashed: bool = True) -> bytes:
    content = content_of(operation["content"])
    return keccak256(prefix + unhex(operation["salt"], 32) + (keccak256(content) if hashed else content))


def join(left: bytes, right: bytes) -> bytes:
    return keccak256(b"\x01" + left + right)


def split(count: int) -> int:
    """Return how many leaves stand to the left of a root: the largest power of two below their number."""
    return int(2 ** ((count - 1).bit_length() - 1))


def batch_root(leaves: list[bytes], joined: Callable[[bytes, bytes], bytes] = join) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    left, right = leaves[: split(len(leaves))], leaves[split(len(leaves)) :]
    return joined(batch_root(left, joined), batch_root(right, joined))


def doubled_root(leaves: list[bytes]) -> bytes:
    """Return the root that comes out when an odd node is paired with itself, at every level."""
    while len(leaves) > 1:
        leaves = leaves + leaves[-1:] * (len(leaves) % 2)
        leaves = [join(left, right) for left, right in zip(leaves[::2], leaves[1::2], strict=True)]
    return leaves[0]


def path_root(leaf: bytes, index: int, count: int, siblings: list[bytes]) -> bytes:
    """Return the root that a path leads to; the siblings stand from the leaf upwards."""
    if count == 1:
        return leaf
    *below, sibling = siblings
    if index < split(count):
        return join(path_root(leaf, index, split(count), below), sibling)
    return join(sibling, path_root(leaf, index - split(count), count - split(count), below))


def path_length(index: int, count: int) -> int:
    if count == 1:
        return 0
    left = split(count)
    return 1 + (path_length(index, left) if index < left else path_length(index - left, count - left))


PAYLOAD = re.compile(r'\{"count":([1-9][0-9]{0,15}),"root":"(0x[0-9a-f]{64})"\}', re.ASCII)
REFUSED = ("count", "index", "siblings", "root")


# --- Audit grants; a record of this project, not of the standard ------------------------------------------------------

AUDIT_WITNESS = "AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)"
FOLD_RULES = ("from_zero", "empty_range", "not_next", "beyond_range", "incomplete")


def fold(entries: list[Any], start: str = ZERO_WORD) -> list[str]:
    """Return the root after each entry."""
    roots = [start]
    for entry in entries:
        words = {"prevRoot": roots[-1], **{name: entry[name] for name in ("transitionId", "witnessHash")}}
        roots.append(struct_hash(AUDIT_WITNESS, words))
    return roots[1:]


def refused_fold(first: int, last: int, sequences: list[int]) -> dict[str, str] | None:
    """Return why a list of sequence numbers is not the whole range in order, or None if it is."""
    if first == 0:
        return {"rule": "from_zero"}
    if last < first:
        return {"rule": "empty_range"}
    for due, sequence in enumerate(sequences, start=first):
        if due > last:
            return {"rule": "beyond_range"}
        if sequence != due:
            return {"rule": "not_next", "dueSequence": str(due)}
    due = first + len(sequences)
    return {"rule": "incomplete", "dueSequence": str(due)} if due <= last else None


# --- A model of the registry ------------------------------------------------------------------------------------------

BLANK = {"controller": ZERO_ADDRESS, "authorizer": ZERO_ADDRESS, "configNonce": "0",
         "transitionId": ZERO_WORD, "stateRoot": ZERO_WORD, "sequence": "0"}  # fmt: skip
ERRORS = {
    "registerSpace": ["ZeroSpaceId", "ZeroAddress", "InvalidSpaceId", "SpaceAlreadyRegistered", "InvalidAuthorization"],
    "updateSpaceAuthorization": ["ZeroAddress", "UnknownSpace", "InvalidAuthorization"],
    "commitTransition": ["UnknownSpace", "ZeroDeltaCommitment", "ZeroProfileId", "BadSequence", "BadPreviousState",
                         "InvalidAuthorization"],
}  # fmt: skip
ARGUMENT_TYPE = {"InvalidSpaceId": "bytes32", "BadSequence": "uint64", "BadPreviousState": "bytes32"}
Spaces = dict[str, dict[str, str]]


class Judged(NamedTuple):
    """What a call meets: every error in the order of the checks, and the space if there is none."""

    errors: list[str]
    arguments: dict[str, dict[str, str]]
    after: dict[str, str]


def judge(spaces: Spaces, case: Members, domain: Members) -> Judged:
    """Judge one call; a space that is unknown reads as zeros. Accounts here have no code (no ERC-1271)."""
    call, given, authorization = case["call"], case["input"], case["authorization"]
    known, space = given["spaceId"] in spaces, spaces.get(given["spaceId"], BLANK)
    arguments: dict[str, dict[str, str]] = {}

    def differs(error: str, expected: str, received: str) -> bool:
        arguments[error] = {"expected": expected, "received": received}
        return expected != received

    if call == "registerSpace":
        controller, authorizer = given["controller"], given["authorizer"]
        derived = struct_hash(TEXTS["memory_space"], {"initialController": controller, "salt": given["salt"]})
        broken = [given["spaceId"] == ZERO_WORD, ZERO_ADDRESS in (controller, authorizer),
                  differs("InvalidSpaceId", derived, given["spaceId"]), known]  # fmt: skip
        message = {name: given[name] for name in given if name != "salt"}
        approver, struct = controller, struct_hash(TEXTS["space_registration"], message)
        after = {**BLANK, "controller": controller, "authorizer": authorizer}
    elif call == "updateSpaceAuthorization":
        controller, authorizer = given["newController"], given["newAuthorizer"]
        nonce = str(int(space["configNonce"]) + 1)
        broken = [ZERO_ADDRESS in (controller, authorizer), not known]
        message = {**given.plain(), "nonce": nonce}
        approver, struct = space["controller"], struct_hash(TEXTS["space_authorization"], message)
        after = {**space, "controller": controller, "authorizer": authorizer, "configNonce": nonce}
    elif call == "commitTransition":
        struct = transition_id(given)
        broken = [not known, given["deltaCommitment"] == ZERO_WORD, given["profileId"] == ZERO_WORD,
                  differs("BadSequence", str(int(space["sequence"]) + 1), given["sequence"]),
                  differs("BadPreviousState", space["stateRoot"], given["prevStateRoot"])]  # fmt: skip
        approver, root = space["authorizer"], next_root(given["prevStateRoot"], struct)
        after = {**space, "transitionId": struct, "stateRoot": root, "sequence": given["sequence"]}
    else:
        raise Wrong(f"the registry has no call {call}")

    sender, signature = authorization["sender"], unhex(authorization["signature"])
    unhex(sender, 20)
    direct = sender == approver and not signature
    signed = recover(signing_digest(domain, struct), signature)[0] == approver
    broken.append(approver == ZERO_ADDRESS or not (direct or signed))
    return Judged([name for name, bad in zip(ERRORS[call], broken, strict=True) if bad], arguments, after)


def reach(name: str, doc: Members) -> Spaces:
    """Return the spaces of a named state, after replaying the calls that lead to it."""
    state = doc["states"][name]
    spaces = deepcopy(reach(state["after"], doc)) if "after" in state else {}
    for call in state["calls"]:
        errors, _, after = judge(spaces, call, doc["domain"])
        same(f"errors on the way to the state {name}", [], errors)
        spaces[call["input"]["spaceId"]] = after
    return spaces


# --- One check for each kind of case ----------------------------------------------------------------------------------

Files = dict[str, Members]


@cache
def public_address(private_key: bytes) -> str:
    return address_of(multiply(G, int.from_bytes(private_key, "big")))


def mistaken(mistake: str, delta: Members) -> str:
    """Return the transition id that an implementation with a known mistake would compute."""
    sequence = int(delta["sequence"])
    if mistake == "sequence_packed_into_8_bytes":
        tail = b"".join(unhex(delta[name]) for name in list(delta)[2:])
        head = keccak256(TEXTS["experience_delta"].encode()) + unhex(delta["spaceId"])
        return to_hex(keccak256(head + sequence.to_bytes(8, "big") + tail))
    cut = {"sequence_cut_to_32_bits": sequence % 2**32, "sequence_rounded_to_a_double": int(float(sequence))}
    return transition_id({**delta, "sequence": str(cut[mistake])})


class Reader:
    """The checks, one for each kind of case, over one file; each raises when a case does not hold."""

    def __init__(self, name: str, files: Files) -> None:
        self.doc, self.files = files[name], files

    def check_text(self, case: Members) -> None:
        states(case, "text", TEXTS[case["name"]])
        states(case, "keccak256", to_hex(keccak256(case["text"].encode())))

    def check_domain(self, case: Members) -> None:
        states(case, "domainSeparator", struct_hash(TEXTS["eip712_domain"], case["domain"]))

    def check_space_id(self, case: Members) -> None:
        derivation = {name: case[name] for name in ("initialController", "salt")}
        states(case, "spaceId", struct_hash(TEXTS["memory_space"], derivation))

    def check_approval(self, case: Members) -> None:
        text = TEXTS[{"registration": "space_registration", "rotation": "space_authorization"}[case["kind"]]]
        domain = case.get("domain", self.doc["domain"])
        states(case, "structHash", struct_hash(text, case["message"]))
        states(case, "signingDigest", to_hex(signing_digest(domain, case["structHash"])))
        for mistake in case.get("mistakes", {}):
            mistyped = {"nonce_typed_as_uint256": text.replace("uint64", "uint256")}[mistake]
            wrong = signing_digest(domain, struct_hash(mistyped, case["message"]))
            states(case["mistakes"], mistake, to_hex(wrong))

    def check_commitment(self, case: Members) -> None:
        kind = case["kind"].replace("_commitment", "")
        states(case, "commitment", commitment(kind, case, case["profileId"] if kind == "delta" else ""))

    def check_transition(self, case: Members) -> None:
        delta, found = case["delta"], transition_id(case["delta"])
        states(case, "transitionId", found)
        states(case, "nextStateRoot", next_root(delta["prevStateRoot"], found))
        digest = signing_digest(case.get("domain", self.doc["domain"]), found)
        states(case, "signingDigest", to_hex(digest))
        for mistake in case.get("mistakes", {}):
            states(case["mistakes"], mistake, mistaken(mistake, delta))
            if case["mistakes"][mistake] == found:
                raise Wrong(f"{mistake} gives the right transition id")

    def check_witness(self, case: Members) -> None:
        self.check_transition(case)
        self.check_space_id(self.doc["space"])
        states(case, "authorizer", self.doc["space"]["authorizer"])
        so_far = self.doc["cases"][: 1 + [other is case for other in self.doc["cases"]].index(True)]
        same("first broken link", None, first_broken(self.doc["space"]["spaceId"], so_far))
        for kind in ("delta", "provenance", "locator"):
            opening, stated = case["witness"][kind], case["delta"][kind + "Commitment"]
            opened = commitment(kind, opening, case["delta"]["profileId"]) if opening is not None else ZERO_WORD
            same(kind + "Commitment", stated, opened)

    def check_edited_history(self, case: Members) -> None:
        transitions = deepcopy(self.files[self.doc["history"]]["cases"])
        for edit in case["edits"]:
            at, action = int(edit["at"]) - 1, edit["edit"]
            if action == "set":
                target = transitions[at] if edit["member"] in transitions[at] else transitions[at]["delta"]
                same("edited member exists", edit["member"] in target, True)
                target[edit["member"]] = edit["value"]
            elif action == "drop":
                del transitions[at]
            elif action == "repeat":
                transitions.insert(at + 1, deepcopy(transitions[at]))
            elif action == "swap":
                other = int(edit["with"]) - 1
                transitions[at], transitions[other] = transitions[other], transitions[at]
            else:
                raise Wrong(f"unknown edit {action}")
        found = first_broken(self.doc["spaceId"], transitions)
        stated = case["firstBroken"].plain() if "firstBroken" in case else None
        same("first broken link", stated, found)
        states(case, "kind", "broken_history" if found else "linked_history")

    def check_call(self, case: Members) -> None:
        spaces = reach(case["state"], self.doc)
        errors, arguments, after = judge(spaces, case, self.doc["domain"])
        if case["authorization"]["signature"] != "0x":
            self.check_signed(case, spaces)
        if case["kind"] == "acceptance":
            same("errors", [], errors)
            same("after", case["after"].plain(), after)
            return
        error = case["error"]
        same("errors in order", [error["name"], *case["alsoWrong"]], errors)
        expected = arguments.get(errors[0], {})
        kind = ARGUMENT_TYPE.get(errors[0])
        signature = f"{errors[0]}({kind},{kind})" if kind else f"{errors[0]}()"
        selector = keccak256(signature.encode())[:4]
        same("arguments", error["arguments"].plain(), expected)
        states(error, "signature", signature)
        states(error, "selector", to_hex(selector))
        data = selector + b"".join(word(str(kind), value) for value in expected.values())
        states(error, "revertData", to_hex(data))

    def key_of(self, name: str) -> bytes:
        private_key = unhex(self.doc["keys"][name]["privateKey"], 32)
        same(f"address of {name}", self.doc["keys"][name]["address"], public_address(private_key))
        return private_key

    def check_signed(self, case: Members, spaces: Spaces) -> None:
        """Make the signature again from what the case says was signed, by whom, and how it was altered."""
        authorization, signed = case["authorization"], case["authorization"]["signed"]
        digest = signing_digest(
            signed.get("domain", self.doc["domain"]), struct_hash(signed["type"], signed["message"])
        )
        signature, altered = sign(digest, self.key_of(signed["by"])), signed.get("altered")
        same("signature", authorization["signature"], to_hex(ALTERATIONS[altered](signature)))
        if altered and case["origin"] == "ours":
            authorized = {"sender": authorization["sender"], "signature": to_hex(signature)}
            mended = Members([("call", case["call"]), ("input", case["input"]), ("authorization", authorized)])
            same("errors with the signature unaltered", [], judge(spaces, mended, self.doc["domain"]).errors)

    def check_ecdsa(self, case: Members) -> None:
        digest, signature, expected = unhex(case["digest"], 32), unhex(case["signature"]), case["expected"]
        address, refused = recover(digest, signature)
        if address and address != case["signer"]:
            refused = "other_signer"
        same("address", expected.get("address"), address)
        same("refused", expected.get("refused"), refused)
        unhex(case["signer"], 20)
        published = [c["signingDigest"] for name in self.doc["digestsOf"] for c in self.files[name]["cases"]]
        same("digest is one of another file", case["digest"] in published, True)
        if "signedBy" in case:
            same("signature", signature, sign(digest, self.key_of(case["signedBy"])))

    def check_sequence(self, case: Members) -> None:
        value = json.loads(case["jsonText"])
        states(case, "kind", "accepted" if is_integer(value, 64) else "refused")
        if case["kind"] == "accepted":
            states(case, "sequence", value)

    def check_batch(self, case: Members) -> None:
        operations = case["operations"]
        leaves = [leaf_of(operation) for operation in operations]
        states(case, "leaves", [to_hex(leaf) for leaf in leaves])
        states(case, "count", str(len(leaves)))
        states(case, "root", to_hex(batch_root(leaves)))
        same("payload", content_of(case["payload"]).decode(), f'{{"count":{len(leaves)},"root":"{case["root"]}"}}')
        bare = [leaf_of(operation, b"") for operation in operations]
        wrong = {
            "prefixes_left_out": batch_root(bare, lambda left, right: keccak256(left + right)),
            "content_not_hashed_first": batch_root([leaf_of(operation, hashed=False) for operation in operations]),
            "pairs_sorted": batch_root(leaves, lambda left, right: join(*sorted((left, right)))),
            "odd_node_doubled": doubled_root(leaves),
        }
        for mistake in case["mistakes"]:
            states(case["mistakes"], mistake, to_hex(wrong[mistake]))
            same(f"{mistake} gives another root", wrong[mistake] != batch_root(leaves), True)

    def check_inclusion(self, case: Members) -> None:
        batch, proof, leaf = case["batch"], case["proof"], leaf_of(case["operation"])
        states(case, "leaf", to_hex(leaf))
        index, count = (int(proof[name]) for name in ("index", "count") if is_integer(proof[name], 53))
        siblings, root = [unhex(sibling, 32) for sibling in proof["siblings"]], unhex(batch["root"], 32)
        broken = [str(count) != batch["count"], index >= count]
        broken.append(not any(broken) and len(siblings) != path_length(index, count))
        broken.append(not any(broken) and path_root(leaf, index, count, siblings) != root)
        refused = REFUSED[broken.index(True)] if any(broken) else None
        same("refused", case.get("refused"), refused)
        states(case, "kind", "refused_inclusion" if refused else "inclusion")

    def check_payload(self, case: Members) -> None:
        read = PAYLOAD.fullmatch(content_of(case["payload"]).decode())
        held = read is not None and int(read[1]) < 2**53
        states(case, "kind", "payload" if held else "refused_payload")
        if read and held:
            states(case, "count", read[1])
            states(case, "root", read[2])

    def check_audit_type(self, case: Members) -> None:
        states(case, "text", AUDIT_WITNESS)
        states(case, "keccak256", to_hex(keccak256(AUDIT_WITNESS.encode())))

    def check_grant_id(self, case: Members) -> None:
        members = {"spaceId": "bytes32", "auditor": "address", "fromSequence": "uint64", "toSequence": "uint64"}
        space, auditor, first, last = (word(kind, case[name]) for name, kind in members.items())
        states(case, "grantId", to_hex(keccak256(space + auditor + first + last)))
        wrong = {
            "packed": space + auditor[12:] + first[24:] + last[24:],
            "auditor_at_the_left_end": space + auditor[12:] + bytes(12) + first + last,
            "ends_cut_to_32_bits": space + auditor + bytes(28) + first[28:] + bytes(28) + last[28:],
            "ends_exchanged": space + auditor + last + first,
        }
        for mistake in case["mistakes"]:
            states(case["mistakes"], mistake, to_hex(keccak256(wrong[mistake])))
            same(f"{mistake} gives another id", case["mistakes"][mistake] != case["grantId"], True)

    def check_witness_object(self, case: Members) -> None:
        from third_reading_meditation import canonical, read_json

        text = case["jsonText"]
        value = read_json(text)
        states(case, "kind", "witness_hash" if isinstance(value, dict) else "refused_witness")
        if case["kind"] == "refused_witness":
            return
        written = canonical(value).encode()
        states(case, "canonical", written.decode())
        states(case, "witnessHash", to_hex(keccak256(written)))
        ascii_only = json.dumps(json.loads(case["canonical"]), sort_keys=True, separators=(",", ":"))
        wrong = {
            "hashed_as_written": text.encode(),
            "escaped_to_ascii": ascii_only.encode(),
            "canonical_text_hashed_twice": keccak256(written),
        }
        for mistake in case["mistakes"]:
            states(case["mistakes"], mistake, to_hex(keccak256(wrong[mistake])))
            same(f"{mistake} gives another hash", case["mistakes"][mistake] != case["witnessHash"], True)

    def check_fold(self, case: Members) -> None:
        entries, ends = case["entries"], [case[name] for name in ("fromSequence", "toSequence")]
        sequences = [entry["sequence"] for entry in entries]
        same("sequences are uint64", all(is_integer(value, 64) for value in sequences + ends), True)
        roots = fold(entries)
        found = refused_fold(int(ends[0]), int(ends[1]), [int(value) for value in sequences])
        states(case, "kind", "refused_fold" if found else "witness_root")
        if found:
            same("refused", case["refused"].plain(), found)
            return
        states(case, "roots", roots)
        states(case, "witnessSetRoot", roots[-1])
        exchanged = [{"transitionId": e["witnessHash"], "witnessHash": e["transitionId"]} for e in entries]
        bare = bytes(32)
        for entry in entries:
            bare = keccak256(bare + unhex(entry["transitionId"], 32) + unhex(entry["witnessHash"], 32))
        wrong = {
            "type_hash_left_out": to_hex(bare),
            "started_from_the_type_hash": fold(entries, to_hex(keccak256(AUDIT_WITNESS.encode())))[-1],
            "folded_backwards": fold(entries[::-1])[-1],
            "words_exchanged": fold(exchanged)[-1],
            "first_left_out": [ZERO_WORD, *fold(entries[1:])][-1],
            "last_left_out": [ZERO_WORD, *fold(entries[:-1])][-1],
        }
        for mistake in case["mistakes"]:
            states(case["mistakes"], mistake, wrong[mistake])
            same(f"{mistake} gives another root", wrong[mistake] != roots[-1], True)


Check = Callable[[Reader, Members], None]
CHECKS: dict[str, dict[str, Check]] = {
    "types.json": {"type_string": Reader.check_text, "commitment_tag": Reader.check_text},
    "domains.json": {"domain": Reader.check_domain},
    "spaces.json": {
        "space_id": Reader.check_space_id,
        "registration": Reader.check_approval,
        "rotation": Reader.check_approval,
    },
    "commitments.json": {f"{kind}_commitment": Reader.check_commitment for kind in ("delta", "provenance", "locator")},
    "transitions.json": {"transition": Reader.check_transition},
    "history.json": {"transition_with_witness": Reader.check_witness},
    "broken_histories.json": {
        "broken_history": Reader.check_edited_history,
        "linked_history": Reader.check_edited_history,
    },
    "rejections.json": {"rejection": Reader.check_call, "acceptance": Reader.check_call},
    "sequences.json": {"accepted": Reader.check_sequence, "refused": Reader.check_sequence},
    "signatures.json": {"ecdsa": Reader.check_ecdsa},
    "batches.json": {
        "batch": Reader.check_batch,
        "inclusion": Reader.check_inclusion,
        "refused_inclusion": Reader.check_inclusion,
        "payload": Reader.check_payload,
        "refused_payload": Reader.check_payload,
    },
    "audit_grants.json": {
        "type_string": Reader.check_audit_type,
        "grant_id": Reader.check_grant_id,
        "witness_hash": Reader.check_witness_object,
        "refused_witness": Reader.check_witness_object,
        "witness_root": Reader.check_fold,
        "refused_fold": Reader.check_fold,
    },
}


def gaps(name: str, doc: Members) -> list[str]:
    """Return what a file must speak of and does not: texts, rules, and the errors of each call."""
    cases = doc["cases"]
    missing: list[str] = []
    if name == "types.json":
        missing += [f"no case {text}" for text in TEXTS if text not in [c["name"] for c in cases]]
    if name == "broken_histories.json":
        rules = [c["firstBroken"]["rule"] for c in cases if "firstBroken" in c]
        missing += [f"no case breaks the rule {rule}" for rule in RULES if rule not in rules]
    if name == "batches.json":
        reasons = [c["refused"] for c in cases if "refused" in c]
        missing += [f"no proof is refused for its {reason}" for reason in REFUSED if reason not in reasons]
    if name == "audit_grants.json":
        rules = [c["refused"]["rule"] for c in cases if "refused" in c]
        missing += [f"no list is refused as {rule}" for rule in FOLD_RULES if rule not in rules]
    if name == "rejections.json":
        seen = [(c["call"], c["error"]["name"]) for c in cases if "error" in c]
        wanted = [(call, error) for call in ERRORS for error in ERRORS[call]]
        missing += [f"no case meets {error} in {call}" for call, error in wanted if (call, error) not in seen]
    return missing


# --- All sets ---------------------------------------------------------------------------------------------------------


class VectorSet(NamedTuple):
    """A folder of files: who reads a file, by which check a kind of case, and what a file must not leave out."""

    folder: str
    reader: Callable[[str, Files], Any]
    checks: Mapping[str, Mapping[str, Callable[[Any, Members], None]]]
    gaps: Callable[[str, Members], list[str]]


MEMORY_STATE = VectorSet("agent-memory-state", Reader, CHECKS, gaps)
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, StopIteration)
Results = dict[str, tuple[int, list[str]]]


def check_file(read: VectorSet, name: str, files: Files) -> tuple[int, list[str]]:
    """Return how many cases of a file hold, and a line for each failure."""
    reader, checks, doc, passed = read.reader(name, files), read.checks[name], files[name], 0
    failures: list[str] = []
    names: list[str] = []
    for case in doc["cases"]:
        try:
            if not re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", case["name"]) or case["name"] in names:
                raise Wrong("the name is not in snake_case, or stands twice")
            names.append(case["name"])
            if case["origin"] not in ("published", "ours"):
                raise Wrong(f"unknown origin {case['origin']!r}")
            if case["kind"] not in checks:
                raise Wrong(f"unknown kind {case['kind']!r}")
            checks[case["kind"]](reader, case)
            passed += 1
        except MALFORMED as problem:
            failures.append(f"{dict.get(case, 'name')}: {type(problem).__name__}: {problem}")
    if not failures:
        kinds = [case["kind"] for case in doc["cases"]]
        failures += [f"no case of kind {kind}" for kind in checks if kind not in kinds] + read.gaps(name, doc)
    if not isinstance(doc.get("about"), str) or not doc["cases"]:
        failures.append("the file says nothing about itself, or has no cases")
    if doc["caseCount"] != str(len(doc["cases"])):
        failures.append(f"the file has {len(doc['cases'])} cases, and says {doc['caseCount']}")
    failures += [f"nothing checks {path}" for path in unread(doc)] if not failures else []
    return passed, failures


def check_set(read: VectorSet, here: Path) -> Results:
    """Return, for each file of a set, how many cases hold and a line for each failure."""
    files: Files = {}
    results: Results = {}
    for name in sorted({path.name for path in here.iterdir()} | set(read.checks)):
        try:
            if name not in read.checks:
                raise Wrong("no check knows this file")
            files[name] = json.loads((here / name).read_text("utf-8"), object_pairs_hook=Members)
        except (OSError, ValueError) as problem:
            results[name] = 0, [str(problem)]
    for name in files:
        try:
            results[name] = check_file(read, name, files)
        except MALFORMED as problem:
            results[name] = 0, [f"the file is not laid out as it should be: {problem!r}"]
    return {f"{read.folder}/{name}": results[name] for name in sorted(results)}


def main(folder: Path | None = None) -> int:
    from third_reading_meditation import MEDITATION

    here = folder or Path(__file__).parent
    results: Results = {}
    for read in (MEMORY_STATE, MEDITATION):
        if (here / read.folder).is_dir():
            results |= check_set(read, here / read.folder)
        elif folder is None:
            results[read.folder] = 0, ["the set is not here"]
    if not results:
        results[str(here)] = 0, ["no set is here"]
    for name, (passed, failures) in results.items():
        print(f"{name}: {passed} passed, {len(failures)} failed")
        for failure in failures:
            print(f"    {failure}")
    failed = sum(len(failures) for _, failures in results.values())
    print(f"{sum(passed for passed, _ in results.values())} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    # The other reading imports this one, so what runs is the module of that name, not a second copy of it; and where
    # Python keeps the script's folder off its path, it is put there.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path(__file__).parent))
    from third_reading import main as run

    sys.exit(run(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
