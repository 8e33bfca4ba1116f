"""The two lines, word by word, on a local chain: ape run demo.

    operation -> commitment -> delta -> signature -> registry -> event -> verified history
    layer documents -> commitments -> cycle report -> registry -> checkpoints -> status

Five private memory changes, approved by a key, by a contract wallet and by an EIP-7702 account, each sent by someone
who approves nothing; then the history is verified, and two forgeries are caught. After that, a store of memories on
record (`_demo_memories`) and a subject's maintenance (`_demo_maintenance`). Ends with 0 only if all of it held.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click
from ape import accounts, networks
from ape.cli import ConnectedProviderCommand
from rich.text import Text
from scripts._common import is_local, load_contract
from scripts._demo_maintenance import show_maintenance
from scripts._demo_memories import show_memories
from scripts._telling import DidNotHold, catch, console, hold, tell, word

from melete import (
    GENESIS,
    Bytes32,
    LocalSigner,
    MemoryRegistry,
    Signer,
    Transition,
    Witness,
    canonicalize,
    compute_profile_id,
    compute_transition_id,
    verify_history,
    verify_witness,
)
from melete.chain.transactions import LocalSender, transact
from melete.errors import BrokenHistory, MeleteError, WitnessMismatch

PROFILE = "melete.demo.preference/1"
OPERATIONS = [
    {"op": "upsert", "resourceId": "drink", "value": "green tea"},
    {"op": "upsert", "resourceId": "reply-style", "value": "short sentences"},
    {"op": "upsert", "resourceId": "drink", "value": "green tea, not after five"},
    {"op": "upsert", "resourceId": "calendar", "value": "no meetings on Fridays"},
    {"op": "delete", "resourceId": "reply-style"},
]


@click.command(cls=ConnectedProviderCommand)
def cli() -> None:
    """Show both lines on a local chain: from memory operations to verified history, from layers to statuses."""
    if not is_local():
        raise click.UsageError("the demo uses public keys, so it runs on a local chain only.")
    try:
        run()
    except (MeleteError, DidNotHold) as error:
        console.print(Text(f"did not hold: {error}", style="bold red"))
        sys.exit(1)
    console.print(Text("Everything held.", style="bold green"))


def run() -> None:
    """Show every act, in order."""
    keys = [LocalSigner(accounts.test_accounts[index].private_key) for index in range(4)]
    for act in ACTS:
        act(networks.provider.web3, keys)


def show_memory(w3: Any, keys: Sequence[LocalSigner]) -> None:
    """Take five changes down the whole line, verify their history, and catch two forgeries."""
    controller, authorizer, relayer, seven = keys
    word("registry")
    registry, receipt = MemoryRegistry.deploy(w3, LocalSender(relayer))
    tell(f"stands at {registry.address}, deployed for {receipt.gas_used:,} gas")
    tell(f"cross-checked: {', '.join(registry.cross_check().agreed)}")

    word("space")
    space = registry.register(authorizer.address, fresh_salt(), controller=controller).space_id
    tell(f"{space}")
    tell(f"controller {controller.address}, authorizer {authorizer.address}, relayer {relayer.address}")

    wallet = WalletSigner(registry, LocalSender(relayer), authorizer)
    delegate(w3, registry.chain_id, relayer, seven)
    approvals: list[tuple[str, Signer]] = [
        *[("a key", authorizer)] * 3,
        ("a contract wallet (ERC-1271)", wallet),
        ("an EIP-7702 account: code, and its own key", seven),
    ]
    witnesses = []
    for operation, (name, signer) in zip(OPERATIONS, approvals, strict=True):
        if registry.authorization(space).authorizer != signer.address:
            registry.rotate(space, controller.address, signer.address, controller=controller)
        witnesses.append(commit(registry, space, operation, name, signer))

    word("history")
    transitions = [event.transition for event in registry.transitions(space)]
    head = verify_history(space, transitions)
    tell(f"{head.sequence} transitions, each follows from the one before")
    hold("the registry states the same head", registry.head(space) == head)
    views = [registry.state_root_at(space, transition.delta.sequence) for transition in transitions]
    hold("the registry states the same root at every number", views == [item.next_state_root for item in transitions])
    for transition, witness in zip(transitions, witnesses, strict=True):
        verify_witness(transition.delta, witness)
    tell("every witness opens its commitments")

    word("forgery")
    catch_flipped_witness(transitions, witnesses)
    catch_skipped_event(space, transitions)


def commit(registry: MemoryRegistry, space: Bytes32, operation: dict[str, Any], name: str, signer: Signer) -> Witness:
    """Take one operation down the whole line, and return the witness that stays private."""
    word("operation")
    tell(f"{json.dumps(operation)} (stays here)")
    witness = Witness(
        profile_id=compute_profile_id(PROFILE),
        payload=canonicalize(operation),
        delta_salt=fresh_salt(),
        provenance=b"the user said so",
        provenance_salt=fresh_salt(),
        locator=f"demo://memory/{operation['resourceId']}",
        locator_salt=fresh_salt(),
    )
    word("commitment")
    delta = witness.build_delta(space, registry.head(space))
    tell(f"{delta.delta_commitment}")
    word("delta")
    tell(f"sequence {delta.sequence}, transition {compute_transition_id(delta)}")
    word("signature")
    tell(f"by {name}, {signer.address}")
    event = registry.commit(delta, authorizer=signer)
    word("event")
    tell(f"block {event.reference.block_number}, state root {event.next_state_root}")
    return witness


def catch_flipped_witness(transitions: Sequence[Transition], witnesses: Sequence[Witness]) -> None:
    payload = bytearray(witnesses[2].payload)
    payload[7] ^= 1
    caught = catch(
        WitnessMismatch, lambda: verify_witness(transitions[2].delta, replace(witnesses[2], payload=bytes(payload)))
    )
    hold(f"one flipped byte of a witness is caught: {caught.commitment}", caught.commitment == "deltaCommitment")


def catch_skipped_event(space: Bytes32, transitions: Sequence[Transition]) -> None:
    shortened = [*transitions[:1], *transitions[2:]]
    caught = catch(BrokenHistory, lambda: verify_history(space, shortened, GENESIS))
    hold(
        f"one skipped event is caught: {caught.rule} at {caught.sequence}",
        (caught.rule, caught.sequence) == ("sequence_skipped", 2),
    )


class WalletSigner:
    """A contract wallet that approves what its owner's key signed."""

    def __init__(self, registry: MemoryRegistry, sender: LocalSender, owner: LocalSigner) -> None:
        wallet = load_contract("ConfigurableWallet")
        owner_signed = 0
        code = wallet.constructor.serialize_transaction(owner_signed, str(owner.address)).data
        receipt = transact(registry.w3, sender, registry.chain_id, None, bytes(code))
        assert receipt.contract_address is not None
        self.address = receipt.contract_address
        self._owner = owner

    def sign_digest(self, digest: Bytes32) -> bytes:
        return self._owner.sign_digest(digest)


