"""`melete memory serve`, `mcp` and `token`: the store for others, and who they are."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from melete.cli.memory_store import StoreOptions, store_options
from melete.cli.memory_text import clean, describe_time, print_table, tell
from melete.cli.memory_witnesses import make_eraser
from melete.cli.output import emit
from melete.cli.settings import json_option
from melete.cli.stores import WitnessOptions, data_folder, witness_options

if TYPE_CHECKING:
    from melete.wire.serving.tokens import Token

Command = TypeVar("Command", bound=Callable[..., Any])

ROLES: Final = ("reader", "writer", "approver")


def tokens_option(command: Command) -> Command:
    """Give a command the option --tokens, handed on as a path or None."""
    return click.option(
        "--tokens",
        envvar="MELETE_MEMORY_TOKENS",
        metavar="FILE",
        help="The file of tokens; in the data folder by default.",
    )(command)


def _tokens_path(tokens: str | None) -> Path:
    return Path(tokens) if tokens else data_folder() / "memory-tokens.json"


# Serving


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8350, show_default=True, help="0 for any that is free.")
@tokens_option
@click.option("--tls-cert", type=click.Path(path_type=Path), help="A certificate with its chain, as PEM.")
@click.option(
    "--tls-key", type=click.Path(path_type=Path), help="Its key, as PEM, unencrypted and readable to you only."
)
@click.option(
    "--yes-plain-http",
    is_flag=True,
    help="Listen to others without TLS: whoever is on the way reads tokens and memories.",
)
@click.option(
    "--max-body", type=click.IntRange(1), metavar="BYTES", help="What one request may bring; 32 MiB if omitted."
)
@click.option("--quiet", is_flag=True, help="Log faults only, not every request.")
@store_options
@witness_options
def serve(
    host: str,
    port: int,
    tokens: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    yes_plain_http: bool,
    max_body: int | None,
    quiet: bool,
    where: StoreOptions,
    witnesses: WitnessOptions,
    as_json: bool,
) -> None:
    """Serve the store over HTTP to those who hold a token: POST an envelope to /v1/memory, get a result.

    Without --yes-plain-http or TLS it listens to this machine only. The log, on standard error, holds no content.
    Of a store on record, what is forgotten leaves the witnesses at once if their store's key is named.
    """
    from melete.errors import ConfigurationError
    from melete.wire.serving.http import Limits, create_app
    from melete.wire.serving.listening import TlsFiles, describe_socket, make_server, open_socket, verify_tls_files
    from melete.wire.serving.listening import serve as serve_at
    from melete.wire.serving.tokens import TokenFile

    if (tls_cert is None) != (tls_key is None):
        raise ConfigurationError("a certificate and its key belong together; give both --tls-cert and --tls-key")
    tls = None if tls_cert is None or tls_key is None else verify_tls_files(TlsFiles(tls_cert, tls_key))
    limits = (
        Limits() if max_body is None else Limits(body_bytes=max_body, held_bytes=max(max_body, Limits().held_bytes))
    )
    file = TokenFile(_tokens_path(tokens))
    count = len(file.load())
    with where.open(create=True) as store, open_socket(host, port, is_private=yes_plain_http or tls is not None) as at:
        log_to_stderr(logging.WARNING if quiet else logging.INFO)
        app = create_app(store, file, limits, on_forgotten=make_eraser(store, witnesses))
        server = make_server(app, limits, tls)
        url = describe_socket(at, tls)
        if as_json:
            click.echo(json.dumps({"url": url, "tokens": count}))
        else:
            known = f"{count} tokens are known" if count else "no token is known yet: melete memory token add"
            tell(f"serving {url} ({known}); Ctrl+C ends it")
        serve_at(server, at)


@click.command("mcp")
@click.option("--agent", "agent_id", metavar="ID", default="default", show_default=True, help="Whose memory it is.")
@click.option("--as", "writer", metavar="NAME", help="Who writes, if not the agent; who writes does not approve.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES[:2]),
    multiple=True,
    default=ROLES[:2],
    show_default=True,
    help="What may be done; may be given twice.",
)
@store_options
@witness_options
def mcp(
    agent_id: str,
    writer: str | None,
    roles: tuple[str, ...],
    where: StoreOptions,
    witnesses: WitnessOptions,
    as_json: bool,  # noqa: ARG001 - it always is
) -> None:
    """Serve one agent's memory as an MCP server on standard input and output, for the program that starts this.

    The agent, the writer and the roles are fixed here: no tool call changes them.
    """
    from melete.wire.approval import verify_name
    from melete.wire.envelope import verify_agent_id
    from melete.wire.serving.mcp_server import make_server, run_stdio
    from melete.wire.serving.tokens import Role

    agent, name = verify_agent_id(agent_id, "--agent"), None if writer is None else verify_name(writer, "--as")
    with where.open(create="writer" in roles) as store:
        erase = make_eraser(store, witnesses)
        server = make_server(store, agent, [Role(role) for role in roles], name, on_forgotten=erase)
        log_to_stderr(logging.WARNING)
        run_stdio(server)


def log_to_stderr(level: int) -> None:
    """Log to standard error, a line for each event, without traces: they may hold what was asked or remembered."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("melete.serving").setLevel(level)


