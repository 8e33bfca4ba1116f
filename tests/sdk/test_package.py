from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import melete

PACKAGE = Path(melete.__file__).parent
TREE = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))

#: Modules that know no clock, randomness, files, environment or chain.
PURE = [
    *("errors", "primitives", "canonical", "typed_data", "signatures"),
    *("memory.commitment", "memory.delta", "memory.space", "memory.history", "memory.witness", "memory.events"),
    *("memory.disclosure", "memory.batch", "memory.forensics", "memory.extensions.grants", "memory.extensions.events"),
    *("meditation.layers", "meditation.policy", "meditation.status", "meditation.cycle", "meditation.events"),
    *("meditation.forecast", "packs.block", "packs.credentials", "packs.errors", "packs.findings", "packs.grammar"),
    *("packs.frontmatter",),
    *("packs.hidden", "packs.json_text", "packs.legacy", "packs.quick_look", "packs.routing", "packs.wording"),
    *("packs.capture.outline", "packs.capture.shapes", "packs.capture.log", "packs.capture.units"),
    *("meditation.timeline", "meditation.runner.findings", "meditation.runner.obligations"),
    *("wire.errors", "wire.envelope", "wire.words", "wire.audit", "wire.fusion"),
    *("packs.capture.classify", "packs.capture.routes", "packs.capture.duplicates", "packs.unpack.merge"),
]
#: What such a module may import beside the package itself.
PURE_IMPORTS = {
    *("__future__", "collections", "collections.abc", "contextlib", "dataclasses", "enum", "functools", "itertools"),
    *("bisect", "hashlib", "json", "math", "re", "rfc8785", "sha3", "struct", "typing", "unicodedata"),
    *("eth_keys.datatypes", "eth_keys.exceptions"),  # recovers a public key, and computes nothing else
    "yaml",  # reads a text that was given
}


def run(script: str) -> str:
    """What a script prints in a Python of its own."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Exports


@pytest.mark.parametrize("name", melete.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(melete, name) is not None


def test_public_names_stand_once_and_sorted() -> None:
    names = melete.__all__[1:]
    assert names == sorted(set(names))
    assert set(melete.__all__) <= set(dir(melete))


def test_each_export_is_what_its_module_holds() -> None:
    for name, module in melete._EXPORTS.items():
        assert getattr(melete, name) is getattr(import_module(module), name)


def test_type_checkers_see_the_same_names_as_python() -> None:
    guard = next(node for node in TREE.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.asname: node.module
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert seen == melete._EXPORTS
    assert len(guard.body) == len(seen)


def test_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'melete' has no attribute 'lethe'"):
        _ = melete.lethe


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert melete.__version__ == project["version"]


def test_example_of_the_package_runs() -> None:
    example = ast.get_docstring(TREE, clean=True)
    assert example is not None
    lines = [line[4:] for line in example.splitlines() if line.startswith("    ")][1:]
    given = "space_id = b'\\x11' * 32\nsalt = b'\\x22' * 32\n"
    script = given + "\n".join(lines) + "\nprint(head.sequence, witness.payload)"
    assert run(script) == "1 b'likes tea'"


# What is loaded when


def test_importing_the_package_loads_nothing_else_of_it_and_nothing_heavy() -> None:
    script = "import sys\nbefore = set(sys.modules)\nimport melete\nprint(*sorted(set(sys.modules) - before))"
    loaded = run(script).split()
    assert "melete" in loaded
    assert [name for name in loaded if name.startswith("melete.")] == []
    heavy = {"web3", "ape", "eth_account", "eth_abi", "eth_keys", "click", "rich", "rfc8785", "requests", "sha3"}
    assert heavy.isdisjoint(loaded)


BLOCKED = """
import sys

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"web3", "ape", "requests", "websockets", "aiohttp"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Wall())
"""


def test_hashing_signing_and_verifying_work_without_web3_and_ape() -> None:
    script = (
        BLOCKED
        + """
from melete import *
signer = LocalSigner("0x" + "11" * 32)
salt = Bytes32("0x" + "22" * 32)
space_id = compute_space_id(signer.address, salt)
witness = Witness(compute_profile_id("notes/1"), canonicalize({"op": "add"}), salt)
delta = witness.build_delta(space_id, GENESIS)
domain = memory_state_domain(1, Address("0x" + "44" * 20))
digest = domain.digest(compute_transition_id(delta))
assert verify_signature(signer.address, digest, signer.sign_digest(digest)) == signer.address
assert verify_witness(ExperienceDelta.from_json(delta.to_json()), witness) == delta
print(verify_history(space_id, [Transition.of(delta, signer.address)]).sequence)
"""
    )
    assert run(script) == "1"


def test_decoding_events_and_reverts_works_without_web3_and_ape() -> None:
    script = (
        BLOCKED
        + """
from melete.chain.reverts import decode_revert
from melete.memory.events import decode_event
print(decode_event({"topics": [bytes(32)], "data": b""}), type(decode_revert("0x1b7779a8")).__name__)
"""
    )
    assert run(script) == "None UnknownSpace"


def test_connecting_without_web3_says_what_to_install() -> None:
    script = (
        BLOCKED
        + """
from melete.chain.connection import connect
from melete.errors import MissingExtra
try:
    connect("http://127.0.0.1:8545")
except MissingExtra as error:
    print(error)
"""
    )
    assert "pip install 'melete[chain]'" in run(script)


# The pure centre


def source_of(module: str) -> ast.Module:
    return ast.parse((PACKAGE / (module.replace(".", "/") + ".py")).read_text("utf-8"))


def imports_of(module: str) -> Iterator[str]:
    for node in ast.walk(source_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield node.module or ""


@pytest.mark.parametrize("module", PURE)
def test_pure_module_imports_only_pure_ones(module: str) -> None:
    imported = set(imports_of(module))
    own = {name for name in imported if name.partition(".")[0] == "melete"}
    assert own <= {f"melete.{name}" for name in PURE}
    assert imported - own <= PURE_IMPORTS


@pytest.mark.parametrize("module", PURE)
def test_pure_module_opens_prints_and_imports_nothing_by_other_ways(module: str) -> None:
    source = source_of(module)
    # The built-in hash differs from run to run, which is right for a dictionary's keys and nothing else.
    hashing = [node for node in ast.walk(source) if isinstance(node, ast.FunctionDef) and node.name == "__hash__"]
    allowed = {id(node) for method in hashing for node in ast.walk(method)}
    called = {
        node.func.id
        for node in ast.walk(source)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and id(node) not in allowed
    }
    assert called.isdisjoint({"open", "print", "input", "eval", "exec", "__import__", "import_module", "id", "hash"})


@pytest.mark.parametrize("module", [*PURE, "signing", "chain.reverts", "resources"])
def test_module_can_be_imported_alone(module: str) -> None:
    assert run(f"import melete.{module}; print('alone')") == "alone"
