"""Standard output and standard error as they really are: closed, full, or with a reader that went away.

A command does its work and finds its answer, whoever listens. What cannot be written is dropped, and told once at the
end: then nobody got the answer, and the exit code is that of "could not tell". A reader that went away (`... | head`)
had what it wanted, and the answer stays what it was.
"""

from __future__ import annotations

import io
import sys

from melete.cli.telling import COULD_NOT_TELL, HOLDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TextIO


def run_to_the_end(program: str, run: Callable[[list[str]], int]) -> NoReturn:
    """Run the words of the command line, and end the process with the exit code."""
    output, errors = _Output(sys.stdout), _Output(sys.stderr)
    sys.stdout, sys.stderr = output.to_text(), errors.to_text()
    code = run(sys.argv[1:])
    if code == HOLDS:
        output.check_open()  # an empty result is one too
    sys.stdout.flush()
    if output.fault is not None and not isinstance(output.fault, BrokenPipeError):
        reason = output.fault.strerror
        sys.stderr.write(f"{program}: the result could not be written to standard output ({reason})\n")
        code = COULD_NOT_TELL
    sys.stderr.flush()
    sys.exit(code)


class _Output(io.RawIOBase):
    """Where output goes: what cannot be written any more is dropped, and why is kept. It never ends a command."""

    def __init__(self, stream: TextIO | None) -> None:
        # Python has no stream for a descriptor that was closed from the start; another file may have its number now.
        self._stream = stream
        self._handle = -1 if stream is None else stream.fileno()
        self.fault: OSError | None = None

    def to_text(self) -> TextIO:
        """Return it for text. What a terminal cannot show is shown as an escape."""
        encoding = "utf-8" if self._stream is None else self._stream.encoding
        lines = self._stream is not None and bool(self._stream.line_buffering)
        return io.TextIOWrapper(io.BufferedWriter(self), encoding, "backslashreplace", line_buffering=lines)

    def check_open(self) -> None:
        """Take note of output that was closed from the start."""
        if self._stream is None:
            self.write(b"")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return super().fileno() if self._stream is None else self._handle

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, content: Any) -> int:
        import os

        if self.fault is None:
            try:
                return os.write(self._handle, content)
            except BlockingIOError:
                raise
            except OSError as error:
                self.fault = error
        return len(content)
