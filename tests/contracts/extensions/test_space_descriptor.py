"""SpaceDescriptor: a public URI and the hash of what stands there, published and cleared by the controller."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from eth_utils import keccak
from hypothesis import assume, given
from hypothesis import strategies as st

from anvil import Reverted
from memory_state import Behaviour, Registry
from models.memory import ZERO_ADDRESS, ZERO_WORD, Event, Rejection, word
from space_records import SILENT
from strategies import nonzero_words, words

URI = "https://example.org/agents/7.json"
CONTENT = keccak(text="content")
NOWHERE = keccak(text="nowhere")
NOT_CONTROLLER = Rejection("NotSpaceController")
EMPTY = ("", ZERO_WORD)
MAXIMUM = 2048
PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def published(space: bytes, content_hash: bytes, controller: bytes, uri: str) -> Event:
    return Event("DescriptorPublished", (space, content_hash, controller, uri))


@pytest.fixture
def described(descriptor, space, controller) -> bytes:
    """The space, with a descriptor."""
    descriptor.must_perform(controller.address, "publish", space, URI, CONTENT)
    return space


# Publishing


def test_publish_keeps_uri_and_content_hash_and_says_so(descriptor, space, controller):
    outcome = descriptor.perform(controller.address, "publish", space, URI, CONTENT)
    assert outcome == published(space, CONTENT, controller.address, URI)
    assert descriptor.answer("descriptorOf", space) == (URI, CONTENT)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, MAXIMUM - 1, MAXIMUM])
def test_publish_accepts_every_length_up_to_the_longest(descriptor, space, controller, length):
    uri = (PRINTABLE * 22)[:length]
    descriptor.must_perform(controller.address, "publish", space, uri, CONTENT)
    assert descriptor.answer("descriptorOf", space) == (uri, CONTENT)


@given(uri=st.text(PRINTABLE, min_size=1, max_size=200), content_hash=nonzero_words)
def test_publish_accepts_any_printable_uri_and_any_hash_but_zero(descriptor, space, controller, uri, content_hash):
    assert descriptor.rejection(controller.address, "publish", space, uri, content_hash) is None


def test_publish_replaces_the_descriptor_before_it_long_or_short(descriptor, space, controller):
    for uri in ("a" * MAXIMUM, "b", "c" * 100, "d" * 31, "e" * 32, "f" * 33):
        content_hash = keccak(text=uri)
        descriptor.must_perform(controller.address, "publish", space, uri, content_hash)
        assert descriptor.answer("descriptorOf", space) == (uri, content_hash)


def test_publish_says_so_again_when_nothing_changes(descriptor, described, controller):
    outcome = descriptor.perform(controller.address, "publish", described, URI, CONTENT)
    assert outcome == published(described, CONTENT, controller.address, URI)


def test_publish_leaves_other_spaces_and_the_registry_alone(
    descriptor, registry, described, foreign_space, outsider, controller
):
    with registry.unchanged():
        descriptor.must_perform(outsider.address, "publish", foreign_space, "urn:other", keccak(text="other"))
    assert descriptor.answer("descriptorOf", described) == (URI, CONTENT)


def test_publish_rejects_everyone_but_the_controller(
    descriptor, registry, space, authorizer, relayer, outsider, auditor
):
    callers = [actor.address for actor in (authorizer, relayer, outsider, auditor)]
    for caller in (*callers, registry.address, descriptor.address, ZERO_ADDRESS):
        assert descriptor.rejection(caller, "publish", space, URI, CONTENT) == NOT_CONTROLLER


@given(space_id=words)
def test_publish_and_clear_reject_unknown_space(descriptor, space, controller, space_id):
    assume(space_id != space)
    unknown = Rejection("UnknownSpace")
    assert descriptor.rejection(controller.address, "publish", space_id, URI, CONTENT) == unknown
    assert descriptor.rejection(controller.address, "clear", space_id) == unknown


def test_publish_rejects_an_empty_uri(descriptor, space, controller):
    assert descriptor.rejection(controller.address, "publish", space, "", CONTENT) == Rejection("EmptyUri")


@pytest.mark.parametrize("length", [MAXIMUM + 1, 5000])
def test_publish_rejects_a_uri_that_is_too_long(descriptor, space, controller, length):
    rejection = descriptor.rejection(controller.address, "publish", space, "a" * length, CONTENT)
    assert rejection == Rejection("UriTooLong", (MAXIMUM, length))


@given(before=st.text(PRINTABLE, max_size=40), byte=st.integers(0, 255), after=st.binary(max_size=40))
def test_publish_rejects_every_byte_that_is_not_printable_ascii(
    descriptor, space, controller, node, before, byte, after
):
    assume(not 0x21 <= byte <= 0x7E)
    # Bytes that are no UTF-8 have to be written into the calldata by hand.
    uri = before.encode() + bytes([byte]) + after
    data = bytearray(descriptor.encode_call("publish", space, "a" * len(uri), CONTENT))
    data[4 + 32 * 4 : 4 + 32 * 4 + len(uri)] = uri
    answer = node.call(descriptor.address, bytes(data), sender=controller.address)
    assert isinstance(answer, Reverted)
    assert descriptor.decode_rejection(answer) == Rejection("InvalidUriCharacter", (len(before), byte))


@pytest.mark.parametrize("text", [" ", "\t", "\n", "\x1b[31m", "\x7f", "\u202e", "é", "\U0001f600"])
def test_publish_names_the_first_byte_that_is_refused(descriptor, space, controller, text):
    rejection = descriptor.rejection(controller.address, "publish", space, f"urn:{text}\n", CONTENT)
    assert rejection == Rejection("InvalidUriCharacter", (4, text.encode()[0]))


def test_publish_rejects_a_content_hash_of_zero(descriptor, space, controller):
    rejection = descriptor.rejection(controller.address, "publish", space, URI, ZERO_WORD)
    assert rejection == Rejection("ZeroContentHash")


DEFECTS = {
    "unknown_space": Rejection("UnknownSpace"),
    "not_controller": NOT_CONTROLLER,
    "empty_uri": Rejection("EmptyUri"),
    "long_uri": Rejection("UriTooLong", (MAXIMUM, MAXIMUM + 1)),
    "space_in_uri": Rejection("InvalidUriCharacter", (0, 0x20)),
    "zero_content_hash": Rejection("ZeroContentHash"),
}
COMBINATIONS = [
    defects
    for defects in chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1))
    # An empty URI is neither long, nor has it a space.
    if "empty_uri" not in defects or not {"long_uri", "space_in_uri"} & set(defects)
]


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_publish_names_the_first_of_several_defects_and_changes_nothing(
    descriptor, described, controller, outsider, node, defects
):
    uri = "" if "empty_uri" in defects else "a"
    if "space_in_uri" in defects:
        uri = " "
    if "long_uri" in defects:
        uri = uri.ljust(MAXIMUM + 1, "a")
    before = node.storage_root(descriptor.address)
    outcome = descriptor.perform(
        outsider.address if "not_controller" in defects else controller.address,
        "publish",
        NOWHERE if "unknown_space" in defects else described,
        uri,
        ZERO_WORD if "zero_content_hash" in defects else keccak(text="other"),
    )
    assert outcome == DEFECTS[defects[0]]
    assert node.storage_root(descriptor.address) == before


# Clearing


def test_clear_takes_the_descriptor_away_and_says_so(descriptor, described, controller):
    outcome = descriptor.perform(controller.address, "clear", described)
    assert outcome == Event("DescriptorCleared", (described, controller.address))
    assert descriptor.answer("descriptorOf", described) == EMPTY


def slots_of(space: bytes, length: int) -> list[int]:
    """Where a descriptor lies: its hash, its URI's length or short text, and every word of a long one."""
    first = int.from_bytes(keccak(space + word(0)))
    text = int.from_bytes(keccak(word(first + 1)))
    return [first, first + 1, *range(text, text + (length + 31) // 32 if length > 31 else text)]


@pytest.mark.parametrize("length", [1, 31, 32, MAXIMUM])
def test_clear_leaves_nothing_in_storage(descriptor, space, controller, node, length):
    descriptor.must_perform(controller.address, "publish", space, "a" * length, CONTENT)
    assert all(any(node.storage(descriptor.address, slot)) for slot in slots_of(space, length))
    descriptor.must_perform(controller.address, "clear", space)
    assert not any(any(node.storage(descriptor.address, slot)) for slot in slots_of(space, length))


def test_clear_rejects_a_space_without_a_descriptor(descriptor, space, controller):
    assert descriptor.rejection(controller.address, "clear", space) == Rejection("NoDescriptor", (space,))


def test_clear_rejects_a_space_that_was_cleared(descriptor, described, controller):
    descriptor.must_perform(controller.address, "clear", described)
    assert descriptor.rejection(controller.address, "clear", described) == Rejection("NoDescriptor", (described,))


def test_a_cleared_space_can_be_described_again(descriptor, described, controller):
    descriptor.must_perform(controller.address, "clear", described)
    descriptor.must_perform(controller.address, "publish", described, "urn:new", CONTENT)
    assert descriptor.answer("descriptorOf", described) == ("urn:new", CONTENT)


def test_clear_rejects_everyone_but_the_controller_before_anything_else(
    descriptor, registry, described, foreign_space, authorizer, relayer, auditor
):
    callers = [actor.address for actor in (authorizer, relayer, auditor)]
    for caller in (*callers, registry.address, descriptor.address, ZERO_ADDRESS):
        assert descriptor.rejection(caller, "clear", described) == NOT_CONTROLLER
        assert descriptor.rejection(caller, "clear", foreign_space) == NOT_CONTROLLER


# Rotation


def test_a_descriptor_outlives_a_rotation_until_the_new_controller_changes_it(
    descriptor, described, controller, new_controller, rotate
):
    rotate()
    assert descriptor.answer("descriptorOf", described) == (URI, CONTENT)
    assert descriptor.rejection(controller.address, "publish", described, URI, CONTENT) == NOT_CONTROLLER
    assert descriptor.rejection(controller.address, "clear", described) == NOT_CONTROLLER
    outcome = descriptor.perform(new_controller.address, "publish", described, "urn:new", keccak(text="new"))
    assert outcome == published(described, keccak(text="new"), new_controller.address, "urn:new")
    descriptor.must_perform(new_controller.address, "clear", described)


def test_a_contract_wallet_publishes_by_a_call_of_its_own(
    descriptor, registry: Registry, space, controller, authorizer, relayer, outsider, wallets
):
    wallet = wallets[Behaviour.SAYS_YES]
    request = registry.update(space, wallet.address, authorizer.address, controller)
    registry.must_perform(request, relayer.address)
    assert descriptor.rejection(outsider.address, "publish", space, URI, CONTENT) == NOT_CONTROLLER
    outcome = descriptor.perform_through(wallet.address, relayer.address, "publish", space, URI, CONTENT)
    assert outcome == published(space, CONTENT, wallet.address, URI)


# Views


@given(space_id=words)
def test_descriptor_of_anything_else_is_empty(descriptor, described, space_id):
    assume(space_id != described)
    assert descriptor.answer("descriptorOf", space_id) == EMPTY


# Registries that lie


def authorization(controller: bytes) -> bytes:
    return word(controller) + word(b"\x22" * 20) + word(0)


def test_a_registry_without_roots_is_registry_enough(over_liar, space, controller):
    record = over_liar("SpaceDescriptor", {"spaceAuthorization": authorization(controller.address)})
    outcome = record.perform(controller.address, "publish", space, URI, CONTENT)
    assert outcome == published(space, CONTENT, controller.address, URI)


def test_a_space_without_a_controller_is_unknown_whoever_calls(over_liar, space, controller):
    record = over_liar("SpaceDescriptor", {"spaceAuthorization": authorization(ZERO_ADDRESS)})
    for caller in (controller.address, ZERO_ADDRESS):
        assert record.rejection(caller, "publish", space, URI, CONTENT) == Rejection("UnknownSpace")
        assert record.rejection(caller, "clear", space) == Rejection("UnknownSpace")


@pytest.mark.parametrize("answer", [b"", bytes(95), b"\x01" + bytes(95)], ids=["nothing", "short", "dirty"])
def test_a_registry_that_answers_no_words_ends_every_call(over_liar, space, controller, answer):
    record = over_liar("SpaceDescriptor", {"spaceAuthorization": answer})
    assert record.perform(controller.address, "publish", space, URI, CONTENT) == SILENT
    assert record.perform(controller.address, "clear", space) == SILENT
    assert record.answer("descriptorOf", space) == EMPTY


def test_a_registry_whose_code_is_gone_ends_every_call(over_liar, space, controller):
    record = over_liar("SpaceDescriptor", None)
    assert record.perform(controller.address, "publish", space, URI, CONTENT) == SILENT
