from __future__ import annotations

import json

import pytest

from melete.packs.errors import (
    BadFrontmatter,
    GateFailed,
    ManifestNotJson,
    MissingAgentsFile,
    MissingCapabilityFile,
    MissingManifest,
    NotSigned,
    PackError,
    PackRefused,
    WrongLayout,
)
from melete.packs.findings import Finding, Severity

FINDING = Finding("facet-position", Severity.ERROR, "memory/a.md", 3, "expected x", "write x", "memory/a.md#1")


def test_finding_names_rule_file_line_and_remedy_in_one_line() -> None:
    assert str(FINDING) == "error: memory/a.md line 3: expected x (facet-position); write x"
    assert str(FINDING._replace(line=None, severity=Severity.WARNING)).startswith("warning: memory/a.md: expected")


def test_finding_as_json_has_its_members_by_name() -> None:
    assert json.loads(json.dumps(FINDING.to_json())) == {
        "rule": "facet-position",
        "severity": "error",
        "file": "memory/a.md",
        "line": 3,
        "message": "expected x",
        "remedy": "write x",
        "unit": "memory/a.md#1",
    }
    assert FINDING._replace(line=None, unit=None).to_json()["line"] is None


def test_finding_is_one_printable_line_whatever_the_file_is_called() -> None:
    assert str(FINDING._replace(file="memory/a\nb\u202e.md")).isprintable()
    assert "memory/caf\u00e9.md" in str(FINDING._replace(file="memory/caf\u00e9.md"))


@pytest.mark.parametrize(
    ("error", "number", "text"),
    [
        (MissingManifest(), 1, "Missing manifest.json"),
        (ManifestNotJson("why"), 2, "manifest.json is not valid JSON"),
        (WrongLayout("flat"), 3, "Pack layout is 'flat', expected 'semantic-cluster'"),
        (MissingAgentsFile("why"), 4, "Missing agents.md"),
        (MissingCapabilityFile("a.md", "why"), 5, "Missing capability file: memory/a.md"),
        (NotSigned(), 6, "Pack is not signed"),
    ],
)
def test_gate_speaks_the_specification_first(error: GateFailed, number: int, text: str) -> None:
    assert error.gate == number
    assert str(error).startswith(text)
    assert str(error).endswith(".")
    assert isinstance(error, PackError)


@pytest.mark.parametrize(
    "error",
    [
        WrongLayout("a\nb\x1b" * 200),
        MissingCapabilityFile("\u202e\ud800" * 200, "why"),
        PackRefused("symlink", "a\nb", "it is a link"),
        BadFrontmatter("a\nb", 3, "why"),
    ],
)
def test_message_is_printable_and_bounded_whatever_a_pack_holds(error: PackError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 2000


def test_refusal_names_file_and_rule() -> None:
    message = str(PackRefused("symlink", "memory/a.md", "it is a link; put the file there"))
    assert message == "pack refused: 'memory/a.md': it is a link; put the file there (rule symlink)."
