"""Deployment records: `deployments/<chain id>.json` says which contract stands where, and from what it was built.

A record is written whole or not at all, and keeps the other contracts of its chain.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from melete.canonical import load_json
from melete.chain.connection import check_chain, require_code
from melete.errors import CodeMismatch, InvalidInput, InvalidJson, MissingFile
from melete.files import read_file
from melete.primitives import Address, Bytes32, keccak256, uint
from melete.resources import load_artifact

if TYPE_CHECKING:
    from web3 import Web3


#: A larger file is no deployment record.
MOST_RECORD_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Deployment:
    """One contract on one chain.

    `code_hash` is the keccak256 of the code found at `address`; `compiler` and `commit` say what it was built from
    (`commit` is empty where no git checkout was at hand, and ends in `-dirty` where it had changes).
    """

    contract: str
    chain_id: int
    address: Address
    block: int
    transaction: Bytes32
    code_hash: Bytes32
    compiler: str
    commit: str = ""


def record_path(folder: Path, chain_id: int) -> Path:
    """Return where the records of a chain are kept."""
    return folder / f"{chain_id}.json"


def save_deployment(folder: Path, deployment: Deployment) -> Path:
    """Write a record beside those of the chain's other contracts, and return the file."""
    path = record_path(folder, deployment.chain_id)
    contracts = _read(path)["contracts"] if path.exists() else {}
    values = {name: str(value) if isinstance(value, bytes) else value for name, value in asdict(deployment).items()}
    del values["contract"], values["chain_id"]
    renamed = {"code_hash": "codeHash"}
    contracts[deployment.contract] = {renamed.get(name, name): value for name, value in values.items()}
    write_atomically(path, json.dumps({"chainId": deployment.chain_id, "contracts": contracts}, indent=2) + "\n")
    return path


def recorded_contracts(path: Path) -> list[str]:
    """Return the names of the contracts that a record file knows."""
    return sorted(_read(path)["contracts"])


def load_deployment(path: Path, contract: str) -> Deployment:
    """Return the record of a contract.

    Errors: `MissingFile`; `InvalidJson` or `InvalidInput`, naming what is wrong in the file.
    """
    document = _read(path)
    contracts = document["contracts"]
    if contract not in contracts:
        raise InvalidInput("contract", contract, f"recorded in {path}, which knows {', '.join(contracts) or 'none'}")
    record = contracts[contract]
    try:
        return Deployment(
            contract=contract,
            chain_id=uint(document["chainId"], 256, "chainId"),
            address=Address(record["address"], "address"),
            block=uint(record["block"], 64, "block"),
            transaction=Bytes32(record["transaction"], "transaction"),
            code_hash=Bytes32(record["codeHash"], "codeHash"),
            compiler=str(record["compiler"]),
            commit=str(record.get("commit", "")),
        )
    except (KeyError, TypeError) as error:
        raise InvalidInput(str(path), str(error), "a deployment record with all its members") from None


def verify_deployment(w3: Web3, deployment: Deployment) -> Bytes32:
    """Return the code hash if what stands at the recorded address is what was recorded and what we compile.

    Errors: `WrongChain`, `NoContract`, `CodeMismatch`.
    """
    check_chain(w3, deployment.chain_id)
    verify_code(w3, deployment.contract, deployment.address)
    found = keccak256(require_code(w3, deployment.address))
    if found != deployment.code_hash:
        raise CodeMismatch(deployment.address, deployment.code_hash, found)
    return found


def verify_code(w3: Web3, contract: str, address: Address) -> Bytes32:
    """Return the code hash of an address that runs our artifact of `contract`, immutables aside.

    Errors: `NoContract`, `CodeMismatch`.
    """
    artifact = load_artifact(contract)
    code = require_code(w3, address)
    template = artifact.compute_template_hash(code)
    if template != artifact.template_hash:
        raise CodeMismatch(address, artifact.template_hash, template)
    return keccak256(code)


def write_atomically(path: Path, text: str) -> None:
    """Write a file through a sibling that is renamed over it, so that a reader sees the old or the new, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_file(path, MOST_RECORD_BYTES)
    except OSError as error:
        raise MissingFile(str(path), f"the deployment record cannot be read ({error.strerror})") from None
    if len(text) > MOST_RECORD_BYTES:
        raise MissingFile(str(path), f"it has more than {MOST_RECORD_BYTES} bytes, and is no deployment record")
    document = load_json(text)
    if not isinstance(document, dict) or not isinstance(document.get("contracts"), dict):
        raise InvalidJson("", f"{path} is no deployment record: members chainId and contracts are needed")
    return document
