// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The part of an ERC-8004 identity registry that a mirror touches
/// @notice Agents with an owner, and metadata that only the owner writes. For tests.
contract IdentityRegistryMock {
    uint256 private _count;
    mapping(uint256 agentId => address owner) private _owners;
    mapping(uint256 agentId => mapping(string metadataKey => bytes metadataValue)) private _metadata;

    event Registered(uint256 indexed agentId, string agentURI, address indexed owner);
    event MetadataSet(
        uint256 indexed agentId, string indexed indexedMetadataKey, string metadataKey, bytes metadataValue
    );

    error NoSuchAgent(uint256 agentId);
    error NotOwner(address expected, address received);

    /// @notice Makes the caller the owner of a new agent. The first is agent 0.
    function register() external returns (uint256 agentId) {
        agentId = _count++;
        _owners[agentId] = msg.sender;
        emit Registered(agentId, "", msg.sender);
    }

    /// @notice Writes one entry of an agent's metadata, as its owner.
    function setMetadata(uint256 agentId, string calldata metadataKey, bytes calldata metadataValue) external {
        if (ownerOf(agentId) != msg.sender) revert NotOwner(ownerOf(agentId), msg.sender);

        _metadata[agentId][metadataKey] = metadataValue;

        emit MetadataSet(agentId, metadataKey, metadataKey, metadataValue);
    }

    /// @notice One entry of an agent's metadata; empty for none.
    function getMetadata(uint256 agentId, string calldata metadataKey) external view returns (bytes memory) {
        return _metadata[agentId][metadataKey];
    }

    /// @notice The owner of an agent. Reverts `NoSuchAgent`.
    function ownerOf(uint256 agentId) public view returns (address owner) {
        owner = _owners[agentId];
        if (owner == address(0)) revert NoSuchAgent(agentId);
    }
}
