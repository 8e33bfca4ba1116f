from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from melete.cli.amp import run
from melete.errors import InvalidInput, MissingFile
from melete.packs import scan, validation
from melete.packs.findings import Severity
from melete.packs.manifest import load_manifest
from melete.packs.tree import PackTree, load_tree
from melete.packs.validation import Report, validate, validate_folder

from .making import (
    AGENTS,
    PRINCIPLES,
    PRINCIPLES_V3,
    VOICE,
    make_files,
    make_files_v3,
    make_manifest,
    write_files,
    write_pack,
)

PATH = "memory/operating-principles.md"
Found = list[tuple[str, str, int | None, str | None]]


def check(tmp_path: Path, files: dict[str, Any] | None = None, *, strict: bool = False, **changes: Any) -> Report:
    return validate_folder(write_pack(tmp_path, files, **changes), strict=strict)


def brief(report: Report) -> Found:
    return [(finding.rule, finding.file, finding.line, finding.unit) for finding in report.findings]


def principles(*blocks: str, counts: dict[str, int] | None = None, **members: str) -> dict[str, Any]:
    """The file of principles with these primitives, that are counted as they are unless said otherwise."""
    found = {"goal": 0, "claim": 0, "directive": 0, "demonstration": 0}
    for block in blocks:
        for kind in found:
            found[kind] += block.startswith((f"[{kind}", f"[{kind[:4]} " if kind == "demonstration" else "?"))
    head = {"type": "cluster", "applies_to": "every task", "source": "self", **members}
    text = "---\n" + "".join(f"{name}: {value}\n" for name, value in head.items() if value)
    text += "primitive_counts:\n" + "".join(f"  {kind}: {n}\n" for kind, n in (counts or found).items()) + "---\n\n"
    return {PATH: text + "\n".join(f"{block}\n" for block in blocks)}


def check_blocks(tmp_path: Path, *blocks: str, strict: bool = False) -> Report:
    """The report on a pack with one file of these primitives, without what is said of counts in the manifest."""
    files = {
        **principles(*blocks),
        "memory/copy-voice.md": None,
        "agents.md": "## Always load\n- operating-principles.md\n",
    }
    report = check(tmp_path, files, strict=strict, capability_files=["operating-principles.md"], primitive_counts={})
    return report._replace(findings=tuple(one for one in report.findings if one.file == PATH))


# Good packs


@pytest.mark.parametrize("strict", [False, True])
def test_good_pack_passes(tmp_path: Path, strict: bool) -> None:
    report = check(tmp_path, strict=strict)
    assert report == Report((), passed=5, failed=0, ambiguous=0, name="small-pack")
    assert report.ok
    assert report.to_text() == (
        "PASS: 5 primitives valid\n"
        "FAIL: 0 primitives failed validation\n"
        "WARN: 0 ambiguous units still unresolved \u2014 awaiting human review\n"
    )


@pytest.mark.parametrize("strict", [False, True])
def test_good_pack_of_v03_passes(tmp_path: Path, strict: bool) -> None:
    report = validate_folder(write_files(tmp_path, make_files_v3()), strict=strict)
    assert report == Report((), passed=2, failed=0, ambiguous=0, name="small-pack")


def test_line_ends_of_either_kind_pass(tmp_path: Path) -> None:
    crlf = {path: content.replace(b"\n", b"\r\n") for path, content in make_files().items()}
    assert validate_folder(write_files(tmp_path, crlf), strict=True).findings == ()


def test_manifest_that_is_loaded_already_is_taken(tmp_path: Path) -> None:
    tree = load_tree(write_pack(tmp_path))
    assert validate(tree, load_manifest(tree)) == validate(tree)


# Primitives


