from __future__ import annotations

import base64
import copy
import hashlib
import os
import pickle
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x448, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from melete.errors import InputError, InvalidInput, MissingFile, StoreNotWritten
from melete.packs import files
from melete.packs.errors import KeyRefused, PrivateKeyExposed
from melete.packs.keys import (
    SMALL_ORDER,
    SPKI_PREFIX,
    PublicKey,
    choose_private_key,
    choose_public_keys,
    default_key_path,
    find_unsafe_mode,
    generate_key,
    load_private_key,
    load_public_key,
)

SEED = bytes(range(32))
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(SEED)
PRIVATE = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
RAW = KEY.public_key().public_bytes_raw()
#: What no message may hold: the key itself, and its text.
SECRETS = (SEED.hex(), base64.b64encode(SEED).decode(), PRIVATE.splitlines()[1], PRIVATE.splitlines()[1][20:40])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no key in the environment."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AMP_PRIVATE_KEY", raising=False)
    monkeypatch.delenv("AMP_PUBLIC_KEY", raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def refusal(action: Callable[[], object], kind: type[InputError] = KeyRefused) -> str:
    """The message that a key is refused with; it holds nothing of the key."""
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert message.isprintable()
    assert not any(secret in message or secret in repr(caught.value) for secret in SECRETS)
    return message


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


# Making


def test_generated_pair_is_read_by_other_tools_and_by_us(tmp_path: Path) -> None:
    private_path, public_path = generate_key(tmp_path / "mine.key")
    assert (private_path, public_path) == (str(tmp_path / "mine.key"), str(tmp_path / "mine.pub"))
    private, public = Path(private_path).read_bytes(), Path(public_path).read_bytes()
    theirs = load_pem_private_key(private, None)
    assert isinstance(theirs, ed25519.Ed25519PrivateKey)
    assert theirs.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) == private
    assert theirs.public_key() == load_pem_public_key(public)
    assert load_private_key(private_path).public == load_public_key(public_path)


def test_node_reads_the_generated_pair(tmp_path: Path) -> None:
    private_path, public_path = generate_key(tmp_path / "mine.key")
    script = """
        const {createPrivateKey, createPublicKey} = require('crypto'), fs = require('fs');
        const [a, b] = process.argv.slice(1).map((name) => fs.readFileSync(name, 'utf8'));
        const key = createPrivateKey(a);
        const same = createPublicKey(b).equals(createPublicKey(key)) && key.asymmetricKeyType === 'ed25519';
        process.stdout.write(String(same && key.export({format: 'pem', type: 'pkcs8'}) === a));
    """
    done = subprocess.run(["node", "-e", script, private_path, public_path], capture_output=True, check=True)
    assert done.stdout == b"true"


def test_each_pair_is_another_one(tmp_path: Path) -> None:
    ids = {load_public_key(generate_key(tmp_path / f"{number}.key")[1]).key_id for number in range(4)}
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("mykey", "mykey.pub"),
        ("a.key", "a.pub"),
        ("a.key.key", "a.key.pub"),
        ("a.pem", "a.pem.pub"),
        ("k.KEY", "k.KEY.pub"),
    ],
)
def test_public_key_never_lies_on_the_private_one(tmp_path: Path, name: str, public: str) -> None:
    private_path, public_path = generate_key(tmp_path / name)
    assert (Path(private_path).name, Path(public_path).name) == (name, public)
    assert "PRIVATE" in Path(private_path).read_text()
    assert "PUBLIC" in Path(public_path).read_text()


@pytest.mark.parametrize("name", ["my.pub", "MY.PUB", ".pub"])
@pytest.mark.parametrize("force", [False, True])
def test_private_key_never_takes_the_name_of_a_public_one(tmp_path: Path, name: str, force: bool) -> None:
    with pytest.raises(InvalidInput) as caught:
        generate_key(tmp_path / name, force)
    assert caught.value.field == "out"
    assert list(tmp_path.glob("*pub")) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_private_key_is_its_owners_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        private_path, public_path = generate_key(tmp_path / "a" / "b" / "my.key")
    finally:
        os.umask(before)
    assert mode_of(private_path) == 0o600
    assert mode_of(public_path) == 0o644
    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700


