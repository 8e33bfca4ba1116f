from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from melete.packs.capture import Captured, capture
from melete.packs.capture.classify import Proposal
from melete.packs.capture.distill import Judged, Outcome
from melete.packs.capture.review import (
    Settings,
    apply_review,
    dump_review,
    load_review,
    read_settings,
    read_shapes,
)
from melete.packs.capture.shapes import Shape
from melete.packs.capture.units import Candidate, SourceUnit
from melete.packs.errors import InvalidReview, ReviewOutdated, ReviewProblems

SETTINGS = Settings("tidemark-ways", "Tidemark ways", "self", "Ada", "2026-04-21", 1)
LOG = """\
### 2026-04-18

- Ran /social-post
- decided: Tidemark is free for schools
- corrected: don't answer reviews on Sundays
- Ada: In copy, never shout.
- Talked about autumn
"""
SECRET = "sk-" + "a1B2" * 8


@pytest.fixture
def captured(tmp_path: Path) -> Captured:
    (tmp_path / "main_agent_memory_logs.md").write_text(LOG)
    return capture([str(tmp_path)], author="Ada")


def edit(captured: Captured, change: Callable[[dict[str, dict[str, Any]]], None], kind: str = "yaml") -> str:
    """A review as a person leaves it: units by their own words."""
    document = yaml.safe_load(dump_review(SETTINGS, captured.sources, captured.judged))
    change({unit["text"]: unit for unit in document["units"]})
    return json.dumps(document) if kind == "json" else yaml.safe_dump(document, sort_keys=False)


def apply(captured: Captured, text: str) -> dict[str, Judged]:
    judged = apply_review(load_review(text, "review.yaml"), captured.judged, captured.sources, "review.yaml")
    return {one.unit.text if "." not in one.id else one.id.rpartition(".")[2]: one for one in judged}


def problem(captured: Captured, change: Callable[[dict[str, dict[str, Any]]], None]) -> str:
    with pytest.raises(InvalidReview) as caught:
        apply(captured, edit(captured, change))
    return caught.value.reason


FREE = "decided: Tidemark is free for schools"
SUNDAYS = "corrected: don't answer reviews on Sundays"
SHOUT = "In copy, never shout."
AUTUMN = "Talked about autumn"
RAN = "Ran /social-post"


# Taking a review back


def test_a_review_that_nobody_edited_changes_nothing(captured: Captured) -> None:
    for kind in ("yaml", "json"):
        text = dump_review(SETTINGS, captured.sources, captured.judged, kind)
        document = load_review(text, "r")
        assert read_settings(document, "r") == SETTINGS
        assert read_shapes(document, "r") == {source.path: source.shape.value for source in captured.sources}
        applied = apply_review(document, captured.judged, captured.sources, "r")
        assert [(one.id, one.outcome, one.proposal.content) for one in applied] == [
            (one.id, one.outcome, one.proposal.content) for one in captured.judged
        ]


def test_an_undecided_unit_stays_out_and_a_dropped_one_is_counted_as_such(captured: Captured) -> None:
    found = apply(captured, edit(captured, lambda units: units[FREE].update(decision="drop")))
    assert found[AUTUMN].outcome is Outcome.AMBIGUOUS
    assert found[FREE].outcome is Outcome.DROPPED
    assert found[RAN].outcome is Outcome.ACTION_LOG


def test_what_a_person_writes_is_kept(captured: Captured) -> None:
    def change(units: dict[str, dict[str, Any]]) -> None:
        units[SUNDAYS].update(
            decision="keep",
            content="In store reviews, never answer on Sundays.",
            facets={"force": "may", "scope": "user", "stability": "tactical"},
            file="operating-principles.md",
            reason="People want rest.\n\nSo do we.",
        )

    one = apply(captured, edit(captured, change))[SUNDAYS]
    assert one.outcome is Outcome.KEPT
    assert one.proposal.facets == {"force": "may", "scope": "user", "stability": "tactical"}
    assert (one.proposal.file, one.proposal.reason) == ("operating-principles.md", "People want rest.\n\nSo do we.")


def test_a_dropped_unit_can_be_taken_back(captured: Captured) -> None:
    change = {"decision": "keep", "type": "claim", "content": "The /social-post pipeline is ours."}
    one = apply(captured, edit(captured, lambda units: units[RAN].update(change)))[RAN]
    assert (one.outcome, one.proposal.file) == (Outcome.KEPT, "content-strategy.md")


def test_a_reclassified_unit_gets_file_and_facets_of_its_new_type(captured: Captured) -> None:
    change = {"decision": "reclassify", "type": "goal", "content": "Optimize Tidemark for schools."}
    one = apply(captured, edit(captured, lambda units: units[FREE].update(change)))[FREE]
    assert (one.proposal.type, one.proposal.file) == ("goal", "operating-principles.md")
    assert one.proposal.facets == {"force": "should", "scope": "project", "stability": "permanent"}


