from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from melete.errors import InvalidInput, MeleteError
from melete.packs.errors import (
    ManifestNotJson,
    MissingAgentsFile,
    MissingCapabilityFile,
    MissingManifest,
    PackError,
    PackRefused,
    WrongLayout,
)
from melete.packs.findings import Severity
from melete.packs.json_text import parse
from melete.packs.manifest import (
    ListedFile,
    Manifest,
    check_manifest,
    is_slug,
    load_manifest,
    parse_slug,
    read_manifest,
)
from melete.packs.tree import load_tree
from melete.resources import load_schema

from .making import make_manifest, write_pack

SCHEMA = load_schema("amp-manifest")
SIGNATURE = "A" * 86
KEY = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"
DIGEST = "0a" * 32


def read(**changes: Any) -> Manifest:
    """A manifest for a pack that holds every file."""
    text = json.dumps(make_manifest(**changes), indent=2)
    raw = parse(text)
    assert isinstance(raw, dict)
    return read_manifest(raw, text, lambda _: True)


def errors(**changes: Any) -> list[str]:
    """The rules that a manifest breaks, or the name of the error that it is refused with."""
    try:
        findings = check_manifest(read(**changes), strict_fields=True)
    except PackError as error:
        return [type(error).__name__]
    return [finding.rule for finding in findings if finding.is_error]


# Names


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a--", "x" * 64, "9lives"])
def test_slug_is_taken_as_it_is(name: str) -> None:
    assert is_slug(name)
    assert parse_slug(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "-a",
            "A",
            "a_b",
            "a.b",
            "..",
            "../x",
            "a/b",
            "@a/b",
            "a b",
            "a\n",
            "\na",
            "x" * 65,
            "caf\u00e9",
            "\u0663",
            "a\x00",
        ),
        *("a\u200b", " a", "a\\b"),
    ],
)
def test_anything_else_is_no_slug(name: str) -> None:
    assert not is_slug(name)
    with pytest.raises(InvalidInput) as caught:
        parse_slug(name, "SLUG")
    assert caught.value.field == "SLUG"


@pytest.mark.parametrize("name", [None, 7, ["a"], {"a": 1}, b"a", True])
def test_no_text_is_no_slug(name: object) -> None:
    assert not is_slug(name)


# Gates


def test_manifest_is_read_with_its_members(tmp_path: Path) -> None:
    manifest = load_manifest(load_tree(write_pack(tmp_path)))
    assert manifest.name == "small-pack"
    assert manifest.title == "A small pack"
    assert manifest.version == 1
    assert manifest.primitive_format == "inline-tag-v0.4"
    assert manifest.capability_files == ("operating-principles.md", "copy-voice.md")
    assert (manifest.agents_file, manifest.agents) == ("agents.md", ("claude-code",))
    assert (manifest.signed, manifest.signature, manifest.files, manifest.public_key) == (False, "", None, None)
    assert manifest.primitive_counts["demonstration"] == 2
    assert manifest.raw["created"] == "2026-01-31"
    assert check_manifest(manifest, strict_fields=True) == []


def refusal(tmp_path: Path, files: dict[str, Any] | None = None, **changes: Any) -> PackError:
    with pytest.raises(PackError) as caught:
        load_manifest(load_tree(write_pack(tmp_path, files, **changes)))
    assert str(caught.value).isprintable()
    return caught.value


def test_gate_1_asks_for_a_manifest(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path, {"manifest.json": None}), MissingManifest)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "{'a': 1}", "[]", "null", "7", '"text"', "{} {}", "\ufeff{}", '{"a": NaN}', '{"a": 1e999}'),
        *('{"layout": "semantic-cluster", "layout": "flat"}', '{"__proto__": {}}', b"\xff\xfe", b'{"a": "\xff"}'),
        *("[" * 5000, '{"a":' * 5000),
    ],
    ids=range(17),
)
def test_gate_2_asks_for_a_json_object(content: str | bytes, tmp_path: Path) -> None:
    error = refusal(tmp_path, {"manifest.json": content})
    assert isinstance(error, ManifestNotJson)
    assert str(error).startswith("manifest.json is not valid JSON")


