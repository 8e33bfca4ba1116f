"""`melete space`: register, rotate, look up and migrate spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from melete.cli.keys import signer_options
from melete.cli.migrate import migrate, verify_migration
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.primitives import Address, Bytes32

if TYPE_CHECKING:
    from melete.signing import LocalSigner


@click.group()
def command() -> None:
    """Register, rotate and look up spaces; migrate an older prototype's memory into a new one."""


command.add_command(migrate)
command.add_command(verify_migration)


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


@command.command("register")
@click.option("--authorizer", help="Who approves transitions; the controller itself unless given.")
@click.option("--salt", help="32 bytes as hex; fresh ones unless given.")
@signer_options
@registry_options
@json_option
def register(
    authorizer: str | None,
    salt: str | None,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Register a space whose controller is the key given."""
    import secrets

    from melete.chain.transactions import LocalSender

    approver = signer.address if authorizer is None else Address(authorizer, "--authorizer")
    word = Bytes32(secrets.token_bytes(32) if salt is None else salt, "--salt")
    registry = settings.connect()
    registry.sender = LocalSender(payer)
    event = registry.register(approver, word, controller=signer)
    found = {"spaceId": event.space_id, "controller": event.controller, "authorizer": event.authorizer, "salt": word}
    emit({**found, "block": event.reference.block_number}, as_json=as_json)


@command.command("rotate")
@click.argument("space")
@click.option("--controller", help="The next controller; the current one unless given.")
@click.option("--authorizer", help="The next authorizer; the current one unless given.")
@click.option("--yes", is_flag=True, help="Rotate. Without it, only say what would change.")
@signer_options
@registry_options
@json_option
def rotate(
    space: str,
    controller: str | None,
    authorizer: str | None,
    yes: bool,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Replace controller or authorizer of SPACE, signed by its current controller.

    There is no way back from a wrong address, so without --yes this says what would change, and how much gas it would
    take, or what the registry would refuse; and does nothing.
    """
    from melete.chain.transactions import LocalSender

    if controller is None and authorizer is None:
        raise click.UsageError("give --controller or --authorizer: without both, nothing would be rotated.")
    space_id = Bytes32(space, "SPACE")
    registry = settings.connect()
    registry.sender = LocalSender(payer)
    now = registry.authorization(space_id)
    next_controller = now.controller if controller is None else Address(controller, "--controller")
    next_authorizer = now.authorizer if authorizer is None else Address(authorizer, "--authorizer")
    found = {
        "controller": now.controller,
        "newController": next_controller,
        "authorizer": now.authorizer,
        "newAuthorizer": next_authorizer,
    }
    if yes:
        registry.rotate(space_id, next_controller, next_authorizer, controller=signer)
        emit({"rotated": True, **found}, as_json=as_json)
        return
    approval = registry.sign_rotation(space_id, next_controller, next_authorizer, signer)
    gas = registry.check_rotate(space_id, next_controller, next_authorizer, approval)
    emit({"rotated": False, **found, "gas": str(gas)}, as_json=as_json)
