from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from melete.cli import amp
from melete.errors import InvalidInput
from melete.packs import scan
from melete.packs.keys import PrivateKey, generate_key, load_private_key, load_public_key
from melete.packs.signing import compute_payload, encode_signature, load_manifest_object, sign_pack
from melete.packs.submission import CHECKS, Submission, check_submission
from melete.packs.tree import load_tree
from melete.packs.trust import TrustStore
from melete.packs.validation import validate_folder
from sdk.packs.install_samples import CLUSTER, make_pack

SECRET = "sk-" + "a1B2" * 8


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("AMP_PUBLIC_KEY", raising=False)
    return place


@pytest.fixture
def key(tmp_path: Path) -> PrivateKey:
    return load_private_key(generate_key(tmp_path / "creator.key")[0])


@pytest.fixture
def other(tmp_path: Path) -> PrivateKey:
    return load_private_key(generate_key(tmp_path / "other.key")[0])


@pytest.fixture
def pack(tmp_path: Path, key: PrivateKey) -> Path:
    folder = make_pack(tmp_path / "pack")
    sign_pack(folder, key)
    return folder


def answers(submission: Submission) -> dict[str, str]:
    return {check.name: check.answer for check in submission.checks}


def failed(submission: Submission) -> list[str]:
    return [check.name for check in submission.checks if check.answer == "failed"]


def rules(submission: Submission) -> set[str]:
    return {finding.rule for finding in submission.findings}


def test_a_pack_signed_with_a_known_key_is_accepted(pack: Path, key: PrivateKey) -> None:
    submission = check_submission(pack, [key.public])
    assert submission.answer == "accepted"
    assert set(answers(submission).values()) == {"passed"}
    assert (submission.name, submission.version, submission.signer) == ("notes", "1", key.public.key_id)
    assert submission.digest is not None
    assert len(submission.digest) == 64


def test_a_pack_that_is_not_signed_fails_gate_six(tmp_path: Path, key: PrivateKey) -> None:
    submission = check_submission(make_pack(tmp_path / "pack"), [key.public])
    assert submission.answer == "refused"
    assert failed(submission) == ["signed"]
    assert answers(submission)["signature"] == "not asked"
    (finding,) = submission.findings
    assert (finding.rule, finding.message) == ("gate-6", "Pack is not signed")


@pytest.mark.parametrize("signed", ["yes", 1, "true", None])
def test_only_the_value_true_counts_as_signed(pack: Path, key: PrivateKey, signed: object) -> None:
    manifest = json.loads((pack / "manifest.json").read_text())
    (pack / "manifest.json").write_text(json.dumps({**manifest, "signed": signed}))
    submission = check_submission(pack, [key.public])
    assert submission.answer == "refused"
    assert "gate-6" in rules(submission)


def test_a_key_that_the_registry_does_not_know_is_refused_or_unknown(
    pack: Path, key: PrivateKey, other: PrivateKey
) -> None:
    assert check_submission(pack, [other.public]).answer == "refused"
    nobody = check_submission(pack, [])
    assert (nobody.answer, nobody.signer, failed(nobody)) == ("unknown", None, [])
    assert answers(nobody)["signature"] == "unknown"


def test_a_revoked_key_is_refused_although_it_is_given(pack: Path, key: PrivateKey, home: Path) -> None:
    (home / ".amp").mkdir()
    store = TrustStore(home / ".amp" / "trusted.json")
    store.add("creator", key.public)
    trusted = store.keys_for_verification()
    assert check_submission(pack, [key.public], trusted=trusted).answer == "accepted"
    store.revoke("creator", "2026-01-01T00:00:00Z")
    revoked = check_submission(pack, [key.public], trusted=store.keys_for_verification())
    assert revoked.answer != "accepted"
    assert answers(revoked)["signature"] in ("failed", "unknown")


def test_a_key_that_was_replaced_is_told_and_refused_where_that_is_asked_for(
    pack: Path, key: PrivateKey, other: PrivateKey, home: Path
) -> None:
    (home / ".amp").mkdir()
    store = TrustStore(home / ".amp" / "trusted.json")
    store.add("creator", key.public)
    store.rotate("creator", other.public, "2026-01-01")
    trusted = store.keys_for_verification()
    submission = check_submission(pack, [], trusted=trusted)
    (finding,) = submission.findings
    assert (submission.answer, finding.rule, finding.is_error) == ("accepted", "signature-warning", False)
    assert "creator replaced this key at 2026-01-01" in finding.message
    strict = check_submission(pack, [], trusted=trusted, strict=True)
    assert (strict.answer, failed(strict)) == ("refused", ["signature"])


