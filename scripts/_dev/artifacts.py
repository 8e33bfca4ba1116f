"""Write what the package ships of the contracts, or check that it equals a fresh compile.

The compile is Ape's own (its settings, its source names, so its bytecode), asked for two outputs more: where
immutables stand in the code, and how storage is laid out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "sdk" / "melete" / "chain" / "abi"
#: The contracts that are deployed; mocks, interfaces and libraries are not shipped.
SHIPPED = (
    "AgentMeditationRegistry",
    "AgentMemoryStateRegistry",
    "AuditGrant",
    "DeletionAttestation",
    "SpaceDescriptor",
)
OUTPUTS = [
    "abi",
    "evm.bytecode.object",
    "evm.deployedBytecode.object",
    "evm.deployedBytecode.immutableReferences",
    "storageLayout",
]


def main() -> None:
    fresh = {f"{name}.json": render(document) for name, document in compile_all().items()}
    if "--check" not in sys.argv:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, text in fresh.items():
            (FOLDER / name).write_text(text, "utf-8")
        print(f"wrote {', '.join(fresh)}")
        return
    kept = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    different = sorted(name for name in {*fresh, *kept} if fresh.get(name) != kept.get(name))
    if different:
        print(f"{', '.join(different)}: not what the contracts compile to; run ./dev artifacts", file=sys.stderr)
        sys.exit(1)
    print(f"{', '.join(sorted(kept))}: equal to a fresh compile")


def compile_all() -> dict[str, dict[str, Any]]:
    """Return the artifact document of every shipped contract."""
    import ape
    import solcx
    from ape_solidity.compiler import SolidityCompiler

    project = ape.Project(ROOT)
    compiler = ape.compilers.get_compiler("solidity")
    assert isinstance(compiler, SolidityCompiler)
    with project.isolate_in_tempdir() as isolated:
        sources = {name: find_source(isolated.path, name) for name in SHIPPED}
        paths = [isolated.path / source for source in sources.values()]
        inputs = compiler.get_standard_input_json(paths, project=isolated)
        ((version, request),) = inputs.items()
        settings = request["settings"]
        settings["outputSelection"] = {source: {name: OUTPUTS} for name, source in sources.items()}
        output = solcx.compile_standard(
            request, solc_version=version.base_version, base_path=isolated.path, allow_empty=True
        )
    described = {
        "name": "solc",
        # The native and the npm compiler differ in the words after the commit, not in what they compile.
        "version": ".".join(str(version).split(".")[:4]) if version.local else str(version),
        **{name: settings[name] for name in ("evmVersion", "optimizer", "viaIR")},
    }
    return {name: describe(name, output["contracts"][sources[name]][name], described) for name in SHIPPED}


def find_source(project: Path, name: str) -> str:
    """Return the source of a contract, by the name that the compiler knows it by: its path in the project."""
    found = [path.relative_to(project) for path in (project / "contracts").rglob(f"{name}.sol")]
    # What the project depends on lies in a hidden folder.
    own = [path for path in found if not any(part.startswith(".") for part in path.parts)]
    if len(own) != 1:
        sys.exit(f"{name}.sol: expected one source below contracts, found {len(own)}")
    return own[0].as_posix()


def describe(name: str, compiled: dict[str, Any], compiler: dict[str, Any]) -> dict[str, Any]:
    deployed = compiled["evm"]["deployedBytecode"]
    places = [place for places in deployed["immutableReferences"].values() for place in places]
    return {
        "contractName": name,
        "compiler": compiler,
        "abi": compiled["abi"],
        "bytecode": "0x" + compiled["evm"]["bytecode"]["object"],
        "deployedBytecode": "0x" + deployed["object"],
        "immutables": sorted(places, key=lambda place: int(place["start"])),
        "storageLayout": storage_layout(compiled["storageLayout"]),
    }


def storage_layout(layout: dict[str, Any]) -> dict[str, Any]:
    """The compiler's storage layout without the syntax-tree numbers that shift with every edit."""
    text = json.dumps({"storage": layout["storage"], "types": layout["types"]})
    import re

    plain: dict[str, Any] = json.loads(re.sub(r"(t_struct\(\w+\))\d+", r"\1", text))
    for entry in [
        *plain["storage"],
        *(member for kind in plain["types"].values() for member in kind.get("members", [])),
    ]:
        entry.pop("astId", None)
        entry.pop("contract", None)
    return plain


def render(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    main()
