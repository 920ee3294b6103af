"""A CSV file inside a zip archive; its first row names the fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut, Records
from phrasemem.pipeline.read.opening import opened_in_zip
from phrasemem.pipeline.read.records import from_record
from phrasemem.pipeline.read.source import Source

_FIELD_LIMIT = 1 << 24


def read_csv_zip(source: Source, corpus: Corpus) -> Records:
    """Read the rows; one that is no CSV, or has too many fields, is left out."""
    csv.field_size_limit(_FIELD_LIMIT)
    with opened_in_zip(source, ".csv") as file:
        rows = _rows(csv.reader(_lines(file)))
        header = next(rows, None)
        if not isinstance(header, list) or corpus.text_field not in header:
            found = f"no column {corpus.text_field!r}: {header or 'an empty file'}"
            yield LeftOut("no-text-column", "record 0", detail=found)
            return
        for ordinal, row in enumerate(rows):
            yield _from_row(row, header, corpus, ordinal, f"{source.name}#{ordinal}")


def _lines(file: io.BufferedReader) -> Iterator[str]:
    """Yield lines; of one that is too long as much as makes the parser refuse the row."""
    encoding = "utf-8-sig"
    while line := file.readline(_FIELD_LIMIT + 2):
        if not line.endswith(b"\n"):
            while len(more := file.readline(1 << 20)) > 0 and not more.endswith(b"\n"):
                pass
        # surrogateescape: a bad byte spoils its own record, not the whole file.
        yield line.decode(encoding, "surrogateescape")
        encoding = "utf-8"


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
        long = "field limit" in str(row)
        return LeftOut("line-too-long" if long else "not-csv", where, detail=str(row))
    if len(row) != len(header):
        return LeftOut("wrong-field-count", where, detail=f"{len(row)} of {len(header)}")
    record = dict(zip(header, row, strict=True))
    if any("\udc80" <= mark <= "\udcff" for mark in record[corpus.text_field]):
        return LeftOut("not-utf-8", where)
    return from_record(record, corpus, default_id, where)
