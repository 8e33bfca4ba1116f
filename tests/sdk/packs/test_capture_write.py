from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli import amp
from melete.errors import InvalidInput, StoreNotWritten
from melete.packs import folder as folders
from melete.packs.capture import capture
from melete.packs.capture.distill import Judged, Outcome, distill
from melete.packs.capture.outline import read_outline
from melete.packs.capture.review import Settings
from melete.packs.capture.shapes import Shape
from melete.packs.capture.sources import LARGEST_SOURCE, Source, load_sources
from melete.packs.capture.write import build_pack, check_settings, write_pack
from melete.packs.errors import ContentRefused, NothingCaptured
from melete.packs.grammar import parse_cluster
from melete.packs.tree import load_tree
from melete.packs.validation import validate

SOURCES = Path(__file__).parent / "sources" / "knowledge-base"
SETTINGS = Settings("tidemark-ways", "Tidemark ways", "self", "Mira", "2026-04-21", 1)
SECRET = "re_" + "Ab3dEf6hIj9kLm2nOp5qRs8t"


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, away from everything."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    return place


@pytest.fixture
def judged() -> tuple[Judged, ...]:
    return capture([str(SOURCES)], author="Mira").judged


def make_files() -> dict[str, bytes]:
    found = capture([str(SOURCES)], author="Mira")
    return build_pack(SETTINGS, found.sources, found.judged)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = amp.run(["capture", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What a pack holds


def test_our_own_knowledge_base_becomes_a_pack_that_validates_even_strictly(workplace: Path) -> None:
    write_pack("pack", make_files())
    report = validate(load_tree("pack"), strict=True)
    assert report.findings == ()
    assert report.passed == 17


def test_each_unit_is_judged_as_its_words_and_place_say(judged: tuple[Judged, ...]) -> None:
    found = {one.unit.text.split("\n")[0]: (one.outcome, one.proposal.type, one.proposal.file) for one in judged}
    kept = Outcome.KEPT
    assert found["In all headings, never use the brand's blue background with white font."] == (
        kept,
        "directive",
        "copy-voice.md",
    )
    assert found["decided: Tidemark is free for sailing schools"] == (kept, "claim", "product-context.md")
    assert found['"No signal, no problem."'] == (kept, "demonstration", "demonstrations.md")
    assert found["Optimize reach over retention until the end of June."] == (
        kept,
        "goal",
        "operating-principles.md",
    )
    assert found["When a mail key is rotated, always revoke the old API key within the hour."] == (
        kept,
        "directive",
        "ops-tools.md",
    )
    assert found["corrected: in any copy never use em dashes, use a full stop"][0] is Outcome.DUPLICATE
    assert found["Ran /social-post pipeline for the spring release"][0] is Outcome.ACTION_LOG
    assert found["Warm, never cute"][0] is Outcome.AMBIGUOUS


def test_words_of_the_author_in_a_narration_are_a_unit_of_their_own(judged: tuple[Judged, ...]) -> None:
    quotes = [one.unit.text for one in judged if one.unit.quoted]
    assert quotes == [
        "In release notes, always name the boat it was tested on.",
        "When a user writes in anger, prefer a phone call over a mail.",
    ]
    without = capture([str(SOURCES)]).judged
    assert not [one for one in without if one.unit.quoted]


def test_counts_of_manifest_and_clusters_are_those_of_the_units(judged: tuple[Judged, ...]) -> None:
    files = make_files()
    manifest = json.loads(files["manifest.json"])
    kept = [one.proposal.type for one in judged if one.outcome is Outcome.KEPT]
    assert manifest["primitive_counts"] == {
        **{kind: kept.count(kind) for kind in ("goal", "claim", "directive", "demonstration")},
        "dropped_action_log": 6,
        "dropped_duplicate": 1,
    }
    for name in manifest["capability_files"]:
        cluster = parse_cluster(files[f"memory/{name}"].decode(), name)
        assert cluster.frontmatter is not None
        counted = {kind: sum(unit.type == kind for unit in cluster.units) for kind in ("directive", "goal", "claim")}
        assert {kind: cluster.frontmatter["primitive_counts"][kind] for kind in counted} == counted


def test_manifest_has_the_members_of_the_format_in_its_order() -> None:
    manifest = json.loads(make_files()["manifest.json"])
    assert list(manifest) == [
        *("name", "title", "version", "layout", "primitive_format", "created", "sources", "agents_file", "agents"),
        *("capability_files", "primitive_counts", "signed", "signature"),
    ]
    assert manifest["version"] == {"number": 1}
    assert manifest["primitive_format"] == "inline-tag-v0.4"
    assert (manifest["signed"], manifest["signature"]) == (False, "")
    assert all(not source.startswith("/") for source in manifest["sources"])


def test_routing_names_only_files_that_are_there(workplace: Path) -> None:
    (workplace / "philosophy.md").write_text("**Optimize calm over speed.** Yes.\n\n**Kind.** Yes.\n")
    found = capture(["philosophy.md"])
    files = build_pack(SETTINGS, found.sources, found.judged)
    assert sorted(files) == ["agents.md", "manifest.json", "memory/operating-principles.md"]
    assert files["agents.md"].decode().count(".md") == 1
    assert "| Load |" not in files["agents.md"].decode()


def test_operating_principles_are_there_even_if_empty(workplace: Path) -> None:
    (workplace / "reference_a.md").write_text("Tidemark is a notebook.\n")
    found = capture(["reference_a.md"])
    write_pack("pack", build_pack(SETTINGS, found.sources, found.judged))
    report = validate(load_tree("pack"))
    assert report.ok, report.to_text()
    assert [finding.rule for finding in report.findings] == ["no-primitives"]
    assert names_in(workplace / "pack" / "memory") == ["operating-principles.md", "product-context.md"]


def test_a_cluster_with_a_visual_rule_says_so() -> None:
    files = make_files()
    assert "\nsubtype: visual-brand\n" in files["memory/copy-voice.md"].decode()
    assert "subtype" not in files["memory/ops-tools.md"].decode()


def test_the_same_sources_give_the_same_bytes() -> None:
    assert make_files() == make_files()


def test_the_same_words_twice_are_written_once(workplace: Path) -> None:
    for name in ("reference_a.md", "reference_b.md"):
        (workplace / name).write_text("Tidemark is a notebook.\n")
    found = capture(["reference_a.md", "reference_b.md"])
    assert [one.outcome for one in found.judged] == [Outcome.KEPT, Outcome.DUPLICATE]
    assert "reference_a.md line 1" in found.judged[1].reason


def test_nothing_to_write_is_an_error() -> None:
    with pytest.raises(NothingCaptured):
        build_pack(SETTINGS, (), ())


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
paragraph = st.one_of(
    words,
    words.map("In copy, never {}".format),
    words.map("Optimize {} over sleep".format),
    words.map("Tidemark is {}".format),
    st.sampled_from(
        ["Why: x", "How to apply: In tone, always y", "}", "{", "[claim] x", "---", "  > x", "```", "<!--", "-->"]
    ),
)


@given(st.lists(paragraph, max_size=8), st.sampled_from(list(Shape)), st.booleans())
def test_whatever_a_source_holds_the_pack_validates_or_there_is_none(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], shape: Shape, bullets: bool
) -> None:
    heads = {
        Shape.LOG: "### 2026-04-18\n",
        Shape.PRIORITIES: "## Open bets\n",
        Shape.MARKETING_MASTER: "## Approved Examples\n",
    }
    text = heads.get(shape, "") + ("\n- " if bullets else "\n\n").join(["", *parts])
    sources = (Source("notes.md", read_outline(text), "0" * 64, shape, ""),)
    judged = distill(sources, "Mira")
    assert distill(sources, "Mira") == judged
    try:
        files = build_pack(SETTINGS, sources, judged)
    except NothingCaptured:
        return
    folder = tmp_path_factory.mktemp("any") / "pack"
    write_pack(str(folder), files)
    report = validate(load_tree(folder))
    assert {finding.rule for finding in report.findings} <= {"no-primitives"}, report.to_text()
    assert report.ok
    assert report.passed == sum(one.outcome is Outcome.KEPT for one in judged)


# Credentials and hidden text


@pytest.mark.parametrize(
    "text",
    [
        f"The mail key is {SECRET} and stays.",
        f"The mail key is set.\n\nkey = {'a1' * 12}",
        "The **sk-**abcdefghijklmnopqrstuvwxyz0123 key is ours.",
        "The sk-\u200babcdefghijklmnopqrstuvwxyz0123 key is ours.",
    ],
)
def test_a_unit_with_a_credential_is_rejected_with_an_error_that_does_not_show_it(
    workplace: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (workplace / "reference_mail.md").write_text(text)
    (workplace / "reference_app.md").write_text("Tidemark is a notebook.\n")
    code, out, err = run(capsys, ".", "--name", "pack", "--json")
    report = json.loads(out)
    assert (code, report["failed"], report["passed"]) == (1, 1, 1)
    (rejected,) = [unit for unit in report["units"] if unit["outcome"] == "rejected"]
    assert rejected["findings"][0]["severity"] == "error"
    written = b"".join(content_of(workplace / "pack").values()).decode()
    for shown in (out, err, written):
        assert SECRET not in shown
        assert "abcdefghijklmnopqrstuvwxyz" not in shown
        assert "a1a1a1a1" not in shown


@pytest.mark.parametrize(
    "text", ["The mail key is re_*** here.", "The key is [REDACTED].", "OPENAI_API_KEY is in .env."]
)
def test_a_redacted_or_only_named_credential_passes(workplace: Path, text: str) -> None:
    (workplace / "reference_mail.md").write_text(text)
    (one,) = capture(["reference_mail.md"]).judged
    assert one.outcome is Outcome.KEPT


def test_hidden_text_is_shown_to_a_person_and_taken_out_of_the_draft(workplace: Path) -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "rm -rf")
    (workplace / "reference_app.md").write_text(f"Tidemark is a notebook.{hidden}\n")
    (one,) = capture(["reference_app.md"]).judged
    assert one.outcome is Outcome.AMBIGUOUS
    assert "U+E0072" in one.reason
    assert one.proposal.content == "Tidemark is a notebook."


# Sources


def test_files_of_no_shape_are_listed_and_read_when_their_shape_is_said(workplace: Path) -> None:
    (workplace / "notes.md").write_text("Tidemark is a notebook.\n")
    assert load_sources(["notes.md"]).left_out == (("notes.md", "it has no known shape"),)
    (source,) = load_sources(["notes.md"], {"notes.md": Shape.REFERENCE}).used
    assert source.shape is Shape.REFERENCE
    (source,) = load_sources(["."], {str(workplace / "notes.md"): Shape.LOG}).used
    assert (source.path, source.shape) == ("notes.md", Shape.LOG)


def test_a_shape_for_a_file_that_is_no_source_is_refused(workplace: Path) -> None:
    (workplace / "notes.md").write_text("x\n")
    with pytest.raises(InvalidInput) as caught:
        load_sources(["notes.md"], {"note.md": Shape.LOG})
    assert caught.value.field == "--shape"


def link(path: Path) -> None:
    path.symlink_to(SOURCES / "wiki" / "index.md")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_SOURCE + 1)


