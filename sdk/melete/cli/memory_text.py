"""Remembered text on a terminal, and text from standard input. What others wrote is hostile: it may hold sequences that
move the cursor, colour what follows, reverse the reading direction or hide themselves, and be of any length.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

import click

from melete.wire.envelope import MAX_CONTENT_BYTES, MAX_JSON_BYTES
from melete.wire.errors import EnvelopeError

#: Characters of remembered text that a cell of a table, and a whole page about one memory, show.
CELL_LENGTH: Final = 300
PAGE_LENGTH: Final = 20_000
#: A terminal narrower than this would break ids.
LEAST_WIDTH: Final = 60


def clean(text: str, limit: int = CELL_LENGTH) -> str:
    """Return text in one line that a terminal only prints: what is not printable is escaped, the rest is cut."""
    shown = "".join(map(_printable, text[:limit]))
    return shown if len(text) <= limit else f"{shown}... ({len(text) - limit:,} characters more)"


def clean_lines(text: str, limit: int = PAGE_LENGTH) -> list[str]:
    """Return text as lines that a terminal only prints, cut at a number of characters, which the last line says."""
    lines = [clean(line, limit) for line in text[:limit].split("\n")]
    if len(text) > limit:
        lines.append(f"... ({len(text) - limit:,} characters more; --json has them all)")
    return lines


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else ascii(character)[1:-1]


def describe_time(seconds: int) -> str:
    """Return a time as people read it; one beyond the calendar as seconds."""
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{seconds} seconds after 1970"


def tell(text: str, *, err: bool = False, newline: bool = True) -> None:
    """Print text for people. What the terminal's encoding lacks is escaped."""
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), err=err, nl=newline)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under their heads, as wide as the terminal. The first column holds ids, and is never cut.

    Cells must be clean; they are taken as text, whatever they look like.
    """
    import io
    import shutil

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = io.StringIO()
    width = max(shutil.get_terminal_size((100, 24)).columns, LEAST_WIDTH)
    console = Console(file=drawn, width=width, markup=False, emoji=False, highlight=False, color_system=None)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, min_width=36 if column == "id" else None, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    tell("\n".join(line.rstrip() for line in drawn.getvalue().splitlines()))


# Standard input


def read_content() -> str:
    """Return what standard input holds, as it is: strict UTF-8, of at most the bytes that content may have.

    Errors: `EnvelopeError`, which does not show it.
    """
    return _read("content", MAX_CONTENT_BYTES)


def read_envelope() -> str:
    """Return the text of an envelope from standard input. Errors: `EnvelopeError`."""
    return _read("envelope", MAX_JSON_BYTES)


def _read(member: str, limit: int) -> str:
    try:
        raw = sys.stdin.buffer.read(limit + 1) if sys.stdin is not None else b""
    except OSError as error:
        raise EnvelopeError(member, None, f"standard input cannot be read ({error.strerror})") from None
    if len(raw) > limit:
        raise EnvelopeError(member, f"more than {limit} bytes", f"standard input may hold {limit} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        rule = f"standard input must be UTF-8, and is not at byte {error.start}"
        raise EnvelopeError(member, f"byte 0x{raw[error.start]:02x}", rule) from None
