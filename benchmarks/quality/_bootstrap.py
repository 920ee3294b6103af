"""How far chance may move the difference between two systems: a paired bootstrap of documents."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

DRAWS = 2000
_LEVEL = 95
_SEED = 0


def difference_interval(
    gold: list[set[str]], ours: Collection[str], theirs: Collection[str]
) -> tuple[float, float]:
    """Return a 95% interval of our share of gold phrases less theirs, in points.

    Documents are drawn with replacement, as many as there are (Efron, Tibshirani 1993, ch. 13:
    percentiles). Both systems are judged by the gold phrases of the same draw, each phrase once.

    Parameters
    ----------
    gold : list of set of str
        Gold phrases of each document.
    ours, theirs : collection of str
        What the systems found.
    """
    phrases = sorted(set().union(*gold))
    has = np.array([[phrase in document for phrase in phrases] for document in gold], np.float32)
    points = np.array([(p in ours) - float(p in theirs) for p in phrases], np.float32)
    chance = np.random.default_rng(_SEED)
    drawn = chance.multinomial(len(gold), np.full(len(gold), 1 / len(gold)), DRAWS)
    present = (drawn.astype(np.float32) @ has) > 0
    differences = 100 * (present @ points) / present.sum(axis=1)
    low, high = np.percentile(differences, [(100 - _LEVEL) / 2, (100 + _LEVEL) / 2])
    return float(low), float(high)
