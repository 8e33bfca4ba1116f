"""Who approves: keys, contract wallets and EIP-7702 accounts, in all three calls, in both registries.

The order that everything here follows: a direct call with an empty signature; then the account's code, if it has
any; then its key. What none of them approves ends in InvalidAuthorization, whatever the code did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import pytest
from eth_account import Account
from eth_utils import keccak, to_checksum_address
from hypothesis import given

from anvil import BLOCK_GAS, Reverted
from memory_state import (
    ALWAYS_YES,
    BURNS_GAS,
    NEVER_YES,
    SOMETIMES_YES,
    Actor,
    Behaviour,
    Registry,
    encode_approve,
    encode_call,
    encode_execute,
    encode_request,
    encode_tell,
    flip_s,
    malformed_signatures,
    with_v,
)
from models.memory import (
    ZERO_WORD,
    Accepted,
    CommitTransition,
    RegisterSpace,
    Rejection,
    Request,
    UpdateSpaceAuthorization,
    derive_space_id,
    hash_experience_delta,
    hash_space_authorization,
    hash_space_registration,
)
from strategies import junk_signatures

UNAPPROVED = Rejection("InvalidAuthorization")


@dataclass(frozen=True)
class Question:
    """A request that is right in every way, and lacks nothing but the approval of one account."""

    request: Request
    digest: bytes

    def signed(self, signature: bytes) -> Request:
        return replace(self.request, signature=signature)


@dataclass(frozen=True)
class Call:
    """One of the three calls that need an approval; `prepare` brings about the state it needs."""

    registry: Registry
    controller: Actor
    relayer: Actor
    prepare: Callable[[Call, bytes, bytes], tuple[Request, bytes]]

    def needing(self, account: bytes, salt: str = "approval") -> Question:
        request, struct_hash = self.prepare(self, account, keccak(text=salt))
        return Question(request, self.registry.digest(struct_hash))

    def rejection(self, request: Request, gas: int = BLOCK_GAS) -> Rejection | None:
        """The relayer sends it."""
        return self.registry.rejection(request, self.relayer.address, gas)


def prepare_registration(call: Call, account: bytes, salt: bytes) -> tuple[Request, bytes]:
    request = RegisterSpace(derive_space_id(account, salt), account, call.relayer.address, salt)
    return request, hash_space_registration(request.space_id, request.controller, request.authorizer)


def prepare_update(call: Call, account: bytes, salt: bytes) -> tuple[Request, bytes]:
    """The account became controller by an update of the first one: that needs nothing of it."""
    registration = call.registry.registration(call.controller, call.controller.address, salt)
    call.registry.must_perform(registration, call.relayer.address)
    handover = call.registry.update(registration.space_id, account, call.controller.address, call.controller)
    call.registry.must_perform(handover, call.relayer.address)
    new = call.relayer.address
    request = UpdateSpaceAuthorization(registration.space_id, new, new)
    return request, hash_space_authorization(registration.space_id, new, new, 2)


def prepare_commit(call: Call, account: bytes, salt: bytes) -> tuple[Request, bytes]:
    registration = call.registry.registration(call.controller, account, salt)
    call.registry.must_perform(registration, call.relayer.address)
    delta = call.registry.next_delta(registration.space_id)
    return CommitTransition(delta), hash_experience_delta(delta)


PREPARATIONS = {
    "registerSpace": prepare_registration,
    "updateSpaceAuthorization": prepare_update,
    "commitTransition": prepare_commit,
}


@pytest.fixture(params=PREPARATIONS)
def call(request, registry, controller, relayer) -> Call:
    return Call(registry, controller, relayer, PREPARATIONS[request.param])


@pytest.fixture
def commit(registry, controller, relayer) -> Call:
    """For what need not be tried in all three calls."""
    return Call(registry, controller, relayer, prepare_commit)


# Keys.


def test_a_key_approves_by_its_signature(call, delegator):
    question = call.needing(delegator.address)
    assert call.rejection(question.signed(delegator.sign(question.digest))) is None


def test_a_key_approves_with_either_parity(call, delegator):
    seen = set()
    for number in range(40):
        question = call.needing(delegator.address, f"parity {number}")
        signature = delegator.sign(question.digest)
        assert call.rejection(question.signed(signature)) is None
        seen.add(signature[64])
        if seen == {27, 28}:
            return
    raise AssertionError(f"forty signatures and only v of {seen}")


def test_a_key_approves_by_calling_itself(call, delegator):
    question = call.needing(delegator.address)
    assert call.registry.rejection(question.request, delegator.address) is None


def test_a_key_that_calls_itself_still_needs_an_empty_or_a_valid_signature(call, delegator, outsider):
    question = call.needing(delegator.address)
    for signature in (b"\0", bytes(65), outsider.sign(question.digest)):
        request = question.signed(signature)
        assert call.registry.rejection(request, delegator.address) == UNAPPROVED
    right = question.signed(delegator.sign(question.digest))
    assert call.registry.rejection(right, delegator.address) is None


def test_a_key_does_not_approve_by_a_malformed_signature(call, delegator):
    question = call.needing(delegator.address)
    for name, signature in malformed_signatures(delegator.sign(question.digest)).items():
        assert call.rejection(question.signed(signature)) == UNAPPROVED, name


def test_a_key_does_not_approve_by_the_signature_of_another(call, delegator, outsider):
    question = call.needing(delegator.address)
    for signer in (outsider, call.controller, call.relayer):
        assert call.rejection(question.signed(signer.sign(question.digest))) == UNAPPROVED


@given(signature=junk_signatures)
def test_a_key_does_not_approve_by_any_other_bytes(registry, delegator, relayer, signature):
    request = registry.registration(delegator, delegator.address, keccak(signature), signed=False)
    request = replace(request, signature=signature)
    assert registry.rejection(request, relayer.address) == UNAPPROVED
    assert registry.rejection(request, delegator.address) == UNAPPROVED


def test_a_malformed_signature_is_refused_in_a_transaction_too(call, delegator):
    question = call.needing(delegator.address)
    high_s = question.signed(flip_s(delegator.sign(question.digest)))
    with call.registry.unchanged():
        assert call.registry.perform(high_s, call.relayer.address) == UNAPPROVED


# Contract wallets.


def wallet_signatures(question: Question, owner: Actor, stranger: Actor) -> dict[str, bytes]:
    signature = owner.sign(question.digest)
    return {
        "owner": signature,
        "owner_with_high_s": flip_s(signature),
        "owner_with_v_0_or_1": with_v(signature, signature[64] - 27),
        "owner_of_another_digest": owner.sign(keccak(question.digest)),
        "stranger": stranger.sign(question.digest),
        "empty": b"",
        "one_byte": b"\x01",
        "65_zeros": bytes(65),
        "200_bytes": b"\xab" * 200,
    }


#: Which of those signatures a wallet approves, before anyone told it anything. High s is the wallet's own affair.
APPROVED = {behaviour: set() for behaviour in NEVER_YES | SOMETIMES_YES} | {
    Behaviour.OWNER_SIGNED: {"owner", "owner_with_high_s"}
}


@pytest.mark.parametrize("behaviour", Behaviour, ids=lambda behaviour: behaviour.name.lower())
def test_a_wallet_approves_exactly_what_it_says_yes_to(call, wallets, outsider, behaviour):
    wallet = wallets[behaviour]
    question = call.needing(wallet.address)
    signatures = wallet_signatures(question, wallet.owner, outsider)
    approved = APPROVED.get(behaviour, set(signatures))
    for name, signature in signatures.items():
        expected = None if name in approved else UNAPPROVED
        assert call.rejection(question.signed(signature)) == expected, name


@pytest.mark.parametrize("behaviour", sorted(NEVER_YES), ids=lambda behaviour: behaviour.name.lower())
def test_a_wallet_that_does_not_approve_leaves_no_trace(call, wallets, behaviour):
    wallet = wallets[behaviour]
    question = call.needing(wallet.address)
    request = question.signed(wallet.owner.sign(question.digest))
    with call.registry.unchanged():
        assert call.registry.perform(request, call.relayer.address) == UNAPPROVED


@pytest.mark.parametrize("behaviour", sorted(ALWAYS_YES), ids=lambda behaviour: behaviour.name.lower())
def test_a_wallet_that_approves_is_obeyed_in_a_transaction(call, wallets, behaviour):
    question = call.needing(wallets[behaviour].address)
    accepted = call.registry.perform(question.signed(b"anything"), call.relayer.address)
    assert isinstance(accepted, Accepted)


@pytest.mark.parametrize("behaviour", Behaviour, ids=lambda behaviour: behaviour.name.lower())
def test_a_wallet_approves_by_calling_itself(call, wallets, outsider, behaviour):
    """Its code is not asked then, so even the worst of them can act."""
    wallet = wallets[behaviour]
    question = call.needing(wallet.address)
    accepted = call.registry.perform_through(wallet.address, question.request, outsider.address)
    assert isinstance(accepted, Accepted)


def test_a_wallet_that_calls_itself_with_a_wrong_signature_is_asked(call, wallets, node, outsider):
    wallet = wallets[Behaviour.OWNER_SIGNED]
    question = call.needing(wallet.address)
    wrong = question.signed(outsider.sign(question.digest))
    data = encode_execute(call.registry.address, encode_request(wrong))
    answer = node.call(wallet.address, data, sender=outsider.address)
    assert isinstance(answer, Reverted)
    assert answer.data == keccak(text="InvalidAuthorization()")[:4]


def test_a_wallet_that_calls_for_another_wallet_approves_nothing(call, wallets, node, outsider):
    question = call.needing(wallets[Behaviour.SAYS_NO].address)
    data = encode_execute(call.registry.address, encode_request(question.request))
    answer = node.call(wallets[Behaviour.SAYS_YES].address, data, sender=outsider.address)
    assert isinstance(answer, Reverted)
    assert answer.data == keccak(text="InvalidAuthorization()")[:4]


def test_a_byte_that_a_wallet_leaves_out_is_not_taken_from_memory(call, wallets):
    """With 31 bytes returned, the last byte of the answer is whatever lay there before: the end of the space id,
    if a mapping was read just before. So here that byte is the zero which would complete the magic word."""
    wallet = wallets[Behaviour.RETURNS_31_BYTES]
    for holder in (wallet.address, call.controller.address):
        salts = (f"ends in zero {number}" for number in count())
        salt = next(salt for salt in salts if derive_space_id(holder, keccak(text=salt))[-1] == 0)
        question = call.needing(wallet.address, salt)
        for signature in (b"", b"\x01", bytes(32), wallet.owner.sign(question.digest)):
            assert call.rejection(question.signed(signature)) == UNAPPROVED


def test_a_hash_approved_on_chain_needs_no_signature(call, wallets, node, outsider):
    """An empty signature from anyone: it approves nothing by itself, but the wallet may answer for it."""
    wallet = wallets[Behaviour.HASH_APPROVED]
    question = call.needing(wallet.address)
    assert call.rejection(question.request) == UNAPPROVED
    assert node.send(wallet.address, encode_approve(keccak(b"else")), sender=outsider.address).succeeded
    assert call.rejection(question.request) == UNAPPROVED
    assert node.send(wallet.address, encode_approve(question.digest), sender=outsider.address).succeeded
    assert call.rejection(question.signed(b"\x01")) == UNAPPROVED
    assert isinstance(call.registry.perform(question.request, call.relayer.address), Accepted)


def test_a_wallet_is_asked_anew_each_time(call, wallets, node, outsider):
    """What counts is what it says in the very call, for one and the same signature."""
    wallet = wallets[Behaviour.AS_TOLD]
    question = call.needing(wallet.address)
    request = question.signed(b"the same")
    for yes in (False, True, False):
        assert node.send(wallet.address, encode_tell(yes), sender=outsider.address).succeeded
        assert call.rejection(request) == (None if yes else UNAPPROVED)
    assert node.send(wallet.address, encode_tell(True), sender=outsider.address).succeeded
    assert isinstance(call.registry.perform(request, call.relayer.address), Accepted)


def test_a_wallet_that_said_yes_once_may_refuse_the_next_transition(commit, wallets, node, outsider):
    wallet = wallets[Behaviour.AS_TOLD]
    question = commit.needing(wallet.address)
    assert node.send(wallet.address, encode_tell(True), sender=outsider.address).succeeded
    commit.registry.must_perform(question.signed(b"x"), commit.relayer.address)
    assert node.send(wallet.address, encode_tell(False), sender=outsider.address).succeeded
    delta = commit.registry.next_delta(question.request.delta.space_id)
    assert commit.rejection(CommitTransition(delta, b"x")) == UNAPPROVED


def test_a_wallet_is_asked_about_the_digest_and_not_about_the_message(commit, wallets, node):
    """The owner's signature over the bare struct hash is worth nothing."""
    wallet = wallets[Behaviour.OWNER_SIGNED]
    question = commit.needing(wallet.address)
    struct_hash = hash_experience_delta(question.request.delta)
    assert commit.rejection(question.signed(wallet.owner.sign(struct_hash))) == UNAPPROVED