def test_default_place_is_in_the_home_folder(home: Path) -> None:
    private_path, public_path = generate_key()
    assert private_path == str(home / ".amp" / "keys" / "signing.key") == default_key_path()
    assert public_path == str(home / ".amp" / "keys" / "signing.pub")
    assert mode_of(home / ".amp") == mode_of(home / ".amp" / "keys") == 0o700


@pytest.mark.parametrize("there", ["my.key", "my.pub", "my.key my.pub"])
def test_nothing_is_written_over_unless_forced(tmp_path: Path, there: str) -> None:
    for name in there.split():
        (tmp_path / name).write_text("precious")
    with pytest.raises(InvalidInput) as caught:
        generate_key(tmp_path / "my.key")
    assert caught.value.field == "out"
    assert "--force" in caught.value.rule
    assert {path.name: path.read_text() for path in tmp_path.glob("my*")} == dict.fromkeys(there.split(), "precious")


def test_link_that_leads_nowhere_counts_as_there(tmp_path: Path) -> None:
    (tmp_path / "my.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput):
        generate_key(tmp_path / "my.key")
    assert not (tmp_path / "elsewhere").exists()


def test_forced_key_loses_the_mode_of_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "my.key").write_text("old")
    (tmp_path / "my.key").chmod(0o644)
    (tmp_path / "my.pub").write_text("old")
    (tmp_path / "my.pub").chmod(0o666)
    private_path, public_path = generate_key(tmp_path / "my.key", force=True)
    assert (mode_of(private_path), mode_of(public_path)) == (0o600, 0o644)
    assert load_private_key(private_path).public == load_public_key(public_path)


@pytest.mark.parametrize("name", ["my.key", "my.pub"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("other"), lambda path: path.symlink_to("x")])
def test_forced_key_replaces_nothing_but_a_plain_file(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    (tmp_path / "other").write_text("untouched")
    make(tmp_path / name)
    before = (tmp_path / name).lstat()
    with pytest.raises(InvalidInput) as caught:
        generate_key(tmp_path / "my.key", force=True)
    assert caught.value.field == "out"
    assert name in caught.value.rule
    assert os.path.samestat((tmp_path / name).lstat(), before)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "other", "home"])
    assert (tmp_path / "other").read_text() == "untouched"


@pytest.mark.parametrize("place", ["folder", "folder/", "blocked.key"])
def test_folder_in_the_place_of_a_key_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "blocked.pub").mkdir()
    with pytest.raises(InvalidInput):
        generate_key(f"{tmp_path}/{place}", force=True)
    assert not (tmp_path / "blocked.key").exists()


def test_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreNotWritten):
        generate_key(tmp_path / "file" / "my.key")


def test_half_a_pair_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = files.write_file

    def fail(path: str, content: bytes, mode: int, *, replace: bool = True) -> None:
        if path.endswith(".pub"):
            raise StoreNotWritten(path, "no space left")
        write(path, content, mode, replace=replace)

    monkeypatch.setattr(files, "write_file", fail)
    with pytest.raises(StoreNotWritten):
        generate_key(tmp_path / "my.key")
    assert list(tmp_path.glob("my*")) == []


def test_draft_is_removed_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.key").write_text("old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreNotWritten, match="No space left"):
        generate_key(tmp_path / "my.key", force=True)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["my.key"]
    assert (tmp_path / "my.key").read_text() == "old"


# Key ids, and what shows of a key


def test_key_id_is_the_start_of_the_hash_of_the_spki_bytes() -> None:
    key = load_public_key(PUBLIC)
    der = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key.der == der
    assert key.key_id == hashlib.sha256(der).hexdigest()[:16]
    assert key.pem == PUBLIC


def test_private_key_does_not_show_and_does_not_travel() -> None:
    key = load_private_key(PRIVATE)
    for text in (repr(key), str(key), f"{key}"):
        assert not any(secret in text for secret in SECRETS)
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            send(key)


def test_signature_is_that_of_ed25519() -> None:
    signature = load_private_key(PRIVATE).sign(b"payload")
    assert signature == KEY.sign(b"payload")
    key = load_public_key(PUBLIC)
    assert key.is_valid_signature(b"payload", signature)
    assert not key.is_valid_signature(b"payloae", signature)
    assert not key.is_valid_signature(b"payload", signature[:-1])
    assert not key.is_valid_signature(b"payload", bytes(64))
    assert not key.is_valid_signature(b"payload", b"")


