"""What the Agent Meditation registry costs: the worked example of its specification, from receipts on Anvil."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from melete import Bytes32, LocalSigner, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.transactions import LocalSender, transact
from melete.meditation.layers import compute_root
from melete.primitives import ZERO_ADDRESS
from melete.resources import load_artifact

EXAMPLE = Path(__file__).resolve().parents[2] / "test-vectors" / "meditation" / "worked_example.json"
#: The least that each operation can cost (calldata, log, hashing, storage), and what ours may.
GOALS = {
    "report, nothing changed": (53_810, 60_000),
    "report, three layers changed": (105_207, 115_000),
    "report, a subject's first": (156_507, 168_000),
    "pulse": (28_918, 31_000),
    "enroll, no controller": (207_320, 220_000),
    "setPolicy": (75_400, 82_000),
}
POLICY = "(bytes32,string,uint8,uint8,uint8,uint8,uint48,uint48,uint48[4])"
REPORT = "(uint64,bytes32,bytes32[4],uint8,uint8,uint16,uint8,uint8,uint32,uint48,uint48,uint48,uint64,bytes32,string)"
START = 1_762_650_000


def measure() -> dict[str, int]:
    """Return the gas of every operation, called by the subject itself, without URIs, on a chain of its own."""
    with Anvil(options=("--timestamp", str(START - 100), "--gas-price", "0", "--base-fee", "0")) as node:
        return dict(_measure(node.url))


def _measure(url: str) -> Iterator[tuple[str, int]]:
    w3 = connect(url)
    subject = LocalSender(LocalSigner(keccak256(b"subject")))
    w3.provider.make_request("anvil_setBalance", [str(subject.address), hex(10**20)])  # type: ignore[arg-type]
    chain_id = w3.eth.chain_id
    deployed = transact(w3, subject, chain_id, None, load_artifact("AgentMeditationRegistry").bytecode)
    yield "deploy", deployed.gas_used
    address = deployed.contract_address

    def send(at: int, name: str, types: list[str], *values: Any) -> int:
        from eth_abi.abi import encode

        # An empty block first: the gas is estimated at the time of the last one.
        for method, parameters in (("evm_mine", [{"timestamp": at - 1}]), ("evm_setNextBlockTimestamp", [at])):
            w3.provider.make_request(method, parameters)  # type: ignore[arg-type]
        data = keccak256(f"{name}({','.join(types)})".encode())[:4] + encode(types, values)
        return transact(w3, subject, chain_id, address, data).gas_used

    me = bytes(subject.address)
    pre, post, policy, record_hash = _example()
    enroll = ["bytes32[4]", POLICY, "address", "uint8"]
    yield "enroll, no controller", send(START, "enroll", enroll, pre, policy, bytes(ZERO_ADDRESS), 0)

    def report(at: int, version: int, before: list[bytes], after: list[bytes]) -> int:
        root = compute_root(Bytes32(word) for word in before)
        values = (version, root, after, 15, 15, 0x0456, 0, 1, 1, at - 1_000, at - 100, at + 86_400, 0, record_hash, "")
        return send(at, "report", ["address", REPORT], me, values)

    yield "report, a subject's first", report(START + 2_000, 1, pre, post)
    yield "report, nothing changed", report(START + 4_000, 2, post, post)
    yield "report, three layers changed", report(START + 6_000, 2, post, pre)
    send(START + 7_000, "pulse", ["address", "uint48"], me, START + 90_000)
    yield "pulse", send(START + 8_000, "pulse", ["address", "uint48"], me, START + 90_000)
    yield "setPolicy", send(START + 9_000, "setPolicy", ["address", POLICY], me, policy)


def _example() -> tuple[list[bytes], list[bytes], tuple[Any, ...], bytes]:
    """Return pre and post commitments, the policy and the record hash of the worked example."""
    document = json.loads(EXAMPLE.read_text("utf-8"))
    policy, report = document["policy"], document["cases"][0]["report"]
    numbers = ("supportedLayers", "requiredLayers", "allowedTriggers", "disclosure", "dueWindow", "pulseInterval")
    packed = (
        *(_word(policy["policyHash"]), policy["policyURI"]),
        *(int(policy[name]) for name in numbers),
        [int(value) for value in policy["maxInterval"]],
    )
    pre, post = ([_word(value) for value in values] for values in (document["baseline"], report["postCommitments"]))
    return pre, post, packed, _word(report["recordHash"])


def _word(text: str) -> bytes:
    return bytes.fromhex(text[2:])
