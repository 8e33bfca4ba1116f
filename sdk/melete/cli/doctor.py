"""`melete doctor`: is everything that an operator relies on there, and as it should be?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, outbox_option, witness_options

if TYPE_CHECKING:
    from melete.meditation.registry import MeditationRegistry
    from melete.memory.registry import MemoryRegistry

#: Where proxies keep implementation, admin and beacon. Source: EIP-1967.
PROXY_SLOTS: Final = {
    "implementation": "0x360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc",
    "admin": "0xb53127684a568b3173ae13b9f8a6016e243e63b6e8ee1178d6a717850b5d6103",
    "beacon": "0xa3f0ad74e5423aebfd80d3ef4346578335a9a72aeaee59ff6cb3582b35133d50",
}
HOLDS, DOES_NOT_HOLD, COULD_NOT_TELL = "holds", "does not hold", "could not tell"


@click.command()
@click.option("--key-file", help="A key file to look at; it is not read.")
@click.option(
    "--meditation-registry", envvar="MELETE_MEDITATION_REGISTRY", help="The address of the registry of subjects."
)
@outbox_option
@witness_options
@registry_options
@json_option
def command(
    key_file: str | None,
    meditation_registry: str | None,
    outbox: Path,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Look at node, registries, code, proxy slots, key file and stores; of each say: holds, does not, could not tell.

    The registry of subjects is looked at where one is named or recorded, and a store where it is there or named.
    Nothing is changed. Exit code 1 if anything does not hold, else 3 if anything could not be told.
    """
    if meditation_registry is not None:
        settings = replace(settings, meditation=meditation_registry)
    found = dict(look(settings, key_file, outbox, witnesses))
    if as_json:
        emit({name: one._asdict() for name, one in found.items()}, as_json=True)
    else:
        emit({name: f"{one.answer}: {one.detail}" for name, one in found.items()}, as_json=False)
    verdicts = {one.answer for one in found.values()}
    if DOES_NOT_HOLD in verdicts:
        raise click.exceptions.Exit(1)
    if COULD_NOT_TELL in verdicts:
        raise click.exceptions.Exit(3)


class Finding(NamedTuple):
    """One of the three answers, and what was found."""

    answer: str
    detail: str


def look(
    settings: Settings, key_file: str | None, outbox: Path, witnesses: WitnessOptions
) -> Iterator[tuple[str, Finding]]:
    """Yield what is found at each place."""
    registry: list[MemoryRegistry] = []

    def connect() -> str:
        registry.append(settings.connect())
        return f"chain {registry[0].chain_id}"

    yield "node", judge(connect)
    if registry:
        yield "hashes", judge(lambda: f"{len(registry[0].cross_check().agreed)} views agree")
        yield "code", judge(lambda: check_code(registry[0]))
        yield "proxy", judge(lambda: check_proxy_slots(registry[0]))
    yield from look_at_meditation(settings)
    if key_file is not None:
        yield "key file", judge(lambda: check_mode(Path(key_file)))
    if outbox.exists() or is_named("outbox"):
        yield "outbox", judge(lambda: check_outbox(outbox))
    if witnesses.path.exists() or is_named("witnesses"):
        if witnesses.key_file is not None:
            at = witnesses.key_file
            yield "witness key file", judge(lambda: check_mode(at))
        yield "witnesses", judge(lambda: check_witnesses(witnesses))


def look_at_meditation(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """Yield what is found of the registry of subjects, if one is named or recorded."""
    from melete.errors import MeleteError

    found: list[MeditationRegistry] = []

    def connect() -> str:
        found.append(settings.connect_meditation())
        return f"chain {found[0].chain_id}"

    if settings.meditation is None:
        try:
            if not is_recorded(settings):
                return
        except MeleteError:
            return  # what "node" tells of already
    yield "meditation", judge(connect)
    if found:
        yield "meditation code", judge(lambda: check_code(found[0], "AgentMeditationRegistry"))
        yield "meditation proxy", judge(lambda: check_proxy_slots(found[0]))


def is_recorded(settings: Settings) -> bool:
    """Return whether the chain's record of deployments names a registry of subjects. Errors: the node's."""
    from melete.chain.connection import check_chain
    from melete.chain.deployments import record_path, recorded_contracts

    path = record_path(Path(settings.deployments or "deployments"), check_chain(settings.connect_node(), None))
    return path.exists() and "AgentMeditationRegistry" in recorded_contracts(path)


def is_named(option: str) -> bool:
    """Return whether an option of the running command was given, on its line or by the environment."""
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def judge(question: Callable[[], Any]) -> Finding:
    """Return one of the three answers, with what was found."""
    from melete.errors import MeleteError, VerificationError

    try:
        return Finding(HOLDS, str(question()))
    except VerificationError as error:
        return Finding(DOES_NOT_HOLD, str(error))
    except MeleteError as error:
        return Finding(COULD_NOT_TELL, str(error))


def check_code(registry: MemoryRegistry | MeditationRegistry, contract: str = "AgentMemoryStateRegistry") -> str:
    from melete.chain.deployments import verify_code

    return f"the artifact's, hash {verify_code(registry.w3, contract, registry.address)}"


def check_proxy_slots(registry: MemoryRegistry | MeditationRegistry) -> str:
    """Return that no slot of a proxy is filled. Errors: `CodeMismatch` for one that is."""
    from melete.chain.rpc import batch
    from melete.errors import CodeMismatch
    from melete.primitives import ZERO_BYTES32, Bytes32

    calls = [("eth_getStorageAt", [str(registry.address), slot, "latest"]) for slot in PROXY_SLOTS.values()]
    for name, answer in zip(PROXY_SLOTS, batch(registry.w3, calls), strict=True):
        if answer.error is not None:
            raise answer.error
        word = Bytes32(bytes.fromhex(answer.result[2:].rjust(64, "0")))
        if word != ZERO_BYTES32:
            raise CodeMismatch(registry.address, f"no {name} slot", word)
    return "no implementation, admin or beacon"


def check_mode(path: Path) -> str:
    """Return that a file is its owner's alone. Errors: `UnsafeFile`, `MissingFile`."""
    from melete.errors import MissingFile, UnsafeFile

    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise MissingFile(str(path), f"it cannot be looked at ({error.strerror})") from None
    if mode & 0o077:
        raise UnsafeFile(str(path), f"{mode:04o}")
    return "its owner's alone"


def check_outbox(path: Path) -> str:
    from melete.chain.outbox import Outbox

    check_mode(path)
    with Outbox(path) as opened:
        return ", ".join(f"{count} {state.value}" for state, count in opened.count().items() if count) or "empty"


def check_witnesses(witnesses: WitnessOptions) -> str:
    check_mode(witnesses.path)
    with witnesses.open() as store:
        return f"{sum(1 for _ in store.list_rows())} rows, and the key opens it"
