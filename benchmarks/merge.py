"""Peak memory of merging and scoring many n-grams.

    python -m benchmarks.merge [--full | --partitions N]

Partitions of a million made-up tokens are counted by the stages of a build: half of the tokens
stand in phrases of a stock, both as frequent as Zipf's law says, and words begin and end at most
tokens. That makes some two million n-grams a partition: 20 partitions by default, and with
``--full`` as many as a billion takes (about 30 GB of disk). What is measured is the resident
memory of one process that then runs a stage, bucket by bucket, with a build's limits. There is
no rival: the figure beside it is what the stage must stay under.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import _corpus
from benchmarks._harness import OUT, Result, report
from phrasemem.pipeline import phrase_stages
from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.catalogue import score_part
from phrasemem.pipeline.config import CHOOSING
from phrasemem.pipeline.count import counts_part, hashes_part
from phrasemem.pipeline.merge import candidates_part, survivors_part
from phrasemem.pipeline.neighbours import entropies_part, neighbours_part, targets_part
from phrasemem.pipeline.ngrams import counted
from phrasemem.pipeline.tokens import TokenRun, _write_run
from phrasemem.pipeline.unigrams import unigrams_part

_FOLDER = OUT / "merge"
_TOKENS, _DOCUMENT, _VOCAB = 1_000_000, 500, 49_152
_STOCK, _N_MAX, _MIN_COUNT = 2_000_000, 6, 4
_MOST_PHRASES = 1_000_000
_LIMIT_GB = 4.0
_WANTED = 1_000_000_000


class _Measured(NamedTuple):
    seconds: float
    peak_gb: float
    report: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a billion n-grams")
    parser.add_argument("--partitions", type=int, default=20)
    arguments = parser.parse_args()
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    partitions = arguments.partitions
    if arguments.full:
        partitions = -(-_WANTED // len(counted(_partition(0), _N_MAX).starts))
    names = [f"{number:05d}" for number in range(partitions)]
    buckets = phrase_stages.bucket_count(len(names) * _TOKENS)
    ngrams = sum(_each(_hashes, names, buckets))
    stages = {
        "survivors": _measured(_survivors, names, buckets),
        "candidates": _measured(_candidates, names, buckets, prepare=_counts),
        "entropies": _measured(_entropies, names, buckets, prepare=_neighbours),
        "score": _measured(_score, names, buckets, prepare=_unigrams),
    }
    note = f"{ngrams:,} n-grams of {len(names)} partitions, {buckets} buckets"
    for name, stage in stages.items():
        print(f"{name}: {stage.seconds:.1f} s, {stage.report}")
    report(
        [
            Result(
                f"merge/{name}", stage.peak_gb, "GB", "the limit", _LIMIT_GB, "warm",
                target=1.0, note=note,
            )
            for name, stage in stages.items()
        ],
        "merge",
    )  # fmt: skip
    shutil.rmtree(_FOLDER)


def _each(work: Callable[[str, int], int], names: list[str], buckets: int) -> list[int]:
    """Do what is not measured, two partitions at a time."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        return list(pool.map(work, names, [buckets] * len(names)))


def _hashes(name: str, buckets: int) -> int:
    """Make a partition and count its hashes; returns the distinct n-grams."""
    _write_run(_FOLDER / f"{name}.arrow", _partition(int(name)))
    found = hashes_part(
        _FOLDER, f"h{name}", source=str(_FOLDER / f"{name}.arrow"), n_max=_N_MAX, buckets=buckets,
        corpus=0,
    )  # fmt: skip
    return int(found["hashes"])


def _partition(number: int) -> TokenRun:
    random = np.random.default_rng([number, 1])
    lengths = 2 + _zipf(random, 5, _TOKENS // 3)
    which = _zipf(random, _STOCK, len(lengths))
    # Every other phrase is none of the stock.
    which[::2] = random.integers(_STOCK, 2**40, len(which[::2]))
    places = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    seeds = np.repeat(which, lengths) * 16 + places
    tokens = _zipf_of(_hashed(seeds), _VOCAB).astype(np.uint32)[:_TOKENS]
    flags = np.full(len(tokens), MAY_START | MAY_END, np.uint8)
    inside = random.random(len(tokens) - 1) < 0.25
    flags[1:][inside] &= ~MAY_START
    flags[:-1][inside] &= ~MAY_END
    flags[random.random(len(tokens)) < 0.05] |= CUT_AFTER
    ends = np.append(np.arange(_DOCUMENT, len(tokens), _DOCUMENT), len(tokens))
    flags[ends - 1] |= CUT_AFTER
    return TokenRun(tokens, flags, ends)


def _zipf(random: np.random.Generator, size: int, count: int) -> NDArray[np.int64]:
    return _zipf_of(random.random(count), size)


def _zipf_of(uniform: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Return ranks from 0 on, as frequent as one through the rank."""
    return np.minimum((size + 1.0) ** uniform - 1, size - 1).astype(np.int64)


def _hashed(seeds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number in 0..1 that depends on the seed alone."""
    mixed = seeds.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(11)) / 2.0**53


def _measured(
    work: Callable[[list[str], int], dict[str, int]],
    names: list[str],
    buckets: int,
    prepare: Callable[[list[str], int], object] | None = None,
) -> _Measured:
    """Run a stage in a process of its own, which has taken no memory before."""
    spawn = multiprocessing.get_context("spawn")
    if prepare is not None:
        prepare(names, buckets)
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_observed, work, names, buckets).result()


