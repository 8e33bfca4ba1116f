"""A registry beside its model, through any mixture of calls: right ones, wrong ones, early and late ones.

Several spaces, roles and relayers; authorizers that are keys, contract wallets and EIP-7702 accounts; wallets that
change their mind and accounts that change their code. After every step each view and each event is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from eth_utils import keccak
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from anvil import Node
from memory_state import (
    Actor,
    Behaviour,
    Conduct,
    Registry,
    Wallet,
    decode_event,
    encode_approve,
    encode_tell,
    malformed_signatures,
)
from models.memory import (
    ZERO_ADDRESS,
    ZERO_WORD,
    Accepted,
    CommitTransition,
    Delta,
    Event,
    RegisterSpace,
    Rejection,
    Request,
    UpdateSpaceAuthorization,
    compute_next_state_root,
    derive_space_id,
    hash_space_authorization,
    is_approved,
)
from strategies import delta_contents, deltas, nonzero_words, uint64s, words

KEYS = ("key_1", "key_2", "key_3")
RELAYERS = ("relayer_1", "relayer_2")
DELEGATORS = ("delegator_1", "delegator_2")
WALLETS = {
    f"wallet_that_{behaviour.name.lower()}": behaviour
    for behaviour in (
        Behaviour.OWNER_SIGNED,
        Behaviour.AS_TOLD,
        Behaviour.HASH_APPROVED,
        Behaviour.SAYS_YES,
        Behaviour.SAYS_NO,
        Behaviour.REVERTS_WITH_MAGIC,
        Behaviour.RETURNS_31_BYTES,
        Behaviour.RETURNS_64_BYTES,
        Behaviour.RETURNS_DIRTY_WORD,
        Behaviour.WRITES_FIRST,
    )
}
DELEGATES = (
    None,
    Behaviour.OWNER_SIGNED,
    Behaviour.SELF_SIGNED,
    Behaviour.AS_TOLD,
    Behaviour.HASH_APPROVED,
    Behaviour.SAYS_YES,
    Behaviour.SAYS_NO,
    Behaviour.REVERTS_WITH_NOTHING,
    Behaviour.RETURNS_31_BYTES,
    Behaviour.HITS_INVALID_OPCODE,
)

account_names = st.sampled_from([*KEYS, *DELEGATORS, *WALLETS])
relayer_names = st.sampled_from([*RELAYERS, *KEYS])
salts = st.integers(0, 3).map(lambda number: keccak(text=f"salt {number}"))
signature_names = st.sampled_from(sorted(malformed_signatures(bytes(64) + b"\x1b")))


@dataclass(frozen=True)
class World:
    """What a machine needs that lives longer than it."""

    registry: Registry
    chain: Any
    actors: list[Actor]
    wallets: Mapping[Behaviour, Wallet]

    @property
    def node(self) -> Node:
        return self.registry.node


class MemoryStateMachine(RuleBasedStateMachine):
    spaces = Bundle("spaces")
    signed_ahead = Bundle("signed_ahead")
    accepted_before = Bundle("accepted_before")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.node, self.registry = world.node, world.registry
        self.snapshot = world.chain.snapshot()
        self.first_block = self.node.block_number()
        self.model = self.registry.model()
        self.events: list[Event] = []
        self.actors = dict(zip((*RELAYERS, *KEYS, *DELEGATORS), world.actors, strict=False))
        self.wallets = {name: world.wallets[behaviour] for name, behaviour in WALLETS.items()}
        self.names = {holder.address: name for name, holder in (self.actors | self.wallets).items()}
        owner = next(iter(world.wallets.values())).owner
        self.owner = owner
        self.conducts = {
            wallet.address: Conduct(wallet.behaviour, owner.address, wallet.address) for wallet in self.wallets.values()
        }
        self.model.code.update(self.conducts)
        for name in DELEGATORS:
            address = self.address(name)
            self.conducts[address] = Conduct(Behaviour.SAYS_NO, owner.address, address)

    def teardown(self) -> None:
        self.world.chain.restore(self.snapshot)

    # Helpers

    def address(self, name: str) -> bytes:
        return self.actors[name].address if name in self.actors else self.wallets[name].address

    def perform(self, request: Request, caller: bytes) -> Accepted | Rejection:
        """Let model and registry judge the same call; they have to agree on every bit of the outcome."""
        expected = self.model.apply(request, caller)
        if isinstance(expected, Rejection):
            with self.registry.unchanged():
                if self.is_contract(caller):
                    assert self.registry.ask(request, caller) == expected
                else:
                    assert self.registry.perform(request, caller) == expected
            return expected
        if self.is_contract(caller):
            relayer = self.address(RELAYERS[0])
            assert self.registry.perform_through(caller, request, relayer) == expected
        else:
            assert self.registry.perform(request, caller) == expected
        self.events.append(expected.event)
        return expected

    def is_contract(self, address: bytes) -> bool:
        return self.names.get(address) in self.wallets

    def accepted(self, request: Request, caller: bytes) -> Accepted:
        outcome = self.perform(request, caller)
        assert isinstance(outcome, Accepted), outcome
        return outcome

    def refused(self, request: Request, caller: bytes, error: str) -> None:
        outcome = self.perform(request, caller)
        assert isinstance(outcome, Rejection), outcome
        assert outcome.error == error

    def approved_by(self, account: bytes, request: Request, directly: bool, relayer: str) -> tuple[Request, bytes]:
        """The request with the account's approval, and who sends it. Who cannot sign calls itself."""
        if directly:
            return replace(request, signature=b""), account
        sender = self.address(relayer)
        digest = self.model.digest_of(request)
        name = self.names[account]
        if name in self.actors:
            return replace(request, signature=self.actors[name].sign(digest)), sender
        behaviour = self.wallets[name].behaviour
        if behaviour is Behaviour.OWNER_SIGNED:
            return replace(request, signature=self.owner.sign(digest)), sender
        if behaviour is Behaviour.AS_TOLD:
            self.tell(account, True)
            return replace(request, signature=b"as told"), sender
        if behaviour is Behaviour.HASH_APPROVED:
            self.approve_hash(account, digest)
            return replace(request, signature=b""), sender
        if behaviour in (Behaviour.SAYS_YES, Behaviour.RETURNS_64_BYTES):
            return replace(request, signature=b"any"), sender
        return replace(request, signature=b""), account

    def tell(self, account: bytes, yes: bool) -> None:
        sender = self.address(RELAYERS[0])
        assert self.node.send(account, encode_tell(yes), sender=sender).succeeded
        self.conducts[account].told = yes

    def approve_hash(self, account: bytes, digest: bytes) -> None:
        sender = self.address(RELAYERS[0])
        assert self.node.send(account, encode_approve(digest), sender=sender).succeeded
        self.conducts[account].approved |= {digest}

    def next_delta(self, space_id: bytes, content: Mapping[str, bytes]) -> Delta:
        _, state_root, sequence = self.model.spaces[space_id].head
        return Delta(space_id=space_id, sequence=sequence + 1, prev_state_root=state_root, **content)

    def refused_unless_lenient(self, account: bytes, request: Request, caller: bytes) -> None:
        """A wrong signature ends in InvalidAuthorization; but a wallet may say yes even to that."""
        if not is_approved(account, self.model.digest_of(request), request.signature, caller, self.model.code):
            self.refused(request, caller, "InvalidAuthorization")

    # Every machine begins with two spaces, so that most steps have something to act on

    @initialize(
        target=spaces,
        controller=st.sampled_from(KEYS + DELEGATORS),
        authorizer=st.sampled_from(DELEGATORS),
        relayer=relayer_names,
        behaviour=st.sampled_from(DELEGATES),
    )
    def begin_with_a_space_of_an_account_with_code(self, controller, authorizer, relayer, behaviour):
        self.give_code(self.address(authorizer), behaviour)
        return self.register_a_space(controller, authorizer, keccak(text="first"), False, relayer)

    @initialize(target=spaces, controller=st.sampled_from(KEYS), authorizer=st.sampled_from(sorted(WALLETS)))
    def begin_with_a_space_of_a_wallet(self, controller, authorizer):
        return self.register_a_space(controller, authorizer, keccak(text="second"), True, controller)

    # Right calls

    @rule(
        target=spaces,
        controller=account_names,
        authorizer=account_names,
        salt=salts,
        directly=st.booleans(),
        relayer=relayer_names,
    )
    def register_space(self, controller, authorizer, salt, directly, relayer):
        return self.register_a_space(controller, authorizer, salt, directly, relayer)

    def register_a_space(self, controller, authorizer, salt, directly, relayer):
        account = self.address(controller)
        space_id = derive_space_id(account, salt)
        request, caller = self.approved_by(
            account,
            RegisterSpace(space_id, account, self.address(authorizer), salt),
            directly,
            relayer,
        )
        if space_id in self.model.spaces:
            self.refused(request, caller, "SpaceAlreadyRegistered")
            return multiple()
        self.accepted(request, caller)
        return space_id

    @rule(
        target=accepted_before,
        space_id=spaces,
        new_controller=account_names,
        new_authorizer=account_names,
        directly=st.booleans(),
        relayer=relayer_names,
    )
    def update_space_authorization(self, space_id, new_controller, new_authorizer, directly, relayer):
        request, caller = self.approved_by(
            self.model.spaces[space_id].controller,
            UpdateSpaceAuthorization(space_id, self.address(new_controller), self.address(new_authorizer)),
            directly,
            relayer,
        )
        self.accepted(request, caller)
        return request

    @rule(
        target=accepted_before,
        space_id=spaces,
        content=delta_contents,
        directly=st.booleans(),
        relayer=relayer_names,
    )
    def commit_transition(self, space_id, content, directly, relayer):
        return self.commit(space_id, content, directly, relayer)

    def commit(self, space_id, content, directly, relayer):
        request, caller = self.approved_by(
            self.model.spaces[space_id].authorizer,
            CommitTransition(self.next_delta(space_id, content)),
            directly,
            relayer,
        )
        self.accepted(request, caller)
        return request

    @rule(
        target=accepted_before,
        space_id=spaces,
        contents=st.lists(delta_contents, min_size=2, max_size=4),
        directly=st.booleans(),
        relayer=relayer_names,
    )
    def commit_several_transitions(self, space_id, contents, directly, relayer):
        return multiple(*(self.commit(space_id, content, directly, relayer) for content in contents))

    # Signatures in flight: made now, sent later, whatever has happened between

    @rule(target=signed_ahead, space_id=spaces, content=delta_contents, signer=st.sampled_from(KEYS + DELEGATORS))
    def sign_a_transition_ahead(self, space_id, content, signer):
        request = CommitTransition(self.next_delta(space_id, content))
        return replace(request, signature=self.actors[signer].sign(self.model.digest_of(request)))

    @rule(
        target=signed_ahead,
        space_id=spaces,
        new_controller=account_names,
        new_authorizer=account_names,
        signer=st.sampled_from(KEYS + DELEGATORS),
    )
    def sign_an_update_ahead(self, space_id, new_controller, new_authorizer, signer):
        request = UpdateSpaceAuthorization(space_id, self.address(new_controller), self.address(new_authorizer))
        return replace(request, signature=self.actors[signer].sign(self.model.digest_of(request)))

    @rule(request=signed_ahead, relayer=relayer_names)
    def send_what_was_signed_ahead(self, request, relayer):
        """Right or wrong by now: the model knows."""
        self.perform(request, self.address(relayer))

    # Accounts that change

    @rule(account=st.sampled_from(["wallet_that_as_told", *DELEGATORS]), yes=st.booleans())
    def change_the_mind_of_a_wallet(self, account, yes):
        address = self.address(account)
        if address in self.model.code:
            self.tell(address, yes)

    @rule(account=st.sampled_from(DELEGATORS), behaviour=st.sampled_from(DELEGATES))
    def change_the_code_of_an_account(self, account, behaviour):
        self.give_code(self.address(account), behaviour)

    def give_code(self, address, behaviour):
        if behaviour is None:
            self.node.delegate(address, None)
            self.model.code.pop(address, None)
            return
        self.node.delegate(address, self.world.wallets[behaviour].address)
        self.conducts[address].behaviour = behaviour
        self.model.code[address] = self.conducts[address]

    # Wrong calls, each with the error that it has to end in

    @rule(account=account_names, salt=salts)
    def register_with_zero_space_id(self, account, salt):
        address = self.address(account)
        request = RegisterSpace(ZERO_WORD, address, address, salt)
        self.refused(request, address, "ZeroSpaceId")

    @rule(account=account_names, salt=salts, controller_too=st.booleans())
    def register_with_zero_address(self, account, salt, controller_too):
        address = self.address(account)
        controller = ZERO_ADDRESS if controller_too else address
        request = RegisterSpace(derive_space_id(controller, salt), controller, ZERO_ADDRESS, salt)
        self.refused(request, address, "ZeroAddress")

    @rule(space_id=spaces, account=account_names, salt=salts)
    def register_the_space_of_another(self, space_id, account, salt):
        address = self.address(account)
        if derive_space_id(address, salt) != space_id:
            self.refused(RegisterSpace(space_id, address, address, salt), address, "InvalidSpaceId")

    @rule(controller=account_names, authorizer=account_names, salt=salts, relayer=relayer_names, thief=relayer_names)
    def register_with_another_authorizer_than_signed(self, controller, authorizer, salt, relayer, thief):
        account = self.address(controller)
        space_id = derive_space_id(account, salt)
        request = RegisterSpace(space_id, account, self.address(authorizer), salt)
        if space_id in self.model.spaces or controller not in self.actors or thief in (controller, authorizer):
            return
        signature = self.actors[controller].sign(self.model.digest_of(request))
        stolen = replace(request, authorizer=self.address(thief), signature=signature)
        caller = self.address(relayer)
        self.refused_unless_lenient(account, stolen, caller)

    @rule(space_id=spaces, account=account_names, controller_too=st.booleans())
    def update_to_zero_address(self, space_id, account, controller_too):
        new_controller = ZERO_ADDRESS if controller_too else self.address(account)
        request = UpdateSpaceAuthorization(space_id, new_controller, ZERO_ADDRESS)
        self.refused(request, self.model.spaces[space_id].controller, "ZeroAddress")

    @rule(space_id=words, account=account_names)
    def update_unknown_space(self, space_id, account):
        if space_id not in self.model.spaces:
            address = self.address(account)
            self.refused(UpdateSpaceAuthorization(space_id, address, address), address, "UnknownSpace")

    @rule(space_id=spaces, account=account_names, nonce=uint64s, relayer=relayer_names)
    def update_with_another_nonce(self, space_id, account, nonce, relayer):
        controller, _, config_nonce = self.model.spaces[space_id].authorization
        name = self.names[controller]
        if nonce == config_nonce + 1 or name not in self.actors:
            return
        address = self.address(account)
        message = hash_space_authorization(space_id, address, address, nonce)
        signature = self.actors[name].sign(self.model.digest(message))
        request = UpdateSpaceAuthorization(space_id, address, address, signature)
        caller = self.address(relayer)
        self.refused_unless_lenient(controller, request, caller)

    @rule(delta=deltas, account=account_names)
    def commit_to_unknown_space(self, delta, account):
        if delta.space_id not in self.model.spaces:
            self.refused(CommitTransition(delta), self.address(account), "UnknownSpace")

    @rule(space_id=spaces, content=delta_contents)
    def commit_nothing(self, space_id, content):
        delta = replace(self.next_delta(space_id, content), delta_commitment=ZERO_WORD)
        caller = self.model.spaces[space_id].authorizer
        self.refused(CommitTransition(delta), caller, "ZeroDeltaCommitment")

    @rule(space_id=spaces, content=delta_contents)
    def commit_without_profile(self, space_id, content):
        delta = replace(self.next_delta(space_id, content), profile_id=ZERO_WORD)
        caller = self.model.spaces[space_id].authorizer
        self.refused(CommitTransition(delta), caller, "ZeroProfileId")

    @rule(space_id=spaces, content=delta_contents, off_by=st.sampled_from([-1, 1, 2, 2**32, 2**63]))
    def commit_out_of_sequence(self, space_id, content, off_by):
        delta = self.next_delta(space_id, content)
        delta = replace(delta, sequence=delta.sequence + off_by)
        self.refused(CommitTransition(delta), self.model.spaces[space_id].authorizer, "BadSequence")

    @rule(space_id=spaces, content=delta_contents, other=nonzero_words, place=st.integers(0, 5))
    def commit_on_another_state(self, space_id, content, other, place):
        """An older root of the same space where there is one, else any word."""
        space = self.model.spaces[space_id]
        older = (ZERO_WORD, *space.state_roots)[:-1]
        wrong = older[place % len(older)] if older else other
        delta = replace(self.next_delta(space_id, content), prev_state_root=wrong)
        if wrong != space.head[1]:
            self.refused(CommitTransition(delta), space.authorizer, "BadPreviousState")

    @rule(space_id=spaces, content=delta_contents, signer=st.sampled_from(KEYS + RELAYERS), caller=relayer_names)
    def commit_with_the_signature_of_another(self, space_id, content, signer, caller):
        authorizer = self.model.spaces[space_id].authorizer
        request = CommitTransition(self.next_delta(space_id, content))
        request = replace(request, signature=self.actors[signer].sign(self.model.digest_of(request)))
        self.refused_unless_lenient(authorizer, request, self.address(caller))

    @rule(space_id=spaces, content=delta_contents, defect=signature_names, caller=st.sampled_from(RELAYERS))
    def commit_with_a_malformed_signature(self, space_id, content, defect, caller):
        authorizer = self.model.spaces[space_id].authorizer
        signer = self.actors.get(self.names[authorizer], self.owner)
        request = CommitTransition(self.next_delta(space_id, content))
        signature = signer.sign(self.model.digest_of(request))
        request = replace(request, signature=malformed_signatures(signature)[defect])
        self.refused_unless_lenient(authorizer, request, self.address(caller))

    @rule(space_id=spaces, content=delta_contents, caller=account_names)
    def commit_without_signature_for_another(self, space_id, content, caller):
        authorizer = self.model.spaces[space_id].authorizer
        request = CommitTransition(self.next_delta(space_id, content))
        self.refused_unless_lenient(authorizer, request, self.address(caller))

    @rule(request=accepted_before, relayer=st.sampled_from(RELAYERS))
    def repeat_what_was_accepted(self, request, relayer):
        """A transition stands in the way of its own repetition; an update needs a new nonce, or a lenient wallet."""
        if isinstance(request, CommitTransition):
            self.refused(request, self.address(relayer), "BadSequence")
            return
        controller = self.model.spaces[request.space_id].controller
        self.refused_unless_lenient(controller, request, self.address(relayer))

    @rule(space_id=spaces, delta=deltas, caller=account_names, known=st.booleans())
    def commit_anything(self, space_id, delta, caller, known):
        if known:
            delta = replace(delta, space_id=space_id)
        self.perform(CommitTransition(delta), self.address(caller))

    # What holds after every step

    @invariant()
    def head_matches_model(self):
        for space_id in self.model.spaces:
            assert self.registry.head(space_id) == self.model.head(space_id)

    @invariant()
    def space_authorization_matches_model(self):
        for space_id in self.model.spaces:
            expected = self.model.space_authorization(space_id)
            assert self.registry.space_authorization(space_id) == expected

    @invariant()
    def every_state_root_is_kept(self):
        if not self.registry.has_further_views:
            return
        for space_id, space in self.model.spaces.items():
            for sequence in range(len(space.state_roots) + 2):
                expected = self.model.state_root_at(space_id, sequence)
                assert self.registry.state_root_at(space_id, sequence) == expected

    @invariant()
    def an_unknown_space_stays_unknown(self):
        unknown = keccak(text="unknown")
        assert self.registry.head(unknown) == Rejection("UnknownSpace")
        assert self.registry.space_authorization(unknown) == Rejection("UnknownSpace")

    @invariant()
    def the_log_holds_the_accepted_calls_and_nothing_else(self):
        logs = self.node.logs(self.registry.address, self.first_block)
        assert [decode_event(log) for log in logs] == self.events

    @invariant()
    def sequence_never_skips(self):
        """Read from the events alone, which are those of the log."""
        sequences: dict[bytes, list[int]] = {}
        for event in self.events:
            if event.name == "TransitionCommitted":
                space_id, _, sequence = event.arguments[:3]
                sequences.setdefault(space_id, []).append(sequence)
        for found in sequences.values():
            assert found == list(range(1, len(found) + 1))

    @invariant()
    def the_events_alone_lead_to_every_head(self):
        """Whoever has only the log can rebuild what the views answer."""
        heads: dict[bytes, tuple[bytes, bytes, int]] = {}
        holders: dict[bytes, tuple[bytes, bytes, int]] = {}
        for event in self.events:
            space_id, *rest = event.arguments
            if event.name == "SpaceRegistered":
                assert space_id not in heads
                heads[space_id], holders[space_id] = (ZERO_WORD, ZERO_WORD, 0), (*rest, 0)
            elif event.name == "SpaceAuthorizationUpdated":
                assert rest[-1] == holders[space_id][2] + 1
                holders[space_id] = tuple(rest)
            else:
                transition_id, sequence, prev_state_root, next_state_root = rest[:4]
                assert prev_state_root == heads[space_id][1]
                assert next_state_root == compute_next_state_root(prev_state_root, transition_id)
                assert rest[-1] == holders[space_id][1]
                heads[space_id] = (transition_id, next_state_root, sequence)
        assert heads == {space_id: space.head for space_id, space in self.model.spaces.items()}
        assert holders == {space_id: space.authorization for space_id, space in self.model.spaces.items()}


@pytest.mark.parametrize("name", ["AgentMemoryStateRegistry", "NormativeMemoryRegistry"])
def test_a_registry_keeps_step_with_its_model(name, memory_registries, wallets, actors, chain):
    world = World(memory_registries[name], chain, actors, wallets)
    run_state_machine_as_test(lambda: MemoryStateMachine(world))
