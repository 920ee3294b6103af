"""Compiled loops of counting: which windows may be phrases, groups of equal ones, their hashes."""

# mypy: disable-error-code="no-untyped-def,no-any-return,assignment,operator"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import kernel

_MAY_START, _MAY_END, _CUT_AFTER = 1, 2, 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@kernel
def valid_lengths(flags, n_max, valid):
    """Set bit n - 1 of ``valid`` (tokens,) uint8 where a window of n tokens may be a phrase.

    Returns how many windows there are.
    """
    windows = 0
    for first in range(len(flags)):
        valid[first] = 0
        if not flags[first] & _MAY_START:
            continue
        for place in range(1, min(n_max, len(flags) - first)):
            if flags[first + place - 1] & _CUT_AFTER:
                break
            if flags[first + place] & _MAY_END:
                valid[first] |= 1 << place
                windows += 1
    return windows


@kernel
def pack(tokens, starts, ranks, from_place, places, bits, keys):
    """Write rank and the next ``places`` tokens of each start as one number.

    Beyond the end of the run stand zeros: no window that may be a phrase reaches there.
    """
    for i in range(len(starts)):
        key = np.uint64(ranks[i])
        for place in range(from_place, from_place + places):
            at = starts[i] + place
            token = np.uint64(tokens[at]) if at < len(tokens) else np.uint64(0)
            key = (key << np.uint64(bits)) | token
        keys[i] = key


@kernel
def compare(tokens, order, n_max, valid, document_of, shared, bits, documents):
    """Write of each start in ``order`` what it shares with the one before, and what is there.

    Parameters
    ----------
    shared : (starts,) uint8
        Written: equal tokens from there, n_max at most.
    bits : (starts,) uint8
        Written: ``valid`` of the start.
    documents : (starts,) int32
        Written: ``document_of`` the start.
    """
    size = len(tokens)
    before = size
    for i in range(len(order)):
        start = np.int64(order[i])
        most = min(n_max, size - max(before, start))
        length = 0
        while length < most and tokens[before + length] == tokens[start + length]:
            length += 1
        shared[i], bits[i], documents[i] = length, valid[start], document_of[start]
        before = start


@kernel
def group(length, order, shared, bits, document, seen, at, starts, counts, documents):
    """Count equal windows of one length, which stand together; return where their list ends.

    There is no branch in the loop: what comes next is a toss of a coin, and each wrong guess
    would cost more than all that is computed.

    Parameters
    ----------
    order, shared, bits, document : (s,)
        See :func:`compare`.
    seen : (documents,) int32, zeros
        In which group a document was met last.
    at : int
        Place of the first n-gram.
    starts, counts, documents : (windows + 1,)
        Written from ``at`` on. Where an n-gram begins first, how often it occurs, and in how
        many documents.
    """
    times, where, within, opened = 0, 0, 0, 0
    shift = length - 1
    for i in range(len(order)):
        new = shared[i] < length
        at += new & (times > 0)
        times = 0 if new else times
        within = 0 if new else within
        opened = i + 1 if new else opened
        is_window = (bits[i] >> shift) & 1
        start = np.int64(order[i])
        where = start if is_window & ((times == 0) | (start < where)) else where
        times += is_window
        within += is_window & (seen[document[i]] != opened)
        seen[document[i]] = opened if is_window else seen[document[i]]
        starts[at], counts[at], documents[at] = where, times, within
    return at + (times > 0)


@kernel
def roll(tokens, length, rolling):
    """Turn the polynomials of the windows of ``length`` - 1 tokens into those of ``length``."""
    for i in range(len(tokens) - length + 1):
        rolling[i] = rolling[i] * _GOLDEN + (np.uint64(tokens[i + length - 1]) + np.uint64(1))


@kernel
def finish(length, rolling, starts, hashes):
    """Write the hash of each n-gram; see :func:`phrasemem.pipeline.count.windows`."""
    for i in range(len(starts)):
        value = rolling[starts[i]] + _GOLDEN * np.uint64(length)
        value = (value ^ (value >> np.uint64(30))) * _MIX_1
        value = (value ^ (value >> np.uint64(27))) * _MIX_2
        hashes[i] = value ^ (value >> np.uint64(31))


@kernel
def by_bucket(hashes, bits, cuts, places):
    """Sort stably by the highest ``bits`` bits.

    Parameters
    ----------
    hashes : (k,) uint64
    bits : int
    cuts : (2**bits + 1,) int64, zeros
        Written: bucket b begins at ``cuts[b]``.
    places : (k,) int32
        Written: what was at ``places[i]`` is now at i.
    """
    # Half of the shift at a time: by 64 bits there is no shift.
    shift = np.uint64((64 - bits) // 2), np.uint64((64 - bits + 1) // 2)
    for value in hashes:
        cuts[np.int64(value >> shift[0] >> shift[1]) + 1] += 1
    for bucket in range(len(cuts) - 1):
        cuts[bucket + 1] += cuts[bucket]
    free = cuts.copy()
    for i in range(len(hashes)):
        bucket = np.int64(hashes[i] >> shift[0] >> shift[1])
        places[free[bucket]] = i
        free[bucket] += 1


@kernel
def find(hashes, survivors, directory, first, last, shift, places):
    """Write where each hash is among ``survivors``, which rise from first to last, if it is.

    ``directory[d]`` is where those with ``(hash - first) >> shift`` of d or more begin.
    """
    for i in range(len(hashes)):
        value = hashes[i]
        if value < first or value > last:
            continue
        line = np.int64((value - first) >> shift)
        low, high = directory[line], directory[line + 1]
        while low < high:
            middle = (low + high) // 2
            if survivors[middle] < value:
                low = middle + 1
            else:
                high = middle
        if low < len(survivors) and survivors[low] == value:
            places[i] = low


@kernel
def count_tokens(tokens, document_of, counts, documents, latest):
    """Count each token and the documents it is in; ``latest`` begins as -1."""
    for i in range(len(tokens)):
        token = tokens[i]
        counts[token] += 1
        if latest[token] != document_of[i]:
            latest[token] = document_of[i]
            documents[token] += 1
