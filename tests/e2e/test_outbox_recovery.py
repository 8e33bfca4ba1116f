"""The outbox when something cannot go on as it is: refused, reorganized, stuck, lost; and who else sends."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from eth_abi import encode
from web3 import Web3

from melete import (
    GENESIS,
    Bytes32,
    LocalSigner,
    MemoryRegistry,
    Witness,
    compute_profile_id,
    keccak256,
    verify_witness,
)
from melete.chain import rpc
from melete.chain import submitter as submitting
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.errors import LaneLost, LaneMoving, LaneStopped, NodeBehind, WitnessesLost
from melete.chain.outbox import Outbox, State
from melete.chain.reverts import compute_selector
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender, transact
from melete.errors import (
    BadPreviousState,
    BadSequence,
    InvalidAuthorization,
    InvalidInput,
    NoContract,
    NodeRefused,
    OutboxBusy,
    StoreUnreadable,
    WitnessMissing,
)
from melete.memory.outbox import SET_ASIDE, MemoryOutbox, MemoryRules
from melete.memory.witness_kinds import DELTA
from melete.primitives import Address
from outbox_desk import (  # noqa: F401 - fixtures
    author,
    committed,
    ids,
    make_space,
    make_witnesses,
    memory,
    node,
    outbox,
    payer,
    registry,
    registry_address,
    submitter,
    w3,
    witnesses,
)


def ask(w3: Web3, method: str, *parameters: Any) -> Any:
    answer: Any = w3.provider.make_request(method, list(parameters))  # type: ignore[arg-type]
    assert "error" not in answer, answer
    return answer["result"]


def another(submitter: Submitter, **changed: Any) -> Submitter:
    """A submitter of another process: it knows nothing of what this one did."""
    options = {"confirmations": 0, "poll_seconds": 0.01, "patience_seconds": 0.2, **changed}
    signer = options.pop("signer", submitter.signer)
    return Submitter(options.pop("w3", submitter.w3), submitter.outbox, signer, MemoryRules(), **options)


@contextmanager
def answering(w3: Web3, change: Callable[[str, Any], Any]) -> Iterator[None]:
    """Let `change` put another answer in place of the node's, by method; None leaves it."""
    provider: Any = w3.provider
    single, batched = provider.make_request, provider.make_batch_request

    def one(method: str, parameters: Any) -> Any:
        return change(method, parameters) or single(method, parameters)

    def many(requests: Any) -> Any:
        answers = batched(requests)
        return [change(*request) or answer for request, answer in zip(requests, answers, strict=True)]

    provider.make_request, provider.make_batch_request = one, many
    try:
        yield
    finally:
        provider.make_request, provider.make_batch_request = single, batched


def revert(data: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": 3, "message": "execution reverted", "data": data}}


# Refused


def test_what_was_refused_is_rebuilt_with_all_that_waits_behind_it(registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(3), author)
    successor = LocalSigner(keccak256(b"successor"))
    registry.rotate(space, registry.sender.address, successor.address)
    assert (submitter.run().stopped, submitter.outbox.count()[State.QUEUED]) == (1, 2)
    with pytest.raises(LaneStopped, match="approval"):
        memory.add(space, make_witnesses(1, "later"), successor)
    rebuilt = memory.rebuild(space, successor)
    assert [delta.sequence for delta in rebuilt] == [1, 2, 3]
    assert submitter.run().done == 3
    assert committed(registry, space) == ids(rebuilt)


def test_what_was_refused_is_withdrawn_and_its_places_are_free(registry, memory, submitter, witnesses, author, request):
    space = make_space(registry, author, request)
    made = make_witnesses(2)
    memory.add(space, made, author)
    successor = LocalSigner(keccak256(b"successor"))
    registry.rotate(space, registry.sender.address, successor.address)
    submitter.run()
    assert memory.withdraw(space, dry_run=True) == [1, 2]
    assert submitter.outbox.count()[State.REFUSED] == 1
    assert memory.withdraw(space) == [1, 2]
    with pytest.raises(WitnessMissing):
        witnesses.get(DELTA.place(space, 1))
    kept = [entry.number for witness in made for entry in witnesses.find(witness.compute_commitments()[0])]
    assert all(number >= SET_ASIDE for number in kept), "nothing is lost, should the chain go back"
    deltas = memory.add(space, make_witnesses(2, "others"), successor)
    assert submitter.run().done == 2
    assert committed(registry, space) == ids(deltas)
    assert memory.withdraw(space) == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_is_a_block_behind_for_a_moment_refuses_nothing(
    w3, registry, memory, submitter, author, request, times
):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(3), author)
    stale = "0x" + (compute_selector("BadSequence(uint64,uint64)") + encode(["uint64", "uint64"], [2, 1])).hex()
    told = []

    def behind(method: str, _: Any) -> Any:
        if method == "eth_estimateGas" and len(told) < times:
            told.append(method)
            return revert(stale)
        return None

    with answering(w3, behind):
        assert submitter.run().done == 3
    assert len(told) == times
    assert committed(registry, space) == ids(deltas)