def _observed(
    work: Callable[[list[str], int], dict[str, int]], names: list[str], buckets: int
) -> _Measured:
    begin = time.monotonic()
    found = work(names, buckets)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return _Measured(time.monotonic() - begin, peak, found)


def _survivors(names: list[str], buckets: int) -> dict[str, int]:
    sources = [str(_FOLDER / f"h{name}.arrow") for name in names]
    total = 0
    for bucket in range(buckets):
        found = survivors_part(
            _FOLDER, f"s{bucket}", sources=sources, bucket=bucket, min_count=_MIN_COUNT,
            memory_limit=phrase_stages._BUCKET_MEMORY,
        )  # fmt: skip
        total += found["survivors"]
    return {"survivors": total}


def _counts(names: list[str], buckets: int) -> None:
    _each(_count, names, buckets)


def _count(name: str, buckets: int) -> int:
    found = counts_part(
        _FOLDER, f"c{name}", source=str(_FOLDER / f"{name}.arrow"), n_max=_N_MAX,
        survivors=[str(_FOLDER / f"s{bucket}.npy") for bucket in range(buckets)],
        buckets=buckets, corpus=0,
    )  # fmt: skip
    return int(found["grams"])


def _candidates(names: list[str], buckets: int) -> dict[str, int]:
    sources = [str(_FOLDER / f"c{name}.arrow") for name in names]
    total = 0
    for bucket in range(buckets):
        found = candidates_part(
            _FOLDER, f"k{bucket}", sources=sources, bucket=bucket, buckets=buckets, corpora=1,
            n_max=_N_MAX, min_count=_MIN_COUNT, min_documents=2,
            memory_limit=phrase_stages._BUCKET_MEMORY,
        )  # fmt: skip
        total += found["candidates"]
    return {"candidates": total}


def _neighbours(names: list[str], buckets: int) -> None:
    for bucket in range(buckets):
        candidates = str(_FOLDER / f"k{bucket}.parquet")
        targets_part(_FOLDER, f"t{bucket}", candidates=candidates, n_max=_N_MAX)
    _each(_beside, names, buckets)


def _beside(name: str, buckets: int) -> int:
    found = neighbours_part(
        _FOLDER, f"b{name}", source=str(_FOLDER / f"{name}.arrow"), n_max=_N_MAX,
        targets=[str(_FOLDER / f"t{bucket}.npy") for bucket in range(buckets)],
    )  # fmt: skip
    return int(found["neighbours"])


def _entropies(names: list[str], buckets: int) -> dict[str, int]:
    sources = [str(_FOLDER / f"b{name}.arrow") for name in names]
    unknown = 0
    for bucket in range(buckets):
        found = entropies_part(
            _FOLDER, f"e{bucket}", candidates=str(_FOLDER / f"k{bucket}.parquet"),
            sources=sources, bucket=bucket, n_max=_N_MAX,
            memory_limit=phrase_stages._BUCKET_MEMORY,
        )  # fmt: skip
        unknown += found["unknown"]
    return {"unknown": unknown}


def _unigrams(names: list[str], buckets: int) -> None:
    parts = [str(_FOLDER / f"h{name}.unigrams.parquet") for name in names]
    unigrams_part(_FOLDER, "all", sources=parts, corpora=["made-up"], vocab_size=_VOCAB)


def _score(names: list[str], buckets: int) -> dict[str, Any]:
    config = _corpus.config()
    choosing = config.mining.model_dump(include=CHOOSING) | {"max_phrases": _MOST_PHRASES}
    found = score_part(
        _FOLDER, "score",
        candidates=[str(_FOLDER / f"e{bucket}.parquet") for bucket in range(buckets)],
        unigrams=str(_FOLDER / "unigrams.parquet"), corpora=["made-up"], phrase_shares=[None],
        model=config.model, corpus_documents=[len(names) * _TOKENS // _DOCUMENT], n_max=_N_MAX,
        min_count=_MIN_COUNT, min_documents=2, kinds=["web"], **choosing,
        memory_limit=phrase_stages._SCORE_MEMORY, threads=2,
    )  # fmt: skip
    return {name: found[name] for name in ("candidates", "phrases")}


if __name__ == "__main__":
    main()