@pytest.mark.parametrize(
    ("layout", "shown"),
    [
        ("flat", "flat"),
        ("", ""),
        (..., "undefined"),
        (None, "null"),
        (7, "7"),
        (1, "1"),
        (True, "true"),
        ([], "[...]"),
        ({}, "{...}"),
        ("semantic-cluster\n", r"semantic-cluster\n"),
        ("Semantic-Cluster", "Semantic-Cluster"),
    ],
)
def test_gate_3_asks_for_the_layout(layout: Any, shown: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, layout=layout)
    assert isinstance(error, WrongLayout)
    assert str(error).startswith(f"Pack layout is '{shown}', expected 'semantic-cluster'")


def test_gate_4_asks_for_agents_md(tmp_path: Path) -> None:
    error = refusal(tmp_path, {"agents.md": None})
    assert isinstance(error, MissingAgentsFile)
    assert str(error).startswith("Missing agents.md")


@pytest.mark.parametrize("named", ["routing.md", "../agents.md", "Agents.md", "", ..., None, 7, ["agents.md"], {}])
def test_gate_4_asks_that_the_manifest_names_agents_md(named: Any, tmp_path: Path) -> None:
    error = refusal(tmp_path, {"routing.md": "# Routing\n"}, agents_file=named)
    assert isinstance(error, MissingAgentsFile)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["gone.md"], "gone.md"),
        (["copy-voice.md", "gone.md"], "gone.md"),
        (["../agents.md"], "../agents.md"),
        (["../../secret.txt"], "../../secret.txt"),
        (["/etc/passwd"], "/etc/passwd"),
        (["sub/x.md"], "sub/x.md"),
        (["sub"], "sub"),
        (["sub\\x.md"], r"sub\\x.md"),
        (["COPY-VOICE.md"], "COPY-VOICE.md"),
        (["."], "."),
        ([""], ""),
        ([1], "1"),
        ([None], "null"),
        ([["copy-voice.md"]], "[...]"),
        ("copy-voice.md", "copy-voice.md"),
        ("x", "x"),
        (123, "123"),
        ({}, "{...}"),
        (None, "null"),
        (..., "undefined"),
        (["\ud800.md"], r"\ud800.md"),
    ],
)
def test_gate_5_asks_for_every_capability_file(names: Any, shown: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, {"memory/sub/x.md": "x"}, capability_files=names)
    assert isinstance(error, MissingCapabilityFile)
    assert str(error).startswith(f"Missing capability file: memory/{shown}: ")


def test_gates_are_asked_in_order(tmp_path: Path) -> None:
    worse: dict[str, Any] = {
        "layout": "flat",
        "agents_file": 7,
        "capability_files": 7,
        "name": 7,
        "primitive_format": 7,
    }
    for member, right, expected in [
        ("layout", "semantic-cluster", WrongLayout),
        ("agents_file", "agents.md", MissingAgentsFile),
        ("capability_files", [], MissingCapabilityFile),
        ("name", "a", PackRefused),
        ("primitive_format", "inline-tag-v0.4", PackRefused),
    ]:
        assert isinstance(refusal(tmp_path, **worse), expected)
        worse[member] = right
    load_manifest(load_tree(write_pack(tmp_path, **worse)))


@pytest.mark.parametrize("name", ["..", "../x", "A", "", 7, None, ..., ["a"], "x" * 65])
def test_name_that_is_no_slug_is_refused(name: Any, tmp_path: Path) -> None:
    error = refusal(tmp_path, name=name)
    assert isinstance(error, PackRefused)
    assert error.rule == "manifest-name"


@pytest.mark.parametrize("form", ["inline-tag-v0.5", "", None, 4, ["inline-tag-v0.4"]])
def test_unknown_primitive_format_is_refused(form: Any, tmp_path: Path) -> None:
    error = refusal(tmp_path, primitive_format=form)
    assert isinstance(error, PackRefused)
    assert error.rule == "primitive-format"


