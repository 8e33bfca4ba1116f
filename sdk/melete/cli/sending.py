"""What commands that send share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from melete.chain.submitter import RulesByFunction


def rules() -> RulesByFunction:
    """Return the rules of everything that our commands put into an outbox."""
    from melete.chain.reverts import compute_selector
    from melete.chain.submitter import RulesByFunction
    from melete.meditation.outbox import MeditationRules
    from melete.meditation.registry import FUNCTIONS as MEDITATION
    from melete.memory.outbox import MemoryRules
    from melete.memory.registry import FUNCTIONS as MEMORY

    commit, report = MEMORY["commitTransition"], f"report({MEDITATION['report'][0]})"
    return RulesByFunction({compute_selector(commit): MemoryRules(), compute_selector(report): MeditationRules()})
