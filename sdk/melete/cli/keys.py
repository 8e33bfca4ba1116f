"""Whose keys a command uses. A key or password is never a word on the command line, where other users could read it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from melete.signing import LocalSigner

Command = TypeVar("Command", bound=Callable[..., Any])


def signer_options(command: Command) -> Command:
    """Give a command the options that name its key, handed on as `signer` (the one who approves) and `payer`."""

    @click.option("--key-file", help="A file of mode 0600 that holds the private key as hex.")
    @click.option("--keystore", help="An encrypted keystore file; its password is asked for, or MELETE_PASSWORD.")
    @click.option("--payer-key-file", help="The key that pays, when it is not the one that approves.")
    @wraps(command)
    def with_keys(
        *args: Any, key_file: str | None, keystore: str | None, payer_key_file: str | None, **options: Any
    ) -> Any:
        signer = load_signer(key_file, keystore)
        payer = signer if payer_key_file is None else load_signer(payer_key_file, None)
        return command(*args, signer=signer, payer=payer, **options)

    return with_keys  # type: ignore[return-value]


def load_signer(key_file: str | None, keystore: str | None) -> LocalSigner:
    """Return the signer that the options or MELETE_PRIVATE_KEY name.

    Errors: `click.UsageError` when none or two are named; those of `melete.signing`'s loaders.
    """
    from melete.signing import LocalSigner, load_key_file, load_keystore

    from_environment = os.environ.get("MELETE_PRIVATE_KEY")
    if key_file is not None and keystore is not None:
        raise click.UsageError("--key-file and --keystore name two keys; give one.")
    if key_file is not None:
        return load_key_file(Path(key_file))
    if keystore is not None:
        password = os.environ.get("MELETE_PASSWORD") or click.prompt(
            "Password of the keystore", hide_input=True, err=True
        )
        return load_keystore(Path(keystore), password)
    if from_environment:
        return LocalSigner(from_environment)
    raise click.UsageError("this needs a key: give --key-file or --keystore, or set MELETE_PRIVATE_KEY.")