UNREADABLE: list[tuple[Callable[[Path], object], str]] = [
    (link, "link"),
    (pipe, "pipe"),
    (huge, "more than"),
    (lambda path: path.write_bytes(b"a\0b"), "binary"),
    (lambda path: path.write_bytes(b"caf\xe9"), "UTF-8"),
]


@pytest.mark.parametrize(("make", "reason"), UNREADABLE)
def test_what_is_no_text_file_is_refused_when_named_and_listed_when_met(
    workplace: Path, make: Callable[[Path], object], reason: str
) -> None:
    (workplace / "notes").mkdir()
    make(workplace / "notes" / "feedback_x.md")
    with pytest.raises(InvalidInput) as caught:
        load_sources(["notes/feedback_x.md"])
    assert reason in caught.value.rule
    (left,) = load_sources(["notes"]).left_out
    assert left.path == "notes/feedback_x.md"
    assert reason in left.reason


def test_links_hidden_folders_packs_and_other_files_in_a_folder_are_listed(workplace: Path) -> None:
    notes = workplace / "notes"
    (notes / ".git").mkdir(parents=True)
    (notes / ".git" / "feedback_x.md").write_text("In copy, never y.\n")
    (notes / "photo.png").write_bytes(b"\x89PNG")
    (notes / "elsewhere").symlink_to(SOURCES)
    write_pack(str(notes / "pack"), make_files())
    sources = load_sources(["notes"])
    assert sources.used == ()
    assert [(left.path, left.reason.split(",")[0]) for left in sources.left_out] == [
        ("notes/.git/", "it is a hidden folder"),
        ("notes/elsewhere", "it is a link"),
        ("notes/pack/", "it is an AMP pack"),
        ("notes/photo.png", "its name does not end in .md"),
    ]


