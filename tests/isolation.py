"""What a test changes on the node is gone after it. Ape's own roll-back is given up silently after one failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def rolled_back() -> Iterator[None]:
    """Take a snapshot before a test, and go back to it. What fixtures of wider scopes made before stays."""
    import ape  # the fast tests run without it

    before = ape.chain.snapshot()
    yield
    ape.chain.restore(before)
