"""Scanning and verifying a registry's events, to fetching and JSON-decoding the same logs.

A server in a process of its own serves logs that were made beforehand, over HTTP on the loopback interface; both
sides ask it for pages of the same size.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from web3 import HTTPProvider, Web3

from melete import GENESIS, Address, ExperienceDelta, Head, Transition, keccak256
from melete.chain.logs import PAGE_LOGS, Scanner
from melete.memory.events import SPACE_REGISTERED, TOPICS, TRANSITION_COMMITTED, MemoryEvent
from melete.memory.raw_history import decode_quickly, verify_space_logs
from melete.primitives import ZERO_BYTES32, Bytes32, uint_word

EVENTS = 50_000
ROUNDS = 5
REGISTRY, CONTROLLER, AUTHORIZER = Address(b"\x44" * 20), Address(b"\x11" * 20), Address(b"\x22" * 20)
SPACE = keccak256(b"space")

Report = Callable[[str, float, float], None]


def bench(report: Report) -> None:
    """Report how many times as long a verified scan takes, for many events in a block and for one."""
    for per_block, compare_final, what in (
        (50, False, "50 in a block"),
        (1, False, "1 in a block"),
        (1, True, "1 in a block, final blocks compared as well"),
    ):
        with serve(per_block) as url:
            # The best of each: what other processes take of the machine only ever adds.
            scans, fetches = zip(
                *((once(scan, url, compare_final), once(fetch, url, per_block)) for _ in range(ROUNDS)), strict=True
            )
        # A header for each event costs more than the event; that is why nobody has to compare blocks that are final.
        goal = 6.0 if compare_final else 3.0
        report(
            f"scan and verify {EVENTS:,} events ({what}), to fetching and decoding them",
            min(scans) / min(fetches),
            goal,
        )


def scan(url: str, compare_final: bool) -> None:
    w3 = Web3(HTTPProvider(url))
    scanner: Scanner[MemoryEvent] = Scanner(
        w3, REGISTRY, decode_quickly, start_block=1, topics=(tuple(TOPICS),), compare_final=compare_final
    )
    state = verify_space_logs(SPACE, scanner.logs())
    assert state.head.sequence == EVENTS - 1


def fetch(url: str, per_block: int) -> None:
    """The same logs, in pages of the size that the scanner takes, as dictionaries."""
    session, count, blocks = requests.Session(), 0, max(1, PAGE_LOGS // per_block)
    for first in range(1, EVENTS // per_block + 1, blocks):
        query = {"address": str(REGISTRY), "fromBlock": hex(first), "toBlock": hex(first + blocks - 1)}
        request = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [query]}
        count += len(json.loads(session.post(url, json=request).content)["result"])
    assert count == EVENTS


def once(action: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - start


# The server


@contextmanager
def serve(per_block: int) -> Iterator[str]:
    """Serve the events, so many in each block, at the URL that is given."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(per_block, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(per_block: int, pipe: Any) -> None:
    node = _Node(per_block)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers = [node.answer(one) for one in (asked if isinstance(asked, list) else [asked])]
            body = b"[" + b",".join(answers) + b"]" if isinstance(asked, list) else answers[0]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


class _Node:
    """Logs and headers as Anvil writes them, made once."""

    def __init__(self, per_block: int) -> None:
        self.tip = EVENTS // per_block
        self.logs: list[bytes] = [b""]
        self.headers: list[bytes] = [_header(0, per_block)]
        logs = _make_logs(per_block)
        for number in range(1, self.tip + 1):
            self.logs.append(b",".join(next(logs) for _ in range(per_block)))
            self.headers.append(_header(number, per_block))

    def answer(self, request: dict[str, Any]) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], self._result(request))

    def _result(self, request: dict[str, Any]) -> bytes:
        parameters = request["params"]
        if request["method"] == "eth_chainId":
            return b'"0x7a69"'
        if request["method"] == "eth_getLogs":
            first, last = (int(parameters[0][name], 16) for name in ("fromBlock", "toBlock"))
            return b"[" + b",".join(self.logs[first : min(last, self.tip) + 1]) + b"]"
        block = {"latest": self.tip, "finalized": max(0, self.tip - 64)}.get(parameters[0])
        return self.headers[int(parameters[0], 16) if block is None else block]


def _hash(number: int) -> str:
    return str(keccak256(b"block %d" % number))


def _header(number: int, transactions: int) -> bytes:
    words = ("parentHash", "stateRoot", "transactionsRoot", "receiptsRoot", "mixHash", "sha3Uncles", "withdrawalsRoot")
    header = {name: str(keccak256(name.encode())) for name in words}
    hashes = [str(keccak256(b"%d %d" % (number, index))) for index in range(transactions)]
    return json.dumps({**header, "number": hex(number), "hash": _hash(number), "logsBloom": "0x" + "00" * 256,
                       "gasLimit": "0x1c9c380", "gasUsed": "0x5208", "timestamp": hex(number), "extraData": "0x",
                       "baseFeePerGas": "0x7", "transactions": hashes, "uncles": []}).encode()  # fmt: skip


def _make_logs(per_block: int) -> Iterator[bytes]:
    """A space's registration, and transitions that follow one by one."""
    topics = {name: str(keccak256(name.encode())) for name in (SPACE_REGISTERED, TRANSITION_COMMITTED)}
    accounts = [str(Bytes32(account.word)) for account in (CONTROLLER, AUTHORIZER)]
    yield _log(0, per_block, [topics[SPACE_REGISTERED], str(SPACE), *accounts], b"")
    head, profile = GENESIS, keccak256(b"profile")
    for sequence in range(1, EVENTS):
        words = (keccak256(b"%d" % sequence), ZERO_BYTES32, profile, ZERO_BYTES32)
        claim = Transition.of(ExperienceDelta(SPACE, sequence, head.state_root, *words))
        indexed = [str(SPACE), str(claim.transition_id), str(Bytes32(uint_word(sequence)))]
        data = head.state_root + claim.next_state_root + b"".join(words) + AUTHORIZER.word
        yield _log(sequence, per_block, [topics[TRANSITION_COMMITTED], *indexed], data)
        head = Head(claim.transition_id, claim.next_state_root, sequence)


def _log(place: int, per_block: int, topics: list[str], data: bytes) -> bytes:
    number, index = place // per_block + 1, place % per_block
    return json.dumps({"address": "0x" + REGISTRY.hex(), "topics": topics, "data": "0x" + data.hex(),
                       "blockHash": _hash(number), "blockNumber": hex(number), "blockTimestamp": hex(number),
                       "transactionHash": str(keccak256(b"%d %d" % (number, index))), "transactionIndex": hex(index),
                       "logIndex": hex(index), "removed": False}).encode()  # fmt: skip
