"""Stage ``read``: from source files to chunks of documents, and the quarantine of bad records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import Document, LeftOut, Records, Source, format_of, read_file
from phrasemem.pipeline.read.hub import read_hub
from phrasemem.pipeline.read.source import MAX_RECORD_BYTES
from phrasemem.pipeline.stage import Report, appears

CHUNK_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("text", pa.string())])


def read_part(
    folder: Path,
    key: str,
    *,
    corpus: dict[str, Any],
    name: str,
    location: str,
    shard: int,
    shards: int,
    pieces_of_corpus: int,
    chunk_chars: int,
    span: tuple[int, int] | None = None,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Report:
    """Read one piece of a corpus and write it as chunks of about ``chunk_chars`` characters.

    A piece is a file, a span of one, or a shard of a dataset.

    Returns
    -------
    dict
        ``chunks`` (names), ``documents``, ``chars``, ``left_out`` (counts by reason).
    """
    settings = Corpus.model_validate(corpus)
    source = Source(location, name, span, max_record_bytes)
    left_out: Counter[str] = Counter()
    chunks: list[str] = []
    documents = chars = 0
    with quarantine(folder / f"{key}.quarantine.jsonl", name) as set_aside:
        records = _sort_out(_records(settings, source, shard, shards), left_out, set_aside)
        kept = _within_budget(records, settings, pieces_of_corpus)
        for chunk in _chunks(kept, chunk_chars):
            chunks.append(f"{key}-{len(chunks):05d}")
            write_chunk(folder / f"{chunks[-1]}.parquet", chunk)
            documents += len(chunk)
            chars += sum(len(document.text) for document in chunk)
    return {
        "chunks": chunks,
        "documents": documents,
        "chars": chars,
        "left_out": dict(sorted(left_out.items())),
    }


def _records(corpus: Corpus, source: Source, shard: int, shards: int) -> Records:
    if source.location.startswith("hf:"):
        return read_hub(source.location, shard, shards, corpus)
    return read_file(source, format_of(source, corpus.format), corpus)


def _sort_out(
    records: Records, left_out: Counter[str], set_aside: Callable[[LeftOut], None]
) -> Iterator[Document]:
    for record in records:
        if isinstance(record, Document):
            yield replace(
                record,
                id=_encodable(record.id),
                title=_encodable(record.title),
                text=_encodable(record.text),
            )
            continue
        left_out[record.reason] += 1
        if record.bad:
            set_aside(record)


@contextmanager
def quarantine(path: Path, name: str) -> Iterator[Callable[[LeftOut], None]]:
    """Yield a function that writes a bad record of file ``name`` down; without one, no file."""
    with ExitStack() as stack:
        files: list[TextIO] = []

        def set_aside(record: LeftOut) -> None:
            if not files:
                temporary = stack.enter_context(appears(path))
                files.append(stack.enter_context(temporary.open("w", encoding="utf-8")))
            line = {
                "file": name,
                "where": record.where,
                "reason": record.reason,
                "detail": record.detail[:200],
            }
            files[0].write(json.dumps(line, sort_keys=True) + "\n")

        yield set_aside


def _within_budget(
    documents: Iterator[Document], corpus: Corpus, pieces: int
) -> Iterator[Document]:
    """Stop at this piece's even share of the corpus' budget; one document is always read."""
    budget = corpus.budget
    most = -(-budget.max_documents // pieces) if budget.max_documents else None
    room = -(-budget.max_bytes // pieces) if budget.max_bytes else None
    size = 0
    for taken, document in enumerate(documents):
        size += len(document.text.encode())
        full = (most is not None and taken >= most) or (room is not None and size > room)
        if full and taken:
            return
        yield document


def _chunks(documents: Iterator[Document], chunk_chars: int) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    chars = 0
    for document in documents:
        chunk.append(document)
        chars += len(document.text)
        if chars >= chunk_chars:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


def write_chunk(path: Path, documents: Sequence[Document]) -> None:
    """Write documents of one corpus as Parquet: id, title, text."""
    columns = [
        pa.array([document.id for document in documents], pa.string()),
        pa.array([document.title for document in documents], pa.string()),
        pa.array([document.text for document in documents], pa.string()),
    ]
    with appears(path) as temporary:
        pq.write_table(pa.table(columns, schema=CHUNK_SCHEMA), temporary, compression="zstd")


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can carry and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
