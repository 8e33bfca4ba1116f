from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from melete.cli import amp
from melete.errors import InvalidInput, StoreBusy, StoreNotWritten
from melete.packs import folder as folders
from melete.packs.errors import MarkersDamaged, WikiRefused
from melete.packs.grammar import Unit
from melete.packs.keys import generate_key, load_private_key
from melete.packs.signing import sign_pack
from melete.packs.trust import TrustStore
from melete.packs.unpack.merge import (
    INDEX_HEADING,
    Origin,
    add_to_index,
    add_to_log,
    create_page,
    escape,
    find_links,
    find_sections,
    frame,
    is_ours,
    merge_page,
    render_body,
    title_of,
    update_frontmatter,
)
from melete.packs.unpack.plan import Plan, apply_plan, compute_plan, load_packs
from melete.packs.unpack.wiki import State, open_wiki
from sdk.packs.install_samples import make_pack
from sdk.packs.making import AGENTS, PRINCIPLES, PRINCIPLES_V3, VOICE

ORIGIN = Origin("notes", "local", "2026-04-21")
TODAY = "2026-04-22"
SECRET = "sk-" + "a1B2" * 8


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one pack installed, and a home with none."""
    place = tmp_path / "project"
    place.mkdir()
    (tmp_path / "home").mkdir()
    (place / "CLAUDE.md").write_text("# Rules\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMP_PUBLIC_KEY", raising=False)
    install(tmp_path, "small-pack", PRINCIPLES, VOICE)
    return place


def install(tmp_path: Path, slug: str, principles: str, voice: str, **members: Any) -> None:
    pack = tmp_path / "packs" / slug
    make_pack(
        pack,
        slug,
        {"agents.md": AGENTS, "memory/operating-principles.md": principles, "memory/copy-voice.md": voice},
        **{"capability_files": ["operating-principles.md", "copy-voice.md"], "primitive_counts": {}, **members},
    )
    assert amp.run(["install", "--from-path", str(pack), "--agent", "claude-code"]) == 0


def change_installed(project: Path, path: str, text: str) -> None:
    """Change a file of the installed pack, and what is written down about it."""
    (project / ".amp" / "small-pack" / path).write_text(text)
    place = project / ".amp" / ".meta" / "small-pack.json"
    record = json.loads(place.read_text())
    for file in record["files"]:
        if file["path"] == path:
            file["sha256"] = sha256(text.encode()).hexdigest()
    place.write_text(json.dumps(record))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = amp.run(["unpack", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pages(project: Path) -> Path:
    return project / "knowledge-base" / "wiki" / "pages"


def make_wiki(project: Path, **files: str) -> Path:
    wiki = project / "knowledge-base" / "wiki"
    (wiki / "pages").mkdir(parents=True)
    (wiki / "index.md").write_text("# Index\n\n- [[onboarding]]\n")
    for name, text in files.items():
        (wiki / "pages" / f"{name.replace('_', '-')}.md").write_text(text)
    return wiki


# States


def test_where_there_is_nothing_a_whole_knowledge_base_is_made(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--yes")
    assert (code, err) == (0, "")
    assert "state C" in out
    assert sorted(content_of(project / "knowledge-base")) == [
        "SCHEMA.md",
        "wiki/index.md",
        "wiki/log.md",
        "wiki/pages/copy-voice.md",
        "wiki/pages/operating-principles.md",
    ]


def test_where_there_is_a_knowledge_base_only_the_wiki_is_made(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "knowledge-base" / "raw").mkdir(parents=True)
    assert "state B" in run(capsys, "--yes")[1]
    assert not (project / "knowledge-base" / "SCHEMA.md").exists()
    assert (pages(project) / "copy-voice.md").exists()


def test_half_a_wiki_is_completed_and_what_is_there_stays(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wiki = project / "knowledge-base" / "wiki"
    wiki.mkdir(parents=True)
    (wiki / "index.md").write_text("# Mine\n")
    assert "state B" in run(capsys, "--yes")[1]
    assert (wiki / "index.md").read_text().startswith("# Mine\n")


def test_where_there_is_a_wiki_it_is_used(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_wiki(project)
    assert "state A" in run(capsys, "--yes")[1]


@pytest.mark.parametrize("state", ["B", "C"])
def test_without_scaffolding_only_a_wiki_will_do(project: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    if state == "B":
        (project / "knowledge-base").mkdir()
    code, _, err = run(capsys, "--yes", "--no-scaffold")
    assert code == 2
    assert "no wiki" in err
    assert not (project / "knowledge-base" / "wiki").exists()


def test_a_wiki_may_be_anywhere_in_a_folder_that_is_there(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vault").mkdir()
    assert run(capsys, "--yes", "--wiki", str(tmp_path / "vault" / "notes"))[0] == 0
    assert (tmp_path / "vault" / "notes" / "pages" / "copy-voice.md").exists()
    assert not (tmp_path / "vault" / "SCHEMA.md").exists()


@pytest.mark.parametrize("path", ["/", "", " ", "a\0b", "/missing/deeper/wiki"])
def test_a_path_that_is_no_place_for_a_wiki_is_refused(project: Path, path: str) -> None:
    with pytest.raises(InvalidInput) as caught, open_wiki(path):
        pass
    assert caught.value.field == "--wiki"


# Asking first


def test_nothing_is_written_without_a_yes(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content_of(project)
    assert run(capsys, "--dry-run")[0] == 0
    assert run(capsys, "--dry-run", "--json")[0] == 0
    assert run(capsys, "--json")[0] == 2
    for answer, expected in (("n\n", 1), ("\n", 1), ("", 2)):
        path = project.parent / "answer"
        path.write_text(answer)
        with path.open() as stream:
            monkeypatch.setattr("sys.stdin", stream)
            assert run(capsys)[0] == expected
    assert content_of(project) == before


def test_a_yes_to_the_plan_is_enough(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.parent / "answer"
    path.write_text("y\n")
    with path.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        code, out, _ = run(capsys, "small-pack")
    assert code == 0
    assert out.index("+ knowledge-base/wiki/pages/copy-voice.md") < out.index("written")
    assert (pages(project) / "copy-voice.md").exists()


def test_plan_as_json_names_every_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0
    assert (plan["state"], plan["packs"], plan["written"]) == ("C", ["small-pack"], False)
    assert [change["path"] for change in plan["changes"]] == [
        "knowledge-base/SCHEMA.md",
        "knowledge-base/wiki/pages/copy-voice.md",
        "knowledge-base/wiki/pages/operating-principles.md",
        "knowledge-base/wiki/index.md",
        "knowledge-base/wiki/log.md",
    ]


# Pages


def test_a_new_page_has_frontmatter_title_and_section(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--yes")
    text = (pages(project) / "copy-voice.md").read_text()
    _, head, body = text.split("---\n", 2)
    frontmatter = yaml.safe_load(head)
    assert list(frontmatter) == ["title", "tags", "sources", "updated"]
    assert (frontmatter["title"], frontmatter["tags"]) == ("Copy voice", ["amp-pack", "copy-voice"])
    (source,) = frontmatter["sources"]
    assert re.fullmatch(r"amp-pack: small-pack \(creator: local, installed: \d{4}-\d\d-\d\d\)", source)
    assert re.search(r"^## From small-pack \(creator: local, installed: \d{4}-\d\d-\d\d\)$", body, re.MULTILINE)
    assert (
        "- The newsletter is weekly. (permanent)\n\n  > Source: House guide, third edition, https://example.org/guide\n"
        in body
    )
    assert '  Before: "We leverage synergies."\n\n  [directive must] not a primitive\n' in body


def test_index_has_a_line_for_each_new_page_and_the_log_one_for_the_pack(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wiki = make_wiki(project, copy_voice="# Ours\n")
    run(capsys, "--yes")
    index = (wiki / "index.md").read_text()
    assert index == (
        f"# Index\n\n- [[onboarding]]\n\n{INDEX_HEADING}\n\n- [[operating-principles]] — what holds everywhere\n"
    )
    log = (wiki / "log.md").read_text()
    assert log.count("unpacked small-pack") == 1
    assert log.endswith("into [[operating-principles]], [[copy-voice]]\n")


def test_a_page_that_is_there_gets_a_section_at_its_end_and_nothing_else_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("one", "# Ours\n\nText without an end"), ("two", "---\ntitle: x\n---\n\r\nMixed\r\n\n")):
        wiki = project / name / "wiki"
        (wiki / "pages").mkdir(parents=True)
        (wiki / "index.md").write_text("")
        (wiki / "pages" / "copy-voice.md").write_bytes(text.encode())
        assert run(capsys, "--yes", "--wiki", str(wiki))[0] == 0
        after = (wiki / "pages" / "copy-voice.md").read_bytes().decode()
        assert after.startswith(text)
        assert after[len(text) :].strip().startswith("<!-- amp-unpack:begin small-pack sha256:")


def test_mode_of_a_page_is_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = make_wiki(project, copy_voice="# Ours\n") / "pages" / "copy-voice.md"
    page.chmod(0o640)
    run(capsys, "--yes")
    assert stat.S_IMODE(page.stat().st_mode) == 0o640


# Again, and after an upgrade


def test_a_second_run_changes_nothing_whatever_day_it_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_wiki(project, copy_voice="# Ours\r\n\r\nLines of Windows.\r\n")
    run(capsys, "--yes")
    before = content_of(project)
    code, out, _ = run(capsys, "--yes")
    assert (code, "nothing to do" in out) == (0, True)
    assert content_of(project) == before
    assert plan_of(project, today="2030-01-01").empty


def plan_of(project: Path, today: str = TODAY) -> Plan:
    from melete.packs.hosts import Scope
    from melete.packs.inspection import Place

    packs, _ = load_packs([Place(str(project), Scope.PROJECT)])
    with open_wiki(None, str(project)) as wiki:
        return compute_plan(packs, wiki, today=today)


def test_an_upgrade_replaces_its_own_section_and_no_other_text(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--yes")
    page = pages(project) / "operating-principles.md"
    text = page.read_text()
    page.write_text(
        text.replace("# Operating principles\n", "# Operating principles\n\nMy own words.\n") + "\nAnd these.\n"
    )
    install(tmp_path, "small-pack", PRINCIPLES.replace("can be checked", "can be repeated"), VOICE)
    code, out, _ = run(capsys, "--yes")
    after = page.read_text()
    assert code == 0
    assert "~ knowledge-base/wiki/pages/operating-principles.md: replaced from small-pack" in out
    assert "can be repeated" in after
    assert "that can be checked" not in after
    assert "\nMy own words.\n" in after
    assert after.endswith("\nAnd these.\n")
    assert after.count("amp-unpack:begin") == 1
    log = (project / "knowledge-base/wiki/log.md").read_text()
    assert log.count("unpacked small-pack") == 2
    assert run(capsys, "--yes")[1].endswith("nothing to do\n")


def test_a_section_that_somebody_edited_stays(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--yes")
    page = pages(project) / "operating-principles.md"
    page.write_text(page.read_text().replace("can be checked", "I can check"))
    edited = page.read_text()
    code, out, _ = run(capsys, "--yes")
    assert (code, "nothing to do" in out) == (0, True)
    install(tmp_path, "small-pack", PRINCIPLES.replace("can be checked", "can be repeated"), VOICE)
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert "was edited and stays" in out
    assert page.read_text() == edited
    # The log says nothing of a page that was not merged.
    assert run(capsys, "--yes")[0] == 1
    last = (project / "knowledge-base/wiki/log.md").read_text().splitlines()[-1]
    assert last.endswith("into [[copy-voice]]")
    other = pages(project) / "copy-voice.md"
    other.write_text(other.read_text().replace("It ", "That "))
    install(tmp_path, "small-pack", PRINCIPLES.replace("checked", "tried"), VOICE.replace("It ships", "It sails"))
    code, out, _ = run(capsys, "--yes")
    assert (code, "nothing to do" in out) == (1, True)
    assert (project / "knowledge-base/wiki/log.md").read_text().splitlines()[-1] == last


def test_two_packs_share_a_page_in_sections_of_their_own(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--yes")
    install(tmp_path, "other-pack", PRINCIPLES, VOICE)
    run(capsys, "--yes", "other-pack")
    text = (pages(project) / "copy-voice.md").read_text()
    assert [section.slug for section in find_sections(text)] == ["small-pack", "other-pack"]
    assert len(yaml.safe_load(text.split("---\n")[1])["sources"]) == 2
    assert run(capsys, "--yes")[1].endswith("nothing to do\n")


def test_a_capability_that_went_away_is_named_and_its_section_stays(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "--yes")
    page = (pages(project) / "copy-voice.md").read_text()
    pack = tmp_path / "packs" / "small-pack"
    (pack / "memory" / "copy-voice.md").unlink()
    manifest = json.loads((pack / "manifest.json").read_text())
    (pack / "manifest.json").write_text(json.dumps({**manifest, "capability_files": ["operating-principles.md"]}))
    (pack / "agents.md").write_text("# R\n\n## Always load\n- operating-principles.md - x\n")
    assert amp.run(["install", "--from-path", str(pack)]) == 0
    code, out, _ = run(capsys, "--yes")
    assert code == 0
    assert "no longer has this page" in out
    assert (pages(project) / "copy-voice.md").read_text() == page


def test_a_run_that_was_killed_anywhere_is_completed_by_the_next(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, "--yes")
    whole = content_of(project / "knowledge-base")
    steps = 0
    for steps in range(100):
        shutil.rmtree(project / "knowledge-base")
        left = steps

        def dying(action: Callable[..., Any]) -> Callable[..., Any]:
            def act(*arguments: Any) -> Any:
                nonlocal left
                if not left:
                    raise KeyboardInterrupt
                left -= 1
                return action(*arguments)

            return act

        with monkeypatch.context() as patch:
            for name in ("rename", "write_new", "make_folder", "flush"):
                patch.setattr(folders.Folder, name, dying(getattr(folders.Folder, name)))
            patch.setattr(folders.Folder, "remove", dying(folders.Folder.remove))  # the dead tidy nothing up
            died = run(capsys, "--yes")[0] == 130
        assert run(capsys, "--yes")[0] == 0
        assert content_of(project / "knowledge-base") == whole
        assert sorted(path.name for path in project.iterdir()) == [".amp", "CLAUDE.md", "knowledge-base"]
        if not died:
            break
    assert steps > 3 * len(whole)


# What is skipped


@pytest.mark.parametrize(
    ("voice", "reason"),
    [
        (VOICE.replace("is weekly", f"is at {SECRET}"), "looks like a live credential"),
        (VOICE.replace("Plain words", "Plain\u200b words"), "cannot be seen"),
        (VOICE.replace("House guide", SECRET), "legend of sources"),
        (VOICE.replace("[demo positive]", "[demo]"), "expected valence at position 1"),
    ],
)
def test_a_page_that_would_carry_what_it_must_not_is_skipped_and_named(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], voice: str, reason: str
) -> None:
    # Such a pack would not install; it is as an installer left it that looks for less.
    change_installed(project, "memory/copy-voice.md", voice)
    code, out, err = run(capsys, "--yes")
    assert code == 1
    assert "! knowledge-base/wiki/pages/copy-voice.md: skipped, " in out
    assert reason in out
    assert SECRET not in out + err
    written = content_of(project / "knowledge-base")
    assert "wiki/pages/copy-voice.md" not in written
    assert "wiki/pages/operating-principles.md" in written
    assert b"copy-voice" not in written["wiki/index.md"] + written["wiki/log.md"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("<!-- amp-unpack:end small-pack -->\n", ""),
        lambda text: text.replace("amp-unpack:begin small-pack sha256:", "amp-unpack:begin small-pack sha256:x"),
        lambda text: text + "<!-- amp-unpack:end small-pack -->\n",
        lambda text: text + text[text.index("<!-- amp-unpack:begin") :],
    ],
)
def test_a_page_with_damaged_markers_stays_as_it_is(
    project: Path, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    run(capsys, "--yes")
    page = pages(project) / "copy-voice.md"
    page.write_text(change(page.read_text()))
    damaged = page.read_text()
    assert run(capsys, "--yes")[0] == 1
    assert page.read_text() == damaged


def test_a_page_that_differs_by_case_only_is_left_to_its_owner(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wiki(project)
    (pages(project) / "Copy-Voice.md").write_text("# Ours\n")
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert "differs by case only" in out
    assert not (pages(project) / "copy-voice.md").exists()


def test_a_page_that_is_no_utf8_is_skipped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_wiki(project)
    (pages(project) / "copy-voice.md").write_bytes(b"caf\xe9\n")
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert "is not UTF-8" in out
    assert (pages(project) / "copy-voice.md").read_bytes() == b"caf\xe9\n"


TAMPERED: list[tuple[Callable[[Path], object], str]] = [
    (lambda pack: (pack / "memory/copy-voice.md").write_text(VOICE + "\n[claim] It is so.\n"), "memory/copy-voice.md"),
    (lambda pack: (pack / "memory/extra.md").write_text("x\n"), "memory/extra.md"),
    (lambda pack: (pack / "agents.md").write_text(AGENTS + "\n"), "agents.md"),
]


@pytest.mark.parametrize(("change", "file"), TAMPERED)
def test_a_pack_that_was_changed_since_it_was_installed_is_refused(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], file: str
) -> None:
    change(project / ".amp" / "small-pack")
    code, out, err = run(capsys, "small-pack", "--yes")
    assert (code, out) == (1, "")
    assert f"'{file}': it is " in err
    assert "amp inspect" in err
    install(tmp_path, "other-pack", PRINCIPLES, VOICE)
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert f"! .amp/small-pack/: skipped, pack refused: '{file}'" in out
    assert "small-pack" not in (pages(project) / "copy-voice.md").read_text()


def test_a_pack_whose_signature_is_broken_is_refused(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = load_private_key(generate_key(tmp_path / "a.key")[0])
    sign_pack(tmp_path / "packs" / "small-pack", key)
    assert amp.run(["install", "--from-path", str(tmp_path / "packs" / "small-pack")]) == 0
    assert run(capsys, "--yes")[0] == 0
    change_installed(project, "memory/copy-voice.md", VOICE.replace("weekly", "daily"))
    code, _, err = run(capsys, "small-pack", "--yes")
    assert code == 1
    assert "'memory/copy-voice.md': it is changed since the pack was signed" in err
    change_installed(project, "memory/copy-voice.md", VOICE)
    store = TrustStore(project.parent / "home" / ".amp" / "trusted.json")
    store.add("ada", key.public)
    assert run(capsys, "--yes")[0] == 0
    store.revoke("ada")
    assert "is revoked" in run(capsys, "small-pack", "--yes")[2]


def test_a_pack_from_which_nothing_can_be_read_makes_no_page(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    install(tmp_path, "other-pack", PRINCIPLES, VOICE, primitive_format=...)
    assert "says no primitive_format, so it was read as v0.3" in capsys.readouterr().err
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert "! .amp/other-pack/: skipped, pack refused: its manifest says no primitive_format" in out
    assert "other-pack" not in (project / "knowledge-base/wiki/log.md").read_text()
    code, _, err = run(capsys, "other-pack", "--yes")
    assert (code, "(rule no-primitives)" in err) == (1, True)
    install(tmp_path, "third-pack", PRINCIPLES_V3, PRINCIPLES_V3)
    assert "no primitive was found that is written as inline-tag-v0.4" in capsys.readouterr().err


def test_a_file_without_primitives_beside_others_makes_no_page(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "small-pack", PRINCIPLES, VOICE.partition("sources:")[0])
    code, out, _ = run(capsys, "--yes")
    assert code == 0
    assert "copy-voice.md: skipped, it holds no primitive" in out
    assert not (pages(project) / "copy-voice.md").exists()


# Nothing outside


@pytest.mark.parametrize(
    "place",
    [
        "knowledge-base",
        "knowledge-base/wiki",
        "knowledge-base/wiki/pages",
        "knowledge-base/wiki/index.md",
        "knowledge-base/wiki/log.md",
        "knowledge-base/wiki/pages/copy-voice.md",
    ],
)
def test_a_link_in_the_place_of_anything_is_refused_and_what_it_leads_to_stays(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    outside = tmp_path / "outside"
    wiki = make_wiki(project)
    (wiki / "log.md").write_text("# Log\n")
    (wiki / "pages" / "copy-voice.md").write_text("# Ours\n")
    (project / place).rename(outside)
    (project / place).symlink_to(outside)
    before = content_of(outside) if outside.is_dir() else outside.read_bytes()
    code, out, err = run(capsys, "--yes")
    assert code == 1
    assert "link" in out + err
    assert (content_of(outside) if outside.is_dir() else outside.read_bytes()) == before


def test_a_link_that_two_packs_meet_is_named_once(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "other-pack", PRINCIPLES, VOICE)
    (make_wiki(project) / "pages" / "copy-voice.md").symlink_to(tmp_path / "outside")
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert sum("copy-voice.md: skipped" in line for line in out.splitlines()) == 1
    assert len(json.loads(run(capsys, "--dry-run", "--json")[1])["skipped"]) == 2


@pytest.mark.parametrize("slug", ["..", "../x", "@x/../y", "Small", "x\n", "small-pack/", ""])
def test_a_name_that_is_no_packs_is_a_usage_error(project: Path, capsys: pytest.CaptureFixture[str], slug: str) -> None:
    before = content_of(project)
    assert run(capsys, slug, "--yes")[0] == 2
    assert content_of(project) == before


def test_a_pack_that_is_not_installed_is_said_to_be_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "other-pack", "--yes")
    assert code == 1
    assert "other-pack is not installed" in err


def test_a_file_that_changes_while_the_plan_is_shown_is_not_overwritten(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wiki = make_wiki(project, copy_voice="# Ours\n")
    from melete.packs.hosts import Scope
    from melete.packs.inspection import Place

    packs, _ = load_packs([Place(str(project), Scope.PROJECT)])
    with open_wiki(None, str(project)) as opened:
        plan = compute_plan(packs, opened, today=TODAY)
        (wiki / "pages" / "copy-voice.md").write_text("# Ours, edited just now\n")
        with pytest.raises(WikiRefused) as caught:
            apply_plan(plan, opened)
    assert "changed just now" in caught.value.reason
    assert (wiki / "pages" / "copy-voice.md").read_text() == "# Ours, edited just now\n"
    assert sorted(path.name for path in (wiki / "pages").iterdir()) == ["copy-voice.md"]


def test_two_runs_do_not_write_one_wiki_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_wiki(None, str(project)):
        with pytest.raises(StoreBusy), open_wiki(None, str(project)):
            pass
        assert run(capsys, "--yes")[0] == 3
    assert run(capsys, "--yes")[0] == 0


def test_a_full_disk_changes_no_page(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wiki = make_wiki(project, copy_voice="# Ours\n")
    before = content_of(wiki)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    plan = plan_of(project)
    monkeypatch.setattr(folders, "write_all", fail)
    with open_wiki(None, str(project)) as opened, pytest.raises(StoreNotWritten):
        apply_plan(plan, opened)
    assert content_of(wiki) == before


# Both formats, both scopes


def test_a_pack_of_the_earlier_format_is_read_where_it_lies(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = project / ".memorymarket" / "old-pack"
    make_pack(old, "old-pack", {"memory/operating-principles.md": PRINCIPLES_V3})
    manifest = json.loads((old / "manifest.json").read_text())
    for name in ("primitive_format", "title", "agents"):
        del manifest[name]
    (old / "manifest.json").write_text(json.dumps(manifest))
    code, out, _ = run(capsys, "old-pack", "--yes")
    assert code == 0, out
    text = (pages(project) / "operating-principles.md").read_text()
    assert "## From old-pack (creator: unknown, installed: unknown)" in text
    assert "- Answers that can be checked. (should, project, permanent)" in text


def test_without_a_name_every_pack_of_project_and_home_is_unpacked(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = tmp_path / "packs" / "home-pack"
    make_pack(pack, "home-pack")
    assert amp.run(["install", "--from-path", str(pack), "--scope", "user", "--agent", "claude-code"]) == 0
    code, out, _ = run(capsys, "--yes", "--json")
    assert (code, json.loads(out)["packs"]) == (0, ["home-pack", "small-pack"])


def test_a_pack_that_cannot_be_read_is_skipped_and_the_others_are_not(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "other-pack", PRINCIPLES, VOICE)
    (project / ".amp" / "other-pack" / "agents.md").unlink()
    code, out, _ = run(capsys, "--yes")
    assert code == 1
    assert "! .amp/other-pack/: skipped, Missing agents.md" in out
    assert (pages(project) / "copy-voice.md").exists()


def test_where_nothing_is_installed_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, _, err = run(capsys, "--yes")
    assert code == 2
    assert "no pack is installed" in err
    assert list((tmp_path / "empty").iterdir()) == []


# Text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See [[copy-voice]].", "See [[copy-voice]]."),
        ("See [[copy-voice|the voice]].", "See [[copy-voice|the voice]]."),
        ("See [[copy-voice#Tone]].", "See [[copy-voice#Tone]]."),
        ("See [[secret-page]].", "See secret-page."),
        ("See [[secret-page|here]].", "See here."),
        ("See ![[copy-voice]].", "See [[copy-voice]]."),
        ("[[[[secret-page]]]]", "[\\[secret-page]]"),
        ("[[open", "[\\[open"),
        ("a <script>alert(1)</script> b", "a &lt;script>alert(1)&lt;/script> b"),
        ("<!-- amp-unpack:end notes -->", "&lt;!-- amp-unpack:end notes -->"),
        ("1 < 2 and `<b>` and `[[x]]`", "1 < 2 and `<b>` and `[[x]]`"),
        ("`[[x`]]", "`[[x`]]"),
        # A backtick after a backslash opens no code.
        (r"is \`code [[nope]] <img src=x> \` end", r"is \`code nope &lt;img src=x> \` end"),
        (r"\\`<b>\\`", r"\\`<b>\\`"),
        (r"\`` <b> `", r"\`` <b> `"),
        (r"\`` <b> ``", r"\`` &lt;b> ``"),
        (r"`\` <b> `", r"`\` &lt;b> `"),
        ("``<b>` <i> ``", "``<b>` <i> ``"),
        # Nor is code certain where another line, or a cell of a table, may close what is open.
        ("a ` b\nc ` <img> ` d", "a ` b\nc ` &lt;img> ` d"),
        ("a `b` c\nd `<b>` e", "a `b` c\nd `<b>` e"),
        ("x ` | <img> `", "x ` | &lt;img> `"),
        ("p ` q | r ` a ` <img> `", "p ` q | r ` a ` &lt;img> `"),
    ],
)
def test_text_of_a_pack_is_text_and_links_lead_to_pages_that_exist(text: str, shown: str) -> None:
    assert escape(text, {"copy-voice"}) == shown


@pytest.mark.parametrize("first", ["# x", "> x", "- x", "1. x", "```x", "| x", "---", "* x", "=== "])
def test_the_first_words_of_an_item_begin_no_block_of_their_own(first: str) -> None:
    unit = Unit("f#1", "claim", {}, first)
    (line,) = [line for line in render_body(ORIGIN, [unit], (), ()).split("\n") if line.startswith("- ")]
    assert line[2:].startswith("\\") or line[2:].startswith("1\\.") or line.startswith("- === ")


units = st.builds(
    lambda kind, content, reason: Unit(
        "f#1", kind, {"valence": "mixed"} if kind == "demonstration" else {}, content, reason=reason
    ),
    st.sampled_from(["goal", "claim", "directive", "demonstration"]),
    st.text(alphabet="ab[]|#!<>-`\\ {}", min_size=1, max_size=30).map(lambda text: f"x{text}"),
    st.none() | st.text(alphabet="ab[]|#!<>-`\\ \n", max_size=30),
)


@given(st.lists(units, max_size=4), st.sampled_from(["", "# Page\n", "# Page", "a\r\n", "# Page\n\n"]))
def test_any_section_can_be_put_in_found_again_and_replaced(found: list[Unit], before: str) -> None:
    body = render_body(ORIGIN, found, ["copy-voice"], {"copy-voice"})
    page = merge_page(before, "notes", body)
    assert page.text.startswith(before)
    (section,) = find_sections(page.text)
    assert (section.body, section.edited, section.origin) == (body, False, ORIGIN)
    assert merge_page(page.text, "notes", body) == (page.text, "unchanged")
    other = render_body(Origin("notes", "ada", "2026-05-01"), found[:1], (), ())
    replaced = merge_page(page.text, "notes", other)
    assert replaced.done == "replaced"
    assert merge_page(replaced.text, "notes", body).text == page.text
    outside = page.text[: section.start] + page.text[section.end :]
    (new,) = find_sections(replaced.text)
    assert replaced.text[: new.start] + replaced.text[new.end :] == outside


@given(st.lists(units, max_size=4))
def test_no_line_of_a_section_is_a_heading_or_a_marker_of_its_own(found: list[Unit]) -> None:
    for line in render_body(ORIGIN, found, (), ()).split("\n"):
        assert line == "" or line[0] in "- " or re.fullmatch(r"#{2,3} [A-Z].*", line)


PIECES = ["`", "``", "```", "\\", "|", "<img>", "<b ", "</b>", "<!--", "[[nope]]", "[[", "]]", "a", " ", "- ", "# "]
words = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join)


@given(
    st.sampled_from(["claim", "demonstration"]),
    st.lists(words, min_size=1, max_size=4).map("\n".join),
    st.lists(words, max_size=4).map("\n".join),
)
@example("claim", r"A is \`code [[nope]] <img src=x onerror=alert(1)> \` end", r"x \`<img>\`")
@example("claim", "``` <img> ```", "[[]]``` <img> ```")
@example("claim", "[[]]``` <img> ```", "")
@example("claim", "x", "``<img>``[[`]]")
@example("claim", "x", "a | b\n--- | ---\nx ` | <img> `")
@example("claim", "x", "a ` b\n# c ` <img> ` d")
def test_whatever_a_pack_says_a_reader_of_the_page_sees_no_tag_and_no_link_to_nowhere(
    kind: str, content: str, reason: str
) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    reader = markdown_it.MarkdownIt("commonmark").enable(["table"]).disable("text_join")
    facets = {"valence": "mixed"} if kind == "demonstration" else {}
    # A pack of v0.3 may say what no `Unit` is made with: text of many lines.
    unit: Unit = tuple.__new__(Unit, ("f#1", kind, facets, None, content, None, reason or None, "self", 1, ""))
    body = render_body(ORIGIN, [unit], (), ())
    for block in reader.parse(body):
        assert block.type != "html_block", body
        for token in block.children or ():
            assert token.type != "html_inline", body
            assert token.type != "text" or "[[" not in token.content, body


@given(st.text(alphabet="ab[]|#!`\\ ", max_size=40))
def test_outside_of_code_no_link_leads_nowhere(text: str) -> None:
    shown = escape(text, {"a"})
    bare = re.sub(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", shown)
    for link in re.findall(r"(?<!\\)\[\[([^\[\]\n]*)\]\]", bare):
        assert link.partition("|")[0].partition("#")[0].strip() == "a"


@pytest.mark.parametrize(
    ("creator", "installed", "expected"),
    [
        ("ada", "2026-04-21T10:00:00Z", ("ada", "2026-04-21")),
        ("a b", "soon", ("unknown", "unknown")),
        ('x"\n---', "2026-04-21\n", ("unknown", "unknown")),
        ("-->", "", ("unknown", "unknown")),
        (None, None, ("unknown", "unknown")),
        ("x" * 65, "2026-4-1", ("unknown", "unknown")),
    ],
)
def test_an_origin_cannot_break_a_line(creator: str | None, installed: str | None, expected: tuple[str, str]) -> None:
    assert Origin.of("notes", creator, installed)[1:] == expected


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True))
def test_frontmatter_of_a_new_page_is_yaml_whatever_its_name(stem: str) -> None:
    page = create_page(stem, ORIGIN, render_body(ORIGIN, (), (), ()), TODAY)
    frontmatter = yaml.safe_load(page.split("---\n")[1])
    assert frontmatter["title"] == title_of(stem)
    assert frontmatter["tags"] == ["amp-pack", stem]
    assert frontmatter["sources"] == [ORIGIN.source]
    assert is_ours(page, stem)


def test_frontmatter_that_somebody_edited_is_theirs() -> None:
    body = render_body(ORIGIN, (), (), ())
    page = create_page("copy-voice", ORIGIN, body, TODAY)
    other = merge_page(page, "other", render_body(Origin("other", "ada", "2026-05-01"), (), (), ())).text
    assert "amp-pack: other" in update_frontmatter(page, other, "copy-voice", "2026-05-02")
    assert "updated: 2026-05-02" in update_frontmatter(page, other, "copy-voice", "2026-05-02")
    mine = page.replace("tags: [", "tags: [mine, ")
    merged = merge_page(mine, "other", render_body(Origin("other", "ada", "2026-05-01"), (), (), ())).text
    assert update_frontmatter(mine, merged, "copy-voice", "2026-05-02") == merged


def test_mentions_of_other_pages_are_found_by_whole_names_of_several_words() -> None:
    unit = Unit("f#1", "claim", {}, "See the content strategy and Copy-Voice, log and ops-toolset.")
    assert find_links([unit], "copy-voice", ["content-strategy", "copy-voice", "log", "ops-tools"]) == [
        "content-strategy"
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", f"{INDEX_HEADING}\n\n- [[a]] — x\n"),
        ("# Index", f"# Index\n\n{INDEX_HEADING}\n\n- [[a]] — x\n"),
        ("- [[a]]\n", "- [[a]]\n"),
        ("- [[a|A]]\n", "- [[a|A]]\n"),
        (f"{INDEX_HEADING}\n\n- [[b]]\n\n## Later\n", f"{INDEX_HEADING}\n\n- [[b]]\n- [[a]] — x\n\n## Later\n"),
        (f"{INDEX_HEADING}\n\n- [[b]]", f"{INDEX_HEADING}\n\n- [[b]]\n- [[a]] — x"),
        (f"{INDEX_HEADING}\r\n\r\n- [[b]]\r\n", f"{INDEX_HEADING}\r\n\r\n- [[b]]\r\n- [[a]] — x\r\n"),
    ],
)
def test_index_gets_one_line_in_its_own_place(text: str, expected: str) -> None:
    after = add_to_index(text, {"a": "x"})
    assert after == expected
    assert add_to_index(after, {"a": "x"}) == after


def test_log_gets_a_line_only_for_what_is_new() -> None:
    one = "- 2026-04-22 — unpacked notes (creator: local, version: 1, digest: aaaa) into [[x]]"
    two = one.replace("aaaa", "bbbb")
    first = add_to_log("# Log", one, "notes", "aaaa")
    assert first == f"# Log\n{one}\n"
    assert add_to_log(first, one, "notes", "aaaa") == first
    second = add_to_log(first, two, "notes", "bbbb")
    assert add_to_log(second, one, "notes", "aaaa") == f"{second}{one}\n"
    assert add_to_log(first, one, "other", "aaaa") != first


@pytest.mark.parametrize(
    "text",
    [
        frame("a", "x\n").replace("end a", "end b"),
        frame("a", frame("b", "x\n")),
        frame("a", "x\n") + frame("a", "y\n"),
        "<!-- amp-unpack:begin a -->\n<!-- amp-unpack:end a -->\n",
        "<!-- amp-unpack:begin A sha256:" + "0" * 64 + " -->\n",
        "<!-- amp-unpack: -->\n",
    ],
)
def test_markers_that_frame_nothing_are_damaged(text: str) -> None:
    with pytest.raises(MarkersDamaged):
        find_sections(text)


def test_markers_inside_a_line_are_text() -> None:
    assert find_sections(" " + frame("a", "x\n").replace("\n", " ")) == []


def test_states_have_the_names_of_the_format() -> None:
    assert [state.value for state in State] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "path", [".amp/wiki", ".amp/notes/memory/wiki", ".memorymarket/x/wiki", "link/wiki", ".AMP/x/y"]
)
def test_a_wiki_among_what_is_installed_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (project / ".memorymarket/x").mkdir(parents=True)
    (project / "link").symlink_to(".amp")
    before = content_of(project)
    code, _, err = run(capsys, "--wiki", path, "--yes")
    assert (code, "--wiki" in err) == (2, True)
    assert content_of(project) == before
