"""What a piece of work adds to the RAM of this process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(work: Callable[[], T]) -> tuple[T, float, float]:
    """Return what `work` returns, and the MB that stay afterwards and that it took at most.

    Pages of mapped files count in the second: they are this process's as long as it runs.
    """
    gc.collect()
    _CLEAR.write_text("5")  # the peak begins at what is held now
    before, peak_before = _kilobytes("RssAnon"), _kilobytes("VmHWM")
    result = work()
    peak = _kilobytes("VmHWM") - peak_before
    return result, (_kilobytes("RssAnon") - before) / 1e3, peak / 1e3


def _kilobytes(name: str) -> int:
    line = next(ln for ln in _STATUS.read_text().splitlines() if ln.startswith(name + ":"))
    return int(line.split()[1])
