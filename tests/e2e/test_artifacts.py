"""What Ape compiles and deploys is, byte for byte, what the package ships."""

from __future__ import annotations

import pytest

from melete.resources import known_artifacts, load_artifact


@pytest.fixture(scope="module")
def compiled_project(project):
    """The project compiled as a whole: in parts, a contract's metadata names fewer remappings, and its hash differs."""
    project.load_contracts(use_cache=False)
    return project


@pytest.mark.parametrize("name", known_artifacts())
def test_ape_compiles_what_the_package_ships(compiled_project, name):
    compiled, shipped = compiled_project.get_contract(name).contract_type, load_artifact(name)
    assert bytes.fromhex(compiled.deployment_bytecode.bytecode[2:]) == shipped.bytecode
    assert bytes.fromhex(compiled.runtime_bytecode.bytecode[2:]) == shipped.deployed_bytecode
