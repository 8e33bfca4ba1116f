"""What a command found, for a person or for a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click


def emit(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was found: one JSON object, or a line per member.

    Bytes print as 0x hex. Sequences are strings in JSON, as everywhere.
    """
    if as_json:
        click.echo(json.dumps({name: _plain(value) for name, value in found.items()}))
        return
    width = max(map(len, found), default=0)
    for name, value in found.items():
        plain = _plain(value)
        shown = ", ".join(map(str, plain)) if isinstance(plain, list) else str(plain)
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {shown or '-'}")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return str(value) if type(value) is not bytes else "0x" + value.hex()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
