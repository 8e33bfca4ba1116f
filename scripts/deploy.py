"""Deploy the registry and record where it stands: ape run deploy [--network ...] [--account ALIAS]."""

from __future__ import annotations

import click
from ape import networks
from ape.cli import ConnectedProviderCommand
from scripts._common import (
    DEPLOYMENTS,
    checkout_commit,
    is_local,
    is_testnet,
    load_account,
    load_contract,
    telling_errors,
)

from melete import Address, Bytes32, MemoryRegistry, keccak256
from melete.chain.connection import require_code
from melete.chain.deployments import Deployment, record_path, save_deployment, verify_code
from melete.errors import CodeMismatch
from melete.resources import load_artifact

CONTRACT = "AgentMemoryStateRegistry"


@click.command(cls=ConnectedProviderCommand)
@click.option("--account", "alias", help="The Ape account that pays; on a local chain the first test account.")
@click.option("--yes", is_flag=True, help="Deploy although the chain is neither local nor a known testnet.")
@click.option("--again", is_flag=True, help="Deploy although a registry is recorded for this chain.")
@click.option("--cross-check/--no-cross-check", default=True, help="Compare every hash of the SDK with the registry's.")
@telling_errors
def cli(alias: str | None, yes: bool, again: bool, cross_check: bool) -> None:
    """Deploy AgentMemoryStateRegistry, and record it in deployments/<chain id>.json."""
    provider = networks.provider
    if not (yes or is_local() or is_testnet()):
        raise click.UsageError(
            f"chain {provider.chain_id} is neither local nor a known testnet, and Melete has had no external review; "
            "add --yes to deploy all the same."
        )
    path = record_path(DEPLOYMENTS, provider.chain_id)
    if path.exists() and not again and not is_local():
        raise click.UsageError(f"{path.name} records a deployment on this chain; add --again to replace the record.")
    account = load_account(alias)
    contract = account.deploy(load_contract(CONTRACT))
    address = Address(contract.address)
    receipt = contract.creation_metadata.receipt
    code = require_code(provider.web3, address)
    try:
        verify_code(provider.web3, CONTRACT, address)
    except CodeMismatch:
        click.echo("note: the contracts differ from the artifact in the package; run ./dev artifacts", err=True)
    compiler = load_artifact(CONTRACT).compiler
    deployment = Deployment(
        contract=CONTRACT,
        chain_id=provider.chain_id,
        address=address,
        block=receipt.block_number,
        transaction=Bytes32(receipt.txn_hash),
        code_hash=keccak256(code),
        compiler=f"{compiler['name']} {compiler['version']}",
        commit=checkout_commit(),
    )
    save_deployment(DEPLOYMENTS, deployment)
    click.echo(f"{CONTRACT} stands at {address}, block {deployment.block}, chain {provider.chain_id}")
    if cross_check:
        checked = MemoryRegistry(provider.web3, address).cross_check()
        click.echo(f"cross-checked: {', '.join(checked.agreed)}")
    click.echo(f"recorded in deployments/{path.name}")
