"""The outbox against a loop that waits for each receipt: the same transitions, the same node, one after the other."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from melete import GENESIS, Head, LocalSigner, MemoryRegistry, Transition, Witness, compute_profile_id, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.outbox import Outbox
from melete.chain.submitter import Submitter
from melete.chain.transactions import LocalSender
from melete.memory.outbox import MemoryOutbox, MemoryRules
from melete.memory.witness_keys import StoreKey
from melete.memory.witness_store import WitnessStore
from melete.resources import load_artifact

TRANSITIONS, LOOPED, SPACES, ROUNDS = 1_000, 200, 5, 5
POLL_SECONDS = 0.001


def bench(report: Callable[[str, float, float], None]) -> None:
    """Report what a transition costs through the outbox, its witness and both signatures included, to the loop's."""
    # The best of each: what the node's own pauses and other processes take only ever adds. Each round has a node of its
    # own, which gets slower with every block.
    looped, submitted = zip(*(bench_once() for _ in range(ROUNDS)), strict=True)
    what = f"{TRANSITIONS:,} transitions through the outbox, to a loop that waits for each receipt"
    report(what, min(submitted) / min(looped), 1 / 6)


def bench_once() -> tuple[float, float]:
    """Return the seconds that a transition takes in the loop, and through the outbox."""
    with Anvil() as node:
        w3 = connect(node.url)
        payer, author = LocalSigner(keccak256(b"payer")), LocalSigner(keccak256(b"author"))
        w3.provider.make_request("anvil_setBalance", [str(payer.address), hex(10**21)])  # type: ignore[arg-type]
        registry, _ = MemoryRegistry.deploy(w3, LocalSender(payer))
        return loop(registry, payer, author) / LOOPED, submit(registry, payer, author) / TRANSITIONS


def submit(registry: MemoryRegistry, payer: LocalSigner, author: LocalSigner) -> float:
    """Return the seconds that the outbox takes, from witnesses to done."""
    spaces = [registry.register(author.address, keccak256(b"space %d" % number)).space_id for number in range(SPACES)]
    profile, salt = compute_profile_id("melete.plain/1"), keccak256(b"salt")
    with tempfile.TemporaryDirectory() as folder:
        store = WitnessStore.create(Path(folder) / "witnesses.db", StoreKey(keccak256(b"key")))
        with store, Outbox(Path(folder) / "outbox.db") as outbox:
            memory = MemoryOutbox(outbox, registry, store)
            submitter = Submitter(
                registry.w3, outbox, LocalSender(payer), MemoryRules(), confirmations=0, poll_seconds=0.005
            )
            start = time.perf_counter()
            for space in spaces:
                payloads = (b"payload %d" % number for number in range(TRANSITIONS // SPACES))
                memory.add(space, [Witness(profile, payload, salt) for payload in payloads], author)
            done = submitter.run().done
            seconds = time.perf_counter() - start
    assert done == TRANSITIONS
    return seconds


def loop(registry: MemoryRegistry, payer: LocalSigner, author: LocalSigner) -> float:
    """Return the seconds that web3 takes for each transition in turn: build, sign, send, wait for the receipt."""
    w3: Any = registry.w3
    space = registry.register(author.address, keccak256(b"loop")).space_id
    contract = w3.eth.contract(address=str(registry.address), abi=load_artifact("AgentMemoryStateRegistry").abi)
    head, nonce = GENESIS, w3.eth.get_transaction_count(str(payer.address))
    fees = {"gas": 200_000, "maxFeePerGas": 2 * 10**9, "maxPriorityFeePerGas": 10**9, "chainId": registry.chain_id}
    start = time.perf_counter()
    for number in range(LOOPED):
        witness = Witness(compute_profile_id("melete.plain/1"), b"payload %d" % number, keccak256(b"salt"))
        delta = witness.build_delta(space, head)
        transition = Transition.of(delta)
        signature = author.sign_digest(registry.domain.digest(transition.transition_id))
        members = tuple(getattr(delta, name) for name in delta.__slots__)
        call = contract.functions.commitTransition(members, signature)
        built = call.build_transaction({"from": str(payer.address), "nonce": nonce + number, **fees})
        sent = w3.eth.send_raw_transaction(payer.account.sign_transaction(built).raw_transaction)
        w3.eth.wait_for_transaction_receipt(sent, poll_latency=POLL_SECONDS)
        head = Head(transition.transition_id, transition.next_state_root, delta.sequence)
    return time.perf_counter() - start
