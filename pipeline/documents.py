"""Stage ``read``: from source files to chunks of documents, and the quarantine of bad records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from phrasemem.pipeline.config import Corpus
from phrasemem.pipeline.read import Document, LeftOut, format_of, read_file
from phrasemem.pipeline.read.hub import read_hub
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
) -> Report:
    """Read one piece of a corpus and write it as chunks of about ``chunk_chars`` characters.

    Returns
    -------
    dict
        ``chunks`` (names), ``documents``, ``chars``, ``left_out`` (counts by reason).
    """
    settings = Corpus.model_validate(corpus)
    left_out: Counter[str] = Counter()
    bad: list[dict[str, str]] = []
    chunks: list[str] = []
    documents = chars = 0
    records = _records(settings, name, location, shard, shards)
    kept = _within_budget(_sort_out(records, name, left_out, bad), settings, pieces_of_corpus)
    for chunk in _chunks(kept, chunk_chars):
        chunks.append(f"{key}-{len(chunks):05d}")
        write_chunk(folder / f"{chunks[-1]}.parquet", chunk)
        documents += len(chunk)
        chars += sum(len(document.text) for document in chunk)
    if bad:
        _write_quarantine(folder / f"{key}.quarantine.jsonl", bad)
    return {
        "chunks": chunks,
        "documents": documents,
        "chars": chars,
        "left_out": dict(sorted(left_out.items())),
    }


def _records(
    corpus: Corpus, name: str, location: str, shard: int, shards: int
) -> Iterator[Document | LeftOut]:
    if location.startswith("hf:"):
        return read_hub(location, shard, shards, corpus)
    path = Path(location)
    return read_file(path, name, format_of(path, corpus.format), corpus)


def _sort_out(
    records: Iterator[Document | LeftOut],
    name: str,
    left_out: Counter[str],
    bad: list[dict[str, str]],
) -> Iterator[Document]:
    for record in records:
        if isinstance(record, Document):
            yield record
            continue
        left_out[record.reason] += 1
        if record.bad:
            bad.append(
                {
                    "file": name,
                    "where": record.where,
                    "reason": record.reason,
                    "detail": record.detail[:200],
                }
            )


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
        pa.array([_encodable(document.text) for document in documents], pa.string()),
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


def _write_quarantine(path: Path, bad: list[dict[str, str]]) -> None:
    with appears(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for record in bad:
            file.write(json.dumps(record, sort_keys=True) + "\n")
