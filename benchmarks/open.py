"""Open a memory of 10M entries: seconds, and RAM that it adds, against the limits of the design.

    python -m benchmarks.open [--full]

Warm: its files are in the page cache. Opening checks the manifest, all lengths and the checksums of
the index, and builds the index in RAM. The rival is what one would do with numpy alone: load the
sorted hashes, 8 bytes a key, and check nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import _memory_use, _synthetic
from benchmarks._harness import Result, report
from phrasemem.memfmt.keys import tokens_hash
from phrasemem.memfmt.reader import MemoryReader

_RUNS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="20M entries instead of 10M")
    entries = 20_000_000 if parser.parse_args().full else 10_000_000
    path, hashes = _files(entries)
    # Compiles what is not compiled yet; a small one, since what it frees would be taken again.
    _synthetic.memory(1000, _synthetic.make_keys(1000)).close()
    (seconds, index_bytes), held, peak = _memory_use.growth(lambda: _open(path))
    ours = [seconds, *(_open(path)[0] for _ in range(_RUNS))]
    theirs = [_load(hashes) for _ in range(_RUNS)]
    opened = Result(
        name="open/time",
        value=statistics.median(ours),
        unit="s",
        rival="numpy.load of sorted hashes",
        rival_value=statistics.median(theirs),
        state="warm",
        note=f"{entries:,} entries",
    )
    limits = [
        ("open/time limit", statistics.median(ours), "s", 0.5),
        ("open/RAM held", held, "MB", 100),
        ("open/RAM at most", peak, "MB", 100),
        ("open/index bytes a key", index_bytes / entries, "bytes", 6),
    ]
    report(
        [
            opened,
            *(
                replace(
                    opened, name=n, value=v, unit=u, rival="a limit", rival_value=limit, target=1
                )
                for n, v, u, limit in limits
            ),
        ],
        "open",
    )


_kept: list[MemoryReader] = []


def _open(path: Path) -> tuple[float, int]:
    """Open a memory that stays open until the next one is."""
    _kept.clear()
    begin = time.perf_counter()
    _kept.append(MemoryReader.open(path))
    return time.perf_counter() - begin, _kept[0].index_bytes


def _load(path: Path) -> float:
    begin = time.perf_counter()
    np.load(path)
    return time.perf_counter() - begin


def _files(entries: int) -> tuple[Path, Path]:
    path = _synthetic.FOLDER / f"memory-{entries}"
    hashes = _synthetic.FOLDER / f"hashes-{entries}.npy"
    if not (path.exists() and hashes.exists()):
        keys = _synthetic.make_keys(entries)
        _synthetic.memory(entries, keys).close()
        np.save(hashes, np.sort(tokens_hash(keys.tokens, keys.lengths, 0)))
    return path, hashes


if __name__ == "__main__":
    main()
