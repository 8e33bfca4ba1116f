"""The hash views, the EIP-712 domain and the signing digest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_account.messages import encode_typed_data
from eth_utils import keccak, to_checksum_address
from hypothesis import given

from anvil import Node, Reverted, from_hex
from memory_state import Registry, encode_call
from models.memory import (
    ZERO_WORD,
    Delta,
    compute_domain_separator,
    compute_next_state_root,
    compute_signing_digest,
    hash_experience_delta,
    hash_space_authorization,
    hash_space_registration,
)
from strategies import addresses, deltas, uint64s, words

# Struct hashes.


@given(delta=deltas)
def test_hash_experience_delta_agrees_with_the_model(memory_registry, delta):
    answer = memory_registry.view("hashExperienceDelta", delta.members())
    assert answer == hash_experience_delta(delta)


@given(prev_state_root=words, transition_id=words)
def test_compute_next_state_root_agrees_with_the_model(memory_registry, prev_state_root, transition_id):
    answer = memory_registry.view("computeNextStateRoot", prev_state_root, transition_id)
    assert answer == compute_next_state_root(prev_state_root, transition_id)


@given(space_id=words, controller=addresses, authorizer=addresses)
def test_hash_space_registration_agrees_with_the_model(memory_registry, space_id, controller, authorizer):
    answer = memory_registry.view("hashSpaceRegistration", space_id, controller, authorizer)
    assert answer == hash_space_registration(space_id, controller, authorizer)


@given(space_id=words, controller=addresses, authorizer=addresses, nonce=uint64s)
def test_hash_space_authorization_agrees_with_the_model(memory_registry, space_id, controller, authorizer, nonce):
    answer = memory_registry.view("hashSpaceAuthorization", space_id, controller, authorizer, nonce)
    assert answer == hash_space_authorization(space_id, controller, authorizer, nonce)


def test_the_hash_views_reproduce_the_published_transition(memory_registry):
    """Figures that came from outside both the contract and the model, published with the standard."""
    delta = Delta(
        space_id=from_hex("0xef5037465ae0323637cb58434eb554ae4a1fe1131bcc10888900f2d4cbe349d8"),
        sequence=1,
        prev_state_root=ZERO_WORD,
        delta_commitment=from_hex("0x2cf1dc108cc32cfe1617db756a7c793f383b67165ea1bb542f456dc6100f967d"),
        provenance_commitment=from_hex("0x4791ee5d37e8fc775d00f82c3d451e6d313aa5fe16dd94de5efdbbb39dc0f05c"),
        profile_id=from_hex("0x2f53a8c7cdfafe7559a285db700638113866e8605b81c9454f0936d67ddbd759"),
        locator_commitment=from_hex("0xc5ff571b8429eecd969f718fc45e45017c0d3a217dff401ad1cc752686bac812"),
    )
    transition_id = memory_registry.view("hashExperienceDelta", delta.members())
    assert transition_id.hex() == "dd00dd6eb3aec704b5455502647a0caacf23be6c724eda4a60d9645291e7f4e5"
    next_state_root = memory_registry.view("computeNextStateRoot", ZERO_WORD, transition_id)
    assert next_state_root.hex() == "9684a8d3571c5cd9c1e3abb1b0c0797b9fef6965e9002aeefba91e8cb1163754"


def test_a_registry_at_the_published_address_reproduces_the_published_digest(memory_registry, node):
    """The code put at another address: it has to take the domain from where and on which chain it runs."""
    published = b"\x44" * 20
    node.set_code(published, node.code(memory_registry.address))
    there = replace(memory_registry, address=published)
    transition_id = from_hex("0xdd00dd6eb3aec704b5455502647a0caacf23be6c724eda4a60d9645291e7f4e5")
    with node.on_chain(1):
        digest = there.view("signingDigest", transition_id)
    assert digest.hex() == "aa76377b6dc395d65e2c346a4ff3176bcbe3d27223e01b68be450f81f0f5f494"


@pytest.mark.parametrize("byte", range(24))
def test_hash_experience_delta_reverts_on_dirty_bits_above_the_sequence(memory_registry, node, byte):
    """The words are hashed as they lie in calldata, so a dirty one would give a hash that no uint64 has."""
    delta = Delta(keccak(b"1"), 7, keccak(b"2"), keccak(b"3"), keccak(b"4"), keccak(b"5"), keccak(b"6"))
    data = bytearray(encode_call("hashExperienceDelta", delta.members()))
    assert node.call(memory_registry.address, bytes(data)) == hash_experience_delta(delta)
    for dirt in (0x01, 0x80, 0xFF):
        data[4 + 32 + byte] = dirt
        answer = node.call(memory_registry.address, bytes(data))
        assert isinstance(answer, Reverted)
        assert answer.data == b""


def test_hash_space_authorization_reverts_on_dirty_bits_above_the_nonce(memory_registry, node):
    data = bytearray(encode_call("hashSpaceAuthorization", ZERO_WORD, bytes(20), bytes(20), 1))
    data[4 + 3 * 32 + 23] = 1
    answer = node.call(memory_registry.address, bytes(data))
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_hash_experience_delta_reverts_on_calldata_cut_short(memory_registry, node):
    data = encode_call("hashExperienceDelta", (ZERO_WORD, 0, *[ZERO_WORD] * 5))
    assert isinstance(node.call(memory_registry.address, data), bytes)
    answer = node.call(memory_registry.address, data[:-1])
    assert isinstance(answer, Reverted)
    assert answer.data == b""


def test_hash_experience_delta_ignores_calldata_behind_the_delta(memory_registry, node):
    data = encode_call("hashExperienceDelta", (ZERO_WORD, 0, *[ZERO_WORD] * 5))
    assert node.call(memory_registry.address, data + b"\xff" * 40) == node.call(memory_registry.address, data)


# Domain and digest.


def test_domain_separator_agrees_with_the_model(memory_registry):
    expected = compute_domain_separator(memory_registry.chain_id, memory_registry.address)
    assert memory_registry.view("domainSeparator") == expected


@given(struct_hash=words)
def test_signing_digest_agrees_with_the_model(memory_registry, struct_hash):
    assert memory_registry.view("signingDigest", struct_hash) == memory_registry.digest(struct_hash)


@pytest.mark.parametrize("chain_id", [1, 10, 8453, 2**32, 2**53 + 1])
def test_the_domain_follows_the_chain_id(memory_registry: Registry, node: Node, chain_id: int):
    """No separator is frozen at deployment: after a split each chain has its own."""
    before = memory_registry.view("domainSeparator")
    with node.on_chain(chain_id):
        expected = compute_domain_separator(chain_id, memory_registry.address)
        assert memory_registry.view("domainSeparator") == expected != before
        digest = memory_registry.view("signingDigest", keccak(b"message"))
        assert digest == compute_signing_digest(expected, keccak(b"message"))
        assert memory_registry.view("eip712Domain")[3] == chain_id
    assert memory_registry.view("domainSeparator") == before


def test_eip712_domain_names_what_the_separator_is_made_of(memory_registry):
    """EIP-5267: name, version, chain id and contract are used (0x0f), salt and extensions are not."""
    assert memory_registry.view("eip712Domain") == (
        b"\x0f",
        "AgentMemoryState",
        "1",
        memory_registry.chain_id,
        memory_registry.address,
        ZERO_WORD,
        (),
    )


def test_two_registries_have_two_domains(memory_registry, deployer, project):
    another = deployer.deploy(project.AgentMemoryStateRegistry)
    assert bytes(another.domainSeparator()) != memory_registry.view("domainSeparator")


@given(delta=deltas)
def test_the_digest_is_that_of_typed_data(memory_registry, delta):
    """An outside witness: the typed data as a wallet would show it, hashed by eth-account."""
    _, name, version, chain_id, contract, _, _ = memory_registry.view("eip712Domain")
    names = ("spaceId", "sequence", "prevStateRoot", "deltaCommitment")
    names += ("provenanceCommitment", "profileId", "locatorCommitment")
    types = [{"name": member, "type": "uint64" if member == "sequence" else "bytes32"} for member in names]
    typed = encode_typed_data(
        domain_data={
            "name": name,
            "version": version,
            "chainId": chain_id,
            "verifyingContract": to_checksum_address(contract),
        },
        message_types={"ExperienceDelta": types},
        message_data=dict(zip(names, delta.members(), strict=True)),
    )
    digest = keccak(b"\x19" + typed.version + typed.header + typed.body)
    struct_hash = memory_registry.view("hashExperienceDelta", delta.members())
    assert memory_registry.view("signingDigest", struct_hash) == digest
