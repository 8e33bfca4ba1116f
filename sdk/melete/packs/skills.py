"""Skills: texts that tell a coding agent how to drive capture and unpack, and where each agent looks for them.

    target = find_target()
    install_skill("amp-capture", target)
    find_state("amp-capture", target)         # "absent", "current", "outdated" or "edited"

An installed file ends in a comment that holds the digest of the rest: so it is known whether somebody edited it, and
only what nobody did is replaced.

Source: AMP v0.4, Part 12.
"""

from __future__ import annotations

import os
import re
import stat
from enum import StrEnum
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

from melete.errors import InvalidInput, MissingFile, StoreNotWritten
from melete.packs.errors import SkillEdited, TargetRefused
from melete.packs.folder import Folder
from melete.packs.hosts import Agent, Scope, Target

SKILLS: Final = ("amp-capture", "amp-unpack")
FILE: Final = "SKILL.md"
LARGEST: Final = 1024 * 1024

#: Where agents look for skills, below the project or the home.
_FOLDERS: Final = {
    (Agent.CLAUDE_CODE, Scope.PROJECT): ".claude/skills",
    (Agent.CLAUDE_CODE, Scope.USER): ".claude/skills",
    (Agent.CODEX, Scope.PROJECT): ".agents/skills",
    (Agent.CODEX, Scope.USER): ".agents/skills",
    (Agent.CURSOR, Scope.PROJECT): ".cursor/skills",
    (Agent.CURSOR, Scope.USER): ".cursor/skills",
    (Agent.WINDSURF, Scope.PROJECT): ".windsurf/skills",
    (Agent.WINDSURF, Scope.USER): ".codeium/windsurf/skills",
    (Agent.OPENCLAW, Scope.USER): ".openclaw/skills",
}
_SEAL: Final = re.compile(r"\n<!-- installed by amp; sha256 of the lines above: ([0-9a-f]{64}) -->\n", re.ASCII)


class State(StrEnum):
    """What is in a skill's place."""

    ABSENT = "absent"
    CURRENT = "current"
    #: Ours, from another version, and not edited.
    OUTDATED = "outdated"
    #: Edited, or never ours.
    EDITED = "edited"


class Skill(NamedTuple):
    """A skill: its name, what it is for, and its text as shipped."""

    name: str
    description: str
    text: str


def load_skill(name: str) -> Skill:
    """Return a skill that the package ships. Errors: `InvalidInput` for an unknown name; `MissingFile`."""
    if name not in SKILLS:
        raise InvalidInput("skill", name, f"one of {', '.join(SKILLS)}")
    place = files("melete.packs") / "skills" / name / FILE
    try:
        text = place.read_text("utf-8")
    except OSError:
        raise MissingFile(str(place), "the package was installed without its skills; install it again") from None
    found = re.search(r"^description: (.+)$", text, re.ASCII | re.MULTILINE)
    return Skill(name, found[1] if found else "", text)


def skill_path(name: str, target: Target) -> str:
    """Return where an agent looks for a skill, relative to the project or the home."""
    return f"{_FOLDERS[target.agent, target.scope]}/{name}/{FILE}"


def seal(text: str) -> str:
    """Return a skill as it is installed: with the digest of its text at the end."""
    digest = sha256(text.encode()).hexdigest()
    return f"{text}\n<!-- installed by amp; sha256 of the lines above: {digest} -->\n"


def is_sealed(text: str) -> bool:
    """True for a file that is as some version of ours installed it."""
    found = list(_SEAL.finditer(text))
    return bool(found) and found[-1].end() == len(text) and seal(text[: found[-1].start()]) == text


def find_state(name: str, target: Target) -> State:
    """Return what is in a skill's place. Errors: `TargetRefused` for a link, or what is no file."""
    folder = Folder(target.root)
    try:
        content = _read(folder, skill_path(name, target))
    finally:
        folder.close()
    return _judge(name, content)


def install_skill(name: str, target: Target, *, force: bool = False) -> tuple[str, State]:
    """Put a skill where an agent finds it; return its path, and what was there before.

    Errors: `SkillEdited` for a file that is not as it was installed, unless `force`; `TargetRefused` for a link;
    `StoreNotWritten`.
    """
    path = skill_path(name, target)
    folder = Folder(target.root)
    try:
        content = _read(folder, path)
        before = _judge(name, content)
        if before is State.EDITED and not force:
            raise SkillEdited(path)
        if before is not State.CURRENT:
            _write(folder, path, seal(load_skill(name).text).encode())
    except OSError as error:
        raise StoreNotWritten(path, error.strerror or "the disk refused it") from None
    finally:
        folder.close()
    return path, before


def _judge(name: str, content: bytes | None) -> State:
    if content is None:
        return State.ABSENT
    if content == seal(load_skill(name).text).encode():
        return State.CURRENT
    try:
        return State.OUTDATED if is_sealed(content.decode("utf-8")) else State.EDITED
    except UnicodeDecodeError:
        return State.EDITED


def _read(folder: Folder, path: str) -> bytes | None:
    try:
        return folder.read(path, LARGEST)
    except NotADirectoryError:
        raise TargetRefused(path, "something that is no folder is in the way; move it away") from None


def _write(folder: Folder, path: str, content: bytes) -> None:
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = "/".join(parts[:depth])
        status = folder.status(above)
        if status is None:
            folder.make_folder(above)
        elif not stat.S_ISDIR(status.st_mode):
            raise TargetRefused(above, "it is a link or no folder; put the folder itself in its place")
    draft = f"{'/'.join(parts[:-1])}/.{os.urandom(6).hex()}.amp-draft"
    try:
        folder.write_new(draft, content, folder.status(path), path)
        folder.rename(draft, parts[-1])
    except BaseException:
        folder.remove(draft)
        raise
    folder.flush("/".join(parts[:-1]))
