"""Plain text: one document a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read.document import Document, LeftOut
from phrasemem.pipeline.read.opening import opened

# A longer run of text is cut at a line end, so that one huge file does not fill the memory.
_DOCUMENT_BYTES = 1 << 20


def read_text(path: Path, name: str, corpus: Corpus) -> Iterator[Document | LeftOut]:
    """Read a text file as documents of up to a megabyte, cut at line ends."""
    lines: list[bytes] = []
    size = 0
    ordinal = 0
    with opened(path) as file:
        for line in file:
            lines.append(line)
            size += len(line)
            if size >= _DOCUMENT_BYTES:
                yield _document(lines, name, ordinal, corpus)
                lines, size, ordinal = [], 0, ordinal + 1
    if lines:
        yield _document(lines, name, ordinal, corpus)


def _document(lines: list[bytes], name: str, ordinal: int, corpus: Corpus) -> Document | LeftOut:
    try:
        text = b"".join(lines).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return LeftOut("not-utf-8", f"piece {ordinal}", detail=str(error))
    identity = f"{name}#{ordinal}" if ordinal else name
    return Document(identity, corpus.name, corpus.kind, "", text)
