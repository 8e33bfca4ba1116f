"""Transactions, many at a time, from nodes that batch, refuse and forget."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from melete.chain.scan.blocks import BlockReference
from melete.chain.scan.transactions import TRANSACTIONS_AT_ONCE, SentTransaction, Transactions
from melete.errors import ConfigurationError, NodeUnreachable
from melete.primitives import Address, Bytes32, keccak256

SENDER, CONTRACT = Address(b"\x11" * 20), Address(b"\x44" * 20)
HASHES = [keccak256(b"%d" % number) for number in range(250)]


def as_node_gives(transaction_hash: str) -> dict[str, Any]:
    return {"hash": transaction_hash, "from": str(SENDER).lower(), "to": str(CONTRACT), "input": transaction_hash}


def expected(transaction_hash: Bytes32) -> SentTransaction:
    return SentTransaction(SENDER, CONTRACT, bytes(transaction_hash))


class Provider:
    endpoint_uri = "http://node.test"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.singles = 0
        self.answer: Callable[[str], Any] = lambda name: {"result": as_node_gives(name)}

    def make_request(self, method: str, parameters: list[Any]) -> Any:
        assert method == "eth_getTransactionByHash"
        self.singles += 1
        return self.answer(parameters[0])

    def make_batch_request(self, asked: list[tuple[str, list[Any]]]) -> Any:
        self.batches.append(len(asked))
        return [self.answer(parameters[0]) for _, parameters in asked]


def load(provider: Provider, hashes: list[Bytes32]) -> dict[Bytes32, SentTransaction | None]:
    return Transactions(SimpleNamespace(provider=provider)).load(hashes)  # type: ignore[arg-type]


def test_each_transaction_is_asked_for_once_and_in_batches() -> None:
    provider = Provider()
    assert load(provider, HASHES + HASHES) == {name: expected(name) for name in HASHES}
    assert provider.batches == [TRANSACTIONS_AT_ONCE, TRANSACTIONS_AT_ONCE, 50]
    assert provider.singles == 0
    assert load(provider, []) == {}


@pytest.mark.parametrize(
    "given",
    [
        {"result": None},
        {"result": {}},
        {"result": {"from": "0x12", "to": None, "input": "0x"}},
        {"result": {"from": str(SENDER), "to": str(CONTRACT), "input": None}},
        {"result": "text"},
        {"error": {"code": -32000, "message": "transaction not found"}},
    ],
)
def test_one_that_the_node_forgot_or_spoiled_is_none_and_the_others_are_there(given: Any) -> None:
    provider = Provider()
    provider.answer = lambda name: given if name == str(HASHES[1]) else {"result": as_node_gives(name)}
    assert load(provider, HASHES[:3]) == {
        HASHES[0]: expected(HASHES[0]), HASHES[1]: None, HASHES[2]: expected(HASHES[2])
    }  # fmt: skip


def test_a_provider_without_batches_is_asked_one_by_one() -> None:
    provider = Provider()

    def refuse(asked: Any) -> Any:
        provider.batches.append(len(asked))
        return {"error": {"code": -32600, "message": "batches are disabled"}}

    provider.make_batch_request = refuse  # type: ignore[method-assign]
    transactions = Transactions(SimpleNamespace(provider=provider))  # type: ignore[arg-type]
    asked = []
    for _ in range(2):
        assert transactions.load(HASHES[:5]) == {name: expected(name) for name in HASHES[:5]}
        asked.append(list(provider.batches))
    assert (asked[0][0], asked[1], provider.singles) == (5, asked[0], 10)


def test_a_node_that_is_gone_is_told() -> None:
    provider = Provider()

    def gone(_: str) -> Any:
        raise requests.ConnectionError("Connection refused")

    provider.answer = gone
    with pytest.raises(NodeUnreachable):
        load(provider, HASHES[:2])


def test_a_deployment_has_no_callee() -> None:
    provider = Provider()
    provider.answer = lambda _: {"result": {"from": str(SENDER), "to": None, "input": "0x6000"}}
    assert load(provider, HASHES[:1]) == {HASHES[0]: SentTransaction(SENDER, None, b"\x60\x00")}


def test_a_call_names_a_block_by_its_hash_and_wants_it_on_the_chain() -> None:
    parameter = BlockReference(7, HASHES[0]).parameter
    assert parameter == {"blockHash": str(HASHES[0]), "requireCanonical": True}


def test_sending_without_a_sender_says_whose_is_missing() -> None:
    from melete.chain.transactions import NodeSender, require_sender

    sender = NodeSender(SENDER)
    assert require_sender(sender, "client") is sender
    with pytest.raises(ConfigurationError, match="give the client a sender"):
        require_sender(None, "client")
