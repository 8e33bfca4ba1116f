"""Killed or failed anywhere, a change of several files is done or it is not, and what is left over goes."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from melete.errors import StoreBusy, StoreNotWritten
from melete.packs.errors import ChangeUnfinished, TargetRefused
from melete.packs.folder import Draft, Folder
from melete.packs.hosts import Scope
from melete.packs.journal import Swap
from melete.packs.staging import DONE, STAGING, SWAPPING, Staging, is_cut_off

TOKEN = "0123abcd"
#: What a folder holds: the bytes of each file, None for a folder; with modes.
Snapshot = dict[str, tuple[bytes | None, int]]


def look(root: Path) -> Snapshot:
    found: Snapshot = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(root))] = (content, stat.S_IMODE(status.st_mode))
    return found


def fill(files: dict[str, bytes]) -> Callable[[Draft], None]:
    def write(draft: Draft) -> None:
        for path, content in files.items():
            draft.write(path, [content[:3], content[3:]])

    return write


def swap(staging: Staging, path: str, new: bytes | dict[str, bytes] | None) -> Swap:
    before = staging.folder.status(path)
    if isinstance(new, dict):
        return Swap(path, before, fill=fill(new))
    return Swap(path, before, content=new)


Changes = dict[str, bytes | dict[str, bytes] | None]

#: A first install for Cursor, one that replaces an older version, a move to another host file, an uninstall.
FRESH: Changes = {
    ".amp/notes": {"manifest.json": b"{}", "memory/a.md": b"alpha", "memory/deep/b.md": b""},
    ".amp/.meta/notes.json": b"{}",
    ".cursor/rules/amp-notes.md": b"block\n",
}
UPGRADE: Changes = {
    ".amp/.kept/notes-" + TOKEN: {"a.md": b"edited"},
    ".amp/notes": {"manifest.json": b'{"new": 1}', "memory/c.md": b"gamma"},
    ".amp/.meta/notes.json": b'{"version": 2}',
    "AGENTS.md": b"agents with block\n",
    "CLAUDE.md": b"rules\n",
}
UNINSTALL: Changes = {"CLAUDE.md": b"rules\n", ".amp/notes": None, ".amp/.meta/notes.json": None}


def make_bare(root: Path) -> None:
    (root / "CLAUDE.md").write_bytes(b"rules\n")


def make_installed(root: Path) -> None:
    (root / ".amp/notes/memory").mkdir(parents=True)
    (root / ".amp/.meta").mkdir()
    (root / ".amp/notes/manifest.json").write_bytes(b"{}")
    (root / ".amp/notes/memory/a.md").write_bytes(b"alpha")
    (root / ".amp/notes/memory/link").symlink_to("/")
    (root / ".amp/.meta/notes.json").write_bytes(b"{}")
    (root / "CLAUDE.md").write_bytes(b"rules with block\n")
    (root / "CLAUDE.md").chmod(0o640)
    (root / "AGENTS.md").write_bytes(b"agents\n")


CASES: dict[str, tuple[Callable[[Path], None], Changes, tuple[str, ...]]] = {
    "fresh": (make_bare, FRESH, ()),
    "upgrade": (make_installed, UPGRADE, ()),
    "uninstall": (make_installed, UNINSTALL, (".amp/.meta", ".amp")),
}
cases = pytest.mark.parametrize("case", CASES)


def change(root: Path, case: str, on_step: Callable[[str], object] | None = None) -> None:
    _, changes, emptied = CASES[case]
    with Staging(str(root), Scope.PROJECT, on_step=on_step) as staging:
        swaps = [swap(staging, path, new) for path, new in changes.items()]
        staging.change("install", "notes", swaps, token=TOKEN, emptied=emptied)


def make(tmp_path: Path, case: str, name: str = "project") -> Path:
    root = tmp_path / name
    root.mkdir()
    CASES[case][0](root)
    return root


def recover(root: Path) -> list[str]:
    with Staging(str(root), Scope.PROJECT) as staging:
        return staging.recovered


class Stop(BaseException):
    """Raised in a step of a test's choice."""