def test_a_refusal_without_words_that_stays_is_believed_and_can_be_rebuilt(
    w3, registry, memory, submitter, author, request
):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    with answering(w3, lambda method, _: revert("0x") if method == "eth_estimateGas" else None):
        assert submitter.run().stopped == 1
    rebuilt = memory.rebuild(space, author)
    assert submitter.run().done == 2
    assert committed(registry, space) == ids(rebuilt)


def test_what_follows_a_transaction_that_is_not_in_a_block_yet_is_not_refused(
    w3, registry, memory, submitter, author, request
):
    """A process that is new knows no gas of the lane, and cannot try what builds on a state that is not there yet."""
    space = make_space(registry, author, request)
    first = memory.add(space, make_witnesses(1, "first"), author)
    ask(w3, "evm_setAutomine", False)
    submitter._send(w3.eth.chain_id, submitter._chain_end())
    second = memory.add(space, make_witnesses(2, "second"), author)
    newcomer = another(submitter, patience_seconds=60)
    newcomer._settle(w3.eth.chain_id, newcomer._chain_end())
    assert not newcomer._send(w3.eth.chain_id, newcomer._chain_end())
    assert submitter.outbox.count()[State.REFUSED] == 0
    ask(w3, "evm_setAutomine", True)
    ask(w3, "evm_mine")
    assert newcomer.run().done == 3
    assert committed(registry, space) == ids([*first, *second])


def test_an_unsigned_delta_waits_for_the_account_that_may_send_it(
    w3, registry, memory, submitter, payer, author, request
):
    own = registry.register(payer.address, keccak256(request.node.nodeid.encode())).space_id
    others = make_space(registry, author, request)
    unsigned = memory.add(own, make_witnesses(2), None)
    signed = memory.add(others, make_witnesses(2), author)
    stranger = LocalSigner(keccak256(b"stranger"))
    ask(w3, "anvil_setBalance", str(stranger.address), hex(10**20))
    with pytest.raises(InvalidAuthorization):
        another(submitter, signer=LocalSender(stranger)).run()
    assert committed(registry, others) == ids(signed)
    assert {item.state for item in submitter.outbox.items() if item.lane == own} == {State.QUEUED}
    assert submitter.run().done == 4
    assert committed(registry, own) == ids(unsigned)


def test_one_lane_is_sent_and_the_others_are_left_alone(registry, memory, submitter, author, request):
    spaces = [make_space(registry, author, request, number) for number in range(2)]
    first, second = (memory.add(space, make_witnesses(2), author) for space in spaces)
    progress = another(submitter, only=frozenset({(registry.address, bytes(spaces[0]))})).run()
    assert (progress.done, progress.queued) == (2, 0)
    assert (committed(registry, spaces[0]), committed(registry, spaces[1])) == (ids(first), [])
    assert submitter.run().done == 4
    assert committed(registry, spaces[1]) == ids(second)


# Reorganized