def test_an_account_that_is_given_code_later_is_asked_from_then_on(call, wallets, node, delegator):
    """A wallet that is deployed after it was appointed: until then nobody answers for it."""
    address = keccak(text="not deployed yet")[-20:]
    question = call.needing(address)
    assert call.rejection(question.signed(b"\x01")) == UNAPPROVED
    node.set_code(address, node.code(wallets[Behaviour.SAYS_YES].address))
    assert call.rejection(question.signed(b"\x01")) is None


# Accounts with a key and, by EIP-7702, code.


@pytest.mark.parametrize("behaviour", Behaviour, ids=lambda behaviour: behaviour.name.lower())
def test_a_delegating_account_approves_by_its_key_whatever_its_code_says(call, wallets, node, delegator, behaviour):
    """A "no" of code is followed by the key: having code must not take the key's voice away."""
    node.delegate(delegator.address, wallets[behaviour].address)
    question = call.needing(delegator.address)
    request = question.signed(delegator.sign(question.digest))
    assert isinstance(call.registry.perform(request, call.relayer.address), Accepted)


@pytest.mark.parametrize("behaviour", Behaviour, ids=lambda behaviour: behaviour.name.lower())
def test_a_delegating_account_approves_by_calling_itself(call, wallets, node, delegator, behaviour):
    node.delegate(delegator.address, wallets[behaviour].address)
    question = call.needing(delegator.address)
    assert isinstance(call.registry.perform(question.request, delegator.address), Accepted)


