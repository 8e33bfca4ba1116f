"""How far a long run has come: one line on standard error that is written over, where somebody is looking."""

from __future__ import annotations

import sys
import time
from typing import Final

import click

WIDTH: Final = 70
#: Not more often than this, in seconds: a terminal may be slower than the work.
INTERVAL: Final = 0.1


class Progress:
    """Tells how far a run has come, and takes that back before anything else is printed."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._shown = False
        self._told_at = 0.0

    def tell(self, text: str) -> None:
        """Show a text of ours, in place of the last one."""
        now = time.monotonic()
        if self._watched and now - self._told_at >= INTERVAL:
            click.echo(f"\r{text[:WIDTH]:<{WIDTH}}", nl=False, err=True)
            self._shown, self._told_at = True, now

    def clear(self) -> None:
        """Leave an empty line to whatever is printed next."""
        if self._shown:
            click.echo(f"\r{'':<{WIDTH}}\r", nl=False, err=True)
            self._shown = False
