"""The outbox, against a node that loses, forgets, replaces and re-organizes: every delta lands exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from web3 import Web3

from melete import (
    CallableSigner,
    LocalSigner,
    MemoryRegistry,
    keccak256,
    verify_witness,
)
from melete.chain import submitter as submitting
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.errors import LaneStopped
from melete.chain.outbox import Item, Outbox, State
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender, transact
from melete.errors import CouldNotTell, InvalidAuthorization, InvalidInput, MissingFile, NodeUnreachable, OutboxBusy
from melete.memory.outbox import MemoryOutbox, MemoryRules, delta_of
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from outbox_desk import (  # noqa: F401 - fixtures
    TEST_KEY,
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

# The usual day


def test_many_spaces_are_submitted_and_every_delta_lands_once(registry, memory, submitter, author, request):
    spaces = [make_space(registry, author, request, number) for number in range(4)]
    expected = {space: ids(memory.add(space, make_witnesses(15), author)) for space in spaces}
    seen = []
    progress = submitter.run(progress=seen.append)
    assert (progress.done, progress.queued, progress.sent, progress.mined) == (60, 0, 0, 0)
    assert len(seen) >= 1
    assert {space: committed(registry, space) for space in spaces} == expected


def test_what_is_added_later_builds_on_what_waits(registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    first = memory.add(space, make_witnesses(3, "first"), author)
    second = memory.add(space, make_witnesses(3, "second"), author)
    assert [delta.sequence for delta in [*first, *second]] == [1, 2, 3, 4, 5, 6]
    submitter.run()
    assert committed(registry, space) == ids([*first, *second])


def test_an_account_sends_its_own_deltas_without_a_signature(registry, memory, submitter, payer, request):
    space = registry.register(payer.address, keccak256(request.node.nodeid.encode())).space_id
    deltas = memory.add(space, make_witnesses(3), None)
    submitter.run()
    assert committed(registry, space) == ids(deltas)


def test_a_registry_with_the_normative_interface_alone_is_served_too(
    w3, outbox, witnesses, submitter, payer, author, project, request
):
    project.load_contracts()
    code = bytes(project.get_contract("NormativeMemoryRegistry").constructor.serialize_transaction().data)
    address = transact(w3, payer, w3.eth.chain_id, None, code).contract_address
    registry = MemoryRegistry(w3, address, sender=payer)
    memory = MemoryOutbox(outbox, registry, witnesses)
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(5), author)
    submitter.run()
    assert committed(registry, space) == ids(deltas)


def test_mined_is_not_done_until_enough_blocks_lie_on_top(w3, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    submitter.confirmations = 5
    assert submitter.run(until=State.MINED).mined == 2
    assert submitter.outbox.count()[State.DONE] == 0
    w3.provider.make_request("anvil_mine", [hex(6)])
    assert submitter.run().done == 2


# Faults of the node


class Unreliable:
    """A connection that forwards everything and loses some of the answers, or breaks before the request goes out."""

    def __init__(self, w3: Web3, seed: int) -> None:
        self.w3, self.random = w3, random.Random(seed)
        self.single, self.batched = w3.provider.make_request, w3.provider.make_batch_request

    def __enter__(self) -> Unreliable:
        self.w3.provider.make_request = lambda *words: self.forward(self.single, *words)
        self.w3.provider.make_batch_request = lambda *words: self.forward(self.batched, *words)
        return self

    def __exit__(self, *_: object) -> None:
        self.w3.provider.make_request, self.w3.provider.make_batch_request = self.single, self.batched

    def forward(self, question: Any, *words: Any) -> Any:
        fate = self.random.random()
        if fate < 0.15:
            raise requests.ConnectionError("broke before it went out")
        answer = question(*words)
        if fate < 0.30:
            raise requests.ConnectionError("the answer was lost")
        return answer


@pytest.mark.parametrize("seed", range(5))
def test_lost_answers_lose_no_delta_and_double_none(w3, registry, memory, submitter, author, request, seed):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(30), author)
    with Unreliable(w3, seed):
        for _ in range(500):
            try:
                if submitter.run().done == 30:
                    break
            except CouldNotTell:
                continue
    assert committed(registry, space) == ids(deltas)


def test_a_node_that_forgot_its_pending_transactions_gets_them_again(w3, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(6), author)
    w3.provider.make_request("evm_setAutomine", [False])
    step(submitter)
    assert submitter.outbox.count()[State.SENT] == 6
    w3.provider.make_request("anvil_dropAllTransactions", [])
    w3.provider.make_request("evm_setAutomine", [True])
    assert submitter.run().done == 6
    assert committed(registry, space) == ids(deltas)


def test_a_transaction_replaced_by_another_of_the_key_is_sent_anew(
    w3, registry, memory, submitter, payer, author, request
):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(4), author)
    w3.provider.make_request("evm_setAutomine", [False])
    step(submitter)
    first = submitter.outbox.items(State.SENT)[0]
    fees = {"maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**11, "gas": 21_000, "value": 0, "data": "0x"}
    raw, _ = payer.sign({**fees, "to": str(author.address), "nonce": first.nonce, "chainId": w3.eth.chain_id})
    w3.eth.send_raw_transaction(raw)
    w3.provider.make_request("evm_mine", [])
    w3.provider.make_request("evm_setAutomine", [True])
    assert submitter.run().done == 4
    assert committed(registry, space) == ids(deltas)


def test_a_nonce_that_somebody_else_took_is_given_up(w3, registry, memory, submitter, payer, author, request):
    """Another program with the same key sent first, while the counter here stood."""
    space = make_space(registry, author, request)
    first = memory.add(space, make_witnesses(2, "first"), author)
    submitter.run()
    transact(w3, payer, w3.eth.chain_id, registry.address, bytes.fromhex("f698da25"))
    second = memory.add(space, make_witnesses(3, "second"), author)
    assert submitter.run().done == 5
    assert committed(registry, space) == ids([*first, *second])


def test_stuck_transactions_are_sent_again_with_higher_fees(w3, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    w3.provider.make_request("evm_setAutomine", [False])
    step(submitter)
    before = {item.id: item.transaction_hash for item in submitter.outbox.items(State.SENT)}
    time.sleep(submitter.patience_seconds * 1.5)
    step(submitter)
    after = {item.id: item.transaction_hash for item in submitter.outbox.items(State.SENT)}
    assert before.keys() == after.keys()
    assert all(before[number] != after[number] for number in before)
    w3.provider.make_request("evm_setAutomine", [True])
    assert submitter.run().done == 2
    assert len(committed(registry, space)) == 2


@pytest.mark.parametrize("depth", [1, 3])
def test_a_reorganization_that_takes_transitions_back_has_them_sent_again(
    w3, registry, memory, submitter, author, request, depth
):
    space = make_space(registry, author, request)
    w3.provider.make_request("anvil_mine", [hex(depth + 1)])
    deltas = memory.add(space, make_witnesses(3), author)
    submitter.confirmations = 8
    submitter.run(until=State.MINED)
    w3.provider.make_request("anvil_reorg", [depth, []])
    w3.provider.make_request("anvil_mine", [hex(1)])
    submitter.run(until=State.MINED)
    w3.provider.make_request("anvil_mine", [hex(10)])
    assert submitter.run().done == 3
    assert committed(registry, space) == ids(deltas)


def test_a_refusal_of_the_node_leaves_everything_waiting(w3, registry, memory, outbox, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(2), author)
    poor = LocalSender(LocalSigner(keccak256(b"a key without ether")))
    submitter = Submitter(w3, outbox, poor, MemoryRules(), confirmations=0, poll_seconds=0.01)
    with pytest.raises(CouldNotTell):
        submitter.run()
    assert outbox.count()[State.QUEUED] == 2


@contextmanager
def watching(w3: Web3) -> Iterator[list[list[str]]]:
    """Note the methods of every request, batches as one."""
    asked: list[list[str]] = []
    provider = w3.provider
    single, batched = provider.make_request, provider.make_batch_request

    def ask(method: str, parameters: Any) -> Any:
        asked.append([method])
        return single(method, parameters)

    def ask_many(requests: Any) -> Any:
        asked.append([method for method, _ in requests])
        return batched(requests)

    provider.make_request, provider.make_batch_request = ask, ask_many
    try:
        yield asked
    finally:
        provider.make_request, provider.make_batch_request = single, batched


def test_while_no_block_comes_the_node_is_asked_for_its_end_alone(w3, registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(8), author)
    w3.provider.make_request("evm_setAutomine", [False])
    submitter.patience_seconds = 60
    step(submitter)
    step(submitter)
    with watching(w3) as asked:
        for _ in range(5):
            step(submitter)
    w3.provider.make_request("evm_setAutomine", [True])
    end = [["eth_getBlockByNumber", "eth_getTransactionCount", "eth_getTransactionCount"]]
    assert [methods for methods in asked if methods != ["eth_chainId"]] == end * 5
    w3.provider.make_request("evm_mine", [])
    assert submitter.run().done == 8
    assert committed(registry, space) == ids(deltas)


def test_every_transaction_is_on_disk_before_it_goes_out(registry, memory, submitter, author, request, monkeypatch):
    monkeypatch.setattr(submitting, "BATCH", 7)
    deltas = {space: memory.add(space, make_witnesses(20), author)
              for space in (make_space(registry, author, request, number) for number in range(3))}  # fmt: skip
    hand_over, handed = submitter._hand_over, []

    def look(items: Any) -> Any:
        with Outbox(submitter.outbox.path) as another:
            on_disk = {item.id: (item.state, item.raw, item.transaction_hash) for item in another.items()}
        for item in items:
            assert on_disk[item.id] == (State.SENT, item.raw, item.transaction_hash)
            handed.append(item.nonce)
        return hand_over(items)

    monkeypatch.setattr(submitter, "_hand_over", look)
    assert submitter.run().done == 60
    assert handed == list(range(handed[0], handed[0] + 60))
    for space, of_space in deltas.items():
        assert committed(registry, space) == ids(of_space)


@pytest.mark.parametrize("broken", range(4))
def test_a_batch_that_gets_no_answer_holds_up_nothing_that_was_signed_after_it(
    registry, memory, submitter, author, request, monkeypatch, broken
):
    monkeypatch.setattr(submitting, "BATCH", 5)
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(20), author)
    hand_over, calls = submitter._hand_over, []

    def fail_once(items: Any) -> Any:
        calls.append(items)
        if len(calls) == broken + 1:
            raise NodeUnreachable("node.test", "it broke off")
        return hand_over(items)

    monkeypatch.setattr(submitter, "_hand_over", fail_once)
    with pytest.raises(NodeUnreachable):
        submitter.run()
    assert submitter.run().done == 20
    assert committed(registry, space) == ids(deltas)


# Others


def test_somebody_elses_transition_stops_the_lane_until_it_is_rebuilt(registry, memory, submitter, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(3, "ours"), author)
    foreign = make_witnesses(1, "theirs")[0].build_delta(space, registry.head(space))
    registry.commit(foreign, authorizer=author)
    progress = submitter.run()
    assert (progress.done, progress.stopped) == (0, 3)
    with pytest.raises(LaneStopped, match="conflict"):
        memory.add(space, make_witnesses(1, "more"), author)
    rebuilt = memory.rebuild(space, author)
    assert [delta.sequence for delta in rebuilt] == [2, 3, 4]
    assert submitter.run().done == 3
    assert committed(registry, space) == ids([foreign, *rebuilt])


def test_a_delta_that_was_committed_by_another_hand_counts_as_landed(registry, memory, submitter, author, request):
    """Somebody else relayed the very delta that waits here."""
    space = make_space(registry, author, request)
    deltas = memory.add(space, make_witnesses(2), author)
    registry.commit(deltas[0], authorizer=author)
    assert submitter.run().done == 2
    assert committed(registry, space) == ids(deltas)


def test_what_the_contract_refuses_is_refused_with_its_words_and_stops_only_its_lane(
    registry, memory, submitter, author, outbox, request
):
    good, bad = (make_space(registry, author, request, number) for number in range(2))
    memory.add(bad, make_witnesses(2), author)
    deltas = memory.add(good, make_witnesses(2), author)
    registry.rotate(bad, registry.sender.address, registry.sender.address)
    # From the new authorizer's account even an empty signature would do; so another one pays.
    progress = submitter.run()
    assert progress.done == 2
    assert committed(registry, good) == ids(deltas)
    assert "approval" in outbox.items(State.REFUSED)[0].reason
    assert committed(registry, bad) == []


def test_an_approval_that_the_registry_would_refuse_is_refused_before_it_waits(
    registry, memory, author, outbox, request
):
    space = make_space(registry, author, request)
    forged = CallableSigner(author.address, lambda _: b"\x01" * 65)
    for signer in (forged, LocalSigner(keccak256(b"outsider"))):
        with pytest.raises(InvalidAuthorization):
            memory.add(space, make_witnesses(2), signer)
    assert outbox.items() == []


def test_a_contract_wallets_deltas_wait_and_land_too(w3, registry, memory, submitter, payer, author, project, request):
    project.load_contracts()
    constructor = project.get_contract("ConfigurableWallet").constructor
    code = bytes(constructor.serialize_transaction(0, str(author.address)).data)
    wallet = CallableSigner(transact(w3, payer, w3.eth.chain_id, None, code).contract_address, author.sign_digest)
    space = make_space(registry, wallet, request)
    deltas = memory.add(space, make_witnesses(3), wallet)
    assert submitter.run().done == 3
    assert committed(registry, space) == ids(deltas)


def test_two_processes_on_one_outbox_do_not_act_at_once(outbox):
    with outbox.acting(), Outbox(outbox.path) as other, pytest.raises(OutboxBusy), other.acting():
        pass


def test_a_position_of_a_lane_is_given_once(outbox, registry, memory, author, request):
    space = make_space(registry, author, request)
    memory.add(space, make_witnesses(1), author)
    (item,) = outbox.items()
    with pytest.raises(InvalidInput, match="position"):
        outbox.add([item])
    assert len(outbox.items()) == 1


def test_adding_is_all_or_nothing(outbox):
    good = Item(1, registry_like(), b"lane", 1, keccak256(b"1"), b"data")
    with pytest.raises(InvalidInput):
        outbox.add([good, good])
    assert outbox.items() == []


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to look at" * 40, b"SQLite format 3\0" + bytes(84)]
)
def test_a_file_that_is_no_outbox_is_named_and_left_alone(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(MissingFile):
        Outbox(path)
    assert path.read_bytes() == content


def test_an_outbox_is_readable_by_its_owner_alone(outbox):
    assert outbox.path.stat().st_mode & 0o077 == 0


def test_a_node_that_is_gone_is_named_and_everything_waits(tmp_path, witnesses, author, payer, request):
    with Anvil() as node:
        w3 = connect(node.url)
        registry, _ = MemoryRegistry.deploy(w3, payer)
        space = make_space(registry, author, request)
        outbox = Outbox(tmp_path / "outbox.db")
        MemoryOutbox(outbox, registry, witnesses).add(space, make_witnesses(2), author)
    with pytest.raises(NodeUnreachable):
        Submitter(w3, outbox, payer, MemoryRules()).run()
    assert outbox.count()[State.QUEUED] == 2


# Two who add at the same time


def test_draft_of_a_process_that_is_still_at_work_is_not_taken_for_a_dead_ones(
    memory, outbox, registry, author, request, monkeypatch
):
    """While one process keeps the witness of a draft, another one must not judge it."""
    met = []
    put = WitnessStore.put_delta

    def put_while_another_looks(store: WitnessStore, *given: Any) -> bool:
        with Outbox(outbox.path) as other, pytest.raises(OutboxBusy), other.adding(wait_seconds=0.05):
            pass
        met.append([item.state for item in outbox.items()])
        return put(store, *given)

    monkeypatch.setattr(WitnessStore, "put_delta", put_while_another_looks)
    memory.add(make_space(registry, author, request), make_witnesses(1), author)
    assert met == [[State.DRAFT]]
    assert [item.state for item in outbox.items()] == [State.QUEUED]


# Kill it anywhere

#: About so many statements and requests it takes to write down and to send two deltas.
STEPS_OF_TWO_DELTAS = 150


def test_a_process_killed_at_random_points_loses_nothing_and_doubles_nothing(node, registry, author, request, tmp_path):
    """Each round starts the same program on the same files, and kills it at another step of its work."""
    kills, deltas = (100, 200) if os.environ.get("MELETE_HYPOTHESIS_PROFILE") == "deep" else (10, 24)
    space, store = make_space(registry, author, request), tmp_path / "witnesses.db"
    WitnessStore.create(store, TEST_KEY).close()
    command = [sys.executable, str(Path(__file__).with_name("outbox_worker.py")), node.url, str(registry.address),
               str(space), str(tmp_path / "outbox.db"), str(store), str(deltas)]  # fmt: skip
    dice = random.Random(7)
    for _ in range(kills):
        killed = subprocess.run([*command, str(dice.randint(1, STEPS_OF_TWO_DELTAS))], capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Outbox(tmp_path / "outbox.db") as outbox:
        items = outbox.items()
    assert Counter(item.state for item in items) == {State.DONE: deltas}
    with WitnessStore.open(store, TEST_KEY) as witnesses:
        for item in items:
            verify_witness(delta_of(item), witnesses.get(DELTA.place(space, item.position)))
    assert [event.next_state_root for event in registry.transitions(space)] == [item.effect for item in items]
    assert len(committed(registry, space)) == deltas


def step(submitter: Submitter) -> None:
    """One round of a run, without waiting for the end."""
    end = submitter._chain_end()
    submitter._settle(submitter.w3.eth.chain_id, end)
    submitter._send(submitter.w3.eth.chain_id, end)


def registry_like():
    from melete import Address

    return Address(b"\x11" * 20)