# What becomes of PEM text

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "no last line end": lambda text: text.rstrip("\n"),
    "byte order mark": lambda text: f"\ufeff{text}",
    "double quotes": lambda text: f'"{text}"',
    "single quotes": lambda text: f"'{text.strip()}'\n",
    "indented": lambda text: text.replace("\n", "\n    "),
    "indented by tabs": lambda text: f"\t{text}".replace("\n", "\n\t"),
    "spaces for line ends": lambda text: text.replace("\n", " "),
    "escaped": lambda text: text.replace("\n", "\\n"),
    "escaped twice": lambda text: text.replace("\n", "\\\\n"),
    "escaped CRLF": lambda text: text.replace("\n", "\\r\\n"),
    "escaped and quoted": lambda text: '"' + text.replace("\n", "\\n") + '"',
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "short lines": lambda text: text[:40] + "\n" + text[40:],
    "words around it": lambda text: f"My key:\n\n{text}\nKeep it.\n",
    "mark, quotes and CRLF": lambda text: "\ufeff'" + text.replace("\n", "\r\n") + "'",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_file", [False, True])
def test_key_is_read_in_every_form_that_pem_text_takes(tmp_path: Path, form: str, in_file: bool) -> None:
    given = [FORMS[form](PRIVATE), FORMS[form](PUBLIC)]
    if in_file:
        for number, text in enumerate(given):
            (tmp_path / str(number)).write_bytes(text.encode())
        given = [str(tmp_path / "0"), str(tmp_path / "1")]
    assert load_private_key(given[0]).public.raw == RAW
    assert load_public_key(given[1]).raw == RAW


def test_private_key_with_its_public_key_beside_it_is_refused_as_node_does() -> None:
    # Version 2 of RFC 5958, as some libraries write it.
    der = bytes.fromhex("3051020101300506032b657004220420") + SEED + bytes.fromhex("812100") + RAW
    assert "more than a key" in refusal(lambda: load_private_key(to_pem("PRIVATE KEY", der)))


def to_pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.b64encode(der).decode()}\n-----END {label}-----\n"


def corrupt(text: str) -> str:
    body = text.splitlines()[1]
    return text.replace(body, body[:10] + "!" + body[11:])


BAD_TEXTS: dict[str, tuple[Callable[[str], str], str]] = {
    "two keys": (lambda text: text + text, "more than one key"),
    "two keys, escaped": (lambda text: (text + text).replace("\n", "\\n"), "more than one key"),
    "no text": (lambda text: text[:11], "cut off"),
    "end missing": (lambda text: text.partition("-----END")[0], "cut off"),
    "another end": (lambda text: text.replace("END P", "END X"), "cut off"),
    "nothing inside": (lambda text: text.replace(text.splitlines()[1], ""), "damaged"),
    "one byte less": (lambda text: cut(text, 1), "damaged"),
    "half of it": (lambda text: cut(text, 20), "damaged"),
    "bytes behind it": (lambda text: lengthen(text), "damaged"),
    "no base64": (corrupt, "no base64"),
    "too long": (lambda text: text + " " * 70_000, "too long"),
}


def cut(text: str, count: int) -> str:
    der = base64.b64decode(text.splitlines()[1])
    return text.replace(text.splitlines()[1], base64.b64encode(der[:-count]).decode())


def lengthen(text: str) -> str:
    der = base64.b64decode(text.splitlines()[1])
    return text.replace(text.splitlines()[1], base64.b64encode(der + b"\x00").decode())


@pytest.mark.parametrize("defect", BAD_TEXTS)
def test_text_that_is_not_one_whole_key_is_refused(defect: str) -> None:
    change, reason = BAD_TEXTS[defect]
    assert reason in refusal(lambda: load_private_key(change(PRIVATE), "the key"))
    assert reason in refusal(lambda: load_public_key(change(PUBLIC), "the key"))


def test_public_and_private_key_in_one_text_are_refused() -> None:
    assert "more than one key" in refusal(lambda: load_private_key(PRIVATE + PUBLIC))
    refusal(lambda: load_public_key(PUBLIC + PRIVATE), PrivateKeyExposed)


