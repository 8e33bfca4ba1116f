// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// @dev What a controller may do to a subject's requirements: a bitmask, fixed at its appointment, only ever shrunk.
uint8 constant RIGHT_FLOOR = 1;
uint8 constant RIGHT_DEMAND = 2;
uint8 constant RIGHT_REVOKE_OPERATORS = 4;

/// @dev What an operator may do in a subject's name: a bitmask. `PERM_REPORT` includes pulses.
uint8 constant PERM_REPORT = 1;
uint8 constant PERM_PULSE = 2;
uint8 constant PERM_POLICY = 4;

/// @title Agent Meditation
/// @notice A registry in which an agent records how it maintains itself: what it promised to check (policy), what it
/// registered as its state (one commitment for each of four layers), and what it completed when (cycle records).
/// Everything here is the subject's own claim, attributed and ordered in time. The registry shows that a record links
/// to the registered state and to the policy of its time; it cannot show that a routine ran or that it did any good.
/// @dev Layers: 0 runtime, 1 memory and skills, 2 tasks and roles, 3 cognition. A mask of layers has bit `1 << layer`.
///
/// Times are seconds of `clock()`. Reported times come from the submitter; recorded times are read from the clock.
///
/// Who writes: the subject about itself; an operator within the permissions that the subject granted; a controller
/// only requirements and demands, within its rights. A controller never submits a record, whatever else it was granted.
///
/// Views about what does not exist (a subject, a version, a demand) answer zeros. A layer index above 3 reverts
/// `InvalidLayer` everywhere. Deadlines that would pass 2^48-1 stop there, so no stored value makes a status revert.
interface IAgentMeditation {
    /// @notice How a cycle as a whole ended. Which layers were completed is a separate fact.
    enum Outcome {
        COMPLETED,
        PARTIAL,
        ABORTED,
        FAILED
    }

    /// @notice How timely a layer's registered maintenance is. FRESH says nothing about health or ability.
    enum MaintenanceStatus {
        NOT_ENROLLED,
        UNSUPPORTED,
        UNSCHEDULED,
        FRESH,
        DUE,
        OVERDUE
    }

    /// @notice Whether a sign of activity came within the interval that the subject keeps.
    enum SignalStatus {
        NOT_ENROLLED,
        NOT_TRACKED,
        PRESENT,
        SILENT
    }

    /// @notice What a subject declares about its own maintenance.
    /// @param policyHash Commitment to the policy document; zero when there is none.
    /// @param policyURI Where the document is kept; empty when that is not said.
    /// @param supportedLayers The layers it maintains: at least one, within 0x0F.
    /// @param requiredLayers Those of them that have to be completed in time.
    /// @param allowedTriggers What may start a cycle, bit `1 << trigger`: at least one, within 0x0F.
    /// @param disclosure How much it shows: 0 commitments only, 1 a summary, 2 everything.
    /// @param dueWindow How many seconds before its deadline a layer is called DUE.
    /// @param pulseInterval How many seconds may pass between signals; 0 tracks none.
    /// @param maxInterval How many seconds may pass between completions, by layer; not zero where required.
    struct Policy {
        bytes32 policyHash;
        string policyURI;
        uint8 supportedLayers;
        uint8 requiredLayers;
        uint8 allowedTriggers;
        uint8 disclosure;
        uint48 dueWindow;
        uint48 pulseInterval;
        uint48[4] maxInterval;
    }

    /// @notice The least that a controller requires; no policy relaxes it.
    /// @param requiredLayers Layers that have to be completed in time, whether the policy supports them or not.
    /// @param pulseInterval How many seconds may pass between signals; 0 requires none.
    /// @param maxInterval How many seconds may pass between completions, by layer; not zero where required.
    struct Floor {
        uint8 requiredLayers;
        uint48 pulseInterval;
        uint48[4] maxInterval;
    }

