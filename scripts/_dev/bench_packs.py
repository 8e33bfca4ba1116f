"""The commands of `amp`, whole processes, to Node doing the reference tool's own work on the same pack, in one run.

`bench(report)` is called by `bench.py`. The pack has 100 primitives in five files. Both sides run in turn; what counts
is the median of seven, after one that is thrown away and leaves compiled modules behind, as an installation does.
Node's work is what the specification prints and no more: no options, no questions about the manifest, no report.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from melete.packs.tree import load_tree
from melete.packs.validation import validate

Report = Callable[[str, float, float], None]
ROUNDS = 7
FILES = ("operating-principles", "copy-voice", "content-strategy", "product-context", "ops-tools")
PRIMITIVES = 100
MANY_PRIMITIVES = 10_000

#: What Node and the reference tool do for either command: parse, list, hash, join.
NODE_PAYLOAD = """
const fs = require('fs'), path = require('path'), crypto = require('crypto'), [folder, keyFile] = process.argv.slice(1);
const manifestFile = path.join(folder, 'manifest.json');
const manifest = JSON.parse(fs.readFileSync(manifestFile, 'utf8'));
const {signed, signature, ...signable} = manifest;
const walk = (at) => fs.readdirSync(path.join(folder, at), {withFileTypes: true})
  .flatMap((entry) => entry.isDirectory() ? walk(path.join(at, entry.name)) : [path.join(at, entry.name)]);
const hashes = walk('').filter((name) => name !== 'manifest.json').sort()
  .map((name) => crypto.createHash('sha256').update(fs.readFileSync(path.join(folder, name))).digest('hex'));
const payload = Buffer.from([JSON.stringify(signable), ...hashes].join('\\n'));
"""
NODE_VERIFY = (
    NODE_PAYLOAD
    + """
const key = crypto.createPublicKey(fs.readFileSync(keyFile, 'utf8'));
if (!crypto.verify(null, payload, key, Buffer.from(signature, 'base64url'))) process.exit(1);
console.log('valid');
"""
)
NODE_SIGN = (
    NODE_PAYLOAD
    + """
const key = crypto.createPrivateKey(fs.readFileSync(keyFile, 'utf8'));
manifest.signed = true;
manifest.signature = crypto.sign(null, payload, key).toString('base64url');
fs.writeFileSync(manifestFile, JSON.stringify(manifest, null, 2), 'utf8');
console.log('signed');
"""
)
#: What the reference tool does on install, with the check of the signature that it leaves out.
NODE_INSTALL = (
    NODE_PAYLOAD
    + """
const key = crypto.createPublicKey(fs.readFileSync(keyFile, 'utf8'));
if (!crypto.verify(null, payload, key, Buffer.from(signature, 'base64url'))) process.exit(1);
if (manifest.layout !== 'semantic-cluster' || !fs.existsSync(path.join(folder, 'agents.md'))) process.exit(1);
for (const name of manifest.capability_files) if (!fs.existsSync(path.join(folder, 'memory', name))) process.exit(1);
const target = path.join('.amp', manifest.name), creator = `@local/${manifest.name}`;
fs.cpSync(folder, target, {recursive: true});
const host = fs.existsSync('CLAUDE.md') ? fs.readFileSync('CLAUDE.md', 'utf8') : '';
const agents = fs.readFileSync(path.join(folder, 'agents.md'), 'utf8');
const body = `${agents}\\n> Pack files: ${target}/memory/`;
fs.writeFileSync('CLAUDE.md', `${host}\\n<!-- amp:begin ${creator} -->\\n${body}\\n<!-- amp:end ${creator} -->\\n`);
fs.mkdirSync('.amp/.meta', {recursive: true});
const digest = crypto.createHash('sha256').update(payload).digest('hex');
fs.writeFileSync(`.amp/.meta/${manifest.name}.json`, JSON.stringify({slug: manifest.name, digest}, null, 2));
console.log('installed');
"""
)


def bench(report: Report) -> None:
    """Report the ratio of each command, and how long help takes."""
    with workplace() as (folder, environment):
        ours, theirs = make_pack(folder / "ours", PRIMITIVES), make_pack(folder / "theirs", PRIMITIVES)
        private, public = folder / "signer.key", folder / "signer.pub"
        start = Starter(environment)
        start.amp("keygen", "--out", private)
        sign = start.compare(
            lambda: start.amp("sign", ours, "--key", private), lambda: start.node(NODE_SIGN, theirs, private)
        )
        report(f"amp sign of {PRIMITIVES} primitives, to node", sign, 1.25)
        verify = start.compare(
            lambda: start.amp("verify", ours, "--public-key", public), lambda: start.node(NODE_VERIFY, ours, public)
        )
        report(f"amp verify of {PRIMITIVES} primitives, to node", verify, 1.25)
        projects = (make_project(folder / f"project-{number}") for number in count())
        install = start.compare(
            lambda: start.amp("install", "--from-path", ours, "--public-key", public, cwd=next(projects)),
            lambda: start.node(NODE_INSTALL, ours, public, cwd=next(projects)),
        )
        report(f"amp install of {PRIMITIVES} primitives, to node", install, 1.5)
        bare = start.median(lambda: start.run(sys.executable, "-c", "pass"))
        shown = start.median(lambda: start.amp("--help"))
        report("amp --help, milliseconds over a bare interpreter", (shown - bare) * 1000, 100.0)
        report("amp verify: peak memory for 1 GB, in its size", streamed(start, folder), 0.1)
    bench_validation(report)


def bench_validation(report: Report) -> None:
    """Report validation of a large pack, to reading its files and matching every line with Part 5's expression."""
    expression = re.compile(r"^\[(\w+)([^\]]*?)\]\s*(.*)$", re.ASCII)
    with tempfile.TemporaryDirectory() as name:
        folder = make_pack(Path(name) / "pack", MANY_PRIMITIVES)

        def match() -> None:
            found = 0
            for path in sorted(folder.rglob("*.md")):
                found += sum(1 for line in path.read_text("utf-8").split("\n") if expression.match(line))
            assert found == MANY_PRIMITIVES

        def ours() -> None:
            assert validate(load_tree(folder)).failed == 0

        ratios = [once(ours) / once(match) for _ in range(ROUNDS + 1)]
    report(
        f"validate {MANY_PRIMITIVES:,} primitives, to reading and matching the lines",
        statistics.median(ratios[1:]),
        2.0,
    )


