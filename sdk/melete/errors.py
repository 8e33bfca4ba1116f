"""Everything that can go wrong, as one tree.

    MeleteError
    ├── InvalidInput            a value that breaks a rule, refused before anything is hashed or sent
    │   ├── InvalidJson         ... inside a JSON document, with the pointer to the place
    │   └── InvalidSignature    ... signature bytes that the registries would not even recover
    ├── ConfigurationError      a setting is missing, unknown or contradicts another
    ├── VerificationError       something was checked, and does not hold
    │   ├── BrokenHistory       a transition that does not follow from the one before
    │   ├── WitnessMismatch     a witness that does not open its commitment
    │   ├── CrossCheckFailed    SDK and registry compute different hashes
    │   ├── CodeMismatch        an address runs other code than expected
    │   └── ContractError       a call reverts, or would
    │       ├── ZeroSpaceId ... InvalidAuthorization   the errors of ERC-8350, by their names
    │       ├── TransitionAlreadyExists, SignatureError, SignatureErrorS   other registries' errors
    │       ├── ContractPanic, RevertReason            Solidity's own
    │       └── EmptyRevert, UnknownRevert             no data, or data of no known error
    └── CouldNotTell            the question stays open: nothing was learned about what was asked
        ├── NodeUnreachable, NodeRefused               no node, or one that answers with an error
        ├── WrongChain, NoContract, NotARegistry       a node, but not of this chain; an address without code, or
        │                                              with code of something else
        ├── NotMined                                   sent, and not seen in a block in time
        └── MissingExtra, MissingFile                  a part of the package or a file that is not here

A Solidity error and its class share name and arguments. Values are attributes; the message is one sentence that
holds them and says what to do. Only the command line turns classes into exit codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: A message shows at most this many characters of one value.
LONGEST_SHOWN = 120


def show(value: object) -> str:
    """Return how a message shows a value: bytes as hex, text quoted and escaped, all of bounded length."""
    if isinstance(value, bytes | bytearray):
        text = "0x" + value[: LONGEST_SHOWN // 2 + 1].hex()
    elif isinstance(value, str):
        text = ascii(value[: LONGEST_SHOWN + 1])
    elif isinstance(value, int) and value.bit_length() > LONGEST_SHOWN * 3:
        return f"an integer of {value.bit_length()} bits"
    elif isinstance(value, int | float | bool) or value is None:
        text = str(value)
    else:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_SHOWN + 2 else text[:LONGEST_SHOWN] + "..."


class MeleteError(Exception):
    """The root of all errors of ours."""

    #: The message, with `{attribute}` where a value stands.
    sentence: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.sentence.format(**{name: _Shown(value) for name, value in vars(self).items()})

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), dict(vars(self))))


class _Shown:
    """A value inside a sentence: `{name}` shows it safely, `{name:plain}` prints text of ours as it is."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __format__(self, spec: str) -> str:
        return str(self.value) if spec == "plain" else show(self.value)


def _rebuild(cls: type[MeleteError], values: dict[str, object]) -> MeleteError:
    error = cls.__new__(cls)
    error.__dict__.update(values)
    return error


# Input


@dataclass(eq=False)
class InvalidInput(MeleteError, ValueError):
    """`field` holds `value`, which breaks `rule`."""

    field: str
    value: object
    rule: str
    sentence = "{field:plain}: {value} is refused; it must be {rule:plain}."


@dataclass(eq=False)
class InvalidJson(MeleteError, ValueError):
    """A JSON document breaks a rule at `pointer` (RFC 6901; the empty pointer is the whole document)."""

    pointer: str
    rule: str
    sentence = "JSON at {pointer}: {rule:plain}."


@dataclass(eq=False)
class InvalidSignature(MeleteError, ValueError):
    """Signature bytes that no registry would recover, or that are not the expected account's."""

    reason: str
    sentence = "signature refused: {reason:plain}."


