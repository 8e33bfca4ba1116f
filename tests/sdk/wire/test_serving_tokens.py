from __future__ import annotations

import hmac
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from melete.cli.main import run
from melete.errors import InvalidInput, MeleteError, StoreBusy, StoreNotWritten, StoreUnreadable, UnsafeFile
from melete.wire.errors import EnvelopeError, MissingMember
from melete.wire.serving import errors
from melete.wire.serving import tokens as module
from melete.wire.serving.errors import MissingRole, OtherAgent
from melete.wire.serving.tokens import Role, Token, TokenFile, fresh_secret

READER, WRITER, APPROVER = Role


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "tokens.json"


@pytest.fixture
def file(path: Path) -> TokenFile:
    return TokenFile(path)


def make(file: TokenFile, name: str = "ada", *agents: str, roles: tuple[Role, ...] = (READER,)) -> tuple[Token, str]:
    return file.add(name, agents or ("helper",), roles)


# Making


def test_token_is_found_by_its_secret_and_by_nothing_else(file: TokenFile) -> None:
    token, secret = make(file)
    assert file.find(secret) == token
    for other in (fresh_secret(), secret[:-1], secret + "A", secret.lower(), f" {secret}", "", "mlt_", token.id):
        assert file.find(other) is None
    assert file.find(token.digest.hex()) is None
    assert file.find("mlt_\ud800" + "é" * 42) is None


def test_secret_is_random_and_stands_nowhere_in_the_file(file: TokenFile, path: Path) -> None:
    (token, secret), (other, other_secret) = make(file), make(file)
    assert secret != other_secret
    assert token.id != other.id
    assert re.fullmatch(r"mlt_[A-Za-z0-9_-]{43}", secret)
    text = path.read_text()
    assert secret not in text
    assert secret.removeprefix("mlt_") not in text
    assert token.digest == sha256(secret.encode()).digest()
    assert token.digest.hex() in text
    assert secret not in f"{token!r} {token} {file!r}"


def test_file_is_the_owners_alone_and_whole(file: TokenFile, path: Path) -> None:
    make(file)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["version"] == 1
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_what_is_written_reads_back(file: TokenFile, path: Path) -> None:
    made = [
        make(file, " Ada  Lovelace ", "a", "b", "a", roles=(WRITER, READER, WRITER))[0],
        make(file, "Örjan", "\U0001f600", roles=(APPROVER,))[0],
    ]
    assert TokenFile(path).load() == tuple(made)
    assert made[0].name == "Ada Lovelace"
    assert made[0].agents == ("a", "b")
    assert made[0].roles == {READER, WRITER}


