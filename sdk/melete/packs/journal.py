"""What a change of several places is about to do, as it is written down before anything is changed.

A journal is read as a stranger's text: it can name only what an install for its slug may touch.

Source: decisions, AMP packs, Install.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from melete.packs.folder import Draft
from melete.packs.hosts import KEPT, PACKS, RECORDS, Scope, host_files, pack_folder, record_file
from melete.packs.manifest import is_slug

_FORMAT: Final = "amp-journal/1"


class Swap(NamedTuple):
    """One place, and what it shall hold: `content` for a file, a folder that `fill` writes, or nothing."""

    path: str
    #: What was there when the change was planned; None for nothing.
    before: os.stat_result | None
    content: bytes | None = None
    fill: Callable[[Draft], None] | None = None

    @property
    def has_new(self) -> bool:
        return self.content is not None or self.fill is not None


class Step(NamedTuple):
    """What the journal keeps of a swap."""

    path: str
    #: Something was there before, and something shall be there afterwards.
    had: bool
    has_new: bool
    #: The SHA-256 of a new file; None for a folder.
    sha256: str | None
    token: str

    @property
    def new(self) -> str:
        return self._beside("new")

    @property
    def old(self) -> str:
        return self._beside("old")

    def _beside(self, word: str) -> str:
        folder, slash, name = self.path.rpartition("/")
        return f"{folder}{slash}.{name}.amp-{self.token}.{word}"


class Journal(NamedTuple):
    """What a change is about to do."""

    operation: str
    slug: str
    token: str
    steps: tuple[Step, ...]
    #: Folders that the change makes, outermost first, and folders that it removes if they are empty, innermost first.
    made: tuple[str, ...]
    emptied: tuple[str, ...]

    def to_bytes(self) -> bytes:
        swaps = [{"path": one.path, "had": one.had, "new": one.has_new, "sha256": one.sha256} for one in self.steps]
        head = {"format": _FORMAT, "operation": self.operation, "slug": self.slug, "token": self.token}
        return json.dumps({**head, "swaps": swaps, "made": self.made, "emptied": self.emptied}).encode()

    @classmethod
    def from_bytes(cls, content: bytes, scope: Scope) -> Journal:
        """Read a journal. Errors: `ValueError` for one that names what no install for its slug may touch."""
        document = json.loads(content)
        if document["format"] != _FORMAT:
            raise ValueError("it is of another version")
        slug, token = document["slug"], document["token"]
        if not is_slug(slug) or len(token) != 8 or token.strip("0123456789abcdef"):
            raise ValueError("it was never written by this program")
        places, folders = managed_places(scope, slug, token), managed_folders(scope, slug)
        steps = tuple(
            Step(_one_of(swap["path"], places), bool(swap["had"]), bool(swap["new"]), swap["sha256"], token)
            for swap in document["swaps"]
        )
        made = tuple(_one_of(path, folders) for path in document["made"])
        emptied = tuple(_one_of(path, folders) for path in document["emptied"])
        return cls(str(document["operation"]), slug, token, steps, made, emptied)


def managed_places(scope: Scope, slug: str, token: str) -> set[str]:
    """Return every path that a change for a pack may swap."""
    kept = f"{KEPT}/{slug}-{token}"
    return {pack_folder(slug), record_file(slug), kept, *host_files(scope, slug).values()}


def managed_folders(scope: Scope, slug: str) -> set[str]:
    """Return every folder that a change for a pack may make, or remove when it is empty."""
    folders = {PACKS, RECORDS, KEPT}
    for path in host_files(scope, slug).values():
        folders.update(parents_of(path))
    return folders


def parents_of(path: str) -> list[str]:
    """Return the folders that a path lies in, outermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _one_of(path: Any, allowed: set[str]) -> str:
    if path not in allowed:
        raise ValueError("it names what is no business of an install")
    return str(path)
