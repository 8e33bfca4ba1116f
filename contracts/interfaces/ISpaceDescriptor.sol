// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ISpaceRecord} from "./ISpaceRecord.sol";

/// @title Space descriptor
/// @notice Where a space's controller says what the space is: a URI, and the hash of what stands there. Public by nature
/// and for ever, like all calldata: a URI that should not be known does not belong here, and clearing hides nothing.
/// @dev Nothing is fetched or compared here. Whoever reads the URI has to hash what it gets before it believes it, and
/// believes the controller's account then, not the registry.
interface ISpaceDescriptor is ISpaceRecord {
    /// @notice A descriptor was published; it replaces the one before it.
    event DescriptorPublished(
        bytes32 indexed spaceId, bytes32 indexed contentHash, address indexed controller, string uri
    );

    /// @notice A space has no descriptor any more.
    event DescriptorCleared(bytes32 indexed spaceId, address indexed controller);

    /// @notice The URI given is empty; `clear` takes a descriptor away.
    error EmptyUri();
    /// @notice The URI given has more bytes than a descriptor holds.
    error UriTooLong(uint256 maximum, uint256 received);
    /// @notice The byte of the URI at `index`, from 0, is no printable ASCII character, or a space.
    error InvalidUriCharacter(uint256 index, uint8 received);
    /// @notice The descriptor does not say what stands at its URI.
    error ZeroContentHash();
    /// @notice The space has no descriptor to clear.
    error NoDescriptor(bytes32 spaceId);

    /// @notice Publishes a space's descriptor in place of the current one. Callable by the space's controller.
    /// @dev Reverts, in this order: `UnknownSpace`, `NotSpaceController`, `EmptyUri`, `UriTooLong`,
    /// `InvalidUriCharacter`, `ZeroContentHash`. Emits `DescriptorPublished`, also when nothing changes.
    /// @param spaceId The space.
    /// @param uri At most 2,048 bytes from 0x21 to 0x7e: all that RFC 3986 lets stand in a URI, and nothing that a
    /// reader could show wrongly. Beyond that its form is not judged.
    /// @param contentHash keccak256 of the bytes that the URI leads to; never zero.
    function publish(bytes32 spaceId, string calldata uri, bytes32 contentHash) external;

    /// @notice Takes a space's descriptor away; the events that told of it stay. Callable by the space's controller.
    /// @dev Reverts, in this order: `UnknownSpace`, `NotSpaceController`, `NoDescriptor`. Emits `DescriptorCleared`.
    /// @param spaceId The space.
    function clear(bytes32 spaceId) external;

    /// @notice A space's current descriptor. It stays through a rotation until the new controller changes it.
    /// @return uri Empty when there is none. Never reverts.
    /// @return contentHash Zero when there is none.
    function descriptorOf(bytes32 spaceId) external view returns (string memory uri, bytes32 contentHash);
}