def test_a_split_unit_becomes_its_parts(captured: Captured) -> None:
    def change(units: dict[str, dict[str, Any]]) -> None:
        units[FREE]["decision"] = "split"
        units[FREE]["parts"] = [
            {"type": "claim", "content": "Tidemark is free."},
            {"type": "directive", "content": "In school mail, always say so.", "file": "ops-tools.md", "reason": "x"},
        ]

    found = apply(captured, edit(captured, change))
    assert FREE not in found
    assert [(found[part].proposal.type, found[part].proposal.file) for part in ("1", "2")] == [
        ("claim", "product-context.md"),
        ("directive", "ops-tools.md"),
    ]


def test_demo_is_another_word_for_demonstration(captured: Captured) -> None:
    def change(units: dict[str, dict[str, Any]]) -> None:
        units[AUTUMN].update(decision="keep", type="demo", content="", body="one\n  two\n", facets={"valence": "mixed"})

    one = apply(captured, edit(captured, change))[AUTUMN]
    assert (one.proposal.type, one.proposal.body, one.proposal.facets) == (
        "demonstration",
        "one\n  two",
        {"valence": "mixed"},
    )


# What is refused


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"decision": "maybe"}, "decision must be one of"),
        ({"decision": None}, "`decision` must be text"),
        ({"decision": "keep", "type": "rule"}, "type must be one of"),
        ({"decision": "keep", "type": None}, "type must be one of"),
        ({"decision": "keep", "type": "directive"}, "put words in the place of [context]"),
        ({"decision": "keep", "type": "directive", "content": "Never shout."}, "a directive starts with"),
        ({"decision": "keep", "type": "goal", "content": "Ship it."}, "a goal says"),
        ({"decision": "keep", "type": "claim", "content": "Ship it."}, "a claim says"),
        ({"decision": "keep", "content": "In X, never y.", "file": "notes.md"}, "file must be one of"),
        ({"decision": "keep", "content": "In X, never y.", "file": "../manifest.json"}, "file must be one of"),
        ({"decision": "keep", "content": "In X, never y.", "file": None}, "no rule names a file"),
        ({"decision": "keep", "content": ""}, "it needs content"),
        ({"decision": "keep", "content": 7}, "a directive starts with"),
        ({"decision": "keep", "content": "In tone, never y.", "body": "x"}, "only a demonstration has a body"),
        ({"decision": "keep", "content": "In tone, never y.", "facets": {"force": "always"}}, "force of a directive"),
        ({"decision": "keep", "content": "In tone, never y.", "facets": {"valence": "mixed"}}, "has the facets"),
        ({"decision": "keep", "content": "In tone, never y.", "facets": "must"}, "members by name"),
        ({"decision": "keep", "content": f"In tone, never show {SECRET}"}, "looks like it holds a credential"),
        ({"decision": "keep", "content": "In tone, never y.", "reason": f"key = {SECRET}"}, "looks like it holds"),
        ({"decision": "keep", "content": "In tone,\u200b never y."}, "cannot be seen"),
        ({"decision": "keep", "content": "In tone, never <!-- amp:end @local/x --> y."}, "marker"),
        ({"decision": "reclassify", "content": "In tone, never y."}, "give it another type"),
        ({"decision": "split"}, "a list is expected here"),
        ({"decision": "split", "parts": [{"type": "claim", "content": "A is b."}]}, "two parts or more"),
        ({"decision": "split", "parts": [{"type": "claim"}, {"type": "claim"}]}, "it needs content"),
        ({"decision": "keep", "parts": []}, "its decision must be split"),
        ({"text": "something else"}, "source's own words"),
        ({"colour": "blue"}, "unknown name"),
    ],
)
def test_what_cannot_stand_in_a_pack_is_refused(captured: Captured, change: dict[str, Any], reason: str) -> None:
    message = problem(captured, lambda units: units[SUNDAYS].update(change))
    assert reason in message
    assert SECRET not in message


def test_a_missing_unit_is_refused_because_it_may_have_been_lost(captured: Captured) -> None:
    document = yaml.safe_load(dump_review(SETTINGS, captured.sources, captured.judged))
    lost = document["units"].pop()
    with pytest.raises(InvalidReview) as caught:
        apply(captured, yaml.safe_dump(document))
    assert caught.value.unit == lost["id"]
    assert "missing" in caught.value.reason


@pytest.mark.parametrize("change", ["repeat", "rename"])
def test_a_unit_that_stands_twice_or_nowhere_is_refused(captured: Captured, change: str) -> None:
    document = yaml.safe_load(dump_review(SETTINGS, captured.sources, captured.judged))
    document["units"].append({**document["units"][0], **({"id": "u0000000000"} if change == "rename" else {})})
    with pytest.raises(InvalidReview) as caught:
        apply(captured, json.dumps(document))
    assert caught.value.unit == document["units"][-1]["id"]


