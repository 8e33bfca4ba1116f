"""A node, or one clear sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from melete.chain.reverts import decode_revert
from melete.errors import (
    ConfigurationError,
    ContractError,
    CouldNotTell,
    MissingExtra,
    NoContract,
    NodeRefused,
    NodeUnreachable,
    WrongChain,
)
from melete.primitives import Address

if TYPE_CHECKING:
    from web3 import Web3

Answer = TypeVar("Answer")

#: How long one request may take, in seconds.
REQUEST_SECONDS = 30


def connect(url: str, expected_chain_id: int | None = None) -> Web3:
    """Return a connection to the node at an http(s) or ws(s) URL, or an IPC path, after it answered for its chain.

    Errors: `ConfigurationError` for another kind of URL, `NodeUnreachable`, `WrongChain`, `MissingExtra`.
    """
    scheme = urlsplit(url).scheme
    try:
        from web3 import HTTPProvider, IPCProvider, LegacyWebSocketProvider, Web3
    except ImportError:
        raise MissingExtra("chain", "talking to a node") from None
    provider: Any
    if scheme in ("http", "https"):
        provider = HTTPProvider(url, request_kwargs={"timeout": REQUEST_SECONDS})
    elif scheme in ("ws", "wss"):
        provider = LegacyWebSocketProvider(url, websocket_timeout=REQUEST_SECONDS)
    elif scheme == "" and url.startswith(("/", ".")):
        provider = IPCProvider(url, timeout=REQUEST_SECONDS)
    else:
        raise ConfigurationError(f"the node's URL {url_without_secrets(url)} must start with http, https, ws, wss or /")
    w3 = Web3(provider)
    check_chain(w3, expected_chain_id)
    return w3


def check_chain(w3: Web3, expected_chain_id: int | None) -> int:
    """Return the chain that a node serves. Errors: `WrongChain` when it is not the expected one."""
    chain_id = ask(w3, "eth_chainId", lambda: w3.eth.chain_id)
    if expected_chain_id is not None and chain_id != expected_chain_id:
        raise WrongChain(expected_chain_id, chain_id)
    return chain_id


def require_code(w3: Web3, address: Address) -> bytes:
    """Return the code at an address. Errors: `NoContract` when there is none."""
    code = bytes(ask(w3, "eth_getCode", lambda: w3.eth.get_code(_checksum(address))))
    if not code:
        raise NoContract(address, ask(w3, "eth_chainId", lambda: w3.eth.chain_id))
    return code


def call(w3: Web3, to: Address, data: bytes, sender: Address | None = None, block: Any = "latest") -> bytes:
    """Return what a call answers. Errors: the contract's own error, decoded; `NodeRefused`, `NodeUnreachable`."""
    request: dict[str, Any] = {"to": _checksum(to), "data": "0x" + data.hex()}
    if sender is not None:
        request["from"] = _checksum(sender)
    # A contract may answer "look it up at this URL" (EIP-3668); nothing here follows it.
    return bytes(ask(w3, "eth_call", lambda: w3.eth.call(request, block, ccip_read_enabled=False)))  # type: ignore[arg-type]


def ask(w3: Web3, request: str, question: Callable[[], Answer]) -> Answer:
    """Return a node's answer, with whatever goes wrong as an error of ours."""
    with node_errors(w3, request):
        return question()


@contextmanager
def node_errors(w3: Web3, request: str) -> Iterator[None]:
    """Turn what web3 and its transports raise into errors of ours."""
    import requests
    from web3 import exceptions as web3_errors

    try:
        yield
    except (ContractError, CouldNotTell, web3_errors.TimeExhausted):
        raise
    except web3_errors.ContractLogicError as error:
        raise revert_of(error) from error
    except web3_errors.Web3RPCError as error:
        raise _refusal(request, error) from error
    except (requests.RequestException, web3_errors.ProviderConnectionError, OSError, TimeoutError) as error:
        raise NodeUnreachable(url_of(w3), _reason(error)) from error
    except web3_errors.Web3Exception as error:
        raise NodeRefused(request, str(error)) from error
    except ValueError as error:
        # An answer that is no JSON: some web server, but no node.
        raise NodeUnreachable(url_of(w3), f"what answers there is no node: {type(error).__name__}") from error


def revert_of(error: Any) -> ContractError:
    """Return the contract error inside a web3 exception."""
    data = getattr(error, "data", None)
    if isinstance(data, dict):  # some nodes wrap it once more
        data = data.get("data") or data.get("result")
    if data in (None, "", "0x", "no data"):
        from melete.errors import EmptyRevert, RevertReason

        message = str(getattr(error, "message", "") or "")
        _, _, reason = message.partition("execution reverted: ")
        return RevertReason(reason) if reason and "no data" not in reason else EmptyRevert()
    return decode_revert(data)


def url_of(w3: Web3) -> str:
    """Return where a connection leads, without what may be secret in it."""
    provider = w3.provider
    return url_without_secrets(str(getattr(provider, "endpoint_uri", None) or getattr(provider, "ipc_path", "?")))


def url_without_secrets(url: str) -> str:
    """Return scheme, host and port of a URL: user, path and query often hold a key."""
    parts = urlsplit(url)
    if not parts.netloc:
        return ascii(url)[1:-1]
    host = parts.netloc.rpartition("@")[2]
    hidden = "/..." if parts.path.strip("/") or parts.query else ""
    return ascii(f"{parts.scheme}://{host}{hidden}")[1:-1]


def _refusal(request: str, error: Any) -> Exception:
    """An error answer: a revert if it carries revert data, else the node's own refusal."""
    response = getattr(error, "rpc_response", None) or {}
    answer = response.get("error", {}) if isinstance(response, dict) else {}
    data = answer.get("data") if isinstance(answer, dict) else None
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str) and data.startswith("0x") and "revert" in str(answer.get("message", "")).lower():
        return decode_revert(data)
    message = answer.get("message", error) if isinstance(answer, dict) else answer
    return NodeRefused(request, str(message))


def _reason(error: BaseException) -> str:
    text = str(error)
    for phrase in ("Connection refused", "timed out", "Name or service not known", "No such file"):
        if phrase.lower() in text.lower():
            return phrase.lower()
    return type(error).__name__


def _checksum(address: Address) -> Any:
    return str(address)
