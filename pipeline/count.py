"""Stages ``hashes`` and ``counts``: exact n-gram counts in two passes.

Both count a partition's n-grams by their tokens. Pass A writes no more of each than a 64-bit hash
and the count; hashes that are rarer than ``min_count`` over all partitions are out. Pass B writes
the n-grams whose hash survived. A hash collision can only let an n-gram through, so nothing is
lost, and every count is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.buckets import BUCKETED, write_bucketed
from phrasemem.pipeline.folding import folded_run
from phrasemem.pipeline.ngrams import (
    Counted,
    by_bucket,
    counted,
    hashes_of,
    members,
    token_counts,
)
from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.tokens import TokenRun, read_run

Hashes = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_STEP = np.uint64(_GOLDEN)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class Windows(NamedTuple):
    """All windows of one length: starts (k,) int64 into the run, hashes (k,) uint64."""

    length: int
    starts: NDArray[np.int64]
    hashes: Hashes


class Grams(NamedTuple):
    """Distinct n-grams of one length: tokens (k, length), hashes, counts, documents, each (k,).

    ``starts`` (k,) is where each begins first in the run.
    """

    tokens: NDArray[np.uint32]
    hashes: Hashes
    counts: NDArray[np.int64]
    documents: NDArray[np.int64]
    starts: NDArray[np.int64]


def windows(run: TokenRun, n_max: int) -> Iterator[Windows]:
    """Yield the windows of 2..n_max tokens that may be phrases.

    The hash is a polynomial over the ids modulo 2**64, finished by the mixer of splitmix64
    (Steele, Lea, Flood 2014), with the length mixed in.
    """
    tokens = run.tokens.astype(np.uint64) + np.uint64(1)
    segment = np.concatenate([[0], np.cumsum((run.flags & CUT_AFTER) != 0)])[: len(tokens)]
    may_start = (run.flags & MAY_START) != 0
    may_end = (run.flags & MAY_END) != 0
    rolling = tokens
    for length in range(2, n_max + 1):
        if len(tokens) < length:
            return
        rolling = rolling[:-1] * _STEP + tokens[length - 1 :]
        last = len(tokens) - length + 1
        valid = may_start[:last] & may_end[length - 1 :] & (segment[:last] == segment[length - 1 :])
        starts = np.flatnonzero(valid)
        yield Windows(length, starts, _finish(rolling[starts], length))


def gram_hashes(lengths: NDArray[np.uint8], tokens: NDArray[np.uint32]) -> Hashes:
    """Return the hashes that :func:`windows` gives to n-grams.

    Parameters
    ----------
    lengths : (k,) uint8
    tokens : (k, n_max) uint32
    """
    hashes = np.zeros(len(lengths), np.uint64)
    rolling = np.zeros(len(lengths), np.uint64)
    for place in range(tokens.shape[1]):
        rolling = rolling * _STEP + tokens[:, place].astype(np.uint64) + np.uint64(1)
        ends = lengths == place + 1
        hashes[ends] = _finish(rolling[ends], place + 1)
    return hashes


def _finish(rolling: Hashes, length: int) -> Hashes:
    mixed = rolling + np.uint64(_GOLDEN * length % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))


def grams_of(run: TokenRun, survivors: Hashes | None, n_max: int) -> Iterator[Grams]:
    """Yield the exact counts of each length, sorted by hash and then by tokens.

    ``survivors``, ascending, are the hashes of those to yield; None yields all.
    """
    found = counted(run, n_max)
    hashes = hashes_of(run.tokens, found)
    for length in range(2, n_max + 1):
        begin, end = np.searchsorted(found.lengths, [length, length + 1])
        kept = np.arange(begin, end)
        if survivors is not None:
            kept = kept[members(hashes[begin:end], survivors)]
        kept = kept[np.argsort(hashes[kept], kind="stable")]
        starts = found.starts[kept].astype(np.int64)
        yield Grams(
            run.tokens[starts[:, None] + np.arange(length)],
            hashes[kept],
            found.counts[kept].astype(np.int64),
            found.documents[kept].astype(np.int64),
            starts,
        )


def hashes_part(
    folder: Path,
    key: str,
    *,
    source: str,
    n_max: int,
    buckets: int,
    corpus: int,
    folding_model: str | None = None,
) -> Report:
    """Pass A over one partition: hashes with counts, and counts of single tokens."""
    run = folded_run(read_run(Path(source)), folding_model)
    found = counted(run, n_max)
    hashes = hashes_of(run.tokens, found)
    places, cuts = by_bucket(hashes, buckets)
    table = pa.table({"hash": hashes[places], "count": found.counts[places]})
    write_bucketed(
        folder / f"{key}{BUCKETED}",
        table.schema,
        (table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)),
    )
    _write_unigrams(folder / f"{key}.unigrams.parquet", run, corpus)
    return {"hashes": len(hashes), "windows": int(found.counts.sum(dtype=np.int64))}


def _write_unigrams(path: Path, run: TokenRun, corpus: int) -> None:
    tokens, counts, documents = token_counts(run)
    columns = {
        "token": tokens,
        "corpus": np.full(len(tokens), corpus, np.uint16),
        "count": counts.astype(np.uint64),
        "documents": documents,
    }
    with appears(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def counts_part(
    folder: Path,
    key: str,
    *,
    source: str,
    survivors: Sequence[str] | None,
    n_max: int,
    buckets: int,
    corpus: int,
    folding_model: str | None = None,
    chunk: int = 0,
) -> Report:
    """Pass B over one partition: n-grams with exact counts and document counts.

    ``survivors`` has a file a bucket; None counts all n-grams. Folded ids have no text of their
    own. So with ``folding_model`` each n-gram also has the ``chunk``, and as ``s0..`` the ids that
    stood where it first occurred in it.
    """
    original = read_run(Path(source))
    run = folded_run(original, folding_model)
    found = counted(run, n_max)
    hashes = hashes_of(run.tokens, found)
    places, cuts = by_bucket(hashes, buckets)
    surfaces = None if folding_model is None else (original.tokens, chunk)

    def tables() -> Iterator[pa.Table]:
        for bucket, (start, stop) in enumerate(itertools.pairwise(cuts)):
            kept = places[start:stop]
            if survivors is not None:
                surviving = np.load(survivors[bucket], mmap_mode="r")
                kept = kept[members(hashes[kept], surviving)]
            yield _table(run.tokens, found.at(kept), hashes[kept], n_max, corpus, surfaces)

    schema = _table(run.tokens, found.at(places[:0]), hashes[:0], n_max, corpus, surfaces).schema
    return {"grams": write_bucketed(folder / f"{key}{BUCKETED}", schema, tables())}


def _table(
    tokens: NDArray[np.uint32],
    found: Counted,
    hashes: Hashes,
    n_max: int,
    corpus: int,
    surfaces: tuple[NDArray[np.uint32], int] | None,
) -> pa.Table:
    columns = {
        "hash": hashes,
        "n": found.lengths,
        **_token_columns("t", tokens, found, n_max),
        "corpus": np.full(len(hashes), corpus, np.uint16),
        "count": found.counts,
        "documents": found.documents,
    }
    if surfaces is not None:
        original, chunk = surfaces
        columns |= _token_columns("s", original, found, n_max)
        columns["chunk"] = np.full(len(hashes), chunk, np.uint32)
    return pa.table(columns)


def _token_columns(
    prefix: str, tokens: NDArray[np.uint32], found: Counted, n_max: int
) -> dict[str, NDArray[np.uint32]]:
    """Return the tokens of n-grams a place, 0 beyond their length."""
    columns = {}
    for place in range(n_max):
        at = np.minimum(found.starts + place, len(tokens) - 1)
        columns[f"{prefix}{place}"] = np.where(found.lengths > place, tokens[at], 0).astype(
            np.uint32
        )
    return columns
