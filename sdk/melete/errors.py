"""Everything that can go wrong, as one tree.

    MeleteError
    ├── InputError              given values are refused before anything is hashed or sent
    │   ├── InvalidInput        a value that breaks a rule
    │   ├── InvalidJson         a JSON document that breaks one, with the pointer to the place
    │   ├── InvalidSignature    signature bytes that the registries would not even recover
    │   └── PlaceTaken          a witness where another one is kept already
    ├── ConfigurationError      a setting is missing, unknown or contradicts another
    ├── VerificationError       something was checked, and does not hold
    │   ├── BrokenHistory       a transition that does not follow from the one before
    │   ├── BrokenBundle        a disclosed document whose parts contradict each other
    │   ├── WitnessMismatch     a witness that does not open its commitment
    │   ├── CrossCheckFailed    SDK and registry compute different hashes
    │   ├── CodeMismatch        an address runs other code than expected
    │   ├── UnsafeFile          others can read a file that holds secrets
    │   ├── NotIncluded         an operation that its proof does not show in its batch
    │   ├── NotAuthentic        encrypted bytes that were changed, or moved from another place
    │   └── ContractError       a call reverts, or would
    │       ├── ZeroSpaceId ... InvalidAuthorization   the errors of ERC-8350, by their names
    │       ├── NotEnrolled ... BadRestoredRoot        the errors of Agent Meditation, by theirs
    │       ├── InvalidRegistry ... NoDescriptor       the errors of the optional records, by theirs
    │       ├── TransitionAlreadyExists, SignatureError, SignatureErrorS   other registries' errors
    │       ├── InvalidShortString, StringTooLong      OpenZeppelin's, in our ABIs and never raised
    │       ├── ContractPanic, RevertReason            Solidity's own
    │       ├── EmptyRevert, UnknownRevert             no data, or data of no known error
    │       └── ExecutionHalted                        no revert at all: out of gas, or an instruction that is none
    └── CouldNotTell            the question stays open: nothing was learned about what was asked
        ├── NodeUnreachable, NodeRefused               no node, or one that answers with an error
        ├── WrongChain, NoContract, NotARegistry       a node, but not of this chain; an address without code, or
        │                                              with code of something else
        ├── NotARecord                                 code that is no optional record, or another registry's
        ├── NotMined                                   sent, and not seen in a block in time
        ├── OutboxBusy                                 another process acts on the outbox
        ├── UnknownProfile                             a payload whose meaning nobody registered
        ├── WitnessMissing, WitnessErased              nothing to open a commitment with, or nothing any more
        ├── WrongKey                                   a key that does not fit
        ├── StoreUnreadable, StoreNotWritten, StoreBusy   a store that is none of ours, full, or in use
        ├── NotScrubbed                                erased, and perhaps not yet gone from the disk
        ├── UnusableLogs, ChainReorganized             logs that are not the chain's, or no longer are
        ├── UnusableProof                              a storage proof of something else, or of nothing
        └── MissingExtra, MissingFile                  a part of the package or a file that is not here

A Solidity error and its class share name and arguments. Values are attributes; the message is one sentence that
holds them and says what to do. Only the command line turns classes into exit codes.
"""

from __future__ import annotations

from typing import ClassVar, dataclass_transform

#: What stands in an error for a value that it may not hold.
PLACEHOLDERS = ("not shown", "a value that is not shown")
#: A message shows at most this many characters of one value.
LONGEST_SHOWN = 120


def show(value: object) -> str:
    """Return how a message shows a value: bytes as hex, text quoted and escaped, all of bounded length."""
    if type(value).__module__ == "melete.primitives":
        return str(value)  # an address or a word: its text is the standard's own
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


@dataclass_transform(eq_default=False)
class MeleteError(Exception):
    """The root of all errors of ours.

    What a class annotates are its values, given in that order or by name, as with a dataclass; made here, because
    a hundred generated constructors would take longer to import than a pack to verify.
    """

    #: The message, with `{attribute}` where a value stands.
    sentence: ClassVar[str] = ""
    #: The names of the values and their types as written, in order.
    members: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__annotations__  # of this class alone
        cls.members = {**cls.members, **{name: kind for name, kind in own.items() if not kind.startswith("ClassVar")}}

    def __init__(self, *values: object, **named: object) -> None:
        super().__init__(*values)
        given = dict(zip(self.members, values, strict=False), **named)
        if len(values) + len(named) != len(self.members) or given.keys() != self.members.keys():
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.members) or 'nothing'}")
        self.__dict__.update(given)

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


