// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAgentMemoryState} from "../interfaces/IAgentMemoryState.sol";
import {IAgentMemoryStateViews} from "../interfaces/IAgentMemoryStateViews.sol";
import {ISpaceRecord} from "../interfaces/ISpaceRecord.sol";
import {MemoryStateHash} from "../libraries/MemoryStateHash.sol";

/// @title Base of the optional records
/// @notice The registry that a record reads, and the one rule on who may write. See `ISpaceRecord`.
abstract contract SpaceRecord is ISpaceRecord {
    address private immutable REGISTRY;

    /// @dev A registry is known by the one pure function of the standard, asked with a known answer.
    constructor(address registry_) {
        REGISTRY = registry_;
        _requireAnswer(
            abi.encodeCall(IAgentMemoryState.deriveSpaceId, (address(1), 0)), MemoryStateHash.memorySpace(address(1), 0)
        );
    }

    /// @inheritdoc ISpaceRecord
    function registry() external view returns (address) {
        return REGISTRY;
    }

    // Internal

    /// @dev For constructors: what the registry has to answer, else `InvalidRegistry`. Whoever lacks code answers
    /// nothing.
    function _requireAnswer(bytes memory question, bytes32 expected) internal view {
        // solhint-disable-next-line avoid-low-level-calls
        (bool success, bytes memory answer) = REGISTRY.staticcall(question);
        if (!success || answer.length != 32 || bytes32(answer) != expected) revert InvalidRegistry(REGISTRY);
    }

    /// @dev A registry that knows no unknown spaces answers zeros; ours reverts, with an error of the same name.
    function _requireController(bytes32 spaceId) internal view {
        (address controller,,) = IAgentMemoryState(REGISTRY).spaceAuthorization(spaceId);
        if (controller == address(0)) revert UnknownSpace();
        if (msg.sender != controller) revert NotSpaceController();
    }

    function _stateRootAt(bytes32 spaceId, uint64 sequence) internal view returns (bytes32) {
        return IAgentMemoryStateViews(REGISTRY).stateRootAt(spaceId, sequence);
    }

    function _headSequence(bytes32 spaceId) internal view returns (uint64 sequence) {
        (,, sequence) = IAgentMemoryState(REGISTRY).head(spaceId);
    }
}