@pytest.mark.parametrize(
    ("name", "agents", "roles", "field"),
    [
        ("", ["helper"], [READER], "name"),
        ("\u200b", ["helper"], [READER], "name"),
        ("a\nb\x1b[0m", ["helper"], [READER], "name"),
        ("a" * 129, ["helper"], [READER], "name"),
        ("0123456789ab", ["helper"], [READER], "name"),
        (None, ["helper"], [READER], "name"),
        ("ada", [], [READER], "agents"),
        ("ada", "helper", [READER], "agents"),
        ("ada", [str(number) for number in range(65)], [READER], "agents"),
        ("ada", ["helper"], [], "roles"),
        ("ada", ["helper"], ["owner"], "roles"),
        ("ada", ["helper"], [{}], "roles"),
        ("Helper", ["other", "helper"], [APPROVER], "name"),
    ],
)
def test_token_that_breaks_a_rule_is_refused_and_nothing_is_written(
    file: TokenFile, path: Path, name: Any, agents: Any, roles: Any, field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        file.add(name, agents, roles)
    assert caught.value.field == field
    assert str(caught.value).isprintable()
    assert not path.exists()


@pytest.mark.parametrize("agent", ["", "a" * 257, "nul\0", "\ud800", 7])
def test_token_for_what_is_no_agent_is_refused(file: TokenFile, agent: Any) -> None:
    with pytest.raises(EnvelopeError) as caught:
        file.add("ada", ["helper", agent], [READER])
    assert caught.value.member == "agents"


def test_same_secret_twice_is_refused(file: TokenFile) -> None:
    secret = fresh_secret()
    file.add("ada", ["helper"], [READER], new_secret=lambda: secret)
    with pytest.raises(InvalidInput, match="kept already"):
        file.add("bob", ["other"], [WRITER], new_secret=lambda: secret)
    assert [token.name for token in file.load()] == ["ada"]


# What a token is for


def test_role_is_had_or_not_and_none_includes_another(file: TokenFile) -> None:
    for own in Role:
        token, _ = make(file, "ada", roles=(own,))
        token.require_role(own)
        for other in Role:
            if other is not own:
                with pytest.raises(MissingRole) as caught:
                    token.require_role(other)
                assert caught.value.role == other.value


def test_agent_is_the_only_one_or_has_to_be_named(file: TokenFile) -> None:
    one, _ = make(file, "ada", "helper")
    two, _ = make(file, "ada", "helper", "scribe")
    assert one.choose_agent(None) == "helper"
    assert two.choose_agent("scribe") == "scribe"
    with pytest.raises(MissingMember) as caught:
        two.choose_agent(None)
    assert caught.value.member == "agent_id"
    for other in ("Helper", "helper ", "", "scrib", "default"):
        with pytest.raises(OtherAgent) as refused:
            two.choose_agent(other)
        assert refused.value.agent == other


# Finding


def test_every_digest_is_compared_in_constant_time(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [make(file) for _ in range(3)]
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "compare_digest", compare)
    for _, secret in (*made, (None, fresh_secret())):
        compared.clear()
        file.find(secret)
        assert compared == [token.digest for token, _ in made]


def test_open_file_sees_what_others_add_and_revoke(file: TokenFile, path: Path) -> None:
    secret = fresh_secret()
    assert file.find(secret) is None
    token, _ = TokenFile(path).add("ada", ["helper"], [READER], new_secret=lambda: secret)
    assert file.find(secret) == token
    TokenFile(path).revoke(token.id)
    assert file.find(secret) is None
    again, _ = TokenFile(path).add("ada", ["helper"], [READER], new_secret=lambda: secret)
    assert file.find(secret) == again
    path.unlink()
    assert file.find(secret) is None


def test_unchanged_file_is_read_once(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = make(file)
    read: list[int] = []
    load = TokenFile.load
    monkeypatch.setattr(TokenFile, "load", lambda self: read.append(1) or load(self))  # type: ignore[func-returns-value]
    assert file.find(secret)
    assert file.find(fresh_secret()) is None
    assert file.find(secret)
    assert len(read) == 1


def test_nobody_is_let_in_once_others_can_read_the_file(file: TokenFile, path: Path) -> None:
    _, secret = make(file)
    assert file.find(secret)
    path.chmod(0o640)
    for _ in range(2):
        with pytest.raises(UnsafeFile) as caught:
            file.find(secret)
        assert caught.value.mode == "0640"
    path.chmod(0o600)
    assert file.find(secret)


# Revoking


def test_revoking_an_id_takes_out_one_token_and_a_name_all_of_its(file: TokenFile) -> None:
    first, _ = make(file, "ada")
    second, secret = make(file, "Ada")
    third, _ = make(file, "bob")
    assert file.revoke(first.id) == (first,)
    assert file.load() == (second, third)
    assert file.revoke(" ADA ") == (second,)
    assert file.find(secret) is None
    assert file.load() == (third,)
    for nobody in ("ada", first.id, "", "0123456789ab"):
        with pytest.raises(InvalidInput) as caught:
            file.revoke(nobody)
        assert caught.value.field == "token"
    assert file.load() == (third,)


# Files


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "digest": "ab" * 32,
        "name": "ada",
        "agents": ["helper"],
        "roles": ["reader"],
        "created_at": 1_800_000_000,
        **changes,
    }


def written(*entries: Any, version: Any = 1) -> str:
    return json.dumps({"version": version, "tokens": list(entries)})


BROKEN = {
    "empty": "",
    "no JSON": "{",
    "no UTF-8": b"\xff",
    "a list": "[]",
    "other members": '{"version": 1, "tokens": [], "more": 1}',
    "a member twice": '{"version": 1, "tokens": [], "tokens": []}',
    "another version": written(version=2),
    "a version that is true": written(version=True),
    "no list": '{"version": 1, "tokens": {}}',
    "a token that is text": written("ada"),
    "a token with another member": written(entry(token="mlt_")),
    "a short digest": written(entry(digest="ab" * 31)),
    "a digest in capitals": written(entry(digest="AB" * 32)),
    "no name": written(entry(name="")),
    "an unknown role": written(entry(roles=["owner"])),
    "no roles": written(entry(roles=[])),
    "no agents": written(entry(agents=[])),
    "an agent that is a number": written(entry(agents=[7])),
    "a time that is text": written(entry(created_at="now")),
    "a time that is true": written(entry(created_at=True)),
    "one token twice": written(entry(), entry(name="bob")),
    "too long": " " * (4 * 2**20) + written(),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_file_that_is_none_of_ours_is_refused_and_left_as_it_is(
    file: TokenFile, path: Path, content: str | bytes
) -> None:
    path.parent.mkdir()
    given = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(given)
    path.chmod(0o600)
    for act in (file.load, lambda: file.find(fresh_secret()), lambda: make(file), lambda: file.revoke("ada")):
        with pytest.raises(StoreUnreadable) as caught:
            act()
        assert caught.value.path == str(path)
        assert str(caught.value).isprintable()
    assert path.read_bytes() == given


def test_file_with_a_token_is_one_of_ours(file: TokenFile, path: Path) -> None:
    path.parent.mkdir()
    path.write_text(written(entry()))
    path.chmod(0o600)
    assert [token.id for token in file.load()] == ["ab" * 6]


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666, 0o610])
def test_file_that_others_can_use_is_refused(file: TokenFile, path: Path, mode: int) -> None:
    make(file)
    path.chmod(mode)
    for act in (file.load, lambda: make(file), lambda: file.revoke("ada")):
        with pytest.raises(UnsafeFile):
            act()
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_link_folder_and_pipe_are_no_file_of_tokens(file: TokenFile, path: Path, tmp_path: Path) -> None:
    make(TokenFile(tmp_path / "real.json"))
    path.parent.mkdir()
    for stand in (lambda: path.symlink_to(tmp_path / "real.json"), path.mkdir, lambda: os.mkfifo(path, 0o600)):
        stand()
        with pytest.raises(StoreUnreadable):
            file.load()
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_file_of_somebody_else_is_refused(file: TokenFile, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(file)
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(StoreUnreadable, match="belongs to somebody else"):
        file.load()


def test_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreNotWritten):
        make(TokenFile(tmp_path / "file" / "tokens.json"))


