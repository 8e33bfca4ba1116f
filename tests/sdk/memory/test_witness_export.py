from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from melete.errors import (
    InvalidInput,
    MeleteError,
    MissingFile,
    NotAuthentic,
    PlaceTaken,
    StoreUnreadable,
    WitnessErased,
    WrongKey,
)
from melete.memory.witness_export import Imported, export_encrypted, export_plain, import_witnesses
from melete.memory.witness_keys import Key
from melete.memory.witness_kinds import LAYERS, OPERATION, REPORT, LayerDocument
from melete.memory.witness_store import WitnessStore
from melete.resources import load_schema

from .witness_samples import (
    KEY,
    OTHER_KEY,
    OTHER_SPACE,
    PASSPHRASE,
    SUBJECT,
    fill,
    make_batch_witness,
    make_deltas,
    make_operations,
    make_witness,
    mode_of,
    place,
    salt,
)

Line = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WitnessStore]:
    """Some of every kind, one of them erased."""
    with WitnessStore.create(tmp_path / "old.db", KEY) as store:
        fill(store, 15)
        operations = make_operations(3)
        witness = make_batch_witness(operations)
        (delta,) = make_deltas([witness], OTHER_SPACE)
        store.put_batch(delta, witness, operations)
        for layer, kind in enumerate(LAYERS):
            schemas = ("runtime", "memory-skills", "tasks-roles", "cognition")
            document = {"schema": f"amm.layer.{schemas[layer]}/1", "layer": layer, "note": "é"}
            store.put(kind.place(SUBJECT, 1), LayerDocument(document, salt(layer)))
        store.put(REPORT.place(SUBJECT, 2**64 - 1), {"outcome": "completed"})
        store.erase(place(4))
        yield store


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[WitnessStore]:
    with WitnessStore.create(tmp_path / "new.db", OTHER_KEY) as store:
        yield store


def export(store: WitnessStore, path: Path, key: Key | None) -> int:
    return export_plain(store, path) if key is None else export_encrypted(store, path, key)


KEYS = pytest.mark.parametrize("key", [None, OTHER_KEY, PASSPHRASE], ids=["plain", "key", "passphrase"])


@KEYS
def test_everything_comes_back_from_an_export(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path, key: Key | None
) -> None:
    count = export(store, tmp_path / "export", key)
    assert count == len(list(store.iterate())) == 24
    assert import_witnesses(empty, tmp_path / "export", key) == Imported(added=24)
    assert list(empty.iterate()) == list(store.iterate())
    assert import_witnesses(empty, tmp_path / "export", key) == Imported(present=23, erased=1)


@KEYS
def test_every_line_of_an_export_is_valid_by_its_schema(store: WitnessStore, tmp_path: Path, key: Key | None) -> None:
    export(store, tmp_path / "export", key)
    validator = Draft202012Validator(load_schema("witness-export"))
    lines = read(tmp_path / "export")
    for line in lines:
        validator.validate(line)
        assert not validator.is_valid({**line, "note": "unknown"})
        for member in line:
            assert not validator.is_valid({name: value for name, value in line.items() if name != member})
    last = "record" if key is None else "sealed"
    assert [line["number"] for line in lines if line.get(last, 0) is None] == ["4"]


def test_encrypted_export_shows_places_and_commitments_and_no_content(store: WitnessStore, tmp_path: Path) -> None:
    export_encrypted(store, tmp_path / "export", KEY)
    export_plain(store, tmp_path / "plain")
    shown, plain = (tmp_path / "export").read_text("utf-8"), (tmp_path / "plain").read_text("utf-8")
    for secret in (b"remembers 1".hex(), "ipfs://memory/5", salt(1).hex(), "completed", b"operation 1".hex()):
        assert secret in plain
        assert secret not in shown
    for entry in store.iterate():
        assert str(entry.commitment) in shown


