"""What unpacking would do to a wiki: read packs, compare with what is there, and list every file that changes.

    packs = load_packs(places, slug=None)
    plan = compute_plan(packs, wiki, today="2026-04-21")
    apply_plan(plan, wiki)

A plan holds the text of each file before and after. Files are written one by one, pages first and the log last, so
that a run that was killed is completed by the next: what a plan holds follows from the packs and the wiki alone.

Source: AMP v0.4, Part 12; decisions, AMP packs, Unpack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from melete.errors import InputError, MeleteError, MissingFile
from melete.packs.capture.distill import find_secrets, find_unseen
from melete.packs.errors import (
    MarkersDamaged,
    NotInstalled,
    PackError,
    PackRefused,
    SignatureRefused,
    TargetRefused,
    WikiRefused,
)
from melete.packs.grammar import Cluster, Source, Unit, parse_cluster
from melete.packs.inspection import Installed, Place, Record, compare_files, find_installed, list_installed
from melete.packs.manifest import explain_nothing_read
from melete.packs.unpack.merge import (
    STEM,
    Origin,
    add_to_index,
    add_to_log,
    create_page,
    describe,
    find_links,
    find_sections,
    is_ours,
    log_line,
    merge_page,
    render_body,
    title_of,
    update_frontmatter,
)
from melete.packs.unpack.wiki import INDEX, LOG, PAGES, SCHEMA, State, Wiki

TYPE_CHECKING = False
if TYPE_CHECKING:
    from melete.packs.keys import PublicKey
    from melete.packs.tree import PackTree
    from melete.packs.trust import TrustedKey

#: A pack that is larger than this is no memory of an agent.
LARGEST_CLUSTER: Final = 4 * 1024 * 1024

SCHEMA_TEXT: Final = """\
# How this knowledge base is kept

- `raw/` holds notes as they came. They are not edited.
- `wiki/pages/` holds one page for each subject, in our own words; a page's name in double brackets links to it.
- `wiki/index.md` lists the pages.
- `wiki/log.md` says what changed, a line each, the newest at the end.

