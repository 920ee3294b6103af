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
from phrasemem.pipeline.buckets import BUCKETED, bucket_limits, bucket_reader, write_bucketed
from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.count import Hashes, gram_hashes, windows
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.folding import folded_run
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
    hashes, sides, tokens, counts = neighbour_counts(run, _Mapped(targets), n_max)
    table = pa.table({"hash": hashes, "side": sides, "token": tokens, "count": counts})
    limits = [bucket_limits(bucket, len(targets))[0] for bucket in range(len(targets))]
    cuts = [*np.searchsorted(hashes, np.array(limits, np.uint64)).tolist(), len(hashes)]
    write_bucketed(
        folder / f"{key}{BUCKETED}",
        table.schema,
        (table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)),
    )
    return {"neighbours": len(table)}


class _Mapped(Sequence[Hashes]):
    """Arrays in files, each mapped while it is looked at: a mapping holds a file open."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, place: Any) -> Any:
        return np.load(self._paths[place], mmap_mode="r")


def neighbour_counts(
    run: TokenRun, targets: Sequence[Hashes], n_max: int
) -> tuple[Hashes, NDArray[np.uint8], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return hash, side, token and count of every neighbour, sorted by these."""
    found = list(_beside(run, targets, n_max))
    hashes = np.concatenate([part[0] for part in found] or [np.zeros(0, np.uint64)])
    beside = np.concatenate([part[1] for part in found] or [np.zeros(0, np.uint64)])
    order = np.lexsort((beside, hashes))
    hashes, beside = hashes[order], beside[order]
    new = np.ones(len(hashes), np.bool_)
    new[1:] = (hashes[1:] != hashes[:-1]) | (beside[1:] != beside[:-1])
    first = np.flatnonzero(new)
    counts = np.diff(first, append=len(hashes)).astype(np.uint32)
    sides = (beside[first] >> np.uint64(32)).astype(np.uint8)
    return hashes[first], sides, beside[first].astype(np.uint32), counts


def _beside(
    run: TokenRun, targets: Sequence[Hashes], n_max: int
) -> Iterator[tuple[Hashes, NDArray[np.uint64]]]:
    """Yield the hash of every candidate's occurrence and, below the side, the token there."""
    before, after = _tokens_beside(run)
    for window in windows(run, n_max):
        kept = _are_targets(window.hashes, targets)
        starts, hashes = window.starts[kept], window.hashes[kept]
        yield hashes, before[starts].astype(np.uint64)
        right = after[starts + window.length - 1].astype(np.uint64)
        yield hashes, right | np.uint64(_RIGHT << 32)


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


def _are_targets(hashes: Hashes, targets: Sequence[Hashes]) -> NDArray[np.bool_]:
    """Tell which hashes are targets, looking at one bucket of them at a time."""
    order = np.argsort(hashes)
    rising = hashes[order]
    kept = np.zeros(len(hashes), np.bool_)
    for bucket, known in enumerate(targets):
        first, last = (np.uint64(limit) for limit in bucket_limits(bucket, len(targets)))
        start = np.searchsorted(rising, first)
        stop = np.searchsorted(rising, last, side="right")
        if start < stop and len(known):
            here = rising[start:stop]
            place = np.minimum(np.searchsorted(known, here), len(known) - 1)
            kept[order[start:stop]] = known[place] == here
    return kept


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
