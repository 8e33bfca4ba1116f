"""`melete space`: derive and look up spaces."""

from __future__ import annotations

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.primitives import Address, Bytes32


@click.group()
def command() -> None:
    """Derive and look up spaces."""


@command.command("id")
@click.option("--controller", required=True, help="The account that will register the space.")
@click.option("--salt", required=True, help="32 bytes as hex; lets one controller own many spaces.")
@json_option
def show_id(controller: str, salt: str, as_json: bool) -> None:
    """Print the id that controller and salt derive."""
    from melete.memory.space import compute_space_id

    space_id = compute_space_id(Address(controller, "--controller"), Bytes32(salt, "--salt"))
    emit({"spaceId": space_id}, as_json=as_json)


@command.command("show")
@click.argument("space")
@registry_options
@json_option
def show_space(space: str, settings: Settings, as_json: bool) -> None:
    """Print who may act for SPACE, and its head."""
    space_id = Bytes32(space, "SPACE")
    registry = settings.connect()
    state = registry.load_state(space_id)
    emit(
        {
            "chainId": registry.chain_id,
            "registry": registry.address,
            "spaceId": space_id,
            "sequence": str(state.head.sequence),
            "stateRoot": state.head.state_root,
            "transitionId": state.head.transition_id,
            "controller": state.authorization.controller,
            "authorizer": state.authorization.authorizer,
            "configNonce": str(state.authorization.config_nonce),
        },
        as_json=as_json,
    )
