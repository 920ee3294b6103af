"""Tokens to verified longest match against LMDB ``get`` over all suffixes, longest first.

    python -m benchmarks.longest_match [--full]

A prefill of 2,048 positions, and one decoding step of 64 sequences with their history.
"""

from __future__ import annotations

import argparse
from itertools import cycle

import lmdb
import numpy as np
from numpy.typing import NDArray

from benchmarks import _synthetic
from benchmarks._harness import Result, report
from benchmarks._paired import paired_seconds
from phrasemem.memfmt.reader import MemoryReader

_SEGMENT = 12
_RUNS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10M keys instead of 1M")
    entries = 10_000_000 if parser.parse_args().full else 1_000_000
    keys = _synthetic.make_keys(entries)
    with _synthetic.memory(entries, keys) as reader:
        rival = _synthetic.lmdb_rival(entries, keys, reader.look_up(keys.tokens, keys.lengths))
        prefills = [_text(keys, 1, 2048, seed) for seed in range(_RUNS)]
        steps = [_text(keys, 64, _synthetic.N_MAX, seed) for seed in range(_RUNS * 5)]
        results = [
            _measure(reader, rival, prefills, 0, "prefill of 2,048", 40),
            _measure(reader, rival, steps, _synthetic.N_MAX - 1, "step of 64", 30),
        ]
        rival.close()
    report(results, "longest_match")


def _text(keys: _synthetic.Keys, count: int, length: int, seed: int) -> NDArray[np.int64]:
    """Sequences half of which are pieces of the stream that the keys came from."""
    rng = np.random.default_rng(seed)
    total = count * length
    starts = rng.integers(0, len(keys.stream) - _SEGMENT, -(-total // _SEGMENT))
    pieces = np.lib.stride_tricks.sliding_window_view(keys.stream, _SEGMENT)[starts]
    noise = rng.permuted(pieces, axis=1)
    mixed = np.where(rng.random((len(pieces), 1)) < 0.5, pieces, noise)
    return mixed.reshape(-1)[:total].reshape(count, length).astype(np.int64)


def _measure(
    reader: MemoryReader,
    rival: lmdb.Environment,
    texts: list[NDArray[np.int64]],
    start: int,
    name: str,
    target: float,
) -> Result:
    hits = 0
    with rival.begin() as transaction:
        for text in texts:
            rows = reader.longest_match(text, start).rows
            hits += int((rows >= 0).sum())
            if rows.tolist() != _by_lmdb(transaction, text, start):
                raise AssertionError("the two sides found different rows")
        our_turn, their_turn = cycle(texts), cycle(texts)
        ours, theirs = paired_seconds(
            lambda: reader.longest_match(next(our_turn), start),
            lambda: _by_lmdb(transaction, next(their_turn), start),
            repeats=5 * len(texts),
        )
    return Result(
        name=f"longest match/{name}",
        value=1e6 * ours,
        unit="us",
        rival="py-lmdb get, longest first",
        rival_value=1e6 * theirs,
        state="warm",
        target=target,
        note=f"{len(reader):,} keys, {hits / len(texts):.0f} hits",
    )


def _by_lmdb(transaction: lmdb.Transaction, text: NDArray[np.int64], start: int) -> list[list[int]]:
    get, length = transaction.get, text.shape[1]
    found = []
    for line in text.astype(">u4"):
        packed = line.tobytes()
        rows = []
        for end in range(start + 1, length + 1):
            row = -1
            for begin in range(max(0, end - _synthetic.N_MAX), end):
                value = get(packed[4 * begin : 4 * end])
                if value is not None:
                    row = int.from_bytes(value, "big")
                    break
            rows.append(row)
        found.append(rows)
    return found


if __name__ == "__main__":
    main()
