"""Layer 0: an inventory of interpreter, distributions and configuration, and whether the adapters can be reached.

What is installed and configured is state, and goes into the document; what answers right now is an observation, and
goes into the record. Nothing is changed here: what differs from the registered document is told and registered.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from melete.canonical import Json
from melete.errors import ConfigurationError, InvalidInput
from melete.meditation.layers import SCHEMAS, Layer
from melete.meditation.runner.files import NamedPath, hash_path, is_there
from melete.meditation.runner.findings import LONGEST_NAME, cut_text
from melete.meditation.runner.probes import TIMEOUT_SECONDS, Answer, check_address, probe
from melete.meditation.runner.routine import CheckResult, LayerRoutine, LayerWork

LONGEST_VERSION: Final = 128
#: A self-check that takes longer has failed.
SELF_CHECK_SECONDS: Final = 60.0
#: So many differences are told one by one.
MOST_TOLD: Final = 40


@dataclass(frozen=True, slots=True)
class Distribution:
    """An installed distribution, with the digest of its RECORD, which lists its files by theirs."""

    name: str
    version: str
    digest: str | None = None

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"name": self.name, "version": self.version}
        return found if self.digest is None else {**found, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class Program:
    """One of the agent's own programs: an installed distribution, or files with a version that somebody states."""

    name: str
    version: str | None = None
    source: str | None = None
    files: NamedPath | None = None
    distribution: str | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """What connects the agent to the outside. `probe` is an address to try; it goes into no document or record."""

    name: str
    kind: str
    interface: str
    version: str | None = None
    probe: str | None = None
    timeout_seconds: float = TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """A check of the agent's own suite. With a `command` it is run: it passes if that ends with 0, in time."""

    name: str
    version: str | None = None
    description: str | None = None
    command: tuple[str, ...] = ()
    timeout_seconds: float = SELF_CHECK_SECONDS


class RuntimeRoutine(LayerRoutine):
    """Inventories what an agent runs on. `dependencies` names the distributions that count; None is all of them."""

    layer = Layer.RUNTIME

    def __init__(
        self,
        *,
        code: Sequence[Program] = (),
        configuration: Sequence[NamedPath] = (),
        dependencies: Sequence[str] | None = None,
        adapters: Sequence[Adapter] = (),
        authorization: Sequence[dict[str, Json]] = (),
        self_checks: Sequence[SelfCheck] = (),
        folder: Path | None = None,
        ask: Callable[[str, float], Answer] = probe,
    ) -> None:
        """`folder` is where self-checks run. Errors: `ConfigurationError` for an address that cannot be tried."""
        self._code, self._configuration, self._dependencies = code, configuration, dependencies
        self._adapters, self._authorization, self._self_checks = adapters, authorization, self_checks
        self._folder, self._ask = folder, ask
        for adapter in adapters:
            if adapter.probe is not None:
                check_address(adapter.probe)

    def check(self, work: LayerWork) -> None:
        """Compare with the registered document, try the adapters, and run the self-checks."""
        installed, nameless = list_distributions()
        if nameless:
            told = f"{nameless} installed distributions do not state name and version, and are left out"
            work.checked("distributions", CheckResult.COULD_NOT_TELL, told)
        if work.registered is not None:
            self._compare(work, installed)
        for named in self._configuration:
            if not is_there(named):
                work.checked(f"configuration: {named.name}", CheckResult.FAILED, "it is not there")
        for adapter in self._adapters:
            if adapter.probe is not None:
                self._try(work, adapter)
        for check in self._self_checks:
            if check.command:
                work.checked(check.name, *run_self_check(check, self._folder))

    def describe(self) -> dict[str, Json]:
        """Return the runtime document. A configuration file that is gone is left out; one that cannot be read fails."""
        installed, _ = list_distributions()
        own = {normalize(one.distribution or "") for one in self._code}
        return {
            "schema": SCHEMAS[Layer.RUNTIME],
            "layer": 0,
            "code": [_program(one, installed) for one in self._code],
            "interpreter": find_interpreter(),
            "configuration": [
                {"name": cut_text(named.name, LONGEST_NAME), "digest": hash_path(named)}
                for named in self._configuration
                if is_there(named)
            ],
            "dependencies": [one.to_json() for one in self._choose(installed) if normalize(one.name) not in own],
            "adapters": [_adapter(one) for one in self._adapters],
            "authorization": [dict(one) for one in self._authorization],
            "selfChecks": [_self_check(one) for one in self._self_checks],
        }

    def _choose(self, installed: Mapping[str, Distribution]) -> list[Distribution]:
        if self._dependencies is None:
            return list(installed.values())
        return [_find(name, installed) for name in sorted(self._dependencies, key=normalize)]

    def _compare(self, work: LayerWork, installed: Mapping[str, Distribution]) -> None:
        registered: Any = work.registered
        interpreter = find_interpreter()
        if registered.get("interpreter") == interpreter:
            work.checked("interpreter as registered", CheckResult.PASSED)
        else:
            work.checked("interpreter as registered", CheckResult.FAILED, f"it is {interpreter['version']} now")
        before = {entry["name"]: entry for entry in registered["dependencies"]}
        own = {normalize(one.distribution or "") for one in self._code}
        now = {one.name: one.to_json() for one in self._choose(installed) if normalize(one.name) not in own}
        _tell_differences(work, "dependencies as registered", before, now)
        before = {entry["name"]: entry for entry in registered["configuration"]}
        files: dict[str, dict[str, Json]] = {
            cut_text(named.name, LONGEST_NAME): {"digest": hash_path(named)}
            for named in self._configuration
            if is_there(named)
        }
        _tell_differences(work, "configuration as registered", before, files)

    def _try(self, work: LayerWork, adapter: Adapter) -> None:
        answer = self._ask(adapter.probe or "", adapter.timeout_seconds)
        work.observed(f"{adapter.name}: reachable", answer.reachable)
        work.observed(f"{adapter.name}: seconds until the answer", answer.seconds, "s")
        result = CheckResult.PASSED if answer.reachable else CheckResult.FAILED
        work.checked(f"adapter: {adapter.name}", result, answer.how)


