"""Compiled loops: probe the index, compare tokens, find longest matches, gather rows.

The kernels read the index and the mapped rows through one table of addresses, because
unpacking ten arrays costs more than a small batch. Whoever calls a kernel keeps a reference
to the :class:`~phrasemem.memfmt.table.Table`, which keeps the memory behind it alive.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable,var-annotated"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import (
    LANES,
    equal_u32,
    kernel,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    lowest_bit,
    prefetch,
)

INTRINSICS = "496cef94"
"""Begins the SHA-256 of intrinsics.py; a test holds it. numba compiles this file anew when it
changes itself, but not when what it imports does."""

# Places in the table. All are int64; addresses and the hash state are reinterpreted.
(
    DIRECTORY,
    REMAINDERS,
    MASKS,
    BASES,
    FIRST_ROWS,
    BUCKET_BITS,
    MASKS_SIZE,
    SHARDS_A_ROW,
    STRIDE,
    N_MAX,
    ENTRIES,
    INITIAL_STATE,
    VOCAB_SIZE,
    TABLE_SIZE,
) = range(14)

PROBE_WIDTH = LANES
"""Remainders that a probe always reads; the index is padded by as many."""

BLOCK = 64
"""Keys whose memory reads are in flight together."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TOKENS_OFFSET = 4
_N_MAX_LIMIT = 15


@kernel
def _step(state, token):
    mixed = (state ^ np.uint64(token)) * _MIX_1
    return mixed ^ (mixed >> np.uint64(29))


@kernel
def _finish(state, length):
    value = state + np.uint64(length) * _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@kernel
def _bucket(table, value):
    # Shifting a 64-bit value by 64 is undefined, so zero bits are shifted in two steps.
    bits = np.uint64(table[BUCKET_BITS])
    return np.int64((value >> np.uint64(1)) >> (np.uint64(63) - bits))


@kernel
def _probe(table, value):
    """Row of the one key that can have this hash, or -1.

    Compares a fixed number of remainders at once, since nothing predicts how many keys a
    bucket holds; the index ends in as many spare ones.
    """
    bucket = _bucket(table, value)
    remainder = np.uint32((value << np.uint64(table[BUCKET_BITS])) >> np.uint64(32))
    row = np.int64(load_u32(table[DIRECTORY], bucket))
    end = np.int64(load_u32(table[DIRECTORY], bucket + 1))
    while row < end:
        same = equal_u32(table[REMAINDERS], row, remainder)
        if same:
            row += lowest_bit(same)
            # What lies beyond the bucket belongs to others.
            return row if row < end else np.int64(-1)
        row += PROBE_WIDTH
    return np.int64(-1)


@kernel
def _row_address(table, row):
    """Address of a row in its shard's mapped file."""
    # Hashes are uniform, so shards are of about one size and a guess is hardly ever off.
    shard = (row * table[SHARDS_A_ROW]) >> 32
    while load_i64(table[FIRST_ROWS], shard) > row:
        shard -= 1
    while load_i64(table[FIRST_ROWS], shard + 1) <= row:
        shard += 1
    return load_i64(table[BASES], shard) + row * table[STRIDE]


@kernel
def _row_holds(table, row, tokens, line, end, length):
    """Whether the row's key is ``tokens[line, end - length:end]``."""
    address = _row_address(table, row)
    same = load_u8(address, 0) == length
    for i in range(length):
        stored = np.int64(load_u32(address + _TOKENS_OFFSET, i))
        same &= stored == np.int64(tokens[line, end - length + i])
    return same


@kernel
def _initial(table):
    return np.uint64(table[INITIAL_STATE])


@kernel
def look_up(table, tokens, lengths, rows):
    """Row of each key, exact, or -1.

    Parameters
    ----------
    table : (TABLE_SIZE,) int64
    tokens : (k, n_max) uint32
    lengths : (k,) uint8
    rows : (k,) int64
        Written; holds the hashes in between.
    """
    for begin in range(0, len(lengths), BLOCK):
        end = min(begin + BLOCK, len(lengths))
        for i in range(begin, end):
            value = _hash(table, tokens, i, np.int64(lengths[i]))
            prefetch(table[DIRECTORY], 4 * _bucket(table, value))
            rows[i] = np.int64(value)
        for i in range(begin, end):
            bucket = _bucket(table, np.uint64(rows[i]))
            prefetch(table[REMAINDERS], 4 * np.int64(load_u32(table[DIRECTORY], bucket)))
        for i in range(begin, end):
            rows[i] = _probe(table, np.uint64(rows[i]))
            if rows[i] >= 0:
                prefetch(_row_address(table, rows[i]), 0)
        for i in range(begin, end):
            if rows[i] >= 0:
                rows[i] = _verified(table, rows[i], tokens, i, np.int64(lengths[i]))


@kernel
def _hash(table, tokens, line, length):
    state = _initial(table)
    # A fixed number of steps: nothing predicts how long the next key is.
    for j in range(tokens.shape[1] - 1, -1, -1):
        state = _step(state, tokens[line, j]) if j < length else state
    return _finish(state, length)


@kernel
def _verified(table, row, tokens, line, length):
    if length <= tokens.shape[1] and _row_holds(table, row, tokens, line, length, length):
        return row
    return np.int64(-1)