def test_what_was_done_and_fell_to_a_deep_reorganization_is_sent_again(
    w3, registry, memory, submitter, author, request
):
    space = make_space(registry, author, request)
    before = ask(w3, "evm_snapshot")
    deltas = memory.add(space, make_witnesses(3), author)
    submitter.confirmations = 12
    assert submitter.run(until=State.MINED).mined == 3
    ask(w3, "anvil_mine", hex(32))
    assert submitter.run().done == 3
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(64))
    with pytest.raises(LaneLost):
        memory.add(space, make_witnesses(1, "later"), author)
    assert another(submitter).run().done == 3
    assert committed(registry, space) == ids(deltas)


def test_only_what_the_reorganization_took_is_sent_again(w3, registry, memory, submitter, author, request):
    spaces = [make_space(registry, author, request, number) for number in range(3)]
    deltas = [memory.add(spaces[0], make_witnesses(2), author)]
    submitter.run()
    kept = {item.id: item.transaction_hash for item in submitter.outbox.items(State.DONE)}
    before = ask(w3, "evm_snapshot")
    deltas += [memory.add(space, make_witnesses(2), author) for space in spaces[1:]]
    assert submitter.run().done == 6
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(10))
    assert another(submitter).run().done == 6
    assert {number: submitter.outbox.get(number).transaction_hash for number in kept} == kept
    assert [committed(registry, space) for space in spaces] == [ids(of_space) for of_space in deltas]


@pytest.mark.parametrize("until", [State.MINED, State.DONE])
def test_transactions_behind_nonces_that_are_gone_get_others(
    w3, registry, memory, submitter, payer, author, request, until
):
    """The account sent something else before them, which the reorganization took as well, and nobody sends again."""
    space = make_space(registry, author, request)
    before = ask(w3, "evm_snapshot")
    for _ in range(3):
        transact(w3, payer, w3.eth.chain_id, author.address, b"")
    deltas = memory.add(space, make_witnesses(2), author)
    submitter.run(until=until)
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(20))
    assert another(submitter).run().done == 2
    assert committed(registry, space) == ids(deltas)


def test_a_chain_that_began_anew_gets_everything_again(submitter, memory, registry, payer, author, request):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(3), author)
    submitter.run()
    with Anvil() as fresh:
        w3 = connect(fresh.url)
        deployed, _ = MemoryRegistry.deploy(w3, payer)
        assert deployed.address == registry.address
        assert make_space(deployed, author, request) == space
        with pytest.raises(NodeBehind):
            another(submitter, w3=w3).run()
        ask(w3, "anvil_mine", hex(submitter.outbox.done_blocks(31337, limit=1)[0].number))
        assert another(submitter, w3=w3).run().done == 3
        assert committed(deployed, space) == ids(deltas)


def test_a_landed_item_without_a_transaction_of_ours_is_judged_again_when_its_block_goes(
    w3, registry, memory, submitter, author, request
):
    space = make_space(registry, author, request)
    before = ask(w3, "evm_snapshot")
    deltas = memory.add(space, make_witnesses(1), author)
    registry.commit(deltas[0], authorizer=author)
    submitter.confirmations = 5
    assert submitter.run(until=State.MINED).mined == 1
    assert submitter.outbox.items()[0].raw is None
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(9))
    assert another(submitter).run().done == 1
    assert committed(registry, space) == ids(deltas)


def test_a_lane_that_nobody_asked_for_loses_nothing_to_a_reorganization(
    w3, registry, memory, submitter, author, request
):
    """A run for one lane alone sees that the block of the other is gone, before its own block hides that."""
    spaces = [make_space(registry, author, request, number) for number in range(2)]
    before = ask(w3, "evm_snapshot")
    deltas = [memory.add(space, make_witnesses(1), author) for space in spaces]
    assert submitter.run().done == 2
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(6))
    another(submitter, only=frozenset({(registry.address, bytes(spaces[0]))})).run()
    assert another(submitter).run().done == 2
    assert [committed(registry, space) for space in spaces] == [ids(found) for found in deltas]