@pytest.mark.parametrize("behaviour", sorted(NEVER_YES - BURNS_GAS), ids=lambda behaviour: behaviour.name.lower())
def test_a_delegating_account_does_not_approve_by_a_malformed_signature(call, wallets, node, delegator, behaviour):
    node.delegate(delegator.address, wallets[behaviour].address)
    question = call.needing(delegator.address)
    for name, signature in malformed_signatures(delegator.sign(question.digest)).items():
        assert call.rejection(question.signed(signature)) == UNAPPROVED, name


@pytest.mark.parametrize("behaviour", sorted(BURNS_GAS), ids=lambda behaviour: behaviour.name.lower())
def test_a_delegating_account_that_burns_gas_does_not_approve_by_a_malformed_signature(
    commit, wallets, node, delegator, behaviour
):
    node.delegate(delegator.address, wallets[behaviour].address)
    question = commit.needing(delegator.address)
    for name, signature in malformed_signatures(delegator.sign(question.digest)).items():
        assert commit.rejection(question.signed(signature), gas=2_000_000) == UNAPPROVED, name


@pytest.mark.parametrize("behaviour", Behaviour, ids=lambda behaviour: behaviour.name.lower())
def test_a_delegating_account_approves_exactly_what_its_code_or_its_key_does(
    call, wallets, node, delegator, outsider, behaviour
):
    wallet = wallets[behaviour]
    node.delegate(delegator.address, wallet.address)
    question = call.needing(delegator.address)
    signatures = wallet_signatures(question, wallet.owner, outsider)
    approved = APPROVED.get(behaviour, set(signatures))
    for name, signature in signatures.items():
        expected = None if name in approved else UNAPPROVED
        assert call.rejection(question.signed(signature)) == expected, name


