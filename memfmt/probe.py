"""Compiled: the hash of a key, and the one row that can have it.

In RAM the index is an array of cache lines, so that one read from memory decides that a key is
absent, as most are. A hash, times the number of lines, is a number whose integer part is the
line, and whose fraction begins with a tag and a tail of 16 bits each. A line holds the number
of its first row (u32) and the tags of up to 30 keys, rising; the tails stand apart, by row.
What no line can tell apart (see :mod:`phrasemem.memfmt.lines`) is found in a short sorted list.

The kernels read index and mapped rows through one table of addresses, because unpacking ten
arrays costs more than a small batch. Whoever calls a kernel keeps a reference to the
:class:`~phrasemem.memfmt.table.Table`, which keeps the memory behind it alive.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable,var-annotated"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import (
    equal_u16,
    high_product,
    kernel,
    load_constant,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    lowest_bit,
)

INLINED = {"intrinsics.py": "5f7fec08"}
"""What the compiled code holds besides this file: names, and how their SHA-256 begins. A test
holds them. numba compiles a file anew when it changes itself, but not what it imports."""

# Places in the table. All are int64; addresses, masks and the hash state are reinterpreted.
(
    LINES,
    LINE_COUNT,
    TAILS,
    SPILLED,
    SPILLED_ROWS,
    SPILLED_COUNT,
    HASH_MASK,
    LENGTH_MASKS,
    LENGTH_MASKS_SIZE,
    BASES,
    FIRST_ROWS,
    SHARDS_A_ROW,
    STRIDE,
    N_MAX,
    ENTRIES,
    INITIAL_STATE,
    VOCAB_SIZE,
    FILTER,
    FILTER_WORDS,
    TABLE_SIZE,
) = range(20)

LINE_BYTES = 64
LINE_LANES = 32
LINE_HEAD = 2
LINE_TAGS = LINE_LANES - LINE_HEAD
"""A line is 32 lanes of 16 bits: two for its first row, the others for tags."""

FILTERED_BY = 3
"""Tokens whose state chooses a word of the suffix filter."""

FILTER_STEP = 11
"""Odd, so that every length has a bit of its own."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TOKENS_OFFSET = 4


@kernel
def initial(table):
    """State of the rolling hash before any token."""
    return np.uint64(load_constant(table, INITIAL_STATE))


@kernel
def step(state, token):
    """Take one token into the state, the newest first."""
    mixed = (state ^ np.uint64(token)) * _MIX_1
    return mixed ^ (mixed >> np.uint64(29))


@kernel
def finish(table, state, length):
    """Hash of a key, without the bits that the index does not know."""
    value = state + np.uint64(length) * _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return (value ^ (value >> np.uint64(31))) & np.uint64(load_constant(table, HASH_MASK))


@kernel
def filter_word(table, state):
    """Address of the word of the suffix filter that the state of three tokens chooses."""
    word = (state >> np.uint64(32)) * np.uint64(load_constant(table, FILTER_WORDS))
    return load_constant(table, FILTER) + 8 * np.int64(word >> np.uint64(32))


@kernel
def filter_bit(state, length):
    """Bit of a word of the suffix filter that stands for keys of a length."""
    return (np.int64(state & np.uint64(63)) + FILTER_STEP * length) & 63


@kernel
def lengths_in(word, state, n_max):
    """Mask of the lengths that a word of the suffix filter does not exclude."""
    mask = np.int64((1 << FILTERED_BY) - 1)
    for length in range(FILTERED_BY, n_max + 1):
        mask |= ((word >> filter_bit(state, length)) & 1) << length
    return mask


@kernel
def line_of(table, value):
    """Address of the cache line of a hash."""
    line = high_product(value, np.uint64(load_constant(table, LINE_COUNT)))
    return load_constant(table, LINES) + LINE_BYTES * np.int64(line)


