"""The client of an Agent Meditation registry, over a plain `web3.Web3`.

Reading is batched: a subject is one request to the node, a thousand statuses are a few. Before anything is sent, the
rules here and a call that is not sent say what the registry would refuse, with its own errors and without gas.

Source: Agent Meditation, Interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from melete.chain.connection import call, check_chain, require_code
from melete.chain.logs import Scanner
from melete.chain.reverts import compute_selector
from melete.chain.rpc import batch, one, to_bytes, to_int
from melete.chain.transactions import Receipt, Sender, require_sender, simulate, transact, transact_for_event
from melete.errors import ContractError, CrossCheckFailed, NotARegistry, NotEnrolled
from melete.meditation.cycle import CycleReport, SubjectState, check_report
from melete.meditation.events import (
    REPORT_TYPE,
    TOPICS,
    ControllerChanged,
    CycleRecorded,
    Demanded,
    DemandWithdrawn,
    Enrolled,
    FloorUpdated,
    LayerCommitmentChanged,
    MeditationEvent,
    OperatorSet,
    PolicyUpdated,
    Pulsed,
    decode_event,
)
from melete.meditation.forecast import Anchors
from melete.meditation.layers import (
    Commitments,
    Layer,
    compute_layer_commitment,
    compute_root,
    to_commitments,
)
from melete.meditation.policy import TIME_BITS, Floor, Policy, Requirements, check_floor, check_policy
from melete.meditation.status import (
    Demand,
    LayerCheckpoint,
    LayerStatus,
    MaintenanceStatus,
    Signal,
    SignalStatus,
)
from melete.primitives import Address, Bytes32, keccak256, uint
from melete.resources import load_artifact

if TYPE_CHECKING:
    from web3 import Web3

POLICY_TYPE: Final = "(bytes32,string,uint8,uint8,uint8,uint8,uint48,uint48,uint48[4])"
FLOOR_TYPE: Final = "(uint8,uint48,uint48[4])"
#: Every function that the client calls: its parameters and what it returns.
FUNCTIONS: Final = {
    "enroll": (f"bytes32[4],{POLICY_TYPE},address,uint8", ""),
    "setOperator": ("address,uint8", ""),
    "revokeOperator": ("address,address", ""),
    "setController": ("address,address,uint8", ""),
    "setPolicy": (f"address,{POLICY_TYPE}", ""),
    "setFloor": (f"address,{FLOOR_TYPE}", ""),
    "demand": ("address,uint8,uint48", ""),
    "withdrawDemand": ("address,uint8", ""),
    "report": (f"address,{REPORT_TYPE}", "uint64"),
    "pulse": ("address,uint48", "uint64"),
    "headOf": ("address", "bool,address,uint8,uint32,uint32,uint64,uint64,bytes32,uint48,uint48,uint48"),
    "checkpointOf": ("address,uint8", "bytes32,uint48,uint48,uint32,uint64"),
    "rootAt": ("address,uint64", "bytes32"),
    # The locator is read as bytes: a subject chooses them, and text that is none must not hide its policy.
    "policyOf": ("address,uint32", POLICY_TYPE.replace("string", "bytes")),
    "policyEffectiveFrom": ("address,uint32", "uint48"),
    "floorOf": ("address", "uint8,uint48,uint48[4]"),
    "demandOf": ("address,uint8", "uint48,uint48"),
    "operatorPermissions": ("address,address", "uint8"),
    "requirementsOf": ("address", "uint8,uint8,uint48,uint48,uint48[4]"),
    "layerStatus": ("address,uint8", "uint8,uint48,bool"),
    "signalStatus": ("address", "uint8,uint48,uint48"),
    "computeRoot": ("bytes32[4]", "bytes32"),
    "computeLayerCommitment": ("uint8,bytes32,bytes32,bytes32", "bytes32"),
    "clock": ("", "uint48"),
    "CLOCK_MODE": ("", "string"),
    "supportsInterface": ("bytes4", "bool"),
}
INTERFACE_ID: Final = bytes.fromhex("9c81b550")
#: The block whose time a transaction is judged by, as far as it is known before.
PENDING: Final = "pending"
#: So many calls are made before their answers are handed on; how many travel together, `melete.chain.rpc` decides.
CALLS_AT_ONCE: Final = 1000

Event = TypeVar("Event", bound=MeditationEvent)


@dataclass(frozen=True, slots=True)
class Head:
    """What is registered about a subject as a whole, with the contract's members; all zeros for an unknown one."""

    enrolled: bool
    controller: Address
    controller_rights: int
    policy_version: int
    floor_version: int
    state_version: int
    record_count: int
    root: Bytes32
    enrolled_at: int
    last_signal_at: int
    next_planned_at: int