def test_a_delegate_that_checks_the_own_key_takes_high_s_where_the_key_alone_does_not(commit, wallets, node, delegator):
    """Code may be more lenient than the registry; without it, the registry's rule stands."""
    question = commit.needing(delegator.address)
    high_s = question.signed(flip_s(delegator.sign(question.digest)))
    assert commit.rejection(high_s) == UNAPPROVED
    node.delegate(delegator.address, wallets[Behaviour.SELF_SIGNED].address)
    assert commit.rejection(high_s) is None
    node.delegate(delegator.address, None)
    assert commit.rejection(high_s) == UNAPPROVED


def test_a_delegating_account_keeps_what_it_is_told_in_its_own_storage(commit, wallets, node, delegator, outsider):
    wallet = wallets[Behaviour.AS_TOLD]
    node.delegate(delegator.address, wallet.address)
    question = commit.needing(delegator.address)
    assert node.send(wallet.address, encode_tell(True), sender=outsider.address).succeeded
    assert commit.rejection(question.signed(b"x")) == UNAPPROVED
    assert node.send(delegator.address, encode_tell(True), sender=outsider.address).succeeded
    assert commit.rejection(question.signed(b"x")) is None


@pytest.mark.parametrize("behaviour", [Behaviour.SAYS_YES, Behaviour.REVERTS_WITH_NOTHING])
def test_a_delegation_set_and_revoked_by_real_transactions(commit, wallets, node, delegator, outsider, behaviour):
    """A type-4 transaction, signed by the account and sent by someone else; then another one to revoke it."""
    question = commit.needing(delegator.address)
    by_code, by_key = question.signed(b"x"), question.signed(delegator.sign(question.digest))
    assert commit.rejection(by_code) == UNAPPROVED
    assert commit.rejection(by_key) is None

    delegate_by_transaction(node, delegator, wallets[behaviour].address, outsider)
    assert node.code(delegator.address) == b"\xef\x01\x00" + wallets[behaviour].address
    assert commit.rejection(by_code) == (None if behaviour is Behaviour.SAYS_YES else UNAPPROVED)
    assert commit.rejection(by_key) is None
    assert isinstance(commit.registry.perform(question.request, delegator.address), Accepted)

    delegate_by_transaction(node, delegator, bytes(20), outsider)
    assert node.code(delegator.address) == b""
    question = commit.needing(delegator.address, "after the revocation")
    assert commit.rejection(question.signed(b"x")) == UNAPPROVED
    assert commit.rejection(question.signed(delegator.sign(question.digest))) is None


