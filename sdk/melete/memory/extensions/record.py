"""What the clients of all optional records share.

A record stands over one registry, and answers for no other. Whoever writes calls it directly: the sender itself has
to be the space's controller, or the auditor. A signature or a relayer does not help here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self, TypeVar

from melete.chain.connection import call, require_code
from melete.chain.logs import Scanner, Topics
from melete.chain.reverts import compute_selector
from melete.chain.transactions import Receipt, Sender, require_sender, simulate, transact, transact_for_event
from melete.errors import ContractError, CrossCheckFailed, NotARecord, NotSpaceController
from melete.memory.extensions.events import RecordEvent, decode_record_event
from melete.memory.registry import CrossCheck, MemoryRegistry
from melete.primitives import Address, Bytes32
from melete.resources import load_artifact

Event = TypeVar("Event", bound=RecordEvent)


class Record:
    """One optional record over one registry. Reading needs no sender; without one of its own, it has the registry's.

    Errors of the constructor: `NoContract`; `NotARecord` for code of another kind, or over another registry;
    `NodeRefused`, `NodeUnreachable`.
    """

    #: The contract, by the name of its artifact, and the functions that the client calls, by name.
    contract_name: ClassVar[str]
    functions: ClassVar[dict[str, str]]

    def __init__(self, registry: MemoryRegistry, address: Address | str, *, sender: Sender | None = None) -> None:
        self.registry = registry
        self.w3 = registry.w3
        self.chain_id = registry.chain_id
        self.address = Address(address, "record")
        self.sender = sender or registry.sender
        self._identify()

    @classmethod
    def deploy(cls, registry: MemoryRegistry, sender: Sender) -> tuple[Self, Receipt]:
        """Deploy the record over a registry from the artifact in the package, check it, and return its client.

        Errors: `InvalidRegistry`, before anything is sent, for a registry without the views that the record reads.
        """
        code = load_artifact(cls.contract_name).bytecode + registry.address.word
        receipt = transact(registry.w3, sender, registry.chain_id, None, code)
        if receipt.contract_address is None:
            raise NotARecord(sender.address, "deployment", None)
        record = cls(registry, receipt.contract_address, sender=sender)
        record.cross_check()
        return record, receipt

    def events(
        self, space_id: Bytes32 | None = None, from_block: int = 0, to_block: int | str = "latest"
    ) -> Iterator[RecordEvent]:
        """Yield the record's events in order, of one space or of all, decoded, as a `Scanner` reads them.

        `to_block` is a number or latest, safe or finalized. Errors: those of `Scanner` and of its `events`.
        """
        topics: Topics = () if space_id is None else (None, Bytes32(space_id, "spaceId"))
        scanner: Scanner[RecordEvent] = Scanner(
            self.w3, self.address, decode_record_event, start_block=from_block, until=to_block, topics=topics
        )
        return scanner.events()

    def cross_check(self) -> CrossCheck:
        """Compare what the SDK computes with the contract's views. Errors: `CrossCheckFailed`."""
        for view, (arguments, computed) in self._known_answers().items():
            answer = self._ask(view, arguments)
            if answer != computed:
                raise CrossCheckFailed(view, computed, answer)
        return CrossCheck(tuple(self._known_answers()), ())

    # For the clients built on this one

    def _known_answers(self) -> dict[str, tuple[bytes, bytes]]:
        """Views that tell this kind of record from any other contract: arguments, and the one right answer."""
        raise NotImplementedError

    def _identify(self) -> None:
        answers = {"registry": (b"", self.registry.address.word), **self._known_answers()}
        for view, (arguments, right) in answers.items():
            try:
                answer = self._ask(view, arguments)
            except ContractError as error:
                raise NotARecord(self.address, view, str(error)) from error
            if answer != right:
                require_code(self.w3, self.address)
                raise NotARecord(self.address, view, answer)

    @property
    def _sender(self) -> Sender:
        return require_sender(self.sender, "record's client")

    def _require_controller(self, space_id: Bytes32) -> None:
        if self.registry.authorization(space_id).controller != self._sender.address:
            raise NotSpaceController

    def _data(self, function: str, arguments: bytes) -> bytes:
        signature = "registry()" if function == "registry" else self.functions[function]
        return compute_selector(signature) + arguments

    def _ask(self, view: str, arguments: bytes) -> bytes:
        return call(self.w3, self.address, self._data(view, arguments))

    def _words(self, view: str, arguments: bytes, *, count: int) -> list[Bytes32]:
        answer = self._ask(view, arguments)
        if len(answer) != 32 * count:
            raise NotARecord(self.address, view, answer)
        return [Bytes32(answer[start : start + 32]) for start in range(0, len(answer), 32)]

    def _simulate(self, data: bytes) -> None:
        simulate(self.w3, self._sender, self.address, data)

    def _send(self, data: bytes, kind: type[Event]) -> Event:
        event = transact_for_event(self.w3, self._sender, self.chain_id, self.address, data, decode_record_event, kind)
        if event is None:
            raise NotARecord(self.address, kind.__name__, None)
        return event