def test_exports_are_their_owners_alone_and_never_written_over(store: WitnessStore, tmp_path: Path) -> None:
    for key in (None, KEY):
        target = tmp_path / f"export {key}"
        export(store, target, key)
        before = target.read_bytes()
        assert mode_of(target) == 0o600
        with pytest.raises(InvalidInput):
            export(store, target, key)
        assert target.read_bytes() == before


def test_export_of_a_store_that_does_not_open_leaves_no_file(store: WitnessStore, tmp_path: Path) -> None:
    store._database.run("UPDATE witnesses SET sealed = zeroblob(99) WHERE kind = 'report'")
    with pytest.raises(NotAuthentic):
        export_plain(store, tmp_path / "export")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["old.db", "old.db-shm", "old.db-wal"]


# What does not fit


def test_import_never_brings_back_what_was_erased(store: WitnessStore, empty: WitnessStore, tmp_path: Path) -> None:
    export_plain(store, tmp_path / "export")
    fill(empty, 6)
    empty.erase(place(1), place(2))
    done = import_witnesses(empty, tmp_path / "export")
    assert done == Imported(added=18, present=3, erased=3)
    for number in (1, 2):
        with pytest.raises(WitnessErased):
            empty.get(place(number))
    # Erased there and kept here: it stays.
    assert empty.get(place(4)) == make_witness(4)


def test_import_that_meets_another_record_takes_nothing(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path
) -> None:
    export_plain(store, tmp_path / "export")
    empty.put(place(15), make_witness(99))
    with pytest.raises(PlaceTaken):
        import_witnesses(empty, tmp_path / "export")
    assert [entry.number for entry in empty.iterate()] == [15]


@pytest.mark.parametrize(
    ("made_with", "given", "error"),
    [
        (KEY, OTHER_KEY, WrongKey),
        (KEY, PASSPHRASE, WrongKey),
        (PASSPHRASE, KEY, WrongKey),
        (KEY, None, InvalidInput),
    ],
)
def test_import_with_a_wrong_key_takes_nothing(
    store: WitnessStore,
    empty: WitnessStore,
    tmp_path: Path,
    made_with: Key,
    given: Key | None,
    error: type[MeleteError],
) -> None:
    export_encrypted(store, tmp_path / "export", made_with)
    with pytest.raises(error):
        import_witnesses(empty, tmp_path / "export", given)
    assert list(empty.iterate()) == []


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def swap_records(lines: list[Line]) -> None:
    last = "sealed" if "sealed" in lines[1] else "record"
    lines[1][last], lines[2][last] = lines[2][last], lines[1][last]


def change(line: int, member: str, value: Any) -> Callable[[list[Line]], None]:
    def edit(lines: list[Line]) -> None:
        lines[line][member] = value

    return edit


def drop(line: int) -> Callable[[list[Line]], None]:
    def edit(lines: list[Line]) -> None:
        del lines[line]

    return edit


EDITS: dict[str, Callable[[list[Line]], object]] = {
    "swapped": swap_records,
    "line dropped": drop(3),
    "trailer dropped": drop(-1),
    "header dropped": drop(0),
    "two lines exchanged": lambda lines: lines.insert(2, lines.pop(5)),
    "line repeated": lambda lines: lines.insert(2, lines[2]),
    "line after the trailer": lambda lines: lines.append(lines[2]),
    "count": change(-1, "entries", "7"),
    "digest": change(-1, "digest", "0x" + "00" * 32),
    "format": change(0, "format", "melete.witness-export/2"),
    "key": change(0, "key", {"salt": "0x00", "check": "0x00", "scrypt": None}),
    "greedy key": change(
        0, "key", {"salt": "0x" + "00" * 32, "check": "0x" + "00" * 32, "scrypt": {"n": 2**40, "r": 8, "p": 1}}
    ),
    "kind": change(1, "kind", "rumour"),
    "scope": change(1, "scope", "0x1234"),
    "number": change(1, "number", "01"),
    "number as number": change(1, "number", 1),
    "commitment": change(1, "commitment", "0x" + "11" * 32),
    "unknown member": change(1, "note", "hello"),
    "list instead of an object": lambda lines: lines.__setitem__(1, []),  # type: ignore[call-overload]
}


