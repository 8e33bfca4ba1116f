"""Where a command's settings come from: its flags, then the environment, then `melete.toml`.

    [node]
    rpc-url = "http://127.0.0.1:8545"    # or --rpc-url, MELETE_RPC_URL
    chain-id = 31337                     # or --chain-id, MELETE_CHAIN_ID; optional, guards against the wrong node

    [registry]
    memory = "0x..."                     # or --registry, MELETE_REGISTRY
    meditation = "0x..."                 # or --registry of the commands about subjects, MELETE_MEDITATION_REGISTRY
    deployments = "deployments"          # or --deployments, MELETE_DEPLOYMENTS; where records are looked up

Without a registry's address, the deployment record of the node's chain names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from melete.errors import ConfigurationError
from melete.files import read_file

if TYPE_CHECKING:
    from web3 import Web3

    from melete.meditation.registry import MeditationRegistry
    from melete.memory.registry import MemoryRegistry

Command = TypeVar("Command", bound=Callable[..., Any])

FILE_NAME: Final = "melete.toml"
LARGEST_FILE: Final = 2**20
#: The members of the file, by table, and the setting that each one gives.
MEMBERS: Final = {
    "node": {"rpc-url": "rpc_url", "chain-id": "chain_id"},
    "registry": {"memory": "registry", "meditation": "meditation", "deployments": "deployments"},
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a command that talks to a registry was told."""

    rpc_url: str | None = None
    chain_id: int | None = None
    registry: str | None = None
    meditation: str | None = None
    deployments: str | None = None

    def connect(self) -> MemoryRegistry:
        """Return the client of the registry. Errors: `ConfigurationError` for what is missing, and the node's."""
        from melete.memory.registry import MemoryRegistry

        w3 = self.connect_node()
        return MemoryRegistry(w3, self.registry or self._recorded_address(w3.eth.chain_id, "AgentMemoryStateRegistry"))

    def connect_meditation(self) -> MeditationRegistry:
        """Return the client of the registry of subjects. Errors: as `connect`."""
        from melete.meditation.registry import MeditationRegistry

        w3 = self.connect_node()
        recorded = self.meditation or self._recorded_address(w3.eth.chain_id, "AgentMeditationRegistry")
        return MeditationRegistry(w3, recorded)

    def connect_node(self) -> Web3:
        """Return the node. Errors: `ConfigurationError` for what is missing, and the node's."""
        if self.rpc_url is None:
            raise ConfigurationError(
                f"no node is named; give --rpc-url, set MELETE_RPC_URL, or write rpc-url under [node] in {FILE_NAME}"
            )
        from melete.chain.connection import connect

        return connect(self.rpc_url, self.chain_id)

    def _recorded_address(self, chain_id: int, contract: str) -> str:
        from melete.chain.deployments import load_deployment, record_path

        path = record_path(Path(self.deployments or "deployments"), chain_id)
        if not path.exists():
            raise ConfigurationError(
                f"no registry is named, and there is no record {path} of one; give --registry or set "
                f"{'MELETE_REGISTRY' if contract == 'AgentMemoryStateRegistry' else 'MELETE_MEDITATION_REGISTRY'}"
            )
        return str(load_deployment(path, contract).address)


def registry_options(command: Command) -> Command:
    """Give a command the options that name node and memory registry, and hand them on as `settings`."""
    return _node_options(command, "registry", "MELETE_REGISTRY")


def subject_options(command: Command) -> Command:
    """The same for the registry of subjects and their maintenance."""
    return _node_options(command, "meditation", "MELETE_MEDITATION_REGISTRY")


def _node_options(command: Command, registry: str, variable: str) -> Command:
    @click.option("--rpc-url", envvar="MELETE_RPC_URL", help="The node: an http(s) or ws(s) URL, or an IPC path.")
    @click.option("--chain-id", envvar="MELETE_CHAIN_ID", type=int, help="Refuse a node of another chain.")
    @click.option("--registry", registry, envvar=variable, help="The registry's address.")
    @click.option("--deployments", envvar="MELETE_DEPLOYMENTS", help="The folder of deployment records.")
    @click.option("--config", type=click.Path(dir_okay=False), envvar="MELETE_CONFIG", help=f"Instead of {FILE_NAME}.")
    @wraps(command)
    def with_settings(*args: Any, config: str | None, **options: Any) -> Any:
        names = ("rpc_url", "chain_id", registry, "deployments")
        given = {name: options.pop(name) for name in names}
        settings = {**load_file(config), **{name: value for name, value in given.items() if value is not None}}
        return command(*args, settings=Settings(**settings), **options)

    return with_settings  # type: ignore[return-value]


def json_option(command: Command) -> Command:
    """Give a command the option --json, handed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def load_file(path: str | None) -> dict[str, Any]:
    """Return the settings in a configuration file; without a path, of melete.toml here, if there is one.

    Errors: `ConfigurationError` for a file that cannot be read, is no TOML, or holds a table, member or type that
    is not known.
    """
    file = Path(path or FILE_NAME)
    if path is None and not file.exists():
        return {}
    try:
        content = read_file(file, LARGEST_FILE)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror})") from None
    if len(content) > LARGEST_FILE:
        raise ConfigurationError(f"{file} has more than {LARGEST_FILE} bytes, and is no configuration")
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is no TOML: {error}") from None
    settings = {}
    for table, members in document.items():
        if table not in MEMBERS or not isinstance(members, dict):
            raise ConfigurationError(f"{file}: {table!a} is unknown; the tables are {', '.join(MEMBERS)}")
        for member, value in members.items():
            if member not in MEMBERS[table]:
                raise ConfigurationError(
                    f"{file}: {member!a} in [{table}] is unknown; it knows {', '.join(MEMBERS[table])}"
                )
            wanted = int if member == "chain-id" else str
            if type(value) is not wanted:
                raise ConfigurationError(f"{file}: {member} in [{table}] must be a {wanted.__name__}")
            settings[MEMBERS[table][member]] = value
    return settings