def test_writers_wait_for_one_another_and_lose_nothing(path: Path) -> None:
    def add(name: str) -> None:
        for _ in range(5):
            make(TokenFile(path, busy_seconds=60), name)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(token.name for token in TokenFile(path).load()) == sorted("abcd" * 5)


def test_writer_gives_up_on_one_that_never_ends(file: TokenFile, path: Path) -> None:
    make(file)
    with Path(f"{path}.lock").open() as lock:
        flock(lock, LOCK_EX)
        with pytest.raises(StoreBusy):
            make(TokenFile(path, busy_seconds=0))
    make(file)


# Commands

Melete = Callable[..., tuple[int, Any]]


@pytest.fixture
def melete(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Melete:
    """Run `melete memory token ...`; return exit code and output, or what --json printed."""
    monkeypatch.delenv("MELETE_MEMORY_TOKENS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> tuple[int, Any]:
        code = run(["memory", "token", *words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, json.loads(captured.out) if "--json" in words else captured.out + captured.err

    return command


def test_commands_add_list_and_revoke(melete: Melete, tmp_path: Path) -> None:
    code, made = melete("add", "ada", "--agent", "helper", "--agent", "scribe", "--role", "writer", "--json")
    assert code == 0
    assert made["roles"] == ["writer"]
    assert made["agents"] == ["helper", "scribe"]
    file = TokenFile(tmp_path / "melete" / "memory-tokens.json")
    found = file.find(made["token"])
    assert found is not None
    assert found.id == made["id"]

    code, shown = melete("list")
    assert code == 0
    assert made["id"] in shown
    assert "helper, scribe" in shown
    assert made["token"] not in shown
    assert melete("list", "--json")[1]["tokens"][0].keys() == {"id", "name", "agents", "roles", "created_at"}

    assert melete("revoke", "nobody")[0] == 2
    code, gone = melete("revoke", made["id"])
    assert code == 0
    assert made["id"] in gone
    assert melete("list") == (0, "no tokens\n")
    assert file.find(made["token"]) is None


def test_commands_say_the_token_once_and_for_people(melete: Melete) -> None:
    code, shown = melete("add", "Ada\u00a0L", "--agent", "helper", "--role", "reader", "--role", "approver")
    assert code == 0
    assert re.search(r"^token +mlt_[A-Za-z0-9_-]{43}$", shown, re.MULTILINE)
    assert "not shown again" in shown


def test_commands_take_another_file(melete: Melete, path: Path) -> None:
    _, made = melete("add", "ada", "--agent", "helper", "--role", "reader", "--tokens", str(path), "--json")
    assert TokenFile(path).find(made["token"])
    assert melete("list")[1] == "no tokens\n"


@pytest.mark.parametrize(
    "words",
    [
        ("add", "ada"),
        ("add", "ada", "--agent", "helper"),
        ("add", "ada", "--role", "reader"),
        ("add", "ada", "--agent", "helper", "--role", "owner"),
        ("add", "ada", "--agent", "", "--role", "reader"),
        ("add", "helper", "--agent", "helper", "--role", "approver"),
        ("revoke",),
    ],
)
def test_commands_that_break_a_rule_are_usage(melete: Melete, words: tuple[str, ...]) -> None:
    code, told = melete(*words)
    assert code == 2
    assert "mlt_" not in told


def test_errors_of_the_file_have_their_exit_codes(melete: Melete, tmp_path: Path) -> None:
    _, _ = melete("add", "ada", "--agent", "helper", "--role", "reader")
    path = tmp_path / "melete" / "memory-tokens.json"
    path.chmod(0o644)
    assert melete("list")[0] == 1
    path.chmod(0o600)
    path.write_text("{}")
    assert melete("list")[0] == 3


def test_tokens_need_no_extra_and_nothing_heavy() -> None:
    script = (
        "import sys\nimport melete.wire.serving.tokens, melete.cli.memory_serve\n"
        "heavy = {'starlette', 'uvicorn', 'mcp', 'anyio', 'sqlalchemy', 'cryptography', 'web3'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_error_of_serving_says_one_sentence() -> None:
    own = [cls for cls in vars(errors).values() if isinstance(cls, type) and cls.__module__ == errors.__name__]
    assert own
    for cls in own:
        assert issubclass(cls, MeleteError)
        assert re.search(rf"── {cls.__name__} ", errors.__doc__ or "")
        if cls.sentence:
            shown = str(cls(*["words" if kind == "str" else 7 for kind in cls.members.values()]))
            assert shown.endswith(".")
            assert "{" not in shown
    assert str(errors.OtherAgent("\x1b[0m\u202e\nx")).isprintable()