def test_what_was_in_conflict_on_a_branch_that_is_gone_is_not_in_conflict_any_more(
    w3, registry, memory, submitter, author, request
):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    before = ask(w3, "evm_snapshot")
    foreign = make_witnesses(1, "theirs")[0].build_delta(space, registry.head(space))
    registry.commit(foreign, authorizer=author)
    assert submitter.run().stopped == 2
    ask(w3, "evm_revert", before)
    assert another(submitter).run().done == 2
    assert committed(registry, space) == ids(deltas)


def test_a_registration_that_is_not_there_yet_holds_its_lane_and_refuses_nothing(
    w3, registry, memory, submitter, author, request
):
    """A node that is still reading the chain, or one that went back behind the registration."""
    before = ask(w3, "evm_snapshot")
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    ask(w3, "evm_revert", before)
    assert (submitter.run().queued, submitter.run().stopped) == (2, 0)
    assert make_space(registry, author, request) == space
    assert submitter.run().done == 2
    assert committed(registry, space) == ids(deltas)


def test_nodes_at_one_address_that_differ_by_blocks_put_nothing_in_conflict(
    w3, registry, memory, submitter, author, request
):
    """Every other request is answered from a state that is up to two blocks old."""
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(12), author)
    dice = random.Random(3)

    def behind(method: str, parameters: Any) -> Any:
        if method == "eth_call" and parameters[1] == "latest" and dice.random() < 0.5:
            number = max(0, int(ask(w3, "eth_blockNumber"), 16) - dice.randint(1, 2))
            return {"jsonrpc": "2.0", "id": 1, "result": ask(w3, "eth_call", parameters[0], hex(number))}
        return None

    with answering(w3, behind):
        assert submitter.run().done == 12
    assert committed(registry, space) == ids(deltas)


def test_what_was_done_by_a_contract_that_is_gone_ends_the_run_and_stays_to_be_done(
    w3, outbox, witnesses, registry, memory, submitter, payer, author, request
):
    """A reorganization took the registry itself; the other lanes go on."""
    space = make_space(registry, author, request)
    before = ask(w3, "evm_snapshot")
    other, _ = MemoryRegistry.deploy(w3, payer)
    gone = make_space(other, author, request, 1)
    MemoryOutbox(outbox, other, witnesses).add(gone, make_witnesses(2), author)
    deltas = memory.add(space, make_witnesses(2), author)
    assert submitter.run().done == 4
    ask(w3, "evm_revert", before)
    ask(w3, "anvil_mine", hex(20))
    with pytest.raises(NoContract):
        another(submitter).run()
    assert committed(registry, space) == ids(deltas)
    assert {item.state for item in outbox.items() if item.lane == gone} <= {State.MINED, State.QUEUED, State.SENT}


def test_of_two_that_were_refused_at_one_place_one_is_tried_again(registry, memory, outbox, submitter, author, request):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(1), author)
    (item,) = outbox.items()
    outbox.record_state([item], State.REFUSED, "for the test")
    outbox.record_state(outbox.add([item]), State.REFUSED, "for the test")
    progress = submitter.run()
    assert (progress.done, progress.stopped) == (1, 1)
    assert committed(registry, space) == ids(deltas)


def test_a_node_that_is_a_block_behind_for_a_moment_takes_nothing_back(
    w3, registry, memory, submitter, author, request
):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(3), author)
    submitter.confirmations = 3
    assert submitter.run(until=State.MINED).mined == 3
    hashes = [item.transaction_hash for item in submitter.outbox.items()]
    latest = int(ask(w3, "eth_blockNumber"), 16)
    older, asked = ask(w3, "eth_getBlockByNumber", hex(latest - 2), False), []

    def behind(method: str, parameters: Any) -> Any:
        if method == "eth_getBlockByNumber" and len(asked) < 3:
            if parameters[0] == "latest":
                asked.append(method)
                return {"jsonrpc": "2.0", "id": 1, "result": older}
            if int(parameters[0], 16) > latest - 2:
                return {"jsonrpc": "2.0", "id": 1, "result": None}
        return None

    with answering(w3, behind):
        assert another(submitter, confirmations=3, patience_seconds=5).run(until=State.MINED).mined == 3
    ask(w3, "anvil_mine", hex(4))
    assert another(submitter, confirmations=3).run().done == 3
    assert [item.transaction_hash for item in submitter.outbox.items()] == hashes
    assert committed(registry, space) == ids(deltas)


