"""Compiled loops: look keys up, find longest matches, prove both by the tokens in the rows.

Each works on blocks of keys, in passes: what one pass will read, the pass before has asked for,
so that the reads of a block are in flight together. Where the next branch would be a toss of
a coin, all cases are computed and one is selected.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable,var-annotated"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import (
    highest_bit,
    kernel,
    load_constant,
    load_i64,
    load_u16,
    prefetch,
)
from phrasemem.memfmt.probe import (
    FILTERED_BY,
    LENGTH_MASKS,
    LENGTH_MASKS_SIZE,
    N_MAX,
    TAILS,
    VOCAB_SIZE,
    filter_word,
    finish,
    guess,
    has_tail,
    initial,
    lengths_in,
    line_of,
    may_hold,
    row_address,
    row_holds,
    slots_with,
    step,
    tag_and_tail,
)

INLINED = {"intrinsics.py": "5f7fec08", "probe.py": "9305565a"}
"""What the compiled code holds besides this file: names, and how their SHA-256 begins. A test
holds them. numba compiles a file anew when it changes itself, but not what it imports."""

BLOCK = 64
"""Keys whose memory reads are in flight together."""

BY_LINE, BY_TAIL, BY_ROW = range(3)
"""Proofs of a match: wrong once in 3,000 probes, once in some thousand million, and never."""

_LENGTHS = 16


@kernel
def look_up(table, tokens, lengths, rows):
    """Row of each key, exact, or -1.

    Parameters
    ----------
    table : int
        Address of the table.
    tokens : (k, n_max) uint32
    lengths : (k,) uint8
    rows : (k,) int64
        Written; holds the hashes in between.
    """
    for begin in range(0, len(lengths), BLOCK):
        end = min(begin + BLOCK, len(lengths))
        for i in range(begin, end):
            value = _hash(table, tokens, i, np.int64(lengths[i]))
            prefetch(line_of(table, value), 0)
            rows[i] = np.int64(value)
        for i in range(begin, end):
            rows[i] = guess(table, np.uint64(rows[i]))
            if rows[i] >= 0:
                prefetch(row_address(table, rows[i]), 0)
        for i in range(begin, end):
            if rows[i] >= 0:
                rows[i] = _proved(table, rows[i], tokens, i, np.int64(lengths[i]))


@kernel
def _hash(table, tokens, line, length):
    state = initial(table)
    for j in range(tokens.shape[1] - 1, -1, -1):
        state = step(state, tokens[line, j]) if j < length else state
    return finish(table, state, length)


@kernel
def _proved(table, row, tokens, line, length):
    if length <= tokens.shape[1] and row_holds(table, row, tokens, line, length, length):
        return row
    return np.int64(-1)


@kernel
def find_longest(table, tokens, start, shortest, longest, proof, rows, lengths):
    """Longest key that ends, or seems to end, at each position.

    Parameters
    ----------
    table : int
        Address of the table.
    tokens : (B, T) int64
        C-contiguous. Anything below 0, or beyond the vocabulary, ends the history.
    start : int
        First position to answer.
    shortest : int
        Shorter keys are not considered.
    longest : (B, T - start) uint8, or (0, 0)
        Longer keys are not considered at that position.
    proof : int
        How sure a match is to be: `BY_LINE`, `BY_TAIL` or `BY_ROW`.
    rows : (B, T - start) int64
        Written; -1 where there is none.
    lengths : (B, T - start) uint8
        Written; 0 where there is none.
    """
    width = tokens.shape[1] - start
    total = tokens.shape[0] * width
    hashes = np.empty((_LENGTHS, BLOCK), dtype=np.uint64)
    masks, guesses, places, ends = np.empty((4, BLOCK), dtype=np.int64)
    asked = np.empty(_LENGTHS * BLOCK + 1, dtype=np.uint16)
    line, column = 0, 0
    for begin in range(0, total, BLOCK):
        count = min(BLOCK, total - begin)
        b, t = line, column
        for i in range(count):
            limit = np.int64(longest[b, t]) if longest.shape[0] else np.int64(_LENGTHS - 1)
            ends[i] = start + t + 1
            places[i] = b * tokens.shape[1] + ends[i]
            masks[i] = _lengths_at(table, tokens, b, start + t + 1, shortest, limit)
            b, t = _next(b, t, width)
        _hash_suffixes(table, tokens, places, ends, masks, hashes, count)
        _exclude_by_filter(table, masks, hashes, count)
        _exclude_by_lines(table, masks, hashes, asked, count)
        for i in range(count):
            guesses[i] = _guess_longest(table, masks[i], proof, hashes, i)
        for i in range(count):
            end = start + column + 1
            found = _longest(table, masks[i], guesses[i], proof, hashes, i, tokens, line, end)
            rows[line, column], lengths[line, column] = found
            line, column = _next(line, column, width)


@kernel
def _next(line, column, width):
    """Next place in reading order; a division would cost more than a probe."""
    column += 1
    return (line + 1, 0) if column == width else (line, column)


@kernel
def _lengths_at(table, tokens, line, end, shortest, limit):
    """Mask of the lengths that keys which end at a position can have, if all tokens are known."""
    mask = _lengths_that_end_with(table, tokens[line, end - 1])
    mask &= (np.int64(2) << min(limit, end, load_constant(table, N_MAX))) - 1
    mask &= -(np.int64(1) << max(shortest, 1))
    return mask | 1 if shortest == 0 else mask


@kernel
def _hash_suffixes(table, tokens, places, ends, masks, hashes, count):
    """Compute the states of the suffixes of positions, the newest token first, many at a time.

    A token that is none ends the history: no longer suffix is a key. As soon as the state of
    three tokens is known, the word of the suffix filter that it chooses is asked for.

    Parameters
    ----------
    places : (count,) int64
        Behind the last token, in the flat array of all tokens.
    ends : (count,) int64
        Tokens that there are. Before the first, it is taken again; the mask excludes that.
    """
    vocab_size = np.uint64(load_constant(table, VOCAB_SIZE))
    base = np.int64(tokens.ctypes.data)
    for i in range(count):
        hashes[0, i] = initial(table)
    for length in range(1, load_constant(table, N_MAX) + 1):
        shorter = (np.int64(1) << length) - 1
        for i in range(count):
            token = np.uint64(load_i64(base, places[i] - min(length, ends[i])))
            masks[i] &= -1 if token < vocab_size else shorter
            hashes[length, i] = step(hashes[length - 1, i], token)
        if length == FILTERED_BY:
            for i in range(count):
                prefetch(filter_word(table, hashes[length, i]), 0)


@kernel
def _exclude_by_filter(table, masks, hashes, count):
    """Take lengths out of the masks that the suffix filter excludes, most of those above three."""
    if load_constant(table, N_MAX) < FILTERED_BY:
        return
    for i in range(count):
        state = hashes[FILTERED_BY, i]
        word = load_i64(filter_word(table, state), 0)
        masks[i] &= lengths_in(word, state, load_constant(table, N_MAX))


@kernel
def _exclude_by_lines(table, masks, hashes, asked, count):
    """Take lengths out of the masks that the index lines exclude, all but one in 3,000.

    What is left of all masks stands in one list first: most positions have one or two lengths
    left of six, and the others would cost as much.
    """
    total, present = 0, np.int64(0)
    for i in range(count):
        present |= masks[i]
    for length in range(load_constant(table, N_MAX) + 1):
        for i in range(count if (present >> length) & 1 else 0):
            # Written always and kept sometimes, since the branch would be a toss of a coin.
            asked[total] = length * BLOCK + i
            total += (masks[i] >> length) & 1
    for k in range(total):
        length, i = asked[k] // BLOCK, asked[k] % BLOCK
        value = finish(table, hashes[length, i], length)
        hashes[length, i] = value
        prefetch(line_of(table, value), 0)
    for k in range(total):
        length, i = asked[k] // BLOCK, asked[k] % BLOCK
        value = hashes[length, i]
        line = line_of(table, value)
        tag, _ = tag_and_tail(table, value)
        held = np.int64(may_hold(line, slots_with(line, tag), tag))
        masks[i] ^= (np.int64(1) ^ held) << length


@kernel
def _lengths_that_end_with(table, token):
    if token < 0 or token >= load_constant(table, LENGTH_MASKS_SIZE):
        return np.int64(0)
    return np.int64(load_u16(load_constant(table, LENGTH_MASKS), token))


@kernel
def _guess_longest(table, mask, proof, hashes, i):
    """Row of the longest length in the mask, and ask for what proves it; -1 for none."""
    if mask == 0:
        return np.int64(-1)
    row = guess(table, hashes[highest_bit(mask), i])
    if row >= 0:
        # Also for `BY_LINE`: whoever asks for no proof reads the rows next.
        if proof == BY_TAIL:
            prefetch(load_constant(table, TAILS), 2 * row)
        else:
            prefetch(row_address(table, row), 0)
    return row


@kernel
def _longest(table, mask, row, proof, hashes, i, tokens, line, end):
    """Row and length of the longest key in the mask that can be proved; (-1, 0) for none."""
    while mask:
        length = highest_bit(mask)
        if row >= 0:
            if proof == BY_ROW:
                proved = row_holds(table, row, tokens, line, end, length)
            else:
                proved = proof == BY_LINE or has_tail(table, hashes[length, i], row)
            if proved:
                return row, length
        mask ^= np.int64(1) << length
        row = _guess_longest(table, mask, proof, hashes, i)
    return np.int64(-1), np.int64(0)


@kernel
def find_and_settle(table, tokens, start, shortest, longest, rows, lengths, announced):
    """Do :func:`find_longest` and :func:`settle` in one call, and return what the latter does.

    Where all rows were announced of late, as in a warm decoding step, a second call would take
    as long as the search.
    """
    find_longest(table, tokens, start, shortest, longest, BY_LINE, rows, lengths)
    return settle(table, tokens, start, shortest, rows, lengths, announced)


@kernel
def settle(table, tokens, start, shortest, rows, lengths, announced):
    """Compare candidates with the tokens in their rows; put right the few that are wrong.

    Nothing is done while there are rows that were not announced: reading one from the device
    would keep all others waiting.

    Parameters
    ----------
    table, tokens, start, shortest
        As for :func:`find_longest`.
    rows : (B, T - start) int64
        Read and written.
    lengths : (B, T - start) uint8
        Read and written.
    announced : (n,) uint8
        One bit a row.

    Returns
    -------
    int
        How many candidates were wrong; -1 where rows are to be announced first.
    """
    for b in range(rows.shape[0]):
        for t in range(rows.shape[1]):
            row = rows[b, t]
            if row >= 0 and not (announced[row >> 3] >> (row & 7)) & 1:
                return -1
    hashes = np.empty((_LENGTHS, 1), dtype=np.uint64)
    masks = np.empty(1, dtype=np.int64)
    asked = np.empty(_LENGTHS + 1, dtype=np.uint16)
    width = tokens.shape[1] - start
    total = tokens.shape[0] * width
    wrong = 0
    line, column = 0, 0
    for begin in range(0, total, BLOCK):
        count = min(BLOCK, total - begin)
        b, t = line, column
        for _ in range(count):
            if rows[b, t] >= 0:
                prefetch(row_address(table, rows[b, t]), 0)
            b, t = _next(b, t, width)
        for _ in range(count):
            end = start + column + 1
            row, length = rows[line, column], np.int64(lengths[line, column])
            if row >= 0 and not row_holds(table, row, tokens, line, end, length):
                wrong += 1
                found = _shorter(table, tokens, line, end, shortest, length, hashes, masks, asked)
                rows[line, column], lengths[line, column] = found
            line, column = _next(line, column, width)
    return wrong


@kernel
def _shorter(table, tokens, line, end, shortest, length, hashes, masks, asked):
    """Row and length of the longest key that is shorter than `length`."""
    if length <= shortest:
        return np.int64(-1), np.int64(0)
    masks[0] = _lengths_at(table, tokens, line, end, shortest, length - 1)
    places, ends = np.array([line * tokens.shape[1] + end]), np.array([end])
    _hash_suffixes(table, tokens, places, ends, masks, hashes, 1)
    _exclude_by_filter(table, masks, hashes, 1)
    _exclude_by_lines(table, masks, hashes, asked, 1)
    row = _guess_longest(table, masks[0], BY_ROW, hashes, 0)
    return _longest(table, masks[0], row, BY_ROW, hashes, 0, tokens, line, end)
