"""Times two sides in turns, so that whatever else the machine does falls on both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_TURNS = 5


def paired_seconds(
    ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int
) -> tuple[float, float]:
    """Return the median time of each side over `repeats` calls, in five turns of many calls.

    Turns are long, since calls one by one would each find the caches full of the other side.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_TURNS):
        for side, work in zip(times, (ours, theirs), strict=True):
            work()
            for _ in range(max(1, repeats // _TURNS)):
                begin = time.perf_counter()
                work()
                side.append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])
