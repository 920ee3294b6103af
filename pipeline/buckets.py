"""Files in buckets: what a part wrote of one range of hashes is read without the rest.

An Arrow file has one record batch a bucket, so that a reader goes straight to its own. A Parquet
file will not do: its footer describes every row group, a reader of one bucket reads all of it, and
with thousands of parts and of buckets the footers are far more than the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from phrasemem.pipeline.stage import appears

BUCKETED = ".arrow"
"""How the name of such a file ends."""

_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4")


def bucket_limits(bucket: int, buckets: int) -> tuple[int, int]:
    """Return the first and last hash of a bucket; ``buckets`` is a power of two."""
    width = 2**64 // buckets
    return bucket * width, (bucket + 1) * width - 1


def write_bucketed(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write the tables of all buckets, in order; return the number of rows."""
    rows = 0
    with (
        appears(path) as temporary,
        pa.ipc.new_file(temporary, schema, options=_COMPRESSION) as writer,
    ):
        for table in tables:
            rows += len(table)
            writer.write_batch(_one_batch(table, schema))
    return rows


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    # An empty bucket has a batch too: it is the bucket's number that finds it.
    found = table.combine_chunks().to_batches()
    empty = [pa.array([], field.type) for field in schema]
    return found[0] if found else pa.record_batch(empty, schema=schema)


def read_bucket(path: str, bucket: int) -> pa.RecordBatch:
    """Read the rows of one bucket of one file."""
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return file.get_batch(bucket)


def bucket_reader(paths: Sequence[str], bucket: int) -> pa.RecordBatchReader:
    """Read the rows of one bucket of many files, a file at a time."""
    with pa.memory_map(paths[0]) as source, pa.ipc.open_file(source) as file:
        schema = file.schema
    batches: Iterator[pa.RecordBatch] = (read_bucket(path, bucket) for path in paths)
    return pa.RecordBatchReader.from_batches(schema, batches)


def bucket_that_holds(paths: Sequence[str], key: int) -> pa.RecordBatchReader:
    """Read the rows of the bucket that a hash falls into, of all files."""
    with pa.memory_map(paths[0]) as source, pa.ipc.open_file(source) as file:
        buckets = file.num_record_batches
    return bucket_reader(paths, key * buckets >> 64)


def read_all(path: str) -> pa.Table:
    """Read the rows of all buckets."""
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
        return file.read_all()
