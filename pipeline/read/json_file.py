"""A JSON file that is a list of records, or a mapping of ids to records."""

from __future__ import annotations

import json

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import LeftOut, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.records import from_record
from phrasemem.pipeline.read.source import Source

# The file is in memory as a whole: a larger one belongs in JSON lines.
_FILE_IN_RECORDS = 16


def read_json(source: Source, corpus: Corpus) -> Records:
    """Read the records of a file of up to 16 times ``max_record_bytes``."""
    most = _FILE_IN_RECORDS * source.max_record_bytes
    with opened(source) as file:
        content = file.read(most + 1)
    if len(content) > most:
        yield LeftOut("file-too-long", "byte 0", detail=f"JSON of more than {most} bytes")
        return
    try:
        data = json.loads(content)
    except RecursionError:
        yield LeftOut("nested-too-deep", "byte 0")
    except ValueError as error:  # also bad UTF-8, and a number of too many digits
        yield LeftOut("not-json", "byte 0", detail=str(error))
    else:
        yield from _records(data, source, corpus)


def _records(data: object, source: Source, corpus: Corpus) -> Records:
    if isinstance(data, dict):
        for ordinal, (key, record) in enumerate(data.items()):
            yield from_record(record, corpus, key, f"record {ordinal}")
    elif isinstance(data, list):
        for ordinal, record in enumerate(data):
            yield from_record(record, corpus, f"{source.name}#{ordinal}", f"record {ordinal}")
    else:
        yield LeftOut("not-records", "byte 0", detail="neither a list nor a mapping")
