"""A subject's head mirrored into an ERC-8004 identity registry, by that registry's public interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from melete import Address, LocalSigner, keccak256
from melete.chain.reverts import compute_selector
from melete.chain.transactions import LocalSender, transact
from melete.errors import (
    ConfigurationError,
    CrossCheckFailed,
    InvalidInput,
    InvalidJson,
    NoContract,
    NotARegistry,
    UnknownRevert,
)
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.mirror import LARGEST_METADATA, IdentityMirror, MirrorDiffers, MirroredHead
from melete.meditation.policy import Policy
from melete.meditation.registry import MeditationRegistry

BASELINE = tuple(keccak256(b"layer %d" % layer) for layer in range(4))
POLICY = Policy(0x0F, 0, 0x0F)


@pytest.fixture(scope="module")
def identities(deploy) -> Address:
    return deploy("IdentityRegistryMock")


@pytest.fixture
def signer(w3, request) -> LocalSigner:
    made = LocalSigner(keccak256(request.node.nodeid.encode()))
    w3.provider.make_request("anvil_setBalance", [str(made.address), hex(10**20)])
    return made


@pytest.fixture
def registry(w3, deploy, signer) -> MeditationRegistry:
    registry = MeditationRegistry(w3, deploy("AgentMeditationRegistry"), sender=LocalSender(signer))
    registry.enroll(BASELINE, POLICY)
    return registry


@pytest.fixture
def mirror(w3, identities, signer) -> IdentityMirror:
    """The mirror of an agent that the subject owns."""
    transact(w3, LocalSender(signer), w3.eth.chain_id, identities, compute_selector("register()"))
    return IdentityMirror(w3, identities, 0, sender=LocalSender(signer))


def write_raw(mirror: IdentityMirror, data: bytes) -> None:
    from eth_abi.abi import encode

    words = encode(["uint256", "string", "bytes"], [mirror.agent_id, mirror.key, data])
    call = compute_selector("setMetadata(uint256,string,bytes)") + words
    transact(mirror.w3, mirror.sender, mirror.chain_id, mirror.address, call)


def test_head_is_mirrored_once_and_again_when_it_moved(registry, mirror, signer):
    assert mirror.load() is None
    with pytest.raises(CrossCheckFailed):
        mirror.verify(registry)
    assert mirror.write(registry, registry.load_subject(signer.address)) is not None
    assert mirror.write(registry, registry.load_subject(signer.address)) is None
    found = mirror.verify(registry)
    assert (found.state_version, found.last_completed_at) == (1, (0, 0, 0, 0))
    now, head = registry.clock(), registry.head(signer.address)
    after = (keccak256(b"new"), *BASELINE[1:])
    registry.report(signer.address, CycleReport(1, head.root, after, 1, 1, 0, Outcome.COMPLETED, 0, 1, now, now))
    with pytest.raises(CrossCheckFailed, match="state_version"):
        mirror.verify(registry)
    assert mirror.write(registry, registry.load_subject(signer.address)) is not None
    assert mirror.verify(registry).last_completed_at == (now, 0, 0, 0)


def test_copy_of_somebody_elses_head_does_not_hold(registry, mirror, w3, identities):
    thief = LocalSigner(keccak256(b"thief"))
    w3.provider.make_request("anvil_setBalance", [str(thief.address), hex(10**20)])
    transact(w3, LocalSender(thief), w3.eth.chain_id, identities, compute_selector("register()"))
    copied = IdentityMirror(w3, identities, 1, sender=LocalSender(thief))
    with pytest.raises(InvalidInput, match="owner"):
        copied.write(registry, registry.load_subject(mirror.owner))
    write_raw(copied, MirroredHead.of(registry, registry.load_subject(mirror.owner)).to_bytes())
    with pytest.raises(CrossCheckFailed, match="subject"):
        copied.verify(registry)


def test_head_of_another_registry_or_chain_does_not_hold(registry, mirror, signer):
    head = MirroredHead.of(registry, registry.load_subject(signer.address))
    for other in (replace(head, chain_id=1), replace(head, registry=Address(b"\x12" * 20))):
        write_raw(mirror, other.to_bytes())
        with pytest.raises(CrossCheckFailed):
            mirror.verify(registry)


@pytest.mark.parametrize("data", [b"{}", b"\xff", b" " * (LARGEST_METADATA + 1), b"[" * 4000])
def test_metadata_that_is_no_head_does_not_hold_and_is_written_over(registry, mirror, signer, data):
    write_raw(mirror, data)
    with pytest.raises(MirrorDiffers, match="write the mirror anew") as caught:
        mirror.verify(registry)
    assert isinstance(caught.value, CrossCheckFailed)
    assert "sign" not in str(caught.value)
    mirror.write(registry, registry.load_subject(signer.address))
    assert mirror.verify(registry).state_version == 1


def test_only_the_owner_writes_and_hears_it_before_anything_is_sent(registry, mirror, w3, identities, relayer, signer):
    outsider = IdentityMirror(w3, identities, 0, sender=relayer)
    before = w3.eth.block_number
    with pytest.raises(UnknownRevert):
        outsider.write(registry, registry.load_subject(signer.address))
    with pytest.raises(ConfigurationError):
        IdentityMirror(w3, identities, 0).write(registry, registry.load_subject(signer.address))
    assert w3.eth.block_number == before


def test_what_is_no_identity_registry_or_no_agent_is_told(w3, identities, our_address):
    with pytest.raises(InvalidInput, match="agentId"):
        IdentityMirror(w3, identities, 77)
    with pytest.raises(NotARegistry):
        IdentityMirror(w3, our_address, 0)
    with pytest.raises(NoContract):
        IdentityMirror(w3, Address(b"\x77" * 20), 0)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"\xff",
        b'{"format":"amm.head/1"}',
        b'{"format":"amm.head/2"}',
        b" " * (LARGEST_METADATA + 1),
    ],
)
def test_metadata_that_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises((InvalidJson, InvalidInput)):
        MirroredHead.from_bytes(data)


@pytest.mark.parametrize(
    ("member", "value"),
    [("last_completed_at", (0, 0, 0)), ("last_completed_at", (0, 0, 0, 2**48)), ("state_version", 1.5)],
)
def test_head_with_a_member_out_of_range_is_refused(registry, signer, member: str, value: Any) -> None:
    head = replace(MirroredHead.of(registry, registry.load_subject(signer.address)), **{member: value})
    with pytest.raises((InvalidJson, InvalidInput)):
        MirroredHead.from_bytes(head.to_bytes())
