"""Memories from memories, killed: an extension goes on, a merge begins again; the same bytes."""

from __future__ import annotations

import io
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phrasemem.memfmt.verify import verify
from phrasemem.pipeline import recombine
from phrasemem.pipeline.config import BuildConfig
from phrasemem.pipeline.count_store import store_path
from phrasemem.pipeline.existing import OutputError
from phrasemem.pipeline.extend import extend
from phrasemem.pipeline.merge_memories import merge
from phrasemem.pipeline.progress import Reporter
from phrasemem.pipeline.run import build

from .conftest import small_parts
from .test_kill import kill_inside

MINING = {"min_count": 4, "max_phrases": 400, "keep_counts": True}
NAMES = ("wiki", "papers", "pages")


def profile(world: Any, *names: str) -> dict[str, Any]:
    corpora = [corpus for corpus in world.config()["corpora"] if corpus["name"] in names]
    return {**small_parts(world), "mining": MINING, "corpora": corpora}


@pytest.fixture(scope="module")
def build_of(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def make(*names: str) -> Path:
        out = tmp_path_factory.mktemp("-".join(names)) / "memory"
        config = BuildConfig.model_validate(world.config(**profile(world, *names)))
        build(config, out, base=world.folder, workers=0, reporter=Reporter(io.StringIO()))
        return out

    return make


@pytest.fixture(scope="module")
def two(build_of: Callable[..., Path]) -> Path:
    return build_of("wiki", "papers")


def test_an_extension_goes_on_where_it_was_killed(
    world: Any, two: Path, tmp_path: Path, started: Any, contents: Any
) -> None:
    config = BuildConfig.model_validate(world.config(**profile(world, *NAMES)))
    lines = io.StringIO()

    def extended(out: Path) -> dict[str, bytes]:
        extend(two, config, out, base=world.folder, workers=0, reporter=Reporter(lines))
        return {**contents(out), **contents(store_path(out))}

    whole = extended(tmp_path / "whole" / "memory")
    out = tmp_path / "killed" / "memory"
    path = world.write("kill-extend", **profile(world, *NAMES))
    dice = random.Random(5)
    for stage in ("store", "embed"):
        process = started("extend", two, "--config", path, "--out", out, "--workers", 0)
        folder = out.with_name(".memory.work") / stage
        kill_inside(stage, folder, process, dice)
        assert (folder / "begun.json").exists()
        assert not (folder / "stage.json").exists()
        assert not out.exists()
        assert not store_path(out).exists()
    lines.truncate(0)
    assert extended(out) == whole
    assert "embed: resumed" in lines.getvalue()


@pytest.fixture(scope="module")
def pages(build_of: Callable[..., Path]) -> Path:
    return build_of("pages")


@pytest.fixture(scope="module")
def merged(two: Path, pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "memory"
    merge([two, pages], out)
    return out


def test_a_merge_that_is_killed_leaves_nothing_that_looks_whole(
    two: Path, pages: Path, merged: Path, tmp_path: Path, started: Any, contents: Any
) -> None:
    out = tmp_path / "memory"
    process = started("merge", two, pages, "--out", out)
    deadline = time.monotonic() + 120
    while not any(tmp_path.glob(".memory.writing/shard-*")):
        assert process.poll() is None, "the merge ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert {path.name for path in tmp_path.iterdir()} == {".memory.making", ".memory.writing"}
    merge([two, pages], out)
    assert contents(tmp_path) == contents(merged.parent)


def test_a_merge_that_is_killed_before_its_store_is_done_again(
    two: Path,
    pages: Path,
    merged: Path,
    tmp_path: Path,
    contents: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    out = tmp_path / "memory"
    with monkeypatch.context() as patch:
        patch.setattr(recombine, "write_store", full)
        with pytest.raises(OSError, match="no space"):
            merge([two, pages], out)
    assert verify(out).manifest == verify(merged).manifest
    assert [path.name for path in tmp_path.iterdir()] == ["memory"]
    with pytest.raises(OutputError, match="use --replace"):
        merge([two, pages], out)
    merge([two, pages], out, replace=True)
    assert contents(tmp_path) == contents(merged.parent)
