from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from melete.errors import InvalidInput
from melete.wire.approval import CallableApproval, Queue
from melete.wire.schema import load_envelope_schema
from melete.wire.serving.http import Limits, create_app
from melete.wire.serving.tokens import fresh_secret
from melete.wire.store import MemoryStore

from .samples import Clock, fetch, open_store, remember
from .serving_samples import (
    APPROVER,
    JSON,
    NOBODY,
    SECRET,
    Holder,
    People,
    StoreThat,
    ask,
    decide,
    error_of,
    make_people,
    propose,
    result_of,
)


@pytest.fixture
def people(tmp_path: Path) -> People:
    return make_people(tmp_path)


@pytest.fixture
def kept(sqlite_path: Path, clock: Clock) -> Iterator[MemoryStore]:
    """A store whose long-term writes wait."""
    with open_store(str(sqlite_path), clock, approval=Queue(), busy_seconds=0.05) as store:
        yield store


@pytest.fixture
def client(kept: MemoryStore, people: People) -> Iterator[TestClient]:
    with TestClient(create_app(kept, people.file)) as client:
        yield client


def serve_with(act: Callable[..., Any], people: People, limits: Limits | None = None) -> TestClient:
    return TestClient(create_app(cast("MemoryStore", StoreThat(act)), people.file, limits))


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the store was asked")


# For everybody