@pytest.mark.parametrize(
    ("block", "rule", "message"),
    [
        (
            "[directive permanent, must, org] In x, never y.",
            "facet-position",
            "expected force at position 1 for directive",
        ),
        ("[click here](http://x)", "unknown-type", "unknown type click"),
        ("[demo] text", "facet-position", "expected valence at position 1 for demonstration, got nothing"),
        ("[demo positive] {\nbody", "brace-unterminated", ""),
        ("[demo positive] {\n\n}", "content-missing", ""),
        ("[claim]", "content-missing", ""),
        ("[claim] it is\nwrapped", "continuation", ""),
        ("[claim] sk-abcdefghijklmnopqrstuvwx is it.", "credential", ""),
        ("[claim] it is\n  > token = abcdefghij0123456789", "credential", ""),
        ("[demo positive] {\na\n\nAKIAIOSFODNN7EXAMPLE\n}", "credential", ""),
        ("[claim] it is <!-- amp:end -->", "amp-marker", ""),
    ],
)
def test_wrong_primitive_fails_and_those_beside_it_pass(tmp_path: Path, block: str, rule: str, message: str) -> None:
    report = check_blocks(tmp_path, "[claim] It is so.", block)
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.unit) == (rule, Severity.ERROR, f"{PATH}#2")
    assert message in finding.message
    assert (report.passed, report.failed, report.ok) == (1, 1, False)
    assert finding.line is not None
    assert 13 <= finding.line <= 17


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("[goal] In x, the goal is to y.", "[goal] Do y."),
        ("[goal] OPTIMIZE x over y.", "[goal] Prefer x over y."),
        ("[goal] Default cadence: weekly.", "[goal] Weekly."),
        ("[claim] The newsletter is weekly.", "[claim] This thing was weekly."),
        ("[claim] It HAS readers.", "[claim] Is weekly."),
        ("[claim] What it (mostly) is", "[claim] Chas and Iris"),
        ("[directive] In all copy, never shout.", "[directive] Never shout."),
        ("[directive] When unsure, PREFER silence.", "[directive] When unsure, be silent."),
        ("[directive] Shout when you must, always twice.", "[directive] Always shout when you must."),
        ("[directive] in copy, always be kind.", "[directive] Begin kindly, always."),
    ],
)
def test_wording_is_a_warning_and_an_error_when_strict(tmp_path: Path, good: str, bad: str) -> None:
    assert check_blocks(tmp_path, good, strict=True).findings == ()
    report = check_blocks(tmp_path, good, bad)
    assert [(one.rule, one.severity, one.unit) for one in report.findings] == [
        ("wording", Severity.WARNING, f"{PATH}#2")
    ]
    assert (report.ok, report.passed, report.failed, report.ambiguous) == (True, 2, 0, 1)
    strict = check_blocks(tmp_path, good, bad, strict=True)
    assert [(one.rule, one.severity) for one in strict.findings] == [("wording", Severity.ERROR)]
    assert (strict.ok, strict.passed, strict.failed, strict.ambiguous) == (False, 1, 1, 0)


def test_examples_of_the_specification_are_valid(tmp_path: Path) -> None:
    report = check_blocks(
        tmp_path,
        "[goal should, project, permanent] Optimize for virality over polish on every content decision.",
        "[claim permanent] Arkzero was founded in 2026 as a one-person AI company.",
        "[directive must, org, permanent] In all copy, never use em dashes.\n  > Org-wide ban on AI-cliche patterns.",
        "[directive must, org, permanent] In Reddit posts, lead with findings or value, not product description.",
        '[demo negative, illustrates: em-dash-ban] {\n  Original: "x"\n}\n  > Em-dash version reads as AI-slop.',
    )
    assert (report.ok, report.passed, report.failed, report.ambiguous) == (True, 5, 0, 2)


def test_unit_with_two_errors_fails_once(tmp_path: Path) -> None:
    report = check_blocks(tmp_path, "[claim x] key = abcdefghij0123456789", "[claim] It is so.")
    assert sorted(one.rule for one in report.findings) == ["credential", "facet-position"]
    assert (report.passed, report.failed) == (1, 1)


def test_prose_is_a_warning_and_an_error_when_strict(tmp_path: Path) -> None:
    files = {PATH: PRINCIPLES.replace("\n[goal", "\n# Principles\n\n[goal")}
    assert brief(check(tmp_path, files)) == [("stray-text", PATH, 10, None)]
    assert check(tmp_path, files).ok
    assert not check(tmp_path, files, strict=True).ok


def test_credential_in_prose_belongs_to_no_primitive(tmp_path: Path) -> None:
    files = {PATH: PRINCIPLES + "\nkey = abcdefghij0123456789\n"}
    report = check(tmp_path, files)
    assert ("credential", PATH, 15, None) in brief(report)
    assert (report.passed, report.failed, report.ok) == (5, 0, False)


