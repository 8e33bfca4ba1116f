// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {IAgentMemoryState} from "./IAgentMemoryState.sol";
import {ISpaceRecord} from "./ISpaceRecord.sol";

/// @title Deletion attestation
/// @notice A space's controller states, once per transition, that what the transition was about has been deleted, and
/// commits to its evidence. It is a statement of that account, nothing more: it proves no deletion, here or anywhere,
/// and never claims that no copy is left. The transition and its commitments stay in the registry.
/// @dev The evidence itself is never taken, only a commitment to it, salted like every other one. Publishing the
/// evidence, or a salt, tells what was deleted.
interface IDeletionAttestation is ISpaceRecord {
    /// @notice `controller` attested a deletion for a transition.
    event DeletionAttested(
        bytes32 indexed spaceId, bytes32 indexed transitionId, bytes32 indexed evidenceCommitment, address controller
    );

    /// @notice The registry does not hold this very delta as a transition of its space.
    error UnknownTransition();
    /// @notice The transition has its attestation, which stays.
    error AlreadyAttested();
    /// @notice The attestation commits to no evidence.
    error EmptyEvidenceCommitment();

    /// @notice Attests a deletion for a transition, once and for good. Callable by the space's controller.
    /// @dev Reverts, in this order: `UnknownTransition` (also for an unknown space), `NotSpaceController`,
    /// `AlreadyAttested`, `EmptyEvidenceCommitment`. Emits `DeletionAttested`. A controller replaced in between can
    /// neither attest nor take back.
    /// @param delta The delta as it was committed, all seven fields. It was, exactly if the registry's `stateRootAt` of
    /// its space and sequence is the root that follows `prevStateRoot` by it.
    /// @param evidenceCommitment Salted commitment to the evidence; never zero.
    function attest(IAgentMemoryState.ExperienceDelta calldata delta, bytes32 evidenceCommitment) external;

    /// @notice The evidence commitment of a transition's attestation.
    /// @return Zero when there is none. Never reverts.
    function evidenceOf(bytes32 transitionId) external view returns (bytes32);
}