def test_key_in_base64_once_more_is_refused_and_not_shown(tmp_path: Path) -> None:
    wrapped = base64.b64encode(PRIVATE.encode()).decode()
    bare = PRIVATE.splitlines()[1]
    for text in (wrapped, bare):
        for given in (text, str(tmp_path / "file")):
            (tmp_path / "file").write_text(text)
            message = refusal(lambda given=given: load_private_key(given))  # type: ignore[misc]
            assert "base64" in message
            assert text[:30] not in message
            refusal(lambda given=given: load_public_key(given), PrivateKeyExposed)  # type: ignore[misc]
    assert "base64" in refusal(lambda: load_public_key(base64.b64encode(PUBLIC.encode()).decode()))


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"ssh-ed25519 AAAAC3Nz me@home", b"\xff\xfe-\x00-\x00", PUBLIC.encode("utf-16")]
)
def test_file_that_holds_no_pem_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    assert "no PEM text" in refusal(lambda: load_private_key(tmp_path / "key"))
    assert "no PEM text" in refusal(lambda: load_public_key(str(tmp_path / "key")))


@pytest.mark.parametrize("path", ["nowhere.key", ".", "nul\0.key", ""])
def test_key_file_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    for load in (load_private_key, load_public_key):
        with pytest.raises(MissingFile):
            load(path)


# Other kinds of keys

OTHERS = {
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "EC": lambda: ec.generate_private_key(ec.SECP256R1()),
    "X25519": x25519.X25519PrivateKey.generate,
    "X448": x448.X448PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
    "DSA": lambda: dsa.generate_private_key(1024),  # noqa: S505
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_kind_of_key_is_refused_by_its_name(name: str) -> None:
    key = OTHERS[name]()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    assert f"is {name}, " in refusal(lambda: load_private_key(private))
    assert f"is {name}, " in refusal(lambda: load_public_key(public))
    refusal(lambda: load_public_key(private), PrivateKeyExposed)


def test_other_containers_are_refused_by_their_names() -> None:
    rsa_key, ec_key = OTHERS["RSA"](), OTHERS["EC"]()
    traditional = PrivateFormat.TraditionalOpenSSL
    for key, label in ((rsa_key, "RSA"), (ec_key, "EC")):
        text = key.private_bytes(Encoding.PEM, traditional, NoEncryption()).decode()
        assert f"an {label} key" in refusal(lambda text=text: load_private_key(text))  # type: ignore[misc]
        refusal(lambda text=text: load_public_key(text), PrivateKeyExposed)  # type: ignore[misc]
    public = rsa_key.public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1).decode()
    assert "an RSA key" in refusal(lambda: load_public_key(public))
    for text in (
        KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode(),
        rsa_key.private_bytes(Encoding.PEM, traditional, BestAvailableEncryption(b"x")).decode(),
    ):
        assert "encrypted" in refusal(lambda text=text: load_private_key(text))  # type: ignore[misc]
    openssh = KEY.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    assert "OpenSSH" in refusal(lambda: load_private_key(openssh))
    refusal(lambda: load_public_key(openssh), PrivateKeyExposed)
    assert "certificate" in refusal(lambda: load_public_key(to_pem("CERTIFICATE", b"0")))
    assert "something else" in refusal(lambda: load_public_key(to_pem("PGP MESSAGE", b"0")))


def test_private_key_where_a_public_one_belongs_counts_as_exposed(tmp_path: Path) -> None:
    (tmp_path / "my.pub").write_text(PRIVATE)
    for given in (PRIVATE, str(tmp_path / "my.pub"), PRIVATE.replace("\n", "\\n")):
        message = refusal(lambda given=given: load_public_key(given), PrivateKeyExposed)  # type: ignore[misc]
        assert "treat it as exposed" in message


def test_public_key_where_a_private_one_belongs_is_refused() -> None:
    assert "public key" in refusal(lambda: load_private_key(PUBLIC))


def test_labels_do_not_decide_what_a_key_is() -> None:
    assert "damaged" in refusal(lambda: load_private_key(PUBLIC.replace("PUBLIC", "PRIVATE")))
    assert "damaged" in refusal(
        lambda: load_public_key(to_pem("PUBLIC KEY", base64.b64decode(PRIVATE.splitlines()[1])))
    )


P = 2**255 - 19


