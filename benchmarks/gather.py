"""Gather rows of 576 numbers of half precision against numpy's ``take`` on one memory map.

    python -m benchmarks.gather [--full]

Warm: everything is in the page cache. Ours copies whole rows, with their keys and scales, 5% more
bytes than the rival's; the second line also widens the vectors to single precision.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from benchmarks import _synthetic
from benchmarks._harness import Result, report
from benchmarks._paired import paired_seconds
from phrasemem.memfmt.payload import PayloadReader

_DIM = 576
_ROWS = 8192
_BATCHES = 20

Rows = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="2M rows instead of 200,000")
    entries = 2_000_000 if parser.parse_args().full else 200_000
    keys = _synthetic.make_keys(entries)
    with _synthetic.memory(entries, keys, _DIM) as reader:
        payload = reader.payload("semantic")
        flat = _rival(entries, reader.look_up(keys.tokens, keys.lengths))
        rng = np.random.default_rng(0)
        batches = [rng.integers(0, entries, _ROWS) for _ in range(_BATCHES)]
        report(_measure(payload, flat, batches), "gather")


def _rival(entries: int, rows: Rows) -> NDArray[np.float16]:
    """Open the vectors alone, in row order, in one file."""
    path = _synthetic.FOLDER / f"rival-{entries}x{_DIM}.npy"
    if not path.exists():
        table = _synthetic.vector_table(_DIM)
        keys = np.empty(entries, dtype=np.int64)
        keys[rows] = np.arange(entries)
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(entries, _DIM))
        for begin in range(0, entries, 1 << 16):
            out[begin : begin + (1 << 16)] = table[keys[begin : begin + (1 << 16)] % len(table)]
        out.flush()
    flat: NDArray[np.float16] = np.load(path, mmap_mode="r")
    return flat


def _measure(
    payload: PayloadReader, flat: NDArray[np.float16], batches: list[Rows]
) -> list[Result]:
    offset = payload.layout.values_offset

    def agree(rows: Rows) -> bool:
        raw = payload.gather_raw(rows)[:, offset : offset + 2 * _DIM]
        wide = payload.gather(rows)
        return np.array_equal(raw.view(np.float16), flat[rows]) and np.array_equal(wide, flat[rows])

    if not all(map(agree, batches)):
        raise AssertionError("the two sides gathered different vectors")
    return [
        _compare(
            "rows", payload.gather_raw, lambda rows: np.take(flat, rows, axis=0), batches, 0.9
        ),
        _compare(
            "as float32",
            payload.gather,
            lambda rows: np.take(flat, rows, axis=0).astype(np.float32),
            batches,
            None,
        ),
    ]


def _compare(
    name: str,
    ours: Callable[[Rows], object],
    theirs: Callable[[Rows], object],
    batches: list[Rows],
    target: float | None,
) -> Result:
    our_turn, their_turn = cycle(batches), cycle(batches)
    seconds, rival = paired_seconds(
        lambda: ours(next(our_turn)), lambda: theirs(next(their_turn)), repeats=10 * len(batches)
    )
    return Result(
        name=f"gather/{name}",
        value=1e3 * seconds,
        unit="ms",
        rival="numpy take on a memory map",
        rival_value=1e3 * rival,
        state="warm",
        target=target,
        note=f"{_ROWS:,} rows of {_DIM} float16",
    )


if __name__ == "__main__":
    main()
