"""Times two sides turn by turn, so that whatever else the machine does falls on both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def paired_seconds(
    ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int
) -> tuple[float, float]:
    """Return the median time of each side over `repeats` turns, after one unmeasured turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats + 1):
        for side, work in zip(times, (ours, theirs), strict=True):
            begin = time.perf_counter()
            work()
            if turn:
                side.append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])
