"""How the events of a verified history print: a line each for people, an object each for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from melete.cli.payloads import Answer, Opening, describe_payload, shown_payload
from melete.memory.events import SpaceRegistered, TransitionCommitted

if TYPE_CHECKING:
    from melete.memory.forensics import Approval, Step
    from melete.memory.profiles import ProfileRegistry


def event_to_json(
    step: Step, approval: Approval | None, opening: Opening | None, profiles: ProfileRegistry
) -> dict[str, Any]:
    """Return an event as JSON members; of what was not asked for, none."""
    event, reference = step.event, step.event.reference
    found: dict[str, Any]
    if isinstance(event, TransitionCommitted):
        found = {
            "event": "committed",
            **event.delta.to_json(),
            "transitionId": str(event.transition_id),
            "nextStateRoot": str(event.next_state_root),
            "authorizer": str(event.authorizer),
        }
    else:
        found = {
            "event": "registered" if isinstance(event, SpaceRegistered) else "updated",
            "spaceId": str(event.space_id),
            "controller": str(event.controller),
            "authorizer": str(event.authorizer),
        }
        if not isinstance(event, SpaceRegistered):
            found["configNonce"] = str(event.config_nonce)
    if approval is not None:
        found["approved"] = approval.by.value
        found["approvedBy"] = None if approval.account is None else str(approval.account)
    if opening is not None:
        found["witness"] = opening.answer.value
        if opening.closed:
            found["closed"] = opening.closed
        if opening.answer is Answer.OPENED and opening.witness is not None:
            found.update(describe_payload(profiles, opening.witness.profile_id, opening.witness.payload))
    found["block"] = reference.block_number
    found["blockHash"] = str(reference.block_hash)
    found["transaction"] = str(reference.transaction_hash)
    found["logIndex"] = reference.log_index
    return found


def event_to_text(step: Step, approval: Approval | None, opening: Opening | None, profiles: ProfileRegistry) -> str:
    """Return an event as one printable line of bounded length."""
    event = step.event
    parts = [f"block {event.reference.block_number}"]
    approver = f"controller {step.in_force.controller}"
    if isinstance(event, TransitionCommitted):
        parts += [f"#{event.delta.sequence}", str(event.transition_id)]
        approver = f"authorizer {step.in_force.authorizer}"
    else:
        what = "registered" if isinstance(event, SpaceRegistered) else f"updated {event.config_nonce}"
        parts += [what, f"controller {event.controller}", f"authorizer {event.authorizer}"]
    if approval is not None:
        parts.append(f"by {approver}: {approval.by.value}")
    if opening is not None:
        parts.append(_opening_to_text(opening, profiles))
    return "  ".join(parts)


def _opening_to_text(opening: Opening, profiles: ProfileRegistry) -> str:
    if opening.answer is Answer.OPENED and opening.witness is not None:
        return shown_payload(describe_payload(profiles, opening.witness.profile_id, opening.witness.payload))
    return f"witness: {opening.answer.value} {opening.closed}".rstrip()
