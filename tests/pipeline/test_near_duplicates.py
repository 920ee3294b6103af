"""Signatures against true Jaccard similarity; groups and bands as they are defined."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest

from phrasemem.pipeline.near_duplicates import (
    PERMUTATIONS,
    SHINGLE,
    _groups,
    as_binary,
    bands_of,
    estimated_jaccard,
    rows_of_band,
    signatures_of,
)
from phrasemem.pipeline.words import split_words


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def pairs() -> list[tuple[str, str]]:
    dice = random.Random(0)
    found = []
    for _ in range(120):
        words = [f"w{dice.randrange(9999)}" for _ in range(200)]
        other = words.copy()
        for _ in range(dice.randrange(1, 12)):
            other[dice.randrange(200)] = f"x{dice.randrange(9999)}"
        found.append((" ".join(words), " ".join(other)))
    return found


def test_signatures_estimate_the_true_similarity() -> None:
    texts = pairs()
    true = [len(shingles(a) & shingles(b)) / len(shingles(a) | shingles(b)) for a, b in texts]
    left, right = (as_binary(signatures_of(split_words(side))) for side in zip(*texts, strict=True))
    estimated = estimated_jaccard(left.to_pylist(), right.to_pylist())
    error = estimated - np.array(true)
    # The estimator's standard deviation is at most 0.5 / sqrt(PERMUTATIONS), 0.044.
    assert abs(error.mean()) < 0.02
    assert error.std() < 0.05
    assert min(true) < 0.6
    assert max(true) > 0.9


def test_pairs_above_the_threshold_share_a_band() -> None:
    texts = pairs()
    left, right = (signatures_of(split_words(side)) for side in zip(*texts, strict=True))
    close = (left == right).mean(axis=1) >= 0.8
    shared = (bands_of(left, 0.8) == bands_of(right, 0.8)).any(axis=1)
    assert close.sum() > 20
    assert shared[close].mean() > 0.97
    strangers = bands_of(left, 0.8) == np.roll(bands_of(left, 0.8), 1, axis=0)
    assert not strangers.any()


def test_short_and_empty_texts_have_signatures_of_their_own() -> None:
    found = signatures_of(split_words(["one two", "", "one two", "one three", "", "a b c d e f"]))
    assert found.shape == (6, PERMUTATIONS)
    assert (found[0] == found[2]).all()
    assert (found[1] == 2**32 - 1).all()
    assert (found[0] != found[3]).any()
    assert signatures_of(split_words([])).shape == (0, PERMUTATIONS)


def test_a_signature_does_not_depend_on_its_neighbours_or_the_threads() -> None:
    texts = [a for a, _ in pairs()]
    whole = signatures_of(split_words(texts))
    alone = np.concatenate([signatures_of(split_words([text])) for text in texts])
    assert (whole == alone).all()
    program = (
        "from phrasemem.pipeline.near_duplicates import signatures_of\n"
        "from phrasemem.pipeline.words import split_words\n"
        "print(signatures_of(split_words(['one two three four five six'])).tolist())"
    )
    # One process more, for the threads and the seeds of another one.
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    here = signatures_of(split_words(["one two three four five six"])).tolist()
    assert done.stdout.strip() == str(here)


@pytest.mark.parametrize(("threshold", "rows"), [(0.5, 3), (0.8, 6), (0.95, 14)])
def test_bands_find_what_is_at_the_threshold(threshold: float, rows: int) -> None:
    assert rows_of_band(threshold) == rows
    assert 1 - (1 - threshold**rows) ** (PERMUTATIONS // rows) >= 0.995


def test_groups_are_connected_components() -> None:
    ranks, groups = _groups(np.array([[1, 5], [5, 9], [2, 3]], np.int64))
    assert ranks.tolist() == [1, 2, 3, 5, 9]
    assert groups[[0, 3, 4]].tolist() == [groups[0]] * 3
    assert groups[1] == groups[2] != groups[0]
    assert len(_groups(np.zeros((0, 2), np.int64))[0]) == 0
