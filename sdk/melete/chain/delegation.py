"""EIP-7702: let an account with a key run a contract's code, and take that back.

A delegated account approves in two ways, by its code and by its key. Delegating does not take the key's power away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from melete.chain.connection import ask, check_chain
from melete.chain.scan.blocks import block_parameter
from melete.chain.transactions import RECEIPT_SECONDS, LocalSender, fill_fees
from melete.errors import CodeMismatch, NotMined
from melete.primitives import ZERO_ADDRESS, Address, Bytes32
from melete.signing import LocalSigner

if TYPE_CHECKING:
    from web3 import Web3

#: What stands before the delegate's address in the code of a delegated account.
DESIGNATOR: Final = bytes.fromhex("ef0100")
DELEGATION_GAS: Final = 100_000


def read_delegate(w3: Web3, account: Address, block: int | str = "latest") -> Address | None:
    """Return the contract whose code an account runs, or None for an account without a delegation."""
    account, named = Address(account, "account"), block_parameter(block)
    code = bytes(ask(w3, "eth_getCode", lambda: w3.eth.get_code(str(account), named)))  # type: ignore[arg-type]
    return Address(code[3:]) if len(code) == 23 and code.startswith(DESIGNATOR) else None


def delegate_account(w3: Web3, account: LocalSigner, delegate: Address, sender: LocalSender) -> Bytes32:
    """Let an account run a contract's code from now on, in place of any before; `sender` pays. Returns the transaction.

    The authorization is good for this chain alone. Errors: `CodeMismatch` when the account runs other code afterwards
    (another authorization of its came first); the node's; `NotMined`.
    """
    from web3.exceptions import TimeExhausted

    delegate = Address(delegate, "delegate")
    chain_id = check_chain(w3, None)
    # The sender's own transaction counts before the authorization is judged.
    own = 1 if sender.address == account.address else 0
    nonce = _nonce(w3, account.address) + own
    authorization = account.account.sign_authorization(
        {"chainId": chain_id, "address": bytes(delegate), "nonce": nonce}
    )
    # To an address without code: the account's own might refuse to be called, which says nothing of the delegation.
    call = {"to": str(ZERO_ADDRESS), "value": 0, "data": "0x", "chainId": chain_id}
    transaction: dict[str, Any] = {
        **ask(w3, "eth_maxPriorityFeePerGas", lambda: fill_fees(w3, call)),
        "type": 4,
        "gas": DELEGATION_GAS,
        "nonce": _nonce(w3, sender.address),
        "authorizationList": [authorization],
    }
    raw = sender.sign_any(transaction)
    transaction_hash = Bytes32(bytes(ask(w3, "eth_sendRawTransaction", lambda: w3.eth.send_raw_transaction(raw))))
    try:
        receipt = ask(
            w3,
            "eth_getTransactionReceipt",
            lambda: w3.eth.wait_for_transaction_receipt(bytes(transaction_hash), timeout=RECEIPT_SECONDS),  # type: ignore[arg-type]
        )
    except TimeExhausted:
        raise NotMined(transaction_hash, RECEIPT_SECONDS) from None
    found = read_delegate(w3, account.address, receipt["blockNumber"])
    if found != (None if delegate == ZERO_ADDRESS else delegate):
        raise CodeMismatch(account.address, delegate, found)
    return transaction_hash


def revoke_delegation(w3: Web3, account: LocalSigner, sender: LocalSender) -> Bytes32:
    """Let an account run no code any more; `sender` pays. Returns the transaction. Errors: as `delegate_account`."""
    return delegate_account(w3, account, ZERO_ADDRESS, sender)


def _nonce(w3: Web3, account: Address) -> int:
    return ask(w3, "eth_getTransactionCount", lambda: w3.eth.get_transaction_count(str(account)))  # type: ignore[arg-type]
