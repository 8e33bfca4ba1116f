"""JSON documents named on the command line."""

from __future__ import annotations

import sys
from typing import Final

from melete.canonical import Json, load_json
from melete.errors import InvalidInput, MissingFile
from melete.files import read_file as read_bytes
from melete.primitives import NOT_SHOWN

#: A larger document is refused before it is read.
LARGEST_DOCUMENT: Final = 16 * 2**20


def read_document(path: str) -> Json:
    """Return the JSON value in a file, or on standard input for `-`.

    Errors: `MissingFile`, `InvalidInput` for more than 16 MiB, `InvalidJson`.
    """
    return load_json(read_file(path))


def read_file(path: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Errors: as `read_document`, without the JSON's."""
    try:
        if path == "-":
            if sys.stdin is None:
                raise MissingFile("-", "standard input is closed")
            with sys.stdin.buffer as file:
                content = file.read(LARGEST_DOCUMENT + 1)
        else:
            content = read_bytes(path, LARGEST_DOCUMENT)
    except OSError as error:
        raise MissingFile(path, f"the file cannot be read ({error.strerror})") from None
    if len(content) > LARGEST_DOCUMENT:
        raise InvalidInput(path, NOT_SHOWN, f"a file of at most {LARGEST_DOCUMENT} bytes")
    return content