def test_hidden_text_is_a_warning_with_line_code_point_and_primitive(tmp_path: Path) -> None:
    hidden = "".join(chr(0xE0000 + ord(one)) for one in "rm -rf")
    report = check_blocks(tmp_path, "[directive must] In all copy, never shout." + hidden)
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.line, finding.unit) == (
        "hidden-text",
        Severity.WARNING,
        12,
        f"{PATH}#1",
    )
    assert "U+E0072" in finding.message
    assert report.ambiguous == 1
    assert not check_blocks(tmp_path, "[directive must] In all copy, never shout." + hidden, strict=True).ok


def test_citation_needs_an_entry_where_there_is_a_legend(tmp_path: Path) -> None:
    files = {"memory/copy-voice.md": VOICE.replace("> [Guide 3]", "> [Guide 4 \u2014 verbatim]")}
    report = check(tmp_path, files)
    assert brief(report) == [("citation", "memory/copy-voice.md", 14, "memory/copy-voice.md#1")]
    assert "Guide 4" in report.findings[0].message
    assert report.ok
    without = VOICE.replace("sources:\n  Guide 3: House guide, third edition\n    https://example.org/guide\n\n", "")
    assert check(tmp_path, {"memory/copy-voice.md": without}, strict=True).findings == ()


# Frontmatter, counts


@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [
        ("type: cluster\n", "", "cluster-type", None),
        ("type: cluster", "type: pack", "cluster-type", 2),
        ("applies_to: every task\n", "", "cluster-applies-to", None),
        ("applies_to: every task", "applies_to: ''", "cluster-applies-to", 3),
        ("applies_to: every task", "applies_to: [a]", "cluster-applies-to", 3),
        ("source: self\n", "", "cluster-source", None),
        ("source: self", "source: elsewhere", "cluster-source", 4),
        ("source: self", "source: [self]", "cluster-source", 4),
        ("  goal: 1", "  goal: 2", "primitive-counts", 5),
        ("  goal: 1\n", "", "primitive-counts", 5),
        ("  goal: 1", "  goal: one", "primitive-counts", 5),
        ("  goal: 1", "  goal: 1\n  demo: 0", "primitive-counts", 5),
        ("  goal: 1", "  goal: 1\n  claim: 1", "primitive-counts", 5),
        ("source: self", "source: self\nsource: self", "frontmatter", 5),
        ("source: self", "source: *self", "frontmatter", 4),
        ("---\ntype", "type", "frontmatter", 1),
    ],
)
def test_wrong_frontmatter_is_an_error_at_its_line(
    tmp_path: Path, old: str, new: str, rule: str, line: int | None
) -> None:
    report = check(tmp_path, {PATH: PRINCIPLES.replace(old, new, 1)})
    errors = [(one.rule, one.file, one.line) for one in report.findings if one.is_error]
    assert errors == [(rule, PATH, line)]


def test_counts_that_are_not_there_are_a_warning(tmp_path: Path) -> None:
    text = PRINCIPLES.replace("primitive_counts:\n  goal: 1\n  directive: 1\n", "")
    report = check(tmp_path, {PATH: text}, primitive_counts=...)
    assert brief(report) == [("primitive-counts", PATH, None, None), ("primitive-counts", "manifest.json", None, None)]
    assert report.ok


@pytest.mark.parametrize("origin", ["self", "imported", "inferred"])
def test_source_is_one_of_three(tmp_path: Path, origin: str) -> None:
    assert check(tmp_path, {PATH: PRINCIPLES.replace("source: self", f"source: {origin}")}, strict=True).ok


@pytest.mark.parametrize(
    "counts",
    [
        {"goal": 1, "claim": 1, "directive": 1, "demonstration": 1},
        {"goal": 2, "claim": 1, "directive": 1, "demonstration": 2},
        {"claim": 1, "directive": 1, "demonstration": 2},
    ],
)
def test_counts_of_the_manifest_are_those_of_all_files(tmp_path: Path, counts: dict[str, int]) -> None:
    report = check(tmp_path, primitive_counts=counts)
    assert [(one.rule, one.file) for one in report.findings] == [("primitive-counts", "manifest.json")]
    assert report.findings[0].line is not None
    assert not report.ok


def test_counts_are_not_judged_where_a_primitive_is_wrong(tmp_path: Path) -> None:
    report = check(tmp_path, {PATH: PRINCIPLES.replace("[goal should", "[goal shall")})
    assert [one.rule for one in report.findings] == ["facet-position"]


