"""The keys that sign packs: Ed25519, and nothing else.

    private_path, public_path = generate_key("my.key", force=False)
    key = load_private_key("my.key")
    load_public_key("my.pub") == key.public

A key is PEM text (PKCS8 or SPKI) in a file or in the environment. What shells and settings make of such text is
understood: `\\n` spelled out once or twice, CR and CRLF, quotes, indentation, a byte order mark. Two keys in one text,
another kind of key, or a private key where a public one belongs are not. No error shows what a text held.

Source: AMP v0.4, Part 6 and 8; RFC 8410.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

#: What stands before the 32 bytes of a key. Source: RFC 8410.
SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
PKCS8_PREFIX: Final = bytes.fromhex("302e020100300506032b657004220420")
_ED25519: Final = bytes.fromhex("2b6570")
#: Algorithms by their object identifiers: what an error calls a key of another kind.
ALGORITHMS: Final = {
    _ED25519: "Ed25519",
    bytes.fromhex("2b656e"): "X25519",
    bytes.fromhex("2b656f"): "X448",
    bytes.fromhex("2b6571"): "Ed448",
    bytes.fromhex("2a864886f70d010101"): "RSA",
    bytes.fromhex("2a864886f70d01010a"): "RSA-PSS",
    bytes.fromhex("2a8648ce3d0201"): "EC",
    bytes.fromhex("2a8648ce380401"): "DSA",
    bytes.fromhex("2a864886f70d010301"): "DH",
}
_ONLY: Final = "packs are signed with Ed25519; amp keygen makes such a key"
#: What a PEM label says by itself.
_LABELS: Final = {
    "RSA PRIVATE KEY": f"it is an RSA key, and {_ONLY}",
    "RSA PUBLIC KEY": f"it is an RSA key, and {_ONLY}",
    "EC PRIVATE KEY": f"it is an EC key, and {_ONLY}",
    "DSA PRIVATE KEY": f"it is a DSA key, and {_ONLY}",
    "ENCRYPTED PRIVATE KEY": "it is encrypted; decrypt it first (openssl pkey)",
    "OPENSSH PRIVATE KEY": f"it is a key of OpenSSH, and {_ONLY}",
    "CERTIFICATE": "it is a certificate; give the key alone (openssl x509 -pubkey)",
}
#: Public keys that anybody can sign for: y of the points of small order, some of them written in two ways.
SMALL_ORDER: Final = frozenset(
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)
#: A text longer than that is no key.
LONGEST_TEXT: Final = 65536
#: How keys begin when somebody wrapped them in base64 once more, or left the PEM lines away: never a path to print.
_WRAPPED: Final = ("LS0tLS1CRUdJTi", "MC4CAQ", "MIIE", "MIIB", "MCowBQ", "MFECAQ")
_WRAPPED_PRIVATE: Final = ("LS0tLS1CRUdJTiBQUklWQVRF", "MC4CAQ", "MFECAQ")
_BEGIN: Final = "-----BEGIN "


class PublicKey(NamedTuple):
    """A public key: its 32 bytes."""

    raw: bytes

    @property
    def der(self) -> bytes:
        return SPKI_PREFIX + self.raw

    @property
    def key_id(self) -> str:
        """The first 16 hex digits of the SHA-256 of the key's SPKI DER."""
        from hashlib import sha256

        return sha256(self.der).hexdigest()[:16]

    @property
    def pem(self) -> str:
        return _to_pem("PUBLIC KEY", self.der)

    def is_valid_signature(self, payload: bytes, signature: bytes) -> bool:
        """Return whether the key signed the payload."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, payload)
        except (InvalidSignature, ValueError):
            return False
        return True


class PrivateKey:
    """A private key. It is never shown, copied or pickled."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Any) -> None:
        self._key = key
        self.public: Final = PublicKey(key.public_key().public_bytes_raw())

    def sign(self, payload: bytes) -> bytes:
        """Return the 64 bytes of a signature."""
        signature: bytes = self._key.sign(payload)
        return signature

    def __repr__(self) -> str:
        return f"PrivateKey(of {self.public.key_id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")


# Making