# What is installed


def list_distributions() -> tuple[dict[str, Distribution], int]:
    """Return the installed distributions by normalized name, sorted, and how many state no name or version.

    Of one that is there twice, the one that Python imports counts.
    """
    found: dict[str, Distribution] = {}
    nameless = 0
    for one in metadata.distributions():
        stated: Any = one.metadata
        name, version = stated.get("Name"), stated.get("Version")
        if not name or not version:
            nameless += 1
            continue
        cut = cut_text(name, LONGEST_NAME), cut_text(version, LONGEST_VERSION)
        found.setdefault(normalize(name), Distribution(*cut, _hash_record(one)))
    return dict(sorted(found.items())), nameless


def normalize(name: str) -> str:
    """Return the same text for all spellings of a distribution's name. Source: PyPA, Name normalization."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def find_interpreter() -> dict[str, Json]:
    """Return what Python this is."""
    return {
        "name": sys.implementation.name,
        "version": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}".lower(),
    }


def _hash_record(distribution: metadata.Distribution) -> str | None:
    """Return the digest of a distribution's RECORD, byte for byte; None where it has none."""
    folder = getattr(distribution, "_path", None)  # its text alone would lose the line ends
    try:
        if isinstance(folder, Path):
            content = (folder / "RECORD").read_bytes()
        else:
            content = (distribution.read_text("RECORD") or "").encode()
    except OSError:
        return None
    return f"sha256:{sha256(content).hexdigest()}" if content else None


def _find(name: str, installed: Mapping[str, Distribution]) -> Distribution:
    found = installed.get(normalize(name))
    if found is None:
        raise ConfigurationError(f"the distribution {name!a} is not installed here; name one that is")
    return found


def _program(program: Program, installed: Mapping[str, Distribution]) -> dict[str, Json]:
    found: dict[str, Json] = {"name": program.name}
    if program.distribution is not None:
        kept = _find(program.distribution, installed)
        found |= {**kept.to_json(), "name": program.name}
    elif program.version is None:
        raise InvalidInput("code", program.name, "a program with a version, or with the distribution that it is")
    if program.version is not None:
        found["version"] = program.version
    if program.files is not None:
        found["digest"] = hash_path(program.files)
    if program.source is not None:
        found["source"] = program.source
    return found


def _adapter(adapter: Adapter) -> dict[str, Json]:
    found: dict[str, Json] = {"name": adapter.name, "kind": adapter.kind, "interface": adapter.interface}
    return found if adapter.version is None else {**found, "version": adapter.version}


def _self_check(check: SelfCheck) -> dict[str, Json]:
    found: dict[str, Json] = {"name": check.name}
    for name, value in (("version", check.version), ("description", check.description)):
        if value is not None:
            found[name] = value
    return found


def _tell_differences(
    work: LayerWork, name: str, before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> None:
    told = []
    for one in sorted({*before, *now}):
        if one not in now:
            told.append(f"{one} is gone")
        elif one not in before:
            told.append(f"{one} {now[one].get('version', '')}".rstrip() + " is new")
        elif before[one].get("version") != now[one].get("version"):
            told.append(f"{one} {before[one].get('version')} became {now[one].get('version')}")
        elif before[one].get("digest") != now[one].get("digest"):
            told.append(f"{one} has other content")
    if told:
        rest = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
        work.checked(name, CheckResult.FAILED, "; ".join(told[:MOST_TOLD]) + rest)
    else:
        work.checked(name, CheckResult.PASSED, f"{len(now)} of them")


# Self-checks


def run_self_check(check: SelfCheck, folder: Path | None) -> tuple[CheckResult, str]:
    """Run a self-check, and return what came of it. What it prints is not kept, and it gets none of our secrets."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MELETE_")}
    try:
        process = subprocess.Popen(
            check.command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return CheckResult.COULD_NOT_TELL, f"it cannot be run: {reason}"
    try:
        code = process.wait(check.timeout_seconds)
    except subprocess.TimeoutExpired:
        return CheckResult.FAILED, f"it did not end within {check.timeout_seconds:g} s"
    finally:
        # With what it started, as far as that stayed in its group.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return (CheckResult.PASSED, "it ended with 0") if code == 0 else (CheckResult.FAILED, f"it ended with {code}")
