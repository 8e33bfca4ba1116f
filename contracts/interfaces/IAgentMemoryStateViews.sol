// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {IAgentMemoryState} from "./IAgentMemoryState.sol";

/// @title Views beside Agent Memory State
/// @notice What this registry answers beyond the standard: the root of every sequence number, so that any contract
/// can check that a delta was committed, and every hash, so that a client can hold its own against the registry's.
/// @dev To check a delta: `root = stateRootAt(delta.spaceId, delta.sequence)`; it was committed exactly if `root` is
/// not zero and equals `computeNextStateRoot(delta.prevStateRoot, hashExperienceDelta(delta))`.
interface IAgentMemoryStateViews {
    /// @notice The state root after transition `sequence` of a space.
    /// @return Zero for an unknown space, for sequence 0 and for a sequence beyond the head. Never reverts.
    function stateRootAt(bytes32 spaceId, uint64 sequence) external view returns (bytes32);

    /// @notice The transition id of a delta: its EIP-712 struct hash, all seven fields included.
    function hashExperienceDelta(IAgentMemoryState.ExperienceDelta calldata delta) external pure returns (bytes32);

    /// @notice The state root that follows `prevStateRoot` by `transitionId`:
    /// keccak256(abi.encode(keccak256("MemoryState(bytes32 prevStateRoot,bytes32 transitionId)"), prevStateRoot,
    /// transitionId)).
    function computeNextStateRoot(bytes32 prevStateRoot, bytes32 transitionId) external pure returns (bytes32);

    /// @notice The struct hash that a controller approves to register a space.
    function hashSpaceRegistration(bytes32 spaceId, address controller, address authorizer)
        external
        pure
        returns (bytes32);

    /// @notice The struct hash that a controller approves to update a space's authorization.
    /// @param nonce The space's `configNonce + 1`.
    function hashSpaceAuthorization(bytes32 spaceId, address newController, address newAuthorizer, uint64 nonce)
        external
        pure
        returns (bytes32);

    /// @notice The EIP-712 domain separator of this registry on the chain it runs on now.
    function domainSeparator() external view returns (bytes32);

    /// @notice The digest that is signed for a struct hash: keccak256(0x1901 || domainSeparator || structHash).
    function signingDigest(bytes32 structHash) external view returns (bytes32);
}
