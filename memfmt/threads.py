"""Large batches of kernel work, shared by a few threads; kernels run without the GIL."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

MOST = 4
"""More threads than this gain little: memory is what they wait for."""


def pieces(total: int, smallest: int) -> list[slice]:
    """Cut a range into equal pieces, one for each core at hand, none smaller than `smallest`."""
    count = max(1, min(_cores(), MOST, total // smallest))
    bounds = [total * piece // count for piece in range(count + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def run_all(work: Sequence[Callable[[], object]]) -> None:
    """Run functions at once, the first of them in this thread, and wait for all.

    Thread-safe. What runs must not call this function: it could wait for itself.
    """
    first, *others = work
    if not others:
        first()
        return
    waiting = [_threads.submit(function) for function in others]
    try:
        first()
    finally:
        for future in waiting:
            future.result()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        # Not on this system.
        return os.cpu_count() or 1


class _Threads:
    """The threads of this process, begun when they are first wanted."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all threads."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[[], object]) -> Future[object]:
        """Run a function in one of them."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(MOST - 1, thread_name_prefix="phrasemem")
            return self._pool.submit(function)


_threads = _Threads()
if hasattr(os, "register_at_fork"):
    # The threads of its parent are not there in a child process, and its lock may be held.
    os.register_at_fork(after_in_child=_threads.begin_anew)
