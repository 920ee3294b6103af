"""Stage ``select``: which documents are mined, held out, or dropped as duplicates.

The decision about a document depends on the documents alone, never on how they were cut into
chunks: duplicates are ordered by corpus, id and text, and the hold-out is by content hash. A near
duplicate of a held-out document is dropped or takes its place; both never stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.near_duplicates import find_near_duplicates
from phrasemem.pipeline.stage import Report, appears

KEEP, DUPLICATE_TEXT, DUPLICATE_TITLE, CALIBRATION, TEST, NEAR_DUPLICATE = range(6)
DECISIONS = (
    "kept",
    "duplicate-text",
    "duplicate-title",
    "held-out-calibration",
    "held-out-test",
    "near-duplicate",
)
# Of each text that is known: its hash, that of its kind and title (null without), its length, and
# the name of its corpus.
DOCUMENTS_SCHEMA = pa.schema(
    [
        ("text_hash", pa.binary()),
        ("title", pa.binary()),
        ("chars", pa.int64()),
        ("corpus", pa.string()),
    ]
)
_SCHEMA = pa.schema([("chunk", pa.uint32()), ("row", pa.uint32()), ("decision", pa.uint8())])


def select_part(
    folder: Path,
    key: str,
    *,
    chunks: Sequence[Mapping[str, object]],
    held_out: Sequence[float],
    names: Sequence[str],
    kinds: Sequence[str],
    memory_limit: str,
    threshold: float | None = None,
    keep: bool = False,
    earlier: str | None = None,
) -> Report:
    """Decide about every document.

    With ``keep``, what later documents must be compared with is written too:
    ``documents.parquet``.

    Parameters
    ----------
    chunks : sequence of {"path", "corpus"}
        The clean chunks in order, with the position of their corpus.
    held_out : sequence of float
        Share held out, a corpus.
    names : sequence of str
        Of the corpora.
    kinds : sequence of str
        Kind of each corpus; a title is compared within a kind.
    threshold : float, optional
        Jaccard similarity from which texts are near duplicates; None keeps them. The documents of
        ``earlier`` are not compared: of them only hashes are known.
    earlier : str, optional
        ``documents.parquet`` of a memory that is extended. Its documents stay whatever comes:
        text or title of theirs makes a document a duplicate.

    Returns
    -------
    dict
        ``decisions``: counts by decision, a corpus; ``shorter_kept``: of the duplicate titles,
        those that are longer than what stays because it is there already.
    """
    counts = [Counter[str]() for _ in kinds]
    with connect(folder / f".tmp-duckdb-{key}", memory_limit) as database:
        _load(database, chunks, held_out, names, kinds)
        _load_earlier(database, earlier)
        database.execute(_JUDGE)
        _find_near(database, threshold)
        reader = stream(database, _DECIDED)
        with (
            appears(folder / "decisions.parquet") as temporary,
            pq.ParquetWriter(temporary, _SCHEMA) as writer,
        ):
            for batch in reader:
                table = pa.Table.from_batches([batch])
                writer.write_table(table.select(_SCHEMA.names).cast(_SCHEMA), BATCH_ROWS)
                _tally(table, counts)
        if keep:
            write_documents(folder / "documents.parquet", stream(database, _KEPT))
        [[shorter_kept]] = database.execute(_SHORTER_KEPT).fetchall()
    return {
        "decisions": [dict(sorted(count.items())) for count in counts],
        "shorter_kept": shorter_kept,
    }


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
    names: Sequence[str],
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
            "name": pa.array(list(names), pa.string()),
            "kind": pa.array(list(kinds), pa.string()),
            "held_below": pa.array([hold_out_limit(share) for share in held_out], pa.string()),
        }
    )
    database.register("listed", listed)
    database.register("corpora", corpora)
    paths = [str(chunk["path"]) for chunk in chunks]
    database.execute(_DOCUMENTS, [paths])


def _load_earlier(database: duckdb.DuckDBPyConnection, earlier: str | None) -> None:
    database.register("none", DOCUMENTS_SCHEMA.empty_table())
    source = (
        "SELECT * FROM none"
        if earlier is None
        else "SELECT * FROM read_parquet(?, hive_partitioning = false)"
    )
    arguments = [] if earlier is None else [[earlier]]
    database.execute(f"CREATE TABLE earlier AS {source}", arguments)
    database.execute(
        "CREATE TABLE earlier_titles AS SELECT title, max(chars) AS chars FROM earlier "
        "WHERE title IS NOT NULL GROUP BY title"
    )


def _find_near(database: duckdb.DuckDBPyConnection, threshold: float | None) -> None:
    database.execute("CREATE TABLE near (chunk UINTEGER, row UINTEGER)")
    if threshold is not None:
        database.execute(_FRESH_SIGNATURES)
        find_near_duplicates(database, threshold)
        database.execute(
            "INSERT INTO near SELECT chunk, row FROM near_losers JOIN fresh_signatures USING (rank)"
        )


def write_documents(path: Path, batches: pa.RecordBatchReader) -> None:
    """Write documents, ordered by their hashes, with the columns of ``DOCUMENTS_SCHEMA``."""
    with appears(path) as temporary, pq.ParquetWriter(temporary, DOCUMENTS_SCHEMA) as writer:
        for batch in batches:
            table = pa.Table.from_batches([batch]).cast(DOCUMENTS_SCHEMA)
            writer.write_table(table, row_group_size=BATCH_ROWS)


def _tally(table: pa.Table, counts: list[Counter[str]]) -> None:
    pairs = zip(table["corpus"].to_pylist(), table["decision"].to_pylist(), strict=True)
    for (corpus, decision), number in Counter(pairs).items():
        counts[corpus][DECISIONS[decision]] += number


_DOCUMENTS = """
CREATE TABLE documents AS
SELECT chunk, file_row_number::UINTEGER AS row, corpus, kind, held_below, id, text_hash,
       title_key, length(text) AS chars, signature, bands