def test_what_was_mined_on_a_chain_that_is_shorter_now_is_sent_again(w3, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    before = ask(w3, "evm_snapshot")
    deltas = memory.add(space, make_witnesses(2), author)
    submitter.confirmations = 5
    submitter.run(until=State.MINED)
    ask(w3, "evm_revert", before)
    another(submitter, confirmations=5).run(until=State.MINED)
    ask(w3, "anvil_mine", hex(6))
    assert another(submitter, confirmations=5).run().done == 2
    assert committed(registry, space) == ids(deltas)


# Lost


def test_what_a_lost_outbox_held_is_queued_again_from_the_witnesses(
    tmp_path, registry, memory, witnesses, submitter, author, request
):
    space = make_space(registry, author, request)
    kept = make_witnesses(3)
    memory.add(space, kept, author)
    with Outbox(tmp_path / "new.db") as outbox:
        fresh = MemoryOutbox(outbox, registry, witnesses)
        with pytest.raises(WitnessesLost):
            fresh.add(space, make_witnesses(1, "later"), author)
        assert outbox.items() == [], "nothing is left of what could not be added"
        rebuilt = fresh.rebuild(space, author)
        assert [delta.delta_commitment for delta in rebuilt] == [w.compute_commitments()[0] for w in kept]
        later = fresh.add(space, make_witnesses(1, "later"), author)
        sending = Submitter(registry.w3, outbox, submitter.signer, MemoryRules(), confirmations=0, poll_seconds=0.01)
        assert sending.run().done == 4
    assert committed(registry, space) == ids([*rebuilt, *later])


def test_a_twin_of_the_node_that_is_behind_makes_nothing_lost(
    w3, tmp_path, registry, memory, witnesses, submitter, author, request
):
    """What it says of the latest state is not asked for where a witness may be moved."""
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(3), author)
    submitter.run()
    view = "0x" + compute_selector("stateRootAt(bytes32,uint64)").hex()

    def behind(method: str, parameters: Any) -> Any:
        if method == "eth_call" and parameters[1] == "latest" and parameters[0]["data"].startswith(view):
            return {"jsonrpc": "2.0", "id": 1, "result": "0x" + "00" * 32}
        return None

    with Outbox(tmp_path / "new.db") as outbox, answering(w3, behind):
        assert MemoryOutbox(outbox, registry, witnesses).rebuild(space, author) == []
        assert MemoryOutbox(outbox, registry, witnesses).withdraw(space) == []
    for delta in deltas:
        verify_witness(delta, witnesses.get(DELTA.place(space, delta.sequence)))


