"""Memories that are opened by URL come from the cache the second time."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from phrasemem.memfmt.errors import MissingExtraError
from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.remote.errors import TransferError
from phrasemem.memfmt.remote.opening import open_store
from phrasemem.memfmt.remote.push import push
from phrasemem.remote_cache import open_memory_path

from .conftest import Web, bytes_of


def test_a_version_is_fetched_once_and_opened_without_its_server(memory, web: Web, tmp_path):
    push(memory, str(web.root))
    folder = open_memory_path(f"{web.url}/@v1")
    assert folder.is_relative_to(tmp_path / "cache" / "memories")
    assert bytes_of(folder) == bytes_of(memory)
    web.requests, web.meddle = [], lambda handler, data: handler.reply(500, b"", {}) or True
    assert open_memory_path(f"{web.url}/@v1") == folder
    assert web.requests == []
    with MemoryReader.open(folder, check="full") as reader:
        assert len(reader) == reader.manifest.entries > 0


def test_a_model_reads_a_memory_by_its_url(memory, web: Web, tmp_path):
    from phrasemem import PhraseMemory

    push(memory, str(web.root))
    with PhraseMemory.open(f"{web.url}/@v1", check="full") as opened:
        assert opened.path.is_relative_to(tmp_path / "cache")
        assert len(opened) > 0
    with PhraseMemory.open(str(memory)) as opened:
        assert opened.path == memory


def test_an_alias_is_looked_up_and_only_what_changed_travels(memory, changed_memory, web, hasty):
    push(memory, str(web.root))
    first = open_memory_path(web.url)
    assert open_memory_path(web.url) == first
    push(changed_memory, str(web.root))
    web.sent = 0
    second = open_memory_path(web.url)
    assert bytes_of(second) == bytes_of(changed_memory)
    assert bytes_of(first) == bytes_of(memory)
    assert web.sent < 200_000
    web.meddle = lambda handler, data: handler.reply(500, b"", {}) or True
    with pytest.raises(TransferError, match="500"):
        open_memory_path(web.url, patience=hasty)


def test_what_was_removed_from_the_cache_is_fetched_again(memory, web, tmp_path):
    push(memory, str(web.root))
    folder = open_memory_path(f"{web.url}/@v1")
    (folder / "manifest.json").unlink()
    (folder / "records.zdict").unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert open_memory_path(f"{web.url}/@v1") == folder
    assert bytes_of(folder) == bytes_of(memory)


def test_one_fetches_and_the_others_wait(memory, web):
    version = push(memory, str(web.root)).version
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(open_memory_path, [web.url] * 4))
    assert len(folders) == 1
    asked = [path for path, _ in web.requests if "/blobs/" in path]
    assert len(asked) == len(set(asked)) == len({e.sha256 for e in version.files.values()})


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("build/registry", "fsspec", "remote"),
        ("https://host/registry", "aiohttp", "remote"),
        ("s3://bucket/registry", "s3fs", "s3"),
        ("hf://datasets/me/memory", "huggingface_hub", "hub"),
    ],
)
def test_a_missing_extra_is_one_line_with_the_install_command(url, package, extra, tmp_path):
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from phrasemem.cli import main\n"
        f"main(['pull', {url!r}, 'copy'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    expected = f'phrasemem: {url} needs {package} (pip install "phrasemem[{extra}]")\n'
    assert done.stderr == expected


def test_the_errors_of_opening_are_told_apart(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match="needs s3fs"), open_store("s3://bucket"):
        pass
