"""The scanner against a chain in memory, whose provider refuses, forgets, lies and is killed."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from melete.chain import logs
from melete.chain.logs import REMEMBERED_BLOCKS, BlockReference, Page, Scanner, load_block, load_transaction
from melete.chain.scan import stride
from melete.chain.scan.form import as_web3
from melete.errors import (
    ChainReorganized,
    InvalidInput,
    MeleteError,
    NodeRefused,
    NodeUnreachable,
    StoreUnreadable,
    UnusableLogs,
)
from melete.primitives import Address, Bytes32, keccak256

CONTRACT = Address(b"\x44" * 20)
TOPIC, OTHER_TOPIC = keccak256(b"Happened()"), keccak256(b"Other()")

# A chain in memory


class Chain:
    """Blocks by number; each knows how many logs it holds. Names of forks make hashes differ."""

    def __init__(self, blocks: int = 1, every: int = 0, each: int = 1) -> None:
        self.blocks: list[tuple[str, int]] = []
        self.grow(blocks, every, each)

    def grow(self, count: int, every: int = 0, each: int = 1, fork: str = "main") -> None:
        for number in range(len(self.blocks), len(self.blocks) + count):
            held = each if every and number % every == 0 else 0
            self.blocks.append((str(keccak256(f"{fork} {number}".encode())), held))

    def replace(self, depth: int, count: int, every: int = 1, fork: str = "fork") -> None:
        """Take away the last blocks, and put others in their place."""
        del self.blocks[len(self.blocks) - depth :]
        self.grow(count, every, fork=fork)

    @property
    def tip(self) -> int:
        return len(self.blocks) - 1

    def logs(self, first: int, last: int) -> list[dict[str, Any]]:
        return [
            make_log(number, index, self.blocks[number][0])
            for number in range(first, min(last, self.tip) + 1)
            for index in range(self.blocks[number][1])
        ]

    def events(self, start: int = 0, end: int | None = None) -> list[tuple[int, int, str]]:
        """What a scan of the chain should give."""
        return [(int(log["blockNumber"], 16), int(log["logIndex"], 16), log["blockHash"])
                for log in self.logs(start, self.tip if end is None else end)]  # fmt: skip


def make_log(number: int, index: int, block_hash: str, **changed: Any) -> dict[str, Any]:
    return {
        "address": "0x" + CONTRACT.hex(),
        "topics": [str(TOPIC)],
        "data": "0x" + number.to_bytes(32, "big").hex(),
        "blockNumber": hex(number),
        "blockHash": block_hash,
        "transactionHash": str(keccak256(f"{block_hash} {index}".encode())),
        "transactionIndex": "0x0",
        "logIndex": hex(index),
        "removed": False,
        **changed,
    }


class Provider:
    """Answers for a chain. `intrude` is called before each request, `most` is the widest range, `refuse` what follows
    when a wider one is asked for, `change` what becomes of logs."""

    endpoint_uri = "http://node.test"

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.most = 10**9
        self.refuse: Callable[[], Any] = lambda: {"error": {"code": -32000, "message": "too wide"}}
        self.change: Callable[[list[dict[str, Any]]], Any] = lambda found: found
        self.intrude: Callable[[str, list[Any]], None] = lambda *_: None
        self.tags = {"latest": 0, "safe": 0, "finalized": 10**9}
        self.ranges: list[tuple[int, int]] = []
        self.refused = 0
        self.asked: list[str] = []
        self.headers: list[int] = []

    def make_request(self, method: str, parameters: list[Any]) -> Any:
        self.asked.append(method)
        self.intrude(method, parameters)
        if method == "eth_chainId":
            return {"result": "0x7a69"}
        if method == "eth_getLogs":
            first, last = (int(parameters[0][name], 16) for name in ("fromBlock", "toBlock"))
            if last - first + 1 > self.most:
                self.refused += 1
                return self.refuse()
            self.ranges.append((first, last))
            return {"result": self.change(self.chain.logs(first, last))}
        assert method == "eth_getBlockByNumber"
        number = self._number(parameters[0])
        self.headers.append(number)
        if not 0 <= number <= self.chain.tip:
            return {"result": None}
        return {"result": {"number": hex(number), "hash": self.chain.blocks[number][0]}}

    def make_batch_request(self, asked: list[tuple[str, list[Any]]]) -> Any:
        return [self.make_request(method, parameters) for method, parameters in asked]

    def _number(self, block: str) -> int:
        return max(0, self.chain.tip - self.tags[block]) if block in self.tags else int(block, 16)


def decode(log: Mapping[str, Any]) -> tuple[int, int, str]:
    if int.from_bytes(log["data"], "big") != log["blockNumber"]:
        raise InvalidInput("log", log["data"], "the number of its block")
    return log["blockNumber"], log["logIndex"], "0x" + log["blockHash"].hex()


def make_scanner(provider: Provider, **options: Any) -> Scanner[tuple[int, int, str]]:
    options.setdefault("sleep", lambda _: None)
    return Scanner(SimpleNamespace(provider=provider), CONTRACT, decode, **options)  # type: ignore[arg-type]


def in_raw_pages(scanner: Scanner[Any]) -> Iterator[Page[tuple[int, int, str]]]:
    """The pages of logs, decoded here."""
    for page in scanner.log_pages():
        yield Page(page.after, page.through, tuple(decode(as_web3(log)) for log in page.events))


class Keeper:
    """Keeps what pages tell, as their docstring says."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, int, str]] = []

    def take(self, page: Page[tuple[int, int, str]]) -> None:
        self.kept = [event for event in self.kept if event[0] <= page.after] + list(page.events)


