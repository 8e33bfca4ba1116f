from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InputError, InvalidJson
from melete.wire import envelope as module
from melete.wire.envelope import Envelope, Hit, MemoryType, Operation, Result, is_valid_memory_id
from melete.wire.errors import EnvelopeError, MissingMember, UnknownMember, UnsupportedVersion

from ..strategies import json_values

ID, OTHER = "0b0e1c52-6f0d-4f3c-9f4b-2f6a7c1d9e10", "7a1f6c3e-1111-4222-8333-944455556666"
REMEMBER = {"op": "remember", "memory_type": "semantic", "content": "prefers green tea"}
RECALL = {"op": "recall", "memory_type": "episodic", "query": "tea"}
FORGET = {"op": "forget", "memory_type": "working", "memory_ids": [ID]}
MERGE = {"op": "merge", "memory_type": "semantic", "memory_ids": [ID, OTHER]}
EXPIRE = {"op": "expire", "memory_type": "procedural", "memory_ids": [ID]}
EACH = [REMEMBER, RECALL, FORGET, MERGE, EXPIRE]


def refusal(document: Any, read: Callable[[Any], object] = Envelope.from_json) -> EnvelopeError:
    """The error that a document ends in; its message is one bounded, printable sentence."""
    with pytest.raises(EnvelopeError) as caught:
        read(document)
    message = str(caught.value)
    assert message.isascii()
    assert message.isprintable()
    assert message.endswith(".")
    assert len(message) < 500
    return caught.value


def fault_of(read: Callable[[Any], object], document: Any) -> InputError | None:
    """The typed error that reading ends in, if any; an error of another kind is a failure of the test."""
    try:
        read(document)
    except InputError as error:
        return error
    return None


# What there is


def test_five_operations_over_four_types_are_twenty_envelopes() -> None:
    found = {Envelope.from_json({**document, "memory_type": kind}) for document in EACH for kind in MemoryType}
    assert len(found) == len(Operation) * len(MemoryType) == 20


def test_long_term_types_are_semantic_and_procedural() -> None:
    assert [kind.value for kind in MemoryType if kind.is_long_term] == ["semantic", "procedural"]


def test_names_are_those_of_the_specification_in_its_order() -> None:
    assert list(Operation) == ["remember", "recall", "forget", "merge", "expire"]
    assert list(MemoryType) == ["episodic", "semantic", "procedural", "working"]


# Out and in again

ids = st.uuids().map(str)
plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
metadata = st.dictionaries(
    plain,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | plain | st.floats(-1e15, 1e15),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    op = draw(st.sampled_from(Operation))
    least = {Operation.MERGE: 2, Operation.FORGET: 1, Operation.EXPIRE: 1}.get(op, 0)
    return Envelope(
        op,
        draw(st.sampled_from(MemoryType)),
        agent_id=draw(st.none() | plain),
        content=draw(plain if op == "remember" else st.none() | plain),
        query=draw(st.text(st.characters(exclude_categories=["Cs"])) if op == "recall" else st.none() | plain),
        memory_ids=tuple(draw(st.lists(ids, min_size=least, max_size=4, unique=True))),
        top_k=draw(st.none() | st.integers(1, 1000)),
        tags=tuple(draw(st.lists(plain, max_size=3, unique=True))),
        ttl_seconds=draw(st.none() | st.integers(0, 2**53 - 1)),
        metadata=draw(st.none() | metadata),
    )


@given(envelopes())
def test_envelope_comes_back_from_its_json(envelope: Envelope) -> None:
    document = envelope.to_json()
    assert Envelope.from_json(document) == envelope
    assert Envelope.from_json(dict(reversed(document.items()))) == envelope
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False)):
        assert Envelope.from_json(text) == envelope
        assert Envelope.from_json(text.encode()) == envelope
        assert Envelope.from_json(bytearray(text.encode())) == envelope


@pytest.mark.parametrize("document", EACH, ids=lambda document: document["op"])
def test_omitted_members_stay_omitted_on_the_way_out(document: dict[str, Any]) -> None:
    assert Envelope.from_json(document).to_json() == {"amp_version": "amp/1", **document}


def test_every_member_that_is_there_goes_out_as_it_came_in() -> None:
    whole = {
        "amp_version": "amp/1", "op": "recall", "memory_type": "working", "agent_id": "scout", "content": "c",
        "query": "", "memory_ids": [OTHER, ID], "top_k": 1000, "tags": ["b", "a"], "ttl_seconds": 0, "metadata": {},
    }  # fmt: skip
    assert Envelope.from_json(whole).to_json() == whole
    assert list(Envelope.from_json(whole).to_json()) == list(whole)


