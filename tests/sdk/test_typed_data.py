from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from eth_account.messages import encode_typed_data
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput
from melete.memory.delta import compute_transition_id
from melete.memory.space import compute_authorization_hash, compute_registration_hash, memory_state_domain
from melete.primitives import Address, Bytes32
from melete.typed_data import Domain
from strategies import addresses, uint64s, words

from .strategies import experience_deltas

chain_ids = st.sampled_from([0, 1, 31337, 2**64, 2**256 - 1]) | st.integers(0, 2**256 - 1)

WORD = "bytes32"
TYPES = {
    "ExperienceDelta": [
        ("spaceId", WORD),
        ("sequence", "uint64"),
        ("prevStateRoot", WORD),
        ("deltaCommitment", WORD),
        ("provenanceCommitment", WORD),
        ("profileId", WORD),
        ("locatorCommitment", WORD),
    ],
    "SpaceRegistration": [("spaceId", WORD), ("controller", "address"), ("authorizer", "address")],
    "SpaceAuthorization": [
        ("spaceId", WORD),
        ("newController", "address"),
        ("newAuthorizer", "address"),
        ("nonce", "uint64"),
    ],
}


def witness(chain_id: int, registry: bytes, struct: str, *values: Any) -> tuple[bytes, bytes, bytes]:
    """Domain separator, struct hash and digest, as `eth_account` computes them."""
    members = TYPES[struct]
    signable = encode_typed_data(
        {"name": "AgentMemoryState", "version": "1", "chainId": chain_id, "verifyingContract": "0x" + registry.hex()},
        {struct: [{"name": name, "type": kind} for name, kind in members]},
        {
            name: "0x" + value.hex() if kind == "address" else value
            for (name, kind), value in zip(members, values, strict=True)
        },
    )
    return signable.header, signable.body, keccak(b"\x19" + signable.version + signable.header + signable.body)


def ours(chain_id: int, registry: bytes, struct_hash: Bytes32) -> tuple[bytes, bytes, bytes]:
    domain = memory_state_domain(chain_id, Address(registry))
    return domain.separator, struct_hash, domain.digest(struct_hash)


@given(chain_ids, addresses, experience_deltas)
def test_delta_is_signed_as_eth_account_signs_it(chain_id: int, registry: bytes, delta: Any) -> None:
    values = (
        delta.space_id,
        delta.sequence,
        delta.prev_state_root,
        delta.delta_commitment,
        delta.provenance_commitment,
        delta.profile_id,
        delta.locator_commitment,
    )
    expected = witness(chain_id, registry, "ExperienceDelta", *values)
    assert ours(chain_id, registry, compute_transition_id(delta)) == expected


@given(chain_ids, addresses, words, addresses, addresses)
def test_registration_is_signed_as_eth_account_signs_it(
    chain_id: int, registry: bytes, space_id: bytes, controller: bytes, authorizer: bytes
) -> None:
    struct_hash = compute_registration_hash(Bytes32(space_id), Address(controller), Address(authorizer))
    expected = witness(chain_id, registry, "SpaceRegistration", space_id, controller, authorizer)
    assert ours(chain_id, registry, struct_hash) == expected


@given(chain_ids, addresses, words, addresses, addresses, uint64s)
def test_update_is_signed_as_eth_account_signs_it(
    chain_id: int, registry: bytes, space_id: bytes, controller: bytes, authorizer: bytes, nonce: int
) -> None:
    struct_hash = compute_authorization_hash(Bytes32(space_id), Address(controller), Address(authorizer), nonce)
    expected = witness(chain_id, registry, "SpaceAuthorization", space_id, controller, authorizer, nonce)
    assert ours(chain_id, registry, struct_hash) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])), chain_ids)
def test_domain_of_any_name_and_version_is_that_of_eth_account(name: str, version: str, chain_id: int) -> None:
    signable = encode_typed_data(
        {"name": name, "version": version, "chainId": chain_id, "verifyingContract": "0x" + "11" * 20},
        {"Empty": []},
        {},
    )
    assert Domain(name, version, chain_id, Address("0x" + "11" * 20)).separator == signable.header


# A domain is a value

DOMAIN = Domain("AgentMemoryState", "1", 1, Address(b"\x44" * 20))


@pytest.mark.parametrize(
    "other",
    [
        Domain("AgentMemoryStat", "1", 1, Address(b"\x44" * 20)),
        Domain("AgentMemoryState", "2", 1, Address(b"\x44" * 20)),
        Domain("AgentMemoryState", "1", 2, Address(b"\x44" * 20)),
        Domain("AgentMemoryState", "1", 1, Address(b"\x45" * 20)),
    ],
    ids=["name", "version", "chain_id", "verifying_contract"],
)
def test_two_domains_never_influence_each_other(other: Domain) -> None:
    first = (DOMAIN.separator, DOMAIN.digest(Bytes32(bytes(32))))
    second = (other.separator, other.digest(Bytes32(bytes(32))))
    assert set(first).isdisjoint(second)
    assert (DOMAIN.separator, DOMAIN.digest(Bytes32(bytes(32)))) == first
    assert other != DOMAIN


def test_equal_domains_are_one_value() -> None:
    again = Domain("AgentMemoryState", "1", 1, Address(b"\x44" * 20))
    assert again == DOMAIN
    assert {again: "found"}[DOMAIN] == "found"


def test_domain_cannot_be_changed_after_its_separator_is_known() -> None:
    separator = DOMAIN.separator
    with pytest.raises(FrozenInstanceError):
        DOMAIN.chain_id = 2  # type: ignore[misc]
    assert DOMAIN.separator == separator


@pytest.mark.parametrize("chain_id", [-1, 2**256, "1", 1.0, True, None])
def test_domain_refuses_a_chain_id_that_is_no_uint256(chain_id: Any) -> None:
    with pytest.raises(InvalidInput, match="chainId"):
        Domain("AgentMemoryState", "1", chain_id, Address(bytes(20)))


@pytest.mark.parametrize("contract", [b"", bytes(32), "0x", "0xAb" + "ab" * 19, None])
def test_domain_refuses_a_contract_that_is_no_address(contract: Any) -> None:
    with pytest.raises(InvalidInput, match="verifyingContract"):
        Domain("AgentMemoryState", "1", 1, contract)


@pytest.mark.parametrize("name", [1, None, "\ud800"])
def test_domain_refuses_a_name_that_is_no_text_that_utf_8_can_carry(name: Any) -> None:
    with pytest.raises(InvalidInput):
        _ = Domain(name, "1", 1, Address(bytes(20))).separator


@pytest.mark.parametrize("struct_hash", [b"", bytes(31), bytes(33), "hello", 5])
def test_digest_refuses_a_struct_hash_that_is_not_32_bytes(struct_hash: Any) -> None:
    with pytest.raises(InvalidInput):
        DOMAIN.digest(struct_hash)
