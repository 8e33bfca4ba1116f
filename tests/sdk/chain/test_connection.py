from __future__ import annotations

import gc
import json
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from eth_abi import encode
from eth_utils import keccak

from melete.chain import connection
from melete.chain.connection import call, check_chain, connect, require_code, url_without_secrets
from melete.chain.logs import Scanner, load_block
from melete.chain.rpc import one
from melete.errors import (
    BadSequence,
    ConfigurationError,
    ContractError,
    CouldNotTell,
    EmptyRevert,
    ExecutionHalted,
    InvalidInput,
    MissingExtra,
    NoContract,
    NodeRefused,
    NodeUnreachable,
    RevertReason,
    WrongChain,
)
from melete.memory.registry import MemoryRegistry
from melete.primitives import ZERO_BYTES32, Address

REGISTRY = Address(b"\x44" * 20)

# A web server of its own, which says what a test tells it to say


class Server:
    """Answers every request with `answer(method, params)`, or with `body` as it is."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.status = 200
        self.body: bytes | None = None
        self.answers: dict[str, Any] = {}
        self.asked: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reply(self, request: bytes) -> bytes:
        if self.body is not None:
            return self.body
        asked = json.loads(request)
        self.asked.append(asked)
        return json.dumps({"jsonrpc": "2.0", "id": asked["id"], **self.answers[asked["method"]]}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = told.reply(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(told.status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        told = Server(listening.server_port)
        told.answers = {"eth_chainId": {"result": "0x7a69"}}
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield told
        listening.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """web3 asks again a few times before it gives up; nothing is learned from the pauses."""
    monkeypatch.setattr(time, "sleep", lambda _: None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# A node


def test_connect_asks_the_node_for_its_chain(server: Server) -> None:
    w3 = connect(server.url, 31337)
    assert check_chain(w3, None) == 31337
    assert server.asked[0]["method"] == "eth_chainId"


def test_connect_refuses_the_node_of_another_chain(server: Server) -> None:
    with pytest.raises(WrongChain) as caught:
        connect(server.url, 1)
    assert (caught.value.expected, caught.value.received) == (1, 31337)


def test_address_without_code_is_no_contract(server: Server) -> None:
    server.answers["eth_getCode"] = {"result": "0x"}
    w3 = connect(server.url)
    with pytest.raises(NoContract) as caught:
        require_code(w3, REGISTRY)
    assert (caught.value.address, caught.value.chain_id) == (REGISTRY, 31337)
    assert str(REGISTRY) in str(caught.value)


def test_code_and_answers_come_back_as_bytes(server: Server) -> None:
    server.answers |= {"eth_getCode": {"result": "0x6001"}, "eth_call": {"result": "0x" + "11" * 32}}
    w3 = connect(server.url)
    assert require_code(w3, REGISTRY) == b"\x60\x01"
    assert call(w3, REGISTRY, b"\x01\x02\x03\x04", sender=Address(b"\x22" * 20)) == b"\x11" * 32
    request, block = next(asked["params"] for asked in server.asked if asked["method"] == "eth_call")
    assert block == "latest"
    assert request == {"to": str(REGISTRY), "data": "0x01020304", "from": str(Address(b"\x22" * 20))}


BAD_SEQUENCE = "0x" + (keccak(text="BadSequence(uint64,uint64)")[:4] + encode(["uint64"] * 2, [5, 9])).hex()


@pytest.mark.parametrize(
    "error",
    [
        {"code": 3, "message": "execution reverted", "data": BAD_SEQUENCE},
        {"code": 3, "message": "execution reverted: custom error 0x607f66d9", "data": BAD_SEQUENCE},
        {"code": -32000, "message": "execution reverted", "data": BAD_SEQUENCE},
        {"code": -32603, "message": "Error: VM Exception: reverted", "data": {"data": BAD_SEQUENCE}},
    ],
    ids=["geth", "anvil", "older_nodes", "wrapped_once_more"],
)
def test_revert_of_a_call_is_the_error_of_the_contract(server: Server, error: Any) -> None:
    server.answers["eth_call"] = {"error": error}
    w3 = connect(server.url)
    with pytest.raises(BadSequence) as caught:
        call(w3, REGISTRY, b"")
    assert (caught.value.expected, caught.value.received) == (5, 9)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x"}, EmptyRevert),
        ({"code": 3, "message": "execution reverted"}, EmptyRevert),
        ({"code": 3, "message": "execution reverted: not today"}, RevertReason),
    ],
    ids=["empty_data", "no_data", "only_words"],
)
def test_revert_without_data_is_named_too(server: Server, error: Any, kind: type[ContractError]) -> None:
    server.answers["eth_call"] = {"error": error}
    with pytest.raises(kind):
        call(connect(server.url), REGISTRY, b"")


def test_refusal_of_a_node_is_no_revert_and_its_words_are_made_safe(server: Server) -> None:
    server.answers["eth_call"] = {"error": {"code": -32005, "message": "limit \x1b[31mexceeded\n" + "A" * 10_000}}
    with pytest.raises(NodeRefused) as caught:
        call(connect(server.url), REGISTRY, b"")
    message = str(caught.value)
    assert "eth_call" in message
    assert "exceeded" in message
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize(
    "answer",
    [{"error": "oops"}, {"error": {}}, {"hello": "world"}, {"result": "0xzz"}],
    ids=json.dumps,
)
def test_answer_to_a_call_that_is_none_leaves_the_question_open(server: Server, answer: Any) -> None:
    server.answers["eth_call"] = answer
    w3 = connect(server.url)
    with pytest.raises(CouldNotTell):
        call(w3, REGISTRY, b"")


@pytest.mark.parametrize(
    "error",
    [
        {"code": -32000, "message": "out of gas"},
        {"code": -32000, "message": "invalid opcode: INVALID"},
        {"code": -32000, "message": "invalid opcode: opcode 0xc not defined"},
        {"code": -32000, "message": "invalid jump destination"},
        {"code": -32000, "message": "stack underflow (0 <=> 2)"},
        {"code": -32000, "message": "stack limit reached 1024 (1023)"},
        {"code": -32000, "message": "write protection"},
        {"code": -32003, "message": "EVM error OutOfGas"},
        {"code": -32003, "message": "EVM error InvalidFEOpcode"},
        {"code": -32603, "message": "EVM error: OpcodeNotFound"},
        {"code": -32003, "message": "EVM error MemoryOOG"},
        {"code": -32003, "message": "out of gas: gas required exceeds: 30000000"},
        {"code": -32015, "message": "VM execution error.", "data": "OutOfGas"},
        {"code": -32015, "message": "VM execution error.", "data": "BadInstruction"},
        {"code": -32603, "message": "VM Exception while processing transaction: invalid opcode"},
    ],
    ids=lambda error: f"{error['message']} {error.get('data', '')}".strip(),
)
def test_code_that_the_machine_stops_is_no_refusal_of_the_node(server: Server, error: Any) -> None:
    server.answers |= {"eth_call": {"error": error}, "eth_estimateGas": {"error": error}}
    w3 = connect(server.url)
    with pytest.raises(ExecutionHalted):
        call(w3, REGISTRY, b"")
    with pytest.raises(NodeRefused):  # what sends gas may have been given too little of it
        one(w3, "eth_estimateGas", [{}])


@pytest.mark.parametrize(
    "message",
    [
        "out of gas: gas required exceeds allowance: 21000",
        "gas required exceeds allowance (0)",
        "insufficient funds for gas * price + value",
        "requested block range out of bounds",
        "method not activated for this key",
        "execution timeout",
    ],
)
def test_what_the_node_itself_does_not_allow_says_nothing_of_the_code(server: Server, message: str) -> None:
    server.answers["eth_call"] = {"error": {"code": -32000, "message": message}}
    with pytest.raises(NodeRefused):
        call(connect(server.url), REGISTRY, b"")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ({"code": -32601, "message": "no such method"}, "no such method (code -32601)"),
        ({"message": "no"}, "'no'"),
        ("oops", "'oops'"),
        ({"code": 7, "details": {"a": [1]}}, "an error without a message"),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["eth_chainId", "eth_call", "eth_getCode", "eth_getBlockByNumber"])
def test_refusal_shows_message_and_code_and_no_dictionary(server: Server, method: str, error: Any, shown: str) -> None:
    w3 = connect(server.url)
    server.answers[method] = {"error": error}
    ask = {
        "eth_chainId": lambda: check_chain(w3, None),
        "eth_call": lambda: call(w3, REGISTRY, b""),
        "eth_getCode": lambda: require_code(w3, REGISTRY),
        "eth_getBlockByNumber": lambda: load_block(w3, 7),
    }
    with pytest.raises(NodeRefused) as caught:
        ask[method]()
    assert shown in str(caught.value) or "no JSON-RPC response" in str(caught.value)
    assert "{" not in str(caught.value)


@pytest.mark.parametrize("url", [None, 7, b"http://127.0.0.1:1", ["http://127.0.0.1:1"]], ids=repr)
def test_what_is_no_text_is_no_url(url: Any) -> None:
    with pytest.raises(InvalidInput, match="url"):
        connect(url)


@pytest.mark.parametrize("w3", [None, "http://127.0.0.1:1", 7], ids=repr)
def test_what_is_no_connection_is_refused_by_name(w3: Any) -> None:
    for use in (
        lambda: check_chain(w3, None),
        lambda: MemoryRegistry(w3, REGISTRY),
        lambda: Scanner(w3, REGISTRY, lambda log: log),
    ):
        with pytest.raises(InvalidInput, match="w3"):
            use()


@pytest.mark.parametrize("block", ["junk", "", "0x1", -5, 2**64, True, 1.5, None, b"latest"], ids=repr)
def test_what_names_no_block_is_refused_before_the_node_is_asked(server: Server, block: Any) -> None:
    w3 = connect(server.url)
    asked = len(server.asked)
    registry: MemoryRegistry = MemoryRegistry.__new__(MemoryRegistry)
    registry.w3, registry.address = w3, REGISTRY
    for use in (
        lambda: load_block(w3, block),
        lambda: registry.head(ZERO_BYTES32, block),
        lambda: registry.state_root_at(ZERO_BYTES32, 1, block),
    ):
        with pytest.raises(InvalidInput, match="block"):
            use()
    assert len(server.asked) == asked
    with pytest.raises(InvalidInput, match="until"):
        Scanner(w3, REGISTRY, lambda log: log, until=block)


def test_a_scan_ends_at_no_block_that_has_no_hash_yet(server: Server) -> None:
    with pytest.raises(InvalidInput, match="latest, safe, finalized"):
        Scanner(connect(server.url), REGISTRY, lambda log: log, until="pending")


def test_null_as_answer_to_a_call_leaves_the_question_open(server: Server) -> None:
    server.answers["eth_call"] = {"result": None}
    w3 = connect(server.url)
    with pytest.raises(CouldNotTell):
        call(w3, REGISTRY, b"")


def test_traceback_of_a_failed_connection_does_not_show_the_secrets_of_its_url() -> None:
    secret = f"http://127.0.0.1:{free_port()}/v3/5ec2e7"
    with pytest.raises(NodeUnreachable) as caught:
        connect(secret)
    assert "5ec2e7" not in "".join(traceback.format_exception(caught.value))


# No node


def test_port_on_which_nothing_listens_is_unreachable_and_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(NodeUnreachable) as caught:
        connect(url)
    assert url in str(caught.value)
    assert caught.value.reason == "connection refused"


@pytest.mark.parametrize("body", [b"<!doctype html><title>Hello</title>", b"", b"\xff\xfe", b"not json"], ids=repr)
def test_web_server_that_speaks_no_json_is_no_node(server: Server, body: bytes) -> None:
    server.body = body
    with pytest.raises(NodeUnreachable, match="no node"):
        connect(server.url)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_web_server_that_answers_with_a_status_of_failure_is_no_node(server: Server, status: int) -> None:
    server.status, server.body = status, b"no"
    with pytest.raises(NodeUnreachable):
        connect(server.url)


@pytest.mark.parametrize(
    "document",
    [[1, 2], {"hello": "world"}, "text", 5, None, {"jsonrpc": "2.0", "id": 0, "error": "oops"},
     {"jsonrpc": "2.0", "id": 0, "error": {}}, {"jsonrpc": "2.0", "id": 0, "result": "0xzz"},
     {"jsonrpc": "2.0", "id": 0, "result": "0x"}, {"error": {"message": 5}}],
    ids=json.dumps,
)  # fmt: skip
def test_json_of_another_kind_leaves_the_question_open(server: Server, document: Any) -> None:
    server.body = json.dumps(document).encode()
    with pytest.raises(CouldNotTell) as caught:
        connect(server.url)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("result", [None, {}, [], True, -1, "-0x1"], ids=json.dumps)
def test_chain_id_that_is_no_number_is_the_answer_of_no_node(server: Server, result: Any) -> None:
    server.answers["eth_chainId"] = {"result": result}
    with pytest.raises((NodeRefused, NodeUnreachable)):
        connect(server.url)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_missing_socket_file_is_unreachable() -> None:
    with pytest.raises(NodeUnreachable) as caught:
        connect("./no-such-node.ipc")
    assert caught.value.reason == "no such file"
    del caught
    gc.collect()  # web3 forgets to close the socket, and the warning belongs to this test


@pytest.mark.parametrize("url", ["", "localhost:8545", "ftp://localhost", "file:///tmp/x", "node", "8545", "mailto:me"])
def test_other_kinds_of_url_are_a_fault_of_the_configuration(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must start with"):
        connect(url)


@pytest.mark.parametrize(
    "url", ["http://[::1", "wss:///", "http://[x]y/", "http://", "http://localhost:port", "http://localhost:99999"]
)
def test_malformed_url_is_an_error_of_ours(url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(url)


def test_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "web3", None)
    with pytest.raises(MissingExtra, match=r"melete\[chain\]"):
        connect("http://127.0.0.1:8545")


# What stays secret


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:5ec2e7@node.example:8545", "https://node.example:8545"),
        ("https://node.example/v3/5ec2e7", "https://node.example/..."),
        ("https://node.example/?key=5ec2e7", "https://node.example/..."),
        ("https://node.example/#5ec2e7", "https://node.example"),
        ("wss://5ec2e7@node.example/ws/5ec2e7?5ec2e7", "wss://node.example/..."),
        ("http://127.0.0.1:8545", "http://127.0.0.1:8545"),
        ("http://127.0.0.1:8545/", "http://127.0.0.1:8545"),
        ("./node.ipc", "./node.ipc"),
        ("http://node\x1b.example", "http://node\\x1b.example"),
    ],
)
def test_url_is_shown_without_what_may_be_secret_in_it(url: str, shown: str) -> None:
    assert url_without_secrets(url) == shown


def test_no_error_of_a_connection_shows_the_secrets_of_its_url(server: Server) -> None:
    secret = f"http://user:5ec2e7@127.0.0.1:{server.port}/v3/5ec2e7?key=5ec2e7"
    closed = f"http://user:5ec2e7@127.0.0.1:{free_port()}/v3/5ec2e7?key=5ec2e7"

    def fail(change: Callable[[], None], url: str) -> str:
        change()
        with pytest.raises((CouldNotTell, ConfigurationError)) as caught:
            connect(url, 1)
        return f"{caught.value} {caught.value!r} {vars(caught.value)}"

    shown = [
        fail(lambda: None, closed),
        fail(lambda: None, secret),
        fail(lambda: setattr(server, "body", b"<html>"), secret),
        fail(lambda: setattr(server, "status", 403), secret),
        fail(lambda: None, secret.replace("http", "ftp", 1)),
    ]
    assert "5ec2e7" not in "".join(shown)


@pytest.mark.parametrize("url", ["node.example/v3/5ec2e7", "https:/node.example/v3/5ec2e7", "user:5ec2e7@node.example"])
def test_url_with_a_forgotten_scheme_does_not_show_its_secrets(url: str) -> None:
    assert "5ec2e7" not in url_without_secrets(url)


def test_requests_have_a_limit_of_time() -> None:
    assert 0 < connection.REQUEST_SECONDS <= 60
