"""The package against packs that Node signed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from melete.packs import errors
from melete.packs.keys import load_public_key
from melete.packs.signing import Verdict, verify_pack
from melete.packs.tree import load_tree

from .loading import ROOT, Json

FOLDER = ROOT / "packs" / "signatures"
CASES = [
    pytest.param(path.parent, json.loads(path.read_text("utf-8")), id=path.parent.name)
    for path in sorted(FOLDER.glob("*/verdict.json"))
]


def verify(folder: Path, case: Json) -> Verdict:
    return verify_pack(load_tree(folder / "pack"), [load_public_key(text) for text in case["publicKeys"]])


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_verdict_on_a_pack_that_node_signed(folder: Path, case: Json) -> None:
    expected = case["expected"]
    if "error" in expected:
        with pytest.raises(getattr(errors, expected["error"])):
            verify(folder, case)
        return
    verdict = verify(folder, case)
    assert verdict.answer == expected["answer"]
    assert verdict.rule == expected.get("rule", "")
    if "form" in expected:
        assert verdict.form == expected["form"]
    differences = [
        {"kind": one.kind, "path": one.path, **({"newPath": one.new_path} if one.new_path else {})}
        for one in verdict.differences
    ]
    assert differences == expected.get("differences", [])
    assert bool(verdict.warnings) == expected.get("warnings", False)


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_what_is_held_holds_for_node_in_the_same_form(folder: Path, case: Json) -> None:
    expected = case["expected"]
    if expected.get("answer") == "held":
        assert case["node"][expected["form"]] is True
    if expected.get("rule") in ("signature-invalid", "other-signer"):
        assert case["node"] == {"text": False, "reference": False}


def test_every_rule_and_both_forms_have_cases() -> None:
    expected = [case.values[1]["expected"] for case in CASES]  # type: ignore[index]
    assert {one["form"] for one in expected if one.get("answer") == "held"} == {"text", "reference"}
    assert {one["rule"] for one in expected if "rule" in one} == {
        *("unsigned", "signature-malformed", "signature-invalid", "other-signer"),
        *("files-differ", "files-malformed", "signer-unknown", "no-key"),
    }
    kinds = {difference["kind"] for one in expected for difference in one.get("differences", [])}
    assert kinds == {"renamed", "added", "missing", "changed"}


def test_script_makes_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run(["node", str(FOLDER / "make.mjs"), str(tmp_path)], check=True)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(FOLDER) for path in FOLDER.glob("*/**/*") if path.is_file()}
    assert made == kept
    for path in made:
        assert (tmp_path / path).read_bytes() == (FOLDER / path).read_bytes(), path