def small_order_ys() -> set[int]:
    """The y of all points whose order divides 8, by the curve's equation."""
    # Orders 1, 2 and 4 have y = 1, -1 and 0. One of order 8 doubles to y = 0: x^2 = -y^2, so d*y^4 + 2*y^2 - 1 = 0.
    d = -121665 * pow(121666, -1, P) % P
    ys = {1, P - 1, 0}
    root = next(one for one in (square_root(1 + d),) if one is not None)
    for sign in (root, -root):
        y = square_root((sign - 1) * pow(d, -1, P) % P)
        if y is not None:
            ys |= {y, P - y}
    return ys


def square_root(value: int) -> int | None:
    value %= P
    root = pow(value, (P + 3) // 8, P)
    if root * root % P != value:
        root = root * pow(2, (P - 1) // 4, P) % P
    return root if root * root % P == value else None


def test_keys_that_anybody_can_sign_for_are_refused() -> None:
    ys = small_order_ys()
    assert len(ys) == 5
    encodings = {y.to_bytes(32, "little") for y in ys} | {(y + P).to_bytes(32, "little") for y in ys if y + P < 2**255}
    assert encodings == SMALL_ORDER
    for encoding in encodings:
        for signed in (encoding, encoding[:31] + bytes([encoding[31] | 0x80])):
            text = to_pem("PUBLIC KEY", SPKI_PREFIX + signed)
            assert "small order" in refusal(lambda text=text: load_public_key(text))  # type: ignore[misc]


# Which key is taken


def test_key_of_the_environment_wins_over_the_flag(tmp_path: Path) -> None:
    _, other = generate_key(tmp_path / "other.key")
    environment = {"AMP_PRIVATE_KEY": PRIVATE.replace("\n", "\\n"), "AMP_PUBLIC_KEY": f'"{PUBLIC}"'}
    assert choose_private_key(str(tmp_path / "other.key"), environment).public.raw == RAW
    assert choose_private_key(None, environment).public.raw == RAW
    assert choose_public_keys([other], environment) == (PublicKey(RAW),)
    assert choose_public_keys([], environment) == (PublicKey(RAW),)


def test_flag_counts_where_the_environment_is_empty(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(PRIVATE)
    empty = {"AMP_PRIVATE_KEY": "", "AMP_PUBLIC_KEY": ""}
    assert choose_private_key(str(tmp_path / "k"), empty).public.raw == RAW
    assert choose_public_keys([PUBLIC], empty) == (PublicKey(RAW),)
    assert choose_public_keys([], {}) == ()


def test_default_key_is_taken_last(home: Path) -> None:
    with pytest.raises(MissingFile, match="amp keygen"):
        choose_private_key(None, {})
    _, public_path = generate_key()
    assert choose_private_key(None, {}).public == load_public_key(public_path)


def test_private_key_on_the_command_line_is_refused() -> None:
    for text in (PRIVATE, PRIVATE.replace("\n", "\\n"), PRIVATE.splitlines()[1]):
        assert "command line" in refusal(lambda text=text: choose_private_key(text, {}))  # type: ignore[misc]


@pytest.mark.parametrize("text", ["/home/me/.amp/keys/signing.key", "not a key", PUBLIC])
def test_wrong_text_in_the_environment_is_refused_by_the_variables_name(text: str) -> None:
    assert "AMP_PRIVATE_KEY" in refusal(lambda: choose_private_key(None, {"AMP_PRIVATE_KEY": text}))
    if text != PUBLIC:
        assert "AMP_PUBLIC_KEY" in refusal(lambda: choose_public_keys([], {"AMP_PUBLIC_KEY": text}))


def test_private_key_in_the_public_variable_counts_as_exposed() -> None:
    message = refusal(lambda: choose_public_keys([], {"AMP_PUBLIC_KEY": PRIVATE}), PrivateKeyExposed)
    assert "AMP_PUBLIC_KEY" in message


def test_mode_that_lets_others_read_a_key_is_told(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text(PRIVATE)
    for mode, told in ((0o600, None), (0o400, None), (0o644, "0644"), (0o620, "0620"), (0o606, "0606")):
        path.chmod(mode)
        assert find_unsafe_mode(str(path)) == told
    assert find_unsafe_mode(str(tmp_path / "nowhere")) is None
