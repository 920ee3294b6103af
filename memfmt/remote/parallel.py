"""Runs transfers in threads, and stops all of them when one has failed for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from phrasemem.memfmt.remote.retry import Patience

DEFAULT_WORKERS = 8


def run_all(jobs: Sequence[Callable[[], None]], workers: int, patience: Patience) -> None:
    """Run every job; the first failure is raised when the others have come to a stop.

    Parameters
    ----------
    jobs : sequence of callables
    workers : int
    patience : Patience
        Its `stop` is set on a failure, so that those that wait do not wait on.
    """
    if not jobs:
        return
    with ThreadPoolExecutor(min(workers, len(jobs)), thread_name_prefix="transfer") as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            patience.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
