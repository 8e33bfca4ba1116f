"""EIP-7702 accounts: authorized, used, and revoked."""

from __future__ import annotations

import pytest

from melete import Address, Bytes32, LocalSigner, Witness, compute_profile_id, compute_transition_id, keccak256
from melete.chain.connection import call
from melete.chain.delegation import delegate_account, read_delegate, revoke_delegation
from melete.chain.transactions import LocalSender
from melete.errors import ExecutionHalted, InvalidAuthorization

SELF_SIGNED, SAYS_NO = 1, 5


@pytest.fixture
def account(request) -> LocalSigner:
    """An account of the test's own, without ether."""
    return LocalSigner(keccak256(request.node.nodeid.encode()))


@pytest.fixture
def space_id(our_registry, controller, account, salt) -> Bytes32:
    return our_registry.register(account.address, salt, controller=controller).space_id


def make_delta(registry, space_id):
    witness = Witness(compute_profile_id("test/1"), b"payload", keccak256(b"salt"))
    return witness.build_delta(space_id, registry.head(space_id))


def test_an_account_is_delegated_used_and_revoked(w3, our_registry, space_id, account, relayer, deploy):
    assert read_delegate(w3, account.address) is None
    wallet = deploy("ConfigurableWallet", SELF_SIGNED, str(account.address))
    delegate_account(w3, account, wallet, relayer)
    assert read_delegate(w3, account.address) == wallet
    our_registry.commit(make_delta(our_registry, space_id), authorizer=account)
    revoke_delegation(w3, account, relayer)
    assert read_delegate(w3, account.address) is None
    our_registry.commit(make_delta(our_registry, space_id), authorizer=account)
    assert our_registry.head(space_id).sequence == 2


def test_the_key_of_an_account_approves_although_its_code_says_no(w3, our_registry, space_id, account, relayer, deploy):
    delegate_account(w3, account, deploy("ConfigurableWallet", SAYS_NO, str(account.address)), relayer)
    our_registry.commit(make_delta(our_registry, space_id), authorizer=account)
    assert our_registry.head(space_id).sequence == 1


def test_code_that_says_yes_is_gone_once_it_is_revoked(w3, our_registry, space_id, account, outsider, relayer, deploy):
    says_yes = 4
    delegate_account(w3, account, deploy("ConfigurableWallet", says_yes, str(account.address)), relayer)
    digest = our_registry.domain.digest(keccak256(b"anything"))
    forged = outsider.sign_digest(digest)
    assert our_registry.is_approved(account.address, digest, forged)
    revoke_delegation(w3, account, relayer)
    assert not our_registry.is_approved(account.address, digest, forged)
    with pytest.raises(InvalidAuthorization):
        our_registry.commit(make_delta(our_registry, space_id), authorizer=outsider)


#: Codes that revert or halt whatever they are asked, by what they do.
STUBBORN = {
    "burns_its_gas": "5b600056",
    "invalid_instruction": "fe",
    "unknown_instruction": "0c",
    "jumps_astray": "600156",
    "empty_stack": "01",
    "reverts": "60006000fd",
    "returns_a_megabyte": "62100000600060003e620fffff6000f3",
    "reverts_with_a_megabyte": "620fffff6000fd",
}


@pytest.fixture
def place_code(w3):
    """Put code at an address of its own."""

    def place(code: str) -> Address:
        address = Address(keccak256(code.encode())[12:])
        answer = w3.provider.make_request("anvil_setCode", [str(address), "0x" + code])
        assert "error" not in answer
        return address

    return place


@pytest.mark.parametrize("code", STUBBORN.values(), ids=STUBBORN)
def test_the_key_of_an_account_approves_whatever_its_code_runs_into(
    w3, our_registry, space_id, account, relayer, place_code, code
):
    delegate = place_code(code)
    delegate_account(w3, account, delegate, relayer)
    assert read_delegate(w3, account.address) == delegate
    delta = make_delta(our_registry, space_id)
    digest = our_registry.domain.digest(compute_transition_id(delta))
    signature = account.sign_digest(digest)
    assert our_registry.is_approved(account.address, digest, signature)
    gas = our_registry.check_commit(delta, signature)
    assert gas > (1_000_000 if code in ("5b600056", "fe") else 80_000)
    our_registry.commit(delta, authorizer=account)
    assert our_registry.head(space_id).sequence == 1
    with pytest.raises(InvalidAuthorization):
        our_registry.check_commit(make_delta(our_registry, space_id), b"\x01" * 65)


def test_code_that_halts_is_told_from_a_node_that_refuses(w3, place_code):
    for code in ("5b600056", "fe", "0c", "600156", "01"):
        with pytest.raises(ExecutionHalted):
            call(w3, place_code(code), b"")


def test_an_account_can_pay_for_its_own_delegation(w3, keys, deploy):
    account = keys[7]
    wallet = deploy("ConfigurableWallet", SELF_SIGNED, str(account.address))
    delegate_account(w3, account, wallet, LocalSender(account))
    assert read_delegate(w3, account.address) == wallet
    revoke_delegation(w3, account, LocalSender(account))
    assert read_delegate(w3, account.address) is None
