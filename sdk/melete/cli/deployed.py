"""What the deployment record at hand says of the registry that a command talks to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from melete.chain.deployments import Deployment
    from melete.cli.settings import Settings
    from melete.memory.registry import MemoryRegistry

CONTRACT: Final = "AgentMemoryStateRegistry"


def find_deployment(settings: Settings, registry: MemoryRegistry) -> Deployment | None:
    """Return the record of this very registry, or None where the records know none, or another one.

    Errors: those of `load_deployment` for a record that is ill-formed.
    """
    from melete.chain.deployments import load_deployment, record_path, recorded_contracts

    path = record_path(Path(settings.deployments or "deployments"), registry.chain_id)
    if not path.exists() or CONTRACT not in recorded_contracts(path):
        return None
    deployment = load_deployment(path, CONTRACT)
    return deployment if deployment.address == registry.address else None


def first_block(settings: Settings, registry: MemoryRegistry, given: int | None) -> int:
    """Return where reading starts: at the block given, else at the one of deployment, else at the chain's first."""
    if given is not None:
        return given
    deployment = find_deployment(settings, registry)
    return 0 if deployment is None else deployment.block
