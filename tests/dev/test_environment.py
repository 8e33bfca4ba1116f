"""The set-up says in one sentence what is missing, and does nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "_dev"))

import environment  # noqa: E402
from environment import SetupError  # noqa: E402


@pytest.fixture
def empty_path(tmp_path, monkeypatch) -> Path:
    """A PATH that holds only what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put_program(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_missing_node_is_one_sentence(empty_path):
    with pytest.raises(SetupError, match=r"^no node was found; install Node 20 or newer with npm\.$"):
        environment.install_node()


def test_a_missing_npm_is_one_sentence(empty_path):
    put_program(empty_path, "node", "echo v22.1.0")
    with pytest.raises(SetupError, match=r"^no npm was found"):
        environment.install_node()


@pytest.mark.parametrize("version", ["v18.20.4", "v9.0.0", ""])
def test_a_node_that_is_too_old_is_named(empty_path, version):
    put_program(empty_path, "node", f"echo {version}")
    put_program(empty_path, "npm", "exit 0")
    with pytest.raises(SetupError, match=r"is too old; install Node 20 or newer\.$"):
        environment.install_node()


def test_a_registry_that_does_not_answer_is_named(empty_path, capsys):
    put_program(empty_path, "node", "echo v20.0.0")
    put_program(empty_path, "npm", "echo 'npm error network timeout'; exit 1")
    with pytest.raises(SetupError, match=r"^the npm registry did not answer"):
        environment.install_node()
    assert "network timeout" in capsys.readouterr().err


def test_a_python_that_is_too_old_is_one_sentence(empty_path):
    put_program(empty_path, "python3", "exit 1")
    for tool in ("dirname", "sh"):
        (empty_path / tool).symlink_to(shutil.which(tool, path=os.defpath + ":/usr/bin:/bin") or tool)
    done = subprocess.run(["/bin/sh", str(ROOT / "dev"), "test"], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == "dev: no Python 3.11 or newer was found; install one, or name it in MELETE_PYTHON.\n"


def test_a_step_is_done_once_until_what_it_depends_on_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "CACHE", tmp_path)
    lock, done = tmp_path / "lock", []
    lock.write_text("one")
    for _ in range(2):
        environment.step("thing", [lock], lambda: done.append("did"))
    assert done == ["did"]
    lock.write_text("two")
    environment.step("thing", [lock], lambda: done.append("again"))
    assert done == ["did", "again"]


def test_a_step_that_failed_is_done_again(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "CACHE", tmp_path)

    def fail() -> None:
        raise SetupError("no")

    with pytest.raises(SetupError):
        environment.step("thing", ["1"], fail)
    done = []
    environment.step("thing", ["1"], lambda: done.append("did"))
    assert done == ["did"]


def test_lock_files_name_no_host():
    for name in ("requirements.lock", "package-lock.json"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        hosts = [line for line in lines if "://" in line and '"url":' not in line and '"funding"' not in line]
        assert hosts == []


def test_every_locked_package_has_hashes():
    text = (ROOT / "requirements.lock").read_text("utf-8")
    packages = [line for line in text.splitlines() if "==" in line]
    assert packages
    assert all(line.endswith("\\") for line in packages)
