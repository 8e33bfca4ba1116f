// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// @title Hashes of Agent Meditation
/// @notice Both hashes of the standard: keccak256 over a domain tag and whole 32-byte words.
library MeditationHash {
    bytes32 internal constant TAG_LAYER_COMMITMENT = keccak256("AgentMeditationMechanism/LayerCommitment/v1");

    function layerCommitment(uint8 layer, bytes32 schemaHash, bytes32 contentHash, bytes32 salt)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(TAG_LAYER_COMMITMENT, layer, schemaHash, contentHash, salt));
    }

    bytes32 internal constant TAG_STATE_ROOT = keccak256("AgentMeditationMechanism/StateRoot/v1");

    function stateRoot(bytes32[4] calldata commitments) internal pure returns (bytes32) {
        return keccak256(abi.encode(TAG_STATE_ROOT, commitments));
    }
}