def test_schema_is_served_to_everybody_and_can_be_kept(client: TestClient) -> None:
    got = client.get("/.well-known/amp-schema.json")
    assert got.status_code == 200
    assert got.json() == load_envelope_schema()
    assert got.headers["content-type"] == "application/schema+json"
    assert "max-age" in got.headers["cache-control"]
    tag = got.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get("/.well-known/amp-schema.json", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert client.get("/.well-known/amp-schema.json", headers={"if-none-match": '"other"'}).status_code == 200
    head = client.head("/.well-known/amp-schema.json")
    assert (head.status_code, head.content) == (200, b"")


def test_health_says_whether_the_store_can_be_read_and_nothing_else(client: TestClient, kept: MemoryStore) -> None:
    assert (client.get("/healthz").status_code, client.get("/healthz").content) == (204, b"")
    kept.close()
    assert error_of(client.get("/healthz"), 503)["name"] == "StoreUnreadable"


# The five operations


def test_every_operation_goes_through(client: TestClient, people: People, kept: MemoryStore) -> None:
    one = result_of(ask(client, people.ada, "remember", content="Green tea at noon", tags=["tea"], metadata={"a": 1}))
    two = result_of(ask(client, people.ada, "remember", content="Black tea at five"))
    found = result_of(ask(client, people.ada, "recall", query="green tea", top_k=1))
    assert [(hit.id, hit.content, hit.tags) for hit in found.hits] == [(one.ids[0], "Green tea at noon", ("tea",))]
    merged = result_of(ask(client, people.ada, "merge", memory_ids=[*one.ids, *two.ids]))
    assert kept.show(merged.ids[0]).content == "Green tea at noon\nBlack tea at five"
    assert result_of(ask(client, people.ada, "expire", memory_ids=list(merged.ids), ttl_seconds=60)).ok
    gone = result_of(ask(client, people.ada, "forget", memory_ids=list(merged.ids)))
    assert set(gone.ids) == {*one.ids, *two.ids, *merged.ids}
    assert kept.count() == 0
    kept.verify_audit()


def test_who_wrote_stands_in_the_audit_log(client: TestClient, people: People, kept: MemoryStore) -> None:
    ask(client, people.clerk, "remember", content="x")
    ((entry,),) = fetch(kept, "SELECT entry FROM audit")
    assert json.loads(entry)["writer"] == "clerk"


def test_forgotten_memory_is_served_no_more(client: TestClient, people: People) -> None:
    written = result_of(ask(client, people.ada, "remember", content=SECRET))
    assert len(result_of(ask(client, people.ada, "recall", query="swordfish")).hits) == 1
    ask(client, people.ada, "forget", memory_ids=list(written.ids))
    assert result_of(ask(client, people.ada, "recall", query="swordfish")).hits == ()
    for op in ("forget", "expire"):
        error = error_of(ask(client, people.ada, op, memory_ids=list(written.ids)), 404)
        assert error["name"] == "UnknownMemory"


def test_expired_memory_is_served_no_more(client: TestClient, people: People, clock: Clock) -> None:
    ask(client, people.ada, "remember", content="soon over", ttl_seconds=10)
    clock.now += 10
    assert result_of(ask(client, people.ada, "recall", query="over")).hits == ()


def test_what_a_hook_rejects_is_a_result_and_no_error(sqlite_path: Path, people: People) -> None:
    with open_store(str(sqlite_path), approval=CallableApproval(lambda _: False)) as store:
        client = TestClient(create_app(store, people.file))
        result = result_of(ask(client, people.ada, "remember", memory_type="semantic", content="x"))
    assert (result.ok, result.approved) == (False, False)


# Two agents


def test_two_agents_never_see_each_other(client: TestClient, people: People, kept: MemoryStore) -> None:
    mine = result_of(ask(client, people.ada, "remember", content="tea of the helper")).ids[0]
    his = result_of(ask(client, people.bob, "remember", content="tea of the scribe")).ids[0]
    other = result_of(ask(client, people.bob, "remember", content="more tea of the scribe")).ids[0]
    for holder, own in ((people.ada, mine), (people.bob, his)):
        hits = result_of(ask(client, holder, "recall", query="tea", top_k=1000)).hits
        assert own in [hit.id for hit in hits]
        assert len({hit.content.split()[-1] for hit in hits}) == 1
    for op, members in (
        ("forget", {"memory_ids": [mine]}),
        ("expire", {"memory_ids": [mine]}),
        ("merge", {"memory_ids": [his, mine]}),
        ("forget", {"memory_ids": [his, other, mine]}),
    ):
        assert error_of(ask(client, people.bob, op, **members), 404)["name"] == "UnknownMemory"
    # The same as for what never was.
    unknown = error_of(ask(client, people.bob, "forget", memory_ids=[NOBODY]), 404)
    assert error_of(ask(client, people.bob, "forget", memory_ids=[mine]), 404)["message"] == unknown["message"].replace(
        NOBODY, mine
    )
    assert kept.count() == 3


@pytest.mark.parametrize("agent", ["scribe", "default", "HELPER", "helper ", "\u200bhelper"])
@pytest.mark.parametrize("op", ["remember", "recall", "forget"])
def test_token_of_another_agent_is_refused_before_the_store_is_asked(people: People, agent: str, op: str) -> None:
    members: dict[str, Any] = {"remember": {"content": "x"}, "recall": {"query": "x"}}.get(op, {"memory_ids": [NOBODY]})
    response = ask(serve_with(never, people), people.ada, op, agent_id=agent, **members)
    assert error_of(response, 403)["name"] == "OtherAgent"
    assert 'error="insufficient_scope"' in response.headers["www-authenticate"]


def test_agent_may_be_left_out_by_whoever_has_one(client: TestClient, people: People, kept: MemoryStore) -> None:
    named = result_of(ask(client, people.ada, "remember", content="x", agent_id="helper"))
    left_out = result_of(ask(client, people.ada, "remember", content="y"))
    assert {kept.show(found.ids[0]).agent_id for found in (named, left_out)} == {"helper"}
    error = error_of(ask(client, people.both, "remember", content="x"), 400)
    assert (error["name"], error["member"]) == ("MissingMember", "agent_id")
    chosen = result_of(ask(client, people.both, "remember", content="x", agent_id="scribe"))
    assert kept.show(chosen.ids[0]).agent_id == "scribe"


def test_role_decides_what_may_be_done(people: People) -> None:
    client = serve_with(never, people)
    writes: dict[str, dict[str, Any]] = {
        "remember": {"content": "x"},
        "forget": {"memory_ids": [NOBODY]},
        "merge": {"memory_ids": [NOBODY, NOBODY[:-1] + "1"]},
        "expire": {"memory_ids": [NOBODY]},
    }
    for op, members in writes.items():
        for holder in (people.reader, people.rita):
            assert error_of(ask(client, holder, op, **members), 403)["name"] == "MissingRole"
    for holder in (people.clerk, people.rita):
        assert error_of(ask(client, holder, "recall", query="x"), 403)["name"] == "MissingRole"
    for holder in (people.bob, people.reader, people.clerk):
        for response in (
            client.get("/v1/pending", headers=holder.headers),
            client.post(f"/v1/pending/{NOBODY}/approve", headers=holder.headers),
            client.post(f"/v1/pending/{NOBODY}/reject", headers=holder.headers),
        ):
            assert error_of(response, 403)["name"] == "MissingRole"


# Tokens


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer mlt_",
        "Basic {secret}",
        "{secret}",
        "Bearer {secret}x",
        "Bearer {short}",
        "Bearer {id}",
        "Bearer {digest}",
        "Bearer {secret}, Bearer {secret}",
        "Bearer {fresh}",
    ],
)
def test_request_without_a_known_token_is_refused(people: People, header: str | None) -> None:
    (token,) = [token for token in people.file.load() if token.id == people.ada.id]
    secret = people.ada.secret
    values = {"secret": secret, "short": secret[:-1], "id": token.id, "digest": token.digest.hex()}
    headers = {} if header is None else {"authorization": header.format(fresh=fresh_secret(), **values)}
    client = serve_with(never, people)
    for response in (
        client.post("/v1/memory", json={"op": "recall", "memory_type": "episodic", "query": "x"}, headers=headers),
        client.get("/v1/pending", headers=headers),
        client.post(f"/v1/pending/{NOBODY}/approve", headers=headers),
        client.post(f"/v1/pending/{NOBODY}/reject", headers=headers),
    ):
        assert error_of(response, 401)["name"] == "NotAuthenticated"
        challenge = response.headers["www-authenticate"]
        assert challenge.startswith('Bearer realm="melete"')
        assert ("invalid_token" in challenge) == (header is not None)


