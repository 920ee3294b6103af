"""Matches are the longest phrases, proved by their rows, whatever the history's length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrasemem.runtime.matcher import Matcher
from phrasemem.runtime.memory import PhraseMemory


def naive(tiny, tokens, position):
    """Longest key that ends at a position, by comparing with all of them."""
    for length in range(4, 1, -1):
        window = tuple(tokens[max(0, position + 1 - length) : position + 1])
        if len(window) == length and window in set(tiny.keys):
            return window
    return None


@pytest.fixture(scope="module")
def matcher(memory):
    return Matcher(memory.reader, memory.payload, memory.tier)


@settings(deadline=None)  # a kernel is compiled on the first call
@given(seed=st.integers(0, 10_000), past=st.integers(0, 12), padding=st.integers(0, 5))
def test_hits_are_the_longest_phrases_by_exhaustive_search(
    tiny, memory, matcher, seed, past, padding
):
    tokens = [-1] * padding + tiny.stitched(24, seed)
    array = np.array([tokens, tokens[::-1]], dtype=np.int64)
    found = matcher.candidates(array[:, :past] if past else None, array[:, past:])
    width = array.shape[1] - past
    hits = matcher.fetch(found, np.arange(2 * width))
    expected = {}
    for i in range(2):
        for t in range(width):
            key = naive(tiny, array[i].tolist(), past + t)
            if key is not None:
                expected[i * width + t] = key
    assert hits.places.tolist() == sorted(expected)
    keys = [expected[place] for place in hits.places.tolist()]
    assert hits.lengths.tolist() == [len(key) for key in keys]
    rows = memory.reader.get_many(keys)
    np.testing.assert_array_equal(hits.vectors[hits.which], memory.payload.gather(rows))


class _Lying:
    """A reader whose index claims phrases that are not there, as a hash collision would."""

    def __init__(self, reader, lies):
        self.reader, self.n_max, self.lies = reader, reader.n_max, lies

    def __len__(self):
        return len(self.reader)

    def candidates(self, tokens, start, *, shortest, longest=None):
        match = self.reader.candidates(tokens, start, shortest=shortest, longest=longest)
        for (i, t), (row, length) in self.lies.items():
            if longest is None or longest[i, t] >= length:
                match.rows[i, t], match.lengths[i, t] = row, length
        return match


def test_a_candidate_that_its_row_disproves_gives_way_to_the_next_shorter(tiny, memory, matcher):
    tokens = np.array([tiny.stitched(30, 3), tiny.stitched(30, 4)], dtype=np.int64)
    everywhere = np.arange(60)
    honest = matcher.fetch(matcher.candidates(None, tokens), everywhere)
    match = memory.reader.longest_match(tokens)
    longest = np.minimum(np.arange(30) + 1, 4)
    places = np.argwhere(match.lengths < longest)[::5]
    # A wrong candidate is longer than the right one, or hides nothing.
    lies = {(i, t): (7 * t, longest[t]) for i, t in places.tolist()}
    assert {match.lengths[place] for place in lies} >= {0, 2, 3}
    lying = Matcher(_Lying(memory.reader, lies), memory.payload, memory.tier)
    found = lying.candidates(None, tokens)
    assert all(found.rows[place] == row for place, (row, _) in lies.items())
    hits = lying.fetch(found, everywhere)
    np.testing.assert_array_equal(hits.places, honest.places)
    np.testing.assert_array_equal(hits.lengths, honest.lengths)
    np.testing.assert_array_equal(hits.vectors[hits.which], honest.vectors[honest.which])


def test_shuffling_permutes_the_vectors_over_the_phrases(tiny, memory, matcher):
    tokens = np.array([tiny.stitched(200, 3)], dtype=np.int64)
    everywhere = np.arange(200)
    honest = matcher.fetch(matcher.candidates(None, tokens), everywhere)
    shuffled = Matcher(memory.reader, memory.payload, memory.tier, shuffle_seed=0)
    hits = shuffled.fetch(shuffled.candidates(None, tokens), everywhere)
    np.testing.assert_array_equal(hits.places, honest.places)
    np.testing.assert_array_equal(hits.lengths, honest.lengths)
    every = memory.payload.gather(np.arange(len(memory)))
    other = np.random.default_rng(0).permutation(len(memory))
    rows = memory.reader.longest_match(tokens).rows[0, hits.places]
    np.testing.assert_array_equal(hits.vectors[hits.which], every[other[rows]])


def test_no_phrase_at_all_is_no_hit(memory, matcher):
    found = matcher.candidates(None, np.full((1, 5), -1, dtype=np.int64))
    hits = matcher.fetch(found, np.arange(5))
    assert len(hits.places) == len(hits.lengths) == len(hits.vectors) == 0


def test_rows_of_single_tokens_and_the_root_are_never_injected(tiny, write_tiny, tmp_path):
    single = [(), *((token,) for token in sorted({key[-1] for key in tiny.keys}))]
    write_tiny(tmp_path / "memory", [*tiny.keys, *single])
    tokens = np.array([tiny.stitched(60, 3)], dtype=np.int64)
    everywhere = np.arange(60)
    found = []
    for path in (tiny.path, tmp_path / "memory"):
        with PhraseMemory.open(path) as memory:
            matcher = Matcher(memory.reader, memory.payload, memory.tier)
            found.append(matcher.fetch(matcher.candidates(None, tokens), everywhere))
            shown = memory.reader.longest_match(tokens, shortest=0).lengths
    assert (shown < 2).any()
    np.testing.assert_array_equal(found[0].places, found[1].places)
    np.testing.assert_array_equal(found[0].lengths, found[1].lengths)
    assert found[0].lengths.min() == 2
