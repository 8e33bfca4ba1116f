"""The picture of a timeline: readable, the same each time, and harmless whatever a subject chose."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.text import Text

from melete.chain.reverts import compute_selector
from melete.cli.main import run
from melete.cli.subject_timeline import check_picture, decode_floor_call, timeline_json, write_picture
from melete.cli.timeline_picture import LATEST_DRAWN, LOOKS, Captions, build_figure, draw
from melete.errors import InvalidInput, MissingExtra, StoreNotWritten
from melete.meditation.policy import Floor
from melete.primitives import Address
from models import meditation as model

from ..meditation.timeline_stories import DAY, HOUR, POLICY, START, SUBJECT, Story

CAPTIONS = Captions("Registered maintenance of 0x11", "registry 0x22 on chain 1", "what it does not mean")
HOSTILE = "</text><script>alert(1)</script>&lt;\"'--><![CDATA[ $\\frac{1}{0}$ \x1b[31m \u202e javascript:"


def eventful() -> Story:
    """A story in which everything happens that a picture shows."""
    story = Story(replace(POLICY, policy_uri=HOSTILE))
    story.wait(5 * HOUR).pulse().wait(11 * HOUR).cycle(changed=(0, 1, 2)).wait(18 * HOUR).cycle(1)
    story.wait(9 * HOUR).set_floor(model.Floor(3, 2 * HOUR, (12 * HOUR, 2 * DAY, 0, 0))).wait(HOUR)
    story.demand(12, 30 * HOUR).wait(16 * HOUR).cycle(5, 4, age=5 * HOUR, changed=(2,)).wait(5 * HOUR).withdraw(8)
    story.set_policy(policy_uri=HOSTILE).wait(20 * HOUR).cycle(1, 0).wait(2 * HOUR).cycle(1, changed=(0,))
    return story.wait(3 * HOUR).demand(11, 10 * HOUR).wait(HOUR).demand(2, 20 * HOUR).wait(6 * HOUR).pulse()


def quiet() -> Story:
    return Story(replace(POLICY, required_layers=3, supported_layers=7, pulse_interval=0))


def many_versions() -> Story:
    story = Story()
    for number in range(40):
        story.wait(HOUR).set_policy()
        if number % 3 == 0:
            story.set_floor(model.Floor(1, 0, (HOUR, 0, 0, 0)))
    return story


STORIES = {"eventful": eventful, "quiet": quiet, "many versions": many_versions}


# What is drawn


def test_svg_is_the_same_each_time_in_each_process():
    first = draw(eventful().timeline(), CAPTIONS, "svg")
    assert draw(eventful().timeline(), CAPTIONS, "svg") == first
    program = (
        "import sys; from sdk.cli.test_subject_timeline import *;"
        "sys.stdout.buffer.write(draw(eventful().timeline(), CAPTIONS, 'svg'))"
    )
    tests = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{tests.parent}", "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, cwd=tests, check=True)
    assert done.stdout == first


def test_png_is_the_same_each_time_and_carries_no_time_of_drawing():
    picture = draw(eventful().timeline(), CAPTIONS, "png")
    assert picture == draw(eventful().timeline(), CAPTIONS, "png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) >= (1600, 900)
    assert b"tIME" not in picture
    assert b"matplotlib" not in picture.lower()


def test_svg_holds_nothing_that_acts_and_nothing_that_a_subject_chose():
    picture = draw(eventful().timeline(), CAPTIONS, "svg")
    tree = ElementTree.fromstring(picture)  # noqa: S314 - we made it
    names = {element.tag.rpartition("}")[2].lower() for element in tree.iter()}
    assert not names & {"script", "foreignobject", "a", "image", "iframe", "animate", "set"}
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            if name.endswith("href"):
                assert value.startswith("#")
            assert "javascript" not in value
    assert b"alert" not in picture
    assert b"<dc:date>" not in picture
    assert not re.search(rb"\d{4}-\d\d-\d\dT", picture)


def test_captions_are_escaped_and_stand_in_the_description():
    captions = Captions(f"of {HOSTILE}".replace("\x1b", ""), "a & b < c $x$", "-- --> <b>")
    picture = draw(Story().timeline(), captions, "svg")
    tree = ElementTree.fromstring(picture)  # noqa: S314
    texts = [element.text for element in tree.iter() if element.tag.endswith(("title", "description"))]
    assert "a & b < c $x$" in texts
    assert b"<script" not in picture


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_no_text_is_cut_off_or_runs_into_another(story):
    timeline = story().timeline()
    figure = build_figure(timeline, CAPTIONS)
    figure.canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    for text, box in boxes:
        assert (box.x0 >= 0, box.y0 >= 0, box.x1 <= figure.bbox.x1, box.y1 <= figure.bbox.y1) == (True,) * 4, text
    outside = [(text, box) for text, box in boxes if not _inside(box, figure.axes[0].bbox)]
    for place, (text, box) in enumerate(outside):
        for other, another in outside[place + 1 :]:
            assert not box.overlaps(another), (text, other)


def _inside(box: Any, frame: Any) -> bool:
    return box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1


def test_every_status_is_drawn_and_named():
    figure = build_figure(eventful().timeline(), CAPTIONS)
    texts = {text.get_text() for text in figure.findobj(Text)}
    for words in ("FRESH", "OVERDUE", "SILENT", "PRESENT", "policy 2", "floor 1", "0 runtime", "3 cognition", "signal"):
        assert words in texts
    assert CAPTIONS.title in texts
    assert CAPTIONS.source in texts
    assert CAPTIONS.not_meant in texts
    assert any("if nothing else is registered" in text for text in texts)


def test_statuses_are_told_apart_without_their_hue():
    """Each pair differs in hatch, or clearly in brightness."""

    def brightness(fill: str) -> float:
        red, green, blue = (int(fill[place : place + 2], 16) for place in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for group in (("FRESH", "DUE", "OVERDUE", "UNSCHEDULED"), ("PRESENT", "SILENT", "NOT_TRACKED")):
        looks = [LOOKS[name] for name in group]
        for place, look in enumerate(looks):
            for other in looks[place + 1 :]:
                assert look.hatch != other.hatch or abs(brightness(look.fill) - brightness(other.fill)) > 30


def test_settings_of_the_user_change_nothing(monkeypatch):
    import matplotlib

    plain = draw(Story().timeline(), CAPTIONS, "svg")
    for name, value in {"axes.facecolor": "red", "font.size": 30.0, "svg.hashsalt": None}.items():
        monkeypatch.setitem(matplotlib.rcParams, name, value)
    assert draw(Story().timeline(), CAPTIONS, "svg") == plain
    assert matplotlib.rcParams["font.size"] == 30.0


def test_local_time_is_the_zone_of_whoever_looks(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "EST5EDT")
    time.tzset()
    try:
        figure = build_figure(Story().timeline(), CAPTIONS)
        assert "local time, EST (UTC-0500)" in {text.get_text() for text in figure.findobj(Text)}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_window_beyond_the_calendar_is_refused_and_its_facts_are_not():
    timeline = Story().timeline(START, LATEST_DRAWN + 1)
    with pytest.raises(InvalidInput, match="9999"):
        draw(timeline, CAPTIONS, "svg")
    assert timeline_json(timeline)["to"] == LATEST_DRAWN + 1


def test_short_overdue_is_seen_in_a_long_window():
    story = Story().wait(DAY + 60).cycle(1).wait(12 * HOUR).cycle()
    timeline = story.timeline(START, START + 300 * DAY)
    patches = build_figure(timeline, CAPTIONS).axes[0].patches
    overdue = [patch for patch in patches if patch.get_hatch() == LOOKS["OVERDUE"].hatch]
    assert min(patch.get_width() for patch in overdue) >= 300 / 700


def test_window_that_is_all_ahead_is_veiled_and_says_so():
    story = Story()
    timeline = story.timeline(story.now + DAY, story.now + 2 * DAY)
    axes = build_figure(timeline, CAPTIONS).axes[0]
    assert any("after the last block; it holds if nothing else" in text.get_text() for text in axes.texts)
    (veil,) = [patch for patch in axes.patches if patch.get_alpha() == 0.5]
    assert (veil.get_x() * DAY, veil.get_width() * DAY) == pytest.approx((timeline.start, DAY))


def test_what_happened_to_a_very_young_subject_stands_clear_of_the_edge():
    axes = build_figure(Story().wait(2).cycle().timeline(), CAPTIONS).axes[0]
    left, right = axes.get_xlim()
    assert (START / DAY - left) / (right - left) > 0.04


# Facts


def test_facts_are_plain_json_with_everything_that_is_drawn():
    found = json.loads(json.dumps(timeline_json(eventful().timeline())))
    assert [layer["name"] for layer in found["layers"]] == ["runtime", "memory-skills", "tasks-roles", "cognition"]
    runtime = found["layers"][0]
    assert [span["status"] for span in runtime["spans"]][:2] == ["NOT_ENROLLED", "FRESH"]
    assert {span["status"] for span in runtime["spans"]} == {"NOT_ENROLLED", "FRESH", "DUE", "OVERDUE"}
    assert [cycle["record"] for cycle in runtime["cycles"]] == ["2", "3", "4", "5", "6"]
    assert runtime["deadlines"][0]["causes"] == ["enrolled"]
    assert [demand["ending"] for demand in found["layers"][2]["demands"]] == ["met"]
    assert {sign["kind"] for sign in found["signal"]["signs"]} == {"enrollment", "pulse", "cycle"}
    assert [(policy["version"], policy["policyURI"]) for policy in found["policies"]] == [(1, HOSTILE), (2, HOSTILE)]
    assert found["floors"][0]["requiredLayers"] == ["runtime", "memory-skills"]
    assert found["subject"] == SUBJECT
    assert "not health" in found["notMeant"]


# Files


@pytest.mark.parametrize("name", ["picture", "picture.pdf", "picture.svgz", ".png.txt", "png"])
def test_file_of_another_kind_is_refused(tmp_path, name):
    with pytest.raises(InvalidInput) as refused:
        check_picture(str(tmp_path / name))
    assert refused.value.field == "--out"


def test_link_folder_and_missing_folder_are_refused(tmp_path):
    (tmp_path / "real.svg").write_text("kept")
    (tmp_path / "link.svg").symlink_to(tmp_path / "real.svg")
    (tmp_path / "folder.svg").mkdir()
    for name in ("link.svg", "folder.svg", "nowhere/picture.svg"):
        with pytest.raises(InvalidInput, match="--out"):
            check_picture(str(tmp_path / name))
    assert check_picture(str(tmp_path / "real.svg")) == "svg"
    assert check_picture(str(tmp_path / "NEW.PNG")) == "png"


def test_without_matplotlib_the_extra_is_named_before_a_node_is_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra) as missing:
        check_picture(str(tmp_path / "picture.svg"))
    assert missing.value.extra == "plot"
    assert run(["subject", "timeline", SUBJECT, "--out", str(tmp_path / "picture.svg")]) == 3
    assert "melete[plot]" in capsys.readouterr().err


def test_picture_is_written_over_whole_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "picture.svg"
    path.write_bytes(b"old")
    write_picture(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_picture_that_cannot_be_written_is_told_and_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "picture.svg"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreNotWritten, match="No space left"):
        write_picture(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(StoreNotWritten):
        write_picture(tmp_path / "nowhere" / "picture.svg", b"new")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--out"),
        (["--out", "picture.pdf"], ".svg or .png"),
        (["--out", "picture.svg", "--from", "someday"], "is no time"),
        (["--out", "picture.svg", "--from-block", "-1"], "from-block"),
    ],
)
def test_wrong_words_are_usage(words, told, capsys):
    assert run(["subject", "timeline", SUBJECT, *words]) == 2
    assert told in capsys.readouterr().err


# Floors that are read from calls


def floor_call(subject: str, floor: Floor) -> bytes:
    from eth_abi.abi import encode

    words = (floor.required_layers, floor.pulse_interval, floor.max_interval)
    selector = compute_selector("setFloor(address,(uint8,uint48,uint48[4]))")
    return selector + encode(["address", "(uint8,uint48,uint48[4])"], [subject, words])


def test_floor_is_read_from_the_call_that_set_it():
    floor = Floor(3, 60, (1, 2, 0, 0))
    assert decode_floor_call(Address(SUBJECT), floor_call(SUBJECT, floor)) == floor


def test_other_calls_hold_no_floor():
    call = floor_call(SUBJECT, Floor(1, 0, (5, 0, 0, 0)))
    for data in (b"", b"\0\0\0\0" + call[4:], call[:-1], call[:4], floor_call("0x" + "99" * 20, Floor())):
        assert decode_floor_call(Address(SUBJECT), data) is None
