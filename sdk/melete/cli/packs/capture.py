"""`amp capture`: make a pack from notes, logs and a wiki, without a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from melete.packs.capture import Captured
    from melete.packs.capture.review import Settings, Value

HOLDS, DOES_NOT_HOLD = 0, 1


@click.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("--name", help="The pack's name: small letters, digits and hyphens.")
@click.option("--out", metavar="DIR", help="The folder to write; by default, the pack's name.")
@click.option("--title", help="The pack's title; by default, its name in words.")
@click.option("--author", metavar="NAME", help="Whose words in a log are kept.")
@click.option("--shape", "shapes", metavar="FILE=SHAPE", multiple=True, help="The shape of a file that shows none.")
@click.option(
    "--source", "origin", type=click.Choice(["self", "imported", "inferred"]), help="Where the memory comes from."
)
@click.option("--review", metavar="FILE", help="Write the units to FILE for a person to decide, and no pack.")
@click.option("--apply", "reviewed", metavar="FILE", help="Take back what a person decided in FILE.")
@click.option("--created", metavar="YYYY-MM-DD", help="The day in the manifest; by default, today.")
@click.option("--pack-version", type=click.IntRange(1, 10**8), help="The pack's version.  [default: 1]")
@click.option("--force", is_flag=True, help="Replace a pack that capture wrote, or a review.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    sources: tuple[str, ...],
    name: str | None,
    out: str | None,
    title: str | None,
    author: str | None,
    shapes: tuple[str, ...],
    origin: str | None,
    review: str | None,
    reviewed: str | None,
    created: str | None,
    pack_version: int | None,
    force: bool,
    as_json: bool,
) -> int:
    """Make a pack from SOURCES, files and folders.

    Each file is cut into units by its shape; narration and duplicates are dropped, what has no single reading is left
    to you, and lines that are in no unit are listed. With --review the units go to a file; edit it, and take it back
    with --apply. With both, what was decided in the one goes to the other.

    Exit code 1 if a unit looks like it holds a credential, or if nothing is left to write.
    """
    from melete.cli.packs.arguments import emit
    from melete.packs.capture import capture
    from melete.packs.capture.report import compute_report, to_lines
    from melete.packs.capture.review import apply_review, load_review, read_settings, read_shapes
    from melete.packs.capture.shapes import Shape, parse_shape_choice
    from melete.packs.credentials import hide_secrets

    document: Value | None = None
    earlier: Settings | None = None
    recorded: dict[str, Shape] = {}
    if reviewed is not None:
        document = load_review(_read(reviewed), reviewed)
        earlier = read_settings(document, reviewed)
        recorded = {
            path: Shape(shape) for path, shape in read_shapes(document, reviewed).items() if shape in tuple(Shape)
        }
    settings = _settings(name, title, origin, author, created, pack_version, earlier)
    captured = capture(sources, author=settings.author, shapes=dict(map(parse_shape_choice, shapes)), recorded=recorded)
    judged = captured.judged
    written: str | None = None
    if review is not None:
        _write_review(review, settings, captured, document, sources, force=force)
        written = review
    else:
        if document is not None and reviewed is not None:
            judged = apply_review(document, judged, captured.sources, reviewed)
        written = _write_pack(out or settings.name, settings, captured._replace(judged=judged), force=force)
    report = compute_report(settings.name, captured.sources, judged, captured.left_out, captured.uncut)
    if as_json:
        kind = "review" if review is not None else "pack"
        emit({**report, "written": {kind: written} if written else None}, as_json=True)
    else:
        for line in to_lines(report, judged):
            click.echo(hide_secrets(line))
        _tell(settings.name, written, review, report)
    return DOES_NOT_HOLD if report["failed"] or written is None else HOLDS


def _tell(name: str, written: str | None, review: str | None, report: dict[str, Any]) -> None:
    from melete.cli.packs.arguments import visible

    if review is not None:
        click.echo(f"review written to {visible(review)}; no pack is written. Edit it, then give --apply.")
    elif written is None:
        click.echo("amp: no pack was written: no unit is settled; look at them with --review FILE.", err=True)
    else:
        click.echo(f"pack {name} written to {visible(written)}")
        if report["ambiguous"]:
            click.echo("ambiguous units are not in it; decide them with --review FILE and --apply FILE")


def _settings(
    name: str | None,
    title: str | None,
    origin: str | None,
    author: str | None,
    created: str | None,
    version: int | None,
    earlier: Settings | None,
) -> Settings:
    """Return what the options say, and for the rest what an earlier review says."""
    from melete.packs.capture.review import Settings
    from melete.packs.capture.write import check_settings

    if name is None and earlier is None:
        raise click.UsageError("Missing option '--name'.")
    slug = name or (earlier.name if earlier else "")
    if created is None and earlier is None:
        from datetime import date

        created = date.today().isoformat()
    settings = Settings(
        name=slug,
        title=title or (earlier.title if earlier else " ".join(word.capitalize() for word in slug.split("-") if word)),
        source=origin or (earlier.source if earlier else "self"),
        author=author or (earlier.author if earlier else None),
        created=created or (earlier.created if earlier else ""),
        version=version or (earlier.version if earlier else 1),
    )
    check_settings(settings)
    return settings


def _read(path: str, option: str = "--apply") -> str:
    from melete.errors import InvalidInput
    from melete.packs.capture.review import LARGEST_REVIEW

    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_REVIEW + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no name of a file"
        raise InvalidInput(option, path, f"a file that can be read ({reason})") from None
    if len(content) > LARGEST_REVIEW:
        raise InvalidInput(option, path, f"a file of at most {LARGEST_REVIEW} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(option, path, f"UTF-8; its byte {error.start} is not") from None


def _write_review(
    path: str, settings: Settings, captured: Captured, earlier: Value | None, given: tuple[str, ...], *, force: bool
) -> None:
    from melete.errors import InvalidInput
    from melete.packs.capture.review import dump_review
    from melete.packs.files import write_file

    kind = "json" if path.lower().endswith(".json") else "yaml"
    text = dump_review(settings, captured.sources, captured.judged, kind, earlier)
    if force:
        _check_replaced(path, captured, given)
    try:
        write_file(path, text.encode(), 0o600, replace=force)
    except FileExistsError:
        rule = "a file that is not there yet, because it may hold decisions; choose another one, or give --force"
        raise InvalidInput("--review", path, rule) from None


def _check_replaced(path: str, captured: Captured, given: tuple[str, ...]) -> None:
    """Refuse to replace anything but a review. Errors: `InvalidInput`."""
    from hashlib import sha256

    from melete.errors import InvalidInput
    from melete.packs.capture.review import load_review
    from melete.packs.errors import InvalidReview

    place = Path(path)
    if not os.path.lexists(path):
        return
    if place.is_symlink() or not place.is_file():
        raise InvalidInput("--review", path, "a plain file; move away what is there, or choose another name")
    text = _read(path, "--review")
    is_source = any(Path(source).exists() and place.samefile(source) for source in given)
    if is_source or sha256(place.read_bytes()).hexdigest() in {source.sha256 for source in captured.sources}:
        raise InvalidInput("--review", path, "another file than the sources; choose another name")
    try:
        load_review(text, path)
    except InvalidReview:
        rule = "a review, to be replaced; move away what is there, or choose another name"
        raise InvalidInput("--review", path, rule) from None


def _write_pack(out: str, settings: Settings, captured: Captured, *, force: bool) -> str | None:
    from melete.packs.capture.write import build_pack, write_pack
    from melete.packs.errors import NothingCaptured

    try:
        files = build_pack(settings, captured.sources, captured.judged)
    except NothingCaptured:
        return None
    write_pack(out, files, force=force)
    return out
