"""Reading one bucket of many parts' hashes, as every job of the merge does.

    python -m benchmarks.buckets [--full]

The rival is DuckDB's ``read_parquet`` on files with a row group a bucket, which finds the bucket by
the least and greatest hash in each row group: how it was done before. Both sides sum the same
counts with one thread, from a warm page cache.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._harness import OUT, Result, median_seconds, report
from phrasemem.pipeline.buckets import bucket_limits, bucket_reader, write_bucketed

_FOLDER = OUT / "buckets"
_ROWS = 500
_SCHEMA = pa.schema([("hash", pa.uint64()), ("count", pa.uint32())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="400 parts of 1,024 buckets")
    sizes = [(50, 64), (100, 256), *([(400, 1024)] if parser.parse_args().full else [])]
    report([_measured(parts, buckets) for parts, buckets in sizes], "buckets")


def _measured(parts: int, buckets: int) -> Result:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    for part in range(parts):
        tables = list(_tables(part, buckets))
        write_bucketed(_FOLDER / f"{part}.arrow", _SCHEMA, tables)
        _write_row_groups(_FOLDER / f"{part}.parquet", tables)
    arrow = [str(_FOLDER / f"{part}.arrow") for part in range(parts)]
    parquet = [str(_FOLDER / f"{part}.parquet") for part in range(parts)]
    bucket = buckets // 3
    if _ours(arrow, bucket) != _theirs(parquet, bucket, buckets):
        raise AssertionError("the two sides found different counts")
    seconds = median_seconds(lambda: _ours(arrow, bucket), repeats=5)
    rival = median_seconds(lambda: _theirs(parquet, bucket, buckets), repeats=3)
    shutil.rmtree(_FOLDER)
    return Result(
        "buckets/read one", 1e3 * seconds, "ms", "DuckDB read_parquet, a row group a bucket",
        1e3 * rival, "warm", note=f"{parts} parts of {buckets} buckets, {_ROWS} rows in each",
    )  # fmt: skip


def _tables(part: int, buckets: int) -> Iterator[pa.Table]:
    random = np.random.default_rng([part, 5])
    for bucket in range(buckets):
        first, last = bucket_limits(bucket, buckets)
        hashes = random.integers(first, last, _ROWS, np.uint64, endpoint=True)
        counts = random.geometric(0.7, _ROWS).astype(np.uint32)
        yield pa.table([hashes, counts], schema=_SCHEMA)


def _write_row_groups(path: Path, tables: list[pa.Table]) -> None:
    with pq.ParquetWriter(path, _SCHEMA, compression="lz4", use_dictionary=False) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=len(table))


def _ours(paths: list[str], bucket: int) -> int:
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("counted", bucket_reader(paths, bucket))
        return int(database.execute("SELECT sum(count) FROM counted").fetchall()[0][0])


def _theirs(paths: list[str], bucket: int, buckets: int) -> int:
    first, last = bucket_limits(bucket, buckets)
    with duckdb.connect(config={"threads": 1}) as database:
        query = (
            "SELECT sum(count) FROM read_parquet(?) WHERE hash BETWEEN ?::UBIGINT AND ?::UBIGINT"
        )
        return int(database.execute(query, [paths, first, last]).fetchall()[0][0])


if __name__ == "__main__":
    main()
