"""What looks like a live credential in a text, said without showing it.

Looked for are the prefixes `sk-` (also `sk-proj-`, `sk-ant-` and the like), `re_`, `phc_` and `AKIA`, a value of 20 or
more letters and digits that a key or a token is set to, 32 or more in quotes after an equals sign, and a private key
in PEM form. A prefix counts where a token begins: `task-...` and `pre_...` are words. A redacted value
(`sk-***`, `[REDACTED]`) is none; one that is whole fails whatever stands beside it. A hex digest named sha256, digest
or hash passes.

Beyond what Part 9 lists: `sk_live_`, `sk_test_`, `rk_live_` and `rk_test_`; and a value after a colon, as JSON and YAML
write it (`token: ...`, `"api_key": "..."`), if it is in the same line and has both letters and digits in a run of 20 or
more, so that `key: ...` may go on in words. A public key may stand there, and the address of a token.

Source: AMP v0.4, Parts 5 and 9.
"""

from __future__ import annotations

from melete.packs.findings import Finding, Severity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from typing import Any, Final

RULE: Final = "credential"
REMEDY: Final = "remove it, or write it redacted (sk-***, [REDACTED]), and withdraw the key if it was ever shared"
#: What a message says in place of something that looks like a secret.
NOT_SHOWN: Final = "a value that is not shown"
_LEFT_OUT: Final = "***"
#: Members of what is printed that are made here, and random: one may look like a credential.
RANDOM_MEMBERS: Final = frozenset({"signature", "digest"})
#: A quoted text shows at most this many characters.
LONGEST_QUOTED: Final = 80

#: Every pattern holds so many of these bytes in a row: a text that does not needs no closer look.
RUN_LENGTH: Final = 20
IN_RUNS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-"
_VALUE: Final = IN_RUNS.decode()
_TO_RUNS: Final = bytes(97 if byte in IN_RUNS else 32 for byte in range(256))
_RUN: Final = b"a" * RUN_LENGTH

#: What a redaction leaves: it covers nothing if a whole value follows.
_COVER: Final = r"(?:\*{1,64}|\[REDACTED\])?"
#: By the text that each begins with: what it is, and what has to follow.
_PREFIXES: Final = {
    "sk-": (
        "a key that starts with sk-",
        rf"((?:(?:proj|ant)-)?{_COVER}[A-Za-z0-9]{{20,200}}"
        r"|(?:proj|ant|svcacct|admin|service|or|live|test)-[A-Za-z0-9_-]{16,200})",
    ),
    "re_": ("a key that starts with re_", rf"({_COVER}[A-Za-z0-9]{{20,200}})"),
    "phc_": ("a key that starts with phc_", rf"({_COVER}[A-Za-z0-9]{{20,200}})"),
    "sk_": ("a key that starts with sk_", rf"((?:live|test)_{_COVER}[A-Za-z0-9]{{20,200}})"),
    "rk_": ("a key that starts with rk_", rf"((?:live|test)_{_COVER}[A-Za-z0-9]{{20,200}})"),
    "AKIA": ("an AWS access key", r"([A-Z0-9]{16})"),
}
_SET: Final = "a value that a key or token is set to"
_A_PRIVATE_KEY: Final = "a private key"
_PRIVATE_KEY: Final = r"-----BEGIN (?:[A-Z]{1,20} ){0,3}PRIVATE KEY-----(?:\s|\\[nr]){0,8}([A-Za-z0-9]{20,200})"
_ASSIGNED: Final = rf"=\s{{0,64}}(?:[\"'`]\s{{0,8}})?{_COVER}([A-Za-z0-9_\-./+]{{20,1000}})"
_AFTER_COLON: Final = rf":[ \t]{{0,64}}(?:\\?[\"'`][ \t]{{0,8}})?{_COVER}([A-Za-z0-9_\-./+]{{20,1000}})"
#: Names of what a secret is set to, when the last word is not `key` or `token` by itself.
_JOINED: Final = frozenset(
    f"{first}{last}"
    for first in ("api", "app", "access", "auth", "bearer", "client", "private", "refresh", "secret", "session")
    for last in ("key", "token")
)


def find_credentials(text: str, file: str, first_line: int = 1, begin: int = 0) -> list[Finding]:
    """Return an error for each thing in a text that looks like a live credential, in order.

    `first_line` is the number of the text's first line in its file; what starts before the character `begin` is there
    for context, and is not told. A finding names line and kind, never the value.
    """
    if _RUN not in text.encode("utf-8", "surrogatepass").translate(_TO_RUNS):
        return []
    found = []
    line, counted, taken = first_line, 0, -1
    for start, end, kind in sorted(_find_all(text)):
        if start < max(taken, begin):  # the same value, by another rule
            continue
        line += text.count("\n", counted, start)
        counted, taken = start, end
        found.append(Finding(RULE, Severity.ERROR, file, line, f"this looks like a live credential: {kind}", REMEDY))
    return found


def quote(text: str, longest: int = LONGEST_QUOTED) -> str:
    """Return a text from outside as a message may show it: escaped, bounded, and not if it looks like a secret."""
    if len(text) >= len(_RUN) and find_credentials(text, ""):
        return NOT_SHOWN
    return ascii(text[:longest])[1:-1] + "..." * (len(text) > longest)


