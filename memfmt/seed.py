"""The hash seed of a memory, and the rows that it gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.memfmt.index import MAX_BUCKET
from phrasemem.memfmt.keys import UInt64s, bucket_and_remainder, bucket_bits_for, tokens_hash

MAX_SEEDS = 1000
"""Seeds that are tried; of 100M keys one in ten seeds or so fails."""


def choose_seed(lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], first_seed: int = 0) -> int:
    """Find the first seed for which the index tells all keys apart.

    Parameters
    ----------
    lengths : (n,) uint8
    tokens : (n, n_max) uint32
    first_seed : int
        Seeds are tried from here upwards, so the result is a function of the keys.

    Returns
    -------
    int
        With it no two keys share bucket and remainder, for any number of shards.

    Raises
    ------
    PhraseMemError
        If a key stands there twice.
    """
    for seed in range(first_seed, first_seed + MAX_SEEDS):
        hashes = tokens_hash(tokens, lengths, seed)
        if told_apart(hashes, len(hashes)):
            return seed
        if seed == first_seed:
            refuse_duplicates(hashes, lengths, tokens)
    raise PhraseMemError("no seed tells all keys apart", found=f"{MAX_SEEDS} seeds tried")


def told_apart(hashes: UInt64s, entries: int) -> bool:
    """Tell whether the index of a memory tells keys apart.

    Parameters
    ----------
    hashes : (n,) uint64
        Of all keys of the memory, or of all keys of one shard.
    entries : int
        Keys of the whole memory.
    """
    if len(hashes) == 0:
        return True
    bucket_bits = bucket_bits_for(entries, 0)
    # The bits below bucket and remainder play no part in a probe.
    probed = np.sort(hashes >> np.uint64(32 - bucket_bits))
    buckets, _ = bucket_and_remainder(hashes, bucket_bits)
    fullest = int(np.bincount(buckets - buckets.min()).max())
    return fullest <= MAX_BUCKET and not np.any(probed[1:] == probed[:-1])


def refuse_duplicates(
    hashes: UInt64s, lengths: NDArray[np.uint8], tokens: NDArray[np.uint32]
) -> None:
    """Refuse a key that stands there twice.

    Parameters
    ----------
    hashes : (n,) uint64
    lengths : (n,) uint8
    tokens : (n, n_max) uint32

    Raises
    ------
    PhraseMemError
        Naming the key.
    """
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    for first, second in zip(order[same], order[same + 1], strict=True):
        if lengths[first] == lengths[second] and np.array_equal(tokens[first], tokens[second]):
            key = tokens[first, : lengths[first]].tolist()
            raise PhraseMemError("a key stands there twice", found=key)


def row_ids(
    lengths: NDArray[np.uint8], tokens: NDArray[np.uint32], hash_seed: int
) -> NDArray[np.int64]:
    """Row id that each key of a memory gets: its rank in hash order.

    Parameters
    ----------
    lengths : (n,) uint8
    tokens : (n, n_max) uint32
        All keys of the memory.
    hash_seed : int

    Returns
    -------
    (n,) int64
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    rows[np.argsort(tokens_hash(tokens, lengths, hash_seed))] = np.arange(len(lengths))
    return rows
