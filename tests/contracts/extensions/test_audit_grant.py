"""AuditGrant: a range granted once, as one root; the auditor acknowledges it, the controller revokes it."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path

import pytest
from eth_utils import keccak, to_bytes
from hypothesis import assume, given

from anvil import Reverted
from memory_state import Behaviour
from models.memory import ZERO_ADDRESS, ZERO_WORD, Event, Rejection, hash_experience_delta, word
from space_records import AUDIT_WITNESS, SILENT, derive_grant_id, fold_witness_root
from strategies import addresses, nonzero_addresses, nonzero_words, uint64s, words

ROOT = keccak(text="witness set root")
NOWHERE = keccak(text="nowhere")
NOT_CONTROLLER = Rejection("NotSpaceController")
NO_GRANT = (ZERO_WORD, ZERO_WORD, ZERO_ADDRESS, 0, 0, 0, 0, 0)
VECTORS = Path(__file__).resolve().parents[3] / "test-vectors" / "agent-memory-state" / "audit_grants.json"


def block_time(node) -> int:
    return int(node.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)


@pytest.fixture
def grant_id(audit, space, history, controller, auditor) -> bytes:
    """The whole history, granted to the auditor."""
    audit.must_perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    return derive_grant_id(space, auditor.address, 1, 3)


# Granting


def test_grant_records_the_range_and_its_root_and_says_so(audit, space, history, controller, auditor, node):
    grant_id = derive_grant_id(space, auditor.address, 1, 3)
    outcome = audit.perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    assert outcome == Event("AuditGranted", (space, auditor.address, grant_id, 1, 3, ROOT))
    assert audit.answer("grantOf", grant_id) == (space, ROOT, auditor.address, 0, 0, 1, 3, block_time(node))
    assert audit.answer("spaceOf", grant_id) == space


def test_grant_returns_the_id_that_it_derives(audit, space, history, controller, auditor):
    answer = audit.answer("grant", space, auditor.address, 2, 3, ROOT, caller=controller.address)
    assert answer == audit.answer("deriveGrantId", space, auditor.address, 2, 3)


@pytest.mark.parametrize("ends", [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)])
def test_grant_accepts_every_range_within_the_history(audit, space, history, controller, auditor, ends):
    assert audit.rejection(controller.address, "grant", space, auditor.address, *ends, ROOT) is None


@given(account=nonzero_addresses, root=nonzero_words)
def test_grant_accepts_any_auditor_and_any_root_but_zero(audit, space, history, controller, account, root):
    assert audit.rejection(controller.address, "grant", space, account, 1, 3, root) is None


def test_overlapping_ranges_and_several_auditors_are_grants_of_their_own(
    audit, space, history, controller, auditor, outsider
):
    made = [(auditor, 1, 2), (auditor, 2, 3), (auditor, 1, 3), (outsider, 1, 3)]
    for number, (account, first, last) in enumerate(made, start=1):
        audit.must_perform(controller.address, "grant", space, account.address, first, last, word(number))
    for number, (account, first, last) in enumerate(made, start=1):
        kept = audit.answer("grantOf", derive_grant_id(space, account.address, first, last))
        assert (kept[1], kept[2], kept[5], kept[6]) == (word(number), account.address, first, last)


def test_grant_leaves_the_registry_as_it_was(audit, registry, space, history, controller, auditor):
    with registry.unchanged():
        audit.must_perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)


def test_grant_rejects_everyone_but_the_controller(
    audit, registry, space, history, authorizer, relayer, outsider, auditor
):
    for actor in (authorizer, relayer, outsider, auditor):
        rejection = audit.rejection(actor.address, "grant", space, auditor.address, 1, 3, ROOT)
        assert rejection == NOT_CONTROLLER
    for caller in (registry.address, audit.address, ZERO_ADDRESS):
        assert audit.rejection(caller, "grant", space, auditor.address, 1, 3, ROOT) == NOT_CONTROLLER


@given(space_id=words)
def test_grant_rejects_unknown_space(audit, space, history, controller, auditor, space_id):
    assume(space_id != space)
    rejection = audit.rejection(controller.address, "grant", space_id, auditor.address, 1, 1, ROOT)
    assert rejection == Rejection("UnknownSpace")


@given(last=uint64s)
def test_grant_rejects_every_range_that_ends_beyond_the_head(audit, space, history, controller, auditor, last):
    rejection = audit.rejection(controller.address, "grant", space, auditor.address, 1, last, ROOT)
    if last == 0:
        assert rejection == Rejection("EmptyRange", (1, 0))
    else:
        assert rejection == (None if last <= 3 else Rejection("RangeBeyondHead", (3, last)))


@given(first=uint64s)
def test_grant_rejects_every_range_that_starts_after_its_end(audit, space, history, controller, auditor, first):
    rejection = audit.rejection(controller.address, "grant", space, auditor.address, first, 3, ROOT)
    if first == 0:
        assert rejection == Rejection("ZeroFromSequence")
    else:
        assert rejection == (None if first <= 3 else Rejection("EmptyRange", (first, 3)))


def test_grant_rejects_any_range_of_a_space_without_transitions(audit, space, controller, auditor):
    rejection = audit.rejection(controller.address, "grant", space, auditor.address, 1, 1, ROOT)
    assert rejection == Rejection("RangeBeyondHead", (0, 1))


def test_grant_accepts_the_next_transition_once_it_is_committed(audit, commit, space, history, controller, auditor):
    call = ("grant", space, auditor.address, 4, 4, ROOT)
    assert audit.rejection(controller.address, *call) == Rejection("RangeBeyondHead", (3, 4))
    commit(space)
    assert audit.rejection(controller.address, *call) is None


def test_grant_rejects_a_grant_made_before_whatever_its_root(audit, space, grant_id, controller, auditor):
    for root in (ROOT, keccak(text="other root")):
        rejection = audit.rejection(controller.address, "grant", space, auditor.address, 1, 3, root)
        assert rejection == Rejection("GrantAlreadyExists", (grant_id,))


def test_a_revoked_grant_is_never_made_again(audit, space, grant_id, controller, auditor):
    audit.must_perform(controller.address, "revoke", space, grant_id)
    rejection = audit.rejection(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    assert rejection == Rejection("GrantAlreadyExists", (grant_id,))


DEFECTS = {
    "unknown_space": Rejection("UnknownSpace"),
    "not_controller": NOT_CONTROLLER,
    "zero_auditor": Rejection("ZeroAuditor"),
    "from_zero": Rejection("ZeroFromSequence"),
    "empty_range": Rejection("EmptyRange", (9, 8)),
    "beyond_head": Rejection("RangeBeyondHead", (3, 4)),
    "zero_root": Rejection("ZeroWitnessSetRoot"),
    "made_before": None,
}
#: What no one grant violates together. One that was made before has an auditor, and a range within the history.
EXCLUSIVE = [{"from_zero", "empty_range"}, {"empty_range", "beyond_head"}]
COMBINATIONS = [
    defects
    for defects in chain.from_iterable(combinations(DEFECTS, size) for size in range(1, len(DEFECTS) + 1))
    if not any(pair <= set(defects) for pair in EXCLUSIVE)
    and ("made_before" not in defects or set(defects) <= {"made_before", "not_controller", "zero_root"})
]


@pytest.mark.parametrize("defects", COMBINATIONS, ids="+".join)
def test_grant_names_the_first_of_several_defects_and_changes_nothing(
    audit, space, history, controller, outsider, auditor, node, defects
):
    grant_id = derive_grant_id(space, auditor.address, 1, 3)
    if "made_before" in defects:
        audit.must_perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    caller = outsider if "not_controller" in defects else controller
    ends = (9, 8) if "empty_range" in defects else (1, 4) if "beyond_head" in defects else (1, 3)
    if "from_zero" in defects:
        ends = (0, ends[1])
    before = node.storage_root(audit.address)
    outcome = audit.perform(
        caller.address,
        "grant",
        NOWHERE if "unknown_space" in defects else space,
        ZERO_ADDRESS if "zero_auditor" in defects else auditor.address,
        *ends,
        ZERO_WORD if "zero_root" in defects else ROOT,
    )
    assert outcome == (DEFECTS[defects[0]] or Rejection("GrantAlreadyExists", (grant_id,)))
    assert node.storage_root(audit.address) == before


@pytest.mark.parametrize(("argument", "at"), [(1, 11), (1, 0), (2, 23), (2, 0), (3, 23), (3, 0)])
def test_grant_reverts_on_dirty_bits_above_a_value(audit, space, history, controller, auditor, node, argument, at):
    data = bytearray(audit.encode_call("grant", space, auditor.address, 1, 3, ROOT))
    data[4 + 32 * argument + at] = 1
    answer = node.call(audit.address, bytes(data), sender=controller.address)
    assert isinstance(answer, Reverted)
    assert answer.data == b""


# Acknowledging


def test_acknowledge_records_when_the_auditor_named_the_root(audit, space, grant_id, auditor, node):
    outcome = audit.perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    assert outcome == Event("AuditAcknowledged", (space, auditor.address, grant_id))
    _, _, _, acknowledged_at, revoked_at, *_ = audit.answer("grantOf", grant_id)
    assert (acknowledged_at, revoked_at) == (block_time(node), 0)


def test_acknowledge_changes_nothing_else_of_the_grant(audit, space, grant_id, auditor):
    before = audit.answer("grantOf", grant_id)
    audit.must_perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    after = audit.answer("grantOf", grant_id)
    assert (*after[:3], *after[4:]) == (*before[:3], *before[4:])


@given(root=words)
def test_acknowledge_rejects_every_other_root(audit, space, grant_id, auditor, root):
    assume(root != ROOT)
    rejection = audit.rejection(auditor.address, "acknowledge", space, grant_id, root)
    assert rejection == Rejection("WitnessRootMismatch", (ROOT, root))


def test_acknowledge_rejects_everyone_but_the_auditor(
    audit, registry, space, grant_id, controller, authorizer, relayer, outsider, auditor
):
    callers = [actor.address for actor in (controller, authorizer, relayer, outsider)]
    for caller in (*callers, registry.address, audit.address, ZERO_ADDRESS):
        rejection = audit.rejection(caller, "acknowledge", space, grant_id, ROOT)
        assert rejection == Rejection("NotAuditor", (auditor.address, caller))


def test_an_auditor_cannot_acknowledge_what_was_granted_to_another(
    audit, space, grant_id, controller, auditor, outsider
):
    audit.must_perform(controller.address, "grant", space, outsider.address, 1, 3, ROOT)
    theirs = derive_grant_id(space, outsider.address, 1, 3)
    rejection = audit.rejection(auditor.address, "acknowledge", space, theirs, ROOT)
    assert rejection == Rejection("NotAuditor", (outsider.address, auditor.address))


def test_acknowledge_rejects_another_space_than_the_grants(audit, space, foreign_space, grant_id, auditor):
    """Else an event could tell of an acknowledgement for a space that never granted anything."""
    for other in (foreign_space, NOWHERE, ZERO_WORD):
        rejection = audit.rejection(auditor.address, "acknowledge", other, grant_id, ROOT)
        assert rejection == Rejection("GrantOfAnotherSpace", (space, other))


@given(unknown=words)
def test_acknowledge_rejects_an_unknown_grant(audit, space, grant_id, auditor, unknown):
    assume(unknown != grant_id)
    for space_id in (space, ZERO_WORD):
        rejection = audit.rejection(auditor.address, "acknowledge", space_id, unknown, ZERO_WORD)
        assert rejection == Rejection("UnknownGrant", (unknown,))


def test_acknowledge_rejects_a_second_acknowledgement(audit, space, grant_id, auditor):
    audit.must_perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    rejection = audit.rejection(auditor.address, "acknowledge", space, grant_id, ROOT)
    assert rejection == Rejection("GrantAlreadyAcknowledged", (grant_id,))


def test_acknowledge_rejects_a_revoked_grant(audit, space, grant_id, controller, auditor):
    audit.must_perform(controller.address, "revoke", space, grant_id)
    rejection = audit.rejection(auditor.address, "acknowledge", space, grant_id, ROOT)
    assert rejection == Rejection("GrantAlreadyRevoked", (grant_id,))


def test_an_auditor_may_acknowledge_after_the_space_changed_hands(audit, space, grant_id, auditor, rotate):
    rotate()
    outcome = audit.perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    assert outcome == Event("AuditAcknowledged", (space, auditor.address, grant_id))


def test_a_contract_wallet_acknowledges_by_a_call_of_its_own(audit, space, history, controller, relayer, wallets):
    wallet = wallets[Behaviour.SAYS_YES]
    audit.must_perform(controller.address, "grant", space, wallet.address, 1, 3, ROOT)
    grant_id = derive_grant_id(space, wallet.address, 1, 3)
    outcome = audit.perform_through(wallet.address, relayer.address, "acknowledge", space, grant_id, ROOT)
    assert outcome == Event("AuditAcknowledged", (space, wallet.address, grant_id))


ACKNOWLEDGE_DEFECTS = ("another_space", "not_auditor", "revoked", "acknowledged", "another_root")
ACKNOWLEDGE_COMBINATIONS = list(
    chain.from_iterable(combinations(ACKNOWLEDGE_DEFECTS, size) for size in range(1, len(ACKNOWLEDGE_DEFECTS) + 1))
)


@pytest.mark.parametrize("defects", ACKNOWLEDGE_COMBINATIONS, ids="+".join)
def test_acknowledge_names_the_first_of_several_defects_and_changes_nothing(
    audit, space, foreign_space, grant_id, controller, outsider, auditor, node, defects
):
    if "acknowledged" in defects:
        audit.must_perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    if "revoked" in defects:
        audit.must_perform(controller.address, "revoke", space, grant_id)
    caller = outsider if "not_auditor" in defects else auditor
    given_space = foreign_space if "another_space" in defects else space
    root = keccak(text="other root") if "another_root" in defects else ROOT
    expected = {
        "another_space": Rejection("GrantOfAnotherSpace", (space, foreign_space)),
        "not_auditor": Rejection("NotAuditor", (auditor.address, outsider.address)),
        "revoked": Rejection("GrantAlreadyRevoked", (grant_id,)),
        "acknowledged": Rejection("GrantAlreadyAcknowledged", (grant_id,)),
        "another_root": Rejection("WitnessRootMismatch", (ROOT, root)),
    }
    before = node.storage_root(audit.address)
    assert audit.perform(caller.address, "acknowledge", given_space, grant_id, root) == expected[defects[0]]
    assert node.storage_root(audit.address) == before


# Revoking


def test_revoke_records_when_and_says_so(audit, space, grant_id, controller, auditor, node):
    outcome = audit.perform(controller.address, "revoke", space, grant_id)
    assert outcome == Event("AuditRevoked", (space, auditor.address, grant_id))
    _, _, _, acknowledged_at, revoked_at, *_ = audit.answer("grantOf", grant_id)
    assert (acknowledged_at, revoked_at) == (0, block_time(node))


def test_revoke_leaves_an_acknowledgement_standing(audit, space, grant_id, controller, auditor):
    audit.must_perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    before = audit.answer("grantOf", grant_id)
    audit.must_perform(controller.address, "revoke", space, grant_id)
    after = audit.answer("grantOf", grant_id)
    assert after[3] == before[3] != 0
    assert (*after[:4], *after[5:]) == (*before[:4], *before[5:])
    assert after[4] >= after[3]


def test_revoke_rejects_everyone_but_the_controller(
    audit, registry, space, grant_id, authorizer, relayer, outsider, auditor
):
    callers = [actor.address for actor in (authorizer, relayer, outsider, auditor)]
    for caller in (*callers, registry.address, audit.address, ZERO_ADDRESS):
        assert audit.rejection(caller, "revoke", space, grant_id) == NOT_CONTROLLER


def test_the_controller_of_another_space_cannot_revoke_by_naming_its_own(
    audit, space, foreign_space, grant_id, outsider
):
    rejection = audit.rejection(outsider.address, "revoke", foreign_space, grant_id)
    assert rejection == Rejection("GrantOfAnotherSpace", (space, foreign_space))


def test_revoke_rejects_a_second_revocation(audit, space, grant_id, controller):
    audit.must_perform(controller.address, "revoke", space, grant_id)
    rejection = audit.rejection(controller.address, "revoke", space, grant_id)
    assert rejection == Rejection("GrantAlreadyRevoked", (grant_id,))


@given(unknown=words)
def test_revoke_rejects_an_unknown_grant(audit, space, grant_id, controller, unknown):
    assume(unknown != grant_id)
    for space_id in (space, NOWHERE, ZERO_WORD):
        rejection = audit.rejection(controller.address, "revoke", space_id, unknown)
        assert rejection == Rejection("UnknownGrant", (unknown,))


def test_a_new_controller_revokes_what_the_old_one_granted_and_the_old_one_cannot(
    audit, space, grant_id, controller, new_controller, auditor, rotate
):
    rotate()
    assert audit.rejection(controller.address, "revoke", space, grant_id) == NOT_CONTROLLER
    assert audit.rejection(controller.address, "grant", space, auditor.address, 1, 2, ROOT) == NOT_CONTROLLER
    outcome = audit.perform(new_controller.address, "revoke", space, grant_id)
    assert outcome == Event("AuditRevoked", (space, auditor.address, grant_id))


def test_a_new_controller_cannot_replace_what_the_old_one_granted(
    audit, space, grant_id, new_controller, auditor, rotate
):
    rotate()
    rejection = audit.rejection(new_controller.address, "grant", space, auditor.address, 1, 3, keccak(text="other"))
    assert rejection == Rejection("GrantAlreadyExists", (grant_id,))


REVOKE_DEFECTS = ("another_space", "not_controller", "revoked")
REVOKE_COMBINATIONS = list(
    chain.from_iterable(combinations(REVOKE_DEFECTS, size) for size in range(1, len(REVOKE_DEFECTS) + 1))
)


@pytest.mark.parametrize("defects", REVOKE_COMBINATIONS, ids="+".join)
def test_revoke_names_the_first_of_several_defects_and_changes_nothing(
    audit, space, foreign_space, grant_id, controller, auditor, node, defects
):
    if "revoked" in defects:
        audit.must_perform(controller.address, "revoke", space, grant_id)
    caller = auditor if "not_controller" in defects else controller
    given_space = foreign_space if "another_space" in defects else space
    expected = {
        "another_space": Rejection("GrantOfAnotherSpace", (space, foreign_space)),
        "not_controller": NOT_CONTROLLER,
        "revoked": Rejection("GrantAlreadyRevoked", (grant_id,)),
    }
    before = node.storage_root(audit.address)
    assert audit.perform(caller.address, "revoke", given_space, grant_id) == expected[defects[0]]
    assert node.storage_root(audit.address) == before


# Views


@given(unknown=words)
def test_views_of_an_unknown_grant_are_zeros(audit, grant_id, unknown):
    assume(unknown != grant_id)
    assert audit.answer("grantOf", unknown) == NO_GRANT
    assert audit.answer("spaceOf", unknown) == ZERO_WORD


@given(space_id=words, account=addresses, first=uint64s, last=uint64s)
def test_derive_grant_id_hashes_a_word_each(audit, space_id, account, first, last):
    assert audit.answer("deriveGrantId", space_id, account, first, last) == derive_grant_id(
        space_id, account, first, last
    )


@given(prev_root=words, transition_id=words, witness_hash=words)
def test_fold_witness_root_hashes_the_type_and_three_words(audit, prev_root, transition_id, witness_hash):
    expected = fold_witness_root(prev_root, transition_id, witness_hash)
    assert audit.answer("foldWitnessRoot", prev_root, transition_id, witness_hash) == expected


def test_an_auditor_who_folds_what_it_was_handed_acknowledges_and_one_who_lacks_a_witness_cannot(
    audit, space, history, controller, auditor
):
    def fold(deltas) -> bytes:
        root = ZERO_WORD
        for delta in deltas:
            witness_hash = keccak(text=f'{{"payload":"{delta.sequence}"}}')
            root = audit.answer("foldWitnessRoot", root, hash_experience_delta(delta), witness_hash)
        return root

    audit.must_perform(controller.address, "grant", space, auditor.address, 1, 3, fold(history))
    grant_id = derive_grant_id(space, auditor.address, 1, 3)
    for handed in (history[1:], history[:2], [history[0], history[2]], history[::-1], []):
        rejection = audit.rejection(auditor.address, "acknowledge", space, grant_id, fold(handed))
        assert rejection == Rejection("WitnessRootMismatch", (fold(history), fold(handed)))
    audit.must_perform(auditor.address, "acknowledge", space, grant_id, fold(history))


# The test vectors


def cases(kind: str) -> list:
    found = [case for case in json.loads(VECTORS.read_text("utf-8"))["cases"] if case["kind"] == kind]
    assert found
    return [pytest.param(case, id=case["name"]) for case in found]


def unhex(text: str) -> bytes:
    return to_bytes(hexstr=text)


@pytest.mark.parametrize("case", cases("type_string"))
def test_the_contract_folds_with_the_type_of_the_vectors(case):
    assert case["text"] == AUDIT_WITNESS
    assert keccak(text=case["text"]) == unhex(case["keccak256"])


@pytest.mark.parametrize("case", cases("grant_id"))
def test_the_contract_derives_every_grant_id_of_the_vectors(audit, case):
    ends = int(case["fromSequence"]), int(case["toSequence"])
    answer = audit.answer("deriveGrantId", unhex(case["spaceId"]), unhex(case["auditor"]), *ends)
    assert answer == unhex(case["grantId"])


@pytest.mark.parametrize("case", cases("witness_root"))
def test_the_contract_folds_every_witness_root_of_the_vectors(audit, case):
    root = ZERO_WORD
    for entry, expected in zip(case["entries"], case["roots"], strict=True):
        root = audit.answer("foldWitnessRoot", root, unhex(entry["transitionId"]), unhex(entry["witnessHash"]))
        assert root == unhex(expected)


# Registries that lie


def authorization(controller: bytes) -> bytes:
    return word(controller) + word(b"\x22" * 20) + word(0)


def test_a_registry_that_knows_no_roots_lets_nothing_be_granted(over_liar, space, controller, auditor):
    answers = {
        "spaceAuthorization": authorization(controller.address),
        "stateRootAt": ZERO_WORD,
        "head": ZERO_WORD + ZERO_WORD + word(9),
    }
    record = over_liar("AuditGrant", answers)
    outcome = record.perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    assert outcome == Rejection("RangeBeyondHead", (9, 3))


def test_a_space_without_a_controller_is_unknown_whoever_calls(over_liar, space, controller, auditor):
    record = over_liar("AuditGrant", {"spaceAuthorization": authorization(ZERO_ADDRESS), "stateRootAt": ROOT})
    for caller in (controller.address, ZERO_ADDRESS):
        rejection = record.rejection(caller, "grant", space, auditor.address, 1, 3, ROOT)
        assert rejection == Rejection("UnknownSpace")


@pytest.mark.parametrize(
    "answers",
    [
        {"spaceAuthorization": b""},
        {"spaceAuthorization": b"\x01" + bytes(95)},
        {"stateRootAt": bytes(31)},
        {"stateRootAt": ZERO_WORD, "head": bytes(95)},
        {"stateRootAt": ZERO_WORD, "head": b"\xff" * 96},
    ],
    ids=["no_authorization", "dirty_controller", "short_root", "short_head", "head_beyond_uint64"],
)
def test_a_registry_that_answers_no_words_ends_every_call(over_liar, space, controller, auditor, answers):
    told = {"spaceAuthorization": authorization(controller.address), "stateRootAt": ROOT} | answers
    record = over_liar("AuditGrant", told)
    outcome = record.perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    assert outcome == SILENT
    assert record.answer("spaceOf", derive_grant_id(space, auditor.address, 1, 3)) == ZERO_WORD


def test_a_registry_whose_code_is_gone_leaves_the_auditor_its_word(over_liar, space, controller, auditor, node):
    """Acknowledging asks the registry nothing; granting and revoking cannot go on without it."""
    record = over_liar("AuditGrant", {"spaceAuthorization": authorization(controller.address), "stateRootAt": ROOT})
    record.must_perform(controller.address, "grant", space, auditor.address, 1, 3, ROOT)
    grant_id = derive_grant_id(space, auditor.address, 1, 3)
    node.set_code(record.answer("registry"), b"")
    assert record.perform(controller.address, "grant", space, auditor.address, 1, 2, ROOT) == SILENT
    assert record.perform(controller.address, "revoke", space, grant_id) == SILENT
    outcome = record.perform(auditor.address, "acknowledge", space, grant_id, ROOT)
    assert outcome == Event("AuditAcknowledged", (space, auditor.address, grant_id))


def test_a_space_id_of_zero_is_a_space_like_any_other(over_liar, controller, auditor):
    """Our registry never has one; whether a grant exists does not hang on it."""
    record = over_liar("AuditGrant", {"spaceAuthorization": authorization(controller.address), "stateRootAt": ROOT})
    record.must_perform(controller.address, "grant", ZERO_WORD, auditor.address, 1, 3, ROOT)
    grant_id = derive_grant_id(ZERO_WORD, auditor.address, 1, 3)
    rejection = record.rejection(controller.address, "grant", ZERO_WORD, auditor.address, 1, 3, ROOT)
    assert rejection == Rejection("GrantAlreadyExists", (grant_id,))
    assert record.rejection(auditor.address, "acknowledge", ZERO_WORD, grant_id, ROOT) is None
