"""A real Dask scheduler and workers that were started apart: the same bytes, whoever dies."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phrasemem.pipeline import cluster as cluster_module
from phrasemem.pipeline import executor, worker
from phrasemem.pipeline.cluster import SchedulerError
from phrasemem.pipeline.config import load_config
from phrasemem.pipeline.executor import PARTS_A_WORKER, Executor, Job
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.run import build
from phrasemem.pipeline.stage import Stage, prepare
from phrasemem.pipeline.worker import (
    Expectation,
    WorkerError,
    expectation,
    make_ready,
    versions,
)

from .conftest import Whole, small_parts
from .test_kill import STAGES


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
        load_config(world.write("kill", **small_parts(world))),
        out,
        work=out.with_name(f"{out.name}-work"),
        base=world.folder,
        reporter=reporter or Reporter(io.StringIO()),
        **options,
    )


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
    whole: Whole,
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
    assert contents(tmp_path / "memory") == whole.files
    assert [path.name for path in tmp_path.glob("memory-work/**/.tmp-*")] == []
    assert [path.name for path in tmp_path.glob("**/.probe-*")] == []


class Stranger:
    """What Dask gives as the worker: its address and its threads."""

    def __init__(self, threads: int = 1) -> None:
        self.address = "tcp://stranger:1"
        self.state = SimpleNamespace(nthreads=threads)


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Expectation]:
    monkeypatch.setattr(worker, "_READY", set())
    monkeypatch.setattr(worker, "_one_thread", lambda: None)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("{}")
    with expectation([tmp_path / "work", tmp_path], [corpus, tmp_path]) as found:
        yield found


def test_a_worker_like_this_process_is_taken(expected: Expectation, tmp_path: Path) -> None:
    make_ready(expected, Stranger())
    assert sorted(path.name[:7] for path in tmp_path.rglob(".probe-*")) == [".probe-"] * 2
    (tmp_path / "corpus.jsonl").unlink()
    make_ready(expected, Stranger())  # it was checked once


def test_a_worker_with_other_software_is_refused_by_name(expected: Expectation) -> None:
    there = dict(expected.versions) | {"torch": "1.0", "phrasemem code": "0"}
    other = dataclasses.replace(expected, versions=tuple(there.items()))
    with pytest.raises(WorkerError) as caught:
        make_ready(other, Stranger())
    assert "worker tcp://stranger:1" in str(caught.value)
    here = dict(expected.versions)
    assert caught.value.expected == "phrasemem code 0, torch 1.0"
    assert caught.value.found == f"phrasemem code {here['phrasemem code']}, torch {here['torch']}"


def test_what_decides_bytes_is_compared() -> None:
    names = {name for name, _ in versions()}
    assert names >= {"python", "phrasemem", "phrasemem code", "duckdb", "tokenizers", "torch"}
    assert names >= {"sentence-transformers", "transformers", "ftfy", "numpy", "pyarrow"}
    assert not names & {"ruff", "pytest"}


@pytest.mark.parametrize("text", [None, "another build's"])
def test_a_worker_that_does_not_share_the_folder_is_refused(
    expected: Expectation, tmp_path: Path, text: str | None
) -> None:
    probe = Path(expected.probes[0][0])
    assert probe.parent == tmp_path / "work"
    probe.unlink()
    if text is not None:
        probe.write_text(text)
    with pytest.raises(WorkerError, match="cannot use a folder of the build") as caught:
        make_ready(expected, Stranger())
    assert f"{tmp_path / 'work'} on worker tcp://stranger:1" in str(caught.value)


@pytest.mark.parametrize(("text", "found"), [(None, "nothing"), ("{}{}", "4")])
def test_a_worker_without_an_input_is_refused(
    expected: Expectation, tmp_path: Path, text: str | None, found: str
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.unlink()
    if text is not None:
        corpus.write_text(text)
    with pytest.raises(WorkerError, match=f"expected 2 bytes, found {found}"):
        make_ready(expected, Stranger())


def test_a_worker_of_several_threads_is_refused(expected: Expectation) -> None:
    with pytest.raises(WorkerError, match="--nthreads 1"):
        make_ready(expected, Stranger(threads=2))


def nap(folder: Path, key: str) -> dict[str, str]:
    time.sleep(0.01)
    return {"key": key}


def test_the_scheduler_never_holds_a_whole_stage(tmp_path: Path) -> None:
    from distributed import LocalCluster

    jobs = [Job(f"{number:03d}", {}) for number in range(60)]
    prepare(tmp_path / "stage", Stage("stage", 1))
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        held, done = [], []
        scratch = tmp_path / "scratch"
        with Executor(None, cluster.scheduler_address, scratch, [tmp_path]) as parts:
            for key, part in parts.run(nap, tmp_path / "stage", jobs):
                assert part.report == {"key": key}
                assert part.seconds >= 0.01
                done.append(key)
                held.append(len(cluster.scheduler.tasks))
    assert sorted(done) == [job.key for job in jobs]
    # Those that ended may be there a moment longer than their results.
    assert max(held) <= 3 * PARTS_A_WORKER


@pytest.mark.slow
def test_unfit_workers_are_refused_before_anything_runs(
    world: Any, tmp_path: Path, start_cluster: Callable[[], Cluster]
) -> None:
    bare = start_cluster()
    bare.add_worker("--nthreads", "1", "--preload", "import sys; sys.modules['phrasemem'] = None")
    with pytest.raises(SchedulerError, match="does not have this package"):
        build_of(world, tmp_path / "memory", scheduler=bare.address)
    threads = start_cluster()
    threads.add_worker("--nthreads", "2")
    with pytest.raises(WorkerError, match="--nthreads 1"):
        build_of(world, tmp_path / "memory", scheduler=threads.address)
    assert not (tmp_path / "memory").exists()


@pytest.mark.slow
def test_a_worker_dies_in_every_stage(
    world: Any,
    whole: Whole,
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
    assert contents(tmp_path / "memory") == whole.files


@pytest.mark.slow
def test_a_scheduler_that_dies_is_replaced(
    world: Any,
    whole: Whole,
    tmp_path: Path,
    start_cluster: Callable[[], Cluster],
    contents: Any,
) -> None:
    for stage in ("clean", "candidates", "embed"):
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
    assert contents(tmp_path / "memory") == whole.files


@pytest.mark.slow
def test_without_workers_a_build_stops_and_goes_on(
    world: Any,
    whole: Whole,
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
    assert contents(tmp_path / "memory") == whole.files
