"""`melete memory`: remember, recall and forget; approve and audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from melete.cli import memory_packs, memory_record, memory_serve
from melete.cli.memory_store import StoreOptions, store_options
from melete.cli.memory_text import clean, clean_lines, describe_time, print_table, read_content, read_envelope, tell
from melete.cli.memory_witnesses import erase_witnesses
from melete.cli.output import emit
from melete.cli.stores import WitnessOptions, witness_options
from melete.wire.envelope import Envelope, MemoryType, Operation, Result

if TYPE_CHECKING:
    from melete.wire.audit import AuditHead

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(
    epilog="Everything after -- is taken as it is: melete memory remember --type working -- '-5 degrees outside'."
)
def command() -> None:
    """Remember, recall and forget; approve and audit.

    Without --store, one file in the user's data folder keeps it all; MELETE_MEMORY_STORE names another, or a database.
    """


memory_packs.add_to(command)
memory_record.add_to(command)
memory_serve.add_to(command)


def scope_options(command: Command) -> Command:
    """Give a command --type and --agent."""
    kinds = click.Choice([kind.value for kind in MemoryType])
    command = click.option("--agent", "agent_id", metavar="ID", help="Whose memory; the agent 'default' if omitted.")(
        command
    )
    return click.option("--type", "memory_type", type=kinds, required=True, help="The type of memory.")(command)


tag_option = click.option("--tag", "tags", multiple=True, metavar="T", help="A tag; may be given several times.")


def _verify_writer(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    from melete.wire.approval import verify_name

    return None if name is None else verify_name(name, "--as")


writer_option = click.option(
    "--as",
    "writer",
    metavar="NAME",
    callback=_verify_writer,
    help="Who writes, if not the agent; who writes does not approve.",
)
name_option = click.option("--as", "name", metavar="NAME", required=True, help="Who decides.")


# The five operations


@command.command("remember")
@scope_options
@tag_option
@click.option("--metadata", metavar="JSON", help="A JSON object that is kept beside it.")
@click.option("--ttl", "ttl_seconds", type=int, metavar="SECONDS", help="Forget it after so many seconds.")
@writer_option
@click.argument("content")
@store_options
def remember(
    content: str, metadata: str | None, writer: str | None, where: StoreOptions, as_json: bool, **members: Any
) -> None:
    """Keep CONTENT, or what standard input holds if it is "-", as it is."""
    given = None if metadata is None else _load_metadata(metadata)
    text = read_content() if content == "-" else content
    envelope = Envelope(Operation.REMEMBER, content=text, metadata=given, **members)
    with where.open(create=True) as store:
        result = store.execute(envelope, writer)
    _finish(result, as_json=as_json)


@command.command("recall")
@scope_options
@tag_option
@click.option("--top-k", type=int, metavar="N", help="How many at most; 5 if omitted, 1000 at most.")
@click.argument("query")
@store_options
def recall(where: StoreOptions, as_json: bool, **members: Any) -> None:
    """Find the memories that QUERY means, the best first. Tags narrow it: all of them must match."""
    envelope = Envelope(Operation.RECALL, **members)
    with where.open() as store:
        result = store.execute(envelope)
    if as_json:
        _print_json(result.to_json())
    elif result.hits:
        rows = [(hit.id, f"{hit.score:.3f}", clean(hit.content), clean(", ".join(hit.tags))) for hit in result.hits]
        print_table(("id", "score", "content", "tags"), rows)
    else:
        tell("nothing found")


@command.command("forget")
@scope_options
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@store_options
@witness_options
def forget(where: StoreOptions, witnesses: WitnessOptions, as_json: bool, **members: Any) -> None:
    """Erase memories for good: all that are named, or none.

    Of a store that is on record, the witnesses of their contents are erased, too, if the witness store's key is named.
    """
    envelope = Envelope(Operation.FORGET, **members)
    with where.open() as store:
        result = store.execute(envelope)
        result = result.add_detail(erase_witnesses(store, witnesses))
    _finish(result, as_json=as_json)


@command.command("merge")
@scope_options
@tag_option
@writer_option
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@store_options
def merge(writer: str | None, where: StoreOptions, as_json: bool, **members: Any) -> None:
    """Make one memory of several, in the order given: their contents in lines, their tags united."""
    envelope = Envelope(Operation.MERGE, **members)
    with where.open() as store:
        result = store.execute(envelope, writer)
    _finish(result, as_json=as_json)


@command.command("expire")
@scope_options
@click.option("--ttl", "ttl_seconds", type=int, metavar="SECONDS", help="In so many seconds; at once if omitted.")
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@store_options
def expire(where: StoreOptions, as_json: bool, **members: Any) -> None:
    """Let memories end: all that are named, or none. They are not recalled from then on; a sweep erases them."""
    envelope = Envelope(Operation.EXPIRE, **members)
    with where.open() as store:
        result = store.execute(envelope)
    _finish(result, as_json=as_json)


@command.command("execute")
@writer_option
@store_options
@witness_options
def execute(
    writer: str | None,
    where: StoreOptions,
    witnesses: WitnessOptions,
    as_json: bool,  # noqa: ARG001 - it always is
) -> None:
    """Do what an envelope on standard input asks, a JSON object, and print the result envelope.

    What is forgotten leaves the witnesses as `melete memory forget` says.
    """
    envelope = Envelope.from_json(read_envelope())
    with where.open(create=envelope.op is Operation.REMEMBER) as store:
        result = store.execute(envelope, writer)
        if envelope.op is Operation.FORGET:
            result = result.add_detail(erase_witnesses(store, witnesses))
    _finish(result, as_json=True)


# Looking


@command.command("show")
@click.argument("memory_id", metavar="ID")
@store_options
def show(memory_id: str, where: StoreOptions, as_json: bool) -> None:
    """Show one memory whole, whatever its state."""
    with where.open() as store:
        memory = store.show(memory_id)
    if as_json:
        _print_json(memory.to_json())
        return
    lines = {
        "id": memory.id,
        "type": memory.memory_type.value,
        "agent": clean(memory.agent_id),
        "state": memory.state.value,
        "tags": ", ".join(map(clean, memory.tags)),
        "metadata": "" if memory.metadata is None else clean(json.dumps(memory.metadata, ensure_ascii=False), 2_000),
        "created": describe_time(memory.created_at),
        "expires": "" if memory.expires_at is None else describe_time(memory.expires_at),
        "merged into": memory.merged_into or "",
        "audit": f"made by {memory.number}, last touched by {memory.audited}",
    }
    for name, value in lines.items():
        tell(f"{name.ljust(11)}  {value or '-'}")
    tell("")
    for line in clean_lines(memory.content):
        tell(line)


@command.command("stats")
@store_options
def stats(where: StoreOptions, as_json: bool) -> None:
    """Count what can be recalled, by type, and what waits for approval."""
    from melete.cli.memory_review import list_pending

    with where.open() as store, store.snapshot():
        counts: dict[str, Any] = {kind.value: store.count(memory_type=kind) for kind in MemoryType}
        counts["pending"] = sum(1 for _ in list_pending(store))
        head, label = store.audit_head(), store.label
    emit({"store": label, **counts, "auditNumber": head.number, "auditHash": head.hash}, as_json=as_json)


@command.command("sweep")
@store_options
@witness_options
def sweep(where: StoreOptions, witnesses: WitnessOptions, as_json: bool) -> None:
    """Erase what has expired, and its witnesses as `forget` does."""
    with where.open() as store:
        swept = store.sweep()
        said = erase_witnesses(store, witnesses)
    emit({"swept": swept, **({"detail": said} if said else {})}, as_json=as_json)


@command.command("scrub")
@store_options
def scrub(where: StoreOptions, as_json: bool) -> None:
    """Rewrite the file, so that no bytes of what was forgotten are left in it. Exit code 3 if others are in the way."""
    with where.open() as store:
        done = store.scrub()
    emit({"scrubbed": done}, as_json=as_json)
    if not done:
        raise click.exceptions.Exit(3)


# Approval


@command.command("pending")
@click.option("--agent", "agent_id", metavar="ID", help="Of this agent only.")
@store_options
def pending(agent_id: str | None, where: StoreOptions, as_json: bool) -> None:
    """List the writes that wait for approval, with what they change."""
    from melete.cli.memory_review import describe_diff, describe_metadata, list_pending

    with where.open() as store:
        writes = list(list_pending(store, agent_id))
    if as_json:
        _print_json({"pending": [write.to_json() for write in writes]})
    elif writes:
        rows = []
        for write in writes:
            lines = list(describe_diff(write, 400)) or ["its sources have changed: it can only be rejected"]
            more = [f"... ({len(lines) - 12} lines more)"] if len(lines) > 12 else []
            tags = [f"tags {', '.join(map(clean, write.tags))}"] if write.tags else []
            if write.metadata is not None:
                tags.append(f"metadata {describe_metadata(write, 400)}")
            what = f"{write.operation.value}, {write.type.value}"
            rows.append((write.id, what, clean(write.agent), clean(write.writer), "\n".join(lines[:12] + more + tags)))
        print_table(("id", "write", "agent", "writer", "change"), rows)
    else:
        tell("nothing waits")


@command.command("approve")
@name_option
@click.argument("memory_id", metavar="ID")
@store_options
def approve(memory_id: str, name: str, where: StoreOptions, as_json: bool) -> None:
    """Let the write in that waits under ID. Nobody approves what is their own."""
    with where.open() as store:
        result = store.approve(memory_id, name)
    _finish(result, as_json=as_json)


@command.command("reject")
@name_option
@click.argument("memory_id", metavar="ID")
@store_options
def reject(memory_id: str, name: str, where: StoreOptions, as_json: bool) -> None:
    """Refuse the write that waits under ID, and erase it. Exit code 0 once it is."""
    with where.open() as store:
        result = store.reject(memory_id, name)
    _tell_result(result, as_json=as_json)


@command.command("review")
@name_option
@click.option("--agent", "agent_id", metavar="ID", help="Of this agent only.")
@store_options
def review(name: str, agent_id: str | None, where: StoreOptions, as_json: bool) -> None:
    """Go through the writes that wait, and answer y, n or skip to each."""
    from melete.cli import memory_review

    with where.open() as store:
        found = memory_review.review(store, name, agent_id)
    counts = {"approved": found.approved, "rejected": found.rejected, "left": found.left, "refused": found.refused}
    emit(counts, as_json=as_json)
    if found.refused:
        raise click.exceptions.Exit(1)


@command.group("names")
def names() -> None:
    """The people and programs that decide about writes; whoever decides is added."""


@names.command("add")
@click.argument("name")
@store_options
def add_name(name: str, where: StoreOptions, as_json: bool) -> None:
    """Keep NAME, as it is written now: case and space do not make another one later."""
    with where.open(create=True) as store:
        known = store.register_name(name)
    emit({"name": known if as_json else clean(known)}, as_json=as_json)


@names.command("list")
@store_options
def list_names(where: StoreOptions, as_json: bool) -> None:
    """List the names, one a line."""
    with where.open() as store:
        known = store.names()
    if as_json:
        _print_json({"names": list(known)})
        return
    for name in known:
        tell(clean(name))


# Audit


@command.group("audit")
def audit() -> None:
    """The log of every write, approval and rejection, which holds no content."""


@audit.command("verify")
@click.option(
    "--recorded",
    metavar="NUMBER:HASH",
    help="A head that was noted elsewhere, as 'audit head' prints it: the log must still hold it.",
)
@store_options
def verify_audit(recorded: str | None, where: StoreOptions, as_json: bool) -> None:
    """Check that log, memories and index agree. Exit code 1 at the first row that was altered, is missing or put in."""
    expected = None if recorded is None else _parse_head(recorded)
    with where.open() as store:
        head = store.verify_audit(expected)
    emit({"number": head.number, "hash": head.hash, "head": f"{head.number}:{head.hash}"}, as_json=as_json)


@audit.command("head")
@store_options
def show_head(where: StoreOptions, as_json: bool) -> None:
    """Print the newest entry's number and hash, to be noted where whoever writes here cannot write."""
    with where.open() as store:
        head = store.audit_head()
    emit({"number": head.number, "hash": head.hash, "head": f"{head.number}:{head.hash}"}, as_json=as_json)