def test_what_a_lost_outbox_held_can_be_given_up(tmp_path, registry, memory, witnesses, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    with Outbox(tmp_path / "new.db") as outbox:
        fresh = MemoryOutbox(outbox, registry, witnesses)
        assert fresh.withdraw(space) == [1, 2]
        assert fresh.add(space, make_witnesses(1, "later"), author)[0].sequence == 1


def test_nothing_is_rebuilt_while_others_of_the_lane_are_on_their_way(registry, memory, outbox, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(3), author)
    items = outbox.items()
    outbox.record_state(items[:1], State.REFUSED, "for the test")
    outbox.record_sent([replace(items[2], sender=author.address, nonce=1, raw=b"raw", transaction_hash=keccak256(b""))])
    for decide in (lambda: memory.rebuild(space, author), lambda: memory.withdraw(space)):
        with pytest.raises(LaneMoving):
            decide()


def test_what_another_outbox_got_committed_is_neither_rebuilt_nor_given_up(
    tmp_path, registry, memory, witnesses, submitter, author, request
):
    space = make_space(registry, author, request)
    mine = memory.add(space, make_witnesses(2, "mine"), author)
    for number in range(2):
        foreign = make_witnesses(1, f"theirs {number}")[0].build_delta(space, registry.head(space))
        registry.commit(foreign, authorizer=author)
    assert submitter.run().stopped == 2
    with Outbox(tmp_path / "second.db") as outbox:
        second = MemoryOutbox(outbox, registry, witnesses)
        sending = Submitter(registry.w3, outbox, submitter.signer, MemoryRules(), confirmations=0, poll_seconds=0.01)
        outbox_two = second.add(space, make_witnesses(2, "second"), author)
        assert sending.run().done == 2
    assert memory.withdraw(space, dry_run=True) == [1, 2]
    rebuilt = memory.rebuild(space, author)
    assert [delta.delta_commitment for delta in rebuilt] == [delta.delta_commitment for delta in mine]
    assert submitter.run().done == 2
    assert committed(registry, space)[2:] == ids([*outbox_two, *rebuilt])
    for delta in (*outbox_two, *rebuilt):
        verify_witness(delta, witnesses.get(DELTA.place(space, delta.sequence)))


def test_a_payload_that_another_outbox_rebuilt_is_not_committed_a_second_time(
    tmp_path, registry, memory, witnesses, submitter, author, request
):
    """Two outboxes on one store: the second takes the first for lost, and rebuilds what is in conflict there."""
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(1, "mine"), author)
    registry.commit(make_witnesses(1, "theirs")[0].build_delta(space, registry.head(space)), authorizer=author)
    assert submitter.run().stopped == 1
    with Outbox(tmp_path / "second.db") as outbox:
        second = MemoryOutbox(outbox, registry, witnesses)
        (rebuilt,) = second.rebuild(space, author)
        sending = Submitter(registry.w3, outbox, submitter.signer, MemoryRules(), confirmations=0, poll_seconds=0.01)
        assert sending.run().done == 1
    assert memory.rebuild(space, author) == []
    assert registry.head(space).sequence == rebuilt.sequence == 2
    verify_witness(rebuilt, witnesses.get(DELTA.place(space, 2)))
    assert memory.add(space, make_witnesses(1, "later"), author)[0].sequence == 3


def test_what_landed_is_not_rebuilt_whatever_the_outbox_holds_it_for(
    registry, memory, witnesses, submitter, author, request
):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    submitter.run()
    submitter.outbox.record_state(submitter.outbox.items()[:1], State.REFUSED, "for the test")
    assert memory.withdraw(space) == []
    assert memory.rebuild(space, author) == []
    assert submitter.run().done == 2
    assert committed(registry, space) == ids(deltas)
    for delta in deltas:
        verify_witness(delta, witnesses.get(DELTA.place(space, delta.sequence)))


def test_a_lost_delta_whose_place_somebody_else_took_is_rebuilt_with_the_others(
    tmp_path, registry, memory, witnesses, submitter, author, request
):
    space = make_space(registry, author, request)
    mine = memory.add(space, make_witnesses(3, "mine"), author)
    registry.commit(make_witnesses(1, "theirs")[0].build_delta(space, registry.head(space)), authorizer=author)
    with Outbox(tmp_path / "new.db") as outbox:
        rebuilt = MemoryOutbox(outbox, registry, witnesses).rebuild(space, author)
    assert [delta.sequence for delta in rebuilt] == [2, 3, 4]
    assert [delta.delta_commitment for delta in rebuilt] == [delta.delta_commitment for delta in mine]


def test_the_same_witness_twice_is_given_up_at_its_own_place(registry, memory, witnesses, submitter, author, request):
    space = make_space(registry, author, request)
    (witness,) = make_witnesses(1)
    (first,) = memory.add(space, [witness], author)
    submitter.run()
    memory.add(space, [witness], author)
    registry.commit(make_witnesses(1, "theirs")[0].build_delta(space, registry.head(space)), authorizer=author)
    assert submitter.run().stopped == 1
    assert memory.withdraw(space) == [2]
    verify_witness(first, witnesses.get(DELTA.place(space, 1)))
    with pytest.raises(WitnessMissing):
        witnesses.get(DELTA.place(space, 2))


