"""States that follow from events, kept along with a scan: rolled back with the chain, and gone on with from a file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.canonical import Json
from melete.chain.logs import Scanner
from melete.chain.scan.fold import Fold
from melete.errors import InvalidInput, MeleteError, MissingFile, StoreNotWritten, StoreUnreadable
from melete.primitives import keccak256

from .test_logs import Chain, Provider, in_raw_pages, make_scanner

Event = tuple[int, int, str]
#: How many events there were, and a digest over all of them.
State = tuple[int, str]
START: State = (0, "")


def follow(state: State, event: Event) -> State:
    return state[0] + 1, str(keccak256(f"{state[1]} {event}".encode()))


def follow_all(events: list[Event]) -> State:
    state = START
    for event in events:
        state = follow(state, event)
    return state


def from_json(document: Json) -> State:
    if not isinstance(document, list) or len(document) != 2:
        raise InvalidInput("state", None, "a number and a digest")
    return document[0], document[1]  # type: ignore[return-value]


def make_fold(file: Path | None = None, kind: str = "test") -> Fold[State]:
    return Fold(START, lambda state: list(state), from_json, kind=kind, file=file)


def read(scanner: Scanner[Event], fold: Fold[State], pages: int = 10**9, *, raw: bool = False) -> State:
    """Read on, for some pages at most, and return what follows. Left in the middle, the last page was not kept."""
    state = fold.at(scanner.position.number)
    for number, page in enumerate(in_raw_pages(scanner) if raw else scanner.pages()):
        state = fold.back_to(page.after)
        for event in page.events:
            state = follow(state, event)
            fold.record(event[0], state)
        if number + 1 == pages:
            break
    return state


# What holds


def test_the_state_at_the_end_is_that_of_all_events() -> None:
    provider, fold = Provider(Chain(5_000, every=3, each=2)), make_fold()
    provider.most = 70
    assert read(make_scanner(provider, keeper=fold), fold) == follow_all(provider.chain.events())
    assert len(fold._numbers) < 200, "older states are thinned out with the blocks"


def test_the_state_before_the_first_event_is_the_start() -> None:
    provider, fold = Provider(Chain(10)), make_fold()
    assert read(make_scanner(provider, keeper=fold), fold) == START
    assert fold.at(5) == START


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 59), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_any_reorganization_leaves_what_follows_from_the_chain_as_it_is(
    turns: list[tuple[int, int, bool]], most: int, every: int
) -> None:
    chain, fold = Chain(60, every=every), make_fold()
    provider = Provider(chain)
    provider.most = most
    scanner = make_scanner(provider, keeper=fold)
    for number, (pages, depth, raw) in enumerate(turns):
        read(scanner, fold, pages, raw=raw)
        chain.replace(depth, depth + 1, every=1, fork=f"fork {number}")
    assert read(scanner, fold) == follow_all(chain.events())


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 59), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 20),
    st.integers(1, 4),
)
def test_runs_that_are_killed_and_gone_on_with_give_the_same(
    turns: list[tuple[int, int, bool]], most: int, every: int
) -> None:
    """Each run is a process of its own, left after some pages; between two, the chain may change."""
    chain = Chain(60, every=every)
    provider = Provider(chain)
    provider.most = most
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.json"
        for number, (pages, depth, raw) in enumerate(turns):
            fold = make_fold(file)
            read(make_scanner(provider, keeper=fold), fold, pages, raw=raw)
            if depth:
                chain.replace(depth, depth + 1, every=1, fork=f"fork {number}")
        fold = make_fold(file)
        assert read(make_scanner(provider, keeper=fold), fold) == follow_all(chain.events())


def test_a_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    file, chain = tmp_path / "state.json", Chain(500, every=1)
    for blocks in (0, 5):
        chain.grow(blocks, every=1)
        provider, fold = Provider(chain), make_fold(file)
        assert read(make_scanner(provider, keeper=fold), fold) == follow_all(chain.events())
    assert provider.ranges == [(500, 504)]


def test_equal_states_are_written_once(tmp_path: Path) -> None:
    file, chain = tmp_path / "state.json", Chain(500)
    chain.grow(1, every=1)
    chain.grow(300)
    provider, fold = Provider(chain), make_fold(file)
    provider.most = 10
    read(make_scanner(provider, keeper=fold), fold)
    document = json.loads(file.read_text())
    assert len(document["scan"]["blocks"]) > 20
    assert len(document["states"]) == 1


# Files that are refused


def error_of(file: Path, kind: str = "test") -> MeleteError:
    with pytest.raises(MeleteError) as caught:
        make_scanner(Provider(Chain(20, every=1)), keeper=make_fold(file, kind))
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "state.json"
    fold = make_fold(path)
    read(make_scanner(Provider(Chain(20, every=1)), keeper=fold), fold)
    return path


def change(file: Path, **members: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **members}))


@pytest.mark.parametrize(
    "members",
    [
        {"format": "melete/fold/2"},
        {"kind": "another"},
        {"states": None},
        {"states": {}},
        {"states": [[1]]},
        {"states": [1]},
        {"states": [["1", [1, ""]]]},
        {"states": [[-1, [1, ""]]]},
        {"states": [[2, [1]]]},
        {"states": [[2, None]]},
        {"states": [[3, [1, "a"]], [2, [1, "b"]]]},
        {"scan": None},
        {"scan": []},
        {"scan": {"format": "melete/scan/1"}},
    ],
)
def test_a_file_that_is_not_whole_or_of_something_else_is_refused(file: Path, members: dict[str, Any]) -> None:
    change(file, **members)
    assert isinstance(error_of(file), StoreUnreadable)


@pytest.mark.parametrize("text", ["", "{", "nothing", "\xff"])
def test_a_file_that_is_no_json_is_refused(file: Path, text: str) -> None:
    file.write_text(text, "latin-1")
    assert isinstance(error_of(file), StoreUnreadable)


@pytest.mark.parametrize("text", ["[]", "null", "7", '"text"'])
def test_a_file_of_another_json_value_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    assert isinstance(error_of(file), StoreUnreadable)


def test_the_state_file_of_a_plain_scan_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    list(make_scanner(Provider(Chain(20, every=1)), state_file=file).pages())
    assert isinstance(error_of(file), StoreUnreadable)


def test_a_file_longer_than_any_state_is_refused_unread(file: Path) -> None:
    with file.open("ab") as stream:
        stream.truncate(17 * 2**20)
    assert isinstance(error_of(file), StoreUnreadable)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    assert isinstance(error_of(tmp_path), MissingFile)


def test_a_file_that_cannot_be_written_is_told_and_leaves_the_old_one(file: Path, monkeypatch: Any) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    chain = Chain(30, every=1)
    fold = make_fold(file)
    scanner = make_scanner(Provider(chain), keeper=fold)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreNotWritten, match="No space left"):
        read(scanner, fold)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]