def refusal(scanner: Scanner[Any]) -> MeleteError:
    with pytest.raises(MeleteError) as caught:
        list(scanner.pages())
    return caught.value


# All of it, in order


@pytest.mark.parametrize("start", [0, 1, 7, 2_500])
def test_events_come_in_order_from_the_block_of_deployment_on(start: int) -> None:
    chain = Chain(5_000, every=3, each=2)
    scanner = make_scanner(Provider(chain), start_block=start)
    assert list(scanner.events()) == chain.events(start)
    assert scanner.position == BlockReference(chain.tip, Bytes32(chain.blocks[-1][0]))


def test_pages_follow_each_other_without_a_gap() -> None:
    chain = Chain(9_000, every=2)
    after, seen = 99, 0
    for page in make_scanner(Provider(chain), start_block=100).pages():
        assert page.after == after
        assert page.through == BlockReference(page.through.number, Bytes32(chain.blocks[page.through.number][0]))
        after, seen = page.through.number, seen + len(page.events)
    assert (after, seen) == (chain.tip, len(chain.events(100)))


def test_pages_of_logs_hold_the_same_and_remember_ends_alone() -> None:
    chain = Chain(9_000, every=2)
    decoding, raw = (make_scanner(Provider(chain), start_block=100) for _ in range(2))
    pages = list(decoding.pages())
    assert list(in_raw_pages(raw)) == pages
    ends = {page.through.number for page in pages} | {99}
    assert {block.number for block in raw._kept} <= ends
    assert not {block.number for block in decoding._kept} <= ends


def test_logs_are_given_as_the_node_wrote_them() -> None:
    chain = Chain(500, every=2)
    assert list(make_scanner(Provider(chain)).logs()) == chain.logs(0, chain.tip)


def test_logs_end_where_the_chain_went_back_behind_them() -> None:
    chain = Chain(60, every=1)
    provider = Provider(chain)
    provider.most = 10
    logs = make_scanner(provider).logs()
    for _ in range(25):
        next(logs)
    chain.replace(45, 50)
    with pytest.raises(ChainReorganized):
        list(logs)


def test_a_second_scan_gives_only_what_is_new() -> None:
    chain = Chain(50, every=1)
    scanner = make_scanner(Provider(chain))
    assert len(list(scanner.events())) == 50
    assert list(scanner.pages()) == []
    chain.grow(3, every=1)
    assert list(scanner.events()) == chain.events(50)


def test_a_first_scan_with_nothing_to_read_says_where_it_stands() -> None:
    chain = Chain(10)
    pages = list(make_scanner(Provider(chain), start_block=10).pages())
    assert [(page.after, page.through.number, page.events) for page in pages] == [(9, 9, ())]


