"""Readers: one module a format, one record type, one verb. Large inputs are streamed."""

from __future__ import annotations

from collections.abc import Iterator

from phrasemem.pipeline.config import Corpus, Format
from phrasemem.pipeline.read.document import DamageError, Document, LeftOut, ReadError, Records
from phrasemem.pipeline.read.formats import format_of, reader_of
from phrasemem.pipeline.read.source import Source

__all__ = ["Document", "LeftOut", "ReadError", "Records", "Source", "format_of", "read_file"]


def read_file(source: Source, format: Format, corpus: Corpus) -> Iterator[Document | LeftOut]:
    """Read one file, or a span of it; what is damaged is a :class:`LeftOut`, not an error.

    Parameters
    ----------
    source : Source
    format : Format
        Anything but ``auto`` and ``hf-dataset``.
    corpus : Corpus
        Gives the field names.

    Raises
    ------
    ReadError
        If the file is missing.
    """
    try:
        yield from reader_of(format)(source, corpus)
    except DamageError as damage:
        yield damage.as_left_out()
