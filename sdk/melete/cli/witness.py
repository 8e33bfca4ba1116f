"""`melete witness`: keep, move and try what opens commitments."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, witness_options
from melete.primitives import Bytes32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from melete.memory.witness_keys import Key, StoreKey

EXPORT_PASSPHRASE: Final = "MELETE_EXPORT_PASSPHRASE"  # noqa: S105  # a name


@click.group()
def command() -> None:
    """Keep, move and try what opens commitments. The store is encrypted; its key is never shown."""


@command.command("init")
@click.option("--new-key-file", help="Write a fresh key to this file, for its owner alone.")
@witness_options
@json_option
def init(new_key_file: str | None, witnesses: WitnessOptions, as_json: bool) -> None:
    """Make a new store, under a fresh key or the one that the options name."""
    from melete.errors import InvalidInput
    from melete.memory.witness_store import WitnessStore

    if new_key_file and (witnesses.path.exists() or witnesses.path.is_symlink()):
        raise InvalidInput("--witnesses", str(witnesses.path), "a file that does not exist yet; no key was written")
    if new_key_file is None:
        WitnessStore.create(witnesses.path, witnesses.load_key()).close()
    else:
        with fresh_key(Path(new_key_file), witnesses.path) as key:
            WitnessStore.create(witnesses.path, key).close()
    emit({"store": str(witnesses.path), "keyFile": new_key_file or ""}, as_json=as_json)


@command.command("list")
@witness_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: an object for each row.")
def list_rows(witnesses: WitnessOptions, as_json: bool) -> None:
    """Show which commitments can be opened, without opening any."""
    with witnesses.open() as store:
        for row in store.list_rows():
            place = f"{row.place.kind} 0x{row.place.scope.hex()} {row.place.number}"
            state = "erased" if row.erased else "kept"
            emit({"place": place, "commitment": row.commitment, "state": state}, as_json=as_json)


@command.command("drill")
@click.argument("space")
@click.option("--from-block", type=click.IntRange(0), help="Where to start, in place of the registry's recorded block.")
@witness_options
@registry_options
@json_option
def drill_space(
    space: str, from_block: int | None, witnesses: WitnessOptions, settings: Settings, as_json: bool
) -> None:
    """Open every commitment of SPACE, and name what does not open.

    The commitments are those of the space's whole history, verified and compared with the registry's own state as
    `melete history` does. Exit code 1 if one stays closed, if the history does not hold, or if there is no such space.
    """
    from melete.cli.deployed import first_block
    from melete.cli.drilling import Driller
    from melete.cli.history_reader import HistoryReader, late_start
    from melete.cli.progress import Progress
    from melete.errors import BrokenHistory

    space_id = Bytes32(space, "SPACE")
    registry = settings.connect()
    with witnesses.open() as store:
        driller, progress = Driller(store), Progress()
        reader = HistoryReader(registry, space_id, first_block(settings, registry, from_block), "latest", None)
        try:
            anchored_by = reader.read_to_anchor(
                driller,
                lambda number: progress.tell(
                    f"block {number} of {reader.last_block}, {reader.tally.opened} opened, {len(driller.closed)} closed"
                ),
            )
        except BrokenHistory as error:
            raise late_start(error, from_block) from None
        finally:
            progress.clear()
    closed, opened = driller.closed, reader.tally.opened
    found = {"tried": str(opened + len(closed)), "opened": str(opened), "closed": closed}
    emit({**found, "block": reader.position.number, "anchoredBy": anchored_by.value}, as_json=as_json)
    if closed:
        raise click.exceptions.Exit(1)


@command.command("backup")
@click.argument("file")
@witness_options
@json_option
def backup(file: str, witnesses: WitnessOptions, as_json: bool) -> None:
    """Copy the store to FILE, whole, while others go on writing. The copy has the same key."""
    with witnesses.open() as store:
        store.backup(Path(file))
    emit({"backup": file}, as_json=as_json)


@command.command("rekey")
@click.argument("new_key_file")
@witness_options
@json_option
def rekey(new_key_file: str, witnesses: WitnessOptions, as_json: bool) -> None:
    """Encrypt the store anew, under a fresh key in NEW_KEY_FILE."""
    with witnesses.open() as store, fresh_key(Path(new_key_file), witnesses.path) as key:
        store.change_key(key)
    emit({"store": str(witnesses.path), "keyFile": new_key_file}, as_json=as_json)


@command.command("export")
@click.argument("file")
@click.option("--plain", is_flag=True, help="Write content and salts readable by anyone who has the file.")
@witness_options
@json_option
def export(file: str, plain: bool, witnesses: WitnessOptions, as_json: bool) -> None:
    """Write all witnesses to FILE: encrypted under the store's key, unless --plain says otherwise."""
    from melete.memory.witness_export import export_encrypted, export_plain

    with witnesses.open() as store:
        count = export_plain(store, Path(file)) if plain else export_encrypted(store, Path(file), witnesses.load_key())
    emit({"file": file, "witnesses": str(count)}, as_json=as_json)


