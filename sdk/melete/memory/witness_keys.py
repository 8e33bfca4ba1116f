"""Keys of a witness store: where they come from, what is derived from them, and how a row is sealed.

    master = the 32 bytes of a key, or scrypt(passphrase, salt)
    row key, key check = HMAC-SHA256(master, label || purpose || salt), for a salt of each store's own
    sealed row = nonce || AES-256-GCM(row key, nonce, record)

A row's kind, scope, number and commitment are its associated data.

No key, passphrase or salt of a witness stands in a `repr` or an error. Random bytes are drawn here, from the operating
system; a random nonce of 12 bytes is safe for 2^32 rows under one key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from melete.errors import ConfigurationError, InvalidInput, MissingFile, NotAuthentic, WrongKey
from melete.files import is_owners_alone, open_to_read, to_path
from melete.primitives import Bytes32, parse_bytes

KEY_VARIABLE: Final = "MELETE_WITNESS_KEY"
PASSPHRASE_VARIABLE: Final = "MELETE_WITNESS_PASSPHRASE"  # noqa: S105  # a name
NONCE_LENGTH: Final = 12
SALT_LENGTH: Final = 32
_LABEL: Final = b"melete.witness-store/1\x00"
#: A file may not ask for more memory than this to try a passphrase, in bytes.
_MOST_SCRYPT_MEMORY: Final = 2**30
_HIDDEN: Final = "(its value is not shown)"


def fresh_salt() -> Bytes32:
    """Return 32 bytes from the operating system: the salt of one commitment."""
    return Bytes32(secrets.token_bytes(32))


class _Secret:
    """What is neither shown nor pickled."""

    __slots__ = ("_secret",)
    _secret: bytes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is not pickled; give each process a way to load it")


class StoreKey(_Secret):
    """The 32 random bytes that a store is encrypted with."""

    __slots__ = ()

    def __init__(self, key: bytes | str) -> None:
        """Take 32 bytes, or 64 hex digits with or without 0x. Errors: `InvalidInput`, which does not show them."""
        try:
            secret = parse_bytes(f"0x{key.removeprefix('0x')}") if isinstance(key, str) else parse_bytes(key)
        except InvalidInput:
            secret = b""
        if len(secret) != 32:
            raise InvalidInput("key", None, f"32 bytes, or 64 hex digits {_HIDDEN}")
        self._secret = secret

    @classmethod
    def fresh(cls) -> StoreKey:
        """Return a key from the operating system."""
        return cls(secrets.token_bytes(32))


@dataclass(frozen=True, slots=True)
class ScryptCost:
    """How hard it is to try a passphrase: `n` (a power of two), `r` and `p` of RFC 7914; memory is 128 n r bytes.

    Errors: `InvalidInput` for values that scrypt does not take, or that need more than 1 GiB.
    """

    n: int = 2**17
    r: int = 8
    p: int = 1

    def __post_init__(self) -> None:
        whole = all(type(value) is int and value > 0 for value in (self.n, self.r, self.p))
        if not whole or self.n < 2 or self.n & (self.n - 1) or 128 * self.n * self.r > _MOST_SCRYPT_MEMORY:
            raise InvalidInput(
                "scrypt n and r", f"{self.n} and {self.r}", "a power of two and a number with 128 n r at most 1 GiB"
            )
        if self.p > 16:
            raise InvalidInput("scrypt p", self.p, "from 1 to 16")


class Passphrase(_Secret):
    """A passphrase, and what trying it shall cost in a store that is made with it. Text is compared in NFC form."""

    __slots__ = ("cost",)

    def __init__(self, text: str, cost: ScryptCost | None = None) -> None:
        """Errors: `InvalidInput` for an empty text, or one that UTF-8 cannot carry; it is not shown."""
        try:
            self._secret = unicodedata.normalize("NFC", text).encode()
        except (TypeError, UnicodeEncodeError):
            self._secret = b""
        if not self._secret:
            raise InvalidInput("passphrase", None, f"text of at least one character {_HIDDEN}")
        self.cost = cost or ScryptCost()


Key: TypeAlias = StoreKey | Passphrase


def create_key_file(path: Path | str) -> StoreKey:
    """Write a fresh key to a new file, as hex, for its owner alone (mode 0600), and return it.

    Errors: `InvalidInput` for a file that exists: a key is never written over.
    """
    path, key = to_path(path, "key file"), StoreKey.fresh()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(
            "key file", str(path), "a file that does not exist yet; a key is never written over"
        ) from None
    except OSError as error:
        raise MissingFile(str(path), f"the key file cannot be written ({error.strerror})") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(key._secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return key


def load_key_file(path: Path | str) -> StoreKey:
    """Return the key in a file: 32 bytes, or 64 hex digits and a line end.

    Errors: `MissingFile`; `InvalidInput` for a file that others can read, and for one that holds no key; what it holds
    is not shown.
    """
    path = to_path(path, "key file")
    try:
        with open_to_read(path) as file:
            is_private = is_owners_alone(file)
            content = file.read(256) if is_private else b""
    except OSError as error:
        raise MissingFile(str(path), f"the key file cannot be read ({error.strerror})") from None
    if not is_private:
        raise InvalidInput("key file", str(path), "readable by its owner alone: chmod 600")
    if len(content) == 32:
        return StoreKey(content)
    try:
        return StoreKey(content.decode("ascii").strip())
    except (UnicodeDecodeError, InvalidInput):
        raise InvalidInput("key file", str(path), f"32 bytes, or 64 hex digits {_HIDDEN}") from None


#: The same two by names that they have to themselves: `melete.signing` loads key files as well, of other keys.
create_store_key, load_store_key = create_key_file, load_key_file


def load_key_from_environment(environment: Mapping[str, str] = os.environ) -> Key:
    """Return the key that MELETE_WITNESS_KEY gives in hex, or the passphrase in MELETE_WITNESS_PASSPHRASE.

    Errors: `ConfigurationError` where neither is set, or both are; `InvalidInput`, which does not show the value.
    """
    key, passphrase = environment.get(KEY_VARIABLE), environment.get(PASSPHRASE_VARIABLE)
    if bool(key) == bool(passphrase):
        state = "both" if key else "neither"
        raise ConfigurationError(
            f"set {KEY_VARIABLE} or {PASSPHRASE_VARIABLE} to open the witness store; {state} is set"
        )
    return StoreKey(key) if key else Passphrase(passphrase or "")


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What a file keeps, in the clear, to recognize its key: a salt, a check value, and the cost of a passphrase.

    `cost` is None where the key is no passphrase.
    """

    salt: bytes
    check: bytes
    cost: ScryptCost | None


