"""Stages ``targets``, ``neighbours``, ``entropies``: how freely text goes on around candidates.

The branching entropy of a phrase on one side is that of the token beside its occurrences, in
nats: ``H = ln f - (sum c ln c) / f``, with f the count of the phrase and c that of each token
beside it (Tanaka-Ishii 2005; Jin and Tanaka-Ishii 2006). Where no word stands there but a mark or
the end of a sentence, line or document, each occurrence counts as a token of its own, as accessor
variety has it for ends of sentences (Feng et al. 2004), since nothing binds the phrase there.

Every occurrence of a candidate has one neighbour a side, so their counts sum to its own. If they
do not, its 64-bit hash is also that of another n-gram, or not all of the text was at hand: then
it has no entropies rather than wrong ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from phrasemem.pipeline.boundaries import CUT_AFTER, MAY_END, MAY_START
from phrasemem.pipeline.buckets import BUCKETED, bucket_reader, write_bucketed
from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.count import Hashes, gram_hashes, windows
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.folding import folded_run
from phrasemem.pipeline.ngrams import by_bucket, places_among
from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.tokens import TokenRun, read_run

# Instead of a token, where there is none.
EDGE = np.uint32(0xFFFFFFFF)

_LEFT, _RIGHT = 0, 1
# Terms are rounded to this part of a nat: sums of integers do not depend on their order.
_STEPS_A_NAT = 1 << 24


def targets_part(folder: Path, key: str, *, candidates: str, n_max: int) -> Report:
    """Write the ascending hashes of the candidates of a bucket."""
    hashes = np.unique(_hashes_of(pq.read_table(candidates), n_max))
    with appears(folder / f"{key}.npy") as temporary, temporary.open("wb") as file:
        np.save(file, hashes, allow_pickle=False)
    return {"targets": len(hashes)}


def neighbours_part(
    folder: Path,
    key: str,
    *,
    source: str,
    targets: Sequence[str],
    n_max: int,
    folding_model: str | None = None,
) -> Report:
    """Count the tokens beside the candidates of one partition.

    Parameters
    ----------
    source : str
        A file of the stage ``tokenize``.
    targets : sequence of str
        Files of the stage ``targets``: a bucket each, as many as a power of two.

    Notes
    -----
    Writes ``KEY.arrow``, in buckets: hash, side (0 left, 1 right), token, count; sorted by hash.
    """
    run = folded_run(read_run(Path(source)), folding_model)
    schema = pa.schema(_NEIGHBOUR_FIELDS)
    tables = neighbour_tables(run, _Mapped(targets), n_max)
    return {"neighbours": write_bucketed(folder / f"{key}{BUCKETED}", schema, tables)}


class _Mapped(Sequence[Hashes]):
    """Arrays in files, each mapped while it is looked at: a mapping holds a file open."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, place: Any) -> Any:
        return np.load(self._paths[place], mmap_mode="r")


def neighbour_tables(run: TokenRun, targets: Sequence[Hashes], n_max: int) -> Iterator[pa.Table]:
    """Yield hash, side, token and count of every neighbour, sorted by these, a bucket each."""
    found = list(windows(run, n_max))
    hashes = np.concatenate([window.hashes for window in found] or [np.zeros(0, np.uint64)])
    starts = np.concatenate([window.starts for window in found] or [np.zeros(0, np.int64)])
    lengths = np.repeat(
        np.array([window.length for window in found], np.int64),
        [len(window.starts) for window in found],
    )
    before, after = _tokens_beside(run)
    order, cuts = by_bucket(hashes, len(targets))
    for known, (begin, end) in zip(targets, itertools.pairwise(cuts), strict=True):
        there = order[begin:end]
        place = places_among(hashes[there], known)
        there, place = there[place >= 0], place[place >= 0]
        last = starts[there] + lengths[there] - 1
        yield _counted(known, place, before[starts[there]], after[last])


def _counted(
    known: Hashes,
    place: NDArray[np.int64],
    left: NDArray[np.uint32],
    right: NDArray[np.uint32],
) -> pa.Table:
    """Count what is beside occurrences, of which ``place`` tells the hash.

    Place, side and token are one number of 64 bits, since numbers are sorted far faster than
    rows; a bucket has fewer than 2**31 hashes.
    """
    shifted = place.astype(np.uint64) << np.uint64(33)
    keys = np.concatenate([shifted | left, shifted | np.uint64(_RIGHT << 32) | right])
    keys.sort()
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    first = np.flatnonzero(new)
    keys = keys[first]
    columns = [
        np.asarray(known)[(keys >> np.uint64(33)).astype(np.int64)],
        ((keys >> np.uint64(32)) & np.uint64(1)).astype(np.uint8),
        keys.astype(np.uint32),
        np.diff(first, append=len(new)).astype(np.uint32),
    ]
    return pa.table(columns, pa.schema(_NEIGHBOUR_FIELDS))


