"""`melete delta show` where no node is named: from a file, from an outbox, from a witness store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from melete.chain.outbox import Item, Outbox, State
from melete.chain.reverts import compute_selector
from melete.cli.main import run
from melete.memory.delta import compute_next_state_root, compute_transition_id
from melete.memory.registry import FUNCTIONS
from melete.memory.space import GENESIS
from melete.memory.witness import Witness
from melete.memory.witness_keys import create_key_file
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore
from melete.primitives import Address

from ..memory.witness_samples import SPACE, make_witness, salt

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
REGISTRY, OTHER_REGISTRY = Address(b"\x44" * 20), Address(b"\x55" * 20)
WITNESS = make_witness(15)
DELTA_ONE = WITNESS.build_delta(SPACE, GENESIS)
ID = compute_transition_id(DELTA_ONE)
ROOT = compute_next_state_root(DELTA_ONE.prev_state_root, ID)
ALL = ["deltaCommitment", "provenanceCommitment", "locatorCommitment"]


class Desk:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.key = create_key_file(folder / "key")
        WitnessStore.create(folder / "store.db", self.key).close()

    def keep(self, number: int, witness: Witness) -> None:
        with WitnessStore.open(self.folder / "store.db", self.key) as store:
            store.put(DELTA.place(SPACE, number), witness)

    def queue(self, *items: Item, state: State = State.QUEUED) -> None:
        with Outbox(self.folder / "outbox.db") as outbox:
            outbox.add(items, state)

    def show(self, *words: object, store: bool = True) -> tuple[int, dict[str, Any]]:
        at = ["--outbox", self.folder / "outbox.db", "--json"]
        at += ["--witnesses", self.folder / "store.db", "--witness-key-file", self.folder / "key"] if store else []
        code = run(["delta", "show", *(str(word) for word in (*words, *at))])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        (line,) = captured.out.splitlines()
        return code, json.loads(line)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path, capsys)


def item(target: Address = REGISTRY, data: bytes = b"") -> Item:
    call = compute_selector(FUNCTIONS["commitTransition"]) + DELTA_ONE.words() + bytes(64)
    return Item(31337, target, bytes(SPACE), 1, ROOT, data or call)


@pytest.fixture
def file(desk: Desk) -> Path:
    path = desk.folder / "delta.json"
    path.write_text(json.dumps(DELTA_ONE.to_json()))
    return path


# A file


def test_a_file_is_shown_with_what_follows_from_it(desk: Desk, file: Path) -> None:
    code, found = desk.show(file, store=False)
    assert code == HOLDS
    assert DELTA_ONE.to_json().items() <= found.items()
    assert (found["transitionId"], found["nextStateRoot"], found["source"]) == (str(ID), str(ROOT), "file")
    assert found["profile"] == "melete.plain/1"
    assert "no store" in found["witness"]
    assert not (desk.folder / "outbox.db").exists(), "nothing is made on the way"


@pytest.mark.parametrize(
    ("kept", "code", "answer", "opened"),
    [
        (None, HOLDS, "missing", []),
        (WITNESS, HOLDS, "opened", ALL),
        (make_witness(3), DOES_NOT_HOLD, "does not open deltaCommitment", []),
        (
            Witness(WITNESS.profile_id, WITNESS.payload, WITNESS.delta_salt, b"eve", salt(1), "ipfs://", salt(2)),
            DOES_NOT_HOLD, "does not open provenanceCommitment", ALL[:1],
        ),
    ],
)  # fmt: skip
def test_the_commitments_that_the_witness_opens_are_named(
    desk: Desk, file: Path, kept: Witness | None, code: int, answer: str, opened: list[str]
) -> None:
    if kept is not None:
        desk.keep(1, kept)
    found = desk.show(file)
    assert (found[0], found[1]["witness"], found[1]["opened"]) == (code, answer, opened)
    assert found[1]["opened"] + found[1]["closed"] == ALL


def test_absent_commitments_are_neither_opened_nor_closed(desk: Desk, file: Path) -> None:
    witness = make_witness(1)
    desk.keep(1, witness)
    file.write_text(json.dumps(witness.build_delta(SPACE, GENESIS).to_json()))
    assert desk.show(file)[1]["opened"] == ["deltaCommitment"]
    assert desk.show(file)[1]["closed"] == []


def test_a_file_that_is_no_delta_is_refused_by_member(desk: Desk, file: Path) -> None:
    file.write_text(json.dumps({**DELTA_ONE.to_json(), "sequence": "01"}))
    code, found = desk.show(file)
    assert (code, found["error"]["field"]) == (USAGE, "sequence")
    assert desk.show(desk.folder / "nothing.json")[0] == COULD_NOT_TELL


# An outbox


def test_a_waiting_delta_is_found_by_its_place_and_by_its_id(desk: Desk) -> None:
    desk.queue(item())
    desk.keep(1, WITNESS)
    for words in ((SPACE, 1), (ID,)):
        code, found = desk.show(*words)
        assert (code, found["source"], found["state"], found["opened"]) == (HOLDS, "outbox", "queued", ALL)
        assert DELTA_ONE.to_json().items() <= found.items()


def test_items_that_are_refused_or_carry_something_else_are_passed_over(desk: Desk) -> None:
    desk.queue(item(data=b"\x01\x02\x03\x04" + bytes(300)))
    desk.queue(item(OTHER_REGISTRY), state=State.REFUSED)
    code, found = desk.show(ID)
    assert (code, found["error"]["field"]) == (USAGE, "TRANSITION")
    assert "the outbox" in found["error"]["message"]


def test_a_place_that_two_registries_have_asks_which_is_meant(desk: Desk) -> None:
    desk.queue(item(), item(OTHER_REGISTRY))
    code, found = desk.show(SPACE, 1)
    assert (code, found["error"]["field"]) == (USAGE, "--registry")
    assert desk.show(SPACE, 1, "--registry", OTHER_REGISTRY)[0] == HOLDS
    assert desk.show(SPACE, 1, "--chain-id", 1)[1]["error"]["field"] == "SEQUENCE", "no such chain's"


# A witness store


def test_of_a_first_witness_everything_follows(desk: Desk) -> None:
    desk.keep(1, WITNESS)
    code, found = desk.show(SPACE, 1)
    assert (code, found["source"], found["transitionId"]) == (HOLDS, "witness store", str(ID))


def test_of_a_later_witness_alone_the_root_before_is_unknown(desk: Desk) -> None:
    desk.keep(2, WITNESS)
    code, found = desk.show(SPACE, 2)
    names = ("prevStateRoot", "transitionId", "nextStateRoot")
    assert (code, {found[name] for name in names}) == (HOLDS, {"unknown"})
    assert found["deltaCommitment"] == str(DELTA_ONE.delta_commitment)
    assert found["opened"] == ALL


def test_an_erased_witness_could_not_tell(desk: Desk) -> None:
    desk.keep(2, WITNESS)
    with WitnessStore.open(desk.folder / "store.db", desk.key) as store:
        store.erase(DELTA.place(SPACE, 2))
    assert desk.show(SPACE, 2)[1]["error"]["name"] == "WitnessErased"


# What is no transition


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ((SPACE, 0), "SEQUENCE"),
        ((SPACE, "01"), "SEQUENCE"),
        ((SPACE, "1e3"), "SEQUENCE"),
        ((SPACE, "\u0661"), "SEQUENCE"),
        ((SPACE, 2**64), "SEQUENCE"),
        ((SPACE, 1), "SEQUENCE"),
        (("0x12", 1), "SPACE"),
        ((SPACE.hex(), 1), "SPACE"),
        (("space:alice", 1), "SPACE"),
        ((SPACE,), "TRANSITION"),
        (("0X" + SPACE.hex(),), "TRANSITION"),
    ],
)
def test_another_word_is_refused_by_name(desk: Desk, words: tuple[object, ...], field: str) -> None:
    code, found = desk.show(*words)
    assert (code, found["error"]["field"]) == (USAGE, field)