def test_file_without_primitives_is_a_warning(tmp_path: Path) -> None:
    report = check(tmp_path, principles(), primitive_counts={"claim": 1, "demonstration": 2})
    assert brief(report) == [("no-primitives", PATH, None, None)]
    assert report.ok


# Files, routing, manifest


@pytest.mark.parametrize(
    ("files", "changes", "rule", "text"),
    [
        ({"manifest.json": None}, {}, "gate-1", "Missing manifest.json"),
        ({"manifest.json": "{"}, {}, "gate-2", "manifest.json is not valid JSON"),
        ({}, {"layout": "flat"}, "gate-3", "Pack layout is 'flat', expected 'semantic-cluster'"),
        ({"agents.md": None}, {}, "gate-4", "Missing agents.md"),
        ({"memory/copy-voice.md": None}, {}, "gate-5", "Missing capability file: memory/copy-voice.md"),
        ({}, {"name": "../x"}, "manifest-name", "name must be"),
        ({}, {"primitive_format": "v9"}, "primitive-format", "primitive_format must be"),
    ],
)
def test_gate_that_does_not_open_is_the_one_finding(
    tmp_path: Path, files: dict[str, Any], changes: dict[str, Any], rule: str, text: str
) -> None:
    report = check(tmp_path, files, **changes)
    (finding,) = report.findings
    assert (finding.rule, finding.severity) == (rule, Severity.ERROR)
    assert finding.message.startswith(text)
    assert (report.passed, report.failed, report.ok) == (0, 0, False)
    assert finding.message in report.to_text()


def test_folder_that_no_pack_may_be_is_a_finding(tmp_path: Path) -> None:
    write_pack(tmp_path)
    (tmp_path / "memory/link.md").symlink_to("/etc/hostname")
    (finding,) = validate_folder(tmp_path).findings
    assert (finding.rule, finding.file) == ("symlink", "memory/link.md")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "gone", write_pack(tmp_path) / "manifest.json"):
        with pytest.raises(InvalidInput):
            validate_folder(folder)


def test_missing_operating_principles_are_an_error(tmp_path: Path) -> None:
    files = {PATH: None, "agents.md": "## Route by task type\n| Writing | copy-voice.md |\n"}
    report = check(
        tmp_path, files, capability_files=["copy-voice.md"], primitive_counts={"claim": 1, "demonstration": 2}
    )
    assert brief(report) == [("operating-principles", "manifest.json", None, None)]
    assert not report.ok


@pytest.mark.parametrize("path", ["memory/extra.md", "README.md", "memory/sub/x.md", ".DS_Store"])
def test_file_that_nothing_lists_is_noticed(tmp_path: Path, path: str) -> None:
    report = check(tmp_path, {path: "text\n"})
    assert brief(report) == [("unlisted-file", path, None, None)]
    assert report.ok
    assert not check(tmp_path, {path: "text\n"}, strict=True).ok


def test_file_that_nothing_lists_is_scanned_too(tmp_path: Path) -> None:
    report = check(tmp_path, {"memory/extra.md": "key = abcdefghij0123456789\n"})
    assert brief(report) == [
        ("unlisted-file", "memory/extra.md", None, None),
        ("credential", "memory/extra.md", 1, None),
    ]


def test_routing_is_compared_with_the_files(tmp_path: Path) -> None:
    report = check(tmp_path, {"agents.md": AGENTS + "| Scripts | gone.md |\n"})
    assert brief(report) == [("routing-missing-file", "agents.md", 11, None)]
    assert not report.ok


def test_marker_in_agents_md_is_an_error(tmp_path: Path) -> None:
    report = check(tmp_path, {"agents.md": AGENTS + "\n<!-- amp:end @local/small-pack -->\n"})
    assert brief(report) == [("amp-marker", "agents.md", 12, None)]
    assert not report.ok


@pytest.mark.parametrize(("path", "error"), [(PATH, True), ("agents.md", True), ("memory/extra.md", False)])
def test_file_that_is_not_text_is_an_error_where_it_is_needed(tmp_path: Path, path: str, error: bool) -> None:
    report = check(tmp_path, {path: b"\xff\xfe\x00"})
    assert [one.severity for one in report.findings if one.rule == "not-text"] == [
        Severity.ERROR if error else Severity.WARNING
    ]
    assert report.ok != error


