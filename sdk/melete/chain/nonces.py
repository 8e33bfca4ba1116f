"""One counter of nonces for a key: the node's, asked for and used up by one thread at a time.

Two threads that ask at once get the same number, and one of their transactions is lost. So whoever sends from a key
holds its turn from asking until the node has the transaction; after that the node counts it. Another process with the
same key is met by asking again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from melete.chain.rpc import Answer, batch, one, to_int
from melete.errors import NodeRefused
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from web3 import Web3

#: How often a transaction is signed anew with another nonce because somebody else took its own.
ATTEMPTS: Final = 5

_turns: dict[tuple[int, Address], threading.RLock] = {}
_finding = threading.Lock()


@contextmanager
def turn_of(chain_id: int, account: Address) -> Iterator[None]:
    """Hold the right to take nonces of a key, in this process."""
    with _finding:
        turn = _turns.setdefault((chain_id, account), threading.RLock())
    with turn:
        yield


def count_pending(w3: Web3, account: Address) -> int:
    """Return the account's next nonce, by what the node knows, transactions that wait for a block included."""
    return to_int(one(w3, "eth_getTransactionCount", [str(account), "pending"]))


def send_next(w3: Web3, chain_id: int, account: Address, sign: Callable[[int], tuple[bytes, Bytes32]]) -> Bytes32:
    """Sign a transaction with the key's next nonce, hand it to the node, and return its hash.

    Another nonce is tried only when the node says that this one is taken: then the transaction is not on its way.
    Errors: what the node refuses it with; `NodeUnreachable`, after which it may be on its way.
    """
    with turn_of(chain_id, account):
        least = 0
        for attempt in range(ATTEMPTS):
            nonce = max(least, count_pending(w3, account))
            raw, transaction_hash = sign(nonce)
            (answer,) = batch(w3, [("eth_sendRawTransaction", ["0x" + raw.hex()])])
            meaning = read_send_answer(answer)
            if meaning == "ok":
                return transaction_hash
            if meaning == "refused" or attempt == ATTEMPTS - 1:
                break
            # One of several nodes may be behind the others, and go on to name a nonce that is used.
            least = nonce + 1
    raise answer.error or NodeRefused("eth_sendRawTransaction", "no reason given")


def read_send_answer(answer: Answer) -> str:
    """Return what a node means by its answer to a raw transaction: `ok`, `taken` (the nonce) or `refused`."""
    if answer.error is None:
        return "ok"
    words = answer.message.lower()
    if "already known" in words or "known transaction" in words or "already imported" in words:
        return "ok"
    if "nonce too low" in words or "nonce is too low" in words or "underpriced" in words:
        return "taken"
    return "refused"
