"""What happens in a process of a cluster: it is checked and made ready once, then it runs parts.

A worker that was started elsewhere does not have this machine's settings, and perhaps not its
libraries or its folders. Every part carries what it expects; the first one of a process checks it,
so that workers that join later are checked too, and nothing stays behind in the scheduler.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.stage import Report, Stamp, run_part

# What a worker's libraries print or spawn would leak into the user's terminal or cores.
ENVIRONMENT = {
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
_PROBE = ".probe-"
_EXTRA = "pipeline"
# What this process was found to meet.
_READY: set[object] = set()


class WorkerError(PhraseMemError):
    """A worker that would not give the bytes that this machine gives."""


class Done(NamedTuple):
    """A part that is done: its report, and the seconds and seconds of processor that it took."""

    report: Report
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Expectation:
    """What a worker must have.

    Attributes
    ----------
    versions : tuple of (str, str)
        Python, this package's code and every library of the extra ``pipeline``.
    probes : tuple of (str, str)
        Files in the folders that all share, and the text in each.
    sizes : tuple of (str, int)
        Paths of corpora, models and encoders, and bytes of each; -1 for a folder.
    """

    versions: tuple[tuple[str, str], ...]
    probes: tuple[tuple[str, str], ...]
    sizes: tuple[tuple[str, int], ...]


@contextmanager
def expectation(shared: Sequence[Path], read: Sequence[Path]) -> Iterator[Expectation]:
    """Yield what this process has; the probes are removed at the end.

    Parameters
    ----------
    shared : sequence of Path
        Folders that workers write in; made if they are missing.
    read : sequence of Path
        Files and folders that workers read.
    """
    token = os.urandom(8).hex()
    probes = [folder / f"{_PROBE}{token}" for folder in shared]
    sizes = [(str(path), path.stat().st_size if path.is_file() else -1) for path in read]
    try:
        for probe in probes:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.write_text(token)
        yield Expectation(versions(), tuple((str(p), token) for p in probes), tuple(sizes))
    finally:
        for probe in probes:
            probe.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def versions() -> tuple[tuple[str, str], ...]:
    """Return what decides the bytes of a part besides its arguments."""
    names = sorted({"tokenizers", "xxhash", *_required("phrasemem", _EXTRA)})
    return (
        ("python", ".".join(platform.python_version_tuple()[:2])),
        ("phrasemem code", _code_digest()),
        *((name, _version(name)) for name in ("phrasemem", *names)),
    )


def _required(package: str, extra: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    for line in requires(package) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement.name


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _code_digest() -> str:
    """Return XXH3-64 over the modules that write parts: two checkouts can have one version."""
    import phrasemem.memfmt
    import phrasemem.pipeline

    digest = xxhash.xxh3_64()
    for part in (phrasemem.memfmt, phrasemem.pipeline):
        folder = Path(part.__path__[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run_measured(
    expected: Expectation | None,
    function: Callable[..., Report],
    folder: Path,
    key: str,
    arguments: Mapping[str, Any],
    stamp: Stamp | None = None,
) -> Done:
    """Run one part and mark it done; ``expected`` None for a process that was started from here."""
    if expected is not None:
        from distributed import get_worker

        make_ready(expected, get_worker())
    seconds, cpu = time.monotonic(), time.process_time()
    report = run_part(function, folder, key, arguments, stamp)
    return Done(report, time.monotonic() - seconds, time.process_time() - cpu)


def make_ready(expected: Expectation, dask_worker: Any) -> None:
    """Check this process once, and keep its libraries to one thread.

    Dask gives ``dask_worker`` to what runs on a worker by its name.

    Raises
    ------
    WorkerError
        Naming the worker and what differs.
    """
    if expected in _READY:
        return
    name = f"worker {dask_worker.address} ({platform.node()})"
    _check_threads(dask_worker.state.nthreads, name)
    _check_versions(expected, name)
    _check_probes(expected, name)
    _check_inputs(expected, name)
    _one_thread()
    _READY.add(expected)


def _check_threads(threads: int, worker: str) -> None:
    if threads != 1:
        # Tokenizers and encoders are kept in a process and are not for several threads.
        raise WorkerError(
            "a worker runs several parts in one process",
            where=worker,
            expected="1 thread",
            found=threads,
            hint="start it with --nthreads 1, and more of them with --nworkers",
        )


def _check_versions(expected: Expectation, worker: str) -> None:
    here = dict(versions())
    differing = [
        (name, wanted, here.get(name, "not installed"))
        for name, wanted in expected.versions
        if here.get(name) != wanted
    ]
    if differing:
        raise WorkerError(
            "a worker has other software, so it would write other bytes",
            where=worker,
            expected=", ".join(f"{name} {wanted}" for name, wanted, _ in differing),
            found=", ".join(f"{name} {found}" for name, _, found in differing),
            hint="install the same packages there: pip install -c constraints.txt",
        )


def _check_probes(expected: Expectation, worker: str) -> None:
    for probe, token in expected.probes:
        path = Path(probe)
        try:
            found = path.read_text()
            (path.parent / f"{path.name}-{os.getpid()}").touch()
            (path.parent / f"{path.name}-{os.getpid()}").unlink()
        except OSError as error:
            raise _not_shared(path.parent, str(error.strerror), worker) from error
        if found != token:
            raise _not_shared(path.parent, "another file of that name", worker)


def _check_inputs(expected: Expectation, worker: str) -> None:
    for name, size in expected.sizes:
        path = Path(name)
        there = path.stat().st_size if path.is_file() else -1 if path.is_dir() else None
        if there != size:
            raise WorkerError(
                "a worker does not have an input",
                where=f"{name} on {worker}",
                expected="a folder" if size < 0 else f"{size} bytes",
                found="nothing" if there is None else "a folder" if there < 0 else there,
                hint="put corpora, models and encoders where all workers see them",
            )


def _not_shared(folder: Path, reason: str, worker: str) -> WorkerError:
    return WorkerError(
        f"a worker cannot use a folder of the build: {reason}",
        where=f"{folder} on {worker}",
        hint="--work and --out must be on a file system that all workers share, same paths",
    )


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    os.environ.update(ENVIRONMENT)  # for libraries that are not loaded yet
    threadpool_limits(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