class InputError(MeleteError, ValueError):
    """Given values are refused before anything is hashed or sent."""


class InvalidInput(InputError):
    """`field` holds `value`, which breaks `rule`."""

    field: str
    value: object
    rule: str
    sentence = "{field:plain}: {value} is refused; it must be {rule:plain}."

    def __str__(self) -> str:
        # A placeholder must not read as if it were what was given.
        if self.value is None and "not shown" in self.rule:
            return f"{self.field} is refused; it must be {self.rule}."
        if isinstance(self.value, str) and self.value in PLACEHOLDERS:
            return f"{self.field} is refused (it is not shown); it must be {self.rule}."
        return super().__str__()


class InvalidJson(InputError):
    """A JSON document breaks a rule at `pointer` (RFC 6901; the empty pointer is the whole document)."""

    pointer: str
    rule: str
    sentence = "JSON at {pointer}: {rule:plain}."


class InvalidSignature(InputError):
    """Signature bytes that no registry would recover, or that are not the expected account's."""

    reason: str
    sentence = "signature refused: {reason:plain}."


class PlaceTaken(InputError):
    """A witness store already keeps another witness at this place."""

    kind: str
    scope: bytes
    number: int
    sentence = (
        "another witness is kept for {kind} {number} of {scope} already, and stays; "
        "move that one first if its place was taken by somebody else's."
    )


class ConfigurationError(MeleteError):
    """A setting is missing, unknown or contradicts another."""

    reason: str
    sentence = "{reason:plain}."


# Verification


class VerificationError(MeleteError):
    """Something was checked, and does not hold."""


class BrokenHistory(VerificationError):
    """The first transition that does not follow: where it was met, and which rule it breaks.

    `sequence` is the one that was due, `rule` one of `melete.memory.history.RULES`, or of those that
    `melete.memory.forensics` and `melete.memory.proofs` add.
    """

    sequence: int
    rule: str
    expected: object
    received: object
    sentence = (
        "history is broken at sequence {sequence}: {rule:plain} should be {expected} and is {received}; "
        "fetch the events again from another node before you conclude that the history was altered."
    )


class BrokenBundle(VerificationError):
    """The first thing in a bundle that does not hold.

    `entry` is the sequence that is due where the fault lies, None outside the entries; `member` its JSON pointer;
    `rule` one of `RULES`, or of those that `melete.memory.bundle_anchoring` adds. No value is ever a secret.
    """

    entry: object
    member: str
    rule: str
    expected: object
    received: object
    sentence = (
        "the bundle does not hold at {member} (entry {entry}): {rule:plain} should be {expected} and is {received}; "
        "do not rely on it, and ask whoever made it for the one that was granted."
    )


class WitnessMismatch(VerificationError):
    """The witness does not open the commitment named `commitment`."""

    commitment: str
    expected: object
    received: object
    sentence = (
        "the witness does not open {commitment:plain}: committed was {expected}, the witness gives {received}; "
        "its bytes, salt or profile are not those that were committed."
    )


class CrossCheckFailed(VerificationError):
    """The registry's view and the SDK give different values for the same input."""

    view: str
    computed: object
    answered: object
    sentence = (
        "{view:plain}: the SDK computes {computed}, the registry answers {answered}; "
        "do not sign anything for it: it is another contract, or runs on another chain than the node says."
    )


class CodeMismatch(VerificationError):
    """The code at `address` hashes to `received`."""

    address: object
    expected: object
    received: object
    sentence = "{address} runs code with hash {received}, expected was {expected}; check address and chain."


class NotIncluded(VerificationError):
    """A proof does not show an operation in a batch: `what` (count, index, siblings or root) is not as it must be."""

    what: str
    expected: object
    received: object
    sentence = (
        "the proof does not show the operation in the batch: {what} should be {expected} and is {received}; "
        "operation, salt, index and siblings must be those of the batch as it was committed."
    )


