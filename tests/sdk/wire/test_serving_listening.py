from __future__ import annotations

import json
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from melete.cli.main import run
from melete.errors import ConfigurationError, MissingFile, UnsafeFile
from melete.wire.approval import Queue
from melete.wire.envelope import MAX_CONTENT_BYTES, MemoryType, Result
from melete.wire.serving.http import Limits, create_app
from melete.wire.serving.listening import TlsFiles, describe_socket, make_server, open_socket, verify_tls_files
from melete.wire.serving.tokens import fresh_secret
from melete.wire.store import MemoryStore

from .samples import SEMANTIC, Clock, open_store, recalled, remember
from .serving_samples import (
    JSON,
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


# On the wire


@contextmanager
def running(
    store: Any,
    people: People,
    limits: Limits | None = None,
    *,
    servers: list[Any] | None = None,
    window: int | None = None,
) -> Iterator[tuple[str, int]]:
    """A server on loopback; gives its address."""
    limits = limits or Limits()
    with open_socket("127.0.0.1", 0, is_private=False) as at:
        if window is not None:
            at.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, window)
        server = make_server(create_app(store, people.file, limits), limits)
        if servers is not None:
            servers.append(server)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]})
        thread.start()
        try:
            yield at.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def speaking_to(address: tuple[str, int]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=60, trust_env=False) as client:
        yield client


@contextmanager
def connected(address: tuple[str, int], data: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(data)
        yield connection


def until(holds: Callable[[], bool]) -> None:
    """Return once something holds in the server's thread."""
    for _ in range(2000):
        if holds():
            return
        time.sleep(0.005)
    pytest.fail("it never came to hold")


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next answer on a connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, "the connection ended before an answer"
        head += byte
    length = re.search(rb"(?i)content-length: (\d+)", head)
    rest = int(length[1]) if length else 0
    parts = []
    while rest:
        parts.append(connection.recv(min(rest, 2**16)))
        assert parts[-1], "the connection ended within an answer"
        rest -= len(parts[-1])
    return int(head.split()[1]), b"".join(parts)


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server ends the connection."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def head_of(holder: Holder, *lines: str, method: str = "POST", path: str = "/v1/memory") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: x", f"authorization: Bearer {holder.secret}"]
    return "\r\n".join([*head, "content-type: application/json", *lines, "", ""]).encode()


EVERYWHERE = "0.0.0.0"  # noqa: S104 - to be refused, and for TLS
BODY = b'{"op": "recall", "memory_type": "episodic", "query": "x"}'


def test_content_of_ten_megabytes_goes_in_and_comes_back(kept: MemoryStore, people: People) -> None:
    content = "tea \U0001f375 " * (10 * 2**20 // 9)
    with running(kept, people) as address, speaking_to(address) as client:
        written = result_of(ask(client, people.ada, "remember", content=content))
        (hit,) = result_of(ask(client, people.ada, "recall", query="\U0001f375 tea")).hits
        assert (hit.id, hit.content) == (written.ids[0], content)
        too_long = ask(client, people.ada, "remember", content="x" * (MAX_CONTENT_BYTES + 1))
        assert error_of(too_long, 400)["member"] == "content"


def test_body_over_the_limit_is_refused_while_it_comes(kept: MemoryStore, people: People) -> None:
    limits = Limits(body_bytes=2**20)
    headers = {**people.ada.headers, **JSON}
    with running(kept, people, limits) as address, speaking_to(address) as client:
        # A client that only reads once it has sent everything gets its answer too, on the same connection.
        honest = client.post("/v1/memory", content=b" " * (8 * 2**20), headers=headers)
        assert error_of(honest, 413)["name"] == "BodyTooLarge"
        with connected(address, head_of(people.ada, "transfer-encoding: chunked")) as connection:
            for _ in range(17):
                connection.sendall(b"10000\r\n" + b" " * 2**16 + b"\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert result_of(ask(client, people.ada, "recall", query="x")).ok


LIES = [
    (["content-length: 99999999999999999"], b"", 413),
    (["content-length: 999999999999999999999999"], b"", 400),
    (["content-length: -1"], BODY, 400),
    (["content-length: 1e3"], BODY, 400),
    (["content-length: 10", "content-length: 57"], BODY, 400),
    (["content-length: 5"], BODY, 400),
    ([f"content-length: {len(BODY)}", "transfer-encoding: chunked"], b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), 400),
    (["transfer-encoding: chunked", "content-length: 3"], b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY), 400),
    (["transfer-encoding: gzip, chunked"], b"0\r\n\r\n", 400),
    (["transfer-encoding: chunked"], b"-1\r\n\r\n", 400),
    (["transfer-encoding: chunked"], b"xyz\r\n", 400),
    ([f"x: {'y' * 100_000}"], b"", 400),
]


