"""`melete registry`: check that a registry is what it should be."""

from __future__ import annotations

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options


@click.group()
def command() -> None:
    """Check that a registry is what it should be."""


@command.command("check")
@registry_options
@json_option
def check_registry(settings: Settings, as_json: bool) -> None:
    """Compare the registry's hashes with the SDK's, and its code with the artifact in this package.

    Another ERC-8350 registry passes with its own code: "code" then says "other".
    """
    from melete.chain.deployments import verify_code
    from melete.errors import CodeMismatch

    registry = settings.connect()
    checked = registry.cross_check()
    try:
        verify_code(registry.w3, "AgentMemoryStateRegistry", registry.address)
        code = "equal to the artifact"
    except CodeMismatch:
        code = "other"
    emit(
        {
            "chainId": registry.chain_id,
            "registry": registry.address,
            "agreed": list(checked.agreed),
            "unanswered": list(checked.unanswered),
            "code": code,
        },
        as_json=as_json,
    )
