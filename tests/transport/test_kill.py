"""SIGKILL in the middle of a push or pull, in processes of their own, and the same again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.push import push
from phrasemem.memfmt.remote.version import parse_version

from .conftest import Proxy, Web, bytes_of

PROGRAM = str(Path(sys.executable).with_name("phrasemem"))

# Kills itself before the n-th time that something is flushed, renamed or linked.
DIES = """
import itertools, os, pathlib, signal, sys
from phrasemem.memfmt import durable
steps = itertools.count(1)
def step():
    if next(steps) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
def dying(function):
    def call(*arguments, **options):
        step()
        return function(*arguments, **options)
    return call
os.fsync, os.link = dying(os.fsync), dying(os.link)
pathlib.Path.replace, pathlib.Path.rename = dying(pathlib.Path.replace), dying(pathlib.Path.rename)
from phrasemem.cli import main
main(sys.argv[2:])
"""


def dies_at(step: int, *arguments: object) -> int:
    command = [sys.executable, "-c", DIES, str(step), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True).returncode


@pytest.mark.parametrize("step", [1, 2, 15, 16, 19, 20, 21, 22, 27])
def test_a_killed_push_is_never_seen_half(memory, changed_memory, tmp_path, step):
    """Three steps each: five blobs, the card, the version, the alias, the registry's card."""
    registry, whole = tmp_path / "registry", tmp_path / "whole"
    push(changed_memory, str(registry), version="before")
    push(changed_memory, str(whole), version="before")
    push(memory, str(whole), workers=1)
    returned = dies_at(step, "push", memory, registry, "--workers", 1)
    assert returned == -signal.SIGKILL
    published = registry / "versions" / "v1.json"
    if published.exists():
        version = parse_version(published.read_bytes(), "", "v1")
        assert set(version.files) == set(bytes_of(memory))
        pull(f"{registry}@v1", tmp_path / "copy")
        assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    pull(f"{registry}@before", tmp_path / "other")
    assert push(memory, str(registry)).version.version == "v1"
    assert bytes_of(registry) == bytes_of(whole)


@pytest.mark.parametrize("step", [1, 9, 20, 22, 23, 24])
def test_a_killed_pull_leaves_the_old_memory_or_the_new(memory, changed_memory, tmp_path, step):
    registry = str(tmp_path / "registry")
    push(changed_memory, registry)
    pull(registry, tmp_path / "copy")
    push(memory, registry)
    returned = dies_at(step, "pull", registry, tmp_path / "copy", "--replace")
    if (tmp_path / "copy").exists():
        finished = bytes_of(tmp_path / "copy") == bytes_of(memory)
        assert finished or bytes_of(tmp_path / "copy") == bytes_of(changed_memory)
        assert finished or returned == -signal.SIGKILL
    else:
        assert (tmp_path / ".copy.replaced").is_dir()
    pull(registry, tmp_path / "copy", replace=True)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    assert not (tmp_path / ".copy.writing").exists()


def kill_when(reached: threading.Event, release: threading.Event, *arguments: object) -> None:
    """Run the command, kill it when the event comes, and let the server go on."""
    process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL)
    assert reached.wait(60)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    release.set()


def test_a_pull_over_http_goes_on_after_a_kill(memory, web: Web, tmp_path, hasty):
    version = push(memory, str(web.root)).version
    sha256 = version.files["heldout.jsonl.zst"].sha256
    reached, release = threading.Event(), threading.Event()

    def stall(handler, data):
        if sha256 not in handler.path:
            return False
        handler.stall(data, 2_200_000, reached, release)
        return True

    web.meddle = stall
    kill_when(reached, release, "pull", web.url, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    there = (tmp_path / ".copy.writing" / "heldout.jsonl.zst").stat().st_size
    web.meddle, web.requests = None, []
    pull(web.url, tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    (asked,) = (wanted for path, wanted in web.requests if sha256 in path)
    start = there >> 20 << 20
    assert asked == (f"bytes={start}-" if start else None)


def test_a_push_to_s3_goes_on_after_a_kill(memory, bucket, proxy: Proxy, tmp_path, hasty):
    reached, release = threading.Event(), threading.Event()
    proxy.stall_after(1_000_000, reached, release)
    kill_when(reached, release, "push", memory, f"{bucket}/registry")
    proxy.behave()
    again = push(memory, f"{bucket}/registry", patience=hasty)
    assert again.version.version == "v1"
    assert not again.already
    pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_a_pull_from_s3_goes_on_after_a_kill(memory, bucket, proxy: Proxy, tmp_path, hasty):
    push(memory, f"{bucket}/registry", patience=hasty)
    reached, release = threading.Event(), threading.Event()
    proxy.stall_after(1_000_000, reached, release)
    kill_when(reached, release, "pull", f"{bucket}/registry", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    proxy.behave()
    pull(f"{bucket}/registry", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
