"""The real routines, each by itself: what they find, what they change, what they describe."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from melete.errors import (
    ConfigurationError,
    InvalidInput,
    InvalidJson,
    MeleteError,
    MissingFile,
    StoreNotWritten,
    UnknownSpace,
)
from melete.meditation.layers import Layer
from melete.meditation.runner import runtime_layer
from melete.meditation.runner.files import NamedPath, hash_path, write_atomically
from melete.meditation.runner.files_layer import CognitionRoutine, TasksRoutine, load_candidate
from melete.meditation.runner.memory_layer import MemoryRoutine, Skill, load_memory_head
from melete.meditation.runner.obligations import Obligation
from melete.meditation.runner.probes import probe
from melete.meditation.runner.routine import CheckResult, CycleContext, LayerRoutine, LayerWork
from melete.meditation.runner.running import describe
from melete.meditation.runner.runtime_layer import (
    Adapter,
    Program,
    RuntimeRoutine,
    SelfCheck,
    list_distributions,
    run_self_check,
)
from melete.memory.space import Head
from melete.packs.hosts import Scope
from melete.packs.inspection import Place
from melete.primitives import Address, Bytes32
from melete.wire.envelope import MemoryType
from melete.wire.store import MemoryStore
from sdk.packs.install_samples import make_pack, make_project, put

from .registry_fake import POLICY, example


def work_of(routine: LayerRoutine, registered: Any = None, **context: Any) -> LayerWork:
    documents = {} if registered is None else {int(routine.layer): registered}
    documents |= context.pop("documents", {})
    return LayerWork(routine.layer, CycleContext(clock=lambda: 7, documents=documents, **context))


def checked(routine: LayerRoutine, registered: Any = None, **context: Any) -> dict[str, tuple[str, Any]]:
    """What a routine's check tells: result and detail by name."""
    work = work_of(routine, registered, **context)
    routine.check(work)
    return {str(check["name"]): (str(check["result"]), check.get("detail")) for check in work.findings.checks}


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


# Files


def test_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    assert hash_path(NamedPath("a", tmp_path / "a")) == digest_of(b"content")


def test_digest_of_a_folder_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    lines = f"{sha256(b'2').hexdigest()}  b\n{sha256(b'1').hexdigest()}  deep/a\n"
    assert hash_path(NamedPath("folder", tmp_path)) == digest_of(lines.encode())


@pytest.mark.parametrize("kind", ["missing", "link", "folder link", "pipe"])
def test_what_is_no_file_is_refused_by_its_name_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "secret-place"
    if kind == "link":
        (tmp_path / "target").write_text("x")
        path.symlink_to(tmp_path / "target")
    elif kind == "folder link":
        path.symlink_to(tmp_path)
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(MissingFile) as caught:
        hash_path(NamedPath("adapters", path))
    assert "adapters" in str(caught.value)
    assert "secret-place" not in str(caught.value)


def test_folder_with_a_link_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(MeleteError, match="link"):
        hash_path(NamedPath("folder", tmp_path))


