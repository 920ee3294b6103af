"""Stages ``hashes`` and ``counts``: exact n-gram counts in two passes, vectorised.

Pass A counts 64-bit hashes of all windows; hashes that are rarer than ``min_count`` over all
partitions are out. Pass B counts again, by tokens, the windows whose hash survived. A hash
collision can only make pass A count too much, so nothing is lost, and pass B is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
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
    """Distinct n-grams of one length: tokens (k, length), hashes, counts, documents, each (k,)."""

    tokens: NDArray[np.uint32]
    hashes: Hashes
    counts: NDArray[np.int64]
    documents: NDArray[np.int64]


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


def hash_counts(run: TokenRun, n_max: int) -> tuple[Hashes, NDArray[np.int64]]:
    """Pass A: distinct hashes of all windows, ascending, and how often each occurs."""
    found = [window.hashes for window in windows(run, n_max)]
    return np.unique(np.concatenate(found or [np.zeros(0, np.uint64)]), return_counts=True)


def grams_of(run: TokenRun, survivors: Hashes | None, n_max: int) -> Iterator[Grams]:
    """Pass B: exact counts of the windows whose hash is in ``survivors`` (ascending), or of all."""
    document = _document_of(run)
    for window in windows(run, n_max):
        starts, hashes = window.starts, window.hashes
        if survivors is not None:
            kept = _members(hashes, survivors)
            starts, hashes = starts[kept], hashes[kept]
        order = np.argsort(hashes, kind="stable")
        starts, hashes = starts[order], hashes[order]
        tokens = run.tokens[starts[:, None] + np.arange(window.length)]
        yield _group(tokens, hashes, document[starts])


def _document_of(run: TokenRun) -> NDArray[np.int64]:
    """Return the number of the document that each token is in."""
    return np.repeat(np.arange(len(run.ends)), np.diff(run.ends, prepend=0))


def _members(hashes: Hashes, survivors: Hashes) -> NDArray[np.bool_]:
    if len(survivors) == 0:
        return np.zeros(len(hashes), np.bool_)
    place = np.searchsorted(survivors, hashes)
    return survivors[np.minimum(place, len(survivors) - 1)] == hashes


def _group(tokens: NDArray[np.uint32], hashes: Hashes, documents: NDArray[np.int64]) -> Grams:
    """Group windows that are sorted by hash (stably: documents ascend within a hash)."""
    new_hash = np.ones(len(hashes), np.bool_)
    new_hash[1:] = hashes[1:] != hashes[:-1]
    differs = np.zeros(len(hashes), np.bool_)
    differs[1:] = (tokens[1:] != tokens[:-1]).any(axis=1) & ~new_hash[1:]
    if differs.any():
        # Two n-grams share a hash: order these windows by their tokens too.
        order = np.lexsort((documents, *tokens.T[::-1], hashes))
        tokens, hashes, documents = tokens[order], hashes[order], documents[order]
        differs[1:] = (tokens[1:] != tokens[:-1]).any(axis=1) & ~new_hash[1:]
    new_gram = new_hash | differs
    first = np.flatnonzero(new_gram)
    new_document = new_gram.copy()
    new_document[1:] |= documents[1:] != documents[:-1]
    return Grams(
        tokens[first],
        hashes[first],
        np.diff(first, append=len(hashes)),
        np.add.reduceat(new_document, first, dtype=np.int64) if len(first) else first,
    )


def hashes_part(
    folder: Path, key: str, *, source: str, n_max: int, buckets: int, corpus: int
) -> Report:
    """Pass A over one partition: hashes with counts, and counts of single tokens."""
    run = read_run(Path(source))
    hashes, counts = hash_counts(run, n_max)
    table = pa.table({"hash": hashes, "count": counts.astype(np.uint32)})
    write_bucketed(folder / f"{key}.parquet", table, hashes, buckets)
    _write_unigrams(folder / f"{key}.unigrams.parquet", run, corpus)
    return {"hashes": len(hashes), "windows": int(counts.sum())}


def token_counts(run: TokenRun) -> Grams:
    """Return the single tokens that occur, rising, as if they were n-grams of length 1."""
    order = np.argsort(run.tokens, kind="stable")
    tokens = run.tokens[order]
    return _group(tokens[:, None], tokens.astype(np.uint64), _document_of(run)[order])


def _write_unigrams(path: Path, run: TokenRun, corpus: int) -> None:
    found = token_counts(run)
    columns = {
        "token": found.tokens[:, 0],
        "corpus": np.full(len(found.tokens), corpus, np.uint16),
        "count": found.counts.astype(np.uint64),
        "documents": found.documents.astype(np.uint32),
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
) -> Report:
    """Pass B over one partition: n-grams with exact counts and document counts.

    ``survivors`` None counts all of them.
    """
    run = read_run(Path(source))
    surviving = None
    if survivors is not None:
        surviving = np.concatenate([np.load(path, mmap_mode="r") for path in survivors])
    groups = list(grams_of(run, surviving, n_max))
    hashes = np.concatenate([group.hashes for group in groups] or [np.zeros(0, np.uint64)])
    order = np.argsort(hashes, kind="stable")
    columns = _columns(groups, n_max, corpus)
    table = pa.table({name: column[order] for name, column in columns.items()})
    write_bucketed(folder / f"{key}.parquet", table, hashes[order], buckets)
    return {"grams": len(hashes)}


def _columns(groups: Sequence[Grams], n_max: int, corpus: int) -> Mapping[str, NDArray[np.generic]]:
    total = sum(len(group.hashes) for group in groups)
    lengths = np.zeros(total, np.uint8)
    tokens = np.zeros((n_max, total), np.uint32)
    counts = np.zeros(total, np.uint32)
    documents = np.zeros(total, np.uint32)
    hashes = np.zeros(total, np.uint64)
    start = 0
    for group in groups:
        stop = start + len(group.hashes)
        length = group.tokens.shape[1]
        lengths[start:stop] = length
        tokens[:length, start:stop] = group.tokens.T
        hashes[start:stop] = group.hashes
        counts[start:stop], documents[start:stop] = group.counts, group.documents
        start = stop
    return {
        "hash": hashes,
        "n": lengths,
        **{f"t{place}": tokens[place] for place in range(n_max)},
        "corpus": np.full(total, corpus, np.uint16),
        "count": counts,
        "documents": documents,
    }


def bucket_limits(bucket: int, buckets: int) -> tuple[int, int]:
    """Return the first and last hash of a bucket; ``buckets`` is a power of two."""
    width = 2**64 // buckets
    return bucket * width, (bucket + 1) * width - 1


def write_bucketed(path: Path, table: pa.Table, hashes: Hashes, buckets: int) -> None:
    """Write a table sorted by hash, with one row group a bucket.

    A reader of one bucket then skips the other row groups by their statistics.
    """
    limits = np.array([bucket_limits(bucket, buckets)[0] for bucket in range(buckets)], np.uint64)
    cuts = [*np.searchsorted(hashes, limits).tolist(), len(hashes)]
    with (
        appears(path) as temporary,
        pq.ParquetWriter(
            temporary, table.schema, compression="lz4", use_dictionary=False
        ) as writer,
    ):
        for start, stop in itertools.pairwise(cuts):
            if stop > start:
                writer.write_table(table.slice(start, stop - start), row_group_size=stop - start)
