"""Stages ``survivors`` and ``candidates``: counts summed over partitions, a bucket at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

from phrasemem.pipeline.buckets import BUCKETED, bucket_limits, bucket_reader
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.stage import Report, appears


def survivors_part(
    folder: Path,
    key: str,
    *,
    sources: Sequence[str],
    bucket: int,
    min_count: int,
    memory_limit: str,
) -> Report:
    """Write the ascending hashes of a bucket that occur ``min_count`` times or more."""
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        database.register("counted", bucket_reader(sources, bucket))
        query = "SELECT hash FROM counted GROUP BY hash HAVING sum(count) >= ? ORDER BY hash"
        found = database.execute(query, [min_count]).fetchnumpy()
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
        Files of the stage ``counts``, or Parquet files with the same columns.
    earlier : str or None
        The same bucket of an earlier count store.

    Notes
    -----
    Writes ``KEY.parquet``: n, t0.. (0 beyond n), corpus, count, documents, sorted by these.
    """
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
          FROM counted
          {before if earlier else ""}
        )
        GROUP BY {key_columns}, corpus ORDER BY {key_columns}, corpus
    """
    arguments = [[earlier]] if earlier else []
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        _show(database, sources, bucket, buckets)
        return {"rows": _write(folder, key, database, query, arguments)}


def _show(
    database: duckdb.DuckDBPyConnection, sources: Sequence[str], bucket: int | None, buckets: int
) -> None:
    """Make the view ``counted`` of the rows of a bucket, or of all; it can be read once."""
    bucketed = [path for path in sources if path.endswith(BUCKETED)]
    others = [path for path in sources if not path.endswith(BUCKETED)]
    parts = []
    if bucketed:
        if bucket is None:
            raise ValueError("files in buckets are read a bucket at a time")
        database.register("bucketed", bucket_reader(bucketed, bucket))
        parts.append("SELECT * FROM bucketed")
    if others:
        listed = ", ".join("'" + path.replace("'", "''") + "'" for path in others)
        within = ""
        if bucket is not None:
            first, last = bucket_limits(bucket, buckets)
            within = f" WHERE hash BETWEEN {first}::UBIGINT AND {last}::UBIGINT"
        parts.append(f"SELECT * FROM read_parquet([{listed}]){within}")
    database.execute(f"CREATE TEMP VIEW counted AS {' UNION ALL BY NAME '.join(parts)}")


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
    query = f"""
        SELECT n, {tokens}, sum(count)::UINTEGER AS count, sum(documents)::UINTEGER AS documents,
               {shares}{firsts}
        FROM counted
        GROUP BY n, {tokens}
        HAVING sum(count) >= ? AND sum(documents) >= ?
        ORDER BY n, {tokens}
    """
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        _show(database, sources, bucket, buckets)
        arguments = [min_count, min_documents]
        return {"candidates": _write(folder, key, database, query, arguments)}


def _write(
    folder: Path,
    key: str,
    database: duckdb.DuckDBPyConnection,
    query: str,
    arguments: list[Any],
) -> int:
    """Write the result of a query as ``KEY.parquet``; return its rows."""
    rows = 0
    reader = stream(database, query, arguments)
    with (
        appears(folder / f"{key}.parquet") as temporary,
        pq.ParquetWriter(temporary, reader.schema, compression="zstd") as writer,
    ):
        for batch in reader:
            rows += batch.num_rows
            writer.write_batch(batch, row_group_size=BATCH_ROWS)
    return rows
