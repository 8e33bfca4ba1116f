"""What a payload means: profiles by their id, the keccak256 of their name.

    melete.plain/1        any bytes, as they are; the commitment's salt hides them
    melete.json/1         a JSON value, as its RFC 8785 bytes
    melete.encrypted/1    other bytes under a key of the caller's: an `Envelope`
    melete.batch/1        many operations as a count and a root: a `Batch`

Nothing here draws randomness: keys, nonces and salts come in as arguments. Errors never show a payload or a key.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from melete.canonical import Json, canonicalize, load_json
from melete.errors import InvalidInput, InvalidJson, NotAuthentic, UnknownProfile, WrongKey
from melete.memory.batch import Batch
from melete.memory.commitment import compute_profile_id
from melete.primitives import NOT_SHOWN, Bytes32

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

Schema: TypeAlias = Mapping[str, Any]

PLAIN_NAME: Final = "melete.plain/1"
JSON_NAME: Final = "melete.json/1"
ENCRYPTED_NAME: Final = "melete.encrypted/1"
BATCH_NAME: Final = "melete.batch/1"

KEY_LENGTH: Final = 32
NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16
_KEY_CHECK_LENGTH: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """How values of one meaning become payload bytes and come back.

    `encode` and `decode` raise an error of ours for what they refuse, `InvalidInput` as a rule. `schema` is the JSON
    Schema of the value as `to_json` gives it: as it is, unless another function is given.
    """

    name: str
    encode: Callable[[Any], bytes] = field(repr=False)
    decode: Callable[[bytes], Any] = field(repr=False)
    schema: Schema = field(repr=False)
    to_json: Callable[[Any], Json] = field(default=lambda value: value, repr=False)
    id: Bytes32 = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", compute_profile_id(self.name))


class ProfileRegistry:
    """Profiles by id: the four of this package, and those that are registered here."""

    def __init__(self, profiles: Iterable[Profile] = ()) -> None:
        self._profiles = {profile.id: profile for profile in BUILT_IN}
        for profile in profiles:
            self.register(profile)

    def register(self, profile: Profile) -> Profile:
        """Add a profile and return it. Errors: `InvalidInput` for a name that another one has."""
        if self._profiles.setdefault(profile.id, profile) is not profile:
            raise InvalidInput("profile", profile.name, "a name that is not registered yet; a profile never changes")
        return profile

    def find(self, profile_id: Bytes32) -> Profile:
        """Return the profile with this id. Errors: `UnknownProfile`."""
        profile_id = Bytes32(profile_id, "profileId")
        if profile_id not in self._profiles:
            raise UnknownProfile(profile_id)
        return self._profiles[profile_id]

    def decode(self, profile_id: Bytes32, payload: bytes) -> Any:
        """Return the value of a payload. Errors: `UnknownProfile`, and whatever the profile refuses it with."""
        return self.find(profile_id).decode(payload)

    def __iter__(self) -> Iterator[Profile]:
        return iter(list(self._profiles.values()))


# Encrypted payloads


class Algorithm(IntEnum):
    """The cipher of an envelope: its first byte."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2


@dataclass(frozen=True, slots=True)
class Envelope:
    """Encrypted bytes: one byte of algorithm, 12 of nonce, 32 of key check, then ciphertext and 16 bytes of tag.

    From the caller's key and the nonce, HMAC-SHA256 derives the cipher's key and the key check. So no second key opens
    the same envelope to something else, and a commitment to the envelope commits to what is inside. The profile's
    name, the algorithm, the nonce and the key check are authenticated with the content.

    Errors: `InvalidInput` for parts of another length.
    """

    algorithm: Algorithm
    nonce: bytes
    key_check: bytes
    ciphertext: bytes = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "algorithm", _algorithm(self.algorithm))
        for name, length in (("nonce", NONCE_LENGTH), ("key_check", _KEY_CHECK_LENGTH)):
            value = getattr(self, name)
            if not isinstance(value, bytes) or len(value) != length:
                raise InvalidInput(name, value, f"{length} bytes")
        if not isinstance(self.ciphertext, bytes) or len(self.ciphertext) < TAG_LENGTH:
            raise InvalidInput("ciphertext", NOT_SHOWN, f"at least {TAG_LENGTH} bytes: those of its tag")

    def to_payload(self) -> bytes:
        """Return the bytes that a delta commits to."""
        return self._header() + self.ciphertext

    @classmethod
    def from_payload(cls, payload: bytes) -> Envelope:
        """Return the envelope that payload bytes are. Errors: `InvalidInput`."""
        start = 1 + NONCE_LENGTH
        end = start + _KEY_CHECK_LENGTH
        if not isinstance(payload, bytes) or len(payload) < end + TAG_LENGTH:
            raise InvalidInput("payload", NOT_SHOWN, f"an envelope of at least {end + TAG_LENGTH} bytes")
        return cls(_algorithm(payload[0]), payload[1:start], payload[start:end], payload[end:])

    def to_json(self) -> dict[str, Json]:
        """Return the JSON members: the algorithm's name, and 0x hex."""
        return {
            "algorithm": _JSON_NAMES[self.algorithm],
            "nonce": "0x" + self.nonce.hex(),
            "keyCheck": "0x" + self.key_check.hex(),
            "ciphertext": "0x" + self.ciphertext.hex(),
        }

    def open(self, key: bytes) -> bytes:
        """Return the content. Errors: `WrongKey`, or `NotAuthentic` where the key is right and the bytes are not."""
        from cryptography.exceptions import InvalidTag

        cipher, key_check = _derive(self.algorithm, key, self.nonce)
        if not hmac.compare_digest(key_check, self.key_check):
            raise WrongKey("the encrypted payload")
        try:
            return cipher.decrypt(self.nonce, self.ciphertext, _LABEL + self._header())
        except InvalidTag:
            raise NotAuthentic("the encrypted payload") from None

    def _header(self) -> bytes:
        return bytes([self.algorithm]) + self.nonce + self.key_check