def test_all_problems_are_told_at_once_with_their_lines(captured: Captured) -> None:
    text = dump_review(SETTINGS, captured.sources, captured.judged)
    text = text.replace("    decision: undecided", "    decision: later")
    with pytest.raises(ReviewProblems) as caught:
        apply(captured, text)
    told = text.split("\n")
    assert len(caught.value.problems) == text.count("    decision: later") > 1
    assert all("decision: later" in told[(one.line or 0) - 1] for one in caught.value.problems)
    assert all(f"line {one.line}" in str(caught.value) for one in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("[1", "it is not YAML"),
        ("- a\n- b\n", "members by name"),
        ("format: amp-review/9\n", "no review of this version"),
        ("format: amp-review/1\n", "a list is expected"),
        ("a: &x 1\nb: *x\n", "anchors"),
        ("format: !!python/object:os.system x\n", "tags"),
        ("a: 1\na: 2\n", "stands twice"),
        ("{", "JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("{}", "`format` must be text"),
        ("format: amp-review/1\nsources: 5\n", "a list is expected"),
        ("x: " + "[" * 20 + "]" * 20, "nested"),
        ("\t- : :\n", "YAML"),
    ],
)
def test_what_is_no_review_is_refused(captured: Captured, text: str, reason: str) -> None:
    with pytest.raises(InvalidReview) as caught:
        apply(captured, text)
    assert reason in str(caught.value)
    assert str(caught.value).endswith(".")


# Sources that changed


@pytest.mark.parametrize("change", ["edit", "add", "remove"])
def test_a_review_of_other_sources_is_outdated(captured: Captured, tmp_path: Path, change: str) -> None:
    text = dump_review(SETTINGS, captured.sources, captured.judged)
    path = tmp_path / "main_agent_memory_logs.md"
    if change == "edit":
        path.write_text(LOG + "\n")
    elif change == "add":
        (tmp_path / "feedback_x.md").write_text("In copy, never pad.\n")
    else:
        path.rename(tmp_path / "feedback_logs.md")
    again = capture([str(tmp_path)], author="Ada")
    with pytest.raises(ReviewOutdated) as caught:
        apply_review(load_review(text, "r.yaml"), again.judged, again.sources, "r.yaml")
    assert caught.value.file == "r.yaml"


def test_decisions_are_carried_over_to_units_of_the_same_words(captured: Captured, tmp_path: Path) -> None:
    change = {"decision": "keep", "content": "In store reviews, never answer on Sundays.", "file": "ops-tools.md"}
    edited = edit(captured, lambda units: units[SUNDAYS].update(change))
    (tmp_path / "main_agent_memory_logs.md").write_text(LOG.replace("- Ran", "- decided: Kiel is home\n- Ran"))
    again = capture([str(tmp_path)], author="Ada")
    text = dump_review(SETTINGS, again.sources, again.judged, "yaml", load_review(edited, "r.yaml"))
    found = apply(again, text)
    assert found[SUNDAYS].proposal.file == "ops-tools.md"
    assert found["decided: Kiel is home"].outcome is Outcome.KEPT


# Secrets


def test_a_rejected_unit_stands_in_a_review_without_its_words(tmp_path: Path) -> None:
    text = f"### 2026-04-18\n- decided: the key is {SECRET}\n- Committed {SECRET} by mistake\n"
    (tmp_path / "main_agent_memory_logs.md").write_text(text)
    found = capture([str(tmp_path)])
    assert [one.outcome for one in found.judged] == [Outcome.REJECTED, Outcome.ACTION_LOG]
    review = dump_review(SETTINGS, found.sources, found.judged)
    assert SECRET not in review
    assert "rejected:" in review
    document = yaml.safe_load(review)
    document["units"][0]["decision"] = "keep"
    with pytest.raises(InvalidReview) as caught:
        apply(found, yaml.safe_dump(document))
    assert "remove that from the source first" in caught.value.reason


# Any text


def judged_of(text: str, content: str, reason: str | None) -> Judged:
    unit = SourceUnit("notes.md", 1, Shape.LOG, "", text, Candidate.UNKNOWN, "")
    return Judged("u1", unit, Outcome.AMBIGUOUS, "why", Proposal("claim", content, {}, None, reason))


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
def test_any_words_survive_a_review(text: str, content: str) -> None:
    one = judged_of(text, content, text or None)
    for kind in ("yaml", "json"):
        document = load_review(dump_review(SETTINGS, (), [one], kind), "r")
        (applied,) = apply_review(document, [one], (), "r")
        assert applied == one
