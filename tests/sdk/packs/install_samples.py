"""Packs and projects to install into, and what a folder holds to the byte."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from melete.packs.hosts import Agent, Scope, Target
from melete.packs.inspection import Place
from melete.packs.install import Installation, install
from melete.packs.keys import PrivateKey, generate_key, load_private_key
from melete.packs.signing import sign_pack
from melete.packs.uninstall import Removal, uninstall

AGENTS_MD = "# AMP Routing\n\n## Always load\n- operating-principles.md - how we work\n"
CLUSTER = """---
type: cluster
applies_to: everything
source: self
primitive_counts:
  goal: 1
  directive: 1
---

[goal should, project, permanent] In every task, the goal is to be brief.
  > Readers skim.

[directive must, org, permanent] In all copy, never use em dashes.
"""
#: What a folder holds: the bytes of each file, the target of each link, None for a folder; with modes.
Snapshot = dict[str, tuple[bytes | str | None, int]]


def make_pack(folder: Path, slug: str = "notes", files: dict[str, str | bytes] | None = None, **members: Any) -> Path:
    """Write a pack that is right but for what is given."""
    manifest = {
        "name": slug,
        "title": "Notes",
        "version": {"number": 1},
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "agents_file": "agents.md",
        "agents": ["claude-code"],
        "capability_files": ["operating-principles.md"],
        "primitive_counts": {"goal": 1, "claim": 0, "directive": 1, "demonstration": 0},
        "signed": False,
        "signature": "",
        **members,
    }
    contents: dict[str, str | bytes] = {
        "manifest.json": json.dumps({name: value for name, value in manifest.items() if value is not ...}, indent=2),
        "agents.md": AGENTS_MD,
        "memory/operating-principles.md": CLUSTER,
        **(files or {}),
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def make_key(folder: Path) -> PrivateKey:
    return load_private_key(generate_key(folder / "signer.key", force=True)[0])


def sign(pack: Path, key: PrivateKey) -> Path:
    sign_pack(pack, key)
    return pack


def make_project(folder: Path, files: Iterable[str] = (".git/",), rules: bytes | None = None) -> Path:
    """Make a project that holds empty files and folders (with a slash), and rules in CLAUDE.md."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(b"")
    if rules is not None:
        (folder / "CLAUDE.md").write_bytes(rules)
    return folder


def target(root: Path, agent: Agent = Agent.CLAUDE_CODE, scope: Scope = Scope.PROJECT) -> Target:
    return Target(agent, Scope.USER if agent is Agent.OPENCLAW else scope, str(root))


def put(pack: Path, root: Path, agent: Agent = Agent.CLAUDE_CODE, **options: Any) -> Installation:
    """Install a pack in a project."""
    return install(pack, target(root, agent), **options)


def take(root: Path, slug: str = "notes", scope: Scope = Scope.PROJECT, **options: Any) -> Removal:
    """Uninstall a pack from a project."""
    return uninstall(Place(str(root), scope), slug, **options)


def look(*roots: Path) -> Snapshot:
    found: Snapshot = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            status = path.lstat()
            name = str(path.relative_to(root.parent))
            if stat.S_ISLNK(status.st_mode):
                found[name] = (str(path.readlink()), 0)
            else:
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
                found[name] = (content, stat.S_IMODE(status.st_mode))
    return found


def names(root: Path) -> list[str]:
    """Return the names of all files below a folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
