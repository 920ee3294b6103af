"""A cold decoding step: 64 sequences, 34 of which end in a phrase, from tokens to vectors.

    python -m benchmarks.cold_step [--full]

The rival looks up every suffix in LMDB, longest first, and reads the vector from the value. Before
each step, the files that the side reads are dropped from this machine's page cache, and `mincore`
tells that they are gone; what lies below (a hypervisor, the device) may still cache them. Our index
is in RAM, as it always is; LMDB keeps the pages that it read when it was opened.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import _cold, _synthetic
from benchmarks._harness import Result, report
from phrasemem.memfmt.reader import MemoryReader

_DIM = 576
_SEQUENCES, _HITS = 64, 34
_STEPS = 15
_START = _synthetic.N_MAX - 1

Tokens = NDArray[np.int64]
Vectors = dict[int, NDArray[np.float32]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="4M keys instead of 500,000")
    entries = 4_000_000 if parser.parse_args().full else 500_000
    keys = _synthetic.make_keys(entries)
    with _synthetic.memory(entries, keys, _DIM) as reader:
        folder = reader.path
        steps = _steps(reader, keys)
        _ours(reader, steps[0])  # compiles what is not compiled yet
    rival = _synthetic.lmdb_vectors_rival(entries, keys, _DIM)
    ours, theirs = [], []
    for step in steps:
        seconds, found = _timed_ours(folder, step)
        rival_seconds, rival_found = _timed_theirs(rival, step)
        _check(found, rival_found)
        ours.append(1e3 * seconds)
        theirs.append(1e3 * rival_seconds)
    report(_results(ours, theirs, f"{entries:,} keys, {_HITS} hits"), "cold_step")


def _results(ours: list[float], theirs: list[float], note: str) -> list[Result]:
    value = statistics.median(ours)
    step = Result(
        name="cold step/64 sequences",
        value=value,
        unit="ms",
        rival="LMDB keys and values",
        rival_value=statistics.median(theirs),
        state="cold",
        target=30,
        note=note,
    )
    limit = replace(step, name="cold step/limit", rival="a limit", rival_value=1.5, target=1)
    return [step, limit]


def _steps(reader: MemoryReader, keys: _synthetic.Keys) -> list[Tokens]:
    """Sequences whose last tokens are a key in 34 of 64, no two steps with the same rows."""
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(keys.lengths))[: 4 * _STEPS * _SEQUENCES]
    lines = rng.integers(0, _synthetic.VOCAB_SIZE, (len(chosen), _synthetic.N_MAX))
    for line, i in zip(lines[::2], chosen[::2], strict=True):
        length = int(keys.lengths[i])
        line[-length:] = keys.tokens[i, :length]
    hit = reader.longest_match(lines, _START).rows[:, 0] >= 0
    hits, misses = lines[hit], lines[~hit]
    return [
        np.concatenate(
            [
                hits[_HITS * n : _HITS * (n + 1)],
                misses[(_SEQUENCES - _HITS) * n : (_SEQUENCES - _HITS) * (n + 1)],
            ]
        )
        for n in range(_STEPS)
    ]


def _timed_ours(folder: Path, step: Tokens) -> tuple[float, Vectors]:
    with MemoryReader.open(folder) as reader:
        _cold.drop(folder.glob("shard-*/*"))
        begin = time.perf_counter()
        found = _ours(reader, step)
        return time.perf_counter() - begin, found


def _ours(reader: MemoryReader, step: Tokens) -> Vectors:
    rows = reader.longest_match(step, _START).rows[:, 0]
    places = np.flatnonzero(rows >= 0)
    vectors = reader.payload("semantic").gather(rows[places])
    return dict(zip(places.tolist(), vectors, strict=True))


def _timed_theirs(path: Path, step: Tokens) -> tuple[float, Vectors]:
    with _synthetic.open_rival(path) as environment, environment.begin(buffers=True) as transaction:
        _cold.drop([path])
        begin = time.perf_counter()
        found = {}
        for place, line in enumerate(step.astype(">u4")):
            packed = line.tobytes()
            for cut in range(0, 4 * _synthetic.N_MAX, 4):
                value = transaction.get(packed[cut:])
                if value is not None:
                    found[place] = np.frombuffer(value, dtype=np.float16).astype(np.float32)
                    break
        return time.perf_counter() - begin, found


def _check(ours: Vectors, theirs: Vectors) -> None:
    same = ours.keys() == theirs.keys() and len(ours) == _HITS
    if not same or not all(np.array_equal(ours[place], theirs[place]) for place in ours):
        raise AssertionError("the two sides found different vectors")


if __name__ == "__main__":
    main()
