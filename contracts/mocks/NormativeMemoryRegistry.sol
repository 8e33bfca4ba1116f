// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAgentMemoryState} from "../interfaces/IAgentMemoryState.sol";

/// @title Normative memory registry
/// @notice For tests only: a second ERC-8350 registry, as plain as can be, with the standard's interface and nothing
/// beside it. What is said of one registry has to hold for both; a client that needs more than the standard fails here.
/// @dev Shares the interface with the other registry, and no line of code: no library, no assembly, a record of every
/// transition.
contract NormativeMemoryRegistry is IAgentMemoryState {
    struct Space {
        address controller;
        address authorizer;
        uint64 configNonce;
        uint64 sequence;
        bytes32 transitionId;
        bytes32 stateRoot;
    }

    struct Transition {
        ExperienceDelta delta;
        bytes32 nextStateRoot;
        address authorizer;
    }

    /// Half the order of the curve: the highest `s` of a canonical signature.
    uint256 private constant HIGHEST_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    mapping(bytes32 spaceId => Space) private _spaces;
    mapping(bytes32 transitionId => Transition) private _transitions;

    function registerSpace(
        bytes32 spaceId,
        address controller,
        address authorizer,
        bytes32 salt,
        bytes calldata controllerSignature
    ) external {
        if (spaceId == bytes32(0)) revert ZeroSpaceId();
        if (controller == address(0)) revert ZeroAddress();
        if (authorizer == address(0)) revert ZeroAddress();
        bytes32 expected = deriveSpaceId(controller, salt);
        if (expected != spaceId) revert InvalidSpaceId(expected, spaceId);
        if (_spaces[spaceId].controller != address(0)) revert SpaceAlreadyRegistered();
        bytes32 message = keccak256(
            abi.encode(
                keccak256("SpaceRegistration(bytes32 spaceId,address controller,address authorizer)"),
                spaceId,
                controller,
                authorizer
            )
        );
        if (!_approves(controller, message, controllerSignature)) revert InvalidAuthorization();

        _spaces[spaceId].controller = controller;
        _spaces[spaceId].authorizer = authorizer;
        emit SpaceRegistered(spaceId, controller, authorizer);
    }

    function updateSpaceAuthorization(
        bytes32 spaceId,
        address newController,
        address newAuthorizer,
        bytes calldata controllerSignature
    ) external {
        if (newController == address(0)) revert ZeroAddress();
        if (newAuthorizer == address(0)) revert ZeroAddress();
        Space storage space = _existing(spaceId);
        uint64 nonce = space.configNonce + 1;
        bytes32 message = keccak256(
            abi.encode(
                keccak256(
                    "SpaceAuthorization(bytes32 spaceId,address newController,address newAuthorizer,uint64 nonce)"
                ),
                spaceId,
                newController,
                newAuthorizer,
                nonce
            )
        );
        if (!_approves(space.controller, message, controllerSignature)) revert InvalidAuthorization();

        space.controller = newController;
        space.authorizer = newAuthorizer;
        space.configNonce = nonce;
        emit SpaceAuthorizationUpdated(spaceId, newController, newAuthorizer, nonce);
    }

    function commitTransition(ExperienceDelta calldata delta, bytes calldata authorizerSignature)
        external
        returns (bytes32 transitionId, bytes32 nextStateRoot)
    {
        Space storage space = _existing(delta.spaceId);
        if (delta.deltaCommitment == bytes32(0)) revert ZeroDeltaCommitment();
        if (delta.profileId == bytes32(0)) revert ZeroProfileId();
        if (delta.sequence != space.sequence + 1) revert BadSequence(space.sequence + 1, delta.sequence);
        if (delta.prevStateRoot != space.stateRoot) revert BadPreviousState(space.stateRoot, delta.prevStateRoot);
        transitionId = keccak256(
            abi.encode(
                keccak256(
                    "ExperienceDelta(bytes32 spaceId,uint64 sequence,bytes32 prevStateRoot,bytes32 deltaCommitment,bytes32 provenanceCommitment,bytes32 profileId,bytes32 locatorCommitment)"
                ),
                delta
            )
        );
        if (!_approves(space.authorizer, transitionId, authorizerSignature)) revert InvalidAuthorization();

        nextStateRoot = keccak256(
            abi.encode(
                keccak256("MemoryState(bytes32 prevStateRoot,bytes32 transitionId)"), delta.prevStateRoot, transitionId
            )
        );
        _transitions[transitionId] = Transition(delta, nextStateRoot, space.authorizer);
        space.sequence = delta.sequence;
        space.transitionId = transitionId;
        space.stateRoot = nextStateRoot;
        emit TransitionCommitted(
            delta.spaceId,
            transitionId,
            delta.sequence,
            delta.prevStateRoot,
            nextStateRoot,
            delta.deltaCommitment,
            delta.provenanceCommitment,
            delta.profileId,
            delta.locatorCommitment,
            space.authorizer
        );
    }

    function head(bytes32 spaceId) external view returns (bytes32 transitionId, bytes32 stateRoot, uint64 sequence) {
        Space storage space = _existing(spaceId);
        return (space.transitionId, space.stateRoot, space.sequence);
    }

    function spaceAuthorization(bytes32 spaceId)
        external
        view
        returns (address controller, address authorizer, uint64 configNonce)
    {
        Space storage space = _existing(spaceId);
        return (space.controller, space.authorizer, space.configNonce);
    }

    function deriveSpaceId(address initialController, bytes32 salt) public pure returns (bytes32) {
        if (initialController == address(0)) revert ZeroAddress();
        return keccak256(
            abi.encode(keccak256("MemorySpace(address initialController,bytes32 salt)"), initialController, salt)
        );
    }

    function _existing(bytes32 spaceId) private view returns (Space storage space) {
        space = _spaces[spaceId];
        if (space.controller == address(0)) revert UnknownSpace();
    }

    function _approves(address account, bytes32 message, bytes calldata signature) private view returns (bool) {
        if (msg.sender == account && signature.length == 0) return true;
        bytes32 digest = keccak256(abi.encodePacked(bytes2(0x1901), _domain(), message));
        return _walletApproves(account, digest, signature) || _keyApproves(account, digest, signature);
    }

    function _domain() private view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("AgentMemoryState"),
                keccak256("1"),
                block.chainid,
                address(this)
            )
        );
    }

    function _walletApproves(address account, bytes32 digest, bytes calldata signature) private view returns (bool) {
        if (account.code.length == 0) return false;
        // solhint-disable-next-line avoid-low-level-calls
        (bool success, bytes memory answer) =
            account.staticcall(abi.encodeWithSignature("isValidSignature(bytes32,bytes)", digest, signature));
        return success && answer.length >= 32 && bytes32(answer) == bytes32(bytes4(0x1626ba7e));
    }

    function _keyApproves(address account, bytes32 digest, bytes calldata signature) private pure returns (bool) {
        if (signature.length != 65) return false;
        bytes32 s = bytes32(signature[32:64]);
        uint8 v = uint8(signature[64]);
        if (uint256(s) > HIGHEST_S || (v != 27 && v != 28)) return false;
        address signer = ecrecover(digest, v, bytes32(signature[:32]), s);
        return signer != address(0) && signer == account;
    }
}
