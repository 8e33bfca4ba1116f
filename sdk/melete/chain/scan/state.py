"""How far a scan has come, kept so that another process goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from melete.canonical import Json, load_json
from melete.chain.deployments import write_atomically
from melete.chain.scan.blocks import BlockReference
from melete.chain.scan.stride import MOST_BLOCKS
from melete.errors import InvalidInput, InvalidJson, MissingFile, StoreNotWritten, StoreUnreadable
from melete.files import read_file, to_path
from melete.primitives import Bytes32, uint

STATE_FORMAT: Final = "melete/scan/1"
#: A larger file is no state of a scan.
MOST_STATE_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class ScanState:
    """The blocks that a scan remembers, the last one being its position, and how many it asks for at a time.

    `scan` is what makes a scan another than others: its chain, contract, start and topics.
    """

    scan: Mapping[str, Json]
    page_blocks: int
    blocks: Sequence[BlockReference]

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object that a state file holds."""
        blocks: list[Json] = [[block.number, str(block.hash)] for block in self.blocks]
        return {"format": STATE_FORMAT, **self.scan, "pageBlocks": self.page_blocks, "blocks": blocks}

    @classmethod
    def from_json(cls, document: Json, scan: Mapping[str, Json], start_block: int, name: str) -> ScanState:
        """Return the state that a document holds of this very scan; `name` says where it is from.

        Errors: `StoreUnreadable` for the state of another scan, or of none.
        """
        for member, value in {"format": STATE_FORMAT, **scan}.items():
            if not isinstance(document, dict) or document.get(member) != value:
                raise StoreUnreadable(name, f"it is not the state of this scan: {member} differs")
        assert isinstance(document, dict)
        blocks: Any = document.get("blocks")
        if not isinstance(blocks, list) or not blocks or not all(isinstance(b, list) and len(b) == 2 for b in blocks):
            raise StoreUnreadable(name, "it holds no blocks")
        page_blocks: Any = document.get("pageBlocks")
        try:
            kept = [BlockReference(_block_number(block[0]), Bytes32(block[1], "hash")) for block in blocks]
            most = max(1, min(uint(page_blocks, 64, "pageBlocks"), MOST_BLOCKS))
        except InvalidInput as error:
            raise StoreUnreadable(name, f"it holds {error.field} that is no such thing") from None
        numbers = [block.number for block in kept]
        if numbers != sorted(set(numbers)) or numbers[0] != start_block - 1:
            raise StoreUnreadable(name, "it holds blocks out of order")
        return cls(scan, most, kept)


class Keeper(Protocol):
    """Keeps the state of one scan, whole or not at all."""

    @property
    def name(self) -> str:
        """What errors call it: its path, where it has one."""

    def load(self) -> Json:
        """Return what was saved last, or None."""

    def save(self, state: ScanState) -> None:
        """Keep a state. Everything up to its last block has been handed over."""


class StateFile:
    """Keeps the state of a scan in a file of its own. The file appears when something was read."""

    def __init__(self, path: Path | str) -> None:
        self.path = to_path(path, "state_file")

    @property
    def name(self) -> str:
        return str(self.path)

    def load(self) -> Json:
        """Return the document in the file, None without one. Errors: `MissingFile`, `StoreUnreadable`."""
        return read_state(self.path)

    def save(self, state: ScanState) -> None:
        """Replace the file. Errors: `StoreNotWritten`."""
        write_state(self.path, state.to_json())


def read_state(path: Path) -> dict[str, Json] | None:
    """Return the JSON object in a state file, or None where there is none.

    Errors: `MissingFile` when it cannot be read; `StoreUnreadable` for anything but a JSON object of bounded size.
    """
    try:
        text = read_file(path, MOST_STATE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MissingFile(str(path), f"the scan's state cannot be read ({error.strerror})") from None
    if len(text) > MOST_STATE_BYTES:
        raise StoreUnreadable(str(path), f"it has more than {MOST_STATE_BYTES} bytes, and is no state of a scan")
    try:
        state = load_json(text)
    except InvalidJson as error:
        raise StoreUnreadable(str(path), f"it is no whole state of a scan: {error.rule}") from None
    if not isinstance(state, dict):
        raise StoreUnreadable(str(path), "it is no state of a scan")
    return state


def write_state(path: Path, state: Mapping[str, Json]) -> None:
    """Replace a state file. Errors: `StoreNotWritten`, and the file is as it was."""
    try:
        write_atomically(path, json.dumps(state) + "\n")
    except OSError as error:
        raise StoreNotWritten(str(path), str(error.strerror)) from None


def _block_number(value: Any) -> int:
    return -1 if value == -1 and type(value) is int else uint(value, 64, "blocks")