def test_client_that_lies_about_its_body_is_refused(kept: MemoryStore, people: People) -> None:
    with running(kept, people) as address, speaking_to(address) as client:
        for lines, body, status in LIES:
            with connected(address, head_of(people.ada, *lines) + body) as connection:
                found, answer = read_answer(connection)
            assert found == status, lines
            assert b'{"error": {"name": ' in answer
            assert b"Traceback" not in answer
            assert result_of(ask(client, people.ada, "recall", query="x")).ok


def test_request_hidden_behind_another_is_no_request(kept: MemoryStore, people: People) -> None:
    hidden = head_of(people.bob, f"content-length: {len(BODY)}") + BODY
    with running(kept, people) as address:
        # In a body that is longer than its JSON, it is part of that body.
        with connected(address, head_of(people.ada, f"content-length: {len(BODY + hidden)}") + BODY + hidden) as one:
            status, answer = read_answer(one)
            assert (status, b"InvalidJson" in answer) == (400, True)
            one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert read_answer(one) == (204, b"")
        # Behind a body that is longer than its length, what is no request ends the connection.
        with connected(address, head_of(people.ada, f"content-length: {len(BODY)}") + BODY + b"}\r\n\r\n") as other:
            assert read_answer(other)[0] == 200
            status, answer = read_answer(other)
            assert (status, b"RequestRefused" in answer) == (400, True)
            assert read_all(other) == b""


