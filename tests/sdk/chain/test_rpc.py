"""Batches, to providers that take few, none, or fail once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import requests

from melete.chain import rpc
from melete.chain.rpc import MOST_AT_ONCE, batch
from melete.errors import NodeUnreachable

ASKED: list[tuple[str, list[Any]]] = [("echo", [number]) for number in range(2 * MOST_AT_ONCE + 7)]


class Provider:
    """Echoes; takes `most` requests at a time, and `refuse`s more."""

    endpoint_uri = "http://node.test"

    def __init__(self, most: int = 10**9) -> None:
        self.most, self.sizes = most, []  # type: ignore[var-annotated]
        self.refuse: Any = lambda _: {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "too many"}}

    def make_request(self, _: str, parameters: list[Any]) -> Any:
        self.sizes.append(1)
        return {"result": parameters[0]}

    def make_batch_request(self, asked: list[tuple[str, list[Any]]]) -> Any:
        self.sizes.append(len(asked))
        if len(asked) > self.most:
            return self.refuse(len(asked))
        return [{"result": parameters[0]} for _, parameters in asked]


def ask(provider: Any) -> list[Any]:
    return [answer.result for answer in batch(SimpleNamespace(provider=provider), ASKED)]  # type: ignore[arg-type]


def failing(status: int) -> Any:
    def refuse(_: int) -> Any:
        response = requests.Response()
        response.status_code = status
        raise requests.HTTPError(str(status), response=response)

    return refuse


@pytest.mark.parametrize("most", [1, 2, 7, 100, 10**9])
def test_answers_come_in_order_however_many_are_taken(most: int) -> None:
    provider = Provider(most)
    assert ask(provider) == list(range(len(ASKED)))
    assert max(provider.sizes) <= MOST_AT_ONCE
    before = len(provider.sizes)
    assert ask(provider) == list(range(len(ASKED)))
    assert all(size <= most for size in provider.sizes[before:]), "it is not asked for too many a second time"


@pytest.mark.parametrize("answer", [None, [], "no", {"error": "x"}, [{"result": 1}]])
def test_an_answer_that_is_no_list_of_so_many_is_a_refusal(answer: Any) -> None:
    provider = Provider(5)
    provider.refuse = lambda _: answer
    assert ask(provider) == list(range(len(ASKED)))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_status_may_say_that_it_was_too_much(status: int) -> None:
    provider = Provider(9)
    provider.refuse = failing(status)
    assert ask(provider) == list(range(len(ASKED)))


def test_trouble_that_passes_is_not_taken_for_a_limit() -> None:
    provider = Provider(0)
    provider.refuse = lambda size: (setattr(provider, "most", 10**9), failing(503)(size))
    assert ask(provider) == list(range(len(ASKED)))
    provider.sizes.clear()
    ask(provider)
    assert provider.sizes[0] == MOST_AT_ONCE


def test_a_limit_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(10)
    ask(provider)
    provider.most = 10**9
    now = rpc.time.monotonic()
    monkeypatch.setattr(rpc.time, "monotonic", lambda: now + 2 * rpc.LIMIT_SECONDS)
    provider.sizes.clear()
    ask(provider)
    assert provider.sizes[0] == MOST_AT_ONCE


@pytest.mark.parametrize("status", [401, 403, 404, 429])
def test_no_access_is_told_at_once(status: int) -> None:
    provider = Provider(1)
    provider.refuse = failing(status)
    with pytest.raises(NodeUnreachable):
        ask(provider)
    assert provider.sizes == [MOST_AT_ONCE]


def test_a_provider_without_batches_is_asked_one_by_one() -> None:
    provider = Provider()
    single = SimpleNamespace(make_request=provider.make_request, endpoint_uri="x")
    assert ask(single) == list(range(len(ASKED)))
