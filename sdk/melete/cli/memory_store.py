"""Which memory store a command means, and how its long-term writes are approved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from melete.cli.settings import json_option
from melete.cli.stores import data_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from melete.wire.store import MemoryStore

Command = TypeVar("Command", bound=Callable[..., Any])


class StoreOptions:
    """A store by path or URL, and "auto" or "queue"."""

    def __init__(self, store: str | None, approval: str) -> None:
        self._store = store
        self._queue = approval == "queue"

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[MemoryStore]:
        """Open the store; only what writes something new makes one. Errors: as `MemoryStore.open`."""
        from melete.wire.approval import AutoApprove, Queue
        from melete.wire.store import MemoryStore

        place = data_folder() / "memories.db" if self._store is None else self._store
        approval = Queue() if self._queue else AutoApprove()
        with MemoryStore.open(place, create=create, approval=approval) as store:
            yield store

    @contextmanager
    def open_new(self) -> Iterator[MemoryStore]:
        """Open the store to fill it; a file that was made for that goes again if it is left empty by an error."""
        from melete.wire.audit import EMPTY
        from melete.wire.engines import is_on_server
        from melete.wire.recording.preflight import parse_file

        place = str(data_folder() / "memories.db") if self._store is None else self._store
        path = None if is_on_server(place) else parse_file(place, "--store")
        is_new = path is not None and not path.exists()
        is_empty = False
        try:
            with self.open(create=True) as store:
                try:
                    yield store
                except BaseException:
                    is_empty = store.audit_head() == EMPTY
                    raise
        except BaseException:
            if path is not None and is_new and is_empty:
                for ending in ("", "-wal", "-shm", "-journal"):
                    path.with_name(path.name + ending).unlink(missing_ok=True)
            raise


def store_options(command: Command) -> Command:
    """Give a command --store, --approval and --json, handed on as `where` and `as_json`."""

    @click.option(
        "--store",
        envvar="MELETE_MEMORY_STORE",
        help="A file, sqlite:///PATH or postgresql://USER@HOST/DATABASE; by default a file in the data folder. Others "
        "see what stands here: leave a password to PGPASSWORD or ~/.pgpass, or set MELETE_MEMORY_STORE.",
    )
    @click.option(
        "--approval",
        envvar="MELETE_MEMORY_APPROVAL",
        type=click.Choice(["auto", "queue"]),
        default="auto",
        show_default=True,
        help="Whether semantic and procedural memories wait for somebody's approval.",
    )
    @json_option
    @wraps(command)
    def with_store(*args: Any, store: str | None, approval: str, **options: Any) -> Any:
        return command(*args, where=StoreOptions(store, approval), **options)

    return with_store  # type: ignore[return-value]
