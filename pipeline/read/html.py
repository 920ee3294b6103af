"""HTML files: one document a file, its main text."""

from __future__ import annotations

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import LeftOut, Records
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source
from phrasemem.pipeline.read.webpage import document_of_page


def read_html(source: Source, corpus: Corpus) -> Records:
    """Read one page."""
    with opened(source) as file:
        data = file.read(source.max_record_bytes + 1)
    if len(data) > source.max_record_bytes:
        yield LeftOut("record-too-long", "byte 0")
        return
    yield document_of_page(data, None, source.name, "byte 0", corpus)
