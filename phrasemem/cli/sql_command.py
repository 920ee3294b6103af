"""``phrasemem sql``: DuckDB over the catalogue of a memory."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phrasemem.cli.memory_path import MEMORY
from phrasemem.cli.pipeline_options import pipeline_needed
from phrasemem.held_out import HELD_OUT_FILE
from phrasemem.memfmt.errors import PhraseMemError

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 1 << 14


class SqlError(PhraseMemError):
    """A statement that DuckDB cannot run."""


@click.command("sql")
@click.argument("path", type=MEMORY, metavar="MEMORY")
@click.argument("statement", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "jsonl"]),
    default="table",
    show_default=True,
    help="table shows the first rows only.",
)
@click.option("--max-rows", type=click.IntRange(min=1), default=40, show_default=True)
def command(path: Path, statement: str | None, form: str, max_rows: int) -> None:
    """Run a SQL STATEMENT over what a memory says of its phrases.

    Tables: catalogue (a row for each phrase), unigrams (single tokens), corpora, heldout
    (documents that were never mined). Without a statement, their columns are listed. The
    dialect is DuckDB's. Tables are views, so that INSERT, UPDATE and DELETE have nothing to
    change; COPY TO writes where you tell it to.
    """
    from phrasemem.memfmt.files import check_lengths, read_manifest

    manifest = read_manifest(path)
    files = {name: manifest.files[name] for name, _ in _VIEWS.values() if name in manifest.files}
    check_lengths(path, files)
    with pipeline_needed():
        import duckdb
    with duckdb.connect() as database:
        corpora = [corpus.model_dump() for corpus in manifest.corpora]
        try:
            _define_tables(database, path, set(files), corpora)
            result = database.sql(statement or _COLUMNS)
            if result is not None:
                _FORMS[form](result, max_rows)
        except duckdb.Error as error:
            first = str(error).strip().splitlines()[0]
            raise SqlError(
                f"DuckDB: {first}", hint="without a statement, all columns are listed"
            ) from error


_COLUMNS = """
    SELECT table_name AS "table", column_name AS "column", data_type AS type
    FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal
    ORDER BY table_name, column_index
"""

_VIEWS = {
    "catalogue": (
        "catalogue.parquet",
        "SELECT * FROM read_parquet('{}', hive_partitioning = false)",
    ),
    "unigrams": ("unigrams.parquet", "SELECT * FROM read_parquet('{}', hive_partitioning = false)"),
    "heldout": (
        HELD_OUT_FILE,
        "SELECT * FROM read_json('{}', hive_partitioning = false, format='newline_delimited', "
        "compression='zstd', columns="
        "{{id: 'VARCHAR', corpus: 'VARCHAR', kind: 'VARCHAR', split: 'VARCHAR', text: 'VARCHAR'}})",
    ),
}


def _define_tables(
    database: duckdb.DuckDBPyConnection, path: Path, files: set[str], corpora: list[dict[str, Any]]
) -> None:
    """Make a view of each file that is listed, and the table of corpora."""
    for view, (name, query) in _VIEWS.items():
        if name in files:
            # A view cannot take parameters; a quote is written twice inside quotes. The path is
            # taken for a pattern.
            escaped = re.sub(r"[\[*?]", r"[\g<0>]", str((path / name).resolve()))
            quoted = escaped.replace("'", "''")
            database.execute(f"CREATE VIEW {view} AS {query.format(quoted)}")
    database.execute(
        "CREATE TABLE corpora (name VARCHAR, kind VARCHAR, licence VARCHAR, source VARCHAR, "
        "documents UBIGINT, tokens UBIGINT)"
    )
    if corpora:
        database.executemany(
            "INSERT INTO corpora VALUES (?, ?, ?, ?, ?, ?)", [list(c.values()) for c in corpora]
        )


def _print_table(result: duckdb.DuckDBPyRelation, max_rows: int) -> None:
    result.show(max_rows=max_rows)


def _print_csv(result: duckdb.DuckDBPyRelation, max_rows: int) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    for row in _rows(result):
        # Lists have no form of their own in CSV.
        writer.writerow(json.dumps(v) if isinstance(v, list | dict) else v for v in row)


def _print_jsonl(result: duckdb.DuckDBPyRelation, max_rows: int) -> None:
    names = result.columns
    for row in _rows(result):
        named = dict(zip(names, row, strict=True))
        click.echo(json.dumps(named, ensure_ascii=False, default=str))


def _rows(result: duckdb.DuckDBPyRelation) -> Iterator[tuple[Any, ...]]:
    for batch in result.to_arrow_reader(_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


_FORMS: dict[str, Callable[[Any, int], None]] = {
    "table": _print_table,
    "csv": _print_csv,
    "jsonl": _print_jsonl,
}
