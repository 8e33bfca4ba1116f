from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.packs import scan, scan_pieces
from melete.packs.credentials import find_credentials
from melete.packs.findings import Finding, Severity
from melete.packs.hidden import find_hidden_text
from melete.packs.manifest import load_manifest
from melete.packs.scan import find_hidden_in, scan_content, scan_tree
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


def scan_large(folder: Path, content: str | bytes) -> tuple[bool, list[Finding]]:
    """What is found in a file that is read in pieces of 50 bytes."""
    folder.mkdir(exist_ok=True)
    (folder / "a").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_pieces, "PIECE", 50)
        patch.setattr(scan_pieces, "OVERLAP", 400)
        return scan_pieces.scan_pieces(load_tree(folder), "a", "a")


def test_file_beyond_the_limit_is_scanned_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LARGEST", 2000)
    monkeypatch.setattr(scan_pieces, "PIECE", 50)
    assert found(tmp_path, {"big.txt": "text\n" * 500 + KEY, "small.txt": KEY}) == [
        ("credential", "big.txt", 501),
        ("credential", "small.txt", 1),
    ]


SECRETS = [KEY, "token = abcdefghij0123456789", "sk-abcdefghijkl\u200bmnopqrstuvwx", "<!-- amp:begin x -->"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("filler", ["x", "x ", "\u00e9", "word\n", "\U0001f600\r\n"])
def test_nothing_is_overlooked_wherever_a_file_is_cut(tmp_path: Path, secret: str, filler: str) -> None:
    for count in range(90, 150, 7):
        text = filler * count + f" {secret}\n" + filler * 90
        is_text, pieces = scan_large(tmp_path / "f", text)
        assert is_text
        assert {(one.rule, one.line) for one in pieces} == {
            (one.rule, one.line) for one in scan_content(text.encode(), "a")[1]
        }


@given(st.text("ask-e_re=\u200b\r\n \u00e9Z01", max_size=300), st.sampled_from(SECRETS))
def test_a_file_in_pieces_is_judged_as_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, text: str, secret: str
) -> None:
    text = f"{text}{secret}{text[::-1]}"
    pieces = scan_large(tmp_path_factory.mktemp("f"), text)[1]
    errors = {(one.rule, one.line) for one in scan_content(text.encode(), "a")[1] if one.is_error}
    assert {(one.rule, one.line) for one in pieces if one.is_error} == errors


@pytest.mark.parametrize("content", [b"a" * 120 + b"\xff", b"a" * 120 + b"\xe2\x80", b"a" * 120 + b"\0"])
def test_large_file_that_is_no_text_is_named_and_searched_for_credentials(tmp_path: Path, content: bytes) -> None:
    is_text, pieces = scan_large(tmp_path / "f", content + b"\n" * (content[-1] != 0x80))
    assert (is_text, [one.rule for one in pieces]) == (False, ["not-text"])
    assert "(byte 120)" in pieces[0].message
    is_text, pieces = scan_large(tmp_path / "f", content + f"\n{KEY}".encode("utf-16-le"))
    assert (is_text, [one.rule for one in pieces]) == (False, ["not-text", "credential"])


def test_findings_of_a_large_file_are_bounded(tmp_path: Path) -> None:
    pieces = scan_large(tmp_path / "f", f"{KEY}\n" * 300)[1]
    assert len(pieces) == scan_pieces.MOST_TOLD + 1
    assert "200 or more other places, from line 101 on" in pieces[-1].message


def test_hidden_text_of_a_large_file_is_found_by_verify_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LARGEST", 2000)
    files = {"big.txt": "plain\n" * 500 + "a\u00adb", "big.bin": b"\0" * 3000}
    tree = load_tree(write_pack(tmp_path, files))  # type: ignore[arg-type]
    assert [(one.rule, one.file, one.line) for one in find_hidden_in(tree)] == [("hidden-text", "big.txt", 501)]


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