@kernel
def tag_and_tail(table, value):
    """Return the 32 bits that tell the keys of a line apart."""
    fraction = value * np.uint64(load_constant(table, LINE_COUNT))
    return np.uint16(fraction >> np.uint64(48)), np.uint16(fraction >> np.uint64(32))


@kernel
def slots_with(line, tag):
    """Slots of a line that hold a tag, one bit each."""
    return equal_u16(line, tag) >> LINE_HEAD


@kernel
def is_special(line, slots, tag):
    """Whether the tag alone may point at the wrong key: it stands there twice, or spilled.

    Rare: a line's last tag is the filler, above all others, unless the line is full.
    """
    return (slots & (slots - 1)) != 0 or tag >= load_u16(line, LINE_LANES - 1)


@kernel
def may_hold(line, slots, tag):
    """Whether a line does not exclude a key, spilled ones included."""
    return (slots != 0) | (tag >= load_u16(line, LINE_LANES - 1))


@kernel
def guess(table, value):
    """Row of the one key that can have this hash, or -1, by one cache line.

    One guess in 3,000 is of an absent key; see :func:`probe`.
    """
    line = line_of(table, value)
    tag, _ = tag_and_tail(table, value)
    slots = slots_with(line, tag)
    if is_special(line, slots, tag):
        return resolve(table, value, line, slots)
    if slots:
        return np.int64(load_u32(line, 0)) + lowest_bit(slots)
    return np.int64(-1)


@kernel
def probe(table, value):
    """Row of the one key that can have this hash, or -1, by tag and tail."""
    row = guess(table, value)
    return row if row < 0 or has_tail(table, value, row) else np.int64(-1)


@kernel
def has_tail(table, value, row):
    """Whether a guess can be right, by the tail of the row."""
    _, tail = tag_and_tail(table, value)
    return load_u16(load_constant(table, TAILS), row) == tail


@kernel
def resolve(table, value, line, slots):
    """Row of a hash that is spilled, or whose tag stands in several slots; or -1."""
    row = _spilled(table, value)
    while row < 0 and slots:
        place = np.int64(load_u32(line, 0)) + lowest_bit(slots)
        # Filler looks like a tag, and points beyond the line.
        if place < load_constant(table, ENTRIES) and has_tail(table, value, place):
            row = place
        slots &= slots - 1
    return row


@kernel
def _spilled(table, value):
    low, high = np.int64(0), load_constant(table, SPILLED_COUNT)
    while low < high:
        middle = (low + high) >> 1
        if np.uint64(load_i64(load_constant(table, SPILLED), middle)) < value:
            low = middle + 1
        else:
            high = middle
    if low == load_constant(table, SPILLED_COUNT):
        return np.int64(-1)
    found = np.uint64(load_i64(load_constant(table, SPILLED), low)) == value
    return np.int64(load_u32(load_constant(table, SPILLED_ROWS), low)) if found else np.int64(-1)


@kernel
def row_address(table, row):
    """Address of a row in its shard's mapped file."""
    first_rows = load_constant(table, FIRST_ROWS)
    # Hashes are uniform, so shards are of about one size and a guess is hardly ever off.
    shard = (row * load_constant(table, SHARDS_A_ROW)) >> 32
    while load_constant(first_rows, shard) > row:
        shard -= 1
    while load_constant(first_rows, shard + 1) <= row:
        shard += 1
    return load_constant(load_constant(table, BASES), shard) + row * load_constant(table, STRIDE)


@kernel
def row_holds(table, row, tokens, line, end, length):
    """Whether the row's key is ``tokens[line, end - length:end]``.

    A fixed number of steps: nothing predicts how long the next key is.
    """
    address = row_address(table, row)
    differ = np.int64(load_u8(address, 0)) ^ length
    for j in range(load_constant(table, N_MAX)):
        stored = np.int64(load_u32(address + _TOKENS_OFFSET, j))
        wanted = np.int64(tokens[line, min(end - length + j, end - 1)])
        differ |= (stored ^ wanted) if j < length else 0
    return differ == 0
