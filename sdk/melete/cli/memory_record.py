"""`melete memory record`, `prove`, `rebuild`, `check`, `restore` and `attest`: memory on record in a space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.keys import signer_options
from melete.cli.memory_store import StoreOptions, store_options
from melete.cli.output import emit
from melete.cli.settings import Settings, json_option, registry_options
from melete.cli.stores import WitnessOptions, data_folder, outbox_option, witness_options
from melete.primitives import Address, Bytes32, parse_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from melete.chain.outbox import Outbox
    from melete.chain.submitter import Progress
    from melete.errors import CouldNotTell
    from melete.memory.events import MemoryEvent
    from melete.memory.forensics import Step
    from melete.memory.history import Transition
    from melete.memory.registry import MemoryRegistry
    from melete.memory.witness_store import WitnessStore
    from melete.signing import LocalSigner
    from melete.wire.recording.evidence import Evidence, Link
    from melete.wire.recording.recorder import Flushed, Recorder
    from melete.wire.store import MemoryStore

DOES_NOT_HOLD, COULD_NOT_TELL = 1, 3
#: Ids that are named one by one for people; --json names them all.
MOST_NAMED: Final = 50
#: Seconds until sending is tried again after a failure: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

space_option = click.option(
    "--space", envvar="MELETE_MEMORY_SPACE", required=True, help="The space that the memory is on record in."
)
first_block_option = click.option(
    "--from-block", type=click.IntRange(0), help="Where to start, in place of the registry's recorded block."
)


# Recording


@click.command("record")
@click.option(
    "--space", envvar="MELETE_MEMORY_SPACE", help="The space; not needed for a store that is on record already."
)
@click.option("--batch", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Audit rows in a batch.")
@click.option("--until", type=click.Choice(["queued", "mined", "done"]), default="mined", show_default=True)
@click.option("--retry", is_flag=True, help="First put what was refused, or is in conflict, on the current head.")
@click.option("--pass-unopened", is_flag=True, help="What no witness at hand opens in the space is somebody else's.")
@click.option(
    "--follow", type=click.FloatRange(0), metavar="SECONDS", help="Go on: record what fills a batch, or waits."
)
@store_options
@outbox_option
@witness_options
@signer_options
@registry_options
def record(
    space: str | None,
    batch: int,
    until: str,
    retry: bool,
    pass_unopened: bool,
    follow: float | None,
    where: StoreOptions,
    outbox: Path,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,
    settings: Settings,
    as_json: bool,
) -> None:
    """Put on record what the store has written since: an operation for each write, a transition for each batch.

    The contents stay here, among the witnesses; those of what was forgotten are erased. The key given signs for the
    space's authorizer. Killed at any point, ask again: nothing is recorded twice. With --follow it goes on until it is
    interrupted, and records whatever fills a batch or has waited for so many seconds.
    """
    from melete.chain.outbox import Outbox
    from melete.wire.recording.recorder import Recorder

    registry = settings.connect()
    with where.open() as store, Outbox(outbox) as opened, witnesses.open() as kept:
        space_id = _space_of(store, space)
        recorder = Recorder(store, opened, registry, kept, space_id, signer, most=batch, pass_unopened=pass_unopened)
        retried = recorder.retry() if retry else 0
        progress = _send(registry, opened, payer, until) if retried else None
        if follow is not None:
            _follow(recorder, follow, lambda: _send(registry, opened, payer, until), as_json=as_json)
            return
        flushed = recorder.flush()
        progress = _send(registry, opened, payer, until) or progress
        head = store.audit_head()
    found = {"spaceId": space_id, **_describe(flushed), "retried": retried, "auditNumber": head.number}
    if progress is not None:
        found["stopped"] = progress.stopped
    emit(found, as_json=as_json)
    if progress is not None and progress.stopped:
        raise click.exceptions.Exit(DOES_NOT_HOLD)
    if not flushed.is_scrubbed:
        raise click.exceptions.Exit(COULD_NOT_TELL)


def _space_of(store: MemoryStore, given: str | None) -> Bytes32:
    from melete.wire.recording.journal import core_of, load_newest

    if given is not None:
        return Bytes32(given, "--space")
    with core_of(store).database.reading() as connection:
        newest = load_newest(connection)
    if newest is None:
        raise click.UsageError("the store is not on record yet: give --space, or set MELETE_MEMORY_SPACE.")
    return newest.space_id


def _send(registry: MemoryRegistry, outbox: Outbox, payer: LocalSigner, until: str) -> Progress | None:
    from melete.chain.outbox import State
    from melete.chain.submitter import Submitter
    from melete.chain.transactions import LocalSender
    from melete.cli.sending import rules

    if until == "queued":
        return None
    return Submitter(registry.w3, outbox, LocalSender(payer), rules()).run(until=State(until))


class Sending:
    """Sends what is due; after a failure not before a while, which doubles each time. Each new reason is told once."""

    def __init__(self, send: Callable[[], object], tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._send, self._tell, self._clock = send, tell, clock
        self._told: set[str] = set()
        self._pause = self._not_before = 0.0
        self.is_due = True

    def run(self) -> None:
        """Send if something is due, and it is time."""
        from melete.errors import CouldNotTell

        if not self.is_due or self._clock() < self._not_before:
            return
        try:
            self._send()
        except CouldNotTell as error:
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._not_before = self._clock() + self._pause
            self.tell_failure(error)
        else:
            self.is_due = False
            self._pause = self._not_before = 0.0
            self._told.clear()

    def tell_failure(self, error: CouldNotTell) -> None:
        """Tell a reason unless it was told since something was sent."""
        if str(error) not in self._told:
            self._told.add(str(error))
            self._tell(str(error))


def _follow(recorder: Recorder, seconds: float, send: Callable[[], Progress | None], *, as_json: bool) -> None:
    """Record and send for good. What a node that is gone was to be told waits until it is back."""
    import time

    from melete.wire.recording.recorder import keep_recording

    sending = Sending(send, lambda told: click.echo(f"melete: {told}", err=True), time.monotonic)

    def tell(flushed: Flushed) -> None:
        sending.is_due = True
        emit(_describe(flushed), as_json=as_json)

    def wait(pause: float) -> bool:
        sending.run()
        time.sleep(pause)
        return False

    keep_recording(recorder, seconds, wait, tell, sending.tell_failure)


def _describe(flushed: Flushed) -> dict[str, Any]:
    return {
        "batches": flushed.batches,
        "recorded": flushed.rows,
        "takenOver": flushed.taken_over,
        "erased": flushed.erased,
        "scrubbed": flushed.is_scrubbed,
    }


# Proving


@click.command("prove")
@click.argument("memory_id", metavar="ID")
@click.option("--offline", is_flag=True, help="Ask no node whether the registry holds what was recorded.")
@first_block_option
@store_options
@witness_options
@registry_options
def prove(
    memory_id: str,
    offline: bool,
    from_block: int | None,
    where: StoreOptions,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Show how memory ID leads from its row to the state root of its space, or that it was forgotten.

    Exit code 1 at the first thing that does not hold, 3 while a part of it is not recorded, or not in the registry yet.
    Nothing that is printed is content or a secret.
    """
    from melete.cli.deployed import first_block
    from melete.wire.recording import evidence as evidences

    registry = None if offline else settings.connect()
    start = 0 if registry is None else first_block(settings, registry, from_block)
    with where.open() as store, _open_to_read(witnesses) as kept:
        evidence = evidences.prove(store, kept, memory_id, registry, start)
    if as_json:
        click.echo(json.dumps(evidence.to_json()))
    else:
        emit(_lines_of(evidence), as_json=False)
    standing = evidences.Standing
    reached = evidence.standing in (standing.COMMITTED, standing.RECORDED)
    if not reached or (evidence.is_forgotten and evidence.kept is evidences.Kept.OPENED):
        raise click.exceptions.Exit(COULD_NOT_TELL)