def test_absent_primitive_format_is_the_old_one(tmp_path: Path) -> None:
    manifest = load_manifest(load_tree(write_pack(tmp_path, primitive_format=...)))
    assert manifest.primitive_format == "yaml-frontmatter-v0.3"


@pytest.mark.parametrize("member", ["layout", "capability_files", "name", "primitive_format", "agents_file"])
def test_refusal_does_not_show_a_secret(member: str, tmp_path: Path) -> None:
    secret = "sk-ABCDEFGHijklmnopqrstuvwx"
    value = [secret] if member == "capability_files" else secret
    assert "ABCDEFGH" not in str(refusal(tmp_path, **{member: value}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.just(float("1.5")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
members = st.sampled_from([*make_manifest(), "files", "public_key", "unknown"])


@given(st.dictionaries(members, json_values, max_size=4))
def test_any_json_is_a_manifest_or_an_error_of_ours(changes: dict[str, Any]) -> None:
    try:
        said: list[Any] = [*check_manifest(read(**changes), strict_fields=True)]
    except MeleteError as error:
        said = [error]
    assert all(str(one).isprintable() for one in said)


# Everything else


@pytest.mark.parametrize(
    ("version", "expected"), [({"number": 3}, 3), ("1.2.3", "1.2.3"), ({"number": 1.5}, 1.5), (..., None)]
)
def test_version_is_a_number_or_a_text(version: Any, expected: Any) -> None:
    assert read(version=version).version == expected
    assert errors(version=version) == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"title": ...}, "manifest-title"),
    ({"title": ""}, "manifest-title"),
    ({"title": " "}, "manifest-title"),
    ({"title": 7}, "manifest-title"),
    ({"agents": ...}, "manifest-agents"),
    ({"agents": []}, "manifest-agents"),
    ({"agents": "claude-code"}, "manifest-agents"),
    ({"agents": [""]}, "manifest-agents"),
    ({"agents": [7]}, "manifest-agents"),
    ({"version": 1}, "manifest-version"),
    ({"version": None}, "manifest-version"),
    ({"version": ""}, "manifest-version"),
    ({"version": {"number": "1"}}, "manifest-version"),
    ({"version": {"number": True}}, "manifest-version"),
    ({"version": {}}, "manifest-version"),
    ({"capability_files": ["a.md", "a.md"]}, "manifest-capability-files"),
    ({"created": 20260131}, "manifest-created"),
    ({"created": ""}, "manifest-created"),
    ({"sources": "wiki"}, "manifest-sources"),
    ({"sources": [1]}, "manifest-sources"),
    ({"primitive_counts": []}, "manifest-counts"),
    ({"primitive_counts": {"goal": -1}}, "manifest-counts"),
    ({"primitive_counts": {"goal": "1"}}, "manifest-counts"),
    ({"primitive_counts": {"goal": 1.5}}, "manifest-counts"),
    ({"primitive_counts": {"goal": True}}, "manifest-counts"),
    ({"signed": "yes"}, "manifest-signed"),
    ({"signed": 1}, "manifest-signed"),
    ({"signed": None}, "manifest-signed"),
    ({"signed": True}, "manifest-signature"),
    ({"signed": True, "signature": ...}, "manifest-signature"),
    ({"signed": True, "signature": SIGNATURE + "=="}, "manifest-signature"),
    ({"signed": True, "signature": SIGNATURE[:-1] + "+"}, "manifest-signature"),
    ({"signed": True, "signature": SIGNATURE + "\n"}, "manifest-signature"),
    ({"signed": True, "signature": 7}, "manifest-signature"),
    ({"signed": False, "signature": SIGNATURE}, "manifest-signature"),
    ({"signed": ..., "signature": "x"}, "manifest-signature"),
    ({"signature": None}, "manifest-signature"),
    ({"files": {}}, "manifest-files"),
    ({"files": ["agents.md"]}, "manifest-files"),
    ({"files": [{"path": "agents.md"}]}, "manifest-files"),
    ({"files": [{"path": "agents.md", "sha256": DIGEST.upper()}]}, "manifest-files"),
    ({"files": [{"path": "agents.md", "sha256": DIGEST + "0"}]}, "manifest-files"),
    ({"files": [{"path": "", "sha256": DIGEST}]}, "manifest-files"),
    ({"public_key": 7}, "manifest-public-key"),
    ({"public_key": KEY.replace("PUBLIC", "PRIVATE")}, "manifest-public-key"),
    ({"public_key": "x" + KEY}, "manifest-public-key"),
]