def test_two_authorization_headers_are_refused(people: People) -> None:
    twice = [("authorization", f"Bearer {people.ada.secret}"), ("authorization", f"Bearer {people.bob.secret}")]
    response = serve_with(never, people).post("/v1/memory", content=b"{}", headers=[*twice, *JSON.items()])
    assert error_of(response, 401)["name"] == "NotAuthenticated"


def test_scheme_is_told_by_its_name_in_any_case(client: TestClient, people: People) -> None:
    response = client.get("/v1/pending", headers={"authorization": f"bEARER {people.ada.secret}"})
    assert response.status_code == 200


def test_token_in_the_address_or_a_cookie_is_none(people: People) -> None:
    client = serve_with(never, people)
    address = f"/v1/pending?access_token={people.ada.secret}"
    assert error_of(client.get(address, headers={"cookie": f"token={people.ada.secret}"}), 401)


def test_revoked_token_is_refused_at_once(client: TestClient, people: People) -> None:
    assert ask(client, people.ada, "recall", query="x").status_code == 200
    people.file.revoke("ada")
    assert error_of(ask(client, people.ada, "recall", query="x"), 401)
    assert ask(client, people.reader, "recall", query="x").status_code == 200


def test_nobody_is_let_in_by_a_file_of_tokens_that_others_can_read(client: TestClient, people: People) -> None:
    Path(people.file.path).chmod(0o644)
    assert error_of(ask(client, people.ada, "recall", query="x"), 500)["name"] == "UnsafeFile"
    Path(people.file.path).chmod(0o600)
    Path(people.file.path).write_text("{}")
    assert error_of(ask(client, people.ada, "recall", query="x"), 503)["name"] == "StoreUnreadable"