def delegate_by_transaction(node, account: Actor, delegate: bytes, sender: Actor) -> None:
    chain_id = int(node.rpc("eth_chainId"), 16)

    def nonce_of(actor: Actor) -> int:
        return int(node.rpc("eth_getTransactionCount", "0x" + actor.address.hex(), "latest"), 16)

    authorization = Account.from_key(account.key).sign_authorization(
        {"chainId": chain_id, "address": to_checksum_address(delegate), "nonce": nonce_of(account)}
    )
    transaction = {
        "type": 4,
        "chainId": chain_id,
        "nonce": nonce_of(sender),
        "to": to_checksum_address(account.address),
        "value": 0,
        "data": b"",
        "gas": 200_000,
        "maxFeePerGas": 10**11,
        "maxPriorityFeePerGas": 0,
        "accessList": [],
        "authorizationList": [authorization],
    }
    signed = Account.sign_transaction(transaction, sender.key)
    # The call to the account itself fails where its new code has no `receive`; the delegation stands all the same.
    node.send_raw(bytes(signed.raw_transaction))


# The order, seen by its cost: code that burns all gas shows whether it was asked.


def gas_of(call: Call, request: Request, caller: bytes, node) -> int:
    receipt = node.send(call.registry.address, encode_request(request), sender=caller)
    assert receipt.succeeded
    return receipt.gas_used


