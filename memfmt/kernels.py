"""Compiled loops: probe the index, compare tokens, find longest matches, gather rows.

The kernels read the index and the mapped rows through one table of addresses, because
unpacking ten arrays costs more than a small batch. Whoever calls a kernel keeps a reference
to the :class:`~phrasemem.memfmt.table.Table`, which keeps the memory behind it alive.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

# Places in the table. All are int64; addresses and the hash state are reinterpreted.
(
    DIRECTORY,
    REMAINDERS,
    MASKS,
    BODIES,
    FIRST_ROWS,
    BUCKET_BITS,
    MASKS_SIZE,
    SHARDS,
    STRIDE,
    N_MAX,
    ENTRIES,
    INITIAL_STATE,
    VOCAB_SIZE,
    TABLE_SIZE,
) = range(14)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TOKENS_OFFSET = 4
_N_MAX_LIMIT = 15


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function without the GIL, and keep the machine code where that is possible."""
    try:
        return nb.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        # numba found no folder it may write to: a read-only home beside a read-only install.
        return nb.njit(nogil=True)(function)


@intrinsic
def _pointer(typing_context, address):
    """Reinterpret an int64 as a pointer (the numba manual, "Interfacing with C")."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@kernel
def _load_u8(address, i):
    return carray(_pointer(address), (i + 1,), np.uint8)[i]


@kernel
def _load_u16(address, i):
    return carray(_pointer(address), (i + 1,), np.uint16)[i]


@kernel
def _load_u32(address, i):
    return carray(_pointer(address), (i + 1,), np.uint32)[i]


@kernel
def _load_i64(address, i):
    return carray(_pointer(address), (i + 1,), np.int64)[i]


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
def _probe(table, value):
    """Row of the one key that can have this hash, or -1."""
    bits = np.uint64(table[BUCKET_BITS])
    # Shifting a 64-bit value by 64 is undefined, so zero bits are shifted in two steps.
    bucket = np.int64((value >> np.uint64(1)) >> (np.uint64(63) - bits))
    remainder = np.uint32((value << bits) >> np.uint64(32))
    row = np.int64(_load_u32(table[DIRECTORY], bucket))
    end = np.int64(_load_u32(table[DIRECTORY], bucket + 1))
    while row < end:
        if _load_u32(table[REMAINDERS], row) == remainder:
            return row
        row += 1
    return np.int64(-1)


@kernel
def _row_address(table, row):
    """Address of a row in its shard's mapped file."""
    low, high = np.int64(0), table[SHARDS]
    while high - low > 1:
        middle = (low + high) >> 1
        if _load_i64(table[FIRST_ROWS], middle) <= row:
            low = middle
        else:
            high = middle
    first = _load_i64(table[FIRST_ROWS], low)
    return _load_i64(table[BODIES], low) + (row - first) * table[STRIDE]


@kernel
def _row_holds(table, row, sequence, end, length):
    """Whether the row's key is ``sequence[end - length:end]``."""
    address = _row_address(table, row)
    if _load_u8(address, 0) != length:
        return False
    for i in range(length):
        stored = np.int64(_load_u32(address + _TOKENS_OFFSET, i))
        if stored != np.int64(sequence[end - length + i]):
            return False
    return True


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
        Written.
    """
    for i in range(len(lengths)):
        length = np.int64(lengths[i])
        rows[i] = -1
        if length > table[N_MAX]:
            continue
        state = _initial(table)
        for j in range(length):
            state = _step(state, tokens[i, length - 1 - j])
        row = _probe(table, _finish(state, length))
        if row >= 0 and _row_holds(table, row, tokens[i], length, length):
            rows[i] = row


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
    states = np.empty(_N_MAX_LIMIT + 1, dtype=np.uint64)
    for b in range(tokens.shape[0]):
        for t in range(start, tokens.shape[1]):
            limit = np.int64(longest[b, t - start])
            row, length = _longest(table, tokens[b], t + 1, shortest, limit, states)
            rows[b, t - start] = row
            lengths[b, t - start] = length


@kernel
def _longest(table, sequence, end, shortest, limit, states):
    """Row and length of the longest candidate that ends before `end`; (-1, 0) for none."""
    mask = _lengths_that_end_with(table, sequence[end - 1])
    limit = min(limit, end, table[N_MAX])
    states[0] = _initial(table)
    known = np.int64(0)
    # Mask out what is too long, so that no state is computed in vain.
    mask &= (np.int64(1) << (limit + 1)) - 1
    top = np.int64(0)
    while (mask >> (top + 1)) > 0:
        top += 1
    while known < top:
        token = sequence[end - 1 - known]
        if token < 0 or token >= table[VOCAB_SIZE]:
            break
        states[known + 1] = _step(states[known], token)
        known += 1
    for length in range(known, max(shortest, 1) - 1, -1):
        if (mask >> length) & 1:
            row = _probe(table, _finish(states[length], length))
            if row >= 0:
                return row, length
    if shortest == 0:
        row = _probe(table, _finish(states[0], np.int64(0)))
        return row, np.int64(0)
    return np.int64(-1), np.int64(0)


@kernel
def _lengths_that_end_with(table, token):
    if token < 0 or token >= table[MASKS_SIZE]:
        return np.int64(0)
    return np.int64(_load_u16(table[MASKS], token))


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
    states = np.empty(_N_MAX_LIMIT + 1, dtype=np.uint64)
    wrong = 0
    for b in range(tokens.shape[0]):
        for t in range(start, tokens.shape[1]):
            row, length = rows[b, t - start], np.int64(lengths[b, t - start])
            while row >= 0 and not _row_holds(table, row, tokens[b], t + 1, length):
                wrong += 1
                if length <= shortest:
                    row, length = np.int64(-1), np.int64(0)
                else:
                    row, length = _longest(table, tokens[b], t + 1, shortest, length - 1, states)
            rows[b, t - start] = row
            lengths[b, t - start] = length
    return wrong


@kernel
def gather_rows(table, rows, out):
    """Copy whole rows.

    Parameters
    ----------
    table : (TABLE_SIZE,) int64
    rows : (k,) int64
        Each within the memory.
    out : (k, stride // 8) uint64
        Written.
    """
    words = out.shape[1]
    for i in range(len(rows)):
        source = carray(_pointer(_row_address(table, rows[i])), (words,), np.uint64)
        for j in range(words):
            out[i, j] = source[j]
