"""`melete verify`: judge a document that somebody disclosed to you.

    held              all that the document claims was judged, and holds
    broken            something does not; the first is named: entry, member, rule, what was expected, what is there
    could not tell    what could be judged holds, and something that the document claims could not be judged

What kind of document it is, its member `kind` says; `JUDGES` says who judges it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from melete.canonical import Json, load_json
from melete.cli.output import emit
from melete.cli.settings import json_option, load_file
from melete.errors import BrokenBundle, CouldNotTell, InvalidInput, InvalidJson, MissingFile, WrongChain, show
from melete.files import read_file
from melete.memory.disclosure import KIND, LARGEST_BUNDLE, AuditBundle, verify_disclosure
from melete.primitives import Address, Bytes32, parse_sequence, uint

if TYPE_CHECKING:
    from melete.memory.bundle_anchoring import Anchored, Anchoring, Granted
    from melete.memory.space import Head

#: A document with more members or items is not read: each costs many times its bytes.
MOST_MEMBERS: Final = 2**21

HELD, BROKEN, COULD_NOT_TELL = "held", "broken", "could not tell"
EXIT_CODES: Final = {HELD: 0, BROKEN: 1, COULD_NOT_TELL: 3}


class Fault(NamedTuple):
    """The first thing that keeps a document from holding: `entry` is the sequence due there, `member` a pointer."""

    entry: object
    member: str
    rule: str
    expected: object
    received: object


@dataclass
class Verdict:
    """What was found so far. Judges add to it and stop by an error at what is broken."""

    kind: str | None = None
    #: What the document is about, for the reader to compare with what they expect.
    about: dict[str, Any] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    #: What the document does not claim, or nobody asked for.
    not_judged: list[str] = field(default_factory=list)
    #: What it claims, and could not be judged: sentences that say what would help.
    open: list[str] = field(default_factory=list)
    is_broken: bool = False
    fault: Fault | None = None

    @property
    def answer(self) -> str:
        if self.is_broken:
            return BROKEN
        return COULD_NOT_TELL if self.open else HELD

    def leave_open(self, sentence: str, fault: Fault | None = None) -> None:
        self.open.append(sentence)
        self.fault = self.fault or fault

    def break_at(self, fault: Fault) -> None:
        self.is_broken, self.fault = True, fault

    def to_document(self) -> dict[str, Any]:
        """Return what is printed."""
        entry, member, rule, expected, received = self.fault or (None,) * 5
        return {
            "answer": self.answer,
            "kind": self.kind,
            **self.about,
            "held": self.held,
            "notJudged": self.not_judged,
            "couldNotTell": self.open,
            "entry": None if entry is None else str(entry),
            "member": None if member is None else ascii(member[:200])[1:-1],
            "rule": rule,
            "expected": _plain(expected),
            "received": _plain(received),
        }


@dataclass(frozen=True, slots=True)
class Given:
    """What the reader trusts, and where they would ask."""

    rpc_url: str | None
    block: str
    block_hash: Bytes32 | None
    chain_id: int | None
    registry: Address | None
    contract: Address | None
    from_block: int | None


@click.command()
@click.argument("bundle")
@click.option("--rpc-url", envvar="MELETE_RPC_URL", help="A node to ask what the chain holds.")
@click.option("--config", type=click.Path(dir_okay=False), envvar="MELETE_CONFIG", help="Instead of melete.toml.")
@click.option("--offline", is_flag=True, help="Ask no node, whatever the settings say.")
@click.option("--block-hash", help="The hash of a block that you know to be the chain's.")
@click.option("--block", type=click.Choice(["latest", "safe", "finalized"]), default="latest", show_default=True)
@click.option("--chain-id", type=int, help="The chain that it has to be about.")
@click.option("--registry", help="The registry that it has to be about; then its code is not looked at.")
@click.option("--contract", help="The AuditGrant contract that has to hold the grant; then its code is not looked at.")
@click.option("--from-block", type=click.IntRange(0), help="With a node: compare authorizers with events from here on.")
@json_option
def command(
    bundle: str,
    rpc_url: str | None,
    config: str | None,
    offline: bool,
    block_hash: str | None,
    block: str,
    chain_id: int | None,
    registry: str | None,
    contract: str | None,
    from_block: int | None,
    as_json: bool,
) -> None:
    """Judge the disclosed document BUNDLE (- reads standard input): held, broken (exit code 1), or could not tell (3).

    Without a node, this judges all that follows from the document: that it holds exactly the granted range, that every
    transition follows from the one before, that every witness opens what was committed to, and that the witnesses fold
    to the granted root. Whether the chain holds it is judged by the proofs in the bundle, for a --block-hash that you
    trust (the one in the bundle is its own word), or by a node.

    Compare what is printed with what you expect: anyone can make a bundle about a space of their own. A file of
    more than 64 MiB is not read.
    """
    url = None if offline else rpc_url or load_file(config).get("rpc_url")
    if offline and from_block is not None:
        raise click.UsageError("--from-block needs a node; leave --offline away.")
    given = Given(
        url,
        block,
        None if block_hash is None else Bytes32(block_hash, "--block-hash"),
        None if chain_id is None else uint(chain_id, 256, "--chain-id"),
        None if registry is None else Address(registry, "--registry"),
        None if contract is None else Address(contract, "--contract"),
        from_block,
    )
    verdict = judge(bundle, given)
    found = verdict.to_document()
    emit(found if as_json else {name: value for name, value in found.items() if value is not None}, as_json=as_json)
    if verdict.answer != HELD:
        raise click.exceptions.Exit(EXIT_CODES[verdict.answer])


def judge(path: str, given: Given) -> Verdict:
    """Return the verdict on a file. Errors: `MissingFile`."""
    verdict = Verdict()
    text = _read(path)
    for size, most, unit in (
        (len(text), LARGEST_BUNDLE, "bytes"),
        (max(map(text.count, (b",", b"[", b"{"))), MOST_MEMBERS, "members"),
    ):
        if size > most:
            fault = Fault(None, "", "size", f"at most {most} {unit}", "more")
            verdict.leave_open("It is larger than what is read; ask for the range in parts.", fault)
            return verdict
    document: Json = None
    try:
        document = load_json(text)
        del text
        verdict.held.append("json")
        kind = _read_kind(document)
        if kind in JUDGES:
            verdict.kind = kind
            JUDGES[kind](document, given, verdict)
        else:
            fault = Fault(None, "/kind", "kind", f"one of {', '.join(JUDGES)}", show(kind))
            verdict.leave_open("This program knows no such kind of document; a newer one may.", fault)
    except InvalidJson as error:
        if verdict.held:
            entry = _entry_at(error.pointer, document)
            verdict.break_at(Fault(entry, error.pointer, "schema", error.rule, None))
        else:
            verdict.break_at(Fault(None, error.pointer, "json", "one JSON document", error.rule))
    except BrokenBundle as error:
        verdict.break_at(Fault(error.entry, error.member, error.rule, error.expected, error.received))
    return verdict


# Audit bundles


def _judge_audit_bundle(document: Json, given: Given, verdict: Verdict) -> None:
    bundle = AuditBundle.from_json(document)
    verdict.held.append("schema")
    reference, grant = bundle.reference, bundle.grant
    verdict.about = {
        "chainId": str(reference.chain_id),
        "registry": reference.registry,
        "spaceId": reference.space_id,
        "grantId": grant.grant_id,
        "auditor": grant.auditor,
        "fromSequence": str(grant.from_sequence),
        "toSequence": str(grant.to_sequence),
        "witnessSetRoot": grant.witness_set_root,
        "contract": grant.contract,
    }
    for member, rule, expected, received in (
        ("chainId", "chain_id", given.chain_id, reference.chain_id),
        ("registry", "registry", given.registry, reference.registry),
    ):
        if expected not in (None, received):
            raise BrokenBundle(None, f"/reference/{member}", rule, expected, received)
    end = verify_disclosure(bundle)
    verdict.held += ["grant_id", "range", "transitions", "witnesses", "witness_set_root"]
    verdict.about["stateRoot"] = end.state_root
    _judge_anchoring(bundle, end, given, verdict)


def _judge_anchoring(bundle: AuditBundle, end: Head, given: Given, verdict: Verdict) -> None:
    from melete.memory.bundle_anchoring import Anchoring

    anchoring = None if bundle.anchoring is None else Anchoring.from_json(bundle.anchoring)
    try:
        if anchoring is not None:
            _read_proofs(bundle, end, anchoring, given, verdict)
        elif given.rpc_url is None:
            verdict.leave_open("Whether the chain holds it: the bundle has no proof of that; give --rpc-url.")
        if given.rpc_url is not None:
            _ask_node(given.rpc_url, bundle, end, anchoring, given, verdict)
    except WrongChain as error:
        fault = Fault(None, "/reference/chainId", "node_chain_id", error.expected, error.received)
        verdict.leave_open(f"Whether the chain holds it: {error}", fault)
    except CouldNotTell as error:
        verdict.leave_open(f"Whether the chain holds it: {error}")
    if given.from_block is None or given.rpc_url is None:
        verdict.not_judged.append("authorizers")
    # A block's hash says nothing of the chain's id: without a node, only the reader can.
    if given.rpc_url is None and given.block_hash is not None and given.chain_id is None:
        verdict.not_judged.append("chain_id")


def _read_proofs(bundle: AuditBundle, end: Head, anchoring: Anchoring, given: Given, verdict: Verdict) -> None:
    """Judge the proofs in the bundle; they count where there is no node, and the reader knows their block."""
    from melete.memory.bundle_anchoring import verify_grant_by_proof, verify_roots_by_proof

    anchored = verify_roots_by_proof(bundle, end, anchoring)
    counts = given.rpc_url is None and given.block_hash == anchoring.block_hash
    if counts:
        _take_roots(anchored, given, verdict)
    granted = verify_grant_by_proof(bundle, anchoring, given.contract)
    if counts:
        _take_grant(bundle, granted, given, verdict)
    verdict.held.append("proofs")
    if given.rpc_url is not None or counts:
        return
    if given.block_hash is None:
        verdict.about |= {"block": str(anchored.block.number), "blockHash": anchored.block.hash}
        verdict.leave_open("Whether the chain has the block of the proofs: give a --block-hash, or --rpc-url.")
    else:
        fault = Fault(None, "/anchoring/blockHash", "block", given.block_hash, anchoring.block_hash)
        verdict.leave_open("Whether the chain holds it: the proofs are of another block than yours.", fault)


def _ask_node(
    url: str, bundle: AuditBundle, end: Head, anchoring: Anchoring | None, given: Given, verdict: Verdict
) -> None:
    from melete.chain.connection import connect
    from melete.chain.logs import load_block
    from melete.errors import NodeRefused
    from melete.memory.bundle_anchoring import (
        load_block_by_hash,
        verify_authorizers,
        verify_grant_by_node,
        verify_roots_by_node,
    )

    w3 = connect(url, bundle.reference.chain_id)
    block = load_block(w3, given.block) if given.block_hash is None else load_block_by_hash(w3, given.block_hash)
    _take_roots(verify_roots_by_node(bundle, end, w3, block), given, verdict)
    if given.from_block is not None:
        verify_authorizers(bundle, w3, given.from_block, block)
        verdict.held.append("authorizers")
    if anchoring is not None:
        try:
            load_block_by_hash(w3, anchoring.block_hash)
            verdict.held.append("block_of_proofs")
        except NodeRefused:
            verdict.not_judged.append("block_of_proofs")
    _take_grant(bundle, verify_grant_by_node(bundle, w3, block, given.contract), given, verdict)


def _take_roots(anchored: Anchored, given: Given, verdict: Verdict) -> None:
    verdict.about |= {"block": str(anchored.block.number), "blockHash": anchored.block.hash}
    if anchored.is_ours or given.registry is not None:
        verdict.held.append("state_root")
    else:
        verdict.leave_open("Whether the registry is one: it runs other code; name it by --registry if you trust it.")


def _take_grant(bundle: AuditBundle, granted: Granted | None, given: Given, verdict: Verdict) -> None:
    if granted is not None:
        verdict.about["acknowledgedAt"] = str(granted.grant.acknowledged_at)
        if granted.is_ours or given.contract is not None:
            verdict.held.append("grant")
        else:
            verdict.leave_open("Whether the grant stands: its contract runs other code; name it by --contract.")
    elif bundle.grant.contract is None and given.contract is None:
        verdict.not_judged.append("grant")
    else:
        verdict.leave_open("Whether the grant stands: the bundle has no proof of that; give --rpc-url.")


def _judge_maintenance(document: Json, given: Given, verdict: Verdict) -> None:
    from melete.cli.cycle_verify import judge_maintenance

    judge_maintenance(document, given, verdict)


#: Who judges which kind of document: each is given the document, what the reader trusts, and the verdict to add to.
JUDGES: Final[dict[str, Callable[[Json, Given, Verdict], None]]] = {
    KIND: _judge_audit_bundle,
    "melete.maintenance-disclosure/1": _judge_maintenance,
}


# Reading


def _read(path: str) -> bytes:
    """Return what is in a file, or as much of it as shows that it is too large."""
    try:
        if path != "-":
            return read_file(path, LARGEST_BUNDLE)
        if sys.stdin is None:
            raise MissingFile(path, "standard input is closed")
        with sys.stdin.buffer as file:
            return file.read(LARGEST_BUNDLE + 1)
    except OSError as error:
        raise MissingFile(path, f"the file cannot be read ({error.strerror})") from None


def _read_kind(document: Json) -> str:
    if not isinstance(document, dict):
        raise InvalidJson("", "it must be an object")
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise InvalidJson("/kind", "it must be text that says what kind of document this is")
    return kind


_IN_ENTRY = re.compile(r"/entries/(0|[1-9][0-9]{0,8})(?:/.*)?", re.DOTALL)


def _entry_at(pointer: str, document: Any) -> int | None:
    """Return the sequence that is due where a pointer leads, if that can be told."""
    place = _IN_ENTRY.fullmatch(pointer)
    try:
        return None if place is None else parse_sequence(document["grant"]["fromSequence"]) + int(place[1])
    except (InvalidInput, LookupError, TypeError):
        return None


def _plain(value: object) -> object:
    if value is None or type(value).__module__ == "melete.primitives":
        return value
    return value if isinstance(value, str) and value.isprintable() else show(value)
