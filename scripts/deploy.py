"""Deploy the registries and record where they stand: ape run deploy [CONTRACT...] [--network ...] [--account ALIAS]."""

from __future__ import annotations

from typing import Any

import click
from ape import networks, project
from scripts._common import (
    DEPLOYMENTS,
    ScriptCommand,
    checkout_commit,
    is_local,
    is_testnet,
    load_account,
    require_chain,
    telling_errors,
)

from melete import Address, Bytes32, MemoryRegistry, keccak256
from melete.chain.connection import require_code
from melete.chain.deployments import (
    Deployment,
    load_deployment,
    record_path,
    recorded_contracts,
    save_deployment,
    verify_code,
)
from melete.errors import CodeMismatch
from melete.resources import load_artifact

CONTRACTS = ("AgentMemoryStateRegistry", "AgentMeditationRegistry")


@click.command(cls=ScriptCommand)
@click.argument("contracts", nargs=-1, type=click.Choice(CONTRACTS))
@click.option("--account", "alias", help="The Ape account that pays; on a local chain the first test account.")
@click.option("--yes", is_flag=True, help="Deploy although the chain is neither local nor a known testnet.")
@click.option("--again", is_flag=True, help="Deploy although a registry is recorded for this chain.")
@click.option("--cross-check/--no-cross-check", default=True, help="Compare every hash of the SDK with the registry's.")
@telling_errors
def cli(contracts: tuple[str, ...], alias: str | None, yes: bool, again: bool, cross_check: bool) -> None:
    """Deploy both registries, or those named, and record them in deployments/<chain id>.json."""
    provider = networks.provider
    if not (yes or is_local() or is_testnet()):
        raise click.UsageError(
            f"chain {provider.chain_id} is neither local nor a known testnet, and Melete has had no external review; "
            "add --yes to deploy all the same."
        )
    path = record_path(DEPLOYMENTS, require_chain())
    account = load_account(alias)
    # As a whole, whatever was compiled before: in parts, a contract's metadata and with it its code would differ.
    project.load_contracts(use_cache=False)
    for name in contracts or CONTRACTS:
        if not again and not is_local() and path.exists() and name in recorded_contracts(path):
            raise click.UsageError(f"{path.name} records a {name} on this chain; add --again to replace the record.")
        deploy(name, account)
    if cross_check and "AgentMemoryStateRegistry" in (contracts or CONTRACTS):
        address = load_deployment(path, "AgentMemoryStateRegistry").address
        checked = MemoryRegistry(provider.web3, address).cross_check()
        click.echo(f"cross-checked: {', '.join(checked.agreed)}")
    click.echo(f"recorded in deployments/{path.name}")


def deploy(name: str, account: Any) -> None:
    """Deploy one contract, compare its code with the package's artifact, and record it at once."""
    provider = networks.provider
    contract = account.deploy(project.get_contract(name))
    address = Address(contract.address)
    receipt = contract.creation_metadata.receipt
    try:
        verify_code(provider.web3, name, address)
    except CodeMismatch:
        click.echo("note: the contracts differ from the artifact in the package; run ./dev artifacts", err=True)
    compiler = load_artifact(name).compiler
    deployment = Deployment(
        contract=name,
        chain_id=provider.chain_id,
        address=address,
        block=receipt.block_number,
        transaction=Bytes32(receipt.txn_hash),
        code_hash=keccak256(require_code(provider.web3, address)),
        compiler=f"{compiler['name']} {compiler['version']}",
        commit=checkout_commit(),
    )
    save_deployment(DEPLOYMENTS, deployment)
    click.echo(f"{name} stands at {address}, block {deployment.block}, chain {provider.chain_id}")
