// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Configurable wallet
/// @notice For tests only: an ERC-1271 wallet that answers in the one way it was deployed for, honest or hostile.
/// @dev Behaviour and owner lie in the code, so that an EIP-7702 account which delegates to this contract behaves the
/// same. What is told or approved lies in the storage of the account.
contract ConfigurableWallet {
    enum Behaviour {
        /// Yes to what the owner's key signed.
        OwnerSigned,
        /// Yes to what the account's own key signed.
        SelfSigned,
        /// Yes to a hash approved before on chain, when the signature is empty.
        HashApproved,
        /// Yes or no, as it was last told.
        AsTold,
        SaysYes,
        SaysNo,
        RevertsWithNothing,
        RevertsWithReason,
        /// Reverts, and the revert data are the magic word.
        RevertsWithMagic,
        /// Reverts with a megabyte that starts with the magic word.
        RevertsWithMegabyte,
        LoopsForever,
        HitsInvalidOpcode,
        ReturnsNothing,
        /// The magic value, but one byte less than a word.
        Returns31Bytes,
        /// The magic word and one word more.
        Returns64Bytes,
        /// The magic value with a low bit set behind it.
        ReturnsDirtyWord,
        /// The magic value at the wrong end of the word.
        ReturnsRightAligned,
        ReturnsTrue,
        /// A megabyte that starts with the magic word.
        ReturnsMegabyteOfYes,
        /// A megabyte without the magic word.
        ReturnsMegabyteOfNo,
        /// Would say yes, but writes to its storage first.
        WritesFirst,
        /// Calls its caller back with the signature as calldata, and says yes only if that succeeded.
        ReentersAndInsists,
        /// Calls its caller back with the signature as calldata, and says yes in any case.
        ReentersAndApproves,
        /// Calls its caller back with the signature from its second word on, and says yes if what comes back, revert
        /// data too, has the hash that is its first word.
        ReadsAndCompares
    }

    bytes4 private constant MAGIC = 0x1626ba7e;
    uint256 private constant MEGABYTE = 1 << 20;

    Behaviour public immutable BEHAVIOUR;
    address public immutable OWNER;

    bool public told;
    uint256 public calls;
    mapping(bytes32 hash => bool) public approved;

    constructor(Behaviour behaviour, address owner) {
        BEHAVIOUR = behaviour;
        OWNER = owner;
    }

    receive() external payable {}

    /// Anyone may tell, approve and execute: no test keeps anything here.
    function tell(bool yes) external {
        told = yes;
    }

    function approve(bytes32 hash) external {
        approved[hash] = true;
    }

    /// The wallet as direct caller.
    function execute(address target, bytes calldata data) external payable returns (bytes memory answer) {
        bool success;
        // solhint-disable-next-line avoid-low-level-calls
        (success, answer) = target.call{value: msg.value}(data);
        if (!success) _revertWith(answer);
    }

    /// ERC-1271, but not `view`: some behaviours try to write.
    function isValidSignature(bytes32 hash, bytes calldata signature) external returns (bytes4) {
        Behaviour behaviour = BEHAVIOUR;
        if (behaviour == Behaviour.OwnerSigned) return _answer(_signer(hash, signature) == OWNER);
        if (behaviour == Behaviour.SelfSigned) return _answer(_signer(hash, signature) == address(this));
        if (behaviour == Behaviour.HashApproved) return _answer(signature.length == 0 && approved[hash]);
        if (behaviour == Behaviour.AsTold) return _answer(told);
        if (behaviour == Behaviour.SaysYes) return MAGIC;
        if (behaviour == Behaviour.SaysNo) return _answer(false);
        if (behaviour == Behaviour.RevertsWithNothing) _revertWith("");
        if (behaviour == Behaviour.RevertsWithReason) _revertWith(abi.encodeWithSignature("Error(string)", "no"));
        if (behaviour == Behaviour.RevertsWithMagic) _revertWith(abi.encode(MAGIC));
        if (behaviour == Behaviour.RevertsWithMegabyte) _revertWith(_megabyte(MAGIC));
        if (behaviour == Behaviour.LoopsForever) _burn();
        if (behaviour == Behaviour.HitsInvalidOpcode) _hitInvalidOpcode();
        if (behaviour == Behaviour.ReturnsNothing) _return("");
        if (behaviour == Behaviour.Returns31Bytes) _return(abi.encodePacked(MAGIC, bytes27(0)));
        if (behaviour == Behaviour.Returns64Bytes) _return(abi.encode(MAGIC, type(uint256).max));
        if (behaviour == Behaviour.ReturnsDirtyWord) _return(abi.encodePacked(MAGIC, uint224(1)));
        if (behaviour == Behaviour.ReturnsRightAligned) _return(abi.encode(uint32(MAGIC)));
        if (behaviour == Behaviour.ReturnsTrue) _return(abi.encode(true));
        if (behaviour == Behaviour.ReturnsMegabyteOfYes) _return(_megabyte(MAGIC));
        if (behaviour == Behaviour.ReturnsMegabyteOfNo) _return(_megabyte(0xffffffff));
        if (behaviour == Behaviour.WritesFirst) return _write();
        if (behaviour == Behaviour.ReadsAndCompares) return _answer(_reads(signature));
        // solhint-disable-next-line avoid-low-level-calls
        (bool success,) = msg.sender.call(signature);
        return _answer(success || behaviour == Behaviour.ReentersAndApproves);
    }

    function _write() private returns (bytes4) {
        ++calls;
        return MAGIC;
    }

    function _reads(bytes calldata signature) private returns (bool) {
        if (signature.length < 32) return false;
        // solhint-disable-next-line avoid-low-level-calls
        (, bytes memory answer) = msg.sender.call(signature[32:]);
        return keccak256(answer) == bytes32(signature[:32]);
    }

    function _answer(bool yes) private pure returns (bytes4) {
        return yes ? MAGIC : bytes4(0xffffffff);
    }

    /// The zero address unless 65 bytes recover to someone. As lenient about `s` as the precompile is.
    function _signer(bytes32 hash, bytes calldata signature) private view returns (address) {
        if (signature.length != 65) return address(0);
        return ecrecover(hash, uint8(signature[64]), bytes32(signature[:32]), bytes32(signature[32:64]));
    }

    function _megabyte(bytes4 start) private pure returns (bytes memory data) {
        data = new bytes(MEGABYTE);
        assembly ("memory-safe") {
            mstore(add(data, 0x20), start)
        }
    }

    function _return(bytes memory data) private pure {
        assembly ("memory-safe") {
            return(add(data, 0x20), mload(data))
        }
    }

    function _revertWith(bytes memory data) private pure {
        assembly ("memory-safe") {
            revert(add(data, 0x20), mload(data))
        }
    }

    /// Powers are the dearest step that needs neither memory nor storage, so all gas is gone soon.
    function _burn() private pure {
        uint256 power = 3;
        while (true) {
            assembly ("memory-safe") {
                power := exp(power, not(0))
            }
        }
    }

    function _hitInvalidOpcode() private pure {
        assembly ("memory-safe") {
            invalid()
        }
    }
}
