"""The columns of a catalogue, and the keys out of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

# Null where the text around a phrase was not at hand; older memories lack the columns.
ENTROPIES = ("left_entropy", "right_entropy")


def catalogue_schema(corpora: Sequence[str]) -> pa.Schema:
    """Return the columns of a catalogue; counts and documents of each corpus."""
    return pa.schema(
        [
            ("row", pa.uint32()),
            ("text", pa.string()),
            ("tokens", pa.list_(pa.uint32())),
            ("n", pa.uint8()),
            ("count", pa.uint64()),
            ("documents", pa.uint32()),
            *((f"count_{name}", pa.uint64()) for name in corpora),
            *((f"documents_{name}", pa.uint32()) for name in corpora),
            ("npmi", pa.float32()),
            ("llr", pa.float32()),
            ("cvalue", pa.float32()),
            *((name, pa.float32()) for name in ENTROPIES),
            ("score", pa.float32()),
        ]
    )


def with_entropies(table: pa.Table) -> pa.Table:
    """Give an older catalogue the columns that it lacks, without values."""
    for name in ENTROPIES:
        if name not in table.column_names:
            place = table.column_names.index("score")
            table = table.add_column(place, name, pa.nulls(len(table), pa.float32()))
    return table


def key_matrix(table: pa.Table, n_max: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Return (lengths (k,) uint8, tokens (k, n_max) uint32, 0 beyond the length) of a catalogue."""
    lengths = table["n"].to_numpy().astype(np.uint8)
    tokens = np.zeros((len(lengths), n_max), np.uint32)
    flat = table["tokens"].combine_chunks().flatten().to_numpy()
    tokens[np.arange(n_max) < lengths[:, None]] = flat
    return lengths, tokens


def read_rows(path: Path, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
    """Read the rows ``start..stop`` of a catalogue; only the row groups that hold them."""
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        first = int(np.searchsorted(ends, start, side="right")) - 1
        last = int(np.searchsorted(ends, stop, side="left"))
        groups = list(range(first, min(last, len(sizes))))
        table = file.read_row_groups(groups, columns=list(columns))
    return table.slice(start - int(ends[first]), stop - start)
