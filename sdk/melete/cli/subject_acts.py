"""What `melete subject` changes: each is one transaction of the key given, told beforehand if the registry refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.keys import signer_options
from melete.cli.layers import NAMES, LayersParameter, load_file, parse_floor
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, subject_options
from melete.cli.stores import WitnessOptions, witness_options
from melete.cli.subject_events import event_json
from melete.cli.times import SpanParameter, TimeParameter
from melete.primitives import Address

if TYPE_CHECKING:
    from melete.meditation.registry import MeditationRegistry
    from melete.signing import LocalSigner

RIGHTS: Final = {"floor": 1, "demand": 2, "revoke-operators": 4}
PERMISSIONS: Final = {"report": 1, "pulse": 2, "policy": 4}
NOBODY: Final = "none"


def acting(settings: Settings, signer: LocalSigner) -> MeditationRegistry:
    """Return the registry as the key's account uses it."""
    from melete.chain.transactions import LocalSender

    registry = settings.connect_meditation()
    registry.sender = LocalSender(signer)
    return registry


def show_event(event: Any, as_json: bool) -> None:
    """Print what an event says."""
    emit(event_json(event), as_json=as_json)


@click.command("enroll")
@click.option("--policy", "policy_file", type=click.Path(dir_okay=False), required=True, help="The policy document.")
@click.option("--policy-uri", default="", help="Where the policy document can be had; public.")
@click.option(
    "--layer",
    "files",
    type=click.Path(dir_okay=False),
    multiple=True,
    required=True,
    help="A layer state document; give four.",
)
@click.option("--controller", help="Who may set the floor, demand and revoke operators.")
@click.option("--rights", help="Its rights, joined by commas: floor, demand, revoke-operators.")
@click.option("--public-salt", is_flag=True, help="Commit with zero salts: whoever guesses a document can tell.")
@witness_options
@signer_options
@subject_options
@json_option
def enroll(
    policy_file: str, policy_uri: str, files: tuple[str, ...], controller: str | None, rights: str | None,
    public_salt: bool, witnesses: WitnessOptions, signer: LocalSigner, payer: LocalSigner,  # noqa: ARG001
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Enroll the key given as a subject, with four layer documents as its baseline.

    What the registry would refuse is refused first. Then documents and salts go into the witness store; run again after
    a crash, the salts of the same documents are taken from there.
    """
    from melete.errors import InvalidInput
    from melete.meditation.documents import POLICY_SCHEMA, derive_policy
    from melete.meditation.enrolling import enroll as enroll_subject

    policy = derive_policy(load_file(policy_file, POLICY_SCHEMA), policy_uri)
    documents: dict[Any, Any] = {}
    for file in files:
        document = load_file(file)
        if "layer" not in document or document["layer"] in documents:
            raise InvalidInput("--layer", file, "one state document for each layer")
        documents[document["layer"]] = document
    if set(documents) != set(range(4)):
        raise InvalidInput("--layer", len(documents), "four documents, one for each layer")
    if (controller is None) != (rights is None):
        raise click.UsageError("--controller and --rights go together.")
    registry = acting(settings, signer)
    named = None if controller is None else Address(controller, "--controller")
    mask = mask_of_names(rights, RIGHTS, "--rights")
    with witnesses.open() as store:
        event = enroll_subject(registry, store, documents, policy, named, mask, public_salt=public_salt)
    show_event(event, as_json)


@click.command("policy")
@click.argument("address")
@click.argument("document", type=click.Path(dir_okay=False))
@click.option("--uri", default="", help="Where the document can be had; public.")
@signer_options
@subject_options
@json_option
def policy(
    address: str, document: str, uri: str, signer: LocalSigner, payer: LocalSigner, settings: Settings, as_json: bool  # noqa: ARG001
) -> None:  # fmt: skip
    """Append the policy in DOCUMENT as ADDRESS's next version, as ADDRESS itself or an operator that may."""
    from melete.meditation.documents import POLICY_SCHEMA, derive_policy

    made = derive_policy(load_file(document, POLICY_SCHEMA), uri)
    show_event(acting(settings, signer).set_policy(Address(address, "ADDRESS"), made), as_json)


@click.command("floor")
@click.argument("address")
@click.option(
    "--require", multiple=True, metavar="LAYER=SPAN", help="A required layer and its longest interval: runtime=1d."
)
@click.option("--pulse", type=SpanParameter(), default=0, help="The longest time between signals; 0 for none.")
@signer_options
@subject_options
@json_option
def floor(
    address: str, require: tuple[str, ...], pulse: int, signer: LocalSigner, payer: LocalSigner,  # noqa: ARG001
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Replace ADDRESS's floor, as its controller. Without --require and --pulse nothing is required any more."""
    made = parse_floor(require, pulse)
    show_event(acting(settings, signer).set_floor(Address(address, "ADDRESS"), made), as_json)


@click.command("controller")
@click.argument("address")
@click.argument("new_controller")
@click.option("--rights", help="Its rights, joined by commas: floor, demand, revoke-operators.")
@click.option("--yes", is_flag=True, help="Do it. Without it, only say what would change.")
@signer_options
@subject_options
@json_option
def controller(
    address: str, new_controller: str, rights: str | None, yes: bool, signer: LocalSigner, payer: LocalSigner,  # noqa: ARG001
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Make NEW_CONTROLLER ADDRESS's controller, or give the position up with `none`.

    A subject cannot take the position back, so this does nothing without --yes.
    """
    subject = Address(address, "ADDRESS")
    named = Address(bytes(20)) if new_controller == NOBODY else Address(new_controller, "NEW_CONTROLLER")
    mask = mask_of_names(rights, RIGHTS, "--rights")
    registry = acting(settings, signer)
    if yes:
        show_event(registry.set_controller(subject, named, mask), as_json)
        return
    head = registry.head(subject)
    found = {"changed": False, "controller": head.controller, "rights": head.controller_rights}
    emit({**found, "newController": named, "newRights": mask}, as_json=as_json)


@click.command("operator")
@click.argument("address")
@click.argument("operator_address", metavar="OPERATOR")
@click.option("--allow", help="Permissions, joined by commas: report, pulse, policy.")
@click.option("--revoke", is_flag=True, help="Take every permission away, as subject or as controller.")
@signer_options
@subject_options
@json_option
def operator(
    address: str, operator_address: str, allow: str | None, revoke: bool, signer: LocalSigner, payer: LocalSigner,  # noqa: ARG001
    settings: Settings, as_json: bool,
) -> None:  # fmt: skip
    """Let OPERATOR act for ADDRESS, or stop it."""
    if (allow is None) != revoke:
        raise click.UsageError("give --allow or --revoke.")
    if allow is not None and not allow.strip():
        raise click.UsageError(f"--allow names at least one of {', '.join(PERMISSIONS)}; --revoke takes all away.")
    subject, named = Address(address, "ADDRESS"), Address(operator_address, "OPERATOR")
    registry = acting(settings, signer)
    if revoke:
        show_event(registry.revoke_operator(subject, named), as_json)
        return
    if subject != signer.address:
        raise click.UsageError("only the subject itself can allow an operator; give its key.")
    show_event(registry.set_operator(named, mask_of_names(allow, PERMISSIONS, "--allow")), as_json)


@click.command("demand")
@click.argument("address")
@click.option(
    "--layers", type=LayersParameter(), required=True, help=f"0 to 3 or {', '.join(NAMES)}, joined by commas."
)
@click.option("--by", "due_by", type=TimeParameter(), required=True, help="By when: 2026-12-04T17:00, +3h, friday.")
@signer_options
@subject_options
@json_option
def demand(
    address: str, layers: int, due_by: int, signer: LocalSigner, payer: LocalSigner, settings: Settings, as_json: bool  # noqa: ARG001
) -> None:  # fmt: skip
    """Demand that layers of ADDRESS be completed by a time, as its controller."""
    show_event(acting(settings, signer).demand(Address(address, "ADDRESS"), layers, due_by), as_json)


@click.command("withdraw")
@click.argument("address")
@click.option(
    "--layers", type=LayersParameter(), required=True, help=f"0 to 3 or {', '.join(NAMES)}, joined by commas."
)
@signer_options
@subject_options
@json_option
def withdraw(
    address: str, layers: int, signer: LocalSigner, payer: LocalSigner, settings: Settings, as_json: bool  # noqa: ARG001
) -> None:  # fmt: skip
    """Withdraw the demands on layers of ADDRESS, as its controller."""
    show_event(acting(settings, signer).withdraw_demand(Address(address, "ADDRESS"), layers), as_json)


@click.command("pulse")
@click.argument("address")
@click.option(
    "--next", "next_planned_at", type=TimeParameter(), default=0, help="When the next cycle is planned; a hint."
)
@signer_options
@subject_options
@json_option
def pulse(
    address: str, next_planned_at: int, signer: LocalSigner, payer: LocalSigner, settings: Settings, as_json: bool  # noqa: ARG001
) -> None:  # fmt: skip
    """Give a sign of ADDRESS's activity. It refreshes no layer and moves no deadline."""
    show_event(acting(settings, signer).pulse(Address(address, "ADDRESS"), next_planned_at), as_json)


def mask_of_names(text: str | None, known: dict[str, int], option: str) -> int:
    """Return the mask of names joined by commas; 0 for none. Errors: `click.UsageError`."""
    mask = 0
    for name in (text or "").split(",") if text else []:
        if name.strip() not in known:
            raise click.UsageError(f"{option}: {name!a} is none of {', '.join(known)}.")
        mask |= known[name.strip()]
    return mask