def generate_key(path: str | os.PathLike[str] | None = None, force: bool = False) -> tuple[str, str]:
    """Make a key pair, and return the paths of its private and its public file.

    `path` is that of the private key (`~/.amp/keys/signing.key` by default), mode 0600; the public one lies beside
    it, with `.pub` in place of `.key` or after the whole name. Folders that are missing are made for their owner alone.

    Errors: `InvalidInput` where one of the two exists, unless forced, for anything there that is no plain file, and for
    a path that ends in `.pub`; `StoreNotWritten`, and then the private key that was there still is.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from melete.errors import InvalidInput
    from melete.packs.files import make_folders, write_file

    private_path = os.fspath(path) if path is not None else default_key_path()
    name = os.path.basename(private_path)  # noqa: PTH119
    if not name or os.path.isdir(private_path):  # noqa: PTH112
        raise InvalidInput("out", private_path, "a file to write the private key to")
    if name.lower().endswith(".pub"):
        raise InvalidInput("out", private_path, "a name for the private key; .pub is the public one's")
    public_path = f"{private_path.removesuffix('.key')}.pub"
    taken = InvalidInput("out", private_path, "a path where no key lies yet, private or .pub; --force writes over both")
    if not force and any(map(os.path.lexists, (private_path, public_path))):
        raise taken
    for there in (private_path, public_path):
        if not _is_plain_or_missing(there):
            rule = f"a path where only plain files are replaced; {there!a} is something else: move it away"
            raise InvalidInput("out", private_path, rule)
    key = Ed25519PrivateKey.generate()
    private_text = _to_pem("PRIVATE KEY", PKCS8_PREFIX + key.private_bytes_raw())
    public_text = PublicKey(key.public_key().public_bytes_raw()).pem
    make_folders(os.path.dirname(private_path) or ".")  # noqa: PTH120
    try:
        # The private one first: a public key that is missing can be made from it.
        write_file(private_path, private_text.encode(), 0o600, replace=force)
        try:
            write_file(public_path, public_text.encode(), 0o644, replace=force)
        except BaseException:
            if not force:
                os.unlink(private_path)  # noqa: PTH108
            raise
    except FileExistsError:
        raise taken from None
    return private_path, public_path


def _is_plain_or_missing(path: str) -> bool:
    """Return whether nothing is at a path, or a file itself: no link to one, no device, no folder."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True


def default_key_path() -> str:
    """Return where `amp keygen` puts a private key and `amp sign` looks for it. Source: AMP v0.4, Part 8."""
    return os.path.join(os.path.expanduser("~"), ".amp", "keys", "signing.key")  # noqa: PTH111, PTH118


# Loading


def load_private_key(text_or_path: str | os.PathLike[str], source: str | None = None) -> PrivateKey:
    """Return the private key in a PEM text or in a file; an error calls it `source`.

    Errors: `MissingFile`; `KeyRefused` for anything but one Ed25519 private key in PKCS8 PEM.
    """
    text, source = _load_text(text_or_path, source)
    return parse_private_key(text, source)


def load_public_key(text_or_path: str | os.PathLike[str], source: str | None = None) -> PublicKey:
    """Return the public key in a PEM text or in a file; an error calls it `source`.

    Errors: `MissingFile`; `PrivateKeyExposed` for a private key, of whatever kind; `KeyRefused` for anything else but
    one Ed25519 public key in SPKI PEM.
    """
    text, source = _load_text(text_or_path, source)
    return parse_public_key(text, source)


def choose_private_key(flag: str | None, environment: Mapping[str, str] = os.environ) -> PrivateKey:
    """Return the key that signs: that of AMP_PRIVATE_KEY, or of the file named, or `~/.amp/keys/signing.key`.

    Errors: as `load_private_key`; `KeyRefused` for PEM text as a flag, where every user of the machine reads it.
    """
    given = environment.get("AMP_PRIVATE_KEY")
    if given:
        return parse_private_key(given, "AMP_PRIVATE_KEY")
    if flag is not None:
        if _holds_key(flag):
            _refuse_key("--key", "a key on the command line can be read by every user; give a file, or AMP_PRIVATE_KEY")
        return load_private_key(flag)
    path = default_key_path()
    if not os.path.exists(path):  # noqa: PTH110
        from melete.errors import MissingFile

        raise MissingFile(path, "there is no key to sign with; run amp keygen, give --key, or set AMP_PRIVATE_KEY")
    return load_private_key(path)


