"""The public keys of signers by name: which to believe, which was replaced, which is never believed again.

    store = TrustStore()                            # ~/.amp/trusted.json
    store.add("alice", load_public_key("alice.pub"))
    store.rotate("alice", load_public_key("alice-2.pub"))
    store.revoke("alice")
    verify_pack(tree, trusted=store.keys_for_verification())

A name has one active key at most. `rotate` makes another one active; the old one still verifies, and every verdict says
that it was replaced: a signature carries no time, so nobody can tell packs signed before from packs signed after. Who
lost a key revokes it: it never verifies again, whatever it signed and whenever, and cannot be added again. Nothing is
ever forgotten.

The file is JSON, mode 0600, replaced whole or not at all; processes that change it wait for one another.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn

from melete.errors import InvalidInput, InvalidJson, StoreUnreadable
from melete.packs.json_text import parse
from melete.packs.keys import PublicKey, parse_public_key

ACTIVE, ROTATED, REVOKED = "active", "rotated", "revoked"
STATES: Final = (ACTIVE, ROTATED, REVOKED)
VERSION: Final = 1
#: Seconds to wait for another process.
BUSY_SECONDS: Final = 5.0
#: A store longer than that is none of ours.
LONGEST_FILE: Final = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@/-]{0,63}", re.ASCII)
_KEY_ID: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?", re.ASCII)
_MEMBERS: Final = {"name", "keyId", "publicKey", "state", "since"}


class TrustedKey(NamedTuple):
    """One key: whose it is, and in which state since when (UTC, as RFC 3339 writes it)."""

    name: str
    key: PublicKey
    state: str
    since: str


class TrustStore:
    """The keys in one file. What is not there yet is an empty store."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path: Final = default_store_path() if path is None else os.fspath(path)
        self._busy_seconds = busy_seconds

    def __repr__(self) -> str:
        return f"TrustStore({self.path!r})"

    def load(self) -> tuple[TrustedKey, ...]:
        """Return every key, in the order in which they were added, replaced ones and revoked ones too.

        Errors: `StoreUnreadable` for a file that is none of ours, or that others may write.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._unreadable(error.strerror or "it cannot be read")
        try:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                self._unreadable("it is no file")
            if mode & 0o022:
                self._unreadable(
                    f"others may write it, its mode is {mode & 0o777:04o}; look through it, then chmod 600"
                )
            with os.fdopen(handle, "rb", closefd=False) as file:
                content = file.read(LONGEST_FILE + 1)
        except OSError as error:
            self._unreadable(error.strerror or "it cannot be read")
        finally:
            os.close(handle)
        return self._parse(content)

    def keys_for_verification(self) -> tuple[TrustedKey, ...]:
        """Return what `melete.packs.signing.verify_pack` has to know: every key. Errors: as `load`."""
        return self.load()

    def find(self, name_or_key_id: str) -> tuple[TrustedKey, ...]:
        """Return the keys of a name, or the one of a key id. Errors: `InvalidInput` when there is none."""
        found = _select(self.load(), name_or_key_id)
        if not found:
            raise InvalidInput("name", name_or_key_id, f"a name or a key id in {self.path!a}; see amp trust list")
        return found

    def add(self, name: str, key: PublicKey, when: str | None = None) -> TrustedKey:
        """Trust a key under a new name.

        Errors: `InvalidInput` for a name that has keys already, and for a key that is trusted or revoked already, under
        whatever name; `StoreBusy`, `StoreUnreadable`, `StoreNotWritten`.
        """
        new = TrustedKey(check_name(name), key, ACTIVE, check_time(when))
        with self._changing() as keys:
            if any(one.name == name for one in keys):
                raise InvalidInput("name", name, "a name that has no key yet; amp trust rotate gives it another one")
            _check_new(keys, key)
            keys.append(new)
        return new

    def rotate(self, name: str, key: PublicKey, when: str | None = None) -> TrustedKey:
        """Give a name another key; the one that it had, unless revoked, counts as replaced from `when` on.

        Errors: `InvalidInput` for a name without keys, and for a key as in `add`; `StoreBusy`, `StoreUnreadable`,
        `StoreNotWritten`.
        """
        new = TrustedKey(check_name(name), key, ACTIVE, check_time(when))
        with self._changing() as keys:
            if not any(one.name == name for one in keys):
                raise InvalidInput("name", name, "a name that has a key; amp trust add gives it its first one")
            _check_new(keys, key)
            keys[:] = [
                one._replace(state=ROTATED, since=new.since) if one.name == name and one.state == ACTIVE else one
                for one in keys
            ]
            keys.append(new)
        return new

    def revoke(self, name_or_key_id: str, when: str | None = None) -> tuple[TrustedKey, ...]:
        """Never believe the keys of a name again, or the one key of an id; return them as they are then.

        What was revoked before keeps its time. Errors: `InvalidInput` for a name or id that is not there; `StoreBusy`,
        `StoreUnreadable`, `StoreNotWritten`.
        """
        since = check_time(when)
        with self._changing() as keys:
            chosen = _select(keys, name_or_key_id)
            if not chosen:
                raise InvalidInput("name", name_or_key_id, f"a name or a key id in {self.path!a}; see amp trust list")
            keys[:] = [
                one._replace(state=REVOKED, since=since) if one in chosen and one.state != REVOKED else one
                for one in keys
            ]
            return _select(keys, name_or_key_id)

    # The file

    @contextmanager
    def _changing(self) -> Iterator[list[TrustedKey]]:
        """Give the keys to be changed, and write them when all went well, while others wait."""
        from melete.packs.files import locked, make_folders, write_file

        make_folders(os.path.dirname(self.path) or ".")  # noqa: PTH120
        with locked(self.path, self._busy_seconds):
            before = self.load()
            keys = list(before)
            yield keys
            if tuple(keys) != before:
                write_file(self.path, _to_text(keys).encode(), 0o600)

    def _parse(self, content: bytes) -> tuple[TrustedKey, ...]:
        if len(content) > LONGEST_FILE:
            self._unreadable("it is too long")
        try:
            document = parse(content)
        except InvalidJson as error:
            self._unreadable(
                f"at {error.pointer or 'its top'}, {error.rule}" if error.pointer.isprintable() else error.rule
            )
        if not isinstance(document, dict) or document.keys() != {"version", "keys"}:
            self._unreadable("it is no list of trusted keys")
        version, entries = document["version"], document["keys"]
        if version != VERSION or isinstance(version, bool):
            self._unreadable(f"it is of another version than {VERSION}")
        if not isinstance(entries, list):
            self._unreadable("it is no list of trusted keys")
        keys = tuple(self._parse_key(number, entry) for number, entry in enumerate(entries, 1))
        if len({one.key for one in keys}) != len(keys):
            self._unreadable("it holds one key twice")
        active = [one.name for one in keys if one.state == ACTIVE]
        if len(set(active)) != len(active):
            self._unreadable("one name has two active keys")
        return keys

    def _parse_key(self, number: int, entry: Any) -> TrustedKey:
        if (
            not isinstance(entry, dict)
            or entry.keys() != _MEMBERS
            or not all(isinstance(one, str) for one in entry.values())
        ):
            self._unreadable(f"its key number {number} does not have just the members {', '.join(sorted(_MEMBERS))}")
        try:
            key = parse_public_key(entry["publicKey"], f"key number {number}")
            name, since = check_name(entry["name"]), check_time(entry["since"])
        except ValueError:  # the family of errors of input
            self._unreadable(f"its key number {number} has no right key, name or time")
        if key.key_id != entry["keyId"] or entry["state"] not in STATES:
            self._unreadable(f"its key number {number} has another id or an unknown state")
        return TrustedKey(name, key, entry["state"], since)

    def _unreadable(self, reason: str) -> NoReturn:
        raise StoreUnreadable(self.path, reason) from None


def default_store_path() -> str:
    """Return where trusted keys are kept: `~/.amp/trusted.json`."""
    return os.path.join(os.path.expanduser("~"), ".amp", "trusted.json")  # noqa: PTH111, PTH118


def check_name(name: str) -> str:
    """Return a signer's name: 1 to 64 letters, digits and `._@/-`. Errors: `InvalidInput`, also for a key id."""
    if not _NAME.fullmatch(name) or _KEY_ID.fullmatch(name):
        raise InvalidInput(
            "name", name, "1 to 64 letters, digits and ._@/-, no dot, stroke or dash first, and no key id"
        )
    return name