@pytest.mark.parametrize("member", ["agent_id", "content", "query", "top_k", "ttl_seconds", "metadata"])
def test_null_means_omitted_where_the_schema_allows_it(member: str) -> None:
    assert Envelope.from_json({**FORGET, member: None}) == Envelope.from_json(FORGET)


def test_empty_lists_go_out_as_omitted() -> None:
    assert Envelope.from_json({**REMEMBER, "tags": [], "memory_ids": []}).to_json() == {
        "amp_version": "amp/1",
        **REMEMBER,
    }


def test_defaults_are_left_to_the_store() -> None:
    envelope = Envelope.from_json(RECALL)
    assert (envelope.agent_id, envelope.top_k, envelope.ttl_seconds) == (None, None, None)
    assert (module.DEFAULT_AGENT, module.DEFAULT_TOP_K) == ("default", 5)


@given(st.integers(0, 2**53 - 1))
def test_time_to_live_is_kept_to_the_second(seconds: int) -> None:
    assert Envelope.from_json(json.dumps({**EXPIRE, "ttl_seconds": seconds})).ttl_seconds == seconds


# Anything


@given(json_values)
def test_any_json_value_is_an_envelope_or_a_typed_error(value: Any) -> None:
    for read in (Envelope.from_json, Result.from_json, Hit.from_json):
        error = fault_of(read, value)
        assert str(error).isprintable()
        assert isinstance(value, str) or not isinstance(error, InvalidJson)


#: What JSON readers of Python may hand over, beyond what canonical JSON can carry.
loose = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = ["amp_version", "op", "memory_type", "agent_id", "content", "query", "memory_ids", "top_k", "tags",
           "ttl_seconds", "metadata"]  # fmt: skip


@given(st.sampled_from(EACH), st.dictionaries(st.sampled_from(MEMBERS), loose, min_size=1, max_size=3))
def test_any_value_in_any_member_is_an_envelope_or_an_error_that_names_a_member(
    document: dict[str, Any], changes: dict[str, Any]
) -> None:
    error = fault_of(Envelope.from_json, {**document, **changes})
    if error is None:
        envelope = Envelope.from_json({**document, **changes})
        assert Envelope.from_json(json.dumps(envelope.to_json())) == envelope
    else:
        assert isinstance(error, EnvelopeError)
        assert error.member in changes
        assert str(error).isprintable()
        assert len(str(error)) < 500


@given(st.text() | st.binary())
def test_any_text_is_an_envelope_or_a_typed_error(text: str | bytes) -> None:
    with pytest.raises(InputError):
        Envelope.from_json(text)


@pytest.mark.parametrize(
    "text", ["", " ", "nonsense", "{", b"\xff", b"\xef\xbb\xbf{}", "[" * 100_000, '{"op":' * 5_000, "NaN", "{'op':1}"]
)
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError) as caught:
        Envelope.from_json(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [None, 1, 1.5, True, [], [REMEMBER], (), object(), Envelope])
def test_only_an_object_is_an_envelope(value: Any) -> None:
    assert refusal(value).member == "envelope"


# Operation, type and version


@pytest.mark.parametrize("member", ["op", "memory_type"])
@pytest.mark.parametrize("value", ["", "Remember", "REMEMBER", "remember ", "emotional", 1, None, True, [], {}, ["op"]])
def test_unknown_operation_or_type_is_refused_with_those_that_there_are(member: str, value: Any) -> None:
    error = refusal({**REMEMBER, member: value})
    assert error.member == member
    assert "one of" in error.rule


@pytest.mark.parametrize("member", ["op", "memory_type"])
def test_operation_and_type_must_be_there(member: str) -> None:
    error = refusal({name: value for name, value in REMEMBER.items() if name != member})
    assert isinstance(error, MissingMember)
    assert error.member == member


@pytest.mark.parametrize("value", ["amp/9", "amp/1 ", "AMP/1", "amp/1.0", "", "1", 1, 1.0, None, True, [], {}])
def test_other_versions_are_refused(value: Any) -> None:
    error = refusal({**REMEMBER, "amp_version": value})
    assert isinstance(error, UnsupportedVersion)
    assert error.member == "amp_version"


