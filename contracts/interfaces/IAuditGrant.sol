// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ISpaceRecord} from "./ISpaceRecord.sol";

/// @title Audit grant
/// @notice A space's controller commits to what it discloses to an auditor: the witnesses of all transitions from one
/// sequence number to another, in order and without a gap, as one root. Whoever is handed the witnesses folds them and
/// compares: one that was left out, swapped or changed gives another root. The auditor may then record that it did.
/// @dev Witnesses are handed over elsewhere and never seen here, and the root is public from the start. So an
/// acknowledgement says that the auditor's account named the granted root, not that it was handed anything.
///
/// The root is folded over the range in ascending order, starting from zero, one `foldWitnessRoot` per transition.
/// `witnessHash` is the keccak256 of the RFC 8785 bytes of the witness as a JSON object.
///
/// A grant is made once: its id leaves out the root, so another root for the same range and auditor cannot follow,
/// not even after a revocation. It outlives rotations; the controller of the day may revoke what an earlier one granted.
interface IAuditGrant is ISpaceRecord {
    /// @notice What is known of a grant. Times are Unix seconds; 0 is never.
    /// @param spaceId The space that it is about.
    /// @param witnessSetRoot The root that the witnesses of the range fold to.
    /// @param auditor The account that it is made to.
    /// @param acknowledgedAt When the auditor acknowledged it.
    /// @param revokedAt When a controller revoked it.
    /// @param fromSequence The first transition of the range; 1 is the first of the space.
    /// @param toSequence The last one, itself within the range.
    /// @param grantedAt When it was made.
    struct Grant {
        bytes32 spaceId;
        bytes32 witnessSetRoot;
        address auditor;
        uint48 acknowledgedAt;
        uint48 revokedAt;
        uint64 fromSequence;
        uint64 toSequence;
        uint48 grantedAt;
    }

    /// @notice A grant was made.
    event AuditGranted(
        bytes32 indexed spaceId,
        address indexed auditor,
        bytes32 indexed grantId,
        uint64 fromSequence,
        uint64 toSequence,
        bytes32 witnessSetRoot
    );

    /// @notice The auditor states that it computed the granted root.
    event AuditAcknowledged(bytes32 indexed spaceId, address indexed auditor, bytes32 indexed grantId);

    /// @notice A grant was revoked; an acknowledgement made before it stands.
    event AuditRevoked(bytes32 indexed spaceId, address indexed auditor, bytes32 indexed grantId);

    /// @notice The auditor given is the zero address.
    error ZeroAuditor();
    /// @notice The range starts before the first transition, which has number 1.
    error ZeroFromSequence();
    /// @notice The range ends before it starts.
    error EmptyRange(uint64 fromSequence, uint64 toSequence);
    /// @notice The range ends beyond the last transition of the space.
    error RangeBeyondHead(uint64 headSequence, uint64 toSequence);
    /// @notice The root given is zero, which no witness folds to.
    error ZeroWitnessSetRoot();
    /// @notice The same range was granted to the same auditor before.
    error GrantAlreadyExists(bytes32 grantId);
    /// @notice No such grant was made here.
    error UnknownGrant(bytes32 grantId);
    /// @notice The grant is about another space than the one given.
    error GrantOfAnotherSpace(bytes32 expected, bytes32 received);
    /// @notice The caller is not the auditor of the grant.
    error NotAuditor(address expected, address received);
    /// @notice The grant was revoked before.
    error GrantAlreadyRevoked(bytes32 grantId);
    /// @notice The auditor acknowledged the grant before.
    error GrantAlreadyAcknowledged(bytes32 grantId);
    /// @notice The auditor computed another root than the granted one.
    error WitnessRootMismatch(bytes32 expected, bytes32 received);

    /// @notice Grants an auditor the range from `fromSequence` to `toSequence`, both within it. Callable by the space's
    /// controller.
    /// @dev Reverts, in this order: `UnknownSpace`, `NotSpaceController`, `ZeroAuditor`, `ZeroFromSequence`,
    /// `EmptyRange`, `RangeBeyondHead`, `ZeroWitnessSetRoot`, `GrantAlreadyExists`. Emits `AuditGranted`. The auditor's
    /// consent is not asked, and any account may be named.
    /// @param spaceId The space.
    /// @param auditor The account that may acknowledge; not zero.
    /// @param fromSequence The first transition, at least 1.
    /// @param toSequence The last one, at most the space's head.
    /// @param witnessSetRoot The root that the witnesses of the range fold to; not zero, and not judged here.
    /// @return grantId `deriveGrantId` of the first four.
    function grant(bytes32 spaceId, address auditor, uint64 fromSequence, uint64 toSequence, bytes32 witnessSetRoot)
        external
        returns (bytes32 grantId);

    /// @notice Records that the auditor computed the granted root, once. Callable by the grant's auditor, whoever
    /// controls the space by then.
    /// @dev Reverts, in this order: `UnknownGrant`, `GrantOfAnotherSpace`, `NotAuditor`, `GrantAlreadyRevoked`,
    /// `GrantAlreadyAcknowledged`, `WitnessRootMismatch`. Emits `AuditAcknowledged`. Another root leaves no record: an
    /// acknowledgement always means the granted one, and that there is none means nothing.
    /// @param spaceId The space that the auditor believes the grant to be about.
    /// @param grantId The grant.
    /// @param computedRoot The root that the auditor folded from the witnesses it was given.
    function acknowledge(bytes32 spaceId, bytes32 grantId, bytes32 computedRoot) external;

    /// @notice Revokes a grant, once: it can no longer be acknowledged, and never be made again. Callable by the space's
    /// controller, also after an acknowledgement, which stands. What the auditor was handed, it keeps.
    /// @dev Reverts, in this order: `UnknownGrant`, `GrantOfAnotherSpace`, `NotSpaceController`, `GrantAlreadyRevoked`.
    /// Emits `AuditRevoked`.
    /// @param spaceId The space that the grant is about.
    /// @param grantId The grant.
    function revoke(bytes32 spaceId, bytes32 grantId) external;

    /// @notice All that is known of a grant.
    /// @return Zeros when there is none. Never reverts.
    function grantOf(bytes32 grantId) external view returns (Grant memory);

    /// @notice The space that a grant is about.
    /// @return Zero when there is none. Never reverts.
    function spaceOf(bytes32 grantId) external view returns (bytes32);

    /// @notice The id of a grant: keccak256(abi.encode(spaceId, auditor, fromSequence, toSequence)). Of any values, also
    /// those that `grant` refuses. It names neither chain nor registry: a reference to a grant has to.
    function deriveGrantId(bytes32 spaceId, address auditor, uint64 fromSequence, uint64 toSequence)
        external
        pure
        returns (bytes32);

    /// @notice The root that follows `prevRoot` by one witness:
    /// keccak256(abi.encode(keccak256("AuditWitness(bytes32 prevRoot,bytes32 transitionId,bytes32 witnessHash)"),
    /// prevRoot, transitionId, witnessHash)). `prevRoot` is zero for the first transition of a range.
    function foldWitnessRoot(bytes32 prevRoot, bytes32 transitionId, bytes32 witnessHash)
        external
        pure
        returns (bytes32);
}
