"""The JSON Schemas (2020-12) of envelopes and results, for whoever serves them or checks with them.

A schema cannot say all of what an `Envelope` must be: `melete.wire.envelope` does, names one member, and is quicker.
A document that the schema refuses is no envelope; one that it accepts may still be none.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from melete.resources import load_schema


def load_envelope_schema() -> dict[str, Any]:
    """Return the schema of a request, a copy: with the constraints of the specification, under an `$id` of our own.

    Errors: `MissingFile` when the package was installed without its schemas.
    Source: memorywire wire format (`schema`).
    """
    return deepcopy(load_schema("memory-envelope"))


def load_result_schema() -> dict[str, Any]:
    """Return the schema of an answer, a copy. The specification has none: it is ours.

    Errors: `MissingFile` when the package was installed without its schemas.
    """
    return deepcopy(load_schema("memory-result"))
