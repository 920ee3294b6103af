"""Writes the catalogue: the chosen phrases with text, counts and scores, as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem import backbone
from phrasemem.pipeline import score
from phrasemem.pipeline.boundaries import token_texts
from phrasemem.pipeline.catalogue_table import catalogue_schema
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.stage import Report, appears

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def score_part(
    folder: Path,
    key: str,
    *,
    candidates: Sequence[str],
    unigrams: Sequence[str],
    corpora: Sequence[str],
    corpus_tokens: Sequence[int],
    phrase_shares: Sequence[float | None],
    model: str,
    n_max: int,
    max_phrases: int,
    stop_words: str | None,
    memory_limit: str,
    threads: int,
    folded: bool = False,
) -> Report:
    """Score the candidates and write the chosen ones, ordered by length and tokens.

    The text of ``folded`` ones is that of their first occurrence.

    Returns
    -------
    dict
        ``candidates``, ``phrases``, ``phrases_of`` (by home corpus), ``undecodable`` (dropped:
        their text holds U+FFFD).
    """
    tokenizer = backbone.load_tokenizer(model)
    flags = score.function_words(token_texts(tokenizer), stop_words)
    shares = score.phrase_shares(corpus_tokens, phrase_shares)
    with connect(folder / f".tmp-duckdb-{key}", memory_limit, threads) as database:
        tokens = score.load(database, candidates, unigrams, flags, n_max)
        score.measure(database, tokens, n_max)
        score.choose(database, corpus_tokens, shares, max_phrases)
        report = _homes(database, corpora)
        path = folder / "catalogue.parquet"
        written = _write(path, database, corpora, n_max, tokenizer, folded)
    return {**report, "phrases": written, "undecodable": report["chosen"] - written}


def _homes(database: duckdb.DuckDBPyConnection, corpora: Sequence[str]) -> Report:
    rows = database.execute(
        "SELECT home, count(*) FROM chosen GROUP BY home ORDER BY home"
    ).fetchall()
    total = database.execute("SELECT count(*) FROM grams").fetchall()
    homes = {corpora[home]: number for home, number in rows}
    return {
        "candidates": total[0][0],
        "chosen": sum(homes.values()),
        "phrases_of": homes,
    }


def _write(
    path: Path,
    database: duckdb.DuckDBPyConnection,
    corpora: Sequence[str],
    n_max: int,
    tokenizer: Any,
    folded: bool,
) -> int:
    # What is decoded: the keys themselves, or what stood where they first occurred.
    spelling = "s" if folded else "t"
    tokens = ", ".join(f"{c}{place}" for c in sorted({"t", spelling}) for place in range(n_max))
    counts = ", ".join(f"count_{corpus}" for corpus in range(len(corpora)))
    query = (
        f"SELECT id, n, {tokens}, count, documents, {counts}, npmi, llr, cvalue, score "
        "FROM chosen JOIN grams USING (id) JOIN scored USING (id, n, count, documents) ORDER BY id"
    )
    schema = catalogue_schema(corpora)
    written = 0
    with (
        appears(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for batch in stream(database, query):
            table = _described(
                pa.Table.from_batches([batch]), corpora, n_max, tokenizer, written, spelling
            )
            writer.write_table(table.cast(schema), row_group_size=BATCH_ROWS)
            written += len(table)
    return written


def _described(
    table: pa.Table,
    corpora: Sequence[str],
    n_max: int,
    tokenizer: Any,
    first_row: int,
    spelling: str,
) -> pa.Table:
    keys = _sequences(table, "t", n_max)
    spelled = keys if spelling == "t" else _sequences(table, spelling, n_max)
    texts = tokenizer.backend_tokenizer.decode_batch(spelled, skip_special_tokens=False)
    sound = np.array([_REPLACEMENT not in text for text in texts], np.bool_)
    columns = {
        "row": np.arange(first_row, first_row + int(sound.sum()), dtype=np.uint32),
        "text": [text.strip() for text, good in zip(texts, sound, strict=True) if good],
        "tokens": [ids for ids, good in zip(keys, sound, strict=True) if good],
    }
    kept = table.filter(pa.array(sound))
    for name in ("n", "count", "documents"):
        columns[name] = kept[name]
    for place, corpus in enumerate(corpora):
        columns[f"count_{corpus}"] = kept[f"count_{place}"]
    for name in ("npmi", "llr", "cvalue", "score"):
        columns[name] = kept[name]
    return pa.table(columns)


def _sequences(table: pa.Table, column: str, n_max: int) -> list[list[int]]:
    lengths = table["n"].to_pylist()
    matrix = np.stack([table[f"{column}{place}"].to_numpy() for place in range(n_max)], axis=1)
    return [row[:length] for row, length in zip(matrix.tolist(), lengths, strict=True)]