class At:
    """Does something at one step, once, and counts them all."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.steps: list[str] = []
        self._number, self._act = number, act

    def __call__(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) == self._number:
            self._act()


def raise_stop() -> None:
    raise Stop


def raise_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def start(act: Callable[[], object]) -> int:
    """Start something in a process of its own; return its id. The process ends with 7 if the act does not."""
    child = os.fork()
    if not child:
        code = 7
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child


def run_in_child(act: Callable[[], object]) -> int:
    """Run something in a process of its own; return its wait status."""
    return os.waitpid(start(act), 0)[1]


def count_steps(tmp_path: Path, case: str) -> int:
    counter = At(0, lambda: None)
    change(make(tmp_path, case, "rehearsal"), case, counter)
    return len(counter.steps)


def expected(tmp_path: Path, case: str) -> tuple[Snapshot, Snapshot]:
    """What is there before and after."""
    root = make(tmp_path, case, "expected")
    before = look(root)
    change(root, case)
    return before, look(root)


# Done, or not


@cases
def test_change_puts_everything_in_place_and_leaves_nothing_beside(tmp_path: Path, case: str) -> None:
    root = make(tmp_path, case)
    change(root, case)
    for path, new in CASES[case][1].items():
        if isinstance(new, dict):
            assert {str(one.relative_to(root / path)) for one in (root / path).rglob("*") if one.is_file()} == set(new)
        elif new is None:
            assert not os.path.lexists(root / path)
        else:
            assert (root / path).read_bytes() == new
    assert not [path for path in look(root) if TOKEN in path and ".kept" not in path]
    assert not [path for path in look(root) if "journal" in path or "lock" in path]


def test_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    root = make(tmp_path, "upgrade")
    change(root, "upgrade")
    assert stat.S_IMODE((root / "CLAUDE.md").stat().st_mode) == 0o640


def test_uninstall_removes_folders_that_are_empty_only(tmp_path: Path) -> None:
    root = make(tmp_path, "uninstall")
    change(root, "uninstall")
    assert sorted(look(root)) == ["AGENTS.md", "CLAUDE.md"]
    root = make(tmp_path, "uninstall", "other")
    (root / ".amp/.meta/voice.json").write_bytes(b"{}")
    change(root, "uninstall")
    assert sorted(look(root)) == [".amp", ".amp/.meta", ".amp/.meta/voice.json", "AGENTS.md", "CLAUDE.md"]


@cases
def test_failure_at_any_step_changes_nothing(tmp_path: Path, case: str) -> None:
    before, after = expected(tmp_path, case)
    for number in range(1, count_steps(tmp_path, case) + 1):
        root = make(tmp_path, case, f"failed-{number}")
        at = At(number, raise_full)
        with pytest.raises((StoreNotWritten, ChangeUnfinished)) as caught:
            change(root, case, at)
        if isinstance(caught.value, ChangeUnfinished):  # everything is in place, and the rest is for the next one
            assert at.steps[number - 1].startswith(("discard", "empty", "end"))
            assert recover(root)
            assert look(root) == after
        else:
            assert "No space left" in str(caught.value)
            assert look(root) == before


def test_interruption_from_the_keyboard_changes_nothing(tmp_path: Path) -> None:
    before, _ = expected(tmp_path, "upgrade")
    for number in (4, 9, 14):
        root = make(tmp_path, "upgrade", f"stopped-{number}")
        with pytest.raises(Stop):
            change(root, "upgrade", At(number, raise_stop))
        assert look(root) == before


def test_failure_after_the_last_rename_is_not_called_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, after = expected(tmp_path, "upgrade")
    root = make(tmp_path, "upgrade")
    flush = Folder.flush

    def fail_when_done(folder: Folder, path: str) -> None:
        if (root / DONE).exists():
            raise_full()
        flush(folder, path)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "flush", fail_when_done)
        with pytest.raises(ChangeUnfinished) as caught:
            change(root, "upgrade")
        assert "it is done" in str(caught.value)
    recover(root)
    assert look(root) == after


@cases
def test_kill_at_any_step_is_undone_or_completed_by_the_next(tmp_path: Path, case: str) -> None:
    before, after = expected(tmp_path, case)
    host = "CLAUDE.md"
    for number in range(1, count_steps(tmp_path, case) + 1):
        root = make(tmp_path, case, f"killed-{number}")
        status = run_in_child(lambda root=root, number=number: change(root, case, At(number, kill_self)))
        assert os.WIFSIGNALED(status)
        # Before anybody recovers: the host file is whole, and there.
        assert (root / host).read_bytes() in (before[host][0], after[host][0])
        notes = recover(root)
        assert look(root) in (before, after), number
        assert recover(root) == []
        assert len(notes) == (number > 2), number  # without a journal nothing had begun


def test_kill_while_recovering_is_made_good_too(tmp_path: Path) -> None:
    before, after = expected(tmp_path, "upgrade")
    steps = count_steps(tmp_path, "upgrade")
    for number in range(3, steps + 1, 4):
        for second in range(1, 12, 3):
            root = make(tmp_path, "upgrade", f"killed-{number}-{second}")
            run_in_child(lambda root=root, number=number: change(root, "upgrade", At(number, kill_self)))
            run_in_child(
                lambda root=root, second=second: Staging(
                    str(root), Scope.PROJECT, on_step=At(second, kill_self)
                ).close()
            )
            recover(root)
            assert look(root) in (before, after), (number, second)


# What others did meanwhile


def test_file_that_was_edited_after_a_kill_stays_as_edited(tmp_path: Path) -> None:
    root = make(tmp_path, "upgrade")

    def kill_after_swaps(name: str) -> None:
        if name == f"rename {SWAPPING}":
            kill_self()

    run_in_child(lambda: change(root, "upgrade", kill_after_swaps))
    assert (root / "CLAUDE.md").read_bytes() == b"rules\n"
    (root / "CLAUDE.md").write_bytes(b"my own rules\n")
    notes = recover(root)
    assert (root / "CLAUDE.md").read_bytes() == b"my own rules\n"
    assert (root / f".CLAUDE.md.amp-{TOKEN}.old").read_bytes() == b"rules with block\n"
    assert any("CLAUDE.md was edited since then" in note for note in notes)
    assert (root / "AGENTS.md").read_bytes() == b"agents\n"


def test_file_that_changes_between_plan_and_swap_is_left_alone(tmp_path: Path) -> None:
    root = make(tmp_path, "upgrade")
    before = look(root)

    def edit(name: str) -> None:
        if name == "draft CLAUDE.md":
            (root / "CLAUDE.md").write_bytes(b"typed meanwhile\n")

    with pytest.raises(TargetRefused) as caught:
        change(root, "upgrade", edit)
    assert caught.value.file == "CLAUDE.md"
    assert look(root) == {**before, "CLAUDE.md": (b"typed meanwhile\n", 0o640)}


def test_file_that_appears_between_plan_and_swap_is_not_written_over(tmp_path: Path) -> None:
    root = make(tmp_path, "fresh")

    def write(name: str) -> None:
        if name == "draft .amp/.meta/notes.json":
            (root / ".cursor/rules/amp-notes.md").write_bytes(b"mine\n")

    with pytest.raises(TargetRefused) as caught:
        change(root, "fresh", write)
    assert caught.value.file == ".cursor/rules/amp-notes.md"
    assert (root / ".cursor/rules/amp-notes.md").read_bytes() == b"mine\n"
    assert not (root / ".amp").exists()


# The lock


def test_second_process_waits_and_then_gives_up(tmp_path: Path) -> None:
    with Staging(str(tmp_path), Scope.PROJECT), pytest.raises(StoreBusy):
        Staging(str(tmp_path), Scope.PROJECT, wait_seconds=0.05)
    assert look(tmp_path) == {}


def test_many_processes_take_turns(tmp_path: Path) -> None:
    def count(times: int) -> None:
        for _ in range(times):
            with Staging(str(tmp_path), Scope.PROJECT):
                number = int((tmp_path / "count").read_text())
                time.sleep(0.0005)
                (tmp_path / "count").write_text(str(number + 1))

    (tmp_path / "count").write_text("0")
    children = [start(lambda: count(5)) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert (tmp_path / "count").read_text() == "20"
    assert not (tmp_path / ".amp").exists()


def test_lock_of_a_process_that_is_gone_does_not_block(tmp_path: Path) -> None:
    run_in_child(lambda: (Staging(str(tmp_path), Scope.PROJECT), kill_self()))
    assert (tmp_path / ".amp/.lock").exists()
    with Staging(str(tmp_path), Scope.PROJECT) as staging:
        assert staging.made_packs_folder  # it was not there before anybody began
    assert look(tmp_path) == {}


def test_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    (tmp_path / ".amp").mkdir()
    (tmp_path / ".amp/mine").write_text("")
    with Staging(str(tmp_path), Scope.PROJECT) as staging:
        assert not staging.made_packs_folder
    assert list(look(tmp_path)) == [".amp", ".amp/mine"]


def killed_around_the_lock(root: Path, call: str) -> None:
    """A process that is killed as soon as it has made `.amp`, or a moment before it removes it."""
    real = {name: getattr(os, name) for name in ("open", "unlink")}

    def die_at_lock(*given: Any, **named: Any) -> Any:
        if given[0] == ".lock":
            if call == "unlink":
                real["unlink"](*given, **named)
            kill_self()
        return real[call](*given, **named)

    def run() -> None:
        setattr(os, call, die_at_lock)
        Staging(str(root), Scope.PROJECT).close()

    assert os.WIFSIGNALED(run_in_child(run))


@pytest.mark.parametrize("call", ["open", "unlink"])
def test_folder_that_a_kill_left_empty_goes_with_the_next_change(tmp_path: Path, call: str) -> None:
    # Nobody can tell it from one that a person made and left empty: that one goes too.
    killed_around_the_lock(tmp_path, call)
    assert list(look(tmp_path)) == [".amp"]
    with Staging(str(tmp_path), Scope.PROJECT) as staging:
        assert staging.made_packs_folder
    assert look(tmp_path) == {}


def test_folder_with_a_lock_that_says_nothing_goes_with_the_next_change(tmp_path: Path) -> None:
    (tmp_path / ".amp").mkdir()
    (tmp_path / ".amp/.lock").write_text("")
    recover(tmp_path)
    assert look(tmp_path) == {}


# Links, and journals of others


def links(root: Path, outside: Path) -> Iterator[tuple[str, str]]:
    (outside / "rules").mkdir()
    (root / ".cursor").symlink_to(outside)
    yield ".cursor", ".cursor/rules/amp-notes.md"
    (root / ".cursor").unlink()
    (root / ".cursor").mkdir()
    (root / ".cursor/rules").symlink_to(outside / "rules")
    yield ".cursor/rules", ".cursor/rules/amp-notes.md"


def test_link_on_the_way_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    for link, path in links(root, outside):
        with Staging(str(root), Scope.PROJECT) as staging, pytest.raises(TargetRefused) as caught:
            staging.change("install", "notes", [Swap(path, None, content=b"block")], token=TOKEN)
        assert caught.value.file == link
        assert list(look(outside)) == ["rules"]


@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_packs_folder_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    if kind == "file":
        (root / ".amp").write_bytes(b"")
    else:
        (root / ".amp").symlink_to(outside)
    if kind == "link":
        outside.mkdir()
    with pytest.raises(TargetRefused) as caught:
        Staging(str(root), Scope.PROJECT)
    assert caught.value.file == ".amp"
    assert not outside.exists() or look(outside) == {}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_lock_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / ".amp/.lock"
    lock.parent.mkdir()
    match kind:
        case "link":
            lock.symlink_to(tmp_path / "elsewhere")
        case "pipe":
            os.mkfifo(lock)
        case _:
            lock.mkdir()
    with pytest.raises(TargetRefused) as caught:
        Staging(str(tmp_path), Scope.PROJECT)
    assert caught.value.file == ".amp/.lock"
    assert not (tmp_path / "elsewhere").exists()


def journal(**members: object) -> bytes:
    swaps = [{"path": "CLAUDE.md", "had": False, "new": True, "sha256": "00"}]
    head = {"format": "amp-journal/1", "operation": "install", "slug": "notes", "token": TOKEN}
    return json.dumps({**head, "swaps": swaps, "made": [], "emptied": [], **members}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 5000,
        journal(format="amp-journal/2"),
        journal(slug=".."),
        journal(slug=7),
        journal(token="../../.."),
        journal(token=12345678),
        journal(swaps=[{"path": "../victim", "had": False, "new": True, "sha256": None}]),
        journal(swaps=[{"path": "src", "had": False, "new": True, "sha256": None}]),
        journal(swaps=[{"path": ".amp/other", "had": False, "new": True, "sha256": None}]),
        journal(swaps=[{"path": ".amp/notes/../../src", "had": False, "new": True, "sha256": None}]),
        journal(swaps=[{"path": ["CLAUDE.md"], "had": False, "new": True, "sha256": None}]),
        journal(swaps=7),
        journal(made=["src"]),
        journal(emptied=["/"]),
    ],
)
@pytest.mark.parametrize("phase", [STAGING, SWAPPING, DONE])
def test_journal_that_names_what_is_not_ours_moves_nothing(tmp_path: Path, content: bytes, phase: str) -> None:
    root = tmp_path / "project"
    (root / ".amp/other").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "CLAUDE.md").write_bytes(b"rules\n")
    (tmp_path / "victim").write_bytes(b"")
    (root / phase).write_bytes(content)
    before = look(tmp_path)
    with pytest.raises(ChangeUnfinished):
        Staging(str(root), Scope.PROJECT)
    assert look(tmp_path) == before


def test_journal_that_came_with_a_clone_takes_no_file_that_differs(tmp_path: Path) -> None:
    (tmp_path / ".amp").mkdir()
    (tmp_path / "CLAUDE.md").write_bytes(b"rules\n")
    (tmp_path / SWAPPING).write_bytes(journal())
    recover(tmp_path)
    assert (tmp_path / "CLAUDE.md").read_bytes() == b"rules\n"


def test_change_that_was_cut_off_can_be_seen_without_touching_it(tmp_path: Path) -> None:
    root = make(tmp_path, "fresh")
    run_in_child(lambda: change(root, "fresh", At(6, kill_self)))
    folder = Folder(str(root))
    assert is_cut_off(folder)
    recover(root)
    assert not is_cut_off(folder)
    folder.close()


# Reading


def test_reading_takes_plain_files_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    folder = Folder(str(tmp_path))
    assert folder.read("file", 5) == b"12345"
    assert folder.read("missing", 5) is None
    assert folder.read("folder/missing", 5) is None
    for path in ("link", "folder", "pipe"):
        with pytest.raises(TargetRefused) as caught:
            folder.read(path, 5)
        assert caught.value.file == path
    with pytest.raises(TargetRefused):
        folder.read("file", 4)
    folder.close()


# The disk


def test_file_size_limit_changes_nothing(tmp_path: Path) -> None:
    root = make(tmp_path, "upgrade")
    before = look(root)

    def run() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with Staging(str(root), Scope.PROJECT) as staging:
            big = swap(staging, ".amp/notes", {"manifest.json": b"{}", "memory/big.md": b"x" * 5000})
            host = swap(staging, "CLAUDE.md", b"block\n")
            with pytest.raises(StoreNotWritten):
                staging.change("install", "notes", [host, big], token=TOKEN)

    assert run_in_child(run) == 0
    assert look(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    root = make(tmp_path, "upgrade")
    os.chown(root / "CLAUDE.md", 12, 34)
    change(root, "upgrade")
    status = (root / "CLAUDE.md").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12, 34, 0o640)
