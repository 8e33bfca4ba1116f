"""What the Ape scripts about a subject's maintenance share: the registry."""

from __future__ import annotations

from typing import Any

import click
from ape import networks
from scripts._common import DEPLOYMENTS

from melete.chain.deployments import load_deployment, record_path
from melete.chain.transactions import ApeSender
from melete.meditation.registry import MeditationRegistry


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
