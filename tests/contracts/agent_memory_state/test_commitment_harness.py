"""The three commitments, computed in the EVM by a harness that is never deployed for use."""

from __future__ import annotations

import pytest
from eth_abi import encode
from eth_utils import keccak, to_canonical_address
from hypothesis import given
from hypothesis import strategies as st

from anvil import from_hex
from models.memory import compute_delta_commitment, compute_locator_commitment, compute_provenance_commitment
from strategies import words


@pytest.fixture(scope="module")
def compute(node, deployer, project):
    """Calls the harness by name, with argument types and arguments."""
    harness = to_canonical_address(deployer.deploy(project.CommitmentHarness).address)

    def call(name: str, types: list[str], *arguments) -> bytes:
        selector = keccak(text=f"{name}({','.join(types)})")[:4]
        answer = node.call(harness, selector + encode(types, arguments))
        assert isinstance(answer, bytes), answer
        return answer

    return call


@given(profile_id=words, delta_salt=words, payload=st.binary(max_size=300))
def test_compute_delta_commitment_agrees_with_the_model(compute, profile_id, delta_salt, payload):
    types = ["bytes32", "bytes32", "bytes"]
    answer = compute("computeDeltaCommitment", types, profile_id, delta_salt, payload)
    assert answer == compute_delta_commitment(profile_id, delta_salt, payload)


@given(salt=words, provenance=st.binary(max_size=300))
def test_compute_provenance_commitment_agrees_with_the_model(compute, salt, provenance):
    answer = compute("computeProvenanceCommitment", ["bytes32", "bytes"], salt, provenance)
    assert answer == compute_provenance_commitment(salt, provenance)


@given(salt=words, locator=st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
def test_compute_locator_commitment_agrees_with_the_model(compute, salt, locator):
    answer = compute("computeLocatorCommitment", ["bytes32", "string"], salt, locator)
    assert answer == compute_locator_commitment(salt, locator)


def test_the_harness_reproduces_the_published_commitments(compute):
    """Figures that came from outside both the harness and the model, published with the standard."""
    delta = compute(
        "computeDeltaCommitment",
        ["bytes32", "bytes32", "bytes"],
        from_hex("0x2f53a8c7cdfafe7559a285db700638113866e8605b81c9454f0936d67ddbd759"),
        b"\xaa" * 32,
        b'{"op":"upsert","resourceId":"memory-42","value":"prefers dark mode"}',
    )
    assert delta.hex() == "2cf1dc108cc32cfe1617db756a7c793f383b67165ea1bb542f456dc6100f967d"
    provenance = compute(
        "computeProvenanceCommitment",
        ["bytes32", "bytes"],
        b"\xcc" * 32,
        b'{"inference":"0xabcd","input":"0x1234"}',
    )
    assert provenance.hex() == "4791ee5d37e8fc775d00f82c3d451e6d313aa5fe16dd94de5efdbbb39dc0f05c"
    locator = compute("computeLocatorCommitment", ["bytes32", "string"], b"\xbb" * 32, "ipfs://bafybeigdyrzt5example")
    assert locator.hex() == "c5ff571b8429eecd969f718fc45e45017c0d3a217dff401ad1cc752686bac812"
