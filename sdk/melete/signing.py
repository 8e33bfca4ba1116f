"""Who signs: keys in memory, in files, and elsewhere. What a signature says is in `melete.signatures`.

A signer is anything with an `address` and a `sign_digest`. The digest is signed as it is, without a prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from melete.errors import InvalidInput, InvalidSignature, MissingFile
from melete.files import is_owners_alone, open_to_read, read_file, to_path
from melete.primitives import Address, Bytes32, parse_bytes
from melete.signatures import CURVE_ORDER, SIGNATURE_LENGTH, recover_signer, verify_signature

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

__all__ = [
    "CURVE_ORDER",
    "SIGNATURE_LENGTH",
    "ApeSigner",
    "CallableSigner",
    "LocalSigner",
    "Signer",
    "load_key_file",
    "load_keystore",
    "recover_signer",
    "verify_signature",
]


#: A larger file holds no key as hex, or is no keystore, in bytes.
LARGEST_KEY_FILE: Final = 4 * 2**10
LARGEST_KEYSTORE: Final = 2**20


@runtime_checkable
class Signer(Protocol):
    """Approves digests for one account."""

    @property
    def address(self) -> Address:
        """The account."""

    def sign_digest(self, digest: Bytes32) -> bytes:
        """Return the account's approval: 65 bytes r, s, v of a key, or whatever its contract asks for."""


class LocalSigner:
    """A private key in this process. The key never appears in `repr`, errors or output."""

    def __init__(self, key: LocalAccount | bytes | str) -> None:
        """Take an `eth_account` account, or its private key: 32 bytes, or 64 hex digits with or without 0x."""
        from coincurve import PrivateKey
        from eth_account import Account

        with suppress(Exception):  # whatever it says may hold the key
            if isinstance(key, str):  # eth_account would fill up 63 digits with a zero
                key = parse_bytes(key if key.startswith("0x") else f"0x{key}")
            self._account = Account.from_key(key) if isinstance(key, bytes) else key
            self._address = Address(self._account.address)
            # Kept as the curve's library has it: eth_account would derive the public key anew for every signature.
            self._key = PrivateKey(bytes(self._account.key))
            return
        raise InvalidInput("private key", None, "32 bytes from 1 to the curve's order - 1 (its value is not shown)")

    @property
    def address(self) -> Address:
        return self._address

    @property
    def account(self) -> LocalAccount:
        """The `eth_account` account, for what signs transactions."""
        return self._account

    def sign_digest(self, digest: Bytes32) -> bytes:
        signature = self._key.sign_recoverable(bytes(Bytes32(digest, "digest")), hasher=None)
        return bytes(signature[:64]) + bytes([27 + signature[64]])

    def __repr__(self) -> str:
        return f"LocalSigner({self._address})"


def load_keystore(path: Path | str, password: str) -> LocalSigner:
    """Return the signer of an encrypted keystore file (the JSON of geth, Ape and eth_account, version 3).

    Deriving the key takes about a second: that is its protection. Errors: `MissingFile`; `InvalidInput` for a file
    that is no keystore, and for a wrong password; neither shows what it holds.
    """
    from eth_account import Account

    path = to_path(path, "keystore")
    try:
        content = read_file(path, LARGEST_KEYSTORE)
    except OSError as error:
        raise MissingFile(str(path), f"the keystore cannot be read ({error.strerror})") from None
    rule = "an encrypted keystore of version 3, opened by the password given"
    with suppress(Exception):  # whatever it says may hold a secret
        if len(content) <= LARGEST_KEYSTORE:
            return LocalSigner(bytes(Account.decrypt(content.decode(), password)))
    raise InvalidInput("keystore", str(path), rule)


def load_key_file(path: Path | str) -> LocalSigner:
    """Return the signer of a file that holds a private key as hex, for machines that keep their secrets so.

    Errors: `MissingFile`; `InvalidInput` for a file that others can read, and for one that holds no key.
    """
    path = to_path(path, "key file")
    try:
        with open_to_read(path) as file:
            is_private = is_owners_alone(file)
            content = file.read(LARGEST_KEY_FILE + 1) if is_private else b""
    except OSError as error:
        raise MissingFile(str(path), f"the key file cannot be read ({error.strerror})") from None
    if not is_private:
        raise InvalidInput("key file", str(path), "readable by its owner alone: chmod 600")
    with suppress(InvalidInput, UnicodeDecodeError):  # neither may show what it holds
        if len(content) <= LARGEST_KEY_FILE:
            return LocalSigner(content.decode("ascii").strip())
    raise InvalidInput("key file", str(path), "a file that holds a private key as 64 hex digits (they are not shown)")


@dataclass(frozen=True)
class CallableSigner:
    """An account whose approval a function produces: a contract wallet's policy, a hardware key, a remote signer."""

    address: Address
    #: Not shown: a `functools.partial` or a bound method may hold the key.
    sign: Callable[[Bytes32], bytes] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", Address(self.address, "address"))

    def sign_digest(self, digest: Bytes32) -> bytes:
        return parse_bytes(self.sign(Bytes32(digest, "digest")), "signature")


class ApeSigner:
    """An account of Ape (`accounts.load(...)`, a test account) that can sign a digest as it is."""

    def __init__(self, account: Any) -> None:
        self._account = account
        self._address = Address(str(account.address))

    @property
    def address(self) -> Address:
        return self._address

    def sign_digest(self, digest: Bytes32) -> bytes:
        from hexbytes import HexBytes

        signature = self._account.sign_raw_msghash(HexBytes(bytes(Bytes32(digest, "digest"))))
        if signature is None:
            raise InvalidSignature(f"the Ape account {self._address} declined to sign")
        return bytes(signature.encode_rsv())

    def __repr__(self) -> str:
        return f"ApeSigner({self._address})"