class _Lines(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return f"  {ei[0].__name__}" if ei and ei[0] else ""

    def formatStack(self, stack_info: str) -> str:  # noqa: ARG002, N802
        return ""


# Tokens


@click.group("token")
def token() -> None:
    """Who may ask a server for what. A token is shown once, and kept nowhere."""


@token.command("add")
@click.option("--agent", "agents", metavar="ID", multiple=True, required=True, help="For this agent; several times.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    required=True,
    help="Recall, write, or decide about what others wrote; several times.",
)
@click.argument("name")
@tokens_option
@json_option
def add_token(name: str, agents: tuple[str, ...], roles: tuple[str, ...], tokens: str | None, as_json: bool) -> None:
    """Make a token for NAME, who is on record for what is written and decided with it."""
    from melete.wire.serving.tokens import TokenFile

    made, secret = TokenFile(_tokens_path(tokens)).add(name, agents, roles)
    found = _describe(made)
    emit({**(found if as_json else _clean(found)), "token": secret}, as_json=as_json)
    if not as_json:
        tell("Keep it now: it is not shown again.", err=True)


@token.command("list")
@tokens_option
@json_option
def list_tokens(tokens: str | None, as_json: bool) -> None:
    """List the tokens, without what opens anything."""
    from melete.wire.serving.tokens import TokenFile

    known = TokenFile(_tokens_path(tokens)).load()
    if as_json:
        click.echo(json.dumps({"tokens": [_describe(one) for one in known]}))
    elif known:
        rows = [
            (
                one.id,
                clean(one.name),
                clean(", ".join(one.agents)),
                ", ".join(role for role in ROLES if role in one.roles),
                describe_time(one.created_at),
            )
            for one in known
        ]
        print_table(("token", "name", "agents", "roles", "since"), rows)
    else:
        tell("no tokens")


@token.command("revoke")
@click.argument("name_or_id", metavar="NAME|ID")
@tokens_option
@json_option
def revoke_token(name_or_id: str, tokens: str | None, as_json: bool) -> None:
    """Take out the token ID, or all of NAME. A server that runs refuses them from then on."""
    from melete.wire.serving.tokens import TokenFile

    gone = TokenFile(_tokens_path(tokens)).revoke(name_or_id)
    if as_json:
        click.echo(json.dumps({"revoked": [_describe(one) for one in gone]}))
        return
    for one in gone:
        tell(f"revoked  {one.id}  {clean(one.name)}")


def _describe(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "agents": list(one.agents),
        "roles": [role for role in ROLES if role in one.roles],
        "created_at": one.created_at,
    }


def _clean(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [clean(item) for item in value] if isinstance(value, list) else clean(str(value))
        for name, value in found.items()
    }


def add_to(group: click.Group) -> None:
    """Give a group the commands of this module."""
    for each in (serve, mcp, token):
        group.add_command(each)