    /// @notice What is registered about one layer of one subject.
    /// @param commitment The current commitment to the layer's state document.
    /// @param lastCompletedAt Reported end of the last completed routine; 0 means never.
    /// @param lastCompletedRecordedAt When that completion was recorded.
    /// @param completedUnderPolicy The policy version that governed it.
    /// @param lastChangedVersion The state version that brought the current commitment; 1 is the baseline.
    struct LayerCheckpoint {
        bytes32 commitment;
        uint48 lastCompletedAt;
        uint48 lastCompletedRecordedAt;
        uint32 completedUnderPolicy;
        uint64 lastChangedVersion;
    }

    /// @notice One run of maintenance, as it is registered.
    /// @param baseVersion The state version that the cycle started from.
    /// @param preRoot The root of that version.
    /// @param postCommitments The commitments of all four layers after the cycle.
    /// @param layerMask The layers in scope.
    /// @param completedLayers Those of them whose routine was completed.
    /// @param opsMask What was done where, bit `layer * 4 + op`: 0 clean, 1 repair, 2 update, 3 iterate; may be zero.
    /// @param outcome An `Outcome`, as a number.
    /// @param trigger What started it: 0 schedule, 1 event, 2 command, 3 itself.
    /// @param policyVersion The policy version in effect when it started.
    /// @param reportedStartedAt When it started.
    /// @param reportedEndedAt When it ended, which is when every completed layer was completed.
    /// @param nextPlannedAt When the next one is planned; a hint that binds nobody, 0 for none.
    /// @param restoresVersion The earlier state version whose state it restores; 0 when it restores none.
    /// @param recordHash Commitment to the cycle record document; zero when there is none.
    /// @param recordURI Where the document is kept; empty when that is not said.
    struct CycleReport {
        uint64 baseVersion;
        bytes32 preRoot;
        bytes32[4] postCommitments;
        uint8 layerMask;
        uint8 completedLayers;
        uint16 opsMask;
        uint8 outcome;
        uint8 trigger;
        uint32 policyVersion;
        uint48 reportedStartedAt;
        uint48 reportedEndedAt;
        uint48 nextPlannedAt;
        uint64 restoresVersion;
        bytes32 recordHash;
        string recordURI;
    }

    /// @notice Where a subject stands.
    /// @param enrolled Whether it ever enrolled; everything else is zero if not.
    /// @param controller Its controller; zero when there is none.
    /// @param controllerRights The rights that controller holds.
    /// @param policyVersion The current policy version; the first is 1.
    /// @param floorVersion How often a floor was set.
    /// @param stateVersion The current state version; the baseline is 1.
    /// @param recordCount How many cycle records and pulses there are.
    /// @param root The root of the current state version.
    /// @param enrolledAt When it enrolled.
    /// @param lastSignalAt When the last record or pulse was recorded, or the enrollment.
    /// @param nextPlannedAt The planning hint of the last record or pulse.
    struct Head {
        bool enrolled;
        address controller;
        uint8 controllerRights;
        uint32 policyVersion;
        uint32 floorVersion;
        uint64 stateVersion;
        uint64 recordCount;
        bytes32 root;
        uint48 enrolledAt;
        uint48 lastSignalAt;
        uint48 nextPlannedAt;
    }

    /// @notice A controller's outstanding request to complete a layer.
    /// @param demandedAt When it was made; 0 means there is none.
    /// @param dueBy The deadline it sets.
    struct Demand {
        uint48 demandedAt;
        uint48 dueBy;
    }

    /// @notice What holds for a subject now: its policy joined with the floor.
    /// @param supportedLayers The policy's.
    /// @param requiredLayers Required by either.
    /// @param dueWindow The policy's.
    /// @param pulseInterval The shorter of the two that are not zero.
    /// @param maxInterval By layer, the shorter one of those who require it; 0 where nobody does.
    struct Requirements {
        uint8 supportedLayers;
        uint8 requiredLayers;
        uint48 dueWindow;
        uint48 pulseInterval;
        uint48[4] maxInterval;
    }