def test_other_events_of_the_contract_are_passed_over() -> None:
    provider = Provider(Chain(20, every=1))
    scanner: Scanner[Any] = Scanner(
        SimpleNamespace(provider=provider), CONTRACT, lambda log: None if log["blockNumber"] % 2 else decode(log)
    )  # type: ignore[arg-type]
    assert [event[0] for event in scanner.events()] == list(range(0, 20, 2))


def test_topics_are_asked_for() -> None:
    provider, asked = Provider(Chain(5, every=1)), []
    provider.intrude = lambda method, parameters: asked.append(parameters[0]) if method == "eth_getLogs" else None
    scanner = make_scanner(provider, topics=(None, TOPIC, (OTHER_TOPIC, TOPIC)))
    provider.change = lambda _: []
    list(scanner.events())
    assert asked[0]["topics"] == [None, [str(TOPIC)], sorted([str(TOPIC), str(OTHER_TOPIC)])]
    assert asked[0]["address"] == str(CONTRACT)


# Up to where


@pytest.mark.parametrize(
    ("until", "confirmations", "end"),
    [("latest", 0, 199), ("latest", 12, 187), ("safe", 0, 189), ("finalized", 0, 150), ("finalized", 7, 143),
     (77, 0, 77), (77, 7, 70)],
)  # fmt: skip
def test_scan_ends_at_the_block_that_was_chosen(until: str | int, confirmations: int, end: int) -> None:
    provider = Provider(Chain(200, every=1))
    provider.tags = {"latest": 0, "safe": 10, "finalized": 49}
    scanner = make_scanner(provider, until=until, confirmations=confirmations)
    assert list(scanner.events()) == provider.chain.events(0, end)
    assert scanner.position.number == end


def test_more_confirmations_than_blocks_leave_nothing_to_read() -> None:
    assert list(make_scanner(Provider(Chain(5, every=1)), confirmations=12).events()) == []


def test_a_block_that_the_node_does_not_have_is_refused_by_name() -> None:
    error = refusal(make_scanner(Provider(Chain(5)), until=9))
    assert isinstance(error, NodeRefused)
    assert "no block 9" in str(error)


# Ranges that the provider refuses


def http_error(status: int, text: str = "") -> requests.HTTPError:
    response = requests.Response()
    response.status_code, response._content = status, text.encode()
    return requests.HTTPError(f"{status} error", response=response)


def raising(error: Exception) -> Callable[[], Any]:
    def refuse() -> Any:
        raise error

    return refuse


def answering(code: int, message: str) -> Callable[[], Any]:
    return lambda: {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}}


