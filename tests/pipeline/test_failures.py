"""What the user sees when something is wrong: one line, non-zero exit, nothing half-written."""

from __future__ import annotations

import bz2
import gzip
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def fails(cli: Any, *arguments: object, **options: Any) -> str:
    """Run a command that must fail; return its only line besides progress."""
    done = cli(*arguments, **options)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("phrasemem: ")]
    assert len(errors) == 1
    assert done.stderr.splitlines()[-1] == errors[0]
    return errors[0]


def corpus(world: Any, **changes: Any) -> dict[str, Any]:
    return {"corpora": [{**world.config()["corpora"][0], **changes}]}


def options(tmp_path: Path, config: Path, workers: int = 0) -> tuple[object, ...]:
    paths = ("--config", config, "--out", tmp_path / "memory", "--work", tmp_path / "work")
    return ("build", *paths, "--workers", workers, "--no-calibrate")


def test_a_missing_file(world: Any, tmp_path: Path, cli: Any) -> None:
    config = world.write("missing", **corpus(world, source="gone.jsonl"))
    line = fails(cli, *options(tmp_path, config))
    assert "corpus 'wiki' has no such file" in line
    assert str(world.folder / "gone.jsonl") in line


def test_a_missing_configuration(tmp_path: Path, cli: Any) -> None:
    line = fails(cli, *options(tmp_path, tmp_path / "none.yaml"))
    assert f"no such configuration file in {tmp_path / 'none.yaml'}" in line


def test_an_unknown_key(world: Any, tmp_path: Path, cli: Any) -> None:
    config = world.write("key", **corpus(world, licens="CC0-1.0"))
    line = fails(cli, *options(tmp_path, config))
    assert "unknown key 'licens'" in line
    assert "profiles.tiny.corpora.0.licens" in line
    assert "did you mean 'licence'?" in line


def test_a_wrong_checksum(world: Any, tmp_path: Path, cli: Any) -> None:
    config = world.write("sum", **corpus(world, sha256="0" * 64))
    line = fails(cli, *options(tmp_path, config))
    assert "checksum" in line
    assert f"expected {'0' * 64}, found" in line


@pytest.mark.parametrize("workers", [0, 1])
def test_an_archive_of_which_nothing_is_left(
    world: Any, tmp_path: Path, cli: Any, workers: int
) -> None:
    text = (world.folder / "wiki.jsonl").read_bytes()
    broken = tmp_path / "wiki.jsonl.gz"
    broken.write_bytes(gzip.compress(text)[:12])
    config = world.write(f"gz{workers}", **corpus(world, source=str(broken)))
    line = fails(cli, *options(tmp_path, config, workers))
    assert "has no documents (archive-cut-short 1)" in line
    assert str(broken) in line
    assert not (tmp_path / "memory").exists()


def test_a_corrupt_bzip2_archive(world: Any, tmp_path: Path, cli: Any) -> None:
    data = bytearray(bz2.compress((world.folder / "wiki.jsonl").read_bytes()))
    data[len(data) // 2] ^= 0xFF
    broken = tmp_path / "wiki.jsonl.bz2"
    broken.write_bytes(bytes(data))
    config = world.write("bz2", **corpus(world, source=str(broken)))
    line = fails(cli, *options(tmp_path, config))
    assert "has no documents (archive-damaged 1)" in line
    assert str(broken) in line


def test_an_encoder_that_is_none(world: Any, tmp_path: Path, cli: Any) -> None:
    wrong = tmp_path / "encoder"
    wrong.mkdir()
    config = world.write("encoder", encoder={"id": str(wrong)})
    line = fails(cli, *options(tmp_path, config))
    assert f"this folder holds no model or encoder in {wrong}" in line


def test_an_encoder_that_does_not_load(world: Any, tmp_path: Path, cli: Any) -> None:
    wrong = tmp_path / "encoder"
    wrong.mkdir()
    (wrong / "modules.json").write_text("[]")
    (wrong / "config.json").write_text("{}")
    config = world.write("unloadable", encoder={"id": str(wrong)})
    line = fails(cli, *options(tmp_path, config))
    assert f"cannot load the encoder {wrong}" in line


def test_a_model_that_is_none(world: Any, tmp_path: Path, cli: Any) -> None:
    line = fails(cli, *options(tmp_path, world.write("model")), "--model", tmp_path / "nothing")
    assert str(tmp_path / "nothing") in line


def test_a_scheduler_that_nobody_runs(world: Any, tmp_path: Path, cli: Any) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    line = fails(
        cli, *options(tmp_path, world.write("scheduler")), "--scheduler", address, timeout=120
    )
    assert "cannot reach the Dask scheduler" in line
    assert address in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 300 KiB, where the machine allows it."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(mount)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command here")
    if done.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def test_a_full_disk_under_the_work_folder(
    world: Any, small_disk: Path, tmp_path: Path, cli: Any
) -> None:
    arguments = ("--out", tmp_path / "memory", "--work", small_disk / "work")
    config = world.write("full")
    line = fails(cli, "build", "--config", config, *arguments, "--workers", 0, "--no-calibrate")
    assert "space" in line.lower()
    assert not (tmp_path / "memory").exists()


def test_a_full_disk_under_the_memory_and_room_later(
    world: Any, small_disk: Path, tmp_path: Path, cli: Any
) -> None:
    config = world.write("full")
    out = small_disk / "memory"
    arguments = ("build", "--config", config, "--work", tmp_path / "work", "--no-calibrate")
    resize(small_disk, "60k")
    line = fails(cli, *arguments, "--out", out, "--workers", 0)
    assert "space" in line.lower()
    assert not out.exists()
    resize(small_disk, "64m")
    done = cli(*arguments, "--out", out, "--workers", 0)
    assert done.returncode == 0, done.stderr
    assert (out / "manifest.json").exists()


def test_a_file_size_limit(world: Any, tmp_path: Path, cli: Any) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    line = fails(cli, *options(tmp_path, world.write("limit")), preexec_fn=limit)
    assert "too large" in line.lower()
    assert not (tmp_path / "memory").exists()


def test_a_script_without_a_main_guard_is_told_so(world: Any, tmp_path: Path) -> None:
    script = Path(__file__).with_name("script_without_guard.py")
    done = subprocess.run(
        [sys.executable, script, world.write("guard"), tmp_path / "memory"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the local workers did not start" in done.stderr
    assert "__main__" in done.stderr
    assert not (tmp_path / "memory").exists()
