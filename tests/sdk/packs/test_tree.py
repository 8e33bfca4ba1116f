from __future__ import annotations

import hashlib
import os
import socket
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, MissingFile
from melete.packs import tree as module
from melete.packs.errors import PackRefused
from melete.packs.tree import find_name_fault, fold_name, load_tree, sorting_key


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    for name in ("manifest.json", "agents.md", "memory/copy-voice.md"):
        write(folder / name, f"This is {name}.\n")
    return folder


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def refusal(action: Callable[[], object]) -> PackRefused:
    with pytest.raises(PackRefused) as caught:
        action()
    assert str(caught.value).isprintable()
    return caught.value


# What is listed


def test_tree_lists_every_file_with_its_size_and_mode(pack: Path) -> None:
    (pack / "agents.md").chmod(0o640)
    (pack / "memory" / "empty").mkdir()
    tree = load_tree(pack)
    assert [file.path for file in tree.files] == ["agents.md", "manifest.json", "memory/copy-voice.md"]
    assert tree.files[0] == ("agents.md", len("This is agents.md.\n"), 0o640)
    assert "memory/copy-voice.md" in tree
    assert "memory" not in tree
    assert tree.root == str(pack)


def test_files_are_sorted_by_utf16_code_unit(pack: Path) -> None:
    for name in ("\ufb33.md", "\U0001f600.md", "B.md", "a.md", "memory.md", "memory-b/x.md", "memory/\u00e9.md"):
        write(pack / name)
    assert [file.path for file in load_tree(pack).files] == [
        *("B.md", "a.md", "agents.md", "manifest.json", "memory-b/x.md", "memory.md", "memory/copy-voice.md"),
        *("memory/\u00e9.md", "\U0001f600.md", "\ufb33.md"),
    ]


@given(st.lists(st.text(max_size=4), max_size=6))
def test_sorting_key_orders_as_javascript_compares(texts: list[str]) -> None:
    def units(text: str) -> list[int]:
        raw = text.encode("utf-16-le", "surrogatepass")
        return [int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)]

    assert sorted(texts, key=sorting_key) == sorted(texts, key=units)


def test_folder_may_be_named_through_a_link_or_with_a_slash(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(pack)
    assert len(load_tree(tmp_path / "link").files) == len(load_tree(f"{pack}/").files) == 3


@pytest.mark.parametrize("name", ["", "nowhere", "file", "file/below", "nul\0"])
def test_what_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write(tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        load_tree(name)
    assert caught.value.field == "pack"


# What is refused


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere")


def make_link_to_folder(path: Path) -> None:
    path.symlink_to(path.parent.parent, target_is_directory=True)


def make_link_inside(path: Path) -> None:
    path.symlink_to("copy-voice.md")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (make_link_to_nothing, "symlink"),
        (make_link_to_folder, "symlink"),
        (make_link_inside, "symlink"),
        (make_fifo, "not-a-file"),
        (make_socket, "not-a-file"),
    ],
)
def test_what_is_no_file_is_refused_by_name(
    pack: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], rule: str
) -> None:
    monkeypatch.chdir(pack / "memory")  # a socket's whole path has to be short
    make(Path("odd.md") if make is make_socket else pack / "memory" / "odd.md")
    error = refusal(lambda: load_tree(pack))
    assert (error.rule, error.file) == (rule, "memory/odd.md")
    assert "odd.md" in str(error)


