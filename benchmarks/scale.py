"""How build time, open time, RAM and lookup grow with the number of entries.

    python -m benchmarks.scale [--full]

1M and 10M entries, with ``--full`` also 100M (11 GB of disk and 7 GB of RAM while it builds), of
random tokens and vectors of 16 numbers. Two processes build; lookups are of 320 keys at a time, of
which one in twenty is there. The rival of the lookups is py-lmdb, which is left out beyond 10M.
Writes build/bench/scale.md and scale.svg beside the usual lines.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import _memory_use, _synthetic
from benchmarks._harness import OUT, Result, machine, median_seconds, report
from benchmarks._paired import paired_seconds
from phrasemem.memfmt.reader import MemoryReader

_BATCH, _BATCHES, _HITS = 320, 500, 0.05
_RIVAL_UP_TO = 10_000_000


@dataclass(frozen=True)
class _Row:
    entries: int
    build_s: float
    disk_bytes_a_key: float
    open_s: float
    ram_mb: float
    lookup_us: float
    lmdb_us: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="100M entries too")
    sizes = [1_000_000, 10_000_000] + [100_000_000] * parser.parse_args().full
    rows = [_measure(entries) for entries in sizes]
    report([result for row in rows for result in _results(row)], "scale")
    (OUT / "scale.md").write_text(_table(rows))
    _plot(rows, OUT / "scale.svg")


def _measure(entries: int) -> _Row:
    path = _synthetic.FOLDER / f"scale-{entries}"
    shutil.rmtree(path, ignore_errors=True)
    lengths, tokens = _synthetic.numbered_keys(np.arange(entries))
    build_s = _synthetic.write_memory(
        path,
        lengths,
        tokens,
        vectors=_synthetic.vector_table(_synthetic.DIM),
        shard_bits=max(3, (entries // 1_500_000).bit_length()),
    )
    if entries <= _RIVAL_UP_TO:
        keys = _synthetic.Keys(lengths, tokens, tokens[0])
        with MemoryReader.open(path) as reader:
            found = reader.look_up(tokens, lengths)
        _synthetic.lmdb_rival(entries, keys, found, "scale-rival").close()
    del lengths, tokens
    disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    # A process of its own: what this one has freed would be taken again, unseen.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        read = pool.submit(_read, path, entries).result()
    shutil.rmtree(path)
    return _Row(entries, build_s, disk / entries, *read)


def _read(path: Path, entries: int) -> tuple[float, float, float, float | None]:
    _synthetic.memory(1000, _synthetic.make_keys(1000)).close()  # loads the compiled code
    reader, ram_mb, _ = _memory_use.growth(lambda: MemoryReader.open(path))
    open_s = median_seconds(lambda: MemoryReader.open(path).close(), repeats=5)
    queries = [_query(entries, seed) for seed in range(_BATCHES)]
    turn = cycle(queries)

    def ours() -> NDArray[np.int64]:
        return reader.look_up(*next(turn))

    if entries > _RIVAL_UP_TO:
        # Every batch once beforehand: the first touch of a page is not what is measured.
        lookup = median_seconds(ours, repeats=5 * _BATCHES, warm_up=_BATCHES)
        return open_s, ram_mb, 1e6 * lookup, None
    packed = [_synthetic.keys_as_bytes(tokens, lengths) for tokens, lengths in queries]
    rival = _synthetic.open_rival(_synthetic.FOLDER / f"scale-rival-{entries}.mdb")
    with rival.begin() as transaction:
        get, their_turn = transaction.get, cycle(packed)
        for query, batch in zip(queries, packed, strict=True):
            values = [get(key) for key in batch]
            theirs = [-1 if value is None else int.from_bytes(value, "big") for value in values]
            if reader.look_up(*query).tolist() != theirs:
                raise AssertionError("the two sides found different rows")
        lookup, lmdb_s = paired_seconds(
            ours, lambda: [get(key) for key in next(their_turn)], repeats=_BATCHES
        )
    return open_s, ram_mb, 1e6 * lookup, 1e6 * lmdb_s


def _query(entries: int, seed: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    lengths, tokens = _synthetic.numbered_keys(rng.integers(0, entries, _BATCH))
    absent = rng.random(_BATCH) >= _HITS
    tokens[absent, 0] = rng.integers(0, _synthetic.VOCAB_SIZE, int(absent.sum()))
    return tokens, lengths


def _results(row: _Row) -> list[Result]:
    note = f"{row.entries:,} entries"
    none = {"rival": "none", "rival_value": None, "state": "warm", "note": note}
    return [
        Result("scale/build", row.build_s, "s", **none),
        Result("scale/open", row.open_s, "s", **none),
        Result("scale/RAM", row.ram_mb, "MB", **none),
        Result(
            name=f"scale/lookup of {_BATCH}",
            value=row.lookup_us,
            unit="us/batch",
            rival="py-lmdb get loop",
            rival_value=row.lmdb_us,
            state="warm",
            note=note,
        ),
    ]


def _table(rows: list[_Row]) -> str:
    names = list(asdict(rows[0]))
    lines = [machine(), "", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = ["-" if value is None else f"{value:,.4g}" for value in asdict(row).values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _plot(rows: list[_Row], path: Path) -> None:
    """Draw each figure over the number of entries, both axes logarithmic."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = {
        "build, s": {"2 processes": "build_s"},
        "open, s": {"warm": "open_s"},
        "RAM of an open memory, MB": {"index": "ram_mb"},
        "lookup of 320 keys, us": {"phrasemem": "lookup_us", "py-lmdb get": "lmdb_us"},
    }
    figure = Figure(figsize=(9, 6), layout="constrained")
    figure.suptitle(machine(), fontsize=9)
    for axes, (title, lines) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
        for label, name in lines.items():
            known = [row for row in rows if getattr(row, name) is not None]
            values = [getattr(row, name) for row in known]
            axes.loglog([row.entries for row in known], values, "o-", label=label)
        axes.set(title=title, xlabel="entries")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
    # Without the date and random names, equal figures give equal bytes.
    with mpl.rc_context({"svg.hashsalt": "phrasemem"}):
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
