// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Commitment harness
/// @notice For tests only: computes in the EVM the three commitments that nothing on chain ever computes, so that
/// those of a client can be held against them. Calling it with real content would publish the content.
contract CommitmentHarness {
    function computeDeltaCommitment(bytes32 profileId, bytes32 deltaSalt, bytes calldata payload)
        external
        pure
        returns (bytes32)
    {
        return keccak256(
            abi.encode(keccak256("AgentMemoryState.deltaCommitment.v1"), profileId, deltaSalt, keccak256(payload))
        );
    }

    function computeProvenanceCommitment(bytes32 salt, bytes calldata provenance) external pure returns (bytes32) {
        return keccak256(abi.encode(keccak256("AgentMemoryState.provenanceCommitment.v1"), salt, keccak256(provenance)));
    }

    function computeLocatorCommitment(bytes32 salt, string calldata locator) external pure returns (bytes32) {
        return
            keccak256(abi.encode(keccak256("AgentMemoryState.locatorCommitment.v1"), salt, keccak256(bytes(locator))));
    }
}
