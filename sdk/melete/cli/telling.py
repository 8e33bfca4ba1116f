"""How a command's failure is told, and which exit code it has: the same for `melete` and `amp`.

Nothing that looks like a live credential is printed, whoever gave it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

    from click import Command

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3


def run_click(command: Command, words: list[str], program: str) -> int:
    """Run a command of click's and return its exit code. Errors that are not about usage are raised."""
    import click

    try:
        code = command.main(words, prog_name=program, standalone_mode=False)
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


def tell_error(error: Exception, program: str, *, as_json: bool) -> int:
    """Print what went wrong, in one line or as one JSON object, and return the exit code.

    An error that is none of ours is a fault of the program's own; with MELETE_DEBUG it is raised again.
    """
    from melete.errors import ConfigurationError, InputError, MeleteError, VerificationError

    if not isinstance(error, MeleteError):
        if os.environ.get("MELETE_DEBUG"):
            raise error
        kind = type(error).__name__
        message = f"a fault in {program} itself ({kind}); set MELETE_DEBUG=1 to see where, and report it"
        code = COULD_NOT_TELL
    else:
        message = str(error)
        if isinstance(error, InputError | ConfigurationError):
            code = USAGE
        else:
            code = DOES_NOT_HOLD if isinstance(error, VerificationError) else COULD_NOT_TELL
    to_json = getattr(error, "to_json", None)
    if as_json:
        print_json_error(type(error).__name__, message, **(vars(error) if to_json is None else to_json()))
    else:
        if hasattr(error, "gate"):
            message = f"{message.rstrip('.')} (rule {error.rule})."  # type: ignore[attr-defined]
        from melete.packs.credentials import hide_secrets

        _write(sys.stderr, f"{program}: {hide_secrets(message)}\n")
    return code


def print_json_error(name: str, message: str, **values: Any) -> None:
    """Print an error as one JSON object: its name, its sentence, and its values."""
    import json

    from melete.errors import show
    from melete.packs.credentials import without_secrets

    plain = {
        key: value if isinstance(value, int | str | float | list | None) else show(value)
        for key, value in values.items()
    }
    error = {"name": name, "message": message, **plain}
    _write(sys.stdout, json.dumps({"error": without_secrets(error)}) + "\n")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # it was closed from the start, and nobody listens
        stream.write(text)