def check_time(when: str | None) -> str:
    """Return a time as RFC 3339 writes it in UTC, or a date; now for None. Errors: `InvalidInput`."""
    if when is None:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if _TIME.fullmatch(when):
        from datetime import datetime

        try:
            datetime.fromisoformat(when)
        except ValueError:
            pass
        else:
            return when
    raise InvalidInput("time", when, "a date such as 2026-07-01, or a time in UTC such as 2026-07-01T12:00:00Z")


def _check_new(keys: list[TrustedKey], key: PublicKey) -> None:
    for one in keys:
        if one.key == key:
            rule = f"a key that is not here yet; {key.key_id} is a key of {one.name}, {one.state} since {one.since}"
            raise InvalidInput("key", key.key_id, rule)


def _select(keys: tuple[TrustedKey, ...] | list[TrustedKey], name_or_key_id: str) -> tuple[TrustedKey, ...]:
    return tuple(one for one in keys if name_or_key_id in (one.name, one.key.key_id))


def _to_text(keys: list[TrustedKey]) -> str:
    entries = [
        {"name": one.name, "keyId": one.key.key_id, "publicKey": one.key.pem, "state": one.state, "since": one.since}
        for one in keys
    ]
    return json.dumps({"version": VERSION, "keys": entries}, indent=2) + "\n"
