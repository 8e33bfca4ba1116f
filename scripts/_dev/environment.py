"""The set-up, in steps that remember that they are done. Standard library only.

Everything lands inside the project: `.venv` (Python), `node_modules` (Anvil, compiler, linters), `.cache` (the
compiler's folder, Ape's data, stamps). A step's stamp holds the digest of all it depends on and is written last,
so an interrupted step is simply done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
CACHE = ROOT / ".cache"
SOLC_FOLDER = CACHE / "solcx"
NODE_MODULES = ROOT / "node_modules"
SOLC_VERSION = "0.8.37"
OLDEST_NODE = 20
FOUNDRY_PROGRAMS = ("anvil", "forge")
#: A download of the native compiler that has not come by then is given up for the npm compiler.
SOLC_DOWNLOAD_SECONDS = 60


class SetupError(Exception):
    """One sentence that says what is missing and what to do; exit code 3, could not tell."""

    exit_code = 3


def own_variables() -> dict[str, str]:
    """What the environment needs beside the caller's own."""
    paths = [str(VENV / "bin"), *foundry_folders(), str(NODE_MODULES / ".bin"), os.environ.get("PATH", "")]
    return {
        "PATH": os.pathsep.join(paths),
        "VIRTUAL_ENV": str(VENV),
        "APE_DATA_FOLDER": str(CACHE / "ape"),
        "SOLCX_BINARY_PATH": str(SOLC_FOLDER),
        "MYPY_CACHE_DIR": str(CACHE / "mypy"),
        "RUFF_CACHE_DIR": str(CACHE / "ruff"),
    }


def variables() -> dict[str, str]:
    """The whole environment that the project's commands run in."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**inherited, **own_variables()}


def foundry_folders() -> list[str]:
    """Where npm put the native programs, so that no Node process stands between us and Anvil."""
    folder = NODE_MODULES / "@foundry-rs"
    return [str(program.parent) for name in FOUNDRY_PROGRAMS for program in folder.glob(f"{name}-*/bin/{name}")]


def prepare() -> None:
    """Do what is not done yet, in order, and nothing else; a second process waits for the first."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "set-up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        do_steps()


def do_steps() -> None:
    python_version = ".".join(map(str, sys.version_info[:3]))
    step("python", [python_version, ROOT / "requirements.lock"], install_python)
    step("package", [python_version, ROOT / "requirements.lock", ROOT / "pyproject.toml"], install_package)
    step("node", ["linked folders 1", ROOT / "package-lock.json"], install_node)
    step("solc", [SOLC_VERSION, Path(__file__).with_name("solc.cjs")], install_solc)


def step(name: str, inputs: list[str | Path], action: Callable[[], None]) -> None:
    digest = hashlib.sha256(str(ROOT).encode())
    for item in inputs:
        digest.update(item.read_bytes() if isinstance(item, Path) else item.encode())
    stamp = CACHE / "stamps" / name
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    stamp.unlink(missing_ok=True)
    print(f"set-up: {name}", file=sys.stderr, flush=True)
    action()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(digest.hexdigest())


def install_python() -> None:
    try:
        venv.create(VENV, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(
            f"could not make the Python environment in .venv ({error}); on Debian, install python3-venv."
        ) from error
    pip_install(
        *("--require-hashes", "-r", "requirements.lock"),
        advice="the Python package registry did not answer, or an artifact was refused; see the lines above",
    )


def install_package() -> None:
    pip_install(
        *("--no-deps", "--no-build-isolation", "--editable", "."),
        advice="the package itself did not build; see the lines above",
    )


def pip_install(*words: str, advice: str) -> None:
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    quiet_run([*pip, "install", "--quiet", *words], advice)


def install_node() -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise SetupError(
            f"no {'node' if node is None else 'npm'} was found; install Node {OLDEST_NODE} or newer with npm."
        )
    found = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    major = re.match(r"v(\d+)\.", found)
    if major is None or int(major[1]) < OLDEST_NODE:
        raise SetupError(f"Node {found or 'of no known version'} is too old; install Node {OLDEST_NODE} or newer.")
    advice = "the npm registry did not answer, or an artifact was refused; see the lines above"
    # The native programs are optional packages, one per kind of machine: npm says nothing when one fails to arrive.
    for _ in range(2):
        quiet_run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], advice)
        if len(foundry_folders()) == len(FOUNDRY_PROGRAMS):
            return link_openzeppelin()
    raise SetupError(
        "npm did not install Anvil and forge for this machine: run it again, or if that is no help, "
        "note that the packages know only Linux and macOS."
    )


def link_openzeppelin() -> None:
    """Link what the contracts import where Ape looks for it, and forget what Ape copied of an earlier version."""
    linked = CACHE / "openzeppelin"
    for stale in (linked, ROOT / "contracts" / ".cache", CACHE / "ape" / "packages"):
        shutil.rmtree(stale, ignore_errors=True)
    linked.mkdir(parents=True)
    for name in ("interfaces", "utils"):
        (linked / name).symlink_to(NODE_MODULES / "@openzeppelin" / "contracts" / name)


def install_solc() -> None:
    """The native compiler where its download works, else the npm one behind a program of the same name."""
    shutil.rmtree(SOLC_FOLDER, ignore_errors=True)
    SOLC_FOLDER.mkdir(parents=True)
    program = SOLC_FOLDER / f"solc-v{SOLC_VERSION}"
    try:
        subprocess.run(
            [str(VENV / "bin" / "python"), "-c", f"import solcx; solcx.install_solc({SOLC_VERSION!r})"],
            env=variables(),
            capture_output=True,
            timeout=SOLC_DOWNLOAD_SECONDS,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        program.write_text(f'#!/bin/sh\nexec node "{ROOT}/scripts/_dev/solc.cjs" "$@"\n')
        program.chmod(0o755)


def quiet_run(command: list[str], advice: str) -> None:
    """Run a set-up command; its own words are shown only when it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print("\n".join(done.stdout.strip().splitlines()[-12:]), file=sys.stderr)
        raise SetupError(f"{advice}.")