    /// @notice A subject enrolled, with its baseline as state version 1.
    event Enrolled(
        address indexed subject, address indexed controller, uint8 controllerRights, bytes32 root, uint48 enrolledAt
    );

    /// @notice A subject's controller or the rights it holds were set; zero for no controller.
    event ControllerChanged(
        address indexed subject, address indexed previousController, address indexed newController, uint8 rights
    );

    /// @notice An operator's permissions were set; 0 is a revocation.
    event OperatorSet(address indexed subject, address indexed operator, uint8 permissions, address indexed by);

    /// @notice A policy version is in effect from `effectiveFrom` on.
    event PolicyUpdated(
        address indexed subject, uint32 indexed version, bytes32 policyHash, uint48 effectiveFrom, address by
    );

    /// @notice A floor replaced the one before it.
    event FloorUpdated(address indexed subject, uint32 indexed version, uint48 effectiveFrom, address by);

    /// @notice A controller requests completion of layers.
    event Demanded(address indexed subject, uint8 layerMask, uint48 dueBy, address by);

    /// @notice A controller no longer requests completion of layers.
    event DemandWithdrawn(address indexed subject, uint8 layerMask, address by);

    /// @notice A cycle was registered, the record in full. `newVersion` equals `baseVersion` if no layer changed.
    event CycleRecorded(
        address indexed subject,
        uint64 indexed seq,
        uint64 baseVersion,
        uint64 newVersion,
        CycleReport report,
        uint8 changedLayers,
        uint48 recordedAt,
        address submitter
    );

    /// @notice A layer has another commitment from state version `version` on.
    event LayerCommitmentChanged(
        address indexed subject,
        uint8 indexed layer,
        uint64 indexed version,
        bytes32 previousCommitment,
        bytes32 newCommitment
    );

    /// @notice A signal without maintenance content.
    event Pulsed(
        address indexed subject, uint64 indexed seq, uint48 recordedAt, uint48 nextPlannedAt, address submitter
    );

    /// @notice Nobody enrolled under this address.
    error NotEnrolled(address subject);
    /// @notice The subject enrolled before.
    error AlreadyEnrolled(address subject);
    /// @notice Without a controller, only the subject may do this.
    error NotSubject(address expected, address received);
    /// @notice Only the controller may do this; zero is expected when there is none.
    error NotController(address expected, address received);
    /// @notice The controller lacks a right.
    error MissingRight(uint8 required, uint8 held);
    /// @notice The caller is not the subject and holds none of the permissions of which one is required.
    error MissingPermission(uint8 required, uint8 held);
    /// @notice The subject's controller tried to submit in the subject's name.
    error ControllerCannotSubmit(address controller);

    /// @notice Rights outside those that can be given here: all of them at an appointment, those held at a transfer.
    error InvalidRights(uint8 allowed, uint8 received);
    /// @notice A subject cannot be its own controller.
    error ControllerIsSubject(address subject);
    /// @notice Rights were given to nobody.
    error RightsWithoutController(uint8 rights);
    /// @notice Neither the zero address nor the subject itself can be an operator.
    error InvalidOperator(address operator);
    /// @notice Permissions outside those that exist.
    error InvalidPermissions(uint8 allowed, uint8 received);

    /// @notice There is no such layer.
    error InvalidLayer(uint8 layer);
    /// @notice The mask names layers that do not exist, or none where at least one is needed.
    error InvalidLayerMask(uint8 layerMask);
    /// @notice The policy requires layers that it does not support.
    error RequiredNotSupported(uint8 supportedLayers, uint8 requiredLayers);
    /// @notice The policy allows no trigger, or one that does not exist.
    error InvalidTriggers(uint8 allowedTriggers);
    /// @notice The policy names a disclosure level that does not exist.
    error InvalidDisclosure(uint8 maximum, uint8 received);
    /// @notice A required layer has no interval.
    error MissingInterval(uint8 layer);
    /// @notice The time that a demand sets has come already.
    error DueByNotInFuture(uint48 current, uint48 dueBy);

