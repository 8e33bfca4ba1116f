"""Which capability file a unit belongs to: the list of Part 10, of which the first rule that matches wins.

    1    credentials, keys, mail, automation, deploys   ops-tools.md
    2    voice, style, wording                          copy-voice.md
    2.5  looks                                          copy-voice.md, subtype visual-brand
    3    angle, story, channel                          content-strategy.md
    4    a claim                                        product-context.md
    5    a goal, a priority, an operating principle     operating-principles.md
    6    a demonstration                                demonstrations.md

Keywords match as words, with their usual endings: "token" does not stand in "tokenizer", nor "tone" in "stone".

Source: AMP v0.4, Part 10.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

OPERATING_PRINCIPLES: Final = "operating-principles.md"
COPY_VOICE: Final = "copy-voice.md"
CONTENT_STRATEGY: Final = "content-strategy.md"
PRODUCT_CONTEXT: Final = "product-context.md"
OPS_TOOLS: Final = "ops-tools.md"
DEMONSTRATIONS: Final = "demonstrations.md"
#: The files that capture writes, in their order.
FILES: Final = (OPERATING_PRINCIPLES, COPY_VOICE, CONTENT_STRATEGY, PRODUCT_CONTEXT, OPS_TOOLS, DEMONSTRATIONS)
VISUAL_BRAND: Final = "visual-brand"


class Rule(NamedTuple):
    """A rule of the list: its rank (lower is asked first), its file, and what it matches.

    `keywords` is a pattern over the words of a unit; `types` are primitive types, with `principle` for units that
    come from where operating principles and priorities are kept.
    """

    rank: float
    file: str
    keywords: str = ""
    types: tuple[str, ...] = ()
    subtype: str | None = None


class Route(NamedTuple):
    """Where a unit goes: a file, or None when no rule decides, and why."""

    file: str | None
    rank: float | None
    subtype: str | None
    reason: str


RULES: Final = (
    Rule(
        1,
        OPS_TOOLS,
        r"credentials?|api[ -]keys?|tokens?|n8n|resend|posthog|\.env|e-?mail[ -]address(?:es)?"
        r"|deploy(?:s|ed|ing|ments?)?",
    ),
    Rule(
        2,
        COPY_VOICE,
        r"em[ -]?dash(?:es)?|voices?|tones?|styl(?:e|es|ed|ing)|format(?:s|ted|ting)?|taglines?"
        r"|draft(?:s|ed|ing)?|slop|banned|(?:sentence[ -])?patterns?|vocabular(?:y|ies)|phrasings?",
    ),
    Rule(
        2.5,
        COPY_VOICE,
        r"them(?:e|es|ed|ing)|colou?r(?:s|ed|ing)?|palettes?|visual(?:s|ly)?|brand(?:s|ed|ing)?"
        r"|design(?:s|ed|ing)?|fonts?|backgrounds?",
        subtype=VISUAL_BRAND,
    ),
    Rule(
        3,
        CONTENT_STRATEGY,
        r"angles?|framings?|stor(?:y|ies)|launch(?:es|ed|ing)?|post(?:s|ed|ing)?|ctas?|channels?"
        r"|lead(?:s|ing)?[ ]with|closed[ -]loops?|content[ -]strateg(?:y|ies)|narratives?",
    ),
    Rule(4, PRODUCT_CONTEXT, types=("claim",)),
    Rule(5, OPERATING_PRINCIPLES, types=("goal", "principle")),
    Rule(6, DEMONSTRATIONS, types=("demonstration",)),
)


def find_route(kind: str, text: str, *, principle: bool = False, rules: Iterable[Rule] = RULES) -> Route:
    """Return where a unit of type `kind` with these words goes.

    `principle` says that it comes from a philosophy or from priorities. Rules of equal rank that name different
    files decide nothing, and so does a list of which nothing matches.
    """
    names = {kind, "principle"} if principle else {kind}
    best: float | None = None
    found: list[tuple[Rule, str]] = []
    for rule in sorted(rules, key=lambda rule: rule.rank):
        if best is not None and rule.rank > best:
            break
        match = _match(rule, text, names)
        if match is not None:
            best = rule.rank
            found.append((rule, match))
    if not found:
        return Route(None, None, None, f"no rule names a file for a {kind} with these words")
    files = sorted({rule.file for rule, _ in found})
    if len(files) > 1:
        words = " and ".join(f"{match} ({rule.file})" for rule, match in found)
        return Route(None, best, None, f"two files have equal rank: {words}")
    rule, match = found[0]
    return Route(rule.file, rule.rank, rule.subtype, f"rule {rule.rank:g}: {match}")


def _match(rule: Rule, text: str, names: set[str]) -> str | None:
    """Return what of a unit the rule matches, in printable words, or None."""
    if rule.keywords:
        pattern = rf"(?<![a-z0-9_])(?:{rule.keywords})(?![a-z0-9_])"
        found = re.search(pattern, text, re.ASCII | re.IGNORECASE)
        return f"it says {found[0].lower()!r}" if found else None
    kind = next((kind for kind in rule.types if kind in names), None)
    return f"it is a {kind}" if kind else None