def test_file_beyond_the_limit_is_an_error_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "LARGEST", 2000)
    report = check(tmp_path, {PATH: PRINCIPLES + "\n" * 2000, "memory/extra.md": "\n" * 2001})
    assert [(one.rule, one.file, one.severity) for one in report.findings if one.rule == "too-large"] == [
        ("too-large", PATH, Severity.ERROR),
    ]
    assert scan.LARGEST > 2000


def test_file_beyond_the_limit_is_scanned_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "LARGEST", 2000)
    text = "\n" * 2001 + "sk-abcdefghijklmnopqrstuvwx"
    report = check(tmp_path, {PATH: PRINCIPLES + text, "memory/extra.md": text})
    assert [(one.file, one.line) for one in report.findings if one.rule == "credential"] == [
        ("memory/extra.md", 2002),
        (PATH, 2002 + PRINCIPLES.count("\n")),
    ]


def test_missing_title_is_an_error(tmp_path: Path) -> None:
    report = check(tmp_path, title=...)
    assert brief(report) == [("manifest-title", "manifest.json", None, None)]
    assert not report.ok


def test_faults_of_v03_are_told(tmp_path: Path) -> None:
    text = PRINCIPLES_V3.replace("force: should", "force: shall").replace(
        "Not sooner.", "Not sk-abcdefghijklmnopqrstuvwx."
    )
    report = validate_folder(write_files(tmp_path, make_files_v3({PATH: text})))
    assert brief(report) == [("facet-value", PATH, 9, f"{PATH}#1"), ("credential", PATH, 30, f"{PATH}#2")]
    assert (report.passed, report.failed) == (0, 2)


def test_counts_of_v03_are_compared(tmp_path: Path) -> None:
    report = validate_folder(write_files(tmp_path, make_files_v3({PATH: PRINCIPLES_V3.replace("goal: 1", "goal: 2")})))
    assert brief(report) == [("primitive-counts", PATH, 4, None)]


# The report


def test_report_names_unit_reason_rule_place_and_remedy(tmp_path: Path) -> None:
    report = check(
        tmp_path, {PATH: PRINCIPLES.replace("must, org, permanent", "permanent, must, org"), "README.md": "x"}
    )
    assert report.to_text() == (
        "PASS: 4 primitives valid\n"
        "FAIL: 1 primitives failed validation\n"
        f"  - {PATH}#2 \u2014 REASON: expected force at position 1 for directive, got permanent "
        f"(facet-position, {PATH} line 13); write the facets of a directive in this order, leaving out only from the "
        "right: force, scope, stability; force is one of must, should, may\n"
        "WARN: 0 ambiguous units still unresolved \u2014 awaiting human review\n"
        "  - README.md \u2014 REASON: neither agents.md nor one of capability_files (unlisted-file, README.md); "
        "list it if it is memory, or remove it\n"
    )
    assert json.loads(json.dumps(report.to_json()))["findings"][1]["rule"] == "facet-position"


def test_every_finding_has_a_rule_a_file_and_a_remedy(tmp_path: Path) -> None:
    files = {PATH: PRINCIPLES + "\nprose\n\n[x] y\n\n[claim] z\nkey = abcdefghij0123456789\n", "README.md": "\u200b"}
    changes: dict[str, Any] = {"title": ..., "agents": 7, "files": "x", "capability_files": ["operating-principles.md"]}
    report = check(tmp_path, {**files, "manifest.json": json.dumps(make_manifest(**changes))})
    assert len(report.findings) > 8
    for finding in report.findings:
        assert finding.rule.replace("-", "").isalnum()
        assert finding.file
        assert finding.message
        assert finding.remedy
    assert "abcdefghij" not in report.to_text() + json.dumps(report.to_json())


@pytest.mark.parametrize("name", ["legend", "braces", "prose", "doubtful"])
def test_quick_way_and_slow_way_give_one_report(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "legend": {},
        "braces": {PATH: PRINCIPLES.replace("[goal", "[demo mixed] {\n[claim] x\n\n}\n\n[goal")},
        "prose": {PATH: PRINCIPLES.replace("[goal", "# Title\n\n[goal")},
        "doubtful": {PATH: PRINCIPLES.replace("Optimize for", "Give").replace("In every answer, always", "Always")},
    }[name]
    quick = check(tmp_path, files)
    monkeypatch.setattr(validation, "look_quickly", lambda *_: None)
    assert validate_folder(tmp_path) == quick