def test_secret_behind_a_link_is_never_read(pack: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", "hunter2")
    (pack / "memory" / "link.md").symlink_to(secret)
    assert "hunter2" not in str(refusal(lambda: load_tree(pack)))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("a\\b.md", "name-separator"),
        ("a\nb.md", "name-unseen"),
        ("a\x7fb.md", "name-unseen"),
        ("a\u202egnp.md", "name-unseen"),
        ("a\u200b.md", "name-unseen"),
        ("a\U000e0041.md", "name-unseen"),
        ("a\u2028.md", "name-unseen"),
        ("\ufeffa.md", "name-unseen"),
        ("con", "name-windows"),
        ("Aux.md", "name-windows"),
        ("COM1.tar.gz", "name-windows"),
        ("lpt\u00b2.md", "name-windows"),
        ("CONIN$", "name-windows"),
        ("nul .md", "name-windows"),
        ("a:b.md", "name-windows"),
        ("what?.md", "name-windows"),
        ('"a".md', "name-windows"),
        ("a*", "name-windows"),
        ("a|b", "name-windows"),
        ("dot.", "name-windows"),
        ("space ", "name-windows"),
        ("__proto__", "name-javascript"),
    ],
)
@pytest.mark.parametrize("as_folder", [False, True])
def test_name_that_is_not_the_same_everywhere_is_refused(pack: Path, name: str, rule: str, as_folder: bool) -> None:
    path = pack / "memory" / name
    if as_folder:
        path.mkdir()
    else:
        path.touch()
    error = refusal(lambda: load_tree(pack))
    assert (error.rule, error.file) == (rule, f"memory/{name}")
    assert find_name_fault(name) is not None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "\ud800", "x" * 256, "\u00e9" * 128])
def test_name_that_no_file_has_is_a_fault_too(name: str) -> None:
    assert find_name_fault(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        *("a", "agents.md", ".DS_Store", "...a", "a b.md", "-x", "\u00e9.md", "\U0001f600.md", "console.md", "com.md"),
        *("x" * 255, "\u00e9" * 127, "com10", "__proto", "a~", "#", "$HOME", "a'b", "\u4e2d\u6587"),
    ],
)
def test_name_that_is_the_same_everywhere_passes(pack: Path, name: str) -> None:
    assert find_name_fault(name) is None
    write(pack / name)
    assert name in load_tree(pack)


def test_name_that_is_not_utf8_is_refused(pack: Path) -> None:
    try:
        (pack / "memory" / os.fsdecode(b"\xff.md")).touch()
    except OSError:
        pytest.skip("this file system takes no such name")
    assert refusal(lambda: load_tree(pack)).rule == "name-not-utf8"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Voice.md", "voice.md"),
        ("caf\u00e9.md", "cafe\u0301.md"),
        ("CAF\u00c9.md", "cafe\u0301.md"),
        ("stra\u00dfe.md", "STRASSE.md"),
        ("\u212a.md", "k.md"),
        ("\u03c3.md", "\u03c2.md"),
    ],
)
@pytest.mark.parametrize("as_folders", [False, True])
def test_two_names_that_some_file_system_takes_for_one_are_refused(
    pack: Path, first: str, second: str, as_folders: bool
) -> None:
    for name in (first, second):
        write(pack / "memory" / name / "x.md" if as_folders else pack / "memory" / name)
    error = refusal(lambda: load_tree(pack))
    assert error.rule == "name-collision"
    assert fold_name(first) == fold_name(second)
    assert ascii(first) in error.detail
    assert ascii(second) in error.detail


def test_same_name_in_two_folders_is_no_collision(pack: Path) -> None:
    write(pack / "other" / "Copy-Voice.md")
    assert len(load_tree(pack).files) == 4


def test_depth_is_bounded(pack: Path) -> None:
    deepest = pack.joinpath(*["d"] * (module.DEEPEST - 1))
    write(deepest / "x.md")
    load_tree(pack)
    write(deepest / "d" / "x.md")
    assert refusal(lambda: load_tree(pack)).rule == "too-deep"


def test_length_of_a_path_is_bounded(pack: Path) -> None:
    folder = pack.joinpath(*["d" * 200] * 5)
    write(folder / ("x" * (module.LONGEST_PATH - 5 * 201)))
    load_tree(pack)
    write(folder / ("y" * (module.LONGEST_PATH - 5 * 201 + 1)))
    assert refusal(lambda: load_tree(pack)).rule == "path-too-long"