@command.command("import")
@click.argument("file")
@click.option(
    "--export-key-file",
    envvar="MELETE_EXPORT_KEY_FILE",
    help="The file that holds the key that FILE is encrypted with, when it is another one than the store's.",
)
@witness_options
@json_option
def import_file(file: str, export_key_file: str | None, witnesses: WitnessOptions, as_json: bool) -> None:
    """Take the witnesses of an export into the store; what is there already stays as it is.

    An export is encrypted with the key that its store had then: after a rekey, or in another store, name that one by
    --export-key-file, or give its passphrase in MELETE_EXPORT_PASSPHRASE.
    """
    from melete.errors import ConfigurationError, WrongKey
    from melete.memory.witness_export import import_witnesses

    key = load_export_key(export_key_file)
    with witnesses.open() as store:
        try:
            found = import_witnesses(store, Path(file), key or witnesses.load_key())
        except WrongKey:
            if key is not None:
                raise
            raise ConfigurationError(
                "the store's key does not fit the export, and nothing was changed; name the key that it is encrypted "
                f"with by --export-key-file, or its passphrase in {EXPORT_PASSPHRASE}"
            ) from None
    emit({name: str(getattr(found, name)) for name in found.__slots__}, as_json=as_json)


@command.command("erase")
@click.argument("space")
@click.argument("sequence")
@click.option("--yes", is_flag=True, help="Erase it for good: its commitment can never be opened again.")
@witness_options
@json_option
def erase(space: str, sequence: str, yes: bool, witnesses: WitnessOptions, as_json: bool) -> None:
    """Erase the witness of one delta. The commitment on chain stays, and stays closed."""
    from melete.memory.witness_kinds import DELTA
    from melete.primitives import parse_sequence

    place = DELTA.place(Bytes32(space, "SPACE"), parse_sequence(sequence, "SEQUENCE"))
    if not yes:
        raise click.UsageError("erasing cannot be undone; add --yes.")
    with witnesses.open() as store:
        emit({"erased": str(store.erase(place))}, as_json=as_json)


@contextmanager
def fresh_key(path: Path, store: Path) -> Iterator[StoreKey]:
    """Write a fresh key to a new file, for a store to take; one that opens nothing in the end is not left behind."""
    from melete.memory.witness_keys import create_key_file

    key = create_key_file(path)
    try:
        yield key
    except BaseException:
        if not may_open(store, key):
            path.unlink(missing_ok=True)
        raise


def may_open(path: Path, key: StoreKey) -> bool:
    """Return whether a store has this key, or nobody can tell: whatever failed may have failed afterwards."""
    from melete.errors import MeleteError, WrongKey
    from melete.memory.witness_store import WitnessStore

    try:
        WitnessStore.open(path, key, read_only=True).close()
    except WrongKey:
        return False
    except MeleteError:
        return os.path.lexists(path)
    return True


def load_export_key(path: str | None) -> Key | None:
    """Return the key of an export that is named apart from the store's, if one is. Errors: the loaders' own."""
    from melete.memory.witness_keys import Passphrase, load_key_file

    passphrase = os.environ.get(EXPORT_PASSPHRASE)
    if path and passphrase:
        raise click.UsageError(f"--export-key-file and {EXPORT_PASSPHRASE} contradict each other; give one of them.")
    if path:
        return load_key_file(Path(path))
    return Passphrase(passphrase) if passphrase else None