SECRET = "sk-ABCDEFGHijklmnopqrstuvwx"


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (PATH, "should, project", SECRET),
        (PATH, "[goal should", f"[{SECRET}"),
        (PATH, "[goal should", f" [{SECRET}"),
        (PATH, "Optimize", f"{SECRET}"),
        (PATH, "  > Nobody", f"{SECRET} "),
        (PATH, "\n[goal", f"\n{SECRET}\n\n[goal"),
        (PATH, "source: self", f"source: {SECRET}"),
        (PATH, "source: self", f"source: *{SECRET}"),
        (PATH, "source: self", f"source: &{SECRET} a"),
        (PATH, "source: self", f"source: !{SECRET} a"),
        (PATH, "type: cluster", f"type: {SECRET}"),
        (PATH, "  goal: 1", f"  goal: {SECRET}"),
        (PATH, "  goal: 1", f"  {SECRET}: 1"),
        (PATH, "  goal: 1", f"  {SECRET}: 1\n  {SECRET}: 1"),
        ("memory/copy-voice.md", "[Guide 3]", f"[{SECRET}]"),
        ("memory/copy-voice.md", "  Guide 3", f"  {SECRET}: a\n  {SECRET}"),
        ("memory/copy-voice.md", "illustrates: plain-words", f"illustrates: x, {SECRET}"),
        ("agents.md", "copy-voice.md", f"{SECRET}.md"),
        ("agents.md", "operating-principles.md", f"{SECRET}.md"),
        ("manifest.json", '"semantic-cluster"', f'"{SECRET}"'),
        ("manifest.json", '"small-pack"', f'"{SECRET}"'),
        ("manifest.json", '"copy-voice.md"', f'"{SECRET}"'),
        ("manifest.json", '"inline-tag-v0.4"', f'"{SECRET}"'),
        ("manifest.json", '"agents.md"', f'"{SECRET}"'),
        ("manifest.json", '"goal"', f'"{SECRET}": 1, "{SECRET}"'),
        ("manifest.json", "{", f'{{"{SECRET}": 1e999, '),
        ("manifest.json", "{", f"{SECRET}"),
    ],
)
def test_no_report_shows_a_secret_wherever_it_stands(tmp_path: Path, path: str, old: str, new: str) -> None:
    text = make_files()[path].decode()
    assert old in text
    report = check(tmp_path, {path: text.replace(old, new, 1)})
    assert not report.ok
    assert "ABCDEFGH" not in report.to_text() + json.dumps(report.to_json())


def test_no_report_shows_a_secret_that_is_a_name(tmp_path: Path) -> None:
    report = check(tmp_path, {f"memory/{SECRET}.md": "\u200b", f"{SECRET}/x": b"\xff"})
    assert not report.ok
    assert "ABCDEFGH" not in report.to_text() + json.dumps(report.to_json())


# The command


def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], *flags: str, **changes: Any) -> tuple[int, str]:
    code = run(["validate", str(write_pack(tmp_path, **changes)), *flags])
    captured = capsys.readouterr()
    return code, captured.out


def test_command_prints_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = command(tmp_path, capsys)
    assert code == 0
    assert out == check(tmp_path).to_text()


def test_command_ends_with_1_where_anything_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path, capsys, title=...)[0] == 1
    files = {"README.md": "x"}
    assert command(tmp_path, capsys, files=files)[0] == 0
    assert command(tmp_path, capsys, "--strict", files=files)[0] == 1


def test_command_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = command(tmp_path, capsys, "--json", title=...)
    said = json.loads(out)
    assert (code, said["ok"], said["name"], said["passed"]) == (1, False, "small-pack", 5)
    assert [finding["rule"] for finding in said["findings"]] == ["manifest-title"]
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["validate"], ["validate", "a", "b"], ["validate", "a", "--stict"], ["validate", "gone"]]
)
def test_command_ends_with_2_for_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_command_ends_with_3_where_a_file_went_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_bytes(tree: PackTree, path: str, limit: int) -> bytes:
        raise MissingFile(path, "it cannot be read")

    monkeypatch.setattr(PackTree, "read_bytes", read_bytes)
    assert run(["validate", str(write_pack(tmp_path))]) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_command_ends_with_3_where_it_may_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (write_pack(tmp_path) / "agents.md").chmod(0)
    assert run(["validate", str(tmp_path)]) == 3
