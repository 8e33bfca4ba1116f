"""What the items of an outbox mean to the registries that they go to: where each stands, and whether it may go now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from melete.chain.outbox import Item
from melete.errors import ContractError, InvalidInput, MeleteError

if TYPE_CHECKING:
    from web3 import Web3


class Verdict(Enum):
    """What the registry's state says of an item."""

    LANDED = "its effect is there"
    DUE = "it can be sent now"
    WAITS = "others of its lane come first"
    CONFLICT = "somebody else's change has its position, or the state that it builds on is gone"
    REFUSED = "the contract refuses it"


#: What is known of an item, or why nothing is.
Judged: TypeAlias = Verdict | MeleteError


class Rules(Protocol):
    """What a registry's items mean, for the submitter."""

    def judge(self, w3: Web3, items: Sequence[Item], block: int) -> list[Judged]:
        """Return what the registry's state in a block (by number) says of each item, in as few requests as possible.

        All of it is asked of that block: parts of two states make a third that never was. An error in place of a
        verdict says why there is none; its lane waits, and others go on.
        """

    def may_pass(self, item: Item, error: ContractError) -> bool:  # noqa: ARG002 - for those who override it
        """Return whether a refusal has to do with who sends, or when, and not with what is sent."""
        return False


@dataclass(frozen=True, slots=True)
class RulesByFunction:
    """The rules of several registries in one outbox, chosen by the selector of the function that an item calls."""

    rules: Mapping[bytes, Rules]

    def judge(self, w3: Web3, items: Sequence[Item], block: int) -> list[Judged]:
        """Return what each item's own registry says; `InvalidInput` for a call of none of them."""
        judged: dict[int, Judged] = {}
        for selector in dict.fromkeys(item.data[:4] for item in items):
            some = [(place, item) for place, item in enumerate(items) if item.data[:4] == selector]
            if selector in self.rules:
                found = self.rules[selector].judge(w3, [item for _, item in some], block)
            else:
                unknown = InvalidInput("outbox", selector, "the selector of a call that these rules know")
                found = [unknown for _ in some]
            judged |= {place: verdict for (place, _), verdict in zip(some, found, strict=True)}
        return [judged[place] for place in range(len(items))]

    def may_pass(self, item: Item, error: ContractError) -> bool:
        """Return what the item's own registry says."""
        return self.rules[item.data[:4]].may_pass(item, error)