    /// @notice A layer was completed that was not in scope.
    error CompletedOutsideScope(uint8 layerMask, uint8 completedLayers);
    /// @notice An operation was done on a layer that was not in scope.
    error OpsOutsideScope(uint8 layerMask, uint16 opsMask);
    /// @notice The outcome does not exist or contradicts what was completed.
    error InconsistentOutcome(uint8 outcome, uint8 layerMask, uint8 completedLayers);
    /// @notice There is no such policy version; the current one is the last.
    error UnknownPolicyVersion(uint32 current, uint32 received);
    /// @notice The cycle started before its policy version took effect.
    error PolicyNotYetEffective(uint48 effectiveFrom, uint48 reportedStartedAt);
    /// @notice The cycle started when a later policy version had taken effect.
    error PolicySuperseded(uint48 supersededAt, uint48 reportedStartedAt);
    /// @notice The governing policy does not support a layer in scope.
    error LayersNotSupported(uint8 supportedLayers, uint8 layerMask);
    /// @notice The governing policy does not allow the trigger.
    error TriggerNotAllowed(uint8 allowedTriggers, uint8 trigger);
    /// @notice The cycle started from another state version than the current one.
    error BadBaseVersion(uint64 expected, uint64 received);
    /// @notice The cycle started from another root than the current one.
    error BadPreRoot(bytes32 expected, bytes32 received);
    /// @notice A layer outside the scope has another commitment than before.
    error UnscopedLayerChanged(uint8 layer, bytes32 expected, bytes32 received);
    /// @notice The cycle ended before it started.
    error EndedBeforeStarted(uint48 reportedStartedAt, uint48 reportedEndedAt);
    /// @notice The cycle ended later than now.
    error EndedInFuture(uint48 current, uint48 reportedEndedAt);
    /// @notice A layer was completed no later than at its last registered completion.
    error CompletionNotLater(uint8 layer, uint48 lastCompletedAt, uint48 reportedEndedAt);
    /// @notice Only a version before the current one can be restored.
    error BadRestoresVersion(uint64 current, uint64 received);
    /// @notice The commitments are not those of the version said to be restored.
    error BadRestoredRoot(bytes32 expected, bytes32 received);

    /// @notice Enrolls the caller, once and for good, with its baseline as state version 1 and its first policy. Counts
    /// as a signal, and as a completion of nothing.
    /// @dev Reverts, in this order: `AlreadyEnrolled`, `InvalidRights`, `ControllerIsSubject`,
    /// `RightsWithoutController`, then as `setPolicy` does for the policy. Emits `Enrolled` and `PolicyUpdated`.
    /// @param baseline The commitments of the four layers.
    /// @param policy Version 1, in effect from now.
    /// @param controller Who may set requirements; zero for nobody.
    /// @param controllerRights Within 0x07; 0 without a controller.
    function enroll(bytes32[4] calldata baseline, Policy calldata policy, address controller, uint8 controllerRights)
        external;

    /// @notice Grants an operator exactly these permissions, in place of any before. Callable by the subject.
    /// @dev Reverts, in this order: `NotEnrolled`, `InvalidOperator`, `InvalidPermissions`. Emits `OperatorSet`.
    /// @param operator Neither zero nor the subject.
    /// @param permissions Within 0x07; 0 revokes.
    function setOperator(address operator, uint8 permissions) external;

    /// @notice Takes every permission from an operator; one that had none is no error. Callable by the subject, and by
    /// a controller with `RIGHT_REVOKE_OPERATORS`.
    /// @dev Reverts, in this order: `NotEnrolled`, `NotController`, `MissingRight`. Emits `OperatorSet`.
    function revokeOperator(address subject, address operator) external;

