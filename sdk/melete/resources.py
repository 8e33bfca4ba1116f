"""Files that ship with the package: contract artifacts and JSON Schemas, from a wheel or from the checkout."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from melete.errors import InvalidInput, MissingFile
from melete.primitives import Bytes32, keccak256


@dataclass(frozen=True)
class Artifact:
    """A compiled contract: its ABI, its code, and the settings that it was compiled with."""

    contract_name: str
    abi: list[dict[str, Any]]
    bytecode: bytes
    deployed_bytecode: bytes
    compiler: dict[str, Any]
    #: Where immutables stand in the deployed code, as (start, length): these bytes differ by deployment.
    immutables: list[tuple[int, int]]

    @cached_property
    def template_hash(self) -> Bytes32:
        """The keccak256 of the deployed code with its immutables zeroed: equal for every deployment."""
        return self.compute_template_hash(self.deployed_bytecode)

    def compute_template_hash(self, code: bytes) -> Bytes32:
        """Return the template hash of code found on a chain, to be compared with `template_hash`."""
        template = bytearray(code)
        for start, length in self.immutables:
            template[start : start + length] = bytes(len(template[start : start + length]))
        return keccak256(template)


@cache
def load_artifact(contract_name: str) -> Artifact:
    """Return the artifact of a contract that the package ships. Errors: `InvalidInput` for an unknown name."""
    if contract_name not in known_artifacts():
        raise InvalidInput("contract", contract_name, f"one of {', '.join(known_artifacts())}")
    document = json.loads((_artifact_folder() / f"{contract_name}.json").read_text("utf-8"))
    return Artifact(
        contract_name=document["contractName"],
        abi=document["abi"],
        bytecode=bytes.fromhex(document["bytecode"][2:]),
        deployed_bytecode=bytes.fromhex(document["deployedBytecode"][2:]),
        compiler=document["compiler"],
        immutables=[(place["start"], place["length"]) for place in document["immutables"]],
    )


def known_artifacts() -> list[str]:
    """Return the names of the contracts that the package ships."""
    names = (entry.name for entry in _artifact_folder().iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


@cache
def load_schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema by its file name without `.schema.json`, for example `experience-delta`.

    Errors: `InvalidInput` for an unknown name; `MissingFile` when the package was installed without its schemas.
    """
    folder = _schema_folder()
    known = sorted(
        entry.name.removesuffix(".schema.json") for entry in folder.iterdir() if entry.name.endswith(".schema.json")
    )
    if name not in known:
        raise InvalidInput("schema", name, f"one of {', '.join(known)}")
    schema: dict[str, Any] = json.loads((folder / f"{name}.schema.json").read_text("utf-8"))
    return schema


def _artifact_folder() -> Traversable:
    return files("melete") / "chain" / "abi"


def _schema_folder() -> Traversable:
    shipped = files("melete") / "schemas"
    if shipped.is_dir():
        return shipped
    checkout = Path(__file__).resolve().parents[2] / "schemas"
    if checkout.is_dir():
        return checkout
    raise MissingFile(str(shipped), "the package was installed without its schemas; install it again")