def _tokens_beside(run: TokenRun) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the token before and after each token; EDGE where no word stands.

    Of interest only at word boundaries: there a token that may not end, or begin, a phrase is
    a mark.
    """
    flags = run.flags
    cut = (flags[:-1] & CUT_AFTER) != 0
    before = np.full(len(run.tokens), EDGE, np.uint32)
    after = before.copy()
    before[1:] = np.where(cut | ((flags[:-1] & MAY_END) == 0), EDGE, run.tokens[:-1])
    after[:-1] = np.where(cut | ((flags[1:] & MAY_START) == 0), EDGE, run.tokens[1:])
    return before, after


def entropies_part(
    folder: Path,
    key: str,
    *,
    candidates: str,
    sources: Sequence[str],
    bucket: int,
    n_max: int,
    memory_limit: str,
) -> Report:
    """Write the candidates of a bucket with ``left_entropy`` and ``right_entropy``, in nats.

    Parameters
    ----------
    candidates : str
        A file of the stage ``candidates``; its columns and its order stay.
    sources : sequence of str
        Files of the stage ``neighbours``.

    Returns
    -------
    dict
        ``unknown``: candidates without entropies.
    """
    table = pq.read_table(candidates)
    table = table.append_column("hash", pa.array(_hashes_of(table, n_max)))
    schema = pa.schema([*table.schema.remove(len(table.schema) - 1), *_FIELDS])
    unknown = 0
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        database.register("candidates", table)
        database.register("counted", bucket_reader(sources, bucket))
        reader = stream(database, _entropies_query(schema.names, n_max))
        with (
            appears(folder / f"{key}.parquet") as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
        ):
            for batch in reader:
                unknown += batch.column(ENTROPIES[0]).null_count
                rows = pa.Table.from_batches([batch]).cast(schema)
                writer.write_table(rows, row_group_size=BATCH_ROWS)
    return {"unknown": unknown}


_NEIGHBOUR_FIELDS = [
    pa.field("hash", pa.uint64()),
    pa.field("side", pa.uint8()),
    pa.field("token", pa.uint32()),
    pa.field("count", pa.uint32()),
]
_FIELDS = [pa.field(name, pa.float32()) for name in ENTROPIES]


def _hashes_of(table: pa.Table, n_max: int) -> Hashes:
    lengths = table["n"].to_numpy()
    if not len(lengths):
        return np.zeros(0, np.uint64)
    tokens = np.stack([table[f"t{place}"].to_numpy() for place in range(n_max)], axis=1)
    return gram_hashes(lengths, tokens)


def _entropies_query(columns: Sequence[str], n_max: int) -> str:
    tokens = ", ".join(f"t{place}" for place in range(n_max))
    kept = ", ".join(name for name in columns if name not in ENTROPIES)
    return f"""
        WITH beside AS (
          SELECT hash, side, token, sum(count)::BIGINT AS c FROM counted
          GROUP BY hash, side, token
        ), sides AS (
          SELECT hash,
            {_totals("left", _LEFT)}, {_totals("right", _RIGHT)}
          FROM beside GROUP BY hash
        )
        SELECT {kept}, {_entropy("left")}, {_entropy("right")}
        FROM candidates LEFT JOIN sides USING (hash)
        ORDER BY n, {tokens}
    """


def _totals(name: str, side: int) -> str:
    steps = f"round(c * ln(c) * {_STEPS_A_NAT})::BIGINT"
    return (
        f"sum(c) FILTER (WHERE side = {side}) AS {name}_total, "
        f"sum({steps}) FILTER (WHERE side = {side} AND token <> {EDGE}) AS {name}_steps"
    )


def _entropy(name: str) -> str:
    # Rounding may leave a hair below 0 where one token takes all.
    return (
        "CASE WHEN left_total = count AND right_total = count THEN "
        f"greatest(0, ln(count) - coalesce({name}_steps, 0) / ({_STEPS_A_NAT}.0 * count)) "
        f"END::FLOAT AS {name}_entropy"
    )
