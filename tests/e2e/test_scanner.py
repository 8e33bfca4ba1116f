"""The scanner and the verified history against a real node, which is reorganized under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web3 import Web3

from melete import Address, Bytes32, LocalSigner, MemoryRegistry, Witness, compute_profile_id, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.logs import Scanner, load_block, load_transaction
from melete.chain.transactions import LocalSender, transact
from melete.errors import BrokenHistory, ChainReorganized, UnusableLogs
from melete.memory.events import TOPICS, MemoryEvent, SpaceAuthorizationUpdated, TransitionCommitted, decode_event
from melete.memory.forensics import (
    COULD_NOT_TELL,
    Approval,
    ApprovedBy,
    follow_space,
    identify_approval,
    verify_registry_history,
    verify_space_history,
)
from melete.memory.proofs import load_space_proof, verify_anchor
from melete.memory.raw_history import decode_quickly, verify_space_logs
from melete.memory.space import GENESIS
from melete.resources import load_artifact

KEYS = [LocalSigner(keccak256(b"scanner %d" % number)) for number in range(5)]
CONTROLLER, AUTHORIZER, SUCCESSOR, RELAYER, OUTSIDER = KEYS


class World:
    """A node of its own, a registry on it, and what was done there."""

    def __init__(self, w3: Web3) -> None:
        self.w3 = w3
        for key in KEYS:
            self.rpc("anvil_setBalance", str(key.address), hex(10**21))
        code = load_artifact("AgentMemoryStateRegistry").bytecode
        receipt = transact(w3, LocalSender(RELAYER), w3.eth.chain_id, None, code)
        assert receipt.contract_address is not None
        self.address, self.start_block = receipt.contract_address, receipt.block_number
        self.registry = MemoryRegistry(w3, self.address, sender=LocalSender(RELAYER))

    def rpc(self, method: str, *parameters: Any) -> Any:
        answer: Any = self.w3.provider.make_request(method, list(parameters))  # type: ignore[arg-type]
        assert "error" not in answer, answer
        return answer["result"]

    def register(self, name: bytes) -> Bytes32:
        return self.registry.register(AUTHORIZER.address, keccak256(name), controller=CONTROLLER).space_id

    def commit(self, space_id: Bytes32, signer: LocalSigner | None = AUTHORIZER, payload: bytes = b"tea") -> None:
        head = self.registry.head(space_id)
        delta = Witness(compute_profile_id("test/1"), payload, keccak256(payload)).build_delta(space_id, head)
        self.registry.commit(delta, authorizer=signer)

    def scanner(self, **options: Any) -> Scanner[MemoryEvent]:
        options.setdefault("start_block", self.start_block)
        return Scanner(self.w3, self.address, options.pop("decode", decode_quickly), **options)

    def reorganize(self, depth: int) -> None:
        """Replace the last blocks by empty ones, one more than there were."""
        self.rpc("anvil_reorg", depth, [])
        self.rpc("evm_mine")


@pytest.fixture
def world() -> Iterator[World]:
    with Anvil() as node:
        yield World(connect(node.url))


def populate(world: World) -> list[Bytes32]:
    """Three spaces whose transitions and rotations are mixed."""
    spaces = [world.register(b"%d" % number) for number in range(3)]
    for _ in range(2):
        for space_id in spaces:
            world.commit(space_id)
    world.registry.rotate(spaces[1], CONTROLLER.address, SUCCESSOR.address, controller=CONTROLLER)
    world.commit(spaces[1], SUCCESSOR)
    world.commit(spaces[0])
    world.registry.rotate(spaces[1], OUTSIDER.address, AUTHORIZER.address, controller=CONTROLLER)
    world.commit(spaces[1])
    return spaces


@pytest.mark.parametrize("decode", [decode_event, decode_quickly])
def test_scan_of_several_spaces_leads_to_what_the_registry_knows(world: World, decode: Any) -> None:
    spaces = populate(world)
    scanner = world.scanner(decode=decode, topics=(tuple(TOPICS),))
    states = verify_registry_history(scanner.events())
    assert states == {space_id: world.registry.load_state(space_id) for space_id in spaces}
    assert scanner.position == load_block(world.w3, "latest")


def test_scan_of_one_space_is_anchored_in_the_block_where_it_ended(world: World) -> None:
    spaces = populate(world)
    for space_id in spaces:
        scanner = world.scanner(topics=(tuple(TOPICS), space_id))
        state = verify_space_logs(space_id, scanner.logs())
        assert state == verify_space_history(space_id, world.scanner(topics=(tuple(TOPICS), space_id)).events())
        world.commit(spaces[0], payload=b"later than the scan")
        block = scanner.position
        proof = load_space_proof(world.w3, world.address, space_id, block)
        assert verify_anchor(state, proof, world.address, space_id, block.hash) == state


def test_a_log_that_was_left_out_at_the_end_shows_in_the_anchor(world: World) -> None:
    space_id = world.register(b"space")
    for number in range(3):
        world.commit(space_id, payload=b"%d" % number)
    scanner = world.scanner()
    state = verify_space_history(space_id, list(scanner.events())[:-1])
    proof = load_space_proof(world.w3, world.address, space_id, scanner.position)
    with pytest.raises(BrokenHistory, match="head"):
        verify_anchor(state, proof, world.address, space_id, scanner.position.hash)


def test_who_approved_is_told_from_calldata(world: World) -> None:
    own = MemoryRegistry(world.w3, world.address, sender=LocalSender(AUTHORIZER))
    space_id = world.register(b"space")
    world.commit(space_id)
    head = world.registry.head(space_id)
    own.commit(Witness(compute_profile_id("test/1"), b"direct", keccak256(b"direct")).build_delta(space_id, head))
    world.registry.rotate(space_id, OUTSIDER.address, SUCCESSOR.address, controller=CONTROLLER)

    told = []
    for step in follow_space(space_id, world.scanner().events()):
        sent = load_transaction(world.w3, step.event.reference.transaction_hash)
        told.append(identify_approval(step, world.registry.domain, sent.sender, sent.to, sent.data))
    assert told == [
        Approval(ApprovedBy.KEY, CONTROLLER.address),
        Approval(ApprovedBy.KEY, AUTHORIZER.address),
        Approval(ApprovedBy.DIRECT_CALL, AUTHORIZER.address),
        Approval(ApprovedBy.KEY, CONTROLLER.address),
    ]


def test_who_approved_through_another_contract_cannot_be_told(world: World) -> None:
    space_id = world.register(b"space")
    world.commit(space_id)
    step = list(follow_space(space_id, world.scanner().events()))[-1]
    sent = load_transaction(world.w3, step.event.reference.transaction_hash)
    elsewhere = Address(b"\x99" * 20)
    assert identify_approval(step, world.registry.domain, sent.sender, elsewhere, sent.data) == COULD_NOT_TELL


def test_scan_goes_on_from_its_file_with_what_is_new(world: World, tmp_path: Path) -> None:
    space_id = world.register(b"space")
    world.commit(space_id)
    state_file = tmp_path / "scan.json"
    state = verify_space_history(space_id, world.scanner(state_file=state_file).events())
    world.registry.rotate(space_id, CONTROLLER.address, SUCCESSOR.address, controller=CONTROLLER)
    world.commit(space_id, SUCCESSOR)
    rest = list(world.scanner(state_file=state_file).events())
    assert [type(event) for event in rest] == [SpaceAuthorizationUpdated, TransitionCommitted]
    assert verify_space_history(space_id, rest, state) == world.registry.load_state(space_id)


def test_pages_follow_a_reorganization_to_the_branch_that_won(world: World, tmp_path: Path) -> None:
    space_id = world.register(b"space")
    for number in range(4):
        world.commit(space_id, payload=b"%d" % number)
    kept: list[MemoryEvent] = []

    def follow() -> None:
        for page in world.scanner(state_file=tmp_path / "scan.json").pages():
            kept[:] = [event for event in kept if event.reference.block_number <= page.after]
            kept.extend(page.events)

    follow()
    assert verify_space_history(space_id, kept).head.sequence == 4
    world.reorganize(depth=2)
    follow()
    assert verify_space_history(space_id, kept) == world.registry.load_state(space_id)
    assert verify_space_history(space_id, kept).head.sequence == 2
    world.commit(space_id, payload=b"another way")
    follow()
    assert verify_space_history(space_id, kept) == world.registry.load_state(space_id)


def test_events_that_were_given_out_and_orphaned_are_told(world: World) -> None:
    space_id = world.register(b"space")
    for number in range(3):
        world.commit(space_id, payload=b"%d" % number)
    scanner = world.scanner()
    events = list(scanner.events())
    world.reorganize(depth=2)
    with pytest.raises(ChainReorganized) as caught:
        list(scanner.events())
    kept = [event for event in events if event.reference.block_number <= caught.value.block_number]
    kept += list(scanner.events())
    assert verify_space_history(space_id, kept) == world.registry.load_state(space_id)


def test_logs_of_an_orphaned_block_are_refused(world: World) -> None:
    """A node that still gives the logs of a branch that lost, as one behind a load balancer may."""
    space_id = world.register(b"space")
    world.commit(space_id)
    query = {"address": str(world.address), "fromBlock": hex(world.start_block), "toBlock": "latest"}
    orphaned = world.rpc("eth_getLogs", query)
    world.reorganize(depth=1)
    honest = world.w3.provider.make_request
    scanner = world.scanner(sleep=lambda _: None)
    scanner._node._provider.make_request = lambda method, parameters: (
        {"result": orphaned} if method == "eth_getLogs" else honest(method, parameters)
    )
    with pytest.raises(UnusableLogs):
        list(scanner.events())
    assert verify_space_history(space_id, world.scanner().events()).head == GENESIS


@pytest.mark.parametrize(("until", "confirmations"), [("latest", 2), ("safe", 0), ("finalized", 0)])
def test_scan_ends_at_the_blocks_that_the_node_calls_safe(world: World, until: str, confirmations: int) -> None:
    space_id = world.register(b"space")
    world.rpc("anvil_mine", hex(70))
    for number in range(3):
        world.commit(space_id, payload=b"%d" % number)
    scanner = world.scanner(until=until, confirmations=confirmations)
    state = verify_space_history(space_id, scanner.events())
    end = load_block(world.w3, until).number - confirmations
    assert scanner.position.number == end
    assert state.head == world.registry.head(space_id, end)
    assert state.head.sequence < 3


@pytest.mark.parametrize("compare_final", [False, True])
def test_scan_leads_to_the_same_state_whether_final_blocks_are_compared_or_not(
    world: World, compare_final: bool
) -> None:
    space_id = world.register(b"space")
    world.commit(space_id)
    world.rpc("anvil_mine", hex(100))
    world.commit(space_id, payload=b"after")
    state = verify_space_history(space_id, world.scanner(compare_final=compare_final).events())
    assert state == world.registry.load_state(space_id)
    assert state.head.sequence == 2
