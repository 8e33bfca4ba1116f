"""A node, or one clear sentence why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from melete.chain.reverts import decode_revert
from melete.errors import (
    ConfigurationError,
    ContractError,
    CouldNotTell,
    EmptyRevert,
    ExecutionHalted,
    InvalidInput,
    MeleteError,
    MissingExtra,
    NoContract,
    NodeRefused,
    NodeUnreachable,
    RevertReason,
    WrongChain,
    show,
)
from melete.primitives import Address, parse_bytes

if TYPE_CHECKING:
    from web3 import Web3

Answer = TypeVar("Answer")

#: What is shown of a URL that cannot be taken apart.
HIDDEN = "(not shown, for it may hold a key)"
#: How long one request may take, in seconds.
REQUEST_SECONDS = 30


def connect(url: str, expected_chain_id: int | None = None) -> Web3:
    """Return a connection to the node at an http(s) or ws(s) URL, or an IPC path, after it answered for its chain.

    Errors: `ConfigurationError` for another kind of URL, `InvalidInput` for what is no text, `NodeUnreachable`,
    `WrongChain`, `MissingExtra`.
    """
    try:
        from web3 import HTTPProvider, IPCProvider, Web3
    except ImportError:
        raise MissingExtra("chain", "talking to a node") from None
    if not isinstance(url, str):
        raise InvalidInput("url", url, "text: an http(s) or ws(s) URL, or the path of a socket")
    kind = _kind(url)
    provider: Any
    if kind == "path":
        provider = IPCProvider(url, timeout=REQUEST_SECONDS)
    elif kind in ("http", "https"):
        provider = HTTPProvider(url, request_kwargs={"timeout": REQUEST_SECONDS})
    else:
        from web3 import LegacyWebSocketProvider  # costs a warning, so only who needs it imports it

        provider = LegacyWebSocketProvider(url, websocket_timeout=REQUEST_SECONDS)
    w3 = Web3(provider)
    check_chain(w3, expected_chain_id)
    return w3


def check_chain(w3: Web3, expected_chain_id: int | None) -> int:
    """Return the chain that a node serves. Errors: `WrongChain` when it is not the expected one."""
    if not hasattr(w3, "provider"):
        raise InvalidInput("w3", w3, "a connection to a node, as `connect` returns it")
    answer = ask(w3, "eth_chainId", lambda: w3.provider.make_request("eth_chainId", []))  # type: ignore[arg-type]
    chain_id = _quantity(w3, "eth_chainId", answer)
    if expected_chain_id is not None and chain_id != expected_chain_id:
        raise WrongChain(expected_chain_id, chain_id)
    return chain_id


def require_code(w3: Web3, address: Address) -> bytes:
    """Return the code at an address. Errors: `NoContract` when there is none."""
    code = bytes(ask(w3, "eth_getCode", lambda: w3.eth.get_code(str(address))))  # type: ignore[arg-type]
    if not code:
        raise NoContract(address, ask(w3, "eth_chainId", lambda: w3.eth.chain_id))
    return code


def call(w3: Web3, to: Address, data: bytes, sender: Address | None = None, block: Any = "latest") -> bytes:
    """Return what a call answers. Errors: the contract's own error, decoded; `NodeRefused`, `NodeUnreachable`."""
    request: dict[str, Any] = {"to": str(to), "data": "0x" + data.hex()}
    if sender is not None:
        request["from"] = str(sender)
    parameters: Any = [request, hex(block) if isinstance(block, int) else block]
    # Asked as it is, not through web3's calls: a contract may answer "look it up at this URL" (EIP-3668), and they do.
    with node_errors(w3, "eth_call"):
        response: Any = w3.provider.make_request("eth_call", parameters)  # type: ignore[arg-type]
    if not isinstance(response, dict) or response.get("error"):
        raise error_of_response("eth_call", response)
    try:
        return parse_bytes(response.get("result") or "", "result")
    except InvalidInput:
        raise NodeRefused("eth_call", f"the answer is no data: {show(response.get('result'))}") from None


def ask(w3: Web3, request: str, question: Callable[[], Answer]) -> Answer:
    """Return a node's answer, with whatever goes wrong as an error of ours."""
    with node_errors(w3, request):
        return question()


@contextmanager
def node_errors(w3: Web3, request: str) -> Iterator[None]:
    """Turn what web3 and its transports raise into errors of ours."""
    import requests
    from web3 import exceptions as web3_errors

    failure: MeleteError | None = None
    try:
        yield
    except (ContractError, CouldNotTell, web3_errors.TimeExhausted):
        raise
    except web3_errors.ContractLogicError as error:
        failure = revert_of(error)
    except web3_errors.Web3RPCError as error:
        failure = error_of_response(request, getattr(error, "rpc_response", None) or {"error": str(error)})
    except (requests.RequestException, web3_errors.ProviderConnectionError, OSError, TimeoutError) as error:
        failure = NodeUnreachable(url_of(w3), _reason(error))
    except web3_errors.BadResponseFormat:  # whose words hold the whole answer
        failure = NodeRefused(request, "the answer is no JSON-RPC response")
    except web3_errors.Web3Exception as error:
        failure = NodeRefused(request, str(error))
    except ValueError as error:
        # An answer that is no JSON: some web server, but no node.
        failure = NodeUnreachable(url_of(w3), f"what answers there is no node: {type(error).__name__}")
    if failure is not None:
        raise failure from None  # the cause holds the whole URL, and with it a key