# Envelopes


@pytest.mark.parametrize(
    ("body", "name", "member"),
    [
        (b"", "InvalidJson", None),
        (b"{", "InvalidJson", None),
        (b"\xff", "InvalidJson", None),
        pytest.param(b"[" * 100_000, "InvalidJson", None, id="nested"),
        (b"[]", "EnvelopeError", "envelope"),
        (b'"remember"', "EnvelopeError", "envelope"),
        (b"{}", "MissingMember", "op"),
        (b'{"op": "remember"}', "MissingMember", "memory_type"),
        (b'{"op": "steal", "memory_type": "episodic"}', "EnvelopeError", "op"),
        (b'{"op": "remember", "memory_type": "emotional", "content": "x"}', "EnvelopeError", "memory_type"),
        (b'{"op": "remember", "memory_type": "episodic"}', "MissingMember", "content"),
        (b'{"op": "remember", "memory_type": "episodic", "content": 7}', "EnvelopeError", "content"),
        (b'{"op": "remember", "memory_type": "episodic", "content": "\\ud800"}', "EnvelopeError", "content"),
        (b'{"op": "remember", "op": "forget", "memory_type": "episodic", "content": "x"}', "EnvelopeError", "op"),
        (b'{"op": "recall", "memory_type": "episodic", "query": "x", "top_k": 0}', "EnvelopeError", "top_k"),
        (b'{"op": "recall", "memory_type": "episodic", "query": "x", "top_k": 1e30}', "EnvelopeError", "top_k"),
        (b'{"op": "recall", "memory_type": "episodic", "query": "x", "top_k": NaN}', "EnvelopeError", "top_k"),
        (b'{"op": "forget", "memory_type": "episodic", "memory_ids": ["x"]}', "EnvelopeError", "memory_ids"),
        (b'{"op": "remember", "memory_type": "episodic", "content": "x", "who": 1}', "UnknownMember", "who"),
        (b'{"amp_version": "amp/9", "op": "dream"}', "UnsupportedVersion", "amp_version"),
    ],
)
def test_envelope_that_breaks_a_rule_is_told_with_its_member(
    people: People, body: bytes, name: str, member: str | None
) -> None:
    response = serve_with(never, people).post("/v1/memory", content=body, headers={**people.ada.headers, **JSON})
    error = error_of(response, 400)
    assert (error["name"], error.get("member")) == (name, member)


def test_rules_of_the_store_are_told_too(client: TestClient, people: People) -> None:
    error = error_of(ask(client, people.ada, "remember", content="x", ttl_seconds=0), 400)
    assert (error["name"], error["member"]) == ("InvalidInput", "ttl_seconds")
    written = result_of(ask(client, people.ada, "remember", content="x"))
    error = error_of(ask(client, people.ada, "forget", memory_type="working", memory_ids=list(written.ids)), 409)
    assert error["name"] == "OtherMemoryType"


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonp"},
        {"content-type": ""},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_body_that_does_not_say_it_is_plain_json_is_refused(people: People, headers: dict[str, str]) -> None:
    response = serve_with(never, people).post("/v1/memory", content=b"{}", headers={**people.ada.headers, **headers})
    assert error_of(response, 415)["name"] == "NotJsonBody"