def test_number_of_files_is_bounded(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 4)  # three files and a folder
    load_tree(pack)
    write(pack / "one-more.md")
    assert refusal(lambda: load_tree(pack)).rule == "too-many-files"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folder_that_may_not_be_read_cannot_be_told(pack: Path) -> None:
    (pack / "memory").chmod(0)
    try:
        with pytest.raises(MissingFile):
            load_tree(pack)
    finally:
        (pack / "memory").chmod(0o755)


# What is left out


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ((), {"a~", "agents.md", "manifest.json", "memory/.DS_Store", "memory/copy-voice.md", "memory/x.tmp", "x.tmp"}),
        ((".DS_Store", "*~"), {"agents.md", "manifest.json", "memory/copy-voice.md", "memory/x.tmp", "x.tmp"}),
        (("memory",), {"a~", "agents.md", "manifest.json", "x.tmp"}),
        (("memory/",), {"a~", "agents.md", "manifest.json", "x.tmp"}),
        (("memory/*.tmp", "memory/.DS_Store"), {"a~", "agents.md", "manifest.json", "memory/copy-voice.md", "x.tmp"}),
        (("./x.tmp", "a~"), {"agents.md", "manifest.json", "memory/.DS_Store", "memory/copy-voice.md"}),
        (("memory/copy-voice.MD", "*.TMP", "memory/**"), {"a~", "agents.md", "manifest.json", "x.tmp"}),
        (("*/*",), {"a~", "agents.md", "manifest.json", "x.tmp"}),
    ],
)  # fmt: skip
def test_ignored_files_are_left_out(pack: Path, patterns: tuple[str, ...], left: set[str]) -> None:
    for name in ("a~", "memory/.DS_Store", "memory/x.tmp", "x.tmp"):
        write(pack / name)
    tree = load_tree(pack, ignore=patterns)
    assert {file.path for file in tree.files} == left


def test_what_is_left_out_is_named_and_not_looked_at(pack: Path) -> None:
    write(pack / ".git" / "config")
    (pack / ".git" / "link").symlink_to("/etc/passwd")
    (pack / "memory" / "link~").symlink_to("/etc/passwd")
    tree = load_tree(pack, ignore=[".git", "*~"])
    assert tree.ignored == (".git/", "memory/link~")
    assert len(tree.files) == 3


