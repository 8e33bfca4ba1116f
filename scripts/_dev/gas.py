"""What the contracts cost, measured from receipts on Anvil, beside what they should cost.

`tests/gas.json` keeps the figures, so that a change of them is a diff that somebody reviews. Gas is deterministic:
fixed keys, salts and payloads give the same figures on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from melete import (
    GENESIS,
    Bytes32,
    ExperienceDelta,
    Head,
    LocalSigner,
    MemoryRegistry,
    Transition,
    keccak256,
)
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.transactions import LocalSender
from melete.primitives import ZERO_BYTES32

KEPT = Path(__file__).resolve().parents[2] / "tests" / "gas.json"
#: What the public reference registry costs, and the share of it that ours may cost.
GOALS = {
    "deploy": (1_357_833, 0.90),
    "register, direct": (78_913, 0.95),
    "register, relayed": (86_299, 0.95),
    "first commit, direct": (168_131, 0.50),
    "first commit, relayed": (175_529, 0.50),
    "steady commit, direct": (117_215, 0.55),
    "steady commit, relayed": (124_601, 0.57),
    "rotation, direct": (39_430, 1.00),
    "rotation, relayed": (46_837, 1.00),
}
#: 21,000 + calldata 2,776 + a four-topic log with seven words 3,667 + hashing 168 + storage 34,200.
STEADY_COMMIT_FLOOR = 61_811


def measure() -> dict[str, int]:
    """Return the gas of every operation, on a chain of its own."""
    with Anvil(options=("--gas-price", "0", "--base-fee", "0")) as node:
        return dict(_measure(node.url))


def _measure(url: str) -> Iterator[tuple[str, int]]:
    w3 = connect(url)
    relayer, key, target = (LocalSigner(keccak256(name)) for name in (b"relayer", b"key", b"target"))
    for payer in (relayer, key):
        w3.provider.make_request("anvil_setBalance", [str(payer.address), hex(10**20)])  # type: ignore[arg-type]
    registry, receipt = MemoryRegistry.deploy(w3, LocalSender(relayer))
    yield "deploy", receipt.gas_used

    ways: list[tuple[str, LocalSigner, LocalSigner | None]] = [("direct", key, None), ("relayed", relayer, key)]
    for name, sender, signer in ways:
        registry.sender = LocalSender(sender)
        event = registry.register(key.address, keccak256(name.encode()), controller=signer)
        yield f"register, {name}", _gas(w3, event)
        head = GENESIS
        for number in range(1, 5):
            delta, head = _next(event.space_id, head, number)
            gas = _gas(w3, registry.commit(delta, authorizer=signer))
            if number == 1:
                yield f"first commit, {name}", gas
        yield f"steady commit, {name}", gas
        rotated = registry.rotate(event.space_id, key.address, target.address, controller=signer)
        yield f"rotation, {name}", _gas(w3, rotated)


def _next(space_id: Bytes32, head: Head, number: int) -> tuple[ExperienceDelta, Head]:
    """A delta without optional commitments, and the head after it."""
    commitment, profile = keccak256(b"payload %d" % number), keccak256(b"profile")
    delta = ExperienceDelta(space_id, number, head.state_root, commitment, ZERO_BYTES32, profile)
    transition = Transition.of(delta)
    return delta, Head(transition.transition_id, transition.next_state_root, number)


def _gas(w3: Any, event: Any) -> int:
    return int(w3.eth.get_transaction_receipt(str(event.reference.transaction_hash))["gasUsed"])


def render(memory: dict[str, int], meditation: dict[str, int]) -> str:
    """Return the text of the file that keeps the figures."""
    return json.dumps({"agentMemoryState": memory, "agentMeditation": meditation}, indent=2) + "\n"


def ratio(operation: str, gas: int) -> float:
    return gas / GOALS[operation][0]