def revert_of(error: Any) -> MeleteError:
    """Return the contract error inside a web3 exception."""
    message = str(getattr(error, "message", "") or "execution reverted")
    response = {"error": {"code": 3, "message": message, "data": getattr(error, "data", None)}}
    return error_of_response("eth_call", response)


def url_of(w3: Web3) -> str:
    """Return where a connection leads, without what may be secret in it."""
    provider = w3.provider
    return url_without_secrets(str(getattr(provider, "endpoint_uri", None) or getattr(provider, "ipc_path", "?")))


def url_without_secrets(url: str) -> str:
    """Return scheme, host and port of a URL: user, path and query often hold a key. Of a socket, the path."""
    if url.startswith(("/", ".")):
        return ascii(url)[1:-1]
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    if not parts.netloc:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    hidden = "/..." if parts.path.strip("/") or parts.query else ""
    return ascii(f"{parts.scheme}://{host}{hidden}")[1:-1]


def _kind(url: str) -> str:
    """Return `path` for a socket, else the scheme of a URL that names a host."""
    if url.startswith(("/", ".")):
        return "path"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https", "ws", "wss") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        shown = url_without_secrets(url)
        raise ConfigurationError(
            f"the node's URL {shown} must start with http, https, ws, wss and name a host, or with /"
        )
    return parts.scheme


def _quantity(w3: Web3, request: str, response: Any) -> int:
    """Return the number in a raw JSON-RPC response."""
    response = response if isinstance(response, dict) else {}
    if response.get("error"):
        raise NodeRefused(request, describe_error(response["error"]))
    result = response.get("result")
    if not isinstance(result, str) or not re.fullmatch(r"0x[0-9a-fA-F]{1,64}", result):
        raise NodeUnreachable(url_of(w3), f"what answers there is no node: {request} gave no number")
    return int(result, 16)


def error_of_response(request: str, response: Any) -> MeleteError:
    """Return what a raw error response means: a revert if it carries revert data, else the node's own refusal.

    That the code itself ran out of gas, or into an instruction that is none, is told of calls alone: what else sends
    gas may have been given too little of it.
    """
    answer = response.get("error", {}) if isinstance(response, dict) else {}
    if not isinstance(answer, dict):
        return NodeRefused(request, describe_error(answer))
    data, message = answer.get("data"), str(answer.get("message") or "")
    if isinstance(data, dict):  # some nodes wrap it once more
        data = data.get("data") or data.get("result")
    if isinstance(data, str) and data.startswith("Reverted "):  # and some put a word before it
        data = data.removeprefix("Reverted ")
    if isinstance(data, str) and data.startswith("0x") and (answer.get("code") == 3 or "revert" in message.lower()):
        return decode_revert(data) if len(data) > 2 else EmptyRevert()
    if "execution reverted" in message.lower():
        _, _, reason = message.partition("execution reverted: ")
        return RevertReason(reason) if reason and "no data" not in reason else EmptyRevert()
    if request == "eth_call" and _is_halt(message, data):
        return ExecutionHalted(message)
    return NodeRefused(request, describe_error(answer))


def describe_error(error: Any) -> str:
    """Return what a JSON-RPC error says, and its code: the node's words, whatever else it wraps them in."""
    if isinstance(error, str):
        return error
    if not isinstance(error, Mapping) or not error.get("message"):
        return "it gave an error without a message"
    code = error.get("code")
    return f"{error['message']} (code {code})" if isinstance(code, int) else str(error["message"])


#: How nodes say that the machine stopped the code: geth and its kin in words, Reth and Anvil by the names of Revm,
#: Nethermind in the data of a "VM execution error", Besu and Hardhat in sentences.
_HALT: Final = re.compile(
    r"out ?of ?gas|(?:memory|precompile|operand|limit)oog|invalid ?(?:fe ?)?opcode|opcodenotfound|bad ?instruction"
    r"|(?:invalid|bad) ?jump|stack ?(?:under|over)flow|stack limit reached|outofoffset|return data out of bounds"
    r"|write protection|statechangeduringstaticcall|callnotallowedinsidestatic|gas uint64 overflow|notactivated"
    r"|invalid_operation|exceptional halt",
    re.IGNORECASE,
)
#: What a node says when the sender, or the node itself, allows less gas than the code asked for.
_ALLOWANCE: Final = re.compile(r"allowance|gas cap|intrinsic|insufficient|limit exceeded", re.IGNORECASE)


def _is_halt(message: str, data: Any) -> bool:
    text = f"{message} {data}" if isinstance(data, str) and not data.startswith("0x") else message
    return _HALT.search(text) is not None and _ALLOWANCE.search(text) is None


def _reason(error: BaseException) -> str:
    text = str(error)
    for phrase in ("Connection refused", "timed out", "Name or service not known", "No such file"):
        if phrase.lower() in text.lower():
            return phrase.lower()
    return type(error).__name__
