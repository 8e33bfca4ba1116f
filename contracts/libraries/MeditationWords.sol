// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {IAgentMeditation} from "../interfaces/IAgentMeditation.sol";

// The words in which the meditation registry keeps a subject. Each fills one storage slot, is read once and written
// whole: writing a member of a packed struct would read its slot once more. Fields are listed from the low bits up,
// with their width in bits.

/// @dev What every record moves: policyVersion 32, stateVersion 64, recordCount 64, lastSignalAt 48, nextPlannedAt 48.
/// Zero for an address that is not enrolled.
type HeadWord is uint256;

/// @dev Who sets requirements: controller 160, rights 8, floorVersion 32.
type ControlWord is uint256;

/// @dev A floor: maxInterval 4 x 48, pulseInterval 48, requiredLayers 8.
type FloorWord is uint256;

/// @dev A policy but for hash and URI: supportedLayers 4, requiredLayers 4, allowedTriggers 4, disclosure 2, isLong 2,
/// effectiveFrom 48, then the low 32 bits of six durations: maxInterval by layer, dueWindow, pulseInterval. If any of
/// them needs more (136 years and above), isLong is 1 and their high 16 bits lie in a word of their own, in that order.
type PolicyWord is uint256;

/// @dev When each commitment last changed: lastChangedVersion 4 x 64, by layer. 0 stands for the baseline, version 1,
/// which thus needs no write.
type ChangesWord is uint256;

/// @dev The completions of two layers, the even one in the low half.
type CompletionsWord is uint256;

/// @dev A layer's last completion, half a word: lastCompletedAt 48, lastCompletedRecordedAt 48, completedUnderPolicy
/// 32. Zero if it was never completed.
type Completion is uint256;

/// @dev The demands for two layers, the even one in the low half.
type DemandsWord is uint256;

/// @dev A demand for a layer, half a word: demandedAt 48, dueBy 48, standsThisSecond 1. A completion does not write
/// here: whether it cleared the demand follows from when it ended.
type DemandOfLayer is uint256;

using MeditationWords for HeadWord global;
using MeditationWords for ControlWord global;
using MeditationWords for FloorWord global;
using MeditationWords for PolicyWord global;
using MeditationWords for ChangesWord global;
using MeditationWords for CompletionsWord global;
using MeditationWords for Completion global;
using MeditationWords for DemandsWord global;
using MeditationWords for DemandOfLayer global;