REFUSALS: dict[str, Callable[[], Any]] = {
    "invalid_params": answering(-32602, "exceed maximum block range: 1000"),
    "limit_exceeded": answering(-32005, "query returned more than 10000 results"),
    "server_error": answering(-32000, "block range is too wide"),
    "internal_error": answering(-32603, "internal error"),
    "other_code": answering(-32012, "Log response size exceeded. You can make eth_getLogs requests with [0x0, 0x9]"),
    "no_words": answering(35, ""),
    "error_is_text": lambda: {"error": "query timeout exceeded"},
    "no_result": lambda: {"jsonrpc": "2.0", "id": 1},
    "null_result": lambda: {"result": None},
    "no_response": lambda: [],
    "http_413": raising(http_error(413)),
    "http_400_with_text": raising(http_error(400, "block range extends beyond limit")),
    "http_500": raising(http_error(500)),
    "http_502": raising(http_error(502, "<html>bad gateway</html>")),
    "http_504": raising(http_error(504)),
    "timeout": raising(requests.ReadTimeout("read timed out")),
    "socket_timeout": raising(TimeoutError()),
    "cut_off": raising(requests.exceptions.ChunkedEncodingError("Response ended prematurely")),
    "dropped": raising(requests.ConnectionError("('Connection aborted.', RemoteDisconnected())")),
    "no_json": raising(json.JSONDecodeError("Expecting value", "<html>", 0)),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_ranges_are_split_by_whatever_the_provider_says(kind: str) -> None:
    provider = Provider(Chain(30_000, every=7))
    provider.most, provider.refuse = 1_000, REFUSALS[kind]
    assert list(make_scanner(provider, start_block=3).events()) == provider.chain.events(3)
    widths = [last - first + 1 for first, last in provider.ranges]
    assert max(widths) > 850, "the size just below what is refused is found"
    assert provider.refused < 10, "and is kept"


@pytest.mark.parametrize("most", [1, 2, 3, 999])
def test_any_limit_is_met(most: int) -> None:
    provider = Provider(Chain(3_000, every=5))
    provider.most = most
    assert list(make_scanner(provider).events()) == provider.chain.events()


def test_range_grows_again_when_the_provider_gives_more() -> None:
    provider = Provider(Chain(60_000, every=50))
    provider.most = 10

    def widen(method: str, parameters: list[Any]) -> None:
        if len(provider.ranges) == 100:
            provider.most = 10**9

    provider.intrude = widen
    assert list(make_scanner(provider).events()) == provider.chain.events()
    assert len(provider.ranges) < 300


def test_a_dense_part_of_the_chain_is_read_in_smaller_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stride, "PAGE_LOGS", 100)
    chain = Chain(600)
    chain.grow(1_500, every=1, each=10)
    sizes = [len(page.events) for page in make_scanner(Provider(chain)).pages()]
    assert sum(sizes) == 15_000
    first = next(number for number, size in enumerate(sizes) if size)
    assert max(sizes[first + 2 :]) <= 100


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_single_block_that_is_refused_for_good_is_an_error_of_ours(kind: str) -> None:
    provider = Provider(Chain(2_000))
    provider.most, provider.refuse = 0, REFUSALS[kind]
    error = refusal(make_scanner(provider))
    assert isinstance(error, NodeRefused)
    assert provider.refused < 20


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (http_error(401), NodeUnreachable),
        (http_error(403), NodeUnreachable),
        (http_error(404), NodeUnreachable),
        (requests.ConnectionError("Connection refused"), NodeUnreachable),
        (requests.ConnectTimeout("timed out"), NodeUnreachable),
        (FileNotFoundError("No such file"), NodeUnreachable),
    ],
)
def test_a_node_that_is_not_there_is_told_at_once(error: Exception, kind: type[MeleteError]) -> None:
    provider = Provider(Chain(2_000))
    provider.most, provider.refuse = 0, raising(error)
    assert isinstance(refusal(make_scanner(provider)), kind)
    assert provider.refused == 1


@pytest.mark.parametrize(
    "refuse",
    [raising(http_error(429)), answering(-32005, "project ID request rate exceeded"),
     answering(429, "Too Many Requests"), raising(http_error(503, "rate limit reached"))],
)  # fmt: skip
def test_who_asks_for_a_pause_gets_one_and_the_same_request_again(refuse: Callable[[], Any]) -> None:
    provider, pauses = Provider(Chain(90, every=4)), []
    provider.most, provider.refuse = 0, refuse

    def relent(seconds: float) -> None:
        pauses.append(seconds)
        provider.most = 10**9 if len(pauses) == 3 else 0

    assert list(make_scanner(provider, sleep=relent).events()) == provider.chain.events()
    assert pauses == sorted(pauses)
    assert provider.ranges == [(0, 89)]


def test_provider_of_web3_does_not_repeat_what_was_refused(tmp_path: Path) -> None:
    from web3 import HTTPProvider

    class Refusing(HTTPProvider):
        posts: list[bytes] = []

        def make_request(self, method: Any, params: Any) -> Any:
            if method == "eth_getLogs" and int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16) >= 1_000:
                assert self.exception_retry_configuration is None
                raise http_error(413)
            return inner.make_request(method, params)

        def make_batch_request(self, asked: Any) -> Any:
            return inner.make_batch_request(asked)

    inner = Provider(Chain(2_500, every=9))
    provider = Refusing("http://node.test")
    assert list(make_scanner(provider).events()) == inner.chain.events()  # type: ignore[arg-type]
    assert provider.exception_retry_configuration is not None, "the connection's own provider stays as it was"


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: {"error": {"code": -32600, "message": "batches are not allowed"}},
        lambda _: [{"result": None}],
        lambda asked: [{"error": {"code": -32005, "message": "batch too large"}} for _ in asked],
        lambda _: raising(http_error(413))(),
        lambda _: raising(NotImplementedError())(),
    ],
)
def test_a_provider_without_batches_is_asked_one_by_one(answer: Callable[..., Any]) -> None:
    provider = Provider(Chain(40, every=1))
    batches: list[int] = []

    def refuse(asked: Any) -> Any:
        batches.append(len(asked))
        return answer(asked)

    provider.make_batch_request = refuse  # type: ignore[method-assign]
    scanner = make_scanner(provider)
    assert list(scanner.events()) == provider.chain.events()
    asked = list(batches)
    assert asked == sorted(set(asked), reverse=True)  # fewer each time, or none after the first
    provider.chain.grow(40, every=1)
    assert list(scanner.events()) == provider.chain.events(40)
    assert batches == asked


