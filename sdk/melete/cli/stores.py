"""Where a command finds the outbox and the witness store, and the key that opens the latter."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from melete.memory.witness_keys import Key
    from melete.memory.witness_store import WitnessStore

Command = TypeVar("Command", bound=Callable[..., Any])


def data_folder() -> Path:
    """Return the user's folder for what Melete keeps."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "melete"


def witness_options(command: Command) -> Command:
    """Give a command the option --witnesses, handed on as a path."""

    @click.option("--witnesses", envvar="MELETE_WITNESSES", help="The witness store; in the data folder by default.")
    @click.option("--witness-key-file", envvar="MELETE_WITNESS_KEY_FILE", help="The file that holds the store's key.")
    @wraps(command)
    def with_witnesses(*args: Any, witnesses: str | None, witness_key_file: str | None, **options: Any) -> Any:
        path = Path(witnesses) if witnesses else data_folder() / "witnesses.db"
        return command(*args, witnesses=WitnessOptions(path, witness_key_file or None), **options)

    return with_witnesses  # type: ignore[return-value]


def outbox_option(command: Command) -> Command:
    """Give a command the option --outbox, handed on as a path."""

    @click.option("--outbox", envvar="MELETE_OUTBOX", help="The outbox; in the data folder by default.")
    @wraps(command)
    def with_outbox(*args: Any, outbox: str | None, **options: Any) -> Any:
        return command(*args, outbox=Path(outbox) if outbox else data_folder() / "outbox.db", **options)

    return with_outbox  # type: ignore[return-value]


class WitnessOptions:
    """Which store, and how its key is found: a file, or MELETE_WITNESS_KEY, or MELETE_WITNESS_PASSPHRASE."""

    def __init__(self, path: Path, key_file: str | None) -> None:
        self.path = path
        #: Where the key is, if a file is named for it.
        self.key_file = None if key_file is None else Path(key_file)

    def load_key(self) -> Key:
        """Return the key. Errors: `ConfigurationError` where none is named, and the loaders' own."""
        from melete.memory.witness_keys import load_key_file, load_key_from_environment

        return load_key_from_environment() if self.key_file is None else load_key_file(self.key_file)

    @contextmanager
    def open(self) -> Iterator[WitnessStore]:
        """Open the store. Errors: as `WitnessStore.open`."""
        from melete.memory.witness_store import WitnessStore

        with WitnessStore.open(self.path, self.load_key()) as store:
            yield store
