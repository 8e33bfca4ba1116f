// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAgentMeditation} from "../interfaces/IAgentMeditation.sol";

/// @title A contract that relies on maintenance
/// @notice Acts only with a counterparty whose layer is FRESH, and checks that a subject returned to an earlier state.
contract MeditationConsumer {
    IAgentMeditation private immutable REGISTRY;

    event Acted(address indexed counterparty, uint8 layer, uint48 freshUntil);

    error NotFresh(address counterparty, uint8 layer, IAgentMeditation.MaintenanceStatus status);

    constructor(IAgentMeditation registry) {
        REGISTRY = registry;
    }

    /// @notice Does its work with a counterparty. Reverts `NotFresh` if the layer is anything else, unknown included.
    function actWith(address counterparty, uint8 layer) external {
        (IAgentMeditation.MaintenanceStatus status, uint48 deadline,) = REGISTRY.layerStatus(counterparty, layer);
        if (status != IAgentMeditation.MaintenanceStatus.FRESH) revert NotFresh(counterparty, layer, status);

        emit Acted(counterparty, layer, deadline);
    }

    /// @notice Whether a subject's current state is one that it registered as version `restored` before.
    function isRestored(address subject, uint64 restored) external view returns (bool) {
        IAgentMeditation.Head memory head = REGISTRY.headOf(subject);
        return restored < head.stateVersion && REGISTRY.rootAt(subject, restored) == head.root;
    }
}