def _parse_head(text: str) -> AuditHead:
    from melete.errors import InvalidInput
    from melete.primitives import Bytes32, parse_sequence
    from melete.wire.audit import EMPTY, AuditHead

    first, _, second = text.partition(":")
    number, digest = parse_sequence(first, "--recorded, its number"), Bytes32(second, "--recorded, its hash")
    if number == 0 and digest != EMPTY.hash:
        raise InvalidInput("--recorded, its hash", digest, f"{EMPTY.hash} before the first entry, at number 0")
    return AuditHead(number, digest)


# Results


def _finish(result: Result, *, as_json: bool) -> None:
    """Print a result, and end with 1 if it says that nothing was done."""
    _tell_result(result, as_json=as_json)
    if not result.ok:
        raise click.exceptions.Exit(1)


def _tell_result(result: Result, *, as_json: bool) -> None:
    if as_json:
        _print_json(result.to_json())
        return
    decided = {True: "approved", False: "not approved", None: ""}[result.approved]
    said = clean(result.detail) or decided
    head = {Operation.FORGET: "forgotten", Operation.EXPIRE: "expiring"}.get(result.op, "memory")
    for memory_id in result.ids:
        tell(f"{head.ljust(9)}  {memory_id}{f'  ({said})' if said else ''}")
    if said and not result.ids:
        tell(said)


def _print_json(members: dict[str, Any]) -> None:
    click.echo(json.dumps(members))


def _load_metadata(text: str) -> Any:
    from melete.canonical import load_json
    from melete.errors import InvalidJson, show
    from melete.primitives import NOT_SHOWN
    from melete.wire.errors import EnvelopeError

    try:
        return load_json(text)
    except InvalidJson as error:
        rule = f"{error.rule.partition(';')[0]} (at {show(error.pointer)})"
        raise EnvelopeError("metadata", NOT_SHOWN, rule) from None
