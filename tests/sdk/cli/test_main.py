"""The frame of the command line, where its output cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert done.stderr.startswith("melete: the answer could not be written")
    assert len(done.stderr.splitlines()) == 1


def test_reader_that_goes_away_does_not_make_an_answer_of_it(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*RUN, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (3, "")