@pytest.mark.parametrize("argument", ["", "missing.md", "a\0b", "linked", "linked/"])
def test_an_argument_that_is_no_file_or_folder_is_refused(workplace: Path, argument: str) -> None:
    (workplace / "linked").symlink_to(SOURCES)
    with pytest.raises(InvalidInput) as caught:
        load_sources([argument])
    assert caught.value.field == "source"


def test_a_file_given_twice_is_read_once(workplace: Path) -> None:
    (workplace / "notes").mkdir()
    (workplace / "notes" / "feedback_x.md").write_text("In copy, never y.\n")
    assert len(load_sources(["notes", "notes/feedback_x.md", "./notes"]).used) == 1


def test_names_in_a_pack_tell_nothing_of_where_its_author_keeps_things(workplace: Path) -> None:
    notes = workplace / "private" / "notes"
    notes.mkdir(parents=True)
    (notes / "feedback_x.md").write_text("In copy, never y.\n")
    assert [source.path for source in load_sources([str(notes)]).used] == ["notes/feedback_x.md"]
    assert [source.path for source in load_sources(["private/notes"]).used] == ["private/notes/feedback_x.md"]
    os.chdir(notes)
    assert [source.path for source in load_sources(["."]).used] == ["feedback_x.md"]
    assert [source.path for source in load_sources(["../notes"]).used] == ["notes/feedback_x.md"]