@dataclass(frozen=True, slots=True)
class Statuses:
    """How timely a subject's registered maintenance is, layer by layer, and its signal apart."""

    subject: Address
    layers: tuple[LayerStatus, LayerStatus, LayerStatus, LayerStatus]
    signal: Signal


@dataclass(frozen=True, slots=True)
class Subject:
    """All that a registry says of a subject at one block, whose time is `clock`."""

    address: Address
    head: Head
    checkpoints: tuple[LayerCheckpoint, LayerCheckpoint, LayerCheckpoint, LayerCheckpoint]
    policy: Policy
    floor: Floor
    demands: tuple[Demand, Demand, Demand, Demand]
    requirements: Requirements
    statuses: Statuses
    block_number: int
    clock: int

    @property
    def commitments(self) -> Commitments:
        """The registered commitments of the four layers."""
        return to_commitments(checkpoint.commitment for checkpoint in self.checkpoints)

    @property
    def anchors(self) -> Anchors:
        """What a forecast counts from."""
        a, b, c, d = (checkpoint.last_completed_at for checkpoint in self.checkpoints)
        return Anchors(self.head.enrolled_at, (a, b, c, d), self.demands, self.head.last_signal_at)


class MeditationRegistry:
    """One registry on one chain.

    `sender` pays for what is sent and acts as itself: the registry knows direct calls only. Reading needs none.
    Errors of the constructor: `NodeUnreachable`, `WrongChain`, `NoContract`, `NotARegistry`.
    """

    def __init__(
        self,
        w3: Web3,
        address: Address | str,
        *,
        sender: Sender | None = None,
        expected_chain_id: int | None = None,
    ) -> None:
        self.w3 = w3
        self.address = Address(address, "registry")
        self.sender = sender
        self.chain_id = check_chain(w3, expected_chain_id)
        self._identify()

    @classmethod
    def deploy(cls, w3: Web3, sender: Sender) -> tuple[MeditationRegistry, Receipt]:
        """Deploy our registry from the artifact in the package, check every hash, and return its client."""
        chain_id = check_chain(w3, None)
        receipt = transact(w3, sender, chain_id, None, load_artifact("AgentMeditationRegistry").bytecode)
        if receipt.contract_address is None:
            raise NotARegistry(sender.address, "deployment", None)
        registry = cls(w3, receipt.contract_address, sender=sender)
        registry.cross_check()
        return registry, receipt

    # Reading

    def head(self, subject: Address, block: int | str = "latest") -> Head:
        """Return what is registered about a subject as a whole. Errors: `NotEnrolled`."""
        head = to_head(self._view("headOf", Address(subject, "subject"), block=block))
        if not head.enrolled:
            raise NotEnrolled(Address(subject))
        return head

    def load_subject(self, subject: Address, block: int | str = "latest") -> Subject:
        """Return all that is registered about a subject, of one block. Errors: `NotEnrolled`."""
        subject = Address(subject, "subject")
        found = one(self.w3, "eth_getBlockByNumber", [hex(block) if isinstance(block, int) else block, False])
        number, clock = to_int(found["number"]), to_int(found["timestamp"])
        calls: list[tuple[str, tuple[Any, ...]]] = [("headOf", (subject,)), ("floorOf", (subject,))]
        calls += [("requirementsOf", (subject,)), ("signalStatus", (subject,))]
        for view in ("checkpointOf", "demandOf", "layerStatus"):
            calls += [(view, (subject, layer.value)) for layer in Layer]
        answers = self._views(calls, number)
        head = to_head(answers[0])
        if not head.enrolled:
            raise NotEnrolled(subject)
        policy = _policy(self._view("policyOf", subject, head.policy_version, block=number)[0])
        checkpoints, demands = answers[4:8], answers[8:12]
        statuses = Statuses(subject, _four(_layer_status(a) for a in answers[12:16]), _signal(answers[3]))
        return Subject(
            subject,
            head,
            _four(LayerCheckpoint(Bytes32(a[0]), *a[1:]) for a in checkpoints),
            policy,
            Floor(*answers[1]),
            _four(Demand(*a) for a in demands),
            Requirements(*answers[2]),
            statuses,
            number,
            clock,
        )

    def load_statuses(self, subjects: Iterable[Address], block: int | str = "latest") -> Iterator[Statuses]:
        """Yield the statuses of subjects, in order, in batched requests, a thousand calls at a time.

        A subject that is not enrolled is answered as such.
        """
        wanted = [Address(subject, "subject") for subject in subjects]
        each = [("layerStatus", layer.value) for layer in Layer]
        step = CALLS_AT_ONCE // (len(each) + 1)
        for start in range(0, len(wanted), step):
            part = wanted[start : start + step]
            calls: list[tuple[str, tuple[Any, ...]]] = []
            for subject in part:
                calls += [(view, (subject, layer)) for view, layer in each]
                calls.append(("signalStatus", (subject,)))
            answers = iter(self._views(calls, block))
            for subject in part:
                layers = _four(_layer_status(next(answers)) for _ in each)
                yield Statuses(subject, layers, _signal(next(answers)))

    def policies(self, subject: Address, block: int | str = "latest") -> list[tuple[Policy, int]]:
        """Return every policy version of a subject with the time it took effect, the first first."""
        subject = Address(subject, "subject")
        versions = range(1, self.head(subject, block).policy_version + 1)
        calls: list[tuple[str, tuple[Any, ...]]] = []
        for version in versions:
            calls += [("policyOf", (subject, version)), ("policyEffectiveFrom", (subject, version))]
        answers = self._views(calls, block)
        return [
            (_policy(policy[0]), effective[0]) for policy, effective in zip(answers[::2], answers[1::2], strict=True)
        ]

    def load_state(self, subject: Address, *, restores_version: int = 0, block: int | str = "latest") -> SubjectState:
        """Return what the rules need in order to judge a report. Errors: `NotEnrolled`."""
        loaded = self.load_subject(subject, block)
        versions = {loaded.head.state_version, restores_version} - {0}
        a, b, c, d = (checkpoint.last_completed_at for checkpoint in loaded.checkpoints)
        return SubjectState(
            state_version=loaded.head.state_version,
            commitments=loaded.commitments,
            last_completed_at=(a, b, c, d),
            policies=self.policies(subject, loaded.block_number),
            roots={version: self.root_at(subject, version, loaded.block_number) for version in sorted(versions)},
        )

    def root_at(self, subject: Address, state_version: int, block: int | str = "latest") -> Bytes32:
        """Return the root of a state version; zero for what does not exist."""
        arguments = (Address(subject, "subject"), uint(state_version, 64, "stateVersion"))
        return Bytes32(self._view("rootAt", *arguments, block=block)[0])

    def operator_permissions(self, subject: Address, operator: Address, block: int | str = "latest") -> int:
        """Return an operator's permissions; 0 for none."""
        arguments = Address(subject, "subject"), Address(operator, "operator")
        return int(self._view("operatorPermissions", *arguments, block=block)[0])

    def clock(self) -> int:
        """Return the registry's time: that of the latest block, in seconds."""
        return int(self._view("clock")[0])

    def events(
        self,
        subject: Address | None = None,
        from_block: int = 0,
        to_block: int | str = "latest",
        *,
        kinds: Sequence[type[MeditationEvent]] = (),
    ) -> Iterator[MeditationEvent]:
        """Yield the registry's events in order, of one subject or of all, of these kinds or of every one, decoded, as
        a `Scanner` reads them.

        `to_block` is a number or latest, safe or finalized. Errors: those of `Scanner` and of its `events`.
        """
        topics: list[Bytes32 | list[Bytes32] | None] = [[TOPICS[kind] for kind in kinds] or None]
        if subject is not None:
            topics.append(Bytes32(Address(subject, "subject").word))
        scanner: Scanner[MeditationEvent] = Scanner(
            self.w3, self.address, decode_event, start_block=from_block, until=to_block, topics=topics
        )
        return scanner.events()

    def changes_since(self, subject: Address, version: int, from_block: int = 0) -> list[LayerCommitmentChanged]:
        """Return what changed after a state version, layer by layer: why a report made on it is outdated."""
        changed = self.events(subject, from_block, kinds=[LayerCommitmentChanged])
        return [event for event in changed if isinstance(event, LayerCommitmentChanged) and event.version > version]

    # Sending: the sender acts as itself

    def enroll(
        self, baseline: Commitments, policy: Policy, controller: Address | None = None, rights: int = 0
    ) -> Enrolled:
        """Enroll the sender as a subject, and return the event. Errors: those of `enroll`, before anything is sent."""
        return self._send("enroll", _enrollment(baseline, policy, controller, rights), Enrolled)

    def check_enroll(
        self, baseline: Commitments, policy: Policy, controller: Address | None = None, rights: int = 0
    ) -> None:
        """Raise the first error that enrolling the sender would meet; nothing is sent."""
        data = encode_call("enroll", *_enrollment(baseline, policy, controller, rights))
        simulate(self.w3, self._sender, self.address, data, PENDING)

    def set_operator(self, operator: Address, permissions: int) -> OperatorSet:
        """Give an operator of the sender permissions, or take them away with 0."""
        arguments = Address(operator, "operator"), uint(permissions, 8, "permissions")
        return self._send("setOperator", arguments, OperatorSet)

    def revoke_operator(self, subject: Address, operator: Address) -> OperatorSet:
        """Take every permission from an operator, as the subject or as a controller with the right to."""
        arguments = Address(subject, "subject"), Address(operator, "operator")
        return self._send("revokeOperator", arguments, OperatorSet)

    def set_controller(self, subject: Address, new_controller: Address, rights: int) -> ControllerChanged:
        """Appoint, hand on, shrink or give up (zero address, no rights) the controller's position."""
        arguments = Address(subject, "subject"), Address(new_controller, "newController"), uint(rights, 8, "rights")
        return self._send("setController", arguments, ControllerChanged)

    def set_policy(self, subject: Address, policy: Policy) -> PolicyUpdated:
        """Append a policy version."""
        check_policy(policy)
        return self._send("setPolicy", (Address(subject, "subject"), policy_words(policy)), PolicyUpdated)

    def set_floor(self, subject: Address, floor: Floor) -> FloorUpdated:
        """Replace the floor, as a controller with the right to."""
        check_floor(floor)
        words = floor.required_layers, floor.pulse_interval, floor.max_interval
        return self._send("setFloor", (Address(subject, "subject"), words), FloorUpdated)

    def demand(self, subject: Address, layer_mask: int, due_by: int) -> Demanded:
        """Demand that layers be completed by a time, as a controller with the right to."""
        masks = uint(layer_mask, 8, "layerMask"), uint(due_by, TIME_BITS, "dueBy")
        return self._send("demand", (Address(subject, "subject"), *masks), Demanded)

    def withdraw_demand(self, subject: Address, layer_mask: int) -> DemandWithdrawn:
        """Withdraw the demands on layers."""
        arguments = Address(subject, "subject"), uint(layer_mask, 8, "layerMask")
        return self._send("withdrawDemand", arguments, DemandWithdrawn)

    def check(self, subject: Address, report: CycleReport) -> int:
        """Return the mask of the layers that a report would change, or raise the first error it would meet."""
        state = self.load_state(subject, restores_version=report.restores_version)
        changed = check_report(state, report, self._now())
        if self.sender is not None:
            simulate(self.w3, self.sender, self.address, self.report_call(subject, report), PENDING)
        return changed

    def report(self, subject: Address, report: CycleReport) -> CycleRecorded:
        """Register a cycle, and return the event. Errors: those of `report`, before anything is sent."""
        self.check(subject, report)
        return self._send("report", (Address(subject, "subject"), report_words(report)), CycleRecorded)

    def pulse(self, subject: Address, next_planned_at: int = 0) -> Pulsed:
        """Give a sign of activity; it moves no deadline."""
        arguments = Address(subject, "subject"), uint(next_planned_at, TIME_BITS, "nextPlannedAt")
        return self._send("pulse", arguments, Pulsed)

    def report_call(self, subject: Address, report: CycleReport) -> bytes:
        """Return the calldata of `report`."""
        return encode_call("report", Address(subject, "subject"), report_words(report))

    def pulse_call(self, subject: Address, next_planned_at: int = 0) -> bytes:
        """Return the calldata of `pulse`."""
        return encode_call("pulse", Address(subject, "subject"), uint(next_planned_at, TIME_BITS, "nextPlannedAt"))

    # Checking the registry

    def cross_check(self) -> None:
        """Compare what the SDK computes with the registry's views. Errors: `CrossCheckFailed`."""
        words = [Bytes32(bytes([number]) * 32) for number in range(0xA1, 0xA8)]
        expected: list[tuple[str, tuple[Any, ...], Any]] = [
            ("computeRoot", (words[:4],), bytes(compute_root(words[:4]))),
            ("CLOCK_MODE", (), "mode=timestamp"),
            ("supportsInterface", (INTERFACE_ID,), True),
        ]
        for layer in Layer:
            commitment = compute_layer_commitment(layer, words[4], words[5], words[6])
            expected.append(("computeLayerCommitment", (layer.value, *words[4:7]), bytes(commitment)))
        for view, arguments, computed in expected:
            (answered,) = self._view(view, *arguments)
            if answered != computed:
                raise CrossCheckFailed(view, computed, answered)

    # Private

    @property
    def _sender(self) -> Sender:
        return require_sender(self.sender, "registry client")

    def _now(self) -> int:
        """The time that the next block has at least."""
        return to_int(one(self.w3, "eth_getBlockByNumber", [PENDING, False])["timestamp"])

    def _identify(self) -> None:
        """Ask a pure function that every such registry has, with a known answer."""
        words = [keccak256(b"melete %d" % number) for number in range(4)]
        try:
            answer = call(self.w3, self.address, encode_call("computeRoot", words))
        except ContractError as error:
            raise NotARegistry(self.address, "computeRoot", str(error)) from error
        if answer != compute_root(words):
            require_code(self.w3, self.address)
            raise NotARegistry(self.address, "computeRoot", answer)

    def _view(self, view: str, *arguments: Any, block: int | str = "latest") -> tuple[Any, ...]:
        answer = call(self.w3, self.address, encode_call(view, *arguments), block=block)
        return decode_answer(self.address, view, answer)

    def _views(self, calls: Sequence[tuple[str, tuple[Any, ...]]], block: int | str) -> list[tuple[Any, ...]]:
        """The answers to many views, in batched requests; the first error is raised."""
        named = hex(block) if isinstance(block, int) else block
        requests: list[tuple[str, list[Any]]] = [
            ("eth_call", [{"to": str(self.address), "data": "0x" + encode_call(view, *arguments).hex()}, named])
            for view, arguments in calls
        ]
        found = []
        for (view, _), answer in zip(calls, batch(self.w3, requests), strict=True):
            if answer.error is not None:
                raise answer.error
            found.append(decode_answer(self.address, view, to_bytes(answer.result)))
        return found

    def _send(self, function: str, arguments: tuple[Any, ...], kind: type[Event]) -> Event:
        data = encode_call(function, *arguments)
        simulate(self.w3, self._sender, self.address, data, PENDING)
        event = transact_for_event(self.w3, self._sender, self.chain_id, self.address, data, decode_event, kind)
        if event is None:
            raise NotARegistry(self.address, kind.__name__, None)
        return event


