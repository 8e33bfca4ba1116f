"""How `melete verify` judges a maintenance disclosure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from melete.canonical import Json
from melete.errors import BrokenBundle, CouldNotTell, WrongChain
from melete.meditation.disclosure import (
    COMMITMENTS,
    FULL,
    MaintenanceDisclosure,
    find_undisclosed,
    verify_maintenance,
)
from melete.meditation.layers import Layer

if TYPE_CHECKING:
    from melete.cli.verify import Given, Verdict


def judge_maintenance(document: Json, given: Given, verdict: Verdict) -> None:
    """Add to a verdict what is found of a maintenance disclosure. Errors: `InvalidJson`, `BrokenBundle`."""
    disclosure = MaintenanceDisclosure.from_json(document)
    verdict.held.append("schema")
    reference = disclosure.reference
    verdict.about = {
        "chainId": str(reference.chain_id),
        "registry": reference.registry,
        "subject": reference.subject,
        "level": disclosure.level,
        "fromVersion": str(disclosure.state.version),
        "records": [str(entry.seq) for entry in disclosure.entries],
    }
    for member, rule, expected, received in (
        ("chainId", "chain_id", given.chain_id, reference.chain_id),
        ("registry", "registry", given.registry, reference.registry),
    ):
        if expected not in (None, received):
            raise BrokenBundle(None, f"/reference/{member}", rule, expected, received)
    end = verify_maintenance(disclosure)
    verdict.about |= {"toVersion": str(end.version), "root": end.root}
    verdict.held.append("links")
    _tell_level(disclosure, verdict)
    _judge_chain(disclosure, given, verdict)


def _tell_level(disclosure: MaintenanceDisclosure, verdict: Verdict) -> None:
    """Say what of the level was judged, and what nobody can."""
    if disclosure.level == FULL:
        verdict.held.append("records")
        if disclosure.state.documents or any(entry.documents for entry in disclosure.entries):
            verdict.held.append("documents")
        if find_undisclosed(disclosure):
            verdict.not_judged.append("documents_left_out")
        if len(disclosure.state.documents) < len(Layer):  # as in the disclosure of one record
            verdict.not_judged.append("state_documents_left_out")
        return
    if disclosure.level > COMMITMENTS and any(entry.summary is not None for entry in disclosure.entries):
        verdict.not_judged.append("summaries")
    verdict.not_judged += ["records", "documents"]


def _judge_chain(disclosure: MaintenanceDisclosure, given: Given, verdict: Verdict) -> None:
    if given.rpc_url is None:
        verdict.leave_open("Whether the chain holds it: give --rpc-url.")
        return
    try:
        is_ours = _ask_node(disclosure, given, verdict)
    except WrongChain as error:
        verdict.leave_open(f"Whether the chain holds it: {error}")
        return
    except CouldNotTell as error:
        verdict.leave_open(f"Whether the chain holds it: {error}")
        return
    if is_ours or given.registry is not None:
        verdict.held += ["roots", "events"]
    else:
        verdict.leave_open("Whether the registry is one: it runs other code; name it by --registry if you trust it.")


def _ask_node(disclosure: MaintenanceDisclosure, given: Given, verdict: Verdict) -> bool:
    from melete.chain.connection import connect
    from melete.chain.logs import load_block
    from melete.meditation.disclosure_anchoring import verify_by_node
    from melete.memory.bundle_anchoring import load_block_by_hash

    assert given.rpc_url is not None  # as the caller saw
    w3 = connect(given.rpc_url, disclosure.reference.chain_id)
    block = load_block(w3, given.block) if given.block_hash is None else load_block_by_hash(w3, given.block_hash)
    is_ours = verify_by_node(disclosure, w3, block, given.from_block or 0)
    verdict.about |= {"block": str(block.number), "blockHash": block.hash}
    return is_ours