def test_other_version_is_told_before_what_it_may_have_brought() -> None:
    assert isinstance(refusal({"amp_version": "amp/2", "operation": "dream"}), UnsupportedVersion)


@pytest.mark.parametrize(
    "name", ["Content", "content ", "memory_id", "namespace", "", "__proto__", "\x1b[2J", "\ud800"]
)
def test_unknown_member_is_refused_by_name(name: str) -> None:
    error = refusal({**REMEMBER, name: 1})
    assert isinstance(error, UnknownMember)
    assert error.member == name


def test_very_long_unknown_member_is_cut() -> None:
    assert len(refusal({**REMEMBER, "x" * 10**6: 1}).member) < 200


# What each operation needs


@pytest.mark.parametrize(
    ("document", "member"),
    [(REMEMBER, "content"), (RECALL, "query"), (FORGET, "memory_ids"), (MERGE, "memory_ids"), (EXPIRE, "memory_ids")],
    ids=lambda value: value if isinstance(value, str) else value["op"],
)
def test_each_operation_names_the_member_that_it_cannot_do_without(document: dict[str, Any], member: str) -> None:
    without = {name: value for name, value in document.items() if name != member}
    empty = [] if member == "memory_ids" else None
    for incomplete in (without, {**without, member: empty}):
        error = refusal(incomplete)
        assert isinstance(error, MissingMember)
        assert error.member == member
        assert document["op"] in str(error)


def test_members_of_other_operations_do_not_stand_in() -> None:
    assert refusal({"op": "remember", "memory_type": "working", "query": "tea"}).member == "content"
    assert refusal({"op": "recall", "memory_type": "working", "content": "tea"}).member == "query"
    assert refusal({"op": "forget", "memory_type": "working", "content": ID}).member == "memory_ids"


def test_members_that_an_operation_has_no_use_for_are_kept_and_still_judged() -> None:
    assert Envelope.from_json({**REMEMBER, "query": "why"}).query == "why"
    assert refusal({**REMEMBER, "top_k": 0}).member == "top_k"
    assert refusal({**RECALL, "memory_ids": ["x"]}).member == "memory_ids"


# Text


@pytest.mark.parametrize("member", ["agent_id", "content", "query"])
@pytest.mark.parametrize("value", [1, 1.5, True, [], {}, ["text"]])
def test_text_must_be_text(member: str, value: Any) -> None:
    assert refusal({**REMEMBER, member: value}).member == member


@pytest.mark.parametrize("member", ["agent_id", "content", "query", "tags"])
@pytest.mark.parametrize("text", ["\ud800", "tea \udfff"])
def test_lone_surrogates_are_refused(member: str, text: str) -> None:
    value = [text] if member == "tags" else text
    assert refusal({**REMEMBER, member: value}).member == member
    assert refusal(json.dumps({**REMEMBER, member: value})).member == member


@pytest.mark.parametrize("member", ["agent_id", "content", "tags"])
def test_nul_is_refused_in_what_is_kept(member: str) -> None:
    value = ["a\0b"] if member == "tags" else "a\0b"
    assert refusal({**REMEMBER, member: value}).member == member


@pytest.mark.parametrize(
    "query", ["", " ", "\0", '"', "*", "a OR", "don't", "\U0001f375", "(((", "NEAR(", "x" * 10_000]
)
def test_whatever_a_person_types_is_a_query(query: str) -> None:
    assert Envelope.from_json({**RECALL, "query": query}).query == query


def test_empty_content_is_refused() -> None:
    assert refusal({**REMEMBER, "content": ""}).member == "content"
    assert Envelope.from_json({**REMEMBER, "content": " "}).content == " "


@pytest.mark.parametrize("agent_id", ["", "x" * 257])
def test_agent_must_have_a_name_of_bounded_length(agent_id: str) -> None:
    assert refusal({**REMEMBER, "agent_id": agent_id}).member == "agent_id"
    assert Envelope.from_json({**REMEMBER, "agent_id": "x" * 256}).agent_id == "x" * 256


def test_content_is_limited_in_bytes_not_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONTENT_BYTES", 8)
    for fits in ("x" * 8, "é" * 4, "\U0001f375" * 2):
        assert Envelope.from_json({**REMEMBER, "content": fits}).content == fits
        assert refusal({**REMEMBER, "content": fits + "x"}).member == "content"


