"""The package against the packs of `test-vectors/packs/validation`: good ones, and one for each defect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from melete.packs.grammar import parse_cluster, serialize_cluster
from melete.packs.manifest import V04
from melete.packs.validation import Report, validate_folder

from .loading import ROOT

FOLDER = ROOT / "packs" / "validation"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
PLACE = ("rule", "severity", "file", "line", "unit")


def load_verdict(name: str) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((FOLDER / name / "verdict.json").read_text("utf-8"))
    return verdict


def validate(name: str, *, strict: bool = False) -> Report:
    return validate_folder(FOLDER / name / "pack", strict=strict)


def test_there_are_packs_of_both_formats_and_many_defects() -> None:
    assert {"good", "good_v03"} <= set(CASES)
    assert len(CASES) > 80


@pytest.mark.parametrize("name", CASES)
def test_verdict_is_the_expected_one(name: str) -> None:
    verdict, report = load_verdict(name), validate(name)
    assert verdict["name"] == name
    found = [{member: finding.to_json()[member] for member in PLACE} for finding in report.findings]
    assert found == [{member: finding[member] for member in PLACE} for finding in verdict["findings"]]
    assert (report.ok, report.passed, report.failed) == (verdict["ok"], verdict["passed"], verdict["failed"])
    assert report.ambiguous == verdict["ambiguous"]
    assert validate(name, strict=True).ok == verdict["okStrict"]
    for finding, expected in zip(report.findings, verdict["findings"], strict=True):
        assert finding.message.startswith(expected.get("message", ""))


@pytest.mark.parametrize("name", CASES)
def test_no_report_shows_a_made_up_key(name: str) -> None:
    report = validate(name)
    said = report.to_text() + json.dumps(report.to_json())
    for secret in ("abcdefghijkl", "AbCdEfGhIjKl", "abcDEF123", "IOSFODNN7", "e3b0c442"):
        assert secret not in said


def clusters() -> list[Path]:
    return [
        path
        for name in CASES
        if f'"primitive_format": "{V04}"' in _read(FOLDER / name / "pack" / "manifest.json")
        for path in sorted((FOLDER / name / "pack" / "memory").glob("*.md"))
    ]


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


def test_clusters_without_faults_are_written_to_the_same() -> None:
    written = 0
    for path in clusters():
        try:
            cluster = parse_cluster(path.read_bytes().decode("utf-8"), path.name)
        except (UnicodeDecodeError, IsADirectoryError):
            continue
        if not cluster.findings:
            assert parse_cluster(serialize_cluster(cluster), path.name) == cluster
            written += 1
    assert written > 80