@dataclass(eq=False)
class ConfigurationError(MeleteError):
    """A setting is missing, unknown or contradicts another."""

    reason: str
    sentence = "{reason:plain}."


# Verification


class VerificationError(MeleteError):
    """Something was checked, and does not hold."""


@dataclass(eq=False)
class BrokenHistory(VerificationError):
    """The first transition that does not follow: where it was met, and which rule it breaks.

    `sequence` is the one that was due, `rule` one of `melete.memory.history.RULES`.
    """

    sequence: int
    rule: str
    expected: object
    received: object
    sentence = (
        "history is broken at sequence {sequence}: {rule:plain} should be {expected} and is {received}; "
        "fetch the events again from another node before you conclude that the history was altered."
    )


@dataclass(eq=False)
class WitnessMismatch(VerificationError):
    """The witness does not open the commitment named `commitment`."""

    commitment: str
    expected: object
    received: object
    sentence = (
        "the witness does not open {commitment:plain}: committed was {expected}, the witness gives {received}; "
        "its bytes, salt or profile are not those that were committed."
    )


@dataclass(eq=False)
class CrossCheckFailed(VerificationError):
    """The registry's view and the SDK give different values for the same input."""

    view: str
    computed: object
    answered: object
    sentence = (
        "{view:plain}: the SDK computes {computed}, the registry answers {answered}; "
        "do not sign anything for it: it is another contract, or runs on another chain than the node says."
    )


@dataclass(eq=False)
class CodeMismatch(VerificationError):
    """The code at `address` hashes to `received`."""

    address: object
    expected: object
    received: object
    sentence = "{address:plain} runs code with hash {received}, expected was {expected}; check address and chain."


# Contract errors


class ContractError(VerificationError):
    """A call reverts, or would. `signature` is the ABI signature of the Solidity error, where it has one."""

    signature: ClassVar[str] = ""


@dataclass(eq=False)
class ZeroSpaceId(ContractError):
    signature = "ZeroSpaceId()"
    sentence = "the space id is zero; derive it from controller and salt."


@dataclass(eq=False)
class ZeroAddress(ContractError):
    signature = "ZeroAddress()"
    sentence = "a controller or authorizer is the zero address; nobody could ever act for it."


@dataclass(eq=False)
class InvalidSpaceId(ContractError):
    expected: bytes
    received: bytes
    signature = "InvalidSpaceId(bytes32,bytes32)"
    sentence = "controller and salt derive space id {expected}, not {received}; check all three."


@dataclass(eq=False)
class SpaceAlreadyRegistered(ContractError):
    signature = "SpaceAlreadyRegistered()"
    sentence = "the space is registered already; take another salt for a new one."


@dataclass(eq=False)
class UnknownSpace(ContractError):
    signature = "UnknownSpace()"
    sentence = "no such space is registered here; check the id, the registry and the chain."


@dataclass(eq=False)
class ZeroDeltaCommitment(ContractError):
    signature = "ZeroDeltaCommitment()"
    sentence = "deltaCommitment is zero; a delta has to commit to a payload."


@dataclass(eq=False)
class ZeroProfileId(ContractError):
    signature = "ZeroProfileId()"
    sentence = "profileId is zero; name the profile that says what the payload means."


@dataclass(eq=False)
class BadSequence(ContractError):
    expected: int
    received: int
    signature = "BadSequence(uint64,uint64)"
    sentence = "sequence {expected} is next, not {received}; rebuild the delta on the current head."


@dataclass(eq=False)
class BadPreviousState(ContractError):
    expected: bytes
    received: bytes
    signature = "BadPreviousState(bytes32,bytes32)"
    sentence = "the current state root is {expected}, not {received}; rebuild the delta on the current head."


@dataclass(eq=False)
class InvalidAuthorization(ContractError):
    signature = "InvalidAuthorization()"
    sentence = (
        "the account whose approval is needed did not give it; "
        "check who signs, over which registry and chain, and that the nonce or head has not moved."
    )


