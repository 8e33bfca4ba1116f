"""The frame of the command `amp`, which is `melete pack` too: its commands, and how errors become exit codes.

0 it holds    1 it does not    2 usage    3 could not tell

A command is imported when it is used. What it takes may be said by a `CommandLine` (`melete.cli.packs.arguments`);
then a plain call runs without click, which takes as long to import as a pack to verify. Whatever is not plain (help,
an unknown flag, a missing value) goes to click, which says it exactly. Other commands are click's from the start.
"""

from __future__ import annotations

import io
import sys

from melete.cli.telling import COULD_NOT_TELL, HOLDS, USAGE, print_json_error, tell_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TextIO

#: What `amp --help` lists: a command, the module that holds it as `command`, and a line of help.
COMMANDS = {
    "keygen": ("melete.cli.packs.keygen", "Make a key pair that signs packs."),
    "sign": ("melete.cli.packs.sign", "Sign a pack."),
    "verify": ("melete.cli.packs.verify", "Check a pack's signature, and name the files that differ."),
    "trust": ("melete.cli.packs.trust", "Keep the public keys of signers by name."),
    "validate": ("melete.cli.packs.validate", "Check everything inside a pack against the specification."),
    "install": ("melete.cli.packs.install", "Put a pack where a coding agent reads it."),
    "uninstall": ("melete.cli.packs.uninstall", "Take an installed pack away, and restore the agent's file."),
    "inspect": ("melete.cli.packs.inspect", "Look at an installed pack, every file of it."),
    "list": ("melete.cli.packs.list", "List what is installed."),
    "capture": ("melete.cli.packs.capture", "Make a pack from notes and logs, without a model."),
    "unpack": ("melete.cli.packs.unpack", "Merge an installed pack into a wiki."),
    "skills": ("melete.cli.packs.skills", "Put the skills that drive these commands where an agent finds them."),
    "submit-check": ("melete.cli.packs.submit_check", "Check a pack as a registry does on submission."),
}


def __getattr__(name: str) -> Any:
    # The noun `pack` of `melete`.
    if name == "command":
        from melete.cli.packs.group import command

        return command
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> NoReturn:
    """Run the command line, and end the process with its exit code."""
    output, errors = _Output(sys.stdout), _Output(sys.stderr)
    sys.stdout, sys.stderr = output.to_text(), errors.to_text()
    code = run(sys.argv[1:])
    if code == HOLDS:
        output.check_open()  # an empty result is one too
    sys.stdout.flush()
    # The reader may go away (`amp ... | head`): what was found stays found.
    if output.fault is not None and not isinstance(output.fault, BrokenPipeError):
        sys.stderr.write(f"amp: the result could not be written to standard output ({output.fault.strerror})\n")
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


def run(words: list[str]) -> int:
    """Run one command and return its exit code. No exception leaves it, but for MELETE_DEBUG=1."""
    try:
        plain = _find_plain(words)
        return _run_click(words) if plain is None else plain()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return COULD_NOT_TELL
    except Exception as error:  # noqa: BLE001 - the last line before the user
        return tell_error(error, "amp", as_json="--json" in words)


def _find_plain(words: list[str]) -> Any:
    """Return what runs a plain call of a command that says what it takes, or None."""
    if not words or words[0] not in COMMANDS:
        return None
    from importlib import import_module

    command = import_module(COMMANDS[words[0]][0]).command
    parse = getattr(command, "parse_plain", None)
    values = parse(words[1:]) if parse is not None else None
    return None if values is None else lambda: command.run(**values)


def _run_click(words: list[str]) -> int:
    import click

    from melete.cli.packs.group import command

    try:
        code = command.main(words, prog_name="amp", standalone_mode=False)
        return code if isinstance(code, int) else HOLDS
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.Abort:
        return 130
    except click.ClickException as error:
        # Usage is told as click tells it; a file that cannot be opened is usage too.
        if "--json" in words:
            print_json_error(type(error).__name__, error.format_message())
        else:
            error.show()
        return USAGE
    except SystemExit:
        # Click ends like this when the reader went away, before there was an answer.
        return COULD_NOT_TELL


if __name__ == "__main__":
    main()
