"""Plain text: one document a file, or one a megabyte."""

from __future__ import annotations

import codecs
from itertools import groupby

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import DamageError, Document, LeftOut, Records
from phrasemem.pipeline.read.lines import lines_of
from phrasemem.pipeline.read.opening import opened
from phrasemem.pipeline.read.source import Source

# A longer run of text is cut at a line end, so that one huge file does not fill the memory.
DOCUMENT_BYTES = 1 << 20
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_text(source: Source, corpus: Corpus) -> Records:
    """Read a text file as documents of about a megabyte.

    A document is the lines that start in one megabyte of the file: so the documents do not depend
    on where a reader starts. UTF-8, or UTF-16 and UTF-32 with a mark at the start.
    """
    encoding = wide_encoding(source)
    if encoding is not None:
        yield from _read_wide(source, corpus, encoding)
        return
    damage = None
    lines = lines_of(source)
    for _, group in groupby(lines, key=lambda line: line[0] // DOCUMENT_BYTES):
        kept: list[bytes] = []
        start = None
        try:
            for offset, line in group:
                start = offset if start is None else start
                if line is None:
                    yield LeftOut("line-too-long", f"byte {offset}")
                else:
                    kept.append(line)
        except DamageError as error:
            damage = error
        if kept and start is not None:
            yield _document(b"".join(kept), start, source, corpus)
        if damage is not None:
            raise damage


def wide_encoding(source: Source) -> str | None:
    """Return the encoding that a file's byte order mark names, if it is not UTF-8."""
    with opened(source) as file:
        start = file.read(4)
    return next((name for mark, name in _WIDE.items() if start.startswith(mark)), None)


def _document(data: bytes, offset: int, source: Source, corpus: Corpus) -> Document | LeftOut:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return LeftOut("not-utf-8", f"byte {offset + error.start}", detail=str(error))
    if "\0" in text:
        return LeftOut("nul-bytes", f"byte {offset + data.index(0)}")
    identity = f"{source.name}@{offset}" if offset else source.name
    return Document(identity, corpus.name, corpus.kind, "", text)


def _read_wide(source: Source, corpus: Corpus, encoding: str) -> Records:
    with opened(source) as file:
        data = file.read(source.max_record_bytes + 1)
    if len(data) > source.max_record_bytes:
        yield LeftOut("record-too-long", "byte 0", detail=f"{encoding} text is read at once")
        return
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        yield LeftOut(f"not-{encoding}", f"byte {error.start}", detail=str(error))
        return
    yield Document(source.name, corpus.name, corpus.kind, "", text)
