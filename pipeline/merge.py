"""Stages ``survivors`` and ``candidates``: counts summed over partitions, a bucket at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from phrasemem.pipeline.count import bucket_limits
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.stage import Report, appears


def survivors_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    bucket: int,
    buckets: int,
    min_count: int,
    memory_limit: str,
) -> Report:
    """Write the ascending hashes of a bucket that occur ``min_count`` times or more."""
    first, last = bucket_limits(bucket, buckets)
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        query = (
            "SELECT hash FROM read_parquet(?, hive_partitioning = false) "
            "WHERE hash BETWEEN ?::UBIGINT AND ?::UBIGINT "
            "GROUP BY hash HAVING sum(count) >= ? ORDER BY hash"
        )
        found = database.execute(query, [list(sources), first, last, min_count]).fetchnumpy()
    hashes = np.asarray(found["hash"], np.uint64)
    with appears(folder / f"{key}.npy") as temporary, temporary.open("wb") as file:
        np.save(file, hashes, allow_pickle=False)
    return {"survivors": len(hashes)}


def store_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    earlier: str | None,
    bucket: int,
    buckets: int,
    n_max: int,
    memory_limit: str,
) -> Report:
    """Sum a bucket's n-grams, each corpus by itself, down to those that occur once.

    Parameters
    ----------
    sources : sequence of str
        Files of the stage ``counts``.
    earlier : str or None
        The same bucket of an earlier count store.

    Notes
    -----
    Writes ``KEY.parquet``: n, t0.. (0 beyond n), corpus, count, documents, sorted by these.
    """
    first, last = bucket_limits(bucket, buckets)
    key_columns = f"n, {', '.join(f't{place}' for place in range(n_max))}"
    before = (
        f"UNION ALL SELECT {key_columns}, corpus, count, documents "
        "FROM read_parquet(?, hive_partitioning = false)"
    )
    query = f"""
        SELECT {key_columns}, corpus, sum(count)::UINTEGER AS count,
               sum(documents)::UINTEGER AS documents
        FROM (
          SELECT {key_columns}, corpus, count, documents
          FROM read_parquet(?, hive_partitioning = false)
          WHERE hash BETWEEN ?::UBIGINT AND ?::UBIGINT
          {before if earlier else ""}
        )
        GROUP BY {key_columns}, corpus ORDER BY {key_columns}, corpus
    """
    arguments = [list(sources), first, last, *([[earlier]] if earlier else [])]
    return {"rows": _write(folder, key, query, arguments, memory_limit)}


def candidates_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    bucket: int | None,
    buckets: int,
    corpora: int,
    n_max: int,
    min_count: int,
    min_documents: int,
    memory_limit: str,
    carried: Sequence[str] = (),
) -> Report:
    """Sum the exact counts of a bucket's n-grams, in all and a corpus: ``KEY.parquet``.

    Of the columns ``carried``, the values of the first ``chunk`` stay: folded ids do not tell
    the text.

    ``bucket`` None takes all rows; then the sources need no column ``hash``. The columns
    written: n, t0.. (0 beyond n), count, documents, count_0.., documents_0.. by corpus.
    """
    tokens = ", ".join(f"t{place}" for place in range(n_max))
    shares = ", ".join(
        f"coalesce(sum({measure}) FILTER (WHERE corpus = {corpus}), 0)::UINTEGER "
        f"AS {measure}_{corpus}"
        for measure in ("count", "documents")
        for corpus in range(corpora)
    )
    firsts = "".join(f", arg_min({column}, chunk) AS {column}" for column in carried)
    limits = () if bucket is None else bucket_limits(bucket, buckets)
    within = "WHERE hash BETWEEN ?::UBIGINT AND ?::UBIGINT" if limits else ""
    query = f"""
        SELECT n, {tokens}, sum(count)::UINTEGER AS count, sum(documents)::UINTEGER AS documents,
               {shares}{firsts}
        FROM read_parquet(?, hive_partitioning = false) {within}
        GROUP BY n, {tokens}
        HAVING sum(count) >= ? AND sum(documents) >= ?
        ORDER BY n, {tokens}
    """
    arguments = [list(sources), *limits, min_count, min_documents]
    return {"candidates": _write(folder, key, query, arguments, memory_limit)}


def _write(folder: Path, key: str, query: str, arguments: list[Any], memory_limit: str) -> int:
    """Write the result of a query as ``KEY.parquet``; return its rows."""
    rows = 0
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        reader = stream(database, query, arguments)
        with (
            appears(folder / f"{key}.parquet") as temporary,
            pq.ParquetWriter(temporary, reader.schema, compression="zstd") as writer,
        ):
            for batch in reader:
                rows += batch.num_rows
                writer.write_batch(batch, row_group_size=BATCH_ROWS)
    return rows