def choose_public_keys(flags: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[PublicKey, ...]:
    """Return the keys to check with: that of AMP_PUBLIC_KEY, or those of the flags (PEM texts or files), or none."""
    given = environment.get("AMP_PUBLIC_KEY")
    if given:
        return (parse_public_key(given, "AMP_PUBLIC_KEY"),)
    return tuple(load_public_key(flag, "--public-key" if _holds_key(flag) else None) for flag in flags)


def find_unsafe_mode(path: str) -> str | None:
    """Return the mode of a private key's file in octal if others can read or write it, else None."""
    try:
        mode = os.stat(path).st_mode & 0o777  # noqa: PTH116
    except OSError:
        return None
    return f"{mode:04o}" if mode & 0o077 else None


def parse_private_key(text: str, source: str) -> PrivateKey:
    """Return the private key in a PEM text. Errors: as `load_private_key`."""
    label, der = _read_pem(text, source)
    if label != "PRIVATE KEY":
        if label == "PUBLIC KEY":
            _refuse_key(source, "it is a public key, and the private one is needed")
        _refuse_label(source, label)
    _check_algorithm(source, der, private=True)
    if len(der) != 48 or not der.startswith(PKCS8_PREFIX):
        _refuse_key(source, "it is damaged, or more than a key: its bytes are not those of a plain PKCS8 key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.from_private_bytes(der[16:]))


def parse_public_key(text: str, source: str) -> PublicKey:
    """Return the public key in a PEM text. Errors: as `load_public_key`."""
    label, der = _read_pem(text, source, public=True)
    if label != "PUBLIC KEY":
        _refuse_label(source, label)
    _check_algorithm(source, der, private=False)
    if len(der) != 44 or not der.startswith(SPKI_PREFIX):
        _refuse_key(source, "it is damaged: its bytes are no SPKI key")
    raw = der[12:]
    if raw[:31] + bytes([raw[31] & 0x7F]) in SMALL_ORDER:
        _refuse_key(source, "anybody can sign for a key of small order; nobody makes one by accident")
    return PublicKey(raw)


def _load_text(text_or_path: str | os.PathLike[str], source: str | None) -> tuple[str, str]:
    given = os.fspath(text_or_path)
    if _BEGIN in given:
        return given, source or "the key"
    if _holds_key(given):
        return given, source or "the key"
    try:
        with open(given, "rb") as file:  # noqa: PTH123
            content = file.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        from melete.errors import MissingFile

        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise MissingFile(given, f"the key cannot be read ({reason})") from None
    # What is no text is no PEM either; the bytes that matter are all ASCII.
    return content.decode("utf-8", "replace"), source or given


def _holds_key(text: str) -> bool:
    """Return whether what should be a path is a key itself: then it is never printed."""
    return _BEGIN in text or text.strip("\ufeff \t\r\n'\"").startswith(_WRAPPED)


def _read_pem(text: str, source: str, *, public: bool = False) -> tuple[str, bytes]:
    """Return label and bytes of the one PEM block in a text."""
    if len(text) > LONGEST_TEXT:
        _refuse_key(source, "it is too long for a key")
    for escape in ("\\\\r", "\\\\n", "\\r", "\\n"):
        text = text.replace(escape, "\n")
    bare = text.strip("\ufeff \t\r\n'\"")
    if public and ("PRIVATE KEY-----" in text or bare.startswith(_WRAPPED_PRIVATE)):
        from melete.packs.errors import PrivateKeyExposed

        raise PrivateKeyExposed(source)
    count = text.count(_BEGIN)
    if count != 1:
        if count:
            _refuse_key(source, "it holds more than one key; keep the one that is meant")
        if bare.startswith(_WRAPPED):
            _refuse_key(source, "it is a key in base64 without the lines of a PEM text around it; give the PEM text")
        _refuse_key(source, "it holds no PEM text, which starts with -----BEGIN")
    label, dashes, rest = text.partition(_BEGIN)[2].partition("-----")
    body, end, _ = rest.partition(f"-----END {label}-----")
    if not dashes or not end:
        _refuse_key(source, "its PEM text is cut off: the END line of the same name is missing")
    if ":" in body:
        _refuse_key(source, "it is an encrypted key; decrypt it first (openssl pkey)")
    from binascii import Error, a2b_base64

    try:
        return label, a2b_base64("".join(body.split()), strict_mode=True)
    except (Error, ValueError):
        _refuse_key(source, "it is damaged: what stands between the PEM lines is no base64")


def _check_algorithm(source: str, der: bytes, *, private: bool) -> None:
    """Refuse a key of another kind by its name, and one that is cut off."""
    try:
        at, _ = _enter(der, 0, 0x30)
        if private:
            _, at = _enter(der, at, 0x02)
        at, _ = _enter(der, at, 0x30)
        at, end = _enter(der, at, 0x06)
    except ValueError:
        _refuse_key(source, "it is damaged: its bytes are no key")
    name = ALGORITHMS.get(der[at:end], "unknown")
    if name != "Ed25519":
        _refuse_key(source, f"its algorithm is {name}, and {_ONLY}")


def _enter(der: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return where the content of a DER element starts and ends."""
    if len(der) < at + 2 or der[at] != tag:
        raise ValueError(at)
    length, start = der[at + 1], at + 2
    if length > 0x80:
        start += length - 0x80
        length = int.from_bytes(der[at + 2 : start], "big")
    if start + length > len(der):
        raise ValueError(at)
    return start, start + length


def _to_pem(label: str, der: bytes) -> str:
    from binascii import b2a_base64

    return f"-----BEGIN {label}-----\n{b2a_base64(der).decode()}-----END {label}-----\n"


def _refuse_label(source: str, label: str) -> NoReturn:
    _refuse_key(source, _LABELS.get(label, f"it is something else than a key, and {_ONLY}"))


def _refuse_key(source: str, reason: str) -> NoReturn:
    from melete.packs.errors import KeyRefused

    raise KeyRefused(source, reason) from None
