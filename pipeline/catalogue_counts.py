"""The counts in a memory's catalogue, as rows that can be summed with others'."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.memfmt.errors import PhraseMemError
from phrasemem.pipeline.catalogue_table import key_matrix
from phrasemem.pipeline.count import gram_hashes
from phrasemem.pipeline.database import BATCH_ROWS
from phrasemem.pipeline.stage import Report, appears


class CatalogueError(PhraseMemError):
    """A catalogue that lacks what is needed to choose phrases again."""


def catalogue_counts_part(
    folder: Path,
    key: str,
    *,
    catalogue: str,
    places: Mapping[str, int],
    n_max: int,
    chunk: int | None = None,
) -> Report:
    """Write the counts of some corpora: ``KEY.parquet``, a row for each phrase and corpus.

    Its columns are those of the stage ``counts``: hash, n, t0.. (0 beyond n), corpus, count,
    documents.

    Parameters
    ----------
    catalogue : str
        ``catalogue.parquet`` of a memory. Single tokens and the root are left out.
    places : mapping of str to int
        Name of a corpus to the number that it gets; others are left out.
    n_max : int
        At least the memory's.
    chunk : int, optional
        If given, it and the text of a phrase are columns too: of folded keys that several
        files have, the text of the least ``chunk`` is to stay.
    """
    file = pq.ParquetFile(catalogue)
    wanted = [f"{measure}_{name}" for name in places for measure in ("count", "documents")]
    if missing := [name for name in wanted if name not in file.schema_arrow.names]:
        raise CatalogueError(
            "the catalogue lacks counts", where=catalogue, found=missing, hint="build it again"
        )
    schema = counts_schema(n_max)
    texts = [] if chunk is None else ["text"]
    if texts:
        schema = pa.schema([*schema, ("chunk", pa.uint32()), ("text", pa.string())])
    rows = 0
    with (
        appears(folder / f"{key}.parquet") as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for batch in file.iter_batches(BATCH_ROWS, columns=["n", "tokens", *texts, *wanted]):
            table = pa.Table.from_batches([batch])
            for name, place in places.items():
                part = _rows_of(table, name, place, n_max, chunk).cast(schema)
                writer.write_table(part)
                rows += len(part)
    return {"rows": rows}


def counts_schema(n_max: int) -> pa.Schema:
    """Return the columns of counts by corpus; keys are 0 beyond their length."""
    return pa.schema(
        [
            ("hash", pa.uint64()),
            ("n", pa.uint8()),
            *((f"t{place}", pa.uint32()) for place in range(n_max)),
            ("corpus", pa.uint16()),
            ("count", pa.uint32()),
            ("documents", pa.uint32()),
        ]
    )


def _rows_of(table: pa.Table, name: str, place: int, n_max: int, chunk: int | None) -> pa.Table:
    counts = table[f"count_{name}"].to_numpy()
    kept = table.filter(pa.array((counts > 0) & (table["n"].to_numpy() >= 2)))
    lengths, tokens = key_matrix(kept, n_max)
    texts = (
        {}
        if chunk is None
        else {"chunk": np.full(len(kept), chunk, np.uint32), "text": kept["text"]}
    )
    return pa.table(
        {
            "hash": gram_hashes(lengths, tokens),
            "n": lengths,
            **{f"t{position}": tokens[:, position] for position in range(n_max)},
            "corpus": np.full(len(kept), place, np.uint16),
            "count": kept[f"count_{name}"],
            "documents": kept[f"documents_{name}"],
            **texts,
        }
    )
