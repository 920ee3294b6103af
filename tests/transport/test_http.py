"""Fetching from a real web server on loopback that cuts, alters, shortens and fails."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from phrasemem.memfmt.remote.errors import RegistryError, TransferError
from phrasemem.memfmt.remote.pull import pull
from phrasemem.memfmt.remote.push import push
from phrasemem.memfmt.remote.retry import Patience

from .conftest import Web, bytes_of


@pytest.fixture
def served(memory: Path, web: Web) -> Web:
    """The memory, published and served."""
    push(memory, str(web.root))
    return web


def big_blob(web: Web, memory: Path) -> str:
    """URL path of the longest blob."""
    blobs = {p.stat().st_size: p for p in (web.root / "blobs").rglob("*") if p.is_file()}
    return f"/{blobs[max(blobs)].relative_to(web.root).as_posix()}"


def start_of(wanted: str | None) -> int:
    """First byte that a request asked for."""
    return int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0


def wait_for(path: Path, size: int) -> None:
    """Wait until so much was written, so that a cut does not take what the client still holds."""
    deadline = time.monotonic() + 20
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline, f"{path} does not reach {size} bytes"
        time.sleep(0.002)


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in ("registry", "cache"))


def test_a_memory_comes_over_http(memory, served, tmp_path, hasty):
    done = pull(f"{served.url}/@v1", tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    assert left_behind(tmp_path) == ["copy"]
    assert done.fetched == done.version.bytes - done.version.files["manifest.json"].bytes
    assert len(served.requests) == 1 + len({e.sha256 for e in done.version.files.values()})


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_transfer_is_continued(memory, served, tmp_path, hasty, ranges):
    served.ranges = ranges
    name, cuts = big_blob(served, memory), iter([3_000_000, 1_500_000, 900_000, 10])
    target = tmp_path / ".copy.writing" / "heldout.jsonl.zst"

    def cut(handler, data):
        start = start_of(handler.headers.get("Range")) if ranges else 0
        short = next(cuts, None) if handler.path == name else None
        if short is None:
            return False
        body = data[start:]
        span = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        handler.reply(206 if start else 200, body, span, cut=min(short, len(body)))
        wait_for(target, len(data) - short >> 20 << 20)
        return True

    served.meddle = cut
    pull(served.url, tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    asked = [start_of(wanted) for path, wanted in served.requests if path == name]
    # What had arrived in whole blocks is kept: none, one, two, and two again.
    assert asked == [0, 0, 1 << 20, 2 << 20, 2 << 20]


def test_the_server_may_fail_for_a_while(memory, served, tmp_path, hasty):
    seen: dict[str, int] = {}

    def fail(handler, data):
        seen[handler.path] = seen.get(handler.path, 0) + 1
        if seen[handler.path] <= 2:
            handler.reply((500, 503)[seen[handler.path] - 1], b"sorry", {})
            return True
        return False

    served.meddle = fail
    pull(served.url, tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    assert set(seen.values()) == {3}


def test_a_server_that_goes_on_failing_is_named(served, tmp_path, hasty):
    served.meddle = lambda handler, data: (
        "/blobs/" in handler.path and (handler.reply(500, b"sorry", {}) or True)
    )
    with pytest.raises(TransferError, match=r"500.* \(6 times\) in http://127.0.0.1.*/blobs/"):
        pull(served.url, tmp_path / "copy", patience=hasty)
    assert left_behind(tmp_path) in ([], [".copy.writing"])


@pytest.mark.parametrize("status", [401, 403, 410])
def test_a_refusal_is_not_asked_again(served, tmp_path, hasty, status):
    served.meddle = lambda handler, data: handler.reply(status, b"", {}) or True
    with pytest.raises(TransferError, match=str(status)):
        pull(f"{served.url}/@v1", tmp_path / "copy", patience=hasty)
    assert len(served.requests) == 1


def test_altered_bytes_are_fetched_again(memory, served, tmp_path, hasty):
    name, lock, left = big_blob(served, memory), threading.Lock(), [2]

    def alter(handler, data):
        with lock:
            if handler.path != name or not left[0]:
                return False
            left[0] -= 1
        changed = bytearray(data)
        changed[2_500_000] ^= 1
        handler.serve(bytes(changed))
        return True

    served.meddle = alter
    pull(served.url, tmp_path / "copy", patience=hasty)
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)
    asked = [wanted for path, wanted in served.requests if path == name]
    assert asked == [None, "bytes=2097152-", "bytes=2097152-"]


def test_bytes_that_stay_altered_are_an_error(memory, served, tmp_path, hasty):
    path = served.root / big_blob(served, memory).lstrip("/")
    data = bytearray(path.read_bytes())
    data[1_100_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(TransferError, match=r"block 1 arrived altered in .*push --check-blobs"):
        pull(served.url, tmp_path / "copy", patience=hasty)
    assert not (tmp_path / "copy").exists()


def test_an_altered_adapter_is_an_error(memory, served, tmp_path, hasty):
    version = push(memory, str(served.root)).version
    (name,) = (n for n in version.files if n.endswith("safetensors"))
    sha256 = version.files[name].sha256
    path = served.root / "blobs" / sha256[:2] / sha256
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(
        TransferError, match=rf"a blob was altered in .*{sha256}: expected {sha256}"
    ):
        pull(served.url, tmp_path / "copy", patience=hasty)
    assert not (tmp_path / "copy").exists()


def test_a_truncated_blob_is_an_error_at_once(memory, served, tmp_path, hasty):
    name = big_blob(served, memory)
    path = served.root / name.lstrip("/")
    path.write_bytes(path.read_bytes()[:2_000_000])
    with pytest.raises(TransferError, match=r"wrong length.*expected 3145728, found 2000000"):
        pull(served.url, tmp_path / "copy", patience=hasty)
    assert sum(path == name for path, _ in served.requests) == 2  # the second asks for the length


def test_a_missing_blob_is_named(memory, served, tmp_path, hasty):
    name = big_blob(served, memory)
    (served.root / name.lstrip("/")).unlink()
    with pytest.raises(TransferError, match=f"a blob is missing in http.*{name}"):
        pull(served.url, tmp_path / "copy", patience=hasty)


def test_a_missing_version_is_named(served, tmp_path, hasty):
    with pytest.raises(RegistryError, match=r"no version or alias is named 'v9' in http://127"):
        pull(f"{served.url}/@v9", tmp_path / "copy", patience=hasty)
    (served.root / "versions" / "v1.json").unlink()
    with pytest.raises(RegistryError, match="'latest' stands for a version that is missing"):
        pull(served.url, tmp_path / "copy", patience=hasty)
    assert left_behind(tmp_path) == []


def test_a_server_that_is_not_there(tmp_path, hasty):
    with pytest.raises(TransferError, match=r"\(6 times\) in http://127.0.0.1:9/"):
        pull("http://127.0.0.1:9/registry", tmp_path / "copy", patience=hasty)


@pytest.mark.parametrize("name", ["versions/v1.json", "aliases/latest.json"])
def test_endless_small_files_are_refused(served, tmp_path, hasty, name, monkeypatch):
    for module in ("version", "lookup"):
        for limit in ("MAX_VERSION_BYTES", "MAX_ALIAS_BYTES"):
            monkeypatch.setattr(f"phrasemem.memfmt.remote.{module}.{limit}", 4096)
    served.meddle = lambda handler, data: (
        handler.path == f"/{name}" and (handler.reply(200, bytes(50_000_000), {}) or True)
    )
    with pytest.raises(RegistryError, match=f"a file is too long.*{name}: expected <= 4096"):
        pull(served.url, tmp_path / "copy", patience=hasty)


def test_a_pull_that_failed_goes_on_where_it_stopped(memory, served, tmp_path):
    name = big_blob(served, memory)

    def cut(handler, data):
        if handler.path != name:
            return False
        handler.reply(200, data, {}, cut=1_000_000)
        wait_for(tmp_path / ".copy.writing" / "heldout.jsonl.zst", 2 << 20)
        return True

    served.meddle = cut
    with pytest.raises(TransferError):
        pull(served.url, tmp_path / "copy", patience=Patience(attempts=1))
    assert left_behind(tmp_path) == [".copy.writing"]
    served.meddle, served.requests = None, []
    done = pull(served.url, tmp_path / "copy", patience=Patience(attempts=1))
    assert [wanted for path, wanted in served.requests if path == name] == ["bytes=2097152-"]
    assert done.reused >= 2 << 20
    assert bytes_of(tmp_path / "copy") == bytes_of(memory)


def test_one_failure_ends_the_others(memory, served, tmp_path):
    """A transfer that waits for its next try does not hold up the error of another."""
    name, waiting = big_blob(served, memory), threading.Event()

    def meddle(handler, data):
        if handler.path == name:
            handler.reply(500, b"", {})
            waiting.set()
            return True
        if "/blobs/" in handler.path and "manifest" not in handler.path and waiting.wait(10):
            handler.reply(403, b"", {})
            return True
        return False

    manifest = push(memory, str(served.root)).version.manifest
    served.meddle = lambda handler, data: manifest not in handler.path and meddle(handler, data)
    with pytest.raises(TransferError, match="403"):
        pull(served.url, tmp_path / "copy", patience=Patience(first_wait=500, longest_wait=500))
