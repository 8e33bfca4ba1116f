"""What the items of an outbox mean to the registries that they go to: where each stands, and whether it may go now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from melete.chain.outbox import Item
from melete.errors import ContractError, InvalidInput

if TYPE_CHECKING:
    from web3 import Web3


class Verdict(Enum):
    """What the registry's state says of an item."""

    LANDED = "its effect is there"
    DUE = "it can be sent now"
    WAITS = "others of its lane come first"
    CONFLICT = "somebody else's change has its position, or the state that it builds on is gone"
    REFUSED = "the contract refuses it"


class Rules(Protocol):
    """What a registry's items mean, for the submitter."""

    def judge(self, w3: Web3, items: Sequence[Item]) -> list[Verdict]:
        """Return what the registry's state says of each item now, in as few requests as possible."""

    def may_pass(self, item: Item, error: ContractError) -> bool:
        """Return whether a refusal has to do with who sends, or when, and not with what is sent."""


@dataclass(frozen=True, slots=True)
class RulesByFunction:
    """The rules of several registries in one outbox, chosen by the selector of the function that an item calls."""

    rules: Mapping[bytes, Rules]

    def judge(self, w3: Web3, items: Sequence[Item]) -> list[Verdict]:
        """Return what each item's own registry says. Errors: `InvalidInput` for a call of neither."""
        verdicts: dict[int, Verdict] = {}
        for selector in dict.fromkeys(item.data[:4] for item in items):
            if selector not in self.rules:
                raise InvalidInput("outbox", selector, "the selector of a call that these rules know")
            some = [(place, item) for place, item in enumerate(items) if item.data[:4] == selector]
            found = self.rules[selector].judge(w3, [item for _, item in some])
            verdicts |= {place: verdict for (place, _), verdict in zip(some, found, strict=True)}
        return [verdicts[place] for place in range(len(items))]

    def may_pass(self, item: Item, error: ContractError) -> bool:
        """Return what the item's own registry says."""
        return self.rules[item.data[:4]].may_pass(item, error)
