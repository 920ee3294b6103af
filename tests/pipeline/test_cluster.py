"""A real Dask scheduler and workers that were started apart: the same bytes, whoever dies."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phrasemem.pipeline import cluster as cluster_module
from phrasemem.pipeline import executor
from phrasemem.pipeline.cluster import SchedulerError
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.run import build

from .test_kill import STAGES, small_parts


class Cluster:
    """A scheduler and workers, each a process with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            *("scheduler", "--port", "0", "--host", "127.0.0.1"),
            *("--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(self.file)),
        )
        deadline = time.monotonic() + 60
        while not self.file.exists():
            assert time.monotonic() < deadline, "the scheduler never came up"
            time.sleep(0.05)

    @property
    def address(self) -> str:
        import json

        return str(json.loads(self.file.read_text())["address"])

    def add_worker(self, *options: str) -> subprocess.Popen[bytes]:
        options = options or ("--nthreads", "1")
        process = self._start(
            *("worker", self.address, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"),
            *("--memory-limit", "0", "--death-timeout", "20", *options),
        )
        self.workers.append(process)
        return process

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        home = self.folder / f"process-{len(self.workers)}-{arguments[0]}-{time.monotonic_ns()}"
        home.mkdir()
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=home,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "DASK_TEMPORARY_DIRECTORY": str(home)},
            )

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    clusters: list[Cluster] = []

    def start() -> Cluster:
        folder = tmp_path / f"cluster-{len(clusters)}"
        folder.mkdir()
        clusters.append(Cluster(folder))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.close()


def build_of(world: Any, out: Path, reporter: Reporter | None = None, **options: Any) -> None:
    build(
        BuildConfig.model_validate(world.config(**small_parts(world))),
        out,
        work=out.with_name(f"{out.name}-work"),
        base=world.folder,
        reporter=reporter or Reporter(io.StringIO()),
        **options,
    )


@pytest.fixture(scope="module")
def whole(world: Any, tmp_path_factory: pytest.TempPathFactory, contents: Any) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "memory"
    build_of(world, out, workers=0)
    files: dict[str, bytes] = contents(out)
    return files


class KillsInside(Reporter):
    """Kills a process after the first part of a stage, or as a stage of one part begins."""

    def __init__(self, stages: tuple[str, ...], kill: Callable[[str], None]) -> None:
        super().__init__(io.StringIO())
        self._left = set(stages)
        self._kill = kill

    def _lines(self, name: str, total: int) -> Callable[[int], None]:
        def tick(finished: int) -> None:
            if finished < total:
                self._once(name)

        if total == 1:
            self._once(name)
        return tick

    def _once(self, name: str) -> None:
        if name in self._left:
            self._left.remove(name)
            self._kill(name)

    @property
    def missed(self) -> set[str]:
        return self._left


def test_a_worker_that_dies_is_made_up_for(
    world: Any,
    whole: dict[str, bytes],
    tmp_path: Path,
    start_cluster: Callable[[], Cluster],
    contents: Any,
) -> None:
    cluster = start_cluster()
    first = cluster.add_worker()
    cluster.add_worker()

    def kill(_: str) -> None:
        first.send_signal(signal.SIGKILL)
        first.wait()

    reporter = KillsInside(("hashes",), kill)
    build_of(world, tmp_path / "memory", reporter, scheduler=cluster.address)
    assert reporter.missed == set()
    assert contents(tmp_path / "memory") == whole
    assert [path.name for path in tmp_path.glob("memory-work/**/.tmp-*")] == []
    assert [path.name for path in tmp_path.glob("**/.probe-*")] == []


@pytest.mark.slow
def test_a_worker_dies_in_every_stage(
    world: Any,
    whole: dict[str, bytes],
    tmp_path: Path,
    start_cluster: Callable[[], Cluster],
    contents: Any,
) -> None:
    cluster = start_cluster()
    cluster.add_worker()
    cluster.add_worker()

    def kill(_: str) -> None:
        oldest = cluster.workers.pop(0)
        cluster.add_worker()
        oldest.send_signal(signal.SIGKILL)
        oldest.wait()

    reporter = KillsInside(STAGES, kill)
    build_of(world, tmp_path / "memory", reporter, scheduler=cluster.address)
    assert reporter.missed == set()
    assert contents(tmp_path / "memory") == whole


@pytest.mark.slow
def test_a_scheduler_that_dies_in_every_stage_is_replaced(
    world: Any,
    whole: dict[str, bytes],
    tmp_path: Path,
    start_cluster: Callable[[], Cluster],
    contents: Any,
) -> None:
    for stage in STAGES:
        cluster = start_cluster()
        cluster.add_worker()
        cluster.add_worker()
        reporter = KillsInside((stage,), lambda _, c=cluster: c.scheduler.kill())
        with pytest.raises(SchedulerError, match="is gone in stage") as caught:
            build_of(world, tmp_path / "memory", reporter, scheduler=cluster.address)
        assert "run the same command again" in str(caught.value)
        assert not (tmp_path / "memory").exists()
        cluster.close()
    cluster = start_cluster()
    cluster.add_worker()
    build_of(world, tmp_path / "memory", scheduler=cluster.address)
    assert contents(tmp_path / "memory") == whole


@pytest.mark.slow
def test_without_workers_a_build_stops_and_goes_on(
    world: Any,
    whole: dict[str, bytes],
    tmp_path: Path,
    start_cluster: Callable[[], Cluster],
    contents: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "NO_WORKER_SECONDS", 3.0)
    monkeypatch.setattr(cluster_module, "FIRST_WORKER_SECONDS", 2.0)
    cluster = start_cluster()
    with pytest.raises(SchedulerError, match="has no workers"):
        build_of(world, tmp_path / "memory", scheduler=cluster.address)
    cluster.add_worker()
    monkeypatch.setattr(cluster_module, "FIRST_WORKER_SECONDS", 60.0)
    reporter = KillsInside(("counts",), lambda _: cluster.workers[0].kill())
    with pytest.raises(SchedulerError, match="lost its workers in stage counts"):
        build_of(world, tmp_path / "memory", reporter, scheduler=cluster.address)
    cluster.add_worker()
    build_of(world, tmp_path / "memory", scheduler=cluster.address)
    assert contents(tmp_path / "memory") == whole
