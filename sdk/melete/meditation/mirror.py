"""Mirroring a subject's head into an ERC-8004 identity registry, as metadata of its agent.

What is written is a copy: whoever relies on it reads the meditation registry that it names. The identity registry is
used by its public interface alone: `setMetadata(uint256,string,bytes)`, `getMetadata(uint256,string)`, `ownerOf`.

Source: Agent Meditation, Backwards Compatibility; ERC-8004, Identity Registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import canonicalize, load_json
from melete.chain.connection import call, check_chain, require_code
from melete.chain.reverts import compute_selector
from melete.chain.transactions import Receipt, Sender, require_sender, simulate, transact
from melete.errors import (
    ContractError,
    CrossCheckFailed,
    EmptyRevert,
    InputError,
    InvalidInput,
    InvalidJson,
    NotARegistry,
)
from melete.meditation.registry import MeditationRegistry, Subject
from melete.primitives import Address, Bytes32, parse_sequence, uint

if TYPE_CHECKING:
    from web3 import Web3

#: The key that the mirror is written under unless another one is chosen.
METADATA_KEY: Final = "amm.head"
FORMAT: Final = "amm.head/1"
LARGEST_METADATA: Final = 4096


class MirrorDiffers(CrossCheckFailed):
    """A mirror that says something else than the registry that it copies, or nothing that can be read."""

    sentence = (
        "{view:plain}: expected was {computed}, the mirror has {answered}; "
        "do not rely on it: ask the registry itself, and let the agent's owner write the mirror anew."
    )


@dataclass(frozen=True, slots=True)
class MirroredHead:
    """A subject's head as it is mirrored: where it was read, and what it said. Times are seconds, 0 is never."""

    chain_id: int
    registry: Address
    subject: Address
    state_version: int
    root: Bytes32
    last_completed_at: tuple[int, int, int, int]

    @classmethod
    def of(cls, registry: MeditationRegistry, subject: Subject) -> MirroredHead:
        """Return what a subject's mirror has to say now."""
        a, b, c, d = (checkpoint.last_completed_at for checkpoint in subject.checkpoints)
        head = subject.head
        return cls(registry.chain_id, registry.address, subject.address, head.state_version, head.root, (a, b, c, d))

    def to_bytes(self) -> bytes:
        """Return the metadata: canonical JSON, with numbers of 64 bits as text."""
        return canonicalize(
            {
                "format": FORMAT,
                "chainId": str(self.chain_id),
                "registry": str(self.registry),
                "subject": str(self.subject),
                "stateVersion": str(self.state_version),
                "root": str(self.root),
                "lastCompletedAt": list(self.last_completed_at),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> MirroredHead:
        """Return the head in metadata. Errors: `InvalidJson`, `InvalidInput` for what `to_bytes` never gives."""
        if len(data) > LARGEST_METADATA:
            raise InvalidInput("metadata", len(data), f"at most {LARGEST_METADATA} bytes")
        document = load_json(data)
        names = {"format", "chainId", "registry", "subject", "stateVersion", "root", "lastCompletedAt"}
        if not isinstance(document, dict) or set(document) != names or document["format"] != FORMAT:
            raise InvalidJson("", f"it is no mirrored head of {FORMAT}")
        times: Any = document["lastCompletedAt"]
        if not isinstance(times, list) or len(times) != 4:
            raise InvalidJson("/lastCompletedAt", "it must be four times, one for each layer")
        a, b, c, d = (uint(time, 48, "lastCompletedAt") for time in times)
        return cls(
            parse_sequence(document["chainId"], "chainId"),
            Address(str(document["registry"]), "registry"),
            Address(str(document["subject"]), "subject"),
            parse_sequence(document["stateVersion"], "stateVersion"),
            Bytes32(str(document["root"]), "root"),
            (a, b, c, d),
        )


class IdentityMirror:
    """The metadata of one agent in an ERC-8004 identity registry.

    Errors of the constructor: `NodeUnreachable`, `NoContract`, `NotARegistry`; `InvalidInput` for an agent that the
    registry does not know.
    """

    def __init__(
        self, w3: Web3, address: Address | str, agent_id: int, *, sender: Sender | None = None, key: str = METADATA_KEY
    ) -> None:
        self.w3 = w3
        self.address = Address(address, "identity registry")
        self.agent_id = uint(agent_id, 256, "agentId")
        self.sender = sender
        self.key = key
        self.chain_id = check_chain(w3, None)
        require_code(w3, self.address)
        self.owner = self._owner()

    def load(self) -> MirroredHead | None:
        """Return the mirrored head, or None where nothing is mirrored. Errors: as `MirroredHead.from_bytes`."""
        data = self._answer("getMetadata", "(uint256,string)", [self.agent_id, self.key], "bytes")
        return MirroredHead.from_bytes(data) if data else None

    def write(self, registry: MeditationRegistry, subject: Subject) -> Receipt | None:
        """Mirror a subject's head, and return the receipt; None when the mirror says it already.

        Errors: `InvalidInput` for a subject that does not own the agent, whose mirror never holds; the identity
        registry's, before anything is sent.
        """
        if subject.address != self.owner:
            rule = f"the agent's owner, {self.owner}: whoever reads another's head in its mirror has to refuse it"
            raise InvalidInput("subject", subject.address, rule)
        head = MirroredHead.of(registry, subject)
        if self._kept() == head.to_bytes():
            return None
        sender = require_sender(self.sender, "identity mirror")
        data = _call("setMetadata", "(uint256,string,bytes)", [self.agent_id, self.key, head.to_bytes()])
        simulate(self.w3, sender, self.address, data)
        return transact(self.w3, sender, self.chain_id, self.address, data)

    def verify(self, registry: MeditationRegistry) -> MirroredHead:
        """Return the mirrored head if it is the registry's own now, and its subject owns the agent.

        Anyone may copy anyone's head, so the owner is what ties agent and subject. Errors: `MirrorDiffers`, which is a
        `CrossCheckFailed`, where one of them is not so, or nothing is mirrored that is a head; `NotEnrolled`.
        """
        try:
            found = self.load()
        except InputError as error:
            raise MirrorDiffers(self.key, "a mirrored head", str(error)) from None
        if found is None:
            raise MirrorDiffers(self.key, "a mirrored head", None)
        for member, here, there in (
            ("subject", self.owner, found.subject),
            ("chainId", registry.chain_id, found.chain_id),
            ("registry", registry.address, found.registry),
        ):
            if here != there:
                raise MirrorDiffers(f"{self.key} {member}", here, there)
        expected = MirroredHead.of(registry, registry.load_subject(found.subject))
        for member in ("state_version", "root", "last_completed_at"):
            mirrored, registered = getattr(found, member), getattr(expected, member)
            if mirrored != registered:
                raise MirrorDiffers(f"{self.key} {member}", str(registered), str(mirrored))
        return found

    def _kept(self) -> bytes:
        return bytes(self._answer("getMetadata", "(uint256,string)", [self.agent_id, self.key], "bytes"))

    def _owner(self) -> Address:
        try:
            owner = self._answer("ownerOf", "(uint256)", [self.agent_id], "address")
        except EmptyRevert as error:
            raise NotARegistry(self.address, "ownerOf", str(error)) from error
        except ContractError as error:
            raise InvalidInput(
                "agentId", self.agent_id, f"an agent of {self.address}, which answers: {error}"
            ) from error
        return Address(bytes.fromhex(owner[2:]))

    def _answer(self, view: str, types: str, arguments: list[Any], kind: str) -> Any:
        from eth_abi.abi import decode
        from eth_abi.exceptions import DecodingError

        answer = call(self.w3, self.address, _call(view, types, arguments))
        try:
            return decode([kind], answer)[0]
        except (DecodingError, OverflowError):
            raise NotARegistry(self.address, view, answer) from None


def _call(function: str, types: str, arguments: list[Any]) -> bytes:
    from eth_abi.abi import encode

    return compute_selector(function + types) + encode(types[1:-1].split(","), arguments)
