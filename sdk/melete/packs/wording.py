"""Whether a primitive reads as what its tag says it is: the sentence patterns of each type.

They are a warning unless somebody asks for strictness: the specification's own examples do not all follow them.
Letter case does not count.

Source: AMP v0.4, Part 5 (validation rules).
"""

from __future__ import annotations

import re
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final


def _reads_as_goal(content: str) -> bool:
    content = content.lower()
    return "optimize" in content or "default" in content or "the goal is to" in content


def _reads_as_claim(content: str) -> bool:
    # A noun phrase cannot be told without a model; that something stands before the verb can.
    if " is " in content or " has " in content:
        return True
    content = content.lower()
    return ("is" in content or "has" in content) and _compile(r"\w\W*\s(?:is|has)\b").search(content) is not None


def _reads_as_directive(content: str) -> bool:
    content = content.lower()
    if not ("never" in content or "always" in content or "prefer" in content):
        return False
    if content.startswith(("in ", "when ")):
        return True
    match = _compile(r"\b(?:in|when)\s").search(content)
    rest = content[match.end() :] if match else ""
    return "never" in rest or "always" in rest or "prefer" in rest


def _reads_as_demonstration(content: str) -> bool:
    return content.strip() != ""


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.IGNORECASE)


#: By type: whether a text reads as one.
READS_AS: Final[dict[str, Callable[[str], bool]]] = {
    "goal": _reads_as_goal,
    "claim": _reads_as_claim,
    "directive": _reads_as_directive,
    "demonstration": _reads_as_demonstration,
}
#: By type: how to clear what does not.
HOW_TO: Final = {
    "goal": "write `the goal is to`, `optimize` or `default`, or tag it as what it is",
    "claim": "write what something is or has, or tag it as what it is",
    "directive": "write `In` or `When`, and then `always`, `never` or `prefer`, or tag it as what it is",
}
