"""Small packs that tests write, as good as a pack can be until a test changes something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PRINCIPLES = """\
---
type: cluster
applies_to: every task
source: self
primitive_counts:
  goal: 1
  directive: 1
---

[goal should, project, permanent] Optimize for answers that can be checked.
  > Nobody trusts what nobody can check.

[directive must, org, permanent] In every answer, always name the file that was changed.
"""

VOICE = """\
---
type: cluster
applies_to: writing of any kind
source: imported
primitive_counts:
  claim: 1
  demonstration: 2
---

sources:
  Guide 3: House guide, third edition
    https://example.org/guide

[claim] The newsletter is weekly.
  > [Guide 3]

[demo negative, illustrates: plain-words] {
Before: "We leverage synergies."

[directive must] not a primitive
}
  > Plain words carry further.

[demo positive] It ships on Friday.
"""

AGENTS = """\
# AMP Routing — small-pack

## Always load
- operating-principles.md — what holds everywhere

## Route by task type

| If the task involves... | Load |
|---|---|
| Writing anything | copy-voice.md |
"""

PRINCIPLES_V3 = """\
---
type: cluster
applies_to: every task
primitive_counts:
  goal: 1
  demonstration: 1
---

---
type: goal
force: should
source: self
---

Answers that can be checked.

**Why:** Nobody trusts what nobody can check.

---

---
type: demonstration
valence: positive
illustrates: [plain-words]
source: imported
---

It ships on Friday.

Not sooner.
"""

COUNTS = {"goal": 1, "claim": 1, "directive": 1, "demonstration": 2, "dropped_action_log": 0, "dropped_duplicate": 0}


def make_manifest(**changes: Any) -> dict[str, Any]:
    """A manifest; a member that is changed to `...` is left out."""
    manifest = {
        "name": "small-pack",
        "title": "A small pack",
        "version": {"number": 1},
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "created": "2026-01-31",
        "sources": ["wiki/voice.md"],
        "agents_file": "agents.md",
        "agents": ["claude-code"],
        "capability_files": ["operating-principles.md", "copy-voice.md"],
        "primitive_counts": COUNTS,
        "signed": False,
        "signature": "",
        **changes,
    }
    return {name: value for name, value in manifest.items() if value is not ...}


def make_files(files: dict[str, str | bytes | None] | None = None, **changes: Any) -> dict[str, bytes]:
    """What the files of a pack hold: a good one's, but for those given (None for a file that is not there)."""
    merged: dict[str, str | bytes | None] = {
        "agents.md": AGENTS,
        "manifest.json": json.dumps(make_manifest(**changes), indent=2),
        "memory/copy-voice.md": VOICE,
        "memory/operating-principles.md": PRINCIPLES,
        **(files or {}),
    }
    return {
        path: content.encode("utf-8") if isinstance(content, str) else content
        for path, content in merged.items()
        if content is not None
    }


def make_files_v3(files: dict[str, str | bytes | None] | None = None, **changes: Any) -> dict[str, bytes]:
    """The same for a pack of v0.3."""
    old: dict[str, Any] = {
        **{"primitive_format": ..., "title": ..., "agents": ..., "capability_files": ["operating-principles.md"]},
        "primitive_counts": {"goal": 1, "demonstration": 1},
    }
    changed: dict[str, str | bytes | None] = {
        "agents.md": "# Routing\n\n## Always load\n- operating-principles.md: what holds\n",
        "memory/copy-voice.md": None,
        "memory/operating-principles.md": PRINCIPLES_V3,
        **(files or {}),
    }
    return make_files(changed, **{**old, **changes})


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def write_pack(folder: Path, files: dict[str, str | bytes | None] | None = None, **changes: Any) -> Path:
    """Write a pack, and return its folder."""
    return write_files(folder, make_files(files, **changes))
