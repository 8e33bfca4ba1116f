"""A finding: one rule that a pack breaks, where, and how to clear it.

Messages and remedies are ours; what they quote from a pack went through `melete.packs.credentials.quote`, which escapes
it, bounds it, and leaves out anything that looks like a secret.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """An error means that the pack does not hold; a warning that a person should look."""

    ERROR = "error"
    WARNING = "warning"


class Finding(NamedTuple):
    """One rule broken: `rule` is kebab-case words, `file` a path in the pack, `line` from 1 or None for the whole file.

    `unit` is the id of the primitive that it stands in, if it stands in one.
    """

    rule: str
    severity: Severity
    file: str
    line: int | None
    message: str
    remedy: str
    unit: str | None = None

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    @property
    def place(self) -> str:
        """File and line, printable whatever the file is called."""
        name = self.file if self.file.isprintable() else ascii(self.file)
        return name if self.line is None else f"{name} line {self.line}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON: its members by name, with `line` and `unit` null where there is none."""
        return {**self._asdict(), "severity": self.severity.value}

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.place}: {self.message} ({self.rule}); {self.remedy}"
