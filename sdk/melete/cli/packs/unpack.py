"""`amp unpack`: merge installed packs into a wiki."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from melete.packs.inspection import Place

HOLDS, DOES_NOT_HOLD = 0, 1


@click.command()
@click.argument("slug", required=False)
@click.option("--wiki", "folder", metavar="DIR", help="The wiki.  [default: knowledge-base/wiki in the project]")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--no-scaffold", is_flag=True, help="Refuse where there is no wiki yet.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; needs --yes or --dry-run.")
def command(slug: str | None, folder: str | None, yes: bool, no_scaffold: bool, dry_run: bool, as_json: bool) -> int:
    """Merge the installed pack SLUG, or all that are installed, into a wiki of Markdown pages.

    The plan is printed first. Each capability becomes a page, or a section of one that is there; running it again
    changes nothing, and after an upgrade only the pack's own sections change. A pack that is not as it was installed,
    or whose signature is broken, is refused.

    Exit code 1 if a pack or a page was skipped because of what it holds, or what is there already.
    """
    from datetime import date

    from melete.cli.packs.arguments import emit
    from melete.cli.packs.install import choose_keys
    from melete.errors import ConfigurationError, show
    from melete.packs.credentials import hide_secrets
    from melete.packs.inspection import parse_name
    from melete.packs.unpack.plan import apply_plan, compute_plan, load_packs, to_json, to_lines
    from melete.packs.unpack.wiki import State, open_wiki

    if as_json and not (yes or dry_run):
        raise click.UsageError("with --json nobody can be asked; add --yes, or --dry-run.")
    name = None if slug is None else parse_name(slug)[1]
    places = _find_places()
    keys, trusted, _ = choose_keys(())
    packs, skipped = load_packs(places, name, public_keys=keys, trusted=trusted)
    if not packs and not skipped:
        raise ConfigurationError("no pack is installed here; see amp install --help")
    with open_wiki(folder, places[0].root) as wiki:
        if no_scaffold and wiki.state is not State.A:
            raise ConfigurationError(f"there is no wiki in {show(wiki.path(''))}; leave --no-scaffold out to make one")
        plan = compute_plan(packs, wiki, today=date.today().isoformat(), skipped=skipped)
        if not as_json:
            for line in to_lines(plan, wiki):
                click.echo(hide_secrets(line))
        if dry_run or plan.empty:
            written = False
            if not as_json:
                click.echo("nothing was written" if dry_run else "nothing to do")
        elif yes or _ask():
            apply_plan(plan, wiki)
            written = True
            if not as_json:
                click.echo(f"written: {len(plan.changes)} files")
        else:
            click.echo("nothing was written")
            return DOES_NOT_HOLD
        if as_json:
            emit({**to_json(plan, wiki), "written": written}, as_json=True)
    return DOES_NOT_HOLD if any(one.blocking for one in plan.skipped) else HOLDS


def _find_places() -> list[Place]:
    """Return where packs are looked for: the project first, then the home."""
    import os

    from melete.packs.hosts import Scope, find_home, find_project
    from melete.packs.inspection import Place

    home = find_home()
    project = find_project(None, home) or os.path.realpath(".")
    places = [Place(project, Scope.PROJECT)]
    return places if project == home else [*places, Place(home, Scope.USER)]


def _ask() -> bool:
    try:
        return click.confirm("Proceed?", default=False)
    except click.Abort:
        raise click.UsageError("nobody answered; add --yes to do it without asking.") from None