def test_code_is_asked_before_the_key(call, wallets, node, delegator):
    node.delegate(delegator.address, wallets[Behaviour.HITS_INVALID_OPCODE].address)
    question = call.needing(delegator.address)
    by_key = question.signed(delegator.sign(question.digest))
    assert gas_of(call, by_key, call.relayer.address, node) > BLOCK_GAS * 9 // 10


def test_code_is_asked_when_the_account_itself_sends_a_signature(call, wallets, node, delegator):
    node.delegate(delegator.address, wallets[Behaviour.HITS_INVALID_OPCODE].address)
    question = call.needing(delegator.address)
    by_key = question.signed(delegator.sign(question.digest))
    assert gas_of(call, by_key, delegator.address, node) > BLOCK_GAS * 9 // 10


def test_code_is_not_asked_about_a_direct_call(call, wallets, node, delegator):
    node.delegate(delegator.address, wallets[Behaviour.HITS_INVALID_OPCODE].address)
    question = call.needing(delegator.address)
    assert gas_of(call, question.request, delegator.address, node) < BLOCK_GAS // 10


# Gas.


@pytest.mark.parametrize("gas", [600_000, 3_000_000, BLOCK_GAS])
@pytest.mark.parametrize("behaviour", sorted(BURNS_GAS), ids=lambda behaviour: behaviour.name.lower())
def test_a_wallet_that_burns_all_gas_ends_in_the_right_error(call, wallets, behaviour, gas):
    """The 64th part that stays has to suffice to try the key and to say no."""
    wallet = wallets[behaviour]
    question = call.needing(wallet.address)
    for signature in (b"", b"\x01", wallet.owner.sign(question.digest)):
        assert call.rejection(question.signed(signature), gas) == UNAPPROVED


#: What the wallet itself needs to return a megabyte, and what the registry may need beside it. A second megabyte
#: of memory would cost over two million once more.
GAS_OF_A_MEGABYTE = 2_300_000
GAS_BESIDE_IT = 250_000


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour.RETURNS_MEGABYTE_OF_NO, Behaviour.REVERTS_WITH_MEGABYTE],
    ids=lambda behaviour: behaviour.name.lower(),
)
@pytest.mark.parametrize("prepare", PREPARATIONS)
def test_a_refusing_megabyte_is_not_copied(memory_registry, controller, relayer, wallets, prepare, behaviour):
    call = Call(memory_registry, controller, relayer, PREPARATIONS[prepare])
    question = call.needing(wallets[behaviour].address)
    rejection = call.rejection(question.signed(b"x"), GAS_OF_A_MEGABYTE + GAS_BESIDE_IT)
    assert rejection == UNAPPROVED


@pytest.mark.parametrize("prepare", PREPARATIONS)
def test_an_approving_megabyte_is_not_copied(memory_registry, controller, relayer, wallets, prepare):
    call = Call(memory_registry, controller, relayer, PREPARATIONS[prepare])
    question = call.needing(wallets[Behaviour.RETURNS_MEGABYTE_OF_YES].address)
    assert call.rejection(question.signed(b"x"), GAS_OF_A_MEGABYTE + GAS_BESIDE_IT) is None


def test_a_megabyte_is_what_it_says(wallets, node):
    """So that the tests above cannot pass because the wallet was harmless."""
    data = keccak(text="isValidSignature(bytes32,bytes)")[:4] + ZERO_WORD + (64).to_bytes(32) + ZERO_WORD
    for behaviour, start in (
        (Behaviour.RETURNS_MEGABYTE_OF_YES, "1626ba7e"),
        (Behaviour.RETURNS_MEGABYTE_OF_NO, "ffffffff"),
    ):
        answer = node.call(wallets[behaviour].address, data)
        assert isinstance(answer, bytes)
        assert len(answer) == 2**20
        assert answer[:4].hex() == start
        assert isinstance(node.call(wallets[behaviour].address, data, gas=2_100_000), Reverted)


