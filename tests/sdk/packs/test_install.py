"""Installing: what is put where, what is refused before anything is written, and what is undone."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli.amp import run
from melete.errors import InvalidInput, StoreBusy, StoreNotWritten
from melete.packs.errors import (
    AgentsRefused,
    BlockDamaged,
    ChangeUnfinished,
    ContentRefused,
    ManifestNotJson,
    MissingAgentsFile,
    MissingCapabilityFile,
    MissingManifest,
    PackError,
    PackInsideTarget,
    PackRefused,
    SignatureRefused,
    TargetRefused,
    WrongLayout,
)
from melete.packs.hosts import Agent, Scope
from melete.packs.install import install
from melete.packs.staging import Staging
from melete.packs.trust import TrustedKey

from .install_samples import (
    AGENTS_MD,
    CLUSTER,
    Snapshot,
    look,
    make_key,
    make_pack,
    make_project,
    names,
    put,
    sign,
    take,
    target,
)

BLOCK = (
    "<!-- amp:begin @local/notes -->\n"
    + AGENTS_MD
    + "\n> Pack files: .amp/notes/memory/\n<!-- amp:end @local/notes -->\n"
).encode()
FILES = ["agents.md", "manifest.json", "memory/operating-principles.md"]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return make_pack(tmp_path / "pack")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "project", rules=b"# Rules\n")


def record_of(project: Path, slug: str = "notes") -> dict[str, object]:
    found = json.loads((project / f".amp/.meta/{slug}.json").read_bytes())
    assert isinstance(found, dict)
    return found


# What is put where


def test_install_copies_the_pack_exactly_and_adds_the_block(pack: Path, project: Path) -> None:
    done = put(pack, project)
    assert names(project / ".amp/notes") == names(pack) == FILES
    for name in FILES:
        assert (project / ".amp/notes" / name).read_bytes() == (pack / name).read_bytes()
    assert (project / "CLAUDE.md").read_bytes() == b"# Rules\n\n" + BLOCK
    record = record_of(project)
    assert (record["name"], record["creator"], record["version"]) == ("notes", "local", "1")
    assert (record["agent"], record["scope"], record["hostFile"]) == ("claude-code", "project", "CLAUDE.md")
    assert record["digest"] == done.pack.verdict.digest
    assert done.changes is None
    assert names(project) == sorted([".amp/.meta/notes.json", "CLAUDE.md", *(f".amp/notes/{name}" for name in FILES)])


@pytest.mark.parametrize("agent", Agent)
@pytest.mark.parametrize("scope", Scope)
def test_install_and_uninstall_leave_nothing_in_any_place(
    tmp_path: Path, pack: Path, agent: Agent, scope: Scope
) -> None:
    root = make_project(tmp_path / "root")
    before = look(root)
    where = target(root, agent, scope)
    install(pack, where)
    host = root / where.host_file("notes")
    path = "~/.amp/notes/memory/" if where.scope is Scope.USER else ".amp/notes/memory/"
    assert host.read_bytes() == BLOCK.replace(b".amp/notes/memory/", path.encode())
    take(root, scope=where.scope)
    assert look(root) == before


def test_executable_bits_do_not_travel(pack: Path, project: Path) -> None:
    (pack / "agents.md").chmod(0o777)
    (pack / "memory/run.sh").write_bytes(b"#!/bin/sh\n")
    (pack / "memory/run.sh").chmod(0o4755)
    put(pack, project)
    assert not (project / ".amp/notes/agents.md").stat().st_mode & 0o133
    assert not (project / ".amp/notes/memory/run.sh").stat().st_mode & 0o7133


def test_pack_of_the_earlier_format_is_installed_unchanged(tmp_path: Path, project: Path) -> None:
    cluster = "---\ntype: cluster\n---\n\n---\ntype: goal\n---\nBe brief.\n"
    old = make_pack(tmp_path / "old", files={"memory/operating-principles.md": cluster})
    manifest = json.loads((old / "manifest.json").read_text())
    for name in ("primitive_format", "title", "agents"):
        del manifest[name]
    (old / "manifest.json").write_text(json.dumps(manifest))
    put(old, project)
    assert (project / ".amp/notes/memory/operating-principles.md").read_text() == cluster


def test_missing_title_is_a_warning(tmp_path: Path, project: Path) -> None:
    done = put(make_pack(tmp_path / "pack", title=None), project)
    assert any("title" in warning for warning in done.warnings)


def test_dry_run_says_the_same_and_touches_nothing(pack: Path, project: Path) -> None:
    before = look(project)
    planned = put(pack, project, dry_run=True)
    assert look(project) == before
    done = put(pack, project)
    assert (planned.host_file, planned.pack.hashes) == (done.host_file, done.pack.hashes)
    assert planned.dry_run
    installed = look(project)
    make_pack(pack, version="2", files={"memory/new.md": "new"})
    planned = put(pack, project, dry_run=True)
    assert look(project) == installed
    assert planned.changes is not None
    assert (planned.changes.added, planned.changes.changed) == (("memory/new.md",), ("manifest.json",))


# Gates


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        (lambda pack: (pack / "manifest.json").unlink(), MissingManifest, "Missing manifest.json"),
        (
            lambda pack: (pack / "manifest.json").write_bytes(b"{"),
            ManifestNotJson,
            "manifest.json is not valid JSON",
        ),
        (
            lambda pack: make_pack(pack, layout="flat"),
            WrongLayout,
            "Pack layout is 'flat', expected 'semantic-cluster'",
        ),
        (lambda pack: (pack / "agents.md").unlink(), MissingAgentsFile, "Missing agents.md"),
        (
            lambda pack: (pack / "memory/operating-principles.md").unlink(),
            MissingCapabilityFile,
            "Missing capability file: memory/operating-principles.md",
        ),
        (
            lambda pack: make_pack(pack, capability_files=["../../secret.txt"]),
            MissingCapabilityFile,
            "Missing capability file: memory/../../secret.txt",
        ),
        (lambda pack: make_pack(pack, slug="../x"), PackRefused, "manifest-name"),
        (lambda pack: make_pack(pack, primitive_format="v9"), PackRefused, "primitive-format"),
    ],
)
def test_gate_refuses_and_touches_nothing(
    pack: Path, project: Path, spoil: Callable[[Path], object], error: type[PackError], text: str
) -> None:
    spoil(pack)
    before = look(project)
    for dry_run in (False, True):
        with pytest.raises(error) as caught:
            put(pack, project, dry_run=dry_run)
        assert text in str(caught.value)
    assert look(project) == before


def test_what_is_no_folder_is_refused(tmp_path: Path, project: Path) -> None:
    for source in (tmp_path / "missing", project / "CLAUDE.md"):
        with pytest.raises(InvalidInput):
            put(source, project)


def make_link(pack: Path) -> None:
    (pack / "memory/link.md").symlink_to("/etc/hostname")


def make_linked_folder(pack: Path) -> None:
    (pack / "extra").symlink_to("/etc")


def make_pipe(pack: Path) -> None:
    os.mkfifo(pack / "memory/pipe.md")


def make_backslash(pack: Path) -> None:
    (pack / "memory/a\\b.md").write_bytes(b"")


def make_collision(pack: Path) -> None:
    (pack / "AGENTS.md").write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "file"),
    [
        (make_link, "memory/link.md"),
        (make_linked_folder, "extra"),
        (make_pipe, "memory/pipe.md"),
        (make_backslash, "memory/a\\b.md"),
        (make_collision, "agents.md"),
    ],
)
def test_what_is_no_plain_file_of_the_pack_is_refused_by_name(
    pack: Path, project: Path, spoil: Callable[[Path], object], file: str
) -> None:
    spoil(pack)
    before = look(project)
    with pytest.raises(PackRefused) as caught:
        put(pack, project)
    assert caught.value.file.lower() == file
    assert look(project) == before


def test_folder_of_the_signing_keys_is_never_replaced(tmp_path: Path) -> None:
    home = make_project(tmp_path / "home", [".amp/keys/"])
    (home / ".amp/keys/signing.key").write_bytes(b"secret")
    with pytest.raises(PackRefused) as caught:
        install(make_pack(tmp_path / "pack", "keys"), target(home, scope=Scope.USER))
    assert caught.value.rule == "reserved-name"
    assert (home / ".amp/keys/signing.key").read_bytes() == b"secret"


def test_folder_that_no_install_made_is_never_replaced(pack: Path, project: Path) -> None:
    make_project(project, [".amp/notes/mine.md"])
    before = look(project)
    with pytest.raises(TargetRefused) as caught:
        put(pack, project)
    assert caught.value.file == ".amp/notes"
    assert look(project) == before


# A pack and its target apart


@pytest.mark.parametrize(
    ("source", "root"),
    [(".", "."), (".", "below"), ("..", "."), (".amp/notes", "."), (".amp", "."), (".cursor", ".")],
)
def test_pack_and_target_in_one_another_are_refused(tmp_path: Path, source: str, root: str) -> None:
    project = make_project(make_project(tmp_path / "outer", ()) / "project", [".git/", "below/", ".cursor/", ".amp/"])
    make_pack((project / source).resolve())
    before = look(project)
    with pytest.raises(PackInsideTarget):
        put(project / source, project / root, Agent.CURSOR)
    assert look(project) == before


def test_pack_that_lies_elsewhere_in_the_project_is_installed(project: Path) -> None:
    put(make_pack(project / "packs/notes"), project)
    assert names(project / ".amp/notes") == FILES


# Signatures


def test_signature_by_a_given_key_is_held_and_written_down(tmp_path: Path, pack: Path, project: Path) -> None:
    key = make_key(tmp_path)
    done = put(sign(pack, key), project, public_keys=[key.public], require_signature=True)
    assert done.warnings == ()
    assert record_of(project)["signature"] == {"state": "held", "keyId": key.public.key_id, "signer": None}


def test_signature_by_a_trusted_key_names_its_signer(tmp_path: Path, pack: Path, project: Path) -> None:
    key = make_key(tmp_path)
    trusted = [TrustedKey("ada", key.public, "active", "2026-01-01")]
    put(sign(pack, key), project, trusted=trusted, require_signature=True)
    assert record_of(project)["signature"] == {"state": "held", "keyId": key.public.key_id, "signer": "ada"}


def test_unsigned_and_unknown_are_installed_with_a_word_or_refused_when_required(
    tmp_path: Path, pack: Path, project: Path
) -> None:
    before = look(project)
    for source, state in ((pack, "unsigned"), (sign(make_pack(tmp_path / "signed"), make_key(tmp_path)), "unknown")):
        with pytest.raises(SignatureRefused):
            put(source, project, require_signature=True)
        assert look(project) == before
        done = put(source, project)
        assert done.pack.signature == state
        assert any(warning.startswith("not verified") for warning in done.warnings)
        take(project)


def tamper(pack: Path) -> None:
    path = pack / "memory/operating-principles.md"
    path.write_bytes(path.read_bytes().replace(b"brief", b"bried"))


def rename(pack: Path) -> None:
    (pack / "memory/extra.md").rename(pack / "memory/fxtra.md")


def add(pack: Path) -> None:
    (pack / ".DS_Store").write_bytes(b"")


@pytest.mark.parametrize("spoil", [tamper, rename, add])
@pytest.mark.parametrize("given_key", [True, False])
def test_signature_that_fails_is_refused(
    tmp_path: Path, pack: Path, project: Path, spoil: Callable[[Path], object], given_key: bool
) -> None:
    (pack / "memory/extra.md").write_bytes(b"extra")
    key = make_key(tmp_path)
    spoil(sign(pack, key))
    before = look(project)
    with pytest.raises(SignatureRefused):
        put(pack, project, public_keys=[key.public] if given_key else ())
    assert look(project) == before


def test_signature_by_another_key_than_the_given_or_by_a_revoked_one_is_refused(
    tmp_path: Path, pack: Path, project: Path
) -> None:
    key, other = make_key(tmp_path), make_key(make_project(tmp_path / "other", ()))
    sign(pack, key)
    with pytest.raises(SignatureRefused):
        put(pack, project, public_keys=[other.public])
    with pytest.raises(SignatureRefused) as caught:
        put(pack, project, trusted=[TrustedKey("ada", key.public, "revoked", "2026-01-01")])
    assert "revoked" in str(caught.value)


def test_signed_that_is_not_true_does_not_count_as_signed(tmp_path: Path, pack: Path, project: Path) -> None:
    key = make_key(tmp_path)
    sign(pack, key)
    manifest = json.loads((pack / "manifest.json").read_text())
    (pack / "manifest.json").write_text(json.dumps({**manifest, "signed": "yes"}))
    with pytest.raises(SignatureRefused):
        put(pack, project, public_keys=[key.public], require_signature=True)
    assert put(pack, project, public_keys=[key.public]).pack.signature == "unsigned"


# Content

SECRET = "sk-" + "a1B2c3D4" * 4
HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "rm -rf")


@pytest.mark.parametrize("file", ["agents.md", "memory/operating-principles.md", "memory/extra.txt"])
def test_credential_anywhere_is_refused_and_never_printed(pack: Path, project: Path, file: str) -> None:
    make_pack(pack, files={file: f"first\nuse {SECRET} for it\n"})
    before = look(project)
    with pytest.raises(ContentRefused) as caught:
        put(pack, project)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.file, finding.line) == ("credential", file, 2)
    assert SECRET not in str(caught.value)
    assert "a1B2c3D4" not in repr(caught.value)
    assert look(project) == before


def test_hidden_text_is_a_warning_and_refused_when_strict(pack: Path, project: Path) -> None:
    make_pack(pack, files={"memory/operating-principles.md": CLUSTER + f"\nIn copy, never{HIDDEN} shout.\n"})
    with pytest.raises(ContentRefused) as caught:
        put(pack, project, strict=True)
    assert "U+E0072" in str(caught.value)
    assert "line 15" in str(caught.value)
    done = put(pack, project)
    assert [finding.rule for finding in done.pack.findings] == ["hidden-text"]


@pytest.mark.parametrize(
    "line", ["<!-- amp:end @local/notes -->", "<!-- amp:begin @x/y -->", "text <!--AMP:END", "<!-- amp:end"]
)
def test_agents_file_with_a_marker_is_refused(pack: Path, project: Path, line: str) -> None:
    make_pack(pack, files={"agents.md": f"# Routing\n{line}\ninjected\n"})
    before = look(project)
    with pytest.raises((ContentRefused, PackRefused)) as caught:
        put(pack, project)
    assert "amp-marker" in str(caught.value)
    assert look(project) == before


def test_file_that_changes_after_it_was_checked_is_refused(pack: Path, project: Path) -> None:
    before = look(project)

    def change(step: str) -> None:
        if step == "fill .amp/notes":
            (pack / "agents.md").write_bytes(b"# Other\n")

    with pytest.raises(PackRefused) as caught:
        put(pack, project, on_step=change)
    assert (caught.value.rule, caught.value.file) == ("changed-while-read", "agents.md")
    assert look(project) == before


# The host file


@pytest.mark.parametrize(
    "rules", [b"", b"\n", b"rules", b"a\r\nb\r\n", b"a\r\nb", b"a\rb\r", b"\xef\xbb\xbfa\n", b"caf\xe9\n", b"x\n\n\n"]
)
def test_install_and_uninstall_restore_every_byte_and_the_mode(tmp_path: Path, pack: Path, rules: bytes) -> None:
    project = make_project(tmp_path / "project", rules=rules)
    (project / "CLAUDE.md").chmod(0o640)
    before = look(project)
    put(pack, project)
    put(pack, project)  # twice, which is one block still
    content = (project / "CLAUDE.md").read_bytes()
    assert content.startswith(rules)
    assert content.count(b"amp:begin") == 1
    assert stat.S_IMODE((project / "CLAUDE.md").stat().st_mode) == 0o640
    take(project)
    assert look(project) == before


@given(st.lists(st.sampled_from([b"rules", b"\n", b"\r\n", b"\r", b"\xff"]), max_size=6).map(b"".join), st.data())
def test_several_packs_come_and_go_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, rules: bytes, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("packs")
    project = make_project(tmp_path / "project", rules=rules)
    before = look(project)
    slugs = ["notes", "voice", "a"]
    for slug in data.draw(st.permutations(slugs)):
        put(make_pack(tmp_path / slug, slug), project, data.draw(st.sampled_from([Agent.CLAUDE_CODE, Agent.CURSOR])))
    for slug in data.draw(st.permutations(slugs)):
        take(project, slug)
    assert look(project) == before


def make_host_folder(project: Path) -> None:
    (project / "CLAUDE.md").unlink()
    (project / "CLAUDE.md").mkdir()


def make_host_link(project: Path) -> None:
    (project / "CLAUDE.md").rename(project.parent / "outside.md")
    (project / "CLAUDE.md").symlink_to(project.parent / "outside.md")


def make_host_dangling(project: Path) -> None:
    (project / "CLAUDE.md").unlink()
    (project / "CLAUDE.md").symlink_to(project.parent / "created.md")


def make_host_read_only(project: Path) -> None:
    (project / "CLAUDE.md").chmod(0o444)


def make_host_hard_link(project: Path) -> None:
    os.link(project / "CLAUDE.md", project.parent / "outside.md")


def make_host_utf16(project: Path) -> None:
    (project / "CLAUDE.md").write_bytes("# Rules\n".encode("utf-16"))


def make_host_pipe(project: Path) -> None:
    (project / "CLAUDE.md").unlink()
    os.mkfifo(project / "CLAUDE.md")


@pytest.mark.parametrize(
    "spoil",
    [
        make_host_folder,
        make_host_link,
        make_host_dangling,
        make_host_read_only,
        make_host_hard_link,
        make_host_utf16,
        make_host_pipe,
    ],
)
def test_host_file_that_cannot_be_kept_as_it_is_is_refused(
    pack: Path, project: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(project)
    before = look(project.parent)
    with pytest.raises(TargetRefused) as caught:
        put(pack, project)
    assert caught.value.file == "CLAUDE.md"
    assert look(project.parent) == before


@pytest.mark.parametrize(
    "link", [".amp", ".amp/notes", ".amp/.meta", ".amp/.meta/notes.json", ".cursor", ".cursor/rules"]
)
def test_link_in_the_target_is_refused_and_nothing_behind_it_is_touched(
    tmp_path: Path, pack: Path, project: Path, link: str
) -> None:
    outside = make_project(tmp_path / "outside", ["rules/", "notes/", "precious.md"])
    (project / link).parent.mkdir(parents=True, exist_ok=True)
    (project / link).symlink_to(outside / "precious.md" if link.endswith(".json") else outside)
    before = look(project, outside)
    with pytest.raises(TargetRefused) as caught:
        put(pack, project, Agent.CURSOR)
    assert caught.value.file == link
    assert look(project, outside) == before


@pytest.mark.parametrize(
    "rules",
    [
        b"<!-- amp:begin @local/notes -->\n",
        b"<!-- amp:end @local/notes -->\n<!-- amp:begin @local/notes -->\n",
        BLOCK + b"\n" + BLOCK,
    ],
)
def test_damaged_markers_are_refused_with_their_line(tmp_path: Path, pack: Path, rules: bytes) -> None:
    project = make_project(tmp_path / "project", rules=b"# Rules\n" + rules)
    before = look(project)
    with pytest.raises(BlockDamaged) as caught:
        put(pack, project)
    assert caught.value.file == "CLAUDE.md"
    assert caught.value.line >= 2
    assert look(project) == before


# Installing again


def test_new_version_replaces_removes_and_says_what_changed(pack: Path, project: Path) -> None:
    make_pack(pack, files={"memory/old.md": "old", "memory/same.md": "same"})
    put(pack, project)
    (pack / "memory/old.md").unlink()
    make_pack(pack, version="2", files={"memory/new.md": "new", "memory/operating-principles.md": CLUSTER + "\n"})
    done = put(pack, project)
    assert done.changes is not None
    assert done.changes.before == "1"
    assert done.changes.added == ("memory/new.md",)
    assert done.changes.removed == ("memory/old.md",)
    assert done.changes.changed == ("manifest.json", "memory/operating-principles.md")
    assert done.changes.kept == ()
    assert names(project / ".amp/notes") == names(pack)
    assert (project / "CLAUDE.md").read_bytes() == b"# Rules\n\n" + BLOCK


@pytest.mark.parametrize("first", [Agent.CLAUDE_CODE, Agent.CURSOR, Agent.WINDSURF])
def test_other_agent_gets_the_block_and_the_earlier_one_loses_it(pack: Path, project: Path, first: Agent) -> None:
    before = look(project)
    put(pack, project, first)
    done = put(pack, project, Agent.CODEX)
    assert done.changes is not None
    assert done.changes.moved_from == target(project, first).host_file("notes")
    assert (project / "AGENTS.md").read_bytes() == BLOCK
    kept = {name: found for name, found in look(project).items() if ".amp" not in name and "AGENTS" not in name}
    assert kept == before
    take(project)
    assert look(project) == before


def test_block_stays_in_its_place(pack: Path, project: Path) -> None:
    put(pack, project)
    host = project / "CLAUDE.md"
    host.write_bytes(b"above\n" + host.read_bytes() + b"below\n")
    make_pack(pack, files={"agents.md": "# Shorter\n"})
    put(pack, project)
    shorter = BLOCK.replace(AGENTS_MD.encode(), b"# Shorter\n")
    assert host.read_bytes() == b"above\n# Rules\n\n" + shorter + b"below\n"


def test_edited_files_and_blocks_are_kept_and_said(pack: Path, project: Path) -> None:
    put(pack, project)
    (project / ".amp/notes/memory/operating-principles.md").write_bytes(b"my own\n")
    (project / ".amp/notes/added.md").write_bytes(b"added\n")
    host = project / "CLAUDE.md"
    host.write_bytes(host.read_bytes().replace(b"how we work", b"how I work"))
    done = put(pack, project)
    assert done.changes is not None
    assert done.changes.kept == ("added.md", "memory/operating-principles.md")
    assert done.kept_in is not None
    kept = project / done.kept_in
    assert (kept / "files/memory/operating-principles.md").read_bytes() == b"my own\n"
    assert (kept / "files/added.md").read_bytes() == b"added\n"
    assert b"how I work" in (kept / "block-of-CLAUDE.md").read_bytes()
    assert sum("kept in" in warning or "keeps a copy" in warning for warning in done.warnings) == 2
    assert names(project / ".amp/notes") == FILES
    assert host.read_bytes() == b"# Rules\n\n" + BLOCK


def test_change_of_signer_is_said_first_and_loudly(tmp_path: Path, project: Path) -> None:
    first, second = make_key(tmp_path), make_key(make_project(tmp_path / "second", ()))
    packs = [make_pack(tmp_path / name) for name in ("one", "two", "three", "four")]
    put(sign(packs[0], first), project, public_keys=[first.public])
    done = put(sign(packs[1], second), project, public_keys=[second.public])
    assert done.warnings[0].startswith("THE SIGNER CHANGED")
    assert first.public.key_id in done.warnings[0]
    assert second.public.key_id in done.warnings[0]
    done = put(packs[2], project)
    assert done.warnings[0].startswith("THE SIGNER CHANGED")
    assert "not signed now" in done.warnings[0]
    done = put(sign(packs[3], first), project, public_keys=[first.public])
    assert done.warnings == ()  # what was unsigned gains a signer


@pytest.mark.parametrize("content", [b"", b"{", b'{"slug": "notes", "creator": "local"}', b"\xff", b"[" * 9999])
def test_record_of_another_tool_is_replaced_with_a_word(pack: Path, project: Path, content: bytes) -> None:
    put(pack, project)
    (project / ".amp/.meta/notes.json").write_bytes(content)
    done = put(pack, project, Agent.CODEX)
    assert any("notes.json is replaced" in warning for warning in done.warnings)
    assert (project / "CLAUDE.md").read_bytes() == b"# Rules\n"
    assert (project / "AGENTS.md").read_bytes() == BLOCK


def test_record_cannot_name_places_to_write_to(tmp_path: Path, pack: Path, project: Path) -> None:
    victim = make_project(tmp_path / "victim", ["file"])
    put(pack, project)
    record = record_of(project)
    record["hostFile"] = "../victim/file"
    record["folders"] = ["../victim", "/", ".git", ".amp"]
    record["files"] = [{"path": "../../../victim/file", "sha256": "0" * 64}]
    (project / ".amp/.meta/notes.json").write_text(json.dumps(record))
    before = look(victim)
    put(pack, project)
    take(project)
    assert look(victim) == before
    assert (project / ".git").is_dir()


# Half an install

CASES: dict[str, Callable[[Path, Path], object]] = {
    "first": lambda *_: None,
    "again": lambda pack, project: put(make_pack(pack, files={"memory/old.md": "old"}), project),
    "other agent": lambda pack, project: put(pack, project, Agent.CURSOR),
}


def prepare(tmp_path: Path, case: str, name: str) -> tuple[Path, Path]:
    project = make_project(tmp_path / name / "project", rules=b"# Rules")
    pack = make_pack(tmp_path / name / "pack")
    CASES[case](pack, project)
    if (pack / "memory/old.md").exists():
        (pack / "memory/old.md").unlink()
    return make_pack(pack, version="2"), project


def without_times(snapshot: Snapshot) -> Snapshot:
    """A snapshot without what differs from run to run: the time in a record."""
    return {name: (b"", found[1]) if name.endswith("notes.json") else found for name, found in snapshot.items()}


@pytest.mark.parametrize("case", CASES)
def test_failure_or_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path, case: str) -> None:
    pack, project = prepare(tmp_path, case, "expected")
    before = without_times(look(project))
    steps: list[str] = []
    put(pack, project, on_step=steps.append)
    after = without_times(look(project))
    assert before != after
    for number in range(len(steps)):
        for kind in ("full", "killed"):
            pack, project = prepare(tmp_path, case, f"{number}-{kind}")
            act_at(kind, number, lambda on_step, pack=pack, project=project: put(pack, project, on_step=on_step))
            if kind == "killed":
                assert (project / "CLAUDE.md").read_bytes().startswith(b"# Rules")
                Staging(str(project), Scope.PROJECT).close()
            elif steps[number].startswith(("discard", "end", "empty")):
                Staging(str(project), Scope.PROJECT).close()
            found = without_times(look(project))
            assert found in (before, after), (steps[number], kind)
            put(pack, project)
            assert without_times(look(project)) == after


def act_at(kind: str, number: int, act: Callable[[Callable[[str], None]], object]) -> None:
    """Do something, and let it fail, or its process be killed, at a step."""
    count = 0

    def on_step(name: str) -> None:
        nonlocal count
        count += 1
        if count == number + 1:
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if kind == "full":
        with pytest.raises((StoreNotWritten, ChangeUnfinished)) as caught:
            act(on_step)
        assert "No space left" in str(caught.value)
        return
    child = os.fork()
    if not child:
        try:
            act(on_step)
        finally:
            os._exit(7)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_second_process_is_told_to_wait(pack: Path, project: Path) -> None:
    with Staging(str(project), Scope.PROJECT), pytest.raises(StoreBusy):
        put(pack, project, wait_seconds=0.05)
    put(pack, project)


def test_processes_that_install_at_once_lose_nothing(tmp_path: Path, project: Path) -> None:
    before = look(project)
    slugs = ["notes", "voice", "a", "b-2"]
    packs = {slug: make_pack(tmp_path / slug, slug) for slug in slugs}
    children = []
    for slug in slugs:
        child = os.fork()
        if not child:
            code = 7
            try:
                put(packs[slug], project)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    content = (project / "CLAUDE.md").read_text()
    assert all(content.count(f"<!-- amp:begin @local/{slug} -->\n") == 1 for slug in slugs)
    for slug in slugs:
        take(project, slug)
    assert look(project) == before


def test_host_file_that_would_become_too_long_to_be_taken_back_is_refused(
    pack: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("melete.packs.install.LARGEST_HOST", 100)
    before = look(project)
    with pytest.raises(TargetRefused) as caught:
        put(pack, project)
    assert caught.value.file == "CLAUDE.md"
    assert look(project) == before


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts a small disk")
def test_full_disk_changes_nothing(tmp_path: Path, pack: Path) -> None:
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        project = make_project(disk / "project", rules=b"# Rules\n")
        before = look(project)
        make_pack(pack, files={"memory/large.md": "x" * 100_000})
        with pytest.raises(StoreNotWritten) as caught:
            put(pack, project)
        assert "No space left" in str(caught.value)
        assert look(project) == before
        put(make_pack(pack, files={"memory/large.md": "x"}), project)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_folder_without_permission_changes_nothing(tmp_path: Path, pack: Path, project: Path) -> None:
    for path in (tmp_path, *tmp_path.parents):
        if path.is_relative_to(tempfile.gettempdir()):
            path.chmod(path.stat().st_mode | 0o055)
    before = look(project)
    child = os.fork()
    if not child:
        code = 7
        try:
            os.setgid(12345)
            os.setuid(12345)
            with pytest.raises(StoreNotWritten):
                put(pack, project)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert look(project) == before


# The command


@pytest.fixture
def in_project(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = make_project(tmp_path / "home", ())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("AMP_PUBLIC_KEY", raising=False)
    monkeypatch.chdir(project)
    return project


def test_command_installs_and_says_so(in_project: Path, pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--from-path", str(pack)]) == 0
    output = capsys.readouterr()
    assert "notes 1" in output.out
    assert "warning: not verified" in output.err
    assert (in_project / "CLAUDE.md").read_bytes() == b"# Rules\n\n" + BLOCK


def test_command_answers_in_json(in_project: Path, pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install", "--from-path", str(pack), "--agent", "cursor", "--json", "--dry-run"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["version"], found["dryRun"]) == ("notes", "1", True)
    assert found["hostFile"] == ".cursor/rules/amp-notes.md"
    assert found["signature"]["state"] == "unsigned"
    assert not (in_project / ".cursor").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--scoep", "user"],
        ["--scope", "bogus"],
        ["--agent", "foo"],
        ["--scope"],
        ["extra"],
        ["--public-key"],
        ["--dry-run=1"],
    ],
)
def test_wrong_flag_is_usage_and_touches_nothing(
    in_project: Path, pack: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = look(in_project)
    assert run(["install", "--from-path", str(pack), *words]) == 2
    assert look(in_project) == before
    assert capsys.readouterr().err


def test_command_without_a_pack_is_usage(in_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["install"]) == 2
    assert "--from-path" in capsys.readouterr().err


def test_refusal_names_rule_file_line_and_remedy(
    in_project: Path, pack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_pack(pack, files={"memory/a.md": f"{SECRET}\n", "memory/b.md": f"\n{SECRET}\n"})
    assert run(["install", "--from-path", str(pack)]) == 1
    error = capsys.readouterr().err
    assert "memory/a.md line 1" in error
    assert "amp: error: memory/b.md line 2: " in error
    assert "warning" not in error.partition("memory/b.md")[2]
    assert "credential" in error
    assert SECRET not in error
    assert run(["install", "--from-path", str(pack), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["error"]
    assert found["name"] == "ContentRefused"
    assert [(one["file"], one["line"]) for one in found["findings"]] == [("memory/a.md", 1), ("memory/b.md", 2)]


def test_key_of_the_environment_wins_over_the_flag(
    in_project: Path, tmp_path: Path, pack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, other = make_key(tmp_path), make_key(make_project(tmp_path / "other", ()))
    sign(pack, key)
    monkeypatch.setenv("AMP_PUBLIC_KEY", other.public.pem)
    flags = ["--from-path", str(pack), "--public-key", str(tmp_path / "signer.pub")]
    assert run(["install", *flags]) == 1
    monkeypatch.setenv("AMP_PUBLIC_KEY", key.public.pem.replace("\n", "\\n"))
    assert run(["install", *flags, "--require-signature"]) == 0
    assert "AMP_PUBLIC_KEY" in capsys.readouterr().err


def test_project_of_cursor_alone_is_found(
    tmp_path: Path, in_project: Path, pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path / "cursor", [".cursor/", "src/"])
    monkeypatch.chdir(project / "src")
    assert run(["install", "--from-path", str(pack)]) == 0
    assert (project / ".cursor/rules/amp-notes.md").read_bytes() == BLOCK


def test_openclaw_goes_to_the_home_whatever_the_scope(tmp_path: Path, in_project: Path, pack: Path) -> None:
    home = tmp_path / "home"
    assert run(["install", "--from-path", str(pack), "--agent", "openclaw", "--scope", "project"]) == 0
    assert b"> Pack files: ~/.amp/notes/memory/" in (home / ".openclaw/workspace/AGENTS.md").read_bytes()
    assert not (in_project / ".amp").exists()
    assert run(["uninstall", "notes"]) == 0
    assert names(home) == []


def test_outside_a_project_is_usage(
    tmp_path: Path, in_project: Path, pack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make_project(tmp_path / "nowhere", ()))
    assert run(["install", "--from-path", str(pack)]) == 2
    assert f"Not inside a project: neither '{tmp_path / 'nowhere'}' nor a folder above it" in capsys.readouterr().err
    assert run(["install", "--from-path", str(pack), "--scope", "user"]) == 0
    assert (tmp_path / "home/.claude/CLAUDE.md").exists()


# What would spoil the agent's own file


@pytest.mark.parametrize(
    ("agents", "line"),
    [
        (b"a\nb\x00\n", 2),
        (b"a\n\nb\xff\n", 3),
        ("a\n".encode("utf-16"), 1),
        (b"\xfe\xff", 1),
        (b"\x00", 1),
        (b"\xe9", 1),
    ],
)
def test_install_refuses_an_agents_file_that_is_no_text(
    tmp_path: Path,
    project: Path,
    agents: bytes,
    line: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = look(project)
    pack = make_pack(tmp_path / "pack", files={"agents.md": agents})
    with pytest.raises(AgentsRefused) as refused:
        put(pack, project)
    assert (refused.value.rule, refused.value.file, refused.value.line) == ("agents-text", "agents.md", line)
    assert "as UTF-8" in refused.value.remedy
    assert look(project) == before
    monkeypatch.chdir(project)
    assert run(["install", "--from-path", str(pack), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["error"]
    assert [told[name] for name in ("rule", "file", "line")] == ["agents-text", "agents.md", line]
    assert told["remedy"]
    assert run(["validate", str(pack), "--json"]) == 1
    rules = {one["rule"] for one in json.loads(capsys.readouterr().out)["findings"] if one["severity"] == "error"}
    assert rules & {"agents-text", "not-text"}


def test_refusals_as_json_name_rule_file_line_and_remedy(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    (tmp_path / "none").mkdir()
    secret = make_pack(tmp_path / "secret", files={"notes.txt": "x\nsk-" + "a1" * 12})
    for folder, rule, file, line in (
        (tmp_path / "none", "gate-1", "manifest.json", None),
        (make_pack(tmp_path / "layout", layout="flat"), "gate-3", "manifest.json", None),
        (secret, "credential", "notes.txt", 2),
        (make_pack(tmp_path / "marker", files={"agents.md": "<!-- amp:end @a/b -->"}), "amp-marker", "agents.md", 1),
    ):
        assert run(["install", "--from-path", str(folder), "--json"]) == 1
        told = json.loads(capsys.readouterr().out)["error"]
        assert (told["rule"], told["file"], told["line"]) == (rule, file, line)
        assert told["remedy"]
    assert run(["install", "--from-path", str(tmp_path / "none")]) == 1
    assert "(rule gate-1)." in capsys.readouterr().err


@pytest.mark.parametrize("creator", ["alice", "local"])
def test_install_refuses_a_block_that_it_did_not_write(pack: Path, project: Path, creator: str) -> None:
    text = f"# Rules\n<!-- amp:begin @{creator}/notes -->\nhers\n<!-- amp:end @{creator}/notes -->\n"
    (project / "CLAUDE.md").write_text(text)
    before = look(project)
    with pytest.raises(TargetRefused) as refused:
        put(pack, project)
    assert refused.value.file == "CLAUDE.md"
    assert look(project) == before


def test_install_refuses_a_block_that_became_another_creators(pack: Path, project: Path) -> None:
    put(pack, project)
    path = project / "CLAUDE.md"
    path.write_bytes(path.read_bytes().replace(b"@local/", b"@alice/"))
    before = look(project)
    for change in (put, lambda _, root: take(root)):
        with pytest.raises(TargetRefused, match="another creator"):
            change(pack, project)
        assert look(project) == before


def test_block_without_a_whole_record_is_kept(pack: Path, project: Path) -> None:
    put(pack, project)
    (project / ".amp/.meta/notes.json").write_bytes(b"{}")
    path = project / "CLAUDE.md"
    path.write_bytes(path.read_bytes().replace(AGENTS_MD.encode(), b"hers\n"))
    done = take(project)
    assert done.kept_in is not None
    assert (project / done.kept_in / "block-of-CLAUDE.md").read_bytes().startswith(b"hers\n")
    assert path.read_bytes() == b"# Rules\n"
    assert any("keeps a copy" in warning for warning in done.warnings)