FROM read_parquet(
  ?, filename = true, file_row_number = true, hive_partitioning = false) AS files
JOIN listed ON files.filename = listed.path
JOIN corpora USING (corpus)
"""

# Of equal texts the first by (corpus, id, title) stays. Of one title in several corpora of a
# kind the corpus with the longest text stays: a whole article rather than its summary.
_JUDGE = f"""
CREATE TABLE judged AS
WITH ranked AS (
  SELECT documents.* EXCLUDE (signature, bands), unhex(documents.text_hash) AS hash,
    CASE WHEN title_key <> '' THEN unhex(md5(kind || chr(10) || title_key)) END AS title,
    row_number() OVER (
      PARTITION BY documents.text_hash ORDER BY corpus, id, title_key, chunk, row) AS copy
  FROM documents
), fresh AS (
  SELECT ranked.*, copy = 1 AND earlier.text_hash IS NULL AS is_new
  FROM ranked LEFT JOIN earlier ON earlier.text_hash = ranked.hash
), titled AS (
  SELECT chunk, row, arg_max(corpus, (chars, -corpus::BIGINT)) OVER (
    PARTITION BY title) AS winner
  FROM fresh WHERE is_new AND title IS NOT NULL
)
SELECT chunk, row, corpus, hash, title, fresh.chars AS chars, is_new,
  is_new AND fresh.chars > earlier_titles.chars AS beats_earlier, (CASE
  WHEN NOT is_new THEN {DUPLICATE_TEXT}
  WHEN earlier_titles.title IS NOT NULL OR winner <> corpus THEN {DUPLICATE_TITLE}
  WHEN substr(fresh.text_hash, 1, 16) < held_below
    THEN CASE WHEN substr(fresh.text_hash, 17, 1) < '8' THEN {CALIBRATION} ELSE {TEST} END
  ELSE {KEEP} END)::UTINYINT AS decision
FROM fresh LEFT JOIN titled USING (chunk, row) LEFT JOIN earlier_titles USING (title)
"""

# What stays or is held out so far, in an order that no cutting into chunks can change.
_FRESH_SIGNATURES = f"""
CREATE TABLE fresh_signatures AS
SELECT row_number() OVER (ORDER BY corpus, id, title_key, text_hash) AS rank,
       documents.chars AS chars, chunk, row, signature, bands
FROM documents JOIN judged USING (chunk, row, corpus)
WHERE judged.decision NOT IN ({DUPLICATE_TEXT}, {DUPLICATE_TITLE}) AND signature IS NOT NULL
"""

_DECIDED = f"""
SELECT chunk, row, corpus,
  CASE WHEN near.row IS NULL THEN decision ELSE {NEAR_DUPLICATE} END AS decision
FROM judged LEFT JOIN near USING (chunk, row) ORDER BY chunk, row
"""
_SHORTER_KEPT = "SELECT count(*) FROM judged WHERE beats_earlier"
_KEPT = """
SELECT text_hash, title, chars, corpus FROM (
  SELECT hash AS text_hash, title, chars, name AS corpus
  FROM judged JOIN corpora USING (corpus) WHERE is_new
  UNION ALL SELECT text_hash, title, chars, corpus FROM earlier
) ORDER BY text_hash
"""
