"""All candidates with their scores, and why each is in the catalogue or not: ``scored.parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.catalogue_table import ENTROPIES
from phrasemem.pipeline.choice import CHOSEN, OVER_BUDGET
from phrasemem.pipeline.database import BATCH_ROWS, stream
from phrasemem.pipeline.stage import appears

SCORED_FILE = "scored.parquet"
UNDECODABLE = "undecodable"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def scored_schema(corpora: Sequence[str]) -> pa.Schema:
    """Return the columns: those of a catalogue, and ``home``, ``place``, ``verdict``, ``holder``.

    ``home`` is the corpus whose budget a candidate takes, ``place`` its rank among those there
    that break no rule, ``verdict`` is ``chosen``, ``over budget`` or the rule that it breaks,
    and ``holder`` the row of the longer candidate that it is nested in.
    """
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
            *((name, pa.float32()) for name in ("npmi", "llr", "cvalue", *ENTROPIES, "score")),
            ("home", pa.string()),
            ("place", pa.uint32()),
            ("verdict", pa.string()),
            ("holder", pa.uint32()),
        ]
    )


def write_scored(
    path: Path,
    database: duckdb.DuckDBPyConnection,
    corpora: Sequence[str],
    n_max: int,
    tokenizer: Any,
    carried: Sequence[str],
) -> None:
    """Write all candidates, ordered by n and tokens."""
    schema = scored_schema(corpora)
    with (
        appears(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for batch in stream(database, _query(corpora, n_max, carried)):
            table = _described(pa.Table.from_batches([batch]), corpora, n_max, tokenizer)
            writer.write_table(table.select(schema.names).cast(schema), row_group_size=BATCH_ROWS)


def _query(corpora: Sequence[str], n_max: int, carried: Sequence[str]) -> str:
    tokens = ", ".join((*carried, *(f"t{place}" for place in range(n_max))))
    counts = ", ".join(
        f'{sums}_{place} AS "{sums}_{name}"'
        for sums in ("count", "documents")
        for place, name in enumerate(corpora)
    )
    measures = ", ".join(("npmi", "llr", "cvalue", *(f"g.{name}" for name in ENTROPIES)))
    verdict = f"coalesce(reason, CASE WHEN c.id IS NULL THEN '{OVER_BUDGET}' ELSE '{CHOSEN}' END)"
    return (
        f"SELECT g.id AS row, n, {tokens}, g.count, g.documents, {counts}, {measures}, s.score, "
        f"j.home AS home_number, place, {verdict} AS verdict, holder "
        "FROM grams g JOIN scored s USING (id, n) JOIN judged j USING (id) "
        "LEFT JOIN chosen c USING (id) ORDER BY g.id"
    )


def _described(table: pa.Table, corpora: Sequence[str], n_max: int, tokenizer: Any) -> pa.Table:
    keys = sequences(table, "t", n_max)
    texts = texts_of(table, keys, n_max, tokenizer)
    verdicts = table["verdict"].to_pylist()
    columns = {
        "text": [text.strip() for text in texts],
        "tokens": keys,
        "home": [corpora[number] for number in table["home_number"].to_pylist()],
        "verdict": [
            UNDECODABLE if verdict == CHOSEN and REPLACEMENT in text else verdict
            for text, verdict in zip(texts, verdicts, strict=True)
        ],
    }
    for name in ("text", "verdict"):
        if name in table.column_names:
            table = table.drop_columns([name])
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def texts_of(table: pa.Table, keys: list[list[int]], n_max: int, tokenizer: Any) -> list[str]:
    """Return the texts of keys; of folded ones what stood where they first occurred."""
    if "text" in table.column_names:
        return cast(list[str], table["text"].to_pylist())
    # A single token has the text of its id.
    spelled = sequences(table, "s", n_max) if "s0" in table.column_names else keys
    decode = tokenizer.backend_tokenizer.decode_batch
    return cast(list[str], decode(spelled, skip_special_tokens=False))


def sequences(table: pa.Table, column: str, n_max: int) -> list[list[int]]:
    """Return the ids in the columns ``column0..`` of each row, as many as it is long."""
    lengths = table["n"].to_pylist()
    matrix = np.stack([table[f"{column}{place}"].to_numpy() for place in range(n_max)], axis=1)
    return [row[:length] for row, length in zip(matrix.tolist(), lengths, strict=True)]
