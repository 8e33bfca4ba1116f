"""A registry's logs as a node writes them: decoded quickly, and verified without being decoded at all.

An audit of a long history spends its time here. Both functions do what a slower one elsewhere does, and leave to it
every log that is not exactly as most are, so that what holds and what is wrong is decided in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from melete.chain.scan.form import RawLog, decode_log
from melete.errors import BrokenHistory
from melete.memory.delta import EXPERIENCE_DELTA_TYPEHASH, MEMORY_STATE_TYPEHASH, ExperienceDelta
from melete.memory.events import TOPICS, LogReference, MemoryEvent, TransitionCommitted, decode_event
from melete.memory.forensics import EventOrder, next_state
from melete.memory.space import Head, SpaceState
from melete.primitives import ZERO_BYTES32, Address, Bytes32, keccak_256, trusted_bytes32

_COMMITTED: Final = next(topic for topic, shape in TOPICS.items() if shape == (3, 7))
_BEFORE_ADDRESS, _BEFORE_UINT64 = bytes(12), bytes(24)
_WORD_TEXT, _DATA_TEXT = 2 + 64, 2 + 7 * 64
_UINT64_END: Final = 1 << 64
_new, _set = object.__new__, object.__setattr__


def verify_space_logs(space_id: Bytes32, logs: Iterable[RawLog], start: SpaceState | None = None) -> SpaceState:
    """Return what the registry knows of a space after all its logs, as JSON-RPC writes them, in order.

    The same as `verify_space_history` of the events that they hold, at half the cost: a log is compared with the
    words that must follow, and none becomes an event but those that change the authorization.
    Errors: `BrokenHistory`, as there; `UnusableLogs` for a log that holds no event of this registry's kind.
    """
    space_id, state, order = Bytes32(space_id, "spaceId"), start, EventOrder()
    remaining = iter(logs)
    for log in remaining:
        unusual: RawLog | None = log
        while unusual is not None:
            event = decode_log(decode_event, unusual)
            if event is None:
                break
            state = next_state(space_id, state, event, order)
            state, unusual = _follow_transitions(space_id, remaining, state, order)
    if state is None:
        raise BrokenHistory(1, "space_unregistered", "a registration", None)
    return state


def _follow_transitions(
    space_id: Bytes32, logs: Iterator[RawLog], state: SpaceState, order: EventOrder
) -> tuple[SpaceState, RawLog | None]:
    """Take transitions as long as each is exactly what must follow; return the state then, and the log that is not."""
    # The hot path: one conversion from hex for all words of a log, and the words are compared where they lie.
    keccak, from_hex, zero = keccak_256, bytes.fromhex, ZERO_BYTES32
    committed, space = str(_COMMITTED), str(space_id)
    authorizer, prefix = state.authorization.authorizer.word, EXPERIENCE_DELTA_TYPEHASH + space_id
    head = state.head
    transition_id, state_root, sequence = bytes(head.transition_id), bytes(head.state_root), head.sequence
    block, index = order.block, order.index
    block_text: str | None = None
    log: RawLog | None = None
    for log in logs:
        try:
            kind, of_space, named_id, named_sequence = log["topics"]
            data, block_hash, transaction_hash = log["data"], log["blockHash"], log["transactionHash"]
            if (
                kind != committed
                or of_space != space
                or len(data) != _DATA_TEXT
                or not len(named_id) == len(named_sequence) == len(block_hash) == len(transaction_hash) == _WORD_TEXT
            ):
                break
            words = from_hex(named_id[2:] + named_sequence[2:] + data[2:] + block_hash[2:] + transaction_hash[2:])
            number_text, place = log["blockNumber"], int(log["logIndex"], 16)
            number = block if block_text and number_text == block_text else int(number_text, 16)
        except (KeyError, TypeError, ValueError):
            break
        due = sequence + 1
        # 0 id, 32 sequence, 64 previous root, 96 next root, 128 delta, 160 provenance, 192 profile, 224 locator,
        # 256 authorizer, 288 block, 320 transaction.
        if (
            len(words) != 352
            or number < block
            or (number == block and place <= index)
            or due == _UINT64_END
            or words[32:64] != due.to_bytes(32, "big")
            or words[64:96] != state_root
            or words[256:288] != authorizer
            or words[128:160] == zero
            or words[192:224] == zero
        ):
            break
        next_id = keccak(prefix + words[32:96] + words[128:256]).digest()
        next_root = keccak(MEMORY_STATE_TYPEHASH + state_root + next_id).digest()
        if words[:32] != next_id or words[96:128] != next_root:
            break
        transition_id, state_root, sequence = next_id, next_root, due
        block, block_text, index = number, number_text, place
    else:
        log = None
    order.block, order.index = block, index
    return SpaceState(state.authorization, Head(Bytes32(transition_id), Bytes32(state_root), sequence)), log


def decode_quickly(log: Mapping[str, Any]) -> MemoryEvent | None:
    """Return what `decode_event` returns, at a third of the cost for transitions; an audit spends its time here.

    A log whose words are not exactly as they should be is left to `decode_event`, which says what is wrong with it.
    """
    topics, data, word = log["topics"], log["data"], trusted_bytes32
    block_hash, transaction_hash = log["blockHash"], log["transactionHash"]
    if len(topics) != 4 or topics[0] != _COMMITTED or len(data) != 224 or data[192:204] != _BEFORE_ADDRESS:
        return decode_event(log)
    _, space_id, transition_id, sequence = topics
    is_whole = len(space_id) == len(transition_id) == len(sequence) == len(block_hash) == len(transaction_hash) == 32
    if not is_whole or sequence[:24] != _BEFORE_UINT64:
        return decode_event(log)
    # Made without its constructor, which would check again what the slices are by their length.
    delta: ExperienceDelta = _new(ExperienceDelta)
    _set(delta, "space_id", word(space_id))
    _set(delta, "sequence", int.from_bytes(sequence, "big"))
    _set(delta, "prev_state_root", word(data[:32]))
    _set(delta, "delta_commitment", word(data[64:96]))
    _set(delta, "provenance_commitment", word(data[96:128]))
    _set(delta, "profile_id", word(data[128:160]))
    _set(delta, "locator_commitment", word(data[160:192]))
    reference = LogReference(log["blockNumber"], word(block_hash), word(transaction_hash), log["logIndex"])
    authorizer: Address = bytes.__new__(Address, data[204:])
    return TransitionCommitted(delta, word(transition_id), word(data[32:64]), authorizer, reference)