class Sealer:
    """Seals and opens rows under one key."""

    __slots__ = ("_cipher", "mac_key", "record")

    def __init__(self, key: Key, salt: bytes, cost: ScryptCost | None) -> None:
        """Errors: `InvalidInput` for what is no key; it is not shown."""
        if not isinstance(key, StoreKey | Passphrase):
            raise InvalidInput("key", None, f"a StoreKey or a Passphrase, not {type(key).__name__} {_HIDDEN}")
        master = _stretch(key, salt, cost)
        self.record = KeyRecord(salt, _derive(master, b"check", salt), cost)
        #: For the digest of an encrypted export.
        self.mac_key = _derive(master, b"export", salt)
        self._cipher = AESGCM(_derive(master, b"row", salt))

    @classmethod
    def fresh(cls, key: Key) -> Sealer:
        """Return a sealer with a new salt, for a new store or a new key."""
        return cls(key, secrets.token_bytes(SALT_LENGTH), key.cost if isinstance(key, Passphrase) else None)

    @classmethod
    def unlock(cls, key: Key, record: KeyRecord, what: str) -> Sealer:
        """Return the sealer that a file was made with. Errors: `WrongKey`, naming `what`."""
        if isinstance(key, StoreKey | Passphrase) and isinstance(key, Passphrase) != (record.cost is not None):
            raise WrongKey(f"{what} (it takes a {'key' if record.cost is None else 'passphrase'})")
        sealer = cls(key, record.salt, record.cost)
        if not hmac.compare_digest(sealer.record.check, record.check):
            raise WrongKey(what)
        return sealer

    def seal(self, kind: str, scope: bytes, number: bytes, commitment: bytes, record: bytes) -> bytes:
        """Return a record's sealed bytes; `number` has 8."""
        nonce = secrets.token_bytes(NONCE_LENGTH)
        return nonce + self._cipher.encrypt(nonce, record, associate(kind, scope) + number + commitment)

    def open(self, kind: str, scope: bytes, number: bytes, commitment: bytes, sealed: bytes) -> bytes:
        """Return a record's bytes. Errors: `NotAuthentic`."""
        return self.opener(kind, scope)(number, commitment, sealed)

    def opener(self, kind: str, scope: bytes) -> Callable[[bytes, bytes, bytes], bytes]:
        """Return a function of number, commitment and sealed bytes that opens the rows of one scope."""
        decrypt, prefix = self._cipher.decrypt, associate(kind, scope)

        def open_row(number: bytes, commitment: bytes, sealed: bytes) -> bytes:
            try:
                return decrypt(sealed[:12], sealed[12:], prefix + number + commitment)
            except (InvalidTag, ValueError, TypeError):
                place = f"the witness for {kind} {int.from_bytes(number, 'big')} of 0x{scope.hex()}"
                raise NotAuthentic(place) from None

        return open_row


def associate(kind: str, scope: bytes) -> bytes:
    """Return what begins a row's associated data: lengths first, so that no two places share it."""
    name = kind.encode()
    return _LABEL + bytes([len(name), len(scope)]) + name + scope


def _derive(master: bytes, purpose: bytes, salt: bytes) -> bytes:
    return hmac.digest(master, _LABEL + purpose + b"\x00" + salt, "sha256")


def _stretch(key: Key, salt: bytes, cost: ScryptCost | None) -> bytes:
    if isinstance(key, StoreKey):
        return key._secret
    cost = cost or key.cost
    memory = 128 * cost.n * cost.r + 128 * cost.r * cost.p
    return hashlib.scrypt(key._secret, salt=salt, n=cost.n, r=cost.r, p=cost.p, maxmem=2 * memory, dklen=32)
