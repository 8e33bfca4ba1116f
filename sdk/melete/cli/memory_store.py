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

        place = self._store or data_folder() / "memories.db"
        approval = Queue() if self._queue else AutoApprove()
        with MemoryStore.open(place, create=create, approval=approval) as store:
            yield store


def store_options(command: Command) -> Command:
    """Give a command --store, --approval and --json, handed on as `where` and `as_json`."""

    @click.option(
        "--store",
        envvar="MELETE_MEMORY_STORE",
        help="A file, sqlite:///PATH or postgresql://...; by default a file in the data folder.",
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