def _lines_of(evidence: Evidence) -> dict[str, Any]:
    found: dict[str, Any] = {"memory": evidence.id, "state": evidence.state, "content": evidence.kept.value}
    found.update(_link_lines("", evidence.made))
    if evidence.is_forgotten:
        if evidence.ended is None:
            found["forgetting"] = "waits to be recorded"
        else:
            found.update(_link_lines("end ", evidence.ended))
    if evidence.space is not None:
        found["space"] = evidence.space.space_id
        found["registry"] = f"{evidence.space.registry} of chain {evidence.space.chain_id}"
    if evidence.registry_head is not None:
        found["head"] = f"sequence {evidence.registry_head.sequence}, {evidence.registry_head.state_root}"
    return found


def _link_lines(prefix: str, link: Link) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{prefix}audit row": f"{link.entry.number}, {link.entry.action.value}, {link.hash}",
        f"{prefix}standing": link.standing.value,
    }
    if link.batch is not None and link.included is not None:
        proof = link.included.proof
        found[f"{prefix}operation"] = f"{proof.index} of {proof.count}, {link.included.leaf}"
        found[f"{prefix}siblings"] = list(proof.siblings)
        found[f"{prefix}batch"] = f"sequence {link.sequence}, root {link.batch.root}"
    if link.anchor is not None:
        found[f"{prefix}delta"] = link.anchor.delta.delta_commitment
        found[f"{prefix}transition"] = link.anchor.transition_id
        found[f"{prefix}state root"] = link.anchor.state_root
        reference = link.anchor.reference
        if reference is not None:
            found[f"{prefix}block"] = f"{reference.block_number}, {reference.block_hash}"
    return found


