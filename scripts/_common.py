"""What the Ape scripts share: whose account, which registry, and errors told in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from ape import accounts, networks, project

from melete import MemoryRegistry
from melete.chain.deployments import load_deployment, record_path
from melete.chain.transactions import ApeSender
from melete.errors import InputError, MeleteError, VerificationError

Script = TypeVar("Script", bound=Callable[..., Any])

ROOT = Path(__file__).resolve().parents[1]
DEPLOYMENTS = Path(os.environ.get("MELETE_DEPLOYMENTS") or ROOT / "deployments")


def is_local() -> bool:
    """Whether Ape is connected to a development node of this machine."""
    return bool(networks.provider.network.is_dev)


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
            return accounts.load(alias)
        except KeyError:
            raise click.UsageError(
                f"Ape knows no account {alias!a}; `ape accounts list` shows those it knows."
            ) from None
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
        except MeleteError as error:
            click.echo(f"melete: {error}", err=True)
            sys.exit(2 if isinstance(error, InputError) else 1 if isinstance(error, VerificationError) else 3)

    return run  # type: ignore[return-value]
