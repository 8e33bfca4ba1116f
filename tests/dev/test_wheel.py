"""The wheel holds what the package needs, and works without the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_typed_and_holds_schemas_and_artifacts(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "melete/py.typed" in names
    for folder, inside in (("schemas", "melete/schemas"), ("sdk/melete/chain/abi", "melete/chain/abi")):
        files = {path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*.json")}
        assert files
        assert files == {name.removeprefix(inside + "/") for name in names if name.startswith(inside + "/")}


def test_the_wheel_loads_schemas_and_artifacts_without_the_checkout(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import melete; from melete.resources import load_artifact, load_schema\n"
        "assert melete.__file__.startswith(sys.argv[1]), melete.__file__\n"
        "assert load_schema('experience-delta')['title'] == 'ExperienceDelta'\n"
        "assert len(load_artifact('AgentMemoryStateRegistry').bytecode) > 1000\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
