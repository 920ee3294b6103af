"""Writes the catalogue: the chosen phrases with text, counts and scores, as Parquet."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem import backbone
from phrasemem.memfmt.keys import SHORTEST_PHRASE
from phrasemem.pipeline import choice
from phrasemem.pipeline.boundaries import token_texts
from phrasemem.pipeline.catalogue_table import ENTROPIES, catalogue_schema
from phrasemem.pipeline.database import BATCH_ROWS, connect, stream
from phrasemem.pipeline.score import load, measure
from phrasemem.pipeline.scored_table import (
    REPLACEMENT,
    SCORED_FILE,
    sequences,
    texts_of,
    write_scored,
)
from phrasemem.pipeline.single_tokens import single_rows
from phrasemem.pipeline.stage import Report, appears
from phrasemem.pipeline.token_words import word_table
from phrasemem.pipeline.unigrams import read_unigrams

_MEASURES = ", ".join(("npmi", "llr", "cvalue", *ENTROPIES, "score"))


def score_part(
    folder: Path,
    key: str,
    *,
    candidates: Sequence[str],
    unigrams: str,
    corpora: Sequence[str],
    phrase_shares: Sequence[float | None],
    model: str,
    corpus_documents: Sequence[int],
    n_max: int,
    min_count: int,
    min_documents: int,
    kinds: Sequence[str],
    max_phrases: int,
    score: str,
    allow_function_runs: bool,
    nested_share: float | None,
    kind_shares: Mapping[str, float],
    shortest: int,
    stop_words: str | None,
    memory_limit: str,
    threads: int,
    carried: Sequence[str] = (),
) -> Report:
    """Score the candidates and write the chosen ones, ordered by length and tokens.

    Parameters
    ----------
    candidates : sequence of str
        Files with the columns of the stage ``candidates``; of one n-gram there is one row.
    unigrams : str
        A file ``unigrams.parquet`` with all of the corpora.
    carried : sequence of str
        Columns of the candidates that tell the text where the ids are folded: the ids ``s0..``
        that stood there, or ``text`` itself.
    kinds : sequence of str
        Of the corpora.
    score, allow_function_runs, nested_share, kind_shares
        As in :class:`phrasemem.pipeline.config.Mining`.
    min_count, min_documents : int
        Limits of single tokens; the candidates have passed theirs.

    Returns
    -------
    dict
        ``candidates``, ``phrases``, ``phrases_of`` (by home corpus), ``single`` (rows of
        single tokens and the root), ``undecodable`` and ``undecodable_single`` (dropped: their
        text holds U+FFFD).
    """
    tokenizer = backbone.load_tokenizer(model)
    single = read_unigrams(Path(unigrams), corpora)
    corpus_tokens = single.corpus_tokens()
    shares = choice.phrase_shares(corpus_tokens, phrase_shares, kinds, kind_shares)
    vocabulary = word_table(token_texts(tokenizer), stop_words)
    with connect(folder / f".tmp-duckdb-{key}", memory_limit, threads) as database:
        tokens = load(database, candidates, single.totals(), vocabulary, n_max)
        measure(database, tokens, n_max, score)
        choice.judge(
            database,
            corpus_tokens,
            n_max,
            allow_function_runs=allow_function_runs,
            nested_share=nested_share,
        )
        choice.choose(database, shares, max_phrases)
        write_scored(folder / SCORED_FILE, database, corpora, n_max, tokenizer, carried)
        report = _homes(database, corpora)
        rows = single_rows(
            single,
            corpus_documents,
            n_max,
            shortest=shortest,
            min_count=min_count,
            min_documents=min_documents,
        )
        batches = itertools.chain(rows.to_batches(), _phrases(database, corpora, n_max, carried))
        lengths = _write(folder / "catalogue.parquet", batches, corpora, n_max, tokenizer)
    phrases = sum(number for length, number in lengths.items() if length >= SHORTEST_PHRASE)
    kept = lengths.total() - phrases
    return {
        **report,
        "phrases": phrases,
        "max_phrases": max_phrases,
        "single": kept,
        "undecodable": report["chosen"] - phrases,
        "undecodable_single": len(rows) - kept,
    }


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


def _phrases(
    database: duckdb.DuckDBPyConnection,
    corpora: Sequence[str],
    n_max: int,
    carried: Sequence[str],
) -> pa.RecordBatchReader:
    tokens = ", ".join((*carried, *(f"t{place}" for place in range(n_max))))
    counts = ", ".join(
        f"{sums}_{corpus}" for sums in ("count", "documents") for corpus in range(len(corpora))
    )
    query = (
        f"SELECT id, n, {tokens}, count, documents, {counts}, {_MEASURES} "
        "FROM chosen JOIN grams USING (id) JOIN scored USING (id, n, count, documents) ORDER BY id"
    )
    return stream(database, query)


def _write(
    path: Path,
    batches: Iterable[pa.RecordBatch],
    corpora: Sequence[str],
    n_max: int,
    tokenizer: Any,
) -> Counter[int]:
    """Write the catalogue; return how many rows there are of each length."""
    schema = catalogue_schema(corpora)
    lengths: Counter[int] = Counter()
    with (
        appears(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            table = _described(rows, corpora, n_max, tokenizer, lengths.total())
            writer.write_table(table.cast(schema), row_group_size=BATCH_ROWS)
            lengths.update(table["n"].to_pylist())
    return lengths


def _described(
    table: pa.Table,
    corpora: Sequence[str],
    n_max: int,
    tokenizer: Any,
    first_row: int,
) -> pa.Table:
    keys = sequences(table, "t", n_max)
    texts = texts_of(table, keys, n_max, tokenizer)
    sound = np.array([REPLACEMENT not in text for text in texts], np.bool_)
    columns = {
        "row": np.arange(first_row, first_row + int(sound.sum()), dtype=np.uint32),
        "text": [text.strip() for text, good in zip(texts, sound, strict=True) if good],
        "tokens": [ids for ids, good in zip(keys, sound, strict=True) if good],
    }
    kept = table.filter(pa.array(sound))
    for name in ("n", "count", "documents"):
        columns[name] = kept[name]
    for sums in ("count", "documents"):
        for place, corpus in enumerate(corpora):
            columns[f"{sums}_{corpus}"] = kept[f"{sums}_{place}"]
    for name in ("npmi", "llr", "cvalue", *ENTROPIES, "score"):
        columns[name] = kept[name]
    return pa.table(columns)
