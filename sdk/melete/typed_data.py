"""EIP-712: domains as values, and the digest that is signed.

    digest = keccak256(0x1901 || domain separator || struct hash)

A struct hash is keccak256 over its type hash and its members as whole words; each stands beside its struct
(`melete.memory.delta`, `melete.memory.space`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from melete.errors import InvalidInput
from melete.primitives import Address, Bytes32, is_utf8, keccak256, uint, uint_word

EIP712_DOMAIN_TYPE: Final = "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
EIP712_DOMAIN_TYPEHASH: Final = keccak256(EIP712_DOMAIN_TYPE.encode())


@dataclass(frozen=True)
class Domain:
    """The registry that a signature is for. A value: two equal domains have one separator, for ever.

    `chain_id` is a uint256, `verifying_contract` the registry's address.
    Errors: `InvalidInput`, naming the member.
    """

    name: str
    version: str
    chain_id: int
    verifying_contract: Address

    def __post_init__(self) -> None:
        for name in ("name", "version"):
            value = getattr(self, name)
            if not isinstance(value, str) or not is_utf8(value):
                raise InvalidInput(name, value, "text that UTF-8 can carry")
        uint(self.chain_id, 256, "chainId")
        object.__setattr__(self, "verifying_contract", Address(self.verifying_contract, "verifyingContract"))

    @cached_property
    def separator(self) -> Bytes32:
        """The domain separator. Source: EIP-712."""
        return keccak256(
            EIP712_DOMAIN_TYPEHASH
            + keccak256(self.name.encode())
            + keccak256(self.version.encode())
            + uint_word(self.chain_id)
            + self.verifying_contract.word
        )

    def digest(self, struct_hash: Bytes32) -> Bytes32:
        """Return the digest that is signed for a struct hash under this domain."""
        return keccak256(b"\x19\x01" + self.separator + Bytes32(struct_hash, "struct_hash"))
