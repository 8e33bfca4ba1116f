"""What the commands about cycles share: where the cycle is described, how far to go, and how a result is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from melete.cli.output import emit
from melete.cli.sending import SendingProgress
from melete.cli.stores import data_folder
from melete.cli.subject_views import clean_text
from melete.primitives import Address

if TYPE_CHECKING:
    from melete.chain.submitter import Progress
    from melete.cli.settings import Settings
    from melete.meditation.outbox import MeditationOutbox
    from melete.meditation.registry import MeditationRegistry
    from melete.meditation.runner.configuration import CycleConfiguration
    from melete.meditation.runner.registering import CycleResult
    from melete.meditation.runner.reports import CycleState
    from melete.signing import LocalSigner

Command = TypeVar("Command", bound=Callable[..., Any])

QUEUED: Final = "queued"
#: Chains of development nodes: whoever runs one decides what it holds, and blocks may come only with transactions.
LOCAL_CHAINS: Final = frozenset((1337, 31337))


@dataclass(frozen=True, slots=True)
class Sending:
    """How far a report is to be brought, and what counts as done; None is as many blocks as the chain calls for."""

    until: str
    confirmations: int | str | None

    def send(self, waiting: MeditationOutbox, subject: Address, signer: LocalSigner, *, quiet: bool) -> None:
        """Send what waits for a subject, and nothing else, as far as was asked.

        Errors: those of `Submitter.run`.
        """
        from melete.chain.outbox import State
        from melete.chain.submitter import Submitter
        from melete.chain.transactions import LocalSender
        from melete.cli.sending import rules
        from melete.errors import ContractError

        if self.until == QUEUED:
            return
        registry, until = waiting.registry, State(self.until)
        depth = choose_depth(self.confirmations, registry.chain_id)
        submitter = Submitter(
            registry.w3,
            waiting.outbox,
            LocalSender(signer),
            rules(),
            confirmations=depth,
            only=frozenset({(registry.address, bytes(subject))}),
        )
        told = Waiting(waiting, subject, depth if until is State.DONE else 0, quiet=quiet)
        try:
            submitter.run(until=until, progress=told)
        except ContractError:
            click.echo("the report waits; put right what is refused, and `melete cycle resume` goes on", err=True)
            raise
        finally:
            told.end()


def choose_depth(confirmations: int | str | None, chain_id: int) -> int | str:
    """Return how many blocks on top make a report done, or the tag that does."""
    from melete.chain.submitter import CONFIRMATIONS

    if confirmations is not None:
        return confirmations
    return 0 if chain_id in LOCAL_CHAINS else CONFIRMATIONS


class Waiting:
    """Says on standard error how far the sending has come, and once what is waited for."""

    def __init__(self, waiting: MeditationOutbox, subject: Address, depth: int | str, *, quiet: bool) -> None:
        self._waiting, self._subject, self._depth, self._quiet = waiting, subject, depth, quiet
        self._is_told = not depth
        self._line = SendingProgress(quiet=quiet)

    def __call__(self, progress: Progress) -> None:
        if progress.mined and not self._is_told:
            self._is_told = True
            self._tell()
        self._line.tell(progress)

    def end(self) -> None:
        """Leave the line that progress is told on."""
        self._line.clear()

    def _tell(self) -> None:
        from melete.chain.outbox import State

        waiting = self._waiting.waiting(self._subject)
        blocks = [item.block_number for item in waiting if item.state is State.MINED]
        what = f"{self._depth} more" if isinstance(self._depth, int) else f"it to be {self._depth}"
        where = f"in block {blocks[0]}" if blocks else "in a block"
        words = f"{where}, waiting for {what}; this may be stopped, and `melete cycle resume` goes on"
        click.echo(f"\r{words}" if sys.stderr.isatty() else words, err=True)


def cycle_option(command: Command) -> Command:
    """Give a command the option --cycle, handed on as the path `cycle`, and the one that names the memory registry.

    It stands below `subject_options`, whose settings it adds to.
    """

    @click.option("--cycle", envvar="MELETE_CYCLE", default="cycle.toml", show_default=True, help="The cycle's file.")
    @click.option("--memory-registry", envvar="MELETE_REGISTRY", help="The registry of the memory space that it names.")
    @wraps(command)
    def with_cycle(*args: Any, cycle: str, memory_registry: str | None, settings: Settings, **options: Any) -> Any:
        if memory_registry is not None:
            settings = replace(settings, registry=memory_registry)
        return command(*args, cycle=Path(cycle), settings=settings, **options)

    return with_cycle  # type: ignore[return-value]


def sending_options(command: Command) -> Command:
    """Give a command the options that say how far to bring a report, handed on as `sending`."""

    @click.option(
        "--until",
        type=click.Choice([QUEUED, "mined", "done"]),
        default="done",
        show_default=True,
        help="Only put it into the outbox; or send it, and wait for its block, or until that is confirmed.",
    )
    @click.option(
        "--confirmations", type=click.IntRange(0), help="Blocks on top until it is done; 12, or 0 on a local chain."
    )
    @click.option("--finalized", is_flag=True, help="Until the chain itself calls the block final, instead.")
    @wraps(command)
    def with_sending(*args: Any, until: str, confirmations: int | None, finalized: bool, **options: Any) -> Any:
        if finalized and confirmations is not None:
            raise click.UsageError("--finalized and --confirmations contradict each other; give one of them.")
        return command(*args, sending=Sending(until, "finalized" if finalized else confirmations), **options)

    return with_sending  # type: ignore[return-value]


def journal_path(configuration: CycleConfiguration, registry: MeditationRegistry, subject: Address) -> Path:
    """Return the file of what is not registered yet: the configured one, or one of the subject's own."""
    if configuration.journal is not None:
        return configuration.journal
    name = f"{registry.chain_id}-{registry.address}-{subject}.jsonl".lower()
    return data_folder() / "cycles" / name