A page starts with title, tags, sources and the day it was last updated. What a pack of memory brought stands between
two comments that name the pack: edit around it, not inside it, so that an update can replace it.
"""
INDEX_TEXT: Final = "# Index\n"
LOG_TEXT: Final = "# Log\n\n"


class Capability(NamedTuple):
    """A capability file of a pack, as a page: its name, its primitives, what it is for; or why it cannot be one.

    `blocking` is false if there is just nothing in it.
    """

    stem: str
    file: str
    units: tuple[Unit, ...]
    sources: dict[str, Source]
    description: str
    problem: str | None
    blocking: bool = True


class Pack(NamedTuple):
    """An installed pack, as far as a wiki is concerned."""

    origin: Origin
    place: Place
    version: str | None
    digest: str
    capabilities: tuple[Capability, ...]


class Skipped(NamedTuple):
    """A page or a pack that is left as it is, and why. `blocking` if something is wrong; otherwise it is just said."""

    path: str
    slug: str
    reason: str
    blocking: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A file that changes: what is done to it, its text before (None if it is not there) and after."""

    path: str
    done: tuple[str, ...]
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that unpacking does, in the order in which it is done."""

    state: State
    make_folders: bool
    changes: tuple[Change, ...]
    skipped: tuple[Skipped, ...]
    unchanged: tuple[str, ...]
    packs: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not self.changes and not self.make_folders


# Packs


def load_packs(
    places: Sequence[Place],
    slug: str | None = None,
    *,
    public_keys: Sequence[PublicKey] = (),
    trusted: Iterable[TrustedKey] = (),
) -> tuple[list[Pack], list[Skipped]]:
    """Return the packs that are installed in any of the places, by name; the first place that has one counts.

    A pack that cannot be read, or that is not as it was installed, is skipped and named, unless it is the one asked
    for. Errors: `NotInstalled`; for one that is asked for, those of `load_pack`.
    """
    found: dict[str, Installed] = {}
    for place in places:
        listed = list_installed(place) if slug is None else [find_installed(place, slug)]
        for one in listed:
            if one is not None and one.has_files:
                found.setdefault(one.slug, one)
    if slug is not None and not found:
        raise NotInstalled(slug, " or ".join(place.root for place in places), "; install it first")
    packs, skipped, known = [], [], tuple(trusted)
    for name, one in sorted(found.items()):
        try:
            packs.append(load_pack(one, public_keys, known))
        except (PackError, MissingFile, InputError) as error:
            if slug is not None:
                raise
            skipped.append(Skipped(f"{one.folder}/", name, str(error).rstrip("."), blocking=True))
    return packs, skipped


def load_pack(installed: Installed, public_keys: Sequence[PublicKey] = (), trusted: Iterable[TrustedKey] = ()) -> Pack:
    """Read an installed pack of either format.

    Errors: `PackError`, `MissingFile` for one that cannot be read, that differs from what was installed, whose
    signature does not hold, or from which no primitive can be read.
    """
    from melete.packs.legacy import parse_cluster_v3
    from melete.packs.manifest import V03, load_manifest
    from melete.packs.routing import parse_routing
    from melete.packs.signing import compute_digest
    from melete.packs.tree import load_tree

    tree = load_tree(f"{installed.place.root}/{installed.folder}")
    manifest = load_manifest(tree)
    if installed.record is not None:
        _check_files(tree, installed.record)
    _check_signature(tree, public_keys, trusted)
    record = installed.record
    routing = parse_routing(tree.read_text(manifest.agents_file))
    tasks = {entry.file: entry.task for entry in reversed((*routing.always, *routing.routes))}
    parse = parse_cluster_v3 if manifest.primitive_format == V03 else parse_cluster
    capabilities = []
    for name in dict.fromkeys(manifest.capability_files):
        path = f"memory/{name}"
        try:
            cluster = parse(tree.read_text(path, LARGEST_CLUSTER), path)
        except MeleteError as error:
            capabilities.append(Capability(_stem(name) or "", path, (), {}, "", str(error).rstrip(".")))
            continue
        capabilities.append(_to_capability(name, path, cluster, tasks.get(name)))
    if capabilities and not any(one.units or (one.problem and one.blocking) for one in capabilities):
        raise PackRefused("no-primitives", "", explain_nothing_read(manifest))
    version = manifest.version if manifest.version is None else str(manifest.version)
    return Pack(
        Origin.of(installed.slug, record.creator if record else None, record.installed_at if record else None),
        installed.place,
        version,
        compute_digest(tree, manifest.raw),
        tuple(capabilities),
    )


def _to_capability(name: str, path: str, cluster: Cluster, task: str | None) -> Capability:
    frontmatter = cluster.frontmatter or {}
    applies_to = frontmatter.get("applies_to")
    description = describe(task or (applies_to if isinstance(applies_to, str) else ""))
    problem = _find_problem(name, cluster, description)
    fault = next((finding for finding in cluster.findings if finding.is_error), None)
    if problem is None and fault is not None:
        problem = f"{fault.place}: {fault.message} ({fault.rule})"
    blocking = problem is not None or bool(cluster.units)
    if problem is None and not cluster.units:
        problem = "it holds no primitive"
    return Capability(_stem(name) or "", path, cluster.units, cluster.sources, description, problem, blocking)


def _check_files(tree: PackTree, record: Record) -> None:
    """Refuse a pack whose files are not those that were installed. Errors: `PackRefused`."""
    found = {file.path: tree.sha256(file.path) for file in tree.files}
    for one in compare_files(record.files, found):
        remedy = "look at it with amp inspect, and install the pack again"
        raise PackRefused("installed-files", one.path, f"it is {one.kind} since the pack was installed; {remedy}")


def _check_signature(tree: PackTree, public_keys: Sequence[PublicKey], trusted: Iterable[TrustedKey]) -> None:
    """Refuse a pack that is signed, and whose signature is broken. Errors: `PackRefused`, `SignatureRefused`."""
    from melete.packs.signing import verify_pack

    verdict = verify_pack(tree, public_keys, trusted=trusted)
    if not verdict.signed or verdict.answer != "broken":
        return
    for one in verdict.differences:
        raise PackRefused("signed-files", one.path, f"it is {one.kind} since the pack was signed; get the pack anew")
    raise SignatureRefused(verdict.reason)


def _stem(name: str) -> str | None:
    stem = name.removesuffix(".md")
    return stem if name.endswith(".md") and STEM.fullmatch(stem) else None


def _find_problem(name: str, cluster: Cluster, description: str) -> str | None:
    """Return why a capability does not become a page. Nothing of a secret is in it."""
    if _stem(name) is None:
        return "its name is not that of a page: letters, digits, hyphens, dots and underscores, and .md"
    for unit in cluster.units:
        text = "\n".join(part for part in (unit.content, unit.reason, unit.illustrates) if part)
        for finding in (*find_secrets(text, unit.id), *find_unseen(text, unit.id)):
            return f"{unit.id}, line {unit.line}: {finding.message} ({finding.rule})"
    legend = "\n".join(f"{source.title} {source.url or ''}" for source in cluster.sources.values())
    for what, text in (("description", description), ("legend of sources", legend)):
        for finding in (*find_secrets(text, name), *find_unseen(text, name)):
            return f"its {what}: {finding.message} ({finding.rule})"
    return None


# The plan


@dataclass(slots=True)
class _Draft:
    """A file while the plan is made."""

    before: str | None
    text: str
    done: list[str] = field(default_factory=list)


def compute_plan(packs: Sequence[Pack], wiki: Wiki, *, today: str, skipped: Sequence[Skipped] = ()) -> Plan:
    """Return what unpacking these packs does to a wiki as it is now. Nothing is written.

    Errors: `WikiRefused` for an index or a log that cannot be read.
    """
    stems = wiki.list_pages()
    drafts: dict[str, _Draft] = {}
    left = list(skipped)
    unchanged: list[str] = []
    accepted = _accept(packs, wiki, stems, left)
    known = {*stems, *(one.stem for _, one in accepted)}
    done_of: dict[str, list[str]] = {pack.origin.slug: [] for pack in packs}
    descriptions: dict[str, str] = {}
    for pack, one in accepted:
        path, slug = f"{PAGES}/{one.stem}.md", pack.origin.slug
        try:
            done = _merge(drafts, wiki, path, pack, one, known, today)
        except (MarkersDamaged, WikiRefused) as error:
            left.append(Skipped(wiki.path(path), slug, error.reason, blocking=True))
            continue
        if done == "kept":
            reason = f"its section from {slug} was edited and stays; remove it to get the new one"
            left.append(Skipped(wiki.path(path), slug, reason, blocking=True))
        else:  # the log says what the wiki holds of the pack now
            done_of[slug].append(one.stem)
        if done == "unchanged":
            unchanged.append(wiki.path(path))
        descriptions.setdefault(one.stem, one.description)
    left += _find_stale(packs, wiki, stems, drafts)
    _plan_index(drafts, wiki, descriptions)
    _plan_log(drafts, wiki, packs, done_of, today)
    if wiki.state is State.C:
        drafts[f"../{SCHEMA}"] = _Draft(None, SCHEMA_TEXT, ["scaffold"])
    changes = tuple(
        Change(path, tuple(draft.done), draft.before, draft.text)
        for path, draft in sorted(drafts.items(), key=lambda item: _order(item[0]))
        if draft.text != draft.before
    )
    return Plan(
        wiki.state,
        wiki.state is not State.A,
        changes,
        tuple(left),
        tuple(dict.fromkeys(unchanged)),
        tuple(pack.origin.slug for pack in packs),
    )


def _accept(
    packs: Sequence[Pack], wiki: Wiki, stems: Sequence[str], left: list[Skipped]
) -> list[tuple[Pack, Capability]]:
    """Return the capabilities that become pages, and add the others to those that are left."""
    accepted = []
    folded = {stem.lower(): stem for stem in stems}
    for pack in packs:
        for one in pack.capabilities:
            problem = one.problem
            if problem is None and folded.setdefault(one.stem.lower(), one.stem) != one.stem:
                problem = f"a page is called {folded[one.stem.lower()]}, which differs by case only"
            if problem is None:
                accepted.append((pack, one))
            else:
                shown = wiki.path(f"{PAGES}/{one.stem}.md") if one.stem else one.file
                left.append(Skipped(shown, pack.origin.slug, problem, blocking=one.blocking))
    return accepted


def _order(path: str) -> tuple[int, str]:
    """Pages, then what lists them: a run that is killed leaves no index or log of what is not there."""
    ranks = {f"../{SCHEMA}": 0, INDEX: 2, LOG: 3}
    return ranks.get(path, 1), path


def _merge(
    drafts: dict[str, _Draft], wiki: Wiki, path: str, pack: Pack, one: Capability, known: set[str], today: str
) -> str:
    draft = drafts.get(path)
    if draft is None:
        before = wiki.read(path)
        draft = _Draft(before, before or "")
    body = render_body(pack.origin, one.units, find_links(one.units, one.stem, known), known, one.sources)
    if draft.before is None and not draft.text:
        draft.text = create_page(one.stem, pack.origin, body, today)
        done = "created"
    else:
        merged = merge_page(draft.text, pack.origin.slug, body)
        draft.text = update_frontmatter(draft.text, merged.text, one.stem, today)
        done = merged.done
    if done in ("created", "merged", "replaced"):
        draft.done.append(f"{done} from {pack.origin.slug}")
    drafts[path] = draft
    return done


def _find_stale(packs: Sequence[Pack], wiki: Wiki, stems: Sequence[str], drafts: dict[str, _Draft]) -> list[Skipped]:
    """Name the sections of packs that no longer have the capability; they stay, because they may be wanted."""
    found = []
    wanted = {(pack.origin.slug, one.stem) for pack in packs for one in pack.capabilities if one.blocking}
    slugs = {pack.origin.slug for pack in packs}
    for stem in stems:
        path = f"{PAGES}/{stem}.md"
        try:
            text = drafts[path].text if path in drafts else wiki.read(path) or ""
            present = find_sections(text) if "amp-unpack:" in text else []
        except (MarkersDamaged, WikiRefused):
            continue
        for section in present:
            if section.slug in slugs and (section.slug, stem) not in wanted:
                reason = f"{section.slug} no longer has this page; its section stays, remove it if you like"
                found.append(Skipped(wiki.path(path), section.slug, reason, blocking=False))
    return found


def _plan_index(drafts: dict[str, _Draft], wiki: Wiki, descriptions: dict[str, str]) -> None:
    before = wiki.read(INDEX)
    text = INDEX_TEXT if before is None else before
    entries = {
        stem: descriptions[stem] or title_of(stem)
        for stem in sorted(descriptions)
        if f"{PAGES}/{stem}.md" in drafts and _made_here(drafts[f"{PAGES}/{stem}.md"].text, stem)
    }
    after = add_to_index(text, entries)
    drafts[INDEX] = _Draft(before, after, ["scaffold"] if before is None else ["lines added"])


def _made_here(text: str, stem: str) -> bool:
    try:
        return is_ours(text, stem)
    except MarkersDamaged:
        return False


def _plan_log(
    drafts: dict[str, _Draft], wiki: Wiki, packs: Sequence[Pack], done_of: dict[str, list[str]], today: str
) -> None:
    before = wiki.read(LOG)
    text = LOG_TEXT if before is None else before
    for pack in packs:
        stems = done_of[pack.origin.slug]
        if stems:
            line = log_line(today, pack.origin, pack.version, pack.digest, stems)
            text = add_to_log(text, line, pack.origin.slug, pack.digest)
    if text != LOG_TEXT or wiki.state is not State.A:
        drafts[LOG] = _Draft(before, text, ["scaffold"] if before is None else ["line added"])


# Doing it


def apply_plan(plan: Plan, wiki: Wiki) -> None:
    """Write what a plan says, file by file.

    Errors: `WikiRefused` when a file changed since the plan was made, `StoreNotWritten`; what was written before that
    stays, and the next run goes on from there.
    """
    if plan.empty:
        return
    try:
        wiki.remove_drafts()
    except TargetRefused as error:
        raise WikiRefused(error.file, error.reason) from None
    changes = list(plan.changes)
    if changes and changes[0].path == f"../{SCHEMA}":
        wiki.make_knowledge_base(changes.pop(0).after)
    if plan.make_folders:
        wiki.make_pages_folder()
    for change in changes:
        wiki.write(change.path, change.before, change.after)


# For people and machines


def to_json(plan: Plan, wiki: Wiki) -> dict[str, Any]:
    """Return a plan as JSON, without the texts."""
    return {
        "wiki": wiki.path(""),
        "state": plan.state.value,
        "packs": list(plan.packs),
        "changes": [
            {"path": wiki.path(change.path), "new": change.before is None, "done": list(change.done)}
            for change in plan.changes
        ],
        "unchanged": list(plan.unchanged),
        "skipped": [one._asdict() for one in plan.skipped],
    }


_STATES: Final = {
    State.A: "a wiki is there",
    State.B: "there is no wiki yet; its parts are made",
    State.C: "there is no knowledge base yet; it is made, with SCHEMA.md",
}


def to_lines(plan: Plan, wiki: Wiki) -> list[str]:
    """Return a plan as a person reads it."""
    from melete.packs.credentials import quote

    lines = [f"wiki {quote(wiki.path(''), 200)}: state {plan.state.value}, {_STATES[plan.state]}"]
    for change in plan.changes:
        sign = "+" if change.before is None else "~"
        lines.append(f"  {sign} {wiki.path(change.path)}: {', '.join(change.done)}")
    lines += [f"  = {path}: unchanged" for path in plan.unchanged]
    # Two packs may meet the same fault of one page.
    lines += dict.fromkeys(f"  ! {quote(one.path, 200)}: skipped, {one.reason}" for one in plan.skipped)
    return lines
