"""A build that is killed inside any stage and started again gives the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Whole, small_parts

# Without "unigrams": it is over so soon after its only write that a kill rarely falls into it.
STAGES = (
    *("read", "lines", "repeated", "clean", "select", "tokenize", "hashes", "survivors"),
    *("counts", "candidates", "score", "embed", "layout", "pack"),
)
# Stages of a single part: the first write is already inside the only part.
SINGLE = ("select", "score", "layout")


def writes(folder: Path) -> list[str]:
    """Names of what a stage has begun to write: parts, temporary files, finished parts."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [name for name in names if not name.endswith(("begun.json", "stage.json"))]


def kill_inside(
    stage: str, folder: Path, process: subprocess.Popen[bytes], dice: random.Random
) -> None:
    """Kill the process group a little after the stage's first finished part, or first write."""

    def wrote(name: str) -> bool:
        return stage in SINGLE or (name.endswith(".done.json") and not name.startswith(".tmp-"))

    deadline = time.monotonic() + 120
    while not any(wrote(name) for name in writes(folder)):
        assert process.poll() is None, f"the build ended before {stage} wrote anything"
        assert time.monotonic() < deadline, f"{stage} never began"
        time.sleep(0.0005)
    time.sleep(dice.uniform(0, 0.01))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_and_resumed(
    world: Any,
    tmp_path: Path,
    started: Any,
    cli: Any,
    seed: int,
    workers: int,
) -> Path:
    """Kill one build once in every stage, going on each time, and let it finish."""
    dice = random.Random(seed)
    out, work = tmp_path / "memory", tmp_path / "work"
    options = ("--config", world.write("kill", **small_parts(world)), "--out", out, "--work", work)
    arguments = ("build", *options, "--workers", workers, "--no-calibrate")
    for stage in STAGES:
        folder = tmp_path / ".memory.writing" if stage == "pack" else work / stage
        kill_inside(stage, folder, started(*arguments), dice)
        assert (folder / "begun.json").exists(), f"{stage} had not begun"
        assert not (folder / "stage.json").exists(), f"{stage} was finished"
        assert not out.exists()
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    assert "pack: resumed" in done.stderr
    return out


def test_killed_once_in_every_stage(
    world: Any, tmp_path: Path, whole: Whole, started: Any, cli: Any, contents: Any
) -> None:
    out = killed_and_resumed(world, tmp_path, started, cli, seed=1, workers=0)
    found = contents(out)
    assert found.keys() == whole.files.keys()
    assert [name for name in found if found[name] != whole.files[name]] == []
    assert [path.name for path in (tmp_path / "work").rglob(".tmp-*")] == []


@pytest.mark.slow
def test_killed_with_its_workers(
    world: Any, tmp_path: Path, whole: Whole, started: Any, cli: Any, contents: Any
) -> None:
    """Kill the whole group of a build on a Dask cluster inside two stages."""
    out, work = tmp_path / "memory", tmp_path / "work"
    options = ("--config", world.write("kill", **small_parts(world)), "--out", out, "--work", work)
    arguments = ("build", *options, "--workers", 1, "--no-calibrate")
    dice = random.Random(2)
    for stage in ("tokenize", "embed"):
        kill_inside(stage, work / stage, started(*arguments), dice)
        assert (work / stage / "begun.json").exists()
        assert not (work / stage / "stage.json").exists()
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    assert "embed: resumed" in done.stderr
    assert contents(out) == whole.files


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 6))
def test_killed_in_every_stage_again(
    world: Any,
    tmp_path: Path,
    whole: Whole,
    started: Any,
    cli: Any,
    contents: Any,
    seed: int,
) -> None:
    out = killed_and_resumed(world, tmp_path, started, cli, seed=seed, workers=1 + seed % 2)
    assert contents(out) == whole.files


def test_killed_while_the_memory_is_named(
    world: Any, tmp_path: Path, whole: Whole, cli: Any, contents: Any
) -> None:
    """A complete but unnamed memory, as a kill just before the rename leaves it, is rewritten."""
    out, work = tmp_path / "memory", tmp_path / "work"
    options = ("--config", world.write("kill", **small_parts(world)), "--out", out, "--work", work)
    shutil.copytree(whole.folder / "work", work)
    shutil.copytree(whole.folder / "memory", tmp_path / ".memory.writing")
    done = cli("build", *options, "--workers", 0, "--no-calibrate")
    assert done.returncode == 0, done.stderr
    assert contents(out) == whole.files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "work"]