def hide_secrets(text: str) -> str:
    """Return a text with everything in it that looks like a live credential left out, and else as it is."""
    if len(text) < RUN_LENGTH or _RUN not in text.encode("utf-8", "surrogatepass").translate(_TO_RUNS):
        return text
    shown, at = [], 0
    for start, end, kind in sorted(_find_all(text)):
        # A value may be longer than any that is looked for.
        if kind == _A_PRIVATE_KEY:
            end = text.find("-----END", end) if "-----END" in text[end:] else len(text)
        else:
            end += len(text[end:]) - len(text[end:].lstrip(_VALUE))
        if end > at:
            shown += [text[at:start], _LEFT_OUT]
            at = end
    return "".join([*shown, text[at:]])


def without_secrets(value: Any, name: str = "") -> Any:
    """Return what is to be printed as JSON, with nothing in its texts that looks like a live credential."""
    if isinstance(value, str):
        return value if name in RANDOM_MEMBERS else hide_secrets(value)
    if isinstance(value, dict):
        return {each: without_secrets(inside, each) for each, inside in value.items()}
    return [without_secrets(inside) for inside in value] if isinstance(value, list | tuple) else value


def _find_all(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each credential starts and ends, and what it is; one value may come twice."""
    import re

    for prefix, (kind, rest) in _PREFIXES.items():
        if prefix in text:
            # The rest is looked at, not taken: another key may begin inside of what is none.
            for match in re.finditer(f"{prefix}(?={rest})", text, re.ASCII):
                if not _is_word(text[max(0, match.start() - 4) : match.start()]):
                    yield match.start(), match.end(1), kind
    if "PRIVATE KEY-----" in text:
        for match in re.finditer(_PRIVATE_KEY, text, re.ASCII):
            yield match.start(), match.end(), _A_PRIVATE_KEY
    if "=" in text:
        search = re.compile(r"[A-Za-z0-9]{20,1000}", re.ASCII).search
        for match in re.finditer(_ASSIGNED, text, re.ASCII):
            kind = _judge_assigned(text, match, search)
            if kind:
                yield match.start(1), match.end(1), kind
    if ":" in text:
        for match in re.finditer(_AFTER_COLON, text, re.ASCII):
            if _is_mixed(match[1]) and _is_secret_member(text, match):
                yield match.start(1), match.end(1), _SET


def _is_word(before: str) -> bool:
    """Return whether a token goes on from the text before it; underscores alone are emphasis."""
    before = before.rstrip("_")[-1:]
    return before.isascii() and before.isalnum()


def _judge_assigned(text: str, match: re.Match[str], search: Callable[[str], re.Match[str] | None]) -> str:
    """Return what a value after an equals sign is, or nothing."""
    value = match[1]
    run = search(value)
    if run is None:
        return ""
    names = _find_names(text, match.start())
    if _is_digest(names[0], value):
        return ""
    if any(map(_names_secret, names)):
        return _SET
    quoted = match[0][1 : match.start(1) - match.start()].lstrip()[:1] in ("'", '"', "`")
    return "a long value in quotes" if quoted and run.start() == 0 and len(run[0]) >= 32 else ""


def _is_mixed(value: str) -> bool:
    """Return whether a value has both letters and digits in one run of 20 or more."""
    import re

    runs = re.findall(r"[A-Za-z0-9]{20,1000}", value, re.ASCII)
    return any(not run.isalpha() and not run.isdigit() for run in runs)


def _is_secret_member(text: str, match: re.Match[str]) -> bool:
    """Return whether a value after a colon is a secret's: not a public key, a digest, or the address of a token."""
    import re

    before = text[max(0, match.start() - 200) : match.start()].rstrip("\\\"' \t")
    name = _find_names(before, len(before))[0]
    if not _names_secret(name) or "public" in before[-len(name) - len("public ") :].lower():
        return False
    return not _is_digest(name, match[1]) and not re.fullmatch(r"0x[0-9a-fA-F]{40}", match[1], re.ASCII)


def _find_names(text: str, equals: int) -> list[str]:
    """Return the name before an equals sign, perhaps in quotes, and for `key: str =` the one before the type too."""
    names: list[str] = []
    before = text[max(0, equals - 200) : equals]
    while not names or (before.endswith(":") and len(names) < 2):
        before = before.rstrip("=:+ \t\"'`)]}")
        start = len(before)
        while start and before[start - 1].isascii() and (before[start - 1].isalnum() or before[start - 1] in "_-."):
            start -= 1
        names.append(before[start:])
        before = before[:start].rstrip()
    return names


def _names_secret(name: str) -> bool:
    """Return whether a name ends in the word key or token: `api_key`, `accessToken`, `KEY2`; not `monkey`."""
    import re

    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name, re.ASCII)
    last = words[-1].lower() if words else ""
    return last in ("key", "token") or last in _JOINED


def _is_digest(name: str, value: str) -> bool:
    """Return whether a value is hex, and its name says that it is the digest of something."""
    import re

    return bool(
        re.search(r"sha-?_?(?:1|224|256|384|512)|digest|hash", name, re.ASCII | re.IGNORECASE)
        and re.fullmatch(r"(?:0x)?[0-9a-fA-F]+", value, re.ASCII)
    )


def show_path(path: str) -> str:
    """Return a path, or another short text from outside, as a finding may name it."""
    return NOT_SHOWN if len(path) >= 20 and find_credentials(path, "") else path