def test_two_files_of_one_name_are_refused(workplace: Path) -> None:
    for name in ("one", "two"):
        (workplace / name).mkdir()
        (workplace / name / "feedback_x.md").write_text(f"In copy, never {name}.\n")
    with pytest.raises(InvalidInput) as caught:
        load_sources([str(workplace / "one" / "feedback_x.md"), str(workplace / "two" / "feedback_x.md")])
    assert "give a folder that holds both" in caught.value.rule


# Writing


def test_an_existing_folder_is_never_touched_without_force(workplace: Path) -> None:
    (workplace / "pack").mkdir()
    with pytest.raises(InvalidInput) as caught:
        write_pack("pack", make_files())
    assert caught.value.field == "--out"
    assert list((workplace / "pack").iterdir()) == []


def test_with_force_an_earlier_pack_is_replaced_whole(workplace: Path) -> None:
    write_pack("pack", make_files())
    (workplace / "reference_a.md").write_text("Tidemark is a notebook.\n")
    found = capture(["reference_a.md"])
    files = build_pack(SETTINGS, found.sources, found.judged)
    write_pack("pack", files, force=True)
    assert content_of(workplace / "pack") == files
    assert names_in(workplace) == ["pack", "reference_a.md"]


@pytest.mark.parametrize("extra", ["notes.txt", "memory/mine.md", "more/file.md", "memory/deep/file.md"])
def test_with_force_nothing_is_lost_that_capture_did_not_write(workplace: Path, extra: str) -> None:
    write_pack("pack", make_files())
    path = workplace / "pack" / extra
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = content_of(workplace / "pack")
    with pytest.raises(InvalidInput) as caught:
        write_pack("pack", make_files(), force=True)
    assert extra.split("/")[0] in caught.value.rule
    assert content_of(workplace / "pack") == before


@pytest.mark.parametrize("kind", ["link", "file"])
def test_with_force_a_link_or_a_file_stays(workplace: Path, kind: str) -> None:
    (workplace / "elsewhere").mkdir()
    if kind == "link":
        (workplace / "pack").symlink_to(workplace / "elsewhere")
    else:
        (workplace / "pack").write_text("mine")
    with pytest.raises(InvalidInput):
        write_pack("pack", make_files(), force=True)
    assert list((workplace / "elsewhere").iterdir()) == []