@pytest.mark.parametrize(
    "more",
    [
        [("content-type", "application/json"), ("content-type", "text/plain")],
        [("content-type", "text/plain"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-encoding", "identity"), ("content-encoding", "gzip")],
        [("content-type", "application/json"), ("content-encoding", "gzip"), ("content-encoding", "identity")],
        [],
    ],
)
def test_body_that_says_what_it_is_otherwise_than_once_is_refused(people: People, more: list[tuple[str, str]]) -> None:
    headers = [*people.ada.headers.items(), *more]
    response = serve_with(never, people).post("/v1/memory", content=b"{}", headers=headers)
    assert error_of(response, 415)["name"] == "NotJsonBody"


@pytest.mark.parametrize("path", ["/v1/memory", f"/v1/pending/{NOBODY}/approve"])
@pytest.mark.parametrize("second", [("transfer-encoding", "chunked"), ("content-length", "2")])
def test_body_whose_length_is_said_twice_is_refused(people: People, path: str, second: tuple[str, str]) -> None:
    headers = [*people.ada.headers.items(), *JSON.items(), ("content-length", "2"), second]
    response = serve_with(never, people).post(path, content=b"{}", headers=headers)
    assert error_of(response, 400)["name"] == "TwoLengths"
    assert response.headers["connection"] == "close"


def test_json_with_its_encoding_said_is_json(client: TestClient, people: People) -> None:
    body = b'{"op": "recall", "memory_type": "episodic", "query": "x"}'
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        response = client.post("/v1/memory", content=body, headers={**people.ada.headers, "content-type": kind})
        assert response.status_code == 200


# Addresses


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/memory/", "/v1/memory/x", "/v2/memory", "/v1/pending/x", "//", "/%00"]
)
def test_unknown_address_is_told_as_json(client: TestClient, people: People, path: str) -> None:
    assert error_of(client.get(path, headers=people.ada.headers), 404)["name"] == "UnknownAddress"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/memory", {"POST"}),
        ("PUT", "/v1/memory", {"POST"}),
        ("OPTIONS", "/v1/memory", {"POST"}),
        ("TRACE", "/v1/memory", {"POST"}),
        ("POST", "/v1/pending", {"GET", "HEAD"}),
        ("GET", f"/v1/pending/{NOBODY}/approve", {"POST"}),
        ("DELETE", "/healthz", {"GET", "HEAD"}),
        ("POST", "/.well-known/amp-schema.json", {"GET", "HEAD"}),
    ],
)
def test_wrong_method_is_told_with_the_right_ones(
    client: TestClient, people: People, method: str, path: str, allowed: set[str]
) -> None:
    response = client.request(method, path, headers=people.ada.headers)
    assert error_of(response, 405)["name"] == "WrongMethod"
    assert set(response.headers["allow"].split(", ")) == allowed


def test_pages_of_other_origins_are_let_in_nowhere(client: TestClient, people: People) -> None:
    asked = {"origin": "https://elsewhere.example", "access-control-request-method": "POST"}
    for response in (
        client.options("/v1/memory", headers=asked),
        client.get("/.well-known/amp-schema.json", headers=asked),
        client.get("/v1/pending", headers={**asked, **people.ada.headers}),
    ):
        assert not [name for name in response.headers if name.startswith("access-control")]


# Approval


def waiting(client: TestClient, holder: Holder, query: str = "") -> list[dict[str, Any]]:
    response = client.get(f"/v1/pending{query}", headers=holder.headers)
    assert response.status_code == 200, response.text
    return cast("list[dict[str, Any]]", response.json()["pending"])


def test_write_waits_is_shown_approved_and_then_recalled(client: TestClient, people: People) -> None:
    memory_id = propose(client, people.clerk, "water boils at 100 degrees", tags=["physics"])
    assert result_of(ask(client, people.ada, "recall", memory_type="semantic", query="water")).hits == ()
    (write,) = waiting(client, people.rita)
    assert write["id"] == memory_id
    assert (write["op"], write["writer"], write["agent_id"], write["tags"]) == (
        "remember",
        "clerk",
        "helper",
        ["physics"],
    )
    assert (write["before"], write["after"]) == ([], "water boils at 100 degrees")
    result = result_of(decide(client, people.rita, memory_id, "approve"))
    assert (result.ok, result.approved, result.ids) == (True, True, (memory_id,))
    assert waiting(client, people.rita) == []
    hits = result_of(ask(client, people.ada, "recall", memory_type="semantic", query="water")).hits
    assert [hit.id for hit in hits] == [memory_id]


