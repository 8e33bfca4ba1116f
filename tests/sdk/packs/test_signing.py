from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from melete.errors import InvalidInput, StoreNotWritten
from melete.packs import signing
from melete.packs.errors import ManifestNotJson, MissingManifest, PackError, PackRefused
from melete.packs.json_edit import replace_members
from melete.packs.json_text import parse
from melete.packs.keys import PrivateKey
from melete.packs.signing import (
    Difference,
    Verdict,
    compare_files,
    compute_payload,
    decode_signature,
    encode_signature,
    pack_digest,
    read_listed_files,
    sign_pack,
    verify_pack,
)
from melete.packs.tree import load_tree
from melete.packs.trust import TrustedKey

KEY = PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32))
STRANGER = PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32))
AGENTS = "# AMP Routing — notes\n\n## Always load\n- operating-principles.md — how the author works\n"
CLUSTER = """---
type: cluster
applies_to: every task
source: self
primitive_counts:
  goal: 1
---

[goal should, project, permanent] Optimize for answers that can be checked.
"""
MANIFEST = """{
  "name": "notes",
  "title": "Notes",
  "version": { "number": 1 },
  "layout": "semantic-cluster",
  "primitive_format": "inline-tag-v0.4",
  "agents_file": "agents.md",
  "agents": ["claude-code"],
  "capability_files": ["operating-principles.md"],
  "primitive_counts": {"goal": 1, "claim": 0},
  "signed": false,
  "signature": ""
}
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "memory").mkdir(parents=True)
    (folder / "manifest.json").write_text(MANIFEST, "utf-8")
    (folder / "agents.md").write_text(AGENTS, "utf-8")
    (folder / "memory" / "operating-principles.md").write_text(CLUSTER, "utf-8")
    return folder


def read(pack: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((pack / "manifest.json").read_text("utf-8"))
    return document


def change(pack: Path, **members: Any) -> None:
    (pack / "manifest.json").write_text(json.dumps({**read(pack), **members}, indent=2), "utf-8")


def verify(pack: Path, *keys: PrivateKey, trusted: tuple[TrustedKey, ...] = ()) -> Verdict:
    return verify_pack(load_tree(pack), [key.public for key in keys], trusted=trusted)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def snapshot(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


# What is signed


def test_text_form_is_the_manifest_and_a_line_for_each_file(pack: Path) -> None:
    manifest = parse((pack / "manifest.json").read_text("utf-8"))
    assert isinstance(manifest, dict)
    covered = (
        '{"name":"notes","title":"Notes","version":{"number":1},"layout":"semantic-cluster",'
        '"primitive_format":"inline-tag-v0.4","agents_file":"agents.md","agents":["claude-code"],'
        '"capability_files":["operating-principles.md"],"primitive_counts":{"goal":1,"claim":0}}'
    )
    payload = f"{covered}\n{sha256(AGENTS)}\n{sha256(CLUSTER)}".encode()
    assert compute_payload(load_tree(pack), manifest, "text") == payload
    assert pack_digest(load_tree(pack), manifest) == hashlib.sha256(payload).hexdigest()


def test_reference_form_is_sorted_and_says_that_it_is_signed(pack: Path) -> None:
    manifest = parse((pack / "manifest.json").read_text("utf-8"))
    assert isinstance(manifest, dict)
    covered = (
        '{"name":"notes","title":"Notes","agents":["claude-code"],"layout":"semantic-cluster","signed":true,'
        '"version":{"number":1},"agents_file":"agents.md","capability_files":["operating-principles.md"],'
        '"primitive_counts":{"goal":1,"claim":0},"primitive_format":"inline-tag-v0.4"}'
    )
    assert compute_payload(load_tree(pack), manifest, "reference").decode() == (
        f"{covered}\n{sha256(AGENTS)}\n{sha256(CLUSTER)}"
    )


@pytest.mark.parametrize("form", ["", "TEXT", "both", None])
def test_other_forms_are_refused(pack: Path, form: Any) -> None:
    for action in (lambda: compute_payload(load_tree(pack), {}, form), lambda: sign_pack(pack, KEY, form)):
        with pytest.raises(InvalidInput) as caught:
            action()
        assert caught.value.field == "form"
    assert (pack / "manifest.json").read_text("utf-8") == MANIFEST


# Signing


@pytest.mark.parametrize("form", ["text", "reference"])
def test_signed_pack_is_held_in_the_form_that_signed_it(pack: Path, form: str) -> None:
    signed = sign_pack(pack, KEY, form)
    verdict = verify(pack, KEY)
    assert (verdict.answer, verdict.form, verdict.signer) == ("held", form, KEY.public.key_id)
    assert (verdict.warnings, verdict.differences, verdict.rule, verdict.reason) == ((), (), "", "")
    assert verdict.digest == signed.digest
    assert signed == (form, KEY.public.key_id, read(pack)["signature"], verdict.digest, 2, ())


def test_signature_covers_names_and_public_key(pack: Path) -> None:
    sign_pack(pack, KEY)
    manifest = read(pack)
    assert manifest["files"] == [
        {"path": "agents.md", "sha256": sha256(AGENTS)},
        {"path": "memory/operating-principles.md", "sha256": sha256(CLUSTER)},
    ]
    assert manifest["public_key"] == KEY.public.pem
    assert manifest["signed"] is True
    assert len(base64.urlsafe_b64decode(manifest["signature"] + "==")) == 64
    for name in ("files", "public_key"):
        change(pack, **{name: manifest["files"][:1] if name == "files" else STRANGER.public.pem})
        assert verify(pack, KEY).answer == "broken"
        change(pack, **manifest)
        assert verify(pack, KEY).answer == "held"


NODE = """
const fs = require('fs'), path = require('path'), crypto = require('crypto');
const [folder, form] = process.argv.slice(1);
const manifest = JSON.parse(fs.readFileSync(path.join(folder, 'manifest.json'), 'utf8'));
const sorted = (value) => Array.isArray(value) ? value.map(sorted)
  : value === null || typeof value !== 'object' ? value
  : Object.fromEntries(Object.keys(value)
      .sort((a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0)).map((name) => [name, sorted(value[name])]));
