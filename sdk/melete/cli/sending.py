"""What commands that send share: the rules of what they send, and bringing one delta as far as was asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from melete.cli.progress import Progress as ProgressLine

if TYPE_CHECKING:
    from melete.chain.outbox import Item, Outbox
    from melete.chain.rules import RulesByFunction
    from melete.chain.submitter import Progress, Submitter
    from melete.memory.delta import ExperienceDelta
    from melete.memory.registry import MemoryRegistry
    from melete.signing import LocalSigner

#: How long a command waits, in seconds, while another process sends from the same outbox: it sends this one's, too.
BUSY_SECONDS: Final = 120.0


def rules() -> RulesByFunction:
    """Return the rules of everything that our commands put into an outbox."""
    from melete.chain.reverts import compute_selector
    from melete.chain.rules import RulesByFunction
    from melete.meditation.outbox import MeditationRules
    from melete.meditation.registry import FUNCTIONS as MEDITATION
    from melete.memory.outbox import MemoryRules
    from melete.memory.registry import FUNCTIONS as MEMORY

    commit, report = MEMORY["commitTransition"], f"report({MEDITATION['report'][0]})"
    return RulesByFunction({compute_selector(commit): MemoryRules(), compute_selector(report): MeditationRules()})


class SendingProgress:
    """Shows how far a run of the submitter has come, where somebody is looking."""

    def __init__(self, *, quiet: bool) -> None:
        self._line = ProgressLine()
        self._quiet = quiet

    def tell(self, now: Progress) -> None:
        if not self._quiet:
            self._line.tell(f"queued {now.queued}, sent {now.sent}, mined {now.mined}, done {now.done}")

    def clear(self) -> None:
        self._line.clear()


class DeltaSending:
    """Brings a delta that was just written down as far as was asked, and tells how far it came, whatever happened.

    It is in the outbox by then: who is not told so, and asks again, commits the same payload twice.
    """

    def __init__(self, outbox: Outbox, registry: MemoryRegistry, delta: ExperienceDelta, until: str) -> None:
        """`until` is `queued`, `mined` or `done`."""
        self._outbox, self._registry, self._until = outbox, registry, until
        self._added = self._find(delta)
        self._failure: BaseException | None = None

    def send(self, payer: LocalSigner, *, quiet: bool) -> None:
        """Send what waits in the outbox, or wait for the process that is at it. What goes wrong, `end` tells."""
        from melete.chain.submitter import Submitter
        from melete.chain.transactions import LocalSender

        if self._until == "queued":
            return
        progress, patience = SendingProgress(quiet=quiet), time.monotonic() + BUSY_SECONDS
        submitter = Submitter(self._registry.w3, self._outbox, LocalSender(payer), rules())
        try:
            while not self._run(submitter, progress, patience):
                time.sleep(submitter.poll_seconds)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, the delta waits, and that is told
            self._failure = error
        finally:
            progress.clear()

    def _run(self, submitter: Submitter, progress: SendingProgress, patience: float) -> bool:
        """Run the submitter; False while another process is at it, and has not got to this delta yet."""
        from melete.chain.outbox import State
        from melete.errors import OutboxBusy

        try:
            submitter.run(until=State(self._until), progress=progress.tell)
        except OutboxBusy:
            if time.monotonic() >= patience:
                raise
            return self._is_far_enough() or self._is_stopped()
        return True

    def found(self) -> dict[str, Any]:
        """Return how far it came, as members to print."""
        item = self._item()
        found: dict[str, Any] = {"state": item.state.value}
        if item.reason and self._is_stopped():
            found["reason"] = item.reason
        return found

    def end(self) -> None:
        """End the command: 1 if the registry does not take the delta, 3 if it is not as far as was asked."""
        if self._is_far_enough():
            return
        from melete.chain.outbox import State
        from melete.errors import MeleteError

        item, failure = self._item(), self._failure
        if self._is_stopped():
            raise click.exceptions.Exit(1)
        if item.state is State.REPLACED:
            click.echo("melete: the change was withdrawn or rebuilt by somebody else meanwhile", err=True)
            raise click.exceptions.Exit(1)
        if isinstance(failure, MeleteError):
            click.echo(f"melete: {failure}", err=True)
        elif failure is not None and not isinstance(failure, KeyboardInterrupt):
            click.echo(f"melete: a fault in melete itself ({type(failure).__name__}); please report it", err=True)
        else:
            click.echo(f"melete: it waits behind others of its space, or is {item.state.value}", err=True)
        click.echo(
            f"melete: the change is in the outbox, as {item.position} of its space; `melete outbox run` goes on with "
            "it, do not ask for it again.",
            err=True,
        )
        raise click.exceptions.Exit(130 if isinstance(failure, KeyboardInterrupt) else 3)

    def _is_far_enough(self) -> bool:
        from melete.chain.outbox import State

        enough = {"queued": (State.QUEUED, State.SENT), "mined": (State.MINED,), "done": ()}
        reached = [*enough[self._until], State.DONE]
        return self._item().state in reached or (self._until == "queued" and self._item().state is State.MINED)

    def _is_stopped(self) -> bool:
        from melete.chain.outbox import State

        return self._item().state in (State.CONFLICT, State.REFUSED)

    def _item(self) -> Item:
        return self._outbox.get(self._added.id)

    def _find(self, delta: ExperienceDelta) -> Item:
        from melete.memory.delta import compute_next_state_root, compute_transition_id

        root = compute_next_state_root(delta.prev_state_root, compute_transition_id(delta))
        registry = self._registry
        place = (registry.chain_id, registry.address, bytes(delta.space_id))
        item = self._outbox.find(*place, delta.sequence, root)
        assert item is not None  # it was added just now, and nothing ever leaves an outbox
        return item
