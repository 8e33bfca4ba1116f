"""Hypothesis strategies that tests share. Edge values come often: zero, one, all ones, one bit."""

from __future__ import annotations

from hypothesis import strategies as st

from models.memory import ZERO_WORD, Delta

UINT64_MAX = 2**64 - 1


def _edge_values(size: int) -> list[bytes]:
    """Zero, all ones, and a lonely bit at either end."""
    return [bytes(size), b"\xff" * size, b"\x80" + bytes(size - 1), bytes(size - 1) + b"\x01"]


#: Any 32-byte word.
words = st.sampled_from(_edge_values(32)) | st.binary(min_size=32, max_size=32)
nonzero_words = words.filter(lambda value: value != ZERO_WORD)

#: Any 20-byte address.
addresses = st.sampled_from(_edge_values(20)) | st.binary(min_size=20, max_size=20)
nonzero_addresses = addresses.filter(any)

#: Any uint64; both sides of every byte boundary and of 2^53 come often.
uint64s = (
    st.sampled_from([0, 1, 2**53, 2**63, UINT64_MAX])
    | st.integers(1, 7).flatmap(lambda byte: st.sampled_from([2 ** (8 * byte) - 1, 2 ** (8 * byte)]))
    | st.integers(0, UINT64_MAX)
)

#: What a signature is not: bytes of lengths around those that mean something.
junk_signatures = st.sampled_from([1, 31, 32, 63, 64, 65, 66, 96, 130]).flatmap(
    lambda size: st.binary(min_size=size, max_size=size)
)

#: Secret keys of secp256k1, as bytes.
private_keys = st.integers(1, 2**255).map(lambda value: value.to_bytes(32, "big"))

#: Deltas with any content, valid or not.
deltas = st.builds(
    Delta,
    space_id=words,
    sequence=uint64s,
    prev_state_root=words,
    delta_commitment=words,
    provenance_commitment=words,
    profile_id=words,
    locator_commitment=words,
)

#: What the author of a delta chooses: its four content words, the optional ones zero now and then.
delta_contents = st.fixed_dictionaries(
    {
        "delta_commitment": nonzero_words,
        "provenance_commitment": words,
        "profile_id": nonzero_words,
        "locator_commitment": words,
    }
)
