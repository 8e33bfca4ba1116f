# ruff: noqa: S608 - a forger writes statements by hand
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st

from melete.canonical import canonicalize
from melete.errors import InputError
from melete.primitives import Bytes32, keccak256
from melete.wire.approval import Queue
from melete.wire.audit import EMPTY, RULES, Action, AuditHead, Entry, compute_digest, follow
from melete.wire.errors import BrokenAudit
from melete.wire.store import MemoryStore
from strategies import words

from .samples import EPISODIC, SEMANTIC, Clock, database_of, fetch, open_store, remember, run

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
entries = st.builds(
    Entry,
    st.integers(1, 2**53 - 1),
    words.map(Bytes32),
    st.integers(0, 2**53 - 1),
    st.sampled_from(Action),
    text,
    text,
    st.lists(text, max_size=3).map(tuple),
    digest=st.none() | words.map(Bytes32),
    sources=st.lists(text, max_size=2).map(tuple),
    expires=st.none() | st.integers(0, 2**63 - 1),
    writer=st.none() | text,
    by=st.none() | text,
    operation=st.none() | text,
)


# Entries


@given(entries)
def test_entry_is_canonical_json_and_reads_back(entry: Entry) -> None:
    data = entry.to_bytes()
    assert data == canonicalize(json.loads(data))
    assert Entry.from_bytes(data) == entry


ENTRY = Entry(2, Bytes32(b"\x01" * 32), 5, Action.REMEMBER, "a", "episodic", ("id",), digest=Bytes32(b"\x02" * 32))


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members | {"note": 1},
        lambda members: members | {"number": "2"},
        lambda members: members | {"number": 2.5},
        lambda members: members | {"previous": "0x12"},
        lambda members: members | {"previous": None},
        lambda members: members | {"action": "rewrite"},
        lambda members: members | {"memories": "id"},
        lambda members: members | {"memories": [["id"]]},
        lambda members: members | {"expires": 5},
        lambda members: members | {"expires": "05"},
        lambda members: members | {"expires": None},
        lambda members: members | {"digest": "0x"},
        lambda members: members | {"sources": []},
        lambda members: {name: value for name, value in members.items() if name != "at"},
        lambda members: [members],
        lambda _: None,
    ],
)
def test_entry_of_another_form_is_refused(change: Callable[[Any], Any]) -> None:
    members = json.loads(ENTRY.to_bytes())
    with pytest.raises(InputError):
        Entry.from_bytes(canonicalize(change(members)))


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"not json", ENTRY.to_bytes() + b"\n"])
def test_entry_in_another_spelling_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        Entry.from_bytes(data)


@given(words, st.text(max_size=20), st.lists(st.text(max_size=5), max_size=2), st.none() | st.just({"k": [1.5]}))
def test_digest_is_over_salt_content_and_the_rest(salt: bytes, content: str, tags: list[str], metadata: Any) -> None:
    rest = keccak(canonicalize({"metadata": metadata, "tags": list(tags)}))
    expected = keccak(salt + keccak(content.encode()) + rest)
    assert compute_digest(salt, content, tags, metadata) == expected


def test_digest_tells_content_tags_metadata_and_salt_apart() -> None:
    given_values: list[tuple[bytes, str, tuple[str, ...], Any]] = [
        (bytes(32), "a", (), None),
        (b"\x01" * 32, "a", (), None),
        (bytes(32), "b", (), None),
        (bytes(32), "a", ("a",), None),
        (bytes(32), "a", ("a", "b"), None),
        (bytes(32), "a", ("b", "a"), None),
        (bytes(32), "a", (), {}),
        (bytes(32), "a", (), {"tags": []}),
    ]
    assert len({compute_digest(*values) for values in given_values}) == len(given_values)


def test_chain_follows_from_the_empty_head() -> None:
    head = EMPTY
    for number in range(1, 4):
        entry = Entry(number, head.hash, 7, Action.FORGET, "a", "episodic", (str(number),))
        assert follow(head, number, entry.to_bytes(), keccak256(entry.to_bytes())) == entry
        head = AuditHead(number, keccak256(entry.to_bytes()))


# What a store writes


