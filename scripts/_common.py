"""What the Ape scripts share: whose account, which registry, and errors told in one sentence.

Ape's keyfile accounts are asked for at a terminal. Where nobody sits at one, as in cron, the passphrase comes from the
environment: APE_ACCOUNTS_<ALIAS>_PASSPHRASE, and then the account signs without asking.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from ape import accounts, networks, project
from ape.cli import ConnectedProviderCommand
from ape.exceptions import ApeException
from ape.logging import LogLevel, logger

from melete import MemoryRegistry
from melete.chain.connection import check_chain
from melete.chain.deployments import load_deployment, record_path
from melete.chain.transactions import ApeSender
from melete.errors import InputError, MeleteError, VerificationError, WrongChain

Script = TypeVar("Script", bound=Callable[..., Any])

ROOT = Path(__file__).resolve().parents[1]
#: The chain id that Ape expects of a local network, whatever node serves it.
APE_LOCAL_CHAIN = 1337
COULD_NOT_TELL = 3
DEPLOYMENTS = Path(os.environ.get("MELETE_DEPLOYMENTS") or ROOT / "deployments")


class ScriptCommand(ConnectedProviderCommand):
    """A command that prints its own lines only, and ends with exit code 3 when Ape reaches no node or no account."""

    def invoke(self, ctx: click.Context) -> Any:
        with logger.at_level(LogLevel.ERROR):
            try:
                return super().invoke(ctx)
            except click.Abort:
                _stop(
                    "Ape asked for the account's passphrase or consent, and nobody answered; "
                    "set APE_ACCOUNTS_<ALIAS>_PASSPHRASE where nobody can."
                )
            except (ApeException, OSError) as error:
                # What Ape says may hold the node's URL, and with it a key.
                _stop(f"Ape could not go on ({type(error).__name__}); check --network and account.{_local_hint()}")


def is_local() -> bool:
    """Whether Ape is connected to a development node of this machine."""
    return bool(networks.provider.network.is_dev)


def require_chain() -> int:
    """Return the chain id, the same by the node's word and by Ape's. Errors: `WrongChain`."""
    return check_chain(networks.provider.web3, networks.provider.chain_id)


def is_testnet() -> bool:
    """Whether the chain that the node serves is listed as a testnet, whatever the network is called."""
    from evmchains import PUBLIC_CHAIN_META

    return any(
        chain.get("chainId") == networks.provider.chain_id and chain.get("isTestnet")
        for ecosystem in PUBLIC_CHAIN_META.values()
        for chain in ecosystem.values()
    )


def load_account(alias: str | None) -> Any:
    """Return the Ape account that pays: the one named, or on a local chain the first test account."""
    if alias is not None:
        try:
            account = accounts.load(alias)
        except KeyError:
            raise click.UsageError(
                f"Ape knows no account {alias!a}; `ape accounts list` shows those it knows."
            ) from None
        passphrase = _passphrase_of(alias)
        if passphrase and hasattr(account, "set_autosign"):
            account.set_autosign(True, passphrase=passphrase)
        return account
    if is_local():
        return accounts.test_accounts[0]
    raise click.UsageError("this chain is not local: name the account that pays with --account ALIAS.")


def load_contract(name: str) -> Any:
    """Return a contract of the project by name, compiled anew if its sources changed."""
    project.load_contracts()
    return project.get_contract(name)


def load_registry(address: str | None, account: Any) -> MemoryRegistry:
    """Return the client of the registry at an address, or of the one recorded for the connected chain."""
    chain_id = networks.provider.chain_id
    if address is None:
        path = record_path(DEPLOYMENTS, chain_id)
        if not path.exists():
            raise click.UsageError(
                "no registry is recorded for this chain; give --registry, or `ape run deploy` first."
            )
        address = str(load_deployment(path, "AgentMemoryStateRegistry").address)
    return MemoryRegistry(networks.provider.web3, address, sender=ApeSender(account), expected_chain_id=chain_id)


def checkout_commit() -> str:
    """Return the commit that the contracts are built from, with -dirty after it when they were changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--", "contracts", "ape-config.yaml", "package-lock.json")
    return f"{commit}-dirty" if commit and changed else commit


def telling_errors(script: Script) -> Script:
    """End a script on an error of ours with one sentence: 1 does not hold, 2 usage, 3 could not tell."""

    @wraps(script)
    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return script(*arguments, **options)
        except WrongChain as error:
            _stop(f"the node serves chain {error.received}, and --network names chain {error.expected}.{_local_hint()}")
        except MeleteError as error:
            click.echo(f"melete: {error}", err=True)
            sys.exit(2 if isinstance(error, InputError) else 1 if isinstance(error, VerificationError) else 3)

    return run  # type: ignore[return-value]


def _passphrase_of(alias: str) -> str | None:
    """Return an account's passphrase from the environment: by Ape's name for it, or one that a shell can set."""
    plain = alias.upper().replace("-", "_")
    names = (f"APE_ACCOUNTS_{alias}_PASSPHRASE", f"APE_ACCOUNTS_{plain}_PASSPHRASE")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _local_hint() -> str:
    """Return what is to be known of Ape's local network, where that is the one."""
    provider = networks.active_provider
    if provider is None or provider.network.name != "local":
        return ""
    return f" Ape's local network is chain {APE_LOCAL_CHAIN}: start the node with `anvil --chain-id {APE_LOCAL_CHAIN}`."


def _stop(sentence: str) -> NoReturn:
    click.echo(f"melete: {sentence}", err=True)
    sys.exit(COULD_NOT_TELL)
