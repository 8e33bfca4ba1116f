// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ISpaceDescriptor} from "../interfaces/ISpaceDescriptor.sol";
import {SpaceRecord} from "./SpaceRecord.sol";

/// @title Space descriptor
/// @notice A public URI per space, and the hash of what stands there. See `ISpaceDescriptor`.
contract SpaceDescriptor is ISpaceDescriptor, SpaceRecord {
    struct Descriptor {
        /// Zero means that there is none.
        bytes32 contentHash;
        string uri;
    }

    /// @dev Storing costs 700 gas for each byte; what reads a descriptor in a contract pays for all of it.
    uint256 private constant MAX_URI_BYTES = 2048;

    mapping(bytes32 spaceId => Descriptor) private _descriptors;

    constructor(address registry_) SpaceRecord(registry_) {}

    /// @inheritdoc ISpaceDescriptor
    function publish(bytes32 spaceId, string calldata uri, bytes32 contentHash) external {
        _requireController(spaceId);
        _requireUri(bytes(uri));
        if (contentHash == 0) revert ZeroContentHash();

        Descriptor storage descriptor = _descriptors[spaceId];
        descriptor.contentHash = contentHash;
        descriptor.uri = uri;

        emit DescriptorPublished(spaceId, contentHash, msg.sender, uri);
    }

    /// @inheritdoc ISpaceDescriptor
    function clear(bytes32 spaceId) external {
        _requireController(spaceId);
        if (_descriptors[spaceId].contentHash == 0) revert NoDescriptor(spaceId);

        delete _descriptors[spaceId];

        emit DescriptorCleared(spaceId, msg.sender);
    }

    /// @inheritdoc ISpaceDescriptor
    function descriptorOf(bytes32 spaceId) external view returns (string memory uri, bytes32 contentHash) {
        Descriptor storage descriptor = _descriptors[spaceId];
        return (descriptor.uri, descriptor.contentHash);
    }

    // Private

    function _requireUri(bytes calldata uri) private pure {
        if (uri.length == 0) revert EmptyUri();
        if (uri.length > MAX_URI_BYTES) revert UriTooLong(MAX_URI_BYTES, uri.length);
        for (uint256 index = 0; index < uri.length; ++index) {
            uint8 character = uint8(uri[index]);
            if (character < 0x21 || character > 0x7e) revert InvalidUriCharacter(index, character);
        }
    }
}
