// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAgentMemoryState} from "../interfaces/IAgentMemoryState.sol";
import {IAgentMemoryStateViews} from "../interfaces/IAgentMemoryStateViews.sol";
import {IDeletionAttestation} from "../interfaces/IDeletionAttestation.sol";
import {MemoryStateHash} from "../libraries/MemoryStateHash.sol";
import {SpaceRecord} from "./SpaceRecord.sol";

/// @title Deletion attestation
/// @notice One statement per transition that what it was about has been deleted. See `IDeletionAttestation`.
contract DeletionAttestation is IDeletionAttestation, SpaceRecord {
    mapping(bytes32 transitionId => bytes32 evidenceCommitment) private _evidence;

    constructor(address registry_) SpaceRecord(registry_) {
        _requireAnswer(abi.encodeCall(IAgentMemoryStateViews.stateRootAt, (0, 0)), 0);
    }

    /// @inheritdoc IDeletionAttestation
    function attest(IAgentMemoryState.ExperienceDelta calldata delta, bytes32 evidenceCommitment) external {
        bytes32 transitionId = MemoryStateHash.experienceDelta(delta);
        // Never equal for a root of zero, which stands for no transition: no hash is zero.
        if (
            _stateRootAt(delta.spaceId, delta.sequence)
                != MemoryStateHash.memoryState(delta.prevStateRoot, transitionId)
        ) revert UnknownTransition();
        _requireController(delta.spaceId);
        if (_evidence[transitionId] != 0) revert AlreadyAttested();
        if (evidenceCommitment == 0) revert EmptyEvidenceCommitment();

        _evidence[transitionId] = evidenceCommitment;

        emit DeletionAttested(delta.spaceId, transitionId, evidenceCommitment, msg.sender);
    }

    /// @inheritdoc IDeletionAttestation
    function evidenceOf(bytes32 transitionId) external view returns (bytes32) {
        return _evidence[transitionId];
    }
}
