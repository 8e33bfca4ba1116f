"""Layers, floors and documents on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.times import parse_span

if TYPE_CHECKING:
    from melete.canonical import Json
    from melete.meditation.policy import Floor

NAMES: Final = ("runtime", "memory-skills", "tasks-roles", "cognition")


class LayersParameter(click.ParamType):
    """Layers by index or name, joined by commas; a mask inside."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the mask, or fail as a usage error."""
        if isinstance(value, int):
            return value
        mask = 0
        for part in value.split(","):
            layer = parse_layer(part.strip())
            if layer is None:
                self.fail(f"{part!a} is no layer; give 0 to 3, or {', '.join(NAMES)}", param, ctx)
            mask |= 1 << layer
        return mask


def parse_layer(text: str) -> int | None:
    """Return a layer's index from its index or name; None for text that is none."""
    if text in ("0", "1", "2", "3"):
        return int(text)
    return NAMES.index(text) if text in NAMES else None


def parse_floor(required: tuple[str, ...], pulse: int) -> Floor:
    """Return the floor that --require LAYER=SPAN options and --pulse describe. Errors: `click.UsageError`."""
    from melete.meditation.policy import Floor

    mask, intervals = 0, [0, 0, 0, 0]
    for text in required:
        name, _, span = text.partition("=")
        layer, seconds = parse_layer(name), parse_span(span)
        if layer is None or not seconds or seconds >= 2**48:
            raise click.UsageError(f"--require {text!a} is no layer with an interval; give for example runtime=1d")
        if mask & 1 << layer:
            raise click.UsageError(f"--require names the layer {NAMES[layer]} twice; give one interval for it.")
        mask |= 1 << layer
        intervals[layer] = seconds
    return Floor(mask, pulse, (intervals[0], intervals[1], intervals[2], intervals[3]))


def load_file(path: str, expected: str | None = None) -> dict[str, Json]:
    """Return the document in a file. Errors: `MissingFile`; those of `load_document`."""
    from melete.errors import InvalidInput, MissingFile
    from melete.files import read_file
    from melete.meditation.documents import LARGEST_DOCUMENT, load_document

    try:
        text = read_file(path, LARGEST_DOCUMENT)
    except OSError as error:
        raise MissingFile(path, error.strerror or "it cannot be read") from None
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidInput("document", path, f"a file of at most {LARGEST_DOCUMENT} bytes")
    return load_document(text, expected=expected)