class NotAuthentic(VerificationError):
    """`what` was encrypted, and does not decrypt under the key that it was encrypted with."""

    what: str
    sentence = (
        "{what} does not decrypt under its own key: its bytes were changed, or moved from another place; "
        "take it from a backup."
    )


class UnsafeFile(VerificationError):
    """Others can read a file that holds secrets."""

    path: str
    mode: str
    sentence = "{path} has mode {mode}, so others can read it; run: chmod 600."


# Contract errors


class ContractError(VerificationError):
    """A call reverts, or would. `signature` is the ABI signature of the Solidity error, where it has one."""

    signature: ClassVar[str] = ""


class ZeroSpaceId(ContractError):
    signature = "ZeroSpaceId()"
    sentence = "the space id is zero; derive it from controller and salt."


class ZeroAddress(ContractError):
    signature = "ZeroAddress()"
    sentence = "a controller or authorizer is the zero address; nobody could ever act for it."


class InvalidSpaceId(ContractError):
    expected: bytes
    received: bytes
    signature = "InvalidSpaceId(bytes32,bytes32)"
    sentence = "controller and salt derive space id {expected}, not {received}; check all three."


class SpaceAlreadyRegistered(ContractError):
    signature = "SpaceAlreadyRegistered()"
    sentence = "the space is registered already; take another salt for a new one."


class UnknownSpace(ContractError):
    signature = "UnknownSpace()"
    sentence = "no such space is registered here; check the id, the registry and the chain."


class ZeroDeltaCommitment(ContractError):
    signature = "ZeroDeltaCommitment()"
    sentence = "deltaCommitment is zero; a delta has to commit to a payload."


class ZeroProfileId(ContractError):
    signature = "ZeroProfileId()"
    sentence = "profileId is zero; name the profile that says what the payload means."


class BadSequence(ContractError):
    expected: int
    received: int
    signature = "BadSequence(uint64,uint64)"
    sentence = "sequence {expected} is next, not {received}; rebuild the delta on the current head."


class BadPreviousState(ContractError):
    expected: bytes
    received: bytes
    signature = "BadPreviousState(bytes32,bytes32)"
    sentence = "the current state root is {expected}, not {received}; rebuild the delta on the current head."


class InvalidAuthorization(ContractError):
    signature = "InvalidAuthorization()"
    sentence = (
        "the account whose approval is needed did not give it; "
        "check who signs, over which registry and chain, and that the nonce or head has not moved."
    )


class TransitionAlreadyExists(ContractError):
    """Of other ERC-8350 registries; ours cannot raise it."""

    signature = "TransitionAlreadyExists()"
    sentence = "the registry holds this transition already."


class SignatureError(ContractError):
    """`InvalidSignature()` of other registries; the name alone belongs to bytes refused on this side."""

    signature = "InvalidSignature()"
    sentence = "the registry could not recover a signer from the signature; sign the digest again."


class SignatureErrorS(ContractError):
    """`InvalidSignatureS()` of other registries."""

    signature = "InvalidSignatureS()"
    sentence = "the signature's s lies in the upper half; make it canonical."


class InvalidShortString(ContractError):
    """Of OpenZeppelin's ShortStrings, in the registry's ABI; its names are short, so it cannot occur."""

    signature = "InvalidShortString()"
    sentence = "the contract was built with a name that is stored wrongly."


class StringTooLong(ContractError):
    """Of OpenZeppelin's ShortStrings, in the registry's ABI; its names are short, so it cannot occur."""

    str: str
    signature = "StringTooLong(string)"
    sentence = "the contract was built with a name that is too long: {str}."


class ContractPanic(ContractError):
    """Solidity's `Panic(uint256)`."""

    code: int
    signature = "Panic(uint256)"
    sentence = "the contract stopped on an internal check, panic code {code}; this is a fault in it, please report it."


class RevertReason(ContractError):
    """Solidity's `Error(string)`."""

    reason: str
    signature = "Error(string)"
    sentence = "the contract refused: {reason}."