def find_journals(subject: Address, registry: str | None) -> list[Path]:
    """Return the journals of a subject's own that there are in the data folder, of one registry if it is named."""
    named = "*" if registry is None else str(Address(registry, "registry")).lower()
    return sorted((data_folder() / "cycles").glob(f"*-{named}-{str(subject).lower()}.jsonl"))


def tell(result: CycleResult, *, as_json: bool) -> None:
    """Print what became of a cycle, and end with exit code 1 if it is not registered as completed, and will not be."""
    found = to_json(result)
    if as_json:
        click.echo(json.dumps(found))
    else:
        found["layers"] = [_line(entry) for entry in found["layers"]]
        found["changedSince"] = [f"layer {one['layer']} in version {one['version']}" for one in found["changedSince"]]
        if found["reason"]:
            found["reason"] = clean_text(found["reason"])
        emit({name: value for name, value in found.items() if value not in (None, "", [], False)}, as_json=False)
    if not holds(result):
        raise click.exceptions.Exit(1)


def holds(result: CycleResult) -> bool:
    """Return whether all went as it should: nothing to do, on its way, or registered with all layers completed."""
    from melete.meditation.cycle import Outcome

    state: CycleState = result.state
    if state in ("conflict", "refused"):
        return False
    return state != "registered" or result.report is None or result.report.outcome == Outcome.COMPLETED


def to_json(result: CycleResult) -> dict[str, Any]:
    """Return a result as JSON."""
    from melete.meditation.cycle import Outcome

    record: Any = result.record or {"layers": []}
    report, item, event = result.report, result.item, result.event
    return {
        "state": result.state.value,
        "reason": result.reason or None,
        "wasCutOff": result.was_cut_off,
        "outcome": None if report is None else Outcome(report.outcome).name,
        "seq": None if event is None else str(event.seq),
        "stateVersion": None if event is None else str(event.new_version),
        "baseVersion": None if report is None else str(report.base_version),
        "recordHash": None if report is None else str(report.record_hash),
        "sent": None if item is None else item.state.value,
        "transactionHash": None if item is None or item.transaction_hash is None else str(item.transaction_hash),
        "layers": [
            {
                "layer": entry["layer"],
                "completed": entry["completed"],
                "decision": entry["decision"],
                "changes": len(entry["changes"]),
                "failedChecks": sum(check["result"] == "failed" for check in entry["checks"]),
                "candidates": len(entry["candidates"]),
                "refusals": len(entry.get("refusals", [])),
            }
            for entry in record["layers"]
        ],
        "changedSince": [
            {"layer": one.layer, "version": str(one.version), "commitment": str(one.new_commitment)}
            for one in result.changed_since
        ],
    }


def _line(entry: dict[str, Any]) -> str:
    counts = (("changes", "changes"), ("failedChecks", "failed checks"), ("candidates", "not adopted"),
              ("refusals", "refused"))  # fmt: skip
    told = "".join(f", {entry[name]} {word}" for name, word in counts if entry[name])
    return f"{entry['layer']} {'completed' if entry['completed'] else 'not completed'}, {entry['decision']}{told}"
