"""Where parts run: in this process, on a local Dask cluster, or on a Dask scheduler elsewhere."""

from __future__ import annotations

import os
import queue
import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from phrasemem.pipeline.cluster import SchedulerError, local_cluster, remote_cluster
from phrasemem.pipeline.stage import Report, stamp_of
from phrasemem.pipeline.worker import Done, Expectation, expectation, run_measured

# The scheduler holds this many parts for each worker, so that none waits for work; a stage of
# 100,000 parts never lies there whole.
PARTS_A_WORKER = 4
NO_WORKER_SECONDS = 60.0
MOST_TRIES = 8
_LOOK_EVERY_SECONDS = 2.0
_RESULT_SECONDS = 30.0


class Job(NamedTuple):
    """One part of a stage: its key and the keyword arguments of the stage's function."""

    key: str
    arguments: Mapping[str, Any]


class Executor:
    """Runs the parts of a stage; nothing is started before the first part.

    Parameters
    ----------
    workers : int or None
        Processes of a local cluster; None for one a core, 0 to run in this process.
    scheduler : str or None
        Address of a Dask scheduler; then ``workers`` is not used. Its workers must reach the
        work and output folders under the same paths.
    scratch : Path
        For the files of the local cluster.
    shared : sequence of Path
        Folders that the workers of a scheduler elsewhere must be able to write in.
    read : sequence of Path
        Files and folders that they must be able to read.
    """

    def __init__(
        self,
        workers: int | None,
        scheduler: str | None,
        scratch: Path,
        shared: Sequence[Path] = (),
        read: Sequence[Path] = (),
    ) -> None:
        self._workers = os.cpu_count() or 1 if workers is None else workers
        self._scheduler = scheduler
        self._scratch = scratch
        self._shared = shared
        self._read = read
        self._client: Any = None
        self._expected: Expectation | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def threads(self) -> int:
        """Threads that a lone part may use: as many as there are local workers."""
        return max(1, self._workers) if self._scheduler is None else 1

    def run(
        self, function: Callable[..., Report], folder: Path, jobs: Sequence[Job]
    ) -> Iterator[tuple[str, Done]]:
        """Yield (key, what came of it) of each part as it ends, in any order."""
        if self._scheduler is None and self._workers == 0:
            for job in jobs:
                yield job.key, run_measured(None, function, folder, job.key, job.arguments)
        elif jobs:
            yield from self._distributed(function, folder, jobs)

    def _distributed(
        self, function: Callable[..., Report], folder: Path, jobs: Sequence[Job]
    ) -> Iterator[tuple[str, Done]]:
        client = self._connect()
        stamp = stamp_of(folder)

        def submit(job: Job) -> Any:
            return client.submit(
                *(run_measured, self._expected, function, folder, job.key, job.arguments, stamp),
                pure=False,
                retries=0,
            )

        yield from _Window(client, submit, folder).run(jobs)

    def _connect(self) -> Any:
        if self._client is None:
            if self._scheduler is None:
                shutil.rmtree(self._scratch, ignore_errors=True)  # of a build that was killed
                cluster = local_cluster(self._workers, self._scratch)
            else:
                self._expected = self._stack.enter_context(expectation(self._shared, self._read))
                cluster = remote_cluster(self._scheduler, self._expected)
            self._client = self._stack.enter_context(cluster)
        return self._client


class _Window:
    """Keeps a bounded number of parts with the scheduler, and notices when it is gone."""

    def __init__(self, client: Any, submit: Callable[[Job], Any], folder: Path) -> None:
        self._client = client
        self._submit = submit
        self._folder = folder
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._running: dict[Any, Job] = {}
        self._again: Counter[str] = Counter()
        self._workers_seen = time.monotonic()
        self._looked = -_LOOK_EVERY_SECONDS
        self._room = PARTS_A_WORKER

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Done]]:
        waiting = deque(jobs)
        try:
            while waiting or self._running:
                self._look()
                self._fill(waiting)
                try:
                    future = self._ended.get(timeout=_LOOK_EVERY_SECONDS)
                except queue.Empty:
                    continue
                job = self._running.pop(future)
                done = self._result(future)
                if done is None:
                    # Its worker died with the result: the same bytes again, by another worker.
                    waiting.append(job)
                    self._count_again(job)
                else:
                    yield job.key, done
        finally:
            if self._running and self._client.status == "running":
                self._client.cancel(list(self._running), force=True)

    def _fill(self, waiting: deque[Job]) -> None:
        while waiting and len(self._running) < self._room:
            job = waiting.popleft()
            future = self._submit(job)
            self._running[future] = job
            future.add_done_callback(self._ended.put)

    def _count_again(self, job: Job) -> None:
        self._again[job.key] += 1
        if self._again[job.key] > MOST_TRIES:
            raise SchedulerError(
                f"the workers that ran part {job.key} were lost {MOST_TRIES} times",
                where=f"stage {self._folder.name}",
                hint="look at the logs of the workers, and run the same command again",
            )

    def _look(self) -> None:
        """Find out, now and then, how many workers there are; fail if nobody can run a part."""
        if self._client.status != "running":
            raise self._scheduler_lost()
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY_SECONDS:
            return
        try:
            workers = len(self._client.nthreads())
        except OSError as error:
            raise self._scheduler_lost() from error
        self._looked = now
        self._room = PARTS_A_WORKER * max(1, workers)
        if workers:
            self._workers_seen = now
        elif now - self._workers_seen > NO_WORKER_SECONDS:
            raise SchedulerError(
                "the Dask scheduler has lost its workers",
                where=f"stage {self._folder.name}",
                hint="start workers, and run the same command again: it goes on from here",
            )

    def _result(self, future: Any) -> Done | None:
        from distributed import CancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        if self._client.status != "running":
            raise self._scheduler_lost()
        if future.status not in ("finished", "error"):
            return None  # the scheduler forgot it, or computes it again
        try:
            return Done(*future.result(timeout=_RESULT_SECONDS))
        except (TimeoutError, CancelledError, CommClosedError):
            return None  # if it was the scheduler that went, the next look says so
        except KilledWorker as error:
            raise SchedulerError(
                "workers died again and again at one part, most likely for want of memory",
                where=f"stage {self._folder.name}",
                hint="use fewer --workers or smaller partition_chars, and start again",
            ) from error

    def _scheduler_lost(self) -> SchedulerError:
        return SchedulerError(
            "the Dask scheduler is gone",
            where=f"stage {self._folder.name}",
            hint="start one, and run the same command again: it goes on from here",
        )