def test_writer_never_approves_what_is_its_own(client: TestClient, people: People, kept: MemoryStore) -> None:
    memory_id = propose(client, people.ada, "water is dry")
    for how in ("approve", "reject"):
        assert error_of(decide(client, people.ada, memory_id, how), 403)["name"] == "OwnDecision"
    # Another token of the same person is the same person.
    _, secret = people.file.add(" ADA ", ["helper"], [APPROVER])
    assert error_of(decide(client, Holder("", secret), memory_id, "approve"), 403)["name"] == "OwnDecision"
    # Nor does one decide by the name of the agent.
    _, secret = people.file.add("Helper", ["scribe"], [APPROVER])
    assert error_of(decide(client, Holder("", secret), memory_id, "approve"), 404)["name"] == "NotPending"
    assert [write.id for write in kept.pending()] == [memory_id]
    assert result_of(decide(client, people.rita, memory_id, "approve")).approved


def test_rejected_write_is_erased(client: TestClient, people: People, kept: MemoryStore, sqlite_path: Path) -> None:
    memory_id = propose(client, people.clerk, SECRET)
    result = result_of(decide(client, people.rita, memory_id, "reject"))
    assert (result.ok, result.approved) == (False, False)
    assert waiting(client, people.rita) == []
    assert result_of(ask(client, people.ada, "recall", memory_type="semantic", query="swordfish")).hits == ()
    assert SECRET.encode() not in sqlite_path.read_bytes()
    kept.verify_audit()


def test_write_is_decided_once(client: TestClient, people: People) -> None:
    approved = propose(client, people.clerk, "one")
    decide(client, people.rita, approved, "approve")
    for how in ("approve", "reject"):
        assert error_of(decide(client, people.ada, approved, how), 409)["name"] == "AlreadyDecided"
    rejected = propose(client, people.clerk, "two")
    decide(client, people.rita, rejected, "reject")
    assert error_of(decide(client, people.ada, rejected, "approve"), 404)["name"] == "NotPending"


def test_approver_of_another_agent_sees_and_decides_nothing(
    client: TestClient, people: People, kept: MemoryStore
) -> None:
    memory_id = propose(client, people.clerk, "of the helper")
    remembered = remember(kept, "not pending", agent_id="helper")
    assert waiting(client, people.rob) == []
    for how in ("approve", "reject"):
        unknown = error_of(decide(client, people.rob, NOBODY, how), 404)
        for known in (memory_id, remembered):
            told = error_of(decide(client, people.rob, known, how), 404)
            assert told["message"].replace(known, NOBODY) == unknown["message"]
        assert error_of(client.get("/v1/pending?agent_id=helper", headers=people.rob.headers), 403)
    assert len(waiting(client, people.rita)) == 1


def test_pending_writes_come_in_portions(client: TestClient, people: People) -> None:
    ids = [propose(client, people.clerk, f"note {number}") for number in range(5)]
    first = waiting(client, people.rita, "?limit=2")
    rest = waiting(client, people.rita, f"?limit=100&after={first[-1]['number']}&agent_id=helper")
    assert [write["id"] for write in (*first, *rest)] == ids
    assert waiting(client, people.rita, f"?after={rest[-1]['number']}") == []
    assert error_of(client.get("/v1/pending", headers=people.both.headers), 400)["member"] == "agent_id"
    assert waiting(client, people.both, "?agent_id=scribe") == []