class EmptyRevert(ContractError):
    """The call failed and said nothing."""

    sentence = (
        "the call failed without saying why: the address may be another contract, "
        "or the transaction ran out of gas; check the address and raise the gas limit."
    )


class UnknownRevert(ContractError):
    """Revert data of no known error."""

    data: bytes
    sentence = "the contract refused with {data}, which is no error known here; check the address."


class ExecutionHalted(ContractError):
    """The code did not revert: the machine stopped it, and took all gas that it had."""

    reason: str
    sentence = (
        "the code at the address was stopped by the machine ({reason}), which is no revert: "
        "it used up its gas, or holds an instruction that is none; check the address."
    )


# Contract errors of Agent Meditation


class NotEnrolled(ContractError):
    subject: object
    signature = "NotEnrolled(address)"
    sentence = "{subject} is not enrolled here; check the address, the registry and the chain."


class AlreadyEnrolled(ContractError):
    subject: object
    signature = "AlreadyEnrolled(address)"
    sentence = "{subject} is enrolled already; report cycles and set policies instead."


class NotSubject(ContractError):
    expected: object
    received: object
    signature = "NotSubject(address,address)"
    sentence = "only {expected} itself may do this, not {received}."


class NotController(ContractError):
    expected: object
    received: object
    signature = "NotController(address,address)"
    sentence = "only the controller {expected} may do this, not {received}."


class MissingRight(ContractError):
    required: int
    held: int
    signature = "MissingRight(uint8,uint8)"
    sentence = "the controller needs right {required} for this and holds {held}; rights never grow."


class MissingPermission(ContractError):
    required: int
    held: int
    signature = "MissingPermission(uint8,uint8)"
    sentence = "the caller needs one of the permissions {required} and holds {held}; the subject can grant it."


class ControllerCannotSubmit(ContractError):
    controller: object
    signature = "ControllerCannotSubmit(address)"
    sentence = "the controller {controller} never submits records; let the subject or another operator do it."


class InvalidRights(ContractError):
    allowed: int
    received: int
    signature = "InvalidRights(uint8,uint8)"
    sentence = "rights {received} are not within {allowed}; they can only be kept or shrunk."


class ControllerIsSubject(ContractError):
    subject: object
    signature = "ControllerIsSubject(address)"
    sentence = "{subject} cannot be its own controller; name another account, or none."


class RightsWithoutController(ContractError):
    rights: int
    signature = "RightsWithoutController(uint8)"
    sentence = "rights {rights} are given to nobody; name a controller, or give 0."


class InvalidOperator(ContractError):
    operator: object
    signature = "InvalidOperator(address)"
    sentence = "{operator} cannot be an operator: it is the zero address or the subject itself."


class InvalidPermissions(ContractError):
    allowed: int
    received: int
    signature = "InvalidPermissions(uint8,uint8)"
    sentence = "permissions {received} are not within {allowed}."


class InvalidLayer(ContractError):
    layer: int
    signature = "InvalidLayer(uint8)"
    sentence = "there is no layer {layer}; layers are 0 to 3."


class InvalidLayerMask(ContractError):
    layer_mask: int
    signature = "InvalidLayerMask(uint8)"
    sentence = "layer mask {layer_mask} is refused: it names a layer beyond 3, or none where one is needed."


class RequiredNotSupported(ContractError):
    supported_layers: int
    required_layers: int
    signature = "RequiredNotSupported(uint8,uint8)"
    sentence = "required layers {required_layers} are not all within the supported {supported_layers}."


class InvalidTriggers(ContractError):
    allowed_triggers: int
    signature = "InvalidTriggers(uint8)"
    sentence = "allowed triggers {allowed_triggers} are refused: at least one, within 15."


class InvalidDisclosure(ContractError):
    maximum: int
    received: int
    signature = "InvalidDisclosure(uint8,uint8)"
    sentence = "disclosure {received} is refused; the highest level is {maximum}."


class MissingInterval(ContractError):
    layer: int
    signature = "MissingInterval(uint8)"
    sentence = "layer {layer} is required and has no interval; give it a maxInterval in seconds."


class DueByNotInFuture(ContractError):
    current: int
    due_by: int
    signature = "DueByNotInFuture(uint48,uint48)"
    sentence = "dueBy {due_by} must be later than now, {current}."