const {signed, signature, ...rest} = manifest;
const text = JSON.stringify(form === 'text' ? rest : sorted({...rest, signed}));
const hashes = manifest.files.map((file) =>
  crypto.createHash('sha256').update(fs.readFileSync(path.join(folder, file.path))).digest('hex'));
const payload = Buffer.from([text, ...hashes].join('\\n'));
process.stdout.write(String(signed === true
  && crypto.verify(null, payload, manifest.public_key, Buffer.from(signature, 'base64url'))));
"""


@pytest.mark.parametrize("form", ["text", "reference"])
def test_node_verifies_what_we_sign(pack: Path, form: str) -> None:
    change(
        pack,
        **{"9": 1.5e-7, "10": [-0.0, 1e21], "zz": {"b": "\u2028\ud83d", "2": "\U0001f600", "1": None}, "\ufb33": 1},
    )
    for name in ("\ufb33.md", "\U0001f600.md", "memory.md"):
        (pack / name).write_text(name, "utf-8")
    sign_pack(pack, KEY, form)
    done = subprocess.run(["node", "-e", NODE, str(pack), form], capture_output=True, text=True, check=True)
    assert done.stdout == "true"
    assert verify(pack, KEY).answer == "held"


def test_signing_changes_the_manifest_alone_and_keeps_its_mode(pack: Path) -> None:
    (pack / "manifest.json").chmod(0o640)
    before = snapshot(pack)
    sign_pack(pack, KEY)
    after = snapshot(pack)
    assert before.pop("manifest.json") != after.pop("manifest.json")
    assert before == after
    assert stat.S_IMODE((pack / "manifest.json").stat().st_mode) == 0o640


def test_signing_keeps_the_manifest_as_it_was_written(pack: Path) -> None:
    sign_pack(pack, KEY)
    lines = (pack / "manifest.json").read_text("utf-8").split("\n")
    kept = [line for line in MANIFEST.split("\n") if "sign" not in line]
    assert [line for line in lines if line in kept] == kept
    assert lines[10] == '  "signed": true,'
    assert lines[12] == '  "files": ['
    assert lines[14] == '      "path": "agents.md",'
    assert lines[-2:] == ["}", ""]


def test_signing_again_changes_nothing_and_by_another_key_everything_it_has_to(pack: Path) -> None:
    sign_pack(pack, KEY)
    first = (pack / "manifest.json").read_bytes()
    sign_pack(pack, KEY)
    assert (pack / "manifest.json").read_bytes() == first
    sign_pack(pack, STRANGER, "reference")
    assert verify(pack, STRANGER).answer == "held"
    assert verify(pack, KEY).rule == "other-signer"
    sign_pack(pack, KEY)
    assert (pack / "manifest.json").read_bytes() == first


def test_files_left_out_are_not_covered_and_named(pack: Path) -> None:
    (pack / ".DS_Store").write_text("x")
    (pack / ".git").mkdir()
    (pack / ".git" / "link").symlink_to("/etc/passwd")
    signed = sign_pack(pack, KEY, ignore=[".DS_Store", ".git"])
    assert signed.ignored == (".DS_Store", ".git/")
    assert signed.files == 2
    (pack / ".git" / "link").unlink()
    assert verify(pack, KEY).differences == (Difference("added", ".DS_Store"),)
    assert verify_pack(load_tree(pack, ignore=[".DS_Store"]), [KEY.public]).answer == "held"


def test_manifest_that_may_not_be_written_is_replaced_and_stays_so(pack: Path) -> None:
    (pack / "manifest.json").chmod(0o444)
    sign_pack(pack, KEY)
    assert stat.S_IMODE((pack / "manifest.json").stat().st_mode) == 0o444


# What is not signed


def remove(name: str) -> Callable[[Path], object]:
    return lambda pack: (pack / name).unlink()


def write(text: str | bytes) -> Callable[[Path], object]:
    return lambda pack: (pack / "manifest.json").write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (remove("manifest.json"), MissingManifest),
        (remove("agents.md"), PackError),
        (remove("memory/operating-principles.md"), PackError),
        (write(""), ManifestNotJson),
        (write("[]"), ManifestNotJson),
        (write("null"), ManifestNotJson),
        (write('"signed"'), ManifestNotJson),
        (write(MANIFEST.replace("}\n", ",}\n")), ManifestNotJson),
        (write("\ufeff" + MANIFEST), ManifestNotJson),
        (write(b"\xff\xfe" + MANIFEST.encode("utf-16-le")), ManifestNotJson),
        (write(MANIFEST.replace("Notes", "\\ud800\\ud800").encode() + b"\xff"), ManifestNotJson),
        (write(MANIFEST.replace('"title"', '"name"')), ManifestNotJson),
        (write(MANIFEST.replace('"title"', '"__proto__"')), ManifestNotJson),
        (write(MANIFEST.replace('"Notes"', "1E400")), ManifestNotJson),
        (write(MANIFEST.replace('"Notes"', "9007199254740993")), ManifestNotJson),
        (write(MANIFEST.replace('"Notes"', "[" * 500 + "]" * 500)), ManifestNotJson),
        (write(MANIFEST.replace("semantic-cluster", "flat")), PackError),
        (lambda pack: (pack / "link").symlink_to("agents.md"), PackRefused),
        (lambda pack: (pack / "a\\b.md").touch(), PackRefused),
    ],
)
def test_pack_that_cannot_be_read_is_not_signed(
    pack: Path, spoil: Callable[[Path], object], error: type[PackError]
) -> None:
    spoil(pack)
    before = snapshot(pack)
    with pytest.raises(error) as caught:
        sign_pack(pack, KEY)
    assert str(caught.value).isprintable()
    assert snapshot(pack) == before


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", ""):
        with pytest.raises(InvalidInput):
            sign_pack(place, KEY)


def test_full_disk_leaves_the_manifest_as_it_was(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(pack)

    def fail(handle: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(StoreNotWritten, match="No space left"):
        sign_pack(pack, KEY)
    monkeypatch.undo()
    assert snapshot(pack) == before


def test_manifest_that_changes_meanwhile_is_not_written_over(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_files = signing.hash_files

    def hash_and_meddle(tree: Any) -> dict[str, str]:
        hashes = hash_files(tree)
        change(pack, title="somebody else's")
        return hashes

    monkeypatch.setattr(signing, "hash_files", hash_and_meddle)
    with pytest.raises(PackRefused) as caught:
        sign_pack(pack, KEY)
    assert caught.value.rule == "changed-while-read"
    assert read(pack)["title"] == "somebody else's"


def test_folder_that_was_exchanged_meanwhile_is_not_written_to(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = PrivateKey.sign

    def sign_and_swap(key: PrivateKey, payload: bytes) -> bytes:
        pack.rename(pack.parent / "moved")
        pack.symlink_to("/tmp")  # noqa: S108
        return sign(key, payload)

    monkeypatch.setattr(PrivateKey, "sign", sign_and_swap)
    with pytest.raises(PackRefused):
        sign_pack(pack, KEY)
    assert (pack.parent / "moved" / "manifest.json").read_text("utf-8") == MANIFEST


# The manifest's text

MEMBERS: dict[str, Any] = {"files": [{"path": "a"}], "signed": True, "signature": "x"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"files": [{"path": "a"}], "signed": true, "signature": "x"}'),
        ('{"a":1}', '{"a":1,"files":[{"path":"a"}],"signed":true,"signature":"x"}'),
        (
            '{"signature": "", "signed" : false }\n',
            '{"signature": "x", "signed" : true, "files": [{"path": "a"}] }\n',
        ),
        (
            '{\r\n\t"signed": 1.50,\r\n\t"b": [1, 2]\r\n}',
            '{\r\n\t"signed": true,\r\n\t"b": [1, 2],\r\n\t"files": [\r\n\t\t{\r\n\t\t\t"path": "a"\r\n\t\t}\r\n\t],'
            '\r\n\t"signature": "x"\r\n}',
        ),
        (
            '{\n "a": {"signed": "{", "files": []},\n "fil\\u0065s": {"x": [1]}}',
            '{\n "a": {"signed": "{", "files": []},\n "fil\\u0065s": [\n  {\n   "path": "a"\n  }\n ],'
            '\n "signed": true,\n "signature": "x"}',
        ),
    ],
)
def test_members_are_set_in_the_style_of_the_text(before: str, after: str) -> None:
    assert replace_members(before, MEMBERS) == after
    assert replace_members(after, MEMBERS) == after


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('ab{":,'), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["a", "files", "signed", "signature", '"', "{"]), json_values, max_size=5)


@given(
    objects,
    objects,
    st.sampled_from([None, 0, 1, 2, "\t"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]),
)
def test_members_are_set_and_all_others_stay(
    before: dict[str, Any], members: dict[str, Any], indent: int | str | None, separators: tuple[str, str]
) -> None:
    text = json.dumps(before, indent=indent, separators=separators)
    after = json.loads(replace_members(text, members))
    assert after == {**before, **members}
    assert list(after) == list({**before, **members})


# Who vouches for it


def trust(key: PrivateKey, state: str = "active", name: str = "alice") -> TrustedKey:
    return TrustedKey(name, key.public, state, "2026-07-01")


def test_key_that_only_the_pack_vouches_for_is_unknown(pack: Path) -> None:
    sign_pack(pack, KEY)
    verdict = verify(pack)
    assert (verdict.answer, verdict.rule, verdict.form) == ("unknown", "signer-unknown", "text")
    assert verdict.reason.startswith("consistent, signer unknown")
    assert verdict.signer == KEY.public.key_id
    assert verify(pack, trusted=(trust(STRANGER),)).answer == "unknown"


def test_trusted_key_is_named(pack: Path) -> None:
    sign_pack(pack, KEY)
    verdict = verify(pack, trusted=(trust(STRANGER, name="bob"), trust(KEY)))
    assert (verdict.answer, verdict.signer_name, verdict.signer) == ("held", "alice", KEY.public.key_id)


def test_trusted_key_is_found_without_the_packs_help(pack: Path) -> None:
    manifest = {**read(pack), "signed": True}
    change(pack, **manifest)
    payload = compute_payload(load_tree(pack), manifest, "reference")
    change(pack, signature=encode_signature(KEY.sign(payload)))
    assert verify(pack).rule == "no-key"
    assert verify(pack, trusted=(trust(STRANGER, name="bob"),)).rule == "no-key"
    verdict = verify(pack, trusted=(trust(STRANGER, name="bob"), trust(KEY)))
    assert (verdict.answer, verdict.form, verdict.signer_name) == ("held", "reference", "alice")


def test_given_keys_are_the_only_ones_that_count(pack: Path) -> None:
    sign_pack(pack, KEY)
    assert verify(pack, STRANGER).rule == "other-signer"
    assert verify(pack, STRANGER, trusted=(trust(KEY),)).rule == "other-signer"
    assert verify(pack, STRANGER, KEY).answer == "held"


def test_revoked_key_never_verifies(pack: Path) -> None:
    sign_pack(pack, KEY)
    for verdict in (
        verify(pack, trusted=(trust(KEY, "revoked"),)),
        verify(pack, KEY, trusted=(trust(KEY, "revoked"),)),
        verify(pack, STRANGER, trusted=(trust(KEY, "revoked"), trust(STRANGER, name="bob"))),
    ):
        assert (verdict.answer, verdict.rule) == ("broken", "key-revoked")
        assert "revoked since 2026-07-01" in verdict.reason
        assert verdict.signer_name == "alice"


def test_rotated_key_verifies_with_a_warning(pack: Path) -> None:
    sign_pack(pack, KEY)
    verdict = verify(pack, trusted=(trust(KEY, "rotated"), trust(STRANGER)))
    assert (verdict.answer, verdict.signer_name) == ("held", "alice")
    assert any("replaced this key at 2026-07-01" in warning for warning in verdict.warnings)
    sign_pack(pack, STRANGER)
    assert verify(pack, trusted=(trust(KEY, "rotated"), trust(STRANGER))).warnings == ()


def test_other_public_key_inside_is_told(pack: Path) -> None:
    sign_pack(pack, KEY)
    manifest = {**read(pack), "public_key": STRANGER.public.pem}
    change(pack, **manifest)
    change(pack, signature=encode_signature(KEY.sign(compute_payload(load_tree(pack), manifest, "text"))))
    verdict = verify(pack, KEY)
    assert verdict.answer == "held"
    assert any("another key" in warning for warning in verdict.warnings)
    assert verify(pack).answer == "broken"


@pytest.mark.parametrize(
    "value", [1, None, ["x"], "", "ssh-ed25519 AAAA", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
)
def test_public_key_inside_that_is_none_is_told_and_not_used(pack: Path, value: Any) -> None:
    sign_pack(pack, KEY)
    manifest = {**read(pack), "public_key": value}
    change(pack, **manifest)
    change(pack, signature=encode_signature(KEY.sign(compute_payload(load_tree(pack), manifest, "text"))))
    verdict = verify(pack, KEY)
    assert verdict.answer == "held"
    assert any("public_key" in warning for warning in verdict.warnings)
    assert verify(pack).rule == "no-key"


def test_missing_title_and_agents_are_warnings(pack: Path) -> None:
    manifest = {name: value for name, value in read(pack).items() if name not in ("title", "agents")}
    (pack / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    sign_pack(pack, KEY)
    verdict = verify(pack, KEY)
    assert verdict.answer == "held"
    assert ["title" in verdict.warnings[0], "agents" in verdict.warnings[1]] == [True, True]


# What changed

hashes = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["0" * 64, "1" * 64, "2" * 64]))


@given(hashes, hashes)
def test_differences_lead_from_what_was_signed_to_what_is_there(signed: dict[str, str], found: dict[str, str]) -> None:
    rebuilt = dict(signed)
    for one in compare_files(signed, found):
        if one.kind == "renamed":
            assert one.new_path is not None
            assert one.new_path not in signed
            rebuilt[one.new_path] = rebuilt.pop(one.path)
        elif one.kind == "missing":
            del rebuilt[one.path]
        else:
            assert (one.path in signed) == (one.kind == "changed")
            rebuilt[one.path] = found[one.path]
    assert rebuilt == found


def test_equal_files_are_paired_in_order() -> None:
    same = "0" * 64
    assert compare_files({"a": same, "b": same}, {"c": same, "d": same, "e": same}) == (
        Difference("renamed", "a", "c"),
        Difference("renamed", "b", "d"),
        Difference("added", "e"),
    )


def test_many_differences_take_no_longer_each() -> None:
    listed = {f"old/{number}": "0" * 64 for number in range(30_000)}
    found = {f"new/{number}": "0" * 64 for number in range(30_000)}
    assert {one.kind for one in compare_files(listed, found)} == {"renamed"}


@pytest.mark.parametrize(
    "files",
    [
        {},
        "agents.md",
        [1],
        [None],
        ["agents.md"],
        [{"path": "a"}],
        [{"sha256": "0" * 64}],
        [{"path": 1, "sha256": "0" * 64}],
        [{"path": "a", "sha256": "0" * 63}],
        [{"path": "a", "sha256": "A" * 64}],
        [{"path": "a", "sha256": "\u0660" * 64}],
        [{"path": "a", "sha256": "0" * 64}] * 2,
    ],
)
def test_list_of_files_of_another_shape_is_none(files: Any) -> None:
    assert read_listed_files({"files": files}) is None


def test_list_of_files_may_be_empty_or_hold_more() -> None:
    assert read_listed_files({"files": []}) == {}
    assert read_listed_files({"files": [{"path": "a", "sha256": "0" * 64, "size": 1}]}) == {"a": "0" * 64}
    assert read_listed_files({}) is None


# The signature's text


def test_signature_has_one_spelling() -> None:
    signature = KEY.sign(b"payload")
    text = encode_signature(signature)
    assert decode_signature(text) == signature
    spare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert [last for last in spare if decode_signature(text[:-1] + last)] == list("AQgw")


@given(st.binary(min_size=64, max_size=64))
def test_signature_reads_back(signature: bytes) -> None:
    assert decode_signature(encode_signature(signature)) == signature


@pytest.mark.parametrize(
    "text",
    [
        None,
        1,
        True,
        [],
        "",
        "A" * 85,
        "A" * 87,
        "A" * 86 + "==",
        "A" * 85 + "+",
        "A" * 85 + "\u0410",
        " " + "A" * 85,
        "A" * 85 + "\n",
    ],
)
def test_other_text_is_no_signature(text: Any) -> None:
    assert decode_signature(text) is None


# Whatever a pack holds

names = st.sampled_from(
    ["a.md", "memory/b.md", "memory.md", "\u00e9.md", "\ufb33.md", "\U0001f600.md", "x/y/z.bin", ".hidden"]
)
contents = st.dictionaries(names, st.binary(max_size=20), max_size=6)


@given(contents, st.sampled_from(["text", "reference"]), st.data())
def test_any_pack_is_held_until_one_thing_changes(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], form: str, data: st.DataObject
) -> None:
    pack = tmp_path_factory.mktemp("any")
    (pack / "memory").mkdir()
    (pack / "manifest.json").write_text(MANIFEST, "utf-8")
    (pack / "agents.md").write_text(AGENTS, "utf-8")
    (pack / "memory" / "operating-principles.md").write_text(CLUSTER, "utf-8")
    for name, content in files.items():
        (pack / name).parent.mkdir(parents=True, exist_ok=True)
        (pack / name).write_bytes(content)
    sign_pack(pack, KEY, form)
    assert verify(pack, KEY).answer == "held"
    victim = pack / data.draw(st.sampled_from(sorted(["agents.md", *files])))
    how = data.draw(st.sampled_from(["changed", "missing", "renamed", "added"]))
    if how == "changed":
        victim.write_bytes(victim.read_bytes() + b"!")
    elif how == "missing":
        victim.unlink()
    elif how == "renamed":
        victim.rename(victim.with_name("renamed.md"))
    else:
        (pack / "added.md").write_bytes(b"an added file")
    verdict = verify(pack, KEY)
    assert (verdict.answer, verdict.rule) == ("broken", "files-differ")
    assert {one.kind for one in verdict.differences} == {how}
    assert len(verdict.differences) == 1
