"""The test vectors as pytest parameters: one for each case, named by its file and its own name."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2] / "test-vectors"
Json = dict[str, Any]


@cache
def load_file(name: str) -> Json:
    """Return a file of vectors by its path below `test-vectors/`."""
    document: Json = json.loads((ROOT / name).read_text("utf-8"))
    return document


def load_cases(folder: str) -> list[Any]:
    """Return (file, case) of every case of every file in a folder."""
    names = sorted(path.name for path in (ROOT / folder).iterdir())
    return [
        pytest.param(f"{folder}/{name}", case, id=f"{Path(name).stem}/{case['name']}")
        for name in names
        for case in load_file(f"{folder}/{name}")["cases"]
    ]


def find_domain(file: str, case: Json) -> Json:
    """Return the domain of a case: its own, or that of its file."""
    domain: Json = case.get("domain") or load_file(file)["domain"]
    return domain


def read_content(content: Json) -> bytes:
    """Return the bytes that a `content` stands for."""
    ((form, text),) = content.items()
    return {"utf8": lambda: text.encode("utf-8"), "hex": lambda: bytes.fromhex(text[2:])}[form]()
