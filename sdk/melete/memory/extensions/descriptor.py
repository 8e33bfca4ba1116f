"""The client of a `SpaceDescriptor` contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from melete.errors import (
    EmptyUri,
    InvalidInput,
    InvalidUriCharacter,
    NoDescriptor,
    NotARecord,
    UriTooLong,
    ZeroContentHash,
)
from melete.memory.extensions.events import DescriptorCleared, DescriptorPublished, read_uri
from melete.memory.extensions.record import Record
from melete.primitives import ZERO_BYTES32, Bytes32, is_utf8, uint_word

FUNCTIONS: Final = {
    "publish": "publish(bytes32,string,bytes32)",
    "clear": "clear(bytes32)",
    "descriptorOf": "descriptorOf(bytes32)",
}
MAX_URI_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Where a space is described, and the keccak256 of what stands there. Hash what you get before you believe it."""

    uri: str
    content_hash: Bytes32


def check_uri(uri: str) -> bytes:
    """Return the bytes of a URI that a descriptor can hold.

    Errors: `EmptyUri`, `UriTooLong`, `InvalidUriCharacter`; `InvalidInput` for what is no text.
    """
    if not isinstance(uri, str) or not is_utf8(uri):
        raise InvalidInput("uri", uri, "text that UTF-8 can carry")
    written = uri.encode("utf-8")
    if not written:
        raise EmptyUri
    if len(written) > MAX_URI_BYTES:
        raise UriTooLong(MAX_URI_BYTES, len(written))
    for index, byte in enumerate(written):
        if not 0x21 <= byte <= 0x7E:
            raise InvalidUriCharacter(index, byte)
    return written


class SpaceDescriptor(Record):
    """Where controllers say what their spaces are: public, and for ever in the events, cleared or not."""

    contract_name: ClassVar[str] = "SpaceDescriptor"
    functions: ClassVar[dict[str, str]] = FUNCTIONS

    def descriptor_of(self, space_id: Bytes32) -> Descriptor | None:
        """Return a space's current descriptor, or None."""
        answer = self._ask("descriptorOf", Bytes32(space_id, "spaceId"))
        try:
            uri = read_uri(answer, 0, 2)
        except InvalidInput:
            raise NotARecord(self.address, "descriptorOf", answer) from None
        content_hash = Bytes32(answer[32:64])
        if bool(uri) != (content_hash != ZERO_BYTES32):
            raise NotARecord(self.address, "descriptorOf", answer)
        return Descriptor(uri, content_hash) if uri else None

    def check_publish(self, space_id: Bytes32, uri: str, content_hash: Bytes32) -> None:
        """Raise the first error that `publish` would meet, or return; nothing is sent."""
        space_id, content_hash = Bytes32(space_id, "spaceId"), Bytes32(content_hash, "contentHash")
        self._require_controller(space_id)
        check_uri(uri)
        if content_hash == ZERO_BYTES32:
            raise ZeroContentHash
        self._simulate(self._publish_call(space_id, uri, content_hash))

    def check_clear(self, space_id: Bytes32) -> None:
        """Raise the first error that `clear` would meet, or return; nothing is sent."""
        space_id = Bytes32(space_id, "spaceId")
        self._require_controller(space_id)
        if self.descriptor_of(space_id) is None:
            raise NoDescriptor(space_id)
        self._simulate(self._data("clear", space_id))

    def publish(self, space_id: Bytes32, uri: str, content_hash: Bytes32) -> DescriptorPublished:
        """Publish a space's descriptor in place of the current one, and return the event.

        The sender has to be the space's controller. Never give a URI that nobody should know: it stays in the chain's
        history. Errors: those of the contract's `publish`, before anything is sent.
        """
        self.check_publish(space_id, uri, content_hash)
        return self._send(self._publish_call(space_id, uri, content_hash), DescriptorPublished)

    def clear(self, space_id: Bytes32) -> DescriptorCleared:
        """Take a space's descriptor away, and return the event; the chain's history keeps it.

        The sender has to be the space's controller. Errors: those of the contract's `clear`, before anything is sent.
        """
        self.check_clear(space_id)
        return self._send(self._data("clear", Bytes32(space_id)), DescriptorCleared)

    def _known_answers(self) -> dict[str, tuple[bytes, bytes]]:
        return {"descriptorOf": (ZERO_BYTES32, uint_word(64) + bytes(64))}

    def _publish_call(self, space_id: Bytes32, uri: str, content_hash: Bytes32) -> bytes:
        written = uri.encode("utf-8")
        words = Bytes32(space_id) + uint_word(96) + Bytes32(content_hash) + uint_word(len(written))
        return self._data("publish", words + written + bytes(-len(written) % 32))
