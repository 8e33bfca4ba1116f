from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from melete.cli import amp
from melete.packs.capture.outline import read_outline
from melete.packs.capture.shapes import Shape
from melete.packs.capture.uncut import find_uncut
from melete.packs.capture.units import Candidate, SourceUnit, extract_units

EXAMPLES = """\
## Approved Examples

```
First post
```

- second post

Third paragraph.

~~~
Fourth post
~~~
Why: it is short
"""


def cut(text: str, shape: Shape) -> tuple[list[SourceUnit], list[tuple[int, int, int]]]:
    outline = read_outline(text)
    units = list(extract_units("notes.md", outline, shape, "Ada"))
    numbers = {number for unit in units for number in unit.lines}
    return units, [(one.first, one.last, one.lines) for one in find_uncut("notes.md", outline, numbers)]


def test_fences_and_paragraphs_beside_bullets_are_examples_or_go_to_a_person() -> None:
    units, left = cut(EXAMPLES, Shape.MARKETING_MASTER)
    assert [(unit.line, unit.text, unit.candidate) for unit in units] == [
        (3, "First post", Candidate.DEMONSTRATION),
        (7, "second post", Candidate.DEMONSTRATION),
        (9, "Third paragraph.", Candidate.UNKNOWN),
        (11, "Fourth post\nWhy: it is short", Candidate.DEMONSTRATION),
    ]
    assert left == []


def test_why_below_a_bullet_belongs_to_it() -> None:
    units, left = cut("## Approved Examples\n\n- one\n\nWhy: short\n\n- two\n", Shape.MARKETING_MASTER)
    assert [unit.text for unit in units] == ["one\n\nWhy: short", "two"]
    assert left == []


@pytest.mark.parametrize(
    ("shape", "text", "left"),
    [
        (
            Shape.LOG,
            "# Log\n\npreamble\n\n### 2026-04-18\n\nintro\n- decided: it is free\n\nafter\n\n"
            "```\ncode\n```\n\n## Other\n- x\n",
            [(3, 3, 1), (7, 7, 1), (10, 17, 6)],
        ),
        (
            Shape.PHILOSOPHY,
            "preamble\n\n## Section\n\nprose\n\n## Other\n\n**Short.** One.\n",
            [(1, 5, 3)],
        ),
        (
            Shape.PRIORITIES,
            "preamble\n## Active right now\nthese matter:\n- a\n\nand so on\n",
            [(1, 1, 1), (3, 3, 1), (6, 6, 1)],
        ),
        (Shape.MARKETING_MASTER, "# Master\n\nintro\n\n## Voice\n\nWe sound so:\n\n- warm\n", [(3, 3, 1), (7, 7, 1)]),
        (Shape.FEEDBACK, "# Title only\n", [(1, 1, 1)]),
        (Shape.FEEDBACK, "---\nname: x\n---\n# Title\n<!-- unseen -->\n\n---\n\ntext\n", []),
        (Shape.LOG, "### 2026-04-18\n- ok\n  fine\n  Ada: be brief\n", [(2, 3, 2)]),
    ],
)
def test_what_is_in_no_unit_is_listed(shape: Shape, text: str, left: list[tuple[int, int, int]]) -> None:
    assert cut(text, shape)[1] == left


LINES = [
    "",
    "prose",
    "Why: because",
    "- bullet",
    "  below it",
    "- **Bold.** bullet",
    "**Bold.** line",
    "1. number",
    "> quoted",
    "```",
    "~~~ text",
    "---",
    "<!-- unseen -->",
    "text <!-- begins",
    "ends --> text",
    "# Title",
    "## Approved Examples",
    "## Voice",
    "### Ada's Takes",
    "## Active right now",
    "### 2026-04-18",
    "- Ran /x. Ada: never shout",
    "#### Deep",
]


@pytest.mark.parametrize("shape", list(Shape))
@given(lines=st.lists(st.sampled_from(LINES), max_size=25))
def test_every_line_with_text_is_in_a_unit_or_in_the_list(shape: Shape, lines: list[str]) -> None:
    text = "\n".join(lines)
    units, left = cut(text, shape)
    numbers = {number for unit in units for number in unit.lines}
    listed = {number for first, last, _ in left for number in range(first, last + 1)}
    assert not numbers & listed
    seen = [line for line in read_outline(text).lines if not line.blank]
    for line in seen:
        if line.number in numbers | listed or (not line.code and line.text == "---"):
            continue
        # A heading stands for what is below it, and something there is in a unit.
        level = len(re.match("#*", line.text)[0])  # type: ignore[index]
        assert level
        assert not line.code
        below = (one for one in seen if one.number > line.number)
        for one in below:
            if one.number in numbers:
                break
            assert one.code or not re.match(f"#{{1,{level}}} ", one.text), line
        else:
            pytest.fail(f"line {line.number} of {text!r} is lost")
    told = [line for line in seen if line.number in listed and (line.code or line.text != "---")]
    assert sum(count for _, _, count in left) == len(told)


@pytest.mark.parametrize("shape", list(Shape))
@given(lines=st.lists(st.sampled_from(LINES), max_size=25))
def test_the_words_of_a_unit_stand_in_its_lines(shape: Shape, lines: list[str]) -> None:
    text = "\n".join(lines)
    source = text.split("\n")
    for unit in cut(text, shape)[0]:
        words = " ".join(source[number - 1] for number in unit.lines)
        assert set(re.findall(r"\w+", unit.text)) <= set(re.findall(r"\w+", words))


def test_command_lists_and_counts_what_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "# Log\n\npreamble\nof two lines\n\n### 2026-04-18\n- decided: The plan is free\n\nafter\n"
    Path("main_agent_memory_logs.md").write_text(text)
    assert amp.run(["capture", "main_agent_memory_logs.md", "--name", "x"]) == 0
    out = capsys.readouterr().out
    assert "not cut into units: 3 lines\n" in out
    assert "  - main_agent_memory_logs.md lines 3-4\n  - main_agent_memory_logs.md line 9\n" in out
    amp.run(["capture", "main_agent_memory_logs.md", "--name", "y", "--json"])
    assert json.loads(capsys.readouterr().out)["uncut"] == [
        {"path": "main_agent_memory_logs.md", "first": 3, "last": 4, "lines": 2},
        {"path": "main_agent_memory_logs.md", "first": 9, "last": 9, "lines": 1},
    ]