def test_client_that_waits_to_be_told_to_go_on_is_told_no_first(kept: MemoryStore, people: People) -> None:
    nobody = Holder("", fresh_secret())
    with running(kept, people, Limits(body_bytes=100)) as address:
        for holder, length, status in ((nobody, 50, 401), (people.ada, 101, 413)):
            lines = ("expect: 100-continue", f"content-length: {length}")
            with connected(address, head_of(holder, *lines)) as connection:
                answer = read_all(connection)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"100 Continue" not in answer
            assert b"connection: close" in answer.lower()
        with connected(address, head_of(people.ada, "expect: 100-continue", f"content-length: {len(BODY)}")) as kind:
            assert kind.recv(100).startswith(b"HTTP/1.1 100 ")
            kind.sendall(BODY)
            assert kind.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("start", [b"", b"POST /v1/mem", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: "])
def test_connection_without_a_whole_head_is_closed(kept: MemoryStore, people: People, start: bytes) -> None:
    limits = Limits(head_seconds=0.2)
    with running(kept, people, limits) as address, connected(address, start) as connection:
        assert read_all(connection) == b""


def test_connection_without_a_whole_second_head_is_closed(kept: MemoryStore, people: People) -> None:
    first = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    with running(kept, people, Limits(head_seconds=0.2)) as address, connected(address, first) as connection:
        assert read_answer(connection) == (204, b"")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        assert read_all(connection) == b""


def test_endless_body_after_a_refusal_is_cut_off(kept: MemoryStore, people: People) -> None:
    def send_forever(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")

    limits, head = Limits(head_seconds=0.2, body_bytes=10), head_of(people.ada, "transfer-encoding: chunked")
    with (
        running(kept, people, limits) as address,
        connected(address, head) as connection,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        send_forever(connection)


@pytest.mark.parametrize("lines", [["content-length: 57"], ["transfer-encoding: chunked"]])
def test_body_that_does_not_come_in_time_is_refused(kept: MemoryStore, people: People, lines: list[str]) -> None:
    start = head_of(people.ada, *lines) + b"1"
    with running(kept, people, Limits(body_seconds=0.2)) as address, connected(address, start) as connection:
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"BodyTooSlow" in answer


@pytest.mark.parametrize("size", [30_000, 14_000_000])
def test_client_that_does_not_read_its_answer_is_cut_off(kept: MemoryStore, people: People, size: int) -> None:
    content = "x " * (size // 2)
    remember(kept, content, agent_id="helper")
    limits = Limits(write_seconds=0.3)
    with running(kept, people, limits, window=2**11) as address, socket.socket() as connection:
        # Small windows on both sides, so that the kernels do not read for us.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**11)
        connection.connect(address)
        connection.sendall(head_of(people.reader, f"content-length: {len(BODY)}") + BODY)
        poller = select.poll()
        poller.register(connection, 0)  # tells of the end only
        assert poller.poll(60_000)
        assert 0 < len(read_all(connection)) < len(content)


def test_client_with_a_small_window_gets_every_answer_whole(kept: MemoryStore, people: People) -> None:
    content = "x " * 240_000  # the last part of it is long too
    remember(kept, content, agent_id="helper")
    servers: list[Any] = []
    with running(kept, people, servers=servers, window=2**13) as address, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**13)
        connection.connect(address)
        for _ in range(2):
            connection.sendall(head_of(people.reader, f"content-length: {len(BODY)}") + BODY)
            status, answer = read_answer(connection)
            assert (status, Result.from_json(answer).hits[0].content) == (200, content)
        # The time of an answer that was read runs no more, as soon as the server knows.
        (protocol,) = servers[0].server_state.connections
        until(lambda: protocol._read_due is None)
        assert servers[0].server_state.connections == {protocol}


def test_slow_clients_hold_no_worker(kept: MemoryStore, people: People) -> None:
    remember(kept, "x " * 2_000_000, agent_id="helper")
    whole = head_of(people.reader, f"content-length: {len(BODY)}") + BODY
    with running(kept, people, Limits(workers=1)) as address:
        opened = []
        try:
            for start in (b"POST /v1", head_of(people.ada, "content-length: 57") + b"{", whole) * 3:
                connection = socket.create_connection(address, timeout=60)
                connection.sendall(start)
                opened.append(connection)
            for connection in opened[2::3]:
                assert connection.recv(10).startswith(b"HTTP/1.1 2")
            with speaking_to(address) as client:
                for number in range(3):
                    assert result_of(ask(client, people.ada, "remember", content=f"note {number}")).ok
        finally:
            for connection in opened:
                connection.close()


def test_client_that_goes_away_leaves_nothing_behind(
    kept: MemoryStore, people: People, caplog: pytest.LogCaptureFixture
) -> None:
    servers: list[Any] = []
    with running(kept, people, Limits(held_bytes=1000), servers=servers) as address, speaking_to(address) as client:
        served = servers[0].config.app.routes[1].endpoint.__self__
        for _ in range(3):
            with connected(address, head_of(people.ada, "content-length: 900") + b" " * 500):
                until(lambda: served._held_bodies == 500)
            until(lambda: served._held_bodies == 0)
            assert result_of(ask(client, people.ada, "recall", query="x" * 800)).ok
    assert "Traceback" not in caplog.text


def test_requests_under_way_are_bounded(people: People) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(*_: Any) -> Result:
        entered.set()
        assert go_on.wait(60)
        return Result.from_json({"op": "recall", "ok": True})

    with (
        running(StoreThat(wait), people, Limits(requests=1)) as address,
        speaking_to(address) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(ask, client, people.ada, "recall", query="x")
        assert entered.wait(60)
        try:
            assert error_of(ask(client, people.bob, "recall", query="x"), 503)["name"] == "ServerBusy"
            # Who holds no token is not counted.
            assert client.get("/.well-known/amp-schema.json").status_code == 200
            assert error_of(client.get("/v1/pending"), 401)
        finally:
            go_on.set()
        assert result_of(first.result()).ok


def test_connections_are_bounded(kept: MemoryStore, people: People) -> None:
    with (
        running(kept, people, Limits(connections=2)) as address,
        connected(address) as one,
        connected(address) as two,
        connected(address) as three,
    ):
        status, answer = read_answer(three)
        assert (status, b'"ServerBusy"' in answer) == (503, True)
        assert read_all(three) == b""
        for connection in (one, two):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert read_answer(connection) == (204, b"")


def test_two_approvals_at_once_are_one(kept: MemoryStore, people: People) -> None:
    with running(kept, people) as address, speaking_to(address) as client, ThreadPoolExecutor(4) as pool:
        memory_id = propose(client, people.clerk, "once")
        holders = [people.rita, people.ada, people.rita, people.ada]
        done = list(pool.map(lambda holder: decide(client, holder, memory_id, "approve"), holders))
    codes = sorted(response.status_code for response in done)
    assert codes.count(200) == 1
    # The others came too late, or while the store was written.
    assert set(codes) <= {200, 409, 503}
    assert recalled(kept, "once", SEMANTIC, agent_id="helper") == ["once"]
    kept.verify_audit()


def test_many_clients_at_once_lose_nothing(sqlite_path: Path, people: People) -> None:
    with open_store(str(sqlite_path)) as store:
        with running(store, people) as address, speaking_to(address) as client, ThreadPoolExecutor(8) as pool:
            holders = [people.ada, people.bob] * 20
            answers = list(pool.map(lambda holder: ask(client, holder, "remember", content="tea"), holders))
        assert len({result_of(answer).ids for answer in answers}) == 40
        assert (store.count(agent_id="helper"), store.count(agent_id="scribe")) == (20, 20)
        store.verify_audit()


# Where it listens


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "", "192.0.2.1", "::ffff:192.0.2.1"])
def test_other_addresses_than_this_machines_need_tls_or_a_word(host: str) -> None:
    with pytest.raises(ConfigurationError, match="--yes-plain-http"):
        open_socket(host, 0, is_private=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.3.5", "localhost"])
def test_addresses_of_this_machine_need_nothing(host: str) -> None:
    with open_socket(host, 0, is_private=False) as at:
        assert re.fullmatch(r"http://(127\.[0-9.]+|\[::1\]):\d+", describe_socket(at, None))


@pytest.mark.parametrize("host", ["no such host", "x" * 300, "\ud800", "256.0.0.1", "192.0.2.1"])
def test_address_that_is_none_of_this_machine_is_told(host: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_socket(host, 0, is_private=True)
    assert str(caught.value).isprintable()


def test_port_in_use_is_told() -> None:
    with (
        open_socket("127.0.0.1", 0, is_private=False) as at,
        pytest.raises(ConfigurationError, match="cannot be used"),
    ):
        open_socket("127.0.0.1", at.getsockname()[1], is_private=False)


# The command


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """A certificate that signs itself, for localhost, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    files = TlsFiles(folder / "cert.pem", folder / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    no_password = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, no_password))
    files.key.chmod(0o600)
    locked = serialization.BestAvailableEncryption(b"password")
    (folder / "locked.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
    (folder / "locked.pem").chmod(0o600)
    return files


class Command(NamedTuple):
    """A server that runs as a process of its own."""

    process: subprocess.Popen[str]
    url: str


@contextmanager
def command(tmp_path: Path, *words: str) -> Iterator[Command]:
    arguments = [sys.executable, "-m", "melete.cli.main", "memory", "serve", "--port", "0", "--json"]
    arguments += ["--store", str(tmp_path / "memories.db"), "--tokens", str(tmp_path / "tokens.json"), *words]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            yield Command(process, json.loads(line)["url"])
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_serves_until_it_is_told_to_end(tmp_path: Path, people: People, number: signal.Signals) -> None:
    with command(tmp_path) as served:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=60) as client:
            assert result_of(ask(client, people.ada, "remember", content=SECRET)).ok
            assert result_of(ask(client, people.ada, "recall", query="swordfish")).hits
        served.process.send_signal(number)
        out, err = served.process.communicate(timeout=60)
    assert served.process.returncode == 0
    assert out == ""
    assert [line.split(" ", 3)[3] for line in err.splitlines()] == [f"post_memory 200 token {people.ada.id}"] * 2
    with MemoryStore.open(tmp_path / "memories.db", create=False) as store:
        assert store.count(agent_id="helper", memory_type=MemoryType.EPISODIC) == 1


def test_command_serves_over_tls(tmp_path: Path, people: People, tls: TlsFiles) -> None:
    words = ("--tls-cert", str(tls.certificate), "--tls-key", str(tls.key), "--quiet", "--host", EVERYWHERE)
    context = ssl.create_default_context(cafile=str(tls.certificate))
    with command(tmp_path, *words) as served:
        url = served.url.replace(EVERYWHERE, "127.0.0.1")
        assert url.startswith("https://")
        content = "tea " * 1_000_000
        with httpx.Client(base_url=url, verify=context, trust_env=False, timeout=60) as client:
            assert result_of(ask(client, people.ada, "remember", content=content)).ok
            (hit,) = result_of(ask(client, people.ada, "recall", query="tea")).hits
            assert hit.content == content
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http") + "/healthz", trust_env=False, timeout=60)
        served.process.terminate()
        _, err = served.process.communicate(timeout=60)
    assert "Traceback" not in err
    assert "token" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--host", EVERYWHERE], 2, "--yes-plain-http"),
        (["--host", ""], 2, "--yes-plain-http"),
        (["--tls-cert", "cert.pem"], 2, "belong together"),
        (["--tls-cert", "none.pem", "--tls-key", "none.pem"], 3, "No such file"),
        (["--port", "70000"], 2, "70000"),
        (["--max-body", "0"], 2, "--max-body"),
        (["--store", "mysql://x"], 2, "store"),
    ],
)
def test_command_that_breaks_a_rule_says_so_in_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run(["memory", "serve", *words]) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_command_refuses_a_file_of_tokens_that_others_can_read(people: People, tmp_path: Path, capsys: Any) -> None:
    Path(people.file.path).chmod(0o644)
    arguments = ["memory", "serve", "--tokens", people.file.path, "--store", str(tmp_path / "new.db")]
    assert run(arguments) == 1
    assert "chmod 600" in capsys.readouterr().err
    assert not (tmp_path / "new.db").exists()


def test_key_for_tls_must_be_there_private_unlocked_and_the_certificates(tls: TlsFiles, tmp_path: Path) -> None:
    assert verify_tls_files(tls) == tls
    for wrong in (TlsFiles(tls.key, tls.key), tls._replace(key=tls.key.with_name("locked.pem"))):
        with pytest.raises(ConfigurationError):
            verify_tls_files(wrong)
    with pytest.raises(MissingFile):
        verify_tls_files(tls._replace(certificate=tmp_path / "none.pem"))
    seen = tmp_path / "seen.pem"
    seen.write_bytes(tls.key.read_bytes())
    seen.chmod(0o640)
    with pytest.raises(UnsafeFile):
        verify_tls_files(tls._replace(key=seen))


@pytest.mark.parametrize("lacking", ["starlette", "uvicorn", "h11"])
def test_without_the_extra_one_line_says_what_to_install(lacking: str, tmp_path: Path) -> None:
    script = (
        f"import sys\nsys.modules[{lacking!r}] = None\nfrom melete.cli.main import run\n"
        f"sys.exit(run(['memory', 'serve', '--store', {str(tmp_path / 'x.db')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "pip install 'melete[http]'" in line
