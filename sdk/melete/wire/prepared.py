"""A statement of SQLAlchemy Core, compiled once for each engine and run by the driver itself.

What runs for every write and every query costs a fraction that way. Both drivers take a statement and its values, and
return a cursor; transactions are SQLAlchemy's all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql.base import Executable


def driver_connection(connection: Connection) -> Any:
    """Return the driver's own connection under one of SQLAlchemy's."""
    return connection.connection.driver_connection


class Prepared:
    """A statement whose values are given by name, as the driver takes them: text, whole numbers, bytes and None."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, list[str] | None, dict[str, Any]]] = {}

    def run(self, connection: Connection, values: Mapping[str, Any]) -> Any:
        """Run the statement, and return the driver's cursor. Errors: the driver's own."""
        name = connection.dialect.name
        sql, order, constants = self._compiled.get(name) or self._compile(connection)
        given: Any = {**constants, **values} if constants else values
        if order is not None:
            given = tuple([given[name] for name in order])
        return driver_connection(connection).execute(sql, given)

    def _compile(self, connection: Connection) -> tuple[str, list[str] | None, dict[str, Any]]:
        compiled: Any = self._statement.compile(dialect=connection.dialect)  # type: ignore[attr-defined]
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        found = self._compiled[connection.dialect.name] = (str(compiled), compiled.positiontup, constants)
        return found