# Others on the same key, chain and file


def test_many_threads_send_from_one_key_at_once(node, registry, payer, author, request):
    spaces = [make_space(registry, author, request, number) for number in range(10)]
    outcomes: list[Any] = [None] * len(spaces)

    def commit(place: int) -> None:
        own = MemoryRegistry(connect(node.url), registry.address, sender=payer)
        witness = Witness(compute_profile_id("test/1"), b"tea", Bytes32(secrets.token_bytes(32)))
        try:
            outcomes[place] = own.commit(witness.build_delta(spaces[place], GENESIS), authorizer=author)
        except Exception as error:  # noqa: BLE001 - told to the test
            outcomes[place] = error

    threads = [threading.Thread(target=commit, args=(place,)) for place in range(len(spaces))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [getattr(outcome, "delta", outcome).sequence for outcome in outcomes] == [1] * len(spaces)


def test_of_two_threads_at_one_space_one_is_told_that_it_came_second(node, registry, payer, author, request):
    space = make_space(registry, author, request)
    outcomes: list[Any] = []

    def commit(payload: bytes) -> None:
        own = MemoryRegistry(connect(node.url), registry.address, sender=payer)
        witness = Witness(compute_profile_id("test/1"), payload, Bytes32(secrets.token_bytes(32)))
        try:
            outcomes.append(own.commit(witness.build_delta(space, GENESIS), authorizer=author))
        except (BadSequence, BadPreviousState) as error:
            outcomes.append(error)

    threads = [threading.Thread(target=commit, args=(payload,)) for payload in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2
    assert len(committed(registry, space)) == 1


def test_what_waits_for_another_chain_holds_no_run_up(registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    elsewhere = [replace(item, chain_id=1) for item in submitter.outbox.items()]
    added = submitter.outbox.add(elsewhere)
    submitter.outbox.record_mined((item, 7, keccak256(b"block")) for item in added)
    progress = submitter.run()
    assert (progress.done, progress.mined) == (2, 0)
    assert submitter.outbox.count(chain_id=1)[State.MINED] == 2


def test_lanes_that_cannot_go_do_not_hide_the_others(registry, memory, submitter, author, request, monkeypatch):
    monkeypatch.setattr(submitting, "WINDOW", 10)
    stuck, free = (make_space(registry, author, request, number) for number in range(2))
    memory.add(stuck, make_witnesses(12), author)
    registry.rotate(stuck, registry.sender.address, LocalSigner(keccak256(b"successor")).address)
    deltas = memory.add(free, make_witnesses(2), author)
    progress = submitter.run()
    assert (progress.done, progress.stopped, progress.queued) == (2, 1, 11)
    assert committed(registry, free) == ids(deltas)


def test_one_lane_without_a_contract_holds_up_no_other(registry, memory, submitter, outbox, author, request):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    outbox.add([replace(outbox.items()[0], target=Address(b"\x99" * 20))])
    with pytest.raises(NoContract):
        submitter.run()
    assert committed(registry, space) == ids(deltas)
    assert outbox.count()[State.DONE] == 2


def test_the_file_has_one_lock_whatever_its_name(tmp_path, outbox):
    (tmp_path / "link.db").symlink_to(outbox.path)
    with Outbox(tmp_path / "link.db") as linked, outbox.acting(), pytest.raises(OutboxBusy), linked.acting():
        pass


# Providers


@pytest.mark.parametrize("most", [1, 7])
def test_a_provider_that_takes_few_requests_at_a_time_gets_few(w3, registry, memory, submitter, author, request, most):
    spaces = [make_space(registry, author, request, number) for number in range(3)]
    deltas = {space: memory.add(space, make_witnesses(20), author) for space in spaces}
    provider: Any = w3.provider
    batched, sizes = provider.make_batch_request, []

    def few(requests: Any) -> Any:
        sizes.append(len(requests))
        if len(requests) > most:
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}}
        return batched(requests)

    provider.make_batch_request = few
    assert submitter.run().done == 60
    assert {space: committed(registry, space) for space in spaces} == {s: ids(found) for s, found in deltas.items()}
    assert len([size for size in sizes if size > most]) <= rpc.MOST_AT_ONCE.bit_length()


@pytest.mark.parametrize(
    ("message", "tries"),
    [("nonce too low", 6), ("replacement transaction underpriced", 6), ("transaction underpriced", 2),
     ("insufficient funds for gas * price + value", 1), ("request timed out", 1)],
)  # fmt: skip
def test_a_node_that_never_takes_a_transaction_is_not_asked_for_ever(
    w3, registry, memory, submitter, author, request, message, tries
):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(1), author)
    asked = []

    def refuse(method: str, _: Any) -> Any:
        if method != "eth_sendRawTransaction":
            return None
        asked.append(method)
        return {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": message}}

    with answering(w3, refuse), pytest.raises(NodeRefused, match=message.split("*")[0].strip()):
        submitter.run()
    assert len(asked) == tries


def test_what_may_be_on_its_way_is_not_sent_a_second_time_as_another(w3, registry, memory, submitter, author, request):
    """The node has it, and says that it took too long."""
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    ask(w3, "evm_setAutomine", False)
    provider: Any = w3.provider
    batched = provider.make_batch_request

    def slow(requests: Any) -> Any:
        answers = batched(requests)
        late = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "request timed out"}}
        return [late if method == "eth_sendRawTransaction" else answer
                for (method, _), answer in zip(requests, answers, strict=True)]  # fmt: skip

    provider.make_batch_request = slow
    with pytest.raises(NodeRefused):
        submitter.run()
    provider.make_batch_request = batched
    assert submitter.outbox.count()[State.SENT] == 2
    hashes = [item.transaction_hash for item in submitter.outbox.items()]
    ask(w3, "evm_mine")
    ask(w3, "evm_setAutomine", True)
    assert another(submitter).run().done == 2
    assert [item.transaction_hash for item in submitter.outbox.items()] == hashes
    assert committed(registry, space) == ids(deltas)