@KEYS
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_export_that_is_not_as_it_was_written_is_refused_whole(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path, key: Key | None, edit: Callable[[list[Line]], object]
) -> None:
    export(store, tmp_path / "export", key)
    lines = read(tmp_path / "export")
    edit(lines)
    text = "".join(json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    (tmp_path / "edited").write_text(text, "utf-8")
    with pytest.raises((StoreUnreadable, InvalidInput, NotAuthentic)) as caught:
        import_witnesses(empty, tmp_path / "edited", key)
    assert list(empty.iterate()) == []
    assert "remembers" not in str(caught.value)
    assert b"remembers".hex() not in str(caught.value)


@KEYS
def test_export_cut_anywhere_is_refused_whole(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path, key: Key | None
) -> None:
    export(store, tmp_path / "export", key)
    content = (tmp_path / "export").read_bytes()
    for length in (0, 1, 40, len(content) // 3, len(content) // 2, len(content) - 20, len(content) - 2):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises((StoreUnreadable, InvalidInput)):
            import_witnesses(empty, tmp_path / "cut", key)
    assert list(empty.iterate()) == []


@pytest.mark.parametrize(
    "content", [b"", b"dear diary\n", b"\xff\xfe\n", b"{}\n", b"[]\n", b'{"format":"x","key":null}\n']
)
def test_file_that_is_no_export_says_so(empty: WitnessStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes").write_bytes(content)
    with pytest.raises(StoreUnreadable):
        import_witnesses(empty, tmp_path / "notes")
    with pytest.raises(MissingFile):
        import_witnesses(empty, tmp_path / "nothing")


def test_record_that_does_not_open_its_commitment_is_named_by_its_line(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path
) -> None:
    export_plain(store, tmp_path / "export")
    lines = read(tmp_path / "export")
    at = next(index for index, line in enumerate(lines) if line.get("kind") == "operation")
    lines[at]["record"]["content"] = "0x1234"
    (tmp_path / "edited").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(InvalidInput) as caught:
        import_witnesses(empty, tmp_path / "edited")
    assert caught.value.field == f"line {at + 1}"
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"content": "0x12", "salt": "0x" + "5e" * 31},
        {"content": "5e5e", "salt": "0x" + "5e" * 32},
        {"content": "0x5e5e", "salt": "0x" + "5e" * 32, "note": "5e5e"},
        "5e5e",
        ["5e5e"],
    ],
)
def test_record_that_is_none_is_refused_and_not_shown(
    store: WitnessStore, empty: WitnessStore, tmp_path: Path, record: Any
) -> None:
    export_plain(store, tmp_path / "export")
    lines = read(tmp_path / "export")
    at = next(index for index, line in enumerate(lines) if line.get("kind") == "operation")
    lines[at]["record"] = record
    (tmp_path / "edited").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(InvalidInput) as caught:
        import_witnesses(empty, tmp_path / "edited")
    assert "5e5e" not in f"{caught.value} {vars(caught.value)}"


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def peaks_of_export_and_import(folder: Path, count: int) -> tuple[int, int]:
    folder.mkdir()
    with WitnessStore.create(folder / "old.db", KEY) as old, WitnessStore.create(folder / "new.db", KEY) as new:
        with old.transaction():
            for number in range(1, count + 1):
                old.put(OPERATION.place(OTHER_SPACE, number), make_operations(1)[0])
        written = peak(lambda: export_encrypted(old, folder / "export", KEY))
        return written, peak(lambda: import_witnesses(new, folder / "export", KEY))


def test_long_exports_take_no_more_memory_than_short_ones(tmp_path: Path) -> None:
    short = peaks_of_export_and_import(tmp_path / "short", 150)
    long = peaks_of_export_and_import(tmp_path / "long", 1_000)
    assert all(after < 1.5 * before for before, after in zip(short, long, strict=True))