def test_content_of_ten_megabytes_is_taken_and_of_twenty_is_not() -> None:
    assert Envelope.from_json({**REMEMBER, "content": "x" * 10_000_000}).content is not None
    error = refusal({**REMEMBER, "content": "x" * 20_000_000})
    assert (error.member, error.value) == ("content", "20000000 characters")


def test_json_text_is_limited_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_JSON_BYTES", 100)
    assert refusal("[" * 101).member == "envelope"


# Ids

OTHER_SPELLINGS = [
    ID.upper(),
    ID.replace("-", ""),
    "{" + ID + "}",
    "urn:uuid:" + ID,
    ID + "\n",
    " " + ID,
    ID[:-1],
    ID + "0",
    ID.replace("0", "g"),
    ID.replace("0", "\uff10"),
    ID.replace("-", "_"),
    "",
    "not-a-uuid",
]


@pytest.mark.parametrize("value", [*OTHER_SPELLINGS, 1, None, True, [], {}, 1.5])
@pytest.mark.parametrize("document", [FORGET, MERGE, EXPIRE], ids=lambda document: document["op"])
def test_ids_have_one_spelling(document: dict[str, Any], value: Any) -> None:
    assert not is_valid_memory_id(value)
    for given_ids in ([value, ID, OTHER], [ID, OTHER, value]):
        error = refusal({**document, "memory_ids": given_ids})
        assert error.member == "memory_ids"
        assert not isinstance(error, MissingMember)


@pytest.mark.parametrize("value", [ID, {ID: 1}, {}, 1, True, "", None])
def test_ids_must_be_a_list(value: Any) -> None:
    assert refusal({**FORGET, "memory_ids": value}).member == "memory_ids"


def test_any_uuid_is_an_id() -> None:
    for value in ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"):
        assert Envelope.from_json({**FORGET, "memory_ids": [value]}).memory_ids == (value,)


@pytest.mark.parametrize("document", [FORGET, EXPIRE, REMEMBER], ids=lambda document: document["op"])
def test_id_given_twice_counts_once_at_its_first_place(document: dict[str, Any]) -> None:
    envelope = Envelope.from_json({**document, "memory_ids": [OTHER, ID, OTHER, ID]})
    assert envelope.memory_ids == (OTHER, ID)


@pytest.mark.parametrize("given_ids", [[ID], [ID, ID], [ID, OTHER, ID]])
def test_merge_needs_two_ids_and_no_id_twice(given_ids: list[str]) -> None:
    error = refusal({**MERGE, "memory_ids": given_ids})
    assert (error.member, error.value) == ("memory_ids", ID)


def test_number_of_ids_is_limited() -> None:
    many = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(1001)]
    assert len(Envelope.from_json({**FORGET, "memory_ids": many[:1000]}).memory_ids) == 1000
    assert refusal({**FORGET, "memory_ids": many}).member == "memory_ids"


# Numbers

NO_INTEGERS = [5.0, 1e30, True, False, "5", [], {}, [5], float("nan"), float("inf"), 10**400, -(10**400), -1, 2**64]


@pytest.mark.parametrize("value", [*NO_INTEGERS, 0, 1001, 2**31])
def test_top_k_is_an_integer_from_1_to_1000(value: Any) -> None:
    assert refusal({**RECALL, "top_k": value}).member == "top_k"


@pytest.mark.parametrize("value", [*NO_INTEGERS, 2**53, 2**63])
@pytest.mark.parametrize("document", [REMEMBER, EXPIRE], ids=lambda document: document["op"])
def test_time_to_live_is_an_integer_up_to_2_to_the_53(document: dict[str, Any], value: Any) -> None:
    assert refusal({**document, "ttl_seconds": value}).member == "ttl_seconds"


@pytest.mark.parametrize("text", ["18446744073709551616", "1e30", "1E400", "5.0", "NaN", "-Infinity", "1" * 10_000])
@pytest.mark.parametrize("member", ["top_k", "ttl_seconds"])
def test_numbers_of_json_text_are_refused_by_the_member_that_holds_them(member: str, text: str) -> None:
    document = f'{{"op":"expire","memory_type":"working","memory_ids":["{ID}"],"{member}":{text}}}'
    assert refusal(document).member == member
    assert refusal(document.encode()).member == member


def test_number_too_long_to_be_printed_is_refused() -> None:
    for member in ("top_k", "ttl_seconds", "agent_id", "memory_ids", "tags", "op", "amp_version"):
        assert refusal({**FORGET, member: 10**5000}).member == member
    assert refusal({**FORGET, "metadata": {"n": 10**5000}}).member == "metadata"


