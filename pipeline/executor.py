"""Where parts run: in this process, on a local Dask cluster, or on a Dask scheduler elsewhere."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.stage import Report, run_part

# What a worker's libraries print or spawn would leak into the user's terminal or cores.
_WORKER_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


class SchedulerError(PhraseMemError):
    """A Dask scheduler that cannot be reached, or a worker that died."""


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
    """

    def __init__(self, workers: int | None, scheduler: str | None, scratch: Path) -> None:
        self._workers = os.cpu_count() or 1 if workers is None else workers
        self._scheduler = scheduler
        self._scratch = scratch
        self._client: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def threads(self) -> int:
        """Threads that a lone part may use: as many as there are local workers."""
        return max(1, self._workers)

    def run(
        self, function: Callable[..., Report], folder: Path, jobs: Sequence[Job]
    ) -> Iterator[tuple[str, Report]]:
        """Yield (key, report) of each part as it ends, in any order."""
        if self._scheduler is None and self._workers == 0:
            for job in jobs:
                yield job.key, run_part(function, folder, job.key, job.arguments)
        elif jobs:
            yield from self._distributed(function, folder, jobs)

    def _distributed(
        self, function: Callable[..., Report], folder: Path, jobs: Sequence[Job]
    ) -> Iterator[tuple[str, Report]]:
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        client = self._connect()
        futures = {
            client.submit(
                run_part, function, folder, job.key, job.arguments, pure=False, retries=0
            ): job.key
            for job in jobs
        }
        try:
            for future in as_completed(futures, loop=client.loop):
                yield futures[future], future.result()
        except KilledWorker as error:
            raise SchedulerError(
                "a worker died, most likely for want of memory",
                where=folder.name,
                hint="use fewer --workers or smaller partition_chars, and start again",
            ) from error
        finally:
            client.cancel(list(futures), force=True)

    def _connect(self) -> Any:
        if self._client is None:
            self._client = (
                self._local_cluster() if self._scheduler is None else self._remote(self._scheduler)
            )
        return self._client

    def _local_cluster(self) -> Any:
        import dask
        from distributed import Client, LocalCluster

        settings = {
            "distributed.nanny.pre-spawn-environ": _WORKER_ENVIRONMENT,
            "distributed.worker.memory.terminate": False,
            "distributed.comm.timeouts.connect": "60s",
        }
        self._stack.enter_context(dask.config.set(settings))
        _silence()
        try:
            cluster = LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",  # None would still ask for port 8787
                local_directory=str(self._scratch),
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            raise SchedulerError(
                "the local workers did not start",
                hint="a script must call build() below `if __name__ == '__main__':`",
            ) from error
        self._stack.enter_context(cluster)
        return self._stack.enter_context(Client(cluster, set_as_default=False))

    def _remote(self, address: str) -> Any:
        from distributed import Client

        _silence()
        try:
            client = Client(address, timeout="10s", set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise SchedulerError(
                "cannot reach the Dask scheduler", where=address, hint="is it running?"
            ) from error
        self._stack.enter_context(client)
        if not client.scheduler_info()["workers"]:
            raise SchedulerError("the Dask scheduler has no workers", where=address)
        return client


def _silence() -> None:
    """Keep Dask's own log off the terminal: what matters comes back as an error."""
    for name in ("distributed", "distributed.worker", "distributed.nanny", "distributed.scheduler"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
