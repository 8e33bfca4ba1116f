"""The README's examples run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from melete import Witness, compute_profile_id, keccak256

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"<!-- a test runs this example -->\n```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def space_in_our_registry(our_registry, controller, authorizer, salt):
    return our_registry.register(authorizer.address, salt, controller=controller).space_id


def test_the_readme_shows_three_examples_and_the_first_has_twelve_lines():
    assert len(EXAMPLES) == 3
    assert len(EXAMPLES[0].splitlines()) <= 14


def test_the_first_example_verifies_a_history(capsys):
    exec(EXAMPLES[0], {})  # noqa: S102
    assert re.fullmatch(r"1 0x[0-9a-f]{64}\n", capsys.readouterr().out)


def test_the_second_example_drives_a_registry(w3, accounts, controller, authorizer):
    names = {
        "rpc_url": w3.provider.endpoint_uri,
        "relayer_key": accounts[8].private_key,
        "controller": controller,
        "authorizer": authorizer,
        "salt": keccak256(b"salt"),
        "witness": Witness(compute_profile_id("notes/1"), b"payload", keccak256(b"secret")),
    }
    exec(EXAMPLES[1], names)  # noqa: S102
    assert names["event"].delta.sequence == 1


def test_the_third_example_sends_from_an_outbox_and_verifies_what_it_reads(
    w3, our_registry, space_in_our_registry, authorizer, relayer, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = {
        "w3": w3,
        "registry": our_registry,
        "space_id": space_in_our_registry,
        "authorizer": authorizer,
        "relayer": relayer,
        "witness": Witness(compute_profile_id("notes/1"), b"payload", keccak256(b"secret")),
    }
    exec(EXAMPLES[2], names)  # noqa: S102
    assert names["state"] == our_registry.load_state(space_in_our_registry)
    assert [delta.sequence for delta in names["deltas"]] == [1]


def test_the_readme_names_both_commands_the_pipeline_and_the_missing_review():
    for words in ("./dev demo", "./dev test", "operation -> commitment -> delta", "no external review"):
        assert words in README
