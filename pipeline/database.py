"""DuckDB connections that stay within a memory limit and spill below the work folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from phrasemem.memfmt.errors import PhraseMemError

# Rows of a batch that is read, and of a row group that is written.
BATCH_ROWS = 1 << 16
# A table of files, given as the parameter. Folders above them may be named like `corpus=3`, which
# DuckDB takes for the values of a column of that name unless it is told not to.
PARQUET = "read_parquet(?, hive_partitioning = false)"


class DatabaseError(PhraseMemError):
    """A query that failed, most often for want of disk or memory."""


@contextmanager
def connect(
    scratch: Path, memory_limit: str, threads: int = 1
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database whose tables live in ``scratch`` and go with it.

    Parameters
    ----------
    scratch : Path
        A folder of a name that begins so is made and removed.
    memory_limit : str
        As DuckDB writes it: ``1GB``. More is spilled to ``scratch``.
    threads : int
        One in a worker; results never depend on it, because every sum is of integers and
        every result is ordered.
    """
    # A worker that was given up may still be at the same part.
    scratch = scratch.with_name(f"{scratch.name}-{os.urandom(4).hex()}")
    scratch.mkdir(parents=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": threads,
        "temp_directory": str(scratch / "spill"),
        "preserve_insertion_order": False,
    }
    try:
        with duckdb.connect(str(scratch / "tables.duckdb"), config=settings) as connection:
            connection.execute("SET enable_progress_bar = false")
            yield connection
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0]
        raise DatabaseError(f"the database stopped: {first}", where=scratch.parent) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def stream(
    database: duckdb.DuckDBPyConnection, query: str, arguments: list[Any] | None = None
) -> pa.RecordBatchReader:
    """Run a query whose result is read in batches; it must be ordered."""
    return database.sql(query, params=arguments).to_arrow_reader(BATCH_ROWS)


def rows_of(answer: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of a query that was executed, by the names of its columns."""
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
