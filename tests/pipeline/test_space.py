"""Room on the disk: asked for before a stage, given back after one, made again when missed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from phrasemem.pipeline import space as space_module
from phrasemem.pipeline.space import DiskError, Space, missing_again
from phrasemem.pipeline.stage import Stage, finish, look, prepare, write_json

READ = Stage("read", 1)
CLEAN = Stage("clean", 1, {}, {"read": READ.fingerprint})
SELECT = Stage("select", 1, {}, {"clean": CLEAN.fingerprint})
TOKENIZE = Stage("tokenize", 1, {}, {"clean": CLEAN.fingerprint, "select": SELECT.fingerprint})
HASHES = Stage("hashes", 1, {}, {"tokenize": TOKENIZE.fingerprint})
PACK = Stage("pack", 1, {}, {"tokenize": TOKENIZE.fingerprint})
STAGES = [READ, CLEAN, SELECT, TOKENIZE, HASHES, PACK]


def done(work: Path, stage: Stage) -> None:
    """Leave a stage as a finished one."""
    folder = work / stage.name
    prepare(folder, stage)
    (folder / "a.parquet").write_bytes(b"x" * 100)
    (folder / "a.heldout.jsonl").write_text("{}")
    (folder / "a.unigrams.parquet").write_bytes(b"x")
    write_json(folder / "a.done.json", {})
    finish(folder, {"parts": {"a": {}}})


def large(work: Path) -> list[str]:
    return sorted(path.parent.name for path in work.glob("*/a.parquet"))


def test_files_go_when_the_last_reader_is_done(tmp_path: Path) -> None:
    space = Space(tmp_path, STAGES, low_disk=True)
    there = []
    for stage in STAGES[:-1]:
        done(tmp_path, stage)
        space.release_after(stage.name)
        there.append(large(tmp_path))
    assert there == [
        ["read"],
        ["clean"],
        ["clean", "select"],
        ["select", "tokenize"],
        [
            "hashes",
            "select",
        ],  # `pack` reads what is kept of `tokenize`; `hashes` has no reader here
    ]
    assert len(list(tmp_path.glob("*/a.heldout.jsonl"))) == 5
    assert len(list(tmp_path.glob("*/a.unigrams.parquet"))) == 5
    assert all(look(tmp_path / stage.name, stage)[0] for stage in STAGES[:-1])


def test_nothing_goes_unasked(tmp_path: Path) -> None:
    for stage in STAGES:
        done(tmp_path, stage)
    Space(tmp_path, STAGES).release_after("pack")
    assert len(large(tmp_path)) == len(STAGES)


def test_what_a_changed_stage_misses_is_made_again(tmp_path: Path) -> None:
    space = Space(tmp_path, STAGES, low_disk=True)
    for stage in STAGES[:-1]:
        done(tmp_path, stage)
        space.release_after(stage.name)
    assert missing_again(tmp_path, STAGES) == []
    changed = Stage("hashes", 2, {}, HASHES.inputs)
    stages = [*STAGES[:4], changed, PACK]
    assert missing_again(tmp_path, stages) == ["read", "clean", "tokenize"]
    assert Space(tmp_path, stages).make_again() == ["read", "clean", "tokenize"]
    assert [look(tmp_path / s.name, s)[0] for s in STAGES[:4]] == [False, False, True, False]


def test_a_kill_while_files_go_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage in (READ, CLEAN):
        done(tmp_path, stage)
    space = Space(tmp_path, STAGES, low_disk=True)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            space.release_after("clean")
    assert missing_again(tmp_path, [READ, Stage("clean", 2, {}, CLEAN.inputs)]) == ["read"]
    space.release_after("clean")
    assert large(tmp_path) == ["clean"]


class Usage(NamedTuple):
    free: int


def test_a_stage_without_room_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(tmp_path, READ)
    (tmp_path / "read" / "a.parquet").write_bytes(b"x" * 1_000_000)
    monkeypatch.setattr(space_module.shutil, "disk_usage", lambda _: Usage(100_000))
    with pytest.raises(DiskError, match="not enough disk space for stage clean") as caught:
        Space(tmp_path, STAGES).ask_for_room("clean")
    assert "--low-disk" in str(caught.value)
    Space(tmp_path, STAGES, check=False).ask_for_room("clean")
    monkeypatch.setattr(space_module.shutil, "disk_usage", lambda _: Usage(3_000_000))
    Space(tmp_path, STAGES).ask_for_room("clean")


def test_all_of_the_work_goes_when_it_is_not_kept(tmp_path: Path) -> None:
    for stage in STAGES:
        done(tmp_path, stage)
    (tmp_path / "status.json").write_text("{}")
    Space(tmp_path, STAGES).remove_stages()
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_build_on_little_disk_gives_the_same_bytes(
    world: Any, whole: Any, tmp_path: Path, cli: Any
) -> None:
    """Also after a change for which files that were removed are made again."""
    from .conftest import small_parts

    config = world.write("kill", **small_parts(world))
    shutil.copytree(whole.folder / "work", tmp_path / "work")
    shutil.rmtree(tmp_path / "work" / "counts")
    arguments = ("--config", config, "--out", tmp_path / "memory", "--work", tmp_path / "work")
    options = ("--workers", 0, "--no-calibrate", "--low-disk")
    ended = cli("build", *arguments, *options)
    assert ended.returncode == 0, ended.stderr
    assert files_of(tmp_path / "memory") == whole.files
    gone = [n for n in ("tokenize", "counts", "survivors") if not _large(tmp_path / "work" / n)]
    assert gone == ["tokenize", "counts", "survivors"]
    shutil.rmtree(tmp_path / "work" / "score")
    shutil.rmtree(tmp_path / "memory")
    ended = cli("build", *arguments, *options, "--no-keep-work")
    assert ended.returncode == 0, ended.stderr
    assert "counts: runs again: its files were removed and are needed" in ended.stderr
    assert files_of(tmp_path / "memory") == whole.files
    kept = sorted(path.name for path in (tmp_path / "work").iterdir())
    assert kept == [".lock", "report", "status.json"]


def _large(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.suffix in {".parquet", ".arrow", ".npy"}]
