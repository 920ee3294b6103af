"""Parquet, as FineWeb and most data sets of the hub have it, and Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import LeftOut, Records, is_of_the_content
from phrasemem.pipeline.read.records import from_record
from phrasemem.pipeline.read.source import Source

_ROWS = 256
ARROW_FILE = b"ARROW1"


def read_parquet(source: Source, corpus: Corpus) -> Records:
    """Read the rows of the row groups of a span; a damaged group is left out, the others kept."""
    with source.open_seekable() as file:
        try:
            parquet = pq.ParquetFile(file)
            columns = _columns(corpus, parquet.schema_arrow.names)
        except (pa.ArrowException, OSError) as error:
            _raise_if_passing(error)
            yield LeftOut("not-parquet", "the file", detail=str(error))
            return
        first = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            if source.holds(group):
                yield from _row_group(parquet, group, columns, rows, first, source, corpus)
            first += rows


def _row_group(
    parquet: pq.ParquetFile,
    group: int,
    columns: list[str],
    rows: int,
    first: int,
    source: Source,
    corpus: Corpus,
) -> Records:
    size = parquet.metadata.row_group(group).total_byte_size
    where = f"row group {group}"
    if size < 0 or rows < 0:
        yield LeftOut("row-group-damaged", where, detail=f"{rows} rows in {size} bytes")
        return
    read = 0
    try:
        for batch in parquet.iter_batches(_ROWS, row_groups=[group], columns=columns):
            yield from _batch(batch, first + read, source, corpus)
            read += batch.num_rows
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _raise_if_passing(error)
        yield LeftOut("row-group-damaged", f"{where}, row {first + read}", detail=str(error))
        return
    if read != rows:
        yield LeftOut("row-group-damaged", where, detail=f"{read} rows, not {rows}")


def read_arrow(source: Source, corpus: Corpus) -> Records:
    """Read the record batches of a span of an Arrow file, or all of an Arrow stream."""
    with source.open_seekable() as file:
        random_access = file.read(len(ARROW_FILE)) == ARROW_FILE
        file.seek(0)
        try:
            batches = _file_batches(file, source) if random_access else _stream_batches(file)
            for ordinal, batch in batches:
                if isinstance(batch, LeftOut):
                    yield batch
                else:
                    yield from _batch(batch, 0, source, corpus, f"{ordinal}.")
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            _raise_if_passing(error)
            yield LeftOut("arrow-damaged", f"byte {file.tell()}", detail=str(error))


def _file_batches(file: Any, source: Source) -> Iterator[tuple[int, pa.RecordBatch | LeftOut]]:
    reader = pa.ipc.open_file(file)
    for ordinal in range(reader.num_record_batches):
        if not source.holds(ordinal):
            continue
        try:
            yield ordinal, reader.get_batch(ordinal)
        except (pa.ArrowException, OSError) as error:
            _raise_if_passing(error)
            yield ordinal, LeftOut("batch-damaged", f"batch {ordinal}", detail=str(error))


def _stream_batches(file: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
    yield from enumerate(pa.ipc.open_stream(file))


def _raise_if_passing(error: Exception) -> None:
    if not is_of_the_content(error):
        raise error


def _columns(corpus: Corpus, present: list[str]) -> list[str]:
    wanted = (corpus.text_field, corpus.title_field, corpus.id_field)
    return [name for name in dict.fromkeys(wanted) if name is not None and name in present]


def _batch(
    batch: pa.RecordBatch, first: int, source: Source, corpus: Corpus, prefix: str = ""
) -> Records:
    kept = batch.select(_columns(corpus, batch.schema.names))
    for start in range(0, kept.num_rows, _ROWS):
        for row, record in enumerate(kept.slice(start, _ROWS).to_pylist(), first + start):
            place = f"{prefix}{row}"
            yield from_record(record, corpus, f"{source.name}#{place}", f"row {place}")
