from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phrasemem.memfmt import probe
from phrasemem.memfmt.errors import FormatError, Reason
from phrasemem.memfmt.index import MAX_BUCKET, IndexBuilder, ShardIndex
from phrasemem.memfmt.keys import bucket_and_remainder, bucket_bits_for
from phrasemem.memfmt.lines import KEYS_A_LINE, Lines, LinesBuilder

# Hashes that crowd into few lines, and differ by as little as the index can know.
CROWDS = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 80), st.sampled_from([1, 2, 2**9, 2**24])),
    min_size=1,
    max_size=5,
)


def known_bits(crowds):
    """Distinct hashes, cut to the bits that an index of as many keys knows."""
    wanted = sum(size for _, size, _ in crowds)
    unit = 1 << (32 - bucket_bits_for(wanted, 0))
    hashes = {
        (begin // unit + i * step) * unit % 2**64
        for begin, size, step in crowds
        for i in range(size)
    }
    return sorted(hashes), unit


def build(hashes, bucket_bits, shards=1):
    builder = LinesBuilder(len(hashes), bucket_bits)
    buckets, remainders = bucket_and_remainder(np.array(hashes, dtype=np.uint64), bucket_bits)
    for first in np.split(np.arange(1 << bucket_bits), shards):
        mine = np.isin(buckets, first)
        counts = np.bincount(buckets[mine] - first[0], minlength=len(first)).astype(np.uint8)
        assert builder.add(counts, remainders[mine], int(first[0]))
    return builder.finish()


def table_of(lines: Lines, entries: int, bucket_bits: int):
    table = np.zeros(probe.TABLE_SIZE, dtype=np.int64)
    table[probe.LINES] = lines.tags.ctypes.data
    table[probe.LINE_COUNT] = len(lines.tags)
    table[probe.TAILS] = lines.tails.ctypes.data
    table[probe.SPILLED] = lines.spilled.ctypes.data
    table[probe.SPILLED_ROWS] = lines.spilled_rows.ctypes.data
    table[probe.SPILLED_COUNT] = len(lines.spilled)
    table[probe.ENTRIES] = entries
    table[probe.HASH_MASK] = -1 << (32 - bucket_bits)
    return table


@settings(max_examples=60, deadline=None)
@given(CROWDS, st.data())
def test_every_hash_has_its_row_however_crowded_the_lines(crowds, data):
    hashes, unit = known_bits(crowds)
    bits = bucket_bits_for(sum(size for _, size, _ in crowds), 0)
    buckets, _ = bucket_and_remainder(np.array(hashes, dtype=np.uint64), bits)
    # A writer takes another seed when a bucket is fuller than its count can say.
    assume(np.bincount(buckets).max() <= MAX_BUCKET)
    shards = data.draw(st.sampled_from([n for n in (1, 2, 4) if n <= 1 << bits]))
    lines = build(hashes, bits, shards)
    table = table_of(lines, len(hashes), bits)

    def found(value):
        return probe.probe(table.ctypes.data, np.uint64(value))

    assert [found(value) for value in hashes] == list(range(len(hashes)))
    for value in {(value + d * unit) % 2**64 for value in hashes for d in (-1, 1)} - set(hashes):
        row = found(value)
        # What is taken for a key must agree with it in line, tag and tail.
        assert row == -1 or value * len(lines.tags) >> 32 == hashes[row] * len(lines.tags) >> 32


def test_keys_beyond_the_tags_of_a_line_and_twins_are_spilled():
    crowd = [i << 60 for i in range(16)] + [(5 << 60) + (i << 40) for i in range(1, 41)]
    twins = [7 << 60 | 1 << 31, 7 << 60 | 2 << 31]
    hashes = sorted([*crowd, *twins])
    lines = build(hashes, 1)
    assert len(lines.tags) == -(-len(hashes) // KEYS_A_LINE) == 4
    spilled = set(lines.spilled.tolist())
    assert set(twins) <= spilled
    assert 5 << 60 | 40 << 40 in spilled
    assert 0 not in spilled
    table = table_of(lines, len(hashes), 1)
    assert [probe.probe(table.ctypes.data, np.uint64(h)) for h in hashes] == list(
        range(len(hashes))
    )


def test_an_index_that_is_not_in_order_is_refused():
    builder = IndexBuilder(2, 0, 0, vocab_size=10)
    none = np.zeros(0, dtype=np.uint32)
    shard = ShardIndex(
        np.array([2], dtype=np.uint8),
        np.array([9, 9], dtype=np.uint32),
        none,
        none.astype(np.uint16),
    )
    with pytest.raises(FormatError, match="an index is not in order in here") as caught:
        builder.add(shard, 2, "here")
    assert caught.value.reason is Reason.INDEX_DAMAGED