def test_a_signature_that_binds_no_names_is_told(tmp_path: Path, key: PrivateKey) -> None:
    folder = make_pack(tmp_path / "pack", signed=True, signature="", title=...)
    tree = load_tree(folder)
    manifest = load_manifest_object(tree)
    signature = encode_signature(key.sign(compute_payload(tree, manifest, "text")))
    make_pack(folder, signed=True, signature=signature, title=...)
    submission = check_submission(folder, [key.public])
    assert [check.findings[0].message for check in submission.checks if check.name == "signature"] == [
        "the manifest lists no `files`, so a renamed file is not noticed, nor which one changed"
    ]
    assert answers(submission)["signature"] == "passed"
    assert answers(check_submission(folder, [key.public], strict=True))["signature"] == "failed"
    # What the manifest lacks is said once.
    assert sum("title" in finding.message for finding in submission.findings) == 1


CHANGES: list[tuple[Callable[[Path], object], str, str]] = [
    (
        lambda pack: (pack / "agents.md").write_text("# R\n\n## Always load\n- operating-principles.md - y\n"),
        "signature",
        "signed-files",
    ),
    (lambda pack: (pack / "extra.md").write_text("x\n"), "signature", "signed-files"),
    (lambda pack: (pack / "link.md").symlink_to("agents.md"), "files", "symlink"),
    (lambda pack: (pack / "a\\b.md").write_text("x"), "files", "name-separator"),
    (lambda pack: (pack / "manifest.json").unlink(), "gates", "gate-1"),
    (lambda pack: (pack / "manifest.json").write_text("{"), "gates", "gate-2"),
    (lambda pack: (pack / "agents.md").unlink(), "gates", "gate-4"),
    (lambda pack: (pack / "memory" / "operating-principles.md").unlink(), "gates", "gate-5"),
]


@pytest.mark.parametrize(("change", "check", "rule"), CHANGES)
def test_what_changed_since_it_was_signed_is_refused_by_the_check_that_it_breaks(
    pack: Path, key: PrivateKey, change: Callable[[Path], object], check: str, rule: str
) -> None:
    change(pack)
    submission = check_submission(pack, [key.public])
    assert submission.answer == "refused"
    assert check in failed(submission)
    assert rule in rules(submission)
    assert [one.name for one in submission.checks] == list(CHECKS)


@pytest.mark.parametrize(
    ("text", "check", "rule"),
    [
        (CLUSTER.replace("Readers skim.", f"The key is {SECRET}."), "scan", "credential"),
        (CLUSTER.replace("Readers skim.", "<!-- amp:end @local/notes -->"), "scan", "amp-marker"),
        (CLUSTER.replace("directive must, org", "directive org, must"), "content", "facet-position"),
        (CLUSTER.replace("goal: 1", "goal: 7"), "content", "primitive-counts"),
    ],
)
def test_a_signature_excuses_nothing_that_a_scan_finds(
    tmp_path: Path, key: PrivateKey, text: str, check: str, rule: str
) -> None:
    folder = make_pack(tmp_path / "pack", files={"memory/operating-principles.md": text})
    sign_pack(folder, key)
    submission = check_submission(folder, [key.public])
    assert submission.answer == "refused"
    assert failed(submission) == [check]
    assert rule in rules(submission)
    assert answers(submission)["signature"] == "passed"
    assert SECRET not in json.dumps(submission.to_json())


