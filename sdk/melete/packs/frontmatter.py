"""The YAML between two `---` lines at the top of a file, as plain values and nothing else.

    split = split_frontmatter(text)                  # SplitText(yaml, first line, where the rest begins)
    load_frontmatter(split.yaml, "memory/a.md", split.first_line)    # {"type": "cluster", ...}

PyYAML's safe loader reads it. Refused beyond what that refuses: anchors and aliases (a small text that stands for a
large one), tags, merges, a member that stands twice, names that are no text, deep nesting, and size. A date stays
text. The plainest frontmatter, which is nearly all there is, is read without loading YAML, to the same values.

Source: AMP v0.4, Part 2 (capability files).
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, NoReturn

#: Characters, levels and values that one frontmatter has at most.
LARGEST: Final = 64 * 1024
DEEPEST: Final = 16
MOST_VALUES: Final = 4096

_FENCE: Final = "---"
_TAG: Final = "tag:yaml.org,2002:"


class SplitText(NamedTuple):
    """A text and its frontmatter: `yaml` is None where there is none, and `closed` False where it does not end.

    `first_line` is the number of the YAML's first line, `rest` the index in the text where the line after begins.
    """

    yaml: str | None
    first_line: int
    rest: int
    closed: bool = True


def split_frontmatter(text: str) -> SplitText:
    """Return where the frontmatter of a text stands. Lines end at a line feed, with or without a carriage return."""
    start = 1 if text.startswith("\ufeff") else 0
    first, at = _read_line(text, start)
    if first.rstrip(" \t") != _FENCE:
        return SplitText(None, 1, start)
    opened = at
    while at < len(text):
        begin = at
        line, at = _read_line(text, begin)
        if line.rstrip(" \t") == _FENCE:
            return SplitText(text[opened:begin], 2, at)
    return SplitText(None, 1, opened, closed=False)


def load_frontmatter(yaml: str, file: str, first_line: int = 1) -> dict[str, Any]:
    """Return what a YAML text holds: text, numbers, booleans, nulls, lists, and members by name.

    Errors: `BadFrontmatter`, naming the line in `file`, if the YAML begins at `first_line`.
    """
    simple = _load_simple(yaml)
    return _load_yaml(yaml, file, first_line) if simple is None else simple


def dump_frontmatter(values: dict[str, Any]) -> str:
    """Return YAML that reads as these values, a line feed at its end. Errors: `InvalidInput` for what has none."""
    from melete.errors import InvalidInput
    from melete.packs.errors import BadFrontmatter

    def refuse(rule: str) -> NoReturn:
        raise InvalidInput("frontmatter", "values", rule) from None

    import yaml

    try:
        text: str = yaml.dump(values, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=2**31)
        same = load_frontmatter(text, "", 1)
    except (yaml.YAMLError, BadFrontmatter, RecursionError, UnicodeError):
        refuse("text, numbers, booleans, nulls, lists and members by name, not too deep or many")
    if same != values or repr(same) != repr(values) or split_frontmatter(f"{_FENCE}\n{text}{_FENCE}\n").yaml != text:
        refuse("values that YAML gives back as they are")
    return text


def _read_line(text: str, at: int) -> tuple[str, int]:
    """Return the line that begins at an index, without its end, and where the next one begins."""
    end = text.find("\n", at)
    if end < 0:
        return text[at:], len(text)
    return text[at:end].removesuffix("\r"), end + 1


# The plainest form

MOST_SIMPLE: Final = 64
#: Members on a line each; a value is a number, or words that YAML takes for text whatever they are.
_NUMBER: Final = r"0|[1-9][0-9]{0,17}"
_WORDS: Final = r"[A-Za-z][A-Za-z0-9_/.()]*(?:[ ,-]+[A-Za-z0-9_/.()]+)*"
#: Words that YAML takes for a boolean or a null.
_NO_TEXT: Final = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def _load_simple(yaml: str) -> dict[str, Any] | None:
    """Return the values of the plainest YAML, or None for any other."""
    if not yaml.isascii() or yaml.count("\n") > MOST_SIMPLE:
        return None
    values: dict[str, Any] = {}
    inner: dict[str, Any] | None = None
    for line in yaml.replace("\r\n", "\n").split("\n")[:-1]:
        match = _simple_line().fullmatch(line)
        if match is None:
            return None
        indent, name, number, words = match.groups()
        if name in _NO_TEXT or (words and words.lower() in _NO_TEXT):
            return None
        into = values
        if indent:
            if inner is None:
                return None
            into = inner
        if name in into:
            return None
        if number is None and words is None:
            if indent:
                return None
            values[name] = inner = {}
            continue
        into[name] = int(number) if number is not None else words
        if not indent:
            inner = None
    # A name with nothing below it is a null; YAML shall say so.
    return None if not yaml.endswith("\n") or any(value == {} for value in values.values()) else values


_simple_line_pattern: re.Pattern[str] | None = None


def _simple_line() -> re.Pattern[str]:
    global _simple_line_pattern
    if _simple_line_pattern is None:
        _simple_line_pattern = re.compile(rf"(  )?([a-z][a-z_]*):(?: (?:({_NUMBER})|({_WORDS})))?", re.ASCII)
    return _simple_line_pattern


# All of it


def _load_yaml(text: str, file: str, first_line: int) -> dict[str, Any]:
    from melete.packs.credentials import quote
    from melete.packs.errors import BadFrontmatter

    def refuse(line: int, reason: str) -> NoReturn:
        raise BadFrontmatter(file, first_line + line, reason) from None

    if len(text) > LARGEST:
        refuse(0, f"it has more than {LARGEST} characters; shorten it")
    import yaml

    try:
        return _Reader(text, refuse).read_document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 0 if mark is None else mark.line
        refuse(line, f"it is not YAML ({quote(str(error.problem or error.context))})")
    except (yaml.YAMLError, UnicodeError):
        refuse(0, "it is not YAML: it holds characters that YAML does not allow")


def _loader() -> Any:
    """Return PyYAML's safe loader, the one in C where it is there."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _dumper() -> Any:
    """Return a safe dumper that repeats a value instead of naming it."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is YAML's
            return True

    return Dumper


class _Reader:
    """Makes plain values of YAML's events, in one pass, counting them."""

    def __init__(self, text: str, refuse: Callable[[int, str], NoReturn]) -> None:
        import yaml

        self._yaml = yaml
        self._loader = _loader()(text)
        self._refuse = refuse
        self._make = yaml.constructor.SafeConstructor()
        self._left = MOST_VALUES

    def read_document(self) -> dict[str, Any]:
        self._next()
        if isinstance(self._next(), self._yaml.StreamEndEvent):
            return {}
        event = self._next()
        if not isinstance(event, self._yaml.MappingStartEvent):
            if isinstance(event, self._yaml.ScalarEvent) and not event.value and not event.style:
                return {}
            self._refuse(event.start_mark.line, "it must hold members, as in `type: cluster`")
        value: dict[str, Any] = self._read(event, 1)
        self._next()
        event = self._next()
        if not isinstance(event, self._yaml.StreamEndEvent):
            self._refuse(event.start_mark.line, "it holds more than one document")
        return value

    def _next(self) -> Any:
        return self._loader.get_event()

    def _read(self, event: Any, depth: int) -> Any:
        line = event.start_mark.line
        self._left -= 1
        if self._left < 0:
            self._refuse(line, f"it holds more than {MOST_VALUES} values; shorten it")
        if depth > DEEPEST:
            self._refuse(line, f"it is nested more than {DEEPEST} deep; flatten it")
        if isinstance(event, self._yaml.AliasEvent) or event.anchor or event.tag is not None:
            self._refuse(line, "anchors, aliases and tags are not read; write the value itself")
        if isinstance(event, self._yaml.ScalarEvent):
            return self._read_scalar(event)
        if isinstance(event, self._yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self._next(), self._yaml.SequenceEndEvent):
                items.append(self._read(event, depth + 1))
            return items
        values: dict[str, Any] = {}
        while not isinstance(event := self._next(), self._yaml.MappingEndEvent):
            line = event.start_mark.line
            name = self._read(event, depth + 1)
            if not isinstance(name, str) or (name == "<<" and not event.style):
                self._refuse(line, "a member's name must be text; put it in quotes")
            if name in values:
                self._refuse(line, "a member stands twice; keep one")
            values[name] = self._read(self._next(), depth + 1)
        return values

    def _read_scalar(self, event: Any) -> Any:
        tag = self._loader.resolve(self._yaml.ScalarNode, event.value, event.implicit)
        kind = tag.removeprefix(_TAG)
        if kind not in ("int", "float", "bool", "null"):
            return event.value
        try:
            return getattr(self._make, f"construct_yaml_{kind}")(self._yaml.ScalarNode(tag, event.value))
        except (ValueError, OverflowError):
            self._refuse(event.start_mark.line, "a number cannot be read; put it in quotes")
