"""What a command of `amp` takes, said once: for a plain call without click, and for click.

    command = CommandLine(
        run,
        help="Check a pack's signature.",
        arguments=("pack",),
        options=(Option("--public-key", "FILE", "..."), Flag("--json", "as_json", "...")),
    )

`run` gets every value by name and returns the exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from melete.packs.credentials import RANDOM_MEMBERS, hide_secrets, without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

    from melete.packs.findings import Finding


class Option(NamedTuple):
    """An option with a value; its name is that of its flag. Repeated ones give a tuple, others None when absent."""

    flag: str
    metavar: str
    help: str
    repeated: bool = False
    choices: tuple[str, ...] = ()
    default: str | None = None

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


class Flag(NamedTuple):
    """An option without a value, true or false."""

    flag: str
    name: str
    help: str


AS_JSON = Flag("--json", "as_json", "Print one JSON object.")


class CommandLine:
    """A command: what it takes, and what runs it."""

    def __init__(
        self,
        run: Callable[..., int],
        *,
        help: str,
        arguments: Iterable[str] = (),
        options: Iterable[Option | Flag] = (),
    ) -> None:
        self.run = run
        self.help = help
        self.arguments = tuple(arguments)
        self.options = tuple(options)

    def parse_plain(self, words: list[str]) -> dict[str, Any] | None:
        """Return the values of a call that needs no explaining; None for any other, which click shall read.

        Plain are known options, each with its value and none that is not repeatable twice, and just the arguments
        that the command takes.
        """
        known = {option.flag: option for option in self.options}
        values: dict[str, Any] = {}
        given: list[str] = []
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                given.append(word)
                continue
            flag, equals, value = word.partition("=")
            option = known.get(flag)
            if option is None or (option.name in values and not getattr(option, "repeated", False)):
                return None
            if isinstance(option, Flag):
                if equals:
                    return None
                values[option.name] = True
                continue
            if not equals:
                value = next(rest, "-")
            if value.startswith("-") and not value.startswith("-----BEGIN "):
                return None
            if option.choices and value not in option.choices:
                return None
            values[option.name] = (*values.get(option.name, ()), value) if option.repeated else value
        if len(given) != len(self.arguments):
            return None
        return {**self._defaults(), **values, **dict(zip(self.arguments, given, strict=True))}

    def _defaults(self) -> dict[str, Any]:
        return {
            option.name: False if isinstance(option, Flag) else () if option.repeated else option.default
            for option in self.options
        }

    def to_click(self) -> click.Command:
        """Return the same command for click."""
        import click

        flags = {option.flag for option in self.options}

        def check(_: click.Context, option: click.Parameter, value: Any) -> Any:
            # Click takes whatever comes next, and `--key --json` would look for a key in a file of that name.
            for one in value if isinstance(value, tuple) else (value,):
                if one in flags:
                    raise click.BadOptionUsage(option.opts[0], f"Option {option.opts[0]!r} requires an argument.")
            return value

        parameters: list[click.Parameter] = [click.Argument([name], required=True) for name in self.arguments]
        for option in self.options:
            if isinstance(option, Flag):
                parameters.append(click.Option([option.flag, option.name], is_flag=True, help=option.help))
                continue
            parameters.append(
                click.Option(
                    [option.flag, option.name],
                    metavar=None if option.choices else option.metavar,
                    type=click.Choice(option.choices) if option.choices else str,
                    multiple=option.repeated,
                    callback=check,
                    default=option.default,
                    show_default=option.default is not None,
                    help=option.help,
                )
            )
        return click.Command(None, params=parameters, callback=self.run, help=self.help)


def emit(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was found: one JSON object, or a line for each member that is there.

    What looks like a live credential is left out, whatever text it stands in.
    """
    if as_json:
        import json

        sys.stdout.write(json.dumps(without_secrets(found)) + "\n")
        return
    width = max(map(len, found), default=0)
    for name, value in found.items():
        for shown in value if isinstance(value, list | tuple) else (value,):
            if shown is not None and shown != "":
                text = str(shown) if name in RANDOM_MEMBERS else hide_secrets(str(shown))
                sys.stdout.write(f"{name.ljust(width)}  {visible(text)}\n")


def warn(lines: Iterable[str]) -> None:
    """Print warnings, beside the result."""
    for line in lines:
        sys.stderr.write(f"amp: warning: {hide_secrets(line.removeprefix('warning: '))}\n")


def tell(findings: Iterable[Finding]) -> None:
    """Print findings, each as the error or the warning that it is, beside the result."""
    for finding in findings:
        sys.stderr.write(f"amp: {hide_secrets(str(finding))}\n")


def visible(text: str, longest: int = 400) -> str:
    """Return a text that may come from outside as one printable line: as it is where that is plain, else escaped."""
    if text.isprintable() and len(text) <= longest and text == text.strip():
        return text
    return ascii(text[:longest]) + ("..." if len(text) > longest else "")
