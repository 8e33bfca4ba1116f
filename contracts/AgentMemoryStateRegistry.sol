// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {IAgentMemoryState} from "./interfaces/IAgentMemoryState.sol";
import {IAgentMemoryStateViews} from "./interfaces/IAgentMemoryStateViews.sol";
import {Approval} from "./libraries/Approval.sol";
import {MemoryStateHash} from "./libraries/MemoryStateHash.sol";

/// @title Agent Memory State registry
/// @notice Where each private memory change becomes a signed, ordered, salted commitment. See `IAgentMemoryState`.
contract AgentMemoryStateRegistry is IAgentMemoryState, IAgentMemoryStateViews, EIP712 {
    /// @dev The least that answers `head` and `stateRootAt`: three words, and one root per transition. The current
    /// root is the last of them; `stateRoots[0]` is never written.
    struct Space {
        /// Authorizer (low 160 bits) and sequence (next 64): what a commit reads and writes. One plain word, because
        /// a commit that wrote a member of a packed struct would read the word once more. Zero means unknown space.
        uint256 tip;
        address controller;
        uint64 configNonce;
        bytes32 transitionId;
        mapping(uint256 sequence => bytes32 stateRoot) stateRoots;
    }

    mapping(bytes32 spaceId => Space space) private _spaces;

    constructor() EIP712("AgentMemoryState", "1") {}

    // Spaces

    /// @inheritdoc IAgentMemoryState
    function registerSpace(
        bytes32 spaceId,
        address controller,
        address authorizer,
        bytes32 salt,
        bytes calldata controllerSignature
    ) external {
        if (spaceId == 0) revert ZeroSpaceId();
        if (controller == address(0) || authorizer == address(0)) revert ZeroAddress();
        bytes32 derivedId = MemoryStateHash.memorySpace(controller, salt);
        if (spaceId != derivedId) revert InvalidSpaceId(derivedId, spaceId);
        Space storage space = _spaces[spaceId];
        if (space.tip != 0) revert SpaceAlreadyRegistered();
        _requireApproval(
            controller, MemoryStateHash.spaceRegistration(spaceId, controller, authorizer), controllerSignature
        );

        space.tip = _packTip(authorizer, 0);
        space.controller = controller;

        emit SpaceRegistered(spaceId, controller, authorizer);
    }

    /// @inheritdoc IAgentMemoryState
    function updateSpaceAuthorization(
        bytes32 spaceId,
        address newController,
        address newAuthorizer,
        bytes calldata controllerSignature
    ) external {
        if (newController == address(0) || newAuthorizer == address(0)) revert ZeroAddress();
        (Space storage space,, uint256 sequence) = _knownSpace(spaceId);
        uint64 nonce = space.configNonce + 1;
        _requireApproval(
            space.controller,
            MemoryStateHash.spaceAuthorization(spaceId, newController, newAuthorizer, nonce),
            controllerSignature
        );

        space.tip = _packTip(newAuthorizer, sequence);
        space.controller = newController;
        space.configNonce = nonce;

        emit SpaceAuthorizationUpdated(spaceId, newController, newAuthorizer, nonce);
    }

    // Transitions

    /// @inheritdoc IAgentMemoryState
    function commitTransition(ExperienceDelta calldata delta, bytes calldata authorizerSignature)
        external
        returns (bytes32 transitionId, bytes32 nextStateRoot)
    {
        (Space storage space, address authorizer, uint256 headSequence) = _knownSpace(delta.spaceId);
        if (delta.deltaCommitment == 0) revert ZeroDeltaCommitment();
        if (delta.profileId == 0) revert ZeroProfileId();
        uint256 sequence = headSequence + 1;
        if (delta.sequence != sequence) revert BadSequence(uint64(sequence), delta.sequence);
        bytes32 stateRoot = _stateRoot(space, headSequence);
        if (delta.prevStateRoot != stateRoot) revert BadPreviousState(stateRoot, delta.prevStateRoot);
        transitionId = MemoryStateHash.experienceDelta(delta);
        _requireApproval(authorizer, transitionId, authorizerSignature);

        nextStateRoot = MemoryStateHash.memoryState(stateRoot, transitionId);
        space.tip = _packTip(authorizer, sequence);
        space.transitionId = transitionId;
        space.stateRoots[sequence] = nextStateRoot;

        emit TransitionCommitted(
            delta.spaceId,
            transitionId,
            uint64(sequence),
            stateRoot,
            nextStateRoot,
            delta.deltaCommitment,
            delta.provenanceCommitment,
            delta.profileId,
            delta.locatorCommitment,
            authorizer
        );
    }

    // Views

    /// @inheritdoc IAgentMemoryState
    function head(bytes32 spaceId) external view returns (bytes32 transitionId, bytes32 stateRoot, uint64 sequence) {
        (Space storage space,, uint256 headSequence) = _knownSpace(spaceId);
        return (space.transitionId, _stateRoot(space, headSequence), uint64(headSequence));
    }

    /// @inheritdoc IAgentMemoryState
    function spaceAuthorization(bytes32 spaceId)
        external
        view
        returns (address controller, address authorizer, uint64 configNonce)
    {
        Space storage space;
        (space, authorizer,) = _knownSpace(spaceId);
        return (space.controller, authorizer, space.configNonce);
    }

    /// @inheritdoc IAgentMemoryState
    function deriveSpaceId(address initialController, bytes32 salt) external pure returns (bytes32) {
        if (initialController == address(0)) revert ZeroAddress();
        return MemoryStateHash.memorySpace(initialController, salt);
    }

    /// @inheritdoc IAgentMemoryStateViews
    function stateRootAt(bytes32 spaceId, uint64 sequence) external view returns (bytes32) {
        return _spaces[spaceId].stateRoots[sequence];
    }

    /// @inheritdoc IAgentMemoryStateViews
    function hashExperienceDelta(ExperienceDelta calldata delta) external pure returns (bytes32) {
        return MemoryStateHash.experienceDelta(delta);
    }

    /// @inheritdoc IAgentMemoryStateViews
    function computeNextStateRoot(bytes32 prevStateRoot, bytes32 transitionId) external pure returns (bytes32) {
        return MemoryStateHash.memoryState(prevStateRoot, transitionId);
    }

    /// @inheritdoc IAgentMemoryStateViews
    function hashSpaceRegistration(bytes32 spaceId, address controller, address authorizer)
        external
        pure
        returns (bytes32)
    {
        return MemoryStateHash.spaceRegistration(spaceId, controller, authorizer);
    }

    /// @inheritdoc IAgentMemoryStateViews
    function hashSpaceAuthorization(bytes32 spaceId, address newController, address newAuthorizer, uint64 nonce)
        external
        pure
        returns (bytes32)
    {
        return MemoryStateHash.spaceAuthorization(spaceId, newController, newAuthorizer, nonce);
    }

    /// @inheritdoc IAgentMemoryStateViews
    function domainSeparator() external view returns (bytes32) {
        return _domainSeparatorV4();
    }

    /// @inheritdoc IAgentMemoryStateViews
    function signingDigest(bytes32 structHash) external view returns (bytes32) {
        return _hashTypedDataV4(structHash);
    }

    // Private

    function _requireApproval(address account, bytes32 structHash, bytes calldata signature) private view {
        if (!Approval.isApproved(account, _hashTypedDataV4(structHash), signature)) revert InvalidAuthorization();
    }

    function _knownSpace(bytes32 spaceId)
        private
        view
        returns (Space storage space, address authorizer, uint256 sequence)
    {
        space = _spaces[spaceId];
        uint256 tip = space.tip;
        if (tip == 0) revert UnknownSpace();
        return (space, address(uint160(tip)), tip >> 160);
    }

    function _packTip(address authorizer, uint256 sequence) private pure returns (uint256) {
        return sequence << 160 | uint160(authorizer);
    }

    /// @dev The root before the first transition is zero, and needs no read.
    function _stateRoot(Space storage space, uint256 sequence) private view returns (bytes32) {
        return sequence == 0 ? bytes32(0) : space.stateRoots[sequence];
    }
}