class CompletedOutsideScope(ContractError):
    layer_mask: int
    completed_layers: int
    signature = "CompletedOutsideScope(uint8,uint8)"
    sentence = "completed layers {completed_layers} are not all within the scope {layer_mask}."


class OpsOutsideScope(ContractError):
    layer_mask: int
    ops_mask: int
    signature = "OpsOutsideScope(uint8,uint16)"
    sentence = "operations {ops_mask} touch a layer outside the scope {layer_mask}."


class InconsistentOutcome(ContractError):
    outcome: int
    layer_mask: int
    completed_layers: int
    signature = "InconsistentOutcome(uint8,uint8,uint8)"
    sentence = "outcome {outcome} contradicts completed layers {completed_layers} of the scope {layer_mask}."


class UnknownPolicyVersion(ContractError):
    current: int
    received: int
    signature = "UnknownPolicyVersion(uint32,uint32)"
    sentence = "there is no policy version {received}; the current one is {current}."


class PolicyNotYetEffective(ContractError):
    effective_from: int
    reported_started_at: int
    signature = "PolicyNotYetEffective(uint48,uint48)"
    sentence = (
        "the cycle started at {reported_started_at}, before its policy took effect at {effective_from}; cite "
        "the version in effect at its start."
    )


class PolicySuperseded(ContractError):
    superseded_at: int
    reported_started_at: int
    signature = "PolicySuperseded(uint48,uint48)"
    sentence = (
        "the cycle started at {reported_started_at}, when a later policy was in effect since "
        "{superseded_at}; cite that one."
    )


class LayersNotSupported(ContractError):
    supported_layers: int
    layer_mask: int
    signature = "LayersNotSupported(uint8,uint8)"
    sentence = "the scope {layer_mask} holds layers that the governing policy does not support ({supported_layers})."


class TriggerNotAllowed(ContractError):
    allowed_triggers: int
    trigger: int
    signature = "TriggerNotAllowed(uint8,uint8)"
    sentence = "the governing policy allows triggers {allowed_triggers}, not trigger {trigger}."


class BadBaseVersion(ContractError):
    expected: int
    received: int
    signature = "BadBaseVersion(uint64,uint64)"
    sentence = (
        "the current state version is {expected}, not {received}; another record came first: see what it changed."
    )


class BadPreRoot(ContractError):
    expected: bytes
    received: bytes
    signature = "BadPreRoot(bytes32,bytes32)"
    sentence = "the current root is {expected}, not {received}; the cycle ran on another state."


class UnscopedLayerChanged(ContractError):
    layer: int
    expected: bytes
    received: bytes
    signature = "UnscopedLayerChanged(uint8,bytes32,bytes32)"
    sentence = "layer {layer} is out of scope and must keep {expected}, not become {received}."


class EndedBeforeStarted(ContractError):
    reported_started_at: int
    reported_ended_at: int
    signature = "EndedBeforeStarted(uint48,uint48)"
    sentence = "the cycle ended at {reported_ended_at}, before it started at {reported_started_at}."


class EndedInFuture(ContractError):
    current: int
    reported_ended_at: int
    signature = "EndedInFuture(uint48,uint48)"
    sentence = "the cycle ended at {reported_ended_at}, later than now, {current}; check the clock."


class CompletionNotLater(ContractError):
    layer: int
    last_completed_at: int
    reported_ended_at: int
    signature = "CompletionNotLater(uint8,uint48,uint48)"
    sentence = (
        "layer {layer} was last completed at {last_completed_at}; a completion at {reported_ended_at} is not later."
    )


class BadRestoresVersion(ContractError):
    current: int
    received: int
    signature = "BadRestoresVersion(uint64,uint64)"
    sentence = "only a version before the current {current} can be restored, not {received}."


class BadRestoredRoot(ContractError):
    expected: bytes
    received: bytes
    signature = "BadRestoredRoot(bytes32,bytes32)"
    sentence = "the restored version has root {expected}; these commitments give {received}."


# Contract errors of the optional records


