"""Exact n-grams of one run of tokens, by one sort for all lengths.

Windows of all lengths from one start are prefixes of the longest. So the starts are sorted by
the ``n_max`` tokens from there; equal n-grams of any length then stand together. No hash is
involved: two n-grams are one only if their tokens are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrasemem.pipeline.tokens import TokenRun

# Token ids below this are counted in a table; what has greater ones is numbered first.
_DENSE = 1 << 24


class Counted(NamedTuple):
    """Distinct n-grams: shorter ones first, those of a length in the order of their tokens.

    Attributes
    ----------
    lengths : (k,) uint8
    starts : (k,) int32
        Where each begins first in the run.
    counts, documents : (k,) uint32
    """

    lengths: NDArray[np.uint8]
    starts: NDArray[np.int32]
    counts: NDArray[np.uint32]
    documents: NDArray[np.uint32]

    def at(self, places: NDArray[np.integer[Any]]) -> Counted:
        """Return some of the n-grams."""
        return Counted(*(column[places] for column in self))


def counted(run: TokenRun, n_max: int) -> Counted:
    """Count the windows of 2..n_max tokens that may be phrases; ``n_max`` is 8 at most."""
    from phrasemem.pipeline import ngram_kernels as kernels

    valid = np.empty(len(run.tokens), np.uint8)
    windows = kernels.valid_lengths(run.flags, n_max, valid)
    order = in_order(run.tokens, np.flatnonzero(valid).astype(np.int32), n_max)
    shared, bits = np.empty((2, len(order)), np.uint8)
    document = np.empty(len(order), np.int32)
    kernels.compare(run.tokens, order, n_max, valid, documents_of(run), shared, bits, document)
    starts = np.empty(windows + 1, np.int32)
    counts, documents = np.empty((2, windows + 1), np.uint32)
    cuts = [0]
    for length in range(2, n_max + 1):
        seen = np.zeros(len(run.ends), np.int32)
        cuts.append(
            kernels.group(
                length, order, shared, bits, document, seen, cuts[-1], starts, counts, documents
            )
        )
    lengths = np.repeat(np.arange(2, n_max + 1, dtype=np.uint8), np.diff(cuts))
    size = cuts[-1]
    return Counted(lengths, starts[:size], counts[:size], documents[:size])


def documents_of(run: TokenRun) -> NDArray[np.int32]:
    """Return the number of the document that each token is in."""
    return np.repeat(np.arange(len(run.ends), dtype=np.int32), np.diff(run.ends, prepend=0))


def in_order(
    tokens: NDArray[np.uint32], starts: NDArray[np.int32], n_max: int
) -> NDArray[np.int32]:
    """Sort starts by the n_max tokens from there; in no order where all of these are equal.

    Each round sorts by as many more tokens as a number of 64 bits holds beside the rank so far.
    Starts whose tokens no other one has are done and take no part in the next round.
    """
    from phrasemem.pipeline import ngram_kernels as kernels

    bits = max(1, int(tokens.max(initial=0)).bit_length())
    order = starts
    ranks = np.zeros(len(starts), np.uint32)
    open_places = np.arange(len(starts))
    done = 0
    while done < n_max and len(open_places):
        free = 64 - int(ranks[-1]).bit_length()
        places = min(n_max - done, free // bits)
        keys = np.empty(len(ranks), np.uint64)
        part = order[open_places]
        kernels.pack(tokens, part, ranks, done, places, bits, keys)
        by_key = np.argsort(keys)
        keys = keys[by_key]
        order[open_places] = part[by_key]
        new = np.empty(len(keys), np.bool_)
        new[:1] = True
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        single = new.copy()
        single[:-1] &= new[1:]
        open_places = open_places[~single]
        ranks = np.cumsum(new[~single], dtype=np.uint32) - np.uint32(1)
        done += places
    return order


def hashes_of(tokens: NDArray[np.uint32], found: Counted) -> NDArray[np.uint64]:
    """Return the hashes of n-grams, (k,) uint64."""
    from phrasemem.pipeline import ngram_kernels as kernels

    hashes = np.empty(len(found.starts), np.uint64)
    rolling = np.zeros(len(tokens), np.uint64)
    kernels.roll(tokens, 1, rolling)
    begin = 0
    for length in range(2, int(found.lengths.max(initial=0)) + 1):
        kernels.roll(tokens, length, rolling)
        end = begin + int(np.searchsorted(found.lengths[begin:], length, side="right"))
        kernels.finish(length, rolling, found.starts[begin:end], hashes[begin:end])
        begin = end
    return hashes


def by_bucket(hashes: NDArray[np.uint64], buckets: int) -> tuple[NDArray[np.int32], list[int]]:
    """Sort stably by bucket: the places of what comes first to last, and where buckets begin.

    Buckets are equal ranges of the hash; ``buckets`` is a power of two. The last of the
    ``buckets + 1`` limits is the number of hashes.
    """
    from phrasemem.pipeline import ngram_kernels as kernels

    cuts = np.zeros(buckets + 1, np.int64)
    places = np.empty(len(hashes), np.int32)
    kernels.by_bucket(hashes, buckets.bit_length() - 1, cuts, places)
    return places, cuts.tolist()


def members(hashes: NDArray[np.uint64], survivors: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Tell of each hash whether it is among ``survivors``, which rise; exact."""
    return places_among(hashes, survivors) >= 0


def places_among(hashes: NDArray[np.uint64], survivors: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return where each hash is among ``survivors``, which rise; -1 if it is not.

    Hashes are spread evenly, so that a directory by their highest bits leaves a few survivors
    to look through. It grows with the fewer of the two.
    """
    from phrasemem.pipeline import ngram_kernels as kernels

    places = np.full(len(hashes), -1, np.int64)
    if len(survivors) == 0 or len(hashes) == 0:
        return places
    first, last = survivors[0], survivors[-1]
    lines = min(len(hashes), len(survivors))
    shift = max(0, int(last - first).bit_length() - lines.bit_length())
    limits = np.arange((int(last - first) >> shift) + 1, dtype=np.uint64) << np.uint64(shift)
    directory = np.append(np.searchsorted(survivors, limits + first), len(survivors))
    kernels.find(hashes, survivors, directory, first, last, np.uint64(shift), places)
    return places


def token_counts(
    run: TokenRun,
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32]]:
    """Return the single tokens that occur, rising, their counts and those of their documents."""
    from phrasemem.pipeline import ngram_kernels as kernels

    size = int(run.tokens.max(initial=0)) + 1
    if size > _DENSE:
        tokens, dense = np.unique(run.tokens, return_inverse=True)
        _, counts, documents = token_counts(run._replace(tokens=dense.astype(np.uint32)))
        return tokens, counts, documents
    counts, documents = np.zeros(size, np.int64), np.zeros(size, np.uint32)
    latest = np.full(size, -1, np.int32)
    kernels.count_tokens(run.tokens, documents_of(run), counts, documents, latest)
    places = np.flatnonzero(counts)
    return places.astype(np.uint32), counts[places], documents[places]