def fill(store: MemoryStore, clock: Clock) -> None:
    """Every action once at least: sixteen audit rows."""
    ids = [remember(store, f"tea {number}", tags=["x"], metadata={"n": number}) for number in range(4)]
    store.merge(EPISODIC, ids[:2])
    store.expire(EPISODIC, [ids[2]], ttl_seconds=100)
    store.forget(EPISODIC, [remember(store, "gone")])
    remember(store, "brief", ttl_seconds=1)
    clock.now += 1
    store.sweep()
    approved, rejected, _ = (store.remember(SEMANTIC, f"later {number}").ids[0] for number in range(3))
    store.approve(approved, "ada")
    store.reject(rejected, "ada")
    remember(store, "last")


ROWS = 16


@pytest.fixture
def filled(store_url: str, clock: Clock) -> Any:
    with open_store(store_url, clock, approval=Queue()) as store:
        fill(store, clock)
        yield store


def broken(store: MemoryStore, recorded: AuditHead | None = None) -> tuple[int, str]:
    """Where the audit is broken, and which rule."""
    with pytest.raises(BrokenAudit) as caught:
        store.verify_audit(recorded)
    assert caught.value.rule in RULES
    assert str(caught.value).endswith(".")
    return caught.value.number, caught.value.rule


def test_every_write_is_in_the_log_and_the_log_holds(filled: MemoryStore) -> None:
    head = filled.verify_audit()
    assert head == filled.audit_head() == AuditHead(ROWS, head.hash)
    entries = [
        Entry.from_bytes(entry.encode()) for (entry,) in fetch(filled, "SELECT entry FROM audit ORDER BY number")
    ]
    assert {entry.action for entry in entries} == set(Action)
    assert [entry.number for entry in entries] == list(range(1, ROWS + 1))


def test_log_never_holds_content(filled: MemoryStore) -> None:
    log = repr(fetch(filled, "SELECT entry FROM audit"))
    for content in ("tea", "gone", "brief", "later", "last", '"x"', '"n"'):
        assert content not in log


def test_empty_store_has_an_empty_log(store: MemoryStore) -> None:
    assert store.verify_audit() == store.audit_head() == EMPTY


def test_recalling_and_refused_writes_are_not_logged(store: MemoryStore) -> None:
    store.recall(EPISODIC, "tea")
    with pytest.raises(InputError):
        store.remember(EPISODIC, "")
    assert store.audit_head() == EMPTY


def rechain(store: MemoryStore, first: int, last: int = ROWS) -> None:
    """Give rows the hashes that their entries have now, and each the hash of the one before: a forger's work."""
    rows = fetch(store, f"SELECT number, entry, hash FROM audit WHERE number >= {first - 1} ORDER BY number")
    previous: bytes | None = None
    for number, entry, stored in rows:
        if number < first or number > last:
            previous = bytes(stored)
            continue
        members = json.loads(entry)
        if previous is not None:
            members["previous"] = "0x" + previous.hex()
        changed = canonicalize(members).decode()
        previous = keccak(changed.encode())
        set_row(store, number, changed, previous)


def set_row(store: MemoryStore, number: int, entry: str, digest: bytes) -> None:
    value = f"x'{digest.hex()}'" if database_of(store).engine.dialect.name == "sqlite" else f"'\\x{digest.hex()}'"
    quoted = entry.replace("'", "''").replace("%", "%%")
    run(store, f"UPDATE audit SET entry = '{quoted}', hash = {value} WHERE number = {number}")


@pytest.mark.parametrize("number", [1, 2, 9, ROWS])
def test_altered_entry_is_found_at_its_number(filled: MemoryStore, number: int) -> None:
    run(filled, f"UPDATE audit SET entry = replace(entry, '\"at\":1', '\"at\":2') WHERE number = {number}")
    assert broken(filled) == (number, "the hash of the audit row")


@pytest.mark.parametrize("number", [1, 2, 9, ROWS])
def test_entry_altered_together_with_its_hash_is_found_at_its_number(filled: MemoryStore, number: int) -> None:
    run(filled, f"UPDATE audit SET entry = replace(entry, '\"at\":1', '\"at\":2') WHERE number = {number}")
    rechain(filled, number, number)
    rule = "the newest audit row" if number == ROWS else "the hash of the audit row before"
    assert broken(filled) == (number, rule)


