"""deriveSpaceId: a space's id is bound to its first controller."""

from __future__ import annotations

from eth_utils import keccak
from hypothesis import assume, given

from models.memory import ZERO_ADDRESS, Accepted, Rejection, derive_space_id
from strategies import nonzero_addresses, words


@given(controller=nonzero_addresses, salt=words)
def test_derive_space_id_agrees_with_the_model(registry, controller, salt):
    assert registry.view("deriveSpaceId", controller, salt) == derive_space_id(controller, salt)


@given(salt=words)
def test_derive_space_id_rejects_the_zero_address(registry, salt):
    assert registry.view("deriveSpaceId", ZERO_ADDRESS, salt) == Rejection("ZeroAddress")


@given(one=nonzero_addresses, other=nonzero_addresses, salt=words)
def test_derive_space_id_differs_by_controller(registry, one, other, salt):
    assume(one != other)
    assert registry.view("deriveSpaceId", one, salt) != registry.view("deriveSpaceId", other, salt)


@given(controller=nonzero_addresses, one=words, other=words)
def test_derive_space_id_differs_by_salt(registry, controller, one, other):
    assume(one != other)
    first, second = (registry.view("deriveSpaceId", controller, salt) for salt in (one, other))
    assert first != second


def test_derive_space_id_is_the_keccak_of_three_words(registry):
    """Written out, without the model."""
    controller, salt = b"\x11" * 20, b"\x22" * 32
    type_hash = keccak(b"MemorySpace(address initialController,bytes32 salt)")
    expected = keccak(type_hash + bytes(12) + controller + salt)
    assert registry.view("deriveSpaceId", controller, salt) == expected


def test_derive_space_id_reproduces_the_published_space(registry):
    space_id = registry.view("deriveSpaceId", b"\x22" * 20, b"\xdd" * 32)
    assert space_id.hex() == "ef5037465ae0323637cb58434eb554ae4a1fe1131bcc10888900f2d4cbe349d8"


def test_derive_space_id_gives_the_id_that_can_be_registered(registry, controller, authorizer, relayer):
    salt = keccak(text="salt")
    request = registry.registration(controller, authorizer.address, salt)
    assert request.space_id == registry.view("deriveSpaceId", controller.address, salt)
    assert isinstance(registry.perform(request, relayer.address), Accepted)
