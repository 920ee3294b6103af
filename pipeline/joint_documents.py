"""The documents that memories know, put together: what their count stores keep of each text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phrasemem.pipeline.database import connect, stream
from phrasemem.pipeline.select import write_documents

_KNOWN = """
CREATE TABLE known (
  store BIGINT, text_hash BLOB, title BLOB, chars BIGINT, corpus VARCHAR
)
"""
_ADD = """
INSERT INTO known SELECT ?, text_hash, title, chars, corpus
FROM read_parquet(?, hive_partitioning = false)
WHERE list_contains(?::VARCHAR[], corpus)
"""
_RANKED = """
CREATE TABLE ranked AS
SELECT *, row_number() OVER (PARTITION BY text_hash ORDER BY store) AS copy FROM known
"""
# A build of all corpora mines a text once, and of a title the corpus that has the longest text.
_REPEATED = """
WITH titles AS (
  SELECT title, arg_max(store, (chars, -store)) AS winner FROM known
  WHERE title IS NOT NULL GROUP BY title
)
SELECT count(*) FROM ranked LEFT JOIN titles USING (title)
WHERE copy > 1 OR store <> winner
"""
_FIRST = "SELECT text_hash, title, chars, corpus FROM ranked WHERE copy = 1 ORDER BY text_hash"


def join_documents(
    target: Path, documents: Sequence[str], corpora: Sequence[str], memory_limit: str
) -> int:
    """Write the documents of some corpora, a text once, as the stage ``select`` would.

    Parameters
    ----------
    documents : sequence of str
        ``documents.parquet`` of each count store.
    corpora : sequence of str
        Names of those that stay.

    Returns
    -------
    int
        Documents that a build of all corpora would leave out, at most: their text is in an
        earlier store, or a longer one of their title in another.
    """
    with connect(target.parent / ".tmp-duckdb-documents", memory_limit) as database:
        database.execute(_KNOWN)
        for number, path in enumerate(documents):
            database.execute(_ADD, [number, [path], list(corpora)])
        database.execute(_RANKED)
        write_documents(target, stream(database, _FIRST))
        [[repeated]] = database.execute(_REPEATED).fetchall()
    return int(repeated)
