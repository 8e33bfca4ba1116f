// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAgentMemoryStateViews} from "../interfaces/IAgentMemoryStateViews.sol";
import {IAuditGrant} from "../interfaces/IAuditGrant.sol";
import {SpaceRecord} from "./SpaceRecord.sol";

/// @title Audit grant
/// @notice What a controller discloses to an auditor, as one root over a range of transitions. See `IAuditGrant`.
contract AuditGrant is IAuditGrant, SpaceRecord {
    /// @dev A grant with an auditor exists. Auditor and the two later times share a slot, so that an acknowledgement and
    /// a revocation write one word each.
    mapping(bytes32 grantId => Grant) private _grants;

    constructor(address registry_) SpaceRecord(registry_) {
        _requireAnswer(abi.encodeCall(IAgentMemoryStateViews.stateRootAt, (0, 0)), 0);
    }

    // Grants

    /// @inheritdoc IAuditGrant
    function grant(bytes32 spaceId, address auditor, uint64 fromSequence, uint64 toSequence, bytes32 witnessSetRoot)
        external
        returns (bytes32 grantId)
    {
        _requireController(spaceId);
        if (auditor == address(0)) revert ZeroAuditor();
        if (fromSequence == 0) revert ZeroFromSequence();
        if (toSequence < fromSequence) revert EmptyRange(fromSequence, toSequence);
        if (_stateRootAt(spaceId, toSequence) == 0) revert RangeBeyondHead(_headSequence(spaceId), toSequence);
        if (witnessSetRoot == 0) revert ZeroWitnessSetRoot();
        grantId = _grantId(spaceId, auditor, fromSequence, toSequence);
        Grant storage made = _grants[grantId];
        if (made.auditor != address(0)) revert GrantAlreadyExists(grantId);

        made.spaceId = spaceId;
        made.witnessSetRoot = witnessSetRoot;
        made.auditor = auditor;
        (made.fromSequence, made.toSequence, made.grantedAt) = (fromSequence, toSequence, uint48(block.timestamp));

        emit AuditGranted(spaceId, auditor, grantId, fromSequence, toSequence, witnessSetRoot);
    }

    /// @inheritdoc IAuditGrant
    function acknowledge(bytes32 spaceId, bytes32 grantId, bytes32 computedRoot) external {
        (Grant storage known, address auditor) = _knownGrant(spaceId, grantId);
        if (msg.sender != auditor) revert NotAuditor(auditor, msg.sender);
        if (known.revokedAt != 0) revert GrantAlreadyRevoked(grantId);
        if (known.acknowledgedAt != 0) revert GrantAlreadyAcknowledged(grantId);
        bytes32 witnessSetRoot = known.witnessSetRoot;
        if (computedRoot != witnessSetRoot) revert WitnessRootMismatch(witnessSetRoot, computedRoot);

        known.acknowledgedAt = uint48(block.timestamp);

        emit AuditAcknowledged(spaceId, auditor, grantId);
    }

    /// @inheritdoc IAuditGrant
    function revoke(bytes32 spaceId, bytes32 grantId) external {
        (Grant storage known, address auditor) = _knownGrant(spaceId, grantId);
        _requireController(spaceId);
        if (known.revokedAt != 0) revert GrantAlreadyRevoked(grantId);

        known.revokedAt = uint48(block.timestamp);

        emit AuditRevoked(spaceId, auditor, grantId);
    }

    // Views

    /// @inheritdoc IAuditGrant
    function grantOf(bytes32 grantId) external view returns (Grant memory) {
        return _grants[grantId];
    }

    /// @inheritdoc IAuditGrant
    function spaceOf(bytes32 grantId) external view returns (bytes32) {
        return _grants[grantId].spaceId;
    }

    /// @inheritdoc IAuditGrant
    function deriveGrantId(bytes32 spaceId, address auditor, uint64 fromSequence, uint64 toSequence)
        external
        pure
        returns (bytes32)
    {
        return _grantId(spaceId, auditor, fromSequence, toSequence);
    }

    bytes32 private constant AUDIT_WITNESS_TYPEHASH =
        keccak256("AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)");

    /// @inheritdoc IAuditGrant
    function foldWitnessRoot(bytes32 prevRoot, bytes32 transitionId, bytes32 witnessHash)
        external
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(AUDIT_WITNESS_TYPEHASH, prevRoot, transitionId, witnessHash));
    }

    // Private

    function _knownGrant(bytes32 spaceId, bytes32 grantId) private view returns (Grant storage known, address auditor) {
        known = _grants[grantId];
        auditor = known.auditor;
        if (auditor == address(0)) revert UnknownGrant(grantId);
        bytes32 grantedSpaceId = known.spaceId;
        if (spaceId != grantedSpaceId) revert GrantOfAnotherSpace(grantedSpaceId, spaceId);
    }

    function _grantId(bytes32 spaceId, address auditor, uint64 fromSequence, uint64 toSequence)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(spaceId, auditor, fromSequence, toSequence));
    }
}