def encode_call(function: str, *arguments: Any) -> bytes:
    """Return the calldata of a function of the registry."""
    from eth_abi.abi import encode

    parameters = FUNCTIONS[function][0]
    plain = [bytes(value) if isinstance(value, bytes) else value for value in arguments]
    return compute_selector(f"{function}({parameters})") + encode(_split(parameters), plain)


def decode_answer(address: Address, view: str, answer: bytes) -> tuple[Any, ...]:
    """Return what a view of the registry at `address` answered. Errors: `NotARegistry`."""
    from eth_abi.abi import decode
    from eth_abi.exceptions import DecodingError

    try:
        return tuple(decode(_split(FUNCTIONS[view][1]), answer))
    except (DecodingError, UnicodeDecodeError, OverflowError):
        raise NotARegistry(address, view, answer) from None


def decode_report_call(data: bytes) -> tuple[Address, CycleReport]:
    """Return subject and report of a call of `report` that `report_call` made."""
    from eth_abi.abi import decode

    subject, values = decode(_split(FUNCTIONS["report"][0]), data[4:])
    members: list[Any] = list(values)
    members[1], members[13] = Bytes32(members[1]), Bytes32(members[13])
    return Address(bytes.fromhex(subject[2:])), CycleReport(*members)


def _enrollment(baseline: Commitments, policy: Policy, controller: Address | None, rights: int) -> tuple[Any, ...]:
    """The arguments of `enroll`."""
    named = Address(bytes(20)) if controller is None else Address(controller, "controller")
    words = policy_words(check_policy(policy))
    return to_commitments(baseline), words, named, uint(rights, 8, "controllerRights")