@pytest.mark.parametrize(
    "patterns", [["manifest.json"], ["*"], ["*.json"], ["./manifest.json"], ["m*.json", "x"], [""], ["/"]]
)
def test_pattern_that_leaves_out_the_manifest_or_says_nothing_is_refused(pack: Path, patterns: list[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_tree(pack, ignore=patterns)
    assert caught.value.field == "ignore"


# What is read


def test_reading_gives_bytes_text_and_hash(pack: Path) -> None:
    content = "Grüße\r\n\u2028".encode()
    (pack / "agents.md").write_bytes(content)
    tree = load_tree(pack)
    assert tree.read_bytes("agents.md") == content
    assert tree.read_text("agents.md") == "Grüße\r\n\u2028"
    assert tree.sha256("agents.md") == hashlib.sha256(content).hexdigest()
    with tree.open("agents.md") as file:
        assert file.read() == content


def test_empty_file_is_read_and_hashed(pack: Path) -> None:
    write(pack / "empty.md")
    tree = load_tree(pack)
    assert tree.read_bytes("empty.md") == b""
    assert tree.sha256("empty.md") == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("path", ["nothing.md", "../secret", "/etc/passwd", "memory", "memory/../agents.md", ""])
def test_only_what_was_listed_is_read(pack: Path, path: str) -> None:
    tree = load_tree(pack)
    for read in (tree.read_bytes, tree.read_text, tree.sha256, tree.open, tree.status):
        with pytest.raises(MissingFile):
            read(path)


@pytest.mark.parametrize(
    ("content", "rule"),
    [(b"\xef\xbb\xbf# A", "byte-order-mark"), (b"a\xff", "not-utf8"), (b"\xed\xa0\x80", "not-utf8")],
)
def test_text_is_utf8_without_a_byte_order_mark(pack: Path, content: bytes, rule: str) -> None:
    (pack / "agents.md").write_bytes(content)
    tree = load_tree(pack)
    assert tree.read_bytes("agents.md") == content
    error = refusal(lambda: tree.read_text("agents.md"))
    assert (error.rule, error.file) == (rule, "agents.md")


def test_reading_is_bounded_and_hashing_is_not(pack: Path) -> None:
    write(pack / "agents.md", "x" * 100)
    tree = load_tree(pack)
    assert len(tree.read_bytes("agents.md", 100)) == 100
    assert refusal(lambda: tree.read_bytes("agents.md", 99)).rule == "too-large"
    assert tree.sha256("agents.md") == hashlib.sha256(b"x" * 100).hexdigest()


def test_hashing_a_large_file_takes_little_memory(pack: Path) -> None:
    with (pack / "large.bin").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tree = load_tree(pack)
    tracemalloc.start()
    try:
        tree.sha256("large.bin")
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


# What changed in between


def swap_for_link(pack: Path) -> None:
    (pack / "memory" / "copy-voice.md").rename(pack.parent / "copy-voice.md")
    (pack / "memory" / "copy-voice.md").symlink_to(pack.parent / "copy-voice.md")


def swap_folder_for_link(pack: Path) -> None:
    (pack / "memory").rename(pack.parent / "memory")
    (pack / "memory").symlink_to(pack.parent / "memory")


def swap_for_fifo(pack: Path) -> None:
    (pack / "memory" / "copy-voice.md").unlink()
    os.mkfifo(pack / "memory" / "copy-voice.md")


def swap_for_folder(pack: Path) -> None:
    (pack / "memory" / "copy-voice.md").unlink()
    (pack / "memory" / "copy-voice.md").mkdir()


def swap_for_file(pack: Path) -> None:
    other = write(pack.parent / "other", (pack / "memory" / "copy-voice.md").read_text())
    other.replace(pack / "memory" / "copy-voice.md")


def lengthen(pack: Path) -> None:
    with (pack / "memory" / "copy-voice.md").open("a") as file:
        file.write("more")


def remove(pack: Path) -> None:
    (pack / "memory" / "copy-voice.md").unlink()


def swap_pack(pack: Path) -> None:
    pack.rename(pack.parent / "old")
    write(pack / "memory" / "copy-voice.md")


@pytest.mark.parametrize(
    "change",
    [swap_for_link, swap_folder_for_link, swap_for_fifo, swap_for_folder, swap_for_file, lengthen, remove, swap_pack],
)
def test_file_that_changed_since_it_was_listed_is_refused(pack: Path, change: Callable[[Path], None]) -> None:
    tree = load_tree(pack)
    change(pack)
    for read in (tree.read_bytes, tree.sha256, tree.open):
        assert refusal(lambda read=read: read("memory/copy-voice.md")).rule == "changed-while-read"  # type: ignore[misc]


def test_file_that_grows_while_it_is_hashed_is_refused(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = load_tree(pack)
    read = os.read

    def read_and_grow(handle: int, size: int) -> bytes:
        monkeypatch.setattr(os, "read", read)
        lengthen(pack)
        return read(handle, size)

    monkeypatch.setattr(os, "read", read_and_grow)
    assert refusal(lambda: tree.sha256("memory/copy-voice.md")).rule == "changed-while-read"


def test_reading_leaves_no_file_open(pack: Path) -> None:
    def count() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    before = count()
    tree = load_tree(pack)
    for name in ("agents.md", "memory/copy-voice.md"):
        tree.read_bytes(name)
        tree.sha256(name)
        tree.open(name).close()
    remove(pack)
    refusal(lambda: tree.sha256("memory/copy-voice.md"))
    (pack / "link").symlink_to("x")
    refusal(lambda: load_tree(pack))
    assert count() == before


def test_one_tree_is_read_by_several_threads(pack: Path) -> None:
    tree = load_tree(pack)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(tree.sha256("agents.md"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
