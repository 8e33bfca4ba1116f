// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC165} from "@openzeppelin/contracts/interfaces/IERC165.sol";
import {IERC6372} from "@openzeppelin/contracts/interfaces/IERC6372.sol";
import {
    IAgentMeditation,
    PERM_POLICY,
    PERM_PULSE,
    PERM_REPORT,
    RIGHT_DEMAND,
    RIGHT_FLOOR,
    RIGHT_REVOKE_OPERATORS
} from "./interfaces/IAgentMeditation.sol";
import {MeditationHash} from "./libraries/MeditationHash.sol";
import {
    ChangesWord,
    Completion,
    CompletionsWord,
    ControlWord,
    DemandOfLayer,
    DemandsWord,
    FloorWord,
    HeadWord,
    MeditationWords,
    PolicyWord
} from "./libraries/MeditationWords.sol";

/// @title Agent Meditation registry
/// @notice Where an agent's maintenance of itself becomes a linked, ordered history that others can ask about. See
/// `IAgentMeditation`.
contract AgentMeditationRegistry is IAgentMeditation, IERC165, IERC6372 {
    /// @dev A policy version. Written once: a word, its hash, and what else it happens to have.
    struct PolicyRecord {
        PolicyWord word;
        /// Zero, and never read, unless the word `isLong`.
        uint256 highBits;
        bytes32 policyHash;
        string policyURI;
    }

    /// @dev A layer's commitment. A struct, because an element of a plain array is read again before it is written.
    struct Layer {
        bytes32 commitment;
    }

    /// @dev Half a word each for two layers, the lower one in the low half.
    struct LayerPair {
        CompletionsWord completions;
        DemandsWord demands;
    }

    /// @dev A subject. Not kept, because it follows from the rest: the current root is the last of `roots`, the
    /// enrollment is when policy 1 took effect, and whether a completion cleared a demand shows in the completion.
    struct Subject {
        HeadWord head;
        ControlWord control;
        FloorWord floor;
        ChangesWord changes;
        LayerPair[2] pairs;
        Layer[4] layers;
        mapping(uint256 stateVersion => bytes32 root) roots;
        mapping(uint256 policyVersion => PolicyRecord) policies;
        mapping(address operator => uint256 permissions) operators;
    }

    uint8 private constant ALL_LAYERS = 0x0F;
    uint8 private constant ALL_TRIGGERS = 0x0F;
    uint8 private constant ALL_RIGHTS = RIGHT_FLOOR | RIGHT_DEMAND | RIGHT_REVOKE_OPERATORS;
    uint8 private constant ALL_PERMISSIONS = PERM_REPORT | PERM_PULSE | PERM_POLICY;
    uint8 private constant MAX_DISCLOSURE = 2;

    mapping(address account => Subject) private _subjects;

    // Enrollment

    /// @inheritdoc IAgentMeditation
    function enroll(bytes32[4] calldata baseline, Policy calldata policy, address controller, uint8 controllerRights)
        external
    {
        Subject storage s = _subjects[msg.sender];
        if (s.head.isEnrolled()) revert AlreadyEnrolled(msg.sender);
        _requireController(msg.sender, controller, controllerRights, ALL_RIGHTS);
        _requirePolicy(policy);

        uint256 enrolledAt = clock();
        bytes32 root = MeditationHash.stateRoot(baseline);
        s.head = MeditationWords.packHead(1, 1, 0, enrolledAt, 0);
        if (controller != address(0)) s.control = MeditationWords.packControl(controller, controllerRights, 0);
        for (uint256 layer = 0; layer < 4; layer++) {
            s.layers[layer].commitment = baseline[layer];
        }
        s.roots[1] = root;
        _writePolicy(s.policies[1], policy, enrolledAt);

        emit Enrolled(msg.sender, controller, controllerRights, root, uint48(enrolledAt));
        emit PolicyUpdated(msg.sender, 1, policy.policyHash, uint48(enrolledAt), msg.sender);
    }

    // Roles

    /// @inheritdoc IAgentMeditation
    function setOperator(address operator, uint8 permissions) external {
        (Subject storage s,) = _enrolled(msg.sender);
        if (operator == address(0) || operator == msg.sender) revert InvalidOperator(operator);
        if (permissions & ~ALL_PERMISSIONS != 0) revert InvalidPermissions(ALL_PERMISSIONS, permissions);

        s.operators[operator] = permissions;

        emit OperatorSet(msg.sender, operator, permissions, msg.sender);
    }

    /// @inheritdoc IAgentMeditation
    function revokeOperator(address subject, address operator) external {
        (Subject storage s,) = _enrolled(subject);
        if (msg.sender != subject) _requireRight(s, RIGHT_REVOKE_OPERATORS);

        s.operators[operator] = 0;

        emit OperatorSet(subject, operator, 0, msg.sender);
    }

    /// @inheritdoc IAgentMeditation
    function setController(address subject, address newController, uint8 rights) external {
        (Subject storage s,) = _enrolled(subject);
        ControlWord control = s.control;
        address controller = control.controller();
        if (controller == address(0)) {
            if (msg.sender != subject) revert NotSubject(subject, msg.sender);
            _requireController(subject, newController, rights, ALL_RIGHTS);
        } else {
            if (msg.sender != controller) revert NotController(controller, msg.sender);
            _requireController(subject, newController, rights, control.rights());
        }

        s.control = MeditationWords.packControl(newController, rights, control.floorVersion());

        emit ControllerChanged(subject, controller, newController, rights);
    }

    /// @dev Refuses a controller, and rights for it, outside what can be given.
    function _requireController(address subject, address controller, uint8 rights, uint8 allowed) private pure {
        if (rights & ~allowed != 0) revert InvalidRights(allowed, rights);
        if (controller == subject) revert ControllerIsSubject(subject);
        if (controller == address(0) && rights != 0) revert RightsWithoutController(rights);
    }

    /// @dev Refuses a caller that is not the controller, or holds not this right.
    function _requireRight(Subject storage s, uint8 right) private view returns (ControlWord control) {
        control = s.control;
        if (msg.sender != control.controller()) revert NotController(control.controller(), msg.sender);
        if (control.rights() & right == 0) revert MissingRight(right, control.rights());
    }

    /// @dev Refuses a caller that is neither the subject nor an operator with one of these permissions.
    function _requirePermission(Subject storage s, address subject, uint8 permissions) private view {
        if (msg.sender == subject) return;
        uint8 held = uint8(s.operators[msg.sender]);
        if (held & permissions == 0) revert MissingPermission(permissions, held);
    }

    /// @dev The same for a record, which the controller never submits, even as an operator.
    function _requireSubmitter(Subject storage s, address subject, uint8 permissions) private view {
        if (msg.sender == subject) return;
        if (msg.sender == s.control.controller()) revert ControllerCannotSubmit(msg.sender);
        _requirePermission(s, subject, permissions);
    }

    // Requirements

    /// @inheritdoc IAgentMeditation
    function setPolicy(address subject, Policy calldata policy) external {
        (Subject storage s, HeadWord head) = _enrolled(subject);
        _requirePermission(s, subject, PERM_POLICY);
        _requirePolicy(policy);

        uint32 version = head.policyVersion() + 1;
        uint48 effectiveFrom = clock();
        s.head = MeditationWords.packHead(
            version, head.stateVersion(), head.recordCount(), head.lastSignalAt(), head.nextPlannedAt()
        );
        _writePolicy(s.policies[version], policy, effectiveFrom);

        emit PolicyUpdated(subject, version, policy.policyHash, effectiveFrom, msg.sender);
    }

    function _requirePolicy(Policy calldata policy) private pure {
        _requireLayers(policy.supportedLayers);
        if (policy.requiredLayers & ~policy.supportedLayers != 0) {
            revert RequiredNotSupported(policy.supportedLayers, policy.requiredLayers);
        }
        if (policy.allowedTriggers == 0 || policy.allowedTriggers > ALL_TRIGGERS) {
            revert InvalidTriggers(policy.allowedTriggers);
        }
        if (policy.disclosure > MAX_DISCLOSURE) revert InvalidDisclosure(MAX_DISCLOSURE, policy.disclosure);
        _requireIntervals(policy.requiredLayers, policy.maxInterval);
    }

    /// @dev The record is new, so what is zero needs no write.
    function _writePolicy(PolicyRecord storage record, Policy calldata policy, uint256 effectiveFrom) private {
        (PolicyWord word, uint256 highBits) = MeditationWords.packPolicy(policy, effectiveFrom);
        record.word = word;
        if (highBits != 0) record.highBits = highBits;
        if (policy.policyHash != 0) record.policyHash = policy.policyHash;
        if (bytes(policy.policyURI).length != 0) record.policyURI = policy.policyURI;
    }

    /// @inheritdoc IAgentMeditation
    function setFloor(address subject, Floor calldata floor) external {
        (Subject storage s,) = _enrolled(subject);
        ControlWord control = _requireRight(s, RIGHT_FLOOR);
        if (floor.requiredLayers > ALL_LAYERS) revert InvalidLayerMask(floor.requiredLayers);
        _requireIntervals(floor.requiredLayers, floor.maxInterval);

        uint32 version = control.floorVersion() + 1;
        s.control = MeditationWords.packControl(msg.sender, control.rights(), version);
        s.floor = MeditationWords.packFloor(floor);

        emit FloorUpdated(subject, version, clock(), msg.sender);
    }

    function _requireIntervals(uint8 requiredLayers, uint48[4] calldata maxInterval) private pure {
        for (uint8 layer = 0; layer < 4; layer++) {
            if (_has(requiredLayers, layer) && maxInterval[layer] == 0) revert MissingInterval(layer);
        }
    }

    /// @inheritdoc IAgentMeditation
    function demand(address subject, uint8 layerMask, uint48 dueBy) external {
        (Subject storage s,) = _enrolled(subject);
        _requireRight(s, RIGHT_DEMAND);
        _requireLayers(layerMask);
        uint48 demandedAt = clock();
        if (dueBy <= demandedAt) revert DueByNotInFuture(demandedAt, dueBy);

        for (uint256 layer = 0; layer < 4; layer++) {
            if (!_has(layerMask, layer)) continue;
            LayerPair storage pair = s.pairs[layer / 2];
            pair.demands = pair.demands
                .withLayer(layer, MeditationWords.packDemand(demandedAt, dueBy, pair.completions.ofLayer(layer)));
        }

        emit Demanded(subject, layerMask, dueBy, msg.sender);
    }

    /// @inheritdoc IAgentMeditation
    function withdrawDemand(address subject, uint8 layerMask) external {
        (Subject storage s,) = _enrolled(subject);
        _requireRight(s, RIGHT_DEMAND);
        _requireLayers(layerMask);

        for (uint256 layer = 0; layer < 4; layer++) {
            if (!_has(layerMask, layer)) continue;
            LayerPair storage pair = s.pairs[layer / 2];
            pair.demands = pair.demands.withLayer(layer, DemandOfLayer.wrap(0));
        }

        emit DemandWithdrawn(subject, layerMask, msg.sender);
    }

    // Records

    /// @inheritdoc IAgentMeditation
    function report(address subject, CycleReport calldata r) external returns (uint64 seq) {
        (Subject storage s, HeadWord head) = _enrolled(subject);
        _requireSubmitter(s, subject, PERM_REPORT);
        uint256 layerMask = r.layerMask;
        uint256 completedLayers = r.completedLayers;
        _requireScope(layerMask, completedLayers, r.opsMask);
        _requireOutcome(r.outcome, layerMask, completedLayers);
        uint256 startedAt = r.reportedStartedAt;
        uint256 policyVersion = r.policyVersion;
        _requireGoverningPolicy(s, head.policyVersion(), policyVersion, startedAt, layerMask, r.trigger);
        uint256 baseVersion = head.stateVersion();
        if (r.baseVersion != baseVersion) revert BadBaseVersion(uint64(baseVersion), r.baseVersion);
        bytes32 root = s.roots[baseVersion];
        if (r.preRoot != root) revert BadPreRoot(root, r.preRoot);
        bytes32 newRoot = MeditationHash.stateRoot(r.postCommitments);
        // Equal roots mean equal commitments: a cycle that changed nothing has none of them read.
        bytes32[4] memory previous;
        uint256 changedLayers = newRoot == root ? 0 : _readChanges(s, r.postCommitments, layerMask, previous);
        uint256 endedAt = r.reportedEndedAt;
        uint256 recordedAt = clock();
        if (startedAt > endedAt) revert EndedBeforeStarted(uint48(startedAt), uint48(endedAt));
        if (endedAt > recordedAt) revert EndedInFuture(uint48(recordedAt), uint48(endedAt));
        _requireLater(s, completedLayers, endedAt);
        if (r.restoresVersion != 0) _requireRestored(s, baseVersion, r.restoresVersion, newRoot);

        uint256 newVersion = changedLayers == 0 ? baseVersion : baseVersion + 1;
        if (changedLayers != 0) {
            s.roots[newVersion] = newRoot;
            _writeCommitments(s, changedLayers, r.postCommitments, newVersion);
        }
        _writeCompletions(s, completedLayers, MeditationWords.packCompletion(endedAt, recordedAt, policyVersion));
        seq = head.recordCount() + 1;
        s.head = MeditationWords.packHead(head.policyVersion(), newVersion, seq, recordedAt, r.nextPlannedAt);

        emit CycleRecorded(
            subject,
            seq,
            uint64(baseVersion),
            uint64(newVersion),
            r,
            uint8(changedLayers),
            uint48(recordedAt),
            msg.sender
        );
        if (changedLayers != 0) _emitChanges(subject, changedLayers, newVersion, previous, r.postCommitments);
    }

    function _requireScope(uint256 layerMask, uint256 completedLayers, uint256 opsMask) private pure {
        _requireLayers(layerMask);
        if (completedLayers & ~layerMask != 0) revert CompletedOutsideScope(uint8(layerMask), uint8(completedLayers));
        // Each layer's bit, moved to its lowest operation and spread over all four.
        uint256 lowestOps = (layerMask & 1) | (layerMask & 2) << 3 | (layerMask & 4) << 6 | (layerMask & 8) << 9;
        uint256 scopedOps = lowestOps | lowestOps << 1 | lowestOps << 2 | lowestOps << 3;
        if (opsMask & ~scopedOps != 0) revert OpsOutsideScope(uint8(layerMask), uint16(opsMask));
    }

    function _requireOutcome(uint256 outcome, uint256 layerMask, uint256 completedLayers) private pure {
        bool isAll = completedLayers == layerMask;
        bool isNone = completedLayers == 0;
        bool isConsistent;
        if (outcome == uint256(Outcome.COMPLETED)) isConsistent = isAll;
        else if (outcome == uint256(Outcome.PARTIAL)) isConsistent = !isAll && !isNone;
        else if (outcome == uint256(Outcome.ABORTED)) isConsistent = !isAll;
        else if (outcome == uint256(Outcome.FAILED)) isConsistent = isNone;
        if (!isConsistent) revert InconsistentOutcome(uint8(outcome), uint8(layerMask), uint8(completedLayers));
    }

    function _requireGoverningPolicy(
        Subject storage s,
        uint256 current,
        uint256 version,
        uint256 startedAt,
        uint256 layerMask,
        uint256 trigger
    ) private view {
        if (version == 0 || version > current) {
            revert UnknownPolicyVersion(uint32(current), uint32(version));
        }
        PolicyWord policy = s.policies[version].word;
        if (startedAt < policy.effectiveFrom()) {
            revert PolicyNotYetEffective(policy.effectiveFrom(), uint48(startedAt));
        }
        if (version != current) {
            uint48 supersededAt = s.policies[version + 1].word.effectiveFrom();
            if (startedAt >= supersededAt) revert PolicySuperseded(supersededAt, uint48(startedAt));
        }
        if (layerMask & ~uint256(policy.supportedLayers()) != 0) {
            revert LayersNotSupported(policy.supportedLayers(), uint8(layerMask));
        }
        if (!_has(policy.allowedTriggers(), trigger)) {
            revert TriggerNotAllowed(policy.allowedTriggers(), uint8(trigger));
        }
    }

    /// @dev The layers whose commitment changes, and in `previous` what it was; refuses one that is out of scope.
    function _readChanges(
        Subject storage s,
        bytes32[4] calldata commitments,
        uint256 layerMask,
        bytes32[4] memory previous
    ) private view returns (uint256 changedLayers) {
        for (uint256 layer = 0; layer < 4; layer++) {
            bytes32 current = s.layers[layer].commitment;
            bytes32 received = commitments[layer];
            if (received == current) continue;
            if (!_has(layerMask, layer)) revert UnscopedLayerChanged(uint8(layer), current, received);
            changedLayers |= 1 << layer;
            previous[layer] = current;
        }
    }

    /// @dev Refuses a completion that does not end after the layer's last one.
    function _requireLater(Subject storage s, uint256 completedLayers, uint256 endedAt) private view {
        for (uint256 layer = 0; layer < 4; layer += 2) {
            uint256 pairMask = completedLayers >> layer & 3;
            if (pairMask == 0) continue;
            CompletionsWord completions = s.pairs[layer / 2].completions;
            uint256 even = completions.ofLayer(0).completedAt();
            if (pairMask != 2 && endedAt <= even) {
                revert CompletionNotLater(uint8(layer), uint48(even), uint48(endedAt));
            }
            uint256 odd = completions.ofLayer(1).completedAt();
            if (pairMask != 1 && endedAt <= odd) {
                revert CompletionNotLater(uint8(layer + 1), uint48(odd), uint48(endedAt));
            }
        }
    }

    function _requireRestored(Subject storage s, uint256 version, uint256 restoresVersion, bytes32 newRoot)
        private
        view
    {
        if (restoresVersion >= version) revert BadRestoresVersion(uint64(version), uint64(restoresVersion));
        bytes32 restoredRoot = s.roots[restoresVersion];
        if (newRoot != restoredRoot) revert BadRestoredRoot(restoredRoot, newRoot);
    }

    function _writeCommitments(
        Subject storage s,
        uint256 changedLayers,
        bytes32[4] calldata commitments,
        uint256 version
    ) private {
        ChangesWord changes = s.changes;
        for (uint256 layer = 0; layer < 4; layer++) {
            if (!_has(changedLayers, layer)) continue;
            s.layers[layer].commitment = commitments[layer];
            changes = changes.withLayer(layer, version);
        }
        s.changes = changes;
    }

    function _writeCompletions(Subject storage s, uint256 completedLayers, Completion completion) private {
        for (uint256 layer = 0; layer < 4; layer += 2) {
            uint256 pairMask = completedLayers >> layer & 3;
            if (pairMask == 0) continue;
            LayerPair storage pair = s.pairs[layer / 2];
            if (pairMask == 3) pair.completions = completion.inBothLayers();
            else pair.completions = pair.completions.withLayer(pairMask >> 1, completion);
        }
    }

    function _emitChanges(
        address subject,
        uint256 changedLayers,
        uint256 version,
        bytes32[4] memory previous,
        bytes32[4] calldata commitments
    ) private {
        for (uint256 layer = 0; layer < 4; layer++) {
            if (!_has(changedLayers, layer)) continue;
            emit LayerCommitmentChanged(subject, uint8(layer), uint64(version), previous[layer], commitments[layer]);
        }
    }

    /// @inheritdoc IAgentMeditation
    function pulse(address subject, uint48 nextPlannedAt) external returns (uint64 seq) {
        (Subject storage s, HeadWord head) = _enrolled(subject);
        _requireSubmitter(s, subject, PERM_REPORT | PERM_PULSE);

        uint48 recordedAt = clock();
        seq = head.recordCount() + 1;
        s.head = MeditationWords.packHead(head.policyVersion(), head.stateVersion(), seq, recordedAt, nextPlannedAt);

        emit Pulsed(subject, seq, recordedAt, nextPlannedAt, msg.sender);
    }

    // Views

    /// @inheritdoc IAgentMeditation
    function headOf(address subject) external view returns (Head memory) {
        Subject storage s = _subjects[subject];
        HeadWord head = s.head;
        ControlWord control = s.control;
        return Head({
            enrolled: head.isEnrolled(),
            controller: control.controller(),
            controllerRights: control.rights(),
            policyVersion: head.policyVersion(),
            floorVersion: control.floorVersion(),
            stateVersion: head.stateVersion(),
            recordCount: head.recordCount(),
            root: s.roots[head.stateVersion()],
            enrolledAt: _enrolledAt(s),
            lastSignalAt: head.lastSignalAt(),
            nextPlannedAt: head.nextPlannedAt()
        });
    }

    /// @inheritdoc IAgentMeditation
    function checkpointOf(address subject, uint8 layer) external view returns (LayerCheckpoint memory) {
        _requireLayer(layer);
        Subject storage s = _subjects[subject];
        Completion completion = s.pairs[layer / 2].completions.ofLayer(layer);
        return LayerCheckpoint({
            commitment: s.layers[layer].commitment,
            lastCompletedAt: completion.completedAt(),
            lastCompletedRecordedAt: completion.recordedAt(),
            completedUnderPolicy: completion.policyVersion(),
            lastChangedVersion: s.head.isEnrolled() ? s.changes.ofLayer(layer) : 0
        });
    }

    /// @inheritdoc IAgentMeditation
    function rootAt(address subject, uint64 stateVersion) external view returns (bytes32) {
        return _subjects[subject].roots[stateVersion];
    }

    /// @inheritdoc IAgentMeditation
    function policyOf(address subject, uint32 version) external view returns (Policy memory policy) {
        PolicyRecord storage record = _subjects[subject].policies[version];
        (PolicyWord word, uint256 highBits) = _readPolicy(record);
        policy.policyHash = record.policyHash;
        policy.policyURI = record.policyURI;
        policy.supportedLayers = word.supportedLayers();
        policy.requiredLayers = word.requiredLayers();
        policy.allowedTriggers = word.allowedTriggers();
        policy.disclosure = word.disclosure();
        policy.dueWindow = word.dueWindow(highBits);
        policy.pulseInterval = word.pulseInterval(highBits);
        for (uint256 layer = 0; layer < 4; layer++) {
            policy.maxInterval[layer] = word.maxInterval(highBits, layer);
        }
    }

    /// @inheritdoc IAgentMeditation
    function policyEffectiveFrom(address subject, uint32 version) external view returns (uint48) {
        return _subjects[subject].policies[version].word.effectiveFrom();
    }

    /// @inheritdoc IAgentMeditation
    function floorOf(address subject) external view returns (Floor memory) {
        return _subjects[subject].floor.unpack();
    }

    /// @inheritdoc IAgentMeditation
    function demandOf(address subject, uint8 layer) external view returns (Demand memory) {
        _requireLayer(layer);
        LayerPair storage pair = _subjects[subject].pairs[layer / 2];
        DemandOfLayer demanded = pair.demands.ofLayer(layer);
        if (!demanded.isOutstanding(pair.completions.ofLayer(layer))) return Demand(0, 0);
        return Demand(demanded.demandedAt(), demanded.dueBy());
    }

    /// @inheritdoc IAgentMeditation
    function operatorPermissions(address subject, address operator) external view returns (uint8) {
        return uint8(_subjects[subject].operators[operator]);
    }

    /// @inheritdoc IAgentMeditation
    function requirementsOf(address subject) external view returns (Requirements memory) {
        Subject storage s = _subjects[subject];
        return _requirements(s, s.head);
    }

    /// @inheritdoc IAgentMeditation
    function layerStatus(address subject, uint8 layer)
        external
        view
        returns (MaintenanceStatus status, uint48 deadline, bool neverCompleted)
    {
        _requireLayer(layer);
        Subject storage s = _subjects[subject];
        HeadWord head = s.head;
        if (!head.isEnrolled()) return (MaintenanceStatus.NOT_ENROLLED, 0, false);

        Requirements memory requirements = _requirements(s, head);
        LayerPair storage pair = s.pairs[layer / 2];
        Completion last = pair.completions.ofLayer(layer);
        neverCompleted = last.completedAt() == 0;
        if (!_has(requirements.requiredLayers, layer)) {
            bool isSupported = _has(requirements.supportedLayers, layer);
            return (isSupported ? MaintenanceStatus.UNSCHEDULED : MaintenanceStatus.UNSUPPORTED, 0, neverCompleted);
        }

        uint48 anchor = neverCompleted ? _enrolledAt(s) : last.completedAt();
        deadline = _saturatingAdd(anchor, requirements.maxInterval[layer]);
        DemandOfLayer demanded = pair.demands.ofLayer(layer);
        if (demanded.isOutstanding(last) && demanded.dueBy() < deadline) deadline = demanded.dueBy();

        uint256 current = clock();
        if (current >= deadline) status = MaintenanceStatus.OVERDUE;
        else if (current + requirements.dueWindow >= deadline) status = MaintenanceStatus.DUE;
        else status = MaintenanceStatus.FRESH;
    }

    /// @inheritdoc IAgentMeditation
    function signalStatus(address subject)
        external
        view
        returns (SignalStatus status, uint48 lastSignalAt, uint48 silentSince)
    {
        Subject storage s = _subjects[subject];
        HeadWord head = s.head;
        if (!head.isEnrolled()) return (SignalStatus.NOT_ENROLLED, 0, 0);

        lastSignalAt = head.lastSignalAt();
        uint48 pulseInterval = _requirements(s, head).pulseInterval;
        if (pulseInterval == 0) return (SignalStatus.NOT_TRACKED, lastSignalAt, 0);

        uint48 expectedBy = _saturatingAdd(lastSignalAt, pulseInterval);
        if (clock() > expectedBy) return (SignalStatus.SILENT, lastSignalAt, expectedBy);
        return (SignalStatus.PRESENT, lastSignalAt, 0);
    }

    /// @inheritdoc IAgentMeditation
    function computeRoot(bytes32[4] calldata commitments) external pure returns (bytes32) {
        return MeditationHash.stateRoot(commitments);
    }

    /// @inheritdoc IAgentMeditation
    function computeLayerCommitment(uint8 layer, bytes32 schemaHash, bytes32 contentHash, bytes32 salt)
        external
        pure
        returns (bytes32)
    {
        _requireLayer(layer);
        return MeditationHash.layerCommitment(layer, schemaHash, contentHash, salt);
    }

    /// @inheritdoc IERC6372
    function clock() public view returns (uint48) {
        return uint48(block.timestamp);
    }

    /// @inheritdoc IERC6372
    // solhint-disable-next-line func-name-mixedcase
    function CLOCK_MODE() external pure returns (string memory) {
        return "mode=timestamp";
    }

    /// @inheritdoc IERC165
    function supportsInterface(bytes4 interfaceId) external pure returns (bool) {
        return interfaceId == type(IAgentMeditation).interfaceId || interfaceId == type(IERC6372).interfaceId
            || interfaceId == type(IERC165).interfaceId;
    }

    // Private

    function _enrolled(address subject) private view returns (Subject storage s, HeadWord head) {
        s = _subjects[subject];
        head = s.head;
        if (!head.isEnrolled()) revert NotEnrolled(subject);
    }

    function _enrolledAt(Subject storage s) private view returns (uint48) {
        return s.policies[1].word.effectiveFrom();
    }

    function _readPolicy(PolicyRecord storage record) private view returns (PolicyWord word, uint256 highBits) {
        word = record.word;
        if (word.isLong()) highBits = record.highBits;
    }

    /// @dev The current policy joined with the floor. Whoever requires a layer gave it an interval.
    function _requirements(Subject storage s, HeadWord head) private view returns (Requirements memory joined) {
        (PolicyWord policy, uint256 highBits) = _readPolicy(s.policies[head.policyVersion()]);
        Floor memory floor = s.floor.unpack();
        joined.supportedLayers = policy.supportedLayers();
        joined.requiredLayers = policy.requiredLayers() | floor.requiredLayers;
        joined.dueWindow = policy.dueWindow(highBits);
        joined.pulseInterval = _shorter(policy.pulseInterval(highBits), floor.pulseInterval);
        for (uint256 layer = 0; layer < 4; layer++) {
            uint48 byPolicy = _has(policy.requiredLayers(), layer) ? policy.maxInterval(highBits, layer) : 0;
            uint48 byFloor = _has(floor.requiredLayers, layer) ? floor.maxInterval[layer] : 0;
            joined.maxInterval[layer] = _shorter(byPolicy, byFloor);
        }
    }

    /// @dev The shorter of two intervals, of which 0 is none.
    function _shorter(uint48 a, uint48 b) private pure returns (uint48) {
        if (a == 0) return b;
        return b == 0 || a < b ? a : b;
    }

    function _saturatingAdd(uint48 time, uint48 interval) private pure returns (uint48) {
        uint256 sum = uint256(time) + interval;
        return sum < type(uint48).max ? uint48(sum) : type(uint48).max;
    }

    function _has(uint256 mask, uint256 bit) private pure returns (bool) {
        return mask >> bit & 1 != 0;
    }

    function _requireLayer(uint8 layer) private pure {
        if (layer > 3) revert InvalidLayer(layer);
    }

    function _requireLayers(uint256 layerMask) private pure {
        if (layerMask == 0 || layerMask > ALL_LAYERS) revert InvalidLayerMask(uint8(layerMask));
    }
}