def test_written_file_is_whole_keeps_its_mode_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)
    write_atomically(NamedPath("a", path), b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    with pytest.raises(StoreNotWritten):
        write_atomically(NamedPath("a", tmp_path / "nowhere" / "a"), b"new")


# Layer 0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let exactly these distributions be installed."""
    site = tmp_path / "site"
    site.mkdir()
    every = metadata.distributions
    monkeypatch.setattr(runtime_layer.metadata, "distributions", lambda: every(path=[str(site)]))

    def install(name: str, version: str | None = "1.0", record: bytes | None = b"a,b,c\r\n") -> None:
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        stated = "" if version is None else f"Version: {version}\n"
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n{stated}")
        if record is not None:
            (folder / "RECORD").write_bytes(record)

    return install


def test_distributions_carry_the_digest_of_their_record_byte_for_byte(installed) -> None:
    installed("Zoo.Keeper", record=b"zoo.py,sha256=x,1\r\n")
    installed("anyio", "4.9.0", record=None)
    installed("nameless", None)
    found, nameless = list_distributions()
    assert [one.to_json() for one in found.values()] == [
        {"name": "anyio", "version": "4.9.0"},
        {"name": "Zoo.Keeper", "version": "1.0", "digest": digest_of(b"zoo.py,sha256=x,1\r\n")},
    ]
    assert nameless == 1


def test_runtime_document_names_what_the_agent_runs_on(installed, tmp_path: Path) -> None:
    for name in ("anyio", "mcp", "harbor-clerk"):
        installed(name)
    (tmp_path / "adapters.toml").write_bytes(b"x")
    (tmp_path / "rules").mkdir()
    routine = RuntimeRoutine(
        code=[Program("clerk", distribution="Harbor_Clerk", source="ours"),
              Program("rules", "4", files=NamedPath("rules", tmp_path / "rules"))],
        configuration=[NamedPath("adapters.toml", tmp_path / "adapters.toml"), NamedPath("gone", tmp_path / "gone")],
        adapters=[Adapter("tides", "api", "tide tables", "2", "https://user:pass@example.com/key?token=x")],
        self_checks=[SelfCheck("dry-run", "1", "Sends nothing.", ("true",))],
        authorization=[{"name": "mail", "scope": "send"}],
    )  # fmt: skip
    document: Any = describe(routine)
    assert [one["name"] for one in document["dependencies"]] == ["anyio", "mcp"]
    assert document["code"] == [
        {"name": "clerk", "version": "1.0", "digest": digest_of(b"a,b,c\r\n"), "source": "ours"},
        {"name": "rules", "version": "4", "digest": digest_of(b"")},
    ]
    assert document["configuration"] == [{"name": "adapters.toml", "digest": digest_of(b"x")}]
    assert document["adapters"] == [{"name": "tides", "kind": "api", "interface": "tide tables", "version": "2"}]
    assert document["interpreter"]["name"] == "cpython"
    assert "example.com" not in json.dumps(document)


def test_only_the_dependencies_that_count_are_named(installed) -> None:
    installed("anyio")
    installed("mcp")
    document: Any = describe(RuntimeRoutine(dependencies=["MCP"]))
    assert [one["name"] for one in document["dependencies"]] == ["mcp"]
    with pytest.raises(ConfigurationError, match="'gone' is not installed"):
        RuntimeRoutine(dependencies=["gone"]).describe()
    with pytest.raises(ConfigurationError, match="not installed"):
        RuntimeRoutine(code=[Program("clerk", distribution="gone")]).describe()
    with pytest.raises(InvalidInput, match="version"):
        RuntimeRoutine(code=[Program("clerk")]).describe()


def test_what_differs_from_the_registered_runtime_is_told_one_by_one(installed, tmp_path: Path) -> None:
    for name in ("anyio", "mcp", "trio", "same"):
        installed(name)
    (tmp_path / "adapters.toml").write_bytes(b"x")
    routine = RuntimeRoutine(configuration=[NamedPath("adapters.toml", tmp_path / "adapters.toml")])
    registered = describe(routine)
    assert {name: result for name, (result, _) in checked(routine, registered).items()} == {
        "interpreter as registered": "passed",
        "dependencies as registered": "passed",
        "configuration as registered": "passed",
    }
    shutil.rmtree(tmp_path / "site" / "mcp-1.0.dist-info")
    shutil.rmtree(tmp_path / "site" / "anyio-1.0.dist-info")
    installed("anyio", "2.0")
    installed("trio", record=b"other")
    installed("zoo")
    (tmp_path / "adapters.toml").write_bytes(b"y")
    found = checked(routine, {**registered, "interpreter": {"name": "pypy", "version": "1"}})
    assert found["dependencies as registered"] == (
        "failed", "anyio 1.0 became 2.0; mcp is gone; trio has other content; zoo 1.0 is new",
    )  # fmt: skip
    assert found["configuration as registered"] == ("failed", "adapters.toml has other content")
    assert found["interpreter as registered"][0] == "failed"
    (tmp_path / "adapters.toml").unlink()
    assert checked(routine)["configuration: adapters.toml"] == ("failed", "it is not there")


def test_adapters_are_tried_and_seen_at_a_time() -> None:
    asked = []

    def ask(address: str, seconds: float) -> Any:
        asked.append((address, seconds))
        return runtime_layer.Answer("good" in address, 0.25, "as asked")

    adapters = [Adapter("one", "api", "x", probe="tcp://good:1", timeout_seconds=3), Adapter("two", "api", "x"),
                Adapter("three", "api", "x", probe="tcp://bad:1")]  # fmt: skip
    routine = RuntimeRoutine(adapters=adapters, dependencies=[], ask=ask)
    work = work_of(routine)
    routine.check(work)
    assert asked == [("tcp://good:1", 3), ("tcp://bad:1", 5)]
    assert [(one["name"], one["value"], one["observedAt"]) for one in work.findings.observations] == [
        ("one: reachable", True, 7),
        ("one: seconds until the answer", 0.25, 7),
        ("three: reachable", False, 7),
        ("three: seconds until the answer", 0.25, 7),
    ]
    assert [check["result"] for check in work.findings.checks] == ["passed", "failed"]


@pytest.mark.parametrize(
    ("command", "result", "told"),
    [
        (("true",), CheckResult.PASSED, "it ended with 0"),
        (("sh", "-c", "exit 3"), CheckResult.FAILED, "it ended with 3"),
        (("sh", "-c", "sleep 9 & sleep 9"), CheckResult.FAILED, "it did not end within 0.2 s"),
        (("nothing-of-this-name",), CheckResult.COULD_NOT_TELL, "it cannot be run: No such file or directory"),
        (("nu\0l",), CheckResult.COULD_NOT_TELL, "it cannot be run: ValueError"),
    ],
)
def test_self_check_is_run_and_its_end_told(command, result, told) -> None:
    assert run_self_check(SelfCheck("check", command=command, timeout_seconds=0.2), None) == (result, told)


def test_self_check_is_given_none_of_our_secrets(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MELETE_PRIVATE_KEY", "secret")
    check = SelfCheck(
        "check", command=("sh", "-c", 'test -z "$MELETE_PRIVATE_KEY" && test "$PWD" = "$1"', "sh", str(tmp_path))
    )
    assert run_self_check(check, tmp_path)[0] is CheckResult.PASSED


# Probes


@contextmanager
def answering(*parts: bytes, pause: float = 0.0) -> Iterator[int]:
    """A server on a port that reads a little and answers with these parts."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(2)
                    connection.recv(1000)
                    for part in parts:
                        connection.sendall(part)
                        time.sleep(pause)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("parts", "reachable", "how"),
    [
        ((b"HTTP/1.1 200 OK\r\n\r\n",), True, "HTTP status 200"),
        ((b"HTTP/1.0 404 Not", b" Found\r\n"), True, "HTTP status 404"),
        ((b"HTTP/1.1 500\n",), True, "HTTP status 500"),
        ((b"SSH-2.0-OpenSSH\r\n",), False, "what answers there is no web server"),
        ((b"HTTP/1.1 \x1b[31m evil\r\n",), False, "what answers there is no web server"),
        ((), False, "what answers there is no web server"),
        ((b"x" * 10_000,), False, "what answers there is no web server"),
    ],
)
def test_web_address_is_reachable_if_a_web_server_answers(parts, reachable, how) -> None:
    with answering(*parts) as port:
        found = probe(f"http://127.0.0.1:{port}/path?key=secret", 2)
    assert (found.reachable, found.how) == (reachable, how)


def test_probe_ends_in_time_however_slowly_it_is_answered() -> None:
    with answering(*[b"H"] * 40, pause=0.05) as port:
        found = probe(f"http://127.0.0.1:{port}/", 0.3)
    assert (found.reachable, found.how) == (False, "no answer within 0.3 s")


def test_tcp_address_is_reachable_if_it_accepts() -> None:
    with answering() as port:
        assert probe(f"tcp://127.0.0.1:{port}", 2).reachable
    with socket.socket() as taken:  # and by nobody else meanwhile
        taken.bind(("127.0.0.1", 0))
        found = probe(f"tcp://127.0.0.1:{taken.getsockname()[1]}", 2)
    assert (found.reachable, found.how) == (False, "connection refused")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "example.com",
        "ftp://example.com",
        "tcp://example.com",
        "http://",
        "http://ho st/",
        "http://h:99999/",
        "http://h/\r\nX: y",
    ],
)
def test_address_that_cannot_be_tried_is_refused_without_showing_it(address) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RuntimeRoutine(adapters=[Adapter("a", "api", "x", probe=address)])
    assert address in ("", "http://") or address not in str(caught.value)


# Layer 1


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "memories.db"
    with MemoryStore.open(path, clock=lambda: 1000) as opened:
        opened.remember(MemoryType.SEMANTIC, "prefers green tea")
        opened.remember(MemoryType.EPISODIC, "asked twice", ttl_seconds=60)
    return path


def test_memory_document_names_audit_head_and_count(store: Path) -> None:
    document: Any = describe(MemoryRoutine(store=store))
    with MemoryStore.open(store) as opened:
        head = opened.audit_head()
    assert document["memory"]["digest"] == f"keccak256:{head.hash.hex()}"
    assert (document["memory"]["count"], document["extensions"]) == (1, {"melete/audit-number": str(head.number)})


def test_what_is_due_is_expired_once_and_told(store: Path) -> None:
    routine = MemoryRoutine(store=store)
    before = describe(routine)
    change = {"operation": "clean", "what": "memories past their time were removed", "detail": "1 of them"}
    for changes, seen in (([change], 1), ([], 0)):
        work = work_of(routine)
        routine.clean(work)
        assert work.findings.changes == changes
        assert [one["value"] for one in work.findings.observations] == [seen]
    assert describe(routine) != before


def test_audit_log_has_to_go_on_from_the_registered_head(store: Path, tmp_path: Path) -> None:
    routine = MemoryRoutine(store=store)
    registered = describe(routine)
    routine.clean(work_of(routine))
    assert checked(routine, registered)["memory audit"] == ("passed", "3 entries, which go on from the registered 2")
    other = tmp_path / "other.db"
    with MemoryStore.open(other, clock=lambda: 1000) as opened:  # another log, right in itself
        for number in range(4):
            opened.remember(MemoryType.SEMANTIC, f"memory {number}")
    result, told = checked(MemoryRoutine(store=other), registered)["memory audit"]
    assert result == "failed"
    assert "recorded elsewhere" in told
    assert checked(MemoryRoutine(store=other))["memory audit"] == ("passed", "4 entries")


@pytest.mark.parametrize("number", ["x", 7, "0", None])
def test_registered_document_that_names_no_audit_head_is_compared_with_nothing(store: Path, number: Any) -> None:
    registered = {**describe(MemoryRoutine(store=store)), "extensions": {"melete/audit-number": number}}
    assert checked(MemoryRoutine(store=store), registered)["memory audit"] == ("passed", "2 entries")


def test_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    routine = MemoryRoutine(store=tmp_path / "gone.db")
    for do in (lambda: routine.check(work_of(routine)), lambda: routine.clean(work_of(routine)), routine.describe):
        with pytest.raises(MissingFile):
            do()
    assert not (tmp_path / "gone.db").exists()


@pytest.mark.parametrize("both", [True, False])
def test_memory_is_kept_in_a_store_or_in_files(store: Path, tmp_path: Path, both: bool) -> None:
    given = {"store": store, "files": NamedPath("memory", tmp_path)} if both else {}
    with pytest.raises(InvalidInput, match="a store, or the files") as caught:
        MemoryRoutine(**given)  # type: ignore[arg-type]
    assert caught.value.value == ("both" if both else "neither")


def test_memory_in_files_is_named_by_their_digest(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "notes.md").write_text("tea")
    routine = MemoryRoutine(files=NamedPath("memory", tmp_path / "memory"))
    routine.clean(work_of(routine))
    document: Any = describe(routine)
    assert document["memory"]["digest"] == hash_path(NamedPath("memory", tmp_path / "memory"))
    assert "extensions" not in document


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    root = make_project(tmp_path / "project")
    put(make_pack(tmp_path / "pack", "harbor-rules"), root)
    return Place(str(root), Scope.PROJECT)


def test_packs_are_named_by_digest_and_checked_file_by_file(store: Path, project: Place) -> None:
    routine = MemoryRoutine(store=store, packs=[project])
    document: Any = describe(routine)
    (pack,) = document["packs"]
    assert (pack["name"], pack["version"], pack["digest"][:7]) == ("harbor-rules", "1", "sha256:")
    assert "signer" not in pack
    assert checked(routine)["pack: harbor-rules"][0] == "passed"
    (Path(project.root) / ".amp" / "harbor-rules" / "agents.md").write_text("# Something else\n")
    result, told = checked(routine)["pack: harbor-rules"]
    assert (result, "from what was installed" in told) == ("failed", True)
    assert describe(routine)["packs"][0]["digest"] != pack["digest"]  # type: ignore[index,call-overload]


def test_install_that_was_cut_off_is_told_and_made_good(store: Path, project: Place, monkeypatch) -> None:
    state = {"unfinished": True}
    monkeypatch.setattr("melete.packs.inspection.is_unfinished", lambda _: state["unfinished"])

    def make_good(_: Place) -> list[str]:
        made = ["an install of notes was undone"] if state["unfinished"] else []
        state["unfinished"] = False
        return made

    monkeypatch.setattr("melete.packs.inspection.make_good", make_good)
    routine = MemoryRoutine(store=store, packs=[project])
    assert checked(routine)["packs of the project"] == ("failed", "an install or uninstall was cut off")
    work = work_of(routine)
    routine.repair(work)
    assert work.findings.changes == [
        {
            "operation": "repair", "what": "an install of a pack that was cut off is made good",
            "detail": "an install of notes was undone",
        }
    ]  # fmt: skip
    assert [check["name"] for check in work.findings.checks] == ["pack: harbor-rules"]
    routine.repair(work)
    assert len(work.findings.changes) == 1


def test_skills_and_harness_are_held_against_what_is_registered(store: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    skills = [Skill(name, "1", NamedPath(name, tmp_path / name)) for name in ("a", "b", "c")]
    routine = MemoryRoutine(store=store, skills=skills, harness=[NamedPath("skills.toml", tmp_path / "a")])
    registered: Any = describe(routine)
    del registered["skills"][2]
    (tmp_path / "a").write_text("changed")
    (tmp_path / "b").unlink()
    found = checked(routine, registered)
    assert found["skill: a"] == ("failed", "its content is not what is registered")
    assert found["skill: b"] == ("failed", "it is not there")
    assert found["skill: c"] == ("passed", "it was not registered before")
    assert found["harness: skills.toml"][0] == "failed"
    assert [skill["name"] for skill in describe(routine)["skills"]] == ["a", "c"]  # type: ignore[index,call-overload,union-attr]


def test_registered_skills_and_packs_that_are_gone_are_told_as_failed(store: Path, project: Place, tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    a, b = (Skill(name, "1", NamedPath(name, tmp_path / name)) for name in ("a", "b"))
    registered = describe(MemoryRoutine(store=store, skills=[a, b], packs=[project]))
    found = checked(MemoryRoutine(store=store, skills=[a]), registered)
    assert found["skill: b"] == ("failed", "b is gone")
    assert found["skill: a"] == ("passed", "as registered")
    assert found["pack: harbor-rules"] == ("failed", "harbor-rules is gone")
    assert "pack: harbor-rules" in checked(MemoryRoutine(store=store, packs=[project]), None)
    found = checked(MemoryRoutine(store=store, skills=[a, b], packs=[project]), registered)
    assert {result for result, _ in found.values()} == {"passed"}


def test_memory_head_is_named_as_its_registry_gives_it(store: Path) -> None:
    class Registry:
        chain_id, address = 31337, Address(b"\x11" * 20)

        def head(self, _: Bytes32) -> Head:
            return Head(Bytes32(b"\x01" * 32), Bytes32(b"\x02" * 32), 42)

    registry: Any = Registry()
    routine = MemoryRoutine(store=store, head=lambda: load_memory_head(registry, Bytes32(b"\x03" * 32)))
    document: Any = describe(routine)
    assert document["memory"]["head"] == {
        "chainId": "31337", "registry": str(registry.address), "spaceId": "0x" + "03" * 32, "sequence": "42",
        "stateRoot": "0x" + "02" * 32,
    }  # fmt: skip

    def unknown() -> Any:
        raise UnknownSpace

    with pytest.raises(UnknownSpace):
        MemoryRoutine(store=store, head=unknown).describe()


# Layers 2 and 3


@pytest.fixture
def tasks(tmp_path: Path) -> NamedPath:
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(example("baseline/tasks-roles.json")))
    return NamedPath("tasks.json", path)


def test_tasks_are_held_against_the_skills_that_are_held(tasks: NamedPath) -> None:
    routine = TasksRoutine(tasks)
    baseline, post = example("baseline/memory-skills.json"), example("post/memory-skills.json")
    assert describe(routine) == example("baseline/tasks-roles.json")
    found = checked(routine, documents={Layer.MEMORY_SKILLS: baseline})
    assert found["bound versions"] == ("passed", "2 of 2 are held")
    found = checked(routine, documents={Layer.MEMORY_SKILLS: post})
    assert found["bound versions"] == ("failed", "berth-17 is bound to read-tides 2, which is not held")
    assert checked(routine)["bound versions"][0] == "could-not-tell"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "amm.layer.cognition/1", "layer": 3}', '{"a": NaN}'])
def test_document_file_that_is_none_is_refused(tasks: NamedPath, text: str) -> None:
    tasks.path.write_text(text)
    with pytest.raises(InvalidJson):
        TasksRoutine(tasks).describe()


@pytest.fixture
def cognition(tmp_path: Path) -> tuple[CognitionRoutine, NamedPath, NamedPath]:
    document = NamedPath("cognition.json", tmp_path / "cognition.json")
    candidate = NamedPath("candidate.json", tmp_path / "candidate.json")
    document.path.write_text(json.dumps(example("baseline/cognition.json")))
    return CognitionRoutine(document, candidate), document, candidate


def a_candidate(**changes: Any) -> Any:
    document = example("baseline/cognition.json")
    document["strategies"].append({"id": "ask-first", "statement": "Ask first."})
    return {
        "id": "ask-first", "description": "Ask before comparing.", "document": document,
        "evaluation": {"method": "Replay.", "cases": 24, "result": "Better in 17."}, **changes,
    }  # fmt: skip


def test_cognition_has_to_name_the_policy_in_force(cognition) -> None:
    routine, _, _ = cognition
    assert checked(routine, policy_hash=POLICY.policy_hash)["names the policy in force"][0] == "passed"
    assert checked(routine, policy_hash=Bytes32(b"\x01" * 32))["names the policy in force"][0] == "failed"


def test_candidate_that_may_be_adopted_takes_the_documents_place_once(cognition) -> None:
    routine, _, candidate = cognition
    candidate.path.write_text(json.dumps(a_candidate()))
    work = work_of(routine, minimum_cases=20)
    routine.iterate(work)
    assert describe(routine) == a_candidate()["document"]
    assert work.findings.changes == [{"operation": "iterate", "what": "ask-first: Ask before comparing."}]
    again = work_of(routine, minimum_cases=20)
    routine.iterate(again)
    assert (again.findings.changes, again.findings.candidates, again.findings.evaluation) == ([], [], None)
    candidate.path.unlink()
    routine.iterate(again)


@pytest.mark.parametrize("context", [{"minimum_cases": 25}, {"obligations": (Obligation("no-night-mail"),)}])
def test_candidate_that_may_not_be_adopted_changes_nothing(cognition, context) -> None:
    routine, document, candidate = cognition
    before = document.path.read_bytes()
    candidate.path.write_text(json.dumps(a_candidate()))
    work = work_of(routine, **context)
    routine.iterate(work)
    assert document.path.read_bytes() == before
    assert [one["id"] for one in work.findings.candidates] == ["ask-first"]


def test_without_a_candidate_there_is_nothing_to_decide(cognition) -> None:
    routine, document, _ = cognition
    work = work_of(routine)
    routine.iterate(work)
    CognitionRoutine(document).iterate(work)
    assert work.findings.candidates == []


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"mood": 1}, ""),
        ({"id": ""}, "/id"),
        ({"description": None}, "/description"),
        ({"evaluation": {"method": "Replay.", "cases": 24}}, "/evaluation"),
        ({"evaluation": {"method": "Replay.", "cases": True, "result": "x"}}, "/evaluation/cases"),
        ({"evaluation": {"method": "Replay.", "cases": -1, "result": "x"}}, "/evaluation/cases"),
        ({"evaluation": {"method": "", "cases": 1, "result": "x"}}, "/evaluation/method"),
        ({"document": []}, "/document"),
        ({"document": {**example("baseline/cognition.json"), "mood": 1}}, "/document/mood"),
        ({"document": example("baseline/runtime.json")}, "/document/schema"),
    ],
)
def test_candidate_of_another_shape_is_refused_with_the_place(cognition, change, pointer) -> None:
    _, _, candidate = cognition
    candidate.path.write_text(json.dumps(a_candidate(**change)))
    with pytest.raises(InvalidJson) as caught:
        load_candidate(candidate)
    assert caught.value.pointer == pointer
