// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// @title An optional record about spaces
/// @notice What every optional record shares: it stands beside one Agent Memory State registry, reads it, and never
/// changes it. Who controls a space, and which transitions it has, is what that registry says in the same transaction.
/// @dev The registry is given once, to the constructor, which reverts `InvalidRegistry` unless it answers as one. There
/// is no owner, no pause, no upgrade, and no signature path: a space's controller calls itself. A contract wallet does
/// so by a transaction of its own. An error that the registry itself reverts with is handed on as it is.
interface ISpaceRecord {
    /// @notice The address given does not answer as a registry with all that this record reads.
    error InvalidRegistry(address registry);
    /// @notice The registry knows no such space.
    error UnknownSpace();
    /// @notice The caller is not the space's controller at this moment.
    error NotSpaceController();

    /// @notice The registry that this record reads, for good.
    function registry() external view returns (address);
}