def test_limits_of_numbers_are_taken() -> None:
    assert Envelope.from_json({**RECALL, "top_k": 1}).top_k == 1
    assert Envelope.from_json({**RECALL, "top_k": 1000}).top_k == 1000
    assert Envelope.from_json({**EXPIRE, "ttl_seconds": 0}).ttl_seconds == 0


# Tags


@pytest.mark.parametrize("value", ["tea", {"tea": 1}, {}, 1, True, None, [1], [None], [["tea"]], [""], ["x" * 257]])
def test_tags_are_a_list_of_short_texts(value: Any) -> None:
    assert refusal({**REMEMBER, "tags": value}).member == "tags"


def test_number_of_tags_is_limited() -> None:
    tags = [str(number) for number in range(65)]
    assert Envelope.from_json({**REMEMBER, "tags": tags[:64]}).tags == tuple(tags[:64])
    assert refusal({**REMEMBER, "tags": tags}).member == "tags"


def test_tag_given_twice_counts_once() -> None:
    assert Envelope.from_json({**REMEMBER, "tags": ["b", "a", "b"]}).tags == ("b", "a")


# Metadata


@pytest.mark.parametrize("value", [[], "text", 1, True, 1.5, [{}]])
def test_metadata_must_be_an_object(value: Any) -> None:
    assert refusal({**REMEMBER, "metadata": value}).member == "metadata"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), 2**53, -(2**53), 10**400, 1e16, -2.0**53, "\ud800", "a\0", {"\ud800": 1},
        {"\0": 1}, {1: 2}, (1,), {1, 2}, b"bytes", object(), [[float("-inf")]], {"a": {"b": ["\udfff"]}},
    ],
)  # fmt: skip
def test_metadata_must_be_json_that_every_reader_reads_alike(value: Any) -> None:
    error = refusal({**REMEMBER, "metadata": {"key": value}})
    assert error.member == "metadata"
    assert "/key" in error.rule


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"b":{"a":1,"a":1}}', '{"a":NaN}', '{"a":1e400}', '{"a":Infinity}'])
def test_metadata_of_json_text_holds_no_duplicate_members_and_no_odd_numbers(text: str) -> None:
    document = f'{{"op":"remember","memory_type":"working","content":"c","metadata":{text}}}'
    assert refusal(document).member == "metadata"


def test_member_given_twice_is_refused_by_name() -> None:
    document = '{"op":"remember","memory_type":"working","content":"a","content":"b"}'
    assert refusal(document).member == "content"


def test_metadata_is_limited_in_size_and_depth() -> None:
    assert Envelope.from_json({**REMEMBER, "metadata": {"k": "x" * 65_000}}).metadata
    assert refusal({**REMEMBER, "metadata": {"k": "x" * 66_000}}).member == "metadata"
    deep: Any = {}
    for _ in range(64):
        deep = {"k": deep}
    assert Envelope.from_json({**REMEMBER, "metadata": deep}).metadata == deep
    assert refusal({**REMEMBER, "metadata": {"k": deep}}).member == "metadata"
    for _ in range(100_000):
        deep = [deep]
    assert refusal({**REMEMBER, "metadata": {"k": deep}}).member == "metadata"


def test_metadata_is_kept_as_given() -> None:
    given_metadata = {"z": [1, 1.5, None, True, {"a": "é"}], "a": -0.5, "1": {}, "": []}
    envelope = Envelope.from_json({**REMEMBER, "metadata": given_metadata})
    assert envelope.metadata == given_metadata
    assert list(envelope.metadata or {}) == ["z", "a", "1", ""]
    assert envelope.to_json()["metadata"] == given_metadata


def test_changing_metadata_afterwards_changes_no_envelope() -> None:
    given_metadata: dict[str, Any] = {"list": [1]}
    envelope = Envelope.from_json({**REMEMBER, "metadata": given_metadata})
    given_metadata["list"].append(2)
    envelope.to_json()["metadata"]["list"].append(3)  # type: ignore[index,call-overload,union-attr]
    assert envelope.metadata == {"list": [1]}


# As a value


