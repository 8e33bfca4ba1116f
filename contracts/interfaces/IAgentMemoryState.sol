// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

/// @title Agent Memory State (ERC-8350)
/// @notice An append-only, authorized accumulator of private memory changes. A space is one agent's history; each
/// change is an `ExperienceDelta` that carries commitments only, and every accepted one moves the space to its next
/// state root. Nothing here can be rewritten, paused, upgraded or administered.
/// @dev Who approves, everywhere below, is decided in this order:
/// 1. a direct call from the very account, with an empty signature;
/// 2. if the account has code, ERC-1271: the call succeeds, returns at least 32 bytes, and the first word is
///    exactly the magic value;
/// 3. a canonical 65-byte ECDSA signature of the account (low s, v 27 or 28), also when it has code (EIP-7702).
/// Anything else ends in `InvalidAuthorization()`. A relayer has no authority of its own: whoever sends the
/// transaction, the signature decides.
interface IAgentMemoryState {
    /// @notice One private memory change, as commitments.
    /// @param spaceId The space that it belongs to.
    /// @param sequence Its number within the space: 1 for the first, then head + 1.
    /// @param prevStateRoot The state root before it; zero before the first.
    /// @param deltaCommitment Salted commitment to the payload; never zero.
    /// @param provenanceCommitment Salted commitment to where the change came from; zero when there is none.
    /// @param profileId What the payload means; never zero, and not interpreted here.
    /// @param locatorCommitment Salted commitment to where the payload is kept; zero when there is none.
    struct ExperienceDelta {
        bytes32 spaceId;
        uint64 sequence;
        bytes32 prevStateRoot;
        bytes32 deltaCommitment;
        bytes32 provenanceCommitment;
        bytes32 profileId;
        bytes32 locatorCommitment;
    }

    /// @notice A space now exists.
    event SpaceRegistered(bytes32 indexed spaceId, address indexed controller, address indexed authorizer);

    /// @notice A space has a new controller and authorizer, `configNonce` updates after its registration.
    event SpaceAuthorizationUpdated(
        bytes32 indexed spaceId, address indexed controller, address indexed authorizer, uint64 configNonce
    );

    /// @notice A delta was accepted; `authorizer` is the account that approved it.
    event TransitionCommitted(
        bytes32 indexed spaceId,
        bytes32 indexed transitionId,
        uint64 indexed sequence,
        bytes32 prevStateRoot,
        bytes32 nextStateRoot,
        bytes32 deltaCommitment,
        bytes32 provenanceCommitment,
        bytes32 profileId,
        bytes32 locatorCommitment,
        address authorizer
    );

    /// @notice The space id given is zero.
    error ZeroSpaceId();
    /// @notice A controller or authorizer given is the zero address.
    error ZeroAddress();
    /// @notice The space id given is not the one that this controller and salt derive.
    error InvalidSpaceId(bytes32 expected, bytes32 received);
    /// @notice The space exists already.
    error SpaceAlreadyRegistered();
    /// @notice No such space was registered.
    error UnknownSpace();
    /// @notice The delta commits to nothing.
    error ZeroDeltaCommitment();
    /// @notice The delta names no profile.
    error ZeroProfileId();
    /// @notice The delta is not the next one.
    error BadSequence(uint64 expected, uint64 received);
    /// @notice The delta was made on another state than the current one.
    error BadPreviousState(bytes32 expected, bytes32 received);
    /// @notice The account whose approval is needed did not give it.
    error InvalidAuthorization();

    /// @notice Registers a space, once. Callable by anyone with the controller's approval of
    /// `SpaceRegistration(spaceId, controller, authorizer)`.
    /// @dev Reverts, in this order: `ZeroSpaceId`, `ZeroAddress`, `InvalidSpaceId`, `SpaceAlreadyRegistered`,
    /// `InvalidAuthorization`. Emits `SpaceRegistered`.
    /// @param spaceId Must equal `deriveSpaceId(controller, salt)`.
    /// @param controller The account that may replace itself and the authorizer.
    /// @param authorizer The account that approves transitions.
    /// @param salt Lets one controller own many spaces.
    /// @param controllerSignature The controller's approval; empty when the controller itself calls.
    function registerSpace(
        bytes32 spaceId,
        address controller,
        address authorizer,
        bytes32 salt,
        bytes calldata controllerSignature
    ) external;

    /// @notice Replaces controller and authorizer of a space at once, at once in force. Callable by anyone with the
    /// current controller's approval of `SpaceAuthorization(spaceId, newController, newAuthorizer, configNonce + 1)`.
    /// @dev Reverts, in this order: `ZeroAddress`, `UnknownSpace`, `InvalidAuthorization`. Emits
    /// `SpaceAuthorizationUpdated`.
    /// @param spaceId The space.
    /// @param newController The next controller; may be the current one.
    /// @param newAuthorizer The next authorizer; may be the current one.
    /// @param controllerSignature The current controller's approval; empty when it calls itself.
    function updateSpaceAuthorization(
        bytes32 spaceId,
        address newController,
        address newAuthorizer,
        bytes calldata controllerSignature
    ) external;

    /// @notice Appends a delta to its space. Callable by anyone with the authorizer's approval of all seven fields.
    /// @dev Reverts, in this order: `UnknownSpace`, `ZeroDeltaCommitment`, `ZeroProfileId`, `BadSequence`,
    /// `BadPreviousState`, `InvalidAuthorization`. Emits `TransitionCommitted`.
    /// @param delta The change.
    /// @param authorizerSignature The authorizer's approval; empty when the authorizer itself calls.
    /// @return transitionId `hashExperienceDelta(delta)`.
    /// @return nextStateRoot The state root from now on.
    function commitTransition(ExperienceDelta calldata delta, bytes calldata authorizerSignature)
        external
        returns (bytes32 transitionId, bytes32 nextStateRoot);

    /// @notice The last transition of a space. Reverts `UnknownSpace`.
    /// @return transitionId Its id; zero before the first.
    /// @return stateRoot The current state root; zero before the first.
    /// @return sequence Its number, which is also how many there are.
    function head(bytes32 spaceId) external view returns (bytes32 transitionId, bytes32 stateRoot, uint64 sequence);

    /// @notice Who may act for a space. Reverts `UnknownSpace`.
    /// @return controller The account that approves updates of the authorization.
    /// @return authorizer The account that approves transitions.
    /// @return configNonce How many updates there were; the next one signs `configNonce + 1`.
    function spaceAuthorization(bytes32 spaceId)
        external
        view
        returns (address controller, address authorizer, uint64 configNonce);

    /// @notice The id of the space that `initialController` can register with `salt`:
    /// keccak256(abi.encode(keccak256("MemorySpace(address initialController,bytes32 salt)"), initialController,
    /// salt)). Reverts `ZeroAddress`.
    function deriveSpaceId(address initialController, bytes32 salt) external pure returns (bytes32);
}