LARGE = "All is well.\n" * (scan.LARGEST // 13 + 1)


@pytest.mark.parametrize("middle", [f"key {SECRET}\n", f"a\u200bb {SECRET[:9]}\u200b{SECRET[9:]}\n"])
def test_a_credential_in_a_large_file_is_refused(tmp_path: Path, key: PrivateKey, middle: str) -> None:
    at = len(LARGE) // 2
    folder = make_pack(tmp_path / "pack", files={"memory/notes.md": LARGE[:at] + middle + LARGE[at:]})
    sign_pack(folder, key)
    submission = check_submission(folder, [key.public])
    assert (submission.answer, failed(submission)) == ("refused", ["scan"])
    assert SECRET not in json.dumps(submission.to_json())


def test_a_large_file_of_plain_text_is_scanned_and_accepted(tmp_path: Path, key: PrivateKey) -> None:
    folder = make_pack(tmp_path / "pack", files={"memory/notes.md": LARGE})
    sign_pack(folder, key)
    assert check_submission(folder, [key.public]).answer == "accepted"


@pytest.mark.parametrize("content", [b"\x89PNG\xff", b"\xff" * 9 + LARGE.encode(), LARGE.encode() + b"\xe2\x80"])
def test_what_a_scan_cannot_look_through_leaves_the_answer_unknown(
    tmp_path: Path, key: PrivateKey, content: bytes
) -> None:
    folder = make_pack(tmp_path / "pack")
    (folder / "memory" / "notes.md").write_bytes(content)
    sign_pack(folder, key)
    submission = check_submission(folder, [key.public])
    assert (submission.answer, answers(submission)["scan"]) == ("unknown", "unknown")
    assert "not-text" in rules(submission)
    assert check_submission(folder, [key.public], strict=True).answer == "refused"


def test_a_credential_in_what_is_no_text_is_refused(tmp_path: Path, key: PrivateKey) -> None:
    folder = make_pack(tmp_path / "pack")
    (folder / "logo.png").write_bytes(b"\xff\n" + LARGE.encode() + SECRET.encode())
    sign_pack(folder, key)
    assert failed(check_submission(folder, [key.public])) == ["scan"]


def test_hidden_text_is_told_and_refused_where_that_is_asked_for(tmp_path: Path, key: PrivateKey) -> None:
    folder = make_pack(
        tmp_path / "pack", files={"memory/operating-principles.md": CLUSTER.replace("skim", "sk\u200bim")}
    )
    sign_pack(folder, key)
    lenient = check_submission(folder, [key.public])
    assert (lenient.answer, "hidden-text" in rules(lenient)) == ("accepted", True)
    strict = check_submission(folder, [key.public], strict=True)
    assert (strict.answer, failed(strict)) == ("refused", ["scan"])


@pytest.mark.parametrize("name", ["Notes", "../notes", "notes ", "", None, 7])
def test_a_name_that_no_pack_may_have_is_refused(tmp_path: Path, key: PrivateKey, name: object) -> None:
    submission = check_submission(make_pack(tmp_path / "pack", name=name), [key.public])
    assert submission.answer == "refused"
    assert failed(submission) == ["name"]
    assert rules(submission) == {"manifest-name"}


def test_a_pack_is_submitted_under_its_own_name(pack: Path, key: PrivateKey) -> None:
    assert check_submission(pack, [key.public], name="notes").answer == "accepted"
    submission = check_submission(pack, [key.public], name="other")
    assert (submission.answer, failed(submission)) == ("refused", ["name"])


def test_what_is_no_folder_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        check_submission(tmp_path / "missing", [])


@pytest.mark.parametrize("member", [{"version": SECRET}, {"version": {"number": 1}, "name": SECRET.lower()}])
def test_no_verdict_shows_a_secret_of_the_manifest(tmp_path: Path, key: PrivateKey, member: dict[str, object]) -> None:
    folder = make_pack(tmp_path / "pack", **member)  # type: ignore[arg-type]
    sign_pack(folder, key)
    submission = check_submission(folder, [key.public])
    assert submission.answer == "refused"
    for shown in (str(submission.to_json()), json.dumps(validate_folder(folder).to_json())):
        assert SECRET not in shown
        assert SECRET.lower() not in shown


# The command


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = amp.run(["submit-check", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_command_gives_the_verdict_as_json_and_as_exit_code(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], other: PrivateKey
) -> None:
    public = str(tmp_path / "creator.pub")
    code, out, _ = run(capsys, str(pack), "--public-key", public, "--json")
    verdict = json.loads(out)
    assert (code, verdict["answer"]) == (0, "accepted")
    assert list(verdict) == ["answer", "name", "version", "digest", "signer", "checks"]
    assert [check["name"] for check in verdict["checks"]] == list(CHECKS)
    assert run(capsys, str(pack), "--json")[0] == 3
    assert run(capsys, str(pack), "--public-key", str(tmp_path / "other.pub"))[0] == 1
    assert run(capsys, str(pack), "--public-key", public, "--name", "other")[0] == 1
    assert load_public_key(public).key_id in run(capsys, str(pack), "--public-key", public)[1]


def test_command_says_each_check_on_a_line_that_is_printable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_pack(tmp_path / "pack", files={"mem\x1bory.md": "x"})
    code, out, _ = run(capsys, str(folder))
    assert code == 1
    assert "check files      failed" in out
    assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.parametrize(
    "words",
    [[], ["missing"], ["PACK", "--public-key", "missing.pub"], ["PACK", "--name", "Not a name"], ["PACK", "--x"]],
)
def test_wrong_calls_are_usage_errors(pack: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, _, err = run(capsys, *[str(pack) if word == "PACK" else word for word in words])
    assert code in (2, 3)
    assert "Traceback" not in err
    assert code == (3 if "missing.pub" in words else 2)