def _split(types: str) -> list[str]:
    """The types of a list, structures whole."""
    parts, depth = [""], 0
    for character in types:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


T = TypeVar("T")


def _four(values: Iterable[T]) -> tuple[T, T, T, T]:
    a, b, c, d = values
    return a, b, c, d


def to_head(values: tuple[Any, ...]) -> Head:
    """Return the answer of `headOf` as a value."""
    enrolled, controller, *numbers = values
    members: list[Any] = [enrolled, Address(bytes.fromhex(controller[2:])), *numbers]
    members[7] = Bytes32(numbers[5])
    return Head(*members)


def _policy(values: tuple[Any, ...]) -> Policy:
    policy_hash, uri, supported, required, triggers, disclosure, due_window, pulse_interval, intervals = values
    return Policy(
        supported, required, triggers, disclosure, due_window, pulse_interval, intervals, Bytes32(policy_hash),
        uri.decode(errors="replace"),
    )  # fmt: skip


def policy_words(policy: Policy) -> tuple[Any, ...]:
    """Return a policy as the ABI wants it."""
    masks = policy.supported_layers, policy.required_layers, policy.allowed_triggers, policy.disclosure
    times = policy.due_window, policy.pulse_interval, policy.max_interval
    return bytes(policy.policy_hash), policy.policy_uri, *masks, *times


def report_words(report: CycleReport) -> tuple[Any, ...]:
    """Return a report as the ABI wants it."""
    return (
        *(report.base_version, bytes(report.pre_root), [bytes(word) for word in report.post_commitments]),
        *(report.layer_mask, report.completed_layers, report.ops_mask, int(report.outcome), int(report.trigger)),
        *(report.policy_version, report.reported_started_at, report.reported_ended_at, report.next_planned_at),
        *(report.restores_version, bytes(report.record_hash), report.record_uri),
    )


def _layer_status(values: tuple[Any, ...]) -> LayerStatus:
    status, deadline, never_completed = values
    return LayerStatus(MaintenanceStatus(status), deadline, never_completed)


def _signal(values: tuple[Any, ...]) -> Signal:
    status, last_signal_at, silent_since = values
    return Signal(SignalStatus(status), last_signal_at, silent_since)