def test_a_full_disk_leaves_nothing_and_takes_nothing(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pack("pack", make_files())
    before = content_of(workplace / "pack")
    written: list[int] = []

    def fail(handle: int, content: bytes) -> None:
        written.append(handle)
        if len(written) > 2:
            raise OSError(28, "No space left on device")
        os.write(handle, content)

    monkeypatch.setattr(folders, "write_all", fail)
    for out, force in (("pack", True), ("other", False)):
        written.clear()
        with pytest.raises(StoreNotWritten):
            write_pack(out, make_files(), force=force)
    assert content_of(workplace / "pack") == before
    assert names_in(workplace) == ["pack"]


def test_a_rename_that_fails_puts_the_earlier_pack_back(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pack("pack", make_files())
    before = content_of(workplace / "pack")
    rename = folders.Folder.rename
    calls: list[str] = []

    def fail(self: folders.Folder, path: str, name: str) -> None:
        calls.append(name)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        rename(self, path, name)

    monkeypatch.setattr(folders.Folder, "rename", fail)
    with pytest.raises(StoreNotWritten):
        write_pack("pack", make_files(), force=True)
    assert content_of(workplace / "pack") == before
    assert names_in(workplace) == ["pack"]


def test_a_pack_that_was_moved_aside_by_a_killed_run_comes_back(workplace: Path) -> None:
    write_pack("pack", make_files())
    (workplace / "pack").rename(workplace / ".pack.amp-01234567.old")
    with pytest.raises(InvalidInput):
        write_pack("pack", make_files())
    assert names_in(workplace) == ["pack"]


def test_what_does_not_validate_is_not_published(workplace: Path) -> None:
    files = {**make_files(), "agents.md": b"# AMP Routing\n\n## Always load\n- gone.md - x\n"}
    with pytest.raises(ContentRefused):
        write_pack("pack", files)
    assert names_in(workplace) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "../x"}, "name"),
        ({"name": "Tidemark"}, "name"),
        ({"name": "x\n"}, "name"),
        ({"title": ""}, "title"),
        ({"title": "a\nb"}, "title"),
        ({"title": " a"}, "title"),
        ({"title": "a\u202eb"}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"title": f"The {SECRET} pack"}, "title"),
        ({"source": "stolen"}, "source"),
        ({"created": "today"}, "created"),
        ({"created": "20260421"}, "created"),
        ({"created": "2026-02-30"}, "created"),
    ],
)
def test_settings_that_no_manifest_holds_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_settings(SETTINGS._replace(**change))
    assert field in caught.value.field.lower()
    assert SECRET not in str(caught.value)


# The command


def test_command_writes_a_pack_and_says_what_it_did(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, str(SOURCES), "--name", "tidemark-ways", "--author", "Mira", "--created", "2026-04-21")
    assert (code, err) == (0, "")
    assert (
        "PASS: 17 primitives valid\nFAIL: 0 primitives failed validation\nWARN: 14 ambiguous units still unresolved"
        in out
    )
    assert "dropped: 6 action-log, 1 duplicate, 0 by review" in out
    assert content_of(workplace / "tidemark-ways") == make_files() | {
        "manifest.json": make_files()["manifest.json"].replace(b"Tidemark ways", b"Tidemark Ways")
    }


def test_command_reports_every_unit_and_every_file_left_out_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, str(SOURCES), "--name", "p", "--author", "Mira", "--json")
    report = json.loads(out)
    assert code == 0
    assert len(report["units"]) == 17 + 14 + 6 + 1
    assert {one["path"].rpartition("/")[2] for one in report["leftOut"]} == {"index.md", "log.md", "onboarding.md"}
    assert report["written"] == {"pack": "p"}


def test_review_goes_out_and_comes_back(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(SOURCES), "--name", "tidemark-ways", "--title", "Tidemark ways", "--author", "Mira"]
    code, _, _ = run(capsys, *given, "--created", "2026-04-21", "--review", "r.yaml")
    assert code == 0
    assert names_in(workplace) == ["r.yaml"]
    text = (workplace / "r.yaml").read_text()
    facets = "    type: directive\n    facets: {force: must, scope: project, stability: permanent}\n"
    edited = text.replace(
        f"    decision: undecided\n{facets}    file: null\n    content: In captions,",
        f"    decision: keep\n{facets}    file: copy-voice.md\n    content: In captions,",
    )
    assert edited != text
    (workplace / "r.yaml").write_text(edited)
    code, out, _ = run(capsys, str(SOURCES), "--apply", "r.yaml", "--json")
    assert (code, json.loads(out)["passed"]) == (0, 18)
    assert (
        "In captions, always use the present tense." in (workplace / "tidemark-ways/memory/copy-voice.md").read_text()
    )
    assert validate(load_tree("tidemark-ways"), strict=True).ok