def delegate(w3: Any, chain_id: int, relayer: LocalSigner, account: LocalSigner) -> None:
    """Let an account delegate to code (EIP-7702); the code says no to all, so that its key still has to decide."""
    wallet = load_contract("ConfigurableWallet")
    says_no = 5
    code = wallet.constructor.serialize_transaction(says_no, str(account.address)).data
    target = transact(w3, LocalSender(relayer), chain_id, None, bytes(code)).contract_address
    authorization = account.account.sign_authorization(
        {
            "chainId": chain_id,
            "address": bytes(target or b""),
            "nonce": w3.eth.get_transaction_count(str(account.address)),
        }
    )
    transaction = {
        **{"type": 4, "chainId": chain_id, "to": str(account.address), "value": 0, "gas": 200_000, "data": b""},
        **{"nonce": w3.eth.get_transaction_count(str(relayer.address)), "authorizationList": [authorization]},
        **{"maxFeePerGas": w3.eth.gas_price * 2, "maxPriorityFeePerGas": 1},
    }
    signed = relayer.account.sign_transaction(transaction)
    w3.eth.wait_for_transaction_receipt(w3.eth.send_raw_transaction(signed.raw_transaction))
    hold("an account delegates to code", w3.eth.get_code(str(account.address))[:3] == bytes.fromhex("ef0100"))


def fresh_salt() -> Bytes32:
    return Bytes32(secrets.token_bytes(32))


#: What is shown: each act takes the node, and the keys of Ape's first four test accounts.
ACTS: tuple[Callable[[Any, Sequence[LocalSigner]], None], ...] = (show_memory, show_memories, show_maintenance)
