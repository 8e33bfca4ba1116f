// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {IAgentMemoryState} from "../interfaces/IAgentMemoryState.sol";

/// @title Hashes of Agent Memory State
/// @notice Every hash of the standard: keccak256 over a type hash and whole 32-byte words, in the order of the type.
library MemoryStateHash {
    bytes32 internal constant MEMORY_SPACE_TYPEHASH = keccak256("MemorySpace(address initialController,bytes32 salt)");

    function memorySpace(address initialController, bytes32 salt) internal pure returns (bytes32) {
        return keccak256(abi.encode(MEMORY_SPACE_TYPEHASH, initialController, salt));
    }

    bytes32 internal constant SPACE_REGISTRATION_TYPEHASH =
        keccak256("SpaceRegistration(bytes32 spaceId,address controller,address authorizer)");

    function spaceRegistration(bytes32 spaceId, address controller, address authorizer)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(SPACE_REGISTRATION_TYPEHASH, spaceId, controller, authorizer));
    }

    bytes32 internal constant SPACE_AUTHORIZATION_TYPEHASH =
        keccak256("SpaceAuthorization(bytes32 spaceId,address newController,address newAuthorizer,uint64 nonce)");

    function spaceAuthorization(bytes32 spaceId, address newController, address newAuthorizer, uint64 nonce)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(SPACE_AUTHORIZATION_TYPEHASH, spaceId, newController, newAuthorizer, nonce));
    }

    bytes32 internal constant EXPERIENCE_DELTA_TYPEHASH = keccak256(
        "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,"
        "bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
    );

    /// @dev keccak256(abi.encode(EXPERIENCE_DELTA_TYPEHASH, delta)). The seven members lie in calldata as they are
    /// hashed, so they are copied in one go instead of word by word; reading `sequence` checks that it is a uint64.
    /// A commit costs 475 gas less for it.
    function experienceDelta(IAgentMemoryState.ExperienceDelta calldata delta) internal pure returns (bytes32 hash) {
        bytes32 typeHash = EXPERIENCE_DELTA_TYPEHASH;
        delta.sequence;
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, typeHash)
            calldatacopy(add(words, 0x20), delta, 0xe0)
            hash := keccak256(words, 0x100)
        }
    }

    bytes32 internal constant MEMORY_STATE_TYPEHASH =
        keccak256("MemoryState(bytes32 prevStateRoot,bytes32 transitionId)");

    /// @dev keccak256(abi.encode(MEMORY_STATE_TYPEHASH, prevStateRoot, transitionId)), 154 gas cheaper.
    function memoryState(bytes32 prevStateRoot, bytes32 transitionId) internal pure returns (bytes32 hash) {
        bytes32 typeHash = MEMORY_STATE_TYPEHASH;
        assembly ("memory-safe") {
            let words := mload(0x40)
            mstore(words, typeHash)
            mstore(add(words, 0x20), prevStateRoot)
            mstore(add(words, 0x40), transitionId)
            hash := keccak256(words, 0x60)
        }
    }
}
