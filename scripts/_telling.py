"""How a demonstration speaks: words, what is told under them, and claims that end it when they do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

console = Console(highlight=False)


class DidNotHold(Exception):
    """Something that a demonstration claims is not so."""


def word(text: str) -> None:
    """Begin a stage, by its name."""
    console.print(Text(text, style="bold cyan"))


def tell(text: str) -> None:
    """Say what happens in it."""
    console.print(Text(f"    {text}"), soft_wrap=True)


def hold(claim: str, held: bool) -> None:
    """Say what holds, or end. Errors: `DidNotHold`."""
    if not held:
        raise DidNotHold(claim)
    tell(claim)


def catch(kind: type[Any], forgery: Callable[[], object]) -> Any:
    """Return the error by which a forgery is refused. Errors: `DidNotHold` if it is not."""
    try:
        forgery()
    except kind as caught:
        return caught
    raise DidNotHold(f"a forgery must raise {kind.__name__}")
