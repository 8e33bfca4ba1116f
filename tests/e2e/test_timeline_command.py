"""A timeline of a life on a chain: what it says of every block is what the registry said then."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from melete import Address, LocalSigner, keccak256
from melete.chain.anvil import Anvil
from melete.chain.connection import connect
from melete.chain.transactions import LocalSender
from melete.cli import subject_timeline
from melete.cli.main import run
from melete.meditation.cycle import CycleReport, Outcome
from melete.meditation.layers import to_commitments
from melete.meditation.policy import Floor, Policy
from melete.meditation.registry import MeditationRegistry

HOLDS, DOES_NOT_HOLD, USAGE, COULD_NOT_TELL = 0, 1, 2, 3
HOUR, DAY, START = 3600, 86400, 1_900_000_000
HOSTILE = '</text><script>alert(1)</script>" onload="x'
POLICY = Policy(15, 15, 15, 1, HOUR, 6 * HOUR, (DAY, 7 * DAY, 30 * DAY, 90 * DAY), policy_uri=HOSTILE)
BASELINE = to_commitments(keccak256(b"layer %d" % layer) for layer in range(4))


class Life:
    """A subject and its controller on a registry, each act in a block with a time of its own."""

    def __init__(self, url: str) -> None:
        self.w3 = connect(url)
        self.signers = {role: LocalSigner(keccak256(role.encode())) for role in ("subject", "controller")}
        for signer in self.signers.values():
            self.w3.provider.make_request("anvil_setBalance", [str(signer.address), hex(10**20)])
        self.registry, receipt = MeditationRegistry.deploy(self.w3, LocalSender(self.signers["controller"]))
        self.first_block = receipt.block_number
        self.subject = self.signers["subject"].address

    def at(self, time: int, role: str = "subject") -> MeditationRegistry:
        """The registry as somebody uses it in the next block; the one before it is a second earlier."""
        self.w3.provider.make_request("evm_mine", [START + time - 1])
        self.w3.provider.make_request("evm_setNextBlockTimestamp", [START + time])
        self.registry.sender = LocalSender(self.signers[role])
        return self.registry

    def cycle(self, time: int, mask: int, completed: int, age: int, changed: int | None = None) -> None:
        registry = self.at(time)
        loaded = registry.load_subject(self.subject)
        after = [
            keccak256(word) if layer == changed else word for layer, word in enumerate(loaded.commitments)
        ]  # fmt: skip
        outcome = Outcome.COMPLETED if mask == completed else Outcome.PARTIAL if completed else Outcome.ABORTED
        ended = START + time - age
        policies = registry.policies(self.subject)
        version = max(number for number, (_, since) in enumerate(policies, 1) if since <= ended)
        head = loaded.head
        registry.report(
            self.subject,
            CycleReport(
                head.state_version,
                head.root,
                to_commitments(after),
                mask,
                completed,
                0,
                outcome,
                0,
                version,
                ended,
                ended,
            ),
        )


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with Anvil(options=("--timestamp", str(START - 1000))) as node:
        told = Life(node.url)
        told.at(0).enroll(BASELINE, POLICY, told.signers["controller"].address, 7)
        told.at(5 * HOUR).pulse(told.subject)
        told.cycle(16 * HOUR, 15, 15, age=HOUR, changed=0)
        told.at(30 * HOUR, "controller").set_floor(told.subject, Floor(3, 2 * HOUR, (12 * HOUR, DAY, 0, 0)))
        told.at(31 * HOUR, "controller").demand(told.subject, 12, START + 40 * HOUR)
        told.cycle(45 * HOUR, 5, 4, age=5 * HOUR, changed=2)
        told.at(46 * HOUR, "controller").withdraw_demand(told.subject, 8)
        told.at(47 * HOUR).set_policy(told.subject, replace(POLICY, max_interval=(2 * DAY,) * 4, due_window=0))
        told.at(48 * HOUR, "controller").set_floor(told.subject, Floor(1, 0, (3 * HOUR, 0, 0, 0)))
        told.cycle(60 * HOUR, 1, 1, age=60)
        told.at(64 * HOUR).pulse(told.subject)
        yield told


@pytest.fixture
def melete(life, tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, Any]]:
    """Run `melete subject timeline` for the subject with --json; return exit code and what was found."""
    for name in list(os.environ):
        if name.startswith("MELETE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MELETE_RPC_URL", life.w3.provider.endpoint_uri)
    monkeypatch.setenv("MELETE_MEDITATION_REGISTRY", str(life.registry.address))
    monkeypatch.chdir(tmp_path)

    def command(*words: object, of: Address | None = None) -> tuple[int, Any]:
        code = run(["subject", "timeline", str(of or life.subject), *(str(word) for word in words), "--json"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out)

    return command


def test_every_block_has_the_statuses_that_the_registry_gave_then(melete, life):
    code, found = melete("--from-block", life.first_block)
    assert code == HOLDS
    judged = 0
    for number in range(life.first_block, life.w3.eth.block_number + 1):
        at = life.w3.eth.get_block(number)["timestamp"]
        (statuses,) = life.registry.load_statuses([life.subject], number)
        if at < START:
            continue
        judged += 1
        for lane, status in zip(found["layers"], statuses.layers, strict=True):
            (span,) = [span for span in lane["spans"] if span["from"] <= at < span["to"]]
            assert (span["status"], span["deadline"]) == (status.status.name, status.deadline)
        (span,) = [span for span in found["signal"]["spans"] if span["from"] <= at < span["to"]]
        assert span["status"] == statuses.signal.status.name
    assert judged == 21


def test_facts_tell_the_whole_life(melete, life):
    code, found = melete()
    assert (code, found["subject"], found["enrolledAt"], found["clock"]) == (
        HOLDS, str(life.subject), START, START + 64 * HOUR,
    )  # fmt: skip
    assert [(kept["version"], kept["effectiveFrom"] - START) for kept in found["policies"]] == [(1, 0), (2, 47 * HOUR)]
    assert [(kept["version"], kept["maxInterval"][0]) for kept in found["floors"]] == [(1, 12 * HOUR), (2, 3 * HOUR)]
    assert found["policies"][0]["policyURI"] == HOSTILE
    demands = [[demand["ending"] for demand in lane["demands"]] for lane in found["layers"]]
    assert demands == [[], [], ["met"], ["withdrawn"]]
    (demand,) = found["layers"][2]["demands"]
    assert (demand["demandedAt"] - START, demand["record"]) == (31 * HOUR, "3")
    assert [sign["kind"] for sign in found["signal"]["signs"]] == [
        "enrollment", "pulse", "cycle", "cycle", "cycle", "pulse",
    ]  # fmt: skip


def test_picture_is_written_and_holds_nothing_that_the_subject_chose(melete, life, tmp_path):
    for name in ("life.svg", "life.png"):
        code, found = melete("--out", name, "--from-block", life.first_block)
        assert (code, found["out"]) == (HOLDS, name)
    svg = (tmp_path / "life.svg").read_bytes()
    assert b"alert" not in svg
    tree = ElementTree.fromstring(svg)  # noqa: S314
    texts = [element.text or "" for element in tree.iter() if element.tag.endswith(("title", "description"))]
    assert f"Registered maintenance of {life.subject}" in texts
    assert any(str(life.registry.address) in text and "block" in text for text in texts)
    assert (tmp_path / "life.png").read_bytes().startswith(b"\x89PNG")
    melete("--out", "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == svg


def test_window_is_what_is_asked_for(melete):
    code, found = melete("--from", START + HOUR, "--to", START + 200 * HOUR)
    assert (code, found["from"], found["to"]) == (HOLDS, START + HOUR, START + 200 * HOUR)
    assert found["layers"][0]["spans"][-1]["status"] == "OVERDUE"
    code, found = melete("--from", START + HOUR, "--to", START + HOUR)
    assert (code, found["error"]["name"], found["error"]["field"]) == (USAGE, "InvalidInput", "window")


def test_without_json_it_says_what_was_drawn(melete, life, capsys):
    assert run(["subject", "timeline", str(life.subject), "--out", "life.svg"]) == HOLDS
    text = capsys.readouterr().out
    assert "life.svg" in text
    assert str(life.subject) in text


def test_floor_that_no_plain_call_set_is_read_from_the_state_of_its_block(melete, monkeypatch):
    plain = melete()[1]["floors"]
    monkeypatch.setattr(subject_timeline, "decode_floor_call", lambda *_: None)
    assert melete()[1]["floors"] == plain


def test_start_after_the_enrollment_says_to_start_earlier(melete, life):
    code, found = melete("--from-block", life.w3.eth.block_number)
    assert (code, found["error"]["name"]) == (USAGE, "InvalidInput")
    assert "earlier block" in found["error"]["message"]
    assert melete("--from-block", 10**9)[0] == USAGE


@pytest.mark.parametrize("left_out", ["CycleRecorded", "FloorUpdated", "Pulsed", "PolicyUpdated"])
def test_logs_that_leave_something_out_are_not_believed(melete, monkeypatch, left_out):
    load = subject_timeline.load_events

    def some(*arguments: Any) -> Any:
        events = load(*arguments)
        last = max(place for place, dated in enumerate(events) if type(dated.event).__name__ == left_out)
        return [*events[:last], *events[last + 1 :]]

    monkeypatch.setattr(subject_timeline, "load_events", some)
    code, found = melete()
    assert (code, found["error"]["name"]) == (COULD_NOT_TELL, "UnusableLogs")


def test_nobody_has_no_timeline(melete):
    code, found = melete(of=Address("0x" + "99" * 20))
    assert (code, found["error"]["name"]) == (DOES_NOT_HOLD, "NotEnrolled")


def test_file_that_cannot_be_written_to_is_told_before_anything_is_read(melete, tmp_path, monkeypatch):
    monkeypatch.setenv("MELETE_RPC_URL", "http://127.0.0.1:1")
    code, found = melete("--out", "life.pdf")
    assert (code, found["error"]["field"]) == (USAGE, "--out")
    assert list(Path().iterdir()) == []
    assert melete("--out", "life.svg")[0] == COULD_NOT_TELL
