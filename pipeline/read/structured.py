"""Records with fields: a JSON file, JSON lines, a CSV file inside a zip archive."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut, ReadError
from phrasemem.pipeline.read.opening import opened, opened_in_zip

Records = Iterator[Document | LeftOut]
_CSV_FIELD_LIMIT = 1 << 24


def from_record(record: Any, corpus: Corpus, ordinal: int, default_id: str) -> Document | LeftOut:
    """Make a document of one record, by the corpus' field names."""
    where = f"record {ordinal}"
    if not isinstance(record, Mapping):
        return LeftOut("not-an-object", where, detail=type(record).__name__)
    text = record.get(corpus.text_field)
    if text is None:
        return LeftOut("no-text-field", where, detail=f"no field {corpus.text_field!r}")
    if not isinstance(text, str):
        return LeftOut("text-not-a-string", where, detail=type(text).__name__)
    title = record.get(corpus.title_field) if corpus.title_field else ""
    key = record.get(corpus.id_field) if corpus.id_field else None
    return Document(
        id=str(key) if key not in (None, "") else default_id,
        corpus=corpus.name,
        kind=corpus.kind,
        title=title if isinstance(title, str) else "",
        text=text,
    )


def read_json(path: Path, name: str, corpus: Corpus) -> Records:
    """Read a JSON file that is a list of records, or a mapping of ids to records.

    The whole file is in memory: JSON of more than some hundred megabytes belongs in JSON lines.
    """
    with opened(path) as file:
        try:
            data = json.load(file)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ReadError(f"not a JSON file: {error}", where=path) from error
    if isinstance(data, dict):
        for ordinal, (key, record) in enumerate(data.items()):
            yield from_record(record, corpus, ordinal, key)
    elif isinstance(data, list):
        for ordinal, record in enumerate(data):
            yield from_record(record, corpus, ordinal, f"{name}#{ordinal}")
    else:
        raise ReadError("neither a list nor a mapping of records", where=path)


def read_jsonl(path: Path, name: str, corpus: Corpus) -> Records:
    """Read one JSON record a line; a bad line is left out, the others are kept."""
    with opened(path) as file:
        for ordinal, line in enumerate(file):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except UnicodeDecodeError as error:
                yield LeftOut("not-utf-8", f"line {ordinal + 1}", detail=str(error))
            except json.JSONDecodeError as error:
                yield LeftOut("not-json", f"line {ordinal + 1}", detail=str(error))
            else:
                yield from_record(record, corpus, ordinal, f"{name}#{ordinal}")


def read_csv_zip(path: Path, name: str, corpus: Corpus) -> Records:
    """Read the CSV file of a zip archive; its first row names the fields."""
    csv.field_size_limit(_CSV_FIELD_LIMIT)
    with (
        opened_in_zip(path, ".csv") as file,
        # surrogateescape: a bad byte spoils its own record, not the whole file.
        io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="") as lines,
    ):
        rows = csv.reader(lines)
        header = next(rows, None)
        if header is None or corpus.text_field not in header:
            raise ReadError(
                "the CSV file has no such column",
                expected=corpus.text_field,
                found=header or "an empty file",
                where=path,
            )
        for ordinal, row in enumerate(_rows(rows)):
            yield _from_row(row, header, corpus, ordinal, f"{name}#{ordinal}")


def _rows(rows: Iterator[list[str]]) -> Iterator[list[str] | csv.Error]:
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield error


def _from_row(
    row: list[str] | csv.Error, header: list[str], corpus: Corpus, ordinal: int, default_id: str
) -> Document | LeftOut:
    where = f"record {ordinal}"
    if isinstance(row, csv.Error):
        return LeftOut("not-csv", where, detail=str(row))
    if len(row) != len(header):
        return LeftOut("wrong-field-count", where, detail=f"{len(row)} of {len(header)}")
    record = dict(zip(header, row, strict=True))
    if any("\udc80" <= mark <= "\udcff" for mark in record[corpus.text_field]):
        return LeftOut("not-utf-8", where)
    return from_record(record, corpus, ordinal, default_id)
