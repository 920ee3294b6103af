"""The compiled loops of :mod:`phrasemem.pipeline.words`."""

# mypy: disable-error-code="no-untyped-def,no-any-return,no-untyped-call"
from __future__ import annotations

import numpy as np

from phrasemem.memfmt.intrinsics import kernel

# What a character is: part of a word up to IDEOGRAPH, else what it says of the gap between words.
LETTER, DIGIT, IDEOGRAPH, OTHER, LINE_END, SPACE, FULL_STOP, STOP, WIDE_STOP, CLOSER = range(10)
# What stands before a word.
NOTHING, SENTENCE, LINE = range(3)
# A full stop after fewer letters more often abbreviates (Mr., Sen., U.S.) than ends a sentence.
SHORTEST_LAST_WORD = 4

_PLANE = 65536
_ZERO = np.uint32(48)
_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@kernel
def scan(
    points, offsets, kinds, folded, fold_digits, hashes, starts, ends, documents, gaps, letters
):
    """Fill the columns of ``Words`` and return the number of words."""
    count = 0
    for document in range(len(offsets) - 1):
        gap, stopped, length = LINE, False, 0
        place, end = offsets[document], offsets[document + 1]
        while place < end:
            kind = kinds[points[place]] if points[place] < _PLANE else IDEOGRAPH
            if kind > IDEOGRAPH:
                gap, stopped = _pass_over(kind, gap, stopped, length)
                place += 1
                continue
            starts[count], documents[count], gaps[count] = place, document, gap
            place, hashes[count], letters[count] = _word(
                points, place, end, kinds, folded, fold_digits
            )
            ends[count] = place
            length = place - starts[count] if letters[count] else SHORTEST_LAST_WORD
            count += 1
            gap, stopped = NOTHING, False
    return count


@kernel
def _pass_over(kind, gap, stopped, length):
    """Return what is known of a gap after one more of its characters."""
    if kind == LINE_END:
        return LINE, False
    if kind == SPACE:
        return max(gap, SENTENCE) if stopped else gap, False
    if kind == FULL_STOP:
        return gap, length >= SHORTEST_LAST_WORD
    if kind == WIDE_STOP:  # needs no space after it
        return max(gap, SENTENCE), False
    return gap, kind == STOP or (kind == CLOSER and stopped)


@kernel
def _word(points, place, end, kinds, folded, fold_digits):
    """Return where a word ends, its hash, and whether it holds a letter.

    The hash is FNV-1a over the folded code points, finished by the mixer of splitmix64.
    """
    value, letter, in_number, begin = _BASIS, False, False, place
    while place < end:
        point = points[place]
        kind = kinds[point] if point < _PLANE else IDEOGRAPH
        if kind > IDEOGRAPH or (kind == IDEOGRAPH and place > begin):
            break
        place += 1
        if kind == DIGIT and fold_digits:
            if not in_number:
                value = (value ^ np.uint64(_ZERO)) * _PRIME
            in_number = True
            continue
        in_number = False
        letter = letter or kind != DIGIT
        value = (value ^ np.uint64(folded[point] if point < _PLANE else point)) * _PRIME
        if kind == IDEOGRAPH:
            break
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return place, value ^ (value >> np.uint64(31)), letter


@kernel
def tally(hashes, documents, slots, distinct, counts, last, again):
    """Count in how many documents each hash is; return the number of distinct ones.

    A hash table with open addressing, ``slots``, of a power of two and filled with -1, holds
    places in ``distinct``, ``counts`` and ``last`` (the last document seen); these are in the order
    of first occurrence. ``again`` tells which hashes occurred before in their document. Documents
    must not descend.
    """
    mask = len(slots) - 1
    count = 0
    for place in range(len(hashes)):
        slot = np.int64(hashes[place] & np.uint64(mask))
        while slots[slot] >= 0 and distinct[slots[slot]] != hashes[place]:
            slot = (slot + 1) & mask
        entry = slots[slot]
        if entry < 0:
            slots[slot] = entry = count
            distinct[entry] = hashes[place]
            counts[entry] = 0
            last[entry] = -1
            count += 1
        again[place] = last[entry] == documents[place]
        if not again[place]:
            counts[entry] += 1
            last[entry] = documents[place]
    return count
