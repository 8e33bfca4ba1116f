"""What the Ape scripts about a subject's maintenance share: the registry, and one sentence when no node is reached."""

from __future__ import annotations

import sys
from typing import Any

import click
from ape import networks
from ape.cli import ConnectedProviderCommand
from ape.exceptions import ApeException
from ape.logging import LogLevel, logger
from scripts._common import DEPLOYMENTS

from melete.chain.deployments import load_deployment, record_path
from melete.chain.transactions import ApeSender
from melete.meditation.registry import MeditationRegistry


class SubjectCommand(ConnectedProviderCommand):
    """A command that prints its own lines only, and ends with exit code 3 when Ape reaches no node."""

    def invoke(self, ctx: click.Context) -> Any:
        with logger.at_level(LogLevel.ERROR):
            try:
                return super().invoke(ctx)
            except (ApeException, OSError) as error:
                # What Ape says may hold the node's URL, and with it a key.
                click.echo(
                    f"melete: Ape could not go on ({type(error).__name__}); check --network and account.", err=True
                )
                sys.exit(3)


def load_subjects(address: str | None, account: Any = None) -> MeditationRegistry:
    """Return the client of the registry of subjects at an address, or of the one recorded for the connected chain."""
    chain_id = networks.provider.chain_id
    if address is None:
        path = record_path(DEPLOYMENTS, chain_id)
        if not path.exists():
            raise click.UsageError(
                "no registry is recorded for this chain; give --registry, or `ape run deploy` first."
            )
        address = str(load_deployment(path, "AgentMeditationRegistry").address)
    sender = None if account is None else ApeSender(account)
    return MeditationRegistry(networks.provider.web3, address, sender=sender, expected_chain_id=chain_id)
