"""What maintenance costs: a report prepared, checked and signed, and documents made canonical."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import rfc8785

from environment import ROOT
from melete import Bytes32, LocalSigner, keccak256
from melete.canonical import canonicalize
from melete.meditation.cycle import SubjectState
from melete.meditation.documents import derive_policy
from melete.meditation.layers import Commitments, commit_to_document, compute_root, to_commitments
from melete.meditation.records import prepare_report
from melete.meditation.registry import encode_call, report_words

EXAMPLE = ROOT / "schemas" / "examples" / "timeout-cycle"
NAMES = ("runtime", "memory-skills", "tasks-roles", "cognition")
ROUNDS = 15


def bench(report: Callable[[str, float, float], None]) -> None:
    """Report what a cycle report costs beside its own hashing and signature, and canonical JSON beside the library."""
    record, before, after = read("cycle-record.json"), commit("baseline"), commit("post")
    policy = derive_policy(read("policy.json"))
    state = SubjectState(
        1, before, (0, 0, 0, 0), ((policy, record["startedAt"] - 1),), {1: compute_root(before)}
    )  # fmt: skip
    signer = LocalSigner(keccak256(b"signer"))

    def prepare() -> None:
        made = prepare_report(record, state, after, record["endedAt"])
        signer.sign_digest(keccak256(encode_call("report", signer.address, report_words(made))))

    def bare() -> None:
        keccak256(rfc8785.dumps(record))
        compute_root(after)
        signer.sign_digest(keccak256(b"a transaction"))

    prepare()  # reads the schema
    report("prepare, check and sign a report, to its own hashing and signature", compare(prepare, bare), 10.0)
    large: Any = {"entries": [{"id": number, "text": "a line of a document " * 4} for number in range(12_000)]}
    assert len(rfc8785.dumps(large)) > 10**6
    ratio = compare(lambda: canonicalize(large), lambda: rfc8785.dumps(large))
    report("make a document of 1 MB canonical, to the library alone", ratio, 1.3)


def read(name: str) -> Any:
    return json.loads((EXAMPLE / name).read_text("utf-8"))


def commit(side: str) -> Commitments:
    salts = read("salts.json")[side]
    return to_commitments(
        commit_to_document(read(f"{side}/{name}.json"), Bytes32(salt)) for name, salt in zip(NAMES, salts, strict=True)
    )


def compare(one: Callable[[], object], other: Callable[[], object]) -> float:
    """Return the ratio of the medians of two things done in turn."""
    pairs = [(once(one), once(other)) for _ in range(ROUNDS)]
    return statistics.median(ours for ours, _ in pairs) / statistics.median(theirs for _, theirs in pairs)


def once(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