# Reentrancy: wallets are asked by STATICCALL, before anything is written.


def test_a_wallet_that_reenters_gets_nothing_done(call, wallets):
    """It calls back with the same request, which needs no signature of its direct caller, and fails."""
    question = call.needing(wallets[Behaviour.REENTERS_AND_INSISTS].address)
    request = question.signed(encode_request(question.request))
    with call.registry.unchanged():
        assert call.registry.perform(request, call.relayer.address) == UNAPPROVED


def test_a_wallet_that_reenters_would_get_it_done_in_a_call_of_its_own(call, wallets, outsider):
    """So that the test before cannot pass because the payload was wrong."""
    wallet = wallets[Behaviour.REENTERS_AND_INSISTS]
    question = call.needing(wallet.address)
    accepted = call.registry.perform_through(wallet.address, question.request, outsider.address)
    assert isinstance(accepted, Accepted)


def space_of(request: Request) -> bytes:
    return request.delta.space_id if isinstance(request, CommitTransition) else request.space_id


def test_a_wallet_that_reads_sees_the_state_before(call, wallets, node):
    """Nothing is written until everyone has approved: a new space is still unknown, a head still the old one."""
    question = call.needing(wallets[Behaviour.READS_AND_COMPARES].address)
    space_id = space_of(question.request)
    readings = [encode_call("head", space_id), encode_call("spaceAuthorization", space_id)]
    if call.registry.has_further_views:
        readings.append(encode_call("stateRootAt", space_id, 1))
    for reading in readings:
        before = node.call(call.registry.address, reading)
        answer = before.data if isinstance(before, Reverted) else before
        assert call.rejection(question.signed(keccak(answer) + reading)) is None
        assert call.rejection(question.signed(keccak(answer + b"x") + reading)) == UNAPPROVED


def test_a_wallet_that_reenters_and_approves_counts_once(call, wallets):
    question = call.needing(wallets[Behaviour.REENTERS_AND_APPROVES].address)
    request = question.signed(encode_request(question.request))
    accepted = call.registry.perform(request, call.relayer.address)
    assert isinstance(accepted, Accepted)
    if isinstance(request, CommitTransition):
        assert call.registry.head(request.delta.space_id)[2] == 1


def test_a_wallet_cannot_write_while_it_is_asked(call, wallets, node):
    wallet = wallets[Behaviour.WRITES_FIRST]
    question = call.needing(wallet.address)
    before = node.storage_root(wallet.address)
    assert call.registry.perform(question.signed(b"x"), call.relayer.address) == UNAPPROVED
    assert node.storage_root(wallet.address) == before


# Accounts that are neither.


@pytest.mark.parametrize("number", [1, 2, 3, 4, 9, 10])
def test_a_precompile_approves_nothing(call, number):
    """The identity would return the magic value, the first bytes of what it is asked, if it were asked."""
    question = call.needing(number.to_bytes(20))
    for signature in (b"", b"\x01", bytes(65)):
        assert call.rejection(question.signed(signature)) == UNAPPROVED


def test_the_registry_itself_approves_nothing(call):
    question = call.needing(call.registry.address)
    for signature in (b"", b"\x01", bytes(65), encode_call("head", ZERO_WORD)):
        assert call.rejection(question.signed(signature)) == UNAPPROVED


def test_a_contract_without_the_function_approves_nothing(call, other_registry):
    question = call.needing(other_registry.address)
    for signature in (b"", b"\x01", bytes(65)):
        assert call.rejection(question.signed(signature)) == UNAPPROVED


def test_signatures_that_recover_to_nobody_approve_for_nobody(call):
    """Where recovery fails the precompile says zero; no account, least of all a low one, is meant by that."""
    question = call.needing(b"\x01".rjust(20, b"\0"))
    for signature in malformed_signatures(call.controller.sign(question.digest)).values():
        assert call.rejection(question.signed(signature)) == UNAPPROVED