@pytest.mark.parametrize(("changes", "rule"), WRONG)
def test_wrong_member_is_an_error_by_its_rule(changes: dict[str, Any], rule: str) -> None:
    assert errors(**changes) == [rule]


GOOD: list[dict[str, Any]] = [
    {},
    {"signed": True, "signature": SIGNATURE},
    {"signed": True, "signature": SIGNATURE, "public_key": KEY, "files": [{"path": "agents.md", "sha256": DIGEST}]},
    {"signed": ..., "signature": ...},
    {"version": "2026.1", "created": ..., "sources": [], "primitive_counts": ...},
    {"title": ..., "agents": ..., "primitive_format": ...},
    {"title": ..., "agents": ..., "primitive_format": "yaml-frontmatter-v0.3"},
    {"unknown": [1, {"a": None}], "capability_files": []},
    {"files": []},
]


@pytest.mark.parametrize("changes", GOOD)
def test_right_manifest_has_no_finding(changes: dict[str, Any]) -> None:
    assert errors(**changes) == []


def test_files_and_key_of_a_signed_pack_are_read() -> None:
    manifest = read(signed=True, signature=SIGNATURE, public_key=KEY, files=[{"path": "agents.md", "sha256": DIGEST}])
    assert (manifest.signed, manifest.signature, manifest.public_key) == (True, SIGNATURE, KEY)
    assert manifest.files == (ListedFile("agents.md", DIGEST),)


def test_missing_title_and_agents_are_a_warning_where_the_caller_says_so() -> None:
    manifest = read(title=..., agents=...)
    for strict, severity in ((True, Severity.ERROR), (False, Severity.WARNING)):
        found = check_manifest(manifest, strict_fields=strict)
        assert [(finding.rule, finding.severity) for finding in found] == [
            ("manifest-title", severity),
            ("manifest-agents", severity),
        ]
    assert [finding.severity for finding in check_manifest(read(signed=7), strict_fields=False)] == [Severity.ERROR]


def test_finding_names_the_line_of_its_member() -> None:
    manifest = read(agents=7)
    (finding,) = check_manifest(manifest, strict_fields=True)
    assert manifest.text.split("\n")[(finding.line or 0) - 1].strip() == '"agents": 7,'
    (finding,) = check_manifest(read(agents=...), strict_fields=True)
    assert finding.line is None


# The schema


def cases() -> Iterator[dict[str, Any]]:
    yield from GOOD
    yield from (changes for changes, _ in WRONG)
    for name in ("..", "A", "", 7, None, ..., "x" * 65, "a\n", "caf\u00e9"):
        yield {"name": name}
    for layout in ("flat", ..., None):
        yield {"layout": layout}
    for named in ("routing.md", ..., 7):
        yield {"agents_file": named}
    for names in (["../x"], ["a/b"], ["a\\b"], [".."], ["."], [""], [1], "x", 123, {}, None, ..., ["...", "..a", ".a"]):
        yield {"capability_files": names}
    for form in ("inline-tag-v0.5", None, 4):
        yield {"primitive_format": form}


def test_schema_is_valid_and_says_which_draft() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("changes", list(cases()), ids=str)
def test_schema_and_code_agree(changes: dict[str, Any]) -> None:
    valid = Draft202012Validator(SCHEMA).is_valid(parse(json.dumps(make_manifest(**changes))))
    assert valid == (errors(**changes) == [])


@given(st.dictionaries(members, json_values, max_size=3))
def test_schema_and_code_agree_on_any_json(changes: dict[str, Any]) -> None:
    text = json.dumps(make_manifest(**changes))
    raw = parse(text)
    assert Draft202012Validator(SCHEMA).is_valid(raw) == (errors(**changes) == [])
