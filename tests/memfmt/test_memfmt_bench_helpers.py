"""What benchmarks rest on: memories that several processes wrote, and files that are cold."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from phrasemem.memfmt.reader import MemoryReader
from phrasemem.memfmt.records import Record
from phrasemem.memfmt.verify import verify

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: import_module(f"benchmarks.{name}")


def test_a_memory_of_two_processes_is_sound_and_holds_what_was_given(tmp_path, benchmarks):
    synthetic = benchmarks("_synthetic")
    lengths, tokens = synthetic.numbered_keys(np.arange(3000))
    vectors = synthetic.vector_table(8)
    records = [Record(f"phrase {i}", i / 2, {"web": i % 7 + 1}, i) for i in range(3000)]
    synthetic.write_memory(
        tmp_path / "m", lengths, tokens, vectors=vectors, records=records, corpora=["web"]
    )
    assert verify(tmp_path / "m").manifest.entries == 3000
    with MemoryReader.open(tmp_path / "m") as reader:
        rows = reader.look_up(tokens, lengths)
        assert sorted(rows.tolist()) == list(range(3000))
        np.testing.assert_array_equal(reader.payload("semantic").gather(rows), vectors[:3000])
        assert reader.record(tokens[5, : lengths[5]].tolist()) == records[5]


def test_warm_files_are_never_taken_for_cold_ones(tmp_path, benchmarks):
    cold = benchmarks("_cold")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    path.read_bytes()
    assert cold.resident(path) == 1
    told = None
    try:
        cold.drop([path])
    except RuntimeError as error:  # as on a file system in RAM
        told = str(error)
    left = cold.resident(path)
    assert told is None if left == 0 else f"{left:.1%} of {path} stayed in the page cache" == told