def test_a_transaction_that_always_reverts_is_given_up(registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(1), author)
    key = submitting._gas_key(submitter.outbox.items()[0])

    class TooLittle(dict[Any, int]):
        def __getitem__(self, _: Any) -> int:
            return 60_000

        def get(self, *_: Any) -> int:
            return 60_000

        def __contains__(self, _: Any) -> bool:
            return True

    submitter._gas = TooLittle({key: 60_000})
    assert submitter.run().stopped == 1
    assert "reverted 3 times" in submitter.outbox.items(State.REFUSED)[0].reason


def test_a_registry_that_is_not_there_is_named(outbox, witnesses, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(1), author)
    nowhere = Address(b"\x99" * 20)
    outbox.add([replace(outbox.items()[0], target=nowhere)])
    with pytest.raises(NoContract) as caught:
        submitter.run()
    assert caught.value.address == nowhere


# Settings and files


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"confirmations": -1}, "confirmations"), ({"confirmations": "junk"}, "confirmations"),
     ({"poll_seconds": "x"}, "poll_seconds"), ({"poll_seconds": float("nan")}, "poll_seconds"),
     ({"patience_seconds": -1}, "patience_seconds")],
)  # fmt: skip
def test_settings_that_are_none_are_refused_by_name(submitter, settings, field):
    with pytest.raises(InvalidInput, match=field):
        another(submitter, **settings)


@pytest.mark.parametrize("until", ["foo", State.QUEUED, None])
def test_a_run_has_an_end(submitter, until):
    with pytest.raises(InvalidInput, match="until"):
        submitter.run(until=until)


def test_a_damaged_page_of_the_file_is_told_as_such(tmp_path, registry, memory, outbox, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(40), author)
    outbox.close()
    path = tmp_path / "outbox.db"
    content = bytearray(path.read_bytes())
    content[4096:8192] = b"\xff" * 4096
    path.write_bytes(content)
    with Outbox(path) as damaged, pytest.raises(StoreUnreadable, match="outbox"):
        damaged.items()