# Logs that are not the chain's


def at_block(number: int, **changed: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Change the log of one block."""
    return lambda found: [{**log, **changed} if log["blockNumber"] == hex(number) else log for log in found]


def swapped(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found[1], found[0], *found[2:]] if len(found) > 1 else found


LIES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "orphaned": at_block(7, blockHash=str(keccak256(b"an uncle"))),
    "orphaned_last_block": at_block(19, blockHash=str(keccak256(b"an uncle"))),
    "removed": at_block(7, removed=True),
    "of_another_contract": at_block(7, address="0x" + "55" * 20),
    "of_a_later_block": at_block(7, blockNumber=hex(99)),
    "of_an_earlier_block": at_block(7, blockNumber=hex(3)),
    "of_other_topics": at_block(7, topics=[str(OTHER_TOPIC)]),
    "without_topics": at_block(7, topics=[]),
    "twice": lambda found: [log for log in found for _ in range(2)],
    "out_of_order": swapped,
    "backwards": lambda found: found[::-1],
    "pending": at_block(7, blockHash=None, blockNumber=None),
    "without_index": lambda found: [{k: v for k, v in log.items() if k != "logIndex"} for log in found],
    "text": lambda _: ["log"] * 3,
    "data_of_another_length": at_block(7, data="0x00"),
    "data_that_is_no_hex": at_block(7, data="0xzz"),
    "data_of_another_event": at_block(7, data="0x" + "00" * 32),
    "number": at_block(7, blockNumber=7),
}


@pytest.mark.parametrize("lie", LIES)
def test_logs_that_are_not_the_chains_are_refused(lie: str) -> None:
    provider = Provider(Chain(20, every=1))
    provider.change = LIES[lie]
    scanner = make_scanner(provider, topics=(TOPIC,))
    assert isinstance(refusal(scanner), UnusableLogs)
    assert scanner.position.number == -1, "nothing of it was taken"


def test_two_hashes_for_one_block_are_refused() -> None:
    provider = Provider(Chain(9, every=3, each=2))
    provider.change = lambda found: [
        {**log, "blockHash": str(keccak256(b"an uncle"))} if log["logIndex"] == "0x1" else log for log in found
    ]
    assert isinstance(refusal(make_scanner(provider)), UnusableLogs)


@pytest.mark.parametrize("lie", ["orphaned", "removed"])
def test_logs_that_were_orphaned_while_they_were_read_are_read_again(lie: str) -> None:
    provider = Provider(Chain(20, every=1))
    answers = iter([LIES[lie], LIES[lie]])
    provider.change = lambda found: next(answers, lambda same: same)(found)
    assert list(make_scanner(provider).events()) == provider.chain.events()


def test_hashes_are_compared_whatever_their_case() -> None:
    provider = Provider(Chain(20, every=1))
    provider.change = lambda found: [{**log, "blockHash": "0x" + log["blockHash"][2:].upper()} for log in found]
    assert list(make_scanner(provider).events()) == provider.chain.events()


def test_final_blocks_are_compared_only_where_that_is_asked_for() -> None:
    provider = Provider(Chain(1_000, every=2))
    provider.tags["finalized"] = 20
    assert list(make_scanner(provider).events()) == provider.chain.events()
    asked = set(provider.headers)
    assert {980, 982, 998} <= asked
    assert len(asked & set(range(979))) < 10, "the ends of pages"
    for block, options in ((990, {}), (500, {"compare_final": True})):
        provider.change = at_block(block, blockHash=str(keccak256(b"an uncle")))
        assert isinstance(refusal(make_scanner(provider, **options)), UnusableLogs)


def test_every_block_is_compared_where_the_node_knows_no_final_one() -> None:
    provider = Provider(Chain(20, every=1))
    honest = provider.make_request
    provider.make_request = (
        lambda method, parameters: (  # type: ignore[method-assign]
            answering(-32602, "unknown block tag")() if parameters[:1] == ["finalized"] else honest(method, parameters)
        )
    )
    assert list(make_scanner(provider).events()) == provider.chain.events()
    provider.change = LIES["orphaned"]
    assert isinstance(refusal(make_scanner(provider)), UnusableLogs)


@pytest.mark.parametrize("found", [{"number": "0x1", "hash": "0x" + "11" * 32}, {"hash": "0x"}, {}, "block", 7])
def test_a_header_of_another_block_or_of_none_is_refused(found: Any) -> None:
    provider = Provider(Chain(20, every=1))
    honest = provider.make_request
    provider.make_request = lambda method, parameters: (  # type: ignore[method-assign]
        {"result": found} if parameters and parameters[0] == hex(7) else honest(method, parameters)
    )
    assert isinstance(refusal(make_scanner(provider)), NodeRefused)


# Reorganizations


@given(
    st.integers(1, 60),
    st.integers(0, 70),
    st.integers(0, 8),
    st.integers(1, 9),
    st.booleans(),
)
def test_what_pages_tell_is_the_chain_whenever_it_reorganizes(
    depth: int, count: int, after_pages: int, most: int, lies_below: bool
) -> None:
    provider = Provider(Chain(60, every=1))
    provider.most = most
    scanner, keeper = make_scanner(provider, start_block=5 if lies_below else 0), Keeper()
    for number, page in enumerate(scanner.pages()):
        keeper.take(page)
        if number == after_pages:
            provider.chain.replace(depth, max(count, 6 if depth > 54 else 1))
    for page in scanner.pages():
        keeper.take(page)
    assert keeper.kept == provider.chain.events(5 if lies_below else 0)


@given(st.integers(0, 120), st.integers(1, 59), st.integers(1, 9))
def test_a_reorganization_in_the_middle_of_a_page_leaves_no_trace(at: int, depth: int, most: int) -> None:
    provider, keeper = Provider(Chain(60, every=2)), Keeper()
    provider.most = most

    def reorganize(method: str, parameters: list[Any]) -> None:
        if len(provider.asked) == at + 1:
            provider.chain.replace(depth, depth + 1)

    provider.intrude = reorganize
    scanner = make_scanner(provider)
    for _ in range(2):
        for page in scanner.pages():
            keeper.take(page)
    assert keeper.kept == provider.chain.events()


def test_a_branch_that_wins_while_the_logs_of_the_other_arrive_is_read_at_once() -> None:
    """The branch that lost has no logs at all, so there is none whose block could betray it."""
    provider = Provider(Chain(30))

    def win(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(provider.ranges) == 1:
            provider.chain.replace(10, 10)
        return found

    provider.change = win
    events = list(make_scanner(provider).events())
    assert len(events) == 10
    assert events == provider.chain.events()


def test_a_branch_that_wins_while_a_range_is_refused_is_told() -> None:
    provider = Provider(Chain(300, every=1))
    provider.most = logs.FIRST_BLOCKS

    def win() -> Any:
        if provider.refused == 1:
            provider.chain.replace(250, 250)
        return {"error": {"code": -32000, "message": "too wide"}}

    provider.refuse = win
    with pytest.raises(ChainReorganized) as caught:
        list(make_scanner(provider).events())
    assert caught.value.block_number < 50


def test_chain_that_got_shorter_is_told_without_anything_new_to_read() -> None:
    provider, keeper = Provider(Chain(30, every=1)), Keeper()
    provider.most = 5
    scanner = make_scanner(provider)
    for page in scanner.pages():
        keeper.take(page)
    del provider.chain.blocks[18:]
    for page in scanner.pages():
        keeper.take(page)
    assert keeper.kept == provider.chain.events()


def test_events_alone_cannot_be_taken_back_so_the_caller_is_told() -> None:
    provider = Provider(Chain(30, every=1))
    provider.most = 10
    scanner = make_scanner(provider)
    events = scanner.events()
    taken = [next(events) for _ in range(25)]
    assert taken[-1][0] == 24
    provider.chain.replace(15, 20)
    with pytest.raises(ChainReorganized) as caught:
        list(events)
    common = caught.value.block_number
    assert common < 15
    kept = [event for event in taken if event[0] <= common]
    assert kept + list(scanner.events()) == provider.chain.events()


def test_a_chain_that_never_stops_changing_is_given_up() -> None:
    provider = Provider(Chain(30, every=1))
    names = iter(range(10**6))
    provider.intrude = lambda *_: provider.chain.replace(10, 10, fork=str(next(names)))
    assert isinstance(refusal(make_scanner(provider)), UnusableLogs)


def test_block_hashes_are_kept_more_densely_the_younger_they_are() -> None:
    provider = Provider(Chain(5_000, every=1))
    provider.most = 10
    scanner = make_scanner(provider)
    list(scanner.events())
    numbers = [block.number for block in scanner._kept]
    assert len(numbers) < 200
    assert numbers[0] == -1
    assert numbers[-REMEMBERED_BLOCKS:] == list(range(5_000 - REMEMBERED_BLOCKS, 5_000))
    provider.chain.replace(2_000, 2_000)
    again = next(iter(scanner.pages()))
    assert 2_500 < again.after < 3_000, "a deep reorganization does not lead back to the very start"


# The state file


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("reorganized", [False, True])
def test_scan_goes_on_after_a_kill_at_any_step(tmp_path: Path, reorganized: bool) -> None:
    """Killed before each request in turn, and after it took each page, before it asked for the next."""
    chain = Chain(25, every=2)
    steps = 0
    while True:
        provider, keeper, state_file = Provider(Chain(25, every=2)), Keeper(), tmp_path / f"{steps}.json"
        provider.most = 6
        budget = steps

        def live(method: str = "", parameters: Any = None) -> None:
            nonlocal budget
            if budget == 0:
                raise Killed
            budget -= 1

        provider.intrude = live
        try:
            for page in make_scanner(provider, state_file=state_file).pages():
                keeper.take(page)
                live()
            break
        except Killed:
            pass
        provider.intrude = lambda *_: None
        if reorganized:
            provider.chain.replace(9, 10)
        for page in make_scanner(provider, state_file=state_file).pages():
            keeper.take(page)
        assert keeper.kept == provider.chain.events(), steps
        steps += 1
    assert keeper.kept == chain.events()
    assert steps > 20


def test_state_file_saves_the_blocks_that_were_read(tmp_path: Path) -> None:
    state_file = tmp_path / "deep" / "scan.json"
    provider = Provider(Chain(500, every=3))
    provider.most = 50
    list(make_scanner(provider, state_file=state_file).events())
    provider.ranges.clear()
    scanner = make_scanner(provider, state_file=state_file)
    assert scanner.position.number == 499
    provider.chain.grow(40, every=3)
    assert list(scanner.events()) == provider.chain.events(500)
    assert provider.ranges == [(500, 539)]
    assert [path.name for path in state_file.parent.iterdir()] == ["scan.json"]


def test_learned_size_is_remembered(tmp_path: Path) -> None:
    state_file = tmp_path / "scan.json"
    provider = Provider(Chain(3_000))
    provider.most = 70
    list(make_scanner(provider, state_file=state_file).events())
    provider.chain.grow(3_000)
    provider.ranges.clear()
    provider.refused = 0
    list(make_scanner(provider, state_file=state_file).events())
    assert provider.ranges[0][1] - provider.ranges[0][0] + 1 > 50


@pytest.mark.parametrize(
    ("options", "member"),
    [({"start_block": 1}, "startBlock"), ({"topics": (TOPIC,)}, "topics"), ({"topics": (None,)}, "topics")],
)
def test_state_of_another_scan_is_refused(tmp_path: Path, options: dict[str, Any], member: str) -> None:
    state_file = tmp_path / "scan.json"
    provider = Provider(Chain(5))
    list(make_scanner(provider, state_file=state_file).events())
    before = state_file.read_bytes()
    with pytest.raises(StoreUnreadable, match=member):
        make_scanner(provider, state_file=state_file, **options)
    assert state_file.read_bytes() == before


@pytest.mark.parametrize("member", ["format", "chainId", "address"])
def test_state_of_another_chain_contract_or_format_is_refused(tmp_path: Path, member: str) -> None:
    state_file = tmp_path / "scan.json"
    list(make_scanner(Provider(Chain(5)), state_file=state_file).events())
    state = json.loads(state_file.read_text())
    state_file.write_text(json.dumps({**state, member: "other"}))
    with pytest.raises(StoreUnreadable, match=member):
        make_scanner(Provider(Chain(5)), state_file=state_file)


@pytest.mark.parametrize("cut", [0, 1, 20, 100, -2])
def test_truncated_state_is_refused(tmp_path: Path, cut: int) -> None:
    state_file = tmp_path / "scan.json"
    list(make_scanner(Provider(Chain(5)), state_file=state_file).events())
    state_file.write_bytes(state_file.read_bytes()[:cut])
    with pytest.raises(StoreUnreadable, match=r"scan\.json"):
        make_scanner(Provider(Chain(5)), state_file=state_file)


@pytest.mark.parametrize(
    "blocks",
    [None, [], {}, [[0]], [["0", "0x" + "11" * 32]], [[-1, "0x11"]], [[-2, "0x" + "11" * 32]],
     [[0, "0x" + "11" * 32]], [[-1, "0x" + "11" * 32], [5, "0x" + "11" * 32], [4, "0x" + "11" * 32]],
     [[-1, "0x" + "11" * 32], [True, "0x" + "11" * 32]]],
)  # fmt: skip
def test_state_with_impossible_blocks_is_refused(tmp_path: Path, blocks: Any) -> None:
    state_file = tmp_path / "scan.json"
    list(make_scanner(Provider(Chain(5)), state_file=state_file).events())
    state_file.write_text(json.dumps({**json.loads(state_file.read_text()), "blocks": blocks}))
    with pytest.raises(StoreUnreadable):
        make_scanner(Provider(Chain(5)), state_file=state_file)


@pytest.mark.parametrize("state", ["[]", "7", '"state"', "null"])
def test_a_file_that_holds_no_state_is_refused(tmp_path: Path, state: str) -> None:
    (tmp_path / "scan.json").write_text(state)
    with pytest.raises(StoreUnreadable):
        make_scanner(Provider(Chain(5)), state_file=tmp_path / "scan.json")


# Memory


def peak_memory(blocks: int) -> int:
    chain = Chain(blocks, every=1)
    provider = Provider(chain)
    provider.most = 200
    scanner = make_scanner(provider)
    tracemalloc.start()
    try:
        assert sum(1 for _ in scanner.events()) == blocks
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_chain_five_times_as_long_takes_no_more_memory() -> None:
    peak_memory(600)
    # What the provider remembers of its requests takes some; a kept event would be some hundred bytes.
    assert peak_memory(5_000) < peak_memory(1_000) + 600_000


# A block, a transaction


def test_block_is_loaded_by_number_and_by_tag() -> None:
    provider = Provider(Chain(9))
    w3: Any = SimpleNamespace(provider=provider)
    assert load_block(w3, 3) == BlockReference(3, Bytes32(provider.chain.blocks[3][0]))
    assert load_block(w3, "latest").number == 8
    with pytest.raises(NodeRefused, match="no block 9"):
        load_block(w3, 9)


@pytest.mark.parametrize("result", [None, {}, "text", {"from": "0x", "to": None, "input": "0x"}, {"from": None}])
def test_transaction_that_the_node_does_not_have_is_refused(result: Any) -> None:
    w3: Any = SimpleNamespace(
        provider=SimpleNamespace(make_request=lambda *_: {"result": result}, endpoint_uri="http://node.test")
    )
    with pytest.raises(NodeRefused, match="no transaction"):
        load_transaction(w3, TOPIC)
