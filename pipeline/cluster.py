"""Dask clusters: one of local processes, or one that runs elsewhere and is checked first."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.worker import ENVIRONMENT, Expectation, make_ready

# Workers of a batch system or of Kubernetes come when there is room for them.
FIRST_WORKER_SECONDS = 60.0
_ASK_EVERY_SECONDS = 0.5


class SchedulerError(PhraseMemError):
    """A Dask scheduler that cannot be reached, or workers that died."""


@contextmanager
def local_cluster(workers: int, scratch: Path) -> Iterator[Any]:
    """Start worker processes on this machine; yield their client."""
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": "60s",
    }
    _silence()
    with dask.config.set(settings):
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",  # None would still ask for port 8787
                local_directory=str(scratch),
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            raise SchedulerError(
                "the local workers did not start",
                hint="a script must call build() below `if __name__ == '__main__':`",
            ) from error
        with cluster, Client(cluster, set_as_default=False) as client:
            yield client


@contextmanager
def remote_cluster(address: str, expected: Expectation) -> Iterator[Any]:
    """Connect to a scheduler and check the workers that it has now; yield the client."""
    from distributed import Client

    _silence()
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SchedulerError(
            "cannot reach the Dask scheduler", where=address, hint="is it running?"
        ) from error
    with client:
        _wait_for_a_worker(client, address)
        check_workers(client, expected)
        yield client


def check_workers(client: Any, expected: Expectation) -> None:
    """Refuse workers that lack the package, or differ from ``expected``."""
    answers = client.run(make_ready, expected, on_error="return")
    for worker, answer in answers.items():
        if isinstance(answer, PhraseMemError):
            raise answer
        if "ModuleNotFoundError" in repr(answer):  # an error that Dask could not send is a text
            raise SchedulerError(
                f"a worker does not have this package: {answer}",
                where=worker,
                hint='install the same "phrasemem[pipeline]" there',
            )
        if isinstance(answer, BaseException):
            raise SchedulerError(f"a worker cannot be used: {answer!r}", where=worker) from answer


def _wait_for_a_worker(client: Any, address: str) -> None:
    deadline = time.monotonic() + FIRST_WORKER_SECONDS
    while not client.nthreads():
        if time.monotonic() > deadline:
            raise SchedulerError(
                "the Dask scheduler has no workers",
                where=address,
                hint=f"none came within {FIRST_WORKER_SECONDS:.0f} seconds",
            )
        time.sleep(_ASK_EVERY_SECONDS)


def _silence() -> None:
    """Keep Dask's own log off the terminal: what matters comes back as an error."""
    for name in (
        *("distributed", "distributed.worker", "distributed.nanny", "distributed.scheduler"),
        *("distributed.client", "distributed.comm", "distributed.core", "distributed.protocol"),
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
