"""The index in RAM: cache lines of tags, tails by row, and what no line can tell apart.

See :mod:`phrasemem.memfmt.probe` for what they mean. A key is **spilled** where its line is
full, or where another key of its line has the same tag and tail; spilled keys stand in a list
of their own, by all the bits of the hash that the index knows, which no two keys share.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return,call-arg,unreachable,var-annotated"
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrasemem.memfmt.intrinsics import high_product, kernel
from phrasemem.memfmt.keys import UInt64s
from phrasemem.memfmt.probe import LINE_BYTES, LINE_HEAD, LINE_LANES, LINE_TAGS

INLINED = {"intrinsics.py": "5f7fec08", "probe.py": "9305565a"}
"""What the compiled code holds besides this file: names, and how their SHA-256 begins. A test
holds them. numba compiles a file anew when it changes itself, but not what it imports."""

KEYS_A_LINE = 18
"""On average. With 18 of 30 tags, one line in 300 is too full; 64 / 18 + 2 bytes a key."""

_FILLER = 0xFFFF

# What the next shard goes on with: its first row, the number of lines begun, the hash before
# and whether that is spilled.
_ROW, _BEGUN, _BEFORE, _BEFORE_SPILLED, _PROGRESS = range(5)


@dataclass(frozen=True)
class Lines:
    """Where the rows of all keys are.

    Parameters
    ----------
    tags : (lines, 32) uint16
        Aligned to cache lines. The first two of each line are the number of its first row.
    tails : (entries + 1,) uint16
        The last one is no key's.
    spilled : (k,) uint64
        Hashes, rising.
    spilled_rows : (k,) uint32
    """

    tags: NDArray[np.uint16]
    tails: NDArray[np.uint16]
    spilled: UInt64s
    spilled_rows: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes of RAM."""
        arrays = (self.tags, self.tails, self.spilled, self.spilled_rows)
        return sum(array.nbytes for array in arrays)


class LinesBuilder:
    """Fills lines with the keys of one shard after the other.

    Parameters
    ----------
    entries : int
    bucket_bits : int
        The index knows the top ``bucket_bits + 32`` bits of a hash.
    """

    def __init__(self, entries: int, bucket_bits: int) -> None:
        self._bucket_bits = bucket_bits
        self._tags = _aligned_lines(-(-entries // KEYS_A_LINE) or 1)
        self._tails = np.zeros(entries + 1, dtype=np.uint16)
        self._spilled: list[UInt64s] = []
        self._spilled_rows: list[NDArray[np.uint32]] = []
        self._progress = np.zeros(_PROGRESS, dtype=np.uint64)

    def add(
        self, counts: NDArray[np.uint8], remainders: NDArray[np.uint32], first_bucket: int
    ) -> bool:
        """Append the keys of a shard; False if their hashes do not rise."""
        # Few are spilled, and pages that are not written take no RAM.
        spilled = np.empty(len(remainders) + 1, dtype=np.uint64)
        rows = np.empty(len(remainders) + 1, dtype=np.uint32)
        count = _fill(
            (counts, remainders, first_bucket, self._bucket_bits),
            self._tags,
            self._tags.view(np.uint32)[:, 0],
            self._tails,
            self._progress,
            (spilled, rows),
        )
        self._spilled.append(spilled[: max(count, 0)].copy())
        self._spilled_rows.append(rows[: max(count, 0)].copy())
        return bool(count >= 0)

    def finish(self) -> Lines:
        """Return the lines of all shards."""
        row, begun = self._progress[_ROW], int(self._progress[_BEGUN])
        self._tags[begun:] = _FILLER
        self._tags.view(np.uint32)[begun:, 0] = row
        return Lines(
            self._tags,
            self._tails,
            np.concatenate([np.empty(0, dtype=np.uint64), *self._spilled]),
            np.concatenate([np.empty(0, dtype=np.uint32), *self._spilled_rows]),
        )


def _aligned_lines(count: int) -> NDArray[np.uint16]:
    raw = np.empty((count + 1) * LINE_LANES, dtype=np.uint16)
    skipped = -raw.ctypes.data % LINE_BYTES // 2
    return raw[skipped : skipped + count * LINE_LANES].reshape(count, LINE_LANES)


@kernel
def _fill(keys, tags, firsts, tails, progress, spill):
    """Append keys; return how many were spilled, or -1 if hashes do not rise."""
    counts, remainders, first_bucket, bucket_bits = keys
    spilled, spilled_rows = spill
    lines = np.uint64(len(firsts))
    i, count = np.int64(0), np.int64(0)
    for b in range(len(counts)):
        # Shifting a 64-bit value by 64 is undefined, so it is shifted in two steps.
        high = (np.uint64(first_bucket + b) << np.uint64(63 - bucket_bits)) << np.uint64(1)
        for _ in range(counts[b]):
            value = high | (np.uint64(remainders[i]) << np.uint64(32 - bucket_bits))
            row, before = progress[_ROW], progress[_BEFORE]
            if row and value <= before:
                return np.int64(-1)
            _begin_lines(tags, firsts, progress, np.int64(high_product(value, lines)))
            line = np.int64(progress[_BEGUN]) - 1
            slot = np.int64(row) - np.int64(firsts[line])
            fraction = (value * lines) >> np.uint64(32)
            twin = slot > 0 and (before * lines) >> np.uint64(32) == fraction
            if twin and not progress[_BEFORE_SPILLED]:
                spilled[count], spilled_rows[count] = before, np.uint32(row - np.uint64(1))
                count += 1
            if twin or slot >= LINE_TAGS:
                spilled[count], spilled_rows[count] = value, np.uint32(row)
                count += 1
            if slot < LINE_TAGS:
                tags[line, LINE_HEAD + slot] = np.uint16(fraction >> np.uint64(16))
            tails[row] = np.uint16(fraction)
            progress[_ROW] = row + np.uint64(1)
            progress[_BEFORE] = value
            progress[_BEFORE_SPILLED] = np.uint64(twin or slot >= LINE_TAGS)
            i += 1
    return count


@kernel
def _begin_lines(tags, firsts, progress, line):
    """Begin all lines up to one; those in between are empty."""
    while np.int64(progress[_BEGUN]) <= line:
        begun = progress[_BEGUN]
        for j in range(LINE_LANES):
            tags[begun, j] = np.uint16(_FILLER)
        firsts[begun] = np.uint32(progress[_ROW])
        progress[_BEGUN] = begun + np.uint64(1)
