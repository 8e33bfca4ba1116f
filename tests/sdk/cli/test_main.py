"""The frame of the command line, where its output cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.packs.install_samples import make_pack

FULL = Path("/dev/full")
RUN = [sys.executable, "-m", "melete.cli.main"]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MELETE_")}
    return {**kept, "XDG_DATA_HOME": str(folder), "HOME": str(folder)}


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [["--help"], ["space", "id", "--controller", "0x" + "11" * 20, "--salt", "0x" + "22" * 32], ["nonsense", "--json"],
     ["space", "id", "--controller", "0x12", "--salt", "0x12", "--json"]],
)  # fmt: skip
def test_full_output_is_told_in_one_line_and_is_no_answer(words: list[str], tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run([*RUN, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("melete: the result could not be written to standard output")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ["--help", "pack --help", "pack list", "doctor --json", "pack verify pack"])
def test_closed_output_is_told_in_one_line_and_is_no_answer(words: str, tmp_path: Path) -> None:
    make_pack(tmp_path / "pack")
    (tmp_path / ".git").mkdir()
    command = f"{' '.join(RUN)} {words} >&-"
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    lines = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert done.returncode == 3
    assert lines == ["melete: the result could not be written to standard output (Bad file descriptor)"]


def test_closed_output_undoes_nothing(tmp_path: Path) -> None:
    make_pack(tmp_path / "pack")
    (tmp_path / ".git").mkdir()
    command = f"{' '.join(RUN)} pack install --from-path pack >&-"
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
    )
    assert (done.returncode, "fault in melete" in done.stderr) == (3, False)
    assert (tmp_path / ".amp/notes/manifest.json").exists()


def test_reader_that_goes_away_does_not_change_the_answer(tmp_path: Path) -> None:
    # The same for both commands: what was found stays found, although nobody reads it to its end.
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*RUN, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