/// @title Words of Agent Meditation
/// @notice Packs and unpacks them. Values to be packed are uint256, because narrower ones are masked at every step;
/// whoever passes them knows that they fit.
library MeditationWords {
    // Head

    function packHead(
        uint256 policyVersion_,
        uint256 stateVersion_,
        uint256 recordCount_,
        uint256 lastSignalAt_,
        uint256 nextPlannedAt_
    ) internal pure returns (HeadWord) {
        return HeadWord.wrap(
            policyVersion_ | stateVersion_ << 32 | recordCount_ << 96 | lastSignalAt_ << 160 | nextPlannedAt_ << 208
        );
    }

    function isEnrolled(HeadWord head) internal pure returns (bool) {
        return HeadWord.unwrap(head) != 0;
    }

    function policyVersion(HeadWord head) internal pure returns (uint32) {
        return uint32(HeadWord.unwrap(head));
    }

    function stateVersion(HeadWord head) internal pure returns (uint64) {
        return uint64(HeadWord.unwrap(head) >> 32);
    }

    function recordCount(HeadWord head) internal pure returns (uint64) {
        return uint64(HeadWord.unwrap(head) >> 96);
    }

    function lastSignalAt(HeadWord head) internal pure returns (uint48) {
        return uint48(HeadWord.unwrap(head) >> 160);
    }

    function nextPlannedAt(HeadWord head) internal pure returns (uint48) {
        return uint48(HeadWord.unwrap(head) >> 208);
    }

    // Control

    function packControl(address controller_, uint256 rights_, uint256 floorVersion_)
        internal
        pure
        returns (ControlWord)
    {
        return ControlWord.wrap(uint160(controller_) | rights_ << 160 | floorVersion_ << 168);
    }

    function controller(ControlWord control) internal pure returns (address) {
        return address(uint160(ControlWord.unwrap(control)));
    }

    function rights(ControlWord control) internal pure returns (uint8) {
        return uint8(ControlWord.unwrap(control) >> 160);
    }

    function floorVersion(ControlWord control) internal pure returns (uint32) {
        return uint32(ControlWord.unwrap(control) >> 168);
    }

    // Floor

    function packFloor(IAgentMeditation.Floor calldata floor) internal pure returns (FloorWord) {
        uint256 word = uint256(floor.requiredLayers) << 240 | uint256(floor.pulseInterval) << 192;
        for (uint256 layer = 0; layer < 4; layer++) {
            word |= uint256(floor.maxInterval[layer]) << 48 * layer;
        }
        return FloorWord.wrap(word);
    }

    function unpack(FloorWord word) internal pure returns (IAgentMeditation.Floor memory floor) {
        uint256 bits = FloorWord.unwrap(word);
        floor.requiredLayers = uint8(bits >> 240);
        floor.pulseInterval = uint48(bits >> 192);
        for (uint256 layer = 0; layer < 4; layer++) {
            floor.maxInterval[layer] = uint48(bits >> 48 * layer);
        }
    }

    // Policy

    /// @return The word, and the high bits of its durations: zero unless it `isLong`.
    function packPolicy(IAgentMeditation.Policy calldata policy, uint256 effectiveFrom_)
        internal
        pure
        returns (PolicyWord, uint256)
    {
        uint256 lowBits;
        uint256 highBits;
        for (uint256 i = 0; i < 6; i++) {
            uint256 duration = i < 4 ? policy.maxInterval[i] : i == 4 ? policy.dueWindow : policy.pulseInterval;
            lowBits |= uint256(uint32(duration)) << 32 * i;
            highBits |= (duration >> 32) << 16 * i;
        }
        uint256 isLong_ = highBits == 0 ? 0 : 1;
        uint256 word = uint256(policy.supportedLayers) | uint256(policy.requiredLayers) << 4
            | uint256(policy.allowedTriggers) << 8 | uint256(policy.disclosure) << 12 | isLong_ << 14 | effectiveFrom_
            << 16 | lowBits << 64;
        return (PolicyWord.wrap(word), highBits);
    }

    function supportedLayers(PolicyWord policy) internal pure returns (uint8) {
        return uint8(PolicyWord.unwrap(policy) & 0x0F);
    }

    function requiredLayers(PolicyWord policy) internal pure returns (uint8) {
        return uint8(PolicyWord.unwrap(policy) >> 4 & 0x0F);
    }

    function allowedTriggers(PolicyWord policy) internal pure returns (uint8) {
        return uint8(PolicyWord.unwrap(policy) >> 8 & 0x0F);
    }

    function disclosure(PolicyWord policy) internal pure returns (uint8) {
        return uint8(PolicyWord.unwrap(policy) >> 12 & 0x03);
    }

    function isLong(PolicyWord policy) internal pure returns (bool) {
        return PolicyWord.unwrap(policy) >> 14 & 0x03 != 0;
    }

    function effectiveFrom(PolicyWord policy) internal pure returns (uint48) {
        return uint48(PolicyWord.unwrap(policy) >> 16);
    }

    /// @param highBits The second word of a policy that `isLong`, else 0.
    function maxInterval(PolicyWord policy, uint256 highBits, uint256 layer) internal pure returns (uint48) {
        return _duration(policy, highBits, layer);
    }

    function dueWindow(PolicyWord policy, uint256 highBits) internal pure returns (uint48) {
        return _duration(policy, highBits, 4);
    }

    function pulseInterval(PolicyWord policy, uint256 highBits) internal pure returns (uint48) {
        return _duration(policy, highBits, 5);
    }

    function _duration(PolicyWord policy, uint256 highBits, uint256 i) private pure returns (uint48) {
        uint48 low = uint32(PolicyWord.unwrap(policy) >> 64 + 32 * i);
        uint48 high = uint16(highBits >> 16 * i);
        return high << 32 | low;
    }

    // Changes

    function ofLayer(ChangesWord changes, uint256 layer) internal pure returns (uint64) {
        uint64 version = uint64(ChangesWord.unwrap(changes) >> 64 * layer);
        return version == 0 ? 1 : version;
    }

    function withLayer(ChangesWord changes, uint256 layer, uint256 version) internal pure returns (ChangesWord) {
        unchecked {
            uint256 others = ChangesWord.unwrap(changes) & ~(uint256(type(uint64).max) << 64 * layer);
            return ChangesWord.wrap(others | version << 64 * layer);
        }
    }

    // Completions

    function packCompletion(uint256 completedAt_, uint256 recordedAt_, uint256 policyVersion_)
        internal
        pure
        returns (Completion)
    {
        return Completion.wrap(completedAt_ | recordedAt_ << 48 | policyVersion_ << 96);
    }

    function completedAt(Completion completion) internal pure returns (uint48) {
        return uint48(Completion.unwrap(completion));
    }

    function recordedAt(Completion completion) internal pure returns (uint48) {
        return uint48(Completion.unwrap(completion) >> 48);
    }

    function policyVersion(Completion completion) internal pure returns (uint32) {
        return uint32(Completion.unwrap(completion) >> 96);
    }

    /// @dev Both layers of a word, completed by the same cycle.
    function inBothLayers(Completion completion) internal pure returns (CompletionsWord) {
        return CompletionsWord.wrap(Completion.unwrap(completion) << 128 | Completion.unwrap(completion));
    }

    function ofLayer(CompletionsWord completions, uint256 layer) internal pure returns (Completion) {
        return Completion.wrap(_half(CompletionsWord.unwrap(completions), layer));
    }

    function withLayer(CompletionsWord completions, uint256 layer, Completion completion)
        internal
        pure
        returns (CompletionsWord)
    {
        return
            CompletionsWord.wrap(_withHalf(CompletionsWord.unwrap(completions), layer, Completion.unwrap(completion)));
    }

    // Demands

    /// @param last The layer's last completion when the demand is made. If that ended in this very second, the demand
    /// comes after it and stands; and since no other completion can end in this second, only a later one clears it.
    function packDemand(uint256 demandedAt_, uint256 dueBy_, Completion last) internal pure returns (DemandOfLayer) {
        uint256 standsThisSecond = completedAt(last) == demandedAt_ ? 1 : 0;
        return DemandOfLayer.wrap(demandedAt_ | dueBy_ << 48 | standsThisSecond << 96);
    }

    function demandedAt(DemandOfLayer demanded) internal pure returns (uint48) {
        return uint48(DemandOfLayer.unwrap(demanded));
    }

    function dueBy(DemandOfLayer demanded) internal pure returns (uint48) {
        return uint48(DemandOfLayer.unwrap(demanded) >> 48);
    }

    /// @param last The layer's last completion now.
    /// @return Whether there is a demand that it did not clear.
    function isOutstanding(DemandOfLayer demanded, Completion last) internal pure returns (bool) {
        uint256 standsThisSecond = DemandOfLayer.unwrap(demanded) >> 96;
        return completedAt(last) < demandedAt(demanded) + standsThisSecond;
    }

    function ofLayer(DemandsWord demands, uint256 layer) internal pure returns (DemandOfLayer) {
        return DemandOfLayer.wrap(_half(DemandsWord.unwrap(demands), layer));
    }

    function withLayer(DemandsWord demands, uint256 layer, DemandOfLayer demanded) internal pure returns (DemandsWord) {
        return DemandsWord.wrap(_withHalf(DemandsWord.unwrap(demands), layer, DemandOfLayer.unwrap(demanded)));
    }

    // The half of a word that belongs to a layer

    function _half(uint256 word, uint256 layer) private pure returns (uint256) {
        return layer & 1 == 0 ? uint128(word) : word >> 128;
    }

    function _withHalf(uint256 word, uint256 layer, uint256 half) private pure returns (uint256) {
        return layer & 1 == 0 ? word >> 128 << 128 | half : half << 128 | uint128(word);
    }
}