class Starter:
    """Starts processes, and measures them."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.command = str(Path(sys.executable).with_name("amp"))

    def run(self, *words: object, cwd: Path | None = None) -> None:
        command = [str(word) for word in words]
        subprocess.run(command, check=True, env=self.environment, cwd=cwd, stdout=subprocess.DEVNULL)

    def amp(self, *words: object, cwd: Path | None = None) -> None:
        self.run(self.command, *words, cwd=cwd)

    def node(self, script: str, *words: object, cwd: Path | None = None) -> None:
        self.run("node", "-e", script, "--", *words, cwd=cwd)

    def median(self, action: Callable[[], object]) -> float:
        return statistics.median([once(action) for _ in range(ROUNDS + 1)][1:])

    def compare(self, one: Callable[[], object], other: Callable[[], object]) -> float:
        """Return the ratio of the medians of two things run in turn."""
        pairs = [(once(one), once(other)) for _ in range(ROUNDS + 1)][1:]
        return statistics.median(ours for ours, _ in pairs) / statistics.median(theirs for _, theirs in pairs)


def streamed(start: Starter, folder: Path) -> float:
    """Return the peak memory of verifying a pack with a file of 1 GB, of which none is on the disk, in that size."""
    size = 10**9
    pack = make_pack(folder / "large", PRIMITIVES)
    with (pack / "large.bin").open("wb") as file:
        file.truncate(size)
    start.amp("sign", pack, "--key", folder / "signer.key")
    # By a small process in between: what a process is started from counts as memory of its own.
    measure = (
        "import os, subprocess, sys\n"
        "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "_, status, usage = os.wait4(process.pid, 0)\n"
        "print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)\n"
    )
    words = [
        sys.executable,
        "-c",
        measure,
        start.command,
        "verify",
        str(pack),
        "--public-key",
        str(folder / "signer.pub"),
    ]
    done = subprocess.run(words, env=start.environment, capture_output=True, text=True, check=True)
    code, peak = map(int, done.stdout.split())
    assert code == 0
    kilo = 1 if sys.platform == "darwin" else 1024
    return peak * kilo / size


@contextmanager
def workplace() -> Iterator[tuple[Path, dict[str, str]]]:
    """Give an empty folder, and an environment with a home of its own and a place for compiled modules."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "home").mkdir()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("AMP_", "PYTHON"))}
        environment |= {"HOME": str(folder / "home"), "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        yield folder, environment


def make_pack(folder: Path, primitives: int) -> Path:
    """Make a pack that is valid and not signed."""
    (folder / "memory").mkdir(parents=True)
    each = primitives // len(FILES)
    for name in FILES:
        head = f"---\ntype: cluster\napplies_to: {name}\nsource: self\nprimitive_counts:\n  directive: {each}\n---\n\n"
        blocks = (
            f"[directive must, org, permanent] In any text of kind {number}, never use em dashes.\n"
            f"  > Readers of {name} take them for a sign of haste.\n"
            for number in range(each)
        )
        (folder / "memory" / f"{name}.md").write_text(head + "\n".join(blocks), "utf-8")
    routes = "\n".join(f"| {name} | {name}.md |" for name in FILES[1:])
    (folder / "agents.md").write_text(
        f"# AMP Routing — bench\n\n## Always load\n- {FILES[0]}.md — how we work\n\n"
        f"## Route by task type\n\n| If the task involves... | Load |\n|---|---|\n{routes}\n",
        "utf-8",
    )
    counts = {"goal": 0, "claim": 0, "directive": primitives, "demonstration": 0}
    manifest = {
        "name": "bench",
        "title": "A pack to be measured",
        "version": {"number": 1},
        "layout": "semantic-cluster",
        "primitive_format": "inline-tag-v0.4",
        "created": "2026-07-01",
        "sources": ["notes.md"],
        "agents_file": "agents.md",
        "agents": ["claude-code"],
        "capability_files": [f"{name}.md" for name in FILES],
        "primitive_counts": {**counts, "dropped_action_log": 0, "dropped_duplicate": 0},
        "signed": False,
        "signature": "",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    return folder


def make_project(folder: Path) -> Path:
    """Make a project that an agent's rules are in already."""
    (folder / ".git").mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("# Rules\n", "utf-8")
    return folder


def once(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    missed = []

    def report(what: str, value: float, goal: float) -> None:
        print(f"{'holds ' if value <= goal else 'MISSED'}  {value:8.3f}  goal {goal:6.2f}  {what}", flush=True)
        if value > goal:
            missed.append(what)

    bench(report)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