class InvalidRegistry(ContractError):
    registry: object
    signature = "InvalidRegistry(address)"
    sentence = "{registry} does not answer as a registry with all that the record reads; check address and chain."


class NotSpaceController(ContractError):
    signature = "NotSpaceController()"
    sentence = "only the space's current controller may do this, by a call of its own; send it from that account."


class UnknownTransition(ContractError):
    signature = "UnknownTransition()"
    sentence = "the registry holds no transition of this very delta; give all seven fields as they were committed."


class AlreadyAttested(ContractError):
    signature = "AlreadyAttested()"
    sentence = "the transition has its deletion attestation already, and that one stays."


class EmptyEvidenceCommitment(ContractError):
    signature = "EmptyEvidenceCommitment()"
    sentence = "evidenceCommitment is zero; an attestation has to commit to evidence."


class ZeroAuditor(ContractError):
    signature = "ZeroAuditor()"
    sentence = "the auditor is the zero address; nobody could ever acknowledge the grant."


class ZeroFromSequence(ContractError):
    signature = "ZeroFromSequence()"
    sentence = "the range starts at 0; a space's first transition has number 1."


class EmptyRange(ContractError):
    from_sequence: int
    to_sequence: int
    signature = "EmptyRange(uint64,uint64)"
    sentence = "the range from {from_sequence} to {to_sequence} is empty; both ends belong to it."


class RangeBeyondHead(ContractError):
    head_sequence: int
    to_sequence: int
    signature = "RangeBeyondHead(uint64,uint64)"
    sentence = "the range ends at {to_sequence}, beyond the space's last transition, {head_sequence}."


class ZeroWitnessSetRoot(ContractError):
    signature = "ZeroWitnessSetRoot()"
    sentence = "witnessSetRoot is zero; fold the witnesses of the whole range."


class GrantAlreadyExists(ContractError):
    grant_id: bytes
    signature = "GrantAlreadyExists(bytes32)"
    sentence = "grant {grant_id} was made before, and stays as it is; a range is granted to an auditor once."


class UnknownGrant(ContractError):
    grant_id: bytes
    signature = "UnknownGrant(bytes32)"
    sentence = "no grant {grant_id} was made here; check the id, the contract and the chain."


class GrantOfAnotherSpace(ContractError):
    expected: bytes
    received: bytes
    signature = "GrantOfAnotherSpace(bytes32,bytes32)"
    sentence = "the grant is about space {expected}, not {received}."


class NotAuditor(ContractError):
    expected: object
    received: object
    signature = "NotAuditor(address,address)"
    sentence = "only the auditor {expected} may acknowledge the grant, not {received}."


class GrantAlreadyRevoked(ContractError):
    grant_id: bytes
    signature = "GrantAlreadyRevoked(bytes32)"
    sentence = "grant {grant_id} was revoked, for good."


class GrantAlreadyAcknowledged(ContractError):
    grant_id: bytes
    signature = "GrantAlreadyAcknowledged(bytes32)"
    sentence = "grant {grant_id} was acknowledged before; once is enough."


class WitnessRootMismatch(ContractError):
    expected: bytes
    received: bytes
    signature = "WitnessRootMismatch(bytes32,bytes32)"
    sentence = (
        "granted was the root {expected}, these witnesses fold to {received}; "
        "one is missing, out of order or not the one that was granted."
    )


class EmptyUri(ContractError):
    signature = "EmptyUri()"
    sentence = "the URI is empty; clear the descriptor to take it away."


class UriTooLong(ContractError):
    maximum: int
    received: int
    signature = "UriTooLong(uint256,uint256)"
    sentence = "the URI has {received} bytes; a descriptor holds at most {maximum}."


class InvalidUriCharacter(ContractError):
    index: int
    received: int
    signature = "InvalidUriCharacter(uint256,uint8)"
    sentence = "byte {index} of the URI is {received}; only 33 to 126 may stand there, so percent-encode all else."


class ZeroContentHash(ContractError):
    signature = "ZeroContentHash()"
    sentence = "contentHash is zero; give the keccak256 of what stands at the URI."


class NoDescriptor(ContractError):
    space_id: bytes
    signature = "NoDescriptor(bytes32)"
    sentence = "space {space_id} has no descriptor to clear."


