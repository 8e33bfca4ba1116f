"""What the contracts cost is what `tests/gas.json` says, and no more than it may be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "_dev"))

import gas_meditation  # noqa: E402
from gas import GOALS, STEADY_COMMIT_FLOOR, measure, ratio  # noqa: E402

KEPT = json.loads((ROOT / "tests" / "gas.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def measured() -> dict[str, int]:
    return measure()


def test_the_kept_figures_are_those_that_receipts_show(measured):
    assert measured == KEPT["agentMemoryState"], "gas changed: run ./dev bench, and review the difference"


@pytest.mark.parametrize("operation", GOALS)
def test_every_operation_reaches_its_goal(measured, operation):
    assert ratio(operation, measured[operation]) <= GOALS[operation][1]


def test_a_steady_commit_stays_within_five_percent_of_its_floor(measured):
    assert measured["steady commit, direct"] <= 1.05 * STEADY_COMMIT_FLOOR


@pytest.fixture(scope="module")
def measured_meditation() -> dict[str, int]:
    return gas_meditation.measure()


def test_the_kept_figures_of_meditation_are_those_that_receipts_show(measured_meditation):
    assert measured_meditation == KEPT["agentMeditation"], "gas changed: run ./dev bench, and review the difference"


@pytest.mark.parametrize("operation", gas_meditation.GOALS)
def test_every_operation_of_meditation_reaches_its_goal(measured_meditation, operation):
    assert measured_meditation[operation] <= gas_meditation.GOALS[operation][1]
