"""Compares the catalogue of a memory with the memory, before another is made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.memfmt.reader import MemoryReader
from phrasemem.pipeline.catalogue_counts import CatalogueError
from phrasemem.pipeline.catalogue_table import ENTROPIES, catalogue_schema
from phrasemem.pipeline.database import BATCH_ROWS
from phrasemem.pipeline.derive import CATALOGUE_FILE


def check_catalogue(reader: MemoryReader) -> None:
    """Refuse a catalogue that does not describe the rows of its memory, one by one.

    Checksums only tell that it is what its maker wrote.

    Parameters
    ----------
    reader : MemoryReader
        The memory.

    Raises
    ------
    CatalogueError
        If it is not there, cannot be read, or columns, types, rows or keys are others.
    """
    path = reader.path / CATALOGUE_FILE
    if CATALOGUE_FILE not in reader.manifest.files:
        raise CatalogueError(f"the memory has no {CATALOGUE_FILE}", where=reader.path)
    schema = catalogue_schema([corpus.name for corpus in reader.manifest.corpora])
    try:
        file = pq.ParquetFile(path)
        schema = _without_entropies(schema, file.schema_arrow)
        _check_form(file, schema, len(reader), path)
        row = 0
        for batch in file.iter_batches(BATCH_ROWS, columns=schema.names):
            _check_batch(batch, reader, row, path)
            row += batch.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        first = " ".join(str(error).split())
        raise CatalogueError(f"the catalogue cannot be read: {first}", where=path) from error
    if row != len(reader):
        raise _refused("rows", len(reader), row, path)


def _without_entropies(wanted: pa.Schema, found: pa.Schema) -> pa.Schema:
    """Leave out the columns that a catalogue of an earlier version does not have."""
    return pa.schema([f for f in wanted if f.name not in ENTROPIES or f.name in found.names])


def _check_form(file: pq.ParquetFile, schema: pa.Schema, rows: int, path: Path) -> None:
    found = file.schema_arrow
    if missing := [name for name in schema.names if name not in found.names]:
        raise CatalogueError(
            "the catalogue lacks columns",
            found=f"no {', '.join(missing)}",
            where=path,
            hint="build it again",
        )
    for field in schema:
        # What a list's values are called is no part of it.
        if not found.field(field.name).type.equals(field.type):
            raise _refused(
                f"values in {field.name}", field.type, found.field(field.name).type, path
            )
    if file.metadata.num_rows != rows:
        raise _refused("rows", rows, file.metadata.num_rows, path)


def _check_batch(batch: pa.RecordBatch, reader: MemoryReader, row: int, path: Path) -> None:
    where = f"{path}, rows from {row}"
    full = [name for name in batch.schema.names if name not in ENTROPIES]
    if empty := [name for name in full if batch.column(name).null_count]:
        raise _refused("values", "all", f"none in {', '.join(empty)}", where)
    rows = np.arange(row, row + batch.num_rows)
    if not np.array_equal(batch.column("row").to_numpy(), rows):
        raise _refused("row numbers", f"{row}..", "others", where)
    lengths, tokens = reader.row_tokens(rows)
    keys = tokens[np.arange(tokens.shape[1]) < lengths[:, None]]
    same = (
        np.array_equal(batch.column("n").to_numpy(), lengths)
        and np.array_equal(batch.column("tokens").value_lengths().to_numpy(), lengths)
        and np.array_equal(batch.column("tokens").flatten().to_numpy(), keys)
    )
    if not same:
        raise _refused("tokens", "those of the rows", "others", where)


def _refused(what: str, expected: object, found: object, where: object) -> CatalogueError:
    return CatalogueError(
        f"the catalogue has other {what} than the memory",
        expected=expected,
        found=found,
        where=where,
        hint="fetch or build the memory again",
    )