@pytest.mark.parametrize(
    ("query", "member"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=1&limit=2", "limit"),
        pytest.param(f"after={'9' * 5000}", "after", id="digits"),
        ("after=1.0", "after"),
        ("agent=helper", "agent"),
        ("%00=1", "\0"),
    ],
)
def test_parameter_that_breaks_a_rule_is_told(people: People, query: str, member: str) -> None:
    error = error_of(serve_with(never, people).get(f"/v1/pending?{query}", headers=people.rita.headers), 400)
    assert error["member"] == member


@pytest.mark.parametrize("memory_id", ["x", NOBODY.upper(), "%2e%2e", NOBODY + "%0A"])
def test_id_that_is_none_is_told(people: People, memory_id: str) -> None:
    response = decide(serve_with(never, people), people.rita, memory_id, "approve")
    assert error_of(response, 400)["member"] == "id"


# Sizes


def test_body_over_the_limit_is_refused_and_one_at_it_is_not(kept: MemoryStore, people: People) -> None:
    body = b'{"op": "recall", "memory_type": "episodic", "query": "x"}'
    client = TestClient(create_app(kept, people.file, Limits(body_bytes=len(body))))
    headers = {**people.ada.headers, **JSON}
    assert client.post("/v1/memory", content=body, headers=headers).status_code == 200
    assert error_of(client.post("/v1/memory", content=body + b" ", headers=headers), 413)["name"] == "BodyTooLarge"
    # Without a length, and with a wrong one.
    parts = [body, b" "]
    assert error_of(client.post("/v1/memory", content=iter(parts), headers=headers), 413)
    lying = {**headers, "content-length": "5"}
    assert error_of(client.post("/v1/memory", content=iter(parts), headers=lying), 413)
    for said in ("9" * 30, str(len(body) + 1)):
        assert error_of(client.post("/v1/memory", content=body, headers={**headers, "content-length": said}), 413)


MANY = {
    "lists": b"[" + b"[]," * 100_000 + b"[]]",
    "objects and commas": b"{" * 50_001 + b"," * 50_000,
    "text with quotes": b'["' + b'\\"",""' * 200_000,
}


@pytest.mark.parametrize("filler", MANY.values(), ids=MANY)
def test_body_of_too_many_parts_is_refused_before_it_is_read(people: People, filler: bytes) -> None:
    body = b'{"op": "remember", "memory_type": "episodic", "content": "x", "metadata": {"a": ' + filler + b"}}"
    response = serve_with(never, people).post("/v1/memory", content=body, headers={**people.ada.headers, **JSON})
    error = error_of(response, 400)
    assert (error["name"], error["member"]) == ("EnvelopeError", "envelope")
    assert "100000 parts" in error["message"]


def test_text_of_any_number_of_signs_is_one_part(client: TestClient, people: People, kept: MemoryStore) -> None:
    content = '[{,"\\' * 200_000
    written = result_of(ask(client, people.ada, "remember", content=content, metadata={"a": [[]] * 20_000}))
    assert kept.show(written.ids[0]).content == content


def test_bodies_under_way_are_bounded_together(kept: MemoryStore, people: People) -> None:
    client = TestClient(create_app(kept, people.file, Limits(held_bytes=100)))
    response = ask(client, people.ada, "remember", content="x" * 100)
    assert error_of(response, 503)["name"] == "ServerBusy"
    assert response.headers["retry-after"] == "1"
    for _ in range(3):  # nothing stays counted
        assert ask(client, people.ada, "remember", content="x").status_code == 200


def test_answer_over_the_limit_is_refused_and_says_to_ask_for_less(kept: MemoryStore, people: People) -> None:
    for _ in range(3):
        remember(kept, "tea " * 200, agent_id="helper")
    client = TestClient(create_app(kept, people.file, Limits(answer_bytes=2600)))
    error = error_of(ask(client, people.ada, "recall", query="tea"), 400)
    assert error["name"] == "AnswerTooLarge"
    assert "top_k" in error["message"]
    assert len(result_of(ask(client, people.ada, "recall", query="tea", top_k=2)).hits) == 2
    for _ in range(3):
        propose(client, people.clerk, "tea " * 200)
    assert error_of(client.get("/v1/pending", headers=people.rita.headers), 400)["name"] == "AnswerTooLarge"
    assert len(waiting(client, people.rita, "?limit=2")) == 2


