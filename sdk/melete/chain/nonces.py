"""One counter of nonces for a key: the node's, asked for and used up by one thread at a time.

Two threads that ask at once get the same number, and one of their transactions is lost. So whoever sends from a key
holds its turn from asking until the node has the transaction; after that the node counts it. Another process with the
same key is met by asking again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
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
            if meaning is Meaning.OK:
                return transaction_hash
            if meaning is not Meaning.TAKEN or attempt == ATTEMPTS - 1:
                break
            # One of several nodes may be behind the others, and go on to name a nonce that is used.
            least = nonce + 1
    raise answer.error or NodeRefused("eth_sendRawTransaction", "no reason given")


class Meaning(Enum):
    """What a node says of a raw transaction."""

    OK = "it has it"
    TAKEN = "another transaction has its nonce"
    CHEAP = "it pays too little"
    REFUSED = "it will never take it as it is"
    UNCLEAR = "it may have it, or not"


#: Words of the nodes there are, in small letters and without spaces; the first that is found counts.
_WORDS: Final = (
    (Meaning.OK, ("alreadyknown", "knowntransaction", "alreadyimported", "alreadyinmempool", "alreadyexists")),
    (Meaning.TAKEN, ("noncetoolow", "nonceistoolow", "oldnonce", "nonceisbelow")),
    (Meaning.TAKEN, ("replacementtransaction", "replacementnotallowed", "replacementfee")),
    (Meaning.CHEAP, ("underpriced", "lessthanblockbasefee", "feetoolow", "gaspricetoolow", "maxfeepergas", "feecap")),
    (Meaning.REFUSED, ("insufficientfunds", "insufficientbalance", "intrinsicgas", "blockgaslimit", "gaslimitreached")),
    (Meaning.REFUSED, ("noncetoohigh", "noncegap", "chainid", "invalidsender", "invalidsignature", "notsupported")),
)


def read_send_answer(answer: Answer) -> Meaning:
    """Return what a node means by its answer to a raw transaction. What no words tell is unclear, never a refusal."""
    if answer.error is None:
        return Meaning.OK
    words = "".join(letter for letter in answer.message.lower() if letter.isalnum())
    for meaning, signs in _WORDS:
        if any(sign in words for sign in signs):
            return meaning
    return Meaning.UNCLEAR
