"""JSON lines, as C4 and FineWeb have them, or in the shapes of S2ORC and arXiv."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut, Records
from phrasemem.pipeline.read.lines import lines_of
from phrasemem.pipeline.read.records import from_record
from phrasemem.pipeline.read.science import from_arxiv, from_s2orc
from phrasemem.pipeline.read.source import Source

# (record, corpus, default id, where)
ToDocument = Callable[[Any, Corpus, str, str], Document | LeftOut]


def read_json_lines(
    source: Source, corpus: Corpus, to_document: ToDocument = from_record
) -> Records:
    """Read one JSON record a line; a bad line is left out, the others are kept."""
    for offset, line in lines_of(source):
        where = f"byte {offset}"
        if line is None:
            yield LeftOut("line-too-long", where)
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except UnicodeDecodeError as error:
            yield LeftOut("not-utf-8", where, detail=str(error))
        except ValueError as error:  # also a number of too many digits
            yield LeftOut("not-json", where, detail=str(error))
        except RecursionError:
            yield LeftOut("nested-too-deep", where)
        else:
            yield to_document(record, corpus, f"{source.name}@{offset}", where)


def read_arxiv(source: Source, corpus: Corpus) -> Records:
    """Read the metadata of arXiv: one paper a line."""
    return read_json_lines(source, corpus, from_arxiv)


def read_s2orc(source: Source, corpus: Corpus) -> Records:
    """Read S2ORC: one paper a line."""
    return read_json_lines(source, corpus, from_s2orc)
