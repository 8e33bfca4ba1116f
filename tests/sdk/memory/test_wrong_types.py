"""Values of another type than a function takes: each is refused by the name of what it should have been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from melete.errors import InvalidInput
from melete.memory.delta import compute_transition_id
from melete.memory.forensics import follow_space, verify_space_history
from melete.memory.history import Transition, verify_history
from melete.memory.space import GENESIS
from melete.memory.witness import verify_witness
from melete.memory.witness_drill import drill
from melete.memory.witness_export import export_encrypted
from melete.memory.witness_kinds import DELTA
from melete.memory.witness_store import WitnessStore

from .witness_samples import KEY, SPACE, make_witness

WITNESS = make_witness(1)
THEIRS = WITNESS.build_delta(SPACE, GENESIS)


@pytest.mark.parametrize(
    ("field", "use"),
    [
        ("transitions", lambda: verify_history(SPACE, [THEIRS])),  # type: ignore[list-item]
        ("transitions", lambda: verify_history(SPACE, [None])),  # type: ignore[list-item]
        ("transitions", lambda: verify_history(SPACE, None)),  # type: ignore[arg-type]
        ("start", lambda: verify_history(SPACE, [], None)),  # type: ignore[arg-type]
        ("events", lambda: verify_space_history(SPACE, [THEIRS])),  # type: ignore[list-item]
        ("events", lambda: list(follow_space(SPACE, [Transition.of(THEIRS)]))),  # type: ignore[list-item]
        ("delta", lambda: verify_witness(WITNESS, THEIRS)),  # type: ignore[arg-type]
        ("witness", lambda: verify_witness(THEIRS, THEIRS)),  # type: ignore[arg-type]
        ("delta", lambda: compute_transition_id(WITNESS)),  # type: ignore[arg-type]
        ("delta", lambda: Transition.of(None)),  # type: ignore[arg-type]
        ("head", lambda: WITNESS.build_delta(SPACE, None)),  # type: ignore[arg-type]
        ("head", lambda: WITNESS.build_delta(SPACE, 1)),  # type: ignore[arg-type]
    ],
)
def test_value_of_another_type_is_refused_by_name(field: str, use: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        use()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "use"),
    [
        ("place", lambda store: store.get((SPACE, 1))),
        ("place", lambda store: store.get(None)),
        ("place", lambda store: store.put((SPACE, 1), WITNESS)),
        ("place", lambda store: store.erase(1)),
        ("place", lambda store: store.discard([1])),
        ("kind", lambda store: list(store.list_rows("delta"))),
        ("kind", lambda store: list(store.iterate("delta"))),
        ("kind", lambda store: store.move("delta", SPACE, {})),
        ("delta", lambda store: store.put_delta(WITNESS, THEIRS)),
        ("deltas", lambda store: list(drill(store, [WITNESS]))),
        ("deltas", lambda store: list(drill(store, [Transition.of(THEIRS)]))),
        ("key", lambda store: store.change_key(b"1" * 32)),
        ("key", lambda store: WitnessStore.open(store.path, b"1" * 32)),  # type: ignore[arg-type]
        ("key", lambda store: WitnessStore.open(store.path, None)),  # type: ignore[arg-type]
        ("key", lambda store: WitnessStore.create(store.path.parent / "other", "1" * 64)),  # type: ignore[arg-type]
        ("key", lambda store: export_encrypted(store, store.path.parent / "export", "1" * 64)),  # type: ignore[arg-type]
    ],
)
def test_store_refuses_what_it_does_not_take_by_name(
    tmp_path: Path, field: str, use: Callable[[WitnessStore], Any]
) -> None:
    with WitnessStore.create(tmp_path / "store", KEY) as store:
        store.put_delta(THEIRS, WITNESS)
        with pytest.raises(InvalidInput) as caught:
            use(store)
        assert caught.value.field == field
        assert "1" * 32 not in str(caught.value)
        assert store.get(DELTA.place(SPACE, 1)) == WITNESS
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store"]