def test_long_answers_are_bounded_together(kept: MemoryStore, people: People) -> None:
    remember(kept, "tea " * 100_000, agent_id="helper")
    client = TestClient(create_app(kept, people.file, Limits(held_bytes=200_000)))
    assert error_of(ask(client, people.ada, "recall", query="tea"), 503)["name"] == "ServerBusy"
    client = TestClient(create_app(kept, people.file, Limits(held_bytes=500_000)))
    for _ in range(3):  # nothing stays counted
        assert len(result_of(ask(client, people.ada, "recall", query="tea")).hits) == 1


def test_answer_to_a_write_is_never_refused(kept: MemoryStore, people: People) -> None:
    ids = [remember(kept, "tea", agent_id="helper") for _ in range(30)]
    client = TestClient(create_app(kept, people.file, Limits(answer_bytes=100)))
    assert set(result_of(ask(client, people.ada, "forget", memory_ids=ids)).ids) == set(ids)
    memory_id = propose(client, people.clerk, "tea")
    assert result_of(decide(client, people.rita, memory_id, "approve")).ok


@pytest.mark.parametrize("value", [0, -1, "1", None, float("nan")])
def test_limit_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Limits(body_bytes=value)
    assert caught.value.field == "body_bytes"


# Faults, and the log


def test_store_that_others_write_is_busy(client: TestClient, people: People, sqlite_path: Path) -> None:
    with MemoryStore.open(sqlite_path) as other, other.transaction():
        response = ask(client, people.ada, "remember", content="x")
        error = error_of(response, 503)
        assert response.headers["retry-after"] == "1"
        assert ask(client, people.ada, "recall", query="x").status_code == 200
    assert error["name"] == "StoreBusy"
    assert ask(client, people.ada, "remember", content="x").status_code == 200


def test_fault_of_our_own_is_no_trace_and_tells_no_content(people: People, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(SECRET)

    client = serve_with(fail, people)
    with caplog.at_level(logging.DEBUG):
        assert error_of(ask(client, people.ada, "remember", content=SECRET), 500)["name"] == "ServerFault"
        assert error_of(client.get("/healthz"), 500)["name"] == "ServerFault"
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


def test_log_holds_what_was_called_and_nothing_that_was_sent(
    client: TestClient, people: People, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="melete.serving"):
        ask(client, people.ada, "remember", content=SECRET, tags=[SECRET], metadata={SECRET: SECRET})
        ask(client, people.ada, "recall", query="swordfish")
        ask(client, people.ada, "remember", **{"content": SECRET, SECRET: 1})
        ask(client, people.ada, "remember", content=SECRET, agent_id=SECRET)
        client.get(f"/{SECRET}?q={SECRET}")
        client.get(f"/v1/pending?{SECRET}=1", headers=people.rita.headers)
        client.request("SWORDFISH", "/v1/memory")
        client.get("/v1/pending", headers={"authorization": f"Bearer {SECRET}"})
        memory_id = propose(client, people.clerk, SECRET)
        decide(client, people.rita, memory_id, "approve")
    lines = [record.getMessage() for record in caplog.records if record.name == "melete.serving"]
    assert f"post_memory 200 token {people.ada.id}" in lines
    assert f"post_memory 403 token {people.ada.id} OtherAgent" in lines
    assert f"get_pending 400 token {people.rita.id} UnknownMember" in lines
    assert "get_pending 401 token - NotAuthenticated" in lines
    assert f"post_approve 200 token {people.rita.id}" in lines
    assert len(lines) == 10
    logged = "\n".join(lines)
    for word in ("swordfish", "SWORDFISH", "mlt_", people.ada.secret):
        assert word not in logged
