"""Exact lookup of many keys against a py-lmdb ``get`` loop on the same keys.

    python -m benchmarks.lookup [--full]

Batches of 5, 32, 320 and 40,000 keys, of which one in twenty is in the memory. Both sides get
their keys in their own form, made beforehand: a token matrix, and a list of big-endian bytes.
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

_TARGETS = {5: 5.0, 32: 12.0, 320: 30.0, 40_000: 45.0}
_HITS = 0.05
_LOOKUPS = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10M keys instead of 1M")
    entries = 10_000_000 if parser.parse_args().full else 1_000_000
    keys = _synthetic.make_keys(entries)
    with _synthetic.memory(entries, keys) as reader:
        rival = _synthetic.lmdb_rival(entries, keys, reader.look_up(keys.tokens, keys.lengths))
        results = [_measure(reader, rival, keys, size) for size in _TARGETS]
        rival.close()
    report(results, "lookup")


def _measure(
    reader: MemoryReader, rival: lmdb.Environment, keys: _synthetic.Keys, size: int
) -> Result:
    count = max(5, _LOOKUPS // size)
    queries = [_query(keys, size, seed) for seed in range(count)]
    packed = [_synthetic.keys_as_bytes(tokens, lengths) for tokens, lengths in queries]
    with rival.begin() as transaction:
        for (tokens, lengths), batch in zip(queries, packed, strict=True):
            found = [transaction.get(key) for key in batch]
            theirs = [-1 if value is None else int.from_bytes(value, "big") for value in found]
            if reader.look_up(tokens, lengths).tolist() != theirs:
                raise AssertionError("the two sides found different rows")
        our_turn, their_turn = cycle(queries), cycle(packed)
        get = transaction.get
        ours, theirs_s = paired_seconds(
            lambda: reader.look_up(*next(our_turn)),
            lambda: [get(key) for key in next(their_turn)],
            repeats=count,
        )
    return Result(
        name=f"lookup/{size}",
        value=1e6 * ours,
        unit="us/batch",
        rival="py-lmdb get loop",
        rival_value=1e6 * theirs_s,
        state="warm",
        target=_TARGETS[size],
        note=f"{len(reader):,} keys",
    )


def _query(
    keys: _synthetic.Keys, size: int, seed: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Keys of which 5% are in the memory; the others have one token changed."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(keys.lengths), size)
    tokens, lengths = keys.tokens[chosen].copy(), keys.lengths[chosen]
    absent = rng.random(size) >= _HITS
    tokens[absent, 0] = rng.integers(0, _synthetic.VOCAB_SIZE, int(absent.sum()))
    return tokens, lengths


if __name__ == "__main__":
    main()