# Could not tell


class CouldNotTell(MeleteError):
    """The question stays open."""


class NodeUnreachable(CouldNotTell):
    url: str
    reason: str
    sentence = "no node answers at {url:plain} ({reason:plain}); start one, or give another --rpc-url."


class NodeRefused(CouldNotTell):
    """The node answered a request with an error that is no revert."""

    request: str
    reason: str
    sentence = "the node refused {request:plain}: {reason}."


class WrongChain(CouldNotTell):
    expected: int
    received: int
    sentence = "the node serves chain {received}, expected was chain {expected}; give the --rpc-url of the right one."


class NoContract(CouldNotTell):
    address: object
    chain_id: int
    sentence = "there is no code at {address} on chain {chain_id}; check the address and the chain."


class NotARegistry(CouldNotTell):
    """The code at `address` does not answer as the kind of registry that was asked for: `view` gave `answer`."""

    address: object
    view: str
    answer: object
    sentence = (
        "{address} does not answer as the registry that was asked for ({view:plain} gave {answer}); "
        "check the address and the chain."
    )


class NotARecord(CouldNotTell):
    """The code at `address` does not answer as the kind of optional record that was asked for."""

    address: object
    view: str
    answer: object
    sentence = (
        "{address} does not answer as the optional record that was asked for, over the same registry "
        "({view} gave {answer}); check the address, the registry and the chain."
    )


class NotMined(CouldNotTell):
    transaction_hash: bytes
    seconds: float
    sentence = (
        "transaction {transaction_hash} was not seen in a block within {seconds} s; "
        "it may still be: look at the head before you send it again."
    )


class OutboxBusy(CouldNotTell):
    path: str
    sentence = "another process is at work on {path}; wait for it, or ask it."


class MissingExtra(CouldNotTell):
    extra: str
    need: str
    sentence = "{need:plain} needs more than is installed; run: pip install 'melete[{extra:plain}]'."


class MissingFile(CouldNotTell):
    path: str
    reason: str
    sentence = "{path}: {reason:plain}."


class UnusableLogs(CouldNotTell):
    """A node's logs are not those of its own chain: orphaned, foreign, repeated, out of order, ill-formed."""

    reason: str
    sentence = "the node's logs cannot be used ({reason}); ask again, or ask another node."


class ChainReorganized(CouldNotTell):
    """What was read of the blocks after `block_number` is no longer the chain's."""

    block_number: int
    sentence = "the chain was reorganized: forget what was read after block {block_number}, and read on from there."


class UnusableProof(CouldNotTell):
    """A storage proof that proves nothing about what was asked."""

    reason: str
    sentence = "the storage proof cannot be used ({reason}); ask for another one, of the same block."


class UnknownProfile(CouldNotTell):
    profile_id: bytes
    sentence = "no profile with id {profile_id} is registered here; register it to read its payloads."


class WitnessMissing(CouldNotTell):
    kind: str
    scope: bytes
    number: int
    sentence = "the store holds no witness for {kind} {number} of {scope}; import it from an export or a backup."


class WitnessErased(CouldNotTell):
    kind: str
    scope: bytes
    number: int
    sentence = "the witness for {kind} {number} of {scope} was erased; it is not put back."


class WrongKey(CouldNotTell):
    what: str
    sentence = "the key does not fit {what}, and nothing was changed; give the key that it is encrypted with now."


class StoreUnreadable(CouldNotTell):
    path: str
    reason: str
    sentence = "{path} cannot be used ({reason}), and nothing in it was changed; give another file, or a backup."


class StoreNotWritten(CouldNotTell):
    path: str
    reason: str
    sentence = "{path} was not written ({reason}), and holds what it held before; make room or get access."


class StoreBusy(CouldNotTell):
    path: str
    reason: str
    sentence = "{path} is in use by others for too long ({reason}); try again."


class NotScrubbed(CouldNotTell):
    """What was asked for is done and kept, but the old bytes may still be in the file or in SQLite's log."""

    path: str
    reason: str
    sentence = (
        "the change to {path} is made, but the bytes that it took away may still be there ({reason}); "
        "they go when the store is opened next, or when the same is asked again."
    )
