"""A registry with two spaces and a short history, and every optional record over it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from eth_utils import keccak

from memory_state import Actor, Behaviour, Registry, Wallet, deploy_registries, deploy_wallets
from models.memory import Delta
from space_records import RECORDS, Record, code_that_answers, deploy_record


@pytest.fixture(scope="session")
def auditor(actors) -> Actor:
    """May acknowledge what is granted to it."""
    return actors[7]


@pytest.fixture(scope="session")
def registries(node, deployer, project) -> dict[str, Registry]:
    return deploy_registries(node, deployer, project)


@pytest.fixture(scope="session")
def registry(registries) -> Registry:
    return registries["AgentMemoryStateRegistry"]


@pytest.fixture(scope="session")
def wallets(node, deployer, project, registries) -> dict[Behaviour, Wallet]:
    return deploy_wallets(deployer, project, Actor.from_seed("wallet owner"))


@pytest.fixture(scope="session")
def records(node, deployer, project, registry) -> dict[str, Record]:
    return {name: deploy_record(node, deployer, project, name, registry.address) for name in RECORDS}


@pytest.fixture(params=RECORDS)
def record(request, records) -> Record:
    """Each record in turn."""
    return records[request.param]


@pytest.fixture
def attestation(records) -> Record:
    return records["DeletionAttestation"]


@pytest.fixture
def audit(records) -> Record:
    return records["AuditGrant"]


@pytest.fixture
def descriptor(records) -> Record:
    return records["SpaceDescriptor"]


@pytest.fixture
def space(registry, controller, authorizer, relayer) -> bytes:
    """A space of the controller's."""
    request = registry.registration(controller, authorizer.address, keccak(text="space"))
    registry.must_perform(request, relayer.address)
    return request.space_id


@pytest.fixture
def foreign_space(registry, outsider, authorizer, relayer) -> bytes:
    """A space that the outsider controls."""
    request = registry.registration(outsider, authorizer.address, keccak(text="space"))
    registry.must_perform(request, relayer.address)
    return request.space_id


@pytest.fixture
def commit(registry, authorizer, relayer) -> Callable[[bytes], Delta]:
    """Appends a transition to a space, and returns its delta."""

    def run(space_id: bytes) -> Delta:
        delta = registry.next_delta(space_id)
        registry.must_perform(registry.signed(delta, authorizer), relayer.address)
        return delta

    return run


@pytest.fixture
def history(commit, space) -> list[Delta]:
    """Three transitions of the space."""
    return [commit(space) for _ in range(3)]


@pytest.fixture
def rotate(registry, space, controller, new_controller, authorizer, relayer) -> Callable[[], None]:
    """Hands the space to the new controller."""

    def run() -> None:
        request = registry.update(space, new_controller.address, authorizer.address, controller)
        registry.must_perform(request, relayer.address)

    return run


@pytest.fixture
def over_liar(node, deployer, project) -> Callable[..., Record]:
    """A record over a registry that passes the constructor, and from then on gives the answers it is told."""

    def run(name: str, answers: dict[str, bytes] | None, refusal: bytes = b"") -> Record:
        liar = keccak(text=f"liar for {name}")[12:]
        known = keccak(
            keccak(text="MemorySpace(address initialController,bytes32 salt)") + bytes(31) + b"\x01" + bytes(32)
        )
        node.set_code(liar, code_that_answers({"deriveSpaceId": known, "stateRootAt": bytes(32)}))
        record = deploy_record(node, deployer, project, name, liar)
        node.set_code(liar, b"" if answers is None else code_that_answers(answers, refusal))
        return record

    return run