    /// @notice Without a controller, lets the subject appoint one with any rights. With one, lets only that controller
    /// hand its position on, shrink its rights, or renounce: the zero address with no rights.
    /// @dev Reverts, in this order: `NotEnrolled`, `NotController` (or `NotSubject` if there is no controller),
    /// `InvalidRights`, `ControllerIsSubject`, `RightsWithoutController`. Emits `ControllerChanged`. Floor and demands
    /// stay as they are.
    /// @param subject Whose controller.
    /// @param newController Not the subject; may be the current one.
    /// @param rights Within those held, or within 0x07 if there is no controller.
    function setController(address subject, address newController, uint8 rights) external;

    /// @notice Appends a policy version, in effect from now. Callable by the subject and by an operator with
    /// `PERM_POLICY`. Moves no completion: every deadline is counted from the same moment as before.
    /// @dev Reverts, in this order: `NotEnrolled`, `MissingPermission`, then for the policy: `InvalidLayerMask` (of
    /// `supportedLayers`), `RequiredNotSupported`, `InvalidTriggers`, `InvalidDisclosure`, `MissingInterval`. Emits
    /// `PolicyUpdated`.
    function setPolicy(address subject, Policy calldata policy) external;

    /// @notice Replaces the floor, at once in force. Callable by a controller with `RIGHT_FLOOR`.
    /// @dev Reverts, in this order: `NotEnrolled`, `NotController`, `MissingRight`, `InvalidLayerMask` (beyond 0x0F;
    /// none is allowed), `MissingInterval`. Emits `FloorUpdated`.
    function setFloor(address subject, Floor calldata floor) external;

    /// @notice Requests completion of layers, required or not, in place of any request before. It lowers a required
    /// layer's deadline until a completion that ended at `demandedAt` or later is recorded after it. Callable by a
    /// controller with `RIGHT_DEMAND`.
    /// @dev Reverts, in this order: `NotEnrolled`, `NotController`, `MissingRight`, `InvalidLayerMask`,
    /// `DueByNotInFuture`. Emits `Demanded`.
    /// @param subject Of whom.
    /// @param layerMask Which layers: at least one.
    /// @param dueBy Until when: later than now.
    function demand(address subject, uint8 layerMask, uint48 dueBy) external;

    /// @notice Drops the requests for layers; a layer without one is no error. Callable by a controller with
    /// `RIGHT_DEMAND`.
    /// @dev Reverts, in this order: `NotEnrolled`, `NotController`, `MissingRight`, `InvalidLayerMask`. Emits
    /// `DemandWithdrawn`.
    function withdrawDemand(address subject, uint8 layerMask) external;

    /// @notice Registers one cycle: commitments that changed, with a new state version if any did; completions of
    /// layers; a signal. Callable by the subject and by an operator with `PERM_REPORT`, never by the controller.
    /// @dev Reverts, in this order:
    /// - caller: `NotEnrolled`, `ControllerCannotSubmit`, `MissingPermission`;
    /// - scope: `InvalidLayerMask`, `CompletedOutsideScope`, `OpsOutsideScope`;
    /// - outcome: `InconsistentOutcome`. COMPLETED means all of the scope, PARTIAL some of it, ABORTED not all of it,
    ///   FAILED none of it;
    /// - governing policy: `UnknownPolicyVersion`, `PolicyNotYetEffective`, `PolicySuperseded`, `LayersNotSupported`,
    ///   `TriggerNotAllowed`. The version in effect at `reportedStartedAt` governs; one that was replaced within the
    ///   second in which it was set never was in effect;
    /// - linkage: `BadBaseVersion`, `BadPreRoot`;
    /// - layers out of scope: `UnscopedLayerChanged`, the lowest such layer;
    /// - time: `EndedBeforeStarted`, `EndedInFuture`, `CompletionNotLater`, the lowest such layer;
    /// - restore: `BadRestoresVersion`, `BadRestoredRoot`.
    ///
    /// Emits `CycleRecorded`, then `LayerCommitmentChanged` for every layer that changed, in ascending order.
    /// @return seq The record count with this record.
    function report(address subject, CycleReport calldata r) external returns (uint64 seq);