@kernel
def find_candidates(table, tokens, start, shortest, longest, rows, lengths):
    """Longest key, by the index alone, that seems to end at each position.

    Parameters
    ----------
    table : (TABLE_SIZE,) int64
    tokens : (B, T) int64
        Anything below 0, or beyond the vocabulary, ends the history.
    start : int
        First position to answer.
    shortest : int
        Shorter keys are not considered.
    longest : (B, T - start) uint8
        Longer keys are not considered at that position.
    rows : (B, T - start) int64
        Written; -1 where there is none.
    lengths : (B, T - start) uint8
        Written; 0 where there is none.
    """
    width = tokens.shape[1] - start
    total = tokens.shape[0] * width
    hashes = np.empty((BLOCK, _N_MAX_LIMIT + 1), dtype=np.uint64)
    masks = np.empty(BLOCK, dtype=np.int64)
    line, column = 0, 0
    for begin in range(0, total, BLOCK):
        count = min(BLOCK, total - begin)
        b, t = line, column
        for i in range(count):
            limit = np.int64(longest[b, t])
            masks[i] = _suffixes(table, tokens, b, start + t + 1, shortest, limit, hashes, i)
            b, t = _next(b, t, width)
        for i in range(count):
            _prefetch_remainders(table, masks[i], hashes, i)
        for i in range(count):
            rows[line, column], lengths[line, column] = _first_hit(table, masks[i], hashes, i)
            line, column = _next(line, column, width)


@kernel
def _next(line, column, width):
    """Next place in reading order; a division would cost more than a probe."""
    column += 1
    return (line + 1, 0) if column == width else (line, column)


@kernel
def _suffixes(table, tokens, line, end, shortest, limit, hashes, i):
    """Hash the suffixes that can be keys; return the mask of their lengths."""
    limit = min(limit, end, table[N_MAX])
    mask = _lengths_that_end_with(table, tokens[line, end - 1])
    mask &= (np.int64(2) << limit) - 1
    mask &= -(np.int64(1) << max(shortest, 1))
    state = _initial(table)
    hashes[i, 0] = _finish(state, np.int64(0))
    length = np.int64(1)
    while mask >> length:
        token = tokens[line, end - length]
        if token < 0 or token >= table[VOCAB_SIZE]:
            break
        state = _step(state, token)
        if (mask >> length) & 1:
            hashes[i, length] = _finish(state, length)
            prefetch(table[DIRECTORY], 4 * _bucket(table, hashes[i, length]))
        length += 1
    mask &= (np.int64(1) << length) - 1
    return mask | 1 if shortest == 0 else mask


@kernel
def _prefetch_remainders(table, mask, hashes, i):
    length = np.int64(0)
    while mask >> length:
        if (mask >> length) & 1:
            bucket = _bucket(table, hashes[i, length])
            prefetch(table[REMAINDERS], 4 * np.int64(load_u32(table[DIRECTORY], bucket)))
        length += 1


@kernel
def _first_hit(table, mask, hashes, i):
    """Row and length of the longest suffix in the mask that the index holds; (-1, 0) for none."""
    for length in range(_N_MAX_LIMIT, -1, -1):
        if (mask >> length) & 1:
            row = _probe(table, hashes[i, length])
            if row >= 0:
                return row, length
    return np.int64(-1), np.int64(0)


@kernel
def _lengths_that_end_with(table, token):
    if token < 0 or token >= table[MASKS_SIZE]:
        return np.int64(0)
    return np.int64(load_u16(table[MASKS], token))


@kernel
def settle_candidates(table, tokens, start, shortest, rows, lengths):
    """Compare candidates with the tokens in their rows; put right the few that are wrong.

    Parameters
    ----------
    table, tokens, start, shortest
        As for :func:`find_candidates`.
    rows : (B, T - start) int64
        Read and written.
    lengths : (B, T - start) uint8
        Read and written.

    Returns
    -------
    int
        How many candidates were wrong.
    """
    hashes = np.empty((1, _N_MAX_LIMIT + 1), dtype=np.uint64)
    width = tokens.shape[1] - start
    total = tokens.shape[0] * width
    wrong = 0
    line, column = 0, 0
    for begin in range(0, total, BLOCK):
        count = min(BLOCK, total - begin)
        b, t = line, column
        for _ in range(count):
            if rows[b, t] >= 0:
                prefetch(_row_address(table, rows[b, t]), 0)
            b, t = _next(b, t, width)
        for _ in range(count):
            end = start + column + 1
            row, length = rows[line, column], np.int64(lengths[line, column])
            while row >= 0 and not _row_holds(table, row, tokens, line, end, length):
                wrong += 1
                row, length = _shorter(table, tokens, line, end, shortest, length, hashes)
                rows[line, column], lengths[line, column] = row, length
            line, column = _next(line, column, width)
    return wrong


@kernel
def _shorter(table, tokens, line, end, shortest, length, hashes):
    """Row and length of the longest candidate that is shorter than `length`."""
    if length <= shortest:
        return np.int64(-1), np.int64(0)
    mask = _suffixes(table, tokens, line, end, shortest, length - 1, hashes, 0)
    return _first_hit(table, mask, hashes, 0)


@kernel
def not_announced(announced, rows, out):
    """Pick the rows whose bit is not set yet, and set it.

    Parameters
    ----------
    announced : (n,) uint8
        One bit a row.
    rows : (k,) int64
    out : (k,) int64
        Written.

    Returns
    -------
    int
        How many of `out` were written.
    """
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        bit = np.uint8(1 << (row & 7))
        if row >= 0 and not announced[row >> 3] & bit:
            announced[row >> 3] |= bit
            out[count] = row
            count += 1
    return count


@kernel
def gather_rows(table, rows, out):
    """Copy whole rows.

    Parameters
    ----------
    table : (TABLE_SIZE,) int64
    rows : (k,) int64
        Each within the memory.
    out : (k, stride // 8) int64
        Written.
    """
    for i in range(len(rows)):
        address = _row_address(table, rows[i])
        for j in range(out.shape[1]):
            out[i, j] = load_i64(address, j)