@pytest.mark.parametrize("number", [1, 2, 9, ROWS])
def test_missing_row_is_found_at_its_number(filled: MemoryStore, number: int) -> None:
    run(filled, f"DELETE FROM audit WHERE number = {number}")
    rule = "the newest audit row" if number == ROWS else "the audit row's number"
    assert broken(filled) == (number, rule)


@pytest.mark.parametrize("number", [1, 9, ROWS])
def test_inserted_row_is_found(filled: MemoryStore, number: int) -> None:
    # The rows after it move up, so that there is room.
    run(filled, f"UPDATE audit SET number = -number - 1 WHERE number > {number}")
    run(filled, "UPDATE audit SET number = -number WHERE number < 0")
    run(filled, f"INSERT INTO audit SELECT {number + 1}, entry, hash FROM audit WHERE number = {number}")
    assert broken(filled)[0] == number + 1


@pytest.mark.parametrize("number", [0, -3, ROWS + 5])
def test_row_with_a_number_out_of_order_is_found(filled: MemoryStore, number: int) -> None:
    run(filled, f"INSERT INTO audit SELECT {number}, entry, hash FROM audit WHERE number = 3")
    assert broken(filled) == (min(number, ROWS + 1), "the audit row's number")


def test_swapped_rows_are_found(filled: MemoryStore) -> None:
    run(filled, "UPDATE audit SET number = 100 WHERE number = 4")
    run(filled, "UPDATE audit SET number = 4 WHERE number = 5")
    run(filled, "UPDATE audit SET number = 5 WHERE number = 100")
    assert broken(filled)[0] == 4


#: What cutting the log after a row leaves that shows it, even when the head beside the log is made to fit.
CUTS = [
    (0, "a memory's row"),
    (3, "the merge of a memory"),
    (4, "the merge of a memory"),
    (5, "the expiry of a memory"),
    (6, "a pending write"),
    (9, "a memory's row"),
    (10, "a pending write"),
    (13, "the decision about a pending write"),
    (14, "the decision about a pending write"),
    (ROWS - 1, "a memory's row"),
]


@pytest.mark.parametrize(("last", "rule"), CUTS)
def test_cut_off_tail_shows_in_the_rows(filled: MemoryStore, last: int, rule: str) -> None:
    run(filled, f"DELETE FROM audit WHERE number > {last}")
    assert broken(filled) == (last + 1, "the newest audit row")
    if last:
        run(filled, f"UPDATE meta SET number = {last}, hash = (SELECT hash FROM audit WHERE number = {last})")
    else:
        run(filled, "UPDATE meta SET number = 0")
    assert broken(filled)[1] == rule


def test_log_that_was_written_anew_shows_to_who_noted_its_head(filled: MemoryStore) -> None:
    head = filled.audit_head()
    assert filled.verify_audit(head) == head
    run(filled, 'UPDATE audit SET entry = replace(entry, \'"writer":"default"\', \'"writer":"somebody"\')')
    run(filled, "UPDATE pending SET writer = 'somebody'")
    rechain(filled, 1)
    run(filled, f"UPDATE meta SET hash = (SELECT hash FROM audit WHERE number = {ROWS})")
    assert filled.verify_audit().number == ROWS  # nothing inside tells
    assert broken(filled, head) == (ROWS, "the head that was recorded elsewhere")
    assert broken(filled, AuditHead(ROWS + 3, head.hash)) == (ROWS + 1, "the head that was recorded elsewhere")


