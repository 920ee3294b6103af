"""Stage ``select``: which documents are mined, held out, or dropped as duplicates.

The decision about a document depends on the documents alone, never on how they were cut into
chunks: duplicates are ordered by corpus, id and text, and the hold-out is by content hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.stage import Report, appears

KEEP, DUPLICATE_TEXT, DUPLICATE_TITLE, CALIBRATION, TEST = range(5)
DECISIONS = ("kept", "duplicate-text", "duplicate-title", "held-out-calibration", "held-out-test")
_SCHEMA = pa.schema([("chunk", pa.uint32()), ("row", pa.uint32()), ("decision", pa.uint8())])


def select_part(
    folder: Path,
    key: str,
    *,
    chunks: Sequence[Mapping[str, object]],
    held_out: Sequence[float],
    kinds: Sequence[str],
    memory_limit: str,
) -> Report:
    """Decide about every document.

    Parameters
    ----------
    chunks : sequence of {"path", "corpus"}
        The clean chunks in order, with the position of their corpus.
    held_out : sequence of float
        Share held out, a corpus.
    kinds : sequence of str
        Kind of each corpus; a title is compared within a kind.

    Returns
    -------
    dict
        ``decisions``: counts by decision, a corpus.
    """
    counts = [Counter[str]() for _ in kinds]
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        _load(database, chunks, held_out, kinds)
        reader = stream(database, _DECIDE)
        with (
            appears(folder / "decisions.parquet") as temporary,
            pq.ParquetWriter(temporary, _SCHEMA) as writer,
        ):
            for batch in reader:
                table = pa.Table.from_batches([batch])
                writer.write_table(table.select(_SCHEMA.names).cast(_SCHEMA), BATCH_ROWS)
                _tally(table, counts)
    return {"decisions": [dict(sorted(count.items())) for count in counts]}


def decisions_of(path: Path, chunk: int) -> list[int]:
    """Return the decisions about the documents of one chunk, in order."""
    table = pq.read_table(path, columns=["decision"], filters=[("chunk", "=", chunk)])
    decisions: list[int] = table["decision"].to_pylist()
    return decisions


def hold_out_limit(share: float) -> str:
    """Return the text below which a document's hash marks it as held out."""
    return "g" if share >= 1.0 else f"{int(share * 2**64):016x}"


def _load(
    database: duckdb.DuckDBPyConnection,
    chunks: Sequence[Mapping[str, object]],
    held_out: Sequence[float],
    kinds: Sequence[str],
) -> None:
    listed = pa.table(
        {
            "path": pa.array([str(chunk["path"]) for chunk in chunks], pa.string()),
            "chunk": pa.array(range(len(chunks)), pa.uint32()),
            "corpus": pa.array([chunk["corpus"] for chunk in chunks], pa.uint32()),
        }
    )
    corpora = pa.table(
        {
            "corpus": pa.array(range(len(kinds)), pa.uint32()),
            "kind": pa.array(list(kinds), pa.string()),
            "held_below": pa.array([hold_out_limit(share) for share in held_out], pa.string()),
        }
    )
    database.register("listed", listed)
    database.register("corpora", corpora)
    paths = [str(chunk["path"]) for chunk in chunks]
    database.execute(_DOCUMENTS, [paths])


def _tally(table: pa.Table, counts: list[Counter[str]]) -> None:
    pairs = zip(table["corpus"].to_pylist(), table["decision"].to_pylist(), strict=True)
    for (corpus, decision), number in Counter(pairs).items():
        counts[corpus][DECISIONS[decision]] += number


_DOCUMENTS = """
CREATE TABLE documents AS
SELECT chunk, file_row_number::UINTEGER AS row, corpus, kind, held_below, id, text_hash,
       title_key, length(text) AS chars
FROM read_parquet(?, filename = true, file_row_number = true) AS files
JOIN listed ON files.filename = listed.path
JOIN corpora USING (corpus)
"""

# Of equal texts the first by (corpus, id, title) stays. Of one title in several corpora of a
# kind the corpus with the longest text stays: a whole article rather than its summary.
_DECIDE = f"""
WITH ranked AS (
  SELECT *, row_number() OVER (
    PARTITION BY text_hash ORDER BY corpus, id, title_key, chunk, row) AS copy
  FROM documents
), titled AS (
  SELECT chunk, row, arg_max(corpus, (chars, -corpus::BIGINT)) OVER (
    PARTITION BY kind, title_key) AS winner
  FROM ranked WHERE copy = 1 AND title_key <> ''
)
SELECT chunk, row, corpus, (CASE
  WHEN copy > 1 THEN {DUPLICATE_TEXT}
  WHEN winner <> corpus THEN {DUPLICATE_TITLE}
  WHEN substr(text_hash, 1, 16) < held_below
    THEN CASE WHEN substr(text_hash, 17, 1) < '8' THEN {CALIBRATION} ELSE {TEST} END
  ELSE {KEEP} END)::UTINYINT AS decision
FROM ranked LEFT JOIN titled USING (chunk, row)
ORDER BY chunk, row
"""
