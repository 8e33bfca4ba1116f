"""Everything a developer of Melete does, by name. Standard library only: it runs before anything is installed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import environment
from environment import ROOT, SetupError

#: Suites that talk to Ape and Anvil; every other folder under tests/ needs neither.
NODE_SUITES = ("tests/contracts", "tests/stateful", "tests/e2e")
#: Each with a node of its own, so that a run that goes wrong tells of one suite alone.
NODE_RUNS = (
    "tests/contracts/agent_memory_state",
    "tests/contracts/agent_meditation",
    "tests/contracts/extensions",
    "tests/stateful",
    "tests/e2e",
)
PYTHON_SOURCES = ("sdk", "scripts", "tests", "test-vectors")


def run(*command: str, env: dict[str, str] | None = None) -> None:
    """Run a command in the project's environment; its failure is ours, with its exit code."""
    print(f"$ {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, env={**environment.variables(), **(env or {})})
    if done.returncode != 0:
        sys.exit(done.returncode)


def test(arguments: Sequence[str]) -> None:
    """Set up and pass every test; --deep fuzzes for hours instead of minutes; other words go to pytest."""
    chosen = [word for word in arguments if word != "--deep"]
    profile = "deep" if "--deep" in arguments else os.environ.get("MELETE_HYPOTHESIS_PROFILE", "quick")
    settings = {"MELETE_HYPOTHESIS_PROFILE": profile}
    if chosen:
        run("ape", "test", *chosen, "--network", "ethereum:local:foundry", env=settings)
        return
    fast_tests(settings)
    for suite in NODE_RUNS:
        run("ape", "test", suite, "--network", "ethereum:local:foundry", env=settings)


def fast_tests(settings: dict[str, str]) -> None:
    """The tests that need no node, without Ape's pytest plugin, which would start one."""
    ignored = [f"--ignore={suite}" for suite in NODE_SUITES]
    run("python", "-m", "pytest", "-p", "no:ape_test", "tests", *ignored, env=settings)


def solidity_sources() -> list[str]:
    """Our own contracts; Ape may have left a copy of others' in a hidden folder beside them."""
    found = (path.relative_to(ROOT) for path in sorted((ROOT / "contracts").glob("[!.]*")))
    return [str(path) for path in found if path.suffix in ("", ".sol")]


def check(arguments: Sequence[str]) -> None:
    """Formatting, lint, strict types, artifacts, vectors, and the tests without a node (--static leaves those out)."""
    run("ruff", "format", "--check", *PYTHON_SOURCES)
    run("ruff", "check", *PYTHON_SOURCES)
    run("mypy")
    run("forge", "fmt", "--check", *solidity_sources())
    run("solhint", "--noPoster", "--max-warnings", "0", "contracts/**/*.sol")
    run("python", "scripts/_dev/artifacts.py", "--check")
    run("python", "test-vectors/third_reading.py")
    if "--static" not in arguments:
        fast_tests({})


def format_all(arguments: Sequence[str]) -> None:
    """Format Python and Solidity in place."""
    run("ruff", "check", "--fix-only", "--quiet", *PYTHON_SOURCES)
    run("ruff", "format", *PYTHON_SOURCES)
    run("forge", "fmt", *solidity_sources())


def demo(arguments: Sequence[str]) -> None:
    """Set up and run the pipeline from a memory operation to its verified history."""
    run("ape", "run", "demo", *(arguments or ("--network", "ethereum:local:foundry")))


def bench(arguments: Sequence[str]) -> None:
    """Run the benchmarks: ratios from one run, and gas against its goals."""
    run("python", "scripts/_dev/bench.py", *arguments)


def artifacts(arguments: Sequence[str]) -> None:
    """Compile the contracts and write what the package ships of them to sdk/melete/chain/abi."""
    run("python", "scripts/_dev/artifacts.py", *arguments)


def lock(arguments: Sequence[str]) -> None:
    """Resolve requirements.in and pyproject.toml anew into requirements.lock (needs uv on PATH)."""
    run(
        *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
        *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate", "--all-extras"),
        *("requirements.in", "pyproject.toml", "-o", "requirements.lock"),
    )


def ape(arguments: Sequence[str]) -> None:
    """Run Ape in the project's environment: ./dev ape run deploy."""
    run("ape", *arguments)


def execute(arguments: Sequence[str]) -> None:
    """Run any command in the project's environment: ./dev exec melete --help."""
    if not arguments:
        raise SetupError("exec needs a command, for example: ./dev exec melete --help")
    run(*arguments)


def env(arguments: Sequence[str]) -> None:
    """Print the environment for a shell: eval "$(./dev env)" makes ape, anvil, pytest and melete work by name."""
    import shlex

    for name, value in environment.own_variables().items():
        print(f"export {name}={shlex.quote(value)}")


def setup(arguments: Sequence[str]) -> None:
    """Do the set-up alone."""


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "test": test,
    "check": check,
    "bench": bench,
    "format": format_all,
    "artifacts": artifacts,
    "ape": ape,
    "exec": execute,
    "env": env,
    "setup": setup,
    "lock": lock,
}


def main() -> None:
    listing = "\n".join(f"  {name:<10} {function.__doc__}" for name, function in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="./dev",
        description="Sets up what is missing inside this folder, then does what is asked.",
        epilog=f"commands:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of the commands below")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="handed on to it")
    given = parser.parse_args()
    try:
        environment.prepare()
        COMMANDS[given.command](given.arguments)
    except SetupError as error:
        print(f"dev: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