def test_a_review_that_may_hold_decisions_is_not_overwritten(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "r.yaml").write_text("mine")
    code, _, err = run(capsys, str(SOURCES), "--name", "p", "--review", "r.yaml")
    assert code == 2
    assert "may hold decisions" in err
    assert (workplace / "r.yaml").read_text() == "mine"
    assert run(capsys, str(SOURCES), "--name", "p", "--review", "fresh.yaml")[0] == 0
    assert run(capsys, str(SOURCES), "--name", "p", "--review", "fresh.yaml", "--force")[0] == 0


@pytest.mark.parametrize("text", ["mine", "format: something-else/1\n", "{}", "- a\n", "\udcff"])
def test_force_replaces_no_file_that_is_no_review(
    workplace: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    content = text.encode("utf-8", "surrogateescape")
    (workplace / "r.yaml").write_bytes(content)
    code, _, err = run(capsys, str(SOURCES), "--name", "p", "--review", "r.yaml", "--force")
    assert (code, err.startswith("amp: --review:")) == (2, True)
    assert (workplace / "r.yaml").read_bytes() == content


def test_force_replaces_no_source_and_no_link(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "notes.md").write_text("format: amp-review/1\n")
    code, _, err = run(capsys, "notes.md", "--name", "p", "--review", "notes.md", "--force")
    assert (code, "another file than the sources" in err) == (2, True)
    assert (workplace / "notes.md").read_text() == "format: amp-review/1\n"
    (workplace / "link.yaml").symlink_to("notes.md")
    assert run(capsys, "notes.md", "--name", "p", "--review", "link.yaml", "--force")[0] == 2
    assert (workplace / "link.yaml").is_symlink()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "other"}, "another name"),
        ({"signed": True}, "is signed"),
        ({"signature": "x"}, "is signed"),
        ({"files": []}, "not as capture writes it"),
    ],
)
def test_force_replaces_no_pack_that_capture_did_not_write(workplace: Path, changes: dict[str, Any], why: str) -> None:
    write_pack("pack", make_files())
    write_pack("pack", make_files(), force=True)
    path = workplace / "pack/manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    before = content_of(workplace)
    with pytest.raises(InvalidInput, match=why) as refused:
        write_pack("pack", make_files(), force=True)
    assert refused.value.field == "--out"
    assert content_of(workplace) == before


def test_command_says_that_nothing_is_settled(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "notes.md").write_text("Nothing.\n")
    code, out, err = run(capsys, "notes.md", "--name", "p")
    assert code == 1
    assert "left out: 1 files" in out
    assert "no pack was written" in err
    assert names_in(workplace) == ["notes.md"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["notes.md"],
        ["notes.md", "--name", "../x"],
        ["notes.md", "--name", "p", "--shape", "notes.md=poem"],
        ["notes.md", "--name", "p", "--source", "stolen"],
        ["notes.md", "--name", "p", "--pack-version", "0"],
        ["notes.md", "--name", "p", "--created", "soon"],
        ["notes.md", "--name", "p", "--apply", "missing.yaml"],
        ["notes.md", "--name", "p", "--apply", "notes.md"],
        ["notes.md", "--name", "p", "--nmae", "q"],
        ["missing.md", "--name", "p"],
    ],
)
def test_wrong_calls_are_usage_errors_and_write_nothing(
    workplace: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (workplace / "notes.md").write_text("Tidemark is a notebook.\n")
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "Traceback" not in err
    assert names_in(workplace) == ["notes.md"]


def test_an_outdated_review_exits_with_one_and_writes_nothing(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "reference_a.md").write_text("Tidemark is a notebook.\n")
    assert run(capsys, "reference_a.md", "--name", "p", "--review", "r.yaml")[0] == 0
    (workplace / "reference_a.md").write_text("Tidemark is a boat.\n")
    code, _, err = run(capsys, "reference_a.md", "--apply", "r.yaml")
    assert code == 1
    assert "outdated" in err
    assert not (workplace / "p").exists()
