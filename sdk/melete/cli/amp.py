"""The frame of the command `amp`, which is `melete pack` too: its commands, and how errors become exit codes.

0 it holds    1 it does not    2 usage    3 could not tell

A command is imported when it is used. What it takes may be said by a `CommandLine` (`melete.cli.packs.arguments`);
then a plain call runs without click, which takes as long to import as a pack to verify. Whatever is not plain (help,
an unknown flag, a missing value) goes to click, which says it exactly. Other commands are click's from the start.
"""

from __future__ import annotations

from melete.cli.standard_output import run_to_the_end
from melete.cli.telling import COULD_NOT_TELL, run_click, tell_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

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
    run_to_the_end("amp", run)


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
    from melete.cli.packs.group import command

    return run_click(command, words, "amp")


if __name__ == "__main__":
    main()