# Rebuilding and restoring


@click.command("rebuild")
@space_option
@click.option("--at", "sequence", metavar="N", help="As it was after transition N; after the last if omitted.")
@first_block_option
@store_options
@witness_options
@registry_options
def rebuild(
    space: str,
    sequence: str | None,
    from_block: int | None,
    where: StoreOptions,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Make an empty store what a space records: from its verified history, and the witnesses that open it.

    What was forgotten since is named, and never brought back. Exit code 3 where something could not be opened: it is
    named, too. A batch that cannot be opened at all makes no store.

    What was forgotten, but is not on record as that yet, can be told by its erased witness only. Where a witness was
    kept, because its store's key was not named, it comes back: have `melete memory record` run before.
    """
    from melete.wire.recording.preflight import NOT_RECORDED_HERE
    from melete.wire.recording.rebuild import rebuild as rebuild_store

    space_id = Bytes32(space, "--space")
    at = None if sequence is None else parse_sequence(sequence, "--at")
    registry = settings.connect()
    transitions = read_history(settings, registry, space_id, from_block)
    with _open_to_read(witnesses) as kept, where.open_new() as store:
        found = rebuild_store(store, kept, registry.domain, space_id, transitions, at=at)
        label = store.label
    emit(
        {
            "store": label,
            "sequence": str(found.sequence),
            "headSequence": str(found.space.sequence),
            "stateRoot": found.space.state_root,
            "auditNumber": found.head.number,
            "auditHash": found.head.hash,
            "batches": found.batches,
            "memories": found.memories,
            "forgottenSince": _named([f"{one.id} ({one.why})" for one in found.forgotten], as_json=as_json),
            "notOpened": _named([one.id for one in found.unopened], as_json=as_json),
            "unread": [str(number) for number in found.unread],
            "waiting": _named(list(found.waiting), as_json=as_json),
            **({} if found.is_newest else {"note": NOT_RECORDED_HERE}),
        },
        as_json=as_json,
    )
    if not found.is_whole:
        raise click.exceptions.Exit(COULD_NOT_TELL)


@click.command("check")
@click.argument("backup")
@space_option
@first_block_option
@witness_options
@registry_options
@json_option
def check(
    backup: str, space: str, from_block: int | None, witnesses: WitnessOptions, settings: Settings, as_json: bool
) -> None:
    """Say which state of its space BACKUP is: the canonical head, an earlier one, none that is known, or another.

    Exit code 0 for the first two, 1 for the others, 3 if it could not be told. BACKUP stays as it is: of a file, a copy
    is judged, in a folder of its own that is removed afterwards; what postgresql://USER@HOST/DATABASE names is judged
    on the server, as it is at one moment.
    """
    import tempfile

    from melete.wire.engines import is_on_server
    from melete.wire.recording.preflight import Verdict, open_to_judge, parse_file
    from melete.wire.recording.preflight import check as check_store

    space_id = Bytes32(space, "--space")
    source = backup if is_on_server(backup) else parse_file(backup, "BACKUP")
    registry = settings.connect()
    transitions = read_history(settings, registry, space_id, from_block)
    with (
        tempfile.TemporaryDirectory(prefix="melete-") as folder,
        _open_to_read(witnesses) as kept,
        open_to_judge(source, Path(folder) / "memories.db") as store,
    ):
        found = check_store(store, kept, space_id, transitions)
        label = str(source) if isinstance(source, Path) else store.label
    emit({"backup": label, **found.to_json()}, as_json=as_json)
    if found.verdict is Verdict.UNTOLD:
        raise click.exceptions.Exit(COULD_NOT_TELL)
    if not found.verdict.is_safe:
        raise click.exceptions.Exit(DOES_NOT_HOLD)


@click.command("restore")
@click.argument("backup")
@space_option
@click.option("--store", envvar="MELETE_MEMORY_STORE", help="The file to make; by default the one in the data folder.")
@click.option("--force", is_flag=True, help="Restore it whatever state it is. The receipt will say so.")
@first_block_option
@witness_options
@registry_options
@json_option
def restore(
    backup: str,
    space: str,
    store: str | None,
    force: bool,
    from_block: int | None,
    witnesses: WitnessOptions,
    settings: Settings,
    as_json: bool,
) -> None:
    """Make a new store of BACKUP, if `check` finds it to be the canonical head or a known earlier state.

    What the space records as forgotten since is taken out first. A receipt is left beside the store. Both are SQLite
    files; what a server keeps is restored by its own tools, then judged by `check`, or made anew by `rebuild`.
    """
    from melete.wire.recording.preflight import parse_file
    from melete.wire.recording.restoring import restore as restore_store

    space_id = Bytes32(space, "--space")
    source = parse_file(backup, "BACKUP")
    target = data_folder() / "memories.db" if store is None else parse_file(store, "--store")
    registry = settings.connect()
    transitions = read_history(settings, registry, space_id, from_block)
    with _open_to_read(witnesses) as kept:
        found = restore_store(source, target, kept, registry.domain, space_id, transitions, force=force)
    preflight = found.preflight
    emit(
        {
            "store": str(target),
            "receipt": str(found.receipt),
            **preflight.to_json(),
            "forgottenSince": _named(list(found.forgotten), as_json=as_json),
            **preflight.to_note(),
        },
        as_json=as_json,
    )
    if preflight.unread:
        raise click.exceptions.Exit(COULD_NOT_TELL)


# Attesting


@click.command("attest")
@click.argument("memory_id", metavar="ID")
@click.option("--contract", required=True, help="The DeletionAttestation contract over the same registry.")
@first_block_option
@store_options
@witness_options
@signer_options
@registry_options
def attest(
    memory_id: str,
    contract: str,
    from_block: int | None,
    where: StoreOptions,
    witnesses: WitnessOptions,
    signer: LocalSigner,
    payer: LocalSigner,  # noqa: ARG001 - the controller calls by itself; nobody can pay for it
    settings: Settings,
    as_json: bool,
) -> None:
    """State on chain that memory ID was deleted, and all that was forgotten in the same batch. Once, and for good.

    The key given is the controller's of the space, and it pays. What is stated is that account's word: it proves no
    deletion, and never that no copy is left. The evidence stays here; a commitment to it goes out.
    """
    from melete.chain.transactions import LocalSender
    from melete.cli.deployed import first_block
    from melete.memory.extensions.deletion import DeletionAttestation
    from melete.wire.recording.attesting import attest as attest_deletion

    address = Address(contract, "--contract")
    registry = settings.connect()
    attestation = DeletionAttestation(registry, address, sender=LocalSender(signer))
    with where.open() as store, witnesses.open() as kept:
        event = attest_deletion(store, kept, attestation, memory_id, first_block(settings, registry, from_block))
    emit(
        {
            "spaceId": event.space_id,
            "transitionId": event.transition_id,
            "evidenceCommitment": event.evidence_commitment,
            "controller": event.controller,
        },
        as_json=as_json,
    )


def add_to(group: click.Group) -> None:
    """Give a group these commands."""
    for each in (record, prove, rebuild, check, restore, attest):
        group.add_command(each)


# The space's history


class _Collector:
    """Keeps the transitions of what a history reader tells."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, Transition]] = []

    def take_back(self, block_number: int) -> None:
        while self._kept and self._kept[-1][0] > block_number:
            self._kept.pop()

    def prepare(self, events: Sequence[MemoryEvent]) -> None:
        pass

    def tell(self, step: Step) -> str:
        from melete.memory.events import TransitionCommitted

        if isinstance(step.event, TransitionCommitted):
            self._kept.append((step.event.reference.block_number, step.event.transition))
        return ""

    @property
    def transitions(self) -> list[Transition]:
        return [transition for _, transition in self._kept]


def read_history(
    settings: Settings, registry: MemoryRegistry, space_id: Bytes32, from_block: int | None
) -> list[Transition]:
    """Return all transitions of a space, verified, and anchored in the registry's own state.

    Errors: `BrokenHistory`, `UnknownSpace`, `ChainReorganized`; the node's.
    """
    from melete.cli.deployed import first_block
    from melete.cli.history_reader import ATTEMPTS, HistoryReader, late_start
    from melete.errors import BrokenHistory, ChainReorganized

    reader = HistoryReader(registry, space_id, first_block(settings, registry, from_block), "latest", None)
    collector = _Collector()
    try:
        for _ in range(ATTEMPTS):
            for _block in reader.read(collector):
                pass
            if reader.anchor() is not None:
                return collector.transitions
    except BrokenHistory as error:
        raise late_start(error, from_block) from None
    raise ChainReorganized(reader.position.number)


# Private


def _open_to_read(witnesses: WitnessOptions) -> WitnessStore:
    from melete.memory.witness_store import WitnessStore

    return WitnessStore.open(witnesses.path, witnesses.load_key(), read_only=True)


def _named(names: list[str], *, as_json: bool) -> list[str]:
    if as_json or len(names) <= MOST_NAMED:
        return names
    return [*names[:MOST_NAMED], f"and {len(names) - MOST_NAMED} more, which --json names"]