def seal(content: bytes, key: bytes, nonce: bytes, algorithm: Algorithm = Algorithm.AES_256_GCM) -> Envelope:
    """Return the envelope of some bytes under a 32-byte key and a 12-byte nonce.

    A nonce is used once with a key; random ones are safe for 2^32 envelopes under one key.
    Errors: `InvalidInput`, which shows neither content nor key.
    """
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidInput("content", None, "bytes; encode it with its own profile first (it is not shown)")
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_LENGTH:
        raise InvalidInput("nonce", NOT_SHOWN, f"{NONCE_LENGTH} bytes that were never used with this key")
    algorithm = _algorithm(algorithm)
    cipher, key_check = _derive(algorithm, key, nonce)
    header = bytes([algorithm]) + nonce + key_check
    return Envelope(algorithm, nonce, key_check, cipher.encrypt(nonce, bytes(content), _LABEL + header))


_LABEL: Final = ENCRYPTED_NAME.encode() + b"\x00"
_JSON_NAMES: Final = {Algorithm.AES_256_GCM: "AES-256-GCM", Algorithm.CHACHA20_POLY1305: "ChaCha20-Poly1305"}


def _algorithm(value: int) -> Algorithm:
    if value not in tuple(Algorithm):
        raise InvalidInput("algorithm", value, "1 for AES-256-GCM or 2 for ChaCha20-Poly1305")
    return Algorithm(value)


def _derive(algorithm: Algorithm, key: bytes, nonce: bytes) -> tuple[AESGCM | ChaCha20Poly1305, bytes]:
    """Return the cipher and the key check of one envelope."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    if not isinstance(key, bytes) or len(key) != KEY_LENGTH:
        raise InvalidInput("key", None, f"{KEY_LENGTH} bytes (its value is not shown)")
    suffix = bytes([algorithm]) + nonce
    cipher_key = hmac.digest(key, _LABEL + b"cipher" + suffix, "sha256")
    key_check = hmac.digest(key, _LABEL + b"check!" + suffix, "sha256")
    return (AESGCM if algorithm is Algorithm.AES_256_GCM else ChaCha20Poly1305)(cipher_key), key_check


# The profiles from the start


def _encode_plain(value: bytes) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput("value", None, "bytes; encode text first, for example as UTF-8 (it is not shown)")
    return bytes(value)


def _encode_json(value: Json) -> bytes:
    try:
        payload = canonicalize(value)
        load_json(payload)  # a float such as 2.0**53 is written like an integer that no reader of ours takes
    except InvalidJson as error:  # its pointer holds member names, which are part of the payload
        raise InvalidInput("value", NOT_SHOWN, f"JSON that RFC 8785 can write ({error.rule})") from None
    return payload


def _decode_json(payload: bytes) -> Json:
    try:
        value = load_json(_encode_plain(payload))
        if canonicalize(value) == payload:
            return value
    except InvalidJson:
        pass
    raise InvalidInput("payload", None, "JSON in its RFC 8785 form (it is not shown)")


def _of_type(cls: type[Batch] | type[Envelope]) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise InvalidInput("value", NOT_SHOWN, f"of type {cls.__name__}")
        return value.to_payload()

    return encode


_HEX: Final[Schema] = {"type": "string", "pattern": "^0x(?:[0-9a-f]{2})*$(?!\\n)"}
_WORD: Final[Schema] = {"type": "string", "pattern": "^0x[0-9a-f]{64}$(?!\\n)"}


def _object(**members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


PLAIN: Final = Profile(PLAIN_NAME, _encode_plain, _encode_plain, _HEX, lambda value: "0x" + value.hex())
JSON: Final = Profile(JSON_NAME, _encode_json, _decode_json, {})
ENCRYPTED: Final = Profile(
    ENCRYPTED_NAME,
    _of_type(Envelope),
    Envelope.from_payload,
    _object(
        algorithm={"enum": list(_JSON_NAMES.values())},
        nonce={**_HEX, "minLength": 26, "maxLength": 26},
        keyCheck=_WORD,
        ciphertext={**_HEX, "minLength": 2 + 2 * TAG_LENGTH},
    ),
    Envelope.to_json,
)
BATCH: Final = Profile(
    BATCH_NAME,
    _of_type(Batch),
    Batch.from_payload,
    _object(count={"type": "integer", "minimum": 1, "maximum": 2**53 - 1}, root=_WORD),
    Batch.to_json,
)
BUILT_IN: Final = (PLAIN, JSON, ENCRYPTED, BATCH)
