"""Token keys: their 64-bit hash, their shard and their big-endian form in LMDB."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError

NO_TOKEN = -1
# Tokens of the shortest phrase. Single tokens and the root may have rows too, but are no phrases.
SHORTEST_PHRASE = 2
"""In int64 token arrays: padding, or no history."""

N_MAX_LIMIT = 15
"""Longest key that the format allows: a mask of lengths is 16 bits wide."""

ROOT_KEY = b"\x00"
"""LMDB form of the empty key, which LMDB itself does not allow."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_CHUNK = 1 << 18

UInt64s = NDArray[np.uint64]


def mix64(values: UInt64s) -> UInt64s:
    """Finalise 64-bit values (splitmix64, Steele, Lea and Flood 2014); a bijection."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def initial_state(seed: int) -> np.uint64:
    """State of the rolling hash before any token."""
    start: np.uint64 = mix64(np.array([seed], dtype=np.uint64) + _GOLDEN)[0]
    return start


def tokens_hash(tokens: NDArray[np.integer], lengths: NDArray[np.integer], seed: int) -> UInt64s:
    """Hash keys, newest token first, with the length mixed in.

    ``state = (state ^ token) * MIX_1; state ^= state >> 29`` for each token from the last to
    the first, then ``hash = mix64(state + length * GOLDEN)``. All suffixes of one position
    share their states, so hashing all of them costs no more than hashing the longest.

    Parameters
    ----------
    tokens : (n, width) uint32
        Row ``i`` holds ``lengths[i]`` tokens, oldest first; what follows is ignored.
    lengths : (n,) uint8
    seed : int
        Unsigned 64-bit.

    Returns
    -------
    (n,) uint64
    """
    hashes = np.empty(len(lengths), dtype=np.uint64)
    for begin in range(0, len(lengths), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        hashes[part] = _hash_chunk(tokens[part], lengths[part].astype(np.int64), seed)
    return hashes


def _hash_chunk(tokens: NDArray[np.integer], lengths: NDArray[np.int64], seed: int) -> UInt64s:
    states = suffix_states(tokens, lengths, seed, int(lengths.max(initial=0)))
    return mix64(states + lengths.astype(np.uint64) * _GOLDEN)


def suffix_states(
    tokens: NDArray[np.integer], lengths: NDArray[np.integer], seed: int, newest: int
) -> UInt64s:
    """Return the states of the rolling hash after the last `newest` tokens of keys.

    Parameters
    ----------
    tokens : (n, width) uint32
    lengths : (n,) integers
        Of a shorter key, all tokens are taken.
    seed : int
    newest : int

    Returns
    -------
    (n,) uint64
    """
    ends = lengths.astype(np.int64)
    states = np.full(len(ends), initial_state(seed), dtype=np.uint64)
    for age in range(newest):
        rows = np.flatnonzero(ends > age)
        token = tokens[rows, ends[rows] - 1 - age].astype(np.uint64)
        mixed = (states[rows] ^ token) * _MIX_1
        states[rows] = mixed ^ (mixed >> np.uint64(29))
    return states


def shard_of(hashes: UInt64s, shard_bits: int) -> NDArray[np.int64]:
    """Shard number of each hash: its top ``shard_bits`` bits."""
    if shard_bits == 0:
        return np.zeros(len(hashes), dtype=np.int64)
    return (hashes >> np.uint64(64 - shard_bits)).astype(np.int64)


def bucket_bits_for(entries: int, shard_bits: int) -> int:
    """Bits of the hash that choose a bucket: 2 to 4 keys a bucket, at least one bucket a shard."""
    return max(shard_bits, (entries // 2).bit_length() - 1, 0)


def bucket_and_remainder(
    hashes: UInt64s, bucket_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Split hashes into the top ``bucket_bits`` bits and the 32 bits below them."""
    rest = (hashes << np.uint64(bucket_bits)) >> np.uint64(32)
    return shard_of(hashes, bucket_bits), rest.astype(np.uint32)


def token_key(tokens: Sequence[int]) -> bytes:
    """Write a key as LMDB holds it: 4 bytes big-endian a token; one zero byte for no tokens."""
    return np.asarray(tokens, dtype=">u4").tobytes() if len(tokens) else ROOT_KEY


def key_tokens(key: bytes) -> tuple[int, ...]:
    """Read the tokens of an LMDB key."""
    return () if key == ROOT_KEY else tuple(np.frombuffer(key, dtype=">u4").tolist())


def key_order(tokens: NDArray[np.uint32], lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Permutation that sorts keys as LMDB does: by tokens, a prefix before what it begins."""
    wide = np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens.astype(np.int64) + 1, 0)
    if wide.shape[1] % 2:
        wide = np.pad(wide, ((0, 0), (0, 1)))
    pairs = (wide[:, 0::2] << 32) | wide[:, 1::2]
    return np.lexsort(pairs.T[::-1])


def pack_keys(
    keys: Sequence[Sequence[int]], n_max: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Lay out keys as a matrix.

    Returns
    -------
    tokens : (k, n_max) uint32
        Zero beyond each key's length.
    lengths : (k,) uint8
        255 for a key that no memory can hold: longer than `n_max` or with a negative token.
    """
    lengths = np.fromiter((min(len(key), 255) for key in keys), dtype=np.uint8, count=len(keys))
    tokens = np.zeros((len(keys), n_max), dtype=np.uint32)
    for row, key in enumerate(keys):
        if len(key) <= n_max and all(0 <= token < 1 << 32 for token in key):
            tokens[row, : len(key)] = key
        else:
            lengths[row] = 255
    return tokens, lengths


def check_keys(
    tokens: NDArray[np.uint32], lengths: NDArray[np.uint8], n_max: int, vocab_size: int
) -> None:
    """Refuse keys that the format cannot hold.

    Raises
    ------
    PhraseMemError
        If a length exceeds `n_max`, a token is outside the vocabulary, or there are tokens
        beyond a key's length.
    """
    if tokens.shape != (len(lengths), n_max):
        raise PhraseMemError(
            "tokens have the wrong shape", expected=(len(lengths), n_max), found=tokens.shape
        )
    if len(lengths) and int(lengths.max()) > n_max:
        raise PhraseMemError("a key is too long", expected=f"<= {n_max}", found=lengths.max())
    if tokens.size and int(tokens.max()) >= vocab_size:
        raise PhraseMemError(
            "a token is outside the vocabulary", expected=f"< {vocab_size}", found=tokens.max()
        )
    if np.any(tokens[np.arange(n_max) >= lengths[:, None]]):
        raise PhraseMemError("a key has tokens beyond its length", expected=0)
