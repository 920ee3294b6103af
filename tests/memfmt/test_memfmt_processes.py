"""One memory, several threads, processes and forks; a folder that cannot be written."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

from phrasemem.memfmt import gathering, kernels, lines, probe
from phrasemem.memfmt.intrinsics import kernel
from phrasemem.memfmt.reader import MemoryReader


def everything(reader: MemoryReader, keys: list) -> tuple:
    rows = reader.get_many(keys)
    text = np.array([[token for key in keys[:200] for token in key]])
    return (
        rows.tolist(),
        reader.payload("semantic").gather(rows).tobytes(),
        reader.longest_match(text).rows.tolist(),
        [reader.record(key) for key in keys[::50]],
        len(list(reader.prefix((3,)))),
    )


def test_threads_share_a_reader(reader, many_keys):
    expected = everything(reader, many_keys)
    gate = threading.Barrier(4)

    def work(_: int) -> tuple:
        gate.wait()
        return everything(reader, many_keys)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [expected] * 4


def test_two_readers_share_a_memory_and_one_may_close(memory_path, many_keys):
    first, second = MemoryReader.open(memory_path), MemoryReader.open(memory_path)
    expected = everything(first, many_keys)
    walk = second.prefix(())
    next(walk)
    first.close()
    assert everything(second, many_keys) == expected
    assert len(list(walk)) == len(many_keys) - 1
    second.close()


def run_in_child(work) -> int:
    child = os.fork()
    if child == 0:
        # No pytest in the child: only its exit status comes back.
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_reader_works_on_after_a_fork(reader, many_keys):
    expected = everything(reader, many_keys)
    assert run_in_child(lambda: everything(reader, many_keys) == expected) == 0
    assert everything(reader, many_keys) == expected


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_walk_disturbs_neither_side(memory_path, many_keys):
    with MemoryReader.open(memory_path) as reader:
        walk = reader.prefix(())
        seen = [next(walk)[0]]

        def child() -> bool:
            return len(list(reader.prefix(()))) == len(many_keys)

        assert run_in_child(child) == 0
        assert seen + [key for key, _, _ in walk] == many_keys


_OPEN = """
import sys
from phrasemem.memfmt.reader import MemoryReader
with MemoryReader.open(sys.argv[1]) as reader:
    print(len(reader), reader.get_many([(2,)]).tolist(), reader.record((2,)).text)
"""


def open_in_process(path: Path) -> str:
    run = subprocess.run(
        [sys.executable, "-c", _OPEN, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    status = {path: path.stat() for path in [folder, *folder.rglob("*")]}
    return {str(path): (s.st_size, s.st_mtime_ns) for path, s in status.items()}


def test_reading_writes_nothing_and_needs_no_right_to_write(memory_path, reader):
    before = snapshot(memory_path)
    expected = f"700 {reader.get_many([(2,)]).tolist()} 2\n"
    folders = [memory_path, *(path for path in memory_path.iterdir() if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert open_in_process(memory_path) == expected
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert snapshot(memory_path) == before


def test_without_a_folder_for_machine_code_the_kernels_still_run():
    # numba refuses to cache where it finds no folder to write to, as in a read-only container;
    # for code that came from no file it never finds one.
    namespace: dict = {}
    exec("def twice(x):\n    return 2 * x", namespace)
    with pytest.raises(RuntimeError, match="cannot cache function"):
        numba.njit(cache=True)(namespace["twice"])
    assert kernel(namespace["twice"])(21) == 42


@pytest.mark.parametrize("module", [probe, kernels, gathering, lines])
def test_machine_code_is_made_anew_when_what_it_inlines_changes(module):
    for name, digest in module.INLINED.items():
        source = Path(kernels.__file__).with_name(name).read_bytes()
        assert hashlib.sha256(source).hexdigest().startswith(digest), name


def test_the_format_needs_neither_torch_nor_dask():
    check = (
        "import sys, phrasemem.memfmt.reader, phrasemem.memfmt.writer, phrasemem.memfmt.verify;"
        "print({'torch', 'dask', 'transformers', 'duckdb'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
