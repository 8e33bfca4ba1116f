"""Whether bytes are a signature that the registries accept, and whose. No key is touched here."""

from __future__ import annotations

from typing import Final

from melete.errors import InvalidSignature
from melete.primitives import Address, Bytes32, parse_bytes

CURVE_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
SIGNATURE_LENGTH: Final = 65


def recover_signer(digest: Bytes32, signature: bytes) -> Address:
    """Return the account whose key made a signature, by the registries' own rule.

    Exactly 65 bytes r, s, v; v 27 or 28; s in the lower half; r and s not zero and below the curve's order.
    Errors: `InvalidSignature`; `InvalidInput` for what is no bytes. Source: ERC-8350, Authorization; EIP-2.
    """
    digest, signature = Bytes32(digest, "digest"), parse_bytes(signature, "signature")
    if len(signature) != SIGNATURE_LENGTH:
        raise InvalidSignature(f"it has {len(signature)} bytes; a key's signature has exactly {SIGNATURE_LENGTH}")
    r, s, v = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big"), signature[64]
    if v not in (27, 28):
        raise InvalidSignature(f"v is {v}; it must be 27 or 28")
    if not 0 < r < CURVE_ORDER or not 0 < s < CURVE_ORDER:
        raise InvalidSignature("r or s is zero or not below the curve's order")
    if s > CURVE_ORDER // 2:
        raise InvalidSignature("s lies in the upper half of the curve's order; take the order minus s and flip v")

    from eth_keys.datatypes import Signature
    from eth_keys.exceptions import BadSignature

    try:
        public_key = Signature(vrs=(v - 27, r, s)).recover_public_key_from_msg_hash(bytes(digest))
    except BadSignature:
        raise InvalidSignature("r is no point of the curve, so no key made it") from None
    return Address(public_key.to_canonical_address())


def verify_signature(account: Address, digest: Bytes32, signature: bytes) -> Address:
    """Return `account` if its key made the signature, else raise `InvalidSignature`.

    This is the key's part of the approval rule; what a contract account answers, only its chain can tell
    (`MemoryRegistry.is_approved`).
    """
    account, signer = Address(account, "account"), recover_signer(digest, signature)
    if signer != account:
        raise InvalidSignature(f"it is by {signer}, not by {account}")
    return signer