    /// @notice Gives a sign of activity and refreshes nothing else: no layer, no deadline, no completion. Callable by
    /// the subject and by an operator with `PERM_PULSE` or `PERM_REPORT`, never by the controller.
    /// @dev Reverts, in this order: `NotEnrolled`, `ControllerCannotSubmit`, `MissingPermission`. Emits `Pulsed`.
    /// @param subject Whose activity.
    /// @param nextPlannedAt When the next cycle is planned; 0 for no plan.
    /// @return seq The record count with this pulse.
    function pulse(address subject, uint48 nextPlannedAt) external returns (uint64 seq);

    /// @notice Where a subject stands.
    function headOf(address subject) external view returns (Head memory);

    /// @notice What is registered about a layer.
    function checkpointOf(address subject, uint8 layer) external view returns (LayerCheckpoint memory);

    /// @notice The root of a state version, past or current.
    function rootAt(address subject, uint64 stateVersion) external view returns (bytes32);

    /// @notice A policy version, past or current, as it was set.
    function policyOf(address subject, uint32 version) external view returns (Policy memory);

    /// @notice When a policy version took effect.
    function policyEffectiveFrom(address subject, uint32 version) external view returns (uint48);

    /// @notice The current floor, as it was set.
    function floorOf(address subject) external view returns (Floor memory);

    /// @notice The outstanding demand for a layer.
    function demandOf(address subject, uint8 layer) external view returns (Demand memory);

    /// @notice What an operator may do for a subject.
    function operatorPermissions(address subject, address operator) external view returns (uint8);

    /// @notice What holds for a subject now.
    function requirementsOf(address subject) external view returns (Requirements memory);

    /// @notice How timely a layer's registered maintenance is.
    /// @return status NOT_ENROLLED; for a layer that nobody requires UNSCHEDULED if supported, UNSUPPORTED if not; else
    /// OVERDUE from the deadline on, DUE from `dueWindow` before it, FRESH until then.
    /// @return deadline The last completion, or the enrollment if there is none, plus the effective interval, or an
    /// outstanding demand's `dueBy` if that is earlier; 0 for a layer that nobody requires.
    /// @return neverCompleted Whether an enrolled subject never completed the layer, required or not.
    function layerStatus(address subject, uint8 layer)
        external
        view
        returns (MaintenanceStatus status, uint48 deadline, bool neverCompleted);

    /// @notice Whether a subject gave a sign of activity in time. Silence does not say that it is gone.
    /// @return status NOT_ENROLLED; NOT_TRACKED without an effective interval; SILENT when more than the interval has
    /// passed since the last signal; else PRESENT.
    /// @return lastSignalAt The last signal, also when it is not tracked.
    /// @return silentSince The last signal plus the interval when SILENT, else 0.
    function signalStatus(address subject)
        external
        view
        returns (SignalStatus status, uint48 lastSignalAt, uint48 silentSince);

    /// @notice The state root of four layer commitments: keccak256(abi.encode(
    /// keccak256("AgentMeditationMechanism/StateRoot/v1"), commitments)).
    function computeRoot(bytes32[4] calldata commitments) external pure returns (bytes32);

    /// @notice The commitment to a layer state document: keccak256(abi.encode(
    /// keccak256("AgentMeditationMechanism/LayerCommitment/v1"), layer, schemaHash, contentHash, salt)).
    /// @param layer Its layer.
    /// @param schemaHash keccak256 of its schema's identifier.
    /// @param contentHash keccak256 of its RFC 8785 bytes.
    /// @param salt Zero for a document that nobody could guess anyway.
    function computeLayerCommitment(uint8 layer, bytes32 schemaHash, bytes32 contentHash, bytes32 salt)
        external
        pure
        returns (bytes32);
}