ALTERED = [
    ("UPDATE memories SET content = 'milk' WHERE number = 3", 3, "the digest of a memory"),
    ("UPDATE memories SET tags = '[\"y\"]' WHERE number = 3", 3, "the digest of a memory"),
    ("UPDATE memories SET tags = 'no json' WHERE number = 3", 3, "a memory's row"),
    ("UPDATE memories SET metadata = '{\"n\":3}' WHERE number = 3", 3, "the digest of a memory"),
    ("UPDATE memories SET metadata = NULL WHERE number = 3", 3, "the digest of a memory"),
    ("UPDATE memories SET created_at = created_at + 1 WHERE number = 3", 3, "the time of a memory"),
    ("UPDATE memories SET expires_at = NULL WHERE number = 3", 3, "the expiry of a memory"),
    ("UPDATE memories SET expires_at = 5 WHERE number = 4", 4, "the expiry of a memory"),
    ("UPDATE memories SET merged_into = NULL WHERE number = 1", 1, "the merge of a memory"),
    ("UPDATE memories SET merged_into = 4 * 64 WHERE number = 2", 2, "the merge of a memory"),
    ("UPDATE memories SET audited = 4 WHERE number = 3", 3, "the last audit row of a memory"),
    ("UPDATE memories SET number = 7 WHERE number = 3", 3, "a memory's row"),
    ("UPDATE memories SET id = '00000000-0000-4000-8000-000000000000' WHERE number = 3", 3, "a memory's row"),
    ("UPDATE memories SET scope = 2 WHERE number = 3", 3, "a memory's row"),
    ("UPDATE scopes SET agent = 'other' WHERE id = 1", 1, "a memory's row"),
    ("DELETE FROM memory_text", 3, "the text index"),
    ("UPDATE pending SET content = 'milk' WHERE number = 13", 13, "the digest of a memory"),
    ("UPDATE pending SET writer = 'milk' WHERE number = 13", 13, "a pending write"),
    (
        "UPDATE pending SET decision = 'approved', decided = 14 WHERE number = 13",
        13,
        "the decision about a pending write",
    ),
    ("UPDATE pending SET decision = NULL WHERE number = 12", 12, "the decision about a pending write"),
    ("DELETE FROM pending WHERE number = 11", 11, "a pending write"),
    ("UPDATE meta SET number = number - 1", ROWS, "the newest audit row"),
    ("UPDATE meta SET number = number + 1", ROWS + 1, "the newest audit row"),
]


@pytest.mark.parametrize(("statement", "number", "rule"), ALTERED)
def test_row_that_was_altered_is_found(filled: MemoryStore, statement: str, number: int, rule: str) -> None:
    run(filled, statement)
    assert broken(filled) == (number, rule)


def test_memory_that_was_deleted_or_put_in_is_found(filled: MemoryStore) -> None:
    run(
        filled,
        "INSERT INTO memories SELECT 90 * 64, '00000000-0000-4000-8000-000000000000', scope, 90, 90, created_at,"
        " NULL, NULL, words, salt, tags, metadata, content FROM memories WHERE number = 3",
    )
    assert broken(filled) == (90, "a memory's row")
    run(filled, "DELETE FROM memory_text")
    run(filled, "DELETE FROM memories WHERE number = 4")
    assert broken(filled)[1] == "the text index"
    assert broken(filled)[0] == 3


def test_index_that_holds_what_was_forgotten_is_found(store: MemoryStore) -> None:
    memory_id, other = remember(store, "tea"), remember(store, "milk")
    with database_of(store).writing() as connection:
        (document,) = connection.exec_driver_sql("SELECT min(document) FROM memories").one()
        store.merge(EPISODIC, [memory_id, other])
        database_of(store).add_terms(connection, document, ["1wtea"], [])
    assert broken(store) == (1, "the text index")


def test_first_of_several_faults_is_named(filled: MemoryStore) -> None:
    run(filled, "UPDATE memories SET content = 'milk' WHERE number IN (4, 5, 16)")
    run(filled, "UPDATE pending SET writer = 'milk'")
    assert broken(filled) == (4, "the digest of a memory")


def test_whoever_has_the_log_cannot_test_a_guess_once_the_memory_is_forgotten(store: MemoryStore) -> None:
    memory_id = remember(store, "tea")
    (salt,) = [bytes(salt) for (salt,) in fetch(store, "SELECT salt FROM memories")]
    digest = json.loads(fetch(store, "SELECT entry FROM audit")[0][0])["digest"]
    assert digest == str(compute_digest(salt, "tea", [], None))
    store.forget(EPISODIC, [memory_id])
    assert salt.hex() not in repr(fetch(store, "SELECT entry FROM audit"))
    assert fetch(store, "SELECT salt FROM memories") == []
    assert digest != str(compute_digest(bytes(32), "tea", [], None))
