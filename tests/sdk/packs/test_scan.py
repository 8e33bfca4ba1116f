from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs import scan
from melete.packs.credentials import find_credentials
from melete.packs.findings import Severity
from melete.packs.hidden import find_hidden_text
from melete.packs.manifest import load_manifest
from melete.packs.scan import scan_content, scan_tree
from melete.packs.tree import load_tree

from .making import write_pack

KEY = "sk-abcdefghijklmnopqrstuvwx"


def found(tmp_path: Path, files: dict[str, Any], **changes: Any) -> list[tuple[str, str, int | None]]:
    tree = load_tree(write_pack(tmp_path, files, **changes))
    return [(finding.rule, finding.file, finding.line) for finding in scan_tree(tree, load_manifest(tree))]


def test_good_pack_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, {}) == []


def test_every_file_is_scanned_wherever_it_lies(tmp_path: Path) -> None:
    files = {
        "agents.md": f"a\n{KEY}",
        "memory/copy-voice.md": f"\n\n{KEY}",
        "memory/deep/er/x.md": f"<!-- amp:end -->\n{KEY}",
        "notes.txt": f"a\u00adb\n{KEY}",
        "run.sh": f"export KEY={'a' * 20}",
    }
    assert found(tmp_path, files, title=KEY) == [
        ("credential", "agents.md", 2),
        ("credential", "manifest.json", 3),
        ("credential", "memory/copy-voice.md", 3),
        ("amp-marker", "memory/deep/er/x.md", 1),
        ("credential", "memory/deep/er/x.md", 2),
        ("hidden-text", "notes.txt", 1),
        ("credential", "notes.txt", 2),
        ("credential", "run.sh", 1),
    ]


def test_credential_and_marker_are_found_through_what_hides_them(tmp_path: Path) -> None:
    files = {"notes.txt": "sk-abcdefghijkl\u200bmnopqrstuvwx\n<!-- a\u00admp:begin -->\n"}
    assert found(tmp_path, files) == [
        ("credential", "notes.txt", 1),
        ("hidden-text", "notes.txt", 1),
        ("amp-marker", "notes.txt", 2),
        ("hidden-text", "notes.txt", 2),
    ]


def test_what_is_not_text_is_named_and_searched_for_credentials(tmp_path: Path) -> None:
    assert found(tmp_path, {"logo.png": b"\x89PNG\xff\n" + KEY.encode()}) == [
        ("not-text", "logo.png", None),
        ("credential", "logo.png", 2),
    ]


def test_signature_is_random_text_and_not_looked_at(tmp_path: Path) -> None:
    signature = f"-{KEY}-{'A' * 86}"[:86]
    assert found(tmp_path, {}, signed=True, signature=signature) == []


def test_file_beyond_the_limit_is_named_and_not_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LARGEST", 2000)
    assert found(tmp_path, {"big.txt": KEY * 100, "small.txt": KEY}) == [
        ("too-large", "big.txt", None),
        ("credential", "small.txt", 1),
    ]


def test_name_of_a_file_that_looks_like_a_secret_is_not_shown(tmp_path: Path) -> None:
    tree = load_tree(write_pack(tmp_path, {f"{KEY}.txt": f"{KEY}\u200b"}))
    findings = scan_tree(tree)
    assert [(finding.rule, finding.line) for finding in findings] == [
        ("credential", None),
        ("credential", 1),
        ("hidden-text", 1),
    ]
    assert "abcdefgh" not in str(findings)


@given(st.text("aZ0_-=\u200b\u00ad\r\n \u00e9sk", max_size=60))
def test_quick_look_overlooks_nothing(text: str) -> None:
    content = text.encode("utf-8")
    read, findings = scan_content(content, "a")
    assert read == text
    lines = {(finding.rule, finding.line) for finding in findings}
    thorough = [*find_credentials(text, "a"), *find_hidden_text(text, "a")]
    assert {(finding.rule, finding.line) for finding in thorough} <= lines


#: What is more than a warning, wherever it stands.
ERRORS = ("credential", "amp-marker")


@given(st.binary(max_size=40))
def test_any_bytes_are_scanned(content: bytes) -> None:
    text, findings = scan_content(content, "a")
    assert text is not None or findings[0].rule == "not-text"
    assert all(finding.severity is Severity.WARNING for finding in findings if finding.rule not in ERRORS)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_credentials_in_other_encodings_are_found(encoding: str) -> None:
    found = scan_content(f"x\né {KEY}\n".encode(encoding), "a.txt")[1]
    assert "credential" in {finding.rule for finding in found}


@pytest.mark.parametrize("signature", [KEY, "s", f"{KEY}=", "A" * 60 + KEY[:25] + "."])
def test_signature_that_is_none_hides_nothing(tmp_path: Path, signature: str) -> None:
    assert ("credential", "manifest.json") in [
        one[:2] for one in found(tmp_path, {}, signed=True, signature=signature, title=KEY)
    ]


def test_signature_elsewhere_in_the_manifest_is_looked_at(tmp_path: Path) -> None:
    signature = (KEY + "0" * 86)[:86]
    assert found(tmp_path / "a", {}, signed=True, signature=signature) == []
    assert [one[:2] for one in found(tmp_path / "b", {}, signed=True, signature=signature, title=signature)] == [
        ("credential", "manifest.json")
    ]
