// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/// @title The approval rule
/// @notice Whether an account approves a digest: by calling itself, by ERC-1271, or by its key, in that order.
/// @dev `SignatureChecker.isValidSignatureNow` lets code decide between ERC-1271 and ECDSA; an EIP-7702 account has
/// code and a key, so here a "no" from code is followed by the key. The ERC-1271 call copies at most one word back,
/// and puts no cap on the wallet's gas: the 1/64 that EIP-150 keeps back has to suffice for the rest.
library Approval {
    function isApproved(address account, bytes32 digest, bytes calldata signature) internal view returns (bool) {
        if (signature.length == 0 && msg.sender == account) return true;

        bool approvedByCode =
            account.code.length != 0 && SignatureChecker.isValidERC1271SignatureNowCalldata(account, digest, signature);
        if (approvedByCode) return true;

        (address recovered,,) = ECDSA.tryRecoverCalldata(digest, signature);
        return recovered == account;
    }
}
