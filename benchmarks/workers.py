"""A whole build by two workers against the same by one, all of it pinned to one core.

    python -m benchmarks.workers [--full]

Each side is the command `phrasemem build` in a process of its own, from an empty work folder:
start, stages and the finished memory, without calibration. The rival may use one core for all that
it does: torch, DuckDB and Dask too. Both must write the same bytes. The default size is a part
of the default corpora; ``--full`` is all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks._harness import OUT, Result, report

_CONFIG = Path(__file__).parents[1] / "corpora.yaml"
_FOLDER = OUT / "workers"
_DOCUMENTS = {"wikipedia-summaries": 5000, "pubmed": 3000, "news": 800}
_PHRASES = 12_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the whole default profile")
    full = parser.parse_args().full
    cores = sorted(os.sched_getaffinity(0))
    config = _write_config(full)
    _build(config, 2, set(cores))  # fetches and compiles what is not cached
    pinned = [_build(config, 1, {cores[0]})]
    both = [_build(config, 2, set(cores))]
    shutil.rmtree(_FOLDER)
    rival = statistics.median(seconds for seconds, _ in pinned)
    ours = statistics.median(seconds for seconds, _ in both)
    if len({digest for _, digest in (*pinned, *both)}) != 1:
        raise AssertionError("the two sides wrote different memories")
    result = Result(
        name="workers/whole build",
        value=ours,
        unit="s",
        rival="one worker, all on one core",
        rival_value=rival,
        state="cold work folder, warm page cache",
        target=1.6,
        note="profile demo" if full else f"{_PHRASES:,} phrases",
    )
    report([result if len(cores) > 1 else _skipped(result)], "workers")


def _skipped(result: Result) -> Result:
    fields = vars(result) | {"value": None, "note": "needs two cores"}
    return Result(**fields)


def _write_config(full: bool) -> Path:
    """Write a configuration whose one profile is what both sides build."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    profiles: dict[str, Any] = yaml.safe_load(_CONFIG.read_text())["profiles"]
    profile = profiles["demo"]
    if not full:
        profile["partition_chars"] = 1_000_000
        profile["encoder"]["phrases_per_part"] = 2048
        profile["mining"]["max_phrases"] = _PHRASES
        chosen = [corpus for corpus in profile["corpora"] if corpus["name"] in _DOCUMENTS]
        for corpus in chosen:
            corpus["budget"] = {"max_documents": _DOCUMENTS[corpus["name"]]}
        profile["corpora"] = chosen
    path = _FOLDER / "corpora.yaml"
    path.write_text(yaml.safe_dump({"default_profile": "demo", "profiles": {"demo": profile}}))
    return path


def _build(config: Path, workers: int, cores: set[int]) -> tuple[float, str]:
    """Build on some cores; return the seconds and a digest of the memory."""
    out, work = _FOLDER / "memory", _FOLDER / "work"
    for folder in (out, work):
        shutil.rmtree(folder, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("phrasemem")), "build", "--no-calibrate"]
    command += ["--config", str(config), "--out", str(out), "--work", str(work)]
    command += ["--workers", str(workers)]
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(done.stderr)
    return seconds, hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