def test_envelope_made_in_python_is_judged_like_one_from_json() -> None:
    assert Envelope("remember", "semantic", content="prefers green tea") == Envelope.from_json(REMEMBER)  # type: ignore[arg-type]
    assert Envelope(Operation.FORGET, MemoryType.WORKING, memory_ids=[ID]) == Envelope.from_json(FORGET)  # type: ignore[arg-type]
    for change in ({"content": None}, {"top_k": True}, {"tags": "tea"}, {"op": "dream"}, {"amp_version": "amp/2"}):
        with pytest.raises(EnvelopeError) as caught:
            replace(Envelope.from_json(REMEMBER), **change)
        assert [caught.value.member] == list(change)


def test_envelope_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Envelope.from_json(REMEMBER).content = "other"  # type: ignore[misc]


def test_neither_repr_nor_error_shows_what_is_remembered() -> None:
    secret = "the safe opens at nine"
    envelope = Envelope.from_json({**REMEMBER, "content": secret, "query": secret, "metadata": {"note": secret}})
    assert secret not in repr(envelope)
    for change in (
        {"content": secret + "\0"},
        {"content": [secret]},
        {"query": {"q": secret}},
        {"metadata": {"note": secret + "\0"}},
        {"metadata": secret},
        {"metadata": {"note": secret, "n": float("nan")}},
    ):
        error = refusal({**REMEMBER, **change})
        assert secret not in f"{error} {vars(error)}"


# Results

HIT = {"id": ID, "content": "prefers green tea", "memory_type": "semantic", "score": 0.5, "tags": ["drink"]}
RESULT = {"op": "recall", "ok": True, "hits": [HIT]}


def read_result(document: Any) -> object:
    return Result.from_json(document)


results = st.builds(
    Result,
    op=st.sampled_from(Operation),
    ok=st.booleans(),
    ids=st.lists(ids, max_size=3).map(tuple),
    hits=st.lists(
        st.builds(
            Hit,
            id=ids,
            content=plain,
            memory_type=st.sampled_from(MemoryType),
            score=st.floats(-1e15, 1e15),
            tags=st.lists(plain, max_size=2, unique=True).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    approved=st.none() | st.booleans(),
    detail=st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)


@given(results)
def test_result_comes_back_from_its_json(result: Result) -> None:
    assert Result.from_json(result.to_json()) == result
    assert Result.from_json(json.dumps(result.to_json())) == result
    assert Result.from_json(json.dumps(result.to_json()).encode()) == result


def test_result_leaves_out_what_is_empty_but_not_what_is_false() -> None:
    assert Result(Operation.RECALL, True).to_json() == {"op": "recall", "ok": True}
    rejected = Result(Operation.MERGE, False, approved=False, detail="rejected by ada")
    assert rejected.to_json() == {"op": "merge", "ok": False, "approved": False, "detail": "rejected by ada"}
    assert Result.from_json(RESULT).to_json() == RESULT


def test_hit_always_has_its_five_members() -> None:
    hit = Hit(ID, "x", MemoryType.WORKING, 1, ())
    assert hit.to_json() == {"id": ID, "content": "x", "memory_type": "working", "score": 1.0, "tags": []}
    for member in HIT:
        error = refusal({name: value for name, value in HIT.items() if name != member}, Hit.from_json)
        assert isinstance(error, MissingMember)
        assert error.member == member


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"op": "dream"}, "op"),
        ({"ok": 1}, "ok"),
        ({"ok": None}, "ok"),
        ({"ids": ID}, "ids"),
        ({"ids": [ID.upper()]}, "ids"),
        ({"ids": None}, "ids"),
        ({"hits": {}}, "hits"),
        ({"hits": [1]}, "hit"),
        ({"hits": [{**HIT, "score": float("nan")}]}, "score"),
        ({"hits": [{**HIT, "score": True}]}, "score"),
        ({"hits": [{**HIT, "score": "0.5"}]}, "score"),
        ({"hits": [{**HIT, "tags": None}]}, "tags"),
        ({"hits": [{**HIT, "id": "x"}]}, "id"),
        ({"hits": [{**HIT, "note": 1}]}, "note"),
        ({"approved": 0}, "approved"),
        ({"approved": "yes"}, "approved"),
        ({"detail": None}, "detail"),
        ({"detail": "\ud800"}, "detail"),
        ({"amp_version": "amp/1"}, "amp_version"),
    ],
)
def test_result_of_another_shape_is_refused_by_the_member(change: dict[str, Any], member: str) -> None:
    assert refusal({**RESULT, **change}, read_result).member == member


def test_repr_of_a_hit_does_not_show_its_content() -> None:
    assert "tea" not in repr(Result.from_json(RESULT))
