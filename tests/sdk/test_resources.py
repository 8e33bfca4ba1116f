from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from eth_utils import keccak
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from melete import resources
from melete.errors import InvalidInput, MissingFile
from melete.resources import Artifact, load_artifact, load_schema

# Artifacts


def test_artifact_of_the_registry_is_whole() -> None:
    artifact = load_artifact("AgentMemoryStateRegistry")
    assert artifact.contract_name == "AgentMemoryStateRegistry"
    assert {"commitTransition", "registerSpace", "head"} <= {entry.get("name") for entry in artifact.abi}
    assert artifact.compiler["version"]
    assert len(artifact.bytecode) > len(artifact.deployed_bytecode) > 0
    for start, length in artifact.immutables:
        assert 0 <= start < start + length <= len(artifact.deployed_bytecode)


@pytest.mark.parametrize("name", ["", "Nothing", "AgentMemoryStateRegistry.json", "../abi/AgentMemoryStateRegistry"])
def test_unknown_contract_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"one of .*AgentMemoryStateRegistry"):
        load_artifact(name)


CODE = bytes(range(1, 101))
ARTIFACT = Artifact("Sample", [], b"", CODE, {}, [(10, 32), (60, 20)])
MUTABLE = {*range(10, 42), *range(60, 80)}


def test_template_hash_is_that_of_the_code_with_its_immutables_zeroed() -> None:
    zeroed = bytes(0 if index in MUTABLE else byte for index, byte in enumerate(CODE))
    assert ARTIFACT.template_hash == keccak(zeroed)
    assert replace(ARTIFACT, immutables=[]).template_hash == keccak(CODE)


@given(st.integers(0, 99), st.integers(1, 255))
def test_template_hash_changes_exactly_with_what_is_no_immutable(at: int, change: int) -> None:
    code = CODE[:at] + bytes([CODE[at] ^ change]) + CODE[at + 1 :]
    assert (ARTIFACT.compute_template_hash(code) == ARTIFACT.template_hash) == (at in MUTABLE)


@given(st.binary(max_size=120))
def test_template_hash_of_any_other_code_differs(code: bytes) -> None:
    before = bytes(code)
    computed = ARTIFACT.compute_template_hash(code)
    assert code == before
    if len(code) != len(CODE):
        assert computed != ARTIFACT.template_hash


# Schemas


@pytest.fixture
def no_memory() -> Iterator[None]:
    """Forget what was loaded, before and after."""
    load_schema.cache_clear()
    yield
    load_schema.cache_clear()


def test_every_schema_of_the_checkout_is_one() -> None:
    folder = Path(__file__).resolve().parents[2] / "schemas"
    names = [path.name.removesuffix(".schema.json") for path in folder.glob("*.schema.json")]
    assert "experience-delta" in names
    for name in names:
        Draft202012Validator.check_schema(load_schema(name))


@pytest.mark.parametrize("name", ["", "nothing", "experience-delta.schema.json", "../schemas/experience-delta"])
def test_unknown_schema_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"one of .*experience-delta"):
        load_schema(name)


@pytest.mark.usefixtures("no_memory")
def test_schemas_of_an_installed_package_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "experience-delta.schema.json").write_text(json.dumps({"title": "shipped"}), "utf-8")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    assert load_schema("experience-delta") == {"title": "shipped"}


@pytest.mark.usefixtures("no_memory")
def test_package_without_schemas_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(MissingFile, match="install it again"):
        load_schema("experience-delta")
