"""A local development node: Anvil on a free port of the loopback interface, gone when its context ends."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from types import TracebackType
from typing import Final, Self

from melete.errors import NodeUnreachable

START_SECONDS: Final = 30
#: The keys that Anvil funds are public, known to everyone, and worth nothing anywhere else.
MNEMONIC: Final = "test test test test test test test test test test test junk"


class Anvil:
    """Starts Anvil on entering; `url` is where it listens.

    Errors: `NodeUnreachable` when the program is not on PATH or does not start within 30 s.
    """

    def __init__(self, *, chain_id: int = 31337, hardfork: str = "prague", options: tuple[str, ...] = ()) -> None:
        self._command = [
            *("anvil", "--host", "127.0.0.1", "--port", "0", "--mnemonic", MNEMONIC),
            *("--chain-id", str(chain_id), "--hardfork", hardfork, *options),
        ]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        if shutil.which("anvil") is None:
            raise NodeUnreachable("127.0.0.1", "the program anvil is not on PATH")
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        watchdog = threading.Timer(START_SECONDS, self._process.kill)
        watchdog.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                listening = re.search(r"Listening on (127\.0\.0\.1:\d+)", line)
                if listening:
                    self.url = f"http://{listening[1]}"
                    break
        finally:
            watchdog.cancel()
        if not self.url:
            self._stop()
            raise NodeUnreachable("127.0.0.1", f"anvil did not start within {START_SECONDS} s")
        # Whatever it prints later is read and dropped, so that it never waits for a reader.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
