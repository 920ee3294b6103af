"""The tier is a plain LRU of rows, within its budget, for any number of threads."""

from __future__ import annotations

import threading
import tracemalloc
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.runtime.tiers import HostTier

ROWS, STRIDE = 40, 64


class Source:
    """Rows whose bytes follow from their id; counts what was read."""

    stride = STRIDE

    def __init__(self, rows=ROWS, stride=STRIDE):
        self.content = np.random.default_rng(0).integers(0, 256, (rows, stride), dtype=np.uint8)
        self.stride = stride
        self.read = []

    def gather_raw(self, rows):
        self.read += rows.tolist()
        return self.content[rows]


def budget_for(capacity, stride=STRIDE):
    probe = HostTier(Source(stride=stride), 1 << 20, 1 << 20)
    return capacity * ((1 << 20) // probe.capacity)


class PlainLru:
    def __init__(self, capacity):
        self.capacity, self.order, self.evictions = capacity, OrderedDict(), 0

    def get(self, rows):
        missing = [row for row in rows if row not in self.order]
        for row in rows:
            if row in self.order:
                self.order.move_to_end(row)
        for row in missing:
            self.order[row] = None
            if len(self.order) > self.capacity:
                self.order.popitem(last=False)
                self.evictions += 1
        return len(rows) - len(missing)


requests = st.lists(
    st.lists(st.integers(0, ROWS - 1), unique=True, max_size=12), min_size=1, max_size=25
)


@settings(deadline=None)
@given(requests=requests, capacity=st.integers(0, 15))
def test_it_is_a_plain_lru_and_always_returns_the_sources_rows(requests, capacity):
    source, plain = Source(), PlainLru(capacity)
    tier = HostTier(source, budget_for(capacity), ROWS)
    assert tier.capacity == capacity
    hits = 0
    for rows in requests:
        asked = np.array(rows, dtype=np.int64)
        np.testing.assert_array_equal(tier.get(asked), source.content[asked])
        hits += plain.get(rows)
        if capacity:
            assert tier.held() == list(plain.order)
    stats = tier.stats()
    assert stats.hits == hits
    assert stats.misses == len(source.read) == sum(map(len, requests)) - hits
    if capacity:
        assert stats.evictions == plain.evictions


def test_what_was_returned_outlives_eviction():
    source = Source()
    tier = HostTier(source, budget_for(1), ROWS)
    first = tier.get(np.array([3]))
    tier.get(np.array([4]))
    np.testing.assert_array_equal(first, source.content[[3]])


def test_prewarmed_rows_are_hits_and_the_most_wanted_stay_longest():
    source = Source()
    tier = HostTier(source, budget_for(3), ROWS)
    assert tier.prewarm(np.array([9, 8, 7, 6])) == 3
    assert source.read == [9, 8, 7]
    tier.get(np.array([9, 8, 7]))
    assert (tier.stats().hits, tier.stats().misses) == (3, 0)
    tier.prewarm(np.array([5, 4, 3]))
    assert tier.held() == [3, 4, 5]


def test_no_budget_always_reads():
    source = Source()
    tier = HostTier(source, 0, ROWS)
    for _ in range(2):
        tier.get(np.array([1, 2]))
    assert source.read == [1, 2, 1, 2]
    assert (tier.stats().bytes, tier.stats().held, tier.stats().misses) == (0, 0, 4)


def test_the_slab_is_no_larger_than_the_memory():
    assert HostTier(Source(), 1 << 30, ROWS).capacity == ROWS


@pytest.mark.parametrize("stride", [64, 832])
def test_the_budget_holds_bookkeeping_included(stride):
    rows, budget = 30_000, 4 << 20
    source = Source(rows, stride)
    source.gather_raw = lambda asked: source.content[asked]
    asked = np.random.default_rng(1).permutation(rows)
    tracemalloc.start()
    try:
        begin, _ = tracemalloc.get_traced_memory()
        tier = HostTier(source, budget, rows)
        transient = 0
        for part in np.array_split(asked, 1000):
            tier.get(part)
            transient = max(transient, 8 * part.nbytes + 8 * len(part) * stride)
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tier.stats().evictions > 0
    assert now - begin <= budget
    assert peak - begin <= budget + transient
    assert 0 < tier.stats().bytes <= budget


def test_a_slow_read_does_not_stop_hits_and_a_double_miss_is_kept_once():
    started, go_on = threading.Event(), threading.Event()
    source = Source()
    tier = HostTier(source, budget_for(8), ROWS)
    tier.get(np.array([1]))
    fast = source.gather_raw

    def slow(rows):
        started.set()
        assert go_on.wait(10)
        return fast(rows)

    source.gather_raw = slow
    reader = threading.Thread(target=tier.get, args=(np.array([2]),))
    reader.start()
    assert started.wait(10)
    source.gather_raw = fast
    np.testing.assert_array_equal(tier.get(np.array([1])), source.content[[1]])
    np.testing.assert_array_equal(tier.get(np.array([2])), source.content[[2]])
    go_on.set()
    reader.join(10)
    assert not reader.is_alive()
    assert source.read == [1, 2, 2]
    assert tier.held() == [1, 2]


def test_threads_always_get_the_right_bytes():
    source = Source()
    tier = HostTier(source, budget_for(7), ROWS)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            rows = rng.choice(ROWS, 5, replace=False)
            if not np.array_equal(tier.get(rows), source.content[rows]):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert tier.stats().hits + tier.stats().misses == 4 * 300 * 5
    assert len(tier.held()) == 7