@dataclass(eq=False)
class TransitionAlreadyExists(ContractError):
    """Of other ERC-8350 registries; ours cannot raise it."""

    signature = "TransitionAlreadyExists()"
    sentence = "the registry holds this transition already."


@dataclass(eq=False)
class SignatureError(ContractError):
    """`InvalidSignature()` of other registries; the name alone belongs to bytes refused on this side."""

    signature = "InvalidSignature()"
    sentence = "the registry could not recover a signer from the signature; sign the digest again."


@dataclass(eq=False)
class SignatureErrorS(ContractError):
    """`InvalidSignatureS()` of other registries."""

    signature = "InvalidSignatureS()"
    sentence = "the signature's s lies in the upper half; make it canonical."


@dataclass(eq=False)
class InvalidShortString(ContractError):
    """Of OpenZeppelin's ShortStrings, in the registry's ABI; its names are short, so it cannot occur."""

    signature = "InvalidShortString()"
    sentence = "the contract was built with a name that is stored wrongly."


@dataclass(eq=False)
class StringTooLong(ContractError):
    """Of OpenZeppelin's ShortStrings, in the registry's ABI; its names are short, so it cannot occur."""

    str: str
    signature = "StringTooLong(string)"
    sentence = "the contract was built with a name that is too long: {str}."


@dataclass(eq=False)
class ContractPanic(ContractError):
    """Solidity's `Panic(uint256)`."""

    code: int
    signature = "Panic(uint256)"
    sentence = "the contract stopped on an internal check, panic code {code}; this is a fault in it, please report it."


@dataclass(eq=False)
class RevertReason(ContractError):
    """Solidity's `Error(string)`."""

    reason: str
    signature = "Error(string)"
    sentence = "the contract refused: {reason}."


@dataclass(eq=False)
class EmptyRevert(ContractError):
    """The call failed and said nothing."""

    sentence = (
        "the call failed without saying why: the address may be another contract, "
        "or the transaction ran out of gas; check the address and raise the gas limit."
    )


@dataclass(eq=False)
class UnknownRevert(ContractError):
    """Revert data of no known error."""

    data: bytes
    sentence = "the contract refused with {data}, which is no error known here; check the address."


# Could not tell


class CouldNotTell(MeleteError):
    """The question stays open."""


@dataclass(eq=False)
class NodeUnreachable(CouldNotTell):
    url: str
    reason: str
    sentence = "no node answers at {url:plain} ({reason:plain}); start one, or give another --rpc-url."


@dataclass(eq=False)
class NodeRefused(CouldNotTell):
    """The node answered a request with an error that is no revert."""

    request: str
    reason: str
    sentence = "the node refused {request:plain}: {reason}."


@dataclass(eq=False)
class WrongChain(CouldNotTell):
    expected: int
    received: int
    sentence = "the node serves chain {received}, expected was chain {expected}; give the --rpc-url of the right one."


@dataclass(eq=False)
class NoContract(CouldNotTell):
    address: object
    chain_id: int
    sentence = "there is no code at {address:plain} on chain {chain_id}; check the address and the chain."


@dataclass(eq=False)
class NotARegistry(CouldNotTell):
    """The code at `address` does not answer as an ERC-8350 registry: `view` gave `answer`."""

    address: object
    view: str
    answer: object
    sentence = (
        "{address:plain} does not answer as an Agent Memory State registry ({view:plain} gave {answer}); "
        "check the address and the chain."
    )


@dataclass(eq=False)
class NotMined(CouldNotTell):
    transaction_hash: bytes
    seconds: float
    sentence = (
        "transaction {transaction_hash} was not seen in a block within {seconds} s; "
        "it may still be: look at the head before you send it again."
    )


@dataclass(eq=False)
class MissingExtra(CouldNotTell):
    extra: str
    need: str
    sentence = "{need:plain} needs more than is installed; run: pip install 'melete[{extra:plain}]'."


@dataclass(eq=False)
class MissingFile(CouldNotTell):
    path: str
    reason: str
    sentence = "{path}: {reason:plain}."
